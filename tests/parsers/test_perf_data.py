"""perf.data in file mode, against files whose content is known and against real ones.

Its other forms: test_perf_forms.py.
"""

from __future__ import annotations

import json
import lzma
import os
import random
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceana import schema, topology
from traceana.columns import NULL_CPU, EventColumns, NameChange
from traceana.errors import (
    FormatError,
    InputError,
    TraceanaError,
    TruncatedError,
    UnsupportedError,
    UsageError,
)
from traceana.issues import IssueLog
from traceana.parsers.perf_data import PerfDataReader, open_perf_data
from traceana.schema import EventKind, Evidence, State

sys.path.insert(0, str(Path(__file__).parent))
import perf_data_writer as w

PATH = Path("x.perf.data")
BIG = 1 << 20


def read(
    data: bytes, target_rows: int = BIG, chunk_rows: int = BIG
) -> tuple[PerfDataReader, EventColumns, list[NameChange]]:
    reader = PerfDataReader(PATH, data, target_rows=target_rows, chunk_rows=chunk_rows)
    chunks = list(reader.chunks())
    names = [name for chunk in chunks for name in chunk.names]
    return reader, EventColumns.concat([chunk.events for chunk in chunks]), names


def switch(prev: int, nxt: int, state: int = 1, **more: Any) -> bytes:
    values = (f"t{prev}".encode(), prev, 120, state, f"t{nxt}".encode(), nxt, 98)
    return w.SWITCH.payload(prev, values, **more)


def waking(waker: int, wakee: int, target: int) -> bytes:
    return w.WAKING.payload(waker, (f"t{wakee}".encode(), wakee, 120, target))


def runtime(pid: int, ns: int) -> bytes:
    return w.RUNTIME.payload(pid, (f"t{pid}".encode(), pid, ns))


def getpid(pid: int) -> bytes:
    return w.OTHER.payload(pid, (39,))


A = w.of(w.SWITCH, ids=(11, 12))
B = w.of(w.WAKING, ids=(21, 22))


# ---------------------------------------------------------------- what an event becomes


def test_fields_of_an_event() -> None:
    laid = w.write(
        [A, B],
        [
            w.sample(A, 100, 3, switch(5, 6, state=0x102, flags=0x14, preempt=0x21), pid=50, tid=5),
            w.sample(B, 200, 4, waking(6, 7, 2), pid=60, tid=6),
        ],
    )
    reader, got, names = read(laid.data)
    assert got.ts.tolist() == [100, 200]
    assert got.cpu.tolist() == [3, 4]
    assert got.kind.tolist() == [EventKind.SWITCH, EventKind.WAKING]
    assert got.pid.tolist() == [5, 6]
    assert got.ctx[0] == schema.Ctx.NEED_RESCHED | schema.Ctx.SOFTIRQ | schema.Ctx.PREEMPT
    assert got.subject.tolist() == [5, 7]
    assert got.state[0] == State.DISK | State.PREEMPTED
    assert (got.other[0], got.prio[0], got.other_prio[0]) == (6, 120, 98)
    assert got.cpu_to[1] == 2
    assert reader.counts == {"sched_switch": 1, "sched_waking": 1}
    assert not reader.damaged
    assert reader.issues.counts() == {}
    # comm fields, and the thread groups that the samples' TIDs tell
    assert NameChange(5, None, b"t5", 100) in names
    assert NameChange(5, 50, None, 100) in names
    assert NameChange(6, 60, None, 200) in names
    reader.counts = {}
    assert len(list(reader.chunks())) == 1, "chunks() reads anew"
    assert reader.counts == {"sched_switch": 1, "sched_waking": 1}


@pytest.mark.parametrize("size", [64, 72, 80, 96, 104, 112, 120, 128, 136, 144, 200])
def test_any_size_of_attr(size: int) -> None:
    """perf 6.1 refuses 136 (C38)."""
    attrs = [w.of(w.SWITCH, ids=(1,), size=size), w.of(w.WAKING, ids=(2,), size=size)]
    laid = w.write(attrs, [w.sample(attrs[1], 7, 0, waking(1, 2, 0))])
    reader, got, _ = read(laid.data)
    assert reader.counts == {"sched_waking": 1}
    assert got.subject.tolist() == [2]


def test_size_zero_of_an_attr_means_64() -> None:
    laid = w.write([A], [w.sample(A, 7, 0, switch(1, 2))])
    data = bytearray(laid.data)
    at = data.index(struct.pack("<IIQ", 2, 128, w.SWITCH.id))
    struct.pack_into("<I", data, at + 4, 0)
    assert len(read(bytes(data))[1]) == 1


# ---------------------------------------------------------------- whose a sample is


def test_attrs_of_different_sample_types_are_told_apart_by_identifier() -> None:
    chains = w.of(w.SWITCH, ids=(1,), sample_type=w.USUAL | w.CALLCHAIN | w.READ, read_format=0x1F)
    plain = w.of(w.WAKING, ids=(2,))
    cycles = w.Attr(0, w.USUAL & ~w.RAW, (3,), "cycles", type=0)
    laid = w.write(
        [chains, plain, cycles],
        [
            w.sample(chains, 10, 0, switch(1, 2), chain=range(30), group=[(1, 1), (2, 2)]),
            w.sample(cycles, 11, 0, b""),
            w.sample(plain, 12, 0, waking(2, 1, 0)),
            w.sample(chains, 13, 0, switch(2, 1)),
        ],
    )
    reader, got, _ = read(laid.data)
    assert got.ts.tolist() == [10, 12, 13]
    assert got.subject.tolist() == [1, 1, 2]
    assert reader.counts == {"sched_switch": 2, "sched_waking": 1, "cycles": 1}


