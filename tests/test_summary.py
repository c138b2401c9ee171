"""Small tables for a reader: percentiles that occurred, groups that add up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceana import schema, summary


@given(st.lists(st.integers(0, 10**12), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_percentile_is_the_smallest_value_that_covers_the_share(
    values: list[int], q: float
) -> None:
    got = summary.percentile(np.sort(np.array(values, np.int64)), q)
    covering = [v for v in values if sum(x <= v for x in values) >= q * len(values)]
    assert got == min(covering)


def test_percentile_of_nothing() -> None:
    assert summary.percentile(np.array([], np.int64), 0.5) is None


def _wakeups(rows: list[dict[str, object]]) -> pa.Table:
    blank: dict[str, object] = {c.name: None for c in schema.WAKEUPS.columns}
    sure = {"kind": 0, "context": 0, "queueing": 0, "quality": 0, "wakee": 0}
    made = [{**blank, **sure, "wakeup": i, **row} for i, row in enumerate(rows)]
    return pa.Table.from_pylist(made, schema=schema.WAKEUPS.schema)


TASKS = pa.table(
    {
        "task": pa.array([0, 1], pa.int32()),
        "pid": pa.array([10, 11], pa.int32()),
        "comm": ["a", None],
        "group": ["pair", None],
    }
)
WAKEUPS = _wakeups(
    [
        {"wakee": 0, "waker": 1, "run_ts": 5, "wakeup_ts": 1, "queue_delay_ns": 4, "ran_cpu": 3,
         "placed_cpu": 3, "placed_idle": True},
        {"wakee": 1, "waker": None, "run_ts": 19, "wakeup_ts": 10, "queue_delay_ns": 9,
         "ran_cpu": 2, "placed_cpu": 1, "placed_idle": False, "queueing": 1},
        {"wakee": 1, "waker": 0, "wakeup_ts": 30, "placed_cpu": 1},
    ]
)  # fmt: skip


def test_all_wakeups() -> None:
    rows = {r["latency"]: r for r in summary.latency_rows(WAKEUPS, TASKS)}
    assert rows.keys() == summary.LATENCIES.keys()
    delay = rows["queue_delay"]
    assert (delay["n"], delay["p50_ns"], delay["max_ns"]) == (2, 4, 9)
    assert (delay["max_at_ns"], delay["max_cpu"], delay["max_pid"]) == (19, 2, 11)
    assert delay["max_task"] is None  # never named
    assert rows["wakeup_latency"]["n"] == 0 and rows["wakeup_latency"]["p50_ns"] is None


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("wakee", {"a:10": 1, "?:11": 2}),
        ("waker", {"a:10": 1, "?:11": 1, "unknown": 1}),
        ("pair", {"?:11 -> a:10": 1, "unknown -> ?:11": 1, "a:10 -> ?:11": 1}),
        ("workload", {"pair": 1, "none": 2}),
        ("cpu", {"cpu 1": 2, "cpu 3": 1}),
        ("target", {"idle cpu": 1, "busy cpu": 1, "unknown": 1}),
        ("queueing", {"direct": 2, "remote": 1}),
        ("kind", {"decided": 3}),
        ("context", {"task": 3}),
    ],
)
def test_groups(by: str, groups: dict[str, int]) -> None:
    found = {name: len(rows) for name, rows in summary.GROUPINGS[by](WAKEUPS, TASKS)}
    assert found == groups
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_rows_have_names_and_words() -> None:
    first, second, _ = summary.wakeup_rows(WAKEUPS, TASKS)
    assert (first["wakee"], first["wakee_pid"], first["waker_pid"]) == ("a", 10, 11)
    assert (second["waker"], second["queueing"], second["kind"]) == (None, "remote", "decided")
