"""Kernel that turns the payloads of events into the columns of the ``events`` table.

It serves every container whose records are laid out by event format descriptions. What lies
where comes in as arrays made by ``payload.Layouts``: one row per known tracepoint.

A *slot* is a field the kernel knows what to do with. Since kinds follow each other in no
order that a processor could guess, next to no branch depends on the kind: a slot is read for every
event in the same few steps, all of whose numbers stand in ``spec[row, slot]``:

    word of 4 bytes (VALUE: 8) at payload + PLACE, shifted right by SHIFT with its sign, ANDed with
    MASK, ORed with FILL

The word *ends* with the field, so nothing beyond the payload is read. For a field that the format
does not have, MASK is 0 and FILL the sentinel of the column.

The byte order comes in as ``big``: None for little endian, 1 for big. None is a type of its own to
numba, which drops the other branch: a kernel is compiled once for the order that all but a few
files have, and once more only where a file of the other turns up.
"""

from __future__ import annotations

import numpy as np

from traceana._jit import njit, step

# Slots of ``spec``; FLAGS, PREEMPT and SUCCESS are read in ways of their own.
PID, SUBJECT, PRIO, STATE, OTHER, OTHER_PRIO, CPU_TO, CPU_FROM, VALUE = range(9)
FLAGS, PREEMPT, SUCCESS = 9, 10, 11
N_SLOTS = 12

# Cells of ``spec[row, slot]``. PLACE is ABSENT for FLAGS, PREEMPT, SUCCESS that are not there.
PLACE, SHIFT, MASK, FILL = range(4)
N_CELLS = 4
ABSENT = -(1 << 30)

(AT_PID, AT_SUBJECT, AT_PRIO, AT_STATE, AT_OTHER, AT_OTHER_PRIO, AT_CPU_TO, AT_CPU_FROM,
 AT_VALUE, AT_FLAGS, AT_PREEMPT, AT_SUCCESS) = range(0, N_SLOTS * N_CELLS, N_CELLS)  # fmt: skip

#: Bits of ``parts[row]``: slots that few kinds have, all of them skipped where none is there.
HAS_OTHER, HAS_CPU_FROM = 1, 2  # STATE, OTHER or OTHER_PRIO

#: Where ``states`` holds the sentinel of the column.
NO_STATE = 1 << 16

# Columns of ``names[row, i]``: where the comm lies, and whose it is.
NAME_OFFSET, NAME_SIZE, NAME_LOC, NAME_PID = 0, 1, 2, 3
N_NAMES = 2
FIXED, DATA_LOC, REL_LOC = 0, 1, 2

# Rows that are no events: marks of lost events and of a late begin.
ROW_LOST, ROW_BEGIN = -2, -3
KIND_LOST, KIND_BEGIN = 19, 20

# Cells of ``result``.
OUT, NAMES, SHORT, FAILED, FIRST_SHORT = 0, 1, 2, 3, 4
N_RESULTS = 5

#: PID_MAX_LIMIT of 64-bit kernels (include/linux/threads.h); pids are below.
PID_LIMIT = 4194304

NULL_I64 = -(2**63)


#: Places in a buffer have fewer bits than this; the mask tells LLVM that an index is not negative,
#: without which it can not turn the loads of single bytes into one of a word.
PLACE_MASK = (1 << 48) - 1


@step
def word4(buf, at):
    """The little-endian u32 at ``buf[at]``, as int64."""
    at &= PLACE_MASK
    return (
        np.int64(buf[at])
        | (np.int64(buf[at + 1]) << 8)
        | (np.int64(buf[at + 2]) << 16)
        | (np.int64(buf[at + 3]) << 24)
    )


@step
def word8(buf, at):
    """The little-endian 64 bits at ``buf[at]``, as int64."""
    at &= PLACE_MASK
    return (
        np.int64(buf[at])
        | (np.int64(buf[at + 1]) << 8)
        | (np.int64(buf[at + 2]) << 16)
        | (np.int64(buf[at + 3]) << 24)
        | (np.int64(buf[at + 4]) << 32)
        | (np.int64(buf[at + 5]) << 40)
        | (np.int64(buf[at + 6]) << 48)
        | (np.int64(buf[at + 7]) << 56)
    )


@step
def _swap4(word):
    return (
        ((word & 0xFF) << 24)
        | ((word & 0xFF00) << 8)
        | ((word >> 8) & 0xFF00)
        | ((word >> 24) & 0xFF)
    )


@step
def _swap8(word):
    return (_swap4(word & 0xFFFFFFFF) << 32) | _swap4((word >> 32) & 0xFFFFFFFF)


