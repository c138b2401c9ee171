"""Kernels that put the rows of a perf.data in the order of time, and keep those that must wait.

Between two sorts lie some hundred rounds of some hundred rows, and in each round a run for every
ring: too many runs for merging them to pay. A radix sort costs the same whatever the order was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana._jit import njit, step

#: Bits of one pass at most: its counters stay in the first cache.
WIDEST = 12
#: Bits of time and index that one key can hold.
_KEY_BITS = 62


@step
def _pass(keys: Any, m: Any, shift: Any, wide: Any, start: Any, to: Any, keep: Any) -> None:
    """Sort by the ``wide`` bits at ``shift``, stably, and put what ``keep`` masks into ``to``."""
    digits = np.uint64((1 << wide) - 1)
    start[: 1 << wide] = 0
    for i in range(m):
        start[np.uint64(keys[i] >> shift) & digits] += 1
    total = np.int32(0)
    for i in range(1 << wide):
        count = start[i]
        start[i] = total
        total += count
    for i in range(m):
        digit = np.uint64(keys[i] >> shift) & digits
        place = np.uint64(start[digit])
        start[digit] += 1
        to[place] = keys[i] & keep


@njit
def order_by_time(
    ts: Any, n: Any, limit: Any, order: Any, keys: Any, spare: Any, start: Any
) -> Any:
    """Indices of those of the first n rows that are not later than ``limit``, by time, stably.

    Returns their number.

    Parameters
    ----------
    ts : int64[>=n], 0 <= ts < 2^62; n < 2^31
    limit : int64
    order : int64[>=n]          written
    keys, spare : int64[>=n], start : int32[2^WIDEST]     used
    """
    lo = np.int64(1) << 62
    hi = np.int64(0)
    for i in range(n):
        if ts[i] <= limit:
            lo = min(lo, ts[i])
            hi = max(hi, ts[i])
    # Hours of time and the index fit into one key; years are sorted by a part of their bits each.
    bits = np.int64(1)
    while n >> bits:
        bits += 1
    room = _KEY_BITS - bits
    m = np.int64(0)
    last = np.int64(-1)
    in_order = True
    for i in range(n):
        t = ts[i]
        keys[np.uint64(m)] = (((t - lo) & ((1 << room) - 1)) << bits) | i
        if t <= limit:
            in_order &= t >= last
            last = t
            m += 1
    index = (np.int64(1) << bits) - 1
    if in_order:
        for k in range(m):
            order[k] = keys[k] & index
        return m
    done = np.int64(0)
    while True:
        part = np.int64(1)
        while part < room and (hi - lo) >> (done + part):
            part += 1
        passes = (part + WIDEST - 1) // WIDEST
        wide = (part + passes - 1) // passes
        for p in range(passes - 1):
            _pass(keys, m, bits + p * wide, wide, start, spare, np.int64(-1))
            keys, spare = spare, keys
        _pass(keys, m, bits + (passes - 1) * wide, wide, start, order, index)
        done += part
        if (hi - lo) >> done == 0:
            return m
        for k in range(m):
            keys[k] = ((((ts[order[k]] - lo) >> done) & ((1 << room) - 1)) << bits) | order[k]


@njit
def keep_later(limit: Any, n: Any, ts: Any, cpu: Any, off: Any, length: Any, row: Any) -> Any:
    """Move those of the first n rows that are later than ``limit`` to the front; how many."""
    kept = np.int64(0)
    for i in range(n):
        if ts[i] > limit:
            ts[kept] = ts[i]
            cpu[kept] = cpu[i]
            off[kept] = off[i]
            length[kept] = length[i]
            row[kept] = row[i]
            kept += 1
    return kept
