"""The pages of a trace.dat buffer: as they lie in the file, or unpacked piece by piece.

Compressed data is a run of chunks for each CPU. They are unpacked as the walk over the pages
comes to them, into room that is used again, so neither memory nor disk is needed for the whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana.errors import FormatError
from traceana.issues import IssueLog
from traceana.parsers import _ring_kernels as kernels
from traceana.parsers.formats import HeaderPage
from traceana.parsers.payload import as_bytes
from traceana.parsers.ring import CpuData
from traceana.parsers.trace_dat_parts import Buffer, TraceFile

__all__ = ["PackedPages", "Pages", "decompressor", "load_pages"]

#: Larger is no capture but a bomb, or a damaged size.
MAX_UNPACKED = 64 << 30
#: trace-cmd packs ten pages at a time; a page has 64 KiB at most, a sub-buffer some MB.
MAX_CHUNK = 64 << 20
#: Room for the unpacked pages of all CPUs together.
ARENA = 2 << 20
#: Bytes before each slot: a payload must not lie at the very front of a buffer.
_FRONT = 64


def decompressor(name: str) -> Callable[[memoryview, int], bytes]:
    """The function that unpacks one chunk of trace-cmd's ``zstd`` or ``zlib`` compressor.

    It takes the packed bytes and the unpacked size, and raises ValueError when the data is
    damaged or has another size.
    """
    if name == "zstd":
        import zstandard

        engine = zstandard.ZstdDecompressor()

        def unpack(data: memoryview, size: int) -> bytes:
            try:
                # The frames may lack their content size: the declared one bounds the output.
                return engine.decompress(data, max_output_size=size)
            except zstandard.ZstdError as error:
                raise ValueError(str(error)) from error

    else:

        def unpack(data: memoryview, size: int) -> bytes:
            try:
                return zlib.decompressobj().decompress(data, size + 1)
            except zlib.error as error:
                raise ValueError(str(error)) from error

    def checked(data: memoryview, size: int) -> bytes:
        out = unpack(data, size)
        if len(out) != size:
            raise ValueError(f"unpacks to {len(out)} bytes, {size} declared")
        return out

    return checked


@dataclass(frozen=True, slots=True)
class Chunk:
    """A compressed chunk: where its packed bytes lie in the file, and both sizes."""

    at: int
    packed: int
    raw: int


@dataclass
class Pages:
    """Where the pages of each CPU lie in ``buf``: uncompressed, offsets are those of the file."""

    buf: npt.NDArray[np.uint8]
    data: list[CpuData]
    damaged: bool = False
    issues: IssueLog = field(default_factory=IssueLog)

    def cut(self, cpu: int, text: str) -> None:
        """Book damage of a CPU's data."""
        self.damaged = True
        self.issues.add("parse", "data_cut", text, cpu=cpu)

    def place(self, cpu: int, offset: int) -> str:
        """An offset in words."""
        return f"cpu {cpu}, offset {offset:#x}"


