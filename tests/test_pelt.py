"""Load tracking: the kernel's integers, and what events make of them."""

from __future__ import annotations

import json
import random
from decimal import Decimal, getcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traceana import _pelt_kernels as k
from traceana._jit import njit
from traceana.pelt import WEIGHTS, make_cfs, make_tasks, scan_budget, weight_of
from traceana.rules._state import LLC
from traceana.rules.interface import UNCOMPILED

# Steps are compiled for calls from compiled code only.


@njit
def call_decay(value: int, periods: int) -> int:
    return k.decay_load(value, periods)


@njit
def run_task(tasks: Any, times: Any, on_rq: Any, running: Any, out: Any) -> None:
    e = tasks[0]
    for i in range(len(times)):
        e.on_rq = on_rq[i]
        e.running = running[i]
        k.update_task(e, times[i])
        out[i, 0] = e.util_sum
        out[i, 1] = e.load_sum
        out[i, 2] = e.contrib
        out[i, 3] = e.util_avg
        out[i, 4] = e.load_avg
        out[i, 5] = e.last_update


NEW, ENQUEUE, SWITCH, MOVE, TICK, DEQUEUE, SEED = range(7)


@njit
def run_events(tasks: Any, cfs: Any, events: Any) -> None:
    """Rows (what, now, cpu, a, b, c)."""
    for i in range(events.shape[0]):
        what, now, cpu, a, b, c = events[i]
        if what == NEW:
            k.pelt_new(tasks, a, cfs, cpu, now)
        elif what == ENQUEUE:
            k.pelt_enqueue(tasks, a, cfs, cpu, now)
        elif what == SWITCH:
            k.pelt_switch(tasks, a, b, c != 0, cfs, cpu, now)
        elif what == MOVE:
            k.pelt_move(tasks, a, cfs, cpu, now)
        elif what == TICK:
            k.pelt_tick(tasks, a, cfs, cpu, now)
        elif what == DEQUEUE:
            k.pelt_dequeue(tasks, a, cfs, now)
        elif what == SEED:
            k.pelt_seed(tasks, a, cfs, cpu, now, b, c)


@njit
def call_util(cfs: Any, cpu: int) -> int:
    return k.cpu_util(cfs[cpu])


@njit
def call_h_load(tasks: Any, cfs: Any, t: int, cpu: int) -> int:
    return k.task_h_load(tasks[t], cfs[cpu])


@njit
def call_scan(sum_util: int, weight: int, pct: int) -> int:
    return k.nr_idle_scan(sum_util, weight, pct)


@njit
def call_period(weight: int, groups: int, busy: bool, tick: int, online: int) -> int:
    return k.refresh_period_ns(weight, groups, busy, tick, online)


@njit
def call_refresh(llcs: Any, cfs: Any, members: Any, now: int, stale: int) -> None:
    k.refresh_llc(llcs[0], cfs, members, 117, now, stale)


def events(*rows: tuple[int, ...]) -> Any:
    return np.array([(*row, *[0] * (6 - len(row))) for row in rows], dtype=np.int64)


# --- the arithmetic ---------------------------------------------------------------------


