"""SIS_SHORT v5: a short wakee woken by a short waker stays on the waker's CPU.

Rule
----
A task is short if its average run time between two voluntary sleeps (dur_avg) is known and
below an eighth of the slice. Two places: in wake_affine_idle(), a short task that runs alone
on this_cpu makes this_cpu the target (place A; the idle search follows and may leave it);
in select_idle_cpu(), a short wakee is left on a target whose only task is short, instead of
a scan, if the LLC is busy enough (place B; final).

Source
------
"sched/fair: Wake short task on current CPU", Chen Yu, v5 of 3 Feb 2023, on 6.2-rc1. Not
merged.

Conditions
----------
Place A, in this order, after the idle, the sync and the prev-idle answer of wake_affine():
1. this_cpu is not prev_cpu, wake_wide() is false, the wakee may run on this_cpu, prev_cpu
   lies in a wake-affine domain;
2. none of the three earlier answers was given;
3. nr_running(this_cpu) is 1 and the task running there is short.

Place B, in select_idle_cpu() behind the test for an empty budget:
1. no CPU was found before the scan (target, prev_cpu, recent CPU … idle), and
   nr_idle_scan is not 0;
2. no idle-core hint;
3. the target is this_cpu;
4. 5 * (nr_idle_scan + 1) < 3 * CPUs of the LLC;
5. nr_running(target) is at most 1;
6. the wakee is short, and so is the task running on the target.

Reads
-----
dur_avg of wakee and of the task on this_cpu, nr_running, idle CPUs, flips, idle-core hint,
nr_idle_scan (from rebuilt utilisation); in the open loop also loads: place A changes nothing
where wake_affine_weight() would have chosen this_cpu as well, and the wakeup then stays where
it was recorded ("place_a_same").

Limits
------
An unknown dur_avg is not short and an unknown nr_idle_scan keeps place B from firing; both
are counted as conditions of their own. On kernels before 6.0 (no SIS_UTIL) place B's gate
uses the nr_idle_scan that the rebuilt utilisation gives. In an interrupt "the task on
this_cpu" is the interrupted one, as in the kernel.
"""

from __future__ import annotations

