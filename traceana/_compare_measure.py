"""What ``compare`` needs of one capture: sums per stretch of time, and the latencies.

The window that all CPUs' data have in common is cut into equal stretches. For every figure that is
a ratio of sums (a rate, a share) the two sums are kept per stretch; for the latencies the values
and the stretch in which each wakeup lies. All of the capture, and each workload (process family, or
--workload) and task family of some weight, apart. Long captures are read part by part; of more than
MOST_VALUES wakeups every second, third … is taken for the percentiles.

Definitions. Wakeups: sched_wakeup (sched_waking where that is not recorded), without those of new
tasks. Edges: wakeups whose waker is a task. Switch: a CPU began to run another task, or its idle
task. Migration: a task ran on another CPU than the last time it ran; by the nearest that the two
CPUs share. Run-queue time: what all tasks together waited, runnable but not running, behind a
wakeup or a preemption.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from traceana import topology as topo
from traceana.columns import NULL_I64
from traceana.families import family
from traceana.idle_time import gap_bounds, machine_idle
from traceana.schema import EndReason, TaskClass, WakeContext, WakeKind

if TYPE_CHECKING:
    import pyarrow as pa

    from traceana.capture import Capture
    from traceana.timeline import Timeline

__all__ = ["DISTANCES", "LATENCIES", "Measured", "Sample", "Sums", "measure"]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

#: Stretches of the window: a power of two between these, so that each holds some switches.
_MOST_BINS, _LEAST_BINS, _PER_BIN = 256, 8, 8
#: Wakeups whose latencies are kept, of all of them.
MOST_VALUES = 1 << 22
#: A workload or family is shown from this share of the run time or of the wakeups on, so many of
#: them at most.
MATTERS, MOST_GROUPS = 0.02, 12

LATENCIES = ("queue_delay", "wakeup_latency")
#: What the old and the new CPU of a migration have in common, the nearest first.
DISTANCES = ("sibling", "llc", "other_llc", "other_node")


@dataclass(frozen=True)
class Sums:
    """A figure as a ratio of sums, per stretch; ``n`` is what was counted."""

    num: F64 = field(repr=False)
    den: F64 = field(repr=False)
    n: int
    #: The figure where it is known better than by the sums.
    exact: float | None = None


@dataclass(frozen=True)
class Sample:
    """Values in ascending order and the stretch of each."""

    ordered: I64 = field(repr=False)
    bins: npt.NDArray[np.int16] = field(repr=False)


@dataclass
class Measured:
    """One capture, measured. Keys are (scope, metric); scope is 'all', 'workload:…', 'family:…'."""

    begin_ts: int
    window_ns: int
    bins: int
    sums: dict[tuple[str, str], Sums] = field(default_factory=dict)
    samples: dict[tuple[str, str], Sample] = field(default_factory=dict)
    longest: dict[tuple[str, str], int] = field(default_factory=dict)
    #: Every so many wakeups were taken for the percentiles.
    thinned: int = 1
    #: Scope -> share of the run time.
    weight: dict[str, float] = field(default_factory=dict)
    #: CPUs without any event, which may have been idle or not.
    silent_cpus: int = 0
    #: Idle share of all CPUs, as if all that is not known had been busy, or idle.
    idle_bounds: tuple[float | None, float | None] = (None, None)
    #: Whether workloads and task families are the same.
    same_groups: bool = False


def measure(cap: Capture, *, bins: int | None = None) -> Measured:
    """Measure a capture.

    Parameters
    ----------
    cap : Capture
    bins : stretches of the window, a power of two; None: as many as its switches bear

    Raises
    ------
    MissingEventsError
        It holds no sched_switch.
    """
    timeline = cap.timeline(spill=True)
    return _Meter(cap, timeline, bins).run()


def _numbers(table: pa.Table, name: str, null: int) -> npt.NDArray[Any]:
    column = table.column(name).combine_chunks()
    if column.null_count:
        column = pc.fill_null(column, null)
    return np.asarray(column.to_numpy(zero_copy_only=False))


class _Meter:
    def __init__(self, cap: Capture, timeline: Timeline, fixed: int | None) -> None:
        self.cap, self.tl = cap, timeline
        cpus = timeline.cpus
        events = _numbers(cpus, "events", 0)
        self.heard = np.flatnonzero(events > 0)
        begins = _numbers(cpus, "begin", timeline.first_ts)[self.heard]
        late = int(begins.max()) if len(begins) else timeline.first_ts
        self.common = timeline.first_ts < late < timeline.last_ts
        self.begin = late if self.common else timeline.first_ts
        self.window = max(timeline.last_ts - self.begin, 1)
        switches = int(_numbers(cpus, "switches", 0).sum())
        bins = _LEAST_BINS
        while bins < _MOST_BINS and bins * 2 * _PER_BIN <= switches:
            bins *= 2
        self.k = bins = fixed or bins
        self.width = self.window / bins
        self.out = Measured(self.begin, self.window, bins)
        self._group_tasks()

    # --- groups of tasks ---

    def _group_tasks(self) -> None:
        """Per task its workload and its family, as dense numbers; 0 is none of those that count."""
        tasks = self.tl.tasks
        idle = _numbers(tasks, "class", 255) == TaskClass.IDLE
        groups = tasks.column("group").to_pylist()
        comms = tasks.column("comm").to_pylist()
        families = [None if c is None else family(c) for c in comms]
        time = _numbers(tasks, "on_cpu_ns", 0).astype(np.float64)
        time[idle] = 0
        woken = _numbers(tasks, "wakeups", 0).astype(np.float64)
        told = [(w, f) for w, f, i in zip(groups, families, idle.tolist(), strict=True) if not i]
        same = all(w is None or w == f for w, f in told)
        self.out.same_groups = same
        self.kinds = (
            [("workload", groups)] if same else [("workload", groups), ("family", families)]
        )
        self.labels: list[list[str]] = []
        self.of: list[npt.NDArray[np.int32]] = []
        self.time: list[F64] = []
        all_time, all_woken = max(time.sum(), 1.0), max(woken.sum(), 1.0)
        for kind, names in self.kinds:
            index: dict[str, int] = {}
            dense = np.array(
                [
                    -1 if name is None or i else index.setdefault(name, len(index))
                    for name, i in zip(names, idle.tolist(), strict=True)
                ],
                np.int64,
            )
            n = len(index)
            mine = dense >= 0
            t = np.bincount(dense[mine], time[mine], minlength=n)
            w = np.bincount(dense[mine], woken[mine], minlength=n)
            heavy = np.maximum(t / all_time, w / all_woken)
            kept = [i for i in np.argsort(-heavy, kind="stable").tolist() if heavy[i] >= MATTERS]
            kept = kept[:MOST_GROUPS]
            place = np.zeros(n + 1, np.int32)
            place[kept] = np.arange(1, len(kept) + 1)
            self.of.append(place[dense])
            names_of = list(index)
            self.labels.append([f"{kind}:{names_of[i]}" for i in kept])
            self.time.append(np.asarray(t[kept], np.float64))
            for label, i in zip(self.labels[-1], kept, strict=True):
                self.out.weight[label] = float(t[i] / all_time)

    def _scopes(self) -> Iterator[tuple[str, int, int]]:
        """(scope, which grouping, number in it) of all that is measured apart."""
        for g, labels in enumerate(self.labels):
            for i, label in enumerate(labels, 1):
                yield label, g, i

    # --- stretches of time ---

    def _bin(self, ts: I64) -> npt.NDArray[np.int16]:
        at = ((ts - self.begin) / self.width).astype(np.int64)
        return np.clip(at, 0, self.k - 1).astype(np.int16)

    def _counts(self, ts: I64, key: npt.NDArray[Any] | None = None, keys: int = 1) -> F64:
        """Events per key and stretch, float64[keys, k]; those before the window left out."""
        inside = ts >= self.begin
        at = self._bin(ts[inside]).astype(np.int64)
        if key is not None:
            at += key[inside].astype(np.int64) * self.k
        return np.bincount(at, minlength=keys * self.k).reshape(keys, self.k).astype(np.float64)

    def _times(
        self, start: I64, end: I64, key: npt.NDArray[Any] | None = None, keys: int = 1
    ) -> F64:
        """Time that intervals spend in each stretch, ns, float64[keys, k]."""
        k = self.k
        out = np.zeros(keys * (k + 2))
        slope = np.zeros(keys * (k + 2))
        a = (np.clip(start - self.begin, 0, self.window)).astype(np.float64)
        b = (np.clip(end - self.begin, 0, self.window)).astype(np.float64)
        keep = b > a
        a, b = a[keep], b[keep]
        row = 0 if key is None else key[keep].astype(np.int64) * (k + 2)
        for at, sign in ((a, 1.0), (b, -1.0)):
            # The integral of a level that rises at a and falls at b, at the stretches' ends.
            bin_ = np.minimum((at / self.width).astype(np.int64), k - 1)
            rest = (bin_ + 1) * self.width - at
            out += np.bincount(row + bin_, sign * rest, minlength=len(out))
            slope += np.bincount(row + bin_ + 1, np.full(len(at), sign), minlength=len(slope))
        level = np.cumsum(slope.reshape(keys, k + 2), axis=1)[:, :k]
        return np.maximum(out.reshape(keys, k + 2)[:, :k] + level * self.width, 0.0)

    # --- the measures ---

    def run(self) -> Measured:
        self.seconds = np.full(self.k, self.width / 1e9)
        self._idle()
        self._slices()
        self._wakeups()
        return self.out

    def _put(self, scope: str, name: str, num: F64, den: F64, n: float | None = None) -> None:
        self.out.sums[scope, name] = Sums(num, den, int(num.sum() if n is None else n))

    def _idle(self) -> None:
        table = self.cap.topology
        online = table.filter(table.column("online")).column("cpu").to_pylist()
        whole = machine_idle(self.tl, online)
        self.out.silent_cpus = whole.silent
        self.out.idle_bounds = whole.lo, whole.hi
        cpu, start, end = gap_bounds(self.tl)
        mine = np.isin(cpu, self.heard)
        if whole.share is None:
            return
        num = self._times(start[mine], end[mine])[0]
        den = np.full(self.k, self.width * len(self.heard))
        self.out.sums["all", "idle_share"] = Sums(num, den, int(mine.sum()), whole.share)

    def _slices(self) -> None:
        """Switches, migrations, time on a CPU, waits behind preemptions."""
        n_tasks = self.tl.tasks.num_rows
        m = topo.as_arrays(self.cap.topology, self.tl.cpus.num_rows)
        last_cpu = np.full(n_tasks, -1, np.int32)
        last_end = np.full(n_tasks, NULL_I64)
        last_reason = np.full(n_tasks, 255, np.uint8)
        switch_ins = np.zeros((1, self.k))
        far = np.zeros((len(DISTANCES), self.k))
        keyed = [len(labels) + 1 for labels in self.labels]
        moved = [np.zeros((n, self.k)) for n in keyed]
        busy = [np.zeros((n, self.k)) for n in keyed]
        ins = [np.zeros((n, self.k)) for n in keyed]
        self.waits = [np.zeros((n, self.k)) for n in keyed]
        self.all_waits = np.zeros(self.k)
        columns = ("task", "cpu", "start", "end", "end_reason")
        for part in self.tl.rows.chunks("slices", columns):
            task = _numbers(part, "task", 0).astype(np.int64)
            if not len(task):
                continue
            start, end = _numbers(part, "start", NULL_I64), _numbers(part, "end", NULL_I64)
            order = np.lexsort((start, task))
            task, start, end = task[order], start[order], end[order]
            cpu = _numbers(part, "cpu", -1)[order]
            reason = _numbers(part, "end_reason", 255)[order]
            first = np.concatenate([[True], task[1:] != task[:-1]])
            before_cpu = np.where(first, last_cpu[task], np.roll(cpu, 1))
            before_end = np.where(first, last_end[task], np.roll(end, 1))
            before_reason = np.where(first, last_reason[task], np.roll(reason, 1))
            last = np.concatenate([first[1:], [True]])
            last_cpu[task[last]] = cpu[last]
            last_end[task[last]], last_reason[task[last]] = end[last], reason[last]
            began = start != NULL_I64
            switch_ins += self._counts(start[began])
            moves = began & (before_cpu >= 0) & (cpu >= 0) & (before_cpu != cpu)
            a, b = before_cpu[moves], cpu[moves]
            share_node = (m.node[a] == m.node[b]) | (m.node[a] < 0) | (m.node[b] < 0)
            distance = np.where(
                m.core[a] == m.core[b],
                0,
                np.where(m.llc[a] == m.llc[b], 1, np.where(share_node, 2, 3)),
            )
            far += self._counts(start[moves], distance, len(DISTANCES))
            waited = (
                began
                & (before_end != NULL_I64)
                & ((before_reason == EndReason.PREEMPT) | (before_reason == EndReason.YIELD_LIKE))
                & (start > before_end)
            )
            self.all_waits += self._times(before_end[waited], start[waited])[0]
            whole = began & (end != NULL_I64)
            for g, of in enumerate(self.of):
                key = of[task]
                moved[g] += self._counts(start[moves], key[moves], keyed[g])
                ins[g] += self._counts(start[began], key[began], keyed[g])
                busy[g] += self._times(start[whole], end[whole], key[whole], keyed[g])
                self.waits[g] += self._times(
                    before_end[waited], start[waited], key[waited], keyed[g]
                )
        switches = switch_ins[0]
        for part in self.tl.rows.chunks("idle_gaps", ("start",)):
            start = _numbers(part, "start", NULL_I64)
            switches = switches + self._counts(start[start != NULL_I64])[0]
        self._put("all", "switches_per_s", switches, self.seconds)
        self._put("all", "migrations_per_s", far.sum(axis=0), self.seconds)
        origin = set(self.cap.topology.column("origin").to_pylist())
        if not origin & {"assumed"}:
            learned = "learned" in origin
            for i, name in enumerate(DISTANCES):
                if learned and name in ("sibling", "other_node"):
                    continue  # neither SMT nor nodes are known
                if name == "other_node" and not (m.node > 0).any():
                    continue
                self._put("all", f"migrations_{name}_per_s", far[i], self.seconds)
        for scope, g, i in self._scopes():
            self._put(scope, "switch_ins_per_s", ins[g][i], self.seconds)
            self._put(scope, "migrations_per_s", moved[g][i], self.seconds)
            on_cpu = busy[g][i]
            if not self.common:
                # Slices that are cut by the window's ends: their time is known, not its place.
                on_cpu = on_cpu + max(self.time[g][i - 1] - on_cpu.sum(), 0.0) / self.k
            self._put(scope, "cpus_used", on_cpu, self.seconds * 1e9, ins[g][i].sum())

    def _wakeups(self) -> None:
        counts = self.cap.counts
        ignored = self.cap.ignored
        have = [e for e in ("sched_wakeup", "sched_waking") if counts.get(e) and e not in ignored]
        if not have:
            return
        n = self.tl.rows.table("wakeups").num_rows
        step = self.out.thinned = max(1, -(-n // MOST_VALUES))
        keyed = [len(labels) + 1 for labels in self.labels]
        woken = [np.zeros((k, self.k)) for k in keyed]
        totals = np.zeros((4, self.k))  # wakeups, edges, placements known, on the waker's CPU
        kept: dict[str, list[list[Any]]] = {name: [] for name in LATENCIES}
        most = max(self.tl.tasks.num_rows, 1)
        longest: dict[str, I64] = {name: np.full(most, -1, np.int64) for name in LATENCIES}
        columns = (
            "wakee", "waker", "kind", "context", "waking_ts", "wakeup_ts", "run_ts", "this_cpu",
            "placed_cpu", "queue_delay_ns", "wakeup_latency_ns",
        )  # fmt: skip
        offset = obscure = 0
        for part in self.tl.rows.chunks("wakeups", columns):
            waking = _numbers(part, "waking_ts", NULL_I64)
            wakeup = _numbers(part, "wakeup_ts", NULL_I64)
            if not len(waking):
                continue
            at = np.where(wakeup != NULL_I64, wakeup, waking)
            wakee = _numbers(part, "wakee", 0).astype(np.int64)
            kind = _numbers(part, "kind", 255)
            seen = (wakeup if have[0] == "sched_wakeup" else waking) != NULL_I64
            counted = seen & (kind != WakeKind.FORK)
            context = _numbers(part, "context", WakeContext.UNKNOWN)
            obscure += int((counted & (context == WakeContext.UNKNOWN)).sum())
            task_context = context == WakeContext.TASK
            edge = counted & task_context & (_numbers(part, "waker", -1) >= 0)
            this, placed = _numbers(part, "this_cpu", -1), _numbers(part, "placed_cpu", -1)
            known = edge & (this >= 0) & (placed >= 0)
            for row, chosen in enumerate((counted, edge, known, known & (this == placed))):
                totals[row] += self._counts(at[chosen])[0]
            run = _numbers(part, "run_ts", NULL_I64)
            ran = (run != NULL_I64) & (wakeup != NULL_I64) & (run > wakeup)
            self.all_waits += self._times(wakeup[ran], run[ran])[0]
            for g, of in enumerate(self.of):
                key = of[wakee]
                woken[g] += self._counts(at[counted], key[counted], keyed[g])
                self.waits[g] += self._times(wakeup[ran], run[ran], key[ran], keyed[g])
            for name in LATENCIES:
                values = _numbers(part, f"{name}_ns", NULL_I64)
                told = (values != NULL_I64) & (at >= self.begin)
                np.maximum.at(longest[name], wakee[told], values[told])
                if step > 1:
                    told &= (np.arange(len(told)) + offset) % step == 0
                kept[name].append(
                    [values[told], self._bin(at[told]), *(of[wakee[told]] for of in self.of)]
                )
            offset += len(waking)
        self._put("all", "wakeups_per_s", totals[0], self.seconds)
        # Some texts do not tell interrupts from tasks.
        if "sched_waking" in have and obscure <= 0.01 * totals[0].sum():
            self._put("all", "edges_per_s", totals[1], self.seconds)
            self._put("all", "waker_cpu_share", totals[3], totals[2], totals[2].sum())
        for scope, g, i in self._scopes():
            self._put(scope, "wakeups_per_s", woken[g][i], self.seconds)
        if "sched_wakeup" in have:
            ns = self.seconds * 1e9
            self._put("all", "runqueue_time", self.all_waits, ns, totals[0].sum())
            for scope, g, i in self._scopes():
                self._put(scope, "runqueue_time", self.waits[g][i], ns, woken[g][i].sum())
        for name in LATENCIES:
            self._sample(name, kept.pop(name), longest[name])

    def _sample(self, name: str, parts: list[list[Any]], longest: I64) -> None:
        if not parts or not sum(len(p[0]) for p in parts):
            return
        columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
        parts.clear()
        order = np.argsort(columns[0], kind="stable")
        values, bins, *keys = (c[order] for c in columns)
        self.out.samples["all", name] = Sample(values, bins)
        self.out.longest["all", name] = int(longest.max())
        for scope, g, i in self._scopes():
            mine = keys[g] == i
            self.out.samples[scope, name] = Sample(values[mine], bins[mine])
            worst = longest[self.of[g] == i]
            if len(worst) and worst.max() >= 0:
                self.out.longest[scope, name] = int(worst.max())
