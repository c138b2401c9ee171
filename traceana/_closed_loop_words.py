"""The closed loop in words: what is said of an estimate, and when it is not worth saying.

Idle shares are compared in points, everything else relative. Rates of wakeups are activity, not
throughput; the two latencies keep their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceana._closed_loop_figures import LATENCIES, PERCENTILES, SCALARS

if TYPE_CHECKING:
    from traceana._closed_loop_figures import Several
    from traceana.closed_loop import Estimate, Outcome

__all__ = [
    "ALL",
    "HEADLINES",
    "SHARES",
    "accuracy",
    "distance",
    "ensemble",
    "notes",
    "one",
    "paragraphs",
    "reach",
    "tells",
    "whole",
]

#: All figures, percentiles with their group.
ALL = (*SCALARS, *(f"{group}.{p}" for group in LATENCIES for p in PERCENTILES))
#: Those that are compared as differences.
SHARES = ("idle_share", "waker_cpu_share")
#: What decides whether an estimate is of use.
HEADLINES = ("idle_share", "wakeups_per_s")
#: A model whose baseline is further off is not believed at all: idle share, relative wakeups.
TOO_FAR = {"idle_share": 0.10, "wakeups_per_s": 0.20}
#: So much of the wakeups must be explained by the scripts.
LEAST_EXPLAINED = 0.9


def distance(recorded: float | None, simulated: float | None, name: str) -> float | None:
    """How far a simulated figure is from the recorded one; None where either is unknown."""
    if recorded is None or simulated is None:
        return None
    if name in SHARES:
        return simulated - recorded
    return (simulated - recorded) / recorded if recorded else None


def _change(estimate: Estimate, outcome: Outcome, name: str) -> tuple[float, float] | None:
    """(change, its spread) in the measure of :func:`distance`."""
    delta = estimate.delta(outcome, name)
    change = delta["mean"] if name in SHARES else delta["relative"]
    if change is None:
        return None
    spread = delta["spread"] or 0.0
    base = estimate.before(outcome).mean(name) or 1.0
    return change, spread if name in SHARES else spread / abs(base)


def believed(estimate: Estimate) -> bool:
    """Whether the baseline is near enough to the recording to be asked anything."""
    if estimate.altered is not None:
        return False
    if estimate.explained < LEAST_EXPLAINED:
        return False
    errors = {name: estimate.error(name) for name in HEADLINES}
    if _runaway(estimate):
        return False
    return all(e is not None and abs(e) <= TOO_FAR[name] for name, e in errors.items())


def _runaway(estimate: Estimate) -> bool:
    """Whether the model goes far away by itself: no state that it comes to is the recorded one."""
    drifts = {name: estimate.drift(name) for name in HEADLINES}
    return any(d is not None and abs(d) > TOO_FAR[name] for name, d in drifts.items())


def tells(estimate: Estimate, outcome: Outcome) -> bool:
    """Whether a headline changes by more than the model's own error, its drift and its spread."""
    if not believed(estimate):
        return False
    for name in HEADLINES:
        change, error = _change(estimate, outcome, name), estimate.error(name)
        if change is None or error is None:
            continue
        # What the warm-up alone does under the recorded rule is no effect of another.
        least = max(abs(error), abs(estimate.drift(name) or 0.0), 2 * change[1])
        if abs(change[0]) > least:
            return True
    return False


def _share(runs: Several, name: str) -> str:
    mean, spread = runs.mean(name), runs.spread(name)
    if mean is None:
        return "unknown"
    return f"{100 * mean:.1f}" + (f" ± {100 * spread:.1f}" if spread is not None else "") + " %"


def _verb(change: float | None, size: float) -> str:
    if change is None or abs(change) < size:
        return "stays at about"
    return "rises from" if change > 0 else "falls from"


def _us(value: float | None) -> str:
    return "unknown" if value is None else f"{value / 1000:.1f} µs"


