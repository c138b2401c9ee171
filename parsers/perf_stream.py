"""Records of a perf.data that cannot be read where they lie in the file.

``perf record -z`` packs what its rings held into COMPRESSED records, ``--threads`` writes one file
per ring, simpleperf splits long records, and another machine has another byte order.
:class:`Stream` gives the plain whole records of one file, piece by piece; :class:`Arena` lays
pieces of one or several streams into a buffer that the scan reads as if it were the file, and
carries over the payloads that are still waiting for their turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from traceana.parsers import _perf_kernels as kernels
from traceana.parsers import _perf_stream_kernels as steps
from traceana.parsers.payload import as_bytes

__all__ = ["Arena", "Segment", "Stream", "read_number"]

Bytes = npt.NDArray[np.uint8]

#: Bytes that one turn lays into the buffer at least, all streams together.
BLOCK = 8 << 20
#: The payload kernel reads up to 8 bytes around a payload.
_MARGIN = 16
#: No packed record is longer: its size has 16 bits.
_LONGEST = 1 << 16
#: Packed bytes given to zstd at a time: they unpack to 256 MB at most (128 KB for each 4).
_STEP = 8192
#: From this size on, what grew more than that many times is no recording: perf reaches 50.
BOMB_SIZE = 256 << 20
BOMB_RATIO = 200


def read_number(buf: Bytes, at: int, size: int, order: str = "<") -> int:
    """The unsigned number at ``buf[at]``; the caller knows that it lies within."""
    return int.from_bytes(buf[at : at + size].tobytes(), "little" if order == "<" else "big")


class Stream:
    """The records of one file or ring, in file order, unpacked and joined.

    Parameters
    ----------
    buf : uint8[:], read-only
    start, end : int
        Where its records lie; ``end`` within the buffer.
    order : str
        ``<`` or ``>``. The records are given in this order, too.
    form : int
        FORM_.. bits.
    name : str
        File within a folder, for messages.

    Attributes
    ----------
    at : int
        How far it is, in bytes of the file.
    damage : (offset, what) or None
        What ended it before its end.
    last : int
        Greatest time seen so far; kept by the reader of the records.
    """

    def __init__(
        self, buf: Bytes, start: int, end: int, order: str = "<", form: int = 0, name: str = ""
    ) -> None:
        self.name = name
        self.start = self.at = start
        self.end = end
        self.damage: tuple[int, str] | None = None
        self.last = 0
        self.done = False
        self._buf = buf
        self._order = order
        self._form = form
        self._stops = np.zeros(256, np.uint8)
        self._stops[[kernels.R_AUXTRACE, kernels.R_COMPRESSED, kernels.R_COMPRESSED2]] = 1
        self._stops[kernels.R_TRACING_DATA] = bool(form & kernels.FORM_PIPE)
        self._stops[255] = bool(form & kernels.FORM_SIMPLEPERF)
        self._found = np.zeros(4, np.int64)
        self._rest = b""
        self._split: list[bytes] = []
        self._engine: Any = None
        self._taken = self._made = 0
        self._blocks = self._all()

    def block(self) -> tuple[Bytes, int] | None:
        """Some whole records, and where they (or what they were packed in) lie; None at the end."""
        got = next(self._blocks, None)
        self.done = got is None
        return got

    def owns(self, block: Bytes) -> bool:
        """Whether a block is a part of the file as it stands there."""
        return bool(np.may_share_memory(block, self._buf))

    def _walk(self, buf: Bytes, at: int, end: int, stops: npt.NDArray[np.uint8]) -> int:
        return int(
            steps.walk(
                buf, np.int64(at), np.int64(end), np.int64(BLOCK),
                np.int64(self._order == ">"), np.int64(self._form & kernels.FORM_SIMPLEPERF),
                stops, self._found,
            )
        )  # fmt: skip

    def _all(self) -> Iterator[tuple[Bytes, int]]:
        while self.damage is None:
            first = self.at
            why = self._walk(self._buf, first, self.end, self._stops)
            self.at, kind, size = (int(x) for x in self._found[:3])
            if self.at > first:
                yield self._buf[first : self.at], first
            if why == kernels.END:
                break
            if why == kernels.BAD_SIZE:
                self.damage = (self.at, f"record of size {size}")
            elif why == kernels.CUT:
                self.damage = (self.at, "the last record is cut")
            elif why == kernels.SPECIAL:
                yield from self._special(kind, size)
        if self.damage is None and (self._rest or self._split):
            self.damage = (self.at, "the last record is cut")

    def _special(self, kind: int, size: int) -> Iterator[tuple[Bytes, int]]:
        at = self.at
        begin, end = at + 8, at + size
        if kind == kernels.R_COMPRESSED2:
            begin += 8
            length = read_number(self._buf, at + 8, 8, self._order) if size >= 16 else -1
            if not 0 <= length <= end - begin:
                self.damage = (at, "a compressed record that is longer than it can be")
                return
            yield from self._unpacked(begin, begin + length)
        elif kind == kernels.R_COMPRESSED:
            yield from self._unpacked(begin, end)
        elif kind in (kernels.R_AUXTRACE, kernels.R_TRACING_DATA):
            wide = 8 if kind == kernels.R_AUXTRACE else 4
            behind = read_number(self._buf, begin, wide, self._order) if size >= 8 + wide else 0
            if behind > self.end - end:
                self.damage = (at, "the last record is cut")
                return
            end += behind
        elif kind in (kernels.R_SPLIT, kernels.R_SPLIT_END):
            yield from self._joined(kind, self._buf[begin:end].tobytes())
        else:
            yield self._buf[at:end], at
        if self.damage is None:
            self.at = end

    def _joined(self, kind: int, piece: bytes) -> Iterator[tuple[Bytes, int]]:
        """Pieces of one long record, given when its end comes."""
        self._split.append(piece)
        if kind == kernels.R_SPLIT_END:
            whole = as_bytes(b"".join(self._split))
            self._split = []
            none = np.zeros(256, np.uint8)
            self._walk(whole, 0, len(whole), none)
            if self._found[steps.AT] == len(whole):
                yield whole, self.at

    def _unpacked(self, begin: int, end: int) -> Iterator[tuple[Bytes, int]]:
        """What these bytes, the next of one zstd stream, unpack to: records that are whole now."""
        import zstandard

        for start in range(begin, end, _STEP):
            piece = self._buf[start : min(start + _STEP, end)].tobytes()
            made = []
            try:
                while piece:
                    if self._engine is None:
                        engine = zstandard.ZstdDecompressor(max_window_size=1 << 27)
                        self._engine = engine.decompressobj()
                    made.append(self._engine.decompress(piece))
                    piece = b""
                    if self._engine.eof:
                        piece = self._engine.unused_data
                        self._engine = None
            except zstandard.ZstdError as error:
                self.damage = (self.at, f"compressed data that cannot be unpacked: {error}")
            yield from self._whole(self._rest + b"".join(made))
            self._taken += min(_STEP, end - start)
            self._made += sum(map(len, made))
            if self._made > BOMB_SIZE and self._made > BOMB_RATIO * self._taken:
                self.damage = (self.at, f"compressed data grow to more than {self._made >> 20} MB")
            if self.damage is not None:
                return

    def _whole(self, data: bytes) -> Iterator[tuple[Bytes, int]]:
        buf = as_bytes(data)
        at = 0
        while True:
            why = self._walk(buf, at, len(buf), self._stops)
            stop, kind, size = (int(x) for x in self._found[:3])
            if stop > at:
                yield buf[at:stop], self.at
            at = stop
            if why == kernels.SPECIAL and kind > 255:
                yield buf[at : at + size], self.at
                at += size
            elif why == kernels.BAD_SIZE:
                self.damage = (self.at, f"record of size {size} in the compressed data")
            elif why == kernels.SPECIAL:
                self.damage = (self.at, f"record of type {kind} in the compressed data")
            if why in (kernels.CUT, kernels.END) or self.damage is not None:
                self._rest = data[at:]
                if len(self._rest) >= _LONGEST:
                    self.damage = (self.at, "a record without an end in the compressed data")
                return


@dataclass
class Segment:
    """A run of records of one stream in the buffer.

    ``places`` are (place in the buffer, place in the file, whether the bytes are the file's own).
    """

    stream: Stream
    start: int
    end: int
    places: list[tuple[int, int, bool]] = field(default_factory=list)

    def file_offset(self, at: int) -> int:
        """Where in the file a place of the buffer comes from (of packed bytes: their record)."""
        index = bisect_right(self.places, (at, 1 << 62, True)) - 1
        mine, theirs, plain = self.places[max(index, 0)]
        return theirs + (at - mine if plain and at > mine else 0)


class _Ids(Protocol):
    """What of an AttrTable the turning of the byte order needs."""

    id_at: int
    id_back: int
    table: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]


class Arena:
    """A buffer into which pieces of streams are laid, and from which waiting rows move on.

    What the only stream of a file gives next is laid into another buffer by a second thread while
    the rows of this one are decoded. Of several streams it is told only then which to read on.
    """

    def __init__(self, streams: list[Stream], old: Bytes, attrs: _Ids, order: str) -> None:
        self.streams = streams
        #: The bytes that offsets of rows count in; at first those of the file.
        self.buf = old
        self._attrs = attrs
        self._turned = order == ">"
        self._spares: list[Bytes] = []
        self._second = ThreadPoolExecutor(1) if len(streams) == 1 else None
        self._ahead: Future[tuple[Bytes, list[Segment]]] | None = None

    def _lagging(self) -> list[Stream]:
        """The streams to read on: of several those that are furthest behind in time."""
        live = sorted((s for s in self.streams if not s.done), key=lambda s: s.last)
        return live[: (len(live) + 1) // 2] if len(live) > 2 else live

    def load(
        self,
        off: npt.NDArray[np.int64],
        length: npt.NDArray[np.int32],
        row: npt.NDArray[np.int32],
        n: int,
    ) -> list[Segment]:
        """Lay the next pieces into a buffer, and behind them the payloads of the first n rows.

        ``off`` is changed to their new places. An empty list: there is nothing more.
        """
        waiting = int(length[:n][row[:n] >= 0].sum(dtype=np.int64))
        # as much again as is carried over, so that the carrying costs no more than reading
        room = max(BLOCK, waiting)
        new, segments = self._ahead.result() if self._ahead else self._lay(room)
        if not segments:
            if self._second is not None:
                self._second.shutdown()
            return []
        at = segments[-1].end
        if len(new) < at + waiting + _MARGIN:
            new = self._larger(new, at, at + waiting + _MARGIN)
        steps.carry(self.buf, new, np.int64(at), off, length, row, np.int64(n))
        self.buf = as_bytes(new)
        if self._second is not None:
            self._ahead = self._second.submit(self._lay, room)
        return segments

    def _lay(self, room: int) -> tuple[Bytes, list[Segment]]:
        """A buffer with about so many bytes of the next pieces, and what lies where."""
        new = self._spare(room + room // 4)
        at = _MARGIN
        segments: list[Segment] = []
        while not segments and (streams := self._lagging()):
            share = room // len(streams)
            for stream in streams:
                segment = Segment(stream, at, at)
                while at - segment.start < share and (block := stream.block()) is not None:
                    data, place = block
                    if len(new) < at + len(data) + _MARGIN:
                        new = self._larger(new, at, at + len(data) + _MARGIN)
                    new[at : at + len(data)] = data
                    segment.places.append((at, place, stream.owns(data)))
                    segment.end = at = at + len(data)
                if segment.places:
                    self._turn(new, segment)
                    segments.append(segment)
        return new, segments

    def _turn(self, new: Bytes, segment: Segment) -> None:
        """Records of the other byte order."""
        attrs = self._attrs
        if self._turned:
            steps.turn_records(
                new, np.int64(segment.start), np.int64(segment.end), np.int64(attrs.id_at),
                np.int64(attrs.id_back), attrs.table, attrs.ids,
            )  # fmt: skip

    def _spare(self, size: int) -> Bytes:
        """A buffer of that size: the one before the current one where it is large enough."""
        self._spares = self._spares[-2:]
        new = self._spares.pop(0) if len(self._spares) == 2 else np.empty(0, np.uint8)
        if len(new) < size:
            new = np.empty(size, np.uint8)
        self._spares.append(new)
        return new

    def _larger(self, old: Bytes, used: int, size: int) -> Bytes:
        """A larger buffer in place of the newest one, with what is in it."""
        new = np.empty(size + size // 4, np.uint8)
        new[:used] = old[:used]
        self._spares[-1] = new
        return new
