"""``traceana rules``: the placement rules there are, and what one of them says."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from traceana import output
from traceana.cli.common import colored, emit, write
from traceana.cli.options import OUTPUT, Options, verb
from traceana.cli.values import choose
from traceana.output import Field, Sheet

if TYPE_CHECKING:
    from traceana.rules import RuleText

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(app, OUTPUT, example="traceana rules sis_short_v5")
    def rules(
        options: Options,
        rule: Annotated[
            str | None,
            typer.Argument(
                metavar="RULE",
                help="Explain it: a name, or the path of a rule file.",
                show_default=False,
            ),
        ] = None,
    ) -> int:
        """List the placement rules, or explain one: conditions, source, parameters, limits."""
        choose(options.format, output.FORMATS, "--format")
        from traceana import rules as library

        if rule is None:
            rows = [[name, library.describe(name).summary] for name in library.names()]
            fields = (Field("rule", "text"), Field("summary", "text", "what it does"))
            options.limit = 0
            emit(Sheet("rules", fields, rows), options)
            return 0
        document = _document(library.describe(rule))
        if options.format == "table":
            text = _prose(document)
        else:
            facts = [(key, str(value)) for key, value in document.items()]
            text = output.render_facts(document, facts, options.format, color=colored(options))
        write(text, options)
        return 0


def _document(text: RuleText) -> dict[str, Any]:
    return {
        "rule": text.name,
        "summary": text.summary,
        "sections": dict(text.sections),
        "params": [dataclasses.asdict(p) for p in text.params],
        "conditions": dict(text.conditions),
        "reasons": list(text.reasons),
    }


def _prose(document: dict[str, Any]) -> str:
    lines = [f"{document['rule']}: {document['summary']}"]
    for heading, body in document["sections"].items():
        lines += ["", heading, *("  " + line for line in body.splitlines())]
    lines += ["", "Parameters"]
    for p in document["params"]:
        value = f"{p['default']} {p['unit']}".strip()
        lines.append(f"  {document['rule']}.{p['name']} = {value}: {p['meaning']}")
    if not document["params"]:
        lines.append("  none")
    lines += ["", "Reasons", "  " + ", ".join(document["reasons"])]
    return "".join(output.escape(line).rstrip() + "\n" for line in lines)
