"""A wakeup, step by step: looking, deciding, booking, and the booking becoming visible.

try_to_wake_up() of section 1.1 of the semantics. The state of the machine is read at one instant
(LOOK); the booking is seen by others later (SHOW): in between another waker may choose the same
CPU. Which of the ways a wakeup takes to the queue (wakelist, or directly) is section 1.4.

Arguments: g SIM record, m MACHINE record, w WAKEUP record, T LIVE[n + cpus] (the last ones are
the CPUs' idle tasks), P and F the load tracking of tasks and CPUs (:mod:`traceana.pelt`), A
int64[sets, words] allowed CPUs, E EVENT[], L TRUTH[], c the CPU at hand.
"""

from __future__ import annotations

from typing import Any

from traceana._jit import step
from traceana._pelt_kernels import pelt_enqueue, pelt_new, task_h_load
from traceana._sim_events_kernels import emit_migrate, emit_wakeup, emit_waking
from traceana._sim_queue_kernels import (
    arrive,
    charge,
    dequeue,
    enqueue,
    keep_lag,
    place,
    preempts,
)
from traceana._sim_state import COSTS
from traceana._sim_time_kernels import arm, draw
from traceana._sim_types import FAR, Phase, Stand
from traceana.rules._path_kernels import idle_cpu
from traceana.rules._state import Step

__all__ = [
    "add_nr",
    "allowed_on",
    "begin_wake",
    "do_enqueue",
    "on_book",
    "on_charge",
    "on_look",
    "on_show",
    "on_wakeup",
]

_LOOK, _BOOK, _CHARGE, _SHOW, _WAKEUP, _WAKE_END = (
    Phase.LOOK, Phase.BOOK, Phase.CHARGE, Phase.SHOW, Phase.WAKEUP, Phase.WAKE_END,
)  # fmt: skip
_QUEUED, _ASLEEP, _WAKING, _DELAYED = Stand.QUEUED, Stand.ASLEEP, Stand.WAKING, Stand.DELAYED
_C_LOOK, _C_SCAN, _C_BOOK = COSTS.index("look"), COSTS.index("scan"), COSTS.index("book")
_C_SHOW_R, _C_SHOW_D = COSTS.index("show_remote"), COSTS.index("show_direct")
_C_REMOTE, _C_DIRECT = COSTS.index("wake_remote"), COSTS.index("wake_direct")
_C_MIGRATE, _C_IPI = COSTS.index("wake_migrate"), COSTS.index("ipi")
_C_ENQUEUE, _C_EVENT = COSTS.index("enqueue"), COSTS.index("event")
_DECIDED, _ON_CPU, _PINNED, _KIND_DELAYED, _FORK = range(5)
_S_SIBLING = Step.SIBLING
_S_CORE, _S_CPU, _S_BUDGET, _S_FALLBACK = Step.CORE, Step.CPU, Step.BUDGET, Step.FALLBACK
#: In looks at a CPU: what comes before a scan, before a search for an idle core, and a core.
_SCAN_BEGINS, _CORES_BEGIN, _CORE_LOOKS = 5, 3, 3
_IDLE_POLICY = 5
#: A task that has been moved counts as never having run.
_COLD = -(1 << 60)
#: How long a waker waits before it looks again whether the wakee has left its CPU.
_SPIN = 50


@step
def allowed_on(T: Any, A: Any, t: int, c: int) -> bool:
    """Whether a task may run on a CPU."""
    row = T[t].allowed
    return row < 0 or ((A[row, c >> 6] >> (c & 63)) & 1) != 0


@step
def _only_cpu(g: Any, T: Any, A: Any, t: int) -> int:
    """The one CPU that a task may run on; -1: more than one."""
    row = T[t].allowed
    if row < 0:
        return -1 if g.n_cpus > 1 else 0
    found = -1
    for word in range((g.n_cpus + 63) >> 6):
        bits = A[row, word]
        if bits != 0:
            if found >= 0 or (bits & (bits - 1)) != 0:
                return -1
            found = word << 6
            while (bits & 1) == 0:
                bits = (bits >> 1) & 0x7FFFFFFFFFFFFFFF
                found += 1
    return found


