"""Where idle time goes: hand-written traces whose bins the comments compute, an oracle, captures.

In the hand-written traces (see oracle/tiny.py; times in us) CPU 1 runs the first of those that were
booked on it at 115, and the victim waits from then on.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.idle_bins_oracle import oracle
from oracle.schedules import Schedule, schedule
from oracle.tiny import Run, build, run

import traceana as ta
from traceana import idle_bins, schema
from traceana.bookings import find
from traceana.columns import NameChange
from traceana.idle_bins import IdleAccount, account, differences
from traceana.idle_time import gap_bounds
from traceana.parts import Held
from traceana.schema import BookingClass, IdleBin
from traceana.spill import Spill
from traceana.timeline import Timeline

REPEAT = "HYPOTHESIS_SEED" not in os.environ
C = BookingClass


def topology(llc: list[int], *, smt: int = 1) -> pa.Table:
    rows = [
        {"cpu": c, "core": c // smt, "cluster": None, "llc": llc.index(of), "node": 0, "socket": 0,
         "online": True, "origin": "side_file"}
        for c, of in enumerate(llc)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=schema.TOPOLOGY.schema)


def collisions(got: Run, *victims: tuple[int, float, BookingClass]) -> pa.Table:
    """A row per (pid of the victim, its extra delay in us, class)."""
    rows = []
    for i, (pid, delay, kind) in enumerate(victims):
        w = got.wakes(pid)[0]
        rows.append(
            {"collision": i, "cpu": w["placed_cpu"], "ts": w["waking_ts"], "earlier": w["wakeup"],
             "later": w["wakeup"], "first": None, "victim": w["wakeup"], "class": int(kind),
             "why": 0, "extra_delay_ns": round(delay * 1000), "hops": None,
             "attributable_lo_ns": None, "attributable_hi_ns": None}
        )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=schema.COLLISIONS.schema)


def binned(
    text: str, *victims: tuple[int, float, BookingClass], llc: list[int] | None = None,
    smt: int = 1, names: Any = (), **options: Any,
) -> tuple[IdleAccount, dict[int, dict[str, float]]]:  # fmt: skip
    """The account of a tiny capture, and its bins in us by CPU and name."""
    groups = llc or [0] * 8
    got = run(text, llc=groups, names=names)
    a = account(
        got.timeline, collisions(got, *victims), topology=topology(groups, smt=smt), **options
    )
    check(a, got.timeline)
    out: dict[int, dict[str, float]] = {}
    for r in a.table.to_pylist():
        out.setdefault(r["cpu"], {})[IdleBin(r["bin"]).name] = r["ns"] / 1000
    return a, out


def check(a: IdleAccount, t: Timeline, *, whole: bool = True) -> None:
    """The tables obey, and the bins of each CPU add up to its idle time, ns for ns."""
    if whole:
        assert a.unplaced_ns == 0
    schema.check(a.table, "idle_bins")
    schema.check(a.collisions, "collisions")
    total = np.zeros(t.cpus.num_rows, np.int64)
    np.add.at(total, a.table.column("cpu").to_numpy(), a.table.column("ns").to_numpy())
    assert total.tolist() == t.cpus.column("idle_ns").to_pylist()
    assert min(a.table.column("ns").to_pylist(), default=1) > 0
    assert 0 <= a.attributable_lo_ns <= a.attributable_hi_ns
    assert a.attributable_hi_ns == a.bins_ns[IdleBin.DOUBLE_BOOKING]
    for name, whole in (("lo", a.attributable_lo_ns), ("hi", a.attributable_hi_ns)):
        column = a.collisions.column(f"attributable_{name}_ns").to_pylist()
        assert sum(x or 0 for x in column) == whole


#: p0' (100) on CPU 0 wakes p0 (101), p2' (102) on CPU 7 wakes p2 (103), both go to CPU 1; CPU 2 is
#: idle throughout.
BEGIN = """
    110.0  2  0    .  idle 1
    110.0  0  100  .  waking 101 0
    110.4  7  102  .  waking 103 7
    111.0  0  100  .  migrate 101 0 1
    111.3  7  102  .  migrate 103 7 1
    113.0  1  0    .  wakeup 101 1
    113.3  1  0    .  wakeup 103 1
    114.0  0  100  .  switch S 0
