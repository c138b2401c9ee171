"""Perfetto traces: written ones against a plain reading of them, damage, and the public ones."""

from __future__ import annotations

import gzip
import lzma
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from traceana import schema
from traceana.columns import NULL_CTX, NULL_I64, NULL_PID, NULL_PRIO, NULL_STATE, EventColumns
from traceana.errors import FormatError, InputError, UsageError
from traceana.parsers.perfetto import PerfettoReader, open_perfetto
from traceana.parsers.perfetto_tables import state_table
from traceana.parsers.perfetto_wire import is_perfetto
from traceana.schema import Ctx, EventKind, State

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "oracle"))
import perfetto_oracle as oracle
import perfetto_writer as w

PUBLIC = Path(__file__).parents[2].parent / "shared" / "captures" / "public"
IDLE = ("swapper/0", 0, 120)
A, B, C = ("task-a", 10, 120), ("task-b", 11, 110), ("Web Content", 12, 139)


def read(data: bytes, **options: int) -> tuple[PerfettoReader, EventColumns, list[Any]]:
    reader = PerfettoReader(Path("x"), data, **options)
    chunks = list(reader.chunks())
    names = [n for c in chunks for n in c.names]
    return reader, EventColumns.concat([c.events for c in chunks]), names


def rows(events: EventColumns, *columns: str) -> list[tuple[Any, ...]]:
    return list(zip(*(getattr(events, c).tolist() for c in columns), strict=True))


def codes(reader: PerfettoReader) -> dict[str, int]:
    return reader.issues.counts()


def compare(data: bytes, **options: int) -> PerfettoReader:
    """The reader's rows against the plain reading; names against those in the events."""
    reader, got, names = read(data, **options)
    want = oracle.read(data)
    assert len(got) == len(want)
    ctx = {0: 0, 4: int(Ctx.NEED_RESCHED), 8: int(Ctx.HARDIRQ), 0x10: int(Ctx.SOFTIRQ),
           0x40: int(Ctx.NMI), 0x81: int(Ctx.BH_OFF), None: NULL_CTX}  # fmt: skip
    nulls = {"subject": NULL_PID, "prio": NULL_PRIO, "state": NULL_STATE, "other": NULL_PID,
             "other_prio": NULL_PRIO, "cpu_to": -1, "cpu_from": -1, "value": NULL_I64}  # fmt: skip
    last: dict[int, bytes] = {}
    learnt = []
    for i, row in enumerate(want):
        mark = row.kind in ("LOST", "BEGIN")
        kind = EventKind[row.kind] if mark else schema.EVENT_NAMES[row.kind]
        assert (got.ts[i], got.cpu[i], got.kind[i]) == (row.ts, row.cpu, int(kind)), i
        pid = NULL_PID if row.pid is None else row.pid
        assert (got.pid[i], got.ctx[i]) == (pid, ctx[row.flags]), (i, row)
        for name, null in nulls.items():
            told = row.fields.get(name)
            assert getattr(got, name)[i] == (null if told is None else told), (i, name, row)
        for comm, who in (("comm", "subject"), ("other_comm", "other")):
            value, task = row.fields.get(comm), row.fields.get(who)
            if value and task and last.get(task) != value:
                last[task] = value
                learnt.append((task, value, row.ts))
    assert [(n.pid, n.comm, n.ts) for n in names] == learnt
    return reader


# -- against the plain reading -----------------------------------------------------------------


