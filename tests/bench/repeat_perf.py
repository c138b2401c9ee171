"""Makes a long perf.data out of a short one: the recording, K times in a row.

    python tests/bench/repeat_perf.py IN.perf.data[.xz] OUT.perf.data K

Every record with a time is copied K times, each copy shifted by the recording's span: TIME of
samples, TIME in the sample_id trailers, and the time inside FORK and EXIT. Records without a
time (what perf makes up before and after the run) stand once, FINISHED_ROUND marks in every
copy. data.size and the places of the features follow, so that perf reads the result, too.
Only file mode, little endian, without AUX data.
"""

from __future__ import annotations

import lzma
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

_SAMPLE_FIELDS = ((0x10000, "id"), (0x1, "ip"), (0x2, "tid"), (0x4, "time"))
_TRAILER_FIELDS = ((0x10000, "id"), (0x80, "cpu"), (0x200, "stream"), (0x40, "id"), (0x4, "time"))
_FORK, _EXIT, _SAMPLE, _FINISHED_ROUND = 7, 4, 9, 68
_SAMPLE_TIME_BIT = 21
_GAP_NS = 1000


def _time_place(sample_type: int, fields: tuple[tuple[int, str], ...]) -> int:
    at = 0
    for bit, name in fields:
        if name == "time":
            return at
        at += 8 * bool(sample_type & bit)
    raise AssertionError


def repeat_perf(source: bytes, times: int) -> Iterator[bytes]:
    """The pieces of the long file, to be written one after the other."""
    if source[:8] != b"PERFILE2":
        raise ValueError("not a little endian perf.data")
    head_size, attr_size, at, attrs_size, data, data_size = struct.unpack_from("<6Q", source, 8)
    if head_size != 104 or data_size == 0:
        raise ValueError("not a finished perf.data in file mode")
    types = [
        struct.unpack_from("<Q", source, at + i * attr_size + 24)[0]
        for i in range(attrs_size // attr_size)
    ]
    if not all(t & 0x4 for t in types):
        raise ValueError("an event has no TIME")
    in_sample = {8 + _time_place(t, _SAMPLE_FIELDS) for t in types}
    in_trailer = {8 + _time_place(t, _TRAILER_FIELDS) for t in types}
    if len(in_sample) != 1 or len(in_trailer) != 1:
        raise ValueError("the events keep TIME in different places")
    (sample_at,), (trailer_at,) = in_sample, in_trailer

    once: list[tuple[int, int]] = []  # spans of records without a time
    again: list[tuple[int, int]] = []  # spans of those that are repeated
    places: list[int] = []  # of the times, in what is repeated
    stamps: list[int] = []
    shift = 0
    offset = data
    while offset + 8 <= data + data_size:
        kind, _, size = struct.unpack_from("<IHH", source, offset)
        if size < 8 or size % 8:
            raise ValueError(f"record of size {size} at {offset:#x}")
        if kind == _SAMPLE:
            place = sample_at
        elif kind == _FINISHED_ROUND or kind >= 64 or size < 8 + trailer_at:
            place = 0
        else:
            place = size - trailer_at
        stamp = struct.unpack_from("<Q", source, offset + place)[0] if place else 0
        if stamp or kind == _FINISHED_ROUND:
            if stamp:
                places.append(shift + place)
                stamps.append(stamp)
                if kind in (_FORK, _EXIT):
                    places.append(shift + 24)
            again.append((offset, offset + size))
            shift += size
        else:
            once.append((offset, offset + size))
        offset += size
    # What stands behind the last repeated record (sums of losses) stays behind.
    last = again[-1][1]
    before = b"".join(source[a:b] for a, b in once if a < last)
    after = b"".join(source[a:b] for a, b in once if a >= last)
    body = np.frombuffer(b"".join(source[a:b] for a, b in again), "<u8")
    index = np.array(places) // 8
    span = max(stamps) - min(stamps) + _GAP_NS

    new_size = len(before) + times * body.nbytes + len(after)
    moved = new_size - data_size
    head = bytearray(source[:data])
    struct.pack_into("<Q", head, 48, new_size)
    tail = bytearray(source[data + data_size :])
    bits = int.from_bytes(source[72:104], "little")
    for entry, bit in enumerate(b for b in range(256) if bits >> b & 1):
        place, size = struct.unpack_from("<QQ", tail, 16 * entry)
        struct.pack_into("<Q", tail, 16 * entry, place + moved)
        if bit == _SAMPLE_TIME_BIT and size == 16:
            inner = place - data - data_size
            (end,) = struct.unpack_from("<Q", tail, inner + 8)
            if end:
                struct.pack_into("<Q", tail, inner + 8, end + (times - 1) * span)
    yield bytes(head)
    yield before
    for k in range(times):
        copy = body.copy()
        copy[index] += np.uint64(k * span)
        yield copy.tobytes()
    yield after
    yield bytes(tail)


def repeat(source: Path, target: Path, times: int) -> None:
    """Write ``target``: the recording ``source`` (may be wrapped in xz), ``times`` times."""
    content = source.read_bytes()
    if content[:6] == b"\xfd7zXZ\0":
        content = lzma.decompress(content)
    pieces = repeat_perf(content, times)
    with target.open("wb") as handle:
        handle.writelines(pieces)


def main(arguments: list[str]) -> int:
    if len(arguments) != 3:
        print(__doc__)
        return 2
    repeat(Path(arguments[0]), Path(arguments[1]), int(arguments[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
