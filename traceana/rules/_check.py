"""Whether a rule file is what it should be: its form, that it compiles, and its CASES.

A *problem* is an error; a *remark* is something that a careful rule has and this one lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from traceana.errors import RuleError, UsageError
from traceana.rules import HEADINGS, Rule, RuleText, describe, load
from traceana.rules._ask_kernels import ANSWER, ask_one
from traceana.rules._cases import state_of
from traceana.rules._isolated import TIMEOUT_S, call, close, isolated, owner_of, remarks_of
from traceana.rules._lint import faults, remarks
from traceana.thresholds import tunables

__all__ = ["CaseResult", "Checked", "check"]


@dataclass
class CaseResult:
    """One of CASES: what was asked for and what came."""

    name: str
    expected: dict[str, Any]
    found: dict[str, Any] | None = None
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """The object that stands in ``cases``."""
        return {
            "name": self.name,
            "ok": not self.problem,
            "expected": self.expected,
            "found": self.found,
            "problem": self.problem or None,
        }


@dataclass
class Checked:
    """What a check came to."""

    rule: str
    path: Path
    text: RuleText | None = None
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    cases: list[CaseResult] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems and not any(case.problem for case in self.cases)

    def to_json(self) -> dict[str, Any]:
        """The document that ``rules check --format json`` prints."""
        return {
            "rule": self.rule,
            "file": str(self.path),
            "ok": self.ok,
            "problems": self.problems,
            "remarks": self.remarks,
            "cases": [case.to_json() for case in self.cases],
        }


def check(file: str, timeout_s: float = TIMEOUT_S) -> Checked:
    """Check a rule file.

    Parameters
    ----------
    file : path of a ``.py`` file (it is run), or a name of the library
    timeout_s : time limit of the rule's own code, seconds

    Raises
    ------
    UsageError
        There is no such rule or file.
    """
    path = Path(file)
    if file.endswith(".py") and not path.is_file():
        raise UsageError(f"rule file {file} does not exist")
    out = Checked(path.stem, path)
    try:
        out.text = describe(file)
    except UsageError as error:
        if not file.endswith(".py"):
            raise
        out.problems.append(str(error).replace(str(path.resolve()), file))
        return out
    out.rule = out.text.name
    _form(out, out.text)
    if file.endswith(".py"):
        source = path.read_text(encoding="utf-8", errors="replace")
        found = faults(source)
        out.problems += [f"{file}:{f.line}: {f.text}" for f in found]
        out.remarks += [f"{file}:{f.line}: {f.text}" for f in remarks(source)]
        if found:
            return out
    _cases(out, out.text, file, timeout_s)
    return out


def _form(out: Checked, text: RuleText) -> None:
    """Docstring and names."""
    if not text.summary:
        out.problems.append(
            f"{out.path}: the docstring is missing: its first line says what the rule does"
        )
    absent = [h for h in HEADINGS if not text.sections.get(h)]
    if absent:
        out.problems.append(
            f"{out.path}: the docstring lacks {', '.join(absent)} "
            "(a heading, a line of ---, and a text)"
        )
    own = text.reasons[2:]
    for reason in own:
        if not any(case.get("reason") == reason for case in text.cases):
            out.remarks.append(f"no case ends with reason {reason!r}")
    if len(set(text.reasons)) != len(text.reasons):
        out.problems.append(f"{out.path}: REASONS names one twice")
    if not own:
        out.remarks.append("REASONS has no reason of the rule's own: it can not be seen to fire")
    missed = {str(case["misses"]) for case in text.cases if "misses" in case}
    for case in text.cases:
        unmet = case.get("blocked_by", ())
        missed |= set(unmet) if isinstance(unmet, list | tuple) and len(unmet) == 1 else set()
    for name in text.conditions:
        if name not in missed:
            out.remarks.append(f'no case "misses" condition {name!r}')
    if not text.cases:
        out.problems.append(f"{out.path}: there are no CASES: write one that fires at least")
    elif text.conditions and not any("boundary" in case for case in text.cases):
        out.remarks.append('no case is marked as a "boundary"')


def _cases(out: Checked, text: RuleText, file: str, timeout_s: float) -> None:
    """Compile, and ask about each case; a case that brings the rule down costs only itself."""
    rule: Rule | None = None
    for i, case in enumerate(text.cases or ({},)):
        try:
            if rule is None:
                rule = isolated(file, timeout_s) if file.endswith(".py") else load(file)
                owner = owner_of(rule)
                if owner is not None:
                    owner.wait_ready()
        except RuleError as error:
            out.problems.append(str(error))
            break
        if not text.cases:
            break
        result = CaseResult(
            str(case.get("name", f"number {i + 1}")),
            {key: case[key] for key in ("cpu", "reason", "blocked_by", "misses") if key in case},
        )
        out.cases.append(result)
        try:
            _one(result, rule, case)
        except RuleError as error:
            result.problem = str(error)
            close([rule])
            out.remarks += remarks_of(rule)
            rule = None  # a fresh process for the next
        except Exception as error:  # a case is foreign data: any part of it may be of a wrong kind
            result.problem = f"the case cannot be built: {type(error).__name__}: {error}"
    if rule is not None:
        close([rule])
        out.remarks += remarks_of(rule)


def _one(result: CaseResult, rule: Rule, case: Mapping[str, Any]) -> None:
    wakeups, machine = state_of(case)
    before = machine.copy()
    p = rule.parameters(tunables("6.1.192", int(machine[0]["n_cpus"])), case.get("params"))
    out = np.zeros(len(ANSWER), np.int64)
    call(
        ask_one,
        (rule.decide, rule.blocked_by, wakeups, machine, p, out),
        writes=(out, machine),
    )
    told = dict(zip(ANSWER, out.tolist(), strict=True))
    unmet = rule.unmet(told["blocked"])
    reason = rule.reasons[told["reason"]]
    result.found = {"cpu": told["cpu"], "reason": reason, "blocked_by": unmet}
    wrong = []
    for key in ("cpu", "reason"):
        if key not in case:
            wrong.append(f"the case does not say which {key} is expected")
        elif case[key] != result.found[key]:
            wrong.append(f"{key} is {result.found[key]}, expected {case[key]}")
    if "blocked_by" in case and list(case["blocked_by"]) != unmet:
        wrong.append(
            f"not met are {', '.join(unmet) or 'none'}, expected {', '.join(case['blocked_by'])}"
        )
    if "misses" in case and case["misses"] not in rule.alone(told["blocked"]):
        wrong.append(
            f"{case['misses']} should be the only condition not met; not met are "
            f"{', '.join(unmet) or 'none'}"
        )
    if not np.array_equal(before, machine):
        wrong.append("decide or blocked_by wrote to m; the machine as it stood is for reading")
    result.problem = "; ".join(wrong)
