"""The pages of a trace.dat buffer: as they lie in the file, or unpacked piece by piece.

Compressed data is a run of chunks for each CPU. They are unpacked shortly before the walk over the
pages comes to them, by threads beside it, into room that is used again: neither memory nor disk
is needed for the whole.
"""

from __future__ import annotations

import lzma
import os
import struct
import threading
import zlib
from array import array
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
#: From this size on, what grows more than so many times is a bomb: pages that trace-cmd records are
#: full, and shrink to a third to a thirtieth.
BOMB_SIZE = 256 << 20
BOMB_RATIO = 200
#: trace-cmd packs ten pages at a time; a page has 64 KiB at most, a sub-buffer some MB.
MAX_CHUNK = 64 << 20
#: Room for the unpacked pages of all CPUs together.
ARENA = 8 << 20
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


def unpacker(name: str) -> Callable[[memoryview, memoryview], None]:
    """The function that unpacks one chunk of a compressor right to its place, filling that.

    It raises ValueError when the data is damaged or does not fill the place exactly.
    """
    if name == "zstd":
        import zstandard

        engine = zstandard.ZstdDecompressor()

        def unpack(data: memoryview, place: memoryview) -> None:
            size, at = len(place), 0
            try:
                told = zstandard.frame_content_size(data)
                if told not in (-1, size):
                    raise ValueError(f"unpacks to {told} bytes, {size} declared")
                reader = engine.stream_reader(data)
                while at < size:
                    n = reader.readinto(place[at:])
                    if n == 0:
                        raise ValueError(f"unpacks to {at} bytes, {size} declared")
                    at += n
                if told == -1 and reader.read(1):
                    raise ValueError(f"unpacks to more than the {size} bytes declared")
            except zstandard.ZstdError as error:
                raise ValueError(str(error)) from error

        return unpack

    whole = decompressor(name)

    def copy(data: memoryview, place: memoryview) -> None:
        place[:] = whole(data, len(place))

    return copy


#: A row per compressed chunk (int64): where its packed bytes lie in the file, and both sizes.
Chunks = npt.NDArray[np.int64]
AT, PACKED, RAW = range(3)

_engines = threading.local()


@cache
def _workers() -> ThreadPoolExecutor:
    """Threads that unpack (what unpacks lets go of the interpreter's lock, as all kernels do)."""
    return ThreadPoolExecutor(2, thread_name_prefix="traceana-unpack")


# A child has none of the threads of its parent.
os.register_at_fork(after_in_child=_workers.cache_clear)


def _grouped(chunks: Chunks, size: int) -> tuple[list[int], list[int]]:
    """The chunks in groups that are unpacked at one go, of some more than ``size`` bytes.

    Returns the first chunk of each group (and behind the last one), and the groups' sizes.
    """
    ends = np.cumsum(chunks[:, RAW])
    firsts, sizes, done = [0], [], 0
    while firsts[-1] < len(chunks):
        last = min(int(np.searchsorted(ends, done + size)), len(chunks) - 1)
        firsts.append(last + 1)
        sizes.append(int(ends[last]) - done)
        done = int(ends[last])
    return firsts, sizes


