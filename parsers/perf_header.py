"""The head of a perf.data file: header, attrs, and where its features lie
(tools/perf/util/header.c).

Everything is checked against the file before it is believed. A feature that is cut or makes
no sense is left out and said; only a header or attrs that cannot be read refuse the file.
Numbers stand in the order of the machine that recorded, told by the magic; the flag bits of an
attr are then counted from the other end of each byte.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana.errors import FormatError, TruncatedError
from traceana.issues import IssueLog

__all__ = [
    "ATTR_MIN",
    "CLOCKS",
    "FEATURE_NAMES",
    "TYPE_TRACEPOINT",
    "Attr",
    "PerfHeader",
    "magic_of",
    "parse_attr",
    "parse_header",
]

HEADER_SIZE = 104
ATTR_MIN = 64
_MAX_ATTRS = 1 << 16
TYPE_TRACEPOINT = 2
_USE_CLOCKID = 1 << 25
_FREQ = 1 << 10
_ENABLE_ON_EXEC = 1 << 12
_SAMPLE_ID_ALL = 1 << 18

_KERNEL_NAMES = {
    0: (
        "cycles", "instructions", "cache-references", "cache-misses", "branches",
        "branch-misses", "bus-cycles", "stalled-cycles-frontend", "stalled-cycles-backend",
        "ref-cycles",
    ),
    1: (
        "cpu-clock", "task-clock", "page-faults", "context-switches", "cpu-migrations",
        "minor-faults", "major-faults", "alignment-faults", "emulation-faults", "dummy",
        "bpf-output",
    ),
}  # fmt: skip

#: Clock ids (include/uapi/linux/time.h) in the words of trace-cmd.
CLOCKS = {0: "realtime", 1: "mono", 4: "mono_raw", 7: "boot", 11: "tai"}

_MAGICS = {
    b"PERFILE2": (2, "<"), b"2ELIFREP": (2, ">"), b"PERFFILE": (1, "<"), b"ELIFFREP": (1, ">"),
}  # fmt: skip
_FEATURE_HOSTNAME = 3
#: Feature bits that only simpleperf sets: FILE, META_INFO, FILE2 and those between.
_SIMPLEPERF = frozenset(range(128, 136))

FEATURE_NAMES = {
    1: "TRACING_DATA", 3: "HOSTNAME", 4: "OSRELEASE", 5: "VERSION", 6: "ARCH", 7: "NRCPUS",
    8: "CPUDESC", 9: "CPUID", 10: "TOTAL_MEM", 11: "CMDLINE", 12: "EVENT_DESC",
    13: "CPU_TOPOLOGY", 14: "NUMA_TOPOLOGY", 20: "CACHE", 21: "SAMPLE_TIME", 23: "CLOCKID",
    24: "DIR_FORMAT", 27: "COMPRESSED", 29: "CLOCK_DATA", 128: "simpleperf FILE",
    129: "simpleperf META_INFO",
}  # fmt: skip


def magic_of(buf: Any) -> tuple[int, str] | None:
    """Version (1 or 2) and byte order (``<`` or ``>``) that the magic tells, None for no magic."""
    return _MAGICS.get(bytes(buf[:8]))


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
    def enable_on_exec(self) -> bool:
        """Set by perf only when it records a command that it starts, and nothing else."""
        return bool(self.flags & _ENABLE_ON_EXEC)

    @property
    def kernel_name(self) -> str | None:
        """What perf calls the kernel's own hardware and software events."""
        names = _KERNEL_NAMES.get(self.type, ())
        return names[self.config] if self.config < len(names) else None

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
    ``features`` maps a bit to (offset, size), only those that lie within the file. ``order`` is
    that of all numbers outside the RAW data, as ``struct`` writes it.
    """

    data_start: int
    data_end: int
    attrs: list[Attr]
    features: dict[int, tuple[int, int]]
    feature_bits: frozenset[int]
    unfinished: bool
    cut: bool
    order: str = "<"
    version: int = 2
    pipe: bool = False

    @property
    def simpleperf(self) -> bool:
        """Whether Android's simpleperf wrote it: its records have kinds and sizes of their own."""
        return bool(self.feature_bits & _SIMPLEPERF)


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
    version, order = magic_of(buf) or (2, "<")
    size, attr_size, at, attrs_size, data, data_size = struct.unpack_from(order + "6Q", buf, 8)
    if size < HEADER_SIZE:
        raise FormatError(path, f"perf.data header of {size} bytes", offset=8)
    if not ATTR_MIN + 16 <= attr_size <= 1 << 16:
        raise FormatError(path, f"perf.data attr size {attr_size}", offset=16)
    if at + attrs_size > total:
        raise TruncatedError(path, "perf.data cut inside its event attributes", offset=total)
    if not attr_size <= attrs_size <= attr_size * _MAX_ATTRS:
        raise FormatError(path, f"perf.data with event attributes of {attrs_size} bytes", offset=24)
    attrs = [
        _attr_entry(buf, at + i * attr_size, attr_size, order, issues)
        for i in range(attrs_size // attr_size)
    ]
    if data < HEADER_SIZE or data > total:
        raise TruncatedError(path, "perf.data cut before its data", offset=total)
    bits = _feature_bits(bytes(buf[72:104]), order)
    present = [bit for bit in range(256) if bits >> bit & 1]
    unfinished = data_size == 0 and not _has_features(buf, data, len(present), order)
    end = total if unfinished else min(data + data_size, total)
    features: dict[int, tuple[int, int]] = {}
    for index, bit in enumerate(present):
        entry = data + data_size + 16 * index
        if unfinished or entry + 16 > total:
            break
        offset, length = struct.unpack_from(order + "QQ", buf, entry)
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
        order=order,
        version=version,
    )


