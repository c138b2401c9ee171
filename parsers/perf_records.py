"""The record stream of a perf.data file: whose a record is, one pass over it, names in it.

:class:`AttrTable` tells to which attr a record belongs and where its fields stand;
:class:`Scan` walks the data section and gives rows in the order of time; :class:`NameLog`
reads the rare records (COMM, FORK, sums of losses) that the pass only notes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from traceana.columns import NULL_I64, NameChange
from traceana.parsers import _perf_kernels as kernels
from traceana.parsers.payload import ROW_LOST
from traceana.parsers.perf_header import Attr, PerfHeader
from traceana.schema import Evidence

__all__ = ["TARGET_ROWS", "AttrTable", "NameLog", "Rows", "Scan"]

#: Rows between two sorts: some MB of records, still in the caches when they are decoded.
TARGET_ROWS = 1 << 15
_MISC_BPF_DROPPED = 1 << 15
_COMM_MAX = 15


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
            line[kernels.A_FLAGS] = (
                kernels.F_READ * bool(kind & kernels.S_READ)
                | kernels.F_CALLCHAIN * bool(kind & kernels.S_CALLCHAIN)
                | kernels.F_RAW * bool(kind & kernels.S_RAW)
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
    #: Everything up to this time has been given out, this batch included.
    until: int


_Column = TypeVar("_Column", npt.NDArray[np.int64], npt.NDArray[np.int32])


def _bigger(old: _Column, rows: int) -> _Column:
    new = np.empty(rows, old.dtype)
    new[: len(old)] = old
    return new


class Scan:
    """One pass over the data section; the rows come out in the order of time."""

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
    ) -> None:
        self._buf = buf
        self._end = header.data_end
        self._attrs = attrs
        self._table = attrs.table.copy()
        self._table[:, kernels.A_ROW] = row_of_attr
        self._ids = attrs.ids.copy()
        self._row_of_type = row_of_type
        self._marks = marks
        self._target = target
        self.counts = np.zeros(len(attrs.attrs), np.int64)
        self.type_counts = np.zeros(1 << 16, np.int64)
        self.records = np.zeros(256, np.int64)
        self.lost = np.zeros((kernels.CPU_LIMIT + 1, 3), np.int64)
        self.state = np.zeros(kernels.N_STATE, np.int64)
        self.state[kernels.ST_OFF] = header.data_start
        self.late = 0
        #: Offset at which damage ended the pass, and what it was.
        self.damage: tuple[int, str] | None = None
        self.misc: list[int] = []
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

    def _grow(self, rows: int) -> None:
        self._ts = _bigger(self._ts, rows)
        self._cpu = _bigger(self._cpu, rows)
        self._off = _bigger(self._off, rows)
        self._length = _bigger(self._length, rows)
        self._row = _bigger(self._row, rows)
        self._sort = [np.empty(rows, np.int64) for _ in range(4)]

    @property
    def offset(self) -> int:
        return int(self.state[kernels.ST_OFF])

    def id_cpu(self, ident: int) -> int:
        """CPU of an id by the ID_INDEX records seen so far, -1 when not told."""
        slot = self._attrs.slot(ident)
        return -1 if slot < 0 else int(self._ids[slot, 2])

    def _drain(self) -> None:
        st = self.state
        self.misc += self._misc[: int(st[kernels.ST_MISC])].tolist()
        self.tgids += map(tuple, self._tgids[: int(st[kernels.ST_TGIDS])].tolist())
        st[kernels.ST_MISC] = st[kernels.ST_TGIDS] = 0

    def batches(self) -> Iterator[Rows]:
        """All rows, in batches; the arrays are used again for the next one."""
        st = self.state
        emitted = NULL_I64
        while True:
            why = kernels.scan(
                self._buf, self._end, self._target, self._attrs.id_at, self._attrs.id_back,
                int(self._attrs.same_types), self._table, self._ids, self._row_of_type,
                int(self._marks), self._ts, self._cpu, self._off, self._length, self._row,
                self._misc, self._tgids, self._tgid_of, self.lost, self.counts,
                self.type_counts, self.records, st,
            )  # fmt: skip
            self._drain()
            if why in (kernels.MISC_FULL, kernels.TGIDS_FULL):
                continue
            n = int(st[kernels.ST_ROWS])
            if why == kernels.FULL:
                if st[kernels.ST_ROUNDS] == 0 or self._sortable(n) < n // 2:
                    self._grow(2 * len(self._ts))
                    continue
            elif why != kernels.ROUND:
                self._finish(why)
                n = self._place_rest(n)
            last = why not in (kernels.ROUND, kernels.FULL)
            limit = (1 << 62) if last else int(st[kernels.ST_LIMIT])
            if n:
                ready = self._order(n, limit)
                order = self._sort[0]
                ts = self._ts
                if ready:
                    first = int(ts[order[0]])
                    if first < emitted:
                        self.late += int(np.count_nonzero(ts[order[:ready]] < emitted))
                    emitted = max(emitted, int(ts[order[ready - 1]]))
                    yield Rows(
                        ts, self._cpu, self._off, self._length, self._row, order[:ready], emitted
                    )
                rest = order[ready:n]
                self._ts[: n - ready] = self._ts[rest]
                self._cpu[: n - ready] = self._cpu[rest]
                self._off[: n - ready] = self._off[rest]
                self._length[: n - ready] = self._length[rest]
                self._row[: n - ready] = self._row[rest]
                st[kernels.ST_ROWS] = n - ready
            if last:
                return

    def _sortable(self, n: int) -> int:
        """How many rows could be given out now."""
        return int(np.count_nonzero(self._ts[:n] <= self.state[kernels.ST_LIMIT]))

    def _order(self, n: int, limit: int) -> int:
        """Sort the first n rows into ``_sort[0]``; how many of them are up to ``limit``."""
        kernels.order_by_time(self._ts, n, *self._sort)
        ordered = self._ts[self._sort[0][:n]]
        return int(np.searchsorted(ordered, limit, side="right"))

    def _finish(self, why: int) -> None:
        at = self.offset
        if why == kernels.BAD_SIZE:
            size = int(self._buf[at + 6]) | int(self._buf[at + 7]) << 8
            self.damage = (at, f"record of size {size}")
        elif why == kernels.CUT:
            self.damage = (at, "the last record is cut")
        elif why == kernels.COMPRESSED:
            self.damage = (at, "compressed record")

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


class NameLog:
    """Names and thread groups from COMM and FORK records and from the TIDs of samples."""

    def __init__(self, buf: npt.NDArray[np.uint8], attrs: AttrTable, scan: Scan) -> None:
        self._buf = buf
        self._attrs = attrs
        self._scan = scan
        self._pending: list[NameChange] = []
        #: (cpu, count) of LOST_SAMPLES records that tell a sum.
        self.lost_samples: list[tuple[int, int]] = []

    def _trailer(self, record: bytes, least: int) -> tuple[int, int]:
        """(time, id) of a record's sample_id trailer; 0, 0 where it has none."""
        attrs = self._attrs
        back = attrs.id_back
        slot = -1
        ident = 0
        if back > 0 and len(record) >= least + back:
            (ident,) = struct.unpack_from("<Q", record, len(record) - back)
            slot = attrs.slot(ident)
        # records that perf itself made up have the id 0: the first attr is meant
        line = attrs.table[attrs.ids[slot, 1] if slot >= 0 else 0]
        at, size = int(line[kernels.T_TIME]), int(line[kernels.T_SIZE])
        if at < 0 or len(record) < least + size:
            return 0, ident
        (time,) = struct.unpack_from("<Q", record, len(record) - at)
        return (int(time) if time < kernels.TS_LIMIT else 0), ident

    def collect(self) -> None:
        """Take over what the scan has met since the last call."""
        for tid, tgid, ts in self._scan.tgids:
            self._pending.append(NameChange(tid, tgid, None, ts))
        self._scan.tgids.clear()
        for at in self._scan.misc:
            kind, misc, size = struct.unpack("<IHH", self._buf[at : at + 8].tobytes())
            record = self._buf[at : at + size].tobytes()
            if kind == kernels.R_COMM and size >= 24:
                self._comm(record)
            elif kind == kernels.R_FORK and size >= 32:
                pid, _, tid, _, time = struct.unpack_from("<4IQ", record, 8)
                if 0 < tid < kernels.PID_LIMIT:
                    known = 0 < time < kernels.TS_LIMIT
                    self._pending.append(
                        NameChange(tid, pid, None, time if known else None, Evidence.FORK)
                    )
            elif kind == kernels.R_LOST_SAMPLES and size >= 16 and not misc & _MISC_BPF_DROPPED:
                self._lost_samples(record)
        self._scan.misc.clear()

    def _comm(self, record: bytes) -> None:
        pid, tid = struct.unpack_from("<II", record, 8)
        comm = record[16:].split(b"\0", 1)[0]
        if not 0 < tid < kernels.PID_LIMIT or not comm or comm == b"<...>":
            return
        # the text is padded so that the trailer stands at a multiple of 8
        ts, _ = self._trailer(record, 16 + (len(comm) + 8) // 8 * 8)
        tgid = pid if 0 < pid < kernels.PID_LIMIT else None
        self._pending.append(NameChange(tid, tgid, comm[:_COMM_MAX], ts or None, Evidence.HEADER))

    def _lost_samples(self, record: bytes) -> None:
        (count,) = struct.unpack_from("<Q", record, 8)
        _, ident = self._trailer(record, 16)
        if 0 < count < kernels.TS_LIMIT:
            self.lost_samples.append((self._scan.id_cpu(ident), count))

    def merged(self, names: list[NameChange], until: int | None) -> list[NameChange]:
        """These names and the collected ones up to a time, in its order."""
        ready, later = [], []
        for change in self._pending:
            if until is None or change.ts is None or change.ts <= until:
                ready.append(change)
            else:
                later.append(change)
        self._pending = later
        if not ready:
            return names
        return sorted(names + ready, key=lambda c: -1 if c.ts is None else c.ts)
