"""The kernel's way from a wakeup to a CPU, step by step, as functions of *w* and *m*.

kernel/sched/fair.c: select_task_rq_fair(), wake_wide(), wake_affine(), and
select_idle_sibling() with what it calls. Each function is one step, in the forms of 4.17 to
7.3 (the machine record says which; sections 6.2 to 6.8 of the semantics), so that a rule is
the same sequence with one step changed:

    if wants_affine(w, m):
        target = wake_affine_idle(w, m)
        if target == NONE:
            target = wake_affine_weight(w, m)
        if target == NONE:
            target = prev_cpu
    else:
        target = prev_cpu
    cpu = select_idle_near(w, m, target)             # steps 1 to 7
    if cpu == NONE:
        nr = scan_budget(w, m, target)
        cpu = scan_llc(w, m, target, nr)             # step 8
    if cpu == NONE:
        cpu = select_idle_last(w, m, target)         # step 9

A step answers with a CPU or NONE and notes in ``w.affine`` or ``w.step`` who spoke. *m* is
never written: what the kernel would change beside placing the task (idle-core hint, recent
CPU) stands in ``w.hint_cleared``, ``w.recent_after`` and ``w.waker_recent_after``.

Not modelled: machines of asymmetric capacity, core scheduling, the slow path of fork and
exec, WF_CURRENT_CPU (not visible in events).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceana._jit import step
from traceana.rules._forms import (
    BUDGET_PROP,
    BUDGET_UTIL,
    KTHREAD_NONE,
    KTHREAD_TASK,
    RECENT_ALWAYS,
    RECENT_NONE,
    RECENT_ON_HIT,
)
from traceana.rules._state import NONE, Affine, Step

if TYPE_CHECKING:
    from traceana.rules._state import Machine, Wakeup

_WIDE = Affine.WIDE
_THIS_NOT_ALLOWED = Affine.THIS_NOT_ALLOWED
_THIS_IS_PREV = Affine.THIS_IS_PREV
_NO_DOMAIN = Affine.NO_DOMAIN
_IDLE = Affine.IDLE
_SYNC = Affine.SYNC
_AFFINE_PREV_IDLE = Affine.PREV_IDLE
_WEIGHT_THIS = Affine.WEIGHT_THIS
_WEIGHT_PREV = Affine.WEIGHT_PREV
_TARGET_IDLE = Step.TARGET_IDLE
_PREV_IDLE = Step.PREV_IDLE
_KTHREAD = Step.KTHREAD
_RECENT = Step.RECENT
_NO_LLC = Step.NO_LLC
_SIBLING = Step.SIBLING
_OVERLOADED = Step.OVERLOADED
_CORE = Step.CORE
_CORE_REST = Step.CORE_REST
_CPU = Step.CPU
_BUDGET = Step.BUDGET
_FALLBACK = Step.FALLBACK
_CLUSTER_PREV = Step.CLUSTER_PREV
_CLUSTER_RECENT = Step.CLUSTER_RECENT

#: A budget without end.
UNLIMITED = 1 << 30


# --- what can be asked of a CPU or a task ----------------------------------------------


@step
def cpu_allowed(w: Wakeup, cpu: int) -> bool:
    """Whether the wakee may run on the CPU."""
    return w.restricted == 0 or ((w.allowed[cpu >> 6] >> (cpu & 63)) & 1) != 0


@step
def idle_cpu(m: Machine, cpu: int) -> bool:
    """available_idle_cpu(): idle task current, nothing queued, no remote wakeup pending."""
    c = m.cpus[cpu]
    return c.idle != 0 and c.nr == 0 and c.pending == 0 and (m.booked_counts == 0 or c.booked == 0)


@step
def available(w: Wakeup, m: Machine, cpu: int) -> bool:
    """Whether the idle search takes the CPU: idle, or busy with SCHED_IDLE tasks only."""
    if idle_cpu(m, cpu):
        return True
    # Since 7.2 a SCHED_IDLE wakee does not take it.
    return (
        m.cpus[cpu].sched_idle != 0
        and m.sched_idle_counts != 0
        and not (m.release >= 7002 and w.wakee_sched_idle != 0)
    )


@step
def share_cache(m: Machine, a: int, b: int) -> bool:
    """cpus_share_cache()."""
    return m.cpus[a].llc == m.cpus[b].llc


@step
def has_idle_core(m: Machine, cpu: int) -> bool:
    """test_idle_cores(): the hint of the CPU's LLC; never without SMT, unknown is no hint."""
    return m.smt != 0 and m.llcs[m.cpus[cpu].llc].idle_core > 0


