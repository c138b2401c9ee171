"""SIS_UTIL switched off: the scan looks at the whole LLC.

Rule
----
No limit to the scan, however busy the LLC is; also where nr_idle_scan is 0 and the kernel would
not scan at all.

Source
------
The scheduler feature SIS_UTIL (default since 6.0), off, with SIS_PROP off, too, as it is since
6.0.

Conditions
----------
1. no CPU was found before the scan;
2. the scan without a limit finds a CPU that the limit hid.

Reads
-----
nr_idle_scan, idle-core hint, idle CPUs.

Limits
------
Open loop: only where both scans, on the rebuilt state, come to different CPUs is the wakeup
taken to be moved.
"""

from __future__ import annotations

from traceana.rules.interface import (
    UNLIMITED,
    Machine,
    Params,
    Wakeup,
    njit,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {}

REASONS = ("recorded", "mainline", "unlimited", "unlimited_same")

CONDITIONS = {
    "not_near": "no CPU found before the scan",
    "differs": "the scan comes to another CPU than with the kernel's budget",
}

STEPS = {"budget": "unlimited"}

CASES = (
    {
        "name": "the budget ends one CPU before the idle one",
        "machine": {"cpus": 4, "nr": [1, 1, 1, 0], "nr_idle_scan": 2},
        "wakeup": {"this_cpu": 0, "prev_cpu": 0, "recorded_cpu": 0},
        "cpu": 3,
        "reason": "unlimited",
    },
    {
        "name": "exactly enough of it: the kernel finds the CPU as well",
        "like": "the budget ends one CPU before the idle one",
        "machine": {"nr_idle_scan": 3},
        "wakeup": {"recorded_cpu": 1},
        "misses": "differs",
        "reason": "unlimited_same",
        "boundary": "nr_idle_scan",
    },
    {
        "name": "no scan at all",
        "like": "the budget ends one CPU before the idle one",
        "machine": {"nr_idle_scan": 0},
    },
    {
        "name": "an idle recent CPU is found before",
        "like": "the budget ends one CPU before the idle one",
        "machine": {"nr": [1, 0, 1, 0], "nr_idle_scan": 0},
        "wakeup": {"recent_cpu": 1},
        "misses": "not_near",
    },
)


@njit
def budget(w: Wakeup, m: Machine, p: Params) -> int:
    """Return a budget without end."""
    return UNLIMITED


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    bits = 0 if w.near == 0 else 1
    if w.scan_differs == 0:
        bits |= 1 << 1
    return bits
