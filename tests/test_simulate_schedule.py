"""Schedules worked out by hand, event by event: 4 CPUs, 6 tasks, under CFS and under EEVDF.

A and B play over CPUs 0 and 1, C runs once on CPU 2, E and F are hogs on CPU 3 where D wakes.
Costs are ROUND_COSTS; ticks come on CPU n at 100 (n + 1) µs + 4 ms k. 4 CPUs: factor 3, so min
granularity and slice are 2.25 ms, latency 18 ms, wakeup granularity 3 ms.
"""

from __future__ import annotations

from typing import Any

import pytest
from sim_cases import Case, flat, round_costs

from traceana import schema
from traceana._sim_state import Op, Start
from traceana.simulate import Model, simulate

MS = 1_000_000
A, B, C, D, E, F = range(101, 107)
SLEEP, DEAD = int(schema.State.SLEEP), int(schema.State.DEAD)


def _run(release: str) -> list[tuple[Any, ...]]:
    """(ts, cpu, event, subject, second number) of each event."""
    case = Case(flat(4))
    case.add(
        [(Op.RUN, 10_000), (Op.WAKE, 1), (Op.RUN, 5_000), (Op.BLOCK,)], cpu=0, state=Start.RUNNING
    )
    case.add(
        [(Op.BLOCK,), (Op.RUN, 4_000), (Op.WAKE, 3), (Op.RUN, 1_000), (Op.BLOCK,)],
        cpu=1,
        state=Start.ASLEEP,
    )
    case.add([(Op.RUN, 8_000), (Op.BLOCK,)], cpu=2, state=Start.RUNNING)
    case.add(
        [(Op.BLOCK,), (Op.RUN, 3_000), (Op.WAKE, 0), (Op.EXIT,)],
        cpu=3,
        state=Start.ASLEEP,
        vruntime=-20 * MS,
        cpus=[3],
    )
    case.add([(Op.RUN, 30 * MS), (Op.BLOCK,)], cpu=3, state=Start.RUNNING, cpus=[3])
    case.add([(Op.RUN, 30 * MS), (Op.BLOCK,)], cpu=3, state=Start.QUEUED, cpus=[3])
    model = Model(
        release=release,
        costs=round_costs(),
        tick_phase_ns=[100_000, 200_000, 300_000, 400_000],
    )
    rows = simulate(case.build(), model, end_ns=13 * MS).events.to_pylist()
    second = {
        schema.EventKind.SWITCH: "other",
        schema.EventKind.WAKING: "cpu_to",
        schema.EventKind.WAKEUP: "cpu_to",
        schema.EventKind.STAT_RUNTIME: "value",
    }
    return [
        (
            row["ts"],
            row["cpu"],
            schema.EventKind(row["kind"]).name.lower(),
            row["subject"],
            row[second[row["kind"]]],
            *([row["state"]] if row["kind"] == schema.EventKind.SWITCH else []),
        )
        for row in rows
    ]


# A wakes B after its 10 µs: look 0.2, seen 0.1, interrupt 0.1, idle exit 0.3 (with the 0.1 of the
# false idle), enqueue 0.1; the switch 0.4 later. A itself goes on 0.6 after its waking.
WOKEN_B = 10_000 + 200 + 100 + 100 + 300 + 100
B_RUNS = WOKEN_B + 400
A_SLEEPS = 10_000 + 600 + 5_000
# B wakes D on the busy CPU 3 after 4 µs, directly: look 0.2, the lock of the queue 0.3; what E has
# run by then is told by the CPU of B, which takes 0.1; enqueue 0.1. The whole wakeup takes 0.9.
WAKING_D = B_RUNS + 4_000
TOLD_E = WAKING_D + 200 + 300
WOKEN_D = TOLD_E + 100 + 100
B_SLEEPS = WAKING_D + 900 + 1_000