def test_attrs_are_told_apart_by_id_where_there_is_no_identifier() -> None:
    kind = (w.USUAL & ~w.IDENTIFIER) | w.ID | w.ADDR
    one = w.of(w.SWITCH, ids=(1,), sample_type=kind)
    two = w.of(w.WAKING, ids=(2,), sample_type=kind | w.CALLCHAIN)
    laid = w.write(
        [one, two],
        [w.sample(two, 5, 1, waking(1, 9, 3), chain=[1, 2]), w.sample(one, 6, 1, switch(8, 9))],
    )
    _, got, _ = read(laid.data)
    assert got.kind.tolist() == [EventKind.WAKING, EventKind.SWITCH]
    assert got.subject.tolist() == [9, 8]


def test_one_attr_needs_no_id() -> None:
    one = w.of(w.SWITCH, sample_type=w.TIME | w.RAW | w.CPU)
    _, got, _ = read(w.write([one], [w.sample(one, 5, 1, switch(8, 9))]).data)
    assert (got.ts.tolist(), got.cpu.tolist(), got.subject.tolist()) == ([5], [1], [8])


def test_unknown_id_is_read_by_common_type_where_all_attrs_are_alike() -> None:
    laid = w.write(
        [A, B],
        [
            w.sample(A, 5, 1, waking(1, 9, 3), ident=999),
            w.sample(A, 6, 1, getpid(1), ident=999),
            w.sample(A, 7, 1, switch(1, 2)),
        ],
    )
    reader, got, _ = read(laid.data)
    assert got.kind.tolist() == [EventKind.WAKING, EventKind.SWITCH]
    assert reader.counts == {"sched_switch": 1, "sched_waking": 1, "sys_enter_getpid": 1}
    assert reader.issues.counts() == {"sample_unknown_id": 2}


def test_unknown_id_is_left_out_where_attrs_differ() -> None:
    other = w.of(w.WAKING, ids=(2,), sample_type=w.USUAL | w.CALLCHAIN)
    laid = w.write([A, other], [w.sample(A, 5, 1, switch(1, 9), ident=999)])
    reader, got, _ = read(laid.data)
    assert len(got) == 0
    assert reader.issues.counts() == {"sample_unknown_id": 1}


def test_attrs_that_nothing_tells_apart_are_refused() -> None:
    one = w.of(w.SWITCH, sample_type=w.TIME | w.RAW | w.CPU)
    two = w.of(w.WAKING, sample_type=w.TIME | w.RAW)
    with pytest.raises(FormatError, match="no id to tell them apart"):
        open_perf_data(PATH, w.write([one, two], []).data)


def test_cpu_comes_from_the_id_index_where_samples_do_not_tell() -> None:
    kind = w.USUAL & ~w.CPU
    one = w.of(w.SWITCH, ids=(1, 2), sample_type=kind)
    two = w.of(w.WAKING, ids=(3, 4), sample_type=kind)
    laid = w.write(
        [one, two],
        [
            w.id_index([(1, 6), (2, 7), (3, 6)]),
            w.sample(one, 5, 0, switch(1, 2), ident=2),
            w.sample(two, 6, 0, waking(1, 2, 0), ident=3),
            w.sample(two, 7, 0, waking(1, 2, 0), ident=4),
        ],
    )
    assert read(laid.data)[1].cpu.tolist() == [7, 6, NULL_CPU]


def test_a_tracepoint_recorded_twice_is_taken_once() -> None:
    again = w.of(w.SWITCH, ids=(31,))
    records = [w.sample(A, 5, 1, switch(1, 2)), w.sample(again, 6, 1, switch(1, 2))]
    reader, got, _ = read(w.write([A, again], records).data)
    assert got.ts.tolist() == [5]
    assert reader.counts == {"sched_switch": 2}
    assert reader.issues.counts() == {"event_recorded_twice": 1}
    features = {1: w.tracing_data(), 11: w.strings(["perf", "record", "-G", "a,b"])}
    _, got, _ = read(w.write([A, again], records, features).data)
    assert got.ts.tolist() == [5, 6], "per cgroup they are different events"


# ---------------------------------------------------------------- order


def test_samples_of_all_rings_are_ordered_by_time_ties_by_place() -> None:
    laid = w.write(
        [A],
        [
            *(w.sample(A, t, 0, switch(t, 1)) for t in (10, 30, 50)),
            *(w.sample(A, t, 1, switch(t + 1, 1)) for t in (10, 20, 50)),
        ],
    )
    _, got, _ = read(laid.data)
    assert got.ts.tolist() == [10, 10, 20, 30, 50, 50]
    assert got.subject.tolist() == [10, 11, 21, 30, 50, 51]


def rounds(seed: int, n_rounds: int) -> list[tuple[int, int]]:
    """(time, cpu) in file order, FINISHED_ROUND as (-1, -1).

    What is read in a round was not there when the round before began: it is later than
    everything of the round before that.
    """
    chance = random.Random(seed)
    out = []
    time = [1000] * 4
    ends = [1000, 1000]
    for _ in range(n_rounds):
        for cpu in range(4):
            time[cpu] = max(time[cpu], ends[-2])
            for _ in range(chance.randrange(6)):
                time[cpu] += chance.randrange(30)
                out.append((time[cpu], cpu))
        out.append((-1, -1))
        ends.append(max(time))
    return out


@pytest.mark.parametrize("seed", range(3))
def test_rounds_give_the_same_as_sorting_the_whole(seed: int) -> None:
    plan = rounds(seed, 300)
    records = [
        w.finished_round() if t < 0 else w.sample(A, t, c, switch(i + 1, 1))
        for i, (t, c) in enumerate(plan)
    ]
    data = w.write([A], records).data
    _, whole, _ = read(data)
    reader = PerfDataReader(PATH, data, target_rows=64, chunk_rows=50)
    chunks = [c.events for c in reader.chunks()]
    assert {len(chunk) for chunk in chunks[:-1]} == {50}
    got = EventColumns.concat(chunks)
    expected = sorted((t, i + 1) for i, (t, _) in enumerate(plan) if t >= 0)
    for columns in (whole, got):
        assert list(zip(columns.ts.tolist(), columns.subject.tolist(), strict=True)) == expected
    assert "time_backwards" not in reader.issues.counts()


