"""The .traceana store: a folder with one Parquet file a table, and meta.json.

polars, DuckDB, pandas and Spark read the tables without traceana; traceana reads the store like
any other capture, as long as it holds ``events``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from traceana import _parquet, output, schema
from traceana import _store_content as content
from traceana import topology as topo
from traceana.columns import Chunk, EventColumns, NameChange
from traceana.errors import FormatError, InputError, UsageError
from traceana.issues import IssueLog
from traceana.parsers.glimpse import Glimpse
from traceana.parsers.reader import Lost, ReaderMeta
from traceana.parts import PART_ROWS, TABLES, Part, Rows

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.timeline import Timeline

__all__ = ["STORED", "StoreReader", "glimpse", "is_store", "write"]

#: Tables that ``convert`` can write.
STORED = (
    "events",
    "names",
    "tasks",
    "slices",
    "wakeups",
    "idle_gaps",
    "topology",
    "issues",
    "meta",
)
_ROWS = 1 << 20
#: What Arrow and the checks raise for a file that is no table of a store.
_UNREADABLE = (OSError, pa.ArrowException, schema.SchemaError, ValueError, KeyError, TypeError)


def is_store(path: Path) -> bool:
    """Whether a folder is a .traceana store."""
    return path.is_dir() and (path / "meta.json").is_file()


def write(
    cap: Capture, path: str | Path, *, tables: Sequence[str] | None = None, force: bool = False
) -> None:
    """Write tables of a capture to a store.

    Parameters
    ----------
    tables : names of :data:`STORED`; all when None. ``topology``, ``issues`` and ``meta`` are
        always written.
    force : replace an existing store

    Raises
    ------
    UsageError
        An unknown table, or something is in the way.
    """
    target = Path(path)
    wanted = list(STORED) if tables is None else list(tables)
    for name in wanted:
        if name not in STORED:
            raise UsageError(f"--tables {name}: unknown; there are {', '.join(STORED)}")
    if target.exists():
        if not force:
            raise UsageError(f"{target} exists; use --force to overwrite")
        if not is_store(target):
            raise UsageError(f"{target} exists and is not a .traceana store; not overwritten")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise InputError(target, error.strerror or "cannot be written") from error
    try:
        _write_tables(cap, work, wanted)
        # mkdtemp makes a private folder; a store is as public as its surroundings allow.
        mask = os.umask(0)
        os.umask(mask)
        work.chmod(0o777 & ~mask)
        if target.exists():
            shutil.rmtree(target)
        work.rename(target)
    except OSError as error:
        raise InputError(target, error.strerror or "cannot be written") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_tables(cap: Capture, work: Path, wanted: list[str]) -> None:
    with contextlib.ExitStack() as stack:
        events = None
        if "events" in wanted:
            out = stack.enter_context(_writer(work, "events"))

            def events(batch: EventColumns) -> None:
                out.write_batch(batch.to_arrow())

        if any(name in wanted for name in ("tasks", *TABLES)):
            sink = _StoreSink(work, [name for name in TABLES if name in wanted])
            timeline = cap.stream(sink, events)
            if "tasks" in wanted:
                _put(work, "tasks", timeline.tasks)
            sink.close(timeline)
        elif events is not None:
            for batch in cap.event_columns():
                events(batch)
    if "names" in wanted or "events" in wanted:
        _put(work, "names", cap.names())
    _put(work, "topology", cap.topology)
    _put(work, "issues", cap.issues_table())
    _put(work, "meta", cap.meta_table())
    lost = cap.lost
    document = {
        "schema_version": schema.SCHEMA_VERSION,
        "source": cap.path.name,
        "meta": asdict(cap.meta) | {"kernel": cap.kernel},
        "counts": {k: v for k, v in cap.counts.items() if k not in cap.ignored},
        "lost": {
            "events": lost.events,
            "marks": lost.marks,
            "per_cpu": {str(c): n for c, n in lost.per_cpu.items()},
            "counters": {
                "all" if c is None else str(c): asdict(told) for c, told in lost.counters.items()
            },
        },
        "damaged": cap.damaged,
    }
    if cap.start_state is not None:
        (work / "state.json").write_text(json.dumps(_plain_state(cap)) + "\n")
    (work / "meta.json").write_text(json.dumps(document, indent=1, default=str) + "\n")


def _plain_state(cap: Capture) -> dict[str, Any]:
    state = cap.start_state
    assert state is not None
    return {
        "tasks": [asdict(t) for t in state.tasks],
        "jiffies_now": state.jiffies_now,
        "hz": state.hz,
        "at_ts": state.at_ts,
        "cpus": [{"cpu": c, "pid": p} for c, p in state.running.items()],
        "llcs": [
            {"llc": llc, "nr_idle_scan": nr, "has_idle_core": core}
            for llc, (nr, core) in state.llcs.items()
        ],
    }


def _writer(work: Path, name: str) -> _parquet.TableFile:
    return _parquet.TableFile(work / f"{name}.parquet", name)


def _put(work: Path, name: str, table: pa.Table) -> None:
    with _writer(work, name) as out:
        out.write_table(table)


class _StoreSink:
    """Writes the timeline's rows to the store part by part (satisfies ``parts.Sink``)."""

    hold_rows = PART_ROWS
    part_rows = PART_ROWS

    def __init__(self, work: Path, wanted: Sequence[str]) -> None:
        self._work = work
        self._wanted = wanted
        self._out: dict[str, _parquet.TableFile] = {}

    def take(self, part: Part) -> None:
        for name in self._wanted:
            if name not in self._out:
                self._out[name] = _writer(self._work, name)
            self._out[name].write_table(part.tables[name])

    def rows(self) -> Rows:
        self._finish()
        return self

    def forget(self, name: str) -> None:
        if name in self._wanted:
            _put(self._work, name, schema.empty(name))

    def study(self, whole: Timeline) -> None:
        return None

    def table(self, name: str) -> pa.Table:
        return pq.read_table(self._work / f"{name}.parquet")

    def chunks(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        yield self.table(name).select(list(columns))

    def _finish(self) -> None:
        for out in self._out.values():
            out.close()

    def close(self, timeline: Timeline) -> None:
        """Write what stayed in memory, where the capture was short."""
        if not self._out:
            for name in self._wanted:
                _put(self._work, name, timeline.rows.table(name))


class StoreReader:
    """A store, read like a capture (satisfies the Reader protocol)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            document = json.loads((path / "meta.json").read_text())
            version = document["schema_version"]
            meta = document["meta"]
            self.meta: ReaderMeta = content.meta_of(meta)
            self.counts: dict[str, int] = content.counts_of(document["counts"])
            self.lost: Lost = content.lost_of(document["lost"])
            self.damaged = bool(document["damaged"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            text = f"not a usable .traceana store: meta.json: {_one_line(error)}"
            raise FormatError(path, text) from error
        if version not in schema.READABLE_VERSIONS:
            raise FormatError(
                path,
                f"store of schema version {version!r}, this traceana reads up to "
                f"{schema.SCHEMA_VERSION}",
                hint="convert the capture anew",
            )
        if not (path / "events.parquet").is_file():
            held = ", ".join(sorted(p.stem for p in path.glob("*.parquet")))
            raise FormatError(
                path, f"this store holds {held}, but not events", hint="convert with events"
            )
        self.issues = IssueLog()
        for row in self._table("issues").to_pylist():
            # What later stages found they will find again.
            if row["stage"] == "parse":
                self.issues.add(
                    "parse",
                    output.escape(row["code"]),
                    output.escape(row["text"]),
                    ts=row["ts"],
                    cpu=row["cpu"],
                    count=row["count"],
                )
        self.meta.form = self.meta.form.removesuffix(" (store)") + " (store)"
        self._done = 0
        self._total = (path / "events.parquet").stat().st_size

    def _table(self, name: str) -> pa.Table:
        file = self.path / f"{name}.parquet"
        try:
            with pq.ParquetFile(file) as parquet:
                content.check_rows(parquet, file.stat().st_size)
                table = parquet.read()
            schema.check(table, name)
            if name == "topology":
                content.check_topology(table, topo.MAX_CPUS)
        except _UNREADABLE as error:
            raise FormatError(file, f"table cannot be read: {_one_line(error)}") from error
        return table

    def chunks(self) -> Iterator[Chunk]:
        names = [
            NameChange(
                row["pid"],
                row["tgid"],
                None if row["comm"] is None else _raw(row["comm"]),
                row["since_ts"],
                schema.Evidence(row["evidence"]),
            )
            for row in self._table("names").to_pylist()
        ]
        file = self.path / "events.parquet"
        self._done = 0
        last = -(1 << 62)
        try:
            with pq.ParquetFile(file) as events:
                content.check_rows(events, self._total)
                rows = max(events.metadata.num_rows, 1)
                for batch in events.iter_batches(_ROWS):
                    columns, last = content.check_events(batch, last)
                    self._done += self._total * len(columns) // rows
                    yield Chunk(columns, names)
                    names = []
        except _UNREADABLE as error:
            raise FormatError(file, f"events cannot be read: {_one_line(error)}") from error

    def extra_events(self, name: str) -> pa.Table:
        raise UsageError(f"{name}: a store holds the known events only; open the capture itself")

    def topology(self) -> pa.Table | None:
        table = self._table("topology")
        if table.num_rows and table.column("origin")[0].as_py() == "assumed":
            return None
        return table

    def progress(self) -> tuple[int, int]:
        return min(self._done, self._total), self._total


def glimpse(path: Path) -> Glimpse:
    """What the store tells of itself without reading its events.

    Raises
    ------
    FormatError
        It is no usable store.
    """
    reader = StoreReader(path)
    out = Glimpse(reader.meta, dict(sorted(reader.counts.items())), lost=reader.lost)
    out.issues.extend(reader.issues)
    out.topology = reader.topology()
    out.damaged = reader.damaged
    out.unknown.add("windows")
    file = path / "events.parquet"
    try:
        told = pq.read_metadata(file)
        ends = [told.row_group(i).column(0).statistics for i in range(told.num_row_groups)]
    except _UNREADABLE as error:
        raise FormatError(file, f"events cannot be read: {_one_line(error)}") from error
    if ends and all(s is not None and s.has_min_max for s in ends):
        out.span = min(s.min for s in ends), max(s.max for s in ends)
    elif ends:
        out.unknown.add("span_ns")
    return out


def _one_line(error: Exception) -> str:
    """What Arrow or JSON says, without the ends of lines and controls that it may quote."""
    return " ".join(ascii(str(error))[1:-1].replace("\\n", " ").split())


def _raw(comm: str) -> bytes:
    """The name's bytes again; an escape stays as it is printed."""
    return comm.encode("utf-8", "surrogatepass")
