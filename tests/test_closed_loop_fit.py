"""Two numbers that no event tells, found by holding the model's runs against the recording."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import traceana as ta
from traceana import synth
from traceana._closed_loop_fit import Shown, fitted, sleeps_across
from traceana._closed_loop_runs import bursts_per_s, recorded_bursts, run_once
from traceana._sim_state import Op
from traceana._workload_channels import Traffic
from traceana.closed_loop import prepare
from traceana.rules.interface import UNCOMPILED
from traceana.simulate import Model
from traceana.workload import extract

MS = 1_000_000


@dataclass
class Fake:
    """Tasks 1, 2 write to 3, 4: 8 messages may be under way, and 1.25 times as many are sent as
    extraction says. With more room they sleep less, and get more done.
    """

    traffic: list[Traffic]
    steep: float = 0.0
    runs: list[tuple[float, float]] = field(default_factory=list)

    def again(self, work: Any) -> Shown:
        one = work.traffic[0]
        self.runs.append((one.room, one.scale))
        room, scale = math.log(one.room / 8), math.log(one.scale / 1.25)
        progress = math.exp(0.3 * room - 0.6 * scale)
        a, b = (n * math.exp(0.5 * scale - x * room) for n, x in ((250, 2.0), (3000, 0.3)))
        return Shown(
            {1: round(a), 2: round(a), 3: round(b), 4: round(b)},
            dict.fromkeys((1, 2, 3, 4), progress),
            tail=1000 * one.room**self.steep,
        )

    def extract(self, known: list[Traffic]) -> Any:
        return Fake(known, self.steep)


def fake(room: float = 20.0, steep: float = 0.0) -> Any:
    sides = (frozenset((1, 2)), frozenset((3, 4)))
    return Fake([Traffic(sides, (500, 6000), 30_000.0, room)], steep)


@pytest.mark.parametrize(("room", "near"), [(3.0, 0.035), (20.0, 0.02)])
def test_it_does_as_much_and_sleeps_as_often(room: float, near: float) -> None:
    made = fake(room)
    best = fitted(made, made.again, made.extract)
    shown, found = best.again(best), best.traffic[0]
    assert shown.progress[1] == pytest.approx(1, abs=near)
    assert sum(shown.slept.values()) == pytest.approx(6500, rel=2 * near)
    # Both together are known better than either: fewer messages of more work are much the same.
    assert found.room == pytest.approx(8, rel=0.5)
    assert found.scale == pytest.approx(1.25, rel=0.3)
    # What came out of the recording stays with it.
    assert (found.slept, found.messages) == ((500, 6000), 30_000.0)


def test_a_fit_that_spoils_the_tail_is_none() -> None:
    # With less room the queue delays fall off far below what was recorded with 20.
    made = fake(steep=6.0)
    assert fitted(made, made.again, made.extract, tail=1000 * 20.0**6) is made
    # And it is given up soon: three runs that bring nothing.
    assert len(made.runs) == 1 + 3


def test_what_is_near_is_left_alone() -> None:
    near: Any = Fake([replace(fake(8.0).traffic[0], scale=1.25)])
    assert fitted(near, near.again, near.extract) is near
    assert len(near.runs) == 1


def test_without_messages_nothing_is_run() -> None:
    def never(_: Any) -> Any:
        raise AssertionError

    work: Any = Fake([])
    assert fitted(work, never, never) is work


@pytest.mark.skipif(UNCOMPILED, reason="some minutes as plain Python")
def test_a_known_load_comes_out_as_it_was() -> None:
    """Twenty senders and twenty receivers on 8 CPUs. As extracted, they get 7 % more done."""
    work = synth.make("hackbench", groups=4, fds=5)
    true, _, cap = run_once(work, Model(), span_ns=50 * MS, warm_up_ns=300 * MS)
    plain = extract(cap)
    slept = sleeps_across(cap, plain.traffic)
    for one in plain.traffic:
        for side, n in zip(one.sides, one.slept, strict=True):
            assert sum(slept[p] for p in side) == pytest.approx(n, rel=0.01)
    made = prepare(cap)
    again, _, _ = run_once(
        made.work, made.calibration.model(), begin_ns=made.work.begin_ns, span_ns=50 * MS,
        bursts_per_s=bursts_per_s(made.work),
    )  # fmt: skip
    assert again.progress == pytest.approx(1, abs=0.05)
    assert again.idle_share == pytest.approx(true.idle_share, abs=0.02)
    assert again.wakeups_per_s == pytest.approx(true.wakeups_per_s, rel=0.08)
    # And the reader is told that this is a fit.
    assert any("(a fit)" in note for note in made.calibration.notes)
    # How many messages there were: the generator knows.
    assert true.steps_per_s is not None
    found = made.work.counts["sent"] + made.work.counts["inferred"]
    assert found == pytest.approx(true.steps_per_s * 5 * 0.05, rel=0.1)


def test_bursts_by_task_are_those_of_all(samples: Path) -> None:
    work = extract(ta.open(samples / "sch-truth.dat.xz"))
    found = recorded_bursts(work)
    for i, task in enumerate(work.tasks):
        rows = range(task["first"], task["end"])
        sleeps = (Op.BLOCK, Op.NAP, Op.UNTIL, Op.RECV)
        seen = [
            r for r in rows if work.script["code"][r] in sleeps and work.when[r, 0] > -(1 << 62)
        ]
        assert found[i] == len(seen)
    assert bursts_per_s(work) == pytest.approx(found.sum() * 1e9 / work.span_ns)
