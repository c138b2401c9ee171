"""How this report came to be: program, command, digest of the file."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path

from traceana import __version__
from traceana.reports.context import Context
from traceana.reports.model import Column, Section, Table, say
from traceana.reports.words import clean, count
from traceana.schema import SCHEMA_VERSION

__all__ = ["digest", "fill"]


_MADE_WITH = ("numpy", "numba", "pyarrow", "matplotlib", "jinja2")


def digest(path: Path) -> tuple[str | None, int]:
    """(sha256, size in bytes) of a file, or of a store's files by name; None if unreadable."""
    try:
        if path.is_dir():
            whole, size = hashlib.sha256(), 0
            for file in sorted(p for p in path.rglob("*") if p.is_file()):
                inner, n = digest(file)
                whole.update(f"{file.relative_to(path)} {inner}\n".encode())
                size += n
            return whole.hexdigest(), size
        if not path.is_file():
            return None, 0
        with path.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest(), path.stat().st_size
    except OSError:
        return None, 0


def fill(ctx: Context, section: Section) -> None:
    """Facts about the making of the report; no dates, so that it can be made again."""
    sha, size = digest(ctx.cap.path)
    command = ctx.command if ctx.command and not ctx.redact else ctx.run("report")
    facts = [
        ("traceana", __version__),
        ("schema version", str(SCHEMA_VERSION)),
        ("command", clean(command)),
        ("file", clean(ctx.file)),
        ("size, bytes", count(size) if sha else "not known"),
        ("sha256", sha or "not known (not a file any more)"),
        ("rules asked", ", ".join(clean(r) for r in ctx.rules) or "none"),
        (
            "made with",
            ", ".join(
                [f"Python {platform.python_version()}", *(f"{m} {version(m)}" for m in _MADE_WITH)]
            ),
        ),
    ]
    section.sentences.append(
        say("The same file, version and command give the same report, byte for byte.")
    )
    section.tables.append(
        Table(
            "provenance",
            "Provenance",
            [Column("fact", "text", "fact"), Column("value", "text", "value")],
            [list(f) for f in facts],
        )
    )
    section.reproduce.append(command)
