"""The wakee goes to this_cpu, literally: no search follows.

Rule
----
Placed on this_cpu, where its waker runs, whatever runs there.

Source
------
No kernel has done it; a yardstick: the most stacked placement there is.

Conditions
----------
1. The wakee may run on this_cpu.

Reads
-----
The wakee's allowed CPUs.

Limits
------
Not the kernel's "this_cpu as target": the idle search that follows there is left out.
"""

from __future__ import annotations

from traceana.rules.interface import (
    MAINLINE,
    NONE,
    RECORDED,
    Machine,
    Params,
    Wakeup,
    cpu_allowed,
    njit,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {}

REASONS = ("recorded", "mainline", "this_cpu")

CONDITIONS = {"allowed": "the wakee may run on this_cpu"}

_FIRED = 2

CASES = (
    {
        "name": "this_cpu is busy, others are idle",
        "machine": {"cpus": 4, "nr": [3, 0, 0, 1], "nr_idle_scan": 4},
        "wakeup": {"this_cpu": 0, "prev_cpu": 1, "recorded_cpu": 2},
        "cpu": 0,
        "reason": "this_cpu",
    },
    {
        "name": "the wakee may not run there",
        "machine": {"cpus": 4, "nr_idle_scan": 4},
        "wakeup": {"this_cpu": 0, "prev_cpu": 1, "recorded_cpu": 2, "allowed": [2, 3]},
        "cpu": 2,
        "reason": "recorded",
        "misses": "allowed",
    },
)


@njit
def decide(w: Wakeup, m: Machine, p: Params) -> tuple[int, int]:
    """Return (CPU, index of REASONS)."""
    if cpu_allowed(w, w.this_cpu):
        return w.this_cpu, _FIRED
    if w.recorded_cpu >= 0:
        return w.recorded_cpu, RECORDED
    return NONE, MAINLINE


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    return 0 if cpu_allowed(w, w.this_cpu) else 1
