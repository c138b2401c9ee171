"""All fields of one tracepoint, whatever it is, as a table by the format's own description."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana.parsers.formats import EventFormat, Field, FieldKind

__all__ = ["extract"]

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_COMMON_COLUMNS: dict[str, Any] = {
    "common_pid": np.int32,
    "common_flags": np.uint8,
    "common_preempt_count": np.uint8,
}


def _integers(
    buf: npt.NDArray[np.uint8],
    at: npt.NDArray[np.int64],
    whole: npt.NDArray[np.bool_],
    field: Field,
    big: bool,
) -> npt.NDArray[Any]:
    raw = np.zeros((len(at), field.size), np.uint8)
    raw[whole] = buf[at[whole, None] + np.arange(field.size)]
    dtype = np.dtype((_SIGNED if field.signed else _UNSIGNED)[field.size])
    return raw.view(dtype.newbyteorder(">" if big else "<")).astype(dtype).ravel()


def _slices(
    buf: npt.NDArray[np.uint8],
    off: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
    field: Field,
    big: bool,
) -> list[bytes | None]:
    """The bytes of a field that is no integer, None where they reach beyond the record."""
    whole = field.offset + field.size <= length
    if field.kind in (FieldKind.DATA_LOC, FieldKind.REL_LOC):
        loc = Field(field.name, "u32", field.offset, 4, False, FieldKind.INT)
        word = _integers(buf, off + field.offset, whole, loc, big).astype(np.int64)
        begin, size = word & 0xFFFF, word >> 16
        if field.kind is FieldKind.REL_LOC:
            begin = begin + field.offset + 4
    else:
        begin = np.full(len(off), field.offset, np.int64)
        size = np.full(len(off), field.size, np.int64) if field.size else length - field.offset
    whole = whole & (size >= 0) & (begin + size <= length)
    start = (off + begin).tolist()
    return [
        bytes(buf[a : a + n]) if ok else None
        for a, n, ok in zip(start, size.tolist(), whole.tolist(), strict=True)
    ]


def extract(
    buf: npt.NDArray[np.uint8],
    ts: npt.NDArray[np.int64],
    cpu: npt.NDArray[np.int32],
    off: npt.NDArray[np.int64],
    length: npt.NDArray[np.int32],
    fmt: EventFormat,
    *,
    big_endian: bool = False,
) -> pa.Table:
    r"""All fields of one tracepoint's records, by its own format.

    Returns
    -------
    table
        ts (int64), cpu (int32), common_pid (int32), common_flags and common_preempt_count
        (uint8), then the format's fields in their order: integers by size and sign, char arrays
        and ``__data_loc`` / ``__rel_loc`` strings as string (bytes that are no UTF-8 as ``\\xNN``),
        anything else as binary. Null where the record is too short. A field that is named like
        one of the first five gets an underscore at its end (``cpu_``).
    """
    lengths = length.astype(np.int64)
    columns: dict[str, pa.Array] = {"ts": pa.array(ts), "cpu": pa.array(cpu)}

    def integers(field: Field, dtype: Any = None) -> pa.Array:
        whole = field.offset + field.size <= lengths
        values = _integers(buf, off + field.offset, whole, field, big_endian)
        if dtype is not None:
            values = values.astype(dtype)
        return pa.array(values, mask=None if whole.all() else ~whole)

    for name, dtype in _COMMON_COLUMNS.items():
        field = fmt.by_name.get(name)
        if field is None or field.kind is not FieldKind.INT:
            columns[name] = pa.nulls(len(ts), pa.from_numpy_dtype(dtype))
        else:
            columns[name] = integers(field, dtype)
    for field in fmt.fields:
        name = field.name
        while name in columns:
            name += "_"
        if field.kind is FieldKind.INT:
            columns[name] = integers(field)
            continue
        raw = _slices(buf, off, lengths, field, big_endian)
        if field.is_text:
            text = {
                value: value.partition(b"\0")[0].decode("utf-8", "backslashreplace")
                for value in set(raw)
                if value is not None
            }
            columns[name] = pa.array([None if v is None else text[v] for v in raw], pa.string())
        else:
            columns[name] = pa.array(raw, pa.binary())
    return pa.table(columns)
