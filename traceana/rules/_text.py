"""What a rule file says about itself, read from its source without executing it.

The docstring's sections, PARAMS, REASONS, CONDITIONS, STEPS and CASES, which have to be written
as literals. Needs neither numpy nor numba.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceana.errors import UsageError
from traceana.thresholds import Tunables

__all__ = ["HEADINGS", "PLACES", "Param", "RuleText", "read_text"]

#: Sections of a rule's docstring.
HEADINGS = ("Rule", "Source", "Conditions", "Reads", "Limits")

#: Places of the path at which a step can be put in (see ``_walk_kernels.py``).
PLACES = (
    "wake_wide",
    "sync",
    "before_prev",
    "after_prev",
    "weight",
    "after_weight",
    "before_scan",
    "budget",
    "in_scan",
)

#: Longest user rule file that is read.
_MAX_BYTES = 1 << 20

#: ``blocked_by`` answers with a bit per condition in an int64.
_MAX_CONDITIONS = 62

_FIELDS = ("PARAMS", "REASONS", "CONDITIONS", "STEPS", "CASES")

#: Parts of a case that describe the state, and those that are not taken over by ``like``.
_STATE = ("machine", "wakeup", "params")
_OWN = ("name", "like", "misses", "boundary", "blocked_by", "note")


@dataclass(frozen=True)
class Param:
    """A parameter of a rule; ``default`` is a number or the name of a Tunables attribute."""

    name: str
    default: int | str
    unit: str
    meaning: str


@dataclass(frozen=True)
class RuleText:
    """What a rule file says about itself, without having been executed.

    ``sections`` maps each of HEADINGS to its text; ``conditions`` maps a condition's name to
    its text, in the bit order of ``blocked_by`` (a rule that acts in several places names
    them ``place.condition``).
    """

    name: str
    path: Path
    summary: str
    sections: Mapping[str, str]
    params: tuple[Param, ...]
    reasons: tuple[str, ...]
    conditions: Mapping[str, str]
    cases: tuple[Mapping[str, Any], ...]
    #: Place of the path -> reasons of an answer 0 and of any other; empty: the rule decides all.
    steps: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    #: The rules that a combination consists of.
    parts: tuple[RuleText, ...] = ()


def _sections(doc: str) -> dict[str, str]:
    """Split a docstring at its underlined headings."""
    lines = doc.splitlines()
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for i, line in enumerate(lines):
        following = lines[i + 1] if i + 1 < len(lines) else ""
        if line in HEADINGS and following.strip("-") == "" and len(following) >= 3:
            current = found.setdefault(line, [])
        elif current is not None and not (line and line.strip("-") == ""):
            current.append(line)
    return {heading: "\n".join(text).strip() for heading, text in found.items()}


def _literals(tree: ast.Module, path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target: ast.expr = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        else:
            continue
        if isinstance(target, ast.Name) and node.value is not None and target.id in _FIELDS:
            try:
                found[target.id] = ast.literal_eval(_repeated(node.value))
            except ValueError:
                raise UsageError(
                    f"{path}:{node.lineno}: {target.id} must be written out (no calls, no names)"
                ) from None
    return found


def _repeated(value: ast.expr) -> ast.expr:
    """Write out ``[x] * n``, which literal_eval does not know."""

    class Repeat(ast.NodeTransformer):
        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            count = node.right
            if (
                isinstance(node.op, ast.Mult)
                and isinstance(node.left, ast.List)
                and isinstance(count, ast.Constant)
                and isinstance(count.value, int)
                and 0 <= count.value <= 4096
            ):
                return ast.List(elts=node.left.elts * count.value, ctx=ast.Load())
            return node

    written: ast.expr = Repeat().visit(value)
    return written


def read_text(name: str, path: Path) -> RuleText:
    """Read a rule file's text.

    Raises
    ------
    UsageError
        The file cannot be read, or does not have the form of a rule.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path}: too long for a rule")
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno}: {error.msg}") from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
    doc = ast.get_docstring(tree) or ""
    literals = _literals(tree, path)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    steps = _read_steps(literals.get("STEPS", {}), functions, path)
    if "decide" not in functions and not steps:
        raise UsageError(f"{path}: no function decide(w, m, p)")
    return RuleText(
        name=name,
        path=path,
        summary=doc.splitlines()[0].strip() if doc else "",
        sections=_sections(doc),
        params=_read_params(literals.get("PARAMS", {}), path),
        reasons=_read_reasons(literals.get("REASONS"), path),
        conditions=_read_conditions(literals.get("CONDITIONS", {}), path),
        cases=_read_cases(literals.get("CASES", ()), path),
        steps=steps,
    )


