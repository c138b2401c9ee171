"""Slow, plain reading of ring-buffer pages and of event payloads, to judge the kernels by.

Written from the description of the format alone (kernel/trace/ring_buffer.c); nothing of
traceana's parsers is used, not even to find the fields: they are looked up in the format texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

TIME_LIMIT = 1 << 62


@dataclass
class Record:
    """A data record: its time, its payload, and what was lost before it (-1: not told).

    ``key`` is the highest time that its CPU has shown so far, in records and on heads of pages.
    """

    ts: int
    payload: bytes
    lost: int | None = None
    key: int = 0


@dataclass
class Stream:
    records: list[Record] = field(default_factory=list)
    errors: int = 0


def read_cpu(data: bytes, *, page_size: int, big: bool, long: int, type_end: int = 2) -> Stream:
    """All records of one CPU's pages, and how many damaged places there are."""
    order: Any = "big" if big else "little"
    head = 8 + long
    out = Stream()
    lost: int | None = None
    high = 0

    def number(at: int, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(data[at : at + size], order, signed=signed)

    for start in range(0, len(data), page_size):
        have = min(page_size, len(data) - start)
        if have < head:
            out.errors += 1
            break
        word = number(start + 8 + (long - 4 if big else 0), 4)
        commit = word & ((1 << 27) - 1)
        if commit > have - head:
            out.errors += 1
            if have < page_size:
                break
            lost = -1  # what is left out for damage is lost
            continue
        if word >> 31:
            count = -1
            if word >> 30 & 1 and head + commit + long <= have:
                count = number(start + head + commit, long, signed=True)
                count = count if 0 < count < 1 << 48 else -1
            lost = count if lost is None else -1 if -1 in (lost, count) else lost + count
        now = number(start, 8)
        if now >= TIME_LIMIT:
            out.errors += 1
            lost = -1
            continue
        high = max(high, now)
        at, end = start + head, start + head + commit
        while at < end:
            if end - at < 4:
                out.errors += 1
                lost = -1
                break
            word = number(at, 4)
            kind, delta = (word >> 27, word & (1 << 27) - 1) if big else (word & 31, word >> 5)
            if kind == 29 and delta == 0:
                break
            if 1 <= kind <= 28:
                first, size, after = at + 4, 4 * kind, at + 4 + 4 * kind
            else:
                if end - at < 8:
                    out.errors += 1
                    lost = -1
                    break
                more = number(at + 4, 4)
                if kind == 30:
                    # Times wrap like the kernel's own 64-bit numbers.
                    now = _wrap(now + (more << 27 | delta))
                    at += 8
                    continue
                if kind == 31:
                    now = _wrap(now >> 59 << 59 | more << 27 | delta)
                    at += 8
                    continue
                if kind == 29:
                    now = _wrap(now + delta)
                    if at + 4 + more > end:
                        out.errors += 1
                        lost = -1
                        break
                    at += 4 + more
                    continue
                first, size, after = at + 8, more - 4, at + 4 + -(-more // 4) * 4
                if more < 4:
                    after = end + 1
            if after > end:
                out.errors += 1
                lost = -1
                break
            if not 0 <= now + delta < TIME_LIMIT:
                out.errors += 1
                lost = -1
                break
            now += delta
            high = max(high, now)
            at = after
            payload = data[first : first + size]
            out.records.append(Record(now, payload, lost, high))
            lost = None
            if size < type_end:
                out.errors += 1
    return out


def _wrap(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def fields_of(text: bytes) -> dict[str, tuple[int, int, bool, str]]:
    """Field name -> offset, size, signed, C text of its type."""
    out = {}
    for line in text.decode().splitlines():
        found = re.match(r"\s*field:(.*);\s*offset:(\d+);\s*size:(\d+);\s*signed:(\d);", line)
        if found:
            declared = re.sub(r"\[\d*\]$", "", found[1])
            ctype, name = declared.rsplit(" ", 1)
            out[name] = int(found[2]), int(found[3]), found[4] == "1", ctype
    return out


def values_of(text: bytes, payload: bytes, *, big: bool) -> dict[str, Any] | None:
    """All fields of a payload by its format; None when it is too short for one of them."""
    order: Any = "big" if big else "little"
    out: dict[str, Any] = {}
    for name, (offset, size, signed, ctype) in fields_of(text).items():
        raw = payload[offset : offset + size]
        if len(raw) < size:
            return None
        if "__data_loc" in ctype or "__rel_loc" in ctype:
            word = int.from_bytes(raw, order)
            start = word & 0xFFFF
            if "__rel_loc" in ctype:
                start += offset + 4
            text_bytes = payload[start : start + (word >> 16)]
            whole = start + (word >> 16) <= len(payload)
            out[name] = text_bytes.split(b"\0")[0] if whole else None
        elif size not in (1, 2, 4, 8):
            out[name] = raw.split(b"\0")[0]
        else:
            out[name] = int.from_bytes(raw, order, signed=signed)
    return out


def merged(streams: dict[int, Stream]) -> list[tuple[int, Record]]:
    """(cpu, record) in the order of time: by running maximum, then CPU, then place."""
    rows = [
        (record.key, cpu, i, record)
        for cpu, stream in streams.items()
        for i, record in enumerate(stream.records)
    ]
    rows.sort(key=lambda r: r[:3])
    return [(cpu, record) for _, cpu, _, record in rows]
