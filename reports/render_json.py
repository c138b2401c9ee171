"""The report as JSON: raw values under fixed names, versioned as every machine output."""

from __future__ import annotations

import json
from typing import Any

from traceana.reports.model import Report, Section, Table, plain
from traceana.schema import SCHEMA_VERSION

__all__ = ["render_json"]


def render_json(report: Report) -> str:
    """One JSON object; times in ns, shares from 0 to 1, null for "not known"."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "kind": "report",
        "title": report.title,
        "opening": [plain(text) for text in report.opening],
        "sections": [_section(section) for section in report.sections],
    }
    return json.dumps(document, indent=1, allow_nan=False, default=_number) + "\n"


def _number(value: Any) -> Any:
    return value.item()  # numpy's scalars


def _section(section: Section) -> dict[str, Any]:
    return {
        "id": section.id,
        "title": section.title,
        "sentences": [plain(text) for text in section.sentences],
        "missing": [plain(text) for text in section.missing],
        "figures": [
            {"id": f.id, "title": f.title, "finding": f.alt, "caption": f.caption, "data": f.data}
            for f in section.figures
        ],
        "tables": [_table(table) for table in section.tables],
        "definitions": [{"term": term, "text": plain(text)} for term, text in section.definitions],
        "reproduce": section.reproduce,
        "workloads": [_section(part) for part in section.parts],
    }


def _table(table: Table) -> dict[str, Any]:
    names = [column.name for column in table.columns]
    return {
        "id": table.id,
        "caption": table.caption,
        "columns": [{"name": c.name, "kind": c.kind, "title": c.title} for c in table.columns],
        "rows": [dict(zip(names, row, strict=True)) for row in table.rows],
        "more": table.more,
        "note": table.note,
    }
