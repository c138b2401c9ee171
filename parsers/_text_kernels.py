"""Kernels that read the usual lines of ftrace, trace-cmd and perf script texts from bytes.

Strict: a line is taken only when its whole shape is the usual one; any doubt leaves it to the
line by line reader, whose results are the same (text_reader). Bodies are matched against small
templates: literals of up to eight bytes, and the operations below.
"""

from __future__ import annotations

import numpy as np

from traceana._jit import inlined, njit
from traceana.parsers._text_head_kernels import (
    COLON,
    NULL_PID,
    blanks,
    bounded_number,
    find_head,
    usual_dash,
    usual_perf,
)
from traceana.parsers._text_line_kernels import newline, text_end
from traceana.parsers._text_name_kernels import (
    count_other,
    event_name,
    known_event,
    name_end,
    plain,
)
from traceana.parsers._text_word_kernels import (
    MINUS,
    NL,
    SP,
    TAB,
    byte,
    comm_end,
    cut,
    line_end,
    number,
    spaces,
    word,
)

NULL_CPU, NULL_PRIO, NULL_STATE = -1, -32768, 65535
NULL_I64 = -(2**63)

#: Operations of a template: a literal (and its length); those that fill a column; the line's end.
OP_LITERAL, OP_INT, OP_COMM, OP_PRETTY, OP_STATE, OP_END, OP_ANY = range(7)
#: Columns: numbers go to slot[], names to name[].
SUBJECT, PRIO, OTHER, OTHER_PRIO, CPU_TO, CPU_FROM, VALUE, SUCCESS, STATE = range(9)

# What is learnt: a name from a field, a name from a head, a thread group.
FIELD, HEAD, GROUP = 0, 1, 2
# result[]: rows written, learnt, doubts, where to go on, lines seen, names in others, and whether
# the last event line was that of a printer (kept from call to call).
ROWS, LEARNT, DOUBTS, AT, LINES, OTHERS, PRINTING = range(7)
#: Kind of names whose text may hold newlines (print, bprint …): counted, no rows.
PRINTER = 254
LT = 60


@inlined
def _match(buf, eights, p, program, t, slot, name, letters, numbers):
    """Where the body at p ends if it is that of the template from place t on; else -1.

    Fills slot (numbers) and name. A template whose rest may be anything gives any place on the line.
    """
    while True:
        op, column = np.int64(program[t]), np.int64(program[t + 1])
        if op == OP_LITERAL:
            if word(eights, p) & program[t + 3] != program[t + 2]:
                return np.int64(-1)
            p += column
        elif op == OP_INT:
            negative = byte(buf, p) == MINUS
            if negative:
                p += 1
            v, q = number(eights, p)
            if q == p:
                return np.int64(-1)
            slot[column] = -v if negative else v
            p = q
        elif op == OP_COMM or op == OP_PRETTY:
            # A name ends where what follows it in the template does; the first such place. A
            # name that itself holds one makes the rest fail.
            q = comm_end(buf, eights, p, program, t + 4, op == OP_PRETTY)
            if q < 0:
                return np.int64(-1)
            name[2 * column] = p
            name[2 * column + 1] = q - p
            p = q
        elif op == OP_STATE:
            if 48 <= byte(buf, p) <= 57:
                v, q = number(eights, p)
                if q == p or v >= numbers.shape[0]:
                    return np.int64(-1)
                slot[STATE] = np.int64(numbers[v])
                p = q
            else:
                state = np.int64(0)
                q = p
                while byte(buf, p) != SP:
                    v = np.int64(letters[256 * column + byte(buf, p)])
                    if v == NULL_STATE:
                        return np.int64(-1)
                    state |= v
                    p += 1
                if p == q:
                    return np.int64(-1)
                slot[STATE] = state
        elif op == OP_END:
            return line_end(buf, p)
        else:
            return p
        t += 4


@inlined
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