"""
RUNS = """
    115.0  1  0    .  switch R 103
    155.0  1  103  .  switch S 101
"""
BACK = """
    165.0  1  101  .  waking 100 0
    167.0  0  0    .  wakeup 100 0
    168.0  0  0    .  switch R 100
"""


def test_the_worked_example() -> None:
    """Section 10.3: 40.0 us of CPU 0 by the chain, counted once; CPU 2's idle is not added."""
    a, bins = binned(BEGIN + RUNS + BACK, (101, 40.0, C.STRICT_CERTAIN))
    assert (a.attributable_lo_ns, a.attributable_hi_ns) == (40_000, 40_000)
    (row,) = a.collisions.to_pylist()
    assert (row["hops"], row["attributable_lo_ns"], row["attributable_hi_ns"]) == (1, 40000, 40000)
    assert bins == {
        # 114..115 both stand on CPU 1, which is on its way; 115..155 p0 waits, p0' sleeps until p0
        # wakes it; 155..165 p0 runs; 165..168 p0' is booked, then queued.
        0: {"SURPLUS": 1.0, "DOUBLE_BOOKING": 40.0, "NOBODY": 10.0, "ON_ITS_WAY": 3.0},
        # p0's booking shows from 111.0 on.
        1: {"NOBODY": 1.0, "ON_ITS_WAY": 4.0},
        # Somebody waits from 113 to 155, and p0' from 167 to 168.
        2: {"NOBODY": 3.0 + 12.0, "SURPLUS": 42.0 + 1.0},
    }


def test_the_worked_example_as_found(tmp_path: Path) -> None:
    """The same, with the collisions that ``bookings.find`` finds."""
    got = run(BEGIN + RUNS + BACK, llc=[0] * 8, kernel=6002)
    found = find(got.timeline, kernel=6002)
    a = account(got.timeline, found.table, topology=topology([0] * 8))
    assert found.counts()["strict_certain"] == 1
    assert (a.attributable_lo_ns, a.attributable_hi_ns) == (40_000, 40_000)


def test_a_late_booking_is_not_attributable() -> None:
    a, bins = binned(BEGIN + RUNS + BACK, (101, 40.0, C.LATE))
    assert a.attributable_hi_ns == 0
    assert bins[0]["LATE_BOOKING"] == 40.0
    assert a.collisions.to_pylist()[0]["attributable_hi_ns"] is None


def test_an_explained_one_is_where_the_wakeup_put_it() -> None:
    """CPU 0 went idle at 114.0, p0 was queued at 113.0 and never ran on CPU 1: cold."""
    _, bins = binned(BEGIN + RUNS + BACK, (101, 40.0, C.EXPLAINED))
    assert bins[0]["NEWIDLE_REFUSED"] == 40.0


#: p4' (104) on CPU 6 books CPU 1, too; p2 runs first, then p0 (135), then p4 (155).
THREE = """
    110.0  2  0    .  idle 1
    110.0  0  100  .  waking 101 0
    110.2  6  104  .  waking 105 6
    110.4  7  102  .  waking 103 7
    111.0  0  100  .  migrate 101 0 1
    111.2  6  104  .  migrate 105 6 1
    111.3  7  102  .  migrate 103 7 1
    113.0  1  0    .  wakeup 101 1
    113.2  1  0    .  wakeup 105 1
    113.3  1  0    .  wakeup 103 1
    114.0  0  100  .  switch S 0
    115.0  1  0    .  switch R 103
    135.0  1  103  .  switch S 101
    155.0  1  101  .  switch S 105
"""


def test_two_victims_on_one_cpu() -> None:
    """115..135 two victims and two idle CPUs (0 and 2): 40.0; 135..155 one victim: 20.0.

    For p0 no CPU idles (p0' is not woken by it here), CPU 2 was idle and open all along, CPU 0,
    too; so both victims count for the lower bound, unless only p0 is certain: 20.0.
    """
    a, _ = binned(THREE, (101, 20.0, C.STRICT_CERTAIN), (105, 40.0, C.STRICT_CERTAIN))
    assert (a.attributable_lo_ns, a.attributable_hi_ns) == (60_000, 60_000)
    rows = a.collisions.to_pylist()
    assert [r["attributable_hi_ns"] for r in rows] == [20_000, 40_000]
    assert [r["hops"] for r in rows] == [0, 0]
    a, _ = binned(THREE, (101, 20.0, C.STRICT_CERTAIN), (105, 40.0, C.STRICT))
    assert (a.attributable_lo_ns, a.attributable_hi_ns) == (20_000, 60_000)


