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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import _timeline_state as k
from traceana import schema
from traceana._place_kernels import close_gap, take_current, task_of
from traceana._timeline_kernels import advance
from traceana._wake_kernels import give_up
from traceana.columns import EventColumns, NameChange
from traceana.issues import IssueLog
from traceana.start_state import StartState
from traceana.thresholds import kernel_number
from traceana.workload import group_names

__all__ = ["Timeline", "TimelineBuilder", "Traits", "kernel_number", "survey"]

NULL = k.NULL
#: CPU ids above this are not believed (a damaged file could ask for any amount of memory).
CPU_LIMIT = 65536
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

    ``windows`` maps CPU to (begin, end) of its data in ns; ``first_ts`` and ``last_ts`` are the
    capture's. ``cpus_seen`` are CPUs with at least one event; ``idle_ns`` and ``busy_ns`` add up,
    with ``unknown_ns``, to each CPU's window times the capture's span.
    """

    tasks: pa.Table
    slices: pa.Table
    wakeups: pa.Table
    idle_gaps: pa.Table
    issues: IssueLog
    first_ts: int
    last_ts: int
    cpus: pa.Table
    dur_source: schema.DurSource
    hz: int
    kernel: int
    #: Structured arrays of ``_timeline_kernels`` (WAKE, SLICE, GAP, MOVE, TASK), for later stages.
    raw: dict[str, npt.NDArray[Any]] = field(default_factory=dict, repr=False)

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
    ) -> None:
        self.issues = IssueLog()
        self._llc = np.zeros(0, np.int32) if llc is None else np.asarray(llc, np.int32)
        n_llc = int(self._llc.max()) + 1 if len(self._llc) else 1
        self._start = start
        self._workload = tuple(workload)
        self.hz = hz or (start.hz if start and start.hz else 0) or 250
        self.kernel = kernel
        self._T = np.empty(1 << 12, k.TASK)
        self._L = np.empty(1 << 16, k.SLICE)
        self._W = np.empty(1 << 16, k.WAKE)
        self._P = np.empty(1 << 16, k.GAP)
        self._M = np.empty(1 << 12, k.MOVE)
        self._C = np.empty(0, k.CPU)
        self._Q = np.zeros(n_llc + 1, k.GROUP)
        self._G = np.zeros(1, k.GLOBAL)
        self._G["kver"] = kernel or 6001
        self._G["hz"] = self.hz
        self._G["whole_from"] = NULL
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
        for name in ("curr", "idle_task", "gap", "vis"):
            new[name] = -1
        for name in ("last_ts", "first_ts", "begin", "idle_seen"):
            new[name] = NULL
        known = self._llc[have:n]
        new["llc"][: len(known)] = known
        self._C = grown

    def _begin(self, ts: int) -> None:
        self._first_ts = ts
        self._Q["last_ts"] = ts
        start = self._start
        g = self._G[0]
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
            self._T = _grown(self._T, int(g["n_task"]), 1024)
            task = task_of(
                self._T, self._C, self._G, pid, cpu, ts, self._pid_map, self._seeds, self._seed_of
            )
            take_current(self._T, self._C, self._Q, self._P, self._L, self._G, cpu, task, ts)

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
                self._pid_map, self._seeds, self._seed_of, self._pin_from, self._pin_to,
            )  # fmt: skip
            if at >= n:
                return
            g = self._G[0]
            self._T = _grown(self._T, int(g["n_task"]), 1024)
            self._L = _grown(self._L, int(g["n_slice"]), 1024)
            self._W = _grown(self._W, int(g["n_wake"]), 1024)
            self._P = _grown(self._P, int(g["n_gap"]), 1024)
            self._M = _grown(self._M, int(g["n_move"]), 1024)

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
        W = self._W[: g["n_wake"]]
        still = W["open"] == 1
        W["quality"][still] |= np.uint16(schema.Quality.CENSORED_END)
        give_up(self._T, self._G, self._W)
        for cpu in np.flatnonzero(self._C["gap"] >= 0):
            close_gap(self._C, self._Q, self._P, int(cpu), NULL, self._last_ts, -1)
        for i, name in enumerate(k.REPAIRS):
            count = int(g["repairs"][i])
            if count:
                self.issues.add("timeline", name, _REPAIR_TEXT[name], count=count)
        return make_tables(self, group_names, whole_cpus=whole_cpus)

    # What make_tables needs; arrays are trimmed to what is used.
    def _used(self) -> dict[str, npt.NDArray[Any]]:
        g = self._G[0]
        return {
            "tasks": self._T[: g["n_task"]],
            "slices": self._L[: g["n_slice"]],
            "wakeups": self._W[: g["n_wake"]],
            "gaps": self._P[: g["n_gap"]],
            "moves": self._M[: g["n_move"]],
            "cpus": self._C,
        }
