"""Bytes of an input: mapped from a file, read from a pipe, and taken out of what wraps them.

A capture may come in gzip, xz, zstd, bzip2, zip or tar, whatever its name says. It is unpacked
while it is read, into memory when small, else into a file without a name, which is mapped.
Nothing here knows what a capture is: which one of several files in an archive is meant is asked
of whoever calls.
"""

from __future__ import annotations

import bz2
import io
import lzma
import mmap
import os
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from traceana.errors import FormatError, InputError, UnsupportedError
from traceana.parsers.archive import is_tar, tar_files

__all__ = ["Entry", "Input", "Pick", "Spool", "open_input"]

#: A capture in a wrapper in a wrapper in a wrapper: deeper is a game.
MAX_DEPTH = 3
#: No capture that is sent around in a wrapper is larger.
MAX_SIZE = 64 << 30
#: From this size on, what grew more than BOMB_RATIO times when unpacked is taken for a bomb.
#: (Captures shrink to a fifth to a fiftieth.)
BOMB_SIZE = 256 << 20
BOMB_RATIO = 400
#: Up to here unpacked bytes stay in memory.
IN_MEMORY = 64 << 20

_PIECE = 1 << 20
_COPY = "copy it again from where it was recorded"

#: What the unpackers raise for data that is none of theirs.
_BROKEN = (
    ValueError,
    RuntimeError,
    NotImplementedError,
    OSError,
    IndexError,
    OverflowError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
)

Bytes = mmap.mmap | bytes | memoryview

_MAGICS = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x50\x2a\x4d\x18", "zstd"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
)


