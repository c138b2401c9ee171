"""perf.data in its other forms: each gives what the same recording in file mode gives."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from traceana.columns import NULL_PID, NULL_STATE, EventColumns, NameChange
from traceana.errors import FormatError, TraceanaError, TruncatedError, UnsupportedError
from traceana.parsers import perf_stream
from traceana.parsers.perf_data import PerfDataReader, open_perf_data
from traceana.parsers.perf_folder import (
    is_perf_folder,
    is_perf_tar,
    open_perf_folder,
    open_perf_tar,
)
from traceana.parsers.reader import Reader
from traceana.parsers.registry import open_reader
from traceana.parsers.unwrap import open_input
from traceana.schema import EventKind, Evidence, State

sys.path.insert(0, str(Path(__file__).parent))
import perf_data_writer as w
from test_perf_data import check_against_perf_script

PATH = Path("x.perf.data")
Read = tuple[Reader, EventColumns, list[NameChange]]


def read_all(reader: Reader) -> tuple[EventColumns, list[NameChange]]:
    chunks = list(reader.chunks())
    names = [name for chunk in chunks for name in chunk.names]
    return EventColumns.concat([chunk.events for chunk in chunks]), names


def switch(prev: int, nxt: int, state: int = 1) -> bytes:
    values = (f"t{prev}".encode(), prev, 120, state, f"t{nxt}".encode(), nxt, 98)
    return w.SWITCH.payload(prev, values, flags=4, preempt=2)


def waking(waker: int, wakee: int, target: int) -> bytes:
    return w.WAKING.payload(waker, (f"t{wakee}".encode(), wakee, 120, target), flags=0x11)


def runtime(pid: int, ns: int) -> bytes:
    return w.RUNTIME.payload(pid, (f"t{pid}".encode(), pid, ns))


A = w.of(w.SWITCH, ids=(11, 12, 13))
B = w.of(w.WAKING, ids=(21, 22, 23), sample_type=w.USUAL | w.CALLCHAIN | w.READ, read_format=4)
C = w.of(w.RUNTIME, ids=(31, 32, 33))
TRACKING = w.Attr(9, w.IDENTIFIER | w.TID | w.TIME | w.CPU, (41,), "dummy:HG", type=1)
ATTRS = [A, B, C, TRACKING]


def rings(seed: int, n: int) -> list[list[bytes]]:
    """Records of the rings of three CPUs, each in the order of time; made in the ORDER set."""
    rng = random.Random(seed)
    out: list[list[bytes]] = [[], [], []]
    now = 1_000_000
    for _ in range(n):
        now += rng.randint(1, 900)
        cpu = rng.randrange(3)
        pid, other = rng.randint(1, 40), rng.randint(0, 40)
        what = rng.randrange(20)
        if what < 8:
            rec = w.sample(A, now, cpu, switch(pid, other, rng.choice((0, 1, 2, 256))), tid=pid,
                           pid=pid, ident=A.ids[cpu])  # fmt: skip
        elif what < 14:
            chain = [rng.getrandbits(64) for _ in range(rng.randrange(6))]
            rec = w.sample(B, now, cpu, waking(pid, other or 1, rng.randrange(3)), tid=pid,
                           pid=pid, chain=chain, ident=B.ids[cpu])  # fmt: skip
        elif what < 18:
            rec = w.sample(C, now, cpu, runtime(pid, rng.getrandbits(40)), tid=pid, pid=pid,
                           ident=C.ids[cpu])  # fmt: skip
        elif what == 18:
            rec = w.comm(TRACKING, pid, pid, f"name{rng.randrange(9)}".encode(), now, cpu)
        else:
            rec = w.lost(A, rng.randint(1, 9), now, cpu)
        out[cpu].append(rec)
    return out


def rounds(seed: int, n: int, step: int = 9000) -> list[bytes]:
    """The same rings as perf writes them into one file, round by round.

    In a round it reads one ring after the other: the later ones further.
    """
    queues = rings(seed, n)
    out = [w.id_index([(i, cpu) for a in (A, B, C) for cpu, i in enumerate(a.ids)])]
    rng = random.Random(seed + 1)
    until = 1_000_000
    while any(queues):
        until += step
        for queue in queues:
            reached = until + rng.randrange(step)
            k = sum(_time(rec) <= reached for rec in queue)
            out += queue[:k]
            del queue[:k]
        out.append(w.finished_round())
    return out


def _time(rec: bytes) -> int:
    """When a record of :func:`rings` was written: samples and trailers have it at fixed places."""
    kind, _, size = struct.unpack_from(w.ORDER + "IHH", rec)
    at = 32 if kind == w.R_SAMPLE else size - 24
    (when,) = struct.unpack_from(w.ORDER + "Q", rec, at)
    return int(when)


def plain(seed: int, n: int) -> Read:
    reader = open_perf_data(PATH, w.write(ATTRS, rounds(seed, n)).data)
    return reader, *read_all(reader)


def named(names: Sequence[NameChange]) -> list[tuple[int, int, bytes, int]]:
    """Names with their times, and thread groups without: those are told where first seen."""
    return sorted(
        {(n.pid, n.tgid or 0, n.comm or b"", (n.ts or 0) if n.comm else 0) for n in names}
    )


def same(reader: Reader, twin: Read) -> None:
    """The reader gives exactly what the twin gave."""
    got, names = read_all(reader)
    other, expected, expected_names = twin
    for column, wanted in zip(got.arrays(), expected.arrays(), strict=True):
        assert column.tolist() == wanted.tolist()
    assert named(names) == named(expected_names)
    assert reader.counts == other.counts
    assert reader.lost == other.lost
    assert reader.issues.counts() == other.issues.counts()
    assert reader.damaged == other.damaged
    for name in ("sched_switch", "sched_waking"):
        assert reader.extra_events(name).equals(other.extra_events(name))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers of a few records, so that small files need many of them."""
    monkeypatch.setattr(perf_stream, "BLOCK", 1500)


