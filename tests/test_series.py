"""A load series: what names say, the knee, one bad file, the figure."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import traceana as ta
from traceana._race_blocks import Range
from traceana._race_verdict import Thresholds
from traceana.errors import UsageError
from traceana.race import Race, race
from traceana.series import Knee, Label, Point, _knees, captures_in, series

Cli = Callable[..., Any]


@pytest.mark.parametrize(
    ("template", "path", "parts"),
    [
        ("pp{n}/base-*", "/x/ab/smt8/pp6/base-1.dat.xz", {"n": 6}),
        ("pp-*-{n}", "pp-base-12.dat", {"n": 12}),
        ("{shape}/pp{n}/{rule}-{run}", "smt8/pp24/short-2.dat", {"shape": "smt8", "n": 24,
         "rule": "short", "run": 2}),
        ("load-{load}", "load-0.75.perf.data.zst", {"load": 0.75}),
        ("pp{n}", "fan3.dat", None),
        ("pp{n}", "pp6-base.dat", {"n": "6-base"}),
        ("a.b{n}", "aXb1.dat", None),  # a point is a point
    ],
)  # fmt: skip
def test_what_a_name_says(template: str, path: str, parts: Any) -> None:
    assert Label(template).parts(path) == parts


@pytest.mark.parametrize("template", ["pp", "{n", "n}", "{}", "{a b}", "{n}{n}", "{1}", "a{{n}}"])
def test_templates_that_are_none(template: str) -> None:
    with pytest.raises(UsageError, match="--label"):
        Label(template)


@pytest.fixture(scope="module")
def found(samples: Path) -> Race:
    return race(ta.open(samples / "pp3-plain.dat.xz"))


def point(found: Race, load: float, rate: float, group: str = "") -> Point:
    made = replace(found, certain=Range(rate, rate, rate), idle_low=Range(0.0, 0.0, 0.0))
    return Point(f"{load}", {"n": load, "rule": group}, load=load, race=made)


def knee(found: Race, rows: list[tuple[float, float]]) -> Knee:
    points = [point(found, load, rate) for load, rate in rows]
    knees = _knees(points, ["n", "rule"], Thresholds())
    assert [k.figure for k in knees] == ["race_rate", "attributable_idle"]
    assert knees[1].at is None  # no idle time in any
    return knees[0]


def test_the_knee_lies_where_the_rate_first_matters(found: Race) -> None:
    k = knee(found, [(2, 0.0), (4, 0.009), (6, 0.02), (8, 0.0)])
    assert (k.below, k.at, k.gone, k.loads) == (4, 6, 8, 4)
    assert "between 4 and 6, and no longer does at 8" in k.words()
    k = knee(found, [(2, 0.02), (4, 0.0), (6, 0.02)])
    assert (k.below, k.at, k.gone) == (None, 2, None)
    assert "the lowest load" in k.words()
    k = knee(found, [(2, 0.0), (4, 0.0)])
    assert k.at is None and "none of the 2 loads" in k.words()
    # Of three repetitions at 4 two matter.
    k = knee(found, [(2, 0.0), (4, 0.02), (4, 0.0), (4, 0.03)])
    assert (k.below, k.at) == (2, 4)


def test_words_make_groups_and_are_escaped(found: Race) -> None:
    points = [point(found, n, 0.0, g) for n in (1, 2) for g in ("base", "\x1b[2J")]
    knees = _knees(points, ["n", "rule"], Thresholds())
    assert [k.group for k in knees] == ["base", "base", "\x1b[2J", "\x1b[2J"]
    assert all("\x1b" not in k.words() for k in knees)


def test_one_bad_file_does_not_end_it(samples: Path, tmp_path: Path) -> None:
    bad, gone = tmp_path / "pp9-bad.dat", tmp_path / "pp1-gone.dat"
    bad.write_bytes(b"\x00" * 100)
    failed: list[str] = []
    files = [str(bad), str(samples / "pp3-plain.dat.xz"), str(gone)]
    result = series(
        files, ta.open, label=Label("pp{n}-*"), failed=lambda file, error: failed.append(file)
    )
    assert failed == [str(bad), str(gone)]
    assert [(p.load, p.race is None) for p in result.points] == [
        (1, True), (3, False), (9, True),
    ]  # fmt: skip
    document = result.to_json()
    assert document["captures"][0]["error"] and document["captures"][1]["error"] is None
    # Activity: all but a few of the wakeups of ping-pong pairs come from a task.
    good = document["captures"][1]
    assert 0.95 * good["wakeups_per_s"] < good["edges_per_s"] <= good["wakeups_per_s"]


def test_a_folder_holds_captures_and_side_files(tmp_path: Path) -> None:
    for name in ("b.dat.xz", "a.dat", "a.dat.topology.json", "RUN.json", "x.md", "deep/c.data"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    names = [Path(f).name for f in captures_in(tmp_path)]
    assert names == ["a.dat", "b.dat.xz", "c.data"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no capture"):
        captures_in(tmp_path / "empty")


@pytest.fixture(scope="module")
def folder(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two captures, one with a side file."""
    made = tmp_path_factory.mktemp("series")
    for name in ("pp3-plain.dat.xz", "pp6-short.dat.xz", "pp6-short.dat.xz.topology.json"):
        shutil.copy(samples / name, made / name)
    return made