class Entity:
    """One entity in unbounded integers, from section 4.1; shares nothing with the kernels."""

    def __init__(self) -> None:
        getcontext().prec = 60
        y = Decimal(2) ** (Decimal(-1) / Decimal(32))
        self.inverse = [int((2**32 - 1) * y**n) for n in range(32)]
        self.last = self.contrib = self.util_sum = self.load_sum = self.util = self.load = 0

    def decay(self, value: int, n: int) -> int:
        return 0 if n > 2016 else ((value >> (n // 32)) * self.inverse[n % 32]) >> 32

    def update(self, now: int, on_rq: int, running: int, weight: int) -> None:
        delta = (now - self.last) >> 10
        if delta <= 0:
            return
        self.last += delta << 10
        added, delta = delta, delta + self.contrib
        n = delta // 1024
        if n:
            self.load_sum = self.decay(self.load_sum, n)
            self.util_sum = self.decay(self.util_sum, n)
            delta %= 1024
            added = self.decay(1024 - self.contrib, n) + 47742 - self.decay(47742, n) - 1024 + delta
        self.contrib = delta
        if on_rq:
            self.load_sum += added
        if on_rq and running:
            self.util_sum += added << 10
        if n:
            self.util = self.util_sum // (47742 - 1024 + delta)
            self.load = weight * self.load_sum // (47742 - 1024 + delta)


def trajectory(times: Any, on_rq: Any, running: Any, weight: int = 1024) -> Any:
    tasks = make_tasks(1)
    tasks["weight"] = weight
    n = len(times)
    out = np.zeros((n, 6), np.int64)
    run_task(
        tasks,
        np.asarray(times, np.int64),
        np.broadcast_to(np.asarray(on_rq, np.int64), n).copy(),
        np.broadcast_to(np.asarray(running, np.int64), n).copy(),
        out,
    )
    return out


MS = 1_000_000


@pytest.fixture(scope="module")
def a4(shared: Path) -> Any:
    return json.loads((shared / "vectors" / "a4_pelt.json").read_text())


class TestVectors:
    def test_decay_load(self, a4: Any) -> None:
        assert len(a4["decay_load"]) == 39
        for value, periods, expected in a4["decay_load"]:
            assert call_decay(value, periods) == expected

    def test_ramp(self, a4: Any) -> None:
        util = trajectory(np.arange(0, 513) * MS, 1, 1)[:, 3]
        for ms, expected in a4["ramp_always_running_updates_each_1ms"]:
            assert util[ms] == expected, ms

    def test_decay_in_one_step(self, a4: Any) -> None:
        ramp = np.arange(0, 2001) * MS
        assert trajectory(ramp, 1, 1)[-1, 3] == a4["saturated_util"]
        for ms, expected in a4["decay_from_saturation_one_update"]:
            times = [*ramp, ramp[-1] + ms * MS]
            on = [1] * len(ramp) + [0]
            assert trajectory(times, on, on)[-1, 3] == expected, ms

    def test_square_waves(self, a4: Any) -> None:
        for wave in a4["square_wave_after_1.5s"]:
            period, on = wave["period_us"] * 1000, wave["on_us"] * 1000
            if UNCOMPILED and period < MS:
                continue  # 10^5 updates: a minute as plain Python
            cycles = 1_800_000_000 // period
            ends = np.arange(cycles)[:, None] * period + np.array([on, period])
            busy = np.tile([1, 0], cycles)
            out = trajectory(ends.ravel(), busy, busy)
            late = ends.ravel() > 1_500_000_000
            got = out[late, 3].min(), out[late, 3].max()
            assert got == (wave["util_min"], wave["util_max"]), wave


def test_reference_values() -> None:
    """Section 4.3: 32 ms of running come to about half."""
    util = trajectory(np.arange(0, 346) * MS, 1, 1)[:, 3]
    assert [int(util[ms]) for ms in (1, 2, 32, 345)] == [0, 41, 495, 1023]


@pytest.mark.parametrize("seed", range(20))
def test_equals_unbounded_integers(seed: int) -> None:
    rng = random.Random(seed)
    weight = rng.choice(WEIGHTS)
    times, on_rq, running, now = [], [], [], rng.randint(0, 10**9)
    for _ in range(400):
        now += rng.choice((rng.randint(0, 3000), rng.randint(0, 4_000_000), rng.randint(0, 10**8)))
        on = rng.randint(0, 1)
        times.append(now)
        on_rq.append(on)
        running.append(on & rng.randint(0, 1))
    if seed == 0:
        times[-1] += 3 * 10**9  # beyond 2016 periods
    out = trajectory(times, on_rq, running, weight)
    entity = Entity()
    for i, t in enumerate(times):
        entity.update(t, on_rq[i], running[i], weight)
        expected = (
            *(entity.util_sum, entity.load_sum, entity.contrib),
            *(entity.util, entity.load, entity.last),
        )
        assert tuple(out[i]) == expected, i


def test_time_that_steps_back_only_moves_the_clock() -> None:
    out = trajectory([5 * MS, 4 * MS, 6 * MS], 1, 1)
    assert out[1, 0] == out[0, 0]
    assert out[1, 5] == 4 * MS


@pytest.mark.parametrize("value", [0, 1, 2**31, 2**33 + 5, 88761 * 47742 * 2048])
@pytest.mark.parametrize("periods", [1, 31, 32, 100, 2016])
def test_decay_of_large_sums(value: int, periods: int) -> None:
    assert call_decay(value, periods) == Entity().decay(value, periods)


# --- tasks and queues -------------------------------------------------------------------


def busy_task(ms: int) -> tuple[Any, Any]:
    """Task 0 has run alone on CPU 0 for so long, and blocks."""
    tasks, cfs = make_tasks(2), make_cfs(2, 0)
    run_events(tasks, cfs, events((SEED, 0, 0, 0, 0, 0), (ENQUEUE, 0, 0, 0), (SWITCH, 0, 0, -1, 0)))
    ticks = [(TICK, t * MS, 0, 0) for t in range(4, ms, 4)]
    run_events(tasks, cfs, events(*ticks, (SWITCH, ms * MS, 0, 0, -1, 1)))
    return tasks, cfs


def test_a_task_alone_is_all_of_its_queue() -> None:
    tasks, cfs = busy_task(64)
    assert cfs[0]["util_avg"] == tasks[0]["util_avg"] == 751
    # a load of 0 is attached with a sum of 1 unit: up to 1 less than the queue's
    assert (cfs[0]["load_avg"], tasks[0]["load_avg"]) == (751, 750)
    assert (cfs[0]["nr"], cfs[0]["weight"], cfs[0]["running"]) == (0, 0, 0)
    # the same values as the entity that A.4 ramps, updated each 4 ms
    assert trajectory(np.arange(0, 65, 4) * MS, 1, 1)[-1, 3] == 751


def test_blocked_utilisation_stays_and_decays() -> None:
    tasks, cfs = busy_task(64)
    run_events(tasks, cfs, events((TICK, 96 * MS, 0, -1)))
    # A.4: 1024 falls to 528 in 32 ms
    assert cfs[0]["util_avg"] == pytest.approx(751 * 528 / 1024, abs=2)


def test_a_wakeup_elsewhere_takes_its_utilisation_along() -> None:
    tasks, cfs = busy_task(64)
    run_events(tasks, cfs, events((ENQUEUE, 65 * MS, 1, 0)))
    # decayed to CPU0's last update, 64 ms, not to the wakeup
    assert cfs[1]["util_avg"] == tasks[0]["util_avg"] == 751
    assert cfs[0]["removed_util"] == 751
    run_events(tasks, cfs, events((TICK, 66 * MS, 0, -1)))
    assert (cfs[0]["util_avg"], cfs[0]["load_avg"], cfs[0]["removed"]) == (0, 0, 0)
    assert (cfs[1]["nr"], cfs[1]["weight"], tasks[0]["cpu"]) == (1, 1024, 1)


@pytest.mark.parametrize(("lag", "util"), [(True, 751 * 528 // 1024), (False, 751)])
def test_who_leaves_an_idle_cpu_has_decayed(lag: bool, util: int) -> None:
    """migrate_se_pelt_lag(), since 6.0; what the queue loses is as old as the queue's sums."""
    tasks, cfs = busy_task(64)
    cfs["lag"] = lag
    run_events(tasks, cfs, events((ENQUEUE, 96 * MS, 1, 0)))
    assert tasks[0]["util_avg"] == pytest.approx(util, abs=2)
    assert cfs[1]["util_avg"] == tasks[0]["util_avg"]
    assert cfs[0]["removed_util"] == 751
    # a CPU at work is taken at its word
    tasks, cfs = make_tasks(2), make_cfs(2, 0)
    run_events(
        tasks, cfs,
        events((SEED, 0, 0, 0, 700, 700), (ENQUEUE, 0, 0, 1), (SWITCH, 0, 0, -1, 1),
               (ENQUEUE, 32 * MS, 1, 0)),
    )  # fmt: skip
    assert tasks[0]["util_avg"] == 700


def test_a_pull_moves_both_sums() -> None:
    tasks, cfs = busy_task(64)
    run_events(tasks, cfs, events((ENQUEUE, 65 * MS, 0, 0), (MOVE, 66 * MS, 1, 0)))
    assert (cfs[0]["nr"], cfs[0]["util_avg"], cfs[0]["est"]) == (0, 0, 0)
    assert (cfs[1]["nr"], cfs[1]["util_avg"]) == (1, tasks[0]["util_avg"])
    assert cfs[1]["est"] == 751


def test_a_new_task() -> None:
    """Half of the spare capacity on an empty CPU; in proportion on a loaded one."""
    tasks, cfs = make_tasks(2), make_cfs(1, 0)
    run_events(tasks, cfs, events((NEW, 0, 0, 0)))
    assert (tasks[0]["util_avg"], tasks[0]["load_avg"]) == (512, 1024)
    run_events(tasks, cfs, events((NEW, 0, 0, 1)))
    # 512 * 1024 / 1025, but at most (1024 - 512) / 2
    assert tasks[1]["util_avg"] == 256
    assert (cfs[0]["util_avg"], cfs[0]["load_avg"]) == (768, 2048)


def test_estimate_rises_at_once_and_falls_by_quarters() -> None:
    tasks, cfs = busy_task(64)
    assert tasks[0]["est_ewma"] == tasks[0]["est_enqueued"] == 751
    # sleeps 32 ms, runs 2 ms: utilisation about 408
    run_events(
        tasks,
        cfs,
        events(
            (ENQUEUE, 96 * MS, 0, 0), (SWITCH, 96 * MS, 0, -1, 0), (SWITCH, 98 * MS, 0, 0, -1, 1)
        ),
    )
    util = int(tasks[0]["util_avg"])
    assert 380 < util < 430
    assert tasks[0]["est_enqueued"] == util
    assert tasks[0]["est_ewma"] == 751 + (util - 751) // 4
    # a run within one period changes no average, hence no estimate
    ewma = int(tasks[0]["est_ewma"])
    start = int(tasks[0]["last_update"]) + 100_000
    run_events(
        tasks,
        cfs,
        events((ENQUEUE, start, 0, 0), (SWITCH, start, 0, -1, 0), (DEQUEUE, start + 5000, 0, 0)),
    )
    assert tasks[0]["est_ewma"] == ewma


def test_cpu_util_is_the_larger_of_the_two_up_to_the_capacity() -> None:
    _, cfs = busy_task(64)
    assert call_util(cfs, 0) == 751
    cfs[0]["est"] = 900
    assert call_util(cfs, 0) == 900
    cfs[0]["capacity"] = 700
    assert call_util(cfs, 0) == 700


def test_h_load_is_just_below_the_load() -> None:
    tasks, cfs = busy_task(64)
    assert call_h_load(tasks, cfs, 0, 0) == 750 * 751 // 752 == 749


def test_unknown_order_does_no_harm() -> None:
    """Lost events: a switch to a task never enqueued, a second enqueue, a second block."""
    tasks, cfs = make_tasks(2), make_cfs(2, 0)
    run_events(
        tasks,
        cfs,
        events(
            (SWITCH, 1 * MS, 0, -1, 0),
            (ENQUEUE, 2 * MS, 1, 0),
            (SWITCH, 3 * MS, 1, -1, 0),
            (SWITCH, 4 * MS, 1, 0, -1, 1),
            (DEQUEUE, 5 * MS, 1, 0),
            (SWITCH, 6 * MS, 0, 0, -1, 1),
        ),
    )
    for name in ("nr", "weight", "running", "est"):
        assert list(cfs[name]) == [0, 0], name


@pytest.mark.parametrize("seed", range(6))
def test_queues_are_the_sums_of_their_tasks(seed: int) -> None:
    """On random schedules: weights exactly; averages within rounding, blocked tasks included."""
    rng = random.Random(seed)
    n_tasks, n_cpus = 12, 4
    tasks, cfs = make_tasks(n_tasks), make_cfs(n_cpus, 0)
    tasks["weight"] = [rng.choice((1024, 335, 3121)) for _ in range(n_tasks)]
    queued: list[list[int]] = [[] for _ in range(n_cpus)]
    curr = [-1] * n_cpus
    now, rows = 0, [(SEED, 0, t % n_cpus, t, 0, 0) for t in range(n_tasks)]
    asleep = set(range(n_tasks))
    for _ in range(3000):
        now += rng.choice((rng.randint(1, 20_000), rng.randint(1, 2_000_000)))
        cpu = rng.randrange(n_cpus)
        if rng.random() < 0.45 and asleep:
            t = asleep.pop()
            queued[cpu].append(t)
            rows.append((ENQUEUE, now, cpu, t, 0, 0))
        elif rng.random() < 0.1 and any(queued):
            src = rng.choice([c for c in range(n_cpus) if queued[c]])
            t = queued[src].pop()
            queued[cpu].append(t)
            rows.append((MOVE, now, cpu, t, 0, 0))
        else:
            prev, blocks = curr[cpu], rng.randint(0, 1)
            if prev >= 0 and not blocks:
                queued[cpu].append(prev)
            elif prev >= 0:
                asleep.add(prev)
            curr[cpu] = queued[cpu].pop(0) if queued[cpu] else -1
            rows.append((SWITCH, now, cpu, prev, curr[cpu], blocks))
    rows += [(TICK, now, c, curr[c], 0, 0) for c in range(n_cpus)]
    run_events(tasks, cfs, events(*rows))
    for c in range(n_cpus):
        here = [*queued[c], *([curr[c]] if curr[c] >= 0 else [])]
        assert cfs[c]["nr"] == len(here)
        assert cfs[c]["weight"] == sum(int(tasks[t]["weight"]) for t in here)
        assert cfs[c]["running"] == (curr[c] >= 0)
        assert set(np.flatnonzero((tasks["cpu"] == c) & (tasks["on_rq"] == 1))) == set(here)
        util = load = 0
        for t in np.flatnonzero(tasks["cpu"] == c):
            e = tasks[t : t + 1].copy()
            run_task(e, np.array([now]), e["on_rq"], e["running"], np.zeros((1, 6), np.int64))
            util += int(e[0]["util_avg"])
            load += int(e[0]["load_avg"])
        assert cfs[c]["util_avg"] == pytest.approx(util, rel=0.02, abs=n_tasks)
        assert cfs[c]["load_avg"] == pytest.approx(load, rel=0.02, abs=3 * n_tasks)


# --- the scan budget --------------------------------------------------------------------


def test_nr_idle_scan_vectors(shared: Path) -> None:
    a5 = json.loads((shared / "vectors" / "a5_nr_idle_scan.json").read_text())
    assert len(a5["rows"]) == 24
    for row in a5["rows"]:
        w, pct = row["w"], row["pct"]
        for percent, expected in row["by_util_pct"].items():
            # the table's x is the mean utilisation of a CPU
            sum_util = 1024 * int(percent) // 100 * w
            assert call_scan(sum_util, w, pct) == expected, (row["w"], pct, percent)
            assert scan_budget(sum_util, w, pct) == expected
    for w, (mean, _) in a5["mean_util_where_scan_becomes_0"].items():
        assert scan_budget(mean * int(w), int(w)) == 0
        assert scan_budget((mean - 1) * int(w), int(w)) > 0
    for row in a5["gate_5nr_lt_3w"]:
        if row["max_nr_idle_scan_that_passes"] is not None:
            mean, w = row["min_mean_util_of_1024"], row["w"]
            assert scan_budget(mean * w, w) == row["max_nr_idle_scan_that_passes"]
            assert scan_budget((mean - 1) * w, w) > row["max_nr_idle_scan_that_passes"]


def test_worked_scan_budget() -> None:
    """Section 10.3: x = 5100 div 8 = 637, t = (637 * 117)^2 div 10240000 = 542, 482 * 8 / 1024."""
    assert call_scan(5100, 8, 117) == scan_budget(5100, 8) == 3


@pytest.mark.parametrize(
    ("weight", "groups", "busy", "expected"),
    [
        (8, 4, False, 2 * MS),
        (8, 4, True, 31 * MS),  # (8 * 16 - 4) / 4
        (2, 1, False, 4 * MS),  # not under a tick
        (112, 56, True, 1788 * MS // 56),
    ],
)
def test_refresh_period(weight: int, groups: int, busy: bool, expected: int) -> None:
    assert call_period(weight, groups, busy, 4 * MS, 112) == expected


def test_refresh_reads_young_idle_cpus_as_they_stand() -> None:
    # half-life: 32 periods of 1.048576 ms
    for sleep_ms, expected in ((16, 751), (33, 751 * 2 ** (-33 / 33.554))):
        _, cfs = busy_task(64)
        llcs = np.zeros(1, LLC)
        now = (64 + sleep_ms) * MS
        call_refresh(llcs, cfs, np.array([0, 1]), now, 32 * MS)
        assert llcs[0]["sum_util"] == pytest.approx(expected, abs=2)
        assert llcs[0]["nr_idle_scan"] == scan_budget(int(llcs[0]["sum_util"]), 2)


def test_weights() -> None:
    assert len(WEIGHTS) == 40
    assert (weight_of(120), weight_of(100), weight_of(139), weight_of(98)) == (
        1024,
        88761,
        15,
        1024,
    )
    # each nice level is a quarter more
    ratios = [a / b for a, b in pairwise(WEIGHTS[:30])]
    assert ratios == pytest.approx([1.25] * 29, rel=0.04)