def test_two_victims_and_one_idle_cpu() -> None:
    """Without CPU 2 only CPU 0 idles: 115..155 is 40.0, half of it for each, none twice."""
    text = THREE.replace("110.0  2  0    .  idle 1", "110.0  2  9    .  mark")
    a, _ = binned(text, (101, 20.0, C.STRICT_CERTAIN), (105, 40.0, C.STRICT_CERTAIN))
    assert a.attributable_hi_ns == 40_000
    assert [r["attributable_hi_ns"] for r in a.collisions.to_pylist()] == [20_000, 20_000]


def test_a_victim_of_two_collisions_counts_once() -> None:
    a, _ = binned(BEGIN + RUNS + BACK, (101, 40.0, C.STRICT_CERTAIN), (101, 40.0, C.STRICT))
    assert a.attributable_hi_ns == 40_000


def test_an_idle_cpu_that_is_booked_meanwhile_is_not_lower() -> None:
    """CPU 0 runs another task at 114.0, so only CPU 2 idles; at 130.0 it is booked, 135.0 it runs.

    upper: 115..135 = 20.0 on CPU 2; lower: it was not open throughout 115..155, so 0.
    """
    text = (
        BEGIN.replace("114.0  0  100  .  switch S 0", "114.0  0  100  .  switch S 110")
        + """
        115.0  1  0    .  switch R 103
        130.0  7  102  .  waking 111 2
        132.0  2  0    .  wakeup 111 2
        135.0  2  0    .  switch R 111
        155.0  1  103  .  switch S 101
        """
    )
    a, bins = binned(text, (101, 40.0, C.STRICT_CERTAIN))
    assert (a.attributable_lo_ns, a.attributable_hi_ns) == (0, 20_000)
    # 110..113 nobody waits, 113..115 both are on their way.
    assert bins[2] == {"NOBODY": 3.0, "SURPLUS": 2.0, "DOUBLE_BOOKING": 20.0}


def test_a_chain_of_three_hops() -> None:
    """p0 wakes p0' (CPU 0), that wakes 120 (CPU 2), that wakes 121 (CPU 3): all sleep until then.

    One victim stands for one CPU, the nearest; the two behind idle by the chain, 40.0 each.
    """
    text = (
        """
        100.0  2  120  .  switch S 0
        101.0  3  121  .  switch S 0
        """
        + BEGIN.replace("110.0  2  0    .  idle 1", "")
        + RUNS
        + BACK
        + """
        170.0  0  100  .  waking 120 2
        171.0  2  0    .  wakeup 120 2
        172.0  2  0    .  switch R 120
        175.0  2  120  .  waking 121 3
        176.0  3  0    .  wakeup 121 3
        177.0  3  0    .  switch R 121
        """
    )
    a, bins = binned(text, (101, 40.0, C.STRICT_CERTAIN))
    (row,) = a.collisions.to_pylist()
    assert row["hops"] == 3
    assert (a.attributable_lo_ns, a.attributable_hi_ns) == (40_000, 40_000)
    assert bins[0]["DOUBLE_BOOKING"] == 40.0
    assert bins[2]["CHAIN"] == bins[3]["CHAIN"] == 40.0


def test_a_chain_ends_where_something_else_wakes_first() -> None:
    """An interrupt wakes p0': CPU 0 does not idle for p0. It is idle and open, so it counts."""
    text = BEGIN + RUNS + BACK.replace("165.0  1  101  .", "165.0  1  101  h")
    a, _ = binned(text, (101, 40.0, C.STRICT_CERTAIN))
    assert a.collisions.to_pylist()[0]["hops"] == 0
    # CPU 2 is open throughout 115..155, CPU 0 too.
    assert (a.attributable_lo_ns, a.attributable_hi_ns) == (40_000, 40_000)


