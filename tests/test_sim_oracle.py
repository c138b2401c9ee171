"""The machine model against its slow oracle: the same events, one by one, on random workloads."""

from __future__ import annotations

import random

import pytest
from sim_cases import Workload
from sim_oracle import Machine
from sim_random import RELEASES, SHAPES, random_model, random_work

from traceana._sim_types import EVENT
from traceana.simulate import Model, simulate

MS = 1_000_000


def compare(work: Workload, model: Model, *, end: int, seed: int, begin: int = 0) -> int:
    """Both ways; returns the number of events."""
    run = simulate(work, model, begin_ns=begin, end_ns=begin + end, seed=seed)
    columns = run.columns
    kernel = list(
        zip(*(getattr(columns, name).tolist() for name in EVENT.names or ()), strict=True)
    )
    oracle = Machine(work, model, seed=seed, begin=begin, end=begin + end)
    assert oracle.run() == kernel
    live = run.live
    assert [task.used for task in oracle.tasks] == live["used"].tolist()
    assert [task.steps for task in oracle.tasks] == live["steps"].tolist()
    assert [task.bursts for task in oracle.tasks] == live["bursts"].tolist()
    assert [task.tokens for task in oracle.tasks] == live["tokens"].tolist()
    assert [task.dur_avg for task in oracle.tasks] == live["dur_avg"].tolist()
    rows = run._state.machines[0]["llcs"][: len(oracle.scan)]
    assert list(oracle.scan.values()) == rows["nr_idle_scan"].tolist()
    assert list(oracle.hint.values()) == rows["idle_core"].tolist()
    # One draw more or less would show in the costs of the events behind it.
    assert oracle.draws == int(run._state.sim[0]["draws"])
    return len(kernel)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_random_workloads(release: str, shape: tuple[int, int, int]) -> None:
    for seed in range(2):
        r = random.Random(f"{release} {shape} {seed}")
        end = r.choice((1, 2, 5)) * MS
        work, model = random_work(r, shape, end), random_model(r, shape, release)
        compare(work, model, begin=seed * 7_000_003, end=end, seed=seed)