START = [
    (8_000, 2, "stat_runtime", C, 8_000),
    (8_300, 2, "switch", C, 0, SLEEP),
    (10_000, 0, "waking", B, 1),
    (WOKEN_B, 1, "wakeup", B, 1),
    (B_RUNS, 1, "switch", 0, B, 0),
    (WAKING_D, 1, "waking", D, 3),
    (A_SLEEPS, 0, "stat_runtime", A, A_SLEEPS),
    (TOLD_E, 1, "stat_runtime", E, TOLD_E),
    # The same instant: the lower CPU comes first.
    (A_SLEEPS + 300, 0, "switch", A, 0, SLEEP),
    (WOKEN_D, 1, "wakeup", D, 3),
]
#: B's run time counts from its enqueue, 0.1 before sched_wakeup.
B_ENDS = [
    (B_SLEEPS, 1, "stat_runtime", B, B_SLEEPS - (WOKEN_B - 100)),
    (B_SLEEPS + 300, 1, "switch", B, 0, SLEEP),
]


def _d_to_a(runs: int, clock: int, then: int, *, swap: bool) -> list[tuple[Any, ...]]:
    """D runs from `runs` on: 3 µs, wakes A, dies; CPU 3 goes on with `then`."""
    waking = runs + 3_000
    ends = waking + 600
    woken = waking + 800
    rows = [
        (runs, 3, "switch", E if then == F and swap else F, D, 0),
        (waking, 3, "waking", A, 0),
        (ends, 3, "stat_runtime", D, ends - clock),
        (woken, 0, "wakeup", A, 0),
        (ends + 300, 3, "switch", D, then, DEAD),
        (woken + 400, 0, "switch", 0, A, 0),
        # A's BLOCK had been ended by the wake: it goes to sleep for ever, its script is over.
        (woken + 400, 0, "stat_runtime", A, 500),
        (woken + 700, 0, "switch", A, 0, SLEEP),
    ]
    return rows


def test_cfs() -> None:
    # D slept with 20 ms of credit and is placed latency/2 = 9 ms before min_vruntime: more than
    # the 3 ms of wakeup granularity, so it preempts E, by an interrupt 0.1 later.
    preempted = WOKEN_D + 100
    runs = preempted + 400
    d_ends = runs + 3_000 + 600
    # Ticks tell what F has run: since D's dequeue, then for 4 ms each.
    ticks = [(400_000, 3, "stat_runtime", F, 400_000 - d_ends)]
    ticks += [(400_000 + k * 4 * MS, 3, "stat_runtime", F, 4 * MS) for k in (1, 2, 3)]
    expected = [
        *START,
        (preempted, 3, "stat_runtime", E, preempted - TOLD_E),
        *sorted(
            [*B_ENDS, *_d_to_a(runs, preempted, F, swap=True)],
            key=lambda row: row[0],
        ),
        # F (vruntime 0) comes before E (15.9 µs). At 8.4 ms it has run 8.38, at 12.4 more than
        # its slice of 18 / 2 = 9 ms.
        *ticks,
        (12_400_400, 3, "switch", F, E, 0),
    ]
    assert d_ends < 400_000
    assert _run("6.1.192") == expected


def test_eevdf() -> None:
    # All three have deadlines of about 2.25 ms; E is protected up to its own. Tick at 4.4 ms: E
    # stands at 4.4; V = 4.4 / 3: F (0, deadline 2.25) before D (0.008). At 8.4: F stands at 4.0;
    # V = (4.4 + 4.0 + 0.008) / 3 = 2.8: D alone is eligible. When it ends V = 4.2: F. At 12.4 F
    # stands at 8.0, past its deadline of 6.25; V = 6.2: E.
    expected = [
        *START,
        *B_ENDS,
        (400_000, 3, "stat_runtime", E, 400_000 - TOLD_E),
        (4_400_000, 3, "stat_runtime", E, 4 * MS),
        (4_400_400, 3, "switch", E, F, 0),
        (8_400_000, 3, "stat_runtime", F, 4 * MS),
        *_d_to_a(8_400_400, 8_400_000, F, swap=False),
        # F ran from D's dequeue on, 3.6 µs behind the switch.
        (12_400_000, 3, "stat_runtime", F, 4 * MS - 400 - 3_600),
        (12_400_400, 3, "switch", F, E, 0),
    ]
    assert _run("6.6.0") == expected


