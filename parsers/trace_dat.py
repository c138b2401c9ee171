"""Reader of trace.dat, the file of ``trace-cmd record`` (versions 6 and 7).

Structure is read by trace_dat_file, the events of a buffer are those of trace_dat_stream. What is
left to do here: choose the buffer, the facts about the capture, names and counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana.columns import Chunk, EventColumns, NameChange
from traceana.errors import UsageError
from traceana.issues import IssueLog
from traceana.parsers.cut import cut_reader
from traceana.parsers.formats import EventFormat
from traceana.parsers.payload import Layouts, as_bytes, extract
from traceana.parsers.reader import Lost, Reader, ReaderMeta
from traceana.parsers.trace_dat_data import load_text
from traceana.parsers.trace_dat_file import read_trace_file
from traceana.parsers.trace_dat_parts import TraceFile
from traceana.parsers.trace_dat_stream import BufferStream, merged, time_correction, walk_over
from traceana.schema import Evidence

__all__ = ["TraceDatReader", "open_trace_dat"]

_CLOCK_UNITS = {
    "uptime": "jiffies",
    "counter": "count",
    "x86-tsc": "cycles",
    "ppc-tb": "cycles",
    "s390-tod": "cycles",
}


class TraceDatReader:
    """One trace.dat file; see :class:`traceana.parsers.reader.Reader`.

    Parameters
    ----------
    path : Path
        For messages only.
    buf : uint8[:], read-only
        The bytes in which the places of ``file`` count.
    file : TraceFile
    buffer : str, optional
        Events of which buffer: a name ("" or "top": the top one), "all" (an event that several
        recorded comes once), or None: the top one; or, when that has no scheduler event, the
        first instance that has.
    topology : pyarrow.Table, optional
        What :meth:`topology` is to give.

    Raises
    ------
    UsageError
        There is no such buffer, or the clocks of the buffers differ.
    """

    def __init__(
        self,
        path: Path,
        buf: npt.NDArray[np.uint8],
        file: TraceFile,
        *,
        buffer: str | None = None,
        topology: pa.Table | None = None,
    ) -> None:
        self.path = path
        self._buf = buf
        self._file = file
        self._topology = topology
        self._wanted = None if buffer is None else self._by_name(buffer)
        self.meta = self._make_meta()
        self.counts: dict[str, int] = {}
        self.lost = Lost()
        self.issues = IssueLog()
        self.damaged = file.damaged
        self._streams: list[BufferStream] = []
        self._total = sum(c.size for b in file.buffers for c in b.cpus)
        #: Counts of buffers by event id, where they were walked over just for these.
        self._counted: dict[int, npt.NDArray[np.int64]] = {}
        self._names_of_id: dict[int, str] = {}
        for fmt in file.formats:
            self._names_of_id.setdefault(fmt.id, fmt.name)
        if self._wanted is None and len({b.clock for b in file.buffers}) > 1:
            self._set_clock(self.meta, file.buffers[self._default()].clock or file.clock)
        self._start()

    def _by_name(self, name: str) -> list[int]:
        buffers = self._file.buffers
        if name == "all" and not any(b.name == "all" for b in buffers):
            clocks = {b.clock for b in buffers}
            if len(clocks) > 1:
                raise UsageError(
                    f"{self.path}: the buffers have different clocks "
                    f"({', '.join(sorted(str(c) for c in clocks))}): give one by its name"
                )
            return list(range(len(buffers)))
        for index, buffer in enumerate(buffers):
            if buffer.name == name or (not buffer.name and name == "top"):
                return [index]
        there = ", ".join(b.name or "top" for b in buffers)
        raise UsageError(f"{self.path}: no buffer {name!r}; there are: {there}; all")

    def _make_meta(self) -> ReaderMeta:
        file = self._file
        form = file.form
        if file.compression != "none" and any(b.compressed for b in file.buffers):
            form += f", {file.compression}"
        meta = ReaderMeta(form=form, tool=file.tool, cpus_present=file.cpu_count)
        words = (file.uname or "").split()
        if len(words) >= 3:
            meta.kernel, meta.machine = words[-2], words[-1]
            meta.hostname = words[1] if len(words) > 3 else None
        chosen = self._wanted or range(len(file.buffers))
        clocks = [clock for i in chosen if (clock := file.buffers[i].clock)]
        self._set_clock(meta, clocks[0] if clocks else file.clock)
        if file.trace_id is not None:
            meta.extra["trace_id"] = f"{file.trace_id:#x}"
        meta.extra.update(file.facts)
        if len(file.buffers) > 1:
            meta.extra["buffers"] = [b.name for b in file.buffers]
        return meta

    def _set_clock(self, meta: ReaderMeta, clock: str | None) -> None:
        meta.clock = clock
        meta.clock_unit = _CLOCK_UNITS.get(clock or "", "ns")
        if self._file.tsc2nsec is not None and meta.clock_unit == "cycles":
            meta.clock_unit = "ns"

    def _start(self) -> None:
        """Forget an earlier pass."""
        self.counts = {}
        self.lost = Lost()
        self.issues = IssueLog()
        self.issues.extend(self._file.issues)
        self.damaged = self._file.damaged
        if self.meta.clock is None:
            self.issues.add(
                "parse", "clock_unknown", "the file does not name its clock: taken for local"
            )

    def _counts_of(self, index: int) -> npt.NDArray[np.int64]:
        """Events of a buffer by id; walks over it when that has not been done yet."""
        if index not in self._counted:
            none = np.full(1 << 16, -1, np.int32)
            walk, _ = walk_over(self.path, self._buf, self._file, index, none)
            for _ in walk.rounds():
                pass
            self._counted[index] = walk.counts
        return self._counted[index]

    def _add_counts(self, counts: npt.NDArray[np.int64]) -> None:
        for ident in np.flatnonzero(counts).tolist():
            name = self._names_of_id.get(ident, f"unknown_{ident}")
            self.counts[name] = self.counts.get(name, 0) + int(counts[ident])
            if ident not in self._names_of_id:
                self.issues.add(
                    "parse",
                    "unknown_event",
                    f"events of id {ident}, of which the file has no format: counted only",
                    count=int(counts[ident]),
                )

    def _has_scheduler_events(self, index: int) -> bool:
        return any(
            self._names_of_id.get(i, "").startswith("sched_")
            for i in np.flatnonzero(self._counts_of(index)).tolist()
        )

    def _default(self) -> int:
        """The top buffer; or, when that has no scheduler event, the first one that has."""
        buffers = self._file.buffers
        top = next((i for i, b in enumerate(buffers) if not b.name), 0)
        order = [top, *(i for i in range(len(buffers)) if i != top)]
        return next((i for i in order if self._has_scheduler_events(i)), top)

    def _chosen(self) -> list[int]:
        """The buffers whose events are given (see the class); what is left out is counted."""
        buffers = self._file.buffers
        chosen = self._wanted
        if chosen is None and len(buffers) == 1:
            return [0]
        if chosen is None:
            chosen = [self._default()]
        left = [i for i in range(len(buffers)) if i not in chosen]
        for i in left:
            self._add_counts(self._counts_of(i))
        if left:
            names = ", ".join(repr(b.name) if b.name else "the top buffer" for b in buffers)
            taken = repr(buffers[chosen[0]].name) if buffers[chosen[0]].name else "the top buffer"
            self.issues.add(
                "parse",
                "buffer_chosen",
                f"{len(buffers)} buffers ({names}): only events of {taken} are analysed",
            )
        return chosen

    def chunks(self) -> Iterator[Chunk]:
        """Events of the known kinds in the order of time; see the protocol."""
        self._start()
        names = self._cached_names()
        layouts = Layouts(self._file.formats, big_endian=self._file.big_endian)
        self._streams = streams = [
            BufferStream(self.path, self._buf, self._file, index, layouts, self.issues, self.lost)
            for index in self._chosen()
        ]
        if len(streams) == 1:
            chunks = streams[0].chunks()
        else:
            parts = [stream.chunks() for stream in streams]
            chunks = merged(parts, self.meta.clock_unit, self.issues)
        for chunk in chunks:
            yield Chunk(chunk.events, names + chunk.names)
            names = []
        if names:
            yield Chunk(EventColumns.empty(0), names)
        for stream in streams:
            self._add_counts(stream.walk.counts)
            stream.report()
            self.damaged |= stream.damaged

    def _cached_names(self) -> list[NameChange]:
        """The pid-to-name cache of the file."""
        out = []
        for line in self._file.cmdlines.split(b"\n"):
            pid, space, comm = line.partition(b" ")
            if not space or not pid.isdigit() or len(pid) > 9 or int(pid) == 0:
                continue
            comm = comm.partition(b"\0")[0]
            if comm and comm != b"<...>":
                out.append(NameChange(int(pid), None, comm, None, Evidence.CMDLINES))
        return out

    def extra_events(self, name: str) -> pa.Table:
        """All events of one tracepoint by its own format; see the protocol.

        ``name`` is the bare name or ``system:name``.
        """
        system, colon, bare = name.rpartition(":")
        found = [
            f for f in self._file.formats if f.name == bare and (not colon or f.system == system)
        ]
        if not found:
            present: dict[str, None] = {}
            for index in range(len(self._file.buffers)):
                for ident in np.flatnonzero(self._counts_of(index)).tolist():
                    present.setdefault(self._names_of_id.get(ident, f"unknown_{ident}"))
            there = ", ".join(sorted(present)) or "none"
            raise UsageError(f"no tracepoint {name!r} in this capture; events recorded: {there}")
        tables = [self._extract(fmt) for fmt in found]
        full = [t for t in tables if t.num_rows] or tables[:1]
        return full[0]

    def _extract(self, fmt: EventFormat) -> pa.Table:
        row_of_id = np.full(1 << 16, -1, np.int32)
        if fmt.id < len(row_of_id):
            row_of_id[fmt.id] = 0
        correct, shift = time_correction(self._file), self._file.time_shift
        parts = []
        wanted = self._wanted or range(len(self._file.buffers))
        for index in wanted:
            walk, pages = walk_over(self.path, self._buf, self._file, index, row_of_id)
            for rows in walk.rounds():
                order = rows.order[rows.row[rows.order] == 0]
                ts = rows.ts[order]
                if shift is not None:
                    ts = shift.apply(ts, rows.cpu[order])
                parts.append(
                    extract(
                        pages.buf,
                        ts if correct is None else correct(ts),
                        rows.cpu[order],
                        rows.off[order],
                        rows.length[order],
                        fmt,
                        big_endian=self._file.big_endian,
                    )
                )
        if not parts:
            none: Any = np.zeros(0, np.int64)
            narrow = none.astype(np.int32)
            parts.append(extract(self._buf, none, narrow, none, narrow, fmt))
        table = pa.concat_tables(parts).combine_chunks()
        if len(wanted) > 1 or shift is not None:
            table = table.take(np.argsort(table["ts"].to_numpy(), kind="stable"))
        return table

    def topology(self) -> pa.Table | None:
        """What the container tells; None for trace.dat, which does not."""
        return self._topology

    def progress(self) -> tuple[int, int]:
        """Bytes of pages walked over and in all."""
        if not self._streams:
            return 0, self._total
        walks = [stream.walk for stream in self._streams]
        return sum(w.done_bytes for w in walks), sum(w.total_bytes for w in walks)


def _open_text(
    path: Path, data: npt.NDArray[np.uint8], file: TraceFile, name: str | None
) -> Reader:
    from traceana.parsers.ftrace_text import open_ftrace_text

    wanted = [t for t in file.texts if name in (None, t.name) or (name == "top" and not t.name)]
    if not wanted:
        there = ", ".join(t.name or "top" for t in file.texts)
        raise UsageError(f"{path}: no buffer {name!r}; there are: {there}")
    part = next((t for t in wanted if not t.name), wanted[0])
    text, cut = load_text(path, data, file, part)
    reader = open_ftrace_text(path, text)
    reader.meta.form = f"{file.form}, text of a latency tracer"
    reader.meta.tool = file.tool
    if part.clock:
        reader.meta.clock = part.clock
    return reader if cut is None else cut_reader(reader, cut)


def open_trace_dat(path: Path, buf: Any, *, buffer: str | None = None) -> Reader:
    """Open a trace.dat file of which ``buf`` holds the bytes; ``buffer``: see TraceDatReader.

    Raises
    ------
    FormatError, TruncatedError, UnsupportedError
    UsageError
        It has no such buffer.
    """
    data = as_bytes(buf)
    file = read_trace_file(path, data)
    if not file.buffers:
        return _open_text(path, data, file, buffer)
    return TraceDatReader(path, data, file, buffer=buffer)
