"""Values of options: lists of numbers, spans of time, one of several words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from traceana.errors import UsageError

if TYPE_CHECKING:
    from traceana.cli.options import Options

__all__ = ["Shown", "choose", "parse_list", "parse_time", "parse_workloads"]

#: Longest range that -C, -p, -t may spell out; one beyond it is a slip of the pen.
_MAX_LIST = 1 << 20


def choose(value: str, choices: Sequence[str], what: str) -> str:
    """The value, if it is one of the choices.

    Raises
    ------
    UsageError
        Lists the right ones, the nearest first.
    """
    if value in choices:
        return value
    near = get_close_matches(value, choices, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"{what}: there is no {value!r}; one of {', '.join(choices)}{hint}")


def parse_list(text: str, what: str) -> frozenset[int]:
    """Numbers of a list such as '0,3,8-15'.

    >>> sorted(parse_list("0,3,8-10", "-C"))
    [0, 3, 8, 9, 10]
    """
    out: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,10})\s*(?:-\s*(\d{1,10})\s*)?", part, re.ASCII)
        if not match:
            raise UsageError(f"{what} {text}: {part!r} is no number or range (as in 0,3,8-15)")
        low = int(match[1])
        high = int(match[2]) if match[2] else low
        if high < low or high - low > _MAX_LIST:
            raise UsageError(f"{what} {text}: {part!r} is not a range from low to high")
        out.update(range(low, high + 1))
    return frozenset(out)


def parse_time(text: str) -> tuple[str | None, str | None]:
    """The two ends of --time, checked: seconds, percents, or None where open.

    >>> parse_time("8.62,"), parse_time("10%-20%")
    (('8.62', None), ('10%', '20%'))
    """
    wrong = UsageError(
        f"--time {text}: give START,STOP in seconds (one of them may be left out), or P%-Q%"
    )
    percent = re.fullmatch(r"\s*(\d+(?:\.\d+)?%)\s*[-,]\s*(\d+(?:\.\d+)?%)\s*", text, re.ASCII)
    seconds = re.fullmatch(r"\s*(\d+(?:\.\d+)?)?\s*,\s*(\d+(?:\.\d+)?)?\s*", text, re.ASCII)
    match = percent or seconds
    if match is None or not (match[1] or match[2]):
        raise wrong
    start, stop = match[1], match[2]
    if start and stop and float(start.rstrip("%")) >= float(stop.rstrip("%")):
        raise UsageError(f"--time {text}: the end is not after the begin")
    if percent and float(stop.rstrip("%")) > 100:
        raise wrong
    return start, stop


def parse_workloads(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Name and glob of each --workload."""
    out = []
    for text in given:
        name, equals, glob = text.partition("=")
        if not equals or not name or not glob:
            raise UsageError(f"--workload {text}: give NAME=GLOB, e.g. pairs='pp-*'")
        out.append((name, glob))
    return tuple(out)


@dataclass(frozen=True)
class Shown:
    """Which rows are shown; what is None selects nothing away."""

    cpus: frozenset[int] | None
    pids: frozenset[int] | None
    tids: frozenset[int] | None
    comms: tuple[str, ...]

    @classmethod
    def of(cls, options: Options) -> Shown:
        return cls(
            parse_list(options.cpu, "--cpu") if options.cpu is not None else None,
            parse_list(options.pid, "--pid") if options.pid is not None else None,
            parse_list(options.tid, "--tid") if options.tid is not None else None,
            tuple(options.comm),
        )

    @property
    def by_task(self) -> bool:
        return self.pids is not None or self.tids is not None or bool(self.comms)

    def task(self, tid: int | None, tgid: int | None, comm: str | None) -> bool:
        """Whether rows of this task are shown."""
        if self.tids is not None and tid not in self.tids:
            return False
        if self.pids is not None and (tgid if tgid is not None else tid) not in self.pids:
            return False
        return not self.comms or any(fnmatchcase(comm or "", glob) for glob in self.comms)

    def cpu(self, *cpus: int | None) -> bool:
        """Whether rows that concern one of these CPUs are shown."""
        return self.cpus is None or any(c in self.cpus for c in cpus if c is not None)
