"""Single steps against their vectors and against worked arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traceana._jit import njit
from traceana.rules import _path_kernels as path
from traceana.rules import load
from traceana.rules._cases import run_case
from traceana.rules._forms import forms_for
from traceana.rules._state import MAX_CPUS, allow, make_machine, make_wakeups

# Steps are compiled for calls from compiled code only.


@njit
def call_wide(waker: int, wakee: int, factor: int) -> bool:
    return path.flips_wide(waker, wakee, factor)


@njit
def call_wide_2013(waker: int, wakee: int, factor: int) -> bool:
    return path.flips_wide_2013(waker, wakee, factor)


@njit
def call_weights(a: Any, sync: bool, bias: bool) -> tuple[bool, int, int]:
    return path.compare_weights(a[0], a[1], a[2], a[3], sync, a[4], a[5], a[6], bias)


@njit
def call_allowed(w: Any, cpu: int) -> bool:
    return path.cpu_allowed(w, cpu)


@njit
def call_short(dur: int, threshold: int) -> bool:
    return path.short(dur, threshold)


def test_wake_wide_vectors(shared: Path) -> None:
    rows = json.loads((shared / "vectors" / "a3_wake_wide.json").read_text())["rows"]
    assert len(rows) == 72
    for row in rows:
        flips = row["waker"], row["wakee"], row["factor"]
        assert call_wide(*flips) == bool(row["new"]), row
        assert call_wide_2013(*flips) == bool(row["old"]), row


@pytest.mark.parametrize(
    ("waker", "wakee", "new", "old"),
    [
        (64, 8, True, False),
        (8, 64, True, False),
        (63, 8, False, False),
        (7, 10_000, False, False),
        (72, 9, True, False),  # the old test is strict: 72 > 8 * 9 is false
        (73, 9, True, True),
        (9, 73, True, False),
    ],
)
def test_wake_wide_worked(waker: int, wakee: int, new: bool, old: bool) -> None:
    assert call_wide(waker, wakee, 8) == new
    assert call_wide_2013(waker, wakee, 8) == old


def weights(row: dict[str, Any]) -> tuple[bool, int, int]:
    names = ("this_load", "curr_load", "prev_load", "task_load")
    rest = ("cap_this", "cap_prev", "imbalance_pct")
    a = np.array([row[name] for name in names + rest], dtype=np.int64)
    return call_weights(a, bool(row["sync"]), row["wa_bias"])


def test_weight_vectors(shared: Path) -> None:
    cases = json.loads((shared / "vectors" / "a6_wake_affine_weight.json").read_text())["cases"]
    assert len(cases) == 19
    for row in cases:
        pull, this_eff, prev_eff = weights(row)
        assert pull == (row["result"] == "this"), row
        if row["this_eff"] is not None:
            assert (this_eff, prev_eff) == (row["this_eff"], row["prev_eff"]), row


def test_weight_worked() -> None:
    """100 * 1080 = 108 * 1000: a tie is no opinion; one unit less pulls."""
    base = {"curr_load": 0, "prev_load": 1000, "task_load": 0, "sync": 0, "wa_bias": True}
    base |= {"cap_this": 1024, "cap_prev": 1024, "imbalance_pct": 117}
    assert weights(base | {"this_load": 1080}) == (False, 110_592_000, 110_592_000)
    assert weights(base | {"this_load": 1079})[0]
    # an SMT sibling: 100 * 1050 = 105 * 1000
    assert not weights(base | {"this_load": 1050, "imbalance_pct": 110})[0]


def test_the_weight_step_takes_the_bias_of_the_lowest_domain() -> None:
    """this 1060, prev 1000: 1060 < 1080 across cores, but not < 1050 between siblings."""
    rule = load("mainline")
    case: dict[str, Any] = {
        "machine": {"cpus": 2, "nr": [1, 1], "load": [1060, 1000], "nr_idle_scan": 0},
        "wakeup": {"this_cpu": 0, "prev_cpu": 1, "wakee_load": 0},
    }
    assert run_case(rule, case).cpu == 0
    case["machine"]["core"] = [0, 0]
    assert run_case(rule, case).cpu == 1


def test_unknown_loads_do_not_pull() -> None:
    case = {
        "machine": {"cpus": 2, "nr": [1, 1], "load": [-1, 1000], "nr_idle_scan": 0},
        "wakeup": {"this_cpu": 0, "prev_cpu": 1, "wakee_load": 0},
    }
    assert run_case(load("mainline"), case).cpu == 1


@pytest.mark.parametrize("cpu", [0, 63, 64, 127, 1023, MAX_CPUS - 1])
def test_allowed_bits(cpu: int) -> None:
    w = make_wakeups(1)[0]
    assert call_allowed(w, cpu)  # not restricted
    allow(w, [cpu])
    assert [c for c in (0, 62, 63, 64, 127, 128, 1023, MAX_CPUS - 1) if call_allowed(w, c)] == (
        [cpu]
    )


@pytest.mark.parametrize(
    ("dur", "expected"),
    [(-1, False), (0, False), (1, True), (374_999, True), (375_000, False)],
)
def test_short(dur: int, expected: bool) -> None:
    assert call_short(dur, 375_000) == expected


class TestMachine:
    def test_rings(self) -> None:
        # 8 CPUs, threads c and c + 4; two LLCs; CPU 6 offline
        machine = make_machine(
            8,
            forms=forms_for("6.1"),
            core=[0, 1, 2, 3, 0, 1, 2, 3],
            llc=[7, 7, 5, 5, 7, 7, 5, 5],
            online=[True] * 6 + [False, True],
        )
        m = machine[0]
        cpus = m["cpus"][:8]
        assert list(cpus["next_sibling"]) == [4, 5, 2, 7, 0, 1, 6, 3]
        assert list(cpus["first_sibling"]) == [0, 1, 2, 3, 0, 1, 6, 3]
        assert list(cpus["next_llc"]) == [1, 4, 3, 7, 5, 0, 6, 2]
        assert list(cpus["llc"]) == [0, 0, 1, 1, 0, 0, 1, 1]
        assert list(m["llcs"]["weight"][:2]) == [4, 3]
        assert list(m["llcs"]["first"][:2]) == [0, 2]
        assert (m["smt"], m["n_llcs"], m["cluster_active"]) == (1, 2, 0)

    def test_isolated_cpus_are_alone(self) -> None:
        m = make_machine(4, forms=forms_for("6.1"), isolated=[False, True, False, True])[0]
        assert m["n_llcs"] == 3
        assert list(m["llcs"]["weight"][:3]) == [2, 1, 1]
        assert len(set(m["cpus"]["zone"][:4])) == 3
        # a wakeup there: no domain, no search
        case = {
            "machine": {"cpus": 4, "nr": [0, 1, 0, 1], "isolated": [0, 1, 0, 1]},
            "wakeup": {"this_cpu": 0, "prev_cpu": 3},
        }
        assert run_case(load("mainline"), case).cpu == 3

    @pytest.mark.parametrize("n", [0, MAX_CPUS + 1])
    def test_size(self, n: int) -> None:
        with pytest.raises(ValueError, match="CPUs"):
            make_machine(n, forms=forms_for("6.1"))

    def test_columns_of_another_length(self) -> None:
        with pytest.raises(ValueError, match="3 CPUs given for 4"):
            make_machine(4, forms=forms_for("6.1"), core=[0, 1, 2])

    def test_the_largest(self) -> None:
        m = make_machine(MAX_CPUS, forms=forms_for("6.1"), llc=list(range(MAX_CPUS)))[0]
        assert m["n_llcs"] == MAX_CPUS


class TestForms:
    """Table B, rows 13 to 22."""

    def test_anchors(self) -> None:
        k510, k61, k612 = forms_for("5.10.223"), forms_for("6.1.192"), forms_for("6.12.117")
        assert (k510.prev_idle_answers, k61.prev_idle_answers) == (False, True)
        assert (k510.merged_search, k61.merged_search) == (False, True)
        assert (k510.budget_form, k61.budget_form) == (1, 2)
        assert (k510.recent_form, k61.recent_form) == (1, 2)
        assert (k61.sync_minus_delayed, k612.sync_minus_delayed) == (False, True)
        assert (k61.cluster, k612.cluster) == (False, True)
        assert not any(f.recent_checks_prev or f.approximate for f in (k510, k61, k612))

    def test_boundaries(self) -> None:
        assert not forms_for("5.14.21").scan_from_next
        assert forms_for("5.15.0").scan_from_next
        assert forms_for("5.19.9").budget_form == 1
        assert forms_for("6.0.0").budget_form == 2
        assert not forms_for("6.12.0").sync_minus_delayed
        assert forms_for("6.4.1").recent_checks_prev
        assert not forms_for("6.5.0").recent_checks_prev

    def test_not_known(self) -> None:
        assert forms_for(None).approximate
        assert forms_for("no release here").approximate
        assert forms_for("4.4.0").approximate
        assert forms_for(None).with_(approximate=False) == forms_for("6.1.192")

    def test_override(self) -> None:
        assert forms_for("6.1.192", budget_form=1).budget_form == 1
