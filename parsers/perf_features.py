"""The features of a perf.data file, and the event formats that it copied from tracefs.

A feature that is cut or makes no sense is left out and said (tools/perf/util/header.c).
"""

from __future__ import annotations

import shlex
import struct
from dataclasses import dataclass, field
from typing import Any

from traceana.issues import IssueLog
from traceana.parsers.formats import EventFormat
from traceana.parsers.perf_header import ATTR_MIN, FEATURE_NAMES, Attr, PerfHeader
from traceana.topology import HeaderCache, HeaderTopology

__all__ = ["Features", "TracingData", "parse_features", "parse_tracing_data"]


#: No machine has more CPUs.
_MAX_CPUS = 1 << 16


class _Cursor:
    """Reads a feature from front to end; ``struct.error`` where it is too short."""

    def __init__(self, data: bytes, order: str) -> None:
        self.data = data
        self.order = order
        self.at = 0

    def u32(self) -> int:
        (value,) = struct.unpack_from(self.order + "I", self.data, self.at)
        self.at += 4
        return int(value)

    def u64(self) -> int:
        (value,) = struct.unpack_from(self.order + "Q", self.data, self.at)
        self.at += 8
        return int(value)

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise struct.error("too short")
        self.at += size
        return self.data[self.at - size : self.at]

    def count(self, least: int) -> int:
        """A count of things of at least that many bytes each."""
        n = self.u32()
        if n * least > len(self.data) - self.at:
            raise struct.error("too short")
        return n

    def string(self) -> str:
        """A length, and that many bytes with a NUL somewhere inside."""
        return self.take(self.u32()).split(b"\0", 1)[0].decode("utf-8", "backslashreplace")

    def strings(self) -> list[str]:
        return [self.string() for _ in range(self.count(4))]

    @property
    def left(self) -> int:
        return len(self.data) - self.at


@dataclass
class Features:
    """What the features tell; None or empty where a feature is absent or cannot be read."""

    hostname: str | None = None
    osrelease: str | None = None
    version: str | None = None
    arch: str | None = None
    cpudesc: str | None = None
    cpuid: str | None = None
    cpus_available: int | None = None
    cpus_online: int | None = None
    total_mem_kb: int | None = None
    cmdline: list[str] = field(default_factory=list)
    clock_resolution_ns: int | None = None
    #: (clockid, wall clock ns, clock ns): wall = wall_ns + (t - clock_ns).
    clock_data: tuple[int, int, int] | None = None
    sample_time: tuple[int, int] | None = None
    #: Version of the folder form of ``perf record --threads``; None: a file of its own.
    dir_version: int | None = None
    #: What simpleperf says of itself and of the recording (META_INFO).
    simpleperf: dict[str, str] = field(default_factory=dict)
    topology: HeaderTopology | None = None

    @property
    def command(self) -> str | None:
        """The command line as one would type it."""
        return " ".join(shlex.quote(word) for word in self.cmdline) or None


_STRINGS = {
    3: "hostname", 4: "osrelease", 5: "version", 6: "arch", 8: "cpudesc", 9: "cpuid",
}  # fmt: skip


def parse_features(buf: Any, header: PerfHeader, issues: IssueLog) -> Features:
    """All features but TRACING_DATA; EVENT_DESC goes into the names of the attrs."""
    out = Features()
    parts: dict[str, Any] = {}
    for bit, (offset, size) in header.features.items():
        if bit == 1 or bit not in FEATURE_NAMES:
            continue
        cursor = _Cursor(bytes(buf[offset : offset + size]), header.order)
        try:
            _feature(bit, cursor, out, parts, header)
        except (struct.error, ValueError):
            name = FEATURE_NAMES[bit]
            issues.add(
                "parse", "feature_unreadable", f"offset {offset:#x}: feature {name} is unreadable"
            )
    if parts or out.cpus_available:
        out.topology = HeaderTopology(
            available=out.cpus_available or 0, online=out.cpus_online or 0, **parts
        )
    return out


def _feature(
    bit: int, cursor: _Cursor, out: Features, parts: dict[str, Any], header: PerfHeader
) -> None:
    if bit in _STRINGS:
        setattr(out, _STRINGS[bit], cursor.string() or None)
    elif bit == 7:
        # available, online; some very old files have them the other way round
        pair = (cursor.u32(), cursor.u32())
        if max(pair) > _MAX_CPUS:
            raise ValueError(f"{max(pair)} CPUs")
        out.cpus_available, out.cpus_online = max(pair), min(pair)
    elif bit == 10:
        out.total_mem_kb = cursor.u64()
    elif bit == 11:
        out.cmdline = cursor.strings()
    elif bit == 12:
        _event_desc(cursor, header.attrs)
    elif bit == 13:
        _cpu_topology(cursor, parts, out.cpus_available or 0)
    elif bit == 14:
        nodes = {}
        for _ in range(cursor.count(24)):
            node = cursor.u32()
            cursor.take(16)
            nodes[node] = cursor.string()
        parts["nodes"] = nodes
    elif bit == 20:
        if cursor.u32() != 1:
            raise ValueError("unknown version")
        parts["caches"] = [_cache(cursor) for _ in range(cursor.count(28))]
    elif bit == 21:
        out.sample_time = (cursor.u64(), cursor.u64())
    elif bit == 24:
        out.dir_version = cursor.u64()
    elif bit == 23:
        out.clock_resolution_ns = cursor.u64()
    elif bit == 29:
        if cursor.u32() != 1:
            raise ValueError("unknown version")
        out.clock_data = (cursor.u32(), cursor.u64(), cursor.u64())
    elif bit == 129:
        words = cursor.take(cursor.left).decode("utf-8", "backslashreplace").split("\0")
        out.simpleperf = dict(zip(words[::2], words[1::2], strict=False))
        _simpleperf_names(out.simpleperf.get("event_type_info", ""), header.attrs)


