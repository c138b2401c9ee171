"""The race in the model: the worked example of section 10.3, the window, yield_to."""

from __future__ import annotations

import numpy as np
import pytest
from sim_cases import Case, flat, round_costs
from test_simulate import pairs

from traceana._sim_state import COSTS, Op, Start
from traceana.schema import EventKind
from traceana.simulate import Layout, Model, Simulation, constant_costs, extra_delays, simulate

MS = 1_000_000
P0_, P0, P2_, P2 = range(4)

#: The times of section 10.3 (µs after 110): migrate +1.0, seen +1.5, wakeup +3.0, switch +5.0.
EXAMPLE = {
    **dict.fromkeys(COSTS, 0),
    "look": 500,
    "book": 500,
    "show_remote": 500,
    "show_direct": 500,
    "ipi": 200,
    "idle_exit": 1_000,
    "false_idle": 400,
    "enqueue": 300,
    "switch_in": 1_700,
    "switch_out": 1_500,
    "wake_remote": 1_500,
    "wake_direct": 1_500,
}


def _example(rule: str, *, window: int = 1) -> Simulation:
    """CPU0 runs p0', CPU7 runs p2', 1 and 2 are idle, 3 to 6 run long tasks."""
    case = Case(flat(8))
    case.add(
        [
            *((Op.RUN, 110_000), (Op.WAKE, P0), (Op.RUN, 1_000), (Op.BLOCK,)),
            *((Op.RUN, 9_000), (Op.EXIT,)),
        ],
        cpu=0, state=Start.RUNNING, dur_avg=4_000,
    )  # fmt: skip
    case.add(
        [(Op.BLOCK,), (Op.RUN, 10_000), (Op.WAKE, P0_), (Op.EXIT,)],
        cpu=0, state=Start.ASLEEP, dur_avg=10_000,
    )  # fmt: skip
    case.add(
        [(Op.RUN, 110_400), (Op.WAKE, P2), (Op.RUN, MS), (Op.EXIT,)],
        cpu=7, state=Start.RUNNING, dur_avg=900_000,
    )  # fmt: skip
    # It comes second and runs first: its vruntime is the smaller.
    case.add(
        [(Op.BLOCK,), (Op.RUN, 38_500), (Op.EXIT,)],
        cpu=7, state=Start.ASLEEP, dur_avg=40_000, vruntime=-1_000_000,
    )  # fmt: skip
    for cpu in range(3, 7):
        case.add([(Op.RUN, 9 * MS)], cpu=cpu, state=Start.RUNNING, cpus=[cpu])
    model = Model(
        release="6.2.0",
        rule=rule,
        costs=constant_costs(EXAMPLE),
        nr_idle_scan=[3],
        window=window,
        tick_phase_ns=[3 * MS] * 8,
    )
    run = simulate(case.build(), model, end_ns=300_000)
    run.finish()
    return run


def _placed(run: Simulation) -> dict[int, int]:
    """First sched_wakeup of p0 and p2: task -> CPU."""
    events = run.columns
    rows = np.flatnonzero(events.kind == EventKind.WAKEUP)
    first: dict[int, int] = {}
    for row in rows:
        first.setdefault(int(events.subject[row]) - 101, int(events.cpu_to[row]))
    return first


class TestWorkedExample:
    def test_mainline_books_cpu_1_twice(self) -> None:
        run = _example("mainline")
        placed = _placed(run)
        assert (placed[P0], placed[P2]) == (1, 1)
        assert run.counters["unseen_double"] == 1 and run.counters["false_double"] == 0
        truth = run.truth
        assert truth["wakee"].tolist() == [P0, P2]
        assert truth["kind"].tolist() == [-1, 0]
        assert truth["episode"].tolist() == [0, 0]
        assert truth["waking_ts"].tolist() == [110_000, 110_400]
        # p2 looks 0.5 after its waking, at 110.9; p0's booking is seen at 111.5.
        assert truth["look_ts"][1] == 110_900 and truth["visible_ts"][0] == 111_500
        # p2 runs at 115 for 40 µs (38.5 and its switch); p0 is the victim.
        assert truth["run_ts"].tolist() == [155_000, 115_000]
        assert extra_delays(truth).tolist() == [40_000, 0]

    def test_sis_short_v5_stays(self) -> None:
        placed = _placed(_example("sis_short_v5"))
        assert (placed[P0], placed[P2]) == (0, 1)

    @pytest.mark.parametrize(("rule", "window"), [("race_free", 1), ("mainline", 0)])
    def test_without_the_race_they_spread(self, rule: str, window: int) -> None:
        run = _example(rule, window=window)
        placed = _placed(run)
        assert (placed[P0], placed[P2]) == (1, 2)
        assert run.counters["unseen_double"] == 0