def random_trace(seed: int, *, compact: bool, packs: bool = True) -> bytes:
    """Bundles of three CPUs, in an order of packets that is not that of time."""
    rng = random.Random(seed)
    tasks = [(f"t{i}", i, rng.choice([0, 49, 100, 120, 139])) for i in range(1, 9)]
    flags = [None, 0, 4, 8, 0x10, 0x40, 0x81]
    packets: list[tuple[float, bytes]] = []
    for cpu in (0, 1, 5):
        ts = 10**12 + rng.randrange(1000)
        running = ("swapper", 0, 120)
        for turn in range(rng.randrange(2, 6)):
            events, switches, wakings = [], [], []
            for _ in range(rng.randrange(0, 30)):
                ts += rng.choice([0, 1, 100, 3000, 70000, 5 * 10**9])
                task = rng.choice(tasks)
                what = rng.randrange(8)
                if what < 3:
                    state = rng.choice([0, 1, 2, 0x20, 0x80, 0x100])
                    if compact:
                        switches.append((ts, state, task[1], task[2], task[0]))
                    else:
                        events.append(w.switch(ts, running, state, task, rng.choice(flags)))
                    running = task
                elif what == 3:
                    if compact:
                        wakings.append((ts, task[1], cpu, task[2], task[0], rng.choice([0, 8, 16])))
                    else:
                        events.append(w.waking(ts, running[1], task, cpu, success=1))
                elif what == 4:
                    events.append(w.waking(ts, running[1], task, 3, number=w.WAKEUP,
                                           success=rng.choice([None, 1, 0])))  # fmt: skip
                elif what == 5:
                    value = rng.choice([0, 3, 4294967295])
                    events.append(w.event(ts, 0, w.IDLE, w.fields(value, cpu)))
                elif what == 6:
                    content = w.fields(*task, cpu, 1 - cpu % 2)
                    events.append(w.event(ts, 7, w.MIGRATE, content))
                else:
                    fork = w.fields("par", 400, "child", 401)
                    events.append(w.event(ts, 400, w.FORK, fork))
            part = None
            if compact:
                part = w.Compact(switches, wakings, with_flags=rng.random() < 0.7 or not wakings)
            shift = rng.randrange(10**6)
            content = w.bundle(cpu, *events, compact=part, lost=turn > 0 and rng.random() < 0.2,
                               clock=2 if seed % 2 else None,
                               pair=(500, 500 + shift) if seed % 2 else None)  # fmt: skip
            packets.append((turn + rng.random(), w.packet(1, content)))
    # Of one CPU the packets stay in their order: a mark of lost events means the bundle it is in.
    packets.sort(key=lambda item: item[0])
    data = w.system("6.1.0")
    for _, piece in packets:
        data += w.compressed(piece) if packs and rng.random() < 0.3 else piece
    return data


@pytest.mark.parametrize("compact", [False, True])
def test_the_same_as_a_plain_reading(compact: bool) -> None:
    for seed in range(60):
        data = random_trace(seed, compact=compact)
        reader = compare(data)
        assert not reader.damaged
        assert is_perfetto(data[:65536])


def test_any_split_into_pieces_gives_the_same() -> None:
    data = random_trace(4, compact=True, packs=False)
    for piece in (1, 100, 5000):
        compare(data, piece=piece)
        compare(data, piece=piece, small=1)


# -- rules -------------------------------------------------------------------------------------


def test_compact_takes_what_it_leaves_out_from_the_switch_before() -> None:
    first = w.Compact(
        switches=[(100, 1, 10, 120, "task-a"), (300, 2, 11, 110, "task-b")],
        wakings=[(150, 11, 4, 110, "task-b", 8), (300, 12, 2, 139, "Web Content", 0)],
    )
    second = w.Compact(switches=[(400, 0x100, 12, 139, "Web Content")])
    data = w.packet(1, w.bundle(3, compact=first)) + w.packet(1, w.bundle(3, compact=second))
    reader, events, names = read(data)
    assert rows(events, "ts", "kind", "pid", "subject", "prio", "state", "other", "cpu_to") == [
        (100, 0, NULL_PID, NULL_PID, NULL_PRIO, 1, 10, -1),
        (150, 1, 10, 11, 110, NULL_STATE, NULL_PID, 4),
        (300, 1, 10, 12, 139, NULL_STATE, NULL_PID, 2),  # the waker still runs
        (300, 0, 10, 10, 120, 2, 11, -1),
        (400, 0, 11, 11, 110, 0x100, 12, -1),
    ]
    assert rows(events, "ctx")[1:3] == [(int(Ctx.HARDIRQ),), (0,)]
    assert [(n.pid, n.comm, n.ts) for n in names] == [
        (10, b"task-a", 100), (11, b"task-b", 150), (12, b"Web Content", 300),
    ]  # fmt: skip
    assert reader.counts == {"sched_switch": 3, "sched_waking": 2}
    assert codes(reader)["compact_sched"] == 1


