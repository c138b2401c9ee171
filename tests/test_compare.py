"""Two captures side by side: intervals that hold what they promise, words that do not oversell."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traceana as ta
from traceana._compare_draws import (
    DRAWS,
    Estimate,
    block_length,
    blocks_for,
    difference,
    quantile_estimate,
    ratio_estimate,
    weights,
)
from traceana._compare_fail import judge, parse
from traceana._compare_measure import Measured, Sample, Sums, measure
from traceana._compare_metrics import IDLE_BINS, METRICS, QUANTILES
from traceana._compare_race import look
from traceana._compare_take import EDGES, Taken, cliff, estimated, log_counts, take
from traceana._compare_throughput import marks, read
from traceana._compare_words import VERDICTS, table
from traceana.compare import Comparison, Row, compare, compare_taken
from traceana.errors import UnsupportedError, UsageError
from traceana.summary import idle_rows, latency_rows

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"
BASE, SHORT = SAMPLES / "pp6-base.dat", SAMPLES / "pp6-short.dat.xz"

Cli = Callable[..., Any]
Array = npt.NDArray[Any]


# --- the arithmetic of intervals ---


def ar1(n: int, phi: float, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=n)
    out = np.empty(n)
    out[0] = noise[0] / (1 - phi**2) ** 0.5
    for i in range(1, n):
        out[i] = phi * out[i - 1] + noise[i]
    return out


def test_blocks_are_short_for_noise_and_long_for_what_remembers() -> None:
    noise = [block_length(ar1(256, 0.0, s)) for s in range(40)]
    slow = [block_length(ar1(256, 0.9, s)) for s in range(40)]
    assert np.median(noise) < 3
    # For an AR(1) Politis & White aim at (2 (2 phi / (1 - phi^2))^2 / (4/3))^(1/3) 256^(1/3).
    aim = (1.5 * (2 * 0.9 / (1 - 0.81)) ** 2) ** (1 / 3) * 256 ** (1 / 3)
    assert aim == pytest.approx(32.5, abs=0.1)
    assert aim / 2 < np.median(slow) < aim * 1.5


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_the_variance_of_a_sum_allows_for_memory(phi: float) -> None:
    # Var of the sum of n values of an AR(1) tends to n / (1 - phi)^2.
    true = 256 / (1 - phi) ** 2
    got = np.mean([blocks_for(ar1(256, phi, s)).variance for s in range(200)])
    assert 0.85 * true < got < 1.6 * true


def test_draws_of_a_ratio_are_those_of_resampled_sums() -> None:
    rng = np.random.default_rng(3)
    num, den = rng.poisson(20, 64).astype(float), rng.poisson(50, 64).astype(float)
    e = ratio_estimate(num, den, n=1, seed=9)
    b = blocks_for((num - num.sum() / den.sum() * den) / den.sum())
    w = weights(b.count, 9)
    per = 64 // b.count
    for draw in (0, 1, DRAWS - 1):
        a = c = 0.0
        for block in range(b.count):
            times = 1 + b.stretch * (w[draw, block] - 1)
            a += times * num[block * per : (block + 1) * per].sum()
            c += times * den[block * per : (block + 1) * per].sum()
        assert e.draws is not None
        assert e.draws[draw] == pytest.approx(a / c)


def test_chance_makes_a_few_events_more_or_fewer() -> None:
    """None in one window and four in another of equal length: 4 is 1.6 Poisson errors from 0."""
    seconds = np.full(64, 1 / 64)
    four = np.zeros(64)
    four[[3, 20, 37, 54]] = 1
    a = ratio_estimate(np.zeros(64), seconds, n=0, seed=1, counts=True)
    b = ratio_estimate(four, seconds, n=4, seed=2, counts=True)
    assert (a.variance, b.variance) == pytest.approx((1, 5), rel=0.2)
    interval = difference(a, b)
    assert interval is not None
    assert interval.lo < 0 < interval.hi
    many = ratio_estimate(np.full(64, 10.0), seconds, n=640, seed=2, counts=True)
    assert many.variance == 0  # as regular as a clock


def test_draws_of_a_percentile_are_those_of_drawn_values() -> None:
    rng = np.random.default_rng(4)
    bins = np.sort(rng.integers(0, 64, 900))
    values = np.rint(rng.lognormal(2, 0.4, 900) * 10).astype(np.int64)
    order = np.argsort(values, kind="stable")
    ordered, of = values[order], bins[order]
    e = quantile_estimate(ordered, of, 0.9, 64, 5)
    assert e.value == ordered[int(np.ceil(0.9 * 900)) - 1]
    w = weights(e.blocks, 5)
    plain = []
    for draw in range(300):
        times = w[draw][of // (64 // e.blocks)]
        plain.append(ordered[np.searchsorted(np.cumsum(times), 0.9 * times.sum() - 1e-9)])
    assert e.draws is not None
    # The draws hold candidate values only, a 16th of a standard error or so apart, and may be
    # stretched: the spread has to agree, not each value.
    assert np.std(e.draws) == pytest.approx(np.std(plain), rel=0.35)
    assert np.mean(e.draws) == pytest.approx(np.mean(plain), rel=0.02)


def test_too_few_values_give_no_interval() -> None:
    few = np.arange(40, dtype=np.int64)
    e = quantile_estimate(few, np.arange(40), 0.99, 64, 1)
    assert (e.value, e.draws) == (39.0, None)
    assert difference(e, e) is None


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=40), st.data())
def test_cliffs_delta_is_that_of_all_pairs(a: list[int], data: st.DataObject) -> None:
    b = data.draw(st.lists(st.integers(0, 10**12), min_size=1, max_size=40))

    def place(v: int) -> int:
        return int(np.clip(np.searchsorted(EDGES, v, side="right") - 1, 0, len(EDGES) - 2))

    plain = sum((place(y) > place(x)) - (place(y) < place(x)) for x in a for y in b)
    counts = [
        log_counts(Sample(np.sort(np.array(v, np.int64)), np.zeros(len(v), np.int16)))
        for v in (a, b)
    ]
    assert cliff(*counts) == pytest.approx(plain / (len(a) * len(b)))


# --- what is measured ---


@pytest.fixture(scope="module")
def base() -> Measured:
    return measure(ta.open(BASE))


def test_figures_are_those_of_the_other_verbs(base: Measured) -> None:
    cap = ta.open(BASE)
    tl = cap.timeline()
    taken = estimated(base, {}, 1)
    for row in latency_rows(tl.wakeups, tl.tasks):
        if row["latency"] == "wake_delay":
            continue
        for short in QUANTILES:
            figure = taken.figures["all", f"{row['latency']}_{short}"]
            assert (figure.value, figure.n) == (row[f"{short}_ns"], row["n"])
        assert taken.figures["all", f"{row['latency']}_max"].value == row["max_ns"]
    idle = idle_rows(tl, range(8))
    span = tl.last_ts - tl.first_ts
    share = sum(r["idle_ns"] for r in idle) / (8 * span)
    assert taken.figures["all", "idle_share"].value == pytest.approx(share)
    assert base.sums["all", "switches_per_s"].n == cap.counts["sched_switch"]
    assert base.sums["all", "wakeups_per_s"].n == cap.counts["sched_wakeup"]


def test_stretches_add_up_and_agree_with_plain_loops(base: Measured) -> None:
    """Run-queue time, migrations, switch-ins by the slices and wakeups one after the other."""
    cap = ta.open(BASE)
    tl = cap.timeline()
    begin, end = tl.first_ts, tl.last_ts
    width = (end - begin) / base.bins
    waits, moved = np.zeros(base.bins), {"sibling": 0, "llc": 0}
    ins = np.zeros(base.bins)

    def spend(a: int, b: int) -> None:
        i = min(int((a - begin) / width), base.bins - 1)
        while i < base.bins and begin + i * width < b:
            waits[i] += max(min(b, begin + (i + 1) * width) - max(a, begin + i * width), 0)
            i += 1

    core = {r["cpu"]: r["core"] for r in cap.topology.to_pylist()}
    before: dict[int, Any] = {}
    for s in sorted(tl.slices.to_pylist(), key=lambda s: (s["start"] or 0, s["slice"])):
        old = before.get(s["task"])
        before[s["task"]] = s
        if s["start"] is None:
            continue
        ins[min(int((s["start"] - begin) / width), base.bins - 1)] += 1
        if old is None:
            continue
        if old["cpu"] != s["cpu"]:
            moved["sibling" if core[old["cpu"]] == core[s["cpu"]] else "llc"] += 1
        if old["end"] is not None and old["end_reason"] in (2, 3):
            spend(old["end"], s["start"])
    for w in tl.wakeups.to_pylist():
        if w["run_ts"] is not None and w["wakeup_ts"] is not None and w["run_ts"] > w["wakeup_ts"]:
            spend(w["wakeup_ts"], w["run_ts"])
    np.testing.assert_allclose(base.sums["all", "runqueue_time"].num, waits, atol=1.0)
    for distance, n in moved.items():
        assert base.sums["all", f"migrations_{distance}_per_s"].n == n
    by_group = [base.sums[f"workload:{g}", "switch_ins_per_s"].num.sum() for g in ("pp-a", "pp-b")]
    assert sum(by_group) == pytest.approx(ins.sum(), rel=0.01)


def test_a_long_capture_read_in_parts_gives_the_same(base: Measured) -> None:
    from traceana.spill import Spill

    cap = ta.open(BASE)
    timeline = cap.stream(
        Spill(cap._reader.progress, hold_rows=4000, part_rows=2000, study_rows=3000)
    )
    assert timeline.study is not None
    parts = measure(cap)
    assert parts.sums.keys() == base.sums.keys()
    for key, sums in base.sums.items():
        np.testing.assert_allclose(parts.sums[key].num, sums.num, rtol=1e-9, atol=1e-3)
    for key, sample in base.samples.items():
        np.testing.assert_array_equal(parts.samples[key].ordered, sample.ordered)
    assert parts.longest == base.longest


TWO_TASKS = """\
# tracer: nop
          <idle>-0       [000] d..2.   10.000000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a next_pid=11 next_prio=120
          <idle>-0       [001] d..2.   10.000000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=c next_pid=13 next_prio=120
               a-11      [000] d..3.   10.000100: sched_waking: comm=b pid=12 prio=120 target_cpu=000
               a-11      [000] d..3.   10.000110: sched_wakeup: comm=b pid=12 prio=120 target_cpu=000
               a-11      [000] d..2.   10.000150: sched_switch: prev_comm=a prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=b next_pid=12 next_prio=120
               b-12      [000] d..2.   10.000250: sched_switch: prev_comm=b prev_pid=12 prev_prio=120 prev_state=R ==> next_comm=d next_pid=14 next_prio=120
               c-13      [001] d..2.   10.000400: sched_switch: prev_comm=c prev_pid=13 prev_prio=120 prev_state=S ==> next_comm=b next_pid=12 next_prio=120
               d-14      [000] d..2.   10.000500: sched_switch: prev_comm=d prev_pid=14 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
               b-12      [001] d..2.   10.001000: sched_switch: prev_comm=b prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
