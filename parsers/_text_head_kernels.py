"""Heads of event lines, in bytes: the usual ones by the columns they stand in, others by search.

A head fills ``head[pid, tgid, cpu, ctx, time, where the event begins]``. Of all places within 15
bytes of the name's begin the last one that fits is the head (text_lines). The usual heads
(:func:`usual_dash`, :func:`usual_perf`) have their name right-aligned to 16 bytes; what stands there
and fits is also what the search finds: a second head would have to begin within the first, and no
part of one can be the begin of another.
"""

from __future__ import annotations

import numpy as np

from traceana._jit import inlined, step
from traceana.parsers._text_word_kernels import (
    FROM_32,
    HIGH,
    LBR,
    LOW7,
    MINUS,
    SP,
    TAB,
    ZERO,
    byte,
    cut,
    equal,
    first,
    others,
    spaces,
    value_of,
    word,
)

NULL_PID, NULL_CTX = -1, 255
DOT, COLON, RBR, LPAR, RPAR = 46, 58, 93, 40, 41
#: In bits[]: a character that no flags column holds.
NO_FLAG = 128
_SPACE = np.uint64(32)
_MIX, _MIX_SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(58)
_SECOND = 1_000_000_000


@step
def bounded_number(buf, p, end):
    """(value, where it ends) of the decimal digits at p; ends at p when there is none, or too many."""
    v = np.int64(0)
    q = p
    while q < end and q - p < 19:
        d = np.int64(buf[q]) - 48
        if d < 0 or d > 9:
            break
        v = v * 10 + d
        q += 1
    if q - p > 18:
        q = p
    return v, q


@step
def blanks(buf, p, end):
    while p < end and (buf[p] == SP or buf[p] == TAB):
        p += 1
    return p


@step
def _time(buf, p, end, digits):
    """(time, where the colon stands) of ``secs.fraction:`` with that many digits; -1: other."""
    v, q = bounded_number(buf, p, end)
    if q == p:
        return v, -1
    if digits == 0:
        return v, (q if q < end and buf[q] == COLON else -1)
    if q - p > 9 or q + digits >= end or buf[q] != DOT:
        return v, -1
    f, r = bounded_number(buf, q + 1, end)
    if r - q - 1 != digits or r >= end or buf[r] != COLON:
        return v, -1
    if digits == 6:
        f *= 1000
    return v * 1000000000 + f, r


@step
def _dash_head(buf, q, end, digits, columns, bits, head):
    """Whether ``-pid (tgid) [cpu] flags time: `` stands at q; fills head[pid, tgid, cpu, ctx, ts, at]."""
    pid, p = bounded_number(buf, q + 1, end)
    if p == q + 1 or p - q > 8:
        return False
    r = blanks(buf, p, end)
    if r == p:
        return False
    tgid = np.int64(NULL_PID)
    if r < end and buf[r] == LPAR:
        p = blanks(buf, r + 1, end)
        if p < end and buf[p] == MINUS:
            while p < end and buf[p] == MINUS:
                p += 1
        else:
            tgid, s = bounded_number(buf, p, end)
            if s == p or s - p > 8:
                return False
            p = s
        if p >= end or buf[p] != RPAR:
            return False
        r = blanks(buf, p + 1, end)
    if r >= end or buf[r] != LBR:
        return False
    cpu, p = bounded_number(buf, r + 1, end)
    if p == r + 1 or p - r > 6 or cpu >= 65536 or p >= end or buf[p] != RBR:
        return False
    r = blanks(buf, p + 1, end)
    if r == p + 1:
        return False
    ts, p = _time(buf, r, end, digits)
    ctx = np.int64(NULL_CTX)
    if p < 0:
        # Not yet the time: the flags column.
        s = r
        while s < end and s - r <= 8 and buf[s] != SP and buf[s] != TAB:
            s += 1
        n = s - r
        if n < 4 or n > 8:
            return False
        ctx = np.int64(0)
        for i in range(n):
            c = np.int64(bits[columns[n, i], buf[r + i]])
            if c >= NO_FLAG:
                return False
            ctx |= c
        r = blanks(buf, s, end)
        ts, p = _time(buf, r, end, digits)
        if p < 0:
            return False
    if p + 1 >= end or (buf[p + 1] != SP and buf[p + 1] != TAB):
        return False
    head[0], head[1], head[2], head[3], head[4], head[5] = pid, tgid, cpu, ctx, ts, p + 1
    return True


