"""What tasks do: their scripts, mailboxes and sleeps.

A step of the script that takes no time is followed at once by the next one; a wakeup, a sleep or a
stretch of CPU time ends the stretch. Wakes are tokens: one of a task that is not asleep waits for
its next BLOCK. A message to whom nobody waits, and an answer to whoever does not sleep, wake nobody:
the list of those who wait is empty, try_to_wake_up() is not called, and it takes no time of its
own. Arguments as in ``_sim_wake_kernels``; S OP[m], B BOX[boxes], N int64[n, 2] messages
(sender, next; the free ones are a list), H timers.
"""

from __future__ import annotations

from typing import Any

from traceana._jit import step
from traceana._sim_queue_kernels import charge, yield_now
from traceana._sim_state import COSTS, Op
from traceana._sim_switch_kernels import begin_sleep, resume
from traceana._sim_time_kernels import add_timer, arm, draw
from traceana._sim_types import Phase, Row, Stand
from traceana._sim_wake_kernels import allowed_on, begin_wake
from traceana.rules._path_kernels import idle_cpu

__all__ = ["on_run", "wait_for_message"]

_RUN, _PREEMPT, _WAKE_END, _CHARGE = Phase.RUN, Phase.PREEMPT, Phase.WAKE_END, Phase.CHARGE
_UNBORN, _RUNNING, _QUEUED, _ASLEEP = Stand.UNBORN, Stand.RUNNING, Stand.QUEUED, Stand.ASLEEP
_WAKING, _DELAYED, _DEAD = Stand.WAKING, Stand.DELAYED, Stand.DEAD
_O_RUN, _O_WAKE, _O_BLOCK, _O_NAP, _O_UNTIL = Op.RUN, Op.WAKE, Op.BLOCK, Op.NAP, Op.UNTIL
_O_SEND, _O_RECV, _O_REPLY, _O_FORK = Op.SEND, Op.RECV, Op.REPLY, Op.FORK
_O_YIELD, _O_YIELD_TO, _O_EXIT, _O_STEP = Op.YIELD, Op.YIELD_TO, Op.EXIT, Op.STEP
_SYNC = Op.SYNC
_SLEEP, _GONE = Row.SLEEP, Row.DEAD
_C_NONE, _C_IPI, _C_OUT = COSTS.index("wake_none"), COSTS.index("ipi"), COSTS.index("switch_out")
_C_BOOK = COSTS.index("book")
_KIND_FORK = 4
#: Steps that take no time, one after the other, before a script is taken to run in circles.
_ROUNDS = 10_000
#: What such a script is charged.
_STUCK_NS = 1000
#: Messages have run out.
_NO_MESSAGE = 1


@step
def wait_for_message(T: Any, B: Any, t: int, box: int) -> None:
    """Put a task at the end of those that wait at a mailbox."""
    b = B[box]
    e = T[t]
    e.box = box
    e.in_list = -1
    if b.last_waiter >= 0:
        T[b.last_waiter].in_list = t
    else:
        b.waiter = t
    b.last_waiter = t


@step
def _unsent(g: Any, T: Any, B: Any, N: Any, box: int, sender: int) -> int:
    """Put a message into a mailbox; returns who waits there first (and is taken off), or -1."""
    b = B[box]
    i = g.free
    g.free = N[i, 1]
    N[i, 0] = sender
    N[i, 1] = -1
    if b.tail >= 0:
        N[b.tail, 1] = i
    else:
        b.head = i
    b.tail = i
    b.n += 1
    t = b.waiter
    if t >= 0:
        b.waiter = T[t].in_list
        if b.waiter < 0:
            b.last_waiter = -1
        T[t].in_list = -1
        T[t].box = -1
    return t


@step
def _received(g: Any, T: Any, B: Any, N: Any, box: int, t: int) -> bool:
    """Take a message, if there is one: the sender is remembered."""
    b = B[box]
    i = b.head
    if i < 0:
        return False
    T[t].sender = N[i, 0]
    b.head = N[i, 1]
    if b.head < 0:
        b.tail = -1
    b.n -= 1
    N[i, 1] = g.free
    g.free = i
    return True


@step
def _waits_for_wake(T: Any, S: Any, t: int) -> bool:
    """Whether a task sleeps in a BLOCK."""
    e = T[t]
    if (e.stand != _ASLEEP and e.stand != _DELAYED) or e.woken != 0:
        return False
    return bool(e.op < e.end and S[e.op].code == _O_BLOCK)


@step
def _token(g: Any, T: Any, t: int) -> None:
    """A wake that came early waits for the next BLOCK."""
    if T[t].stand != _DEAD:
        T[t].tokens += 1
        T[t].early += 1
        g.tokens_made += 1


@step
def _wake(g: Any, T: Any, S: Any, E: Any, c: int, t: int, sync: int) -> None:
    """A WAKE of the script: a wakeup, or a token for later."""
    k = g.cpus[c]
    if _waits_for_wake(T, S, t):
        g.tokens_made += 1
        g.tokens_used += 1
        T[t].op += 1
        T[t].bursts += 1
        begin_wake(g, T, E, c, t, sync)
        return
    _token(g, T, t)
    k.phase = _WAKE_END
    k.at = g.now + draw(g, _C_NONE)


