"""Synthetic workloads: what they are made of, and that running them does what is written there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceana import synth
from traceana._sim_state import Op, Start
from traceana._synth_draws import Draw, Random, parse_duration
from traceana.closed_loop import run_once
from traceana.errors import UsageError
from traceana.simulate import Model, simulate


def _run(work: Any, ms: int = 5, **model: Any) -> Any:
    return simulate(work, Model(**model), end_ns=ms * 1_000_000).finish()


class TestDraws:
    @pytest.mark.parametrize(
        ("text", "ns"),
        [
            ("0", 0),
            ("500", 500),
            ("500ns", 500),
            ("1.5us", 1500),
            ("2ms", 2_000_000),
            ("3µs", 3000),
        ],
    )
    def test_durations(self, text: str, ns: int) -> None:
        assert parse_duration(text, "x") == ns

    @pytest.mark.parametrize("text", ["", "-1", "1 week", "1e3", "11s", "٣us", "nan", "1.2.3us"])
    def test_no_durations(self, text: str) -> None:
        with pytest.raises(UsageError):
            parse_duration(text, "x")

    @pytest.mark.parametrize("text", ["exp", "exp:", "exp:1,2", "uniform:5,1", "norm:1", "a:1"])
    def test_no_distributions(self, text: str) -> None:
        with pytest.raises(UsageError):
            Draw.parse(text)

    def test_generator_is_splitmix64(self) -> None:
        # The first value of the reference implementation for the state 0x9E3779B97F4A7C15 - step,
        # worked by the recurrence itself, so that no machine may differ.
        random = Random(1)
        state = (0x2545F4914F6CDD1D + 2 * 0x9E3779B97F4A7C15) % 2**64
        z = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) % 2**64
        assert random.bits() == z ^ z >> 31

    def test_exponential_has_its_mean_and_its_quantiles(self) -> None:
        draw, random = Draw.parse("exp:20us"), Random(3)
        values = np.array([draw.one(random) for _ in range(20_000)])
        # 20,000 draws of mean and deviation 20 us: the mean's own deviation is 0.14 us.
        assert abs(values.mean() - 20_000) < 600
        assert draw.mean == pytest.approx(20_000, rel=0.002)
        # Half lie below mean * ln 2 = 13.86 us.
        assert abs(np.median(values) - 13_863) < 500

    @given(st.integers(0, 2**31), st.lists(st.integers(0, 10**6), min_size=2, max_size=9))
    def test_draws_stay_within_their_quantiles(self, seed: int, values: list[int]) -> None:
        values.sort()
        draw = Draw.parse("quantiles:" + ",".join(map(str, values)))
        random = Random(seed)
        assert all(values[0] <= draw.one(random) <= values[-1] for _ in range(20))


class TestShapes:
    def test_threads_are_numbered_as_on_x86(self) -> None:
        rows = synth.make("pingpong", pairs=1, cpus="2x2x2").topology.to_pylist()
        # cores 0 to 3 twice; CPUs 0, 1, 4, 5 are the first socket.
        assert [r["core"] for r in rows] == [0, 1, 2, 3, 0, 1, 2, 3]
        assert [r["llc"] for r in rows] == [0, 0, 2, 2, 0, 0, 2, 2]
        assert [r["node"] for r in rows] == [0, 0, 1, 1, 0, 0, 1, 1]

    @pytest.mark.parametrize("text", ["", "0x1x1", "2x56", "axbxc", "99x999x9", "1x1x0", "-1"])
    def test_refused(self, text: str) -> None:
        with pytest.raises(UsageError):
            synth.parse_shape(text)

    def test_512_cpus_run(self) -> None:
        work = synth.make("pingpong", pairs=2, cpus="4x64x2")
        assert work.topology.num_rows == 512
        assert _run(work, 1).counters["wakeups"] > 100


#: ms; a virtual CPU that does not yield is put off only at the end of its slice (12 ms).
LONG_ENOUGH = {"yieldto": 60}


class TestFamilies:
    @pytest.mark.parametrize("family", synth.FAMILIES)
    def test_every_family_gets_its_work_done(self, family: str) -> None:
        work = synth.make(family)
        run = _run(work, LONG_ENOUGH.get(family, 5))
        assert run.counters["stuck"] == 0
        stepping = np.array(
            [(work.script["code"][t["first"] : t["end"]] == Op.STEP).any() for t in work.tasks]
        )
        assert (run.live["steps"][stepping] > 0).mean() > 0.9
        assert (run.live["used"] > 0).all()

    @pytest.mark.parametrize("family", synth.FAMILIES)
    def test_same_seed_same_events_other_seed_others(self, family: str) -> None:
        ms = LONG_ENOUGH.get(family, 2)
        tables = [_run(synth.make(family, seed=s), ms).events for s in (1, 1, 2)]
        assert tables[0].equals(tables[1])
        assert not tables[0].equals(tables[2])

    def test_a_round_of_a_pair_is_two_wakeups(self) -> None:
        run = _run(synth.make("pingpong", pairs=2), 10)
        rounds = int(run.live["steps"].sum())
        assert rounds > 100
        # Two wakes a round; where a partner does not sleep yet, its wake is a token.
        assert abs(run.counters["tokens_made"] - 2 * rounds) <= 2 * 2

    def test_a_request_of_the_proxy_costs_what_its_script_says(self) -> None:
        work = synth.make(
            "proxy", clients=1, fronts=1, workers=2, fanout=2, work="5us", burst="1us"
        )
        run = _run(work, 20)
        steps = int(run.live["steps"][-1])
        # client 1; front 1 + 2 x 1 + 1; workers 2 x 5: 15 us of CPU a request.
        assert steps > 100
        assert int(run.live["used"].sum()) / steps == pytest.approx(15_000, rel=0.02)

    def test_hackbench_holds_no_more_messages_than_its_depth(self) -> None:
        work = synth.make("hackbench", groups=1, fds=2, depth=3)
        senders = work.tasks[:2]
        assert senders["tokens"].tolist() == [2 * 2, 2 * 2]
        run = _run(work)
        turns = run.live["steps"][:2]
        taken = run.live["bursts"][2:]
        # A sender's turn is done when the turn two before it has been taken by all.
        assert (turns.sum() - 2 * 3) * 2 <= taken.sum()

    def test_yielding_virtual_cpus_stay_where_they_are_pinned(self) -> None:
        work = synth.make("yieldto", cpus="2")
        assert work.allowed.tolist() == [[1, 0], [0, 1]]
        run = _run(work, LONG_ENOUGH["yieldto"])
        events = run.columns
        switched_in = {
            (int(c), int(p)) for c, p in zip(events.cpu, events.other, strict=True) if p >= 1000
        }
        assert switched_in == {(0, 1000), (0, 1001), (1, 1002), (1, 1003)}

    @settings(max_examples=20, deadline=None)
    @given(
        st.sampled_from(sorted(synth.FAMILIES)),
        st.integers(0, 2**31 - 1),
        st.sampled_from(["1", "3", "1x2x2", "2x2x1"]),
    )
    def test_cpu_time_is_neither_made_nor_lost(self, family: str, seed: int, cpus: str) -> None:
        work = synth.make(family, seed=seed, cpus=cpus)
        run = _run(work, 1)
        n = work.topology.num_rows
        assert 0 <= run.idle_ns <= n * 1_000_000
        assert int(run.live["used"].sum()) <= n * 1_000_000 - run.idle_ns

    @pytest.mark.parametrize(
        ("family", "params"),
        [
            ("pingpong", {"pairs": 0}),
            ("pingpong", {"pairs": 10**9}),
            ("pingpong", {"groups": 2}),
            ("proxy", {"fanout": 9, "workers": 2}),
            ("hackbench", {"fds": 5000}),
            ("nosuch", {}),
            ("pingpong", {"burst": "long"}),
        ],
    )
    def test_refused(self, family: str, params: dict[str, Any]) -> None:
        with pytest.raises(UsageError):
            synth.make(family, **params)

    def test_all_tasks_begin_runnable_on_cpus_that_exist(self) -> None:
        work = synth.make("mixed", cpus="1x3x1", seed=9)
        assert (work.tasks["state"] == Start.QUEUED).all()
        assert ((work.tasks["cpu"] >= 0) & (work.tasks["cpu"] < 3)).all()


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    """Six pairs, 20 ms behind a warm-up."""
    work = synth.make("pingpong", pairs=6)
    models = {
        "mainline": Model(),
        "short": Model(rule="sis_short_v5"),
        "no window": Model(window=0),
    }
    return {
        name: run_once(work, model, span_ns=20_000_000, warm_up_ns=300_000_000)
        for name, model in models.items()
    }


class TestTheThreadsMechanism:
    """Six pairs on 4 cores x 2 threads, one LLC: the SIS_SHORT mail in small."""

    def test_the_rule_ends_the_double_bookings_and_the_idle_that_they_cost(
        self, runs: dict[str, Any]
    ) -> None:
        (base, base_run, _), (short, _, _) = runs["mainline"], runs["short"]
        assert base_run.counters["unseen_double"] > 1000
        assert short.idle_share < base.idle_share - 0.05
        assert short.steps_per_s > 1.1 * base.steps_per_s
        assert short.waker_cpu_share > base.waker_cpu_share + 0.3

    def test_without_the_window_nobody_books_twice(self, runs: dict[str, Any]) -> None:
        free, run, _ = runs["no window"]
        assert run.counters["unseen_double"] == 0
        assert free.idle_share < runs["mainline"][0].idle_share - 0.05

    def test_steps_that_the_figures_tell_are_those_of_the_window(
        self, runs: dict[str, Any]
    ) -> None:
        # A round is two wakes; those that found a sleeper are wakeups in the table.
        base, run, cap = runs["mainline"]
        table = cap.counts["sched_waking"] / 0.02
        assert base.steps_per_s == pytest.approx(table / 2, rel=0.1)
        assert cap.span_ns == pytest.approx(20_000_000, rel=0.01)
        assert run.live["steps"].sum() > base.steps_per_s * 0.1