@step
def read_int(buf, at, size, signed, big):
    """The integer of 1, 2, 4 or 8 bytes at ``buf[at]``, as int64; u64 above 2^63 wraps.

    Parameters
    ----------
    buf : uint8[:] read-only
    at : int64          start; ``at + size`` must lie within buf
    size, signed : int64
    big : None or int64   None: least significant byte first
    """
    if size == 4:
        value = word4(buf, at)
        if big is not None:
            value = _swap4(value)
        if signed:
            value = (value ^ 0x80000000) - 0x80000000
        return value
    if size == 8:
        value = word8(buf, at)
        if big is not None:
            value = _swap8(value)
        return value
    at &= PLACE_MASK
    value = np.int64(buf[at])
    if size == 2:
        if big is not None:
            value = (value << 8) | np.int64(buf[at + 1])
        else:
            value |= np.int64(buf[at + 1]) << 8
        if signed:
            value = (value ^ 0x8000) - 0x8000
    elif signed:
        value = (value ^ 0x80) - 0x80
    return value


@step
def _slot4(buf, base, spec, cell, big):
    """The value of a slot of at most 4 bytes whose cells begin at ``spec[cell]``."""
    word = word4(buf, base + spec[cell + PLACE])
    shift = spec[cell + SHIFT]
    if big is not None:
        word = (_swap4(word) << shift) & 0xFFFFFFFF
    word = (word ^ 0x80000000) - 0x80000000
    return ((word >> shift) & spec[cell + MASK]) | spec[cell + FILL]


@step
def _slot8(buf, base, spec, cell, big):
    """The value of a slot of at most 8 bytes."""
    word = word8(buf, base + spec[cell + PLACE])
    shift = spec[cell + SHIFT]
    if big is not None:
        word = _swap8(word) << shift
    return ((word >> shift) & spec[cell + MASK]) | spec[cell + FILL]


@step
def _clean_word(buf, at, n, first):
    """Bytes ``first`` to ``first + 7`` of the comm at ``at`` (n bytes), little endian, 0 after NUL."""
    word = np.int64(0)
    for i in range(min(n, first + 8)):
        byte = np.int64(buf[at + i])
        if byte == 0:
            break
        if i >= first:
            word |= byte << (8 * (i - first))
    return word