@step
def _fork(g: Any, m: Any, T: Any, A: Any, c: int, t: int) -> None:
    """wake_up_new_task(): an idle CPU of the LLC, else this one."""
    k = g.cpus[c]
    e = T[t]
    d = c
    o: Any = c
    m.booked_counts = 1 if g.window == 0 else 0
    for _ in range(m.llcs[m.cpus[c].llc].weight):
        o = m.cpus[o].next_llc
        if idle_cpu(m, o) and allowed_on(T, A, t, o):
            d = o
            break
    m.booked_counts = 0
    if not allowed_on(T, A, t, d):
        for other in range(g.n_cpus):
            if allowed_on(T, A, t, other):
                d = other
                break
    e.stand = _WAKING
    e.cpu = d
    e.recent = d
    e.waking_ts = g.now
    e.waker = k.curr
    k.wakee = t
    k.wake_from = g.now
    k.wake_cost = 0
    k.wake_to = d
    k.wake_kind = _KIND_FORK
    k.remote = 0
    k.wake_end = g.now
    k.phase = _CHARGE
    k.at = g.now + draw(g, _C_BOOK)


@step
def _yield(g: Any, T: Any, E: Any, c: int, to: int) -> None:
    k = g.cpus[c]
    g.yields += 1
    charge(g, T, E, c, c)
    near = -1
    if to >= 0:
        if T[to].cpu == c:
            near = to
        else:
            o = g.cpus[T[to].cpu]
            o.next_buddy = to
            o.resched = 1
            o.ipi_at = min(o.ipi_at, g.now + draw(g, _C_IPI))
            arm(g, T[to].cpu)
    yield_now(g, T, c, near)
    k.phase = _PREEMPT
    k.at = g.now + draw(g, _C_OUT)


@step
def on_run(
    g: Any, m: Any, T: Any, S: Any, P: Any, F: Any, A: Any, B: Any, N: Any, H: Any, E: Any, c: int
) -> None:
    """The current task's stretch of CPU time is over: go on with its script."""
    k = g.cpus[c]
    t = k.curr
    e = T[t]
    if e.left >= 0:
        e.used += e.left
        e.left = -1
        e.op += 1
    for _ in range(_ROUNDS):
        if e.op >= e.end:
            if e.loop < 0 or e.loop >= e.end:
                begin_sleep(g, m, T, P, F, E, c, _ASLEEP, _SLEEP)
                return
            e.op = e.loop
            e.loops += 1
            e.shift += g.span
        s = S[e.op]
        code = s.code
        if code == _O_RUN:
            if s.value <= 0:
                e.op += 1
                continue
            e.left = s.value
            resume(g, m, T, c)
            return
        if code == _O_BLOCK:
            if e.tokens > 0:
                e.tokens -= 1
                g.tokens_used += 1
                e.bursts += 1
                e.op += 1
                continue
            begin_sleep(g, m, T, P, F, E, c, _ASLEEP, _SLEEP)
            return
        if code == _O_RECV:
            if _received(g, T, B, N, s.task, t):
                e.bursts += 1
                e.op += 1
                continue
            wait_for_message(T, B, t, s.task)
            begin_sleep(g, m, T, P, F, E, c, _ASLEEP, _SLEEP)
            return
        if code == _O_NAP:
            e.timer_cpu = c
            add_timer(g, H, t, g.now + max(s.value, 1))
            begin_sleep(g, m, T, P, F, E, c, _ASLEEP, _SLEEP)
            return
        if code == _O_UNTIL:
            at = s.value + e.shift
            if at <= g.now:
                e.bursts += 1
                e.op += 1
                continue
            e.timer_cpu = s.task if 0 <= s.task < g.n_cpus else c
            add_timer(g, H, t, at)
            begin_sleep(g, m, T, P, F, E, c, _ASLEEP, _SLEEP)
            return
        if code == _O_STEP:
            e.steps += 1
            e.op += 1
            continue
        if code == _O_EXIT:
            e.op += 1
            begin_sleep(g, m, T, P, F, E, c, _DEAD, _GONE)
            return
        if code == _O_SEND and g.free < 0:
            g.error = _NO_MESSAGE
            k.phase = _RUN
            k.at = g.now
            return
        e.op += 1
        if code == _O_WAKE or code == _O_REPLY:
            other = s.task if code == _O_WAKE else e.sender
            if 0 <= other < g.n_tasks and other != t:
                if code == _O_REPLY and not _waits_for_wake(T, S, other):
                    _token(g, T, other)
                    continue
                _wake(g, T, S, E, c, other, s["flags"] & _SYNC)
                return
            continue
        if code == _O_SEND:
            other = _unsent(g, T, B, N, s.task, t)
            if other >= 0:
                begin_wake(g, T, E, c, other, s["flags"] & _SYNC)
                return
            continue
        if code == _O_FORK:
            if 0 <= s.task < g.n_tasks and T[s.task].stand == _UNBORN:
                _fork(g, m, T, A, c, s.task)
                return
            continue
        if code == _O_YIELD:
            _yield(g, T, E, c, -1)
            return
        if code == _O_YIELD_TO and T[s.task].stand == _QUEUED:
            # yield_to() gives up if its target runs or sleeps.
            _yield(g, T, E, c, s.task)
            return
    g.stuck += 1
    k.phase = _RUN
    k.at = g.now + _STUCK_NS
