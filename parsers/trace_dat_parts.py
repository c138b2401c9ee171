"""What a trace.dat file is made of, and the cursor that reads its numbers and strings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from traceana.issues import IssueLog
from traceana.parsers.formats import EventFormat, FieldKind, HeaderPage

if TYPE_CHECKING:
    from traceana.parsers.trace_dat_shift import TimeShift

__all__ = [
    "Buffer",
    "CpuSection",
    "CpuStat",
    "Cursor",
    "CutError",
    "TextPart",
    "TraceFile",
    "text_of",
]


class CutError(Exception):
    """A read beyond the end of the file: at which offset, of what."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at
        self.what = what


@dataclass(frozen=True, slots=True)
class CpuSection:
    """One CPU's data as the file declares it: offset and size in the file, before any clamp."""

    cpu: int
    offset: int
    size: int


@dataclass
class CpuStat:
    """What ``per_cpu/cpuN/stats`` said at the end of the recording (option CPUSTAT)."""

    cpu: int
    entries: int = 0
    overrun: int = 0
    dropped: int = 0
    read: int = 0


@dataclass
class Buffer:
    """A ring buffer: the top one (name "") or an instance."""

    name: str
    clock: str | None
    page_size: int
    cpus: list[CpuSection]
    compressed: bool = False
    stats: dict[int, CpuStat] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextPart:
    """Where a file holds text of ftrace instead of pages: ``at`` to ``at + size`` (-1: its end).

    ``compressed``: what lies there is a run of chunks.
    """

    name: str
    clock: str | None
    at: int
    size: int = -1
    compressed: bool = False


@dataclass
class TraceFile:
    """The parts of a trace.dat file (or another container of pages) that say how to read it.

    ``form`` is its name for ``ReaderMeta.form``. ``offset_ns`` is what is added to every time
    (options OFFSET and DATE); ``time_shift`` makes times of the host of a guest's, before all else;
    ``tsc2nsec`` is (mult, shift) where the clock counts cycles and the file tells the factor.
    ``texts`` are the texts of latency tracers in it. ``facts`` go to
    ``ReaderMeta.extra``.
    """

    form: str
    big_endian: bool
    page_size: int
    compression: str = "none"
    page: HeaderPage | None = None
    formats: list[EventFormat] = field(default_factory=list)
    cmdlines: bytes = b""
    cpu_count: int | None = None
    buffers: list[Buffer] = field(default_factory=list)
    clock: str | None = None
    offset_ns: int = 0
    tsc2nsec: tuple[int, int] | None = None
    time_shift: TimeShift | None = None
    uname: str | None = None
    tool: str | None = None
    trace_id: int | None = None
    texts: list[TextPart] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)
    stats: list[tuple[str | None, dict[int, CpuStat]]] = field(default_factory=list)
    issues: IssueLog = field(default_factory=IssueLog)
    damaged: bool = False

    @property
    def type_field(self) -> tuple[int, int]:
        """Offset and size of common_type, the same in every format of a kernel."""
        for fmt in self.formats:
            place = fmt.by_name.get("common_type")
            if place is not None and place.kind is FieldKind.INT and place.size <= 4:
                return place.offset, place.size
        return 0, 2


class Cursor:
    """Reads numbers and strings in file order, never beyond ``end``."""

    def __init__(
        self,
        buf: memoryview,
        at: int = 0,
        *,
        big: bool = False,
        what: str = "the header",
        base: int = 0,
    ) -> None:
        self.buf = buf
        self.at = at
        self._base = base
        self.end = len(buf)
        self.what = what
        self._order = "big" if big else "little"

    def cut(self) -> CutError:
        """What to raise where something needed is not there any more."""
        return CutError(self._base + self.at, self.what)

    def take(self, n: int) -> memoryview:
        if n < 0 or n > self.end - self.at:
            raise self.cut()
        self.at += n
        return self.buf[self.at - n : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), self._order)  # type: ignore[arg-type]

    def string(self, limit: int = 4096) -> str:
        """A NUL-ended string."""
        data = bytes(self.buf[self.at : min(self.end, self.at + limit)])
        n = data.find(b"\0")
        if n < 0:
            raise self.cut()
        self.at += n + 1
        return data[:n].decode("utf-8", "backslashreplace")

    def sized(self, size: int) -> bytes:
        """Bytes headed by their length in ``size`` bytes."""
        return bytes(self.take(self.number(size)))


def text_of(data: bytes) -> str:
    """Text up to its NUL."""
    return data.partition(b"\0")[0].decode("utf-8", "backslashreplace").strip()
