"""One rule at many values of one parameter: how the moved wakeups and the estimates follow it.

A sweep ``sis_short_v5.threshold_ns=50us..1ms:8`` asks the rule at 8 values from 50 us to 1 ms,
both ends included. Values of a time are spaced by a constant factor (geometric), as thresholds
act on quantities that spread over decades; all others by a constant step, rounded to whole
numbers. Every value is an open-loop estimate of its own, as in ``whatif``; the bootstrap draws the
same blocks for each, so that the points of a curve can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from traceana import schema
from traceana.amounts import amount, in_words
from traceana.errors import UsageError

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.whatif import RuleResult

__all__ = ["MAX_VALUES", "Point", "Sweep", "SweepSpec", "parse_sweep", "spaced", "sweep"]

#: Most values of one sweep.
MAX_VALUES = 100
_COUNT = 8

_FORM = re.compile(r"(?P<key>[^=]+)=(?P<lo>[^:]+?)\.\.(?P<hi>[^:]+?)(?::(?P<n>\d{1,6}))?")


@dataclass(frozen=True)
class SweepSpec:
    """What was asked for: a rule, its parameter, the ends, how many values."""

    rule: str
    parameter: str
    lo: int
    hi: int
    count: int


def parse_sweep(text: str) -> SweepSpec:
    """Read ``RULE.PARAMETER=LOW..HIGH:COUNT`` (COUNT: 8 if left out).

    Raises
    ------
    UsageError
        Not of that form.

    >>> parse_sweep("abel.threshold_ns=50us..1ms:4")
    SweepSpec(rule='abel', parameter='threshold_ns', lo=50000, hi=1000000, count=4)
    """
    found = _FORM.fullmatch(text.strip())
    rule, dot, parameter = found["key"].strip().rpartition(".") if found else ("", "", "")
    if found is None or not (rule and dot and parameter):
        raise UsageError(
            f"--param-sweep {text}: give RULE.PARAMETER=LOW..HIGH:COUNT, "
            "e.g. sis_short_v5.threshold_ns=50us..1ms:8"
        )
    try:
        lo, hi = amount(found["lo"]), amount(found["hi"])
    except ValueError as error:
        raise UsageError(f"--param-sweep {text}: {error}") from None
    count = int(found["n"] or _COUNT)
    if not 2 <= count <= MAX_VALUES:
        raise UsageError(f"--param-sweep {text}: {count} values; 2 to {MAX_VALUES} can be drawn")
    if not -(2**62) < lo < hi < 2**62:
        raise UsageError(f"--param-sweep {text}: LOW has to be below HIGH")
    return SweepSpec(rule, parameter, lo, hi, count)


def spaced(lo: int, hi: int, count: int, *, geometric: bool) -> tuple[int, ...]:
    """Return whole numbers from lo to hi, ascending, each once (so there may be fewer).

    >>> spaced(50_000, 800_000, 5, geometric=True)
    (50000, 100000, 200000, 400000, 800000)
    >>> spaced(1, 4, 10, geometric=False)
    (1, 2, 3, 4)
    """
    shares = [i / (count - 1) for i in range(count)]
    inner = [
        round(lo * (hi / lo) ** share) if geometric else lo + round((hi - lo) * share)
        for share in shares[1:-1]
    ]
    return tuple(sorted({lo, *inner, hi}))


@dataclass(frozen=True)
class Point:
    """The rule at one value of the parameter.

    ``fired`` counts the decisions whose reason is the rule's own and that it changes, wherever
    they went; ``moved`` those that went to another CPU than recorded.
    """

    value: int
    fired: int
    result: RuleResult

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "fired": self.fired, **self.result.to_json()}


@dataclass(frozen=True, repr=False)
class Sweep:
    """Result of :func:`sweep`: a point per value, ascending."""

    rule: str
    parameter: str
    unit: str
    geometric: bool
    #: What the parameter is where nobody sets it, on this capture's kernel and machine.
    default: int
    points: Sequence[Point]
    params: Mapping[str, int]
    left_out: Mapping[str, int]
    assumptions: Sequence[str]

    def __repr__(self) -> str:
        told = ", ".join(f"{in_words(p.value, self.unit)}: {p.result.moved}" for p in self.points)
        return f"<traceana.Sweep, {self.rule}.{self.parameter}, moved at {told}>"

    def to_json(self) -> dict[str, Any]:
        """The document that ``whatif --param-sweep … --format json`` prints."""
        return {
            "schema_version": schema.SCHEMA_VERSION,
            "kind": "estimated, open loop",
            "left_out": dict(self.left_out),
            "assumptions": list(self.assumptions),
            "params": {self.rule: dict(self.params)},
            "sweep": {
                "rule": self.rule,
                "parameter": self.parameter,
                "unit": self.unit,
                "spacing": "geometric" if self.geometric else "linear",
                "default": self.default,
                "points": [p.to_json() for p in self.points],
            },
        }


def sweep(cap: Capture, spec: SweepSpec | str, *, params: Mapping[str, Any] | None = None) -> Sweep:
    """Ask one rule at several values of one of its parameters.

    Parameters
    ----------
    cap : Capture
    spec : SweepSpec or str
        As :func:`parse_sweep` reads it.
    params : overrides of the rule's other parameters, as in ``whatif``

    Raises
    ------
    UsageError
        Unknown rule or parameter.
    RuleError
        A user's rule failed.
    MissingEventsError
        The capture holds no wakeups, or no switches.
    """
    from traceana.replay import Replay
    from traceana.userrules import TIMEOUT_S, asked
    from traceana.whatif import Study, overrides

    if isinstance(spec, str):
        spec = parse_sweep(spec)
    with asked([spec.rule], TIMEOUT_S) as found:
        for fault in found.failed:
            raise fault
        rule = found.rules[0]
        known = {p.name: p for p in rule.text.params}
        meant = [k for k in known if k == spec.parameter or k.endswith(f".{spec.parameter}")]
        if not meant:
            raise UsageError(
                f"rule {rule.name} has no parameter {spec.parameter!r}"
                + (f"; it has {', '.join(known)}" if known else "; it has none")
            )
        unit = known[meant[0]].unit
        geometric = unit == "ns" and spec.lo > 0
        cap.require(("sched_waking", "sched_wakeup"), "whatif")
        timeline = cap.timeline()
        replay = Replay(cap, timeline)
        if not len(replay.rows):
            cap.require(("sched_waking",), "whatif")
        others = overrides(params or {}, [rule.name]).get(rule.name, {})
        study = Study(timeline, replay)
        points = []
        for value in spaced(spec.lo, spec.hi, spec.count, geometric=geometric):
            result = study.ask(rule, {**others, spec.parameter: value})
            fired = sum(
                n
                for reason, n in result.reasons.items()
                if reason not in rule.reasons[:2] and not reason.endswith("_same")
            )
            points.append(Point(value, fired, result))
        return Sweep(
            rule=rule.name,
            parameter=spec.parameter,
            unit=unit,
            geometric=geometric,
            default=replay.named_params(rule, {})[meant[0]],
            points=tuple(points),
            params={k: v for k, v in replay.named_params(rule, others).items() if k not in meant},
            left_out=study.left_out,
            assumptions=replay.assumptions,
        )