@step
def _perf_head(buf, q, end, digits, head):
    """Whether `` tid [cpu] time: `` stands at q; fills head as :func:`_dash_head`."""
    pid, p = bounded_number(buf, q + 1, end)
    if p == q + 1 or p - q > 8:
        return False
    r = blanks(buf, p, end)
    if r == p or r >= end or buf[r] != LBR:
        return False
    cpu, p = bounded_number(buf, r + 1, end)
    if p == r + 1 or p - r > 6 or cpu >= 65536 or p >= end or buf[p] != RBR:
        return False
    r = blanks(buf, p + 1, end)
    if r == p + 1:
        return False
    ts, p = _time(buf, r, end, digits)
    if p < 0 or p + 1 >= end or buf[p + 1] != SP:
        return False
    head[0], head[1], head[2], head[3], head[4], head[5] = (
        pid, np.int64(NULL_PID), cpu, np.int64(NULL_CTX), ts, p + 1,
    )  # fmt: skip
    return True


@step
def find_head(buf, p, end, mode, digits, columns, bits, head):
    """Where the name before the head at p ends; -1: no usual head.

    Of all places within 15 bytes of the name's begin the last one that fits (text_lines).
    """
    top = min(p + 15, end - 1)
    q = top
    while q >= p:
        if mode == 1:
            if buf[q] == MINUS and _dash_head(buf, q, end, digits, columns, bits, head):
                return q
        elif buf[q] == SP and _perf_head(buf, q, end, digits, head):
            return q
        q -= 1
    if mode == 2:
        # A long name and the blanks before a short tid.
        q = top + 1
        while q < end and q <= p + 24:
            if buf[q] == SP and _perf_head(buf, q, end, digits, head):
                return q
            q += 1
    return -1


@inlined
def _named_in_16(eights, at):
    """Whether 16 bytes at ``at`` are a blank and what may be blanks and a name, on one line."""
    a, b = word(eights, at), word(eights, at + 8)
    # Marks of the bytes from 32 on.
    a = (((a & LOW7) + FROM_32) | a) & (((b & LOW7) + FROM_32) | b)
    return a & HIGH == HIGH


@inlined
def _usual_time(buf, eights, p, digits):
    """(time, where the colon stands) of ``secs.fraction:`` with 6 or 9 digits; -1: other."""
    marks = others(word(eights, p))
    if marks == ZERO:
        return np.int64(0), -1
    n = first(marks)
    if n == 0 or byte(buf, p + n) != DOT:
        return np.int64(0), -1
    ts = value_of(word(eights, p), n) * _SECOND
    p += n + 1
    marks = others(word(eights, p))
    if digits == 6:
        if marks == ZERO or first(marks) != 6 or byte(buf, p + 6) != COLON:
            return ts, -1
        return ts + value_of(word(eights, p), 6) * 1000, p + 6
    last = byte(buf, p + 8) - 48
    if marks != ZERO or last < 0 or last > 9 or byte(buf, p + 9) != COLON:
        return ts, -1
    return ts + value_of(word(eights, p), 8) * 10 + last, p + 9


