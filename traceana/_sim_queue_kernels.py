"""Run queues: in which order the tasks of a CPU run (section 9 of the semantics).

CFS up to 6.5: the task of the smallest vruntime, with next, last and skip buddies; a wakee
preempts when it is behind by more than the wakeup granularity. EEVDF since 6.6: of the eligible
tasks (vruntime at most the weighted average) the one with the earliest deadline; the current task
runs on to its first deadline (RUN_TO_PARITY) while it is eligible.

A queue is a doubly linked list in the order of `key`: vruntime under CFS, deadline under EEVDF;
real-time tasks stand before all, by priority. Among equals the first come. The current task is
not in it.
"""

from __future__ import annotations

from typing import Any

from traceana._jit import step
from traceana._sim_events_kernels import emit_runtime
from traceana._sim_types import Phase

__all__ = [
    "arrive",
    "average_v",
    "charge",
    "dequeue",
    "eligible_now",
    "enqueue",
    "forget",
    "is_fair",
    "keep_lag",
    "pick",
    "place",
    "preempts",
    "slice_over",
    "yield_now",
]

#: Before every vruntime and deadline.
_RT_KEY = -(1 << 61)
_NICE_0 = 1024
_BATCH, _IDLE_POLICY = 3, 5
_LEAVE = Phase.LEAVE
#: A sleeper of this long is placed without regard to its own vruntime (entity_is_long_sleeper()).
_LONG_SLEEP = 60_000_000_000


@step
def is_fair(T: Any, t: int) -> bool:
    return T[t].prio >= 100


@step
def _scaled(delta: int, weight: int) -> int:
    """calc_delta_fair(): CPU time as vruntime."""
    return delta if weight == _NICE_0 else delta * _NICE_0 // weight


@step
def enqueue(g: Any, T: Any, c: int, t: int) -> None:
    """Put a task into the queue, behind all whose key is not larger."""
    k = g.cpus[c]
    e = T[t]
    if e.prio < 100:
        e.key = _RT_KEY + e.prio
    elif g.eevdf != 0:
        e.key = e.deadline
    else:
        e.key = e.v
    after = k.tail
    while after >= 0 and T[after].key > e.key:
        after = T[after].prev
    e.prev = after
    if after >= 0:
        e.next = T[after].next
        T[after].next = t
    else:
        e.next = k.head
        k.head = t
    if e.next >= 0:
        T[e.next].prev = t
    else:
        k.tail = t
    k.queued += 1
    if e.prio >= 100:
        k.weight += e.weight


@step
def arrive(g: Any, T: Any, c: int, t: int) -> None:
    """Put a task that comes from elsewhere into the queue."""
    k = g.cpus[c]
    if k.queued == 0 and (k.curr >= g.n_tasks or k.chosen >= g.n_tasks):
        # schedule() will skip its clock update (rq_clock_skip_update()): the task's run time
        # counts from here.
        k.clock = g.now
    enqueue(g, T, c, t)


@step
def forget(g: Any, c: int, t: int) -> None:
    """clear_buddies()."""
    k = g.cpus[c]
    if k.next_buddy == t:
        k.next_buddy = -1
    if k.last_buddy == t:
        k.last_buddy = -1
    if k.skip_buddy == t:
        k.skip_buddy = -1


@step
def dequeue(g: Any, T: Any, c: int, t: int) -> None:
    """Take a task out of the queue."""
    k = g.cpus[c]
    e = T[t]
    if e.prev >= 0:
        T[e.prev].next = e.next
    else:
        k.head = e.next
    if e.next >= 0:
        T[e.next].prev = e.prev
    else:
        k.tail = e.prev
    e.prev = -1
    e.next = -1
    k.queued -= 1
    if e.prio >= 100:
        k.weight -= e.weight


@step
def _first_fair(g: Any, T: Any, c: int) -> int:
    t: Any = g.cpus[c].head
    while t >= 0 and T[t].prio < 100:
        t = T[t].next
    return t


@step
def _fair_queued(g: Any, T: Any, c: int) -> int:
    """How many of the queued tasks are fair (real-time ones stand in front)."""
    k = g.cpus[c]
    n = k.queued
    t: Any = k.head
    while t >= 0 and T[t].prio < 100:
        n -= 1
        t = T[t].next
    return int(n)


@step
def _heir(g: Any, c: int) -> int:
    """Who counts as current: up to the record of a switch the task that has been chosen already.

    The kernel holds the queue's lock from the choice to the end of the switch, so nobody else sees
    the time in between.
    """
    k = g.cpus[c]
    t: Any = k.chosen
    if t < 0 or t >= g.n_tasks:
        t = k.curr
    return int(t)


@step
def _current(g: Any, T: Any, c: int) -> int:
    """The current task if it is fair and runnable, else -1."""
    t = _heir(g, c)
    if t < g.n_tasks and T[t].prio >= 100 and T[t].stand == 1:
        return t
    return -1