# ---------------------------------------------------------------- pipe mode


@pytest.mark.parametrize("features_first", [False, True])
def test_pipe_mode_equals_file_mode(features_first: bool) -> None:
    """C23."""
    features = {
        1: w.tracing_data(), 4: w.string("6.1.192"), 7: struct.pack("<II", 3, 3),
        11: w.strings(["perf", "record"]),
    }  # fmt: skip
    data = w.pipe(ATTRS, rounds(1, 800), features, features_first=features_first).data
    reader = open_perf_data(PATH, data)
    same(reader, plain(1, 800))
    assert (reader.meta.kernel, reader.meta.cpus_online) == ("6.1.192", 3)
    assert reader.meta.cmdline == "perf record"
    assert reader.meta.extra["perf_data"] == "pipe mode"
    assert len(reader.counts) == 3


def test_names_and_ids_told_later_in_a_pipe() -> None:
    cycles = w.Attr(0, w.USUAL & ~w.RAW, (51,), type=0)
    again = w.Attr(0, w.USUAL & ~w.RAW, (51, 52), type=0)
    records = [
        w.event_update(51, b"cpu/cycles/"),
        w.record(w.R_ATTR, again.pack() + struct.pack("<2Q", 51, 52)),
        w.sample(cycles, 5, 0, b"", ident=52), w.sample(A, 6, 0, switch(1, 2)),
    ]  # fmt: skip
    reader = open_perf_data(PATH, w.pipe([A, cycles], records).data)
    got, _ = read_all(reader)
    assert reader.counts == {"cpu/cycles/": 1, "sched_switch": 1}
    assert len(got) == 1
    assert reader.issues.counts() == {}


def test_size_zero_in_a_pipe_ends_at_once() -> None:
    """C39."""
    laid = w.pipe(ATTRS, [*rounds(2, 50), b"\0" * 8, *rounds(3, 50)])
    where = laid.data_start + len(b"".join(rounds(2, 50)))
    started = time.monotonic()
    reader = open_perf_data(PATH, laid.data)
    got, _ = read_all(reader)
    assert time.monotonic() - started < 1
    assert reader.damaged
    assert f"offset {where:#x}: record of size 0" in " ".join(reader.issues.texts())
    assert len(got) == len(plain(2, 50)[1])


def test_a_pipe_may_end_anywhere() -> None:
    laid = w.pipe(ATTRS, rounds(4, 60))
    whole = open_perf_data(PATH, laid.data)
    n = len(read_all(whole)[0])
    for cut in range(len(laid.data) - 400, len(laid.data)):
        reader = open_perf_data(PATH, laid.data[:cut])
        got, _ = read_all(reader)
        assert n - 10 <= len(got) <= n
    for cut in (8, 12, 15, 16, 20):
        with pytest.raises(TruncatedError):
            open_perf_data(PATH, laid.data[:cut])


def test_perfs_last_words_behind_a_pipe_are_no_damage() -> None:
    laid = w.pipe(ATTRS, rounds(5, 20))
    reader = open_perf_data(PATH, laid.data + b"[ perf record: Woken up 1 times to write data ]\n")
    read_all(reader)
    assert not reader.damaged


# ---------------------------------------------------------------- compressed


@pytest.mark.parametrize("kind", [w.R_COMPRESSED, w.R_COMPRESSED2])
@pytest.mark.parametrize("pipe", [False, True])
@pytest.mark.usefixtures("small_blocks")
def test_compressed_equals_plain(kind: int, pipe: bool) -> None:
    """C26: of COMPRESSED2 only data_size bytes count; a record may span two of either kind."""
    records = w.compressed(rounds(6, 1500), piece=333, kind=kind)
    head = [w.comm(TRACKING, 5, 5, b"five", 0)]
    laid = w.pipe(ATTRS, head + records) if pipe else w.write(ATTRS, head + records)
    twin = open_perf_data(PATH, w.write(ATTRS, head + rounds(6, 1500)).data)
    for target in (16, 1 << 20):
        reader = PerfDataReader(PATH, laid.data, target_rows=target)
        same(reader, (twin, *read_all(twin)))
        assert not reader.issues.counts().get("record_damaged")


