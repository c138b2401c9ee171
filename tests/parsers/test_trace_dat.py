"""trace.dat: files made to order, cut and damaged ones, and real ones against their counts."""

from __future__ import annotations

import itertools
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from traceana.columns import NULL_I64, EventColumns, NameChange
from traceana.errors import (
    FormatError,
    InputError,
    TruncatedError,
    UnsupportedError,
    UsageError,
)
from traceana.parsers import ring, trace_dat_data, trace_dat_stream
from traceana.parsers.trace_dat import TraceDatReader, open_trace_dat
from traceana.schema import EventKind, Evidence, State

sys.path.insert(0, str(Path(__file__).parent))
import trace_dat_writer as w

PATH = Path("trace.dat")


def read(
    data: bytes, buffer: str | None = None
) -> tuple[TraceDatReader, EventColumns, list[NameChange]]:
    reader = open_trace_dat(PATH, data, buffer=buffer)
    assert isinstance(reader, TraceDatReader)
    chunks = list(reader.chunks())
    names = [name for chunk in chunks for name in chunk.names]
    return reader, EventColumns.concat([chunk.events for chunk in chunks]), names


def rows(events: EventColumns, *columns: str) -> list[tuple[Any, ...]]:
    return list(zip(*(getattr(events, c).tolist() for c in columns), strict=True))


def small_kernel(**options: Any) -> w.Kernel:
    """A kernel of few events, so that its files are short."""
    kernel = w.Kernel(**options)
    for name in list(kernel.layouts):
        if name not in ("sched_switch", "sched_waking"):
            del kernel.layouts[name]
    return kernel


def switch(kernel: w.Kernel, prev: int, nxt: int, state: int = 1) -> bytes:
    return kernel.pack(
        "sched_switch", prev, prev_comm=b"t%d" % prev, prev_pid=prev, prev_prio=120,
        prev_state=state, next_comm=b"t%d" % nxt, next_pid=nxt, next_prio=120,
    )  # fmt: skip


def waking(kernel: w.Kernel, by: int, pid: int, cpu: int) -> bytes:
    return kernel.pack("sched_waking", by, comm=b"t%d" % pid, pid=pid, prio=120, target_cpu=cpu)


def two_cpus(kernel: w.Kernel, page_size: int = 4096) -> dict[int, bytes]:
    """Two CPUs, two pages each, ten events."""
    out = {}
    for cpu in (0, 1):
        data = b""
        for turn in range(2):
            page = w.Page(kernel, 1000 * turn + 10 * cpu + 100, page_size)
            page.event(waking(kernel, 5, 7 + cpu, cpu), 0)
            page.event(switch(kernel, 5, 7 + cpu), 30)
            if not turn:
                page.event(switch(kernel, 7 + cpu, 5, 2), 50)
            data += page.bytes()
        out[cpu] = data
    return out


TWO_CPUS = [
    (100, 0, 1, 7), (110, 1, 1, 8), (130, 0, 0, 5), (140, 1, 0, 5), (180, 0, 0, 7), (190, 1, 0, 8),
    (1100, 0, 1, 7), (1110, 1, 1, 8), (1130, 0, 0, 5), (1140, 1, 0, 5),
]  # fmt: skip

SHAPES = [(big, long) for big in (False, True) for long in (4, 8)]
WAYS = ["v6", "v7", "v7 zlib", "v7 zstd"]
PACKED = [*WAYS, "v7 lzma"]


def make(way: str, cap: w.Capture) -> bytes:
    if way == "v6":
        return w.v6(cap)
    return w.v7(cap, compression=way[3:] or "none", chunk_pages=1)


@pytest.mark.parametrize(("big", "long"), SHAPES)
@pytest.mark.parametrize("way", PACKED)
def test_all_versions_orders_and_sizes_give_the_same_events(way: str, big: bool, long: int) -> None:
    kernel = w.Kernel(big=big, long=long)
    cap = w.Capture(kernel, two_cpus(kernel), user_long=4, cmdlines=b"5 a b\n9 <...>\n0 x\nzz\n")
    reader, events, names = read(make(way, cap))
    assert rows(events, "ts", "cpu", "kind", "subject") == TWO_CPUS
    assert events.state[events.kind == 0].tolist() == [1, 1, 2, 2, 1, 1]
    assert reader.counts == {"sched_waking": 4, "sched_switch": 6}
    form = {"v6": "trace.dat v6", "v7": "trace.dat v7"}.get(way, f"trace.dat v7, {way[3:]}")
    assert reader.meta.form == form
    assert not reader.damaged
    assert names[0] == NameChange(5, None, b"a b", None, Evidence.CMDLINES)
    assert [(n.pid, n.comm, n.ts) for n in names[1:]] == [
        (7, b"t7", 100), (8, b"t8", 110), (5, b"t5", 130),
    ]  # fmt: skip


def test_chunks_may_be_asked_for_again() -> None:
    kernel = w.Kernel()
    reader, first, _ = read(w.v7(w.Capture(kernel, two_cpus(kernel)), compression="zstd"))
    again = EventColumns.concat([c.events for c in reader.chunks()])
    assert rows(first, "ts", "cpu") == rows(again, "ts", "cpu")
    assert reader.counts == {"sched_waking": 4, "sched_switch": 6}


def test_progress_ends_at_its_end() -> None:
    kernel = w.Kernel()
    for way in WAYS:
        reader, _, _ = read(make(way, w.Capture(kernel, two_cpus(kernel))))
        assert reader.progress() == (4 * 4096, 4 * 4096)


@pytest.mark.parametrize("way", WAYS)
def test_lost_events_become_rows(way: str) -> None:
    kernel = w.Kernel()
    pages = [w.Page(kernel, 100 * i).event(switch(kernel, 1, 2), 1) for i in range(4)]
    pages[1].missed, pages[3].missed = 77, -1
    other = w.Page(kernel, 150)
    other.missed = 5
    other.event((999).to_bytes(2, "little") + bytes(10), 1).event(switch(kernel, 3, 4), 2)
    cpus = {2: b"".join(p.bytes() for p in pages), 3: other.bytes()}
    reader, events, _ = read(make(way, w.Capture(kernel, cpus)))
    assert rows(events, "ts", "cpu", "kind", "value") == [
        (1, 2, 0, NULL_I64),
        (101, 2, EventKind.LOST, 77),
        (101, 2, 0, NULL_I64),
        # what was lost before a CPU's first event is a late begin, told at its first event,
        # be that of a kind that is not decoded
        (151, 3, EventKind.BEGIN, NULL_I64),
        (153, 3, 0, NULL_I64),
        (201, 2, 0, NULL_I64),
        (301, 2, EventKind.LOST, NULL_I64),
        (301, 2, 0, NULL_I64),
    ]
    assert reader.lost.marks == 2
    assert reader.lost.events is None
    assert reader.lost.per_cpu == {2: None}
    assert reader.issues.counts() == {"events_lost": 78, "ring_wrapped": 1, "unknown_event": 1}
    assert reader.counts == {"sched_switch": 5, "unknown_999": 1}
    assert not reader.damaged


