"""The reader of all text forms: lines to events, marks, names and issues.

A form brings a :class:`Dialect`: how a head is split, what its other lines mean. The rest is the
same for all. Lines are handled one by one here (obvious, any shape); big files first go through
the kernel of :mod:`~traceana.parsers.text_fast`, which takes the usual lines and leaves every
doubtful one to this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import schema
from traceana.columns import NULL_CPU, NULL_I64, Chunk, EventColumns
from traceana.errors import UsageError
from traceana.issues import IssueLog
from traceana.parsers.reader import Lost, ReaderMeta
from traceana.parsers.text_dialect import Dialect, mark_line
from traceana.parsers.text_events import States, integer, parse_body
from traceana.parsers.text_lines import COMM, Buffer, Head, ctx_of, pieces, shown
from traceana.parsers.text_order import Learnt, Mark, Order, Twins, place_marks
from traceana.schema import EventKind, Evidence

if TYPE_CHECKING:
    from traceana.parsers.text_fast import Fast, Part

__all__ = ["TextReader"]

# As in _text_kernels, which is not imported for small files.
FIELD, HEAD, GROUP = 0, 1, 2

PIECE = 32 << 20
#: Below this size compiling, or loading, a kernel costs more than it saves.
FAST_FROM = 4 << 20

_KIND = {name.encode(): kind for name, kind in schema.EVENT_NAMES.items()}
#: Events whose text may hold newlines: the lines behind them belong to them.
_PRINTERS = frozenset(
    (b"print", b"bprint", b"bputs", b"tracing_mark_write", b"0", b"<stack", b"kernel_stack",
     b"user_stack", b"raw_data")
)  # fmt: skip
_UNKNOWN_NAMES = (b"<...>", b"<idle>", b"")
MAX_BUFFERS = 1000
#: Rows of one buffer that the first rows of another one may repeat.
TAIL = 1000
#: A comm with newlines breaks a line at most this often.
MAX_JOIN = 2 * COMM


# What a comm of 15 bytes cannot hold.
_NUMBERS = re.compile(rb" prev_prio=-?\d{1,3} prev_state=(0x[0-9a-fA-F]{1,8}|\d{1,9})\b")
_LETTERS = re.compile(rb"\d\] ([A-Za-z+|]{1,12}) ==> ")
#: That many bytes show whether states are numbers, and which letters a plugin uses.
LETTERS_IN = 4 << 20


@dataclass
class _Batch:
    """Rows of one piece in file order: (twice the line's offset + 1, then the columns)."""

    rows: list[tuple[int, ...]] = field(default_factory=list)
    names: list[Learnt] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def columns(self) -> tuple[npt.NDArray[np.int64], EventColumns]:
        """Offsets and columns of the rows."""
        table = np.array(self.rows, np.int64).reshape(len(self.rows), 15)
        columns = EventColumns.empty(len(table))
        for i, column in enumerate(columns.arrays()):
            column[:] = table[:, i + 1]
        return table[:, 0], columns


class TextReader:
    """A capture in one of the text forms (:class:`~traceana.parsers.reader.Reader`)."""

    def __init__(self, path: Path, buf: Buffer, dialect: Dialect, meta: ReaderMeta) -> None:
        self.path = path
        self.meta = meta
        self.counts: dict[str, int] = {}
        self.lost = Lost()
        self.issues = IssueLog()
        self.damaged = False
        self.piece = PIECE
        #: From this size on the kernel is used; tests set it to 0 or to a huge number.
        self.fast_from = FAST_FROM
        self._buf = buf
        self._dialect = dialect
        self._head_issues: list[tuple[str, str, int]] = []
        self._entries: int | None = None
        self._start = 3 if buf[:3] == b"\xef\xbb\xbf" else 0
        self._done = 0
        self._reset()

    def header_issue(self, code: str, text: str, count: int = 1) -> None:
        """An issue that the header tells; it stands in each run's log."""
        self._head_issues.append((code, text, count))
        self.issues.add("parse", code, text, count=count)

    def expect(self, entries: int) -> None:
        """How many entries the header says the text holds."""
        self._entries = entries

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
        self._learnt_states = False
        self._buffers: dict[bytes, int] = {b"": 0}
        self._kinds: dict[bytes, int] = {}
        self._begun: set[int] = set()
        self._marks: list[Mark] = []
        #: pid -> where a head first named it, and its name.
        self._heads: dict[int, tuple[int, bytes]] = {}
        self._groups: dict[int, int] = {}
        self._bad = 0
        self._bad_first: list[tuple[int, bytes]] = []
        self._failed = 0
        self._no_cpu = 0
        self._printing = False
        self._done = 0

    # -- lines ---------------------------------------------------------------------------------

    def _line_at(self, off: int) -> tuple[bytes, int]:
        """The line at ``off`` without its end, and where the next begins."""
        end = self._buf.find(b"\n", off)
        if end < 0:
            end = len(self._buf)
        return self._clean(self._buf[off:end]), end + 1

    @staticmethod
    def _clean(line: bytes) -> bytes:
        line = line.rstrip(b"\r\x00")
        return line.replace(b"\0", b"") if b"\0" in line else line

    def _refuse(self, lineno: int, line: bytes) -> None:
        self._bad += 1
        if len(self._bad_first) < 3:
            self._bad_first.append((lineno, line))

    def _take(self, off: int, lineno: int, line: bytes, after: int, batch: _Batch) -> int:
        """Handle the line at ``off``; returns where the next one not yet handled begins."""
        head = self._dialect.split(line)
        if head is None:
            return self._other(off, lineno, line, after, batch)
        event = head.event
        self._kinds[event] = self._kinds.get(event, 0) + 1
        self._printing = event in _PRINTERS
        kind = _KIND.get(event)
        if kind is None:
            self._learn_head(head, off, batch)
            return after
        body = parse_body(kind, head.body, self._states, head.pid)
        if body is None:
            # Perhaps a name with a newline in it: the rest stands on the next lines.
            text, end = head.body, after
            for _ in range(MAX_JOIN):
                if end >= len(self._buf):
                    break
                more, following = self._line_at(end)
                if self._dialect.split(more) or len(text) + len(more) > 1024:
                    break
                text, end = text + b"\n" + more, following
                body = parse_body(kind, text, self._states, head.pid)
                if body is not None:
                    after = end
                    break
        self._learn_head(head, off, batch)
        if body is None:
            self._refuse(lineno, line)
            self._cut_at_end(after)
            return after
        for pid, comm in body.names:
            self._learn(pid, comm, head.ts, off, batch)
        if not body.success:
            self._failed += 1
            return after
        if head.cpu == NULL_CPU:
            self._no_cpu += 1
        batch.rows.append(
            (2 * off + 1, head.ts, head.cpu, kind, head.pid,
             ctx_of(head.flags, self._dialect.layout), body.subject, body.prio, body.state,
             body.other, body.other_prio, body.cpu_to, body.cpu_from, body.value,
             self._buffer(head))
        )  # fmt: skip
        return after

    def _buffer(self, head: Head) -> int:
        if not head.prefix or not self._dialect.prefixed:
            return 0
        found = self._buffers.get(head.prefix)
        if found is None:
            found = len(self._buffers) if len(self._buffers) < MAX_BUFFERS else 0
            if found:
                self._buffers[head.prefix] = found
        return found

    def _learn(self, pid: int, comm: bytes, ts: int, off: int, batch: _Batch) -> None:
        if pid > 0 and comm not in _UNKNOWN_NAMES and comm != b":%d" % pid:
            batch.names.append(Learnt(pid, None, comm, ts, offset=off))

    def _learn_head(self, head: Head, off: int, batch: _Batch) -> None:
        """A head's name serves only pids that no field ever names; its thread group always."""
        pid = head.pid
        if pid <= 0:
            return
        comm = head.comm
        if comm not in _UNKNOWN_NAMES and comm != b":%d" % pid:
            # The latency format cuts names to 8: such a piece is no name.
            if head.width > 8 or len(comm) < 8 or head.digits == 0:
                self._head_at(pid, off, comm)
        if head.tgid > 0 and self._groups.get(pid) != head.tgid:
            self._groups[pid] = head.tgid
            batch.names.append(Learnt(pid, head.tgid, None, head.ts, Evidence.HEADER, off))

    def _head_at(self, pid: int, off: int, comm: bytes) -> None:
        """The first head in the file counts; lines do not come here in their order."""
        if pid not in self._heads or off < self._heads[pid][0]:
            self._heads[pid] = off, comm

    def _cut_at_end(self, after: int) -> bool:
        """Whether the last line was cut: it has no end and does not parse."""
        if after > len(self._buf) and self._start < len(self._buf):
            self.damaged = True
            return True
        return False

    def _other(self, off: int, lineno: int, line: bytes, after: int, batch: _Batch) -> int:
        """A line without a head."""
        found = mark_line(line) or self._dialect.other(line)
        if found.what == "skip":
            return after
        if found.what == "lost":
            count = None if found.events == NULL_I64 else found.events
            self.lost.add(None if found.cpu == NULL_CPU else found.cpu, count)
            batch.marks.append(Mark(off, found.cpu, int(EventKind.LOST), found.events))
            return after
        if found.what == "begin":
            batch.marks.append(Mark(off, found.cpu, int(EventKind.BEGIN), NULL_I64))
            self._begun.add(found.cpu)
            return after
        if found.what == "overrun":
            self.issues.add(
                "parse",
                "ring_overwritten",
                f"cpu {found.cpu}: {found.events} events before its first were overwritten",
                cpu=found.cpu,
                count=found.events,
            )
            return after
        if found.what == "task":
            if found.comm and found.pid > 0 and found.comm != b":%d" % found.pid:
                self._heads[found.pid] = off, found.comm
            if found.tgid and self._groups.get(found.pid) != found.tgid:
                self._groups[found.pid] = found.tgid
                batch.names.append(Learnt(found.pid, found.tgid, None, None, Evidence.HEADER))
            return after
        joined = self._broken_head(off, line, after)
        if joined:
            return joined
        if self._printing:
            return after
        self._refuse(lineno, line)
        self._cut_at_end(after)
        return after

    def _broken_head(self, off: int, line: bytes, after: int) -> int:
        """Where the head goes on, when ``line`` is the begin of a name with a newline in it.

        The name is right-aligned to 16 bytes, newlines included, so the lengths tell. 0: it is not.
        """
        text, end = line, after
        while len(text) <= COMM and end < len(self._buf):
            more, following = self._line_at(end)
            head = self._dialect.split(more)
            if head is not None:
                if len(text) + 1 + head.width != COMM + 1 or not text.strip() or head.prefix:
                    return 0
                if head.pid > 0:
                    self._head_at(head.pid, off, text.lstrip(b" ") + b"\n" + more[: head.width])
                return end
            text, end = text + b"\n" + more, following
        return 0

    # -- batches -------------------------------------------------------------------------------

    def _slow(self, start: int, end: int, lineno: int, batch: _Batch) -> tuple[int, int]:
        """All lines that begin in [start, end); returns where it stopped, and lines seen."""
        off, count = start, 0
        while off < end:
            line, after = self._line_at(off)
            done = self._take(off, lineno + count, line, after, batch)
            count += 1
            if done > after:
                count += self._buf[after : min(done, len(self._buf))].count(b"\n")
            off = done
        return off, count

    def _begins(self, offs: npt.NDArray[np.int64], columns: EventColumns) -> list[Mark]:
        """Of a ring that wrapped: a mark before the first event of each CPU that has none yet."""
        out = []
        cpus, first = np.unique(columns.cpu, return_index=True)
        for cpu, at in zip(cpus.tolist(), first.tolist(), strict=True):
            if cpu >= 0 and cpu not in self._begun:
                self._begun.add(cpu)
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
        batch: _Batch,
        bound: int | None,
    ) -> Chunk | None:
        marks = self._marks + batch.marks
        if self._dialect.wrapped:
            marks += self._begins(offs, columns)
        offs, columns, placed, self._marks = place_marks(offs, columns, marks)
        for mark, ts in placed:
            self._say_lost(mark, ts)
        if len(self._buffers) == 1:
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
            batch = _Batch()
            if fast is None:
                at, seen = self._slow(max(start, at), end, lineno, batch)
                offs, columns = batch.columns()
            else:
                offs, columns, at, seen = self._quick(fast, max(start, at), end, lineno, batch)
            lineno += seen
            self._done = min(end, total)
            chunk = self._emit(offs, columns, batch, bound)
            if chunk is not None:
                yield chunk
        if fast is not None:
            for event, count in fast.counted().items():
                self._kinds[event] = self._kinds.get(event, 0) + count
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

        firsts = [earliest(self._buf, start, end) for start, end in runs]
        out: list[int | None] = [None]
        for first in reversed(firsts[1:]):
            before = out[-1]
            out.append(first if before is None else min(before, first))
        return out[::-1]

    def _quick(
        self, fast: Fast, start: int, end: int, lineno: int, batch: _Batch
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
        offs = [p.offs for p in parts]
        columns = [p.columns for p in parts]
        if batch.rows:
            more, rows = batch.columns()
            offs.append(more)
            columns.append(rows)
        if not offs:
            return np.empty(0, np.int64), EventColumns.empty(0), at, seen
        if len(offs) == 1:
            return offs[0], columns[0], at, seen
        where, table = np.concatenate(offs), EventColumns.concat(columns)
        if batch.rows:
            order = np.argsort(where, kind="stable")
            where, table = where[order], table.take(order)
        return where, table, at, seen

    def _doubtful(self, part: Part, lineno: int, batch: _Batch, fast: Fast) -> int:
        """The lines that the kernel left, and all names; returns behind the last line taken."""
        mine = len(batch.names)
        done = 0
        for off, line, printing in part.doubts:
            if off < done:
                continue
            if printing != 2:
                self._printing = bool(printing)
            text, after = self._line_at(off)
            done = self._take(off, lineno + line, text, after, batch)
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
                self._head_at(pid, at, comm.replace(b"\0", b"").strip(b" \t"))
            elif pid not in again:
                batch.names.append(Learnt(pid, None, comm, ts, offset=at))
        for pid in again:
            self._name_again(part, pid, batch)
            fast.forget(pid)
        return done

    def _name_again(self, part: Part, pid: int, batch: _Batch) -> None:
        """Each line of the kernel that names ``pid``: its name changed on a line in between."""
        for row in np.flatnonzero((part.columns.subject == pid) | (part.columns.other == pid)):
            off = int(part.offs[row]) // 2
            line, _ = self._line_at(off)
            head = self._dialect.split(line)
            if head is None:
                continue
            body = parse_body(
                EventKind(int(part.columns.kind[row])), head.body, self._states, head.pid
            )
            for who, comm in body.names if body else ():
                if who == pid:
                    self._learn(pid, comm, head.ts, off, batch)

    # -- facts ---------------------------------------------------------------------------------

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
            for pid, (_, comm) in self._heads.items()
            if pid not in named
        ]

    def _sum_up(self) -> None:
        """Complete counts and issues once all lines are read."""
        for mark in self._marks:
            self._say_lost(mark, None)
        for event, count in self._kinds.items():
            name = event.decode("utf-8", "backslashreplace")
            self.counts[name] = self.counts.get(name, 0) + count
        add = self.issues.add
        if self._bad:
            first = "; ".join(f"line {n}: '{shown(text)}'" for n, text in self._bad_first)
            lines = "1 line" if self._bad == 1 else f"{self._bad} lines"
            add(
                "parse", "line_not_understood", f"{lines} not understood ({first})", count=self._bad
            )
        if self.damaged:
            at = self._buf.rfind(b"\n") + 1
            add(
                "parse",
                "cut_short",
                f"offset {at:#x}: the last line is cut, the file ends there",
            )
        if self._failed:
            add(
                "parse",
                "wakeup_without_success",
                f"{self._failed} wakeups with success=0 are no wakeups: left out",
                count=self._failed,
            )
        for name, kind in schema.EVENT_NAMES.items():
            if self._twins.dropped.get(int(kind)):
                self.counts[name] -= self._twins.dropped[int(kind)]
        self._twins.report(self.issues)
        if self._no_cpu:
            add(
                "parse",
                "no_cpu_column",
                "lines show no CPU: results per task only (perf script -F +cpu shows it)",
                count=self._no_cpu,
            )
        if len(self._buffers) > 1:
            self.meta.extra["buffers"] = [
                name.decode("utf-8", "backslashreplace") for name in self._buffers
            ]
        seen = sum(self._kinds.values())
        if self._entries is not None and seen < self._entries:
            add(
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
            there = ", ".join(sorted(self.counts)) or "none"
            raise UsageError(f"{self.path}: no event {name!r}; there are: {there}")
        return extra_events(self._buf, self._start, name, self._dialect)

    def topology(self) -> pa.Table | None:
        """Texts tell no topology."""
        return None

    def progress(self) -> tuple[int, int]:
        """Bytes done and bytes in all."""
        return self._done, len(self._buf)
