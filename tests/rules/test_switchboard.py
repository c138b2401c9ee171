"""Rows 8 to 22 of the switchboard (section 6.1 of the semantics) for 6.1, 6.12 and 7.2.

A state for each row in which the form of the step decides: what the three kernels do there, and
for contrast what one before the change (or before the backport) did.
"""

from __future__ import annotations

from typing import Any

import pytest
from oracle.tiny import run

from traceana.rules import load
from traceana.rules._cases import state_of
from traceana.rules._state import Affine, Step
from traceana.start_state import StartState, TaskSeed
from traceana.thresholds import tunables

THREE = ("6.1.192", "6.12.117", "7.2.13")


def decided(release: str, machine: dict[str, Any], wakeup: dict[str, Any]) -> dict[str, Any]:
    """Where the unchanged path comes to, on which step, and what it leaves behind."""
    rule = load("mainline")
    wakeups, state = state_of(
        {
            "machine": {"cpus": 4, "nr_idle_scan": 4, **machine, "release": release},
            "wakeup": {"this_cpu": 0, "prev_cpu": 1, **wakeup},
        }
    )
    w, m = wakeups[0], state[0]
    cpu, _ = rule.decide(w, m, rule.parameters(tunables(release, int(m["n_cpus"]))))
    return {
        "cpu": int(cpu),
        "affine": Affine.NAMES[w["affine"]],
        "step": Step.NAMES[w["step"]],
        "target": int(w["target"]),
        "recent_after": int(w["recent_after"]),
        "waker_recent_after": int(w["waker_recent_after"]),
        "hint_cleared": int(w["hint_cleared"]),
    }


