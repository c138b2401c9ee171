"""Values of which some are replaced: against the plain way, everything sorted anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceana.openloop import Bootstrap
from traceana.replaced import NULL, Recorded

SHARES = (0.5, 0.9, 0.99)


def plain(values: np.ndarray, share: float) -> int:
    return int(np.sort(values)[max(int(np.ceil(share * len(values))), 1) - 1])


def sides(
    values: np.ndarray, rows: np.ndarray, new: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Recorded, replaced, and which rows are in both."""
    after = values.copy()
    after[rows] = new
    keep = (values != NULL) & (after != NULL)
    return values[keep], after[keep], keep


@st.composite
def replacements(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    value = st.one_of(st.just(NULL), st.integers(-5, 60), st.integers(0, 10**12))
    values = np.array(draw(st.lists(value, min_size=1, max_size=200)), np.int64)
    rows = np.array(sorted(draw(st.sets(st.integers(0, len(values) - 1)))), np.int64)
    new = np.array([draw(value) for _ in rows], np.int64)
    return values, rows, new


@given(replacements())
def test_figures_are_exact(given: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    values, rows, new = given
    at = np.arange(len(values), dtype=np.int64) * 1000
    boot = Bootstrap(0, int(at[-1]) + 1, len(values))
    got = Recorded(boot, at, values).replace(rows, new, SHARES)
    before, after, _ = sides(values, rows, new)
    if not len(before):
        assert got == {}
        return
    assert list(got) == ["p50", "p90", "p99", "sum"]
    for share in SHARES:
        change = got[f"p{int(share * 100)}"]
        assert (change.recorded, change.estimated) == (plain(before, share), plain(after, share))
    assert (got["sum"].recorded, got["sum"].estimated) == (before.sum(), after.sum())


@given(replacements())
def test_intervals_hold_their_figures(given: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    values, rows, new = given
    at = np.arange(len(values), dtype=np.int64) * 1000
    boot = Bootstrap(0, int(at[-1]) + 1, len(values))
    for change in Recorded(boot, at, values).replace(rows, new, SHARES).values():
        if change.interval is None:
            continue
        assert change.interval[0] <= change.estimated <= change.interval[1]
        delta = change.estimated - change.recorded
        assert change.delta_interval is not None
        assert change.delta_interval[0] <= delta <= change.delta_interval[1]


@pytest.mark.parametrize("seed", range(5))
def test_each_draw_is_that_of_its_blocks(seed: int) -> None:
    """Few different values, so that each has its own bin: draws are exact, too."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 90, 600) * 7
    values[rng.random(600) < 0.05] = NULL
    at = np.sort(rng.integers(0, 10**9, 600))
    boot = Bootstrap(0, 10**9, len(values))
    rows = np.flatnonzero(rng.random(600) < 0.3)
    new = rng.integers(0, 120, len(rows)) * 5
    new[:7] = NULL
    recorded = Recorded(boot, at, values)
    known = values[rows] != NULL
    lost = new[known] == NULL
    got = recorded._draws(rows[known], values[rows][known], new[known], lost, SHARES)
    _, after, keep = sides(values, rows, new)
    block = boot.block_of(at)[keep]
    for side, of in zip(got, (values[keep], after), strict=True):
        for draw in (0, 17, 399):
            weights = boot.weights[draw].astype(int)
            whole = np.repeat(of, weights[block])
            assert side[draw, :-1].tolist() == [plain(whole, share) for share in SHARES]
            assert side[draw, -1] == whole.sum()


def test_nothing_replaced_is_no_change() -> None:
    at = np.arange(400, dtype=np.int64)
    recorded = Recorded(Bootstrap(0, 400, 400), at, at * at)
    none = np.zeros(0, np.int64)
    first = recorded.replace(none, none, SHARES)
    assert all(c.recorded == c.estimated and c.delta_interval == (0, 0) for c in first.values())
    assert recorded.replace(none, none, SHARES) is first
