"""The rule library: one file a rule, found by its name.

A rule file in this folder (not ``_x.py``, not ``interface.py``) is a rule of that name; a
path to a file elsewhere is a user's rule, named after the file. What a rule file holds is
described in :mod:`traceana.rules.interface`: docstring with the headings of HEADINGS,
PARAMS, REASONS, CONDITIONS, CASES, ``decide`` (or STEPS with a function for each) and,
optionally, ``blocked_by``. ``a+b`` is the combination of two rules of STEPS (``_steps.py``).

Names and texts are read without executing the file, so that listing rules needs no compiler;
:func:`load` imports it (and numba).
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceana.errors import UsageError
from traceana.rules._steps import Part, combine, places_of, program, split
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
    #: The rules of STEPS that it consists of; empty: its ``decide`` is its own.
    parts: tuple[Part, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.text.reasons

    def parameters(
        self, tunables: Tunables, overrides: Mapping[str, int] | None = None
    ) -> NDArray[Any]:
        """Return *p*: the parameters as int64, in the order of PARAMS, at least one element.

        Behind them, for a rule of STEPS, stand addresses of its functions: *p* is of use in
        this process only. A parameter's name without its rule's (``threshold_ns``) means those
        of all parts of a combination.

        Raises
        ------
        UsageError
            An override of a parameter that the rule does not have, or one that no int64
            holds.
        """
        import numpy as np

        known = [param.name for param in self.text.params]
        given: dict[str, int] = {}
        for name, value in (overrides or {}).items():
            meant = [k for k in known if k == name or (self.parts and k.endswith(f".{name}"))]
            if not meant:
                raise UsageError(
                    f"rule {self.name} has no parameter {name!r}"
                    + (f"; it has {', '.join(known)}" if known else "; it has none")
                )
            if not -(2**63) <= value < 2**63:
                raise UsageError(f"{self.name}.{name}={value} is out of range")
            given |= dict.fromkeys(meant, value)
        values = []
        for param in self.text.params:
            default = param.default
            own = getattr(tunables, default) if isinstance(default, str) else default
            values.append(given.get(param.name, own))
        return np.array((values or [0]) + _program(self), dtype=np.int64)

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
        A name of :func:`names`, the path of a ``.py`` file, or several of them joined by ``+``.

    Raises
    ------
    UsageError
        No such rule, or its file does not have the form of a rule.
    """
    texts = [read_text(*_locate(part)[:2]) for part in split(rule)]
    return texts[0] if len(texts) == 1 else combine(texts)


def load(rule: str) -> Rule:
    """Import a rule and compile it for the drivers.

    Parameters
    ----------
    rule : str
        A name of :func:`names`, the path of a ``.py`` file (which is executed), or several
        of them joined by ``+``.

    Raises
    ------
    UsageError
        No such rule, or not of the form of a rule.
    RuleError
        A user's file that cannot be run or compiled.
    """
    text = describe(rule)
    if text.steps:
        return _load_steps(text, split(rule))
    path = text.path
    module = _module(rule)
    decide = _compiled(module.decide, "decide", path)
    given = getattr(module, "blocked_by", None)
    if given is None:
        from traceana.rules.recorded import blocked_by as given
    return Rule(
        name=text.name,
        text=text,
        decide=decide,
        blocked_by=_compiled(given, "blocked_by", path),
        places=places_of(text),
    )


def _module(rule: str) -> Any:
    name, path, is_users = _locate(rule)
    if is_users:
        from traceana.rules._users import import_file

        return import_file(path)
    return importlib.import_module(f"{__name__}.{name}")


def _load_steps(text: RuleText, rules: Sequence[str]) -> Rule:
    """Load a rule of STEPS, or a combination: all of them share one compiled path."""
    from traceana.rules import _walk_kernels as walk

    parts = []
    for rule, own in zip(rules, text.parts or (text,), strict=True):
        module = _module(rule)
        functions = {
            place: _compiled(getattr(module, place), place, own.path)
            for place in (*own.steps, "blocked_by")
            if hasattr(module, place)
        }
        parts.append(Part(own, functions))
    loaded = Rule(
        name=text.name,
        text=text,
        decide=_compiled(walk.decide, "decide", text.path),
        blocked_by=_compiled(walk.blocked_by, "blocked_by", text.path),
        places=places_of(text),
        parts=tuple(parts),
    )
    _program(loaded)  # its mistakes are told now
    return loaded


def _program(rule: Rule) -> list[int]:
    """What stands in *p* behind the parameters."""
    if not rule.parts:
        return []
    from traceana.rules import _walk_kernels as walk

    return program(rule.text, rule.parts, _address, entry=walk.ENTRY, magic=walk.MAGIC)


def _address(function: Any) -> int:
    """Where compiled code finds the function."""
    from traceana.rules import _walk_kernels as walk
    from traceana.rules import interface

    if interface.UNCOMPILED:
        if function not in walk.FUNCTIONS:
            walk.FUNCTIONS.append(function)
        return walk.FUNCTIONS.index(function)
    compiled = function.overloads[interface.BLOCKED_BY.signature.args]
    name = compiled.fndesc.llvm_cfunc_wrapper_name
    return int(compiled.library.get_pointer_to_function(name))


def _compiled(function: Any, what: str, path: Path) -> Any:
    """Return the function compiled for the one signature that drivers call."""
    from traceana.rules import interface

    if path.parent != Path(__file__).parent:
        from traceana.rules._users import compiled

        return compiled(function, what, path)
    if not interface.UNCOMPILED:
        kind = interface.DECIDE if what == "decide" else interface.BLOCKED_BY
        # With the result type given: whatever integers the rule returns become int64.
        function.compile(kind.signature)
    return function
