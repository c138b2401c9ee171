"""Per-entity load tracking in the kernel's own integers, as steps over records.

kernel/sched/pelt.c (decay_load(), accumulate_sum(), ___update_load_sum(),
___update_load_avg()) and what fair.c does with the sums when a task is enqueued, blocks,
migrates or is new (section 4 of the semantics). Records are those of
:mod:`traceana.pelt`: ``tasks[t]`` (TASK) and ``cfs[c]``, the root queue of a CPU (CFS).

``now`` is the CPU's PELT clock in ns: the task clock, not scaled by frequency. A driver
calls, in the order of events, for fair tasks only:

    pelt_new       a task's first enqueue (sched_wakeup_new, or first sight)
    pelt_enqueue   a wakeup is enqueued; the transfer between CPUs happens here
    pelt_switch    prev leaves the CPU (blocked or still queued), next takes it
    pelt_move      a queued task is pulled to another CPU
    pelt_tick      nothing changes, time passes (a tick, or before reading a busy CPU)
    pelt_decay     the same for an idle CPU (blocked load)

and reads ``cfs[c].load_avg``, ``cpu_util(cfs[c])``, ``task_h_load(tasks[t], cfs[c])``.
All integers are int64; no value of a machine with up to 2048 CPUs leaves their range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from traceana._jit import step

if TYPE_CHECKING:
    from traceana.pelt import Cfs, Task


#: floor((2^32 - 1) * y^k), y^32 = 1/2: runnable_avg_yN_inv of kernel/sched/sched-pelt.h.
_Y_INVERSE = np.array(
    [
        *(0xFFFFFFFF, 0xFA83B2DA, 0xF5257D14, 0xEFE4B99A, 0xEAC0C6E6, 0xE5B906E6),
        *(0xE0CCDEEB, 0xDBFBB796, 0xD744FCC9, 0xD2A81D91, 0xCE248C14, 0xC9B9BD85),
        *(0xC5672A10, 0xC12C4CC9, 0xBD08A39E, 0xB8FBAF46, 0xB504F333, 0xB123F581),
        *(0xAD583EE9, 0xA9A15AB4, 0xA5FED6A9, 0xA2704302, 0x9EF5325F, 0x9B8D39B9),
        *(0x9837F050, 0x94F4EFA8, 0x91C3D373, 0x8EA4398A, 0x8B95C1E3, 0x88980E80),
        *(0x85AAC367, 0x82CD8698),
    ],
    dtype=np.int64,
)

#: sum of 1024 * y^n over all n, as the kernel's integers come to: LOAD_AVG_MAX
_MAX = 47742
_PERIOD = 1024
#: PELT_MIN_DIVIDER
_MIN_DIVIDER = _MAX - _PERIOD

#: UTIL_EST_MARGIN: 1 % of 1024
_EST_MARGIN = 10


@step
def decay_load(value: int, periods: int) -> int:
    """decay_load(): value * y^periods, value >= 0."""
    if periods > 32 * 63:
        return 0
    value >>= periods >> 5
    inverse: int = _Y_INVERSE[periods & 31]
    # value * inverse >> 32 without leaving int64: 16 bits at a time.
    high = value >> 32
    middle = (value >> 16) & 0xFFFF
    low = value & 0xFFFF
    return high * inverse + ((middle * inverse + ((low * inverse) >> 16)) >> 16)


@step
def segments(periods: int, first: int, last: int) -> int:
    """__accumulate_pelt_segments(): what `periods` full boundaries of running add."""
    return decay_load(first, periods) + (_MAX - decay_load(_MAX, periods) - _PERIOD) + last


@step
def accumulate(e: Task | Cfs, now: int, load: int, running: int) -> bool:
    """___update_load_sum() on a record with the fields of Task or Cfs.

    Returns whether a period boundary was crossed: the averages change only then.
    """
    delta = now - e.last_update
    if delta < 0:
        e.last_update = now
        return False
    delta >>= 10
    if delta == 0:
        return False
    e.last_update += delta << 10
    if load == 0:
        running = 0
    added = delta
    delta += e.contrib
    periods = delta >> 10
    if periods != 0:
        e.load_sum = decay_load(e.load_sum, periods)
        e.util_sum = decay_load(e.util_sum, periods)
        delta &= _PERIOD - 1
        if load != 0:
            added = segments(periods, _PERIOD - e.contrib, delta)
    e.contrib = delta
    e.load_sum += load * added
    if running != 0:
        e.util_sum += added << 10
    return periods != 0


@step
def divider(e: Task | Cfs) -> int:
    """get_pelt_divider()."""
    return _MIN_DIVIDER + e.contrib


@step
def update_task(e: Task, now: int) -> None:
    """__update_load_avg_se(), or _blocked_se() when the task is not queued."""
    if accumulate(e, now, e.on_rq, e.running):
        d = divider(e)
        if e.on_rq != 0:
            e.est_changed = 1
        e.load_avg = e.weight * e.load_sum // d
        e.util_avg = e.util_sum // d


@step
def update_cfs(c: Cfs, now: int) -> None:
    """update_cfs_rq_load_avg(): take off what has migrated away, then let time pass."""
    if c.removed != 0:
        d = divider(c)
        c.load_avg = max(c.load_avg - c.removed_load, 0)
        c.load_sum = max(c.load_sum - c.removed_load * d, c.load_avg * _MIN_DIVIDER)
        c.util_avg = max(c.util_avg - c.removed_util, 0)
        c.util_sum = max(c.util_sum - c.removed_util * d, c.util_avg * _MIN_DIVIDER)
        c.removed = 0
        c.removed_load = 0
        c.removed_util = 0
    if accumulate(c, now, c.weight, c.running):
        d = divider(c)
        c.load_avg = c.load_sum // d
        c.util_avg = c.util_sum // d


@step
def _attach(e: Task, c: Cfs) -> None:
    """attach_entity_load_avg(): the task's averages become part of the queue's."""
    d = divider(c)
    e.last_update = c.last_update
    e.contrib = c.contrib
    e.util_sum = e.util_avg * d
    e.load_sum = e.load_avg * d
    if e.weight < e.load_sum:
        e.load_sum //= e.weight
    else:
        e.load_sum = 1
    c.load_avg += e.load_avg
    c.load_sum += e.weight * e.load_sum
    c.util_avg += e.util_avg
    c.util_sum += e.util_sum


@step
def _remove_blocked(e: Task, c: Cfs, now: int) -> None:
    """remove_entity_load_avg(): a sleeper leaves; the queue notices at its next update.

    What it is taken off with is its average at the queue's own last update. An idle CPU's lies
    far back: since 6.0 the task itself decays until now (migrate_se_pelt_lag()).
    """
    update_task(e, c.last_update)
    c.removed += 1
    c.removed_load += e.load_avg
    c.removed_util += e.util_avg
    if c.lag != 0 and c.nr == 0:
        update_task(e, now)


@step
def estimate(e: Task) -> int:
    """task_util_est() without its own utilisation: max(ewma, enqueued)."""
    return max(e.est_ewma, e.est_enqueued)


@step
def _update_estimate(e: Task) -> None:
    """util_est_update() at sleep: up at once, down by a quarter, small changes not at all."""
    if e.est_changed == 0:
        return
    if e.util_avg > e.est_ewma:
        e.est_ewma = e.util_avg
    elif e.est_ewma - e.util_avg < _EST_MARGIN:
        if abs(e.est_enqueued - e.util_avg) < _EST_MARGIN:
            return
    elif e.util_avg <= 1024:
        e.est_ewma = (e.est_ewma * 3 + e.util_avg) >> 2
    e.est_enqueued = e.util_avg
    e.est_changed = 0


@step
def _queue(e: Task, c: Cfs, cpu: int) -> None:
    e.cpu = cpu
    e.on_rq = 1
    c.weight += e.weight
    c.nr += 1
    c.est += estimate(e)


@step
def _unqueue(e: Task, c: Cfs) -> None:
    e.on_rq = 0
    e.running = 0
    c.weight -= e.weight
    c.nr -= 1
    c.est = max(c.est - estimate(e), 0)


@step
def pelt_new(tasks: Any, t: int, cfs: Any, cpu: int, now: int) -> None:
    """First enqueue of a task: post_init_entity_util_avg(), then as a wakeup.

    Its load starts at its weight; its utilisation at what the queue has for that weight, at
    most half of the spare capacity.
    """
    e = tasks[t]
    c = cfs[cpu]
    update_cfs(c, now)
    e.load_avg = e.weight
    e.est_ewma = 0
    e.est_enqueued = 0
    spare = (c.capacity - c.util_avg) // 2
    e.util_avg = 0
    if spare > 0:
        e.util_avg = spare
        if c.util_avg != 0:
            e.util_avg = min(c.util_avg * e.weight // (c.load_avg + 1), spare)
    _attach(e, c)
    _queue(e, c, cpu)


@step
def pelt_seed(tasks: Any, t: int, cfs: Any, cpu: int, now: int, util: int, load: int) -> None:
    """A sleeping task of known averages (a start state) becomes part of its CPU's sums."""
    e = tasks[t]
    c = cfs[cpu]
    update_cfs(c, now)
    e.util_avg = util
    e.load_avg = load
    e.cpu = cpu
    e.on_rq = 0
    e.est_enqueued = util
    e.est_ewma = util
    _attach(e, c)


