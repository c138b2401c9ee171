"""Which form an input has, told by its content, and who reads it.

Adding a form: a module with ``open_NAME(path, buf) -> Reader`` (``buf`` is the unwrapped content,
read-only), and a line in ``FORMS``: for binary forms with a test of the first bytes here, for
texts with a function ``sniff(head) -> float`` in the module (0 to 1, the surest wins).
Adding a thing that is not to be read: a line in ``_refusals``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from traceana.errors import FormatError, InputError, UnsupportedError
from traceana.parsers.reader import Reader
from traceana.parsers.unwrap import Input, open_input

__all__ = ["FORMS", "Form", "open_reader"]

#: How much of the content tells what it is.
HEAD = 1 << 16


@dataclass(frozen=True, slots=True)
class Form:
    """A form that can be read: ``module`` has ``opener``; ``magic`` is the test of binary forms."""

    name: str
    module: str
    opener: str
    magic: Callable[[bytes], bool] | None = None

    def confidence(self, head: bytes) -> float:
        """How sure it is that the content has this form."""
        if self.magic is not None:
            return 1.0 if self.magic(head) else 0.0
        return float(importlib.import_module(self.module).sniff(head))

    def open(self, path: Path, buf: Any) -> Reader:
        reader: Reader = getattr(importlib.import_module(self.module), self.opener)(path, buf)
        return reader


def _is_trace_dat(head: bytes) -> bool:
    return head.startswith(b"\x17\x08\x44tracing")


def _is_perf_data(head: bytes) -> bool:
    if head[:8] not in (b"PERFILE2", b"2ELIFREP"):
        return False
    order: Any = "little" if head[:8] == b"PERFILE2" else "big"
    return int.from_bytes(head[8:16], order) != 16


FORMS: tuple[Form, ...] = (
    Form("trace.dat", "traceana.parsers.trace_dat", "open_trace_dat", _is_trace_dat),
    Form("perf.data", "traceana.parsers.perf_data", "open_perf_data", _is_perf_data),
    Form("tracefs text", "traceana.parsers.ftrace_text", "open_ftrace_text"),
    Form("trace-cmd report text", "traceana.parsers.trace_cmd_text", "open_trace_cmd_text"),
    Form("perf script text", "traceana.parsers.perf_script", "open_perf_script"),
)

_GIVE_CAPTURE = (
    "give a capture: trace.dat, perf.data, tracefs trace text, or what trace-cmd report or perf "
    "script print"
)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """What something is that is not read; ``known`` forms are captures, only not read yet."""

    what: str
    hint: str = _GIVE_CAPTURE
    known: bool = False


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 63:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
        shift += 7
    return -1, at


def _is_perfetto(head: bytes, size: int) -> bool:
    """A run of length-delimited fields 1 whose content begins with a plausible field, too."""
    at = packets = 0
    while at < len(head) and head[at] == 0x0A and packets < 8:
        length, at = _varint(head, at + 1)
        if length < 2 or at + length > size:
            return False
        if at < len(head) and (head[at] & 7 not in (0, 1, 2, 5) or head[at] >> 3 == 0):
            return False
        at += length
        packets += 1
    return packets >= 2 and (at >= len(head) or packets == 8 or head[at] == 0x0A)


def _is_ring_page(head: bytes) -> bool:
    """One page of ``trace_pipe_raw``: 64-bit little endian, its events fill it as it says."""
    if len(head) < 4096:
        return False
    commit = int.from_bytes(head[8:16], "little")
    used = commit & 0x7FFFFFF
    if not 8 <= used <= 4080 or commit >> 32 or int.from_bytes(head[:8], "little") >> 62:
        return False
    at, end = 16, 16 + used
    while at + 4 <= end:
        word = int.from_bytes(head[at : at + 4], "little")
        kind = word & 31
        more = int.from_bytes(head[at + 4 : at + 8], "little")
        if kind == 29 and word == 29:
            return True
        if kind in (30, 31):
            at += 8
        elif kind == 29:
            at += 4 + more
        elif kind == 0:
            if more < 4:
                return False
            at += 4 + (more + 3 & ~3)
        else:
            at += 4 + 4 * kind
    return at == end


_MAGICS: tuple[tuple[int, bytes, _Refusal], ...] = (
    (0, b"PERFFILE", _Refusal("a perf.data of version 1 (perf before 3.0)", known=True)),
    (0, b"ELIFFREP", _Refusal("a perf.data of version 1 (perf before 3.0)", known=True)),
    (0, b"OHOSPROF", _Refusal("an OpenHarmony .htrace", known=True)),
    (0, b"Ftrace!\0", _Refusal("uftrace data, not an ftrace of the kernel")),
    (0, b"\xc1\xfc\x1f\xc1", _Refusal("a stream of a CTF trace (LTTng)", known=True)),
    (0, b"\xc1\x1f\xfc\xc1", _Refusal("a stream of a CTF trace (LTTng)", known=True)),
    (72, b"\x02\x00\x01\xc0", _Refusal("a Windows ETL trace")),
    (72, b"\x02\x00\x02\xc0", _Refusal("a Windows ETL trace")),
    (0, b"\x7fELF", _Refusal("an ELF program or core file")),
    (0, b"\x89PNG\r\n", _Refusal("a PNG picture")),
    (0, b"\xff\xd8\xff", _Refusal("a JPEG picture")),
    (0, b"GIF8", _Refusal("a GIF picture")),
    (0, b"%PDF-", _Refusal("a PDF document")),
    (0, b"SQLite format 3\0", _Refusal("an SQLite database")),
    (0, b"PAR1", _Refusal("a Parquet file", "a store of traceana is a folder: give the folder")),
    (0, b"7z\xbc\xaf\x27\x1c", _Refusal("a 7-Zip archive", "unpack it and give the capture")),
    (0, b"Rar!", _Refusal("a RAR archive", "unpack it and give the capture inside")),
    (0, b"\xff\xfe", _Refusal("UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8")),
    (0, b"\xfe\xff", _Refusal("UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8")),
)

_TABLE_HINT = "give the perf.data it was made from, or what perf script prints of it"

#: Texts that are no captures, by a regular expression over the head.
_TEXTS: tuple[tuple[bytes, _Refusal], ...] = (
    (
        rb"(?i)\A\s*(<!doctype html|<html)[\s\S]*?(systrace|trace-viewer|linuxPerfData|trace-data)",
        _Refusal("a systrace HTML page", "give the ftrace text inside", known=True),
    ),
    (rb"(?i)\A\s*(<!doctype html|<html)", _Refusal("an HTML page")),
    (
        rb"\A(# )?TRACE:\r?\n\x78",
        _Refusal("compressed atrace output", "record with atrace without -z", known=True),
    ),
    (
        rb"(?m)^ *Task +\| +Runtime ms +\| +(Switches|Count)",
        _Refusal("a table of `perf sched latency`", _TABLE_HINT),
    ),
    (
        rb"(?m)^ +time +cpu +task name +wait time +sch delay",
        _Refusal("a table of `perf sched timehist`", _TABLE_HINT),
    ),
    (rb"\A(\s*[*A-Z.] ?\S? +){1,}\d+\.\d+ secs ", _Refusal("a `perf sched map`", _TABLE_HINT)),
    (
        rb"(?m)\A(#.*\n)*# To display the perf\.data header info",
        _Refusal("a table of `perf report`", _TABLE_HINT),
    ),
    (
        rb"(?m)^(Attaching \d+ probes?\.\.\.|@\w*(\[[^\n]*\])?:? *\n?[\[(]\d+[KMG]?, )",
        _Refusal("output of bpftrace"),
    ),
    (rb"(?m)^ +[un]secs +: count +distribution", _Refusal("a histogram of a BCC tool")),
    (
        rb"\A\s*[\[{][\s\S]*\"(traceEvents|systemTraceEvents|ph)\"",
        _Refusal("Chrome JSON trace events", known=True),
    ),
    (rb"\A\s*(\{\s*[\"}]|\[\s*[\[{\"\]\d])", _Refusal("JSON")),
    (rb"\A/\* CTF 1\.", _Refusal("the metadata of a CTF trace (LTTng)", known=True)),
)


def _tar_refusal(head: bytes) -> _Refusal | None:
    if head[257:262] != b"ustar" and not _old_tar(head):
        return None
    if re.search(rb"(^|[\0/])(traces/cpu\d|metadata\.textproto|formats/)", head):
        return _Refusal("a SchedViz archive", _GIVE_CAPTURE, known=True)
    return _Refusal(
        "a tar archive without traces/cpuN (SchedViz has them)",
        "unpack it and give the capture inside",
    )


def _old_tar(head: bytes) -> bool:
    """A tar header from before POSIX: the sum over it is right."""
    block = head[:512]
    stored = block[148:156].strip(b"\0 ")
    if len(block) < 512 or not stored or re.fullmatch(rb"[0-7]+", stored) is None:
        return False
    return int(stored, 8) == sum(block[:148]) + 8 * 32 + sum(block[156:])


def _refusals(head: bytes, size: int) -> Iterator[_Refusal]:
    """What the content is, of the things that are known and not read."""
    if head[:8] in (b"PERFILE2", b"2ELIFREP"):
        yield _Refusal(
            "a perf.data of pipe mode (perf record -o -)",
            "make a file of it: perf inject -i FILE -o NEW, or give what perf script prints",
            known=True,
        )
    for at, magic, refusal in _MAGICS:
        if head.startswith(magic, at):
            yield refusal
    tar = _tar_refusal(head)
    if tar is not None:
        yield tar
    for pattern, refusal in _TEXTS:
        if re.search(pattern, head):
            yield refusal
    if _is_perfetto(head, size):
        yield _Refusal("a Perfetto trace", _GIVE_CAPTURE, known=True)
    if _is_ring_page(head):
        yield _Refusal(
            "raw pages of a ring buffer without the formats of their events",
            "`trace-cmd restore` can join trace.dat.cpuN files to a trace.dat",
        )


def _refuse(path: Path, refusal: _Refusal) -> InputError:
    if refusal.known:
        return UnsupportedError(path, f"{refusal.what}: not supported yet", hint=refusal.hint)
    return FormatError(path, f"{refusal.what}: not a capture", hint=refusal.hint)


def _refuse_directory(path: Path) -> InputError:
    """What a folder may be; one that is a store is opened elsewhere."""
    try:
        names = {p.name for p in path.iterdir()}
    except OSError as error:
        return InputError(path, f"cannot be read: {error.strerror}")
    if "data" in names and ({"data.0", "kcore_dir"} & names or _starts(path / "data", b"PERFILE2")):
        return _refuse(
            path,
            _Refusal(
                "a perf.data folder (perf record --threads or --kcore)",
                f"give what `perf script -i {path.name}` prints",
                known=True,
            ),
        )
    if "metadata" in names:
        return _refuse(path, _Refusal("a CTF trace (LTTng)", known=True))
    if {"traces", "formats"} <= names:
        return _refuse(path, _Refusal("an unpacked SchedViz archive", known=True))
    if {"trace_pipe", "available_events"} <= names:
        return FormatError(
            path, "tracefs itself: not a capture", hint="copy its file `trace` and give that"
        )
    return FormatError(path, "a folder: not a capture", hint=_GIVE_CAPTURE)


def _starts(path: Path, magic: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic
    except OSError:
        return False


def _unknown(path: Path, head: bytes) -> FormatError:
    text = b"\0" not in head and sum(b < 9 or 13 < b < 32 for b in head) * 50 < len(head)
    kind = "text without an event line that could be told" if text else "not a known form"
    return FormatError(path, f"{kind}: not a capture", hint=_GIVE_CAPTURE)


def choose(path: Path, head: bytes, size: int) -> Form:
    """The form of content that begins with ``head``.

    Raises
    ------
    FormatError, UnsupportedError
        It has none that is read; the message says what it is, when that can be told.
    """
    if not size:
        raise FormatError(path, "an empty file: not a capture", hint=_GIVE_CAPTURE)
    for form in FORMS:
        if form.magic is not None and form.magic(head):
            return form
    refusal = next(_refusals(head, size), None)
    texts = [form for form in FORMS if form.magic is None]
    # A text that was cut short or is wrapped in another may look like both.
    sure = [form.confidence(head) for form in texts]
    best = max(sure)
    if best > (0.5 if refusal else 0.0):
        return texts[sure.index(best)]
    if refusal is not None:
        raise _refuse(path, refusal)
    raise _unknown(path, head)


def open_reader(path: str | Path, *, stdin: IO[bytes] | None = None) -> Reader:
    """Open a capture of any form that is read, in any wrapper.

    Parameters
    ----------
    path : str or Path
        The file; with ``stdin`` only the name that messages give.
    stdin : binary file, optional
        Read this instead.

    Raises
    ------
    InputError
        What it is and what to do instead: see traceana.errors.
    """
    path = Path(path)
    if stdin is None and path.is_dir():
        raise _refuse_directory(path)
    given = open_input(path, stdin=stdin)
    form = choose(path, bytes(given.buf[:HEAD]), len(given.buf))
    reader = form.open(path, given.buf)
    if given.wrappers:
        reader.meta.extra["wrapper"] = ", ".join(given.wrappers)
    if given.cut is not None:
        return _Cut(reader, given)  # type: ignore[return-value]
    return reader


class _Cut:
    """A reader whose input was cut before it got it: says so as well."""

    def __init__(self, reader: Reader, given: Input) -> None:
        self._reader = reader
        self._cut = str(given.cut)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    @property
    def damaged(self) -> bool:
        return True

    def chunks(self) -> Iterator[Any]:
        yield from self._reader.chunks()
        self._reader.issues.add("parse", "wrapper_cut", self._cut)
