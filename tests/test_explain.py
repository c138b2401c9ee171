"""whatif --explain and wakeups --moved-by: the same answers as whatif, told one by one."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rules.test_path import case_of, random_state

import traceana as ta
from traceana import _explain_kernels as k
from traceana._explain_text import path_steps
from traceana.errors import UsageError
from traceana.explain import Story, explain, moved_by
from traceana.rules import load
from traceana.rules._cases import run_case, state_of
from traceana.rules.interface import UNCOMPILED

SAMPLE = Path(__file__).resolve().parents[1] / "sample_traces" / "sch-truth.dat.xz"
RULES = ("mainline", "sis_short_v5", "abel", "prev_cpu")

pytestmark = pytest.mark.skipif(UNCOMPILED, reason="minutes with TRACEANA_JIT=0")


@pytest.fixture(scope="module")
def cap() -> ta.Capture:
    return ta.open(SAMPLE, time=("0%", "15%"))


@pytest.fixture(scope="module")
def decided(cap: ta.Capture) -> list[dict[str, Any]]:
    """Rows of the decisions table."""
    return ta.whatif(cap, RULES).decisions.to_pylist()


def story_of(cap: ta.Capture, decided: list[dict[str, Any]], at: float) -> Story:
    ids = sorted({d["wakeup"] for d in decided})
    return explain(cap, ids[int(at * (len(ids) - 1))], RULES)


@pytest.mark.parametrize("at", [0.3, 0.9])
def test_answers_are_those_of_whatif(
    cap: ta.Capture, decided: list[dict[str, Any]], at: float
) -> None:
    story = story_of(cap, decided, at)
    expected = {d["rule"]: d for d in decided if d["wakeup"] == story.wakeup["wakeup"]}
    assert [a["rule"] for a in story.answers] == list(RULES)
    for answer in story.answers:
        row = expected[answer["rule"]]
        assert (answer["cpu"], answer["reason"], answer["moved"]) == (
            row["cpu"], row["reason"], row["moved"],
        )  # fmt: skip
    # The kernel's own path ends where mainline says.
    last = [s["cpu"] for s in story.path if s["cpu"] is not None][-1]
    assert last == story.answers[0]["path"]["cpu"]


def test_the_state_is_the_wakeups(cap: ta.Capture, decided: list[dict[str, Any]]) -> None:
    story = story_of(cap, decided, 0.5)
    (row,) = [
        r for r in cap.timeline().wakeups.to_pylist() if r["wakeup"] == story.wakeup["wakeup"]
    ]
    assert story.wakeup["waking_ts"] == row["waking_ts"]
    for name in ("this_cpu", "prev_cpu"):
        assert story.wakeup[name] == row[name]
    assert story.wakeup["wakee"]["task"] == row["wakee"]
    for name in ("wakee_dur_avg_ns", "waker_dur_avg_ns", "wakee_flips", "waker_flips"):
        assert story.state[name] == row[name]
    this = next(c for c in story.state["cpus"] if c["cpu"] == row["this_cpu"])
    if row["context"] == 0:
        assert not this["idle"]
        assert this["current"]["task"] == row["current"]
    assert all(c["idle"] == (c["nr_running"] == 0 and not c["pending"]) or not c["idle"]
               for c in story.state["cpus"])  # fmt: skip


def test_text_and_json(cap: ta.Capture, decided: list[dict[str, Any]]) -> None:
    story = story_of(cap, decided, 0.5)
    text, document = story.to_text(), json.loads(json.dumps(story.to_json()))
    for heading in ("State, as rebuilt", "The kernel's own path", "Rules", "WF_SYNC", "wake_wide"):
        assert heading in text
    for answer in document["rules"]:
        assert f"\n  {answer['rule']}: " in text
        for name, meaning in answer["unmet"].items():
            assert f"not met: {name} ({meaning})" in text
    assert document["kind"] == "explained, open loop"
    assert document["path"][0]["step"] == "wake_wide"


def test_a_time_means_the_first_decision_from_then_on(
    cap: ta.Capture, decided: list[dict[str, Any]]
) -> None:
    wakeups = {r["wakeup"]: r["waking_ts"] for r in cap.timeline().wakeups.to_pylist()}
    ids = sorted({d["wakeup"] for d in decided}, key=lambda i: wakeups[i])
    ts = wakeups[ids[10]]
    story = explain(cap, f"{ts // 10**9}.{ts % 10**9:09d}", ["recorded"])
    assert story.wakeup["waking_ts"] == ts


def test_what_cannot_be_explained(cap: ta.Capture, decided: list[dict[str, Any]]) -> None:
    have = {d["wakeup"] for d in decided}
    rows = cap.timeline().wakeups.to_pylist()
    without = next(r["wakeup"] for r in rows if r["wakeup"] not in have)
    for wakeup, said in (
        (10**9, "no such wakeup; they are 0 to"),
        (str(2**70), "no such wakeup"),
        (without, "has no decision to explain: "),
        ("tomorrow", "give a wakeup's id"),
        ("1e300", "give a wakeup's id"),
        ("nan", "give a wakeup's id"),
        ("99999.5", "no decision from then on"),
    ):
        with pytest.raises(UsageError, match=said):
            explain(cap, wakeup, ["recorded"])


def test_steps_and_path_agree_on_random_states() -> None:
    """The reasons in words are those of the steps: none says no to an idle CPU."""
    mainline = load("mainline")
    ended: set[str] = set()
    for seed in range(300):
        case = case_of(*random_state(random.Random(seed)))
        case["wakeup"]["recorded_cpu"] = -1
        w, m = state_of(case)
        out = np.zeros(len(k.PATH), np.int64)
        k.walk(w, m, out)
        path = dict(zip(k.PATH, out.tolist(), strict=True))
        steps = path_steps(path, w[0], m[0])
        assert [s["cpu"] for s in steps if s["cpu"] is not None][-1] == path["cpu"]
        assert path["cpu"] == run_case(mainline, {**case}).cpu
        for s in steps:
            if s["answer"] == "no" and s["step"] == "target idle":
                assert re.search("is busy|is pending|SCHED_IDLE tasks only", s["why"])
        ended.add(steps[-1]["step"])
    assert len(ended) >= 4


class TestMovedBy:
    def test_the_same_as_whatif(self, cap: ta.Capture, decided: list[dict[str, Any]]) -> None:
        table = moved_by(cap, "prev_cpu")
        expected = [
            (d["wakeup"], d["cpu"], d["reason"])
            for d in decided
            if d["rule"] == "prev_cpu" and d["moved"]
        ]
        assert expected
        rows = [(r["wakeup"], r["rule_cpu"], r["rule_reason"]) for r in table.to_pylist()]
        assert rows == expected

    def test_all_formats(self, cli: Callable[..., Any]) -> None:
        def run(form: str) -> Any:
            return cli(
                "wakeups", SAMPLE, "--time", "0%-2%", "--moved-by", "prev_cpu", "--format", form
            )

        rows = run("json").json["wakeups"]
        assert rows
        assert all(r["rule_cpu"] == r["prev_cpu"] != r["placed_cpu"] for r in rows)
        assert {r["rule_reason"] for r in rows} == {"prev_cpu"}
        lines = [json.loads(x) for x in run("ndjson").out.splitlines()]
        table = list(csv.DictReader(io.StringIO(run("csv").out)))
        ids = [r["wakeup"] for r in rows]
        assert [x["wakeup"] for x in lines] == ids == [int(r["wakeup"]) for r in table]
        assert "estimated, open loop" in run("table").out
        assert run("md").out.startswith("| id |")

    def test_explain_on_the_command_line(self, cli: Callable[..., Any]) -> None:
        for form in ("table", "md", "csv", "ndjson"):
            ran = cli(
                "whatif", SAMPLE, "--time", "0%-2%", "--rule", "abel", "--explain", "0.0",
                "--format", form,
            )  # fmt: skip
            assert ran.status == 0, ran.err
            assert "wake_wide" in ran.out
        ran = cli("whatif", SAMPLE, "--time", "0%-2%", "--explain", "x")
        assert (ran.status, "give a wakeup's id" in ran.err) == (2, True)