def _read_steps(value: Any, functions: set[str], path: Path) -> dict[str, tuple[str, str]]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: STEPS must map places of the path to reasons")
    steps = {}
    for place, reasons in value.items():
        both = (reasons, reasons) if isinstance(reasons, str) else reasons
        if (
            not isinstance(both, tuple)
            or len(both) != 2
            or not all(isinstance(reason, str) for reason in both)
        ):
            raise UsageError(f"{path}: STEPS[{place!r}] must be a reason, or (of 0, of 1)")
        if place not in PLACES:
            raise UsageError(f"{path}: STEPS: no place {place!r}; one of {', '.join(PLACES)}")
        if place not in functions:
            raise UsageError(f"{path}: STEPS names {place!r}, but no function {place}(w, m, p)")
        steps[place] = both
    return steps


def _read_params(value: Any, path: Path) -> tuple[Param, ...]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: PARAMS must map a name to (default, unit, meaning)")
    found = []
    for name, entry in value.items():
        if (
            not isinstance(name, str)
            or not isinstance(entry, tuple)
            or len(entry) != 3
            or not isinstance(entry[0], int | str)
            or not all(isinstance(text, str) for text in entry[1:])
        ):
            raise UsageError(f"{path}: PARAMS[{name!r}] must be (default, unit, meaning)")
        default = entry[0]
        if isinstance(default, str) and not hasattr(Tunables, default):
            if default not in Tunables.__dataclass_fields__:
                raise UsageError(f"{path}: PARAMS[{name!r}]: no tunable {default!r}")
        if isinstance(default, int) and not -(2**63) <= default < 2**63:
            raise UsageError(f"{path}: PARAMS[{name!r}]: default is out of range")
        found.append(Param(name, default, entry[1], entry[2]))
    return tuple(found)


def _read_reasons(value: Any, path: Path) -> tuple[str, ...]:
    if (
        not isinstance(value, tuple | list)
        or tuple(value[:2]) != ("recorded", "mainline")
        or not all(isinstance(reason, str) for reason in value)
    ):
        raise UsageError(f'{path}: REASONS must be names that begin with "recorded", "mainline"')
    return tuple(value)


def _read_conditions(value: Any, path: Path) -> dict[str, str]:
    if not isinstance(value, dict) or not all(
        isinstance(name, str) and isinstance(text, str) for name, text in value.items()
    ):
        raise UsageError(f"{path}: CONDITIONS must map names to texts")
    if len(value) > _MAX_CONDITIONS:
        raise UsageError(f"{path}: {len(value)} CONDITIONS; at most {_MAX_CONDITIONS}")
    return value


def _read_cases(value: Any, path: Path) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, tuple | list) or not all(isinstance(case, dict) for case in value):
        raise UsageError(f"{path}: CASES must be a tuple of dicts")
    cases: list[dict[str, Any]] = []
    for case in value:
        cases.append(_written_out(case, cases, path))
    return tuple(cases)


def _written_out(case: dict[str, Any], earlier: list[dict[str, Any]], path: Path) -> dict[str, Any]:
    """A case that is ``like`` an earlier one, but for what it says itself."""
    full = dict(case)
    if "like" in case:
        base = next((c for c in earlier if c.get("name") == case["like"]), None)
        if base is None:
            raise UsageError(f"{path}: CASES: none before {case.get('name')!r} is {case['like']!r}")
        full = {key: part for key, part in base.items() if key not in _OWN} | full
        for part in _STATE:
            given = base.get(part, {}), case.get(part, {})
            if not all(isinstance(x, dict) for x in given):
                raise UsageError(f"{path}: CASES: {part} must be a dict")
            if part in full:
                full[part] = {**given[0], **given[1]}
    if "misses" in case:
        # The rule does not fire: the wakeup stays where it was recorded.
        full["reason"] = case.get("reason", "recorded")
        full["cpu"] = case.get("cpu", full.get("wakeup", {}).get("recorded_cpu"))
    return full
