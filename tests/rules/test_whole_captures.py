"""Rules that need what only a capture's past tells: last wakees, and bookings under way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_worked_example import LONG, PIDS, TRACE

import traceana as ta
from traceana.whatif import whatif

#: Section 10.3: who stands where at the begin.
DUR = {"p0'": 4000, "p0": 10_000, "p2'": 900_000, "p2": 40_000}


def capture(folder: Path, last: dict[str, str]) -> Any:
    tasks = [
        {
            "pid": PIDS[name],
            "dur_avg_ns": ns,
            "wakee_flips": 0,
            "last_wakee": PIDS[last[name]] if name in last else None,
        }
        for name, ns in DUR.items()
    ]
    running = {0: 100, 1: 0, 2: 0, 7: 102, **LONG}
    state = {
        "tasks": tasks,
        "jiffies_now": 0,
        "hz": 250,
        "cpus": [{"cpu": cpu, "pid": pid} for cpu, pid in running.items()],
        "llcs": [{"llc": 0, "nr_idle_scan": 3, "has_idle_core": 0}],
    }
    (folder / "a9.txt").write_text(TRACE)
    (folder / "a9.txt.state.json").write_text(json.dumps(state))
    rows = [
        {"cpu": c, "core": c, "cluster": None, "llc": 0, "node": 0, "socket": 0}
        | {"online": True, "origin": "side_file"}
        for c in range(8)
    ]
    (folder / "a9.txt.topology.json").write_text(json.dumps(rows))
    return ta.open(folder / "a9.txt", kernel="6.2")


def choices(cap: Any, rule: str) -> dict[str, tuple[int, str]]:
    """Where p0 and p2 go, and why."""
    result = whatif(cap, [rule])[rule]
    timeline = cap.timeline()
    names = timeline.tasks.column("comm").to_pylist()
    wakees = timeline.wakeups.column("wakee").to_pylist()
    found = {}
    for row, cpu, code in zip(result.rows, result.cpu, result.reason_codes, strict=True):
        found[names[wakees[row]]] = (int(cpu), result.reason_names[code])
    return {name: found[name] for name in ("p0", "p2")}


def test_the_second_of_a_double_booking_looks_again(tmp_path: Path) -> None:
    cap = capture(tmp_path, {})
    assert choices(cap, "race_free") == {"p0": (1, "recorded"), "p2": (2, "again")}
    result = whatif(cap, ["race_free"])["race_free"]
    assert (result.moved, result.victims_relieved) == (1, 1)


@pytest.mark.parametrize("rule", ["sis_current_v7", "sis_current_v8"])
class TestPairs:
    def test_of_a_pair_from_before(self, rule: str, tmp_path: Path) -> None:
        """last(p0') = p0, last(p0) = p0': no flip, and the pair stays on CPU0."""
        cap = capture(tmp_path, {"p0'": "p0", "p0": "p0'"})
        assert choices(cap, rule) == {"p0": (0, "second"), "p2": (1, "recorded")}

    def test_of_no_pair(self, rule: str, tmp_path: Path) -> None:
        cap = capture(tmp_path, {"p0'": "p0", "p0": "p2"})
        assert choices(cap, rule)["p0"] == (1, "recorded")

    def test_a_first_meeting_is_a_flip(self, rule: str, tmp_path: Path) -> None:
        cap = capture(tmp_path, {"p0": "p0'"})
        assert choices(cap, rule)["p0"] == (1, "recorded")


def test_v5_1_is_both(tmp_path: Path) -> None:
    cap = capture(tmp_path, {})
    assert choices(cap, "sis_short_v5+abel") == {"p0": (0, "place_b"), "p2": (1, "recorded")}
