"""The rule of 2013 on whole captures: whom it stops pulling (section 5.2 of the semantics).

Small schedules are written as ftrace text and go through the real reader, timeline and replay. The
flips that are expected are counted beside, by record_wakee()'s two lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import traceana as ta
from traceana.whatif import whatif

HEADER = """\
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
"""

#: Two LLCs of two CPUs each, one node: the factors are 2 and 4.
LLC = [0, 0, 1, 1]
LLC_FACTOR, NODE_FACTOR = 2, 4


@dataclass
class Story:
    """A capture in the making; every task has a CPU of its own choice and stays there."""

    now: int = 1_000_000
    lines: list[str] = field(default_factory=list)
    home: dict[int, int] = field(default_factory=dict)
    running: dict[int, int] = field(default_factory=dict)
    #: record_wakee(): flips and last wakee of each task.
    flips: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    #: Of each decided wakeup: flips of waker and wakee, and whether there is a choice.
    decided: list[tuple[int, int, bool]] = field(default_factory=list)

    def task(self, pid: int, cpu: int, *, runs: bool = False) -> int:
        self.home[pid] = cpu
        if runs:
            self.running[cpu] = pid
        return pid

    def say(self, cpu: int, flags: str, text: str, after: int = 3000) -> None:
        self.now += after
        pid = self.running.get(cpu, 0)
        comm = f"t{pid}" if pid else "<idle>"
        time = f"{self.now // 10**9}.{self.now % 10**9:09d}"
        self.lines.append(f"{comm:>16}-{pid:<6} [{cpu:03d}] {flags} {time}: {text}\n")

    def switch(self, cpu: int, state: str, pid: int) -> None:
        prev = self.running.get(cpu, 0)
        names = [f"t{p}" if p else f"swapper/{cpu}" for p in (prev, pid)]
        self.say(
            cpu,
            "d..2.",
            f"sched_switch: prev_comm={names[0]} prev_pid={prev} prev_prio=120 prev_state={state} "
            f"==> next_comm={names[1]} next_pid={pid} next_prio=120",
        )
        self.running[cpu] = pid

    def wake(self, cpu: int, pid: int, *, irq: bool = False) -> None:
        """The task that runs on ``cpu`` (or an interrupt there) wakes one, on its idle home."""
        waker, home = self.running.get(cpu, 0), self.home[pid]
        target = f"comm=t{pid} pid={pid} prio=120 target_cpu={home:03d}"
        self.say(cpu, "d.h2." if irq else "d..2.", f"sched_waking: {target}", 20_000)
        if self.last.get(waker) != pid:
            self.last[waker] = pid
            self.flips[waker] = self.flips.get(waker, 0) + 1
        self.decided.append((self.flips[waker], self.flips.get(pid, 0), cpu != home))
        self.say(home, "dN.4.", f"sched_wakeup: {target}")
        self.switch(home, "R", pid)

    def block(self, pid: int) -> None:
        self.now += 5000
        self.switch(self.home[pid], "S", 0)

    def capture(self, folder: Path) -> Any:
        path = folder / "story.txt"
        path.write_text(HEADER + "".join(self.lines))
        first = dict.fromkeys(range(len(LLC)), 0) | self.start
        state = {
            "tasks": [
                {"pid": pid, "dur_avg_ns": 5000, "wakee_flips": 0, "last_wakee": None}
                for pid in self.home
            ],
            "jiffies_now": 0,
            "hz": 250,
            "cpus": [{"cpu": cpu, "pid": pid} for cpu, pid in first.items()],
        }
        (folder / "story.txt.state.json").write_text(json.dumps(state))
        rows = [
            {"cpu": c, "core": c, "cluster": None, "llc": llc, "node": 0, "socket": 0}
            | {"online": True, "origin": "side_file"}
            for c, llc in enumerate(LLC)
        ]
        (folder / "story.txt.topology.json").write_text(json.dumps(rows))
        return ta.open(path, kernel="6.1.192")

    start: dict[int, int] = field(default_factory=dict)

    def stopped(self, factor: int) -> list[int]:
        """Section 2.3: p.sw > f and W.sw > f * p.sw."""
        return [
            i
            for i, (waker, wakee, apart) in enumerate(self.decided)
            if apart and wakee > factor and waker > factor * wakee
        ]


def begin(**running: int) -> Story:
    story = Story()
    for name, pid in running.items():
        story.task(pid, int(name.removeprefix("cpu")), runs=True)
    story.start = dict(story.running)
    return story


def ping_pong(rounds: int = 150) -> Story:
    story = begin(cpu0=10)
    story.task(20, 1)
    for _ in range(rounds):
        story.wake(0, 20)
        story.block(10)
        story.wake(1, 10)
        story.block(20)
    return story


def dispatcher(workers: int, rounds: int, *, wakes_many: bool) -> Story:
    """Task 10 wakes workers 100, 101 … in turn; each answers, some wake two helpers before."""
    story = begin(cpu0=10)
    for i in range(workers):
        story.task(100 + i, 1 + i % 3)
    helpers = [story.task(200 + c, c) for c in (1, 2, 3)]
    for _ in range(rounds):
        for i in range(workers):
            worker = 100 + i
            cpu = story.home[worker]
            story.wake(0, worker)
            story.block(10)
            if wakes_many:
                for helper in helpers:
                    if story.home[helper] != cpu:
                        story.wake(cpu, helper)
                        story.block(helper)
            story.wake(cpu, 10)
            story.block(worker)
    return story


def timers(rounds: int = 60) -> Story:
    """A ping-pong whose two tasks are interrupted by timers that wake others."""
    story = begin(cpu0=10)
    story.task(20, 1)
    others = [story.task(30 + i, 2 + i) for i in range(2)]

    def tick(cpu: int) -> None:
        for other in others:
            story.wake(cpu, other, irq=True)
            story.block(other)

    for i in range(rounds):
        for _ in range(8):
            tick(0)
        story.wake(0, 20)
        story.block(10)
        if i % 3 == 0:
            tick(1)
        story.wake(1, 10)
        story.block(20)
    return story


def fired(story: Story, folder: Path, params: dict[str, int]) -> Iterator[tuple[int, str]]:
    cap = story.capture(folder)
    result = whatif(
        cap,
        ["smart_wake_affine_2013"],
        params={f"smart_wake_affine_2013.{k}": v for k, v in params.items()},
    )["smart_wake_affine_2013"]
    # Every wakeup of the story is re-decided: row i is its i-th.
    assert result.decisions == len(story.decided)
    for i, code in enumerate(result.reason_codes):
        yield i, result.reason_names[code]


def stops(story: Story, folder: Path, params: dict[str, int]) -> list[int]:
    return [i for i, reason in fired(story, folder, params) if reason in ("stop", "stop_same")]


BOTH = [("llc", LLC_FACTOR, {}), ("node", NODE_FACTOR, {"node": 1})]


@pytest.mark.parametrize(("by", "factor", "params"), BOTH, ids=["llc", "node"])
class TestWhomItStops:
    def test_ping_pong_never(
        self, by: str, factor: int, params: dict[str, int], tmp_path: Path
    ) -> None:
        story = ping_pong()
        assert max(waker for waker, _, _ in story.decided) == 1
        assert stops(story, tmp_path, params) == story.stopped(factor) == []

    def test_a_dispatcher_whose_workers_wake_only_it_never(
        self, by: str, factor: int, params: dict[str, int], tmp_path: Path
    ) -> None:
        story = dispatcher(12, 12, wakes_many=False)
        # As hot as a waker can be, but its wakees are not.
        assert max(waker for waker, _, _ in story.decided) == 144
        assert stops(story, tmp_path, params) == story.stopped(factor) == []

    def test_a_dispatcher_whose_workers_wake_many(
        self, by: str, factor: int, params: dict[str, int], tmp_path: Path
    ) -> None:
        story = dispatcher(24, 8, wakes_many=True)
        expected = story.stopped(factor)
        assert len(expected) > 50
        assert stops(story, tmp_path, params) == expected
        # Only where the dispatcher wakes a worker, not where a worker answers.
        assert all(story.decided[i][0] > story.decided[i][1] for i in expected)

    def test_interrupts_charge_whoever_runs(
        self, by: str, factor: int, params: dict[str, int], tmp_path: Path
    ) -> None:
        story = timers()
        expected = story.stopped(factor)
        assert expected
        assert stops(story, tmp_path, params) == expected


def test_the_factors_differ(tmp_path: Path) -> None:
    story = dispatcher(24, 8, wakes_many=True)
    assert len(story.stopped(NODE_FACTOR)) < len(story.stopped(LLC_FACTOR))


def test_todays_test_stops_a_hot_wakee_too(tmp_path: Path) -> None:
    """The symmetric test stops both directions; the rule of 2013 pulls the answers again."""
    story = dispatcher(24, 8, wakes_many=True)
    reasons = dict(fired(story, tmp_path, {}))
    pulled = [i for i, reason in reasons.items() if reason in ("pull", "pull_same")]
    both = [
        i
        for i, (waker, wakee, apart) in enumerate(story.decided)
        if apart
        and min(waker, wakee) >= LLC_FACTOR
        and max(waker, wakee) >= LLC_FACTOR * min(waker, wakee)
    ]
    assert pulled == [i for i in both if i not in story.stopped(LLC_FACTOR)]
    assert any(story.decided[i][0] < story.decided[i][1] for i in pulled)
