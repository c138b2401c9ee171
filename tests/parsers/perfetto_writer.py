"""Writes Perfetto traces, message by message, for the tests."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import zstandard

SWITCH, WAKEUP, WAKING, WAKEUP_NEW, IDLE, RENAME, EXEC, EXIT, FORK, MIGRATE, GENERIC = (
    4, 17, 20, 114, 13, 236, 237, 238, 239, 491, 327,
)  # fmt: skip


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def put(number: int, value: int | str | bytes) -> bytes:
    """One field."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(*parts: tuple[int, int | str | bytes | None]) -> bytes:
    return b"".join(put(number, value) for number, value in parts if value is not None)


def fields(*values: int | str | bytes | None) -> bytes:
    """A message whose fields are numbered 1, 2, …; None is left out."""
    return message(*enumerate(values, 1))


def packed(values: Iterable[int]) -> bytes:
    return b"".join(varint(v) for v in values)


def packet(number: int, content: bytes, *, seq: int = 1, dropped: bool = False, machine: int = 0,
           stamp: int | None = None) -> bytes:  # fmt: skip
    """A TracePacket as it stands in the trace."""
    return put(1, message((8, stamp), (number, content), (10, seq), (42, 1 if dropped else None),
                          (98, machine or None)))  # fmt: skip


def compressed(packets: bytes, *, zstd: bool = False) -> bytes:
    if zstd:
        return put(1, put(133, zstandard.ZstdCompressor().compress(packets)))
    return put(1, put(50, zlib.compress(packets)))


def event(ts: int, pid: int, number: int, content: bytes, flags: int | None = None) -> bytes:
    return message((1, ts), (2, pid), (5, flags), (number, content))


def switch(ts: int, prev: tuple[str, int, int], state: int, nxt: tuple[str, int, int],
           flags: int | None = None) -> bytes:  # fmt: skip
    return event(ts, prev[1], SWITCH, fields(*prev, state, *nxt), flags)


def waking(ts: int, pid: int, task: tuple[str, int, int], cpu: int, *, flags: int | None = None,
           success: int | None = None, number: int = WAKING) -> bytes:  # fmt: skip
    return event(ts, pid, number, fields(*task, success, cpu), flags)


def generic(ts: int, who: int, event_name: str, **values: int | str) -> bytes:
    """An event that Perfetto has no number for: with its own names."""
    inner = put(1, event_name)
    for key, value in values.items():
        cell = 3 if isinstance(value, str) else 4
        inner += put(2, message((1, key), (cell, value)))
    return event(ts, who, GENERIC, inner)


@dataclass
class Compact:
    """A CompactSched.

    Switches: ts, prev_state, next pid, next prio, name; wakings: ts, pid, cpu, prio, name, flags.
    """

    switches: Sequence[tuple[int, int, int, int, str]] = ()
    wakings: Sequence[tuple[int, int, int, int, str, int]] = ()
    with_flags: bool = True
    #: Field -> values that stand there instead.
    spoil: dict[int, list[int]] = field(default_factory=dict)

    def bytes(self) -> bytes:
        names = list(dict.fromkeys([s[4] for s in self.switches] + [w[4] for w in self.wakings]))
        arrays: dict[int, list[int]] = {
            1: deltas([s[0] for s in self.switches]),
            2: [s[1] for s in self.switches],
            3: [s[2] for s in self.switches],
            4: [s[3] for s in self.switches],
            6: [names.index(s[4]) for s in self.switches],
            7: deltas([w[0] for w in self.wakings]),
            8: [w[1] for w in self.wakings],
            9: [w[2] for w in self.wakings],
            10: [w[3] for w in self.wakings],
            11: [names.index(w[4]) for w in self.wakings],
            12: [w[5] for w in self.wakings] if self.with_flags else [],
        }
        arrays |= self.spoil
        out = b"".join(put(5, name) for name in names)
        return out + b"".join(put(n, packed(v)) for n, v in sorted(arrays.items()) if v)


def deltas(times: Sequence[int]) -> list[int]:
    return [b - a for a, b in zip([0, *times], times, strict=False)]


def bundle(
    cpu: int, *events: bytes, compact: Compact | None = None, lost: bool = False,
    clock: int | None = None, pair: tuple[int, int] | None = None, begin: int | None = None,
    more: bytes = b"",
) -> bytes:  # fmt: skip
    """A FtraceEventBundle."""
    out = message((1, cpu), (3, 1 if lost else None), (5, clock))
    if pair:
        out += message((6, pair[0]), (7, pair[1]))
    if begin is not None:
        out += put(10, begin)
    out += b"".join(put(2, e) for e in events)
    if compact is not None:
        out += put(4, compact.bytes())
    return out + more


def system(release: str, machine: str = "x86_64", cpus: int | None = None) -> bytes:
    """A packet with system_info."""
    names = message((1, "Linux"), (3, release), (4, machine))
    return packet(45, message((1, names), (4, "Perfetto v49"), (8, cpus)), seq=9)


def snapshot(**clocks: int) -> bytes:
    """A packet with a clock_snapshot; names as c5=…, c6=…"""
    inner = b"".join(put(1, fields(int(k[1:]), v)) for k, v in clocks.items())
    return packet(6, inner, seq=9)


def stats(phase: int, *cpus: tuple[int, int, int]) -> bytes:
    """A packet with ftrace_stats: (cpu, overrun, dropped) each."""
    inner = put(1, phase)
    for cpu, overrun, dropped in cpus:
        inner += put(2, message((1, cpu), (3, overrun), (8, dropped)))
    return packet(34, inner)
