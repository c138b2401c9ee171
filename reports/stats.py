"""Arithmetic of the sections: percentiles that occurred, log bins, sums over time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana.reports.context import NULL
from traceana.summary import percentile

__all__ = [
    "QUANTILES",
    "Spread",
    "integral_of_positive",
    "log_edges",
    "log_histogram",
    "per_bin",
    "spread",
]

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

#: The percentiles that are shown.
QUANTILES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True)
class Spread:
    """A distribution: values that occurred, and the row of the longest."""

    n: int
    p50: int | None
    p90: int | None
    p99: int | None
    p999: int | None
    max: int | None
    #: Row of the maximum in the array that was given; -1 if there is none.
    at: int

    def row(self) -> list[Any]:
        """N and the percentiles, as they stand in tables."""
        return [self.n, self.p50, self.p90, self.p99, self.p999, self.max]


def spread(values: I64, rows: I64 | None = None) -> Spread:
    """Distribution of the known values (not NULL), over all or some rows.

    The smallest value of which at least a share q of all is ≤ it; among equal maxima the first.
    """
    part = values if rows is None else values[rows]
    ordered = part[part != NULL]
    if not len(ordered):
        return Spread(0, None, None, None, None, None, -1)
    ordered.sort()
    at = int(np.argmax(part))  # NULL is below all others
    p50, p90, p99, p999 = (percentile(ordered, q) for q in QUANTILES)
    longest = at if rows is None else int(rows[at])
    return Spread(len(ordered), p50, p90, p99, p999, int(ordered[-1]), longest)


def log_edges(values: I64, per_decade: int = 10, lowest: float = 100.0) -> F64:
    """Edges of log bins (ns) that hold all values: whole decades from ``lowest`` up."""
    top = float(values.max()) if len(values) else lowest
    decades = max(1, int(np.ceil(np.log10(max(top + 1, 10 * lowest) / lowest))))
    return np.asarray(lowest * 10 ** (np.arange(decades * per_decade + 1) / per_decade))


def log_histogram(values: I64, edges: F64, weights: I64 | None = None) -> tuple[F64, float]:
    """Counts (or weights) per bin, and those below the first edge (zero among them)."""
    bins = np.searchsorted(edges, values, side="right") - 1
    inside = bins >= 0
    last = len(edges) - 2
    w = None if weights is None else weights[inside].astype(float)
    counts = np.bincount(np.minimum(bins[inside], last), weights=w, minlength=last + 1)
    below = float((~inside).sum()) if weights is None else float(weights[~inside].sum())
    return counts.astype(float), below


def per_bin(start: I64, end: I64, amount: F64, edges: F64) -> F64:
    """Intervals spread evenly over time bins.

    Parameters
    ----------
    start, end : int64[n], ns; end > start
    amount : float64[n]
        How much of the interval counts, in ns; its length if the whole does.
    edges : float64[m + 1]
        Bins of equal width, ascending.

    Returns
    -------
    float64[m]
        ns per bin.
    """
    lo, hi = edges[0], edges[-1]
    a = np.clip(start, lo, hi).astype(float) - lo
    b = np.clip(end, lo, hi).astype(float) - lo
    length = (end - start).astype(float)
    keep = (b > a) & (length > 0)
    a, b, density = a[keep], b[keep], (amount[keep] / length[keep])
    m = len(edges) - 1
    width = (hi - lo) / m
    # The integral of a step function that rises by `density` at a and falls at b, at the edges.
    out = np.zeros(m + 1)
    slope = np.zeros(m + 2)
    for at, sign in ((a, 1.0), (b, -1.0)):
        bin_ = np.minimum((at / width).astype(np.int64), m - 1)
        inside = (bin_ + 1) * width - at
        out[1:] += np.bincount(bin_, weights=sign * density * inside, minlength=m)[:m]
        slope += np.bincount(bin_ + 1, weights=sign * density, minlength=m + 2)[: m + 2]
    return np.asarray(out[1:] + np.cumsum(slope)[:m] * width)


def integral_of_positive(times: I64, steps: npt.NDArray[Any]) -> tuple[I64, I64]:
    """∫ [level > 0] dt of a level that changes by ``steps`` at ``times``.

    Returns
    -------
    (times ascending, integral at these times); interpolate linearly in between.
    """
    order = np.argsort(times, kind="stable")
    t = times[order]
    level = np.cumsum(steps[order], dtype=np.int32)
    # Of a long capture each of these takes tens of megabytes: none is kept or made for nothing.
    del order
    integral = np.zeros(len(t), np.int64)
    np.subtract(t[1:], t[:-1], out=integral[1:])
    integral[1:][level[:-1] <= 0] = 0
    return t, np.cumsum(integral, out=integral)


def joined(parts: Iterable[str]) -> str:
    """Words in a row: "a, b and c"."""
    words = list(parts)
    if len(words) < 2:
        return "".join(words)
    return ", ".join(words[:-1]) + " and " + words[-1]
