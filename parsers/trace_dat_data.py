"""The pages of a trace.dat buffer: as they lie in the file, or unpacked piece by piece.

Compressed data is a run of chunks for each CPU. They are unpacked shortly before the walk over the
pages comes to them, by threads beside it, into room that is used again: neither memory nor disk
is needed for the whole.
"""

from __future__ import annotations

import lzma
import os
import threading
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
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
from traceana.parsers.trace_dat_parts import Buffer, TextPart, TraceFile

__all__ = ["PackedPages", "Pages", "decompressor", "load_pages", "load_text"]

#: Larger is no capture but a bomb, or a damaged size.
MAX_UNPACKED = 64 << 30
#: trace-cmd packs ten pages at a time; a page has 64 KiB at most, a sub-buffer some MB.
MAX_CHUNK = 64 << 20
#: Room for the unpacked pages of all CPUs together.
ARENA = 2 << 20
#: The dictionary of lzma's highest level needs less.
_LZMA_MEMORY = 256 << 20
#: A text of ftrace is no larger than the ring it is printed from, a few hundred MB.
MAX_TEXT = 4 << 30
#: Bytes before each slot: a payload must not lie at the very front of a buffer.
_FRONT = 64


def decompressor(name: str) -> Callable[[memoryview, int], bytes]:
    """The function that unpacks one chunk of a compressor: ``zstd``, ``zlib`` or ``lzma``.

    It takes the packed bytes and the unpacked size, and raises ValueError when the data is
    damaged or has another size.
    """
    if name == "zstd":
        import zstandard

        engine = zstandard.ZstdDecompressor()

        def unpack(data: memoryview, size: int) -> bytes:
            try:
                # A frame may lack its content size (-1): then the declared one bounds the output.
                # Where it has one, so much would be allocated at once.
                told = zstandard.frame_content_size(data)
                if told not in (-1, size):
                    raise ValueError(f"unpacks to {told} bytes, {size} declared")
                return engine.decompress(data, max_output_size=size)
            except zstandard.ZstdError as error:
                raise ValueError(str(error)) from error

    elif name == "lzma":

        def unpack(data: memoryview, size: int) -> bytes:
            try:
                engine = lzma.LZMADecompressor(lzma.FORMAT_AUTO, memlimit=_LZMA_MEMORY)
                return engine.decompress(data, size + 1)
            except lzma.LZMAError as error:
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


#: Groups of chunks of each CPU that are unpacked ahead of the walk.
_AHEAD = 1

_engines = threading.local()


@cache
def _workers() -> ThreadPoolExecutor:
    """Threads that unpack (what unpacks lets go of the interpreter's lock, as all kernels do)."""
    return ThreadPoolExecutor(2, thread_name_prefix="traceana-unpack")


# A child has none of the threads of its parent.
os.register_at_fork(after_in_child=_workers.cache_clear)


def _grouped(chunks: list[Chunk], size: int) -> list[list[Chunk]]:
    """The chunks in groups that are unpacked at one go, of some more than ``size`` bytes."""
    groups: list[list[Chunk]] = []
    room = 0
    for chunk in chunks:
        if room <= 0:
            groups.append([])
            room = size
        groups[-1].append(chunk)
        room -= chunk.raw
    return groups


def _raw(group: list[Chunk]) -> int:
    return sum(c.raw for c in group)


