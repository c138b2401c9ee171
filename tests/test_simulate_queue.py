"""The order of a run queue against a slow oracle, on random tasks of one CPU without any costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.sim_oracle import Queue, Task
from sim_cases import Case, flat, round_costs

from traceana._sim_state import COSTS, Op, Start
from traceana.schema import EventKind
from traceana.simulate import Model, simulate

END = 120_000_000
#: Odd lengths, so that no two things happen in one instant.
STRETCH = st.integers(1_000, 15_000_000)
SCRIPT = st.lists(st.tuples(STRETCH, st.integers(10_000, 40_000_000)), min_size=1, max_size=5)
WEIGHT = st.sampled_from([1024, 1024, 1024, 335, 3121, 15])


@pytest.mark.parametrize("eevdf", [False, True], ids=["cfs", "eevdf"])
@given(tasks=st.lists(st.tuples(SCRIPT, WEIGHT), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_switches_are_the_oracles(
    eevdf: bool, tasks: list[tuple[list[tuple[int, int]], int]]
) -> None:
    case = Case(flat(1))
    mine = []
    for i, (script, weight) in enumerate(tasks):
        steps: list[tuple[str, int]] = []
        for j, (run, nap) in enumerate(script):
            # Distinct remainders keep instants apart.
            steps += [("run", run * 97 + 13 * i + j), ("nap", nap * 89 + 7 * i + 3 * j + 1)]
            steps[-2:] = [
                ("run", steps[-2][1] // 97 * 10 + i),
                ("nap", steps[-1][1] // 89 * 10 + 5),
            ]
        steps.append(("run", 1_000_003 + 10 * i))
        case.add(
            [(Op.RUN if code == "run" else Op.NAP, ns) for code, ns in steps],
            cpu=0,
            state=Start.QUEUED,
            weight=weight,
        )
        mine.append(Task(steps, weight))
    model = Model(
        release="6.6.0" if eevdf else "6.1.192",
        costs=round_costs(dict.fromkeys(COSTS, 0)),
        tick_phase_ns=[0],
    )
    events = simulate(case.build(), model, end_ns=END).columns
    rows = events.kind == EventKind.SWITCH
    seen = list(zip(events.ts[rows].tolist(), (events.other[rows] - 101).tolist(), strict=True))
    seen = [(ts, max(who, -1)) for ts, who in seen]
    assert np.all(np.diff(events.ts) >= 0)
    assert seen == Queue(mine, eevdf=eevdf, tick=4_000_000).run(END)
