"""``traceana race``: is the ttwu race in a capture, what does it cost, and a verdict."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from traceana import output
from traceana.cli.common import check_rows, colored, conclude, emit, lost_block, opened, write
from traceana.cli.options import INPUT, OUTPUT, ROWS, Options, verb
from traceana.cli.progress import Progress
from traceana.cli.race_series import answer_series, files_of
from traceana.cli.values import choose
from traceana.errors import MissingEventsError, UsageError
from traceana.output import Field, Sheet

if TYPE_CHECKING:
    from traceana._closed_loop_null import RaceFree
    from traceana._race_verdict import Thresholds
    from traceana.capture import Capture
    from traceana.race import Race

__all__ = ["register"]

COLLISIONS = (
    Field("collision", "int", "id", shown=False),
    Field("ts_ns", "ts", "booked again"),
    Field("cpu", "int"),
    Field("class", "text"),
    Field("why", "text"),
    Field("first_comm", "text", "first", width=20),
    Field("first_tid", "int", "tid"),
    Field("victim_comm", "text", "victim", width=20),
    Field("victim_tid", "int", "tid"),
    Field("extra_delay_ns", "ns", "extra delay"),
    Field("hops", "int"),
    Field("attributable_lo_ns", "ns", "idle lo"),
    Field("attributable_hi_ns", "ns", "hi"),
    Field("earlier", "int", shown=False),
    Field("later", "int", shown=False),
    Field("first", "int", shown=False),
    Field("victim", "int", shown=False),
)
CLASSES = (
    Field("class", "text", "double bookings"),
    Field("n", "int"),
    Field("share", "share", "of idle found"),
    Field("extra_delay_p50_ns", "ns", "delay p50"),
    Field("extra_delay_p99_ns", "ns", "p99"),
    Field("extra_delay_max_ns", "ns", "max"),
    Field("extra_delay_sum_ns", "ns", "sum"),
)
DELAYED = (
    Field("first", "text", "delayed by", width=24),
    Field("victim", "text", "victim", width=24),
    Field("n", "int"),
    Field("certain", "int"),
    Field("sum_ns", "ns", "extra delay"),
    Field("p50_ns", "ns", "p50"),
    Field("p99_ns", "ns", "p99"),
    Field("max_ns", "ns", "max"),
    Field("max_at_ns", "ts", "at"),
    Field("attributable_hi_ns", "ns", shown=False),
)
#: Columns of a table on a terminal.
_WIDTH = 100
BINS = (
    Field("bin", "text", "idle time"),
    Field("ns", "ns", "all CPUs"),
    Field("share", "share", "of idle"),
)
#: Pairs of families shown in a table.
_PAIRS = 10


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(
        app,
        tuple(name for name in INPUT if name != "input"),
        ROWS,
        OUTPUT,
        example="traceana race sample_traces/pp6-base.dat",
    )
    def race(
        options: Options,
        captures: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="FILE...",
                help="Capture; - is standard input. Several, or a folder, make a load series.",
                show_default=False,
            ),
        ] = None,
        more: Annotated[
            list[str] | None,
            typer.Option(
                "-i",
                "--input",
                metavar="FILE",
                help="The same as FILE. Repeatable.",
                show_default=False,
            ),
        ] = None,
        collisions: Annotated[
            bool,
            typer.Option(
                "--collisions",
                help="Each double booking instead of the verdict.",
                show_default=False,
            ),
        ] = False,
        label: Annotated[
            str | None,
            typer.Option(
                "--label",
                metavar="TEMPLATE",
                help="What the names of several captures say, as in 'pp{n}/base-*' or 'pp-*-{n}': "
                "each {name} becomes a column, n (or load, or the first number) is the load.",
                show_default=False,
            ),
        ] = None,
        threshold: Annotated[
            list[str] | None,
            typer.Option(
                "--threshold",
                metavar="NAME=VALUE",
                help="What the verdict is measured by: rate (0.01), idle_share (0.01), decisions "
                "(1000), late_share (0.5), loss_share (0.05), skew_share (0.02). Repeatable.",
                show_default=False,
            ),
        ] = None,
        null: Annotated[
            str | None,
            typer.Option(
                "--null",
                metavar="MODEL",
                help="race_free: also run the workload on a model of its machine, with its window "
                "and without one (estimated, closed loop; takes some seconds).",
                show_default=False,
            ),
        ] = None,
        seed: Annotated[
            int,
            typer.Option(
                "--seed",
                metavar="N",
                min=0,
                max=2**31 - 1,
                help="Seed of what is drawn. Default: 1.",
                show_default=False,
            ),
        ] = 1,
    ) -> int:
        """Tell whether the ttwu race is in a capture, what it costs, and how sure that is.

        Double bookings (wakers that choose one idle CPU before either can see the other's
        choice), the idle time and the delay that they explain, what chance would give, and a
        verdict: supported, not supported, cannot say. Several captures or a folder make a load
        series; -o FILE.html or FILE.svg then draws it.
        """
        if null is not None:
            choose(null, ("race_free",), "--null")
        files, one = files_of([*(captures or []), *(more or [])])
        check_rows(options, COLLISIONS if collisions else ())
        if collisions and not one:
            raise UsageError("--collisions: name one capture")
        if null is not None and (collisions or not one):
            raise UsageError("--null is asked of one capture, and of the verdict")
        from traceana._race_verdict import parse_thresholds

        limits = parse_thresholds(threshold or [])
        if not one:
            return answer_series(files, label, limits, seed, options)
        if label is not None:
            raise UsageError("--label tells captures of a series apart; name several, or a folder")
        if not collisions and (options.sort or options.limit is not None):
            raise UsageError("--sort and -n order and cut the rows of --collisions")
        options.file = files[0]
        with opened(options) as cap:
            return _answer(cap, limits, seed, options, collisions=collisions, null=null)


def _answer(
    cap: Capture,
    limits: Thresholds,
    seed: int,
    options: Options,
    *,
    collisions: bool,
    null: str | None,
) -> int:
    for name in ("sched_switch", "sched_waking"):
        if not cap.counts.get(name) or name in cap.ignored:
            raise MissingEventsError((name,), "race")
    from traceana.race import race

    found = race(cap, thresholds=limits, seed=seed, chance=not collisions)
    if collisions:
        emit(_collisions(cap, found), options)
    else:
        free = _race_free(cap, found, seed, options) if null is not None else None
        write(_text(cap, found, free, options), options)
    return conclude(cap, options)


def _race_free(cap: Capture, found: Race, seed: int, options: Options) -> RaceFree:
    from traceana._closed_loop_null import race_free

    with Progress(quiet=options.quiet, unit="") as progress:
        return race_free(cap, found, first_seed=seed, on_progress=progress)


def _collisions(cap: Capture, found: Race) -> Sheet:
    from traceana._race_pairs import numbers, wake_columns
    from traceana.schema import BookingClass, BookingWhy

    timeline = cap.timeline()
    table = found.collisions
    comms = timeline.tasks.column("comm").to_pylist()
    pids = timeline.tasks.column("pid").to_pylist()
    who = {}
    for name in ("first", "victim"):
        tasks = wake_columns(timeline, numbers(table, name, -1), ("wakee",))["wakee"]
        who[name] = [(comms[t], pids[t]) if t >= 0 else (None, None) for t in tasks.tolist()]
    rows = []
    for i, row in enumerate(table.to_pylist()):
        row["ts_ns"] = row["ts"]
        row["class"] = BookingClass(row["class"]).name.lower()
        row["why"] = BookingWhy(row["why"]).name.lower()
        for name, of in who.items():
            row[f"{name}_comm"], row[f"{name}_tid"] = of[i]
        rows.append([row[f.name] for f in COLLISIONS])
    return Sheet("collisions", COLLISIONS, rows, head={"lost": lost_block(cap)})


def _text(cap: Capture, found: Race, free: RaceFree | None, options: Options) -> str:
    from traceana._race_pairs import who_delays_whom

    delayed = who_delays_whom(cap.timeline(), found.collisions)
    rows = [[getattr(d, f.name) for f in DELAYED] for d in delayed]
    if options.format in ("json", "ndjson", "csv"):
        document = found.to_json()
        del document["schema_version"]
        if options.format != "csv":
            document["who_delays_whom"] = Sheet("", DELAYED, rows).objects()
        document["lost"] = lost_block(cap)
        if free is not None:
            document["race_free"] = free.to_json()
        return output.render_facts(document, (), options.format)
    limit = _PAIRS if options.limit is None else options.limit or len(rows)
    pairs = Sheet("who_delays_whom", DELAYED, rows[:limit], more=max(0, len(rows) - limit))
    sheets = [_classes(found), *([pairs] if rows else []), *_bins(found)]
    return _prose(found, free, options, sheets)


def _prose(found: Race, free: RaceFree | None, options: Options, sheets: list[Sheet]) -> str:
    from traceana import _race_words as words

    sentences = words.verdict_words(found)
    chance, probe = words.chance_words(found), words.probe_words(found)
    if free is not None:
        chance = [*chance, free.sentence]
    notes = words.notes(found)
    if options.format == "md":
        text = "\n\n".join([*sentences, *chance, probe])
        tables = "".join("\n" + output.render(s, "md") for s in sheets)
        return text + "\n" + tables + "".join(f"\n{note}\n" for note in notes)
    color = colored(options)
    parts = ["\n".join(_wrapped(words.bare(" ".join(sentences)), ""))]
    parts += [output.render(s, "table", color=color, width=_WIDTH).rstrip("\n") for s in sheets]
    parts.append(
        "\n".join(line for t in [*chance, probe] for line in _wrapped(words.bare(t), "  "))
    )
    if notes:
        parts.append("\n".join(line for t in notes for line in _wrapped(t, "  ")))
    return "\n\n".join(parts) + "\n"


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        output.escape(text), _WIDTH, subsequent_indent=indent, break_on_hyphens=False
    ) or [""]


def _classes(found: Race) -> Sheet:
    from traceana._race_pairs import numbers
    from traceana._race_words import CLASSES as TITLES
    from traceana.race import NULL, Spread

    kinds, extra = numbers(found.collisions, "class"), numbers(found.collisions, "extra_delay_ns")
    looked = found.counts["looked_idle"]
    rows: list[list[Any]] = []
    for i, (name, title) in enumerate(TITLES.items()):
        n = found.counts[name]
        s = Spread.of(extra[(kinds == i) & (extra != NULL)])
        rows.append(
            [title, n, n / looked if looked else None, s.p50_ns, s.p99_ns, s.max_ns, s.sum_ns]
        )
    return Sheet("classes", CLASSES, rows)


def _bins(found: Race) -> list[Sheet]:
    bins = found.idle_bins()
    if not bins or not found.idle_ns:
        return []
    rows = [
        [name.replace("_", " "), ns, ns / found.idle_ns]
        for name, ns in sorted(bins.items(), key=lambda item: -item[1])
        if ns
    ]
    return [Sheet("idle_bins", BINS, rows)]
