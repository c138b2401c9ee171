"""Records of the replay: changes of state, what is known of a decision, what became of it.

Times are ns; -1 is unknown or none unless said.
"""

from __future__ import annotations

import numpy as np

__all__ = [
    "ASK",
    "BOOK",
    "CHANGE",
    "CONFIG",
    "CURR",
    "ENQ",
    "HISTORY",
    "LOG",
    "LOOK",
    "MOVE",
    "OFF",
    "OUT",
    "OUTCOME",
    "PEND",
    "PLACE",
    "READ",
    "SET_MAX",
    "UNTOLD",
    "VERDICT",
    "WHY_HINT",
    "WHY_INSTANT",
    "WHY_LOAD",
    "WHY_SCAN",
    "WHY_SYNC",
    "WHY_WIDE",
]

#: Kinds of change: a task (or -1: the idle task) becomes current; the current task blocks; it is
#: switched out runnable; a task is queued; moved while queued; a wakelist fills or empties; a
#: selection has chosen a CPU (aux 1) and can be seen there (-1); and, not changes, a selection
#: reads loads; it is over, and its path can be followed.
CURR, OFF, OUT, ENQ, MOVE, PEND, BOOK, READ, LOOK = range(9)

#: ``aux``: dur_avg of a task that becomes current, run time of one that leaves, 1 or 0 of PEND,
#: the row of READ and LOOK.
CHANGE = np.dtype([("ts", "i8"), ("aux", "i8"), ("what", "i4"), ("cpu", "i4"), ("task", "i4")])

#: "Nobody has told": the replay uses what it has rebuilt.
UNTOLD = -2

#: What the timeline knows of a decision, and, from waker_load on, what settle() finds out.
#: ``sync`` 2 = either. ``tell_*``: a value to use in place of the rebuilt one, else UNTOLD.
ASK = np.dtype(
    [
        # begin of the selection, and the last instant before its own booking shows
        ("look", "i8"), ("limit", "i8"),
        ("ts", "i8"), ("waker_dur", "i8"), ("wakee_dur", "i8"), ("waker_flips", "i8"),
        ("wakee_flips", "i8"),
        ("waker_load", "i8"), ("wakee_load", "i8"), ("this_load", "i8"), ("prev_load", "i8"),
        ("waker", "i4"), ("wakee", "i4"), ("this_cpu", "i4"), ("prev_cpu", "i4"),
        ("recorded", "i4"),
        ("tell_nr", "i4"), ("tell_hint", "i4"),
        # recent_used_cpu; budget and hint as the target's LLC had them, and as rules see them
        ("recent", "i4"), ("nr_idle_scan", "i4"), ("idle_core", "i4"),
        ("nr_prev", "i4"), ("hint_prev", "i4"), ("nr_this", "i4"), ("hint_this", "i4"),
        ("sync", "u1"), ("used_sync", "u1"), ("task_ctx", "u1"), ("kthread", "u1"),
        ("woke_back", "u1"),
        ("pad", "u1"), ("pad2", "u2"),
    ]
)  # fmt: skip

#: So many CPUs of a possible set are kept; ``count`` goes on beyond.
SET_MAX = 12

#: The kernel's own path at a decision. ``cpu`` … ``nr_this``: on the rebuilt state. ``count``: size
#: of the possible set. ``why``: -1 the recorded CPU is not in it; 0 the rebuilt state explains it;
#: else WHY_* bits of the unknowns that were changed; ``cost`` … ``x_step``: of that branch.
#: ``cpu0`` and ``cpu1``: the answers with sync 0, and with 1 if the sync step gave it (else -1).
#: ``*_state``: 0 busy, 1 idle, 2 idle core.
VERDICT = np.dtype(
    [
        ("cpu", "i4"), ("affine", "i4"), ("step", "i4"), ("target", "i4"),
        ("nr_idle_scan", "i4"), ("idle_core", "i4"), ("nr_this", "i4"), ("count", "i4"),
        ("why", "i4"), ("cost", "i4"), ("sync", "i4"), ("scan", "i4"), ("hint", "i4"),
        ("asked", "i4"),
        ("cleared", "i4"), ("recent", "i4"), ("waker_recent", "i4"), ("x_target", "i4"),
        ("x_affine", "i4"), ("x_step", "i4"), ("cpu0", "i4"), ("cpu1", "i4"),
        ("own_state", "i4"), ("recorded_state", "i4"), ("shift", "i4"), ("pad", "i4"),
    ]
)  # fmt: skip

WHY_SYNC, WHY_SCAN, WHY_HINT, WHY_INSTANT, WHY_LOAD, WHY_WIDE = 1, 2, 4, 8, 16, 32

#: The state of ``cpu`` after a change (``aux``: dur_avg of its current task), or, with ``cpu``
#: -1, the decision ``aux``.
LOG = np.dtype(
    [("aux", "i8"), ("cpu", "i4"), ("curr", "i4"), ("nr", "i4"), ("idle", "u1"), ("pending", "u1"),
     ("booked", "u2")]
)  # fmt: skip

#: A rule's answer at a decision.
OUTCOME = np.dtype(
    [("cpu", "i4"), ("mainline", "i4"), ("reason", "i8"), ("blocked", "i8"), ("ahead", "i8"),
     ("certainty", "u1")]
)  # fmt: skip

#: Where the replay believes a task to be: CPU of its queue (-1: none) and recent_used_cpu; and
#: what it starts with: the CPU whose sums it is part of, its averages.
PLACE = np.dtype(
    [
        ("queue", "i4"),
        ("recent", "i4"),
        ("fair", "i4"),
        ("cpu", "i4"),
        ("util", "i4"),
        ("load", "i4"),
    ]
)

#: settle()'s settings: window's begin, period of nr_idle_scan, until when outcomes teach (ns);
#: budgets within so many, whether the hint may be wrong, instants within so many ns.
CONFIG = ("first_ts", "refresh", "learn_until", "spread", "flip_hint", "jitter")

#: So many of a CPU's last states can be looked up; a power of two.
HISTORY = 16

#: When a selection reads what, ns behind its begin (indices into an int64 array).
(
    T_AFFINE,  # wake_affine_idle(): this_cpu and prev_cpu
    T_TARGET,  # select_idle_sibling(): the target, where wake_affine() was not asked
    T_ASKED,  # later by so much where it was
    T_WEIGHT,  # and by so much more where loads were compared
    T_PREV,  # from here on behind the target: prev_cpu
    T_RECENT,
    T_SIBLING,
    T_SIBLING_STEP,
    T_SCAN,
    T_SCAN_STEP,
    T_CORE,
    T_CORE_STEP,
    T_CORE_THREAD,
    T_CLEAR,  # behind the begin: a scan that found no idle core clears the hint
    T_END,  # nothing is read later than this behind the begin
) = range(15)
