"""``traceana race`` of several captures: a load series, as a table and as a figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceana import output
from traceana.cli.common import check_output, conclude, emit, opened, say, write
from traceana.cli.options import Options
from traceana.errors import TraceanaError, UsageError
from traceana.output import Field, Sheet

if TYPE_CHECKING:
    from traceana._race_verdict import Thresholds
    from traceana.capture import Capture
    from traceana.series import Point, Series

__all__ = ["answer_series", "files_of"]

_FIELDS = (
    Field("verdict", "text"),
    Field("idle_share", "share", "idle"),
    Field("strict_certain", "int", "certain"),
    Field("strict_possible", "int", "strict"),
    Field("looked_idle", "int", "idle found", shown=False),
    Field("rate_certain", "share", "rate", shown=False),
    Field("rate_certain_low", "share", "rate lo"),
    Field("rate_possible", "share", "rate", shown=False),
    Field("rate_possible_high", "share", "hi"),
    Field("stacked_share", "share", "stacked"),
    Field("attributable_low", "share", "cost", shown=False),
    Field("attributable_low_low", "share", "cost lo"),
    Field("attributable_high", "share", "cost", shown=False),
    Field("attributable_high_high", "share", "hi"),
    Field("attributable_low_ns", "ns", shown=False),
    Field("attributable_high_ns", "ns", shown=False),
    Field("observed_over_expected", "float", shown=False),
    Field("wakeups_per_s", "int", "wakeups/s"),
    Field("edges_per_s", "int", "edges/s"),
    Field("error", "text", shown=False),
)
_LEGEND = (
    "rate: strict double bookings per wakeup that found its CPU idle; cost: of idle time, "
    "attributable to them;",
    "lo of what is certain, hi of what is possible: ends of their 95 % intervals.",
    "wakeups and edges (wakeups by a task) per second are activity, not throughput.",
)
_DRAWN = (".html", ".htm", ".svg")


def files_of(given: Sequence[str]) -> tuple[list[str], bool]:
    """The captures that are meant, and whether it is a single one."""
    if not given:
        raise UsageError("no input: name a capture, or - for standard input")
    if len(given) > 1 and "-" in given:
        raise UsageError("standard input (-) can only stand alone")
    if any(not name for name in given):
        raise UsageError("the name of the input is empty")
    folders = [name for name in given if name != "-" and Path(name).is_dir()]
    if len(given) == 1 and not folders:
        return list(given), True
    from traceana.series import captures_in

    found = [file for name in given for file in captures_in(name)]
    # A store is a folder, too.
    single = len(given) == 1 and found == list(given)
    return found, single


def answer_series(
    files: list[str], template: str | None, limits: Thresholds, seed: int, options: Options
) -> int:
    """Ask each capture; write the table, or the figure where -o names one."""
    from traceana.series import Label, series

    label = Label(template) if template is not None else None
    if options.sort:
        raise UsageError("a series is in the order of its load; leave --sort out")
    for file in files:
        check_output(replace(options, file=file))
    status = 0

    @contextmanager
    def opener(file: str) -> Iterator[Capture]:
        with opened(replace(options, file=file, output="-")) as cap:
            yield cap

    def failed(file: str, error: TraceanaError) -> None:
        nonlocal status
        status = max(status, error.exit_code)
        text = str(error)
        say(text if file in text else f"{file}: {text}")

    def done(file: str, cap: Capture) -> None:
        nonlocal status
        status = max(status, conclude(cap, replace(options, file=file, output="-")))

    result = series(
        files, opener, label=label, thresholds=limits, seed=seed, failed=failed, done=done
    )
    if label is not None:
        for point in result.points:
            if not point.parts:
                say(f"{point.file}: does not fit --label {label.template}; it has no load")
    _write(result, options)
    answered = any(p.race is not None for p in result.points)
    # One that could not be read is a part that is missing; none at all is no result.
    return (4 if status else 0) if answered else status


def _write(result: Series, options: Options) -> None:
    from traceana._race_verdict import percent

    suffix = Path(options.output).suffix.lower()
    if options.format == "json":
        document = result.to_json()
        del document["schema_version"]
        write(output.render_facts(document, (), "json"), options)
        return
    if suffix in _DRAWN and options.format == "table":
        from traceana.reports import series as drawn

        made = drawn.svg(result) if suffix == ".svg" else drawn.page(result)
        write(made, options)
        target, options.output = options.output, "-"
        if not options.quiet:
            say(f"the series is in {target}")
    # What a name says stands in columns; the name itself only where it says nothing.
    told = bool(result.names) and all(p.parts for p in result.points)
    fields = [Field("file", "text", width=24, shown=not told)]
    fields += [
        Field(name, "text" if _words(result, name) else "float", name) for name in result.names
    ]
    rows = [_row(p, result.names) for p in result.points]
    limits = result.thresholds
    bounds = f"to matter: from {percent(limits.rate)} of those that found their CPU idle, and of "
    bounds += f"{percent(limits.idle_share)} of idle time on, by the lower end of what is certain"
    notes = [*(k.words() for k in result.knees), *([bounds] if result.knees else []), *_LEGEND]
    if options.limit is None:
        options.limit = 0
    sheet = Sheet("captures", [*fields, *_FIELDS], rows, notes=notes)
    emit(sheet, options)


def _words(result: Series, name: str) -> bool:
    return any(isinstance(p.parts.get(name), str) for p in result.points)


def _row(p: Point, names: Sequence[str]) -> list[Any]:
    row: list[Any] = [p.file, *(p.parts.get(name) for name in names)]
    r = p.race
    if r is None:
        return [*row, "no result", *[None] * (len(_FIELDS) - 2), p.error]
    low, high = r.attributable_ns

    def whole(value: float | None) -> int | None:
        return None if value is None else round(value)

    return [
        *row,
        r.verdict.replace("_", " "),
        p.idle_share,
        r.counts["strict_certain"],
        r.strict,
        r.counts["looked_idle"],
        r.certain.value,
        r.certain.low,
        r.possible.value,
        r.possible.high,
        r.stacked.value,
        r.idle_low.value,
        r.idle_low.low,
        r.idle_high.value,
        r.idle_high.high,
        low,
        high,
        r.choice.value,
        whole(p.wakeups_per_s),
        whole(p.edges_per_s),
        None,
    ]