class PackedPages(Pages):
    """Pages that are unpacked as they are needed; a :class:`traceana.parsers.ring.PageSource`.

    Each CPU has a slot of the arena ``buf``. :meth:`refill` moves what is not read yet to the
    slot's front and unpacks more behind it.
    """

    def __init__(
        self,
        path: Path,
        file: memoryview,
        chunks: dict[int, list[Chunk]],
        compression: str,
        page: HeaderPage,
        *,
        page_size: int,
        big_endian: bool,
    ) -> None:
        self._file = file
        self._unpack = decompressor(compression)
        self._page = page
        self._page_size = page_size
        self._order = "big" if big_endian else "little"
        self._chunks = list(chunks.values())
        self._cpus = list(chunks)
        self._next = [0] * len(chunks)
        self._want = max(ARENA // max(1, len(chunks)), 8 * page_size)
        #: Where each CPU's slot begins in the arena; behind the last its end.
        self._slots = [_FRONT]
        for part in self._chunks:
            # Behind what is wanted there may be one chunk more and the page that is being read.
            biggest = max((c.raw for c in part), default=0)
            room = max(self._want, biggest) + biggest + 2 * page_size
            self._slots.append(self._slots[-1] + min(room, sum(c.raw for c in part)) + _FRONT)
        try:
            self._arena = np.empty(self._slots[-1], np.uint8)
        except MemoryError as error:
            raise FormatError(
                path, f"no memory to unpack {self._slots[-1]} bytes of pages at once"
            ) from error
        #: Where what has been unpacked ends in the arena, and what lies at its front.
        self._loaded = self._slots[:-1]
        self._base = [0] * len(chunks)
        super().__init__(
            as_bytes(self._arena),
            [CpuData(cpu, at, at) for cpu, at in zip(self._cpus, self._slots, strict=False)],
        )

    def place(self, cpu: int, offset: int) -> str:
        return f"cpu {cpu}, offset {offset:#x} of its unpacked data"

    def locate(self, index: int, offset: int) -> int:
        """An offset into the arena as offset into the CPU's unpacked data."""
        return offset - self._slots[index] + self._base[index]

    def total(self) -> int:
        """Bytes of all pages when unpacked."""
        return sum(c.raw for part in self._chunks for c in part)

    def _more(self, index: int) -> bool:
        return self._next[index] < len(self._chunks[index])

    def _number(self, at: int, size: int) -> int:
        return int.from_bytes(self._arena[at : at + size].tobytes(), self._order)  # type: ignore[arg-type]

    def _last_stamp(self, start: int, end: int) -> int:
        """The time of the last page in [start, end) that can be read; -1: none can."""
        head, low = self._page, 0
        if self._order == "big":
            low = head.commit_size - 4
        at = end - self._page_size
        while at >= start:
            commit = self._number(at + head.commit_offset + low, 4) & kernels.COMMIT_MASK
            stamp = self._number(at + head.timestamp_offset, 8)
            room = self._page_size - head.data_offset
            if commit <= room and stamp >> kernels.TIME_BITS == 0:
                return stamp
            at -= self._page_size
        return -1

    def refill(self, state: npt.NDArray[np.int64], stuck: int) -> int:
        """Unpack more for the CPUs that run out; returns the time up to which all is there.

        ``stuck`` counts how often the walk has not come forward since the last time.
        """
        limit = kernels.I64_MAX
        for index in range(len(self._chunks)):
            if not self._more(index):
                continue
            st = state[index]
            begun = st[kernels.POS] < st[kernels.STOP]
            keep = int(st[kernels.POS] if begun else st[kernels.NEXT])
            ahead = min(self._loaded[index] - keep, 2 * int(st[kernels.END] - st[kernels.NEXT]))
            if ahead < max(self._want // 2, 4 * self._page_size) or stuck:
                self._load(index, st, keep)
            if not self._more(index):
                continue
            start, end = int(st[kernels.NEXT]), int(st[kernels.END])
            head = int(st[kernels.KEY])
            if not begun and end - start >= self._page_size:
                head = max(head, self._number(start + self._page.timestamp_offset, 8))
            # Where all loaded pages have one time (a clock of jiffies) go at least past that:
            # what else has it comes later, which changes nothing but the order of ties.
            at_least = min(head + 1, kernels.I64_MAX - 1) + (1 << min(stuck, 60)) - 1
            limit = min(limit, max(self._last_stamp(start, end), at_least))
        return limit

    def _load(self, index: int, st: npt.NDArray[np.int64], keep: int) -> None:
        front, end = self._slots[index], self._slots[index + 1] - _FRONT
        loaded = self._loaded[index]
        shift = keep - front
        self._arena[front : front + loaded - keep] = self._arena[keep:loaded]
        self._base[index] += shift
        loaded -= shift
        st[kernels.NEXT] -= shift
        if st[kernels.POS] < st[kernels.STOP]:
            st[kernels.POS] -= shift
            st[kernels.STOP] -= shift
        while self._more(index):
            chunk = self._chunks[index][self._next[index]]
            if loaded - front >= max(self._want, chunk.raw) or loaded + chunk.raw > end:
                break
            self._next[index] += 1
            try:
                data = self._unpack(self._file[chunk.at : chunk.at + chunk.packed], chunk.raw)
            except ValueError as error:
                cpu = self._cpus[index]
                self.cut(cpu, f"cpu {cpu}, offset {chunk.at:#x}: cannot be unpacked: {error}")
                self._next[index] = len(self._chunks[index])
                break
            self._arena[loaded : loaded + chunk.raw] = np.frombuffer(data, np.uint8)
            loaded += chunk.raw
        self._loaded[index] = loaded
        start = int(st[kernels.NEXT])
        whole = (loaded - start) // self._page_size * self._page_size
        st[kernels.END] = start + whole if self._more(index) else loaded


def _clamp(pages: Pages, buffer: Buffer) -> None:
    """CPUs' data as declared, cut to what the file holds."""
    end = len(pages.buf)
    for cpu in buffer.cpus:
        if not cpu.size:
            continue
        have = max(0, min(cpu.size, end - cpu.offset))
        if have < cpu.size:
            pages.cut(
                cpu.cpu,
                f"cpu {cpu.cpu}, offset {min(cpu.offset, end):#x}: the file ends after {have} of "
                f"its {cpu.size} bytes: file cut?",
            )
        if have:
            pages.data.append(CpuData(cpu.cpu, cpu.offset, cpu.offset + have))


def _heads(pages: Pages, buffer: Buffer, big: bool, path: Path) -> dict[int, list[Chunk]]:
    """The whole chunks of each CPU, found by their heads; nothing is unpacked yet."""
    order: Any = "big" if big else "little"
    view = memoryview(pages.buf)  # type: ignore[arg-type]
    out: dict[int, list[Chunk]] = {}
    total = 0
    for cpu in buffer.cpus:
        if not cpu.size:
            continue
        # The declared size is without the count.
        end = min(len(view), cpu.offset + 4 + cpu.size)
        at = cpu.offset + 4
        count = int.from_bytes(view[cpu.offset : at], order) if at <= end else -1
        chunks: list[Chunk] = []
        while len(chunks) < count and at + 8 <= end:
            packed = int.from_bytes(view[at : at + 4], order)
            raw = int.from_bytes(view[at + 4 : at + 8], order)
            if packed > end - at - 8 or raw > MAX_CHUNK:
                break
            chunks.append(Chunk(at + 8, packed, raw))
            total += raw
            at += 8 + packed
        if len(chunks) != count:
            pages.cut(
                cpu.cpu,
                f"cpu {cpu.cpu}, offset {min(at, len(view)):#x}: {len(chunks)} of its "
                f"{'?' if count < 0 else count} compressed chunks are whole: file cut?",
            )
        out[cpu.cpu] = chunks
    if total > MAX_UNPACKED:
        raise FormatError(path, f"{total} bytes of pages when unpacked: more than 64 GiB cannot be")
    return out


def load_pages(
    path: Path, buf: npt.NDArray[np.uint8], file: TraceFile, buffer: Buffer
) -> Pages | PackedPages:
    """The pages of a buffer, for one walk over them.

    Raises
    ------
    FormatError
        The unpacked size is absurd.
    """
    pages = Pages(buf, [])
    if not buffer.compressed:
        _clamp(pages, buffer)
        return pages
    assert file.page is not None
    packed = PackedPages(
        path,
        memoryview(buf),  # type: ignore[arg-type]
        _heads(pages, buffer, file.big_endian, path),
        file.compression,
        file.page,
        page_size=buffer.page_size,
        big_endian=file.big_endian,
    )
    packed.damaged = pages.damaged
    packed.issues.extend(pages.issues)
    return packed
