"""Text of ``trace-cmd report``: pretty, ``-R``, ``-t``, ``-l``, ``-w``, ``--stat``, instances.

The heads are those of ftrace; names of events are padded, names of instances (or of files)
stand in front of the line, and the same event of two instances counts once.
"""

from __future__ import annotations

import re
from pathlib import Path

from traceana.parsers.ftrace_text import (
    FtraceDialect,
    first_head,
    padded,
    share_of_heads,
    usual_digits,
)
from traceana.parsers.reader import ReaderMeta
from traceana.parsers.text_dialect import SKIP, UNKNOWN, Line
from traceana.parsers.text_lines import Buffer, as_buffer
from traceana.parsers.text_reader import TextReader

__all__ = ["TraceCmdDialect", "open_trace_cmd_text", "sniff"]

_CPUS = re.compile(rb"(?:(\S.*): )?cpus=(\d{1,5})\s*\Z")
_VERSION = re.compile(rb"(?:\S.*: )?version = \d+\s*\Z")
_SKIP = re.compile(
    rb"\s*\Z|#|(?:\S.*: )?CPU \d+ is empty|trace-cmd |\s*=> "
    # -w
    rb"|RT task timings:|(?:Average|Maximum|Minimum) (?:wakeup )?[Ll]atency:|-{10,}\s*\Z"
    # --stat
    rb"|CPU\d+ data recorded at offset=|    \d+ bytes in size\s*\Z"
    rb"|Kernel buffer statistics:|  Note: \"entries\"|        recorded in the trace"
    rb"|(?:entries|commit overrun|bytes|oldest event ts|now ts|dropped events|read events): +"
)
_STAT_CPU = re.compile(rb"CPU: (\d{1,5})\s*\Z")
_STAT_OVERRUN = re.compile(rb"overrun: (\d{1,18})\s*\Z")


class TraceCmdDialect(FtraceDialect):
    """Heads as in ftrace, with instances in front."""

    prefixed = True

    def __init__(self) -> None:
        super().__init__()
        self._cpu = -1

    def other(self, line: bytes) -> Line:
        m = _STAT_CPU.match(line)
        if m:
            self._cpu = int(m[1])
            return SKIP
        m = _STAT_OVERRUN.match(line)
        if m:
            count = int(m[1])
            return Line("overrun", self._cpu, count) if count and self._cpu >= 0 else SKIP
        if _SKIP.match(line) or _CPUS.match(line) or _VERSION.match(line):
            return SKIP
        return UNKNOWN


def sniff(head: bytes) -> float:
    """How sure it is that a file beginning like this is a text of trace-cmd report (0 to 1)."""
    events, known, heads = share_of_heads(head, TraceCmdDialect())
    lines = [line for line in head[:65536].split(b"\n") if line.strip()]
    top = [line.rstrip(b"\r").removeprefix(b"\xef\xbb\xbf") for line in lines[:40]]
    titled = any(_CPUS.match(line) for line in top)
    if titled and (events or known == len(lines)):
        return 0.96 if events else 0.7
    if not events or head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"# tracer: "):
        return 0.0
    return (0.6 + 0.3 * events / len(lines)) * (1.0 if padded(heads) else 0.5)


def open_trace_cmd_text(path: Path, buf: Buffer | memoryview) -> TextReader:
    """A reader of a trace-cmd report. ``buf`` is its whole content, unwrapped."""
    dialect = TraceCmdDialect()
    buf = as_buffer(buf)
    head, before = first_head(buf, dialect)
    meta = ReaderMeta("trace-cmd report text", tool="trace-cmd")
    files = []
    for line in before:
        m = _CPUS.match(line)
        if m:
            if m[1]:
                files.append(m[1])
            meta.cpus_present = max(meta.cpus_present or 0, int(m[2]))
        if line.startswith(b"trace-cmd report") or b"trace-cmd version" in line:
            meta.tool = line[:100].decode("utf-8", "backslashreplace").strip()
    if head is not None:
        dialect.digits, meta.clock_unit = usual_digits(buf, head, dialect)
    reader = TextReader(path, buf, dialect, meta)
    if len(files) > 1:
        reader.header_issue(
            "several_files",
            f"the text was made of {len(files)} files: CPUs of different machines look like one",
            len(files),
        )
    return reader
