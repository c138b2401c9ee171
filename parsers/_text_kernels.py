"""Kernels that read the usual lines of ftrace, trace-cmd and perf script texts from bytes.

Strict: a line is taken only when its whole shape is the usual one; any doubt leaves it to the
line by line reader, whose results are the same (text_reader). Bodies are matched against small
templates: literal bytes, and the operations below.
"""

from __future__ import annotations

import numpy as np

from traceana._jit import njit

NULL_PID, NULL_CPU, NULL_PRIO, NULL_STATE, NULL_CTX = -1, -1, -32768, 65535, 255
NULL_I64 = -(2**63)

# Operations of a template; each but END, ANY is followed by the column it fills.
OP_INT, OP_COMM, OP_PRETTY, OP_STATE, OP_END, OP_ANY = 1, 2, 3, 4, 5, 6
#: Columns: numbers go to slot[], names to name[].
SUBJECT, PRIO, OTHER, OTHER_PRIO, CPU_TO, CPU_FROM, VALUE, SUCCESS, STATE = range(9)

# What is learnt: a name from a field, a name from a head, a thread group.
FIELD, HEAD, GROUP = 0, 1, 2
# result[]: rows written, learnt, doubts, where to go on, lines seen, names in others, and whether
# the last event line was that of a printer (kept from call to call).
ROWS, LEARNT, DOUBTS, AT, LINES, OTHERS, PRINTING = range(7)
#: In bits[]: a character that no flags column holds.
NO_FLAG = 128
#: Kind of names whose text may hold newlines (print, bprint …): counted, no rows.
PRINTER = 254

SP, TAB, NL, CR, MINUS, DOT, COLON, LBR, RBR, LPAR, RPAR, LT = (
    32, 9, 10, 13, 45, 46, 58, 91, 93, 40, 41, 60,
)  # fmt: skip


@njit
def _number(buf, p, end):
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


_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)
_ZERO = np.uint64(0)


@njit
def _newline(buf, words, p, end):
    """Where the next newline at or behind p stands; end if none. words: the buffer as uint64."""
    while p < end and p & 7:
        if buf[p] == NL:
            return p
        p += 1
    i = p >> 3
    n = min(end >> 3, np.int64(words.shape[0]))
    while i < n:
        # A byte of x is 0 where a newline stands; then its bit 7 remains unset below.
        x = words[i] ^ _NEWLINES
        if ~(((x & _LOW7) + _LOW7) | x | _LOW7) != _ZERO:
            break
        i += 1
    p = max(p, i << 3)
    while p < end and buf[p] != NL:
        p += 1
    return p


@njit
def _blanks(buf, p, end):
    while p < end and (buf[p] == SP or buf[p] == TAB):
        p += 1
    return p


@njit
def _time(buf, p, end, digits):
    """(time, where the colon stands) of ``secs.fraction:`` with that many digits; -1: other."""
    v, q = _number(buf, p, end)
    if q == p:
        return v, -1
    if digits == 0:
        return v, (q if q < end and buf[q] == COLON else -1)
    if q - p > 9 or q + digits >= end or buf[q] != DOT:
        return v, -1
    f, r = _number(buf, q + 1, end)
    if r - q - 1 != digits or r >= end or buf[r] != COLON:
        return v, -1
    if digits == 6:
        f *= 1000
    return v * 1000000000 + f, r


@njit
def _dash_head(buf, q, end, digits, columns, bits, head):
    """Whether ``-pid (tgid) [cpu] flags time: `` stands at q; fills head[pid, tgid, cpu, ctx, ts, at]."""
    pid, p = _number(buf, q + 1, end)
    if p == q + 1 or p - q > 8:
        return False
    r = _blanks(buf, p, end)
    if r == p:
        return False
    tgid = np.int64(NULL_PID)
    if r < end and buf[r] == LPAR:
        p = _blanks(buf, r + 1, end)
        if p < end and buf[p] == MINUS:
            while p < end and buf[p] == MINUS:
                p += 1
        else:
            tgid, s = _number(buf, p, end)
            if s == p or s - p > 8:
                return False
            p = s
        if p >= end or buf[p] != RPAR:
            return False
        r = _blanks(buf, p + 1, end)
    if r >= end or buf[r] != LBR:
        return False
    cpu, p = _number(buf, r + 1, end)
    if p == r + 1 or p - r > 6 or cpu >= 65536 or p >= end or buf[p] != RBR:
        return False
    r = _blanks(buf, p + 1, end)
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
        r = _blanks(buf, s, end)
        ts, p = _time(buf, r, end, digits)
        if p < 0:
            return False
    if p + 1 >= end or (buf[p + 1] != SP and buf[p + 1] != TAB):
        return False
    head[0], head[1], head[2], head[3], head[4], head[5] = pid, tgid, cpu, ctx, ts, p + 1
    return True


