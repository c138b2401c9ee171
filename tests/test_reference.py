"""Idle share, queue delays and placements of whole captures against independent figures.

The references (INDEX.json beside the captures, COUNTS.json beside the samples) were computed by
other tools from the texts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceana as ta

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "captures"
NULL = -(2**63)


def _cases() -> list[Any]:
    index = SHARED / "INDEX.json"
    if not index.exists():
        return []
    rows = json.loads(index.read_text())
    return [
        pytest.param(SHARED / name, row, id=name)
        for name, row in rows.items()
        if name.split("/")[0] in ("ab", "stock") and "idle_share" in row
    ]


CASES = _cases()


def compare(path: Path, row: dict[str, Any], topology: Path | None) -> None:
    """Fail where traceana's figures of a capture are not the reference's."""
    timeline = ta.open(path, topology=topology).timeline()
    cpus = timeline.cpus.to_pylist()
    span = timeline.last_ts - timeline.first_ts
    # The reference's span begins and ends with any event, ours with one of a known kind.
    assert timeline.first_ts == pytest.approx(row["first_ns"], abs=2000)
    assert timeline.last_ts == pytest.approx(row["last_ns"], abs=2000)
    idle = sum(c["idle_ns"] for c in cpus)
    # The reference takes CPUs without any event as idle: the "as if idle" bound.
    idle += sum(span for c in range(row["cpus"]) if c >= len(cpus) or not cpus[c]["events"])
    for c in cpus:
        assert c["idle_ns"] + c["busy_ns"] + c["unknown_ns"] == span
    assert idle / (span * row["cpus"]) == pytest.approx(row["idle_share"], abs=0.002)
    want = row["latency_wakeup_to_run_ns"]
    w = timeline.raw["wakeups"]
    delays = np.sort(w["delay"][(w["delay"] != NULL) & (w["wakeup"] != NULL)])
    assert len(delays) == pytest.approx(want["n"], rel=0.002, abs=3)
    assert delays[-1] == want["max"]
    for name, share in (("p50", 0.5), ("p90", 0.9)):
        assert np.quantile(delays, share) == pytest.approx(want[name], rel=0.02), name
    assert np.quantile(delays, 0.99) == pytest.approx(want["p99"], rel=0.05)


@pytest.mark.parametrize(("path", "row"), CASES)
def test_shared(path: Path, row: dict[str, Any]) -> None:
    shape = path.parent.parent / "cpus.lscpu-p.csv"
    compare(path, row, shape if shape.exists() else None)


def test_there_is_something_to_compare() -> None:
    if not CASES:
        pytest.skip("no ../shared beside the repository: its captures cannot be read")
    assert len(CASES) > 50
