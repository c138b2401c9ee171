r"""Conditions of ``compare --fail-on``, for use in CI.

    [SCOPE/]METRIC (> or <) [+ or -]AMOUNT[UNIT]

With a sign the amount is a change, B - A: ``idle_share>+2pt`` holds when B's idle share lies more
than two percentage points above A's. Without one it is B's own figure: ``queue_delay_p99>50us``.
UNIT: ``pt`` (percentage points of a share; changes only), ``%`` (of a share; as a change: percent
of A's figure), ``ns``, ``us``, ``ms``, ``s`` (of a latency); none for rates and numbers, where
``k`` and ``M`` may follow the number. SCOPE is ``all`` (the default), ``workload:NAME`` or
``family:NAME``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from traceana._compare_metrics import METRICS
from traceana.errors import UsageError

if TYPE_CHECKING:
    from traceana.compare import Comparison, Row

__all__ = ["Condition", "Outcome", "judge", "parse"]

_FORM = re.compile(
    r"(?:(?P<scope>.+)/)?(?P<metric>[a-z0-9_]+)\s*(?P<sign>[<>])\s*(?P<delta>[+-]?)"
    r"(?P<number>\d{1,18}(?:\.\d{1,9})?)\s*(?P<unit>pt|%|ns|us|µs|ms|s|k|M|)",
    re.ASCII,
)
_TIMES = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
_NUMBERS = {"": 1.0, "k": 1e3, "M": 1e6}


@dataclass(frozen=True)
class Condition:
    """One --fail-on. ``kind``: 'value' of B, 'change' B - A, or 'relative' B / A - 1."""

    text: str
    scope: str
    metric: str
    above: bool
    kind: str
    bound: float
    #: Whether all of the interval has to lie beyond the bound.
    sure: bool = False


@dataclass(frozen=True)
class Outcome:
    """Whether it holds; None where the figure, or with ``sure`` its interval, is not known."""

    condition: Condition
    holds: bool | None
    value: float | None
    lo: float | None
    hi: float | None

    def to_json(self) -> dict[str, Any]:
        c = self.condition
        return {
            "condition": c.text, "sure": c.sure, "kind": c.kind, "bound": c.bound,
            "value": self.value, "lo": self.lo, "hi": self.hi, "holds": self.holds,
        }  # fmt: skip


def parse(text: str, *, sure: bool = False) -> Condition:
    """Read a condition.

    Raises
    ------
    UsageError
        Not of the form, an unknown metric, or a unit that the metric does not have.

    >>> c = parse("idle_share>+2pt")
    >>> c.metric, c.above, c.kind, c.bound
    ('idle_share', True, 'change', 0.02)
    >>> parse("workload:pp-a/queue_delay_p99>50us").bound
    50000.0
    """
    option = "--fail-on-sure" if sure else "--fail-on"
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{option} {text}: give METRIC>AMOUNT or METRIC<AMOUNT, with a sign for a change, "
            "e.g. 'idle_share>+2pt' or 'queue_delay_p99>50us'"
        )
    name = found["metric"]
    if name not in METRICS:
        near = get_close_matches(name, METRICS, 1)
        raise UsageError(
            f"{option} {text}: there is no figure {name!r}; one of {', '.join(METRICS)}"
            + (f"; did you mean {near[0]}?" if near else "")
        )
    unit, word = METRICS[name].unit, found["unit"]
    change = bool(found["delta"])
    number = float(found["number"]) * (-1 if found["delta"] == "-" else 1)
    kind = "change" if change else "value"
    if change and word == "%":
        kind, bound = "relative", number / 100
    elif unit == "share" and word in ("pt", "%"):
        if word == "pt" and not change:
            raise UsageError(f"{option} {text}: pt is of a change; give a sign, or %")
        bound = number / 100
    elif unit == "ns" and word in _TIMES:
        bound = number * _TIMES[word]
    elif unit in ("per_s", "number") and word in _NUMBERS:
        bound = number * _NUMBERS[word]
    else:
        units = {"share": "pt or %", "ns": "ns, us, ms or s"}.get(unit, "no unit, k or M")
        raise UsageError(
            f"{option} {text}: {name} is given in {units}" + ("" if unit == "share" else ", or in %"
            " as a change")
        )  # fmt: skip
    return Condition(
        text.strip(), found["scope"] or "all", name, found["sign"] == ">", kind, bound, sure
    )


def judge(condition: Condition, result: Comparison) -> Outcome:
    """Whether a condition holds.

    Raises
    ------
    UsageError
        It names a workload or family that neither side has.
    """
    if condition.scope not in result.scopes:
        known = ", ".join(result.scopes)
        raise UsageError(f"{condition.text}: there is no {condition.scope!r} here; one of {known}")
    row = result.row(condition.metric, condition.scope)
    value, lo, hi = _figure(condition, row)
    if value is None:
        return Outcome(condition, None, None, None, None)
    held: bool | None
    if condition.sure:
        edge = lo if condition.above else hi
        held = None if edge is None else _beyond(edge, condition)
    else:
        held = _beyond(value, condition)
    return Outcome(condition, held, value, lo, hi)


def _beyond(x: float, condition: Condition) -> bool:
    return x > condition.bound if condition.above else x < condition.bound


def _figure(
    condition: Condition, row: Row | None
) -> tuple[float | None, float | None, float | None]:
    if row is None:
        return None, None, None
    if condition.kind == "value":
        return row.b, row.b_lo, row.b_hi
    if condition.kind == "change":
        return row.difference, row.lo, row.hi
    if row.ratio is None:
        return None, None, None
    return (
        row.ratio - 1,
        None if row.ratio_lo is None else row.ratio_lo - 1,
        None if row.ratio_hi is None else row.ratio_hi - 1,
    )
