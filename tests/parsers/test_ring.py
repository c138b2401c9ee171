"""The walk over ring-buffer pages and the decoding of payloads, against a plain oracle."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceana._jit import njit
from traceana.columns import (
    NULL_CPU,
    NULL_CTX,
    NULL_I64,
    NULL_PID,
    NULL_PRIO,
    NULL_STATE,
    EventColumns,
    NameChange,
)
from traceana.parsers import _ring_chunk_kernels as chunk_kernels
from traceana.parsers import ring
from traceana.parsers.formats import EventFormat, parse_header_page
from traceana.parsers.payload import ColumnPool, Layouts, PayloadDecoder, as_bytes
from traceana.parsers.ring import CpuData, RingWalk, mapping_of
from traceana.parsers.ring_chunks import ring_chunks
from traceana.schema import EVENT_NAMES, Ctx, EventKind, State

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "oracle")]
import ring_oracle as oracle  # noqa: E402
import trace_dat_writer as w  # noqa: E402

KERNELS = {
    (big, long): w.Kernel(
        big=big, long=long, letters=w.LETTERS_4_14 if long == 8 else w.LETTERS_4_4,
        success=long == 4, comm_loc=big,
    )
    for big in (False, True)
    for long in (4, 8)
}  # fmt: skip
PAGE = 512


def decode(
    kernel: w.Kernel, cpus: dict[int, bytes], *, page_size: int = PAGE, round_bytes: int = 1 << 20
) -> tuple[EventColumns, list[NameChange], RingWalk, PayloadDecoder]:
    """All rows of some CPUs' pages, found in two ways that must agree."""
    formats = [EventFormat.parse(x.text(), x.system) for x in kernel.layouts.values()]
    layouts = Layouts([f for f in formats if f], big_endian=kernel.big)
    blob, data = b"\0" * 64, []
    for cpu, pages in cpus.items():
        data.append(CpuData(cpu, len(blob), len(blob) + len(pages)))
        blob += pages
    head = parse_header_page(w.header_page(kernel, page_size))
    assert head is not None

    def begin() -> tuple[RingWalk, PayloadDecoder]:
        walk = RingWalk(
            as_bytes(blob), data, head, page_size=page_size, row_of_id=layouts.row_of_id,
            type_field=(0, 2), big_endian=kernel.big, untold=frozenset(cpus),
        )  # fmt: skip
        return walk, PayloadDecoder(as_bytes(blob), layouts)

    walk, decoder = begin()
    parts, names = [], []
    for rows in walk.rounds(round_bytes=round_bytes):
        chunk = decoder.decode(rows.ts, rows.cpu, rows.off, rows.length, rows.row, rows.order)
        parts.append(chunk.events.take(np.arange(len(chunk.events))))
        names += chunk.names
    events = EventColumns.concat(parts)
    for chunk_rows in (1, 1 << 12):
        other, other_decoder = begin()
        parts, losses, other_names = [], 0, []
        for made in ring_chunks(other, other_decoder, chunk_rows=chunk_rows,
                                round_bytes=round_bytes):  # fmt: skip
            parts.append(made.columns.take(np.arange(len(made.columns))))
            losses += made.losses
            other_names += made.names
        for a, b in zip(events.arrays(), EventColumns.concat(parts).arrays(), strict=True):
            assert a.tolist() == b.tolist()
        assert other_names == names
        assert losses == (events.kind == EventKind.LOST).sum()
        assert (other.counts == walk.counts).all()
        assert (other.errors, other.error_count) == (walk.errors, walk.error_count)
        assert (other.events, other.steps_back) == (walk.events, walk.steps_back)
        assert (other_decoder.short, other_decoder.failed) == (decoder.short, decoder.failed)
    return events, names, walk, decoder


