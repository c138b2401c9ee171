"""All events of one tracepoint of a Perfetto trace, with the fields it keeps, as a table.

Slow and plain: it walks the events one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana.errors import UsageError
from traceana.issues import IssueLog
from traceana.parsers import _perfetto_kernels as kernels
from traceana.parsers import perfetto_tables as tables
from traceana.parsers.perfetto_decode import named_fields
from traceana.parsers.perfetto_survey import Survey
from traceana.parsers.perfetto_wire import fields, signed, varint

__all__ = ["extra_events"]

#: ts, pid, common_flags (None: not told), the fields.
_Event = tuple[int, int | None, int | None, dict[str, int | bytes]]
_COMPACT = {"sched_switch": 0, "sched_waking": 6}


def _columns(survey: Survey, name: str) -> tuple[int, dict[int, str]] | None:
    """Number of the event and names of its fields, None when it is known by its name only."""
    for number, (known, places) in survey.facts.described.items():
        if known == name:
            return number, places
    number = next((n for n, known in tables.EVENT_NUMBERS.items() if known == name), 0)
    if number and name in tables.FIELDS:
        return number, dict(enumerate(tables.FIELDS[name], 1))
    return None


def _packed(data: Any) -> list[int]:
    out, at = [], 0
    while isinstance(data, bytes) and at < len(data):
        value, at = varint(data, at)
        if at < 0:
            break
        out.append(signed(value))
    return out


def _compact(data: bytes, base: int) -> Iterator[_Event]:
    """Switches (base 0) or wakings (base 6) of a compact part, with the fields that it has."""
    arrays: dict[int, list[int]] = {}
    names: list[bytes] = []
    for number, value in fields(data):
        if number == 5 and isinstance(value, bytes):
            names.append(value)
        else:
            arrays[number] = _packed(value)
    labels = (
        ("prev_state", "next_pid", "next_prio", "", "next_comm")
        if base == 0
        else ("pid", "target_cpu", "prio", "comm")
    )
    time = 0
    for i, delta in enumerate(arrays.get(base + 1, [])):
        time += delta
        told: dict[str, int | bytes] = {}
        for place, label in enumerate(labels, base + 2):
            values = arrays.get(place, [])
            if not label or i >= len(values):
                continue
            index = values[i]
            if label.endswith("comm"):
                told[label] = names[index] if 0 <= index < len(names) else b""
            else:
                told[label] = index
        flags = arrays.get(12, []) if base else []
        yield time, None, flags[i] if i < len(flags) else None, told


def _events(bundle: bytes, name: str, number: int, places: dict[int, str]) -> Iterator[_Event]:
    """Events of the wanted name in a bundle."""
    for part, content in fields(bundle):
        if not isinstance(content, bytes):
            continue
        if part == 4 and name in _COMPACT:
            yield from _compact(content, _COMPACT[name])
        if part != 2:
            continue
        told = dict(fields(content))
        generic = told.get(kernels.GENERIC)
        named: dict[str, int | bytes]
        if number in told and isinstance(told[number], bytes):
            inner = told[number]
            named = {
                places[n]: v if isinstance(v, bytes) else signed(v)
                for n, v in fields(inner if isinstance(inner, bytes) else b"")
                if n in places
            }
        elif isinstance(generic, bytes):
            known, named = named_fields(generic)
            if known != name:
                continue
        else:
            continue
        time, pid, flags = told.get(1, 0), told.get(2, 0), told.get(5)
        if isinstance(time, int) and isinstance(pid, int) and not isinstance(flags, bytes):
            yield time, pid, flags, named


def extra_events(survey: Survey, buf: npt.NDArray[np.uint8], name: str) -> pa.Table:
    """The table: ts, cpu, common_pid, common_flags, common_preempt_count, then the fields.

    Raises
    ------
    UsageError
        The event is in the trace, but it is not known how its fields are called.
    """
    known = _columns(survey, name)
    number, places = known if known else (-1, {})
    rows: list[tuple[int, int, int | None, int | None, dict[str, int | bytes]]] = []
    counts = np.zeros(kernels.N_PACKETS, np.int64)
    for piece in survey.pieces:
        for content, packets in survey.walk(piece, counts, IssueLog()):
            bundles = packets[packets[:, kernels.FIELD] == kernels.FTRACE]
            bundles = bundles[survey.usable(bundles)]
            shifts, _ = survey.shifts(bundles, survey.facts.offsets)
            for bundle, shift in zip(bundles, shifts.tolist(), strict=True):
                data = content[int(bundle[kernels.OFF]) : int(bundle[kernels.END])].tobytes()
                for ts, pid, flags, told in _events(data, name, number, places):
                    if 0 <= ts + shift < kernels.TIME_LIMIT:
                        rows.append((ts + shift, int(bundle[kernels.CPU]), pid, flags, told))
    if not rows and known is None:
        raise UsageError(f"the fields of {name!r} are not known: only how often it occurred is")
    rows.sort(key=lambda row: row[:2])
    out: dict[str, pa.Array] = {
        "ts": pa.array([r[0] for r in rows], pa.int64()),
        "cpu": pa.array([r[1] for r in rows], pa.int32()),
        "common_pid": pa.array([None if r[2] is None else _int32(r[2]) for r in rows], pa.int32()),
        "common_flags": pa.array([None if r[3] is None else r[3] & 0xFF for r in rows], pa.uint8()),
        "common_preempt_count": pa.nulls(len(rows), pa.uint8()),
    }
    labels = list(places.values()) or list(dict.fromkeys(key for r in rows for key in r[4]))
    for label in labels:
        values = [r[4].get(label) for r in rows]
        column = label
        while column in out:
            column += "_"
        if any(isinstance(v, bytes) for v in values) or label in tables.TEXTS:
            out[column] = pa.array(
                [
                    v.partition(b"\0")[0].decode("utf-8", "backslashreplace")
                    if isinstance(v, bytes)
                    else None
                    for v in values
                ],
                pa.string(),
            )
        else:
            out[column] = pa.array(values, pa.int64())
    return pa.table(out)


def _int32(value: int) -> int:
    return (value & 0xFFFF_FFFF ^ 0x8000_0000) - 0x8000_0000