def test_without_rounds_the_whole_file_is_sorted() -> None:
    times = list(range(1, 2001))
    random.Random(1).shuffle(times)
    data = w.write([A], [w.sample(A, t, 0, switch(t, 1)) for t in times]).data
    _, got, _ = read(data, target_rows=64)
    assert got.subject.tolist() == list(range(1, 2001))


def test_an_event_behind_its_round_is_kept_and_counted() -> None:
    records = []
    for t in range(100, 400):
        records += [w.sample(A, t, 0, switch(t, 1)), w.finished_round()]
    records.append(w.sample(A, 50, 1, switch(50, 1)))
    reader, got, _ = read(w.write([A], records).data, target_rows=16)
    assert sorted(got.ts.tolist()) == [50, *range(100, 400)]
    assert reader.issues.counts() == {"time_backwards": 1}


@pytest.mark.parametrize("bad", [0, 2**64 - 1])
def test_a_sample_without_time_keeps_its_place(bad: int) -> None:
    records = [w.sample(A, t, 0, switch(i + 1, 1)) for i, t in enumerate((10, bad, 20))]
    reader, got, _ = read(w.write([A], records).data)
    assert got.ts.tolist() == [10, 10, 20]
    assert got.subject.tolist() == [1, 2, 3]
    assert reader.issues.counts() == {"sample_without_time": 1}


# ---------------------------------------------------------------- losses


def test_lost_stands_before_the_next_sample_of_its_cpu() -> None:
    """The kernel stamps the LOST record later than the sample behind it."""
    laid = w.write(
        [A, B],
        [
            w.sample(A, 10, 0, switch(1, 2)),
            w.sample(A, 11, 1, switch(3, 4)),
            w.lost(A, 7, 31, 0),
            w.lost(A, 2, 32, 0),
            w.sample(B, 15, 1, waking(4, 2, 0)),
            w.sample(A, 30, 0, switch(2, 1)),
        ],
    )
    reader, got, _ = read(laid.data)
    assert got.kind.tolist() == [
        EventKind.SWITCH, EventKind.SWITCH, EventKind.WAKING, EventKind.LOST, EventKind.SWITCH,
    ]  # fmt: skip
    assert (got.ts[3], got.cpu[3], got.value[3]) == (30, 0, 9)
    assert (reader.lost.events, reader.lost.marks, reader.lost.per_cpu) == (9, 2, {0: 9})
    assert reader.issues.counts() == {"events_lost": 9}


def test_lost_without_a_later_sample_stands_at_its_own_time() -> None:
    laid = w.write([A], [w.sample(A, 10, 0, switch(1, 2)), w.lost(A, 7, 31, 5)])
    reader, got, _ = read(laid.data)
    assert got.kind.tolist() == [EventKind.SWITCH, EventKind.LOST]
    assert (got.ts[1], got.cpu[1], got.value[1]) == (31, 5, 7)
    assert reader.lost.per_cpu == {5: 7}


def test_lost_without_trailer_finds_its_cpu_by_id() -> None:
    one = w.of(w.SWITCH, ids=(1, 2), flags=0)
    laid = w.write(
        [one, w.of(w.WAKING, ids=(3,), flags=0)],
        [w.id_index([(1, 8)]), w.lost(one, 4, 0, 0), w.sample(one, 9, 8, switch(1, 2))],
    )
    reader, got, _ = read(laid.data)
    assert got.cpu.tolist() == [8, 8]
    assert reader.lost.per_cpu == {8: 4}


def test_sums_of_losses_contain_the_marks() -> None:
    """LOST_SAMPLES at the end count what LOST records counted before, and what came after."""
    laid = w.write(
        [A, B],
        [
            w.id_index([(11, 0), (12, 1), (21, 0), (22, 1)]),
            w.sample(A, 10, 0, switch(1, 2)),
            w.lost(A, 7, 31, 0),
            w.sample(A, 30, 0, switch(2, 1)),
            w.lost_samples(A, 5, 11),
            w.lost_samples(B, 2, 21),
            w.lost_samples(A, 3, 12),
            w.lost_samples(A, 1000, 12, misc=1 << 15),  # dropped by a filter: not lost
        ],
    )
    reader, got, _ = read(laid.data)
    assert reader.lost.per_cpu == {0: 7, 1: 3}
    assert (reader.lost.events, reader.lost.marks) == (10, 2)
    lost = got.take(got.kind == EventKind.LOST)
    assert list(zip(lost.ts.tolist(), lost.cpu.tolist(), lost.value.tolist(), strict=True)) == [
        (30, 0, 7),
        (30, 1, 3),
    ]


# ---------------------------------------------------------------- names


def test_names_from_comm_and_fork_records() -> None:
    tracking = w.Attr(9, w.IDENTIFIER | w.TID | w.TIME | w.CPU, (41,), "dummy:HG", type=1)
    laid = w.write(
        [A, tracking],
        [
            w.comm(tracking, 100, 101, b"made up", 0),
            w.fork(tracking, 100, 102, 0),
            w.sample(A, 10, 0, switch(1, 2), pid=1, tid=1),
            w.comm(tracking, 200, 200, b"fifteen-letters", 20),
            w.fork(tracking, 200, 201, 25),
            w.comm(tracking, 0, 0, b"swapper", 26),
            w.comm(tracking, 7, 7, b"<...>", 27),
            w.sample(A, 30, 0, switch(2, 1), pid=0xFFFFFFFF, tid=0xFFFFFFFF),
        ],
    )
    reader, _, names = read(laid.data)
    got = [n for n in names if n.evidence is not Evidence.EVENT]
    assert got == [
        NameChange(101, 100, b"made up", None, Evidence.HEADER),
        NameChange(102, 100, None, None, Evidence.FORK),
        NameChange(200, 200, b"fifteen-letters", 20, Evidence.HEADER),
        NameChange(201, 200, None, 25, Evidence.FORK),
    ]
    assert [n for n in names if n.comm is None and n.evidence is Evidence.EVENT] == [
        NameChange(1, 1, None, 10)
    ]
    assert "dummy:HG" not in reader.counts


