"""The race_free null model of ``race``: what is found in the same workload where nothing can race.

The captured workload runs on the model of its machine with its own window and without one (a
booking is seen the moment it is decided). Double bookings that are found without a window are what
detection takes for them by mistake; the difference of idle time is what the race costs, the rule
being the same. Estimated, closed loop: no better than the model's own error says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from traceana._closed_loop_figures import Several
from traceana.closed_loop import LONGEST_NS, prepare, run_once
from traceana.race import race

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.race import Race

__all__ = ["RaceFree", "race_free"]


@dataclass(frozen=True)
class RaceFree:
    """Runs with the window (``raced``) and without it (``free``).

    ``rates_raced``, ``rates_free``: strict double bookings found, of the wakeups that found their
    CPU idle, one per seed; ``recorded_rate``, ``recorded_idle`` of the capture itself; ``verdicts``
    of the runs without a window.
    """

    recorded_rate: float | None
    recorded_idle: float | None
    rates_raced: Sequence[float]
    rates_free: Sequence[float]
    verdicts: Sequence[str]
    raced: Several
    free: Several

    def _idle(self) -> tuple[float | None, float | None]:
        return self.raced.mean("idle_share"), self.free.mean("idle_share")

    @property
    def error(self) -> float | None:
        """The model's own error on the recording, a difference of idle shares."""
        before = self._idle()[0]
        if before is None or self.recorded_idle is None:
            return None
        return before - self.recorded_idle

    def to_json(self) -> dict[str, Any]:
        """As it stands in JSON."""
        before, after = self._idle()
        return {
            "method": "closed_loop",
            "seeds": len(self.rates_free),
            "recorded_rate": self.recorded_rate,
            "rate_with_window": list(self.rates_raced),
            "rate_race_free": list(self.rates_free),
            "verdicts_race_free": list(self.verdicts),
            "idle_share_recorded": self.recorded_idle,
            "idle_share_with_window": before,
            "idle_share_race_free": after,
            "idle_share_spread": self.free.spread("idle_share"),
            "model_error": self.error,
        }

    @property
    def sentence(self) -> str:
        """The result in words."""

        def among(rates: Sequence[float]) -> str:
            low, high = f"{100 * min(rates):.2f}", f"{100 * max(rates):.2f}"
            return f"{low} %" if low == high else f"{low} to {high} %"

        n = len(self.rates_free)
        text = (
            f"Null model race_free (estimated, closed loop, {n} seed{'' if n == 1 else 's'}): in "
            "runs of this workload in which every booking is seen at once, detection takes "
            f"{among(self.rates_free)} of the wakeups that found their CPU idle for double "
            f"bookings; with the window it finds {among(self.rates_raced)}"
        )
        if self.recorded_rate is not None:
            text += f", in the recording {100 * self.recorded_rate:.2f} %"
        before, after = self._idle()
        if before is None or after is None:
            return text + "."
        text += f". Without the race the model is idle {100 * after:.1f} % of the time, "
        text += f"{100 * before:.1f} % with it"
        if self.error is None:
            return text + "."
        text += f"; its own error on the recording is {100 * abs(self.error):.1f} points"
        if abs(after - before) <= abs(self.error):
            text += ": no statement of what the race costs"
        return text + "."


def rate(found: Race) -> float | None:
    """Strict double bookings, certain and possible, of the wakeups that found their CPU idle."""
    looked = found.counts["looked_idle"]
    return found.strict / looked if looked else None


def race_free(
    cap: Capture,
    found: Race,
    *,
    seeds: int = 4,
    first_seed: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> RaceFree:
    """Run the workload of a capture with and without the race window.

    Parameters
    ----------
    found : what ``race`` says of the capture
    seeds : runs of each

    Raises
    ------
    MissingEventsError
        The capture lacks sched_switch or sched_waking.
    InputError
        Nothing in it runs and sleeps.
    """
    made = prepare(cap)
    model = made.calibration.model()
    span = min(made.work.span_ns, LONGEST_NS)
    rates: dict[int, list[float]] = {1: [], 0: []}
    runs: dict[int, list[Any]] = {1: [], 0: []}
    verdicts = []
    for i, seed in enumerate(range(first_seed, first_seed + seeds)):
        for window in (1, 0):
            figures, _, run = run_once(
                made.work,
                model.with_(window=window),
                seed=seed,
                begin_ns=made.work.begin_ns,
                span_ns=span,
            )
            told = race(run, thresholds=found.thresholds, chance=False)
            rates[window].append(rate(told) or 0.0)
            runs[window].append(figures)
            if window == 0:
                verdicts.append(told.verdict)
            if on_progress is not None:
                on_progress(2 * i + 2 - window, 2 * seeds)
    return RaceFree(
        recorded_rate=rate(found),
        recorded_idle=None if made.recorded is None else made.recorded.idle_share,
        rates_raced=rates[1],
        rates_free=rates[0],
        verdicts=verdicts,
        raced=Several(runs[1]),
        free=Several(runs[0]),
    )