@njit
def _perf_head(buf, q, end, digits, head):
    """Whether `` tid [cpu] time: `` stands at q; fills head as :func:`_dash_head`."""
    pid, p = _number(buf, q + 1, end)
    if p == q + 1 or p - q > 8:
        return False
    r = _blanks(buf, p, end)
    if r == p or r >= end or buf[r] != LBR:
        return False
    cpu, p = _number(buf, r + 1, end)
    if p == r + 1 or p - r > 6 or cpu >= 65536 or p >= end or buf[p] != RBR:
        return False
    r = _blanks(buf, p + 1, end)
    if r == p + 1:
        return False
    ts, p = _time(buf, r, end, digits)
    if p < 0 or p + 1 >= end or buf[p + 1] != SP:
        return False
    head[0], head[1], head[2], head[3], head[4], head[5] = (
        pid, np.int64(NULL_PID), cpu, np.int64(NULL_CTX), ts, p + 1,
    )  # fmt: skip
    return True


@njit
def _find_head(buf, p, end, mode, digits, columns, bits, head):
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


@njit
def _event_name(buf, p, end, span):
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


@njit
def _plain(buf, a, n, colons):
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


@njit
def _match(buf, p, end, template, t, t_end, slot, name, letters, numbers):
    """Whether the body at p is that of template[t:t_end]; fills slot (numbers) and name."""
    p = _blanks(buf, p, end)
    while t < t_end:
        op = template[t]
        if op > 8:
            if p >= end or buf[p] != op:
                return False
            p += 1
            t += 1
            continue
        if op == OP_END:
            p = _blanks(buf, p, end)
            return p >= end
        if op == OP_ANY:
            return True
        column = np.int64(template[t + 1])
        t += 2
        if op == OP_INT:
            sign = 1
            if p < end and buf[p] == MINUS:
                sign = -1
                p += 1
            v, q = _number(buf, p, end)
            if q == p:
                return False
            slot[column] = v * sign
            p = q
        elif op == OP_STATE:
            if p >= end:
                return False
            c = np.int64(buf[p])
            if 48 <= c <= 57:
                v, q = _number(buf, p, end)
                if q == p or v >= numbers.shape[0]:
                    return False
                slot[STATE] = np.int64(numbers[v])
                p = q
            else:
                state = np.int64(0)
                q = p
                while p < end and buf[p] != SP:
                    v = np.int64(letters[column, buf[p]])
                    if v == NULL_STATE:
                        return False
                    state |= v
                    p += 1
                if p == q:
                    return False
                slot[STATE] = state
        else:
            # A name ends where what follows it in the template does; the first such place. A
            # name that itself holds one makes the rest fail.
            q = p
            found = False
            while q < end and q - p <= 15:
                c = buf[q]
                if c < 32 or c > 126:
                    return False
                if c == template[t]:
                    if op == OP_PRETTY:
                        s = q + 1
                        if s < end and buf[s] == MINUS:
                            s += 1
                        _, r = _number(buf, s, end)
                        if r > s and r + 1 < end and buf[r] == SP and buf[r + 1] == LBR:
                            found = True
                            break
                    else:
                        i = np.int64(0)
                        while t + i < t_end and template[t + i] > 8:
                            if q + i >= end or buf[q + i] != template[t + i]:
                                break
                            i += 1
                        if t + i >= t_end or template[t + i] <= 8:
                            found = True
                            break
                q += 1
            if not found:
                return False
            name[column, 0] = p
            name[column, 1] = q - p
            p = q
    return True


@njit
def _fits(slot):
    """Whether the numbers fit their columns, and a wakeup was one."""
    for i in (SUBJECT, OTHER):
        if slot[i] != NULL_I64 and (slot[i] < -(2**31) or slot[i] >= 2**31):
            return False
    for i in (PRIO, OTHER_PRIO):
        if slot[i] != NULL_I64 and (slot[i] <= -(2**15) or slot[i] >= 2**15):
            return False
    for i in (CPU_TO, CPU_FROM):
        if slot[i] != NULL_I64 and (slot[i] < 0 or slot[i] >= 65536):
            return False
    return slot[SUCCESS] != 0 and (slot[VALUE] == NULL_I64 or slot[VALUE] >= 0)