@step
def short(dur_avg: int, threshold_ns: int) -> bool:
    """Whether a task is short: dur_avg known (neither 0 nor -1) and below the threshold."""
    return dur_avg > 0 and dur_avg < threshold_ns


# --- wake_wide() and wake_affine() ------------------------------------------------------


@step
def flips_wide(waker_flips: int, wakee_flips: int, factor: int) -> bool:
    """wake_wide() since 4.3: both flip often, one much more than the other."""
    lo = min(waker_flips, wakee_flips)
    hi = max(waker_flips, wakee_flips)
    return lo >= factor and hi >= lo * factor


@step
def flips_wide_2013(waker_flips: int, wakee_flips: int, factor: int) -> bool:
    """wake_wide() of 3.12 to 4.2: one-sided, a waker hotter than its wakee."""
    return wakee_flips > factor and waker_flips > factor * wakee_flips


@step
def wake_wide(w: Wakeup, m: Machine) -> bool:
    """wake_wide(): too many partners to pull; unknown counts are taken as 0."""
    factor = m.llcs[m.cpus[w.this_cpu].llc].weight
    return flips_wide(w.waker_flips, w.wakee_flips, factor)


@step
def begin(w: Wakeup) -> None:
    """Reset what *w* reports."""
    w.affine = 0
    w.step = 0
    w.hint_cleared = 0
    w.recent_after = w.recent_cpu
    w.waker_recent_after = NONE
    w.held_prev = NONE
    w.held_recent = NONE
    w.target = w.prev_cpu


@step
def wants_affine_if(w: Wakeup, m: Machine, wide: bool) -> bool:
    """Whether wake_affine() is asked, given what wake_wide() said."""
    if wide:
        w.affine = _WIDE
        return False
    if not cpu_allowed(w, w.this_cpu):
        w.affine = _THIS_NOT_ALLOWED
        return False
    if m.recent_form == RECENT_ON_HIT:
        # Up to 5.14: current->recent_used_cpu = cpu after a selection that wanted affinity.
        w.waker_recent_after = w.this_cpu
    if w.this_cpu == w.prev_cpu:
        w.affine = _THIS_IS_PREV
        return False
    if m.cpus[w.this_cpu].zone != m.cpus[w.prev_cpu].zone:
        w.affine = _NO_DOMAIN
        return False
    return True


@step
def wants_affine(w: Wakeup, m: Machine) -> bool:
    """Whether wake_affine() is asked; the first step, it also resets what *w* reports.

    If not, the target is prev_cpu and ``w.affine`` says why.
    """
    begin(w)
    return wants_affine_if(w, m, wake_wide(w, m))


@step
def this_cpu_idle(w: Wakeup, m: Machine) -> int:
    """First answer of wake_affine_idle(): this_cpu is idle, an interrupt wakes."""
    if idle_cpu(m, w.this_cpu) and share_cache(m, w.this_cpu, w.prev_cpu):
        w.affine = _IDLE
        return w.prev_cpu if idle_cpu(m, w.prev_cpu) else w.this_cpu
    return NONE


@step
def waker_alone(w: Wakeup, m: Machine) -> bool:
    """Whether this_cpu has one task; since 6.13 delayed ones do not count."""
    this = m.cpus[w.this_cpu]
    nr = this.nr
    if m.sync_minus_delayed != 0:
        nr -= this.delayed
    return nr == 1


@step
def prev_cpu_idle(w: Wakeup, m: Machine) -> int:
    """Last answer of wake_affine_idle(): prev_cpu is idle, at any distance (since 5.11)."""
    if m.prev_idle_answers != 0 and idle_cpu(m, w.prev_cpu):
        w.affine = _AFFINE_PREV_IDLE
        return w.prev_cpu
    return NONE


@step
def wake_affine_idle(w: Wakeup, m: Machine) -> int:
    """wake_affine_idle(): this_cpu or prev_cpu if one of them is idle or about to be."""
    if m.wa_idle == 0:
        return NONE
    answer = this_cpu_idle(w, m)
    if answer == NONE and w.sync != 0 and waker_alone(w, m):
        w.affine = _SYNC
        answer = w.this_cpu
    if answer == NONE:
        answer = prev_cpu_idle(w, m)
    return answer


