"""The neutral document: what a report says, before any renderer decides how it looks.

A :class:`Report` is sections; a :class:`Section` is sentences, figures, tables, definitions and
the command that gives the same numbers again. Texts are tuples of plain strings and marked
ones (:class:`Strong` for a figure, :class:`Code` for a name of the kernel or a command), so
that each renderer escapes them by its own rules: task names inside them are hostile input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

__all__ = [
    "Code",
    "Column",
    "Figure",
    "Kind",
    "Report",
    "Section",
    "Strong",
    "Table",
    "Text",
    "View",
    "plain",
    "say",
]

Kind = Literal["text", "int", "id", "ns", "ts", "share", "float", "flag"]


class Strong(str):
    """Part of a sentence that carries it: a figure with its unit."""


class Code(str):
    """Part of a sentence in the kernel's or the shell's own words."""


#: One paragraph.
Text = tuple[str, ...]


def say(*parts: object) -> Text:
    """A sentence of parts; what is no string is turned into one.

    >>> plain(say("idle ", Strong("39.5 %"), " of the time"))
    'idle 39.5 % of the time'
    """
    return tuple(p if isinstance(p, str) else str(p) for p in parts)


def plain(text: Text) -> str:
    """The sentence without marks."""
    return "".join(text)


@dataclass(frozen=True)
class Column:
    """One column of a table.

    ``kind``: 'id' a number that counts nothing (pid, CPU), 'ns' a duration, 'ts' a moment of the
    capture's clock, 'share' 0 to 1, 'flag' true or false. ``name`` is what machines read and
    ends in ``_ns`` for times.
    """

    name: str
    kind: Kind
    title: str
    doc: str = ""


@dataclass
class Table:
    """Rows of raw values (int64 ns, shares 0 to 1, None for "not known") under columns."""

    id: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    #: Rows that were left out.
    more: int = 0
    note: str = ""

    def without_time(self) -> Table:
        """The table without durations and moments, for a clock that is no time."""
        keep = [i for i, c in enumerate(self.columns) if c.kind not in ("ns", "ts")]
        return Table(
            self.id,
            self.caption,
            [self.columns[i] for i in keep],
            [[row[i] for i in keep] for row in self.rows],
            self.more,
            self.note,
        )


@dataclass
class Figure:
    """A picture: ``alt`` says the finding, ``data`` holds what was drawn (for JSON).

    It is drawn when a renderer first asks for its SVG.
    """

    id: str
    title: str
    alt: str
    caption: str
    draw: Callable[[], str]
    wide: bool = False
    data: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def svg(self) -> str:
        return self.draw()


@dataclass
class View:
    """Something to zoom and pan in, for the page only; a table says the same for other readers.

    ``make`` gives what its script shows (JSON values; texts already harmless) when a renderer asks
    for it; ``marks`` is the id of the table whose rows lead into it (first column a moment, second
    a CPU), ``kinds`` (id, label) those of the marks.
    """

    id: str
    label: str
    make: Callable[[], dict[str, Any]]
    marks: str
    kinds: Sequence[tuple[str, str]] = ()

    @cached_property
    def data(self) -> dict[str, Any]:
        return self.make()


@dataclass
class Section:
    """One chapter; ``parts`` are the same for each workload that matters."""

    id: str
    title: str
    sentences: list[Text] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    #: What each statistic is: (word, explanation).
    definitions: list[tuple[str, Text]] = field(default_factory=list)
    #: Commands that give these numbers again.
    reproduce: list[str] = field(default_factory=list)
    #: What could not be said, and how to record it.
    missing: list[Text] = field(default_factory=list)
    parts: list[Section] = field(default_factory=list)


@dataclass
class Report:
    """A whole report."""

    title: str
    opening: list[Text]
    sections: list[Section]