def test_a_loss_in_the_middle() -> None:
    """Events of CPU 1 are lost at 130.0: whether p0 still waits is not known, nothing is booked."""
    text = (
        BEGIN
        + """
        115.0  1  0    .  switch R 103
        130.0  1  0    .  lost 7
        155.0  1  105  .  switch S 0
        """
    )
    a, bins = binned(text)
    assert a.attributable_hi_ns == 0
    # p2's wait is known to its end, p0's is not: 113.3..115.0.
    assert bins[2] == {"NOBODY": 3.3 + 40.0, "SURPLUS": 1.7}


def test_who_waits_behind_another_while_a_cpu_idles() -> None:
    """At 120.0 CPU 0's task wakes 201, which is queued behind it at 121.0 and runs at 151.0.

    CPU 2 was idle then: placed. CPU 3 goes idle at 131.0, when 201 waits; it runs nowhere yet, so
    it is cold: a newidle pull could have taken it. One task stands for one CPU, the first.
    """
    text = """
    100.0  2  0    .  idle 1
    120.0  0  200  .  waking 201 0
    121.0  0  200  .  wakeup 201 0
    131.0  3  300  .  switch S 0
    151.0  0  200  .  switch S 201
    """
    a, bins = binned(text)
    assert bins[2] == {"NOBODY": 21.0, "PLACED": 30.0}
    assert bins[3] == {"SURPLUS": 20.0}
    assert (a.gaps, a.pullable, a.pullable_hot) == (2, 1, 0)
    # Both gaps are shorter than 100 us; CPU 2's lasts 51.0, CPU 3's 20.0.
    assert a.shorter == {50_000: 1, 100_000: 2, 500_000: 2}


@pytest.mark.parametrize(
    ("cost_us", "smt", "name"),
    [(15.0, 1, "MIGRATION_COST"), (10.0, 1, "NEWIDLE_REFUSED"), (15.0, 4, "NEWIDLE_REFUSED")],
)
def test_hot_tasks(cost_us: float, smt: int, name: str) -> None:
    """201 slept on CPU 0 at 119.0 and is queued there again; CPU 2 goes idle at 131.0, 12.0 later.

    Between SMT siblings nobody is hot (task_hot()).
    """
    text = """
    110.0  0  201  .  mark
    119.0  0  201  .  switch S 200
    120.0  0  200  .  waking 201 0
    121.0  0  200  .  wakeup 201 0
    131.0  2  300  .  switch S 0
    151.0  0  200  .  switch S 201
    """
    a, bins = binned(text, smt=smt, migration_cost_ns=round(cost_us * 1000))
    assert bins[2] == {name: 20.0}
    assert (a.pullable, a.pullable_hot) == (1, int(name == "MIGRATION_COST"))


def test_a_pinned_waiter() -> None:
    """kworker/0:1 may run on CPU 0 only."""
    text = """
    100.0  2  0    .  idle 1
    120.0  0  200  .  waking 201 0
    121.0  0  200  .  wakeup 201 0
    151.0  0  200  .  switch S 201
    """
    names = [NameChange(201, None, b"kworker/0:1", None)]
    a, bins = binned(text, names=names)
    assert bins[2] == {"NOBODY": 21.0, "PINNED": 30.0}
    assert a.pullable == 0


def test_a_waiter_in_the_other_llc() -> None:
    text = """
    100.0  2  0    .  idle 1
    120.0  0  200  .  waking 201 0
    121.0  0  200  .  wakeup 201 0
    151.0  0  200  .  switch S 201
    """
    a, bins = binned(text, llc=[0, 0, 2, 2])
    assert bins[2] == {"NOBODY": 21.0, "OTHER_LLC": 30.0}
    near, far = a.llcs
    # Span 51.0: one task stuck for 30.0 in the LLC of CPU 0, one CPU idle all along in the other.
    assert (near.stuck, near.both_ns, far.both_ns) == (pytest.approx(30 / 51), 0, 0)
    assert (far.llc, far.idle_cpus) == (2, 1.0)


def test_the_work_conservation_gap() -> None:
    """CPUs 2 and 3 idle throughout 100..151, one task is stuck from 121 to 151 in their LLC."""
    text = """
    100.0  2  0    .  idle 1
    100.0  3  0    .  idle 1
    120.0  0  200  .  waking 201 0
    121.0  0  200  .  wakeup 201 0
    151.0  0  200  .  switch S 201
    """
    a, _ = binned(text)
    (llc,) = a.llcs
    assert (llc.idle_cpus, llc.stuck) == (2.0, pytest.approx(30 / 51))
    assert (llc.both_ns, llc.gap_ns) == (30_000, 30_000)


