r"""Results on their way out: one table in five formats, and files written whole or not at all.

A verb hands over a :class:`Sheet` (fields and rows of raw values: int64 ns, shares from 0 to
1, None for "not known") and a format. The machine formats (csv, json, ndjson) keep the raw
values under the fields' names; ``table`` and ``md`` scale them, one unit a column.

Task names are hostile input: a name may hold escape sequences, line breaks, or characters
that reorder a line. In ``table``, ``md`` and ``csv`` each of those is written as ``\xNN`` (or
``\uNNNN``); JSON has its own escapes and is pure ASCII.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import stat
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from traceana.errors import UsageError

__all__ = [
    "FORMATS",
    "Field",
    "Sheet",
    "check_target",
    "escape",
    "format_ns",
    "plural",
    "render",
    "render_facts",
    "write_text",
]

#: Version of the machine-readable output; equals schema.SCHEMA_VERSION (held by a test), and
#: is repeated here because the schema module needs Arrow.
SCHEMA_VERSION = 2

FORMATS = ("table", "csv", "json", "ndjson", "md")

Kind = Literal["text", "int", "ns", "ts", "share", "float"]

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True)
class Field:
    """One column of a result.

    Parameters
    ----------
    name : str
        Its name in the machine formats; ends in ``_ns`` where it is a time or a duration.
    kind : str
        'ns' is a duration, 'ts' a moment of the capture's clock (shown in seconds as
        ``trace-cmd report`` shows it), 'share' lies between 0 and 1.
    title : str
        Heading in the table, without the unit; the name if empty.
    shown : bool
        False: only in the machine formats.
    width : int
        Longest text on a terminal; 0 = as long as it is.
    """

    name: str
    kind: Kind = "int"
    title: str = ""
    shown: bool = True
    width: int = 0


@dataclass
class Sheet:
    """A result: rows of raw values under fields, and what stands beside them in JSON."""

    name: str
    fields: Sequence[Field]
    rows: Sequence[Sequence[Any]]
    head: dict[str, Any] = field(default_factory=dict)
    #: Said under a table that was cut: "… 431 more (use -n 0)".
    more: int = 0
    #: Sentences under a table.
    notes: Sequence[str] = ()

    def objects(self) -> list[dict[str, Any]]:
        """The rows as JSON objects."""
        names = [f.name for f in self.fields]
        return [dict(zip(names, row, strict=True)) for row in self.rows]


def escape(text: str) -> str:
    r"""Text that neither moves a cursor nor breaks a line.

    >>> escape("a\x1b[2Jb\n")
    'a\\x1b[2Jb\\x0a'
    """
    if text.isascii() and text.isprintable():
        return text
    out = []
    for ch in text:
        # Zs other than the blank, Zl, Zp, and all of C: controls, format (bidi), surrogates.
        category = unicodedata.category(ch)
        if ch == " " or category[0] not in "CZ":
            out.append(ch)
        elif ord(ch) < 0x100:
            out.append(f"\\x{ord(ch):02x}")
        elif ord(ch) < 0x10000:
            out.append(f"\\u{ord(ch):04x}")
        else:
            out.append(f"\\U{ord(ch):08x}")
    return "".join(out)


def format_ns(value: int | None) -> str:
    """One duration with the unit that suits it, to three digits or more.

    >>> format_ns(49_758), format_ns(1_234_567_890), format_ns(None)
    ('49.8 µs', '1.23 s', '-')
    """
    if value is None:
        return "-"
    scale, unit = next(((n, u) for n, u in _UNITS if abs(value) >= n), (1, "ns"))
    if scale == 1:
        return f"{value} ns"
    number = value / scale
    digits = 2 if abs(number) < 10 else 1 if abs(number) < 100 else 0
    return f"{number:.{digits}f} {unit}"


def plural(n: int, one: str, many: str = "") -> str:
    """A number and its noun.

    >>> plural(1, "event"), plural(1200, "event"), plural(2, "switch", "switches")
    ('1 event', '1,200 events', '2 switches')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def _column_unit(values: Sequence[Any]) -> tuple[int, str]:
    """The unit in which a column of durations reads best: that of its median."""
    known = sorted(abs(v) for v in values if v)
    if not known:
        return 1_000, "µs"
    middle = known[len(known) // 2]
    for scale, unit in _UNITS:
        if middle >= scale:
            return scale, unit
    return 1, "ns"


def _seconds(ns: int) -> str:
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1_000_000_000}.{abs(ns) % 1_000_000_000 // 1_000:06d}"


def _cells(f: Field, values: Sequence[Any]) -> tuple[str, list[str]]:
    """Heading and texts of one column for a reader."""
    title = f.title or f.name
    if f.kind == "ns":
        scale, unit = _column_unit(values)
        digits = 0 if scale == 1 else 1
        return f"{title} {unit}", ["-" if v is None else f"{v / scale:.{digits}f}" for v in values]
    if f.kind == "ts":
        return f"{title} s", ["-" if v is None else _seconds(v) for v in values]
    if f.kind == "share":
        return f"{title} %", ["-" if v is None else f"{100 * v:.1f}" for v in values]
    if f.kind == "float":
        return title, ["-" if v is None else f"{v:.4g}" for v in values]
    if f.kind == "int":
        return title, ["-" if v is None else str(v) for v in values]
    return title, ["-" if v is None else escape(str(v)) for v in values]


def render(sheet: Sheet, format: str, *, color: bool = False, width: int = 0) -> str:
    """A result as text.

    Parameters
    ----------
    sheet : Sheet
    format : str
        One of FORMATS.
    color : bool
        Table: heading in bold.
    width : int
        Table: columns of the terminal; 0 = no limit, nothing is cut short.
    """
    if format == "json":
        document = {"schema_version": SCHEMA_VERSION, **sheet.head, sheet.name: sheet.objects()}
        return json.dumps(document, indent=1) + "\n"
    if format == "ndjson":
        return "".join(
            json.dumps({"schema_version": SCHEMA_VERSION, **row}) + "\n" for row in sheet.objects()
        )
    if format == "csv":
        return _csv(sheet)
    shown = [(i, f) for i, f in enumerate(sheet.fields) if f.shown]
    columns = [_cells(f, [row[i] for row in sheet.rows]) for i, f in shown]
    if format == "md":
        text = _markdown([f for _, f in shown], columns)
    else:
        text = _table([f for _, f in shown], columns, color=color, width=width)
    if sheet.more:
        text += f"… {sheet.more} more (use -n 0)\n"
    if sheet.notes and format == "md":
        text += "\n"
    return text + "".join(f"{note}\n" for note in sheet.notes)


def _csv_value(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict | list):
        return json.dumps(value)
    return value


def _csv(sheet: Sheet) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([f.name for f in sheet.fields] + ["schema_version"])
    for row in sheet.rows:
        writer.writerow([*map(_csv_value, row), SCHEMA_VERSION])
    return out.getvalue()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _table(
    fields: Sequence[Field], columns: Sequence[tuple[str, list[str]]], *, color: bool, width: int
) -> str:
    if width:
        columns = [
            (title, [_cut(c, f.width) for c in cells] if f.width else cells)
            for f, (title, cells) in zip(fields, columns, strict=True)
        ]
    sizes = [max([len(title), *map(len, cells)]) for title, cells in columns]
    if width:  # the widest texts give way until the line fits
        texts = [i for i, f in enumerate(fields) if f.kind == "text"]
        over = sum(sizes) + 2 * (len(sizes) - 1) - width
        for i in sorted(texts, key=lambda i: -sizes[i]):
            if over <= 0:
                break
            floor = max(8, len(columns[i][0]))
            give = min(over, max(0, sizes[i] - floor))
            sizes[i] -= give
            over -= give

    def line(cells: Sequence[str]) -> str:
        out = [
            _cut(c, n).ljust(n) if f.kind == "text" else c.rjust(n)
            for f, c, n in zip(fields, cells, sizes, strict=True)
        ]
        return "  ".join(out).rstrip()

    head = line([title for title, _ in columns])
    body = [line(cells) for cells in zip(*(c for _, c in columns), strict=True)]
    return "".join(f"{x}\n" for x in [_BOLD + head + _PLAIN if color else head, *body])


def _md_cell(text: str) -> str:
    text = re.sub(r"([\\`*\[\]<>|])", r"\\\1", text)
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\_", text)  # inside a word it marks nothing up


def _markdown(fields: Sequence[Field], columns: Sequence[tuple[str, list[str]]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |\n"

    marks = [":--" if f.kind == "text" else "--:" for f in fields]
    rows = zip(
        *(
            [_md_cell(c) for c in cells] if f.kind == "text" else cells
            for f, (_, cells) in zip(fields, columns, strict=True)
        ),
        strict=True,
    )
    head = line([_md_cell(title) for title, _ in columns]) + line(marks)
    return head + "".join(line(row) for row in rows)


def render_facts(
    document: dict[str, Any], facts: Sequence[tuple[str, str]], format: str, *, color: bool = False
) -> str:
    """A result that is one object, not rows: ``document`` for machines, ``facts`` for readers.

    CSV has two columns, key and value, with nested keys joined by dots.
    """
    document = {"schema_version": SCHEMA_VERSION, **document}
    if format == "json":
        return json.dumps(document, indent=1) + "\n"
    if format == "ndjson":
        return json.dumps(document) + "\n"
    if format == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["key", "value"])
        writer.writerows((k, _csv_value(v)) for k, v in _flatten(document))
        return out.getvalue()
    if format == "md":
        return "| | |\n| :-- | :-- |\n" + "".join(
            f"| {_md_cell(escape(k))} | {_md_cell(escape(v))} |\n" for k, v in facts
        )
    size = max((len(k) for k, _ in facts), default=0)
    lines = []
    for key, value in facts:
        label = escape(key).ljust(size) if value else escape(key)
        label = _BOLD + label + _PLAIN if color and key else label
        lines.append(f"{label}  {escape(value)}\n" if value else f"{label}\n")
    return "".join(lines)


def _flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flatten(inner, f"{prefix}.{key}" if prefix else escape(str(key)))
    elif isinstance(value, dict):
        yield prefix, None
    else:
        yield prefix, value


def check_target(target: str, *, force: bool) -> None:
    """Refuse, before any work is done, an output that could not be written.

    Raises
    ------
    UsageError
        It exists (and no --force), is a folder, or its folder does not exist.
    """
    if target == "-":
        return
    path = Path(target)
    if path.is_dir():
        raise UsageError(f"{target} is a folder; name a file with -o")
    if path.exists() and not force and path.is_file():
        raise UsageError(f"{target} exists; use --force to overwrite")
    parent = path.parent
    if not parent.is_dir():
        raise UsageError(f"{target}: there is no folder {parent}")


@contextlib.contextmanager
def whole_file(path: Path, *, force: bool, binary: bool = False) -> Iterator[IO[Any]]:
    """A file that appears under its name only once it is complete."""
    path = Path(os.path.realpath(path))
    text: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace", "newline": ""}
    try:
        temporary = tempfile.NamedTemporaryFile(  # noqa: SIM115
            "wb" if binary else "w",
            dir=path.parent,
            prefix=f".{path.name[:80]}.",
            suffix=".part",
            delete=False,
            **({} if binary else text),
        )
    except OSError as error:
        # The name that was asked for, not that of the part.
        raise UsageError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    try:
        with temporary:
            yield temporary
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(temporary.fileno(), 0o666 & ~mask)
        if force:
            Path(temporary.name).replace(path)
        else:
            # Unlike a rename, a link does not overwrite what came into being meanwhile.
            try:
                os.link(temporary.name, path)
            except FileExistsError:
                raise UsageError(f"{path} exists; use --force to overwrite") from None
            except OSError:  # a file system without hard links
                Path(temporary.name).replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary.name).unlink()


def write_text(text: str, target: str = "-", *, force: bool = False) -> None:
    """Write a result: to stdout for '-', else to a file, whole or not at all."""
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    check_target(target, force=force)
    path = Path(target)
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        path.write_text(
            text, encoding="utf-8", errors="backslashreplace"
        )  # a device or a pipe: no name to replace
        return
    with whole_file(path, force=force) as out:
        out.write(text)
