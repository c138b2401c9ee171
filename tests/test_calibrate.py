"""Costs of a machine: measured where a capture tells them, by hand where a hand wants it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import traceana as ta
from traceana import workload
from traceana._sim_state import COSTS, QUANTILES
from traceana._workload_clean import DEFAULT_WAKE_NS, measure_wakes
from traceana._workload_marks import Mark, Marks, Outcome
from traceana.calibrate import Calibration, calibrate
from traceana.errors import UsageError


@pytest.fixture(scope="module")
def pp6() -> Calibration:
    root = Path(__file__).resolve().parents[1]
    cap = ta.open(root / "sample_traces" / "pp6-base.dat")
    return calibrate(cap, workload.extract(cap))


def middle(c: Calibration, name: str) -> int:
    return int(c.costs[COSTS.index(name), QUANTILES // 2])


def test_each_cost_has_a_distribution_and_an_origin(pp6: Calibration) -> None:
    assert pp6.costs.shape == (len(COSTS), QUANTILES)
    assert pp6.costs.dtype == np.int64
    assert pp6.costs.min() >= 0
    assert (np.diff(pp6.costs, axis=1) >= 0).all()
    assert set(pp6.origin) == set(COSTS) == set(pp6.n)
    assert set(pp6.origin.values()) == {"measured", "offsets"}
    for row in pp6.table():
        assert row["lo_ns"] <= row["p50_ns"] <= row["hi_ns"]
        if row["origin"] == "measured" and row["cost"] != "event":
            assert row["n"] >= 25


def test_what_the_records_of_ping_pong_say(pp6: Calibration) -> None:
    # Of this capture by hand (trace-cmd report): the shortest sched_waking to sched_migrate_task
    # takes 0.86 us, a remote wakeup its waker 1.9 and a direct one 2 more, a migration about 1; an
    # idle CPU switches 2.08 us behind its sched_wakeup, a busy one 1.64 behind the dequeue; newidle
    # balances that pull something take 5 us more than those that do not.
    near = {
        "wake_remote": 1940, "switch_in": 2080, "switch_out": 1640, "pull": 5300,
    }  # fmt: skip
    for name, ns in near.items():
        assert middle(pp6, name) == pytest.approx(ns, rel=0.06), name
        assert pp6.origin[name] == "measured"
    assert middle(pp6, "look") + middle(pp6, "book") == pytest.approx(860, abs=10)
    assert 1700 < middle(pp6, "wake_direct") - middle(pp6, "wake_remote") < 2600
    assert 700 < middle(pp6, "wake_migrate") < 1200
    # From the decision to sched_wakeup on an idle CPU: 2117 - 860 without a migration.
    parts = ("show_remote", "ipi", "idle_exit", "enqueue")
    assert sum(middle(pp6, x) for x in parts) == pytest.approx(1230, rel=0.06)


def test_the_machine(pp6: Calibration) -> None:
    assert pp6.release is not None
    assert pp6.release.startswith("6.1")
    assert pp6.hz == 250
    assert len(pp6.cpu_util) == 8
    # 39.5 % of the time idle
    assert pp6.cpu_util.mean() == pytest.approx(0.605 * 1024, rel=0.02)
    scans = pp6.nr_idle_scan
    assert scans[0] is not None
    assert 1 <= scans[0] <= 4
    assert pp6.rule == "mainline"
    model = pp6.model(rule="sis_short_v5", window=0)
    assert (model.rule, model.window, model.hz) == ("sis_short_v5", 0, 250)
    assert model.costs is pp6.costs
    told = json.loads(pp6.to_json())
    assert told["costs"]["look"] == pp6.costs[COSTS.index("look")].tolist()
    assert told["origin"]["scan"] == "offsets"


def test_costs_by_hand(pp6: Calibration) -> None:
    rising = list(range(0, 170, 10))
    c = pp6.with_costs(look=700, scan=rising)
    assert c.costs[COSTS.index("look")].tolist() == [700] * QUANTILES
    assert c.costs[COSTS.index("scan")].tolist() == rising
    assert (c.origin["look"], c.origin["scan"], c.origin["book"]) == ("given", "given", "measured")
    assert middle(pp6, "look") != 700
    with pytest.raises(UsageError, match="no cost 'lok'"):
        pp6.with_costs(lok=1)
    for bad in (-1, 1 << 41, [1, 2], rising[::-1]):
        with pytest.raises(UsageError, match="cost look"):
            pp6.with_costs(look=bad)  # type: ignore[arg-type]


def test_little_to_measure_gives_the_known_offsets(samples: Path) -> None:
    cap = ta.open(samples / "hostile.dat")
    c = calibrate(cap, workload.extract(cap))
    assert set(c.origin.values()) <= {"offsets", "measured"}
    assert c.origin["wake_remote"] == c.origin["switch_in"] == c.origin["pull"] == "offsets"
    assert c.costs.min() >= 0
    assert (c.costs[COSTS.index("wake_direct")] > 0).all()


# --- what a wakeup costs ---


def marks_of(tails: list[tuple[int, int]]) -> Marks:
    """A task that wakes another, by outcome, and sleeps so many ns later."""
    rows, outcome, at = [], [], 0
    for kind, tail in tails:
        rows.append([1, at, Mark.WAKE, 2, 0, 0, -1, 0])
        rows.append([1, at + tail, Mark.OUT, -1, 0, 0, 2, 0])
        outcome += [kind, -1]
        at += 100_000
    return Marks(np.array(rows, np.int64), np.array(outcome, np.int64), {})


def test_wake_costs_are_told_apart_from_the_work_behind_them() -> None:
    # The waker's own work: 300 ns. A remote wakeup 2000, a direct one 3500, a migration 800 and up
    # to 1000 for CPUs that were looked at.
    tails = [(Outcome.REMOTE, 2300 + i % 3) for i in range(100)]
    tails += [(Outcome.DIRECT, 3800 + i % 3) for i in range(40)]
    tails += [(Outcome.REMOTE + Outcome.MIGRATE, 3100 + 20 * i) for i in range(50)]
    made = measure_wakes(marks_of(tails), 820)
    remote = made.ns[Outcome.REMOTE]
    assert remote == 2300  # nobody can tell work that is always there from the cost
    assert made.ns[Outcome.DIRECT] - remote == pytest.approx(1500, abs=5)
    assert made.ns[Outcome.MIGRATE] - remote == pytest.approx(800, abs=120)
    assert made.measured[[Outcome.REMOTE, Outcome.DIRECT, Outcome.MIGRATE]].all()
    assert not made.measured[Outcome.NONE]


def test_wakers_that_work_on_hide_the_cost() -> None:
    # 50 us of work behind each wakeup: that is not what a wakeup costs.
    made = measure_wakes(marks_of([(Outcome.REMOTE, 50_000)] * 200), 410)
    assert not made.measured[Outcome.REMOTE]
    # half of what recording an event takes where the defaults were measured
    assert made.ns.tolist() == [ns // 2 for ns in DEFAULT_WAKE_NS]
