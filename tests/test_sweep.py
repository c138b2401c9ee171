"""A parameter's sweep: its values, that each point is what whatif says, table, JSON and drawing."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import traceana as ta
from traceana.amounts import amount, in_words
from traceana.errors import UsageError
from traceana.sweep import parse_sweep, spaced, sweep
from traceana.whatif import whatif

CAPTURE = "sample_traces/sch-truth.dat.xz"
SPEC = "sis_short_v5.threshold_ns=5us..1ms:5"


@pytest.fixture(scope="module")
def swept(samples: Path) -> tuple[Any, Any]:
    cap = ta.open(samples / "sch-truth.dat.xz")
    return cap, sweep(cap, SPEC)


class TestAmounts:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("375000", 375_000),
            ("375_000", 375_000),
            ("-3", -3),
            ("50us", 50_000),
            ("50 us", 50_000),
            ("50µs", 50_000),
            ("0.5ms", 500_000),
            ("1.25us", 1250),
            ("2s", 2_000_000_000),
            ("7ns", 7),
            ("2.0", 2),
        ],
    )
    def test_read(self, text: str, value: int) -> None:
        assert amount(text) == value

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "no whole number"),
            ("us", "no whole number"),
            ("1.5", "no whole number"),
            ("1.5ns", "no whole number of ns"),
            ("1.0001us", "no whole number of ns"),
            ("3m", "unit is one of ns, us, ms, s"),
            ("1e3", "unit is one of|no whole number"),
            ("0x10", "no whole number"),
            ("１２", "no whole number"),
        ],
    )
    def test_refused(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            amount(text)

    @given(st.integers(0, 10**15))
    def test_words_are_within_a_part_in_a_thousand(self, ns: int) -> None:
        number, unit = in_words(ns, "ns").split()
        scale = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}[unit]
        assert abs(float(number) * scale - ns) <= ns * 0.001


class TestValues:
    def test_a_time_by_a_constant_factor(self) -> None:
        assert spaced(50_000, 800_000, 5, geometric=True) == (
            *(50_000, 100_000, 200_000, 400_000, 800_000),
        )

    @given(st.integers(1, 10**12), st.integers(1, 10**12), st.integers(2, 100), st.booleans())
    def test_ends_and_order(self, a: int, b: int, count: int, geometric: bool) -> None:
        lo, hi = min(a, b), max(a, b) + 1
        values = spaced(lo, hi, count, geometric=geometric)
        assert (values[0], values[-1]) == (lo, hi)
        assert list(values) == sorted(set(values))
        assert len(values) <= count

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("abel.threshold_ns", "give RULE.PARAMETER=LOW..HIGH:COUNT"),
            ("threshold_ns=1..2", "give RULE.PARAMETER"),
            ("abel.threshold_ns=1..2:1", "1 values; 2 to 100"),
            ("abel.threshold_ns=1..2:101", "101 values"),
            ("abel.threshold_ns=2..1:3", "LOW has to be below HIGH"),
            ("abel.threshold_ns=1..x:3", "'x' is no whole number"),
            ("abel.threshold_ns=1.5us..2.5ns", "'2.5ns' is no whole number of ns"),
        ],
    )
    def test_refused(self, text: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            parse_sweep(text)

    def test_a_combinations_parameter(self) -> None:
        spec = parse_sweep("sis_short_v5+abel.threshold_ns=1us..1ms")
        assert (spec.rule, spec.parameter, spec.count) == ("sis_short_v5+abel", "threshold_ns", 8)


def test_each_point_is_what_whatif_says(swept: tuple[Any, Any]) -> None:
    cap, result = swept
    assert result.geometric
    assert result.default == 375_000
    assert [p.value for p in result.points] == list(spaced(5000, 1_000_000, 5, geometric=True))
    for point in (result.points[1], result.points[-1]):
        params = {"sis_short_v5.threshold_ns": point.value}
        alone = whatif(cap, ["sis_short_v5"], params=params)["sis_short_v5"]
        assert point.result.to_json() == alone.to_json()
        own = {r: n for r, n in alone.reasons.items() if r in ("place_a", "place_b")}
        assert point.fired == sum(own.values())


def test_a_longer_threshold_never_makes_fewer_tasks_short(swept: tuple[Any, Any]) -> None:
    fired = [p.fired for p in swept[1].points]
    assert fired == sorted(fired)
    assert fired[0] < fired[-1]


def test_other_parameters_hold_for_all_points(swept: tuple[Any, Any]) -> None:
    cap, _ = swept
    shut = sweep(
        cap, "sis_short_v5.threshold_ns=5us..1ms:2", params={"sis_short_v5.gate_weight": 0}
    )
    assert shut.params == {"gate_scan": 5, "gate_weight": 0}
    assert all("place_b" not in p.result.reasons for p in shut.points)


def test_a_number_is_swept_by_a_constant_step(swept: tuple[Any, Any]) -> None:
    cap, _ = swept
    result = sweep(cap, "sis_prop.nr=1..9:5")
    assert not result.geometric
    assert [p.value for p in result.points] == [1, 3, 5, 7, 9]


def test_a_combination_is_swept_in_all_its_parts(swept: tuple[Any, Any]) -> None:
    cap, _ = swept
    result = sweep(cap, "sis_short_v5+abel.threshold_ns=1..100us:2")
    assert result.rule == "sis_short_v5+abel"
    assert result.points[0].fired == 0
    assert set(result.params) == {"sis_short_v5.gate_scan", "sis_short_v5.gate_weight"}


class TestCommand:
    def test_table(self, cli: Callable[..., Any]) -> None:
        got = cli("whatif", CAPTURE, "--param-sweep", SPEC)
        assert got.status == 0
        lines = got.out.splitlines()
        assert lines[0].split()[:3] == ["value", "fired", "moved"]
        assert [line.split()[:2] for line in lines[1:6:4]] == [["5", "us"], ["1", "ms"]]
        assert "spaced by a constant factor; default here 375 us" in got.out

    def test_json(self, cli: Callable[..., Any]) -> None:
        document = cli("whatif", CAPTURE, "--param-sweep", SPEC, "--format", "json").json
        curve = document["sweep"]
        assert (curve["rule"], curve["parameter"], curve["unit"]) == (
            *("sis_short_v5", "threshold_ns", "ns"),
        )
        assert curve["spacing"] == "geometric"
        assert [p["value"] for p in curve["points"]][::4] == [5000, 1_000_000]
        point = curve["points"][-1]
        assert point["moved"] == document["sweep"]["points"][-1]["moved"] > 0
        assert point["queue_delay_ns"]["p99"]["delta_interval"] is not None

    def test_csv(self, cli: Callable[..., Any]) -> None:
        out = cli("whatif", CAPTURE, "--param-sweep", SPEC, "--format", "csv").out
        rows = list(csv.DictReader(io.StringIO(out)))
        assert [int(row["value"]) for row in rows][::4] == [5000, 1_000_000]
        assert all(int(row["moved"]) <= int(row["fired"]) for row in rows)

    def test_drawing(self, cli: Callable[..., Any], tmp_path: Path) -> None:
        target = tmp_path / "curve.svg"
        got = cli("whatif", CAPTURE, "--param-sweep", SPEC, "-o", target)
        assert got.status == 0
        assert got.out.startswith("value")
        assert str(target) in got.err
        text = target.read_text()
        ElementTree.fromstring(text)
        words = re.findall(r"<text[^>]*>([^<]*)</text>", text)
        assert "sis_short_v5.threshold_ns, log scale" in words
        assert {"fired", "moved", "p50", "p99", "default 375 µs"} <= set(words)
        # The same again, byte by byte; and never over a file without --force.
        again = tmp_path / "again.svg"
        cli("whatif", CAPTURE, "--param-sweep", SPEC, "-o", again)
        assert again.read_text() == text
        refused = cli("whatif", CAPTURE, "--param-sweep", SPEC, "-o", target)
        assert (refused.status, "use --force" in refused.err) == (2, True)

    def test_png(self, cli: Callable[..., Any], tmp_path: Path) -> None:
        target = tmp_path / "curve.PNG"
        spec = "abel.threshold_ns=1us..2us:2"
        assert cli("whatif", CAPTURE, "--param-sweep", spec, "-o", target).status == 0
        assert target.read_bytes().startswith(b"\x89PNG")
        assert target.stat().st_mode & 0o777 != 0o600

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--param-sweep", "abel.x=1..2"], "rule abel has no parameter 'x'; it has threshold"),
            (["--param-sweep", "abell.x=1..2"], "did you mean abel?"),
            (["--param-sweep", "recorded.x=1..2"], "it has none"),
            (["--param-sweep", SPEC, "--rule", "abel"], "leave --rule abel out"),
            (["--param-sweep", "5us"], "give RULE.PARAMETER=LOW..HIGH:COUNT"),
            (["--param", "abel.threshold_ns=1,5us"], "a time also as 50us or 1ms"),
        ],
    )
    def test_refused(self, cli: Callable[..., Any], arguments: list[str], message: str) -> None:
        got = cli("whatif", CAPTURE, *arguments)
        assert got.status == 2
        assert message in got.err
        assert got.err.count("\n") == 1

    def test_param_with_a_unit(self, cli: Callable[..., Any]) -> None:
        def moved(value: str) -> Any:
            param = f"sis_short_v5+abel.threshold_ns={value}"
            name = "sis_short_v5+abel"
            got = cli("whatif", CAPTURE, "--rule", name, "--param", param, "--format", "json")
            return got.json["params"][name], got.json["rules"][0]["moved"]

        assert moved("0.1ms") == moved("100000")
        assert moved("100us")[0]["abel.threshold_ns"] == 100_000
