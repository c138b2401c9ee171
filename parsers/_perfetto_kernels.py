"""Kernels that walk the protobuf wire of a Perfetto trace.

A trace is a run of packets (field 1); some hold a bundle of ftrace events of one CPU. The walk has
three steps, each over a piece of the trace: :func:`packets` finds the packets and sizes their
bundles up, :func:`decode` makes rows of the bundles' events, and, once the rows of all CPUs are in
the order of time, :func:`finish` fills in what the compact form leaves to the switch before.

Nesting is fixed (packet, bundle, event or compact part, fields), so nothing recurses. Each length
is checked against the end of what it lies in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana._jit import njit, step

# Cells of a row of :func:`packets`.
(FIELD, OFF, END, SEQ, MACHINE, DROPPED, CPU, LOST, CLOCK, FTRACE_TS, BOOT_TS, HAS_PAIR, EVENTS,
 SWITCHES, WAKINGS, MIN_TS, PREV_END, DESCRIBES, PACKET, ERRORS) = range(20)  # fmt: skip
N_CELLS = 20

# Fields of TracePacket that say something about the packet, not what it holds.
FTRACE = 1
#: Kinds of packets are told apart up to this number; what is above counts as 0.
N_PACKETS = 1024

# Cells of ``result`` of :func:`packets`: where it stopped, rows written, why it stopped.
AT, ROWS, STOP = 0, 1, 2
RUNNING, CUT, BROKEN = 0, 1, 2

# Slots of an event's fields. FIRST_NAME belongs to the subject, SECOND_NAME to other.
(NO_SLOT, SUBJECT, PRIO, STATE, OTHER, OTHER_PRIO, CPU_TO, CPU_FROM, VALUE, SUCCESS, FIRST_NAME,
 SECOND_NAME) = range(12)  # fmt: skip
N_SLOTS = 12
#: Fields of an event above this number are not looked at.
N_FIELDS = 32

#: Event fields of FtraceEvent with a number below have a cell of their own in ``counts``.
N_EVENTS = 2048
GENERIC = 327

# ``how`` of a row: as it stands; a compact switch or waking; an event described by names.
PLAIN, COMPACT_SWITCH, COMPACT_WAKING, BY_NAME = 0, 1, 2, 3

# Cells of ``told`` of :func:`decode`.
OUT, FAILED, BAD_EVENTS, FIRST_BAD, BAD_COMPACT, FIRST_BAD_COMPACT = range(6)
N_TOLD = 6

KIND_SWITCH, KIND_WAKING, KIND_RENAME, KIND_LOST, KIND_BEGIN = 0, 1, 16, 19, 20
NULL_I64 = -(2**63)
I64_MAX = 2**63 - 1
#: No clock gets there: 146 years in ns.
TIME_LIMIT = 1 << 62
#: PID_MAX_LIMIT of 64-bit kernels; pids are below.
PID_LIMIT = 4194304
MAX_CPU = 1 << 16


@step
def varint(buf: Any, at: Any, end: Any) -> Any:
    """The varint at ``buf[at]`` and where it ends; that is -1 when it does not end before ``end``."""
    value = np.int64(0)
    shift = np.int64(0)
    while at < end and shift < 70:
        byte = np.int64(buf[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return np.int64(0), np.int64(-1)


@step
def next_field(buf: Any, at: Any, end: Any) -> Any:
    """The field at ``buf[at]``: its tag, its value, and where it ends.

    The value of a varint is its value, else where the content begins. The end is -1 when it is not
    before ``end``, or when there is no such type of field. (Large enough not to be inlined, which
    keeps the kernels quick to compile.)
    """
    tag, at = varint(buf, at, end)
    wire = tag & 7
    if at < 0 or tag < 8:
        return tag, np.int64(0), np.int64(-1)
    if wire == 1 or wire == 5:
        after = at + (8 if wire == 1 else 4)
        return tag, at, after if after <= end else np.int64(-1)
    if wire != 0 and wire != 2:
        return tag, at, np.int64(-1)
    value, at = varint(buf, at, end)
    if wire == 0 or at < 0:
        return tag, value, at
    if value < 0 or value > end - at:
        return tag, at, np.int64(-1)
    return tag, at, at + value


@step
def _stamp(buf: Any, at: Any, end: Any) -> Any:
    """Time of the FtraceEvent in [at, end); -1 when it tells none that can be."""
    while at < end:
        tag, value, at = next_field(buf, at, end)
        if at < 0:
            return np.int64(-1)
        if tag == 8:
            return value if 0 <= value < TIME_LIMIT else np.int64(-1)
    return np.int64(0)


@step
def _chain(buf: Any, at: Any, end: Any) -> Any:
    """Number of varints in [at, end), and the least of their running sums."""
    n = np.int64(0)
    least = np.int64(I64_MAX)
    time = np.int64(0)
    while at < end:
        delta, at = varint(buf, at, end)
        if at < 0:
            return n, least
        n += 1
        if -TIME_LIMIT < delta < TIME_LIMIT:
            time += delta
            if not 0 <= time < TIME_LIMIT:
                return n, least
            least = min(least, time)
        else:
            return n, least
    return n, least


@step
def _size_up(buf: Any, at: Any, end: Any, row: Any) -> Any:
    """Facts of the bundle in [at, end) into ``row``: CPU, clock, how many events, the least time."""
    least = np.int64(I64_MAX)
    while at < end:
        tag, value, at = next_field(buf, at, end)
        if at < 0:
            break
        if tag == 18:
            row[EVENTS] += 1
            time = _stamp(buf, value, at)
            if time >= 0:
                least = min(least, time)
        elif tag == 34:
            pos = value
            while pos < at:
                tag, value, pos = next_field(buf, pos, at)
                if pos < 0:
                    break
                if tag == 10 or tag == 58:
                    n, time = _chain(buf, value, pos)
                    least = min(least, time)
                    row[SWITCHES if tag == 10 else WAKINGS] += n
        elif tag == 8:
            row[CPU] = value
        elif tag == 24:
            row[LOST] = value
        elif tag == 40:
            row[CLOCK] = value
        elif tag == 48:
            row[FTRACE_TS] = value
            row[HAS_PAIR] |= 1
        elif tag == 56:
            row[BOOT_TS] = value
            row[HAS_PAIR] |= 2
        elif tag >> 3 == 8:
            row[ERRORS] += 1
        elif tag == 80:
            row[PREV_END] = value
        elif tag == 90:
            row[DESCRIBES] = 1
    row[MIN_TS] = least


@njit
def packets(buf: Any, start: Any, end: Any, stop: Any, wanted: Any, rows: Any, counts: Any,
            result: Any) -> Any:  # fmt: skip
    """Walk the packets that begin in [start, stop); one row for each that is of interest.

    Stops early when ``rows`` is full; ``result`` tells where.

    Parameters
    ----------
    buf : uint8[:] read-only
    start, end, stop : int64      ``end``: where the trace ends
    wanted : uint8[N_PACKETS]     what a packet must hold to get a row
    rows : int64[:, N_CELLS]      written
    counts : int64[N_PACKETS]     packets by what they hold; added to
    result : int64[3]             written
    """
    at = np.int64(start)
    n = np.int64(0)
    why = RUNNING
    while at < stop and n < len(rows):
        packet = at
        last = np.int64(end)
        tag, body, at = next_field(buf, packet, end)
        if at < 0:
            # A length that reaches beyond the end: of a bundle the whole events are taken.
            wire = tag & 7
            why = CUT if tag >= 8 and (wire == 0 or wire == 1 or wire == 2 or wire == 5) else BROKEN
            at = packet
            if tag != 10 or body <= packet:
                if tag == 0 and buf[packet] >= 0x80:
                    why = CUT
                break
        else:
            last = at
        if tag != 10:
            continue
        row = rows[n]
        for i in range(N_CELLS):
            row[i] = 0
        what = np.int64(0)
        off = np.int64(0)
        stop_at = np.int64(0)
        pos = body
        while pos < last:
            tag, value, pos = next_field(buf, pos, last)
            if pos < 0:
                if why != CUT or tag != 10:
                    break
                pos = last
            if tag == 80:
                row[SEQ] = value
            elif tag == 784:
                row[MACHINE] = value
            elif tag == 336:
                row[DROPPED] = value
            elif tag & 7 == 2 and what == 0:
                field = tag >> 3
                # 12 and 59 go along with what a packet holds.
                if field < N_PACKETS and field != 12 and field != 59:
                    what = field
                    off = value
                    stop_at = pos
        counts[what] += 1
        if wanted[what] != 0:
            row[FIELD] = what
            row[OFF] = off
            row[END] = stop_at
            row[PACKET] = packet
            if what == FTRACE:
                _size_up(buf, off, stop_at, row)
            n += 1
        if why == CUT:
            at = packet
            break
    result[AT] = at
    result[ROWS] = n
    result[STOP] = why


@step
def _words(buf: Any, at: Any, end: Any) -> Any:
    """A comm of at most 16 bytes as two little-endian words, 0 after its end."""
    first = np.int64(0)
    second = np.int64(0)
    for i in range(min(end - at, 16)):
        byte = np.int64(buf[at + i])
        if byte == 0:
            break
        if i < 8:
            first |= byte << (8 * i)
        else:
            second |= byte << (8 * (i - 8))
    return first, second


@step
def _pid(value: Any) -> Any:
    """An int32 as it stands on the wire; -1 for what is none."""
    if value >= 1 << 31:
        value -= 1 << 32
    return value if -(1 << 31) <= value < 1 << 31 else np.int64(-1)


@step
def _prio(value: Any) -> Any:
    value = _pid(value)
    return value if -32768 < value <= 32767 else np.int64(-32768)


@step
def _cpu(value: Any) -> Any:
    return value if 0 <= value < MAX_CPU else np.int64(-1)


@step
def _blank(i: Any, ts: Any, cpu: Any, buffer: Any, names: Any, columns: Any) -> Any:
    """Row i of the columns: everything but when and where unknown."""
    (o_ts, o_cpu, _, o_pid, o_ctx, o_subject, o_prio, o_state, o_other, o_other_prio,
     o_cpu_to, o_cpu_from, o_value, o_buffer) = columns  # fmt: skip
    o_ts[i] = ts
    o_cpu[i] = cpu
    o_pid[i] = -1
    o_ctx[i] = 255
    o_subject[i] = -1
    o_prio[i] = -32768
    o_state[i] = 65535
    o_other[i] = -1
    o_other_prio[i] = -32768
    o_cpu_to[i] = -1
    o_cpu_from[i] = -1
    o_value[i] = NULL_I64
    o_buffer[i] = buffer
    for j in range(4):
        names[i, j] = 0


@step
def _compact(buf: Any, at: Any, end: Any, cpu: Any, shift: Any, buffer: Any, states: Any,
             ctx_of_flags: Any, out: Any, counts: Any, names: Any, how: Any, columns: Any) -> Any:  # fmt: skip
    """Rows of one CompactSched; returns the next row, -1 when its arrays do not belong together.

    Its fields are parallel arrays of varints: 1–6 of switches, 7–12 of wakings; 5 is the table of
    names. Each is read by a place and an end of its own.
    """
    (_, _, o_kind, _, o_ctx, o_subject, o_prio, o_state, o_other, o_other_prio,
     o_cpu_to, _, _, _) = columns  # fmt: skip
    place = np.zeros(13, np.int64)
    limit = np.zeros(13, np.int64)
    size = np.zeros(13, np.int64)
    vals = np.zeros(13, np.int64)
    strings = np.zeros((0, 2), np.int64)
    n_strings = np.int64(0)
    for turn in range(2):
        if turn == 1:
            strings = np.zeros((n_strings, 2), np.int64)
            n_strings = np.int64(0)
        pos = at
        while pos < end:
            tag, begin, pos = next_field(buf, pos, end)
            if pos < 0:
                return np.int64(-1)
            field = tag >> 3
            if field > 12:
                continue
            if tag & 7 != 2:
                return np.int64(-1)
            if field == 5:
                if turn == 1:
                    strings[n_strings, 0], strings[n_strings, 1] = _words(buf, begin, pos)
                n_strings += 1
            elif turn == 0:
                n = np.int64(0)
                for i in range(begin, pos):
                    n += buf[i] < 0x80
                if size[field] != 0 or (begin < pos and buf[pos - 1] >= 0x80):
                    return np.int64(-1)
                place[field] = begin
                limit[field] = pos
                size[field] = n
    switches = size[1]
    wakings = size[7]
    for field in range(2, 13):
        n = switches if field < 7 else wakings
        if field != 5 and size[field] != n and (field != 12 or size[field] != 0):
            return np.int64(-1)
    for part in range(2):
        base = np.int64(6) if part == 0 else np.int64(0)  # wakings first: see the reader
        n = wakings if part == 0 else switches
        time = np.int64(0)
        for _ in range(n):
            for field in range(base + 1, base + 7):
                if size[field] != 0:
                    vals[field], place[field] = varint(buf, place[field], limit[field])
                    if place[field] < 0:
                        return np.int64(-1)
            if not -TIME_LIMIT < vals[base + 1] < TIME_LIMIT:
                return np.int64(-1)
            time += vals[base + 1]
            index = vals[11] if part == 0 else vals[6]
            if (not 0 <= time < TIME_LIMIT or not 0 <= time + shift < TIME_LIMIT
                    or not 0 <= index < n_strings):  # fmt: skip
                return np.int64(-1)
            _blank(out, time + shift, cpu, buffer, names, columns)
            if part == 0:
                o_kind[out] = KIND_WAKING
                how[out] = COMPACT_WAKING
                o_subject[out] = _pid(vals[8])
                o_cpu_to[out] = _cpu(vals[9])
                o_prio[out] = _prio(vals[10])
                if size[12] != 0:
                    o_ctx[out] = ctx_of_flags[vals[12] & 0xFF]
            else:
                o_kind[out] = KIND_SWITCH
                how[out] = COMPACT_SWITCH
                o_state[out] = states[vals[2] & 0xFFFF]
                o_other[out] = _pid(vals[3])
                o_other_prio[out] = _prio(vals[4])
            names[out, 2 * part] = strings[index, 0]
            names[out, 2 * part + 1] = strings[index, 1]
            out += 1
    counts[4] += switches
    counts[20] += wakings
    return out


@njit
def decode(
    buf: Any, bundles: Any, extra: Any, described: Any, row_of: Any, kinds: Any, slots: Any,
    fills: Any, states: Any, ctx_of_flags: Any, counts: Any, names: Any, how: Any, columns: Any,
    told: Any,
) -> Any:  # fmt: skip
    """Rows of all bundles of a piece, bundle after bundle, from ``told[OUT]`` on.

    Parameters
    ----------
    buf : uint8[:] read-only
    bundles : int64[m, N_CELLS]   rows of :func:`packets`
    extra : int64[m, 4]           what to add to the times; 1: a LOST row goes first; ns of a BEGIN
                                  row that goes first (-1: none); number of the stream
    described : int64[d]          numbers of event fields that the trace itself describes
    row_of : int32[N_EVENTS + d]  event field (or N_EVENTS + index in ``described``) -> layout
    kinds : uint8[k]
    slots : uint8[k, N_FIELDS]    field of the event -> slot
    fills : int64[k, N_SLOTS]     what a slot holds when its field is missing
    states : uint16[65536]        prev_state -> State
    ctx_of_flags : uint8[256]
    counts : int64[N_EVENTS + d]  events by field; added to
    names : int64[:, 4]           per row: name of the subject, name of other, as two words each
    how : uint8[:]                per row: PLAIN ..; of BY_NAME, names[:, :2] is where it lies
    columns : tuple of arrays     as EventColumns.arrays()
    told : int64[N_TOLD]
    """
    (_, _, o_kind, o_pid, o_ctx, o_subject, o_prio, o_state, o_other, o_other_prio,
     o_cpu_to, o_cpu_from, o_value, _) = columns  # fmt: skip
    out = told[OUT]
    vals = np.zeros(N_SLOTS, np.int64)
    for b in range(len(bundles)):
        cpu = bundles[b, CPU]
        shift = extra[b, 0]
        buffer = extra[b, 3]
        for mark in range(2):
            if (extra[b, 2] < 0) if mark == 0 else (extra[b, 1] == 0):
                continue
            time = extra[b, 2] if mark == 0 else bundles[b, MIN_TS] + shift
            _blank(out, time, cpu, buffer, names, columns)
            o_kind[out] = KIND_BEGIN if mark == 0 else KIND_LOST
            how[out] = PLAIN
            out += 1
        at = bundles[b, OFF]
        end = bundles[b, END]
        while at < end:
            tag, begin, at = next_field(buf, at, end)
            if at < 0:
                if tag == 18 or tag == 34:
                    if told[BAD_EVENTS] == 0:
                        told[FIRST_BAD] = begin
                    told[BAD_EVENTS] += 1
                break
            if tag == 34:
                after = _compact(buf, begin, at, cpu, shift, buffer, states, ctx_of_flags, out,
                                 counts, names, how, columns)  # fmt: skip
                if after < 0:
                    if told[BAD_COMPACT] == 0:
                        told[FIRST_BAD_COMPACT] = begin
                    told[BAD_COMPACT] += 1
                else:
                    out = after
                continue
            if tag != 18:
                continue
            time = np.int64(0)
            timed = False
            pid = np.int64(0)
            flags = np.int64(-1)
            what = np.int64(0)
            off = np.int64(0)
            stop = np.int64(0)
            pos = begin
            while pos < at:
                tag, value, pos = next_field(buf, pos, at)
                if pos < 0:
                    break
                if tag == 8 and not timed:
                    time = value
                    timed = True
                elif tag == 16:
                    pid = value
                elif tag == 40:
                    flags = value
                elif tag & 7 == 2 and what == 0:
                    what = tag >> 3
                    off = value
                    stop = pos
            if not 0 <= time < TIME_LIMIT or not 0 <= time + shift < TIME_LIMIT:
                pos = np.int64(-1)
            layout = np.int64(-1)
            if pos >= 0:
                cell = what if what < N_EVENTS else np.int64(0)
                for i in range(len(described)):
                    if described[i] == what:
                        cell = np.int64(N_EVENTS + i)
                counts[cell] += 1
                layout = np.int64(row_of[cell])
                if layout < 0 and what != GENERIC:
                    continue
                _blank(out, time + shift, cpu, buffer, names, columns)
                o_pid[out] = _pid(pid)
                if flags >= 0:
                    o_ctx[out] = ctx_of_flags[flags & 0xFF]
                if what == GENERIC:
                    o_kind[out] = KIND_LOST
                    how[out] = BY_NAME
                    names[out, 0] = off
                    names[out, 1] = stop
                    out += 1
                    continue
                for i in range(N_SLOTS):
                    vals[i] = fills[layout, i]
                pos = off
                while pos < stop:
                    tag, value, pos = next_field(buf, pos, stop)
                    if pos < 0:
                        break
                    field = tag >> 3
                    slot = np.int64(slots[layout, field]) if field < N_FIELDS else np.int64(0)
                    if slot == NO_SLOT:
                        continue
                    if slot < FIRST_NAME:
                        if tag & 7 == 0:
                            vals[slot] = value
                    elif tag & 7 == 2:
                        i = 0 if slot == FIRST_NAME else 2
                        names[out, i], names[out, i + 1] = _words(buf, value, pos)
            if pos < 0:
                if told[BAD_EVENTS] == 0:
                    told[FIRST_BAD] = begin
                told[BAD_EVENTS] += 1
                continue
            if vals[SUCCESS] == 0:
                told[FAILED] += 1
                continue
            o_kind[out] = kinds[layout]
            o_subject[out] = _pid(vals[SUBJECT])
            o_prio[out] = _prio(vals[PRIO])
            if vals[STATE] != NULL_I64:
                o_state[out] = states[vals[STATE] & 0xFFFF]
            o_other[out] = _pid(vals[OTHER])
            o_other_prio[out] = _prio(vals[OTHER_PRIO])
            o_cpu_to[out] = _cpu(vals[CPU_TO])
            o_cpu_from[out] = _cpu(vals[CPU_FROM])
            o_value[out] = vals[VALUE]
            how[out] = PLAIN
            out += 1
    told[OUT] = out


@njit
def finish(cpu: Any, kind: Any, pid: Any, subject: Any, prio: Any, other: Any, other_prio: Any,
           how: Any, names: Any, current: Any, last: Any, learnt: Any) -> Any:  # fmt: skip
    """Fill in the rows of the compact form, and find new names; returns how many.

    All rows stand in the order of time. A compact switch leaves out the task that was switched
    out: it is the next task of that CPU's switch before; a compact waking its waker: the task
    running there. Across lost events neither is known.

    Parameters
    ----------
    cpu, kind, pid, subject, prio, other, other_prio    columns of the events; written
    how : uint8[n]; names : int64[n, 4]      of :func:`decode`
    current : int32[MAX_CPU, 2]              pid and priority of the task on each CPU; updated
    last : int64[PID_LIMIT, 2]               the last name of each pid; updated
    learnt : int64[2 * n, 4]                 written: row, pid, the name's two words
    """
    found = np.int64(0)
    for i in range(len(cpu)):
        c = cpu[i]
        k = kind[i]
        if k == KIND_LOST or k == KIND_BEGIN:
            current[c, 0] = -1
            current[c, 1] = -32768
            continue
        if how[i] == COMPACT_SWITCH:
            pid[i] = current[c, 0]
            subject[i] = current[c, 0]
            prio[i] = current[c, 1]
        elif how[i] == COMPACT_WAKING:
            pid[i] = current[c, 0]
        if k == KIND_SWITCH:
            current[c, 0] = other[i]
            current[c, 1] = other_prio[i]
        for j in range(2):
            first = names[i, 2 * j]
            second = names[i, 2 * j + 1]
            if first == 0:
                continue
            who = np.int64(subject[i]) if j == 0 or k == KIND_RENAME else np.int64(other[i])
            if who <= 0 or who >= PID_LIMIT:
                continue
            if last[who, 0] == first and last[who, 1] == second:
                continue
            last[who, 0] = first
            last[who, 1] = second
            learnt[found, 0] = i
            learnt[found, 1] = who
            learnt[found, 2] = first
            learnt[found, 3] = second
            found += 1
    return found
