"""What happened, one row per event: the list that ``perf sched timehist`` prints.

A row ``ran`` stands where a task leaves a CPU and tells of the time that ends there:

* ``run_ns``: from its switch-in to this switch-out;
* ``wait_ns``: from its switch-out before that to this switch-in, asleep or runnable (perf's
  "wait time"); null where the switch-out before is not in the capture;
* ``delay_ns``: how long of that it was runnable: the queue delay (from sched_wakeup to the
  switch-in), or all of it after a switch-out in R. perf's "sch delay" begins at sched_waking where
  that is recorded, and is 0 after a switch-out in R;
* ``state``: in which state it left; ``waker``: who had woken it.

Rows ``wakes`` stand where a task was woken, and tell where it was put; rows ``migrates`` where one
was moved otherwise (by balancing, exec, or a change of its CPU set).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana._export_text import state_text
from traceana.schema import EndReason, TaskClass

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = ["SCHEMA", "history"]

NULL = -(2**63)
Array = npt.NDArray[Any]

SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("cpu", pa.int32()),
        ("what", pa.string()),
        ("task", pa.int32()),
        ("wait_ns", pa.int64()),
        ("delay_ns", pa.int64()),
        ("run_ns", pa.int64()),
        ("state", pa.string()),
        ("waker", pa.int32()),
        ("other", pa.int32()),
        ("cpu_from", pa.int32()),
        ("cpu_to", pa.int32()),
    ]
)


def history(
    timeline: Timeline, *, wakeups: bool = False, migrations: bool = False, idle: bool = False
) -> pa.Table:
    """Rows in the order of time.

    Parameters
    ----------
    timeline : Timeline
    wakeups, migrations : also rows ``wakes`` and ``migrates``
    idle : also rows of idle tasks

    Returns
    -------
    pyarrow.Table
        ``SCHEMA``: ts (ns), cpu, what ('ran', 'wakes', 'migrates'), task (dense id: who ran, who
        woke, who was moved), wait_ns, delay_ns, run_ns, state (letters), waker, other (who was
        woken), cpu_from, cpu_to. Null: not known, or not of this kind of row.
    """
    parts = [_ran(timeline)]
    if idle:
        parts.append(_idle(timeline))
    if wakeups:
        parts.append(_wakes(timeline))
    if migrations:
        parts.append(_migrates(timeline))
    table = pa.concat_tables(parts)
    order = np.argsort(table["ts"].to_numpy(), kind="stable")
    return table.take(pa.array(order))


def _table(n: int, **columns: Array | list[str] | str) -> pa.Table:
    """Rows of which only these columns are known; NULL and -1 become null."""
    out = []
    for field in SCHEMA:
        given = columns.get(field.name)
        if given is None:
            out.append(pa.nulls(n, field.type))
        elif isinstance(given, str):
            out.append(pa.array([given] * n, field.type))
        elif isinstance(given, list):
            out.append(pa.array(given, field.type))
        else:
            mask = given == NULL if given.dtype == np.int64 else given < 0
            out.append(pa.array(given.astype(field.type.to_pandas_dtype()), mask=mask))
    return pa.table(out, schema=SCHEMA)


def _ran(timeline: Timeline) -> pa.Table:
    s = timeline.raw["slices"]
    order = np.lexsort((np.where(s["start"] == NULL, s["end"], s["start"]), s["task"]))
    task, cpu = s["task"][order], s["cpu"][order]
    start, end, reason = s["start"][order], s["end"][order], s["reason"][order]
    n = len(order)
    before = np.full(n, NULL, np.int64)
    runnable = np.zeros(n, bool)
    same = np.flatnonzero(task[1:] == task[:-1]) + 1
    before[same] = end[same - 1]
    runnable[same] = np.isin(reason[same - 1], (EndReason.PREEMPT, EndReason.YIELD_LIKE))
    known = (start != NULL) & (before != NULL) & (before <= start)
    wait = np.where(known, start - before, NULL)
    delay = np.where(known & runnable, start - before, NULL)
    woken, waker = _woken(timeline, task, start)
    delay = np.where(woken != NULL, woken, delay)
    run = np.where((start != NULL) & (end != NULL), end - start, NULL)
    classes = np.array([-1 if c is None else c for c in timeline.tasks["class"].to_pylist()])
    keep = (end != NULL) & (reason != EndReason.CUT) & (classes[task] != TaskClass.IDLE)
    letters = {int(v): state_text(int(v)) for v in np.unique(s["state"])}
    states = [letters[v] for v in s["state"][order][keep].tolist()]
    return _table(
        int(keep.sum()),
        ts=end[keep],
        cpu=cpu[keep],
        what="ran",
        task=task[keep],
        wait_ns=wait[keep],
        delay_ns=delay[keep],
        run_ns=run[keep],
        state=states,
        waker=waker[keep],
    )


def _idle(timeline: Timeline) -> pa.Table:
    """Rows of the idle tasks: theirs are the idle gaps."""
    gaps = timeline.raw["gaps"]
    tasks = timeline.tasks.to_pylist()
    of_cpu = {t["cpu"]: t["task"] for t in tasks if t["class"] == TaskClass.IDLE}
    ended = gaps[gaps["end"] != NULL]
    start, end = ended["start"], ended["end"]
    return _table(
        len(ended),
        ts=end,
        cpu=ended["cpu"],
        what="ran",
        task=np.array([of_cpu.get(c, -1) for c in ended["cpu"].tolist()], np.int32),
        run_ns=np.where(start != NULL, end - start, NULL),
        state=["R"] * len(ended),
    )


def _woken(timeline: Timeline, task: Array, start: Array) -> tuple[Array, Array]:
    """Delay and waker of the wakeup that each slice began with (NULL, -1: none seen)."""
    w = timeline.raw["wakeups"]
    rows = np.flatnonzero(w["run"] != NULL)
    key = _pairs(w["wakee"][rows], w["run"][rows])
    order = np.argsort(key, kind="stable")
    key = key[order]
    want = _pairs(task, start)
    at = np.searchsorted(key, want)
    delay, waker = np.full(len(task), NULL, np.int64), np.full(len(task), -1, np.int32)
    inside = at < len(key)
    hit = inside.copy()
    hit[inside] = key[at[inside]] == want[inside]
    found = rows[order[at[hit]]]
    delay[hit] = w["delay"][found]
    waker[hit] = w["waker"][found]
    return delay, waker


def _pairs(task: Array, at: Array) -> Array:
    """(task, time) as one sortable value each."""
    out = np.empty(len(task), [("task", "i8"), ("at", "i8")])
    out["task"], out["at"] = task, at
    return out


def _wakes(timeline: Timeline) -> pa.Table:
    w = timeline.raw["wakeups"]
    told = w["waking"] != NULL
    ts = np.where(told, w["waking"], w["wakeup"])
    rows = np.flatnonzero(ts != NULL)
    return _table(
        len(rows),
        ts=ts[rows],
        cpu=w["this_cpu"][rows],
        what="wakes",
        task=w["waker"][rows],
        other=w["wakee"][rows],
        cpu_from=w["prev_cpu"][rows],
        cpu_to=w["placed"][rows],
    )


def _migrates(timeline: Timeline) -> pa.Table:
    m = timeline.raw["moves"]
    return _table(
        len(m),
        ts=m["ts"],
        cpu=m["at"],
        what="migrates",
        task=m["task"],
        cpu_from=m["src"],
        cpu_to=m["dst"],
    )
