"""The state machine's arrays as Arrow tables of the contract."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import _timeline_state as k
from traceana import schema
from traceana._timeline_blocks import Columns
from traceana.parts import Cut, Held, Part, Rows

if TYPE_CHECKING:
    from traceana.timeline import Timeline, TimelineBuilder

__all__ = ["Raw", "make_part", "make_tables", "sync_share"]

NULL = k.NULL
Array = npt.NDArray[Any]

SYNC_WINDOW_NS = k.SYNC_WINDOW
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

    first = builder._first_ts if builder._first_ts is not None else 0
    last = max(builder._last_ts, first)
    state = builder.state()
    stat = bool(builder._G[0]["stat"])
    if builder._parts and builder._sink is not None:
        rows: Rows = builder._sink.rows()
        raw: Mapping[str, Array] = state
        if not whole_cpus:
            builder._sink.forget("idle_gaps")
    else:
        rows, raw = _held(builder, state, whole_cpus=whole_cpus)
    made = Timeline(
        tasks=_tasks(builder, state["tasks"], group, stat),
        rows=rows,
        issues=builder.issues,
        first_ts=first,
        last_ts=last,
        cpus=_cpus(state["cpus"], first, last, whole=whole_cpus),
        dur_source=schema.DurSource.STAT_RUNTIME if stat else schema.DurSource.SWITCHES,
        hz=builder.hz,
        kernel=builder.kernel,
        raw=raw,
    )
    if builder._parts and builder._sink is not None:
        made.study = builder._sink.study(made)
    return made


def _held(
    builder: TimelineBuilder, state: dict[str, Array], *, whole_cpus: bool
) -> tuple[Held, Raw]:
    """All rows, in memory and in order."""
    made = builder.take()
    if not whole_cpus:
        made["gaps"] = [made["gaps"][0][:0]]
    # Rows were numbered in the order of time; only a clock that steps back disturbs it.
    slices, _ = _in_order(made["slices"], ("start", "end"))
    wakeups, moved = _in_order(made["wakeups"], ("waking", "wakeup", "run"))
    gaps, _ = _in_order(made["gaps"], ("start", "end"))
    if moved is not None:
        for part in gaps:
            by = part["by"]
            by[by >= 0] = moved[by[by >= 0]]
    columns = {"slices": slices, "wakeups": wakeups, "gaps": gaps}
    return Held(_tables(builder, columns)), Raw(state, columns)


def _tables(builder: TimelineBuilder, columns: dict[str, list[Columns]]) -> dict[str, pa.Table]:
    g = builder._G[0]
    edges = builder.state()["edges"]
    rarely = (edges["n"] >= SYNC_MIN) & (edges["soon"] < SYNC_SHARE * edges["n"])
    stat, waits = bool(g["stat"]), bool(g["have_wakeup"])
    return {
        "slices": pa.concat_tables([_slices(part, stat) for part in columns["slices"]]),
        "wakeups": pa.concat_tables([_wakeups(part, rarely) for part in columns["wakeups"]]),
        "idle_gaps": pa.concat_tables([_gaps(part, waits=waits) for part in columns["gaps"]]),
    }


def make_part(builder: TimelineBuilder, number: int, begin_ts: int, cut: Cut) -> Part:
    """The part up to a cut; what hangs on the whole capture (sync_guess) is as known so far."""
    columns = builder.take(cut)
    moves = builder.take_moves()
    return Part(
        number, begin_ts, cut.ts, _tables(builder, columns), columns, moves, builder.unfinished(cut)
    )


class Raw(Mapping[str, Array]):
    """The rows behind the tables as structured arrays, made when asked for."""

    _TYPES: ClassVar = {"slices": k.SLICE, "wakeups": k.WAKE, "gaps": k.GAP}

    def __init__(self, made: dict[str, Any], columns: dict[str, list[Columns]]) -> None:
        self._made, self._columns = made, columns
        self._rows: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._columns:
            return np.asarray(self._made[name])
        if name not in self._rows:
            dtype = self._TYPES[name]
            self._rows[name] = np.concatenate([c.rows(dtype) for c in self._columns[name]])
        return self._rows[name]

    def fields(self, name: str, fields: Sequence[str]) -> dict[str, Array]:
        """Some fields only, without making whole rows of them."""
        if name in self._rows or name not in self._columns:
            return {f: self[name][f] for f in fields}
        return {f: np.concatenate([c[f] for c in self._columns[name]]) for f in fields}

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def _in_order(parts: list[Columns], times: tuple[str, ...]) -> tuple[list[Columns], Array | None]:
    """The parts in the order of the first known of their times, and (where rows moved) where to."""
    last = None
    for part in parts:
        key = _coalesced(part, times)
        if len(key) and ((last is not None and key[0] < last) or not _ascending(key)):
            break
        last = key[-1] if len(key) else last
    else:
        return parts, None
    whole = Columns.joined(parts, parts[0])
    order = np.argsort(_coalesced(whole, times), kind="stable")
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    sorted_ = whole[order]
    sorted_["id"][:] = np.arange(len(order))
    return [sorted_], back


def _ascending(key: Array) -> bool:
    return bool((key[1:] >= key[:-1]).all())


def _coalesced(part: Columns, times: tuple[str, ...]) -> Array:
    key = part[times[0]]
    for name in times[1:]:
        unknown = key == NULL
        if unknown.any():
            key = np.where(unknown, part[name], key)
    unknown = key == NULL
    return np.where(unknown, np.iinfo(np.int64).max, key) if unknown.any() else key


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
            "wakeups": _col(t["wakeups"] + _only_waking(builder, t), pa.int64()),
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


def _only_waking(builder: TimelineBuilder, t: Array) -> Array:
    """Wakings per task, where no sched_wakeup was recorded at all; else 0."""
    if int(schema.EventKind.WAKEUP) in builder._have:
        return np.zeros(len(t), np.int64)
    return np.asarray(t["wakings"])


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


def _slices(s: Columns, stat: bool) -> pa.Table:
    return _table(
        "slices",
        {
            "slice": _col(s["id"], pa.int64()),
            "task": _col(s["task"], pa.int32()),
            "cpu": _col(s["cpu"], pa.int32()),
            "start": _col(s["start"], pa.int64(), NULL),
            "end": _col(s["end"], pa.int64(), NULL),
            "runtime_ns": _col(s["runtime"] if stat else np.full(len(s), NULL), pa.int64(), NULL),
            "end_reason": _col(s["reason"], pa.uint8()),
            "state": _col(s["state"], pa.uint16(), 65535),
        },
    )


def _wakeups(w: Columns, rarely: Array) -> pa.Table:
    look_hi = np.where(w["mig"] != NULL, w["mig"], w["vis_hi"])
    # 1 is never given: a waker that blocks at once does not prove the flag (7.5).
    sync = np.full(len(w), 255, np.uint8)
    if rarely.any():
        sync[(w["edge"] >= 0) & rarely[np.maximum(w["edge"], 0)]] = 0

    def flag(name: str) -> pa.Array:
        return pa.array(w[name] == 1, pa.bool_(), mask=w[name] < 0)

    i32, i64, u8 = pa.int32(), pa.int64(), pa.uint8()
    return _table(
        "wakeups",
        {
            "wakeup": _col(w["id"], i64),
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


def _gaps(p: Columns, *, waits: bool) -> pa.Table:
    i64 = pa.int64()

    def waited(name: str) -> pa.Array:
        # Without sched_wakeup nobody is known to be queued between waking and running.
        return _col(p[name], i64) if waits else pa.nulls(len(p), i64)

    return _table(
        "idle_gaps",
        {
            "gap": _col(p["id"], i64),
            "cpu": _col(p["cpu"], pa.int32()),
            "start": _col(p["start"], i64, NULL),
            "end": _col(p["end"], i64, NULL),
            "cpu_idle_state": _col(p["idle_state"], pa.int32(), -1),
            "waited_llc_ns": waited("llc"),
            "waited_any_ns": waited("any"),
            "waited_busy_llc_ns": waited("busy"),
            "ended_by": _col(p["by"], i64, -1),
        },
    )


def _cpus(c: Array, first: int, last: int, *, whole: bool) -> pa.Table:
    """Per CPU: its window and how much of the span it was idle, busy, or unknown.

    Columns: cpu, begin, end, events, switches, idle_ns, busy_ns, unknown_ns (they add up to the
    capture's span).
    """
    n = len(c)
    begin = np.where(c["begin"] != NULL, c["begin"], first)
    idle, busy = (c[name] if whole else np.zeros(n, np.int64) for name in ("idle_ns", "busy_ns"))
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
