"""The program and its verbs."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from traceana.cli import (
    batch,
    compare,
    convert,
    events,
    export,
    fleet,
    idle,
    info,
    race,
    record,
    report,
    rules,
    simulate,
    sql,
    synth,
    tasks,
    wakeups,
    whatif,
)

__all__ = ["EPILOG", "command"]

HELP = """What a Linux scheduler capture says, why, and what another rule would have done.

\b
Examples:
  traceana info sample_traces/pp6-base.dat
  traceana report sample_traces/pp6-base.dat -o report.html
  traceana whatif sample_traces/pp6-base.dat --rule sis_short_v5
"""

EPILOG = """\b
Exit status:
    0  done
    1  done, and a --fail-on of `compare` holds
    2  usage: unknown option, wrong value, missing argument
    3  input refused: not a capture, unreadable, or of a kind that cannot serve
    4  a result is given, but the file (of a batch: some capture) was cut or
       damaged; with --fail-on-loss also when the recorder lost events
    5  opened, but without an event that the verb needs
    6  a rule file failed; the results of the other rules are given
    7  --read-mode strict: records contradict each other, no result
   70  a fault of traceana; 130 interrupted; 141 the reader of the pipe has gone
\b
Environment:
  TRACEANA_JIT=0     run every kernel uncompiled (slow, for debugging)
  NUMBA_CACHE_DIR    where compiled kernels are kept (default: ~/.cache/traceana)
  NO_COLOR           no colour
"""


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    from traceana import __version__

    parts = [f"traceana {__version__}", f"Python {sys.version.split()[0]}"]
    for package in ("numba", "pyarrow"):
        try:
            parts.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            parts.append(f"{package} missing")
    sys.stdout.write(", ".join(parts) + "\n")
    raise typer.Exit


def _program(
    version: Annotated[
        bool,
        typer.Option(
            "-V",
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Versions of traceana, Python, numba and pyarrow.",
            show_default=False,
        ),
    ] = False,
) -> None:
    """Hold the options that come before a verb."""


def command() -> Any:
    """The program as a command object."""
    app = typer.Typer(
        name="traceana",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(help=HELP, epilog=EPILOG)(_program)
    for module in (
        info,
        report,
        tasks,
        wakeups,
        events,
        idle,
        whatif,
        race,
        compare,
        simulate,
        synth,
        rules,
        convert,
        export,
        record,
        batch,
        fleet,
        sql,
    ):
        module.register(app)
    return typer.main.get_command(app)
