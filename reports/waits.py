"""Stretches in which tasks waited for a CPU, and whether another CPU was idle meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana.reports.context import NULL, Context, column
from traceana.reports.gaps import Gaps
from traceana.reports.stats import integral_of_positive
from traceana.schema import EndReason

__all__ = ["Waits", "waits_of"]


@dataclass(frozen=True)
class Waits:
    """Stretches in which a task was runnable but not running."""

    task: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    cpu: npt.NDArray[np.int64]
    #: Whether it stood behind a running task.
    stuck: npt.NDArray[np.bool_]
    #: How long a CPU of the LLC was idle meanwhile.
    idle: npt.NDArray[np.int64]


def waits_of(ctx: Context, gaps: Gaps) -> Waits:
    """All waits of the capture whose ends are known: after a wakeup, and after a preemption."""
    w = ctx.wakes
    rows = np.flatnonzero(
        (w["wakeup_ts"] != NULL) & (w["run_ts"] != NULL) & (w["queue_delay_ns"] > 0)
    )
    parts = [
        (
            w["wakee"][rows],
            w["wakeup_ts"][rows],
            w["run_ts"][rows],
            np.where(w["placed_cpu"][rows] >= 0, w["placed_cpu"][rows], w["ran_cpu"][rows]),
            w["nr_running_placed"][rows] > 0,
        )
    ]
    parts.append(_preempt_waits(ctx))
    task, start, end, cpu, stuck = (np.concatenate(p) for p in zip(*parts, strict=True))
    idle = _idle_meanwhile(ctx, gaps, start, end, cpu)
    return Waits(task.astype(np.int64), start, end - start, cpu.astype(np.int64), stuck, idle)


def _preempt_waits(ctx: Context) -> tuple[Any, ...]:
    """From a switch-out in R to the same task's next switch-in."""
    slices = ctx.tl.slices
    task, start = ctx.slice_tasks, ctx.slice_starts
    end, why, cpu = column(slices, "end"), column(slices, "end_reason"), column(slices, "cpu", -1)
    order = np.lexsort((np.where(start == NULL, end, start), task))
    task, start, end, why, cpu = (x[order] for x in (task, start, end, why, cpu))
    out = np.flatnonzero(
        ((why[:-1] == EndReason.PREEMPT) | (why[:-1] == EndReason.YIELD_LIKE))
        & (task[1:] == task[:-1])
        & (start[1:] != NULL)
        & (end[:-1] != NULL)
        & (start[1:] > end[:-1])
    )
    return task[out], end[out], start[out + 1], cpu[out], np.ones(len(out), bool)


def _idle_meanwhile(ctx: Context, gaps: Gaps, start: Any, end: Any, cpu: Any) -> Any:
    llc = ctx.machine.llc
    origin = ctx.tl.first_ts
    out = np.zeros(len(start), np.int64)
    llc_of_wait = np.where(cpu >= 0, llc[np.maximum(cpu, 0)], -1)
    llc_of_gap = llc[gaps.cpu]
    for group in np.unique(llc_of_wait[llc_of_wait >= 0]):
        mine = np.flatnonzero(llc_of_gap == group)
        if not len(mine):
            continue
        times = np.concatenate([gaps.start[mine], gaps.end[mine]]) - origin
        steps = np.repeat(np.array([1, -1]), len(mine))
        t, integral = integral_of_positive(times, steps)
        rows = np.flatnonzero(llc_of_wait == group)
        at_end = np.interp(end[rows] - origin, t, integral)
        out[rows] = np.round(at_end - np.interp(start[rows] - origin, t, integral))
    return out
