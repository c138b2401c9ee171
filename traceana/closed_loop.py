"""The closed loop: a captured workload runs on a model of its machine, under one rule or another.

First under the rule that was recorded: how far that run is from the recording is the model's own
error, and no difference smaller than it is worth anything. Then under the others, each with several
seeds. The figures of recordings and of runs are made by the same timeline
(``_closed_loop_figures``).

    from traceana.closed_loop import estimate
    estimate(cap, ["sis_short_v5"], seeds=8).to_json()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from traceana import _closed_loop_words as words
from traceana._closed_loop_figures import UNKNOWN, Figures, Several, measure
from traceana._closed_loop_runs import Jobs, Progress, bursts_per_s, run_once
from traceana._closed_loop_settled import (
    ENSEMBLE,
    State,
    judge,
    side_by_side,
)
from traceana._sim_model import constant_costs
from traceana._sim_state import COSTS, QUANTILES
from traceana.errors import InputError, UsageError
from traceana.simulate import Model

if TYPE_CHECKING:
    from traceana.calibrate import Calibration
    from traceana.capture import Capture
    from traceana.workload import Workload

__all__ = [
    "Estimate",
    "Prepared",
    "Variant",
    "estimate",
    "load",
    "model_of",
    "prepare",
    "run_once",
    "simulated_capture",
]

#: More simulated time than this is not asked for: a longer capture is cut.
LONGEST_NS = 2_000_000_000
#: Of a workload that has no length of its own.
SPAN_NS = 50_000_000
#: What the recorded machine had behind it when it was recorded is not known; so much a rule gets.
WARM_UP_NS = 300_000_000


@dataclass(frozen=True)
class Prepared:
    """What is simulated: scripts, the machine, and what the recording was (None: there is none)."""

    work: Workload
    calibration: Calibration
    recorded: Figures | None

    def save(self, path: str | Path) -> None:
        """Write a folder that :func:`load` reads.

        Raises
        ------
        UsageError
            The folder is there and is no workload.
        InputError
            It cannot be written.
        """
        from traceana._closed_loop_store import save

        save(Path(path), self.work, self.calibration, self.recorded or UNKNOWN)


def prepare(cap: Capture, *, on_progress: Progress | None = None) -> Prepared:
    """Extract a capture's workload and measure its machine.

    Where messages leave no event, the model runs some times to tell how many there are; of that
    `on_progress` is told (what is done, of what at most).

    Raises
    ------
    MissingEventsError
        The capture lacks sched_switch or sched_waking.
    InputError
        Nothing in it runs and sleeps.
    """
    from traceana._closed_loop_fit import fit, said
    from traceana.calibrate import calibrate
    from traceana.workload import extract

    work = extract(cap)
    if work.span_ns <= 0 or not len(work.tasks):
        raise InputError(cap.path, "no task of this capture runs and sleeps; nothing to simulate")
    machine, recorded = calibrate(cap, work), measure(cap, progress=1.0)
    if work.traffic:
        work = fit(cap, work, machine, recorded.queue_delay_ns.get("p99"), on_progress)
        machine = replace(machine, notes=[*machine.notes, said(work)])
    return Prepared(work, machine, recorded)


def load(path: str | Path) -> Prepared:
    """Read what :meth:`Prepared.save` wrote, or a workload alone (default costs).

    Raises
    ------
    InputError
        It cannot be read, or is damaged; says what is wrong.
    """
    from traceana._closed_loop_store import load

    work, calibration, recorded = load(Path(path))
    if not len(work.tasks):
        raise InputError(path, "a workload without tasks; nothing to simulate")
    return Prepared(work, calibration, recorded)


@dataclass(frozen=True)
class Variant:
    """What is asked: a rule, and fields of the model that differ from the recording's."""

    rule: str | None  # None: the recorded one
    changes: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""