@njit
def decode(
    buf, big, ts, cpu, off, length, row, order, start, stop,
    kinds, need, parts, spec, names, states, ctx_of_flags, buffer_no, last,
    columns, name_pid, name_ts, name_off, name_len, result,
):  # fmt: skip
    """Fill the events' columns from their payloads, in the given order; returns where it stopped.

    It stops before ``stop`` only when the output of name changes is full: drain it, set
    ``result[NAMES]`` to 0 and call again with the returned index as ``start``.

    Parameters
    ----------
    buf : uint8[:] read-only   the bytes in which the payloads lie, each after 8 bytes at least
    big : None or int64        1: the file is big endian
    ts : int64[n]; cpu : int32[n]
    off : int64[n]             where the payload begins in buf (LOST rows: the count)
    length : int32[n]          bytes of payload, all within buf
    row : int32[n]             row of the layout, or ROW_LOST, ROW_BEGIN
    order : int64[:]           indices into the five arrays above; [start, stop) are decoded
    kinds : uint8[k]; need : int32[k]      EventKind, and how many bytes the fields reach
    parts : int64[k]           HAS_.. bits
    spec : int64[k * N_SLOTS * N_CELLS]    see the head of this module
    names : int32[k, N_NAMES, 4]           offset (-1: none), size, FIXED.., slot of the pid
    states : uint16[65537]     prev_state -> State; the last is the sentinel
    ctx_of_flags : uint8[256]  common_flags -> Ctx
    buffer_no : int64          for the column ``buffer``
    last : int64[PID_LIMIT, 2] the last comm of each pid; updated
    columns : tuple of arrays  as EventColumns.arrays(); written from result[OUT] on
    name_pid, name_ts, name_off, name_len : int32, int64, int64, int32   name changes
    result : int64[N_RESULTS]  updated: rows written, names written, payloads too short (and the
                               first one's place), wakeups without success
    """
    (o_ts, o_cpu, o_kind, o_pid, o_ctx, o_subject, o_prio, o_state, o_other, o_other_prio,
     o_cpu_to, o_cpu_from, o_value, o_buffer) = columns  # fmt: skip
    out = result[OUT]
    n_names = result[NAMES]
    full = len(name_pid) - N_NAMES
    at = start
    while at < stop:
        if n_names > full:
            break
        i = order[at & PLACE_MASK] & PLACE_MASK
        at += 1
        out &= PLACE_MASK
        r = np.int64(row[i])
        o_ts[out] = ts[i]
        o_cpu[out] = cpu[i]
        o_buffer[out] = buffer_no
        if r < 0:
            o_kind[out] = KIND_LOST if r == ROW_LOST else KIND_BEGIN
            o_pid[out] = -1
            o_ctx[out] = 255
            o_subject[out] = -1
            o_prio[out] = -32768
            o_state[out] = 65535
            o_other[out] = -1
            o_other_prio[out] = -32768
            o_cpu_to[out] = -1
            o_cpu_from[out] = -1
            o_value[out] = off[i] if r == ROW_LOST else NULL_I64
            out += 1
            continue
        r &= PLACE_MASK
        base = off[i]
        size = np.int64(length[i])
        if size < need[r]:
            if result[SHORT] == 0:
                result[FIRST_SHORT] = base
            result[SHORT] += 1
            continue
        cells = r * (N_SLOTS * N_CELLS)
        if (
            spec[cells + AT_SUCCESS] != ABSENT
            and _slot4(buf, base, spec, cells + AT_SUCCESS, big) == 0
        ):
            result[FAILED] += 1
            continue
        o_kind[out] = kinds[r]
        o_pid[out] = _slot4(buf, base, spec, cells + AT_PID, big)
        ctx = np.int64(255)
        if spec[cells + AT_FLAGS] != ABSENT:
            ctx = np.int64(ctx_of_flags[buf[(base + spec[cells + AT_FLAGS]) & PLACE_MASK]])
            # low nibble: preempt depth; high nibble: migrate-disable depth (since 5.13)
            if spec[cells + AT_PREEMPT] != ABSENT:
                depth = np.int64(buf[(base + spec[cells + AT_PREEMPT]) & PLACE_MASK]) & 15
                ctx |= 16 if depth != 0 else 0
        o_ctx[out] = ctx
        subject = _slot4(buf, base, spec, cells + AT_SUBJECT, big)
        o_subject[out] = subject
        value = _slot4(buf, base, spec, cells + AT_PRIO, big)
        o_prio[out] = value if -32768 <= value <= 32767 else -32768
        o_cpu_to[out] = _slot4(buf, base, spec, cells + AT_CPU_TO, big)
        other = np.int64(-1)
        if parts[r] & HAS_OTHER:
            o_state[out] = states[_slot4(buf, base, spec, cells + AT_STATE, big) & 0x1FFFF]
            other = _slot4(buf, base, spec, cells + AT_OTHER, big)
            value = _slot4(buf, base, spec, cells + AT_OTHER_PRIO, big)
            o_other_prio[out] = value if -32768 <= value <= 32767 else -32768
        else:
            o_state[out] = 65535
            o_other_prio[out] = -32768
        o_other[out] = other
        if parts[r] & HAS_CPU_FROM:
            o_cpu_from[out] = _slot4(buf, base, spec, cells + AT_CPU_FROM, big)
        else:
            o_cpu_from[out] = -1
        o_value[out] = _slot8(buf, base, spec, cells + AT_VALUE, big)
        out += 1

        for k in range(N_NAMES):
            place = np.int64(names[r, k, NAME_OFFSET])
            if place < 0:
                break
            pid = subject if names[r, k, NAME_PID] == SUBJECT else other
            if pid <= 0 or pid >= PID_LIMIT:
                continue
            wide = np.int64(names[r, k, NAME_SIZE])
            loc = names[r, k, NAME_LOC]
            if loc != FIXED:
                word = read_int(buf, base + place, 4, 0, big)
                wide = word >> 16
                place = (word & 0xFFFF) + (place + 4 if loc == REL_LOC else 0)
                if place + wide > size:
                    continue
            comm = base + place
            # Fast: the whole 16 bytes are those already known (and those end in NULs).
            if wide == 16:
                first = word8(buf, comm)
                second = word8(buf, comm + 8)
                if first == last[pid, 0] and second == last[pid, 1]:
                    continue
            first = _clean_word(buf, comm, wide, 0)
            second = _clean_word(buf, comm, wide, 8)
            if first == 0 or (first == last[pid, 0] and second == last[pid, 1]):
                continue
            last[pid, 0] = first
            last[pid, 1] = second
            name_pid[n_names] = pid
            name_ts[n_names] = ts[i]
            name_off[n_names] = comm
            name_len[n_names] = wide
            n_names += 1
    result[OUT] = out
    result[NAMES] = n_names
    return at
