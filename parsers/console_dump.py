"""A kernel log that holds what ftrace dumped on the console (ftrace_dump_on_oops, sysrq-z).

The dump stands between other messages, each line with what printk, syslog or journalctl put in
front. Its lines are taken out, made bare, and given to the reader of tracefs text; they are of the
latency format with absolute times in µs.
"""

from __future__ import annotations

import re
from pathlib import Path

from traceana.errors import FormatError
from traceana.parsers import ftrace_text
from traceana.parsers.reader import Reader
from traceana.parsers.text_dialect import mark_line
from traceana.parsers.text_lines import Buffer, as_buffer, split_dash, split_latency

__all__ = ["open_console_dump", "sniff"]

_BANNER = b"Dumping ftrace buffer:"
_EMPTY = b"(ftrace buffer empty)"
#: What stands before a message: syslog or journalctl (time, host, "kernel:"), the level, the time
#: of printk, the caller (thread or CPU).
_PREFIX = re.compile(
    rb"(?:[^\[\]<>]{0,100}?kernel: ?)?(?:<\d{1,3}>)?(?:\[ *\d{1,12}\.\d{1,9}\] ?)?"
    rb"(?:\[ *[CT]\d{1,10}\] ?)?"
)
_PRINTK = re.compile(
    rb"^(?:[^\[\]<>\n]{0,100}?kernel: ?)?(?:<\d{1,3}>)?\[ *\d{1,12}\.\d{6}\] ?", re.MULTILINE
)
_RULE = re.compile(rb"-{20,}\s*\Z")
_DROPPED = re.compile(rb"\*\* (\d{1,12}) printk messages dropped")


def sniff(head: bytes) -> float:
    """How sure it is that a file beginning like this is a kernel log with a dump in it."""
    at = head.find(_BANNER)
    lines = head.count(b"\n") + 1
    logged = sum(1 for _ in _PRINTK.finditer(head))
    if at >= 0:
        line = head[head.rfind(b"\n", 0, at) + 1 : at]
        return 0.97 if _PREFIX.fullmatch(line) else 0.0
    # The dump may come late in a long log: it is looked for when the file is opened.
    return 0.55 if logged > 5 and 10 * logged > 8 * lines else 0.0


def open_console_dump(path: Path, buf: Buffer | memoryview) -> Reader:
    """A reader of the dumps in a kernel log.

    Raises
    ------
    FormatError
        There is no dump in it, or only empty ones.
    """
    buf = as_buffer(buf)
    out: list[bytes] = []
    others = dropped = 0
    at = buf.find(_BANNER)
    if at < 0:
        raise FormatError(
            path,
            "a kernel log without a dump of ftrace: not a capture",
            hint="sysrq-z, or ftrace_dump_on_oops, writes one; or give the file trace of tracefs",
        )
    dumps = events = 0
    while at >= 0:
        dumps += 1
        rules = 0
        start = buf.find(b"\n", at) + 1
        nxt = buf.find(_BANNER, at + 1)
        end = len(buf) if nxt < 0 else nxt
        pos = start if start else end
        while pos < end and rules < 2:
            stop = buf.find(b"\n", pos, end)
            stop = end if stop < 0 else stop
            raw = buf[pos:stop].rstrip(b"\r")
            pos = stop + 1
            m = _PREFIX.match(raw)
            line = raw[m.end() :] if m else raw
            if _RULE.match(line):
                rules += 1
            elif mark_line(line):
                out.append(line)
            elif split_latency(line) or split_dash(line):
                out.append(line)
                events += 1
            elif line.strip() and not line.startswith(_EMPTY):
                lost = _DROPPED.search(line)
                dropped += int(lost[1]) if lost else 0
                # Below an event: the rest of its text; else a message of somebody else.
                if line[:3] == b" =>" or b"<stack trace>" in line[:40]:
                    out.append(line)
                elif not lost:
                    others += 1
        at = nxt
    if not events:
        raise FormatError(
            path,
            "a kernel log whose dump of ftrace holds no event: not a capture",
            hint="the ring was empty: switch events on before",
        )
    text = b"\n".join(out) + b"\n"
    reader = ftrace_text.open_ftrace_text(path, text)
    reader.meta.form = "ftrace dump on the console"
    if dumps > 1:
        reader.meta.extra["dumps"] = dumps
    if others:
        reader.header_issue(
            "other_messages", f"{others} other messages between the lines of the dump", others
        )
    if dropped:
        reader.header_issue(
            "console_messages_dropped",
            f"the console dropped {dropped} messages during the dump: events are missing",
            dropped,
        )
    return reader