class TestVerb:
    def test_table_in_the_order_of_load(self, cli: Cli, folder: Path) -> None:
        ran = cli("race", folder, "--label", "pp{n}-{rule}")
        assert ran.status == 0, ran.err
        lines = ran.out.splitlines()
        assert lines[1].split()[:2] == ["3", "plain"]
        assert lines[2].split()[:2] == ["6", "short"]
        assert "not throughput" in ran.out

    def test_the_figure(self, cli: Cli, folder: Path, tmp_path: Path) -> None:
        for name in ("s.svg", "s.html"):
            out = tmp_path / name
            ran = cli("race", folder, "--label", "pp{n}-*", "-o", out)
            assert ran.status == 0, ran.err
            assert "in " + str(out) in ran.err
            text = out.read_text()
            assert "<svg" in text and "load: n of the" in text
            assert "http" not in text.replace("http://www.w3.org/", "")

    def test_a_bad_one_and_only_bad_ones(self, cli: Cli, folder: Path, root: Path) -> None:
        ran = cli("race", folder / "pp3-plain.dat.xz", root / "README.md", "--format", "json")
        assert ran.status == 4
        assert "README.md" in ran.err and "Traceback" not in ran.err
        assert [c["error"] is None for c in ran.json["captures"]] == [True, False]
        ran = cli("race", root / "README.md", root / "CHANGELOG.md")
        assert ran.status == 3

    def test_wrong_questions(self, cli: Cli, folder: Path) -> None:
        assert cli("race").status == 2
        assert cli("race", folder, "--collisions").status == 2
        assert cli("race", folder, "-").status == 2
        assert cli("race", folder, "--label", "{").status == 2


def test_the_series_of_the_base_rule(shared: Path) -> None:
    folder = shared / "captures" / "ab" / "smt8"
    files = [f for n in (2, 4, 6, 8) for f in sorted(folder.glob(f"pp{n}/base-1.dat*"))]
    assert len(files) == 4

    def opener(file: str) -> ta.Capture:
        return ta.open(file, topology=folder / "cpus.lscpu-p.csv")

    result = series(map(str, files), opener, label=Label("pp{n}/base-*"))
    rate, idle = result.knees
    # Idle CPUs are many up to 4 pairs on 8 CPUs, and none is left with 8.
    assert (rate.below, rate.at, rate.gone) == (4, 6, 8)
    assert (idle.below, idle.at, idle.gone) == (4, 6, 8)
    verdicts = [p.race.verdict for p in result.points if p.race is not None]
    assert verdicts == ["not_supported", "not_supported", "supported", "not_supported"]
