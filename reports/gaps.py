"""The idle gaps as arrays, open ends closed at the ends of their CPU's data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceana.idle_time import gap_bounds
from traceana.reports.context import Context, column

__all__ = ["Gaps", "gap_arrays"]


@dataclass(frozen=True)
class Gaps:
    """Idle gaps as arrays (ns), open ends closed at the ends of the data."""

    cpu: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    llc_ns: npt.NDArray[np.int64]
    stuck_ns: npt.NDArray[np.int64]

    @property
    def length(self) -> npt.NDArray[np.int64]:
        return self.end - self.start

    @property
    def idle_ns(self) -> int:
        return int(self.length.sum())


def gap_arrays(ctx: Context) -> Gaps:
    """The idle gaps of the capture."""
    cpu, start, end = gap_bounds(ctx.tl)
    gaps = ctx.tl.idle_gaps
    waited = (column(gaps, n, 0) for n in ("waited_llc_ns", "waited_busy_llc_ns"))
    return Gaps(cpu, start, end, *waited)
