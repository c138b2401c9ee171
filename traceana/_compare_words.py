"""A comparison in words and as a table for a reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from traceana._compare_metrics import IDLE_BINS, METRICS
from traceana.output import escape, format_ns, plural

if TYPE_CHECKING:
    from traceana._compare_problems import Problem
    from traceana.compare import Row

__all__ = [
    "HERE",
    "VERDICTS",
    "change",
    "differs",
    "legend",
    "pair",
    "ratio_words",
    "scope_words",
    "sentences",
    "table",
    "value",
]

VERDICTS = {"real": "yes", "small": "small", "none": "no", "cannot_say": "?"}
#: What a real difference is called where nobody knows how much two recordings of one thing differ.
HERE = "here"
#: Widest the table of a terminal may be.
WIDTH = 100
_HEADLINE = ("idle_share", "queue_delay_p50", "queue_delay_p99", "wakeup_latency_p99")
_ACTIVITY = ("wakeups_per_s",)


def value(x: float | None, unit: str) -> str:
    """A figure with its unit.

    >>> value(0.395, "share"), value(16672, "ns"), value(627072.5, "per_s"), value(2.42, "number")
    ('39.5 %', '16.7 µs', '627 k', '2.42')
    """
    if x is None:
        return "-"
    if unit == "share":
        return f"{100 * x:.1f} %" if abs(x) >= 0.0995 or not x else f"{100 * x:.2f} %"
    if unit == "ns":
        return format_ns(round(x))
    return _number(x)


def _number(x: float) -> str:
    for scale, word in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(x) >= 0.9995 * scale:
            return f"{_three(x / scale)}{word}"
    return _three(x)


def _three(x: float) -> str:
    """Three digits, no exponent."""
    size = abs(x)
    if size >= 99.95:
        return f"{x:.0f}"
    if size >= 9.995:
        return f"{x:.1f}"
    if size >= 0.9995 or x == 0:
        return f"{x:.2f}" if x else "0"
    return f"{x:.3g}" if size >= 0.001 else f"{x:.1g}"


def change(x: float | None, unit: str) -> str:
    """A difference with its sign; of shares in percentage points.

    >>> change(-0.126, "share"), change(1500, "ns"), change(None, "ns")
    ('-12.6 pt', '+1.50 µs', '-')
    """
    if x is None:
        return "-"
    sign = "-" if x < 0 else "+" if x > 0 else ""
    if unit == "share":
        points = 100 * abs(x)
        return f"{sign}{points:.1f} pt" if points >= 9.95 or not x else f"{sign}{points:.2f} pt"
    return sign + value(abs(x), unit)


def pair(lo: float | None, hi: float | None, unit: str) -> str:
    """The two ends of an interval of differences, in one unit where that is short.

    >>> pair(-0.15, -0.103, "share"), pair(None, 1.0, "ns")
    ('-15.0 … -10.3 pt', '-')
    """
    if lo is None or hi is None:
        return "-"
    first, second = change(lo, unit), change(hi, unit)
    number, _, word = first.rpartition(" ")
    if number and word == second.rpartition(" ")[2]:
        first = number
    return f"{first} … {second}"


def scope_words(scope: str) -> str:
    """A scope for a reader."""
    kind, colon, name = scope.partition(":")
    return f"{kind} {escape(name)}" if colon else "all tasks"


def ratio_words(ratio: float | None) -> str:
    """B / A, to three digits.

    >>> ratio_words(1.2267), ratio_words(0.00062), ratio_words(5e4), ratio_words(None)
    ('1.23', '<0.01', '>999', '-')
    """
    if ratio is None:
        return "-"
    if 0 < ratio < 0.01:
        return "<0.01"
    return f"{ratio:.{2 if ratio < 0.1 else 3}g}" if ratio < 999.5 else ">999"


def _percent(ratio: float | None) -> str:
    if ratio is None:
        return ""
    by = 100 * (ratio - 1)
    return f", {'+' if by >= 0 else '-'}{abs(by):.{1 if abs(by) < 10 else 0}f} %"


def _told(row: Row) -> str:
    m = METRICS[row.metric]
    words = m.words.strip().removesuffix(" (activity)")
    relative = "" if row.unit == "share" else _percent(row.ratio)
    return (
        f"{words} {value(row.a, row.unit)} → {value(row.b, row.unit)} "
        f"({change(row.difference, row.unit)}{relative})"
    )


def sentences(
    rows: Sequence[Row], problems: Sequence[Problem], runs_a: int, runs_b: int, least: float
) -> list[str]:
    """What the comparison comes to: differences, activity, throughput, what it cannot see.

    ``least`` is the smallest relative difference that is spoken of.
    """
    mine = {r.metric: r for r in rows if r.scope == "all"}
    counted = mine.get("throughput_per_s")
    out = [_differences(mine), *_activity(mine)]
    known = counted is not None and counted.difference is not None
    # What was got done comes first where it is known.
    out.insert(0 if known else len(out), _throughput(mine, least))
    out += _idle_bins(mine)
    if max(runs_a, runs_b) == 1:
        out.append(
            "One capture a side: intervals come from within each. They cannot show how much two "
            "recordings of the same thing differ (boots, interleavings): a difference may be real "
            "for these two recordings and yet lie within that spread. Repeat each side to know."
        )
    else:
        text = f"{runs_a} against {plural(runs_b, 'capture')}: intervals are of the means of the "
        text += "repetitions, from the spread between them"
        if min(runs_a, runs_b) == 1:
            text += "; the side without repetitions is taken to spread like the other"
        elif min(runs_a, runs_b) == 2:
            text += "; two repetitions tell little of it, so intervals are wide"
        out.append(text + ".")
    grave = [p for p in problems if p.grave]
    if grave:
        out.append(f"Not comparable in all: {grave[0].text}.")
    return out


def _differences(mine: dict[str, Row]) -> str:
    asked = [r for r in mine.values() if r.lo is not None]
    if not asked:
        return "Nothing can be said: too few events for an interval."
    real = [r for r in asked if r.real]
    head = [mine[n] for n in _HEADLINE if n in mine]
    found = [r for r in head if r.real]
    calm = [r for r in head if r.verdict in ("none", "small")]
    if not real:
        return (
            f"No difference seen in {plural(len(asked), 'figure')} of all tasks; "
            + "; ".join(f"{_told(r)} [{pair(r.lo, r.hi, r.unit)}]" for r in calm[:2])
            + "."
        )
    text = f"{len(real)} of {plural(len(asked), 'figure')} of all tasks differ"
    if real[0].method == "blocks":
        text += " between these two recordings"
    if found:
        told = "; ".join(f"{_told(r)} [{pair(r.lo, r.hi, r.unit)}]" for r in found)
        text += f": {told}"
    else:
        text += ", none of idle share, median or p99 of the latencies among them"
    return text + "."


def _activity(mine: dict[str, Row]) -> list[str]:
    row = mine.get("wakeups_per_s")
    if row is None or not row.real:
        return []
    return [
        f"Activity: {_told(row)}. That is not throughput: tasks that stop sleeping wake less, "
        "tasks that sleep more often wake more, and neither says how much was done."
    ]


def _idle_bins(mine: dict[str, Row]) -> list[str]:
    """Which bins the change of idle time is made of."""
    idle = mine.get("idle_share")
    bins = [mine[n] for n in IDLE_BINS if n in mine and mine[n].difference is not None]
    if idle is None or not idle.real or not bins:
        return []
    bins.sort(key=lambda r: -abs(r.difference or 0))
    told = ", ".join(
        f"{METRICS[r.metric].words.removeprefix('idle: ')} {change(r.difference, 'share')}"
        for r in bins[:4]
    )
    text = f"Of the change of idle time ({change(idle.difference, 'share')} of CPU time): {told}"
    lo, hi = mine.get("attributable_lo"), mine.get("attributable_hi")
    if lo is not None and hi is not None and None not in (lo.a, lo.b, hi.a, hi.b):
        text += (
            f"; to strict double bookings are owed {value(lo.a, 'share')} to "
            f"{value(hi.a, 'share')} (A), {value(lo.b, 'share')} to {value(hi.b, 'share')} (B)"
        )
    return [text + "."]


def _throughput(mine: dict[str, Row], least: float) -> str:
    row = mine.get("throughput_per_s")
    if row is None or row.a is None or row.b is None:
        return (
            "Whether the workload got more done cannot be said: no side's own counter is given "
            "(--throughput)."
        )
    direction = "less" if (row.difference or 0) < 0 else "more"
    told = f"{value(row.a, row.unit)} → {value(row.b, row.unit)} /s{_percent(row.ratio)}"
    activity = mine.get("wakeups_per_s")
    against = ""
    if (
        activity is not None
        and activity.difference
        and row.difference
        and (activity.difference > 0) != (row.difference > 0)
        and activity.real
    ):
        against = ", although wakeups per second went the other way"
    if abs(row.b - row.a) < least * abs(row.a) or row.a == row.b:
        return f"By the workload's own counter there is no difference to speak of: {told}."
    if row.verdict == "cannot_say":
        return (
            f"By the workload's own counter B did {direction}: {told}{against} (one number a side: "
            "no interval)."
        )
    if row.real:
        return f"By the workload's own counter B did {direction}: {told}{against}."
    return f"By the workload's own counter there is no difference: {told}."


def table(rows: Sequence[Row], *, groups: bool = True) -> str:
    """Rows under their scopes, at most WIDTH columns wide."""
    heads = ("", "A", "B", "B - A", "95 % interval", "B / A", "effect", "differs")
    out: list[str] = []
    sizes = (27, 8, 8, 9, 21, 5, 6, 7)
    scope = None
    for row in rows:
        if row.scope != "all" and not groups:
            continue
        if row.scope != scope:
            scope = row.scope
            if out:
                out.append("")
            name = scope_words(scope)
            out.append(_line((name if len(name) <= 27 else name[:26] + "…", *heads[1:]), sizes))
        mark = "*" if row.short and row.method == "blocks" else ""
        m = METRICS[row.metric]
        out.append(
            _line(
                (
                    m.words,
                    value(row.a, row.unit),
                    value(row.b, row.unit),
                    change(row.difference, row.unit),
                    pair(row.lo, row.hi, row.unit) + mark,
                    ratio_words(row.ratio),
                    _effect(row),
                    differs(row),
                ),
                sizes,
            )
        )
    return "".join(f"{line}\n" for line in out)


def differs(row: Row) -> str:
    """The verdict in a word."""
    return HERE if row.real and row.method == "blocks" else VERDICTS[row.verdict]


def _effect(row: Row) -> str:
    if METRICS[row.metric].latency and METRICS[row.metric].q != 0.5:
        return ""  # of the whole distribution: it stands beside the median
    return "-" if row.effect is None else f"{row.effect:+.2f}"[:6]


def legend(rows: Sequence[Row]) -> list[str]:
    """What the columns mean, in lines."""
    out = [
        "B - A with its 95 % interval; effect: Cliff's delta for a latency, else B - A in units of",
        "the spread between "
        + (
            "repetitions"
            if any(r.method == "repetitions" for r in rows)
            else "sixteenths of the window"
        )
        + ". Differs: the interval leaves 0 out, with all figures",
        "allowed for (Holm, 5 %), and B - A is big enough to speak of; small: not that big.",
    ]
    if any(differs(r) == HERE for r in rows):
        out.append(
            "here: these two recordings differ; whether others of the same would, one capture a "
            "side"
        )
        out.append("cannot tell.")
    if any(r.short and r.method == "blocks" for r in rows):
        out.append(
            "*: it changes over long stretches of the window: the interval may be too short."
        )
    return out


def _line(cells: Sequence[str], sizes: Sequence[int]) -> str:
    first, *rest = cells
    text = first.ljust(sizes[0])
    for cell, size in zip(rest, sizes[1:], strict=True):
        text += " " + cell.rjust(size)
    return text.rstrip()
