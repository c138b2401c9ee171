"""Writes the tables of a store as Parquet files that cost little to write and to read.

How columns are encoded was chosen by CPU time and size on a trace.dat of 16 million events
(pyarrow 26; what pyarrow does by itself with zstd, then what is done here, a row):

* ``events``: 203 ns and 5.6 bytes, then 137 ns and 3.7 bytes;
* ``wakeups``: 950 ns and 44 bytes, then 440 and 26; ``slices``: 320 and 14, then 144 and 7.

What made the difference:

* numbers of 64 bits (times, durations, ids: each near the last, seldom the same) as
  DELTA_BINARY_PACKED without a dictionary: ``events.ts`` 9 ns and 1.3 bytes instead of 38 and 2.1.
  ``events.value`` is the exception: runtimes, idle states and irq numbers repeat;
* all else by a dictionary, then zstd at level 1. LZ4 would save 3 ns an event and cost half a
  byte; BYTE_STREAM_SPLIT would save 5 ns for a column of small numbers, but many readers know it
  for floats only;
* pages of up to a row group's rows (pyarrow: 20,000) and values handed on 65,536 at a time
  (pyarrow: 1024): 12 ns and 0.8 bytes;
* minima and maxima of times and CPUs only: nobody prunes by others;
* row groups of about a million rows, whatever the batches' size.

Without any encoding or compression ``events`` would take 110 ns and 43 bytes: most of what is left
is the price of columns that may be null. Threads would not make it cheaper, and the capture's
decoder has use for the other CPU.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from traceana import schema

__all__ = ["GROUP_ROWS", "TableFile", "options"]

#: Rows of a row group, at most.
GROUP_ROWS = 1 << 20
#: Values handed to a column's encoder at a time (pyarrow: 1024).
_AT_ONCE = 1 << 16
#: Columns of 64 bits whose values repeat.
_REPEATING = {("events", "value")}


def options(name: str, spec: pa.Schema) -> dict[str, Any]:
    """Keyword arguments of ``pq.ParquetWriter`` for a table of the contract.

    ``name`` is the table's, ``spec`` its Arrow schema.
    """
    wide = [
        f.name
        for f in spec
        if f.type in (pa.int64(), pa.uint64()) and (name, f.name) not in _REPEATING
    ]
    out: dict[str, Any] = {
        "use_dictionary": [c for c in spec.names if c not in wide],
        "column_encoding": dict.fromkeys(wide, "DELTA_BINARY_PACKED"),
        "compression": "zstd",
        "compression_level": 1,
        "write_statistics": [c for c in spec.names if _pruned(c)],
        "write_batch_size": _AT_ONCE,
    }
    if "max_rows_per_page" in inspect.signature(pq.write_table).parameters:
        # Before there was this limit, there was none.
        out["max_rows_per_page"] = GROUP_ROWS
    return out


def _pruned(column: str) -> bool:
    """Whether readers ask for spans of this column."""
    return column in ("ts", "cpu", "start", "end") or column.endswith(("_ts", "_cpu"))


class TableFile:
    """A table's file, written batch by batch; small batches are gathered into row groups.

    A batch's memory must not change until its row group is full, or the file closed.
    """

    def __init__(self, path: Path, name: str) -> None:
        spec = schema.TABLES[name].schema
        self._spec = spec
        self._out = pq.ParquetWriter(path, spec, **options(name, spec))
        self._held: list[pa.RecordBatch] = []
        self._rows = 0

    def __enter__(self) -> TableFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        if self._rows and self._rows + len(batch) > GROUP_ROWS:
            self._flush()
        self._held.append(batch)
        self._rows += len(batch)

    def write_table(self, table: pa.Table) -> None:
        """Add the rows of a table."""
        for batch in table.to_batches(max_chunksize=GROUP_ROWS):
            self.write_batch(batch)

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._held, self._spec)
        self._held, self._rows = [], 0
        self._out.write_table(table, row_group_size=GROUP_ROWS)

    def close(self) -> None:
        """Write what is still held, and the file's end. Twice does no harm."""
        if self._held:
            self._flush()
        self._out.close()
