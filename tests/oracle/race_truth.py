"""What the race really was in a simulated run, from the model's own rows of double bookings.

Nothing here looks at traceana's timeline: idle time is counted from sched_switch, victims and their
delays are those of the truth, attributable idle time is the integral of section 10.2 (upper bound).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceana.closed_loop import run_once
from traceana.columns import EventColumns
from traceana.race import race
from traceana.schema import BookingClass, EventKind
from traceana.simulate import Model, Simulation, double_bookings, extra_delays
from traceana.workload import Workload

__all__ = ["Compared", "Truth", "compared", "known"]


@dataclass(frozen=True)
class Truth:
    """Double bookings whose second waking lies in the recorded window.

    ``seconds``: (pid, sched_waking) of the wakeups that came second; ``delay_ns``: extra delay of
    all victims; ``attributable_ns``: the integral of min(victims in their delay, idle CPUs);
    ``idle_ns``: of all CPUs.
    """

    seconds: set[tuple[int, int]]
    delay_ns: int
    attributable_ns: int
    idle_ns: int


def known(run: Simulation, pids: Any, llc: list[int], columns: Any) -> Truth:
    """The truth of a run of which ``columns`` (events in the order of time) were kept.

    ``pids``: int[tasks]; ``llc``: of each CPU.
    """
    assert run.truth_lost == 0
    begin, end = int(columns.ts[0]), int(columns.ts[-1])
    truth = run.truth
    second = double_bookings(truth)
    inside = second & (truth["waking_ts"] >= begin)
    seconds = {(int(pids[row["wakee"]]), int(row["waking_ts"])) for row in truth[inside]}
    asleep = run.cpus["curr"] >= len(pids)
    steps = [*_idle(columns, llc, begin, end, asleep)]
    idle_ns = sum(until - since for since, until, _ in steps)
    changes: list[tuple[int, int, int, int]] = []
    for since, until, home in steps:
        changes += [(since, home, 1, 0), (until, home, -1, 0)]
    # The one that ran first is no victim; the others of a group that has a second one are.
    delays = extra_delays(truth)
    groups = set(truth["episode"][inside].tolist())
    delay_ns = 0
    for row, delay in zip(truth, delays.tolist(), strict=True):
        if row["episode"] in groups and delay > 0:
            delay_ns += delay
            until = int(row["run_ts"])
            home = llc[int(row["cpu"])]
            changes += [(max(until - delay, begin), home, 0, 1), (min(until, end), home, 0, -1)]
    return Truth(seconds, delay_ns, _both(changes), idle_ns)


def _idle(
    columns: Any, llc: list[int], begin: int, end: int, asleep: Any
) -> list[tuple[int, int, int]]:
    """(from, to, LLC) of each time that a CPU's idle task was current.

    ``asleep``: bool[cpus], whether it is at the end, for CPUs that never switched.
    """
    out = []
    rows = np.flatnonzero(columns.kind == EventKind.SWITCH)
    since: dict[int, int | None] = {}
    for ts, cpu, prev, new in zip(
        columns.ts[rows].tolist(), columns.cpu[rows].tolist(), columns.subject[rows].tolist(),
        columns.other[rows].tolist(), strict=True,
    ):  # fmt: skip
        start = since.get(cpu, begin) if prev == 0 else None
        if start is not None:
            out.append((start, ts, llc[cpu]))
        since[cpu] = ts if new == 0 else None
    out += [(s, end, llc[cpu]) for cpu, s in since.items() if s is not None]
    out += [(begin, end, llc[cpu]) for cpu in range(len(llc)) if cpu not in since and asleep[cpu]]
    return out


def _both(changes: list[tuple[int, int, int, int]]) -> int:
    """Integral of min(idle CPUs, victims) over time, per LLC; changes (ts, LLC, idle, victims)."""
    total = 0
    by_llc: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for ts, home, idle, victims in changes:
        by_llc[home].append((ts, idle, victims))
    for rows in by_llc.values():
        idle = victims = last = 0
        for ts, more_idle, more_victims in sorted(rows):
            total += (ts - last) * min(idle, victims)
            idle, victims, last = idle + more_idle, victims + more_victims, ts
    return total


@dataclass(frozen=True)
class Compared:
    """What ``race`` finds in a run, beside the truth of it."""

    verdict: str
    true: int
    found: int
    both: int
    delay: float | None  # extra delay found, of the true one
    attributable: tuple[float | None, float | None]  # both bounds, of the true one


def compared(work: Workload, model: Model, *, warm_up_ns: int = 100_000_000) -> Compared:
    """Run a workload for 50 ms behind its warm-up, and ask ``race`` of its events alone."""
    _, run, cap = run_once(
        work, model, span_ns=50_000_000, warm_up_ns=warm_up_ns, truth_rows=1 << 20
    )
    told = race(cap, chance=False)
    llc = [int(x) for x in work.topology.sort_by("cpu").column("llc").to_pylist()]
    truth = known(run, work.tasks["pid"], llc, EventColumns.concat(list(cap.event_columns())))
    timeline = cap.timeline()
    pids = np.array(timeline.tasks.column("pid").to_pylist())
    strict = told.collisions.column("class").to_numpy() <= BookingClass.STRICT
    later = told.collisions.column("later").to_numpy()[strict]
    rows = timeline.wakeups.take(later)
    waking = rows.column("waking_ts").to_numpy(zero_copy_only=False).astype(np.int64)
    wakee = pids[rows.column("wakee").to_numpy()]
    found = set(zip(wakee.tolist(), waking.tolist(), strict=True))
    true_ns = truth.attributable_ns
    low, high = (v / true_ns if true_ns and v is not None else None for v in told.attributable_ns)
    return Compared(
        told.verdict, len(truth.seconds), len(found), len(found & truth.seconds),
        told.delay.sum_ns / truth.delay_ns if truth.delay_ns else None, (low, high),
    )  # fmt: skip
