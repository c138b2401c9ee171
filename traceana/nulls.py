"""Null models of the ttwu race: how many double bookings would chance give?

A decided wakeup that found its CPU idle *meets* another one when that had chosen the same CPU
before and could not be seen yet. How often that happens as recorded is compared with

* *choice*: the wakers at the recorded times, each choosing uniformly among the CPUs of the search
  domain (the LLC of the CPU that it chose) that looked idle at its decision. It says what the
  length of the windows and the number of wakers in them give by themselves. A ratio above 1: wakers
  that look at the same time choose the same CPU more often than blind ones would (they scan from
  the same place); below 1: they avoid each other (each prefers its own previous CPU).
* *timing*: the recorded choices at other times: each wakeup is moved by more than a window, to an
  instant at which its CPU looked idle as well. A ratio above 1: bookings of one CPU come closer
  together than by accident.

Both are asked of at most ``DECISIONS`` wakeups, in stretches spread over the capture. Which CPUs a
wakee may use is taken as all of the LLC; what a wakee elsewhere would have changed is not followed.
The same test at the likeliest instants counts the recorded and the drawn, so that the ratio does
not hang on how double bookings are classed. It is narrower than that of the classes, which go by
what is possible: it finds most of the strict ones, not all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import _nulls_kernels as k
from traceana.topology import TopologyArrays

if TYPE_CHECKING:
    from traceana.bookings import Bookings
    from traceana.timeline import Timeline

__all__ = ["BLOCKS", "DECISIONS", "DRAWS", "Null", "Nulls", "nulls"]

#: Wakeups that are asked at most, and in how many stretches.
DECISIONS, STRETCHES = 20_000, 64
#: Draws of the two models, and how often a moved wakeup looks for an instant.
DRAWS, SHIFTS, TRIES = 100, 25, 6
#: Blocks of the counts, for an interval.
BLOCKS = 32
#: Rows ahead of a stretch that are drawn along, so that its first ones can meet somebody.
_LEAD = 64
#: Wakeups are moved by at least so many windows: as long as nearly all of them.
_WINDOW_SHARE = 99

NULL = -(2**63)
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Null:
    """One model's counts.

    ``observed``, ``expected``: float64[BLOCKS], rows that meet another one, as recorded and on the
    average of the draws; ``drawn``: float64[draws], the totals of the draws. ``asked``: how many
    wakeups; of these ``placed`` (a share) found an instant to be moved to.
    """

    observed: Array
    expected: Array
    drawn: Array
    asked: int
    placed: float = 1.0

    def drawn_interval(self) -> tuple[float, float]:
        """What 95 % of the draws give."""
        lo, hi = np.percentile(self.drawn, [2.5, 97.5])
        return float(lo), float(hi)


@dataclass(frozen=True)
class Nulls:
    """Both models, and of what they were asked.

    ``decisions``: wakeups that found their CPU idle, in all; ``asked``: those of the sample;
    ``idle_mean``: CPUs that looked idle to one of them, on the average; ``outstanding_mean``:
    bookings that it could not see yet; ``nearest_ns``: wakeups are moved by one to four times that.
    """

    choice: Null
    timing: Null
    decisions: int
    asked: int
    idle_mean: float
    outstanding_mean: float
    nearest_ns: int


def nulls(
    timeline: Timeline,
    bookings: Bookings,
    topology: TopologyArrays,
    own: Array,
    *,
    blur_ns: int = 300,
    seed: int = 1,
    decisions: int = DECISIONS,
    draws: int = DRAWS,
    shifts: int = SHIFTS,
) -> Nulls | None:
    """Ask both models; None where no wakeup found an idle CPU.

    Parameters
    ----------
    timeline, bookings : of one capture
    topology : for at least the timeline's CPUs
    own : int32[n], the waker's CPU per row of the bookings; -1 not known
    blur_ns : instants are believed to within so much: a booking is taken to be seen so much after
        its likeliest instant
    seed : equal seeds give equal results
    decisions, draws, shifts : how many wakeups are asked, and how often by the two models
    """
    b = bookings
    order = np.argsort(b.decided, kind="stable")
    fit = (b.cpu[order] >= 0) & (b.cpu[order] < topology.n_cpus)
    order = order[fit]
    foreign = b.looked_idle[order] & (b.cpu[order] != own[order])
    total = int(foreign.sum())
    if not total:
        return None
    kept, counted = _sample(foreign, decisions)
    rows = order[kept]
    cpu = np.ascontiguousarray(b.cpu[rows], np.int32)
    own_cpu = np.ascontiguousarray(own[rows], np.int32)
    look, decided, shown = (
        np.ascontiguousarray(a[rows], np.int64) for a in (b.read, b.decided, b.visible)
    )
    look, shown = np.minimum(look, decided), shown + blur_ns
    idle = np.ascontiguousarray(b.looked_idle[rows]).view(np.uint8)
    ids = np.ascontiguousarray(b.rows[rows], np.int64)
    asked = int(counted.sum())
    block = np.zeros(len(rows), np.int32)
    block[counted] = np.arange(asked) * BLOCKS // asked
    mask = counted.view(np.uint8)
    window = np.maximum(shown - look, 0)
    longest = int(window.max())
    start, near = _neighbours(look, shown, decided, idle, longest)
    gaps = _Gaps.of(timeline, topology.n_cpus)
    size, sets = _idle_sets(look, shown, cpu, idle, topology, gaps)
    recorded = np.zeros(BLOCKS, np.int64)
    hits = np.zeros((draws, BLOCKS), np.int64)
    k.choose(
        draws, seed, ids, mask, cpu, own_cpu, idle, size, sets, start, near, block,
        np.empty(len(rows), np.int32), recorded, hits,
    )  # fmt: skip
    nearest = max(int(np.percentile(window[counted], _WINDOW_SHARE)), 1) + 1
    by_cpu = np.lexsort((decided, cpu))
    c_start = np.searchsorted(cpu[by_cpu], np.arange(topology.n_cpus + 1)).astype(np.int64)
    placed, moved = np.zeros((shifts, BLOCKS), np.int64), np.zeros((shifts, BLOCKS), np.int64)
    k.shift(
        shifts, seed + 1, nearest, TRIES, ids, mask, cpu, look, decided, shown, longest, c_start,
        by_cpu, decided[by_cpu], gaps.start, gaps.begin, gaps.end, block, placed, moved,
    )  # fmt: skip
    of_block = np.bincount(block[counted], minlength=BLOCKS)
    found = placed.sum()
    # Those that found no instant are taken to be like the others of all blocks.
    share = moved.sum(axis=1) / np.maximum(placed.sum(axis=1), 1)
    per_block = moved.sum(axis=0) / max(int(found), 1) * (asked if found else 0)
    return Nulls(
        choice=Null(
            recorded.astype(float), hits.mean(axis=0), hits.sum(axis=1).astype(float), asked
        ),
        timing=Null(
            recorded.astype(float),
            per_block,
            share * asked,
            asked,
            float(found / max(shifts * int(of_block.sum()), 1)),
        ),
        decisions=total,
        asked=asked,
        idle_mean=float(size[counted].mean()),
        outstanding_mean=float(np.diff(start)[counted].mean()),
        nearest_ns=nearest,
    )


def _sample(foreign: Array, decisions: int) -> tuple[Array, Array]:
    """Places that are drawn, and which of them count (bool)."""
    n, total = len(foreign), int(foreign.sum())
    if total <= decisions:
        return np.arange(n), foreign
    places = np.flatnonzero(foreign)
    each = max(decisions // STRETCHES, 1)
    begins = np.linspace(0, total - each, STRETCHES).astype(np.int64)
    keep, count = np.zeros(n, bool), np.zeros(n, bool)
    for begin in begins:
        a, z = int(places[begin]), int(places[begin + each - 1])
        keep[max(a - _LEAD, 0) : z + 1] = True
        count[a : z + 1] = True
    count &= foreign
    kept = np.flatnonzero(keep)
    return kept, count[kept]


def _neighbours(
    look: Array, shown: Array, decided: Array, idle: Array, longest: int
) -> tuple[Array, Array]:
    start = np.empty(len(look) + 1, np.int64)
    near = np.empty(4 * len(look) + 16, np.int32)
    need = k.neighbours(look, shown, decided, idle, longest, start, near)
    if need > len(near):
        near = np.empty(need, np.int32)
        k.neighbours(look, shown, decided, idle, longest, start, near)
    return start, near


@dataclass(frozen=True)
class _Gaps:
    """Idle gaps by CPU: int64[cpus + 1], int64[k], int64[k]."""

    start: Array
    begin: Array
    end: Array

    @classmethod
    def of(cls, timeline: Timeline, n_cpus: int) -> _Gaps:
        cpus, begins, ends = [], [], []
        for chunk in timeline.rows.chunks("idle_gaps", ("cpu", "start", "end")):
            cpus.append(chunk.column("cpu").to_numpy())
            begins.append(chunk.column("start").fill_null(-k.FAR).to_numpy())
            ends.append(chunk.column("end").fill_null(k.FAR).to_numpy())
        cpu = np.concatenate(cpus) if cpus else np.zeros(0, np.int32)
        begin = np.concatenate(begins) if begins else np.zeros(0, np.int64)
        end = np.concatenate(ends) if ends else np.zeros(0, np.int64)
        fit = (cpu >= 0) & (cpu < n_cpus)
        cpu, begin, end = cpu[fit], begin[fit], end[fit]
        order = np.lexsort((begin, cpu))
        start = np.searchsorted(cpu[order], np.arange(n_cpus + 1)).astype(np.int64)
        return cls(start, begin[order].astype(np.int64), end[order].astype(np.int64))


def _idle_sets(
    look: Array, shown: Array, cpu: Array, idle: Array, topology: TopologyArrays, gaps: _Gaps
) -> tuple[Array, Array]:
    widest = max(int(topology.llc_weight.max(initial=0)), 1)
    size = np.zeros(len(look), np.int32)
    sets = np.empty((len(look), widest), np.int32)
    k.idle_sets(
        np.argsort(look, kind="stable"), look, cpu, idle, np.argsort(shown, kind="stable"), shown,
        topology.llc, topology.llc_start, topology.llc_cpus, gaps.start, gaps.begin, gaps.end,
        gaps.start[:-1].copy(), np.full(topology.n_cpus, -k.FAR, np.int64), size, sets,
    )  # fmt: skip
    return size, sets
