"""Settled captures: what stays as it was recorded, and how far random starts reach."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceana as ta
from traceana._closed_loop_settled import AT_REST, scattered
from traceana.calibrate import calibrate
from traceana.closed_loop import run_once
from traceana.rules.interface import UNCOMPILED
from traceana.simulate import Model
from traceana.workload import Workload, extract

pytestmark = pytest.mark.skipif(UNCOMPILED, reason="some minutes as plain Python")
MS = 1_000_000


def _made(shared: Path, name: str) -> tuple[Workload, Model]:
    ab = shared / "captures" / "ab"
    cap = ta.open(ab / name, topology=ab / name.split("/")[0] / "cpus.lscpu-p.csv")
    work = extract(cap)
    return work, calibrate(cap, work).model()


# capture; recorded idle share and wakeups/s
RECORDED = {
    "smt16/pp12/base-3.dat.xz": (0.322, 1403e3),
    "smt32/pp24/base-1.dat.xz": (0.404, 2328e3),
}


@pytest.mark.parametrize("name", RECORDED)
def test_pairs_that_have_found_their_places_keep_them(shared: Path, name: str) -> None:
    """In an LLC without budget nobody scans, and hot tasks are not pulled out of it."""
    work, model = _made(shared, name)
    f, run, _ = run_once(work, model, begin_ns=work.begin_ns, span_ns=work.span_ns)
    idle, rate = RECORDED[name]
    assert f.idle_share == pytest.approx(idle, abs=0.03)
    assert f.wakeups_per_s == pytest.approx(rate, rel=0.04)
    assert run.counters["pulls"] <= 20


# capture; idle share of the recorded runs with the rule (INDEX)
REACHED = {
    "smt16/pp12/base-1.dat.xz": (0.241, 0.311),
    "smt32/pp24/base-1.dat.xz": (0.253, 0.463),
}


@pytest.mark.parametrize("name", REACHED)
def test_random_starts_reach_what_was_recorded_with_the_rule(shared: Path, name: str) -> None:
    work, model = _made(shared, name)
    shares = []
    for start in (0, 3, 6, 7):
        f, _, _ = run_once(
            scattered(work, start + 1, start, 8), model.with_(rule="sis_short_v5", **AT_REST),
            seed=start + 1, begin_ns=work.begin_ns, span_ns=15 * MS, warm_up_ns=300 * MS,
        )  # fmt: skip
        assert f.idle_share is not None
        shares.append(f.idle_share)
    low, high = REACHED[name]
    assert min(shares) < high, "they are not all above"
    assert max(shares) > low, "nor below"
    assert all(low - 0.04 < share < high + 0.06 for share in shares)
