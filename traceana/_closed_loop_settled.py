"""Whether a capture's workload has found its places: then history decides, and a capture has none.

A workload is *settled* when its tasks hardly move any more. What a rule does there is decided by
where they stood when it was switched on. It is *metastable* when, begun anew from random places, it
ends in states that differ by more than the runs of one state do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from traceana._sim_state import Start
from traceana._synth_draws import Random

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traceana._closed_loop_figures import Figures, Several
    from traceana.workload import Workload

__all__ = ["ENSEMBLE", "LEAST_WARM_UP_NS", "State", "judge", "scattered"]

#: Migrations per 100 wakeups below which a workload is settled.
FEW_MIGRATIONS = 1.0
#: Wakeups below which nothing is said.
LEAST_WAKEUPS = 500
#: States that differ by more than this, idle share or relative wakeup rate, are several.
APART = 0.04
#: Random starts, and how long each runs at least before it is looked at.
ENSEMBLE = 8
LEAST_WARM_UP_NS = 100_000_000


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


def scattered(work: Workload, seed: int) -> Workload:
    """Return the workload with its tasks on random CPUs, of those allowed to them."""
    random = Random(seed * 1_000_003 + 17)
    tasks: NDArray[Any] = work.tasks.copy()
    online = np.flatnonzero(work.topology.column("online").to_numpy(zero_copy_only=False))
    for row in tasks:
        places = online
        if row["allowed"] >= 0:
            mine = np.flatnonzero(work.allowed[row["allowed"]])
            places = np.intersect1d(mine, online)
            if not len(places):
                places = mine
        row["cpu"] = row["recent"] = int(places[random.below(len(places))])
        if row["state"] == Start.RUNNING:
            row["state"] = Start.QUEUED
        row["vruntime"] = 0
    return work.with_tables(tasks, work.script, work.when)
