"""What the interactive timeline shows, packed small enough to lie inside the page.

Slices are columns of whole numbers, lane by lane (a lane is a CPU) in the order of time: the
distance from the slice before, the length, the task, how it ended, how long it had been queued,
who had woken it. Each column is cut into planes of equal bytes (all lowest bytes first), which
deflate packs well; the page unpacks them with the browser's own DecompressionStream.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana.schema import EndReason, TaskClass

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = ["MAX_MARKS", "Payload", "pack", "slices_of"]

NULL = -(2**63)
#: Marks of one kind that are given along; more would only cover each other.
MAX_MARKS = 2000
#: Column -> how many bytes a value may need. Six bytes are 78 hours in ns.
_PLANES = {"gap": 6, "length": 6, "task": 3, "end": 1, "delay": 6, "waker": 3}
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Payload:
    """Slices of one stretch.

    ``lanes`` int64[n] (CPU of each slice, ascending), ``start``, ``end`` int64[n] (ns from
    ``begin``), ``task`` int64[n], ``reason`` int64[n] (schema.EndReason), ``delay`` int64[n] (ns,
    -1 unknown), ``waker`` int64[n] (task, -1 unknown).
    """

    begin: int
    end_ns: int
    lanes: Array
    start: Array
    end: Array
    task: Array
    reason: Array
    delay: Array
    waker: Array


def slices_of(timeline: Timeline, limit: int) -> Payload:
    """The slices of busy tasks, of a stretch in the middle where there are more than ``limit``."""
    s = timeline.raw["slices"]
    classes = np.array([-1 if c is None else c for c in timeline.tasks["class"].to_pylist()])
    first, last = timeline.first_ts, timeline.last_ts
    start = np.where(s["start"] == NULL, first, s["start"])
    end = np.where(s["end"] == NULL, last, s["end"])
    keep = (end > start) & (s["cpu"] >= 0)
    if len(classes):
        keep &= classes[s["task"]] != TaskClass.IDLE
    rows = np.flatnonzero(keep)
    begin, until = first, last
    if len(rows) > limit:
        by_time = rows[np.argsort(start[rows], kind="stable")]
        skip = (len(rows) - limit) // 2
        begin, until = int(start[by_time[skip]]), int(start[by_time[skip + limit]])
        rows = rows[(end[rows] > begin) & (start[rows] < until)]
    rows = rows[np.lexsort((start[rows], s["cpu"][rows]))]
    delay, waker = _woken(timeline, s["task"][rows], s["start"][rows])
    return Payload(
        begin,
        until - begin,
        s["cpu"][rows].astype(np.int64),
        np.clip(start[rows], begin, until) - begin,
        np.clip(end[rows], begin, until) - begin,
        s["task"][rows].astype(np.int64),
        s["reason"][rows].astype(np.int64),
        delay,
        waker,
    )


def _woken(timeline: Timeline, task: Array, start: Array) -> tuple[Array, Array]:
    """Queue delay and waker of the wakeup with which a slice began; -1 where none is known."""
    w = timeline.raw["wakeups"]
    told = np.flatnonzero(w["run"] != NULL)
    n = int(max(task.max(initial=0), w["wakee"].max(initial=0))) + 1
    base = int(min(start[start != NULL].min(initial=0), w["run"][told].min(initial=0)))
    # One number for (run, task): spans of days still fit.
    key = (w["run"][told] - base) * n + w["wakee"][told]
    order = np.argsort(key, kind="stable")
    want = np.where(start == NULL, -1, (start - base) * n + task)
    at = np.searchsorted(key[order], want)
    at[at >= len(order)] = 0
    delay, waker = np.full(len(task), -1, np.int64), np.full(len(task), -1, np.int64)
    if len(order):
        hit = (key[order][at] == want) & (start != NULL)
        found = told[order[at[hit]]]
        delay[hit] = np.where(w["delay"][found] == NULL, -1, w["delay"][found])
        waker[hit] = w["waker"][found]
    return delay, waker


def pack(payload: Payload) -> dict[str, Any]:
    """The slices as JSON values: ``{"n", "lanes": [[cpu, count], …], "planes", "data"}``."""
    p = payload
    n = len(p.start)
    lanes, counts = np.unique(p.lanes, return_counts=True)
    before = np.zeros(n, np.int64)
    same = np.flatnonzero(p.lanes[1:] == p.lanes[:-1]) + 1
    before[same] = p.end[same - 1]
    columns = {
        # A slice that begins before the one before it ended is damage; it is cut there.
        "gap": np.maximum(p.start - before, 0),
        "length": p.end - np.maximum(p.start, before),
        "task": p.task,
        "end": p.reason,
        "delay": p.delay + 1,
        "waker": p.waker + 1,
    }
    planes = []
    for name, width in _PLANES.items():
        values = np.clip(columns[name], 0, (1 << 8 * width) - 1).astype("<u8")
        planes.append(values.view(np.uint8).reshape(n, 8)[:, :width].T.tobytes())
    return {
        "n": n,
        "lanes": list(zip(lanes.tolist(), counts.tolist(), strict=True)),
        "planes": list(_PLANES.items()),
        "data": base64.b64encode(zlib.compress(b"".join(planes), 9)).decode(),
    }


#: What a slice ended with, for a reader; the page shows these words.
ENDINGS: Sequence[str] = tuple(
    {
        EndReason.SLEEP: "slept",
        EndReason.BLOCK: "blocked (D)",
        EndReason.PREEMPT: "preempted",
        EndReason.YIELD_LIKE: "left it runnable",
        EndReason.DEAD: "exited",
        EndReason.CUT: "cut by the window or a loss",
    }.get(EndReason(i), EndReason(i).name.lower())
    for i in range(max(EndReason) + 1)
)
