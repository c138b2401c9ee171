"""SIS_CURRENT (v8): as v7, short being below the migration cost.

Rule
----
Two tasks that are short, wake nobody but each other (flips 0, each the other's last wakee) and
have this_cpu to themselves stay on it. Two places: in wake_affine(), where neither
wake_affine_idle() nor wake_affine_weight() has an opinion, this_cpu becomes the target; in
select_idle_sibling(), before the scan, they stay on this_cpu if it is the target (final).

Source
------
"sched/fair: Introduce SIS_CURRENT to wake up short task on current CPU", Chen Yu, v8 of 29 Apr
2023. Not merged.

Conditions
----------
First place:
1. this_cpu is not prev_cpu, the wakee may run on this_cpu, prev_cpu lies in a wake-affine domain
   (wake_wide() is false where the waker's flips are 0);
2. neither the idle, the sync nor the prev-idle answer of wake_affine() was given, and the loads
   do not pull;
3. nr_running(this_cpu) is at most 1; waker and wakee are short; the flips of both are 0; each is
   the other's last wakee.

Second place, before the scan:
1. no CPU was found before it;
2. the target is this_cpu;
3. as above.

Reads
-----
dur_avg, flips and last wakee of waker and wakee, nr_running, idle CPUs, loads, recent CPU.

Limits
------
Flips and last wakees as they stand after record_wakee() of this wakeup. In its first second a
pair has flips 1, so the rule cannot fire. What is not known keeps it from firing and is counted
as a condition of its own. No test of the idle-core hint or of idle cores, in the posting as
here.
"""

from __future__ import annotations

