"""Slow, plain reading of the scheduler events of a Perfetto trace, to judge the kernels by.

Written from the description of the messages alone; nothing of traceana is used.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

_MASK = (1 << 64) - 1
_NAMES = {4: "sched_switch", 17: "sched_wakeup", 20: "sched_waking", 114: "sched_wakeup_new",
          13: "cpu_idle", 491: "sched_migrate_task", 239: "sched_process_fork",
          238: "sched_process_exit"}  # fmt: skip
#: Field number -> what it is, by event.
_WAKE = {1: "comm", 2: "subject", 3: "prio", 4: "success", 5: "cpu_to"}
_FIELDS: dict[str, dict[int, str]] = {
    "sched_switch": {1: "comm", 2: "subject", 3: "prio", 4: "state", 5: "other_comm", 6: "other",
                     7: "other_prio"},
    "sched_wakeup": _WAKE, "sched_waking": _WAKE, "sched_wakeup_new": _WAKE,
    "cpu_idle": {1: "value", 2: "cpu_to"},
    "sched_migrate_task": {1: "comm", 2: "subject", 3: "prio", 4: "cpu_from", 5: "cpu_to"},
    "sched_process_fork": {1: "other_comm", 2: "other", 3: "comm", 4: "subject"},
    "sched_process_exit": {1: "comm", 2: "subject", 4: "prio"},
}  # fmt: skip


def one_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            value &= _MASK
            return (value - (1 << 64) if value >> 63 else value), at


def parse(data: bytes) -> list[tuple[int, Any]]:
    out: list[tuple[int, Any]] = []
    at = 0
    while at < len(data):
        tag, at = one_varint(data, at)
        if tag & 7 == 0:
            value, at = one_varint(data, at)
            out.append((tag >> 3, value))
        else:
            assert tag & 7 == 2
            size, at = one_varint(data, at)
            assert 0 <= size <= len(data) - at
            out.append((tag >> 3, data[at : at + size]))
            at += size
    return out


def varints(data: bytes) -> list[int]:
    out, at = [], 0
    while at < len(data):
        value, at = one_varint(data, at)
        out.append(value)
    return out


@dataclass
class Event:
    ts: int
    cpu: int
    kind: str
    place: int = 0
    pid: int | None = None
    flags: int | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    compact: bool = False


def read(trace: bytes) -> list[Event]:
    """All rows in their order: events, ``LOST`` before what follows a loss, ``BEGIN`` before this
    when it is the first of its CPU."""
    rows: list[Event] = []
    pending: set[int] = set()
    seen: set[int] = set()
    for packet in _packets(trace):
        told = dict(packet)
        if 1 in told:
            _bundle(told[1], rows, pending, seen)
    rows.sort(key=lambda e: (e.ts, e.cpu, e.place))
    current: dict[int, tuple[int, int] | None] = {}
    for row in rows:
        now = current.get(row.cpu)
        if row.kind in ("LOST", "BEGIN"):
            current[row.cpu] = None
            continue
        if row.compact:
            row.pid = now[0] if now else None
            if row.kind == "sched_switch":
                row.fields["subject"] = now[0] if now else None
                row.fields["prio"] = now[1] if now else None
        if row.kind == "sched_switch":
            current[row.cpu] = (row.fields["other"], row.fields["other_prio"])
    return rows


def _packets(trace: bytes) -> list[list[tuple[int, Any]]]:
    out = []
    for number, value in parse(trace):
        assert number == 1
        packet = parse(value)
        inner = dict(packet).get(50)
        out += _packets(zlib.decompress(inner)) if inner is not None else [packet]
    return out


def _bundle(data: bytes, rows: list[Event], pending: set[int], seen: set[int]) -> None:
    parts = parse(data)
    told = dict(parts)
    cpu = told.get(1, 0)
    shift = told[7] - told[6] if told.get(5) else 0
    mine: list[Event] = []
    times: list[int] = []
    for number, value in parts:
        if number == 2:
            mine += _event(value, cpu)
            times.append(dict(parse(value)).get(1, 0))
        elif number == 4:
            mine += _compact(value, cpu)
            times += [e.ts for e in mine if e.compact]
    for row in mine:
        row.ts += shift
    if told.get(3):
        pending.add(cpu)
    if times and cpu in pending:
        pending.discard(cpu)
        if cpu not in seen:
            rows.append(Event(min(times) + shift, cpu, "BEGIN"))
        rows.append(Event(min(times) + shift, cpu, "LOST"))
    if times:
        seen.add(cpu)
    rows += mine
    for place, row in enumerate(rows):
        row.place = place


def _event(data: bytes, cpu: int) -> list[Event]:
    told = dict(parse(data))
    for number, name in _NAMES.items():
        if number in told:
            inner = dict(parse(told[number]))
            got = {label: inner.get(n, 0) for n, label in _FIELDS[name].items()}
            if "success" in got and 4 in inner and inner[4] == 0:
                return []
            return [Event(told.get(1, 0), cpu, name, 0, told.get(2, 0), told.get(5), got)]
    return []


def _compact(data: bytes, cpu: int) -> list[Event]:
    arrays: dict[int, list[int]] = {}
    names = []
    for number, value in parse(data):
        if number == 5:
            names.append(value)
        else:
            arrays[number] = varints(value)
    out: list[Event] = []
    ts = 0
    flags = arrays.get(12) or [None] * len(arrays.get(7, []))  # type: ignore[list-item]
    for i, delta in enumerate(arrays.get(7, [])):
        ts += delta
        got = {"subject": arrays[8][i], "cpu_to": arrays[9][i], "prio": arrays[10][i],
               "comm": names[arrays[11][i]]}  # fmt: skip
        out.append(Event(ts, cpu, "sched_waking", 0, None, flags[i], got, True))
    ts = 0
    for i, delta in enumerate(arrays.get(1, [])):
        ts += delta
        got = {"state": arrays[2][i], "other": arrays[3][i], "other_prio": arrays[4][i],
               "other_comm": names[arrays[6][i]]}  # fmt: skip
        out.append(Event(ts, cpu, "sched_switch", 0, None, None, got, True))
    return out
