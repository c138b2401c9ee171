"""SIS_SHORT v3: a short pair stays on the target, however idle the LLC.

Rule
----
A task is short if dur_avg is at most the slice. Two places: at the end of wake_affine_idle() a
short task that runs alone on this_cpu makes this_cpu the target (place A); in
select_idle_cpu(), before any budget is asked for, a short wakee is left on a target whose only
task is short (place B; final).

Source
------
"sched/fair: Choose the CPU where short task is running during wake up", Chen Yu, v3 of 1 Dec
2022. Not merged.

Conditions
----------
Place A:
1. this_cpu is not prev_cpu, wake_wide() is false, the wakee may run on this_cpu, prev_cpu
   lies in a wake-affine domain;
2. neither the idle, the sync nor the prev-idle answer of wake_affine() was given;
3. nr_running(this_cpu) is 1 and the task running there is short.

Place B, at the head of select_idle_cpu():
1. no CPU was found before the scan;
2. no idle-core hint;
3. nr_running(target) is 1;
4. the wakee is short, and so is the task on the target.

Reads
-----
dur_avg of the wakee and of current tasks, nr_running, idle CPUs, flips, loads (place A changes
nothing where wake_affine_weight() would have chosen this_cpu as well: "place_a_same"), idle-
core hint.

Limits
------
v3 took its samples in put_prev_task_fair(): only where the CPU went idle or to another class
after a block. The timeline's dur_avg has a sample at every voluntary sleep, as since v4.
dur_avg 0 (no sample yet) is short. An unknown dur_avg is not short; counted as a condition of
its own.
"""

from __future__ import annotations

from traceana.rules.interface import (
    NONE,
    Machine,
    Params,
    Wakeup,
    affine_unmet_busy,
    has_idle_core,
    njit,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {
    "threshold_ns": ("slice_ns", "ns", "short: dur_avg <= this (the slice)"),
}

REASONS = ("recorded", "mainline", "place_a", "place_b", "place_a_same")

CONDITIONS = {
    "a.apart": "this_cpu is not prev_cpu",
    "a.not_wide": "wake_wide() is false",
    "a.allowed": "the wakee may run on this_cpu",
    "a.domain": "prev_cpu lies in a wake-affine domain of this_cpu",
    "a.no_sync": "no sync wakeup by a task alone on its CPU",
    "a.prev_busy": "prev_cpu is not idle",
    "a.alone": "nr_running(this_cpu) is 1",
    "a.curr_known": "dur_avg of the task on this_cpu is known",
    "a.curr_short": "the task on this_cpu is short",
    "b.not_near": "no CPU found before the scan",
    "b.no_idle_core": "no idle-core hint",
    "b.alone": "nr_running(target) is 1",
    "b.wakee_known": "dur_avg of the wakee is known",
    "b.wakee_short": "the wakee is short",
    "b.curr_known": "dur_avg of the task on the target is known",
    "b.curr_short": "the task on the target is short",
}

STEPS = {"after_prev": "place_a", "before_scan": "place_b"}

_THRESHOLD = 0

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
        "name": "dur_avg 0 is short",
        "like": "place A",
        "machine": {"curr_dur": [0, 9000000, 9000000, 9000000]},
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
        "name": "section 10.3: p0' wakes p0, both short, LLC busy enough",
        "machine": {
            "cpus": 8,
            "nr": [1, 0, 0, 1, 1, 1, 1, 1],
            "curr_dur": [4000, 0, 0, 900000, 900000, 900000, 900000, 900000],
            "nr_idle_scan": 3,
        },
        "wakeup": {"this_cpu": 0, "prev_cpu": 0, "wakee_dur": 10000, "recorded_cpu": 1},
        "params": {"threshold_ns": 3000000},
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
    {"name": "also where there is no scan", "like": "place B", "machine": {"nr_idle_scan": 0}},
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
def _short(dur_avg: int, threshold: int) -> bool:
    """Whether a task is short: dur_avg known and not above the threshold; 0 is short."""
    return dur_avg >= 0 and dur_avg <= threshold


@njit
def after_prev(w: Wakeup, m: Machine, p: Params) -> int:
    """Place A, in wake_affine_idle(): this_cpu becomes the target."""
    this = m.cpus[w.this_cpu]
    if this.nr == 1 and _short(this.curr_dur, p[_THRESHOLD]):
        return w.this_cpu
    return NONE


@njit
def before_scan(w: Wakeup, m: Machine, p: Params) -> int:
    """Place B, at the head of select_idle_cpu(): the target, final."""
    target = w.target
    if (
        not has_idle_core(m, target)
        and m.cpus[target].nr == 1
        and _short(w.wakee_dur, p[_THRESHOLD])
        and _short(m.cpus[target].curr_dur, p[_THRESHOLD])
    ):
        return target
    return NONE


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    this = m.cpus[w.this_cpu]
    bits = affine_unmet_busy(w)
    if this.nr != 1:
        bits |= 1 << 6
    if this.curr_dur < 0:
        bits |= 1 << 7
    elif not _short(this.curr_dur, p[_THRESHOLD]):
        bits |= 1 << 8

    cpu = w.target
    if w.near != 0:
        bits |= 1 << 9
    if has_idle_core(m, cpu):
        bits |= 1 << 10
    if m.cpus[cpu].nr != 1:
        bits |= 1 << 11
    if w.wakee_dur < 0:
        bits |= 1 << 12
    elif not _short(w.wakee_dur, p[_THRESHOLD]):
        bits |= 1 << 13
    if m.cpus[cpu].curr_dur < 0:
        bits |= 1 << 14
    elif not _short(m.cpus[cpu].curr_dur, p[_THRESHOLD]):
        bits |= 1 << 15
    return bits
