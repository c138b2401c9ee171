"""A perf.data folder (``perf record --threads``, ``--kcore``), as it is or in a tar archive.

Its file ``data`` has header, features and perf's own records; ``data.0`` and so on hold what each
ring held, every one in its own order of time (tools/perf/util/data.c).
"""

from __future__ import annotations

import io
import mmap
import re
from pathlib import Path
from typing import Any

from traceana.errors import FormatError, InputError
from traceana.parsers.archive import tar_files
from traceana.parsers.cut import cut_reader
from traceana.parsers.perf_data import PerfDataReader, open_perf_data
from traceana.parsers.perf_header import magic_of
from traceana.parsers.reader import Reader

__all__ = ["is_perf_folder", "is_perf_tar", "open_perf_folder", "open_perf_tar"]

_PART = re.compile(r"data\.(\d{1,6})")


def is_perf_folder(path: Path) -> bool:
    """Whether a folder is one that perf recorded: its file data begins like a perf.data."""
    try:
        with (path / "data").open("rb") as file:
            return magic_of(file.read(8)) is not None
    except OSError:
        return False


def _mapped(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            size = file.seek(0, io.SEEK_END)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from error


def _open(path: Path, files: dict[str, Any]) -> PerfDataReader:
    """A reader of the files of a folder, by their names."""
    numbers = sorted(int(m[1]) for name in files if (m := _PART.fullmatch(name)))
    parts = [(f"data.{n}", files[f"data.{n}"]) for n in numbers if f"data.{n}" in files]
    if not parts:
        return open_perf_data(path, files["data"])
    if magic_of(files["data"]) is None:
        raise FormatError(path, "its file data is not a perf.data")
    return PerfDataReader(path, files["data"], parts=parts)


def open_perf_folder(path: Path) -> PerfDataReader:
    """A reader of a perf.data folder (see :func:`is_perf_folder`).

    Raises
    ------
    InputError
        A file in it cannot be read; otherwise as :func:`open_perf_data`.
    """
    try:
        names = [p.name for p in path.iterdir() if p.name == "data" or _PART.fullmatch(p.name)]
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from error
    if "data" not in names:
        raise FormatError(path, "a folder without the file data: not a perf.data folder")
    return _open(path, {name: _mapped(path / name) for name in names})


def _members(buf: Any) -> tuple[dict[str, Any], str | None]:
    """The files of the first perf.data folder in a tar archive, as parts of ``buf``, or none.

    And, in words, where the archive ends too early, if it does; a file that this cuts is given
    up to there.
    """
    files = tar_files(buf)
    folders: dict[str, dict[str, tuple[int, int]]] = {}
    for name, place in files.places.items():
        folder, _, bare = name.rpartition("/")
        if bare == "data" or _PART.fullmatch(bare):
            folders.setdefault(folder, {})[bare] = place
    view = memoryview(buf)
    for found in folders.values():
        at, size = found.get("data", (0, 0))
        if magic_of(view[at : at + size][:8]) is not None:
            return {name: view[at : at + size] for name, (at, size) in found.items()}, files.cut
    return {}, None


def is_perf_tar(buf: Any) -> bool:
    """Whether a tar archive holds a perf.data folder."""
    return bool(_members(buf)[0])


def open_perf_tar(path: Path, buf: Any) -> Reader:
    """A reader of the perf.data folder in a tar archive; raises as :func:`open_perf_data`."""
    files, cut = _members(buf)
    if not files:
        raise FormatError(path, "a tar archive without a perf.data folder: not a capture")
    reader = _open(path, files)
    return reader if cut is None else cut_reader(reader, cut, "wrapper_cut")