def _unpack_group(
    file: memoryview, group: list[Chunk], compression: str
) -> tuple[list[bytes], str | None]:
    """The unpacked chunks up to the first one that is damaged, and what is wrong with that."""
    unpack = getattr(_engines, compression, None)
    if unpack is None:
        unpack = decompressor(compression)
        setattr(_engines, compression, unpack)
    out: list[bytes] = []
    for chunk in group:
        try:
            out.append(unpack(file[chunk.at : chunk.at + chunk.packed], chunk.raw))
        except ValueError as error:
            return out, f"offset {chunk.at:#x}: cannot be unpacked: {error}"
    return out, None


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
        self._compression = compression
        self._page = page
        self._page_size = page_size
        self._order = "big" if big_endian else "little"
        self._cpus = list(chunks)
        self._want = max(ARENA // max(1, len(chunks)), 8 * page_size)
        self._groups = [_grouped(part, self._want) for part in chunks.values()]
        #: By CPU: the group that comes next, and those behind it that are being unpacked.
        self._next = [0] * len(chunks)
        self._ahead: list[deque[Future[tuple[list[bytes], str | None]]]] = [deque() for _ in chunks]
        self._total = sum(c.raw for part in chunks.values() for c in part)
        self._threads = self._total > ARENA
        #: Where each CPU's slot begins in the arena; behind the last its end.
        self._slots = [_FRONT]
        for part in self._groups:
            # Behind what is wanted there may be one group more and the page that is being read.
            biggest = max(map(_raw, part), default=0)
            room = max(self._want, biggest) + biggest + 2 * page_size
            self._slots.append(self._slots[-1] + min(room, sum(map(_raw, part))) + _FRONT)
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
        return self._total

    def _more(self, index: int) -> bool:
        return self._next[index] < len(self._groups[index])

    def _start_unpacking(self, index: int) -> None:
        """See to it that the groups that come next are being unpacked."""
        ahead, groups = self._ahead[index], self._groups[index]
        first = self._next[index] + len(ahead)
        for group in groups[first : self._next[index] + _AHEAD]:
            try:
                work = _workers().submit(_unpack_group, self._file, group, self._compression)
            except RuntimeError:  # no thread can be started
                self._threads = False
                return
            ahead.append(work)

    def _unpacked(self, index: int) -> tuple[list[bytes], str | None]:
        """The content of the group that comes next."""
        ahead = self._ahead[index]
        if ahead:
            return ahead.popleft().result()
        return _unpack_group(self._file, self._groups[index][self._next[index]], self._compression)

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
        for index in range(len(self._groups) if self._threads else 0):
            self._start_unpacking(index)
        for index in range(len(self._groups)):
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
            size = _raw(self._groups[index][self._next[index]])
            if loaded - front >= max(self._want, size) or loaded + size > end:
                break
            pieces, damage = self._unpacked(index)
            self._next[index] += 1
            for piece in pieces:
                self._arena[loaded : loaded + len(piece)] = np.frombuffer(piece, np.uint8)
                loaded += len(piece)
            if damage is not None:
                cpu = self._cpus[index]
                self.cut(cpu, f"cpu {cpu}, {damage}")
                self._next[index] = len(self._groups[index])
                self._ahead[index].clear()
            elif self._threads:
                self._start_unpacking(index)
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


def _run(view: memoryview, start: int, end: int, order: Any) -> tuple[list[Chunk], int, int]:
    """A run of chunks: those that are whole, how many it says there are (-1), where it stopped."""
    at = start + 4
    count = int.from_bytes(view[start:at], order) if at <= end else -1
    chunks: list[Chunk] = []
    while len(chunks) < count and at + 8 <= end:
        packed = int.from_bytes(view[at : at + 4], order)
        raw = int.from_bytes(view[at + 4 : at + 8], order)
        if packed > end - at - 8 or raw > MAX_CHUNK:
            break
        chunks.append(Chunk(at + 8, packed, raw))
        at += 8 + packed
    return chunks, count, at


def load_text(
    path: Path, buf: npt.NDArray[np.uint8], file: TraceFile, part: TextPart
) -> tuple[memoryview | bytes, str | None]:
    """The text of a latency tracer, and in words where it is cut.

    Raises
    ------
    FormatError
        The unpacked size is absurd.
    """
    view = memoryview(buf)  # type: ignore[arg-type]
    end = len(view) if part.size < 0 else min(len(view), part.at + part.size)
    cut = f"offset {end:#x}: the text is cut" if part.at + part.size > end else None
    if not part.compressed:
        return view[part.at : end], cut
    chunks, count, at = _run(view, part.at, end, "big" if file.big_endian else "little")
    if sum(c.raw for c in chunks) > MAX_TEXT:
        raise FormatError(path, "its text unpacks to more than 4 GiB: no such text can be")
    if len(chunks) != count:
        cut = f"offset {at:#x}: {len(chunks)} of {max(count, 0)} chunks of the text are whole"
    unpack, out = decompressor(file.compression), []
    for chunk in chunks:
        try:
            out.append(unpack(view[chunk.at : chunk.at + chunk.packed], chunk.raw))
        except ValueError as error:
            cut = f"offset {chunk.at:#x}: the text cannot be unpacked: {error}"
            break
    return b"".join(out), cut


def _heads(pages: Pages, buffer: Buffer, big: bool, path: Path) -> dict[int, list[Chunk]]:
    """The whole chunks of each CPU, found by their heads; nothing is unpacked yet."""
    view = memoryview(pages.buf)  # type: ignore[arg-type]
    out: dict[int, list[Chunk]] = {}
    total = 0
    for cpu in buffer.cpus:
        if not cpu.size:
            continue
        # The declared size is without the count.
        end = min(len(view), cpu.offset + 4 + cpu.size)
        chunks, count, at = _run(view, cpu.offset, end, "big" if big else "little")
        total += sum(c.raw for c in chunks)
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
