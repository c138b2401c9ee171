"""``traceana batch``: many captures into one dataset."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from traceana import output
from traceana.cli.common import emit, say, spare_pandas, write
from traceana.cli.options import Options, verb
from traceana.cli.progress import Progress
from traceana.cli.values import choose, parse_time, parse_workloads
from traceana.errors import LossError, UsageError
from traceana.output import Field, Sheet

if TYPE_CHECKING:
    from traceana.batch import Summary

__all__ = ["register"]

TAKES = ("buffer", "topology", "hz", "kernel", "ignore", "workload", "time", "redact", "output",
         "format")  # fmt: skip
FIELDS = (
    Field("source", "text"),
    Field("status", "text"),
    Field("reason", "text"),
)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(
        app,
        TAKES,
        example="traceana batch sample_traces/pp3-plain.dat.xz sample_traces/mix-wrapped.dat "
        "-o build/fleet",
        own_default=True,
    )
    def batch(
        options: Options,
        captures: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="CAPTURES...",
                help="Files, .traceana stores, folders (all captures below them), patterns "
                "('**/*.dat'), and URLs of fsspec (s3://, gs://, http://: extra fleet).",
                show_default=False,
            ),
        ] = None,
        rule: Annotated[
            list[str] | None,
            typer.Option(
                "--rule",
                metavar="NAME",
                show_default=False,
                help="Rule whose gain is estimated: a name of `traceana rules` or the path of a "
                "rule file. Repeatable, or NAME,NAME. Default: sis_short_v5, abel.",
            ),
        ] = None,
        label: Annotated[
            list[str] | None,
            typer.Option(
                "--label",
                metavar="TEMPLATE",
                show_default=False,
                help="End of the captures' paths with {names}, which become columns: "
                "'host-{host}/kernel-{kernel}.dat'; * is any text but /. Repeatable.",
            ),
        ] = None,
        jobs: Annotated[
            int | None,
            typer.Option(
                "-j",
                "--jobs",
                metavar="N",
                show_default=False,
                help="Worker processes. Default: as many as CPUs, and as fit into free memory.",
            ),
        ] = None,
        memory: Annotated[
            str,
            typer.Option(
                "--memory",
                metavar="SIZE",
                show_default=False,
                help="Memory that each worker may hold, e.g. 1500M or 4G; a capture that needs "
                "more fails. 0: no bound. Default: 2G.",
            ),
        ] = "2G",
        timeout: Annotated[
            float,
            typer.Option(
                "--timeout",
                metavar="SECONDS",
                show_default=False,
                help="A capture that takes longer fails; 0: no limit. Not with --dask. Default: "
                "1800.",
            ),
        ] = 1800.0,
        dask: Annotated[
            str | None,
            typer.Option(
                "--dask",
                metavar="ADDRESS",
                show_default=False,
                help="Work on the Dask cluster whose scheduler listens there (tcp://host:8786) "
                "instead of in processes of this machine. Extra fleet.",
            ),
        ] = None,
        tables: Annotated[
            list[str] | None,
            typer.Option(
                "--tables",
                metavar="NAME",
                show_default=False,
                help="Keep this table of each capture, too: slices, wakeups, idle_gaps, topology, "
                "issues, meta or names. Repeatable, or NAME,NAME. Default: figures and tasks.",
            ),
        ] = None,
        check: Annotated[
            bool,
            typer.Option(
                "--check",
                show_default=False,
                help="Read each capture to see whether it has changed, also where the times of "
                "the file say that nobody has touched it.",
            ),
        ] = False,
    ) -> int:
        """Measure many captures into one dataset, each once; run it again for what is new.

        The dataset (-o DATASET, a folder of Parquet files with a partition per capture) holds a
        row of facts per capture, the estimated gain per rule, workloads and tasks. A killed run
        leaves no half partition; the next one does what is missing or has changed: the content
        (SHA-256), rules, options, version. A capture that fails is a row with its reason.

        Ends with status 4 if some capture was damaged or failed, after all others are done.
        """
        choose(options.format, output.FORMATS, "--format")
        if not captures:
            raise UsageError("batch: name captures, folders or patterns")
        if options.output in ("", "-"):
            raise UsageError("batch: name the dataset's folder with -o DATASET")
        size = _bytes(memory)
        window = parse_time(options.time) if options.time is not None else None
        workloads = parse_workloads(options.workload)
        spare_pandas()
        from traceana.batch import Asked, run

        defaults = Asked()
        asked = Asked(
            rules=_words(rule) or defaults.rules,
            workload=tuple(workloads),
            topology=options.topology,
            hz=options.hz,
            kernel=options.kernel,
            ignore=tuple(options.ignore),
            time=window,
            buffer=options.buffer,
            redact=options.redact,
            tables=_words(tables),
        )
        bar = _Bar(quiet=options.quiet)
        with bar:
            summary = run(
                captures,
                options.output,
                asked=asked,
                labels=label or (),
                jobs=jobs,
                memory=size,
                limit=timeout,
                dask=dask,
                check=check,
                progress=bar.captures,
            )
        return _ended(summary, options)


class _Bar(Progress):
    """Counts captures; the time left goes by bytes."""

    def captures(self, done: int, total: int, size: int, sizes: int) -> None:
        now = time.monotonic()
        if not self._on or now - self._start < 1.0:
            return
        share = size / sizes if sizes else done / max(total, 1)
        text = f"{done} of {total} captures"
        if 0 < share < 1:
            text += f"  {(now - self._start) * (1 / share - 1):.0f} s left"
        self._draw(text)


def _words(given: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(n.strip() for text in given or () for n in text.split(",") if n.strip())
    )


def _bytes(text: str) -> int:
    match = re.fullmatch(r"\s*(\d{1,12})\s*([kmgt]?)(?:i?b)?\s*", text.lower(), re.ASCII)
    if match is None:
        raise UsageError(f"--memory {text}: give a size such as 1500M or 4G")
    return int(match[1]) << _UNITS[match[2]]


def _ended(summary: Summary, options: Options) -> int:
    quiet = options.quiet
    options = replace(options, output="-", quiet=True)
    counts = {
        "dataset": summary.dataset,
        "captures": summary.captures,
        "computed": summary.computed,
        "kept": summary.kept,
        "ok": summary.of("ok"),
        "damaged": summary.of("damaged"),
        "failed": summary.of("failed"),
    }
    rows = [[p.source, p.status, p.reason] for p in summary.problems]
    told = (
        f"{output.plural(summary.captures, 'capture')}: {summary.computed} computed, "
        f"{summary.kept} kept; {counts['ok']} ok, {counts['damaged']} damaged, "
        f"{counts['failed']} failed"
    )
    if options.format == "table" and not rows:
        write(f"{told}\n", options)
    else:
        limit = 0 if options.format != "table" else None
        emit(
            Sheet("problems", FIELDS, rows, head=counts, notes=[told]),
            replace(options, limit=limit),
        )
    if summary.unlabelled and not quiet:
        say(f"warning: no label in the path of {output.plural(summary.unlabelled, 'capture')}")
    if summary.problems:
        say(
            f"{counts['damaged']} damaged and {counts['failed']} failed; their rows in "
            f"{summary.dataset} say why"
        )
        return LossError.exit_code
    return 0
