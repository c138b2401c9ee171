"""Reader of trace.dat, the file of ``trace-cmd record`` (versions 6 and 7).

Structure is read by trace_dat_file, pages come from trace_dat_data, the walk over them is
ring's, and payloads become columns in payload. What is left to do here: choose the buffer, put
the rounds together to chunks, correct times, and say what was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana.columns import NULL_I64, Chunk, EventColumns, NameChange
from traceana.errors import UsageError
from traceana.issues import IssueLog
from traceana.parsers import _ring_kernels as ring_kernels
from traceana.parsers.formats import EventFormat, FieldKind
from traceana.parsers.payload import Layouts, PayloadDecoder, as_bytes, extract
from traceana.parsers.reader import Lost, Reader, ReaderMeta
from traceana.parsers.ring import RingWalk
from traceana.parsers.trace_dat_data import PackedPages, Pages, load_pages
from traceana.parsers.trace_dat_file import read_trace_file
from traceana.parsers.trace_dat_parts import Buffer, TraceFile
from traceana.schema import EventKind, Evidence

__all__ = ["TraceDatReader", "open_trace_dat"]

#: Rows of a chunk: the columns of one stay within a few MB.
CHUNK_ROWS = 1 << 18

_CLOCK_UNITS = {"uptime": "jiffies", "counter": "count", "x86-tsc": "cycles", "ppc-tb": "cycles"}

_PAGE_ERRORS = {
    ring_kernels.CUT_PAGE: (
        "page_cut",
        "page of {value} bytes is cut: left out",
    ),
    ring_kernels.BIG_COMMIT: (
        "bad_page",
        "page says it holds {value} bytes, more than there is room for: skipped, file damaged?",
    ),
    ring_kernels.BAD_EVENT: (
        "bad_event",
        "event does not fit into its page: the rest of the page is left out, file damaged?",
    ),
    ring_kernels.NO_TYPE: ("bad_event", "event too short to have a type: left out"),
    ring_kernels.BAD_TIME: (
        "bad_time",
        "time {value:#x} cannot be: the rest of the page is left out, file damaged?",
    ),
}


def _type_field(formats: list[EventFormat]) -> tuple[int, int]:
    """Offset and size of common_type, the same in every format of a kernel."""
    for fmt in formats:
        field = fmt.by_name.get("common_type")
        if field is not None and field.kind is FieldKind.INT and field.size <= 4:
            return field.offset, field.size
    return 0, 2


class TraceDatReader:
    """One trace.dat file; see :class:`traceana.parsers.reader.Reader`.

    Parameters
    ----------
    path : Path
        For messages only.
    buf : uint8[:], read-only
        The whole file.

    Raises
    ------
    InputError
        When not even the descriptions can be read.
    """

    def __init__(self, path: Path, buf: npt.NDArray[np.uint8], file: TraceFile) -> None:
        self.path = path
        self._buf = buf
        self._file = file
        self.meta = self._make_meta()
        self.counts: dict[str, int] = {}
        self.lost = Lost()
        self.issues = IssueLog()
        self.damaged = file.damaged
        self._walk: RingWalk | None = None
        self._total = sum(c.size for b in file.buffers for c in b.cpus)
        self._type_field = _type_field(file.formats)
        self._names_of_id: dict[int, str] = {}
        for fmt in file.formats:
            self._names_of_id.setdefault(fmt.id, fmt.name)
        self._start()

    def _make_meta(self) -> ReaderMeta:
        file = self._file
        form = f"trace.dat v{file.version}"
        if file.compression != "none" and any(b.compressed for b in file.buffers):
            form += f", {file.compression}"
        meta = ReaderMeta(form=form, tool=file.tool, cpus_present=file.cpu_count)
        words = (file.uname or "").split()
        if len(words) >= 3:
            meta.kernel, meta.machine = words[-2], words[-1]
            meta.hostname = words[1] if len(words) > 3 else None
        clocks = [b.clock for b in file.buffers if b.clock]
        meta.clock = clocks[0] if clocks else file.clock
        meta.clock_unit = _CLOCK_UNITS.get(meta.clock or "", "ns")
        if file.tsc2nsec is not None and meta.clock_unit == "cycles":
            meta.clock_unit = "ns"
        if file.trace_id is not None:
            meta.extra["trace_id"] = f"{file.trace_id:#x}"
        if len(file.buffers) > 1:
            meta.extra["buffers"] = [b.name for b in file.buffers]
        return meta

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

    def _new_walk(
        self,
        index: int,
        row_of_id: npt.NDArray[np.int32],
        begins: frozenset[int] = frozenset(),
    ) -> tuple[RingWalk, Pages]:
        buffer = self._file.buffers[index]
        pages = load_pages(self.path, self._buf, self._file, buffer)
        assert self._file.page is not None
        walk = RingWalk(
            pages.buf,
            pages.data,
            self._file.page,
            page_size=buffer.page_size,
            row_of_id=row_of_id,
            type_field=self._type_field,
            big_endian=self._file.big_endian,
            begins=begins,
            source=pages if isinstance(pages, PackedPages) else None,
        )
        return walk, pages

    def _count_all(self, index: int) -> RingWalk:
        """Walk a buffer for its counts only."""
        walk, _ = self._new_walk(index, np.full(1 << 16, -1, np.int32))
        for _ in walk.rounds():
            pass
        return walk

    def _add_counts(self, walk: RingWalk) -> None:
        for ident in np.flatnonzero(walk.counts).tolist():
            name = self._names_of_id.get(ident, f"unknown_{ident}")
            self.counts[name] = self.counts.get(name, 0) + int(walk.counts[ident])
            if ident not in self._names_of_id:
                self.issues.add(
                    "parse",
                    "unknown_event",
                    f"events of id {ident}, of which the file has no format: counted only",
                    count=int(walk.counts[ident]),
                )

    def _has_scheduler_events(self, walk: RingWalk) -> bool:
        return any(
            self._names_of_id.get(i, "").startswith("sched_")
            for i in np.flatnonzero(walk.counts).tolist()
        )

    def _choose_buffer(self) -> int:
        """The top buffer, or the one instance that has scheduler events when the top has none."""
        buffers = self._file.buffers
        if len(buffers) == 1:
            return 0
        walks = [self._count_all(i) for i in range(len(buffers))]
        top = next((i for i, b in enumerate(buffers) if not b.name), 0)
        useful = [i for i, walk in enumerate(walks) if self._has_scheduler_events(walk)]
        chosen = top if top in useful or not useful else useful[0]
        for i, walk in enumerate(walks):
            if i != chosen:
                self._add_counts(walk)
        names = ", ".join(repr(b.name) if b.name else "the top buffer" for b in buffers)
        taken = repr(buffers[chosen].name) if buffers[chosen].name else "the top buffer"
        self.issues.add(
            "parse",
            "buffer_chosen",
            f"{len(buffers)} buffers ({names}): only events of {taken} are analysed",
        )
        return chosen

    def _times(self) -> Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]] | None:
        """What makes ns of the capture's clock from raw stamps; None: they are it already."""
        offset, factor = self._file.offset_ns, self._file.tsc2nsec
        if factor is None and not offset:
            return None

        def correct(ts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            if factor is not None:
                mult, shift = np.uint64(factor[0]), np.uint64(factor[1])
                raw, low = ts.astype(np.uint64), np.uint64(0xFFFFFFFF)
                # 64 × 32 bits do not fit: the halves are multiplied each for itself.
                high_part = (raw >> np.uint64(32)) * mult
                low_part = (raw & low) * mult
                if factor[1] <= 32:
                    ns = (high_part << (np.uint64(32) - shift)) + (low_part >> shift)
                else:
                    ns = (high_part + (low_part >> np.uint64(32))) >> (shift - np.uint64(32))
                ts = ns.astype(np.int64)
            return ts + np.int64(offset)

        return correct

    def chunks(self) -> Iterator[Chunk]:
        """Events of the known kinds in the order of time; see the protocol."""
        self._start()
        names = self._cached_names()
        index = self._choose_buffer()
        buffer = self._file.buffers[index]
        layouts = Layouts(self._file.formats, big_endian=self._file.big_endian)
        begins = frozenset(s.cpu for s in buffer.stats.values() if s.overrun)
        walk, pages = self._new_walk(index, layouts.row_of_id, begins)
        self._walk = walk
        decoder = PayloadDecoder(pages.buf, layouts, buffer=index)
        correct = self._times()
        marks: dict[int, int] = {}
        for columns, learnt in self._collect(walk, decoder):
            self._book_losses(columns, marks)
            if correct is not None:
                columns.ts[:] = correct(columns.ts)
                learnt = [
                    replace(n, ts=int(correct(np.array([n.ts], np.int64))[0])) for n in learnt
                ]
            yield Chunk(columns, names + learnt)
            names = []
        if names:
            yield Chunk(EventColumns.empty(0), names)
        self._add_counts(walk)
        decoder.report(self.issues)
        self._report_walk(walk, pages)
        self._report_stats(buffer, walk, marks)

    def _collect(
        self, walk: RingWalk, decoder: PayloadDecoder
    ) -> Iterator[tuple[EventColumns, list[NameChange]]]:
        """Rounds decoded into columns of up to CHUNK_ROWS rows."""
        columns: EventColumns | None = None
        names: list[NameChange] = []
        at = 0
        room = CHUNK_ROWS
        for rows in walk.rounds():
            n = len(rows.order)
            if columns is not None and at + n > room:
                yield columns.take(slice(0, at)), names
                columns, at, names = None, 0, []
            if columns is None:
                room = max(n, CHUNK_ROWS)
                columns = decoder.pool.take(room)
            at = decoder.fill(
                columns, at, rows.ts, rows.cpu, rows.off, rows.length, rows.row, rows.order, names
            )
        if columns is not None and at:
            yield columns.take(slice(0, at)), names

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

    def _book_losses(self, columns: EventColumns, marks: dict[int, int]) -> None:
        for i in np.flatnonzero(columns.kind == EventKind.LOST).tolist():
            cpu, value, ts = int(columns.cpu[i]), int(columns.value[i]), int(columns.ts[i])
            count = None if value == NULL_I64 else value
            self.lost.add(cpu, count)
            marks[cpu] = marks.get(cpu, 0) + (count or 0)
            text = "events" if count is None else f"{count} events"
            self.issues.add(
                "parse",
                "events_lost",
                f"cpu {cpu}: {text} lost before {ts}",
                ts=ts,
                cpu=cpu,
                count=1 if count is None else count,
            )

    def _report_walk(self, walk: RingWalk, pages: Pages) -> None:
        self.issues.extend(pages.issues)
        self.damaged |= pages.damaged
        for error in walk.errors:
            code, text = _PAGE_ERRORS[error.code]
            place = pages.place(error.cpu, error.offset)
            self.issues.add(
                "parse", code, f"{place}: {text.format(value=error.value)}", cpu=error.cpu
            )
            self.damaged = True
        more = walk.error_count - len(walk.errors)
        if more > 0:
            self.issues.add("parse", "bad_page", f"{more} more damaged places", count=more)
        for cpu, steps in walk.steps_back.items():
            if steps:
                self.issues.add(
                    "parse",
                    "time_backwards",
                    f"cpu {cpu}: time steps back {steps} times; its events stay in their order",
                    cpu=cpu,
                    count=steps,
                )

    def _report_stats(self, buffer: Buffer, walk: RingWalk, marks: dict[int, int]) -> None:
        """What the kernel's own per-CPU statistics say beyond the pages."""
        events = walk.events
        wrapped = walk.lost_at_start
        for cpu in sorted(set(buffer.stats) | set(wrapped)):
            stat = buffer.stats.get(cpu)
            early = 0 if stat is None else stat.overrun - marks.get(cpu, 0)
            if cpu in wrapped or early > 0:
                number = f"{early} events" if early > 0 else "events"
                self.issues.add(
                    "parse",
                    "ring_wrapped",
                    f"cpu {cpu}: {number} before its first were overwritten: its data begins late",
                    cpu=cpu,
                )
            if stat is None:
                continue
            if stat.dropped:
                self.lost.add(cpu, stat.dropped)
                self.issues.add(
                    "parse",
                    "events_dropped",
                    f"cpu {cpu}: {stat.dropped} events dropped, the ring was full; where is not "
                    "told",
                    cpu=cpu,
                    count=stat.dropped,
                )
            recorded, found = stat.entries + stat.read, events.get(cpu, 0)
            if recorded > found:
                self.issues.add(
                    "parse",
                    "events_missing",
                    f"cpu {cpu}: {recorded} events recorded, {found} in the file",
                    cpu=cpu,
                    count=recorded - found,
                )

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
                counts = self._count_all(index).counts
                for ident in np.flatnonzero(counts).tolist():
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
        correct = self._times()
        parts = []
        for index in range(len(self._file.buffers)):
            walk, pages = self._new_walk(index, row_of_id)
            for rows in walk.rounds():
                order = rows.order[rows.row[rows.order] == 0]
                parts.append(
                    extract(
                        pages.buf,
                        rows.ts[order] if correct is None else correct(rows.ts[order]),
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
        if len(self._file.buffers) > 1:
            table = table.take(np.argsort(table["ts"].to_numpy(), kind="stable"))
        return table

    def topology(self) -> pa.Table | None:
        """None: trace.dat does not tell."""
        return None

    def progress(self) -> tuple[int, int]:
        """Bytes of pages walked over and in all."""
        walk = self._walk
        return (walk.done_bytes if walk else 0), (walk.total_bytes if walk else self._total)


def open_trace_dat(path: Path, buf: Any) -> Reader:
    """Open a trace.dat file of which ``buf`` holds the bytes.

    Raises
    ------
    FormatError, TruncatedError, UnsupportedError
    """
    data = as_bytes(buf)
    file = read_trace_file(path, data)
    if file.text_at is not None:
        from traceana.parsers.ftrace_text import open_ftrace_text

        reader = open_ftrace_text(path, memoryview(data)[file.text_at :])  # type: ignore[arg-type]
        reader.meta.form = f"trace.dat v{file.version}, text of a latency tracer"
        return reader
    return TraceDatReader(path, data, file)
