"""Lines of text traces: their heads, the digits of time, the flags column, pieces of a buffer.

A head is ``comm-pid (tgid) [cpu] flags time: event: body`` (tracefs ``trace``, ``trace_pipe``,
``trace-cmd report``), the same squeezed (latency format, ``report -l``), spelled out (verbose),
or ``comm tid [cpu] time: event: body`` (perf script). comm is at most 15 bytes of anything, so
a head is found by what follows comm: of all places where the rest would fit, the last one
within 15 bytes of the line's first non-blank byte is the true one; only a buffer's name or a
``file:line:`` in front of the line makes comm begin later.

Times never pass through a float: the digits become integer ns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, Protocol

from traceana.columns import NULL_CPU, NULL_CTX, NULL_PID
from traceana.parsers.text_events import MAX_CPU
from traceana.schema import Ctx

__all__ = [
    "DEFAULT_LAYOUTS",
    "Buffer",
    "Head",
    "as_buffer",
    "common_flags",
    "ctx_of",
    "pieces",
    "shown",
    "split_dash",
    "split_event",
    "split_latency",
    "split_perf",
    "split_verbose",
    "time_ns",
]

#: TASK_COMM_LEN - 1.
COMM = 15
#: Of a process name that was put in the place of comm; also more than any event's name.
LONG_NAME = 100
#: Nobody writes a longer line of one event; what is longer is not searched for a head.
MAX_LINE = 16384


class Buffer(Protocol):
    """What a file's content comes as: bytes, or a read-only mmap."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> bytes: ...
    def find(self, sub: bytes, start: int = ..., end: int = ..., /) -> int: ...
    def rfind(self, sub: bytes, start: int = ..., end: int = ..., /) -> int: ...


class Head(NamedTuple):
    """The head of an event line, and its body."""

    comm: bytes
    pid: int
    tgid: int
    cpu: int
    #: The flags column as text; ``=bits,preempt_count`` from the verbose dress; None: no such.
    flags: bytes | None
    #: ns; or the bare number of a clock that has no decimal point.
    ts: int
    #: Digits behind the decimal point, 0 when there is none.
    digits: int
    event: bytes
    body: bytes
    #: What stood before comm: the name of an instance, ``file:line``.
    prefix: bytes = b""
    #: Length of the line up to the end of comm: 16 where comm is right-aligned as usual.
    width: int = 16
    #: The dress cuts names to 8.
    short: bool = False


def as_buffer(buf: Buffer | memoryview) -> Buffer:
    """The content in a form that can be searched (a memoryview cannot)."""
    return bytes(buf) if isinstance(buf, memoryview) else buf


def time_ns(whole: bytes, fraction: bytes | None) -> int:
    """``secs.usec`` or ``secs.nsec`` as ns; a number without a point as it stands."""
    if fraction is None:
        return int(whole)
    return int(whole) * 1_000_000_000 + int(fraction[:9].ljust(9, b"0"))


# system: name .llvm.N /config/ :modifiers: body
_EVENT = re.compile(
    rb"(?:[\w.-]+:(?![ukhGHIpPSDWeb]{1,8}:(?:\s|\Z)))?([\w.+$<>-]+?)(?:\.llvm\.\d+)?"
    rb"(?:/[^/\s]*/)?(?::[ukhGHIpPSDWeb]{1,8})?:(?:\s(.*)|\Z)",
    re.DOTALL,
)
_CALL = re.compile(rb"(\w+)(?:\(| -> )")


def split_event(rest: bytes) -> tuple[bytes, bytes]:
    """What follows the time: the event's bare name (no system, no modifiers) and its body.

    Syscall texts of old kernels (``sys_read(fd: 3)``, ``sys_read -> 0x1``) are named by the
    call, lines of the function tracer ``function``; b"" when there is no name at all.
    """
    m = _EVENT.match(rest)
    if m:
        return m[1][:LONG_NAME], m[2] or b""
    m = _CALL.match(rest)
    if m:
        return m[1][:LONG_NAME], rest[m.end(1) :]
    if b" <-" in rest:
        return b"function", rest
    return rest.split(None, 1)[0][:64] if rest.strip() else b"", rest


def _fits(pid: int, cpu: int, ts: int) -> bool:
    return -(1 << 31) <= pid < 1 << 31 and cpu < MAX_CPU and ts < 1 << 62


_DASH = re.compile(
    rb"-(-?\d{1,10})\s+(?:\(\s*(\d{1,10}|-+)\)\s*)?\[(\d{1,6})\]\s+"
    rb"(?:([A-Za-z0-9.#]{4,8})\s+)?(\d{1,19})(?:\.(\d{1,12}))?:(?:\s+\([+-]?\d+\))?\s+",
)
_LATENCY = re.compile(
    rb"-(-?\d{1,10})()\s+(\d{1,6}?)([A-Za-z.][A-Za-z0-9.#]{3,7}|-0x[0-9a-f]{1,2})\s+"
    rb"(\d{1,19})(?:\.(\d{1,12})|us[ +!#*@$]?\s*)?:(?:\s+\([+-]?\d+\))?\s+",
)


