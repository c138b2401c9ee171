"""Arrays and constants of the timeline's state machine.

``TASK``, ``CPU``, ``GROUP``, ``GLOBAL``, ``EDGE`` and ``PENDING`` hold the state between batches.
``SLICE`` (the open one of each task), ``GAP`` (the open one of each CPU) and ``WAKE`` (a pool of
slots) hold rows that can still change; rows that cannot are copied to outputs of the same types,
in the order in which they became final. Their ``id`` is their place in the table.
Times are ns, NULL where not known; indices are -1 where there is none.
"""

from __future__ import annotations

import numpy as np

NULL = -(2**63)
PID_LIMIT = 4194304
#: A cause stamped later than its effect by no more than this is clock skew.
SKEW_MAX = 3000
#: Wakeups after which the shortest path onto a wakelist counts as learnt.
LEARN = 16
#: A task is off its queue but not yet switched out for no longer than this.
LEAVING_MAX = 20000
#: A waker that blocks within this (or twice its dur_avg, if shorter) may have said WF_SYNC (7.5).
SYNC_WINDOW = 50_000

# Event kinds (schema.EventKind)
SWITCH, WAKING, WAKEUP, WAKEUP_NEW, MIGRATE, FORK, EXEC, EXIT, STAT, CPU_IDLE = range(10)
LOST, BEGIN = 19, 20

# Task states
UNKNOWN, RUNNING, QUEUED, ASLEEP, GONE = range(5)

# schema.WakeKind
(
    K_DECIDED,
    K_SELF,
    K_ON_RQ,
    K_ON_CPU,
    K_PINNED,
    K_DELAYED,
    K_DELAYED_MAYBE,
    K_OTHER,
    K_FORK,
    K_UNKNOWN,
) = range(10)

# What a wakeup still waits for before its kind is known
SURE, WAS_RUNNING, JUST_BLOCKED, MAYBE_DELAYED, MAYBE_BLOCKED = range(5)

# schema.Quality
Q_CENSORED_START, Q_CENSORED_END, Q_LOSS, Q_STATE, Q_SKEW, Q_REPEATED = 1, 2, 4, 8, 16, 32
Q_NO_WAKING, Q_NO_WAKEUP, Q_REPAIRED, Q_FLIPS, Q_DUR = 64, 128, 256, 512, 1024

# schema.EndReason
E_SLEEP, E_BLOCK, E_PREEMPT, E_YIELD, E_DEAD, E_CUT = range(6)

S_PREEMPTED, S_DEAD = 0x100, 0x30

#: Names of the repair counters, in the order of ``GLOBAL.repairs`` (section 7.2).
REPAIRS = (
    "lost_wakeup",  # R1
    "moved_without_migrate",  # R2
    "lost_switch",  # R3
    "false_blocking",  # R4
    "false_running",  # R6
    "redundant_wakeup",  # R7
    "clock_skew",
    "wake_repeated",
    "pid_out_of_range",
    "ran_on_two_cpus",
)
(
    R_LOST_WAKEUP,
    R_MOVED,
    R_LOST_SWITCH,
    R_FALSE_BLOCK,
    R_FALSE_RUN,
    R_REDUNDANT,
    R_SKEW,
    R_REPEATED,
    R_PID,
    R_TWO,
) = range(10)

TASK = np.dtype(
    [
        ("pid", "i4"), ("gen", "i4"), ("cpu", "i4"), ("st", "i4"), ("prio", "i4"), ("pinned", "i4"),
        ("first_ts", "i8"), ("last_ts", "i8"), ("born", "i8"), ("died", "i8"),
        # whether a slice is open, and whether one ever began or ended in sight
        ("running", "i4"), ("seen", "i4"), ("in_ts", "i8"), ("run_from", "i8"), ("out_ts", "i8"),
        ("blk_ts", "i8"), ("deq_ts", "i8"), ("wk", "i8"),
        # run time since the last sample of dur_avg: by stat_runtime, of it maybe after the
        # dequeue, and by switches
        ("acc", "i8"), ("post", "i8"), ("firm", "i4"), ("stat_ts", "i8"), ("acc_sw", "i8"),
        ("acc_ok", "i4"),
        ("need", "i4"), ("dur", "i8"), ("samples", "i8"),
        ("undo_dur", "i8"), ("undo_acc", "i8"), ("undo_sw", "i8"), ("undo_ok", "i4"),
        ("undo_need", "i4"),
        ("flips", "i8"), ("flip_ts", "i8"), ("last_pid", "i4"), ("last_gen", "i4"),
        ("flip_need", "i4"), ("flips_seen", "i8"),
        ("rt", "i8"), ("rt_sw", "i8"), ("switches", "i8"), ("voluntary", "i8"), ("preempted", "i8"),
        ("wakeups", "i8"), ("orphan", "i4"), ("called_off", "i4"), ("last_state", "i4"),
        ("redo_dur", "i8"), ("redo_need", "i4"), ("late", "i8"),
        ("held_first", "i8"), ("held_last", "i8"),
        # the run-queue delay as perf sched latency counts it
        ("p_st", "i4"), ("p_out", "i8"), ("p_wake", "i8"),
        ("delays", "i8"), ("delay_sum", "i8"), ("delay_max", "i8"), ("delay_max_at", "i8"),
        # wakings, and the pending ones by it (PENDING)
        ("wakings", "i8"), ("pend_first", "i4"), ("pend_last", "i4"),
    ]
)  # fmt: skip

