"""From when to when each CPU's data goes, and what all CPUs' data have in common.

Rings that wrapped begin at different times: before its begin nothing is known of a CPU. Totals over
CPUs (idle share, wakeups a second) are therefore of the common window: from the latest begin to the
capture's end. Section 7.6 of the kernel semantics.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceana.columns import EventColumns
from traceana.schema import EventKind

__all__ = ["Coverage", "CpuWindow"]

_NEVER = np.iinfo(np.int64).min
#: CPU ids above this are not believed (a damaged file could ask for any amount of memory).
_CPU_LIMIT = 65536


@dataclass(frozen=True)
class CpuWindow:
    """The data of one CPU.

    ``begin_ns`` is where its data begins: the capture's first event, or, where the ring had wrapped
    (``late``), its own first. ``first_ns`` and ``last_ns`` are its first and last event.
    """

    cpu: int
    events: int
    begin_ns: int
    first_ns: int
    last_ns: int
    late: bool
    #: Places at which its events were lost.
    losses: int


class Coverage:
    """Collects the windows of all CPUs over the batches of a capture."""

    def __init__(self) -> None:
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        #: Events in the common window, by kind.
        self.counts: npt.NDArray[np.int64] = np.zeros(len(EventKind), np.int64)
        self._common: int | None = None
        self._events = np.zeros(0, np.int64)
        self._losses = np.zeros(0, np.int64)
        self._first = np.zeros(0, np.int64)
        self._last = np.zeros(0, np.int64)
        self._begin = np.zeros(0, np.int64)

    def _room(self, n: int) -> None:
        more = n - len(self._events)
        if more <= 0:
            return
        none = np.full(more, _NEVER, np.int64)
        zero = np.zeros(more, np.int64)
        self._events = np.concatenate([self._events, zero])
        self._losses = np.concatenate([self._losses, zero])
        self._first = np.concatenate([self._first, none])
        self._last = np.concatenate([self._last, none])
        self._begin = np.concatenate([self._begin, none])

    def feed(self, events: EventColumns) -> None:
        """Take the next batch, in the order of time."""
        kind = events.kind
        marks = kind >= EventKind.LOST
        # A mark may stand at a time that is none of the capture's.
        if marks.all():
            real, cpu, ts = events.take(slice(0, 0)), events.cpu[:0], events.ts[:0]
        elif marks.any():
            real = events.take(~marks)
            cpu, ts = real.cpu, real.ts
        else:
            real, cpu, ts = events, events.cpu, events.ts
        if len(ts):
            low, high = int(ts.min()), int(ts.max())
            self.first_ns = low if self.first_ns is None else min(self.first_ns, low)
            self.last_ns = high if self.last_ns is None else max(self.last_ns, high)
        known = (cpu >= 0) & (cpu < _CPU_LIMIT)
        if not known.all():
            cpu, ts = cpu[known], ts[known]
        if len(cpu):
            n = int(cpu.max()) + 1
            self._room(n)
            self._events[:n] += np.bincount(cpu, minlength=n)
            # Of equal places the last assignment stays.
            last = np.full(n, _NEVER, np.int64)
            last[cpu] = ts
            first = np.full(n, _NEVER, np.int64)
            first[cpu[::-1]] = ts[::-1]
            seen = first != _NEVER
            new = seen & (self._first[:n] == _NEVER)
            self._first[:n][new] = first[new]
            self._last[:n] = np.maximum(self._last[:n], last)
        begins = np.flatnonzero(kind == EventKind.BEGIN)
        if len(begins):
            self._begins(events, begins)
            late = real.ts >= (_NEVER if self._common is None else self._common)
            self.counts[:] = self._by_kind(real.kind[late])
        else:
            self.counts += self._by_kind(real.kind)
        for c in events.cpu[kind == EventKind.LOST].tolist():
            if 0 <= c < _CPU_LIMIT:
                self._room(c + 1)
                self._losses[c] += 1

    def _by_kind(self, kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        n = len(self.counts)
        # A store may hold numbers that are no kinds.
        return np.bincount(kinds, minlength=n)[:n]

    def _begins(self, events: EventColumns, rows: npt.NDArray[np.int64]) -> None:
        for row in rows.tolist():
            cpu, ts = int(events.cpu[row]), int(events.ts[row])
            if 0 <= cpu < _CPU_LIMIT:
                self._room(cpu + 1)
                self._begin[cpu] = ts
                self._common = ts if self._common is None else max(self._common, ts)

    def windows(self) -> list[CpuWindow]:
        """The windows of the CPUs that have an event."""
        return [
            CpuWindow(
                cpu=cpu,
                events=int(self._events[cpu]),
                begin_ns=int(self._begin[cpu]) if self._is_late(cpu) else self.first_ns or 0,
                first_ns=int(self._first[cpu]),
                last_ns=int(self._last[cpu]),
                late=self._is_late(cpu),
                losses=int(self._losses[cpu]),
            )
            for cpu in np.flatnonzero(self._events).tolist()
        ]

    def _is_late(self, cpu: int) -> bool:
        return int(self._begin[cpu]) > (self.first_ns or 0) and int(self._begin[cpu]) != _NEVER

    def common(self) -> tuple[int, int] | None:
        """Begin and end of what all CPUs' data have in common; None where that is nothing."""
        if self.first_ns is None or self.last_ns is None:
            return None
        begin = max([self.first_ns, *(w.begin_ns for w in self.windows())])
        return (begin, self.last_ns) if begin <= self.last_ns else None
