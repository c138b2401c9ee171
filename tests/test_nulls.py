"""Null models of the race: the kernels against plain Python, and what they must give."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from oracle import nulls_oracle as oracle

import traceana as ta
from traceana import topology as topo
from traceana.bookings import find
from traceana.nulls import BLOCKS, TRIES, nulls
from traceana.topology import TopologyArrays


class Gaps:
    """A timeline that has idle gaps only."""

    def __init__(self, gaps: list[tuple[int, int, int]]) -> None:
        cpu, start, end = zip(*sorted(gaps, key=lambda g: g[1]), strict=True)
        self._table = pa.table(
            {
                "cpu": pa.array(cpu, pa.int32()),
                "start": pa.array(start, pa.int64()),
                "end": pa.array(end, pa.int64()),
            }
        )
        self.rows = self

    def chunks(self, name: str, columns: Any) -> Any:
        assert name == "idle_gaps"
        half = self._table.num_rows // 2
        yield self._table.slice(0, half).select(list(columns))
        yield self._table.slice(half).select(list(columns))


def machine(n: int, per_llc: int) -> TopologyArrays:
    return topo.as_arrays(topo.learned([c // per_llc for c in range(n)]), n)


def ask(wakes: list[oracle.Wake], gaps: Any, m: TopologyArrays, **more: Any) -> Any:
    def column(name: str, kind: Any = np.int64) -> Any:
        return np.array([getattr(w, name) for w in wakes], kind)

    bookings = SimpleNamespace(
        rows=column("ident"), cpu=column("cpu", np.int32), read=column("look"),
        decided=column("decided"), visible=column("shown"), looked_idle=column("idle", bool),
    )  # fmt: skip
    own = column("own", np.int32)
    return nulls(Gaps(gaps), bookings, m, own, **{"blur_ns": 0, **more})  # type: ignore[arg-type]


def random_case(seed: int) -> tuple[list[oracle.Wake], list[tuple[int, int, int]]]:
    """Gaps of 6 CPUs and wakeups that book them, crowded."""
    rng = random.Random(seed)
    gaps = []
    for cpu in range(6):
        t = rng.randrange(50)
        while t < 2000:
            end = t + rng.randrange(20, 200)
            gaps.append((cpu, t, end))
            t = end + rng.randrange(1, 120)
    wakes = []
    for i in range(60):
        look = rng.randrange(2000)
        decided = look + rng.randrange(10)
        cpu = rng.randrange(6)
        idle = any(c == cpu and a <= look < b for c, a, b in gaps) and rng.random() < 0.9
        shown = decided + rng.randrange(1, 60)
        wakes.append(oracle.Wake(i, cpu, rng.randrange(-1, 6), look, decided, shown, idle))
    wakes.sort(key=lambda w: (w.decided, w.ident))
    return wakes, gaps


@pytest.mark.parametrize("seed", range(25))
def test_both_models_are_those_of_plain_python(seed: int) -> None:
    wakes, gaps = random_case(seed)
    m = machine(6, 3)
    got = ask(wakes, gaps, m, seed=seed, draws=7, shifts=5)
    mates = {c: list(range(c // 3 * 3, c // 3 * 3 + 3)) for c in range(6)}
    observed, drawn = oracle.choice(wakes, gaps, mates, 7, seed)
    assert got.choice.observed.sum() == observed
    assert got.choice.drawn.tolist() == drawn
    assert got.choice.expected.sum() == pytest.approx(np.mean(drawn))
    placed, met = oracle.timing(wakes, gaps, 5, seed + 1, got.nearest_ns, TRIES)
    asked = got.asked
    assert asked == sum(w.idle and w.cpu != w.own for w in wakes)
    want = [asked * m_ / p if p else 0 for p, m_ in zip(placed, met, strict=True)]
    assert got.timing.drawn.tolist() == pytest.approx(want)
    assert got.timing.placed == pytest.approx(sum(placed) / (5 * asked))


def test_two_blind_wakers_and_k_idle_cpus_meet_once_in_k() -> None:
    # 400 pairs 10 us apart: both look at once, neither sees the other, 4 CPUs idle all along.
    # The second meets the first with probability 1/4: 100 expected, standard deviation of one
    # draw sqrt(400 * 1/4 * 3/4) = 8.7, of the mean of 100 draws 0.87. As recorded: CPU 0 and 1.
    wakes = []
    for i in range(400):
        t = 10_000 * (i + 1)
        wakes.append(oracle.Wake(2 * i, 0, -1, t, t + 100, t + 1000, True))
        wakes.append(oracle.Wake(2 * i + 1, 1, -1, t + 1, t + 101, t + 1001, True))
    gaps = [(c, t - 5_000, t + 4_000) for t in range(10_000, 4_010_000, 10_000) for c in range(4)]
    got = ask(wakes, gaps, machine(4, 4))
    assert got.choice.observed.sum() == 0
    assert got.choice.expected.sum() == pytest.approx(100, abs=4)
    low, high = got.choice.drawn_interval()
    assert low == pytest.approx(100 - 1.96 * 8.7, abs=8)
    assert high == pytest.approx(100 + 1.96 * 8.7, abs=8)
    assert got.idle_mean == 4
    assert got.outstanding_mean == 0.5  # each second one of the 800 has one


def test_without_windows_nothing_meets() -> None:
    # The same, but a booking is seen at once, before anybody looks again.
    wakes = [
        oracle.Wake(i, i % 4, -1, 1000 * (i + 1), 1000 * (i + 1), 1000 * (i + 1), True)
        for i in range(300)
    ]
    gaps = [(c, 0, 10**9) for c in range(4)]
    got = ask(wakes, gaps, machine(4, 4))
    assert got.choice.observed.sum() == got.choice.expected.sum() == got.choice.drawn.max() == 0


def test_a_sample_stands_for_the_whole_and_blocks_add_up(samples: Any) -> None:
    cap = ta.open(samples / "sch-truth.dat.xz")
    timeline = cap.timeline()
    found = find(timeline, kernel=cap.kernel, event_cost_ns=cap.event_cost_ns)
    m = topo.as_arrays(cap.topology, timeline.cpus.num_rows)
    own = timeline.wakeups.column("this_cpu").fill_null(-1).to_numpy()[found.rows]
    whole = nulls(timeline, found, m, own)
    again = nulls(timeline, found, m, own)
    assert whole is not None and again is not None
    assert whole.choice.drawn.tolist() == again.choice.drawn.tolist()
    assert whole.asked == whole.decisions
    assert len(whole.choice.observed) == BLOCKS
    part = nulls(timeline, found, m, own, decisions=whole.asked // 2)
    assert part is not None
    assert part.asked <= whole.asked // 2 < part.asked + 64
    for a, b in ((whole.choice, part.choice), (whole.timing, part.timing)):
        for name in ("observed", "expected"):
            n, half = getattr(a, name).sum(), getattr(b, name).sum()
            # Half of them: within four standard deviations of a count.
            assert half * whole.asked / part.asked == pytest.approx(n, abs=4 * np.sqrt(2 * n) + 4)


def test_nobody_who_found_an_idle_cpu_has_no_model() -> None:
    wakes = [oracle.Wake(0, 0, -1, 10, 20, 30, False), oracle.Wake(1, 1, 1, 10, 20, 30, True)]
    assert ask(wakes, [(1, 0, 50)], machine(2, 2)) is None
