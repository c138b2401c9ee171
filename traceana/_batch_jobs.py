"""What goes to a worker and comes back, and the rows of a capture that gave no result.

Light to import: the process that hands out the work needs no kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from traceana import store
from traceana._batch_inputs import Source
from traceana._batch_tables import as_table, empty_facts
from traceana.errors import TraceanaError

__all__ = [
    "FURTHER",
    "LONGEST",
    "Asked",
    "Done",
    "Job",
    "NoResultError",
    "failed",
    "labelled",
    "perform",
    "reason_of",
]

#: Longest reason that is kept.
LONGEST = 500
#: Tables that --tables may add.
FURTHER = tuple(n for n in store.STORED if n not in ("events", "tasks"))


@dataclass(frozen=True)
class Asked:
    """What is asked of each capture; all of it plain values, so that it can be sent and hashed.

    ``workload``: (name, glob) pairs. ``tables``: further tables of the schema to keep.
    """

    rules: tuple[str, ...] = ("sis_short_v5", "abel")
    workload: tuple[tuple[str, str], ...] = ()
    topology: str | None = None
    hz: int | None = None
    kernel: str | None = None
    ignore: tuple[str, ...] = ()
    time: tuple[str | None, str | None] | None = None
    buffer: str | None = None
    redact: bool = False
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One capture to look at."""

    source: Source
    dataset: str
    asked: Asked
    #: JSON object.
    labels: str
    #: Digest of the content that the dataset's partition was made from, if the rest of its key
    #: fits: the same content needs no second look.
    known: str | None = None
    #: Most memory, bytes; 0: as much as there is.
    memory: int = 0


@dataclass(frozen=True)
class Done:
    """What came of it. ``part`` is None where the content is that of the partition there is."""

    id: str
    part: str | None
    digest: str | None
    stamp: str | None
    status: str
    reason: str | None
    #: Failed of something that may be otherwise next time.
    passing: bool = False
    #: Most memory that the worker held so far, bytes.
    peak: int = 0


class NoResultError(TraceanaError):
    """A capture without a result, not by the capture's fault alone."""


def perform(job: Job) -> Done:
    """Do the work; loads all that it needs where it is called."""
    from traceana._batch_work import work

    return work(job)


def failed(
    error: TraceanaError, facts: dict[str, Any] | None = None, path: Path | None = None
) -> dict[str, pa.Table]:
    """The tables of a capture without a result."""
    facts = empty_facts() if facts is None else facts
    facts |= {
        "status": "failed",
        "reason": reason_of(error, path),
        "exit_status": error.exit_code,
    }
    return {
        "facts": as_table("facts", [facts]),
        "gains": as_table("gains", []),
        "workloads": as_table("workloads", []),
        "tasks": as_table("tasks", []),
    }


def reason_of(error: BaseException, path: Path | None) -> str:
    """One line without the path, which may be that of a temporary copy, and stands in source."""
    text = " ".join(str(error).split())
    if path is not None:
        text = text.removeprefix(f"{path}:").replace(str(path), path.name).strip()
    return text[:LONGEST] or type(error).__name__


def labelled(
    facts: pa.Table, source: Source, labels: str, content: str | None, size: int | None
) -> pa.Table:
    """The row of facts with what does not come out of the capture itself."""
    own: dict[str, Any] = {
        "source": source.path.encode("utf-8", "backslashreplace").decode(),
        "bytes": size,
        "digest": content,
        "labels": labels,
    }
    for name, value in own.items():
        at = facts.schema.get_field_index(name)
        told = facts.schema.field(at)
        facts = facts.set_column(at, told, pa.array([value], told.type))
    return facts
