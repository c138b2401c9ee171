"""The verdict on the ttwu race: by which thresholds, and what stands in its way.

*supported*: it is certain that the race happens at a rate that matters, it would without tracing,
and it surely cost idle time that matters. *not_supported*: even what is merely possible does not
reach one of the two. *cannot_say*: neither, or the capture lacks what one of them needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from traceana._race_blocks import NOTHING, Range
from traceana.errors import UsageError

__all__ = [
    "CANNOT_SAY",
    "NOT_SUPPORTED",
    "SUPPORTED",
    "VERDICTS",
    "Evidence",
    "Judgement",
    "Thresholds",
    "judge",
    "parse_thresholds",
    "percent",
]

SUPPORTED, NOT_SUPPORTED, CANNOT_SAY = "supported", "not_supported", "cannot_say"
#: As a reader sees them.
VERDICTS = {
    SUPPORTED: "supported",
    NOT_SUPPORTED: "not supported",
    CANNOT_SAY: "cannot say",
}


#: So many double bookings of the CPU where the second wakee last ran there are at most for one of
#: another CPU. Of two wakers that miss each other, one for whose wakee it is the last CPU and one
#: from elsewhere, either may be the second; the booking of the one cannot be seen for about 0.2 us
#: after its look, that of the other for 1.1 us (sections 7.8-1 and 7.8-3 of the kernel semantics).
_HOME_MOST = 5


def _threshold(default: float, doc: str) -> float:
    made: float = field(default=default, metadata={"doc": doc})
    return made


@dataclass(frozen=True)
class Thresholds:
    """What a verdict is measured by; shares from 0 to 1."""

    rate: float = _threshold(
        0.01, "strict double bookings per wakeup that found its CPU idle, from which they matter"
    )
    idle_share: float = _threshold(
        0.01, "share of all idle time that the race has to have cost to matter"
    )
    decisions: float = _threshold(1000, "decided wakeups below which nothing is said")
    late_share: float = _threshold(
        0.5, "share of late ones among certain and late above which another cause is at work"
    )
    loss_share: float = _threshold(0.05, "share of lost events above which absence is not believed")
    skew_share: float = _threshold(
        0.02, "share of wakeups stamped before their cause above which clocks are not believed"
    )


def parse_thresholds(given: Sequence[str]) -> Thresholds:
    """Thresholds from texts like "rate=0.02".

    >>> parse_thresholds(["rate=0.02", "decisions=200"]).rate
    0.02

    Raises
    ------
    UsageError
        Not of that form, an unknown name, or no share.
    """
    known = {f.name for f in dataclasses.fields(Thresholds)}
    values: dict[str, float] = {}
    for text in given:
        name, equals, number = text.partition("=")
        name = name.strip()
        if not equals or name not in known:
            raise UsageError(f"--threshold {text}: give NAME=VALUE; names: {', '.join(known)}")
        try:
            value = float(number)
        except ValueError:
            raise UsageError(f"--threshold {text}: {number!r} is no number") from None
        top = 1e18 if name == "decisions" else 1.0
        if not 0 <= value <= top:
            raise UsageError(f"--threshold {text}: give a share from 0 to 1")
        values[name] = value
    return Thresholds(**values)


@dataclass(frozen=True)
class Evidence:
    """What a verdict rests on.

    ``certain``, ``possible``, ``untraced``: strict double bookings per wakeup that found its CPU
    idle (certainly; at all; those whose windows would overlap without the cost of recording).
    ``elsewhere``: possible ones of a CPU that nothing but its looking idle leads to.
    ``touched``: possible ones per decided wakeup. ``idle_low``, ``idle_high``: share of idle time
    that is attributable. ``unable``: what makes any verdict impossible; ``unsure``: what forbids to
    say *supported*, ``blind``: to say *not supported*.
    """

    decided: int
    looked_idle: int
    strict_certain: int = 0
    late: int = 0
    certain: Range = NOTHING
    possible: Range = NOTHING
    untraced: Range = NOTHING
    elsewhere: Range = NOTHING
    touched: Range = NOTHING
    idle_low: Range = NOTHING
    idle_high: Range = NOTHING
    unable: Sequence[str] = ()
    unsure: Sequence[str] = ()
    blind: Sequence[str] = ()


@dataclass(frozen=True)
class Judgement:
    """``verdict``: one of VERDICTS; ``reasons``: what led to it; ``missing``: what is missing for
    another one.
    """

    verdict: str
    reasons: list[str]
    missing: list[str]


def percent(value: float | None) -> str:
    """A share in percent, to two figures that mean something.

    >>> percent(0.2193), percent(0.0004), percent(0.0), percent(None)
    ('21.9 %', '0.04 %', '0 %', '-')
    """
    if value is None:
        return "-"
    p = 100 * value
    if p == 0:
        return "0 %"
    return f"{p:.1f} %" if p >= 0.95 else f"{p:.2f} %" if p >= 0.0095 else "below 0.01 %"


def _most(value: float | None) -> str:
    """An upper end, not rounded to nothing."""
    return percent(None if value is None else max(value, 1e-4))


def _at_least(value: float | None, bound: float) -> bool:
    return value is not None and value >= bound


def _below(value: float | None, bound: float) -> bool:
    return value is not None and value < bound


def judge(e: Evidence, t: Thresholds) -> Judgement:
    """The verdict."""
    unable = list(e.unable)
    if not unable and e.decided < t.decisions:
        unable.append(
            f"too few events: {e.decided:,} decided wakeups, {t.decisions:,.0f} are asked for"
        )
    if unable:
        return Judgement(CANNOT_SAY, [], unable)
    absent = _why_not(e, t)
    if absent:
        verdict = CANNOT_SAY if e.blind else NOT_SUPPORTED
        return Judgement(verdict, absent, list(e.blind))
    present, doubts = _why(e, t)
    unsure = [*e.unsure, *doubts]
    if not unsure:
        return Judgement(SUPPORTED, present, list(e.blind))
    return Judgement(CANNOT_SAY, present, list(dict.fromkeys([*unsure, *e.blind])))


def _why_not(e: Evidence, t: Thresholds) -> list[str]:
    """Why the race does not matter here."""
    if e.looked_idle >= t.decisions:
        if _below(e.possible.high, t.rate):
            return [
                f"at most {_most(e.possible.high)} of the {e.looked_idle:,} wakeups that found "
                f"their CPU idle met another booking that they could not see; "
                f"{percent(t.rate)} would matter"
            ]
        if e.elsewhere.high is not None and (1 + _HOME_MOST) * e.elsewhere.high < t.rate:
            return [
                f"at most {_most(e.elsewhere.high)} of the {e.looked_idle:,} wakeups that found "
                "their CPU idle met another booking on a CPU to which nothing else leads; the "
                f"others ({percent(e.possible.value)} may have) went where their wakee last ran, "
                "which is where a search in vain ends, too, and of such the race makes no more "
                f"than {_HOME_MOST} times as many"
            ]
    elif _below(e.touched.high, t.rate):
        return [
            f"{e.looked_idle:,} of {e.decided:,} decided wakeups found their CPU idle, and at most "
            f"{_most(e.touched.high)} of all met another booking; {percent(t.rate)} would matter"
        ]
    if _below(e.idle_high.high, t.idle_share):
        return [
            f"at most {_most(e.idle_high.high)} of the idle time can be its doing; "
            f"{percent(t.idle_share)} would matter"
        ]
    return []


def _why(e: Evidence, t: Thresholds) -> tuple[list[str], list[str]]:
    """What speaks for the race, and what is short of a threshold."""
    told, doubts = [], []
    for name, range_, bound, what in (
        ("certain", e.certain, t.rate, "of the wakeups that found their CPU idle certainly met"),
        ("untraced", e.untraced, t.rate, "of them would have met without the cost of recording"),
        ("idle", e.idle_low, t.idle_share, "of the idle time is surely its doing"),
    ):
        if _at_least(range_.low, bound):
            told.append(f"at least {percent(range_.low)} {what} (asked for: {percent(bound)})")
        elif range_.low is None and range_.value is None:
            if name == "idle" and e.idle_high.value is None:
                doubts.append("how much idle time it cost is not known")
            else:
                doubts.append(f"it is not known how many {what}")
        else:
            doubts.append(
                f"{percent(range_.low)} {what}, at the lower end of what is known; "
                f"{percent(bound)} is asked for"
            )
    late = e.late / max(e.late + e.strict_certain, 1)
    if late > t.late_share:
        doubts.append(
            f"{e.late:,} second bookings came late, when the first could be seen, beside "
            f"{e.strict_certain:,} certain ones: another cause is at work, or instants are off"
        )
    return told, doubts
