"""Double bookings of a capture, and where its idle time went, for a comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from traceana._compare_draws import Estimate
from traceana._compare_measure import Sums
from traceana.schema import BookingClass, IdleBin

if TYPE_CHECKING:
    from traceana.capture import Capture

__all__ = ["Race", "look"]


@dataclass(frozen=True)
class Race:
    """What was found; nothing where the events for it were not recorded.

    ``sums`` by metric; ``shares`` by metric: of CPU time, without an interval.
    """

    sums: dict[str, Sums] = field(default_factory=dict)
    shares: dict[str, Estimate] = field(default_factory=dict)


def look(cap: Capture, begin_ts: int, bins: int) -> Race:
    """Find the double bookings, and account for idle time.

    Parameters
    ----------
    cap : Capture
    begin_ts : from when on all CPUs' data are there, ns
    bins : stretches of time for which the bookings are counted
    """
    seen = {n for n, c in cap.counts.items() if c} - set(cap.ignored)
    if not {"sched_waking", "sched_wakeup", "sched_switch"} <= seen:
        return Race()
    from traceana.bookings import find
    from traceana.idle_bins import account

    timeline = cap.timeline(spill=True)
    width = max(timeline.last_ts - begin_ts, 1) / bins

    def counted(ts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        at = ((ts[ts >= begin_ts] - begin_ts) / width).astype(np.int64)
        return np.bincount(np.clip(at, 0, bins - 1), minlength=bins).astype(np.float64)

    found = find(timeline, kernel=cap.kernel, event_cost_ns=cap.event_cost_ns)
    out = Race()
    if not len(found.rows):
        return out
    rows = found.table.column("class").to_numpy() <= BookingClass.STRICT
    strict = counted(found.table.column("ts").to_numpy()[rows])
    decided = counted(found.read)
    n, of = int(strict.sum()), int(decided.sum())
    out.sums["double_bookings_per_s"] = Sums(strict, np.full(bins, width / 1e9), n)
    out.sums["double_booking_share"] = Sums(strict, decided, of)
    cuts = timeline.first_ts + np.arange(1, bins) * (timeline.last_ts - timeline.first_ts) / bins
    idle = account(timeline, found.table, topology=cap.topology, cuts=cuts.astype(np.int64))
    total = max(idle.span_ns * idle.cpus, 1)
    if idle.missing or idle.by_time is None:
        return out
    time = np.full(bins, total / bins)
    for why, ns in idle.bins_ns.items():
        in_time = idle.by_time[:, why].astype(np.float64)
        out.sums[f"idle_{why.name.lower()}"] = Sums(in_time, time, idle.gaps, ns / total)
    # The upper bound is the bin of the double bookings.
    booked = out.sums[f"idle_{IdleBin.DOUBLE_BOOKING.name.lower()}"]
    exact = idle.attributable_hi_ns / total
    out.sums["attributable_hi"] = Sums(booked.num, booked.den, n, exact)
    out.shares["attributable_lo"] = Estimate(idle.attributable_lo_ns / total, n)
    return out
