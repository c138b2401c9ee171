"""``traceana sql``: a question of one's own, in SQL."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from traceana import output
from traceana.cli.common import conclude, emit, opened, spare_pandas
from traceana.cli.options import INPUT, OUTPUT, Options, verb
from traceana.cli.values import choose
from traceana.errors import UsageError
from traceana.output import Field, Kind, Sheet

__all__ = ["register"]

#: -i is its own: FILE would be taken for the query.
TAKES = tuple(name for name in INPUT if name != "input")


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(
        app,
        TAKES,
        ("limit",),
        OUTPUT,
        example="traceana sql 'select comm, wakeups from tasks order by wakeups desc limit 5' "
        "-i sample_traces/pp3-plain.dat.xz",
    )
    def sql(
        options: Options,
        query: Annotated[
            str,
            typer.Argument(metavar="QUERY", help="One SELECT in DuckDB's SQL.", show_default=False),
        ],
        input: Annotated[
            str,
            typer.Option(
                "-i",
                "--input",
                metavar="FILE",
                help="A capture, a .traceana store, or a dataset of `traceana batch`.",
                show_default=False,
            ),
        ],
        rule: Annotated[
            list[str] | None,
            typer.Option(
                "--rule",
                metavar="NAME",
                show_default=False,
                help="Rule of which the tables decisions and deltas tell. Repeatable, or "
                "NAME,NAME. Default: as `whatif`.",
            ),
        ] = None,
    ) -> int:
        """Ask a capture, or a dataset of many, in SQL.

        Tables of a capture: events, names, tasks, slices, wakeups, idle_gaps, topology, issues,
        meta, collisions, idle_bins, decisions, deltas; of a dataset: facts, gains, workloads,
        tasks. Queries can read these, and nothing else: no file, no network. Extra sql.
        """
        choose(options.format, output.FORMATS, "--format")
        if options.limit is not None and options.limit < 0:
            raise UsageError(f"-n {options.limit}: give the number of rows, or 0 for all")
        options.file = input
        rules = [n.strip() for text in rule or [] for n in text.split(",") if n.strip()]
        spare_pandas()
        from pathlib import Path

        from traceana.sql import ask_capture, ask_dataset

        if (Path(input) / "_dataset.json").is_file():
            _emit(ask_dataset(input, query), options)
            return 0
        with opened(options) as cap:
            _emit(ask_capture(cap, query, rules=rules), options)
            return conclude(cap, options)


def _emit(answer: object, options: Options) -> None:
    from traceana.sql import Answer

    assert isinstance(answer, Answer)
    fields = [
        # Headings are the query's own words, or a task's name by way of a pivot.
        Field(output.escape(name), cast("Kind", kind))
        for name, kind in zip(answer.names, answer.kinds, strict=True)
    ]
    if not fields:
        raise UsageError("sql: the statement has no result")
    emit(Sheet("rows", fields, answer.rows), options)
