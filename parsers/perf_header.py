"""The head of a perf.data file: header, attrs, features, tracing data (tools/perf/util/header.c).

Everything is checked against the file before it is believed. A feature that is cut or makes
no sense is left out and said; only a header or attrs that cannot be read refuse the file.
Numbers are little endian here; files of the other byte order are refused by ``perf_data``.
"""

from __future__ import annotations

import shlex
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana.errors import FormatError, TruncatedError
from traceana.issues import IssueLog
from traceana.parsers.formats import EventFormat
from traceana.topology import HeaderCache, HeaderTopology

__all__ = [
    "CLOCKS",
    "TYPE_TRACEPOINT",
    "Attr",
    "Features",
    "PerfHeader",
    "TracingData",
    "parse_features",
    "parse_header",
    "parse_tracing_data",
]

HEADER_SIZE = 104
_ATTR_MIN = 64
_MAX_ATTRS = 1 << 16
TYPE_TRACEPOINT = 2
_USE_CLOCKID = 1 << 25
_FREQ = 1 << 10
_SAMPLE_ID_ALL = 1 << 18

#: Clock ids (include/uapi/linux/time.h) in the words of trace-cmd.
CLOCKS = {0: "realtime", 1: "mono", 4: "mono_raw", 7: "boot", 11: "tai"}

FEATURE_NAMES = {
    1: "TRACING_DATA", 3: "HOSTNAME", 4: "OSRELEASE", 5: "VERSION", 6: "ARCH", 7: "NRCPUS",
    8: "CPUDESC", 9: "CPUID", 10: "TOTAL_MEM", 11: "CMDLINE", 12: "EVENT_DESC",
    13: "CPU_TOPOLOGY", 14: "NUMA_TOPOLOGY", 20: "CACHE", 21: "SAMPLE_TIME", 23: "CLOCKID",
    24: "DIR_FORMAT", 27: "COMPRESSED", 29: "CLOCK_DATA", 128: "simpleperf FILE",
    129: "simpleperf META_INFO",
}  # fmt: skip


@dataclass
class Attr:
    """One ``perf_event_attr`` with its ids. ``name`` is None until something tells it."""

    type: int
    config: int
    period: int
    sample_type: int
    read_format: int
    flags: int
    clockid: int
    ids: npt.NDArray[np.uint64]
    name: str | None = None

    @property
    def sample_id_all(self) -> bool:
        return bool(self.flags & _SAMPLE_ID_ALL)

    @property
    def sampled(self) -> bool:
        """Whether only some of the events were recorded (``perf record -F``, ``-c N``)."""
        return bool(self.flags & _FREQ) or self.period > 1

    @property
    def clock(self) -> str:
        """Name of the clock of its times; "perf" is ``sched_clock()``, perf's default."""
        if not self.flags & _USE_CLOCKID:
            return "perf"
        return CLOCKS.get(self.clockid, f"clockid {self.clockid}")


@dataclass(frozen=True)
class PerfHeader:
    """Where things lie. ``data_end`` is clamped to the file; ``cut`` says that it had to be.

    ``unfinished``: data.size is 0, the recorder was killed; what follows is read to the end.
    ``features`` maps a bit to (offset, size), only those that lie within the file.
    """

    data_start: int
    data_end: int
    attrs: list[Attr]
    features: dict[int, tuple[int, int]]
    feature_bits: frozenset[int]
    unfinished: bool
    cut: bool