from traceana.rules.interface import (
    NONE,
    Machine,
    Params,
    Wakeup,
    affine_unmet_calm,
    njit,
    short,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {
    "threshold_ns": (
        "migration_cost_ns",
        "ns",
        "short: 0 < dur_avg < this (sysctl_sched_migration_cost)",
    ),
}

REASONS = ("recorded", "mainline", "first", "second")

CONDITIONS = {
    "first.apart": "this_cpu is not prev_cpu",
    "first.allowed": "the wakee may run on this_cpu",
    "first.domain": "prev_cpu lies in a wake-affine domain of this_cpu",
    "first.no_sync": "no sync wakeup by a task alone on its CPU",
    "first.prev_busy": "prev_cpu is not idle",
    "first.not_pulled": "the loads do not pull the wakee to this_cpu anyway",
    "first.alone": "nr_running(this_cpu) is at most 1",
    "first.waker_known": "dur_avg of the waker is known",
    "first.waker_short": "the waker is short",
    "first.wakee_known": "dur_avg of the wakee is known",
    "first.wakee_short": "the wakee is short",
    "first.flips_known": "wakee_flips of both are known",
    "first.waker_calm": "wakee_flips of the waker is 0",
    "first.wakee_calm": "wakee_flips of the wakee is 0",
    "first.pair": "each is the other's last wakee",
    "second.not_near": "no CPU found before the scan",
    "second.target": "the target is this_cpu",
    "second.alone": "nr_running(this_cpu) is at most 1",
    "second.waker_known": "dur_avg of the waker is known",
    "second.waker_short": "the waker is short",
    "second.wakee_known": "dur_avg of the wakee is known",
    "second.wakee_short": "the wakee is short",
    "second.flips_known": "wakee_flips of both are known",
    "second.waker_calm": "wakee_flips of the waker is 0",
    "second.wakee_calm": "wakee_flips of the wakee is 0",
    "second.pair": "each is the other's last wakee",
}

STEPS = {"after_weight": "first", "before_scan": "second"}

_THRESHOLD = 0

CASES = (
    {
        "name": "first place",
        "machine": {"cpus": 4, "nr": [1, 2, 1, 1], "load": [900, 100, 500, 500], "nr_idle_scan": 4},
        "wakeup": {
            "this_cpu": 0,
            "prev_cpu": 1,
            "waker_dur": 5000,
            "wakee_dur": 5000,
            "waker_flips": 0,
            "wakee_flips": 0,
            "waker_last_is_wakee": 1,
            "wakee_last_is_waker": 1,
            "wakee_load": 10,
            "recorded_cpu": 2,
        },
        "params": {"threshold_ns": 500000},
        "cpu": 0,
        "reason": "second",
        "note": "the target of the first place, where the second keeps the wakee",
    },
    {
        "name": "the first place sets the target only: prev_cpu is found idle behind it",
        "like": "first place",
        "machine": {"nr": [1, 1, 0, 1]},
        "wakeup": {"recent_cpu": 2, "recorded_cpu": 1},
        "cpu": 2,
        "reason": "first",
    },
    {
        "name": "second place",
        "like": "first place",
        "machine": {"nr": [1, 0, 0, 0]},
        "wakeup": {"prev_cpu": 0},
    },
    {
        "name": "this_cpu is prev_cpu",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "machine": {"load": [100, 900, 500, 500]},
        "wakeup": {"prev_cpu": 0},
        "misses": "first.apart",
    },
    {
        "name": "not allowed on this_cpu",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "wakeup": {"allowed": [1, 2, 3]},
        "misses": "first.allowed",
    },
    {
        "name": "beyond the last wake-affine domain",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "machine": {"zone": [0, 1, 1, 1]},
        "misses": "first.domain",
    },
    {
        "name": "sync",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "wakeup": {"sync": 1},
        "misses": "first.no_sync",
    },
    {
        "name": "prev_cpu is idle",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "machine": {"nr": [1, 0, 0, 1]},
        "misses": "first.prev_busy",
    },
    {
        "name": "the loads pull it",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "machine": {"load": [100, 900, 500, 500]},
        "misses": "first.not_pulled",
    },
    {
        "name": "first place: two tasks on this_cpu",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "machine": {"nr": [2, 1, 0, 1]},
        "misses": "first.alone",
    },
    {
        "name": "first place: dur_avg of the waker unknown",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "wakeup": {"waker_dur": -1},
        "misses": "first.waker_known",
    },
    {
        "name": "first place: the waker is not short",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "wakeup": {"waker_dur": 500000},
        "misses": "first.waker_short",
    },
    {
        "name": "first place: dur_avg of the wakee unknown",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "wakeup": {"wakee_dur": -1},
        "misses": "first.wakee_known",
    },
    {
        "name": "first place: just below the threshold",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "wakeup": {"wakee_dur": 499999},
    },
    {
        "name": "first place: exactly at the threshold",
        "like": "first place: just below the threshold",
        "wakeup": {"wakee_dur": 500000},
        "misses": "first.wakee_short",
        "boundary": "threshold_ns",
    },
    {
        "name": "first place: dur_avg 0 is not short",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "wakeup": {"wakee_dur": 0},
        "misses": "first.wakee_short",
    },
    {
        "name": "first place: flips unknown",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "wakeup": {"wakee_flips": -1},
        "misses": "first.flips_known",
    },
    {
        "name": "first place: the waker switches its wakees",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "wakeup": {"waker_flips": 1},
        "misses": "first.waker_calm",
    },
    {
        "name": "first place: the wakee switches its wakees",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "wakeup": {"wakee_flips": 1},
        "misses": "first.wakee_calm",
    },
    {
        "name": "first place: the wakee last woke another",
        "like": "the first place sets the target only: prev_cpu is found idle behind it",
        "wakeup": {"wakee_last_is_waker": 0},
        "misses": "first.pair",
    },
    {
        "name": "second place: two tasks on this_cpu",
        "like": "second place",
        "machine": {"nr": [2, 0, 0, 0]},
        "misses": "second.alone",
    },
    {
        "name": "second place: dur_avg of the waker unknown",
        "like": "second place",
        "wakeup": {"waker_dur": -1},
        "misses": "second.waker_known",
    },
    {
        "name": "second place: the waker is not short",
        "like": "second place",
        "wakeup": {"waker_dur": 500000},
        "misses": "second.waker_short",
    },
    {
        "name": "second place: dur_avg of the wakee unknown",
        "like": "second place",
        "wakeup": {"wakee_dur": -1},
        "misses": "second.wakee_known",
    },
    {
        "name": "second place: just below the threshold",
        "like": "second place",
        "wakeup": {"wakee_dur": 499999},
    },
    {
        "name": "second place: exactly at the threshold",
        "like": "second place: just below the threshold",
        "wakeup": {"wakee_dur": 500000},
        "misses": "second.wakee_short",
        "boundary": "threshold_ns",
    },
    {
        "name": "second place: dur_avg 0 is not short",
        "like": "second place",
        "wakeup": {"wakee_dur": 0},
        "misses": "second.wakee_short",
    },
    {
        "name": "second place: flips unknown",
        "like": "second place",
        "wakeup": {"wakee_flips": -1},
        "misses": "second.flips_known",
    },
    {
        "name": "second place: the waker switches its wakees",
        "like": "second place",
        "wakeup": {"waker_flips": 1},
        "misses": "second.waker_calm",
    },
    {
        "name": "second place: the wakee switches its wakees",
        "like": "second place",
        "wakeup": {"wakee_flips": 1},
        "misses": "second.wakee_calm",
    },
    {
        "name": "second place: the wakee last woke another",
        "like": "second place",
        "wakeup": {"wakee_last_is_waker": 0},
        "misses": "second.pair",
    },
    {
        "name": "an idle recent CPU is found before",
        "like": "second place",
        "wakeup": {"recent_cpu": 1},
        "misses": "second.not_near",
    },
    {
        "name": "the target is prev_cpu",
        "like": "first place",
        "machine": {"zone": [0, 1, 1, 1]},
        "misses": "second.target",
    },
)


@njit
def _unmet(w: Wakeup, m: Machine, p: Params) -> int:
    """What keeps the pair from staying on this_cpu, from bit 0 on."""
    bits = 0
    if m.cpus[w.this_cpu].nr > 1:
        bits |= 1 << 0
    if w.waker_dur < 0:
        bits |= 1 << 1
    elif not short(w.waker_dur, p[_THRESHOLD]):
        bits |= 1 << 2
    if w.wakee_dur < 0:
        bits |= 1 << 3
    elif not short(w.wakee_dur, p[_THRESHOLD]):
        bits |= 1 << 4
    if w.waker_flips < 0 or w.wakee_flips < 0:
        bits |= 1 << 5
    else:
        if w.waker_flips != 0:
            bits |= 1 << 6
        if w.wakee_flips != 0:
            bits |= 1 << 7
    if w.waker_last_is_wakee == 0 or w.wakee_last_is_waker == 0:
        bits |= 1 << 8
    return bits


@njit
def after_weight(w: Wakeup, m: Machine, p: Params) -> int:
    """First place, where wake_affine_weight() has no opinion: this_cpu becomes the target."""
    return w.this_cpu if _unmet(w, m, p) == 0 else NONE


@njit
def before_scan(w: Wakeup, m: Machine, p: Params) -> int:
    """Second place, in select_idle_sibling() before the scan: this_cpu, final."""
    return w.this_cpu if w.target == w.this_cpu and _unmet(w, m, p) == 0 else NONE


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    pair = _unmet(w, m, p)
    bits = affine_unmet_calm(w)
    if w.pulled != 0:
        bits |= 1 << 5
    bits |= pair << 6
    if w.near_this != 0:
        bits |= 1 << 15
    if w.target != w.this_cpu:
        bits |= 1 << 16
    return bits | pair << 17
