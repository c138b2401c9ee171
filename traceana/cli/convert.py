"""``traceana convert``: a capture as a folder of Parquet tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traceana.cli.common import conclude, opened, say
from traceana.cli.options import INPUT, Options, verb
from traceana.cli.values import choose
from traceana.errors import UsageError

__all__ = ["register"]

TABLES = (
    "events", "names", "tasks", "slices", "wakeups", "idle_gaps", "topology", "issues", "meta",
)  # fmt: skip
_WRAPPERS = (".xz", ".gz", ".zst", ".bz2")


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(
        app,
        INPUT,
        ("output", "force"),
        own_default=True,
        example="traceana convert sample_traces/pp6-base.dat -o build/pp6-base.traceana",
    )
    def convert(
        options: Options,
        tables: Annotated[
            str | None,
            typer.Option(
                metavar="NAME,NAME",
                show_default=False,
                help=f"Only these tables: {', '.join(TABLES)}. Default: all.",
            ),
        ] = None,
    ) -> int:
        """Write a .traceana store: one Parquet file a table, which every verb reads too.

        polars, DuckDB, pandas and Spark read the files without traceana. Without -o the store
        lies in the current folder and is named after the capture.
        """
        wanted = None
        if tables is not None:
            wanted = [choose(name.strip(), TABLES, "--tables") for name in tables.split(",")]
        if options.output == "-":
            raise UsageError(
                "a store is a folder and cannot go to standard output; name it with -o"
            )
        target = Path(options.output or default_name(options.source))
        options.output = "-"  # a folder: the store looks after it
        if target.exists() and not options.force:
            raise UsageError(f"{target} exists; use --force to overwrite")
        with opened(options) as cap:
            from traceana import store

            store.write(cap, target, tables=wanted, force=options.force)
            if not options.quiet:
                say(f"wrote {target}")
            return conclude(cap, options)


def default_name(source: str) -> str:
    """The store's name: that of the capture, without wrapper and suffix.

    >>> default_name("runs/trace.dat.xz")
    'trace.traceana'
    """
    if source == "-":
        raise UsageError("name the store with -o when the capture comes from standard input")
    path = Path(source)
    if path.suffix in _WRAPPERS:
        path = path.with_suffix("")
    if path.suffix in (".dat", ".data", ".txt"):
        path = path.with_suffix("")
    return path.name + ".traceana"
