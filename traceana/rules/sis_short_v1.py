"""SIS_SHORT v1: a short waker keeps its wakee near, a short pair stays on the target.

Rule
----
A task is short if it ran for at most the slice between two voluntary switches, on average over
its life; the idle task is. Two places: in wake_affine_idle(), joined to the sync test by "or",
a short task on this_cpu makes this_cpu the target (place A: before prev_cpu is looked at,
however many tasks are there); in select_idle_cpu() a short wakee is left on a target that runs
a short task, if the LLC is busy enough (place B; final).

Source
------
"sched/fair: Choose the CPU where short task is running during wake up", Chen Yu, v1 of
September 2022, on 6.0-rc4. Not merged.

Conditions
----------
Place A:
1. this_cpu is not prev_cpu, wake_wide() is false, the wakee may run on this_cpu, prev_cpu
   lies in a wake-affine domain;
2. this_cpu is not idle (in the LLC of prev_cpu), no sync wakeup by a task alone;
3. the task on this_cpu is short, or it is the idle task.

Place B, in select_idle_cpu() behind the test for an empty budget:
1. no CPU was found before the scan, and nr_idle_scan is not 0;
2. no idle-core hint;
3. 5 * (nr_idle_scan + 1) < 3 * CPUs of the LLC;
4. the wakee is short, and so is the task on the target.

Reads
-----
dur_avg of the wakee and of current tasks, nr_running, idle CPUs, flips, loads (place A changes
nothing where wake_affine_weight() would have chosen this_cpu as well: "place_a_same"), idle-
core hint, nr_idle_scan (from rebuilt utilisation).

Limits
------
The kernel's measure was sum_exec_runtime / nvcsw over the task's whole life, which no capture
holds: dur_avg, the same quantity weighted to the recent past, stands for it. A task that has
not slept yet (dur_avg 0) is not short. An unknown dur_avg is not short; counted as a condition
of its own.
"""

from __future__ import annotations

from traceana.rules.interface import (
    NONE,
    Machine,
    Params,
    Wakeup,
    affine_unmet,
    has_idle_core,
    njit,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {
    "threshold_ns": ("slice_ns", "ns", "short: 0 < dur_avg <= this (the slice)"),
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
    "a.curr_known": "dur_avg of the task on this_cpu is known",
    "a.curr_short": "the task on this_cpu is short",
    "b.not_near": "no CPU found before the scan",
    "b.scan_known": "nr_idle_scan is known",
    "b.scan": "nr_idle_scan is not 0",
    "b.no_idle_core": "no idle-core hint",
    "b.gate": "the LLC is busy enough: 5 * (nr_idle_scan + 1) < 3 * CPUs",
    "b.wakee_known": "dur_avg of the wakee is known",
    "b.wakee_short": "the wakee is short",
    "b.curr_known": "dur_avg of the task on the target is known",
    "b.curr_short": "the task on the target is short",
}

STEPS = {"before_prev": "place_a", "in_scan": "place_b"}

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
            "recorded_cpu": 1,
        },
        "params": {"threshold_ns": 2250000},
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
        "name": "place A comes before the test whether prev_cpu is idle (the search does not)",
        "like": "place A",
        "machine": {"nr": [2, 0, 1, 1], "curr_dur": [5000, 0, 9000000, 9000000]},
        "wakeup": {"recorded_cpu": 2},
        "cpu": 1,
    },
    {
        "name": "place A does not ask how many tasks are there",
        "like": "place A",
        "machine": {"nr": [2, 2, 1, 1]},
    },
    {
        "name": "this_cpu is prev_cpu",
        "like": "place A",
        "wakeup": {"prev_cpu": 0},
        "misses": "a.apart",
    },
    {
        "name": "wide",
        "like": "place A",
        "wakeup": {"waker_flips": 64, "wakee_flips": 8},
        "misses": "a.not_wide",
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
    {
        "name": "this_cpu is idle: wake_affine_idle() answers before",
        "like": "place A",
        "machine": {"nr": [0, 2, 1, 1], "curr_dur": [0, 9000000, 9000000, 9000000]},
        "wakeup": {"recorded_cpu": 0},
        "misses": "a.this_busy",
    },
    {"name": "sync", "like": "place A", "wakeup": {"sync": 1}, "misses": "a.no_sync"},
    {
        "name": "dur_avg on this_cpu unknown",
        "like": "place A",
        "machine": {"curr_dur": [-1, 9000000, 9000000, 9000000]},
        "misses": "a.curr_known",
    },
    {
        "name": "exactly at the limit on this_cpu: the last that is short",
        "like": "place A",
        "machine": {"curr_dur": [2250000, 9000000, 9000000, 9000000]},
    },
    {
        "name": "the first that is not",
        "like": "exactly at the limit on this_cpu: the last that is short",
        "machine": {"curr_dur": [2250001, 9000000, 9000000, 9000000]},
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
        "name": "place B",
        "machine": {"cpus": 8, "nr": [1] * 8, "curr_dur": [5000] * 8, "nr_idle_scan": 3},
        "wakeup": {"this_cpu": 0, "prev_cpu": 0, "wakee_dur": 5000, "recorded_cpu": 1},
        "params": {"threshold_ns": 2250000},
        "cpu": 0,
        "reason": "place_b",
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
        "name": "the target may be prev_cpu",
        "like": "place B",
        "machine": {"curr_dur": [9000000, 5000, 5000, 5000, 5000, 5000, 5000, 5000]},
        "wakeup": {"prev_cpu": 1, "recorded_cpu": 2},
        "cpu": 1,
    },
    {
        "name": "the gate, exactly at its limit: 5 * 5 is not below 3 * 8",
        "like": "place B",
        "machine": {"nr_idle_scan": 4},
        "misses": "b.gate",
        "boundary": "gate_scan",
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
        "wakeup": {"wakee_dur": 2250000},
    },
    {
        "name": "the shortest wakee that is not",
        "like": "exactly at the limit: the longest wakee that is short",
        "wakeup": {"wakee_dur": 2250001},
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
        "machine": {"curr_dur": [2250001, 5000, 5000, 5000, 5000, 5000, 5000, 5000]},
        "misses": "b.curr_short",
    },
)