def _search(
    pattern: re.Pattern[bytes], line: bytes, width: int, longest: int
) -> tuple[re.Match[bytes], bytes, int] | None:
    """The head's match, what stands before comm, and where comm starts.

    ``width`` is the column to which comm is right-aligned, ``longest`` its greatest length.
    """
    m = pattern.search(line)
    if m is None:
        return None
    start = len(line) - len(line.lstrip(b" \t"))
    if m.start() - start <= width:
        # A later place may fit as well: then this one is part of the name.
        at = m.start()
        while True:
            at = line.find(b"-", at + 1, start + longest + 1)
            if at < 0:
                return m, b"", start
            m = pattern.match(line, at) or m
    # What is further left than the column of comm was put in front of the line.
    cut = m.start() - width
    prefix = line[:cut].strip(b" \t")
    if not prefix.endswith(b":"):
        # The name is not aligned: the prefix ends with the last ": ".
        cut = line.rfind(b": ", 0, m.start()) + 2
        if cut < 2:
            # Tools that look names up in user space show more than 15 bytes (atrace).
            return (m, b"", start) if m.start() - start <= LONG_NAME else None
        prefix = line[: cut - 1].strip(b" \t")
    start = cut + len(line[cut:]) - len(line[cut:].lstrip(b" \t"))
    return m, prefix[:-1], start


def _head(pattern: re.Pattern[bytes], line: bytes, latency: bool) -> Head | None:
    # The latency format cuts comm to 8.
    width, longest = (8, 8) if latency else (COMM + 1, COMM)
    found = _search(pattern, line[:MAX_LINE], width, longest)
    if found is None:
        return None
    m, prefix, start = found
    pid, tgid, cpu, flags, whole, fraction = m.groups()
    # Latency texts print bare µs since the start of the buffer, marked "us".
    micro = latency and b"us" in m[0][m.end(5) - m.start() :]
    ts = time_ns(whole, fraction) * (1000 if micro else 1)
    number = int(cpu)
    if not _fits(int(pid), number, ts):
        return None
    event, body = split_event(line[m.end() :])
    if not event:
        return None
    group = int(tgid) if tgid and tgid[:1].isdigit() else NULL_PID
    digits = 6 if micro else len(fraction) if fraction else 0
    at = m.start()
    comm = line[start:at].strip(b" \t")
    return Head(
        comm, int(pid), group, number, flags, ts, digits, event, body, prefix, at, latency
    )  # fmt: skip


def split_dash(line: bytes) -> Head | None:
    """``comm-pid (tgid) [cpu] flags time: event: body``, TGID and flags optional."""
    return _head(_DASH, line, False)


def split_latency(line: bytes) -> Head | None:
    """``comm-pid cpuflags time us: event: body``: the latency format, or ``report -l``."""
    return _head(_LATENCY, line, True)


_VERBOSE = re.compile(
    rb"\s(-?\d{1,10})\s+(\d{1,6})\s+(\d{1,3})\s+([0-9a-f]{8})\s+[0-9a-f]{8,16}\s+"
    rb"\[([0-9a-f]{8,16})\]\s+(\d{1,19})(\.\d{3}ms)?\s+\(\+?-?[\d.]+(?:ms)?\):\s+"
)


def split_verbose(line: bytes) -> Head | None:
    """``comm pid cpu flags preempt_count index [µs] ms (+ms): event: body`` (latency, verbose)."""
    m = _VERBOSE.search(line[:MAX_LINE])
    if m is None:
        return None
    pid, cpu, flags, preempt, micro, _, ms = m.groups()
    # In brackets stands the absolute time in hex µs; without "ms" the clock is no time, and it
    # is the bare number.
    ts = int(micro, 16) * (1000 if ms else 1)
    event, body = split_event(line[m.end() :])
    if not _fits(int(pid), int(cpu), ts) or not event:
        return None
    return Head(
        line[: m.start()].strip(b" \t"), int(pid), NULL_PID, int(cpu),
        b"=%s,%s" % (flags, preempt), ts, 6 if ms else 0, event, body, b"", m.start(),
    )  # fmt: skip


#: Which columns a flags text of some length has, when no header art tells (formats.md 4.2).
DEFAULT_LAYOUTS: dict[int, tuple[str, ...]] = {
    4: ("irq", "resched", "ctx", "preempt"),
    5: ("irq", "resched", "ctx", "preempt", "migrate"),
    6: ("irq", "resched", "lazy", "ctx", "preempt", "lazydepth"),
    7: ("irq", "resched", "lazy", "ctx", "preempt", "lazydepth", "migrate"),
    8: ("irq", "resched", "lazy", "ctx", "preempt", "lazydepth", "migrate", "rest"),
}

# kernel/trace/trace_output.c: trace_print_lat_fmt(), to bits of common_flags.
_IRQ = {"d": 0x01, "D": 0x81, "b": 0x80, "X": 0x02}
_RESCHED = {"N": 0x24, "n": 0x04, "p": 0x20, "l": 0x02, "L": 0x22, "b": 0x06, "B": 0x26}
_CONTEXT = {"Z": 0x48, "z": 0x40, "H": 0x18, "h": 0x08, "s": 0x10}


