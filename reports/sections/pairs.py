"""Who wakes whom: the busiest pairs, and whether they wake each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana.reports.context import Context, missing_text
from traceana.reports.model import Column, Section, Strong, Table, say
from traceana.reports.stats import spread
from traceana.reports.words import plural, share
from traceana.schema import Queueing, WakeContext

__all__ = ["fill"]

#: The rarer direction of a mutual pair has at least this share of the other's wakeups.
MUTUAL = 0.5


@dataclass(frozen=True)
class Edges:
    """Pairs (waker → wakee), the most frequent first."""

    waker: npt.NDArray[np.int64]
    wakee: npt.NDArray[np.int64]
    n: npt.NDArray[np.int64]
    #: Wakeups in the other direction.
    back: npt.NDArray[np.int64]
    mutual: npt.NDArray[np.bool_]
    #: Row of the wakeups -> pair; -1 for those without a known waker.
    of: npt.NDArray[np.int32]


def _edges(ctx: Context) -> Edges:
    w = ctx.wakes
    known = np.flatnonzero((w["waker"] >= 0) & (w["context"] == WakeContext.TASK))
    n_tasks = ctx.tl.tasks.num_rows + 1
    key = w["waker"][known].astype(np.int64) * n_tasks + w["wakee"][known]
    pair, n = np.unique(key, return_counts=True)
    reverse = (pair % n_tasks) * n_tasks + pair // n_tasks
    at = np.minimum(np.searchsorted(pair, reverse), max(len(pair) - 1, 0))
    back = np.where(pair[at] == reverse, n[at], 0) if len(pair) else n
    order = np.lexsort((pair, -n))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    of = np.full(len(w["waker"]), -1, np.int32)
    of[known] = place[np.searchsorted(pair, key)]
    low, high = np.minimum(n, back)[order], np.maximum(n, back)[order]
    return Edges(
        pair[order] // n_tasks,
        pair[order] % n_tasks,
        n[order],
        back[order],
        (low > 0) & (low >= MUTUAL * high),
        of,
    )


def fill(ctx: Context, section: Section) -> None:
    """Sentences, the top pairs, workload to workload, each workload's pairs."""
    w = ctx.wakes
    total = len(w["wakee"])
    if not total:
        section.missing.append(missing_text("this section", ("sched_waking", "sched_wakeup")))
        return
    e = _edges(ctx)
    known = int(e.n.sum())
    if not ctx.recorded("sched_waking"):
        section.missing.append(
            missing_text("a waker that is certain for every wakeup", ("sched_waking",))
        )
    irq = int(((w["context"] >= WakeContext.HARDIRQ) & (w["context"] <= WakeContext.NMI)).sum())
    unknown = total - known - irq
    if len(e.n):
        a, b = int(e.waker[0]), int(e.wakee[0])
        mutual = int(e.n[e.mutual].sum())
        section.sentences.append(
            say(
                "Of ",
                Strong(plural(total, "wakeup")),
                ", ",
                Strong(share(known / total)),
                " came from a task, ",
                Strong(share(irq / total)),
                " from an interrupt, ",
                share(unknown / total),
                " have no known waker; ",
                Strong(share(mutual / known)),
                " of those from a task belong to pairs that wake each other.",
            )
        )
        fan = np.bincount(e.waker)
        widest = int(np.argmax(fan))
        section.sentences.append(
            say(
                "The busiest pair is ",
                Strong(ctx.names.full(a)),
                " waking ",
                Strong(ctx.names.full(b)),
                f", {plural(int(e.n[0]), 'time')} "
                f"({share(e.n[0] / known)}; back {plural(int(e.back[0]), 'time')}). ",
                *(
                    (
                        "The widest waker, ",
                        Strong(ctx.names.full(widest)),
                        ", woke ",
                        Strong(plural(int(fan[widest]), "task")),
                        ".",
                    )
                    if fan[widest] > 1
                    else ("No task woke more than one other.",)
                ),
            )
        )
    else:
        section.sentences.append(
            say("No wakeup of the capture has a waker that is known for certain.")
        )
    section.tables.append(_table(ctx, "pairs", "Busiest pairs", e, np.arange(len(e.n)), 15))
    if len(ctx.workloads) > 1:
        section.tables.append(_matrix(ctx, e))
    for i, scope in enumerate(ctx.workloads):
        mine = np.flatnonzero(scope.tasks[e.waker] | scope.tasks[e.wakee])
        part = Section(f"pairs-{i}", scope.label)
        inside = int(e.n[scope.tasks[e.waker] & scope.tasks[e.wakee]].sum())
        own = int(e.n[scope.tasks[e.wakee]].sum())
        part.sentences.append(
            say(
                "Its tasks were woken ",
                Strong(plural(own, "time")),
                " by tasks, ",
                Strong(share(inside / own if own else None)),
                " of that from within the workload.",
            )
        )
        part.tables.append(
            _table(ctx, f"pairs-{i}", f"Busiest pairs with {scope.label}", e, mine, 8)
        )
        section.parts.append(part)
    section.definitions += [
        (
            "waker",
            say(
                "The task that was running where sched_waking was recorded, in task context. In "
                "interrupt context the interrupted task is not the cause and is not counted.",
            ),
        ),
        (
            "mutual",
            say(
                "Both directions occur, and the rarer has at least half the wakeups of the other.",
            ),
        ),
    ]
    section.reproduce.append(ctx.run("wakeups", "--by", "pair"))


