"""Writes small perf.data files for tests, and reads them back slowly.

:func:`write` makes a file in file mode from attrs and records, :func:`pipe` one in pipe mode,
:func:`compressed` packs records as ``perf record -z`` does, :func:`tar` makes an archive of a
folder; :func:`oracle` is a plain reader
of such files that shares nothing with traceana's: it walks record by record and field by field,
in the order in which the kernel writes them (perf_output_sample() in kernel/events/core.c).
"""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

IP, TID, TIME, ADDR, READ, CALLCHAIN, ID, CPU = 1, 2, 4, 8, 16, 32, 64, 128
PERIOD, STREAM_ID, RAW, BRANCH_STACK, IDENTIFIER = 256, 512, 1024, 2048, 0x10000
WEIGHT = 0x4000
R_LOST, R_COMM, R_EXIT, R_FORK, R_SAMPLE, R_MMAP2, R_LOST_SAMPLES, R_SWITCH = (
    2, 3, 4, 7, 9, 10, 13, 14,
)  # fmt: skip
R_FINISHED_ROUND, R_ID_INDEX, R_AUXTRACE, R_COMPRESSED, R_COMPRESSED2 = 68, 69, 71, 81, 83
R_SWITCH_CPU_WIDE, R_ATTR, R_TRACING_DATA, R_EVENT_UPDATE, R_FEATURE = 15, 64, 66, 78, 80
CONTEXT_SWITCH = 1 << 26
SAMPLE_ID_ALL = 1 << 18
USE_CLOCKID = 1 << 25
USUAL = IDENTIFIER | IP | TID | TIME | CPU | PERIOD | RAW


#: Byte order of all that is written; see :func:`big_endian`.
ORDER = "<"


def _pack(fmt: str, *values: Any) -> bytes:
    return struct.pack(ORDER + fmt, *values)


@contextmanager
def big_endian() -> Iterator[None]:
    """Write as a big-endian machine does."""
    global ORDER
    ORDER = ">"
    try:
        yield
    finally:
        ORDER = "<"


def _magic() -> bytes:
    return b"PERFILE2" if ORDER == "<" else b"2ELIFREP"


@dataclass(frozen=True)
class Event:
    """A tracepoint: fields as (declaration, size, signed), laid out one after the other from 8."""

    system: str
    name: str
    id: int
    fields: tuple[tuple[str, int, bool], ...]
    print_fmt: str = '"%d", 0'

    def text(self) -> bytes:
        lines = [f"name: {self.name}", f"ID: {self.id}", "format:"]
        common = (
            ("unsigned short common_type", 0, 2, 0),
            ("unsigned char common_flags", 2, 1, 0),
            ("unsigned char common_preempt_count", 3, 1, 0),
            ("int common_pid", 4, 4, 1),
        )
        for name, at, size, signed in common:
            lines.append(f"\tfield:{name};\toffset:{at};\tsize:{size};\tsigned:{signed};")
        lines.append("")
        at = 8
        for name, size, signed in self.fields:
            lines.append(f"\tfield:{name};\toffset:{at};\tsize:{size};\tsigned:{int(signed)};")
            at += size
        lines += ["", f"print fmt: {self.print_fmt}", ""]
        return "\n".join(lines).encode()

    def payload(self, pid: int, values: Sequence[Any], flags: int = 0, preempt: int = 0) -> bytes:
        out = _pack("HBBi", self.id, flags, preempt, pid)
        for (_, size, signed), value in zip(self.fields, values, strict=True):
            if isinstance(value, bytes):
                out += value.ljust(size, b"\0")
            else:
                out += int(value).to_bytes(size, "little" if ORDER == "<" else "big", signed=signed)
        return out


