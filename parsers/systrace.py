r"""ftrace text inside other things: systrace HTML, atrace -z, Chrome JSON, JavaScript lines.

The text is taken out and given to the reader of tracefs text; only what is particular to the
wrapping is known here:

* HTML of systrace since 2015: blocks ``<script class="trace-data" ...>``, one of them ftrace text;
  before: ``var linuxPerfData = "\`` and lines that end with ``\n\``; either may hold compressed
  data in base64.
* atrace -z: the line ``TRACE:``, then zlib data, maybe other output behind.
* JSON of Chrome and Chrome OS: the text is the value of ``systemTraceEvents``.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import html
import json
import mmap
import re
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from traceana.errors import FormatError, InputError, TruncatedError, UnsupportedError
from traceana.parsers import ftrace_text
from traceana.parsers.cut import cut_reader
from traceana.parsers.reader import Reader
from traceana.parsers.text_lines import Buffer, as_buffer

__all__ = ["open_systrace", "sniff"]

#: How much of a block tells what it is.
_HEAD = 1 << 16
#: Text is kept in memory up to this size; and no trace that is sent around unpacks to more than the
#: second, nor, when it is larger than the first, to so many times its size (lines of text shrink to
#: a tenth to a fiftieth; deflate can make a thousandth of zeros).
_IN_MEMORY = 64 << 20
_MAX_UNPACKED = 8 << 30
_MAX_RATIO = 500
_STEP = 1 << 16
_COPY = "copy it again from where it was recorded"
_GIVE = "give the file as the recorder wrote it"

_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype html|html)", re.IGNORECASE)
_VIEWER = re.compile(
    rb"systrace|trace-viewer|linuxPerfData|trace-data|Android System Trace|viewer-data|tr\.ui",
    re.IGNORECASE,
)
_ZLIB = re.compile(rb"(?:# )?TRACE:\r?\n(?=\x78[\x01\x5e\x9c\xda])")
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s*[\[{]")
_SYSTEM = re.compile(rb'(?<!\\)"systemTraceEvents"\s*:\s*')
_CHROME = re.compile(rb'"(?:traceEvents|systemTraceEvents|ph)"')
_JS_LINE = re.compile(rb"\\n\\\r?\n")
_JS_NEWLINE = re.compile(rb"\\n(?:\\\r?\n|\\?\Z)")
#: A tag counts only when it is all of a line: the viewer's own code holds the same words.
_BLOCK = re.compile(
    rb'^[ \t]*<script[^>\n]*(?:class="trace-data"|id="viewer-data")[^>\n]*>[ \t]*\r?\n',
    re.MULTILINE,
)
_SCRIPT_END = b"</script>"
_PERF_DATA = re.compile(rb'^[ \t]*var linuxPerfData = "\\?\r?\n', re.MULTILINE)
_COMMENT = re.compile(rb"<!--\s*([A-Za-z0-9+/\r\n]{64,}={0,2})\s*-->")
_BASE64 = re.compile(rb"\s*[A-Za-z0-9+/]{60}")
_SYNC = re.compile(rb"trace_event_clock_sync: (parent_ts|realtime_ts)=(\d{1,18})(?:\.(\d{1,9}))?")


def sniff(head: bytes) -> float:
    """How sure it is that a file beginning like this holds ftrace text in one of these ways."""
    if _ZLIB.match(head):
        return 0.99
    if _HTML.match(head):
        return 0.95 if _VIEWER.search(head) else 0.0
    if _JSON.match(head):
        return 0.95 if _CHROME.search(head) else 0.0
    return 0.99 if _is_js_lines(head) else 0.0


def _is_js_lines(head: bytes) -> bool:
    r"""Whether the lines are those of a JavaScript string, most ended by ``\n\``."""
    lines = head[:8192].split(b"\n")[:-1]
    ended = sum(line.rstrip(b"\r").endswith(b"\\n\\") for line in lines)
    if ended < 2 or 10 * ended < 9 * len(lines):
        return False
    return ftrace_text.sniff(_js_text(head)) > 0


def open_systrace(path: Path, buf: Buffer | memoryview) -> Reader:
    """A reader of the ftrace text inside. ``buf`` is the whole content.

    Raises
    ------
    FormatError
        Nothing in it is ftrace text.
    UnsupportedError
        JSON of Chrome without ftrace text.
    TruncatedError
        It is cut before the text begins.
    """
    buf = as_buffer(buf)
    head = buf[0:_HEAD]
    found = _Found(path)
    if _ZLIB.match(head):
        form = "atrace (compressed)"
        found.inflate(buf, _after(_ZLIB.match(head)), "zlib")
    elif _HTML.match(head):
        form = "systrace HTML"
        _from_html(found, buf)
    elif _JSON.match(head):
        form = "Chrome JSON"
        _from_json(found, buf)
    else:
        form = "systrace text"
        found.text = _js_text(buf[0 : len(buf)])
    return found.open(form)


def _after(m: re.Match[bytes] | None) -> int:
    return m.end() if m else 0


class _Found:
    """The text once it is found, and what is to be said of the way it was wrapped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text: Any = b""
        #: Code and text of the issue when the input was cut or damaged.
        self.cut: tuple[str, str] | None = None
        self.notes: list[tuple[str, str, int]] = []

    def open(self, form: str) -> Reader:
        """The reader of the text."""
        if not len(self.text):
            if self.cut:
                raise TruncatedError(
                    self.path, f"{form} that is cut before its first event", hint=_COPY
                )
            raise FormatError(
                self.path, f"{form} with no ftrace text in it: not a capture", hint=_GIVE
            )
        reader = ftrace_text.open_ftrace_text(self.path, self.text)
        reader.meta.form = form
        sync = _clock_sync(self.text)
        if sync:
            reader.meta.extra["clock_sync"] = sync
        for code, text, count in self.notes:
            reader.header_issue(code, text, count)
        return cut_reader(reader, self.cut[1], self.cut[0]) if self.cut else reader

    def inflate(self, buf: Any, at: int, kind: str) -> None:
        """Take the text out of zlib or gzip data at ``buf[at]``."""
        parts: list[bytes] = []
        size = 0
        with contextlib.ExitStack() as stack:
            file: IO[bytes] | None = None
            for piece, read in self._inflated(buf, at, kind):
                size += len(piece)
                if size > _MAX_UNPACKED or (size > _IN_MEMORY and size > _MAX_RATIO * read):
                    raise FormatError(
                        self.path,
                        f"{kind} data that grows to more than {size} bytes",
                        hint="a trace does not; unpack it by hand if it is one",
                    )
                try:
                    if file is None and size > _IN_MEMORY:
                        file = stack.enter_context(tempfile.TemporaryFile(prefix="traceana-"))
                        file.writelines(parts)
                        parts = []
                    if file is None:
                        parts.append(piece)
                    else:
                        file.write(piece)
                except OSError as error:
                    raise InputError(
                        self.path,
                        f"no room to unpack it: {error.strerror}",
                        hint="set TMPDIR to a folder with room",
                    ) from error
            if file is None:
                self.text = b"".join(parts)
            else:
                file.flush()
                self.text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def _inflated(self, buf: Any, at: int, kind: str) -> Iterator[tuple[bytes, int]]:
        """Pieces of what it unpacks to, and how many packed bytes they took so far."""
        engine = zlib.decompressobj(15 if kind == "zlib" else 31)
        start, total = at, len(buf)
        while not engine.eof:
            data = engine.unconsumed_tail
            if not data:
                data = bytes(buf[at : at + _STEP])
                at += len(data)
                if not data:
                    text = f"offset {total:#x}: the {kind} data is cut, the file ends there"
                    self.cut = "packed_data_damaged", text
                    return
            try:
                piece = engine.decompress(data, _STEP)
            except zlib.error as error:
                text = f"offset {at - len(data):#x}: the {kind} data is damaged: {error}"
                self.cut = "packed_data_damaged", text
                return
            yield piece, at - start
        rest = total - at + len(engine.unused_data)
        if rest:
            self.notes.append(
                ("trailing_bytes", f"offset {total - rest:#x}: {rest} bytes behind the {kind} data "
                 "are no part of the trace", 1)
            )  # fmt: skip

    def block(self, content: bytes) -> bool:
        """Take what a block of a page holds, if it is ftrace text."""
        content = content.strip(b"\r\n")
        if _BASE64.match(content):
            try:
                packed = base64.b64decode(re.sub(rb"\s+", b"", content) + b"==")
            except (binascii.Error, ValueError):
                return False
            if packed[:2] == b"\x1f\x8b" or packed[:1] == b"\x78":
                self.inflate(packed, 0, "gzip" if packed[:1] == b"\x1f" else "zlib")
                content, self.text = self.text[0 : len(self.text)], b""
        m = _ZLIB.match(content)
        if m:
            self.inflate(content, m.end(), "zlib")
            return True
        if _JSON.match(content):
            if not _SYSTEM.search(content):
                return False
            _from_json(self, content)
            return True
        if b"&lt;" in content or b"&gt;" in content or b"&amp;" in content:
            content = _unescape(content)
        if _JS_LINE.search(content[:_HEAD]):
            content = _js_text(content)
        if not ftrace_text.sniff(content[:_HEAD]):
            return False
        self.text = content
        return True


