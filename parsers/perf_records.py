"""The record stream of a perf.data file: whose a record is, and one pass over it.

:class:`AttrTable` tells to which attr a record belongs and where its fields stand;
:class:`Scan` walks the records and gives rows in the order of time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from traceana.columns import NULL_I64
from traceana.parsers import _perf_kernels as kernels
from traceana.parsers._perf_chunk_kernels import CHUNK_FULL, NAMES_FULL, take_rows
from traceana.parsers._perf_order_kernels import WIDEST, keep_later, order_by_time
from traceana.parsers.payload import ROW_LOST
from traceana.parsers.perf_header import Attr, PerfHeader
from traceana.parsers.perf_stream import Arena, Segment, Stream

__all__ = ["TARGET_ROWS", "AttrTable", "Rows", "Scan", "Sink"]

#: Rows between two sorts: some MB of records, still in the caches when they are decoded.
TARGET_ROWS = 1 << 12
#: Times the target there is always room for: rounds that fit go without a way through Python.
_ROOM = 16
#: Ids in a row that a table is made for.
_ID_SPAN = 1 << 16
#: More rows in one piece than kernels count.
_MOST_ROWS = 1 << 31


def _fixed_offset(sample_type: int, bit: int) -> int:
    """Where a field of the fixed part of a sample stands, from the record's start; -1: nowhere."""
    at = 8
    for field in (
        kernels.S_IDENTIFIER, kernels.S_IP, kernels.S_TID, kernels.S_TIME, kernels.S_ADDR,
        kernels.S_ID, kernels.S_STREAM_ID, kernels.S_CPU, kernels.S_PERIOD,
    ):  # fmt: skip
        if field == bit:
            return at if sample_type & bit else -1
        at += 8 * bool(sample_type & field)
    return at


def _trailer_offset(sample_type: int, bit: int) -> int:
    """Where a field of the sample_id trailer stands, counted back from the record's end."""
    back = 0
    for field in (
        kernels.S_IDENTIFIER, kernels.S_CPU, kernels.S_STREAM_ID, kernels.S_ID, kernels.S_TIME,
        kernels.S_TID,
    ):  # fmt: skip
        back += 8 * bool(sample_type & field)
        if field == bit:
            return back if sample_type & bit else -1
    return back


def _agreed(places: set[int]) -> int | None:
    """The one place, None when there are several or none."""
    place = places.pop() if len(places) == 1 else -1
    return None if place < 0 else place


