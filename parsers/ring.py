"""Drives the walk over the ring-buffer pages of all CPUs in rounds of bounded size.

Used for every container of raw pages (trace.dat v6 and v7). A round takes of every CPU the
events before a limit in time, chosen from the stamps of the next pages, so the memory needed
does not depend on the length of the capture.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from traceana.parsers import _ring_kernels as kernels
from traceana.parsers._merge_kernels import merge
from traceana.parsers.formats import HeaderPage

__all__ = ["CpuData", "PageError", "PageSource", "RingRows", "RingWalk"]

#: Bytes of pages a round takes: small enough to stay in a shared cache between the walk and the
#: decoding of what it found, large enough to hide the cost of a call.
ROUND_BYTES = 1 << 20


#: Bytes of a mapped file that have been walked over and may still count as memory of the process,
#: of all CPUs together; and what a CPU gives back at least at one go.
_MOST_MAPPED = 64 << 20
_LEAST_BACK = 64 << 10


def mapping_of(buf: npt.NDArray[np.uint8]) -> mmap.mmap | None:
    """The mapping of a file that all of an array is a view of, from its front; None: of no such."""
    base: Any = buf
    while True:
        if isinstance(base, mmap.mmap):
            usable = hasattr(mmap, "MADV_DONTNEED") and len(base) == len(buf)
            return base if usable else None
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
        if base is None:
            return None


@dataclass(frozen=True, slots=True)
class CpuData:
    """Where one CPU's pages lie in the buffer: bytes [start, end)."""

    cpu: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PageError:
    """Damage met on a page: ``code`` of _ring_kernels, place, the number read, bytes left out."""

    code: int
    cpu: int
    offset: int
    value: int
    lost: int


@dataclass(frozen=True, slots=True)
class RingRows:
    """One round: the wanted events of all CPUs, and the order in which they follow each other."""

    ts: npt.NDArray[np.int64]
    cpu: npt.NDArray[np.int32]
    off: npt.NDArray[np.int64]
    length: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    order: npt.NDArray[np.int64]


class PageSource(Protocol):
    """Pages that are not all in the buffer at once (compressed ones).

    Its ``buf`` stays the same array; ``refill`` changes what lies in it and moves the places in
    ``state`` accordingly.
    """

    def refill(self, state: npt.NDArray[np.int64], stuck: int) -> int:
        """Bring more pages; returns the time before which no more events are to come."""
        ...

    def locate(self, index: int, offset: int) -> int:
        """The lasting name of a place in the buffer that holds good for this round only."""
        ...

    def total(self) -> int:
        """Bytes of all pages."""
        ...