@step
def average_v(g: Any, T: Any, c: int) -> tuple[int, int]:
    """avg_vruntime(): the weighted average of the queue and the current task, floored; the weight."""
    curr = _current(g, T, c)
    t = _first_fair(g, T, c)
    if curr < 0 and t < 0:
        return g.cpus[c].min_v, 0
    base = T[curr].v if curr >= 0 else T[t].v
    total = 0
    weight = 0
    if curr >= 0:
        weight = T[curr].weight
    while t >= 0:
        total += T[t].weight * (T[t].v - base)
        weight += T[t].weight
        t = T[t].next
    return base + total // weight, weight


@step
def _advance_min(g: Any, T: Any, c: int) -> None:
    """update_min_vruntime(): it only grows."""
    k = g.cpus[c]
    if g.eevdf != 0:
        # Only what an empty queue is taken to stand at.
        if k.queued == 0 and _current(g, T, c) >= 0:
            k.min_v = max(k.min_v, T[k.curr].v)
        return
    curr = _current(g, T, c)
    t = _first_fair(g, T, c)
    if curr < 0 and t < 0:
        return
    v = k.min_v
    if curr >= 0 and t >= 0:
        v = min(T[curr].v, T[t].v)
    elif curr >= 0:
        v = T[curr].v
    else:
        v = T[t].v
    k.min_v = max(k.min_v, v)


@step
def charge(g: Any, T: Any, E: Any, c: int, on: int) -> bool:
    """update_curr(): what the current task has run; sched_stat_runtime, recorded on CPU `on`.

    Returns whether there was something to record.
    """
    k = g.cpus[c]
    t = k.curr
    if t >= g.n_tasks or k.chosen >= 0:
        return False  # once the next one is chosen the last one's time has been told
    e = T[t]
    ran = g.now - e.exec_start
    if ran <= 0:
        return False
    if e.stand != 1:
        # It leaves the CPU: schedule() holds the lock, unless it looks for work elsewhere. The next
        # one's time counts from this update of the queue's clock on.
        if k.phase == _LEAVE and k.chosen == -1:
            return False
        k.clock = g.now
    e.exec_start = g.now
    e.sum_exec += ran
    if e.prio < 100:
        return False
    e.v += _scaled(ran, e.weight)
    if g.eevdf != 0 and e.v >= e.deadline:
        e.deadline = e.v + _scaled(g.slice, e.weight)
        if _first_fair(g, T, c) >= 0:
            k.resched = 1
    _advance_min(g, T, c)
    emit_runtime(g, T, E, on, t, ran)
    return True


@step
def keep_lag(g: Any, T: Any, c: int, t: int) -> None:
    """update_entity_lag(): what a task that leaves the queue is owed; the task still counts."""
    if g.eevdf == 0:
        return
    v, _ = average_v(g, T, c)
    e = T[t]
    limit = _scaled(max(2 * g.slice, g.tick), e.weight)
    e.lag = max(-limit, min(v - e.v, limit))


