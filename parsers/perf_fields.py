"""``perf script -F`` texts that leave out who ran, or what no analysis can do without.

The fields that order and tell events are ``time``, ``event`` and ``trace``; without one of them
there is nothing to analyse, and :func:`missing` says which. Without ``tid`` and ``pid`` the events
are still there (:func:`split_bare`): who ran is unknown then, but for a switch, which names it.
"""

from __future__ import annotations

import re

from traceana import schema
from traceana.columns import NULL_CPU, NULL_PID
from traceana.parsers.text_events import MAX_CPU
from traceana.parsers.text_lines import COMM, MAX_LINE, Head, split_event, split_perf, time_ns

__all__ = ["FIELDS", "is_bare", "missing", "split_bare"]

#: What to ask perf for.
FIELDS = "comm,tid,cpu,time,event,trace"

_BARE = re.compile(
    rb"\s*(.{0,%d}?)\s*(?:\[(\d{1,6})\]\s+)?(?<![\d.])(\d{1,10})\.(\d{6}(?:\d{3})?):\s+"
    rb"(?:\d+\s+)?(?=[a-z]\w*:\w)" % COMM
)
_NAMES = b"|".join(name.encode() for name in schema.EVENT_NAMES)
_TIME = re.compile(rb"(?:\A|\s)\d{1,10}\.\d{6}(?:\d{3})?:(?:\s|\Z)")
_EVENT = re.compile(rb"(?:\A|\s)(?:[a-z]\w*:)?(?:" + _NAMES + rb"):(?:\s+(\S)|\s*\Z)")
#: Texts of the kinds of events we know, by the kernel or by a plugin.
_TRACE = re.compile(
    rb"\bcomm=.*\bpid=-?\d|\bpid=-?\d+ \w*comm=|\] \S{1,4} ==> |\](?: success=\d)? CPU:\d"
    rb"|\bstate=\d+ cpu_id=\d|\birq=\d|\bvec=\d|\bfilename=.* pid=\d|\A\s*(?:.* )?cpu=\d+\s*\Z"
)


def split_bare(line: bytes) -> Head | None:
    """``comm [cpu] secs.usec: system:event: body``, comm and CPU optional; no tid."""
    m = _BARE.match(line[:MAX_LINE])
    if m is None:
        return None
    comm, cpu, whole, fraction = m.groups()
    number = int(cpu) if cpu else NULL_CPU
    event, body = split_event(line[m.end() :])
    if not event or number >= MAX_CPU:
        return None
    return Head(
        comm, NULL_PID, NULL_PID, number, None, time_ns(whole, fraction), len(fraction), event, body
    )


def _lines(text: bytes) -> list[bytes]:
    lines = text.split(b"\n")
    if len(text) >= 65536:
        lines.pop()
    return [x[:MAX_LINE] for x in lines if x.strip() and not x.startswith((b"#", b"\t"))]


def is_bare(text: bytes) -> bool:
    """Whether most lines of a text's begin have a head, but none with a tid."""
    lines = _lines(text)
    bare = sum(split_bare(x) is not None for x in lines)
    return 2 * bare > len(lines) and 2 * sum(split_perf(x) is not None for x in lines) < bare


def missing(text: bytes) -> list[str]:
    """Which of time, event and trace all lines of a text's begin lack; [] if it seems another."""
    lines = _lines(text)
    times = events = traces = known = followed = 0
    for line in lines:
        time, event, trace = (p.search(line) is not None for p in (_TIME, _EVENT, _TRACE))
        if event or trace:
            known += 1
            times, events, traces = times + time, events + event, traces + trace
            m = _EVENT.search(line)
            followed += bool(m and m[1])
    if 2 * known <= len(lines):
        return []
    out = []
    if not times:
        out.append("time")
    if not events:
        out.append("event")
    if not traces and not followed:
        out.append("trace")
    return out