#: row: (what it is about, machine, wakeup, what the three do, {release: what others do}).
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "10 wake_wide is symmetric": (
        {"nr": [1, 1, 1, 1], "load": [1, 900, 500, 500]},
        {"waker_flips": 4, "wakee_flips": 16, "wakee_load": 10},
        {"affine": "wide", "target": 1},
        {},
    ),
    "10 and asked before the walk, with at least": (
        {"nr": [1, 1, 1, 1], "load": [1, 900, 500, 500]},
        {"waker_flips": 15, "wakee_flips": 4, "wakee_load": 10},
        {"affine": "weight_this", "target": 0},
        {},
    ),
    "11 its factor is the LLC's size, not the machine's": (
        {"nr": [1, 1, 1, 1], "llc": [0, 0, 1, 1], "load": [1, 900, 500, 500]},
        {"waker_flips": 4, "wakee_flips": 2, "wakee_load": 10},
        {"affine": "wide"},
        {},
    ),
    "12 idle answers come before loads": (
        {"nr": [1, 0, 1, 1], "load": [1, 900, 500, 500]},
        {"wakee_load": 10},
        {"affine": "prev_idle", "cpu": 1},
        {"5.10.223": {"affine": "weight_this", "target": 0}},
    ),
    "13 this_cpu idle, same LLC, prev_cpu idle: prev_cpu": (
        {"nr": [0, 0, 1, 1]},
        {"task_ctx": 0},
        {"affine": "idle", "cpu": 1},
        {},
    ),
    "13 this_cpu idle, prev_cpu busy: this_cpu": (
        {"nr": [0, 1, 1, 1]},
        {"task_ctx": 0},
        {"affine": "idle", "cpu": 0},
        {},
    ),
    "13 this_cpu idle in another LLC is no answer": (
        {"nr": [0, 1, 1, 1], "llc": [0, 1, 0, 1], "load": [0, 0, 0, 0]},
        {"task_ctx": 0, "wakee_load": 0},
        {"affine": "weight_prev", "target": 1},
        {},
    ),
    "14 prev_cpu idle answers at any distance": (
        {"nr": [1, 0, 0, 1], "llc": [0, 1, 0, 1], "load": [1, 900, 0, 0]},
        {"wakee_load": 10},
        {"affine": "prev_idle", "cpu": 1},
        {"5.10.223": {"affine": "weight_this", "target": 0}},
    ),
    "16 a tie of the loads is no pull": (
        {"nr": [1, 1, 1, 1], "load": [1080, 1000, 0, 0]},
        {"wakee_load": 0},
        {"affine": "weight_prev", "target": 1},
        {},
    ),
    "16 but sync adds one": (
        {"nr": [2, 1, 1, 1], "load": [1080, 1000, 0, 0]},
        {"wakee_load": 0, "waker_load": 0, "sync": 1},
        {"affine": "weight_this", "target": 0},
        {},
    ),
    "17 no answer is prev_cpu": (
        {"nr": [1, 1, 1, 1], "load": [0, 0, 0, 0]},
        {"wakee_load": 0},
        {"affine": "weight_prev", "target": 1, "cpu": 1},
        {},
    ),
    "18 the recent CPU becomes prev_cpu on every call": (
        {"nr": [1, 1, 1, 1]},
        {"recent_cpu": 3},
        {"recent_after": 1, "waker_recent_after": -1},
        {"5.14.0": {"recent_after": 3, "waker_recent_after": 0}},
    ),
    "18 its affinity test looks at the recent CPU": (
        {"nr": [1, 1, 1, 0]},
        {"recent_cpu": 3, "allowed": [0, 1, 2]},
        {"cpu": 1, "step": "fallback"},
        # fixed in 6.5 and in stable
        {"6.4.0": {"cpu": 3, "step": "recent"}},
    ),
    "18 a CPU of SCHED_IDLE tasks counts as idle": (
        {"nr": [1, 1, 2, 1], "sched_idle": [0, 0, 1, 0]},
        {},
        {"cpu": 2, "step": "cpu"},
        {"5.3.0": {"cpu": 1}},
    ),
    "19 a per-CPU kthread keeps its wakee": (
        {"nr": [1, 1, 1, 0]},
        {"prev_cpu": 0, "waker_percpu_kthread": 1},
        {"cpu": 0, "step": "kthread"},
        {"5.5.0": {"cpu": 3}},
    ),
    "19 in task context only": (
        {"nr": [1, 1, 1, 0]},
        {"prev_cpu": 0, "waker_percpu_kthread": 1, "task_ctx": 0},
        {"cpu": 3, "step": "cpu"},
        {"5.14.0": {"cpu": 0, "step": "kthread"}},
    ),
    "20 without a hint the sibling of prev_cpu comes before the scan": (
        {"cpus": 8, "core": [0, 0, 1, 1, 2, 2, 3, 3], "nr": [1, 1, 1, 0, 0, 1, 1, 0]},
        {"prev_cpu": 6, "this_cpu": 6},
        {"cpu": 7, "step": "sibling"},
        {"5.12.0": {"cpu": 7, "step": "cpu"}},
    ),
    "20 and that of the target no more behind it": (
        {"cpus": 8, "core": [0, 0, 1, 1, 2, 2, 3, 3], "nr": [1, 0, 1, 1, 1, 1, 1, 1]}
        | {"idle_core": 1, "nr_idle_scan": 0},
        {"prev_cpu": 0, "this_cpu": 0},
        {"cpu": 0, "step": "overloaded", "hint_cleared": 0},
        {"5.10.223": {"cpu": 1, "hint_cleared": 1}},
    ),
    "21 the scan starts behind the target": (
        {"nr": [1, 1, 0, 1], "nr_idle_scan": 1, "prop_nr": 2},
        {"prev_cpu": 1, "this_cpu": 1},
        {"cpu": 2, "step": "cpu"},
        # its one visit goes to the target itself
        {"5.14.0": {"cpu": 1, "step": "budget"}},
    ),
    "22 SIS_UTIL: nr_idle_scan CPUs are looked at": (
        {"nr": [1, 1, 1, 0], "nr_idle_scan": 2, "prop_nr": 4},
        {"prev_cpu": 0},
        {"cpu": 0, "step": "budget"},
        {"5.19.0": {"cpu": 3, "step": "cpu"}},
    ),
    "22 none of them, no scan": (
        {"nr": [1, 1, 1, 0], "nr_idle_scan": 0, "prop_nr": 4},
        {"prev_cpu": 0},
        {"cpu": 0, "step": "overloaded"},
        {"5.19.0": {"cpu": 3, "step": "cpu"}},
    ),
    "22 also where there is an idle-core hint": (
        {"core": [0, 0, 1, 1], "nr": [1, 1, 0, 0], "nr_idle_scan": 0, "prop_nr": 4, "idle_core": 1},
        {"prev_cpu": 0},
        {"cpu": 0, "step": "overloaded"},
        {"5.19.0": {"cpu": 2, "step": "core"}},
    ),
}