@step
def pelt_enqueue(tasks: Any, t: int, cfs: Any, cpu: int, now: int) -> None:
    """A wakeup is enqueued on a CPU: enqueue_entity(), with the transfer if it has moved."""
    e = tasks[t]
    c = cfs[cpu]
    if e.on_rq != 0:
        return
    if e.cpu == cpu:
        update_task(e, now)
        update_cfs(c, now)
    else:
        if e.cpu >= 0:
            _remove_blocked(e, cfs[e.cpu], now)
        update_cfs(c, now)
        _attach(e, c)
    _queue(e, c, cpu)


@step
def pelt_dequeue(tasks: Any, t: int, cfs: Any, now: int) -> None:
    """A task blocks: dequeue_entity() and util_est_update(); nothing if it is not queued."""
    e = tasks[t]
    if e.on_rq == 0:
        return
    c = cfs[e.cpu]
    update_task(e, now)
    update_cfs(c, now)
    if e.running != 0:
        c.running = 0
    _unqueue(e, c)
    _update_estimate(e)


@step
def pelt_switch(
    tasks: Any, prev: int, next_: int, blocks: bool, cfs: Any, cpu: int, now: int
) -> None:
    """One task leaves the CPU and the next takes it; -1: the idle task or a task that is not fair."""
    c = cfs[cpu]
    update_cfs(c, now)
    if prev >= 0:
        if blocks:
            pelt_dequeue(tasks, prev, cfs, now)
        else:
            update_task(tasks[prev], now)
            tasks[prev].running = 0
    c.running = 0
    if next_ >= 0:
        e = tasks[next_]
        if e.on_rq == 0 or e.cpu != cpu:
            pelt_move(tasks, next_, cfs, cpu, now)
        update_task(e, now)
        e.running = 1
        c.running = 1