@inlined
def _learn(eights, at, n, pid, ts, known, since, learnt, k):
    """Book a name unless it was known by then; returns the new number of entries."""
    a = cut(word(eights, at), min(n, 8))
    b = cut(word(eights, at + 8), max(n - 8, 0))
    if known[pid, 0] == a and known[pid, 1] == b and since[pid] <= ts:
        return k
    known[pid, 0] = a
    known[pid, 1] = b
    since[pid] = ts
    learnt[k, 0] = FIELD
    learnt[k, 1] = ts
    learnt[k, 2] = pid
    learnt[k, 3] = at
    learnt[k, 4] = n
    return k + 1


@njit
def parse(
    buf, eights, words, safe, start, end, mode, digits, columns, bits, memo, memo_ctx,
    table, names, lengths, event_of, kinds, templates, program, hints,
    letters, numbers, head, span, slot, name, known, since, groups, seen, counts, others, learnt,
    doubts, result,
    o_off, o_ts, o_cpu, o_kind, o_pid, o_ctx, o_subject, o_prio, o_state, o_other, o_other_prio,
    o_cpu_to, o_cpu_from, o_value,
):  # fmt: skip
    """Read the lines of buf[start:end] until done, or until an output is full.

    Parameters
    ----------
    buf : uint8[n]
    eights : uint64[n - 7]   the same bytes, eight from each place on
    words : uint64[n // 8]   the same bytes, eight at a time
    safe : int64             lines that begin behind it are left (they end too near to the end)
    mode : int64             1: ``comm-pid [cpu]``; 2: perf script
    digits : int64           digits behind the point of times: 6, 9, or 0 (no point)
    columns : int64[9, 8]    for a flags text of that length, the row of bits for each byte
    bits : uint8[k, 256]     bits of ctx, or NO_FLAG
    memo, memo_ctx           flags met before (usual_dash); updated
    table : int64[1024]      known names by :func:`name_hash`, -1 where there is none
    names : uint64[6 m]      known names of events, also ``system:name``, zeros behind
    lengths : int64[m]       their lengths
    event_of : int64[m]      which event each means
    kinds : int64[e]         kinds of the events (PRINTER: no row)
    templates : int64[e, 2]  their templates: entries [a, b) of hints
    program : uint64[4 c]    all templates: operation, its column or length, bytes of a literal, mask
    hints : int64[s]         where each template begins in it; the one that fitted last is put
                             first of its event's; updated
    letters : uint16[2 * 256] state bits of a letter, NULL_STATE if unknown; 0 kernel, 1 plugin
    numbers : uint16[l]      state of a raw prev_state
    head, span : int64[6], [3]      room for what is being read: the head, the event's name,
    slot, name : int64[9], [4]   its numbers; where its two comms begin, and their lengths
    known : uint64[p, 2]     name of each pid; updated
    since : int64[p]         and since when; updated
    groups : int32[p]        thread group of each pid; updated
    seen : uint8[p]          whether a head named the pid; updated
    counts : int64[e]        events per known name; added to
    others : int64[2^h, 3]   events per other name; added to
    learnt : int64[l, 5]     what, ts, pid, offset, length (or the group); written
    doubts : int64[d, 3]     lines left: offset, number from 0, after a printing event (2: not
                             known here); written
    result : int64[7]        see above; written
    o_* :                    the rows; o_off is twice the line's offset + 1
    """
    limit = groups.shape[0]
    rows = np.int64(0)
    k = np.int64(0)
    nd = np.int64(0)
    lines = np.int64(0)
    printing = result[PRINTING]
    at = np.int64(start)
    while at < end:
        if rows >= o_ts.shape[0] or k + 4 > learnt.shape[0] or nd >= doubts.shape[0]:
            break
        good = False
        stop = np.int64(-1)
        q = np.int64(-1)
        p = at
        if at < safe:
            if digits > 0:
                if mode == 1:
                    q = usual_dash(buf, eights, at, digits, columns, bits, memo, memo_ctx, head)
                else:
                    q = usual_perf(buf, eights, at, digits, head)
                if q >= 0:
                    p = spaces(eights, at)
                    if p > q:
                        q = np.int64(-1)
            if q < 0:
                p = blanks(buf, at, end)
                if buf[p] == NL:
                    at = p + 1
                    lines += 1
                    continue
                stop = newline(buf, words, p, end)
                q = find_head(buf, p, text_end(buf, p, stop), mode, digits, columns, bits, head)
                if q < 0 and mode == 2 and buf[at] == TAB:
                    # A frame of a call chain.
                    s = p
                    while 48 <= buf[s] <= 57 or 97 <= buf[s] <= 102:
                        s += 1
                    good = 0 < s - p <= 16 and buf[s] == SP
        if q >= 0 and head[0] < limit:
            pid, ts = head[0], head[4]
            body = spaces(eights, head[5])
            event = np.int64(-1)
            a = body
            n = np.int64(0)
            colon = name_end(buf, eights, body)
            if colon > body:
                event = known_event(eights, body, colon - body, table, names, lengths)
                body = colon + 1
            if event < 0:
                if stop < 0:
                    stop = newline(buf, words, a, end)
                body = blanks(buf, head[5], stop)
                body = event_name(buf, body, text_end(buf, p, stop), span)
                a, n = span[0], span[1]
                if body >= 0:
                    event = known_event(eights, a, n, table, names, lengths)
            if event >= 0:
                event = event_of[event]
                if kinds[event] == PRINTER:
                    good = True
                    printing = np.int64(1)
                    counts[event] += 1
                else:
                    body = spaces(eights, body)
                    if buf[body] == TAB:
                        body = blanks(buf, body, end)
                    lo, hi = templates[event, 0], templates[event, 1]
                    for i in range(lo, hi):
                        # Loops compile faster than slices.
                        for j in range(STATE + 1):
                            slot[j] = NULL_I64
                        name[1] = -1
                        name[3] = -1
                        done = _match(
                            buf, eights, body, program, hints[i], slot, name, letters, numbers
                        )  # fmt: skip
                        if done >= 0:
                            good = True
                            if i > lo:
                                j = hints[i]
                                hints[i] = hints[lo]
                                hints[lo] = j
                            if buf[done] == NL:
                                stop = done
                            elif stop < 0:
                                stop = newline(buf, words, done, end)
                            break
                    good = good and _fits(slot)
                    for i in range(2):
                        # "<...>" and ":123" are no names; the table of pids has an end.
                        if good and name[2 * i + 1] > 0:
                            c = buf[name[2 * i]]
                            good = c != LT and c != COLON and slot[2 * i] < limit
                    if good:
                        printing = np.int64(0)
                        counts[event] += 1
                        # In the order of the text: a fork tells the parent ("other") first.
                        swap = 1 if name[3] > 0 and name[2] < name[0] else 0
                        for j in range(2):
                            i = j ^ swap
                            if name[2 * i + 1] > 0 and slot[2 * i] > 0:
                                k = _learn(
                                    eights, name[2 * i], name[2 * i + 1], slot[2 * i], ts, known, since,
                                    learnt, k,
                                )  # fmt: skip
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
            elif body >= 0:
                good = plain(buf, a, n, span[2]) and count_other(buf, a, n, others, result, OTHERS)
                if good:
                    printing = np.int64(0)
            if good and pid > 0:
                if seen[pid] == 0:
                    # "<...>", "<idle>", ":123".
                    while q > p and buf[q - 1] == SP:
                        q -= 1
                    named = q > p and (buf[p] != LT or q - p > 6)
                    if named and buf[p] == COLON:
                        _, r = bounded_number(buf, p + 1, q)
                        named = r < q
                    if named:
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
        if stop < 0:
            stop = newline(buf, words, at, end)
        at = stop + 1
    result[ROWS], result[LEARNT], result[DOUBTS] = rows, k, nd
    result[AT], result[LINES], result[PRINTING] = at, lines, printing
