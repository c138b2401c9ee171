"""perf.data: files, pipes, compressed ones, those of simpleperf."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import perf_data_writer as perf
from text_writer import NEW_STATES

from fuzz.history import CPUS, HOSTILE, PLAIN, history
from fuzz.mutate import Spice, damage_bytes
from fuzz.target import Files, single

__all__ = ["KINDS", "folder", "inside", "spice_for", "wholes"]


_SWITCH = perf.of(perf.SWITCH, ids=(11, 12, 13))
_CHAIN = perf.USUAL | perf.CALLCHAIN | perf.READ
_WAKING = perf.of(perf.WAKING, ids=(21, 22, 23), sample_type=_CHAIN, read_format=4)
_WAKEUP = perf.of(perf.WAKEUP, ids=(41, 42, 43))
_RUNTIME = perf.of(perf.RUNTIME, ids=(31, 32, 33))
_TRACKING = perf.Attr(
    9, perf.IDENTIFIER | perf.TID | perf.TIME | perf.CPU, (51,), "dummy:HG", type=1
)
_CYCLES = perf.Attr(0, perf.USUAL & ~perf.RAW, (61, 62, 63), "cycles", type=0,
                    flags=perf.SAMPLE_ID_ALL | perf.CONTEXT_SWITCH)  # fmt: skip
_ATTRS = [_SWITCH, _WAKING, _WAKEUP, _RUNTIME, _TRACKING]
_KNOWN = {
    "sched_switch": (_SWITCH, perf.SWITCH), "sched_waking": (_WAKING, perf.WAKING),
    "sched_wakeup": (_WAKEUP, perf.WAKEUP), "sched_stat_runtime": (_RUNTIME, perf.RUNTIME),
}  # fmt: skip


def _comm(value: object) -> bytes:
    return value[:15] if isinstance(value, bytes) else b""


def _rings(seed: int, count: int, names: Sequence[bytes] = PLAIN) -> list[list[bytes]]:
    """The records of each CPU's ring."""
    out: list[list[bytes]] = [[] for _ in range(CPUS)]
    for number, event in enumerate(history(seed, count, names)):
        if event.name in _KNOWN:
            attr, layout = _KNOWN[event.name]
            values = [
                NEW_STATES[str(v)] if k == "prev_state" else _comm(v) if isinstance(v, bytes) else v
                for k, v in event.f.items()
            ]
            raw = layout.payload(event.pid, values, 1, 2)
            more = {"chain": [1, 2, 3], "group": ()} if attr is _WAKING else {}
            out[event.cpu].append(
                perf.sample(attr, event.ts, event.cpu, raw, pid=event.pid, tid=event.pid,
                            ident=attr.ids[event.cpu], **more)
            )  # fmt: skip
        elif event.name == "sched_process_fork":
            pid = int(str(event.f["child_pid"]))
            out[event.cpu].append(perf.fork(_TRACKING, pid, pid, event.ts))
        if number % 9 == 4:
            out[event.cpu].append(perf.comm(_TRACKING, 100, 100, b"renamed", event.ts, event.cpu))
        if number % 17 == 8:
            out[event.cpu].append(perf.lost(_SWITCH, 3, event.ts, event.cpu))
    return out


def _index() -> bytes:
    return perf.id_index([(i, cpu) for a in _ATTRS for cpu, i in enumerate(a.ids)])


def _records(seed: int, count: int, names: Sequence[bytes] = PLAIN) -> list[bytes]:
    """All rings in one file, in two rounds."""
    rings = _rings(seed, count, names)
    out = [_index()]
    for half in (0, 1):
        for ring in rings:
            middle = len(ring) // 2
            out += ring[middle:] if half else ring[:middle]
        out.append(perf.finished_round())
    return out


