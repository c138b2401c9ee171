"""What one moved wakeup would have met on the other CPU, and what all of them come to.

Open loop: every other wakeup stays where it was recorded; one wakeup at a time is moved. Its
wait is read off the recorded backlog of the other CPU: the tasks that were runnable there when
it would have been queued leave the CPU first, in the recorded order and with the recorded run
times; the wakee starts when they are gone, or when that CPU next goes idle, whichever is first.
On a CPU that was idle it starts after the median exit latency of the recorded wakeups onto idle
CPUs. Wakeup preemption is not modelled: on a busy CPU the estimate is long rather than short.

Intervals are percentile intervals of a block bootstrap over time: the span is cut into equal
blocks, blocks are drawn with replacement, recorded and estimated values of a block stay together.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BLOCKS", "Backlog", "Bootstrap", "Estimate"]

NULL = -(2**63)
Array = npt.NDArray[Any]

#: Blocks of the bootstrap, and how often they are drawn. Fewer than MIN_BLOCKS: no interval.
BLOCKS, DRAWS, MIN_BLOCKS = 50, 400, 8


@dataclass(frozen=True)
class Estimate:
    """Per moved wakeup, int64 ns: when it would run, both latencies (NULL: not in the window)."""

    run: Array
    latency: Array
    delay: Array


class Backlog:
    """The recorded schedule of every CPU, asked for where a moved wakeup would stand.

    Parameters
    ----------
    raw : the structured arrays of a Timeline
    n_cpus : number of CPUs
    """

    def __init__(self, raw: Mapping[str, Array], n_cpus: int) -> None:
        slices, gaps, w = raw["slices"], raw["gaps"], raw["wakeups"]
        self._ends = _per_cpu(slices["cpu"], slices["end"], n_cpus)
        self._idle = _per_cpu(gaps["cpu"], gaps["start"], n_cpus)
        self._w = w
        onto_idle = (w["placed_idle"] == 1) & (w["latency"] != NULL)
        self.idle_latency = _median(w["latency"][onto_idle])
        waking = w["wake_delay"] != NULL
        self.direct_delay = _median(
            w["wake_delay"][waking & (w["queueing"] == 0) & (w["counts"] == 1)]
        )
        self.remote_delay = _median(
            w["wake_delay"][waking & (w["queueing"] == 1) & (w["counts"] == 1)]
        )

    def estimate(self, rows: Array, cpu: Array, ahead: Array) -> Estimate:
        """Where wakeups ``rows`` would have come if queued on ``cpu`` behind ``ahead`` tasks.

        Parameters
        ----------
        rows : int64[m], wakeups with a waking; cpu : int32[m]; ahead : int64[m], 0 = idle
        """
        w = self._w[rows]
        at = w["waking"]
        run = np.full(len(rows), NULL, np.int64)
        for c in np.unique(cpu):
            here = np.flatnonzero(cpu == c)
            busy = here[ahead[here] > 0]
            ends, idle = self._ends[c], self._idle[c]
            i = np.searchsorted(ends, at[busy], side="right") + ahead[busy] - 1
            left = np.where(
                i < len(ends),
                ends[np.minimum(i, max(len(ends) - 1, 0))] if len(ends) else NULL,
                NULL,
            )
            j = np.searchsorted(idle, at[busy], side="right")
            free = np.where(
                j < len(idle),
                idle[np.minimum(j, max(len(idle) - 1, 0))] if len(idle) else NULL,
                NULL,
            )
            run[busy] = np.where(
                left == NULL, free, np.where(free == NULL, left, np.minimum(left, free))
            )
            calm = here[ahead[here] <= 0]
            exit_ = np.where(w["latency"][calm] != NULL, w["latency"][calm], 0)
            if self.idle_latency is not None:
                exit_ = np.full(len(calm), self.idle_latency)
            run[calm] = at[calm] + exit_
        base = np.where(w["base"] != NULL, w["base"], at)
        run = np.where((run != NULL) & (run < base), base, run)
        recorded = np.where(w["wake_delay"] != NULL, w["wake_delay"], 0)
        direct = recorded if self.direct_delay is None else self.direct_delay
        remote = recorded if self.remote_delay is None else self.remote_delay
        queued = at + np.where(ahead > 0, direct, remote)
        known = run != NULL
        return Estimate(
            run=run,
            latency=np.where(known, run - base, NULL),
            delay=np.where(known, np.maximum(run - queued, 0), NULL),
        )


def _per_cpu(cpu: Array, ts: Array, n_cpus: int) -> list[Array]:
    ok = (ts != NULL) & (cpu >= 0)
    cpu, ts = cpu[ok], ts[ok]
    order = np.lexsort((ts, cpu))
    cuts = np.searchsorted(cpu[order], np.arange(n_cpus + 1))
    ts = ts[order]
    return [ts[a:b] for a, b in itertools.pairwise(cuts)]


def _median(values: Array) -> int | None:
    return int(np.median(values)) if len(values) else None


class Bootstrap:
    """Draws of the time blocks of one span; the same draws for every figure, so deltas pair up.

    Parameters
    ----------
    first, last : int, ns
    n : how many values there are in all; few values make few blocks
    """

    def __init__(self, first: int, last: int, n: int, seed: int = 1) -> None:
        self.blocks = int(min(BLOCKS, n // 4))
        self._first, self._span = first, max(last - first, 1)
        self.usable = self.blocks >= MIN_BLOCKS
        if self.usable:
            rng = np.random.default_rng(seed)
            draws = rng.integers(0, self.blocks, (DRAWS, self.blocks))
            #: How often each draw has each block, float64[draws, blocks].
            self.weights = np.apply_along_axis(np.bincount, 1, draws, minlength=self.blocks).astype(
                np.float64
            )

    def block_of(self, ts: Array) -> Array:
        """Block of each time, int64[n]."""
        share = (ts - self._first).astype(np.float64) / self._span
        return np.clip((share * self.blocks).astype(np.int64), 0, self.blocks - 1)

    def sums(self, ts: Array, values: Array) -> Array:
        """The total of ``values`` in each draw, float64[draws]."""
        per_block = np.bincount(self.block_of(ts), weights=values, minlength=self.blocks)
        return self.total(per_block)

    def total(self, per_block: Array) -> Array:
        """The weighted sum over the blocks in each draw, float64[draws]."""
        # Not by matrix product: its threads would spin longer than these few numbers take.
        out: Array = np.einsum("db,b->d", self.weights, per_block)
        return out

    @staticmethod
    def interval(draws: Array) -> tuple[float, float]:
        """The 95 % percentile interval of draws."""
        lo, hi = np.percentile(draws, [2.5, 97.5])
        return float(lo), float(hi)