def test_after_lost_events_the_task_that_ran_is_not_known() -> None:
    one = w.Compact(switches=[(100, 1, 10, 120, "a")])
    two = w.Compact(switches=[(900, 1, 11, 120, "b")])
    data = w.packet(1, w.bundle(0, compact=one)) + w.packet(1, w.bundle(0, lost=True))
    data += w.packet(1, w.bundle(1, compact=two)) + w.packet(1, w.bundle(0, compact=two))
    reader, events, _ = read(data)
    assert rows(events, "ts", "cpu", "kind", "subject") == [
        (100, 0, 0, NULL_PID),
        (900, 0, int(EventKind.LOST), NULL_PID),
        (900, 0, 0, NULL_PID),
        (900, 1, 0, NULL_PID),
    ]
    assert (reader.lost.marks, reader.lost.events, reader.lost.per_cpu) == (1, None, {0: None})
    assert codes(reader)["events_lost"] == 1


def test_a_dropped_packet_is_a_loss_on_all_cpus_of_its_writer() -> None:
    def part(cpu: int, ts: int, **options: Any) -> bytes:
        return w.packet(1, w.bundle(cpu, w.switch(ts, A, 1, B)), **options)

    data = part(0, 10, dropped=True) + part(1, 11) + part(0, 20, dropped=True)
    data += part(1, 30) + part(0, 40)
    reader, events, _ = read(data)
    lost = [r[:2] for r in rows(events, "ts", "cpu", "kind") if r[2] == int(EventKind.LOST)]
    assert lost == [(20, 0), (30, 1)]  # the first packet of a writer always says so
    assert reader.lost.marks == 2
    reader, _, _ = read(data + part(0, 50, dropped=True))
    assert reader.lost.per_cpu == {0: None, 1: None}
    assert reader.lost.marks == 4  # again on 0, and after the last one on 1


def test_counters_of_the_rings_say_how_many_were_lost() -> None:
    data = w.stats(1, (0, 5, 0), (1, 0, 0)) + w.packet(1, w.bundle(0, w.switch(10, A, 1, B)))
    data += w.packet(1, w.bundle(0, w.switch(50, A, 1, B), lost=True))
    data += w.stats(2, (0, 25, 1), (1, 0, 7))
    reader, _, _ = read(data)
    assert reader.lost.per_cpu == {0: 21, 1: 7}
    assert reader.lost.events == 28


def test_where_the_data_of_a_cpu_begins() -> None:
    data = w.packet(1, w.bundle(2, w.switch(1000, A, 1, B), begin=400))
    data += w.packet(1, w.bundle(3, w.switch(700, A, 1, B), begin=600, lost=True))
    data += w.packet(1, w.bundle(2, w.switch(2000, A, 1, B), begin=1500))
    _, events, _ = read(data)
    begin, lost = int(EventKind.BEGIN), int(EventKind.LOST)
    assert rows(events, "ts", "cpu", "kind") == [
        (400, 2, begin), (700, 3, begin), (700, 3, lost), (700, 3, 0), (1000, 2, 0), (2000, 2, 0),
    ]  # fmt: skip


def test_a_second_data_source_does_not_begin_a_cpu_again() -> None:
    data = w.packet(1, w.bundle(2, w.switch(1000, A, 1, B), begin=400))
    data += w.packet(1, w.bundle(2, w.waking(3000, 11, A, 0), begin=2000), seq=2)
    _, events, _ = read(data)
    assert rows(events, "ts", "kind") == [(400, int(EventKind.BEGIN)), (1000, 0), (3000, 1)]