@step
def add_nr(g: Any, m: Any, T: Any, c: int, t: int, by: int) -> None:
    """nr_running of a CPU changes by a task that comes or goes."""
    s = m.cpus[c]
    k = g.cpus[c]
    s.nr += by
    if by > 0 and s.nr == 2:
        g.over[s.llc] += 1
        g.overload = 1
    elif by < 0 and s.nr == 1:
        g.over[s.llc] -= 1
    if T[t].policy == _IDLE_POLICY:
        k.idlers += by
    s.sched_idle = 1 if s.nr > 0 and k.idlers == s.nr else 0


@step
def _requeue_delayed(g: Any, T: Any, c: int, t: int) -> None:
    """requeue_delayed_entity(), since 6.12: it is still queued; what it is owed by now is forgotten
    (DELAY_ZERO), so it is placed anew at the average.
    """
    e = T[t]
    keep_lag(g, T, c, t)
    e.stand = _QUEUED
    if e.lag <= 0:
        return
    e.lag = 0
    dequeue(g, T, c, t)
    place(g, T, c, t, 0, 0)
    enqueue(g, T, c, t)


@step
def do_enqueue(g: Any, m: Any, T: Any, P: Any, F: Any, c: int, t: int, new: int) -> None:
    """enqueue_task() of a task that wakes; the run time of the current one has been told."""
    e = T[t]
    e.woken = 0
    if e.stand == _DELAYED:
        _requeue_delayed(g, T, c, t)
        m.cpus[c].delayed -= 1
        return
    if e.moved != 0:
        e.v += g.cpus[c].min_v
        e.moved = 0
        e.exec_start = _COLD
    place(g, T, c, t, g.now - e.exec_start if e.exec_start > 0 else 0, new)
    if e.prio >= 100:
        if new != 0:
            pelt_new(P, t, F, c, g.now)
        else:
            pelt_enqueue(P, t, F, c, g.now)
    e.stand = _QUEUED
    arrive(g, T, c, t)


@step
def begin_wake(g: Any, T: Any, E: Any, c: int, t: int, sync: int) -> None:
    """sched_waking of a task that sleeps, by what runs on CPU c."""
    k = g.cpus[c]
    e = T[t]
    emit_waking(g, T, E, c, t)
    if e.stand == _ASLEEP:
        e.stand = _WAKING
        k.wake_kind = _DECIDED
    else:
        k.wake_kind = _KIND_DELAYED
        e.woken = 1
    e.waking_ts = g.now
    e.wakes += 1
    e.waker = k.curr
    e.from_cpu = c
    k.wakee = t
    k.found = 0
    k.wake_from = g.now
    k.wake_cost = 0
    k.scanned = 0
    k.wake_sync = sync
    k.phase = _LOOK
    k.at = g.now + draw(g, _C_LOOK)


@step
def _record_wakee(g: Any, T: Any, waker: int, t: int) -> None:
    """record_wakee() (section 2.1)."""
    a = T[waker]
    j = g.now // g.tick
    if j > a.flips_j + g.hz:
        a.flips >>= 1
        a.flips_j = j
    if a.last_wakee != t:
        a.last_wakee = t
        a.flips += 1


@step
def _scanned(g: Any, m: Any, w: Any, cpu: int) -> int:
    """How long the search took beyond the shortest that moves a task, in looks at a CPU ("scan").

    From when each step reads what (``_replay_changes.Offsets``, measured on 6.1; a look takes 63
    ns): the shortest takes recent_used_cpu; a sibling is read 50 ns behind that, the scan begins
    295 behind it, the search for an idle core 200, and takes 190 a core.
    """
    if w.step == _S_SIBLING:
        return 1
    if w.step < _S_CORE or w.step > _S_FALLBACK:
        return 0
    llc = m.llcs[m.cpus[w.target].llc]
    threads = 1
    o = m.cpus[w.target].next_sibling
    while o != w.target:
        threads += 1
        o = m.cpus[o].next_sibling
    cores = llc.weight // threads
    ahead = g.cpus[cpu].rank - g.cpus[w.target].rank
    if ahead <= 0:
        ahead += llc.weight
    if w.step == _S_CPU:
        return _SCAN_BEGINS + ahead
    if w.step == _S_BUDGET:
        return _SCAN_BEGINS + max(llc.nr_idle_scan, 0)
    if w.step == _S_CORE:
        return _CORES_BEGIN + _CORE_LOOKS * min(ahead, cores)
    return _CORES_BEGIN + _CORE_LOOKS * cores


