"""When the CPUs of a capture looked for tasks of others before they went idle (section 8.3).

A newidle balance is tried where the CPU's average idle time is longer than the longest balance of
late (max_newidle_lb_cost), which no event tells. But a try takes time: so each switch to idleness
shows whether there was one, the idle times before it what the average was, and the two together
where the gate stands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import _workload_newidle_kernels as k
from traceana import schema

if TYPE_CHECKING:
    from traceana._workload_marks import Stretches
    from traceana.columns import EventColumns
    from traceana.timeline import Timeline

__all__ = ["Newidle", "find_gate", "measure_newidle", "with_sources"]

NULL = -(2**63)
_MIGRATE = int(schema.EventKind.MIGRATE)
Array = npt.NDArray[Any]
#: Of the record of a wakeup, and of the switch to its task, how long before it the task was
#: enqueued; ns where recording takes the reference.
_ENQUEUE_NS, _SWITCH_NS = 550, 2630
#: So many idle times make an average; so many switches to idleness a gate.
_FORGOTTEN, _FEW = 20, 200
#: One that has looked at the LLC takes so much longer than one that has tried at all.
_LLC_NS = 1300
#: An average at such a look is known to some per cent only: this percentile of them is the gate.
_LOWEST = 10
#: Gates that tell so much less than the best are as good; one that tells less than this is none.
_AS_GOOD, _TELLS = 0.01, 0.2
#: Fewer tries than this share are mistakes: something else took its time.
_MISTAKES = 0.01
_IDLE, _TASK, _PULLED, _FROM_CORE = 0, 1, 2, 3


class Newidle:
    """``gate``: average idle time from which on balances were tried, ``near``: from which on the
    LLC was looked at, ``average``: the mean of that time, ns; -1 not known.
    """

    def __init__(self, gate: int = -1, near: int = -1, average: int = -1) -> None:
        self.gate = gate
        self.near = near
        self.average = average


def measure_newidle(s: Stretches, timeline: Timeline, tried_ns: float, scale: float) -> Newidle:
    """Measure the gate of newidle balances.

    Parameters
    ----------
    tried_ns : a dequeue that takes longer to its switch to idleness has tried a balance
    scale : how much slower than the reference machine this one is
    """
    at = np.flatnonzero(s.told & s.sleeps & (s.follows != _TASK))
    at = at[np.lexsort((s.end[at], s.cpu[at]))]
    if len(at) < _FEW:
        return Newidle()
    idle = _idle_times(s, at, timeline, scale)
    out = np.zeros((len(at), 2), np.int64)
    state = np.zeros((int(s.cpu[at].max()) + 1, 2), np.int64)
    walk: Any = k.average_idle
    walk(s.cpu[at], idle, state, out)
    known = out[:, 1] >= _FORGOTTEN
    tried = (s.follows[at] >= _PULLED) | (s.out[at] - s.end[at] > tried_ns)
    if known.sum() < _FEW:
        return Newidle()
    gate = find_gate(out[known, 0], tried[known])
    # Of those that looked no further than the core all are over the gate of the core only.
    looked = known & (s.follows[at] == _IDLE)
    looked &= s.out[at] - s.end[at] > tried_ns + _LLC_NS * scale
    near = gate
    if looked.sum() >= _FEW // 4:
        near = max(gate, int(np.percentile(out[looked, 0], _LOWEST)))
    return Newidle(gate, near, int(out[known, 0].mean()))


def with_sources(s: Stretches, events: EventColumns, core: Array) -> Stretches:
    """Tell the pulls from a CPU of the same core apart; ``core``: of each CPU."""
    pull = (events.kind == _MIGRATE) & (events.cpu == events.cpu_to) & (events.cpu_from >= 0)
    pull &= (events.cpu < len(core)) & (events.cpu_from < len(core))
    rows = np.flatnonzero(s.follows == _PULLED)
    if not pull.any() or not len(rows):
        return s
    ts, to, origin = events.ts[pull], events.cpu[pull].astype(np.int64), events.cpu_from[pull]
    base = int(min(ts.min(), s.out[rows].min()))
    span = int(max(ts.max(), s.out[rows].max())) - base + 1
    key = to * span + (ts - base)
    order = np.argsort(key, kind="stable")
    at = np.searchsorted(key[order], s.cpu[rows] * span + (s.out[rows] - base), "right") - 1
    last = order[np.maximum(at, 0)]
    mine = (at >= 0) & (to[last] == s.cpu[rows]) & (ts[last] >= s.end[rows])
    follows = s.follows.copy()
    same = mine & (core[origin[last]] == core[to[last]])
    follows[rows[same]] = _FROM_CORE
    return replace(s, follows=follows)


def _idle_times(s: Stretches, at: Array, timeline: Timeline, scale: float) -> Array:
    """From each dequeue to the next enqueue on that CPU, ns; -1 a task was pulled, or not known."""
    gaps, w = timeline.raw["gaps"], timeline.raw["wakeups"]
    gaps = gaps[(gaps["start"] != NULL) & (gaps["end"] != NULL) & (gaps["cpu"] >= 0)]
    enqueued = gaps["end"] - round(_SWITCH_NS * scale)
    if len(w):
        order = np.argsort(w["id"], kind="stable")
        row = order[np.minimum(np.searchsorted(w["id"][order], gaps["by"]), len(w) - 1)]
        told = (gaps["by"] >= 0) & (w["id"][row] == gaps["by"]) & (w["wakeup"][row] != NULL)
        enqueued = np.where(told, w["wakeup"][row] - round(_ENQUEUE_NS * scale), enqueued)
    base = timeline.first_ts
    span = timeline.last_ts - base + 1
    key = gaps["cpu"].astype(np.int64) * span + (gaps["start"] - base)
    order = np.argsort(key, kind="stable")
    mine = s.cpu[at] * span + (s.out[at] - base)
    if not len(order):
        return np.full(len(at), -1, np.int64)
    i = order[np.minimum(np.searchsorted(key[order], mine), len(order) - 1)]
    known = (key[i] == mine) & (s.follows[at] == _IDLE)
    return np.where(known, np.maximum(enqueued[i] - s.end[at], 0), -1)


def find_gate(average: Array, tried: Array) -> int:
    """Find the average from which on balances were tried: below it are fewest of those that were,
    and most of those that were not. Above it not all need be: other conditions hold besides.

    Of several that are as good the lowest: nothing is known of averages that never occurred. Where
    no average tells the two apart all are above the gate.

    >>> find_gate(np.array([5, 6, 7, 8]), np.array([False, False, True, True]))
    7
    """
    order = np.argsort(average, kind="stable")
    value, tried = average[order], tried[order]
    share = float(tried.mean())
    if share < _MISTAKES:
        return int(value[-1]) + 1
    if share == 1:
        return int(value[0])
    # Of those not tried and of those tried, what lies below value[i].
    told = np.cumsum(~tried) / np.sum(~tried) - np.cumsum(tried) / np.sum(tried)
    told = np.append(0, told[:-1])
    if told.max() < _TELLS:
        return int(value[0])
    return int(value[int(np.argmax(told >= told.max() - _AS_GOOD))])