@njit
def _learn(buf, at, n, pid, ts, known, learnt, k):
    """Book a name unless it was known by then; returns the new number of entries."""
    a = np.int64(0)
    b = np.int64(0)
    for i in range(n):
        c = np.int64(buf[at + i])
        if i < 7:
            a = a * 256 + c
        else:
            b = b * 128 + c
    if known[pid, 0] == a and known[pid, 1] == b and known[pid, 2] <= ts:
        return k
    known[pid, 0] = a
    known[pid, 1] = b
    known[pid, 2] = ts
    learnt[k, 0] = FIELD
    learnt[k, 1] = ts
    learnt[k, 2] = pid
    learnt[k, 3] = at
    learnt[k, 4] = n
    return k + 1


@njit
def _count_other(buf, a, n, others, result):
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
            if result[OTHERS] * 4 > size * 3:
                return False
            result[OTHERS] += 1
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


@njit
def parse(
    buf, words, start, end, mode, digits, columns, bits, names, by_length, kinds, first, templates, spans, hints,
    letters, numbers, known, groups, seen, counts, others, learnt, doubts, result,
    o_off, o_ts, o_cpu, o_kind, o_pid, o_ctx, o_subject, o_prio, o_state, o_other, o_other_prio,
    o_cpu_to, o_cpu_from, o_value,
):  # fmt: skip
    """Read the lines of buf[start:end] until done, or until an output is full.

    Parameters
    ----------
    buf : uint8[n]
    words : uint64[n // 8]   the same bytes
    mode : int64             1: ``comm-pid [cpu]``; 2: perf script
    digits : int64           digits behind the point of times: 6, 9, or 0 (no point)
    columns : int64[9, 8]    for a flags text of that length, the row of bits for each byte
    bits : uint8[k, 256]     bits of ctx, or NO_FLAG
    names : uint8[m, 50]     known events, by length; each is its length, then the name
    by_length : int64[51]    which of them have a length: [by_length[n], by_length[n + 1])
    kinds : int64[m]         their kinds (PRINTER: no row)
    first : int64[m, 2]      their templates: rows [a, b) of spans
    templates : uint8[t]     all templates
    spans : int64[s, 2]      where each begins and ends
    hints : int64[m]         the template that fitted last; updated
    letters : uint16[2, 256] state bits of a letter, NULL_STATE if unknown; 0 kernel, 1 plugin
    numbers : uint16[l]      state of a raw prev_state
    known : int64[p, 3]      name of each pid, packed, and since when; updated
    groups : int32[p]        thread group of each pid; updated
    seen : uint8[p]          whether a head named the pid; updated
    counts : int64[m]        events per known name; added to
    others : int64[2^h, 3]   events per other name; added to
    learnt : int64[l, 5]     what, ts, pid, offset, length (or the group); written
    doubts : int64[d, 3]     lines left: offset, number from 0, after a printing event (2: not
                             known here); written
    result : int64[7]        see above; written
    o_* :                    the rows; o_off is twice the line's offset + 1
    """
    limit = known.shape[0]
    head = np.zeros(6, np.int64)
    span = np.zeros(3, np.int64)
    slot = np.zeros(STATE + 1, np.int64)
    name = np.zeros((2, 2), np.int64)
    rows = np.int64(0)
    k = np.int64(0)
    nd = np.int64(0)
    lines = np.int64(0)
    printing = result[PRINTING]
    at = start
    while at < end:
        if rows >= o_ts.shape[0] or k + 4 > learnt.shape[0] or nd >= doubts.shape[0]:
            break
        p = _blanks(buf, at, end)
        if p >= end or buf[p] == NL:
            at = p + 1
            lines += 1
            continue
        stop = _newline(buf, words, p, end)
        after = stop + 1
        while stop > p and (buf[stop - 1] == CR or buf[stop - 1] == SP):
            stop -= 1
        good = False
        q = _find_head(buf, p, stop, mode, digits, columns, bits, head)
        if q < 0:
            if mode == 2 and buf[at] == TAB:
                # A frame of a call chain.
                s = p
                while s < stop and (48 <= buf[s] <= 57 or 97 <= buf[s] <= 102):
                    s += 1
                good = 0 < s - p <= 16 and s < stop and buf[s] == SP
        else:
            pid, ts = head[0], head[4]
            body = _blanks(buf, head[5], stop)
            body = _event_name(buf, body, stop, span)
            if body >= 0 and pid < limit:
                a, n = span[0], span[1]
                event = -1
                for i in range(by_length[n], by_length[n + 1]):
                    j = n
                    while j > 0 and names[i, j] == buf[a + j - 1]:
                        j -= 1
                    if j == 0:
                        event = i
                        break
                if event < 0:
                    good = _plain(buf, a, n, span[2]) and _count_other(buf, a, n, others, result)
                    if good:
                        printing = np.int64(0)
                elif kinds[event] == PRINTER:
                    good = True
                    printing = np.int64(1)
                    counts[event] += 1
                else:
                    lo, hi = first[event, 0], first[event, 1]
                    width = hi - lo
                    for i in range(width):
                        row = lo + (hints[event] + i) % width
                        # Loops compile faster than slices.
                        for j in range(STATE + 1):
                            slot[j] = NULL_I64
                        for j in range(2):
                            name[j, 0] = -1
                            name[j, 1] = -1
                        if _match(
                            buf, body, stop, templates, spans[row, 0], spans[row, 1], slot, name,
                            letters, numbers,
                        ):  # fmt: skip
                            hints[event] = row - lo
                            good = True
                            break
                    good = good and _fits(slot)
                    for i in range(2):
                        # "<...>" and ":123" are no names; the table of pids has an end.
                        if good and name[i, 1] > 0:
                            c = buf[name[i, 0]]
                            good = c != LT and c != COLON and slot[2 * i] < limit
                    if good:
                        printing = np.int64(0)
                        counts[event] += 1
                        # In the order of the text: a fork tells the parent ("other") first.
                        swap = 1 if name[1, 1] > 0 and name[1, 0] < name[0, 0] else 0
                        for j in range(2):
                            i = j ^ swap
                            if name[i, 1] > 0 and slot[2 * i] > 0:
                                k = _learn(
                                    buf, name[i, 0], name[i, 1], slot[2 * i], ts, known, learnt, k
                                )
                        o_off[rows] = 2 * at + 1
                        o_ts[rows] = ts
                        o_cpu[rows] = head[2]
                        o_kind[rows] = kinds[event]
                        o_pid[rows] = pid
                        o_ctx[rows] = head[3]
                        o_subject[rows] = NULL_PID if slot[0] == NULL_I64 else slot[0]
                        o_prio[rows] = NULL_PRIO if slot[1] == NULL_I64 else slot[1]
                        o_other[rows] = NULL_PID if slot[2] == NULL_I64 else slot[2]
                        o_other_prio[rows] = NULL_PRIO if slot[3] == NULL_I64 else slot[3]
                        o_cpu_to[rows] = NULL_CPU if slot[4] == NULL_I64 else slot[4]
                        o_cpu_from[rows] = NULL_CPU if slot[5] == NULL_I64 else slot[5]
                        o_value[rows] = slot[6]
                        o_state[rows] = NULL_STATE if slot[STATE] == NULL_I64 else slot[STATE]
                        rows += 1
                if good and pid > 0:
                    # "<...>", "<idle>", ":123".
                    while q > p and buf[q - 1] == SP:
                        q -= 1
                    named = q > p and (buf[p] != LT or q - p > 6)
                    if named and seen[pid] == 0 and buf[p] == COLON:
                        _, r = _number(buf, p + 1, q)
                        named = r < q
                    if seen[pid] == 0 and named:
                        seen[pid] = 1
                        learnt[k, 0], learnt[k, 1], learnt[k, 2] = HEAD, ts, pid
                        learnt[k, 3], learnt[k, 4] = p, q - p
                        k += 1
                    if head[1] > 0 and groups[pid] != head[1]:
                        groups[pid] = head[1]
                        learnt[k, 0], learnt[k, 1], learnt[k, 2] = GROUP, ts, pid
                        learnt[k, 3], learnt[k, 4] = at, head[1]
                        k += 1
        if not good:
            doubts[nd, 0], doubts[nd, 1], doubts[nd, 2] = at, lines, printing
            nd += 1
            printing = np.int64(2)
        lines += 1
        at = after
    result[ROWS], result[LEARNT], result[DOUBTS] = rows, k, nd
    result[AT], result[LINES], result[PRINTING] = at, lines, printing


@njit
def _any_time(buf, p, end):
    """The time at p, whatever its digits, as ns (or the bare number); -1: none."""
    v, q = _number(buf, p, end)
    if q == p:
        return np.int64(-1)
    if q < end and buf[q] == DOT:
        f, r = _number(buf, q + 1, end)
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
        stop = _newline(buf, words, p, end)
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
