"""A set of recorded values of which a few are replaced: percentiles, sums, and their intervals.

Every rule is compared against the same recording, and moves a part of its wakeups. What belongs to
the recording alone is sorted and counted once here; a rule then costs what its own moves cost.

The percentiles and sums themselves are exact. Those of the bootstrap's draws are exact to one bin:
edges are quantiles of the recorded values (closer together in the last 3 %) and of the new ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from traceana.openloop import Bootstrap

__all__ = ["Change", "Recorded"]

Array = npt.NDArray[Any]
NULL = -(2**63)

#: Bin edges: below and within the last 3 % of the recorded values, and of the new values.
_BODY, _TAIL, _NEW = 768, 256, 256
#: Fewer values: no interval.
_FEW = 40


@dataclass(frozen=True)
class Change:
    """One figure before and after: as recorded, with the replacements, and 95 % intervals."""

    recorded: int
    estimated: int
    interval: tuple[float, float] | None = None
    delta_interval: tuple[float, float] | None = None


class Recorded:
    """Recorded values, prepared for many sets of replacements.

    Parameters
    ----------
    boot : Bootstrap
    at : int64[n], ns
        When each value was taken: its block of the bootstrap.
    values : int64[n]
        NULL is not known, and in no figure.
    """

    def __init__(self, boot: Bootstrap, at: Array, values: Array) -> None:
        self._boot, self._values = boot, values
        known = np.flatnonzero(values != NULL)
        self._sorted = np.sort(values[known])
        self._sum = int(values[known].sum())
        self._usable = boot.usable and len(known) >= _FEW
        self._unchanged: dict[tuple[float, ...], dict[str, Change]] = {}
        if not self._usable:
            return
        self._block = boot.block_of(at)
        block = self._block[known]
        order = np.lexsort((values[known], block))
        by_block = values[known][order]
        cuts = np.searchsorted(block[order], np.arange(boot.blocks + 1))
        self._blocks = [by_block[a:b] for a, b in itertools.pairwise(cuts)]
        self._sums = np.bincount(block, weights=values[known], minlength=boot.blocks)
        n = len(known) - 1
        places = np.concatenate([np.linspace(0, 0.97, _BODY), np.linspace(0.97, 1, _TAIL)])
        self._edges = np.unique(self._sorted[np.round(places * n).astype(np.int64)])

    def replace(self, rows: Array, new: Array, shares: Sequence[float]) -> dict[str, Change]:
        """Percentiles (``p50`` …) and ``sum`` with the values of ``rows`` replaced by ``new``.

        A row whose recorded or new value is not known is in neither side. Empty where no value
        is left.
        """
        shares = tuple(shares)
        if not len(rows) and shares in self._unchanged:
            return self._unchanged[shares]
        old = self._values[rows]
        rows, old, new = rows[old != NULL], old[old != NULL], new[old != NULL]
        lost = new == NULL
        dropped, removed, added = np.sort(old[lost]), np.sort(old), np.sort(new[~lost])
        n = len(self._sorted) - len(dropped)
        if n <= 0:
            return {}
        draws = self._draws(rows, old, new, lost, shares) if self._usable and n >= _FEW else None
        out = {}
        for i, share in enumerate(shares):
            k = max(int(np.ceil(share * n)), 1)
            a, b = self._kth(k, dropped, added[:0]), self._kth(k, removed, added)
            out[f"p{int(share * 100)}"] = self._change(a, b, draws, i)
        before = self._sum - int(dropped.sum())
        after = self._sum - int(removed.sum()) + int(added.sum())
        out["sum"] = self._change(before, after, draws, len(shares))
        if not len(rows):
            self._unchanged[shares] = out
        return out

    def _change(self, a: int, b: int, draws: tuple[Array, Array] | None, i: int) -> Change:
        if draws is None:
            return Change(a, b)
        before, after = draws[0][:, i], draws[1][:, i]
        # A draw's percentile is exact to one bin, the figure itself exact: held in.
        lo, hi = self._boot.interval(after)
        dlo, dhi = self._boot.interval(after - before)
        return Change(a, b, (min(lo, b), max(hi, b)), (min(dlo, b - a), max(dhi, b - a)))

    def _kth(self, k: int, without: Array, added: Array) -> int:
        """The k-th smallest (from 1) of the values, without some of them and with others."""
        lo, hi = int(self._sorted[0]), int(self._sorted[-1])
        if len(added):
            lo, hi = min(lo, int(added[0])), max(hi, int(added[-1]))
        while lo < hi:
            middle = (lo + hi) // 2
            below = (
                np.searchsorted(self._sorted, middle, side="right")
                - np.searchsorted(without, middle, side="right")
                + np.searchsorted(added, middle, side="right")
            )
            if below >= k:
                hi = middle
            else:
                lo = middle + 1
        return lo

    def _draws(
        self, rows: Array, old: Array, new: Array, lost: Array, shares: tuple[float, ...]
    ) -> tuple[Array, Array]:
        """Percentiles and the sum of each draw, before and after: float64[draws, shares + 1]."""
        edges, block = self._edges, self._block[rows]
        if len(new):
            added = np.sort(new[~lost])
            picks = np.linspace(0, max(len(added) - 1, 0), min(_NEW, len(added))).astype(np.int64)
            edges = np.unique(np.concatenate([edges, added[picks]]))
        at_most = np.stack([np.searchsorted(x, edges, side="right") for x in self._blocks])
        before = at_most - self._counts(block[lost], old[lost], edges)
        after = at_most - self._counts(block, old, edges)
        after += self._counts(block[~lost], new[~lost], edges)
        blocks = self._boot.blocks
        sums = self._sums - np.bincount(block[lost], weights=old[lost], minlength=blocks)
        moved = np.bincount(block[~lost], weights=(new - old)[~lost], minlength=blocks)
        return (
            self._side(before, sums, edges, shares),
            self._side(after, sums + moved, edges, shares),
        )

    def _counts(self, block: Array, values: Array, edges: Array) -> Array:
        """How many of the values are at most each edge, per block: int64[blocks, edges]."""
        bins = np.minimum(np.searchsorted(edges, values, side="left"), len(edges) - 1)
        flat = np.bincount(block * len(edges) + bins, minlength=self._boot.blocks * len(edges))
        return np.cumsum(flat.reshape(self._boot.blocks, -1), axis=1)

    def _side(self, at_most: Array, sums: Array, edges: Array, shares: tuple[float, ...]) -> Array:
        """Per draw, by halving: the first edge that so many of its values are at most."""
        weights = self._boot.weights
        n = self._boot.total(at_most[:, -1])
        out = np.empty((len(n), len(shares) + 1))
        for i, share in enumerate(shares):
            want = np.maximum(np.ceil(n * share), 1)
            lo = np.zeros(len(n), np.int64)
            hi = np.full(len(n), len(edges) - 1)
            while (lo < hi).any():
                middle = (lo + hi) // 2
                reached = np.einsum("db,bd->d", weights, at_most[:, middle]) >= want
                hi = np.where(reached, middle, hi)
                lo = np.where(reached | (lo == hi), lo, middle + 1)
            out[:, i] = edges[hi]
        out[:, -1] = self._boot.total(sums)
        return out