def _unpack_group(
    file: memoryview, group: list[list[int]], compression: str, place: memoryview
) -> tuple[int, str | None]:
    """Unpack to ``place``; returns the bytes before the first damaged chunk, and what it has."""
    unpack = getattr(_engines, compression, None)
    if unpack is None:
        unpack = unpacker(compression)
        setattr(_engines, compression, unpack)
    done = 0
    for at, packed, raw in group:
        try:
            unpack(file[at : at + packed], place[done : done + raw])
        except ValueError as error:
            return done, f"offset {at:#x}: cannot be unpacked: {error}"
        done += raw
    return done, None


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

    Each CPU has a slot of the arena ``buf``. :meth:`refill` sees to it that enough lies in it;
    the group of chunks that comes next is unpacked right behind that, by a thread, while the walk
    goes on. When a slot is at its end, what is not read yet moves to its front.
    """

    def __init__(
        self,
        path: Path,
        file: memoryview,
        chunks: dict[int, Chunks],
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
        self._chunks = list(chunks.values())
        grouped = [_grouped(part, self._want) for part in self._chunks]
        self._firsts = [firsts for firsts, _ in grouped]
        self._sizes = [sizes for _, sizes in grouped]
        #: By CPU: the group that comes next, and what unpacks it when that has begun.
        self._next = [0] * len(chunks)
        self._running: list[Future[tuple[int, str | None]] | None] = [None] * len(chunks)
        self._total = sum(map(sum, self._sizes))
        self._threads = self._total > ARENA
        #: Where each CPU's slot begins in the arena; behind the last its end.
        self._slots = [_FRONT]
        for sizes in self._sizes:
            # What is wanted, the page that is being read, one group more, and another one so that
            # not each has to move.
            biggest = max(sizes, default=0)
            room = max(self._want, biggest) + 2 * biggest + 2 * page_size
            self._slots.append(self._slots[-1] + min(room, sum(sizes)) + _FRONT)
        try:
            self._arena = np.empty(self._slots[-1], np.uint8)
        except MemoryError as error:
            raise FormatError(
                path, f"no memory to unpack {self._slots[-1]} bytes of pages at once"
            ) from error
        self._bytes = memoryview(self._arena)  # type: ignore[arg-type]
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
        return self._next[index] < len(self._sizes[index])

    def _group(self, index: int) -> tuple[list[list[int]], memoryview]:
        """The chunks of the group that comes next, and its place behind what is loaded."""
        firsts, number, at = self._firsts[index], self._next[index], self._loaded[index]
        chunks = self._chunks[index][firsts[number] : firsts[number + 1]].tolist()
        return chunks, self._bytes[at : at + self._sizes[index][number]]

    def _fits(self, index: int) -> bool:
        size = self._sizes[index][self._next[index]]
        return self._loaded[index] + size <= self._slots[index + 1] - _FRONT

    def _start_unpacking(self, index: int) -> None:
        """Let a thread unpack the group that comes next, where there is room for it."""
        if not self._threads or not self._more(index) or not self._fits(index):
            return
        group, place = self._group(index)
        try:
            self._running[index] = _workers().submit(
                _unpack_group, self._file, group, self._compression, place
            )
        except RuntimeError:  # no thread can be started
            self._threads = False

    def _take_group(self, index: int) -> None:
        """Have the group that comes next unpacked; there must be room."""
        work = self._running[index]
        if work is None:
            group, place = self._group(index)
            size, damage = _unpack_group(self._file, group, self._compression, place)
        else:
            self._running[index] = None
            size, damage = work.result()
        self._next[index] += 1
        self._loaded[index] += size
        if damage is not None:
            cpu = self._cpus[index]
            self.cut(cpu, f"cpu {cpu}, {damage}")
            self._next[index] = len(self._sizes[index])

    def _number(self, at: int, size: int) -> int:
        return int.from_bytes(self._bytes[at : at + size], self._order)  # type: ignore[arg-type]

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
        for index in range(len(self._cpus)):
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
        """Unpack until there is as much as wanted (one group at least, if it finds room)."""
        wanted = max(self._want, self._sizes[index][self._next[index]])
        while self._more(index) and self._loaded[index] - keep < wanted:
            if self._running[index] is None and not self._fits(index):
                keep = self._move(index, st, keep)
                if not self._fits(index):
                    break
            self._take_group(index)
        if self._more(index) and self._running[index] is None:
            if not self._fits(index):
                self._move(index, st, keep)
            self._start_unpacking(index)
        start = int(st[kernels.NEXT])
        whole = (self._loaded[index] - start) // self._page_size * self._page_size
        st[kernels.END] = start + whole if self._more(index) else self._loaded[index]

    def _move(self, index: int, st: npt.NDArray[np.int64], keep: int) -> int:
        """Move what is not read yet to the front of the slot; returns where that is."""
        front, loaded = self._slots[index], self._loaded[index]
        shift = keep - front
        if shift <= 0:
            return keep
        self._arena[front : front + loaded - keep] = self._arena[keep:loaded]
        self._base[index] += shift
        self._loaded[index] = loaded - shift
        st[kernels.NEXT] -= shift
        if st[kernels.POS] < st[kernels.STOP]:
            st[kernels.POS] -= shift
            st[kernels.STOP] -= shift
        return front


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


def _run(view: memoryview, start: int, end: int, order: Any) -> tuple[Chunks, int, int]:
    """A run of chunks: those that are whole, how many it says there are (-1), where it stopped."""
    at = start + 4
    count = int.from_bytes(view[start:at], order) if at <= end else -1
    head = struct.Struct(">II" if order == "big" else "<II").unpack_from
    chunks = array("q")
    left = count
    while left > 0 and at + 8 <= end:
        packed, raw = head(view, at)
        if packed > end - at - 8 or raw > MAX_CHUNK:
            break
        chunks.extend((at + 8, packed, raw))
        at += 8 + packed
        left -= 1
    return np.array(chunks, np.int64).reshape(-1, 3), count, at


def _no_bomb(path: Path, total: int, size: int, what: str) -> None:
    """Refuse what a file of ``size`` bytes unpacks to, when no capture shrinks so far."""
    if total > BOMB_SIZE and total > BOMB_RATIO * size:
        raise FormatError(
            path,
            f"{total} bytes of {what} when unpacked, more than {BOMB_RATIO} times the file",
            hint="no capture shrinks so far: damaged, or made to do harm",
        )


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
    total = int(chunks[:, RAW].sum())
    if total > MAX_TEXT:
        raise FormatError(path, "its text unpacks to more than 4 GiB: no such text can be")
    _no_bomb(path, total, len(view), "text")
    if len(chunks) != count:
        cut = f"offset {at:#x}: {len(chunks)} of {max(count, 0)} chunks of the text are whole"
    unpack, out = decompressor(file.compression), []
    for at, packed, raw in chunks.tolist():
        try:
            out.append(unpack(view[at : at + packed], raw))
        except ValueError as error:
            cut = f"offset {at:#x}: the text cannot be unpacked: {error}"
            break
    return b"".join(out), cut


def _heads(pages: Pages, buffer: Buffer, big: bool, path: Path) -> dict[int, Chunks]:
    """The whole chunks of each CPU, found by their heads; nothing is unpacked yet."""
    view = memoryview(pages.buf)  # type: ignore[arg-type]
    out: dict[int, Chunks] = {}
    total = 0
    for cpu in buffer.cpus:
        if not cpu.size:
            continue
        # The declared size is without the count.
        end = min(len(view), cpu.offset + 4 + cpu.size)
        chunks, count, at = _run(view, cpu.offset, end, "big" if big else "little")
        total += int(chunks[:, RAW].sum())
        if len(chunks) != count:
            pages.cut(
                cpu.cpu,
                f"cpu {cpu.cpu}, offset {min(at, len(view)):#x}: {len(chunks)} of its "
                f"{'?' if count < 0 else count} compressed chunks are whole: file cut?",
            )
        out[cpu.cpu] = chunks
    if total > MAX_UNPACKED:
        raise FormatError(path, f"{total} bytes of pages when unpacked: more than 64 GiB cannot be")
    _no_bomb(path, total, len(view), "pages")
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
