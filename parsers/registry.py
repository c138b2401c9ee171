"""Which form an input has, told by its content, and who reads it.

Adding a form: a module with ``open_NAME(path, buf) -> Reader`` (``buf`` is the unwrapped content,
read-only), and a line in ``FORMS``: for binary forms with a test of the first bytes here, for
texts with a function ``sniff(head) -> float`` in the module (0 to 1, the surest wins), for forms
of many files with four functions (see :class:`Form`).
Adding a thing that is not to be read: a line in ``_refusals``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from traceana.errors import FormatError, InputError, UnsupportedError, UsageError
from traceana.parsers.archive import is_tar
from traceana.parsers.cut import cut_reader
from traceana.parsers.perfetto_wire import is_perfetto
from traceana.parsers.reader import Reader
from traceana.parsers.unwrap import Entry, open_input

__all__ = ["FORMS", "Form", "open_reader"]

#: How much of the content tells what it is.
HEAD = 1 << 16


@dataclass(frozen=True, slots=True)
class Form:
    """A form that can be read: ``module`` has ``opener``.

    ``magic`` is the test of binary forms, by the first bytes and the size. A form of ``many``
    files is a folder or a tar archive; its module has ``is_NAME_folder(path)``,
    ``open_NAME_folder(path)``, ``is_NAME_tar(buf)`` and ``open_NAME_tar(path, buf)``, where NAME
    is the ``opener``. ``buffers``: the opener takes ``buffer``.

    ``reads``, ``written_by`` and ``tested_by`` (a file) make the table of forms in the README.
    """

    name: str
    module: str
    opener: str
    magic: Callable[[bytes, int], bool] | None = None
    many: bool = False
    buffers: bool = False
    reads: str = ""
    written_by: str = ""
    tested_by: str = ""

    def call(self, function: str, *args: Any, **options: Any) -> Any:
        """Call a function of the module."""
        return getattr(importlib.import_module(self.module), function)(*args, **options)

    def confidence(self, head: bytes, size: int) -> float:
        """How sure it is that the content has this form."""
        if self.many:
            return 0.0
        if self.magic is not None:
            return 1.0 if self.magic(head, size) else 0.0
        return float(self.call("sniff", head))

    def open(self, path: Path, buf: Any, buffer: str | None = None) -> Reader:
        options = {"buffer": buffer} if self.buffers else {}
        reader: Reader = self.call(self.opener, path, buf, **options)
        return reader


def _is_trace_dat(head: bytes, size: int) -> bool:
    return head.startswith(b"\x17\x08\x44tracing")


def _is_perf_data(head: bytes, size: int) -> bool:
    return head[:8] in (b"PERFILE2", b"2ELIFREP", b"PERFFILE", b"ELIFFREP")


def _is_perfetto(head: bytes, size: int) -> bool:
    return is_perfetto(head)


_HERE = "traceana.parsers."

FORMS: tuple[Form, ...] = (
    Form(
        "trace.dat", _HERE + "trace_dat", "open_trace_dat", _is_trace_dat, buffers=True,
        reads="trace.dat v6 and v7, plain or compressed; one of several buffers or all "
        "(`--buffer`)",
        written_by="`trace-cmd record`",
        tested_by="tests/parsers/test_trace_dat.py",
    ),
    Form(
        "perf.data", _HERE + "perf_data", "open_perf_data", _is_perf_data,
        reads="perf.data: file, pipe, `-z`, other endian, simpleperf's",
        written_by="`perf record -e sched:… -a`, `perf sched record`",
        tested_by="tests/parsers/test_perf_data.py",
    ),
    Form(
        "perf.data folder", _HERE + "perf_folder", "perf", many=True,
        reads="perf.data folder",
        written_by="`perf record --threads`",
        tested_by="tests/parsers/test_perf_forms.py",
    ),
    Form(
        "tracefs text", _HERE + "ftrace_text", "open_ftrace_text",
        reads="tracefs text: any trace options that keep task, CPU and time",
        written_by="`cat /sys/kernel/tracing/trace`, `trace_pipe`",
        tested_by="tests/parsers/test_text_captures.py",
    ),
    Form(
        "trace-cmd report text", _HERE + "trace_cmd_text", "open_trace_cmd_text",
        reads="report text, also `-R`, `-t`, `-l`, `-w`, `--ts-diff`",
        written_by="`trace-cmd report`",
        tested_by="tests/parsers/test_text_captures.py",
    ),
    Form(
        "perf script text", _HERE + "perf_script", "open_perf_script",
        reads="script text, also `--ns`, `-g`, `--header`",
        written_by="`perf script`",
        tested_by="tests/parsers/test_text_captures.py",
    ),
    Form(
        "Perfetto trace", _HERE + "perfetto", "open_perfetto", _is_perfetto,
        reads="Perfetto trace with ftrace events",
        written_by="perfetto, traced",
        tested_by="tests/parsers/test_perfetto.py",
    ),
    Form(
        "systrace, atrace", _HERE + "systrace", "open_systrace",
        reads="systrace and atrace: text, HTML, compressed; `systemTraceEvents` of Chrome JSON",
        written_by="systrace.py, atrace",
        tested_by="tests/parsers/test_systrace.py",
    ),
    Form(
        "SchedViz archive", _HERE + "schedviz", "schedviz", many=True,
        reads="SchedViz archive",
        written_by="trace.sh",
        tested_by="tests/parsers/test_schedviz.py",
    ),
    Form(
        "raw ring-buffer pages with formats", _HERE + "raw_pages", "raw_pages", many=True,
        reads="raw ring-buffer pages with their format files",
        written_by="`per_cpu/cpuN/trace_pipe_raw`",
        tested_by="tests/parsers/test_schedviz.py",
    ),
    Form(
        "console dump", _HERE + "console_dump", "open_console_dump",
        reads="console dump",
        written_by="ftrace_dump_on_oops, sysrq-z",
        tested_by="tests/parsers/test_console_dump.py",
    ),
)  # fmt: skip

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
    (rb"\A\s*(\{\s*[\"}]|\[\s*(?:[\[{\"\]]|-?\d[\d.]*\s*,))", _Refusal("JSON")),
    (rb"\A/\* CTF 1\.", _Refusal("the metadata of a CTF trace (LTTng)", known=True)),
)


_TAR = _Refusal(
    "a tar archive without a capture (nor traces/cpuN: SchedViz has them)",
    "unpack it and give the capture inside",
)


def _refusals(head: bytes, size: int) -> Iterator[_Refusal]:
    """What the content is, of the things that are known and not read."""
    for at, magic, refusal in _MAGICS:
        if head.startswith(magic, at):
            yield refusal
    if is_tar(head):
        yield _TAR
    for pattern, refusal in _TEXTS:
        if re.search(pattern, head):
            yield refusal
    if _is_ring_page(head):
        yield _Refusal(
            "raw pages of a ring buffer without the formats of their events",
            "give a folder or tar that holds them together with events/*/*/format and "
            "events/header_page; `trace-cmd restore` joins trace.dat.cpuN files to a trace.dat",
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
    if "metadata" in names:
        return _refuse(path, _Refusal("a CTF trace (LTTng)", known=True))
    if {"trace_pipe", "available_events"} <= names:
        return FormatError(
            path, "tracefs itself: not a capture", hint="copy its file `trace` and give that"
        )
    return FormatError(path, "a folder: not a capture", hint=_GIVE_CAPTURE)


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
        if form.magic is not None and form.magic(head, size):
            return form
    refusal = next(_refusals(head, size), None)
    texts = [form for form in FORMS if form.magic is None and not form.many]
    # A text that was cut short or is wrapped in another may look like both.
    sure = [form.confidence(head, size) for form in texts]
    best = max(sure)
    if best > (0.5 if refusal else 0.0):
        return texts[sure.index(best)]
    if refusal is not None:
        raise _refuse(path, refusal)
    raise _unknown(path, head)


def _pick(path: Path, kind: str, buf: Any, entries: Iterator[Entry]) -> int | None:
    """Which file of an archive is the capture; None: the archive itself, or none.

    Raises
    ------
    UnsupportedError
        Several are.
    """
    if kind == "tar" and _form_of_tar(buf) is not None:
        return None
    found: list[tuple[int, str]] = []
    number = 0
    for number, entry in enumerate(entries, 1):
        try:
            choose(path, entry.head, max(entry.size, len(entry.head)))
        except InputError:
            continue
        found.append((number - 1, entry.name))
        if len(found) > 8:
            break
    if number == 1:
        return 0
    if len(found) > 1:
        names = [repr(name) for _, name in found[:8]] + ["..."] * (len(found) > 8)
        how_many = f"{len(found)}" if len(found) <= 8 else "more than 8"
        raise UnsupportedError(
            path,
            f"a {kind} archive of {how_many} captures: {', '.join(names)}",
            hint="unpack it and give one of them",
        )
    return found[0][0] if found else None


def _form_of_tar(buf: Any) -> Form | None:
    """The form of many files that a tar archive has."""
    forms = (f for f in FORMS if f.many)
    return next((f for f in forms if f.call(f"is_{f.opener}_tar", buf)), None)


def _open_folder(path: Path) -> Reader:
    for form in FORMS:
        if form.many and form.call(f"is_{form.opener}_folder", path):
            reader: Reader = form.call(f"open_{form.opener}_folder", path)
            return reader
    raise _refuse_directory(path)


def open_reader(
    path: str | Path, *, stdin: IO[bytes] | None = None, buffer: str | None = None
) -> Reader:
    """Open a capture of any form that is read, in any wrapper.

    Parameters
    ----------
    path : str or Path
        The file; with ``stdin`` only the name that messages give.
    stdin : binary file, optional
        Read this instead.
    buffer : str, optional
        Of a capture with several ring buffers: the one to read, by its name ("top": the top
        one), or "all". None: the top one; or, when that has no scheduler event, the first
        instance that has.

    Raises
    ------
    InputError
        What it is and what to do instead: see traceana.errors.
    UsageError
        It has no such buffer.
    """
    path = Path(path)
    if stdin is None and path.is_dir():
        return _open_folder(path)
    given = open_input(path, stdin=stdin, pick=_pick)
    head = bytes(given.buf[:HEAD])
    form = _form_of_tar(given.buf) if is_tar(head) else None
    if form is not None:
        reader: Reader = form.call(f"open_{form.opener}_tar", path, given.buf)
    else:
        form = choose(path, head, len(given.buf))
        reader = form.open(path, given.buf, buffer)
    if buffer not in (None, "all", "top") and not form.buffers:
        raise UsageError(f"{path}: no buffer {buffer!r}: this form does not name buffers")
    if given.wrappers:
        reader.meta.extra["wrapper"] = ", ".join(given.wrappers)
    return reader if given.cut is None else cut_reader(reader, given.cut, "wrapper_cut")
