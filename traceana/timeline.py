"""Events to tasks, slices, wakeups and idle gaps, in one pass.

:class:`TimelineBuilder` takes event batches in order (:meth:`~TimelineBuilder.feed`) and gives a
:class:`Timeline` at the end. All state lives in arrays between batches, so how the stream is
split changes nothing. The state machine itself is ``_timeline_kernels.advance``; the rules it
follows are sections 1 to 3 and 7 of the kernel semantics.

Definitions: a task *waits* when it is runnable but not running; *idle* of a CPU means that its
idle task is current, by sched_switch; a CPU without a switch record runs whoever its events name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import _timeline_state as k
from traceana import schema
from traceana._place_kernels import close_gap, close_slice, take_current, task_of
from traceana._timeline_blocks import Blocks, Columns
from traceana._timeline_kernels import advance
from traceana._wake_kernels import give_up, index_edges
from traceana.columns import EventColumns, NameChange
from traceana.families import group_names
from traceana.issues import IssueLog
from traceana.parts import Cut, Rows, Sink
from traceana.start_state import StartState
from traceana.thresholds import kernel_number

__all__ = ["Timeline", "TimelineBuilder", "Traits", "kernel_number", "survey"]

NULL = k.NULL
#: CPU ids above this are not believed (a damaged file could ask for any amount of memory).
CPU_LIMIT = 65536
#: Rows that may become final before they are put in their places.
OUT_ROWS = 1 << 13
_PER_CPU_KTHREAD = re.compile(
    rb"^(kworker|ksoftirqd|migration|cpuhp|rcuc|ktimers|irq_work|backlog_napi|watchdog|idle_inject)/\d+(:|$)"
)
_REPAIR_TEXT = {
    "lost_wakeup": "a task ran without having been woken: its wakeup was not recorded",
    "moved_without_migrate": "a queued task ran on another CPU without sched_migrate_task",
    "lost_switch": "a CPU ran another task than the one switched in: a switch is missing",
    "false_blocking": "a switch-out said 'asleep' but the sleep was called off (5.18 to 6.15)",
    "false_running": "a switch-out said 'running' but the task slept (5.8 to 5.17)",
    "redundant_wakeup": "wakeups of tasks that were already runnable: not latencies",
    "clock_skew": "effects stamped before their cause: durations set to 0",
    "wake_repeated": "a task was woken twice without running in between; maybe lost events",
    "pid_out_of_range": "events with a pid above the kernel's limit, ignored",
    "ran_on_two_cpus": "a task was seen running on two CPUs: the later switch-in is believed",
}


@dataclass(repr=False)
class Timeline:
    """The tables of one capture, and the arrays behind them.

    ``first_ts`` and ``last_ts`` are the capture's; ``cpus`` says per CPU from when to when its data
    go and how much of the span it was idle, busy, or unknown. ``slices``, ``wakeups`` and
    ``idle_gaps`` come from ``rows``: they lie in memory, or on disk where the capture is long; then
    each use of such a property maps the file anew, so keep no more of it than is needed.
    """

    tasks: pa.Table
    rows: Rows
    issues: IssueLog
    first_ts: int
    last_ts: int
    cpus: pa.Table
    dur_source: schema.DurSource
    hz: int
    kernel: int
    #: Structured arrays of ``_timeline_state`` (WAKE, SLICE, GAP, MOVE, TASK), for later stages; of
    #: the window of ``study`` only where the rows lie on disk.
    raw: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict, repr=False)
    #: A stretch of a long capture whose rows are in memory; None where all are.
    study: Timeline | None = None

    @property
    def slices(self) -> pa.Table:
        """The ``slices`` table."""
        return self.rows.table("slices")

    @property
    def wakeups(self) -> pa.Table:
        """The ``wakeups`` table."""
        return self.rows.table("wakeups")

    @property
    def idle_gaps(self) -> pa.Table:
        """The ``idle_gaps`` table."""
        return self.rows.table("idle_gaps")

    def __repr__(self) -> str:
        told = (
            f"{n} {getattr(self, n).num_rows:,}"
            for n in ("tasks", "slices", "wakeups", "idle_gaps")
        )
        return f"<traceana.Timeline: {', '.join(told)}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{name}</td><td>{getattr(self, name).num_rows:,}</td></tr>"
            for name in ("tasks", "slices", "wakeups", "idle_gaps")
        )
        return f"<table><caption>timeline</caption>{rows}</table>"


@dataclass(frozen=True)
class Traits:
    """What the first events of a capture tell of all of it.

    ``wakings``, ``wakeups``: sched_waking, sched_wakeup are recorded. ``flush_ns``: shortest paths
    onto a wakelist, behind the switch to the idle task and behind a switch to another one; 0 =
    not seen.
    """

    wakings: bool
    wakeups: bool
    flush_ns: tuple[int, ...]


def survey(events: EventColumns, *, kernel: int = 0, limit: int = 200_000) -> Traits:
    """Learn the traits of a capture from its first batch."""
    builder = TimelineBuilder(kernel=kernel)
    builder.feed(events.take(slice(0, limit)))
    g = builder._G[0]
    return Traits(
        wakings=bool(g["have_waking"]),
        wakeups=bool(g["have_wakeup"]),
        flush_ns=tuple(int(ns) for ns in g["flush"]),
    )


def _grown(array: npt.NDArray[Any], used: int, room: int) -> npt.NDArray[Any]:
    if used + room <= len(array):
        return array
    out = np.empty(max(len(array) * 2, used + room), array.dtype)
    out[:used] = array[:used]
    return out


class TimelineBuilder:
    """Feeds batches of events to the state machine.

    Parameters
    ----------
    llc : int32[n], optional
        Dense LLC index per CPU; CPUs beyond it (or all, when None) share LLC 0.
    kernel : int
        As :func:`kernel_number` gives it; 0 = not known, taken as 6.1.
    hz : int, optional
        Ticks per second; 250 when not known.
    start : StartState, optional
    on_cpu_eps_ns, on_cpu_early_ns : int
        A wakee may be on its CPU still (kind on_cpu) only if the waking is no later than
        ``on_cpu_eps_ns`` after its blocking switch-out and no earlier than ``on_cpu_early_ns``
        after its dequeue, i.e. its last sched_stat_runtime (sections 7.8-1 and 7.8-2; the rest
        of the distinction is in ``_timeline_kernels.never_decided``).
    traits : Traits, optional
        What :func:`survey` learnt of this capture; else it is learnt on the way.
    leave_ns : int
        For samples of dur_avg made from switches: what lies between a task's dequeue and its
        switch record more than between an enqueue on an idle CPU and its sched_wakeup. One
        event's cost where the capture holds sched_stat_runtime at that place but it is ignored.
    sink : Sink, optional
        Takes the rows part by part once there are more than it wants to see in memory.
    rows : False where only ``tasks`` and ``cpus`` are wanted: slices, wakeups and gaps are then
        not kept.
    """

    def __init__(
        self,
        *,
        llc: npt.NDArray[np.int32] | None = None,
        kernel: int = 0,
        hz: int | None = None,
        start: StartState | None = None,
        on_cpu_eps_ns: int = 1000,
        on_cpu_early_ns: int = -500,
        traits: Traits | None = None,
        leave_ns: int = 0,
        workload: Sequence[tuple[str, str]] = (),
        sink: Sink | None = None,
        rows: bool = True,
    ) -> None:
        self.issues = IssueLog()
        self._rows = rows
        self._sink = sink
        self._parts = 0
        self._cut = Cut(0, 0, 0, NULL)
        self._begin_ts = NULL
        self._llc = np.zeros(0, np.int32) if llc is None else np.asarray(llc, np.int32)
        n_llc = int(self._llc.max()) + 1 if len(self._llc) else 1
        self._start = start
        self._workload = tuple(workload)
        self.hz = hz or (start.hz if start and start.hz else 0) or 250
        self.kernel = kernel
        self._T = np.empty(1 << 10, k.TASK)
        self._L = np.empty(1 << 10, k.SLICE)
        self._W = np.empty(1 << 10, k.WAKE)
        self._M = np.empty(1 << 12, k.MOVE)
        self._E = np.empty(1 << 10, k.EDGE)
        self._S = np.empty(1 << 10, k.PENDING)
        self._edge_of = np.zeros(1 << 11, np.int32)
        self._C = np.empty(0, k.CPU)
        self._P = np.empty(0, k.GAP)
        self._outL, self._outW, self._outP = (
            np.empty(OUT_ROWS, t) for t in (k.SLICE, k.WAKE, k.GAP)
        )
        self._slices, self._wakes, self._gaps = Blocks(k.SLICE), Blocks(k.WAKE), Blocks(k.GAP)
        # Slices and gaps of which neither end was seen: they stand last.
        self._timeless: list[npt.NDArray[Any]] = []
        self._timeless_gaps: list[npt.NDArray[Any]] = []
        self._Q = np.zeros(n_llc + 1, k.GROUP)
        self._G = np.zeros(1, k.GLOBAL)
        self._G["kver"] = kernel or 6001
        self._G["hz"] = self.hz
        self._G["whole_from"] = NULL
        self._G["w_free"] = self._G["p_free"] = -1
        self._G["eps"] = on_cpu_eps_ns
        self._G["eps_lo"] = on_cpu_early_ns
        self._G["leave"] = leave_ns
        if traits is not None:
            self._G["have_waking"] = traits.wakings
            self._G["have_wakeup"] = traits.wakeups
            self._G["flush"] = traits.flush_ns
            self._G["flushes"] = [k.LEARN if ns else 0 for ns in traits.flush_ns]
        # Zero pages cost nothing until a pid touches them.
        self._pid_map = np.zeros(k.PID_LIMIT + 1, np.int32)
        self._pin_from = np.zeros(k.PID_LIMIT + 1, np.int64)
        self._pin_to = np.zeros(k.PID_LIMIT + 1, np.int64)
        self._seed_of = np.zeros(k.PID_LIMIT + 1 if start else 0, np.int32)
        self._seeds = self._make_seeds()
        self._names: dict[int, list[tuple[int | None, bytes]]] = {}
        self._tgid: dict[int, int] = {}
        self._first_ts: int | None = None
        self._last_ts = 0
        self._have: set[int] = set()

    def _make_seeds(self) -> npt.NDArray[Any]:
        rows = [t for t in self._start.tasks if 0 < t.pid <= k.PID_LIMIT] if self._start else []
        seeds = np.zeros(max(len(rows), 1), k.SEED)
        for i, t in enumerate(rows):
            s = seeds[i]
            s["pid"] = t.pid
            if t.dur_avg_ns is not None:
                s["dur"] = t.dur_avg_ns
                s["has"] |= 1
            if t.wakee_flips is not None:
                s["flips"] = t.wakee_flips
                s["flip_ts"] = NULL if t.wakee_flip_decay_ts is None else t.wakee_flip_decay_ts
                s["last_pid"] = -2 if t.last_wakee is None else t.last_wakee
                s["has"] |= 2
            self._seed_of[t.pid] = i + 1
        return seeds

    def _room_for_cpus(self, highest: int) -> None:
        have = len(self._C)
        if highest < have:
            return
        n = max(highest + 1, len(self._llc))
        grown = np.zeros(n, k.CPU)
        grown[:have] = self._C
        new = grown[have:]
        for name in ("curr", "idle_task", "vis"):
            new[name] = -1
        for name in ("last_ts", "first_ts", "begin", "idle_seen"):
            new[name] = NULL
        known = self._llc[have:n]
        new["llc"][: len(known)] = known
        self._C = grown
        gaps = np.zeros(n, k.GAP)
        gaps[:have] = self._P
        self._P = gaps

    def _begin(self, ts: int) -> None:
        self._first_ts = ts
        self._Q["last_ts"] = ts
        start = self._start
        g = self._G[0]
        g["first"] = ts
        g["phase"] = ts
        if start is None:
            return
        if start.at_ts is not None:
            g["phase"] = start.at_ts
        if start.jiffies_now is not None:
            g["jiffies"] = start.jiffies_now
        known = [cpu for cpu in start.running if 0 <= cpu < CPU_LIMIT]
        if known:
            self._room_for_cpus(max(known))
        for cpu, pid in start.running.items():
            if not 0 <= cpu < CPU_LIMIT:
                continue
            self._room_for_tasks()
            task = task_of(
                self._T, self._C, self._G, pid, cpu, ts, self._pid_map, self._seeds, self._seed_of
            )
            take_current(
                self._T, self._C, self._Q, self._P, self._L, self._outL, self._outP, self._G,
                cpu, task, ts,
            )  # fmt: skip

    def feed(self, events: EventColumns, names: Iterable[NameChange] = ()) -> None:
        """Advance over one batch (events in the order of time) and the names first seen in it."""
        for change in names:
            if change.tgid is not None:
                self._tgid[change.pid] = change.tgid
            if change.comm is None:
                continue
            self._names.setdefault(change.pid, []).append((change.ts, change.comm))
            if 0 < change.pid <= k.PID_LIMIT:
                self._pin(change.pid, change.ts, bool(_PER_CPU_KTHREAD.match(change.comm)))
        n = len(events)
        if not n:
            return
        highest = int(max(events.cpu.max(), events.cpu_to.max(), events.cpu_from.max()))
        if highest >= CPU_LIMIT:
            keep = (
                (events.cpu < CPU_LIMIT)
                & (events.cpu_to < CPU_LIMIT)
                & (events.cpu_from < CPU_LIMIT)
            )
            self.issues.add(
                "timeline",
                "cpu_out_of_range",
                f"events that name a CPU above {CPU_LIMIT - 1}, ignored",
                count=int(n - keep.sum()),
            )
            self.feed(events.take(keep))
            return
        if self._first_ts is None:
            self._room_for_cpus(max(highest, 0))
            self._begin(int(events.ts[0]))
        self._room_for_cpus(highest)
        self._last_ts = max(self._last_ts, int(events.ts.max()))
        self._have.update(np.flatnonzero(np.bincount(events.kind, minlength=32)).tolist())
        at = 0
        # One layout, so that the kernel is compiled once.
        arrays: Any = [np.require(a, requirements=["C", "W"]) for a in events.arrays()[:-1]]
        run: Any = advance
        while True:
            at = run(
                at, *arrays,
                self._T, self._C, self._Q, self._G, self._L, self._W, self._P, self._M,
                self._outL, self._outW, self._outP, self._E, self._S, self._edge_of,
                self._pid_map, self._seeds, self._seed_of, self._pin_from, self._pin_to,
            )  # fmt: skip
            self._flush()
            if at >= n:
                break
            self._make_room()
        if self._sink is not None:
            self._hand_over(self._sink)

    def _hand_over(self, sink: Sink) -> None:
        """Give the sink the rows up to the last cut, and cut here, when enough came since.

        Rows stay for one more part, so that all but the longest are final by then and in order.
        """
        g = self._G[0]
        now = Cut(int(g["n_wake"]), int(g["n_slice"]), int(g["n_gap"]), self._last_ts)
        if not self._parts and now.rows <= sink.hold_rows:
            return
        if now.rows - self._cut.rows < sink.part_rows:
            return
        if self._cut.rows:
            self._give(sink, self._cut)
        self._cut = now

    def _give(self, sink: Sink, cut: Cut) -> None:
        from traceana._timeline_tables import make_part

        begin = self._begin_ts if self._begin_ts != NULL else (self._first_ts or 0)
        sink.take(make_part(self, self._parts, begin, cut))
        self._begin_ts = cut.ts
        self._parts += 1

    def unfinished(self, cut: Cut) -> dict[str, npt.NDArray[Any]]:
        """Copies of the rows that began before a cut and are not over."""
        g = self._G[0]
        wakes = self._W[: g["w_top"]]
        slices = self._L[: g["n_task"]]
        return {
            "wakeups": wakes[(wakes["used"] == 1) & (wakes["id"] < cut.wakes)].copy(),
            "slices": slices[
                (self._T["running"][: g["n_task"]] == 1) & (slices["id"] < cut.slices)
            ].copy(),
            "gaps": self._P[(self._C["gap"] == 1) & (self._P["id"] < cut.gaps)].copy(),
        }

    def _room_for_tasks(self) -> None:
        used = int(self._G[0]["n_task"])
        self._T = _grown(self._T, used, 256)
        if len(self._L) < len(self._T):
            self._L = _grown(self._L, used, len(self._T) - used)

    def _make_room(self) -> None:
        g = self._G[0]
        self._room_for_tasks()
        self._W = _grown(self._W, int(g["w_top"]), 256)
        self._M = _grown(self._M, int(g["n_move"]), 1024)
        self._S = _grown(self._S, int(g["p_top"]), 256)
        if 2 * g["n_edge"] + 4 > len(self._edge_of):
            self._E = _grown(self._E, int(g["n_edge"]), len(self._E))
            self._edge_of = np.zeros(2 * len(self._edge_of), np.int32)
            index_edges(self._E, self._edge_of, self._G)
        if len(self._outW) < 2 * len(self._W):
            self._outW = np.empty(4 * len(self._W), k.WAKE)

    def _flush(self) -> None:
        """Finished rows to their places in the blocks."""
        g = self._G[0]
        if not self._rows:
            g["out_wake"] = g["out_slice"] = g["out_gap"] = 0
            return
        self._wakes.put(self._outW[: g["out_wake"]])
        for out, count, blocks, timeless in (
            (self._outL, "out_slice", self._slices, self._timeless),
            (self._outP, "out_gap", self._gaps, self._timeless_gaps),
        ):
            rows = out[: g[count]]
            without = rows["id"] < 0
            if without.any():
                timeless.append(rows[without])
                rows = rows[~without]
            blocks.put(rows)
            g[count] = 0
        g["out_wake"] = 0

    def _pin(self, pid: int, ts: int | None, pinned: bool) -> None:
        since = NULL if ts is None else ts
        if pinned:
            if self._pin_from[pid] == 0 or self._pin_to[pid] != 0:
                self._pin_from[pid], self._pin_to[pid] = since or 1, 0
        elif self._pin_from[pid] != 0 and self._pin_to[pid] == 0:
            self._pin_to[pid] = since or 1

    def finish(self, *, whole_cpus: bool = True) -> Timeline:
        """Close what is open at the window's end and make the tables.

        Parameters
        ----------
        whole_cpus : False where the capture shows some tasks only: then no time of a CPU is known
            to be idle or busy, and there are no idle gaps.
        """
        from traceana._timeline_tables import make_tables

        g = self._G[0]
        self._make_room()
        give_up(self._T, self._G, self._W, self._outW)
        for idle in np.flatnonzero(self._C["gap"]).tolist():
            self._end_at_last(idle, "idle_ns", int(self._P[idle]["start"]), moved=False)
            close_gap(self._C, self._Q, self._P, self._outP, self._G, idle, NULL, self._last_ts, -1)
            self._flush()
        for task in np.flatnonzero(self._T["running"][: g["n_task"]]).tolist():
            row = self._L[task]
            cpu = int(row["cpu"])
            if cpu >= 0 and self._C[cpu]["curr"] == task:
                self._end_at_last(
                    cpu, "busy_ns", int(row["start"]), moved=bool(self._T[task]["seen"])
                )
            close_slice(self._T, self._C, self._L, self._outL, self._G, task, NULL, k.E_CUT, 65535)
            self._flush()
        self._flush()
        for rows, numbered, blocks in (
            (self._timeless, "n_slice", self._slices),
            (self._timeless_gaps, "n_gap", self._gaps),
        ):
            for part in rows:
                part["id"] = np.arange(int(g[numbered]), int(g[numbered]) + len(part))
                g[numbered] += len(part)
                blocks.put(np.ascontiguousarray(part))
            rows.clear()
        if self._parts and self._sink is not None:
            self._give(self._sink, self._cut)
            end = Cut(int(g["n_wake"]), int(g["n_slice"]), int(g["n_gap"]), self._last_ts)
            self._give(self._sink, end)
        for i, name in enumerate(k.REPAIRS):
            count = int(g["repairs"][i])
            if count:
                self.issues.add("timeline", name, _REPAIR_TEXT[name], count=count)
        return make_tables(self, group_names, whole_cpus=whole_cpus)

    def _end_at_last(self, cpu: int, what: str, start: int, *, moved: bool) -> None:
        """What is current at the window's end lasted until then; since when, if that is known."""
        row = self._C[cpu]
        if start == NULL:
            if row["began"] or row["ended"] or moved:
                return
            start = int(row["begin"]) if row["begin"] != NULL else (self._first_ts or 0)
        row[what] += max(self._last_ts - start, 0)

    def take(self, cut: Cut | None = None) -> dict[str, list[Columns]]:
        """The rows with numbers below those of a cut (all when None), each once."""
        g = self._G[0]
        end = cut or Cut(int(g["n_wake"]), int(g["n_slice"]), int(g["n_gap"]), self._last_ts)
        return {
            "slices": self._slices.take(end.slices),
            "wakeups": self._wakes.take(end.wakes),
            "gaps": self._gaps.take(end.gaps),
        }

    def take_moves(self) -> npt.NDArray[Any]:
        """The pulls of queued tasks since the last call."""
        n = int(self._G[0]["n_move"])
        self._G[0]["n_move"] = 0
        return self._M[:n].copy()

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of tasks, CPUs, moves and edges, trimmed to what is used."""
        g = self._G[0]
        return {
            "tasks": self._T[: g["n_task"]],
            "moves": self._M[: g["n_move"]],
            "cpus": self._C,
            "edges": self._E[: g["n_edge"]],
        }