def test_what_the_last_task_sleeps_for() -> None:
    """CPU 0's task sleeps in D, CPU 1's until a soft interrupt wakes it (then it is booked)."""
    text = """
    100.0  0  200  .  switch D 0
    100.0  1  201  .  switch S 0
    120.0  1  0    s  waking 201 1
    121.0  1  0    s  wakeup 201 1
    122.0  1  0    .  switch R 201
    150.0  0  0    h  waking 200 0
    151.0  0  0    h  wakeup 200 0
    152.0  0  0    .  switch R 200
    """
    _, bins = binned(text)
    assert bins == {
        0: {"IO": 50.0, "ON_ITS_WAY": 2.0},
        1: {"TIMER": 20.0, "ON_ITS_WAY": 2.0},
    }


def _throttled(period_us: float, times: int, *, jitter: float = 0.0) -> Iterator[str]:
    """Two threads run 20 ms of each period; then their CPUs, 0 and 1, idle."""
    for i in range(times):
        at = i * period_us
        yield f"{at + 20000.0:.1f} 0 200 . switch R 0"
        yield f"{at + 20010.0:.1f} 1 201 . switch R 0"
        off = jitter * (i * i % 7)
        yield f"{at + off + period_us:.1f} 0 0 . switch R 200"
        yield f"{at + off + period_us + 30:.1f} 1 0 . switch R 201"


def test_throttled_tasks() -> None:
    """Released every 100 ms, five times: cpu.max. 80 ms of idle each time on both CPUs."""
    wake = "0.0 2 300 . waking 301 2\n1.0 2 300 . wakeup 301 2\n2.0 2 300 . switch S 301\n"
    text = wake + "\n".join(_throttled(100_000.0, 5))
    names = [NameChange(200 + i, 200, b"api", None) for i in range(2)]
    a, bins = binned(text, names=names)
    assert bins[0] == {"THROTTLED": 5 * 80_000.0}
    assert bins[1] == {"THROTTLED": 5 * 80_020.0}
    assert a.throttling is not None
    assert a.throttling.groups == (("api", 100_000_000),)
    assert "api every 100 ms" in a.throttling.warning


def test_held_back_at_no_beat_is_not_called_throttling() -> None:
    """The same with releases that are off by up to 15 ms: who holds them is not known."""
    wake = "0.0 2 300 . waking 301 2\n1.0 2 300 . wakeup 301 2\n2.0 2 300 . switch S 301\n"
    text = wake + "\n".join(_throttled(100_000.0, 5, jitter=2500.0))
    a, bins = binned(text, names=[NameChange(200 + i, 200, b"api", None) for i in range(2)])
    assert a.throttling is None
    assert set(bins[0]) == {"UNKNOWN"}


def test_without_wakeups_nothing_is_known() -> None:
    a, bins = binned("100.0 0 200 . switch S 0\n150.0 0 0 . switch R 200\n")
    assert bins == {0: {"UNKNOWN": 50.0}}
    assert a.missing


def test_what_a_change_had_been_booked_to() -> None:
    """Per CPU time: before, 40 of 58 us (3 CPUs with events) by the race; after, none."""
    before, _ = binned(BEGIN + RUNS + BACK, (101, 40.0, C.STRICT_CERTAIN))
    after, _ = binned(BEGIN + RUNS.replace("155.0", "115.5") + BACK)
    rows = {d.bin: d for d in differences(before, after)}
    assert set(rows) == set(IdleBin)
    race = rows[IdleBin.DOUBLE_BOOKING]
    assert race.a == pytest.approx(40 / (58 * before.cpus)) and race.b == 0
    assert sum(d.change for d in rows.values()) == pytest.approx(
        after.idle_ns / (after.span_ns * after.cpus)
        - before.idle_ns / (before.span_ns * before.cpus)
    )
    same = differences(before, before)
    assert all(d.change == 0 and d.part is None for d in same)


# --- against the oracle ---


