"""The rules themselves: their own cases, when they fire, what keeps them, how they load."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rules.test_path import case_of, random_state

from traceana.errors import UsageError
from traceana.rules import HEADINGS, describe, load, names
from traceana.rules._cases import run_case, state_of
from traceana.thresholds import tunables

ALL = names()


def test_the_library() -> None:
    assert set(ALL) >= {"recorded", "mainline", "sis_short_v5", "abel", "prev_cpu", "this_cpu"}


def test_listing_needs_no_compiler() -> None:
    code = (
        "import sys; from traceana.rules import names, describe;"
        "[describe(n) for n in names()];"
        "print(*({'numba', 'numpy', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("name", ALL)
def test_a_rule_describes_itself(name: str) -> None:
    text = describe(name)
    assert text.summary.endswith(".")
    assert tuple(text.sections) == HEADINGS
    assert all(text.sections.values())
    assert all(param.meaning for param in text.params)
    own = set(text.reasons[2:])
    assert own <= {case["reason"] for case in text.cases}, "a case for each reason"


@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in ALL for case in describe(name).cases]
)
def test_cases(name: str, case: dict[str, Any]) -> None:
    rule = load(name)
    outcome = run_case(rule, case)
    assert (outcome.cpu, outcome.reason) == (case["cpu"], case["reason"])
    if "blocked_by" in case:
        assert list(outcome.unmet) == case["blocked_by"]
    if outcome.reason in rule.reasons[2:] and not outcome.reason.endswith("_same"):
        assert any(not mask & _bits(rule, outcome.unmet) for mask in rule.places.values())


def _bits(rule: Any, unmet: tuple[str, ...]) -> int:
    order = list(rule.text.conditions)
    return sum(1 << order.index(name) for name in unmet)


def test_section_10_3(shared: Path) -> None:
    """The start state of the worked example: v5 keeps p0 on CPU0 (place B), not p2.

    CPU1 is booked for p0 (pending) when p2 is decided in the race-free order; in the
    recording p2 still saw it idle: neither matters to v5, p2' is not short.
    """
    a9 = json.loads((shared / "vectors" / "a9_worked_example.json").read_text())
    dur = a9["dur_avg_ns"]
    running = {int(cpu): task for cpu, task in a9["initial"]["running"].items()}
    machine = {
        "cpus": a9["topology"]["cpus"],
        "nr": [int(cpu in running) for cpu in range(8)],
        "curr_dur": [
            dur.get(running.get(cpu, ""), -1) if cpu in running else 0 for cpu in range(8)
        ],
        "nr_idle_scan": a9["nr_idle_scan"],
        "release": "6.2.0",
    }

    def ask(rule: str, wakee: str, cpu: int, **state: Any) -> tuple[int, str]:
        case = {
            "machine": {**machine, **state},
            "wakeup": {
                "this_cpu": cpu,
                "prev_cpu": a9["initial"]["asleep"][wakee],
                "recent_cpu": cpu,
                "wakee_dur": dur[wakee],
                "waker_flips": 0,
                "wakee_flips": 0,
                "recorded_cpu": 1,
            },
            "params": {"threshold_ns": a9["threshold_ns"]}
            if rule in ("sis_short_v5", "abel")
            else {},
        }
        outcome = run_case(load(rule), case)
        return outcome.cpu, outcome.reason

    choice = a9["expected"]["choice"]
    assert ask("sis_short_v5", "p0", 0) == (choice["v5"]["p0"], "place_b") == (0, "place_b")
    assert ask("sis_short_v5", "p2", 7) == (choice["v5"]["p2"], "recorded") == (1, "recorded")
    assert ask("abel", "p0", 0) == (choice["abel"]["p0"], "recorded")
    assert ask("abel", "p2", 7) == (choice["abel"]["p2"], "recorded")
    for wakee, cpu in (("p0", 0), ("p2", 7)):
        assert ask("mainline", wakee, cpu)[0] == choice["6.1"][wakee] == 1
        assert ask("recorded", wakee, cpu) == (1, "recorded")
        assert ask("prev_cpu", wakee, cpu)[0] == choice["prev_cpu_literal"][wakee]
        assert ask("this_cpu", wakee, cpu)[0] == choice["this_cpu_literal"][wakee]
    # p0's booking visible: budget 3 still reaches CPU2
    booked = [0, 1, 0, 0, 0, 0, 0, 0]
    assert ask("mainline", "p2", 7, pending=booked)[0] == choice["race_free"]["p2"] == 2


def test_gate_of_place_b(shared: Path) -> None:
    """Table of section 6.9: the largest nr_idle_scan with which place B fires."""
    rule = load("sis_short_v5")
    gates = json.loads((shared / "vectors" / "a5_nr_idle_scan.json").read_text())["gate_5nr_lt_3w"]
    assert len(gates) == 16
    for row in gates:
        w = row["w"]
        fires = []
        for scan in range(w + 1):
            case = {
                "machine": {"cpus": w, "nr": [1] * w, "curr_dur": [5000] * w, "nr_idle_scan": scan},
                "wakeup": {"this_cpu": 0, "prev_cpu": 0, "wakee_dur": 5000, "recorded_cpu": 1},
                "params": {"threshold_ns": 93_750},
            }
            if run_case(rule, case).reason == "place_b":
                fires.append(scan)
        largest = row["max_nr_idle_scan_that_passes"]
        assert fires == ([] if largest is None else list(range(1, largest + 1))), w


def states(seed: str, n: int) -> Any:
    rng = random.Random(seed)
    for _ in range(n):
        s, k, release = random_state(rng)
        case = case_of(s, k, release)
        if not s["forms"]["cluster_active"]:
            case["machine"].pop("cluster")
        case["wakeup"]["recorded_cpu"] = rng.randrange(s["n"])
        yield case


def ask(rule: Any, case: dict[str, Any], p: Any) -> tuple[int, str, int]:
    wakeups, machine = state_of(case)
    cpu, reason = rule.decide(wakeups[0], machine[0], p)
    return int(cpu), rule.reasons[reason], int(rule.blocked_by(wakeups[0], machine[0], p))


def test_v5_fires_exactly_where_no_condition_is_unmet() -> None:
    rule = load("sis_short_v5")
    p = np.array([375_000, 5, 3], dtype=np.int64)
    place_a, place_b = rule.places["a"], rule.places["b"]
    seen: dict[str, int] = {}
    alone: set[str] = set()
    for case in states("v5 fires", 5000):
        if case["wakeup"]["waker_load"] % 10 == 7:
            case["machine"]["nr_idle_scan"] = -1
        cpu, reason, bits = ask(rule, case, p)
        assert (reason == "place_b") == (bits & place_b == 0), case
        if reason != "place_b":
            assert reason.startswith("place_a") == (bits & place_a == 0), case
        if reason in ("recorded", "place_a_same"):
            assert cpu == case["wakeup"]["recorded_cpu"]
        if reason == "place_b":
            assert cpu == case["wakeup"]["this_cpu"]
        seen[reason] = seen.get(reason, 0) + 1
        alone |= set(rule.alone(bits))
    assert min(seen[reason] for reason in rule.reasons if reason != "mainline") > 5, seen
    # this_cpu idle implies that nobody is alone on it: never the only one
    assert set(rule.text.conditions) - alone <= {"a.this_busy"}


def test_abel_fires_exactly_where_no_condition_is_unmet() -> None:
    rule = load("abel")
    p = np.array([375_000], dtype=np.int64)
    seen: dict[str, int] = {}
    alone: set[str] = set()
    for case in states("abel fires", 4000):
        cpu, reason, bits = ask(rule, case, p)
        assert (reason == "abel") == (bits == 0), case
        if reason != "abel":
            assert cpu == case["wakeup"]["recorded_cpu"]
        if reason == "abel_same":
            assert rule.unmet(bits) == ["pulled"]
        seen[reason] = seen.get(reason, 0) + 1
        alone |= set(rule.alone(bits))
    assert min(seen[reason] for reason in rule.reasons if reason != "mainline") > 5, seen
    assert set(rule.text.conditions) == alone


@pytest.mark.parametrize(
    ("condition", "cure"),
    [
        ("b.wakee_short", lambda case: case["wakeup"].update(wakee_dur=1)),
        ("b.wakee_known", lambda case: case["wakeup"].update(wakee_dur=1)),
        ("b.gate", lambda case: case["machine"].update(nr_idle_scan=1)),
        ("b.scan", lambda case: case["machine"].update(nr_idle_scan=1)),
    ],
)
def test_the_only_unmet_condition_is_the_one(condition: str, cure: Any) -> None:
    rule = load("sis_short_v5")
    p = np.array([375_000, 5, 3], dtype=np.int64)
    found = 0
    for case in states("alone", 3000):
        if condition not in rule.alone(ask(rule, case, p)[2]):
            continue
        cure(case)
        # in an LLC of up to three CPUs the gate cannot open
        assert ask(rule, case, p)[1] == "place_b" or is_narrow(case), case
        found += 1
    assert found > 3


def is_narrow(case: dict[str, Any]) -> bool:
    this = case["wakeup"]["this_cpu"]
    llc = case["machine"]["llc"]
    return sum(x == llc[this] for x in llc) <= 3


def test_recorded_and_literal_rules() -> None:
    p = np.zeros(1, dtype=np.int64)
    recorded, prev, this = load("recorded"), load("prev_cpu"), load("this_cpu")
    for case in states("literal", 300):
        w = case["wakeup"]
        assert ask(recorded, case, p) == (w["recorded_cpu"], "recorded", 0)
        for rule, cpu in ((prev, w["prev_cpu"]), (this, w["this_cpu"])):
            allowed = cpu in w["allowed"]
            expected = (cpu, rule.name, 0) if allowed else (w["recorded_cpu"], "recorded", 1)
            assert ask(rule, case, p) == expected


def test_no_opinion_in_the_closed_loop() -> None:
    case = {"machine": {"cpus": 2}, "wakeup": {"this_cpu": 0, "prev_cpu": 1}}
    p = np.zeros(1, dtype=np.int64)
    assert ask(load("recorded"), case, p)[:2] == (-1, "mainline")


class TestParameters:
    def test_defaults_follow_the_machine(self) -> None:
        rule = load("sis_short_v5")
        assert list(rule.parameters(tunables("6.1.192", 8))) == [375_000, 5, 3]
        assert list(rule.parameters(tunables("6.12.117", 2))) == [175_000, 5, 3]

    def test_override(self) -> None:
        p = load("abel").parameters(tunables("6.1.192", 8), {"threshold_ns": 1})
        assert (p.dtype, list(p)) == (np.int64, [1])

    def test_a_rule_without_parameters(self) -> None:
        assert load("recorded").parameters(tunables(None, 8)).shape == (1,)

    @pytest.mark.parametrize(
        ("rule", "overrides", "message"),
        [
            ("abel", {"thresh": 1}, "no parameter 'thresh'; it has threshold_ns"),
            ("recorded", {"x": 1}, "it has none"),
            ("abel", {"threshold_ns": 2**63}, "out of range"),
        ],
    )
    def test_refused(self, rule: str, overrides: dict[str, int], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            load(rule).parameters(tunables("6.1.192", 8), overrides)


GOOD = '''"""A user's rule: CPU 0, always."""
from traceana.rules.interface import njit
import numpy as np
REASONS = ("recorded", "mainline", "zero")
@njit
def decide(w, m, p):
    return np.int32(0), np.uint8(2)
