"""SIS_UTIL switched on: the LLC's utilisation limits the scan.

Rule
----
The scan looks at nr_idle_scan CPUs, fewer the busier the LLC is, and is left out where that is
0.

Source
------
"sched/fair: Introduce SIS_UTIL to search idle CPU based on sum of util_avg", Chen Yu, 2022;
default since 6.0. For captures of older kernels, or to put it into a combination.

Conditions
----------
1. no CPU was found before the scan;
2. nr_idle_scan is known;
3. the scan comes to another CPU than with the kernel's budget (never where it is SIS_UTIL's).

Reads
-----
nr_idle_scan (from rebuilt utilisation), idle CPUs.

Limits
------
Open loop: only where both scans, on the rebuilt state, come to different CPUs is the wakeup
taken to be moved.
"""

from __future__ import annotations

from traceana.rules.interface import (
    NONE,
    Machine,
    Params,
    Wakeup,
    njit,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {}

REASONS = ("recorded", "mainline", "util", "util_same")

CONDITIONS = {
    "not_near": "no CPU found before the scan",
    "scan_known": "nr_idle_scan is known",
    "differs": "the scan comes to another CPU than with the kernel's budget",
}

STEPS = {"budget": "util"}

CASES = (
    {
        "name": "SIS_PROP would have looked further",
        "machine": {
            "cpus": 4,
            "nr": [1, 1, 1, 0],
            "nr_idle_scan": 2,
            "prop_nr": 4,
            "release": "5.15.0",
        },
        "wakeup": {"this_cpu": 0, "prev_cpu": 0, "recorded_cpu": 3},
        "cpu": 0,
        "reason": "util",
    },
    {
        "name": "exactly enough of it",
        "like": "SIS_PROP would have looked further",
        "machine": {"nr_idle_scan": 3},
        "misses": "differs",
        "reason": "util_same",
        "boundary": "nr_idle_scan",
    },
    {
        "name": "no scan at all",
        "like": "SIS_PROP would have looked further",
        "machine": {"nr_idle_scan": 0},
    },
    {
        "name": "nr_idle_scan unknown",
        "like": "SIS_PROP would have looked further",
        "machine": {"nr_idle_scan": -1},
        "misses": "scan_known",
    },
    {
        "name": "since 6.0 the kernel does it",
        "like": "SIS_PROP would have looked further",
        "machine": {"release": "6.1.0"},
        "misses": "differs",
        "reason": "util_same",
    },
    {
        "name": "an idle recent CPU is found before",
        "like": "SIS_PROP would have looked further",
        "machine": {"nr": [1, 0, 1, 0], "nr_idle_scan": 0},
        "wakeup": {"recent_cpu": 1},
        "misses": "not_near",
    },
)


@njit
def budget(w: Wakeup, m: Machine, p: Params) -> int:
    """Return nr_idle_scan + 1, 0 for no scan; no opinion where it is not known."""
    scan = m.llcs[m.cpus[w.target].llc].nr_idle_scan
    if scan < 0:
        return NONE
    return scan + 1 if scan > 0 else 0


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    bits = 0 if w.near == 0 else 1
    if m.llcs[m.cpus[w.target].llc].nr_idle_scan < 0:
        bits |= 1 << 1
    elif w.scan_differs == 0:
        bits |= 1 << 2
    return bits
