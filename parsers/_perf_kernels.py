"""Kernels for perf.data: walk the records and give a row for each wanted sample.

Numbers are little endian. Offsets are int64 and absolute in the buffer; inside ``_u32`` and
``_u64`` they become unsigned, so that the compiler joins the byte loads into one.
"""

from __future__ import annotations

import numpy as np

from traceana._jit import njit, step

# Record types (include/uapi/linux/perf_event.h, tools/perf/util/event.h).
R_LOST, R_COMM, R_EXIT, R_FORK, R_SAMPLE, R_LOST_SAMPLES = 2, 3, 4, 7, 9, 13
R_SWITCH, R_SWITCH_CPU_WIDE = 14, 15
R_ATTR, R_TRACING_DATA, R_EVENT_UPDATE, R_FEATURE = 64, 66, 78, 80
R_FINISHED_ROUND, R_ID_INDEX, R_AUXTRACE, R_COMPRESSED, R_COMPRESSED2 = 68, 69, 71, 81, 83
# simpleperf's own (record.h there): from the first of them on the size has 16 more bits in misc.
R_SIMPLEPERF, R_SPLIT, R_SPLIT_END, R_SIMPLEPERF_TRACING = 32768, 32772, 32773, 32777
# Bits of the misc of a SWITCH: out, and out though it was runnable.
MISC_OUT, MISC_PREEMPT = 1 << 13, 1 << 14

# Bits of sample_type.
S_IP, S_TID, S_TIME, S_ADDR, S_READ, S_CALLCHAIN = 0x1, 0x2, 0x4, 0x8, 0x10, 0x20
S_ID, S_CPU, S_PERIOD, S_STREAM_ID, S_RAW, S_IDENTIFIER = 0x40, 0x80, 0x100, 0x200, 0x400, 0x10000

# Columns of ``attrs``, one row per attr; offsets from the start of a sample record, or for the
# T_* from the end of any other record; -1 where there is no such field.
A_READ_FORMAT, A_FLAGS, A_ROW, A_TID, A_TIME, A_CPU, A_VAR = 0, 1, 2, 3, 4, 5, 6
T_TIME, T_CPU, T_SIZE, A_TYPE = 7, 8, 9, 10
# Rows for records of SWITCH and SWITCH_CPU_WIDE, for out and in; -1: not wanted.
W_OUT, W_IN, W_WIDE_OUT, W_WIDE_IN = 11, 12, 13, 14
N_ATTR = 15
# Cells of ``plain``: how most samples are laid out. Offsets from the start of the record, the least
# id of ``attr_of_id``, and the least size; P_RAW is where the size of the RAW data stands, -1 when
# there is no such layout. P_ID is -1 where one attr has no need of ids.
P_ID, P_TIME, P_CPU, P_TID, P_RAW, P_LOWEST, P_SIZE = range(7)
N_PLAIN = 7
# Bits of A_FLAGS. SAMPLED: with a period, so that one event may give several equal samples;
# BARE: no RAW, the row is made of the record itself.
F_READ, F_CALLCHAIN, F_RAW, F_SAMPLED, F_BARE = 1, 2, 4, 8, 16
# Bits of ST_FORM: blobs behind records of kind 66 (pipe mode), simpleperf's long records.
FORM_PIPE, FORM_SIMPLEPERF = 1, 2

# Cells of ``st``, the state between calls.
(
    ST_OFF, ST_ROWS, ST_MISC, ST_TGIDS, ST_MAX, ST_ROUND_MAX, ST_LIMIT, ST_ROUNDS, ST_BAD,
    ST_FIRST_BAD, ST_UNKNOWN, ST_NO_TIME, ST_LAST_TS, ST_STRANGE_CPU, ST_TASK_IDS, ST_FORM,
    ST_REPEATED,
    # of rows that are in order: how many, how many of them are decoded, the time up to which
    ST_READY, ST_DECODED, ST_UPTO,
    # greatest time given out, and rows that came later than that
    ST_EMITTED, ST_LATE,
    # keeps the compiler from leaving out a look at bytes
    ST_TOUCHED,
) = range(23)  # fmt: skip
N_STATE = 23

# Why ``scan`` came back.
# SPECIAL: a record that must be unpacked or joined first.
END, FULL, MISC_FULL, TGIDS_FULL, ROUND, BAD_SIZE, CUT, SPECIAL = range(8)

ROW_LOST = -2
#: CPU ids at or above it are taken for damage; also the length of the per-CPU arrays. The
#: greatest CONFIG_NR_CPUS is 8192.
CPU_LIMIT = 16384
PID_LIMIT = 4194304
#: Times at or above it are damage: 2^62 ns are 146 years.
TS_LIMIT = 1 << 62