_STATES = (
    '"%s", (REC->prev_state & ((((0x0000 | 0x0001 | 0x0002 | 0x0004 | 0x0008 | 0x0010 | 0x0020 '
    "| 0x0040) + 1) << 1) - 1)) ? __print_flags(REC->prev_state & ((((0x0000 | 0x0001 | 0x0002 | "
    '0x0004 | 0x0008 | 0x0010 | 0x0020 | 0x0040) + 1) << 1) - 1), "|", { 0x0001, "S" }, '
    '{ 0x0002, "D" }, { 0x0004, "T" }, { 0x0008, "t" }, { 0x0010, "X" }, { 0x0020, "Z" }, '
    '{ 0x0040, "P" }, { 0x0080, "I" }) : "R", REC->prev_state & (((0x0000 | 0x0001 | 0x0002 | '
    '0x0004 | 0x0008 | 0x0010 | 0x0020 | 0x0040) + 1) << 1) ? "+" : ""'
)
SWITCH = Event(
    "sched",
    "sched_switch",
    103,
    (
        ("char prev_comm[16]", 16, False),
        ("pid_t prev_pid", 4, True),
        ("int prev_prio", 4, True),
        ("long prev_state", 8, True),
        ("char next_comm[16]", 16, False),
        ("pid_t next_pid", 4, True),
        ("int next_prio", 4, True),
    ),
    _STATES,
)
_WAKE = (
    ("char comm[16]", 16, False),
    ("pid_t pid", 4, True),
    ("int prio", 4, True),
    ("int target_cpu", 4, True),
)
WAKING = Event("sched", "sched_waking", 107, _WAKE)
WAKEUP = Event("sched", "sched_wakeup", 106, _WAKE)
RUNTIME = Event(
    "sched",
    "sched_stat_runtime",
    91,
    (("char comm[16]", 16, False), ("pid_t pid", 4, True), ("u64 runtime", 8, False)),
)
OTHER = Event("syscalls", "sys_enter_getpid", 500, (("long nr", 8, True),))
EVENTS = {e.id: e for e in (SWITCH, WAKING, WAKEUP, RUNTIME, OTHER)}


@dataclass
class Attr:
    """One event of a recording. ``size`` is perf_event_attr's; ``type`` 2 is a tracepoint."""

    config: int
    sample_type: int = USUAL
    ids: tuple[int, ...] = ()
    name: str = ""
    type: int = 2
    read_format: int = 0
    flags: int = SAMPLE_ID_ALL
    clockid: int = 0
    size: int = 128
    period: int = 1

    def pack(self) -> bytes:
        flags = self.flags
        if ORDER == ">":  # a C bit field begins at the top bit there
            flags = sum((self.flags >> i & 1) << (63 - i) for i in range(64))
        out = _pack(
            "IIQQQQQ", self.type, self.size, self.config, self.period, self.sample_type,
            self.read_format, flags,
        )  # fmt: skip
        out = out.ljust(92, b"\0") + _pack("i", self.clockid)
        return out.ljust(self.size, b"\0")[: self.size]


def of(event: Event, **more: Any) -> Attr:
    return Attr(event.id, name=f"{event.system}:{event.name}", **more)


def record(kind: int, body: bytes, misc: int = 0) -> bytes:
    return _pack("IHH", kind, misc, 8 + len(body)) + body


