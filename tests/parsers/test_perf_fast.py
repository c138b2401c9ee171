"""The short ways of the perf.data reader: they give what the long ways give.

Rows are put in order by a radix sort of packed keys, samples of the usual layout are read without a
second look, and whole rounds go from records to columns within one kernel.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceana.columns import EventColumns
from traceana.parsers import _perf_kernels as kernels
from traceana.parsers._perf_chunk_kernels import NEAR
from traceana.parsers._perf_order_kernels import WIDEST, keep_later, order_by_time
from traceana.parsers.perf_data import PerfDataReader
from traceana.parsers.perf_records import AttrTable

sys.path.insert(0, str(Path(__file__).parent))
import perf_data_writer as w

PATH = Path("x.perf.data")


# ---------------------------------------------------------------- order


def ordered(times: list[int], limit: int) -> list[int]:
    ts = np.array(times, np.int64)
    n = len(ts)
    order, keys, spare = (np.empty(n, np.int64) for _ in range(3))
    start = np.empty(1 << WIDEST, np.int32)
    ready = order_by_time(ts, np.int64(n), np.int64(limit), order, keys, spare, start)
    assert ts.tolist() == times
    return [int(i) for i in order[:ready]]


def slowly(times: list[int], limit: int) -> list[int]:
    return sorted((i for i, t in enumerate(times) if t <= limit), key=lambda i: times[i])


SPANS = [1, 3, 1 << 11, 1 << 12, 1 << 13, 1 << 25, 1 << 44, 1 << 56, (1 << 62) - 1]


@given(
    st.sampled_from(SPANS).flatmap(
        lambda most: st.tuples(
            st.lists(st.integers(0, most), max_size=40),
            st.sampled_from([0, most // 3, most, (1 << 62)]),
        )
    )
)
def test_order_is_by_time_and_stable(case: tuple[list[int], int]) -> None:
    times, limit = case
    assert ordered(times, limit) == slowly(times, limit)


@pytest.mark.parametrize("span", [*SPANS, 10**9])
@pytest.mark.parametrize("n", [5000, 4096, 4095])
def test_order_of_many(n: int, span: int) -> None:
    chance = random.Random(span)
    times = [chance.randrange(span + 1) for _ in range(n)]
    assert ordered(times, span // 2) == slowly(times, span // 2)


def test_order_of_what_is_in_order() -> None:
    times = [5, 5, 9, 100, 7]
    assert ordered(times, 8) == [0, 1, 4]
    assert ordered(times, 4) == []
    assert ordered([], 4) == []


def test_rows_that_wait_keep_their_order() -> None:
    ts = np.array([9, 3, 8, 5, 7], np.int64)
    columns: list[npt.NDArray[Any]] = [np.arange(10, 15, dtype=np.int32) for _ in range(3)]
    off = np.arange(20, 25, dtype=np.int64)
    kept = keep_later(np.int64(5), np.int64(4), ts, columns[0], off, columns[1], columns[2])
    assert kept == 2
    assert ts[:2].tolist() == [9, 8]
    assert off[:2].tolist() == [20, 22]
    for column in columns:
        assert column[:2].tolist() == [10, 12]


# ---------------------------------------------------------------- layout of most samples


def attr(ids: tuple[int, ...], bits: int = 0, event: Any = w.SWITCH, **more: Any) -> w.Attr:
    kind = w.IDENTIFIER | w.TID | w.TIME | w.CPU | w.RAW | bits
    return w.of(event, ids=ids, sample_type=kind, **more)


def table(attrs: list[w.Attr]) -> AttrTable:
    return PerfDataReader(PATH, w.write(attrs, []).data)._attrs


def test_which_attrs_have_the_layout_of_most() -> None:
    attrs = [
        attr((10, 11)),
        attr((12,), event=w.WAKING),
        attr((13,), w.IP, event=w.RUNTIME),
        attr((14,), w.CALLCHAIN, event=w.OTHER),
    ]
    found = table(attrs)
    assert found.plain[kernels.P_RAW] == 8 + 8 + 8 + 8 + 8
    assert found.plain[kernels.P_LOWEST] == 10
    assert found.attr_of_id.tolist() == [0, 0, 1]


def test_no_common_layout() -> None:
    chains = [attr((1,), w.CALLCHAIN), attr((2,), w.CALLCHAIN, event=w.WAKING)]
    assert table(chains).plain[kernels.P_RAW] == -1
    far_apart = [attr((1, 1 << 40)), attr((2,), event=w.WAKING)]
    assert table(far_apart).plain[kernels.P_RAW] == -1


def test_an_id_of_two_attrs_is_of_the_first() -> None:
    attrs = [attr((5,), w.CALLCHAIN), attr((4, 5), event=w.WAKING), attr((6,), event=w.OTHER)]
    assert table(attrs).attr_of_id.tolist() == [1, -1, 2]


# ---------------------------------------------------------------- the same by the long ways


def everything(reader: PerfDataReader) -> Any:
    chunks = list(reader.chunks())
    names = sorted((n.pid, n.tgid or 0, n.comm or b"", n.ts or 0) for c in chunks for n in c.names)
    events = EventColumns.concat([c.events for c in chunks])
    columns = [column.tolist() for column in events.arrays()]
    return columns, names, reader.counts, reader.lost, reader.issues.counts(), reader.damaged


class _Long(PerfDataReader):
    """Every sample gets its second look, and rows go through Python."""

    def __init__(self, data: bytes, **options: Any) -> None:
        super().__init__(PATH, data, **options)
        self._attrs.plain[:] = -1

    def _scan(self, rows: Any, *, marks: bool, sink: Any = None) -> Any:
        return super()._scan(rows, marks=marks)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Samples of several layouts in rounds, losses, names, odd and broken records between them."""
    attrs = [
        attr((10, 11)),
        attr((12, 13), event=w.WAKING),
        attr((14,), draw(st.sampled_from([0, w.IP, w.CALLCHAIN])), event=w.RUNTIME),
    ]
    chance = random.Random(draw(st.integers(0, 1 << 30)))
    records = []
    time = 10_000
    for _ in range(draw(st.integers(0, 150))):
        time += chance.randrange(5)
        pid = chance.randrange(1, 6)
        which = chance.choice(attrs)
        kind = chance.randrange(30)
        comm = chance.choice([b"one", b"another", b"%d" % pid])
        raw = w.SWITCH.payload(pid, (comm, pid, 120, 1, b"next", pid + 1, 98))
        if which.config == w.WAKING.id:
            raw = w.WAKING.payload(pid, (comm, pid, 120, 1))
        elif which.config == w.RUNTIME.id:
            raw = w.RUNTIME.payload(pid, (comm, pid, 5000))
        if kind == 0:
            records.append(w.finished_round())
            continue
        if kind == 1:
            records.append(w.lost(which, 7, time, pid % 4))
            continue
        if kind == 2:
            records.append(w.comm(which, pid, pid, comm, time))
            continue
        if kind == 3:
            raw = raw[: chance.randrange(len(raw))]
        record = w.sample(
            which,
            chance.choice([0, 2**63]) if kind == 4 else time - chance.randrange(40),
            chance.choice([1 << 20, 0xFFFFFFFF]) if kind == 5 else pid % 4,
            raw,
            ident=99 if kind == 6 else chance.choice(which.ids),
            tid=pid,
            pid=pid if kind > 8 else 1,
        )
        if kind == 7 and raw:
            # the size of the RAW data reaches beyond the record
            at = record.rindex(raw) - 4
            record = record[:at] + b"\xff\xff\0\0" + record[at + 4 :]
        records.append(record)
    return w.write(attrs, records).data