NULLS: dict[str, Any] = {
    "pid": NULL_PID, "ctx": NULL_CTX, "subject": NULL_PID, "prio": NULL_PRIO, "state": NULL_STATE,
    "other": NULL_PID, "other_prio": NULL_PRIO, "cpu_to": NULL_CPU, "cpu_from": NULL_CPU,
    "value": NULL_I64, "buffer": 0,
}  # fmt: skip
WAKE = {"subject": "pid", "prio": "prio", "cpu_to": "target_cpu"}
COLUMNS: dict[str, dict[str, str]] = {
    "sched_switch": {"subject": "prev_pid", "prio": "prev_prio", "other": "next_pid",
                     "other_prio": "next_prio"},
    "sched_waking": WAKE, "sched_wakeup": WAKE, "sched_wakeup_new": WAKE,
    "sched_migrate_task": {"subject": "pid", "prio": "prio", "cpu_from": "orig_cpu",
                           "cpu_to": "dest_cpu"},
    "sched_process_fork": {"subject": "child_pid", "other": "parent_pid"},
    "sched_process_exec": {"subject": "pid", "other": "old_pid"},
    "sched_process_exit": {"subject": "pid", "prio": "prio"},
    "sched_stat_runtime": {"subject": "pid", "value": "runtime"},
    "cpu_idle": {"value": "state", "cpu_to": "cpu_id"},
    "task_rename": {"subject": "pid"},
    "irq_handler_entry": {"value": "irq"},
}  # fmt: skip
COMMS = {
    "sched_switch": (("prev_comm", "prev_pid"), ("next_comm", "next_pid")),
    "sched_process_fork": (("parent_comm", "parent_pid"), ("child_comm", "child_pid")),
    "task_rename": (("oldcomm", "pid"), ("newcomm", "pid")),
}
LETTERS = {1: State.SLEEP, 2: State.DISK, 4: State.STOPPED, 8: State.TRACED}
NEW_STATES = LETTERS | {
    16: State.DEAD, 32: State.ZOMBIE, 64: State.PARKED, 128: State.IDLE, 256: State.PREEMPTED,
}  # fmt: skip
OLD_STATES = LETTERS | {
    16: State.ZOMBIE, 32: State.DEAD, 64: State.DEAD, 128: State.WAKEKILL, 256: State.WAKING,
    512: State.PARKED, 1024: State.NOLOAD, 2048: State.OTHER, 4096: State.PREEMPTED,
}  # fmt: skip


def state_of(raw: int, kernel: w.Kernel) -> int:
    table = NEW_STATES if kernel.long == 8 else OLD_STATES
    return sum({int(table[bit]) for bit in table if raw & bit})