def test_clocks() -> None:
    def times(data: bytes) -> tuple[list[int], str | None, dict[str, int]]:
        reader, events, _ = read(data)
        return events.ts.tolist(), reader.meta.clock, codes(reader)

    one = w.switch(1000, A, 1, B)
    own = w.packet(1, w.bundle(0, one, clock=2, pair=(900, 5900)))
    assert times(own)[:2] == ([6000], "boot")
    raw = w.packet(1, w.bundle(0, one, clock=4)) + w.snapshot(c5=100, c6=350, c3=1)
    assert times(raw)[:2] == ([1250], "boot")
    assert "clock_not_mapped" not in times(raw)[2]
    local = w.packet(1, w.bundle(0, one, clock=3))
    assert times(local)[:2] == ([1000], "local")
    assert times(local)[2]["clock_not_mapped"] == 1


@pytest.mark.parametrize(
    ("release", "value", "state"),
    [
        ("4.19.113-22067904", 0x100, State.PREEMPTED),
        ("4.19.113", 16, State.DEAD),
        ("6.12.1", 128, State.IDLE),
        ("4.14.0", 0x81, State.IDLE | State.SLEEP),
        ("4.9.186", 4096, State.PREEMPTED),
        ("4.9", 128 | 2, State.WAKEKILL | State.DISK),
        ("4.9", 16, State.ZOMBIE),
        ("4.9", 2048, 0),
        ("4.4.0", 2048, State.PREEMPTED),
        ("3.18.31", 1024, State.PREEMPTED),
        ("3.18", 2048, State.OTHER),
        ("3.4", 512, State.PREEMPTED),
        (None, 64, State.PARKED),
    ],
)
def test_states_by_kernel_release(release: str | None, value: int, state: int) -> None:
    table, told = state_table(release)
    assert table[value] == int(state)
    assert told == (release is not None)
    switch = w.packet(1, w.bundle(0, w.switch(5, A, value, B)))
    reader, events, _ = read((w.system(release) if release else b"") + switch)
    assert events.state.tolist() == [int(state)]
    assert ("prev_state_table_missing" in codes(reader)) == (release is None)


def test_system_info_and_process_tree() -> None:
    tree = w.put(1, w.message((1, 500), (2, 1), (3, "/usr/bin/server"), (3, "--all")))
    tree += w.put(1, w.message((1, 17), (2, 2), (3, "kworker/1:0")))
    tree += w.put(2, w.message((1, 501), (2, "worker"), (3, 500)))
    data = w.system("6.6.1-test", "aarch64", 12) + w.packet(2, tree)
    data += w.packet(1, w.bundle(0, w.switch(5, A, 1, ("worker2", 501, 120))))
    reader, _, names = read(data)
    assert (reader.meta.form, reader.meta.kernel, reader.meta.machine) == (
        "Perfetto", "6.6.1-test", "aarch64",
    )  # fmt: skip
    assert (reader.meta.cpus_present, reader.meta.tool) == (12, "Perfetto v49")
    assert [(n.pid, n.tgid, n.comm, n.ts) for n in names] == [
        (17, 17, b"kworker/1:0", None),
        (500, 500, None, None),
        (501, 500, b"worker", None),
        (10, None, b"task-a", 5),
        (501, None, b"worker2", 5),
    ]