def _unescape(content: bytes) -> bytes:
    return html.unescape(content.decode("latin-1")).encode("latin-1", "replace")


def _js_text(content: bytes) -> bytes:
    """The text that lines of a JavaScript string stand for."""
    content = _JS_NEWLINE.sub(b"\n", content)
    return re.sub(rb'\\(["\'\\/])', rb"\1", content)


def _from_html(found: _Found, buf: Buffer) -> None:
    """The last block of the page that holds event lines: the viewer's code comes before."""
    page = buf[0 : len(buf)] if not isinstance(buf, mmap.mmap) else buf
    blocks: list[tuple[int, int]] = []
    open_end = False
    for pattern in (_BLOCK, _PERF_DATA):
        for m in pattern.finditer(page):
            end = buf.find(_SCRIPT_END, m.end())
            open_end = open_end or end < 0
            stop = len(buf) if end < 0 else end
            if pattern is _PERF_DATA:
                close = buf.rfind(b'";', m.end(), stop)
                stop = close if close > 0 else stop
            blocks.append((m.end(), stop))
    if not blocks:
        blocks = [m.span(1) for m in _COMMENT.finditer(page)]
    if open_end:
        found.cut = "cut_short", f"offset {len(buf):#x}: the page ends inside its trace data"
    for start, end in reversed(blocks):
        if found.block(buf[start:end]):
            break
    if not len(found.text) and not found.cut:
        raise FormatError(
            found.path,
            "an HTML page without ftrace text: not a capture",
            hint="give the page as systrace wrote it, or the text inside",
        )


