"""Protobuf wire format for the few packets that are read field by field, and what unpacks packets.

The many (bundles of events) go through :mod:`~traceana.parsers._perfetto_kernels`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

__all__ = ["MAX_UNPACKED", "fields", "inflate", "is_perfetto", "signed", "text", "varint"]

#: A compressed packet holds less than 512 KB by its own rule; what unpacks to more than this is
#: taken for a bomb.
MAX_UNPACKED = 16 << 20
_STEP = 1 << 12
#: Nobody writes a larger packet.
MAX_PACKET = 1 << 28
#: Fields of TracePacket have lower numbers.
MAX_FIELD = 1024
#: Those that are numbers; all others are messages or bytes.
_VARINTS = frozenset((3, 8, 10, 13, 41, 42, 58, 79, 87, 98))


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at ``data[at]`` as u64 and where it ends (-1: it does not)."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
    return 0, -1


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, u64 or bytes) of a message, as far as it can be read; fixed ones as bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if at < 0:
            return
        wire = tag & 7
        if wire == 0:
            value, at = varint(data, at)
            if at < 0:
                return
            yield tag >> 3, value
            continue
        if wire == 2:
            size, at = varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            return
        if at < 0 or size > len(data) - at:
            return
        yield tag >> 3, data[at : at + size]
        at += size


def signed(value: int | bytes) -> int:
    """A varint as the int64 that it stands for (0 for what is none)."""
    if isinstance(value, bytes):
        return 0
    return value - (1 << 64) if value >> 63 else value


def text(value: int | bytes) -> str:
    r"""A string field (what is no UTF-8 as ``\xNN``)."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else ""


def inflate(data: bytes, zstd: bool, limit: int = MAX_UNPACKED) -> tuple[bytes, str | None]:
    """What a compressed packet holds, and what was wrong with it (None: nothing).

    In case of damage, what came before it; of more than ``limit`` bytes, the first ones.
    """
    out: list[bytes] = []
    size = 0
    if zstd:
        import zstandard

        failure: type[Exception] = zstandard.ZstdError
        try:
            stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(data)
            while size <= limit:
                piece = stream.read(1 << 16)
                if not piece:
                    return b"".join(out), None
                out.append(piece)
                size += len(piece)
        except failure as error:
            return b"".join(out), f"cannot be unpacked: {error}"
        return b"".join(out)[:limit], f"unpacks to more than {limit} bytes"
    done, wrong = _zlib(data, _STEP, limit)
    if wrong and not wrong.startswith("unpacks"):
        # What a step gave before it failed is lost: once more, byte by byte.
        done, _ = _zlib(data, 1, limit)
    return done, wrong


def _zlib(data: bytes, step: int, limit: int) -> tuple[bytes, str | None]:
    engine = zlib.decompressobj()
    out: list[bytes] = []
    size = at = 0
    try:
        while not engine.eof:
            piece = engine.unconsumed_tail
            if not piece:
                piece = data[at : at + step]
                at += len(piece)
                if not piece:
                    return b"".join(out), "its compressed data is cut"
            out.append(engine.decompress(piece, 1 << 16))
            size += len(out[-1])
            if size > limit:
                return b"".join(out)[:limit], f"unpacks to more than {limit} bytes"
    except zlib.error as error:
        return b"".join(out), f"cannot be unpacked: {error}"
    return b"".join(out), None


def is_perfetto(head: bytes) -> bool:
    """Whether content that begins with ``head`` is a run of packets.

    Each packet must be a run of fields of a TracePacket that fill it. Without a second packet to
    confirm, a first one that is longer than the head must show some of them.
    """
    if head[:1] != b"\x0a" or not any(b < 9 or b > 126 for b in head[:512]):
        return False
    at = packets = 0
    while at < len(head) and packets < 8:
        if head[at] != 0x0A:
            return False
        length, body = varint(head, at + 1)
        if body < 0:
            break
        if not 2 <= length < MAX_PACKET:
            return False
        end = body + length
        seen = _fields_fit(head, body, end)
        if seen < 0:
            return False
        if end > len(head):
            return packets > 0 or (seen > 1 and len(head) >= 32)
        at = end
        packets += 1
    return packets > 0


def _fields_fit(head: bytes, at: int, end: int) -> int:
    """How many fields of a packet ``head`` shows in [at, end); -1: they are none."""
    seen = 0
    while at < min(end, len(head)):
        tag, at = varint(head, at)
        if at < 0:
            break
        number, wire = tag >> 3, tag & 7
        if not 0 < number < MAX_FIELD or wire != (0 if number in _VARINTS else 2):
            return -1
        size, at = varint(head, at)
        if at < 0:
            break
        at += size if wire == 2 else 0
        if at > end:
            return -1
        seen += 1
    return seen