def test_events_that_come_with_their_names() -> None:
    data = w.packet(1, w.bundle(
        0,
        w.generic(10, 4, "sched_stat_runtime", comm="x", pid=4, runtime=123456),
        w.generic(20, 4, "sched_waking", comm="y", pid=5, prio=120, target_cpu=3, success=0),
        w.generic(30, 4, "sched_util_est_cfs", cpu=1),
        w.generic(40, 4, "sched_switch", prev_comm="x", prev_pid=4, prev_prio=120, prev_state=1,
                  next_comm="y", next_pid=5, next_prio=-1),
    ))  # fmt: skip
    reader, events, names = read(data)
    assert rows(events, "ts", "kind", "subject", "value", "other", "other_prio") == [
        (10, int(EventKind.STAT_RUNTIME), 4, 123456, NULL_PID, NULL_PRIO),
        (40, 0, 4, NULL_I64, 5, -1),
    ]
    assert [(n.pid, n.comm) for n in names] == [(4, b"x"), (5, b"y")]
    assert reader.counts == {"sched_stat_runtime": 1, "sched_waking": 1, "sched_util_est_cfs": 1,
                             "sched_switch": 1}  # fmt: skip
    assert codes(reader)["wakeup_without_success"] == 1
    table = reader.extra_events("sched_util_est_cfs")
    assert table.to_pylist() == [{"ts": 30, "cpu": 0, "common_pid": 4, "common_flags": None,
                                  "common_preempt_count": None, "cpu_": 1}]  # fmt: skip


def test_events_that_the_trace_describes() -> None:
    def field(name: str, number: int) -> bytes:
        return w.message((1, name), (3, number))

    descriptor = w.message((1, "sched_stat_runtime"), (2, field("comm", 1)), (2, field("pid", 2)),
                           (2, field("runtime", 4)))  # fmt: skip
    more = w.put(11, w.message((1, 70001), (2, descriptor)))
    stat = w.event(9, 3, 70001, w.message((1, "abc"), (2, 33), (4, 777)), 0x10)
    data = w.packet(1, w.bundle(1, stat)) + w.packet(1, w.bundle(0, more=more))
    reader, events, names = read(data)
    assert rows(events, "kind", "cpu", "pid", "subject", "value", "ctx") == [
        (int(EventKind.STAT_RUNTIME), 1, 3, 33, 777, int(Ctx.SOFTIRQ))
    ]
    assert [(n.pid, n.comm) for n in names] == [(33, b"abc")]
    assert reader.counts == {"sched_stat_runtime": 1}
    assert reader.extra_events("sched_stat_runtime")["runtime"].to_pylist() == [777]


def test_two_data_sources_that_recorded_the_same() -> None:
    content = w.bundle(0, w.switch(10, A, 1, B), w.waking(20, 11, A, 0))
    other = w.bundle(0, w.waking(20, 11, A, 0), w.switch(30, B, 1, A))
    data = w.packet(1, content, seq=1) + w.packet(1, other, seq=2)
    reader, events, _ = read(data)
    assert events.ts.tolist() == [10, 20, 30]
    assert reader.counts == {"sched_switch": 2, "sched_waking": 1}
    assert codes(reader)["duplicate_events"] == 1


def test_other_machines_are_left_out() -> None:
    one = w.bundle(0, w.switch(10, A, 1, B))
    reader, events, _ = read(w.packet(1, one) + w.packet(1, one, machine=7))
    assert len(events) == 1
    assert codes(reader)["other_machine"] == 1


def test_zstd_and_bad_compressed_packets() -> None:
    one, two, three = (w.packet(1, w.bundle(0, w.switch(t, A, 1, B))) for t in (10, 20, 30))
    reader, events, _ = read(w.compressed(one + two, zstd=True) + w.compressed(three))
    assert events.ts.tolist() == [10, 20, 30]
    assert not reader.damaged
    packed = bytearray(w.compressed(one * 50))
    packed[-3] ^= 0xFF  # its checksum
    reader, events, _ = read(bytes(packed) + two)
    assert events.ts.tolist() == [10] * 50 + [20]
    assert reader.damaged
    assert "packet_damaged" in codes(reader)
    reader, events, _ = read(w.compressed(w.compressed(one)) + two)
    assert events.ts.tolist() == [20]
    assert codes(reader)["packet_nested"] == 1