def _depth(char: str) -> int:
    return int(char, 16) if char in "0123456789abcdefABCDEF" else 0


@lru_cache(maxsize=4096)
def common_flags(flags: bytes, layout: tuple[str, ...] | None = None) -> tuple[int, int]:
    """A flags column as (common_flags, common_preempt_count).

    ``layout`` is what the header's art tells; without, the length decides.
    """
    if flags.startswith(b"="):
        shown_bits, _, preempt = flags[1:].partition(b",")
        return int(shown_bits) & 0xFF, int(preempt, 16) & 0xFF
    if flags.startswith(b"-0x"):  # report -l -R
        return int(flags[1:], 16), 0
    text = flags.decode("latin-1")
    if layout is None or len(layout) > len(text):
        layout = DEFAULT_LAYOUTS.get(len(text), DEFAULT_LAYOUTS[4])
    bits, count = 0, 0
    for column, char in zip(layout, text, strict=False):
        if column == "irq":
            bits |= _IRQ.get(char, 0)
        elif column == "resched":
            bits |= _RESCHED.get(char, 0)
        elif column == "ctx":
            bits |= _CONTEXT.get(char, 0)
        elif column == "preempt":
            count |= _depth(char)
        elif column == "migrate":
            count |= _depth(char) << 4
    if layout[-1] == "preempt" and len(text) > len(layout):
        # Before migrate-disable had its column, a depth above 15 simply took more digits.
        count |= 1
    return bits, count


@lru_cache(maxsize=4096)
def ctx_of(flags: bytes | None, layout: tuple[str, ...] | None = None) -> int:
    """``events.ctx`` of a flags column (NULL_CTX: there is none)."""
    if flags is None:
        return NULL_CTX
    bits, count = common_flags(flags, layout)
    ctx = Ctx(0)
    for bit, name in (
        (0x04, Ctx.NEED_RESCHED),
        (0x08, Ctx.HARDIRQ),
        (0x10, Ctx.SOFTIRQ),
        (0x40, Ctx.NMI),
        (0x80, Ctx.BH_OFF),
    ):
        if bits & bit:
            ctx |= name
    if count & 0xF:
        ctx |= Ctx.PREEMPT
    return int(ctx)


_PERF = re.compile(
    rb"\s(-?\d{1,10})(?:/(-?\d{1,10}))?\s+(?:\[(\d{1,6})\]\s+)?(?:([A-Za-z]{1,4})\s+)?"
    rb"(?:([dDbX.][A-Za-z0-9.#]{3,7})\s+)?(\d{1,10})\.(\d{6}(?:\d{3})?):\s+(?:\d+\s+)?(?=\S)"
)
_PERF_VM = re.compile(rb"\s*VM:\s*\d+\s(?:VCPU:\s*\d+\s)?")


def split_perf(line: bytes) -> Head | None:
    """``comm tid [cpu] secs.usec: event: body`` of perf script; ``pid/tid``, CPU optional.

    The last place that fits within 16 bytes of comm's start is the head, as for the others.
    """
    text = line[:MAX_LINE]
    guest = _PERF_VM.match(text)
    base = guest.end() if guest else 0
    m = _PERF.search(text, base)
    if m is None:
        return None
    start = base + len(text[base:]) - len(text[base:].lstrip(b" \t"))
    if m.start() > start + COMM + 9:
        return None
    at = m.start()
    while True:
        at = text.find(b" ", at + 1, start + COMM + 1)
        if at < 0:
            break
        m = _PERF.match(text, at) or m
    pid, tid, cpu, _, flags, whole, fraction = m.groups()
    who = int(tid) if tid else int(pid)
    ts = time_ns(whole, fraction)
    number = int(cpu) if cpu else NULL_CPU
    event, body = split_event(line[m.end() :])
    if not _fits(who, number, ts) or not event:
        return None
    comm = line[start : m.start()].strip(b" ")
    group = int(pid) if tid else NULL_PID
    end = start + len(comm)
    return Head(comm, who, group, number, flags, ts, len(fraction), event, body, b"", end)


def pieces(buf: Buffer, size: int, start: int = 0) -> Iterator[tuple[int, int]]:
    """(start, end) of runs of whole lines of about ``size`` bytes."""
    total = len(buf)
    while start < total:
        end = min(start + size, total)
        if end < total:
            cut = buf.rfind(b"\n", start, end)
            if cut < 0:
                cut = buf.find(b"\n", end)
            end = total if cut < 0 else cut + 1
        yield start, end
        start = end


def shown(line: bytes, width: int = 80) -> str:
    """A line for a message: escaped, cut."""
    text = line[: width + 1].decode("latin-1")
    out = "".join(c if " " <= c <= "~" else f"\\x{ord(c):02x}" for c in text)
    return out if len(out) <= width else out[: width - 1] + "…"
