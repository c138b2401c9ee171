"""Start vruntimes: who would have fallen behind before the recording began."""

from __future__ import annotations

import numpy as np

from traceana._sim_state import Start
from traceana._workload_lag import FAR_BEHIND_NS, start_lags

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
    # One that runs or waits has been placed already.
    assert _lags(slices, [Start.ASLEEP, Start.RUNNING]) == [0, 0]


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