def parse_header(path: Path, buf: Any, issues: IssueLog) -> PerfHeader:
    """The 104-byte header, the attrs and the table of features.

    Raises
    ------
    TruncatedError
        The file ends within header or attrs.
    FormatError
        Sizes that cannot be.
    """
    total = len(buf)
    if total < HEADER_SIZE:
        raise TruncatedError(path, f"perf.data of {total} bytes, cut inside its header of 104")
    size, attr_size, at, attrs_size, data, data_size = struct.unpack_from("<6Q", buf, 8)
    if size < HEADER_SIZE:
        raise FormatError(path, f"perf.data header of {size} bytes", offset=8)
    if not _ATTR_MIN + 16 <= attr_size <= 1 << 16:
        raise FormatError(path, f"perf.data attr size {attr_size}", offset=16)
    if at + attrs_size > total:
        raise TruncatedError(path, "perf.data cut inside its event attributes", offset=total)
    if not attr_size <= attrs_size <= attr_size * _MAX_ATTRS:
        raise FormatError(path, f"perf.data with event attributes of {attrs_size} bytes", offset=24)
    attrs = [
        _parse_attr(path, buf, at + i * attr_size, attr_size, issues)
        for i in range(attrs_size // attr_size)
    ]
    if data < HEADER_SIZE or data > total:
        raise TruncatedError(path, "perf.data cut before its data", offset=total)
    bits = int.from_bytes(bytes(buf[72:104]), "little")
    present = [bit for bit in range(256) if bits >> bit & 1]
    unfinished = data_size == 0 and not _has_features(buf, data, len(present))
    end = total if unfinished else min(data + data_size, total)
    features: dict[int, tuple[int, int]] = {}
    for index, bit in enumerate(present):
        entry = data + data_size + 16 * index
        if unfinished or entry + 16 > total:
            break
        offset, length = struct.unpack_from("<QQ", buf, entry)
        if offset + length > total:
            name = FEATURE_NAMES.get(bit, str(bit))
            issues.add("parse", "feature_cut", f"offset {offset:#x}: feature {name} is cut")
            continue
        features[bit] = (offset, length)
    return PerfHeader(
        data_start=data,
        data_end=end,
        attrs=attrs,
        features=features,
        feature_bits=frozenset(present),
        unfinished=unfinished,
        cut=data + data_size > total,
    )


def _has_features(buf: Any, at: int, count: int) -> bool:
    """Whether a table of features stands here: a recording without any record, but finished.

    A recorder that was killed has its feature bits set, too, and the first record here.
    """
    if count == 0 or at + 16 * count > len(buf):
        return False
    (offset,) = struct.unpack_from("<Q", buf, at)
    return bool(offset == at + 16 * count)


def _parse_attr(path: Path, buf: Any, at: int, entry_size: int, issues: IssueLog) -> Attr:
    entry = bytes(buf[at : at + entry_size])
    kind, own_size, config = struct.unpack_from("<IIQ", entry, 0)
    period, sample_type, read_format, flags = struct.unpack_from("<4Q", entry, 16)
    known = min(own_size or _ATTR_MIN, entry_size - 16)
    clockid = struct.unpack_from("<i", entry, 92)[0] if known >= 96 else 0
    offset, size = struct.unpack_from("<QQ", entry, entry_size - 16)
    ids = np.empty(0, np.uint64)
    if size:
        if offset + size > len(buf):
            issues.add("parse", "ids_cut", f"offset {at:#x}: ids of an event lie outside the file")
        else:
            ids = np.frombuffer(buf, "<u8", size // 8, offset).astype(np.uint64)
    return Attr(kind, config, period, sample_type, read_format, flags, clockid, ids)


class _Cursor:
    """Reads a feature from front to end; ``struct.error`` where it is too short."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def u32(self) -> int:
        (value,) = struct.unpack_from("<I", self.data, self.at)
        self.at += 4
        return int(value)

    def u64(self) -> int:
        (value,) = struct.unpack_from("<Q", self.data, self.at)
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
        cursor = _Cursor(bytes(buf[offset : offset + size]))
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
    elif bit == 23:
        out.clock_resolution_ns = cursor.u64()
    elif bit == 29:
        if cursor.u32() != 1:
            raise ValueError("unknown version")
        out.clock_data = (cursor.u32(), cursor.u64(), cursor.u64())


def _event_desc(cursor: _Cursor, attrs: list[Attr]) -> None:
    """Names of the attrs: found by an id, or by the place where there are no ids."""
    n = cursor.u32()
    attr_size = cursor.u32()
    if attr_size < _ATTR_MIN or n * (attr_size + 8) > cursor.left:
        raise ValueError("impossible sizes")
    by_id = {int(i): a for a in attrs for i in a.ids[:1]}
    for index in range(n):
        (config,) = struct.unpack_from("<Q", cursor.take(attr_size), 8)
        n_ids = cursor.count(8)
        name = cursor.string()
        ids = struct.unpack(f"<{n_ids}Q", cursor.take(8 * n_ids))
        attr = by_id.get(ids[0]) if ids else None
        if attr is None and n == len(attrs) and attrs[index].config == config:
            attr = attrs[index]
        if attr is not None and name:
            attr.name = name


def _cpu_topology(cursor: _Cursor, parts: dict[str, Any], available: int) -> None:
    """Lists of siblings; then, as perf grew, core and package ids by CPU, dies, die ids."""
    parts["cores"] = cursor.strings()
    parts["threads"] = cursor.strings()
    if not 0 < available <= cursor.left // 8:
        return
    signed = [struct.unpack("<ii", cursor.take(8)) for _ in range(available)]
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
    out = TracingData([], [], long_size, page_size)
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
