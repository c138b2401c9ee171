"""Tunables by kernel release and CPU count (section 3.6 of the semantics)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from traceana.thresholds import parse_release, scaling_factor, tunables


def test_vectors(shared: Path) -> None:
    rows = json.loads((shared / "vectors" / "a7_thresholds.json").read_text())["rows"]
    assert len(rows) == 24
    for row in rows:
        given = {"scaling": row["mode"]}
        cfs = tunables("6.1.192", row["cpus"], **given)
        assert cfs.factor == row["factor"] == scaling_factor(row["cpus"], row["mode"])
        assert cfs.slice_ns == row["min_granularity"] == row["v1_v2_v3_thr"]
        assert cfs.latency_ns == row["latency"]
        assert cfs.wakeup_granularity_ns == row["wakeup_granularity"]
        assert cfs.short_threshold_ns == row["v4_v5_v6_v7_thr"]
        assert cfs.migration_cost_ns == row["v8_thr"]
        early = tunables("6.6.0", row["cpus"], **given)
        assert early.slice_ns == row["base_slice_750k (6.6..6.14)"]
        late = tunables("7.3.4", row["cpus"], **given)
        assert late.slice_ns == row["base_slice_700k (>=6.15 + stable)"]
        assert late.short_threshold_ns == row["thr_from_700k_div8"]


@pytest.mark.parametrize(
    ("cpus", "scaling", "factor"),
    [
        (1, "log", 1),
        (2, "log", 2),
        (3, "log", 2),
        (4, "log", 3),
        (7, "log", 3),
        (8, "log", 4),
        (512, "log", 4),
        (5, "linear", 5),
        (8, "linear", 8),
        (112, "linear", 8),
        (112, "none", 1),
        (0, "log", 1),
    ],
)
def test_factor(cpus: int, scaling: str, factor: int) -> None:
    assert scaling_factor(cpus, scaling) == factor


@pytest.mark.parametrize(
    ("release", "name", "unscaled", "assumed"),
    [
        ("5.10.223", "min_granularity", 750_000, 0),
        ("6.5.13", "min_granularity", 750_000, 0),
        ("6.6.1", "base_slice", 750_000, 1),
        ("6.11.0", "base_slice", 750_000, 0),
        ("6.12.5", "base_slice", 700_000, 1),
        ("6.12.117", "base_slice", 700_000, 0),
        ("6.14.2", "base_slice", 750_000, 0),
        ("6.15.0", "base_slice", 700_000, 0),
        (None, "min_granularity", 750_000, 1),
    ],
)
def test_slice_by_release(release: str | None, name: str, unscaled: int, assumed: int) -> None:
    t = tunables(release, 1)
    assert (t.slice_name, t.slice_ns, len(t.assumed)) == (name, unscaled, assumed)
    assert (t.latency_ns is None) == (name == "base_slice")


def test_a_measured_slice_is_taken_as_it_is() -> None:
    t = tunables("6.12.5", 64, slice_ns=1_500_001)
    assert (t.slice_ns, t.assumed) == (1_500_001, ())
    # 8 * dur < 1 500 001 holds up to 187 500, and so does dur < 187 501
    assert t.short_threshold_ns == 187_501


@pytest.mark.parametrize("bad", [{"scaling": "cubic"}, {"slice_ns": 0}, {"slice_ns": -5}])
def test_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"scaling|slice"):
        tunables("6.1.0", 8, **bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("6.1.0-37-amd64", (6, 1, 0)),
        ("5.10.223", (5, 10, 223)),
        ("7.3", (7, 3, 0)),
        ("Linux version 4.19.12-custom (gcc 12.2.0)", (4, 19, 12)),
        ("6.6.60-rt12", (6, 6, 60)),
        ("no number", None),
        ("", None),
    ],
)
def test_parse_release(text: str, release: tuple[int, int, int] | None) -> None:
    assert parse_release(text) == release