@pytest.mark.parametrize("way", WAYS)
def test_a_loss_before_the_first_event_is_a_hole_when_no_ring_wrapped(way: str) -> None:
    kernel = w.Kernel()
    cpus = {}
    for cpu in range(3):
        page = w.Page(kernel, 100 + cpu).event(switch(kernel, 1, 2), 1)
        page.missed = 9
        cpus[cpu] = page.bytes()
    cap = w.Capture(kernel, cpus)
    cap.options = [w.stat(0, read=1), w.stat(1, read=1, overrun=20)]  # none of CPU 2
    reader, events, _ = read(make(way, cap))
    assert rows(events, "ts", "cpu", "kind", "value") == [
        (101, 0, EventKind.LOST, 9),
        (101, 0, 0, NULL_I64),
        (102, 1, EventKind.BEGIN, NULL_I64),
        (102, 1, 0, NULL_I64),
        (103, 2, EventKind.BEGIN, NULL_I64),
        (103, 2, 0, NULL_I64),
    ]
    assert reader.lost.per_cpu == {0: 9}
    assert reader.issues.counts() == {"events_lost": 9, "ring_wrapped": 2}


def test_losses_over_pages_without_events_add_up() -> None:
    kernel = w.Kernel()
    pages = [w.Page(kernel, 100 * i) for i in range(4)]
    pages[0].event(switch(kernel, 1, 2), 0)
    pages[1].missed, pages[2].missed = 5, 6
    pages[3].event(switch(kernel, 2, 1), 0)
    reader, events, _ = read(w.v6(w.Capture(kernel, {0: b"".join(p.bytes() for p in pages)})))
    assert rows(events, "ts", "kind", "value")[1] == (300, EventKind.LOST, 11)
    assert reader.lost.events == 11


def test_statistics_of_the_kernel_say_what_the_pages_do_not() -> None:
    kernel = w.Kernel()
    cap = w.Capture(kernel, two_cpus(kernel), cpu_count=4)
    cap.options = [
        w.stat(0, read=5),
        w.stat(1, entries=2, overrun=900, read=3),
        w.stat(2, read=38),
        w.stat(3, dropped=12),
    ]
    reader, events, _ = read(w.v7(cap))
    assert reader.meta.cpus_present == 4
    assert rows(events, "ts", "cpu", "kind")[1:3] == [(110, 1, EventKind.BEGIN), (110, 1, 1)]
    assert reader.issues.counts() == {
        "ring_wrapped": 1, "events_missing": 38, "events_dropped": 12,
    }  # fmt: skip
    assert "cpu 2: 38 events recorded, 0 in the file" in reader.issues.texts()
    assert reader.lost.per_cpu == {3: 12}


@pytest.mark.parametrize("way", WAYS)
def test_an_instance_serves_when_the_top_buffer_has_no_scheduler_event(way: str) -> None:
    kernel = w.Kernel()
    idle = w.Page(kernel, 50).event(kernel.pack("cpu_idle", state=1), 0).bytes()
    cap = w.Capture(kernel, {0: idle}, cpu_count=2, instances={"inst1": two_cpus(kernel)})
    cap.options = [w.stat(0, read=1), (2, b"\nBuffer: inst1\n\n\0"), w.stat(0, read=9)]
    reader, events, _ = read(make(way, cap))
    assert rows(events, "ts", "cpu", "kind", "subject") == TWO_CPUS
    assert set(events.buffer.tolist()) == {1}
    assert reader.counts == {"cpu_idle": 1, "sched_waking": 4, "sched_switch": 6}
    assert reader.issues.counts() == {"buffer_chosen": 1, "events_missing": 4}


def test_the_top_buffer_is_taken_when_it_has_scheduler_events() -> None:
    kernel = w.Kernel()
    one = w.Page(kernel, 50).event(switch(kernel, 1, 2), 0).bytes()
    cap = w.Capture(kernel, two_cpus(kernel), instances={"other": {0: one}})
    reader, events, _ = read(w.v7(cap))
    assert rows(events, "ts", "cpu", "kind", "subject") == TWO_CPUS
    assert reader.counts["sched_switch"] == 7
    assert "buffer_chosen" in reader.issues.counts()


def test_an_empty_top_buffer() -> None:
    kernel = w.Kernel()
    _, events, _ = read(w.v7(w.Capture(kernel, {}, instances={"a": two_cpus(kernel)})))
    assert len(events) == 10


@pytest.mark.parametrize("way", WAYS)
def test_a_buffer_is_chosen_by_its_name(way: str) -> None:
    kernel = w.Kernel()
    one = w.Page(kernel, 50).event(switch(kernel, 1, 2), 0).bytes()
    cap = w.Capture(kernel, two_cpus(kernel), instances={"a": {0: one}, "b": {}})
    data = make(way, cap)
    for name in ("top", ""):
        assert rows(read(data, name)[1], "ts", "cpu", "kind", "subject") == TWO_CPUS
    reader, events, _ = read(data, "a")
    assert rows(events, "ts", "subject", "buffer") == [(50, 1, 1)]
    assert reader.counts == {"sched_switch": 7, "sched_waking": 4}
    assert reader.extra_events("sched_switch").num_rows == 1
    assert len(read(data, "b")[1]) == 0
    with pytest.raises(UsageError, match=r"no buffer 'c'; there are: top, a, b; all$"):
        read(data, "c")


def test_buffers_merged_tell_each_event_once() -> None:
    kernel = w.Kernel()
    rng = np.random.default_rng(3)
    # Two buffers saw the same ping-pong, the second half a µs later each time; two steps of it lie
    # closer together than what may be twins.
    top, other = w.Page(kernel, 1000), w.Page(kernel, 1400)
    stamps = []
    now = 1000
    for i in range(40):
        delta = int(rng.integers(900, 2500))
        now += delta
        stamps.append(now)
        for page in (top, other):
            page.event(switch(kernel, 1 + i % 2, 2 - i % 2), delta)
    other.event(switch(kernel, 7, 8), 900_000)
    idle = w.Page(kernel, 1500).event(kernel.pack("cpu_idle", state=1, cpu_id=1), 0).bytes()
    cap = w.Capture(
        kernel, {0: top.bytes()}, instances={"a": {0: other.bytes(), 1: idle}, "none": {}}
    )
    reader, events, names = read(w.v7(cap, compression="zstd"), "all")
    assert rows(events.take(events.buffer == 0), "ts") == [(t,) for t in stamps]
    assert rows(events.take(events.buffer == 1), "ts", "cpu", "kind") == [
        (1500, 1, EventKind.CPU_IDLE), (stamps[-1] + 900_400, 0, EventKind.SWITCH),
    ]  # fmt: skip
    assert (np.diff(events.ts) >= 0).all()
    assert reader.issues.counts() == {"duplicate_events": 40}
    assert reader.counts == {"sched_switch": 81, "cpu_idle": 1}
    assert [n.pid for n in names] == [1, 2, 7, 8]
    assert reader.progress()[0] == reader.progress()[1]


