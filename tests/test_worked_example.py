"""The double booking of section 10.3 of the semantics, end to end: text, start state, whatif.

Who is who: p0' (pid 100) on CPU 0 wakes p0 (101); p2' (102) on CPU 7 wakes p2 (103); CPU 1 and
CPU 2 idle, CPUs 3 to 6 run long tasks (104 to 107) that leave no event.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import traceana as ta
from traceana import schema
from traceana.candidates import candidates
from traceana.capture import Capture
from traceana.whatif import whatif

TRACE = """\
# tracer: nop
#
#                                _-----=> irqs-off/BH-disabled
#                               / _----=> need-resched
#                              | / _---=> hardirq/softirq
#                              || / _--=> preempt-depth
#                              ||| / _-=> migrate-disable
#                              |||| /     delay
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
             p0'-100     [000] d..2.     0.000110000: sched_waking: comm=p0 pid=101 prio=120 target_cpu=000
             p2'-102     [007] d..2.     0.000110400: sched_waking: comm=p2 pid=103 prio=120 target_cpu=007
             p0'-100     [000] d..2.     0.000111000: sched_migrate_task: comm=p0 pid=101 prio=120 orig_cpu=0 dest_cpu=1
             p2'-102     [007] d..2.     0.000111300: sched_migrate_task: comm=p2 pid=103 prio=120 orig_cpu=7 dest_cpu=1
          <idle>-0       [001] dN.4.     0.000113000: sched_wakeup: comm=p0 pid=101 prio=120 target_cpu=001
          <idle>-0       [001] dN.4.     0.000113300: sched_wakeup: comm=p2 pid=103 prio=120 target_cpu=001
             p0'-100     [000] d..2.     0.000114000: sched_switch: prev_comm=p0' prev_pid=100 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
          <idle>-0       [001] d..2.     0.000115000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=p2 next_pid=103 next_prio=120
              p2-103     [001] d..2.     0.000155000: sched_switch: prev_comm=p2 prev_pid=103 prev_prio=120 prev_state=S ==> next_comm=p0 next_pid=101 next_prio=120
              p0-101     [001] d..2.     0.000165000: sched_waking: comm=p0' pid=100 prio=120 target_cpu=000
          <idle>-0       [000] dN.4.     0.000167000: sched_wakeup: comm=p0' pid=100 prio=120 target_cpu=000
          <idle>-0       [000] d..2.     0.000168000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=p0' next_pid=100 next_prio=120
"""

PIDS = {"p0'": 100, "p0": 101, "p2'": 102, "p2": 103}
LONG = {3: 104, 4: 105, 5: 106, 6: 107}


def _start_state(shared_vectors: Path) -> dict[str, object]:
    """The JSON of design section 4, from the vector's own file where it is there."""
    dur = {"p0'": 4000, "p0": 10000, "p2": 40000, "p2'": 900000}
    scan, flips = 3, 0
    file = shared_vectors / "a9_worked_example.json"
    if file.exists():
        vector = json.loads(file.read_text())
        assert vector["dur_avg_ns"] == dur
        scan, flips = vector["nr_idle_scan"], vector["flips"]
        assert vector["threshold_ns"] == 375_000
    tasks = [
        {"pid": PIDS[name], "dur_avg_ns": ns, "wakee_flips": flips, "last_wakee": None}
        for name, ns in dur.items()
    ]
    cpus = [
        {"cpu": 0, "pid": 100},
        {"cpu": 1, "pid": 0},
        {"cpu": 2, "pid": 0},
        {"cpu": 7, "pid": 102},
    ]
    cpus += [{"cpu": cpu, "pid": pid} for cpu, pid in LONG.items()]
    return {
        "tasks": tasks,
        "jiffies_now": 0,
        "hz": 250,
        "cpus": cpus,
        "llcs": [{"llc": 0, "nr_idle_scan": scan, "has_idle_core": 0}],
    }


