"""A look at a perf.data: header and features are read, of the records some stretches.

The header tells first and last sample (SAMPLE_TIME), what was recorded and where; how many events
of which kind there are is estimated from stretches spread over the data. In the middle of the data
a record's begin is found by its neighbours: so many in a row that fit are no accident.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from traceana import topology
from traceana.errors import TraceanaError
from traceana.issues import IssueLog
from traceana.parsers.formats import EventFormat
from traceana.parsers.glimpse import Glimpse
from traceana.parsers.perf_facts import event_name, make_meta
from traceana.parsers.perf_features import parse_features, parse_tracing_data
from traceana.parsers.perf_header import TYPE_TRACEPOINT, Attr, PerfHeader, magic_of, parse_header

__all__ = ["glimpse_perf_data"]

#: Bytes of one stretch, and how many there are beside the two ends.
_STRETCH = 32 << 10
_STRETCHES = 22
#: The ends are looked at longer: a ring of another CPU may hold the first or the last event.
_END = 256 << 10
#: Records in a row that have to fit.
_CHAIN = 12
_SAMPLE, _LOST, _LOST_SAMPLES = 9, 2, 13
_KINDS = frozenset([*range(1, 22), *range(64, 90)])
_TIME_LIMIT = 1 << 62
_COMPRESSED = 27

#: Bits of sample_type in the order of a sample's fixed part: IDENTIFIER, IP, TID, TIME, ADDR, ID.
_FIXED = (0x10000, 0x1, 0x2, 0x4, 0x8, 0x40)
_TIME, _ID, _IDENTIFIER = 0x4, 0x40, 0x10000


def _place(sample_type: int, bit: int) -> int:
    """Where a field stands in a sample, from the record's start; -1: nowhere."""
    if not sample_type & bit:
        return -1
    before = _FIXED[: _FIXED.index(bit)]
    return 8 + 8 * sum(1 for b in before if sample_type & b)