# Up to 6.1 the pending flag goes down before the task is queued; up to 5.19 there is no wakelist
# inside an LLC.
@pytest.mark.parametrize(
    ("release", "false_idle"),
    [("5.10.223", False), ("6.1.192", True), ("6.2.0", False), ("6.12.40", False)],
)
def test_window_0_has_no_double_booking(release: str, false_idle: bool) -> None:
    work = pairs(6, Layout.shape(1, 4, 2))
    for window in (1, 0):
        model = Model(release=release, costs=constant_costs(spread=4), window=window)
        run = simulate(work, model, end_ns=30 * MS)
        run.finish()
        counters = run.counters
        doubles = counters["unseen_double"] + counters["false_double"]
        assert run.truth_lost == 0
        assert (run.truth["kind"] == 0).sum() == counters["unseen_double"]
        if window == 0:
            assert doubles == 0 and len(run.truth) == 0
        else:
            assert counters["unseen_double"] > 5
            assert (counters["false_double"] > 20) == false_idle


def test_ping_pong_idles_while_tasks_wait() -> None:
    """Six pairs on four cores (the shape of the recorded pp6): the window costs idle time."""
    work = pairs(6, Layout.shape(1, 4, 2))
    idle, wakeups = [], []
    for window in (1, 0):
        model = Model(costs=constant_costs(spread=4), window=window, avg_idle_ns=8_000)
        run = simulate(work, model, end_ns=200 * MS)
        run.finish()
        idle.append(run.idle_ns / (8 * 200 * MS))
        wakeups.append(run.counters["wakeups"])
    assert idle[0] > idle[1] + 0.05
    assert wakeups[1] > 1.05 * wakeups[0]


S, W, X = 101, 102, 103


def _yields(form: str, third: bool) -> tuple[list[tuple[int, int]], dict[str, int]]:
    """S spins and yields to W every 0.2 ms; nothing costs anything. Switches, and ns run by each.

    One CPU under CFS: min granularity 0.75 ms, latency 6 ms, wakeup granularity 1 ms; ticks come at
    3.999 and 7.999 ms, and it ends at 7.9.
    """
    case = Case(flat(1))
    case.add([(Op.RUN, 200_000), (Op.YIELD_TO, 1)], cpu=0, state=Start.RUNNING, loops=True)
    case.add([(Op.RUN, 90 * MS)], cpu=0, vruntime=1_800_000 if third else 0)
    if third:
        case.add([(Op.RUN, 90 * MS)], cpu=0, vruntime=900_000)
    model = Model(
        costs=round_costs(dict.fromkeys(COSTS, 0)), yield_form=form, tick_phase_ns=[3_999_000]
    )
    run = simulate(case.build(), model, end_ns=7_900_000)
    events = run.columns
    rows = events.kind == EventKind.SWITCH
    ran = dict.fromkeys((S, W, X), 0)
    since, on = 0, S
    switches = list(zip(events.ts[rows].tolist(), events.other[rows].tolist(), strict=True))
    for ts, new in [*switches, (7_900_000, 0)]:
        ran[on] += ts - since
        since, on = ts, new
    return switches, {"S": ran[S], "W": ran[W], "X": ran[X]}