def test_plain_records_between_the_compressed_ones() -> None:
    """perf writes its own records, the marks of rounds too, unpacked between the others."""
    first, second = rounds(7, 200), rounds(8, 200)
    records = [*w.compressed(first[:-1], piece=200, between=w.record(200, b"x" * 8)), first[-1]]
    records += second
    twin = open_perf_data(PATH, w.write(ATTRS, first + second).data)
    reader = open_perf_data(PATH, w.write(ATTRS, records).data)
    same(reader, (twin, *read_all(twin)))


def test_compressed_data_that_are_broken() -> None:
    records = rounds(9, 400)
    packed = w.compressed(records, piece=500)
    laid = w.write(ATTRS, packed)
    data = bytearray(laid.data)
    where = laid.data_start + sum(map(len, packed[:10]))
    data[where + 8 : where + 508] = b"\xff" * 500
    reader = open_perf_data(PATH, bytes(data))
    got, _ = read_all(reader)
    assert reader.damaged
    assert f"offset {where:#x}: compressed data" in " ".join(reader.issues.texts())
    assert 0 < len(got) < 400


def test_compressed_inside_compressed_is_not_unpacked() -> None:
    inner = w.compressed(rounds(9, 50), piece=5000)
    reader = open_perf_data(PATH, w.write(ATTRS, w.compressed(inner, piece=5000)).data)
    got, _ = read_all(reader)
    assert len(got) == 0
    assert reader.damaged


def test_a_bomb_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_stream, "BOMB_SIZE", 1 << 20)
    data = w.record(200, b"\0" * 65520) * 100
    records = [w.record(w.R_COMPRESSED, zstandard.ZstdCompressor().compress(data))]
    reader = open_perf_data(PATH, w.write(ATTRS, records).data)
    read_all(reader)
    assert reader.damaged
    assert "grow to more than" in " ".join(reader.issues.texts())


# ---------------------------------------------------------------- folders


def folder(seed: int, n: int, pack: bool = False) -> dict[str, bytes]:
    features = {1: w.tracing_data(), 12: w.event_desc(ATTRS), 24: struct.pack("<Q", 1)}
    index = w.id_index([(i, cpu) for a in (A, B, C) for cpu, i in enumerate(a.ids)])
    out = {"data": w.write(ATTRS, [index], features).data}
    for cpu, ring in enumerate(rings(seed, n)):
        out[f"data.{cpu}"] = b"".join(w.compressed(ring, piece=400) if pack else ring)
    return out


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.usefixtures("small_blocks")
def test_a_folder_equals_one_file(tmp_path: Path, pack: bool) -> None:
    files = folder(10, 1200, pack)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "kcore_dir").mkdir()
    assert is_perf_folder(tmp_path)
    twin = plain(10, 1200)
    same(open_perf_folder(tmp_path), twin)
    archive = w.tar({f"x.dir/{name}": files[name] for name in reversed(files)})
    assert is_perf_tar(archive)
    reader = open_perf_tar(PATH, archive)
    same(reader, twin)
    assert "folder" in str(reader.meta.extra["perf_data"])
    some = PerfDataReader(
        PATH, files["data"], target_rows=32, parts=[(k, files[k]) for k in files if k != "data"]
    )
    same(some, twin)


@pytest.mark.usefixtures("small_blocks")
def test_events_of_a_folder_at_one_time_stand_by_cpu() -> None:
    """Also where one ring's file is read further ahead than another's."""
    data = w.write(ATTRS, [], {1: w.tracing_data(), 24: struct.pack("<Q", 1)}).data
    parts = []
    for cpu, steps in enumerate((50, 1, 7)):
        ring = [
            w.sample(A, 1000 + i - i % steps, cpu, switch(i + 1, cpu), ident=A.ids[cpu])
            for i in range(200)
        ]
        parts.append((f"data.{cpu}", b"".join(ring)))
    got, _ = read_all(PerfDataReader(PATH, data, target_rows=8, parts=parts))
    assert len(got) == 600
    keys = list(zip(got.ts.tolist(), got.cpu.tolist(), got.subject.tolist(), strict=True))
    assert keys == sorted(keys)


def test_a_folder_without_rings_is_its_file(tmp_path: Path) -> None:
    """``perf record --kcore`` makes one."""
    (tmp_path / "data").write_bytes(w.write(ATTRS, rounds(11, 60)).data)
    same(open_perf_folder(tmp_path), plain(11, 60))


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    files = folder(12, 30)
    with pytest.raises(UnsupportedError, match="give the folder"):
        open_perf_data(PATH, files["data"])
    newer = w.write(ATTRS, [], {1: w.tracing_data(), 24: struct.pack("<Q", 2)}).data
    with pytest.raises(UnsupportedError, match="version 2"):
        open_perf_data(PATH, newer)
    assert not is_perf_folder(tmp_path)
    with pytest.raises(FormatError):
        open_perf_folder(tmp_path)
    assert not is_perf_tar(w.tar({"x/data": b"dummy", "perf.data": b"dummy"}))
    with pytest.raises(FormatError):
        open_perf_tar(PATH, b"\0" * 2048)