@step
def compare_weights(
    this_load: int,
    curr_load: int,
    prev_load: int,
    task_load: int,
    sync: bool,
    this_capacity: int,
    prev_capacity: int,
    pct: int,
    bias: bool,
) -> tuple[bool, int, int]:
    """The arithmetic of wake_affine_weight().

    Returns
    -------
    pull : bool
        Whether this_cpu wins; otherwise there is no opinion.
    this_eff, prev_eff : int
        The two sides (0, 0 where the waker's load alone decided).
    """
    this_eff = this_load
    if sync:
        if curr_load > this_eff:
            return True, 0, 0
        this_eff -= curr_load
    this_eff += task_load
    prev_eff = prev_load - task_load
    if bias:
        this_eff *= 100
        prev_eff *= 100 + (pct - 100) // 2
    this_eff *= prev_capacity
    prev_eff *= this_capacity
    if sync:
        prev_eff += 1
    return this_eff < prev_eff, this_eff, prev_eff


@step
def wake_affine_weight(w: Wakeup, m: Machine) -> int:
    """wake_affine_weight(): this_cpu if it is the less loaded, else NONE.

    Unknown loads (-1) give NONE, as a tie does.
    """
    w.affine = _WEIGHT_PREV
    if m.wa_weight == 0:
        return NONE
    this = m.cpus[w.this_cpu]
    prev = m.cpus[w.prev_cpu]
    sync = w.sync != 0
    if this.load < 0 or prev.load < 0 or w.wakee_load < 0 or (sync and w.waker_load < 0):
        return NONE
    pct = m.pct_smt if this.core == prev.core else m.pct
    pull, _, _ = compare_weights(
        this.load,
        w.waker_load,
        prev.load,
        w.wakee_load,
        sync,
        this.capacity,
        prev.capacity,
        pct,
        m.wa_bias != 0,
    )
    if not pull:
        return NONE
    w.affine = _WEIGHT_THIS
    return w.this_cpu


@step
def affine_obstacles(w: Wakeup, m: Machine) -> int:
    """What keeps a wakeup from the end of wake_affine_idle(), each judged by itself.

    Bits: 0 this_cpu is prev_cpu; 1 wide; 2 not allowed on this_cpu; 3 no affine domain; then
    answers of wake_affine_idle(): 4 this_cpu idle, 5 sync, 6 prev_cpu idle.
    """
    this_cpu = w.this_cpu
    prev_cpu = w.prev_cpu
    this = m.cpus[this_cpu]
    bits = 0
    if this_cpu == prev_cpu:
        bits |= 1 << 0
    if wake_wide(w, m):
        bits |= 1 << 1
    if not cpu_allowed(w, this_cpu):
        bits |= 1 << 2
    if this.zone != m.cpus[prev_cpu].zone:
        bits |= 1 << 3
    if this_cpu != prev_cpu and m.wa_idle != 0:
        if idle_cpu(m, this_cpu) and share_cache(m, this_cpu, prev_cpu):
            bits |= 1 << 4
        if w.sync != 0 and waker_alone(w, m):
            bits |= 1 << 5
        if m.prev_idle_answers != 0 and idle_cpu(m, prev_cpu):
            bits |= 1 << 6
    return bits


@step
def affine_unmet(w: Wakeup) -> int:
    """Bits 0 to 6 of a ``blocked_by``: what keeps from the end of wake_affine_idle().

    0 this_cpu is prev_cpu; 1 wide; 2 not allowed; 3 no domain; 4 this_cpu idle; 5 sync; 6 prev_cpu
    idle.
    """
    return w.obstacles


@step
def affine_unmet_busy(w: Wakeup) -> int:
    """The same in bits 0 to 5, without "this_cpu idle", for rules that want a task there."""
    return (w.obstacles & 0xF) | (w.obstacles >> 1 & 0x30)


@step
def affine_unmet_calm(w: Wakeup) -> int:
    """The same in bits 0 to 4, without "wide", too, for rules that want a waker without flips."""
    return (w.obstacles & 1) | (w.obstacles >> 1 & 0x6) | (w.obstacles >> 2 & 0x18)


@step
def select_target(w: Wakeup, m: Machine) -> int:
    """The unchanged first half: where the idle search starts, this_cpu or prev_cpu."""
    target = w.prev_cpu
    if wants_affine(w, m):
        answer = wake_affine_idle(w, m)
        if answer == NONE:
            answer = wake_affine_weight(w, m)
        if answer != NONE:
            target = answer
    w.target = target
    return target


# --- select_idle_sibling() --------------------------------------------------------------


