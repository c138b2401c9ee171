"""From a capture to the document: runs the sections in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from traceana.reports.context import NO_TIME, Context
from traceana.reports.model import Report, Section
from traceana.reports.sections import SECTIONS, opening
from traceana.reports.words import clean
from traceana.spill import give_back

if TYPE_CHECKING:
    from traceana.capture import Capture

__all__ = ["make"]


def make(
    cap: Capture,
    *,
    command: str | None,
    rules: Sequence[str],
    redact: bool,
    simulate: Sequence[str] = (),
) -> Report:
    """All sections of a report, each with what it can say."""
    ctx = Context(cap, rules=rules, redact=redact, command=command, simulate=simulate)
    _ = ctx.timeline  # what it learns belongs to the facts, too
    made: dict[str, Section] = {}
    # What the stages had to assume is complete only when all of them have run.
    entries = [entry for entry in SECTIONS if simulate or not entry.on_request]
    for entry in sorted(entries, key=lambda e: e.fill_last):
        section = made[entry.id] = Section(entry.id, entry.title)
        if entry.needs_timeline and ctx.timeline is None:
            section.missing.append(ctx.why["timeline"])
        elif entry.needs_time and not ctx.has_time:
            section.missing.append(NO_TIME)
        else:
            entry.fill(ctx, section)
        if ctx.timeline is not None and ctx.timeline.study is not None:
            give_back()
    sections = [made[entry.id] for entry in entries]
    if not ctx.has_time:
        sections = [_timeless(section) for section in sections]
    return Report(f"traceana: {clean(ctx.file)}", opening.sentences(ctx), sections)


def _timeless(section: Section) -> Section:
    section.tables = [table.without_time() for table in section.tables]
    section.parts = [_timeless(part) for part in section.parts]
    return section
