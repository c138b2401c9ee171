"""No double booking: who chooses a CPU that another has just chosen looks again.

Rule
----
Between the choice of an idle CPU and the moment at which others can see that it is taken
(ttwu_pending, or nr_running) a second waker may choose it, too. Under this rule a wakeup that
comes to such a CPU looks again, the bookings under way counted as if they were visible.

Source
------
No patch; the wakeup path without its race (parallel wakeups do not wait for each other in the
kernel).

Conditions
----------
1. the CPU where the wakeup went looked idle;
2. another wakeup had chosen it before, and could not be seen yet.

Reads
-----
Bookings under way; then the whole path: idle CPUs, loads, flips, hint, budget.

Limits
------
Open loop: which wakeups were under way is known from the recording (from the instant of the
look to that of the enqueue or of the pending flag), to about a microsecond. The second look is
on the rebuilt state, at the same instant; a first booking that is itself moved by the rule
still counts where it was recorded, and a wakeup that has no sched_wakeup does not count. In the
closed loop the simulator says what is booked.
"""

from __future__ import annotations

from traceana.rules.interface import (
    MAINLINE,
    RECORDED,
    Machine,
    Params,
    Wakeup,
    idle_cpu,
    njit,
    select_idle_sibling,
    select_target,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {}

REASONS = ("recorded", "mainline", "again", "again_same")

CONDITIONS = {
    "idle": "the CPU where the wakeup went looked idle",
    "booked": "another wakeup had chosen that CPU and could not be seen yet",
}

_AGAIN, _AGAIN_SAME = 2, 3

CASES = (
    {
        "name": "section 10.3: p0 is under way to CPU1, p2 looks again and finds CPU2",
        "machine": {
            "cpus": 8,
            "nr": [1, 0, 0, 1, 1, 1, 1, 1],
            "booked": [0, 1, 0, 0, 0, 0, 0, 0],
            "nr_idle_scan": 3,
        },
        "wakeup": {"this_cpu": 7, "prev_cpu": 7, "recorded_cpu": 1},
        "cpu": 2,
        "reason": "again",
    },
    {
        "name": "nobody is under way to it: the first stays",
        "like": "section 10.3: p0 is under way to CPU1, p2 looks again and finds CPU2",
        "machine": {"booked": [0] * 8},
        "misses": "booked",
        "boundary": "booked",
    },
    {
        "name": "queued behind somebody: no race",
        "like": "section 10.3: p0 is under way to CPU1, p2 looks again and finds CPU2",
        "machine": {"nr": [1, 1, 0, 1, 1, 1, 1, 1]},
        "misses": "idle",
    },
    {
        "name": "nothing else is idle, and prev_cpu is the booked one: it stays",
        "like": "section 10.3: p0 is under way to CPU1, p2 looks again and finds CPU2",
        "machine": {"nr": [1, 0, 1, 1, 1, 1, 1, 1]},
        "wakeup": {"prev_cpu": 1},
        "cpu": 1,
        "reason": "again_same",
    },
)


@njit
def _look_again(w: Wakeup, m: Machine) -> int:
    # The one thing of m that a rule sets: how the idle test reads it; put back at once.
    m.booked_counts = 1
    cpu = select_idle_sibling(w, m, select_target(w, m))
    m.booked_counts = 0
    return cpu


@njit
def decide(w: Wakeup, m: Machine, p: Params) -> tuple[int, int]:
    """Return (CPU, index of REASONS)."""
    first = w.recorded_cpu
    if first < 0:
        first = select_idle_sibling(w, m, select_target(w, m))
    if m.cpus[first].booked == 0 or not idle_cpu(m, first):
        return first, RECORDED if w.recorded_cpu >= 0 else MAINLINE
    again = _look_again(w, m)
    return again, _AGAIN_SAME if again == first else _AGAIN


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    cpu = w.recorded_cpu
    if cpu < 0:
        cpu = select_idle_sibling(w, m, select_target(w, m))
    bits = 0 if idle_cpu(m, cpu) else 1
    if m.cpus[cpu].booked == 0:
        bits |= 1 << 1
    return bits