"""  # noqa: E501


def test_a_hand_written_trace(tmp_path: Path) -> None:
    """One wakeup waits 40 us, then b is preempted and runs 150 us later on the other CPU."""
    path = tmp_path / "t.txt"
    path.write_text(TWO_TASKS)
    taken = take(ta.open(path))
    f = {metric: e for (scope, metric), e in taken.figures.items() if scope == "all"}
    # Window 10.000000 to 10.001000 s. CPU 0 idle from 0.5 to 1.0 ms, CPU 1 at its end: 0.5 of 2 ms.
    assert f["idle_share"].value == pytest.approx(0.25)
    # Waits: 40 us behind the wakeup, 150 us behind the preemption, of a window of 1 ms.
    assert f["runqueue_time"].value == pytest.approx(0.19)
    # b from CPU 0 to CPU 1, once a millisecond; the topology is not known, so no distances.
    assert f["migrations_per_s"].value == pytest.approx(1000)
    assert "migrations_llc_per_s" not in f
    assert f["switches_per_s"].n == 7
    assert f["wakeups_per_s"].value == pytest.approx(1000)
    assert f["queue_delay_p50"].value == 40_000
    assert f["wakeup_latency_p50"].value == 50_000
    assert f["queue_delay_p50"].draws is None  # one wakeup


def test_bins_of_idle_time_add_up_to_it(base: Measured) -> None:
    figures = take(ta.open(BASE)).figures
    bins = sum(figures["all", name].value or 0 for name in IDLE_BINS)
    assert bins == pytest.approx(figures["all", "idle_share"].value, abs=1e-9)
    for name in IDLE_BINS:
        sums = base.sums.get(("all", name))
        assert sums is None  # they are counted apart, see the next lines
    race = look(ta.open(BASE), base.begin_ts, base.bins)
    in_time = sum(race.sums[name].num.sum() for name in IDLE_BINS)
    idle = base.sums["all", "idle_share"]
    assert in_time == pytest.approx(idle.num.sum(), rel=1e-6)
    # A gap that is open at a cut may be told one stretch later: half the stretches agree to 2 %.
    per_bin = np.sum([race.sums[name].num for name in IDLE_BINS], axis=0)
    assert np.median(np.abs(per_bin - idle.num) / idle.num) < 0.02
    lo, hi = (figures["all", f"attributable_{end}"].value for end in ("lo", "hi"))
    assert lo is not None
    assert hi is not None
    assert 0 < lo < hi == figures["all", "idle_double_booking"].value


def test_the_race_of_a_long_capture_read_in_parts() -> None:
    from traceana.spill import Spill

    whole = take(ta.open(BASE))
    cap = ta.open(BASE)
    cap.stream(Spill(cap._reader.progress, hold_rows=4000, part_rows=2000, study_rows=30_000))
    part = take(cap)
    for name in ("double_booking_share", "idle_double_booking", "idle_on_its_way"):
        a, b = whole.figures["all", name].value, part.figures["all", name].value
        # Of a long capture it is less well known who was moved while it waited.
        assert b == pytest.approx(a, rel=0.05)


# --- what is called a difference ---


@pytest.mark.parametrize(
    "name", ["pp6-base.dat", "pp3-plain.dat.xz", "mix-wrapped.dat", "switch-only.dat.xz",
             "proxy-base.dat.xz", "hostile.dat"],
)  # fmt: skip
def test_a_capture_does_not_differ_from_itself(name: str) -> None:
    path = SAMPLES / name
    result = compare(path, path)
    assert result.rows
    for row in result.rows:
        assert not row.real
        assert row.excludes_zero in (False, None)
        assert row.difference in (0, None)
    text = " ".join(result.sentences)
    assert re.search(r"No difference seen|Nothing can be said", text)
    again = compare([path, path], [path, path])
    assert not any(r.real or r.excludes_zero for r in again.rows)


class Generator:
    """Steady captures: blocks of a long one, drawn with replacement and put one after the other."""

    def __init__(self, path: Path, bins: int = 4096) -> None:
        cap = ta.open(path)
        self.long = measure(cap, bins=bins)
        self.long.sums = {k: v for k, v in self.long.sums.items() if k[0] == "all"}
        race = look(cap, self.long.begin_ts, bins)
        self.long.sums |= {("all", name): sums for name, sums in race.sums.items()}
        self.by_time: dict[tuple[str, str], tuple[Array, Array]] = {}
        for key, sample in self.long.samples.items():
            if key[0] != "all":
                continue
            order = np.argsort(sample.bins, kind="stable")
            cuts = np.searchsorted(sample.bins[order], np.arange(bins + 1))
            self.by_time[key] = sample.ordered[order], cuts

    def draw(self, rng: np.random.Generator, blocks: int, per: int, seed: int) -> Taken:
        """A capture of so many blocks of so many stretches of the long one."""
        k = 256
        starts = rng.integers(0, self.long.bins - per + 1, blocks)
        picked = (starts[:, None] + np.arange(per)).ravel()
        of = np.arange(len(picked)) * k // len(picked)
        window = int(self.long.window_ns / self.long.bins * len(picked))
        out = Measured(0, window, k)
        for key, s in self.long.sums.items():
            num, den = (
                np.bincount(of, x[picked], minlength=k).astype(np.float64) for x in (s.num, s.den)
            )
            out.sums[key] = Sums(num, den, int(num.sum()))
        for key, (values, cuts) in self.by_time.items():
            lengths = cuts[picked + 1] - cuts[picked]
            skipped = np.concatenate([[0], np.cumsum(lengths)[:-1]])
            rows = np.repeat(cuts[picked] - skipped, lengths) + np.arange(lengths.sum())
            bins = np.repeat(of, lengths)
            order = np.argsort(values[rows], kind="stable")
            out.samples[key] = Sample(values[rows][order], bins[order].astype(np.int16))
        return estimated(out, FACTS, seed)


FACTS: dict[str, Any] = {
    "file": "drawn", "form": "", "kernel": None, "machine": None, "clock": None,
    "silent_cpus": 0, "idle_share_lo": None, "idle_share_hi": None,
    "clock_step_ns": 1, "cpus": 8, "cores": 8, "llcs": 1, "nodes": 1, "topology": "",
    "window_ns": 50_000_000, "events": 1, "event_kinds": [], "event_cost_ns": None,
    "lost_events": 0, "loss_marks": 0, "damaged": False, "ignored": [], "workloads": [],
    "throughput_per_s": None, "percentiles_of_every": 1, "span_ns": 50_000_000,
}  # fmt: skip


@pytest.fixture(scope="module")
def pp6_base() -> Generator:
    return Generator(BASE)


def test_intervals_of_steady_pairs_hold(pp6_base: Generator) -> None:
    """Of 200 pairs from one generator at most 9 % of the 95 % intervals leave 0 out.

    Half of them are made of 32 blocks of 1/64 of the capture, half of 16 of twice the length.
    """
    rng = np.random.default_rng(1)
    wrong: dict[str, int] = {}
    called: list[Row] = []
    asked = 0
    for pair in range(200):
        shape = (32, 64) if pair % 2 else (16, 128)
        result = compare_taken(
            [pp6_base.draw(rng, *shape, seed=1)], [pp6_base.draw(rng, *shape, seed=2)]
        )
        for row in result.rows:
            if row.excludes_zero is None:
                continue
            asked += 1
            wrong[row.metric] = wrong.get(row.metric, 0) + row.excludes_zero
        called += [r for r in result.rows if r.real]
    assert asked > 200 * 25
    assert sum(wrong.values()) <= 0.06 * asked, wrong
    assert max(wrong.values()) <= 0.09 * 200, wrong
    # With all figures allowed for, a pair in which anything is called real is rare.
    assert len(called) <= 0.05 * 200, [(r.metric, r.difference) for r in called]


def test_intervals_are_not_so_wide_that_they_hide_a_difference(pp6_base: Generator) -> None:
    """Captures drawn from base against captures drawn from short: all are told apart."""
    short = Generator(SHORT)
    rng = np.random.default_rng(2)
    for _ in range(20):
        result = compare_taken([pp6_base.draw(rng, 32, 64, 1)], [short.draw(rng, 32, 64, 2)])
        for name in ("idle_share", "queue_delay_p99", "wakeups_per_s"):
            row = result.row(name)
            assert row is not None
            assert row.real


def made(value: float, *, seed: int, variance: float = 1.0, name: str = "wakeups_per_s") -> Taken:
    rng = np.random.default_rng(seed)
    draws = value + rng.normal(0, variance**0.5, DRAWS)
    figure = Estimate(value, 1000, draws, variance, 32, spread=variance**0.5 * 4)
    return Taken(FACTS, {("all", name): figure}, {}, True)


def test_repetitions_decide_by_their_spread() -> None:
    """Runs of 100, 110, 120 against 105, 115, 125: within each the mean is known to ± 1, but d = 5
    is well within t(4) * sqrt(100 / 3 * 2) = 2.776 * 8.165 = 22.7."""
    a = [made(v, seed=i) for i, v in enumerate((100, 110, 120))]
    b = [made(v, seed=9 + i) for i, v in enumerate((105, 115, 125))]
    row = compare_taken(a, b).row("wakeups_per_s")
    assert row is not None
    assert (row.a, row.b, row.method, row.verdict) == (110, 115, "repetitions", "none")
    assert row.lo == pytest.approx(5 - 22.67, abs=0.01)
    assert row.hi == pytest.approx(5 + 22.67, abs=0.01)
    assert row.beyond_spread is False
    assert row.effect == pytest.approx(0.5)  # 5 / 10
    one = compare_taken(a[:1], b[:1]).row("wakeups_per_s")
    assert one is not None
    assert (one.verdict, one.beyond_spread, one.method) == ("real", None, "blocks")


def test_equal_repetitions_are_no_surer_than_what_is_in_them() -> None:
    """Three runs of exactly 100 and of 101: the spread between them is 0, within them 9."""
    a = [made(100, seed=i, variance=9) for i in range(3)]
    b = [made(101, seed=9 + i, variance=9) for i in range(3)]
    row = compare_taken(a, b).row("wakeups_per_s")
    assert row is not None
    assert row.hi is not None
    assert row.hi - 1 == pytest.approx(2.776 * (9 / 3 * 2) ** 0.5, abs=0.01)


def test_a_side_without_repetitions_spreads_like_the_other() -> None:
    a = [made(v, seed=i) for i, v in enumerate((100, 110, 120))]
    row = compare_taken(a, [made(115, seed=9)]).row("wakeups_per_s")
    assert row is not None
    # sqrt(100 / 3 + 100), t with (133.3)^2 / (33.3^2 / 2 + 100^2 / 2) = 3.2 degrees of freedom
    assert row.lo is not None
    assert row.hi is not None
    assert row.hi - row.lo == pytest.approx(2 * 3.07 * 11.547, rel=0.01)
    assert "spread like the other" in " ".join(compare_taken(a, [made(115, seed=9)]).sentences)


def test_what_is_sure_but_tiny_is_small() -> None:
    row = compare_taken(
        [made(1000, seed=1, variance=0.01)], [made(1010, seed=2, variance=0.01)]
    ).row("wakeups_per_s")
    assert row is not None
    assert (row.verdict, row.excludes_zero) == ("small", True)  # 1 % of 1000
    assert (
        compare_taken(
            [made(1000, seed=1, variance=0.01)], [made(1010, seed=2, variance=0.01)], least=0.005
        )
        .rows[0]
        .real
    )


def test_many_figures_are_allowed_for() -> None:
    """Of 20 figures one with p = 0.02: its interval leaves 0 out, Holm's 20 * 0.02 does not."""
    names = [*[m for m in METRICS if m.endswith("_per_s")][:4], "idle_share", "cpus_used"]
    figures_a: dict[tuple[str, str], Estimate] = {}
    figures_b: dict[tuple[str, str], Estimate] = {}
    for i, name in enumerate(names):
        d = 3.5 if i == 0 else 0.0
        figures_a |= dict(made(100, seed=i, name=name).figures)
        figures_b |= dict(made(100 + d, seed=50 + i, name=name).figures)
    result = compare_taken([Taken(FACTS, figures_a, {}, True)], [Taken(FACTS, figures_b, {}, True)])
    row = result.row(names[0])
    assert row is not None
    assert row.excludes_zero
    assert row.p is not None
    assert row.p_adjusted is not None
    assert row.p < 0.05 < row.p_adjusted
    assert row.verdict == "none"