@inlined
def _usual_cpu(buf, eights, r):
    """(cpu, where what follows ``[cpu] `` begins) at r; -1: other."""
    if byte(buf, r) != LBR:
        return np.int64(0), -1
    marks = others(word(eights, r + 1))
    if marks == ZERO:
        return np.int64(0), -1
    n = first(marks)
    if n == 0 or n > 5 or byte(buf, r + 1 + n) != RBR or byte(buf, r + 2 + n) != SP:
        return np.int64(0), -1
    cpu = value_of(word(eights, r + 1), n)
    if cpu >= 65536:
        return cpu, -1
    return cpu, spaces(eights, r + 3 + n)


@inlined
def usual_dash(buf, eights, at, digits, columns, bits, memo, memo_ctx, head):
    """Where the name of ``%16s-pid (tgid) [cpu] flags time: `` at ``at`` ends; -1: other.

    memo : uint64[64]      flags texts met before, at a place that their bytes tell; updated
    memo_ctx : int64[64]   what they mean; updated
    """
    q = at + 16
    if byte(buf, q) != MINUS or byte(buf, at) != SP or not _named_in_16(eights, at):
        return -1
    marks = others(word(eights, q + 1))
    if marks == ZERO:
        return -1
    n = first(marks)
    if n == 0 or byte(buf, q + 1 + n) != SP:
        return -1
    pid = value_of(word(eights, q + 1), n)
    r = spaces(eights, q + 2 + n)
    tgid = np.int64(NULL_PID)
    if byte(buf, r) == LPAR:
        p = spaces(eights, r + 1)
        if byte(buf, p) == MINUS:
            while byte(buf, p) == MINUS:
                p += 1
        else:
            marks = others(word(eights, p))
            if marks == ZERO:
                return -1
            n = first(marks)
            if n == 0:
                return -1
            tgid = value_of(word(eights, p), n)
            p += n
        if byte(buf, p) != RPAR:
            return -1
        r = spaces(eights, p + 1)
    cpu, r = _usual_cpu(buf, eights, r)
    if r < 0:
        return -1
    ctx = np.int64(NULL_CTX)
    if byte(buf, r) - 48 < 0 or byte(buf, r) - 48 > 9:
        flags = word(eights, r)
        marks = equal(flags, _SPACE)
        n = 8 if marks == ZERO else first(marks)
        if n < 4 or byte(buf, r + n) != SP:
            return -1
        flags = cut(flags, n)
        slot = np.int64((flags * _MIX) >> _MIX_SHIFT)
        if memo[slot] == flags:
            ctx = memo_ctx[slot]
        else:
            ctx = np.int64(0)
            for i in range(n):
                c = np.int64(bits[columns[n, i], buf[r + i]])
                if c >= NO_FLAG:
                    return -1
                ctx |= c
            memo[slot] = flags
            memo_ctx[slot] = ctx
        r = spaces(eights, r + n)
    ts, p = _usual_time(buf, eights, r, digits)
    if p < 0 or byte(buf, p + 1) != SP:
        return -1
    head[0], head[1], head[2], head[3], head[4], head[5] = pid, tgid, cpu, ctx, ts, p + 1
    return q


@inlined
def usual_perf(buf, eights, at, digits, head):
    """Where the name of ``%16s tid [cpu] time: `` at ``at`` ends; -1: other."""
    if byte(buf, at + 16) != SP or byte(buf, at) != SP or not _named_in_16(eights, at):
        return -1
    r = spaces(eights, at + 17)
    q = r - 1
    marks = others(word(eights, r))
    if marks == ZERO or q > at + 24:
        return -1
    n = first(marks)
    if n == 0 or byte(buf, r + n) != SP:
        return -1
    pid = value_of(word(eights, r), n)
    cpu, r = _usual_cpu(buf, eights, spaces(eights, r + n))
    if r < 0:
        return -1
    ts, p = _usual_time(buf, eights, r, digits)
    if p < 0 or byte(buf, p + 1) != SP:
        return -1
    head[0], head[1], head[2], head[3], head[4], head[5] = (
        pid, np.int64(NULL_PID), cpu, np.int64(NULL_CTX), ts, p + 1,
    )  # fmt: skip
    return q
