"""Block bootstrap of one figure of one capture, and the interval of a difference of two.

A capture is a single run of a process that remembers: neighbouring stretches of it resemble each
other, so stretches, not events, are drawn with replacement. How long they have to be is read off
the data: Politis & White (2004, corrected by Patton, Politis & White 2009) for the length, and,
of that length and twice it, the one that gives the larger variance, as a length that is too short
can only hide variance. Blocks are few (at most 64), so percentiles of the draws would give
intervals that are too short: their level is widened as Student's t would (Hesterberg 2015, the
expanded percentile interval), and the interval holds Student's own, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "DRAWS",
    "LEVEL",
    "LEVELS",
    "Estimate",
    "Interval",
    "block_length",
    "blocks_for",
    "difference",
    "quantile_estimate",
    "ratio_estimate",
    "student",
    "weights",
]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

#: How often blocks are drawn.
DRAWS = 1200
#: What an interval covers.
LEVEL = 0.95
#: Into how many blocks a window may be cut. Four only where the data ask for it.
LEVELS = (64, 32, 16, 8, 4)
#: Of fewer events than this chance is never taken to be less than Poisson's.
FEW = 30
#: Ranks of the values among which a drawn percentile is looked for, in its standard errors.
_REACH, _STEPS = 5.0, 65


@dataclass(frozen=True)
class Estimate:
    """One figure of one capture.

    ``variance`` is that of ``value`` within the capture, from ``blocks`` blocks; ``draws``
    float64[DRAWS] are its values in the bootstrap; ``short`` says that the figure changes over
    stretches too long for the window. None and 0 where there are too few data.
    """

    value: float | None
    n: int
    draws: F64 | None = field(default=None, repr=False)
    variance: float | None = None
    blocks: int = 0
    short: bool = False
    #: The spread of the figure over sixteenths of the window.
    spread: float | None = None


@dataclass(frozen=True)
class Interval:
    """A difference B - A with its 95 % interval and two-sided p.

    ``told`` is False where it holds 0 because something is not known, not because of chance.
    """

    lo: float
    hi: float
    p: float
    told: bool = True


def student(df: float, level: float = LEVEL) -> float:
    """Quantile of Student's t that leaves (1 - level) / 2 above it.

    >>> round(student(10), 3), round(student(1e9), 3)
    (2.228, 1.96)
    """
    from scipy.special import stdtrit

    return float(stdtrit(df, 0.5 + level / 2))


def block_length(series: F64) -> float:
    """Length of the blocks, in places of the series, by Politis & White for the block bootstrap.

    Parameters
    ----------
    series : float64[k]
        Contributions of equal stretches of time to the figure.

    Returns
    -------
    float
        1.0 and more.
    """
    k = len(series)
    x = series - series.mean()
    c0 = float(x @ x) / k
    if k < 8 or c0 <= 0:
        return 1.0
    most = int(np.ceil(np.sqrt(k))) + 5
    most = min(most, k - 2)
    # Autocovariances by one transform: k is small, but there are hundreds of series.
    n = 1 << (2 * k - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(x, n)) ** 2
    cov = np.fft.irfft(spectrum, n)[: most + 1] / k
    quiet = max(5, int(np.sqrt(np.log10(k))))
    bound = 2 * np.sqrt(np.log10(k) / k)
    loud = np.abs(cov[1:] / c0) >= bound
    lags = most
    run = 0
    for i, high in enumerate(loud):
        run = 0 if high else run + 1
        if run == quiet:
            lags = i + 1 - quiet
            break
    width = min(max(2 * lags, 1), most)
    lag = np.arange(1, width + 1)
    window = np.clip(2 * (1 - lag / width), 0.0, 1.0) if width > 1 else np.ones(1)
    g0 = c0 + 2 * float((window * cov[1 : width + 1]).sum())
    g1 = 2 * float((window * lag * cov[1 : width + 1]).sum())
    if g0 <= 0:
        return 1.0
    length = (2 * g1**2 / (4 / 3 * g0**2)) ** (1 / 3) * k ** (1 / 3)
    return float(np.clip(length, 1.0, k / 3))


@dataclass(frozen=True)
class Blocks:
    """Into how many blocks a series is cut, and the variance of its sum by them.

    ``stretch`` is by how much deviations of the draws are stretched for what blocks of this length
    do not yet hold.
    """

    count: int
    variance: float
    stretch: float
    #: The series changes over stretches longer than an eighth of the window.
    short: bool


def _variance(series: F64, m: int) -> float:
    sums = series.reshape(m, -1).sum(axis=1)
    return float(sums.var(ddof=1)) * m


def blocks_for(series: F64) -> Blocks:
    """The blocks of a series of a power of two of places, at least 8."""
    k = len(series)
    wanted = block_length(series)
    fine = [m for m in LEVELS if m <= k and k / m >= wanted]
    short = not fine or fine[0] <= 4
    first = fine[0] if fine else LEVELS[-1]
    best, variance = first, -1.0
    for m in (first, first // 2):
        if m < (4 if short else 8):
            continue
        v = _variance(series, m)
        if v > variance * (1 + 1e-9):
            best, variance = m, v
    # Where blocks of half the length give less, longer ones would give more (Vats & Flegal 2022,
    # lugsail estimators: the bias goes with 1 / length).
    more = 2 * variance - _variance(series, 2 * best) if 2 * best <= k else variance
    if variance <= 0 or more <= variance:
        return Blocks(best, max(variance, 0.0), 1.0, short)
    return Blocks(best, more, float(np.sqrt(more / variance)), short)


@lru_cache(maxsize=32)
def weights(blocks: int, seed: int) -> F64:
    """How often each draw has each block, float64[DRAWS, blocks]."""
    rng = np.random.default_rng((seed, blocks))
    drawn = rng.multinomial(blocks, np.full(blocks, 1 / blocks), DRAWS)
    return np.asarray(drawn, np.float64)


def _product(w: F64, sums: F64, stretch: float) -> F64:
    # Not by matrix product: its threads would spin longer than these few numbers take.
    out: F64 = np.einsum("db,b...->d...", w if stretch == 1 else 1 + stretch * (w - 1), sums)
    return out


def _spread(num: F64, den: F64) -> float | None:
    parts = min(16, len(num))
    a, b = num.reshape(parts, -1).sum(axis=1), den.reshape(parts, -1).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = a / b
    values = values[np.isfinite(values)]
    return float(values.std(ddof=1)) if len(values) > 2 else None


def ratio_estimate(
    num: F64,
    den: F64,
    *,
    n: int,
    seed: int,
    exact: float | None = None,
    counts: bool = False,
    share: bool = False,
) -> Estimate:
    """The ratio of two sums over the window.

    Parameters
    ----------
    num, den : float64[k], per stretch of time
    n : what is counted
    exact : the figure as it is known from elsewhere; the draws are shifted to it
    counts : the numerator counts events: of a few, chance alone would give more or less
    share : the denominator counts events, too, of which those of the numerator are some
    """
    total = float(den.sum())
    if total <= 0:
        return Estimate(None, n)
    ratio = float(num.sum()) / total
    value = ratio if exact is None else exact
    if len(num) < 8:
        return Estimate(value, n)
    b = blocks_for((num - ratio * den) / total)
    per_block = np.stack([num, den], axis=1).reshape(b.count, -1, 2).sum(axis=1)
    sums = _product(weights(b.count, seed), per_block, b.stretch)
    with np.errstate(invalid="ignore", divide="ignore"):
        draws = np.where(sums[:, 1] > 0, sums[:, 0] / sums[:, 1], ratio)
    spread = _spread(num, den)
    variance = b.variance
    few = float(min(num.sum(), total - num.sum())) if share else float(num.sum())
    if counts and few < FEW:
        # Blocks cannot show how rare events scatter that hardly one of them holds.
        variance = max(variance, (few + 1) / total**2)
    return Estimate(
        value,
        n,
        draws - ratio + value,
        variance,
        b.count,
        b.short,
        spread,
    )


def quantile_estimate(
    ordered: I64, bins: npt.NDArray[Any], q: float, k: int, seed: int
) -> Estimate:
    """A percentile: the smallest value of which at least a share q of all is ≤ it.

    Parameters
    ----------
    ordered : int64[n], ascending
    bins : int[n], the stretch of time (below k) of each of these values
    q : share
    k : number of stretches
    """
    n = len(ordered)
    if not n:
        return Estimate(None, 0)
    rank = max(0, int(np.ceil(q * n)) - 1)
    value = int(ordered[rank])
    if k < 8 or n * min(q, 1 - q) < 5:
        return Estimate(float(value), n)
    all_ = np.bincount(bins, minlength=k).astype(np.float64)
    upto = int(np.searchsorted(ordered, value, side="right"))
    below = np.bincount(bins[:upto], minlength=k).astype(np.float64)
    # Values equal to the percentile count in part, so that their share is q (as if drawn apart).
    under = int(np.searchsorted(ordered, value, side="left"))
    ties = np.bincount(bins[under:upto], minlength=k).astype(np.float64)
    part = (upto - q * n) / max(upto - under, 1)
    series = below - part * ties - q * all_
    b = blocks_for(series / n)
    blocks = b.count
    reach = max(np.sqrt(b.variance) * n, 1.0)
    ranks = np.unique(
        np.clip(np.rint(rank + reach * np.linspace(-_REACH, _REACH, _STEPS)), 0, n - 1).astype(int)
    )
    candidates = np.unique(np.concatenate([ordered[ranks], ordered[[0, -1]]]))
    ends = np.searchsorted(ordered, candidates, side="right")
    per = k // blocks
    coarse = bins // per
    counts = np.empty((blocks, len(candidates)))
    at = np.zeros(blocks)
    begin = 0
    for i, end in enumerate(ends.tolist()):
        at += np.bincount(coarse[begin:end], minlength=blocks)
        counts[:, i] = at
        begin = end
    w = weights(blocks, seed)
    drawn = _product(w, counts, b.stretch)
    need = q * _product(w, all_.reshape(blocks, per).sum(axis=1), b.stretch)
    found = (drawn >= need[:, None] - 1e-9).argmax(axis=1)
    draws = candidates[found].astype(np.float64)
    return Estimate(
        float(value),
        n,
        draws,
        float(draws.var()) * blocks / (blocks - 1),
        blocks,
        b.short,
    )


def difference(a: Estimate, b: Estimate) -> Interval | None:
    """B - A of two captures; None without draws of both."""
    if a.draws is None or b.draws is None or a.value is None or b.value is None:
        return None
    return _interval(b.draws - a.draws, b.value - a.value, (a, b))


def relative(a: Estimate, b: Estimate) -> Interval | None:
    """B / A of two captures; None without draws of both, or where A may be 0."""
    if a.draws is None or b.draws is None or not a.value or b.value is None:
        return None
    if (a.draws <= 0).any() or a.variance is None or b.variance is None:
        return None
    ratio = b.value / a.value
    scaled_a = Estimate(None, 0, None, (ratio / a.value) ** 2 * a.variance, a.blocks)
    scaled_b = Estimate(None, 0, None, b.variance / a.value**2, b.blocks)
    return _interval(b.draws / a.draws, ratio, (scaled_a, scaled_b), null=1.0)


def alone(b: Estimate) -> Interval | None:
    """The figure of one capture itself."""
    if b.draws is None or b.value is None:
        return None
    return _interval(b.draws, b.value, (b,))


def welch(parts: list[tuple[float, float]]) -> tuple[float, float]:
    """(standard error, degrees of freedom) of a sum of independent parts (variance, df)."""
    total = sum(v for v, _ in parts)
    if total <= 0:
        return 0.0, min(df for _, df in parts)
    return float(np.sqrt(total)), total**2 / sum(v**2 / df for v, df in parts if v > 0)


def _interval(draws: F64, d: float, sides: tuple[Estimate, ...], null: float = 0.0) -> Interval:
    from scipy.special import ndtr, ndtri, stdtr

    se, df = welch([(s.variance or 0.0, s.blocks - 1) for s in sides])
    t = student(df)
    grown = np.sqrt(1 + 1 / (min(s.blocks for s in sides) - 1))
    level = float(ndtr(-t * grown))
    lo, hi = np.quantile(draws, [level, 1 - level])
    lo, hi = min(lo, d - t * se, d), max(hi, d + t * se, d)
    # p, by the same two ways, the larger one; draws that do not reach the null say nothing more.
    p_student = 2 * float(stdtr(df, -abs(d - null) / se)) if se > 0 else float(d == null)
    beyond = min(float((draws <= null).mean()), float((draws >= null).mean()))
    p_draws = 2 * float(stdtr(df, ndtri(beyond) / grown)) if 0 < beyond < 0.5 else float(beyond > 0)
    return Interval(float(lo), float(hi), min(1.0, max(p_student, p_draws)))
