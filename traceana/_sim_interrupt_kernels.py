"""Interrupts: other CPUs' wakeups and reschedules, timers, ticks.

They come while the idle task or a script is at work (Phase.IDLE, RUN); what comes at another time
waits. Arguments as in ``_sim_wake_kernels`` and ``_sim_script_kernels``.
"""

from __future__ import annotations

from typing import Any

from traceana._jit import step
from traceana._pelt_kernels import pelt_tick
from traceana._sim_balance_kernels import periodic
from traceana._sim_events_kernels import emit_wakeup
from traceana._sim_queue_kernels import charge, preempts, slice_over
from traceana._sim_state import COSTS
from traceana._sim_switch_kernels import next_tick, resume
from traceana._sim_time_kernels import draw
from traceana._sim_types import FAR, Phase, Stand
from traceana._sim_wake_kernels import add_nr, begin_wake, do_enqueue

__all__ = [
    "interrupt",
    "leave_interrupt",
    "on_enter",
    "on_flush",
    "on_queue",
    "on_queued",
    "on_tick",
    "on_timer",
    "ring",
]

_IDLE, _RUN, _SWITCH, _PREEMPT = Phase.IDLE, Phase.RUN, Phase.SWITCH, Phase.PREEMPT
_FLUSH, _QUEUE, _ENTER, _QUEUED, _TIMER, _TICK = (
    Phase.FLUSH, Phase.QUEUE, Phase.ENTER, Phase.QUEUED, Phase.TIMER, Phase.TICK,
)  # fmt: skip
_ASLEEP, _DELAYED = Stand.ASLEEP, Stand.DELAYED
_C_EXIT, _C_FALSE = COSTS.index("idle_exit"), COSTS.index("false_idle")
_C_ENQUEUE, _C_EVENT = COSTS.index("enqueue"), COSTS.index("event")
_C_IN = COSTS.index("switch_in")
_C_TIMER, _C_TICK = COSTS.index("timer"), COSTS.index("tick")


@step
def ring(g: Any, T: Any, t: int) -> None:
    """A task's timer is due: its CPU is interrupted."""
    e = T[t]
    k = g.cpus[e.timer_cpu]
    e.in_list = -1
    if k.due_tail >= 0:
        T[k.due_tail].in_list = t
    else:
        k.due_head = t
        k.due_at = g.now
    k.due_tail = t


@step
def leave_interrupt(g: Any, m: Any, T: Any, c: int) -> None:
    """irq_exit(): the next interrupt that waits, a reschedule, or back to what was going on."""
    k = g.cpus[c]
    if k.due_head >= 0:
        k.phase = _TIMER
        k.at = g.now + draw(g, _C_TIMER)
        return
    if k.list_head >= 0 and k.ipi_at <= g.now:
        k.ipi_at = FAR
        k.phase = _FLUSH
        k.at = g.now
        return
    k.irq = 0
    if k.curr >= g.n_tasks:
        if k.queued > 0:
            k.chosen = -1
            k.phase = _SWITCH
            k.at = g.now + draw(g, _C_IN)
            return
        k.resched = 0
        k.phase = _IDLE
        k.at = FAR
        return
    if k.resched != 0:
        k.phase = _PREEMPT
        k.at = g.now
        return
    resume(g, m, T, c)


@step
def interrupt(g: Any, m: Any, T: Any, E: Any, c: int) -> None:
    """The first interrupt that is due on an idle CPU or one at a script; the script stops."""
    k = g.cpus[c]
    idle = k.phase == _IDLE
    if not idle:
        e = T[k.curr]
        if e.left >= 0:
            done = ((g.now - k.run_from) << 10) // k.pace
            done = min(done, e.left)
            e.left -= done
            e.used += done
    k.irq = 1
    if k.tick_at <= g.now:
        charge(g, T, E, c, c)
        k.tick_at = next_tick(g, c)
        k.phase = _TICK
        k.at = g.now + draw(g, _C_TICK)
        return
    if k.due_head >= 0:
        k.phase = _TIMER
        k.at = g.now + draw(g, _C_TIMER)
        return
    k.ipi_at = FAR
    if k.list_head >= 0:
        k.phase = _FLUSH
        k.at = g.now
        if idle:
            k.at += max(draw(g, _C_EXIT) - draw(g, _C_FALSE), 0)
        return
    if idle and k.queued > 0:
        k.irq = 0
        k.chosen = -1
        k.phase = _SWITCH
        k.at = g.now + draw(g, _C_EXIT) + draw(g, _C_IN)
        return
    leave_interrupt(g, m, T, c)