def _event_desc(cursor: _Cursor, attrs: list[Attr]) -> None:
    """Names of the attrs: found by an id, or by the place where there are no ids."""
    n = cursor.u32()
    attr_size = cursor.u32()
    if attr_size < ATTR_MIN or n * (attr_size + 8) > cursor.left:
        raise ValueError("impossible sizes")
    by_id = {int(i): a for a in attrs for i in a.ids[:1]}
    for index in range(n):
        (config,) = struct.unpack_from(cursor.order + "Q", cursor.take(attr_size), 8)
        n_ids = cursor.count(8)
        name = cursor.string()
        ids = struct.unpack(f"{cursor.order}{n_ids}Q", cursor.take(8 * n_ids))
        attr = by_id.get(ids[0]) if ids else None
        if attr is None and n == len(attrs) and attrs[index].config == config:
            attr = attrs[index]
        if attr is not None and name:
            attr.name = name


def _simpleperf_names(lines: str, attrs: list[Attr]) -> None:
    """Names of the attrs from lines "name,type,config" (simpleperf has no EVENT_DESC)."""
    for line in lines.splitlines():
        name, _, rest = line.rpartition(",")
        name, _, kind = name.rpartition(",")
        for attr in attrs:
            if name and (kind, rest) == (str(attr.type), str(attr.config)):
                attr.name = name


def _cpu_topology(cursor: _Cursor, parts: dict[str, Any], available: int) -> None:
    """Lists of siblings; then, as perf grew, core and package ids by CPU, dies, die ids."""
    parts["cores"] = cursor.strings()
    parts["threads"] = cursor.strings()
    if not 0 < available <= cursor.left // 8:
        return
    signed = [struct.unpack(cursor.order + "ii", cursor.take(8)) for _ in range(available)]
    parts["per_cpu"] = signed
    if cursor.left >= 4:
        parts["dies"] = cursor.strings()


def _cache(cursor: _Cursor) -> HeaderCache:
    level = cursor.u32()
    cursor.take(12)
    kind, _, cpus = cursor.string(), cursor.string(), cursor.string()
    return HeaderCache(level, kind, cpus)


@dataclass(frozen=True)
class TracingData:
    """The blob that ``perf record`` copies from tracefs: formats, and names of tasks in 0.6."""

    formats: list[EventFormat]
    cmdlines: list[tuple[int, bytes]]
    long_size: int
    page_size: int
    #: Byte order of the RAW data.
    big_endian: bool = False


_MAGIC = b"\x17\x08\x44tracing"


def parse_tracing_data(blob: bytes) -> TracingData:
    """Formats and cmdlines of a tracing blob (tools/perf/util/trace-event-read.c).

    Formats that stand before a cut are given.

    Raises
    ------
    ValueError
        Not such a blob.
    """
    if blob[:10] != _MAGIC:
        raise ValueError("no tracing data")
    end = blob.find(b"\0", 10, 42)
    if end < 0 or len(blob) < end + 7:
        raise ValueError("tracing data cut in its head")
    version = blob[10:end]
    big, long_size = blob[end + 1], blob[end + 2]
    order = ">" if big else "<"
    (page_size,) = struct.unpack_from(order + "I", blob, end + 3)
    out = TracingData([], [], long_size, page_size, bool(big))
    at = end + 7

    def number(size: int) -> int:
        nonlocal at
        (value,) = struct.unpack_from(order + ("I" if size == 4 else "Q"), blob, at)
        at += size
        return int(value)

    def text(size: int) -> bytes:
        nonlocal at
        if size > len(blob) - at:
            raise struct.error("too short")
        at += size
        return blob[at - size : at]

    try:
        for head in (b"header_page\0", b"header_event\0"):
            if text(len(head)) != head:
                raise ValueError("tracing data without " + head[:-1].decode())
            text(number(8))
        for _ in range(number(4)):
            _add(out, text(number(8)), "ftrace")
        for _ in range(number(4)):
            stop = blob.index(b"\0", at)
            system = blob[at:stop].decode("utf-8", "backslashreplace")
            at = stop + 1
            for _ in range(number(4)):
                _add(out, text(number(8)), system)
        text(number(4))  # kallsyms
        text(number(4))  # printk formats
        if version == b"0.6":
            for line in text(number(8)).split(b"\n"):
                pid, _, comm = line.strip(b"\0").partition(b" ")
                if pid.isdigit() and len(pid) < 10 and comm:
                    out.cmdlines.append((int(pid), comm))
    except (struct.error, ValueError):
        if not out.formats:
            raise ValueError("tracing data cut before its formats") from None
    return out


def _add(out: TracingData, text: bytes, system: str) -> None:
    fmt = EventFormat.parse(text, system)
    if fmt is not None:
        out.formats.append(fmt)