@step
def _ask(
    g: Any, m: Any, w: Any, T: Any, P: Any, F: Any, A: Any, c: int, p: Any, decide: Any,
    mainline: Any,
) -> int:  # fmt: skip
    """Let the rule decide; what the kernel changes beside is changed.

    A scan reads CPUs one by one: how long it goes on is found by deciding at its begin, what it
    finds by deciding again when it is over (-1 until then).
    """
    k = g.cpus[c]
    t = k.wakee
    a = k.curr
    e = T[t]
    o = T[a]
    if k.scanned == 0:
        _record_wakee(g, T, a, t)
    prev = e.cpu
    w.ts = g.now
    w.waker = a
    w.wakee = t
    w.this_cpu = c
    w.prev_cpu = prev
    w.recent_cpu = e.recent
    w.recorded_cpu = -1
    w.waker_dur = o.dur_avg
    w.wakee_dur = e.dur_avg
    w.waker_flips = o.flips
    w.wakee_flips = e.flips
    w.waker_load = 0
    if a < g.n_tasks and o.prio >= 100:
        w.waker_load = task_h_load(P[a], F[c])
    w.wakee_load = task_h_load(P[t], F[prev])
    w.wakee_util = P[t].util_avg
    m.cpus[c].load = F[c].load_avg
    m.cpus[prev].load = F[prev].load_avg
    w.restricted = 0
    if e.allowed >= 0:
        w.restricted = 1
        for i in range((g.n_cpus + 63) >> 6):
            w.allowed[i] = A[e.allowed, i]
    w.sync = k.wake_sync
    w.task_ctx = 1 if k.irq == 0 else 0
    w.waker_percpu_kthread = o.percpu_kthread
    w.waker_last_is_wakee = 1
    w.wakee_last_is_waker = 1 if e.last_wakee == a else 0
    w.wakee_sched_idle = 1 if e.policy == _IDLE_POLICY else 0
    w.step = 0
    m.booked_counts = 1 if g.window == 0 else 0
    cpu, _ = decide(w, m, p)
    if cpu < 0:
        cpu, _ = mainline(w, m, p)
    m.booked_counts = 0
    if k.scanned == 0:
        steps = _scanned(g, m, w, cpu)
        if steps > 0:
            k.scanned = draw(g, _C_SCAN) * steps
            if k.scanned > 0:
                return -1
    if w.hint_cleared != 0:
        m.llcs[m.cpus[w.target].llc].idle_core = 0
    e.recent = w.recent_after
    if w.waker_recent_after >= 0:
        o.recent = w.waker_recent_after
    if not 0 <= cpu < g.n_cpus or not allowed_on(T, A, t, cpu):
        cpu = prev
        for other in range(g.n_cpus):
            if allowed_on(T, A, t, cpu):
                break
            cpu = other
    return cpu


@step
def _real_time_cpu(g: Any, m: Any, T: Any, A: Any, t: int) -> int:
    """select_task_rq_rt(), roughly: prev_cpu, unless a task of no lower priority runs there."""
    prev = T[t].cpu
    k = g.cpus[prev]
    if k.curr >= g.n_tasks or T[k.curr].prio > T[t].prio:
        return prev
    for c in range(g.n_cpus):
        if m.cpus[c].online != 0 and allowed_on(T, A, t, c):
            o = g.cpus[c].curr
            if o >= g.n_tasks or T[o].prio > T[t].prio:
                return c
    return prev


