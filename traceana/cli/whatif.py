"""``traceana whatif``: what other placement rules would have done (estimated, open loop)."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from traceana import output
from traceana.cli.common import (
    check_rows,
    colored,
    conclude,
    emit,
    lost_block,
    opened,
    timed,
    write,
)
from traceana.cli.options import INPUT, OUTPUT, Options, verb
from traceana.errors import UsageError
from traceana.output import Field, Sheet

__all__ = ["register"]

FIELDS = (
    Field("rule", "text", width=20),
    Field("decisions", "int", "decided"),
    Field("moved", "int"),
    Field("moved_share", "share", "moved"),
    Field("idle_delta_ns", "ns", shown=False),
    Field("queue_delay_p50_recorded_ns", "ns", "p50"),
    Field("queue_delay_p50_estimated_ns", "ns", "est"),
    Field("queue_delay_p99_recorded_ns", "ns", "p99"),
    Field("queue_delay_p99_estimated_ns", "ns", "est"),
    Field("on_waker_cpu_share_recorded", "share", "waker"),
    Field("on_waker_cpu_share_estimated", "share", "est"),
    Field("victims_relieved", "int", "relieved"),
    Field("victims_created", "int", "new"),
)

NOTE = (
    "estimated, open loop: p50 and p99 of the queue delay, and the share of wakees placed on the "
    "waker's CPU,\nas recorded and as the rule would have had them; tasks relieved of, and newly "
    "put into, a queue behind\na candidate double booking; intervals: --format json"
)


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(
        app,
        INPUT,
        OUTPUT,
        example="traceana whatif sample_traces/pp6-base.dat --rule sis_short_v5 --rule abel",
    )
    def whatif(
        options: Options,
        rule: Annotated[
            list[str] | None,
            typer.Option(
                "--rule",
                metavar="NAME",
                show_default=False,
                help="A name of `traceana rules`, or the path of a rule file. Repeatable, or "
                "NAME,NAME. Default: recorded, sis_short_v5, abel, prev_cpu, this_cpu.",
            ),
        ] = None,
        param: Annotated[
            list[str] | None,
            typer.Option(
                "--param",
                metavar="RULE.NAME=VALUE",
                show_default=False,
                help="Override a rule's parameter, e.g. sis_short_v5.threshold_ns=500000. "
                "Repeatable.",
            ),
        ] = None,
    ) -> int:
        """Estimate what other rules would have done with each recorded wakeup.

        Estimated, open loop: one wakeup at a time is moved, everything else stays as
        recorded. Intervals are of 95 %, by a block bootstrap over time.
        """
        check_rows(options, FIELDS)
        params = _params(param or [])
        with opened(options) as cap:
            from traceana.whatif import DEFAULT_RULES
            from traceana.whatif import whatif as ask

            timed(cap, "whatif")
            names = [n.strip() for text in rule or [] for n in text.split(",") if n.strip()]
            result = ask(cap, names or DEFAULT_RULES, params=params)
            document = {**result.to_json(), "lost": lost_block(cap)}
            if options.format == "json":
                text = output.render_facts(document, (), "json", color=colored(options))
                write(text, options)
            else:
                emit(_sheet(document), options)
            return conclude(cap, options)


def _params(given: list[str]) -> dict[str, int]:
    out = {}
    for text in given:
        key, equals, value = text.partition("=")
        name, dot, parameter = key.strip().partition(".")
        try:
            number = int(value.replace("_", ""))
        except ValueError:
            equals = ""
        if not (equals and dot and name and parameter):
            raise UsageError(f"--param {text}: give RULE.NAME=INTEGER")
        out[key.strip()] = number
    return out


def _sheet(document: dict[str, Any]) -> Sheet:
    rows = []
    for r in document["rules"]:
        delay, waker = r["queue_delay_ns"], r["on_waker_cpu_share"]
        rows.append(
            [
                r["rule"],
                r["decisions"],
                r["moved"],
                r["moved"] / r["decisions"] if r["decisions"] else None,
                r["idle_delta_ns"]["total"]["delta"],
                *(delay[q][side] for q in ("p50", "p99") for side in ("recorded", "estimated")),
                waker["recorded"],
                waker["estimated"],
                r["victims_relieved"],
                r["victims_created"],
            ]
        )
    return Sheet("rules", FIELDS, rows, notes=NOTE.splitlines())
