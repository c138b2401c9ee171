"""Parts of the text kernels that look at eight bytes of a line at once.

``eights[p]`` holds the bytes p to p + 7 of the text, the first in the lowest bits (an array of
overlapping, unaligned numbers). Callers see to it that the text goes on for a good while behind the
line. None of these parts ever steps over a newline: it is no digit, no blank, and in no literal.

A *mark* of a byte is its highest bit, in a number that is 0 elsewhere.
"""

from __future__ import annotations

import numpy as np

from traceana._jit import inlined

SP, TAB, NL, CR, MINUS, LBR = 32, 9, 10, 13, 45, 91

ZERO, ONE, SEVEN, EIGHT = np.uint64(0), np.uint64(1), np.uint64(7), np.uint64(8)
SIXTEEN, THIRTY_TWO, TOP = np.uint64(16), np.uint64(32), np.uint64(56)
ONES = np.uint64(0x0101010101010101)
HIGH = np.uint64(0x8080808080808080)
LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
BLANKS = np.uint64(0x2020202020202020)
#: Added to the low seven bits of a byte, these carry into the mark from 32, 127, and 10 on.
FROM_32 = np.uint64(0x6060606060606060)
FROM_10 = np.uint64(0x7676767676767676)
DIGITS = np.uint64(0x3030303030303030)
_PLACES = np.uint64(0x0001020304050607)
_TENS, _HUNDREDS, _MYRIADS = np.uint64(2561), np.uint64(6553601), np.uint64(42949672960001)
_PAIRS = np.uint64(0x0F0F0F0F0F0F0F0F)
_QUADS = np.uint64(0x00FF00FF00FF00FF)
_HALVES = np.uint64(0x0000FFFF0000FFFF)


@inlined
def word(eights, p):
    """The eight bytes at p (which is not negative: numba need not ask)."""
    return eights[np.uintp(p)]


@inlined
def byte(buf, p):
    """The byte at p, as an int64."""
    return np.int64(buf[np.uintp(p)])


@inlined
def first(marks):
    """Which byte the lowest of some marks stands in (at least one is set)."""
    # The lowest mark alone, moved to bit 0 of its byte k, shifts byte k of the places to the top.
    alone = marks ^ (marks & (marks - ONE))
    return np.int64(((alone >> SEVEN) * _PLACES) >> TOP)


@inlined
def equal(word, byte):
    """Marks of the bytes of ``word`` that are ``byte`` (a uint64 below 256)."""
    x = word ^ (byte * ONES)
    return ~(((x & LOW7) + LOW7) | x | LOW7)


@inlined
def cut(word, n):
    """The first n bytes (0 to 8) of ``word``, zeros behind."""
    # In two steps: a shift by 64 is none.
    s = np.uint64(4 * (8 - n))
    return ((word << s) << s) >> s >> s


@inlined
def spaces(eights, p):
    """Where the run of blanks at p ends."""
    while True:
        x = word(eights, p) ^ BLANKS
        other = (((x & LOW7) + LOW7) | x) & HIGH
        if other != ZERO:
            return p + first(other)
        p += 8


@inlined
def others(word):
    """Marks of the bytes of ``word`` that are no decimal digit."""
    x = word ^ DIGITS
    return (((x & LOW7) + FROM_10) | x) & HIGH


@inlined
def value_of(word, n):
    """The number that the first n bytes (1 to 8), all digits, show."""
    x = (word ^ DIGITS) << np.uint64(8 * (8 - n))
    x = ((x & _PAIRS) * _TENS) >> EIGHT
    x = ((x & _QUADS) * _HUNDREDS) >> SIXTEEN
    return np.int64(((x & _HALVES) * _MYRIADS) >> THIRTY_TWO)


@inlined
def number(eights, p):
    """(value, where it ends) of the digits at p; ends at p when there is none, or more than 15."""
    marks = others(word(eights, p))
    if marks != ZERO:
        n = first(marks)
        if n == 0:
            return np.int64(0), p
        return value_of(word(eights, p), n), p + n
    v = value_of(word(eights, p), 8)
    marks = others(word(eights, p + 8))
    if marks == ZERO:
        return np.int64(0), p
    n = first(marks)
    if n > 0:
        low = value_of(word(eights, p + 8), n)
        for _ in range(n):
            v *= 10
        v += low
    return v, p + 8 + n


@inlined
def line_end(buf, p):
    """Where the newline stands, if only blanks (and carriage returns) lie between; else -1."""
    if byte(buf, p) == NL:
        return p
    while byte(buf, p) == SP or byte(buf, p) == TAB:
        p += 1
    while byte(buf, p) == SP or byte(buf, p) == CR:
        p += 1
    return p if byte(buf, p) == NL else -1


@inlined
def literal(eights, p, program, t):
    """Where the literals of the template from place t on end, if they stand at p; else -1.

    program : uint64[4 k]   per operation: which (0: a literal), how many bytes, the bytes, a mask
    """
    while program[t] == ZERO:
        if word(eights, p) & program[t + 3] != program[t + 2]:
            return np.int64(-1)
        p += np.int64(program[t + 1])
        t += 4
    return p


@inlined
def comm_end(buf, eights, p, program, t, pretty):
    """Where the name at p ends: the first place within 15 bytes where what follows it stands.

    That is the literals from place t on; with ``pretty`` a colon, a number, and `` [``.
    -1: no such place, or a byte that is not printable ASCII before it.
    """
    mark = program[t + 2] & np.uint64(255)
    for part in range(2):
        text = word(eights, p + 8 * part)
        low = text & LOW7
        bad = ((((low + FROM_32) & ~(low + ONES)) & ~text) & HIGH) ^ HIGH
        marks = equal(text, mark)
        while marks != ZERO:
            rest = marks & (marks - ONE)
            if bad & ((marks ^ rest) - ONE) != ZERO:
                return np.int64(-1)
            q = p + 8 * part + first(marks)
            if pretty:
                s = q + 1
                if byte(buf, s) == MINUS:
                    s += 1
                after = others(word(eights, s))
                if after == ZERO:
                    return np.int64(-1)
                n = first(after)
                if n > 0 and byte(buf, s + n) == SP and byte(buf, s + n + 1) == LBR:
                    return q
            elif literal(eights, q, program, t) >= 0:
                return q
            marks = rest
        if bad != ZERO:
            return np.int64(-1)
    return np.int64(-1)


@inlined
def same_name(eights, a, n, names, i):
    """Whether the n bytes at a are those from ``names[i]`` on (zeros stand behind a name)."""
    while n >= 8:
        if word(eights, a) != names[i]:
            return False
        a += 8
        n -= 8
        i += 1
    return n == 0 or cut(word(eights, a), n) == names[i]
