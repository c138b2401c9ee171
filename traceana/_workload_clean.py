"""What wakeups and interrupts cost a burst, measured, and bursts without it.

A script made from a recording carries what the recorded kernel did on the task's time: selecting
a CPU, taking locks, recording events. The model of the machine adds its own, so that it must be
taken out here: by how each wakeup went, never by the rule that is to be tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana import schema
from traceana._sim_state import Op
from traceana._workload_marks import Mark, Marks, Outcome

__all__ = [
    "DEFAULT_WAKE_NS",
    "NEWIDLE_NS",
    "REFERENCE",
    "WakeCosts",
    "clean",
    "measure_wakes",
    "scale_of",
    "ways_of",
]

Array = npt.NDArray[Any]
NULL = -(2**63)
#: The last record of a wakeup on its waker's CPU to the waker's next instruction, by Outcome, where
#: recording an event takes REFERENCE ns (Linux 6.1: captures whose wakers sleep at once); and how
#: long the way to that record is where none is seen.
DEFAULT_WAKE_NS = (1940, 1500, 1900, 1850, 1500, 1900)
_DEFAULT_WAY_NS = (0, 2550, 0, 860, 3300, 0)
REFERENCE = 820
#: There, update_blocked_averages(): a switch to idle takes so much longer if a newidle balance is
#: tried.
NEWIDLE_NS = 450
#: There, the shortest ways of wakeups: to sched_migrate_task; to sched_wakeup of an idle CPU, and
#: of the waker's own, both without a migration.
_WAYS_NS = (860, 1944, 2400)
#: An outcome's cost is what this share of its wakeups undercut …
_SHORTEST = 2
#: … if that is not so much more than the default: then the wakers went on to work of their own.
_BELIEVED = 1.5
#: No outcome costs less than this share of its default.
_AT_LEAST = 0.5
#: Fewer wakeups do not tell a cost; fewer of a kind do not tell a difference.
_FEW, _FEWEST = 50, 10
#: A burst is tight if the middle half of its like lie within this share of the median, or ns.
_TIGHT_SHARE, _TIGHT_NS = 0.25, 400
#: What lies so many middle halves (at least ns) above the upper quarter is an outlier, …
_FAR, _FAR_NS = 4, 400
#: … unless more than this share does: then it is no accident.
_RARE = 0.06


@dataclass(frozen=True)
class WakeCosts:
    """What a wakeup takes its waker, ns by Outcome.

    ``ns`` behind the last record of it on the waker's CPU, ``way`` the shortest way to that from
    sched_waking; ``n`` wakeups seen, ``measured`` or not.
    """

    ns: Array
    n: Array
    measured: Array
    way: Array


def scale_of(event_cost_ns: int | None, w: Array) -> float:
    """How much longer than on the machine of the known offsets everything takes.

    By what recording an event costs; that is only bounded from above by what is recorded one after
    the other, so nothing that is known as a whole may come out longer than it was.

    Parameters
    ----------
    w : rows of wakeups
    """
    scale = (event_cost_ns or REFERENCE) / REFERENCE
    w = w[(w["kind"] == schema.WakeKind.DECIDED) & (w["context"] == schema.WakeContext.TASK)]
    w = w[(w["waking"] != NULL) & (w["wakeup"] != NULL)]
    stays = w["mig"] == NULL
    remote = w["queueing"] == schema.Queueing.REMOTE
    own = (w["queueing"] == schema.Queueing.DIRECT) & (w["placed"] == w["this_cpu"])
    ways = (
        (w["mig"] - w["waking"])[~stays],
        (w["wakeup"] - w["waking"])[stays & remote & (w["placed_idle"] == 1)],
        (w["wakeup"] - w["waking"])[stays & own],
    )
    for took, there in zip(ways, _WAYS_NS, strict=True):
        if len(took) >= _FEW:
            scale = min(scale, float(np.percentile(took, _SHORTEST)) / there)
    return min(max(scale, 0.05), 4.0)


def ways_of(marks: Marks, w: Array) -> Array:
    """From each waking to the last record of the wakeup on the waker's CPU, ns (int64[marks]).

    That is sched_wakeup where the waker itself enqueued the task, else sched_migrate_task if there
    is one. How many CPUs were looked at, waiting for locks and the cost of recording lie before it;
    it is known of each wakeup, so none of it need be guessed.
    """
    out = np.zeros(len(marks.table), np.int64)
    at = np.flatnonzero((marks.outcome >= 0) & (marks.table[:, Mark.ROW] >= 0))
    row = marks.table[at, Mark.ROW]
    if not len(row):
        return out
    outcome = marks.outcome[at]
    direct = outcome % Outcome.MIGRATE == Outcome.DIRECT
    moved = outcome == Outcome.REMOTE + Outcome.MIGRATE
    last = np.where(direct, w["wakeup"][row], np.where(moved, w["mig"][row], NULL))
    waking = w["waking"][row]
    known = (last != NULL) & (waking != NULL)
    out[at] = np.where(known, np.maximum(last - waking, 0), 0)
    return out


def measure_wakes(marks: Marks, scale: float, ways: Array) -> WakeCosts:
    """What a wakeup costs its waker behind its last record, by outcome.

    Of each wakeup the time to the next thing that its waker does is known: the way to the record
    (``ways``, see :func:`ways_of`), the cost behind it, and the waker's own work. The shortest show
    the cost of the commonest outcome; how much more another one costs is the difference between
    the lowest tenths of the same waker, wakee and next thing. ``scale``: of :func:`scale_of`.
    """
    t = marks.table
    default = np.array(DEFAULT_WAKE_NS) * scale
    ns, n = default.copy(), np.zeros(Outcome.N, np.int64)
    measured = np.zeros(Outcome.N, bool)
    way = np.array(_DEFAULT_WAY_NS) * scale
    at = np.flatnonzero((t[:-1, Mark.WHAT] == Mark.WAKE) & (t[1:, Mark.TASK] == t[:-1, Mark.TASK]))
    # an interrupt's mark stands at the end of its stretch: no clean tail
    at = at[np.isin(t[at + 1, Mark.WHAT], (Mark.WAKE, Mark.OUT))]
    if not len(at):
        return WakeCosts(ns.astype(np.int64), n, measured, way.astype(np.int64))
    tail = t[at + 1, Mark.TS] - t[at, Mark.TS] - ways[at]
    outcome = marks.outcome[at]
    for one in range(Outcome.N):
        mine = ways[at][outcome == one]
        if len(mine) >= _FEW:
            way[one] = np.percentile(mine, _SHORTEST)
    n = np.bincount(outcome, minlength=Outcome.N)
    main = int(n.argmax())
    if n[main] >= _FEW:
        ns[main], measured[main] = _believed(tail[outcome == main], default[main])
    like = _group(t[at, Mark.TASK], t[at, Mark.OTHER], t[at + 1, Mark.WHAT], t[at + 1, Mark.OTHER])
    low, counts = _low(like * Outcome.N + outcome, tail, (int(like.max()) + 1) * Outcome.N)
    low = low.reshape(-1, Outcome.N)
    counts = counts.reshape(-1, Outcome.N)
    for other in range(Outcome.N):
        if other == main:
            continue
        ns[other] = ns[main] + default[other] - default[main]
        both = (counts[:, main] >= _FEWEST) & (counts[:, other] >= _FEWEST)
        if both.any():
            weight = np.minimum(counts[both, main], counts[both, other])
            more = low[both, other] - low[both, main]
            ns[other], measured[other] = ns[main] + _weighted_median(more, weight), True
        elif n[other] >= _FEW:
            ns[other], measured[other] = _believed(tail[outcome == other], ns[other])
    # Outcomes that belong to other work than the commonest one's differ by that work, too.
    least = np.maximum(ns, _AT_LEAST * default).astype(np.int64)
    return WakeCosts(least, n, measured, way.astype(np.int64))


def _believed(tail: Array, default: float) -> tuple[float, bool]:
    shortest = float(np.percentile(tail, _SHORTEST))
    return (shortest, True) if shortest <= _BELIEVED * default else (default, False)


def _group(*columns: Array) -> Array:
    """Dense number of each distinct row."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        which = _dense(column.astype(np.int64))
        key = _dense(key * (int(which.max()) + 1) + which)
    return key


