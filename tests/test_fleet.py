"""``traceana fleet``: groups, gains with intervals, what stands out; held against plain Python."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceana._batch_store import Dataset, Key, part_folder, write_part
from traceana._batch_tables import OWN, as_table
from traceana._fleet_figures import BEYOND, outliers, robust, t_interval
from traceana.errors import FormatError, UsageError
from traceana.fleet import fleet

ROOT = Path(__file__).resolve().parents[1]
Row = dict[str, Any]


def row(i: int, rng: random.Random) -> Row:
    host = f"h{i % 3}"
    return {
        "status": "ok",
        "exit_status": 0,
        "source": f"/in/{i}.dat",
        "labels": json.dumps({"host": host, "run": str(i)}),
        "hostname": "one",
        "kernel": f"6.{i % 2}",
        "events": 1000 + i,
        "lost_events": i,
        "lost_places": i,
        "idle_share": rng.random(),
        "idle_ns": rng.randrange(1, 1000),
        "waited_llc_ns": rng.randrange(0, 500),
        "decided": rng.randrange(1, 1000),
        "double_bookings": rng.randrange(0, 20),
        "double_bookings_certain": 0,
        "explained": 100,
        "exact": rng.randrange(50, 90),
        "possible": 5,
        "queue_delay_p99_ns": rng.randrange(1000, 2000) * (100 if i == 7 else 1),
        "wakeup_latency_p99_ns": rng.randrange(1000, 2000),
    }


def gain(rng: random.Random, base: float) -> Row:
    value = base + rng.gauss(0, 10)
    out: Row = {"rule": "r", "method": "open_loop", "decisions": 10, "moved": 3}
    out |= {
        "queue_delay_p99_recorded_ns": 500.0,
        "queue_delay_p99_gain_ns": value,
        "queue_delay_p99_gain_lo_ns": value - 4,
        "queue_delay_p99_gain_hi_ns": value + 4,
    }
    return out


def build(path: Path, rows: list[Row], gains: list[Row]) -> None:
    with Dataset(path) as target:
        for i, (facts, one) in enumerate(zip(rows, gains, strict=True)):
            part = part_folder(path)
            workload = {"workload": f"w{i % 2}", "tasks": 1, "runtime_ns": i, "wakeups": 10}
            tables = {"facts": [facts], "gains": [one], "workloads": [workload], "tasks": []}
            write_part(part, {n: as_table(n, r) for n, r in tables.items()})
            target.commit(f"c{i}", part, Key("d", "m", facts["labels"]))


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    rng = random.Random(3)
    out = [row(i, rng) for i in range(12)]
    out[5] |= {"status": "failed", "reason": "cut <b>&", "idle_ns": None, "waited_llc_ns": None}
    return out


@pytest.fixture(scope="module")
def gains() -> list[Row]:
    rng = random.Random(4)
    return [gain(rng, 100) for _ in range(12)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, rows: list[Row], gains: list[Row]) -> Path:
    # Its name holds what a pattern would be.
    path = tmp_path_factory.mktemp("f") / "data[1]*?"
    build(path, rows, gains)
    return path


class TestFigures:
    def test_groups_are_sums_and_medians(self, dataset: Path, rows: list[Row]) -> None:
        found = fleet(dataset, by=["host"])
        assert [g["group"] for g in found.groups] == [{"host": f"h{i}"} for i in range(3)]
        for got in found.groups:
            mine = [r for r in rows if json.loads(r["labels"])["host"] == got["group"]["host"]]
            known = [r for r in mine if r["idle_ns"] is not None]
            assert got["captures"] == len(mine)
            assert got["failed"] == sum(r["status"] == "failed" for r in mine)
            assert got["idle_share"] == pytest.approx(
                statistics.fmean(r["idle_share"] for r in mine)
            )
            assert got["idle_waited_share"] == pytest.approx(
                sum(r["waited_llc_ns"] for r in known) / sum(r["idle_ns"] for r in known)
            )
            assert got["double_bookings_per_million"] == pytest.approx(
                1e6 * sum(r["double_bookings"] for r in mine) / sum(r["decided"] for r in mine)
            )
            assert got["queue_delay_p99_ns"] == statistics.median(
                r["queue_delay_p99_ns"] for r in mine
            )
            assert got["queue_delay_p99_most_ns"] == max(r["queue_delay_p99_ns"] for r in mine)
            exact = sum(r["exact"] for r in mine)
            assert got["fidelity_exact"] == pytest.approx(exact / (100 * len(mine)))
            assert got["fidelity_possible"] == pytest.approx(exact / (100 * len(mine)) + 0.05)

    def test_captures_are_counted_once(self, dataset: Path) -> None:
        found = fleet(dataset, by=["run", "kernel"])
        assert found.captures == 12 == len(found.groups)
        assert found.statuses == {"ok": 11, "damaged": 0, "failed": 1}
        assert [t["source"] for t in found.troubled] == ["/in/5.dat"]

    def test_labels_are_the_default(self, dataset: Path) -> None:
        assert fleet(dataset).by == ("host", "run") == fleet(dataset).labels

    def test_gains(self, dataset: Path, gains: list[Row]) -> None:
        found = fleet(dataset, by=["hostname"])
        (got,) = [r for r in found.gains if r["figure"] == "queue_delay_p99"]
        values = [g["queue_delay_p99_gain_ns"] for g in gains]
        half = 2.200985 * statistics.stdev(values) / math.sqrt(12)
        mean = statistics.fmean(values)
        assert (got["n"], got["moved"], got["recorded_ns"]) == (12, 36, 500)
        assert got["gain_ns"] == round(mean)
        assert got["lo_ns"] == pytest.approx(mean - half, abs=1)
        assert got["hi_ns"] == pytest.approx(mean + half, abs=1)
        assert all(r["n"] == 0 for r in found.gains if r["figure"] != "queue_delay_p99")

    def test_gain_of_one_capture_is_its_own(self, dataset: Path, gains: list[Row]) -> None:
        found = fleet(dataset, by=["run"])
        for got in found.gains:
            if got["figure"] == "queue_delay_p99":
                one = gains[int(got["group"]["run"])]
                assert got["lo_ns"] == round(one["queue_delay_p99_gain_lo_ns"])
                assert got["hi_ns"] == round(one["queue_delay_p99_gain_hi_ns"])

    def test_the_odd_capture_stands_out(self, dataset: Path) -> None:
        found = fleet(dataset, by=["host"])
        first = found.outliers[0]
        assert (first["of"], first["name"]) == ("capture", "/in/7.dat")
        assert first["metric"] == "queue_delay_p99_ns" and first["z"] > BEYOND

    def test_workloads(self, dataset: Path) -> None:
        found = fleet(dataset)
        assert [(w["workload"], w["captures"], w["runtime_ns"]) for w in found.workloads] == [
            ("w1", 6, 36),
            ("w0", 6, 30),
        ]


class TestArithmetic:
    def test_interval_is_never_narrower_than_the_captures_own(self) -> None:
        assert t_interval(4, 10.0, 0.0, 16.0, (None, None)) == pytest.approx(
            (10 - 3.182446, 10 + 3.182446)
        )
        assert t_interval(0, None, None, None, (None, None)) == (None, None)

    def test_interval_covers(self) -> None:
        rng = np.random.default_rng(1)
        held = 0
        for _ in range(2000):
            x = rng.normal(5, 2, 6)
            lo, hi = t_interval(6, float(x.mean()), float(x.std(ddof=1)), None, (None, None))
            assert lo is not None and hi is not None
            held += lo < 5 < hi
        assert 0.935 < held / 2000 < 0.965

    @given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=30))
    def test_robust_is_the_plain_definition(self, values: list[int]) -> None:
        middle = statistics.median(values)
        away = [abs(v - middle) for v in values]
        spread = 1.4826 * statistics.median(away) or 1.2533 * statistics.fmean(away)
        assert robust(np.array(values, float)) == pytest.approx((middle, spread))

    def test_equal_values_do_not_stand_out(self) -> None:
        assert outliers({"idle_share": np.ones(50)}, ["x"] * 50, []) == []

    def test_few_values_say_nothing(self) -> None:
        values = np.array([1.0, 1.1, 0.9, 1000.0])
        assert outliers({"idle_share": values}, list("abcd"), []) == []

    def test_noise_seldom_stands_out(self) -> None:
        rng = np.random.default_rng(2)
        found = outliers({"idle_share": rng.normal(size=2000)}, ["x"] * 2000, [])
        assert len(found) < 2000 * 0.005


class TestRefusals:
    def test_no_dataset(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match="not a dataset"):
            fleet(tmp_path)

    def test_empty(self, tmp_path: Path) -> None:
        with Dataset(tmp_path / "d"):
            pass
        with pytest.raises(FormatError, match="no capture"):
            fleet(tmp_path / "d")

    def test_damaged_partition(self, tmp_path: Path, dataset: Path) -> None:
        copy = tmp_path / "d"
        shutil.copytree(dataset, copy)
        (copy / "capture=c3" / "facts.parquet").write_bytes(b"PAR1 no")
        with pytest.raises(FormatError, match="cannot be read"):
            fleet(copy)

    def test_unknown_names(self, dataset: Path) -> None:
        for by in (["nope"], ["host", "host"], ["labels"]):
            with pytest.raises(UsageError):
                fleet(dataset, by=by)


class TestCommand:
    def test_json_and_table(self, cli: Callable[..., Any], dataset: Path) -> None:
        ran = cli("fleet", dataset, "--by", "host", "--format", "json")
        assert ran.status == 0
        assert ran.json["captures"] == 12 and len(ran.json["groups"]) == 3
        table = cli("fleet", dataset, "--by", "host")
        assert "12 captures, 11 ok, 0 damaged, 1 failed" in table.out
        assert "h2" in table.out and "95 % interval" in table.out

    @pytest.mark.parametrize("table", ["groups", "gains", "workloads", "outliers", "troubled"])
    def test_csv_of_each_table(self, cli: Callable[..., Any], dataset: Path, table: str) -> None:
        ran = cli("fleet", dataset, "--by", "status", "--table", table, "--format", "csv")
        read = list(csv.DictReader(io.StringIO(ran.out)))
        assert len(read) == len(getattr(fleet(dataset, by=["status"]), table)) > 0
        assert len(set(read[0])) == len(ran.out.splitlines()[0].split(","))

    def test_page(self, cli: Callable[..., Any], dataset: Path, tmp_path: Path) -> None:
        page = tmp_path / "fleet.html"
        assert cli("fleet", dataset, "--by", "host", "-o", page).status == 0
        text = page.read_text()
        assert "cut &lt;b&gt;&amp;" in text and "cut <b>" not in text
        for section in ("groups", "gains", "workloads", "outliers", "quality"):
            assert f'id="{section}"' in text
        assert cli("fleet", dataset, "-o", page).status == 2

    @pytest.mark.parametrize(
        ("words", "said"),
        [(("--by", "nope"), "--by nope"), (("--table", "x"), "--table"), (("--by", ","), "--by")],
    )
    def test_usage(
        self, cli: Callable[..., Any], dataset: Path, words: tuple[str, ...], said: str
    ) -> None:
        ran = cli("fleet", dataset, *words)
        assert ran.status == 2 and said in ran.err

    def test_no_dataset_is_3(self, cli: Callable[..., Any], tmp_path: Path) -> None:
        assert cli("fleet", tmp_path).status == 3


def test_a_thousand_partitions(tmp_path: Path, dataset: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    shutil.copy(dataset / "_dataset.json", many)
    facts = pq.ParquetFile(dataset / "capture=c0" / "facts.parquet").read().to_pylist()[0]
    others = {n: dataset / "capture=c0" / f"{n}.parquet" for n in OWN if n != "facts"}
    for i in range(1000):
        folder = many / f"capture=c{i}"
        folder.mkdir()
        facts["labels"] = json.dumps({"host": f"h{i % 50}"})
        pq.write_table(as_table("facts", [facts]), folder / "facts.parquet")
        for name, file in others.items():
            os.link(file, folder / f"{name}.parquet")
    code = (
        "import resource, sys; from traceana.cli import main; "
        "status = main(['fleet', sys.argv[1], '--format', 'json', '-o', sys.argv[2]]); "
        "use = resource.getrusage(resource.RUSAGE_SELF); "
        # ru_maxrss would tell the size of the process that started this one, too.
        "peak = open('/proc/self/status').read().partition('VmHWM:')[2].split()[0]; "
        "print(status, use.ru_utime + use.ru_stime, peak)"
    )
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, "-c", code, many, out],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    status, seconds, peak = done.stdout.split()
    assert status == "0"
    found = json.loads(out.read_text())
    assert found["captures"] == 1000 and len(found["groups"]) == 50
    assert all(g["captures"] == 20 for g in found["groups"])
    assert int(peak) * 1024 <= 500e6
    # CPU time, as tests share the machine: 5 s are what a user may wait.
    assert float(seconds) <= 5