@njit
def _u16(buf, at):
    i = np.uint64(at)
    return np.int64(buf[i]) | (np.int64(buf[i + np.uint64(1)]) << 8)


@njit
def _u32(buf, at):
    i = np.uint64(at)
    return (
        np.int64(buf[i])
        | (np.int64(buf[i + np.uint64(1)]) << 8)
        | (np.int64(buf[i + np.uint64(2)]) << 16)
        | (np.int64(buf[i + np.uint64(3)]) << 24)
    )


@njit
def _u64(buf, at):
    """The u64 as int64: what is at or above 2^63 comes out negative."""
    return _u32(buf, at) | (_u32(buf, at + 4) << 32)


@njit
def _hash(value):
    h = ((value ^ (value >> 28)) & 0xFFFFFFF) * 0x9E3779B1
    return h ^ (h >> 17)


@njit
def find_id(ids, value):
    """Slot of an id in the open hash ``ids`` (see :func:`fill_ids`), -1 when it is not there."""
    mask = len(ids) - 1
    h = _hash(value) & mask
    for _ in range(mask + 1):
        u = np.uint64(h)
        if ids[u, 1] < 0:
            return np.int64(-1)
        if ids[u, 0] == value:
            return h
        h = (h + 1) & mask
    return np.int64(-1)


@njit
def fill_ids(ids, values, attr_of):
    """Enter ids into the hash; the first attr of an id wins.

    Parameters
    ----------
    ids : int64[2^k, 3]      id, attr (-1: free), cpu by ID_INDEX (-1: not told); written
    values : int64[n], attr_of : int64[n]     n < 2^k
    """
    mask = len(ids) - 1
    for i in range(len(values)):
        value = values[i]
        h = _hash(value) & mask
        while ids[h, 1] >= 0 and ids[h, 0] != value:
            h = (h + 1) & mask
        if ids[h, 1] < 0:
            ids[h, 0] = value
            ids[h, 1] = attr_of[i]


@njit
def _raw_payload(buf, p, end, read_format, flags):
    """Start of the RAW payload of a sample, -1 when its variable part reaches beyond ``end``.

    ``p`` is where the variable part begins; READ and CALLCHAIN stand before RAW and are walked
    (perf_output_sample() in kernel/events/core.c).
    """
    if flags & F_READ:
        times = 8 * ((read_format & 1) + (read_format >> 1 & 1))
        extra = 8 * ((read_format >> 2 & 1) + (read_format >> 4 & 1))
        if read_format & 8:
            if p + 8 > end:
                return np.int64(-1)
            n = _u64(buf, p)
            p += 8 + times
            if n < 0 or n > (end - p) // (8 + extra):
                return np.int64(-1)
            p += n * (8 + extra)
        else:
            p += 8 + times + extra
    if flags & F_CALLCHAIN:
        if p + 8 > end:
            return np.int64(-1)
        n = _u64(buf, p)
        p += 8
        if n < 0 or n > (end - p) // 8:
            return np.int64(-1)
        p += n * 8
    if p + 4 > end or p + 4 + _u32(buf, p) > end:
        return np.int64(-1)
    return p + 4


@njit
def _repeats(buf, p, size, t, r, seen):
    """Whether this payload is the last one of its CPU (``seen``: int64[4]) again; notes it."""
    digest = np.int64(0)
    for i in range(size):
        digest = (digest & 0x3FFFFFFFFFF) * 1000003 + np.int64(buf[np.uint64(p + i)])
    if seen[0] == t and seen[1] == r and seen[2] == size and seen[3] == digest:
        return True
    seen[0] = t
    seen[1] = r
    seen[2] = size
    seen[3] = digest
    return False


