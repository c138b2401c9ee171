"""What the bins of idle time are called, and what each means, in a reader's words."""

from __future__ import annotations

from collections.abc import Mapping

from traceana.schema import IdleBin

__all__ = ["LABELS", "MEANINGS", "ORDER"]

#: The order in which bins are told: the one in which they are tried.
ORDER: tuple[IdleBin, ...] = (
    IdleBin.DOUBLE_BOOKING,
    IdleBin.LATE_BOOKING,
    IdleBin.ON_ITS_WAY,
    IdleBin.PINNED,
    IdleBin.THROTTLED,
    IdleBin.CORE_SCHED,
    IdleBin.STEAL,
    IdleBin.PLACED,
    IdleBin.MIGRATION_COST,
    IdleBin.NEWIDLE_REFUSED,
    IdleBin.UNKNOWN,
    IdleBin.OTHER_LLC,
    IdleBin.CHAIN,
    IdleBin.IO,
    IdleBin.TIMER,
    IdleBin.SURPLUS,
    IdleBin.NOBODY,
)

LABELS: Mapping[IdleBin, str] = {
    IdleBin.NOBODY: "nobody waits",
    IdleBin.DOUBLE_BOOKING: "double booking",
    IdleBin.LATE_BOOKING: "late booking",
    IdleBin.PINNED: "pinned",
    IdleBin.THROTTLED: "throttled",
    IdleBin.CORE_SCHED: "core scheduling",
    IdleBin.STEAL: "steal",
    IdleBin.ON_ITS_WAY: "on its way",
    IdleBin.NEWIDLE_REFUSED: "not pulled",
    IdleBin.MIGRATION_COST: "hot",
    IdleBin.OTHER_LLC: "other LLC",
    IdleBin.CHAIN: "chain of partners",
    IdleBin.IO: "I/O",
    IdleBin.TIMER: "timer or device",
    IdleBin.UNKNOWN: "unknown",
    IdleBin.PLACED: "placed behind another",
    IdleBin.SURPLUS: "nobody left",
}

MEANINGS: Mapping[IdleBin, str] = {
    IdleBin.NOBODY: "no task waits anywhere",
    IdleBin.DOUBLE_BOOKING: "the victim of a strict double booking waits in its LLC",
    IdleBin.LATE_BOOKING: "the victim of a booking that could have been seen waits in its LLC",
    IdleBin.PINNED: "who waits may not run here",
    IdleBin.THROTTLED: "who waits is held back by cpu.max, as it seems",
    IdleBin.CORE_SCHED: "no event tells of it: in “unknown”",
    IdleBin.STEAL: "no event tells of it: in “unknown”",
    IdleBin.ON_ITS_WAY: "its own next task is booked or queued: it is waking up",
    IdleBin.NEWIDLE_REFUSED: "who waits was there when it went idle, was not hot, was not pulled",
    IdleBin.MIGRATION_COST: "who waits was there when it went idle, and hot: left where it was",
    IdleBin.OTHER_LLC: "who waits, waits in another LLC",
    IdleBin.CHAIN: "its last task sleeps until one wakes it that waits behind another",
    IdleBin.IO: "its last task sleeps in D",
    IdleBin.TIMER: "its last task sleeps until an interrupt wakes it",
    IdleBin.UNKNOWN: "somebody waits, and why not here is not known",
    IdleBin.PLACED: "a wakeup put who waits behind a running task while it was idle",
    IdleBin.SURPLUS: "all who wait stand for other idle CPUs, or are on their way",
}
