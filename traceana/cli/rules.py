"""``traceana rules``: the placement rules there are, and what one of them says."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import typer

from traceana import output
from traceana.cli.common import colored, emit, say, write
from traceana.cli.options import OUTPUT, Options, verb
from traceana.cli.values import choose
from traceana.errors import RuleError, UsageError
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
                metavar="RULE|new|check",
                help="Explain it: a name, or the path of a rule file. "
                "`new NAME` writes a rule of your own to begin with, NAME.py; "
                "`check FILE` says whether a rule file is in order, and runs its CASES.",
                show_default=False,
            ),
        ] = None,
        name: Annotated[
            str | None,
            typer.Argument(metavar="NAME|FILE", help="Of new and check.", show_default=False),
        ] = None,
        rule_timeout: Annotated[
            float,
            typer.Option(
                "--rule-timeout",
                metavar="SECONDS",
                show_default=False,
                help="check: time limit of the rule's own code. Default: 60.",
            ),
        ] = 60.0,
    ) -> int:
        """List the placement rules, explain one, begin or check one of your own.

        `rules check` ends with status 6 if something is wrong. A rule file is code, and checking
        it runs it with your rights (in a process of its own, with a time limit).
        """
        choose(options.format, output.FORMATS, "--format")
        if rule in ("new", "check"):
            if name is None:
                raise UsageError(f"rules {rule}: name a {'rule' if rule == 'new' else 'rule file'}")
            return _new(name, options) if rule == "new" else _check(name, rule_timeout, options)
        if name is not None:
            raise UsageError(f"rules {rule} {name}: one rule at a time, or new NAME, or check FILE")
        from traceana import rules as library

        if rule is None:
            rows = [[known, library.describe(known).summary] for known in library.names()]
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


def _new(name: str, options: Options) -> int:
    """Write a rule to begin with."""
    from traceana.rules import names
    from traceana.rules._template import target_of, text_of

    path = target_of(name)
    if path.stem in names():
        raise UsageError(f"rules new {name}: the library has a rule of this name; choose another")
    if options.output not in ("-", ""):
        path = target_of(options.output)
    output.write_text(text_of(path.stem), str(path), force=options.force)
    say(f"{path} written; next: traceana rules check {path}")
    return 0


def _check(file: str, rule_timeout: float, options: Options) -> int:
    """Check a rule file and say what was found."""
    from traceana.cli.whatif import check_timeout
    from traceana.rules._check import check

    check_timeout(rule_timeout)
    found = check(file, rule_timeout)
    document = found.to_json()
    lines = [(f"problem {i + 1}", text) for i, text in enumerate(found.problems)]
    for case in found.cases:
        lines.append((f"case: {case.name}", case.problem or "ok"))
    lines += [(f"remark {i + 1}", text) for i, text in enumerate(found.remarks)]
    wrong = len(found.problems) + sum(bool(case.problem) for case in found.cases)
    verdict = "in order" if found.ok else f"{wrong} problem{'s' if wrong > 1 else ''}"
    if options.format == "table":
        text = "".join(f"{output.escape(head)}: {output.escape(body)}\n" for head, body in lines)
        write(f"{text}{output.escape(file)}: {verdict}, {len(found.cases)} cases\n", options)
    else:
        facts = [("rule", found.rule), ("verdict", verdict), *lines]
        text = output.render_facts(document, facts, options.format, color=colored(options))
        write(text, options)
    return 0 if found.ok else RuleError.exit_code


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