@pytest.fixture(scope="module")
def cap(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    folder = tmp_path_factory.mktemp("a9")
    path = folder / "a9.txt"
    path.write_text(TRACE)
    root = Path(__file__).resolve().parents[1]
    (folder / "a9.txt.state.json").write_text(
        json.dumps(_start_state(root.parent / "shared" / "vectors"))
    )
    rows = [
        {
            "cpu": c,
            "core": c,
            "cluster": None,
            "llc": 0,
            "node": 0,
            "socket": 0,
            "online": True,
            "origin": "side_file",
        }
        for c in range(8)
    ]
    (folder / "a9.txt.topology.json").write_text(json.dumps(rows))
    return ta.open(path, kernel="6.2")


def _by_name(cap: Capture) -> dict[str, dict[str, object]]:
    t = cap.timeline()
    names = dict(
        zip(t.tasks.column("task").to_pylist(), t.tasks.column("comm").to_pylist(), strict=True)
    )
    return {str(names[r["wakee"]]): r for r in t.wakeups.to_pylist()}


def test_latencies(cap: Capture) -> None:
    rows = _by_name(cap)
    # waking -> run: 155.0 - 110.0, 115.0 - 110.4, 168.0 - 165.0 us
    assert {n: r["wakeup_latency_ns"] for n, r in rows.items()} == {
        "p0": 45_000,
        "p2": 4_600,
        "p0'": 3_000,
    }
    # wakeup -> run: 155.0 - 113.0, 115.0 - 113.3, 168.0 - 167.0 us
    assert {n: r["queue_delay_ns"] for n, r in rows.items()} == {
        "p0": 42_000,
        "p2": 1_700,
        "p0'": 1_000,
    }
    assert all(r["kind"] == schema.WakeKind.DECIDED for r in rows.values())
    # p0's booking shows between its migration and the next event of CPU 0 or its sched_wakeup.
    assert (rows["p0"]["visible_lo"], rows["p0"]["visible_hi"]) == (111_000, 113_000)
    assert (rows["p2"]["visible_lo"], rows["p2"]["visible_hi"]) == (111_300, 113_300)


def test_idle(cap: Capture) -> None:
    cpus = {r["cpu"]: r["idle_ns"] for r in cap.timeline().cpus.to_pylist()}
    # CPU 0 idle 114..168, CPU 1 110..115, CPU 2 throughout 110..168; the long ones never.
    assert cpus == {0: 54_000, 1: 5_000, 2: 58_000, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0}


def test_double_booking(cap: Capture) -> None:
    rows = candidates(cap.timeline()).to_pylist()
    wakeups = {r["wakeup"]: n for n, r in _by_name(cap).items()}
    assert len(rows) == 1
    row = rows[0]
    # p2 runs first (115.0); p0 is the victim: 155.0 - max(113.0, 115.0) = 40.0 us
    assert wakeups[row["first"]] == "p0" and wakeups[row["second"]] == "p2"
    assert wakeups[row["victim"]] == "p0"
    assert (row["cpu"], row["extra_delay_ns"]) == (1, 40_000)


def test_recorded_changes_nothing(cap: Capture) -> None:
    result = whatif(cap, ["recorded"])["recorded"]
    assert result.moved == 0 and result.idle_delta_ns == {}
    for figures in (result.queue_delay_ns, result.wakeup_latency_ns):
        assert all(f.delta == 0 for f in figures.values())


def test_sis_short_v5(cap: Capture) -> None:
    result = whatif(cap, ["sis_short_v5"])["sis_short_v5"]
    rows = _by_name(cap)
    cpu = dict(zip(result.rows.tolist(), result.cpu.tolist(), strict=True))
    # Place B for p0: no idle core, this = target, nr = 4: 20 < 24, nr_running(0) = 1, p0 (10 us)
    # and p0' (4 us) short. p2: its waker's 900 us is not short. p0's wakeup of p0' at 165.0: prev
    # is idle, so the search ends before place B.
    assert cpu[rows["p0"]["wakeup"]] == 0
    assert cpu[rows["p2"]["wakeup"]] == 1
    assert cpu[rows["p0'"]["wakeup"]] == 0
    assert result.moved == 1
    assert result.reasons["place_b"] == 1
    # On CPU 0 p0 runs when p0' leaves, at 114.0: 4.0 us after its waking instead of 45.0.
    assert result.estimate.run.tolist() == [114_000]
    assert result.estimate.latency.tolist() == [4_000]
    assert result.wakeup_latency_ns["sum"].delta == -41_000
    # p0's burst within the window, 155.0..168.0 = 13.0 us, moves from CPU 1 to CPU 0.
    assert result.idle_delta_ns == {0: -13_000, 1: 13_000}
    assert result.idle_delta_total.delta == 0
    assert (result.victims_relieved, result.victims_created) == (1, 0)


@pytest.mark.parametrize(
    ("rule", "p0", "p2"),
    [("abel", 1, 1), ("prev_cpu", 0, 7), ("this_cpu", 0, 7), ("recorded", 1, 1)],
)
def test_other_rules(cap: Capture, rule: str, p0: int, p2: int) -> None:
    result = whatif(cap, [rule])[rule]
    rows = _by_name(cap)
    cpu = dict(zip(result.rows.tolist(), result.cpu.tolist(), strict=True))
    assert (cpu[rows["p0"]["wakeup"]], cpu[rows["p2"]["wakeup"]]) == (p0, p2)