@dataclass(frozen=True)
class Outcome:
    """One variant's runs: from the recorded state, and from random starts."""

    variant: Variant
    rule: str
    runs: Several
    ensemble: Several | None = None
    #: Whether its runs lie behind a warm-up.
    warm: bool = False


@dataclass(frozen=True)
class Estimate:
    """All that was simulated of one capture."""

    recorded: Figures
    baseline: Outcome
    outcomes: Sequence[Outcome]
    state: State
    explained: float
    seeds: int
    costs: Sequence[Mapping[str, Any]]
    #: The baseline once more, behind the warm-up that the rules get; None where they get none.
    drifted: Several | None = None
    #: The machine or the number of tasks is another than the recorded one: the baseline is not
    #: comparable with the recording.
    altered: str | None = None
    #: What had to be assumed of the machine.
    assumed: Sequence[str] = ()
    #: Share of the CPUs' time in which partners ran side by side, without the sleeps that rounds on
    #: one CPU would have (``_closed_loop_settled.side_by_side``).
    unseen: float = 0.0

    def error(self, name: str) -> float | None:
        """The baseline's distance from the recording; shares as differences, others relative."""
        return words.distance(self.recorded.get(name), self.baseline.runs.mean(name), name)

    def calibration_error(self) -> dict[str, Any]:
        """Each figure's distance (see :meth:`error`), and that of the tasks' CPU time."""
        out: dict[str, Any] = {}
        for name in words.ALL:
            group, dot, part = name.partition(".")
            if dot:
                out.setdefault(group, {})[part] = self.error(name)
            else:
                out[name] = self.error(name)
        out["cpu_share_per_task"] = self._task_error()
        return out

    def _task_error(self) -> dict[str, float] | None:
        """Mean and largest difference of a task's share of a CPU's time."""
        runs = self.baseline.runs.runs
        if not runs or not self.recorded.cpu_share:
            return None
        apart = [
            sum(run.cpu_share.get(pid, 0.0) for run in runs) / len(runs) - share
            for pid, share in self.recorded.cpu_share.items()
        ]
        sizes = np.abs(apart)
        return {"mean": float(sizes.mean()), "max": float(sizes.max())}

    def delta(self, outcome: Outcome, name: str) -> dict[str, float | None]:
        """What a variant changes against :meth:`before`, with the spread of the difference."""
        base, other = self.before(outcome), outcome.runs
        a, b = base.mean(name), other.mean(name)
        if a is None or b is None:
            return {"mean": None, "spread": None, "relative": None}
        spreads = (base.spread(name), other.spread(name))
        spread = None
        if spreads[0] is not None and spreads[1] is not None:
            spread = (spreads[0] ** 2 + spreads[1] ** 2) ** 0.5
        return {"mean": b - a, "spread": spread, "relative": (b - a) / a if a else None}

    def before(self, outcome: Outcome) -> Several:
        """Runs under the recorded rule that a variant's differ from by what was asked alone.

        Behind the same warm-up, if there was one: what the model's own rule does in it (its drift)
        is none of the variant's doing.
        """
        if outcome.warm and self.drifted is not None:
            return self.drifted
        return self.baseline.runs

    @property
    def behind_warm_up(self) -> Several | None:
        """The recorded rule behind the warm-up that the variants had; None: they had none."""
        return self.drifted if any(o.warm for o in self.outcomes) else None

    def drift(self, name: str) -> float | None:
        """How far the model's own rule leads away from the baseline during the warm-up."""
        if self.drifted is None:
            return None
        return words.distance(self.baseline.runs.mean(name), self.drifted.mean(name), name)

    def usable(self, outcome: Outcome) -> bool:
        """Whether a difference of idle or wakeups exceeds the model's own error and the spread."""
        return self.altered is None and words.tells(self, outcome)

    @property
    def sentence(self) -> str:
        """The result in words."""
        return words.whole(self)

    def to_json(self) -> dict[str, Any]:
        """As it stands in JSON, without schema_version."""
        rules = []
        for outcome in self.outcomes:
            deltas: dict[str, Any] = {}
            for name in words.ALL:
                group, dot, part = name.partition(".")
                if dot:
                    deltas.setdefault(group, {})[part] = self.delta(outcome, name)
                else:
                    deltas[name] = self.delta(outcome, name)
            rules.append(
                {
                    "rule": outcome.rule,
                    "label": outcome.variant.label or outcome.rule,
                    "changes": {k: v for k, v in outcome.variant.changes.items() if k != "costs"},
                    **outcome.runs.to_json(),
                    "delta": deltas,
                    "usable": self.usable(outcome),
                    "sentence": words.one(self, outcome),
                    "ensemble": words.ensemble(self, outcome),
                }
            )
        return {
            "method": "closed_loop",
            "seeds": self.seeds,
            "explained": self.explained,
            "altered": self.altered,
            "assumed": list(self.assumed),
            "recorded": self.recorded.to_json(),
            "baseline": {
                "rule": self.baseline.rule,
                **self.baseline.runs.to_json(),
                "ensemble": words.ensemble(self, self.baseline),
            },
            "calibration_error": self.calibration_error(),
            "side_by_side": self.unseen,
            "drift": {name: self.drift(name) for name in words.HEADLINES},
            **self.state.to_json(),
            "usable": any(r["usable"] for r in rules),
            "sentence": self.sentence,
            "rules": rules,
            "costs": list(self.costs),
        }