def test_damage_in_one_file_of_a_folder_is_told_with_its_name() -> None:
    files = folder(13, 300)
    n = len(read_all(open_perf_tar(PATH, w.tar({f"x/{k}": v for k, v in files.items()})))[0])
    files["data.1"] = files["data.1"][:-5]
    reader = open_perf_tar(PATH, w.tar({f"x/{k}": v for k, v in files.items()}))
    got, _ = read_all(reader)
    assert len(got) in (n - 1, n)
    assert reader.damaged
    assert "data.1: offset" in " ".join(reader.issues.texts())


# ---------------------------------------------------------------- byte order, versions


@pytest.mark.parametrize("form", ["file", "pipe", "compressed", "folder"])
@pytest.mark.usefixtures("small_blocks")
def test_big_endian_equals_little_endian(form: str) -> None:
    with w.big_endian():
        if form == "file":
            data = w.write(ATTRS, rounds(14, 700)).data
        elif form == "pipe":
            data = w.pipe(ATTRS, rounds(14, 700)).data
        elif form == "compressed":
            data = w.write(ATTRS, w.compressed(rounds(14, 700), piece=300)).data
        else:
            features = {1: w.tracing_data(), 24: w._pack("Q", 1)}
            parts = [(f"data.{i}", b"".join(ring)) for i, ring in enumerate(rings(14, 700))]
            index = w.id_index([(i, cpu) for a in (A, B, C) for cpu, i in enumerate(a.ids)])
            data = w.write(ATTRS, [index], features).data
    if form == "folder":
        reader = PerfDataReader(PATH, data, parts=parts)
    else:
        reader = open_perf_data(PATH, data)
    same(reader, plain(14, 700))
    assert "big endian" in str(reader.meta.extra["perf_data"])


def test_header_of_a_big_endian_file() -> None:
    with w.big_endian():
        attr = w.of(w.SWITCH, ids=(11,), flags=w.SAMPLE_ID_ALL | w.USE_CLOCKID, clockid=1)
        features = {
            1: w.tracing_data(), 3: w.string("host"), 7: w._pack("II", 2, 2),
            12: w.event_desc([attr]), 13: w.cpu_topology(["0-1"], ["0", "1"], [(0, 0), (1, 0)]),
        }  # fmt: skip
        fork = w.fork(attr, 70, 71, 9)
        laid = w.write([attr], [w.sample(attr, 7, 1, switch(1, 2)), fork], features)
    reader = open_perf_data(PATH, laid.data)
    got, names = read_all(reader)
    assert (reader.meta.hostname, reader.meta.clock, reader.meta.cpus_online) == ("host", "mono", 2)
    table = reader.topology()
    assert table is not None
    assert table.column("cpu").to_pylist() == [0, 1]
    assert (got.ts.tolist(), got.cpu.tolist()) == ([7], [1])
    assert [(n.pid, n.tgid) for n in names if n.pid == 71] == [(71, 70)]
    # very old files count their features in words of 32 bits
    words = struct.unpack_from(">4Q", laid.data, 72)
    old = struct.pack(">8I", *(x for q in words for x in (q & 0xFFFFFFFF, q >> 32)))
    again = open_perf_data(PATH, laid.data[:72] + old + laid.data[104:])
    assert again.meta.hostname == "host"


@pytest.mark.parametrize("big", [False, True])
def test_version_one_is_read(big: bool) -> None:
    attr = w.of(w.SWITCH, size=64)
    if big:
        with w.big_endian():
            data = w.write([attr], [w.sample(attr, 7, 0, switch(1, 2))]).data
    else:
        data = w.write([attr], [w.sample(attr, 7, 0, switch(1, 2))]).data
    reader = open_perf_data(PATH, (b"ELIFFREP" if big else b"PERFFILE") + data[8:])
    got, _ = read_all(reader)
    assert (got.ts.tolist(), got.subject.tolist()) == ([7], [1])
    assert reader.issues.counts() == {"old_version": 1}


# ---------------------------------------------------------------- simpleperf


def meta_info(**pairs: str) -> bytes:
    return b"".join(f"{k}\0{v}\0".encode() for k, v in pairs.items())


def test_simpleperf_formats_in_a_record_whose_size_holds_them() -> None:
    blob = w.tracing_data([w.SWITCH, w.RUNTIME])
    assert len(blob) < 65000
    tracing = w.record(w.R_TRACING_DATA, struct.pack("<I", len(blob)) + blob)
    attr = w.of(w.RUNTIME)
    features = {129: meta_info(simpleperf_version="1.2", system_wide_collection="false")}
    laid = w.write([attr], [tracing, w.sample(attr, 7, 0, runtime(3, 99))], features)
    reader = open_perf_data(PATH, laid.data)
    got, _ = read_all(reader)
    assert (got.value.tolist(), reader.counts) == ([99], {"sched_stat_runtime": 1})
    assert reader.meta.tool == "simpleperf 1.2"
    assert reader.issues.counts() == {"only_some_tasks": 1}


