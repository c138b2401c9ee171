"""What a verdict on the race has to know of a capture: losses, clocks, topology, tracing's cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from traceana import schema
from traceana._race_verdict import Thresholds, percent

if TYPE_CHECKING:
    from traceana._race_blocks import Range
    from traceana.bookings import Bookings
    from traceana.capture import Capture
    from traceana.timeline import Timeline
    from traceana.topology import TopologyArrays

__all__ = ["Facts", "Probe", "facts_of", "probe_of"]

#: Words in what a file tells of its machine that give a virtual one away.
_VIRTUAL = ("qemu", "kvm", "hypervisor", "vmware", "xen ", "virtual")


@dataclass(frozen=True)
class Facts:
    """Of the capture.

    ``lost``: events that the recorder admits as lost (None: it tells places, not numbers),
    ``lost_share`` of all; ``near_loss``: double bookings around which events were lost;
    ``skew_share``: wakeups stamped before their cause; ``topology``: where it comes from;
    ``virtual``: the file says that the machine is a virtual one.
    """

    recorded: bool
    queued: bool
    lost: int | None
    loss_marks: int
    lost_share: float
    near_loss: int
    skew_share: float
    topology: str
    cpus: int
    virtual: bool
    span_ns: int
    wakeups: int
    said: list[str] = field(default_factory=list)

    def unable(self) -> list[str]:
        """What makes any verdict impossible."""
        if not self.recorded:
            return [
                "sched_waking was not recorded: when wakers looked is not known "
                "(record with -e sched:sched_waking)"
            ]
        return []

    def unsure(self, limits: Thresholds) -> list[str]:
        """What forbids to say *supported*."""
        out = []
        if not self.queued:
            out.append(
                "sched_wakeup was not recorded: when wakees were queued, and for how long they "
                "waited, is not known (record with -e sched:sched_wakeup)"
            )
        if self.topology == "assumed" and self.cpus > 1:
            out.append(
                "no topology is known: which CPUs share a cache is assumed (give --topology)"
            )
        return out + self._skew(limits)

    def blind(self, limits: Thresholds) -> list[str]:
        """What forbids to say *not supported*."""
        out = []
        if self.lost is None and self.loss_marks:
            out.append(
                f"events were lost at {self.loss_marks:,} places, nobody knows how many: double "
                "bookings among them are not seen"
            )
        elif self.lost_share > limits.loss_share:
            out.append(
                f"{percent(self.lost_share)} of the events were lost: double bookings among them "
                "are not seen"
            )
        return out + self._skew(limits)

    def assumed(self) -> list[str]:
        """What is taken for granted and does not decide."""
        if self.topology == "assumed" and self.cpus > 1:
            return ["one LLC without SMT, as no topology is known (give --topology)"]
        return []

    def _skew(self, limits: Thresholds) -> list[str]:
        if self.skew_share <= limits.skew_share:
            return []
        return [
            f"clocks of CPUs are not synchronised: {percent(self.skew_share)} of the wakeups are "
            "stamped before their cause (record with trace_clock global or mono)"
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "span_ns": self.span_ns,
            "wakeups": self.wakeups,
            "lost_near_double_bookings": self.near_loss,
            "clock_skew_share": self.skew_share,
            "topology": self.topology,
            "virtual_machine": True if self.virtual else None,
        }


@dataclass(frozen=True)
class Probe:
    """What recording cost.

    ``event_cost_ns``: per event, None where too few tell; ``events``: recorded ones;
    ``cpu_share``: their cost as a share of the time of all CPUs.
    """

    event_cost_ns: int | None
    events: int
    wakeups_per_s: float | None
    cpu_share: float | None

    def to_json(self, untraced: Range, n: int) -> dict[str, Any]:
        """With the estimate for the machine as it would be with its windows shortened."""
        return {
            "event_cost_ns": self.event_cost_ns,
            "events": self.events,
            "share_of_cpu_time": self.cpu_share,
            "wakeups_per_s": self.wakeups_per_s,
            "strict_with_shortened_window": n,
            "race_rate_with_shortened_window": untraced.to_json(),
        }


def facts_of(cap: Capture, timeline: Timeline, machine: TopologyArrays, found: Bookings) -> Facts:
    """Collect the facts."""
    lost = cap.lost
    total = sum(cap.counts.values()) + (lost.events or 0)
    skewed = woken = 0
    for chunk in timeline.rows.chunks("wakeups", ("quality",)):
        quality = chunk.column("quality").to_numpy()
        woken += len(quality)
        skewed += int(((quality & schema.Quality.SKEW) != 0).sum())
    return Facts(
        recorded=_recorded(cap, "sched_waking"),
        queued=_recorded(cap, "sched_wakeup"),
        lost=lost.events,
        loss_marks=lost.marks,
        lost_share=(lost.events or 0) / max(total, 1),
        near_loss=found.facts.get("near_loss", 0),
        skew_share=skewed / max(woken, 1),
        topology=_origin(cap),
        cpus=int(machine.online.sum()),
        virtual=_virtual(cap),
        span_ns=timeline.last_ts - timeline.first_ts,
        wakeups=woken,
        said=list(found.missing),
    )


def _recorded(cap: Capture, name: str) -> bool:
    return bool(cap.counts.get(name)) and name not in cap.ignored


def _origin(cap: Capture) -> str:
    origins = cap.topology.column("origin").to_pylist()
    return "assumed" if not origins or "assumed" in origins else str(origins[0])


def _virtual(cap: Capture) -> bool:
    told = " ".join(str(v) for v in (cap.meta.extra or {}).values() if isinstance(v, str)).lower()
    return any(word in told for word in _VIRTUAL)


def probe_of(cap: Capture, timeline: Timeline) -> Probe:
    """The cost of recording."""
    cpus = timeline.cpus
    span = timeline.last_ts - timeline.first_ts
    woken = timeline.rows.table("wakeups").num_rows
    events = int(cpus.column("events").to_numpy().sum())
    time = float(sum(cpus.column(c).drop_null().to_numpy().sum() for c in ("idle_ns", "busy_ns")))
    cost = cap.event_cost_ns
    return Probe(
        event_cost_ns=cost,
        events=events,
        wakeups_per_s=woken * 1e9 / span if span > 0 else None,
        cpu_share=min(cost * events / time, 1.0) if cost is not None and time > 0 else None,
    )
