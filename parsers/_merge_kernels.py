"""Kernel that merges streams, each in its own order, into one order of time."""

from __future__ import annotations

import numpy as np

from traceana._jit import njit

#: Times are below (146 years in ns), so the difference of any two fits and has the right sign.
EXHAUSTED = 1 << 62
INDEX = (1 << 48) - 1


@njit
def merge(key, seg_start, seg_end, order):
    """Write the order in which the rows of all segments follow each other; returns their number.

    A tournament tree: its root is the stream with the smallest head. Ties go to the stream of
    lower index.

    Parameters
    ----------
    key : int64[n]                  what is sorted by: in no stream may it ever fall;
                                    0 <= key < 2^62
    seg_start, seg_end : int64[k]   rows of stream i are [seg_start[i], seg_end[i])
    order : int64[m]                m >= the number of rows; written
    """
    active = np.empty(len(seg_start), np.int64)
    k = 0
    total = np.int64(0)
    for c in range(len(seg_start)):
        if seg_start[c] < seg_end[c]:
            active[k] = c
            k += 1
            total += seg_end[c] - seg_start[c]
    if k == 0:
        return total
    if k == 1:
        c = active[0]
        for i in range(total):
            order[i] = seg_start[c] + i
        return total
    leaves = 1
    while leaves < k:
        leaves *= 2
    who = np.zeros(2 * leaves, np.int64)
    when = np.full(2 * leaves, EXHAUSTED, np.int64)
    at = np.zeros(leaves, np.int64)
    end = np.zeros(leaves, np.int64)
    for j in range(leaves):
        who[leaves + j] = j
        if j < k:
            c = active[j]
            at[j] = seg_start[c]
            end[j] = seg_end[c]
            when[leaves + j] = key[at[j]]
    for node in range(leaves - 1, 0, -1):
        a = 2 * node
        if when[a + 1] < when[a]:
            a += 1
        who[node] = who[a]
        when[node] = when[a]
    for i in range(total):
        j = who[1] & INDEX
        here = at[j] & INDEX
        order[i] = here
        here += 1
        at[j] = here
        now = key[here] if here < end[j] else np.int64(EXHAUSTED)
        node = leaves + j
        when[node] = now
        while node > 1:
            node &= INDEX
            other = node ^ 1
            # The stream of the left child (even) wins ties: an odd node has it as its other.
            # Which one wins cannot be guessed, so it is chosen by the sign, not by a branch.
            takes = (when[other] - (node & 1) - now) >> 63
            now ^= (now ^ when[other]) & takes
            j ^= (j ^ who[other]) & takes
            node >>= 1
            when[node] = now
            who[node] = j
    return total
