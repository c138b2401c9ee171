"""Names of events, for the text kernels: where they end, which one it is, how often each came."""

from __future__ import annotations

import numpy as np

from traceana._jit import inlined, njit, step
from traceana.parsers._text_head_kernels import COLON
from traceana.parsers._text_word_kernels import (
    ONE,
    SP,
    ZERO,
    byte,
    cut,
    equal,
    first,
    same_name,
    word,
)

#: An event's name is at most that long, its system's name and a colon included.
NAME = 48
_COLON = np.uint64(58)
_MIX, _MORE, _LEFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(54)


@inlined
def _hash(eights, a, n):
    """Where a name begins to be looked for in a table of 1024 (:func:`name_hash` is the same)."""
    if n < 8:
        return np.int64((cut(word(eights, a), n) * _MIX) >> _LEFT)
    return np.int64(((word(eights, a) * _MIX) ^ (word(eights, a + n - 8) * _MORE)) >> _LEFT)


@njit
def name_hash(eights, a, n):
    """:func:`_hash`, for whoever fills the table."""
    return _hash(eights, a, n)


@inlined
def known_event(eights, a, n, table, names, lengths):
    """Which of the known names the n bytes at a are; -1: none."""
    j = _hash(eights, a, n)
    while table[j] >= 0:
        i = table[j]
        if lengths[i] == n and same_name(eights, a, n, names, NAME // 8 * i):
            return i
        j = (j + 1) & (table.shape[0] - 1)
    return np.int64(-1)


@inlined
def name_end(buf, eights, p):
    """Where the colon behind an event's name, with a blank behind it, stands; -1: other."""
    for part in range(NAME // 8):
        marks = equal(word(eights, p + 8 * part), _COLON)
        while marks != ZERO:
            q = p + 8 * part + first(marks)
            if byte(buf, q + 1) == SP:
                return q
            marks &= marks - ONE
    return -1


@step
def event_name(buf, p, end, span):
    """Where the body begins behind ``name:`` or ``system:name:``; span[0:2] = the name. -1: other."""
    a = p
    colons = 0
    while p < end:
        c = buf[p]
        if c == COLON:
            if p + 1 >= end or buf[p + 1] == SP:
                break
            for i in range(a, p):
                c = buf[i]
                if not (48 <= c <= 57 or 65 <= c <= 90 or 97 <= c <= 122 or 95 == c):
                    return -1
            if p == a:
                return -1
            colons += 1
            a = p + 1
        elif c <= SP:
            return -1
        p += 1
    n = p - a
    if p >= end or n < 1 or n > 48 or colons > 1:
        return -1
    span[0] = a
    span[1] = n
    span[2] = colons
    return p + 1


@step
def plain(buf, a, n, colons):
    """Whether an unknown name is a plain one: letters, digits, "_"; no modifier ("cycles:u:").

    Names with a capital in front are records of perf, not tracepoints.
    """
    if 65 <= buf[a] <= 90:
        return False
    under = False
    for i in range(n):
        c = buf[a + i]
        if c == 95:
            under = True
        elif not ((48 <= c <= 57) or (65 <= c <= 90) or (97 <= c <= 122)):
            return False
    return under or n > 8 or colons == 0


@step
def count_other(buf, a, n, others, result, used):
    """Count an event that becomes no row by its name; False when the table is full.

    others : int64[m, 3]   offset of the name, its length, count; m a power of two
    """
    h = np.int64(n)
    for i in range(n):
        h = (h * 31 + np.int64(buf[a + i])) & 0x3FFFFFFF
    size = others.shape[0]
    j = h & (size - 1)
    while True:
        if others[j, 2] == 0:
            if result[used] * 4 > size * 3:
                return False
            result[used] += 1
            others[j, 0] = a
            others[j, 1] = n
            others[j, 2] = 1
            return True
        if others[j, 1] == n:
            same = True
            for i in range(n):
                if buf[others[j, 0] + i] != buf[a + i]:
                    same = False
                    break
            if same:
                others[j, 2] += 1
                return True
        j = (j + 1) & (size - 1)
