"""The .traceana store: a folder with one Parquet file a table, and meta.json.

polars, DuckDB, pandas and Spark read the tables without traceana; traceana reads the store like
any other capture, as long as it holds ``events``.
"""

from __future__ import annotations

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

from traceana import schema
from traceana.columns import Chunk, EventColumns, NameChange
from traceana.errors import FormatError, InputError, UsageError
from traceana.issues import IssueLog
from traceana.parsers.reader import Lost, ReaderMeta

if TYPE_CHECKING:
    from traceana.capture import Capture

__all__ = ["STORED", "StoreReader", "is_store", "write"]

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
    if "events" in wanted:
        with pq.ParquetWriter(
            work / "events.parquet", schema.EVENTS.schema, compression="zstd"
        ) as out:
            for batch in cap.event_batches():
                out.write_batch(batch, row_group_size=_ROWS)
    if any(name in wanted for name in ("tasks", "slices", "wakeups", "idle_gaps")):
        timeline = cap.timeline()
        for name in ("tasks", "slices", "wakeups", "idle_gaps"):
            if name in wanted:
                _put(work, name, getattr(timeline, name))
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


def _put(work: Path, name: str, table: pa.Table) -> None:
    pq.write_table(table, work / f"{name}.parquet", compression="zstd", row_group_size=_ROWS)


class StoreReader:
    """A store, read like a capture (satisfies the Reader protocol)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            document = json.loads((path / "meta.json").read_text())
            version = document["schema_version"]
            meta = document["meta"]
            self.meta = ReaderMeta(**meta)
            self.counts: dict[str, int] = {str(k): int(v) for k, v in document["counts"].items()}
            lost = document["lost"]
            self.lost = Lost(
                lost["events"], lost["marks"], {int(c): n for c, n in lost["per_cpu"].items()}
            )
            self.damaged = bool(document["damaged"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(path, f"not a usable .traceana store: meta.json: {error}") from error
        if version != schema.SCHEMA_VERSION:
            raise FormatError(
                path,
                f"store of schema version {version}, this traceana reads {schema.SCHEMA_VERSION}",
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
                    row["code"],
                    row["text"],
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
            table = pq.read_table(file)
            schema.check(table, name)
        except (OSError, pa.ArrowException, schema.SchemaError) as error:
            raise FormatError(file, f"table cannot be read: {error}") from error
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
        try:
            with pq.ParquetFile(file) as events:
                rows = max(events.metadata.num_rows, 1)
                for batch in events.iter_batches(_ROWS):
                    columns = EventColumns.from_arrow(batch)
                    self._done += self._total * len(columns) // rows
                    yield Chunk(columns, names)
                    names = []
        except (OSError, pa.ArrowException, KeyError) as error:
            raise FormatError(file, f"events cannot be read: {error}") from error

    def extra_events(self, name: str) -> pa.Table:
        raise UsageError(f"{name}: a store holds the known events only; open the capture itself")

    def topology(self) -> pa.Table | None:
        table = self._table("topology")
        if table.num_rows and table.column("origin")[0].as_py() == "assumed":
            return None
        return table

    def progress(self) -> tuple[int, int]:
        return min(self._done, self._total), self._total


def _raw(comm: str) -> bytes:
    """The name's bytes again; an escape stays as it is printed."""
    return comm.encode("utf-8", "surrogatepass")
