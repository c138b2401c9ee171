"""Exports: what comes out of a form again is what went in."""

from __future__ import annotations

import io
import itertools
import shutil
import subprocess
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import traceana as ta
from traceana import export, schema
from traceana._export_text import Names, state_text
from traceana.schema import EventKind, State

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"
CAPTURES = sorted(
    p.name
    for p in SAMPLES.iterdir()
    if p.name.endswith((".dat", ".xz", ".data", ".txt"))
    and "sched-latency" not in p.name
    and not p.name.endswith(".json.xz")
)
#: What must survive: kinds, times, CPUs, tasks, states, and all numbers of the events.
KEPT = (
    "ts", "cpu", "kind", "pid", "subject", "prio", "state", "other", "other_prio", "cpu_to",
    "cpu_from", "value",
)  # fmt: skip
Cli = Callable[..., Any]


def rows(cap: ta.Capture, *, marks: bool) -> pl.DataFrame:
    """The events in an order that does not depend on that of equal times."""
    frame = pl.from_arrow(cap.events())
    assert isinstance(frame, pl.DataFrame)
    if not marks:
        frame = frame.filter(~pl.col("kind").is_in([EventKind.LOST, EventKind.BEGIN]))
    return frame.select(KEPT).sort(KEPT)


def test_all_samples_are_tried() -> None:
    assert len(CAPTURES) >= 15


@pytest.mark.parametrize("name", CAPTURES)
def test_ftrace_there_and_back(name: str, tmp_path: Path) -> None:
    cap = ta.open(SAMPLES / name)
    path = tmp_path / "trace.txt"
    with path.open("w") as file:
        assert export.to_ftrace(cap, file) == {}
    back = ta.open(path)
    assert rows(back, marks=True).equals(rows(cap, marks=True))
    assert not back.damaged


@pytest.mark.parametrize("name", CAPTURES)
def test_perfetto_there_and_back(name: str, tmp_path: Path) -> None:
    cap = ta.open(SAMPLES / name)
    path = tmp_path / "trace.pftrace"
    with path.open("wb") as file:
        left_out = export.to_perfetto(cap, file)
    assert set(left_out) <= {"that only mark where a buffer begins"}
    back = ta.open(path)
    assert rows(back, marks=False).equals(rows(cap, marks=False))
    known = {n: k for n, k in cap.counts.items() if n in schema.EVENT_NAMES}
    assert back.counts == known
    assert back.lost.marks == cap.lost.marks or cap.lost.marks == 0
    if cap.meta.kernel:
        assert back.meta.kernel == cap.meta.kernel


def test_names_survive(tmp_path: Path) -> None:
    cap = ta.open(SAMPLES / "hostile.dat")
    path = tmp_path / "trace.txt"
    with path.open("w") as file:
        export.to_ftrace(cap, file)
    seen = set(ta.open(path).tasks()["comm"].to_pylist())
    told = {c for c in cap.tasks()["comm"].to_pylist() if c is not None and c.isprintable()}
    assert len(told) > 5
    assert {t for t in told if "\\" not in t} <= seen


def test_perfetto_is_what_a_foreign_decoder_reads(tmp_path: Path) -> None:
    protoc = shutil.which("protoc")
    if protoc is None:
        pytest.skip("no protoc here")
    cap = ta.open(SAMPLES / "switch-only.dat.xz")
    path = tmp_path / "trace.pftrace"
    with path.open("wb") as file:
        export.to_perfetto(cap, file)
    text = subprocess.run(
        [protoc, "--decode_raw"], input=path.read_bytes(), capture_output=True, check=True
    ).stdout.decode()
    # FtraceEvent.sched_switch is field 4 of field 2 of a bundle.
    assert text.count("\n      4 {") == cap.counts["sched_switch"]


@pytest.fixture(scope="module")
def trace() -> Any:
    from traceana._perfetto_messages import messages

    cap = ta.open(SAMPLES / "pp6-base.dat", time=("10%", "20%"))
    out = io.BytesIO()
    export.to_perfetto(cap, out, ["sis_short_v5"])
    return cap, messages()["Trace"].FromString(out.getvalue())


