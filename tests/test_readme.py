"""What the README shows is what the commands print.

python tests/test_readme.py      # puts the output of today into the README
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"```console\n\$ traceana ([^\n]+)\n(.*?)```", re.DOTALL)
SHOWN = BLOCK.findall(README)


def test_there_are_three() -> None:
    assert len(SHOWN) == 3
    assert all(output.strip() for _, output in SHOWN)


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[c for c, _ in SHOWN])
def test_command_prints_what_is_shown(cli: Callable[..., Any], command: str, shown: str) -> None:
    ran = cli(*shlex.split(command))
    assert ran.status == 0, ran.err
    pattern = "".join(
        r"(?:.*\n)*?" if line == "...\n" else re.escape(line)
        for line in shown.splitlines(keepends=True)
    )
    assert re.fullmatch(pattern, ran.out), ran.out


def test_the_python_example_runs() -> None:
    [code] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    again = code + code + "assert wakeups.num_rows > 60_000 and len(slow.rules) == 2\n"
    done = subprocess.run([sys.executable, "-c", again], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_the_two_commands_are_named_and_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("report", "test"):
        assert f"make {target}" in README
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE)


def test_every_dependency_has_a_reason() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    block = project.partition("dependencies = [")[2].partition("]")[0]
    table = README.partition("## What it depends on")[2].partition("## Speed")[0]
    for name in re.findall(r'"([a-z0-9]+)>=', block):
        assert re.search(rf"^\|[^|]*\b{name}\b", table, re.MULTILINE), name


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def _write() -> None:
    def now(match: re.Match[str]) -> str:
        command = [sys.executable, "-m", "traceana", *shlex.split(match[1])]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        return f"```console\n$ traceana {match[1]}\n{done.stdout}```"

    (ROOT / "README.md").write_text(BLOCK.sub(now, README))


if __name__ == "__main__":
    _write()
