"""What a run is described by: the same figures, made the same way, of a recording and of a model.

Idle: time with the idle task current, over all CPUs that are online; one without any event counts
as idle, for the model has it so. Wakeups: sched_wakeup without new tasks. Edges: those whose waker
is a task. Both are activity: a task that does not sleep is not woken. ``waker_cpu_share``: of the
wakeups outside of interrupts, those placed on the CPU that executed them. Switches: a CPU began to
run another task or its idle task. Migrations: a task ran on another CPU than the last time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from traceana.columns import NULL_I64
from traceana.idle_time import machine_idle
from traceana.schema import TaskClass, WakeContext, WakeKind
from traceana.summary import percentile

if TYPE_CHECKING:
    import pyarrow as pa

    from traceana.capture import Capture

__all__ = ["LATENCIES", "PERCENTILES", "SCALARS", "UNKNOWN", "Figures", "Several", "measure"]

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
LATENCIES = ("queue_delay_ns", "wakeup_latency_ns")
#: Figures that are one number.
SCALARS = (
    "idle_share",
    "wakeups_per_s",
    "edges_per_s",
    "waker_cpu_share",
    "switches_per_s",
    "migrations_per_s",
    "progress",
)


@dataclass(frozen=True)
class Figures:
    """One run. None where nothing is known. ``progress`` is bursts done per second, of the
    recording's; ``steps_per_s`` units of a synthetic workload's own work.
    """

    idle_share: float | None
    wakeups_per_s: float | None
    edges_per_s: float | None
    waker_cpu_share: float | None
    switches_per_s: float | None
    migrations_per_s: float | None
    queue_delay_ns: Mapping[str, int | None]
    wakeup_latency_ns: Mapping[str, int | None]
    progress: float | None
    #: Per thread id, the share of the time that it had a CPU.
    cpu_share: Mapping[int, float]
    n: int  # wakeups
    span_ns: int
    #: Of the tasks' runs, those on the CPU where each ran most, weighted by runs.
    home_share: float | None = None
    steps_per_s: float | None = None

    def get(self, name: str) -> float | None:
        """A figure by name; percentiles as ``queue_delay_ns.p99``."""
        group, dot, part = name.partition(".")
        value: Any = getattr(self, group)
        told: float | None = value[part] if dot else value
        return told

    def to_json(self) -> dict[str, Any]:
        """As it stands in JSON."""
        out: dict[str, Any] = {name: getattr(self, name) for name in SCALARS}
        out |= {name: dict(getattr(self, name)) for name in LATENCIES}
        if self.steps_per_s is not None:
            out["steps_per_s"] = self.steps_per_s
        return out | {"wakeups": self.n, "span_ns": self.span_ns}


#: Of what was never recorded.
UNKNOWN = Figures(
    *(None,) * 6,
    *(dict.fromkeys(PERCENTILES),) * 2,
    progress=None,
    cpu_share={},
    n=0,
    span_ns=0,
)


@dataclass(frozen=True)
class Several:
    """Runs that differ in their seed only."""

    runs: Sequence[Figures]

    def values(self, name: str) -> list[float]:
        """A figure's values, those that are known."""
        return [v for run in self.runs if (v := run.get(name)) is not None]

    def mean(self, name: str) -> float | None:
        """Mean over the runs."""
        values = self.values(name)
        return math.fsum(values) / len(values) if values else None

    def spread(self, name: str) -> float | None:
        """Standard deviation over the runs (n - 1); None of fewer than two."""
        values = self.values(name)
        if len(values) < 2:
            return None
        mean = math.fsum(values) / len(values)
        return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))

    def range(self, name: str) -> tuple[float, float] | None:
        """The lowest and the highest value."""
        values = self.values(name)
        return (min(values), max(values)) if values else None

    def to_json(self) -> dict[str, Any]:
        """Each figure with `mean` and `spread`."""

        def both(name: str) -> dict[str, float | None]:
            return {"mean": self.mean(name), "spread": self.spread(name)}

        out: dict[str, Any] = {name: both(name) for name in SCALARS}
        for group in LATENCIES:
            out[group] = {p: both(f"{group}.{p}") for p in PERCENTILES}
        if self.values("steps_per_s"):
            out["steps_per_s"] = both("steps_per_s")
        return out


