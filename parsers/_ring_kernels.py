"""Kernels that walk the pages of ftrace's ring buffers (kernel/trace/ring_buffer.c).

A CPU's data is a run of pages. Each begins with a u64 time and a commit word (how many bytes of
data follow, and the flags "events were lost before this page"), then the events follow, each
headed by 5 bits of type or length and 27 bits of time since the one before.

The walk works in rounds: :func:`scan` takes of every CPU what lies before a limit in time and
keeps in ``state`` where it stopped, so memory does not grow with the file.
"""

from __future__ import annotations

import numpy as np

from traceana._jit import njit, step
from traceana.parsers._payload_kernels import PLACE_MASK, ROW_BEGIN, ROW_LOST, read_int

# Cells of ``state[cpu]``.
NEXT, END, POS, STOP, TIME, KEY, LAST = range(7)
LOST, LOST_N, BEGIN, EVENTS, BACK, FIRST, LOST_AT_START = range(7, 14)
N_STATE = 14

# Values of ``state[cpu, BEGIN]`` before its first event: a row BEGIN goes before it, or does so
# when the page of that event says that events were lost.
LATE, LATE_IF_LOST = 1, 2

# Cells of ``geometry``.
PAGE_SIZE, STAMP_AT, COMMIT_AT, COMMIT_SIZE, DATA_AT, TYPE_AT, TYPE_SIZE = range(7)
N_GEOMETRY = 7

# Codes of ``errors[i]`` = (code, cpu index, offset, what was read, bytes lost).
# (Of numpy's type: for each Python number that is handed on numba compiles a function once more.)
CUT_PAGE, BIG_COMMIT, BAD_EVENT, NO_TYPE, BAD_TIME = map(np.int64, range(1, 6))

I64_MIN = -(2**63)
I64_MAX = 2**63 - 1

COMMIT_MASK = (1 << 27) - 1
MISSED_EVENTS = 1 << 31
MISSED_STORED = 1 << 30
#: No clock gets there: 146 years in ns. (The merge needs it so.)
TIME_BITS = 62
#: An absolute time stamp has 59 bits; those above are kept from the time before it.
STAMP_MASK = (1 << 59) - 1


@step
def _note(errors, n_errors, code, c, at, value, lost):
    n = n_errors[0]
    if n < len(errors):
        errors[n, 0] = code
        errors[n, 1] = c
        errors[n, 2] = at
        errors[n, 3] = value
        errors[n, 4] = lost
    n_errors[0] = n + 1


@step
def _hole(st):
    """What is left out for damage is lost: a row LOST goes before the CPU's next event."""
    st[LOST] = 1
    st[LOST_N] = I64_MIN


@step
def _open_page(buf, big, st, c, geometry, errors, n_errors):
    """Go to the next page of this CPU that can be read; 0 when there is none."""
    size = geometry[PAGE_SIZE]
    data_at = geometry[DATA_AT]
    while st[NEXT] < st[END]:
        page = st[NEXT]
        have = st[END] - page
        st[NEXT] = page + size
        if have >= size:
            have = size
        else:
            st[NEXT] = st[END]
        if have < data_at:
            _note(errors, n_errors, CUT_PAGE, c, page, have, have)
            return 0
        word = page + geometry[COMMIT_AT]
        if big is not None:
            word += geometry[COMMIT_SIZE] - 4
        flags = read_int(buf, word, 4, 0, big)
        commit = flags & COMMIT_MASK
        if commit > have - data_at:
            if have < size:
                _note(errors, n_errors, CUT_PAGE, c, page, commit, have)
                return 0
            _note(errors, n_errors, BIG_COMMIT, c, page, commit, have)
            _hole(st)
            continue
        if flags & MISSED_EVENTS:
            count = np.int64(I64_MIN)
            tail = data_at + commit
            if flags & MISSED_STORED and tail + geometry[COMMIT_SIZE] <= have:
                count = read_int(buf, page + tail, geometry[COMMIT_SIZE], 1, big)
                if count <= 0 or count >> 48 != 0:  # no ring ever lost as many
                    count = np.int64(I64_MIN)
            if st[LOST] and (count == I64_MIN or st[LOST_N] == I64_MIN):
                count = np.int64(I64_MIN)
            elif st[LOST]:
                count += st[LOST_N]
            st[LOST] = 1
            st[LOST_N] = count
        time = read_int(buf, page + geometry[STAMP_AT], 8, 0, big)
        if time >> TIME_BITS != 0:
            _note(errors, n_errors, BAD_TIME, c, page, time, have)
            _hole(st)
            continue
        st[TIME] = time
        st[KEY] = max(st[KEY], time)
        st[POS] = page + data_at
        st[STOP] = page + data_at + commit
        return 1
    return 0


