"""The events of one buffer of a capture of ring pages, and several buffers put together.

:class:`BufferStream` walks the pages of one buffer, decodes what it finds, corrects the times and
says what was lost. :func:`merged` makes one stream of several, in which an event that two buffers
recorded comes once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from traceana.columns import NULL_I64, Chunk, EventColumns, NameChange
from traceana.issues import IssueLog
from traceana.parsers import _ring_kernels as ring_kernels
from traceana.parsers.payload import Layouts, PayloadDecoder
from traceana.parsers.reader import Lost
from traceana.parsers.ring import RingWalk
from traceana.parsers.ring_chunks import CHUNK_ROWS, ring_chunks
from traceana.parsers.trace_dat_data import PackedPages, Pages, load_pages
from traceana.parsers.trace_dat_parts import TraceFile
from traceana.parsers.trace_dat_shift import reordered, scaled
from traceana.schema import EventKind

__all__ = ["BufferStream", "merged", "time_correction", "walk_over"]

Correction = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]

_PAGE_ERRORS: dict[int, tuple[str, str]] = {
    int(ring_kernels.CUT_PAGE): (
        "page_cut",
        "page of {value} bytes is cut: left out",
    ),
    int(ring_kernels.BIG_COMMIT): (
        "bad_page",
        "page says it holds {value} bytes, more than there is room for: skipped, file damaged?",
    ),
    int(ring_kernels.BAD_EVENT): (
        "bad_event",
        "event does not fit into its page: the rest of the page is left out, file damaged?",
    ),
    int(ring_kernels.NO_TYPE): ("bad_event", "event too short to have a type: left out"),
    int(ring_kernels.BAD_TIME): (
        "bad_time",
        "time {value:#x} cannot be: the rest of the page is left out, file damaged?",
    ),
}


def time_correction(file: TraceFile) -> Correction | None:
    """What makes ns of the capture's clock from (shifted) stamps; None: they are it already."""
    offset, factor = file.offset_ns, file.tsc2nsec
    if factor is None and not offset:
        return None

    def correct(ts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if factor is not None:
            ts = scaled(ts, *factor)
        return ts + np.int64(offset)

    return correct


def walk_over(
    path: Path,
    buf: npt.NDArray[np.uint8],
    file: TraceFile,
    index: int,
    row_of_id: npt.NDArray[np.int32],
) -> tuple[RingWalk, Pages]:
    """A walk over the pages of buffer ``index``, and these pages."""
    buffer = file.buffers[index]
    pages = load_pages(path, buf, file, buffer)
    assert file.page is not None
    cpus = frozenset(c.cpu for c in buffer.cpus)
    walk = RingWalk(
        pages.buf,
        pages.data,
        file.page,
        page_size=buffer.page_size,
        row_of_id=row_of_id,
        type_field=file.type_field,
        big_endian=file.big_endian,
        begins=frozenset(s.cpu for s in buffer.stats.values() if s.overrun),
        untold=cpus - frozenset(buffer.stats),
        source=pages if isinstance(pages, PackedPages) else None,
    )
    return walk, pages


class BufferStream:
    """The events of one buffer, once through.

    What was overwritten before a CPU's first event (its statistics count an ``overrun``, or there
    are none and its first page says that events were lost) makes its data begin late: a row BEGIN
    and an issue ``ring_wrapped``. A loss that a first page tells while the statistics know of no
    overrun is a hole in the recording as any other: a row LOST.

    Attributes
    ----------
    damaged : bool
        Complete, as ``walk.counts``, after :meth:`report`.
    """

    def __init__(
        self,
        path: Path,
        buf: npt.NDArray[np.uint8],
        file: TraceFile,
        index: int,
        layouts: Layouts,
        issues: IssueLog,
        lost: Lost,
    ) -> None:
        self._buffer = file.buffers[index]
        self.walk, self._pages = walk_over(path, buf, file, index, layouts.row_of_id)
        self._decoder = PayloadDecoder(self._pages.buf, layouts, buffer=index)
        self._correct = time_correction(file)
        self._shift = file.time_shift
        self._issues = issues
        self._lost = lost
        self._marks: dict[int, int] = {}
        self.damaged = False

    def chunks(self) -> Iterator[Chunk]:
        """Events of the known kinds in the order of time."""
        correct = self._correct
        for columns, names, losses in self._shifted():
            if correct is not None:
                columns.ts[:] = correct(columns.ts)
                if names:
                    times = correct(np.array([n.ts for n in names], np.int64)).tolist()
                    names = [replace(n, ts=t) for n, t in zip(names, times, strict=True)]
            if losses:
                self._book_losses(columns)
            yield Chunk(columns, names)

    def _shifted(self) -> Iterator[tuple[EventColumns, list[NameChange], int]]:
        """Rows, names and losses of each chunk, a guest's times made those of its host."""
        chunks = (
            (c.columns, c.names, c.losses)
            for c in ring_chunks(self.walk, self._decoder, chunk_rows=CHUNK_ROWS)
        )
        if self._shift is None:
            return chunks
        return reordered(chunks, self._shift, self.walk.cpus.tolist())

    def _book_losses(self, columns: EventColumns) -> None:
        for i in np.flatnonzero(columns.kind == EventKind.LOST).tolist():
            cpu, value, ts = int(columns.cpu[i]), int(columns.value[i]), int(columns.ts[i])
            count = None if value == NULL_I64 else value
            self._lost.add(cpu, count)
            self._marks[cpu] = self._marks.get(cpu, 0) + (count or 0)
            text = "events" if count is None else f"{count} events"
            self._issues.add(
                "parse",
                "events_lost",
                f"cpu {cpu}: {text} lost before {ts}",
                ts=ts,
                cpu=cpu,
                count=1 if count is None else count,
            )

    def report(self) -> None:
        """Say what was found on the way, once all chunks are through."""
        self._decoder.report(self._issues)
        self._report_walk()
        self._report_stats()

    def _report_walk(self) -> None:
        walk, pages, issues = self.walk, self._pages, self._issues
        issues.extend(pages.issues)
        self.damaged |= pages.damaged
        for error in walk.errors:
            code, text = _PAGE_ERRORS[error.code]
            place = pages.place(error.cpu, error.offset)
            issues.add("parse", code, f"{place}: {text.format(value=error.value)}", cpu=error.cpu)
            self.damaged = True
        more = walk.error_count - len(walk.errors)
        if more > 0:
            issues.add("parse", "bad_page", f"{more} more damaged places", count=more)
        for cpu, steps in walk.steps_back.items():
            if steps:
                issues.add(
                    "parse",
                    "time_backwards",
                    f"cpu {cpu}: time steps back {steps} times; its events stay in their order",
                    cpu=cpu,
                    count=steps,
                )

    def _report_stats(self) -> None:
        """What the kernel's own per-CPU statistics say beyond the pages."""
        stats, events, wrapped = self._buffer.stats, self.walk.events, self.walk.lost_at_start
        for cpu in sorted(set(stats) | set(wrapped)):
            stat = stats.get(cpu)
            early = 0 if stat is None else stat.overrun - self._marks.get(cpu, 0)
            if cpu in wrapped or early > 0:
                number = f"{early} events" if early > 0 else "events"
                self._issues.add(
                    "parse",
                    "ring_wrapped",
                    f"cpu {cpu}: {number} before its first were overwritten: its data begins late",
                    cpu=cpu,
                )
            if stat is None:
                continue
            if stat.dropped:
                self._lost.add(cpu, stat.dropped)
                self._issues.add(
                    "parse",
                    "events_dropped",
                    f"cpu {cpu}: {stat.dropped} events dropped, the ring was full; where is not "
                    "told",
                    cpu=cpu,
                    count=stat.dropped,
                )
            recorded, found = stat.entries + stat.read, events.get(cpu, 0)
            self._lost.count(
                cpu,
                recorded=recorded,
                found=found,
                overwritten=stat.overrun,
                dropped=stat.dropped,
            )
            if recorded < found:
                self._issues.add(
                    "parse",
                    "events_beyond_counters",
                    f"cpu {cpu}: {recorded} events recorded, {found} in the file",
                    cpu=cpu,
                    count=found - recorded,
                )
            if recorded > found:
                self._issues.add(
                    "parse",
                    "events_missing",
                    f"cpu {cpu}: {recorded} events recorded, {found} in the file",
                    cpu=cpu,
                    count=recorded - found,
                )


#: The same event in two buffers is stamped twice, one behind the other in the same call of the
#: tracepoint: under a microsecond apart (more when an interrupt comes between). By unit of time.
_TWINS_APART = {"ns": 5_000, "us": 5_000, "cycles": 20_000}

#: What must be equal in twins.
_CONTENT = ("cpu", "kind", "pid", "subject", "prio", "state", "other", "other_prio", "cpu_to",
            "cpu_from", "value")  # fmt: skip


class _Twins:
    """Finds events that more than one buffer recorded."""

    def __init__(self, unit: str) -> None:
        self._apart = _TWINS_APART.get(unit, 0)
        self._before = EventColumns.empty(0)
        self.found = 0

    def first_of_each(self, events: EventColumns) -> npt.NDArray[np.bool_]:
        """Which rows stay: of twins, the first.

        Rows of one content that follow each other closely are a group; in it the n-th event of
        one buffer is the n-th of another.
        """
        both = EventColumns.concat([self._before, events])
        old, n = len(self._before), len(both)
        content = np.zeros(n, np.uint64)
        for name in _CONTENT:
            content ^= getattr(both, name).astype(np.int64).view(np.uint64)
            content *= np.uint64(0x9E3779B97F4A7C15)
            content ^= content >> np.uint64(29)
        by_content = np.lexsort((both.ts, content))
        ts, same = both.ts[by_content], content[by_content]
        group = np.empty(n, np.int64)
        group[by_content] = np.cumsum(
            np.r_[True, (same[1:] != same[:-1]) | (np.diff(ts) > self._apart)][:n]
        )
        by_buffer = np.lexsort((both.ts, both.buffer, group))
        new = np.r_[True, (np.diff(group[by_buffer]) != 0) | (np.diff(both.buffer[by_buffer]) != 0)]
        starts = np.flatnonzero(new[:n])
        rank = np.empty(n, np.int64)
        rank[by_buffer] = np.arange(n) - np.repeat(starts, np.diff(np.r_[starts, n]))
        by_rank = np.lexsort((np.arange(n), rank, group))
        again = np.r_[False, (np.diff(group[by_rank]) == 0) & (np.diff(rank[by_rank]) == 0)][:n]
        stay = np.ones(n, np.bool_)
        stay[by_rank[again]] = False
        stay |= (both.kind == EventKind.LOST) | (both.kind == EventKind.BEGIN)
        self.found += int((~stay[old:]).sum())
        if n:
            self._before = both.take(both.ts >= both.ts.max() - self._apart)
        return stay[old:]


def merged(streams: Sequence[Iterator[Chunk]], unit: str, issues: IssueLog) -> Iterator[Chunk]:
    """One stream of the streams of several buffers, ordered by time; twins come once.

    ``unit`` is that of the times (``ReaderMeta.clock_unit``). Books ``duplicate_events``.
    """
    twins = _Twins(unit)
    waiting = [EventColumns.empty(0) for _ in streams]
    keys = [np.zeros(0, np.int64) for _ in streams]
    high = [-(1 << 63)] * len(streams)
    live = [True] * len(streams)
    known: dict[int, bytes | None] = {}
    names: list[NameChange] = []
    while True:
        for i, stream in enumerate(streams):
            while live[i] and not len(waiting[i]):
                chunk = next(stream, None)
                if chunk is None:
                    live[i] = False
                    break
                names += chunk.names
                if len(chunk.events):
                    waiting[i] = chunk.events
                    keys[i] = np.maximum(np.maximum.accumulate(chunk.events.ts), high[i])
                    high[i] = int(keys[i][-1])
        if not any(len(w) for w in waiting):
            break
        # Whatever comes later of a stream that goes on has at least its last key.
        limit = min((high[i] for i in range(len(streams)) if live[i]), default=(1 << 63) - 1)
        ends = [int(np.searchsorted(k, limit, side="right")) for k in keys]
        parts = [w.take(slice(0, e)) for w, e in zip(waiting, ends, strict=True)]
        key = np.concatenate([k[:e] for k, e in zip(keys, ends, strict=True)])
        waiting = [w.take(slice(e, None)) for w, e in zip(waiting, ends, strict=True)]
        keys = [k[e:] for k, e in zip(keys, ends, strict=True)]
        events = EventColumns.concat(parts).take(np.argsort(key, kind="stable"))
        events = events.take(twins.first_of_each(events))
        names.sort(key=lambda n: -(1 << 63) if n.ts is None else n.ts)
        said = [n for n in names if n.ts is None or n.ts <= limit]
        names = names[len(said) :]
        yield Chunk(events, _changes(said, known))
    if names:
        yield Chunk(EventColumns.empty(0), _changes(names, known))
    if twins.found:
        issues.add(
            "parse",
            "duplicate_events",
            f"{twins.found} events were recorded in more than one buffer: counted once",
            count=twins.found,
        )


def _changes(names: list[NameChange], known: dict[int, bytes | None]) -> list[NameChange]:
    """Names without those that another buffer has told already."""
    out = []
    for name in names:
        if known.get(name.pid) != name.comm:
            known[name.pid] = name.comm
            out.append(name)
    return out
