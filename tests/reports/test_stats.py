"""The arithmetic of the sections against slow, obvious versions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from traceana.reports.context import NULL
from traceana.reports.stats import (
    integral_of_positive,
    log_edges,
    log_histogram,
    per_bin,
    spread,
)

spans = st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 400)), min_size=1, max_size=20)


@given(spans, st.integers(1, 13))
def test_per_bin_is_the_overlap_with_each_bin(given: list[tuple[int, int]], bins: int) -> None:
    start = np.array([a for a, _ in given])
    end = start + np.array([n for _, n in given])
    edges = np.linspace(100.0, 900.0, bins + 1)
    out = per_bin(start, end, (end - start).astype(float), edges)
    for i in range(bins):
        lo, hi = edges[i], edges[i + 1]
        want = sum(max(0.0, min(b, hi) - max(a, lo)) for a, b in zip(start, end, strict=True))
        assert abs(out[i] - want) < 1e-6


def test_per_bin_spreads_an_amount_evenly() -> None:
    edges = np.array([0.0, 10.0, 20.0])
    out = per_bin(np.array([5]), np.array([20]), np.array([3.0]), edges)
    assert np.allclose(out, [1.0, 2.0])


@given(spans)
def test_integral_of_positive_is_the_length_of_the_union(given: list[tuple[int, int]]) -> None:
    start = np.array([a for a, _ in given])
    end = start + np.array([n for _, n in given])
    times = np.concatenate([start, end])
    steps = np.repeat(np.array([1, -1]), len(start))
    t, integral = integral_of_positive(times, steps)
    covered = {x for a, b in zip(start, end, strict=True) for x in range(a, b)}
    assert int(integral[-1]) == len(covered)
    for at in (0, 250, 700):
        want = len([x for x in covered if x < at])
        assert abs(np.interp(at, t, integral) - want) < 1e-6


@given(st.lists(st.one_of(st.none(), st.integers(0, 50)), max_size=60))
def test_spread_is_of_values_that_occurred(values: list[int | None]) -> None:
    array = np.array([NULL if v is None else v for v in values], np.int64)
    s = spread(array)
    known = sorted(v for v in values if v is not None)
    assert s.n == len(known)
    if not known:
        assert (s.p50, s.max, s.at) == (None, None, -1)
        return
    assert s.max == known[-1]
    assert values.index(known[-1]) == s.at
    for q, got in ((0.5, s.p50), (0.9, s.p90), (0.99, s.p99), (0.999, s.p999)):
        assert got == next(v for i, v in enumerate(known, 1) if i >= q * len(known))


def test_spread_of_rows_names_the_row_of_the_whole() -> None:
    s = spread(np.array([9, 1, 5, 7]), np.array([1, 3]))
    assert (s.n, s.max, s.at) == (2, 7, 3)


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=50))
def test_log_histogram_loses_nothing(values: list[int]) -> None:
    array = np.array(values)
    edges = log_edges(array)
    counts, below = log_histogram(array, edges)
    assert int(counts.sum() + below) == len(values)
    weighed, light = log_histogram(array, edges, weights=array)
    assert np.isclose(weighed.sum() + light, array.sum())
    for i in np.flatnonzero(counts):
        inside: Any = [v for v in values if edges[i] <= v < edges[i + 1]]
        assert len(inside) == counts[i]
