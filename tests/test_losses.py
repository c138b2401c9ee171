# ruff: noqa: E501  (lines of traces stand as they are printed)
"""What was lost, what the file's own counters tell of it, and that no result spans it unmarked."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle.schedules import schedule

import traceana as ta
from traceana import reports
from traceana.columns import EventColumns
from traceana.coverage import Coverage
from traceana.idle_time import machine_idle
from traceana.schema import EndReason, EventKind, Quality

TESTS = Path(__file__).resolve().parent
SAMPLES = TESTS.parent / "sample_traces"
sys.path.insert(0, str(TESTS / "parsers"))
import perf_data_writer as pw  # noqa: E402
import trace_dat_writer as w  # noqa: E402

Cli = Callable[..., Any]
K = EventKind
US = 1000


def line(us: float, cpu: int, who: str, body: str) -> str:
    return f"{who:>20} [{cpu:03d}] d..2 {us / 1e6:.6f}: {body}\n"


def switch(us: float, cpu: int, prev: str, nxt: str, state: str = "S") -> str:
    (a, _, p), (b, _, n) = prev.rpartition("-"), nxt.rpartition("-")
    return line(us, cpu, prev, f"sched_switch: prev_comm={a} prev_pid={p} prev_prio=120 prev_state={state} ==> next_comm={b} next_pid={n} next_prio=120")  # fmt: skip


def wake(us: float, cpu: int, by: str, kind: str, who: str, to: int) -> str:
    comm, _, pid = who.rpartition("-")
    return line(us, cpu, by, f"sched_{kind}: comm={comm} pid={pid} prio=120 target_cpu={to:03d}")


I0, I1 = "swapper/0-0", "swapper/1-0"


# --- open states end at a loss ---------------------------------------------------------------


def open_text(tmp_path: Path, text: str) -> ta.Capture:
    path = tmp_path / "trace.txt"
    path.write_text("# tracer: nop\n" + text)
    return ta.open(path)


def test_slices_and_gaps_across_a_loss_are_closed_as_unknown(tmp_path: Path) -> None:
    cap = open_text(
        tmp_path,
        switch(100, 0, I0, "a-10", "R")
        + switch(110, 1, "b-20", I1)
        + wake(200, 0, "a-10", "waking", "c-30", 1)
        + wake(201, 0, "a-10", "wakeup", "c-30", 1)
        + "CPU:0 [LOST 5 EVENTS]\n"
        + switch(500, 0, "a-10", I0)
        + "CPU:1 [LOST 7 EVENTS]\n"
        + switch(600, 1, "c-30", I1)
        + switch(700, 0, I0, "a-10", "R"),
    )
    tl = cap.timeline()
    pids = tl.tasks.column("pid").to_pylist()
    slices = [
        (pids[s["task"]], s["start"], s["end"], s["end_reason"]) for s in tl.slices.to_pylist()
    ]
    # a from 100 on: until when is not known, though it is the one that leaves at 500
    assert (10, 100 * US, None, EndReason.CUT) in slices
    assert (10, None, 500 * US, EndReason.SLEEP) in slices
    gaps = [(g["cpu"], g["start"], g["end"]) for g in tl.idle_gaps.to_pylist()]
    assert (1, 110 * US, None) in gaps and (1, 600 * US, None) in gaps
    assert (0, 500 * US, 700 * US) in gaps
    (wakeup,) = tl.wakeups.to_pylist()
    assert wakeup["quality"] & Quality.TOUCHES_LOSS
    assert wakeup["queue_delay_ns"] is None and wakeup["wakeup_latency_ns"] is None
    zero, one = tl.cpus.to_pylist()
    assert zero["unknown_ns"] >= 400 * US - 1 and one["unknown_ns"] >= 490 * US
    for cpu in (zero, one):
        assert cpu["idle_ns"] + cpu["busy_ns"] + cpu["unknown_ns"] == cap.span_ns
    assert cap.lost.events == 12 and cap.lost.per_cpu == {0: 5, 1: 7}


def test_a_loss_costs_nothing_on_other_cpus(tmp_path: Path) -> None:
    cap = open_text(
        tmp_path,
        switch(100, 0, I0, "a-10", "R") + "CPU:1 [LOST 5 EVENTS]\n" + switch(300, 1, "b-20", I1)
        + switch(500, 0, "a-10", I0),
    )  # fmt: skip
    whole = [s for s in cap.timeline().slices.to_pylist() if s["start"] is not None]
    assert [(s["start"], s["end"]) for s in whole] == [(100 * US, 500 * US)]


@given(st.integers(0, 2**32 - 1), st.data())
def test_no_row_spans_a_loss_on_its_cpu(seed: int, data: st.DataObject) -> None:
    """On random schedules: wherever losses are marked, slices and gaps end before or begin behind."""
    from oracle.tiny import build

    s = schedule(seed, cpus=3, kernel=6001, events=150)
    e = s.columns
    rows = sorted(data.draw(st.sets(st.integers(1, len(e) - 1), min_size=1, max_size=4)))
    parts, losses, at = [], [], 0
    for row in rows:
        mark = e.take(np.array([row]))
        mark.kind[:] = int(K.LOST)
        parts += [e.take(slice(at, row)), mark]
        losses.append((int(mark.cpu[0]), int(mark.ts[0])))
        at = row
    timeline = build(EventColumns.concat([*parts, e.take(slice(at, None))]), kernel=6001)
    for table in (timeline.slices, timeline.idle_gaps):
        for r in table.to_pylist():
            if r["start"] is None or r["end"] is None:
                continue
            for cpu, ts in losses:
                assert cpu != r["cpu"] or not r["start"] < ts < r["end"], (r, cpu, ts)
    for c in timeline.cpus.to_pylist():
        if c["events"]:
            total = c["idle_ns"] + c["busy_ns"] + c["unknown_ns"]
            assert total == timeline.last_ts - timeline.first_ts


# --- counters --------------------------------------------------------------------------------


def dat(tmp_path: Path, stats: list[tuple[int, bytes]], lost: int | None = None) -> Path:
    """CPU 0 with three switches, CPU 1 with two; the second page of CPU 0 may tell a loss."""
    kernel = w.Kernel()

    def to(prev: int, nxt: int) -> bytes:
        return kernel.pack(
            "sched_switch", prev, prev_comm=b"t%d" % prev, prev_pid=prev, prev_prio=120,
            prev_state=1 if prev else 0, next_comm=b"t%d" % nxt, next_pid=nxt, next_prio=120,
        )  # fmt: skip

    first = w.Page(kernel, 1000).event(to(0, 5), 0).event(to(5, 0), 500)
    second = w.Page(kernel, 3000).event(to(0, 5), 0)
    second.missed = lost
    other = w.Page(kernel, 1001).event(to(0, 7), 0).event(to(7, 0), 900)
    cap = w.Capture(kernel, {0: first.bytes() + second.bytes(), 1: other.bytes()}, cpu_count=2)
    cap.options = stats
    path = tmp_path / "x.dat"
    path.write_bytes(w.v6(cap))
    return path


def info(cli: Cli, path: Path, *more: str) -> Any:
    return cli("info", path, "--format", "json", *more).json


def test_statistics_that_fit(cli: Cli, tmp_path: Path) -> None:
    path = dat(tmp_path, [w.stat(0, entries=1, read=2), w.stat(1, read=2, overrun=9)])
    told = info(cli, path)["counters"]
    assert told["agree"] is True
    assert told["per_cpu"]["0"] == {
        "recorded": 3, "found": 3, "overwritten": 0, "dropped": 0, "lost": None, "marked": None,
        "agree": True,
    }  # fmt: skip
    assert told["per_cpu"]["1"]["overwritten"] == 9
    out = cli("info", path).out
    assert (
        "counters of 2 CPUs agree with what is in it; 9 events overwritten before the first" in out
    )


def test_statistics_that_do_not_fit_are_shown_cpu_by_cpu(cli: Cli, tmp_path: Path) -> None:
    path = dat(tmp_path, [w.stat(0, read=38), w.stat(1, read=1)])
    document = info(cli, path)
    told = document["counters"]
    assert told["agree"] is False
    rows = {cpu: (r["recorded"], r["found"], r["agree"]) for cpu, r in told["per_cpu"].items()}
    assert rows == {"0": (38, 3, False), "1": (1, 2, False)}
    assert document["issues"]["events_missing"] == 35
    assert document["issues"]["events_beyond_counters"] == 1
    out = cli("info", path).out
    assert "cpu 0: 38 recorded, 3 in the file" in out
    assert "cpu 1: 1 events recorded, 2 in the file" in out


def test_no_statistics_is_not_agreement(cli: Cli, tmp_path: Path) -> None:
    assert info(cli, dat(tmp_path, []))["counters"] is None


def test_a_hole_between_pages_is_a_mark_of_its_cpu(cli: Cli, tmp_path: Path) -> None:
    document = info(cli, dat(tmp_path, [w.stat(0, read=3), w.stat(1, read=2)], lost=4))
    assert document["lost"] == {"events": 4, "marks": 1, "per_cpu": {"0": 4}}
    assert document["windows"]["per_cpu"]["0"]["losses"] == 1
    assert document["windows"]["per_cpu"]["1"]["losses"] == 0


def test_what_the_header_of_a_text_tells(cli: Cli, tmp_path: Path) -> None:
    body = switch(100, 0, I0, "a-10", "R") + switch(200, 0, "a-10", I0)
    for told, agree in (("2/2", True), ("2/9", True), ("5/5", False)):
        path = tmp_path / "trace.txt"
        path.write_text(
            f"# tracer: nop\n#\n# entries-in-buffer/entries-written: {told}   #P:1\n#\n" + body
        )
        counters = info(cli, path)["counters"]
        kept, written = map(int, told.split("/"))
        row = counters["per_cpu"]["all"]
        assert (row["recorded"], row["found"], row["overwritten"]) == (kept, 2, written - kept)
        assert counters["agree"] is agree


def test_lost_samples_beside_lost_records_of_a_perf_data(cli: Cli, tmp_path: Path) -> None:
    a, b = pw.of(pw.SWITCH, ids=(11, 12)), pw.of(pw.WAKING, ids=(21, 22))

    def to(prev: int, nxt: int) -> bytes:
        return pw.SWITCH.payload(prev, (b"t%d" % prev, prev, 120, 1, b"t%d" % nxt, nxt, 120))

    laid = pw.write(
        [a, b],
        [
            pw.id_index([(11, 0), (12, 1), (21, 0), (22, 1)]),
            pw.sample(a, 10, 0, to(1, 2)),
            pw.lost(a, 7, 31, 0),
            pw.sample(a, 30, 0, to(2, 1)),
            pw.lost_samples(a, 7, 11),
            pw.lost_samples(a, 3, 12),
        ],
    )
    path = tmp_path / "x.data"
    path.write_bytes(laid.data)
    document = info(cli, path)
    rows = {
        c: (r["lost"], r["marked"], r["agree"]) for c, r in document["counters"]["per_cpu"].items()
    }
    assert rows == {"0": (7, 7, True), "1": (3, 0, False)}
    assert document["issues"]["losses_unplaced"] == 3
    assert document["lost"]["events"] == 10
    assert "cpu 1: 3 lost, 0 of them marked" in cli("info", path).out


# --- windows ---------------------------------------------------------------------------------


def common_in_words(cap: ta.Capture) -> str:
    return str(json.loads(reports.render(cap, format="json"))["opening"])


def wrapped(tmp_path: Path) -> Path:
    """CPU 1's ring begins at 900: idle from 900 to 950; CPU 0 is idle throughout from 200."""
    path = tmp_path / "wrapped.txt"
    path.write_text(
        "# tracer: nop\n#\n# entries-in-buffer/entries-written: 5/99   #P:2\n#\n"
        + switch(100, 0, "a-10", "b-20")
        + switch(200, 0, "b-20", I0)
        + "##### CPU 1 buffer started ####\n"
        + switch(900, 1, "c-30", I1)
        + switch(950, 1, I1, "c-30", "R")
        + switch(1000, 0, I0, "a-10", "R")
    )
    return path


