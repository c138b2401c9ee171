"""What goes wrong for a user, as exceptions with an exit code.

    TraceanaError                       70  a fault of our own
    ├── UsageError                       2  an option or argument that cannot be served
    │   └── RuleError                    6  a user's rule failed; the rest is given all the same
    ├── MissingEventsError               5  the capture holds no event that the question needs
    ├── LossError                        4  --fail-on-loss and recorded losses touch the result
    └── InputError                       3  the input is refused
        ├── FormatError                  3  not a capture, or not one of a known form
        ├── UnsupportedError             3  a known form of a kind that cannot serve
        ├── TruncatedError               3  cut before anything readable
        └── ContradictionError           7  read strictly: records contradict each other

Damage inside a readable capture is data, not an exception: it becomes rows of the
``issues`` table, and the command ends with exit status 4.
"""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "ContradictionError",
    "FormatError",
    "InputError",
    "LossError",
    "MissingEventsError",
    "RuleError",
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


class RuleError(UsageError):
    """A user's rule failed: in which file, at which line, at which wakeup, how.

    Parameters
    ----------
    path : str or Path
        The rule's file.
    what : str
        What it did, in plain words.
    line : int, optional
        Line of that file.
    rule : str
        Its name; the file's stem if not given.

    Attributes
    ----------
    ts, wakee : int or None
        sched_waking time (ns) and dense task id of the wakeup at hand, where known.
    wakeup : int or None
        Its id in the ``wakeups`` table; ``at`` describes it in words.
    """

    exit_code = 6

    def __init__(
        self, path: str | Path, what: str, *, line: int | None = None, rule: str = ""
    ) -> None:
        self.path = str(path)
        self.what = what
        self.line = line
        self.rule = rule or Path(path).stem
        self.ts: int | None = None
        self.wakee: int | None = None
        self.wakeup: int | None = None
        self.at = ""
        super().__init__(what)

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.what}" + (f" ({self.at})" if self.at else "")

    def to_json(self) -> dict[str, str | int | None]:
        """The object that stands in ``failed_rules``."""
        return {
            "rule": self.rule,
            "file": self.path,
            "line": self.line,
            "what": self.what,
            "wakeup": self.wakeup,
            "waking_ts": self.ts,
        }


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


class ContradictionError(InputError):
    """``--read-mode strict``: what cannot be true was met, and no result is given.

    Parameters
    ----------
    records : tuple of str
        The records that contradict each other, a line each.
    """

    exit_code = 7

    def __init__(
        self, path: str | Path, what: str, *, records: tuple[str, ...] = (), hint: str | None = None
    ) -> None:
        super().__init__(path, what, hint=hint)
        self.records = records
        text = "\n".join([f"{self.path}: {what}", *records, *([f"({hint})"] if hint else [])])
        self.args = (text,)