def _table(ctx: Context, id: str, caption: str, e: Edges, rows: Any, limit: int) -> Table:
    w = ctx.wakes
    known = max(int(e.n.sum()), 1)
    out = []
    for i in rows[:limit]:
        mine = np.flatnonzero(e.of == i)
        delay = spread(w["queue_delay_ns"], mine)
        placed, this = w["placed_cpu"][mine], w["this_cpu"][mine]
        both = (placed >= 0) & (this >= 0)
        direct = w["queueing"][mine]
        told = int((direct != Queueing.UNKNOWN).sum())
        out.append(
            [
                ctx.names.comm(int(e.waker[i])),
                ctx.names.pid(int(e.waker[i])),
                ctx.names.comm(int(e.wakee[i])),
                ctx.names.pid(int(e.wakee[i])),
                int(e.n[i]),
                float(e.n[i] / known),
                int(e.back[i]),
                bool(e.mutual[i]),
                float((placed[both] == this[both]).mean()) if both.any() else None,
                float((direct == Queueing.DIRECT).sum() / told) if told else None,
                delay.p50,
                delay.p99,
            ]
        )
    return Table(
        id,
        caption,
        [
            Column("waker", "text", "waker"),
            Column("waker_pid", "id", "pid"),
            Column("wakee", "text", "wakee"),
            Column("wakee_pid", "id", "pid"),
            Column("wakeups", "int", "wakeups"),
            Column("share", "share", "share"),
            Column("back", "int", "back"),
            Column("mutual", "flag", "mutual"),
            Column("wakers_cpu_share", "share", "on waker's CPU"),
            Column("direct_share", "share", "queued directly"),
            Column("queue_delay_p50_ns", "ns", "queue delay p50"),
            Column("queue_delay_p99_ns", "ns", "p99"),
        ],
        out,
        more=max(0, len(rows) - limit),
    )


def _matrix(ctx: Context, e: Edges) -> Table:
    k = len(ctx.workloads)
    labels = [s.label for s in ctx.workloads] + ["others"]
    a, b = ctx.group_of[e.waker], ctx.group_of[e.wakee]
    a, b = np.where(a < 0, k, a), np.where(b < 0, k, b)
    n = np.bincount(a * (k + 1) + b, weights=e.n, minlength=(k + 1) ** 2).astype(np.int64)
    known = max(int(e.n.sum()), 1)
    order = [int(i) for i in np.argsort(-n, kind="stable") if n[i]]
    return Table(
        "workload-pairs",
        "Workload to workload",
        [
            Column("waker", "text", "wakers of"),
            Column("wakee", "text", "wakees of"),
            Column("wakeups", "int", "wakeups"),
            Column("share", "share", "share"),
        ],
        [
            [labels[i // (k + 1)], labels[i % (k + 1)], int(n[i]), float(n[i] / known)]
            for i in order[:15]
        ],
        more=max(0, len(order) - 15),
    )
