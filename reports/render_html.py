"""The report as one self-contained HTML page.

Everything that comes from a capture passes jinja2's autoescape; the only markup that is taken
as it is are the figures' SVG (in which matplotlib has escaped all text) and this package's own
style and script.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traceana.reports.model import Code, Report, Strong, Table
from traceana.reports.words import cells, heading

__all__ = ["render_html"]

_UNIT = re.compile(r"(\d) (s|ms|µs|ns|%|CPUs?|events)(?!\w)")
#: Texts up to this length are not broken.
SHORT = 24
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class _Cell:
    text: str
    #: Sort key and CSV value; None for texts, which are their own.
    raw: str | None
    #: Length of the bar in percent, or None.
    bar: str | None


@dataclass(frozen=True)
class _Head:
    title: str
    name: str
    numeric: bool
    doc: str


def render_html(report: Report) -> str:
    """The page as text; the same report gives the same bytes."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["grid"] = _grid
    environment.filters["tie"] = _tie
    environment.filters["data"] = _data
    environment.tests["short"] = lambda text: len(text) <= SHORT
    environment.tests["strong"] = lambda part: isinstance(part, Strong)
    environment.tests["code"] = lambda part: isinstance(part, Code)
    return environment.get_template("report.html.j2").render(report=report)


def _data(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _tie(text: str) -> str:
    """A number and its unit stay on one line."""
    return _UNIT.sub("\\1\u00a0\\2", text)


def _grid(table: Table) -> dict[str, Any]:
    """Heads and rows of a table, ready to be printed."""
    columns = [[row[i] for row in table.rows] for i in range(len(table.columns))]
    heads = [
        _Head(heading(c, values), c.name, c.kind not in ("text", "flag"), c.doc)
        for c, values in zip(table.columns, columns, strict=True)
    ]
    ready = []
    for c, values in zip(table.columns, columns, strict=True):
        texts = cells(c, values)
        ready.append([_cell(c.kind, v, text) for v, text in zip(values, texts, strict=True)])
    return {"heads": heads, "rows": list(zip(*ready, strict=True))}


def _cell(kind: str, value: Any, text: str) -> _Cell:
    if kind == "text":
        return _Cell(text, None, None)
    if value is None:
        return _Cell(text, "", None)
    if kind == "share":
        return _Cell(text, f"{value:.6g}", f"{100 * min(max(value, 0.0), 1.0):.1f}")
    if kind == "flag":
        return _Cell(text, "1" if value else "0", None)
    return _Cell(text, f"{value:.10g}" if isinstance(value, float) else str(value), None)
