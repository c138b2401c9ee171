"""The figures that ``compare`` sets side by side: name, words, unit.

None of them is signed better or worse. Activity (wakeups, edges, switches a second) is not
throughput: a task that stops sleeping wakes less and may do more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from traceana.schema import IdleBin

__all__ = ["IDLE_BINS", "METRICS", "QUANTILES", "Metric", "Unit", "metric_of"]

Unit = Literal["share", "per_s", "ns", "number"]

#: Percentiles of the latencies.
QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


@dataclass(frozen=True)
class Metric:
    """One figure. ``activity``: counts what tasks did to each other, not what they got done."""

    name: str
    words: str
    unit: Unit
    #: The latency it is a percentile of.
    latency: str = ""
    q: float = 0.0
    activity: bool = False
    throughput: bool = False


def _latency(name: str, words: str) -> list[Metric]:
    out = [
        Metric(f"{name}_{short}", f"{words} {short.replace('p999', 'p99.9')}", "ns", name, q)
        for short, q in QUANTILES.items()
    ]
    return [*out, Metric(f"{name}_max", f"{words} max", "ns", name, 1.0)]


def _all() -> list[Metric]:
    return [
        Metric("throughput_per_s", "throughput /s", "per_s", throughput=True),
        Metric("idle_share", "idle share", "share"),
        *_latency("queue_delay", "queue delay"),
        *_latency("wakeup_latency", "wakeup latency"),
        Metric("runqueue_time", "run-queue time, waiting", "number"),
        Metric("wakeups_per_s", "wakeups /s (activity)", "per_s", activity=True),
        Metric("edges_per_s", "edges /s (activity)", "per_s", activity=True),
        Metric("waker_cpu_share", "edges onto the waker's CPU", "share"),
        Metric("switches_per_s", "switches /s", "per_s", activity=True),
        Metric("switch_ins_per_s", "switch-ins /s", "per_s", activity=True),
        Metric("migrations_per_s", "migrations /s", "per_s"),
        Metric("migrations_sibling_per_s", "migrations, SMT sibling /s", "per_s"),
        Metric("migrations_llc_per_s", "migrations, same LLC /s", "per_s"),
        Metric("migrations_other_llc_per_s", "migrations, other LLC /s", "per_s"),
        Metric("migrations_other_node_per_s", "migrations, other node /s", "per_s"),
        Metric("cpus_used", "CPU time, mean CPUs", "number"),
        Metric("double_bookings_per_s", "double bookings, strict /s", "per_s"),
        Metric("double_booking_share", "double bookings of decided", "share"),
        Metric("attributable_lo", "idle by the race, at least", "share"),
        Metric("attributable_hi", "idle by the race, at most", "share"),
        *(
            Metric(f"idle_{b.name.lower()}", f"idle: {b.name.lower().replace('_', ' ')}", "share")
            for b in IdleBin
        ),
    ]


#: Names of the bins of idle time.
IDLE_BINS = tuple(f"idle_{b.name.lower()}" for b in IdleBin)
#: In the order in which they are shown.
METRICS: Mapping[str, Metric] = {m.name: m for m in _all()}


def metric_of(name: str) -> Metric:
    """The figure of that name."""
    return METRICS[name]