@step
def place(g: Any, T: Any, c: int, t: int, slept: int, new: int) -> None:
    """place_entity(): the vruntime (and deadline) of a task that is put on a queue.

    Under CFS `e.v` is already relative to this queue's min_vruntime (see ``settle``); `slept` is
    how long it was off the queue.
    """
    k = g.cpus[c]
    e = T[t]
    if e.prio < 100:
        return
    if g.eevdf != 0:
        v, weight = average_v(g, T, c)
        lag = 0  # nobody there: nothing to be ahead of or behind
        if weight > 0:
            # div_s64(): towards zero.
            lag = abs(e.lag) * (weight + e.weight) // weight
            if e.lag < 0:
                lag = -lag
        e.v = v - lag
        vslice = _scaled(g.slice, e.weight)
        e.deadline = e.v + (vslice // 2 if new != 0 else vslice)
        return
    if new != 0:
        e.v = k.min_v + _scaled(_slice_of(g, T, c, t), e.weight)
        return
    credit = g.min_gran if e.policy == _IDLE_POLICY else g.latency
    v = k.min_v - credit // 2
    if slept > _LONG_SLEEP:
        e.v = v
    else:
        e.v = max(e.v, v)


@step
def _slice_of(g: Any, T: Any, c: int, t: int) -> int:
    """sched_slice() under CFS: the task's part of the period, itself counted."""
    k = g.cpus[c]
    n = _fair_queued(g, T, c)
    weight = k.weight
    curr = _current(g, T, c)
    if curr >= 0:
        n += 1
        weight += T[curr].weight
    if t != curr and T[t].stand != 2:
        n += 1
        weight += T[t].weight
    period = g.latency if n * g.min_gran <= g.latency else n * g.min_gran
    return max(period * T[t].weight // max(weight, 1), g.min_gran)


@step
def slice_over(g: Any, T: Any, c: int) -> bool:
    """check_preempt_tick() under CFS: whether the current task has had its slice."""
    k = g.cpus[c]
    t = k.curr
    e = T[t]
    if e.prio < 100 or _first_fair(g, T, c) < 0:
        return False
    slice_ = _slice_of(g, T, c, t)
    ran = e.sum_exec - e.picked_sum
    if ran > slice_:
        return True
    if ran < g.min_gran:
        return False
    first = _first_fair(g, T, c)
    return first >= 0 and e.v - T[first].v > slice_


@step
def _behind(g: Any, T: Any, curr: int, t: int) -> int:
    """wakeup_preempt_entity(): 1 t should preempt, 0 it is behind a little, -1 it is ahead."""
    diff = T[curr].v - T[t].v
    if diff <= 0:
        return -1
    return 1 if diff > _scaled(g.wakeup_gran, T[t].weight) else 0


@step
def _eligible(T: Any, t: int, v: int) -> bool:
    return T[t].v <= v


@step
def eligible_now(g: Any, T: Any, c: int, t: int) -> bool:
    """entity_eligible(): not ahead of the queue's average (EEVDF)."""
    v, _ = average_v(g, T, c)
    return T[t].v <= v


@step
def _pick_eevdf(g: Any, T: Any, c: int) -> int:
    """pick_eevdf(): the eligible task of the earliest deadline, or the current one."""
    v, _ = average_v(g, T, c)
    curr = _current(g, T, c)
    if curr >= 0 and not _eligible(T, curr, v):
        curr = -1
    if g.parity != 0 and curr >= 0 and T[curr].fresh_deadline == T[curr].deadline:
        return curr
    best = _first_fair(g, T, c)
    first = best
    while best >= 0 and not _eligible(T, best, v):
        best = T[best].next
    if best < 0 or (curr >= 0 and T[curr].deadline < T[best].deadline):
        best = curr
    # Rounding may leave none eligible.
    return best if best >= 0 else first


@step
def preempts(g: Any, T: Any, c: int, t: int) -> bool:
    """check_preempt_curr(): whether the task just enqueued takes the CPU from the current one."""
    k = g.cpus[c]
    curr = _heir(g, c)
    if curr >= g.n_tasks:
        return True
    e = T[t]
    o = T[curr]
    if o.stand != 1:
        return False  # it is leaving the CPU anyway
    if e.prio < 100 or o.prio < 100:
        return e.prio < o.prio
    if o.policy == _IDLE_POLICY and e.policy != _IDLE_POLICY:
        return True
    if e.policy == _BATCH or e.policy == _IDLE_POLICY:
        return False
    if g.eevdf != 0:
        return _pick_eevdf(g, T, c) == t
    if _behind(g, T, curr, t) != 1:
        return False
    k.next_buddy = t
    if _fair_queued(g, T, c) + 1 >= (g.latency + g.min_gran - 1) // max(g.min_gran, 1):
        k.last_buddy = curr
    return True


@step
def pick(g: Any, T: Any, c: int) -> int:
    """pick_next_task(): from the queue and the current task if that is runnable; -1 nobody.

    The task stays in the queue (or current).
    """
    k = g.cpus[c]
    head = k.head
    if head >= 0 and T[head].prio < 100:
        curr_rt = k.curr < g.n_tasks and T[k.curr].stand == 1 and T[k.curr].prio <= T[head].prio
        return k.curr if curr_rt else head
    if k.curr < g.n_tasks and T[k.curr].stand == 1 and T[k.curr].prio < 100:
        return k.curr
    if g.eevdf != 0:
        return _pick_eevdf(g, T, c)
    curr = _current(g, T, c)
    left = head
    if left < 0 or (curr >= 0 and T[curr].v < T[left].v):
        left = curr
    if left < 0:
        return -1
    best = left
    if k.skip_buddy == best:
        second = head
        if best != curr:
            second = T[best].next
            if second < 0 or (curr >= 0 and T[curr].v < T[second].v):
                second = curr
        if second >= 0 and second != best and _behind(g, T, second, left) < 1:
            best = second
    # yield_form 3: buddies are compared to the second choice, not to the leftmost.
    against = best if g.yield_form == 3 else left
    if k.next_buddy >= 0 and _behind(g, T, k.next_buddy, against) < 1:
        best = k.next_buddy
    elif k.last_buddy >= 0 and _behind(g, T, k.last_buddy, against) < 1:
        best = k.last_buddy
    return best


@step
def yield_now(g: Any, T: Any, c: int, to: int) -> None:
    """sched_yield(), or yield_to() a task of the same CPU (`to` >= 0).

    CFS: the skip buddy, and the target as next buddy; ``yield_form`` 1 moves the yielder's
    vruntime by its slice, 2 by the min granularity. EEVDF: the vruntime goes to the deadline if it
    is eligible (``yield_moves``, 6.12 and later), and there is a new deadline.
    """
    k = g.cpus[c]
    t = k.curr
    e = T[t]
    if e.prio < 100:
        return
    if g.eevdf != 0:
        v, _ = average_v(g, T, c)
        if g.yield_moves == 0:
            e.deadline += _scaled(g.slice, e.weight)
        elif e.v <= v:
            e.v = e.deadline
            e.deadline += _scaled(g.slice, e.weight)
            _advance_min(g, T, c)
    else:
        if g.yield_form == 1:
            e.v += _scaled(_slice_of(g, T, c, t), e.weight)
        elif g.yield_form == 2:
            e.v += _scaled(g.min_gran, e.weight)
        k.skip_buddy = t
    if to >= 0:
        k.next_buddy = to
