"""Two captures, or two groups of them, side by side: what differs, by how much, how surely.

Every figure of side B is set against side A's: difference, ratio, 95 % interval, effect size, and
whether the difference is real. *Real* means: the interval leaves 0 out, it still does when all the
figures asked together are allowed for (Holm's step-down at 5 %, all tasks and the single groups
apart), and the difference is big enough to speak of (``least``). What is smaller is *small*, what
the interval does not tell from 0 is *none*, and without enough data it *cannot be said*.

Where the uncertainty comes from: with one capture a side, from a block bootstrap within each
(``_compare_draws``). That says whether these two recordings differ; it cannot see how much two
recordings of the very same thing differ (boots, interleavings, what was placed where at the
start). With repetitions, from the spread between them, never less than what the bootstrap within
them says (Student's t with Welch's degrees of freedom). A side without repetitions is then taken
to spread like the other.

The effect size of a latency is Cliff's delta (how much more often B's wakeup is the longer one); of
any other figure the difference in units of its spread between repetitions, or, with one capture a
side, between sixteenths of the window (Cohen's d).

No figure is signed better or worse. Wakeups, edges and switches a second are activity; throughput
comes only from the workload's own counter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import schema
from traceana._compare_draws import LEVEL, Interval, alone, difference, relative, student, welch
from traceana._compare_metrics import IDLE_BINS, METRICS, Metric
from traceana._compare_problems import Problem, problems
from traceana._compare_take import EDGES, Taken, cliff, take, wakeups_of
from traceana._compare_words import sentences

if TYPE_CHECKING:
    from traceana._compare_draws import Estimate
    from traceana.capture import Capture

__all__ = ["LEAST", "LEAST_SHARE", "Comparison", "Row", "compare", "compare_taken", "take"]

#: Smallest relative difference that is spoken of; of shares, the smallest difference.
LEAST, LEAST_SHARE = 0.02, 0.005
#: Shares of the CPUs that are known, by what they idled for.
_OF_IDLE = ("attributable_lo", "attributable_hi", *IDLE_BINS)
#: Chance that one of the differences called real is none.
_ALPHA = 0.05


@dataclass(frozen=True)
class Row:
    """One figure of both sides.

    ``lo``, ``hi``: 95 % interval of ``difference`` (B - A); ``ratio`` is B / A. ``verdict`` is
    'real', 'small', 'none' or 'cannot_say'. ``beyond_spread``: whether the difference is real
    beyond the spread between repetitions; None where there are none.
    """

    scope: str
    metric: str
    unit: str
    a: float | None
    b: float | None
    difference: float | None
    ratio: float | None
    lo: float | None
    hi: float | None
    ratio_lo: float | None
    ratio_hi: float | None
    b_lo: float | None
    b_hi: float | None
    effect: float | None
    effect_kind: str | None
    p: float | None
    p_adjusted: float | None
    verdict: str
    n_a: int
    n_b: int
    runs_a: int
    runs_b: int
    blocks_a: int | None
    blocks_b: int | None
    #: Where the interval comes from: 'blocks', 'repetitions', or None.
    method: str | None
    beyond_spread: bool | None
    #: It changes over stretches too long for the window: the interval is a lower bound.
    short: bool

    @property
    def real(self) -> bool:
        return self.verdict == "real"

    @property
    def excludes_zero(self) -> bool | None:
        """Whether the interval leaves 0 out; None without one."""
        return None if self.lo is None or self.hi is None else self.lo > 0 or self.hi < 0

    def to_json(self) -> dict[str, Any]:
        out = dict(vars(self))
        for name in ("a", "b", "difference", "lo", "hi", "b_lo", "b_hi"):
            value = out[name]
            if self.unit == "ns" and value is not None:
                out[name] = round(value)
        return {**out, "excludes_zero": self.excludes_zero, "real": self.real}


@dataclass(frozen=True)
class Comparison:
    """Result of :func:`compare`."""

    a: Sequence[Taken]
    b: Sequence[Taken]
    rows: Sequence[Row]
    #: What makes the two sides hard to compare.
    problems: Sequence[Problem]
    least: float
    #: The same in words, the most important first.
    sentences: Sequence[str] = field(default_factory=tuple)

    def row(self, metric: str, scope: str = "all") -> Row | None:
        """One figure; None where no capture has it."""
        return next((r for r in self.rows if r.metric == metric and r.scope == scope), None)

    @property
    def scopes(self) -> list[str]:
        return list(dict.fromkeys(r.scope for r in self.rows))

    def counts(self, side: str, scope: str, latency: str) -> npt.NDArray[np.int64]:
        """Wakeups per bin of EDGES, all captures of side 'a' or 'b' together."""
        out = np.zeros(len(EDGES) - 1, np.int64)
        for taken in self.a if side == "a" else self.b:
            out += taken.counts.get((scope, latency), 0)
        return out

    def to_json(self) -> dict[str, Any]:
        """The document that ``compare --format json`` prints."""
        runs = len(self.a), len(self.b)
        return {
            "schema_version": schema.SCHEMA_VERSION,
            "kind": "measured",
            "level": LEVEL,
            "between_runs_known": max(runs) > 1,
            "least": {"relative": self.least, "share": LEAST_SHARE},
            "verdict": list(self.sentences),
            "comparable": not any(p.grave for p in self.problems),
            "problems": [p.to_json() for p in self.problems],
            "a": [dict(t.facts) for t in self.a],
            "b": [dict(t.facts) for t in self.b],
            "metrics": [r.to_json() for r in self.rows],
            "distributions": [d for d in self._distributions() if d is not None],
        }

    def _distributions(self) -> list[dict[str, Any] | None]:
        out: list[dict[str, Any] | None] = []
        for latency in ("queue_delay", "wakeup_latency"):
            a, b = (self.counts(side, "all", latency) for side in "ab")
            used = np.flatnonzero(a + b)
            if len(used):
                some = slice(int(used[0]), int(used[-1]) + 1)
                edges = EDGES[some.start : some.stop + 1]
                out.append(
                    {
                        "latency": latency,
                        "scope": "all",
                        "edge_ns": [float(f"{e:.5g}") for e in edges.tolist()],
                        "a": a[some].tolist(),
                        "b": b[some].tolist(),
                    }
                )
        return out

    def __repr__(self) -> str:
        real = [r.metric for r in self.rows if r.real and r.scope == "all"]
        return f"<traceana.Comparison, real differences: {', '.join(real) or 'none'}>"


def compare(
    a: Capture | str | Path | Sequence[Capture | str | Path],
    b: Capture | str | Path | Sequence[Capture | str | Path],
    *,
    throughput: tuple[Sequence[float], Sequence[float]] | None = None,
    least: float = LEAST,
) -> Comparison:
    """Compare two captures, or two groups of repetitions.

    Parameters
    ----------
    a, b : captures or their paths, one or several
    throughput : what the workload itself counted per second, per capture of a and of b
    least : smallest relative difference that is called real

    Raises
    ------
    MissingEventsError
        A capture holds no sched_switch.
    UnsupportedError
        The clock of one is no time.
    UsageError
        Not one throughput per capture.
    """
    from traceana.capture import open as open_capture
    from traceana.errors import UsageError

    taken: list[list[Taken]] = []
    seed = 0
    for side, given in enumerate((a, b)):
        captures = _as_list(given)
        told = list(throughput[side]) if throughput is not None else []
        if told and len(told) != len(captures):
            raise UsageError(f"{len(told)} throughputs for {len(captures)} captures")
        out = []
        for i, one in enumerate(captures):
            seed += 1
            cap = open_capture(one) if isinstance(one, str | Path) else one
            out.append(take(cap, seed=seed, throughput=told[i] if told else None))
        taken.append(out)
    return compare_taken(taken[0], taken[1], least=least)


def _as_list(given: Any) -> list[Capture | str | Path]:
    several = isinstance(given, Sequence) and not isinstance(given, str)
    return list(given) if several else [given]


def compare_taken(a: Sequence[Taken], b: Sequence[Taken], *, least: float = LEAST) -> Comparison:
    """Compare what was taken of two groups of captures (each at least one)."""
    from traceana.errors import UsageError

    if not a or not b:
        raise UsageError("compare needs a capture on either side")
    rows = [
        _row(scope, metric, a, b, least)
        for scope in _scopes(a, b)
        for metric in METRICS.values()
        if _there(scope, metric, (*a, *b))
    ]
    rows = _adjusted(rows)
    found = problems(a, b)
    return Comparison(a, b, rows, found, least, sentences(rows, found, len(a), len(b), least))


def _there(scope: str, metric: Metric, taken: Sequence[Taken]) -> bool:
    """Whether a figure is worth a row: some capture has it (of idle time's bins, some of it)."""
    found = [e for t in taken if (e := t.figures.get((scope, metric.name))) is not None]
    return any(e.value for e in found) if metric.name in IDLE_BINS else bool(found)


def _scopes(a: Sequence[Taken], b: Sequence[Taken]) -> list[str]:
    """All, then workloads and families, the busiest first; of equal groupings only one."""
    same = all(t.same_groups for t in (*a, *b))
    weight: dict[str, tuple[float, int]] = {}
    for t in (*a, *b):
        for scope, share in t.weight.items():
            if same and scope.startswith("family:"):
                continue
            old = weight.get(scope, (0.0, 0))
            weight[scope] = (old[0] + share, old[1] + wakeups_of(t, scope))
    kinds = {"workload": 0, "family": 1}
    order = sorted(
        weight, key=lambda s: (kinds[s.partition(":")[0]], -weight[s][0], -weight[s][1], s)
    )
    return ["all", *order]


def _row(scope: str, metric: Metric, a: Sequence[Taken], b: Sequence[Taken], least: float) -> Row:
    key = scope, metric.name
    both = [
        [e for t in side if (e := t.figures.get(key)) is not None and e.value is not None]
        for side in (a, b)
    ]
    values = [np.array([e.value for e in side], np.float64) for side in both]
    mean_a, mean_b = (float(v.mean()) if len(v) else None for v in values)
    d = None if mean_a is None or mean_b is None else mean_b - mean_a
    ratio = mean_b / mean_a if mean_a and mean_b is not None else None
    runs = len(both[0]), len(both[1])
    repeated = max(runs) > 1
    interval = ratio_interval = own = None
    method = None
    if d is not None and metric.q < 1:
        if repeated:
            interval, ratio_interval, own = _between(both, values)
            method = "repetitions" if interval else None
        else:
            one, other = both[0][0], both[1][0]
            interval, ratio_interval = difference(one, other), relative(one, other)
            own = alone(other)
            method = "blocks" if interval else None
    if metric.name == "idle_share" and interval is not None:
        interval = _with_silence(interval, a, b)
    elif metric.name in _OF_IDLE and not _as_silent(a, b):
        interval = method = None  # why a CPU without events was idle, if it was, is not known
    step = max(t.facts["clock_step_ns"] for t in (*a, *b)) if metric.unit == "ns" else 0
    verdict = _verdict(metric, mean_a, d, interval, least, step)
    effect, kind = _effect(metric, scope, a, b, both, values, d)
    return Row(
        scope=scope,
        metric=metric.name,
        unit=metric.unit,
        a=mean_a,
        b=mean_b,
        difference=d,
        ratio=ratio,
        lo=interval.lo if interval else None,
        hi=interval.hi if interval else None,
        ratio_lo=ratio_interval.lo if ratio_interval else None,
        ratio_hi=ratio_interval.hi if ratio_interval else None,
        b_lo=own.lo if own else None,
        b_hi=own.hi if own else None,
        effect=effect,
        effect_kind=kind,
        p=interval.p if interval else None,
        p_adjusted=None,
        verdict=verdict,
        n_a=sum(e.n for e in both[0]),
        n_b=sum(e.n for e in both[1]),
        runs_a=runs[0],
        runs_b=runs[1],
        blocks_a=both[0][0].blocks or None if runs[0] == 1 else None,
        blocks_b=both[1][0].blocks or None if runs[1] == 1 else None,
        method=method,
        beyond_spread=None,
        short=any(e.short for side in both for e in side),
    )


def _between(
    both: Sequence[Sequence[Estimate]], values: Sequence[npt.NDArray[np.float64]]
) -> tuple[Interval | None, Interval | None, Interval | None]:
    """Intervals of difference, ratio and B from the spread between repetitions."""
    from scipy.special import stdtr

    spreads = [float(v.var(ddof=1)) if len(v) > 1 else None for v in values]
    parts: list[tuple[float, float]] = []
    for i, side in enumerate(both):
        spread, n = spreads[i], len(side)
        df = float(n - 1)
        if spread is None:
            spread = spreads[1 - i] or 0.0
            df = float(len(both[1 - i]) - 1)
        within = float(np.mean([e.variance or 0.0 for e in side]))
        parts.append((max(spread, within) / n, df))
    d = float(values[1].mean() - values[0].mean())
    se, df = welch(parts)
    t = student(df)
    p = 2 * float(stdtr(df, -abs(d) / se)) if se > 0 else float(d == 0)
    found = Interval(d - t * se, d + t * se, p)
    own_t = student(parts[1][1])
    b = float(values[1].mean())
    own = Interval(b - own_t * parts[1][0] ** 0.5, b + own_t * parts[1][0] ** 0.5, 1.0)
    a = float(values[0].mean())
    if a <= 0:
        return found, None, own
    ratio = b / a
    width = t * (parts[1][0] + ratio**2 * parts[0][0]) ** 0.5 / a
    return found, Interval(ratio - width, ratio + width, p), own


def _as_silent(a: Sequence[Taken], b: Sequence[Taken]) -> bool:
    """Whether all captures have equally many CPUs without events."""
    return len({t.facts["silent_cpus"] for t in (*a, *b)}) == 1


def _with_silence(found: Interval, a: Sequence[Taken], b: Sequence[Taken]) -> Interval:
    """The interval of the change of the idle share, with what CPUs without events leave open.

    Where as many are silent on both sides they are taken to have done the same on both; else they
    may have been idle or busy, and the interval holds both.
    """
    if _as_silent(a, b):
        return found
    ends = [
        [
            float(np.mean([t.facts[f"idle_share_{end}"] or 0.0 for t in side]))
            for end in ("lo", "hi")
        ]
        for side in (a, b)
    ]
    lo, hi = min(found.lo, ends[1][0] - ends[0][1]), max(found.hi, ends[1][1] - ends[0][0])
    return Interval(lo, hi, 1.0, told=False) if lo <= 0 <= hi else Interval(lo, hi, found.p)


def _verdict(
    metric: Metric,
    a: float | None,
    d: float | None,
    interval: Interval | None,
    least: float,
    step: int,
) -> str:
    """Before the other rows are allowed for."""
    if interval is None or d is None or a is None:
        return "cannot_say"
    if interval.lo <= 0 <= interval.hi:
        return "none" if interval.told else "cannot_say"
    enough = LEAST_SHARE if metric.unit == "share" else max(least * abs(a), step)
    return "real" if abs(d) >= enough else "small"


def _adjusted(rows: Sequence[Row]) -> list[Row]:
    """Holm's adjustment, among the figures of all tasks and among those of the groups."""
    from dataclasses import replace

    out = list(rows)
    for whole in (True, False):
        mine = [i for i, r in enumerate(out) if (r.scope == "all") == whole and r.p is not None]
        mine.sort(key=lambda i: out[i].p or 0.0)
        worst = 0.0
        for place, i in enumerate(mine):
            row = out[i]
            worst = max(worst, min(1.0, (row.p or 0.0) * (len(mine) - place)))
            verdict = row.verdict
            if verdict in ("real", "small") and worst >= _ALPHA:
                verdict = "none"
            beyond = verdict == "real" if row.method == "repetitions" else None
            out[i] = replace(row, p_adjusted=worst, verdict=verdict, beyond_spread=beyond)
    return out


def _effect(
    metric: Metric,
    scope: str,
    a: Sequence[Taken],
    b: Sequence[Taken],
    both: Sequence[Sequence[Estimate]],
    values: Sequence[npt.NDArray[np.float64]],
    d: float | None,
) -> tuple[float | None, str | None]:
    if d is None:
        return None, None
    if metric.latency:
        key = scope, metric.latency
        counts: list[npt.NDArray[np.int64]] = []
        for side in (a, b):
            total = np.zeros(len(EDGES) - 1, np.int64)
            for t in side:
                total += t.counts.get(key, 0)
            counts.append(total)
        return cliff(*counts), "cliffs_delta"
    spreads: list[float] = [float(v.var(ddof=1)) for v in values if len(v) > 1]
    kind = "d_between_repetitions"
    if not spreads:
        kind = "d_between_sixteenths"
        spreads = [e.spread**2 for side in both for e in side if e.spread is not None]
    pooled = float(np.mean(spreads)) if spreads else 0.0
    return (d / pooled**0.5, kind) if pooled > 0 else (None, None)


def facts_of(side: Sequence[Taken]) -> list[Mapping[str, Any]]:
    """What each capture of a side is."""
    return [t.facts for t in side]