def test_many_cpus_and_many_drops_take_no_long_time() -> None:
    part = [w.packet(1, w.bundle(cpu, w.event(5, 1, 400, b""))) for cpu in range(20000)]
    drop = w.packet(1, w.bundle(3), dropped=True)
    start = time.monotonic()
    reader, _, _ = read(b"".join(part) + drop * 20000)
    assert reader.lost.marks == 20000
    assert time.monotonic() - start < 10


def test_a_bomb_is_cut_off() -> None:
    import zlib

    bomb = w.put(1, w.put(50, zlib.compress(w.put(1, bytes(100 << 20)))))
    reader, events, _ = read(w.packet(1, w.bundle(0, w.switch(10, A, 1, B))) + bomb)
    assert len(events) == 1
    assert reader.damaged
    assert any("unpacks to more than" in text for text in reader.issues.texts())


@pytest.mark.parametrize("spoil", [{3: [1]}, {6: [9]}, {12: [1, 2]}, {1: [5, -(1 << 62)]}])
def test_arrays_that_do_not_belong_together(spoil: dict[int, list[int]]) -> None:
    part = w.Compact(switches=[(100, 1, 10, 120, "a"), (200, 1, 11, 120, "b")],
                     wakings=[(150, 11, 0, 120, "b", 0)])  # fmt: skip
    good = w.packet(1, w.bundle(0, compact=part))
    part.spoil = spoil
    reader, events, _ = read(good + w.packet(1, w.bundle(1, compact=part)))
    assert set(events.cpu.tolist()) == {0}
    assert len(events) == 3
    assert reader.damaged
    assert codes(reader)["compact_sched_damaged"] == 1


def test_a_cut_file_gives_its_whole_events() -> None:
    whole = w.packet(1, w.bundle(0, w.switch(10, A, 1, B)))
    last = w.packet(1, w.bundle(0, *(w.switch(20 + i, A, 1, B) for i in range(9))))
    one = w.put(2, w.switch(20, A, 1, B))
    ends = [last.index(one) + len(one) * (i + 1) for i in range(9)]
    for cut in range(1, len(last)):
        reader, events, _ = read(whole + last[:cut])
        assert reader.damaged
        assert f"offset {len(whole):#x}" in " ".join(reader.issues.texts())
        assert len(events) == 1 + sum(end <= cut for end in ends), cut


def test_no_ftrace_events_names_what_is_there() -> None:
    reader, events, _ = read(w.packet(11, b"\x08\x01") * 3 + w.packet(52, b"\x08\x01"))
    assert len(events) == 0
    assert reader.counts == {}
    assert "track_event 3, gpu_counter_event 1" in str(reader.meta.extra["no_tracepoints"])
    assert not reader.damaged


def test_extra_events() -> None:
    part = w.Compact(switches=[(100, 1, 10, 120, "a")])
    data = w.packet(1, w.bundle(0, w.event(7, 3, w.EXIT, w.fields("gone", 3, 2, 120)),
                                w.event(8, 3, 400, b""), compact=part))  # fmt: skip
    reader = open_perfetto(Path("x"), data)
    assert reader.extra_events("sched_process_exit").to_pylist() == [
        {"ts": 7, "cpu": 0, "common_pid": 3, "common_flags": None, "common_preempt_count": None,
         "comm": "gone", "pid": 3, "tgid": 2, "prio": 120}
    ]  # fmt: skip
    assert reader.extra_events("sched_switch")["next_comm"].to_pylist() == ["a"]
    assert reader.counts["ftrace_event_400"] == 1
    with pytest.raises(UsageError, match="fields of 'ftrace_event_400'"):
        reader.extra_events("ftrace_event_400")
    with pytest.raises(UsageError, match="there are: ftrace_event_400, sched_process_exit"):
        reader.extra_events("sched_waking")


# -- hostile input -----------------------------------------------------------------------------


def test_what_is_no_trace_is_refused() -> None:
    for data in (b"", b"\x08\x01", b"# tracer: nop\n"):
        with pytest.raises(FormatError):
            open_perfetto(Path("x"), data)
    for text in (b"\n# tracer: nop\n#\n" * 99, b"\n" * 100, b"\n\x20" * 50, b"\n" + b"a" * 70000):
        assert not is_perfetto(text[:65536])