# --- the A/B captures ---


def ab(shared: Path, *names: str) -> list[Path]:
    out = []
    for name in names:
        found = [
            p
            for end in (".dat", ".dat.xz")
            if (p := shared / "captures/ab" / (name + end)).exists()
        ]
        if not found:
            pytest.skip(f"no {name} among the captures of ../shared")
        out.append(found[0])
    return out


def test_the_real_differences_are_found(shared: Path) -> None:
    """INDEX: idle 39.5 -> 26.9 %, p99 of the queue delay 16.7 -> 3.6 us, wakeups +23 %."""
    a, b = ab(shared, "smt8/pp6/base-1", "smt8/pp6/short-1")
    result = compare(a, b)
    expected = {
        "idle_share": (0.395, 0.269, 0.0006),
        "queue_delay_p99": (16_700, 3_600, 60),
        "wakeups_per_s": (627e3, 769e3, 600),
    }
    for name, (left, right, slack) in expected.items():
        row = result.row(name)
        assert row is not None
        assert row.real
        assert row.a == pytest.approx(left, abs=slack)
        assert row.b == pytest.approx(right, abs=slack)
        assert row.beyond_spread is None
    assert result.row("wakeups_per_s").ratio == pytest.approx(1.23, abs=0.005)  # type: ignore[union-attr]
    text = " ".join(result.sentences)
    assert "One capture a side" in text
    assert "between these two recordings" in text
    # Of what SIS_SHORT removed, what had been booked to the race is told.
    booked = result.row("idle_double_booking")
    assert booked is not None
    assert booked.real
    assert booked.difference is not None
    assert -0.126 < booked.difference < -0.04
    assert re.search(r"double booking -\d", text)


