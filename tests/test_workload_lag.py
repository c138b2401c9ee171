"""Start vruntimes: who would have fallen behind before the recording began."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from traceana import synth
from traceana._sim_setup import State
from traceana._sim_state import Start
from traceana._workload_lag import FAR_BEHIND_NS, start_lags
from traceana.simulate import Model

SLICE = np.dtype([("task", "i4"), ("cpu", "i4"), ("start", "i8"), ("end", "i8")])
NULL = -(1 << 63)


def _slices(*rows: tuple[int, int, int, int]) -> np.ndarray:
    return np.array(list(rows), SLICE)


def _lags(slices: np.ndarray, states: list[int]) -> list[int]:
    return start_lags(slices, np.array(states), np.arange(len(states)), 2).tolist()


def test_a_small_client_beside_a_worker() -> None:
    # CPU 0: task 0 runs 90 of 100, task 1 runs 10. A moment there is run by a task of 90 in nine
    # cases of ten and of 10 in one: 82 beside task 1, which runs 10: less than half.
    slices = _slices((0, 0, 0, 90), (1, 0, 90, 100))
    assert _lags(slices, [Start.ASLEEP, Start.ASLEEP]) == [0, FAR_BEHIND_NS]
    # One that runs or waits is as far behind; how far at most is the machine's to say.
    assert _lags(slices, [Start.ASLEEP, Start.RUNNING]) == [0, FAR_BEHIND_NS]
    assert _lags(slices, [Start.ASLEEP, Start.UNBORN]) == [0, 0]


@pytest.mark.parametrize(
    # CFS: half of sched_latency, 24 ms of 8 CPUs; EEVDF: two slices of 3 ms, or a tick's.
    ("release", "bound"),
    [("6.1.192", -12_000_000), ("6.8.0", -6_000_000)],
)
def test_who_is_queued_starts_as_far_behind_as_the_kernel_lets_it(release: str, bound: int) -> None:
    work: Any = synth.make("pingpong", pairs=2)
    tasks = work.tasks.copy()
    tasks["state"][:3] = (Start.QUEUED, Start.RUNNING, Start.ASLEEP)
    tasks["vruntime"][:3] = FAR_BEHIND_NS
    work = dataclasses.replace(work, tasks=tasks)
    state = State(work, Model(release=release), seed=1, begin_ns=0, end_ns=1_000_000, truth_rows=1)
    # place_entity() sees to a sleeper when it is woken.
    assert state.live["v"][:3].tolist() == [bound, bound, FAR_BEHIND_NS]


def test_equals_do_not_fall_behind() -> None:
    # A pair on one CPU, in turn: both run 50 of 100.
    slices = _slices(*((i % 2, 0, 10 * i, 10 * i + 10) for i in range(10)))
    assert _lags(slices, [Start.ASLEEP, Start.ASLEEP]) == [0, 0]


def test_who_is_elsewhere_does_not_matter() -> None:
    # A hog on CPU 1, and a task that runs little, alone on CPU 0.
    slices = _slices((0, 1, 0, 1000), (1, 0, 0, 10))
    assert _lags(slices, [Start.RUNNING, Start.ASLEEP]) == [0, 0]


def test_open_and_foreign_slices_count_nothing() -> None:
    slices = _slices(
        (0, 0, NULL, 90), (0, 0, 5, NULL), (-1, 0, 0, 50), (1, 0, 0, 10), (0, 9, 0, 99)
    )
    assert _lags(slices, [Start.ASLEEP, Start.ASLEEP]) == [0, 0]
    assert _lags(_slices(), [Start.ASLEEP]) == [0]
