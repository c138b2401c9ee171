"""The event loop of the machine model: what is next, on which CPU, and what it does.

Everything is in the arrays that are handed in, so a run can be cut into batches at will: the loop
stops when the output is nearly full and goes on where it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana._jit import numba, step
from traceana._pelt_kernels import pelt_enqueue, pelt_seed
from traceana._sim_interrupt_kernels import (
    interrupt,
    leave_interrupt,
    on_enter,
    on_flush,
    on_queue,
    on_queued,
    on_tick,
    on_timer,
    ring,
)
from traceana._sim_queue_kernels import enqueue
from traceana._sim_script_kernels import on_run, wait_for_message
from traceana._sim_state import OP, Op
from traceana._sim_switch_kernels import (
    next_tick,
    on_leave,
    on_newidle,
    on_preempt,
    on_switch,
    on_vacant,
    resume,
)
from traceana._sim_time_kernels import add_timer, arm, build_tree, first_cpu, pop_timer
from traceana._sim_types import BOX, EVENT, FAR, LIVE, SIM, TRUTH, Phase, Stand
from traceana._sim_wake_kernels import add_nr, on_book, on_charge, on_look, on_show, on_wakeup
from traceana.pelt import CFS, TASK
from traceana.rules.interface import (
    DECIDE,
    MACHINES_TYPE,
    PARAMS_TYPE,
    UNCOMPILED,
    WAKEUPS_TYPE,
)

__all__ = ["DONE", "FULL", "NO_MESSAGE", "advance"]

#: Why the loop stopped: the end is reached; the output is full; messages have run out.
DONE, FULL, NO_MESSAGE = 0, 1, 2

#: Rows that one step may write.
_ROOM = 64
_RUNNING, _QUEUED, _ASLEEP, _WAKING, _DEAD = (
    Stand.RUNNING, Stand.QUEUED, Stand.ASLEEP, Stand.WAKING, Stand.DEAD,
)  # fmt: skip
_P = Phase
_IDLE, _RUN = Phase.IDLE, Phase.RUN
_LOOK, _BOOK, _SHOW, _WAKEUP = Phase.LOOK, Phase.BOOK, Phase.SHOW, Phase.WAKEUP
_WAKE_END, _LEAVE, _VACANT, _SWITCH = Phase.WAKE_END, Phase.LEAVE, Phase.VACANT, Phase.SWITCH
_FLUSH, _QUEUE, _QUEUED_PHASE = Phase.FLUSH, Phase.QUEUE, Phase.QUEUED
_TIMER, _TICK, _PREEMPT = Phase.TIMER, Phase.TICK, Phase.PREEMPT
_SEEK, _CHARGE, _ENTER = Phase.SEEK, Phase.CHARGE, Phase.ENTER
_O_NAP, _O_UNTIL, _O_RECV, _O_BLOCK = Op.NAP, Op.UNTIL, Op.RECV, Op.BLOCK

types, typeof = numba.types, numba.typeof


def _array(dtype: Any) -> Any:
    return typeof(np.zeros(1, dtype))


#: One signature for all rules: compiled once, cached.
_SIGNATURE: Any = types.int64(
    _array(SIM), MACHINES_TYPE, WAKEUPS_TYPE, _array(LIVE), _array(OP), _array(TASK), _array(CFS),
    types.int64[:, ::1], _array(BOX), types.int64[:, ::1], types.int64[:, ::1],
    _array(EVENT), _array(TRUTH), PARAMS_TYPE, DECIDE, DECIDE,
)  # fmt: skip


def _compiled(function: Any) -> Any:
    return function if UNCOMPILED else numba.njit(_SIGNATURE, nogil=True, cache=True)(function)


@step
def _start(g: Any, m: Any, T: Any, S: Any, P: Any, F: Any, B: Any, H: Any) -> None:
    """Put the tasks where they are at the beginning."""
    for c in range(g.n_cpus):
        k = g.cpus[c]
        k.phase = _IDLE
        k.at = FAR
        k.idle_since = g.now
        k.clock = g.now
    for t in range(g.n_tasks):
        e = T[t]
        c = e.cpu
        k = g.cpus[c]
        e.v += k.min_v
        e.deadline = e.v + g.slice * 1024 // e.weight
        if e.prio >= 100 and e.stand != 0:
            pelt_seed(P, t, F, c, g.now, P[t].util_avg, P[t].util_avg)
        if e.stand == _RUNNING and k.curr < g.n_tasks:
            e.stand = _QUEUED  # somebody runs there already
        if e.stand == _RUNNING or e.stand == _QUEUED:
            add_nr(g, m, T, c, t, 1)
            if e.prio >= 100:
                pelt_enqueue(P, t, F, c, g.now)
        if e.stand == _RUNNING:
            s = m.cpus[c]
            s.idle = 0
            s.curr = t
            s.curr_dur = e.dur_avg
            s.curr_flips = e.flips
            k.curr = t
            k.clock = g.now
            k.tick_at = next_tick(g, c)
            e.exec_start = g.now
            e.picked_sum = e.sum_exec
            e.fresh_deadline = e.deadline
            if e.prio >= 100:
                P[t].running = 1
                F[c].running = 1
        elif e.stand == _QUEUED:
            enqueue(g, T, c, t)
        elif e.stand == _WAKING:
            if e.op < e.end and S[e.op].code >= _O_BLOCK and S[e.op].code <= _O_UNTIL:
                e.op += 1
            e.in_list = -1
            if k.list_tail >= 0:
                T[k.list_tail].in_list = t
            else:
                k.list_head = t
            k.list_tail = t
            k.ipi_at = g.now
            m.cpus[c].pending = 1
            if g.window == 0:
                m.cpus[c].booked += 1
        elif e.stand == _ASLEEP and e.op < e.end:
            code = S[e.op].code
            e.timer_cpu = c
            if code == _O_NAP:
                add_timer(g, H, t, g.now + max(e.left if e.left >= 0 else S[e.op].value, 1))
            elif code == _O_UNTIL:
                if 0 <= S[e.op].task < g.n_cpus:
                    e.timer_cpu = S[e.op].task
                add_timer(g, H, t, max(S[e.op].value, g.now + 1))
            elif code == _O_RECV:
                wait_for_message(T, B, t, S[e.op].task)
            e.left = -1
    for c in range(g.n_cpus):
        k = g.cpus[c]
        if k.curr < g.n_tasks:
            resume(g, m, T, c)
        elif k.queued > 0:
            k.ipi_at = g.now
        k.next = FAR
    build_tree(g)
    for c in range(g.n_cpus):
        arm(g, c)


@_compiled
def advance(
    sims: Any, machines: Any, wakeups: Any, T: Any, S: Any, P: Any, F: Any, A: Any, B: Any,
    N: Any, H: Any, E: Any, L: Any, p: Any, decide: Any, mainline: Any,
) -> int:  # fmt: skip
    """Run the model until ``until``, or until the output is full.

    Parameters
    ----------
    sims : SIM[1]; machines : MACHINE[1]; wakeups : WAKEUP[1]
    T : LIVE[tasks + cpus]; S : OP[m]; P : pelt.TASK[tasks + cpus]; F : pelt.CFS[cpus]
    A : int64[sets, words], allowed CPUs as bits
    B : BOX[boxes]; N : int64[n, 2], messages; H : int64[tasks + 1, 2], timers
    E : EVENT[n], written from row 0; L : TRUTH[k]
    p : int64[:]; decide, mainline : DECIDE; the second is asked where the first has no answer
    """
    g = sims[0]
    m = machines[0]
    w = wakeups[0]
    g.n_out = 0
    if g.started == 0:
        g.started = 1
        _start(g, m, T, S, P, F, B, H)
    room = E.shape[0] - _ROOM
    while True:
        if g.n_out > room:
            return FULL
        at = g.tree[1]
        if g.timers > 0 and H[0, 0] <= at:
            if H[0, 0] >= g.until:
                return DONE
            g.now = max(g.now, H[0, 0])
            t = pop_timer(g, H)
            ring(g, T, t)
            arm(g, T[t].timer_cpu)
            continue
        if at >= g.until:
            return DONE
        g.now = max(g.now, at)
        c = first_cpu(g)
        k = g.cpus[c]
        phase = k.phase
        if phase <= _RUN:
            if k.irqs_on <= g.now and min(k.ipi_at, min(k.tick_at, k.due_at)) <= g.now:
                interrupt(g, m, T, E, c)
            else:
                on_run(g, m, T, S, P, F, A, B, N, H, E, c)
                if g.error != 0:
                    g.error = 0
                    return NO_MESSAGE
        elif phase == _LOOK:
            on_look(g, m, w, T, P, F, A, L, c, p, decide, mainline)
        elif phase == _BOOK:
            on_book(g, m, T, E, c)
        elif phase == _CHARGE:
            on_charge(g, T, E, c)
        elif phase == _SHOW:
            on_show(g, m, T, L, c)
        elif phase == _WAKEUP:
            on_wakeup(g, m, T, P, F, E, L, c)
        elif phase == _WAKE_END:
            if k.irq != 0 or k.resched != 0:
                leave_interrupt(g, m, T, c)
            else:
                resume(g, m, T, c)
        elif phase == _LEAVE:
            on_leave(g, m, T, P, F, A, E, c)
        elif phase == _VACANT:
            on_vacant(g, m, T, P, F, c)
        elif phase == _SWITCH:
            on_switch(g, m, T, P, F, E, L, c)
        elif phase == _FLUSH:
            on_flush(g, m, c)
        elif phase == _QUEUE:
            on_queue(g, m, T, P, F, E, c)
        elif phase == _ENTER:
            on_enter(g, m, T, P, F, c)
        elif phase == _QUEUED_PHASE:
            on_queued(g, m, T, E, L, c)
        elif phase == _TIMER:
            on_timer(g, m, T, E, c)
        elif phase >= _SEEK:
            on_newidle(g, m, T, P, F, A, E, c)
        elif phase == _TICK:
            on_tick(g, m, T, P, F, A, E, c)
        else:
            on_preempt(g, m, T, P, F, E, c)
        arm(g, c)
