"""The idle gaps as arrays, open ends closed at the ends of their CPU's data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana.reports.context import NULL, Context, column

__all__ = ["Gaps", "gap_arrays"]


@dataclass(frozen=True)
class Gaps:
    """Idle gaps as arrays (ns), open ends closed at the ends of the data."""

    cpu: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    llc_ns: npt.NDArray[np.int64]
    any_ns: npt.NDArray[np.int64]
    stuck_ns: npt.NDArray[np.int64]

    @property
    def length(self) -> npt.NDArray[np.int64]:
        return self.end - self.start

    @property
    def idle_ns(self) -> int:
        return int(self.length.sum())


def gap_arrays(ctx: Context) -> Gaps:
    """The idle gaps of the capture."""
    cpu, start, end = _bounds(ctx)
    gaps = ctx.tl.idle_gaps
    waited = (column(gaps, n, 0) for n in ("waited_llc_ns", "waited_any_ns", "waited_busy_llc_ns"))
    return Gaps(cpu, start, end, *waited)


def _bounds(ctx: Context) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """(cpu, start, end) of the idle gaps, int64 ns; open ends are those of the CPU's data."""
    gaps, cpus = ctx.tl.idle_gaps, ctx.tl.cpus
    cpu = column(gaps, "cpu", -1)
    start, end = column(gaps, "start"), column(gaps, "end")
    begin = column(cpus, "begin")
    begin = np.where(begin == NULL, ctx.tl.first_ts, begin)
    # An open end is the window's only where nothing else of its CPU lies beyond; else it was
    # left open by a loss or a repair, and how long it lasted is not known.
    busy_from, busy_to = _busy_ends(ctx, len(begin))
    rows = np.arange(len(cpu))
    first, last = np.full(len(begin), len(cpu)), np.full(len(begin), -1)
    np.minimum.at(first, cpu, rows)
    np.maximum.at(last, cpu, rows)
    at_begin = (rows == first[cpu]) & ((end == NULL) | (end <= busy_from[cpu]))
    at_end = (rows == last[cpu]) & ((start == NULL) | (start >= busy_to[cpu]))
    known_start = np.where(start != NULL, start, np.where(at_begin, begin[cpu], end))
    known_end = np.where(end != NULL, end, np.where(at_end, ctx.tl.last_ts, known_start))
    known_start = np.where(known_start == NULL, known_end, known_start)
    return cpu, known_start, np.maximum(known_end, known_start)


def _busy_ends(ctx: Context, n: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Per CPU, the first and the last switch of which a slice tells."""
    slices = ctx.tl.slices
    cpu = column(slices, "cpu", -1)
    lo, hi = np.full(n, np.iinfo(np.int64).max), np.full(n, NULL)
    for name in ("start", "end"):
        at = column(slices, name)
        told = (at != NULL) & (cpu >= 0)
        np.minimum.at(lo, cpu[told], at[told])
        np.maximum.at(hi, cpu[told], at[told])
    return lo, hi
