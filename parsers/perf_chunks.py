"""Rows of a perf.data to chunks of one size.

The rows come in small batches, so that what is touched of one stays in the caches; a chunk is
larger, because making one costs the same whatever its size is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana.columns import Chunk, EventColumns, NameChange
from traceana.parsers.payload import Layouts, PayloadDecoder
from traceana.parsers.perf_records import Rows, Scan

__all__ = ["CHUNK_ROWS", "ChunkMaker"]

#: Rows of one chunk at most.
CHUNK_ROWS = 1 << 18


class ChunkMaker(PayloadDecoder):
    """Decodes the batches of a scan into chunks; see :class:`perf_records.Sink`, too.

    Parameters
    ----------
    buf, layouts    as PayloadDecoder takes them
    rows : int
        Rows of one chunk at most.
    """

    #: Where in the file, not in a buffer, the first payload was that is too short.
    place: int | None = None

    def __init__(
        self, buf: npt.NDArray[np.uint8], layouts: Layouts, *, rows: int = CHUNK_ROWS
    ) -> None:
        super().__init__(buf, layouts)
        self._most = rows
        self._columns: EventColumns | None = None
        self._names: list[NameChange] = []

    @property
    def first_short(self) -> int:
        return super().first_short if self.place is None else self.place

    def _room(self) -> EventColumns:
        if self._columns is None:
            self._columns, self._names = self.begin(self._most), []
        return self._columns

    def room(self) -> tuple[Any, ...]:
        """The last arguments of ``_perf_chunk_kernels.take_rows``."""
        columns = self._room()
        return columns.arrays(), self._result, self.arguments(columns)

    def settle(self, scan: Scan) -> None:
        """Take over what of the last rows lies in the scan's current buffer only."""
        self.drain(self._names)
        if self.short and self.place is None:
            self.place = scan.file_offset(self.first_short)

    def add(self, batch: Rows, scan: Scan) -> Iterator[tuple[Chunk, int]]:
        """Decode a batch; gives each chunk that is full, and the time up to which it reaches."""
        self.rebase(batch.buf)
        order, done = batch.order, 0
        while done < len(order):
            columns = self._room()
            part = order[done : done + self._most - self.made]
            done += len(part)
            self.fill(
                columns, self.made, batch.ts, batch.cpu, batch.off, batch.length, batch.row, part,
                self._names,
            )  # fmt: skip
            self.settle(scan)
            if self.made == self._most:
                yield from self.rest()
        if self.made == self._most:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[Chunk, int]]:
        """What is decoded and not given yet."""
        columns, made = self._columns, self.made
        if columns is not None:
            self._columns = None
            until = int(columns.ts[made - 1]) if made else 0
            if made < self._most:
                columns = columns.take(slice(0, made))
            yield Chunk(columns, self._names), until
