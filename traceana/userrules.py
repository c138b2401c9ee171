"""Rules as a caller names them, users' own among them: found, loaded apart, their faults told.

A rule is named by the registry's name, by the path of a file (text or Path), by a module, or by
the ``decide`` of one. A user's file runs in a child process (``rules/_isolated.py``); what goes
wrong there ends that rule only, and becomes a :class:`~traceana.errors.RuleError` that names the
wakeup at hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from traceana import rules as registry
from traceana.errors import RuleError, UsageError
from traceana.rules._isolated import TIMEOUT_S, close, isolated, remarks_of
from traceana.rules._lint import faults, remarks
from traceana.rules._steps import split
from traceana.rules.interface import UNCOMPILED

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = ["TIMEOUT_S", "AnyRule", "Asked", "asked", "locate", "one", "spec_of"]

#: How a rule may be named.
AnyRule: TypeAlias = str | Path | ModuleType | Callable[..., Any]


@dataclass
class Asked:
    """The rules that can be asked, and what became of those that cannot."""

    rules: list[registry.Rule] = field(default_factory=list)
    failed: list[RuleError] = field(default_factory=list)
    #: What is odd, but no fault: for stderr.
    remarks: list[str] = field(default_factory=list)


def spec_of(rule: AnyRule) -> str:
    """A rule's name in the registry's terms: a name, a path, or several joined by ``+``.

    Raises
    ------
    UsageError
        A module or function that does not come from a rule file.
    """
    if isinstance(rule, str):
        return rule
    if isinstance(rule, Path):
        return str(rule) if rule.suffix == ".py" else f"{rule}.py"
    code = getattr(getattr(rule, "py_func", rule), "__code__", None)
    file = getattr(rule, "__file__", None) or getattr(code, "co_filename", None)
    name = getattr(rule, "__name__", repr(rule))
    if not file or not str(file).endswith(".py") or not Path(file).is_file():
        raise UsageError(
            f"{name} comes from no file: write the rule into a file of its own and give its path "
            "(traceana rules new NAME makes one)"
        )
    if code is not None and name != "decide":
        raise UsageError(f"{name}() is no rule; give the file or module that has decide(w, m, p)")
    return str(file)


def _users(spec: str) -> list[Path]:
    return [Path(part) for part in split(spec) if part.endswith(".py")]


def _fault(error: UsageError, path: Path) -> RuleError:
    """A file that has not the form of a rule, as a fault of that rule."""
    if isinstance(error, RuleError):
        return error
    text = str(error)
    for name in (str(path), str(path.resolve())):
        text = text.removeprefix(f"{name}:")
    m = re.match(r"(\d+): (.*)", text, re.DOTALL)
    return RuleError(path, m[2] if m else text.strip(), line=int(m[1]) if m else None)


def _look_over(path: Path) -> None:
    """Refuse what needs no process to be seen."""
    try:
        registry.describe(str(path))
        for slip in faults(path.read_text(encoding="utf-8", errors="replace")):
            raise RuleError(path, slip.text, line=slip.line)
    except (RecursionError, MemoryError):
        raise RuleError(path, "cannot be read: its expressions are nested too deeply") from None


@contextmanager
def asked(rules: AnyRule | Iterable[AnyRule], timeout_s: float = TIMEOUT_S) -> Iterator[Asked]:
    """Load rules, each once; users' ones in processes that end with the context.

    Raises
    ------
    UsageError
        A name that no rule has, a file that does not exist, two rules of one name.
    """
    given: list[Any] = (
        [rules] if isinstance(rules, str) or not isinstance(rules, Iterable) else list(rules)
    )
    specs = [spec_of(r) for r in given]
    out = Asked()
    by_name: dict[str, str] = {}
    try:
        for spec in dict.fromkeys(specs):
            users = _users(spec)
            if not users:
                rule = registry.load(spec)
            else:
                for path in users:
                    if not path.is_file():
                        raise UsageError(f"rule file {path} does not exist")
                try:
                    for path in users:
                        _look_over(path)
                    rule = isolated(spec, timeout_s)
                except UsageError as error:
                    out.failed.append(_fault(error, users[0]))
                    continue
                if UNCOMPILED:
                    out.remarks.append(
                        f"TRACEANA_JIT=0: {', '.join(map(str, users))} runs in this process, "
                        "without a time limit"
                    )
                for path in users:
                    source = path.read_text(encoding="utf-8", errors="replace")
                    out.remarks += [f"{path}:{r.line}: {r.text}" for r in remarks(source)]
            out.rules.append(rule)
            if by_name.setdefault(rule.name, spec) != spec:
                raise UsageError(
                    f"two rules are called {rule.name} ({by_name[rule.name]} and {spec}): "
                    "rename one of the files"
                )
        yield out
    finally:
        close(out.rules)
        for rule in out.rules:
            out.remarks += remarks_of(rule)


def one(result: Asked) -> registry.Rule:
    """The only rule that was asked for; raises what it failed of."""
    if result.failed:
        raise result.failed[0]
    return result.rules[0]


def locate(fault: RuleError, timeline: Timeline) -> RuleError:
    """Name the wakeup at hand: its id, its time, its wakee."""
    if fault.ts is None or fault.wakee is None or fault.at:
        return fault
    w = timeline.raw["wakeups"]
    found = np.flatnonzero((w["waking"] == fault.ts) & (w["wakee"] == fault.wakee))
    at = f"{fault.ts / 1e9:.9f} s"
    if len(found):
        fault.wakeup = int(w["id"][found[0]])
        task = timeline.tasks.slice(fault.wakee, 1).to_pylist()[0]
        fault.at = f"at wakeup {fault.wakeup}, {at}, wakee {task['comm']} [{task['pid']}]"
    else:
        fault.at = f"at {at}"
    return fault
