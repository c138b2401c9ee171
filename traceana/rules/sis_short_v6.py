"""SIS_SHORT v6: as v5, but short tasks must not switch their wakees.

Rule
----
A task is short if dur_avg is known and below an eighth of the slice, and its wakee_flips is 0:
it wakes always the same one. The two places of v5: in wake_affine_idle() a short task that runs
alone on this_cpu makes this_cpu the target (place A); in select_idle_cpu() a short wakee is
left on this_cpu, if it is the target and its only task is short, and the LLC is busy enough
(place B; final).

Source
------
"sched/fair: Wake short task on current CPU", Chen Yu, v6 of 22 Feb 2023. Not merged.

Conditions
----------
Place A, behind the idle, the sync and the prev-idle answer of wake_affine():
1. this_cpu is not prev_cpu, wake_wide() is false, the wakee may run on this_cpu, prev_cpu
   lies in a wake-affine domain;
2. none of the three earlier answers was given;
3. nr_running(this_cpu) is 1, the task running there is short and its flips are 0.

Place B, in select_idle_cpu() behind the test for an empty budget:
1. no CPU was found before the scan, and nr_idle_scan is not 0;
2. no idle-core hint;
3. the target is this_cpu;
4. 5 * (nr_idle_scan + 1) < 3 * CPUs of the LLC;
5. nr_running(target) is at most 1;
6. the wakee is short with flips 0, and so is the task running on the target.

Reads
-----
dur_avg and flips of wakee and waker, nr_running, idle CPUs, flips, loads (place A changes
nothing where wake_affine_weight() would have chosen this_cpu as well: "place_a_same"), idle-
core hint, nr_idle_scan (from rebuilt utilisation).

Limits
------
Flips as they stand after record_wakee() of this wakeup: a pair has flips 1 until a second has
passed, and 0 only then. Flips that are not known keep the rule from firing, a condition of its
own. The task on this_cpu is the waker, in an interrupt the interrupted one. A task of flips 0
is never wide, so wake_wide() is no condition of its own. An unknown dur_avg is not short;
counted as a condition of its own.
"""

from __future__ import annotations

