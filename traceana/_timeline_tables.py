"""The state machine's arrays as Arrow tables of the contract."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import _timeline_state as k
from traceana import schema

if TYPE_CHECKING:
    from traceana.timeline import Timeline, TimelineBuilder

__all__ = ["make_tables", "sync_share"]

NULL = k.NULL
Array = npt.NDArray[Any]

#: A waker that blocks within this (or twice its dur_avg, if shorter) may have said WF_SYNC (7.5).
SYNC_WINDOW_NS = 50_000
#: An edge whose waker blocks that soon after fewer wakings than this is not sync (7.5).
SYNC_SHARE = 0.2
#: Wakings of an edge below which its share says nothing.
SYNC_MIN = 20


def _col(values: Array, type_: pa.DataType, null: int | None = None) -> pa.Array:
    mask = None
    if null is not None:
        mask = values == null
        if not mask.any():
            mask = None
    return pa.array(np.ascontiguousarray(values), type=type_, mask=mask)


def _table(name: str, columns: dict[str, pa.Array]) -> pa.Table:
    spec = schema.TABLES[name]
    return pa.table([columns[c.name] for c in spec.columns], schema=spec.schema)


def make_tables(
    builder: TimelineBuilder,
    group: Callable[..., list[str | None]],
    *,
    whole_cpus: bool = True,
) -> Timeline:
    """All tables of a finished builder."""
    from traceana.timeline import Timeline

    used = builder._used()
    if not whole_cpus:
        used["gaps"] = used["gaps"][:0]
    first = builder._first_ts if builder._first_ts is not None else 0
    last = max(builder._last_ts, first)
    stat = bool(builder._G[0]["stat"])
    # Slices are opened in the order of time but for those that began before the window.
    order = _order_of_slices(used["slices"], first)
    slices = used["slices"][order]
    wakeups = used["wakeups"]
    gaps, ended_by = used["gaps"], used["gaps"]["by"]
    key = wakeups["waking"].copy()
    for name in ("wakeup", "run"):
        key[key == NULL] = wakeups[name][key == NULL]
    if len(key) > 1 and (np.diff(key) < 0).any():
        move = np.argsort(key, kind="stable")
        back = np.empty(len(move), np.int64)
        back[move] = np.arange(len(move))
        wakeups = wakeups[move]
        ended_by = np.where(ended_by >= 0, back[np.maximum(ended_by, 0)], -1)
    gap_order = _order_of_slices(gaps, first)
    gaps, ended_by = gaps[gap_order], ended_by[gap_order]
    sync = sync_share(wakeups, slices, first)
    return Timeline(
        tasks=_tasks(builder, used["tasks"], group, stat),
        slices=_slices(slices, stat),
        wakeups=_wakeups(wakeups, sync),
        idle_gaps=_gaps(gaps, ended_by, waits=bool(builder._G[0]["have_wakeup"])),
        issues=builder.issues,
        first_ts=first,
        last_ts=last,
        cpus=_cpus(used["cpus"], gaps, slices if whole_cpus else slices[:0], first, last),
        dur_source=schema.DurSource.STAT_RUNTIME if stat else schema.DurSource.SWITCHES,
        hz=builder.hz,
        kernel=builder.kernel,
        raw={**used, "slices": slices, "wakeups": wakeups, "gaps": gaps},
    )


def _order_of_slices(rows: Array, first: int) -> Array:
    """Permutation into the order coalesce(start, end)."""
    key = np.where(rows["start"] != NULL, rows["start"], rows["end"])
    key = np.where(key != NULL, key, np.iinfo(np.int64).max)
    if len(key) > 1 and (np.diff(key) < 0).any():
        return np.argsort(key, kind="stable")
    return np.arange(len(key))


def _tasks(
    builder: TimelineBuilder, t: Array, group: Callable[..., list[str | None]], stat: bool
) -> pa.Table:
    n = len(t)
    comms = [_comm_of(builder, int(r["pid"]), int(r["cpu"]), int(r["last_ts"])) for r in t]
    tgids = [builder._tgid.get(int(pid)) if pid else 0 for pid in t["pid"]]
    leaders = [
        None if tgid is None or not pid else _comm_of(builder, tgid, -1, int(last))
        for pid, tgid, last in zip(t["pid"], tgids, t["last_ts"], strict=True)
    ]
    idle = t["pid"] == 0
    groups = group(comms, leaders, builder._workload)
    prio = t["prio"]
    cls = np.full(n, 255, np.int64)
    cls[prio >= 100] = schema.TaskClass.FAIR
    cls[(prio >= 0) & (prio < 100)] = schema.TaskClass.RT
    cls[prio == -1] = schema.TaskClass.DL
    stop = np.array([c is not None and c.startswith("migration/") for c in comms], bool)
    cls[stop & (prio >= 0) & (prio < 100)] = schema.TaskClass.STOP
    cls[idle] = schema.TaskClass.IDLE
    known_dur = (t["need"] == 0) & ~idle
    known_flips = t["flip_need"] == 0
    source = schema.DurSource.STAT_RUNTIME if stat else schema.DurSource.SWITCHES
    return _table(
        "tasks",
        {
            "task": _col(np.arange(n, dtype=np.int32), pa.int32()),
            "pid": _col(t["pid"], pa.int32()),
            "tgid": pa.array(tgids, pa.int32()),
            "comm": pa.array(comms, pa.string()),
            "cpu": _col(t["cpu"], pa.int32(), -1),
            "first_ts": _col(t["first_ts"], pa.int64()),
            "last_ts": _col(t["last_ts"], pa.int64()),
            "born": _col(t["born"], pa.int64(), NULL),
            "died": _col(t["died"], pa.int64(), NULL),
            "class": _col(cls.astype(np.uint8), pa.uint8(), 255),
            "prio": _col(prio.astype(np.int16), pa.int16(), -32768),
            "group": pa.array(
                [None if i else g for i, g in zip(idle, groups, strict=True)], pa.string()
            ),
            "runtime_ns": _col(t["rt"] if stat else t["rt_sw"], pa.int64()),
            "on_cpu_ns": _col(t["rt_sw"], pa.int64()),
            "switches": _col(t["switches"], pa.int64()),
            "voluntary": _col(t["voluntary"], pa.int64()),
            "preempted": _col(t["preempted"], pa.int64()),
            "wakeups": _col(t["wakeups"] + _only_waking(builder, n), pa.int64()),
            "delays": _col(t["delays"], pa.int64()),
            "delay_sum_ns": _col(t["delay_sum"], pa.int64()),
            "delay_max_ns": _col(t["delay_max"], pa.int64(), -1),
            "delay_max_at_ns": _col(t["delay_max_at"], pa.int64(), NULL),
            "dur_avg_ns": _col(np.where(known_dur, t["dur"], NULL), pa.int64(), NULL),
            "dur_avg_source": _col(
                np.where(t["samples"] > 0, int(source), 255).astype(np.uint8), pa.uint8(), 255
            ),
            "dur_samples": _col(t["samples"], pa.int64()),
            "wakee_flips": _col(np.where(known_flips, t["flips"], NULL), pa.int64(), NULL),
            "flips_seen": _col(t["flips_seen"], pa.int64()),
        },
    )


def _only_waking(builder: TimelineBuilder, n: int) -> Array:
    """Wakings per task, where no sched_wakeup was recorded at all; else 0."""
    if int(schema.EventKind.WAKEUP) in builder._have:
        return np.zeros(n, np.int64)
    w = builder._used()["wakeups"]
    return np.bincount(w["wakee"][w["waking"] != NULL], minlength=n)


def _comm_of(builder: TimelineBuilder, pid: int, cpu: int, until: int) -> str | None:
    """Last name of a pid at a time; names are bytes, what is not UTF-8 is escaped."""
    if pid == 0:
        return f"swapper/{cpu}"
    known = builder._names.get(pid)
    if not known:
        return None
    times = [NULL if ts is None else ts for ts, _ in known]
    i = max(bisect_right(times, until) - 1, 0)
    return known[i][1].decode("utf-8", "backslashreplace")


def _slices(s: Array, stat: bool) -> pa.Table:
    return _table(
        "slices",
        {
            "slice": _col(np.arange(len(s), dtype=np.int64), pa.int64()),
            "task": _col(s["task"], pa.int32()),
            "cpu": _col(s["cpu"], pa.int32()),
            "start": _col(s["start"], pa.int64(), NULL),
            "end": _col(s["end"], pa.int64(), NULL),
            "runtime_ns": _col(s["runtime"] if stat else np.full(len(s), NULL), pa.int64(), NULL),
            "end_reason": _col(s["reason"], pa.uint8()),
            "state": _col(s["state"], pa.uint16(), 65535),
        },
    )


def _wakeups(w: Array, sync: Array) -> pa.Table:
    look_hi = np.where(w["mig"] != NULL, w["mig"], w["vis_hi"])

    def flag(name: str) -> pa.Array:
        return pa.array(w[name] == 1, pa.bool_(), mask=w[name] < 0)

    i32, i64, u8 = pa.int32(), pa.int64(), pa.uint8()
    return _table(
        "wakeups",
        {
            "wakeup": _col(np.arange(len(w), dtype=np.int64), i64),
            "waking_ts": _col(w["waking"], i64, NULL),
            "wakeup_ts": _col(w["wakeup"], i64, NULL),
            "run_ts": _col(w["run"], i64, NULL),
            "wakee": _col(w["wakee"], i32),
            "waker": _col(w["waker"], i32, -1),
            "current": _col(w["current"], i32, -1),
            "this_cpu": _col(w["this_cpu"], i32, -1),
            "prev_cpu": _col(w["prev_cpu"], i32, -1),
            "placed_cpu": _col(w["placed"], i32, -1),
            "ran_cpu": _col(w["ran"], i32, -1),
            "kind": _col(w["kind"], u8),
            "context": _col(w["context"], u8),
            "queueing": _col(w["queueing"], u8),
            "wakeup_latency_ns": _col(w["latency"], i64, NULL),
            "queue_delay_ns": _col(w["delay"], i64, NULL),
            "wake_delay_ns": _col(w["wake_delay"], i64, NULL),
            "look_lo": _col(w["waking"], i64, NULL),
            "look_hi": _col(look_hi, i64, NULL),
            "visible_lo": _col(w["vis_lo"], i64, NULL),
            "visible_hi": _col(w["vis_hi"], i64, NULL),
            "wakee_dur_avg_ns": _col(w["wakee_dur"], i64, NULL),
            "waker_dur_avg_ns": _col(w["waker_dur"], i64, NULL),
            "wakee_flips": _col(w["wakee_flips"], i64, NULL),
            "waker_flips": _col(w["waker_flips"], i64, NULL),
            "nr_running_placed": _col(w["nr_placed"], i32, -1),
            "nr_running_this": _col(w["nr_this"], i32, -1),
            "prev_idle": flag("prev_idle"),
            "placed_idle": flag("placed_idle"),
            "idle_cpus_llc": _col(w["idle_llc"], i32, -1),
            "sync_guess": _col(sync, u8, 255),
            "quality": _col(w["quality"], pa.uint16()),
        },
    )


def _gaps(p: Array, ended_by: Array, *, waits: bool) -> pa.Table:
    i64 = pa.int64()

    def waited(name: str) -> pa.Array:
        # Without sched_wakeup nobody is known to be queued between waking and running.
        return _col(p[name], i64) if waits else pa.nulls(len(p), i64)

    return _table(
        "idle_gaps",
        {
            "gap": _col(np.arange(len(p), dtype=np.int64), i64),
            "cpu": _col(p["cpu"], pa.int32()),
            "start": _col(p["start"], i64, NULL),
            "end": _col(p["end"], i64, NULL),
            "cpu_idle_state": _col(p["idle_state"], pa.int32(), -1),
            "waited_llc_ns": waited("llc"),
            "waited_any_ns": waited("any"),
            "waited_busy_llc_ns": waited("busy"),
            "ended_by": _col(ended_by, i64, -1),
        },
    )


def _cpus(c: Array, gaps: Array, slices: Array, first: int, last: int) -> pa.Table:
    """Per CPU: its window and how much of the span it was idle, busy, or unknown.

    Columns: cpu, begin, end, events, switches, idle_ns, busy_ns, unknown_ns (they add up to the
    capture's span).
    """
    n = len(c)
    begin = np.where(c["begin"] != NULL, c["begin"], first)
    idle, busy = np.zeros(n, np.int64), np.zeros(n, np.int64)
    # An open start is the window's only for the first row of a CPU, an open end only for its last
    # one: elsewhere a switch is missing and the time is unknown.
    big = np.iinfo(np.int64).max
    first_end, last_start = np.full(n, big), np.full(n, NULL)
    parts = [(r[r["cpu"] >= 0], out) for r, out in ((gaps, idle), (slices, busy))]
    # Who was elsewhere before did not run here since the window's begin.
    when = np.where(slices["start"] != NULL, slices["start"], slices["end"])
    seen = np.full(int(slices["task"].max(initial=-1)) + 1, big)
    np.minimum.at(seen, slices["task"], np.where(when != NULL, when, big))
    for rows, _ in parts:
        ends = np.where(rows["end"] != NULL, rows["end"], big)
        np.minimum.at(first_end, rows["cpu"], np.where(ends == big, last, ends))
        np.maximum.at(last_start, rows["cpu"], rows["start"])
    for rows, out in parts:
        cpu = rows["cpu"]
        task = rows["task"] if "task" in (rows.dtype.names or ()) else c["idle_task"][cpu]
        open_end = rows["end"] == NULL
        end = np.where(open_end, last, rows["end"])
        start = np.where(rows["start"] != NULL, rows["start"], begin[cpu])
        lost = open_end & ((c["curr"][cpu] != task) | (rows["start"] < last_start[cpu]))
        lost |= (rows["start"] == NULL) & (end > first_end[cpu])
        if out is busy:
            lost |= (rows["start"] == NULL) & (seen[task] < end)
        np.add.at(out, cpu, np.where(lost, 0, np.maximum(end - start, 0)))
    total = last - first
    unknown = np.maximum(total - idle - busy, 0)
    return pa.table(
        {
            "cpu": pa.array(np.arange(n, dtype=np.int32)),
            "begin": pa.array(
                np.where(c["events"] > 0, begin, NULL), pa.int64(), mask=c["events"] == 0
            ),
            "end": pa.array(c["last_ts"], pa.int64(), mask=c["last_ts"] == NULL),
            "events": pa.array(c["events"]),
            "switches": pa.array(c["switches"]),
            "idle_ns": pa.array(idle),
            "busy_ns": pa.array(busy),
            "unknown_ns": pa.array(unknown),
        }
    )


def sync_share(w: Array, slices: Array, first: int) -> Array:
    """WF_SYNC per wakeup: 0 where its edge's waker rarely blocks soon after, else 255 (7.5).

    uint8[n]; 1 is never given here: a waker that blocks at once does not prove the flag.
    """
    out = np.full(len(w), 255, np.uint8)
    rows = np.flatnonzero((w["waker"] >= 0) & (w["waking"] != NULL) & (w["context"] == 0))
    done = (slices["end"] != NULL) & (slices["reason"] <= k.E_BLOCK)
    ends, tasks = slices["end"][done], slices["task"][done].astype(np.int64)
    if not len(rows) or not len(ends):
        return out
    span = int(max(ends.max(), w["waking"][rows].max())) - first + SYNC_WINDOW_NS + 2
    keys = np.sort(tasks * span + (ends - first))
    waker = w["waker"][rows].astype(np.int64)
    at = waker * span + (w["waking"][rows] - first)
    i = np.searchsorted(keys, at)
    gap = np.where(i < len(keys), keys[np.minimum(i, len(keys) - 1)] - at, span)
    dur = w["waker_dur"][rows]
    limit = np.where(dur > 0, np.minimum(SYNC_WINDOW_NS, 2 * dur), SYNC_WINDOW_NS)
    soon = gap <= limit
    edge = waker * (int(w["wakee"].max()) + 1) + w["wakee"][rows]
    _, which = np.unique(edge, return_inverse=True)
    n = np.bincount(which)
    share = np.bincount(which, weights=soon) / n
    out[rows[(share[which] < SYNC_SHARE) & (n[which] >= SYNC_MIN)]] = 0
    return out
