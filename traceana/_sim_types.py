"""Records of the running model: what each CPU, task, mailbox and the whole is doing.

The records of the workload (TASK, OP) and the costs are in ``_sim_state``. Everything is int64,
so that each kernel is compiled for one signature; -1 is none. Times are ns; `FAR` is never.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana import columns, schema
from traceana._sim_state import COSTS, QUANTILES
from traceana.rules._state import MAX_CPUS

__all__ = [
    "BOX",
    "CPU",
    "EVENT",
    "FAR",
    "LIVE",
    "SIM",
    "TRUTH",
    "Cpu",
    "Live",
    "Phase",
    "Row",
    "Sim",
    "Stand",
    "Tree",
]

#: A time that never comes.
FAR = 1 << 62


class Row:
    """What the model writes into rows of `events`: kinds, bits and sentinels of the contract."""

    SWITCH = int(schema.EventKind.SWITCH)
    WAKING = int(schema.EventKind.WAKING)
    WAKEUP = int(schema.EventKind.WAKEUP)
    WAKEUP_NEW = int(schema.EventKind.WAKEUP_NEW)
    MIGRATE = int(schema.EventKind.MIGRATE)
    RUNTIME = int(schema.EventKind.STAT_RUNTIME)
    HARDIRQ = int(schema.Ctx.HARDIRQ)
    RESCHED = int(schema.Ctx.NEED_RESCHED)
    SLEEP = int(schema.State.SLEEP)
    DEAD = int(schema.State.DEAD)
    NO_PID, NO_PRIO = columns.NULL_PID, columns.NULL_PRIO
    NO_STATE, NO_VALUE = columns.NULL_STATE, columns.NULL_I64


class Tree:
    """Size of the tournament tree: leaves for MAX_CPUS, and the inner nodes."""

    LEAVES = MAX_CPUS
    NODES = 2 * MAX_CPUS


class Phase:
    """``Cpu.phase``: what happens on a CPU at ``Cpu.at``."""

    IDLE = 0  # the idle task is current; interrupts come
    RUN = 1  # the script of the current task goes on; interrupts come
    LOOK = 2  # a wakeup looks at the CPUs and decides
    BOOK = 3  # sched_migrate_task; queue on the wakelist, or lock the run queue
    SHOW = 4  # the booking becomes visible: ttwu_pending, or nr_running++
    WAKEUP = 5  # a direct wakeup: enqueued, sched_wakeup
    WAKE_END = 6  # back to what the waker was doing
    LEAVE = 7  # schedule(): nr_running--, the next task is chosen
    VACANT = 8  # the idle task is about to be current, and seen as such
    SWITCH = 9  # sched_switch
    FLUSH = 10  # the wakelist is taken over
    QUEUE = 11  # one of its tasks is enqueued: nr_running++
    QUEUED = 12  # its sched_wakeup
    TIMER = 13  # the timer interrupt wakes somebody
    TICK = 14  # the tick's work is done
    PREEMPT = 15  # schedule() with the current task still runnable
    SEEK = 16  # newidle balance: the busiest queue of a domain is looked for
    PULL = 17  # and a task taken from it
    CHARGE = 18  # a direct wakeup holds the queue's lock: the current task's run time is told
    ENTER = 19  # the same has been told of the task that a flush interrupts: it goes on


class Stand:
    """``Live.stand``: how a task stands."""

    UNBORN = 0
    RUNNING = 1
    QUEUED = 2
    ASLEEP = 3  # from the dequeue on; `off_at` tells whether the CPU has left it
    WAKING = 4  # decided or being decided
    DELAYED = 5  # blocked, but still queued (since 6.12)
    DEAD = 6


class Cpu:
    """One CPU, ``sim.cpus[cpu]``."""

    next: int  # the next instant at which something happens here
    at: int  # when the phase is over
    phase: int
    curr: int  # current task; the idle task of CPU c is n_tasks + c
    chosen: int  # task that the next sched_switch brings, -1 none yet
    switch_at: int
    clock: int  # rq clock at the last schedule(): run time of the next task counts from there
    run_from: int  # since when the current step of the script runs
    pace: int  # 1024: a ns of the script takes one ns

    head: int  # run queue: a list in the order in which tasks are picked, current not in it
    tail: int
    queued: int
    weight: int  # of the fair tasks that are queued
    idlers: int  # SCHED_IDLE tasks queued or running
    min_v: int  # min_vruntime
    next_buddy: int
    last_buddy: int
    skip_buddy: int
    resched: int
    inflight: int  # wakers that have done nr++ and not yet enqueued

    ipi_at: int  # an interrupt of another CPU: wakelist or reschedule
    tick_at: int
    due_at: int  # timers are due since
    due_head: int
    due_tail: int
    list_head: int  # wakelist
    list_tail: int
    flush: int  # what is being taken over of it
    irq: int  # in an interrupt
    irqs_on: int  # from then on interrupts are let in: the last switch is over
    idle_stamp: int  # rq clock when it last ran out of tasks; avg_idle counts to the next enqueue

    wakee: int  # of the wakeup under way
    wake_from: int  # its sched_waking
    wake_to: int  # CPU chosen
    wake_end: int
    wake_cost: int  # scanning
    scanned: int  # 1: the scan is over, what it reads is read now
    wake_sync: int
    wake_kind: int  # 0 decided, 1 on_cpu, 2 pinned, 3 delayed, 4 fork
    remote: int
    found: int  # 1: it found its CPU idle, another one than its own, and does not show yet

    idle_since: int
    idle_ns: int
    avg_idle: int
    newidle_cost: int  # max_newidle_lb_cost of the LLC's domain
    core_cost: int  # and of the core's
    calls: int  # NI_RANDOM: tries, finds and the ratio of the LLC's domain
    finds: int
    ratio: int
    core_calls: int  # and of the core's
    core_finds: int
    core_ratio: int
    far_calls: int  # and of the one beyond the LLC
    far_finds: int
    far_ratio: int
    level: int  # domain of the newidle balance: 2 core, 1 LLC, 0 beyond
    source: int  # the CPU that it would pull from
    tried: int  # domains that it has looked at
    try_weight: int
    pull_cost: int
    left_at: int  # when it began
    balanced: int  # when its LLC was last, for it
    balanced_far: int  # and what lies beyond
    failed: int  # balances of the LLC one after the other that moved nothing
    failed_far: int
    tick_phase: int
    rank: int  # its place among the CPUs of its LLC, ascending

    episode: int  # row of the truth that the first booking of this idle episode has, -1
    unseen: int  # wakeups that found it idle from elsewhere and are not visible
    first: int  # task whose booking is the first of those of the idle episode


class Live:
    """One task, ``live[task]``."""

    pid: int
    weight: int
    prio: int
    policy: int
    allowed: int
    first: int
    end: int
    loop: int

    stand: int
    cpu: int
    op: int
    left: int
    tokens: int
    key: int  # place in the queue: vruntime, deadline, or RT priority
    v: int
    deadline: int
    lag: int
    fresh_deadline: int  # RUN_TO_PARITY: the deadline at which it was picked
    exec_start: int
    sum_exec: int
    slept_at_sum: int  # sum_exec at its last sleep
    picked_sum: int  # sum_exec when it was picked
    dur_avg: int
    flips: int
    flips_j: int  # jiffies of the last halving
    last_wakee: int
    recent: int
    moved: int  # exec_start is forgotten: cold
    off_at: int  # until when it is on_cpu after its switch-out
    shift: int  # by how much its loops have moved UNTIL

    prev: int  # neighbours in the run queue
    next: int
    in_list: int  # next in a wakelist, a list of due timers, or of waiters of a mailbox
    timer_cpu: int
    sender: int
    box: int  # mailbox where it waits, -1
    percpu_kthread: int

    used: int  # ns of RUN done
    bursts: int
    steps: int
    loops: int
    wakes: int  # wakeups of it
    early: int  # tokens it got
    woken: int  # a delayed sleeper whose wakeup is under way: nobody else wakes it
    state: int  # of its last switch-out

    waking_ts: int  # of its last wakeup
    look_ts: int
    show_ts: int
    waker: int
    from_cpu: int  # CPU of the waker
    booked: int  # the idle CPU that it was to run on, and did not yet; -1
    row: int  # of the truth, -1 none


class Sim:
    """The whole, ``sim[0]``."""

    now: int
    until: int
    started: int
    error: int
    n_tasks: int
    n_cpus: int
    leaves: int  # of the tree in use
    n_out: int
    n_truth: int
    timers: int
    seed: int
    draws: int
    free: int  # first free message
    span: int  # length of one loop of the scripts
    window: int  # 0: bookings are seen at once
    nohz_jiffy: int  # when CPUs without a tick were last balanced
    overload: int  # rd->overload: a CPU has had two tasks since a balance last found none
    direct_way: int  # shortest way of a direct wakeup to its record, part of wake_direct
    smt_slow: int  # 1024: none

    eevdf: int
    delay_dequeue: int
    parity: int  # RUN_TO_PARITY
    wakelist: int  # form of the wakelist condition: 0, 1, 2 (section 1.4)
    pending_early: int  # up to 6.1: the pending flag is cleared before the enqueue
    ni_random: int
    gate_cost: int  # up to 5.15: newidle needs avg_idle >= migration_cost
    gate_pending: int
    refresh: int  # SIS_UTIL: nr_idle_scan is renewed
    hint: int
    yield_form: int  # 1, 2: the yielder's vruntime moves by a slice, a min granularity; 3 "second"
    yield_moves: int  # EEVDF, since 6.12: sched_yield() moves the vruntime to the deadline

    hz: int
    tick: int
    min_gran: int
    latency: int
    wakeup_gran: int
    slice: int
    mig_newidle: int
    mig_hot: int
    mig_floor: int

    stuck: int  # scripts that went round without using time
    switches: int
    wakeups: int
    migrations: int
    far_migrations: int
    pulls: int
    balances: int
    preemptions: int
    unseen_double: int
    false_double: int
    tokens_made: int
    tokens_used: int
    yields: int


def _record(view: type, **arrays: Any) -> np.dtype[Any]:
    fields: list[Any] = [(name, "i8") for name in view.__annotations__]
    fields += [(name, dtype, shape) for name, (dtype, shape) in arrays.items()]
    return np.dtype((np.record, np.dtype(fields)))


CPU = _record(Cpu)
LIVE = _record(Live)
SIM = _record(
    Sim,
    cost=(np.dtype("i8"), (len(COSTS) * QUANTILES,)),
    over=(np.dtype("i8"), (MAX_CPUS,)),  # CPUs of each LLC with two tasks or more
    tree=(np.dtype("i8"), (Tree.NODES,)),
    cpus=(CPU, (MAX_CPUS,)),
)

#: A mailbox: its messages (first, last) and the tasks that wait for one.
BOX = np.dtype(
    (
        np.record,
        np.dtype(
            [(name, "i8") for name in ("head", "tail", "n", "waiter", "last_waiter")],
        ),
    )
)

#: A row of the output; the columns of the table `events` without `buffer`.
EVENT = np.dtype(
    (
        np.record,
        np.dtype(
            [
                ("ts", "i8"),
                ("value", "i8"),
                ("cpu", "i4"),
                ("pid", "i4"),
                ("subject", "i4"),
                ("other", "i4"),
                ("cpu_to", "i4"),
                ("cpu_from", "i4"),
                ("prio", "i2"),
                ("other_prio", "i2"),
                ("state", "u2"),
                ("kind", "u1"),
                ("ctx", "u1"),
            ]
        ),
    )
)

#: A booking that met another on a CPU that looked idle, or that was met; bookings of the waker's
#: own CPU, which need not look idle, are none. `episode`: row of the one that looked first; `kind`:
#: 0 one that looked earlier was not visible, 1 all were (the false-idle window of kernels up to
#: 6.1), -1 the first itself. Which of them came second: ``_sim_truth``.
TRUTH = np.dtype(
    (
        np.record,
        np.dtype(
            [
                (name, "i8")
                for name in (
                    "episode", "kind", "cpu", "wakee", "waker", "this_cpu", "waking_ts", "look_ts",
                    "visible_ts", "wakeup_ts", "run_ts",
                )
            ]
        ),
    )
)  # fmt: skip
