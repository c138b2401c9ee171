"""perf.data (``perf record``, simpleperf): samples of tracepoints with RAW data.

Records lie in runs, one per ring; the samples of all CPUs are ordered by their TIME, ties by
their place in the file. perf marks rounds: what was recorded before one FINISHED_ROUND may be
put out up to the greatest time seen before the mark ahead of it, so memory is bounded by the
rings, not by the file. Without marks the index of the whole file is sorted.

Which attr a sample belongs to is told by its IDENTIFIER or ID (:class:`AttrTable`), what its
RAW bytes mean by the event formats that perf copied from tracefs. A LOST record becomes a LOST
row before the CPU's next sample: the kernel writes it there, with a time that is later than the
sample's.

All forms are read: file and pipe mode, ``-z``, the folder of ``--threads`` (``perf_folder``), the
other byte order, version 1, and simpleperf's variant. What cannot be read in place goes through
``perf_stream``; what lacks sched_switch with its data, through ``perf_bare``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import topology
from traceana.columns import Chunk, EventColumns, NameChange
from traceana.errors import FormatError, TruncatedError, UnsupportedError, UsageError
from traceana.issues import IssueLog
from traceana.output import escape
from traceana.parsers import _perf_kernels as kernels
from traceana.parsers.formats import EventFormat
from traceana.parsers.payload import Layouts, as_bytes, extract
from traceana.parsers.perf_bare import CONTEXT_SWITCH, BareSwitches
from traceana.parsers.perf_chunks import CHUNK_ROWS, ChunkMaker
from traceana.parsers.perf_facts import event_name, make_meta, say_what_is_missing
from traceana.parsers.perf_features import TracingData, parse_features, parse_tracing_data
from traceana.parsers.perf_header import TYPE_TRACEPOINT, Attr, magic_of, parse_header
from traceana.parsers.perf_names import NameLog
from traceana.parsers.perf_outcome import (
    count_losses,
    say_switches,
    say_what_was_wrong,
    tail_losses,
)
from traceana.parsers.perf_pages import Pages
from traceana.parsers.perf_pipe import is_pipe, parse_pipe, tracing_record
from traceana.parsers.perf_records import TARGET_ROWS, AttrTable, Scan, Sink
from traceana.parsers.reader import Lost
from traceana.schema import EventKind, Evidence

__all__ = ["PerfDataReader", "open_perf_data"]

#: In pipe mode perf's last words to the terminal may stand behind the last record.
_PERF_SAYS = b"[ perf record: "
_FLAG_CGROUP = ("-G", "--cgroup", "--for-each-cgroup")


def open_perf_data(path: Path, buf: Any) -> PerfDataReader:
    """A reader of a perf.data file, in file mode or pipe mode.

    Parameters
    ----------
    path : Path
        For messages.
    buf : bytes or read-only mmap
        The whole content, unwrapped.

    Raises
    ------
    TruncatedError, FormatError
        Header, attrs or formats cannot be read.
    UnsupportedError
        A perf.data that cannot be read alone, and why.
    """
    magic = bytes(buf[:8])
    if magic_of(buf) is None:
        if len(buf) < 8 and magic and b"PERFILE2".startswith(magic):
            raise TruncatedError(
                path, f"perf.data of {len(buf)} bytes, cut inside its header of 104"
            )
        raise FormatError(path, "not a perf.data file")
    return PerfDataReader(path, buf)


class PerfDataReader:
    """One perf.data file; see :class:`traceana.parsers.reader.Reader`.

    A file without any tracepoint opens, too: ``meta.extra["no_tracepoints"]`` and the issue
    of this name then say in one line what it holds instead, and why.

    Parameters
    ----------
    path, buf
        See :func:`open_perf_data`.
    target_rows, chunk_rows : int
        Rows between two sorts, and of a chunk at most.
    parts : list of (name, buf)
        The files data.N of a folder; ``buf`` is then its file data.
    """

    def __init__(
        self,
        path: Path,
        buf: Any,
        *,
        target_rows: int = TARGET_ROWS,
        chunk_rows: int = CHUNK_ROWS,
        parts: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self.path = path
        self._raw = buf
        self._buf = as_bytes(buf)
        self._target = target_rows
        self._chunk_rows = chunk_rows
        self._said = IssueLog()
        self._raw_parts = [part for _, part in parts]
        self._parts = [(name, as_bytes(part)) for name, part in parts]
        self._size = len(buf) + sum(len(part) for _, part in parts)
        parse = parse_pipe if is_pipe(buf) else parse_header
        self._header = parse(path, buf, self._said)
        self._features = parse_features(buf, self._header, self._said)
        self._refuse_folder()
        self._tracing = self._read_tracing_data()
        self._format_of = {}
        for fmt in reversed(self._tracing.formats):
            self._format_of[fmt.id] = fmt
        self._attrs = AttrTable(self._header.attrs)
        if not self._attrs.readable:
            raise FormatError(
                path, "its events have different sample types and no id to tell them apart"
            )
        self._big = self._tracing.big_endian
        self._bare = self._bare_switches()
        formats = self._recorded_formats()
        self._layouts = Layouts(formats + self._bare.formats, big_endian=self._big)
        if self._bare.formats:
            self._layouts.states = self._bare.states()
            self._layouts.states_told = True
        self.meta = make_meta(
            self._header,
            self._features,
            [event_name(a, self._format(a)) for a in self._header.attrs],
            self._said,
            folder=bool(self._parts),
        )
        say_what_is_missing(
            self._header.attrs, self._format, self.meta, self._said,
            bare_switches=self._bare.samples,
        )  # fmt: skip
        self._topology: pa.Table | None = None
        self._topology_read = False
        self._done = 0
        self.damaged = False
        self._reset()

    # ------------------------------------------------------------ opening

    def _refuse_folder(self) -> None:
        """A folder's file data alone holds no samples; one of a later version may be anything."""
        version = self._features.dir_version
        if version is None:
            return
        if version != 1:
            raise UnsupportedError(
                self.path, f"a folder of perf record --threads of version {version}: not known"
            )
        if not self._parts:
            raise UnsupportedError(
                self.path,
                "only the file data of a folder of perf record --threads",
                hint="give the folder, or a tar archive of it",
            )

    def _bare_switches(self) -> BareSwitches:
        """What stands in for sched_switch where it was not recorded with its data."""
        attrs = self._header.attrs
        names = {fmt.name for fmt in self._recorded_formats()}
        with_data = "sched_switch" in names
        sampled = any((a.name or "").startswith("sched:sched_switch") for a in attrs)
        # What the records hold is turned to little endian, RAW data are not: one decoder, one order
        lacking = not with_data and not self._big
        return BareSwitches(
            attrs,
            self._attrs.table,
            self._format_of,
            samples=lacking,
            switch_records=(
                lacking and not sampled and any(a.flags & CONTEXT_SWITCH for a in attrs)
            ),
        )

    def _read_tracing_data(self) -> TracingData:
        blob = None
        if self._header.simpleperf:
            blob = tracing_record(self._raw, self._header)
        place = self._header.features.get(1)
        if place is not None:
            offset, size = place
            blob = bytes(self._raw[offset : offset + size])
        if blob is not None:
            try:
                return parse_tracing_data(blob)
            except (ValueError, struct.error) as error:
                found = f"offset {place[0]:#x}: " if place else ""
                self._said.add("parse", "feature_unreadable", f"{found}{error}")
        tracepoints = [a for a in self._header.attrs if a.type == TYPE_TRACEPOINT]
        bare = any(
            (a.name or "").startswith("sched:sched_switch") and not a.sample_type & kernels.S_RAW
            for a in tracepoints
        )
        if tracepoints and not bare:
            where = self._header.data_end
            if self._header.unfinished or self._header.cut:
                raise TruncatedError(
                    self.path,
                    "perf.data whose recording was not finished: the descriptions of its events, "
                    "which perf writes last, are missing",
                    offset=where,
                    hint="stop perf record with Ctrl-C and let it write the file",
                )
            raise UnsupportedError(
                self.path,
                "perf.data without the descriptions of its tracepoints (no TRACING_DATA)",
                hint="give the text of perf script, made where it was recorded",
            )
        return TracingData([], [], 0, 0, self._header.order == ">")

    def _recorded_formats(self) -> list[EventFormat]:
        """Formats of the tracepoints that were recorded with their data, each once."""
        out = {}
        for attr in self._header.attrs:
            fmt = self._format(attr)
            if fmt is not None and attr.sample_type & kernels.S_RAW:
                out[fmt.id] = fmt
        return list(out.values())

    def _format(self, attr: Attr) -> EventFormat | None:
        return self._format_of.get(attr.config) if attr.type == TYPE_TRACEPOINT else None

    # ------------------------------------------------------------ reading

    def _reset(self) -> None:
        self.counts: dict[str, int] = {}
        self._bare_rows = 0
        self.lost = Lost()
        self.issues = IssueLog()
        self.issues.extend(self._said)

    def _rows_of(
        self, wanted: Callable[[EventFormat], int], issues: IssueLog
    ) -> npt.NDArray[np.int64]:
        """Row per attr, -1 for those not wanted; of a tracepoint recorded twice the first.

        Recorded per cgroup, the same tracepoint is several different events.
        """
        per_group = any(word.startswith(_FLAG_CGROUP) for word in self._features.cmdline)
        seen: set[int] = set()
        out = np.full(len(self._header.attrs), -1, np.int64)
        for index, attr in enumerate(self._header.attrs):
            fmt = self._format(attr)
            if fmt is None or not attr.sample_type & kernels.S_RAW:
                continue
            row = wanted(fmt)
            if row >= 0 and (per_group or fmt.id not in seen):
                out[index] = row
                seen.add(fmt.id)
            elif row >= 0:
                issues.add(
                    "parse", "event_recorded_twice", f"{fmt.name} was recorded twice: taken once"
                )
        return out

    def _layout_row(self, fmt: EventFormat) -> int:
        rows = self._layouts.row_of_id
        return int(rows[fmt.id]) if fmt.id < len(rows) else -1

    def _scan(self, rows: npt.NDArray[np.int64], *, marks: bool, sink: Sink | None = None) -> Scan:
        row_of_type = np.full(1 << 16, -1, np.int32)
        for attr, row in zip(self._header.attrs, rows.tolist(), strict=True):
            if row >= 0 and attr.config < 1 << 16:
                row_of_type[attr.config] = row
        return Scan(
            self._buf, self._header, self._attrs, rows, row_of_type,
            marks=marks, target=self._target, parts=self._parts, sink=sink,
            bare=self._bare.rows(self._layouts.row_of_id) if marks and self._bare.formats else None,
        )  # fmt: skip

    def chunks(self) -> Iterator[Chunk]:
        """Events of the known kinds, in the order of time."""
        self._reset()
        self.damaged = self._header.cut or self._header.unfinished
        if self.damaged:
            self.issues.add(
                "parse", "file_cut",
                f"offset {self._header.data_end:#x}: the file ends before its data does",
            )  # fmt: skip
        # A feature, behind the data, can only be cut where the file is.
        self.damaged |= "feature_cut" in self.issues.counts()
        rows = self._rows_of(self._layout_row, self.issues)
        decoder = ChunkMaker(self._buf, self._layouts, rows=self._chunk_rows)
        direct = not self._big and not self._parts
        scan = self._scan(rows, marks=True, sink=decoder if direct else None)
        mapped = [Pages(raw) for raw in (self._raw, *self._raw_parts)]
        # the payloads of a batch are still to be read when the scan is behind them
        before = scan.offsets
        names = NameLog(self._attrs, scan)
        cmdlines = [
            NameChange(pid, None, comm, None, Evidence.CMDLINES)
            for pid, comm in self._tracing.cmdlines
            if pid > 0 and comm != b"<...>"
        ]
        if cmdlines:
            yield Chunk(EventColumns.empty(0), cmdlines)
        for batch in scan.batches():
            for pages, done in zip(mapped, before, strict=True):
                pages.done(done)
            before = scan.offsets
            self._done = sum(before)
            names.collect()
            for chunk, until in decoder.add(batch, scan):
                yield self._named(chunk, until, names)
        for chunk, until in decoder.rest():
            yield self._named(chunk, until, names)
        names.collect()
        count_losses(scan, names, self.lost, self.issues)
        rest = tail_losses(scan, names)
        self.lost.marks += len(rest[0])
        if not (rows >= 0).any() and not self._bare.formats:
            rest = _no_rows()
        last_names = names.merged([], None)
        if last_names or len(rest[0]):
            tail = decoder.decode(*rest).events if len(rest[0]) else EventColumns.empty(0)
            yield Chunk(tail, last_names)
        self._done = self._size
        decoder.report(self.issues)
        self._conclude(scan)
        self._say_what_was_wrong(scan)

    def _named(self, chunk: Chunk, until: int, names: NameLog) -> Chunk:
        """The chunk with what became known of names up to its end."""
        if self._bare.formats:
            self._bare_rows += int(np.count_nonzero(chunk.events.kind == EventKind.SWITCH))
        chunk.names = names.merged(chunk.names, until)
        return chunk

    def _conclude(self, scan: Scan) -> None:
        """Counts and losses of a finished pass."""
        for attr, count in zip(self._header.attrs, scan.counts.tolist(), strict=True):
            if count:
                name = event_name(attr, self._format(attr))
                self.counts[name] = self.counts.get(name, 0) + count
        for ident in np.flatnonzero(scan.type_counts).tolist():
            fmt = self._format_of.get(ident)
            name = fmt.name if fmt is not None else f"event id {ident}"
            self.counts[name] = self.counts.get(name, 0) + int(scan.type_counts[ident])
        if self._bare_rows and not self._bare.samples:
            self.counts["sched_switch"] = self._bare_rows
        marks = self.lost.marks + int(scan.records[kernels.R_LOST])
        for index in np.flatnonzero(scan.lost[:, 2]).tolist():
            cpu = index if index < kernels.CPU_LIMIT else None
            count = int(scan.lost[index, 2])
            where = "an unknown cpu" if cpu is None else f"cpu {cpu}"
            self.lost.add(cpu, count)
            self.issues.add(
                "parse", "events_lost", f"{where}: {count} events lost",
                ts=int(scan.lost[index, 1]) or None, cpu=cpu, count=count,
            )  # fmt: skip
        self.lost.marks = marks

    def _say_what_was_wrong(self, scan: Scan) -> None:
        issues, st = self.issues, scan.state
        say_what_was_wrong(scan, issues)
        say_switches(scan, issues, self._bare_rows, samples=self._bare.samples)
        if st[kernels.ST_TASK_IDS] or scan.records[kernels.R_SWITCH] or self._one_process():
            text = (
                "recorded for some tasks only (perf record without -a): the other tasks and the "
                "idle time of CPUs are not in it"
            )
            if self.counts.get("sched_switch") and not self._bare_rows:
                text += ", and of sched_switch only where one of them left its CPU"
            issues.add("parse", "only_some_tasks", text)
        for name, at, what in scan.damages:
            if self._header.unfinished and at >= len(self._raw):
                continue
            if self._header.pipe and bytes(self._raw[at : at + len(_PERF_SAYS)]) == _PERF_SAYS:
                continue
            self.damaged = True
            end = (
                len(dict(self._parts)[name]) if name.startswith("data.") else self._header.data_end
            )
            file = f"{name}: " if name else ""
            issues.add(
                "parse", "record_damaged",
                f"{file}offset {at:#x}: {what}; the {end - at} bytes behind it are left out",
            )  # fmt: skip

    def _one_process(self) -> bool:
        """Whether the file says that only what perf itself started was recorded."""
        if self._header.simpleperf:
            return self._features.simpleperf.get("system_wide_collection") == "false"
        return any(a.enable_on_exec for a in self._header.attrs)

    def extra_events(self, name: str) -> pa.Table:
        """All events of one tracepoint (``sched_switch`` or ``sched:sched_switch``)."""
        system, _, bare = name.rpartition(":")
        formats = [
            fmt
            for fmt in self._recorded_formats()
            if fmt.name == bare and system in ("", fmt.system)
        ]
        if not formats:
            there = sorted({fmt.name for fmt in self._recorded_formats()})
            known = ", ".join(map(escape, there)) or "none"
            raise UsageError(f"{self.path}: no tracepoint {name!r}; there are: {known}")
        chosen = formats[0]
        rows = self._rows_of(lambda fmt: 0 if fmt.id == chosen.id else -1, IssueLog())
        scan = self._scan(rows, marks=False)
        tables = []
        for batch in scan.batches():
            order = batch.order
            tables.append(
                extract(
                    batch.buf, batch.ts[order], batch.cpu[order], batch.off[order],
                    batch.length[order], chosen, big_endian=self._big,
                )
            )  # fmt: skip
        if not tables:
            ts, cpu, off, length, _ = _no_rows()
            tables.append(extract(self._buf, ts, cpu, off, length, chosen, big_endian=self._big))
        return pa.concat_tables(tables)

    def topology(self) -> pa.Table | None:
        """The table from CPU_TOPOLOGY, NUMA_TOPOLOGY and CACHE, None where they are absent."""
        if not self._topology_read:
            self._topology_read = True
            header = self._features.topology
            if header is not None:
                said = IssueLog()
                self._topology = topology.from_perf_header(header, said)
                self._said.extend(said)
                self.issues.extend(said)
        return self._topology

    def progress(self) -> tuple[int, int]:
        return self._done, self._size


def _no_rows() -> tuple[npt.NDArray[Any], ...]:
    return tuple(np.empty(0, t) for t in (np.int64, np.int32, np.int64, np.int32, np.int32))
