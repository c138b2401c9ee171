"""Abel's rule: a short wakee is not pulled by load.

Rule
----
In wake_affine_weight() a short wakee gets no answer, so that prev_cpu stays the target and
the idle search starts there. Short does not mean small load: several short wakees would
otherwise stack on one lightly loaded this_cpu.

Source
------
Abel Wu, in the thread of "sched/fair: Wake short task on current CPU" v5, February 2023:
"return nr_cpumask_bits" for a short task at the head of wake_affine_weight(). Not merged.

Conditions
----------
1. this_cpu is not prev_cpu, wake_wide() is false, the wakee may run on this_cpu, prev_cpu
   lies in a wake-affine domain;
2. neither the idle, the sync nor the prev-idle answer of wake_affine() was given;
3. the wakee is short: 0 < dur_avg < threshold (an eighth of the slice);
4. the loads would have pulled it (otherwise the rule changes nothing: "abel_same").

Reads
-----
dur_avg of the wakee, loads of the two CPUs, idle CPUs, nr_running, flips; for the idle search
that follows also the idle-core hint and nr_idle_scan.

Limits
------
Condition 4 rests on rebuilt loads. Where a load is not known nothing is pulled, so the rule
changes nothing. An unknown dur_avg is not short.
"""

from __future__ import annotations

from traceana.rules.interface import (
    AFFINE_RULE,
    MAINLINE,
    NONE,
    RECORDED,
    Machine,
    Params,
    Wakeup,
    affine_obstacles,
    njit,
    select_idle_sibling,
    short,
    wake_affine_idle,
    wake_affine_weight,
    wants_affine,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {
    "threshold_ns": ("short_threshold_ns", "ns", "short: 0 < dur_avg < this (slice / 8)"),
}

REASONS = ("recorded", "mainline", "abel", "abel_same")

CONDITIONS = {
    "apart": "this_cpu is not prev_cpu",
    "not_wide": "wake_wide() is false",
    "allowed": "the wakee may run on this_cpu",
    "domain": "prev_cpu lies in a wake-affine domain of this_cpu",
    "this_busy": "this_cpu, in the LLC of prev_cpu, is not idle (an interrupt's wakeup)",
    "no_sync": "no sync wakeup by a task alone on its CPU",
    "prev_busy": "prev_cpu is not idle",
    "wakee_known": "dur_avg of the wakee is known",
    "wakee_short": "the wakee is short",
    "pulled": "the loads would have pulled the wakee to this_cpu",
}

_THRESHOLD = 0
_ABEL, _ABEL_SAME = 2, 3

CASES = (
    {
        "name": "the loads would pull a short wakee: it goes back to prev_cpu",
        "machine": {
            "cpus": 4,
            "nr": [1, 1, 1, 1],
            "load": [100, 900, 500, 500],
            "nr_idle_scan": 4,
        },
        "wakeup": {
            "this_cpu": 0,
            "prev_cpu": 1,
            "wakee_dur": 5000,
            "wakee_load": 10,
            "recorded_cpu": 0,
        },
        "params": {"threshold_ns": 281250},
        "cpu": 1,
        "reason": "abel",
    },
    {
        "name": "prev_cpu is only the target: the scan from there finds CPU 2",
        "machine": {
            "cpus": 4,
            "nr": [1, 1, 0, 0],
            "load": [100, 900, 0, 0],
            "nr_idle_scan": 4,
        },
        "wakeup": {
            "this_cpu": 0,
            "prev_cpu": 1,
            "wakee_dur": 5000,
            "wakee_load": 10,
            "recorded_cpu": 3,
        },
        "params": {"threshold_ns": 281250},
        "cpu": 2,
        "reason": "abel",
    },
    {
        "name": "the loads would not have pulled it",
        "machine": {
            "cpus": 4,
            "nr": [1, 1, 1, 1],
            "load": [900, 100, 500, 500],
            "nr_idle_scan": 4,
        },
        "wakeup": {
            "this_cpu": 0,
            "prev_cpu": 1,
            "wakee_dur": 5000,
            "wakee_load": 10,
            "recorded_cpu": 3,
        },
        "params": {"threshold_ns": 281250},
        "cpu": 3,
        "reason": "abel_same",
        "blocked_by": ["pulled"],
    },
    {
        "name": "a long wakee follows the loads",
        "machine": {
            "cpus": 4,
            "nr": [1, 1, 1, 1],
            "load": [100, 900, 500, 500],
            "nr_idle_scan": 4,
        },
        "wakeup": {
            "this_cpu": 0,
            "prev_cpu": 1,
            "wakee_dur": 281250,
            "wakee_load": 10,
            "recorded_cpu": 0,
        },
        "params": {"threshold_ns": 281250},
        "cpu": 0,
        "reason": "recorded",
        "blocked_by": ["wakee_short"],
    },
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
            if short(w.wakee_dur, p[_THRESHOLD]):
                fired = _ABEL
                if recorded >= 0 and wake_affine_weight(w, m) == NONE:
                    fired = _ABEL_SAME
                w.affine = AFFINE_RULE
            else:
                answer = wake_affine_weight(w, m)
        if answer != NONE:
            target = answer
    w.target = target
    if recorded >= 0 and fired != _ABEL:
        return recorded, RECORDED if fired == MAINLINE else fired
    return select_idle_sibling(w, m, target), fired


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    bits = affine_obstacles(w, m)
    if w.wakee_dur < 0:
        bits |= 1 << 7
    elif not short(w.wakee_dur, p[_THRESHOLD]):
        bits |= 1 << 8
    if wake_affine_weight(w, m) == NONE:
        bits |= 1 << 9
    return bits
