"""tracefs text: ``trace``, ``trace_pipe``, ``trace-cmd show``, in its dresses.

With or without the flags and TGID columns, the latency format, verbose, and what ftrace dumps
on the console. The ``#`` header tells how many entries were written and are left, and by its
art which flags columns there are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from traceana.parsers.reader import ReaderMeta
from traceana.parsers.text_dialect import SKIP, UNKNOWN, Dialect, Line, mark_line
from traceana.parsers.text_lines import (
    Buffer,
    Head,
    as_buffer,
    pieces,
    split_dash,
    split_latency,
    split_verbose,
)
from traceana.parsers.text_reader import TextReader

__all__ = [
    "FtraceDialect",
    "first_head",
    "open_ftrace_text",
    "padded",
    "share_of_heads",
    "sniff",
    "usual_digits",
]

#: Enough for every header; where no event comes so early, the clock's unit stays ns.
HEADER = 1 << 20

_ART = re.compile(rb"#[ |/]*_-+=> ([\w/#-]+)")
_COLUMNS = {
    b"irqs-off": "irq",
    b"irqs-off/BH-disabled": "irq",
    b"need-resched": "resched",
    b"need-resched-lazy": "lazy",
    b"need-resched_lazy": "lazy",
    b"hardirq/softirq": "ctx",
    b"preempt-depth": "preempt",
    b"preempt-lazy-depth": "lazydepth",
    b"migrate-disable": "migrate",
}
_ENTRIES = re.compile(rb"# entries-in-buffer/entries-written: (\d+)/(\d+)\s+#P:(\d+)")
_LATENCY_ENTRIES = re.compile(rb"# latency: \d+ us, #(\d+)/(\d+), CPU#\d+ \|.*#P:(\d+)\)")
_RELEASE = re.compile(rb"# \S+ latency trace v\S+ on (\S+)")
_SKIP = re.compile(
    rb"\s*\Z|#|TRACE:|\s*=> |\s*<(?:user )?stack trace>|Dumping ftrace buffer:|-{10,}\s*\Z"
    rb"|\s*\(ftrace buffer empty\)"
)
#: JSON and HTML may hold ftrace text, but are no text files of it.
_WRAPPED = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:\{\s*\"|\{\s*\}|\[\s*[\[{\"]|<(?i:!|\?|html|script))"
)
#: What the kernel log puts in front of each line of a console dump.
_PRINTK = re.compile(rb"(?:<\d+>)?\[ *\d+\.\d{6}\](?:\[ *[CT]\d+\])? ")


class FtraceDialect(Dialect):
    """Heads of all dresses; the one that fitted last is tried first."""

    fast = 1

    def __init__(self) -> None:
        self._splits: list[Callable[[bytes], Head | None]] = [
            split_dash,
            split_latency,
            split_verbose,
        ]
        self._console = False

    def split(self, line: bytes) -> Head | None:
        if self._console:
            m = _PRINTK.match(line)
            line = line[m.end() :] if m else line
        for i, split in enumerate(self._splits):
            head = split(line)
            if head is not None:
                if i:
                    self._splits.insert(0, self._splits.pop(i))
                return head
        return None

    def other(self, line: bytes) -> Line:
        m = _PRINTK.match(line)
        if m:
            self._console = self._console or b"ftrace buffer" in line
            if self._console:
                line = line[m.end() :]
                return mark_line(line) or (SKIP if _SKIP.match(line) else UNKNOWN)
        return SKIP if _SKIP.match(line) else UNKNOWN


def first_head(buf: Buffer, dialect: Dialect) -> tuple[Head | None, list[bytes]]:
    """The first event line's head, and the lines before it (at most HEADER bytes)."""
    before: list[bytes] = []
    end = next((b for _, b in pieces(buf, HEADER)), 0)
    for line in buf[0 : min(end, 2 * HEADER)].split(b"\n"):
        line = line.rstrip(b"\r\0").removeprefix(b"\xef\xbb\xbf")
        head = dialect.split(line)
        if head is not None:
            return head, before
        before.append(line)
    return None, before


