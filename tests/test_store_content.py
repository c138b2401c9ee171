"""Stores that somebody else wrote, or that are damaged: refused with the reason, in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz import stores

import traceana as ta
from traceana.errors import FormatError

Change = Callable[[pa.Table], pa.Table]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "x.traceana"
    path.mkdir()
    for name, data in stores.wholes()[1].items():
        (path / name).write_bytes(data)
    return path


def refused(path: Path, says: str) -> None:
    with pytest.raises(FormatError, match=says) as caught:
        list(ta.open(path).event_batches())
    assert str(caught.value).isprintable()


def test_a_whole_one_is_read(store: Path) -> None:
    assert sum(b.num_rows for b in ta.open(store).event_batches()) == 40


@pytest.mark.parametrize(
    ("keys", "value", "says"),
    [
        (("schema_version",), "\x1b]0;x\x07", r"store of schema version '\\x1b\]0;x\\x07'"),
        (("meta",), [], "meta is no object"),
        (("meta", "kernel"), 6, "meta.kernel is 6"),
        (("meta", "form"), None, "meta.form is None"),
        (("meta", "extra"), "x", "meta.extra is 'x'"),
        (("meta", "hz"), True, "meta.hz is True"),
        (("meta", "cpus_present"), 1 << 40, "meta.cpus_present is 1099511627776"),
        (("meta", "more"), 1, "unexpected keyword"),
        (("counts", "sched_switch"), "many", "counts is 'many'"),
        (("lost", "events"), -4, "lost.events is -4"),
        (("lost", "per_cpu"), {"x": 1}, "invalid literal"),
        (("lost",), None, "meta.json"),
    ],
)  # fmt: skip
def test_facts_of_wrong_types(store: Path, keys: tuple[str, ...], value: Any, says: str) -> None:
    document = json.loads((store / "meta.json").read_text())
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    (store / "meta.json").write_text(json.dumps(document))
    refused(store, says)


def put(name: str, row: int, value: int | None) -> Change:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        values = table.column(at).to_pylist()
        values[row] = value
        return table.set_column(at, table.schema.field(at), pa.array(values, table.field(at).type))

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put("ts", 3, 1 << 61), "not in the order of ts"),
        (put("ts", -1, (1 << 63) - 1), "events.ts: a time that cannot be"),
        (put("cpu", 3, -7), "events.cpu: a value that cannot be"),
        (put("cpu_to", 3, 1 << 30), "events.cpu_to: a value that cannot be"),
        (put("pid", 3, 1 << 30), "events.pid: a value that cannot be"),
        (put("subject", 3, -2), "events.subject: a value that cannot be"),
        (put("kind", 3, 200), "events.kind: value 200 is not of EventKind"),
        (lambda t: t.drop_columns(["prio"]), "missing .'prio'."),
        (lambda t: t.set_column(1, "cpu", t.column(1).cast(pa.int64())), "type int64"),
    ],
)  # fmt: skip
def test_values_that_no_capture_gives(store: Path, change: Change, says: str) -> None:
    file = store / "events.parquet"
    pq.write_table(change(pq.read_table(file)), file)
    refused(store, says)


def test_a_topology_that_cannot_be(store: Path) -> None:
    file = store / "topology.parquet"
    table = pq.read_table(file)
    row = {"cpu": 1 << 30, "core": 0, "llc": 0, "online": True, "origin": "header"}
    for rows, says in (([row], "topology.cpu: a value"), ([row | {"cpu": 1}] * 2, "stands twice")):
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), file)
        with pytest.raises(FormatError, match=says):
            _ = ta.open(store).topology


def test_tables_that_are_broken_are_told_in_one_line(store: Path) -> None:
    file = store / "names.parquet"
    file.write_bytes(b"PAR1" + b"\x1f" * 200 + (200).to_bytes(4, "little") + b"PAR1")
    refused(store, "names.parquet: table cannot be read")


def test_what_an_issue_says_cannot_drive_a_terminal(store: Path) -> None:
    file = store / "issues.parquet"
    spec = pq.read_table(file).schema
    row = {"stage": "parse", "code": "odd\x1b[1m", "count": 1, "text": "\x9b2J\nx"}
    pq.write_table(pa.Table.from_pylist([row], schema=spec), file)
    cap = ta.open(store)
    assert cap.issues.counts()["odd\\x1b[1m"] == 1
    assert "\\x9b2J\\x0ax" in cap.issues.texts()


def test_a_bomb_is_refused(store: Path) -> None:
    """Two million names in 40 KB."""
    file = store / "names.parquet"
    spec = pq.read_table(file).schema
    n = 1 << 21
    cells: dict[str, Any] = {"pid": 7, "tgid": 7, "comm": "a", "since_ts": 5, "evidence": 0}
    columns = [pa.repeat(pa.scalar(cells[f.name], f.type), n) for f in spec]
    pq.write_table(pa.table(columns, schema=spec), file, compression="zstd")
    assert file.stat().st_size < 100_000
    refused(store, "2097152 rows in .* bytes")
