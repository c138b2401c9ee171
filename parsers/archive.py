"""What lies in a tar archive or a folder, without unpacking: names, and places in one buffer.

Links, devices and sparse files are left out: no capture needs them. Every size is checked against
the rest of the archive.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceana.errors import FormatError, InputError

__all__ = ["Files", "folder_files", "folder_names", "is_tar", "tar_files"]

_BLOCK = 512
#: A capture in many files has some for each event and CPU.
MAX_FILES = 200_000
#: Names are paths of some hundred bytes.
_MAX_NAME = 1 << 16


@dataclass
class Files:
    """Files in one buffer: relative name -> (offset, size), in the order of the archive.

    ``cut``: in words where the archive ends too early, else None.
    """

    buf: Any
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    cut: str | None = None

    def read(self, name: str, limit: int = 1 << 20) -> bytes:
        """The first ``limit`` bytes of a file, b"" when there is none."""
        at, size = self.places.get(name, (0, 0))
        return bytes(memoryview(self.buf)[at : at + min(size, limit)])


def _checked(block: bytes) -> bool:
    """Whether the sum over a tar header is right."""
    stored = block[148:156].strip(b"\0 ")
    if len(block) < _BLOCK or not stored or re.fullmatch(rb"[0-7]+", stored) is None:
        return False
    return int(stored, 8) == sum(block[:148]) + 8 * 32 + sum(block[156:_BLOCK])


def is_tar(head: bytes) -> bool:
    """Whether content that begins so is a tar archive (of any age: told by its check sum)."""
    return _checked(head[:_BLOCK])


def _number(data: bytes) -> int:
    """A size: octal digits, or binary when the first bit is set (GNU); -1: neither."""
    if data[:1] >= b"\x80":
        return int.from_bytes(data, "big") & ((1 << 8 * len(data) - 1) - 1)
    text = data.strip(b"\0 ")
    if not text:
        return 0
    return int(text, 8) if re.fullmatch(rb"[0-7]+", text) else -1


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("utf-8", "backslashreplace")


def _pax_path(data: bytes) -> str | None:
    r"""The path of a pax header: records "LENGTH KEY=VALUE\n"."""
    path = None
    for line in data.split(b"\n"):
        _, _, record = line.partition(b" ")
        if record.startswith(b"path="):
            path = _text(record[5:])
    return path


def tar_files(buf: Any) -> Files:
    """The regular files of a tar archive."""
    view = memoryview(buf)
    out = Files(buf)
    at, long_name = 0, None
    while at + _BLOCK <= len(view) and len(out.places) < MAX_FILES:
        block = bytes(view[at : at + _BLOCK])
        if not block.strip(b"\0"):
            return out
        size = _number(block[124:136])
        if not _checked(block) or size < 0:
            out.cut = f"offset {at:#x}: no header of a tar archive where one must stand"
            return out
        kind, start = block[156:157], at + _BLOCK
        at = start + -(-size // _BLOCK) * _BLOCK
        have = max(0, min(size, len(view) - start))
        if have < size:
            out.cut = f"offset {len(view):#x}: the tar archive ends inside {_text(block[:100])!r}"
        if kind in (b"L", b"x"):
            data = bytes(view[start : start + min(have, _MAX_NAME)])
            long_name = _text(data) if kind == b"L" else _pax_path(data) or long_name
            continue
        name = _text(block[:100])
        if block[257:263] == b"ustar\0" and block[345:346] != b"\0":
            name = f"{_text(block[345:500])}/{name}"
        if kind in (b"0", b"\0", b"7") and not name.endswith("/"):
            out.places[(long_name or name).removeprefix("./")] = (start, have)
        if kind not in (b"g", b"K"):
            long_name = None
    if out.cut is None and at < len(view):
        out.cut = f"offset {at:#x}: the tar archive is cut, or has more than {MAX_FILES} files"
    return out


def folder_names(path: Path) -> list[str]:
    """Relative names of the regular files of a folder, at any depth; links are not followed."""
    out: list[str] = []
    for folder, dirs, names in os.walk(path, followlinks=False):
        dirs.sort()
        base = Path(folder)
        for name in sorted(names):
            if len(out) >= MAX_FILES:
                return out
            if (base / name).is_file() and not (base / name).is_symlink():
                out.append((base / name).relative_to(path).as_posix())
    return out


def folder_files(path: Path, wanted: Callable[[str], bool]) -> Files:
    """Files of a folder, those whose names are ``wanted``, one behind the other in a buffer.

    Raises
    ------
    InputError
        One cannot be read.
    FormatError
        Together they are larger than any capture.
    """
    from traceana.parsers.unwrap import Spool

    spool = Spool(path)
    places: dict[str, tuple[int, int]] = {}
    # A payload must not lie at the very front of a buffer.
    spool.write(bytes(64))
    for name in folder_names(path):
        if not wanted(name):
            continue
        at = spool.size
        try:
            with (path / name).open("rb") as file:
                while piece := file.read(1 << 20):
                    spool.write(piece)
        except OSError as error:
            raise InputError(path / name, f"cannot be read: {error.strerror}") from error
        places[name] = (at, spool.size - at)
    if not places:
        raise FormatError(path, "a folder without a capture's files", hint="give a capture")
    return Files(spool.finish(), places)