def test_merging_goes_on_over_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = small_kernel()
    cpus: dict[str, dict[int, bytes]] = {"": {}, "a": {}}
    for shift, name in enumerate(cpus):
        for cpu in (0, 1):
            data = b""
            for turn in range(30):
                page = w.Page(kernel, 100_000 * turn + 10_000 * cpu + 300 * shift, 1024)
                for _ in range(6):
                    page.event(switch(kernel, 3 + cpu, 5 + turn), 10_001)
                data += page.bytes()
            cpus[name][cpu] = data
    cap = w.Capture(kernel, cpus[""], page_size=1024, instances={"a": cpus["a"]})
    data = w.v7(cap)
    _, plain, _ = read(data, "top")
    monkeypatch.setattr(trace_dat_stream, "CHUNK_ROWS", 16)
    monkeypatch.setattr(ring, "ROUND_BYTES", 2048)
    reader, events, _ = read(data, "all")
    assert rows(events, "ts", "cpu", "subject", "other") == (
        rows(plain, "ts", "cpu", "subject", "other")
    )
    assert reader.issues.counts() == {"duplicate_events": 360}


def test_buffers_of_different_clocks_are_not_merged() -> None:
    kernel = w.Kernel()
    cap = w.Capture(kernel, {}, instances={"a": two_cpus(kernel)}, clocks={"a": "x86-tsc"})
    data = w.v7(cap)
    with pytest.raises(UsageError, match="different clocks"):
        read(data, "all")
    reader = open_trace_dat(PATH, data)
    assert (reader.meta.clock, reader.meta.clock_unit) == ("x86-tsc", "cycles")
    assert sum(len(c.events) for c in reader.chunks()) == 10
    assert open_trace_dat(PATH, data, buffer="top").meta.clock == "local"


def test_time_extends_and_absolute_stamps() -> None:
    kernel = w.Kernel()
    page = w.Page(kernel, 5 << 59)
    page.event(switch(kernel, 1, 2), 3)
    page.extend(1 << 30).event(switch(kernel, 2, 1), 4)
    page.discard(16, 9).event(switch(kernel, 1, 2), 1)
    page.absolute(0x123456789).event(switch(kernel, 2, 1), 6)
    start = 5 << 59
    _, events, _ = read(w.v6(w.Capture(kernel, {0: page.bytes()})))
    assert events.ts.tolist() == [
        start + 3, start + 7 + (1 << 30), start + 17 + (1 << 30), start + 0x123456789 + 6,
    ]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_a_page_of_64_kib(way: str) -> None:
    kernel = w.Kernel()
    page = w.Page(kernel, 7, 65536)
    while len(page.data) < 36300:
        page.event(waking(kernel, 1, 2, 0), 1)
    count = page.data.count(b"t2\0")
    _, events, _ = read(make(way, w.Capture(kernel, {0: page.bytes()}, page_size=65536)))
    assert len(events) == count > 800


def test_a_last_page_that_is_short_but_whole() -> None:
    kernel = w.Kernel()
    cpus = two_cpus(kernel)
    cpus[1] = cpus[1][: 4096 + 16 + 116]
    reader, events, _ = read(w.v6(w.Capture(kernel, cpus)))
    assert rows(events, "ts", "cpu", "kind", "subject") == TWO_CPUS
    assert not reader.damaged


def test_cpus_without_data_and_with_gaps() -> None:
    kernel = w.Kernel()
    data = two_cpus(kernel)
    for way in WAYS:
        cap = w.Capture(kernel, {3: data[0], 9: data[1], 5: b""}, cpu_count=12)
        reader, events, _ = read(make(way, cap))
        assert sorted(set(events.cpu.tolist())) == [3, 9]
        assert reader.meta.cpus_present == 12
        assert not reader.damaged


