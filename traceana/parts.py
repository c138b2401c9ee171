"""A timeline that does not fit in memory, part by part.

The state machine numbers rows as they begin. A *cut* is what was numbered at one instant; the rows
between two cuts are a :class:`Part`, handed to a :class:`Sink` one part later, when all but the
longest are over. A row that is not (a CPU idle, a task running or waiting for all that time) comes
first in the part in which it ends, so the order of time holds within a part but for these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from traceana._timeline_blocks import Columns
    from traceana.timeline import Timeline

__all__ = ["PART_ROWS", "TABLES", "Cut", "Held", "Part", "Rows", "Sink", "structured"]

#: Tables whose rows grow with the length of a capture.
TABLES = ("slices", "wakeups", "idle_gaps")
#: Rows of a part, of all tables together: those of about half a million events.
PART_ROWS = 200_000


class Cut(NamedTuple):
    """How many wakeups, slices and gaps had been numbered, and when (ns)."""

    wakes: int
    slices: int
    gaps: int
    ts: int

    @property
    def rows(self) -> int:
        return self.wakes + self.slices + self.gaps


@dataclass(frozen=True)
class Part:
    """Rows of one stretch.

    ``tables`` as in the schema, by the names of :data:`TABLES`; ``columns`` the fields behind them
    (slices, wakeups, gaps: as in ``_timeline_state``); ``moves`` up to here and not in an earlier
    part; ``unfinished`` copies of rows that began before its end and are not over.
    """

    number: int
    begin_ts: int
    end_ts: int
    tables: dict[str, pa.Table]
    columns: dict[str, list[Columns]]
    moves: npt.NDArray[Any]
    unfinished: dict[str, npt.NDArray[Any]]


class Sink(Protocol):
    """Takes the parts of a timeline.

    ``hold_rows``: while there are no more, everything stays in memory and nothing is handed over.
    ``part_rows``: about so many rows make a part.
    """

    hold_rows: int
    part_rows: int

    def take(self, part: Part) -> None:
        """The next part."""

    def rows(self) -> Rows:
        """All that was taken."""

    def forget(self, name: str) -> None:
        """A table of :data:`TABLES` turned out to say nothing: it has no rows."""

    def study(self, whole: Timeline) -> Timeline | None:
        """A stretch whose rows are in memory, if one was kept."""


class Rows(Protocol):
    """Where a timeline's long tables lie."""

    def table(self, name: str) -> pa.Table:
        """One of :data:`TABLES`."""

    def chunks(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some of its columns, some hundred thousand rows at a time."""


class Held:
    """Rows in memory."""

    def __init__(self, tables: dict[str, pa.Table]) -> None:
        self._tables = tables

    def table(self, name: str) -> pa.Table:
        return self._tables[name]

    def chunks(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        yield self._tables[name].select(list(columns))


def structured(columns: list[Columns], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Columns as rows again."""
    return np.concatenate([c.rows(dtype) for c in columns])
