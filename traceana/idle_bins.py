"""Where idle time goes: each nanosecond of each CPU's idle time in one bin (section 10.2).

Definitions
-----------
A task *waits* while it is runnable and does not run. It is *on its way* while the CPU on whose
queue it stands is idle, which is a normal idle exit; it is *stuck* when that CPU runs another
task, or idles although the task stands there (its wait began by a switch-out in R, or the CPU
stays idle for more than :data:`LONG_NS`).

Each stuck task stands for one idle CPU at a time, never for two: for the one whose last task sleeps
until the stuck one wakes it, if there is such a CPU (*chain of partners*), else for one of its LLC,
else for one of another. The bins of the idle CPUs follow, the first that holds:

* ``DOUBLE_BOOKING``: stands for it the victim of a strict double booking, in its extra delay;
* ``LATE_BOOKING``: the victim of a late one;
* ``ON_ITS_WAY``: the CPU is booked: its own next task is queued, or put on its wakelist;
* ``PINNED``: stands for it a task that may run on its CPU only, by its name;
* ``THROTTLED``: one that is held back by cpu.max (see ``_idle_bins_throttle``);
* ``PLACED``: one that a wakeup put behind a running task while this CPU was idle;
* ``MIGRATION_COST``: one that was there when the CPU went idle, and hot (section 8.1);
* ``NEWIDLE_REFUSED``: one that was there then, and not hot;
* ``UNKNOWN``: one of which none of this can be said, e.g. preempted while this CPU was idle;
* ``OTHER_LLC``: one of another LLC;
* ``CHAIN``: none, but its last task sleeps until a stuck one wakes it, perhaps through others;
* ``IO``, ``TIMER``: none, and its last task sleeps in D, or until an interrupt wakes it;
* ``NOBODY``: nobody waits anywhere; ``SURPLUS``: all who wait stand for other CPUs, or are on
  their way.

So the ``DOUBLE_BOOKING`` bins add up to the upper bound of attributable idle time, the integral of
min(victims, idle CPUs). Nothing in the events tells of steal time, core scheduling or sched_ext:
``STEAL`` and ``CORE_SCHED`` stay empty, what they cost is in ``UNKNOWN``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import _idle_bins_state as s
from traceana import schema
from traceana._idle_bins_kernels import sweep
from traceana._idle_bins_rows import Rows, rows_of, victims_of
from traceana._idle_bins_throttle import Throttling, throttled
from traceana.parts import Held
from traceana.thresholds import MIGRATION_COST_NS
from traceana.topology import as_arrays

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = ["LONG_NS", "SHORT_NS", "BinChange", "IdleAccount", "LlcLoad", "account", "differences"]

Array = npt.NDArray[Any]

#: A CPU that idles for longer with a task on its queue is not just waking up, ns.
LONG_NS = 1_000_000
#: Gaps shorter than these are counted, ns.
SHORT_NS = (50_000, 100_000, 500_000)
#: Waits on idle CPUs that are looked at for throttling.
_MOST_HELD = 1 << 16


@dataclass(frozen=True)
class LlcLoad:
    """One LLC over the span, time-weighted.

    ``idle_cpus``, ``waiting``, ``stuck``: mean numbers of idle CPUs, of waiting tasks, and of those
    of them that were stuck; ``both_ns``: how long there were idle CPUs and stuck tasks at once (the
    work-conservation gap), ``gap_ns``: the same, times the smaller of their numbers.
    """

    llc: int
    cpus: int
    idle_cpus: float
    waiting: float
    stuck: float
    both_ns: int
    gap_ns: int


@dataclass(frozen=True)
class IdleAccount:
    """Where the idle time of a timeline went.

    ``table``: ``schema.IDLE_BINS``, no row for a CPU that was never idle; ``collisions``: the
    table that was given, with hops and attributable time; ``attributable_lo_ns`` and
    ``attributable_hi_ns``: their sums. ``span_ns`` and ``cpus`` (with events): what the rates of
    :func:`differences` are over. ``gaps``, ``shorter`` (per SHORT_NS): numbers of idle gaps;
    ``pullable``: gaps that a newidle pull could have filled (when the CPU went idle a task that may
    run there was stuck in its LLC), ``pullable_hot``: those of them where each such task was hot.
    ``unplaced_ns``: idle time that no gap tells, in UNKNOWN; 0 but for damaged captures.
    ``assumptions``, ``missing``: what had to be assumed, and what the capture lacks.
    """

    table: pa.Table
    collisions: pa.Table
    attributable_lo_ns: int
    attributable_hi_ns: int
    span_ns: int
    cpus: int
    llcs: list[LlcLoad]
    gaps: int
    shorter: dict[int, int]
    pullable: int
    pullable_hot: int
    migration_cost_ns: int
    throttling: Throttling | None = None
    unplaced_ns: int = 0
    assumptions: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    #: int64[cuts + 1, bins]: ns per stretch between the cuts, if any were asked for. A gap that is
    #: open at a cut may be told in the next stretch.
    by_time: Array | None = None

    @property
    def bins_ns(self) -> dict[schema.IdleBin, int]:
        """Idle time per bin, of all CPUs; all bins, the empty ones too."""
        out = dict.fromkeys(schema.IdleBin, 0)
        for b, ns in zip(
            self.table.column("bin").to_pylist(), self.table.column("ns").to_pylist(), strict=True
        ):
            out[schema.IdleBin(b)] += ns
        return out

    @property
    def idle_ns(self) -> int:
        return int(self.table.column("ns").to_numpy().sum())


def account(
    timeline: Timeline,
    collisions: pa.Table,
    *,
    topology: pa.Table,
    migration_cost_ns: int = MIGRATION_COST_NS,
    pinned: Array | None = None,
    cuts: Array | None = None,
) -> IdleAccount:
    """Bin the idle time of a timeline.

    Parameters
    ----------
    timeline : of a capture with sched_wakeup; without, all idle time is of unknown use
    collisions : ``schema.COLLISIONS``, as ``bookings.find`` makes it
    topology : ``schema.TOPOLOGY``
    migration_cost_ns : sysctl_sched_migration_cost
    pinned : bool[tasks], tasks that may run on one CPU only, where it is known; per-CPU kernel
        threads are known by their names
    cuts : int64[k], ascending; idle time is told apart between them, too (``by_time``)
    """
    n_cpus = timeline.cpus.num_rows
    rows = rows_of(timeline)
    told = timeline.cpus.column("idle_ns").to_numpy()
    ns = np.zeros((n_cpus, s.N_BINS), np.int64)
    run = rows.wakes[9]
    events, victims, first = victims_of(collisions, run)
    by_time = None if cuts is None else np.zeros((len(cuts) + 1, s.N_BINS), np.int64)
    sweep_ = _Sweep(timeline, rows, events, len(victims), topology, migration_cost_ns, pinned)
    assumptions, missing = [], []
    throttling = None
    unplaced = np.zeros(n_cpus, np.int64)
    if timeline.rows.table("wakeups").num_rows and not (rows.wakes[2] != s.NULL).any():
        missing.append(
            "no sched_wakeup: who was runnable while a CPU idled is not known, so all idle time is "
            "of unknown use"
        )
        ns[:, schema.IdleBin.UNKNOWN] = told
    elif not timeline.rows.table("wakeups").num_rows:
        missing.append("no wakeups: who was runnable while a CPU idled is not known")
        ns[:, schema.IdleBin.UNKNOWN] = told
    else:
        sweep_.run(ns, None, cuts, by_time)
        throttling = throttled(sweep_.waits_on_idle(), timeline)
        if throttling is not None:
            ns[:] = 0
            sweep_.run(ns, throttling.tasks, cuts, by_time)
        # What gaps do not tell, or tell twice, after losses and where clocks contradict each other.
        unplaced = told - ns.sum(axis=1)
        ns[:, schema.IdleBin.UNKNOWN] += unplaced
    if not isinstance(timeline.rows, Held):
        assumptions.append(
            "the capture is long: moves of waiting tasks are only known where they ran"
        )
    g_start, g_end = rows.gaps[1], rows.gaps[2]
    length = (g_end - g_start)[g_end > g_start]
    at = np.argwhere(ns != 0)
    table = pa.table(
        [
            pa.array(at[:, 0], pa.int32()),
            pa.array(at[:, 1], pa.uint8()),
            pa.array(ns[at[:, 0], at[:, 1]], pa.int64()),
        ],
        schema=schema.IDLE_BINS.schema,
    )
    lo, hi = sweep_.lower_ns, sweep_.upper_ns
    return IdleAccount(
        table=table,
        collisions=_followed(collisions, first, sweep_.hops, lo, hi),
        attributable_lo_ns=int(lo.sum()),
        attributable_hi_ns=int(hi.sum()),
        span_ns=timeline.last_ts - timeline.first_ts,
        cpus=int((timeline.cpus.column("events").to_numpy() > 0).sum()),
        llcs=sweep_.loads(timeline.last_ts, max(timeline.last_ts - timeline.first_ts, 1)),
        gaps=len(length),
        shorter={limit: int((length < limit).sum()) for limit in SHORT_NS},
        pullable=int(sweep_.G["pull"][0]),
        pullable_hot=int(sweep_.G["pull_hot"][0]),
        migration_cost_ns=migration_cost_ns,
        throttling=throttling,
        unplaced_ns=int(np.abs(unplaced).sum()),
        assumptions=assumptions,
        missing=missing,
        by_time=by_time,
    )


class _Sweep:
    """The kernel's state over all rows of a timeline."""

    def __init__(
        self,
        timeline: Timeline,
        rows: Rows,
        events: tuple[Array, ...],
        n_victims: int,
        topology: pa.Table,
        migration_cost_ns: int,
        pinned: Array | None,
    ) -> None:
        self._rows, self._events, self._cost = rows, events, migration_cost_ns
        self._first, self._last = timeline.first_ts, timeline.last_ts
        self._n_tasks, self._n_cpus = timeline.tasks.num_rows, timeline.cpus.num_rows
        self._pinned = rows.pinned.copy()
        if pinned is not None:
            n = min(len(pinned), self._n_tasks)
            self._pinned[:n] |= pinned[:n]
        self._topology = as_arrays(topology, self._n_cpus)
        self.upper_ns, self.lower_ns = np.zeros(n_victims, np.int64), np.zeros(n_victims, np.int64)
        self.hops = np.zeros(n_victims, np.int32)
        self._reset()

    def _reset(self) -> None:
        t = self._topology
        self.T = np.zeros(max(self._n_tasks, 1), s.TASK)
        for name in ("cpu", "last_cpu", "row", "victim", "head"):
            self.T[name] = -1
        self.T["head"][: self._n_tasks] = self._rows.head
        self.T["last_end"] = s.NULL
        self.T["pinned"][: self._n_tasks] = self._pinned
        self.C = np.zeros(self._n_cpus, s.CPU)
        for name in ("task", "gap", "bin", "root"):
            self.C[name] = -1
        self.C["llc"], self.C["core"] = t.llc[: self._n_cpus], t.core[: self._n_cpus]
        self.L = np.zeros(max(t.n_llc, 1), s.LLC)
        self.G = np.zeros(1, s.GLOBAL)
        self.G["long_ns"], self.G["cost_ns"] = LONG_NS, self._cost
        self.L["since"] = self.G["now"] = self._begin()
        # Each task waits for one change at most, but for a wakeup that is booked and then queued.
        self.H = np.zeros(self._n_cpus + 4 * self._n_tasks + 64, s.CHANGE)
        self.held = np.zeros(_MOST_HELD, s.HELD)
        self.upper_ns[:] = self.lower_ns[:] = self.hops[:] = 0

    def _begin(self) -> int:
        starts = [
            a[0] for a in (self._rows.wakes[0], self._rows.slices[0], self._rows.gaps[1]) if len(a)
        ]
        return int(min([self._first, *starts]))

    def run(
        self,
        ns: Array,
        throttled: Array | None = None,
        cuts: Array | None = None,
        by_time: Array | None = None,
    ) -> None:
        """All of it: ``ns`` int64[cpus, bins] is added to; ``by_time`` as in IdleAccount."""
        self._reset()
        if throttled is not None:
            self.T["throttled"][: self._n_tasks] = throttled
        r = self._rows
        waiters, queue = (np.empty(self._n_tasks + 1, np.int32) for _ in range(2))
        idlers, touched = (np.empty(self._n_cpus + 1, np.int32) for _ in range(2))
        upper, lower = (np.empty(self._n_tasks + 1, np.int32) for _ in range(2))
        ends = [s.FAR] if cuts is None else [*(int(t) for t in cuts), s.FAR]
        before = ns.sum(axis=0)
        advance: Any = sweep
        for i, upto in enumerate(ends):
            advance(
                upto, *r.wakes, *r.slices, *r.gaps, *self._events, *r.moves,
                self.T, self.C, self.L, self.G, self.H, waiters, queue, idlers, touched, self.held,
                ns, upper, lower, self.hops, self.upper_ns, self.lower_ns,
            )  # fmt: skip
            if by_time is not None:
                now = ns.sum(axis=0)
                by_time[i] = now - before
                before = now

    def waits_on_idle(self) -> Array:
        return self.held[: min(int(self.G["held"][0]), _MOST_HELD)]

    def loads(self, last: int, span: int) -> list[LlcLoad]:
        """The LLCs, their integrals brought up to the end."""
        t, out = self._topology, []
        for i, q in enumerate(self.L):
            d = max(last - int(q["since"]), 0)
            both = min(int(q["idle"]), int(q["stuck"]))
            out.append(
                LlcLoad(
                    llc=int(t.llc_id[i]),
                    cpus=int(t.llc_weight[i]),
                    idle_cpus=(int(q["idle_ns"]) + d * int(q["idle"])) / span,
                    waiting=(int(q["waiting_ns"]) + d * int(q["waiting"])) / span,
                    stuck=(int(q["stuck_ns"]) + d * int(q["stuck"])) / span,
                    both_ns=int(q["both_ns"]) + d * (both > 0),
                    gap_ns=int(q["gap_ns"]) + d * both,
                )
            )
        return out


