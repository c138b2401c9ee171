"""Questions in SQL, asked of one capture or of a dataset of many, by DuckDB.

A capture has the tables of the schema; each is made only if the query names it. A dataset has those
of ``traceana batch``, with the hive column ``capture`` and a column ``label_NAME`` per label.
DuckDB gets them as Arrow data: it may open no file, load no extension and see no variable of this
process, whatever a query says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from traceana import schema
from traceana.errors import FormatError, UsageError

if TYPE_CHECKING:
    from traceana.capture import Capture

__all__ = ["Answer", "ask_capture", "ask_dataset", "capture_tables", "dataset_tables"]

#: Statements that read and do nothing else.
_READING = ("SELECT", "EXPLAIN")
_SETTINGS = (
    # Nothing is read or written but the tables given.
    "SET python_enable_replacements = false",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET temp_directory = ''",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
Make = Callable[[], Any]


@dataclass
class Answer:
    """Rows of plain values under names of columns; ``kinds`` as of ``output.Field``."""

    names: list[str]
    kinds: list[str]
    rows: list[list[Any]] = field(repr=False)


def ask_capture(cap: Capture, query: str, *, rules: Sequence[str] = ()) -> Answer:
    """Ask a capture.

    Parameters
    ----------
    cap : Capture
    query : one SELECT
    rules : those whose ``decisions`` and ``deltas`` are asked for; the usual ones if empty

    Raises
    ------
    UsageError
        DuckDB is not installed, the query is none, or fails.
    """
    return _ask(query, capture_tables(cap, rules=rules))


def ask_dataset(path: str | Path, query: str) -> Answer:
    """Ask a dataset of ``traceana batch``; otherwise as :func:`ask_capture`.

    Raises
    ------
    FormatError
        It is no dataset.
    """
    return _ask(query, dataset_tables(Path(path)))


def capture_tables(cap: Capture, *, rules: Sequence[str] = ()) -> dict[str, Make]:
    """How each table of a capture is made."""

    def events() -> pa.Table:
        spec = schema.TABLES["events"].schema
        return pa.Table.from_batches([c.to_arrow() for c in cap.event_columns()], spec)

    def estimate() -> Any:
        from traceana.whatif import DEFAULT_RULES, whatif

        return whatif(cap, list(rules) or DEFAULT_RULES)

    def found() -> Any:
        from traceana.race import race

        return race(cap, chance=False)

    def idle_bins() -> pa.Table:
        account = found().idle
        return schema.empty("idle_bins") if account is None else account.table

    def part(name: str) -> pa.Table:
        return cap.timeline(spill=True).rows.table(name)

    rows = {name: partial(part, name) for name in ("slices", "wakeups", "idle_gaps")}
    return {
        **rows,
        "events": events,
        "names": cap.names,
        "tasks": cap.tasks,
        "topology": lambda: cap.topology,
        "issues": cap.issues_table,
        "meta": cap.meta_table,
        "collisions": lambda: found().collisions,
        "idle_bins": idle_bins,
        "decisions": lambda: estimate().decisions,
        "deltas": lambda: estimate().deltas,
    }


def dataset_tables(path: Path) -> dict[str, Make]:
    """How each table of a dataset is made: a scan of its partitions, read while a query runs.

    Raises
    ------
    FormatError
        It is no dataset, or holds no capture.
    """
    if not (path / "_dataset.json").is_file():
        raise FormatError(
            path, "not a dataset of traceana", hint="make one: traceana batch CAPTURES -o DATASET"
        )
    folders = sorted(p for p in path.glob("capture=*") if p.is_dir())
    if not folders:
        raise FormatError(path, "this dataset holds no capture")
    names = sorted({f.stem for folder in folders for f in folder.glob("*.parquet")})

    def scan(name: str) -> pads.Dataset:
        files = [str(f) for folder in folders if (f := folder / f"{name}.parquet").is_file()]
        hive = pads.partitioning(pa.schema([("capture", pa.string())]), flavor="hive")
        return pads.dataset(
            files, format="parquet", partitioning=hive, partition_base_dir=str(path)
        )

    out: dict[str, Make] = {name: partial(scan, name) for name in names}
    # A row a capture: small enough to be held, and its labels become columns.
    out["facts"] = lambda: with_labels(scan("facts").to_table())
    return out


def with_labels(facts: pa.Table) -> pa.Table:
    """Facts with a column for each label, ``label_NAME``."""
    rows = [json.loads(text) if text else {} for text in facts.column("labels").to_pylist()]
    for name in sorted({n for row in rows for n in row}):
        values = pa.array([row.get(name) for row in rows], pa.string())
        facts = facts.append_column(f"label_{name}", values)
    return facts


def _ask(query: str, tables: Mapping[str, Make]) -> Answer:
    try:
        import duckdb
    except ImportError as error:
        raise UsageError("sql needs DuckDB (pip install 'traceana[sql]')") from error
    connection = duckdb.connect(":memory:")
    try:
        statements = connection.extract_statements(query)
        kinds = [s.type.name for s in statements]
        if len(kinds) != 1 or kinds[0] not in _READING:
            raise UsageError("sql: give one statement that reads, such as select")
        for name, made in _named(query, tables):
            connection.register(name, made)
        for setting in _SETTINGS:
            connection.execute(setting)
        cursor = connection.execute(query)
        told = cursor.description or []
        rows = cursor.fetchall()
    except duckdb.Error as error:
        raise UsageError(f"sql: {_said(error, tables)}") from error
    finally:
        connection.close()
    return _answer([str(d[0]) for d in told], rows)


def _named(query: str, tables: Mapping[str, Make]) -> Iterator[tuple[str, Any]]:
    """The tables that the query may mean: those whose names stand in it as a word."""
    words = set(re.findall(r"\w+", query.lower()))
    if words & {"show", "information_schema", "duckdb_tables"}:
        words |= {n for n in tables if n in schema.TABLES} - {"collisions", "idle_bins"}
        words -= {"decisions", "deltas"}
    for name, make in tables.items():
        if name in words:
            made = make()
            yield name, _plain(made) if isinstance(made, pa.Table) else made


def _plain(table: pa.Table) -> pa.Table:
    """Without dictionaries of more chunks than one, which DuckDB would have to learn anew."""
    for i, f in enumerate(table.schema):
        if pa.types.is_dictionary(f.type):
            table = table.set_column(i, f.name, pc.cast(table.column(i), f.type.value_type))
    return table


def _said(error: Exception, tables: Mapping[str, Make]) -> str:
    """The first lines of what DuckDB says, and which tables there are."""
    text = " ".join(str(error).split())
    text = text.partition(" LINE ")[0][:400]
    if "does not exist" in text and "able" in text:
        text += f" (tables: {', '.join(tables)})"
    return text


def _answer(names: list[str], rows: Sequence[Sequence[Any]]) -> Answer:
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    values = [[_value(v) for v in row] for row in rows]
    kinds = [_kind(name, [row[i] for row in values]) for i, name in enumerate(unique)]
    return Answer(unique, kinds, values)


def _value(value: Any) -> Any:
    """A value that JSON has, too."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return [_value(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _value(v) for k, v in value.items()}
    return str(value)


def _kind(name: str, values: Sequence[Any]) -> str:
    known = [v for v in values if v is not None]
    if known and all(isinstance(v, int | float) and not isinstance(v, bool) for v in known):
        if name.endswith("_ns"):
            return "ns"
        return "int" if all(isinstance(v, int) for v in known) else "float"
    return "text"
