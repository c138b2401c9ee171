"""Text of ``perf script``: default columns, ``--ns``, ``--header``, call chains, ``-F`` variants.

There is no flags column, so the context of an event is unknown; without a CPU column
(``-F`` lists without ``cpu``) so is the CPU.
"""

from __future__ import annotations

import re
from pathlib import Path

from traceana.columns import NULL_CPU
from traceana.errors import FormatError
from traceana.parsers.ftrace_text import first_head, share_of_heads, usual_digits
from traceana.parsers.perf_fields import FIELDS, is_bare, missing, split_bare
from traceana.parsers.reader import ReaderMeta
from traceana.parsers.text_dialect import SKIP, UNKNOWN, Dialect, Line
from traceana.parsers.text_lines import Buffer, Head, as_buffer, split_perf
from traceana.parsers.text_reader import TextReader

__all__ = ["PerfDialect", "open_perf_script", "sniff"]

#: Blank lines, the header block, frames of a call chain.
_SKIP = re.compile(rb"\s*\Z|#|\s+[0-9a-f]{1,16} \S|\s+\S+\+0x[0-9a-f]+ \(")
_LOST = re.compile(rb"PERF_RECORD_LOST(?:_SAMPLES)? lost (\d{1,18})")
_TASK = re.compile(rb"PERF_RECORD_COMM(?: exec)?: (.{0,64}):(-?\d{1,10})/(-?\d{1,10})\s*\Z")
_FORK = re.compile(rb"PERF_RECORD_FORK\((-?\d{1,10}):(-?\d{1,10})\)")
_CPU = re.compile(rb"\[(\d{1,5})\]\s+(?:[A-Za-z]{1,4}\s+)?\d+\.\d+: PERF_RECORD_")
_HEADER = re.compile(rb"# ([\w ]+?) *: (.*)\Z")
_CLOCK = re.compile(rb"# clockid: (\w+)")
#: So much of a text shows which fields it has.
_BEGIN = 65536


class PerfDialect(Dialect):
    """Heads of perf script, and its lines about tasks and losses."""

    fast = 2

    def __init__(self, *, bare: bool = False) -> None:
        #: Lines have no tid (perf_fields).
        self.bare = bare
        if bare:
            self.fast = 0

    def split(self, line: bytes) -> Head | None:
        # Records that are no samples look alike, but are no tracepoints.
        if b": PERF_RECORD_" in line:
            return None
        return split_bare(line) if self.bare else split_perf(line)

    def other(self, line: bytes) -> Line:
        if b"PERF_RECORD_" in line:
            return self._record(line)
        return SKIP if _SKIP.match(line) else UNKNOWN

    @staticmethod
    def _record(line: bytes) -> Line:
        m = _LOST.search(line)
        if m:
            cpu = _CPU.search(line)
            return Line("lost", int(cpu[1]) if cpu else NULL_CPU, int(m[1]))
        m = _TASK.search(line)
        if m:
            return Line("task", pid=int(m[3]), tgid=int(m[2]), comm=m[1])
        m = _FORK.search(line)
        if m:
            return Line("task", pid=int(m[2]), tgid=int(m[1]))
        return SKIP


def sniff(head: bytes) -> float:
    """How sure it is that a file beginning like this is perf script text (0 to 1)."""
    start = head[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if is_bare(head):
        events, known, _ = share_of_heads(head, PerfDialect(bare=True))
        whole = sum(1 for line in head.split(b"\n") if line.strip())
        return 0.65 + 0.3 * min(1.0, (events + known) / max(1, whole)) if events else 0.0
    events, known, heads = share_of_heads(head, PerfDialect())
    if not events and missing(head):
        return 0.5
    if start.startswith(b"# ========") and b"# perf version" in head:
        return 0.95 if events else 0.8
    if not events or start.startswith(b"# tracer: "):
        return 0.0
    # Without a CPU column a head is little more than two numbers: ask for an event of perf.
    if all(h.cpu == NULL_CPU for h in heads) and not re.search(rb"\d\.\d{6,9}: +[\w :/=-]+:", head):
        return 0.0
    whole = sum(1 for line in head.split(b"\n") if line.strip())
    return 0.6 + 0.3 * min(1.0, (events + known) / max(1, whole))


def open_perf_script(path: Path, buf: Buffer | memoryview) -> TextReader:
    """A reader of perf script text. ``buf`` is its whole content, unwrapped.

    Raises
    ------
    FormatError
        A field is missing without which there are no events.
    """
    buf = as_buffer(buf)
    begin = buf[0:_BEGIN]
    lacks = missing(begin)
    if lacks:
        what = " and ".join(lacks)
        raise FormatError(
            path,
            f"perf script text without the field{'s' if len(lacks) > 1 else ''} {what}",
            hint=f"perf script -F {FIELDS}",
        )
    dialect = PerfDialect(bare=is_bare(begin))
    head, before = first_head(buf, dialect)
    meta = ReaderMeta("perf script text", tool="perf")
    for line in before:
        m = _CLOCK.match(line)
        if m:
            meta.clock = m[1].decode("ascii", "replace")
        m = _HEADER.match(line[:65536])
        if not m:
            continue
        key, value = m[1].decode("latin-1"), m[2].decode("utf-8", "backslashreplace").strip()
        if key == "os release":
            meta.kernel = value
        elif key == "hostname":
            meta.hostname = value
        elif key == "arch":
            meta.machine = value
        elif key == "perf version":
            meta.tool = f"perf {value}"
        elif key == "cmdline":
            meta.cmdline = value
        elif key == "nrcpus online" and re.fullmatch(r"[0-9]{1,6}", value):
            meta.cpus_online = int(value)
        elif key == "nrcpus avail" and re.fullmatch(r"[0-9]{1,6}", value):
            meta.cpus_present = int(value)
        elif key in ("cpudesc", "captured on", "total memory"):
            meta.extra[key.replace(" ", "_")] = value
    if head is not None:
        dialect.digits, meta.clock_unit = usual_digits(buf, head, dialect)
    return TextReader(path, buf, dialect, meta)