@step
def _note_truth(g: Any, T: Any, L: Any, task: int, episode: int, kind: int, cpu: int) -> int:
    """A row of the truth; kind as in TRUTH. Returns it, -1 when there is no room."""
    i = g.n_truth
    if i >= L.shape[0]:
        return -1
    g.n_truth += 1
    e = T[task]
    row = L[i]
    row.episode = i if episode < 0 else episode
    row.kind = kind
    row.cpu = cpu
    row.wakee = task
    row.waker = e.waker
    row.this_cpu = e.from_cpu
    row.waking_ts = e.waking_ts
    row.look_ts = e.look_ts
    row.visible_ts = e.show_ts
    row.wakeup_ts = -1
    row.run_ts = -1
    e.row = i
    return i


@step
def _book_idle(g: Any, m: Any, T: Any, L: Any, d: int, t: int) -> None:
    """Keep account of the bookings of an idle CPU by others: which one meets another."""
    k = g.cpus[d]
    T[t].booked = d
    if k.first < 0 or T[k.first].booked != d:
        # None yet, or it was pulled elsewhere and has run there.
        k.first = t
        k.episode = -1
        return
    kind = 0 if k.unseen > 0 else 1
    if kind == 0:
        g.unseen_double += 1
    else:
        g.false_double += 1
    if k.episode < 0:
        k.episode = _note_truth(g, T, L, k.first, -1, -1, d)
    _note_truth(g, T, L, t, k.episode, kind, d)


@step
def on_look(
    g: Any, m: Any, w: Any, T: Any, P: Any, F: Any, A: Any, L: Any, c: int, p: Any,
    decide: Any, mainline: Any,
) -> None:  # fmt: skip
    """The instant at which the waker looks: at the wakee, then at the CPUs."""
    k = g.cpus[c]
    t = k.wakee
    e = T[t]
    home = e.cpu
    e.show_ts = -1
    if k.wake_kind == _KIND_DELAYED and e.off_at <= g.now:
        # ttwu_runnable(): the queue's lock is there once the switch away from the task is over.
        if e.stand == _DELAYED:
            k.wake_to = home
            k.remote = 0
            k.phase = _CHARGE
            k.at = g.now + draw(g, _C_SHOW_D)
            return
        # Its CPU has dequeued it meanwhile.
        k.wake_kind = _DECIDED
        e.stand = _WAKING
    if e.off_at > g.now:
        apart = m.cpus[home].llc != m.cpus[c].llc and g.wakelist >= 0
        listed = apart or (g.wakelist >= 1 and m.cpus[home].nr == 0)
        if home != c and listed and k.wake_kind != _KIND_DELAYED:
            # Step 6: it goes on the list of the CPU that is still switching away from it.
            k.wake_kind = _ON_CPU
            k.wake_to = home
            k.remote = 1
            k.wake_end = k.wake_from + k.wake_cost + draw(g, _C_REMOTE)
            k.phase = _SHOW
            k.at = g.now + draw(g, _C_SHOW_R)
            return
        until = e.off_at if e.off_at < FAR else max(g.cpus[home].at, g.now) + _SPIN
        k.wake_cost += until - g.now
        k.at = until
        return
    e.look_ts = g.now
    only = _only_cpu(g, T, A, t)
    if only >= 0:
        k.wake_kind = _PINNED
        k.wake_to = only
    elif e.prio < 100:
        k.wake_to = _real_time_cpu(g, m, T, A, t)
    else:
        k.wake_to = _ask(g, m, w, T, P, F, A, c, p, decide, mainline)
        d = k.wake_to
        if d < 0:
            k.wake_cost += k.scanned
            k.at = g.now + k.scanned
            return
        if d != c and idle_cpu(m, d) and (g.window != 0 or m.cpus[d].booked == 0):
            _book_idle(g, m, T, L, d, t)
            k.found = 1
            g.cpus[d].unseen += 1
    m.cpus[k.wake_to].booked += 1
    k.phase = _BOOK
    k.at = g.now + draw(g, _C_BOOK)