@settings(max_examples=25, deadline=None)
@given(files(), st.sampled_from([1, 16, 1 << 16]), st.sampled_from([1, 7, 1 << 16]))
def test_short_and_long_ways_agree(data: bytes, target: int, chunk: int) -> None:
    short = PerfDataReader(PATH, data, target_rows=target, chunk_rows=chunk)
    assert everything(short) == everything(_Long(data, target_rows=target, chunk_rows=1 << 16))


def test_of_names_there_may_be_more_than_the_kernel_can_note() -> None:
    """Every event has another comm; the kernel comes back to have them taken over."""
    one = attr((1,))
    n = 30_000
    records = []
    for i in range(n):
        raw = w.SWITCH.payload(1, (b"p%d" % i, 1, 120, 1, b"n%d" % i, 2, 98))
        records.append(w.sample(one, 100 + i, 0, raw))
        if i % 10 == 0:
            records.append(w.finished_round())
    reader = PerfDataReader(PATH, w.write([one], records).data)
    names = [name for chunk in reader.chunks() for name in chunk.names if name.comm is not None]
    assert [name.comm for name in names if name.pid == 1] == [b"p%d" % i for i in range(n)]
    assert [name.comm for name in names if name.pid == 2] == [b"n%d" % i for i in range(n)]


def test_rounds_that_do_not_fit_into_the_nearest_cache() -> None:
    """Their payloads are fetched in order before they are decoded."""
    one = attr((1,))
    n = 3 * NEAR
    chance = random.Random(1)
    records, expected = [], []
    for i in range(n):
        time = 1000 + i // 8 * 8 + chance.randrange(8)
        records.append(w.sample(one, time, i % 4, w.SWITCH.payload(7, (b"a", i, 1, 0, b"b", 7, 1))))
        expected.append((time, i))
        if i % (NEAR + 100) == 0:
            records.append(w.finished_round())
    reader = PerfDataReader(PATH, w.write([one], records).data, chunk_rows=NEAR - 1)
    got = EventColumns.concat([chunk.events for chunk in reader.chunks()])
    assert list(zip(got.ts.tolist(), got.subject.tolist(), strict=True)) == sorted(expected)
    assert reader.issues.counts() == {}