def test_repetitions_of_both_sides(shared: Path) -> None:
    base = ab(shared, *(f"smt8/pp6/base-{i}" for i in (1, 2, 3)))
    short = ab(shared, *(f"smt8/pp6/short-{i}" for i in (1, 2, 3)))
    result = compare(base, short)
    for name in ("idle_share", "queue_delay_p99", "wakeup_latency_p99", "wakeups_per_s"):
        row = result.row(name)
        assert row is not None
        assert row.real
        assert row.beyond_spread
    # The same where what was recorded varies more than what the rule does: 24 to 37 % of idle.
    base = ab(shared, *(f"smt16/pp12/base-{i}" for i in (1, 2, 3)))
    short = ab(shared, *(f"smt16/pp12/short-{i}" for i in (1, 2, 3)))
    result = compare(base, short)
    assert not any(r.real for r in result.rows if r.scope == "all")


@pytest.mark.parametrize("workload", ["pp4", "pp8", "sch", "proxy"])
def test_nothing_is_sold_that_is_none(shared: Path, workload: str) -> None:
    a, b = ab(shared, f"smt8/{workload}/base-1", f"smt8/{workload}/short-1")
    result = compare(a, b)
    for name in (
        "idle_share", "queue_delay_p50", "queue_delay_p90", "queue_delay_p99", "wakeup_latency_p99",
        "wakeups_per_s", "edges_per_s", "runqueue_time",
    ):  # fmt: skip
        row = result.row(name)
        assert row is not None
        assert not row.real, name
    assert not any(r.beyond_spread for r in result.rows)