class AttrTable:
    """How to tell the attr of a record, and where its fields stand (section 3.4 of the formats).

    With one attr there is nothing to tell. With several the id is the IDENTIFIER where every
    attr has it, else the ID, which must stand at one place in all of them. Where neither is so,
    samples can only be read when all attrs have one ``sample_type``; ``readable`` says whether.
    """

    def __init__(self, attrs: list[Attr]) -> None:
        self.attrs = attrs
        types = [a.sample_type for a in attrs]
        self.same_types = len(set(types)) == 1 and len({a.read_format for a in attrs}) == 1
        self.id_at = self.id_back = -1
        self.readable = True
        if len(attrs) > 1:
            bit = kernels.S_IDENTIFIER
            if not all(t & bit for t in types):
                bit = kernels.S_ID
            at = _agreed({_fixed_offset(t, bit) for t in types})
            back = _agreed({_trailer_offset(t, bit) for t in types})
            self.id_at = -1 if at is None else at
            self.id_back = -1 if back is None else back
            self.readable = at is not None or self.same_types
        table = np.full((len(attrs), kernels.N_ATTR), -1, np.int64)
        for line, attr in zip(table, attrs, strict=True):
            kind = attr.sample_type
            line[kernels.A_READ_FORMAT] = attr.read_format & 0x1F
            line[kernels.A_TYPE] = kind & 0xFFFFFFFF
            line[kernels.A_FLAGS] = (
                kernels.F_READ * bool(kind & kernels.S_READ)
                | kernels.F_CALLCHAIN * bool(kind & kernels.S_CALLCHAIN)
                | kernels.F_RAW * bool(kind & kernels.S_RAW)
                | kernels.F_SAMPLED * attr.sampled
            )
            line[kernels.A_TID] = _fixed_offset(kind, kernels.S_TID)
            line[kernels.A_TIME] = _fixed_offset(kind, kernels.S_TIME)
            line[kernels.A_CPU] = _fixed_offset(kind, kernels.S_CPU)
            line[kernels.A_VAR] = _fixed_offset(kind, 0)
            if attr.sample_id_all:
                line[kernels.T_TIME] = _trailer_offset(kind, kernels.S_TIME)
                line[kernels.T_CPU] = _trailer_offset(kind, kernels.S_CPU)
                line[kernels.T_SIZE] = _trailer_offset(kind, 0)
        self.table: npt.NDArray[np.int64] = table
        values = [attr.ids.astype(np.int64) for attr in attrs]
        all_ids = np.concatenate(values)
        bits = max(4, int(2 * len(all_ids)).bit_length())
        self.ids = np.full((1 << bits, 3), -1, np.int64)
        owners = np.repeat(np.arange(len(attrs), dtype=np.int64), [len(v) for v in values])
        kernels.fill_ids(self.ids, all_ids, owners)

        self.plain, self.attr_of_id = self._plain(all_ids, owners)

    def _plain(
        self, ids: npt.NDArray[np.int64], owners: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The layout that most attrs have, and which ids are of it, as ``scan`` takes them.

        RAW data right behind the fixed part, a time, a CPU and a TID, every event recorded. perf
        gives its ids in a row; where they are scattered there is no such table.
        """
        places = [kernels.A_TIME, kernels.A_CPU, kernels.A_TID, kernels.A_VAR, kernels.A_FLAGS]
        found = self.table[:, places]
        fits = (found[:, :4] >= 0).all(axis=1) & (found[:, 4] == kernels.F_RAW)
        plain = np.full(kernels.N_PLAIN, -1, np.int64)
        attr_of_id = np.full(1, -1, np.int32)
        if (self.id_at < 0 and len(self.attrs) > 1) or not fits.any():
            return plain, attr_of_id
        layouts, which, counts = np.unique(
            found[fits], axis=0, return_inverse=True, return_counts=True
        )
        fits[fits] = which.ravel() == counts.argmax()
        time, cpu, tid, raw = layouts[counts.argmax(), :4].tolist()
        lowest = 0
        if self.id_at < 0:
            attr_of_id[0] = 0
        else:
            mine = ids[fits[owners]]
            if not len(mine):
                return plain, attr_of_id
            lowest, span = int(mine.min()), int(mine.max()) - int(mine.min()) + 1
            if span > _ID_SPAN:
                return plain, attr_of_id
            attr_of_id = np.full(span, -1, np.int32)
            near = (ids >= lowest) & (ids <= mine.max())
            # of an id that two attrs claim the first one counts, as in the hash
            attr_of_id[ids[near][::-1] - lowest] = np.where(fits, np.arange(len(fits)), -1)[
                owners[near][::-1]
            ]
        plain[kernels.P_ID] = self.id_at
        plain[kernels.P_TIME] = time
        plain[kernels.P_CPU] = cpu
        plain[kernels.P_TID] = tid
        plain[kernels.P_RAW] = raw
        plain[kernels.P_LOWEST] = lowest
        plain[kernels.P_SIZE] = max(raw + 4, self.id_at + 8)
        return plain, attr_of_id

    def slot(self, ident: int) -> int:
        """Slot of an id, -1 when unknown."""
        return int(kernels.find_id(self.ids, np.int64(ident - (1 << 64) * (ident >> 63))))


@dataclass
class Rows:
    """Sorted rows, as the payload kernel takes them: only ``order`` of the arrays count."""

    ts: npt.NDArray[np.int64]
    cpu: npt.NDArray[np.int32]
    off: npt.NDArray[np.int64]
    length: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    order: npt.NDArray[np.int64]
    #: In which ``off`` counts.
    buf: npt.NDArray[np.uint8]


class Sink(Protocol):
    """What takes decoded rows without a way through Python."""

    def rebase(self, buf: npt.NDArray[np.uint8]) -> None:
        """Take payloads from this buffer from now on."""

    def room(self) -> tuple[Any, ...]:
        """Columns to write to, the decoder's state, and the arguments of its kernel."""

    def settle(self, scan: Scan) -> None:
        """Take over what lies in the current buffer only; called before it changes."""


_Column = TypeVar("_Column", npt.NDArray[np.int64], npt.NDArray[np.int32])


def _bigger(old: _Column, rows: int) -> _Column:
    new = np.empty(rows, old.dtype)
    new[: len(old)] = old
    return new


class Scan:
    """One pass over the records; the rows come out in the order of time.

    The records are read where they lie in the file as long as that can be. From the first one on
    that cannot (packed, split, of another byte order, one of several files) they are laid into
    an :class:`~traceana.parsers.perf_stream.Arena`; a batch says in which buffer its rows lie.

    Parameters
    ----------
    buf : uint8[:] read-only
    header : PerfHeader
    attrs : AttrTable
    row_of_attr : int64[n]      row per attr, -1: not wanted
    row_of_type : int32[65536]  common_type to row, for samples of an unknown id
    bare : int64[n, 5] or None  rows per attr for records without RAW data: samples of the
                                attr, and SWITCH records out, in, wide out, wide in
    parts : list of (name, uint8[:])   files of a folder: bare records of one ring each
    marks : bool                tell LOST rows, names and thread groups
    sink : Sink or None         takes whole rounds; a batch without rows then says that it is full.
                                Not for ``parts``, and only for RAW data of little endian
    """

    def __init__(
        self,
        buf: npt.NDArray[np.uint8],
        header: PerfHeader,
        attrs: AttrTable,
        row_of_attr: npt.NDArray[np.int64],
        row_of_type: npt.NDArray[np.int32],
        *,
        marks: bool,
        target: int = TARGET_ROWS,
        bare: npt.NDArray[np.int64] | None = None,
        parts: Sequence[tuple[str, npt.NDArray[np.uint8]]] = (),
        sink: Sink | None = None,
    ) -> None:
        self._sink = sink
        self._buf = buf
        self._end = header.data_end
        self._attrs = attrs
        self._table = attrs.table.copy()
        self._table[:, kernels.A_ROW] = row_of_attr
        if bare is not None:
            wanted = bare[:, 0] >= 0
            self._table[wanted, kernels.A_ROW] = bare[wanted, 0]
            self._table[wanted, kernels.A_FLAGS] |= kernels.F_BARE
            self._table[:, kernels.W_OUT : kernels.W_WIDE_IN + 1] = bare[:, 1:]
        self._ids = attrs.ids.copy()
        self._row_of_type = row_of_type
        self._marks = marks
        self._target = target
        self._order_of_bytes = header.order
        self._form = kernels.FORM_PIPE * header.pipe + kernels.FORM_SIMPLEPERF * header.simpleperf
        self._arena: Arena | None = None
        self._segments: deque[Segment] = deque()
        self._segment: Segment | None = None
        self._laid: list[Segment] = []
        #: Several rings, each in the order of time: their marks count, not those in the files.
        self._several = bool(parts)
        self.counts = np.zeros(len(attrs.attrs), np.int64)
        self.type_counts = np.zeros(1 << 16, np.int64)
        self.records = np.zeros(256, np.int64)
        self.lost = np.zeros((kernels.CPU_LIMIT + 1, 3), np.int64)
        self._seen = np.zeros((kernels.CPU_LIMIT + 1, 4), np.int64)
        self.state = np.zeros(kernels.N_STATE, np.int64)
        self.state[kernels.ST_OFF] = header.data_start
        self.state[kernels.ST_FORM] = self._form
        #: File of the folder ("": the only one), offset, and what ended the reading there.
        self.damages: list[tuple[str, int, str]] = []
        self.max_ts = 0
        self.state[kernels.ST_EMITTED] = NULL_I64
        self._bad_told = False
        #: COMM, FORK and LOST_SAMPLES records, for :class:`~traceana.parsers.perf_names.NameLog`.
        self.misc: list[bytes] = []
        self.tgids: list[tuple[int, int, int]] = []
        self._misc = np.zeros(4096, np.int64)
        self._tgids = np.zeros((4096, 3), np.int64)
        self._tgid_of = np.zeros(kernels.PID_LIMIT if marks else 1, np.int32)
        self._ts = np.empty(0, np.int64)
        self._cpu = np.empty(0, np.int32)
        self._off = np.empty(0, np.int64)
        self._length = np.empty(0, np.int32)
        self._row = np.empty(0, np.int32)
        self._grow(max(64, target + target // 4))
        if parts or header.order == ">":
            self._use_arena(
                [self._stream(buf, header.data_start, header.data_end, "data" if parts else "")]
                + [self._stream(part, 0, len(part), name) for name, part in parts]
            )

    def _stream(self, buf: npt.NDArray[np.uint8], start: int, end: int, name: str) -> Stream:
        return Stream(buf, start, end, self._order_of_bytes, self._form, name)

    def _use_arena(self, streams: list[Stream]) -> None:
        self._arena = Arena(streams, self._buf, self._attrs, self._order_of_bytes)
        self.state[kernels.ST_OFF] = self._end = 0

    def _grow(self, rows: int) -> None:
        if rows >= _MOST_ROWS:
            raise MemoryError
        self._ts = _bigger(self._ts, rows)
        self._cpu = _bigger(self._cpu, rows)
        self._off = _bigger(self._off, rows)
        self._length = _bigger(self._length, rows)
        self._row = _bigger(self._row, rows)
        self._sort: list[npt.NDArray[Any]] = [np.empty(rows, np.int64) for _ in range(3)]
        self._sort.append(np.empty(1 << WIDEST, np.int32))

    @property
    def offsets(self) -> list[int]:
        """How far each file is read: the capture, then those of ``parts``."""
        if self._arena is None:
            return [int(self.state[kernels.ST_OFF])]
        return [stream.at for stream in self._arena.streams]

    @property
    def offset(self) -> int:
        """Bytes of the files done."""
        return sum(self.offsets)

    def file_offset(self, at: int) -> int:
        """Where in its file a place of the current buffer comes from (of packed data: about)."""
        if not self._laid:
            return at
        inside = (s for s in self._laid if s.start <= at < s.end)
        return next(inside, self._laid[0]).file_offset(at)

    def id_cpu(self, ident: int) -> int:
        """CPU of an id by the ID_INDEX records seen so far, -1 when not told."""
        slot = self._attrs.slot(ident)
        return -1 if slot < 0 else int(self._ids[slot, 2])

    def _drain(self) -> None:
        st = self.state
        for at in self._misc[: int(st[kernels.ST_MISC])].tolist():
            size = int(self._buf[at + 6]) | int(self._buf[at + 7]) << 8
            self.misc.append(self._buf[at : at + size].tobytes())
        self.tgids += map(tuple, self._tgids[: int(st[kernels.ST_TGIDS])].tolist())
        st[kernels.ST_MISC] = st[kernels.ST_TGIDS] = 0

    @property
    def late(self) -> int:
        """Rows that came after later ones had been given out."""
        return int(self.state[kernels.ST_LATE])

    def _run(self) -> int:
        """Read on in the current buffer; why it stopped."""
        attrs, st = self._attrs, self.state
        place = (self._buf, np.int64(self._end), np.int64(self._target))
        scanning = (
            np.int64(attrs.id_at), np.int64(attrs.id_back), np.int64(attrs.same_types),
            self._table, self._ids, attrs.plain, attrs.attr_of_id, self._row_of_type,
            np.int64(self._marks),
        )  # fmt: skip
        rows = (self._ts, self._cpu, self._off, self._length, self._row)
        noted = (
            self._misc, self._tgids, self._tgid_of, self.lost, self._seen, self.counts,
            self.type_counts, self.records,
        )  # fmt: skip
        if self._sink is not None:
            self._sink.rebase(self._buf)
        while True:
            if self._sink is None:
                why = int(kernels.scan(*place, *scanning, *rows, *noted, st))
            else:
                room = self._sink.room()
                why = int(take_rows(*place, scanning, *rows, noted, st, *self._sort, *room))
                self._sink.settle(self)
            self._drain()
            if why not in (kernels.MISC_FULL, kernels.TGIDS_FULL, NAMES_FULL):
                break
        if st[kernels.ST_FIRST_BAD] and not self._bad_told:
            self._bad_told = True
            st[kernels.ST_FIRST_BAD] = self.file_offset(int(st[kernels.ST_FIRST_BAD]))
        return why

    def _next_segment(self) -> bool:
        """Go on with the next run of records that lies in the arena, if any."""
        st = self.state
        if self._several and self._segment is not None:
            stream = self._segment.stream
            stream.last = max(stream.last, int(st[kernels.ST_MAX]))
            self.max_ts = max(self.max_ts, stream.last)
        if not self._segments:
            return False
        self._segment = self._segments.popleft()
        st[kernels.ST_OFF] = self._segment.start
        self._end = self._segment.end
        if self._several:
            st[kernels.ST_MAX] = 0
            st[kernels.ST_LAST_TS] = self._segment.stream.last
        return True

    def _load(self) -> bool:
        """Lay the next pieces into the arena; False when all is read."""
        arena = self._arena
        if arena is None:
            return False
        n = int(self.state[kernels.ST_ROWS])
        self._laid = arena.load(self._off, self._length, self._row, n) or self._laid
        self._segments.extend(self._laid if self._buf is not arena.buf else ())
        self._buf = arena.buf
        return self._next_segment()

    def _limit(self) -> int:
        """Up to which time all is read."""
        if self._several and self._arena is not None:
            lasts = [s.last for s in self._arena.streams if not s.done]
            return min(lasts) - 1 if lasts else 0
        return int(self.state[kernels.ST_LIMIT])

    def batches(self) -> Iterator[Rows]:
        """All rows, in batches; the arrays are used again for the next one."""
        st = self.state
        while True:
            why = self._run()
            if why == kernels.SPECIAL:
                # From here on it cannot be read in place.
                at = int(st[kernels.ST_OFF])
                self._use_arena([self._stream(self._buf, at, self._end, "")])
                why = kernels.END
            n = int(st[kernels.ST_ROWS])
            if why == CHUNK_FULL:
                yield self._rows(self._sort[0][:0])
                continue
            if why == kernels.FULL:
                small = len(self._ts) < _ROOM * self._target
                if small or self._sortable(n) < n // 2 or not n:
                    self._grow(2 * len(self._ts))
                    continue
                yield from self._give(n, self._limit())
                continue
            if why == kernels.ROUND:
                if not self._several:
                    yield from self._give(n, self._limit())
                continue
            if self._arena is None:
                self._finish(why)
            elif self._next_segment():
                continue
            else:
                if n >= self._target:
                    yield from self._give(n, self._limit())
                if self._load():
                    continue
                self.damages += [(s.name, *s.damage) for s in self._arena.streams if s.damage]
            self.max_ts = max(self.max_ts, int(st[kernels.ST_MAX]))
            yield from self._give(self._place_rest(int(st[kernels.ST_ROWS])), 1 << 62)
            return

    def _rows(self, order: npt.NDArray[np.int64]) -> Rows:
        return Rows(self._ts, self._cpu, self._off, self._length, self._row, order, self._buf)

    def _give(self, n: int, limit: int) -> Iterator[Rows]:
        """The rows up to a time, sorted; the others move to the front."""
        if not n:
            return
        order, st = self._order(n, limit), self.state
        ts = self._ts
        if len(order):
            emitted = int(st[kernels.ST_EMITTED])
            if int(ts[order[0]]) < emitted:
                st[kernels.ST_LATE] += np.count_nonzero(ts[order] < emitted)
            st[kernels.ST_EMITTED] = max(emitted, int(ts[order[-1]]))
            yield self._rows(order)
        st[kernels.ST_ROWS] = keep_later(
            np.int64(limit), np.int64(n), ts, self._cpu, self._off, self._length, self._row
        )

    def _sortable(self, n: int) -> int:
        """How many rows could be given out now."""
        return int(np.count_nonzero(self._ts[:n] <= self._limit()))

    def _order(self, n: int, limit: int) -> npt.NDArray[np.int64]:
        """Indices of those of the first n rows that are up to ``limit``, in their order."""
        ready = int(order_by_time(self._ts, np.int64(n), np.int64(limit), *self._sort))
        order = self._sort[0][:ready]
        if self._several:
            # of files that were not read at the same pace the lower CPU comes first
            ordered, cpus = self._ts[order], self._cpu[order]
            if ((ordered[1:] == ordered[:-1]) & (cpus[1:] < cpus[:-1])).any():
                order[:] = order[np.lexsort((cpus, ordered))]
        return order

    def _finish(self, why: int) -> None:
        at = int(self.state[kernels.ST_OFF])
        if why == kernels.BAD_SIZE:
            size = int(self._buf[at + 6]) | int(self._buf[at + 7]) << 8
            self.damages.append(("", at, f"record of size {size}"))
        elif why == kernels.CUT:
            self.damages.append(("", at, "the last record is cut"))

    def _place_rest(self, n: int) -> int:
        """LOST rows for losses after which their CPU had no sample any more."""
        if not self._marks:
            return n
        for index in np.flatnonzero(self.lost[:, 0]).tolist():
            cpu = index if index < kernels.CPU_LIMIT else -1
            n = self._add_lost(n, max(int(self.lost[index, 1]), 0), cpu, int(self.lost[index, 0]))
            self.lost[index, 0] = 0
        return n

    def _add_lost(self, n: int, ts: int, cpu: int, count: int) -> int:
        if n >= len(self._ts):
            self._grow(2 * len(self._ts))
        self._ts[n], self._cpu[n], self._off[n] = ts, cpu, count
        self._length[n], self._row[n] = 0, ROW_LOST
        return n + 1
