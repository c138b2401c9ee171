"""What one text form adds to the common reader: its heads, and the meaning of its other lines."""

from __future__ import annotations

import re
from typing import NamedTuple

from traceana.columns import NULL_CPU, NULL_I64, NULL_PID
from traceana.parsers.text_lines import Head

__all__ = ["SKIP", "UNKNOWN", "Dialect", "Line", "mark_line"]


class Line(NamedTuple):
    """What a line without a head means: one of the words below, with its facts."""

    #: 'skip', 'lost', 'begin', 'overrun', 'task' (a name), or 'unknown'.
    what: str
    cpu: int = NULL_CPU
    #: How many events, NULL_I64 if not told.
    events: int = NULL_I64
    pid: int = NULL_PID
    tgid: int | None = None
    comm: bytes | None = None


SKIP = Line("skip")
UNKNOWN = Line("unknown")
_LOST = re.compile(
    rb"CPU:?\s?(\d{1,5}) \[(?:LOST (?:(\d{1,18}) )?EVENTS|(?:(\d{1,18}) )?EVENTS DROPPED)\]\s*\Z"
)
_BEGIN = re.compile(rb"##### CPU (\d{1,5}) buffer started ####")


def mark_line(line: bytes) -> Line | None:
    """Loss and buffer-start marks, the same in all ftrace texts."""
    m = _LOST.search(line[:200])
    if m:
        count = m[2] or m[3]
        return Line("lost", int(m[1]), int(count) if count else NULL_I64)
    m = _BEGIN.match(line)
    return Line("begin", int(m[1])) if m else None


class Dialect:
    """What one text form adds: its heads, and its other lines."""

    #: 0: no kernel; 1: ``comm-pid [cpu]``; 2: perf script.
    fast = 0
    #: Instances stand as ``name:`` in front of the line.
    prefixed = False
    #: The flags column as the header's art tells it.
    layout: tuple[str, ...] | None = None
    #: Digits behind the point of the first event's time; -1: no event.
    digits = -1
    #: The ring wrapped: what a CPU did before its first event is not known.
    wrapped = False

    def split(self, line: bytes) -> Head | None:
        """The head of an event line, None for other lines."""
        raise NotImplementedError

    def other(self, line: bytes) -> Line:
        """What a line without a head means."""
        raise NotImplementedError