def _facts() -> dict[int, bytes]:
    """Features: those that a kernel and perf would tell."""
    return {
        1: perf.tracing_data([perf.SWITCH, perf.WAKING, perf.WAKEUP, perf.RUNTIME]),
        3: perf.string("host-a"), 4: perf.string("6.1.0"), 5: perf.string("6.1"),
        6: perf.string("x86_64"), 7: struct.pack("<II", 3, 3), 11: perf.strings(["perf", "sched"]),
        12: perf.event_desc(_ATTRS), 13: perf.cpu_topology(["0-2"], ["0-1", "2"], [(0, 0)] * 3),
        20: perf.cache([(1, "Data", "0-1"), (3, "Unified", "0-2")]),
    }  # fmt: skip


def _long(kind: int, body: bytes) -> bytes:
    """A record of simpleperf, whose size goes on in the word of flags."""
    size = 8 + len(body)
    return struct.pack("<IHH", kind, size >> 16, size & 0xFFFF) + body


def _simpleperf(seed: int) -> tuple[list[bytes], dict[int, bytes]]:
    blob = perf.tracing_data([perf.SWITCH, perf.WAKING, perf.RUNTIME])
    whole = _long(32777, struct.pack("<I", len(blob)) + blob)
    split = [perf.record(32772, whole[i : i + 900]) for i in range(0, len(whole), 900)]
    head = [*split, perf.record(32773, b"")] if seed % 2 else [whole]
    facts = b"simpleperf_version\x001.2\0system_wide_collection\0true\0kernel_version\x005.10\0"
    return [*head, *_records(seed, 30)], {129: facts}


def _switch_records(seed: int) -> list[bytes]:
    out = []
    for number, event in enumerate(history(seed, 30)):
        body = struct.pack("<II", event.pid or 1, event.pid or 1) if number % 2 else b""
        kind = perf.R_SWITCH_CPU_WIDE if body else perf.R_SWITCH
        body += perf.trailer(_CYCLES, event.ts, event.cpu, _CYCLES.ids[event.cpu])
        out.append(perf.record(kind, body, 1 << 13 if number % 3 else 0))
    return out


#: The parts of a perf.data, before they are put together: attrs, records, features.
Parts = tuple[list[perf.Attr], list[bytes], "dict[int, bytes] | None"]


@cache
def _perf_parts(kind: str) -> tuple[Parts, ...]:
    usual: Parts = (_ATTRS, _records(1, 30), None)
    hostile: Parts = (_ATTRS, _records(2, 30, HOSTILE), _facts())
    short: Parts = ([_SWITCH], _rings(3, 8)[0], {1: perf.tracing_data([perf.SWITCH])})
    if kind == "simpleperf":
        return tuple((_ATTRS, *_simpleperf(seed)) for seed in (3, 4))
    if kind == "file":
        return short, usual, hostile, ([_CYCLES], _switch_records(4), None)
    return short, usual, hostile


def _put_together(kind: str, parts: Parts, number: int = 0) -> bytes:
    attrs, records, features = parts
    if kind == "pipe":
        return perf.pipe(attrs, records, features, features_first=bool(number % 2)).data
    if kind == "zstd":
        small = perf.compressed(
            records, piece=400, kind=(perf.R_COMPRESSED, perf.R_COMPRESSED2)[number % 2]
        )
        make = perf.pipe if number % 3 == 1 else perf.write
        return make(attrs, small, features).data
    return perf.write(attrs, records, features).data


#: Kinds of perf.data that are one file.
KINDS = ("file", "pipe", "zstd", "simpleperf")


@cache
def wholes(kind: str) -> tuple[Files, ...]:
    out = [_put_together(kind, parts, n) for n, parts in enumerate(_perf_parts(kind))]
    if kind == "file":
        with perf.big_endian():
            out.append(perf.write(_ATTRS, _records(5, 30)).data)
        out.append(out[1].replace(b"PERFILE2", b"PERFFILE", 1))
    return tuple(single(data) for data in out)


_PERF_WORDS = (
    b"PERFILE2",
    b"2ELIFREP",
    b"PERFFILE",
    b"\x28\xb5\x2f\xfd",
    b"\x17\x08\x44tracing0.6\0",
    *(
        struct.pack("<IHH", kind, 0, size)
        for kind in (2, 3, 9, 13, 14, 15, 64, 66, 68, 69, 71, 80, 81, 83, 32772, 32777)
        for size in (8, 24)
    ),
    struct.pack("<IHH", 9, 0, 65535),
    struct.pack("<IHH", 9, 0, 0),
    struct.pack("<IHH", 81, 0, 40),
)