@st.composite
def cases(draw: Any) -> tuple[Schedule, int, int, int]:
    s = schedule(
        draw(st.integers(0, 2**32 - 1)),
        cpus=draw(st.integers(1, 5)),
        kernel=draw(st.sampled_from([0, 5004, 5010, 6001, 6012, 7003])),
        events=draw(st.integers(20, 260)),
        llcs=draw(st.integers(1, 2)),
        pace=draw(st.sampled_from([0, 10**6, 3 * 10**7])),
    )
    return (
        s,
        draw(st.integers(0, 2**32 - 1)),
        draw(st.sampled_from([3_000, 1_000_000])),
        draw(st.sampled_from([2_000, 20_000, 500_000])),
    )


def _random_collisions(t: Timeline, rng: random.Random) -> pa.Table:
    """Victims with extra delays as they may be, some of them in two collisions."""
    rows: list[dict[str, Any]] = []
    for w in t.wakeups.to_pylist():
        known = None not in (w["waking_ts"], w["wakeup_ts"], w["run_ts"])
        if w["kind"] or not known or rng.random() < 0.5:
            continue
        for _ in range(rng.choice((1, 1, 2))):
            # Mostly from its place in the queue on, now and then from its booking.
            begin = w["visible_lo"] if rng.random() < 0.1 else w["wakeup_ts"]
            rows.append(
                {"collision": len(rows), "cpu": w["placed_cpu"], "ts": w["waking_ts"],
                 "earlier": w["wakeup"], "later": w["wakeup"], "first": None,
                 "victim": w["wakeup"], "class": rng.choice((0, 0, 1, 2, 3)), "why": 0,
                 "extra_delay_ns": rng.randint(0, max(w["run_ts"] - begin, 0)), "hops": None,
                 "attributable_lo_ns": None, "attributable_hi_ns": None}
            )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=schema.COLLISIONS.schema)


