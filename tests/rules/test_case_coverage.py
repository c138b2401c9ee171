"""What each rule's CASES must hold: one that fires, one that misses by each condition, the limit.

Checked mechanically, so that a new rule or a new condition cannot go without.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from traceana.rules import describe, load, names
from traceana.rules._cases import run_case, state_of
from traceana.rules._state import WAKEUP
from traceana.thresholds import tunables

ALL = names()
CONDITIONAL = [name for name in ALL if describe(name).conditions]
#: Limits to which no "one more, one less" belongs: whether a CPU is allowed.
YES_OR_NO = {"prev_cpu", "this_cpu"}


def leaves(value: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """Each number of a case's state by where it stands."""
    if isinstance(value, dict):
        parts: Any = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    else:
        return {path: value}
    return {k: v for key, part in parts for k, v in leaves(part, (*path, key)).items()}


def state(case: dict[str, Any]) -> dict[tuple[Any, ...], Any]:
    return leaves({part: case.get(part, {}) for part in ("machine", "wakeup", "params")})


@pytest.mark.parametrize("name", CONDITIONAL)
def test_one_case_fires(name: str) -> None:
    own = set(describe(name).reasons[2:])
    fired = {r for r in own if not r.endswith("_same")}
    reasons = {case["reason"] for case in describe(name).cases}
    assert fired & reasons
    assert own <= reasons, "a case for each reason"


@pytest.mark.parametrize("name", CONDITIONAL)
def test_each_condition_alone_keeps_a_case_from_firing(name: str) -> None:
    rule = load(name)
    order = list(rule.text.conditions)
    missed = set()
    for case in rule.text.cases:
        if "misses" not in case:
            continue
        outcome = run_case(rule, case)
        bits = sum(1 << order.index(c) for c in outcome.unmet)
        assert case["misses"] in rule.alone(bits), (case["name"], outcome.unmet)
        assert outcome.reason == "recorded" or outcome.reason.endswith("_same"), case["name"]
        assert outcome.cpu == case["wakeup"]["recorded_cpu"], case["name"]
        missed.add(case["misses"])
    assert missed == set(order)


@pytest.mark.parametrize("name", [n for n in CONDITIONAL if n not in YES_OR_NO])
def test_the_limit_is_a_pair_of_cases_one_apart(name: str) -> None:
    cases = {case["name"]: case for case in describe(name).cases}
    limits = set()
    for case in cases.values():
        if "boundary" not in case:
            continue
        other = cases[case["like"]]
        a, b = state(case), state(other)
        differ = [
            k for k in a.keys() | b.keys() if a.get(k) != b.get(k) and k[-1] != "recorded_cpu"
        ]
        assert len(differ) == 1, (case["name"], differ)
        assert abs(a[differ[0]] - b[differ[0]]) == 1, case["name"]
        assert case["reason"] != other["reason"], case["name"]
        limits.add(case["boundary"])
        limit = case.get("params", {}).get(case["boundary"])
        if case["boundary"].endswith("_ns"):
            assert limit in (a[differ[0]], b[differ[0]]), "one of the two is the limit itself"
    assert limits
    timed = {p.name for p in describe(name).params if p.unit == "ns"}
    assert timed <= limits


@pytest.mark.parametrize("name", ALL)
def test_the_closed_loop_answers_in_every_state_of_the_cases(name: str) -> None:
    """Without a recording the whole path decides: a CPU that is allowed, or "ask mainline"."""
    rule = load(name)
    for case in rule.text.cases:
        wakeups, machine = state_of(case)
        wakeups[0]["recorded_cpu"] = -1
        p = rule.parameters(tunables("6.1.192", int(machine[0]["n_cpus"])), case.get("params"))
        cpu, reason = rule.decide(wakeups[0], machine[0], p)
        assert 0 <= reason < len(rule.reasons)
        allowed = case["wakeup"].get("allowed", range(case["machine"]["cpus"]))
        assert cpu in allowed or (cpu, reason) == (-1, 1), case["name"]
        if not case["reason"].endswith("_same") and case["reason"] in rule.reasons[2:]:
            assert rule.reasons[reason] == case["reason"], case["name"]


@pytest.mark.parametrize("name", ALL)
def test_a_rule_leaves_the_machine_as_it_was(name: str) -> None:
    rule = load(name)
    for case in rule.text.cases:
        wakeups, machine = state_of(case)
        p = rule.parameters(tunables("6.1.192", int(machine[0]["n_cpus"])), case.get("params"))
        before, asked = machine.tobytes(), wakeups.copy()
        rule.decide(wakeups[0], machine[0], p)
        rule.blocked_by(wakeups[0], machine[0], p)
        assert machine.tobytes() == before, case["name"]
        given = WAKEUP.names[: WAKEUP.names.index("target")]
        for field in given:
            assert np.array_equal(wakeups[0][field], asked[0][field]), (case["name"], field)
