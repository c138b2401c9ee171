"""The table of rules in the README is that of the library.

python tests/rules/test_rules_table.py      # puts the library of today into the README
"""

from __future__ import annotations

import re
from pathlib import Path

from traceana.rules import RuleText, describe, names

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- rules: [^\n]* -->\n)(.*?)(<!-- /rules -->\n)", re.DOTALL)

#: Defaults that follow from the recorded kernel and its number of CPUs.
DEFAULTS = {
    "slice_ns": "slice",
    "short_threshold_ns": "slice / 8",
    "short_limit_ns": "slice / 8",
    "migration_cost_ns": "migration cost",
}


def _summary(text: RuleText) -> str:
    """The first line, without the rule's own name in front."""
    head, colon, rest = text.summary.partition(": ")
    told = rest if colon and re.match(r"SIS_SHORT v\d", head) else text.summary
    return told[0].upper() + told[1:].removesuffix(".")


def _parameters(text: RuleText) -> str:
    return ", ".join(f"`{p.name}` = {DEFAULTS.get(str(p.default), p.default)}" for p in text.params)


def table() -> str:
    lines = ["| rule | what it does | parameters | with `+` |", "|---|---|---|---|"]
    for name in names():
        text = describe(name)
        combines = "yes" if text.steps else ""
        lines.append(f"| `{name}` | {_summary(text)} | {_parameters(text)} | {combines} |")
    return "\n".join(lines) + "\n"


def test_the_readme_shows_the_library() -> None:
    [(_, shown, _)] = BLOCK.findall(README.read_text())
    assert shown == table(), "run: python tests/rules/test_rules_table.py"


def test_rows_are_whole() -> None:
    rows = [row.split(" | ") for row in table().splitlines()[2:]]
    assert len(rows) == len(names())
    assert all(len(row) == 4 for row in rows)


if __name__ == "__main__":
    page = README.read_text()
    README.write_text(BLOCK.sub(lambda m: f"{m[1]}{table()}{m[3]}", page))