# Two tasks, in ms of vruntime. All forms: S yields at 0.2, W (0.0) is leftmost and runs to the tick
# at 3.999, where it has had more than its slice of 6 / 2 = 3 and stands at 3.799.
# plain: S (0.2) is picked, its skip mark notwithstanding: W is 3.6 ahead of it, more than 1. Each
#   0.2 S yields in vain, W as buddy being as far ahead, until it stands at 2.8, W 0.999 ahead. That
#   is 2.6 after the tick.
# slice: S has been moved by its slice to 3.2. At the tick it is leftmost, but skipped: W is only
#   0.599 ahead. W keeps the CPU.
# min_granularity: S was moved to 0.95; at the tick W is 2.849 ahead: S. After 0.2 it goes to
#   0.95 + 0.2 + 0.75 = 1.9 (1.899 ahead), then to 2.85 (0.949): W runs, 0.4 after the tick.
# second: the second choice is W itself, refused as such: as plain.
TWO = {
    "plain": ([(200_000, W), (3_999_000, S), (6_599_000, W)], 5_100_000),
    "slice": ([(200_000, W)], 7_700_000),
    "min_granularity": ([(200_000, W), (3_999_000, S), (4_399_000, W)], 7_300_000),
    "second": ([(200_000, W), (3_999_000, S), (6_599_000, W)], 5_100_000),
}
# Three tasks: X begins at 0.9, W at 1.8.
# plain: S yields at 0.2 and is leftmost and skipped; X is the second, 0.7 ahead: X. (W, the buddy,
#   is 1.6 ahead of the leftmost.) At the tick X has had more than 6 / 3 = 2; S (0.2) is leftmost, W
#   1.6 ahead as second and as buddy: S. It yields at 0.4 and 0.6 in vain, at 0.8 W is 1.0 ahead.
# second: W is compared to X: 0.9 ahead, so it runs at once. At the tick S is skipped for X.
# slice: S is moved by 2, to 2.2: X is leftmost, W as buddy 0.9 ahead: W. At the tick X.
# min_granularity: S at 0.95: X is leftmost, W as buddy 0.9 ahead: W. At the tick X (0.9) again.
THREE = {
    "plain": ([(200_000, X), (3_999_000, S), (4_599_000, W)], 3_301_000),
    "slice": ([(200_000, W), (3_999_000, X)], 3_799_000),
    "min_granularity": ([(200_000, W), (3_999_000, X)], 3_799_000),
    "second": ([(200_000, W), (3_999_000, X)], 3_799_000),
}


@pytest.mark.parametrize("form", list(TWO))
@pytest.mark.parametrize("third", [False, True], ids=["two", "three"])
def test_yield_forms(form: str, third: bool) -> None:
    """Worked by hand: who runs when, and how much the target of the yields gets done."""
    switches, progress = (THREE if third else TWO)[form]
    seen, ran = _yields(form, third)
    assert seen == switches
    assert ran["W"] == progress
    assert sum(ran.values()) == 7_900_000


@pytest.mark.parametrize("release", ["6.6.0", "6.12.40"])
def test_yield_under_eevdf(release: str) -> None:
    """6.6: the deadline moves on by a slice; 6.12: the vruntime goes to the deadline, if eligible.

    One CPU, slice 0.75 (0.70 in 6.12). S is 0.5 behind W: at 0.2 it stands at -0.3, V = -0.15: it
    is eligible. 6.6: its deadline 0.25 becomes 1.0, W's is 0.75, but W (0) is not eligible, nor is
    it at 0.4 (S -0.1, V -0.05); at 0.6 S stands at 0.1, V 0.05: S is not eligible, W is. 6.12: S
    goes to 0.2, V = 0.1: W runs at once.
    """
    case = Case(flat(1))
    case.add([(Op.RUN, 200_000), (Op.YIELD_TO, 1)], cpu=0, state=Start.RUNNING, loops=True,
             vruntime=-500_000)  # fmt: skip
    case.add([(Op.RUN, 90 * MS)], cpu=0)
    model = Model(
        release=release, costs=round_costs(dict.fromkeys(COSTS, 0)), tick_phase_ns=[3_999_000],
        delay_dequeue=False,
    )  # fmt: skip
    events = simulate(case.build(), model, end_ns=MS).columns
    rows = events.kind == EventKind.SWITCH
    first = (events.ts[rows][0], events.other[rows][0])
    assert first == ((600_000 if release == "6.6.0" else 200_000), W)


def test_yield_to_reaches_another_cpu() -> None:
    """The target is next on its own CPU, where it was not the leftmost."""
    case = Case(flat(2))
    case.add([(Op.RUN, 1_000), (Op.YIELD_TO, 3), (Op.RUN, MS), (Op.EXIT,)], cpu=0, cpus=[0])
    case.add([(Op.RUN, 9 * MS), (Op.EXIT,)], cpu=1, state=Start.RUNNING, cpus=[1])
    case.add([(Op.RUN, 9 * MS), (Op.EXIT,)], cpu=1, cpus=[1], vruntime=0)
    case.add([(Op.RUN, 9 * MS), (Op.EXIT,)], cpu=1, cpus=[1], vruntime=1_000)
    run = simulate(case.build(), Model(costs=round_costs()), end_ns=MS)
    switches = [
        r for r in run.events.to_pylist() if r["kind"] == EventKind.SWITCH and r["cpu"] == 1
    ]
    assert [r["other"] for r in switches[:1]] == [104]
    assert switches[0]["ts"] < 10_000