@cache
def spice_for(kind: str) -> Spice:
    others = [f[""] for other in KINDS for f in wholes(other)]
    return Spice(_PERF_WORDS, (*PLAIN, *HOSTILE, b"swapper/1", b"sched:sched_switch"), others)


def inside(kind: str) -> Callable[[random.Random], Files]:
    """Files whose attrs, records or features are damaged before they are written or packed."""

    def make(rng: random.Random) -> Files:
        number = rng.randrange(len(_perf_parts(kind)))
        attrs, records, features = _perf_parts(kind)[number]
        attrs, records = list(attrs), list(records)
        features = None if features is None else dict(features)
        spice = spice_for(kind)
        for _ in range(rng.choice((1, 1, 2, 4))):
            how = rng.randrange(10)
            if how < 6 and records:
                _spoil_records(records, rng, spice)
            elif how < 8:
                at = rng.randrange(len(attrs))
                attrs[at] = _spoilt_attr(attrs[at], rng)
            elif features:
                at = rng.choice(list(features))
                features[at] = damage_bytes(features[at], rng, spice)
        return single(_put_together(kind, (attrs, records, features), rng.randrange(6)))

    return make


def _spoil_records(records: list[bytes], rng: random.Random, spice: Spice) -> None:
    """One record less, twice, elsewhere, or damaged: behind its header, so that its size holds."""
    at = rng.randrange(len(records))
    how = rng.randrange(8)
    if how == 0:
        records.insert(rng.randrange(len(records)), records.pop(at))
    elif how == 1:
        records[at:at] = [records[at]] * rng.choice((1, 30))
    elif how == 2:
        records[at] = damage_bytes(records[at], rng, spice)
    else:
        kind, misc, _ = struct.unpack_from("<IHH", records[at])
        body = damage_bytes(records[at][8:], rng, spice)
        if how < 6:
            body = body[: len(records[at]) - 8].ljust(len(records[at]) - 8, b"\0")
        if how == 3:
            kind = rng.choice(
                (1, 2, 3, 4, 7, 9, 12, 13, 14, 15, 16, 64, 66, 68, 69, 71, 78, 80, 81, 83)
            )
        if how == 6:
            misc = rng.randrange(1 << 16)
        records[at] = struct.pack("<IHH", kind, misc, (8 + len(body)) & 0xFFFF) + body


def _spoilt_attr(attr: perf.Attr, rng: random.Random) -> perf.Attr:
    how = rng.randrange(6)
    if how == 0:
        return replace(attr, sample_type=attr.sample_type ^ 1 << rng.randrange(25))
    if how == 1:
        return replace(attr, flags=attr.flags ^ 1 << rng.randrange(40))
    if how == 2:
        return replace(attr, read_format=rng.randrange(64))
    if how == 3:
        return replace(attr, ids=(*attr.ids[1:], rng.choice((0, 11, 21, (1 << 64) - 1))))
    if how == 4:
        return replace(
            attr, type=rng.randrange(8), config=rng.choice((0, 103, 107, 65535, 1 << 63))
        )
    return replace(
        attr, size=rng.choice((64, 72, 96, 112, 128, 136, 144)), period=rng.choice((0, 1, 1 << 63))
    )


# ---------------------------------------------------------------- folders


@cache
def folder(number: int) -> Files:
    """What ``perf record --threads`` leaves; with an odd number its rings are compressed."""
    facts = _facts() | {24: struct.pack("<Q", 1)}
    out = {"data": perf.write(_ATTRS, [_index()], facts).data}
    for cpu, ring in enumerate(_rings(7 + number, 30)):
        packed = perf.compressed(ring, piece=400) if number % 2 else ring
        out[f"data.{cpu}"] = b"".join(packed)
    return out


def with_records(records: Sequence[bytes]) -> bytes:
    """A file of these records."""
    return perf.write(_ATTRS, records).data
