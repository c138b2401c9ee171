"""How long wakees waited: the two latencies apart, by target, queueing and workload."""

from __future__ import annotations

from typing import Any

from traceana.reports.context import NULL, Context, Scope, missing_text
from traceana.reports.figures_latency import histogram, tails
from traceana.reports.model import Code, Column, Section, Strong, Table, Text, say
from traceana.reports.stats import Spread, spread
from traceana.reports.words import count, duration, moment, plural, share
from traceana.schema import Queueing

__all__ = ["delay_words", "fill", "longest_words"]

#: Column of the wakeups, its words, when it is over, where.
LATENCIES = (
    ("wakeup_latency_ns", "wakeup latency", "run_ts", "ran_cpu"),
    ("queue_delay_ns", "queue delay", "run_ts", "ran_cpu"),
    ("wake_delay_ns", "wake delay", "wakeup_ts", "placed_cpu"),
)

_SPREAD = (
    Column("n", "int", "n"),
    Column("p50_ns", "ns", "p50"),
    Column("p90_ns", "ns", "p90"),
    Column("p99_ns", "ns", "p99"),
    Column("p999_ns", "ns", "p99.9"),
    Column("max_ns", "ns", "longest"),
)
_WORST = (
    Column("max_task", "text", "whose"),
    Column("max_cpu", "id", "on CPU"),
    Column("max_at_ns", "ts", "ended at"),
)


def delay_words(s: Spread) -> Text:
    """The middle and the tail: "2.1 µs (p50) to 16.7 µs (p99)"."""
    return say(Strong(duration(s.p50)), " (p50) to ", Strong(duration(s.p99)), " (p99)")


def longest_words(ctx: Context, s: Spread, end: str = "run_ts", cpu: str = "ran_cpu") -> Text:
    """The longest with its task, CPU and moment."""
    w = ctx.wakes
    at = w[end][s.at]
    return say(
        "the longest, ",
        Strong(duration(s.max)),
        ", was ",
        Strong(ctx.names.full(int(w["wakee"][s.at]))),
        f" on CPU {count(int(w[cpu][s.at]))} at ",
        Strong(moment(None if at == NULL else int(at))),
    )


def fill(ctx: Context, section: Section) -> None:
    """Sentences, figures, distributions, the splits, each workload."""
    w = ctx.wakes
    known = {name: spread(w[name]) for name, *_ in LATENCIES}
    if not ctx.recorded("sched_wakeup"):
        section.missing.append(missing_text("the queue delay", ("sched_wakeup",)))
    if not ctx.recorded("sched_waking"):
        section.missing.append(missing_text("the wakeup latency", ("sched_waking",)))
    if not any(s.n for s in known.values()):
        section.sentences.append(say("No wakeup was followed from its event to its switch-in."))
        return
    for name, words, end, cpu in LATENCIES[:2]:
        s = known[name]
        if s.n:
            section.sentences.append(
                say(
                    f"{words.capitalize()}: ",
                    Strong(plural(s.n, "wakeup")),
                    " took ",
                    *delay_words(s),
                    "; ",
                    *longest_words(ctx, s, end, cpu),
                    ".",
                )
            )
    section.sentences.append(_where(ctx))
    for name, words, *_ in LATENCIES[:2]:
        if known[name].n:
            section.figures.append(histogram(ctx, name, words, known[name]))
    metric = LATENCIES[1] if known["queue_delay_ns"].n else LATENCIES[0]
    figure = tails(ctx, metric[0], metric[1])
    if figure is not None:
        section.figures.append(figure)
    section.tables.append(
        _distributions(ctx, ctx.everything, "latencies", "Distributions, all wakeups")
    )
    section.tables.append(_splits(ctx, ctx.everything, "splits", "By target and queueing"))
    if len(ctx.workloads) > 1:
        section.tables.append(_by_workload(ctx))
    for i, scope in enumerate(ctx.workloads):
        part = Section(f"latency-{i}", scope.label)
        s = spread(w[metric[0]], ctx.of_wakees(scope))
        if not s.n:
            part.sentences.append(say("None of its wakeups was followed to a switch-in."))
        else:
            part.sentences.append(
                say(
                    Strong(plural(s.n, "wakeup")),
                    f" had a {metric[1]} of ",
                    *delay_words(s),
                    "; ",
                    *longest_words(ctx, s),
                    ".",
                )
            )
            part.tables += [
                _distributions(ctx, scope, f"latencies-{i}", f"Distributions of {scope.label}"),
                _splits(ctx, scope, f"splits-{i}", f"By target and queueing, {scope.label}"),
            ]
        section.parts.append(part)
    section.definitions += [
        (
            "wakeup latency",
            say(
                "From sched_waking, or the wakee's blocking switch-out if that is later, to its "
                "switch-in."
            ),
        ),
        ("queue delay", say("From sched_wakeup (the wakee is on a run queue) to its switch-in.")),
        (
            "wake delay",
            say(
                "From sched_waking to sched_wakeup: selecting a CPU, and the interrupt that "
                "tells it."
            ),
        ),
        ("idle or busy target", say("Whether the CPU was idle when the wakee was queued on it.")),
        (
            "direct or remote",
            say(
                "Queued by the waker itself, or by the chosen CPU from its wake list: ",
                Code("TTWU_QUEUE"),
                ".",
            ),
        ),
        (
            "percentile",
            say("A value that occurred: the smallest of which at least that share of all is ≤ it."),
        ),
    ]
    section.reproduce.append(ctx.run("wakeups"))