def test_many_comm_records_and_threads_are_all_told() -> None:
    tracking = w.Attr(9, w.IDENTIFIER | w.TID | w.TIME | w.CPU, (41,), "dummy", type=1)
    n = 10_000
    records = [w.comm(tracking, i, i, b"c%d" % i, 10 + i) for i in range(1, n)]
    records += [w.sample(A, 10 + i, 0, switch(1, 2), pid=5, tid=i) for i in range(1, n)]
    _, got, names = read(w.write([A, tracking], records).data)
    assert len(got) == n - 1
    assert {x.pid for x in names if x.evidence is Evidence.HEADER} == set(range(1, n))
    assert {x.pid for x in names if x.tgid == 5 and x.comm is None} == set(range(1, n))


def test_cmdlines_of_tracing_data_0_6() -> None:
    features = {1: w.tracing_data(cmdlines=b"12 two words\n13 x\n0 idle\n14 <...>\nrubbish\n")}
    _, _, names = read(w.write([A], [], features).data)
    assert names == [
        NameChange(12, None, b"two words", None, Evidence.CMDLINES),
        NameChange(13, None, b"x", None, Evidence.CMDLINES),
    ]


# ---------------------------------------------------------------- facts of the header


def test_facts_of_the_header() -> None:
    attrs = [w.of(w.SWITCH, ids=(1,), flags=w.SAMPLE_ID_ALL | w.USE_CLOCKID, clockid=4)]
    features = {
        1: w.tracing_data(),
        3: w.string("host"),
        4: w.string("6.1.192"),
        5: w.string("6.1.9"),
        6: w.string("x86_64"),
        7: struct.pack("<II", 8, 6),
        10: struct.pack("<Q", 1234),
        11: w.strings(["perf", "record", "-e", "sched:*", "a b"]),
        23: struct.pack("<Q", 1),
        29: struct.pack("<IIQQ", 1, 4, 1_600_000_000_000_000_000, 77),
    }
    meta = open_perf_data(PATH, w.write(attrs, [], features).data).meta
    assert (meta.form, meta.tool, meta.kernel) == ("perf.data", "perf 6.1.9", "6.1.192")
    assert (meta.machine, meta.hostname) == ("x86_64", "host")
    assert (meta.cpus_present, meta.cpus_online) == (8, 6)
    assert meta.cmdline == "perf record -e 'sched:*' 'a b'"
    assert (meta.clock, meta.clock_unit) == ("mono_raw", "ns")
    assert meta.extra["wall_clock"] == {
        "clockid": 4,
        "wall_ns": 1_600_000_000_000_000_000,
        "clock_ns": 77,
    }
    assert open_perf_data(PATH, w.write([A], []).data).meta.clock == "perf"


def test_topology_of_the_header() -> None:
    features = {
        1: w.tracing_data(),
        7: struct.pack("<II", 4, 4),
        13: w.cpu_topology(["0-3"], ["0,2", "1,3"], [(0, 0), (1, 0), (0, 0), (1, 0)]),
        14: struct.pack("<IIQQ", 1, 0, 1, 1) + w.string("0-3"),
        20: w.cache([(2, "Unified", "0,2"), (3, "Unified", "0-3"), (3, "Data", "1")]),
    }
    reader = open_perf_data(PATH, w.write([A], [], features).data)
    table = reader.topology()
    assert table is not None
    schema.check(table)
    assert table.column("core").to_pylist() == [0, 1, 0, 1]
    assert table.column("llc").to_pylist() == [0, 0, 0, 0]
    assert table.column("node").to_pylist() == [0, 0, 0, 0]
    assert table.column("origin").to_pylist() == ["header"] * 4
    assert reader.issues.counts() == {}
    assert open_perf_data(PATH, w.write([A], []).data).topology() is None


@pytest.mark.parametrize("bit", [3, 7, 11, 12, 13, 14, 20, 21, 29])
def test_a_feature_that_makes_no_sense_is_left_out(bit: int) -> None:
    for rubbish in (b"", b"\xff" * 5, b"\xff" * 64):
        features = {1: w.tracing_data(), 7: struct.pack("<II", 2, 2), bit: rubbish}
        reader, got, _ = read(w.write([A], [w.sample(A, 7, 0, switch(1, 2))], features).data)
        reader.topology()
        assert len(got) == 1
        if not rubbish:
            assert reader.issues.counts() == {"feature_unreadable": 1}


def test_a_feature_that_is_cut_is_left_out() -> None:
    features = {1: w.tracing_data(), 3: w.string("host"), 4: w.string("6.1")}
    laid = w.write([A], [w.sample(A, 7, 0, switch(1, 2))], features)
    reader, got, _ = read(laid.data[: laid.feature_at[4] + 3])
    assert len(got) == 1
    assert reader.meta.hostname == "host"
    assert reader.meta.kernel is None
    assert reader.issues.counts() == {"feature_cut": 1}


# ---------------------------------------------------------------- what is missing


def test_no_tracepoints_says_what_there_is_and_why() -> None:
    """C33."""
    cycles = w.Attr(0, w.USUAL & ~w.RAW, (1,), "cycles", type=0)
    features = {12: w.event_desc([cycles]), 11: w.strings(["perf", "record", "-a"])}
    reader, got, _ = read(w.write([cycles], [w.sample(cycles, 5, 0, b"")], features).data)
    assert len(got) == 0
    assert reader.counts == {"cycles": 1}
    text = str(reader.meta.extra["no_tracepoints"])
    assert "no tracepoints in this file (events: cycles; recorded as: perf record -a)" in text
    assert "perf_event_paranoid" in text
    assert text in reader.issues.texts()
    assert "\n" not in text


