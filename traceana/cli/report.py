"""``traceana report``: everything at once, in one file."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from traceana import output
from traceana.cli.common import conclude, opened, write
from traceana.cli.options import DEFAULT_OUTPUT, INPUT, Options, verb
from traceana.cli.values import choose

__all__ = ["register"]

FORMATS = ("html", "md", "json")


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(
        app,
        INPUT,
        ("output", "force"),
        own_default=True,
        example="traceana report sample_traces/pp6-base.dat -o report.html",
    )
    def report(
        options: Options,
        format: Annotated[
            str,
            typer.Option(
                "--format",
                metavar="FORMAT",
                show_default=False,
                help="html, md or json. Default: html.",
            ),
        ] = "html",
        simulate: Annotated[
            list[str] | None,
            typer.Option(
                "--simulate",
                metavar="RULE",
                show_default=False,
                help="Also run the captured workload under this rule on a model of its machine "
                "(estimated, closed loop; takes a while). Repeatable.",
            ),
        ] = None,
    ) -> int:
        """Write a report: facts, losses, tasks, wakeups, idle time, rules compared.

        The HTML is one self-contained file, report.html if there is no -o; md and json go to
        standard output then. When the report goes to a file, its opening sentences and the
        file's name are printed.
        """
        choose(format, FORMATS, "--format")
        target = options.output
        if target == DEFAULT_OUTPUT:
            target = "report.html" if format == "html" else "-"
        options.output = target
        redact = options.redact
        # A command line names files; under --redact the report makes up its own.
        command = None if redact else shlex.join(["traceana", *sys.argv[1:]])
        with opened(options) as cap:
            from traceana import reports
            from traceana.reports.model import plain

            rules = simulate or []
            text = reports.render(
                cap, format=format, command=command, redact=redact, simulate=rules
            )
            write(text, options)
            if target != "-":
                made = reports.build(cap, command=command, redact=redact, simulate=rules)
                for sentence in made.opening:
                    sys.stdout.write(output.escape(plain(sentence)) + "\n")
                sys.stdout.write(f"{output.escape(target)}\n")
            return conclude(cap, options)
