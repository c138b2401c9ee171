"""SIS_CURRENT (v7): a pair that only wakes each other stays together.

Rule
----
Written as a user would: the kernel's path with two steps put in.

Source
------
Section 6.9 of the semantics.

Conditions
----------
nr_running <= 1, both short, both without flips, each the other's last wakee.

Reads
-----
dur_avg, flips, last wakees.

Limits
------
For the tests.
"""

from __future__ import annotations

from traceana.rules.interface import (
    AFFINE_RULE,
    MAINLINE,
    NONE,
    STEP_RULE,
    Machine,
    Params,
    Wakeup,
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

PARAMS = {"threshold_ns": ("short_threshold_ns", "ns", "short: below this")}

REASONS = ("recorded", "mainline", "first", "second")


@njit
def _current(w: Wakeup, m: Machine, p: Params, cpu: int) -> bool:
    return (
        m.cpus[cpu].nr <= 1
        and short(w.waker_dur, p[0])
        and short(w.wakee_dur, p[0])
        and w.waker_flips == 0
        and w.wakee_flips == 0
        and w.waker_last_is_wakee != 0
        and w.wakee_last_is_waker != 0
    )


@njit
def decide(w: Wakeup, m: Machine, p: Params) -> tuple[int, int]:
    reason = MAINLINE
    target = w.prev_cpu
    if wants_affine(w, m):
        answer = wake_affine_idle(w, m)
        if answer == NONE:
            answer = wake_affine_weight(w, m)
        if answer == NONE and _current(w, m, p, w.this_cpu):
            answer = w.this_cpu
            w.affine = AFFINE_RULE
            reason = 2
        if answer != NONE:
            target = answer
    w.target = target
    cpu = select_idle_near(w, m, target)
    if cpu == NONE:
        if target == w.this_cpu and _current(w, m, p, target):
            w.step = STEP_RULE
            return target, 3
        cpu = scan_llc(w, m, target, scan_budget(w, m, target))
        if cpu == NONE:
            cpu = select_idle_last(w, m, target)
    return cpu, reason