def model_of(calibration: Calibration, **changes: Any) -> Model:
    """Model the machine that was measured; `changes` are fields of :class:`Model`."""
    return calibration.model(**changes)


def simulated_capture(
    source: Capture | Prepared,
    variant: Variant,
    *,
    first_seed: int = 1,
    warm_up_ns: int = WARM_UP_NS,
    window: int = 1,
    instances: int = 1,
    topology: Any = None,
    smt_slowdown: float = 1.0,
    costs: Mapping[str, int] | None = None,
    recorded_rule: str = "mainline",
    **_: Any,
) -> Capture:
    """One simulated run as a capture; arguments as of :func:`estimate`."""
    made = source if isinstance(source, Prepared) else prepare(source)
    work, calibration = made.work, made.calibration
    if costs:
        calibration = calibration.with_costs(**costs)
    span = min(work.span_ns or SPAN_NS, LONGEST_NS)
    work, model, _altered = _altered_by(
        work, calibration, instances, topology, rule=recorded_rule, smt_slowdown=smt_slowdown
    )
    if window == 0:
        variant = replace(variant, changes={**variant.changes, "window": 0})
    return run_once(
        work,
        _model(model, variant),
        seed=first_seed,
        begin_ns=work.begin_ns,
        span_ns=span,
        warm_up_ns=warm_up_ns,
    )[2]


def _altered_by(
    work: Workload, calibration: Calibration, instances: int, topology: Any, **model: Any
) -> tuple[Workload, Model, str | None]:
    """Return another number of tasks or another machine: workload, model, and what was altered."""
    made = model_of(calibration, **model)
    altered = []
    if instances != 1:
        work = work.scaled(instances)
        altered.append(f"{instances} times the tasks")
    if topology is not None:
        work = work.on(topology)
        made = made.with_(nr_idle_scan=None, idle_core_hint=None, cpu_util=None, tick_phase_ns=None)
        altered.append(f"a machine of {topology.num_rows} CPUs")
    return work, made, " and ".join(altered) or None


