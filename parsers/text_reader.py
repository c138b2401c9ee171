"""The reader of all text forms: lines to events, marks, names and issues.

A form brings a :class:`~traceana.parsers.text_dialect.Dialect`: how a head is split, what its other
lines mean. The rest is the same for all. Small files are read line by line (text_take); big ones go
through the kernel of text_fast first, which takes the usual lines and leaves every doubtful one to
text_take. Both ways give the same. Then come marks of losses, twins of other buffers, and the order
of time (text_order).
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import schema
from traceana.columns import NULL_CPU, NULL_I64, Chunk, EventColumns
from traceana.errors import UsageError
from traceana.issues import IssueLog
from traceana.output import escape
from traceana.parsers.reader import Lost, ReaderMeta
from traceana.parsers.text_dialect import Dialect
from traceana.parsers.text_events import States, integer
from traceana.parsers.text_lines import Buffer, pieces
from traceana.parsers.text_order import Learnt, Mark, Order, Twins, place_marks
from traceana.parsers.text_take import Batch, Lines
from traceana.schema import EventKind, Evidence

if TYPE_CHECKING:
    from traceana.parsers.text_fast import Fast, Part

__all__ = ["TextReader"]

# As in _text_kernels, which is not imported for small files.
FIELD, HEAD, GROUP = 0, 1, 2

PIECE = 32 << 20
#: Below this size compiling, or loading, a kernel costs more than it saves.
FAST_FROM = 4 << 20

#: So many rows are put between others one by one.
FEW = 64

#: Rows of one buffer that the first rows of another one may repeat.
TAIL = 1000
# What a comm of 15 bytes cannot hold.
_NUMBERS = re.compile(
    rb" prev_prio=(?:-?\d{1,3}|0x[0-9a-f]{1,8} \(-?\d{1,3}\)) "
    rb"prev_state=(0x[0-9a-fA-F]{1,8}|\d{1,9})\b"
)
_LETTERS = re.compile(rb"\d\] ([A-Za-z+|]{1,12}) ==> ")
#: That many bytes show whether states are numbers, and which letters a plugin uses.
LETTERS_IN = 4 << 20


class TextReader:
    """A capture in one of the text forms (:class:`~traceana.parsers.reader.Reader`)."""

    def __init__(self, path: Path, buf: Buffer, dialect: Dialect, meta: ReaderMeta) -> None:
        self.path = path
        self.meta = meta
        self.counts: dict[str, int] = {}
        self.lost = Lost()
        self.issues = IssueLog()
        self.damaged = False
        #: Bytes handled at a time.
        self.piece = PIECE
        #: From this size on the kernel is used; tests set it to 0 or to a huge number.
        self.fast_from = FAST_FROM
        self._buf = buf
        self._dialect = dialect
        self._head_issues: list[tuple[str, str, int]] = []
        self._entries: int | None = None
        self._written: int | None = None
        self._start = 3 if buf[:3] == b"\xef\xbb\xbf" else 0
        self._done = 0
        self._reset()

    def header_issue(self, code: str, text: str, count: int = 1) -> None:
        """An issue that the header tells; it stands in each run's log."""
        self._head_issues.append((code, text, count))
        self.issues.add("parse", code, text, count=count)

    def expect(self, entries: int, written: int | None = None) -> None:
        """How many entries the header says the text holds, and how many had been written."""
        self._entries = entries
        self._written = written

    def _reset(self) -> None:
        self.counts.clear()
        self.lost.events, self.lost.marks = 0, 0
        self.lost.per_cpu.clear()
        self.issues = IssueLog()
        for code, text, count in self._head_issues:
            self.issues.add("parse", code, text, count=count)
        self.damaged = False
        self._order = Order()
        self._twins = Twins()
        self._tail = EventColumns.empty(0)
        self._states = States()
        self._lines = Lines(self._buf, self._start, self._dialect, self._states)
        self._lines.lost, self._lines.issues = self.lost, self.issues
        self._marks: list[Mark] = []
        self._done = 0

    def _slow(self, start: int, end: int, lineno: int, batch: Batch) -> tuple[int, int]:
        """All lines that begin in [start, end); returns where it stopped, and lines seen."""
        off, count = start, 0
        while off < end:
            line, after = self._lines.line_at(off)
            done = self._lines.take(off, lineno + count, line, after, batch)
            count += 1
            if done > after:
                count += self._buf[after : min(done, len(self._buf))].count(b"\n")
            off = done
        return off, count

    def _release(self, start: int, end: int) -> None:
        """Give back the pages of a mapped file that were read: memory holds one piece, not all."""
        if isinstance(self._buf, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            start -= start % mmap.PAGESIZE
            end -= end % mmap.PAGESIZE
            if end > start:
                self._buf.madvise(mmap.MADV_DONTNEED, start, end - start)

    def _begins(self, offs: npt.NDArray[np.int64], columns: EventColumns) -> list[Mark]:
        """Of a ring that wrapped: a mark before the first event of each CPU that has none yet."""
        out = []
        cpus, first = np.unique(columns.cpu, return_index=True)
        for cpu, at in zip(cpus.tolist(), first.tolist(), strict=True):
            if cpu >= 0 and cpu not in self._lines.begun:
                self._lines.begun.add(cpu)
                out.append(Mark(int(offs[at]) // 2 - 1, cpu, int(EventKind.BEGIN), NULL_I64))
        return out

    def _say_lost(self, mark: Mark, ts: int | None) -> None:
        if mark.kind != int(EventKind.LOST):
            return
        many = "events" if mark.events == NULL_I64 else f"{mark.events} events"
        where = "an unknown cpu" if mark.cpu == NULL_CPU else f"cpu {mark.cpu}"
        self.issues.add(
            "parse",
            "events_lost",
            f"{where}: {many} lost {'after its last event' if ts is None else f'before {ts}'}",
            ts=ts,
            cpu=None if mark.cpu == NULL_CPU else mark.cpu,
            count=1 if mark.events == NULL_I64 else mark.events,
        )

    def _emit(
        self,
        offs: npt.NDArray[np.int64],
        columns: EventColumns,
        batch: Batch,
        bound: int | None,
    ) -> Chunk | None:
        marks = self._marks + batch.marks
        if self._dialect.wrapped:
            marks += self._begins(offs, columns)
        offs, columns, placed, self._marks = place_marks(offs, columns, marks)
        for mark, ts in placed:
            self._say_lost(mark, ts)
        if len(self._lines.buffers) == 1:
            # Should another buffer's lines begin only in the next piece.
            self._tail = columns.take(slice(-TAIL, None))
        elif len(columns):
            self._twins.keep(self._tail)
            self._tail = EventColumns.empty(0)
            keep = self._twins.keep(columns)
            if not keep.all():
                columns = columns.take(keep)
        return self._order.push(columns, batch.names, bound)

    def chunks(self) -> Iterator[Chunk]:
        """Events of the known kinds, in the order of time."""
        self._reset()
        total = len(self._buf)
        runs = list(pieces(self._buf, self.piece, self._start))
        self._learn_states()
        fast = None
        if self._dialect.fast and self._dialect.digits in (0, 6, 9) and total >= self.fast_from:
            from traceana.parsers.text_fast import Fast

            fast = Fast(self._buf, self._dialect, self._states)
        bounds = self._bounds(runs, fast is not None)
        lineno, at = 1, self._start
        for (start, end), bound in zip(runs, bounds, strict=True):
            batch = Batch()
            if fast is None:
                at, seen = self._slow(max(start, at), end, lineno, batch)
                offs, columns = batch.columns()
            else:
                offs, columns, at, seen = self._quick(fast, max(start, at), end, lineno, batch)
            lineno += seen
            self._done = min(end, total)
            self._release(start, end)
            chunk = self._emit(offs, columns, batch, bound)
            if chunk is not None:
                yield chunk
        if fast is not None:
            for event, count in fast.counted().items():
                self._lines.count(event, count)
        self._sum_up()
        last = self._last_names()
        if last:
            chunk = self._order.push(EventColumns.empty(0), last, None)
            if chunk is not None:
                yield chunk

    def _bounds(self, runs: list[tuple[int, int]], fast: bool) -> list[int | None]:
        """For each piece, the earliest time in all later ones (None: nothing follows).

        Without the kernel nobody looks ahead, and all is held back to the end.
        """
        if len(runs) < 2:
            return [None] * len(runs)
        low = -(1 << 62)
        if not fast:
            return [low] * (len(runs) - 1) + [None]
        from traceana.parsers.text_fast import earliest

        firsts = []
        for start, end in runs:
            firsts.append(earliest(self._buf, start, end))
            self._release(start, end)
        out: list[int | None] = [None]
        for first in reversed(firsts[1:]):
            before = out[-1]
            out.append(first if before is None else min(before, first))
        return out[::-1]

    def _quick(
        self, fast: Fast, start: int, end: int, lineno: int, batch: Batch
    ) -> tuple[npt.NDArray[np.int64], EventColumns, int, int]:
        """As :meth:`_slow`, by the kernel; what it leaves is taken line by line."""
        parts: list[Part] = []
        at, seen = start, 0
        while at < end:
            part = fast.parse(at, end)
            parts.append(part)
            at = max(part.at, self._doubtful(part, lineno + seen, batch, fast))
            seen += part.lines
            if at > part.at:
                seen += self._buf[part.at : min(at, len(self._buf))].count(b"\n")
        if not parts:
            return np.empty(0, np.int64), EventColumns.empty(0), at, seen
        offs = np.concatenate([p.offs for p in parts]) if len(parts) > 1 else parts[0].offs
        columns = EventColumns.concat([p.columns for p in parts])
        if batch.rows:
            offs, columns = _merged(offs, columns, *batch.columns())
        return offs, columns, at, seen

    def _doubtful(self, part: Part, lineno: int, batch: Batch, fast: Fast) -> int:
        """The lines that the kernel left, and all names; returns behind the last line taken."""
        mine = len(batch.names)
        done = 0
        for off, line, printing in part.doubts:
            if off < done:
                continue
            if printing != 2:
                self._lines.printing = bool(printing)
            text, after = self._lines.line_at(off)
            done = self._lines.take(off, lineno + line, text, after, batch)
        told: dict[int, set[bytes]] = {}
        for name in batch.names[mine:]:
            if name.comm is not None:
                told.setdefault(name.pid, set()).add(name.comm)
        learnt = [(what, ts, pid, at, fast.comm(at, size), size)
                  if what != GROUP else (what, ts, pid, at, b"", size)
                  for what, ts, pid, at, size in part.learnt]  # fmt: skip
        held: dict[int, set[bytes]] = {}
        for what, _, pid, _, comm, _ in learnt:
            if what == FIELD and pid in told:
                held.setdefault(pid, {fast.known(pid)}).add(comm)
        # A pid that got another name on a line in between: ask each line again.
        again = {p for p in told if held.get(p, {fast.known(p)}) - {b""} - told[p]}
        again |= {p for p in told if len(told[p]) > 1 and fast.known(p)}
        for what, ts, pid, at, comm, size in learnt:
            if what == GROUP:
                batch.names.append(Learnt(pid, size, None, ts, Evidence.HEADER, at))
            elif what == HEAD:
                self._lines.head_at(pid, at, comm.replace(b"\0", b"").strip(b" \t"))
            elif pid not in again:
                batch.names.append(Learnt(pid, None, comm, ts, offset=at))
        for pid in again:
            self._name_again(part, pid, batch)
            fast.forget(pid)
        return done

    def _name_again(self, part: Part, pid: int, batch: Batch) -> None:
        """Each line of the kernel that names ``pid``: its name changed on a line in between."""
        for row in np.flatnonzero((part.columns.subject == pid) | (part.columns.other == pid)):
            kind = EventKind(int(part.columns.kind[row]))
            self._lines.name_again(int(part.offs[row]) // 2, kind, pid, batch)

    def _learn_states(self) -> None:
        """Which table the states of this text are in, by its begin."""
        text = self._buf[self._start : self._start + LETTERS_IN]
        numbers = set(_NUMBERS.findall(text))
        if numbers:
            numbers.update(_NUMBERS.findall(self._buf[self._start : self._start + PIECE]))
        self._states.learn({integer(x) for x in numbers}, set(_LETTERS.findall(text)))

    def _last_names(self) -> list[Learnt]:
        """Names from heads, for pids that no field named."""
        named = self._order.named
        return [
            Learnt(pid, None, comm, None, Evidence.HEADER)
            for pid, (_, comm) in self._lines.heads.items()
            if pid not in named
        ]

    def _sum_up(self) -> None:
        """Complete counts and issues once all lines are read."""
        for mark in self._marks:
            self._say_lost(mark, None)
        for event, count in self._lines.kinds.items():
            name = event.decode("utf-8", "backslashreplace")
            self.counts[name] = self.counts.get(name, 0) + count
        self._lines.report()
        self.damaged = self._lines.damaged
        for name, kind in schema.EVENT_NAMES.items():
            if self._twins.dropped.get(int(kind)):
                self.counts[name] -= self._twins.dropped[int(kind)]
        self._twins.report(self.issues)
        if len(self._lines.buffers) > 1:
            self.meta.extra["buffers"] = [
                name.decode("utf-8", "backslashreplace") for name in self._lines.buffers
            ]
        seen = sum(self._lines.kinds.values())
        self.lost.counters.clear()
        if self._entries is not None:
            over = self._written - self._entries if self._written is not None else 0
            self.lost.count(None, recorded=self._entries, found=seen, overwritten=max(over, 0))
        if self._entries is not None and seen < self._entries:
            self.issues.add(
                "parse",
                "entries_missing",
                f"the header tells {self._entries} entries, the text holds {seen}: cut or filtered",
                count=self._entries - seen,
            )
        self._order.report(self.issues)
        self._states.report(self.issues)

    def extra_events(self, name: str) -> pa.Table:
        """All events of one tracepoint, by the ``key=value`` pairs of its text."""
        from traceana.parsers.text_extra import extra_events

        if not self.counts:
            for _ in self.chunks():
                pass
        if name not in self.counts:
            there = ", ".join(map(escape, sorted(self.counts))) or "none"
            raise UsageError(f"{self.path}: no event {name!r}; there are: {there}")
        return extra_events(self._buf, self._start, name, self._dialect)

    def topology(self) -> pa.Table | None:
        """Texts tell no topology."""
        return None

    def progress(self) -> tuple[int, int]:
        """Bytes done and bytes in all."""
        return self._done, len(self._buf)


def _merged(
    offs: npt.NDArray[np.int64],
    columns: EventColumns,
    more: npt.NDArray[np.int64],
    rows: EventColumns,
) -> tuple[npt.NDArray[np.int64], EventColumns]:
    """Two runs of rows, each in the order of their lines' offsets, as one."""
    if len(more) > FEW:
        where = np.concatenate([offs, more])
        order = np.argsort(where, kind="stable")
        return where[order], EventColumns.concat([columns, rows]).take(order)
    # A few rows between many: copies of whole stretches cost a third of that.
    places = np.searchsorted(offs, more)
    parts = []
    before = 0
    for i, place in enumerate(places.tolist()):
        parts += [columns.take(slice(before, place)), rows.take(slice(i, i + 1))]
        before = place
    parts.append(columns.take(slice(before, None)))
    return np.insert(offs, places, more), EventColumns.concat(parts)
