"""The weight step switched off: loads pull nobody.

Rule
----
wake_affine_weight() has no opinion, so that prev_cpu stays the target where wake_affine_idle()
has none.

Source
------
The scheduler feature WA_WEIGHT, off.

Conditions
----------
1. this_cpu is not prev_cpu, wake_wide() is false, the wakee may run on this_cpu, prev_cpu
   lies in a wake-affine domain;
2. neither the idle, the sync nor the prev-idle answer of wake_affine() was given;
3. the loads would have pulled the wakee (otherwise nothing changes: "no_weight_same").

Reads
-----
loads of the two CPUs, idle CPUs, nr_running, flips.

Limits
------
Condition 3 rests on rebuilt loads; where a load is not known nothing is pulled.
"""

from __future__ import annotations

from traceana.rules.interface import (
    Machine,
    Params,
    Wakeup,
    affine_unmet,
    njit,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {}

REASONS = ("recorded", "mainline", "no_weight", "no_weight_same")

CONDITIONS = {
    "apart": "this_cpu is not prev_cpu",
    "not_wide": "wake_wide() is false",
    "allowed": "the wakee may run on this_cpu",
    "domain": "prev_cpu lies in a wake-affine domain of this_cpu",
    "this_busy": "this_cpu, in the LLC of prev_cpu, is not idle (an interrupt's wakeup)",
    "no_sync": "no sync wakeup by a task alone on its CPU",
    "prev_busy": "prev_cpu is not idle",
    "pulled": "the loads would have pulled the wakee to this_cpu",
}

STEPS = {"weight": "no_weight"}

CASES = (
    {
        "name": "the loads would pull: it stays on prev_cpu",
        "machine": {"cpus": 4, "nr": [1, 1, 1, 1], "load": [961, 900, 500, 500], "nr_idle_scan": 4},
        "wakeup": {"this_cpu": 0, "prev_cpu": 1, "wakee_load": 0, "recorded_cpu": 0},
        "cpu": 1,
        "reason": "no_weight",
    },
    {
        "name": "just below the tie: 100 * 971 < 108 * 900",
        "like": "the loads would pull: it stays on prev_cpu",
        "machine": {"load": [971, 900, 500, 500]},
    },
    {
        "name": "exactly at the tie, 100 * 972 = 108 * 900: no pull, nothing changes",
        "like": "just below the tie: 100 * 971 < 108 * 900",
        "machine": {"load": [972, 900, 500, 500]},
        "wakeup": {"recorded_cpu": 2},
        "misses": "pulled",
        "reason": "no_weight_same",
        "boundary": "load",
    },
    {
        "name": "this_cpu is prev_cpu",
        "like": "the loads would pull: it stays on prev_cpu",
        "wakeup": {"prev_cpu": 0},
        "misses": "apart",
    },
    {
        "name": "wide",
        "like": "the loads would pull: it stays on prev_cpu",
        "wakeup": {"waker_flips": 64, "wakee_flips": 8},
        "misses": "not_wide",
    },
    {
        "name": "not allowed on this_cpu",
        "like": "the loads would pull: it stays on prev_cpu",
        "wakeup": {"allowed": [1, 2, 3], "recorded_cpu": 1},
        "misses": "allowed",
    },
    {
        "name": "beyond the last wake-affine domain",
        "like": "the loads would pull: it stays on prev_cpu",
        "machine": {"zone": [0, 1, 1, 1]},
        "misses": "domain",
    },
    {
        "name": "this_cpu is idle: wake_affine_idle() answers before",
        "like": "the loads would pull: it stays on prev_cpu",
        "machine": {"nr": [0, 1, 1, 1]},
        "misses": "this_busy",
    },
    {
        "name": "sync",
        "like": "the loads would pull: it stays on prev_cpu",
        "wakeup": {"sync": 1, "waker_load": 0},
        "misses": "no_sync",
    },
    {
        "name": "prev_cpu is idle",
        "like": "the loads would pull: it stays on prev_cpu",
        "machine": {"nr": [1, 0, 1, 1]},
        "wakeup": {"recorded_cpu": 1},
        "misses": "prev_busy",
    },
)


@njit
def weight(w: Wakeup, m: Machine, p: Params) -> int:
    """Return 0: no opinion of wake_affine_weight()."""
    return 0


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    bits = affine_unmet(w)
    if w.pulled == 0:
        bits |= 1 << 7
    return bits