def _feature_bits(raw: bytes, order: str) -> int:
    """The 256 feature bits as one number: words of 64 bits in the file's order.

    Very old files of the other order have words of 32 bits; every file has a HOSTNAME.
    """
    if order == "<":
        return int.from_bytes(raw, "little")

    def joined(size: int) -> int:
        words = [int.from_bytes(raw[i : i + size], "big") for i in range(0, len(raw), size)]
        return sum(word << 8 * size * i for i, word in enumerate(words))

    bits, old = joined(8), joined(4)
    host = 1 << _FEATURE_HOSTNAME
    return old if old & host and not bits & host else bits


def _has_features(buf: Any, at: int, count: int, order: str) -> bool:
    """Whether a table of features stands here: a recording without any record, but finished.

    A recorder that was killed has its feature bits set, too, and the first record here.
    """
    if count == 0 or at + 16 * count > len(buf):
        return False
    (offset,) = struct.unpack_from(order + "Q", buf, at)
    return bool(offset == at + 16 * count)


def parse_attr(entry: bytes, order: str = "<") -> Attr:
    """A ``perf_event_attr`` of at least 64 bytes, of any later size; its ids are not in it.

    In files of the other order the flags are counted from the top bit of each byte on: a C
    bit field begins there on such machines.
    """
    kind, own_size, config = struct.unpack_from(order + "IIQ", entry, 0)
    period, sample_type, read_format = struct.unpack_from(order + "3Q", entry, 16)
    flag_bytes = entry[40:48]
    if order == ">":
        flag_bytes = bytes(int(f"{byte:08b}"[::-1], 2) for byte in flag_bytes)
    known = min(own_size or ATTR_MIN, len(entry))
    clockid = struct.unpack_from(order + "i", entry, 92)[0] if known >= 96 else 0
    flags = int.from_bytes(flag_bytes, "little")
    ids = np.empty(0, np.uint64)
    return Attr(kind, config, period, sample_type, read_format, flags, clockid, ids)


def _attr_entry(buf: Any, at: int, entry_size: int, order: str, issues: IssueLog) -> Attr:
    """An attr of the header's table; where its ids lie stands in the last 16 bytes."""
    entry = bytes(buf[at : at + entry_size])
    attr = parse_attr(entry[:-16], order)
    offset, size = struct.unpack_from(order + "QQ", entry, entry_size - 16)
    if size:
        if offset + size > len(buf):
            issues.add("parse", "ids_cut", f"offset {at:#x}: ids of an event lie outside the file")
        else:
            attr.ids = np.frombuffer(buf, order + "u8", size // 8, offset).astype(np.uint64)
    return attr
