"""How the tables of a store are encoded, and that others than pyarrow read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from traceana import schema
from traceana._parquet import GROUP_ROWS, TableFile, options
from traceana.columns import EventColumns


def events(n: int, seed: int = 1) -> pa.RecordBatch:
    """Events with nulls in every column that may have them, and times that step back."""
    rng = np.random.default_rng(seed)
    columns = EventColumns.unknown(n)
    columns.ts[:] = rng.integers(-5, 2**62, n)
    columns.kind[:], columns.buffer[:] = rng.integers(0, 9, n), 0
    for name in ("cpu", "pid", "subject", "prio", "other", "value"):
        some = rng.random(n) < 0.5
        getattr(columns, name)[some] = rng.integers(0, 30000, some.sum())
    return columns.to_arrow()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    batches = [events(n, n) for n in (1, 0, 1000, 77)]
    with TableFile(tmp_path / "events.parquet", "events") as out:
        for batch in batches:
            out.write_batch(batch)
    table = pq.read_table(tmp_path / "events.parquet")
    assert table.equals(pa.Table.from_batches(batches))
    assert pl.read_parquet(tmp_path / "events.parquet").equals(pl.from_arrow(table))


@pytest.mark.parametrize("name", schema.TABLES)
def test_every_table_of_the_contract_can_be_written(tmp_path: Path, name: str) -> None:
    with TableFile(tmp_path / "t.parquet", name) as out:
        out.write_table(schema.empty(name))
    assert pq.read_table(tmp_path / "t.parquet").schema.equals(schema.TABLES[name].schema)


def test_small_batches_become_large_row_groups(tmp_path: Path) -> None:
    batch = events(300_000)
    with TableFile(tmp_path / "events.parquet", "events") as out:
        for _ in range(5):
            out.write_batch(batch)
    told = pq.read_metadata(tmp_path / "events.parquet")
    assert [told.row_group(i).num_rows for i in range(told.num_row_groups)] == [900_000, 600_000]


def test_a_large_table_is_split(tmp_path: Path) -> None:
    table = pa.Table.from_batches([events(GROUP_ROWS + 5)])
    with TableFile(tmp_path / "events.parquet", "events") as out:
        out.write_table(table)
    told = pq.read_metadata(tmp_path / "events.parquet")
    assert [told.row_group(i).num_rows for i in range(told.num_row_groups)] == [GROUP_ROWS, 5]


def test_wide_numbers_are_packed_and_few_columns_have_minima() -> None:
    chosen = options("events", schema.EVENTS.schema)
    assert chosen["column_encoding"] == {"ts": "DELTA_BINARY_PACKED"}
    assert "ts" not in chosen["use_dictionary"]
    assert "value" in chosen["use_dictionary"]
    assert chosen["write_statistics"] == ["ts", "cpu"]


def test_it_is_smaller_than_what_pyarrow_does_by_itself(tmp_path: Path) -> None:
    n = 200_000
    batch = events(n)
    ts = pa.array(np.cumsum(np.random.default_rng(2).integers(0, 5000, n)))
    batch = batch.set_column(0, schema.EVENTS.schema.field(0), ts)
    with TableFile(tmp_path / "ours.parquet", "events") as out:
        out.write_batch(batch)
    pq.write_table(pa.Table.from_batches([batch]), tmp_path / "plain.parquet", compression="zstd")
    sizes = [(tmp_path / f"{x}.parquet").stat().st_size for x in ("ours", "plain")]
    assert sizes[0] < sizes[1]
