"""What the simulator works on: tasks with their scripts, costs, and the model's switches.

A workload is a table of tasks and one table of script rows. A task's rows stand together,
``first`` to ``end``; behind the last one it goes on at row ``loop``. Time is ns of the capture's
clock (or of the simulation's own, from 0). Records of int64 throughout, so that each kernel is
compiled for one signature. -1 is none or unknown.
This module needs numpy only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["COST", "COSTS", "DIRECT_WAY", "OP", "QUANTILES", "TASK", "Op", "Start"]


class Op:
    """``OP.code``: what a row of a script does."""

    RUN = 0  # use `value` ns of CPU
    WAKE = 1  # try_to_wake_up(`task`): a token for it; flags: SYNC
    BLOCK = 2  # take a token, or sleep until one comes
    NAP = 3  # sleep; a timer of this CPU wakes it `value` ns after it blocked (interrupt context)
    UNTIL = 4  # sleep until the instant `value` (moved by the length of each finished loop);
    #            the interrupt comes on CPU `task`, -1: where it last ran
    SEND = 5  # put a message (sender: this task) into mailbox `task`; wakes a task waiting there
    RECV = 6  # take a message from mailbox `task`, or sleep until one comes; remembers its sender
    REPLY = 7  # as WAKE, of the sender of the last message taken
    FORK = 8  # start `task`
    YIELD = 9  # sched_yield()
    YIELD_TO = 10  # yield_to(`task`)
    EXIT = 11
    STEP = 12  # a unit of the workload's own work is done (progress)

    SYNC = 1  # bit of `flags`: WF_SYNC
    EARLY = 2  # the token is inferred: in the recording no wakeup was seen for it


class Start:
    """``TASK.state``: how a task stands at the beginning."""

    UNBORN = 0
    RUNNING = 1
    QUEUED = 2
    ASLEEP = 3
    WAKING = 4  # its wakeup has been decided for `cpu`, and is not yet enqueued


def _record(*names: str) -> np.dtype[Any]:
    # np.record as scalar type: `row.field` also works where kernels run as plain Python.
    return np.dtype((np.record, np.dtype([(name, "i8") for name in names])))


#: One row of a script: Op, flags, task / mailbox / CPU, ns.
OP = _record("code", "flags", "task", "value")

TASK = _record(
    "pid",
    "weight",  # load weight; nice 0: 1024
    "prio",  # kernel priority: below 100 RT (a capacity hole: always preempts fair tasks)
    "policy",  # 0 normal, 3 batch, 5 idle
    "allowed",  # row of the table of CPU sets (uint8[sets, cpus]); -1 any CPU
    "group",  # which copy or workload it belongs to; for reporting
    "first",  # its rows of the script
    "end",
    "loop",  # where it goes on behind `end`; -1: sleeps for ever
    "state",  # Start
    "cpu",  # where it runs, waits, or last ran
    "op",  # the row that it is at
    "left",  # ns left of a RUN it has begun; -1: the row begins anew
    "tokens",  # wakes that came early
    "vruntime",  # ns before (-) or behind (+) its CPU's min_vruntime
    "dur_avg",  # ns, as section 3 of the semantics; 0 unknown
    "since_sleep",  # ns run since its last voluntary sleep
    "flips",  # wakee_flips
    "flips_ts",  # ns, when they were last halved
    "last_wakee",  # row of this table, -1 none
    "recent",  # recent_used_cpu
    "util",  # util_avg, 1024 = a whole CPU
)

#: Costs of the model, ns. Each is drawn from its own distribution (see QUANTILES).
COSTS = (
    "event",  # recording one event, on the CPU that records it
    "look",  # sched_waking to the instant at which CPUs are looked at
    "scan",  # looking at one more CPU
    "book",  # the last look to sched_migrate_task (if there is one)
    "show_remote",  # the decision to ttwu_pending being seen; `event` more if it migrates
    "show_direct",  # the same to nr_running++, wakeups on a busy CPU; `event` more where one runs
    "wake_remote",  # the waker's own cost, sched_waking to its next instruction
    "wake_direct",  # the shortest such wakeup
    "wake_migrate",  # what a change of CPU adds to wake_remote
    "wake_none",  # a wake of a task that is not asleep
    "ipi",  # booking seen to the idle CPU noticing
    "idle_exit",  # noticing to the enqueue (false_idle included)
    "false_idle",  # up to 6.1: pending flag cleared to nr_running++
    "enqueue",  # nr_running++ to sched_wakeup
    "switch_in",  # sched_wakeup (or a switch-out) to sched_switch
    "switch_out",  # a task blocks: the dequeue to sched_switch to another one
    "switch_idle",  # the same to the idle task, if no other is looked for
    "on_cpu",  # sched_switch to on_cpu being cleared
    "newidle",  # a newidle balance before it looks at a domain
    "pull",  # one that pulls a task
    "timer",  # a timer interrupt before it wakes somebody
    "tick",
)

#: Costs that make the shortest way of a direct wakeup up to its record; ``wake_direct`` holds them.
DIRECT_WAY = ("look", "book", "show_direct", "event", "enqueue")

#: How many equidistant quantiles (minimum, …, maximum) a cost's distribution is given by.
QUANTILES = 17

#: The costs: int64[len(COSTS), QUANTILES], rows in the order of COSTS.
COST = np.dtype("i8")
