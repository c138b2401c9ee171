"""A load series: the race in captures of one workload at several loads, and where it begins.

The *knee* of a figure is where, with rising load, it first matters: the smallest load at which the
lower end of its 95 % interval reaches the verdict's threshold in half of the captures or more; it
lies between that load and the one below. Where the figure falls below the threshold again with more
load (no CPU looks idle any more), that is told, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from traceana._race_verdict import Thresholds
from traceana.errors import InputError, MissingEventsError, TraceanaError, UsageError
from traceana.output import SCHEMA_VERSION, escape
from traceana.race import Race, race
from traceana.schema import WakeContext

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from traceana.capture import Capture

__all__ = ["Knee", "Label", "Point", "Series", "captures_in", "group_of", "series"]

#: Ends of names of captures; others in a folder are side files.
_ENDS = re.compile(
    r"(\.trace|\.perf|\.report)?\.(dat|data|txt|perf|traceana|pftrace)(\.(xz|gz|zst))?$"
)


class Label:
    """What the names of captures say: a template as in 'pp{n}/base-*'.

    '*' stands for anything within a name, {name} for what becomes a column. A template with k
    slashes is held against the last k + 1 parts of a path, without its '.dat.xz'. A number in
    ``{n}`` or ``{load}``, else in the first column that holds one in every capture, is the load.

    >>> Label("{shape}/pp{n}/base-*").parts("ab/smt8/pp6/base-1.dat.xz")
    {'shape': 'smt8', 'n': 6}

    Raises
    ------
    UsageError
        Braces that do not match, a name that is none, or twice the same.
    """

    def __init__(self, template: str) -> None:
        self.template = template
        pattern = ""
        self.names: list[str] = []
        for piece in re.split(r"(\{[^{}]*\}|\*)", template):
            if piece == "*":
                pattern += "[^/]*"
            elif piece.startswith("{"):
                name = piece[1:-1]
                if not name.isidentifier() or not name.isascii() or name in self.names:
                    raise UsageError(f"--label {template}: {piece} is no name, or comes twice")
                self.names.append(name)
                pattern += f"(?P<{name}>[^/]+?)"
            elif "{" in piece or "}" in piece:
                raise UsageError(f"--label {template}: braces that do not match")
            else:
                pattern += re.escape(piece)
        if not self.names:
            raise UsageError(f"--label {template}: no {{name}} in it")
        self._pattern = re.compile(pattern)
        self._levels = template.count("/") + 1

    def parts(self, path: str | Path) -> dict[str, str | int | float] | None:
        """The columns of a capture; None where its name does not fit."""
        last = "/".join(Path(path).absolute().parts[-self._levels :])
        match = self._pattern.fullmatch(_ENDS.sub("", last)) or self._pattern.fullmatch(last)
        if match is None:
            return None
        return {name: _value(text) for name, text in match.groupdict().items()}


def _value(text: str) -> str | int | float:
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    if re.fullmatch(r"[0-9]{1,15}\.[0-9]{1,9}", text):
        return float(text)
    return text


def captures_in(path: str | Path) -> list[str]:
    """The captures of a folder and the folders below, by name; a file as it is."""
    folder = Path(path)
    if not folder.is_dir() or folder.suffix == ".traceana":
        return [str(path)]
    found = [
        str(p)
        for p in sorted(folder.rglob("*"))
        if p.is_file() and _ENDS.search(p.name) and not p.name.endswith("topology.json")
    ]
    if not found:
        raise UsageError(f"{path}: no capture in this folder")
    return found


@dataclass(frozen=True)
class Point:
    """One capture of a series.

    ``load``: None where its name tells none; ``error``: why there is no ``race``. Activity
    (wakeups and edges, i.e. wakeups by a task, a second) is not throughput.
    """

    file: str
    parts: dict[str, str | int | float] = field(default_factory=dict)
    load: float | None = None
    race: Race | None = None
    idle_share: float | None = None
    wakeups_per_s: float | None = None
    edges_per_s: float | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        r = self.race
        out: dict[str, Any] = {"file": self.file, "label": self.parts, "load": self.load}
        if r is None:
            return {**out, "error": self.error}
        low, high = r.attributable_ns
        return {
            **out,
            "error": None,
            "verdict": r.verdict,
            "missing": r.judgement.missing,
            "decided": r.counts["decided"],
            "looked_idle": r.counts["looked_idle"],
            "strict": {"certain": r.counts["strict_certain"], "possible": r.strict},
            "late": r.counts["late"],
            "race_rate": {"certain": r.certain.to_json(), "possible": r.possible.to_json()},
            "stacked_share": r.stacked.to_json(),
            "idle_share": self.idle_share,
            "idle_ns": r.idle_ns,
            "attributable_idle_ns": {"low": low, "high": high},
            "attributable_idle_share": {
                "low": r.idle_low.to_json(),
                "high": r.idle_high.to_json(),
            },
            "observed_over_expected": r.choice.to_json(),
            "wakeups_per_s": self.wakeups_per_s,
            "edges_per_s": self.edges_per_s,
        }


@dataclass(frozen=True)
class Knee:
    """Of one figure ('race_rate' or 'attributable_idle') along the captures of one ``group``.

    ``below``: highest load without, ``at``: lowest load with it, ``gone``: lowest load above that
    without it again; None where there is none. ``loads``: how many there are.
    """

    figure: str
    group: str
    below: float | None
    at: float | None
    gone: float | None
    loads: int

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    def words(self) -> str:
        """One sentence."""
        what = "the race rate" if self.figure == "race_rate" else "attributable idle time"
        where = f" ({escape(self.group)})" if self.group else ""
        if self.loads < 2:
            return f"{what}{where}: one load only, no knee can be told"
        if self.at is None:
            return f"{what}{where} matters at none of the {self.loads} loads"
        text = f"{what}{where} begins to matter "
        text += (
            f"at {self.at:g} or below, the lowest load"
            if self.below is None
            else f"between {self.below:g} and {self.at:g}"
        )
        return text + (f", and no longer does at {self.gone:g}" if self.gone is not None else "")


@dataclass(frozen=True)
class Series:
    """Captures in the order of their load, those without one last, as given."""

    points: list[Point]
    thresholds: Thresholds
    knees: list[Knee]
    names: list[str]

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "thresholds": vars(self.thresholds),
            "knees": [k.to_json() for k in self.knees],
            "captures": [p.to_json() for p in self.points],
        }


def series(
    files: Iterable[str],
    opener: Callable[[str], AbstractContextManager[Capture]],
    *,
    label: Label | None = None,
    thresholds: Thresholds | None = None,
    seed: int = 1,
    failed: Callable[[str, TraceanaError], None] | None = None,
    done: Callable[[str, Capture], None] | None = None,
) -> Series:
    """Look for the race in each of some captures. One that cannot be read does not end it.

    Parameters
    ----------
    files : captures
    opener : opens one, for a ``with`` block
    label : what their names say; without it captures have no load and stay in their order
    failed, done : told of each one that could not, or could, be read
    """
    limits = thresholds or Thresholds()
    points = []
    for file in files:
        parts = label.parts(file) if label is not None else None
        try:
            with opener(file) as cap:
                points.append(_point(cap, file, parts or {}, limits, seed))
                if done is not None:
                    done(file, cap)
        except (InputError, MissingEventsError) as error:
            if failed is not None:
                failed(file, error)
            points.append(Point(Path(file).name, parts or {}, error=str(error).splitlines()[0]))
        except OSError as error:
            wrapped = InputError(file, (error.strerror or str(error)).lower())
            if failed is not None:
                failed(file, wrapped)
            points.append(Point(Path(file).name, parts or {}, error=str(wrapped)))
    names = label.names if label is not None else []
    points = _with_load(points, names)
    return Series(points, limits, _knees(points, names, limits), names)


def _point(
    cap: Capture,
    file: str,
    parts: dict[str, str | int | float],
    limits: Thresholds,
    seed: int,
) -> Point:
    found = race(cap, thresholds=limits, seed=seed)
    timeline = cap.timeline()
    edges = woken = 0
    for chunk in timeline.rows.chunks("wakeups", ("context", "waker")):
        known = chunk.column("waker").is_valid().to_numpy()
        edges += int((known & (chunk.column("context").to_numpy() == WakeContext.TASK)).sum())
        woken += chunk.num_rows
    span = found.facts.span_ns
    cpus = timeline.cpus
    busy = int(cpus.column("busy_ns").drop_null().to_numpy().sum())
    idle = int(cpus.column("idle_ns").drop_null().to_numpy().sum())
    # What a series does not show is let go of: the arrays of many captures are large.
    return Point(
        Path(file).name,
        parts,
        race=_slim(found),
        idle_share=idle / (idle + busy) if idle + busy else None,
        wakeups_per_s=woken * 1e9 / span if span > 0 else None,
        edges_per_s=edges * 1e9 / span if span > 0 else None,
    )


def _slim(found: Race) -> Race:
    return replace(
        found, bookings=None, nulls=None, idle=None, collisions=found.collisions.slice(0, 0)
    )


def _with_load(points: list[Point], names: Sequence[str]) -> list[Point]:
    column = _load_column(points, names)
    if column is None:
        return points
    out = []
    for p in points:
        value = p.parts.get(column)
        load = float(value) if isinstance(value, int | float) else None
        out.append(replace(p, load=load))
    return sorted(out, key=lambda p: (p.load is None, p.load or 0.0))


def _load_column(points: Sequence[Point], names: Sequence[str]) -> str | None:
    """Which column is the load."""
    told = [p.parts for p in points if p.parts]
    numeric = [n for n in names if told and all(isinstance(p.get(n), int | float) for p in told)]
    return next((n for n in ("load", "n") if n in numeric), numeric[0] if numeric else None)


def group_of(point: Point, names: Sequence[str]) -> str:
    """What the name says in words: numbers other than the load are those of repetitions."""
    return " ".join(str(v) for n in names if isinstance(v := point.parts.get(n), str))


def _knees(points: Sequence[Point], names: Sequence[str], limits: Thresholds) -> list[Knee]:
    groups: dict[str, list[Point]] = {}
    for p in points:
        if p.load is not None and p.race is not None:
            groups.setdefault(group_of(p, names), []).append(p)
    out = []
    for group, mine in groups.items():
        for figure, bound in (("race_rate", limits.rate), ("attributable_idle", limits.idle_share)):
            out.append(_knee(figure, group, mine, bound))
    return out


def _knee(figure: str, group: str, points: Sequence[Point], bound: float) -> Knee:
    loads = sorted({p.load for p in points if p.load is not None})
    below = at = gone = None
    for load in loads:
        low = [_low(p, figure) for p in points if p.load == load]
        matters = float(np.mean([v >= bound for v in low])) >= 0.5
        if at is None:
            if matters:
                at = load
            else:
                below = load
        elif gone is None and not matters:
            gone = load
        elif matters:
            gone = None
    return Knee(figure, group, below, at, gone, len(loads))


def _low(point: Point, figure: str) -> float:
    """Lower end of the interval of what is certain; 0 where nothing is known."""
    assert point.race is not None
    r = point.race.certain if figure == "race_rate" else point.race.idle_low
    return r.low or 0.0
