"""Re-decide every recorded wakeup under other rules, one at a time (open loop).

:func:`whatif` rebuilds the machine as it stood at each decided wakeup (``replay``), asks each
rule, and estimates what the moved wakeups would have met (``openloop``). Everything here is an
estimate and says so; intervals come from a block bootstrap over time.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import rules as registry
from traceana import schema
from traceana._replay_fit import fit_forms
from traceana.amounts import amount
from traceana.candidates import candidates
from traceana.errors import RuleError, UsageError
from traceana.fidelity import Fidelity, Score, measure
from traceana.openloop import NULL, Backlog, Bootstrap, Estimate
from traceana.replaced import Change, Recorded
from traceana.replay import Replay
from traceana.userrules import TIMEOUT_S, AnyRule, asked, locate

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
    #: Moved wakeups whose recorded CPU the kernel's own path explains on the rebuilt state, so that
    #: the move is the rule's doing; and those where it does not: the rule overrides the recording.
    against_mainline: int
    against_recorded: int
    #: Of the moved ones that can be estimated: how many would have waited longer, and by how much.
    loses: int
    loss_ns: int
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
            "moved_against": {
                "mainline": self.against_mainline,
                "recorded": self.against_recorded,
            },
            "loses": {"wakeups": self.loses, "wakeup_latency_ns": self.loss_ns},
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
    """Results of :func:`whatif`: one :class:`RuleResult` a rule, and the tables.

    ``failed`` holds the users' rules that gave no result, and why; ``remarks`` what else was odd
    about users' rules.
    """

    rules: list[RuleResult]
    params: dict[str, dict[str, int]]
    left_out: dict[str, int]
    assumptions: list[str]
    #: How often the kernel's own path explains the recording; None: no decided wakeup.
    fidelity: Fidelity | None = None
    failed: list[RuleError] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        told = ", ".join(f"{r.rule}: {r.moved} of {r.decisions} moved" for r in self.rules)
        told += "".join(f"; failed: {fault}" for fault in self.failed)
        return f"<traceana.WhatIf, estimated, open loop: {told}>"

    def __getitem__(self, rule: str) -> RuleResult:
        for result in self.rules:
            if result.rule == rule:
                return result
        for fault in self.failed:
            if fault.rule == rule:
                raise fault
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
            "fidelity": None if self.fidelity is None else self.fidelity.to_json(),
            "assumptions": self.assumptions,
            "params": self.params,
            "rules": [r.to_json() for r in self.rules],
            "failed_rules": [fault.to_json() for fault in self.failed],
        }

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{r.rule}</td><td>{r.decisions:,}</td><td>{r.moved:,}</td></tr>"
            for r in self.rules
        )
        head = "<tr><th>rule</th><th>decisions</th><th>moved</th></tr>"
        return f"<table><caption>estimated, open loop</caption>{head}{rows}</table>"


def _number(value: float | None) -> float | int | None:
    """Nanoseconds as whole numbers, shares (all of them below 1) as they are."""
    if value is None:
        return None
    return round(float(value)) if abs(value) > 1 or float(value).is_integer() else round(value, 6)


def whatif(
    cap: Capture,
    rules: AnyRule | Sequence[AnyRule] = DEFAULT_RULES,
    *,
    params: Mapping[str, Any] | None = None,
    rule_timeout: float = TIMEOUT_S,
    fit_kernel: bool = False,
    recorded_with_rule: bool = False,
) -> WhatIf:
    """Ask rules where they would have put each decided wakeup, and estimate what would change.

    Parameters
    ----------
    cap : Capture
    rules : in the order of the result
        Names of the registry; for a rule of one's own, the path of its file, the module, or its
        ``decide``. A user's rule is code: it runs in a process of its own, and if it fails, the
        others' results are given all the same (see ``WhatIf.failed``).
    params : overrides, ``{"sis_short_v5.threshold_ns": 375000}``
    rule_timeout : time limit of a user's rule, seconds, after it was compiled
    fit_kernel : choose between the forms of the kernel's release and of its neighbours by how well
        they explain the recording
    recorded_with_rule : the recorded kernel had one of these rules switched on: where wakeups went
        then says nothing of its scan budget

    Raises
    ------
    UsageError
        Unknown rule or parameter.
    MissingEventsError
        The capture holds no wakeups, or no switches.
    """
    with asked(rules, rule_timeout) as found:
        failed = [fault.rule for fault in found.failed]
        replaying = (fit_kernel, recorded_with_rule)
        result = _whatif(cap, found.rules, params or {}, failed, replaying)
    # Once the processes have ended, all that they had to say is known.
    result.failed[:0] = found.failed
    result.remarks += found.remarks
    return result


def _whatif(
    cap: Capture,
    loaded: list[registry.Rule],
    params: Mapping[str, Any],
    failed: list[str],
    replaying: tuple[bool, bool],
) -> WhatIf:
    given = overrides(params, [r.name for r in loaded] + failed)
    cap.require(("sched_waking", "sched_wakeup"), "whatif")
    timeline = cap.timeline()
    timeline = timeline.study or timeline
    fit = fit_forms(cap, timeline) if replaying[0] else None
    replay = Replay(
        cap, timeline, forms=fit.forms if fit else None, recorded_with_rule=replaying[1]
    )
    if not len(replay.rows):
        cap.require(("sched_waking",), "whatif")
    study = Study(timeline, replay)
    out = WhatIf(rules=[], params={}, left_out=study.left_out, assumptions=replay.assumptions)
    if len(replay.rows):
        out.fidelity = measure(replay, timeline, study.left_out)
    if fit is not None and out.fidelity is not None:
        out.fidelity = replace(
            out.fidelity, fitted={name: Score(*s) for name, s in fit.scores.items()}
        )
        chosen = fit.release or "those of its own release"
        out.assumptions.append(
            f"forms of the path chosen by agreement: {chosen}; exactly explained: "
            + ", ".join(f"{name} {e} of {n}" for name, (n, e) in fit.scores.items())
        )
    for rule in loaded:
        own = given.get(rule.name, {})
        out.params[rule.name] = replay.named_params(rule, own)
        try:
            out.rules.append(study.ask(rule, own))
        except RuleError as fault:
            out.failed.append(locate(fault, timeline))
    return out


class Study:
    """The recording's side of every comparison, computed once for all rules and parameters."""

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
        self._explained = replay.verdicts.rows["cpu"] == replay.recorded_cpu
        self._at = np.where(w["waking"] != NULL, w["waking"], w["wakeup"])
        self._boot = Bootstrap(timeline.first_ts, timeline.last_ts, len(w))
        self._recorded: dict[str, Recorded] = {}

    def ask(self, rule: registry.Rule, overrides: Mapping[str, int]) -> RuleResult:
        """What the rule would have done, with these parameters."""
        w, rows = self._w, self._rows
        answer = self._replay.ask(rule, overrides)
        recorded = self._replay.recorded_cpu
        moved = (answer.cpu != recorded) & (answer.cpu >= 0) & (recorded >= 0)
        moved_rows = rows[moved]
        estimate = self._backlog.estimate(moved_rows, answer.cpu[moved], answer.ahead[moved])
        latency = self._compare(moved_rows, "latency", estimate.latency)
        delay = self._compare(moved_rows, "delay", estimate.delay)
        names = rule.reasons
        counts = np.bincount(answer.reason, minlength=len(names))
        alone = _alone(answer.blocked, rule)
        idle = self._idle(moved_rows, answer.cpu[moved])
        on_waker = self._share_on_waker(answer.cpu)
        relieved, created = self._victims(moved_rows, answer.cpu[moved], answer.ahead[moved])
        fired = answer.reason >= 2 if rule.text.conditions else moved
        explained = int((self._explained & moved).sum())
        longer = _longer(w["latency"][moved_rows], estimate.latency)
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
            against_mainline=explained,
            against_recorded=int(moved.sum()) - explained,
            loses=len(longer),
            loss_ns=int(longer.sum()),
            cpu=answer.cpu,
            rows=rows,
            reason_codes=answer.reason,
            reason_names=tuple(names),
            certainty=answer.certainty,
            moved_mask=moved,
            estimate=estimate,
        )

    def _compare(self, moved_rows: Array, metric: str, estimated: Array) -> dict[str, Figure]:
        """Percentiles and sum over all wakeups, the moved ones replaced by their estimates."""
        if metric not in self._recorded:
            self._recorded[metric] = Recorded(self._boot, self._at, self._w[metric])
        return _as_figures(self._recorded[metric].replace(moved_rows, estimated, SHARES))

    def _moved_only(self, moved_rows: Array, estimate: Estimate) -> dict[str, Figure]:
        """The same over the moved wakeups alone."""
        recorded = Recorded(self._boot, self._at[moved_rows], self._w["latency"][moved_rows])
        every = np.arange(len(moved_rows))
        return _as_figures(recorded.replace(every, estimate.latency, SHARES))

    @cached_property
    def _runs(self) -> tuple[Array, Array, int]:
        """Slices by CPU and start as one ascending number, their ends, and the number's span."""
        slices = self._t.raw["slices"]
        s = slices[(slices["start"] != NULL) & (slices["cpu"] >= 0)]
        span = self._t.last_ts - self._t.first_ts + 2
        key = s["cpu"].astype(np.int64) * span + (s["start"] - self._t.first_ts)
        order = np.argsort(key, kind="stable")
        end = np.where(s["end"][order] != NULL, s["end"][order], self._t.last_ts)
        return key[order], end, span

    def _bursts(self, rows: Array) -> Array:
        """How long each wakee ran after its wakeup, to its switch-out or the window's end."""
        w = self._w
        key, end, span = self._runs
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

    @cached_property
    def _idle_recorded(self) -> tuple[int, tuple[float, float] | None]:
        gaps = self._t.raw["gaps"]
        start = np.where(gaps["start"] != NULL, gaps["start"], self._t.first_ts)
        end = np.where(gaps["end"] != NULL, gaps["end"], self._t.last_ts)
        long = np.maximum(end - start, 0)
        interval = None
        if self._boot.usable:
            interval = self._boot.interval(self._boot.sums(start, long))
        return int(long.sum()), interval

    def _idle_total(self, rows: Array, idle: Array) -> Figure:
        total, interval = self._idle_recorded
        delta = (0.0, 0.0) if self._boot.usable else None
        return Figure(total, total + int(idle.sum()), interval, delta)

    @cached_property
    def _decided_blocks(self) -> Array:
        """Block of the bootstrap of each decision."""
        return self._boot.block_of(self._at[self._rows])

    def _share_on_waker(self, cpu: Array) -> Figure:
        this = self._w["this_cpu"][self._rows]
        old, new = self._replay.recorded_cpu == this, cpu == this
        if not len(this):
            return Figure(None, None)
        interval = delta = None
        if self._boot.usable:
            draws = [
                self._boot.total(np.bincount(self._decided_blocks[of], minlength=self._boot.blocks))
                for of in (slice(None), old, new)
            ]
            n = np.maximum(draws[0], 1)
            interval = self._boot.interval(draws[2] / n)
            delta = self._boot.interval((draws[2] - draws[1]) / n)
        return Figure(float(old.mean()), float(new.mean()), interval, delta)

    @cached_property
    def _booked(self) -> list[tuple[Array, Array, Array]]:
        """Per CPU: when its bookings were begun, when they could be seen, and which they are."""
        w = self._w
        placed = np.where(w["placed"] >= 0, w["placed"], w["ran"])
        decided = (w["kind"] == schema.WakeKind.DECIDED) & (placed >= 0)
        rows = np.flatnonzero(decided & (w["waking"] != NULL) & (w["vis_hi"] != NULL))
        rows = rows[np.argsort(placed[rows], kind="stable")]
        cuts = np.searchsorted(placed[rows], np.arange(self._replay.n_cpus + 1))
        each = [rows[a:b] for a, b in itertools.pairwise(cuts)]
        return [(np.sort(w["waking"][r]), np.sort(w["vis_hi"][r]), r) for r in each]

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
        booked = self._booked
        created = 0
        idle = np.flatnonzero(ahead <= 0)
        for c in np.unique(cpu[idle]):
            mine = rows[idle[cpu[idle] == c]]
            lo, hi, there = booked[c]
            left = there[gone[there]]
            begins, ends = w["waking"], w["vis_hi"]
            begun = np.searchsorted(lo, ends[mine], side="left")
            begun -= np.searchsorted(np.sort(begins[left]), ends[mine], side="left")
            over = np.searchsorted(hi, begins[mine], side="right")
            over -= np.searchsorted(np.sort(ends[left]), begins[mine], side="right")
            created += int((begun > over).sum())
        return relieved, created


