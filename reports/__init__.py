"""Reports, one file a section; imported as ``traceana.reports`` only.

>>> import traceana as ta
>>> from traceana import reports
>>> html = reports.render(ta.open("trace.dat"))          # doctest: +SKIP
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from traceana.errors import UsageError

if __name__ != "traceana.reports":
    raise ImportError("import traceana.reports, not reports")

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.reports.model import Report

__all__ = ["DEFAULT_RULES", "FORMATS", "build", "render", "summary"]

FORMATS = ("html", "md", "json")

#: Rules that are compared unless others are named.
DEFAULT_RULES = ("sis_short_v5", "abel", "prev_cpu", "this_cpu")

_Key = tuple[tuple[str, ...], tuple[str, ...], bool, str | None]
_built: weakref.WeakKeyDictionary[Capture, dict[_Key, Report]] = weakref.WeakKeyDictionary()


def build(
    cap: Capture,
    *,
    command: str | None = None,
    rules: Sequence[str] = DEFAULT_RULES,
    redact: bool = False,
    simulate: Sequence[str] = (),
) -> Report:
    """The neutral document of a capture; made once and kept as long as the capture.

    Raises
    ------
    MissingEventsError
        The capture holds no event of a kind that traceana reads.
    """
    from traceana.reports.document import make

    kept = _built.setdefault(cap, {})
    key = (tuple(rules), tuple(simulate), redact, command)
    if key not in kept:
        kept[key] = make(cap, command=command, rules=rules, redact=redact, simulate=simulate)
    return kept[key]


def render(
    cap: Capture,
    *,
    format: str = "html",
    command: str | None = None,
    rules: Sequence[str] = DEFAULT_RULES,
    redact: bool = False,
    simulate: Sequence[str] = (),
) -> str:
    """A report of a capture as text.

    Parameters
    ----------
    cap : Capture
    format : str
        'html' (one self-contained page), 'md' or 'json'.
    command : str, optional
        Command line to name in the provenance; else the plainest one that gives this report.
    rules : sequence of str
        Rules to compare, open loop.
    redact : bool
        Replace names of tasks and files and thread ids by stable labels.
    simulate : sequence of str
        Rules to run the workload under, closed loop; none: no such section.

    Raises
    ------
    MissingEventsError
        The capture holds no event of a kind that traceana reads.
    UsageError
        Unknown format or rule.
    """
    if format not in FORMATS:
        raise UsageError(f"format {format!r}; one of {', '.join(FORMATS)}")
    report = build(cap, command=command, rules=rules, redact=redact, simulate=simulate)
    if format == "html":
        from traceana.reports.render_html import render_html

        return render_html(report)
    if format == "md":
        from traceana.reports.render_md import render_md

        return render_md(report)
    from traceana.reports.render_json import render_json

    return render_json(report)


def summary(
    cap: Capture, *, rules: Sequence[str] = DEFAULT_RULES, redact: bool = False
) -> list[str]:
    """The opening sentences of the report as plain text."""
    from traceana.reports.model import plain

    return [plain(text) for text in build(cap, rules=rules, redact=redact).opening]
