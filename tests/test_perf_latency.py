"""Run time and run-queue delays per task against ``perf sched latency -p``.

The reference output stands beside the sample; where perf is installed it is asked anew. perf counts
a delay from sched_wakeup, or from a switch-out in R, to the switch-in; a task that it first sees in
a switch-in has waited 0.
"""

from __future__ import annotations

import lzma
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import traceana as ta

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "sample_traces" / "pp6-file.perf.data.xz"
REFERENCE = ROOT / "sample_traces" / "pp6-file.sched-latency.txt"
OTHERS = [ROOT.parent / "shared" / "captures" / "perf" / f"{n}.perf.data.xz" for n in ("fan-mono",)]

ROW = re.compile(
    r"\s*(.+?):(\d+)\s*\|\s*([\d.]+) ms \|\s*(\d+) \| avg:\s*([\d.]+) ms \|"
    r" max:\s*([\d.]+) ms \| max start:\s*([\d.]+) s \| max end:\s*([\d.]+) s"
)


def _rows(text: str) -> list[tuple[str, ...]]:
    found = [m.groups() for m in map(ROW.match, text.splitlines()) if m]
    assert len(found) > 10
    return found


def _compare(path: Path, text: str) -> None:
    tasks = {r["pid"]: r for r in ta.open(path).timeline().tasks.to_pylist() if r["pid"]}
    for name, pid, runtime, count, average, longest, _, end in _rows(text):
        row = tasks[int(pid)]
        assert row["comm"] == name
        assert row["delays"] == int(count), name
        _close(row["runtime_ns"], runtime, name)
        if row["delays"]:
            _close(row["delay_sum_ns"] / row["delays"], average, name)
            _close(row["delay_max_ns"], longest, name)
            if float(longest):
                assert abs(row["delay_max_at_ns"] - float(end) * 1e9) < 1000, name


def _close(ns: float, printed_ms: str, name: str) -> None:
    """Within 1 us (as printed, rounded to 1 us) or 0.1 %."""
    want = float(printed_ms) * 1e6
    assert abs(ns - want) <= max(1000, want * 0.001), (name, ns, want)


def test_against_the_recorded_output() -> None:
    _compare(SAMPLE, REFERENCE.read_text())


@pytest.mark.parametrize("path", [SAMPLE, *OTHERS], ids=lambda p: p.name)
def test_against_perf(path: Path, tmp_path: Path) -> None:
    if not shutil.which("perf"):
        pytest.skip("perf is not installed; the recorded output stands in")
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    plain = tmp_path / "perf.data"
    plain.write_bytes(lzma.decompress(path.read_bytes()))
    done: Any = subprocess.run(
        ["perf", "sched", "latency", "-p", "-i", str(plain)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode or not ROW.search(done.stdout):
        pytest.skip(f"this perf cannot read the file: {done.stderr[-200:]}")
    _compare(plain, done.stdout)
