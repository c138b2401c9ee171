"""The first pass over a Perfetto trace: what packets tell, the earliest time of each piece.

Needed since packets are in no order of time: with the earliest time of all that comes later, the
second pass knows what it may give out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from traceana.issues import IssueLog
from traceana.parsers import _perfetto_kernels as kernels
from traceana.parsers import perfetto_tables as tables
from traceana.parsers.payload import as_bytes
from traceana.parsers.perfetto_facts import WANTED, Facts
from traceana.parsers.perfetto_wire import inflate

__all__ = ["PIECE", "Piece", "Survey"]

#: Bytes of the file that are taken at once.
PIECE = 1 << 20
_PACKET_ROWS = 1 << 14
#: What the compressed packets of one piece may unpack to.
_MAX_PIECE = 64 << 20
_ZLIB, _ZSTD = 50, 133


@dataclass
class Piece:
    """Packets that begin in [start, end) of the file; per clock the earliest time of events."""

    start: int
    end: int
    earliest: dict[int, int] = field(default_factory=dict)


class Survey:
    """The packets of a trace, walked piece by piece.

    Parameters
    ----------
    buf : uint8[:], read-only
    piece : int
        Bytes of a piece.

    Attributes
    ----------
    pieces : list of Piece
        Complete once :meth:`go` went to the end.
    facts : Facts
    packets : int64[N_PACKETS]
        Packets by what they hold.
    clocks : set of int
        Clocks of the bundles.
    stopped : tuple or None
        Offset and code of what ended the walk before the end of the file.
    damaged : bool
        A compressed packet was damaged.
    """

    def __init__(self, buf: npt.NDArray[np.uint8], piece: int = PIECE) -> None:
        self._buf = buf
        self._piece = piece
        self.pieces: list[Piece] = []
        self.facts = Facts()
        self.packets = np.zeros(kernels.N_PACKETS, np.int64)
        self.clocks: set[int] = set()
        self.stopped: tuple[int, int] | None = None
        self.damaged = False
        self._done = 0
        self._begun: set[tuple[int, int]] = set()
        self._scratch = np.zeros((_PACKET_ROWS, kernels.N_CELLS), np.int64)
        self._wanted = np.zeros(kernels.N_PACKETS, np.uint8)
        self._wanted[[kernels.FTRACE, _ZLIB, _ZSTD, *WANTED]] = 1

    def go(self, upto: int) -> None:
        """Go through the packets that begin before ``upto``: facts, and earliest times."""
        while self._done < upto and self.stopped is None:
            start = self._done
            piece = Piece(start, min(start + self._piece, len(self._buf)))
            counts = self.packets
            for buf, rows in self.walk(piece, counts, IssueLog(), first=True):
                for row in rows[rows[:, kernels.FIELD] != kernels.FTRACE]:
                    content = buf[int(row[kernels.OFF]) : int(row[kernels.END])].tobytes()
                    self.facts.take(int(row[kernels.FIELD]), content)
                bundles = rows[rows[:, kernels.FIELD] == kernels.FTRACE]
                for row in bundles[bundles[:, kernels.DESCRIBES] != 0]:
                    content = buf[int(row[kernels.OFF]) : int(row[kernels.END])].tobytes()
                    self.facts.describe(content)
                self._note_times(piece, bundles)
            self.pieces.append(piece)
            self._done = piece.end

    def walk(
        self, piece: Piece, counts: npt.NDArray[np.int64], issues: IssueLog, *, first: bool = False
    ) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
        """Packets of interest of a piece, those that were compressed each in a buffer of its own.

        In the first pass ``piece.end`` is moved to where the next packet begins.
        """
        result = np.zeros(3, np.int64)
        at, size = piece.start, 0
        while at < piece.end:
            kernels.packets(self._buf, at, len(self._buf), piece.end, self._wanted,
                            self._scratch, counts, result)  # fmt: skip
            rows = self._scratch[: result[kernels.ROWS]].copy()
            why, before = int(result[kernels.STOP]), at
            at = int(result[kernels.AT])
            kind = rows[:, kernels.FIELD]
            packed = (kind == _ZLIB) | (kind == _ZSTD)
            done = 0
            for i in np.flatnonzero(packed).tolist():
                if i > done:
                    yield self._buf, rows[done:i]
                done = i + 1
                room = max(0, _MAX_PIECE - size)
                inner, unpacked = self._unpack(rows[i], room, counts, issues)
                size += unpacked
                yield from inner
            if done < len(rows):
                yield self._buf, rows[done:]
            if why != kernels.RUNNING:
                if first:
                    self.stopped = (at, why)
                    piece.end = len(self._buf)
                return
            if at == before:
                return
        if first:
            piece.end = at

    def _unpack(
        self, row: npt.NDArray[np.int64], room: int, counts: npt.NDArray[np.int64], issues: IssueLog
    ) -> tuple[list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]], int]:
        """The packets inside a compressed one, and how many bytes they are."""
        content = self._buf[int(row[kernels.OFF]) : int(row[kernels.END])].tobytes()
        data, wrong = inflate(content, int(row[kernels.FIELD]) == _ZSTD)
        if len(data) > room:
            data, wrong = data[:room], "the packets around it unpack to too much"
        where = f"offset {int(row[kernels.PACKET]):#x}: a compressed packet"
        if wrong:
            self.damaged = True
            issues.add("parse", "packet_damaged", f"{where}: {wrong}")
        out = []
        buf = as_bytes(data)
        result = np.zeros(3, np.int64)
        at = 0
        while at < len(buf):
            kernels.packets(
                buf, at, len(buf), len(buf), self._wanted, self._scratch, counts, result
            )
            rows = self._scratch[: result[kernels.ROWS]].copy()
            nested = (rows[:, kernels.FIELD] == _ZLIB) | (rows[:, kernels.FIELD] == _ZSTD)
            if nested.any():
                issues.add("parse", "packet_nested", f"{where} holds compressed packets: left out",
                           count=int(nested.sum()))  # fmt: skip
            out.append((buf, rows[~nested]))
            at = int(result[kernels.AT])
            if result[kernels.STOP] != kernels.RUNNING:
                if not wrong:
                    self.damaged = True
                    issues.add("parse", "packet_damaged", f"{where}: damaged after {at} bytes")
                break
        return out, len(data)

    def usable(self, bundles: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Bundles of this machine with a CPU and a clock that can be."""
        cpu, pair = bundles[:, kernels.CPU], bundles[:, kernels.HAS_PAIR] == 3
        far = np.abs(bundles[:, [kernels.FTRACE_TS, kernels.BOOT_TS]]) >= kernels.TIME_LIMIT
        good: npt.NDArray[np.bool_] = (
            (cpu >= 0) & (cpu < kernels.MAX_CPU) & ~(pair & far.any(axis=1))
        )
        good &= bundles[:, kernels.MACHINE] == 0
        return good

    def shifts(
        self, bundles: npt.NDArray[np.int64], offsets: dict[int, int]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Per bundle, what to add for the boot clock, and the clock it does not map (0: none)."""
        clock = bundles[:, kernels.CLOCK]
        pair = (bundles[:, kernels.HAS_PAIR] == 3) & (clock != 0)
        shift = np.where(pair, bundles[:, kernels.BOOT_TS] - bundles[:, kernels.FTRACE_TS], 0)
        loose = np.where(pair | (clock == 0), 0, clock)
        for number, offset in offsets.items():
            shift[loose == number] = offset
        return shift, loose

    def _note_times(self, piece: Piece, bundles: npt.NDArray[np.int64]) -> None:
        """The earliest time of a piece, by clock (those that a snapshot maps are not known yet)."""
        bundles = bundles[self.usable(bundles)]
        if not len(bundles):
            return
        self.clocks |= set(np.unique(bundles[:, kernels.CLOCK]).tolist())
        shift, loose = self.shifts(bundles, {})
        least = bundles[:, kernels.MIN_TS].copy()
        timed = least != kernels.I64_MAX
        for i in np.flatnonzero(timed):
            key = (int(bundles[i, kernels.SEQ]), int(bundles[i, kernels.CPU]))
            if key not in self._begun:
                self._begun.add(key)
                least[i] = self.begin(bundles[i])
        for clock in np.unique(loose[timed]).tolist():
            here = timed & (loose == clock)
            value = int((least[here] + shift[here]).min())
            piece.earliest[clock] = min(value, piece.earliest.get(clock, value))

    @staticmethod
    def begin(bundle: npt.NDArray[np.int64]) -> int:
        """From when on the first bundle of a CPU tells what was there (on its own clock)."""
        told, first = int(bundle[kernels.PREV_END]), int(bundle[kernels.MIN_TS])
        return told if 0 < told < first and not bundle[kernels.LOST] else first

    def bounds(self) -> list[int]:
        """For each piece, the earliest time in all later ones."""
        out, least = [], kernels.I64_MAX
        for piece in reversed(self.pieces):
            out.append(least)
            for clock, value in piece.earliest.items():
                least = min(least, value + self.facts.offsets.get(clock, 0))
        return out[::-1]

    def mapped(self) -> bool:
        """Whether the bundles' own pairs of times, or snapshots, give the boot clock."""
        return not any(
            clock and clock not in self.facts.offsets for p in self.pieces for clock in p.earliest
        )

    def held(self) -> dict[str, int]:
        """What the packets hold, the most frequent first."""
        cells = np.flatnonzero(self.packets)
        out = {
            tables.PACKETS.get(int(i), f"field {int(i)}") if i else "nothing": int(self.packets[i])
            for i in cells
        }
        return dict(sorted(out.items(), key=lambda item: -item[1]))
