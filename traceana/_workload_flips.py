"""wakee_flips at a capture's begin, where no start state tells them (sections 2.1 and 2.2).

wake_wide() keeps a wakeup near prev_cpu where waker and wakee both change wakees often and one of
them much more often than the other. The counters are in no event. Of what a task does itself the
rate is recorded: a counter that gains `r` a second and is halved once a second lies between r and
2 r, so r is taken; only its ratio to another's matters once both are large. What a task brought
along from its parent is not recorded (a counter is copied at fork and never reset): for a task that
hardly changes wakees itself, but wakes or is woken by one that does so often, the recorded
placements are asked whether the kernel took these wakeups for wide. Only those count whose CPU the
path can come to with, and not without, or the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import schema
from traceana.replay import Told

if TYPE_CHECKING:
    from traceana.replay import Replay
    from traceana.timeline import Timeline

__all__ = ["idle_flips", "own_flips", "start_flips"]

NULL = -(2**63)
#: An answer of the placements counts if it leads by so many standard deviations.
_SURE = 2.0
Array = npt.NDArray[Any]


def own_flips(timeline: Timeline) -> Array:
    """What each task's own changes of wakee come to in a second; int64[tasks]."""
    w = timeline.raw["wakeups"]
    n = len(timeline.raw["tasks"])
    mine = (w["kind"] == schema.WakeKind.DECIDED) & (w["waking"] != NULL) & (w["current"] >= 0)
    w = w[mine]
    order = np.lexsort((w["waking"], w["current"]))
    current, wakee = w["current"][order], w["wakee"][order]
    changes = (current[1:] == current[:-1]) & (wakee[1:] != wakee[:-1])
    count = np.bincount(current[1:][changes], minlength=n)
    span = max(timeline.last_ts - timeline.first_ts, 1)
    return np.asarray(count * 1_000_000_000 // span, np.int64)


def idle_flips(timeline: Timeline, own: Array, n_cpus: int) -> list[int]:
    """The same of the CPUs' idle tasks, whom interrupts make wakers."""
    tasks = timeline.raw["tasks"]
    out = np.zeros(n_cpus, np.int64)
    idle = np.flatnonzero((tasks["pid"] == 0) & (tasks["cpu"] >= 0) & (tasks["cpu"] < n_cpus))
    out[tasks["cpu"][idle]] = own[idle]
    return out.tolist()


def start_flips(timeline: Timeline, replay: Replay, own: Array) -> Array:
    """wakee_flips of each task at the begin, as far as recorded placements tell; int64[tasks]."""
    w = timeline.raw["wakeups"][replay.rows]
    weight = replay.llc_weight()[w["this_cpu"]]
    known = (w["current"] >= 0) & (w["wakee"] >= 0)
    waker, wakee = np.maximum(w["current"], 0), np.maximum(w["wakee"], 0)
    low = np.minimum(own[waker], own[wakee])
    high = np.maximum(own[waker], own[wakee])
    open_ = known & (low < weight) & (high >= weight * weight) & (weight > 1)
    flips = own.copy()
    if not open_.any():
        return flips
    cold = np.where(own[waker] < own[wakee], waker, wakee)
    # Could it have come to the recorded CPU? The likeliest CPU alone says more of how well the
    # state of the others was rebuilt.
    narrow, wide = (
        (replay.settle(Told(wide=np.full(len(w), one))).sets == replay.recorded_cpu[:, None]).any(1)
        for one in (False, True)
    )
    n = len(own)
    for_narrow = np.bincount(cold[open_ & narrow & ~wide], minlength=n)
    for_wide = np.bincount(cold[open_ & wide & ~narrow], minlength=n)
    # Who says nothing clearly is as the others.
    lead = np.where(_leads(for_wide, for_narrow), 1, np.where(_leads(for_narrow, for_wide), -1, 0))
    both = int(_leads(for_wide.sum(), for_narrow.sum()))
    wide_tasks = np.where(lead == 0, both, lead) > 0
    # The middle, by factors, of what makes its wakeups wide: `weight` to `high` / `weight`.
    least = np.full(n, 1 << 62)
    np.minimum.at(least, cold[open_], high[open_])
    asked = np.unique(cold[open_])
    asked = asked[wide_tasks[asked]]
    flips[asked] = np.sqrt(least[asked]).astype(np.int64)
    return flips


def _leads(a: Array, b: Array) -> Array:
    """Whether outcomes for a outnumber those for b by more than chance would."""
    return np.asarray((a - b) > _SURE * np.sqrt(a + b))


def told_wide(flips: Array, waker: Array, wakee: Array, weight: Array) -> Array:
    """wake_wide() of pairs with these counters; bool[n]."""
    low, high = np.minimum(flips[waker], flips[wakee]), np.maximum(flips[waker], flips[wakee])
    return np.asarray((low >= weight) & (high >= low * weight))
