"""``traceana export``: a capture for the tools that people already use."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from traceana import output
from traceana.cli.common import conclude, opened, say
from traceana.cli.options import INPUT, Options, verb
from traceana.cli.values import choose
from traceana.errors import UsageError
from traceana.output import plural

if TYPE_CHECKING:
    from traceana.capture import Capture

__all__ = ["register"]

FORMS = ("perfetto", "ftrace", "csv", "parquet", "arrow")
_BINARY = ("perfetto", "parquet", "arrow")


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(
        app,
        INPUT,
        ("output", "force"),
        example="traceana export sample_traces/pp6-base.dat --to perfetto "
        "-o build/pp6-base.pftrace",
    )
    def export(
        options: Options,
        to: Annotated[
            str,
            typer.Option(
                metavar="FORM",
                help="perfetto: for the Perfetto viewer, with counters, double bookings and what "
                "--rule would move; ftrace: the kernel's own text; csv, parquet, arrow: the "
                "table named by --table.",
                show_default=False,
            ),
        ],
        table: Annotated[
            str | None,
            typer.Option(
                metavar="NAME",
                help="Which table (csv, parquet, arrow): events, names, tasks, slices, wakeups, "
                "idle_gaps, topology, issues, meta. Default: events.",
                show_default=False,
            ),
        ] = None,
        rule: Annotated[
            list[str] | None,
            typer.Option(
                metavar="NAME",
                help="perfetto: a track with the wakeups that this rule would move. Repeatable.",
                show_default=False,
            ),
        ] = None,
    ) -> int:
        """Write a capture in a form that other tools read.

        Without -o the result goes to standard output. What a form cannot hold is left out and
        counted on standard error.
        """
        choose(to, FORMS, "--to")
        from traceana import export as forms

        if table is not None:
            choose(table, forms.TABLES, "--table")
            if to in ("perfetto", "ftrace"):
                raise UsageError(f"--table belongs to csv, parquet and arrow; --to {to} has none")
        if rule and to != "perfetto":
            raise UsageError("--rule belongs to --to perfetto")
        if to in _BINARY and options.output == "-" and sys.stdout.isatty():
            raise UsageError(f"--to {to} is binary: name a file with -o, or pipe it on")
        with opened(options) as cap:
            with _target(options) as file:
                left_out = _write(cap, file, to, table or "events", tuple(rule or ()))
            for why, n in sorted(left_out.items()):
                say(f"warning: {plural(n, 'event')} {why} left out: the form cannot hold them")
            return conclude(cap, options)


def _write(
    cap: Capture, file: IO[bytes], to: str, table: str, rules: tuple[str, ...]
) -> dict[str, int]:
    from traceana import export as forms

    if to == "perfetto":
        return forms.to_perfetto(cap, file, rules)
    if to == "ftrace":
        text = io.TextIOWrapper(file, "utf-8", newline="\n", write_through=False)
        try:
            return forms.to_ftrace(cap, text)
        finally:
            text.flush()
            text.detach()
    rows = forms.table_of(cap, table)
    if to == "csv":
        forms.to_csv(rows, file)
    elif to == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(rows, file, compression="zstd")
    else:
        import pyarrow as pa

        with pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
    return {}


@contextlib.contextmanager
def _target(options: Options) -> Iterator[IO[bytes]]:
    """The place for the result: a file appears under its name only when it is whole."""
    if options.output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with output.whole_file(Path(options.output), force=options.force, binary=True) as file:
        yield file