'''


class TestUserRules:
    def write(self, folder: Path, text: str) -> str:
        path = folder / "mine.py"
        path.write_text(text)
        return str(path)

    def test_any_integers_will_do(self, tmp_path: Path) -> None:
        rule = load(self.write(tmp_path, GOOD))
        case = {"machine": {"cpus": 2}, "wakeup": {"this_cpu": 1, "prev_cpu": 1}}
        assert run_case(rule, case).cpu == 0
        assert (rule.name, rule.text.summary) == ("mine", "A user's rule: CPU 0, always.")

    def test_a_plain_function_is_compiled(self) -> None:
        rule = load(str(Path(__file__).parent / "user_rules" / "sis_util_idle_core.py"))
        case = {"machine": {"cpus": 2}, "wakeup": {"this_cpu": 1, "prev_cpu": 1}}
        assert run_case(rule, case).cpu == 1

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("def decide(w, m, p:\n", "mine.py:1: "),
            ("x = 1\n", "no function decide"),
            ("def decide(w, m, p): return 0, 0\n", "REASONS must be names"),
            (GOOD.replace('"recorded", ', ""), "REASONS must be names"),
            (GOOD.replace('("recorded"', 'tuple(["recorded"') + "\n", "mine.py"),
            (GOOD + 'PARAMS = {"a": 3}\n', "must be .default, unit, meaning"),
            (GOOD + 'PARAMS = {"a": ("no_such", "", "x")}\n', "no tunable 'no_such'"),
            (GOOD + f'PARAMS = {{"a": ({2**70}, "", "x")}}\n', "out of range"),
            (GOOD + "CONDITIONS = []\n", "CONDITIONS must map"),
            (GOOD + "CASES = 3\n", "CASES must be"),
            (GOOD + "CASES = make()\n", "CASES must be written out"),
            ("\0" + GOOD, "mine.py"),
        ],
    )
    def test_files_of_another_form(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            describe(self.write(tmp_path, text))

    def test_one_that_fails_when_imported(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"mine.py: ZeroDivisionError"):
            load(self.write(tmp_path, GOOD + "1 / 0\n"))

    def test_one_that_cannot_be_compiled(self, tmp_path: Path) -> None:
        from traceana.rules.interface import UNCOMPILED

        if UNCOMPILED:
            pytest.skip("nothing is compiled with TRACEANA_JIT=0")
        text = GOOD.replace("np.int32(0)", "w.no_such_field")
        with pytest.raises(UsageError, match=r"decide cannot be compiled: .*no_such_field"):
            load(self.write(tmp_path, text))

    @pytest.mark.parametrize(
        ("rule", "message"),
        [
            ("sis_short", "did you mean sis_short_v5"),
            ("nonsense", "rules: abel, mainline"),
            ("interface", "no rule"),
            ("_state", "no rule"),
            ("../rules/abel", "no rule"),
            ("/no/such/rule.py", "does not exist"),
        ],
    )
    def test_no_such_rule(self, rule: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            load(rule)
