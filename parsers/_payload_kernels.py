"""Kernel that turns the payloads of events into the columns of the ``events`` table.

It serves every container whose records are laid out by event format descriptions. What lies
where comes in as arrays made by ``payload.Layouts``: one row per known tracepoint.

Kinds follow each other in no order that a processor could guess, and a wrong guess costs as much as
reading an event does. So rows are taken in blocks that stay in the nearest cache: the first pass
gives each its place and lists the rows of each kind, then one short loop without a branch reads one
field of all rows of one kind. Names hardly ever change: whether any does is found out in such loops
as well, and only then the rows of the block are gone through in their order.

A *slot* is a field the kernel knows what to do with. How it is read stands in ``spec[row, slot]``:

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

# (Of numpy's type: for each Python number that is handed on numba compiles a function once more.)
(AT_PID, AT_SUBJECT, AT_PRIO, AT_STATE, AT_OTHER, AT_OTHER_PRIO, AT_CPU_TO, AT_CPU_FROM,
 AT_VALUE, AT_FLAGS, AT_PREEMPT, AT_SUCCESS) = np.arange(0, N_SLOTS * N_CELLS, N_CELLS)  # fmt: skip

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
OUT, NAMES, SHORT, FAILED, FIRST_SHORT, LOSSES = range(6)
N_RESULTS = 6

#: Rows of a block: what is read and written of them, and the lists, fit into the second cache.
BLOCK = 1 << 12
#: An entry of a list is (place of the payload << ROW_BITS) | row within the block.
ROW_BITS = 12
ROW_MASK = BLOCK - 1
#: Length of a list in memory: no power of two, else the heads of all lists would fall together in
#: the cache.
LIST_ROOM = BLOCK + 24
#: Changes of names that a block may hold at most.
BLOCK_NAMES = N_NAMES * BLOCK

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


@step
def _fill(column, value):
    for i in range(len(column)):
        column[i] = value


@step
def _plain(spec, r, slot):
    """Whether a slot is a signed number of 4 bytes, to be taken as it stands."""
    cell = r * (N_SLOTS * N_CELLS) + slot
    return spec[cell + SHIFT] == 0 and spec[cell + MASK] == -1


@step
def _signed4(buf, at):
    return (word4(buf, at) ^ 0x80000000) - 0x80000000


@step
def _read_subject(buf, lists, r, count, spec, first, o_subject, o_prio):
    """SUBJECT and PRIO of all listed rows of kind ``r``, both of them plain."""
    cells = r * (N_SLOTS * N_CELLS)
    subject_at = spec[cells + AT_SUBJECT + PLACE]
    prio_at = spec[cells + AT_PRIO + PLACE]
    for q in range(count):
        entry = lists[r, q]
        base = entry >> ROW_BITS
        out = (first + (entry & ROW_MASK)) & PLACE_MASK
        o_subject[out] = _signed4(buf, base + subject_at)
        prio = _signed4(buf, base + prio_at)
        o_prio[out] = prio if -32768 <= prio <= 32767 else -32768


@step
def _read_next(buf, lists, r, count, spec, states, first, o_state, o_other, o_other_prio):
    """STATE, OTHER and OTHER_PRIO of all listed rows of kind ``r``, the last two plain."""
    cells = r * (N_SLOTS * N_CELLS)
    state_at = spec[cells + AT_STATE + PLACE]
    shift = spec[cells + AT_STATE + SHIFT]
    other_at = spec[cells + AT_OTHER + PLACE]
    prio_at = spec[cells + AT_OTHER_PRIO + PLACE]
    for q in range(count):
        entry = lists[r, q]
        base = entry >> ROW_BITS
        out = (first + (entry & ROW_MASK)) & PLACE_MASK
        o_state[out] = states[(word4(buf, base + state_at) >> shift) & 0xFFFF]
        o_other[out] = _signed4(buf, base + other_at)
        prio = _signed4(buf, base + prio_at)
        o_other_prio[out] = prio if -32768 <= prio <= 32767 else -32768


@step
def _read_int32(buf, big, lists, r, count, spec, slot, first, column):
    """One slot of all listed rows of kind ``r``."""
    cell = r * (N_SLOTS * N_CELLS) + slot
    place = spec[cell + PLACE]
    shift = spec[cell + SHIFT]
    mask = spec[cell + MASK]
    if mask == 0:
        return
    for q in range(count):
        entry = lists[r, q]
        word = word4(buf, (entry >> ROW_BITS) + place)
        if big is not None:
            word = (_swap4(word) << shift) & 0xFFFFFFFF
        word = (word ^ 0x80000000) - 0x80000000
        column[(first + (entry & ROW_MASK)) & PLACE_MASK] = (word >> shift) & mask


@step
def _read_prio(buf, big, lists, r, count, spec, slot, first, column):
    """The same for priorities; what is none is unknown."""
    cell = r * (N_SLOTS * N_CELLS) + slot
    place = spec[cell + PLACE]
    shift = spec[cell + SHIFT]
    mask = spec[cell + MASK]
    if mask == 0:
        return
    for q in range(count):
        entry = lists[r, q]
        word = word4(buf, (entry >> ROW_BITS) + place)
        if big is not None:
            word = (_swap4(word) << shift) & 0xFFFFFFFF
        word = (word ^ 0x80000000) - 0x80000000
        value = (word >> shift) & mask
        column[(first + (entry & ROW_MASK)) & PLACE_MASK] = (
            value if -32768 <= value <= 32767 else -32768
        )


@step
def _read_state(buf, big, lists, r, count, spec, states, first, column):
    """The same for prev_state."""
    cell = r * (N_SLOTS * N_CELLS) + AT_STATE
    place = spec[cell + PLACE]
    shift = spec[cell + SHIFT]
    if spec[cell + MASK] == 0:
        return
    for q in range(count):
        entry = lists[r, q]
        word = word4(buf, (entry >> ROW_BITS) + place)
        if big is not None:
            word = (_swap4(word) << shift) & 0xFFFFFFFF
        word = (word ^ 0x80000000) - 0x80000000
        column[(first + (entry & ROW_MASK)) & PLACE_MASK] = states[(word >> shift) & 0xFFFF]


@step
def _read_value(buf, big, lists, r, count, spec, first, column):
    """The same for the one slot of 8 bytes."""
    cell = r * (N_SLOTS * N_CELLS) + AT_VALUE
    place = spec[cell + PLACE]
    shift = spec[cell + SHIFT]
    mask = spec[cell + MASK]
    if mask == 0:
        return
    for q in range(count):
        entry = lists[r, q]
        word = word8(buf, (entry >> ROW_BITS) + place)
        if big is not None:
            word = _swap8(word) << shift
        column[(first + (entry & ROW_MASK)) & PLACE_MASK] = (word >> shift) & mask


@step
def _read_ctx(buf, lists, r, count, spec, ctx_of_flags, first, column):
    """The bits of common_flags and common_preempt_count."""
    cell = r * (N_SLOTS * N_CELLS)
    flags_at = spec[cell + AT_FLAGS]
    if flags_at == ABSENT:
        return
    # low nibble: preempt depth; high nibble: migrate-disable depth (since 5.13)
    depth_at = spec[cell + AT_PREEMPT]
    nibble = 15
    if depth_at == ABSENT:
        depth_at, nibble = flags_at, 0
    for q in range(count):
        entry = lists[r, q]
        base = entry >> ROW_BITS
        depth = np.int64(buf[(base + depth_at) & PLACE_MASK]) & nibble
        ctx = np.int64(ctx_of_flags[buf[(base + flags_at) & PLACE_MASK]])
        column[(first + (entry & ROW_MASK)) & PLACE_MASK] = ctx | (16 if depth != 0 else 0)


@step
def _names_differ(buf, lists, r, count, names, last, first, subject, other):
    """Whether any comm of the listed rows may be another than the last one of its pid."""
    for k in range(N_NAMES):
        place = np.int64(names[r, k, NAME_OFFSET])
        if place < 0:
            break
        if names[r, k, NAME_LOC] != FIXED or names[r, k, NAME_SIZE] != 16:
            return True
        pids = subject if names[r, k, NAME_PID] == SUBJECT else other
        differ = np.int64(0)
        for q in range(count):
            entry = lists[r, q]
            comm = (entry >> ROW_BITS) + place
            pid = np.int64(pids[(first + (entry & ROW_MASK)) & PLACE_MASK])
            known = pid if 0 < pid < PID_LIMIT else np.int64(0)
            unlike = (word8(buf, comm) ^ last[known, 0]) | (word8(buf, comm + 8) ^ last[known, 1])
            differ |= unlike if known else np.int64(0)
        if differ:
            return True
    return False


@step
def _learn_names(
    buf, big, ts, off, length, row, order, index_mask, start, stop, need, spec, names, last,
    name_pid, name_ts, name_off, name_len, result,
):  # fmt: skip
    """Note each change of a name in rows [start, stop) of the order."""
    n_names = result[NAMES]
    for at in range(start, stop):
        i = order[at & PLACE_MASK] & index_mask & PLACE_MASK
        r = np.int64(row[i])
        if r < 0:
            continue
        r &= PLACE_MASK
        base = off[i]
        size = np.int64(length[i])
        cells = r * (N_SLOTS * N_CELLS)
        if size < need[r] or (
            spec[cells + AT_SUCCESS] != ABSENT
            and _slot4(buf, base, spec, cells + AT_SUCCESS, big) == 0
        ):
            continue
        for k in range(N_NAMES):
            place = np.int64(names[r, k, NAME_OFFSET])
            if place < 0:
                break
            whose = AT_SUBJECT if names[r, k, NAME_PID] == SUBJECT else AT_OTHER
            pid = _slot4(buf, base, spec, cells + whose, big)
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
            first = _clean_word(buf, comm, wide, 0)
            second = _clean_word(buf, comm, wide, 8)
            if wide == 16:
                # What stands behind the NUL is compared as well: the same task has the same there.
                last[pid, 0] = word8(buf, comm)
                last[pid, 1] = word8(buf, comm + 8)
            if first == 0 or (first == last[pid, 2] and second == last[pid, 3]):
                continue
            if wide != 16:
                last[pid, 0] = first
                last[pid, 1] = second
            last[pid, 2] = first
            last[pid, 3] = second
            name_pid[n_names] = pid
            name_ts[n_names] = ts[i]
            name_off[n_names] = comm
            name_len[n_names] = wide
            n_names += 1
    result[NAMES] = n_names


@step
def _list_rows(
    buf, big, ts, cpu, off, length, row, order, index_mask, start, stop, kinds, need, spec,
    common, ctx_of_flags, columns, lists, counts, result,
):  # fmt: skip
    """Give rows [start, stop) of the order their places in the output, and list them by kind."""
    (o_ts, o_cpu, o_kind, o_pid, o_ctx, _, _, _, _, _, _, _, o_value, _) = columns
    pid_at, flags_at, depth_at = common[0], common[1], common[2]
    in_common = common[3] != 0
    first = result[OUT] & PLACE_MASK
    n = np.int64(0)
    for at in range(start, stop):
        i = order[at & PLACE_MASK] & index_mask & PLACE_MASK
        r = np.int64(row[i])
        p = (first + n) & PLACE_MASK
        o_ts[p] = ts[i]
        o_cpu[p] = cpu[i]
        if r < 0:
            n += 1
            o_pid[p] = -1
            o_ctx[p] = 255
            o_kind[p] = KIND_BEGIN
            if r == ROW_LOST:
                o_kind[p] = KIND_LOST
                o_value[p] = off[i]
                result[LOSSES] += 1
            continue
        r &= PLACE_MASK
        base = off[i]
        if np.int64(length[i]) < need[r]:
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
        o_kind[p] = kinds[r]
        if in_common:
            o_pid[p] = _signed4(buf, base + pid_at)
            depth = np.int64(buf[(base + depth_at) & PLACE_MASK]) & 15
            ctx = np.int64(ctx_of_flags[buf[(base + flags_at) & PLACE_MASK]])
            o_ctx[p] = ctx | (16 if depth != 0 else 0)
        m = counts[r]
        lists[r, m & ROW_MASK] = (base << ROW_BITS) | n
        counts[r] = m + 1
        n += 1
    result[OUT] = first + n


@njit
def decode(
    buf, big, ts, cpu, off, length, row, order, index_mask, start, stop,
    kinds, need, spec, common, names, states, ctx_of_flags, buffer_no, last, lists, counts,
    columns, name_pid, name_ts, name_off, name_len, result,
):  # fmt: skip
    """Fill the events' columns from their payloads, in the given order; returns where it stopped.

    It stops before ``stop`` only when the output of name changes might not suffice: drain it, set
    ``result[NAMES]`` to 0 and call again with the returned index as ``start``.

    Parameters
    ----------
    buf : uint8[:] read-only   the bytes in which the payloads lie, each after 8 bytes at least
    big : None or int64        1: the file is big endian
    ts : int64[n]; cpu : int32[n]
    off : int64[n]             where the payload begins in buf (LOST rows: the count)
    length : int32[n]          bytes of payload, all within buf
    row : int32[n]             row of the layout, or ROW_LOST, ROW_BEGIN
    order : int64[:]           indices into the five arrays above, in the bits of ``index_mask``;
                               [start, stop) are decoded
    index_mask : int64
    kinds : uint8[k]; need : int32[k]      EventKind, and how many bytes the fields reach
    spec : int64[k * N_SLOTS * N_CELLS]    see the head of this module
    common : int64[4]          where pid, flags and preempt count lie when they do so alike in all
                               formats (and the last is 1)
    names : int32[k, N_NAMES, 4]           offset (-1: none), size, FIXED.., slot of the pid
    states : uint16[65537]     prev_state -> State; the last is the sentinel
    ctx_of_flags : uint8[256]  common_flags -> Ctx
    buffer_no : int64          for the column ``buffer``
    last : int64[PID_LIMIT, 4] the last comm of each pid, as it lay there and without what is
                               behind its NUL; updated
    lists : int64[k, LIST_ROOM]; counts : int64[k]   room to work in
    columns : tuple of arrays  as EventColumns.arrays(); written from result[OUT] on, with room for
                               all rows of the order
    name_pid, name_ts, name_off, name_len : int32, int64, int64, int32   name changes; room for
                               BLOCK_NAMES at least
    result : int64[N_RESULTS]  updated: rows written, names written, payloads too short (and the
                               first one's place), wakeups without success, LOST rows
    """
    (_, _, _, o_pid, o_ctx, o_subject, o_prio, o_state, o_other, o_other_prio,
     o_cpu_to, o_cpu_from, o_value, o_buffer) = columns  # fmt: skip
    at = start
    while at < stop:
        if result[NAMES] + BLOCK_NAMES > len(name_pid):
            break
        end = min(at + BLOCK, stop)
        first = result[OUT] & PLACE_MASK
        room = (first + end - at) & PLACE_MASK
        for column in (o_subject, o_other, o_cpu_to, o_cpu_from):
            _fill(column[first:room], -1)
        _fill(o_state[first:room], 65535)
        _fill(o_prio[first:room], -32768)
        _fill(o_other_prio[first:room], -32768)
        _fill(o_value[first:room], NULL_I64)
        _fill(o_buffer[first:room], buffer_no)
        if not common[3]:
            _fill(o_pid[first:room], -1)
            _fill(o_ctx[first:room], 255)
        counts[:] = 0
        _list_rows(
            buf, big, ts, cpu, off, length, row, order, index_mask, at, end, kinds, need, spec,
            common, ctx_of_flags, columns, lists, counts, result,
        )  # fmt: skip
        differ = False
        for r in range(len(counts)):
            m = counts[r]
            if m == 0:
                continue
            if not common[3]:
                _read_int32(buf, big, lists, r, m, spec, AT_PID, first, o_pid)
                _read_ctx(buf, lists, r, m, spec, ctx_of_flags, first, o_ctx)
            if big is None and _plain(spec, r, AT_SUBJECT) and _plain(spec, r, AT_PRIO):
                _read_subject(buf, lists, r, m, spec, first, o_subject, o_prio)
            else:
                _read_int32(buf, big, lists, r, m, spec, AT_SUBJECT, first, o_subject)
                _read_prio(buf, big, lists, r, m, spec, AT_PRIO, first, o_prio)
            if (
                big is None
                and spec[r * (N_SLOTS * N_CELLS) + AT_STATE + MASK] != 0
                and _plain(spec, r, AT_OTHER)
                and _plain(spec, r, AT_OTHER_PRIO)
            ):
                _read_next(buf, lists, r, m, spec, states, first, o_state, o_other, o_other_prio)
            else:
                _read_state(buf, big, lists, r, m, spec, states, first, o_state)
                _read_int32(buf, big, lists, r, m, spec, AT_OTHER, first, o_other)
                _read_prio(buf, big, lists, r, m, spec, AT_OTHER_PRIO, first, o_other_prio)
            _read_int32(buf, big, lists, r, m, spec, AT_CPU_TO, first, o_cpu_to)
            _read_int32(buf, big, lists, r, m, spec, AT_CPU_FROM, first, o_cpu_from)
            _read_value(buf, big, lists, r, m, spec, first, o_value)
            if not differ:
                differ = _names_differ(buf, lists, r, m, names, last, first, o_subject, o_other)
        if differ:
            _learn_names(
                buf, big, ts, off, length, row, order, index_mask, at, end, need, spec, names, last,
                name_pid, name_ts, name_off, name_len, result,
            )  # fmt: skip
        at = end
    return at
