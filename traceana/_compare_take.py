"""One capture on its way into a comparison: its facts, its figures, its distributions.

Everything that is kept is small, so that many captures can be taken one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana._compare_draws import Estimate, quantile_estimate, ratio_estimate
from traceana._compare_measure import LATENCIES, Measured, Sample, Sums, measure
from traceana._compare_metrics import METRICS, QUANTILES
from traceana._compare_race import look
from traceana._compare_throughput import MARKER, marks
from traceana.errors import UnsupportedError

if TYPE_CHECKING:
    from traceana.capture import Capture

__all__ = ["EDGES", "Taken", "log_counts", "take"]

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

#: Edges of the bins in which distributions are kept, ns: 40 a decade from 10 ns to 1000 s; what is
#: below the first (0 among it) lies in the first bin, what is above the last in the last.
EDGES: F64 = 10 ** (1 + np.arange(40 * 10 + 1) / 40)


@dataclass(frozen=True)
class Taken:
    """A capture, taken.

    ``figures`` by (scope, metric); ``counts`` by (scope, latency): int64, wakeups per bin of EDGES.
    """

    facts: Mapping[str, Any]
    figures: Mapping[tuple[str, str], Estimate]
    counts: Mapping[tuple[str, str], I64]
    same_groups: bool
    weight: Mapping[str, float] = field(default_factory=dict)


def take(
    cap: Capture, *, seed: int = 1, throughput: float | str | None = None, bins: int | None = None
) -> Taken:
    """Measure a capture for a comparison.

    Parameters
    ----------
    cap : Capture
    seed : of the draws; the captures of one comparison need different ones
    throughput : what the workload itself counted, per second, or 'marker:NAME', a counter that it
        wrote to trace_marker
    bins : as in ``_compare_measure.measure``

    Raises
    ------
    MissingEventsError
        The capture holds no sched_switch.
    UnsupportedError
        Its clock is no time.
    """
    if not cap.has_time:
        raise UnsupportedError(
            cap.path,
            f"clock {cap.meta.clock!r} is no time: compare has no durations to show",
            hint="record with trace_clock local, global or mono; `info` works",
        )
    measured = measure(cap, bins=bins)
    race = look(cap, measured.begin_ts, measured.bins)
    measured.sums |= {("all", name): sums for name, sums in race.sums.items()}
    if isinstance(throughput, str):
        _count_marks(cap, measured, throughput.removeprefix(MARKER))
        throughput = None
    taken = estimated(measured, _facts(cap, measured, throughput), seed, throughput)
    figures = {**taken.figures, **{("all", name): e for name, e in race.shares.items()}}
    return replace(taken, figures=figures)


def estimated(
    measured: Measured, facts: Mapping[str, Any], seed: int, throughput: float | None = None
) -> Taken:
    """The figures of what was measured."""
    figures: dict[tuple[str, str], Estimate] = {}
    for key, s in measured.sums.items():
        share = key[1] in ("waker_cpu_share", "double_booking_share")
        rare = share or METRICS[key[1]].unit == "per_s"
        figures[key] = ratio_estimate(
            s.num, s.den, n=s.n, seed=seed, exact=s.exact, counts=rare, share=share
        )
    for (scope, name), sample in measured.samples.items():
        for short, q in QUANTILES.items():
            figures[scope, f"{name}_{short}"] = quantile_estimate(
                sample.ordered, sample.bins, q, measured.bins, seed
            )
    for (scope, name), longest in measured.longest.items():
        n = len(measured.samples[scope, name].ordered) * measured.thinned
        figures[scope, f"{name}_max"] = Estimate(float(longest), n)
    if throughput is not None:
        figures["all", "throughput_per_s"] = Estimate(throughput, 1)
    counts = {key: log_counts(sample) for key, sample in measured.samples.items()}
    return Taken(facts, figures, counts, measured.same_groups, measured.weight)


def log_counts(sample: Sample) -> I64:
    """Wakeups per bin of EDGES, int64[len(EDGES) - 1]."""
    at = np.searchsorted(EDGES, sample.ordered, side="right") - 1
    return np.bincount(np.clip(at, 0, len(EDGES) - 2), minlength=len(EDGES) - 1)


def _count_marks(cap: Capture, measured: Measured, name: str) -> None:
    """What a counter in trace_marker grew by, between its first and its last mark."""
    ts, grown = marks(cap, name)
    first, last = int(ts[0]), int(ts[-1])
    k = measured.bins
    width = max(last - first, 1) / k
    at = np.clip(((ts - first) / width).astype(np.int64), 0, k - 1)
    num = np.bincount(at, grown, minlength=k).astype(np.float64)
    measured.sums["all", "throughput_per_s"] = Sums(num, np.full(k, width / 1e9), int(grown.sum()))


def _facts(cap: Capture, measured: Measured, throughput: float | None) -> dict[str, Any]:
    from traceana import topology as topo

    timeline = cap.timeline(spill=True)
    m = topo.as_arrays(cap.topology, timeline.cpus.num_rows)
    online = cap.topology.filter(cap.topology.column("online")).column("cpu").to_numpy()
    inside = online[online < m.n_cpus]
    origin = sorted(set(cap.topology.column("origin").to_pylist()))
    lost = cap.lost
    recorded = sorted(n for n, c in cap.counts.items() if c and n not in cap.ignored)
    return {
        "file": cap.path.name,
        # Without how it is packed, which changes nothing of what is in it.
        "form": cap.meta.form.partition(",")[0],
        "kernel": cap.kernel,
        "machine": cap.meta.machine,
        "clock": cap.meta.clock,
        "clock_step_ns": {"us": 1000, "ns": 1}.get(cap.meta.clock_unit, 1),
        "cpus": len(online),
        "cores": len(np.unique(m.core[inside])),
        "llcs": len(np.unique(m.llc[inside])),
        "nodes": len(np.unique(m.node[inside])),
        "topology": "+".join(origin),
        "silent_cpus": measured.silent_cpus,
        "idle_share_lo": measured.idle_bounds[0],
        "idle_share_hi": measured.idle_bounds[1],
        "span_ns": cap.span_ns,
        "window_ns": measured.window_ns,
        "events": sum(cap.counts.values()),
        "event_kinds": recorded,
        "event_cost_ns": cap.event_cost_ns,
        "lost_events": lost.events,
        "loss_marks": lost.marks,
        "damaged": cap.damaged,
        "ignored": list(cap.ignored),
        "throughput_per_s": throughput if throughput is not None else _rate_of(measured),
        "percentiles_of_every": measured.thinned,
        "workloads": sorted(
            s.partition(":")[2] for s in measured.weight if s.startswith("workload:")
        ),
    }


def _rate_of(measured: Measured) -> float | None:
    counted = measured.sums.get(("all", "throughput_per_s"))
    return None if counted is None else float(counted.num.sum() / counted.den.sum())


def wakeups_of(taken: Taken, scope: str) -> int:
    """How many wakeups a scope has, for order."""
    found = taken.figures.get((scope, "wakeups_per_s"))
    return found.n if found else 0


def cliff(a: I64, b: I64) -> float | None:
    """Cliff's delta of two binned distributions: P(B > A) - P(B < A), by the bins of EDGES.

    >>> import numpy as np
    >>> cliff(np.array([1, 1, 0]), np.array([0, 1, 1]))
    0.75
    """
    if not a.sum() or not b.sum():
        return None
    below = np.concatenate([[0], np.cumsum(a)[:-1]])
    above = a.sum() - below - a
    return float((b * (below - above)).sum() / (a.sum() * b.sum()))


__all__ += ["LATENCIES", "METRICS", "cliff", "estimated", "wakeups_of"]