@step
def pelt_move(tasks: Any, t: int, cfs: Any, cpu: int, now: int) -> None:
    """A queued task is pulled: detach_entity_load_avg() there, attach here.

    A task that is not known to be queued is enqueued (its wakeup was lost).
    """
    e = tasks[t]
    if e.on_rq == 0:
        pelt_enqueue(tasks, t, cfs, cpu, now)
        return
    if e.cpu == cpu:
        return
    old = cfs[e.cpu]
    update_task(e, now)
    update_cfs(old, now)
    if e.running != 0:
        old.running = 0
    _unqueue(e, old)
    old.load_avg = max(old.load_avg - e.load_avg, 0)
    old.load_sum = max(old.load_sum - e.weight * e.load_sum, old.load_avg * _MIN_DIVIDER)
    old.util_avg = max(old.util_avg - e.util_avg, 0)
    old.util_sum = max(old.util_sum - e.util_sum, old.util_avg * _MIN_DIVIDER)
    c = cfs[cpu]
    update_cfs(c, now)
    _attach(e, c)
    _queue(e, c, cpu)


@step
def pelt_tick(tasks: Any, curr: int, cfs: Any, cpu: int, now: int) -> None:
    """Time passes on a CPU: entity_tick(); curr -1 if no fair task runs."""
    if curr >= 0:
        update_task(tasks[curr], now)
    update_cfs(cfs[cpu], now)


@step
def pelt_decay(cfs: Any, cpu: int, now: int) -> None:
    """update_blocked_averages() of an idle CPU."""
    update_cfs(cfs[cpu], now)


@step
def cpu_util(c: Cfs) -> int:
    """cpu_util_cfs(): what SIS_UTIL sums."""
    return min(max(c.util_avg, c.est), c.capacity)


@step
def task_h_load(e: Task, c: Cfs) -> int:
    """task_h_load() of a task in the root group: its part of the queue's load."""
    return e.load_avg * c.load_avg // (c.load_avg + 1)


@step
def nr_idle_scan(sum_util: int, weight: int, pct: int) -> int:
    """update_idle_cpu_scan(): how many CPUs a scan may look at, of `weight`.

    sum_util is the sum of cpu_util() over the LLC, pct its domain's imbalance_pct.
    """
    x = sum_util // weight
    t = min(x * x * pct * pct // 10_240_000, 1024)
    return (1024 - t) * weight // 1024


@step
def refresh_period_ns(weight: int, groups: int, busy: bool, tick_ns: int, online: int) -> int:
    """How often an LLC of so many CPUs in so many groups (cores) renews nr_idle_scan.

    A CPU's interval is weight ms, 16 times that (less a tick) when it is busy, within a tick
    and 0.1 s * online CPUs; each group's balancer does it at its own time.
    """
    interval = weight * 1_000_000
    if busy:
        interval = interval * 16 - tick_ns
    interval = max(tick_ns, min(interval, 100_000_000 * online))
    return interval // max(groups, 1)


@step
def refresh_llc(row: Any, cfs: Any, members: Any, pct: int, now: int, stale_ns: int) -> None:
    """One statistics pass: renew row.sum_util and row.nr_idle_scan (a record of LLC).

    Idle CPUs whose sums are older than stale_ns are brought up to date first, as the nohz
    balancer does; younger ones are read as they stand.
    """
    total = 0
    for cpu in members:
        c = cfs[cpu]
        if c.nr == 0 and now - c.last_update >= stale_ns:
            update_cfs(c, now)
        total += cpu_util(c)
    row.sum_util = total
    row.nr_idle_scan = nr_idle_scan(total, len(members), pct)
