"""The rule library: one file a rule, found by its name.

A rule file in this folder (not ``_x.py``, not ``interface.py``) is a rule of that name; a
path to a file elsewhere is a user's rule, named after the file. What a rule file holds is
described in :mod:`traceana.rules.interface`: docstring with the headings of HEADINGS,
PARAMS, REASONS, CONDITIONS, CASES, ``decide`` and, optionally, ``blocked_by``.

Names and texts are read without executing the file, so that listing rules needs no compiler;
:func:`load` imports it (and numba).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceana.errors import UsageError
from traceana.rules._text import HEADINGS, Param, RuleText, read_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traceana.thresholds import Tunables

__all__ = ["HEADINGS", "Param", "Rule", "RuleText", "describe", "load", "names"]


@dataclass(frozen=True)
class Rule:
    """A rule ready to be called: hand ``decide`` and ``blocked_by`` to a driver kernel."""

    name: str
    text: RuleText
    decide: Callable[..., tuple[int, int]]
    blocked_by: Callable[..., int]
    #: Which conditions belong to a place: place name -> bits. One place "" if unnamed.
    places: Mapping[str, int] = field(default_factory=dict)

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.text.reasons

    def parameters(
        self, tunables: Tunables, overrides: Mapping[str, int] | None = None
    ) -> NDArray[Any]:
        """Return *p*: the parameters as int64, in the order of PARAMS, at least one element.

        Raises
        ------
        UsageError
            An override of a parameter that the rule does not have, or one that no int64
            holds.
        """
        import numpy as np

        overrides = dict(overrides or {})
        known = [param.name for param in self.text.params]
        for name, value in overrides.items():
            if name not in known:
                raise UsageError(
                    f"rule {self.name} has no parameter {name!r}"
                    + (f"; it has {', '.join(known)}" if known else "; it has none")
                )
            if not -(2**63) <= value < 2**63:
                raise UsageError(f"{self.name}.{name}={value} is out of range")
        p = np.zeros(max(1, len(known)), dtype=np.int64)
        for i, param in enumerate(self.text.params):
            default = param.default
            value = getattr(tunables, default) if isinstance(default, str) else default
            p[i] = overrides.get(param.name, value)
        return p

    def unmet(self, bits: int) -> list[str]:
        """Return the names of the conditions that a result of ``blocked_by`` calls unmet."""
        return [name for i, name in enumerate(self.text.conditions) if bits >> i & 1]

    def alone(self, bits: int) -> list[str]:
        """Return the conditions that alone keep a place of the rule from firing.

        At most one for each place: the only unmet one there.
        """
        found = []
        for mask in self.places.values():
            rest = bits & mask
            if rest and rest & (rest - 1) == 0:
                found += self.unmet(rest)
        return found


def names() -> tuple[str, ...]:
    """Return the names of the library's rules, sorted.

    >>> "sis_short_v5" in names()
    True
    """
    folder = Path(__file__).parent
    return tuple(
        sorted(
            file.stem
            for file in folder.glob("*.py")
            if not file.name.startswith("_") and file.stem != "interface"
        )
    )


def _locate(rule: str) -> tuple[str, Path, bool]:
    """Return (name, file, whether it is a user's)."""
    if rule.endswith(".py"):
        path = Path(rule)
        if not path.is_file():
            raise UsageError(f"rule file {rule} does not exist")
        return path.stem, path.resolve(), True
    known = names()
    if rule not in known:
        near = difflib.get_close_matches(rule, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(
            f"no rule {rule!r}{hint} (rules: {', '.join(known)}; or the path of a .py file)"
        )
    return rule, Path(__file__).parent / f"{rule}.py", False


def describe(rule: str) -> RuleText:
    """Read what a rule says about itself; nothing is executed, numba is not imported.

    Parameters
    ----------
    rule : str
        A name of :func:`names`, or the path of a ``.py`` file.

    Raises
    ------
    UsageError
        No such rule, or its file does not have the form of a rule.
    """
    name, path, _ = _locate(rule)
    return read_text(name, path)


def _places(conditions: Mapping[str, str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for i, name in enumerate(conditions):
        place = name.partition(".")[0] if "." in name else ""
        places[place] = places.get(place, 0) | 1 << i
    return places


def load(rule: str) -> Rule:
    """Import a rule and compile it for the drivers.

    Parameters
    ----------
    rule : str
        A name of :func:`names`, or the path of a ``.py`` file (which is executed).

    Raises
    ------
    UsageError
        No such rule, not of the form of a rule, or numba cannot compile it.
    """
    text = describe(rule)
    _, path, is_users = _locate(rule)
    if is_users:
        module = _import_file(path)
    else:
        module = importlib.import_module(f"{__name__}.{text.name}")
    decide = _compiled(module.decide, "decide", path)
    given = getattr(module, "blocked_by", None)
    if given is None:
        from traceana.rules.recorded import blocked_by as given
    return Rule(
        name=text.name,
        text=text,
        decide=decide,
        blocked_by=_compiled(given, "blocked_by", path),
        places=_places(text.conditions),
    )


def _import_file(path: Path) -> Any:
    # Under its own path, so that two rules of one file name do not meet.
    name = "traceana_user_rule_" + "".join(c if c.isalnum() else "_" for c in str(path))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # numba's cache looks its functions' module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UsageError(f"{path}: {type(error).__name__}: {error}") from error
    return module


def _compiled(function: Any, what: str, path: Path) -> Any:
    """Return the function compiled for the one signature that drivers call."""
    from traceana.rules import interface

    if interface.UNCOMPILED:
        return function
    if not hasattr(function, "get_compile_result"):
        function = interface.njit(function)
    kind = interface.DECIDE if what == "decide" else interface.BLOCKED_BY
    try:
        # With the result type given: whatever integers the rule returns become int64.
        function.compile(kind.signature)
    except Exception as error:  # numba also lets KeyError and the like through
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = lines[-1] if lines else ""
        where = next((line for line in reversed(lines) if line.startswith("File")), "")
        raise UsageError(
            f"{path}: {what} cannot be compiled: {type(error).__name__}: {text} {where}".rstrip()
        ) from error
    return function