class RingWalk:
    """One pass over the pages of some CPUs.

    Parameters
    ----------
    buf : uint8[:], read-only
    data : sequence of CpuData
        In the order in which ties in time are resolved (by CPU).
    page : HeaderPage
        Where stamp, commit word and data lie on a page.
    page_size : int
    row_of_id : int32[65536]
        Which event ids are wanted (row >= 0).
    type_field : tuple
        Offset and size of common_type.
    big_endian : bool
    begins : frozenset of int
        CPUs whose ring wrapped: a row BEGIN goes before their first event.
    untold : frozenset of int
        CPUs of which nobody tells whether their ring wrapped. When the page of their first event
        says that events were lost before it, that is taken for a late begin, too: what was lost
        lies before all there is. Of all other CPUs (no statistics of a wrapped ring, though
        statistics there are) it is a hole in the recording: a row LOST goes before the first
        event.
    source : PageSource, optional
        Brings pages into the buffer during the walk; None: they are all there.

    Attributes
    ----------
    counts : int64[65536]
        Events by id so far.
    cpus : int32[k]
    state : int64[k, N_STATE]
        How far the walk is, see _ring_kernels.
    errors : list of PageError
        The first of the damaged places; ``error_count`` counts all.
    """

    def __init__(
        self,
        buf: npt.NDArray[np.uint8],
        data: Sequence[CpuData],
        page: HeaderPage,
        *,
        page_size: int,
        row_of_id: npt.NDArray[np.int32],
        type_field: tuple[int, int],
        big_endian: bool = False,
        begins: frozenset[int] = frozenset(),
        untold: frozenset[int] = frozenset(),
        source: PageSource | None = None,
    ) -> None:
        self.source = source
        self._buf = buf
        self._map = mapping_of(buf)
        self._big = 1 if big_endian else None
        self.cpus = np.array([d.cpu for d in data], np.int32)
        self._row_of_id = row_of_id
        self.counts = np.zeros(1 << 16, np.int64)
        self._geometry = np.array(
            [
                page_size,
                page.timestamp_offset,
                page.commit_offset,
                page.commit_size,
                page.data_offset,
                *type_field,
            ],
            np.int64,
        )
        self.state = np.zeros((len(data), kernels.N_STATE), np.int64)
        self.state[:, kernels.NEXT] = [d.start for d in data]
        self.state[:, kernels.END] = [d.end for d in data]
        self.state[:, kernels.BEGIN] = [
            kernels.LATE if d.cpu in begins else kernels.LATE_IF_LOST if d.cpu in untold else 0
            for d in data
        ]
        self._start = self.state[:, kernels.NEXT].copy()
        self._given_back = self._start.copy()
        self._errors = np.zeros((64, 5), np.int64)
        self._n_errors = np.zeros(1, np.int64)
        self._settled = 0

    def _column(self, cell: int) -> list[int]:
        return [int(v) for v in self.state[:, cell]]

    @property
    def events(self) -> dict[int, int]:
        """Events per CPU so far, of all ids."""
        return dict(zip(self.cpus.tolist(), self._column(kernels.EVENTS), strict=True))

    @property
    def steps_back(self) -> dict[int, int]:
        """How often time stepped back on a CPU."""
        return dict(zip(self.cpus.tolist(), self._column(kernels.BACK), strict=True))

    @property
    def lost_at_start(self) -> frozenset[int]:
        """CPUs with a late begin whose first page says that events were lost before it."""
        flagged = self.state[:, kernels.LOST_AT_START] != 0
        return frozenset(self.cpus[flagged].tolist())

    @property
    def total_bytes(self) -> int:
        if self.source is not None:
            return self.source.total()
        return int(self.state[:, kernels.END].sum() - self._start.sum())

    @property
    def done_bytes(self) -> int:
        """Bytes of pages that have been begun."""
        places = np.minimum(self.state[:, kernels.NEXT], self.state[:, kernels.END]).tolist()
        if self.source is not None:
            return sum(self.source.locate(c, at) for c, at in enumerate(places))
        return int(sum(places) - self._start.sum())

    @property
    def error_count(self) -> int:
        return int(self._n_errors[0])

    @property
    def errors(self) -> list[PageError]:
        return [
            PageError(code, int(self.cpus[c]), at, value, lost)
            for code, c, at, value, lost in self._errors[: self.error_count].tolist()
        ]

    @property
    def page_size(self) -> int:
        return int(self._geometry[kernels.PAGE_SIZE])

    def scanned(self) -> tuple[Any, ...]:
        """The arguments of kernels that walk: buf, big, state, cpus, geometry, rows, counts."""
        return (
            self._buf, self._big, self.state, self.cpus, self._geometry, self._row_of_id,
            self.counts,
        )  # fmt: skip

    def noted(self) -> tuple[Any, ...]:
        """Where kernels note damage: errors, n_errors."""
        return self._errors, self._n_errors

    def settle_errors(self) -> None:
        """Turn places that hold good for a round only into lasting ones."""
        if self.source is not None:
            for error in self._errors[self._settled : self.error_count]:
                error[2] = self.source.locate(int(error[1]), int(error[2]))
        self._settled = self.error_count

    def give_back(self, *, everything: bool = False) -> None:
        """Give back the memory of pages of a mapped file that have been walked over."""
        if self._map is None or self.source is not None:
            return
        if everything:
            self._map.madvise(mmap.MADV_DONTNEED)
            return
        step = max(_LEAST_BACK, _MOST_MAPPED // len(self.cpus))
        ends = self.state[:, kernels.NEXT] - self.page_size
        for c in np.flatnonzero(ends - self._given_back >= step).tolist():
            start = -(-int(self._given_back[c]) // mmap.PAGESIZE) * mmap.PAGESIZE
            end = int(ends[c]) // mmap.PAGESIZE * mmap.PAGESIZE
            if end > start:
                self._map.madvise(mmap.MADV_DONTNEED, start, end - start)
            self._given_back[c] = end

    def rounds(self, *, round_bytes: int = ROUND_BYTES) -> Iterator[RingRows]:
        """The wanted events, round by round; the arrays are used again for the next one."""
        k = len(self.cpus)
        if not k:
            return
        seg_start, seg_end = np.zeros(k, np.int64), np.zeros(k, np.int64)
        spare = np.zeros(k, np.int64), np.zeros(k, np.int64)
        pages = max(1, round_bytes // int(self._geometry[kernels.PAGE_SIZE]))
        room = 1 << 12
        key, ts, off, order = (np.empty(room, np.int64) for _ in range(4))
        cpu, length, row = (np.empty(room, np.int32) for _ in range(3))
        stuck = 0
        while True:
            before = self.progress()
            limit = self._limit(pages << min(stuck, 40), stuck, spare)
            first, resumed, n = 0, 0, 0
            while True:
                first, n = kernels.scan(
                    self._buf, self._big, self.state, self.cpus, limit, first, resumed,
                    self._geometry, self._row_of_id, self.counts, seg_start, seg_end,
                    key, ts, cpu, off, length, row, n, self._errors, self._n_errors,
                )  # fmt: skip
                if first == k:
                    break
                resumed = 1
                key, ts, off = (np.concatenate([a, np.empty_like(a)]) for a in (key, ts, off))
                cpu, length, row = (
                    np.concatenate([a, np.empty_like(a)]) for a in (cpu, length, row)
                )
            self.settle_errors()
            if n:
                if len(order) < n:
                    order = np.empty(len(ts), np.int64)
                merge(key, seg_start, seg_end, order)
                yield RingRows(ts, cpu, off, length, row, order[:n])
            if limit == kernels.I64_MAX:
                return
            # All stamps alike, or far from their events: take more at once until it moves.
            stuck = stuck + 1 if self.progress() == before else 0

    def progress(self) -> tuple[int, int]:
        """Changes whenever the walk comes forward."""
        moved = self.state[:, [kernels.NEXT, kernels.POS]].sum()
        return int(moved), int(self.state[:, kernels.EVENTS].sum())

    def _limit(
        self, pages: int, stuck: int, spare: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
    ) -> int:
        """The time up to which the next round goes."""
        if self.source is not None:
            return self.source.refill(self.state, stuck)
        return int(
            kernels.next_limit(self._buf, self._big, self.state, self._geometry, pages, *spare)
        )