def test_what_is_off_the_queue_keeps_its_lag() -> None:
    """EEVDF: a task that slept with a debt is placed behind V by as much, scaled for its return."""
    case = Case(flat(1))
    # Both run on CPU 0; X naps after 3 ms, with V at (3 + 0) / 2 = 1.5: a lag of -1.5 ms.
    case.add([(Op.RUN, 3 * MS), (Op.NAP, 1 * MS), (Op.RUN, MS), (Op.BLOCK,)], cpu=0,
             state=Start.RUNNING)  # fmt: skip
    case.add([(Op.RUN, 50 * MS), (Op.BLOCK,)], cpu=0)
    run = simulate(
        case.build(),
        Model(release="6.6.0", costs=round_costs(dict.fromkeys(("ipi",), 0)), tick_phase_ns=[0]),
        end_ns=3 * MS + 500,
    )
    run.finish()
    assert run.live["lag"][0] == -(3 * MS) // 2


@pytest.mark.parametrize("release", ["6.1.192", "6.6.0", "6.12.40"])
def test_weights_share_the_cpu(release: str) -> None:
    """Two hogs of nice 0 and nice 5 (335): 1024 to 335 of the time, within a slice or two."""
    case = Case(flat(1))
    case.add([(Op.RUN, 900 * MS), (Op.BLOCK,)], cpu=0, state=Start.RUNNING)
    case.add([(Op.RUN, 900 * MS), (Op.BLOCK,)], cpu=0, weight=335, prio=125)
    run = simulate(case.build(), Model(release=release, costs=round_costs()), end_ns=800 * MS)
    run.finish()
    first, second = (int(x) for x in run.live["sum_exec"])
    assert first + second == pytest.approx(800 * MS, rel=0.01)
    assert first / second == pytest.approx(1024 / 335, rel=0.1)


def test_a_wakeup_during_a_switch_meets_the_next_task() -> None:
    """From the choice to the record of the switch the queue is locked: who comes then meets B.

    A blocks at 10 µs, its switch takes 5. R, real-time, is woken by CPU 1 at 11.0 and enqueued at
    11.6: it preempts B as soon as B is there, at 15.0 and 0.4 more for the switch. B's run time
    counts from schedule(); A, told about at 10, is not told about again (section 7.8-4).
    """
    case = Case(flat(2))
    case.add([(Op.RUN, 10_000), (Op.BLOCK,)], cpu=0, state=Start.RUNNING, cpus=[0])
    case.add([(Op.RUN, MS)], cpu=0, cpus=[0])
    case.add([(Op.BLOCK,), (Op.RUN, 20_000), (Op.BLOCK,)], cpu=0, state=Start.ASLEEP, cpus=[0],
             prio=50)  # fmt: skip
    case.add([(Op.RUN, 11_000), (Op.WAKE, 2), (Op.RUN, MS)], cpu=1, state=Start.RUNNING, cpus=[1])
    model = Model(costs=round_costs({"switch_out": 5_000}), tick_phase_ns=[MS] * 2)
    rows = simulate(case.build(), model, end_ns=30_000).events.to_pylist()
    kinds = [
        (row["ts"], schema.EventKind(row["kind"]).name.lower(), row["subject"])
        for row in rows
        if row["cpu"] == 0 or row["kind"] == schema.EventKind.WAKEUP
    ]
    assert kinds == [
        (10_000, "stat_runtime", A),
        (11_600, "wakeup", C),
        (15_000, "switch", A),
        (15_000, "stat_runtime", B),
        (15_400, "switch", B),
    ]
