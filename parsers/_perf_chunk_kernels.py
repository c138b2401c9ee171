"""Kernel that takes the records of a perf.data all the way into the columns of a chunk.

One call goes round by round: rows are scanned, put in the order of time and decoded while what
they touch still lies in the caches, which is why the rounds go round here and not in Python.
"""

from __future__ import annotations

from typing import Any

from traceana._jit import njit, step
from traceana.parsers._payload_kernels import BLOCK, OUT, PLACE_MASK, decode
from traceana.parsers._perf_kernels import (
    ROUND,
    ST_DECODED,
    ST_EMITTED,
    ST_LATE,
    ST_LIMIT,
    ST_READY,
    ST_ROWS,
    ST_TOUCHED,
    ST_UPTO,
    scan,
)
from traceana.parsers._perf_order_kernels import keep_later, order_by_time

# Beside the reasons of ``scan``: what the chunk can take, or what can be noted of names, is full.
CHUNK_FULL, NAMES_FULL = 100, 101

_scan: Any = scan

#: More rows than these, and what they point to has left the nearest cache when it is decoded.
NEAR = 1 << 13


@step
def _fetch(buf: Any, off: Any, length: Any, row: Any, order: Any, start: Any, stop: Any) -> Any:
    """Touch the payloads of rows, in their order: a sum of some of their bytes.

    ``decode`` reads them kind by kind, in steps that no processor foresees; in order they lie in a
    few streams that it fetches in advance.
    """
    touched = 0
    for k in range(start, stop):
        i = order[k] & PLACE_MASK
        if row[i] >= 0:
            at = off[i] & PLACE_MASK
            touched += buf[at]
            touched += buf[(at + length[i] - 1) & PLACE_MASK]
    return touched


@njit
def take_rows(
    buf: Any, end: Any, target: Any, scanning: Any, ts: Any, cpu: Any, off: Any, length: Any,
    row: Any, noted: Any, st: Any, order: Any, keys: Any, spare: Any, start: Any, columns: Any,
    result: Any, decoding: Any,
) -> Any:  # fmt: skip
    """Append to the columns what whole rounds give, until Python is needed; says for what.

    Rows that are in order but not decoded yet are known by ST_READY and ST_DECODED; the next call
    goes on with them.

    Parameters
    ----------
    buf, end, target, ts, cpu, off, length, row, st     as ``scan`` takes them
    scanning, noted : the arguments of ``scan`` before ``ts`` and between ``row`` and ``st``
    order, keys, spare, start   as ``order_by_time`` takes them
    columns : tuple of arrays   as EventColumns.arrays(); from result[OUT] on
    result, decoding            as ``decode`` takes them: its arguments from ``kinds`` on
    """
    while True:
        if st[ST_READY] > 0:
            room = len(columns[0]) - result[OUT]
            stop = min(st[ST_READY], st[ST_DECODED] + room)
            if st[ST_READY] > NEAR:
                stop = min(stop, st[ST_DECODED] + BLOCK)
                st[ST_TOUCHED] = _fetch(buf, off, length, row, order, st[ST_DECODED], stop)
            st[ST_DECODED] = decode(
                buf, None, ts, cpu, off, length, row, order, PLACE_MASK, st[ST_DECODED], stop,
                *decoding,
            )  # fmt: skip
            if st[ST_DECODED] < stop:
                return NAMES_FULL
            if stop < st[ST_READY]:
                if result[OUT] == len(columns[0]):
                    return CHUNK_FULL
                continue
            st[ST_ROWS] = keep_later(st[ST_UPTO], st[ST_ROWS], ts, cpu, off, length, row)
            st[ST_READY] = 0
            st[ST_DECODED] = 0
        why = _scan(buf, end, target, *scanning, ts, cpu, off, length, row, *noted, st)
        if why != ROUND:
            return why
        st[ST_UPTO] = st[ST_LIMIT]
        st[ST_READY] = order_by_time(ts, st[ST_ROWS], st[ST_UPTO], order, keys, spare, start)
        for k in range(st[ST_READY]):
            if ts[order[k]] >= st[ST_EMITTED]:
                break
            st[ST_LATE] += 1
        if st[ST_READY] > 0:
            last = ts[order[st[ST_READY] - 1]]
            st[ST_EMITTED] = max(st[ST_EMITTED], last)
