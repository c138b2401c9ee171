"""SIS_PROP: a scan of a fixed number of CPUs, and all cores where one is idle.

Rule
----
Without an idle-core hint the scan looks at nr - 1 CPUs; with it at all cores. SIS_UTIL is off.

Source
------
The scheduler feature SIS_PROP (default 4.13 to 5.19). There nr followed from the average idle
time and the average cost of a scan.

Conditions
----------
1. no CPU was found before the scan;
2. the scan comes to another CPU than with the kernel's budget.

Reads
-----
idle-core hint, idle CPUs.

Limits
------
The kernel's nr, CPUs * avg_idle / 512 / (cost + 1) and at least 4, is in no event: it is a
parameter here, the same for all wakeups. Open loop: only where both scans, on the rebuilt
state, come to different CPUs is the wakeup taken to be moved.
"""

from __future__ import annotations

from traceana.rules.interface import (
    UNLIMITED,
    Machine,
    Params,
    Wakeup,
    has_idle_core,
    njit,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {
    "nr": (4, "", "the scan visits one CPU less than this (the kernel's least is 4)"),
}

REASONS = ("recorded", "mainline", "prop", "prop_same")

CONDITIONS = {
    "not_near": "no CPU found before the scan",
    "differs": "the scan comes to another CPU than with the kernel's budget",
}

STEPS = {"budget": "prop"}

CASES = (
    {
        "name": "three CPUs are looked at, the idle one is the fourth",
        "machine": {"cpus": 8, "nr": [1, 1, 1, 1, 0, 1, 1, 1], "nr_idle_scan": 8},
        "wakeup": {"this_cpu": 0, "prev_cpu": 0, "recorded_cpu": 4},
        "cpu": 0,
        "reason": "prop",
    },
    {
        "name": "four are enough: the kernel finds the CPU as well",
        "like": "three CPUs are looked at, the idle one is the fourth",
        "params": {"nr": 5},
        "wakeup": {"recorded_cpu": 3},
        "misses": "differs",
        "reason": "prop_same",
    },
    {
        "name": "one CPU further is still hidden",
        "like": "three CPUs are looked at, the idle one is the fourth",
        "params": {"nr": 4},
    },
    {
        "name": "exactly enough",
        "like": "one CPU further is still hidden",
        "params": {"nr": 5},
        "cpu": 4,
        "misses": "differs",
        "reason": "prop_same",
        "boundary": "nr",
    },
    {
        "name": "a hint, and no SIS_UTIL that would forbid the scan: the idle core",
        "like": "three CPUs are looked at, the idle one is the fourth",
        "machine": {
            "core": [0, 0, 1, 1, 2, 2, 3, 3],
            "nr": [1, 1, 1, 1, 0, 0, 1, 1],
            "idle_core": 1,
            "nr_idle_scan": 0,
        },
        "wakeup": {"recorded_cpu": 0},
        "cpu": 4,
    },
    {
        "name": "an idle recent CPU is found before",
        "like": "three CPUs are looked at, the idle one is the fourth",
        "machine": {"nr": [1, 1, 1, 1, 0, 0, 1, 1]},
        "wakeup": {"recent_cpu": 5, "recorded_cpu": 5},
        "misses": "not_near",
    },
)


@njit
def budget(w: Wakeup, m: Machine, p: Params) -> int:
    """Return nr, or no end where there is an idle-core hint."""
    return UNLIMITED if has_idle_core(m, w.target) else p[0]


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    bits = 0 if w.near == 0 else 1
    if w.scan_differs == 0:
        bits |= 1 << 1
    return bits
