"""What a worker does with one capture, in a pool of this machine or on a Dask cluster."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from traceana._batch_inputs import digest, fetched, stamp
from traceana._batch_jobs import Done, Job, NoResultError, failed, labelled
from traceana._batch_measure import measure
from traceana._batch_store import gone_unless_kept, part_folder, write_part
from traceana.errors import InputError, UnsupportedError

__all__ = ["bounded", "work"]


def work(job: Job) -> Done:
    """Measure a capture and write its partition under a passing name."""
    before = stamp(job.source)
    size: int | None = None
    content: str | None = None
    passing = False
    extra: dict[str, pa.Table] = {}
    try:
        with fetched(job.source) as path:
            content, size = digest(path)
            if content == job.known:
                return Done(job.source.id, None, content, before, "kept", None, peak=peak())
            with bounded(job.memory):
                measured = measure(path, job.asked)
                tables = measured.tables
                if measured.capture is not None:
                    extra = _further(measured.capture, job.asked.tables)
    except InputError as error:
        # Not there, not readable, not fetched: may be otherwise next time.
        tables, passing = failed(error, path=Path(error.path)), True
    except MemoryError:
        bound = f" of {job.memory >> 20} MiB" if job.memory else ""
        tables, passing = (
            failed(NoResultError(f"needs more memory than its worker's bound{bound}")),
            True,
        )
    except Exception as error:
        # Of one capture of a thousand it is a row, as everything else that goes wrong is.
        text = f"a fault of traceana: {type(error).__name__}: {error}"
        tables = failed(NoResultError(text))
    tables = {**extra, **tables}
    tables["facts"] = labelled(tables["facts"], job.source, job.labels, content, size)
    return _written(job, tables, content, before, passing=passing)


def _written(
    job: Job,
    tables: dict[str, pa.Table],
    content: str | None,
    before: str | None,
    *,
    passing: bool,
) -> Done:
    with gone_unless_kept(part_folder(Path(job.dataset))) as part:
        write_part(part, tables)
    row = tables["facts"].to_pylist()[0]
    return Done(
        job.source.id, str(part), content, before, row["status"], row["reason"], passing, peak()
    )


def _further(cap: Any, wanted: tuple[str, ...]) -> dict[str, pa.Table]:
    """More tables of the contract, where the capture has them."""
    out = {}
    timeline = cap.timeline(spill=True)
    for name in wanted:
        if name in ("slices", "wakeups", "idle_gaps"):
            out[name] = timeline.rows.table(name)
        elif name in ("topology", "issues", "meta", "names"):
            make = {
                "topology": lambda: cap.topology,
                "issues": cap.issues_table,
                "meta": cap.meta_table,
                "names": cap.names,
            }[name]
            out[name] = make()
        else:
            raise UnsupportedError(cap.path, f"table {name} is not kept in a dataset")
    return out


@contextlib.contextmanager
def bounded(most: int) -> Iterator[None]:
    """Refuse memory beyond a bound: an allocation that would pass it raises MemoryError.

    What counts is memory of the process's own (``RLIMIT_DATA``), not mapped files.
    """
    if not most:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def peak() -> int:
    """Most memory that this process held, bytes (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