def test_a_tracepoint_without_its_format_or_data() -> None:
    no_raw = w.of(w.WAKING, ids=(2,), sample_type=w.USUAL & ~w.RAW)
    unknown = w.Attr(999, ids=(3,), name="sched:sched_foo")
    sampled = w.of(w.RUNTIME, ids=(4,), period=100)
    laid = w.write(
        [A, no_raw, unknown, sampled],
        [
            w.sample(no_raw, 5, 0, b""),
            w.sample(unknown, 6, 0, b"abcdefgh"),
            w.sample(A, 7, 0, switch(1, 2)),
        ],
    )
    reader, got, _ = read(laid.data)
    assert got.ts.tolist() == [7]
    assert reader.counts == {"sched_switch": 1, "sched_waking": 1, "sched_foo": 1}
    assert reader.issues.counts() == {"no_format": 1, "no_raw": 1, "events_sampled": 1}


def test_no_formats_at_all_is_refused_with_the_reason() -> None:
    records = [w.sample(A, 7, 0, switch(1, 2))]
    with pytest.raises(UnsupportedError, match="without the descriptions of its tracepoints"):
        open_perf_data(PATH, w.write([A], records, {12: w.event_desc([A])}).data)
    with pytest.raises(TruncatedError, match="recording was not finished"):
        open_perf_data(PATH, w.write([A], records, {}, data_size=0).data)


def test_data_size_zero_is_read_to_the_end() -> None:
    cycles = w.Attr(0, w.USUAL & ~w.RAW, (1,), "cycles", type=0)
    laid = w.write([cycles], [w.sample(cycles, 5 + i, 0, b"") for i in range(3)], {}, data_size=0)
    reader, _, _ = read(laid.data)
    assert reader.counts == {"cycles": 3}
    assert reader.damaged
    assert reader.issues.counts()["file_cut"] == 1


def test_recorded_for_some_tasks_only() -> None:
    laid = w.write([A], [w.id_index([(11, 0), (12, 1)], tid=4711), w.sample(A, 7, 0, switch(1, 2))])
    reader, _, _ = read(laid.data)
    assert reader.issues.counts() == {"only_some_tasks": 1}


def test_switch_records_are_named() -> None:
    wide = w.record(w.R_SWITCH_CPU_WIDE, b"\0" * 8 + w.trailer(A, 5, 0))
    laid = w.write([A], [wide, w.record(200, b"x" * 8)])
    reader, _, _ = read(laid.data)
    assert reader.issues.counts() == {"switch_records": 1}


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("data", [b"", b"P", b"PERFILE", b"PERFILE2", b"\x89PNG\r\n\x1a\n" * 20])
def test_what_is_no_perf_data(data: bytes) -> None:
    with pytest.raises(InputError):
        open_perf_data(PATH, data)


# ---------------------------------------------------------------- damage


def test_a_record_of_size_zero_ends_the_reading() -> None:
    """C39."""
    records = [w.sample(A, 7, 0, switch(1, 2)), b"\0" * 64, w.sample(A, 8, 0, switch(2, 1))]
    laid = w.write([A], records)
    reader, got, _ = read(laid.data)
    assert got.ts.tolist() == [7]
    assert reader.damaged
    (text,) = reader.issues.texts()
    assert f"{laid.data_start + len(records[0]):#x}" in text
    assert "size 0" in text


def test_malformed_samples_are_left_out_and_counted() -> None:
    good = w.sample(A, 7, 0, switch(1, 2))
    chain = w.of(w.WAKING, ids=(5,), sample_type=w.USUAL | w.CALLCHAIN | w.READ, read_format=8)
    deep = bytearray(w.sample(chain, 8, 0, waking(1, 2, 0), chain=[1]))
    struct.pack_into("<Q", deep, 8 + 6 * 8 + 8, 1 << 61)  # callchain of 2^61
    group = bytearray(w.sample(chain, 8, 0, waking(1, 2, 0), chain=[1]))
    struct.pack_into("<Q", group, 8 + 6 * 8, (1 << 64) - 1)
    raw = bytearray(w.sample(A, 9, 0, switch(1, 2)))
    struct.pack_into("<I", raw, 8 + 6 * 8, 0xFFFFFFFF)
    records = [w.record(w.R_SAMPLE, b""), w.record(w.R_SAMPLE, struct.pack("<Q", 11)), good]
    laid = w.write([A, chain], [*records, bytes(deep), bytes(group), bytes(raw)])
    reader, got, _ = read(laid.data)
    assert got.ts.tolist() == [7]
    assert reader.issues.counts()["sample_malformed"] == 4 + len(records) - 2
    assert f"offset {laid.data_start:#x}" in " ".join(reader.issues.texts())


def test_payload_shorter_than_its_format() -> None:
    laid = w.write([A], [w.sample(A, 7, 0, b"abcd"), w.sample(A, 8, 0, switch(1, 2))])
    reader, got, _ = read(laid.data)
    assert got.ts.tolist() == [8]
    assert reader.issues.counts() == {"payload_too_short": 1}


def test_aux_data_behind_its_record_is_skipped() -> None:
    junk = w.sample(A, 99, 0, switch(9, 9))
    aux = w.record(w.R_AUXTRACE, struct.pack("<Q", len(junk)) + b"\0" * 32) + junk
    _, got, _ = read(w.write([A], [aux, w.sample(A, 7, 0, switch(1, 2))]).data)
    assert got.ts.tolist() == [7]


def full_file() -> w.Laid:
    tracking = w.Attr(9, w.IDENTIFIER | w.TID | w.TIME | w.CPU, (41,), "dummy", type=1)
    chain = w.of(w.WAKING, ids=(5,), sample_type=w.USUAL | w.CALLCHAIN)
    records = [
        w.id_index([(11, 0), (12, 1)]),
        w.comm(tracking, 5, 5, b"five", 0),
        w.sample(A, 7, 0, switch(1, 2)),
        w.sample(chain, 8, 1, waking(2, 1, 0), chain=[1, 2, 3]),
        w.finished_round(),
        w.lost(A, 3, 12, 0),
        w.sample(A, 11, 0, switch(2, 1)),
        w.fork(tracking, 5, 6, 13),
        w.finished_round(),
        w.lost_samples(A, 9, 12),
    ]
    attrs = [A, chain, tracking]
    features = {
        1: w.tracing_data([w.SWITCH, w.WAKING]),
        7: struct.pack("<II", 2, 2),
        11: w.strings(["perf"]),
        12: w.event_desc(attrs),
        13: w.cpu_topology(["0-1"], ["0-1"], [(0, 0), (0, 0)]),
        20: w.cache([(3, "Unified", "0-1")]),
    }
    return w.write(attrs, records, features)