def _where(ctx: Context) -> Text:
    w = ctx.wakes
    placed, this, idle = w["placed_cpu"], w["this_cpu"], w["placed_idle"]
    both = (placed >= 0) & (this >= 0)
    told = idle >= 0
    direct = w["queueing"]
    known = direct != Queueing.UNKNOWN
    return say(
        Strong(share(_mean(idle[told] == 1))),
        " of the wakees were queued on an idle CPU, ",
        Strong(share(_mean(placed[both] == this[both]))),
        " on their waker's CPU, ",
        share(_mean(direct[known] == Queueing.REMOTE)),
        " through the wake list of another CPU.",
    )


def _mean(values: Any) -> float | None:
    return float(values.mean()) if len(values) else None


def _worst(ctx: Context, s: Spread, end: str, cpu: str) -> list[Any]:
    if s.at < 0:
        return [None, None, None]
    w = ctx.wakes
    at, where = int(w[end][s.at]), int(w[cpu][s.at])
    return [
        ctx.names.full(int(w["wakee"][s.at])),
        None if where < 0 else where,
        None if at == NULL else at,
    ]


def _distributions(ctx: Context, scope: Scope, id: str, caption: str) -> Table:
    rows = []
    mine = ctx.of_wakees(scope)
    for name, words, end, cpu in LATENCIES:
        s = spread(ctx.wakes[name], mine)
        if s.n:
            rows.append([words, *s.row(), *_worst(ctx, s, end, cpu)])
    return Table(id, caption, [Column("latency", "text", "latency"), *_SPREAD, *_WORST], rows)


def _splits(ctx: Context, scope: Scope, id: str, caption: str) -> Table:
    w = ctx.wakes
    mine = ctx.of_wakees(scope)
    target, queueing = w["placed_idle"][mine], w["queueing"][mine]
    groups = [
        ("idle target", target == 1),
        ("busy target", target == 0),
        ("queued directly", queueing == Queueing.DIRECT),
        ("queued remotely", queueing == Queueing.REMOTE),
    ]
    rows = []
    for name, words, end, cpu in LATENCIES[:2]:
        for label, mask in groups:
            s = spread(w[name], mine[mask])
            if s.n:
                rows.append([words, label, *s.row(), *_worst(ctx, s, end, cpu)])
    return Table(
        id,
        caption,
        [
            Column("latency", "text", "latency"),
            Column("group", "text", "wakeups"),
            *_SPREAD,
            *_WORST,
        ],
        rows,
    )


def _by_workload(ctx: Context) -> Table:
    rows = []
    for scope in ctx.workloads:
        mine = ctx.of_wakees(scope)
        for name, words, end, cpu in LATENCIES[:2]:
            s = spread(ctx.wakes[name], mine)
            if s.n:
                rows.append([scope.label, words, *s.row(), *_worst(ctx, s, end, cpu)])
    return Table(
        "latency-workloads",
        "By workload of the wakee",
        [
            Column("workload", "text", "workload"),
            Column("latency", "text", "latency"),
            *_SPREAD,
            *_WORST,
        ],
        rows,
    )
