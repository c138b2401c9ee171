"""perf.data in file mode (``perf record -o FILE``): samples of tracepoints with RAW data.

Records lie in runs, one per ring; the samples of all CPUs are ordered by their TIME, ties by
their place in the file. perf marks rounds: what was recorded before one FINISHED_ROUND may be
put out up to the greatest time seen before the mark ahead of it, so memory is bounded by the
rings, not by the file. Without marks the index of the whole file is sorted.

Which attr a sample belongs to is told by its IDENTIFIER or ID (:class:`AttrTable`), what its
RAW bytes mean by the event formats that perf copied from tracefs. A LOST record becomes a LOST
row before the CPU's next sample: the kernel writes it there, with a time that is later than the
sample's.

Not read yet: pipe mode, ``perf record -z``, directories, the other byte order, version 1 and
simpleperf files; each is refused by its name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import topology
from traceana.columns import Chunk, NameChange
from traceana.errors import FormatError, TruncatedError, UnsupportedError, UsageError
from traceana.issues import IssueLog
from traceana.parsers import _perf_kernels as kernels
from traceana.parsers.formats import EventFormat
from traceana.parsers.payload import ROW_LOST, Layouts, PayloadDecoder, as_bytes, extract
from traceana.parsers.perf_header import (
    TYPE_TRACEPOINT,
    Attr,
    TracingData,
    parse_features,
    parse_header,
    parse_tracing_data,
)
from traceana.parsers.perf_records import TARGET_ROWS, AttrTable, NameLog, Scan
from traceana.parsers.reader import Lost, ReaderMeta
from traceana.schema import Evidence

__all__ = ["PerfDataReader", "open_perf_data"]

_MAGIC = b"PERFILE2"
#: Rows of one chunk at most.
_CHUNK_ROWS = 1 << 20
_FLAG_CGROUP = ("-G", "--cgroup", "--for-each-cgroup")


_MISSING = {
    "no_format": "the file does not describe them, so they cannot be read",
    "no_raw": "recorded without their data (no RAW), so they cannot be read",
    "no_time": "recorded without time, left out",
    "events_sampled": "only some were recorded (a period or frequency was given; record with -c 1)",
}


def open_perf_data(path: Path, buf: Any) -> PerfDataReader:
    """A reader of a perf.data file.

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
        A kind of perf.data that is not read yet, by its name.
    """
    magic = bytes(buf[:8])
    if magic != _MAGIC[: len(magic)] or len(magic) < 8:
        _refuse_magic(path, magic, len(buf))
    if len(buf) >= 16 and struct.unpack_from("<Q", buf, 8)[0] == 16:
        raise UnsupportedError(
            path,
            "perf.data in pipe mode is not supported yet",
            hint="record with perf record -o FILE",
        )
    return PerfDataReader(path, buf)


def _refuse_magic(path: Path, magic: bytes, size: int) -> None:
    if magic == _MAGIC[::-1]:
        raise UnsupportedError(
            path,
            "perf.data of a machine of the other byte order is not supported yet",
            hint="give the text of perf script, made there",
        )
    if magic in (b"PERFFILE", b"ELIFFREP"):
        raise UnsupportedError(
            path, "perf.data of version 1 (perf before 3.x) is not supported yet"
        )
    if size < 8 and size and _MAGIC.startswith(magic):
        raise TruncatedError(path, f"perf.data of {size} bytes, cut inside its header of 104")
    raise FormatError(path, "not a perf.data file")


class PerfDataReader:
    """One perf.data file; see :class:`traceana.parsers.reader.Reader`.

    A file without any tracepoint opens, too: ``meta.extra["no_tracepoints"]`` and the issue
    of this name then say in one line what it holds instead, and why.
    """

    def __init__(self, path: Path, buf: Any, *, target_rows: int = TARGET_ROWS) -> None:
        self.path = path
        self._raw = buf
        self._buf = as_bytes(buf)
        self._target = target_rows
        self._said = IssueLog()
        self._header = parse_header(path, buf, self._said)
        self._refuse_kinds()
        self._features = parse_features(buf, self._header, self._said)
        self._tracing = self._read_tracing_data()
        self._format_of = {}
        for fmt in reversed(self._tracing.formats):
            self._format_of[fmt.id] = fmt
        self._attrs = AttrTable(self._header.attrs)
        self._layouts = Layouts(self._recorded_formats())
        self.meta = self._make_meta()
        self._say_what_is_missing()
        self._topology: pa.Table | None = None
        self._topology_read = False
        self._done = 0
        self.damaged = False
        self._reset()

    # ------------------------------------------------------------ opening

    def _refuse_kinds(self) -> None:
        bits = self._header.feature_bits
        if bits & {128, 129, 132}:
            raise UnsupportedError(self.path, "a simpleperf file is not supported yet")
        if 24 in bits:
            raise UnsupportedError(
                self.path, "a directory of perf record --threads is not supported yet"
            )
        if 27 in bits:
            raise self._compressed()

    def _compressed(self) -> UnsupportedError:
        return UnsupportedError(
            self.path,
            "a compressed perf.data (perf record -z) is not supported yet",
            hint="perf inject -i FILE -o OUT decompresses it",
        )

    def _read_tracing_data(self) -> TracingData:
        place = self._header.features.get(1)
        if place is not None:
            offset, size = place
            try:
                return parse_tracing_data(bytes(self._raw[offset : offset + size]))
            except (ValueError, struct.error) as error:
                self._said.add("parse", "feature_unreadable", f"offset {offset:#x}: {error}")
        if any(a.type == TYPE_TRACEPOINT for a in self._header.attrs):
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
        return TracingData([], [], 0, 0)

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

    def _name(self, attr: Attr) -> str:
        """Bare tracepoint name, or what perf calls the event."""
        fmt = self._format(attr)
        if fmt is not None:
            return fmt.name
        if attr.name and attr.type == TYPE_TRACEPOINT:
            return attr.name.partition(":")[2].partition(":")[0] or attr.name
        return attr.name or f"event type {attr.type} config {attr.config:#x}"

    def _make_meta(self) -> ReaderMeta:
        said = self._features
        clocks = sorted({a.clock for a in self._header.attrs})
        if len(clocks) > 1:
            self._said.add("parse", "several_clocks", f"events of several clocks: {clocks}")
        extra: dict[str, object] = {
            "events": [self._name(a) for a in self._header.attrs],
        }
        for key in ("cpudesc", "cpuid", "total_mem_kb", "clock_resolution_ns", "sample_time"):
            if getattr(said, key) is not None:
                extra[key] = getattr(said, key)
        if said.clock_data is not None:
            clockid, wall, clock = said.clock_data
            extra["wall_clock"] = {"clockid": clockid, "wall_ns": wall, "clock_ns": clock}
        return ReaderMeta(
            form="perf.data",
            tool=f"perf {said.version}" if said.version else "perf",
            kernel=said.osrelease,
            machine=said.arch,
            hostname=said.hostname,
            clock=self._main_clock(),
            cpus_present=said.cpus_available,
            cpus_online=said.cpus_online,
            cmdline=said.command,
            extra=extra,
        )

    def _main_clock(self) -> str:
        for attr in self._header.attrs:
            if attr.type == TYPE_TRACEPOINT:
                return attr.clock
        return self._header.attrs[0].clock

    def _say_what_is_missing(self) -> None:
        attrs = self._header.attrs
        if not self._attrs.readable:
            raise FormatError(
                self.path, "its events have different sample types and no id to tell them apart"
            )
        if not any(a.type == TYPE_TRACEPOINT for a in attrs):
            names = ", ".join(dict.fromkeys(self._name(a) for a in attrs))
            command = self.meta.cmdline
            recorded = f"; recorded as: {command}" if command else ""
            text = (
                f"no tracepoints in this file (events: {names}{recorded}); record with "
                "-e 'sched:*' as root: perf must be able to read tracefs and "
                "kernel.perf_event_paranoid must allow it"
            )
            self.meta.extra["no_tracepoints"] = text
            self._said.add("parse", "no_tracepoints", text)
            return
        told: dict[str, list[str]] = {}
        for attr in attrs:
            if attr.type != TYPE_TRACEPOINT:
                continue
            if self._format(attr) is None:
                told.setdefault("no_format", []).append(self._name(attr))
            elif not attr.sample_type & kernels.S_RAW:
                told.setdefault("no_raw", []).append(self._name(attr))
            elif not attr.sample_type & kernels.S_TIME:
                told.setdefault("no_time", []).append(self._name(attr))
            elif attr.sampled:
                told.setdefault("events_sampled", []).append(self._name(attr))
        for code, names_of in told.items():
            text = f"{', '.join(names_of)}: {_MISSING[code]}"
            self._said.add("parse", code, text, count=len(names_of))

    # ------------------------------------------------------------ reading

    def _reset(self) -> None:
        self.counts: dict[str, int] = {}
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

    def _scan(self, rows: npt.NDArray[np.int64], *, marks: bool) -> Scan:
        row_of_type = np.full(1 << 16, -1, np.int32)
        for attr, row in zip(self._header.attrs, rows.tolist(), strict=True):
            if row >= 0 and attr.config < 1 << 16:
                row_of_type[attr.config] = row
        return Scan(
            self._buf, self._header, self._attrs, rows, row_of_type,
            marks=marks, target=self._target,
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
        rows = self._rows_of(self._layout_row, self.issues)
        scan = self._scan(rows, marks=True)
        names = NameLog(self._buf, self._attrs, scan)
        decoder = PayloadDecoder(self._buf, self._layouts)
        cmdlines = [
            NameChange(pid, None, comm, None, Evidence.CMDLINES)
            for pid, comm in self._tracing.cmdlines
            if pid > 0 and comm != b"<...>"
        ]
        if cmdlines:
            yield Chunk(decoder.decode(*_no_rows()).events, cmdlines)
        for batch in scan.batches():
            self._done = scan.offset
            names.collect()
            order = batch.order
            for start in range(0, len(order), _CHUNK_ROWS):
                part = order[start : start + _CHUNK_ROWS]
                chunk = decoder.decode(
                    batch.ts, batch.cpu, batch.off, batch.length, batch.row, part
                )
                chunk.names = names.merged(chunk.names, int(batch.ts[part[-1]]))
                yield chunk
        names.collect()
        rest = self._tail_losses(scan, names)
        if not (rows >= 0).any():
            rest = _no_rows()
        last_names = names.merged([], None)
        if last_names or len(rest[0]):
            tail = decoder.decode(*rest)
            yield Chunk(tail.events, last_names)
        self._done = len(self._raw)
        decoder.report(self.issues)
        self._conclude(scan)
        self._say_what_was_wrong(scan)

    def _tail_losses(self, scan: Scan, names: NameLog) -> tuple[npt.NDArray[Any], ...]:
        """LOST rows, at the end, for losses of which only the sum is told.

        Since 6.0 perf reads at the end how many samples each event lost (LOST_SAMPLES records
        without a time). They contain those of the LOST records; what is more was lost after a
        CPU's last event.
        """
        told: dict[int, int] = {}
        for cpu, count in names.lost_samples:
            told[cpu] = told.get(cpu, 0) + count
        ts, cpus, counts = [], [], []
        for cpu, count in sorted(told.items()):
            more = count - int(scan.lost[cpu, 2])
            if more > 0:
                scan.lost[cpu, 2] += more
                self.lost.marks += 1
                ts.append(int(scan.state[kernels.ST_MAX]))
                cpus.append(cpu)
                counts.append(more)
        n = len(ts)
        return (
            np.array(ts, np.int64),
            np.array(cpus, np.int32),
            np.array(counts, np.int64),
            np.zeros(n, np.int32),
            np.full(n, ROW_LOST, np.int32),
        )

    def _conclude(self, scan: Scan) -> None:
        """Counts and losses of a finished pass."""
        for attr, count in zip(self._header.attrs, scan.counts.tolist(), strict=True):
            if count:
                name = self._name(attr)
                self.counts[name] = self.counts.get(name, 0) + count
        for ident in np.flatnonzero(scan.type_counts).tolist():
            fmt = self._format_of.get(ident)
            name = fmt.name if fmt is not None else f"event id {ident}"
            self.counts[name] = self.counts.get(name, 0) + int(scan.type_counts[ident])
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
        for code, cell, text in (
            ("sample_unknown_id", kernels.ST_UNKNOWN, "samples of an unknown event id"),
            ("sample_malformed", kernels.ST_BAD, "records that do not hold what they must"),
            ("sample_without_time", kernels.ST_NO_TIME, "samples without a time kept their place"),
            ("cpu_out_of_range", kernels.ST_STRANGE_CPU, "samples of an impossible CPU"),
        ):
            count = int(st[cell])
            if count:
                at = int(st[kernels.ST_FIRST_BAD])
                where = f"offset {at:#x}: " if code == "sample_malformed" and at else ""
                issues.add("parse", code, f"{where}{count} {text}", count=count)
        if scan.late:
            issues.add(
                "parse", "time_backwards",
                f"{scan.late} events came after their round was closed: out of order",
                count=scan.late,
            )  # fmt: skip
        switches = int(scan.records[[kernels.R_SWITCH, kernels.R_SWITCH_CPU_WIDE]].sum())
        if switches:
            issues.add(
                "parse", "switch_records",
                f"{switches} SWITCH records (no next task, no state) are not used",
                count=switches,
            )  # fmt: skip
        if st[kernels.ST_TASK_IDS]:
            issues.add(
                "parse", "only_some_tasks",
                "recorded for some tasks only (perf record without -a): the other tasks and the "
                "idle time of CPUs are not in it",
            )  # fmt: skip
        if scan.damage is not None:
            at, what = scan.damage
            if what.startswith("compressed"):
                raise self._compressed()
            if not self._header.unfinished or at < len(self._raw):
                self.damaged = True
                left = self._header.data_end - at
                issues.add(
                    "parse", "record_damaged",
                    f"offset {at:#x}: {what}; the {left} bytes behind it are left out",
                )  # fmt: skip

    def extra_events(self, name: str) -> pa.Table:
        """All events of one tracepoint (``sched_switch`` or ``sched:sched_switch``)."""
        system, _, bare = name.rpartition(":")
        formats = [
            fmt
            for fmt in self._recorded_formats()
            if fmt.name == bare and system in ("", fmt.system)
        ]
        if not formats:
            known = ", ".join(sorted({fmt.name for fmt in self._recorded_formats()})) or "none"
            raise UsageError(f"{self.path}: no tracepoint {name!r}; there are: {known}")
        chosen = formats[0]
        rows = self._rows_of(lambda fmt: 0 if fmt.id == chosen.id else -1, IssueLog())
        scan = self._scan(rows, marks=False)
        parts: list[list[npt.NDArray[Any]]] = [[], [], [], []]
        for batch in scan.batches():
            columns: tuple[npt.NDArray[Any], ...] = (batch.ts, batch.cpu, batch.off, batch.length)
            for part, column in zip(parts, columns, strict=True):
                part.append(column[batch.order])
        if scan.damage is not None and scan.damage[1].startswith("compressed"):
            raise self._compressed()
        ts, cpu, off, length = (
            np.concatenate(part) if part else np.empty(0, dtype)
            for part, dtype in zip(parts, (np.int64, np.int32, np.int64, np.int32), strict=True)
        )
        return extract(self._buf, ts, cpu, off, length, chosen)

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
        return self._done, len(self._raw)


def _no_rows() -> tuple[npt.NDArray[Any], ...]:
    return tuple(np.empty(0, t) for t in (np.int64, np.int32, np.int64, np.int32, np.int32))
