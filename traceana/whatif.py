"""Re-decide every recorded wakeup under other rules, one at a time (open loop).

:func:`whatif` rebuilds the machine as it stood at each decided wakeup (``replay``), asks each
rule, and estimates what the moved wakeups would have met (``openloop``). Everything here is an
estimate and says so; intervals come from a block bootstrap over time.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import rules as registry
from traceana import schema
from traceana.errors import UsageError
from traceana.openloop import NULL, Backlog, Bootstrap, Estimate
from traceana.race import candidates
from traceana.replay import Replay

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.timeline import Timeline

__all__ = ["DEFAULT_RULES", "RuleResult", "WhatIf", "whatif"]

DEFAULT_RULES = ("recorded", "sis_short_v5", "abel", "prev_cpu", "this_cpu")
SHARES = (0.5, 0.9, 0.99)
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Figure:
    """One compared quantity: recorded, estimated, and 95 % intervals (None: too few blocks)."""

    recorded: float | None
    estimated: float | None
    interval: tuple[float, float] | None = None
    delta_interval: tuple[float, float] | None = None

    @property
    def delta(self) -> float | None:
        """Estimated minus recorded."""
        if self.recorded is None or self.estimated is None:
            return None
        return self.estimated - self.recorded

    def to_json(self) -> dict[str, Any]:
        return {
            "recorded": _number(self.recorded),
            "estimated": _number(self.estimated),
            "interval": None if self.interval is None else [_number(v) for v in self.interval],
            "delta": _number(self.delta),
            "delta_interval": (
                None if self.delta_interval is None else [_number(v) for v in self.delta_interval]
            ),
        }


@dataclass
class RuleResult:
    """What one rule would have done.

    ``reasons`` counts decided wakeups by the rule's reason, moved or not; ``blocked_alone`` counts
    the wakeups that one unmet condition alone kept from firing. ``possible`` of the moved ones
    hang on a value that no event tells. ``idle_delta_ns`` is per CPU; it adds up to 0, as a moved
    burst leaves one CPU and fills another.
    """

    rule: str
    decisions: int
    moved: int
    moved_possible: int
    fired_possible: int
    unestimated: int
    reasons: dict[str, int]
    blocked_alone: dict[str, int]
    idle_delta_ns: dict[int, int]
    idle_delta_total: Figure
    queue_delay_ns: dict[str, Figure]
    wakeup_latency_ns: dict[str, Figure]
    moved_latency_ns: dict[str, Figure]
    victims_relieved: int
    victims_created: int
    on_waker_cpu: Figure
    cpu: Array = field(repr=False)
    rows: Array = field(repr=False)
    reason_codes: Array = field(repr=False)
    reason_names: tuple[str, ...] = field(repr=False)
    certainty: Array = field(repr=False)
    moved_mask: Array = field(repr=False)
    estimate: Estimate = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """The object that ``whatif --format json`` prints for this rule."""
        return {
            "rule": self.rule,
            "method": "open_loop",
            "decisions": self.decisions,
            "moved": self.moved,
            "moved_possible": self.moved_possible,
            "fired_possible": self.fired_possible,
            "unestimated": self.unestimated,
            "reasons": self.reasons,
            "blocked_alone": self.blocked_alone,
            "idle_delta_ns": {
                "total": self.idle_delta_total.to_json(),
                "note": "the total is 0 by construction: open loop moves a burst from one CPU to "
                "another and lets nothing follow from it",
                "per_cpu": {str(c): v for c, v in sorted(self.idle_delta_ns.items())},
            },
            "queue_delay_ns": {k: f.to_json() for k, f in self.queue_delay_ns.items()},
            "wakeup_latency_ns": {k: f.to_json() for k, f in self.wakeup_latency_ns.items()},
            "moved_wakeup_latency_ns": {k: f.to_json() for k, f in self.moved_latency_ns.items()},
            "victims_relieved": self.victims_relieved,
            "victims_created": self.victims_created,
            "on_waker_cpu_share": self.on_waker_cpu.to_json(),
        }


@dataclass(repr=False)
class WhatIf:
    """Results of :func:`whatif`: one :class:`RuleResult` a rule, and the tables."""

    rules: list[RuleResult]
    params: dict[str, dict[str, int]]
    left_out: dict[str, int]
    assumptions: list[str]

    def __repr__(self) -> str:
        told = ", ".join(f"{r.rule}: {r.moved} of {r.decisions} moved" for r in self.rules)
        return f"<traceana.WhatIf, estimated, open loop: {told}>"

    def __getitem__(self, rule: str) -> RuleResult:
        for result in self.rules:
            if result.rule == rule:
                return result
        raise KeyError(rule)

    @property
    def decisions(self) -> pa.Table:
        """The ``decisions`` table: a row per rule and decided wakeup."""
        parts = []
        for r in self.rules:
            names = pa.array(r.reason_names, pa.string())
            parts.append(
                pa.table(
                    [
                        pa.array(r.rows, pa.int64()),
                        pa.array([r.rule], pa.string()).take(
                            pa.array(np.zeros(len(r.rows), np.int64))
                        ),
                        pa.array(r.cpu, pa.int32(), mask=r.cpu < 0),
                        names.take(pa.array(r.reason_codes, pa.int64())),
                        pa.array(r.certainty, pa.uint8()),
                        pa.array(r.moved_mask, pa.bool_()),
                    ],
                    schema=schema.DECISIONS.schema,
                )
            )
        return pa.concat_tables(parts) if parts else schema.empty("decisions")

    @property
    def deltas(self) -> pa.Table:
        """The ``deltas`` table."""
        rows: list[tuple[Any, ...]] = []
        for r in self.rules:
            figures = [("idle_ns", "all", r.idle_delta_total)]
            figures += [(f"queue_delay_{k}_ns", "all", f) for k, f in r.queue_delay_ns.items()]
            figures += [
                (f"wakeup_latency_{k}_ns", "all", f) for k, f in r.wakeup_latency_ns.items()
            ]
            figures += [
                (f"moved_wakeup_latency_{k}_ns", "all", f) for k, f in r.moved_latency_ns.items()
            ]
            figures.append(("on_waker_cpu_share", "all", r.on_waker_cpu))
            figures += [
                ("idle_delta_ns", f"cpu:{c}", Figure(0, v))
                for c, v in sorted(r.idle_delta_ns.items())
            ]
            for metric, scope, f in figures:
                lo, hi = f.interval or (None, None)
                dlo, dhi = f.delta_interval or (None, None)
                rows.append(
                    (
                        r.rule,
                        scope,
                        metric,
                        f.recorded,
                        f.estimated,
                        lo,
                        hi,
                        dlo,
                        dhi,
                        r.decisions,
                        "open_loop",
                    )
                )
        spec = schema.DELTAS.schema
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(spec)
        return pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, spec, strict=True)], schema=spec
        )

    def to_json(self) -> dict[str, Any]:
        """The document that ``whatif --format json`` prints (without file facts)."""
        return {
            "schema_version": schema.SCHEMA_VERSION,
            "kind": "estimated, open loop",
            "left_out": self.left_out,
            "assumptions": self.assumptions,
            "params": self.params,
            "rules": [r.to_json() for r in self.rules],
        }

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{r.rule}</td><td>{r.decisions:,}</td><td>{r.moved:,}</td></tr>"
            for r in self.rules
        )
        head = "<tr><th>rule</th><th>decisions</th><th>moved</th></tr>"
        return f"<table><caption>estimated, open loop</caption>{head}{rows}</table>"


def _holding(interval: tuple[float, float], value: float) -> tuple[float, float]:
    """The interval, widened where it does not hold the value."""
    return min(interval[0], value), max(interval[1], value)


def _number(value: float | None) -> float | int | None:
    """Nanoseconds as whole numbers, shares (all of them below 1) as they are."""
    if value is None:
        return None
    return round(float(value)) if abs(value) > 1 or float(value).is_integer() else round(value, 6)


def whatif(
    cap: Capture,
    rules: str | Sequence[str] = DEFAULT_RULES,
    *,
    params: Mapping[str, Any] | None = None,
) -> WhatIf:
    """Ask rules where they would have put each decided wakeup, and estimate what would change.

    Parameters
    ----------
    cap : Capture
    rules : names of the registry, in the order of the result
    params : overrides, ``{"sis_short_v5.threshold_ns": 375000}``

    Raises
    ------
    UsageError
        Unknown rule or parameter.
    MissingEventsError
        The capture holds no wakeups, or no switches.
    """
    names = [rules] if isinstance(rules, str) else rules
    loaded = [registry.load(name) for name in dict.fromkeys(names)]
    overrides = _overrides(params or {}, [r.name for r in loaded])
    cap.require(("sched_waking", "sched_wakeup"), "whatif")
    timeline = cap.timeline()
    replay = Replay(cap, timeline)
    if not len(replay.rows):
        cap.require(("sched_waking",), "whatif")
    study = _Study(timeline, replay)
    return WhatIf(
        rules=[study.ask(rule, overrides.get(rule.name, {})) for rule in loaded],
        params={r.name: replay.named_params(r, overrides.get(r.name, {})) for r in loaded},
        left_out=study.left_out,
        assumptions=replay.assumptions,
    )


class _Study:
    """The recording's side of every comparison, computed once for all rules."""

    def __init__(self, timeline: Timeline, replay: Replay) -> None:
        self._t, self._replay = timeline, replay
        w = timeline.raw["wakeups"]
        self._w = w
        self._rows = replay.rows
        kinds = np.bincount(w["kind"], minlength=len(schema.WakeKind))
        decided = np.zeros(len(w), bool)
        decided[self._rows] = True
        self.left_out = {
            kind.name.lower(): int(kinds[kind])
            for kind in schema.WakeKind
            if kinds[kind] and kind != schema.WakeKind.DECIDED
        }
        rest = int(((w["kind"] == schema.WakeKind.DECIDED) & ~decided).sum())
        if rest:
            self.left_out["decided_incomplete"] = rest
        self._backlog = Backlog(timeline.raw, replay.n_cpus)
        self._candidates = candidates(timeline)
        self._at = np.where(w["waking"] != NULL, w["waking"], w["wakeup"])
        self._boot = Bootstrap(timeline.first_ts, timeline.last_ts, len(w))

    def ask(self, rule: registry.Rule, overrides: Mapping[str, int]) -> RuleResult:
        w, rows = self._w, self._rows
        answer = self._replay.ask(rule, overrides)
        recorded = self._replay.recorded_cpu
        moved = (answer.cpu != recorded) & (answer.cpu >= 0) & (recorded >= 0)
        moved_rows = rows[moved]
        estimate = self._backlog.estimate(moved_rows, answer.cpu[moved], answer.ahead[moved])
        latency = self._compare(moved_rows, w["latency"], estimate.latency)
        delay = self._compare(moved_rows, w["delay"], estimate.delay)
        names = rule.reasons
        counts = np.bincount(answer.reason, minlength=len(names))
        alone = _alone(answer.blocked, rule)
        idle = self._idle(moved_rows, answer.cpu[moved])
        on_waker = self._share_on_waker(answer.cpu)
        relieved, created = self._victims(moved_rows, answer.cpu[moved], answer.ahead[moved])
        fired = answer.reason >= 2 if rule.text.conditions else moved
        return RuleResult(
            rule=rule.name,
            decisions=len(rows),
            moved=int(moved.sum()),
            moved_possible=int((answer.certainty[moved] != schema.Certainty.EXACT).sum()),
            fired_possible=int((answer.certainty[fired] != schema.Certainty.EXACT).sum()),
            unestimated=int((estimate.run == NULL).sum()),
            reasons={names[i]: int(n) for i, n in enumerate(counts) if n},
            blocked_alone=alone,
            idle_delta_ns={c: int(v) for c, v in enumerate(idle) if v},
            idle_delta_total=self._idle_total(moved_rows, idle),
            queue_delay_ns=delay,
            wakeup_latency_ns=latency,
            moved_latency_ns=self._moved_only(moved_rows, estimate),
            victims_relieved=relieved,
            victims_created=created,
            on_waker_cpu=on_waker,
            cpu=answer.cpu,
            rows=rows,
            reason_codes=answer.reason,
            reason_names=tuple(names),
            certainty=answer.certainty,
            moved_mask=moved,
            estimate=estimate,
        )

    def _compare(self, moved_rows: Array, recorded: Array, estimated: Array) -> dict[str, Figure]:
        """Percentiles and sum over all wakeups, the moved ones replaced by their estimates."""
        new = recorded.copy()
        new[moved_rows] = estimated
        # A moved wakeup that can not be estimated leaves both sides.
        keep = (recorded != NULL) & (new != NULL)
        return self._figures(self._at[keep], recorded[keep], new[keep])

    def _moved_only(self, moved_rows: Array, estimate: Estimate) -> dict[str, Figure]:
        recorded = self._w["latency"][moved_rows]
        keep = (recorded != NULL) & (estimate.latency != NULL)
        return self._figures(self._at[moved_rows][keep], recorded[keep], estimate.latency[keep])

    def _figures(self, at: Array, old: Array, new: Array) -> dict[str, Figure]:
        out: dict[str, Figure] = {}
        if not len(old):
            return {name: Figure(None, None) for name in ("p50", "p90", "p99", "sum")}
        a, b = np.sort(old), np.sort(new)
        draws = None
        if self._boot.usable and len(old) >= 40:
            edges = self._boot.edges(old, new)
            draws = (
                self._boot.percentiles(at, old, edges, SHARES),
                self._boot.percentiles(at, new, edges, SHARES),
            )
        for i, share in enumerate(SHARES):
            k = max(int(np.ceil(share * len(a))) - 1, 0)
            interval = delta = None
            if draws is not None:
                # A draw's percentile is exact to one bin, the figure itself exact.
                interval = _holding(self._boot.interval(draws[1][:, i]), int(b[k]))
                moved = self._boot.interval(draws[1][:, i] - draws[0][:, i])
                delta = _holding(moved, int(b[k]) - int(a[k]))
            out[f"p{int(share * 100)}"] = Figure(int(a[k]), int(b[k]), interval, delta)
        interval = delta = None
        if draws is not None:
            sums_old, sums_new = self._boot.sums(at, old), self._boot.sums(at, new)
            interval = self._boot.interval(sums_new)
            delta = self._boot.interval(sums_new - sums_old)
        out["sum"] = Figure(int(old.sum()), int(new.sum()), interval, delta)
        return out

    def _bursts(self, rows: Array) -> Array:
        """How long each wakee ran after its wakeup, to its switch-out or the window's end."""
        slices, w = self._t.raw["slices"], self._w
        known = (slices["start"] != NULL) & (slices["cpu"] >= 0)
        s = slices[known]
        span = self._t.last_ts - self._t.first_ts + 2
        key = s["cpu"].astype(np.int64) * span + (s["start"] - self._t.first_ts)
        order = np.argsort(key, kind="stable")
        key = key[order]
        end = np.where(s["end"][order] != NULL, s["end"][order], self._t.last_ts)
        ran = (w["run"][rows] != NULL) & (w["ran"][rows] >= 0)
        want = w["ran"][rows].astype(np.int64) * span + (w["run"][rows] - self._t.first_ts)
        i = np.minimum(np.searchsorted(key, np.where(ran, want, 0)), max(len(key) - 1, 0))
        if not len(key):
            return np.zeros(len(rows), np.int64)
        hit = ran & (key[i] == want)
        return np.where(hit, end[i] - w["run"][rows], 0)

    def _idle(self, rows: Array, cpu: Array) -> Array:
        out = np.zeros(self._replay.n_cpus, np.int64)
        if len(rows):
            burst = self._bursts(rows)
            ran = self._w["ran"][rows]
            ok = ran >= 0
            np.add.at(out, cpu[ok], -burst[ok])
            np.add.at(out, ran[ok], burst[ok])
        return out

    def _idle_total(self, rows: Array, idle: Array) -> Figure:
        gaps = self._t.raw["gaps"]
        start = np.where(gaps["start"] != NULL, gaps["start"], self._t.first_ts)
        end = np.where(gaps["end"] != NULL, gaps["end"], self._t.last_ts)
        total = int(np.maximum(end - start, 0).sum())
        interval = delta = None
        if self._boot.usable:
            interval = self._boot.interval(self._boot.sums(start, np.maximum(end - start, 0)))
            delta = (0.0, 0.0)
        return Figure(total, total + int(idle.sum()), interval, delta)

    def _share_on_waker(self, cpu: Array) -> Figure:
        this = self._w["this_cpu"][self._rows]
        old, new = self._replay.recorded_cpu == this, cpu == this
        if not len(this):
            return Figure(None, None)
        interval = delta = None
        if self._boot.usable:
            at = self._at[self._rows]
            n = np.maximum(self._boot.sums(at, np.ones(len(at))), 1)
            a, b = self._boot.sums(at, old) / n, self._boot.sums(at, new) / n
            interval, delta = self._boot.interval(b), self._boot.interval(b - a)
        return Figure(float(old.mean()), float(new.mean()), interval, delta)

    def _victims(self, rows: Array, cpu: Array, ahead: Array) -> tuple[int, int]:
        """Candidate double bookings that a move undoes, and those that it makes.

        Undone: one of the two goes elsewhere. Made: the wakeup goes to a CPU that looked idle and
        that another recorded booking, not yet visible or made before this one was, also chose.
        """
        table = self._candidates
        first, second = table.column("first").to_numpy(), table.column("second").to_numpy()
        gone = np.zeros(len(self._w), bool)
        gone[rows] = True
        relieved = int((gone[first] | gone[second]).sum()) if len(first) else 0
        w = self._w
        placed = np.where(w["placed"] >= 0, w["placed"], w["ran"])
        booked = np.flatnonzero(
            (w["kind"] == schema.WakeKind.DECIDED)
            & (w["waking"] != NULL)
            & (w["vis_hi"] != NULL)
            & (placed >= 0)
            & ~gone
        )
        created = 0
        idle = np.flatnonzero(ahead <= 0)
        for c in np.unique(cpu[idle]):
            mine = rows[idle[cpu[idle] == c]]
            there = booked[placed[booked] == c]
            lo, hi = w["waking"][there], np.sort(w["vis_hi"][there])
            begun = np.searchsorted(lo, w["vis_hi"][mine], side="left")
            over = np.searchsorted(hi, w["waking"][mine], side="right")
            created += int((begun > over).sum())
        return relieved, created