def _dense(values: Array) -> Array:
    """Rank of each value among those that occur."""
    least = int(values.min())
    span = int(values.max()) - least + 1
    if span > max(4 * len(values), _FEW):
        return np.asarray(np.unique(values, return_inverse=True)[1])
    there = np.zeros(span, np.int64)
    there[values - least] = 1
    ranks: Array = (np.cumsum(there) - 1)[values - least]
    return ranks


def _low(group: Array, values: Array, n: int) -> tuple[Array, Array]:
    """The lowest tenth of each group's values, and how many there are."""
    order = np.lexsort((values, group))
    counts = np.bincount(group, minlength=n)
    begin = np.append(0, np.cumsum(counts)[:-1])
    at = np.minimum(begin + counts // 10, len(values) - 1)
    return values[order][at].astype(float), counts


def _weighted_median(values: Array, weights: Array) -> float:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])


def clean(op: Array, at_mark: Array, first: Array, outcome: Array, main: int) -> int:
    """Replace runs that are far above their like by the median of these; in place.

    Like are the runs of one task between the same two things (a wakeup of the same task, a sleep).
    Behind a wakeup the like are those whose wakeup went the commonest way (``main``): what the
    others have more is the kernel's. Groups that scatter by themselves are left alone.

    Parameters
    ----------
    op : int64[n, 4], rows of all scripts, changed in place
    at_mark : int64[n]
    first : int64[tasks], first rows
    outcome : int64[marks]

    Returns
    -------
    ns taken out.
    """
    run = np.flatnonzero(op[:, 0] == Op.RUN)
    run = run[run + 1 < len(op)]
    if not len(run):
        return 0
    task = np.searchsorted(np.sort(first), run, "right")
    begins = np.isin(run, first)
    before = np.where(begins, 0, run - 1)
    what = np.where(begins, -1, op[before, 0])
    whom = np.where(begins, -1, np.where(what == Op.WAKE, op[before, 2], -1))
    until = op[run + 1, 0]
    other = np.where(until == Op.WAKE, op[run + 1, 2], -1)
    like = _group(task, what, whom, until, other)
    value = op[run, 3]
    n = int(like.max()) + 1
    behind_wake = what == Op.WAKE
    came = at_mark[before]
    known = behind_wake & (came >= 0)
    went = np.full(len(run), main)
    went[known] = outcome[came[known]]
    usual = went == main
    # Groups in which the commonest outcome is rare have no other measure than all of their rows.
    enough = np.bincount(like[usual], minlength=n) >= _FEW // 2
    judge = usual | ~enough[like]
    low, middle, high, counts = _quartiles(like[judge], value[judge], n)
    spread = high - low
    tight = (counts >= _FEWEST) & (spread <= np.maximum(_TIGHT_SHARE * middle, _TIGHT_NS))
    limit = high + np.maximum(_FAR * spread, _FAR_NS)
    far = tight[like] & (value > limit[like])
    share = np.bincount(like[judge], weights=far[judge], minlength=n) / np.maximum(counts, 1)
    # Behind wakeups that went another way, everything above the usual is the kernel's.
    far &= (share <= _RARE)[like]
    taken = int((value - middle[like])[far].sum())
    op[run[far], 3] = middle[like[far]]
    return taken


def _quartiles(group: Array, values: Array, n: int) -> tuple[Array, Array, Array, Array]:
    order = np.lexsort((values, group))
    counts = np.bincount(group, minlength=n)
    begin = np.append(0, np.cumsum(counts)[:-1])
    ordered = values[order]
    out = []
    for quarter in (1, 2, 3):
        at = np.minimum(begin + (counts - 1).clip(0) * quarter // 4, max(len(values) - 1, 0))
        out.append(ordered[at] if len(ordered) else np.zeros(n, np.int64))
    return out[0], out[1], out[2], counts
