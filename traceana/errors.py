"""What goes wrong for a user, as exceptions with an exit code.

    TraceanaError                       70  a fault of our own
    ├── UsageError                       2  an option or argument that cannot be served
    ├── MissingEventsError               5  the capture holds no event that the question needs
    ├── LossError                        4  --fail-on-loss and recorded losses touch the result
    └── InputError                       3  the input is refused
        ├── FormatError                  3  not a capture, or not one of a known form
        ├── UnsupportedError             3  a known form of a kind that cannot serve
        └── TruncatedError               3  cut before anything readable

Damage inside a readable capture is data, not an exception: it becomes rows of the
``issues`` table, and the command ends with exit status 4.
"""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "FormatError",
    "InputError",
    "LossError",
    "MissingEventsError",
    "TraceanaError",
    "TruncatedError",
    "UnsupportedError",
    "UsageError",
]


class TraceanaError(Exception):
    """Base of all errors that reach a user as one line."""

    exit_code = 70


class UsageError(TraceanaError):
    """An unknown option value, a missing argument: the message lists what is right."""

    exit_code = 2


class LossError(TraceanaError):
    """``--fail-on-loss`` was given and losses touch the result."""

    exit_code = 4


class MissingEventsError(TraceanaError):
    """The capture opened, but lacks the events that a question needs.

    Parameters
    ----------
    events : tuple of str
        Names of the missing tracepoints, e.g. ``("sched_waking",)``.
    needed_for : str
        The question, as a verb or a section names it.
    """

    exit_code = 5

    def __init__(self, events: tuple[str, ...], needed_for: str) -> None:
        self.events = events
        self.needed_for = needed_for
        record = " ".join(f"-e sched:{name}" for name in events)
        super().__init__(
            f"{needed_for} needs {', '.join(events)}; this capture has none "
            f"(record: trace-cmd record {record})"
        )


class InputError(TraceanaError):
    """The input is refused: what, where, what to do.

    Parameters
    ----------
    path : str or Path
    what : str
        What is wrong, in the words of the format.
    offset : int, optional
        Byte offset (binary forms) where it was found.
    line : int, optional
        Line number (text forms), from 1.
    hint : str, optional
        What to do instead.
    """

    exit_code = 3

    def __init__(
        self,
        path: str | Path,
        what: str,
        *,
        offset: int | None = None,
        line: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.path = str(path)
        self.what = what
        self.offset = offset
        self.line = line
        self.hint = hint
        where = self.path
        if line is not None:
            where += f":{line}"
        if offset is not None:
            where += f": offset {offset:#x}"
        text = f"{where}: {what}"
        if hint:
            text += f" ({hint})"
        super().__init__(text)


class FormatError(InputError):
    """Not a capture, or damaged where nothing can be read without it."""


class UnsupportedError(InputError):
    """A known form, of a kind that cannot serve (says which, and what to give instead)."""


class TruncatedError(InputError):
    """Cut before the first readable record."""
