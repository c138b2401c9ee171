"""Load balance: what a CPU that runs dry pulls, and what the tick moves (section 8).

Newidle: before the idle task is chosen, a queued task of the core's sibling, of the LLC, of the
machine. Periodic: at ticks, a CPU with less to do takes from the one with the most; the same
pass renews nr_idle_scan. Simple forms of both: one task a time, groups are cores, no imbalance
arithmetic beyond the number of tasks.
"""

from __future__ import annotations

from typing import Any

from traceana._jit import step
from traceana._pelt_kernels import cpu_util, nr_idle_scan, pelt_move, update_cfs
from traceana._sim_events_kernels import emit_migrate
from traceana._sim_queue_kernels import arrive, dequeue, forget, keep_lag, place
from traceana._sim_state import COSTS
from traceana._sim_time_kernels import arm, draw
from traceana._sim_types import FAR, Phase, Stand
from traceana._sim_wake_kernels import add_nr, allowed_on

__all__ = [
    "arrived",
    "looks_for_tasks",
    "may_seek",
    "on_pull",
    "on_seek",
    "periodic",
    "refresh_scan",
]

_QUEUED = Stand.QUEUED
_IDLE, _RUN, _QUEUED_PHASE = Phase.IDLE, Phase.RUN, Phase.QUEUED
_COLD = -(1 << 60)
_C_IPI = COSTS.index("ipi")
_MS = 1_000_000
#: cache_nice_tries inside one LLC, and between LLCs.
_TRIES_NEAR, _TRIES_FAR = 1, 2


@step
def _movable(g: Any, m: Any, T: Any, A: Any, origin: int, c: int, near: int, hot_ns: int) -> int:
    """can_migrate_task(): the queued task of a CPU that may go to c, from the queue's end; or -1.

    Hot ones go once balances of that domain (near as in :func:`_newidle_source`) have failed often.
    """
    k = g.cpus[origin]
    t: Any = k.tail
    same_core = m.cpus[origin].core == m.cpus[c].core
    desperate = g.cpus[c].failed > _TRIES_NEAR
    if near == 0:
        desperate = g.cpus[c].failed_far > _TRIES_FAR
    while t >= 0:
        e = T[t]
        # While its wakeup is still being recorded the queue's lock is held.
        entering = k.phase == _QUEUED_PHASE and k.flush == t
        ready = e.stand == _QUEUED and e.off_at <= g.now and not entering
        if e.prio >= 100 and ready and allowed_on(T, A, t, c):
            hot = hot_ns < 0 or g.now - e.exec_start < hot_ns
            if same_core or not hot or desperate:
                return t
        t = e.prev
    return -1


@step
def move_task(g: Any, m: Any, T: Any, P: Any, F: Any, E: Any, t: int, c: int, on: int) -> None:
    """A queued task goes to the queue of CPU c; sched_migrate_task is recorded on CPU `on`."""
    e = T[t]
    origin = e.cpu
    emit_migrate(g, T, E, on, t, origin, c)
    g.migrations += 1
    g.pulls += 1
    if m.cpus[c].llc != m.cpus[origin].llc:
        g.far_migrations += 1
    keep_lag(g, T, origin, t)
    dequeue(g, T, origin, t)
    forget(g, origin, t)
    add_nr(g, m, T, origin, t, -1)
    e.cpu = c
    e.exec_start = _COLD
    if g.eevdf != 0:
        place(g, T, c, t, 0, 0)
    else:
        e.v += g.cpus[c].min_v - g.cpus[origin].min_v
    pelt_move(P, t, F, c, g.now)
    add_nr(g, m, T, c, t, 1)
    arrive(g, T, c, t)


@step
def _core_state(m: Any, F: Any, c: int) -> tuple[int, int, int, int]:
    """Tasks, idle CPUs, CPUs and utilisation of a core."""
    tasks = 0
    idle = 0
    n = 0
    util = 0
    o = c
    while True:
        util += cpu_util(F[o])
        tasks += m.cpus[o].nr
        if m.cpus[o].nr == 0 and m.cpus[o].pending == 0:
            idle += 1
        n += 1
        o = m.cpus[o].next_sibling
        if o == c:
            break
    return tasks, idle, n, util


@step
def _llc_state(m: Any, F: Any, c: int) -> tuple[int, int, int, int]:
    """Tasks, idle CPUs, CPUs and utilisation of an LLC."""
    row = m.llcs[m.cpus[c].llc]
    tasks = 0
    idle = 0
    util = 0
    o: Any = c
    for _ in range(row.weight):
        tasks += m.cpus[o].nr
        util += cpu_util(F[o])
        if m.cpus[o].nr == 0 and m.cpus[o].pending == 0:
            idle += 1
        o = m.cpus[o].next_llc
    return tasks, idle, row.weight, util


