"""Whole reports of the samples: figures against other tools' counts, forms, stability."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traceana import capture, reports
from traceana.errors import UsageError
from traceana.schema import SCHEMA_VERSION

Sample = Callable[[str], capture.Capture]

SAMPLES = (
    "pp6-base.dat",
    "proxy-base.dat.xz",
    "sch-truth.dat.xz",
    "pp6-file.perf.data.xz",
    "pp3-plain.trace.txt.xz",
    "pp3-plain.report.txt.xz",
    "hostile.dat",
    "mix-wrapped.dat",
    "cpu0-dropped.dat.xz",
    "switch-only.dat.xz",
)
SECTIONS = [
    "capture", "quality", "timeline", "tasks", "pairs", "latency", "idle", "bins", "race", "delays",
    "examples", "rules", "method", "provenance",
]  # fmt: skip


def sections(document: dict[str, Any]) -> list[dict[str, Any]]:
    out = []
    for section in document["sections"]:
        out += [section, *section["workloads"]]
    return out


@pytest.mark.parametrize("name", SAMPLES)
def test_every_form_of_every_sample(
    sample: Sample, sample_counts: dict[str, Any], name: str
) -> None:
    cap = sample(name)
    document = json.loads(reports.render(cap, format="json"))
    assert document["schema_version"] == SCHEMA_VERSION
    assert [s["id"] for s in document["sections"]] == SECTIONS
    assert len(document["opening"]) == 5
    assert f"{sample_counts[name]['total']:,} events" in document["opening"][0]
    events = next(t for t in document["sections"][0]["tables"] if t["id"] == "events")
    assert {r["event"]: r["events"] for r in events["rows"]} == sample_counts[name]["events"]
    for section in sections(document):
        assert section["sentences"] or section["missing"], section["id"]
        for table in section["tables"]:
            names = [c["name"] for c in table["columns"]]
            assert len(names) == len(set(names)), table["id"]
            for c in table["columns"]:
                # A column of times says so in its name.
                assert c["name"].endswith("_ns") == (c["kind"] in ("ns", "ts")), c
                if c["kind"] in ("ns", "ts", "int", "id"):
                    values = [row[c["name"]] for row in table["rows"]]
                    assert all(v is None or isinstance(v, int | float) for v in values)
                if c["kind"] == "share":
                    values = [row[c["name"]] for row in table["rows"]]
                    assert all(v is None or -1e-9 <= v <= 1 + 1e-9 for v in values), c
        for figure in section["figures"]:
            assert figure["finding"]
    html = reports.render(cap)
    assert len(html.encode()) < 2_000_000
    assert html.count("<figure") == sum(len(s["figures"]) for s in sections(document))
    markdown = reports.render(cap, format="md")
    for said in document["opening"]:
        figure = re.search(r"[\d,.]+ %", said)
        assert figure is None or figure[0] in markdown


@pytest.mark.parametrize("name", ["pp6-base.dat", "proxy-base.dat.xz", "sch-truth.dat.xz"])
def test_the_opening_figures_are_those_of_other_tools(
    sample: Sample, sample_counts: dict[str, Any], name: str
) -> None:
    known = sample_counts[name]
    document = json.loads(reports.render(sample(name), format="json"))
    idle = re.search(r"idle ([\d.]+) %", document["opening"][1])
    assert idle is not None
    assert float(idle[1]) == pytest.approx(100 * known["idle_share"], abs=0.06)
    latency = next(s for s in document["sections"] if s["id"] == "latency")
    rows = next(t for t in latency["tables"] if t["id"] == "latencies")["rows"]
    delay = next(r for r in rows if r["latency"] == "queue delay")
    for q in ("p50", "p90", "p99", "max"):
        assert delay[f"{q}_ns"] == pytest.approx(known["queue_delay_ns"][q], rel=0.01)


def test_every_extreme_value_says_whose_where_and_when(sample: Sample) -> None:
    document = json.loads(reports.render(sample("proxy-base.dat.xz"), format="json"))
    found = 0
    for section in sections(document):
        for table in section["tables"]:
            names = {c["name"] for c in table["columns"]}
            for name in names:
                if re.search(r"(^|_)max_ns$", name) and "delta" not in name:
                    found += 1
                    assert name.replace("max_ns", "max_at_ns") in names, table["id"]
    assert found > 8
    for said in document["opening"][1:4]:
        assert re.search(r"on CPU \d+ at \d+\.\d{6} s", said), said


def test_each_workload_that_matters_has_its_part(sample: Sample) -> None:
    document = json.loads(reports.render(sample("proxy-base.dat.xz"), format="json"))
    for section in document["sections"]:
        if section["id"] in ("tasks", "pairs", "latency", "idle", "race", "rules"):
            titles = [p["title"] for p in section["workloads"]]
            assert titles == ["fan-front", "fan-work", "fan-cli"], section["id"]
            assert all(p["sentences"] for p in section["workloads"])


def test_the_parts_add_up(sample: Sample) -> None:
    document = json.loads(reports.render(sample("pp6-base.dat"), format="json"))
    by_id = {t["id"]: t["rows"] for s in sections(document) for t in s["tables"]}
    whole = next(r for r in by_id["latencies"] if r["latency"] == "queue delay")["n"]
    split = [r["n"] for r in by_id["splits"] if r["latency"] == "queue delay"]
    assert split[0] + split[1] == whole  # idle and busy targets
    assert split[2] + split[3] == whole  # direct and remote
    for row in by_id["coverage"]:
        assert row["idle_share"] + row["busy_share"] + row["unknown_share"] == pytest.approx(1)
    kinds = sum(r["wakeups"] for r in by_id["kinds"])
    assert f"Of {kinds:,} wakeups" in next(
        s["sentences"][0] for s in document["sections"] if s["id"] == "pairs"
    )
    assert sum(r["wakeups"] for r in by_id["pairs"]) <= kinds


def test_rules_are_labelled_as_estimates_and_show_where_they_lose(sample: Sample) -> None:
    document = json.loads(reports.render(sample("pp6-base.dat"), format="json"))
    rules = next(s for s in document["sections"] if s["id"] == "rules")
    assert rules["sentences"][0].startswith("Estimated, open loop")
    assert document["opening"][4].startswith("Estimated, open loop")
    assert "SIS_SHORT v5" in document["opening"][4]
    tables = {t["id"]: t for t in rules["tables"]}
    assert {r["rule"] for r in tables["moves"]["rows"]} == set(reports.DEFAULT_RULES)
    for row in tables["moves"]["rows"]:
        assert row["moved"] <= row["decisions"]
        assert row["on_waker_cpu_lo"] <= row["on_waker_cpu_estimated"] <= row["on_waker_cpu_hi"]
    said = " ".join(rules["sentences"])
    for row in tables["rule-latencies"]["rows"]:
        if row["delta_lo_ns"] is not None and row["delta_lo_ns"] > 0:
            assert "It loses" in said
    plain = {"reasons", "blocked", "fidelity-steps"}
    captions = [t["caption"] for t in rules["tables"] if t["id"] not in plain]
    assert all("estimated, open loop" in caption for caption in captions)


def test_recorded_changes_nothing(sample: Sample) -> None:
    text = reports.render(sample("pp3-plain.trace.txt.xz"), format="json", rules=("recorded",))
    rules = next(s for s in json.loads(text)["sections"] if s["id"] == "rules")
    assert rules["figures"] == []
    for table in rules["tables"]:
        for row in table["rows"]:
            assert row.get("moved", 0) == 0
            assert row.get("delta_ns") in (None, 0)


def test_summary_is_the_opening(sample: Sample) -> None:
    cap = sample("proxy-base.dat.xz")
    document = json.loads(reports.render(cap, format="json"))
    assert reports.summary(cap) == document["opening"]


def test_an_unknown_format_or_rule_is_said(sample: Sample) -> None:
    with pytest.raises(UsageError, match="html, md, json"):
        reports.render(sample("hostile.dat"), format="pdf")
    with pytest.raises(UsageError, match="nonsense"):
        reports.render(sample("hostile.dat"), rules=("nonsense",))


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes(samples: Path) -> None:
    code = (
        "import sys, hashlib, traceana as ta; from traceana import reports; "
        "cap = ta.open(sys.argv[1]); "
        "print(*(hashlib.sha256(reports.render(cap, format=f).encode()).hexdigest()"
        " for f in reports.FORMATS))"
    )
    said = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(samples / "hostile.dat")],
            capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        said.add(done.stdout)
    assert len(said) == 1