def one(estimate: Estimate, outcome: Outcome) -> str:
    """What one variant does, in a sentence or two."""
    label = outcome.variant.label or outcome.rule
    base, runs = estimate.before(outcome), outcome.runs
    idle, rate = (
        _change(estimate, outcome, "idle_share"),
        _change(estimate, outcome, "wakeups_per_s"),
    )
    parts = []
    if idle is not None:
        verb = _verb(idle[0], max(2 * idle[1], 0.001))
        parts.append(
            f"{label}: simulated idle {verb} {_share(base, 'idle_share')}"
            + ("" if verb.startswith("stays") else f" to {_share(runs, 'idle_share')}")
        )
    if rate is not None:
        parts.append(f"activity {100 * rate[0]:+.1f} % wakeups/s")
    progress = estimate.delta(outcome, "progress")["relative"]
    if progress is not None:
        parts.append(f"bursts done {100 * progress:+.1f} %")
    before, after = base.mean("queue_delay_ns.p99"), runs.mean("queue_delay_ns.p99")
    parts.append(f"p99 of the queue delay {_us(before)} to {_us(after)}")
    error = estimate.error("idle_share")
    text = "; ".join(parts)
    if estimate.altered is not None:
        return f"{text} (on {estimate.altered}: nothing recorded to hold it against)."
    if error is not None:
        text += f"; the model's own error on the recording is {100 * abs(error):.1f} points"
        said = _drifts(estimate)
        if said:
            text += f", and it drifts by {said} under the recorded rule alone"
    text += "."
    if not believed(estimate):
        return text + " Not usable: " + _why_not(estimate) + "."
    if estimate.state.settled:
        return text + " " + _settled(estimate, outcome)
    if not tells(estimate, outcome):
        return text + (
            " This does not exceed the model's own error and the spread over seeds: not usable as "
            "a statement of a change, and no larger one is expected."
        )
    return text


def _drifts(estimate: Estimate) -> str:
    """What the warm-up alone changes by more than the model's error."""
    said = []
    for name, unit in (("idle_share", "points of idle"), ("wakeups_per_s", "% of the wakeups")):
        drift, error = estimate.drift(name), estimate.error(name)
        if drift is not None and error is not None and abs(drift) > abs(error):
            said.append(f"{100 * drift:+.1f} {unit}")
    return " and ".join(said)


def _why_not(estimate: Estimate) -> str:
    if estimate.explained < LEAST_EXPLAINED:
        return f"only {100 * estimate.explained:.1f} % of the recorded wakeups are explained"
    idle, rate = estimate.error("idle_share"), estimate.error("wakeups_per_s")
    if idle is None or rate is None:
        return "the recording does not tell what the model could be held against"
    if abs(idle) <= TOO_FAR["idle_share"] and abs(rate) <= TOO_FAR["wakeups_per_s"]:
        return "it does not stay near the recorded state under the recorded rule"
    return (
        f"under the recorded rule the model is {100 * idle:+.1f} points of idle and "
        f"{100 * rate:+.1f} % of the wakeups off"
    )


def _settled(estimate: Estimate, outcome: Outcome) -> str:
    text = (
        "The recording is settled (tasks hardly move): from its own state no change is the "
        "estimate; what the rule does depends on where the tasks stood before, which one capture "
        "does not hold."
    )
    runs = outcome.ensemble
    if runs is None:
        return text
    idle, rate = runs.range("idle_share"), runs.range("wakeups_per_s")
    if idle is not None and rate is not None:
        off = [model_error(estimate, name) for name in HEADLINES]
        text += (
            f" From {len(runs.runs)} random starts: idle "
            f"{100 * idle[0]:.1f} to {100 * idle[1]:.1f} % (± {100 * off[0]:.1f} points of the "
            f"model's own error), {rate[0] / 1000:.0f} to {rate[1] / 1000:.0f} k wakeups/s "
            f"(± {100 * off[1]:.1f} %)."
        )
    together = _together(estimate)
    if together is not None:
        text += (
            f" For {100 * estimate.unseen:.1f} % of the CPUs' time partners ran side by side and "
            "served each other without a sleep. Such rounds leave no event, so the model does not "
            "know them; where a rule puts partners on one CPU they would sleep, and idle come to "
            f"{100 * together:.1f} %."
        )
    return text


