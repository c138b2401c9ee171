"""How often the kernel's own path, on the state rebuilt from events, explains a recording.

A decision is *exact* if the path comes to the recorded CPU, *possible* if it can for some value of
what no event tells (WF_SYNC where open, instants, scan budget, idle-core hint, loads, flips), else
*contradicted*. The second figure is worth only as much as the sets are small: their mean size
stands beside it.

Three ways to know what no event tells are compared. *plain*: rebuilt, nothing inferred. *inferred*:
WF_SYNC per edge from the outcomes of the window's first half, budget and hint from outcomes before
the decision at hand, never its own; scored on the second half. *frozen*: the same, but no outcome
of the second half is used for anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import schema
from traceana._replay_state import (
    WHY_HINT,
    WHY_INSTANT,
    WHY_LOAD,
    WHY_SCAN,
    WHY_SYNC,
    WHY_WIDE,
)
from traceana.rules._state import Affine, Step

if TYPE_CHECKING:
    from traceana.replay import Replay
    from traceana.timeline import Timeline

__all__ = ["CLASSES", "DISTANCES", "Fidelity", "Tally", "measure", "merged"]

#: Where a wakee can go, as seen from its waker and its previous CPU; the first that fits.
CLASSES = (
    "same",  # the waker's CPU
    "prev",
    "smt_sibling",  # of prev_cpu
    "other_idle_core",
    "other_idle_cpu",
    "busy_in_llc",
    "other_llc",
)
#: From the waker's CPU to prev_cpu.
DISTANCES = ("same_cpu", "smt_sibling", "same_llc", "other_llc")
#: Short names of the unknowns that had to be changed to explain a decision.
UNKNOWNS = {
    "sync": WHY_SYNC,
    "scan_budget": WHY_SCAN,
    "idle_core_hint": WHY_HINT,
    "instant": WHY_INSTANT,
    "load": WHY_LOAD,
    "flips": WHY_WIDE,
}
HOW = (
    "WF_SYNC per edge inferred from outcomes of the first half of the window, nr_idle_scan and the "
    "idle-core hint from outcomes before each decision; inferred figures are of the second half"
)
#: A capture in which so many decisions saw no idle CPU cannot tell one path from another.
SATURATED = 0.95
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Tally:
    """Decisions of one kind: how many, and of these exact, possible (not exact), contradicted."""

    n: int = 0
    exact: int = 0
    possible: int = 0
    contradicted: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "decisions": self.n,
            "exact": self.exact,
            "possible": self.possible,
            "contradicted": self.contradicted,
        }

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.n + other.n,
            self.exact + other.exact,
            self.possible + other.possible,
            self.contradicted + other.contradicted,
        )


@dataclass(frozen=True)
class Score:
    """Exactly right CPUs: ``exact`` of ``n``."""

    n: int = 0
    exact: int = 0

    @property
    def share(self) -> float | None:
        return self.exact / self.n if self.n else None

    def to_json(self) -> dict[str, Any]:
        share = self.share
        return {
            "decisions": self.n,
            "exact": self.exact,
            "share": None if share is None else round(share, 6),
        }

    def __add__(self, other: Score) -> Score:
        return Score(self.n + other.n, self.exact + other.exact)


@dataclass(frozen=True)
class Fidelity:
    """How well the kernel's own path explains a recording.

    ``by_affine`` and ``by_step`` are keyed by the steps that decided (``Affine`` and ``Step``
    names), ``by_context`` by what executed the wakeup, ``by_distance`` by DISTANCES.
    ``confusion[recorded class][predicted class]`` counts decisions. ``explained_by`` counts, of the
    possible ones, the unknowns that had to be changed. ``set_sum`` is the sum of the sets' sizes.
    """

    total: Tally
    set_sum: int
    left_out: Mapping[str, int]
    by_affine: Mapping[str, Tally]
    by_step: Mapping[str, Tally]
    by_context: Mapping[str, Tally]
    by_distance: Mapping[str, Tally]
    confusion: Mapping[str, Mapping[str, int]]
    explained_by: Mapping[str, int]
    plain: Score
    inferred: Score
    frozen: Score
    no_idle_cpu: int
    forms: str = ""
    fitted: Mapping[str, Score] = field(default_factory=dict)

    @property
    def mean_set_size(self) -> float | None:
        """Mean number of CPUs that a decision could have come to."""
        return self.set_sum / self.total.n if self.total.n else None

    @property
    def saturated(self) -> bool:
        """Whether hardly any decision saw an idle CPU: then every path agrees."""
        return self.total.n > 0 and self.no_idle_cpu >= SATURATED * self.total.n

    def to_json(self) -> dict[str, Any]:
        """As it stands in ``whatif --format json``."""
        size = self.mean_set_size
        return {
            **self.total.to_json(),
            "mean_set_size": None if size is None else round(size, 4),
            "left_out": dict(self.left_out),
            "saturated": self.saturated,
            "how": HOW,
            "kernel_forms": self.forms,
            "fitted": {name: score.to_json() for name, score in self.fitted.items()},
            "plain": self.plain.to_json(),
            "inferred": self.inferred.to_json(),
            "frozen": self.frozen.to_json(),
            "by_affine": {name: t.to_json() for name, t in self.by_affine.items()},
            "by_step": {name: t.to_json() for name, t in self.by_step.items()},
            "by_context": {name: t.to_json() for name, t in self.by_context.items()},
            "by_distance": {name: t.to_json() for name, t in self.by_distance.items()},
            "confusion": {a: dict(row) for a, row in self.confusion.items()},
            "explained_by": dict(self.explained_by),
        }

    def to_lines(self) -> list[str]:
        """The same in a few lines of text."""
        t = self.total
        if not t.n:
            return ["mainline: no decided wakeup to explain"]
        size = self.mean_set_size or 0.0
        lines = [
            f"mainline explains {t.exact / t.n:.1%} of {t.n:,} decisions exactly, "
            f"{(t.exact + t.possible) / t.n:.1%} possibly (of {size:.2f} CPUs)"
        ]
        scores = (("plain", self.plain), ("inferred, second half", self.inferred))
        lines.append(
            "  exact: " + ", ".join(f"{n} {s.share:.1%}" for n, s in scores if s.share is not None)
        )
        if self.saturated:
            lines.append("  hardly any decision saw an idle CPU: this capture proves nothing")
        worst = sorted(
            ((v.contradicted, name, v) for name, v in self.by_step.items() if v.contradicted),
            reverse=True,
        )
        if worst:
            lines.append(
                f"  contradicted {t.contradicted:,}, most at "
                + ", ".join(f"{name} ({c:,} of {v.n:,})" for c, name, v in worst[:3])
            )
        return lines


def measure(replay: Replay, timeline: Timeline, left_out: Mapping[str, int]) -> Fidelity:
    """Hold the verdicts of a replay against what was recorded.

    Parameters
    ----------
    replay, timeline : the replay and what it was made of
    left_out : wakeups without a decision, by kind
    """
    free = ~replay.pinned
    v = replay.verdicts.rows[free]
    recorded = replay.recorded_cpu[free]
    exact = v["cpu"] == recorded
    possible = ~exact & (v["why"] >= 0)
    w = timeline.raw["wakeups"][replay.rows[free]]
    late = w["waking"] >= replay.half_ts
    this, prev = w["this_cpu"], w["prev_cpu"]
    core, llc = _places(replay)
    distance = np.select(
        [this == prev, core[this] == core[prev], llc[this] == llc[prev]], [0, 1, 2], default=3
    )
    ours = _classes(v["cpu"], v["own_state"], this, prev, core, llc)
    theirs = _classes(recorded, v["recorded_state"], this, prev, core, llc)
    pairs = np.bincount(theirs * len(CLASSES) + ours, minlength=len(CLASSES) ** 2)
    table = pairs.reshape(len(CLASSES), len(CLASSES))
    contexts = [c.name.lower() for c in schema.WakeContext]
    plain = _score(replay.plain()["cpu"][free] == recorded, np.ones(len(v), bool))
    return Fidelity(
        total=_tally(exact, possible, np.ones(len(v), bool)),
        set_sum=int(v["count"].sum()),
        left_out={**left_out, **({"seems_pinned": int((~free).sum())} if not free.all() else {})},
        by_affine=_tallies(exact, possible, v["affine"], Affine.NAMES),
        by_step=_tallies(exact, possible, v["step"], Step.NAMES),
        by_context=_tallies(exact, possible, w["context"], contexts),
        by_distance=_tallies(exact, possible, distance, DISTANCES),
        confusion={
            a: {b: int(table[i, j]) for j, b in enumerate(CLASSES) if table[i, j]}
            for i, a in enumerate(CLASSES)
            if table[i].any()
        },
        explained_by={
            name: int((possible & ((v["why"] & bit) != 0)).sum()) for name, bit in UNKNOWNS.items()
        },
        plain=plain,
        inferred=_score(exact, late),
        frozen=_score(replay.frozen()["cpu"][free] == recorded, late),
        no_idle_cpu=int((w["idle_llc"] == 0).sum()),
        forms=f"{replay.forms.release // 1000}.{replay.forms.release % 1000}",
    )


def _places(replay: Replay) -> tuple[Array, Array]:
    core, llc = replay.core_and_llc()
    return core.astype(np.int64), llc.astype(np.int64)


def _classes(cpu: Array, state: Array, this: Array, prev: Array, core: Array, llc: Array) -> Array:
    """Index into CLASSES for each placement; ``state`` 0 busy, 1 idle, 2 idle core."""
    at = np.clip(cpu, 0, len(core) - 1)
    out: Array = np.select(
        [
            cpu == this,
            cpu == prev,
            (llc[at] != llc[prev]) & (llc[at] != llc[this]),
            core[at] == core[prev],
            state == 2,
            state == 1,
        ],
        [0, 1, 6, 2, 3, 4],
        default=5,
    )
    return out


def _score(good: Array, where: Array) -> Score:
    return Score(int(where.sum()), int((good & where).sum()))


def _tally(exact: Array, possible: Array, where: Array) -> Tally:
    n, e, p = int(where.sum()), int((exact & where).sum()), int((possible & where).sum())
    return Tally(n, e, p, n - e - p)


def _tallies(exact: Array, possible: Array, key: Array, names: Iterable[str]) -> dict[str, Tally]:
    out = {}
    for i, name in enumerate(names):
        where = key == i
        if where.any():
            out[name] = _tally(exact, possible, where)
    return out


def _sum(maps: Iterable[Mapping[str, Any]], zero: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for one in maps:
        for name, value in one.items():
            out[name] = out.get(name, zero) + value
    return out


def merged(parts: Iterable[Fidelity]) -> Fidelity:
    """One result of several parts of a capture (at least one)."""
    p = list(parts)
    return Fidelity(
        total=sum((x.total for x in p), Tally()),
        set_sum=sum(x.set_sum for x in p),
        left_out=_sum((x.left_out for x in p), 0),
        by_affine=_sum((x.by_affine for x in p), Tally()),
        by_step=_sum((x.by_step for x in p), Tally()),
        by_context=_sum((x.by_context for x in p), Tally()),
        by_distance=_sum((x.by_distance for x in p), Tally()),
        confusion={
            name: _sum((x.confusion.get(name, {}) for x in p), 0)
            for name in CLASSES
            if any(name in x.confusion for x in p)
        },
        explained_by=_sum((x.explained_by for x in p), 0),
        plain=sum((x.plain for x in p), Score()),
        inferred=sum((x.inferred for x in p), Score()),
        frozen=sum((x.frozen for x in p), Score()),
        no_idle_cpu=sum(x.no_idle_cpu for x in p),
        forms=p[0].forms,
        fitted=_sum((x.fitted for x in p), Score()),
    )