@step
def on_flush(g: Any, m: Any, c: int) -> None:
    """sched_ttwu_pending(): the wakelist is taken off; up to 6.1 the flag goes down first."""
    k = g.cpus[c]
    k.flush = k.list_head
    k.list_head = -1
    k.list_tail = -1
    if g.pending_early != 0:
        m.cpus[c].pending = 0
    k.phase = _QUEUE
    k.at = g.now + draw(g, _C_FALSE)


@step
def on_queue(g: Any, m: Any, T: Any, P: Any, F: Any, E: Any, c: int) -> None:
    """One task of the list is to be enqueued: first update_curr() tells the current one's time."""
    if charge(g, T, E, c, c):
        k = g.cpus[c]
        k.phase = _ENTER
        k.at = g.now + draw(g, _C_EVENT)
        return
    on_enter(g, m, T, P, F, c)


@step
def on_enter(g: Any, m: Any, T: Any, P: Any, F: Any, c: int) -> None:
    """One task of the list is enqueued."""
    k = g.cpus[c]
    t = k.flush
    add_nr(g, m, T, c, t, 1)
    if g.window == 0:
        m.cpus[c].booked -= 1
    do_enqueue(g, m, T, P, F, c, t, 0)
    if preempts(g, T, c, t):
        k.resched = 1
    k.phase = _QUEUED
    k.at = g.now + draw(g, _C_ENQUEUE)


@step
def on_queued(g: Any, m: Any, T: Any, E: Any, L: Any, c: int) -> None:
    """Its sched_wakeup; then the next one, or the end of the interrupt."""
    k = g.cpus[c]
    t = k.flush
    g.wakeups += 1
    emit_wakeup(g, T, E, c, t, c, 0)
    if T[t].row >= 0 and L[T[t].row].wakee == t:
        L[T[t].row].wakeup_ts = g.now
    k.flush = T[t].in_list
    T[t].in_list = -1
    if k.flush >= 0:
        k.phase = _QUEUE
        k.at = g.now + draw(g, _C_EVENT)  # recording sched_wakeup
        return
    if g.pending_early == 0:
        m.cpus[c].pending = 0
    leave_interrupt(g, m, T, c)


@step
def on_timer(g: Any, m: Any, T: Any, E: Any, c: int) -> None:
    """The timer interrupt wakes the first task whose timer is due."""
    k = g.cpus[c]
    t = k.due_head
    k.due_head = T[t].in_list
    if k.due_head < 0:
        k.due_tail = -1
        k.due_at = FAR
    T[t].in_list = -1
    e = T[t]
    if e.stand == _ASLEEP or e.stand == _DELAYED:
        e.op += 1
        e.bursts += 1
        begin_wake(g, T, E, c, t, 0)
        return
    leave_interrupt(g, m, T, c)


@step
def on_tick(g: Any, m: Any, T: Any, P: Any, F: Any, A: Any, E: Any, c: int) -> None:
    """scheduler_tick(): loads, the slice, balancing."""
    k = g.cpus[c]
    t = k.curr
    if t < g.n_tasks:
        fair = T[t].prio >= 100
        charge(g, T, E, c, c)
        pelt_tick(P, t if fair and P[t].cpu == c else -1, F, c, g.now)
        if fair and g.eevdf == 0 and slice_over(g, T, c):
            k.resched = 1
    elif g.now - k.idle_since > g.tick:
        k.tick_at = FAR  # a long sleep: the tick stops
    periodic(g, m, T, P, F, A, E, c)
    leave_interrupt(g, m, T, c)
