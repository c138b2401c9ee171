"""The command line: one file a verb, nothing but arguments and printing.

:func:`main` maps every end of a run to an exit status (see EPILOG) and every error to one
line on stderr.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["main", "run"]

_REPORT_AT = "run it again with --debug and send the traceback with the command to the project"


def _clean_up_stdout() -> None:
    """After the reader of a pipe has gone: nothing may be flushed into it at exit."""
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


def _usage_text(error: Any) -> str:
    """Typer's own complaint in this program's form."""
    text = str(error.format_message()).strip()
    text = text[:1].lower() + text[1:]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    text = " ".join(lines).rstrip(".")
    context = getattr(error, "ctx", None)
    if context is not None:
        text += f" (see `{context.command_path} --help`)"
    return text


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    import typer

    from traceana.cli.app import command
    from traceana.cli.common import say
    from traceana.errors import TraceanaError

    arguments = list(sys.argv[1:] if args is None else args)
    if sys.stdout is None:
        say("standard output is closed")
        return 2
    debug = "--debug" in arguments
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a locale without µ is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        program = command()
        if "_TRACEANA_COMPLETE" in os.environ:
            program.main(arguments, prog_name="traceana")
        with program.make_context("traceana", arguments or ["--help"]) as context:
            status = program.invoke(context)
        if sys.stdout is not None:
            sys.stdout.flush()
        return int(status or 0)
    except typer.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted")
        return 130
    except BrokenPipeError:
        _clean_up_stdout()
        return 141
    except TraceanaError as error:
        if debug:
            raise
        say(str(error))
        return error.exit_code
    except OSError as error:
        if debug:
            raise
        _clean_up_stdout()
        say(f"{error.filename or 'standard output'}: {(error.strerror or str(error)).lower()}")
        return 2
    except MemoryError:
        if debug:
            raise
        say("out of memory; --time START,STOP reads a part of the capture")
        return 70
    except Exception as error:
        if hasattr(error, "format_message"):  # the exception classes of typer move about
            say(_usage_text(error))
            return 2
        if debug:
            raise
        say(f"this is a fault of traceana: {type(error).__name__}: {error} ({_REPORT_AT})")
        return 70


def run() -> None:
    """Entry point of the console script."""
    sys.exit(main())
