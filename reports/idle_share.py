"""How idle the machine was, with the bounds that CPUs without events leave open.

Idle of a CPU means that its idle task was current. A CPU of the topology without any event may
have been either: the share is of the known CPUs, and both bounds are of all. Where the data of
some CPUs begins late (rings that wrapped), the share is of the window that all have in common.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceana.reports.context import Context, column
from traceana.reports.gaps import gap_arrays
from traceana.reports.model import Strong, Text, say
from traceana.reports.words import duration, plural, share

__all__ = ["IdleShare", "idle_share"]


@dataclass(frozen=True)
class IdleShare:
    """Idle time over CPUs; None where there is nothing to divide by."""

    #: Of the known CPUs, over what is known of ``window_ns``.
    share: float | None
    #: Of all CPUs over the whole span, as if all that is unknown had been busy, or idle.
    lo: float | None
    hi: float | None
    known: int
    #: CPUs of the topology without any event.
    silent: int
    window_ns: int
    #: Whether the window is shorter than the span.
    common: bool

    def bounds_words(self) -> Text:
        """Both bounds, where they differ from the share."""
        if self.lo is None or self.hi is None or self.hi - self.lo < 0.0005:
            return say("")
        why = []
        if self.silent:
            why.append(f"{plural(self.silent, 'CPU')} without any event")
        if self.common or not self.silent:
            why.append("time before the first or around lost records")
        return say(
            " (over all CPUs and the whole span between ",
            Strong(share(self.lo)),
            " and ",
            Strong(share(self.hi)),
            ", as ",
            " and ".join(why),
            " may have been busy or idle)",
        )

    def of_words(self) -> str:
        """Of what the share is."""
        if not self.common:
            return "the time"
        return f"the {duration(self.window_ns)} that all CPUs' data have in common"


def idle_share(ctx: Context) -> IdleShare:
    """The machine's idle share."""
    tl = ctx.tl
    cpus = tl.cpus
    events = column(cpus, "events")
    heard = np.flatnonzero(events > 0)
    online = ctx.cap.topology.filter(ctx.cap.topology.column("online"))
    ids = set(online.column("cpu").to_pylist()) | {int(c) for c in column(cpus, "cpu")[heard]}
    n_all, n_known = len(ids), len(heard)
    span = tl.last_ts - tl.first_ts
    if not n_known or span <= 0:
        return IdleShare(None, None, None, n_known, n_all - n_known, 0, False)
    idle, unknown = column(cpus, "idle_ns")[heard], column(cpus, "unknown_ns")[heard]
    told = span * n_known - int(unknown.sum())
    if told <= 0:
        # Switches of some tasks only: no time of any CPU is known.
        return IdleShare(None, None, None, n_known, n_all - n_known, 0, False)
    lo = float(idle.sum()) / (span * n_all)
    hi = (float(idle.sum() + unknown.sum()) + span * (n_all - n_known)) / (span * n_all)
    begin = int(column(cpus, "begin")[heard].max())
    common = begin > tl.first_ts and begin < tl.last_ts
    window = tl.last_ts - begin if common else span
    if common:
        gaps = gap_arrays(ctx)
        inside = np.maximum(gaps.end - np.maximum(gaps.start, begin), 0).sum()
        part = float(inside) / (window * n_known)
    else:
        part = float(idle.sum()) / told
    return IdleShare(min(part, 1.0), lo, min(hi, 1.0), n_known, n_all - n_known, window, common)