def survive(data: bytes, *, fully: bool = True) -> tuple[PerfDataReader, EventColumns] | None:
    """Open and read; only the errors that a user may see are allowed."""
    try:
        reader, got, _ = read(data, target_rows=16)
        if fully:
            reader.topology()
            reader.extra_events("sched_switch")
    except TraceanaError as error:
        assert error.exit_code in (2, 3)
        assert "\n" not in str(error)
        return None
    return reader, got


def test_cut_at_every_byte() -> None:
    laid = full_file()
    whole = survive(laid.data)
    assert whole is not None
    assert whole[1].kind.tolist() == [0, 1, 19, 0, 19]
    formats_end = laid.feature_at[7]
    for size in range(len(laid.data)):
        got = survive(laid.data[:size], fully=size % 16 == 0)
        if size < laid.data_end:
            assert got is None, f"{size}: no formats, nothing to read"
        elif size >= formats_end:
            assert got is not None, f"{size}: data and formats are there"
            assert got[1].ts.tolist() == whole[1].ts.tolist()


def test_data_cut_in_the_middle_gives_the_records_before() -> None:
    """A cut that only the section's size tells: all whole records before it are given."""
    laid = full_file()
    seen = set()
    for end in range(laid.data_start, laid.data_end):
        features = laid.data[laid.data_end :]
        data = bytearray(laid.data[:end] + features)
        struct.pack_into("<Q", data, 48, end - laid.data_start)
        moved = laid.data_end - end
        for entry in range(6):
            (place,) = struct.unpack_from("<Q", data, end + 16 * entry)
            struct.pack_into("<Q", data, end + 16 * entry, place - moved)
        got = survive(bytes(data), fully=False)
        assert got is not None
        reader, events = got
        recorded = events.ts[events.kind != EventKind.LOST].tolist()
        assert recorded == [7, 8, 11][: len(recorded)]
        assert reader.damaged == ("record_damaged" in reader.issues.counts())
        seen.add((len(recorded), reader.damaged))
    assert {(n, d) for n in (0, 1, 2) for d in (False, True)} <= seen


def test_flipped_bytes_and_garbage() -> None:
    laid = full_file()
    chance = random.Random(7)
    for _ in range(300):
        data = bytearray(laid.data)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, 8))
        survive(bytes(data))
    for _ in range(80):
        data = bytearray(laid.data)
        at = chance.randrange(len(data))
        data[at : at + 64] = chance.randbytes(64)
        survive(bytes(data))
    for _ in range(100):
        survive(b"PERFILE2" + struct.pack("<Q", 104) + chance.randbytes(chance.randrange(600)))


# ---------------------------------------------------------------- against the slow reader

_KIND_BITS = (w.IP, w.TID, w.ADDR, w.STREAM_ID, w.PERIOD, w.READ, w.CALLCHAIN, w.CPU)


@st.composite
def recordings(draw: st.DrawFn) -> tuple[list[w.Attr], list[bytes]]:
    """Attrs of the same or of different sample types, and records in rounds."""
    events = [w.SWITCH, w.WAKING, w.RUNTIME, w.OTHER]
    n = draw(st.integers(1, 4))
    tell = draw(st.sampled_from([w.IDENTIFIER, w.ID]))
    fixed = sum(draw(st.sets(st.sampled_from((w.IP, w.TID, w.ADDR)))))
    attrs = []
    for i in range(n):
        bits = sum(draw(st.sets(st.sampled_from(_KIND_BITS[3:]))))
        if tell == w.IDENTIFIER:
            bits |= sum(draw(st.sets(st.sampled_from((w.IP, w.TID, w.ADDR, w.ID)))))
        else:
            bits |= fixed
        attrs.append(
            w.of(
                events[i],
                ids=tuple(draw(st.sets(st.integers(0, 2**64 - 1), min_size=1, max_size=3))),
                sample_type=bits | tell | w.TIME | w.RAW,
                read_format=draw(st.integers(0, 31)),
            )
        )
    # one trailer place of the id: STREAM_ID and CPU must agree where ID tells
    owners: dict[int, int] = {}
    for i, attr in enumerate(attrs):
        for ident in attr.ids:
            owners.setdefault(ident, i)
    attrs = [
        w.Attr(**{**a.__dict__, "ids": tuple(x for x in a.ids if owners[x] == i)})
        for i, a in enumerate(attrs)
    ]
    if not all(a.ids for a in attrs):
        attrs = [w.Attr(**{**a.__dict__, "ids": (i + 1,)}) for i, a in enumerate(attrs)]
    records = []
    time = 1000
    for _ in range(draw(st.integers(0, 40))):
        if draw(st.integers(0, 5)) == 0:
            records.append(w.finished_round())
            time += 100
        attr = draw(st.sampled_from(attrs))
        pid = draw(st.integers(1, 5))
        raw = {
            w.SWITCH.id: lambda p=pid: switch(p, p + 1, draw(st.sampled_from([0, 1, 2, 256]))),
            w.WAKING.id: lambda p=pid: waking(p, p + 1, 1),
            w.RUNTIME.id: lambda p=pid: runtime(p, draw(st.integers(0, 2**62))),
            w.OTHER.id: lambda p=pid: getpid(p),
        }[attr.config]()
        records.append(
            w.sample(
                attr,
                time + draw(st.integers(0, 30)),
                draw(st.integers(0, 3)),
                raw,
                ident=draw(st.sampled_from(attr.ids)),
                chain=draw(st.lists(st.integers(0, 2**64 - 1), max_size=3)),
                group=draw(st.lists(st.just((1, 2)), max_size=3)),
                tail=draw(st.sampled_from([b"", b"\0" * 16])),
            )
        )
    return attrs, records


