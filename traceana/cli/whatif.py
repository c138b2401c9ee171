"""``traceana whatif``: what other placement rules would have done (estimated, open loop)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from traceana import output
from traceana.cli.common import (
    check_rows,
    colored,
    conclude,
    emit,
    lost_block,
    opened,
    say,
    timed,
    write,
)
from traceana.cli.options import INPUT, OUTPUT, Options, verb
from traceana.cli.sweeps import answer_sweep, read_sweep
from traceana.errors import RuleError, UsageError
from traceana.output import Field, Sheet

if TYPE_CHECKING:
    from traceana.capture import Capture

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
                "NAME,NAME; NAME+NAME is one rule with the steps of both. Default: recorded, "
                "sis_short_v5, abel, prev_cpu, this_cpu.",
            ),
        ] = None,
        rule_timeout: Annotated[
            float,
            typer.Option(
                "--rule-timeout",
                metavar="SECONDS",
                show_default=False,
                help="Time limit of each rule file: for running it, and for asking it, once it is "
                "compiled. Default: 60.",
            ),
        ] = 60.0,
        explain: Annotated[
            str | None,
            typer.Option(
                "--explain",
                metavar="WAKEUP",
                show_default=False,
                help="Tell the story of one decision under each rule: its id in `wakeups --rows`, "
                "or a time in seconds (the first decision from then on).",
            ),
        ] = None,
        param: Annotated[
            list[str] | None,
            typer.Option(
                "--param",
                metavar="RULE.NAME=VALUE",
                show_default=False,
                help="Override a rule's parameter, e.g. sis_short_v5.threshold_ns=500us. "
                "Repeatable.",
            ),
        ] = None,
        param_sweep: Annotated[
            str | None,
            typer.Option(
                "--param-sweep",
                metavar="RULE.NAME=LOW..HIGH:N",
                show_default=False,
                help="Ask one rule at N values of a parameter, e.g. "
                "sis_short_v5.threshold_ns=50us..1ms:8 (times by a constant factor, others by a "
                "constant step). With -o FILE.svg or FILE.png the curve is drawn there.",
            ),
        ] = None,
        fit_kernel: Annotated[
            bool,
            typer.Option(
                "--fit-kernel",
                show_default=False,
                help="For kernels of distributions: of the forms of this release and of its "
                "neighbours take those that explain the recording best, and say which.",
            ),
        ] = False,
        recorded_with_rule: Annotated[
            bool,
            typer.Option(
                "--recorded-with-rule",
                show_default=False,
                help="The recorded kernel had such a rule switched on: where wakeups went then "
                "tells nothing of its scan budget.",
            ),
        ] = False,
    ) -> int:
        """Estimate what other rules would have done with each recorded wakeup.

        Estimated, open loop: one wakeup at a time is moved, everything else stays as
        recorded. Intervals are of 95 %, by a block bootstrap over time.

        A rule file is code, and asking it runs it with your rights. It runs in a process of its
        own with a time limit: if it fails, the other rules' results are printed all the same, and
        the exit status is 6.
        """
        check_rows(options, FIELDS)
        params = _params(param or [])
        check_timeout(rule_timeout)
        names = [n.strip() for text in rule or [] for n in text.split(",") if n.strip()]
        spec = read_sweep(param_sweep, names, options) if param_sweep else None
        with opened(options) as cap:
            from traceana.whatif import DEFAULT_RULES
            from traceana.whatif import whatif as ask

            timed(cap, "whatif")
            if spec is not None:
                answer_sweep(cap, spec, params, options)
                return conclude(cap, options)
            if explain is not None:
                return _explained(cap, explain, names, params, rule_timeout, options)
            result = ask(
                cap,
                names or DEFAULT_RULES,
                params=params,
                rule_timeout=rule_timeout,
                fit_kernel=fit_kernel,
                recorded_with_rule=recorded_with_rule,
            )
            document = {**result.to_json(), "lost": lost_block(cap)}
            if options.format == "json":
                text = output.render_facts(document, (), "json", color=colored(options))
                write(text, options)
            else:
                said = [] if result.fidelity is None else result.fidelity.to_lines()
                emit(_sheet(document, said), options)
            return _ended(conclude(cap, options), result.failed, result.remarks, options)


def check_timeout(seconds: float) -> None:
    """Refuse a time limit that is none."""
    if not 0 < seconds < 1e7:
        raise UsageError(f"--rule-timeout {seconds:g}: give seconds, more than 0")


def _ended(
    status: int, failed: Sequence[RuleError], remarks: Sequence[str], options: Options
) -> int:
    """Say what users' rules failed of; the exit status."""
    if not options.quiet:
        for text in remarks:
            say(f"warning: {text}")
    for fault in failed:
        say(f"{fault}; no result for rule {fault.rule}")
    return RuleError.exit_code if failed else status


def _explained(
    cap: Capture,
    wakeup: str,
    names: Sequence[str],
    params: dict[str, int],
    rule_timeout: float,
    options: Options,
) -> int:
    from traceana.explain import explain
    from traceana.whatif import DEFAULT_RULES

    story = explain(cap, wakeup, names or DEFAULT_RULES, params=params, rule_timeout=rule_timeout)
    if options.format == "table":
        write(story.to_text(), options)
    else:
        document = {**story.to_json(), "lost": lost_block(cap)}
        text = output.render_facts(document, story.facts(), options.format, color=colored(options))
        write(text, options)
    return _ended(conclude(cap, options), story.failed, story.remarks, options)


def _params(given: list[str]) -> dict[str, int]:
    from traceana.amounts import amount

    out = {}
    for text in given:
        key, equals, value = text.partition("=")
        name, dot, parameter = key.strip().partition(".")
        try:
            number = amount(value)
        except ValueError:
            equals = ""
        if not (equals and dot and name and parameter):
            raise UsageError(f"--param {text}: give RULE.NAME=INTEGER, a time also as 50us or 1ms")
        out[key.strip()] = number
    return out


def _sheet(document: dict[str, Any], fidelity: list[str]) -> Sheet:
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
    return Sheet("rules", FIELDS, rows, notes=[*NOTE.splitlines(), *fidelity])
