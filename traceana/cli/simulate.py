"""``traceana simulate``: the captured workload under other rules, on a model (closed loop)."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from traceana import output
from traceana.cli.common import (
    check_output,
    check_rows,
    colored,
    conclude,
    lost_block,
    opened,
    say,
    spare_pandas,
    timed,
    write,
)
from traceana.cli.options import INPUT, OUTPUT, Options, verb
from traceana.cli.progress import Progress
from traceana.errors import MissingEventsError, UsageError
from traceana.output import Field, Sheet

if TYPE_CHECKING:
    from traceana._closed_loop_figures import Several
    from traceana.capture import Capture
    from traceana.closed_loop import Estimate, Prepared, Variant

__all__ = ["check_store", "register"]

FIELDS = (
    Field("what", "text", width=34),
    Field("idle_share", "share", "idle"),
    Field("idle_spread", "share", "±"),
    Field("wakeups_per_s", "int", "wakeups/s"),
    Field("edges_per_s", "int", "edges/s"),
    Field("queue_delay_p50_ns", "ns", "delay p50"),
    Field("queue_delay_p99_ns", "ns", "p99"),
    Field("wakeup_latency_p99_ns", "ns", "latency p99"),
    Field("waker_cpu_share", "share", "on waker's"),
    Field("progress", "share", "progress"),
)
#: What only a capture can be asked.
_OF_CAPTURES = (
    "buffer", "topology", "start_state", "hz", "kernel", "ignore", "workload", "time", "between",
    "read_mode", "fail_on_loss", "redact",
)  # fmt: skip
DEFAULT_RULES = ("sis_short_v5", "race_free")


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(
        app,
        INPUT,
        OUTPUT,
        example="traceana simulate sample_traces/pp6-base.dat --rule sis_short_v5 --seeds 4",
    )
    def simulate(
        options: Options,
        rule: Annotated[
            list[str] | None,
            typer.Option(
                "--rule",
                metavar="NAME",
                show_default=False,
                help="A name of `traceana rules`, or the path of a rule file. Repeatable, or "
                "NAME,NAME; NAME+NAME is one rule with the steps of both. Default: sis_short_v5, "
                "race_free; none with --tunable.",
            ),
        ] = None,
        recorded_rule: Annotated[
            str,
            typer.Option(
                "--recorded-rule",
                metavar="NAME",
                show_default=False,
                help="The rule that the recorded kernel had. Default: mainline.",
            ),
        ] = "mainline",
        seeds: Annotated[
            int,
            typer.Option(
                "--seeds", metavar="N", show_default=False, help="Runs of each. Default: 8."
            ),
        ] = 8,
        seed: Annotated[
            int,
            typer.Option("--seed", metavar="N", show_default=False, help="The first. Default: 1."),
        ] = 1,
        warm_up: Annotated[
            str,
            typer.Option(
                "--warm-up",
                metavar="TIME",
                show_default=False,
                help="Simulated time that another rule gets before it is measured: the recorded "
                "state is that of the recorded one. Default: 300ms.",
            ),
        ] = "300ms",
        window: Annotated[
            int,
            typer.Option(
                "--window",
                metavar="0|1",
                show_default=False,
                help="0: bookings are seen at once, so that what is left is not the race's. "
                "The baseline keeps its window.",
            ),
        ] = 1,
        tunable: Annotated[
            list[str] | None,
            typer.Option(
                "--tunable",
                metavar="NAME=VALUE",
                show_default=False,
                help="Another value of a tunable: migration_cost_ns=50us, min_granularity_ns, "
                "base_slice_ns, wakeup_granularity_ns, latency_ns, SIS_UTIL=off, hz … Repeatable.",
            ),
        ] = None,
        cost: Annotated[
            list[str] | None,
            typer.Option(
                "--cost",
                metavar="NAME=TIME",
                show_default=False,
                help="Set a cost of the model by hand, e.g. ipi=2us (all: --format json). "
                "Repeatable.",
            ),
        ] = None,
        instances: Annotated[
            str,
            typer.Option(
                "--instances",
                metavar="Nx",
                show_default=False,
                help="So many copies of all tasks. Default: 1x.",
            ),
        ] = "1x",
        cpus: Annotated[
            str | None,
            typer.Option(
                "--cpus",
                metavar="SOCKETSxCORESxTHREADS",
                show_default=False,
                help="Run it on another machine, e.g. 2x56x2.",
            ),
        ] = None,
        smt_slowdown: Annotated[
            float,
            typer.Option(
                "--smt-slowdown",
                metavar="FACTOR",
                show_default=False,
                help="How much slower a thread runs while its sibling does. Default: 1.0.",
            ),
        ] = 1.0,
        save_workload: Annotated[
            str | None,
            typer.Option(
                "--save-workload",
                metavar="FOLDER",
                show_default=False,
                help="Write scripts and costs as well; simulate reads such a folder like a "
                "capture.",
            ),
        ] = None,
        ensemble: Annotated[
            bool | None,
            typer.Option(
                "--ensemble/--no-ensemble",
                show_default=False,
                help="Further runs from random places, 100 ms of warm-up each. Default: where the "
                "recording is settled.",
            ),
        ] = None,
    ) -> int:
        """Run the captured workload on a model of its machine, under its own rule and others.

        Estimated, closed loop: what follows from a changed placement is simulated, too. First the
        recorded rule: its distance from the recording is the model's own error, and a change
        smaller than that is no finding. With -o FOLDER.traceana the simulated events of one rule
        are written as a store, which every verb reads. FILE may be a workload that was saved
        (--save-workload, or `traceana synth --workload`).
        """
        check_rows(options, ())
        if window not in (0, 1):
            raise UsageError(f"--window {window}: 0 or 1")
        if seeds < 1 or seeds > 1000:
            raise UsageError(f"--seeds {seeds}: 1 to 1000")
        if not 0 <= seed < 1 << 31:
            raise UsageError(f"--seed {seed}: 0 to 2147483647")
        if not 1.0 <= smt_slowdown <= 16.0:
            raise UsageError(f"--smt-slowdown {smt_slowdown:g}: 1 to 16")
        copies = _copies(instances)
        names = [n.strip() for text in rule or [] for n in text.split(",") if n.strip()]
        target = _store_target(options)
        if save_workload is not None:
            check_store(save_workload.rstrip("/"), force=options.force)
        with _source(options) as (cap, load):
            from traceana import tunables
            from traceana._synth_draws import parse_duration
            from traceana.synth import parse_shape
            from traceana.topology import shaped

            if cap is not None:
                timed(cap, "simulate")
            changes = tunables.parse(tunable or [])
            if not names and not changes:
                names = ["mainline"] if window == 0 else list(DEFAULT_RULES)
            asked = tunables.variants(names, changes, tunable or [])
            if target and len(names) > 1:
                raise UsageError(f"-o {target}: name one --rule; a store holds one run")
            given = {
                "seeds": seeds,
                "first_seed": seed,
                "warm_up_ns": parse_duration(warm_up, "--warm-up"),
                "window": window,
                "instances": copies,
                "topology": None if cpus is None else shaped(*parse_shape(cpus)),
                "smt_slowdown": smt_slowdown,
                "costs": _costs(cost or []),
                "recorded_rule": recorded_rule,
                "ensemble": ensemble,
            }
            made = load()
            if save_workload is not None:
                made.save(save_workload)
                if not options.quiet:
                    say(f"the workload is in {save_workload}")
            return _answer(cap, made, asked, given, target, options)


@contextmanager
def _source(options: Options) -> Iterator[tuple[Capture | None, Callable[[], Prepared]]]:
    """Open what the options name: a capture, or a workload that was saved."""
    path = Path(options.source)
    if (path / "workload.json").is_file():
        unknown = [f"--{name.replace('_', '-')}" for name in _OF_CAPTURES if _given(options, name)]
        if unknown:
            raise UsageError(f"{', '.join(unknown)}: {path} is a workload, no capture")
        check_output(options)
        spare_pandas()
        from traceana import closed_loop

        yield None, lambda: closed_loop.load(path)
        return
    with opened(options) as cap:

        def load() -> Prepared:
            for name in ("sched_switch", "sched_waking"):
                if not cap.counts.get(name) or name in cap.ignored:
                    raise MissingEventsError((name,), "simulate")
            from traceana import closed_loop

            with Progress(quiet=options.quiet, unit="") as progress:
                return closed_loop.prepare(cap, on_progress=progress)

        yield cap, load


def _given(options: Options, name: str) -> bool:
    return bool(getattr(options, name) != getattr(Options(), name))


def _answer(
    cap: Capture | None,
    made: Prepared,
    asked: Sequence[Variant],
    given: dict[str, Any],
    target: str,
    options: Options,
) -> int:
    from traceana import closed_loop

    with Progress(quiet=options.quiet, unit="") as progress:
        found = closed_loop.estimate(made, asked, on_progress=progress, **given)
    if target:
        run = closed_loop.simulated_capture(made, asked[0], **given)
        from traceana import store

        store.write(run, target, force=options.force)
        if not options.quiet:
            say(f"the events of seed {given['first_seed']} are in {target}")
    write(_text(cap, found, options), options)
    return conclude(cap, options) if cap is not None else 0


def _store_target(options: Options) -> str:
    """Where a store of events goes, taken from -o; the table then goes to standard output."""
    if not options.output.rstrip("/").endswith(".traceana"):
        return ""
    target = options.output.rstrip("/")
    check_store(target, force=options.force)
    options.output = "-"
    return target


def check_store(target: str, *, force: bool) -> None:
    """Refuse, before any work is done, a store that could not be written."""
    path = Path(target)
    if path.exists() and not force:
        raise UsageError(f"{target} exists; use --force to overwrite")
    if not path.parent.is_dir():
        raise UsageError(f"{target}: there is no folder {path.parent}")


def _copies(text: str) -> int:
    number = text.strip().lower().removesuffix("x")
    if not (number.isascii() and number.isdigit() and len(number) <= 4 and int(number) >= 1):
        raise UsageError(f"--instances {text}: give e.g. 2x")
    return int(number)


def _costs(given: list[str]) -> dict[str, int]:
    from traceana._synth_draws import parse_duration

    out = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--cost {text}: give NAME=TIME, e.g. ipi=2us")
        out[name.strip()] = parse_duration(value, f"--cost {name}")
    return out


def _text(cap: Capture | None, found: Estimate, options: Options) -> str:
    if options.format in ("json", "ndjson"):
        document = found.to_json()
        if cap is not None:
            document["lost"] = lost_block(cap)
        return output.render_facts(document, (), options.format, color=colored(options))
    from traceana._closed_loop_words import notes, paragraphs

    sheet = Sheet("runs", FIELDS, _rows(found), notes=[])
    if options.format == "csv":
        return output.render(sheet, "csv")
    lines = [output.render(sheet, options.format, color=colored(options), width=0)]
    for text in [*paragraphs(found), *notes(found)]:
        lines.append("\n".join(textwrap.wrap(output.escape(text), 100, break_on_hyphens=False)))
    return "\n".join(lines) + "\n"


def _rows(found: Estimate) -> list[list[Any]]:
    recorded = found.recorded
    first = [
        "recorded", recorded.idle_share, None, recorded.wakeups_per_s, recorded.edges_per_s,
        recorded.queue_delay_ns["p50"], recorded.queue_delay_ns["p99"],
        recorded.wakeup_latency_ns["p99"], recorded.waker_cpu_share, recorded.progress,
    ]  # fmt: skip
    rows = [first, _row(f"baseline: {found.baseline.rule}", found.baseline.runs)]
    if found.behind_warm_up is not None:
        rows.append(_row(f"{found.baseline.rule}, warmed up", found.behind_warm_up))
    rows += [_row(o.variant.label or o.rule, o.runs) for o in found.outcomes]
    return [
        [
            round(v) if f.kind in ("int", "ns") and v is not None else v
            for f, v in zip(FIELDS, row, strict=True)
        ]
        for row in rows
    ]


def _row(label: str, runs: Several) -> list[Any]:
    return [
        label, runs.mean("idle_share"), runs.spread("idle_share"), runs.mean("wakeups_per_s"),
        runs.mean("edges_per_s"), runs.mean("queue_delay_ns.p50"), runs.mean("queue_delay_ns.p99"),
        runs.mean("wakeup_latency_ns.p99"), runs.mean("waker_cpu_share"), runs.mean("progress"),
    ]  # fmt: skip
