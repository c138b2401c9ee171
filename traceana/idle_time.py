"""How idle the machine was, with the bounds that CPUs without events leave open.

Idle of a CPU means that its idle task was current. A CPU of the topology without any event may
have been either: the share is of the known CPUs, and both bounds are of all. Where the data of
some CPUs begins late (rings that wrapped), the share is of the window that all have in common.
Verbs and reports take it from here, so that they agree.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from traceana.columns import NULL_I64

if TYPE_CHECKING:
    import pyarrow as pa

    from traceana.timeline import Timeline

__all__ = ["MachineIdle", "gap_bounds", "machine_idle"]

_I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MachineIdle:
    """Idle time over CPUs; None where there is nothing to divide by."""

    #: Of the known CPUs, over what is known of ``window_ns``.
    share: float | None
    #: Of all CPUs over the whole span, as if all that is unknown had been busy, or idle.
    lo: float | None
    hi: float | None
    known: int
    #: CPUs of the topology without any event.
    silent: int
    window_ns: int
    #: Whether the window is shorter than the span.
    common: bool


def _column(table: pa.Table, name: str, null: int = NULL_I64) -> _I64:
    column = table.column(name)
    filled = pc.fill_null(column, null) if column.null_count else column
    return np.asarray(filled.to_numpy()).astype(np.int64)


def machine_idle(
    timeline: Timeline, cpus: Collection[int], *, only: Collection[int] | None = None
) -> MachineIdle:
    """The machine's idle share.

    Parameters
    ----------
    cpus : those that are online by the topology
    only : of these and of those with events, the ones that are asked for; None: all. The window
        is the same for any of them.
    """
    table = timeline.cpus
    heard = np.flatnonzero(_column(table, "events") > 0)
    begins = _column(table, "begin")[heard]
    ids = set(cpus) | {int(c) for c in _column(table, "cpu")[heard]}
    if only is not None:
        ids &= set(only)
        heard = heard[np.isin(_column(table, "cpu")[heard], list(only))]
    n_all, n_known = len(ids), len(heard)
    span = timeline.last_ts - timeline.first_ts
    if not n_known or span <= 0:
        return MachineIdle(None, None, None, n_known, n_all - n_known, 0, False)
    idle, unknown = _column(table, "idle_ns")[heard], _column(table, "unknown_ns")[heard]
    told = span * n_known - int(unknown.sum())
    if told <= 0:
        # Switches of some tasks only: no time of any CPU is known.
        return MachineIdle(None, None, None, n_known, n_all - n_known, 0, False)
    lo = float(idle.sum()) / (span * n_all)
    hi = (float(idle.sum() + unknown.sum()) + span * (n_all - n_known)) / (span * n_all)
    begin = int(begins.max())
    common = timeline.first_ts < begin < timeline.last_ts
    window = timeline.last_ts - begin if common else span
    if common:
        cpu, start, end = gap_bounds(timeline)
        mine = np.isin(cpu, heard)
        start, end = start[mine], end[mine]
        inside = int(np.maximum(end - np.maximum(start, begin), 0).sum())
        # Before its begin a CPU is unknown by itself; what more is unknown was lost on the way.
        late = int((_column(table, "begin")[heard] - timeline.first_ts).sum())
        holes = max(int(unknown.sum()) - late, 0)
        part = inside / max(window * n_known - holes, 1)
    else:
        part = float(idle.sum()) / told
    return MachineIdle(min(part, 1.0), lo, min(hi, 1.0), n_known, n_all - n_known, window, common)


def gap_bounds(timeline: Timeline) -> tuple[_I64, _I64, _I64]:
    """(cpu, start, end) of the idle gaps, int64 ns; open ends are those of the CPU's data."""
    gaps, cpus = timeline.idle_gaps, timeline.cpus
    cpu = _column(gaps, "cpu", -1)
    start, end = _column(gaps, "start"), _column(gaps, "end")  # copies: astype made them
    begin = _column(cpus, "begin")
    begin = np.where(begin == NULL_I64, timeline.first_ts, begin)
    # An open end is the window's only where nothing else of its CPU lies beyond; else it was
    # left open by a loss or a repair, and how long it lasted is not known.
    busy_from, busy_to = _busy_ends(timeline, len(begin))
    rows = np.arange(len(cpu), dtype=np.int32)
    first, last = np.full(len(begin), len(cpu)), np.full(len(begin), -1)
    # Of several values for one CPU the one that is written last stays.
    first[cpu[::-1]] = rows[::-1]
    last[cpu] = rows
    some = np.flatnonzero((start == NULL_I64) | (end == NULL_I64))
    c, a, b = cpu[some], start[some], end[some]
    at_begin = (some == first[c]) & ((b == NULL_I64) | (b <= busy_from[c]))
    at_end = (some == last[c]) & ((a == NULL_I64) | (a >= busy_to[c]))
    known_start = np.where(a != NULL_I64, a, np.where(at_begin, begin[c], b))
    known_end = np.where(b != NULL_I64, b, np.where(at_end, timeline.last_ts, known_start))
    start[some] = np.where(known_start == NULL_I64, known_end, known_start)
    end[some] = known_end
    return cpu, start, np.maximum(end, start, out=end)


def _busy_ends(timeline: Timeline, n: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Per CPU, the first and the last switch of which a slice tells."""
    lo, hi = np.full(n, np.iinfo(np.int64).max), np.full(n, NULL_I64)
    for slices in timeline.rows.chunks("slices", ("cpu", "start", "end")):
        cpu = _column(slices, "cpu", -1)
        for name in ("start", "end"):
            at = _column(slices, name)
            told = (at != NULL_I64) & (cpu >= 0)
            np.minimum.at(lo, cpu[told], at[told])
            np.maximum.at(hi, cpu[told], at[told])
    return lo, hi