def _column(table: pa.Table, name: str, null: int) -> npt.NDArray[np.int64]:
    column = table.column(name)
    filled = pc.fill_null(column, null) if column.null_count else column
    return np.asarray(filled.to_numpy()).astype(np.int64)


def measure(
    cap: Capture, *, progress: float | None = None, steps_per_s: float | None = None
) -> Figures:
    """Measure a capture, recorded or simulated, by its timeline.

    Parameters
    ----------
    progress, steps_per_s : what no event tells; known by whoever ran it
    """
    whole = cap.timeline()
    timeline = whole.study or whole
    span = max(timeline.last_ts - timeline.first_ts, 1)
    seconds = span / 1e9
    table = cap.topology
    online = table.filter(table.column("online")).column("cpu").to_pylist()
    wakeups = timeline.wakeups
    seen = _column(wakeups, "wakeup_ts", NULL_I64) != NULL_I64
    counted = seen & (_column(wakeups, "kind", 255) != WakeKind.FORK)
    in_task = counted & (_column(wakeups, "context", 255) == WakeContext.TASK)
    edge = in_task & (_column(wakeups, "waker", -1) >= 0)
    this, placed = _column(wakeups, "this_cpu", -1), _column(wakeups, "placed_cpu", -1)
    known = in_task & (this >= 0) & (placed >= 0)
    latency = {}
    for name in LATENCIES:
        values = np.sort(wakeups.column(name).drop_null().to_numpy())
        latency[name] = {p: percentile(values, q) for p, q in PERCENTILES.items()}
    slices = timeline.slices
    task, cpu = _column(slices, "task", -1), _column(slices, "cpu", -1)
    start = _column(slices, "start", NULL_I64)
    order = np.lexsort((start, task))
    task, cpu = task[order], cpu[order]
    same = task[1:] == task[:-1]
    moves = int((same & (cpu[1:] != cpu[:-1])).sum())
    gaps = _column(timeline.idle_gaps, "start", NULL_I64)
    switches = int((start != NULL_I64).sum() + (gaps != NULL_I64).sum())
    pids = timeline.tasks.column("pid").to_pylist()
    # From sched_stat_runtime where it is recorded: a task that never leaves its CPU is in it, too.
    ran = _column(timeline.tasks, "runtime_ns", 0)
    idle = _column(timeline.tasks, "class", 255) == TaskClass.IDLE
    told = machine_idle(timeline, online)
    cpus = told.known + told.silent
    share = None if told.share is None else (told.share * told.known + told.silent) / cpus
    return Figures(
        idle_share=share,
        wakeups_per_s=float(counted.sum()) / seconds,
        edges_per_s=float(edge.sum()) / seconds,
        waker_cpu_share=float((this == placed)[known].mean()) if known.any() else None,
        switches_per_s=switches / seconds,
        migrations_per_s=moves / seconds,
        queue_delay_ns=latency["queue_delay_ns"],
        wakeup_latency_ns=latency["wakeup_latency_ns"],
        progress=progress,
        cpu_share={
            pid: int(ns) / span
            for pid, ns, swapper in zip(pids, ran, idle.tolist(), strict=True)
            if not swapper
        },
        n=int(counted.sum()),
        span_ns=span,
        home_share=_home_share(task, cpu),
        steps_per_s=steps_per_s,
    )


def _home_share(task: npt.NDArray[np.int64], cpu: npt.NDArray[np.int64]) -> float | None:
    known = (task >= 0) & (cpu >= 0)
    if not known.any():
        return None
    n_cpus = int(cpu.max()) + 1
    pair, runs = np.unique(task[known] * n_cpus + cpu[known], return_counts=True)
    owner = pair // n_cpus
    first = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))
    return float(np.maximum.reduceat(runs, first).sum()) / float(runs.sum())
