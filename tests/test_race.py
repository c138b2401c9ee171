"""The race: a verdict by stated thresholds, its figures, and the verb."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_worked_example import TRACE

import traceana as ta
from traceana import _race_verdict as v
from traceana._race_blocks import (
    BLOCKS,
    Range,
    by_time,
    idle_by_time,
    poisson,
    ratio,
    ratio_of_counts,
)
from traceana._race_pairs import who_delays_whom, worst
from traceana.errors import UsageError
from traceana.race import Race, race
from traceana.schema import SCHEMA_VERSION

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> ta.Capture:
    """Section 10.3: CPUs 0, 1, 2 and 7, the rest runs and says nothing."""
    folder = tmp_path_factory.mktemp("race")
    (folder / "a9.txt").write_text(TRACE)
    rows = [
        {"cpu": c, "core": c, "cluster": None, "llc": 0, "node": 0, "socket": 0, "online": True,
         "origin": "side_file"}
        for c in (0, 1, 7)
    ]  # fmt: skip
    (folder / "a9.txt.topology.json").write_text(json.dumps(rows))
    return ta.open(folder / "a9.txt", kernel="6.2")


class TestWorkedExample:
    def test_counts_delay_and_idle_time(self, example: ta.Capture) -> None:
        r = race(example)
        # p2 looked at 110.4, p0's booking shows at 111.0 or later: one, certain. All three wakeups
        # found their CPU idle (p0' its own CPU 0, idle since 114).
        assert (r.counts["decided"], r.counts["looked_idle"]) == (3, 3)
        assert (r.counts["strict_certain"], r.strict, r.counts["late"]) == (1, 1, 0)
        # Victim p0, from max(113.0, 115.0) to 155.0; CPU 0 idles for it all that time.
        assert r.delay.sum_ns == 40_000
        assert r.attributable_ns == (40_000, 40_000)
        assert r.certain.value == pytest.approx(1 / 3)
        # Idle: CPU 0 114..168, CPU 1 110..115.
        assert r.idle_low.value == pytest.approx(40 / 59)
        bins = r.idle_bins()
        assert bins is not None
        assert sum(bins.values()) == r.idle_ns == 59_000
        assert bins["double_booking"] == 40_000

    def test_three_wakeups_prove_nothing(self, example: ta.Capture) -> None:
        r = race(example)
        assert r.verdict == "cannot_say"
        assert r.judgement.missing == ["too few events: 3 decided wakeups, 1,000 are asked for"]

    def test_thresholds_are_what_decides(self, example: ta.Capture) -> None:
        # A single event may as well have stayed away: the lower ends are 0.
        r = race(example, thresholds=v.Thresholds(decisions=1))
        assert (r.certain.low, r.idle_low.low) == (0, 0)
        assert r.verdict == "cannot_say"
        assert any("1.0 % is asked for" in m for m in r.judgement.missing)
        r = race(example, thresholds=v.Thresholds(decisions=1, rate=0, idle_share=0))
        assert r.verdict == "supported"

    def test_who_delays_whom(self, example: ta.Capture) -> None:
        r = race(example)
        [pair] = who_delays_whom(example.timeline(), r.collisions)
        assert (pair.first, pair.victim, pair.n, pair.sum_ns) == ("p", "p", 1, 40_000)
        assert worst(r.collisions, 5) == [0]


def evidence(**given: Any) -> v.Evidence:
    """A clear case, with some of it replaced."""
    clear: dict[str, Any] = {
        "decided": 5000, "looked_idle": 4000, "strict_certain": 400, "late": 0,
        "certain": Range(0.10, 0.09, 0.11), "possible": Range(0.20, 0.19, 0.21),
        "untraced": Range(0.05, 0.04, 0.06), "touched": Range(0.16, 0.15, 0.17),
        "idle_low": Range(0.10, 0.08, 0.12), "idle_high": Range(0.30, 0.28, 0.32),
    }  # fmt: skip
    return v.Evidence(**{**clear, **given})


NEVER = Range(0.0, 0.0, 0.0009)


@pytest.mark.parametrize(
    ("given", "verdict", "said"),
    [
        ({}, "supported", "at least 9.0 %"),
        ({"decided": 999}, "cannot_say", "too few events"),
        ({"unable": ["no sched_waking"]}, "cannot_say", "no sched_waking"),
        ({"unsure": ["no topology"]}, "cannot_say", "no topology"),
        ({"blind": ["lost"]}, "supported", "9.0 %"),
        # What is certain does not reach the threshold, what is possible does.
        ({"certain": Range(0.012, 0.009, 0.015)}, "cannot_say", "0.90 %"),
        ({"untraced": Range(0.012, 0.009, 0.015)}, "cannot_say", "cost of recording"),
        ({"idle_low": Range(0.012, 0.009, 0.015)}, "cannot_say", "idle time"),
        ({"late": 401}, "cannot_say", "another cause"),
        ({"possible": NEVER, "certain": NEVER}, "not_supported", "at most 0.09 %"),
        ({"possible": NEVER, "blind": ["lost"]}, "cannot_say", "lost"),
        ({"idle_high": Range(0.005, 0.004, 0.006)}, "not_supported", "at most 0.60 %"),
        # No CPU looked idle: nothing to race for.
        (
            {"looked_idle": 0, "certain": v.NOTHING, "possible": v.NOTHING, "touched": NEVER},
            "not_supported",
            "0 of 5,000",
        ),
        ({"idle_low": v.NOTHING, "idle_high": v.NOTHING}, "cannot_say", "not known"),
    ],
)
def test_verdicts(given: dict[str, Any], verdict: str, said: str) -> None:
    made = v.judge(evidence(**given), v.Thresholds())
    assert made.verdict == verdict
    assert said in " ".join(made.reasons + made.missing)


@pytest.mark.parametrize("load", [1000, 20_000, 5_000_000])
def test_without_a_window_it_is_not_supported_at_any_load(load: int) -> None:
    none = ratio_of_counts(np.zeros(BLOCKS), np.full(BLOCKS, load / BLOCKS))
    assert none.high == pytest.approx(3.689 / load, rel=0.001)
    made = v.judge(
        v.Evidence(load, load, certain=none, possible=none, untraced=none, touched=none),
        v.Thresholds(),
    )
    assert made.verdict == "not_supported"


def test_thresholds_as_given() -> None:
    assert v.parse_thresholds(["rate=0.5", "decisions=7"]) == v.Thresholds(rate=0.5, decisions=7)
    for wrong in ("rate", "rate=x", "rate=1.5", "rate=nan", "nothing=1", "rate=-1"):
        with pytest.raises(UsageError, match="--threshold"):
            v.parse_thresholds([wrong])


class TestIntervals:
    def test_poisson_by_hand(self) -> None:
        # Garwood: none leaves 0 to -ln(0.025); 10 leaves 4.795 to 18.39 (tables).
        assert poisson(0) == (0.0, pytest.approx(-np.log(0.025)))
        assert poisson(10) == (pytest.approx(4.795, abs=0.001), pytest.approx(18.39, abs=0.01))

    def test_idle_per_block_is_what_adding_up_gives(self) -> None:
        rng = np.random.default_rng(1)
        start = rng.integers(0, 900, 50)
        end = start + rng.integers(0, 300, 50)
        want = np.zeros(BLOCKS)
        for a, b in zip(start, end, strict=True):
            for i in range(BLOCKS):
                lo, hi = 1000 * i / BLOCKS, 1000 * (i + 1) / BLOCKS
                want[i] += max(0.0, min(b, hi) - max(a, lo))
        assert idle_by_time(start, end, 0, 1000) == pytest.approx(want)

    def test_they_hold_the_truth_as_often_as_they_say(self) -> None:
        # 300 captures of 2000 wakeups, each met with probability 0.05, in bursts (a rate that
        # differs from block to block by a quarter).
        rng = np.random.default_rng(7)
        held = 0
        for i in range(300):
            rate = 0.05 * rng.gamma(16, 1 / 16, BLOCKS)
            den = np.full(BLOCKS, 2000 / BLOCKS)
            num = rng.poisson(rate * den).astype(float)
            r = ratio_of_counts(num, den, seed=i)
            assert r.low is not None and r.high is not None
            held += r.low <= 0.05 <= r.high
        # 95 % of 300 = 285, standard deviation 3.8.
        assert held >= 285 - 3 * 3.8

    def test_nothing_to_divide_by(self) -> None:
        assert ratio(np.ones(BLOCKS), np.zeros(BLOCKS), events=3) == v.NOTHING
        assert by_time(np.array([0, 999, 5000]), 0, 1000).sum() == 3


@pytest.fixture(scope="module")
def base(samples: Path) -> Race:
    return race(ta.open(samples / "pp6-base.dat"))


class TestSamples:
    def test_the_base_rule_races(self, base: Race) -> None:
        assert base.verdict == "supported"
        table = base.collisions
        kinds = table.column("class").to_numpy()
        assert base.strict == (kinds <= 1).sum()
        assert base.counts["strict_certain"] == (kinds == 0).sum()
        low, high = base.attributable_ns
        assert low is not None and high is not None
        assert 0 < low < high < base.idle_ns
        assert low == sum(table.column("attributable_lo_ns").drop_null().to_pylist())
        bins = base.idle_bins()
        assert bins is not None
        assert sum(bins.values()) == base.idle_ns
        assert bins["double_booking"] == high
        assert base.nulls is not None
        # The narrower test of the null models finds most of the strict ones, and no more than all.
        found = base.nulls.choice.observed.sum() / base.nulls.asked
        assert 0.5 * base.strict < found * base.nulls.decisions <= 1.05 * base.strict

    def test_sis_short_does_not(self, samples: Path) -> None:
        r = race(ta.open(samples / "pp6-short.dat.xz"))
        assert r.verdict == "not_supported"
        assert r.choice.high is not None and r.choice.high < 0.5

    def test_equal_seeds_give_equal_results(self, samples: Path) -> None:
        path = samples / "pp6-short.dat.xz"
        one, two = (json.dumps(race(ta.open(path)).to_json()) for _ in range(2))
        assert one == two

    def test_switches_alone_cannot_say(self, samples: Path) -> None:
        r = race(ta.open(samples / "switch-only.dat.xz"))
        assert r.verdict == "cannot_say"
        assert "sched_waking was not recorded" in r.judgement.missing[0]
        assert json.loads(json.dumps(r.to_json()))["attributable_idle_ns"]["low"] is None

    def test_losses_forbid_to_say_that_it_is_not_there(self, base: Race) -> None:
        limits = v.Thresholds()
        assert not base.facts.blind(limits)
        many = replace(base.facts, lost=60_000, lost_share=0.06)
        assert "6.0 % of the events were lost" in many.blind(limits)[0]
        assert not many.unsure(limits)
        nobody_knows = replace(base.facts, lost=None, loss_marks=3)
        assert "at 3 places" in nobody_knows.blind(limits)[0]

    def test_clocks_and_topology(self, base: Race) -> None:
        limits = v.Thresholds()
        skewed = replace(base.facts, skew_share=0.03)
        for said in (skewed.blind(limits), skewed.unsure(limits)):
            assert "not synchronised: 3.0 %" in said[0]
        assumed = replace(base.facts, topology="assumed", queued=False)
        assert [text.split()[0] for text in assumed.unsure(limits)] == ["sched_wakeup", "no"]


#: Of captures whose counts are known from the kernel's own trace of its decisions: pp2, pp8 and
#: pp24 have none, a quarter of pp6's decisions are.
VERDICTS = {
    "smt8/pp2/base-1.dat": "not_supported",
    "smt8/pp4/base-1.dat": "not_supported",
    "smt8/pp6/base-1.dat": "supported",
    "smt8/pp8/base-1.dat.xz": "not_supported",
    "smt16/pp12/base-truth.dat.xz": "supported",
    "smt32/pp24/base-truth.dat.xz": "not_supported",
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts_on_shared_captures(shared: Path, name: str) -> None:
    shape = name.split("/")[0]
    folder = shared / "captures" / "ab"
    cap = ta.open(folder / name, topology=folder / shape / "cpus.lscpu-p.csv")
    r = race(cap)
    assert r.verdict == VERDICTS[name], r.judgement
    bins = r.idle_bins()
    assert bins is not None and sum(bins.values()) == r.idle_ns


KEYS = {
    "verdict", "strict", "late", "explained", "attributable_idle_ns", "idle_bins_ns",
    "observed_over_expected", "schema_version", "lost", "decided", "race_rate", "stacked_share",
    "probe_effect", "thresholds", "reasons", "missing", "who_delays_whom",
}  # fmt: skip


class TestVerb:
    def test_json(self, cli: Cli, samples: Path, base: Race) -> None:
        ran = cli("race", samples / "pp6-base.dat", "--format", "json")
        assert ran.status == 0, ran.err
        d = ran.json
        assert set(d) >= KEYS
        assert d["schema_version"] == SCHEMA_VERSION
        assert d["verdict"] == "supported"
        assert d["strict"] == {"certain": base.counts["strict_certain"], "possible": base.strict}
        assert set(d["observed_over_expected"]) == {"value", "low", "high"}
        assert d["attributable_idle_ns"] == dict(
            zip(("low", "high"), base.attributable_ns, strict=True)
        )
        assert sum(d["idle_bins_ns"].values()) == d["idle_ns"]
        assert sum(p["n"] for p in d["who_delays_whom"]) == base.delay.n

    def test_table_begins_with_the_verdict_and_fits(self, cli: Cli, samples: Path) -> None:
        ran = cli("race", samples / "pp6-base.dat")
        assert ran.out.startswith("The ttwu race: supported. ")
        assert max(map(len, ran.out.splitlines())) <= 100
        assert "**" not in ran.out
        assert "for the machine that was traced" in re.sub(r"\s+", " ", ran.out)

    @pytest.mark.parametrize("form", ["csv", "ndjson", "md", "json"])
    def test_collisions(self, cli: Cli, samples: Path, base: Race, form: str) -> None:
        ran = cli("race", samples / "pp6-base.dat", "--collisions", "--format", form)
        assert ran.status == 0, ran.err
        n = base.collisions.num_rows
        if form == "json":
            assert len(ran.json["collisions"]) == n
        else:
            assert ran.out.count("\n") == n + {"csv": 1, "ndjson": 0, "md": 2}[form]

    def test_other_forms_of_the_verdict(self, cli: Cli, samples: Path) -> None:
        path = samples / "pp6-short.dat.xz"
        assert "\nverdict,not_supported\n" in cli("race", path, "--format", "csv").out
        assert "**The ttwu race: not supported.**" in cli("race", path, "--format", "md").out
        assert json.loads(cli("race", path, "--format", "ndjson").out)["verdict"] == "not_supported"

    def test_without_waking_it_refuses(self, cli: Cli, samples: Path) -> None:
        ran = cli("race", samples / "switch-only.dat.xz")
        assert ran.status == 5
        assert ran.out == ""
        assert "sched_waking" in ran.err

    def test_hostile_names_are_harmless(self, cli: Cli, samples: Path) -> None:
        for more in ((), ("--collisions",), ("--format", "md")):
            ran = cli("race", samples / "hostile.dat", *more)
            assert ran.status in (0, 4), ran.err
            assert "\x1b" not in ran.out and "\u202e" not in ran.out

    @pytest.mark.parametrize(
        "wrong",
        [
            ("--threshold", "rate=2"),
            ("--label", "{n}"),
            ("--seed", "-1"),
            ("--format", "xml"),
            ("--sort", "ts"),
            ("-n", "3"),
        ],
    )
    def test_wrong_values(self, cli: Cli, samples: Path, wrong: tuple[str, str]) -> None:
        ran = cli("race", samples / "pp3-plain.dat.xz", *wrong)
        assert ran.status == 2
        assert ran.err.count("\n") == 1 and wrong[0] in ran.err


def test_commands_of_the_page_run(cli: Cli, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    page = (root / "docs" / "race.md").read_text()
    commands = re.findall(r"^\$ traceana (.+)$", page, re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        ran = cli(*shlex.split(command))
        assert ran.status == 0, (command, ran.err)
        assert ran.out
    table = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", page, re.MULTILINE))
    assert {k: float(x) for k, x in table.items()} == vars(v.Thresholds())