from traceana.rules.interface import (
    NONE,
    Machine,
    Params,
    Wakeup,
    affine_unmet_calm,
    has_idle_core,
    njit,
    short,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {
    "threshold_ns": ("short_threshold_ns", "ns", "short: 0 < dur_avg < this (slice / 8)"),
    "gate_scan": (5, "", "place B: gate_scan * (nr_idle_scan + 1) < gate_weight * CPUs"),
    "gate_weight": (3, "", "the other side of the gate"),
}

REASONS = ("recorded", "mainline", "place_a", "place_b", "place_a_same")

CONDITIONS = {
    "a.apart": "this_cpu is not prev_cpu",
    "a.allowed": "the wakee may run on this_cpu",
    "a.domain": "prev_cpu lies in a wake-affine domain of this_cpu",
    "a.no_sync": "no sync wakeup by a task alone on its CPU",
    "a.prev_busy": "prev_cpu is not idle",
    "a.alone": "nr_running(this_cpu) is 1",
    "a.curr_known": "dur_avg of the task on this_cpu is known",
    "a.curr_short": "the task on this_cpu is short",
    "a.flips_known": "wakee_flips of the task on this_cpu is known",
    "a.calm": "wakee_flips of the task on this_cpu is 0",
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
    "b.flips_known": "wakee_flips of both tasks are known",
    "b.wakee_calm": "wakee_flips of the wakee is 0",
    "b.curr_calm": "wakee_flips of the task on this_cpu is 0",
}

STEPS = {"after_prev": "place_a", "in_scan": "place_b"}

_THRESHOLD, _GATE_SCAN, _GATE_WEIGHT = 0, 1, 2

CASES = (
    {
        "name": "place A",
        "machine": {
            "cpus": 4,
            "nr": [1, 2, 1, 1],
            "curr_dur": [5000, 9000000, 9000000, 9000000],
            "load": [900, 100, 500, 500],
            "nr_idle_scan": 4,
        },
        "wakeup": {
            "this_cpu": 0,
            "prev_cpu": 1,
            "wakee_dur": 9000000,
            "wakee_load": 10,
            "waker_flips": 0,
            "wakee_flips": 0,
            "recorded_cpu": 1,
        },
        "params": {"threshold_ns": 281250},
        "cpu": 0,
        "reason": "place_a",
    },
    {
        "name": "place A sets the target only: the scan from there finds CPU 3",
        "like": "place A",
        "machine": {"nr": [1, 2, 1, 0], "curr_dur": [5000, 9000000, 9000000, 0]},
        "cpu": 3,
    },
    {
        "name": "the weight step says this_cpu as well: nothing changes",
        "like": "place A",
        "machine": {"load": [100, 900, 500, 500]},
        "wakeup": {"recorded_cpu": 2},
        "cpu": 2,
        "reason": "place_a_same",
    },
    {
        "name": "this_cpu is prev_cpu",
        "like": "place A",
        "wakeup": {"prev_cpu": 0},
        "misses": "a.apart",
    },
    {
        "name": "a waker of flips 0 is never wide",
        "like": "place A",
        "wakeup": {"waker_flips": 0, "wakee_flips": 64},
    },
    {
        "name": "not allowed",
        "like": "place A",
        "wakeup": {"allowed": [1, 2, 3]},
        "misses": "a.allowed",
    },
    {
        "name": "beyond the last wake-affine domain",
        "like": "place A",
        "machine": {"zone": [0, 1, 1, 1]},
        "misses": "a.domain",
    },
    {"name": "sync", "like": "place A", "wakeup": {"sync": 1}, "misses": "a.no_sync"},
    {
        "name": "prev_cpu is idle",
        "like": "place A",
        "machine": {"nr": [1, 0, 1, 1], "curr_dur": [5000, 0, 9000000, 9000000]},
        "misses": "a.prev_busy",
    },
    {
        "name": "two tasks on this_cpu",
        "like": "place A",
        "machine": {"nr": [2, 2, 1, 1]},
        "misses": "a.alone",
    },
    {
        "name": "dur_avg on this_cpu unknown",
        "like": "place A",
        "machine": {"curr_dur": [-1, 9000000, 9000000, 9000000]},
        "misses": "a.curr_known",
    },
    {
        "name": "exactly at the limit on this_cpu: the last that is short",
        "like": "place A",
        "machine": {"curr_dur": [281249, 9000000, 9000000, 9000000]},
    },
    {
        "name": "the first that is not",
        "like": "exactly at the limit on this_cpu: the last that is short",
        "machine": {"curr_dur": [281250, 9000000, 9000000, 9000000]},
        "misses": "a.curr_short",
        "boundary": "threshold_ns",
    },
    {
        "name": "dur_avg 0 is not short",
        "like": "place A",
        "machine": {"curr_dur": [0, 9000000, 9000000, 9000000]},
        "misses": "a.curr_short",
    },
    {
        "name": "flips of the task on this_cpu unknown",
        "like": "place A",
        "wakeup": {"waker_flips": -1},
        "misses": "a.flips_known",
    },
    {
        "name": "the task on this_cpu switches its wakees",
        "like": "place A",
        "wakeup": {"waker_flips": 1},
        "misses": "a.calm",
    },
    {
        "name": "place B",
        "machine": {"cpus": 8, "nr": [1] * 8, "curr_dur": [5000] * 8, "nr_idle_scan": 3},
        "wakeup": {
            "this_cpu": 0,
            "prev_cpu": 0,
            "wakee_dur": 5000,
            "waker_flips": 0,
            "wakee_flips": 0,
            "recorded_cpu": 1,
        },
        "params": {"threshold_ns": 281250},
        "cpu": 0,
        "reason": "place_b",
    },
    {
        "name": "section 10.3: p0' wakes p0, both short, LLC busy enough",
        "machine": {
            "cpus": 8,
            "nr": [1, 0, 0, 1, 1, 1, 1, 1],
            "curr_dur": [4000, 0, 0, 900000, 900000, 900000, 900000, 900000],
            "nr_idle_scan": 3,
        },
        "wakeup": {
            "this_cpu": 0,
            "prev_cpu": 0,
            "wakee_dur": 10000,
            "waker_flips": 0,
            "wakee_flips": 0,
            "recorded_cpu": 1,
        },
        "params": {"threshold_ns": 375000},
        "cpu": 0,
        "reason": "place_b",
    },
    {
        "name": "section 10.3: p2' is not short, p2 stays where it was recorded",
        "like": "section 10.3: p0' wakes p0, both short, LLC busy enough",
        "machine": {"pending": [0, 1, 0, 0, 0, 0, 0, 0]},
        "wakeup": {"this_cpu": 7, "prev_cpu": 7, "wakee_dur": 40000},
        "cpu": 1,
        "reason": "recorded",
        "blocked_by": ["a.apart", "a.curr_short", "b.curr_short"],
    },
    {
        "name": "an idle recent CPU is found before",
        "like": "place B",
        "machine": {
            "nr": [1, 1, 0, 1, 1, 1, 1, 1],
            "curr_dur": [5000, 5000, 0, 5000, 5000, 5000, 5000, 5000],
        },
        "wakeup": {"recent_cpu": 2, "recorded_cpu": 2},
        "misses": "b.not_near",
    },
    {
        "name": "nr_idle_scan unknown",
        "like": "place B",
        "machine": {"nr_idle_scan": -1},
        "misses": "b.scan_known",
    },
    {
        "name": "no scan at all",
        "like": "place B",
        "machine": {"nr_idle_scan": 0},
        "wakeup": {"recorded_cpu": 0},
        "misses": "b.scan",
    },
    {
        "name": "an idle-core hint",
        "like": "place B",
        "machine": {"core": [0, 0, 1, 1, 2, 2, 3, 3], "idle_core": 1},
        "misses": "b.no_idle_core",
    },
    {
        "name": "the target is prev_cpu, outside the domain",
        "like": "place B",
        "machine": {"zone": [0, 1, 1, 1, 1, 1, 1, 1]},
        "wakeup": {"prev_cpu": 1},
        "misses": "b.target",
    },
    {
        "name": "the gate, exactly at its limit: 5 * 5 is not below 3 * 8",
        "like": "place B",
        "machine": {"nr_idle_scan": 4},
        "misses": "b.gate",
        "boundary": "gate_scan",
    },
    {
        "name": "two tasks there",
        "like": "place B",
        "machine": {"nr": [2, 1, 1, 1, 1, 1, 1, 1]},
        "misses": "b.alone",
    },
    {
        "name": "dur_avg of the wakee unknown",
        "like": "place B",
        "wakeup": {"wakee_dur": -1},
        "misses": "b.wakee_known",
    },
    {
        "name": "exactly at the limit: the longest wakee that is short",
        "like": "place B",
        "wakeup": {"wakee_dur": 281249},
    },
    {
        "name": "the shortest wakee that is not",
        "like": "exactly at the limit: the longest wakee that is short",
        "wakeup": {"wakee_dur": 281250},
        "misses": "b.wakee_short",
        "boundary": "threshold_ns",
    },
    {
        "name": "dur_avg there unknown",
        "like": "place B",
        "machine": {"curr_dur": [-1, 5000, 5000, 5000, 5000, 5000, 5000, 5000]},
        "misses": "b.curr_known",
    },
    {
        "name": "a long task there",
        "like": "place B",
        "machine": {"curr_dur": [281250, 5000, 5000, 5000, 5000, 5000, 5000, 5000]},
        "misses": "b.curr_short",
    },
    {
        "name": "flips of the wakee unknown",
        "like": "place B",
        "wakeup": {"wakee_flips": -1},
        "misses": "b.flips_known",
    },
    {
        "name": "the wakee switches its wakees",
        "like": "place B",
        "wakeup": {"wakee_flips": 1},
        "misses": "b.wakee_calm",
    },
    {
        "name": "the waker switches its wakees",
        "like": "place B",
        "wakeup": {"waker_flips": 1},
        "misses": "b.curr_calm",
    },
)


@njit
def after_prev(w: Wakeup, m: Machine, p: Params) -> int:
    """Place A, in wake_affine_idle(): this_cpu becomes the target."""
    this = m.cpus[w.this_cpu]
    if this.nr == 1 and short(this.curr_dur, p[_THRESHOLD]) and w.waker_flips == 0:
        return w.this_cpu
    return NONE


@njit
def in_scan(w: Wakeup, m: Machine, p: Params) -> int:
    """Place B, in select_idle_cpu() behind the budget: the target, final."""
    target = w.target
    llc = m.llcs[m.cpus[target].llc]
    if (
        llc.nr_idle_scan > 0
        and not has_idle_core(m, target)
        and target == w.this_cpu
        and p[_GATE_SCAN] * (llc.nr_idle_scan + 1) < p[_GATE_WEIGHT] * llc.weight
        and m.cpus[target].nr <= 1
        and short(w.wakee_dur, p[_THRESHOLD])
        and short(m.cpus[target].curr_dur, p[_THRESHOLD])
        and w.wakee_flips == 0
        and w.waker_flips == 0
    ):
        return target
    return NONE


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met; place B as if this_cpu were target."""
    this = m.cpus[w.this_cpu]
    bits = affine_unmet_calm(w)
    if this.nr != 1:
        bits |= 1 << 5
    if this.curr_dur < 0:
        bits |= 1 << 6
    elif not short(this.curr_dur, p[_THRESHOLD]):
        bits |= 1 << 7
    if w.waker_flips < 0:
        bits |= 1 << 8
    elif w.waker_flips != 0:
        bits |= 1 << 9

    # Place B: as if this_cpu were the target.
    cpu = w.this_cpu
    if w.near_this != 0:
        bits |= 1 << 10
    llc = m.llcs[m.cpus[cpu].llc]
    if llc.nr_idle_scan < 0:
        bits |= 1 << 11
    elif llc.nr_idle_scan == 0:
        bits |= 1 << 12
    if llc.nr_idle_scan >= 0 and (
        p[_GATE_SCAN] * (llc.nr_idle_scan + 1) >= p[_GATE_WEIGHT] * llc.weight
    ):
        bits |= 1 << 15
    if has_idle_core(m, cpu):
        bits |= 1 << 13
    if w.target != cpu:
        bits |= 1 << 14
    if m.cpus[cpu].nr > 1:
        bits |= 1 << 16
    if w.wakee_dur < 0:
        bits |= 1 << 17
    elif not short(w.wakee_dur, p[_THRESHOLD]):
        bits |= 1 << 18
    if m.cpus[cpu].curr_dur < 0:
        bits |= 1 << 19
    elif not short(m.cpus[cpu].curr_dur, p[_THRESHOLD]):
        bits |= 1 << 20
    if w.wakee_flips < 0 or w.waker_flips < 0:
        bits |= 1 << 21
    else:
        if w.wakee_flips != 0:
            bits |= 1 << 22
        if w.waker_flips != 0:
            bits |= 1 << 23
    return bits