class TestTracks:
    def values(self, trace: Any, name: str) -> list[tuple[int, int]]:
        uuid = next(
            p.track_descriptor.uuid for p in trace.packet if p.track_descriptor.name == name
        )
        return [
            (p.timestamp, p.track_event.counter_value)
            for p in trace.packet
            if p.track_event.track_uuid == uuid
        ]

    def test_nr_running_is_one_where_one_runs(self, trace: Any) -> None:
        cap, told = trace
        series = self.values(told, "nr_running CPU 0")
        assert len(series) > 100
        assert min(v for _, v in series) >= 0
        gaps = [
            g
            for g in cap.timeline().idle_gaps.to_pylist()
            if g["cpu"] == 0 and g["start"] is not None and g["end"] is not None
        ]
        times = [t for t, _ in series]
        # While a CPU is idle nobody runs there; somebody may be queued at its end.
        at_start = [series[bisect_right(times, g["start"]) - 1][1] for g in gaps[1:]]
        assert at_start.count(0) >= 0.9 * len(at_start)

    def test_idle_cpus_of_an_llc(self, trace: Any) -> None:
        cap, told = trace
        series = self.values(told, "idle CPUs of the LLC of CPU 0")
        assert 0 <= min(v for _, v in series) <= max(v for _, v in series) <= 8
        total = sum(v * (b - a) for (a, v), (b, _) in itertools.pairwise(series))
        idle = sum(
            g["end"] - g["start"]
            for g in cap.timeline().idle_gaps.to_pylist()
            if g["start"] is not None and g["end"] is not None
        )
        assert total == pytest.approx(idle, rel=0.02)

    def test_a_track_for_the_rule(self, trace: Any) -> None:
        cap, told = trace
        moved = ta.whatif(cap, ["sis_short_v5"]).decisions
        n = sum(1 for m in moved["moved"].to_pylist() if m)
        assert n > 0
        assert len(self.values(told, "sis_short_v5 would move (open loop)")) == n


class TestTables:
    def test_csv_defuses_formulas_and_controls(self) -> None:
        out = io.BytesIO()
        table = pa.table({"comm": ["=1+1", "a\x1bb", None], "n": [1, None, 3]})
        export.to_csv(table, out)
        lines = out.getvalue().decode().splitlines()
        assert lines == ['"comm","n"', '"\'=1+1",1', '"a\\x1bb",', ",3"]

    @pytest.mark.parametrize("form", ["csv", "parquet", "arrow"])
    def test_each_form_holds_all_rows(self, shell: Cli, tmp_path: Path, form: str) -> None:
        path = tmp_path / f"wakeups.{form}"
        source = str(SAMPLES / "pp3-plain.dat.xz")
        ran = shell("export", source, "--to", form, "--table", "wakeups", "-o", str(path))
        assert ran.status == 0, ran.err
        if form == "csv":
            n = len(path.read_text().splitlines()) - 1
        elif form == "parquet":
            table = pq.read_table(path)
            schema.check(table, "wakeups")
            n = table.num_rows
        else:
            with pa.ipc.open_file(path) as reader:
                n = reader.read_all().num_rows
        assert n == ta.open(source).timeline().wakeups.num_rows

    def test_refuses_to_overwrite(self, shell: Cli, tmp_path: Path) -> None:
        path = tmp_path / "x.txt"
        path.write_text("mine")
        ran = shell("export", str(SAMPLES / "pp3-plain.dat.xz"), "--to", "ftrace", "-o", str(path))
        assert (ran.status, path.read_text()) == (2, "mine")

    def test_wrong_form_lists_the_right_ones(self, shell: Cli) -> None:
        ran = shell("export", str(SAMPLES / "pp3-plain.dat.xz"), "--to", "perfeto")
        assert ran.status == 2
        assert "perfetto" in ran.err

    @pytest.mark.parametrize("form", ["perfetto", "ftrace"])
    def test_a_table_belongs_to_forms_of_tables(self, shell: Cli, form: str) -> None:
        """--table was silently ignored there."""
        sample = str(SAMPLES / "pp3-plain.dat.xz")
        ran = shell("export", sample, "--to", form, "--table", "wakeups")
        assert ran.status == 2 and "--table" in ran.err


@pytest.mark.parametrize(
    ("state", "text"),
    [(0, "R"), (State.SLEEP, "S"), (State.PREEMPTED, "R+"), (State.DISK | State.WAKEKILL, "D|K")],
)
def test_states_as_the_kernel_prints_them(state: int, text: str) -> None:
    assert state_text(int(state)) == text


def test_a_name_holds_from_its_time_on() -> None:
    names = Names([(7, "old", None), (7, "new", 100)])
    assert [names.at(7, t) for t in (0, 99, 100)] == ["old", "old", "new"]
    assert (names.at(0, 5), names.at(8, 5)) == ("<idle>", "<...>")
