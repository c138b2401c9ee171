"""wake_wide() switched off: wake_affine() is always asked.

Rule
----
wake_wide() is taken as false whatever the flips.

Source
------
No patch; what the kernel of before 3.12 did.

Conditions
----------
1. this_cpu is not prev_cpu, the wakee may run on this_cpu, prev_cpu lies in a wake-affine domain;
2. wake_wide() is true.

Reads
-----
flips; for the rest of the path idle CPUs, loads, nr_running.

Limits
------
Where flips are not known wake_wide() is taken as false, so the rule changes nothing there.
"""

from __future__ import annotations

from traceana.rules.interface import (
    Machine,
    Params,
    Wakeup,
    njit,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {}

REASONS = ("recorded", "mainline", "not_wide", "not_wide_same")

CONDITIONS = {
    "apart": "this_cpu is not prev_cpu",
    "allowed": "the wakee may run on this_cpu",
    "domain": "prev_cpu lies in a wake-affine domain of this_cpu",
    "wide": "wake_wide() is true",
}

STEPS = {"wake_wide": "not_wide"}

CASES = (
    {
        "name": "a wide pair is pulled by the loads",
        "machine": {"cpus": 4, "nr": [1, 1, 1, 1], "load": [100, 900, 500, 500], "nr_idle_scan": 4},
        "wakeup": {
            "this_cpu": 0,
            "prev_cpu": 1,
            "waker_flips": 16,
            "wakee_flips": 4,
            "wakee_load": 10,
            "recorded_cpu": 1,
        },
        "cpu": 0,
        "reason": "not_wide",
    },
    {
        "name": "one flip less is not wide",
        "like": "a wide pair is pulled by the loads",
        "wakeup": {"waker_flips": 15},
        "misses": "wide",
        "boundary": "waker_flips",
    },
    {
        "name": "the loads leave it on prev_cpu: nothing changes",
        "like": "a wide pair is pulled by the loads",
        "machine": {"load": [900, 100, 500, 500]},
        "cpu": 1,
        "reason": "not_wide_same",
    },
    {
        "name": "this_cpu is prev_cpu",
        "like": "a wide pair is pulled by the loads",
        "wakeup": {"prev_cpu": 0},
        "misses": "apart",
    },
    {
        "name": "not allowed on this_cpu",
        "like": "a wide pair is pulled by the loads",
        "wakeup": {"allowed": [1, 2, 3]},
        "misses": "allowed",
    },
    {
        "name": "beyond the last wake-affine domain",
        "like": "a wide pair is pulled by the loads",
        "machine": {"zone": [0, 1, 1, 1]},
        "misses": "domain",
    },
)


@njit
def wake_wide(w: Wakeup, m: Machine, p: Params) -> int:
    """Return 0: never wide."""
    return 0


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    bits = (w.obstacles & 1) | (w.obstacles >> 1 & 6)
    if w.obstacles & 2 == 0:
        bits |= 1 << 3
    return bits