def long_record(kind: int, body: bytes) -> bytes:
    size = 8 + len(body)
    return struct.pack("<IHH", kind, size >> 16, size & 0xFFFF) + body


@pytest.mark.parametrize("split", [False, True])
def test_simpleperf_long_and_split_records(split: bool) -> None:
    """Records of its own kinds may have more than 64 KiB, or be cut into pieces."""
    many = [w.SWITCH, *(w.Event("x", f"event{i}", 2000 + i, ()) for i in range(400))]
    blob = w.tracing_data(many)
    assert len(blob) > 1 << 16
    whole = long_record(32777, struct.pack("<I", len(blob)) + blob)
    tracing = [whole]
    if split:
        tracing = [w.record(32772, whole[i : i + 60000]) for i in range(0, len(whole), 60000)]
        tracing.append(w.record(32773, b""))
    records = [
        *tracing, w.sample(A, 7, 0, switch(1, 2)), long_record(32770, b"y" * 70000),
        w.sample(A, 8, 0, switch(2, 1)),
    ]  # fmt: skip
    laid = w.write([A], records, {129: meta_info(simpleperf_version="1")})
    reader = open_perf_data(PATH, laid.data)
    got, _ = read_all(reader)
    assert got.ts.tolist() == [7, 8]
    assert not reader.damaged
    assert reader.extra_events("sched_switch").column("prev_pid").to_pylist() == [1, 2]


def test_simpleperf_switches_without_data() -> None:
    attr = w.of(w.SWITCH, sample_type=(w.USUAL & ~w.RAW) | w.CALLCHAIN)
    records = [
        w.sample(attr, 7, 2, b"", pid=5, tid=6, chain=[1, 2]), w.lost(attr, 4, 8, 2),
        w.sample(attr, 9, 2, b"", pid=5, tid=8),
    ]  # fmt: skip
    features = {129: meta_info(event_type_info="sched:sched_switch,2,103\ncpu-cycles,0,0")}
    reader = open_perf_data(PATH, w.write([attr], records, features).data)
    got, _ = read_all(reader)
    assert got.kind.tolist() == [EventKind.SWITCH, EventKind.LOST, EventKind.SWITCH]
    assert got.subject.tolist() == [6, -1, 8]
    assert got.other.tolist() == [NULL_PID] * 3
    assert got.state.tolist() == [NULL_STATE] * 3
    assert got.cpu.tolist() == [2, 2, 2]
    assert reader.counts == {"sched_switch": 2}
    assert reader.issues.counts() == {"switch_without_data": 2, "events_lost": 4}


# ---------------------------------------------------------------- SWITCH records, weights


CYCLES = w.Attr(
    0, w.IDENTIFIER | w.TID | w.TIME | w.CPU, (61,), "cycles", type=0,
    flags=w.SAMPLE_ID_ALL | w.CONTEXT_SWITCH,
)  # fmt: skip
OUT, PREEMPT = 1 << 13, 1 << 14


def switched(attr: w.Attr, tid: int, ts: int, cpu: int, misc: int, other: int | None) -> bytes:
    body = b"" if other is None else w._pack("II", other, other)
    trailer = w.trailer(attr, ts, cpu)
    trailer = w._pack("II", tid, tid) + trailer[8:]
    return w.record(w.R_SWITCH if other is None else w.R_SWITCH_CPU_WIDE, body + trailer, misc)


def test_switches_from_records_of_all_cpus() -> None:
    """Each switch is told twice, by the task that left and by the one that came: taken once."""
    records = [
        switched(CYCLES, 5, 10, 0, OUT, 6), switched(CYCLES, 6, 11, 0, 0, 5),
        switched(CYCLES, 6, 20, 0, OUT | PREEMPT, 0), switched(CYCLES, 0, 21, 0, 0, 6),
        switched(CYCLES, 9, 15, 3, OUT, 2), w.finished_round(),
    ]  # fmt: skip
    reader = open_perf_data(PATH, w.write([CYCLES], records).data)
    got, _ = read_all(reader)
    assert got.ts.tolist() == [10, 15, 20]
    assert got.cpu.tolist() == [0, 3, 0]
    assert got.subject.tolist() == [5, 9, 6]
    assert got.other.tolist() == [6, 2, 0]
    assert got.state.tolist() == [State.OTHER, State.OTHER, State.PREEMPTED]
    assert reader.counts == {"sched_switch": 3}
    assert reader.issues.counts()["switch_records"] == 3


def test_switches_from_records_of_one_task() -> None:
    records = [switched(CYCLES, 5, 10, 1, 0, None), switched(CYCLES, 5, 20, 1, OUT, None)]
    reader = open_perf_data(PATH, w.write([CYCLES], records).data)
    got, _ = read_all(reader)
    assert got.subject.tolist() == [NULL_PID, 5]
    assert got.other.tolist() == [5, NULL_PID]
    assert got.state.tolist() == [NULL_STATE, State.OTHER]
    assert set(reader.issues.counts()) == {"switch_records", "only_some_tasks", "no_tracepoints"}


