"""The sync rule switched off: a waker about to sleep attracts nobody.

Rule
----
wake_affine_idle() does not ask whether the wakeup is a sync one: the tests behind (prev_cpu
idle, loads) decide. wake_affine_weight() goes on subtracting the waker's load.

Source
------
No patch; the sync test of wake_affine_idle() (since 4.14) left out.

Conditions
----------
1. this_cpu is not prev_cpu, wake_wide() is false, the wakee may run on this_cpu, prev_cpu
   lies in a wake-affine domain;
2. the wakeup is a sync one (WF_SYNC);
3. nr_running(this_cpu) is 1 (since 6.13 without delayed tasks).

Reads
-----
WF_SYNC, nr_running, flips; for the steps behind idle CPUs and loads.

Limits
------
WF_SYNC is in no event: where it is open it is taken as set, and the answer is marked as
possible only.
"""

from __future__ import annotations

from traceana.rules.interface import (
    Machine,
    Params,
    Wakeup,
    njit,
    waker_alone,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {}

REASONS = ("recorded", "mainline", "no_sync", "no_sync_same")

CONDITIONS = {
    "apart": "this_cpu is not prev_cpu",
    "not_wide": "wake_wide() is false",
    "allowed": "the wakee may run on this_cpu",
    "domain": "prev_cpu lies in a wake-affine domain of this_cpu",
    "sync": "the wakeup is a sync one",
    "alone": "nr_running(this_cpu) is 1",
}

STEPS = {"sync": "no_sync"}

CASES = (
    {
        "name": "prev_cpu is idle and is taken",
        "machine": {"cpus": 4, "nr": [1, 0, 1, 1], "nr_idle_scan": 4},
        "wakeup": {"this_cpu": 0, "prev_cpu": 1, "sync": 1, "waker_load": 0, "recorded_cpu": 0},
        "cpu": 1,
        "reason": "no_sync",
    },
    {
        "name": "the loads say this_cpu as well: nothing changes",
        "like": "prev_cpu is idle and is taken",
        "machine": {"nr": [1, 1, 1, 1], "load": [100, 900, 500, 500]},
        "wakeup": {"wakee_load": 10, "recorded_cpu": 2},
        "cpu": 2,
        "reason": "no_sync_same",
    },
    {
        "name": "no sync wakeup",
        "like": "prev_cpu is idle and is taken",
        "wakeup": {"sync": 0},
        "misses": "sync",
    },
    {
        "name": "two tasks on this_cpu",
        "like": "prev_cpu is idle and is taken",
        "machine": {"nr": [2, 0, 1, 1]},
        "misses": "alone",
        "boundary": "nr",
    },
    {
        "name": "one of two is blocked already: since 6.13 that is one",
        "like": "prev_cpu is idle and is taken",
        "machine": {"nr": [2, 0, 1, 1], "delayed": [1, 0, 0, 0], "release": "6.13.0"},
    },
    {
        "name": "this_cpu is prev_cpu",
        "like": "prev_cpu is idle and is taken",
        "wakeup": {"prev_cpu": 0},
        "misses": "apart",
    },
    {
        "name": "wide",
        "like": "prev_cpu is idle and is taken",
        "wakeup": {"waker_flips": 64, "wakee_flips": 8},
        "misses": "not_wide",
    },
    {
        "name": "not allowed on this_cpu",
        "like": "prev_cpu is idle and is taken",
        "wakeup": {"allowed": [1, 2, 3], "recorded_cpu": 1},
        "misses": "allowed",
    },
    {
        "name": "beyond the last wake-affine domain",
        "like": "prev_cpu is idle and is taken",
        "machine": {"zone": [0, 1, 1, 1]},
        "misses": "domain",
    },
)


@njit
def sync(w: Wakeup, m: Machine, p: Params) -> int:
    """Return 0: no wakeup is a sync one."""
    return 0


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    bits = w.obstacles & 0xF
    if w.sync == 0:
        bits |= 1 << 4
    if not waker_alone(w, m):
        bits |= 1 << 5
    return bits