CPU = np.dtype(
    [
        ("curr", "i4"), ("idle_task", "i4"), ("nr", "i4"), ("nwait", "i4"), ("llc", "i4"),
        ("pulled", "i4"),
        ("gap", "i4"), ("vis", "i4"),
        ("last_ts", "i8"), ("first_ts", "i8"), ("begin", "i8"), ("idle_seen", "i8"),
        ("events", "i8"), ("switches", "i8"),
        # time known to be idle and busy; whether a slice or gap began, ended in sight
        ("idle_ns", "i8"), ("busy_ns", "i8"), ("began", "i4"), ("ended", "i4"),
        ("gap_llc", "i8"), ("gap_any", "i8"), ("gap_busy", "i8"),
        ("own_llc", "i8"), ("own_any", "i8"), ("waiting", "i4"), ("stuck", "i4"),
        # when the queue of the idle CPU was last found empty by a wakeup
        ("filled", "i8"),
    ]
)  # fmt: skip

#: One per LLC, and a last one for the whole machine.
GROUP = np.dtype(
    [
        ("cpus_waiting", "i4"), ("cpus_stuck", "i4"), ("id_sum", "i8"), ("last_ts", "i8"),
        ("waited", "i8"), ("stuck", "i8"), ("idle", "i4"),
    ]
)  # fmt: skip

GLOBAL = np.dtype(
    [
        # numbers given to tasks and rows so far; rows in the outputs
        ("n_task", "i8"), ("n_slice", "i8"), ("n_wake", "i8"), ("n_gap", "i8"),
        ("out_slice", "i8"), ("out_wake", "i8"), ("out_gap", "i8"), ("n_move", "i8"),
        # slots of WAKE and PENDING: ever used, in use (WAKE), first free one
        ("w_top", "i8"), ("w_live", "i8"), ("w_free", "i8"), ("p_top", "i8"), ("p_free", "i8"),
        ("n_edge", "i8"), ("first", "i8"),
        ("kver", "i8"), ("hz", "i8"), ("phase", "i8"), ("jiffies", "i8"),
        ("stat", "i4"), ("flush", "i8", (2,)), ("flushes", "i8", (2,)),
        ("have_waking", "i4"), ("have_wakeup", "i4"),
        ("leave", "i8"), ("eps", "i8"), ("eps_lo", "i8"),
        # since when no CPU has lost events or not yet begun
        ("whole_from", "i8"),
        ("repairs", "i8", (16,)),
    ]
)  # fmt: skip

# The rows that become tables: fields by falling size, so that a row can be read as words of one
# size (see _block_kernels); ``fill`` makes its length a multiple of 8.
SLICE = np.dtype(
    [
        ("id", "i8"), ("start", "i8"), ("end", "i8"), ("runtime", "i8"), ("dur", "i8"),
        ("task", "i4"), ("cpu", "i4"),
        ("state", "u2"),
        ("reason", "u1"), ("fill", "u1", (5,)),
    ]
)  # fmt: skip
GAP = np.dtype(
    [
        ("id", "i8"), ("start", "i8"), ("end", "i8"), ("llc", "i8"), ("any", "i8"), ("busy", "i8"),
        ("by", "i8"),
        ("cpu", "i4"), ("idle_state", "i4"),
    ]
)  # fmt: skip
MOVE = np.dtype([("ts", "i8"), ("task", "i4"), ("src", "i4"), ("dst", "i4"), ("at", "i4")])
#: ``open`` while the wakee has not run; ``held``: 1 while it waits in its waker's chain, 2 after;
#: ``vis`` and ``late`` while a CPU or its wakee may still change it. A slot with none of these is
#: final; ``next`` then links the free slots.
WAKE = np.dtype(
    [
        ("id", "i8"),
        ("waking", "i8"), ("wakeup", "i8"), ("run", "i8"), ("mig", "i8"), ("base", "i8"),
        ("latency", "i8"), ("delay", "i8"), ("wake_delay", "i8"),
        ("vis_lo", "i8"), ("vis_hi", "i8"),
        ("wakee_dur", "i8"), ("waker_dur", "i8"), ("wakee_flips", "i8"), ("waker_flips", "i8"),
        ("wakee", "i4"), ("waker", "i4"), ("current", "i4"),
        ("this_cpu", "i4"), ("prev_cpu", "i4"), ("placed", "i4"), ("ran", "i4"),
        ("nr_placed", "i4"), ("nr_this", "i4"), ("idle_llc", "i4"), ("edge", "i4"), ("next", "i4"),
        ("quality", "u2"),
        ("kind", "u1"), ("context", "u1"), ("queueing", "u1"), ("open", "u1"), ("waits", "u1"),
        ("counts", "u1"), ("held", "u1"), ("vis", "u1"), ("late", "u1"), ("used", "u1"),
        ("prev_idle", "i1"), ("placed_idle", "i1"), ("fill", "u1", (2,)),
    ]
)  # fmt: skip
#: Wakings of a pair of tasks, and how many of them the waker's block followed soon (section 7.5).
EDGE = np.dtype([("waker", "i4"), ("wakee", "i4"), ("n", "i8"), ("soon", "i8")])
#: A waking whose waker has not blocked since: a list per waker, and one of those that are free.
PENDING = np.dtype([("ts", "i8"), ("limit", "i8"), ("edge", "i4"), ("next", "i4")])
#: Start state per pid; ``acc`` is sum_exec_runtime - prev_sleep_sum.
SEED = np.dtype(
    [
        ("pid", "i4"),
        ("last_pid", "i4"),
        ("dur", "i8"),
        ("flips", "i8"),
        ("flip_ts", "i8"),
        ("has", "i4"),
    ]
)
