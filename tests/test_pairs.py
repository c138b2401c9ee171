"""Whose last_wakee is the waker: against record_wakee() written out."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceana.pairs import woke_back

TASK = st.integers(0, 4)


@given(
    st.lists(st.tuples(st.integers(-1, 4), TASK), max_size=60),
    st.dictionaries(TASK, TASK),
    st.randoms(),
)
def test_equals_record_wakee(
    wakes: list[tuple[int, int]], seeds: dict[int, int], rng: object
) -> None:
    last = dict(seeds)
    expected = []
    for waker, wakee in wakes:
        expected.append(int(waker >= 0 and last.get(wakee) == waker))
        if waker >= 0:
            last[waker] = wakee
    # Rows of the table need not be in the order of time.
    order = list(range(len(wakes)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    at = np.array([1000 + 10 * i for i in order], np.int64)
    waker = np.array([wakes[i][0] for i in order], np.int32)
    wakee = np.array([wakes[i][1] for i in order], np.int32)
    rows = np.arange(len(wakes))[::2]
    got = woke_back(at, waker, wakee, rows, seeds)
    assert got.tolist() == [expected[order[r]] for r in rows]
    assert got.dtype == np.uint8


def test_nothing() -> None:
    empty = np.zeros(0, np.int64)
    assert woke_back(empty, empty, empty, empty).shape == (0,)