def _from_json(found: _Found, buf: Buffer) -> None:
    page = buf[0 : len(buf)] if not isinstance(buf, mmap.mmap) else buf
    m = _SYSTEM.search(page)
    if m is None:
        raise UnsupportedError(
            found.path,
            "Chrome JSON trace events without systemTraceEvents: no kernel events in it",
            hint="record with system tracing on, or give the ftrace or Perfetto trace",
        )
    start = m.end()
    if buf[start : start + 1] != b'"':
        if not buf[start : start + 1].strip():
            found.cut = "cut_short", f"offset {len(buf):#x}: the JSON ends before the text"
            return
        raise UnsupportedError(
            found.path, "Chrome JSON whose systemTraceEvents is not text", offset=start, hint=_GIVE
        )
    end = _string_end(buf, start + 1)
    text = buf[start + 1 : end]
    if end == len(buf):
        found.cut = "cut_short", f"offset {len(buf):#x}: the JSON ends inside the text"
    try:
        value = json.loads('"' + text.decode("utf-8") + '"', strict=False)
        found.text = value.encode("utf-8", "backslashreplace")
    except ValueError:
        # Bytes that are no UTF-8 in a name, or an escape that is none: the usual ones by hand.
        found.text = _plain(text)


def _string_end(buf: Buffer, at: int) -> int:
    """Where the JSON string ends whose content begins at ``at``; len(buf): it does not."""
    while True:
        quote = buf.find(b'"', at)
        if quote < 0:
            return len(buf)
        slashes = 0
        while buf[quote - slashes - 1 : quote - slashes] == b"\\":
            slashes += 1
        if slashes % 2 == 0:
            return quote
        at = quote + 1


def _plain(text: bytes) -> bytes:
    """The usual escapes of a JSON string, on its bytes."""
    known = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f"}
    return re.sub(rb"\\(.)", lambda m: known.get(m[1], m[1]), text, flags=re.DOTALL)


def _clock_sync(text: Any) -> dict[str, int]:
    """CLOCK_MONOTONIC (parent_ts) and the wall clock (realtime_ts) at their markers, in ns.

    The difference to the marker's own time is that of the clocks.
    """
    out: dict[str, int] = {}
    at = text.find(b"trace_event_clock_sync: ")
    while at >= 0 and len(out) < 2:
        m = _SYNC.match(text[at : at + 80])
        if m and m[1] == b"parent_ts":
            fraction = (m[3] or b"").ljust(9, b"0")
            out.setdefault("parent_ts_ns", int(m[2]) * 1_000_000_000 + int(fraction))
        elif m:
            out.setdefault("realtime_ts_ns", int(m[2]) * 1_000_000)
        at = text.find(b"trace_event_clock_sync: ", at + 1)
    return out
