"""Option TIME_SHIFT: what makes times of the host of those that a guest recorded.

While a guest and its host were recorded together, their clocks were compared again and again, for
each CPU of the guest. Between two such samples the host's time is

    (guest's time * scaling >> fraction) + offset

of the earlier sample; with the flag INTERPOLATE the offset grows evenly to that of the later one.
Before the first sample and behind the last one the nearest two hold (trace-cmd:
lib/trace-cmd/trace-input.c, timestamp_host_sync() and timestamp_correction_calc()).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from traceana.columns import EventColumns, NameChange
from traceana.parsers.trace_dat_parts import Cursor

__all__ = ["TimeShift", "parse_time_shift", "reordered", "scaled"]

INTERPOLATE = 1
_MAX = 1 << 62


def scaled(ts: npt.NDArray[np.int64], mult: int, shift: int) -> npt.NDArray[np.int64]:
    """``ts * mult >> shift`` of times as they are in the file, without losing a bit between.

    0 <= mult < 2^64, 0 <= shift < 64; what is beyond 64 bits is cut off.
    """
    if mult >= 1 << 32:
        exact = [((t % (1 << 64)) * mult >> shift) % (1 << 64) for t in ts.tolist()]
        return np.array(exact, np.uint64).astype(np.int64)
    factor, by = np.uint64(mult), np.uint64(shift)
    raw, low = ts.astype(np.uint64), np.uint64(0xFFFFFFFF)
    # 64 × 32 bits do not fit: the halves are multiplied each for itself.
    high_part = (raw >> np.uint64(32)) * factor
    low_part = (raw & low) * factor
    if shift <= 32:
        ns = (high_part << (np.uint64(32) - by)) + (low_part >> by)
    else:
        ns = (high_part + (low_part >> np.uint64(32))) >> (by - np.uint64(32))
    return ns.astype(np.int64)


@dataclass(frozen=True, slots=True)
class TimeShift:
    """The samples of each CPU: rows (time, offset, scaling, fraction), by time, each time once."""

    peer: int
    interpolate: bool
    samples: list[list[tuple[int, int, int, int]]]

    @property
    def count(self) -> int:
        return sum(map(len, self.samples))

    def of_cpu(self, ts: npt.NDArray[np.int64], cpu: int) -> npt.NDArray[np.int64]:
        """Times of one CPU, shifted; of a CPU without samples as they are."""
        if not 0 <= cpu < len(self.samples) or not self.samples[cpu]:
            return ts
        rows = self.samples[cpu]
        starts = np.array([r[0] for r in rows[1:-1]], np.int64)
        piece = np.searchsorted(starts, ts, side="right")
        out = np.empty_like(ts)
        for i in np.unique(piece).tolist():
            here = piece == i
            out[here] = self._between(ts[here], rows[i], rows[min(i + 1, len(rows) - 1)])
        return out

    def _between(
        self,
        ts: npt.NDArray[np.int64],
        first: tuple[int, int, int, int],
        second: tuple[int, int, int, int],
    ) -> npt.NDArray[np.int64]:
        time, offset, scaling, fraction = first
        shift: npt.NDArray[np.int64] | np.int64 = np.int64(offset)
        delta, growth = second[0] - time, second[1] - offset
        if self.interpolate and delta > 0:
            part = (ts - np.int64(time)) * np.int64(growth) + np.int64(delta // 2)
            # C divides toward zero.
            shift = shift + np.sign(part) * (np.abs(part) // np.int64(delta))
        base = ts if (scaling, fraction) == (1, 0) else scaled(ts, scaling, fraction)
        return base + shift

    def apply(
        self, ts: npt.NDArray[np.int64], cpus: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.int64]:
        """Each time shifted as its CPU's are."""
        out = ts.copy()
        for cpu in np.unique(cpus).tolist():
            here = cpus == cpu
            out[here] = self.of_cpu(ts[here], cpu)
        return out

    def earliest(self, time: int, cpus: list[int]) -> int:
        """Where what comes at ``time`` or later can come at the earliest, on any of the CPUs."""
        at = np.array([time], np.int64)
        return min((int(self.of_cpu(at, cpu)[0]) for cpu in cpus), default=time)


def parse_time_shift(data: bytes, *, big: bool) -> TimeShift:
    """Read the option.

    Raises
    ------
    CutError
        It is shorter than it says, or holds numbers that cannot be.
    """
    cur = Cursor(memoryview(data), big=big, what="the option TIME_SHIFT")
    peer, flags, cpus = cur.number(8), cur.number(4), cur.number(4)
    if cpus * 4 > cur.end - cur.at:
        raise cur.cut()
    tables = []
    for _ in range(cpus):
        n = cur.number(4)
        if n * 24 > cur.end - cur.at:
            raise cur.cut()
        times = [cur.number(8) for _ in range(n)]
        offsets = [cur.number(8) for _ in range(n)]
        scalings = [cur.number(8) for _ in range(n)]
        tables.append((times, [o - (o >> 63 << 64) for o in offsets], scalings))
    samples = []
    for times, offsets, scalings in tables:
        # Files of older versions end before the fractions.
        there = len(times) * 8 <= cur.end - cur.at and cur.at < cur.end
        fractions = [cur.number(8) for _ in times] if there else [0] * len(times)
        rows: dict[int, tuple[int, int, int, int]] = {}
        for row in sorted(zip(times, offsets, scalings, fractions, strict=True)):
            if row[0] >= _MAX or abs(row[1]) >= _MAX or row[3] >= 64:
                raise cur.cut()
            rows.setdefault(row[0], row)
        samples.append(list(rows.values()))
    return TimeShift(peer, bool(flags & INTERPOLATE), samples)


def _renamed(
    name: NameChange, raw: npt.NDArray[np.int64], new: npt.NDArray[np.int64], rows: EventColumns
) -> NameChange:
    """A name at the shifted time of the row that told it: names do not say on which CPU."""
    place = None
    for i in np.flatnonzero(raw == name.ts).tolist():
        told = name.pid in (int(rows.subject[i]), int(rows.other[i]))
        if place is None or told:
            place = i
        if told:
            break
    return name if place is None else replace(name, ts=int(new[place]))


def reordered(
    chunks: Iterator[tuple[EventColumns, list[NameChange], int]], shift: TimeShift, cpus: list[int]
) -> Iterator[tuple[EventColumns, list[NameChange], int]]:
    """Shift the times of chunks (in the order of their own time), and put them in order again.

    CPUs may be shifted each by another amount: what a later chunk may come before is kept back.
    """
    held = EventColumns.empty(0)
    late: list[NameChange] = []
    counted = 0
    for columns, names, losses in chunks:
        raw = columns.ts.copy()
        new = shift.apply(raw, columns.cpu)
        late += [_renamed(n, raw, new, columns) for n in names]
        columns.ts[:] = new
        limit = shift.earliest(int(raw.max()), cpus)
        both = EventColumns.concat([held, columns.take(slice(None))])
        both = both.take(np.argsort(both.ts, kind="stable"))
        end = int(np.searchsorted(both.ts, limit, side="left"))
        counted += losses
        held = both.take(np.arange(end, len(both)))
        late.sort(key=lambda n: n.ts or 0)
        said = [n for n in late if (n.ts or 0) < limit]
        late = late[len(said) :]
        if end:
            yield both.take(slice(0, end)), said, counted
            counted = 0
        else:
            late = said + late
    if len(held):
        yield held, late, counted
