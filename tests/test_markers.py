"""--between: the span between two markers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import traceana as ta
from traceana.markers import markers
from traceana.parsers.registry import open_reader

SHARED = Path(__file__).resolve().parents[2] / "shared" / "captures" / "public"
Cli = Callable[..., Any]


def switch(us: int, prev: int, after: int) -> str:
    return (
        f"  t{prev}-{prev} [000] d.... 0.{us:06d}: sched_switch: prev_comm=t{prev} "
        f"prev_pid={prev} prev_prio=120 prev_state=S ==> next_comm=t{after} next_pid={after} "
        "next_prio=120\n"
    )


def mark(us: int, text: str) -> str:
    return f"  app-7 [001] ..... 0.{us:06d}: tracing_mark_write: {text}\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.txt"
    path.write_text(
        "# tracer: nop\n"
        + switch(100, 1, 2)
        + mark(150, "begin round=1 a=b")
        + switch(200, 2, 1)
        + switch(300, 1, 2)
        + mark(350, "end round=1")
        + switch(400, 2, 1)
        + mark(410, "begin round=2")
        + switch(500, 1, 2)
        + mark(600, "end \x1b[2J")
    )
    return path


def test_texts_are_kept_whole(trace: Path) -> None:
    texts = markers(open_reader(trace))["text"].to_pylist()
    assert texts == ["begin round=1 a=b", "end round=1", "begin round=2", "end \x1b[2J"]


@pytest.mark.parametrize(
    ("marks", "times"),
    [
        (("begin", "end"), [200, 300]),
        (("round=2", "end"), [500]),
        (("begin", "round=2"), [200, 300, 400]),
    ],
)
def test_only_what_lies_between(trace: Path, marks: tuple[str, str], times: list[int]) -> None:
    events = ta.open(trace, between=marks).events()
    assert [t // 1000 for t in events["ts"].to_pylist()] == times


def test_on_the_command_line(trace: Path, cli: Cli) -> None:
    ran = cli("tasks", trace, "--between", "begin", "end", "--format", "json")
    assert ran.status == 0, ran.err
    assert sum(t["switches"] for t in ran.json["tasks"]) == 2
    hidden = cli("tasks", trace, "--between", "begin", "end", "--redact", "--format", "json")
    assert [t["switches"] for t in hidden.json["tasks"]] == [
        t["switches"] for t in ran.json["tasks"]
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--between", "start", "end"), "'begin round=1 a=b'"),
        (("--between", "round=2", "begin"), r"'end \\x1b[2J'"),
        (("--between", "begin", "end", "--time", "0,1"), "give one of them"),
        (("--between", "begin"), "--between"),
    ],
)
def test_refusals_say_what_there_is(
    trace: Path, cli: Cli, words: tuple[str, ...], said: str
) -> None:
    ran = cli("tasks", trace, *words)
    assert ran.status == 2
    assert said in ran.err
    assert "\x1b" not in ran.err


def test_a_capture_without_markers(cli: Cli) -> None:
    sample = Path(__file__).resolve().parents[1] / "sample_traces" / "switch-only.dat.xz"
    ran = cli("tasks", sample, "--between", "a", "b")
    assert ran.status == 2
    assert "no markers" in ran.err


@pytest.mark.skipif(not SHARED.is_dir(), reason="no published captures here")
def test_markers_of_a_trace_dat() -> None:
    path = SHARED / "dat6-sched-load.dat.xz"
    found = markers(open_reader(path))
    assert found.num_rows == ta.open(path).counts["print"]
    assert found["text"][0].as_py().startswith("cpu_frequency_devlib:")
