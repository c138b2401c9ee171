"""Abel's rule across LLCs only: a short wakee is not pulled into another LLC by load.

Rule
----
In wake_affine_weight() a short wakee gets no answer, so that prev_cpu stays the target and the
idle search starts there. Only where this_cpu and prev_cpu share no LLC: the wakee's cache is
kept, while inside one LLC the loads may spread tasks as before.

Source
------
K Prateek Nayak's question in the thread of "sched/fair: Wake short task on current CPU" v5,
February 2023: the regressions of Abel's rule looked like lost spreading inside one L3. Never
posted as a patch.

Conditions
----------
1. this_cpu is not prev_cpu, wake_wide() is false, the wakee may run on this_cpu, prev_cpu
   lies in a wake-affine domain;
2. neither the idle, the sync nor the prev-idle answer of wake_affine() was given;
3. this_cpu and prev_cpu lie in different LLCs;
4. the wakee is short: 0 < dur_avg < threshold (an eighth of the slice);
5. the loads would have pulled it (otherwise the rule changes nothing: "abel_same").

Reads
-----
dur_avg of the wakee, loads of the two CPUs, idle CPUs, nr_running, flips; for the idle search
that follows also the idle-core hint and nr_idle_scan.

Limits
------
That the loads would have pulled rests on rebuilt loads. Where a load is not known nothing is
pulled, so the rule changes nothing. An unknown dur_avg is not short.
"""

from __future__ import annotations

from traceana.rules.interface import (
    NONE,
    Machine,
    Params,
    Wakeup,
    affine_unmet_busy,
    njit,
    share_cache,
    short,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {
    "threshold_ns": ("short_threshold_ns", "ns", "short: 0 < dur_avg < this (slice / 8)"),
}

REASONS = ("recorded", "mainline", "abel", "abel_same")

CONDITIONS = {
    "not_wide": "wake_wide() is false",
    "allowed": "the wakee may run on this_cpu",
    "domain": "prev_cpu lies in a wake-affine domain of this_cpu",
    "no_sync": "no sync wakeup by a task alone on its CPU",
    "prev_busy": "prev_cpu is not idle",
    "llc": "this_cpu and prev_cpu do not share an LLC",
    "wakee_known": "dur_avg of the wakee is known",
    "wakee_short": "the wakee is short",
    "pulled": "the loads would have pulled the wakee to this_cpu",
}

STEPS = {"weight": "abel"}

_THRESHOLD = 0

CASES = (
    {
        "name": "the loads would pull a short wakee: it goes back to prev_cpu",
        "machine": {
            "cpus": 4,
            "nr": [1, 1, 1, 1],
            "llc": [0, 1, 0, 1],
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
        "name": "prev_cpu is only the target: the scan from there finds CPU 3",
        "like": "the loads would pull a short wakee: it goes back to prev_cpu",
        "machine": {"nr": [1, 1, 0, 0]},
        "wakeup": {"recorded_cpu": 2},
        "cpu": 3,
    },
    {
        "name": "inside one LLC the weight step keeps its word",
        "like": "the loads would pull a short wakee: it goes back to prev_cpu",
        "machine": {"llc": [0, 0, 1, 1]},
        "misses": "llc",
    },
    {
        "name": "wide",
        "like": "the loads would pull a short wakee: it goes back to prev_cpu",
        "wakeup": {"waker_flips": 64, "wakee_flips": 8},
        "misses": "not_wide",
    },
    {
        "name": "not allowed on this_cpu",
        "like": "the loads would pull a short wakee: it goes back to prev_cpu",
        "wakeup": {"allowed": [1, 2, 3], "recorded_cpu": 2},
        "misses": "allowed",
    },
    {
        "name": "beyond the last wake-affine domain",
        "like": "the loads would pull a short wakee: it goes back to prev_cpu",
        "machine": {"zone": [0, 1, 1, 1]},
        "misses": "domain",
    },
    {
        "name": "sync",
        "like": "the loads would pull a short wakee: it goes back to prev_cpu",
        "wakeup": {"sync": 1, "waker_load": 0},
        "misses": "no_sync",
    },
    {
        "name": "prev_cpu is idle",
        "like": "the loads would pull a short wakee: it goes back to prev_cpu",
        "machine": {"nr": [1, 0, 1, 1]},
        "wakeup": {"recorded_cpu": 1},
        "misses": "prev_busy",
    },
    {
        "name": "dur_avg unknown",
        "like": "the loads would pull a short wakee: it goes back to prev_cpu",
        "wakeup": {"wakee_dur": -1},
        "misses": "wakee_known",
    },
    {
        "name": "dur_avg 0 is not short",
        "like": "the loads would pull a short wakee: it goes back to prev_cpu",
        "wakeup": {"wakee_dur": 0},
        "misses": "wakee_short",
    },
    {
        "name": "just below the threshold",
        "like": "the loads would pull a short wakee: it goes back to prev_cpu",
        "wakeup": {"wakee_dur": 281249},
    },
    {
        "name": "exactly at the threshold: a long wakee follows the loads",
        "like": "just below the threshold",
        "wakeup": {"wakee_dur": 281250},
        "misses": "wakee_short",
        "boundary": "threshold_ns",
    },
    {
        "name": "the loads would not have pulled it",
        "like": "the loads would pull a short wakee: it goes back to prev_cpu",
        "machine": {"load": [900, 100, 500, 500]},
        "wakeup": {"recorded_cpu": 3},
        "misses": "pulled",
        "reason": "abel_same",
    },
)


@njit
def weight(w: Wakeup, m: Machine, p: Params) -> int:
    """Return 0, no opinion of wake_affine_weight(), for a short wakee."""
    if share_cache(m, w.this_cpu, w.prev_cpu):
        return NONE
    return 0 if short(w.wakee_dur, p[_THRESHOLD]) else NONE


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    bits = affine_unmet_busy(w) >> 1  # different LLCs are different CPUs
    if share_cache(m, w.this_cpu, w.prev_cpu):
        bits |= 1 << 5
    if w.wakee_dur < 0:
        bits |= 1 << 6
    elif not short(w.wakee_dur, p[_THRESHOLD]):
        bits |= 1 << 7
    if w.pulled == 0:
        bits |= 1 << 8
    return bits
