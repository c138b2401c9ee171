r"""The report as Markdown (GitHub's dialect): for mails, issues and commit messages.

Every character of a text that Markdown could read as its own is escaped, so that a task named
``[x](http://y)`` or ``<b>`` stays a name.
"""

from __future__ import annotations

import re

from traceana.output import escape
from traceana.reports.model import Code, Report, Section, Strong, Table, Text
from traceana.reports.words import cells, heading

__all__ = ["render_md"]

_SPECIAL = re.compile(r"([\\`*\[\]<>{}|~$&#!]|(?<![^\W_])_|_(?![^\W_]))")
_LINK = re.compile(r"(?i)\b(https?|ftp|www|mailto)([:.])|@")


def _escape(text: str) -> str:
    r"""Text that Markdown shows as it is.

    >>> print(_escape("<b>*x*</b> sched_switch"))
    \<b\>\*x\*\</b\> sched_switch
    """
    text = _SPECIAL.sub(r"\\\1", escape(text))
    # A bare address would become a link (and "@name" a mention): a zero-width joint breaks it.
    return _LINK.sub(lambda m: f"{m[1] or ''}<span></span>{m[2] or m[0]}", text)


def _code(text: str) -> str:
    text = escape(text)
    ticks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _paragraph(text: Text) -> str:
    out = []
    for part in text:
        if isinstance(part, Code):
            out.append(_code(part))
        elif isinstance(part, Strong):
            body = part.strip()
            lead, tail = part[: len(part) - len(part.lstrip())], part[len(part.rstrip()) :]
            out.append(f"{lead}**{_escape(body)}**{tail}")
        else:
            out.append(_escape(part))
    line = "".join(out)
    line = re.sub(r"^(\s*)([-+=])(?=\s|$)", r"\1\\\2", line)
    return re.sub(r"^(\s*\d+)([.)])(?=\s|$)", r"\1\\\2", line)


def render_md(report: Report) -> str:
    """The report as Markdown; figures are given by their finding."""
    out = [f"# {_escape(report.title)}", ""]
    for i, text in enumerate(report.opening, 1):
        out.append(f"{i}. {_paragraph(text)}")
    out.append("")
    for section in report.sections:
        _section(section, out, 2)
    return "\n".join(out).rstrip() + "\n"


def _section(section: Section, out: list[str], level: int) -> None:
    title = section.title if level == 2 else f"Workload {section.title}"
    out += [f"{'#' * level} {_escape(title)}", ""]
    for text in section.missing:
        out += [f"> {_paragraph(text)}", ""]
    for text in section.sentences:
        out += [_paragraph(text), ""]
    for figure in section.figures:
        out += [f"*{_escape(figure.title)}*: {_escape(figure.alt)} {_escape(figure.caption)}", ""]
    for table in section.tables:
        _table(table, out)
    for part in section.parts:
        _section(part, out, level + 1)
    for term, text in section.definitions:
        out.append(f"- **{_escape(term)}**: {_paragraph(text)}")
    if section.definitions:
        out.append("")
    if section.reproduce:
        body = "\n".join(escape(line) for line in section.reproduce)
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", body)), default=0))
        out += [f"{fence}sh", body, fence, ""]


def _table(table: Table, out: list[str]) -> None:
    out += [f"**{_escape(table.caption)}**", ""]
    if not table.rows:
        out += ["(no rows)", ""]
        return
    columns = [[row[i] for row in table.rows] for i in range(len(table.columns))]
    titles = [_escape(heading(c, v)) for c, v in zip(table.columns, columns, strict=True)]
    texts = [[_escape(t) for t in cells(c, v)] for c, v in zip(table.columns, columns, strict=True)]
    marks = [":--" if c.kind in ("text", "flag") else "--:" for c in table.columns]
    for line in (titles, marks, *zip(*texts, strict=True)):
        out.append("| " + " | ".join(line) + " |")
    if table.more:
        out += ["", f"… {table.more:,} more"]
    if table.note:
        out += ["", _escape(table.note)]
    out.append("")