def check_against_oracle(
    laid: w.Laid, attrs: list[w.Attr], target_rows: int, chunk_rows: int
) -> None:
    expected = w.oracle(laid, attrs)
    reader, got, _ = read(laid.data, target_rows, chunk_rows)
    counts: dict[str, int] = {}
    for seen in expected:
        counts[seen.name] = counts.get(seen.name, 0) + 1
    assert reader.counts == counts
    rows = [s for s in expected if s.name in schema.EVENT_NAMES]
    assert got.ts.tolist() == [s.time for s in rows]
    assert got.cpu.tolist() == [s.cpu for s in rows]
    assert got.kind.tolist() == [schema.EVENT_NAMES[s.name] for s in rows]
    for i, seen in enumerate(rows):
        (pid,) = struct.unpack_from("<i", seen.raw, 4)
        assert got.pid[i] == pid
        if seen.name == "sched_switch":
            prev, prio, state = struct.unpack_from("<iiq", seen.raw, 24)
            nxt, nprio = struct.unpack_from("<ii", seen.raw, 56)
            assert (got.subject[i], got.prio[i], got.state[i]) == (prev, prio, state)
            assert (got.other[i], got.other_prio[i]) == (nxt, nprio)
        elif seen.name == "sched_waking":
            assert (got.subject[i], got.prio[i], got.cpu_to[i]) == struct.unpack_from(
                "<iii", seen.raw, 24
            )
        else:
            assert (got.subject[i], got.value[i]) == struct.unpack_from("<iQ", seen.raw, 24)
    for event in (w.SWITCH, w.OTHER):
        if any(a.config == event.id for a in attrs):
            table = reader.extra_events(event.name)
            mine = [s for s in expected if s.name == event.name]
            assert table.column("ts").to_pylist() == [s.time for s in mine]
            assert table.column("cpu").to_pylist() == [s.cpu for s in mine]


@settings(max_examples=60)
@given(recordings(), st.sampled_from([1, 4, 1 << 16]), st.sampled_from([1, 3, BIG]))
def test_equal_to_the_slow_reader(
    made: tuple[list[w.Attr], list[bytes]], target: int, chunk_rows: int
) -> None:
    attrs, records = made
    check_against_oracle(w.write(attrs, records), attrs, target, chunk_rows)


