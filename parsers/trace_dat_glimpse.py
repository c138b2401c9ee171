"""A look at a trace.dat: its structure is read, of the pages the ends and some in between.

Every CPU's first and last page tell its span, the recorder's statistics (CPUSTAT) how many events
it holds, pages spread over the whole what kinds of events they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from traceana.errors import UsageError
from traceana.parsers.glimpse import Glimpse
from traceana.parsers.reader import ReaderMeta
from traceana.parsers.trace_dat_file import read_trace_file
from traceana.parsers.trace_dat_parts import Buffer, CpuSection, TraceFile
from traceana.schema import EVENT_NAMES

__all__ = ["glimpse_trace_dat"]

#: Pages looked at in all, beside the ends.
_SAMPLES = 400
#: Pages at an end in which an event of a known kind is looked for.
_ENDS = 8
#: As in trace_dat.
_CLOCK_UNITS = {
    "uptime": "jiffies",
    "counter": "count",
    "x86-tsc": "cycles",
    "ppc-tb": "cycles",
    "s390-tod": "cycles",
}
_COMMIT_MASK = (1 << 27) - 1
_STAMP_MASK = (1 << 59) - 1


@dataclass
class _CpuLook:
    """What the sampled pages of one CPU hold."""

    pages: int = 0
    sampled: int = 0
    events: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None
    #: An end showed no event of a known kind: the time of any event stands for it.
    vague: bool = False


class _PagesOf:
    """The pages of one CPU by their number, unpacked where they are packed."""

    def __init__(self, buf: memoryview, file: TraceFile, buffer: Buffer, cpu: CpuSection) -> None:
        self._buf = buf
        self._size = buffer.page_size
        self._order: Literal["big", "little"] = "big" if file.big_endian else "little"
        self._compression = file.compression
        self._packed = buffer.compressed
        self._at = cpu.offset
        self.cut = False
        #: Packed: (place, packed size, unpacked size, number of its first page) of each chunk.
        self._chunks: list[tuple[int, int, int, int]] = []
        self._last: tuple[int, bytes] = (-1, b"")
        if not self._packed:
            have = max(0, min(cpu.size, len(buf) - cpu.offset))
            self.cut = have < cpu.size
            self.n = have // self._size
            return
        end = min(len(buf), cpu.offset + 4 + cpu.size)
        at = cpu.offset + 4
        count = int.from_bytes(buf[cpu.offset : at], self._order) if cpu.size and at <= end else 0
        number = 0
        while len(self._chunks) < count and at + 8 <= end:
            packed = int.from_bytes(buf[at : at + 4], self._order)
            raw = int.from_bytes(buf[at + 4 : at + 8], self._order)
            if packed > end - at - 8 or raw > 64 << 20:
                break
            self._chunks.append((at + 8, packed, raw, number))
            number += raw // self._size
            at += 8 + packed
        self.cut = len(self._chunks) < count
        self.n = number

    def page(self, number: int) -> bytes | memoryview:
        """One page; b"" where it cannot be unpacked."""
        if not self._packed:
            at = self._at + number * self._size
            return self._buf[at : at + self._size]
        low, high = 0, len(self._chunks)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._chunks[middle][3] <= number else (low, middle)
        if self._last[0] != low:
            from traceana.parsers.trace_dat_data import decompressor

            at, packed, raw, _ = self._chunks[low]
            try:
                data = decompressor(self._compression)(self._buf[at : at + packed], raw)
            except ValueError:
                self.cut = True
                data = b""
            self._last = (low, data)
        at = (number - self._chunks[low][3]) * self._size
        return self._last[1][at : at + self._size]


def _events(page: bytes | memoryview, file: TraceFile) -> Iterator[tuple[int, int]]:
    """(raw time, event id) of the events of a page, up to the first damage."""
    head = file.page
    assert head is not None
    big = file.big_endian
    order: Any = "big" if big else "little"
    if len(page) < head.data_offset:
        return

    def number(at: int, size: int) -> int:
        return int.from_bytes(page[at : at + size], order)

    low = head.commit_size - 4 if big else 0
    commit = number(head.commit_offset + low, 4) & _COMMIT_MASK
    time = number(head.timestamp_offset, 8)
    at, stop = head.data_offset, head.data_offset + commit
    type_at, type_size = file.type_field
    while at + 4 <= min(stop, len(page)):
        word = number(at, 4)
        kind, delta = (word >> 27, word & 0x7FFFFFF) if big else (word & 31, word >> 5)
        if kind == 29 and delta == 0:
            return
        if 1 <= kind <= 28:
            data, size, after = at + 4, 4 * kind, at + 4 + 4 * kind
        else:
            more = number(at + 4, 4)
            if kind == 30:
                time += (more << 27) + delta
                at += 8
                continue
            if kind == 31:
                time = ((more << 27) + delta) | (time & ~_STAMP_MASK)
                at += 8
                continue
            if kind == 29:
                time += delta
                at += 4 + more
                continue
            data, size, after = at + 8, more - 4, at + 4 + (more + 3 & ~3)
        if after > stop or size < 0 or after <= at:
            return
        time += delta
        at = after
        if size >= type_at + type_size:
            yield time, number(data + type_at, type_size) & 0xFFFF


def _look_at(pages: _PagesOf, file: TraceFile, known: set[int], budget: int) -> _CpuLook:
    """Sample one CPU: its ends, and ``budget`` pages spread evenly."""
    out = _CpuLook(pages=pages.n)
    n = pages.n
    wanted = set(range(n)) if n <= budget else {i * (n - 1) // (budget - 1) for i in range(budget)}
    ends = min(n, _ENDS)
    for at, numbers in (("first", range(ends)), ("last", range(n - 1, n - 1 - ends, -1))):
        fallback = None
        for number in numbers:
            times = list(_events(pages.page(number), file))
            if at == "last":
                times.reverse()
            hit = next((t for t, ident in times if ident in known), None)
            if hit is not None:
                setattr(out, at, hit)
                break
            if fallback is None and times:
                fallback = times[0][0]
        else:
            if fallback is not None:
                setattr(out, at, fallback)
                out.vague = True
    for number in sorted(wanted):
        out.sampled += 1
        for _, ident in _events(pages.page(number), file):
            out.events += 1
            out.counts[ident] = out.counts.get(ident, 0) + 1
    return out


def _meta(file: TraceFile, buffer: Buffer) -> ReaderMeta:
    form = file.form
    if file.compression != "none" and any(b.compressed for b in file.buffers):
        form += f", {file.compression}"
    meta = ReaderMeta(form=form, tool=file.tool, cpus_present=file.cpu_count)
    words = (file.uname or "").split()
    if len(words) >= 3:
        meta.kernel, meta.machine = words[-2], words[-1]
    meta.clock = buffer.clock or file.clock
    meta.clock_unit = _CLOCK_UNITS.get(meta.clock or "", "ns")
    if file.tsc2nsec is not None and meta.clock_unit == "cycles":
        meta.clock_unit = "ns"
    return meta


def _wanted(path: Path, file: TraceFile, name: str | None) -> list[Buffer] | None:
    """The buffers that are asked for; None: the default."""
    if name is None:
        return None
    if name == "all" and not any(b.name == "all" for b in file.buffers):
        return file.buffers
    found = [b for b in file.buffers if b.name == name or (not b.name and name == "top")]
    if not found:
        there = ", ".join(b.name or "top" for b in file.buffers)
        raise UsageError(f"{path}: no buffer {name!r}; there are: {there}; all")
    return found


def glimpse_trace_dat(path: Path, raw: Any, name: str | None) -> Glimpse | None:
    """Look at a trace.dat; None for one that holds the text of a latency tracer.

    Raises
    ------
    InputError
        Its structure cannot be read.
    UsageError
        It has no such buffer.
    """
    file = read_trace_file(path, np.frombuffer(raw, np.uint8))
    if not file.buffers:
        return None
    wanted = _wanted(path, file, name)
    names: dict[int, str] = {}
    for fmt in file.formats:
        names.setdefault(fmt.id, fmt.name)
    known = {ident for ident, text in names.items() if text in EVENT_NAMES}
    view = memoryview(raw)
    parts = sum(1 for b in file.buffers for c in b.cpus if c.size) or 1
    budget = max(4, _SAMPLES // parts)
    looks: list[tuple[Buffer, dict[int, _CpuLook]]] = []
    out = Glimpse(_meta(file, file.buffers[0]))
    out.issues.extend(file.issues)
    out.damaged = file.damaged
    for buffer in file.buffers:
        looked = {}
        for cpu in buffer.cpus:
            pages = _PagesOf(view, file, buffer, cpu)
            looked[cpu.cpu] = _look_at(pages, file, known, budget)
            if pages.cut:
                out.damaged = True
                out.issues.add("parse", "data_cut", f"cpu {cpu.cpu}: its data is cut", cpu=cpu.cpu)
            out.total_bytes += pages.n * buffer.page_size
            out.sampled_bytes += looked[cpu.cpu].sampled * buffer.page_size
        looks.append((buffer, looked))
    _count(looks, names, out)
    chosen = wanted or [_default(looks, names)]
    out.meta = _meta(file, chosen[0])
    if len(file.buffers) > 1:
        out.meta.extra["buffers"] = [b.name for b in file.buffers]
    _span([looked for buffer, looked in looks if buffer in chosen], file, out)
    for buffer in chosen:
        _losses(buffer, out)
    out.unknown |= {"lost.marks", "windows", "issues"}
    return out


def _default(looks: list[tuple[Buffer, dict[int, _CpuLook]]], names: dict[int, str]) -> Buffer:
    """The top buffer, or the first in whose sample there are scheduler events."""
    top = next((i for i, (b, _) in enumerate(looks) if not b.name), 0)
    for i in [top, *(i for i in range(len(looks)) if i != top)]:
        seen = {names.get(ident, "") for look in looks[i][1].values() for ident in look.counts}
        if any(text.startswith("sched_") for text in seen):
            return looks[i][0]
    return looks[top][0]


def _count(
    looks: list[tuple[Buffer, dict[int, _CpuLook]]], names: dict[int, str], out: Glimpse
) -> None:
    """Counts by kind: the recorder's sums, shared out as in the sample."""
    sums: dict[str, float] = {}
    for buffer, looked in looks:
        for cpu, look in looked.items():
            if not look.events:
                continue
            factor = 1.0
            if look.sampled < look.pages:
                out.estimated.add("events")
                stat = buffer.stats.get(cpu)
                told = stat.entries + stat.read if stat is not None else 0
                total = look.events * look.pages // look.sampled
                if 2 * total < 3 * told < 4 * total:
                    total = told
                elif told:
                    out.issues.add(
                        "parse",
                        "counters_do_not_fit",
                        f"cpu {cpu}: {told} events recorded, but there is data of about {total}",
                        cpu=cpu,
                    )
                factor = total / look.events
            for ident, n in look.counts.items():
                text = names.get(ident, f"unknown_{ident}")
                sums[text] = sums.get(text, 0.0) + n * factor
    out.counts = {text: round(n) for text, n in sorted(sums.items())}


def _span(parts: list[dict[int, _CpuLook]], file: TraceFile, out: Glimpse) -> None:
    looks = [look for looked in parts for look in looked.values()]
    first = [look.first for look in looks if look.first is not None]
    last = [look.last for look in looks if look.last is not None]
    if not first or not last:
        return
    if any(look.vague for look in looks):
        out.estimated.add("span_ns")

    def correct(ts: int) -> int:
        if file.tsc2nsec is not None:
            ts = ts * file.tsc2nsec[0] >> file.tsc2nsec[1]
        return ts + file.offset_ns

    out.span = correct(min(first)), correct(max(last))


def _losses(buffer: Buffer, out: Glimpse) -> None:
    """What the statistics tell; what the pages mark is not looked for."""
    for cpu, stat in sorted(buffer.stats.items()):
        out.lost.count(
            cpu,
            recorded=stat.entries + stat.read,
            overwritten=stat.overrun,
            dropped=stat.dropped,
        )
        if stat.dropped:
            out.lost.add(cpu, stat.dropped)
    if not buffer.stats:
        out.unknown.add("lost.events")
