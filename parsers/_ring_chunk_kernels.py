"""Kernel that takes ring-buffer pages all the way into the columns of the ``events`` table.

One call makes one chunk, round by round: where the next round ends (next_limit), what lies in it
(scan), in which order (merged_order), into the columns (decode). A round is small enough to stay in
the nearest cache on this way, which is why the rounds go round here and not in Python.
"""

from __future__ import annotations

import numpy as np

from traceana._jit import njit, step
from traceana.parsers._merge_kernels import merge
from traceana.parsers._payload_kernels import OUT, PLACE_MASK, decode
from traceana.parsers._ring_kernels import EVENTS, I64_MAX, NEXT, POS, next_limit, scan

# What a call ends with.
DONE, MORE_ROOM, CHUNK_FULL, NAMES_FULL, MORE_PAGES = range(5)

# Cells of ``walk``: how far the current round is, so that a call goes on where one has ended.
(
    STEP,  # TO_BEGIN, TO_SCAN, TO_DECODE
    LIMIT,  # the time before which the round ends
    FIRST, RESUMED,  # the CPU index at which the scan goes on; 1: within it
    ROWS, AT,  # rows of the round, and those that are decoded
    WHERE, INDEX_MASK,  # of the order: in ``here`` (0) or ``there`` (1), and its bits that count
    HELD,  # rounds in which the walk has not come forward
    PAGES,  # pages of a round
    UNTIL,  # the time up to which all pages are there: I64_MAX, or else the caller brings more
    STUCK,  # times that the caller brought more and the walk did not come forward
    BEFORE_BYTES, BEFORE_EVENTS,  # progress at the begin of the round
    BROUGHT_BYTES, BROUGHT_EVENTS,  # and when more was brought
) = range(16)  # fmt: skip
N_WALK = 16
TO_BEGIN, TO_SCAN, TO_DECODE = range(3)


@step
def merge_two(source, start, middle, stop, out):
    """Merge the ordered runs [start, middle) and [middle, stop) of unlike numbers.

    From both ends at once, and without a branch that depends on which number is smaller, for that
    cannot be guessed: two chains of steps run side by side.
    """
    a, end_a, b, end_b = start, middle - 1, middle, stop - 1
    low, high = start, stop - 1
    while True:
        # Each step takes at most two of one run: so many of them need no look at its end.
        safe = min(end_a - a, end_b - b) + 1 >> 1
        if safe <= 0:
            break
        for _ in range(safe):
            first_a, first_b = source[a & PLACE_MASK], source[b & PLACE_MASK]
            last_a, last_b = source[end_a & PLACE_MASK], source[end_b & PLACE_MASK]
            takes_b = np.int64(first_b < first_a)
            out[low & PLACE_MASK] = min(first_a, first_b)
            b += takes_b
            a += 1 - takes_b
            low += 1
            takes_a = np.int64(last_b < last_a)
            out[high & PLACE_MASK] = max(last_a, last_b)
            end_a -= takes_a
            end_b -= 1 - takes_a
            high -= 1
    # One run has one left, or none.
    while a <= end_a and b <= end_b:
        if source[b] < source[a]:
            out[low] = source[b]
            b += 1
        else:
            out[low] = source[a]
            a += 1
        low += 1
    for i in range(end_a - a + 1):
        out[low + i] = source[a + i]
    low += max(end_a - a + 1, 0)
    for i in range(end_b - b + 1):
        out[low + i] = source[b + i]


@step
def merged_order(key, seg_start, seg_end, here, there, bounds, walk):
    """The order in which the rows of all segments follow each other, as merge() says it.

    A row's key and index are packed into one number, and runs of these are merged by twos. Where
    the keys are too far apart for that, merge() does it.

    Parameters
    ----------
    key : int64[n]; seg_start, seg_end : int64[k]   as merge() takes them; the segments follow each
                                                    other and hold all n rows
    here, there : int64[>= n]   room; walk[WHERE] says in which of them the order is
    bounds : int64[k + 1]       room
    walk : int64[N_WALK]        WHERE and INDEX_MASK are written
    """
    n = np.int64(0)
    runs = np.int64(0)
    low = np.int64(I64_MAX)
    high = np.int64(0)
    for c in range(len(seg_start)):
        start, end = seg_start[c], seg_end[c]
        if start < end:
            bounds[runs] = start
            runs += 1
            n = end
            low = min(low, key[start])
            high = max(high, key[end - 1])
    bounds[runs] = n
    walk[WHERE] = 0
    walk[INDEX_MASK] = PLACE_MASK
    if runs <= 1:
        for i in range(n):
            here[i] = i
        return
    bits = np.int64(1)
    while n >> bits:
        bits += 1
    if (high - low) >> (62 - bits):
        merge(key, seg_start, seg_end, here)
        return
    walk[INDEX_MASK] = (np.int64(1) << bits) - 1
    for i in range(n):
        here[i] = ((key[i] - low) << bits) | i
    where = np.int64(0)
    while runs > 1:
        pairs = (runs + 1) >> 1
        for j in range(pairs):
            start = bounds[2 * j]
            middle = bounds[min(2 * j + 1, runs)]
            stop = bounds[min(2 * j + 2, runs)]
            if where:
                merge_two(there, start, middle, stop, here)
            else:
                merge_two(here, start, middle, stop, there)
            bounds[j] = start
        bounds[pairs] = n
        runs = pairs
        where ^= 1
    walk[WHERE] = where