#: Where the three differ: row: (machine, wakeup, {release: what it does}).
APART: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, dict[str, Any]]]] = {
    "15 delayed tasks do not count in the sync test": (
        {"nr": [2, 1, 1, 1], "delayed": [1, 0, 0, 0], "load": [900, 1, 0, 0]},
        {"sync": 1, "wakee_load": 0, "waker_load": 0},
        {
            "6.1.192": {"affine": "weight_prev"},
            "6.12.0": {"affine": "weight_prev"},
            "6.12.117": {"affine": "sync", "target": 0},
            "7.2.13": {"affine": "sync", "target": 0},
        },
    ),
    "22 clusters are searched first": (
        {"cluster": [0, 1, 1, 0], "nr": [1, 1, 0, 0]},
        {"prev_cpu": 0, "this_cpu": 0},
        {
            "6.1.192": {"cpu": 2, "step": "cpu"},
            "6.12.117": {"cpu": 3, "step": "cpu"},
            "7.2.13": {"cpu": 3, "step": "cpu"},
        },
    ),
    "22 an idle prev_cpu of another cluster has to wait": (
        {"cluster": [0, 1, 0, 1], "nr": [1, 0, 1, 1]},
        {"sync": 1, "wakee_load": 0, "waker_load": 0},
        {
            "6.1.192": {"target": 0, "cpu": 1, "step": "prev_idle"},
            "6.12.117": {"target": 0, "cpu": 1, "step": "cpu"},
            "7.2.13": {"target": 0, "cpu": 1, "step": "cpu"},
        },
    ),
    "22 and is what the search falls back to": (
        {"cluster": [0, 1, 0, 1], "nr": [1, 0, 1, 1], "nr_idle_scan": 0},
        {"sync": 1, "wakee_load": 0, "waker_load": 0},
        {
            "6.1.192": {"cpu": 1, "step": "prev_idle"},
            "6.12.117": {"cpu": 1, "step": "cluster_prev"},
            "7.2.13": {"cpu": 1, "step": "cluster_prev"},
        },
    ),
    "18 a SCHED_IDLE wakee does not take a CPU of SCHED_IDLE tasks": (
        {"nr": [1, 1, 2, 1], "sched_idle": [0, 0, 1, 0]},
        {"wakee_sched_idle": 1},
        {
            "6.1.192": {"cpu": 2},
            "6.12.117": {"cpu": 2},
            "7.2.13": {"cpu": 1, "step": "fallback"},
        },
    ),
}


def check(release: str, machine: dict[str, Any], wakeup: dict[str, Any], want: Any) -> None:
    got = decided(release, machine, wakeup)
    assert {name: got[name] for name in want} == want, (release, got)


@pytest.mark.parametrize("row", ROWS)
def test_the_three_agree(row: str) -> None:
    machine, wakeup, want, others = ROWS[row]
    for release in THREE:
        check(release, machine, wakeup, want)
    for release, other in others.items():
        check(release, machine, wakeup, other)


@pytest.mark.parametrize("row", APART)
def test_the_three_differ(row: str) -> None:
    machine, wakeup, each = APART[row]
    assert set(THREE) <= set(each)
    for release, want in each.items():
        check(release, machine, wakeup, want)


@pytest.mark.parametrize("kernel", [6001, 6012, 7002])
class TestFlips:
    """Rows 8 and 9, which the timeline keeps."""

    def test_8_only_decided_wakeups_count(self, kernel: int) -> None:
        # A wakee that has not left its CPU yet (on_rq) is not decided: no flip.
        seeds = StartState(tasks=(TaskSeed(20, wakee_flips=3, last_wakee=11),), jiffies_now=0)
        got = run(
            """
               0  0  10  .  stat 10 1000
             100  1  20  .  waking 10 0
             101  1  20  .  wakeup 10 0
             200  0  10  .  switch S 0
             400  1  20  .  waking 10 0
             410  0   0  .  wakeup 10 0
             411  0   0  .  switch R 10
            """,
            start=seeds,
            kernel=kernel,
        )
        assert [w["waker_flips"] for w in got.wakes(10)] == [3, 4]

    def test_9_halved_not_wiped(self, kernel: int) -> None:
        seeds = StartState(
            tasks=(TaskSeed(20, wakee_flips=9, wakee_flip_decay_ts=0, last_wakee=10),),
            jiffies_now=0,
            hz=250,
        )
        got = run(
            """
               0        0  10  .  switch S 0
             100        1  20  .  waking 10 0
             110        0   0  .  wakeup 10 0
             111        0   0  .  switch R 10
             200        0  10  .  switch S 0
             2000000    1  20  .  waking 10 0
             2000010    0   0  .  wakeup 10 0
            """,
            start=seeds,
            kernel=kernel,
        )
        assert [w["waker_flips"] for w in got.wakes(10)] == [9, 4]
