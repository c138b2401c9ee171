"""The sections of a report in their order; a new one is a file here and a line below."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from traceana.reports.context import Context
from traceana.reports.model import Section
from traceana.reports.sections import (
    capture,
    closed_loop,
    idle,
    idle_bins,
    latency,
    method,
    opening,
    pairs,
    provenance,
    quality,
    race,
    rules,
    tasks,
    timeline,
)

__all__ = ["SECTIONS", "Entry", "opening"]


@dataclass(frozen=True)
class Entry:
    """A section: ``fill`` writes into the empty one that it is handed."""

    id: str
    title: str
    fill: Callable[[Context, Section], None]
    needs_timeline: bool = True
    #: Whether it speaks of durations only.
    needs_time: bool = False
    #: Whether it tells what the other sections had to assume.
    fill_last: bool = False
    #: Whether it is left out unless something is to be simulated.
    on_request: bool = False


SECTIONS = (
    Entry("capture", "The capture", capture.fill, needs_timeline=False),
    Entry(
        "quality",
        "What was lost, assumed, repaired",
        quality.fill,
        needs_timeline=False,
        fill_last=True,
    ),
    Entry("timeline", "Timeline", timeline.fill, needs_time=True),
    Entry("tasks", "Tasks", tasks.fill),
    Entry("pairs", "Who wakes whom", pairs.fill),
    Entry("latency", "Wakeup latency and queue delay", latency.fill, needs_time=True),
    Entry("idle", "Idle time", idle.fill, needs_time=True),
    Entry("bins", "Where idle time goes", idle_bins.fill, needs_time=True),
    Entry("race", "The ttwu race", race.fill, needs_time=True),
    Entry("delays", "Who delays whom", race.fill_delays, needs_time=True),
    Entry("examples", "Examples of double bookings", race.fill_examples, needs_time=True),
    Entry("rules", "Rules compared (estimated, open loop)", rules.fill, needs_time=True),
    Entry(
        "closed-loop",
        "Rules simulated (estimated, closed loop)",
        closed_loop.fill,
        needs_time=True,
        on_request=True,
    ),
    Entry("method", "Method and limits", method.fill, needs_timeline=False),
    Entry("provenance", "Provenance", provenance.fill, needs_timeline=False),
)
