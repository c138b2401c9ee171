"""schedule(): a task leaves its CPU, the next one is chosen, the switch.

In the order of section 7.8: the run time is told and the task is off the queue (``begin_sleep``);
later nr_running goes down and the next task is chosen (LEAVE), or a newidle balance is tried; the
CPU is seen as idle (VACANT) a little before the record of the switch (SWITCH); for a while after it the
task is still on_cpu. Arguments as in ``_sim_wake_kernels``.
"""

from __future__ import annotations

from typing import Any

from traceana._jit import step
from traceana._pelt_kernels import pelt_dequeue, pelt_switch
from traceana._sim_balance_kernels import arrived, looks_for_tasks, may_seek, on_pull, on_seek
from traceana._sim_events_kernels import emit_switch
from traceana._sim_queue_kernels import (
    charge,
    dequeue,
    eligible_now,
    enqueue,
    forget,
    keep_lag,
    pick,
)
from traceana._sim_state import COSTS
from traceana._sim_time_kernels import draw
from traceana._sim_types import FAR, Phase, Stand
from traceana._sim_wake_kernels import add_nr

__all__ = [
    "begin_sleep",
    "next_tick",
    "on_leave",
    "on_newidle",
    "on_preempt",
    "on_switch",
    "on_vacant",
    "resume",
]

_IDLE, _RUN, _LEAVE, _VACANT, _SWITCH, _SEEK, _PULL = (
    Phase.IDLE, Phase.RUN, Phase.LEAVE, Phase.VACANT, Phase.SWITCH, Phase.SEEK, Phase.PULL,
)  # fmt: skip
_RUNNING, _QUEUED, _ASLEEP, _DELAYED = (
    Stand.RUNNING, Stand.QUEUED, Stand.ASLEEP, Stand.DELAYED,
)  # fmt: skip
_C_EVENT, _C_OUT, _C_IN = COSTS.index("event"), COSTS.index("switch_out"), COSTS.index("switch_in")
_C_ON_CPU, _C_NEWIDLE, _C_PULL = COSTS.index("on_cpu"), COSTS.index("newidle"), COSTS.index("pull")
_C_TO_IDLE = COSTS.index("switch_idle")
#: A CPU that is about to choose looks again for who holds its lock.
_LOCK = 100


@step
def next_tick(g: Any, c: int) -> int:
    """The next tick of a CPU, strictly later than now."""
    phase = g.cpus[c].tick_phase
    return (g.now - phase) // g.tick * g.tick + g.tick + phase


@step
def resume(g: Any, m: Any, T: Any, c: int) -> None:
    """The current task goes on with its script."""
    k = g.cpus[c]
    e = T[k.curr]
    k.phase = _RUN
    k.run_from = g.now
    if e.left < 0:
        k.at = g.now
        k.pace = 1024
        return
    k.pace = 1024
    if g.smt_slow != 1024:
        o = m.cpus[c].next_sibling
        while o != c:
            if m.cpus[o].idle == 0:
                k.pace = g.smt_slow
                break
            o = m.cpus[o].next_sibling
    k.at = g.now + (e.left * k.pace >> 10)


