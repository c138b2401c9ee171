"""A load series as a page of its own, or as one drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceana._race_verdict import percent
from traceana.reports.figures_series import curve, finding
from traceana.reports.model import Column, Figure, Report, Section, Table, say
from traceana.reports.words import clean

if TYPE_CHECKING:
    from traceana.series import Series

__all__ = ["page", "svg"]

#: Variables of the page's style, for a drawing that stands alone.
_ALONE = "<style>text{font-family:sans-serif}</style>"


def svg(series: Series) -> str:
    """The figure as a file."""
    drawn = curve(series)
    head, _, body = drawn.partition(">")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}>{_ALONE}{body}\n'


def page(series: Series) -> str:
    """Table and figure as one self-contained page."""
    from traceana.reports.render_html import render_html

    limits = series.thresholds
    section = Section("series", "Load series")
    section.sentences = [say(f"{k.words()[:1].upper()}{k.words()[1:]}.") for k in series.knees] or [
        say("No load is known: the captures are in their order.")
    ]
    section.sentences.append(
        say("A verdict holds for the machine that was traced. Activity is not throughput.")
    )
    section.figures.append(
        Figure(
            "series",
            "Double bookings and idle time against load",
            finding(series),
            "Thick: from what is certain to what is possible; thin: ends of the 95 % intervals; "
            "dashed: where it begins to matter.",
            lambda: curve(series),
            wide=True,
        )
    )
    section.tables.append(_table(series))
    section.definitions.append(
        (
            "begins to matter",
            say(
                "The lowest load at which, in half of the captures or more, the lower end of the "
                "95 % interval of what is certain reaches the threshold: ",
                f"{percent(limits.rate)} of the wakeups that found their CPU idle, "
                f"{percent(limits.idle_share)} of the idle time.",
            ),
        )
    )
    opening = [say(finding(series))]
    return render_html(Report("traceana: load series", opening, [section]))


def _table(series: Series) -> Table:
    rows: list[list[Any]] = []
    for p in series.points:
        label = [str(p.parts.get(name, "–")) for name in series.names]
        r = p.race
        if r is None:
            rows.append([clean(p.file), *map(clean, label), "no result", *[None] * 10])
            continue
        rows.append(
            [
                clean(p.file), *map(clean, label), r.verdict.replace("_", " "), p.idle_share,
                r.counts["strict_certain"], r.strict, r.certain.low, r.possible.high,
                r.stacked.value, r.idle_low.low, r.idle_high.high,
                None if p.wakeups_per_s is None else round(p.wakeups_per_s),
                None if p.edges_per_s is None else round(p.edges_per_s),
            ]
        )  # fmt: skip
    return Table(
        "captures",
        "The captures",
        [
            Column("file", "text", "capture"),
            *(Column(f"label_{name}", "text", name) for name in series.names),
            Column("verdict", "text", "verdict"),
            Column("idle_share", "share", "idle"),
            Column("certain", "int", "certain"),
            Column("possible", "int", "possible"),
            Column("rate_low", "share", "rate, at least"),
            Column("rate_high", "share", "at most"),
            Column("stacked", "share", "stacked"),
            Column("cost_low", "share", "of idle time, at least"),
            Column("cost_high", "share", "at most"),
            Column("wakeups_per_s", "int", "wakeups a second"),
            Column("edges_per_s", "int", "edges a second"),
        ],
        rows,
    )