def _followed(collisions: pa.Table, first: Array, hops: Array, lo: Array, hi: Array) -> pa.Table:
    """The collisions with hops and attributable time; each victim's is booked to one row."""
    n = collisions.num_rows
    strict = collisions.column("class").to_numpy() <= schema.BookingClass.STRICT
    known = strict & collisions.column("victim").is_valid().to_numpy()
    columns = {}
    mine = first >= 0
    for name, values, kind in (
        ("hops", hops, pa.int32()),
        ("attributable_lo_ns", lo, pa.int64()),
        ("attributable_hi_ns", hi, pa.int64()),
    ):
        out = np.zeros(n, np.int64)
        out[first[mine]] = values[mine]
        columns[name] = pa.array(out, kind, mask=~known)
    for name, values in columns.items():
        at = collisions.schema.get_field_index(name)
        collisions = collisions.set_column(at, collisions.schema.field(at), values)
    return collisions


@dataclass(frozen=True)
class BinChange:
    """One bin in two captures: shares of CPU time (ns per ns and CPU), b against a."""

    bin: schema.IdleBin
    a: float
    b: float
    #: b - a
    change: float
    #: Its part of the change of all idle time; None where idle time did not change.
    part: float | None


def differences(a: IdleAccount, b: IdleAccount) -> list[BinChange]:
    """What the difference in idle time between two captures had been booked to, bin by bin.

    Shares of the time of CPUs with events, so that captures of different length compare. Where
    ``b`` is idle less, ``part`` says how much of the idle time that went had been in a bin; parts
    add up to 1, and one is negative where a bin moved the other way.
    """
    time_a, time_b = (max(x.span_ns * x.cpus, 1) for x in (a, b))
    all_a, all_b = a.bins_ns, b.bins_ns
    whole = b.idle_ns / time_b - a.idle_ns / time_a
    out = []
    for which in schema.IdleBin:
        before, after = all_a[which] / time_a, all_b[which] / time_b
        part = (after - before) / whole if whole else None
        out.append(BinChange(which, before, after, after - before, part))
    return out
