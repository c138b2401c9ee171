"""Arrays and constants of the sweep that bins idle time (see ``idle_bins``).

``TASK``, ``CPU``, ``LLC``, ``GLOBAL`` and ``CHANGE`` hold its state between two calls, so that how
the rows are split changes nothing. Times are ns, NULL where not known; indices are -1 where there
is none.
"""

from __future__ import annotations

import numpy as np

NULL = -(2**63)
FAR = 2**62

# States of a task. WAKING: between its sched_waking and its place in a queue.
UNKNOWN, ASLEEP, WAKING, WAITING, RUNNING = range(5)
# How a wait began: put there by select_task_rq(), woken otherwise, switched out while runnable.
DECIDED, WOKEN, PREEMPTED = range(3)
# What a victim is, the surest last; 0: none.
LATE, STRICT, CERTAIN = 1, 2, 3
# Changes that wait in the heap.
GAP_ENDS, BOOKED, QUEUED = range(3)

#: schema.IdleBin
(
    B_NOBODY, B_DOUBLE, B_LATE, B_PINNED, B_THROTTLED, B_CORE_SCHED, B_STEAL, B_ON_ITS_WAY,
    B_REFUSED, B_HOT, B_OTHER_LLC, B_CHAIN, B_IO, B_TIMER, B_UNKNOWN, B_PLACED, B_SURPLUS,
) = range(17)  # fmt: skip
N_BINS = 17
#: Nobody left for a CPU: B_NOBODY or B_SURPLUS, by whether anybody is runnable at all.
B_LEFT = N_BINS

#: Links of a chain of partners that are followed.
MOST_HOPS = 16

TASK = np.dtype(
    [
        ("since", "i8"), ("last_end", "i8"), ("victim_from", "i8"), ("victim_to", "i8"),
        ("cpu", "i4"), ("last_cpu", "i4"), ("row", "i4"), ("head", "i4"), ("victim", "i4"),
        ("st", "i1"), ("how", "i1"), ("held", "i1"), ("phase", "i1"), ("pinned", "i1"),
        ("throttled", "i1"), ("booked", "i1"), ("matched", "i1"), ("certain", "i1"),
        ("fill", "u1", (3,)),
    ]
)  # fmt: skip
#: ``task``: who runs there, or ran there last; ``gap``: the open gap's row.
CPU = np.dtype(
    [
        ("start", "i8"), ("end", "i8"), ("open", "i8"), ("since", "i8"), ("z", "i8"),
        ("task", "i4"), ("llc", "i4"), ("core", "i4"), ("gap", "i4"), ("bin", "i4"), ("new", "i4"),
        ("root", "i4"), ("hop", "i4"), ("booked", "i4"), ("waiting", "i4"), ("held", "i4"),
        ("idle", "i1"), ("runs", "i1"), ("reason", "i1"), ("touched", "i1"), ("lower", "i1"),
        ("fill", "u1", (7,)),
    ]
)  # fmt: skip
#: ``*_ns``: sums over CPUs or tasks; ``both_ns``: CPUs idle while tasks are stuck; ``gap_ns``: the
#: integral of the smaller of the two numbers.
LLC = np.dtype(
    [
        ("idle", "i4"), ("waiting", "i4"), ("stuck", "i4"), ("left", "i4"), ("since", "i8"),
        ("idle_ns", "i8"), ("waiting_ns", "i8"), ("stuck_ns", "i8"), ("both_ns", "i8"),
        ("gap_ns", "i8"),
    ]
)  # fmt: skip
GLOBAL = np.dtype(
    [
        # rows of wakeups, slices, gaps, victims and moves done so far
        ("w", "i8"), ("s", "i8"), ("g", "i8"), ("v", "i8"), ("m", "i8"),
        ("now", "i8"), ("z", "i8"), ("waiting", "i8"), ("stuck", "i8"), ("before", "i8"),
        ("victims", "i8"), ("idle", "i8"), ("listed", "i8"), ("heap", "i8"), ("touched", "i8"),
        # whether something but a touched CPU changed; whether any CPU idles for a stuck task
        ("moved", "i8"), ("chains", "i8"),
        ("upper", "i8"), ("lower", "i8"), ("held", "i8"), ("pull", "i8"), ("pull_hot", "i8"),
        # parameters
        ("long_ns", "i8"), ("cost_ns", "i8"),
    ]
)  # fmt: skip
CHANGE = np.dtype([("ts", "i8"), ("order", "i8"), ("what", "i4"), ("row", "i4")])
#: A task that waited on an idle CPU and was not on its way.
HELD = np.dtype([("start", "i8"), ("end", "i8"), ("task", "i4"), ("cpu", "i4")])