def sample(
    attr: Attr,
    time: int,
    cpu: int,
    raw: bytes,
    *,
    pid: int = 10,
    tid: int = 10,
    ident: int | None = None,
    chain: Sequence[int] = (),
    group: Sequence[tuple[int, int]] = (),
    tail: bytes = b"",
) -> bytes:
    """A SAMPLE record of this attr; ``group`` fills READ, ``tail`` follows RAW."""
    kind = attr.sample_type
    ident = (attr.ids[0] if attr.ids else 0) if ident is None else ident
    out = b""
    for bit, value in (
        (IDENTIFIER, _pack("Q", ident)),
        (IP, _pack("Q", 0xFFFFFFFF81000000)),
        (TID, _pack("II", pid & 0xFFFFFFFF, tid & 0xFFFFFFFF)),
        (TIME, _pack("Q", time)),
        (ADDR, _pack("Q", 0xDEAD)),
        (ID, _pack("Q", ident)),
        (STREAM_ID, _pack("Q", 77)),
        (CPU, _pack("II", cpu & 0xFFFFFFFF, 0)),
        (PERIOD, _pack("Q", 1)),
    ):
        if kind & bit:
            out += value
    if kind & READ:
        times = b"\0" * 8 * ((attr.read_format & 1) + (attr.read_format >> 1 & 1))
        if attr.read_format & 8:
            out += _pack("Q", len(group)) + times
            for count, i in group:
                out += _pack("Q", count)
                out += _pack("Q", i) if attr.read_format & 4 else b""
                out += _pack("Q", 0) if attr.read_format & 16 else b""
        else:
            out += _pack("Q", 5) + times
            out += _pack("Q", ident) if attr.read_format & 4 else b""
            out += _pack("Q", 0) if attr.read_format & 16 else b""
    if kind & CALLCHAIN:
        out += _pack(f"Q{len(chain)}Q", len(chain), *chain)
    if kind & RAW:
        size = (4 + len(raw) + 7) // 8 * 8 - 4
        out += _pack("I", size) + raw.ljust(size, b"\0")
    return record(R_SAMPLE, out + tail)


def trailer(attr: Attr, time: int, cpu: int, ident: int | None = None) -> bytes:
    if not attr.flags & SAMPLE_ID_ALL:
        return b""
    ident = (attr.ids[0] if attr.ids else 0) if ident is None else ident
    out = b""
    for bit, value in (
        (TID, _pack("II", 10, 10)),
        (TIME, _pack("Q", time)),
        (ID, _pack("Q", ident)),
        (STREAM_ID, _pack("Q", 77)),
        (CPU, _pack("II", cpu, 0)),
        (IDENTIFIER, _pack("Q", ident)),
    ):
        if attr.sample_type & bit:
            out += value
    return out


def lost(attr: Attr, count: int, time: int, cpu: int) -> bytes:
    ident = attr.ids[0] if attr.ids else 0
    return record(R_LOST, _pack("QQ", ident, count) + trailer(attr, time, cpu))


def lost_samples(attr: Attr, count: int, ident: int, misc: int = 0) -> bytes:
    """As perf writes them when it stops: no time, no CPU."""
    return record(R_LOST_SAMPLES, _pack("Q", count) + trailer(attr, 0, 0, ident), misc)


def comm(attr: Attr, pid: int, tid: int, name: bytes, time: int, cpu: int = 0) -> bytes:
    text = name + b"\0" * (8 - len(name) % 8)
    body = _pack("II", pid, tid) + text
    return record(R_COMM, body + trailer(attr, time, cpu, None if time else 0))


def fork(attr: Attr, pid: int, tid: int, time: int) -> bytes:
    body = _pack("IIIIQ", pid, 1, tid, 1, time)
    return record(R_FORK, body + trailer(attr, time, 0, None if time else 0))


def finished_round() -> bytes:
    return record(R_FINISHED_ROUND, b"")


