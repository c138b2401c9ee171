"""Intervals of rates and shares over one capture: blocks of time, drawn with replacement.

Neighbouring stretches of a capture resemble each other, so whole blocks are drawn, not events. Of
two block lengths the wider interval counts, widened as Student's t asks for few blocks, and it is
never narrower than what Poisson's distribution leaves open for so few events (Garwood 1936).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BLOCKS", "Range", "by_time", "idle_by_time", "ratio", "ratio_of_counts"]

#: Blocks into which a capture is cut; the interval is also made with half as many.
BLOCKS = 32
#: How often they are drawn.
DRAWS = 1000
#: What an interval covers.
LEVEL = 0.95

Array = npt.NDArray[Any]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Range:
    """An estimate with its 95 % interval; None where there is nothing to divide by."""

    value: float | None
    low: float | None
    high: float | None

    def to_json(self) -> dict[str, float | None]:
        """value, low, high."""
        return {"value": self.value, "low": self.low, "high": self.high}


#: Not known.
NOTHING = Range(None, None, None)


def by_time(ts: Array, first: int, last: int, weights: Array | None = None) -> F64:
    """Sums per block of time, float64[BLOCKS]."""
    span = max(last - first, 1)
    block = ((ts - first).astype(np.float64) / span * BLOCKS).astype(np.int64)
    block = np.clip(block, 0, BLOCKS - 1)
    return np.bincount(block, weights=weights, minlength=BLOCKS).astype(np.float64)


def idle_by_time(start: Array, end: Array, first: int, last: int) -> F64:
    """How much of intervals (int64, ns) lies in each block, float64[BLOCKS]."""
    edges = np.linspace(first, last, BLOCKS + 1)

    def upto(ts: Array) -> F64:
        # How far the edges lie behind these times, summed over those that they lie behind.
        ordered = np.sort(np.clip(ts, first, last)).astype(np.float64) - first
        sums = np.concatenate([[0.0], np.cumsum(ordered)])
        n = np.searchsorted(ordered, edges - first)
        return np.asarray(n * (edges - first) - sums[n])

    return np.diff(upto(start) - upto(end))


def poisson(n: int) -> tuple[float, float]:
    """Means between which a count of n leaves them open.

    >>> [round(v, 2) for v in poisson(0)]
    [0.0, 3.69]
    """
    from scipy.special import gammaincinv

    tail = (1 - LEVEL) / 2
    low = float(gammaincinv(n, tail)) if n else 0.0
    return low, float(gammaincinv(n + 1, 1 - tail))


def ratio(num: F64, den: F64, *, events: int, seed: int = 1) -> Range:
    """The ratio of two sums over blocks.

    Parameters
    ----------
    num, den : float64[BLOCKS]
    events : how many events made the numerator
    """
    total = float(den.sum())
    if total <= 0:
        return NOTHING
    value = float(num.sum()) / total
    if not events:
        return Range(value, 0.0, None)
    low, high = value, value
    for k in (BLOCKS, BLOCKS // 2):
        a, b = num.reshape(k, -1).sum(axis=1), den.reshape(k, -1).sum(axis=1)
        lo, hi = _drawn(a, b, value, seed)
        low, high = min(low, lo), max(high, hi)
    few, many = poisson(events)
    return Range(value, min(low, value * few / events), max(high, value * many / events))


def ratio_of_counts(num: F64, den: F64, *, seed: int = 1) -> Range:
    """The same where the numerator counts events: none at all has an upper end, too."""
    made = ratio(num, den, events=round(float(num.sum())), seed=seed)
    if made.value is not None and made.high is None:
        return Range(0.0, 0.0, poisson(0)[1] / float(den.sum()))
    return made


def _drawn(num: F64, den: F64, value: float, seed: int) -> tuple[float, float]:
    from scipy.special import ndtr, stdtrit

    k = len(num)
    rng = np.random.default_rng((seed, k))
    w = rng.multinomial(k, np.full(k, 1 / k), DRAWS).astype(np.float64)
    # Not by matrix product: its threads would spin longer than these few numbers take.
    a, b = (np.einsum("db,b->d", w, x) for x in (num, den))
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = np.where(b > 0, a / b, value)
    # The expanded percentile interval (Hesterberg 2015).
    t = float(stdtrit(k - 1, 0.5 + LEVEL / 2)) * np.sqrt(k / (k - 1))
    level = float(ndtr(-t))
    lo, hi = np.quantile(draws, [level, 1 - level])
    return float(lo), float(hi)