def test_switch_records_beside_sched_switch_are_not_used() -> None:
    records = [switched(CYCLES, 5, 10, 0, OUT, 6), w.sample(A, 11, 0, switch(5, 6))]
    reader = open_perf_data(PATH, w.write([A, CYCLES], records).data)
    got, _ = read_all(reader)
    assert got.ts.tolist() == [11]
    assert reader.counts == {"sched_switch": 1}


def test_repeats_of_a_weighted_event_count_once() -> None:
    """With a period perf writes sched_stat_runtime as often as its runtime asks for."""
    attr = w.of(w.RUNTIME, ids=(9,), period=4000, flags=w.SAMPLE_ID_ALL | 1 << 10)
    one = w.sample(attr, 7, 0, runtime(3, 99))
    records = [
        one,
        one,
        one,
        w.sample(attr, 7, 0, runtime(4, 99)),
        w.sample(attr, 8, 0, runtime(4, 9)),
    ]
    reader = open_perf_data(PATH, w.write([attr], records).data)
    got, _ = read_all(reader)
    assert got.subject.tolist() == [3, 4, 4]
    assert reader.issues.counts()["samples_repeated"] == 2
    # also where perf read the ring in the middle of them
    apart = [w.finished_round(), w.sample(attr, 8, 1, runtime(5, 1)), w.finished_round()]
    later = [w.sample(attr, 9, 1, runtime(5, 1)), records[-1], w.finished_round()]
    laid = w.write([attr], [*records, *apart, *later])
    got, _ = read_all(PerfDataReader(PATH, laid.data, target_rows=1))
    assert got.subject.tolist() == [3, 4, 4, 5, 5]
    every = w.of(w.RUNTIME, ids=(9,))
    got, _ = read_all(open_perf_data(PATH, w.write([every], records).data))
    assert len(got) == 5, "where every event is recorded two equal ones are two"


def test_registers_stacks_and_branches_behind_the_data() -> None:
    more = 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x40000
    attr = w.of(w.SWITCH, ids=(5,), sample_type=w.USUAL | w.CALLCHAIN | more)
    tail = struct.pack("<QQQQ", 1, 2, 3, 4) + struct.pack("<QQQ", 1, 7, 8) + bytes(96)
    rec = w.sample(attr, 7, 0, switch(1, 2), chain=[9] * 40, tail=tail)
    got, _ = read_all(open_perf_data(PATH, w.write([B, attr], [rec]).data))
    assert (got.subject.tolist(), got.other.tolist()) == ([1], [2])


# ---------------------------------------------------------------- damage


def _file() -> bytes:
    return w.write(ATTRS, rounds(20, 60)).data


def _pipe() -> bytes:
    return w.pipe(ATTRS, [*rounds(20, 40), w.event_update(11, b"name")]).data


def _packed() -> bytes:
    return w.write(ATTRS, w.compressed(rounds(20, 80), piece=400)).data


def _packed2() -> bytes:
    return w.pipe(ATTRS, w.compressed(rounds(20, 80), piece=400, kind=w.R_COMPRESSED2)).data


def _big() -> bytes:
    with w.big_endian():
        return w.write(ATTRS, rounds(20, 60)).data


def _tar() -> bytes:
    return w.tar({f"x/{k}": v for k, v in folder(20, 60).items()})


def _simpleperf() -> bytes:
    blob = w.tracing_data([w.SWITCH, w.WAKING, w.RUNTIME])
    whole = long_record(32777, struct.pack("<I", len(blob)) + blob)
    split = [w.record(32772, whole[i : i + 900]) for i in range(0, len(whole), 900)]
    records = [*split, w.record(32773, b""), *rounds(20, 50)]
    return w.write(ATTRS, records, {129: meta_info(simpleperf_version="1")}).data


def _switches() -> bytes:
    records = [switched(CYCLES, i, 10 + i, i % 3, OUT, i + 1) for i in range(30)]
    return w.write([CYCLES], records).data


