"""Any tracepoint of a text as a table: the ``key=value`` pairs of its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from traceana.columns import NULL_CPU
from traceana.parsers.text_events import fields_of
from traceana.parsers.text_lines import Buffer, Head, common_flags, pieces

if TYPE_CHECKING:
    from traceana.parsers.text_dialect import Dialect

__all__ = ["extra_events"]

_INT = re.compile(rb"\A(-?\d+|0x[0-9a-fA-F]+)(?: \[ns\])?\s*\Z")
_PIECE = 8 << 20
_MARKS = ("print", "tracing_mark_write", "bputs")


def _lines(buf: Buffer, start: int, name: bytes, dialect: Dialect) -> Iterator[Head]:
    for a, b in pieces(buf, _PIECE, start):
        for line in buf[a:b].split(b"\n"):
            if name in line:
                head = dialect.split(line.rstrip(b"\r\0 "))
                if head is not None and head.event == name:
                    yield head


def _column(values: list[bytes | None]) -> pa.Array:
    """Integers where all are, else text, what is not UTF-8 escaped."""
    numbers: list[int | None] = []
    for text in values:
        if text is None:
            numbers.append(None)
            continue
        m = _INT.match(text)
        if m is None:
            return pa.array(
                [None if v is None else v.decode("utf-8", "backslashreplace") for v in values],
                pa.string(),
            )
        numbers.append(int(m[1], 16) if m[1].startswith(b"0x") else int(m[1]))
    known = [n for n in numbers if n is not None]
    if not known or (min(known) >= -(1 << 63) and max(known) < 1 << 63):
        return pa.array(numbers, pa.int64())
    if min(known) >= 0 and max(known) < 1 << 64:
        return pa.array(numbers, pa.uint64())
    return pa.array([None if n is None else str(n) for n in numbers], pa.string())


def extra_events(buf: Buffer, start: int, name: str, dialect: Dialect) -> pa.Table:
    """One row per line of the event: ts, cpu, the common columns, then its fields.

    Fields are those of the first line that has any; a text without ``key=value`` (a plugin's
    pretty text) comes as one column ``text``.
    """
    ts, cpu, pid = [], [], []
    flags: list[int | None] = []
    preempt: list[int | None] = []
    bodies: list[bytes] = []
    for head in _lines(buf, start, name.encode("utf-8", "surrogateescape"), dialect):
        ts.append(head.ts)
        cpu.append(None if head.cpu == NULL_CPU else head.cpu)
        pid.append(head.pid)
        bits = None if head.flags is None else common_flags(head.flags, dialect.layout)
        flags.append(bits[0] if bits else None)
        preempt.append(bits[1] if bits else None)
        bodies.append(head.body)
    columns: dict[str, pa.Array] = {
        "ts": pa.array(ts, pa.int64()),
        "cpu": pa.array(cpu, pa.int32()),
        "common_pid": pa.array(pid, pa.int32()),
        "common_flags": pa.array(flags, pa.uint8()),
        "common_preempt_count": pa.array(preempt, pa.uint8()),
    }
    keys: list[bytes] = []
    # A marker is whatever somebody wrote: its pairs, if any, are no fields.
    for body in () if name in _MARKS else bodies:
        keys = [key for key, _ in fields_of(body)]
        if keys:
            break
    if not keys:
        columns["text"] = _column([b.strip() for b in bodies])
        return pa.table(columns)
    rows = [dict(fields_of(body, keys)) for body in bodies]
    for key in keys:
        label = key.decode("latin-1")
        columns[label if label not in columns else f"{label}_"] = _column(
            [row.get(key) for row in rows]
        )
    return pa.table(columns)