@settings(max_examples=150, derandomize=REPEAT)
@given(cases())
def test_as_the_oracle(case: tuple[Schedule, int, int, int]) -> None:
    s, seed, long_ns, cost_ns = case
    t = build(s.columns, llc=s.llc, kernel=s.kernel, hz=s.hz, start=s.start)
    found = _random_collisions(t, random.Random(seed))
    llc = [int(s.llc[c]) if c < len(s.llc) else 0 for c in range(t.cpus.num_rows)]
    machine = topology(llc, smt=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle_bins, "LONG_NS", long_ns)
        a = account(t, found, topology=machine, migration_cost_ns=cost_ns)
    check(a, t)
    if t.wakeups.column("wakeup_ts").null_count == t.wakeups.num_rows:
        assert not (set(a.table.column("bin").to_pylist()) - {IdleBin.UNKNOWN}) and a.missing
        return
    gaps = list(zip(*(x.tolist() for x in gap_bounds(t)), strict=True))
    core = [c // 2 for c in range(len(llc))]
    rows = found.to_pylist()
    want = oracle(t, rows, gaps, llc=llc, core=core, long_ns=long_ns, cost_ns=cost_ns)
    got = {(r["cpu"], IdleBin(r["bin"])): r["ns"] for r in a.table.to_pylist()}
    assert got == {key: ns for key, ns in want.ns.items() if ns}
    victims: dict[int, list[int]] = {}
    for r in a.collisions.to_pylist():
        if r["victim"] is not None and r["attributable_hi_ns"] is not None:
            v = victims.setdefault(r["victim"], [0, 0, 0])
            v[0] += r["attributable_lo_ns"]
            v[1] += r["attributable_hi_ns"]
            v[2] = max(v[2], r["hops"])
    for v, (lo, hi, hops) in victims.items():
        assert (lo, hi, hops) == (want.lower[v], want.upper[v], want.hops[v])
    assert (a.pullable, a.pullable_hot) == (want.pullable, want.pullable_hot)
    span = max(t.last_ts - t.first_ts, 1)
    for load in a.llcs:
        idle, waiting, stuck, both, gap = want.llcs[llc[load.llc]]
        assert (load.both_ns, load.gap_ns) == (both, gap)
        assert [load.idle_cpus * span, load.waiting * span, load.stuck * span] == pytest.approx(
            [idle, waiting, stuck]
        )


# --- captures ---


def _account(path: Path) -> tuple[IdleAccount, Timeline]:
    cap = ta.open(path)
    t = cap.timeline()
    found = find(t, kernel=cap.kernel, event_cost_ns=cap.event_cost_ns)
    return account(t, found.table, topology=cap.topology), t


SAMPLES = sorted(
    p.name
    for p in (Path(__file__).resolve().parents[1] / "sample_traces").iterdir()
    if (".dat" in p.suffixes and ".json" not in p.suffixes) or ".trace" in p.suffixes
)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bins_of_a_sample_add_up(samples: Path, name: str) -> None:
    if "perf" in name or "script" in name:
        pytest.skip("the same machine in another form")
    check(*_account(samples / name))


@pytest.mark.parametrize(
    "name",
    ["smt8/pp2/base-1.dat", "smt8/pp4/base-1.dat", "smt8/pp6/base-2.dat", "smt8/pp8/base-1.dat.xz",
     "smt16/hb/base-truth.dat.xz", "smt16/pp8/base-1.dat.xz", "smt32/hb/base-truth.dat.xz"],
)  # fmt: skip
def test_the_bins_of_a_capture_add_up(shared: Path, name: str) -> None:
    check(*_account(shared / "captures/ab" / name))


@pytest.mark.parametrize(
    "name", ["forms/pp4-lost.trace_pipe.txt.xz", "perf/lost-small.perf.data.xz"]
)
def test_with_losses_they_add_up_too(shared: Path, name: str) -> None:
    check(*_account(shared / "captures" / name), whole=False)


def test_a_timeline_on_disk_says_the_same(samples: Path) -> None:
    """Rows that lasted long stand elsewhere there. (Moves are only known where rows are held.)"""
    path = samples / "pp3-plain.dat.xz"
    held = ta.open(path)
    found = find(held.timeline(), kernel=held.kernel).table
    want = account(held.timeline(), found, topology=held.topology)
    cap = ta.open(path)
    chunks = cap._chunks

    def small() -> Any:
        for chunk in chunks():
            for at in range(0, len(chunk.events), 500):
                rows = slice(at, min(at + 500, len(chunk.events)))
                yield type(chunk)(chunk.events.take(rows), [] if at else chunk.names)

    cap._chunks = small  # type: ignore[method-assign]
    cap.stream(Spill(lambda: (0, 1), hold_rows=500, part_rows=500))
    t = cap.timeline()
    assert not isinstance(t.rows, Held)
    got = account(t, found, topology=cap.topology)
    check(got, t)
    if not len(held.timeline().raw["moves"]):
        assert got.table.equals(want.table)
    assert got.idle_ns == want.idle_ns
    assert abs(got.attributable_hi_ns - want.attributable_hi_ns) <= 0.02 * want.idle_ns


def test_rows_that_contradict_each_other_lose_nothing() -> None:
    """CPU 0 goes idle at 100, 120 and 110, says a damaged capture: what is left over is unknown."""
    text = """
    100.0  0  200  .  switch S 0
    150.0  0  0    .  switch R 200
    120.0  0  200  .  switch S 0
    160.0  0  0    .  switch R 200
    110.0  0  200  .  switch S 0
    161.0  1  300  .  waking 301 1
    162.0  1  300  .  wakeup 301 1
    170.0  0  0    .  switch R 200
    """
    got = run(text, llc=[0, 0])
    a = account(got.timeline, collisions(got), topology=topology([0, 0]))
    check(a, got.timeline, whole=False)
    assert a.unplaced_ns > 0


def test_the_race_is_what_sis_short_removed(samples: Path) -> None:
    """pp6, base against short, both on 8 CPUs: idle goes down, and the race's bin goes away.

    The rule takes the race away (32 double bookings of 35,445 wakeups, 6,532 of 26,872 without it);
    other bins of waiting grow, as two tasks of a pair share a CPU.
    """
    before, _ = _account(samples / "pp6-base.dat")
    after, _ = _account(samples / "pp6-short.dat.xz")
    rows = {d.bin: d for d in differences(before, after)}
    assert sum(d.change for d in rows.values()) < -0.08
    race = rows[IdleBin.DOUBLE_BOOKING]
    assert race.a > 0.08 and race.b < 0.005
    assert race.part is not None and race.part > 0.5
    assert rows[IdleBin.PLACED].change > 0
