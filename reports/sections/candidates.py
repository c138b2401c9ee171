"""Candidate double bookings: two wakers that may have taken the same CPU for idle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana.reports.context import NULL, Context, column, missing_text
from traceana.reports.model import Column, Section, Strong, Table, Text, say
from traceana.reports.stats import spread
from traceana.reports.words import count, duration, moment, plural, share
from traceana.schema import WakeKind

__all__ = ["Pairs", "decided", "fill", "pairs_of"]


@dataclass(frozen=True)
class Pairs:
    """The candidates as arrays; unknown: NULL, or -1 for the victim."""

    cpu: npt.NDArray[np.int64]
    ts: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    victim: npt.NDArray[np.int64]
    extra: npt.NDArray[np.int64]


def decided(ctx: Context) -> int:
    """Wakeups in which a CPU was selected."""
    return int((ctx.studied["kind"] == WakeKind.DECIDED).sum())


def pairs_of(ctx: Context) -> Pairs | None:
    """The candidates, or None without sched_waking."""
    table = ctx.candidates
    if table is None:
        return None
    return Pairs(
        column(table, "cpu"),
        column(table, "ts"),
        column(table, "first"),
        column(table, "second"),
        column(table, "victim", -1),
        column(table, "extra_delay_ns"),
    )


def fill(ctx: Context, section: Section) -> None:
    """Sentences, per CPU, the worst ones, each workload."""
    pairs = pairs_of(ctx)
    if pairs is None:
        section.missing.append(missing_text("this section", ("sched_waking",)))
        return
    n, of = len(pairs.cpu), decided(ctx)
    section.sentences.append(say(*ctx.stretch, *_finding(ctx, pairs, n, of)))
    if n:
        section.tables.append(_per_cpu(ctx, pairs))
        section.tables.append(
            _worst(ctx, pairs, np.arange(n), "collisions", "The longest extra delays", 10)
        )
    section.sentences.append(
        say(
            "These are candidates, not proof: a CPU can be chosen for another reason than that it "
            "looked idle, and clocks of different CPUs may differ a little.",
        )
    )
    for i, scope in enumerate(ctx.workloads):
        part = Section(f"candidates-{i}", scope.label)
        wakee, kind = ctx.studied["wakee"], ctx.studied["kind"]
        mine = np.flatnonzero(scope.tasks[wakee[pairs.second]])
        own = int((scope.tasks[wakee] & (kind == WakeKind.DECIDED)).sum())
        part.sentences.append(_finding(ctx, _take(pairs, mine), len(mine), own))
        if len(mine):
            part.tables.append(
                _worst(
                    ctx,
                    pairs,
                    mine,
                    f"collisions-{i}",
                    f"The longest extra delays, {scope.label}",
                    5,
                )
            )
        section.parts.append(part)
    section.definitions += [
        (
            "candidate double booking",
            say(
                "Two wakeups that chose the same idle CPU, the second before the first was visible "
                "to it (queued, or its pending flag set), from another CPU than the chosen one.",
            ),
        ),
        (
            "victim, extra delay",
            say(
                "The one of the two that ran later; how long it waited from when both were queued "
                "and the other ran.",
            ),
        ),
    ]


def _take(pairs: Pairs, rows: Any) -> Pairs:
    return Pairs(
        *(getattr(pairs, f)[rows] for f in ("cpu", "ts", "first", "second", "victim", "extra"))
    )


def _finding(ctx: Context, pairs: Pairs, n: int, of: int) -> Text:
    if not n:
        return say("None of the ", Strong(plural(of, "decided wakeup")), " is a candidate.")
    s = spread(pairs.extra)
    out: list[object] = [
        Strong(count(n)),
        " of ",
        Strong(plural(of, "decided wakeup")),
        " (",
        Strong(share(n / of if of else None)),
        ") chose an idle CPU that another waker had just chosen",
    ]
    if s.n:
        victim = int(ctx.studied["wakee"][pairs.victim[s.at]])
        out += [
            "; the victim then waited ",
            Strong(duration(s.p50)),
            " (p50) to ",
            Strong(duration(s.p99)),
            " (p99) longer, at most ",
            Strong(duration(s.max)),
            ", ",
            ctx.names.full(victim),
            f" on CPU {pairs.cpu[s.at]} at {moment(int(pairs.ts[s.at]))}",
        ]
    return say(*out, ".")


def _per_cpu(ctx: Context, pairs: Pairs) -> Table:
    w = ctx.studied
    chosen = w["placed_cpu"][w["kind"] == WakeKind.DECIDED]
    rows: list[list[Any]] = []
    for cpu in np.unique(pairs.cpu):
        mine = np.flatnonzero(pairs.cpu == cpu)
        s = spread(pairs.extra, mine)
        of = int((chosen == cpu).sum())
        known = pairs.extra[mine]
        total = int(known[known != NULL].sum())
        rows.append(
            [int(cpu), len(mine), of, len(mine) / of if of else None, total, s.p50, s.p99, s.max]
        )
        rows[-1].append(int(pairs.ts[s.at]) if s.at >= 0 else None)
    rows.sort(key=lambda r: (-r[1], r[0]))
    limit = 32
    return Table(
        "collision-cpus",
        "By chosen CPU",
        [
            Column("cpu", "id", "CPU"),
            Column("candidates", "int", "candidates"),
            Column("decided", "int", "decided wakeups"),
            Column("share", "share", "share"),
            Column("extra_sum_ns", "ns", "extra delay in all"),
            Column("extra_p50_ns", "ns", "p50"),
            Column("extra_p99_ns", "ns", "p99"),
            Column("extra_max_ns", "ns", "longest"),
            Column("extra_max_at_ns", "ts", "booked at"),
        ],
        rows[:limit],
        more=max(0, len(rows) - limit),
    )


def _worst(ctx: Context, pairs: Pairs, rows: Any, id: str, caption: str, limit: int) -> Table:
    known = rows[pairs.extra[rows] != NULL]
    order = known[np.lexsort((known, -pairs.extra[known]))]
    w = ctx.studied
    out = []
    for i in order[:limit]:
        a, b, v = int(pairs.first[i]), int(pairs.second[i]), int(pairs.victim[i])
        out.append(
            [
                int(pairs.ts[i]),
                int(pairs.cpu[i]),
                ctx.names.full(int(w["wakee"][a])),
                ctx.names.full(int(w["waker"][a])),
                ctx.names.full(int(w["wakee"][b])),
                ctx.names.full(int(w["waker"][b])),
                "first" if v == a else "second",
                int(pairs.extra[i]),
            ]
        )
    return Table(
        id,
        caption,
        [
            Column("ts_ns", "ts", "booked again at"),
            Column("cpu", "id", "CPU"),
            Column("first", "text", "first wakee"),
            Column("first_waker", "text", "its waker"),
            Column("second", "text", "second wakee"),
            Column("second_waker", "text", "its waker"),
            Column("victim", "text", "victim"),
            Column("extra_delay_ns", "ns", "extra delay"),
        ],
        out,
        more=max(0, len(order) - limit),
    )