def _as_figures(changes: dict[str, Change]) -> dict[str, Figure]:
    if not changes:
        return {name: Figure(None, None) for name in ("p50", "p90", "p99", "sum")}
    return {
        name: Figure(c.recorded, c.estimated, c.interval, c.delta_interval)
        for name, c in changes.items()
    }


def _longer(recorded: Array, estimated: Array) -> Array:
    """By how much each wakeup would have waited longer that would have done so, ns."""
    known = (recorded != NULL) & (estimated != NULL) & (estimated > recorded)
    more: Array = estimated[known] - recorded[known]
    return more


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


def overrides(params: Mapping[str, Any], rules: Sequence[str]) -> dict[str, dict[str, int]]:
    """``{"rule.parameter": value}`` by rule; values are whole numbers, or times as in "50us"."""
    out: dict[str, dict[str, int]] = {}
    for key, value in params.items():
        # A combination's name holds its parts' names, and its parameters do so, too.
        rule = max((r for r in rules if key.startswith(f"{r}.")), key=len, default="")
        name = key.removeprefix(f"{rule}.")
        if not rule or not name:
            raise UsageError(
                f"--param {key}: write RULE.PARAMETER=VALUE, with one of {', '.join(rules)}"
            )
        try:
            out.setdefault(rule, {})[name] = amount(str(value))
        except ValueError as error:
            raise UsageError(f"--param {key}={value}: {error}") from None
    return out


class _CallableModule(types.ModuleType):
    """``traceana.whatif`` is this module once it was imported, and has to be the function too."""

    def __call__(self, *args: Any, **kwargs: Any) -> WhatIf:
        return whatif(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
