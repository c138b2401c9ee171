"""`rules new` and `rules check`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traceana.rules import HEADINGS, describe, names
from traceana.rules._check import check
from traceana.rules._lint import faults
from traceana.rules._template import text_of
from traceana.rules.interface import UNCOMPILED

compiled = pytest.mark.skipif(UNCOMPILED, reason="TRACEANA_JIT=0 runs rules without compiling")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("new") / "my_rule.py"
    path.write_text(text_of("my_rule"))
    return path


def changed(fresh: Path, folder: Path, *pairs: tuple[str, str]) -> Path:
    text = fresh.read_text()
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "mine.py"
    path.write_text(text)
    return path


def test_what_new_writes_is_in_order(fresh: Path) -> None:
    found = check(str(fresh))
    assert found.ok, found.to_json()
    assert len(found.cases) == 5
    assert (found.problems, found.remarks) == ([], [])
    assert tuple(describe(str(fresh)).sections) == HEADINGS
    assert not faults(fresh.read_text())


@pytest.mark.parametrize("name", ["mainline", "sis_short_v5", "abel"])
def test_rules_of_the_library_are_in_order(name: str) -> None:
    found = check(name)
    assert name in names()
    assert found.ok, [c.problem for c in found.cases if c.problem] + found.problems


class TestForm:
    """Seen without running the cases differently."""

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("Source\n------", "Sauce\n------", "the docstring lacks Source"),
            ('REASONS = ("recorded", "mainline", "stays")', "REASONS = 3", "REASONS must be names"),
            ('(300_000, "ns", "short', '("no_such", "ns", "short', "no tunable 'no_such'"),
            ("CONDITIONS = {", "CONDITIONS = make({", "must be written out"),
            ("def decide(w, m, p", "def decides(w, m, p", "no function decide"),
            ("    prev = w.prev_cpu\n    if (", "    m.smt = 0\n    prev = w.prev_cpu\n    if (",
             "decide writes to m (m.smt)"),
        ],
    )  # fmt: skip
    def test_problems(self, fresh: Path, tmp_path: Path, old: str, new: str, said: str) -> None:
        text = fresh.read_text().replace(old, new)
        if "make(" in new:
            text = text.replace('the task on prev_cpu, if any, is short",\n}', 'x",\n})')
        if "decides" in new:
            text = text.replace("def decide(", "def decides(")
        path = tmp_path / "mine.py"
        path.write_text(text)
        found = check(str(path))
        assert not found.ok
        assert any(said in p and "mine.py" in p for p in found.problems), found.problems

    def test_what_is_left_out_is_a_remark(self, fresh: Path, tmp_path: Path) -> None:
        path = changed(
            fresh, tmp_path, ('"misses": "room"', '"cpu": 2, "reason": "recorded"'),
            ('"boundary": "threshold_ns",', ""),
        )  # fmt: skip
        found = check(str(path))
        assert found.ok
        assert found.remarks == [
            "no case \"misses\" condition 'room'",
            'no case is marked as a "boundary"',
        ]


class TestCases:
    def test_another_answer(self, fresh: Path, tmp_path: Path) -> None:
        path = changed(fresh, tmp_path, ("m.cpus[prev].nr <= 1", "m.cpus[prev].nr <= 0"))
        first, *others = check(str(path)).cases
        assert first.problem == "cpu is 2, expected 1; reason is recorded, expected stays"
        assert not any(case.problem for case in others)

    def test_a_condition_that_is_told_wrongly(self, fresh: Path, tmp_path: Path) -> None:
        path = changed(fresh, tmp_path, ("bits |= 1 << 1", "bits |= 1 << 2"))
        problems = [c.problem for c in check(str(path)).cases if c.problem]
        assert problems == ["room should be the only condition not met; not met are wakee_short"]

    def test_a_case_that_cannot_be(self, fresh: Path, tmp_path: Path) -> None:
        path = changed(fresh, tmp_path, ('{"cpus": 4,', '{"cpus": 0,'))
        assert all("the case cannot be built" in c.problem for c in check(str(path)).cases)

    @compiled
    def test_one_that_crashes_costs_itself_only(self, fresh: Path, tmp_path: Path) -> None:
        path = changed(
            fresh, tmp_path,
            ("    prev = w.prev_cpu\n    if (",
             "    prev = w.prev_cpu\n    if w.restricted != 0:\n        return 99, 2\n    if ("),
        )  # fmt: skip
        cases = check(str(path)).cases
        assert [bool(c.problem) for c in cases] == [False, True, False, False, False]
        assert "decide returned CPU 99; this machine has CPUs 0 to 3" in cases[1].problem

    def test_cases_are_asked_with_their_parameters(self, fresh: Path, tmp_path: Path) -> None:
        path = changed(
            fresh, tmp_path,
            ('"wakeup": {"wakee_dur": 300000},',
             '"wakeup": {"wakee_dur": 300000}, "params": {"threshold_ns": 300001},'),
        )  # fmt: skip
        problems = [c.problem for c in check(str(path)).cases if c.problem]
        assert len(problems) == 1
        assert "wakee_short should be the only condition not met" in problems[0]


class TestCommands:
    def test_new_does_not_overwrite(
        self, tmp_path: Path, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target = tmp_path / "mine.py"
        assert cli("rules", "new", target).status == 0
        target.write_text("x")
        ran = cli("rules", "new", target)
        assert (ran.status, "use --force to overwrite" in ran.err) == (2, True)
        assert target.read_text() == "x"
        assert cli("rules", "new", target, "--force").status == 0
        assert "mine.threshold_ns" in target.read_text()

    @pytest.mark.parametrize("name", ["My-Rule", "for", "1st", "abel", ""])
    def test_names_that_no_rule_has(self, name: str, cli: Callable[..., Any]) -> None:
        assert cli("rules", "new", name).status == 2

    def test_check_in_each_format(self, fresh: Path, cli: Callable[..., Any]) -> None:
        ran = cli("rules", "check", fresh, "--format", "json")
        assert (ran.status, ran.json["ok"], len(ran.json["cases"])) == (0, True, 5)
        assert ran.json["cases"][1]["found"]["blocked_by"] == ["allowed"]
        table = cli("rules", "check", fresh).out
        assert table.endswith(f"{fresh}: in order, 5 cases\n")

    def test_check_says_what_is_wrong(
        self, fresh: Path, tmp_path: Path, cli: Callable[..., Any]
    ) -> None:
        path = changed(fresh, tmp_path, ("w.prev_cpu\n    if (", "w.prev\n    if ("))
        ran = cli("rules", "check", path)
        assert ran.status == 6
        assert f"{path}:" in ran.out
        assert "w has no field 'prev'; did you mean prev_cpu?" in ran.out
        assert "1 problem, 0 cases" in ran.out
        assert cli("rules", "check", tmp_path / "no.py").status == 2
        assert cli("rules", "check").status == 2
        assert json.loads(cli("rules", "check", path, "--format", "json").out)["ok"] is False