MAKERS: Sequence[Callable[[], bytes]] = (
    _file, _pipe, _packed, _packed2, _big, _tar, _simpleperf, _switches,
)  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        how = rng.randrange(5)
        at = rng.randrange(len(out)) if out else 0
        if how == 0 and out:
            out[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            out[at : at + 8] = struct.pack("<Q", rng.choice((0, 1, 2**31, 2**63, 2**64 - 1)))
        elif how == 2:
            del out[at : at + rng.randrange(1, 40)]
        elif how == 3:
            out[at:at] = rng.randbytes(rng.randrange(1, 40))
        elif rng.random() < 0.2:
            del out[at:]
    return bytes(out)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.usefixtures("small_blocks")
def test_mutations(make: Callable[[], bytes]) -> None:
    """Only errors that a user may see; what can be read is in order and whole."""
    data = make()
    rng = random.Random(make.__name__)
    opened = 0
    reader: Reader
    for _ in range(150):
        changed = mutated(data, rng)
        try:
            if make is _tar:
                reader = open_perf_tar(PATH, changed)
            else:
                reader = open_perf_data(PATH, changed)
            got, _ = read_all(reader)
            reader.topology()
            if "sched_switch" in reader.counts and make is not _switches:
                reader.extra_events("sched_switch")
        except TraceanaError as error:
            assert error.exit_code in (2, 3)
            assert "\n" not in str(error)
            continue
        opened += 1
        assert bool((np.diff(got.ts) >= 0).all()) or reader.issues.counts()["time_backwards"]
        assert len(got) < 500
    assert opened > 10


def _weighted() -> bytes:
    attr = w.of(w.RUNTIME, ids=(9,), period=4000)
    samples = [w.sample(attr, 7 + i // 3, 0, runtime(3, i // 4)) for i in range(90)]
    return w.write([attr], samples).data


@pytest.mark.parametrize("make", [_packed2, _big, _tar, _weighted, _switches])
def test_kernels_run_uncompiled(make: Callable[[], bytes], root: Path) -> None:
    """TRACEANA_JIT=0: the same functions as plain Python."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from traceana.parsers import registry\n"
        "reader = registry.open_reader(Path('x'), stdin=sys.stdin.buffer)\n"
        "chunks = list(reader.chunks())\n"
        "print([c.events.ts.tolist() + c.events.subject.tolist() for c in chunks])\n"
        "print(reader.counts, reader.lost, reader.issues.counts())\n"
    )
    out = []
    for jit in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            input=make(), capture_output=True, check=False, cwd=root,
            env={**os.environ, "TRACEANA_JIT": jit, "PYTHONPATH": str(root)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        out.append(done.stdout)
    assert out[0] == out[1]
    assert len(out[0]) > 300


def test_where_a_short_payload_lies_in_the_file() -> None:
    short = w.sample(A, 50, 0, b"abcd")
    for records in ([*rounds(20, 30), short], [*w.compressed(rounds(20, 30), piece=300), short]):
        laid = w.write(ATTRS, records)
        reader = open_perf_data(PATH, laid.data)
        read_all(reader)
        where = laid.data_start + len(b"".join(records)) - 4
        assert f"offset {where:#x}: event shorter" in " ".join(reader.issues.texts())


# ---------------------------------------------------------------- real captures


def _reader(path: Path) -> Reader:
    buf = open_input(path).buf
    return open_perf_tar(path, buf) if is_perf_tar(buf) else open_perf_data(path, buf)


@pytest.fixture
def captures(samples: Path) -> Path:
    folder = samples.parent.parent / "shared" / "captures"
    if not folder.exists():
        pytest.skip("no ../shared beside the repository: its captures cannot be read")
    return folder


@pytest.mark.parametrize(
    "name", ["pp3-pipe.perf.data.xz", "pp3-threads.perf.dir.tar.xz", "pp6-zstd.perf.data"]
)
def test_counts_of_real_captures(name: str, captures: Path) -> None:
    facts = json.loads((captures / "perf.json").read_text())[name]
    reader = _reader(captures / "perf" / name)
    got, _ = read_all(reader)
    counts = {key.rpartition(":")[2]: n for key, n in facts["events"].items()}
    assert reader.counts == counts
    assert len(got) == facts["total"]
    assert (int(got.ts[0]), int(got.ts[-1])) == (facts["first_ns"], facts["last_ns"])
    assert bool((np.diff(got.ts) >= 0).all())
    assert reader.issues.counts() == {}
    assert not reader.damaged
    assert reader.meta.kernel == facts["osrelease"]
    table: pa.Table | None = reader.topology()
    assert table is not None
    assert table.num_rows == 8
    assert reader.extra_events("sched_switch").num_rows == counts["sched_switch"]


@pytest.mark.parametrize("name", ["pp3-pipe.perf.data.xz", "pp6-zstd.perf.data"])
def test_every_field_equals_perf_script(name: str, captures: Path, tmp_path: Path) -> None:
    path = tmp_path / "perf.data"
    path.write_bytes(bytes(open_input(captures / "perf" / name).buf))
    check_against_perf_script(path, read_all(open_perf_data(path, path.read_bytes()))[0])


def test_every_field_of_a_folder_equals_perf_script(captures: Path, tmp_path: Path) -> None:
    with tarfile.open(captures / "perf" / "pp3-threads.perf.dir.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    (path,) = tmp_path.iterdir()
    check_against_perf_script(path, read_all(open_perf_folder(path))[0])


#: File of public/: counts, what must be told, and whether it is damaged (its INDEX.md).
PUBLIC: dict[str, tuple[dict[str, int], set[str], bool]] = {
    "perf-zstd-sched_switch.data": (
        {"cycles": 233, "sched_switch": 9}, {"only_some_tasks", "switch_records"}, False,
    ),
    "simpleperf-sched_stat_runtime.data.xz": ({"sched_stat_runtime": 2430}, set(), False),
    "simpleperf-offcpu-v1.data.xz": (
        {"cpu-cycles": 2270, "sched_switch": 99},
        {"switch_without_data", "events_lost", "only_some_tasks"}, False,
    ),
    "perf-attr80.data.xz": ({"cycles": 441}, {"no_tracepoints"}, False),
    "perf-switch-records.data": (
        {"cycles": 2, "sched_switch": 2}, {"no_tracepoints", "switch_records", "only_some_tasks"},
        False,
    ),
    "perf-lost-samples.data": (
        {"cycles:pp": 97, "instructions:pp": 80, "branch-instructions:pp": 14},
        {"no_tracepoints", "events_lost", "losses_unplaced", "only_some_tasks"}, False,
    ),
    "perf-pipe-6.12.data": ({"cycles:u": 9}, {"no_tracepoints", "only_some_tasks"}, False),
    "perf-attr136.data": ({"cycles:Pu": 7}, {"no_tracepoints", "only_some_tasks"}, False),
    "perf-pipe-compressed2.data": (
        {"cycles:P": 7}, {"no_tracepoints", "only_some_tasks"}, False,
    ),
    "perf-v1-magic.data": ({}, {"no_tracepoints", "old_version", "only_some_tasks"}, False),
    "perf-pipe-zero-size.data": ({}, {"no_tracepoints", "record_damaged"}, True),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_public_captures(name: str, captures: Path) -> None:
    counts, told, damaged = PUBLIC[name]
    started = time.monotonic()
    reader = _reader(captures / "public" / name)
    read_all(reader)
    assert time.monotonic() - started < 60
    assert reader.counts == counts
    assert set(reader.issues.counts()) - {"event_recorded_twice"} == told
    assert reader.damaged == damaged


def test_losses_and_the_place_of_damage_in_public_captures(captures: Path) -> None:
    reader = _reader(captures / "public" / "simpleperf-offcpu-v1.data.xz")
    read_all(reader)
    assert (reader.lost.events, reader.lost.marks) == (191, 11)
    reader = _reader(captures / "public" / "perf-pipe-zero-size.data")
    read_all(reader)
    started = time.monotonic()
    read_all(reader)
    assert time.monotonic() - started < 1
    assert f"offset {49104:#x}: record of size 0" in " ".join(reader.issues.texts())
    with pytest.raises(TraceanaError):
        _reader(captures / "public" / "perf-broken.data.gz")


# ---------------------------------------------------------------- recorded here, where perf may


def recorded(out: Path, *options: str) -> None:
    """A short recording of this machine by the perf that is installed."""
    perf = shutil.which("perf")
    if perf is None:
        pytest.skip("perf is not installed: nothing can be recorded")
    command = [perf, "record", "-a", *options, "-o", str(out), "sleep", "0.05"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode or not out.exists():
        pytest.skip(f"perf cannot record this here: {done.stderr.strip()[:200]}")


def shown(path: Path, fields: str, *options: str) -> list[str]:
    """The lines that perf script prints of it."""
    command = ["perf", "script", "--ns", "-F", fields, *options, "-i", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


_SWITCHED = re.compile(
    r"/(-?\d+)\s+\[(\d+)\]\s+(\d+)\.(\d{9}): PERF_RECORD_SWITCH_CPU_WIDE OUT (preempt)?"
    r"\s+next pid/tid:\s*-?\d+/(-?\d+)"
)


@pytest.mark.parametrize("threads", [False, True])
def test_switch_records_of_this_machine(threads: bool, tmp_path: Path) -> None:
    out = tmp_path / "rec"
    recorded(out, "--switch-events", "-e", "cpu-clock", *(["--threads", "-z"] if threads else []))
    reader = open_reader(out)
    got, _ = read_all(reader)
    wanted = []
    for line in shown(out, "comm,pid,tid,cpu,time", "--show-switch-events"):
        match = _SWITCHED.search(line)
        if match:
            tid, cpu, seconds, rest, preempted, other = match.groups()
            state = State.PREEMPTED if preempted else State.OTHER
            ts = int(seconds) * 10**9 + int(rest)
            wanted.append((ts, int(cpu), int(tid), int(other), int(state)))
    columns = (got.ts, got.cpu, got.subject, got.other, got.state)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert len(rows) > 5
    assert sorted(rows) == sorted(wanted)
    assert reader.counts["sched_switch"] == len(rows)


def test_weighted_samples_of_this_machine(tmp_path: Path) -> None:
    out = tmp_path / "rec"
    recorded(out, "-F", "4000", "-e", "sched:sched_stat_runtime,sched:sched_switch")
    reader = open_reader(out)
    got, _ = read_all(reader)
    lines = shown(out, "cpu,time,event,trace")
    assert sum(reader.counts.values()) == len(lines)
    assert len(got) == len(set(lines))
    assert reader.issues.counts().get("samples_repeated", 0) == len(lines) - len(set(lines))


def test_a_fork_of_an_impossible_process_names_nobody() -> None:
    """Found by make fuzz: the number of its thread group does not fit the column."""
    records = [w.fork(TRACKING, 0x80000079, 7, 5), w.fork(TRACKING, 8, 8, 6)]
    _, names = read_all(open_perf_data(PATH, w.write(ATTRS, [*records, *rounds(1, 5)]).data))
    assert {n.tgid for n in names if n.evidence == Evidence.FORK} == {8}
