"""Line by line: what each line of a text says, whatever its shape.

This is the obvious way, and the one that the kernel is measured by. It also heals names with
newlines in them, which break lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from traceana import schema
from traceana.columns import NULL_CPU, NULL_I64, NULL_PID, EventColumns
from traceana.issues import IssueLog
from traceana.parsers.reader import Lost
from traceana.parsers.text_dialect import Dialect, mark_line
from traceana.parsers.text_events import States, parse_body
from traceana.parsers.text_lines import COMM, Buffer, Head, ctx_of, shown
from traceana.parsers.text_order import Learnt, Mark
from traceana.schema import EventKind, Evidence

__all__ = ["Batch", "Lines"]

_KIND = {name.encode(): kind for name, kind in schema.EVENT_NAMES.items()}
#: Events whose text may hold newlines: the lines behind them belong to them.
_PRINTERS = frozenset(
    (b"print", b"bprint", b"bputs", b"tracing_mark_write", b"0", b"<stack", b"kernel_stack",
     b"user_stack", b"raw_data")
)  # fmt: skip
_UNKNOWN_NAMES = (b"<...>", b"<idle>", b"")
#: More buffers, or names of events, no capture has: the rest is one.
MAX_BUFFERS, MAX_EVENTS = 1000, 1 << 15
#: A comm with newlines breaks a line at most this often.
MAX_JOIN = 2 * COMM


@dataclass
class Batch:
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


class Lines:
    """Takes lines of one text; keeps what they add up to."""

    def __init__(self, buf: Buffer, start: int, dialect: Dialect, states: States) -> None:
        self.issues = IssueLog()
        self.lost = Lost()
        self.damaged = False
        #: Events per name.
        self.kinds: dict[bytes, int] = {}
        self.buffers: dict[bytes, int] = {b"": 0}
        #: CPUs that have a mark of their begin.
        self.begun: set[int] = set()
        #: pid -> where a head first named it, and its name.
        self.heads: dict[int, tuple[int, bytes]] = {}
        #: Whether the last event's text may go on on the next line.
        self.printing = False
        self._buf = buf
        self._start = start
        self._dialect = dialect
        self._states = states
        self._groups: dict[int, int] = {}
        self._bad = 0
        self._bad_first: list[tuple[int, bytes]] = []
        self._failed = 0
        self._no_cpu = 0
        self._no_pid = 0

    def line_at(self, off: int) -> tuple[bytes, int]:
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

    def take(self, off: int, lineno: int, line: bytes, after: int, batch: Batch) -> int:
        """Handle the line at ``off``; returns where the next one not yet handled begins."""
        head = self._dialect.split(line)
        if head is None:
            return self._other(off, lineno, line, after, batch)
        event = head.event
        self.count(event)
        self.printing = event in _PRINTERS
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
                more, following = self.line_at(end)
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
        current = head.pid
        if current == NULL_PID:
            # Who switches away is who runs (sched_switch fires before the switch).
            current = body.subject if kind == EventKind.SWITCH else NULL_PID
            self._no_pid += 1
        batch.rows.append(
            (2 * off + 1, head.ts, head.cpu, kind, current,
             ctx_of(head.flags, self._dialect.layout), body.subject, body.prio, body.state,
             body.other, body.other_prio, body.cpu_to, body.cpu_from, body.value,
             self._buffer(head))
        )  # fmt: skip
        return after

    def count(self, event: bytes, times: int = 1) -> None:
        """Book events of a name."""
        if event not in self.kinds and len(self.kinds) >= MAX_EVENTS:
            event = b"(others)"
        self.kinds[event] = self.kinds.get(event, 0) + times

    def _buffer(self, head: Head) -> int:
        if not head.prefix or not self._dialect.prefixed:
            return 0
        found = self.buffers.get(head.prefix)
        if found is None:
            found = len(self.buffers) if len(self.buffers) < MAX_BUFFERS else 0
            if found:
                self.buffers[head.prefix] = found
        return found

    def _learn(self, pid: int, comm: bytes, ts: int, off: int, batch: Batch) -> None:
        if pid > 0 and comm not in _UNKNOWN_NAMES and comm != b":%d" % pid:
            batch.names.append(Learnt(pid, None, comm, ts, offset=off))

    def _learn_head(self, head: Head, off: int, batch: Batch) -> None:
        """A head's name serves only pids that no field ever names; its thread group always."""
        pid = head.pid
        if pid <= 0:
            return
        comm = head.comm
        if comm not in _UNKNOWN_NAMES and comm != b":%d" % pid:
            # The latency format cuts names to 8: such a piece is no name.
            if not (head.short and len(comm) == 8):
                self.head_at(pid, off, comm)
        if head.tgid > 0 and self._groups.get(pid) != head.tgid:
            self._groups[pid] = head.tgid
            batch.names.append(Learnt(pid, head.tgid, None, head.ts, Evidence.HEADER, off))

    def head_at(self, pid: int, off: int, comm: bytes) -> None:
        """The first head in the file counts; lines do not come here in their order."""
        if pid not in self.heads or off < self.heads[pid][0]:
            self.heads[pid] = off, comm

    def _cut_at_end(self, after: int) -> bool:
        """Whether the last line was cut: it has no end and does not parse."""
        if after > len(self._buf) and self._start < len(self._buf):
            self.damaged = True
            return True
        return False

    def _other(self, off: int, lineno: int, line: bytes, after: int, batch: Batch) -> int:
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
            self.begun.add(found.cpu)
            return after
        if found.what == "overrun":
            self.issues.add(
                "parse",
                "ring_wrapped",
                f"cpu {found.cpu}: {found.events} events before its first were overwritten",
                cpu=found.cpu,
                count=found.events,
            )
            return after
        if found.what == "task":
            if found.comm and found.pid > 0 and found.comm != b":%d" % found.pid:
                self.heads[found.pid] = off, found.comm
            if found.tgid and self._groups.get(found.pid) != found.tgid:
                self._groups[found.pid] = found.tgid
                batch.names.append(Learnt(found.pid, found.tgid, None, None, Evidence.HEADER))
            return after
        joined = self._broken_head(off, line, after)
        if joined:
            return joined
        if self.printing:
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
            more, following = self.line_at(end)
            head = self._dialect.split(more)
            if head is not None:
                if len(text) + 1 + head.width != COMM + 1 or not text.strip() or head.prefix:
                    return 0
                if head.pid > 0:
                    self.head_at(head.pid, off, text.lstrip(b" ") + b"\n" + more[: head.width])
                return end
            text, end = text + b"\n" + more, following
        return 0

    def name_again(self, off: int, kind: EventKind, pid: int, batch: Batch) -> None:
        """Only the names of ``pid`` on the line at ``off``."""
        line, _ = self.line_at(off)
        head = self._dialect.split(line)
        if head is None:
            return
        body = parse_body(kind, head.body, self._states, head.pid)
        for who, comm in body.names if body else ():
            if who == pid:
                self._learn(pid, comm, head.ts, off, batch)

    def report(self) -> None:
        """Book what was not understood or left out."""
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
        if self._no_cpu:
            add(
                "parse",
                "no_cpu_column",
                "lines show no CPU: results per task only (perf script -F +cpu shows it)",
                count=self._no_cpu,
            )
        if self._no_pid:
            add(
                "parse",
                "no_tid_column",
                "lines show no tid: only switches tell who ran (perf script -F +tid shows it)",
                count=self._no_pid,
            )
