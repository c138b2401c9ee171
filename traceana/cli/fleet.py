"""``traceana fleet``: a dataset of captures as one answer."""

from __future__ import annotations

import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from traceana import output
from traceana.cli.common import colored, emit, spare_pandas, write
from traceana.cli.options import OUTPUT, Options, verb
from traceana.cli.values import choose
from traceana.errors import UsageError
from traceana.output import Field, Sheet

if TYPE_CHECKING:
    from traceana.fleet import Fleet

__all__ = ["register"]

FORMATS = (*output.FORMATS, "html")
TABLES = ("groups", "gains", "workloads", "outliers", "troubled")
#: What a terminal shows of a group.
GROUPS = (
    Field("captures", "int"),
    Field("failed", "int"),
    Field("idle_share", "share", "idle"),
    Field("idle_waited_share", "share", "waited"),
    Field("double_bookings_per_million", "float", "booked/M"),
    Field("queue_delay_p50_ns", "ns", "queue p50"),
    Field("queue_delay_p99_ns", "ns", "p99"),
    Field("wakeup_latency_p99_ns", "ns", "wakeup p99"),
    Field("fidelity_exact", "share", "exact"),
)
GAINS = (
    Field("rule", "text"),
    Field("figure", "text"),
    Field("n", "int"),
    Field("recorded_ns", "ns", "recorded"),
    Field("gain_ns", "ns", "gain"),
    Field("lo_ns", "ns", "lo"),
    Field("hi_ns", "ns", "hi"),
)
WORKLOADS = (
    Field("workload", "text", width=24),
    Field("captures", "int"),
    Field("wakeups", "int"),
    Field("queue_delay_p50_ns", "ns", "queue p50"),
    Field("queue_delay_p99_ns", "ns", "p99"),
    Field("queue_delay_p99_most_ns", "ns", "highest p99"),
    Field("wakeup_latency_p99_ns", "ns", "wakeup p99"),
)
OUTLIERS = (
    Field("of", "text", ""),
    Field("name", "text", width=48),
    Field("metric", "text"),
    Field("value", "float"),
    Field("median", "float", "of all"),
    Field("z", "float"),
    Field("n", "int"),
)
TROUBLED = (Field("source", "text"), Field("status", "text"), Field("reason", "text"))
NOTE = (
    "idle: mean share; waited: of it, while somebody waited in the same LLC; booked/M: strict "
    "double bookings per million decided wakeups; percentiles: median of the captures'; exact: "
    "decisions that the kernel's own path explains"
)
GAIN_NOTE = (
    "estimated, open loop: recorded - estimated, mean over n captures, 95 % interval (Student's t; "
    "of one capture its own)"
)


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(app, OUTPUT, example="traceana fleet build/fleet --by hostname,kernel")
    def fleet(
        options: Options,
        dataset: Annotated[
            str,
            typer.Argument(
                metavar="DATASET", help="What `traceana batch` wrote.", show_default=False
            ),
        ],
        by: Annotated[
            list[str] | None,
            typer.Option(
                "--by",
                metavar="NAME,NAME",
                show_default=False,
                help="Group captures by these labels, or by hostname, machine, kernel, form, "
                "clock, cpus, status, race_verdict. Default: the labels, else hostname,kernel.",
            ),
        ] = None,
        table: Annotated[
            str,
            typer.Option(
                "--table",
                metavar="NAME",
                show_default=False,
                help="For csv, ndjson and md: groups, gains, workloads, outliers or troubled. "
                "Default: groups.",
            ),
        ] = "groups",
    ) -> int:
        """Show which machines, kernels and workloads of a dataset stand out.

        Per group: idle share and how much of it while somebody waited, double bookings per
        million wakeups, both latencies, fidelity, quality of the captures, and the gain that
        each rule is estimated to bring, with its interval. With -o FILE.html (or --format html)
        a page like that of `report`.
        """
        choose(options.format, FORMATS, "--format")
        choose(table, TABLES, "--table")
        if options.format == "table" and options.output.endswith((".html", ".htm")):
            options.format = "html"
        output.check_target(options.output, force=options.force)
        names = [n.strip() for text in by or [] for n in text.split(",") if n.strip()]
        if by and not names:
            raise UsageError("--by: name a label or a column")
        spare_pandas()
        from traceana.fleet import fleet as ask

        found = ask(dataset, by=names or None)
        _answer(found, table, options)
        return 0


def _answer(found: Fleet, table: str, options: Options) -> None:
    if options.format == "html":
        from traceana.reports.fleet import render

        write(render(found, command=shlex.join(["traceana", *sys.argv[1:]])), options)
    elif options.format == "json":
        write(output.render_facts(found.to_json(), (), "json", color=colored(options)), options)
    elif options.format == "table":
        terminal = options.output == "-" and sys.stdout.isatty()
        width = shutil.get_terminal_size((100, 24)).columns if terminal else 0
        write(_text(found, color=colored(options), width=width), options)
    else:
        rows: list[dict[str, Any]] = getattr(found, table)
        emit(_sheet(table, rows, found, full=True), replace(options, limit=0))


def _fields(table: str) -> Sequence[Field]:
    return {
        "groups": GROUPS,
        "gains": GAINS,
        "workloads": WORKLOADS,
        "outliers": OUTLIERS,
        "troubled": TROUBLED,
    }[table]


def _sheet(
    table: str,
    rows: Sequence[dict[str, Any]],
    found: Fleet,
    *,
    full: bool = False,
    notes: Sequence[str] = (),
) -> Sheet:
    """Rows under their fields; the names of a group in front, and all figures if full."""
    fields = list(_fields(table))
    grouped = table in ("groups", "gains")
    if full and rows:
        shown = {f.name for f in fields}
        fields += [Field(k, "float") for k in rows[0] if k != "group" and k not in shown]
    head = [Field(name, "text", width=28) for name in found.by] if grouped else []
    cells = [
        [*(row["group"].values() if grouped else ()), *(row[f.name] for f in fields)]
        for row in rows
    ]
    own = {f.name for f in fields}
    # A group's own name may be that of a figure ("status" is none, "captures" would be).
    head = [replace(f, name=f"by_{f.name}" if f.name in own else f.name) for f in head]
    return Sheet(table, [*head, *fields], cells, notes=notes)


def _text(found: Fleet, *, color: bool, width: int) -> str:
    s = found.statuses
    lines = [
        f"{found.dataset}: {output.plural(found.captures, 'capture')}, {s['ok']} ok, "
        f"{s['damaged']} damaged, {s['failed']} failed",
        *found.sentences,
    ]
    text = "".join(f"{line}\n" for one in lines for line in _wrapped(one))
    parts = [_sheet("groups", found.groups, found, notes=_wrapped(NOTE))]
    p99 = [r for r in found.gains if r["figure"].endswith("_p99") and r["n"]]
    if p99:
        parts.append(_sheet("gains", p99, found, notes=_wrapped(GAIN_NOTE)))
    if found.workloads:
        parts.append(_sheet("workloads", found.workloads[:10], found))
    if found.outliers:
        parts.append(_sheet("outliers", found.outliers[:15], found))
    if found.troubled:
        parts.append(_sheet("troubled", found.troubled[:15], found))
    for sheet in parts:
        total = len(getattr(found, sheet.name))
        if sheet.name != "gains" and total > len(sheet.rows):
            sheet.notes = [*sheet.notes, f"… {total - len(sheet.rows)} more (--format json)"]
        text += "\n" + output.render(sheet, "table", color=color, width=width)
    return text


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(output.escape(text), 100, break_on_hyphens=False) or [""]
