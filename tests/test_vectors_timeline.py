"""dur_avg and wakee_flips of the real builder against vectors A.1 and A.2 of the semantics.

Each sample and each wake of a vector is made to happen as events. An excerpt stands here, so
that the test means something alone; the whole files are read from ../shared where present.
What the vectors give for the rules of other times (arithmetic shift, wiping) is not tested: no
kernel of this timeline's range has them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle.tiny import Run, build, events, run

from traceana.columns import EventColumns
from traceana.schema import EventKind, State
from traceana.start_state import StartState, TaskSeed
from traceana.timeline import Timeline

VECTORS = Path(__file__).resolve().parents[2] / "shared" / "vectors"

#: (first average, samples, averages after each): section "Appendix A, A.1 excerpts".
A1 = {
    "constant": (0, [10_000] * 6, [1250, 2343, 3300, 4137, 4869, 5510]),
    "down": (100_000, [1000] * 5, [87_625, 76_797, 67_323, 59_033, 51_779]),
    "small": (1000, [999, 998, 993, 992, 991], [1000, 1000, 1000, 999, 998]),
    "zero": (5, [0, 0, 0], [5, 5, 5]),
    "alternating": (
        0,
        [100_000, 900_000, 100_000, 900_000, 100_000],
        [12_500, 123_437, 120_508, 217_944, 203_201],
    ),
}
#: HZ, start (flips, ts, last), wakes (jiffy, wakee), flips and ts after each (A.2 excerpts).
A2 = {
    "boundary_HZ250": (
        250,
        (9, 2500, "B"),
        [(2749, "B"), (2750, "B"), (2751, "B"), (3001, "B"), (3002, "B")],
        [(9, 2500), (9, 2500), (4, 2751), (4, 2751), (2, 3002)],
    ),
    "boundary_HZ1000": (
        1000,
        (9, 10_000, "B"),
        [(10_999, "B"), (11_000, "B"), (11_001, "B"), (12_001, "B"), (12_002, "B")],
        [(9, 10_000), (9, 10_000), (4, 11_001), (4, 11_001), (2, 12_002)],
    ),
    "pair_HZ250": (
        250,
        (0, 2500, None),
        [(2500 + 125 * i, "B") for i in range(6)],
        [(1, 2500), (1, 2500), (1, 2500), (0, 2875), (0, 2875), (0, 2875)],
    ),
    "many_seconds": (
        250,
        (16, 1000, "B"),
        [(1000, "B"), (1251, "C"), (9000, "C"), (9001, "B")],
        [(16, 1000), (9, 1251), (4, 9000), (5, 9000)],
    ),
}


def _cases(file: str) -> list[dict[str, Any]]:
    if not (VECTORS / file).is_file():
        pytest.skip(f"no ../shared/vectors/{file}: only the excerpt is tested")
    return list(json.loads((VECTORS / file).read_text())["cases"])


def _rows(n: int) -> EventColumns:
    columns = EventColumns.unknown(n)
    columns.cpu[:] = 0
    columns.ctx[:] = 0
    columns.prio[:] = columns.other_prio[:] = 120
    return columns


def bursts(samples: list[int], *, stat: bool) -> EventColumns:
    """Task 10 blocks once, then runs and blocks once a sample; a waking asks for dur_avg between.

    Per sample: 20 wakes 10 (CPU1), 10 runs on CPU0 for the sample (by sched_stat_runtime: in a
    slice of another length), blocks. The waking after it shows the average.
    """
    rows: list[tuple[int, int, int, EventKind, int, int, int]] = []
    t = 1000
    rows.append((t, 0, 10, EventKind.SWITCH, 10, 0, 0))
    for sample in samples:
        t += 100_000
        rows.append((t, 1, 20, EventKind.WAKING, 10, 0, 0))
        rows.append((t + 10, 1, 20, EventKind.WAKEUP, 10, 0, 0))
        rows.append((t + 20, 0, 0, EventKind.SWITCH, 0, 10, 0))
        end = t + 20 + (sample // 2 + 333 if stat else sample)
        if stat:
            half = sample // 3
            rows.append((end - 2, 0, 10, EventKind.STAT_RUNTIME, 10, 0, half))
            rows.append((end - 1, 0, 10, EventKind.STAT_RUNTIME, 10, 0, sample - half))
        rows.append((end, 0, 10, EventKind.SWITCH, 10, 0, 0))
        t = end
    t += 100_000
    rows.append((t, 1, 20, EventKind.WAKING, 10, 0, 0))
    out = _rows(len(rows))
    for i, (ts, cpu, pid, kind, subject, other, value) in enumerate(rows):
        out.ts[i], out.cpu[i], out.pid[i], out.kind[i] = ts, cpu, pid, kind
        out.subject[i] = subject
        if kind == EventKind.SWITCH:
            out.other[i] = other
            out.state[i] = 0 if subject == 0 else State.SLEEP
        elif kind == EventKind.STAT_RUNTIME:
            out.value[i] = value
        else:
            out.cpu_to[i] = 0
    return out


def averages(first: int, samples: list[int], *, stat: bool) -> list[int]:
    """dur_avg of the wakee as each waking after a sample saw it."""
    start = StartState(tasks=(TaskSeed(10, dur_avg_ns=first),))
    timeline = build(bursts(samples, stat=stat), start=start)
    seen = timeline.wakeups.column("wakee_dur_avg_ns").to_pylist()
    last = {t["pid"]: t for t in timeline.tasks.to_pylist()}[10]
    assert seen[0] == first
    assert last["dur_avg_ns"] == seen[-1]
    assert last["dur_samples"] == len(samples)
    return seen[1:]


@pytest.mark.parametrize("stat", [True, False], ids=["stat_runtime", "switches"])
@pytest.mark.parametrize("name", A1)
def test_a1_excerpt(name: str, stat: bool) -> None:
    first, samples, expected = A1[name]
    assert averages(first, samples, stat=stat) == expected


@pytest.mark.parametrize("stat", [True, False], ids=["stat_runtime", "switches"])
def test_a1_whole_vector(stat: bool) -> None:
    cases = _cases("a1_dur_avg.json")
    assert len(cases) >= 8
    for case in cases:
        assert averages(case["avg0"], case["samples"], stat=stat) == case["avg"], case["name"]


@pytest.mark.parametrize("stat", [True, False], ids=["stat_runtime", "switches"])
def test_fixpoints_are_7_off_the_input(stat: bool) -> None:
    # x - 7 from below, x + 7 from above (section 3.1).
    assert averages(0, [10_000] * 120, stat=stat)[-1] == 9993
    assert averages(100_000, [1000] * 120, stat=stat)[-1] == 1007


def test_a1_preemption() -> None:
    # The vector's own events: out R+ at 1 ms, in at 1.4, S at 1.9, in at 2.5, R at 2.6, in at
    # 2.7, R+ at 2.8, in at 2.9, D at 3.0. Samples 1.5 ms and 0.3 ms: 187 500, then 201 562.
    got = run("""
           0  0   9  .  fork 10
           0  0   9  .  new 10 0
           0  0   9  .  switch S 10
        1000  0  10  .  switch R+ 11
        1400  0  11  .  switch S 10
        1900  0  10  .  switch S 11
        2400  1  20  .  waking 10 0
        2401  1  20  .  wakeup 10 0
        2500  0  11  .  switch S 10
        2600  0  10  .  switch R 11
        2700  0  11  .  switch S 10
        2800  0  10  .  switch R+ 11
        2900  0  11  .  switch S 10
        3000  0  10  .  switch D 11
        3500  1  20  .  waking 10 0
    """)
    _born, first, second = got.wakes(10)
    assert (first["wakee_dur_avg_ns"], second["wakee_dur_avg_ns"]) == (187_500, 201_562)
    assert got.task(10)["dur_samples"] == 2


def _jiffy(j: int, hz: int) -> int:
    """A time inside jiffy j (of an even lattice that starts at 0 with jiffy 0)."""
    return (j * 1_000_000_000 + 500_000_000) // hz


def flips(
    hz: int, start: tuple[int, int, str | None], wakes: list[tuple[int, str]]
) -> list[int | None]:
    """wakee_flips of waker 20 after each wake; wakees A, B, C are pids 31, 32, 33."""
    pids = {name: 31 + i for i, name in enumerate("ABC")}
    count, decay_ts, last = start
    state = StartState(
        tasks=(
            TaskSeed(
                20,
                wakee_flips=count,
                wakee_flip_decay_ts=decay_ts,
                last_wakee=None if last is None else pids[last],
            ),
        ),
        jiffies_now=0,
        at_ts=0,
        hz=hz,
    )
    # Each wakee runs and blocks before it is woken again, on a CPU of its own.
    rows: list[tuple[int, int, int, EventKind, int, int]] = []
    for jiffy, name in wakes:
        t = _jiffy(jiffy, hz)
        pid = pids[name]
        cpu = pid - 30
        rows.append((t, 0, 20, EventKind.WAKING, pid, cpu))
        rows.append((t + 10, 0, 20, EventKind.WAKEUP, pid, cpu))
        rows.append((t + 20, cpu, 0, EventKind.SWITCH, 0, pid))
        rows.append((t + 30, cpu, pid, EventKind.SWITCH, pid, 0))
    out = _rows(len(rows))
    for i, (ts, cpu, pid, kind, subject, to) in enumerate(rows):
        out.ts[i], out.cpu[i], out.pid[i], out.kind[i] = ts, cpu, pid, kind
        out.subject[i] = subject
        if kind == EventKind.SWITCH:
            out.other[i] = to
            out.state[i] = 0 if subject == 0 else State.SLEEP
        else:
            out.cpu_to[i] = to
    timeline: Timeline = build(out, start=state)
    assert timeline.hz == hz
    got = Run(timeline)
    after = got.tables["wakeups"].column("waker_flips").to_pylist()
    assert got.task(20)["wakee_flips"] == after[-1]
    return after


@pytest.mark.parametrize("name", A2)
def test_a2_excerpt(name: str) -> None:
    hz, start, wakes, after = A2[name]
    assert flips(hz, start, wakes) == [f for f, _ in after]


def test_a2_whole_vector() -> None:
    cases = [case for case in _cases("a2_wakee_flips.json") if case["mode"] == "halve"]
    assert {case["HZ"] for case in cases} == {100, 250, 300, 1000}
    for case in cases:
        state = case["state0"]
        got = flips(
            case["HZ"],
            (state["flips"], state["ts"], state["last"]),
            [(j, name) for j, name in case["wakes"]],
        )
        assert got == [after[0] for after in case["after"]], case["name"]


@pytest.mark.parametrize("phase", [0, 1, 1_999_999, 3_999_999])
def test_ticks_are_counted_from_the_lattice_of_the_start_state(phase: int) -> None:
    # HZ 250: jiffies_now 1000 was read at at_ts, on a tick; a halving needs jiffies > ts + 250,
    # so 251 whole ticks of 4 ms after at_ts it comes, and 1 ns before it does not.
    at = 50_000 + phase
    due = at + 251 * 4_000_000
    for when, expected in ((due - 1, 8), (due, 4)):
        columns = events("""
            10  0  20  .  mark
            20  0  20  .  waking 31 1
        """)
        columns.ts[:] = (at - 10, when)
        start = StartState(
            tasks=(TaskSeed(20, wakee_flips=8, wakee_flip_decay_ts=1000, last_wakee=31),),
            jiffies_now=1000,
            at_ts=at,
        )
        timeline = build(columns, start=start, hz=250)
        assert timeline.wakeups.column("waker_flips").to_pylist() == [expected]


def test_unseeded_flips_are_unknown_but_changes_are_counted() -> None:
    got = run("""
        100  0  20  .  waking 31 1
        200  0  20  .  waking 32 2
        300  0  20  .  waking 33 3
    """)
    assert [w for pid in (31, 32, 33) for w in (got.wake(pid)["waker_flips"],)] == [None] * 3
    assert got.task(20)["wakee_flips"] is None
    # Whether the first was a change is not known.
    assert got.task(20)["flips_seen"] == 2


def test_flips_count_decided_wakeups_only() -> None:
    # Two wakes of one and the same vector step; the first finds its wakee running (on_rq).
    start = StartState(tasks=(TaskSeed(20, wakee_flips=7, last_wakee=33),), jiffies_now=0)
    got = run(
        """
         50  1   0  .  switch R 31
        100  0  20  .  waking 31 1
        101  0  20  .  wakeup 31 1
        110  1  31  .  switch S 0
        200  0  20  .  waking 31 1
        201  0  20  .  wakeup 31 1
        """,
        start=start,
    )
    assert [w["waker_flips"] for w in got.wakes(31)] == [7, 8]
    assert np.all(got.tables["wakeups"].column("waker_flips").is_valid())
