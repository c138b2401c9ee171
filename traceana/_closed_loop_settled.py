"""Whether a capture's workload has found its places: then history decides, and a capture has none.

A workload is *settled* when its tasks hardly move any more. What a rule does there is decided by
where they stood when it was switched on. It is *metastable* when, begun anew from random places, it
ends in states that differ by more than the runs of one state do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from traceana import topology as topo
from traceana._sim_state import Op, Start
from traceana._synth_draws import Random

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traceana._closed_loop_figures import Figures, Several
    from traceana.workload import Workload

__all__ = [
    "AT_REST",
    "ENSEMBLE",
    "LEAST_WARM_UP_NS",
    "State",
    "judge",
    "scattered",
    "side_by_side",
]

#: Migrations per 100 wakeups below which a workload is settled.
FEW_MIGRATIONS = 1.0
#: Wakeups below which nothing is said.
LEAST_WAKEUPS = 500
#: States that differ by more than this, idle share or relative wakeup rate, are several.
APART = 0.04
#: Random starts, and how long each runs at least before it is looked at.
ENSEMBLE = 8
LEAST_WARM_UP_NS = 100_000_000
#: Fields of a model of a machine that has been idle: the load is not there yet.
AT_REST: Mapping[str, Any] = {
    "nr_idle_scan": None, "idle_core_hint": None, "cpu_util": None, "avg_idle_ns": None,
}  # fmt: skip


@dataclass(frozen=True)
class State:
    """What was found. ``metastable`` is None where no random starts were tried."""

    settled: bool
    metastable: bool | None
    migrations_per_100: float | None

    def to_json(self) -> dict[str, Any]:
        """As it stands in JSON."""
        return {
            "settled": self.settled,
            "metastable": self.metastable,
            "migrations_per_100_wakeups": self.migrations_per_100,
        }


def judge(recorded: Figures, ensemble: Several | None) -> State:
    """Judge a recording, with runs of its own rule from random starts if there are some."""
    moves = None
    if recorded.n >= LEAST_WAKEUPS and recorded.migrations_per_s is not None:
        moves = 100 * recorded.migrations_per_s / max(recorded.wakeups_per_s or 0.0, 1e-9)
    settled = moves is not None and moves < FEW_MIGRATIONS
    if ensemble is None:
        return State(settled, None, moves)
    idle, rate = ensemble.range("idle_share"), ensemble.range("wakeups_per_s")
    apart = idle is not None and idle[1] - idle[0] > APART
    if rate is not None and rate[1] > 0:
        apart = apart or (rate[1] - rate[0]) / rate[1] > APART
    return State(settled, apart, moves)


def scattered(work: Workload, seed: int, start: int = 0, starts: int = 1) -> Workload:
    """Return the workload with its tasks on other CPUs, of those allowed to them.

    Which states a workload can end in depends on how it began: a parent forks its tasks one after
    another, fork balancing spreads them over the machine, and the first wakeups draw them together
    again, more or less. So the starts differ in two shares, the corners first: how many of the
    groups (tasks that wake each other) are in one LLC, from an even part of them to all, and how
    many tasks share a CPU with the one they wake most. All else is drawn.
    """
    random = Random(seed * 1_000_003 + 17)
    tasks: NDArray[Any] = work.tasks.copy()
    machine = topo.as_arrays(work.topology)
    llcs = [np.flatnonzero((machine.llc == llc) & (machine.online == 1))
            for llc in range(machine.n_llc)]  # fmt: skip
    llcs = [cpus for cpus in llcs if len(cpus)]
    crowd, stack = _shares(start, starts, len(llcs))
    group, partner = _groups(work)
    names = _shuffled(sorted(set(group)), random)
    at_home = round(len(names) * (1 + crowd * (len(llcs) - 1)) / len(llcs))
    llc_of = {name: 0 if i < at_home else 1 + i % (len(llcs) - 1) for i, name in enumerate(names)}
    order = _shuffled(list(range(len(llcs))), random)
    rings = [_shuffled(llcs[llc].tolist(), random) for llc in order]
    turns = [0] * len(rings)
    placed = np.full(len(tasks), -1, np.int64)
    for t in _shuffled(list(range(len(tasks))), random):
        if placed[t] >= 0:
            continue
        home = llc_of[group[t]]
        cpu = rings[home][turns[home] % len(rings[home])]
        turns[home] += 1
        placed[t] = cpu
        if partner[t] >= 0 and placed[partner[t]] < 0 and random.below(1000) < 1000 * stack:
            placed[partner[t]] = cpu
    for t, row in enumerate(tasks):
        if row["allowed"] >= 0 and not work.allowed[row["allowed"]][placed[t]]:
            mine = np.flatnonzero(work.allowed[row["allowed"]])
            placed[t] = int(mine[random.below(len(mine))])
        if row["state"] == Start.RUNNING:
            row["state"] = Start.QUEUED
    tasks["cpu"] = tasks["recent"] = placed
    # On a machine that was idle, by tasks that have not run yet.
    tasks["vruntime"] = tasks["util"] = tasks["dur_avg"] = tasks["since_sleep"] = 0
    return work.with_tables(tasks, work.script, work.when)


def _shares(start: int, starts: int, n_llcs: int) -> tuple[float, float]:
    """Start number `start` of so many: how crowded one LLC is, how many tasks are stacked."""
    if n_llcs == 1:
        return 0.0, start / max(starts - 1, 1)
    steps = max((starts + 1) // 2 - 1, 1)
    return min(start // 2 / steps, 1.0), float(start % 2)


def _shuffled(items: list[int], random: Random) -> list[int]:
    for i in range(len(items) - 1, 0, -1):
        j = random.below(i + 1)
        items[i], items[j] = items[j], items[i]
    return items


def _groups(work: Workload) -> tuple[list[int], NDArray[Any]]:
    """Tasks that wake each other, or share a mailbox: a group's number per task; and whom each task
    wakes most, -1 nobody.
    """
    n = len(work.tasks)
    owner = np.repeat(np.arange(n), work.tasks["end"] - work.tasks["first"])
    rows = np.concatenate(
        [np.arange(a, b) for a, b in zip(work.tasks["first"], work.tasks["end"], strict=True)]
        or [np.zeros(0, np.int64)]
    )
    code, target = work.script["code"][rows], work.script["task"][rows]
    wakes = (code == Op.WAKE) & (target >= 0)
    pairs, counts = np.unique(owner[wakes] * n + target[wakes], return_counts=True)
    partner = np.full(n, -1, np.int64)
    for i in np.argsort(counts, kind="stable"):
        partner[pairs[i] // n] = pairs[i] % n
    mail = np.isin(code, (Op.SEND, Op.RECV))
    boxes = np.unique(np.stack([owner[mail], n + target[mail]], axis=1), axis=0)
    root = list(range(n + int(target[mail].max(initial=-1)) + 1))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for a, b in [*((int(p) // n, int(p) % n) for p in pairs), *boxes.tolist()]:
        root[find(a)] = find(b)
    return [find(t) for t in range(n)], partner


def side_by_side(work: Workload, recorded: Figures, wake_ns: int) -> float:
    """Share of the CPUs' time in which the two of a pair ran at once, beyond their wakeups.

    Of two tasks that only wake each other, each sleeps while the other works; together they need
    one CPU, and a little more while one is still leaving (`wake_ns`: a wakeup and the switch behind
    it). Where they take more, they served each other without sleeping: such rounds leave no event,
    and a rule that put both on one CPU would end them.
    """
    _, partner = _groups(work)
    tasks = work.tasks
    cpus = int((topo.as_arrays(work.topology).online == 1).sum())
    span = max(work.span_ns, 1)
    total = 0.0
    for a, b in enumerate(partner.tolist()):
        if b <= a or partner[b] != a:
            continue
        both = sum(recorded.cpu_share.get(int(tasks["pid"][t]), 0.0) for t in (a, b))
        rows = [work.script["code"][tasks["first"][t] : tasks["end"][t]] for t in (a, b)]
        wakes = sum(int((codes == Op.WAKE).sum()) for codes in rows)
        if both - 1 > wakes * wake_ns / span:
            total += both - 1
    return total / max(cpus, 1)
