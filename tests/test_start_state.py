"""Start states of both forms, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from oracle.tiny import build, events

from traceana.errors import InputError
from traceana.start_state import StartState, TaskSeed, find, load

STATE: dict[str, Any] = {
    "tasks": [
        {
            "pid": 10,
            "dur_avg_ns": 10_000,
            "prev_sleep_sum_ns": 5,
            "sum_exec_ns": 9,
            "wakee_flips": 3,
            "wakee_flip_decay_ts": 4_294_897_900,
            "last_wakee": 12,
            "util_avg": 77,
        },
        {"pid": 12},
    ],
    "jiffies_now": 4_294_897_924,
    "hz": 250,
    "cpus": [{"cpu": 0, "pid": 10}, {"cpu": 1, "pid": 0}, {"cpu": 2}],
    "llcs": [{"llc": 0, "nr_idle_scan": 3, "has_idle_core": 0}],
}
RUN: dict[str, Any] = {
    "kernel": "6.1.192",
    "clock_pair": {"trace_s": 22.631959, "mono_ns": 22_627_562_975},
    "tasks_begin": {
        "mono_from_ns": 22_561_998_848,
        "mono_to_ns": 22_568_908_833,
        "tasks": [
            {
                "pid": 1,
                "comm": "init",
                "se.sum_exec_runtime": 693.561464,
                "se.dur_avg": 81_521,
                "wakee_flips": 45,
                "wakee_flip_decay_ts": 4_294_893_061,
                "last_wakee": 12,
                "jiffies_now": 4_294_897_920,
                "se.avg.util_avg": 0,
            },
            {"pid": 2, "jiffies_now": 4_294_897_924},
        ],
    },
}


def _write(folder: Path, document: Any) -> Path:
    path = folder / "x.state.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_state_json(tmp_path: Path) -> None:
    state = load(_write(tmp_path, STATE))
    ten, twelve = state.tasks
    assert (ten.pid, ten.dur_avg_ns, ten.wakee_flips, ten.last_wakee) == (10, 10_000, 3, 12)
    assert (ten.wakee_flip_decay_ts, ten.util_avg) == (4_294_897_900, 77)
    assert (twelve.dur_avg_ns, twelve.wakee_flips, twelve.util_avg) == (None, None, None)
    assert (state.jiffies_now, state.hz, state.at_ts) == (4_294_897_924, 250, None)
    assert state.running == {0: 10, 1: 0}
    assert state.llcs == {0: (3, 0)}


def test_run_json_of_an_ab_capture(tmp_path: Path) -> None:
    state = load(_write(tmp_path, RUN))
    one, two = state.tasks
    assert (one.pid, one.dur_avg_ns, one.wakee_flips, one.last_wakee) == (1, 81_521, 45, 12)
    assert two.dur_avg_ns is None
    # jiffies stand per task: the last one read counts. hz is not in it.
    assert (state.jiffies_now, state.hz) == (4_294_897_924, None)
    # Read at mono 22 568 908 833; trace clock = mono + (22 631 959 000 - 22 627 562 975).
    assert state.at_ts == 22_568_908_833 + 4_396_025


def test_run_json_of_a_real_capture(shared: Path) -> None:
    found = sorted((shared / "captures" / "ab").glob("*/*/base-truth.json"))
    if not found:
        pytest.skip("no ab captures in ../shared")
    for path in found:
        document = json.loads(path.read_text())
        state = load(path)
        assert len(state.tasks) == len(document["tasks_begin"]["tasks"])
        assert state.jiffies_now is not None and state.at_ts is not None
        durs = {t["pid"]: t.get("se.dur_avg") for t in document["tasks_begin"]["tasks"]}
        assert {t.pid: t.dur_avg_ns for t in state.tasks} == durs


def test_find_beside_a_capture(tmp_path: Path) -> None:
    capture = tmp_path / "trace.dat"
    assert find(capture) is None
    side = tmp_path / "trace.dat.state.json"
    side.write_text("{}")
    assert find(capture) == side


def _changed(**changes: Any) -> dict[str, Any]:
    return {**STATE, **changes}


def _run_changed(**changes: Any) -> dict[str, Any]:
    return {**RUN, **changes}


BAD: dict[str, Any] = {
    "empty": "",
    "not json": "{'tasks': []",
    "binary": "\x00\x01\x02",
    "a list": [STATE],
    "a number": 7,
    "null": None,
    "neither form": {"hello": 1},
    "tasks null": _changed(tasks=None),
    "tasks a number": _changed(tasks=5),
    "task not an object": _changed(tasks=[1]),
    "task without pid": _changed(tasks=[{"dur_avg_ns": 1}]),
    "pid a word": _changed(tasks=[{"pid": "ten"}]),
    "pid null": _changed(tasks=[{"pid": None}]),
    "pid huge": _changed(tasks=[{"pid": 10**30}]),
    "dur_avg a list": _changed(tasks=[{"pid": 1, "dur_avg_ns": []}]),
    "dur_avg huge": _changed(tasks=[{"pid": 1, "dur_avg_ns": 2**63}]),
    "dur_avg negative": _changed(tasks=[{"pid": 1, "dur_avg_ns": -5}]),
    "flips negative": _changed(tasks=[{"pid": 1, "wakee_flips": -1}]),
    "flips nan": '{"tasks": [{"pid": 1, "wakee_flips": NaN}]}',
    "flips infinite": '{"tasks": [{"pid": 1, "wakee_flips": Infinity}]}',
    "last_wakee huge": _changed(tasks=[{"pid": 1, "wakee_flips": 1, "last_wakee": 2**40}]),
    "jiffies huge": _changed(jiffies_now=10**25),
    "hz zero": _changed(hz=0),
    "hz negative": _changed(hz=-250),
    "hz huge": _changed(hz=10**12),
    "hz a word": _changed(hz="fast"),
    "cpus null": _changed(cpus=None),
    "cpu huge": _changed(cpus=[{"cpu": 10**30, "pid": 1}]),
    "cpu negative": _changed(cpus=[{"cpu": -3, "pid": 1}]),
    "cpu pid huge": _changed(cpus=[{"cpu": 0, "pid": 10**30}]),
    "cpu pid beyond int32": _changed(cpus=[{"cpu": 0, "pid": 2**33}]),
    "cpu a word": _changed(cpus=[{"cpu": "a", "pid": 1}]),
    "llc without id": _changed(llcs=[{"nr_idle_scan": 1}]),
    "llcs a number": _changed(llcs=3),
    "run without tasks": _run_changed(tasks_begin={}),
    "run tasks_begin null": _run_changed(tasks_begin=None),
    "run tasks null": _run_changed(tasks_begin={"tasks": None}),
    "run pid missing": _run_changed(tasks_begin={"tasks": [{"comm": "x"}]}),
    "run clock pair a list": _run_changed(clock_pair=[1]),
    "run clock pair empty": _run_changed(clock_pair={"trace_s": 1.0}),
    "run trace_s a word": _run_changed(clock_pair={"trace_s": "x", "mono_ns": 1}),
    "run trace_s huge": _run_changed(clock_pair={"trace_s": 1e300, "mono_ns": 1}),
    "run mono huge": _run_changed(clock_pair={"trace_s": 1.0, "mono_ns": 10**40}),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("name", BAD)
def test_bad_start_state_is_one_clear_error(name: str, tmp_path: Path) -> None:
    path = _write(tmp_path, BAD[name])
    with pytest.raises(InputError) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


def test_a_path_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError):
            load(path)


def test_what_is_accepted_the_builder_can_use(tmp_path: Path) -> None:
    # Odd but legal values: the greatest that load() lets through reach the kernels unharmed.
    odd = {
        "tasks": [
            {"pid": 4_194_304, "dur_avg_ns": 2**40, "wakee_flips": 2**31, "last_wakee": 0},
            {"pid": 0, "wakee_flips": 1},
            {"pid": 20},
        ],
        "jiffies_now": 2**32 - 1,
        "cpus": [{"cpu": 3, "pid": 4_194_304}, {"cpu": 3, "pid": 20}],
    }
    timeline = build(events("100  0  20  .  waking 10 0"), start=load(_write(tmp_path, odd)))
    assert timeline.tasks.num_rows >= 2


def test_seeds_are_of_the_first_holder_of_a_pid_only() -> None:
    # 10 dies; the next 10 starts with dur_avg 0, not with the seed.
    start = StartState(tasks=(TaskSeed(10, dur_avg_ns=4444, wakee_flips=9),))
    timeline = build(
        events("""
            100  0  10  .  switch X 0
            200  1  20  .  fork 10
            201  1  20  .  new 10 0
        """),
        start=start,
    )
    old, new = [t for t in timeline.tasks.to_pylist() if t["pid"] == 10]
    # The seed is unchanged: the burst that ends with the death began before the window.
    assert (old["dur_avg_ns"], old["wakee_flips"]) == (4444, 9)
    assert new["dur_avg_ns"] == 0
    assert new["wakee_flips"] is None  # its parent's are not known