def wrapped(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def ctx_of(flags: int, preempt: int) -> int:
    pairs = ((4, Ctx.NEED_RESCHED), (8, Ctx.HARDIRQ), (16, Ctx.SOFTIRQ), (64, Ctx.NMI),
             (128, Ctx.BH_OFF))  # fmt: skip
    return sum(int(c) for bit, c in pairs if flags & bit) | (Ctx.PREEMPT if preempt & 15 else 0)


def expected(
    kernel: w.Kernel, cpus: dict[int, bytes], page_size: int = PAGE
) -> tuple[list[dict[str, Any]], list[tuple[int, bytes, int]], dict[int, int], int]:
    """Rows, names, counts by id and number of damaged places, by the oracle."""
    by_id = {layout.ident: layout for layout in kernel.layouts.values()}
    streams = {
        cpu: oracle.read_cpu(pages, page_size=page_size, big=kernel.big, long=kernel.long)
        for cpu, pages in cpus.items()
    }
    rows: list[dict[str, Any]] = []
    names: list[tuple[int, bytes, int]] = []
    known: dict[int, bytes] = {}
    counts: dict[int, int] = {}
    seen: set[int] = set()
    for cpu, record in oracle.merged(streams):
        base = {"ts": record.ts, "cpu": cpu}
        if record.lost is not None:
            if cpu in seen:
                value = NULL_I64 if record.lost < 0 else record.lost
                rows.append(NULLS | base | {"kind": EventKind.LOST, "value": value})
            else:
                rows.append(NULLS | base | {"kind": EventKind.BEGIN})
        seen.add(cpu)
        if len(record.payload) < 2:
            continue
        ident = int.from_bytes(record.payload[:2], kernel.order)  # type: ignore[arg-type]
        counts[ident] = counts.get(ident, 0) + 1
        layout = by_id.get(ident)
        if layout is None or layout.name not in EVENT_NAMES:
            continue
        wanted = set(COLUMNS[layout.name].values()) | {
            f for pair in COMMS.get(layout.name, (("comm", "pid"),)) for f in pair
        }
        wanted |= {"prev_state", "success", "common_pid", "common_flags", "common_preempt_count"}
        text = b"\n".join(
            line
            for line in layout.text().splitlines()
            if not line.startswith(b"\tfield") or any(f" {f}".encode() in line for f in wanted)
        )
        values = oracle.values_of(text, record.payload, big=kernel.big)
        if values is None or values.get("success") == 0:
            continue
        row = NULLS | base | {"kind": EVENT_NAMES[layout.name], "pid": values["common_pid"]}
        row["ctx"] = ctx_of(values["common_flags"], values["common_preempt_count"])
        for column, name in COLUMNS[layout.name].items():
            row[column] = values[name]
            if column in ("prio", "other_prio") and not -32768 <= values[name] <= 32767:
                row[column] = NULL_PRIO
            elif column in ("subject", "other", "cpu_to", "cpu_from"):
                row[column] = wrapped(values[name], 32)
            elif column == "value":
                row[column] = wrapped(values[name], 64)
        if layout.name == "sched_switch":
            row["state"] = state_of(values["prev_state"], kernel)
        rows.append(row)
        for comm, pid in COMMS.get(layout.name, (("comm", "pid"),)):
            name, number = values.get(comm), values.get(pid, 0)
            if name and 0 < number < 4194304 and known.get(number) != name[:16]:
                known[number] = name[:16]
                names.append((number, name[:16], record.ts))
    return rows, names, counts, sum(s.errors for s in streams.values())


def check(kernel: w.Kernel, cpus: dict[int, bytes], **options: Any) -> None:
    events, names, walk, decoder = decode(kernel, cpus, **options)
    rows, want_names, counts, errors = expected(kernel, cpus, options.get("page_size", PAGE))
    order = [*list(NULLS), "ts", "cpu", "kind"]
    got = [
        dict(zip(order, row, strict=True))
        for row in zip(*(getattr(events, c).tolist() for c in order), strict=True)
    ]
    assert got == rows
    assert [(n.pid, n.comm, n.ts) for n in names] == want_names
    assert {i: int(walk.counts[i]) for i in np.flatnonzero(walk.counts)} == counts
    assert walk.error_count == errors
    assert decoder.failed >= 0


comms = st.one_of(
    st.sampled_from([b"a", b"a\0x", b"kworker/0:1", b"0123456789abcdef", b"-> [0]", b"\xff\xfe"]),
    st.binary(max_size=16),
)
pids = st.one_of(st.integers(0, 9), st.sampled_from([4194303, 4194304, -1, 2**31 - 1]))


@st.composite
def payloads(draw: st.DrawFn, kernel: w.Kernel) -> bytes:
    name = draw(st.sampled_from(sorted(kernel.layouts)))
    values: dict[str, Any] = {}
    for ctype, field, _, size, signed in kernel.layouts[name].fields:
        if field.startswith("common_"):
            continue
        if "char" in ctype:
            values[field] = draw(comms)
        elif field.endswith("pid"):
            values[field] = draw(pids)
        elif field == "prev_state":
            values[field] = draw(st.sampled_from([0, 1, 2, 8, 16, 130, 256, 2048, 4096, 4097]))
        elif field == "success":
            values[field] = draw(st.integers(0, 1))
        else:
            low = -(1 << 8 * size - 1) if signed else 0
            high = (1 << 8 * size - signed) - 1
            values[field] = draw(st.one_of(st.integers(0, 130), st.integers(low, high)))
    return kernel.pack(
        name, draw(pids), draw(st.integers(0, 255)), draw(st.integers(0, 255)), **values
    )


@st.composite
def cpu_pages(draw: st.DrawFn, kernel: w.Kernel) -> bytes:
    stamp, out = draw(st.integers(0, 200)), b""
    for _ in range(draw(st.integers(0, 4))):
        page = w.Page(kernel, stamp, PAGE)
        for _ in range(draw(st.integers(0, 6))):
            kind = draw(st.integers(0, 9))
            if kind < 6:
                body = draw(payloads(kernel))
                if len(body) + 8 <= page.room - 16:
                    page.event(body, draw(st.integers(0, 40)), long_form=draw(st.booleans()))
            elif kind == 6 and page.room >= 24:
                page.extend(draw(st.sampled_from([1, 5, 1 << 27, 1 << 30])))
            elif kind == 7 and page.room >= 24:
                page.absolute(stamp + draw(st.integers(0, 60)))
            elif kind == 8 and page.room >= 40:
                page.discard(draw(st.sampled_from([8, 12, 24])), draw(st.integers(1, 9)))
            elif kind == 9 and page.room >= 24:
                unknown = (999).to_bytes(2, kernel.order) + bytes(6)  # type: ignore[arg-type]
                page.event(unknown, 1)
        if draw(st.booleans()) and page.room >= 24:
            page.fill()
        if draw(st.integers(0, 4)) == 0 and page.room >= 12:
            page.missed = draw(st.sampled_from([-1, 1, 77]))
        if draw(st.integers(0, 9)) == 0:
            page.commit = draw(st.integers(0, 600))
        out += page.bytes()
        stamp += draw(st.integers(-5, 120))
        stamp = max(stamp, 0)
    return out[: draw(st.integers(0, len(out)))] if draw(st.integers(0, 5)) == 0 else out


@pytest.mark.parametrize("shape", KERNELS)
@settings(max_examples=60)
@given(data=st.data())
def test_walk_and_decoding_equal_the_oracle(shape: tuple[bool, int], data: st.DataObject) -> None:
    kernel = KERNELS[shape]
    count = data.draw(st.integers(0, 5))
    cpus = {3 * i + 1: data.draw(cpu_pages(kernel)) for i in range(count)}
    check(kernel, cpus, round_bytes=data.draw(st.sampled_from([1, PAGE, 3 * PAGE, 1 << 20])))


@pytest.mark.parametrize("shape", KERNELS)
@settings(max_examples=60)
@given(
    pages=st.lists(st.binary(max_size=2 * PAGE), min_size=1, max_size=3),
    commit=st.integers(0, PAGE),
    stamp=st.one_of(st.integers(0, 1 << 20), st.integers(0, 2**64 - 1)),
)
def test_bytes_that_are_no_pages_are_read_as_the_oracle_reads_them(
    shape: tuple[bool, int], pages: list[bytes], commit: int, stamp: int
) -> None:
    kernel = KERNELS[shape]
    head = stamp.to_bytes(8, kernel.order) + commit.to_bytes(kernel.long, kernel.order)  # type: ignore[arg-type]
    check(kernel, {i: head + body for i, body in enumerate(pages)})


def test_rounds_do_not_change_what_comes_out() -> None:
    kernel = KERNELS[False, 8]
    rng = np.random.default_rng(5)
    cpus = {}
    for cpu in range(6):
        out, now = b"", int(rng.integers(0, 500))
        for _ in range(40):
            page = w.Page(kernel, now, PAGE)
            while page.room >= 60:
                now += (step := int(rng.integers(0, 30)))
                page.event(kernel.pack("sched_waking", comm=b"x", pid=7, target_cpu=cpu), step)
            out += page.bytes()
            now += int(rng.integers(0, 300))
        cpus[cpu] = out
    whole = decode(kernel, cpus)[0]
    assert (np.diff(whole.ts) >= 0).all()
    for size in (1, 2 * PAGE, 7 * PAGE):
        again = decode(kernel, cpus, round_bytes=size)[0]
        for a, b in zip(whole.arrays(), again.arrays(), strict=True):
            assert (a == b).all()


def test_ties_go_to_the_lower_cpu_and_keep_the_file_order() -> None:
    kernel = KERNELS[False, 8]
    cpus = {}
    for cpu in (4, 0, 2):
        page = w.Page(kernel, 100, PAGE)
        for i in range(3):
            page.event(kernel.pack("cpu_idle", state=i, cpu_id=cpu), 0)
        cpus[cpu] = page.bytes()
    events = decode(kernel, dict(sorted(cpus.items())))[0]
    assert events.cpu.tolist() == [0, 0, 0, 2, 2, 2, 4, 4, 4]
    assert events.value.tolist() == [0, 1, 2] * 3


def test_time_that_steps_back_keeps_the_order_and_is_counted() -> None:
    kernel = KERNELS[False, 8]
    page = w.Page(kernel, 464, PAGE)
    page.event(kernel.pack("cpu_idle", state=1), 0)
    page.absolute(463)
    page.event(kernel.pack("cpu_idle", state=2), 0)
    other = w.Page(kernel, 463, PAGE).event(kernel.pack("cpu_idle", state=3), 0)
    events, _, walk, _ = decode(kernel, {0: page.bytes(), 1: other.bytes()})
    assert events.value.tolist() == [3, 1, 2]
    assert events.ts.tolist() == [463, 464, 463]
    assert walk.steps_back == {0: 1, 1: 0}


def test_more_name_changes_than_the_kernel_has_room_for() -> None:
    kernel = KERNELS[False, 8]
    out, now = b"", 0
    for page_no in range(1500):
        page = w.Page(kernel, now, PAGE)
        for i in range(6):
            now += 1
            comm = b"n%d" % (page_no * 6 + i)
            page.event(kernel.pack("sched_waking", comm=comm, pid=5), 1)
        out += page.bytes()
    names = decode(kernel, {0: out})[1]
    assert [n.comm for n in names] == [b"n%d" % i for i in range(9000)]
    assert all(n.pid == 5 for n in names)


def test_columns_are_used_again_only_when_nobody_holds_them() -> None:
    pool = ColumnPool(100)
    first = pool.take(50)
    first.ts[:] = 7
    held = first.ts
    second = pool.take(50)
    second.ts[:] = 9
    assert (held == 7).all()
    del first, second
    third = pool.take(100)
    third.ts[:] = 1
    assert (held == 7).all()
    batch = third.take(slice(0, 10)).to_arrow()
    del third
    fourth = pool.take(100)
    fourth.ts[:] = 2
    assert batch.column("ts").to_pylist() == [1] * 10


def test_more_rows_than_the_pool_has_room_for() -> None:
    assert len(ColumnPool(10).take(11)) == 11


@settings(max_examples=200)
@given(
    runs=st.lists(st.lists(st.integers(0, 60), max_size=40), min_size=1, max_size=9),
    base=st.sampled_from([0, 1 << 40, (1 << 61) + 5]),
    jump=st.sampled_from([0, 1 << 30, 1 << 60]),
)
def test_the_order_of_rows_is_that_of_a_stable_sort(
    runs: list[list[int]], base: int, jump: int
) -> None:
    """Also where keys are so far apart (``jump``) that they cannot be packed with their index."""
    key = np.array([base + k for run in runs for k in sorted(run)], np.int64)
    ends = np.cumsum([len(run) for run in runs]).astype(np.int64)
    starts = ends - np.array([len(run) for run in runs], np.int64)
    for start, end in zip(starts, ends, strict=True):
        if end > start and base + jump < 1 << 62:
            key[end - 1] += jump
    here, there = np.empty(len(key) + 1, np.int64), np.empty(len(key) + 1, np.int64)
    walk = np.zeros(chunk_kernels.N_WALK, np.int64)
    order_of_rows(key, starts, ends, here, there, np.empty(len(runs) + 1, np.int64), walk)
    order = (there if walk[chunk_kernels.WHERE] else here)[: len(key)]
    order &= walk[chunk_kernels.INDEX_MASK]
    assert order.tolist() == np.argsort(key, kind="stable").tolist()


@njit
def order_of_rows(key, starts, ends, here, there, bounds, walk):  # type: ignore[no-untyped-def]
    """So that Python can call it."""
    chunk_kernels.merged_order(key, starts, ends, here, there, bounds, walk)


def test_what_is_read_of_a_mapped_file_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = KERNELS[False, 8]
    layouts = Layouts(
        [f for x in kernel.layouts.values() if (f := EventFormat.parse(x.text(), x.system))]
    )
    head = parse_header_page(w.header_page(kernel, 4096))
    assert head is not None
    blob, data = bytes(4096), []
    for cpu in range(2):
        start = len(blob)
        for i in range(40):
            page = w.Page(kernel, 1000 * i + cpu, 4096)
            for _ in range(50):
                page.event(kernel.pack("cpu_idle", state=i, cpu_id=cpu), 1)
            blob += page.bytes()
        data.append(CpuData(cpu, start, len(blob)))
    path = tmp_path / "pages"
    path.write_bytes(blob)
    monkeypatch.setattr(ring, "_MOST_MAPPED", 0)
    monkeypatch.setattr(ring, "_LEAST_BACK", 1)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert mapping_of(as_bytes(mapped)) is mapped
    assert mapping_of(as_bytes(blob)) is None
    assert mapping_of(as_bytes(memoryview(mapped)[1:])) is None
    found = []
    for buf in (mapped, blob):
        walk = RingWalk(
            as_bytes(buf), data, head, page_size=4096, row_of_id=layouts.row_of_id,
            type_field=(0, 2),
        )  # fmt: skip
        decoder = PayloadDecoder(as_bytes(buf), layouts)
        chunks = ring_chunks(walk, decoder, chunk_rows=300, round_bytes=8192)
        found.append([row for c in chunks for row in zip(c.columns.ts.tolist(),
                      c.columns.value.tolist(), strict=True)])  # fmt: skip
        given = walk._given_back - [d.start for d in data]
        assert (given > 30 * 4096).all() == (buf is mapped)
    assert found[0] == found[1]
    assert len(found[0]) == 4000