def estimate(
    source: Capture | Prepared,
    variants: Sequence[Variant | str],
    *,
    seeds: int = 8,
    first_seed: int = 1,
    warm_up_ns: int = WARM_UP_NS,
    window: int = 1,
    instances: int = 1,
    topology: Any = None,
    smt_slowdown: float = 1.0,
    costs: Mapping[str, int] | None = None,
    recorded_rule: str = "mainline",
    ensemble: bool | None = None,
    on_progress: Progress | None = None,
) -> Estimate:
    """Run a workload under its own rule and under others.

    Parameters
    ----------
    source : a capture, or what was made of one
    variants : rules, or rules with other fields of the model
    seeds : runs of each
    warm_up_ns : simulated before what is measured: a rule changes the state that it finds, and
        nr_idle_scan follows the load by some 100 ms
    window : 0 takes the race window away from the variants (never from the baseline)
    instances, topology : more copies of the tasks, another machine; the baseline, too
    costs : costs of the model set by hand, ns
    recorded_rule : the rule that the recorded kernel had
    ensemble : random starts for all; None: where the recording is settled

    Raises
    ------
    MissingEventsError
        The capture lacks sched_switch or sched_waking.
    UsageError
        Something that cannot be served.
    """
    if not 1 <= seeds <= 1000:
        raise UsageError(f"--seeds {seeds}: 1 to 1000")
    made = source if isinstance(source, Prepared) else prepare(source)
    calibration = made.calibration
    if costs:
        calibration = calibration.with_costs(**costs)
    recorded = made.recorded or UNKNOWN
    bursts = bursts_per_s(made.work)
    span = min(made.work.span_ns or SPAN_NS, LONGEST_NS)
    work, model, altered = _altered_by(
        made.work, calibration, instances, topology, rule=recorded_rule, smt_slowdown=smt_slowdown
    )
    if made.recorded is None:
        altered = altered or "a workload of which no recording is known"
    asked = [Variant(v) if isinstance(v, str) else v for v in variants]
    if window == 0:
        asked = [replace(v, changes={**v.changes, "window": 0}) for v in asked]
    jobs = Jobs(work, span, warm_up_ns, bursts)
    settled = judge(recorded, None).settled and not altered
    scatter = settled if ensemble is None else ensemble
    few = range(first_seed, first_seed + seeds)
    many = range(first_seed, first_seed + max(seeds, ENSEMBLE))
    # The recorded state is that of the recorded rule; another needs time to make its own. Where
    # nothing moves any more, what is asked for is what happens from there.
    warm = warm_up_ns > 0 and not settled
    later: list[bool] = []
    for variant in [Variant(None), *asked]:
        other = variant.rule != recorded_rule and bool(variant.rule or variant.changes)
        later.append(bool((warm and other) or altered))
        jobs.add(_model(model, variant), few, warm=later[-1])
        if scatter:
            jobs.add(_model(model, variant), many, warm=True, scatter=True)
    if warm and not altered:
        jobs.add(model, few, warm=True)
    results = iter(jobs.run(on_progress))
    outcomes = []
    for variant, is_warm in zip([Variant(None), *asked], later, strict=True):
        runs = next(results)
        starts = next(results) if scatter else None
        outcomes.append(Outcome(variant, variant.rule or recorded_rule, runs, starts, warm=is_warm))
    return Estimate(
        recorded=recorded,
        baseline=outcomes[0],
        outcomes=outcomes[1:],
        state=judge(recorded, outcomes[0].ensemble),
        explained=work.explained,
        seeds=seeds,
        costs=calibration.table(),
        drifted=next(results, None),
        altered=altered,
        unseen=side_by_side(work, recorded, _overlap_ns(model)) if settled else 0.0,
        assumed=calibration.notes,
    )


def _overlap_ns(model: Model) -> int:
    """How long a waker runs on behind its wakeup when it goes to sleep, at most (median costs)."""
    middle = (QUANTILES - 1) // 2
    costs = constant_costs() if model.costs is None else model.costs
    ns = {name: int(row[middle]) for name, row in zip(COSTS, costs, strict=True)}
    return max(ns["wake_remote"] + ns["wake_migrate"], ns["wake_direct"]) + ns["switch_out"]


def _model(model: Model, variant: Variant) -> Model:
    changes = dict(variant.changes)
    if variant.rule is not None:
        changes["rule"] = variant.rule
    return model.with_(**changes)