def _alone(blocked: Array, rule: registry.Rule) -> dict[str, int]:
    """How many wakeups each condition alone kept from firing, each place of the rule by itself."""
    out: dict[str, int] = {}
    for mask in rule.places.values():
        rest = blocked & mask
        for i, name in enumerate(rule.text.conditions):
            n = int((rest == (1 << i)).sum()) if mask >> i & 1 else 0
            if n:
                out[name] = n
    return out


def _overrides(params: Mapping[str, Any], rules: Sequence[str]) -> dict[str, dict[str, int]]:
    """``{"rule.parameter": value}`` by rule; values are whole numbers."""
    out: dict[str, dict[str, int]] = {}
    for key, value in params.items():
        rule, dot, name = key.rpartition(".")
        if not dot or rule not in rules:
            raise UsageError(
                f"--param {key}: write RULE.PARAMETER=VALUE, with one of {', '.join(rules)}"
            )
        try:
            out.setdefault(rule, {})[name] = int(str(value).replace("_", ""))
        except ValueError:
            raise UsageError(f"--param {key}={value}: a whole number is needed") from None
    return out


class _CallableModule(types.ModuleType):
    """``traceana.whatif`` is this module once it was imported, and has to be the function too."""

    def __call__(self, *args: Any, **kwargs: Any) -> WhatIf:
        return whatif(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
