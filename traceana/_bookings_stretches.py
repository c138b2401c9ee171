"""A timeline's wakeups and idle gaps as arrays, stretch by stretch.

Rows of a stretch that may still meet one of the next are carried over to it, so that how a timeline
is cut changes nothing: a gap and its bookings are handed over for good when the gap ended a while
ago.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = [
    "MARGIN_NS",
    "NULL",
    "STRETCH_ROWS",
    "Fields",
    "fields_of",
    "frozen",
    "joined",
    "stretches",
    "taken",
]

NULL = -(2**63)
#: Wakeups of a stretch.
STRETCH_ROWS = 1 << 16
#: What ended so long before a stretch's last wakeup meets nobody of the next one, ns.
MARGIN_NS = 10_000_000

Array = npt.NDArray[Any]
Fields = dict[str, Array]

WAKE_COLUMNS = (
    "wakeup", "waking_ts", "wakeup_ts", "run_ts", "this_cpu", "prev_cpu", "placed_cpu", "ran_cpu",
    "kind", "queueing", "wakeup_latency_ns", "visible_lo", "visible_hi", "nr_running_placed",
    "idle_cpus_llc", "quality",
)  # fmt: skip
GAP_COLUMNS = ("cpu", "start", "end")


def frozen(array: Array) -> Array:
    """The array, made read-only: as Arrow's memory is, so that kernels have one signature."""
    array.flags.writeable = False
    return array


def fields_of(table: pa.Table) -> Fields:
    """Columns as arrays: NULL for times, -1 for others where there is nothing."""
    out = {}
    for name in table.column_names:
        column = table.column(name)
        if column.null_count:
            null = NULL if pa.types.is_int64(column.type) else -1
            column = pc.fill_null(column, pa.scalar(null, column.type))
        out[name] = frozen(np.ascontiguousarray(column.to_numpy()))
    return out


def joined(parts: list[Fields]) -> Fields:
    """The parts behind each other."""
    if len(parts) == 1:
        return parts[0]
    return {name: frozen(np.concatenate([p[name] for p in parts])) for name in parts[0]}


def taken(fields: Mapping[str, Array], rows: Array) -> Fields:
    """Some rows."""
    return {name: frozen(array[rows]) for name, array in fields.items()}


def stretches(timeline: Timeline, rows: int = STRETCH_ROWS) -> Iterator[tuple[Fields, Fields]]:
    """Wakeups, and the idle gaps that began up to the last of them, in the order of time."""
    gaps = _Gaps(_sliced(timeline.rows.chunks("idle_gaps", GAP_COLUMNS), rows))
    before: Fields | None = None
    for table in _sliced(timeline.rows.chunks("wakeups", WAKE_COLUMNS), rows):
        if before is not None:
            yield before, gaps.upto(int(_key(before, ("waking_ts", "wakeup_ts", "run_ts")).max()))
        before = fields_of(table)
    if before is not None:
        yield before, gaps.upto(None)


def _sliced(chunks: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows, no more than so many at a time; an empty table if there are none."""
    some = False
    for chunk in chunks:
        for at in range(0, max(chunk.num_rows, 0 if some else 1), rows):
            yield chunk.slice(at, rows)
            some = True


def _key(fields: Fields, times: tuple[str, ...]) -> Array:
    """The first time of each row that is known: what rows are in the order of."""
    key = fields[times[0]]
    for name in times[1:]:
        key = np.where(key == NULL, fields[name], key)
    return key


class _Gaps:
    """Idle gaps up to an instant.

    A gap that was open when a part of the timeline was handed over comes at the head of a later
    part; it goes with the gap before it.
    """

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self._held = fields_of(next(tables))
        self._over = False

    def upto(self, ts: int | None) -> Fields:
        """Those that began no later than ``ts`` (None: all) and were not yet given."""
        more = [self._held]
        while not self._over and (ts is None or not (_key(more[-1], ("start", "end")) > ts).any()):
            table = next(self._tables, None)
            if table is None:
                self._over = True
            else:
                more.append(fields_of(table))
        held = joined(more)
        key = np.maximum.accumulate(_key(held, ("start", "end")))
        cut = len(key) if ts is None else int(np.searchsorted(key, ts, side="right"))
        self._held = {name: frozen(column[cut:]) for name, column in held.items()}
        return {name: frozen(column[:cut]) for name, column in held.items()}