@step
def idle_sibling(w: Wakeup, m: Machine, cpu: int) -> int:
    """select_idle_smt(): an available other thread of the CPU's core, lowest number first."""
    first = m.cpus[cpu].first_sibling
    c = first
    while True:
        if c != cpu and share_cache(m, c, cpu) and cpu_allowed(w, c) and available(w, m, c):
            return c
        c = m.cpus[c].next_sibling
        if c == first:
            return NONE


@step
def _recent(w: Wakeup, m: Machine, target: int) -> int:
    """Step 4: recent_used_cpu, and what becomes of it."""
    if m.recent_form == RECENT_NONE:
        return NONE
    prev = w.prev_cpu
    recent = w.recent_cpu
    if m.recent_form == RECENT_ALWAYS:
        w.recent_after = prev
    if recent < 0 or recent == prev or recent == target or not share_cache(m, recent, target):
        return NONE
    tested = prev if m.recent_checks_prev != 0 else recent
    if not available(w, m, recent) or not cpu_allowed(w, tested):
        return NONE
    if m.cluster_active != 0 and m.cpus[recent].cluster != m.cpus[target].cluster:
        w.held_recent = recent
        return NONE
    w.recent_after = prev
    return recent


@step
def select_idle_near(w: Wakeup, m: Machine, target: int) -> int:
    """Steps 1 to 7 of select_idle_sibling(): the CPUs that are tried before any scan.

    Returns the CPU, or NONE if the LLC of the target has to be scanned.
    """
    prev = w.prev_cpu
    if available(w, m, target):
        w.step = _TARGET_IDLE
        return target
    if prev != target and share_cache(m, prev, target) and available(w, m, prev):
        if m.cluster_active == 0 or m.cpus[prev].cluster == m.cpus[target].cluster:
            w.step = _PREV_IDLE
            return prev
        w.held_prev = prev
    if (
        m.kthread_form != KTHREAD_NONE
        and w.waker_percpu_kthread != 0
        and (w.task_ctx != 0 or m.kthread_form != KTHREAD_TASK)
        and prev == w.this_cpu
        and m.cpus[prev].nr <= 1
    ):
        w.step = _KTHREAD
        return prev
    recent = _recent(w, m, target)
    if recent != NONE:
        w.step = _RECENT
        return recent
    if m.llcs[m.cpus[target].llc].weight <= 1:
        w.step = _NO_LLC
        return target
    if (
        m.sibling_of_prev != 0
        and m.smt != 0
        and not has_idle_core(m, target)
        and share_cache(m, prev, target)
    ):
        sibling = idle_sibling(w, m, prev)
        if sibling != NONE:
            w.step = _SIBLING
            return sibling
    return NONE


@step
def scan_budget(w: Wakeup, m: Machine, target: int) -> int:
    """How far the scan may go: it visits one CPU less than this; 0: no scan at all.

    SIS_UTIL's limit holds also when there is an idle-core hint, in so far as 0 CPUs means no
    scan. An unknown budget is no limit.
    """
    llc = m.llcs[m.cpus[target].llc]
    if m.budget_form == BUDGET_UTIL and llc.nr_idle_scan >= 0:
        if llc.nr_idle_scan == 0:
            w.step = _OVERLOADED
            return 0
        return llc.nr_idle_scan + 1
    if m.budget_form == BUDGET_PROP and llc.prop_nr >= 0 and not has_idle_core(m, target):
        return llc.prop_nr
    return UNLIMITED


@step
def _behind(cpu: int, start: int) -> int:
    """Place of a CPU in the ring that begins at start."""
    return cpu - start if cpu >= start else cpu - start + UNLIMITED


@step
def _core_seen(w: Wakeup, m: Machine, cpu: int, start: int) -> bool:
    """Whether a thread of this core came earlier in the ring (the mask lost the core then)."""
    here = _behind(cpu, start)
    c = m.cpus[cpu].next_sibling
    while c != cpu:
        if share_cache(m, c, cpu) and cpu_allowed(w, c) and _behind(c, start) < here:
            return True
        c = m.cpus[c].next_sibling
    return False


@step
def _test_core(w: Wakeup, m: Machine, cpu: int, found: int) -> tuple[bool, int]:
    """select_idle_core() for one core: whether all of it is idle; the CPU to remember."""
    whole = True
    first = m.cpus[cpu].first_sibling
    c = first
    while True:
        if idle_cpu(m, c):
            if found == NONE and cpu_allowed(w, c):
                found = c
        else:
            whole = False
            if found != NONE:
                break
            if available(w, m, c) and cpu_allowed(w, c):
                found = c
                break
        c = m.cpus[c].next_sibling
        if c == first:
            break
    return whole, found