def test_activity_is_not_sold_as_a_gain(shared: Path) -> None:
    """fp6: wakeups 631 -> 785 k/s, the workload's own rounds 1328 -> 484 k/s."""
    a, b = ab(shared, "smt8/fp6/base-1", "smt8/fp6/short-1")
    alone = compare(a, b)
    row = alone.row("wakeups_per_s")
    assert row is not None
    assert row.real
    text = " ".join(alone.sentences)
    assert "not throughput" in text
    assert "cannot be said" in text
    rounds = [float(read(str(p.parent / f"{p.name.split('.')[0]}.json"))) for p in (a, b)]
    assert rounds == pytest.approx([1328.0e3, 484.5e3], rel=0.001)
    told = compare(a, b, throughput=(rounds[:1], rounds[1:]))
    assert "B did less" in told.sentences[0]
    assert "although wakeups per second went the other way" in told.sentences[0]
    for word in ("better", "worse", "gain", "improve", "faster", "slower"):
        assert word not in text + " ".join(told.sentences)


@pytest.mark.parametrize("counters", [(100.0, 100.0), (0.0, 0.0), (100.4, 100.3)])
def test_equal_counters_are_no_difference(counters: tuple[float, float]) -> None:
    a, b = counters
    told = compare([BASE], [SHORT], throughput=([a], [b])).sentences[0]
    assert "no difference to speak of" in told
    assert "did more" not in told and "did less" not in told


