"""The report of a fleet: its own sections, the same renderers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from traceana import __version__
from traceana._fleet_figures import BEYOND, METRICS
from traceana.reports.model import Code, Column, Kind, Report, Section, Strong, Table, Text, say
from traceana.reports.words import clean, plural
from traceana.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from traceana.fleet import Fleet

__all__ = ["build", "render"]

_FIGURES: tuple[tuple[str, Kind, str], ...] = (
    ("captures", "int", "captures"),
    ("idle_share", "share", "idle"),
    ("idle_waited_share", "share", "while somebody waited"),
    ("double_bookings_per_million", "float", "double bookings per million"),
    ("double_bookings_certain_per_million", "float", "of these certain"),
    ("queue_delay_p50_ns", "ns", "queue delay p50"),
    ("queue_delay_p99_ns", "ns", "p99"),
    ("queue_delay_p99_most_ns", "ns", "highest p99"),
    ("wakeup_latency_p50_ns", "ns", "wakeup latency p50"),
    ("wakeup_latency_p99_ns", "ns", "p99"),
    ("wakeup_latency_p99_most_ns", "ns", "highest p99"),
)
_QUALITY: tuple[tuple[str, Kind, str], ...] = (
    ("captures", "int", "captures"),
    ("ok", "int", "ok"),
    ("damaged", "int", "damaged"),
    ("failed", "int", "failed"),
    ("with_losses", "int", "with losses"),
    ("lost_per_event", "float", "lost per event"),
    ("events", "int", "events"),
    ("span_ns", "ns", "time in all"),
    ("fidelity_exact", "share", "decisions explained exactly"),
    ("fidelity_possible", "share", "or possibly"),
)


def render(found: Fleet, *, command: str | None = None) -> str:
    """A fleet as one self-contained page."""
    from traceana.reports.render_html import render_html

    return render_html(build(found, command=command))


def build(found: Fleet, *, command: str | None = None) -> Report:
    """The neutral document of a fleet."""
    words = ["traceana", "fleet", found.dataset, "--by", ",".join(found.by)]
    again = shlex.join(words)
    s = found.statuses
    opening: list[Text] = [
        say(
            Strong(plural(found.captures, "capture")),
            f": {s['ok']} ok, {s['damaged']} damaged, {s['failed']} failed.",
        ),
        *(say(clean(text), ".") for text in found.sentences),
    ]
    sections = [
        _groups(found, again),
        _gains(found, again),
        _workloads(found, again),
        _outliers(found, again),
        _quality(found, again),
        _provenance(found, command or again),
    ]
    return Report(
        f"traceana: {plural(found.captures, 'capture')} of {clean(found.dataset)}",
        opening,
        [x for x in sections if x.tables or x.sentences],
    )


def _grouped(
    found: Fleet,
    id: str,
    caption: str,
    rows: Sequence[Mapping[str, Any]],
    figures: Sequence[tuple[str, Kind, str]],
) -> Table:
    head = [Column(f"by_{name}", "text", name) for name in found.by]
    cells = [
        [*(None if v is None else clean(str(v)) for v in r["group"].values()),
         *(_cell(r[name], kind) for name, kind, _ in figures)]
        for r in rows
    ]  # fmt: skip
    return Table(id, caption, [*head, *(Column(*f) for f in figures)], cells)


def _cell(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if kind == "text":
        return clean(str(value))
    if kind in ("ns", "int"):
        return round(value)
    return float(f"{value:.4g}")


def _groups(found: Fleet, again: str) -> Section:
    section = Section("groups", "Machines, kernels, labels")
    section.sentences.append(
        say(
            Strong(plural(len(found.groups), "group")),
            " by ",
            Code(", ".join(found.by)),
            ". Shares and rates are sums over the captures of a group; percentiles cannot be "
            "merged, so a group has the median of its captures' and the highest.",
        )
    )
    section.tables.append(_grouped(found, "groups", "Groups", found.groups, _FIGURES))
    section.definitions += [
        (
            "idle while somebody waited",
            say("Share of idle time in which a task was runnable but not running in the same LLC."),
        ),
        (
            "double bookings per million",
            say("Strict double bookings per million wakeups with a placement decision."),
        ),
    ]
    section.reproduce.append(again)
    return section


def _gains(found: Fleet, again: str) -> Section:
    section = Section("gains", "What other rules would bring")
    rows = [r for r in found.gains if r["n"]]
    if not rows:
        return section
    sure = [r for r in rows if r["lo_ns"] is not None and r["lo_ns"] > 0]
    worse = [r for r in rows if r["hi_ns"] is not None and r["hi_ns"] < 0]
    section.sentences.append(
        say(
            "Estimated, open loop: recorded minus estimated, so positive is shorter. Of ",
            Strong(plural(len(rows), "figure")),
            f" the interval of {len(sure)} lies above 0, that of {len(worse)} below. The mean over "
            "n captures has a 95 % interval by Student's t, never narrower than the captures' own; "
            "of one capture it is its own.",
        )
    )
    figures: tuple[tuple[str, Kind, str], ...] = (
        ("rule", "text", "rule"),
        ("figure", "text", "figure"),
        ("n", "int", "n"),
        ("moved", "int", "wakeups moved"),
        ("recorded_ns", "ns", "recorded"),
        ("gain_ns", "ns", "gain"),
        ("lo_ns", "ns", "lo"),
        ("hi_ns", "ns", "hi"),
    )
    section.tables.append(_grouped(found, "gains", "Estimated gain per rule", rows, figures))
    section.reproduce.append(f"{again} --table gains --format csv")
    return section


def _workloads(found: Fleet, again: str) -> Section:
    section = Section("workloads", "Workloads")
    if not found.workloads:
        return section
    columns: tuple[tuple[str, Kind, str], ...] = (
        ("workload", "text", "workload"),
        ("captures", "int", "captures"),
        ("tasks", "int", "tasks"),
        ("runtime_ns", "ns", "ran"),
        ("wakeups", "int", "wakeups"),
        ("queue_delay_p50_ns", "ns", "queue delay p50"),
        ("queue_delay_p99_ns", "ns", "p99"),
        ("queue_delay_p99_most_ns", "ns", "highest p99"),
        ("wakeup_latency_p50_ns", "ns", "wakeup latency p50"),
        ("wakeup_latency_p99_ns", "ns", "p99"),
    )
    section.sentences.append(say("Those that ran longest, over all captures."))
    rows = [[_cell(r[name], kind) for name, kind, _ in columns] for r in found.workloads]
    section.tables.append(Table("workloads", "Workloads", [Column(*c) for c in columns], rows))
    section.reproduce.append(f"{again} --table workloads --format csv")
    return section


def _outliers(found: Fleet, again: str) -> Section:
    section = Section("outliers", "What stands out")
    if not found.outliers:
        section.sentences.append(
            say(f"Nothing stands out: no robust z-score beyond {BEYOND} among the captures.")
        )
        return section
    section.sentences.append(
        say(
            Strong(plural(len(found.outliers), "figure")),
            f" beyond a robust z-score of {BEYOND}: (value - median) / (1.4826 x median absolute "
            "deviation of all captures); of a group the median of its captures.",
        )
    )
    columns = (
        Column("of", "text", "of"),
        Column("name", "text", "name"),
        Column("metric", "text", "figure"),
        Column("value", "float", "value"),
        Column("median", "float", "median of all"),
        Column("z", "float", "z"),
        Column("n", "int", "n"),
    )
    rows = [
        [
            o["of"],
            clean(o["name"]),
            METRICS[o["metric"]] + (", ns" if o["metric"].endswith("_ns") else ""),
            *(float(f"{o[k]:.4g}") for k in ("value", "median", "z")),
            o["n"],
        ]
        for o in found.outliers
    ]
    section.tables.append(Table("outliers", "Outliers", columns, rows))
    section.reproduce.append(f"{again} --table outliers --format csv")
    return section


def _quality(found: Fleet, again: str) -> Section:
    section = Section("quality", "How good the captures are")
    section.sentences.append(
        say(f"{plural(len(found.troubled), 'capture')} of {found.captures} not whole.")
    )
    section.tables.append(_grouped(found, "quality", "Quality", found.groups, _QUALITY))
    if found.troubled:
        rows = [[clean(str(r[k])) if r[k] is not None else None for k in ("source", "status",
                 "reason")] for r in found.troubled]  # fmt: skip
        section.tables.append(
            Table(
                "troubled",
                "Captures that are damaged or failed",
                [Column(n, "text", n) for n in ("source", "status", "reason")],
                rows,
            )
        )
    section.reproduce.append(f"{again} --table troubled --format csv")
    return section


def _provenance(found: Fleet, command: str) -> Section:
    section = Section("provenance", "Where this comes from")
    section.sentences.append(
        say(f"traceana {__version__}, schema {SCHEMA_VERSION}, dataset {clean(found.dataset)}.")
    )
    section.reproduce.append(command)
    return section