@step
def _plain_samples(
    buf, o, end, n, last_ts, max_ts, plain, attr_of_id, attrs, want_tgids,
    ts, cpu, off, length, row, tgid_of, lost, counts,
):  # fmt: skip
    """Take samples of the plain layout as long as nothing about them needs a second look.

    What it stops at, and returns as the new ``o``, is the matter of :func:`scan`, which gives the
    same rows for all of these, only slower. Returns o, n, last_ts, max_ts and how many it took.
    """
    id_at = plain[P_ID]
    time_at = plain[P_TIME]
    cpu_at = plain[P_CPU]
    tid_at = plain[P_TID]
    raw_at = plain[P_RAW]
    lowest = plain[P_LOWEST]
    least = plain[P_SIZE]
    span = len(attr_of_id)
    cap = len(ts) - 2
    taken = np.int64(0)
    while o + least <= end and n <= cap:
        head = _u64(buf, o)
        size = (head >> 48) & 0xFFFF
        if head & 0xFFFFFFFF != R_SAMPLE or size < least or o + size > end:
            break
        which = np.int64(0)
        if id_at >= 0:
            which = _u64(buf, o + id_at) - lowest
            if which < 0 or which >= span:
                break
        a = np.int64(attr_of_id[np.uint64(which)])
        t = _u64(buf, o + time_at)
        c = _u32(buf, o + cpu_at)
        bytes_ = _u32(buf, o + raw_at)
        if (
            a < 0
            or t <= 0
            or t >= TS_LIMIT
            or c >= CPU_LIMIT
            or raw_at + 4 + bytes_ > size
            or lost[np.uint64(c), 0] > 0
        ):
            break
        if want_tgids:
            tid = _u32(buf, o + tid_at + 4)
            if tid >= PID_LIMIT or tgid_of[np.uint64(tid)] != _u32(buf, o + tid_at):
                break
        taken += 1
        counts[np.uint64(a)] += 1
        last_ts = t
        max_ts = max(max_ts, t)
        r = attrs[np.uint64(a), A_ROW]
        if r >= 0:
            to = np.uint64(n)
            ts[to] = t
            cpu[to] = c
            off[to] = o + raw_at + 4
            length[to] = bytes_
            row[to] = r
            n += 1
        o += size
    return o, n, last_ts, max_ts, taken