@dataclass
class Input:
    """The unwrapped bytes: ``buf`` is a read-only mmap or bytes.

    ``wrappers`` names what was taken off, outermost first; ``cut`` says at which point the
    innermost cut wrapper ended, None when all were whole.
    """

    buf: Bytes
    wrappers: list[str] = field(default_factory=list)
    cut: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in an archive: its name, its size, and how its content begins, out of wrappers.

    ``head`` is b"" for files that are too small for a capture, and behind very many.
    """

    name: str
    size: int
    head: bytes


#: Which of an archive's files is the capture (its index); None: none of them is, the archive itself
#: is to be taken as it is.
Pick = Callable[[Path, str, Any, Iterator[Entry]], int | None]

#: How much of a file in an archive tells what it is.
_HEAD = 1 << 16
#: Files of an archive that are looked into, if they are not too small for a capture.
_MAX_ENTRIES = 500
_SMALLEST = 64


class Spool:
    """Collects bytes in memory, and in a file without a name once there are many."""

    def __init__(self, path: Path, wrapped: int | None = None) -> None:
        self._path = path
        self._wrapped = wrapped
        self._parts: list[bytes] = []
        self._file: IO[bytes] | None = None
        self.size = 0

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        bomb = (
            self._wrapped is not None
            and self.size > BOMB_SIZE
            and self.size > self._wrapped * BOMB_RATIO
        )
        if bomb or self.size > MAX_SIZE:
            raise FormatError(
                self._path,
                f"grows to more than {self.size >> 20} MB when unpacked",
                hint="a capture does not; unpack it by hand if it is one",
            )
        try:
            if self._file is None and self.size > IN_MEMORY:
                self._file = tempfile.TemporaryFile(prefix="traceana-")  # noqa: SIM115
                self._file.writelines(self._parts)
                self._parts = []
            if self._file is None:
                self._parts.append(piece)
            else:
                self._file.write(piece)
        except OSError as error:
            raise InputError(
                self._path,
                f"no room to unpack it: {error.strerror}",
                hint="set TMPDIR to a folder with room",
            ) from error

    def finish(self) -> mmap.mmap | bytes:
        if self._file is None:
            return b"".join(self._parts)
        with self._file as file:
            file.flush()
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _pieces(buf: Bytes) -> Iterator[memoryview]:
    view = memoryview(buf)
    for at in range(0, len(view), _PIECE):
        yield view[at : at + _PIECE]


def _decoded(buf: Bytes, new: Callable[[], Any], magic: bytes) -> Iterator[bytes]:
    """What the streams in buf, one behind the other, unpack to.

    Raises EOFError when the last one is cut; bytes behind a stream that begin no other one are
    left out, as the tools themselves do.
    """
    engine, begun, tail = new(), False, b""
    for piece in _pieces(buf):
        data = tail + bytes(piece)
        tail = b""
        while data:
            if not begun and len(data) < len(magic):
                tail = data
                break
            if not begun and not data.startswith(magic):
                return
            begun = True
            # A small input can unpack to very much: take it in steps.
            out = engine.decompress(data, _PIECE)
            if out:
                yield out
            if engine.eof:
                data = engine.unused_data
                engine, begun = new(), False
                continue
            data = getattr(engine, "unconsumed_tail", b"")
            while not data and not getattr(engine, "needs_input", True):
                out = engine.decompress(b"", _PIECE)
                if out:
                    yield out
                if engine.eof:
                    data = engine.unused_data
                    engine, begun = new(), False
                    break
    if begun:
        raise EOFError


_ZSTD = b"\x28\xb5\x2f\xfd"
#: Frames that hold no data: 16 magics from 0x184D2A50 on (pzstd begins with one).
_ZSTD_SKIP = b"\x2a\x4d\x18"


def _zstd(buf: Bytes) -> Iterator[bytes]:
    """What the frames in buf unpack to; EOFError when the last one is cut."""
    import zstandard

    view = memoryview(buf)
    at = 0
    while at < len(view):
        head = bytes(view[at : at + 8])
        if head[1:4] == _ZSTD_SKIP and head[0] >> 4 == 5:
            at += 8 + int.from_bytes(head[4:], "little")
            continue
        if head[:4] != _ZSTD:
            return
        engine = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
        while not engine.eof:
            # In small steps: 4 bytes can unpack to 128 KB.
            piece = bytes(view[at : at + 4096])
            if not piece:
                raise EOFError
            try:
                out = engine.decompress(piece)
            except zstandard.ZstdError as error:
                raise ValueError(str(error)) from error
            at += len(piece)
            if out:
                yield out
        at -= len(engine.unused_data)


class _View(io.RawIOBase):
    """A buffer as the file that zipfile wants, without a copy of it."""

    def __init__(self, buf: Any) -> None:
        self._view = memoryview(buf)
        self._at = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, len(self._view))[whence])
        return self._at

    def read(self, n: int | None = -1) -> bytes:
        end = len(self._view) if n is None or n < 0 else self._at + n
        out = bytes(self._view[self._at : end])
        self._at += len(out)
        return out


def _zip(path: Path, buf: Bytes, pick: Pick | None) -> Iterator[bytes]:
    """The one file of a zip archive, or of several that which is picked."""
    with zipfile.ZipFile(_View(buf)) as archive:
        members = [m for m in archive.infolist() if not m.filename.endswith("/")]
        chosen: int | None = 0 if len(members) == 1 else None
        if len(members) > 1 and pick is not None:
            chosen = pick(path, "zip", buf, _zip_entries(archive, members))
        if chosen is None:
            raise UnsupportedError(
                path,
                f"a zip archive of {len(members)} files",
                hint="unpack it and give the capture inside",
            )
        if members[chosen].flag_bits & 1:
            raise UnsupportedError(path, "an encrypted zip archive", hint="unpack it first")
        with archive.open(members[chosen]) as file:
            while piece := file.read(_PIECE):
                yield piece


def _zip_entries(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> Iterator[Entry]:
    left = _MAX_ENTRIES
    for member in members:
        head = b""
        if not member.flag_bits & 1 and member.file_size >= _SMALLEST and left:
            left -= 1
            try:
                with archive.open(member) as file:
                    head = file.read(_HEAD)
            except _BROKEN:
                pass
        yield Entry(member.filename, member.file_size, _bare(head))


def _bare(head: bytes) -> bytes:
    """The beginning of what is in the wrappers of a file that begins with ``head``."""
    for _ in range(MAX_DEPTH):
        kind = _wrapper(head)
        if kind is None or kind == "zip":
            break
        out: list[bytes] = []
        try:
            for piece in _unpacked(Path(), head, kind):
                out.append(piece[:_HEAD])
                if sum(map(len, out)) >= _HEAD:
                    break
        except (EOFError, *_BROKEN):
            pass
        head = b"".join(out)[:_HEAD]
    return head


def _take_from_tar(path: Path, given: Input, pick: Pick | None) -> bool:
    """Go on with the one file in a tar archive that is meant; False: with the archive itself."""
    files = tar_files(given.buf)
    names = list(files.places)

    def entries() -> Iterator[Entry]:
        left = _MAX_ENTRIES
        for name in names:
            size, head = files.places[name][1], b""
            if size >= _SMALLEST and left:
                left -= 1
                head = _bare(files.read(name, _HEAD))
            yield Entry(name, size, head)

    chosen = None if pick is None else pick(path, "tar", given.buf, entries())
    if chosen is None:
        return False
    at, size = files.places[names[chosen]]
    given.buf = memoryview(given.buf)[at : at + size]
    given.wrappers.append("tar")
    if files.cut is not None and chosen == len(names) - 1:
        given.cut = files.cut
    return True


def _unpacked(path: Path, buf: Bytes, kind: str, pick: Pick | None = None) -> Iterator[bytes]:
    if kind == "gzip":
        return _decoded(buf, lambda: zlib.decompressobj(31), b"\x1f\x8b\x08")
    if kind == "xz":
        return _decoded(buf, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), b"\xfd7zXZ\x00")
    if kind == "bzip2":
        return _decoded(buf, bz2.BZ2Decompressor, b"BZh")
    if kind == "zstd":
        return _zstd(buf)
    return _zip(path, buf, pick)


def _take_off(path: Path, given: Input, kind: str, pick: Pick | None) -> None:
    """Take one wrapper off."""
    spool = Spool(path, len(given.buf))
    try:
        for piece in _unpacked(path, given.buf, kind, pick):
            spool.write(piece)
    except EOFError:
        given.cut = f"the {kind} data around it is cut after {len(given.buf)} bytes"
    except _BROKEN as error:
        what = str(error) or type(error).__name__
        if not spool.size:
            raise FormatError(
                path, f"{kind} data that cannot be unpacked: {what}", hint=_COPY
            ) from error
        given.cut = f"the {kind} data around it is damaged after {spool.size} bytes: {what}"
    if not spool.size:
        raise FormatError(
            path,
            f"{kind} data with nothing in it" + (f": {given.cut}" if given.cut else ""),
            hint=_COPY,
        )
    given.buf = spool.finish()
    given.wrappers.append(kind)


def _wrapper(buf: Bytes) -> str | None:
    head = bytes(buf[:8])
    for magic, kind in _MAGICS:
        if head.startswith(magic):
            return kind
    return None


def _map(path: Path, file: IO[bytes]) -> mmap.mmap | bytes:
    """The bytes of an open file: mapped if it is one, else read to its end."""
    try:
        facts = os.fstat(file.fileno())
        if stat.S_ISREG(facts.st_mode):
            if facts.st_size:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            # Files of /proc and tracefs say that they are empty and are not.
            return file.read()
    except (OSError, ValueError, AttributeError):
        pass
    spool = Spool(path)
    while piece := file.read(_PIECE):
        spool.write(piece)
    return spool.finish()


def open_input(path: Path, *, stdin: IO[bytes] | None = None, pick: Pick | None = None) -> Input:
    """The bytes of ``path``, or of ``stdin`` when one is given, out of their wrappers.

    ``pick`` chooses among the files of an archive; without it a tar archive stays one, and a zip
    archive of several files is refused.

    Raises
    ------
    InputError
        There is no such file, or it cannot be read.
    FormatError, UnsupportedError
        A wrapper that cannot be unpacked, is a bomb, or holds several files.
    """
    try:
        if stdin is not None:
            given = Input(_map(path, stdin))
        else:
            with path.open("rb") as file:
                given = Input(_map(path, file))
    except FileNotFoundError as error:
        raise InputError(path, "no such file") from error
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from error
    while kind := _wrapper(given.buf) or ("tar" if is_tar(bytes(given.buf[:512])) else None):
        if len(given.wrappers) == MAX_DEPTH:
            raise FormatError(
                path,
                f"{kind} in {' in '.join(given.wrappers[::-1])}: more than {MAX_DEPTH} wrappers",
                hint="unpack it by hand",
            )
        if kind != "tar":
            _take_off(path, given, kind, pick)
        elif not _take_from_tar(path, given, pick):
            break
    return given
