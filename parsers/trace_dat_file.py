"""The structure of a trace.dat file, versions 6 and 7: everything but the events.

Version 6 is one run of sections with the CPUs' data at its end; version 7 is a set of sections
found through chained lists of options, each maybe compressed. Both hold the kernel's format
files, a pid-to-name cache, options (clock, uname, per-CPU statistics ...) and, per buffer and
CPU, where the ring-buffer pages lie. See trace-cmd.dat.v6(5) and trace-cmd.dat.v7(5).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from traceana.errors import FormatError, TruncatedError, UnsupportedError
from traceana.parsers.formats import EventFormat, parse_header_page, supports_header_event
from traceana.parsers.trace_dat_options import (
    BUFFER,
    BUFFER_TEXT,
    CMDLINES,
    DONE,
    EVENT_FORMATS,
    FTRACE_EVENTS,
    HEADER_INFO,
    Options,
)
from traceana.parsers.trace_dat_parts import (
    Buffer,
    CpuSection,
    Cursor,
    CutError,
    TextPart,
    TraceFile,
    text_of,
)

__all__ = ["read_trace_file"]

MAGIC = b"\x17\x08\x44tracing"

_NOT_FINISHED = (
    "the recording was not finished; `trace-cmd restore` can join its trace.dat.cpuN files"
)

#: A description section larger than this when unpacked is no such thing (kallsyms: 10 MB).
_MAX_SECTION = 256 << 20
#: Sub-buffers are of an order of pages that the kernel can still allocate: 4 MB, or 64 with large
#: pages.
MAX_PAGE = 64 << 20


def _headers(cur: Cursor, out: TraceFile, path: Path) -> None:
    cur.what = "header_page"
    at = cur.at
    if bytes(cur.take(12)) != b"header_page\0":
        raise FormatError(path, "no header_page where it must stand: file damaged?", offset=at)
    out.page = parse_header_page(cur.sized(8))
    if out.page is None:
        raise FormatError(path, "header_page lacks timestamp, commit or data", offset=at)
    cur.what = "header_event"
    at = cur.at
    if bytes(cur.take(13)) != b"header_event\0":
        raise FormatError(path, "no header_event where it must stand: file damaged?", offset=at)
    if not supports_header_event(cur.sized(8)):
        raise UnsupportedError(
            path,
            "its ring buffer has another event header than kernels since 2.6.31",
            offset=at,
            hint="give the output of `trace-cmd report` instead",
        )


def _ftrace_events(cur: Cursor) -> Iterator[EventFormat | None]:
    cur.what = "the ftrace event formats"
    for _ in range(cur.number(4)):
        yield EventFormat.parse(cur.sized(8), "ftrace")


def _event_formats(cur: Cursor) -> Iterator[EventFormat | None]:
    cur.what = "the event formats"
    for _ in range(cur.number(4)):
        system = cur.string()
        for _ in range(cur.number(4)):
            yield EventFormat.parse(cur.sized(8), system)


def _page_size(out: TraceFile, declared: int, path: Path) -> int:
    """The sub-buffer size: the declared one, if a page head and an event fit into it."""
    assert out.page is not None
    if out.page.data_offset + 8 <= declared <= MAX_PAGE:
        return declared
    out.issues.add(
        "parse",
        "bad_page_size",
        f"page size {declared} cannot be: {out.page.page_size} of header_page taken",
    )
    if out.page.page_size > MAX_PAGE:
        raise FormatError(path, f"page size {out.page.page_size} of header_page cannot be")
    return out.page.page_size


def _cpu_table(cur: Cursor, count: int) -> list[CpuSection]:
    cur.what = "the table of CPUs"
    if count * 16 > cur.end - cur.at:
        raise cur.cut()
    return [CpuSection(cpu, cur.number(8), cur.number(8)) for cpu in range(count)]


def _v6_table(cur: Cursor, word: int, option: int | None) -> list[CpuSection]:
    """The CPU table; the option's count holds unless the table would then run into the data."""
    if option is not None and option != word:
        start = cur.at
        try:
            table = _cpu_table(cur, option)
        except CutError:
            table = []
        first = min((c.offset for c in table if c.size), default=cur.at)
        if table and cur.at <= first:
            return table
        cur.at = start
    return _cpu_table(cur, word)


def _v6_options(cur: Cursor, options: Options) -> None:
    cur.what = "the options"
    while True:
        ident = cur.number(2)
        if ident == DONE:
            return
        options.take(ident, cur.sized(4))


