"""A first look at the ttwu race: candidate double bookings (section 10 of the semantics).

A wakeup *books* the CPU on which it is placed. Its decision window runs from sched_waking to the
latest instant at which others can see the booking (``visible_hi``). Two decided wakeups are a
*candidate* double booking when they chose the same CPU, that CPU's idle task was current while
the second one looked, it was not the second waker's own CPU, and the second one began before the
first was visible. Candidates are not yet proven: a CPU may have been chosen for a reason other
than its idleness.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import schema
from traceana._candidates_kernels import pair_bookings

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = ["candidates"]

NULL = -(2**63)


def gap_of(gaps: npt.NDArray[Any], cpu: Any, lo: Any, hi: Any) -> npt.NDArray[np.int64]:
    """Index of the idle gap of ``cpu`` that overlaps [lo, hi], or -1.

    Parameters
    ----------
    gaps : structured array of the timeline (cpu, start, end; NULL where open)
    cpu : int32[n]; lo, hi : int64[n], ns
    """
    out = np.full(len(cpu), -1, np.int64)
    order = np.lexsort((gaps["start"], gaps["cpu"]))
    g_cpu, g_start = gaps["cpu"][order], gaps["start"][order]
    g_end = np.where(gaps["end"][order] == NULL, np.iinfo(np.int64).max, gaps["end"][order])
    for c in np.unique(cpu):
        rows = np.flatnonzero(cpu == c)
        a, b = np.searchsorted(g_cpu, [c, c + 1])
        if a == b:
            continue
        i = np.searchsorted(g_start[a:b], hi[rows], side="right") - 1
        ok = i >= 0
        ok[ok] = g_end[a:b][i[ok]] > lo[rows][ok]
        out[rows[ok]] = order[a + i[ok]]
    return out


def candidates(timeline: Timeline) -> pa.Table:
    """Candidate double bookings, a row per later booking.

    Returns
    -------
    pyarrow.Table
        Schema ``candidates``: the booking that came second, the earliest one that it could not
        see, which of the two ran later (the victim), and how long it waited from when it was
        queued and the other ran: run_victim - max(visible_hi_victim, run_other), never negative.
    """
    w, gaps = timeline.raw["wakeups"], timeline.raw["gaps"]
    placed = np.where(w["placed"] >= 0, w["placed"], w["ran"])
    rows = np.flatnonzero(
        (w["kind"] == schema.WakeKind.DECIDED)
        & (w["waking"] != NULL)
        & (w["vis_hi"] != NULL)
        & (placed >= 0)
    )
    cpu, lo, hi = placed[rows], w["waking"][rows], w["vis_hi"][rows]
    look = np.where(w["mig"][rows] != NULL, w["mig"][rows], hi)
    gap = gap_of(gaps, cpu, lo, look)
    order = np.lexsort((lo, gap))
    first = np.empty(len(rows), np.int64)
    pair_bookings(gap[order], lo[order], hi[order], first)
    found = np.flatnonzero(first >= 0)
    second = rows[order[found]]
    booked = rows[order[first[found]]]
    foreign = w["this_cpu"][second] != placed[second]
    second, booked = second[foreign], booked[foreign]
    in_time = np.argsort(w["waking"][second], kind="stable")
    second, booked = second[in_time], booked[in_time]
    run_a, run_b = w["run"][booked], w["run"][second]
    # Without sched_wakeup it is not known from when on the victim stood in a queue.
    known = (run_a != NULL) & (run_b != NULL)
    known &= (w["wakeup"][booked] != NULL) & (w["wakeup"][second] != NULL)
    later = run_b >= run_a
    victim = np.where(later, second, booked)
    other_run = np.where(later, run_a, run_b)
    extra = w["run"][victim] - np.maximum(w["vis_hi"][victim], other_run)
    i64 = pa.int64()
    return pa.table(
        [
            pa.array(np.arange(len(second)), i64),
            pa.array(placed[second], pa.int32()),
            pa.array(w["waking"][second], i64),
            pa.array(booked, i64),
            pa.array(second, i64),
            pa.array(victim, i64, mask=~known),
            pa.array(np.maximum(extra, 0), i64, mask=~known),
        ],
        schema=schema.CANDIDATES.schema,
    )
