"""The order of a run queue against the slow oracle: one CPU without any costs, 0.12 s long."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_cases import Case, flat, round_costs
from test_sim_oracle import compare

from traceana._sim_state import COSTS, Op, Start
from traceana.simulate import Model

END = 120_000_000
STRETCH = st.integers(1_000, 15_000_000)
SCRIPT = st.lists(st.tuples(STRETCH, st.integers(10_000, 40_000_000)), min_size=1, max_size=5)
WEIGHT = st.sampled_from([1024, 1024, 1024, 335, 3121, 15])


@pytest.mark.parametrize("release", ["6.1.192", "6.6.0", "6.12.40"])
@given(tasks=st.lists(st.tuples(SCRIPT, WEIGHT), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_long_runs(release: str, tasks: list[tuple[list[tuple[int, int]], int]]) -> None:
    case = Case(flat(1))
    for script, weight in tasks:
        steps = [step for run, nap in script for step in ((Op.RUN, run), (Op.NAP, nap))]
        case.add([*steps, (Op.RUN, 1_000_003)], cpu=0, state=Start.QUEUED, weight=weight)
    model = Model(release=release, costs=round_costs(dict.fromkeys(COSTS, 0)), tick_phase_ns=[0])
    compare(case.build(), model, end=END, seed=1)
