"""What programs wrote into the trace (the tracefs file ``trace_marker``), and windows between.

A marker is recorded as an event ``print`` (in texts ``tracing_mark_write``), or ``bputs`` and
``bprint`` where the kernel itself wrote it. ``bprint`` holds no text without the kernel's table of
formats and is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from traceana.errors import TraceanaError, UsageError
from traceana.output import escape, plural

if TYPE_CHECKING:
    from traceana.parsers.reader import Reader

__all__ = ["MARKS", "between", "markers"]

#: Tracepoints that carry a text.
MARKS = ("print", "tracing_mark_write", "bputs")
_SHOWN = 8
_SCHEMA = pa.schema([("ts", pa.int64()), ("text", pa.string())])


def markers(reader: Reader) -> pa.Table:
    """All markers in the order of time.

    Returns
    -------
    pyarrow.Table
        ts (int64, ns), text (as written, without the end of the line).
    """
    rows: list[tuple[int, str]] = []
    for name in MARKS:
        try:
            table = reader.extra_events(name)
        except TraceanaError:
            continue  # not recorded, or of a form that keeps no such events
        for column in ("text", "buf", "str"):
            if column in table.schema.names:
                texts = table[column].to_pylist()
                rows += [
                    (t, text.strip())
                    for t, text in zip(table["ts"].to_pylist(), texts, strict=True)
                    if isinstance(text, str)
                ]
                break
    rows.sort(key=lambda r: r[0])
    return pa.table([[t for t, _ in rows], [text for _, text in rows]], schema=_SCHEMA)


def between(reader: Reader, first: str, last: str) -> tuple[int, int]:
    """From the first marker that holds a text to the next one that holds another, ns.

    Raises
    ------
    UsageError
        There is no such marker; the message names those that there are.
    """
    found = markers(reader)
    marks = list(zip(found["ts"].to_pylist(), found["text"].to_pylist(), strict=True))
    begin = next((t for t, text in marks if first in text), None)
    if begin is None:
        raise UsageError(f"--between: no marker holds {first!r}; {_known(marks)}")
    end = next((t for t, text in marks if t > begin and last in text), None)
    if end is None:
        raise UsageError(
            f"--between: no marker holds {last!r} after {first!r}; "
            f"{_known([m for m in marks if m[0] > begin])}"
        )
    return begin, end


def _known(marks: list[tuple[int, str]]) -> str:
    texts = list(dict.fromkeys(text for _, text in marks))
    if not texts:
        return "the capture holds no markers (written to trace_marker) there"
    shown = ", ".join(repr(escape(t[:40])) for t in texts[:_SHOWN])
    more = len(texts) - _SHOWN
    return f"there are {shown}" + (f" and {plural(more, 'other')}" if more > 0 else "")
