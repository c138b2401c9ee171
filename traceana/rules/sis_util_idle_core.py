"""SIS_UTIL is ignored where there is an idle core (Abel Wu, 2022).

Rule
----
Where the idle-core hint is set, the limit of SIS_UTIL is not asked for: the scan for a whole
idle core takes place also where nr_idle_scan is 0.

Source
------
"sched/fair: Ignore SIS_UTIL when has idle core", Abel Wu, v5 1/5 of 9 Sep 2022, on 5.19. Not
merged up to 7.3.

Conditions
----------
1. no CPU was found before the scan;
2. the idle-core hint of the target's LLC is set;
3. the scan finds a CPU where the kernel, with nr_idle_scan 0, does not look.

Reads
-----
nr_idle_scan, idle-core hint, idle CPUs.

Limits
------
Patches 2 to 5 of the series are not part of it. The hint is rebuilt; its value at the start of
a capture is not known. Open loop: only where both scans, on the rebuilt state, come to
different CPUs is the wakeup taken to be moved.
"""

from __future__ import annotations

from traceana.rules.interface import (
    NONE,
    UNLIMITED,
    Machine,
    Params,
    Wakeup,
    has_idle_core,
    njit,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {}

REASONS = ("recorded", "mainline", "idle_core", "idle_core_same")

CONDITIONS = {
    "not_near": "no CPU found before the scan",
    "idle_core": "the idle-core hint is set",
    "differs": "the scan comes to another CPU than with the kernel's budget",
}

STEPS = {"budget": "idle_core"}

CASES = (
    {
        "name": "nr_idle_scan is 0: the idle core is found nevertheless",
        "machine": {
            "cpus": 4,
            "core": [0, 0, 1, 1],
            "nr": [1, 1, 0, 0],
            "idle_core": 1,
            "nr_idle_scan": 0,
        },
        "wakeup": {"this_cpu": 0, "prev_cpu": 0, "recorded_cpu": 0},
        "cpu": 2,
        "reason": "idle_core",
    },
    {
        "name": "with one CPU to look at the kernel scans for cores, too",
        "like": "nr_idle_scan is 0: the idle core is found nevertheless",
        "machine": {"nr_idle_scan": 1},
        "wakeup": {"recorded_cpu": 3},
        "misses": "differs",
        "reason": "idle_core_same",
    },
    {
        "name": "none to look at, one idle",
        "like": "nr_idle_scan is 0: the idle core is found nevertheless",
        "machine": {"nr_idle_scan": 0},
    },
    {
        "name": "exactly one to look at: no difference",
        "like": "none to look at, one idle",
        "machine": {"nr_idle_scan": 1},
        "misses": "differs",
        "reason": "idle_core_same",
        "boundary": "nr_idle_scan",
    },
    {
        "name": "no hint",
        "like": "nr_idle_scan is 0: the idle core is found nevertheless",
        "machine": {"idle_core": 0},
        "misses": "idle_core",
    },
    {
        "name": "an idle recent CPU is found before",
        "like": "nr_idle_scan is 0: the idle core is found nevertheless",
        "wakeup": {"recent_cpu": 3, "recorded_cpu": 3},
        "misses": "not_near",
    },
)


@njit
def budget(w: Wakeup, m: Machine, p: Params) -> int:
    """Return a budget without end where there is an idle-core hint; else no opinion."""
    return UNLIMITED if has_idle_core(m, w.target) else NONE


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    bits = 0 if w.near == 0 else 1
    if not has_idle_core(m, w.target):
        bits |= 1 << 1
    elif w.scan_differs == 0:
        bits |= 1 << 2
    return bits
