"""How idle the machine was, in words (the figures: :mod:`traceana.idle_time`)."""

from __future__ import annotations

from dataclasses import dataclass, fields

from traceana.idle_time import MachineIdle, machine_idle
from traceana.reports.context import Context
from traceana.reports.model import Strong, Text, say
from traceana.reports.words import duration, plural, share

__all__ = ["IdleShare", "idle_share"]


@dataclass(frozen=True)
class IdleShare(MachineIdle):
    """Idle time over CPUs; None where there is nothing to divide by."""

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
    online = ctx.cap.topology.filter(ctx.cap.topology.column("online"))
    found = machine_idle(ctx.tl, online.column("cpu").to_pylist())
    return IdleShare(*(getattr(found, f.name) for f in fields(MachineIdle)))
