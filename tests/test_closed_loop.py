"""The closed loop: its statistics, its sentences, what it calls usable, and the verbs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceana as ta
from traceana import _closed_loop_words as words
from traceana import synth, tunables
from traceana._closed_loop_figures import Figures, Several, measure
from traceana._closed_loop_settled import judge, scattered, side_by_side
from traceana._sim_state import Op, Start
from traceana.closed_loop import Estimate, Outcome, Variant, prepare, run_once
from traceana.errors import UsageError
from traceana.simulate import Model

Cli = Callable[..., Any]


def _figures(**given: Any) -> Figures:
    latency = {"p50": 2000, "p90": 4000, "p99": 16_000, "p999": 30_000}
    known: dict[str, Any] = {
        "idle_share": 0.40, "wakeups_per_s": 600_000.0, "edges_per_s": 599_000.0,
        "waker_cpu_share": 0.1, "switches_per_s": 1e6, "migrations_per_s": 3e5,
        "queue_delay_ns": latency, "wakeup_latency_ns": latency, "progress": 1.0,
        "cpu_share": {1: 0.5, 2: 0.25}, "n": 60_000, "span_ns": 100_000_000,
    }  # fmt: skip
    return Figures(**{**known, **given})


def _estimate(
    recorded: dict[str, Any], base: list[dict[str, Any]], rule: list[dict[str, Any]], **more: Any
) -> Estimate:
    first = _figures(**recorded)
    outcome = Outcome(Variant("abel"), "abel", Several([_figures(**g) for g in rule]))
    made: dict[str, Any] = {
        "recorded": first,
        "baseline": Outcome(Variant(None), "mainline", Several([_figures(**g) for g in base])),
        "outcomes": [outcome],
        "state": judge(first, None),
        "explained": 0.99,
        "seeds": len(base),
        "costs": [],
    }
    return Estimate(**{**made, **more})


class TestStatistics:
    def test_mean_and_spread(self) -> None:
        runs = Several([_figures(idle_share=x) for x in (0.1, 0.2, 0.6)])
        assert runs.mean("idle_share") == pytest.approx(0.3)
        # deviations -0.2, -0.1, 0.3: squares 0.04 + 0.01 + 0.09 = 0.14, over n - 1 = 2
        assert runs.spread("idle_share") == pytest.approx(0.07**0.5)
        assert runs.range("idle_share") == (0.1, 0.6)

    def test_one_run_has_no_spread_and_none_no_mean(self) -> None:
        assert Several([_figures()]).spread("idle_share") is None
        assert Several([_figures(waker_cpu_share=None)]).mean("waker_cpu_share") is None

    def test_shares_differ_in_points_and_the_rest_relative(self) -> None:
        e = _estimate({}, [{"idle_share": 0.38, "wakeups_per_s": 630_000.0}], [{}])
        assert e.error("idle_share") == pytest.approx(-0.02)
        assert e.error("wakeups_per_s") == pytest.approx(0.05)
        assert e.error("queue_delay_ns.p99") == 0

    def test_error_of_the_tasks_cpu_time(self) -> None:
        # 0.5 -> 0.4 and 0.25 -> (0.25 + 0.35) / 2 = 0.3; the third is in no run
        e = _estimate(
            {"cpu_share": {1: 0.5, 2: 0.25, 3: 0.01}},
            [{"cpu_share": {1: 0.4, 2: 0.25}}, {"cpu_share": {1: 0.4, 2: 0.35}}],
            [{}, {}],
        )
        told = e.calibration_error()["cpu_share_per_task"]
        assert told["max"] == pytest.approx(0.1)
        assert told["mean"] == pytest.approx((0.1 + 0.05 + 0.01) / 3)

    def test_spread_of_a_difference_is_that_of_both(self) -> None:
        e = _estimate(
            {},
            [{"idle_share": 0.40}, {"idle_share": 0.46}],
            [{"idle_share": 0.20}, {"idle_share": 0.28}],
        )
        delta = e.delta(e.outcomes[0], "idle_share")
        assert delta["mean"] == pytest.approx(0.24 - 0.43)
        # 0.06 / sqrt 2 and 0.08 / sqrt 2: together sqrt(0.0018 + 0.0032)
        assert delta["spread"] == pytest.approx(0.005**0.5)


class TestUsable:
    @pytest.mark.parametrize(
        ("base", "rule", "usable"),
        [
            # (idle, wakeups) under the recorded rule and under the other; recorded .40, 600 k
            ((0.38, 612e3), (0.26, 760e3), True),
            ((0.38, 612e3), (0.37, 615e3), False),  # both within the error of 2 points and 2 %
            ((0.38, 612e3), (0.38, 650e3), True),  # activity alone
            ((0.25, 612e3), (0.05, 612e3), False),  # the model is 15 points off: not believed
            ((0.40, 800e3), (0.10, 612e3), False),  # or a third of the rate
        ],
    )
    def test_a_change_must_exceed_the_error(
        self, base: tuple[float, float], rule: tuple[float, float], usable: bool
    ) -> None:
        a, b = ({"idle_share": i, "wakeups_per_s": w} for i, w in (base, rule))
        e = _estimate({}, [a, a], [b, b])
        assert e.usable(e.outcomes[0]) is usable
        assert e.to_json()["usable"] is usable
        assert ("ot usable" in e.sentence or "not usable" in e.sentence) is not usable

    def test_a_change_within_the_spread_is_none(self) -> None:
        # error 0; idle .40 +- .06, then .30 +- .06: the change of 10 points has a spread of 8
        base = [{"idle_share": 0.40 - d} for d in (-0.06, 0.0, 0.06)]
        rule = [{"idle_share": 0.30 - d} for d in (-0.06, 0.0, 0.06)]
        e = _estimate({}, base, rule)
        assert not e.usable(e.outcomes[0])

    def test_too_few_wakeups_explained(self) -> None:
        e = _estimate({}, [{}], [{"idle_share": 0.1}], explained=0.6)
        assert not e.usable(e.outcomes[0])
        assert "60.0 % of the recorded wakeups are explained" in e.sentence

    def test_on_another_machine_nothing_is_held_against_the_recording(self) -> None:
        e = _estimate({}, [{}], [{"idle_share": 0.1}], altered="2 times the tasks")
        assert not e.usable(e.outcomes[0])
        assert "2 times the tasks" in e.sentence


class TestSentences:
    def test_the_sentence_of_the_estimate(self) -> None:
        base = [{"idle_share": 0.237}, {"idle_share": 0.245}]
        rule = [{"idle_share": 0.057}, {"idle_share": 0.063}]
        e = _estimate({"idle_share": 0.259}, base, rule)
        text = words.one(e, e.outcomes[0])
        # .241 +- .0057; .060 +- .0042; error .241 - .259 = 1.8 points
        assert "abel: simulated idle falls from 24.1 ± 0.6 % to 6.0 ± 0.4 %" in text
        assert "the model's own error on the recording is 1.8 points" in text

    def test_rates_are_activity_and_the_two_latencies_keep_their_names(self) -> None:
        e = _estimate({}, [{}, {}], [{"wakeups_per_s": 720e3}] * 2)
        assert "activity +20.0 % wakeups/s" in e.sentence
        assert "throughput" not in e.sentence
        assert "queue delay" in e.sentence
        said = " ".join(words.notes(e))
        assert "activity, not throughput" in said

    def test_json_can_be_written_and_has_what_is_promised(self) -> None:
        e = _estimate({"waker_cpu_share": None}, [{"waker_cpu_share": None}], [{}])
        d = json.loads(json.dumps(e.to_json(), allow_nan=False))
        for part in (d["baseline"], d["rules"][0]):
            for name in (
                "idle_share",
                "wakeups_per_s",
                "edges_per_s",
                "waker_cpu_share",
                "progress",
            ):
                assert set(part[name]) == {"mean", "spread"}
            for group in ("queue_delay_ns", "wakeup_latency_ns"):
                assert set(part[group]) == {"p50", "p90", "p99", "p999"}
                assert set(part[group]["p99"]) == {"mean", "spread"}
        assert d["rules"][0]["rule"] == "abel"
        assert d["calibration_error"]["waker_cpu_share"] is None
        assert {"recorded", "settled", "usable", "sentence"} <= set(d)


def test_a_rule_is_held_against_what_the_warm_up_alone_does() -> None:
    """fan: 21.9 % from the recorded state, 23.4 behind the warm-up, and so with the rule."""
    e = _estimate({"idle_share": 0.243}, [{"idle_share": 0.219}], [{"idle_share": 0.236}])
    drifted = Several([_figures(idle_share=0.234)])
    e = replace(e, drifted=drifted, outcomes=[replace(e.outcomes[0], warm=True)])
    assert e.delta(e.outcomes[0], "idle_share")["mean"] == pytest.approx(0.002)
    assert e.drift("idle_share") == pytest.approx(0.015)
    assert "rises from 23.4 % to 23.6 %" in e.sentence
    assert not e.usable(e.outcomes[0])
    assert e.behind_warm_up is drifted


def test_a_model_that_runs_away_by_itself_is_not_usable() -> None:
    """hbx: 17 % too many wakeups from the recorded state, and twice as many behind the warm-up."""
    rate = 200_000.0
    e = _estimate({"wakeups_per_s": rate}, [{"wakeups_per_s": rate}], [{"wakeups_per_s": 2 * rate}])
    drifted = Several([_figures(wakeups_per_s=2 * rate)])
    e = replace(e, drifted=drifted, outcomes=[replace(e.outcomes[0], warm=True)])
    assert "activity +0.0 % wakeups/s" in e.sentence
    assert "+100.0 % of the wakeups under the recorded rule alone" in e.sentence
    assert "Not usable: it does not stay near the recorded state" in e.sentence
    assert not e.usable(e.outcomes[0])


class TestSettled:
    @pytest.mark.parametrize(
        ("moves", "n", "settled"),
        [
            (3e5, 60_000, False),
            (4_000.0, 60_000, True),
            (10_000.0, 60_000, False),
            (0.0, 20, False),
        ],
    )
    def test_few_migrations(self, moves: float, n: int, settled: bool) -> None:
        # of 600,000 wakeups a second: 50, 0.67 and 1.67 in 100; 20 wakeups tell nothing
        state = judge(_figures(migrations_per_s=moves, n=n), None)
        assert state.settled is settled
        assert state.metastable is None

    def test_several_states(self) -> None:
        near = Several([_figures(idle_share=x) for x in (0.20, 0.22, 0.21)])
        far = Several([_figures(idle_share=x) for x in (0.0, 0.18, 0.01)])
        slow = Several([_figures(wakeups_per_s=x) for x in (5e5, 6e5)])
        found = [judge(_figures(), runs).metastable for runs in (near, far, slow)]
        assert found == [False, True, True]

    def test_a_settled_recording_says_no_change_and_gives_the_range(self) -> None:
        e = _estimate({"migrations_per_s": 10.0}, [{}], [{}])
        starts = Several(
            [_figures(idle_share=x, wakeups_per_s=w) for x, w in ((0.2, 5e5), (0.3, 6e5))]
        )
        e = replace(e, outcomes=[replace(e.outcomes[0], ensemble=starts)])
        d = e.to_json()
        assert d["settled"] is True
        assert "no change is the estimate" in d["sentence"]
        assert "2 random starts: idle 20.0 to 30.0 % (± " in d["sentence"]
        assert "500 to 600 k wakeups/s (± " in d["sentence"]
        ensemble = d["rules"][0]["ensemble"]
        assert ensemble["idle_share"] == {"mean": 0.25, "low": 0.2, "high": 0.3}
        off = ensemble["model_error"]
        assert off["idle_share"] == pytest.approx(abs(d["calibration_error"]["idle_share"]))
        assert ensemble["reach"]["idle_share"] == pytest.approx(
            [0.2 - off["idle_share"], 0.3 + off["idle_share"]]
        )
        low, high = 1 - off["wakeups_per_s"], 1 + off["wakeups_per_s"]
        assert ensemble["reach"]["wakeups_per_s"] == pytest.approx([5e5 * low, 6e5 * high])
        # What partners did side by side, they would do one after the other on one CPU.
        d = replace(e, unseen=0.3).to_json()
        assert "30.0 % of the CPUs' time partners ran side by side" in d["sentence"]
        recorded = d["recorded"]["idle_share"]
        assert d["rules"][0]["ensemble"]["reach"]["idle_share"][1] == pytest.approx(
            max(recorded + 0.3, 0.3) + off["idle_share"]
        )

    def test_random_starts_keep_to_what_is_allowed(self) -> None:
        work = synth.make("yieldto", cpus="4")
        moved = scattered(work, 5)
        assert moved.tasks["cpu"].tolist() == work.tasks["cpu"].tolist()
        work = synth.make("pingpong", pairs=20, cpus="8")
        work.tasks["state"][:3] = Start.RUNNING
        a, b = scattered(work, 1), scattered(work, 2)
        assert a.tasks["cpu"].tolist() != b.tasks["cpu"].tolist()
        assert (a.tasks["state"] == Start.QUEUED).all()
        assert set(a.tasks["cpu"].tolist()) <= set(range(8))

    def test_starts_differ_in_crowd_and_stacks(self) -> None:
        work = synth.make("pingpong", pairs=12, cpus="2x4x2")
        llc = np.array(work.topology.column("llc").to_pylist())
        crowds, stacks = [], []
        for start in range(8):
            cpu = scattered(work, start + 1, start, 8).tasks["cpu"]
            crowds.append(int(np.bincount(llc[cpu]).max()))
            stacks.append(int((cpu[0::2] == cpu[1::2]).sum()))
            assert (llc[cpu[0::2]] == llc[cpu[1::2]]).all()
        assert crowds == [12, 12, 16, 16, 20, 20, 24, 24]
        assert stacks[1::2] == [12] * 4
        assert max(stacks[0::2]) <= 6

    def test_partners_side_by_side(self) -> None:
        work = synth.make("pingpong", pairs=2, cpus="4")
        a, b, c, d = (int(pid) for pid in work.tasks["pid"])
        shares = {a: 0.9, b: 0.95, c: 0.5, d: 0.55}
        span = work.with_tables(work.tasks, work.script, work.when, span_ns=1_000_000)
        wakes = int((work.script["code"] == Op.WAKE).sum()) // 2
        figures = _figures(cpu_share=shares)
        # The second pair's surplus is what its wakers still ran behind their wakeups.
        ns = 60_000 // wakes
        assert side_by_side(span, figures, ns) == pytest.approx(0.85 / 4)
        assert side_by_side(span, figures, 40_000 // wakes) == pytest.approx(0.9 / 4)
        assert side_by_side(span, _figures(cpu_share={}), ns) == 0


class TestMeasure:
    def test_agrees_with_the_models_own_counts(self) -> None:
        work = synth.make("mixed")
        figures, run, cap = run_once(work, Model(), span_ns=20_000_000)
        assert figures.wakeups_per_s * figures.span_ns / 1e9 == pytest.approx(
            run.counters["wakeups"], rel=0.01
        )
        # The first task of each CPU is known from its first switch on; 20 ms, 8 CPUs.
        assert figures.idle_share == pytest.approx(run.idle_ns / 160e6, abs=0.005)
        used = {
            int(t["pid"]): int(live["sum_exec"])
            for t, live in zip(work.tasks, run.live, strict=True)
        }
        hog = next(pid for pid, name in zip(used, work.names, strict=True) if "hog" in name)
        assert figures.cpu_share[hog] == pytest.approx(used[hog] / 20e6, rel=0.03)
        assert cap.counts["sched_switch"] == pytest.approx(run.counters["switches"], rel=0.01)

    def test_cpus_without_events_are_idle(self) -> None:
        figures, run, _ = run_once(
            synth.make("pingpong", pairs=1, cpus="16"), Model(), span_ns=5_000_000
        )
        assert figures.idle_share == pytest.approx(run.idle_ns / (16 * 5e6), abs=0.01)
        assert figures.idle_share > 0.85

    def test_progress_counts_the_window_only(self) -> None:
        work = synth.make("pingpong", pairs=2)
        short, _, _ = run_once(work, Model(), span_ns=10_000_000, bursts_per_s=1e6)
        late, _, _ = run_once(
            work, Model(), span_ns=10_000_000, warm_up_ns=40_000_000, bursts_per_s=1e6
        )
        assert late.progress == pytest.approx(short.progress, rel=0.1)
        assert late.n == pytest.approx(short.n, rel=0.1)


class TestTunables:
    def test_three_users_of_migration_cost_one_at_a_time(self) -> None:
        asked = tunables.variants(
            [], tunables.parse(["migration_cost_ns=50us"]), ["migration_cost_ns=50us"]
        )
        assert [dict(v.changes) for v in asked] == [
            {"migration_cost_ns": 50_000},
            {"newidle_cost_ns": 50_000},
            {"hot_cost_ns": 50_000},
            {"floor_cost_ns": 50_000},
        ]
        assert "newidle" in asked[1].label and "task_hot" in asked[2].label

    def test_a_rule_with_tunables(self) -> None:
        asked = tunables.variants(["abel"], tunables.parse(["SIS_UTIL=off"]), ["SIS_UTIL=off"])
        assert [(v.rule, dict(v.changes)) for v in asked] == [("abel", {"sis_util": False})]

    @pytest.mark.parametrize(
        "text", ["x=1", "migration_cost_ns", "sis_util=maybe", "hz=fast", "base_slice_ns=1"]
    )
    def test_refused(self, text: str) -> None:
        with pytest.raises(UsageError):
            tunables.parse([text])

    def test_a_wrong_name_is_told_the_nearest(self) -> None:
        with pytest.raises(UsageError, match="migration_cost_ns"):
            tunables.parse(["migration_cost=1"])

    def test_yield_forms_make_a_difference(self) -> None:
        work = synth.make("yieldto", cpus="2")
        steps = {}
        for form in tunables.YIELD_FORMS:
            figures, run, _ = run_once(work, Model(yield_form=form), span_ns=20_000_000)
            steps[form] = (figures.steps_per_s, run.counters["switches"])
        assert all(s[0] > 10_000 for s in steps.values())


class TestVerbs:
    def test_synth_writes_a_store_that_other_verbs_read(self, cli: Cli, tmp_path: Path) -> None:
        target = tmp_path / "x.traceana"
        ran = cli(
            "synth", "pingpong", "--pairs", "3", "--time", "5ms", "--warm-up", "1ms",
            "--format", "json", "-o", str(target),
        )  # fmt: skip
        assert ran.status == 0, ran.err
        told = json.loads(ran.out)
        assert told["tasks"] == 6 and told["steps_per_s"] > 0
        cap = ta.open(target)
        assert measure(cap).idle_share == pytest.approx(told["idle_share"], abs=1e-9)
        assert {"pp-a-0", "pp-b-2"} <= set(cap.timeline().tasks.column("comm").to_pylist())
        again = cli("synth", "pingpong", "-o", str(target))
        assert again.status == 2 and "--force" in again.err

    def test_synth_says_that_a_file_holds_no_events(self, cli: Cli, tmp_path: Path) -> None:
        target = tmp_path / "x.dat"
        asked = ("synth", "pingpong", "--time", "5ms", "--warm-up", "1ms", "-o", str(target))
        ran = cli(*asked)
        assert ran.status == 0 and ran.out == ""
        assert "give -o NAME.traceana" in ran.err and "work done" in target.read_text()
        assert cli(*asked, "-f", "-q").err == ""

    def test_simulate_answers_in_json(self, cli: Cli, samples: Path) -> None:
        ran = cli(
            "simulate", str(samples / "pp6-base.dat"), "--rule", "sis_short_v5", "--seeds", "2",
            "--warm-up", "20ms", "--no-ensemble", "--format", "json",
        )  # fmt: skip
        assert ran.status == 0, ran.err
        d = json.loads(ran.out)
        assert d["schema_version"] >= 2
        assert d["rules"][0]["rule"] == "sis_short_v5"
        assert d["baseline"]["rule"] == "mainline"
        assert 0 <= d["rules"][0]["idle_share"]["mean"] <= 1

    def test_same_bytes_again(self, cli: Cli, samples: Path) -> None:
        words_ = (
            "simulate", str(samples / "pp6-base.dat"), "--rule", "abel", "--seeds", "2",
            "--warm-up", "5ms", "--format", "json",
        )  # fmt: skip
        assert cli(*words_).out == cli(*words_).out

    @pytest.mark.parametrize(
        "more",
        [
            ("--rule", "nosuch"), ("--seeds", "0"), ("--instances", "x"), ("--cpus", "2x2"),
            ("--tunable", "x=1"), ("--cost", "ipi"), ("--cost", "nosuch=1us"), ("--window", "2"),
            ("--smt-slowdown", "0.5"), ("--warm-up", "soon"),
        ],
    )  # fmt: skip
    def test_refused_in_one_line(self, cli: Cli, samples: Path, more: tuple[str, ...]) -> None:
        ran = cli("simulate", str(samples / "pp6-base.dat"), *more)
        assert ran.status == 2
        assert "Traceback" not in ran.err and ran.err.startswith("traceana: ")

    def test_a_saved_workload_answers_like_the_capture(
        self, cli: Cli, samples: Path, tmp_path: Path
    ) -> None:
        folder = tmp_path / "w"
        asked = ("--rule", "abel", "--seeds", "2", "--warm-up", "5ms", "--format", "json")
        first = cli(
            "simulate", str(samples / "pp6-base.dat"), *asked, "--save-workload", str(folder)
        )
        assert first.status == 0, first.err
        again = cli("simulate", str(folder), *asked)
        assert again.status == 0, again.err
        a, b = json.loads(first.out), json.loads(again.out)
        assert a.pop("lost") == {"events": 0, "marks": 0, "per_cpu": {}}
        assert a == b
        refused = cli("simulate", str(folder), "--time", "0,1", "--redact")
        assert refused.status == 2 and "--time, --redact" in refused.err
        there = cli("simulate", str(samples / "pp6-base.dat"), "--save-workload", str(folder))
        assert there.status == 2 and "--force" in there.err

    def test_a_synthetic_workload_has_no_recording_to_hold_it_against(
        self, cli: Cli, tmp_path: Path
    ) -> None:
        folder = tmp_path / "scripts"
        assert cli("synth", "pingpong", "--pairs", "3", "--workload", "-o", str(folder)).status == 0
        ran = cli(
            "simulate", str(folder), "--seeds", "1", "--rule", "race_free", "--warm-up", "5ms"
        )
        assert ran.status == 0, ran.err
        assert "nothing recorded to hold it against" in " ".join(ran.out.split())
        assert "default costs" in ran.out

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("machine.json", lambda text: "{}"),
            ("machine.json", lambda text: text[:-10]),
            ("machine.json", lambda text: text.replace('"hz": 250', '"hz": 0')),
            ("machine.json", lambda text: text.replace('"hz": 250', '"hz": true')),
            ("machine.json", lambda text: text.replace('"release": "6', '"release": "x')),
            ("machine.json", lambda text: text.replace('"look": [', '"look": [-5, ')),
            ("machine.json", lambda text: text.replace('"idle_share": 0', '"idle_share": 1e400')),
            ("machine.json", lambda text: text.replace('"cpu_share": [[', '"cpu_share": [["x", ')),
            ("machine.json", lambda text: "[" * 100_000),
            ("workload.json", lambda text: text.replace('"version": 1', '"version": 99')),
        ],
    )
    def test_a_damaged_workload_is_one_line(
        self, cli: Cli, samples: Path, tmp_path: Path, name: str, change: Callable[[str], str]
    ) -> None:
        folder = tmp_path / "w"
        prepare(ta.open(samples / "pp6-base.dat", time=("0%", "10%"))).save(folder)
        before = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(change(before), encoding="utf-8")
        assert change(before) != before
        ran = cli("simulate", str(folder), "--seeds", "1")
        assert ran.status == 3, (ran.status, ran.err)
        assert ran.err.startswith("traceana: ") and ran.err.count("\n") == 1
        assert "Traceback" not in ran.err

    def test_more_copies_and_another_machine(self, cli: Cli, samples: Path) -> None:
        few = ("--rule", "race_free", "--seeds", "1", "--warm-up", "2ms", "--format", "json")
        path = str(samples / "pp6-base.dat")
        twice = json.loads(cli("simulate", path, *few, "--instances", "2x").out)
        # Twelve pairs on eight CPUs: they are busy all the time.
        assert twice["altered"] == "2 times the tasks"
        assert twice["baseline"]["idle_share"]["mean"] < 0.02
        wide = json.loads(cli("simulate", path, *few, "--cpus", "2x8x2").out)
        assert wide["altered"] == "a machine of 32 CPUs"
        # Twelve tasks on 32 CPUs: at least 20 of them idle.
        assert wide["baseline"]["idle_share"]["mean"] > 20 / 32
        assert wide["usable"] is False

    def test_the_events_of_a_rule_as_a_store(self, cli: Cli, samples: Path, tmp_path: Path) -> None:
        target = tmp_path / "run.traceana"
        ran = cli(
            "simulate", str(samples / "pp6-base.dat"), "--rule", "this_cpu", "--seeds", "1",
            "--warm-up", "2ms", "--format", "json", "-o", str(target),
        )  # fmt: skip
        assert ran.status == 0, ran.err
        told = json.loads(ran.out)["rules"][0]
        cap = ta.open(target)
        figures = measure(cap)
        assert figures.idle_share == pytest.approx(told["idle_share"]["mean"], abs=1e-9)
        assert figures.waker_cpu_share > 0.99
        assert cli("wakeups", str(target), "-n", "3").status == 0
        assert cli("report", str(target), "--format", "json").status == 0

    def test_without_sched_waking_it_says_what_is_missing(self, cli: Cli, samples: Path) -> None:
        ran = cli("simulate", str(samples / "pp6-base.dat"), "--ignore", "sched_waking")
        assert ran.status == 5
        assert "sched_waking" in ran.err


def test_settled_synthetic_pairs_are_recognised() -> None:
    """Four pairs on eight CPUs: each has its own two CPUs, and stays there."""
    work = synth.make("pingpong", pairs=2, cpus="1x4x2")
    figures, _, _ = run_once(work, Model(), span_ns=20_000_000, warm_up_ns=20_000_000)
    assert judge(figures, None).settled