@step
def _scan_split(w: Wakeup, m: Machine, target: int, nr: int) -> int:
    """Up to 5.11: core scan, CPU scan, then a sibling of the target."""
    weight = m.llcs[m.cpus[target].llc].weight
    if has_idle_core(m, target):
        c = target
        for _ in range(weight):
            if cpu_allowed(w, c) and not _core_seen(w, m, c, target):
                whole, _found = _test_core(w, m, c, int(NONE))
                if whole:
                    w.step = _CORE
                    return c
            c = m.cpus[c].next_llc
        w.hint_cleared = 1
        # The budget is asked for again by the kernel's second loop, now without a hint.
        if m.budget_form == BUDGET_PROP and m.llcs[m.cpus[target].llc].prop_nr >= 0:
            nr = m.llcs[m.cpus[target].llc].prop_nr
    c = target
    for _ in range(weight):
        if cpu_allowed(w, c):
            nr -= 1
            if nr <= 0:
                break
            if available(w, m, c):
                w.step = _CPU
                return c
        c = m.cpus[c].next_llc
    if m.smt != 0:
        sibling = idle_sibling(w, m, target)
        if sibling != NONE:
            w.step = _SIBLING
            return sibling
    return NONE


@step
def _scan_ring(
    w: Wakeup, m: Machine, target: int, nr: int, hint: bool, phase: int, found: int
) -> tuple[bool, int, int]:
    """One ring of the merged scan.

    phase 0: the whole LLC; 1: the target's cluster only; 2: the LLC without that cluster.
    Returns (over, CPU or what is remembered, budget left).
    """
    start = target
    if m.scan_from_next != 0:
        start += 1
    c = target
    if m.scan_from_next != 0:
        c = m.cpus[c].next_llc
    own = m.cpus[target].cluster
    for _ in range(m.llcs[m.cpus[target].llc].weight):
        inside = m.cpus[c].cluster == own
        if cpu_allowed(w, c) and (phase == 0 or inside == (phase == 1)):
            if hint:
                if not _core_seen(w, m, c, start):
                    whole, found = _test_core(w, m, c, found)
                    if whole:
                        w.step = _CORE
                        return True, c, nr
            else:
                nr -= 1
                if nr <= 0:
                    w.step = _BUDGET
                    return True, NONE, nr
                if available(w, m, c):
                    w.step = _CPU
                    return True, c, nr
        c = m.cpus[c].next_llc
    return False, found, nr


@step
def scan_llc(w: Wakeup, m: Machine, target: int, nr: int) -> int:
    """Step 8, select_idle_cpu(): a CPU of the target's LLC, or NONE.

    With the idle-core hint whole cores are looked for and the budget does not count; an
    available CPU met on the way is second best. Otherwise the first available CPU among the
    ``nr - 1`` next allowed ones, in ascending order round from the target.
    """
    if nr <= 0:
        return NONE
    if m.merged_search == 0:
        return _scan_split(w, m, target, nr)
    hint = has_idle_core(m, target)
    found = int(NONE)
    phase = 0 if m.cluster_active == 0 else 1
    last = 2 * phase
    while phase <= last:
        over, found, nr = _scan_ring(w, m, target, nr, hint, phase, found)
        if over:
            return found
        phase += 1
    if hint:
        w.hint_cleared = 1
        if found != NONE:
            w.step = _CORE_REST
    return found


@step
def select_idle_last(w: Wakeup, m: Machine, target: int) -> int:
    """Step 9: nothing was found; the target stands (or what a cluster machine remembered)."""
    if w.held_prev >= 0:
        w.step = _CLUSTER_PREV
        return w.held_prev
    if w.held_recent >= 0:
        w.step = _CLUSTER_RECENT
        return w.held_recent
    if w.step == 0:
        w.step = _FALLBACK
    return target


@step
def select_idle_sibling(w: Wakeup, m: Machine, target: int) -> int:
    """The unchanged second half: the CPU that the idle search comes to."""
    cpu = select_idle_near(w, m, target)
    if cpu == NONE:
        nr = scan_budget(w, m, target)
        cpu = scan_llc(w, m, target, nr)
        if cpu == NONE:
            cpu = select_idle_last(w, m, target)
    return cpu