def test_the_common_window_is_the_same_everywhere(cli: Cli, tmp_path: Path) -> None:
    path = wrapped(tmp_path)
    document = info(cli, path)
    windows = document["windows"]
    assert windows["common_begin_ns"] == 900 * US and windows["common_ns"] == 100 * US
    assert windows["per_cpu"]["1"] == {
        "begin_ns": 900 * US, "first_ns": 900 * US, "last_ns": 950 * US, "late": True, "events": 2,
        "losses": 0,
    }  # fmt: skip
    assert windows["per_cpu"]["0"]["late"] is False
    # three switches in it: at 900, 950 and 1000
    assert document["activity"] == {
        "window_ns": 100 * US, "switches_per_s": 30_000.0, "wakeups_per_s": None,
    }  # fmt: skip
    idle = cli("idle", path, "--format", "json").json
    assert idle["window_ns"] == 100 * US and idle["idle_share"] == pytest.approx(0.75)
    said = "75.0 % of the 100 µs that all CPUs' data have in common"
    assert said in cli("idle", path).out
    # of one CPU: still the window that all have in common
    for cpu, expected in (("0", 1.0), ("1", 0.5)):
        part = cli("idle", path, "--cpu", cpu, "--format", "json").json
        assert part["window_ns"] == 100 * US and part["idle_share"] == pytest.approx(expected)
        assert "1 CPU idle" in cli("idle", path, "--cpu", cpu).out
    cap = ta.open(path)
    words = common_in_words(cap)
    assert "75.0 %" in words and "100 µs that all CPUs' data have in common" in words
    assert (
        "all CPUs' data have 100 µs in common, from 800 µs behind the first event on"
        in cli("info", path).out
    )