@step
def on_book(g: Any, m: Any, T: Any, E: Any, c: int) -> None:
    """sched_migrate_task if the task moves, and which way it goes to its queue."""
    k = g.cpus[c]
    t = k.wakee
    e = T[t]
    d = k.wake_to
    moved = d != e.cpu
    if moved:
        emit_migrate(g, T, E, c, t, e.cpu, d)
        g.migrations += 1
        if m.cpus[d].llc != m.cpus[e.cpu].llc:
            g.far_migrations += 1
        if e.prio >= 100 and g.eevdf == 0:
            e.v -= g.cpus[e.cpu].min_v
            e.moved = 1
        e.exec_start = _COLD
        e.cpu = d
    apart = m.cpus[d].llc != m.cpus[c].llc and g.wakelist >= 0
    k.remote = 0
    if d != c and (apart or (g.wakelist == 2 and m.cpus[d].nr == 0)):
        k.remote = 1
        k.wake_end = k.wake_from + k.wake_cost + draw(g, _C_REMOTE)
        if moved:
            k.wake_end += draw(g, _C_MIGRATE)
        k.phase = _SHOW
        k.at = g.now + draw(g, _C_SHOW_R)
    else:
        k.phase = _CHARGE
        k.at = g.now + draw(g, _C_SHOW_D)
    if moved:
        k.at += draw(g, _C_EVENT)  # recording sched_migrate_task


@step
def on_charge(g: Any, T: Any, E: Any, c: int) -> None:
    """The lock of the queue is held: update_curr() tells the run time of who runs there.

    Its record comes before the enqueue, and so before nr_running++ (section 7.8).
    """
    k = g.cpus[c]
    k.phase = _SHOW
    k.at = g.now
    if charge(g, T, E, k.wake_to, c):
        k.at += draw(g, _C_EVENT)


@step
def on_show(g: Any, m: Any, T: Any, L: Any, c: int) -> None:
    """The booking is visible: the pending flag of a wakelist, or nr_running."""
    k = g.cpus[c]
    t = k.wakee
    d = k.wake_to
    e = T[t]
    o = g.cpus[d]
    e.show_ts = g.now
    if e.row >= 0 and L[e.row].wakee == t:
        L[e.row].visible_ts = g.now
    booked = k.wake_kind == _DECIDED or k.wake_kind == _PINNED
    if k.found != 0:
        k.found = 0
        o.unseen -= 1
    if k.remote != 0:
        m.cpus[d].pending = 1
        e.in_list = -1
        if o.list_tail >= 0:
            T[o.list_tail].in_list = t
        else:
            o.list_head = t
        o.list_tail = t
        if not booked:
            m.cpus[d].booked += 1
        if g.window != 0:
            m.cpus[d].booked -= 1
        o.ipi_at = min(o.ipi_at, g.now + draw(g, _C_IPI))
        arm(g, d)
        k.phase = _WAKE_END
        k.at = max(g.now, k.wake_end)
        return
    if booked:
        m.cpus[d].booked -= 1
    if k.wake_kind != _KIND_DELAYED:
        add_nr(g, m, T, d, t, 1)
    o.inflight += 1
    k.phase = _WAKEUP
    k.at = g.now + draw(g, _C_ENQUEUE)


@step
def on_wakeup(g: Any, m: Any, T: Any, P: Any, F: Any, E: Any, L: Any, c: int) -> None:
    """A direct wakeup is enqueued: the preemption check, then sched_wakeup."""
    k = g.cpus[c]
    t = k.wakee
    d = k.wake_to
    o = g.cpus[d]
    new = 1 if k.wake_kind == _FORK else 0
    o.inflight -= 1
    if k.wake_kind == _KIND_DELAYED and T[t].stand != _DELAYED:
        # Dequeued for good between look and lock: it is queued anew.
        add_nr(g, m, T, d, t, 1)
    do_enqueue(g, m, T, P, F, d, t, new)
    if preempts(g, T, d, t):
        o.resched = 1
        if d != c:
            o.ipi_at = min(o.ipi_at, g.now + draw(g, _C_IPI))
            arm(g, d)
    g.wakeups += 1
    emit_wakeup(g, T, E, c, t, d, new)
    if T[t].row >= 0 and L[T[t].row].wakee == t:
        L[T[t].row].wakeup_ts = g.now
    k.phase = _WAKE_END
    k.at = g.now
    if new == 0:
        # What its way took longer than the shortest does not shorten what lies behind it.
        k.at += max(draw(g, _C_DIRECT) - g.direct_way, 0)