@njit
def scan(
    buf, end, target, id_at, id_back, same_types, attrs, ids, plain, attr_of_id, row_of_type,
    want_tgids, ts, cpu, off, length, row,
    misc, tgids, tgid_of, lost, seen, counts, type_counts, records, st,
):  # fmt: skip
    """Walk records from ``st[ST_OFF]`` on; append rows for wanted samples; say why it stopped.

    Parameters
    ----------
    buf : uint8[:] read-only; end : int64    the data section ends there
    target : int64          stop at a FINISHED_ROUND once so many rows are there
    id_at, id_back : int64  where the id stands in a sample (from its start) and in the trailer of
                            other records (from the end); -1: nowhere, then attr 0 is meant
    same_types : int64      1: all attrs have one sample_type, so an unknown id can be read, too
    attrs : int64[n, N_ATTR]
    ids : int64[2^k, 3]     see fill_ids; the cpu is filled here from ID_INDEX records
    plain : int64[N_PLAIN]  the layout that most samples have
    attr_of_id : int32[:]   from id - plain[P_LOWEST] to the attr, -1: unknown or another layout
    row_of_type : int32[65536]  common_type -> row, for samples of unknown id
    want_tgids : int64      1: tell pid-tgid pairs and LOST rows
    ts, cpu, off, length, row : rows as the payload kernel takes them; appended from st[ST_ROWS]
    misc : int64[:]         offsets of COMM, FORK and LOST_SAMPLES records, from st[ST_MISC]
    tgids : int64[:, 3]     tid, tgid, time of each new pair, from st[ST_TGIDS]
    tgid_of : int32[PID_LIMIT]  last known tgid; updated
    lost : int64[CPU_LIMIT + 1, 3]  per CPU (last: unknown): losses not yet placed in the row
                            order, time of the mark, all losses
    seen : int64[CPU_LIMIT + 1, 4]  per CPU the last sample of a tracepoint with a period
    counts : int64[n]       samples per attr; type_counts : int64[65536] of unknown id, by type
    records : int64[256]    records by type (255: all above)
    st : int64[N_STATE]
    """
    o = st[ST_OFF]
    n = st[ST_ROWS]
    n_tgids = st[ST_TGIDS]
    last_ts = st[ST_LAST_TS]
    max_ts = st[ST_MAX]
    cap = len(ts) - 2
    why = END
    while True:
        if plain[P_RAW] >= 0:
            o, n, last_ts, max_ts, taken = _plain_samples(
                buf, o, end, n, last_ts, max_ts, plain, attr_of_id, attrs, want_tgids,
                ts, cpu, off, length, row, tgid_of, lost, counts,
            )  # fmt: skip
            records[R_SAMPLE] += taken
        if o + 8 > end:
            if o != end:
                why = CUT
            break
        kind = _u32(buf, o)
        size = _u16(buf, o + 6)
        if kind >= R_SIMPLEPERF and st[ST_FORM] & FORM_SIMPLEPERF:
            size |= _u16(buf, o + 4) << 16
        if size < 8:
            why = BAD_SIZE
            break
        stop = o + size
        if stop > end:
            why = CUT
            break
        if kind == R_SAMPLE:
            if n > cap:
                why = FULL
                break
            if n_tgids >= len(tgids):
                why = TGIDS_FULL
                break
            records[R_SAMPLE] += 1
            a = np.int64(0)
            slot = np.int64(-1)
            known = True
            if id_at >= 0:
                if o + id_at + 8 > stop:
                    if st[ST_BAD] == 0:
                        st[ST_FIRST_BAD] = o
                    st[ST_BAD] += 1
                    o = stop
                    continue
                slot = find_id(ids, _u64(buf, o + id_at))
                if slot >= 0:
                    a = ids[slot, 1]
                else:
                    known = False
                    st[ST_UNKNOWN] += 1
                    if same_types == 0:
                        o = stop
                        continue
            ua = np.uint64(a)
            if o + attrs[ua, A_VAR] > stop:
                if st[ST_BAD] == 0:
                    st[ST_FIRST_BAD] = o
                st[ST_BAD] += 1
                o = stop
                continue
            if known:
                counts[ua] += 1
            t = last_ts
            if attrs[ua, A_TIME] >= 0:
                t = _u64(buf, o + attrs[ua, A_TIME])
                if t <= 0 or t >= TS_LIMIT:
                    # no time: the record keeps its place
                    st[ST_NO_TIME] += 1
                    t = last_ts
                else:
                    last_ts = t
                    if t > max_ts:
                        max_ts = t
            c = np.int64(-1)
            if attrs[ua, A_CPU] >= 0:
                c = _u32(buf, o + attrs[ua, A_CPU])
                if c >= CPU_LIMIT:
                    if c != 0xFFFFFFFF:
                        st[ST_STRANGE_CPU] += 1
                    c = np.int64(-1)
            elif slot >= 0:
                c = ids[slot, 2]
            if want_tgids:
                if attrs[ua, A_TID] >= 0:
                    tgid = _u32(buf, o + attrs[ua, A_TID])
                    tid = _u32(buf, o + attrs[ua, A_TID] + 4)
                    if (
                        0 < tid < PID_LIMIT
                        and 0 < tgid < PID_LIMIT
                        and tgid_of[np.uint64(tid)] != tgid
                    ):
                        tgid_of[np.uint64(tid)] = tgid
                        tgids[n_tgids, 0] = tid
                        tgids[n_tgids, 1] = tgid
                        tgids[n_tgids, 2] = t
                        n_tgids += 1
                if lost[c, 0] > 0 and t > 0:
                    ts[n] = t
                    cpu[n] = c
                    off[n] = lost[c, 0]
                    length[n] = 0
                    row[n] = ROW_LOST
                    lost[c, 0] = 0
                    n += 1
            r = attrs[ua, A_ROW]
            if (r >= 0 or not known) and attrs[ua, A_TIME] >= 0 and t > 0:
                flags = attrs[ua, A_FLAGS]
                p = np.int64(-1)
                if flags & F_BARE:
                    to = np.uint64(n)
                    ts[to] = t
                    cpu[to] = c
                    off[to] = o
                    length[to] = size
                    row[to] = r
                    n += 1
                elif flags & F_RAW:
                    p = _raw_payload(
                        buf, o + attrs[ua, A_VAR], stop, attrs[ua, A_READ_FORMAT], flags
                    )
                    if p < 0:
                        if st[ST_BAD] == 0:
                            st[ST_FIRST_BAD] = o
                        st[ST_BAD] += 1
                if p >= 0:
                    bytes_ = _u32(buf, p - 4)
                    if not known:
                        r = np.int64(-1)
                        if bytes_ >= 2:
                            common = _u16(buf, p)
                            type_counts[common] += 1
                            r = np.int64(row_of_type[common])
                    if flags & F_SAMPLED and r >= 0 and _repeats(buf, p, bytes_, t, r, seen[c]):
                        st[ST_REPEATED] += 1
                    elif r >= 0:
                        to = np.uint64(n)
                        ts[to] = t
                        cpu[to] = c
                        off[to] = p
                        length[to] = bytes_
                        row[to] = r
                        n += 1
            o = stop
            continue
        if kind == R_COMM or kind == R_FORK or kind == R_LOST_SAMPLES:
            if st[ST_MISC] >= len(misc):
                why = MISC_FULL
                break
            misc[st[ST_MISC]] = o
            st[ST_MISC] += 1
        elif kind == R_LOST:
            if size >= 24:
                count = _u64(buf, o + 16)
                a = np.int64(0)
                slot = np.int64(-1)
                if id_back >= 0 and size >= 24 + id_back:
                    slot = find_id(ids, _u64(buf, stop - id_back))
                if slot < 0:
                    slot = find_id(ids, _u64(buf, o + 8))
                if slot >= 0:
                    a = ids[slot, 1]
                c = np.int64(-1)
                t = np.int64(0)
                if attrs[a, T_SIZE] > 0 and size >= 24 + attrs[a, T_SIZE]:
                    if attrs[a, T_CPU] >= 0:
                        c = _u32(buf, stop - attrs[a, T_CPU])
                    if attrs[a, T_TIME] >= 0:
                        t = _u64(buf, stop - attrs[a, T_TIME])
                if (c < 0 or c >= CPU_LIMIT) and slot >= 0:
                    c = ids[slot, 2]
                if c < 0 or c >= CPU_LIMIT:
                    c = np.int64(-1)
                if t <= 0 or t >= TS_LIMIT:
                    t = last_ts
                if 0 < count < TS_LIMIT:
                    if lost[c, 0] < TS_LIMIT:
                        lost[c, 0] += count
                    lost[c, 1] = t
                    if lost[c, 2] < TS_LIMIT:
                        lost[c, 2] += count
                        records[R_LOST] += 1
                else:
                    st[ST_BAD] += 1
        elif kind == R_FINISHED_ROUND:
            st[ST_ROUNDS] += 1
            st[ST_LIMIT] = st[ST_ROUND_MAX]
            st[ST_ROUND_MAX] = max_ts
            records[R_FINISHED_ROUND] += 1
            o = stop
            if n >= target:
                why = ROUND
                break
            continue
        elif kind == R_ID_INDEX:
            if size >= 16:
                entries = _u64(buf, o + 8)
                for i in range(min(max(entries, 0), (size - 16) // 32)):
                    slot = find_id(ids, _u64(buf, o + 16 + 32 * i))
                    c = _u64(buf, o + 32 + 32 * i)
                    if slot >= 0 and 0 <= c < CPU_LIMIT:
                        ids[slot, 2] = c
                    if 0 < _u64(buf, o + 40 + 32 * i) < PID_LIMIT:
                        st[ST_TASK_IDS] += 1  # opened for one task, not for a CPU
        elif kind == R_AUXTRACE:
            # raw bytes follow outside the record
            if size >= 16:
                more = _u64(buf, o + 8)
                if more < 0 or more > end - stop:
                    why = CUT
                    break
                stop += more
        elif kind == R_SWITCH or kind == R_SWITCH_CPU_WIDE:
            if n > cap:
                why = FULL
                break
            a = np.int64(0)
            slot = np.int64(-1)
            if id_back >= 0 and size >= 8 + id_back:
                slot = find_id(ids, _u64(buf, stop - id_back))
                if slot >= 0:
                    a = ids[slot, 1]
            wide = kind == R_SWITCH_CPU_WIDE
            r = attrs[a, (W_WIDE_OUT if wide else W_OUT)]
            if not _u16(buf, o + 4) & MISC_OUT:
                r = attrs[a, (W_WIDE_IN if wide else W_IN)]
            if r >= 0 and attrs[a, T_TIME] >= 0 and size == (16 if wide else 8) + attrs[a, T_SIZE]:
                t = _u64(buf, stop - attrs[a, T_TIME])
                c = np.int64(-1)
                if attrs[a, T_CPU] >= 0:
                    c = _u32(buf, stop - attrs[a, T_CPU])
                elif slot >= 0:
                    c = ids[slot, 2]
                if 0 < t < TS_LIMIT:
                    max_ts = max(max_ts, t)
                    last_ts = t
                    ts[n] = t
                    cpu[n] = c if 0 <= c < CPU_LIMIT else -1
                    off[n] = o
                    length[n] = size
                    row[n] = r
                    n += 1
        elif kind == R_TRACING_DATA:
            if st[ST_FORM] & FORM_PIPE and size >= 12:
                # the blob follows outside the record
                if _u32(buf, o + 8) > end - stop:
                    why = CUT
                    break
                stop += _u32(buf, o + 8)
        elif (
            kind == R_COMPRESSED
            or kind == R_COMPRESSED2
            or (st[ST_FORM] & FORM_SIMPLEPERF and (kind == R_SPLIT or kind == R_SPLIT_END))
        ):
            why = SPECIAL
            break
        if kind != R_LOST:
            records[kind if 0 <= kind < 255 else 255] += 1
        o = stop
    st[ST_OFF] = o
    st[ST_ROWS] = n
    st[ST_TGIDS] = n_tgids
    st[ST_LAST_TS] = last_ts
    st[ST_MAX] = max_ts
    return why
