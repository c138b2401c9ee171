"""Where idle time went, and whether somebody waited meanwhile."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana.reports.context import Context, Scope
from traceana.reports.figures_idle import gap_lengths, lanes
from traceana.reports.gaps import Gaps, gap_arrays
from traceana.reports.idle_share import idle_share
from traceana.reports.model import Code, Column, Section, Strong, Table, Text, say
from traceana.reports.stats import spread
from traceana.reports.waits import WaitSums, waits_of
from traceana.reports.words import duration, moment, plural, share

__all__ = ["fill", "waited_words", "where_words"]


def waited_words(ctx: Context, gaps: Gaps) -> Text:
    """During what share of the idle time somebody waited."""
    idle = gaps.idle_ns
    if not ctx.recorded("sched_wakeup"):
        return say("whether a task waited meanwhile is not known without ", Code("sched_wakeup"))
    return say(
        "during ",
        Strong(share(int(gaps.llc_ns.sum()) / idle)),
        " of their idle time a task waited in the same LLC, during ",
        Strong(share(int(gaps.stuck_ns.sum()) / idle)),
        " behind a running one",
    )


def fill(ctx: Context, section: Section) -> None:
    """Sentences, the lanes, the histogram, per CPU, per workload."""
    part = idle_share(ctx)
    gaps = gap_arrays(ctx)
    if part.share is None:
        section.sentences.append(say("No CPU's time is known."))
        return
    section.sentences.append(
        say(
            "The CPUs were idle ",
            Strong(share(part.share)),
            f" of {part.of_words()}",
            *part.bounds_words(),
            *(("; ", *waited_words(ctx, gaps)) if gaps.idle_ns else ()),
            ".",
        )
    )
    if gaps.idle_ns:
        section.sentences.append(_extremes(ctx, gaps))
        section.figures += [lanes(ctx, gaps), gap_lengths(gaps)]
    section.tables.append(_per_cpu(ctx, gaps))
    if ctx.wakes["wakee"].size:
        waits = waits_of(ctx, gaps)
        section.tables.append(_workload_waits(waits, [ctx.everything, *ctx.workloads], ctx))
        for i, scope in enumerate(ctx.workloads):
            section.parts.append(_workload_part(ctx, waits, scope, f"idle-{i}"))
    section.definitions += [
        (
            "idle gap",
            say("From the switch to the idle task to the next switch away from it."),
        ),
        (
            "waited in the LLC",
            say(
                "Time within the gap during which a task was runnable but not running on another "
                "CPU of the same LLC; those merely on their way onto an idle CPU included.",
            ),
        ),
        (
            "behind a running one",
            say("The part of it in which such a task stood behind a task that ran."),
        ),
        (
            "idle share",
            say(
                "Idle time / (span × known CPUs). CPUs without any event are not counted; where "
                "there are any, both bounds are given.",
            ),
        ),
    ]
    section.reproduce.append(ctx.run("idle"))


def _extremes(ctx: Context, gaps: Gaps) -> Text:
    longest, worst = int(np.argmax(gaps.length)), int(np.argmax(gaps.stuck_ns))
    out = [
        "The longest gap, ",
        Strong(duration(int(gaps.length[longest]))),
        ", began on ",
        *where_words(ctx, gaps, longest),
    ]
    stuck = int(gaps.stuck_ns[worst])
    if stuck and worst == longest:
        out += [
            "; during ",
            Strong(duration(stuck)),
            " of it, the most of all, a task stood behind a running one",
        ]
    elif stuck:
        out += [
            "; the one in which tasks stood longest behind a running one, ",
            Strong(duration(stuck)),
            f" of {duration(int(gaps.length[worst]))}, on ",
            *where_words(ctx, gaps, worst),
        ]
    return say(*out, ".")


def where_words(ctx: Context, gaps: Gaps, gap: int) -> tuple[str, ...]:
    """CPU and begin of a gap, and whose wakeup ended it."""
    head = f"CPU {gaps.cpu[gap]} at {moment(int(gaps.start[gap]))}"
    return (head, *_ended_by(ctx, gap))


def _ended_by(ctx: Context, gap: int) -> tuple[str, ...]:
    by = ctx.tl.idle_gaps.column("ended_by")[gap].as_py()
    if by is None:
        return ()
    return (", ended by ", ctx.names.full(int(ctx.wakes["wakee"][by])))


def _per_cpu(ctx: Context, gaps: Gaps) -> Table:
    arrays = ctx.machine
    cpus = ctx.tl.cpus.to_pylist()
    span = max(ctx.span_ns, 1)
    rows: list[list[Any]] = []
    for cpu in ctx.cpu_order:
        c = cpus[cpu]
        mine = np.flatnonzero(gaps.cpu == cpu)
        lengths = gaps.length
        s = spread(lengths, mine)
        known = c["events"] > 0
        idle = int(c["idle_ns"])
        rows.append(
            [
                cpu,
                int(arrays.core[cpu]),
                int(arrays.llc_id[arrays.llc[cpu]]),
                idle / span if known else None,
                c["unknown_ns"] / span,
                idle if known else None,
                len(mine) if known else None,
                s.p50,
                s.p99,
                s.max,
                int(gaps.start[s.at]) if s.at >= 0 else None,
                int(gaps.llc_ns[mine].sum()) / idle if idle else None,
                int(gaps.stuck_ns[mine].sum()) / idle if idle else None,
            ]
        )
    limit = 64
    return Table(
        "idle-cpus",
        "Idle time per CPU, in the order of the topology",
        [
            Column("cpu", "id", "CPU"),
            Column("core", "id", "core"),
            Column("llc", "id", "LLC"),
            Column("idle_share", "share", "idle"),
            Column("unknown_share", "share", "unknown"),
            Column("idle_ns", "ns", "idle time"),
            Column("gaps", "int", "gaps"),
            Column("gap_p50_ns", "ns", "gap p50"),
            Column("gap_p99_ns", "ns", "p99"),
            Column("gap_max_ns", "ns", "longest"),
            Column("gap_max_at_ns", "ts", "began at"),
            Column("waited_llc_share", "share", "waited in LLC, of idle"),
            Column("stuck_share", "share", "behind a running one, of idle"),
        ],
        rows[:limit],
        more=max(0, len(rows) - limit),
    )


def _workload_waits(waits: WaitSums, scopes: list[Scope], ctx: Context) -> Table:
    rows = []
    for scope in scopes:
        mine = scope.tasks
        total, behind = int(waits.length[mine].sum()), int(waits.stuck_length[mine].sum())
        meanwhile = int(waits.idle[mine].sum())
        rows.append(
            [
                scope.label,
                int(waits.n[mine].sum()),
                total,
                behind,
                meanwhile,
                meanwhile / behind if behind else None,
            ]
        )
    return Table(
        "workload-waits",
        "Waiting while a CPU of the LLC was idle",
        [
            Column("workload", "text", "workload"),
            Column("waits", "int", "waits"),
            Column("wait_sum_ns", "ns", "waited in all"),
            Column("stuck_ns", "ns", "behind a running task"),
            Column("stuck_while_idle_ns", "ns", "of that, while a CPU idled"),
            Column("stuck_while_idle_share", "share", "share"),
        ],
        rows,
        note="Time of tasks, not of CPUs: two tasks that wait at once count twice. “While a CPU "
        "idled”: another CPU of the same LLC.",
    )


def _workload_part(ctx: Context, waits: WaitSums, scope: Scope, id: str) -> Section:
    part = Section(id, scope.label)
    mine = np.flatnonzero(scope.tasks & (waits.stuck_n > 0))
    if not len(mine):
        part.sentences.append(say("Its tasks never waited behind a running task."))
        return part
    worst = int(mine[np.argmax(waits.worst_idle[mine])])
    behind, meanwhile = int(waits.stuck_length[mine].sum()), int(waits.idle[mine].sum())
    n = int(waits.stuck_n[mine].sum())
    part.sentences.append(
        say(
            "Its tasks waited ",
            Strong(duration(behind)),
            f" behind running ones ({plural(n, 'wait')}), ",
            Strong(share(meanwhile / behind if behind else None)),
            " of that while a CPU of the LLC was idle; the longest such stretch, ",
            Strong(duration(int(waits.worst_idle[worst]))),
            ", was that of ",
            Strong(ctx.names.full(worst)),
            f", waiting on CPU {waits.worst_cpu[worst]} "
            f"from {moment(int(waits.worst_start[worst]))}.",
        )
    )
    return part