@pytest.mark.parametrize("tick", [1, 4_000_000])
@pytest.mark.parametrize("compression", ["zlib", "zstd"])
def test_unpacking_in_little_room_changes_nothing(
    compression: str, tick: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks come and go while the walk goes on; with a clock of jiffies many times are equal."""
    monkeypatch.setattr(trace_dat_data, "ARENA", 1)
    kernel = w.Kernel()
    rng = np.random.default_rng(tick)
    cpus = {}
    for cpu in range(5):
        data, now = b"", int(rng.integers(0, 50))
        for _ in range(int(rng.integers(1, 90))):
            page = w.Page(kernel, now // 100 * tick, 256)
            while page.room >= 60:
                step = int(rng.integers(0, 40))
                delta = ((now + step) // 100 - now // 100) * tick
                now += step
                page.event(waking(kernel, 1, int(rng.integers(1, 9)), cpu), delta)
            data += page.bytes()
            now += int(rng.integers(0, 900)) * int(rng.integers(0, 2))
        cpus[cpu] = data
    cap = w.Capture(kernel, cpus, page_size=256)
    _, plain, _ = read(w.v7(cap))
    for chunk_pages in (1, 3, 50):
        reader, packed, _ = read(w.v7(cap, compression=compression, chunk_pages=chunk_pages))
        assert not reader.damaged
        assert packed.ts.tolist() == plain.ts.tolist()
        for cpu in cpus:
            one = [rows(e.take(e.cpu == cpu), "ts", "subject") for e in (plain, packed)]
            assert one[0] == one[1]
    if tick == 1:
        assert len(plain) > 500


def test_unpacking_without_threads_and_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = w.Kernel()
    pages = [w.Page(kernel, 1000 * i).event(switch(kernel, i, i + 1), 5) for i in range(1, 90)]
    data = w.v7(
        w.Capture(kernel, {0: b"".join(p.bytes() for p in pages)}), compression="zstd",
        chunk_pages=1,
    )  # fmt: skip
    monkeypatch.setattr(trace_dat_data, "ARENA", 4 * 4096)
    started = []
    submit = trace_dat_data._workers().submit

    class Pool:
        def submit(self, *args: Any) -> Any:
            started.append(args)
            if len(started) > 2:
                raise RuntimeError("can't start new thread")
            return submit(*args)

    _, plain, _ = read(data)
    assert len(plain) == 89
    monkeypatch.setattr(trace_dat_data, "_workers", Pool)
    assert rows(read(data)[1], "ts", "subject") == rows(plain, "ts", "subject")
    assert len(started) == 3
    monkeypatch.undo()
    monkeypatch.setattr(trace_dat_data, "ARENA", 4 * 4096)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if len(read(data)[1]) == 89 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_text_of_a_latency_tracer(tmp_path: Path) -> None:
    kernel = w.Kernel()
    text = (
        b"# tracer: wakeup\n#\n"
        b"  <idle>-0     [001] d..2.   100.000010: sched_waking: comm=w pid=30 prio=120 "
        b"target_cpu=000\n"
    )
    data = w.v6(w.Capture(kernel, {}), tag=b"latency  \0") + text
    reader = open_trace_dat(PATH, data)
    assert sum(len(c.events) for c in reader.chunks()) == 1
    assert reader.meta.form == "trace.dat v6, text of a latency tracer"


@pytest.mark.parametrize("way", ["v7", "v7 zlib", "v7 zstd"])
def test_the_text_of_a_latency_tracer_in_version_7(way: str) -> None:
    kernel = w.Kernel()
    text = b"# tracer: wakeup\n#\n" + b"".join(
        b"  <idle>-0     [001] d..2.   100.0000%02d: sched_waking: comm=w pid=30 prio=120 "
        b"target_cpu=000\n" % i
        for i in range(20)
    )
    cap = w.Capture(kernel, {}, texts={"": text, "a": text[:-900]}, clock="mono")
    data = make(way, cap)
    for buffer in (None, "top"):
        reader = open_trace_dat(PATH, data, buffer=buffer)
        assert sum(len(c.events) for c in reader.chunks()) == 20
        assert reader.meta.form == "trace.dat v7, text of a latency tracer"
        assert (reader.meta.clock, reader.damaged) == ("mono", False)
    reader = open_trace_dat(PATH, data, buffer="a")
    assert sum(len(c.events) for c in reader.chunks()) < 20
    with pytest.raises(UsageError, match=r"no buffer 'b'; there are: top, a$"):
        open_trace_dat(PATH, data, buffer="b")
    rng = np.random.default_rng(5)
    for _ in range(150):
        bad = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            bad[int(rng.integers(12, len(bad)))] = int(rng.integers(256))
        try:
            for _ in open_trace_dat(PATH, bytes(bad)).chunks():
                pass
        except InputError as error:
            assert "\n" not in str(error)


def time_shift(
    kernel: w.Kernel,
    samples: list[list[tuple[int, int, int, int]]],
    flags: int = 0,
    *,
    fractions: bool = True,
) -> tuple[int, bytes]:
    """Option 12; of each CPU rows of time, offset, scaling, fraction."""

    def n(value: int, size: int) -> bytes:
        return (value % (1 << 8 * size)).to_bytes(size, kernel.order)  # type: ignore[arg-type]

    data = n(0xABC, 8) + n(flags, 4) + n(len(samples), 4)
    for rows in samples:
        data += n(len(rows), 4) + b"".join(n(r[i], 8) for i in range(3) for r in rows)
    if fractions:
        data += b"".join(n(r[3], 8) for rows in samples for r in rows)
    return 12, data


@pytest.mark.parametrize("big", [False, True])
def test_a_guest_and_its_host_are_told(big: bool) -> None:
    kernel = w.Kernel(big=big)

    def n(value: int, size: int) -> bytes:
        return value.to_bytes(size, kernel.order)  # type: ignore[arg-type]

    shift = time_shift(kernel, [[(5, 1000, 1, 0)]] * 2, fractions=False)
    guest = b"vm1\0" + n(0x77, 8) + n(2, 4) + n(0, 4) + n(500, 4) + n(1, 4) + n(501, 4)
    cap = w.Capture(kernel, two_cpus(kernel), options=[shift, (13, guest)])
    reader, events, names = read(w.v7(cap))
    assert events.ts.tolist() == [r[0] + 1000 for r in TWO_CPUS]
    assert names[0].ts == 100 + 1000
    assert reader.meta.extra["host_trace_id"] == "0xabc"
    assert reader.meta.extra["guests"] == [
        {"name": "vm1", "trace_id": "0x77", "pid_of_vcpu": {0: 500, 1: 501}}
    ]
    assert reader.issues.counts() == {"time_shifted": 1}
    cut = shift[1][:-4]
    cap.options = [(12, cut), (13, guest[:-4]), (12, b""), (13, b"vm"), (13, guest[:8])]
    reader, events, _ = read(w.v7(cap))
    assert events.ts.tolist() == [r[0] for r in TWO_CPUS]
    assert reader.issues.counts() == {"bad_option": 5}


def host_time(ts: int, rows: list[tuple[int, int, int, int]], *, interpolate: bool) -> int:
    """trace-cmd's timestamp_host_sync(), in plain words."""
    if not rows:
        return ts
    first = second = rows[0]
    for a, b in itertools.pairwise(rows):
        if a is rows[0] or ts >= a[0]:
            first, second = a, b
    time, offset, scaling, fraction = first
    if interpolate and len(rows) > 1:
        grown, delta = (ts - time) * (second[1] - offset), second[0] - time
        offset += int((grown + delta // 2) / delta)
    return (ts * scaling >> fraction) + offset


SHIFTS = [
    [[(50, -30, 1, 0), (150, 7, 1, 0), (400, 1000, 1, 0)], [(0, 40, 3, 1), (1000, 90, 1, 0)]],
    [[(120, 5, 1, 0)], []],
    [[(0, 0, 1 << 40, 40), (200, 8, 5 << 33, 34)], [(10, -3, 1, 0), (10, 9, 1, 0), (90, 1, 1, 0)]],
]


@pytest.mark.parametrize("interpolate", [False, True])
@pytest.mark.parametrize("samples", SHIFTS)
@pytest.mark.parametrize("way", ["v6", "v7"])
def test_times_of_a_guest_become_those_of_its_host(
    way: str, samples: list[list[tuple[int, int, int, int]]], interpolate: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each CPU by its own samples; the events are put in order again, also over chunks."""
    kernel = w.Kernel()
    cpus, told = {}, []
    for cpu in range(3):
        page, now = w.Page(kernel, 10 + cpu), 10 + cpu
        for i in range(30):
            now += (step := (i * 7 + cpu * 5) % 13)
            page.event(waking(kernel, 1, 100 * cpu + i + 1, cpu), step)
            told.append((now, cpu, 100 * cpu + i + 1))
        cpus[cpu] = page.bytes()
    cap = w.Capture(kernel, cpus, options=[time_shift(kernel, samples, int(interpolate))])
    cap.options.append((7, b"-25\0"))
    tables = [[*{r[0]: r for r in sorted(rows, reverse=True)}.values()][::-1] for rows in samples]
    tables.append([])
    want = sorted(
        (host_time(t, tables[cpu], interpolate=interpolate) - 25, cpu, pid) for t, cpu, pid in told
    )
    for rows_of_chunk in (1 << 17, 1):
        monkeypatch.setattr(trace_dat_stream, "CHUNK_ROWS", rows_of_chunk)
        _, events, names = read(make(way, cap))
        got = rows(events, "ts", "cpu", "subject")
        assert sorted(got) == want
        assert (np.diff(events.ts) >= 0).all()
        assert {n.pid: n.ts for n in names} == {pid: t for t, _, pid in want}


# C01, C02: options


def test_an_option_of_a_size_that_it_cannot_have_is_ignored() -> None:
    kernel = w.Kernel()
    cap = w.Capture(kernel, two_cpus(kernel))
    cap.options = [(8, b" 13618 13618\n" * 80 + b"1234567"), (4095, b"\xaa\xbb\xcc")]
    reader, events, _ = read(w.v6(cap))
    assert len(events) == 10
    assert reader.issues.counts() == {"bad_option": 1, "unknown_option": 1}
    assert "option 8 has 1047 bytes, expected 4: ignored" in reader.issues.texts()


def test_the_count_of_cpus_in_an_option_holds_unless_it_runs_into_the_data() -> None:
    kernel = w.Kernel()
    cap = w.Capture(kernel, two_cpus(kernel), cpu_count=2)
    cap.options = [(8, (2).to_bytes(4, "little"))]
    reader, events, _ = read(w.v6(cap, table_cpus=70))
    assert (reader.meta.cpus_present, len(events)) == (2, 10)
    cap.options = [(8, (100_000).to_bytes(4, "little"))]
    reader, events, _ = read(w.v6(cap))
    assert (reader.meta.cpus_present, len(events)) == (2, 10)


def test_a_clock_that_is_not_told() -> None:
    kernel = w.Kernel()
    for way in WAYS:
        reader, _, _ = read(make(way, w.Capture(kernel, two_cpus(kernel), clock="")))
        assert (reader.meta.clock, reader.meta.clock_unit) == (None, "ns")
        assert reader.issues.counts() == {"clock_unknown": 1}


def test_facts_of_the_recording() -> None:
    kernel = w.Kernel()
    cap = w.Capture(kernel, two_cpus(kernel), clock="global")
    cap.options = [
        (5, b"Linux box 6.1.192-rt x86_64\0"),
        (9, b"3.1.6 abcdef\0"),
        (11, (0x1234).to_bytes(8, "little")),
    ]
    meta = read(w.v6(cap))[0].meta
    assert (meta.clock, meta.clock_unit) == ("global", "ns")
    assert (meta.kernel, meta.machine, meta.hostname) == ("6.1.192-rt", "x86_64", "box")
    assert meta.tool == "trace-cmd 3.1.6 abcdef"
    assert meta.extra["trace_id"] == "0x1234"


@pytest.mark.parametrize(
    ("clock", "options", "unit"),
    [
        ("local", [], "ns"), ("boot", [], "ns"), ("uptime", [], "jiffies"),
        ("counter", [], "count"), ("x86-tsc", [], "cycles"), ("ppc-tb", [], "cycles"),
        ("x86-tsc", [w.tsc2nsec(1, 0)], "ns"),
    ],
)  # fmt: skip
def test_clocks(clock: str, options: list[tuple[int, bytes]], unit: str) -> None:
    kernel = w.Kernel()
    cap = w.Capture(kernel, two_cpus(kernel), clock=clock, options=options)
    meta = read(w.v7(cap))[0].meta
    assert (meta.clock, meta.clock_unit) == (clock, unit)


def test_offset_and_date_are_added() -> None:
    kernel = w.Kernel()
    cap = w.Capture(kernel, two_cpus(kernel), options=[(7, b"-25\0"), (1, b"0x10\0"), (1, b"?\0")])
    reader, events, names = read(w.v6(cap))
    assert events.ts.tolist() == [t + 16_000 - 25 for t, *_ in TWO_CPUS]
    assert names[0].ts == 100 + 16_000 - 25
    assert reader.issues.counts()["bad_option"] == 1


@pytest.mark.parametrize("shift", [0, 1, 10, 31, 32, 33, 40])
def test_cycles_become_ns_without_losing_a_bit(shift: int) -> None:
    kernel = w.Kernel()
    stamp, mult = 0x1234_5678_9ABC_DEF, 0x9876_5432 >> (22 - min(shift, 22))
    page = w.Page(kernel, stamp).event(switch(kernel, 1, 2), 5).event(switch(kernel, 2, 1), 1)
    cap = w.Capture(kernel, {0: page.bytes()}, clock="x86-tsc", options=[w.tsc2nsec(mult, shift)])
    _, events, names = read(w.v7(cap))
    exact = [((stamp + d) * mult >> shift) % (1 << 64) for d in (5, 6)]
    assert events.ts.astype(np.uint64).tolist() == exact
    assert [n.ts for n in names] == [int(events.ts[0])] * 2


# C20, C21: layouts of fields


def test_a_longer_common_header() -> None:
    common = (*w.COMMON, ("unsigned char", "common_preempt_lazy_count", 1, False))
    kernel = w.Kernel(common=common)
    at = {name: offset for _, name, offset, _, _ in kernel.layouts["sched_switch"].fields}
    assert at["prev_pid"] == 28  # as in the RT kernels: after a comm that is aligned to 1
    _, events, _ = read(w.v6(w.Capture(kernel, two_cpus(kernel))))
    assert rows(events, "ts", "cpu", "kind", "subject") == TWO_CPUS


def test_wakeups_with_and_without_success() -> None:
    got = []
    for success in (False, True):
        kernel = w.Kernel(success=success)
        page = w.Page(kernel, 10)
        for value, pid in ((1, 5), (0, 6), (1, 7)):
            if success or value:
                page.event(
                    kernel.pack("sched_wakeup", 3, comm=b"x", pid=pid, target_cpu=2, success=value),
                    1 if value else 0,
                )
        reader, events, _ = read(w.v6(w.Capture(kernel, {0: page.bytes()})))
        got.append(rows(events, "ts", "kind", "subject", "cpu_to"))
        assert reader.issues.counts().get("wakeup_without_success", 0) == success
        assert reader.counts == {"sched_wakeup": 2 + success}
    assert got[0] == got[1] == [(11, 2, 5, 2), (12, 2, 7, 2)]


def test_fields_that_are_missing_are_unknown() -> None:
    kernel = w.Kernel()
    kernel.add("sched_waking", "sched", 107, [("pid", ("pid_t", 4, True))])
    kernel.add("sched_switch", "sched", 103, [("prev_state", ("long", 8, True))], w.LETTERS_4_14)
    page = w.Page(kernel, 10).event(kernel.pack("sched_waking", 3, pid=9), 0)
    page.event(kernel.pack("sched_switch", 3, prev_state=2), 0)
    _, events, names = read(w.v6(w.Capture(kernel, {0: page.bytes()})))
    batch = events.to_arrow().to_pylist()
    assert (batch[0]["subject"], batch[0]["prio"], batch[0]["cpu_to"]) == (9, None, None)
    assert (batch[1]["subject"], batch[1]["other"], batch[1]["state"]) == (None, None, State.DISK)
    assert names == []


def test_an_event_shorter_than_its_format_is_left_out_and_counted() -> None:
    kernel = w.Kernel()
    page = w.Page(kernel, 10).event(switch(kernel, 1, 2)[:40], 0).event(switch(kernel, 1, 2), 0)
    reader, events, _ = read(w.v6(w.Capture(kernel, {0: page.bytes()})))
    assert len(events) == 1
    assert reader.issues.counts()["payload_too_short"] == 1
    assert reader.counts == {"sched_switch": 2}


def test_names_of_a_fork_told_by_data_loc() -> None:
    kernel = w.Kernel(comm_loc=True)
    body = kernel.pack(
        "sched_process_fork", 5, parent_comm=b"parent", parent_pid=5, child_comm=b"child",
        child_pid=6,
    )  # fmt: skip
    page = w.Page(kernel, 10).event(body, 0)
    _, events, names = read(w.v6(w.Capture(kernel, {0: page.bytes()})))
    assert rows(events, "kind", "subject", "other") == [(EventKind.FORK, 6, 5)]
    assert [(n.pid, n.comm) for n in names] == [(5, b"parent"), (6, b"child")]


def test_a_name_change_is_told_once() -> None:
    kernel = w.Kernel()
    page = w.Page(kernel, 10)
    for comm in (b"a", b"a\0old", b"b", b"b", b"a"):
        page.event(kernel.pack("sched_waking", 1, comm=comm, pid=4), 1)
    _, _, names = read(w.v6(w.Capture(kernel, {0: page.bytes()})))
    assert [(n.comm, n.ts) for n in names] == [(b"a", 11), (b"b", 13), (b"a", 15)]


def test_extra_events() -> None:
    kernel = w.Kernel()
    kernel.add("truth", "sched", 400, [("pid", ("pid_t", 4, True)), ("why", ("u8", 1, False))])
    page = w.Page(kernel, 10)
    for i in range(4):
        page.event(kernel.pack("truth", 1, 9, 2, pid=i, why=200 + i), 1).event(switch(kernel, 1, 2))
    later = w.Page(kernel, 12).event(kernel.pack("truth", 3, pid=77), 0)
    later.missed = 4
    cap = w.Capture(kernel, {0: page.bytes(), 1: later.bytes()}, options=[(7, b"1000\0")])
    for way in WAYS:
        reader, _events, _ = read(make(way, cap))
        table = reader.extra_events("truth")
        assert table["ts"].to_pylist() == [1011, 1012, 1012, 1013, 1014]
        assert table["pid"].to_pylist() == [0, 1, 77, 2, 3]
        assert table["why"].to_pylist()[:2] == [200, 201]
        assert table["common_flags"].to_pylist()[0] == 9
        assert reader.extra_events("sched:truth").equals(table)
        assert reader.extra_events("sched_waking").num_rows == 0
        assert isinstance(table.schema.field("pid").type, type(pa.int32()))
        with pytest.raises(UsageError, match=r"'nonsense'.*: sched_switch, truth$"):
            reader.extra_events("nonsense")
        with pytest.raises(UsageError):
            reader.extra_events("other:truth")


# damage


@pytest.mark.parametrize("way", WAYS)
def test_absurd_pages_are_skipped_with_their_place(way: str) -> None:
    kernel = w.Kernel()
    pages = [w.Page(kernel, 100 * i).event(switch(kernel, 1, 2), 1) for i in range(3)]
    pages[1].commit = 70000
    reader, events, _ = read(make(way, w.Capture(kernel, {6: b"".join(p.bytes() for p in pages)})))
    # The page that is left out is a loss: said before the next event of its CPU.
    kinds = [int(EventKind.SWITCH), int(EventKind.LOST), int(EventKind.SWITCH)]
    assert (events.ts.tolist(), events.kind.tolist()) == ([1, 201, 201], kinds)
    assert reader.damaged
    (text,) = [t for t in reader.issues.texts() if "70000" in t]
    assert text.startswith("cpu 6, offset 0x")
    assert ("unpacked" in text) == (" " in way)
    if " " in way:
        assert "offset 0x1000 of its unpacked data" in text


@pytest.mark.parametrize("cut", [1, 4095, 4096, 4097, 8191])
def test_data_that_is_cut_gives_its_whole_pages_and_names_the_cpu(cut: int) -> None:
    kernel = w.Kernel()
    whole = w.v6(w.Capture(kernel, two_cpus(kernel)))
    reader, events, _ = read(whole[:-cut])
    # One byte of padding more or less is no damage to a page; its data must all be there.
    kept = [
        r
        for r in TWO_CPUS
        if r[1] == 0 or (r[0] < 1000 and cut <= 4097) or (r[0] > 1000 and cut == 1)
    ]
    assert rows(events, "ts", "cpu", "kind", "subject") == kept
    assert reader.damaged
    assert any(t.startswith("cpu 1, offset 0x") and "file cut?" in t for t in reader.issues.texts())


def test_a_recording_that_was_killed_says_how_to_save_it() -> None:
    kernel = w.Kernel()
    cap = w.Capture(kernel, two_cpus(kernel))
    six = w.v6(cap)
    seven = w.v7(cap)
    link = seven.index(b"1.0\0") + 4
    for data in (
        six[: six.index(b"options  \0") - 4],
        seven[:link] + bytes(8),
        seven[:link] + (1 << 40).to_bytes(8, "little") + seven[link + 8 :],
        seven[: seven.rindex(b"local\0")],
    ):
        with pytest.raises(TruncatedError, match="trace-cmd restore"):
            read(data)


def outcome(data: bytes) -> tuple[str, list[tuple[Any, ...]]]:
    """'error', 'damaged' or 'whole', and the rows that came out."""
    try:
        reader, events, _ = read(data)
    except InputError as error:
        text = str(error)
        assert text
        assert "\n" not in text
        return "error", []
    kept = rows(events, "ts", "cpu", "kind", "subject")
    return "damaged" if reader.damaged else "whole", kept


@pytest.mark.parametrize("way", WAYS)
def test_cut_at_every_byte(way: str) -> None:
    kernel = small_kernel()
    cap = w.Capture(kernel, two_cpus(kernel, 256), page_size=256, cmdlines=b"5 t5\n")
    data = make(way, cap)
    assert outcome(data) == ("whole", TWO_CPUS)
    seen = set()
    for end in range(len(data)):
        kind, kept = outcome(data[:end])
        seen.add(kind)
        assert kind != "whole", end
        for cpu in (0, 1):
            mine = [r for r in kept if r[1] == cpu]
            assert mine == [r for r in TWO_CPUS if r[1] == cpu][: len(mine)], end
    # v7 has its last options at the end: what is cut has no buffer
    assert seen == ({"error", "damaged"} if way == "v6" else {"error"})


@pytest.mark.parametrize("way", WAYS)
def test_flipped_bytes_give_an_error_or_a_capture(way: str) -> None:
    kernel = small_kernel()
    cap = w.Capture(kernel, two_cpus(kernel, 256), page_size=256, instances={"i": {0: b""}})
    cap.options = [w.stat(0, read=5), w.tsc2nsec(3, 1), (7, b"5\0"), (8, bytes([2, 0, 0, 0]))]
    data = make(way, cap)
    rng = np.random.default_rng(11)
    for _ in range(600):
        bad = bytearray(data)
        for _ in range(int(rng.integers(1, 4))):
            bad[int(rng.integers(12, len(bad)))] = int(rng.choice([0, 1, 255, rng.integers(256)]))
        outcome(bytes(bad))


def test_absurd_sizes_are_refused_before_anything_is_allocated() -> None:
    kernel = w.Kernel()
    cap = w.Capture(kernel, two_cpus(kernel))
    packed = bytearray(w.v7(cap, compression="zstd"))
    # the unpacked size of CPU 1's one chunk
    chunk = int.from_bytes(packed[-34 + 4 : -34 + 12], "little")
    assert int.from_bytes(packed[chunk + 8 : chunk + 12], "little") == 8192
    packed[chunk + 8 : chunk + 12] = (1 << 31).to_bytes(4, "little")
    reader, events, _ = read(bytes(packed))
    assert reader.damaged
    assert set(events.cpu.tolist()) == {0}
    # the unpacked size of a description
    packed = bytearray(w.v7(cap, compression="zlib"))
    first = packed.index(b"1.0\0") + 12
    packed[first + 20 : first + 24] = (1 << 31).to_bytes(4, "little")
    with pytest.raises(FormatError, match="unpacked"):
        read(bytes(packed))
    # the size of a CPU's data, and the number of CPUs
    six = bytearray(w.v6(cap))
    table = six.index(b"flyrecord\0") + 10
    six[table + 8 : table + 16] = (1 << 63).to_bytes(8, "little")
    reader, _, _ = read(bytes(six))
    assert reader.damaged
    count = six.index(b"options  \0") - 4
    six[count : count + 4] = (1 << 31).to_bytes(4, "little")
    with pytest.raises(TruncatedError, match="table of CPUs"):
        read(bytes(six))


def test_the_same_cpu_twice_is_an_error() -> None:
    kernel = w.Kernel()
    data = bytearray(w.v7(w.Capture(kernel, two_cpus(kernel))))
    second = len(data) - 14 - 20  # the last row of the table, before the option DONE
    assert data[second : second + 4] == b"\1\0\0\0"
    data[second : second + 4] = bytes(4)
    with pytest.raises(FormatError, match="twice"):
        read(bytes(data))


def test_options_that_come_round_end() -> None:
    kernel = w.Kernel()
    data = bytearray(w.v7(w.Capture(kernel, two_cpus(kernel))))
    link = data.index(b"1.0\0") + 4
    data[-8:] = data[link : link + 8]
    reader, events, _ = read(bytes(data))
    assert len(events) == 10
    assert reader.damaged
    assert "options_loop" in reader.issues.counts()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x17\x08\x44tracing8\0\0\x08\0\x10\0\0", UnsupportedError),
        (b"\x17\x08\x44tracing6\0\x07\x08\0\x10\0\0", FormatError),
        (b"\x17\x08\x44tracing", TruncatedError),
        (b"", InputError),
    ],
)
def test_heads_that_cannot_be(data: bytes, error: type[InputError]) -> None:
    with pytest.raises(error):
        read(data)


def test_an_old_event_header_is_refused() -> None:
    kernel = w.Kernel()
    data = w.v6(w.Capture(kernel, two_cpus(kernel))).replace(b"27 bits", b"29 bits")
    with pytest.raises(UnsupportedError, match="event header"):
        read(data)


def test_other_compressors_are_refused() -> None:
    kernel = w.Kernel()
    data = w.v7(w.Capture(kernel, two_cpus(kernel))).replace(b"none\0", b"lz99\0", 1)
    with pytest.raises(UnsupportedError, match="lz99"):
        read(data)


# real captures


def real(shared: Path, name: str) -> bytes:
    path = shared / "captures" / name
    if not path.exists():
        pytest.skip(f"no ../shared/captures/{name}")
    data = path.read_bytes()
    return lzma.decompress(data) if name.endswith(".xz") else data


def indexed(shared: Path) -> dict[str, Any]:
    path = shared / "captures" / "INDEX.json"
    if not path.exists():
        pytest.skip("no ../shared/captures/INDEX.json")
    return dict(json.loads(path.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["ab", "stock", "forms"])
def test_counts_of_real_captures(shared: Path, folder: str) -> None:
    files = {
        name: facts
        for name, facts in indexed(shared).items()
        if name.startswith(folder) and re.search(r"\.dat(\.xz)?$", name)
    }
    assert files
    for name, facts in files.items():
        reader, events, _ = read(real(shared, name))
        counts = dict(reader.counts)
        if "sched_sis_truth" not in facts["events"]:
            # (one file's reference leaves the private event out)
            counts.pop("sched_sis_truth", None)
        assert counts == facts["events"], name
        assert (np.diff(events.ts) >= 0).all(), name
        assert not reader.damaged, name
        assert reader.lost.marks == facts.get("lost_lines", 0), name
        if "first_ns" in facts and "sched_sis_truth" not in counts:
            assert (events.ts[0], events.ts[-1]) == (facts["first_ns"], facts["last_ns"]), name


def test_a_capture_that_lost_a_cpu_says_so(shared: Path) -> None:
    reader, _, _ = read(real(shared, "forms/cpu0-dropped.dat"))
    assert "cpu 0: 38 events recorded, 0 in the file" in reader.issues.texts()


def test_a_wrapped_ring_begins_late(shared: Path) -> None:
    reader, events, _ = read(real(shared, "forms/mix-wrapped.dat"))
    begins = events.take(events.kind == EventKind.BEGIN)
    assert sorted(begins.cpu.tolist()) == [0, 1, 2, 7]
    assert reader.lost.marks == 0


def test_a_recording_cut_off(shared: Path) -> None:
    data = real(shared, "public/dat6-i686-fifo.dat.xz")[:985000]
    reader, events, _ = read(data)
    counts = {
        cpu: [int(((events.cpu == cpu) & (events.kind == kind)).sum()) for kind in (0, 2)]
        for cpu in range(4)
    }
    assert counts == {0: [484, 242], 1: [60, 34], 2: [46, 23], 3: [0, 0]}
    assert reader.damaged
    assert any(t.startswith("cpu 2, offset 0x") for t in reader.issues.texts())


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("dat6-opt8-tgids", {"sched_switch": 43806, "print": 6027, "dma_fence_signaled": 1976}),
        ("dat6-sched-load", {"sched_switch": 399, "cpu_idle": 474, "sched_load_cfs_rq": 2437}),
        ("dat6-i686-fifo", {"sched_switch": 766, "sched_wakeup": 388}),
        ("dat6-i686-listen", {"sched_switch": 10, "sched_wakeup": 6, "softirq_raise": 8}),
        ("dat6-arm32-thermal", {"bprint": 501, "cdev_update": 18, "thermal_temperature": 6}),
        ("dat6-function-only", {"function": 12474}),
        ("dat6-arm64-bprint", {"sched_switch": 755, "bprint": 2}),
        ("dat6-noopt-idle", {"sched_switch": 23, "cpu_idle": 17, "sched_migrate_task": 3}),
        ("dat7-zstd-idle", {"sched_switch": 23, "cpu_idle": 17, "sched_migrate_task": 3}),
        ("dat7-zstd-i686", {"sched_switch": 766, "sched_wakeup": 388}),
    ],
)
def test_captures_of_other_people(shared: Path, name: str, counts: dict[str, int]) -> None:
    reader, _, _ = read(real(shared, f"public/{name}.dat.xz"))
    assert counts.items() <= reader.counts.items()
    if name == "dat6-opt8-tgids":
        assert "option 8 has 1047 bytes, expected 4: ignored" in reader.issues.texts()
        assert reader.meta.cpus_present == 4


@pytest.mark.parametrize(
    ("six", "seven"), [("dat6-noopt-idle", "dat7-zstd-idle"), ("dat6-i686-fifo", "dat7-zstd-i686")]
)
def test_both_versions_of_a_capture_give_the_same(shared: Path, six: str, seven: str) -> None:
    one, two = (read(real(shared, f"public/{name}.dat.xz")) for name in (six, seven))
    for column in one[1].__dataclass_fields__:
        assert np.array_equal(getattr(one[1], column), getattr(two[1], column)), column
    assert one[2] == two[2]
    assert one[0].counts == two[0].counts


@pytest.mark.parametrize(
    ("clock", "unit"),
    [("boot", "ns"), ("counter", "count"), ("global", "ns"), ("mono", "ns"),
     ("uptime", "jiffies"), ("x86-tsc", "cycles")],
)  # fmt: skip
def test_real_clocks(shared: Path, clock: str, unit: str) -> None:
    meta = open_trace_dat(PATH, real(shared, f"forms/sch-clock-{clock}.dat")).meta
    assert (meta.clock, meta.clock_unit) == (clock, unit)


def test_two_real_buffers(shared: Path) -> None:
    data = real(shared, "forms/two-buffers.dat")
    by_name = {name: read(data, name) for name in (None, "top", "inst1", "all")}
    counts = {"cpu_idle": 7165, "sched_switch": 7142, "sched_waking": 3570}
    assert all(reader.counts == counts for reader, _, _ in by_name.values())
    kinds = {name: set(events.kind.tolist()) for name, (_, events, _) in by_name.items()}
    assert kinds[None] == kinds["inst1"] == {EventKind.SWITCH, EventKind.WAKING}
    assert kinds["top"] == {EventKind.CPU_IDLE}
    _, events, _ = by_name["all"]
    assert len(events) == sum(counts.values())
    assert (np.diff(events.ts) >= 0).all()


_TEXTS = {
    "sched_switch": re.compile(
        r"prev_comm=(?P<prev_comm>.*) prev_pid=(?P<prev_pid>\d+) prev_prio=(?P<prev_prio>-?\d+) "
        r"prev_state=(?P<prev_state>\w+) next_comm=(?P<next_comm>.*) next_pid=(?P<next_pid>\d+) "
        r"next_prio=(?P<next_prio>-?\d+)$"
    ),
    "sched_migrate_task": re.compile(
        r"comm=(?P<comm>.*) pid=(?P<pid>\d+) prio=(?P<prio>\d+) orig_cpu=(?P<cpu_from>\w+) "
        r"dest_cpu=(?P<cpu_to>\w+)$"
    ),
    "sched_stat_runtime": re.compile(
        r"comm=(?P<comm>.*) pid=(?P<pid>\d+) runtime=(?P<value>\d+)\b"
    ),
    "cpu_idle": re.compile(r"state=(?P<value>\d+) cpu_id=(?P<cpu_to>\d+)$"),
}
_TEXTS |= dict.fromkeys(
    ("sched_waking", "sched_wakeup"),
    re.compile(
        r"comm=(?P<comm>.*) pid=(?P<pid>\d+) prio=(?P<prio>-?\d+)(?: success=\d)? "
        r"target_cpu=(?P<cpu_to>\w+)$"
    ),
)
_KINDS = {
    "sched_switch": 0, "sched_waking": 1, "sched_wakeup": 2, "sched_migrate_task": 4,
    "sched_stat_runtime": 8, "cpu_idle": 9,
}  # fmt: skip
#: prev_state since 4.14, as the numbers stand in include/linux/sched.h.
_STATES = {
    0: State(0), 1: State.SLEEP, 2: State.DISK, 4: State.STOPPED, 8: State.TRACED, 16: State.DEAD,
    32: State.ZOMBIE, 64: State.PARKED, 128: State.IDLE, 256: State.PREEMPTED,
}  # fmt: skip
_LINE = re.compile(r"^\s*(.{16,}?)-(\d+)\s+\[(\d+)\]\s+(\d+)\.(\d{9}): +(\w+): +(.*)$")


@pytest.mark.parametrize(
    "name",
    ["forms/pp3-plain.dat.xz", "forms/tc-record.dat", "ab/smt8/fan/base-1.dat",
     "stock/linux-7.2-debian/mix/base-1.dat.xz"],
)  # fmt: skip
def test_every_field_equals_what_trace_cmd_prints(shared: Path, name: str, tmp_path: Path) -> None:
    if shutil.which("trace-cmd") is None:
        pytest.skip("trace-cmd is not installed: it is the judge here")
    data = real(shared, name)
    path = tmp_path / "trace.dat"
    path.write_bytes(data)
    text = subprocess.run(
        ["trace-cmd", "report", "-R", "-t", str(path)], capture_output=True, check=True
    ).stdout.decode("utf-8", "replace")
    _, events, names = read(data)
    changes = [(n.ts, n.pid, n.comm) for n in names if n.ts is not None and n.comm is not None]
    changes.reverse()
    table = {name: getattr(events, name).tolist() for name in events.__dataclass_fields__}
    known: dict[int, bytes] = {}
    left: dict[tuple[int, int], list[int]] = {}
    for i, key in enumerate(zip(table["ts"], table["cpu"], strict=True)):
        left.setdefault(key, []).append(i)
    checked = 0
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None or found[6] not in _TEXTS:
            continue
        want = _TEXTS[found[6]].match(found[7])
        assert want, line
        facts = want.groupdict()
        ts = int(found[4]) * 10**9 + int(found[5])
        get = {k: v[left[ts, int(found[3])][0]] for k, v in table.items()}
        del left[ts, int(found[3])][0]
        expect = {"kind": _KINDS[found[6]], "pid": int(found[2])}
        expect |= {k: int(v) for k, v in facts.items() if k in ("value", "prio")}
        expect |= {k: int(v.lstrip("0") or "0", 0) for k, v in facts.items() if "cpu_" in k}
        if "pid" in facts:
            expect["subject"] = int(facts["pid"])
        if "next_pid" in facts:
            expect["subject"], expect["prio"] = int(facts["prev_pid"]), int(facts["prev_prio"])
            expect["other"], expect["other_prio"] = int(facts["next_pid"]), int(facts["next_prio"])
            expect["state"] = int(_STATES[int(facts["prev_state"], 0)])
        assert {k: get[k] for k in expect} == expect, line
        while changes and changes[-1][0] <= ts:
            _, number, name_now = changes.pop()
            known[number] = name_now
        for comm, pid in (("prev_comm", "prev_pid"), ("next_comm", "next_pid"), ("comm", "pid")):
            if comm in facts and int(facts[pid]):
                assert known[int(facts[pid])].decode("utf-8", "replace") == facts[comm], line
        checked += 1
    assert checked > 0.95 * len(events)