class _Reader:
    """Finds records and whose they are."""

    def __init__(self, buf: memoryview, header: PerfHeader) -> None:
        self._buf = buf
        self._head = struct.Struct(header.order + "IHH")
        self._long = struct.Struct(header.order + "Q")
        self._attrs = header.attrs
        self._owner = {int(i): n for n, attr in enumerate(header.attrs) for i in attr.ids}
        types = {a.sample_type for a in header.attrs}
        bit = _IDENTIFIER if all(t & _IDENTIFIER for t in types) else _ID
        self._time_at = [_place(a.sample_type, _TIME) for a in header.attrs]
        places = {_place(t, bit) for t in types}
        self._id_at = places.pop() if len(places) == 1 else -1

    def records(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(kind, place, size) of whole records from ``start``, up to the first that cannot be."""
        at = start
        head = self._head
        while at + 8 <= end:
            kind, _, size = head.unpack_from(self._buf, at)
            if size < 8 or at + size > end:
                return
            yield kind, at, size
            at += size

    def attr(self, at: int, size: int) -> int:
        """Index of a sample's attr; -1: none that is known."""
        if len(self._attrs) == 1:
            return 0
        if self._id_at < 0 or self._id_at + 8 > size:
            return -1
        (ident,) = self._long.unpack_from(self._buf, at + self._id_at)
        return self._owner.get(ident, -1)

    def time(self, at: int, size: int, attr: int) -> int | None:
        """Time of a sample."""
        place = self._time_at[attr]
        if place < 0 or place + 8 > size:
            return None
        (ts,) = self._long.unpack_from(self._buf, at + place)
        return ts if 0 < ts < _TIME_LIMIT else None

    def find(self, start: int, end: int) -> int | None:
        """Where a record begins, at or behind ``start``."""
        for at in range(start + -start % 8, min(end, start + (1 << 17)), 8):
            for n, (kind, place, size) in enumerate(self.records(at, end), 1):
                if kind not in _KINDS or size % 8:
                    break
                if kind == _SAMPLE and self.attr(place, size) < 0:
                    break
                if n >= _CHAIN:
                    return at
        return None


def glimpse_perf_data(path: Path, raw: Any) -> Glimpse | None:
    """Look at a perf.data; None for pipe mode and others that have to be read as a whole.

    Raises
    ------
    InputError
        Its header cannot be read.
    """
    order = (magic_of(raw) or (2, "<"))[1]
    if len(raw) >= 16 and struct.unpack_from(order + "Q", raw, 8)[0] == 16:
        # Pipe mode: attrs and formats are records among the others.
        return None
    issues = IssueLog()
    header = parse_header(path, raw, issues)
    features = parse_features(raw, header, issues)
    if header.simpleperf or header.unfinished or features.dir_version is not None:
        return None
    formats = _formats(raw, header)

    def format_of(attr: Attr) -> EventFormat | None:
        return formats.get(attr.config) if attr.type == TYPE_TRACEPOINT else None

    names = [event_name(a, format_of(a)) for a in header.attrs]
    out = Glimpse(make_meta(header, features, names, issues, folder=False), issues=issues)
    out.damaged = header.cut
    if features.topology is not None:
        out.topology = topology.from_perf_header(features.topology, IssueLog())
    out.total_bytes = header.data_end - header.data_start
    out.unknown |= {"lost.events", "lost.marks", "windows", "issues"}
    if _COMPRESSED in header.feature_bits:
        out.unknown.add("events")
        out.span = features.sample_time
        return out
    _sample(memoryview(raw), header, names, out)
    told = features.sample_time
    if told is not None and out.span is not None:
        if told[0] <= out.span[0] and out.span[1] <= told[1]:
            # The header's word, and no sample that was seen lies outside.
            out.span = told
            out.estimated.discard("span_ns")
    return out


def _formats(raw: Any, header: PerfHeader) -> dict[int, EventFormat]:
    place = header.features.get(1)
    if place is None:
        return {}
    try:
        blob = bytes(raw[place[0] : place[0] + place[1]])
        return {fmt.id: fmt for fmt in reversed(parse_tracing_data(blob).formats)}
    except (ValueError, struct.error, TraceanaError):
        return {}


def _stretches(header: PerfHeader) -> list[tuple[int, int]]:
    """Places and sizes to be read; one of all where that is not more."""
    start, end = header.data_start, header.data_end
    size = end - start
    if size <= 2 * _END + _STRETCHES * _STRETCH:
        return [(start, end)]
    out = [(start, start + _END)]
    room = size - 2 * _END - _STRETCH
    for i in range(_STRETCHES):
        at = start + _END + room * i // (_STRETCHES - 1)
        out.append((at, at + _STRETCH))
    return [*out, (end - _END, end)]


def _sample(buf: memoryview, header: PerfHeader, names: list[str], out: Glimpse) -> None:
    """Counts and times from stretches of the data."""
    reader = _Reader(buf, header)
    places = _stretches(header)
    counts = [0] * len(names)
    done = lost = 0
    first = last = None
    for index, (start, stop) in enumerate(places):
        at = start if index == 0 else reader.find(start, header.data_end)
        if at is None:
            continue
        for kind, place, size in reader.records(at, header.data_end):
            if place >= stop:
                break
            done += size
            if kind == _SAMPLE:
                attr = reader.attr(place, size)
                if attr < 0:
                    continue
                counts[attr] += 1
                ts = reader.time(place, size, attr)
                if ts is not None:
                    first = ts if first is None else min(first, ts)
                    last = ts if last is None else max(last, ts)
            elif kind in (_LOST, _LOST_SAMPLES):
                lost += 1
    whole = len(places) == 1
    out.sampled_bytes = done
    if first is not None and last is not None:
        out.span = first, last
    if not whole:
        out.estimated |= {"events", "span_ns"}
    factor = 1.0 if whole or not done else out.total_bytes / done
    sums: dict[str, float] = {}
    for name, n in zip(names, counts, strict=True):
        if n:
            sums[name] = sums.get(name, 0.0) + n * factor
    out.counts = {name: round(n) for name, n in sorted(sums.items())}
    if whole and not lost:
        out.unknown -= {"lost.events", "lost.marks"}
    elif lost:
        out.issues.add(
            "parse", "events_lost", f"{lost} records of lost events in the sample", count=lost
        )