@pytest.mark.parametrize(
    "name", ["mix-wrapped.dat", "mix-wrapped.trace.txt.xz", "pp3-plain.dat.xz"]
)
def test_verbs_agree_on_samples(cli: Cli, name: str) -> None:
    path = SAMPLES / name
    document = info(cli, path)
    idle = cli("idle", path, "--format", "json").json
    cap = ta.open(path)
    online = cap.topology.filter(cap.topology.column("online")).column("cpu").to_pylist()
    found = machine_idle(cap.timeline(), online)
    assert idle["window_ns"] == document["windows"]["common_ns"] == found.window_ns
    assert idle["idle_share"] == found.share
    assert f"{100 * (found.share or 0):.1f} %" in common_in_words(cap)
    assert document["windows"]["common_begin_ns"] == max(
        c["begin"] for c in cap.timeline().cpus.to_pylist() if c["events"]
    )


def test_a_cpu_whose_data_is_cut_is_unknown_from_there_on(tmp_path: Path) -> None:
    """Not idle, or busy, until the end of the capture."""
    kernel = w.Kernel()

    def to(prev: int, nxt: int) -> bytes:
        return kernel.pack(
            "sched_switch", prev, prev_comm=b"t%d" % prev, prev_pid=prev, prev_prio=120,
            prev_state=1 if prev else 0, next_comm=b"t%d" % nxt, next_pid=nxt, next_prio=120,
        )  # fmt: skip

    one = w.Page(kernel, 1000).event(to(0, 5), 0).event(to(5, 0), 900_000)
    two = w.Page(kernel, 1001).event(to(7, 0), 0).event(to(0, 7), 1000).event(to(7, 0), 1000)
    more = w.Page(kernel, 5000).event(to(0, 7), 0)
    content = w.v6(w.Capture(kernel, {0: one.bytes(), 1: two.bytes() + more.bytes()}, cpu_count=2))
    whole, cut = tmp_path / "whole.dat", tmp_path / "cut.dat"
    whole.write_bytes(content)
    cut.write_bytes(content[:-4096])
    known = ta.open(whole).timeline().cpus.to_pylist()[1]
    assert known["unknown_ns"] == 0
    cap = ta.open(cut)
    row = cap.timeline().cpus.to_pylist()[1]
    assert cap.damaged
    assert row["unknown_ns"] >= 890_000
    assert row["idle_ns"] == 1000


