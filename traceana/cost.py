"""What tracing itself costs: the time that one event takes, read off the capture."""

from __future__ import annotations

import numpy as np

from traceana import schema
from traceana.columns import EventColumns

__all__ = ["event_cost_ns"]

#: Fewer distances than this say nothing.
_MIN = 200


def event_cost_ns(events: EventColumns) -> int | None:
    """The cost of one event, from the distances of events that follow each other in one action.

    A sched_waking, the sched_migrate_task of the same wakeup, a sched_stat_runtime and the switch
    behind it … are recorded by one CPU with little between them: the smallest distances are the
    cost of recording an event and an upper bound of it. The 1st percentile of all distances of
    consecutive events of a CPU is taken, ns; None where there are too few.
    """
    known = (events.cpu >= 0) & (events.kind < schema.EventKind.LOST)
    cpu, ts = events.cpu[known], events.ts[known]
    order = np.argsort(cpu, kind="stable")
    gaps = np.diff(ts[order])[np.diff(cpu[order]) == 0]
    gaps = gaps[gaps > 0]
    if len(gaps) < _MIN:
        return None
    return int(np.percentile(gaps, 1, method="lower"))