def survives(data: bytes, **options: int) -> int:
    """Reads it to the end: only errors of traceana, all rows in the order of time."""
    try:
        reader = PerfettoReader(Path("x"), data, **options)
        given = -(1 << 63)
        for chunk in reader.chunks():
            ts = chunk.events.ts
            assert not len(ts) or int(ts[0]) >= given
            assert (ts[1:] >= ts[:-1]).all()
            given = int(ts[-1]) if len(ts) else given
            chunk.events.to_arrow()
        for text in reader.issues.texts():
            assert "\n" not in text
    except InputError as error:
        assert "\n" not in str(error)
        return 0
    return 1


def mutated(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(out))
        what = rng.randrange(4)
        if what == 0:
            out[at] = rng.randrange(256)
        elif what == 1:
            del out[at : at + rng.randrange(1, 20)]
        elif what == 2:
            out[at:at] = rng.choice([b"\xff" * 9, b"\xff" * 10 + b"\x01", bytes(3), b"\x0a"])
        else:
            out[at] ^= 1 << rng.randrange(8)
        if not out:
            break
    return bytes(out[: rng.randrange(len(out) + 1)] if rng.random() < 0.2 else out)


def test_mutations_never_end_in_a_traceback() -> None:
    rng = random.Random(7)
    opened = 0
    for seed in range(400):
        data = random_trace(seed % 20, compact=seed % 2 == 1)
        opened += survives(mutated(rng, data), piece=rng.choice([50, 1 << 20]))
    assert opened > 300


# -- the public ones ---------------------------------------------------------------------------


def public(name: str) -> bytes:
    path = PUBLIC / name
    if not path.exists():
        pytest.skip("the public captures are not there")
    data = path.read_bytes()
    return lzma.decompress(data) if name.endswith(".xz") else gzip.decompress(data)


def test_public_trace_with_ftrace() -> None:
    reader, events, _ = read(public("perfetto-ftrace.pftrace.xz"))
    assert reader.counts["sched_switch"] == 15267
    assert reader.counts["sched_wakeup"] == 8743
    assert reader.counts["cpu_idle"] == 11687
    assert reader.counts["cpu_frequency"] == 168
    assert sorted(set(events.cpu.tolist())) == [0, 1, 2, 3, 5, 6]
    assert (reader.meta.kernel or "").startswith("4.19.113")
    assert reader.meta.machine == "aarch64"
    assert not reader.damaged


@pytest.mark.parametrize(
    ("name", "packets", "what"),
    [
        ("perfetto-no-ftrace.pftrace.xz", 5790, "gpu_counter_event"),
        ("perfetto-gz-userspace.pftrace.gz", 293610, "track_event"),
    ],
)
def test_public_traces_without_ftrace(name: str, packets: int, what: str) -> None:
    reader, events, _ = read(public(name))
    assert len(events) == 0
    held = reader.meta.extra["packets"]
    assert isinstance(held, dict)
    assert sum(held.values()) == packets
    assert what in str(reader.meta.extra["no_tracepoints"])


def test_public_trace_against_the_plain_reading() -> None:
    data = public("perfetto-ftrace.pftrace.xz")
    want = oracle_rows(data)
    _, events, _ = read(data)
    mine = [r for r in rows(events, "ts", "cpu", "kind", "pid", "subject", "other", "prio")
            if r[2] in (0, 2)]  # fmt: skip
    assert mine == want


def oracle_rows(data: bytes) -> list[tuple[Any, ...]]:
    out = []
    for e in oracle.read(data):
        if e.kind in ("sched_switch", "sched_wakeup"):
            out.append((e.ts, e.cpu, int(schema.EVENT_NAMES[e.kind]), e.pid, e.fields["subject"],
                        e.fields.get("other", NULL_PID), e.fields["prio"]))  # fmt: skip
    return out
