"""Raw pages of ftrace's ring buffers (copies of ``trace_pipe_raw``) with their formats beside.

Somebody copied, into a folder or a tar archive, ``per_cpu/cpuN/trace_pipe_raw`` and the files
``events/*/*/format`` and ``events/header_page`` of tracefs. Names are taken as they come:

* pages: ``cpuN``, ``cpuN.raw``, ``trace.dat.cpuN``, ``trace_pipe_raw.N``, ``cpuN/trace_pipe_raw``
* formats: ``SYSTEM/EVENT/format``, ``EVENT.format``
* beside them, where they are: ``header_page``, ``saved_cmdlines``, ``trace_clock``,
  ``cpuN/stats``
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from traceana.errors import FormatError, UnsupportedError
from traceana.parsers.archive import Files, folder_files, folder_names, tar_files
from traceana.parsers.cut import cut_reader
from traceana.parsers.formats import EventFormat, HeaderPage, parse_header_page
from traceana.parsers.payload import as_bytes
from traceana.parsers.reader import Reader
from traceana.parsers.trace_dat import TraceDatReader
from traceana.parsers.trace_dat_file import MAX_PAGE
from traceana.parsers.trace_dat_options import CPUSTAT, Options, chosen_clock
from traceana.parsers.trace_dat_parts import Buffer, CpuSection, TraceFile

__all__ = [
    "is_raw_pages_folder",
    "is_raw_pages_tar",
    "open_raw_pages_folder",
    "open_raw_pages_tar",
    "trace_file",
]

_PAGES = re.compile(
    r"(?:^|/)(?:cpu(\d{1,6})(?:\.raw|\.bin|\.pages)?|[^/]*\.cpu(\d{1,6})|"
    r"trace_pipe_raw[._-](?:cpu)?(\d{1,6})|cpu(\d{1,6})/trace_pipe_raw)$"
)
_FORMAT = re.compile(r"(?:^|/)(?:(?:([^/]+)/)?[^/]+/format|[^/]+\.format)$")
_STATS = re.compile(r"(?:^|/)cpu(\d{1,6})/stats$")
_BESIDE = ("header_page", "header_event", "saved_cmdlines", "trace_clock")

#: The head of a page of a 64-bit kernel with pages of 4 KiB: by far the most there are.
_USUAL = HeaderPage(0, 8, 8, 8, 16, 4080)


def page_cpu(name: str) -> int | None:
    """Of which CPU a file of this name holds pages; None: it is named otherwise."""
    match = _PAGES.search(name)
    return None if match is None else int(next(g for g in match.groups() if g is not None))


def _is_format(name: str) -> bool:
    return _FORMAT.search(name) is not None


def _wanted(name: str) -> bool:
    return (
        page_cpu(name) is not None
        or _is_format(name)
        or _STATS.search(name) is not None
        or PurePosixPath(name).name in _BESIDE
    )


def _are_pages(names: Iterable[str]) -> bool:
    names = list(names)
    return any(map(_is_format, names)) and any(page_cpu(n) is not None for n in names)


def is_raw_pages_folder(path: Path) -> bool:
    """Whether a folder holds pages and formats."""
    return _are_pages(folder_names(path))


def is_raw_pages_tar(buf: Any) -> bool:
    """Whether a tar archive holds pages and formats."""
    return _are_pages(tar_files(buf).places)


def _big_endian(files: Files, places: list[tuple[int, int]], page: HeaderPage) -> bool:
    """No file tells the byte order: that in which the first page's head can be."""
    for at, size in places:
        if size < page.data_offset:
            continue
        head = bytes(memoryview(files.buf)[at : at + page.data_offset])
        word = head[page.commit_offset : page.commit_offset + page.commit_size]
        stamp = head[page.timestamp_offset :][:8]
        possible = [
            int.from_bytes(word, order) & 0x3FFFFFFF <= page.data_size
            and int.from_bytes(stamp, order) >> 62 == 0
            for order in ("little", "big")
        ]
        if possible[0] != possible[1]:
            return possible[1]
    return False


def _formats(files: Files) -> list[EventFormat]:
    out = []
    for name in files.places:
        match = _FORMAT.search(name)
        if match is None:
            continue
        system = match[1] or ""
        fmt = EventFormat.parse(files.read(name), "" if system in ("events", "formats") else system)
        if fmt is not None:
            out.append(fmt)
    return out


def _beside(files: Files, base: str) -> bytes:
    name = min((n for n in files.places if PurePosixPath(n).name == base), key=len, default="")
    return files.read(name, 64 << 20)


def trace_file(path: Path, files: Files, form: str) -> TraceFile:
    """The files as a capture that :class:`TraceDatReader` reads.

    Raises
    ------
    FormatError, UnsupportedError
        There are no pages, no format, or an impossible head of pages.
    """
    pages = {cpu: n for n in files.places if (cpu := page_cpu(n)) is not None and not _is_format(n)}
    out = TraceFile(form, False, 4096)
    text = _beside(files, "header_page")
    page = parse_header_page(text) if text else _USUAL
    if page is None or page.page_size > MAX_PAGE:
        raise FormatError(
            path,
            "its header_page tells no possible place of stamp, commit and data",
            hint="copy events/header_page of the machine again",
        )
    if not text:
        out.issues.add(
            "parse", "header_page_missing", "no header_page: pages taken for 4096 bytes, 64 bit"
        )
    out.page, out.page_size = page, page.page_size
    places = [(cpu, *files.places[name]) for cpu, name in sorted(pages.items())]
    out.big_endian = _big_endian(files, [(at, size) for _, at, size in places], page)
    out.formats = _formats(files)
    if not out.formats:
        raise UnsupportedError(
            path, "raw pages without the formats of their events", hint="add events/*/*/format"
        )
    out.cmdlines = _beside(files, "saved_cmdlines")
    out.clock = chosen_clock(_beside(files, "trace_clock").decode("latin-1"))
    out.cpu_count = len(pages)
    options = Options(out)
    for name in files.places:
        match = _STATS.search(name)
        if match is not None:
            options.take(CPUSTAT, f"CPU: {int(match[1])}\n".encode() + files.read(name, 4096))
    stats = out.stats[0][1] if out.stats else {}
    sections = [CpuSection(cpu, at, size) for cpu, at, size in places]
    out.buffers.append(Buffer("", out.clock, page.page_size, sections, stats=stats))
    return out


def _open(path: Path, files: Files) -> Reader:
    file = trace_file(path, files, "raw ring-buffer pages")
    reader = TraceDatReader(path, as_bytes(files.buf), file)
    return reader if files.cut is None else cut_reader(reader, files.cut)


def open_raw_pages_folder(path: Path) -> Reader:
    """Open a folder of pages and formats; raises as :func:`trace_file`."""
    return _open(path, folder_files(path, _wanted))


def open_raw_pages_tar(path: Path, buf: Any) -> Reader:
    """Open a tar archive of pages and formats; raises as :func:`trace_file`."""
    return _open(path, tar_files(buf))
