"""`events`: the rows of perf sched timehist, with the capture's own nanoseconds."""

from __future__ import annotations

import lzma
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import traceana as ta
from traceana.listing import SCHEMA, history

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"
Cli = Callable[..., Any]

# b sleeps from 100 to 130 (woken 120 by a, enqueued 121), runs to 150, is preempted by c, runs
# again 180 to 200. All on CPU 0; times in µs.
TRACE = """\
# tracer: nop
a-1 [000] d.... 0.000090: sched_switch: prev_comm=x prev_pid=9 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120
b-2 [000] d.... 0.000100: sched_switch: prev_comm=b prev_pid=2 prev_prio=120 prev_state=S ==> next_comm=a next_pid=1 next_prio=120
a-1 [000] d.... 0.000120: sched_waking: comm=b pid=2 prio=120 target_cpu=000
a-1 [000] d.... 0.000121: sched_wakeup: comm=b pid=2 prio=120 target_cpu=000
a-1 [000] d.... 0.000130: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=D ==> next_comm=b next_pid=2 next_prio=120
b-2 [000] d.... 0.000150: sched_switch: prev_comm=b prev_pid=2 prev_prio=120 prev_state=R ==> next_comm=c next_pid=3 next_prio=120
c-3 [000] d.... 0.000180: sched_switch: prev_comm=c prev_pid=3 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120
b-2 [000] d.... 0.000200: sched_switch: prev_comm=b prev_pid=2 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120
"""  # noqa: E501


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.txt"
    path.write_text(TRACE)
    return path


def test_what_a_row_tells(trace: Path) -> None:
    timeline = ta.open(trace).timeline()
    table = history(timeline)
    assert table.schema == SCHEMA
    pid = timeline.tasks["pid"].to_pylist()
    rows = [
        (r["ts"], pid[r["task"]], r["wait_ns"], r["delay_ns"], r["run_ns"], r["state"],
         None if r["waker"] is None else pid[r["waker"]])
        for r in table.to_pylist()
    ]  # fmt: skip
    assert [r for r in rows if r[1] == 2] == [
        (100_000, 2, None, None, 10_000, "S", None),
        (130_000 + 20_000, 2, 30_000, 9_000, 20_000, "R", 1),
        (200_000, 2, 30_000, 30_000, 20_000, "S", None),
    ]
    assert (130_000, 1, None, None, 30_000, "D", None) in rows


def test_filters(trace: Path, cli: Cli) -> None:
    def times(*words: str) -> list[int]:
        ran = cli("events", trace, "--format", "json", *words)
        assert ran.status == 0, ran.err
        return [r["ts"] // 1000 for r in ran.json["events"]]

    assert times("--state", "D") == [130]
    assert times("--waker", "a") == [150]
    assert times("--tid", "3") == [180]
    assert times("-w", "--comm", "b") == [100, 120, 150, 200]
    assert times("-n", "2") == [90, 100] or len(times("-n", "2")) == 2
    assert cli("events", trace, "--state", "Q").status == 2


def test_moves_and_idle(cli: Cli) -> None:
    source = SAMPLES / "pp6-file.perf.data.xz"
    cap = ta.open(source)
    table = history(cap.timeline(), wakeups=True, migrations=True, idle=True)
    what = table["what"].to_pylist()
    # A move within a wakeup is told by the wakeup's row.
    within = int((cap.timeline().raw["wakeups"]["mig"] != -(2**63)).sum())
    recorded = cap.counts["sched_migrate_task"]
    # One may belong to a wakeup that a second waking has replaced.
    assert recorded - 2 <= what.count("migrates") + within <= recorded
    assert what.count("wakes") == cap.timeline().wakeups.num_rows
    ts = table["ts"].to_pylist()
    assert ts == sorted(ts)
    plain = history(cap.timeline())["task"].to_pylist()
    assert table.num_rows - what.count("migrates") - what.count("wakes") > len(plain)


@pytest.mark.skipif(shutil.which("perf") is None, reason="no perf here")
def test_perf_says_the_same(tmp_path: Path) -> None:
    source = SAMPLES / "pp6-file.perf.data.xz"
    data = tmp_path / "perf.data"
    data.write_bytes(lzma.decompress(source.read_bytes()))
    ran = subprocess.run(
        ["perf", "sched", "timehist", "--state", "-i", data], capture_output=True, text=True
    )
    line = re.compile(
        r"\s*(\d+)\.(\d{6}) \[(\d+)\]\s+(\S.*?)\[(\d+)[^]]*\]\s+([\d.]+)\s+[\d.]+\s+([\d.]+)"
        r"\s+(\w\+?)"
    )
    perf = {}
    for text in ran.stdout.splitlines():
        m = line.match(text)
        if m:
            at = int(m[1]) * 10**6 + int(m[2])
            perf[at, int(m[3]), int(m[5])] = (float(m[6]), float(m[7]), m[8])
    if len(perf) < 1000:
        pytest.skip(f"this perf prints no timehist: {ran.stderr[:200]!r}")
    timeline = ta.open(source).timeline()
    pid = timeline.tasks["pid"].to_pylist()
    seen = agree = 0
    for r in history(timeline).to_pylist():
        told = perf.get((r["ts"] // 1000, r["cpu"], pid[r["task"]]))
        if told is None or r["wait_ns"] is None or r["run_ns"] is None:
            continue
        seen += 1
        # perf prints ms with three decimals.
        agree += (
            abs(r["wait_ns"] / 1e6 - told[0]) <= 0.0011
            and abs(r["run_ns"] / 1e6 - told[1]) <= 0.0011
            and r["state"][0] == told[2][0]
        )
    assert seen > 0.9 * len(perf) - 100
    assert agree >= 0.99 * seen