def test_a_page_that_is_left_out_for_damage_is_a_loss(tmp_path: Path) -> None:
    kernel = w.Kernel()

    def to(prev: int, nxt: int) -> bytes:
        return kernel.pack(
            "sched_switch", prev, prev_comm=b"t%d" % prev, prev_pid=prev, prev_prio=120,
            prev_state=1 if prev else 0, next_comm=b"t%d" % nxt, next_pid=nxt, next_prio=120,
        )  # fmt: skip

    pages = [
        w.Page(kernel, 1000).event(to(0, 5), 0),
        w.Page(kernel, 2000).event(to(5, 0), 0).event(to(0, 5), 10),
        w.Page(kernel, 300_000).event(to(5, 0), 0),
        w.Page(kernel, 400_000).event(to(0, 5), 0),
    ]
    path = tmp_path / "x.dat"
    slices = {}
    for broken in (False, True):
        pages[1].commit = 100_000 if broken else None
        path.write_bytes(w.v6(w.Capture(kernel, {0: b"".join(p.bytes() for p in pages)})))
        cap = ta.open(path)
        slices[broken] = {(s["start"], s["end"]) for s in cap.timeline().slices.to_pylist()}
    assert {(1000, 2000), (2010, 300_000)} <= slices[False]
    assert {(1000, None), (None, 300_000)} <= slices[True]
    assert cap.damaged and cap.lost.per_cpu == {0: None}
    assert cap.issues.counts()["bad_page"] == 1


