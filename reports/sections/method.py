"""Formulas, sources, limits; and what tracing itself costs."""

from __future__ import annotations

from traceana.reports.context import Context, column
from traceana.reports.model import Code, Section, Strong, Text, say
from traceana.reports.words import duration, share

__all__ = ["event_cost", "fill"]

#: Events of one CPU that are never closer than this say nothing of what one costs.
SPARSE_NS = 100_000


def event_cost(ctx: Context) -> tuple[int, float] | None:
    """What one event costs at most, and the share of its busiest CPU's span that events take.

    The time stamp of an event is taken when its record begins; the next one of the same CPU
    cannot begin before it is written. So the smallest distances (their 1st percentile) bound
    the cost from above. A clock of coarser steps does not show them: None.
    """
    if ctx.cap.meta.clock_unit != "ns" or not ctx.has_time or ctx.timeline is None:
        return None
    cost = ctx.cap.event_cost_ns
    if not cost or cost >= SPARSE_NS or not ctx.span_ns:
        return None
    busiest = int(column(ctx.tl.cpus, "events").max())
    return cost, min(1.0, busiest * cost / ctx.span_ns)


def fill(ctx: Context, section: Section) -> None:
    """The rules by which everything above was computed."""
    cost = event_cost(ctx)
    if cost is not None:
        section.sentences.append(
            say(
                Strong("Tracing itself costs time. "),
                "99 % of consecutive events of a CPU lie more than ",
                Strong(duration(cost[0])),
                " apart: about that is what an event costs here at most. The CPU with the most "
                "events spent up to ",
                Strong(share(cost[1])),
                " of the span on them; every latency above holds the cost of the events inside it.",
            )
        )
    else:
        section.sentences.append(
            say(
                Strong("Tracing itself costs time"),
                " (some 0.1 to 1 µs an event); with this clock, "
                "or so few events, it cannot be estimated here.",
            )
        )
    section.sentences += _LIMITS
    section.definitions += _FORMULAS
    section.reproduce.append("traceana rules")


_LIMITS = [
    say(
        "A capture shows when events were recorded, not what the kernel thought: the state of the "
        "machine at each decision is rebuilt from events. What no event tells (the sync flag, the "
        "idle-core hint, the scan budget before it is seen) is taken both ways; what depends on it "
        "is called possible, not certain."
    ),
    say(
        "dur_avg, wakee_flips and utilisation at the first event are not in a capture; without ",
        Code("--start-state"),
        " they are unknown until they have decayed in.",
    ),
    say(
        "The first and last stretch of each task are cut by the window and left out of "
        "distributions; what spans a loss is left out, too."
    ),
    say(
        "Open loop: one wakeup at a time is moved and everything else stays as recorded. It "
        "answers how often a rule fires, on whom, and what queue it meets, not what would come "
        "of it."
    ),
]

_FORMULAS: list[tuple[str, Text]] = [
    (
        "dur_avg",
        say(
            Code("avg += (s - avg) / 8"),
            ", C division; update_avg() at the dequeue of a voluntary sleep (“sched/fair: Record "
            "the average duration of a task”, v4 of SIS_SHORT and later).",
        ),
    ),
    (
        "wakee_flips",
        say(
            "record_wakee() in kernel/sched/fair.c: +1 when the wakee differs from the last one; "
            "halved when more than a second (HZ) has passed since the last halving."
        ),
    ),
    (
        "wake_wide",
        say(
            "With m, s the larger and smaller of waker's and wakee's flips and f the CPUs of the "
            "LLC: wide if s ≥ f and m ≥ s · f."
        ),
    ),
    (
        "short",
        say(
            "SIS_SHORT v5: 0 < dur_avg and 8 · dur_avg < min granularity (base slice from 6.6 on)."
        ),
    ),
    (
        "decision window",
        say(
            "From sched_waking to the latest instant at which the booking is visible: sched_wakeup "
            "when queued directly, else the first sign of the waker's CPU going on."
        ),
    ),
    (
        "kind of a wakeup",
        say(
            "By what try_to_wake_up() did: selected a CPU, found the task still queued or on its "
            "CPU, only one CPU allowed, another class; see the table under quality."
        ),
    ),
    (
        "sources",
        say(
            "Linux kernel/sched/core.c and fair.c of 5.10, 6.1 and 6.12; “sched/fair: Wake short "
            "task on current CPU”, Chen Yu, v5 of 3 Feb 2023; perf-sched(1) for the run-queue "
            "delay."
        ),
    ),
]
