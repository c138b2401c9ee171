"""What a store must hold to be read: a folder may come from somebody else, or be damaged.

A Parquet file can be whole and its values impossible; kernels index by them. What no capture can
give is refused here, with the column's name.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from traceana import schema
from traceana.columns import EventColumns
from traceana.parsers.reader import Counters, Lost, ReaderMeta

__all__ = ["check_events", "check_rows", "check_topology", "counts_of", "lost_of", "meta_of"]

#: No machine has more CPUs, no kernel gives greater pids (PID_MAX_LIMIT, include/linux/threads.h).
_MAX_CPUS = 1 << 20
_MAX_PID = 4194304
#: Times of which differences cannot overflow.
_MAX_TS = 1 << 62
#: So many rows a byte of the file, and more than so many rows, are no table of a capture: times
#: and pids differ from row to row.
_ROWS_A_BYTE = 20
_MANY = 1 << 20


def meta_of(told: Any) -> ReaderMeta:
    """The facts of a store's meta.json; ValueError names one that is of a wrong type."""
    if not isinstance(told, dict):
        raise ValueError("meta is no object")
    types = {"int | None": int, "str | None": str, "str": str}
    for field in fields(ReaderMeta):
        value = told.get(field.name)
        if value is None and (field.name != "form" or field.name in told):
            optional = "None" in str(field.type) or field.name not in told
        else:
            wanted = types.get(str(field.type), dict)
            optional = isinstance(value, wanted) and not isinstance(value, bool)
        if not optional:
            raise ValueError(f"meta.{field.name} is {value!r:.100}")
    for name in ("cpus_present", "cpus_online", "hz"):
        value = told.get(name)
        if value is not None and not 0 <= value <= _MAX_CPUS:
            raise ValueError(f"meta.{name} is {value}")
    return ReaderMeta(**told)


def _count(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError(f"{name} is {value!r:.100}")
    return value


def lost_of(told: Any) -> Lost:
    """The losses of a store's meta.json; ValueError names a value that is none."""

    def some(value: Any, name: str) -> int | None:
        return None if value is None else _count(value, name)

    return Lost(
        some(told["events"], "lost.events"),
        _count(told["marks"], "lost.marks"),
        {int(c): some(n, "lost.per_cpu") for c, n in told["per_cpu"].items()},
        {
            None if c == "all" else int(c): Counters(
                **{f.name: some(row[f.name], f"lost.counters.{f.name}") for f in fields(Counters)}
            )
            for c, row in told.get("counters", {}).items()
        },
    )


def counts_of(told: Any) -> dict[str, int]:
    """Events by tracepoint in a store's meta.json; ValueError names a value that is none."""
    return {str(name): _count(value, "counts") for name, value in told.items()}


def check_rows(file: pq.ParquetFile, size: int) -> None:
    """ValueError when a file of ``size`` bytes unpacks to more rows than a capture's can."""
    rows = file.metadata.num_rows
    if rows > _MANY and rows > size * _ROWS_A_BYTE:
        raise ValueError(f"{rows} rows in {size} bytes: a capture has none such")


def _outside(column: npt.NDArray[Any], null: int, limit: int) -> bool:
    """Whether a value is neither ``null`` (−1 or below 0) nor in 0 … ``limit`` - 1."""
    if not len(column):
        return False
    return bool(int(column.min()) < null or int(column.max()) >= limit)


def check_events(batch: pa.RecordBatch, last: int) -> tuple[EventColumns, int]:
    """The columns of a batch of a store's events, and the time of the last row.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
    last : int
        Time of the last row of the batch before.

    Raises
    ------
    SchemaError
        Columns, types or order are not those of the ``events`` table.
    ValueError
        A value that no capture gives.
    """
    schema.check(batch, "events")
    out = EventColumns.from_arrow(batch)
    if not len(out):
        return out, last
    if int(out.ts[0]) < last:
        raise ValueError("events: rows are not in the order of ts")
    if int(out.ts[0]) < -_MAX_TS or int(out.ts[-1]) > _MAX_TS:
        raise ValueError("events.ts: a time that cannot be")
    for name, limit in (
        ("cpu", _MAX_CPUS), ("cpu_to", _MAX_CPUS), ("cpu_from", _MAX_CPUS),
        ("pid", _MAX_PID + 1), ("subject", _MAX_PID + 1), ("other", _MAX_PID + 1),
    ):  # fmt: skip
        column = getattr(out, name)
        if _outside(column, -1, limit):
            raise ValueError(f"events.{name}: a value that cannot be")
    return out, int(out.ts[-1])


def check_topology(table: pa.Table, limit: int) -> None:
    """ValueError when CPUs are repeated or not below ``limit``, or groups have no number."""
    for name in ("cpu", "core", "llc"):
        values = np.asarray(table.column(name).to_numpy())
        if _outside(values, 0, limit):
            raise ValueError(f"topology.{name}: a value that cannot be")
        if name == "cpu" and len(np.unique(values)) != len(values):
            raise ValueError("topology.cpu: a CPU stands twice")