def model_error(estimate: Estimate, name: str) -> float:
    """Size of the model's own error on the recording, in the measure of :func:`distance`."""
    return abs(estimate.error(name) or 0.0)


def _together(estimate: Estimate) -> float | None:
    """Idle share if partners that ran side by side shared a CPU; None where none did."""
    idle = estimate.recorded.get("idle_share")
    return None if idle is None or estimate.unseen <= 0 else idle + estimate.unseen


def ensemble(estimate: Estimate, outcome: Outcome) -> dict[str, Any] | None:
    """Range and mean over random starts, as JSON; None where there were none.

    ``reach`` is the range of a headline with what the model cannot tell: its own error, and rounds
    without a sleep.
    """
    runs = outcome.ensemble
    if runs is None:
        return None
    out: dict[str, Any] = {"starts": len(runs.runs)}
    for name in ALL:
        group, dot, part = name.partition(".")
        both = runs.range(name)
        low, high = both if both is not None else (None, None)
        value = {"mean": runs.mean(name), "low": low, "high": high}
        if dot:
            out.setdefault(group, {})[part] = value
        else:
            out[name] = value
    out["model_error"] = {name: model_error(estimate, name) for name in HEADLINES}
    out["reach"] = {name: reach(estimate, outcome, name) for name in HEADLINES}
    return out


def reach(estimate: Estimate, outcome: Outcome, name: str) -> list[float] | None:
    """Lowest and highest value of a headline that the random starts do not rule out."""
    runs = outcome.ensemble
    both = runs.range(name) if runs is not None else None
    if both is None:
        return None
    low, high = both
    off = model_error(estimate, name)
    if name not in SHARES:
        return [low * (1 - off), high * (1 + off)]
    together = _together(estimate)
    if name == "idle_share" and together is not None:
        low, high = min(low, together), max(high, together)
    return [max(low - off, 0.0), min(high + off, 1.0)]


def accuracy(estimate: Estimate, label: str = "Estimated, closed loop") -> str:
    """How far the model is from the recording, in words."""
    seeds = f"{estimate.seeds} seed" + ("" if estimate.seeds == 1 else "s")
    if estimate.altered is not None:
        return f"{label} ({seeds}), on {estimate.altered}."
    idle, rate = estimate.error("idle_share"), estimate.error("wakeups_per_s")
    told = [] if idle is None else [f"idle {100 * idle:+.1f} points"]
    told += [] if rate is None else [f"wakeups/s {100 * rate:+.1f} %"]
    return (
        f"{label} ({seeds}): under the recorded rule "
        f"({estimate.baseline.rule}) the model is off by {', '.join(told) or 'unknown'}; "
        f"{100 * estimate.explained:.1f} % of the wakeups are explained."
    )


def paragraphs(estimate: Estimate) -> list[str]:
    """The whole result in words."""
    return [accuracy(estimate), *(one(estimate, outcome) for outcome in estimate.outcomes)]


def whole(estimate: Estimate) -> str:
    """The same as one text."""
    return " ".join(paragraphs(estimate))


def notes(estimate: Estimate) -> list[str]:
    """What stands under a table of the result."""
    out = [
        "idle: time with the idle task current; wakeups and edges (wakeups by tasks) are activity, "
        "not throughput; progress: bursts done per second, of the recording's; ± standard "
        "deviation over seeds"
    ]
    if estimate.state.metastable:
        out.append("from random starts the same workload ends in several states (metastable)")
    out += estimate.assumed
    return out