def usual_digits(buf: Buffer, start: Head, dialect: Dialect) -> tuple[int, str]:
    """Digits behind the point of most times, and the clock's unit that follows.

    'us' or 'ns' by the digits; numbers without a point are a count, or cycles: the counter clock
    adds one with each event, over all CPUs, a cycle counter runs on between.
    """
    heads = [dialect.split(line) for line in buf[0:65536].split(b"\n")[:-1]]
    found = [head for head in heads if head is not None] or [start]
    digits, _ = Counter(head.digits for head in found).most_common(1)[0]
    if digits:
        return digits, "us" if digits <= 6 else "ns"
    stamps = [head.ts for head in found if not head.digits]
    return 0, "cycles" if max(stamps) - min(stamps) > 100 * len(stamps) else "count"


def share_of_heads(head: bytes, dialect: Dialect) -> tuple[int, int, list[Head]]:
    """(event lines, lines that the form knows, heads) among the lines of a file's begin."""
    if _WRAPPED.match(head):
        return 0, 0, []
    lines = head.split(b"\n")
    if len(head) >= 65536:
        lines.pop()
    heads, known = [], 0
    for line in lines:
        if len(line) > 4096:
            continue
        line = line.rstrip(b"\r\0")
        found = dialect.split(line)
        if found is not None:
            heads.append(found)
        elif line.strip() and (mark_line(line) or dialect.other(line).what != "unknown"):
            known += 1
    return len(heads), known, heads


def padded(heads: list[Head]) -> bool:
    """Whether the lines are those of trace-cmd report: it pads the event's name to 20 columns."""
    short = [h.body for h in heads if len(h.event) < 20 and h.body.strip()]
    signs = sum(b.startswith(b" ") or b.startswith(b"[FAILED TO PARSE]") for b in short)
    return 2 * signs > len(short) or any(h.body.startswith(b"[FAILED TO PARSE]") for h in heads)


def sniff(head: bytes) -> float:
    """How sure it is that a file beginning like this is tracefs text (0 to 1)."""
    start = head[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    events, known, heads = share_of_heads(head, FtraceDialect())
    whole = max(1, sum(1 for line in head.split(b"\n") if line.strip()))
    if re.match(rb"(?:# )?TRACE:\s*\n|# tracer: ", start) or _RELEASE.search(head[:4096]):
        return 0.98 if events else 0.9 if known == whole else 0.0
    if not events:
        return 0.0
    if b"Dumping ftrace buffer:" in head:
        return 0.9
    return (0.6 + 0.3 * events / whole) * (0.5 if padded(heads) else 1.0)


def open_ftrace_text(path: Path, buf: Buffer | memoryview) -> TextReader:
    """A reader of tracefs text. ``buf`` is its whole content, unwrapped."""
    dialect = FtraceDialect()
    buf = as_buffer(buf)
    head, before = first_head(buf, dialect)
    meta = ReaderMeta("tracefs text")
    layout: list[str] = []
    entries: tuple[int, int, int] | None = None
    for line in before:
        if line.startswith(b"# tracer: "):
            meta.extra["tracer"] = line[10:].decode("utf-8", "backslashreplace").strip()
        m = _ART.match(line)
        if m and m[1] in _COLUMNS:
            layout.append(_COLUMNS[m[1]])
        m = _ENTRIES.match(line) or _LATENCY_ENTRIES.match(line)
        if m and len(m[0]) < 200:
            entries = (int(m[1]), int(m[2]), int(m[3]))
        m = _RELEASE.match(line)
        if m:
            meta.kernel = m[1].decode("utf-8", "backslashreplace")
    dialect.layout = tuple(layout) if len(layout) >= 3 else None
    if head is not None:
        dialect.digits, meta.clock_unit = usual_digits(buf, head, dialect)
    reader = TextReader(path, buf, dialect, meta)
    if entries is not None:
        kept, written, cpus = entries
        meta.cpus_online = cpus
        meta.extra["entries_in_buffer"], meta.extra["entries_written"] = kept, written
        reader.expect(kept, written)
        if written > kept:
            dialect.wrapped = True
            reader.header_issue(
                "ring_wrapped",
                f"the header tells that {written - kept} of {written} events at the begin were "
                "overwritten before they were read",
                written - kept,
            )
    if head is not None and head.flags is not None and _relative(before, head):
        reader.header_issue(
            "relative_time", "times count from the start of the buffer (latency format)"
        )
    return reader


def _relative(before: list[bytes], head: Head) -> bool:
    """The latency format shows µs since the buffer's start; verbose shows both."""
    latency = any(_RELEASE.match(line) for line in before)
    return latency and head.flags is not None and not head.flags.startswith(b"=")