@step
def _marks(st, first, now, high, cpu_c, key, ts, cpu, off, length, row, n):
    """Add the rows BEGIN and LOST that go before an event; returns the number of rows then."""
    if first:
        st[FIRST] = now
        if st[BEGIN] and st[LOST]:
            st[LOST] = 0
            st[LOST_AT_START] = 1
        elif st[BEGIN] == LATE_IF_LOST:
            st[BEGIN] = 0
    for mark in (ROW_BEGIN, ROW_LOST):
        cell = BEGIN if mark == ROW_BEGIN else LOST
        if st[cell] == 0:
            continue
        st[cell] = 0
        key[n] = high
        ts[n] = now
        cpu[n] = cpu_c
        off[n] = 0 if mark == ROW_BEGIN else st[LOST_N]
        length[n] = 0
        row[n] = mark
        n += 1
    return n


@njit
def scan(
    buf, big, state, cpus, limit, first, resumed, geometry, row_of_id, counts,
    seg_start, seg_end, key, ts, cpu, off, length, row, filled, errors, n_errors,
):  # fmt: skip
    """Walk each CPU up to ``limit``; returns the CPU index at which the output was full.

    Parameters
    ----------
    buf : uint8[:] read-only; big : None or int64 (see _payload_kernels)
    state : int64[k, N_STATE]     per CPU, updated
    cpus : int32[k]               CPU numbers
    limit : int64                 events whose key is below are taken; the key is the running
                                  maximum of the CPU's times, those of its pages included
    first, resumed : int64        start with this CPU index; 1: its segment has begun already
    geometry : int64[N_GEOMETRY]
    row_of_id : int32[65536]      common_type -> row of the layout, -1: only counted
    counts : int64[65536]         events by common_type; updated
    seg_start, seg_end : int64[k] each CPU's part of the output; written
    key : int64[:]                output: what the row is sorted by
    ts, cpu, off, length, row     output, see payload.PayloadDecoder.decode
    filled : int64                rows in the output so far
    errors : int64[:, 5]; n_errors : int64[1]
    """
    full = len(ts) - 3
    n = filled
    type_at = geometry[TYPE_AT]
    type_size = geometry[TYPE_SIZE]
    for c in range(first, len(cpus)):
        st = state[c]
        cpu_c = cpus[c]
        # Something that goes before the next event: only the first one and losses make it so.
        pending = st[EVENTS] == 0 or st[LOST] != 0
        begun = st[EVENTS]
        events = np.int64(0)
        if c > first or not resumed:
            seg_start[c] = n
        pos = st[POS]
        stop = st[STOP]
        time = st[TIME]
        high = st[KEY]
        last = st[LAST]
        while True:
            if pos >= stop:
                st[KEY] = high
                if not _open_page(buf, big, st, c, geometry, errors, n_errors):
                    st[POS] = st[STOP] = 0
                    pos = stop = np.int64(0)
                    break
                pos = st[POS]
                stop = st[STOP]
                time = st[TIME]
                high = st[KEY]
                pending = begun + events == 0 or st[LOST] != 0
                continue
            if stop - pos < 4:
                _note(errors, n_errors, BAD_EVENT, c, pos, stop - pos, stop - pos)
                _hole(st)
                pos = stop
                continue
            pos &= PLACE_MASK
            n &= PLACE_MASK
            head = read_int(buf, pos, 4, 0, big)
            if big is not None:
                kind = head >> 27
                delta = head & 0x7FFFFFF
            else:
                kind = head & 31
                delta = head >> 5
            if 1 <= kind <= 28:
                size = kind * 4
                data = pos + 4
                after = data + size
            elif kind == 29 and delta == 0:
                pos = stop
                continue
            else:
                if stop - pos < 8:
                    _note(errors, n_errors, BAD_EVENT, c, pos, head, stop - pos)
                    _hole(st)
                    pos = stop
                    continue
                word = read_int(buf, pos + 4, 4, 0, big)
                if kind == 30:
                    time += (word << 27) + delta
                    pos += 8
                    continue
                if kind == 31:
                    time = ((word << 27) + delta) | (time & ~np.int64(STAMP_MASK))
                    pos += 8
                    continue
                if kind == 29:
                    time += delta
                    if word > stop - pos - 4:
                        _note(errors, n_errors, BAD_EVENT, c, pos, word, stop - pos)
                        _hole(st)
                        pos = stop
                    else:
                        pos += 4 + word
                    continue
                size = word - 4
                data = pos + 8
                after = pos + 4 + ((word + 3) & ~np.int64(3))
                if word < 4:
                    after = stop + 1
            if after > stop:
                _note(errors, n_errors, BAD_EVENT, c, pos, size, stop - pos)
                _hole(st)
                pos = stop
                continue
            now = time + delta
            if now >> TIME_BITS != 0:
                _note(errors, n_errors, BAD_TIME, c, pos, now, stop - pos)
                _hole(st)
                pos = stop
                continue
            if max(now, high) >= limit:
                break
            if n > full:
                st[POS] = pos
                st[STOP] = stop
                st[TIME] = time
                st[KEY] = high
                st[LAST] = last
                st[EVENTS] = begun + events
                seg_end[c] = n
                return c, n
            if now >= high:
                high = now
            elif now < last:
                st[BACK] += 1
            time = now
            last = now
            pos = after
            if pending or st[LOST]:
                pending = False
                n = _marks(
                    st, begun + events == 0, now, high, cpu_c, key, ts, cpu, off, length, row, n
                )  # fmt: skip
            events += 1
            if size < type_at + type_size:
                _note(errors, n_errors, NO_TYPE, c, data, size, size)
                continue
            ident = read_int(buf, data + type_at, type_size, 0, big) & 0xFFFF
            counts[ident] += 1
            r = row_of_id[ident]
            if r >= 0:
                key[n] = high
                ts[n] = now
                cpu[n] = cpu_c
                off[n] = data
                length[n] = size
                row[n] = r
                n += 1
        st[POS] = pos
        st[STOP] = stop
        st[TIME] = time
        st[KEY] = high
        st[LAST] = last
        st[EVENTS] = begun + events
        seg_end[c] = n
    return len(cpus), n


@njit
def next_limit(buf, big, state, geometry, budget, at, key):
    """A time before which about ``budget`` more pages of all CPUs together begin.

    ``at`` and ``key`` (int64[k]) are room to work in. I64_MAX: there are no more pages than that.
    """
    n = len(state)
    size = geometry[PAGE_SIZE]
    head = geometry[DATA_AT]
    for c in range(n):
        at[c] = state[c, NEXT]
        key[c] = I64_MAX
        if at[c] + head <= state[c, END]:
            key[c] = max(state[c, KEY], read_int(buf, at[c] + geometry[STAMP_AT], 8, 0, big))
    for _ in range(budget):
        best = 0
        for c in range(1, n):
            if key[c] < key[best]:
                best = c
        if key[best] == I64_MAX:
            return I64_MAX
        at[best] += size
        if at[best] + head <= state[best, END]:
            stamp = read_int(buf, at[best] + geometry[STAMP_AT], 8, 0, big)
            key[best] = max(key[best], stamp)
        else:
            key[best] = I64_MAX
    limit = key[0]
    for c in range(1, n):
        limit = min(limit, key[c])
    return limit