@step
def begin_sleep(
    g: Any, m: Any, T: Any, P: Any, F: Any, E: Any, c: int, stand: int, state: int
) -> None:
    """The current task blocks (or dies): update_curr(), dequeue_task(), the sample of dur_avg."""
    k = g.cpus[c]
    t = k.curr
    e = T[t]
    charge(g, T, E, c, c)
    keep_lag(g, T, c, t)
    ran = e.sum_exec - e.slept_at_sum
    e.slept_at_sum = e.sum_exec
    if e.prio >= 100:
        change = ran - e.dur_avg
        e.dur_avg += change // 8 if change >= 0 else -(-change // 8)
    if (
        g.delay_dequeue != 0
        and stand == _ASLEEP
        and e.prio >= 100
        and k.queued > 0
        and not eligible_now(g, T, c, t)
    ):
        stand = _DELAYED
        m.cpus[c].delayed += 1
    elif e.prio >= 100:
        pelt_dequeue(P, t, F, g.now)
    e.stand = stand
    e.state = state
    e.off_at = FAR
    forget(g, c, t)
    k.resched = 0
    k.clock = g.now
    out = draw(g, _C_OUT)
    k.switch_at = g.now + out
    k.phase = _LEAVE
    # nr_running goes down a little behind the record of the run time.
    k.at = g.now + min(draw(g, _C_EVENT) * 5 // 4, out)


@step
def _choose(g: Any, m: Any, T: Any, P: Any, F: Any, c: int) -> int:
    """pick_next_task(); what is only kept on the queue as a delayed sleeper leaves it now."""
    while True:
        t = pick(g, T, c)
        if t < 0 or T[t].stand != _DELAYED:
            return t
        keep_lag(g, T, c, t)
        dequeue(g, T, c, t)
        add_nr(g, m, T, c, t, -1)
        m.cpus[c].delayed -= 1
        T[t].stand = _ASLEEP
        T[t].lag = min(T[t].lag, 0)
        pelt_dequeue(P, t, F, g.now)


@step
def _take(g: Any, T: Any, c: int, t: int) -> None:
    """set_next_entity(): the chosen task leaves the queue, nobody pulls it any more."""
    e = T[t]
    dequeue(g, T, c, t)
    e.stand = _RUNNING
    e.picked_sum = e.sum_exec
    e.fresh_deadline = e.deadline
    g.cpus[c].chosen = t


@step
def on_leave(g: Any, m: Any, T: Any, P: Any, F: Any, A: Any, E: Any, c: int) -> None:
    """The task that blocks is off the queue, and the next one is chosen."""
    k = g.cpus[c]
    gone = k.curr
    if k.chosen == -1 and gone < g.n_tasks:
        # Once: the second time round is for the lock.
        if T[gone].stand == _DELAYED:
            enqueue(g, T, c, gone)
        else:
            add_nr(g, m, T, c, gone, -1)
        k.chosen = -2
    t = _choose(g, m, T, P, F, c)
    if t < 0 and k.inflight > 0:
        k.at = g.now + _LOCK
        return
    if t >= 0:
        _take(g, T, c, t)
        k.phase = _SWITCH
        k.at = max(g.now, k.switch_at)
        return
    k.switch_at = k.clock + draw(g, _C_TO_IDLE)
    k.level = -1
    k.tried = 0
    k.left_at = g.now
    k.idle_stamp = k.clock
    k.pull_cost = draw(g, _C_PULL)
    if looks_for_tasks(g, m, c):
        # update_blocked_averages(), before any domain is looked at.
        k.level = 2
        before = draw(g, _C_NEWIDLE)
        k.switch_at += before
        k.left_at += before
    _seek_or_idle(g, m, c)


@step
def _seek_or_idle(g: Any, m: Any, c: int) -> None:
    """On to the next domain of the newidle balance, or to the idle task.

    A pull from the LLC takes ``pull_cost`` in all: a quarter to find the queue, a bit less than a
    half from the detached task's record to the switch. One from the core takes three quarters of
    that, half as long to find it (recorded, pp6: 6.0 and 4.4 µs; a look in vain 1.5 and 0.77;
    sched_migrate_task 2.7 before the switch).
    """
    k = g.cpus[c]
    if not arrived(m, c) and may_seek(g, m, c):
        k.phase = _SEEK
        k.at = max(g.now, k.left_at) + k.pull_cost // (8 if k.level == 2 else 4)
        return
    if k.tried > 0:
        k.switch_at += g.now - k.left_at
    k.phase = _VACANT
    # rq->curr is set this long before the record of the switch.
    k.at = max(g.now, k.switch_at - draw(g, _C_EVENT) * 7 // 10)


@step
def on_newidle(g: Any, m: Any, T: Any, P: Any, F: Any, A: Any, E: Any, c: int) -> None:
    """A step of the newidle balance (SEEK, PULL)."""
    k = g.cpus[c]
    if arrived(m, c):
        _seek_or_idle(g, m, c)
        return
    if k.phase == _SEEK:
        if on_seek(g, m, T, F, A, c):
            k.phase = _PULL
            k.at = g.now + k.pull_cost * (7 if k.level == 2 else 12) // 40
        else:
            _seek_or_idle(g, m, c)
        return
    t = on_pull(g, m, T, P, F, A, E, c)
    if t < 0:
        _seek_or_idle(g, m, c)
        return
    _take(g, T, c, t)
    k.clock = g.now
    k.phase = _SWITCH
    k.at = max(g.now + k.pull_cost * 9 // 20, k.switch_at)


@step
def on_vacant(g: Any, m: Any, T: Any, P: Any, F: Any, c: int) -> None:
    """The idle task becomes current, unless somebody has come meanwhile."""
    k = g.cpus[c]
    s = m.cpus[c]
    t = _choose(g, m, T, P, F, c)
    if t < 0 and k.inflight > 0:
        k.at = g.now + _LOCK
        return
    k.phase = _SWITCH
    k.at = max(g.now, k.switch_at)
    if t >= 0:
        _take(g, T, c, t)
        return
    k.chosen = g.n_tasks + c
    s.idle = 1
    s.curr = -1
    s.curr_dur = 0
    k.first = -1
    k.episode = -1
    if g.hint != 0 and m.llcs[s.llc].idle_core == 0:
        # __update_idle_core(): this CPU is taken for idle, its siblings are looked at.
        o = s.next_sibling
        while o != c:
            q = m.cpus[o]
            if q.idle == 0 or q.nr != 0 or q.pending != 0:
                return
            o = m.cpus[o].next_sibling
        m.llcs[s.llc].idle_core = 1


@step
def on_preempt(g: Any, m: Any, T: Any, P: Any, F: Any, E: Any, c: int) -> None:
    """schedule() while the current task is runnable: another one, or the same goes on."""
    k = g.cpus[c]
    charge(g, T, E, c, c)
    k.resched = 0
    prev = k.curr
    t = _choose(g, m, T, P, F, c)
    if t < 0 or t == prev:
        forget(g, c, prev)
        resume(g, m, T, c)
        return
    T[prev].stand = _QUEUED
    T[prev].state = 0
    T[prev].off_at = FAR
    _take(g, T, c, t)
    enqueue(g, T, c, prev)
    k.clock = g.now
    g.preemptions += 1
    k.phase = _SWITCH
    k.at = g.now + draw(g, _C_IN)


@step
def on_switch(g: Any, m: Any, T: Any, P: Any, F: Any, E: Any, L: Any, c: int) -> None:
    """sched_switch to the chosen task; from idle it is chosen only now."""
    k = g.cpus[c]
    s = m.cpus[c]
    prev = k.curr
    t: Any = k.chosen
    if prev >= g.n_tasks:
        t = _choose(g, m, T, P, F, c)
        k.resched = 0
        if t < 0:
            # Somebody else has pulled it.
            k.phase = _IDLE
            k.at = FAR
            return
        _take(g, T, c, t)
        k.idle_ns += g.now - k.idle_since
        change = k.clock - k.idle_stamp - k.avg_idle
        k.avg_idle += change // 8 if change >= 0 else -(-change // 8)
        k.avg_idle = min(k.avg_idle, 2 * max(g.mig_floor, k.newidle_cost))
        s.idle = 0
        k.first = -1
        k.episode = -1
    k.chosen = -1
    emit_switch(g, T, E, c, prev, t, T[prev].state if prev < g.n_tasks else 0)
    g.switches += 1
    # Interrupts are off until the switch is over, which is when on_cpu is cleared.
    k.irqs_on = g.now + draw(g, _C_ON_CPU)
    if prev < g.n_tasks:
        T[prev].off_at = k.irqs_on
    fair_prev = -1  # one that sleeps has left the sums when it went off the queue
    if prev < g.n_tasks and T[prev].prio >= 100 and P[prev].cpu == c and P[prev].on_rq != 0:
        fair_prev = prev
    fair_next = t if t < g.n_tasks and T[t].prio >= 100 else -1
    # The kernel's clock of both is that of schedule(), before the record.
    pelt_switch(P, fair_prev, fair_next, False, F, c, max(k.clock, F[c].last_update))
    k.curr = t
    if t >= g.n_tasks:
        k.idle_since = g.now
        k.phase = _IDLE
        k.at = FAR
        if k.queued > 0:
            k.ipi_at = min(k.ipi_at, g.now)
        return
    e = T[t]
    s.curr = t
    s.curr_dur = e.dur_avg
    s.curr_flips = e.flips
    e.exec_start = k.clock
    forget(g, c, t)
    if k.tick_at >= FAR:
        k.tick_at = next_tick(g, c)
    e.booked = -1
    if e.row >= 0:
        if L[e.row].wakee == t:
            L[e.row].run_ts = g.now
        e.row = -1
    if k.queued == 0:
        k.resched = 0
    resume(g, m, T, c)
