"""The report of a comparison: its own sections, the same renderers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from traceana import __version__
from traceana._compare_metrics import IDLE_BINS, METRICS
from traceana._compare_words import (
    change,
    differs,
    legend,
    pair,
    ratio_words,
    scope_words,
    value,
)
from traceana.errors import UsageError
from traceana.reports.figures_compare import ecdf, histogram, idle_bars, ratios
from traceana.reports.model import Code, Column, Report, Section, Strong, Table, Text, say
from traceana.reports.words import clean, plural
from traceana.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from traceana.compare import Comparison, Row

__all__ = ["FORMATS", "build", "render"]

FORMATS = ("html", "md", "json")
_IDLE = ("attributable_lo", "attributable_hi", *IDLE_BINS)


def render(
    result: Comparison,
    *,
    format: str = "html",
    command: str | None = None,
    again: str | None = None,
) -> str:
    """A comparison as a report.

    Parameters
    ----------
    result : Comparison
    format : str
        'html' (one self-contained page), 'md' or 'json'.
    command : str, optional
        Command line to name in the provenance; else the same as ``again``.
    again : str, optional
        Command line that prints these figures; else the plainest one.

    Raises
    ------
    UsageError
        Unknown format.
    """
    if format not in FORMATS:
        raise UsageError(f"format {format!r}; one of {', '.join(FORMATS)}")
    report = build(result, command=command, again=again)
    if format == "html":
        from traceana.reports.render_html import render_html

        return render_html(report)
    if format == "md":
        from traceana.reports.render_md import render_md

        return render_md(report)
    from traceana.reports.render_json import render_json

    return render_json(report)


def build(result: Comparison, *, command: str | None = None, again: str | None = None) -> Report:
    """The neutral document of a comparison."""
    again = again or _command(result)
    sections = [
        _captures(result),
        _differences(result, again),
        _idle(result, again),
        _latencies(result, again),
        _groups(result, again),
        _method(result),
        _provenance(command or again),
    ]
    names = " and ".join(_side(result, side) for side in "ab")
    return Report(
        f"traceana: {clean(names)} compared",
        [say(text) for text in result.sentences],
        [s for s in sections if s.sentences or s.tables or s.figures or s.parts],
    )


def _side(result: Comparison, side: str) -> str:
    taken = result.a if side == "a" else result.b
    first = str(taken[0].facts["file"])
    return first if len(taken) == 1 else f"{first} (and {len(taken) - 1} more)"


def _command(result: Comparison) -> str:
    words = [str(t.facts["file"]) for t in result.a]
    words += [*(["vs"] if len(result.a) + len(result.b) > 2 else [])]
    words += [str(t.facts["file"]) for t in result.b]
    return shlex.join(["traceana", "compare", *words])


def _captures(result: Comparison) -> Section:
    section = Section("captures", "The captures")
    section.sentences.append(
        say(
            Strong(plural(len(result.a), "capture")),
            " on side A, ",
            Strong(plural(len(result.b), "capture")),
            " on side B. ",
            "Totals are of the window that all CPUs of a capture have in common.",
        )
    )
    section.missing += [_problem(p.text, grave=p.grave) for p in result.problems]
    rows = []
    for side, taken in (("A", result.a), ("B", result.b)):
        for t in taken:
            f = t.facts
            rows.append(
                [
                    side,
                    clean(str(f["file"])),
                    f["window_ns"],
                    f["events"],
                    f["cpus"],
                    f["llcs"],
                    None if f["kernel"] is None else clean(str(f["kernel"])),
                    None if f["clock"] is None else clean(str(f["clock"])),
                    f["event_cost_ns"],
                    f["lost_events"],
                    f["throughput_per_s"],
                ]
            )
    section.tables.append(
        Table(
            "captures",
            "Captures",
            [
                Column("side", "text", "side"),
                Column("file", "text", "file"),
                Column("window_ns", "ns", "window"),
                Column("events", "int", "events"),
                Column("cpus", "int", "CPUs"),
                Column("llcs", "int", "LLCs"),
                Column("kernel", "text", "kernel"),
                Column("clock", "text", "clock"),
                Column("event_cost_ns", "ns", "cost of an event"),
                Column("lost_events", "int", "lost"),
                Column("throughput_per_s", "float", "throughput /s"),
            ],
            rows,
        )
    )
    return section


def _problem(text: str, *, grave: bool) -> Text:
    words = text[0].upper() + text[1:]
    return say(Strong("Not comparable: "), words, ".") if grave else say(words, ".")


_COLUMNS = (
    Column("figure", "text", "figure"),
    Column("a", "text", "A"),
    Column("b", "text", "B"),
    Column("difference", "text", "B − A"),
    Column("interval", "text", "95 % interval"),
    Column("ratio", "text", "B / A"),
    Column("effect", "float", "effect"),
    Column("p_adjusted", "float", "p, adjusted"),
    Column("differs", "text", "differs"),
    Column("n_a", "int", "n, A"),
    Column("n_b", "int", "n, B"),
)


def _table(id: str, caption: str, rows: Sequence[Row], note: str = "") -> Table:
    return Table(id, caption, _COLUMNS, [_cells(r) for r in rows], note=note)


def _cells(r: Row) -> list[Any]:
    return [
        METRICS[r.metric].words.strip(),
        value(r.a, r.unit),
        value(r.b, r.unit),
        change(r.difference, r.unit),
        pair(r.lo, r.hi, r.unit) + ("*" if r.short and r.method == "blocks" else ""),
        ratio_words(r.ratio),
        None if r.effect is None else float(f"{r.effect:.3g}"),
        None if r.p_adjusted is None else float(f"{r.p_adjusted:.2g}"),
        differs(r),
        r.n_a,
        r.n_b,
    ]


def _differences(result: Comparison, again: str) -> Section:
    section = Section("differences", "What differs")
    rows = [r for r in result.rows if r.scope == "all" and r.metric not in _IDLE]
    asked = sum(r.lo is not None for r in rows)
    real = sum(r.real for r in rows)
    section.sentences.append(
        say(
            Strong(f"{real} of {plural(asked, 'figure')}"),
            " of all tasks differ; no figure is signed better or worse, and activity (wakeups, "
            "edges, switches) is not throughput.",
        )
    )
    figure = ratios(rows)
    if figure is not None:
        section.figures.append(figure)
    note = " ".join(legend(rows))
    section.tables.append(_table("differences", "All tasks", rows, note))
    section.reproduce.append(again)
    return section


def _idle(result: Comparison, again: str) -> Section:
    section = Section("idle-bins", "Where idle time goes")
    rows = [r for r in result.rows if r.metric in _IDLE]
    if not rows:
        return section
    section.sentences.append(
        say(
            "Shares of CPU time, by why a CPU was idle; the bins add up to the idle share. The "
            "first two rows are what strict double bookings cost, at least and at most."
        )
    )
    figure = idle_bars(rows)
    if figure is not None:
        section.figures.append(figure)
    section.tables.append(_table("idle-bins", "Idle time by why", rows))
    section.reproduce.append(again)
    return section


def _latencies(result: Comparison, again: str) -> Section:
    section = Section("latency", "Wakeup latency and queue delay")
    for latency in ("queue_delay", "wakeup_latency"):
        drawn = [f for f in (histogram(result, latency), ecdf(result, latency)) if f is not None]
        section.figures += drawn
    if section.figures:
        section.sentences.append(
            say(
                "Queue delay counts from ",
                Code("sched_wakeup"),
                " to the switch-in, wakeup latency from ",
                Code("sched_waking"),
                " (or the wakee's switch-out, if that is later): two things, shown apart. Waits "
                "that are cut by the window or by a loss are left out.",
            )
        )
        section.reproduce.append(f"{again} --format json")
    return section


def _groups(result: Comparison, again: str) -> Section:
    section = Section("groups", "Workloads and task families")
    scopes = [s for s in result.scopes if s != "all"]
    if not scopes:
        return section
    section.sentences.append(
        say(
            "The same for each group of tasks with at least 2 % of the run time or of the "
            "wakeups, the busiest first."
        )
    )
    for i, scope in enumerate(scopes):
        rows = [r for r in result.rows if r.scope == scope]
        kind, _, name = scope.partition(":")
        # Renderers call each part a workload.
        label = clean(name) if kind == "workload" else f"(task family) {clean(name)}"
        part = Section(f"group-{i}", label)
        real = [r for r in rows if r.real]
        part.sentences.append(
            say(
                Strong(f"{len(real)} of {plural(sum(r.lo is not None for r in rows), 'figure')}"),
                " differ.",
            )
        )
        part.tables.append(_table(f"group-{i}", scope_words(scope), rows))
        section.parts.append(part)
    section.reproduce.append(f"{again} --groups")
    return section


def _method(result: Comparison) -> Section:
    section = Section("method", "Method and limits")
    section.sentences += [
        say(
            "Intervals within a capture: the window is cut into stretches, blocks of them are "
            "drawn with replacement 1,200 times. The length of the blocks follows the data "
            "(Politis & White 2004), the bias of blocks that are too short is made up for (Vats & "
            "Flegal 2022), and the level is widened for few blocks as Student's t would "
            "(Hesterberg 2015)."
        ),
        say(
            "Such an interval says whether these two recordings differ. How much two recordings of "
            "the same thing differ, no single recording can show; repetitions can, and then the "
            "intervals are Student's t of the means of the repetitions (Welch), never narrower "
            "than what the blocks within them say."
        ),
        say(
            f"Real: the interval leaves 0 out, p stays below 5 % after Holm's adjustment, and the "
            f"difference is at least {100 * result.least:g} % of A's figure (of shares: half a "
            "percentage point; of latencies also one step of the clock)."
        ),
    ]
    section.definitions += [
        (
            "edges",
            say("Wakeups whose waker is a task (not an interrupt)."),
        ),
        (
            "run-queue time",
            say(
                "What all tasks together waited, runnable but not running, behind a wakeup or a "
                "preemption, over the window: the mean number of waiting tasks."
            ),
        ),
        (
            "migration",
            say(
                "A task ran on another CPU than the last time it ran; by the nearest that the two "
                "share."
            ),
        ),
        (
            "effect",
            say(
                "Latencies: Cliff's delta, P(B longer) − P(A longer) for two wakeups drawn at "
                "random; 0 = none, ±1 = all. Others: B − A in units of the spread between "
                "repetitions, or between sixteenths of the window."
            ),
        ),
    ]
    return section


def _provenance(again: str) -> Section:
    section = Section("provenance", "Provenance")
    facts = [
        ("traceana", __version__),
        ("schema version", str(SCHEMA_VERSION)),
        ("command", clean(again)),
    ]
    section.sentences.append(say("The same files, version and command give the same report."))
    section.tables.append(
        Table(
            "provenance",
            "Provenance",
            [Column("fact", "text", "fact"), Column("value", "text", "value")],
            [list(f) for f in facts],
        )
    )
    section.reproduce.append(again)
    return section
