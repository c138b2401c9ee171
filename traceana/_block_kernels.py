"""Rows into columns: finished rows of the timeline to their places in a block of columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana._jit import njit, step

__all__ = ["scatter"]

#: Rows that are handled together: small enough to stay in the first cache.
_TILE = 128


@step
def _put(rows: Any, lo: int, n: int, at: int, place: Any, out: Any) -> None:
    """Fields from word ``at`` on of ``n`` rows from ``lo``: each to its line, at its place."""
    for f in range(out.shape[0]):
        line = out[f]
        for r in range(n):
            line[place[r]] = rows[lo + r, at + f]


@njit
def scatter(
    rows8: Any, rows4: Any, rows2: Any, rows1: Any, n: int, begin: int,
    out8: Any, out4: Any, out2: Any, out1: Any, at4: int, at2: int, at1: int,
) -> int:  # fmt: skip
    """Put the rows of this block in their places; returns how many there were.

    Parameters
    ----------
    rows8, rows4, rows2, rows1 : int64, int32, uint16, uint8 [n, *]
        The same ``n`` rows, seen as words of each size; a row's number is its first word.
    begin : number of the first row of the block
    out8, out4, out2, out1 : [fields, rows]
        One line a column, fields in the order of the row; the last place takes the rows of other
        blocks.
    at4, at2, at1 : word of the row at which the fields of each size begin
    """
    size = out8.shape[1] - 1
    # Places are unsigned: numba then has no negative ones to think of.
    place = np.empty(_TILE, np.uint64)
    done = 0
    for lo in range(0, n, _TILE):
        m = min(_TILE, n - lo)
        for r in range(m):
            p = rows8[lo + r, 0] - begin
            mine = 0 <= p < size
            place[r] = np.uint64(p if mine else size)
            done += 1 if mine else 0
        _put(rows8, lo, m, 0, place, out8)
        _put(rows4, lo, m, at4, place, out4)
        _put(rows2, lo, m, at2, place, out2)
        _put(rows1, lo, m, at1, place, out1)
    return done
