"""Every wakeup stays where it was recorded.

Rule
----
The CPU of the recording. Moves nothing and changes nothing: the base of every comparison.

Source
------
The capture.

Conditions
----------
None.

Reads
-----
Nothing but the recorded placement.

Limits
------
In the closed loop there is no recording; the unchanged path of the kernel answers there.
"""

from __future__ import annotations

from traceana.rules.interface import MAINLINE, NONE, RECORDED, Machine, Params, Wakeup, njit

PARAMS: dict[str, tuple[str | int, str, str]] = {}

REASONS = ("recorded", "mainline")

CONDITIONS: dict[str, str] = {}

CASES = (
    {
        "name": "the recorded CPU, busy or not",
        "machine": {"cpus": 4, "nr": [1, 0, 2, 1], "nr_idle_scan": 4},
        "wakeup": {"this_cpu": 0, "prev_cpu": 1, "recorded_cpu": 2},
        "cpu": 2,
        "reason": "recorded",
    },
)


@njit
def decide(w: Wakeup, m: Machine, p: Params) -> tuple[int, int]:
    """Return (CPU, index of REASONS)."""
    if w.recorded_cpu >= 0:
        return w.recorded_cpu, RECORDED
    return NONE, MAINLINE


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return 0: the rule always answers."""
    return 0