def id_index(entries: Iterable[tuple[int, int]], tid: int = -1) -> bytes:
    """(id, cpu) pairs; a ``tid`` says that the events were opened for a task."""
    body = b"".join(_pack("4Q", ident, 0, cpu, tid & 0xFFFFFFFFFFFFFFFF) for ident, cpu in entries)
    return record(R_ID_INDEX, _pack("Q", len(body) // 32) + body)


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    size = (len(raw) + 1 + 63) // 64 * 64
    return _pack("I", size) + raw.ljust(size, b"\0")


def strings(texts: Sequence[str]) -> bytes:
    return _pack("I", len(texts)) + b"".join(string(t) for t in texts)


def tracing_data(events: Iterable[Event] = EVENTS.values(), cmdlines: bytes | None = None) -> bytes:
    version = b"0.5" if cmdlines is None else b"0.6"
    out = b"\x17\x08\x44tracing" + version + b"\0" + _pack("BBI", ORDER == ">", 8, 4096)
    for head in (b"header_page", b"header_event"):
        out += head + b"\0" + _pack("Q", 3) + b"abc"
    out += _pack("I", 0)
    by_system: dict[str, list[bytes]] = {}
    for event in events:
        by_system.setdefault(event.system, []).append(event.text())
    out += _pack("I", len(by_system))
    for system, texts in by_system.items():
        out += system.encode() + b"\0" + _pack("I", len(texts))
        for text in texts:
            out += _pack("Q", len(text)) + text
    out += _pack("II", 0, 0)
    return out if cmdlines is None else out + _pack("Q", len(cmdlines)) + cmdlines


def event_desc(attrs: Sequence[Attr]) -> bytes:
    size = max(a.size for a in attrs)
    out = _pack("II", len(attrs), size)
    for a in attrs:
        out += a.pack().ljust(size, b"\0") + _pack("I", len(a.ids)) + string(a.name)
        out += _pack(f"{len(a.ids)}Q", *a.ids)
    return out


def cpu_topology(
    cores: Sequence[str], threads: Sequence[str], per_cpu: Sequence[tuple[int, int]] = ()
) -> bytes:
    return strings(cores) + strings(threads) + b"".join(_pack("ii", *p) for p in per_cpu)


def cache(entries: Sequence[tuple[int, str, str]]) -> bytes:
    """(level, type, CPU list) each."""
    out = _pack("II", 1, len(entries))
    for level, kind, cpus in entries:
        out += _pack("4I", level, 64, 64, 8) + string(kind) + string("32K") + string(cpus)
    return out


@dataclass
class Laid:
    """A written file and where its parts lie."""

    data: bytes
    data_start: int
    data_end: int
    feature_at: dict[int, int] = field(default_factory=dict)


def write(
    attrs: Sequence[Attr],
    records: Sequence[bytes],
    features: dict[int, bytes] | None = None,
    *,
    data_size: int | None = None,
) -> Laid:
    """A whole file. ``features`` None: TRACING_DATA and EVENT_DESC."""
    if features is None:
        features = {1: tracing_data(), 12: event_desc(attrs)}
    entry = max(a.size for a in attrs) + 16
    ids_at = 104
    ids = b"".join(_pack(f"{len(a.ids)}Q", *a.ids) for a in attrs)
    attrs_at = ids_at + len(ids)
    table = b""
    for a in attrs:
        place = _pack("QQ", ids_at if a.ids else 0, 8 * len(a.ids))
        table += a.pack().ljust(entry - 16, b"\0") + place
        ids_at += 8 * len(a.ids)
    start = attrs_at + len(table)
    body = b"".join(records)
    end = start + len(body)
    bits = sum(1 << bit for bit in features)
    head = _magic() + _pack(
        "8Q", 104, entry, attrs_at, len(table), start,
        len(body) if data_size is None else data_size, 0, 0,
    ) + _pack("4Q", *(bits >> 64 * i & (1 << 64) - 1 for i in range(4)))  # fmt: skip
    at = end + 16 * len(features)
    sections, blobs, where = b"", b"", {}
    for bit in sorted(features):
        where[bit] = at + len(blobs)
        sections += _pack("QQ", at + len(blobs), len(features[bit]))
        blobs += features[bit]
    return Laid(head + ids + table + body + sections + blobs, start, end, where)


def pipe(
    attrs: Sequence[Attr],
    records: Sequence[bytes],
    features: dict[int, bytes] | None = None,
    *,
    features_first: bool = False,
) -> Laid:
    """What ``perf record -o -`` writes: attrs, features and formats are records."""
    if features is None:
        features = {1: tracing_data()}
    heads = b"".join(record(R_ATTR, a.pack() + _pack(f"{len(a.ids)}Q", *a.ids)) for a in attrs)
    said = b"".join(
        record(R_FEATURE, _pack("Q", bit) + blob) for bit, blob in features.items() if bit != 1
    )
    if 1 in features:
        blob = features[1].ljust((len(features[1]) + 7) // 8 * 8, b"\0")
        heads += record(R_TRACING_DATA, _pack("I", len(blob))) + blob
    out = _magic() + _pack("Q", 16) + (said + heads if features_first else heads + said)
    body = b"".join(records)
    return Laid(out + body, len(out), len(out) + len(body))


def event_update(ident: int, name: bytes) -> bytes:
    return record(R_EVENT_UPDATE, _pack("QQ", 2, ident) + name + b"\0" * (8 - len(name) % 8))


def compressed(
    records: Sequence[bytes], *, piece: int, kind: int = R_COMPRESSED, between: bytes = b""
) -> list[bytes]:
    """COMPRESSED records of one zstd stream that is never ended, ``piece`` bytes each at most.

    A record may span two of them. ``between`` stands between them, not packed.
    """
    import zstandard

    engine = zstandard.ZstdCompressor(level=1).compressobj()
    data = b"".join(records)
    packed = b""
    for at in range(0, len(data), 500):
        packed += engine.compress(data[at : at + 500])
        packed += engine.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    out = []
    for at in range(0, len(packed), piece):
        part = packed[at : at + piece]
        if kind == R_COMPRESSED2:
            part = _pack("Q", len(part)) + part + b"\xee" * (-len(part) % 8)
        out += [record(kind, part), between]
    return out


def tar(files: dict[str, bytes]) -> bytes:
    """A tar archive of these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


# ---------------------------------------------------------------- the slow reader


@dataclass(frozen=True)
class Seen:
    """One sample as the slow reader sees it: the bare name, and the raw bytes."""

    time: int
    cpu: int
    name: str
    raw: bytes


def oracle(laid: Laid, attrs: Sequence[Attr]) -> list[Seen]:
    """All tracepoint samples of a file, by time (stable), by a walk with nothing clever in it."""
    owner = {i: a for a in attrs for i in a.ids}
    with_identifier = all(a.sample_type & IDENTIFIER for a in attrs)
    out = []
    at = laid.data_start
    while at < laid.data_end:
        kind, _, size = struct.unpack_from("<IHH", laid.data, at)
        body = laid.data[at + 8 : at + size]
        at += size
        if kind != R_SAMPLE:
            continue
        attr = attrs[0]
        if len(attrs) > 1:
            place = 0
            if not with_identifier:
                place = 8 * sum(bool(attr.sample_type & b) for b in (IP, TID, TIME, ADDR))
            attr = owner[struct.unpack_from("<Q", body, place)[0]]
        seen = _one(attr, body)
        if seen is not None:
            out.append(seen)
    return sorted(out, key=lambda s: s.time)


def _one(attr: Attr, body: bytes) -> Seen | None:
    if attr.type != 2:
        return None
    values = {}
    at = 0
    for bit in (IDENTIFIER, IP, TID, TIME, ADDR, ID, STREAM_ID, CPU, PERIOD):
        if attr.sample_type & bit:
            values[bit] = struct.unpack_from("<Q", body, at)[0]
            at += 8
    if attr.sample_type & READ:
        fmt = attr.read_format
        count = 1
        if fmt & 8:
            (count,) = struct.unpack_from("<Q", body, at)
            at += 8
        at += 8 * bool(fmt & 1) + 8 * bool(fmt & 2)
        at += count * (8 + 8 * bool(fmt & 4) + 8 * bool(fmt & 16))
    if attr.sample_type & CALLCHAIN:
        (count,) = struct.unpack_from("<Q", body, at)
        at += 8 + 8 * count
    (size,) = struct.unpack_from("<I", body, at)
    cpu = values.get(CPU, 0xFFFFFFFF) & 0xFFFFFFFF
    return Seen(
        values[TIME],
        -1 if cpu == 0xFFFFFFFF else cpu,
        EVENTS[attr.config].name,
        body[at + 4 : at + 4 + size],
    )