@step
def _gives(
    pct: int,
    tasks: int,
    idle: int,
    weight: int,
    util: int,
    own_tasks: int,
    own_idle: int,
    own_weight: int,
    own_util: int,
    busy: bool,
) -> bool:
    """find_busiest_group(): whether a group gives a task to the own one.

    An overloaded group (more tasks than CPUs, and little room) gives, to an overloaded one only if
    it is the more loaded by imbalance_pct. Of two tasks more one goes where there is room
    (SD_PREFER_SIBLING); otherwise a group with room gives to an idle CPU whose group has two idle
    CPUs more.
    """
    over = tasks > weight and util * pct > weight * 102_400
    own_over = own_tasks > own_weight and own_util * pct > own_weight * 102_400
    if over and own_over:
        return 100 * tasks * own_weight > pct * own_tasks * weight
    if over:
        return True
    if own_over:
        return False
    return tasks > own_tasks + 1 or (not busy and own_idle > idle + 1)


@step
def _busiest(
    g: Any, m: Any, T: Any, F: Any, A: Any, c: int, near: int, busy: bool, hot_ns: int
) -> int:
    """The CPU to pull from: in the LLC of c (near), or outside of it; -1 none.

    `busy`: c has something to do itself; `hot_ns` 0: whether tasks are hot does not matter.
    """
    best = -1
    most = 1
    llc = m.cpus[c].llc
    own_tasks, own_idle, own_weight, own_util = (
        _core_state(m, F, c) if near != 0 else _llc_state(m, F, c)
    )
    seen = -1
    gives = False
    o: Any = c
    n = m.llcs[llc].weight if near != 0 else g.n_cpus
    for i in range(n):
        if near != 0:
            o = m.cpus[o].next_llc
        else:
            o = i
        s = m.cpus[o]
        if o == c or s.nr < 2 or s.online == 0 or (near == 0) == (s.llc == llc):
            continue
        if s.core == m.cpus[c].core or s.nr <= most:
            continue
        if near != 0:
            tasks, idle, weight, util = _core_state(m, F, o)
            gives = _gives(
                m.pct, tasks, idle, weight, util, own_tasks, own_idle, own_weight, own_util, busy
            )
        elif s.llc != seen:
            tasks, idle, weight, util = _llc_state(m, F, o)
            gives = _gives(
                m.pct, tasks, idle, weight, util, own_tasks, own_idle, own_weight, own_util, busy
            )
            seen = s.llc
        if not gives or _movable(g, m, T, A, o, c, near, hot_ns) < 0:
            continue
        best = o
        most = s.nr
    return best


