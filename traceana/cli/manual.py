"""The man page, made from the verbs' own help: ``python -m traceana.cli.manual > traceana.1``.

Options that verbs share stand once; each verb names those that it takes.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from traceana.cli.app import EPILOG, HELP, command
from traceana.cli.options import Options

__all__ = ["manual"]


def manual() -> str:
    """The page as roff (man(7)), one sentence of the sources a line."""
    program = command()
    summary, _, examples = HELP.partition("\n\n")
    out = [
        ".\\\" Made from the program's help: make man",
        ".TH TRACEANA 1",
        ".SH NAME",
        f"traceana \\- {_text(summary[0].lower() + summary[1:].rstrip('.'))}",
        ".SH SYNOPSIS",
        ".B traceana",
        "VERB [OPTIONS] FILE...",
        ".SH DESCRIPTION",
        _text(summary),
        *_block(examples),
        ".SH VERBS",
    ]
    shared: dict[str, Any] = {}
    common = set(vars(Options()))
    for name, verb in program.commands.items():
        out += _verb(name, verb, common)
        for param in verb.params:
            if param.name in common:
                shared.setdefault(param.name, param)
    out.append(".SH SHARED OPTIONS")
    order = {name: i for i, name in enumerate(vars(Options()))}
    for name in sorted(shared, key=order.__getitem__):
        out += _option(shared[name])
    for title, text in _chapters(EPILOG):
        out += [f".SH {title.upper()}", *_block(text)]
    return "\n".join(out) + "\n"


def _verb(name: str, verb: Any, common: set[str]) -> list[str]:
    text = verb.help or ""
    head, _, rest = text.partition("\n\n")
    own = [p for p in verb.params if p.name not in common]
    out = [f".SS {name}", _text(head)]
    for paragraph in rest.split("\n\n"):
        if "\b" in paragraph:
            out += _block(paragraph)
        elif paragraph.strip():
            out += [".PP", _text(paragraph)]
    for param in own:
        out += _option(param)
    takes = [p.opts[-1] for p in verb.params if p.name in common and p.opts[-1].startswith("-")]
    if takes:
        out += [".PP", _text(f"Shared options: {', '.join(takes)}.")]
    if getattr(verb, "commands", None):
        for inner, sub in verb.commands.items():
            out += _verb(f"{name} {inner}", sub, common)
    return out


def _option(param: Any) -> list[str]:
    if not getattr(param, "help", None):
        return []
    if param.param_type_name == "argument":
        label = f"\\fI{_escape(param.metavar or param.name.upper())}\\fR"
    else:
        label = ", ".join(f"\\fB{_escape(o)}\\fR" for o in [*param.opts, *param.secondary_opts])
        if param.metavar:
            label += f" \\fI{_escape(param.metavar)}\\fR"
    return [".TP", label, _text(param.help)]


def _chapters(text: str) -> list[tuple[str, str]]:
    """Blocks of the epilog: heading and lines."""
    out = []
    for block in text.split("\b\n"):
        title, _, rest = block.strip("\n").partition(":\n")
        if rest:
            out.append((title, rest))
    return out


def _block(text: str) -> list[str]:
    lines = [line for line in text.replace("\b", "").splitlines() if line.strip()]
    return [".PP", ".nf", *(_escape(line) for line in lines), ".fi"] if lines else []


def _escape(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return "\\&" + text if text[:1] in (".", "'") else text


def _text(text: str) -> str:
    return _escape(re.sub(r"\s+", " ", text).strip())


if __name__ == "__main__":
    sys.stdout.write(manual())
