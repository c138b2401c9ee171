"""The kernel's own path, unchanged, on the rebuilt state.

Rule
----
wake_affine() chooses the target, select_idle_sibling() searches from there, in the forms of
the captured kernel's release (or of the one that was asked for).

Source
------
kernel/sched/fair.c of 4.17 to 7.3: select_task_rq_fair(), wake_wide(), wake_affine(),
select_idle_sibling(), select_idle_cpu(), select_idle_core(), select_idle_smt().

Conditions
----------
None: it always answers, also where the recording shows another CPU. That difference is what
the rebuilt state does not explain, not an effect of a rule.

Reads
-----
Idle, pending and nr_running of the CPUs, loads, flips, recent CPU, affinity, sync, idle-core
hint, scan budget.

Limits
------
No energy-aware path, no asymmetric capacity, no core scheduling, no slow path (fork, exec),
no WF_CURRENT_CPU.
"""

from __future__ import annotations

from traceana.rules.interface import (
    MAINLINE,
    Machine,
    Params,
    Wakeup,
    njit,
    select_idle_sibling,
    select_target,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {}

REASONS = ("recorded", "mainline")

CONDITIONS: dict[str, str] = {}

CASES = (
    {
        "name": "target busy, the scan starts behind it and finds CPU 2",
        "machine": {"cpus": 4, "nr": [1, 1, 0, 0], "nr_idle_scan": 4},
        "wakeup": {"this_cpu": 1, "prev_cpu": 1, "recorded_cpu": 3},
        "cpu": 2,
        "reason": "mainline",
    },
    {
        "name": "the scan's budget ends before the idle CPU: the target stands",
        "machine": {"cpus": 4, "nr": [0, 1, 1, 1], "nr_idle_scan": 2},
        "wakeup": {"this_cpu": 1, "prev_cpu": 1},
        "cpu": 1,
        "reason": "mainline",
    },
    {
        "name": "an idle prev_cpu wins before the loads are compared",
        "machine": {"cpus": 4, "nr": [1, 0, 0, 0], "load": [10, 900, 0, 0], "nr_idle_scan": 4},
        "wakeup": {"this_cpu": 0, "prev_cpu": 1, "wakee_load": 5},
        "cpu": 1,
        "reason": "mainline",
    },
)


@njit
def decide(w: Wakeup, m: Machine, p: Params) -> tuple[int, int]:
    """Return (CPU, index of REASONS)."""
    return select_idle_sibling(w, m, select_target(w, m)), MAINLINE


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return 0: the rule always answers."""
    return 0