@step
def _try_level(g: Any, ratio: int) -> int:
    """NI_RANDOM: 0 the domain is passed over this time, else the weight of a try."""
    if g.ni_random == 0:
        return 1
    weight = 1 + ratio
    g.draws += 1
    h = ((g.draws & 0xFFFFFFFF) * 0x7FEB352D) & 0xFFFFFFFF
    h = ((h ^ (h >> 15) ^ g.seed) * 0x2C1B3C6D) & 0xFFFFFFFF
    if ((h >> 9) & 1023) > weight:
        return 0
    return (1024 + weight // 2) // weight


@step
def _count_level(g: Any, c: int, near: int, weight: int) -> None:
    """update_newidle_stats() of the core's domain (2), of the LLC's (1) or of that beyond (0)."""
    k = g.cpus[c]
    if near == 2:
        k.core_calls += 1
        k.core_finds += weight
        if k.core_calls >= 1024:
            k.core_ratio = k.core_finds
            k.core_calls //= 2
            k.core_finds //= 2
    elif near == 1:
        k.calls += 1
        k.finds += weight
        if k.calls >= 1024:
            k.ratio = k.finds
            k.calls //= 2
            k.finds //= 2
    else:
        k.far_calls += 1
        k.far_finds += weight
        if k.far_calls >= 1024:
            k.far_ratio = k.far_finds
            k.far_calls //= 2
            k.far_finds //= 2


@step
def _newidle_source(g: Any, m: Any, T: Any, F: Any, A: Any, c: int, near: int) -> int:
    """The CPU to pull from: a thread of the core (near 2), the LLC (1), outside of it (0); or -1."""
    if near == 2:
        o = m.cpus[c].next_sibling
        while o != c:
            if m.cpus[o].nr >= 2 and _movable(g, m, T, A, o, c, near, g.mig_hot) >= 0:
                return o
            o = m.cpus[o].next_sibling
        return -1
    own = g.over[m.cpus[c].llc]
    if near == 0:
        total = 0
        for i in range(m.n_llcs):
            total += g.over[i]
        own = total - own
    o = -1
    if own > 0:
        o = _busiest(g, m, T, F, A, c, near, False, 0)
    if o < 0:
        # load_balance(): in balance; what failed before is forgotten, in newidle as well.
        if near == 0:
            g.cpus[c].failed_far = 0
        else:
            g.cpus[c].failed = 0
        return -1
    # The busiest queue it is, whatever waits there.
    return o if _movable(g, m, T, A, o, c, near, g.mig_hot) >= 0 else -1


@step
def looks_for_tasks(g: Any, m: Any, c: int) -> bool:
    """sched_balance_newidle(): whether CPU c, which has nothing left, goes through its domains.

    Only if some CPU has had two tasks of late (rd->overload), and this one is idle for longer, on
    average, than the longest balance of late takes in its lowest domain.
    """
    k = g.cpus[c]
    if g.gate_pending != 0 and m.cpus[c].pending != 0:
        return False
    if g.gate_cost != 0 and k.avg_idle < g.mig_newidle:
        return False
    return g.overload != 0 and k.avg_idle >= (k.core_cost if m.smt != 0 else k.newidle_cost)


@step
def _note_overload(g: Any, m: Any, near: int) -> None:
    """A pass over the topmost domain finds out whether any CPU still has two tasks."""
    if near == 0 or (near == 1 and m.n_llcs == 1):
        crowded = 0
        for i in range(m.n_llcs):
            crowded += g.over[i]
        g.overload = 1 if crowded > 0 else 0


@step
def may_seek(g: Any, m: Any, c: int) -> bool:
    """Whether CPU c looks for a task in one more domain (``level``, counted down).

    A domain is looked at only where the CPU is idle for longer, on average, than the longest
    balance of late there takes (``core_cost``, ``newidle_cost`` in the LLC; beyond it, where every
    CPU is looked at again, as much more as there are CPUs) and what has been spent before it; with
    NI_RANDOM only as often as it succeeds.
    """
    k = g.cpus[c]
    spent = max(g.now - k.left_at, 0)
    while k.level >= 0:
        near = k.level
        if (near == 2 and m.smt == 0) or (near == 0 and m.n_llcs == 1):
            k.level -= 1
            continue
        longest = k.core_cost if near == 2 else k.newidle_cost
        if near == 0:
            longest = k.newidle_cost * g.n_cpus // m.llcs[m.cpus[c].llc].weight
        if k.avg_idle < spent + longest:
            return False
        ratio = k.ratio
        if near != 1:
            ratio = k.core_ratio if near == 2 else k.far_ratio
        k.try_weight = _try_level(g, ratio)
        if k.try_weight > 0:
            return True
        _count_level(g, c, near, 0)
        k.level -= 1
    return False


@step
def arrived(m: Any, c: int) -> bool:
    """Whether somebody has come to a CPU that looks for a task."""
    return m.cpus[c].nr > 0 or m.cpus[c].pending != 0


@step
def on_seek(g: Any, m: Any, T: Any, F: Any, A: Any, c: int) -> bool:
    """find_busiest_queue() in the domain at hand; whether there is one."""
    k = g.cpus[c]
    k.tried += 1
    k.source = _newidle_source(g, m, T, F, A, c, k.level)
    _note_overload(g, m, k.level)
    if k.source < 0:
        _count_level(g, c, k.level, 0)
        k.level -= 1
        return False
    return True


@step
def on_pull(g: Any, m: Any, T: Any, P: Any, F: Any, A: Any, E: Any, c: int) -> int:
    """detach_tasks(): the task is taken if it still waits there; returns it, or -1."""
    k = g.cpus[c]
    t = -1
    if m.cpus[k.source].nr >= 2:
        t = _movable(g, m, T, A, k.source, c, k.level, g.mig_hot)
    _count_level(g, c, k.level, k.try_weight if t >= 0 else 0)
    k.level -= 1
    if t >= 0:
        move_task(g, m, T, P, F, E, t, c, c)
    return t


@step
def refresh_scan(g: Any, m: Any, F: Any, c: int) -> None:
    """update_idle_cpu_scan() for the LLC of c: the budget of the idle search.

    Before the softirq that balances, every busy CPU's own tick of this jiffy has brought its sums
    up to date, and the idle ones' are by the CPU that balances for them (update_nohz_stats()):
    sleepers that have left are off the sums that are read here.
    """
    if g.refresh == 0:
        return
    row = m.llcs[m.cpus[c].llc]
    total = 0
    pct = m.pct_smt if row.weight > 1 else m.pct
    o: Any = row.first
    for _ in range(row.weight):
        if m.cpus[o].core != m.cpus[row.first].core:
            pct = m.pct  # more than one core: the domain is not that of SMT
        phase = g.cpus[o].tick_phase
        ticked = (g.now - phase) // g.tick * g.tick + phase
        if m.cpus[o].nr == 0 or F[o].last_update < ticked:
            update_cfs(F[o], g.now)
        total += cpu_util(F[o])
        o = m.cpus[o].next_llc
    row.sum_util = total
    row.nr_idle_scan = nr_idle_scan(total, row.weight, pct)


@step
def _is_balancer(m: Any, c: int, near: int) -> bool:
    """should_we_balance(): the first idle CPU of the group, else its first CPU.

    The group is the core where an LLC is balanced, the LLC beyond it (near 0).
    """
    first = m.cpus[c].first_sibling if near != 0 else m.llcs[m.cpus[c].llc].first
    o = first
    while True:
        if m.cpus[o].nr == 0:
            return bool(o == c)
        o = m.cpus[o].next_sibling if near != 0 else m.cpus[o].next_llc
        if o == first:
            break
    return bool(c == first)


@step
def _due(g: Any, since: int, weight: int, idle: bool) -> bool:
    """get_sd_balance_interval(): whether a domain of so many CPUs is balanced once more."""
    interval = weight * _MS
    if not idle:
        interval = interval * 16 - g.tick
    return bool(g.now - since >= max(g.tick, min(interval, 100_000_000 * g.n_cpus)))


@step
def _balance_domain(
    g: Any, m: Any, T: Any, P: Any, F: Any, A: Any, E: Any, c: int, on: int, near: int, idle: bool
) -> bool:
    """load_balance() of a domain for CPU c; whether a task has come."""
    k = g.cpus[c]
    best = _busiest(g, m, T, F, A, c, near, not idle, 0)
    _note_overload(g, m, near)
    failed = k.failed if near != 0 else k.failed_far
    t = -1
    if best < 0:
        failed = 0  # balanced
    elif m.cpus[best].nr - m.cpus[c].nr >= 2:
        t = _movable(g, m, T, A, best, c, near, g.mig_hot)
        failed = failed + 1 if t < 0 else 0
    if near != 0:
        k.failed = failed
    else:
        k.failed_far = failed
    if t < 0:
        return False
    move_task(g, m, T, P, F, E, t, c, on)
    if k.phase == _IDLE or (c == on and k.curr >= g.n_tasks):
        k.resched = 1
        if c != on:
            k.ipi_at = min(k.ipi_at, g.now + draw(g, _C_IPI))
            arm(g, c)
    return True


@step
def _balance_cpu(g: Any, m: Any, T: Any, P: Any, F: Any, A: Any, E: Any, c: int, on: int) -> None:
    """rebalance_domains() for CPU c, executed on CPU `on`: each domain whose interval is over."""
    k = g.cpus[c]
    idle = m.cpus[c].nr == 0 and m.cpus[c].pending == 0
    if _due(g, k.balanced, m.llcs[m.cpus[c].llc].weight, idle):
        k.balanced = g.now
        if _is_balancer(m, c, 1):
            g.balances += 1
            refresh_scan(g, m, F, c)
            if _balance_domain(g, m, T, P, F, A, E, c, on, 1, idle):
                return
    if m.n_llcs > 1 and _due(g, k.balanced_far, g.n_cpus, idle):
        k.balanced_far = g.now
        if _is_balancer(m, c, 0):
            _balance_domain(g, m, T, P, F, A, E, c, on, 0, idle)


@step
def periodic(g: Any, m: Any, T: Any, P: Any, F: Any, A: Any, E: Any, c: int) -> None:
    """What the tick of CPU c balances: itself, and, once a jiffy, all CPUs whose ticks have stopped
    (one of these does it in the kernel, kicked by a busy CPU's tick).
    """
    _balance_cpu(g, m, T, P, F, A, E, c, c)
    if m.cpus[c].idle != 0 or g.now // g.tick == g.nohz_jiffy:
        return
    g.nohz_jiffy = g.now // g.tick
    for o in range(g.n_cpus):
        if m.cpus[o].idle != 0 and g.cpus[o].tick_at >= FAR and m.cpus[o].nr == 0:
            _balance_cpu(g, m, T, P, F, A, E, o, c)
