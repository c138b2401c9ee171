"""Ends of lines, and the earliest time of a run of them, for the text kernels."""

from __future__ import annotations

import numpy as np

from traceana._jit import njit, step
from traceana.parsers._text_head_kernels import COLON, DOT, bounded_number
from traceana.parsers._text_word_kernels import CR, HIGH, NL, ONES, SP, ZERO, byte, equal, first

_NEWLINE = np.uint64(10)
_NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)


@step
def newline(buf, words, p, end):
    """Where the next newline at or behind p stands; end if none. words: the buffer as uint64."""
    while p < end and p & 7:
        if byte(buf, p) == NL:
            return p
        p += 1
    i = p >> 3
    n = min(end >> 3, np.int64(words.shape[0]))
    while i + 4 <= n:
        # In t, the highest bit of a byte is set where a newline stands, and perhaps above one.
        a, b = words[np.uintp(i)] ^ _NEWLINES, words[np.uintp(i + 1)] ^ _NEWLINES
        c, d = words[np.uintp(i + 2)] ^ _NEWLINES, words[np.uintp(i + 3)] ^ _NEWLINES
        t = ((a - ONES) & ~a) | ((b - ONES) & ~b) | ((c - ONES) & ~c) | ((d - ONES) & ~d)
        if t & HIGH != ZERO:
            break
        i += 4
    while i < n:
        marks = equal(words[np.uintp(i)], _NEWLINE)
        if marks != ZERO:
            return (i << 3) + first(marks)
        i += 1
    p = max(p, i << 3)
    while p < end and byte(buf, p) != NL:
        p += 1
    return p


@step
def text_end(buf, p, stop):
    """Where the line at p ends without its blanks and carriage returns."""
    while stop > p and (buf[stop - 1] == CR or buf[stop - 1] == SP):
        stop -= 1
    return stop


@step
def _any_time(buf, p, end):
    """The time at p, whatever its digits, as ns (or the bare number); -1: none."""
    v, q = bounded_number(buf, p, end)
    if q == p:
        return np.int64(-1)
    if q < end and buf[q] == DOT:
        f, r = bounded_number(buf, q + 1, end)
        n = r - q - 1
        if n < 1 or n > 9 or q - p > 9:
            return np.int64(-1)
        while n < 9:
            f *= 10
            n += 1
        v = v * 1000000000 + f
        q = r
    if q >= end or buf[q] != COLON or (q + 1 < end and buf[q + 1] > SP):
        return np.int64(-1)
    return v


@njit
def earliest(buf, words, start, end):
    """The smallest time among the lines of buf[start:end]: of each, the first number like one.

    The search starts where the last line had it, for the columns seldom move; only a line that
    has none from there on is searched from its begin.
    """
    low = np.int64(2**62)
    p = start
    hint = np.int64(0)
    while p < end:
        stop = newline(buf, words, p, end)
        q = min(p + hint, stop)
        again = min(hint, 1)
        while True:
            if q + 1 >= stop:
                if again == 0:
                    break
                again = 0
                q = p
            if buf[q] <= SP and q + 1 < stop:
                c = buf[q + 1]
                if c >= 48 and c <= 57:
                    ts = _any_time(buf, q + 1, stop)
                    if ts >= 0:
                        low = min(low, ts)
                        hint = q - p
                        break
            q += 1
        p = stop + 1
    return low
