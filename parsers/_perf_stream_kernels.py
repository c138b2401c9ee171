"""Kernels for perf.data whose records cannot be read in place: step over records, turn the
byte order of another machine, and carry payloads from one buffer to the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana._jit import njit
from traceana.parsers._perf_kernels import (
    A_FLAGS,
    A_READ_FORMAT,
    A_TYPE,
    A_VAR,
    BAD_SIZE,
    CUT,
    END,
    F_CALLCHAIN,
    F_RAW,
    F_READ,
    R_COMM,
    R_EXIT,
    R_FORK,
    R_ID_INDEX,
    R_LOST,
    R_LOST_SAMPLES,
    R_SAMPLE,
    R_SIMPLEPERF,
    R_SWITCH,
    R_SWITCH_CPU_WIDE,
    ROUND,
    S_ADDR,
    S_CPU,
    S_ID,
    S_IDENTIFIER,
    S_IP,
    S_PERIOD,
    S_STREAM_ID,
    S_TID,
    S_TIME,
    SPECIAL,
    T_SIZE,
    find_id,
)

# Cells of ``found``: where it stopped, and the record that stands there.
AT, KIND, SIZE, MISC = 0, 1, 2, 3


@njit
def _number(buf: Any, at: Any, size: Any, big: Any) -> Any:
    """A number of ``size`` bytes; 8 bytes wrap."""
    value = np.int64(0)
    for i in range(size):
        place = at + i if big else at + size - 1 - i
        value = (value << 8) | np.int64(buf[np.uint64(place)])
    return value


@njit
def walk(
    buf: Any, at: Any, end: Any, room: Any, big: Any, simpleperf: Any, stops: Any, found: Any
) -> int:
    """Step over records from ``at`` on; says why it stopped, and ``found`` where and at what.

    SPECIAL: at a record whose kind is in ``stops``; ROUND: more than ``room`` bytes are stepped
    over; BAD_SIZE, CUT: damage; END: at the end.

    Parameters
    ----------
    buf : uint8[:] read-only; at, end, room : int64
    big : int64                1: numbers have their most significant byte first
    simpleperf : int64         1: kinds from 32768 on have 16 more bits of size in misc
    stops : uint8[256]         by kind; the last stands for all kinds from 255 on
    found : int64[4]           written
    """
    first = at
    why = END
    while True:
        found[AT] = at
        if at >= end:
            break
        if at + 8 > end:
            why = CUT
            break
        kind = _number(buf, at, 4, big)
        misc = _number(buf, at + 4, 2, big)
        size = _number(buf, at + 6, 2, big)
        if simpleperf and kind >= R_SIMPLEPERF:
            size |= misc << 16
        found[KIND] = kind
        found[SIZE] = size
        found[MISC] = misc
        if size < 8:
            why = BAD_SIZE
            break
        if at + size > end:
            why = CUT
            break
        if stops[min(kind, 255)]:
            why = SPECIAL
            break
        if at + size - first > room and at > first:
            why = ROUND
            break
        at += size
    return why


@njit
def _turn(buf: Any, at: Any, size: Any) -> None:
    for i in range(size // 2):
        low = np.uint64(at + i)
        high = np.uint64(at + size - 1 - i)
        byte = buf[low]
        buf[low] = buf[high]
        buf[high] = byte


@njit
def _turn_fields(buf: Any, at: Any, kind: Any, trailer: Any) -> Any:
    """Turn the fixed fields of a sample, or those of a trailer; returns where they end."""
    for i in range(9):
        if trailer:
            bit = (S_TID, S_TIME, S_ID, S_STREAM_ID, S_CPU, S_IDENTIFIER, 0, 0, 0)[i]
        else:
            bit = (
                S_IDENTIFIER, S_IP, S_TID, S_TIME, S_ADDR, S_ID, S_STREAM_ID, S_CPU, S_PERIOD,
            )[i]  # fmt: skip
        if not kind & bit:
            continue
        if bit == S_TID or bit == S_CPU:
            _turn(buf, at, 4)
            _turn(buf, at + 4, 4)
        else:
            _turn(buf, at, 8)
        at += 8
    return at


@njit
def _turn_sample(buf: Any, at: Any, stop: Any, line: Any) -> None:
    """Turn a sample up to the size of its RAW data; what does not fit is left as it is."""
    if at + line[A_VAR] > stop:
        return
    p = _turn_fields(buf, at + 8, line[A_TYPE], 0)
    flags = line[A_FLAGS]
    if flags & F_READ:
        read_format = line[A_READ_FORMAT]
        words = (read_format & 1) + (read_format >> 1 & 1)
        each = 1 + (read_format >> 2 & 1) + (read_format >> 4 & 1)
        if read_format & 8:
            if p + 8 > stop:
                return
            _turn(buf, p, 8)
            n = _number(buf, p, 8, 0)
            p += 8
            if n < 0 or n > (stop - p) // (8 * each):
                return
            words += n * each
        else:
            words += each
        if p + 8 * words > stop:
            return
        for _ in range(words):
            _turn(buf, p, 8)
            p += 8
    if flags & F_CALLCHAIN:
        if p + 8 > stop:
            return
        _turn(buf, p, 8)
        n = _number(buf, p, 8, 0)
        if n < 0 or n > (stop - p - 8) // 8:
            return
        p += 8 * (n + 1)
    if flags & F_RAW and p + 4 <= stop:
        _turn(buf, p, 4)


@njit
def turn_records(
    buf: Any, at: Any, end: Any, id_at: Any, id_back: Any, attrs: Any, ids: Any
) -> None:
    """Turn whole records of the other byte order in place, as far as traceana reads them.

    The RAW data of samples stay as they are: their numbers are read in their own order.

    Parameters
    ----------
    buf : uint8[:], written; at, end : int64       whole records
    id_at, id_back, attrs, ids                     as ``_perf_kernels.scan`` takes them
    """
    while at < end:
        _turn(buf, at, 4)
        _turn(buf, at + 4, 2)
        _turn(buf, at + 6, 2)
        kind = _number(buf, at, 4, 0)
        size = _number(buf, at + 6, 2, 0)
        stop = at + size
        a = np.int64(0)
        if kind == R_SAMPLE:
            known = True
            if id_at >= 0:
                known = at + id_at + 8 <= stop
                if known:
                    slot = find_id(ids, _number(buf, at + id_at, 8, 1))
                    a = ids[slot, 1] if slot >= 0 else np.int64(0)
            if known:
                _turn_sample(buf, at, stop, attrs[a])
        elif kind == R_ID_INDEX:
            for p in range(at + 8, stop - 7, 8):
                _turn(buf, p, 8)
        elif kind < 64:
            if id_back >= 0 and size >= 8 + id_back:
                slot = find_id(ids, _number(buf, stop - id_back, 8, 1))
                a = ids[slot, 1] if slot >= 0 else np.int64(0)
            back = max(attrs[a, T_SIZE], 0)
            halves = 0
            words = 0
            if kind == R_COMM or kind == R_SWITCH_CPU_WIDE:
                halves = 2
            elif kind == R_FORK or kind == R_EXIT:
                halves = 4
                words = 1
            elif kind == R_LOST:
                words = 2
            elif kind == R_LOST_SAMPLES:
                words = 1
            elif kind != R_SWITCH:
                at = stop
                continue
            if size >= 8 + 4 * halves + 8 * words + back:
                p = at + 8
                for _ in range(halves):
                    _turn(buf, p, 4)
                    p += 4
                for _ in range(words):
                    _turn(buf, p, 8)
                    p += 8
                if back:
                    _turn_fields(buf, stop - back, attrs[a, A_TYPE], 1)
        at = stop


@njit
def carry(old: Any, new: Any, at: Any, off: Any, length: Any, row: Any, n: Any) -> Any:
    """Copy the payloads of the first n rows from one buffer to another, from ``at`` on.

    Parameters
    ----------
    old : uint8[:] read-only; new : uint8[:] written, with room for all of them
    off : int64[:]        updated to the new places; length, row : int32[:]; rows below 0 have none
    """
    for i in range(n):
        if row[i] < 0:
            continue
        start = off[i]
        size = np.int64(length[i])
        off[i] = at
        for k in range(size):
            new[np.uint64(at + k)] = old[np.uint64(start + k)]
        at += size
    return at