def plain_coverage(e: EventColumns) -> dict[str, Any]:
    """Row by row."""
    cpus: dict[int, dict[str, Any]] = {}
    first = last = None
    begins: dict[int, int] = {}
    for ts, cpu, kind in zip(e.ts.tolist(), e.cpu.tolist(), e.kind.tolist(), strict=True):
        if kind == K.BEGIN:
            begins[cpu] = ts
        if kind >= K.LOST:
            continue
        first = ts if first is None else min(first, ts)
        last = ts if last is None else max(last, ts)
        if cpu < 0:
            continue
        c = cpus.setdefault(cpu, {"n": 0, "first": ts, "last": ts})
        c["n"] += 1
        c["last"] = max(c["last"], ts)
    begin = max([first or 0, *(begins[c] for c in cpus if c in begins)])
    return {"cpus": cpus, "first": first, "last": last, "begin": begin}


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 200), max_size=4), st.data())
def test_coverage_is_that_of_a_plain_count(seed: int, cuts: list[int], data: st.DataObject) -> None:
    e = schedule(seed, cpus=3, kernel=6001, events=120).columns
    for cpu in data.draw(st.sets(st.integers(0, 2), max_size=2)):
        rows = np.flatnonzero(e.cpu == cpu)
        if len(rows):
            mark = e.take(rows[:1])
            mark.kind[:] = int(K.BEGIN)
            at = int(rows[0])
            e = EventColumns.concat([e.take(slice(0, at)), mark, e.take(slice(at, None))])
    coverage = Coverage()
    edges = [0, *sorted(c % (len(e) + 1) for c in cuts), len(e)]
    for i in range(len(edges) - 1):
        coverage.feed(e.take(slice(edges[i], edges[i + 1])))
    plain = plain_coverage(e)
    assert (coverage.first_ns, coverage.last_ns) == (plain["first"], plain["last"])
    found = {
        w.cpu: {"n": w.events, "first": w.first_ns, "last": w.last_ns} for w in coverage.windows()
    }
    assert found == plain["cpus"]
    assert coverage.common() == (plain["begin"], plain["last"])
    inside = (e.kind < int(K.LOST)) & (e.ts >= plain["begin"])
    assert coverage.counts.tolist() == np.bincount(e.kind[inside], minlength=len(K)).tolist()
