"""A timeline handed over in parts, or kept on disk, says the same as one in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import traceana as ta
from traceana import _timeline_state as k
from traceana import reports
from traceana.parts import TABLES, Part, structured
from traceana.spill import Spill

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"
SAMPLE = SAMPLES / "pp6-base.dat"


class Kept:
    """A sink that keeps everything (satisfies ``parts.Sink``)."""

    def __init__(self, part_rows: int) -> None:
        self.hold_rows = self.part_rows = part_rows
        self.parts: list[Part] = []

    def take(self, part: Part) -> None:
        self.parts.append(part)

    def rows(self) -> Kept:
        return self

    def forget(self, name: str) -> None:
        raise AssertionError(name)

    def study(self, whole: Any) -> None:
        return None

    def table(self, name: str) -> pa.Table:
        return pa.concat_tables([p.tables[name] for p in self.parts])


def _small_batches(cap: ta.Capture, rows: int) -> None:
    """Let the reader give batches of some rows only, so that there are many cuts."""
    chunks = cap._chunks

    def small() -> Any:
        for chunk in chunks():
            n = len(chunk.events)
            for at in range(0, max(n, 1), rows):
                names = chunk.names if at == 0 else []
                yield type(chunk)(chunk.events.take(slice(at, min(at + rows, n))), names)

    cap._chunks = small  # type: ignore[method-assign]


@pytest.mark.parametrize("part_rows", [300, 700, 5000])
def test_parts_together_are_the_tables(part_rows: int) -> None:
    whole = ta.open(SAMPLE).timeline()
    cap = ta.open(SAMPLE)
    _small_batches(cap, part_rows)
    sink = Kept(part_rows)
    cap.stream(sink)
    assert len(sink.parts) > 3
    for name, key in zip(TABLES, ("slice", "wakeup", "gap"), strict=True):
        ours = sink.table(name).sort_by(key)
        theirs = getattr(whole, name)
        assert ours.column(key).to_pylist() == theirs.column(key).to_pylist()
        for column in theirs.column_names:
            if column == "sync_guess":  # as far as was known by then
                known = pc.is_valid(ours.column(column))
                assert pc.all(pc.equal(ours.filter(known).column(column), 0)).as_py() in (
                    True,
                    None,
                )
                continue
            assert ours.column(column).equals(theirs.column(column)), (name, column)
    assert cap.timeline().tasks.equals(whole.tasks)
    assert cap.timeline().cpus.equals(whole.cpus)


def test_most_rows_come_in_order() -> None:
    cap = ta.open(SAMPLE)
    _small_batches(cap, 5000)
    sink = Kept(5000)
    cap.stream(sink)
    ids = sink.table("wakeups").column("wakeup").to_numpy()
    late = int((np.diff(ids) < 0).sum())
    assert late < len(ids) / 500


def test_a_part_knows_what_is_not_over() -> None:
    begin_only = (None, "12%")
    cap = ta.open(SAMPLE, time=begin_only)
    _small_batches(cap, 20)
    sink = Kept(20)
    cap.stream(sink)
    raw = ta.open(SAMPLE, time=begin_only).timeline().raw
    seen = 0
    for name, dtype in (("slices", k.SLICE), ("gaps", k.GAP), ("wakeups", k.WAKE)):
        whole = raw[name]
        for part in sink.parts[:-1]:
            unfinished = part.unfinished[name]
            assert not np.isin(unfinished["id"], structured(part.columns[name], dtype)["id"]).any()
            after = whole[unfinished["id"]]
            begin = "waking" if name == "wakeups" else "start"
            assert np.array_equal(unfinished[begin], after[begin])
            seen += len(unfinished)
    assert seen > 10


def test_tasks_need_no_rows() -> None:
    cap = ta.open(SAMPLE)
    tasks = cap.tasks()
    assert tasks.equals(ta.open(SAMPLE).timeline().tasks)
    assert cap._timeline is None
    whole = cap.timeline()
    assert whole.slices.num_rows > 1000
    assert cap.tasks() is whole.tasks


def _spilled(hold: int, study: int) -> ta.Capture:
    cap = ta.open(SAMPLE)
    _small_batches(cap, 4000)
    spill = Spill(cap._reader.progress, hold_rows=hold, part_rows=hold, study_rows=study)
    cap.stream(spill)
    return cap


def test_report_of_a_spilled_timeline_is_the_same() -> None:
    plain = json.loads(reports.render(ta.open(SAMPLE), format="json", command="x"))
    cap = _spilled(3000, 10_000)
    assert cap.timeline().study is not None
    spilled = json.loads(reports.render(cap, format="json", command="x"))
    # These two look at a stretch only, and say so.
    apart = {"rules", "timeline"}
    # Idle time is binned without the moves of waiting tasks then, and says so.
    binned = {"bins", "race", "delays", "examples"}
    compared = 0
    for a, b in zip(plain["sections"], spilled["sections"], strict=True):
        assert a["id"] == b["id"]
        if a["id"] in binned:
            assert a["missing"] == b["missing"]
            if a["id"] == "race":
                assert "Assumed: the capture is long" in json.dumps(b)
                assert a["tables"] == b["tables"]
        elif a["id"] not in apart:
            assert a == b, a["id"]
            compared += 1
        else:
            assert "in its middle" in json.dumps(b)
            assert "in its middle" not in json.dumps(a)
    assert compared >= 7


def test_the_stretch_is_decided_as_in_the_whole() -> None:
    cap = _spilled(3000, 10_000)
    study = cap.timeline().study
    assert study is not None
    whole = ta.open(SAMPLE).timeline()
    rows = study.raw["wakeups"]
    for name in ("wakeups", "slices", "gaps"):
        ids = study.raw[name]["id"]
        assert len(np.unique(ids)) == len(ids), name
    decided = rows[rows["kind"] == k.K_DECIDED]
    assert len(decided) > 500
    reference = whole.raw["wakeups"]
    place = np.searchsorted(reference["id"], decided["id"])
    # dur_avg and flips are carried from the capture's begin, unlike with --time.
    for name in ("waking", "wakee", "wakee_dur", "waker_flips", "placed", "nr_placed"):
        assert np.array_equal(decided[name], reference[name][place]), name
    result = ta.whatif(cap, ["recorded", "this_cpu"])
    assert result["recorded"].moved == 0
    assert 0 < result["this_cpu"].decisions <= len(decided)


@pytest.mark.parametrize("parts_before", [0, 1, 5])
def test_the_stretch_has_its_pulls(parts_before: int) -> None:
    cap = ta.open(SAMPLE)
    _small_batches(cap, 20_000)
    asked: list[int] = []

    def progress() -> tuple[int, int]:
        asked.append(1)
        return (1, 1) if len(asked) > parts_before else (0, 1)

    spill = Spill(progress, hold_rows=3000, part_rows=3000, study_rows=1)
    study = cap.stream(spill).study
    assert study is not None
    moves = ta.open(SAMPLE).timeline().raw["moves"]
    mine = moves[(moves["ts"] > study.first_ts) & (moves["ts"] <= study.last_ts)]
    assert np.isin(mine["ts"], study.raw["moves"]["ts"]).all()
    assert len(mine) > 0 or parts_before