# --- conditions ---


@pytest.mark.parametrize(
    ("text", "kind", "above", "bound"),
    [
        ("idle_share>+2pt", "change", True, 0.02),
        ("idle_share<-0.5pt", "change", False, -0.005),
        ("idle_share>40%", "value", True, 0.4),
        ("idle_share>+10%", "relative", True, 0.1),
        ("queue_delay_p99>50us", "value", True, 50_000.0),
        ("queue_delay_p99 > +1.5ms", "change", True, 1.5e6),
        ("wakeup_latency_p999<-20%", "relative", False, -0.2),
        ("wakeups_per_s<100k", "value", False, 1e5),
        ("throughput_per_s<-1%", "relative", False, -0.01),
        ("runqueue_time>2.5", "value", True, 2.5),
    ],
)
def test_conditions(text: str, kind: str, above: bool, bound: float) -> None:
    c = parse(text)
    assert (c.scope, c.kind, c.above) == ("all", kind, above)
    assert c.bound == pytest.approx(bound)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("idle_share", "give METRIC>AMOUNT"),
        ("idle_share>=2pt", "give METRIC>AMOUNT"),
        ("idel_share>+2pt", "did you mean idle_share"),
        ("idle_share>2pt", "of a change"),
        ("idle_share>2us", "given in pt or %"),
        ("queue_delay_p99>5", "given in ns, us, ms or s"),
        ("queue_delay_p99>5%", "given in ns, us, ms or s"),
        ("wakeups_per_s>5ms", "given in no unit, k or M"),
    ],
)
def test_wrong_conditions_say_what_is_right(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        parse(text)


def result_of(d: float, variance: float = 1.0) -> Comparison:
    return compare_taken(
        [made(100, seed=1, variance=variance)], [made(100 + d, seed=2, variance=variance)]
    )


def test_a_condition_is_held_against_the_value_and_a_sure_one_against_the_interval() -> None:
    """B - A = 5 with a standard error of sqrt(2): the interval is about 5 ± 2.9."""
    result = result_of(5)
    for text, plain, sure in (
        ("wakeups_per_s>+1", True, True),
        ("wakeups_per_s>+4", True, False),
        ("wakeups_per_s>+6", False, False),
        ("wakeups_per_s<+6", True, False),
        ("wakeups_per_s<+9", True, True),
        ("wakeups_per_s>102", True, True),
        ("wakeups_per_s>104", True, False),
        ("wakeups_per_s>+4%", True, False),
        ("wakeups_per_s>+1%", True, True),
    ):
        assert judge(parse(text), result).holds is plain, text
        assert judge(parse(text, sure=True), result).holds is sure, text
    unknown = judge(parse("queue_delay_p99>5us"), result)
    assert unknown.holds is None
    with pytest.raises(UsageError, match="workload:x"):
        judge(parse("workload:x/wakeups_per_s>5"), result)


# --- the command line ---


class TestCli:
    def test_table_fits_and_tells(self, cli: Cli) -> None:
        ran = cli("compare", BASE, SHORT, "--groups")
        assert ran.status == 0
        assert all(len(line) <= 100 for line in ran.out.splitlines())
        assert re.search(r"^idle share +39\.5 % +26\.9 % +-12\.6 pt .* here$", ran.out, re.M)
        assert "workload pp-a" in ran.out
        assert "not throughput" in ran.out
        assert cli("diff", BASE, SHORT, "--groups").out == ran.out

    def test_json_has_everything(self, cli: Cli) -> None:
        ran = cli("compare", BASE, SHORT, "--format", "json", "--fail-on", "idle_share<-5pt")
        assert ran.status == 1
        d = ran.json
        assert d["schema_version"]
        assert [c["file"] for c in d["a"] + d["b"]] == [BASE.name, SHORT.name]
        rows = {(r["scope"], r["metric"]): r for r in d["metrics"]}
        idle = rows["all", "idle_share"]
        assert idle["lo"] < idle["difference"] < idle["hi"] < 0
        assert idle["verdict"] in VERDICTS
        assert idle["beyond_spread"] is None
        assert d["between_runs_known"] is False
        assert isinstance(rows["all", "queue_delay_p99"]["a"], int)
        assert d["fail_on"][0]["holds"] is True
        for distribution in d["distributions"]:
            edges = distribution["edge_ns"]
            assert len(edges) == len(distribution["a"]) + 1 == len(distribution["b"]) + 1
        assert sum(d["distributions"][0]["a"]) == rows["all", "queue_delay_p50"]["n_a"]

    def test_other_formats(self, cli: Cli) -> None:
        rows = list(csv.DictReader(io.StringIO(cli("compare", BASE, SHORT, "--format", "csv").out)))
        lines = cli("compare", BASE, SHORT, "--format", "ndjson").out.splitlines()
        assert len(rows) == len(lines) > 40
        assert json.loads(lines[0])["metric"] == rows[0]["metric"]
        assert "| all | idle_share |" in cli("compare", BASE, SHORT, "--format", "md").out

    def test_conditions_make_the_status(self, cli: Cli) -> None:
        held = cli("compare", BASE, SHORT, "--fail-on", "wakeups_per_s>+10%")
        assert held.status == 1
        assert "wakeups_per_s>+10% holds" in held.err
        assert cli("compare", BASE, SHORT, "--fail-on", "idle_share>+2pt").status == 0
        both = cli(
            "compare",
            BASE,
            SHORT,
            "--fail-on",
            "idle_share>+2pt",
            "--fail-on-sure",
            "idle_share<-5pt",
        )
        assert both.status == 1
        unknown = cli("compare", BASE, SHORT, "--fail-on", "throughput_per_s<-1%")
        assert unknown.status == 5
        assert "cannot be judged" in unknown.err
        assert cli("compare", BASE, SHORT, "--fail-on", "nonsense>1").status == 2

    def test_sides(self, cli: Cli, tmp_path: Path) -> None:
        for side, source in (("a", BASE), ("b", SHORT)):
            (tmp_path / side).mkdir()
            for i in (1, 2):
                (tmp_path / side / f"run-{i}{''.join(source.suffixes)}").symlink_to(source)
            (tmp_path / side / "run-1.json").write_text("{}")
        args = ("--format", "json")
        folders = cli("compare", tmp_path / "a", tmp_path / "b", *args).json
        assert [len(folders[s]) for s in "ab"] == [2, 2]
        assert folders["metrics"][0]["method"] == "repetitions"
        globbed = cli("compare", tmp_path / "a" / "run-*", "vs", tmp_path / "b" / "*", *args)
        assert globbed.json["metrics"] == folders["metrics"]
        some = cli("compare", "--a", BASE, "--b", SHORT, "--b", PP3, *args).json
        assert [len(some[s]) for s in "ab"] == [1, 2]

    @pytest.mark.parametrize(
        ("words", "why"),
        [
            ((), "no capture on side A"),
            ((BASE,), "without the word vs"),
            ((BASE, SHORT, BASE), "without the word vs"),
            ((BASE, "vs"), "no capture on side B"),
            ((BASE, BASE, "vs", SHORT), "given twice"),
            ((BASE, "vs", SHORT, "vs", BASE), "stands once"),
            (("-", SHORT), "standard input"),
            ((BASE, SHORT, "--throughput", "5"), "1 value for 2 captures"),
            ((BASE, SHORT, "--throughput", "x", "--throughput", "5"), "no such file"),
            ((BASE, SHORT, "--least", "much"), "give a percentage"),
            ((BASE, SHORT, "--format", "pdf"), "there is no 'pdf'"),
            ((BASE, "no-*.dat"), "no file fits"),
        ],
    )
    def test_wrong_use(self, cli: Cli, words: tuple[Any, ...], why: str) -> None:
        ran = cli("compare", *words)
        assert ran.status == 2
        assert why in ran.err
        assert ran.out == ""

    def test_a_file_that_is_no_capture_and_one_without_time(self, cli: Cli, tmp_path: Path) -> None:
        assert cli("compare", BASE, ROOT / "README.md").status == 3

    def test_throughput_decides(self, cli: Cli, tmp_path: Path) -> None:
        run = tmp_path / "run.json"
        run.write_text(
            json.dumps({"window": {"rounds": 500, "mono_begin_ns": 0, "mono_end_ns": 10**9}})
        )
        ran = cli("compare", BASE, SHORT, "--throughput", "1k", "--throughput", run)
        assert ran.status == 0
        assert (
            "By the workload's own counter B did less: 1.00 k → 500 /s, -50 %"
            in ran.out.replace("\n  ", " ")
        )


PP3 = SAMPLES / "pp3-plain.dat.xz"


def test_captures_that_cannot_be_compared_say_so() -> None:
    result = compare(SAMPLES / "switch-only.dat.xz", PP3)
    grave = [p.text for p in result.problems if p.grave]
    assert any("sched_wakeup" in text and "sched_waking" in text for text in grave)
    assert result.to_json()["comparable"] is False
    row = result.row("queue_delay_p99")
    assert row is not None
    assert (row.a, row.verdict) == (None, "cannot_say")
    facts = {p.fact for p in result.problems}
    assert {"window_ns", "event_kinds"} <= facts
    assert not compare(BASE, BASE).problems


def test_cpus_without_events_are_told(tmp_path: Path) -> None:
    """Of 4 CPUs 2 have events, idle for 0.5 of 2 ms: of all it is 0.5 of 4 to 2.5 of 4 ms."""
    path = tmp_path / "t.txt"
    path.write_text(TWO_TASKS)
    cpus = [{"cpu": c, "core": c, "llc": 0, "node": 0, "socket": 0} for c in range(4)]
    (tmp_path / "t.txt.topology.json").write_text(json.dumps({"topology": cpus}))
    (problem,) = (p for p in compare(path, path).problems if p.fact == "silent_cpus")
    assert not problem.grave
    assert "(A: 2; B: 2)" in problem.text
    assert "12.5 to 62.5 % (A) and 12.5 to 62.5 % (B)" in problem.text


def test_silence_on_one_side_leaves_the_idle_share_open() -> None:
    """A is 20 % idle by the CPUs it knows, 15 to 40 % by all; B is 25 % idle for sure."""
    open_, sure = (
        made(v, seed=i, variance=1e-6, name="idle_share") for i, v in enumerate((0.20, 0.25))
    )
    facts = {"silent_cpus": 8, "idle_share_lo": 0.15, "idle_share_hi": 0.40}
    known = {"silent_cpus": 0, "idle_share_lo": 0.25, "idle_share_hi": 0.25}
    a = replace(open_, facts={**FACTS, **facts})
    row = compare_taken([a], [replace(sure, facts={**FACTS, **known})]).row("idle_share")
    assert row is not None
    assert row.verdict == "cannot_say"
    assert (row.lo, row.hi) == pytest.approx((0.25 - 0.40, 0.25 - 0.15))
    # Half of all is more than any of that.
    known = {"silent_cpus": 0, "idle_share_lo": 0.5, "idle_share_hi": 0.5}
    more = made(0.5, seed=2, variance=1e-6, name="idle_share")
    row = compare_taken([a], [replace(more, facts={**FACTS, **known})]).row("idle_share")
    assert row is not None
    assert row.real
    assert row.lo == pytest.approx(0.1)
    row = compare_taken([a], [replace(sure, facts={**FACTS, **facts})]).row("idle_share")
    assert row is not None
    assert row.real  # as many are silent on both sides


@pytest.mark.parametrize(
    ("content", "rate"),
    [
        ("12.5k\n", 12_500.0),
        ('{"rounds": 30, "seconds": 2}', 15.0),
        ('{"throughput_per_s": 7}', 7.0),
        ('{"window": {"rounds_per_second": 9.5}}', 9.5),
    ],
)
def test_files_of_counts(tmp_path: Path, content: str, rate: float) -> None:
    path = tmp_path / "count"
    path.write_text(content)
    assert read(str(path)) == rate


@pytest.mark.parametrize(
    "content",
    [
        "",
        "many",
        "[]",
        '{"rounds": 5}',
        '{"rounds": true, "seconds": 1}',
        '{"rounds": -1, "seconds": 2}',
        '{"rounds": 1e999, "seconds": 1}',
        "[" * 100_000,
        '{"window": {"rounds": 1, "mono_begin_ns": 5, "mono_end_ns": 5}}',
    ],
)
def test_files_without_a_count_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "count"
    path.write_text(content)
    with pytest.raises(UsageError, match="--throughput"):
        read(str(path))


def test_a_counter_in_trace_marker(tmp_path: Path) -> None:
    """a counts 100 -> 350 in 0.9 ms, b begins anew: 0 -> 40, 10 (+10): 300 in 1 ms."""
    written = (
        (0, "a", 11, "ops=100"),
        (100, "b", 12, "ops=0"),
        (500, "b", 12, "ops=40"),
        (900, "a", 11, "C|11|ops|350"),
        (950, "a", 11, "other=9"),
        (1000, "b", 12, "ops: 10"),
    )
    lines = TWO_TASKS.splitlines()[1:]
    lines += [
        f"{comm:>16}-{pid}      [000] .....   10.{us:06d}: tracing_mark_write: {text}"
        for us, comm, pid, text in written
    ]
    lines.sort(key=lambda line: re.search(r"10\.\d+:", line)[0])  # type: ignore[index]
    path = tmp_path / "t.txt"
    path.write_text("# tracer: nop\n" + "\n".join(lines) + "\n")
    cap = ta.open(path)
    ts, grown = marks(cap, "ops")
    assert (len(ts), grown.sum()) == (5, 300)
    taken = take(cap, throughput="marker:ops")
    assert taken.figures["all", "throughput_per_s"].value == pytest.approx(300_000)
    with pytest.raises(UsageError, match="no counter 'nothing'"):
        marks(cap, "nothing")


def test_a_clock_that_only_counts_is_refused(shared: Path) -> None:
    with pytest.raises(UnsupportedError, match="is no time"):
        take(ta.open(shared / "captures/forms/sch-clock-counter.dat"))


# --- the report ---


def test_report(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    ran = cli("compare", BASE, SHORT, "-o", out)
    assert (ran.status, ran.out) == (0, "")
    html = out.read_text()
    for title in ("The captures", "What differs", "Wakeup latency and queue delay", "Method"):
        assert title in html
    assert html.count("<svg") == 6
    assert "traceana compare" in html
    assert str(out) not in html.split("Provenance")[0]
    assert cli("compare", BASE, SHORT, "-o", out).status == 2  # exists
    assert cli("compare", BASE, SHORT, "-o", BASE, "--format", "html").status == 2


def test_names_in_the_report_and_the_table_are_harmless(tmp_path: Path) -> None:
    from traceana.reports.comparison import render

    hostile = SAMPLES / "hostile.dat"
    path = tmp_path / "<img src=x>.dat"
    path.symlink_to(hostile)
    result = compare(path, hostile)
    html = render(result)
    assert "<img" not in html
    assert "\x1b" not in html
    text = table(result.rows)
    assert all(ch.isprintable() or ch == "\n" for ch in text)
    for kind in ("md", "json"):
        assert "\x1b" not in render(result, format=kind)
    with pytest.raises(UsageError):
        render(result, format="pdf")


# --- the page in docs ---


def test_commands_of_the_page_run(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs/compare.md").read_text()
    commands = re.findall(r"^\$ traceana (.*)$", page, re.M)
    assert commands
    import shlex

    for line in commands:
        words = [w.replace("/tmp/", f"{tmp_path}/") for w in shlex.split(line)]
        ran = cli(*words)
        wanted = re.search(rf"^\$ traceana {re.escape(line)}\n((?:(?!\$|```).*\n)*)", page, re.M)
        assert wanted
        expected = wanted[1]
        if expected.strip():
            for told in expected.splitlines():
                assert told == "…" or told in ran.out.splitlines(), told
        assert ran.status in (0, 1), ran.err
    for name in re.findall(r"^\| `([a-z0-9_]+)`", page, re.M):
        assert name in METRICS or name.startswith("idle_"), name