@njit
def _short_task(m: Machine, cpu: int, threshold: int) -> bool:
    """Whether the task that runs there is short; the idle task is (0 <= 0)."""
    c = m.cpus[cpu]
    return c.idle != 0 or (c.curr_dur > 0 and c.curr_dur <= threshold)


@njit
def before_prev(w: Wakeup, m: Machine, p: Params) -> int:
    """Place A, in wake_affine_idle(): this_cpu becomes the target."""
    if _short_task(m, w.this_cpu, p[_THRESHOLD]):
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
        and p[_GATE_SCAN] * (llc.nr_idle_scan + 1) < p[_GATE_WEIGHT] * llc.weight
        and 0 < w.wakee_dur <= p[_THRESHOLD]
        and _short_task(m, target, p[_THRESHOLD])
    ):
        return target
    return NONE


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    this = m.cpus[w.this_cpu]
    bits = affine_unmet(w) & 0x3F
    if this.curr_dur < 0 and this.idle == 0:
        bits |= 1 << 6
    elif not _short_task(m, w.this_cpu, p[_THRESHOLD]):
        bits |= 1 << 7

    cpu = w.target
    if w.near != 0:
        bits |= 1 << 8
    llc = m.llcs[m.cpus[cpu].llc]
    if llc.nr_idle_scan < 0:
        bits |= 1 << 9
    elif llc.nr_idle_scan == 0:
        bits |= 1 << 10
    if llc.nr_idle_scan >= 0 and (
        p[_GATE_SCAN] * (llc.nr_idle_scan + 1) >= p[_GATE_WEIGHT] * llc.weight
    ):
        bits |= 1 << 12
    if has_idle_core(m, cpu):
        bits |= 1 << 11
    if w.wakee_dur < 0:
        bits |= 1 << 13
    elif not (0 < w.wakee_dur <= p[_THRESHOLD]):
        bits |= 1 << 14
    if m.cpus[cpu].curr_dur < 0 and m.cpus[cpu].idle == 0:
        bits |= 1 << 15
    elif not _short_task(m, cpu, p[_THRESHOLD]):
        bits |= 1 << 16
    return bits
