"""Stretches in which tasks waited for a CPU, and whether another CPU was idle meanwhile.

Summed per task, stretch of the capture by stretch, so that a long one needs no more memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana.reports.context import NULL, Context, column
from traceana.reports.gaps import Gaps
from traceana.reports.stats import integral_of_positive
from traceana.schema import EndReason

__all__ = ["WaitSums", "waits_of"]

I64 = npt.NDArray[np.int64]
_WAKE_COLUMNS = (
    "wakee",
    "wakeup_ts",
    "run_ts",
    "queue_delay_ns",
    "placed_cpu",
    "ran_cpu",
    "nr_running_placed",
)
#: How long a CPU of the LLC was idle between two times, per row: (start, end, cpu) -> ns.
Meanwhile = Callable[[Any, Any, Any], I64]


@dataclass(frozen=True)
class WaitSums:
    """Per task: how often and how long it was runnable but not running.

    ``stuck_*``: of these, the stretches in which it stood behind a running task;
    ``idle``: how much of those a CPU of the LLC was idle; ``worst_*``: the one with the most.
    """

    n: I64
    length: I64
    stuck_n: I64
    stuck_length: I64
    idle: I64
    worst_idle: I64
    worst_cpu: I64
    worst_start: I64

    def add(self, task: Any, start: Any, end: Any, cpu: Any, stuck: Any, idle: Any) -> None:
        """Add stretches, a row each."""
        size = len(self.n)
        self.n[:] += np.bincount(task, minlength=size)
        self.length[:] += _sums(task, end - start, size)
        task, start, end, cpu, idle = (x[stuck] for x in (task, start, end, cpu, idle))
        self.stuck_n[:] += np.bincount(task, minlength=size)
        self.stuck_length[:] += _sums(task, end - start, size)
        self.idle[:] += _sums(task, idle, size)
        order = np.lexsort((-idle, task))
        which, first = np.unique(task[order], return_index=True)
        best = order[first]
        more = idle[best] > self.worst_idle[which]
        which, best = which[more], best[more]
        self.worst_idle[which] = idle[best]
        self.worst_cpu[which] = cpu[best]
        self.worst_start[which] = start[best]


def _sums(group: Any, values: Any, size: int) -> I64:
    out = np.zeros(size, np.int64)
    np.add.at(out, group, values)
    return out


def waits_of(ctx: Context, gaps: Gaps) -> WaitSums:
    """All waits of the capture whose ends are known: after a wakeup, and after a preemption."""
    n = ctx.tl.tasks.num_rows

    def per_task(value: int) -> I64:
        return np.full(n, value, np.int64)

    sums = WaitSums(
        n=per_task(0),
        length=per_task(0),
        stuck_n=per_task(0),
        stuck_length=per_task(0),
        idle=per_task(0),
        worst_idle=per_task(-1),
        worst_cpu=per_task(-1),
        worst_start=per_task(NULL),
    )
    meanwhile = _idle_meanwhile(ctx, gaps)
    for table in ctx.chunks("wakeups", _WAKE_COLUMNS):
        _add_wakeups(sums, table, meanwhile)
    last: dict[str, Any] | None = None
    for table in ctx.chunks("slices", ("task", "start", "end", "end_reason", "cpu")):
        last = _add_preemptions(sums, table, last, meanwhile)
    return sums


def _add_wakeups(sums: WaitSums, table: pa.Table, meanwhile: Meanwhile) -> None:
    wakeup, run = column(table, "wakeup_ts"), column(table, "run_ts")
    delay = column(table, "queue_delay_ns")
    rows = np.flatnonzero((wakeup != NULL) & (run != NULL) & (delay > 0))
    placed = column(table, "placed_cpu", -1)[rows]
    cpu = np.where(placed >= 0, placed, column(table, "ran_cpu", -1)[rows])
    stuck = column(table, "nr_running_placed", -1)[rows] > 0
    start, end = wakeup[rows], run[rows]
    task = column(table, "wakee")[rows]
    sums.add(task, start, end, cpu, stuck, meanwhile(start, end, cpu))


def _add_preemptions(
    sums: WaitSums, table: pa.Table, last: dict[str, Any] | None, meanwhile: Meanwhile
) -> dict[str, Any]:
    """From a switch-out in R to the same task's next switch-in; returns each task's last slice."""
    cols = {
        "task": column(table, "task", -1),
        "start": column(table, "start"),
        "end": column(table, "end"),
        "why": column(table, "end_reason"),
        "cpu": column(table, "cpu", -1),
    }
    if last is not None:
        cols = {name: np.concatenate([last[name], values]) for name, values in cols.items()}
    key = np.where(cols["start"] == NULL, cols["end"], cols["start"])
    order = np.lexsort((key, cols["task"]))
    task, start, end, why, cpu = (cols[n][order] for n in ("task", "start", "end", "why", "cpu"))
    out = np.flatnonzero(
        ((why[:-1] == EndReason.PREEMPT) | (why[:-1] == EndReason.YIELD_LIKE))
        & (task[1:] == task[:-1])
        & (start[1:] != NULL)
        & (end[:-1] != NULL)
        & (start[1:] > end[:-1])
    )
    a, b, c = end[out], start[out + 1], cpu[out]
    sums.add(task[out], a, b, c, np.ones(len(out), bool), meanwhile(a, b, c))
    ends = np.flatnonzero(np.append(task[1:] != task[:-1], [True] * min(len(task), 1)))
    return {name: values[order][ends] for name, values in cols.items()}


def _idle_meanwhile(ctx: Context, gaps: Gaps) -> Meanwhile:
    llc, origin = ctx.machine.llc, ctx.tl.first_ts
    of_gap = llc[gaps.cpu]
    idle = {}
    for group in np.unique(of_gap):
        mine = np.flatnonzero(of_gap == group)
        times = np.concatenate([gaps.start[mine], gaps.end[mine]]) - origin
        steps = np.repeat(np.array([1, -1], np.int8), len(mine))
        idle[int(group)] = integral_of_positive(times, steps)

    def meanwhile(start: Any, end: Any, cpu: Any) -> I64:
        out = np.zeros(len(start), np.int64)
        of_wait = np.where(cpu >= 0, llc[np.maximum(cpu, 0)], -1)
        for group, (t, integral) in idle.items():
            rows = np.flatnonzero(of_wait == group)
            if len(rows):
                at_end = np.interp(end[rows] - origin, t, integral)
                out[rows] = np.round(at_end - np.interp(start[rows] - origin, t, integral))
        return out

    return meanwhile