@step
def _progress(state):
    """Two numbers of which one changes whenever the walk comes forward."""
    moved = np.int64(0)
    events = np.int64(0)
    for c in range(len(state)):
        moved += state[c, NEXT] + state[c, POS]
        events += state[c, EVENTS]
    return moved, events


@njit
def read_chunk(
    buf, big, state, cpus, geometry, row_of_id, counts, seg_start, seg_end, spare_at, spare_key,
    bounds, rows, orders, errors, n_errors, walk,
    kinds, need, spec, common, names, states, ctx_of_flags, buffer_no, last, lists,
    kind_counts, columns, name_pid, name_ts, name_off, name_len, result,
):  # fmt: skip
    """Go on until the chunk is full; returns what has to be done before the next call.

    DONE: that was all. MORE_ROOM: make ``rows`` and ``orders`` longer, keep what is in them.
    CHUNK_FULL: give other columns, with room for walk[ROWS] - walk[AT] rows at least.
    NAMES_FULL: drain the names. MORE_PAGES: bring some and set UNTIL.

    Parameters
    ----------
    buf, big, state, cpus, geometry, row_of_id, counts, seg_start, seg_end, errors, n_errors
        As scan() takes them.
    spare_at, spare_key : int64[k]; bounds : int64[k + 1]      room to work in
    rows : (key, ts, off, cpu, length, row)   as scan() fills them, all of one length
    orders : (here, there)    int64 of the same length
    walk : int64[N_WALK]      see above; updated
    kinds ... result          As decode() takes them. The columns are written from result[OUT] on.
    """
    key, ts, off, cpu, length, row = rows
    here, there = orders
    while True:
        if walk[STEP] == TO_BEGIN:
            walk[BEFORE_BYTES], walk[BEFORE_EVENTS] = _progress(state)
            budget = walk[PAGES] << min(walk[HELD], 40)
            limit = next_limit(buf, big, state, geometry, budget, spare_at, spare_key)
            walk[LIMIT] = min(limit, walk[UNTIL])
            walk[FIRST] = walk[RESUMED] = walk[ROWS] = walk[AT] = 0
            walk[STEP] = TO_SCAN
        if walk[STEP] == TO_SCAN:
            first, n = scan(
                buf, big, state, cpus, walk[LIMIT], walk[FIRST], walk[RESUMED], geometry,
                row_of_id, counts, seg_start, seg_end, key, ts, cpu, off, length, row,
                walk[ROWS], errors, n_errors,
            )  # fmt: skip
            walk[FIRST] = first
            walk[ROWS] = n
            walk[RESUMED] = 1
            if first < len(cpus):
                return MORE_ROOM
            if n:
                merged_order(key, seg_start, seg_end, here, there, bounds, walk)
            walk[STEP] = TO_DECODE
        n = walk[ROWS]
        if walk[AT] < n:
            if result[OUT] + n - walk[AT] > len(columns[0]):
                return CHUNK_FULL
            walk[AT] = decode(
                buf, big, ts, cpu, off, length, row, there if walk[WHERE] else here,
                walk[INDEX_MASK], walk[AT], n, kinds, need, spec, common, names, states,
                ctx_of_flags, buffer_no, last, lists, kind_counts, columns, name_pid, name_ts,
                name_off, name_len, result,
            )  # fmt: skip
            if walk[AT] < n:
                return NAMES_FULL
        walk[STEP] = TO_BEGIN
        moved, events = _progress(state)
        # All stamps alike, or far from their events: take more at once until it moves.
        if moved == walk[BEFORE_BYTES] and events == walk[BEFORE_EVENTS]:
            walk[HELD] += 1
        else:
            walk[HELD] = 0
        if walk[LIMIT] == walk[UNTIL]:
            if walk[UNTIL] == I64_MAX:
                return DONE
            if moved == walk[BROUGHT_BYTES] and events == walk[BROUGHT_EVENTS]:
                walk[STUCK] += 1
            else:
                walk[STUCK] = 0
            return MORE_PAGES
