"""Events as plain arrays: the form in which they move between parsers and kernels.

Kernels know no nulls: an unknown value is a sentinel, one per dtype (``NULL_*`` below), and
becomes an Arrow null in :meth:`EventColumns.to_arrow`. Times are never unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import schema

__all__ = [
    "NULL_CPU",
    "NULL_CTX",
    "NULL_I64",
    "NULL_PID",
    "NULL_PRIO",
    "NULL_STATE",
    "Chunk",
    "EventColumns",
    "NameChange",
]

NULL_CPU = -1
NULL_PID = -1
NULL_PRIO = -32768
NULL_CTX = 255
NULL_STATE = 65535
NULL_I64 = -(2**63)

_DTYPES: dict[str, tuple[Any, int]] = {
    "ts": (np.int64, 0),
    "cpu": (np.int32, NULL_CPU),
    "kind": (np.uint8, 0),
    "pid": (np.int32, NULL_PID),
    "ctx": (np.uint8, NULL_CTX),
    "subject": (np.int32, NULL_PID),
    "prio": (np.int16, NULL_PRIO),
    "state": (np.uint16, NULL_STATE),
    "other": (np.int32, NULL_PID),
    "other_prio": (np.int16, NULL_PRIO),
    "cpu_to": (np.int32, NULL_CPU),
    "cpu_from": (np.int32, NULL_CPU),
    "value": (np.int64, NULL_I64),
    "buffer": (np.uint16, 0),
}
_NEVER_NULL = frozenset({"ts", "kind", "buffer"})


@dataclass
class EventColumns:
    """A batch of events, one array per column of the ``events`` table (section 4 of the design).

    All arrays have the same length n; dtypes as in ``schema.EVENTS``; unknown values are the
    sentinels of this module.
    """

    ts: npt.NDArray[np.int64]
    cpu: npt.NDArray[np.int32]
    kind: npt.NDArray[np.uint8]
    pid: npt.NDArray[np.int32]
    ctx: npt.NDArray[np.uint8]
    subject: npt.NDArray[np.int32]
    prio: npt.NDArray[np.int16]
    state: npt.NDArray[np.uint16]
    other: npt.NDArray[np.int32]
    other_prio: npt.NDArray[np.int16]
    cpu_to: npt.NDArray[np.int32]
    cpu_from: npt.NDArray[np.int32]
    value: npt.NDArray[np.int64]
    buffer: npt.NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.ts)

    @classmethod
    def empty(cls, n: int) -> EventColumns:
        """Uninitialised columns of length n, for a kernel to fill."""
        return cls(**{name: np.empty(n, dtype) for name, (dtype, _) in _DTYPES.items()})

    @classmethod
    def unknown(cls, n: int) -> EventColumns:
        """Columns of length n in which everything but ts, kind and buffer is unknown."""
        return cls(**{name: np.full(n, null, dtype) for name, (dtype, null) in _DTYPES.items()})

    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """The columns in the order of the schema."""
        return (
            self.ts, self.cpu, self.kind, self.pid, self.ctx, self.subject, self.prio, self.state,
            self.other, self.other_prio, self.cpu_to, self.cpu_from, self.value, self.buffer,
        )  # fmt: skip

    def take(self, rows: Any) -> EventColumns:
        """Rows by index, mask or slice."""
        return EventColumns(*[column[rows] for column in self.arrays()])

    @classmethod
    def concat(cls, parts: list[EventColumns]) -> EventColumns:
        """All rows of several batches, in order."""
        if not parts:
            return cls.empty(0)
        if len(parts) == 1:
            return parts[0]
        return cls(
            *(np.concatenate(cols) for cols in zip(*(p.arrays() for p in parts), strict=True))
        )

    def to_arrow(self) -> pa.RecordBatch:
        """The batch as the ``events`` table says it, sentinels turned into nulls.

        The values are shared with these arrays, not copied.
        """
        from traceana._columns_kernels import pack_valid

        out = []
        n = len(self)
        whole, forms = _arrow_forms()
        for column, (form, null) in zip(self.arrays(), forms, strict=True):
            data = np.ascontiguousarray(column)
            valid, nulls = None, 0
            if null is not None:
                bits = np.empty((n + 7) // 8, np.uint8)
                nulls = int(pack_valid(data, null, bits))
                valid = pa.py_buffer(bits) if nulls else None
            out.append(pa.Array.from_buffers(form, n, [valid, pa.py_buffer(data)], nulls))
        return pa.RecordBatch.from_arrays(out, schema=whole)

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch | pa.Table) -> EventColumns:
        """The inverse of :meth:`to_arrow`."""
        out = {}
        for name, (dtype, null) in _DTYPES.items():
            data = batch.column(name)
            if isinstance(data, pa.ChunkedArray):
                data = data.combine_chunks()
            if data.null_count:
                import pyarrow.compute as pc

                data = pc.fill_null(data, pa.scalar(null, data.type))
            out[name] = np.asarray(data.to_numpy(zero_copy_only=False), dtype=dtype)
        return cls(**out)


@cache
def _arrow_forms() -> tuple[pa.Schema, list[tuple[pa.DataType, Any]]]:
    """The schema of ``events``, and of each column its type and sentinel (None: never null)."""
    forms = []
    for spec in schema.EVENTS.columns:
        dtype, null = _DTYPES[spec.name]
        forms.append((spec.type, None if spec.name in _NEVER_NULL else dtype(null)))
    return schema.EVENTS.schema, forms


@dataclass(frozen=True, slots=True)
class NameChange:
    """One row of the ``names`` table: a name or a thread group learnt.

    ``comm`` holds the raw bytes up to NUL (None: only the thread group is known);
    ``ts`` None means from before the window.
    """

    pid: int
    tgid: int | None
    comm: bytes | None
    ts: int | None
    evidence: schema.Evidence = schema.Evidence.EVENT


@dataclass
class Chunk:
    """What a parser yields: events in the order of time, and the names first seen in them."""

    events: EventColumns
    names: list[NameChange] = field(default_factory=list)