from traceana.rules.interface import (
    AFFINE_RULE,
    MAINLINE,
    NONE,
    RECORDED,
    STEP_RULE,
    Machine,
    Params,
    Wakeup,
    affine_obstacles,
    has_idle_core,
    njit,
    scan_budget,
    scan_llc,
    select_idle_last,
    select_idle_near,
    short,
    wake_affine_idle,
    wake_affine_weight,
    wants_affine,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {
    "threshold_ns": ("short_threshold_ns", "ns", "short: 0 < dur_avg < this (slice / 8)"),
    "gate_scan": (5, "", "place B: gate_scan * (nr_idle_scan + 1) < gate_weight * CPUs"),
    "gate_weight": (3, "", "the other side of the gate"),
}

REASONS = ("recorded", "mainline", "place_a", "place_b", "place_a_same")

CONDITIONS = {
    "a.apart": "this_cpu is not prev_cpu",
    "a.not_wide": "wake_wide() is false",
    "a.allowed": "the wakee may run on this_cpu",
    "a.domain": "prev_cpu lies in a wake-affine domain of this_cpu",
    "a.this_busy": "this_cpu, in the LLC of prev_cpu, is not idle (an interrupt's wakeup)",
    "a.no_sync": "no sync wakeup by a task alone on its CPU",
    "a.prev_busy": "prev_cpu is not idle",
    "a.alone": "nr_running(this_cpu) is 1",
    "a.curr_known": "dur_avg of the task on this_cpu is known",
    "a.curr_short": "the task on this_cpu is short",
    "b.not_near": "no CPU found before the scan",
    "b.scan_known": "nr_idle_scan is known",
    "b.scan": "nr_idle_scan is not 0",
    "b.no_idle_core": "no idle-core hint",
    "b.target": "the target is this_cpu",
    "b.gate": "the LLC is busy enough: 5 * (nr_idle_scan + 1) < 3 * CPUs",
    "b.alone": "nr_running(this_cpu) is at most 1",
    "b.wakee_known": "dur_avg of the wakee is known",
    "b.wakee_short": "the wakee is short",
    "b.curr_known": "dur_avg of the task on this_cpu is known",
    "b.curr_short": "the task on this_cpu is short",
}

_THRESHOLD, _GATE_SCAN, _GATE_WEIGHT = 0, 1, 2
_PLACE_A, _PLACE_B, _PLACE_A_SAME = 2, 3, 4

CASES = (
    {
        "name": "section 10.3: p0' wakes p0, both short, LLC busy enough",
        "machine": {
            "cpus": 8,
            "nr": [1, 0, 0, 1, 1, 1, 1, 1],
            "curr_dur": [4000, 0, 0, 900000, 900000, 900000, 900000, 900000],
            "nr_idle_scan": 3,
        },
        "wakeup": {"this_cpu": 0, "prev_cpu": 0, "wakee_dur": 10000, "recorded_cpu": 1},
        "params": {"threshold_ns": 375000},
        "cpu": 0,
        "reason": "place_b",
    },
    {
        "name": "section 10.3: p2' is not short, p2 stays where it was recorded",
        "machine": {
            "cpus": 8,
            "nr": [1, 0, 0, 1, 1, 1, 1, 1],
            "pending": [0, 1, 0, 0, 0, 0, 0, 0],
            "curr_dur": [4000, 0, 0, 900000, 900000, 900000, 900000, 900000],
            "nr_idle_scan": 3,
        },
        "wakeup": {"this_cpu": 7, "prev_cpu": 7, "wakee_dur": 40000, "recorded_cpu": 1},
        "params": {"threshold_ns": 375000},
        "cpu": 1,
        "reason": "recorded",
        "blocked_by": ["a.apart", "a.curr_short", "b.curr_short"],
    },
    {
        "name": "place A: a short waker alone, prev_cpu busy and less loaded; all else busy",
        "machine": {
            "cpus": 4,
            "nr": [1, 2, 1, 1],
            "curr_dur": [5000, 900000, 900000, 900000],
            "load": [900, 100, 500, 500],
            "nr_idle_scan": 4,
        },
        "wakeup": {
            "this_cpu": 0,
            "prev_cpu": 1,
            "wakee_dur": 2000000,
            "wakee_load": 10,
            "recorded_cpu": 1,
        },
        "params": {"threshold_ns": 281250},
        "cpu": 0,
        "reason": "place_a",
    },
    {
        "name": "place A sets the target only: the scan from there finds CPU 3",
        "machine": {
            "cpus": 4,
            "nr": [1, 2, 1, 0],
            "curr_dur": [5000, 900000, 900000, 0],
            "load": [900, 100, 500, 0],
            "nr_idle_scan": 4,
        },
        "wakeup": {
            "this_cpu": 0,
            "prev_cpu": 1,
            "wakee_dur": 2000000,
            "wakee_load": 10,
            "recorded_cpu": 1,
        },
        "params": {"threshold_ns": 281250},
        "cpu": 3,
        "reason": "place_a",
    },
    {
        "name": "the weight step says this_cpu as well: nothing changes",
        "machine": {
            "cpus": 4,
            "nr": [1, 2, 1, 0],
            "curr_dur": [5000, 900000, 900000, 0],
            "load": [100, 900, 500, 0],
            "nr_idle_scan": 4,
        },
        "wakeup": {
            "this_cpu": 0,
            "prev_cpu": 1,
            "wakee_dur": 2000000,
            "wakee_load": 10,
            "recorded_cpu": 2,
        },
        "params": {"threshold_ns": 281250},
        "cpu": 2,
        "reason": "place_a_same",
    },
    {
        "name": "dur_avg 0 is not short",
        "machine": {"cpus": 8, "nr": [1] * 8, "curr_dur": [0] * 8, "nr_idle_scan": 3},
        "wakeup": {"this_cpu": 0, "prev_cpu": 0, "wakee_dur": 10000, "recorded_cpu": 5},
        "params": {"threshold_ns": 375000},
        "cpu": 5,
        "reason": "recorded",
        "blocked_by": ["a.apart", "a.curr_short", "b.curr_short"],
    },
)


@njit
def _place_a(w: Wakeup, m: Machine, p: Params) -> bool:
    """The test that v5 appends to wake_affine_idle()."""
    this = m.cpus[w.this_cpu]
    return this.nr == 1 and short(this.curr_dur, p[_THRESHOLD])


@njit
def _gate(m: Machine, cpu: int, p: Params) -> bool:
    """Whether the LLC is busy enough to stack; false where nr_idle_scan is not known."""
    llc = m.llcs[m.cpus[cpu].llc]
    return llc.nr_idle_scan >= 0 and (
        p[_GATE_SCAN] * (llc.nr_idle_scan + 1) < p[_GATE_WEIGHT] * llc.weight
    )


@njit
def _place_b(w: Wakeup, m: Machine, p: Params, target: int) -> bool:
    """The test that v5 puts into select_idle_cpu()."""
    return (
        m.llcs[m.cpus[target].llc].nr_idle_scan != 0
        and not has_idle_core(m, target)
        and target == w.this_cpu
        and _gate(m, target, p)
        and m.cpus[target].nr <= 1
        and short(w.wakee_dur, p[_THRESHOLD])
        and short(m.cpus[target].curr_dur, p[_THRESHOLD])
    )


@njit
def decide(w: Wakeup, m: Machine, p: Params) -> tuple[int, int]:
    """Return (CPU, index of REASONS)."""
    recorded = w.recorded_cpu
    fired = MAINLINE
    target = w.prev_cpu
    if wants_affine(w, m):
        answer = wake_affine_idle(w, m)
        if answer == NONE:
            if _place_a(w, m, p):
                fired = _PLACE_A
                answer = w.this_cpu
                # With a recording at hand the kernel's own comparison tells whether the
                # rule changes the target at all.
                if recorded >= 0 and wake_affine_weight(w, m) == answer:
                    fired = _PLACE_A_SAME
                w.affine = AFFINE_RULE
            else:
                answer = wake_affine_weight(w, m)
        if answer != NONE:
            target = answer
    w.target = target

    cpu = select_idle_near(w, m, target)
    if cpu == NONE:
        nr = scan_budget(w, m, target)
        if nr > 0 and _place_b(w, m, p, target):
            w.step = STEP_RULE
            return target, _PLACE_B
        if recorded < 0 or fired == _PLACE_A:
            cpu = scan_llc(w, m, target, nr)
            if cpu == NONE:
                cpu = select_idle_last(w, m, target)
    if recorded >= 0 and fired != _PLACE_A:
        return recorded, RECORDED if fired == MAINLINE else fired
    return cpu, fired


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met; place B as if this_cpu were target."""
    this_cpu = w.this_cpu
    this = m.cpus[this_cpu]
    llc = m.llcs[this.llc]
    threshold = p[_THRESHOLD]
    curr_unknown = this.curr_dur < 0
    curr_long = not curr_unknown and not short(this.curr_dur, threshold)
    reached = wants_affine(w, m)

    bits = affine_obstacles(w, m)
    if this.nr != 1:
        bits |= 1 << 7
    if curr_unknown:
        bits |= 1 << 8
    if curr_long:
        bits |= 1 << 9

    target = w.prev_cpu
    if reached:
        answer = wake_affine_idle(w, m)
        if answer == NONE:
            answer = this_cpu if _place_a(w, m, p) else wake_affine_weight(w, m)
        if answer != NONE:
            target = answer
    if select_idle_near(w, m, this_cpu) != NONE:
        bits |= 1 << 10
    if llc.nr_idle_scan < 0:
        bits |= 1 << 11
    if llc.nr_idle_scan == 0:
        bits |= 1 << 12
    if has_idle_core(m, this_cpu):
        bits |= 1 << 13
    if target != this_cpu:
        bits |= 1 << 14
    if llc.nr_idle_scan >= 0 and not _gate(m, this_cpu, p):
        bits |= 1 << 15
    if this.nr > 1:
        bits |= 1 << 16
    if w.wakee_dur < 0:
        bits |= 1 << 17
    elif not short(w.wakee_dur, threshold):
        bits |= 1 << 18
    if curr_unknown:
        bits |= 1 << 19
    if curr_long:
        bits |= 1 << 20
    return bits