def _read_v6(cur: Cursor, out: TraceFile, path: Path) -> None:
    _headers(cur, out, path)
    out.formats += [f for f in _ftrace_events(cur) if f is not None]
    out.formats += [f for f in _event_formats(cur) if f is not None]
    cur.what = "kallsyms"
    cur.take(cur.number(4))
    cur.what = "the printk formats"
    cur.take(cur.number(4))
    cur.what = "the saved names"
    out.cmdlines = cur.sized(8)
    cur.what = "the count of CPUs"
    count = cur.number(4)
    options = Options(out)
    cur.what = "the options"
    tag = bytes(cur.take(10))
    if tag == b"options  \0":
        _v6_options(cur, options)
        cur.what = "the kind of the data"
        tag = bytes(cur.take(10))
    if tag == b"latency  \0":
        out.texts.append(TextPart("", out.clock, cur.at))
        return
    if tag != b"flyrecord\0":
        raise FormatError(path, "neither pages nor text follow the headers", offset=cur.at - 10)
    assert out.page is not None
    size = _page_size(out, out.page.page_size, path)
    table = _v6_table(cur, count, options.cpu_count)
    out.cpu_count = len(table)
    out.buffers.append(Buffer("", out.clock, size, table))
    for data in options.buffers:
        sub = Cursor(cur.buf, big=out.big_endian, what="an instance's buffer")
        name = text_of(data[8:])
        sub.at = int.from_bytes(data[:8], "big" if out.big_endian else "little")
        try:
            inner = Options(out)
            tag = bytes(sub.take(10))
            if tag == b"options  \0":
                _v6_options(sub, inner)
                tag = bytes(sub.take(10))
            if tag != b"flyrecord\0":
                raise sub.cut()
            table = _v6_table(sub, count, options.cpu_count)
        except CutError as error:
            out.damaged = True
            out.issues.add(
                "parse",
                "buffer_unreadable",
                f"offset {error.at:#x}: buffer {name!r} cannot be found: left out",
            )
            continue
        out.buffers.append(Buffer(name, out.clock, size, table))


class _Sections:
    """Finds and unpacks the sections of a version 7 file."""

    def __init__(self, cur: Cursor, out: TraceFile, path: Path) -> None:
        self._cur = cur
        self._out = out
        self._path = path

    def header(self, at: int, ident: int, what: str) -> tuple[Cursor, bool, int]:
        """Cursor behind the section's header, whether it is compressed, and its size."""
        cur = Cursor(self._cur.buf, at, big=self._out.big_endian, what=what)
        found, flags = cur.number(2), cur.number(2)
        cur.number(4)
        size = cur.number(8)
        if found != ident:
            raise FormatError(
                self._path, f"section {found} where {what} must stand: file damaged?", offset=at
            )
        return cur, bool(flags & 1), size

    def content(self, at: int, ident: int, what: str) -> Cursor:
        """Cursor over the content of a section, unpacked."""
        cur, compressed, size = self.header(at, ident, what)
        if not compressed:
            if size > cur.end - cur.at:
                raise cur.cut()
            cur.end = cur.at + size
            return cur
        from traceana.parsers.trace_dat_data import decompressor

        packed, raw = cur.number(4), cur.number(4)
        if raw > _MAX_SECTION:
            raise FormatError(self._path, f"{what}: {raw} bytes unpacked cannot be", offset=at)
        try:
            data = decompressor(self._out.compression)(cur.take(packed), raw)
        except ValueError as error:
            raise FormatError(self._path, f"{what} cannot be unpacked: {error}", offset=at) from (
                error
            )
        # Places inside what is unpacked are no places in the file: say where it is packed.
        return Cursor(memoryview(data), big=self._out.big_endian, what=what, base=at)


def _v7_buffer(sections: _Sections, data: bytes, out: TraceFile, path: Path) -> Buffer:
    cur = Cursor(memoryview(data), big=out.big_endian, what="the option BUFFER")
    at, name, clock = cur.number(8), cur.string(), cur.string()
    size, count = cur.number(4), cur.number(4)
    if count * 20 > cur.end - cur.at:
        raise cur.cut()
    table = [CpuSection(cur.number(4), cur.number(8), cur.number(8)) for _ in range(count)]
    if len({c.cpu for c in table}) < count:
        raise FormatError(path, f"buffer {name!r} names a CPU twice: file damaged?")
    if any(c.cpu > 0x7FFFFFFF for c in table):
        raise FormatError(path, f"buffer {name!r} names an impossible CPU: file damaged?")
    _, compressed, _ = sections.header(at, BUFFER, "a buffer")
    table.sort(key=lambda c: c.cpu)
    return Buffer(
        name, clock or out.clock, _page_size(out, size, path), table, compressed=compressed
    )