def test_kernels_run_uncompiled(root: Path) -> None:
    """TRACEANA_JIT=0: the same functions as plain Python."""
    laid = full_file()
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from traceana.parsers.perf_data import PerfDataReader\n"
        "reader = PerfDataReader(Path('x'), sys.stdin.buffer.read(), target_rows=2)\n"
        "chunks = list(reader.chunks())\n"
        "print([t for c in chunks for t in c.events.ts.tolist()], reader.lost.per_cpu,\n"
        "      [n.pid for c in chunks for n in c.names])\n"
    )
    out = []
    for jit in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            input=laid.data, capture_output=True, check=False, cwd=root,
            env={**os.environ, "TRACEANA_JIT": jit, "PYTHONPATH": str(root)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        out.append(done.stdout)
    assert out[0] == out[1]
    assert out[0].startswith(b"[7, 8, 11, 11, 11] {0: 3, 1: 9}")


# ---------------------------------------------------------------- any tracepoint as a table


def test_extra_events() -> None:
    laid = w.write(
        [A, w.of(w.RUNTIME, ids=(9,))],
        [
            w.sample(w.of(w.RUNTIME, ids=(9,)), 20, 1, runtime(4, 2**40)),
            w.sample(A, 10, 0, switch(1, 2)),
            w.sample(w.of(w.RUNTIME, ids=(9,)), 5, 1, runtime(3, 7)),
        ],
    )
    reader = open_perf_data(PATH, laid.data)
    table = reader.extra_events("sched_stat_runtime")
    assert table.to_pylist() == [
        {
            "ts": ts, "cpu": 1, "common_pid": pid, "common_flags": 0, "common_preempt_count": 0,
            "comm": f"t{pid}", "pid": pid, "runtime": ns,
        }
        for ts, pid, ns in ((5, 3, 7), (20, 4, 2**40))
    ]  # fmt: skip
    assert reader.extra_events("sched:sched_switch").num_rows == 1
    with pytest.raises(UsageError, match="there are: sched_stat_runtime, sched_switch"):
        reader.extra_events("nonsense")


# ---------------------------------------------------------------- real captures


def capture(name: str, samples: Path) -> tuple[bytes, dict[str, int]]:
    """Content of a real file and its counts by another tool: a sample, or one of ../shared."""
    file = f"{name}.perf.data.xz"
    own = json.loads((samples / "COUNTS.json").read_text())
    folder = samples.parent.parent / "shared" / "captures"
    if file in own:
        path, facts = samples / file, own[file]
    elif (folder / "perf.json").exists():
        path, facts = folder / "perf" / file, json.loads((folder / "perf.json").read_text())[file]
    else:
        pytest.skip("no ../shared beside the repository: its captures cannot be read")
    counts = {key.rpartition(":")[2]: n for key, n in facts["events"].items()}
    return lzma.decompress(path.read_bytes()), counts


REAL = ["pp6-file", "fan-mono", "sched-record-default", "mix-g", "lost-small"]


@pytest.mark.parametrize("name", REAL)
def test_counts_of_real_captures(name: str, samples: Path) -> None:
    data, counts = capture(name, samples)
    reader, got, _ = read(data, target_rows=4096)
    assert reader.counts == counts
    assert int((got.kind != EventKind.LOST).sum()) == sum(counts.values())
    assert bool((np.diff(got.ts) >= 0).all())
    assert not reader.damaged
    assert set(reader.issues.counts()) <= {"events_lost", "losses_unplaced"}


def test_losses_of_a_real_capture(samples: Path) -> None:
    """7 LOST records; the sums that perf wrote at the end contain them."""
    reader, got, _ = read(capture("lost-small", samples)[0])
    assert (reader.lost.events, len(reader.lost.per_cpu)) == (1586, 8)
    lost = got.take(got.kind == EventKind.LOST)
    assert int(lost.value.sum()) == 1586
    assert sorted(lost.value.tolist())[-7:] == [115, 130, 175, 201, 238, 259, 293]
    for i in np.flatnonzero(got.kind == EventKind.LOST)[:7]:
        later = np.flatnonzero((got.cpu == got.cpu[i]) & (np.arange(len(got)) > i))
        assert got.ts[later[0]] == got.ts[i], "it stands before the next event of its CPU"


_LINE = re.compile(r"\s*(.*?)\s+(-?\d+) \[(\d+)\]\s+(\d+)\.(\d{9}):\s+\w+:(\w+):\s(.*)$")
_LETTERS = {1: "S", 2: "D", 4: "T", 8: "t", 0x10: "X", 0x20: "Z", 0x40: "P", 0x80: "I"}


def state_text(state: int) -> str:
    letters = "|".join(letter for bit, letter in _LETTERS.items() if state & bit)
    return (letters or "R") + ("+" if state & State.PREEMPTED else "")


def fields_of(got: EventColumns, i: int) -> dict[str, str]:
    """The fields of a row in the words of the kernel's texts."""
    kind = EventKind(int(got.kind[i]))
    subject, other = str(got.subject[i]), str(got.other[i])
    if kind is EventKind.SWITCH:
        return {
            "prev_pid": subject, "prev_prio": str(got.prio[i]), "next_pid": other,
            "prev_state": state_text(int(got.state[i])), "next_prio": str(got.other_prio[i]),
        }  # fmt: skip
    if kind in (EventKind.WAKING, EventKind.WAKEUP, EventKind.WAKEUP_NEW):
        return {"pid": subject, "prio": str(got.prio[i]), "target_cpu": f"{got.cpu_to[i]:03d}"}
    if kind is EventKind.MIGRATE:
        return {
            "pid": subject, "prio": str(got.prio[i]), "orig_cpu": str(got.cpu_from[i]),
            "dest_cpu": str(got.cpu_to[i]),
        }  # fmt: skip
    if kind is EventKind.STAT_RUNTIME:
        return {"pid": subject, "runtime": str(got.value[i])}
    if kind is EventKind.CPU_IDLE:
        return {"state": str(got.value[i]), "cpu_id": str(got.cpu_to[i])}
    if kind is EventKind.EXIT:
        return {"pid": subject, "prio": str(got.prio[i])}
    if kind is EventKind.EXEC:
        return {"pid": subject, "old_pid": other}
    return {"child_pid": subject, "pid": other}


def check_against_perf_script(path: Path, got: EventColumns) -> None:
    """Every field of every event is what perf itself shows of that file or folder.

    Of events at the same time perf shows those of a folder in any order.
    """
    perf = shutil.which("perf")
    if perf is None:
        pytest.skip("perf is not installed: no other reader of perf.data to compare with")
    command = [perf, "script", "--ns", "-F", "comm,tid,cpu,time,event,trace", "-i", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    got = got.take(got.kind != EventKind.LOST)
    matches = [_LINE.match(line) or pytest.fail(line) for line in text.splitlines()]
    assert len(matches) == len(got) > 20_000
    if path.is_dir():
        matches.sort(key=lambda m: (int(m[4]), int(m[5]), int(m[3])))
    for i, match in enumerate(matches):
        line = match[0]
        _, tid, cpu, seconds, rest, event, said = match.groups()
        assert int(seconds) * 10**9 + int(rest) == got.ts[i], line
        assert int(cpu) == got.cpu[i], line
        assert schema.EVENT_NAMES[event] == got.kind[i], line
        assert tid in ("-1", str(got.pid[i])), line
        told = dict(re.findall(r"(\w+)=(\S+)", said))
        for key, value in fields_of(got, i).items():
            assert told[key] == value, line


@pytest.mark.parametrize("name", REAL)
def test_every_field_equals_perf_script(name: str, samples: Path, tmp_path: Path) -> None:
    plain = tmp_path / "perf.data"
    plain.write_bytes(capture(name, samples)[0])
    check_against_perf_script(plain, read(plain.read_bytes())[1])


def test_topology_of_a_real_capture_equals_its_side_files(samples: Path, shared: Path) -> None:
    reader = open_perf_data(PATH, capture("pp6-file", samples)[0])
    table = reader.topology()
    assert table is not None
    for side in ("cpus.lscpu-p.csv", "sys.tar.xz"):
        other = topology.load_side_file(shared / "captures" / "perf" / side, IssueLog())
        for column in ("cpu", "core", "cluster", "llc", "socket", "online"):
            assert table.column(column).to_pylist() == other.column(column).to_pylist()
    assert reader.issues.counts() == {}


# ---------------------------------------------------------------- the bench's long files


def test_repeated_recording(tmp_path: Path, samples: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "bench"))
    from repeat_perf import repeat

    data, counts = capture("pp6-file", samples)
    short, out = tmp_path / "perf.data", tmp_path / "long.perf.data"
    short.write_bytes(data)
    repeat(short, out, 3)
    reader, got, _ = read(out.read_bytes())
    assert reader.counts == {name: 3 * n for name, n in counts.items()}
    assert bool((np.diff(got.ts) >= 0).all())
    n = len(got) // 3
    assert got.subject[:n].tolist() == got.subject[n : 2 * n].tolist()
    steps = got.ts[n : 2 * n] - got.ts[:n]
    assert steps.min() == steps.max() > got.ts[n - 1] - got.ts[0]
    perf = shutil.which("perf")
    if perf is not None:
        done = subprocess.run(
            [perf, "script", "-F", "time,event", "-i", str(out)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert len(done.stdout.splitlines()) == len(got)
        assert "out of order" not in done.stderr