def _v7_text(sections: _Sections, data: bytes, out: TraceFile) -> TextPart:
    cur = Cursor(memoryview(data), big=out.big_endian, what="the option BUFFER_TEXT")
    at, name, clock = cur.number(8), cur.string(), cur.string()
    body, compressed, size = sections.header(at, BUFFER_TEXT, "a buffer's text")
    return TextPart(name, clock or out.clock, body.at, size, compressed)


def _read_v7(cur: Cursor, out: TraceFile, path: Path) -> None:
    cur.what = "the compression's name"
    out.compression = cur.string(64)
    cur.string(64)
    if out.compression not in ("none", "zlib", "zstd", "lzma"):
        raise UnsupportedError(
            path,
            f"compressed with {out.compression!r}",
            hint="convert it: trace-cmd convert --compression none",
        )
    cur.what = "the offset of the options"
    at = cur.number(8)
    if at == 0:
        raise TruncatedError(path, "no options", offset=cur.at - 8, hint=_NOT_FINISHED)
    sections, options, seen = _Sections(cur, out, path), Options(out), set()
    while at and at not in seen:
        seen.add(at)
        inner = sections.content(at, DONE, "the options")
        at = 0
        while inner.at < inner.end:
            ident, size = inner.number(2), inner.number(4)
            data = bytes(inner.take(size))
            if ident == DONE:
                at = int.from_bytes(data[:8], "big" if out.big_endian else "little")
                break
            options.take(ident, data)
    if at:
        out.damaged = True
        out.issues.add("parse", "options_loop", f"offset {at:#x}: options come round: stopped")
    found = options.sections
    if HEADER_INFO not in found:
        raise TruncatedError(path, "no description of the pages", hint=_NOT_FINISHED)
    _headers(sections.content(found[HEADER_INFO][0], HEADER_INFO, "header_page"), out, path)
    for ident, reader in ((FTRACE_EVENTS, _ftrace_events), (EVENT_FORMATS, _event_formats)):
        for place in found.get(ident, []):
            part = sections.content(place, ident, "the event formats")
            out.formats += [f for f in reader(part) if f is not None]
    for place in found.get(CMDLINES, []):
        out.cmdlines += sections.content(place, CMDLINES, "the saved names").sized(8)
    for data in options.buffers:
        out.buffers.append(_v7_buffer(sections, data, out, path))
    out.cpu_count = options.cpu_count
    out.texts += [_v7_text(sections, data, out) for data in options.texts]
    if not out.buffers and not out.texts:
        raise TruncatedError(path, "no buffer in it", hint=_NOT_FINISHED)


def read_trace_file(path: Path, buf: npt.NDArray[np.uint8]) -> TraceFile:
    """Read all of a trace.dat file but its pages.

    Raises
    ------
    FormatError, TruncatedError, UnsupportedError
        What the events need cannot be read; with the byte offset.
    """
    cur = Cursor(memoryview(buf))  # type: ignore[arg-type]
    try:
        if bytes(cur.take(len(MAGIC))) != MAGIC:
            raise FormatError(path, "not a trace.dat file")
        version = cur.string(16)
        if version not in ("6", "7"):
            raise UnsupportedError(path, f"trace.dat of version {version!r}; 6 and 7 can be read")
        big, _long = cur.number(1), cur.number(1)
        if big > 1:
            raise FormatError(path, f"byte order {big} is neither little (0) nor big (1)")
        cur = Cursor(cur.buf, cur.at, big=bool(big))
        out = TraceFile(f"trace.dat v{version}", bool(big), cur.number(4))
        (_read_v6 if version == "6" else _read_v7)(cur, out, path)
    except CutError as error:
        raise TruncatedError(
            path, f"cut inside {error.what}", offset=error.at, hint=_NOT_FINISHED
        ) from None
    named = {b.name: b for b in out.buffers}
    for place, (name, stats) in enumerate(out.stats):
        if name is not None and name in named:
            named[name].stats = stats
        elif name is None and place < len(out.buffers):
            out.buffers[place].stats = stats
    return out
