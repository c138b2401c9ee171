# ruff: noqa: E501  (lines of traces stand as they are printed)
"""Strict reading: what is lawful passes, what cannot be true stops, and nothing depends on batches."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.schedules import Schedule, schedule
from oracle.strict_oracle import first_contradiction

import traceana as ta
from traceana.columns import EventColumns
from traceana.errors import ContradictionError, MissingEventsError, UsageError
from traceana.schema import EventKind
from traceana.strict import _SKEW as SKEWS
from traceana.strict import KINDS, Contradiction, StrictChecker

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"
REPEAT = "HYPOTHESIS_SEED" not in os.environ
SHORT = settings(max_examples=80, derandomize=REPEAT)

Cli = Callable[..., Any]
K = EventKind


# --- situations -----------------------------------------------------------------------------


def line(us: float, cpu: int, who: str, body: str) -> str:
    return f"{who:>20} [{cpu:03d}] d..2 {us / 1e6:.6f}: {body}\n"


def switch(us: float, cpu: int, prev: str, nxt: str, state: str = "S") -> str:
    (a, _, p), (b, _, n) = prev.rpartition("-"), nxt.rpartition("-")
    return line(us, cpu, prev if p != "0" else "<idle>-0",
                f"sched_switch: prev_comm={a} prev_pid={p} prev_prio=120 prev_state={state} ==> "
                f"next_comm={b} next_pid={n} next_prio=120")  # fmt: skip


def wake(us: float, cpu: int, by: str, kind: str, who: str, to: int) -> str:
    comm, _, pid = who.rpartition("-")
    return line(us, cpu, by, f"sched_{kind}: comm={comm} pid={pid} prio=120 target_cpu={to:03d}")


def move(us: float, cpu: int, by: str, who: str, orig: int, dest: int) -> str:
    comm, _, pid = who.rpartition("-")
    return line(us, cpu, by, f"sched_migrate_task: comm={comm} pid={pid} prio=120 orig_cpu={orig} dest_cpu={dest}")  # fmt: skip


I0, I1 = "swapper/0-0", "swapper/1-0"
#: CPU 1 wakes a, which runs on CPU 0.
AGAIN = (
    wake(480, 1, "swapper/1-0", "waking", "a-10", 0)
    + wake(482, 1, "swapper/1-0", "wakeup", "a-10", 0)
    + switch(490, 0, I0, "a-10", "R")
)
#: b is woken by a and runs on CPU 1; a goes on.
PLAIN = (
    switch(100, 0, I0, "a-10", "R")
    + wake(200, 0, "a-10", "waking", "b-20", 1)
    + wake(202, 0, "a-10", "wakeup", "b-20", 1)
    + switch(205, 1, I1, "b-20", "R")
    + switch(300, 1, "b-20", I1)
    + switch(400, 0, "a-10", I0)
)
SITUATIONS = {
    "nothing": (PLAIN, None),
    "switches are not recorded": (
        wake(100, 0, "a-10", "waking", "b-20", 1) + wake(150, 0, "c-30", "waking", "d-40", 1),
        None,
    ),
    "a switch is missing": (
        switch(100, 0, I0, "a-10", "R") + switch(200, 0, "c-30", I0),
        ("lost_switch", 0, 30),
    ),
    "somebody else records": (
        switch(100, 0, I0, "a-10", "R") + wake(150, 0, "c-30", "waking", "b-20", 1),
        ("lost_switch", 0, 30),
    ),
    "the one who leaves records between the record of the switch and the switch": (
        switch(100, 0, I0, "a-10", "R")
        + switch(200, 0, "a-10", "c-30")
        + wake(201, 0, "a-10", "waking", "b-20", 1)
        + switch(300, 0, "c-30", I0),
        None,
    ),
    "two CPUs": (
        switch(100, 0, I0, "a-10", "R")
        + switch(200, 1, I1, "a-10", "R")
        + switch(300, 0, "a-10", I0)
        + switch(400, 1, "a-10", I1),
        ("ran_on_two_cpus", 1, 10),
    ),
    "two CPUs for 2 us: their clocks": (
        switch(100, 0, I0, "a-10", "R")
        + switch(200, 1, I1, "a-10", "R")
        + switch(202, 0, "a-10", I0, "R+")
        + switch(400, 1, "a-10", I1),
        None,
    ),
    "nothing woke it": (
        PLAIN + switch(500, 1, I1, "b-20", "R") + switch(600, 1, "b-20", I1)
        + switch(700, 0, I0, "a-10", "R"),
        ("lost_wakeup", 1, 20),
    ),
    "what woke it is stamped 2 us late": (
        PLAIN + switch(500, 1, I1, "b-20", "R") + wake(502, 0, "swapper/0-0", "waking", "b-20", 1)
        + switch(600, 1, "b-20", I1),
        None,
    ),
    "it was woken while it still ran": (
        PLAIN + AGAIN
        + wake(501, 0, "a-10", "waking", "b-20", 1)
        + switch(510, 1, I1, "b-20", "R")
        + wake(600, 0, "a-10", "waking", "b-20", 1)
        + switch(604, 1, "b-20", I1)
        + wake(605, 0, "a-10", "wakeup", "b-20", 1)
        + switch(610, 1, I1, "b-20", "R"),
        None,
    ),
    "woken twice": (
        PLAIN + AGAIN
        + wake(501, 0, "a-10", "waking", "b-20", 1)
        + wake(550, 0, "a-10", "waking", "b-20", 1)
        + switch(610, 1, I1, "b-20", "R"),
        ("wake_repeated", 0, 20),
    ),
    "a wakeup of a task that is queued": (
        PLAIN + AGAIN
        + switch(501, 1, I1, "c-30", "R")
        + switch(510, 0, "a-10", "d-40", "R")
        + wake(520, 1, "c-30", "waking", "a-10", 0)
        + wake(521, 1, "c-30", "wakeup", "a-10", 0)
        + switch(530, 0, "d-40", "a-10"),
        None,
    ),
    "moved": (
        PLAIN
        + move(410, 0, "swapper/0-0", "x-99", 0, 1)
        + wake(500, 0, "swapper/0-0", "waking", "b-20", 1)
        + wake(502, 0, "swapper/0-0", "wakeup", "b-20", 1)
        + switch(600, 0, I0, "b-20", "R")
        + switch(700, 1, I1, "c-30", "R"),
        ("moved_without_migrate", 0, 20),
    ),
    "moved, and sched_migrate_task says so": (
        PLAIN
        + wake(500, 0, "swapper/0-0", "waking", "b-20", 1)
        + wake(502, 0, "swapper/0-0", "wakeup", "b-20", 1)
        + move(590, 0, "swapper/0-0", "b-20", 1, 0)
        + switch(600, 0, I0, "b-20", "R"),
        None,
    ),
    "moved, but migrations are not recorded": (
        PLAIN
        + wake(500, 0, "swapper/0-0", "wakeup", "b-20", 1)
        + switch(600, 0, I0, "b-20", "R"),
        None,
    ),
    "lost events explain a wakeup that is missing": (
        PLAIN + switch(500, 1, I1, "b-20", "R") + "CPU:0 [LOST 3 EVENTS]\n"
        + switch(700, 0, I0, "a-10", "R"),
        None,
    ),
    "events lost on a CPU that has recorded since explain nothing": (
        PLAIN + switch(410, 0, I0, "c-30", "R") + switch(450, 1, I1, "b-20", "R")
        + switch(455, 0, "c-30", I0) + "CPU:0 [LOST 3 EVENTS]\n" + switch(700, 0, I0, "a-10", "R"),
        # What was lost lies behind 455, the wakeup would have to lie before 450.
        ("lost_wakeup", 1, 20),
    ),
    "a death and the same pid again": (
        switch(100, 0, I0, "a-10", "R") + switch(200, 0, "a-10", I0, "X")
        + wake(300, 0, "swapper/0-0", "waking", "z-5", 0) + switch(400, 1, I1, "a-10", "R"),
        None,
    ),
}  # fmt: skip


def open_text(tmp_path: Path, text: str, **options: Any) -> ta.Capture:
    path = tmp_path / "trace.txt"
    path.write_text("# tracer: nop\n" + text)
    return ta.open(path, kernel="6.18", **options)


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(tmp_path: Path, name: str) -> None:
    text, expected = SITUATIONS[name]
    cap = open_text(tmp_path, text, read_mode="strict")
    if expected is None:
        assert sum(cap.counts.values())
        return
    kind, cpu, pid = expected
    with pytest.raises(ContradictionError) as stopped:
        cap.timeline()
    told = str(stopped.value)
    assert f", cpu {cpu}: {kind}: " in told and f":{pid}: {KINDS[kind]}" in told
    assert stopped.value.exit_code == 7
    before, now = stopped.value.records
    assert before.startswith("before: ") and now.startswith("now: ")
    # normal reading repairs it, and counts it as an issue of this name
    normal = open_text(tmp_path, text)
    normal.timeline()
    assert normal.issues.counts().get(kind)


def test_a_sleep_called_off_is_lawful_from_5_18_to_6_15(tmp_path: Path) -> None:
    text, _ = SITUATIONS["nothing woke it"]
    path = tmp_path / "trace.txt"
    path.write_text("# tracer: nop\n" + text)
    for kernel, stops in (("5.10", True), ("5.18", False), ("6.1", False), ("6.16", True)):
        cap = ta.open(path, kernel=kernel, read_mode="strict")
        if stops:
            with pytest.raises(ContradictionError):
                _ = cap.counts
        else:
            assert cap.counts["sched_switch"]
    # and where the release is not known, it may be one of these
    assert ta.open(path, read_mode="strict").counts["sched_switch"]


def test_time_that_steps_back_on_a_cpu(tmp_path: Path) -> None:
    text = (
        switch(100, 0, I0, "a-10", "R")
        + switch(300, 0, "a-10", I0)
        + switch(299, 0, I0, "c-30", "R")
    )
    with pytest.raises(ContradictionError, match="time_backwards"):
        _ = open_text(tmp_path, text, read_mode="strict").counts


def test_a_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    content = (SAMPLES / "pp3-plain.trace.txt.xz").read_bytes()
    cut = tmp_path / "cut.txt.xz"
    cut.write_bytes(content[: len(content) - 3000])
    assert ta.open(cut).damaged
    with pytest.raises(ContradictionError, match=r"cut or damaged: "):
        _ = ta.open(cut, read_mode="strict").counts


# --- the command ----------------------------------------------------------------------------


def test_the_command_shows_both_records_and_ends_with_7(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("# tracer: nop\n" + SITUATIONS["two CPUs"][0])
    ran = cli("tasks", path, "--read-mode", "strict")
    assert ran.status == 7 and ran.out == ""
    assert ran.err.splitlines() == [
        f"traceana: {path}: 0.000200000 s, cpu 1: ran_on_two_cpus: a:10: {KINDS['ran_on_two_cpus']}",
        "  before: 0.000100000 s, cpu 0: sched_switch: swapper/0:0 R ==> a:10",
        "  now: 0.000200000 s, cpu 1: sched_switch: swapper/1:0 R ==> a:10",
        "  (--read-mode normal repairs and counts this; were events lost? see `traceana info`)",
    ]
    assert cli("tasks", path, "--read-mode", "normal").status == 0
    assert cli("tasks", path).status == 0


def test_names_that_move_a_cursor_do_not_reach_the_terminal(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(
        "# tracer: nop\n"
        + SITUATIONS["two CPUs"][0].replace("=a ", "=\x1b[2J ").replace(" a-", " \x1b[2J-")
    )
    ran = cli("info", path, "--read-mode", "strict")
    assert ran.status == 7 and "\x1b" not in ran.err and "\\x1b[2J" in ran.err


def test_unknown_modes_are_refused(cli: Cli) -> None:
    ran = cli("info", SAMPLES / "hostile.dat", "--read-mode", "strickt")
    assert ran.status == 2 and "did you mean strict?" in ran.err
    with pytest.raises(UsageError, match="one of normal, strict, switch-only"):
        ta.open(SAMPLES / "hostile.dat", read_mode="loose")


# --- switch-only ----------------------------------------------------------------------------


def test_switch_only_uses_nothing_else(cli: Cli) -> None:
    path = SAMPLES / "pp3-plain.dat.xz"
    cap = ta.open(path, read_mode="switch-only")
    kinds = set(cap.events().column("kind").to_pylist())
    assert kinds == {int(K.SWITCH)}
    assert "switch_only" in cap.issues.counts()
    bare = ta.open(path, ignore=tuple(n for n in cap.ignored)).timeline()
    assert cap.timeline().slices.equals(bare.slices)
    assert cap.timeline().wakeups.num_rows == 0
    with pytest.raises(MissingEventsError, match=r"left out on request .--read-mode switch-only"):
        ta.whatif(cap, ["abel"])
    ran = cli("wakeups", path, "--read-mode", "switch-only")
    assert ran.status == 5 and "--read-mode switch-only" in ran.err
    info = cli("info", path, "--read-mode", "switch-only", "--format", "json").json
    told = {q["question"]: q["answer"] for q in info["questions"]}
    assert told == {
        "tasks": "partly",
        "idle": "partly",
        "placement": "no",
        "rules": "no",
        "race": "no",
    }


def test_switch_only_run_times_are_those_of_the_switches() -> None:
    path = SAMPLES / "pp3-plain.dat.xz"
    whole = ta.open(path).timeline().tasks.to_pylist()
    part = ta.open(path, read_mode="switch-only").timeline().tasks.to_pylist()
    ran = {t["pid"]: t["on_cpu_ns"] for t in part if t["pid"] and t["switches"]}
    # (a CPU's first record may be another one than a switch)
    same = [t["pid"] for t in whole if t["pid"] in ran and ran[t["pid"]] == t["on_cpu_ns"]]
    assert len(same) >= 0.8 * len(ran) > 4


# --- real captures, random schedules --------------------------------------------------------


def check(e: EventColumns, kernel: int = 0, cuts: tuple[int, ...] = ()) -> Contradiction | None:
    checker = StrictChecker(kernel=kernel)
    edges = [0, *sorted(c % (len(e) + 1) for c in cuts), len(e)]
    for a, b in itertools.pairwise(edges):
        checker.feed(e.take(slice(a, b)))
    return checker.finish()


@pytest.mark.parametrize(
    "name",
    ["pp6-base.dat", "pp3-plain.dat.xz", "sch-truth.dat.xz", "mix-wrapped.dat", "hostile.dat",
     "pp6-file.perf.data.xz", "pp3-plain.trace.txt.xz", "mix-wrapped.trace.txt.xz"],
)  # fmt: skip
def test_samples_do_not_contradict_themselves(name: str) -> None:
    cap = ta.open(SAMPLES / name, read_mode="strict")
    assert cap.counts["sched_switch"]


def test_captures_of_all_shapes_do_not_contradict_themselves(shared: Path) -> None:
    names = [
        "ab/smt16/hb/base-truth.dat.xz", "ab/smt32/pp24/base-2.dat.xz", "ab/smt8/hbx/short-1.dat.xz",
        "ab/smt8/fp6/abel-1.dat.xz", "forms/sch-clock-uptime.dat", "forms/sch-clock-counter.dat",
        "forms/two-buffers.dat", "perf/mix-g.perf.data.xz", "perf/lost-small.perf.data.xz",
        "perf/pp3-threads.perf.dir.tar.xz", "perf/pp3-pipe.perf.data.xz",
        "stock/linux-7.2-debian/fp6/base-1.dat.xz", "stock/linux-6.12-debian/mix/base-1.dat.xz",
        "public/perf-zstd-sched_switch.data", "public/rpt-no-switch.txt",
    ]  # fmt: skip
    found = [n for n in names if (shared / "captures" / n).exists()]
    for name in found:
        assert sum(ta.open(shared / "captures" / name, read_mode="strict").counts.values()), name
    assert len(found) > 5


@st.composite
def schedules(draw: Any) -> Schedule:
    return schedule(
        draw(st.integers(0, 2**32 - 1)),
        cpus=draw(st.integers(1, 4)),
        kernel=draw(st.sampled_from([5004, 5010, 6001, 6012, 6018, 7003])),
        events=draw(st.integers(20, 260)),
        pace=draw(st.sampled_from([0, 10**6])),
        reread=False,
    )


@SHORT
@given(schedules())
def test_legal_schedules_pass(s: Schedule) -> None:
    assert check(s.columns, s.kernel) is None


@SHORT
@given(schedules(), st.integers(0, 10**6))
def test_a_switch_that_is_taken_away_is_missed(s: Schedule, pick: int) -> None:
    """Unless nothing comes behind it that depends on it."""
    # (the first one shows that switches are recorded)
    rows = np.flatnonzero(s.columns.kind == K.SWITCH)[1:]
    if not len(rows):
        return
    row = int(rows[pick % len(rows)])
    keep = np.ones(len(s.columns), bool)
    keep[row] = False
    after = s.columns.take(keep)
    cpu = s.columns.cpu[row]
    behind = np.flatnonzero(
        (s.columns.cpu == cpu) & (np.arange(len(keep)) > row) & (s.columns.kind == K.SWITCH)
    )
    before = np.flatnonzero((s.columns.cpu == cpu) & (np.arange(len(keep)) < row))
    if not len(behind) or not len(before):
        return
    prev, nxt = s.columns.subject[row], s.columns.subject[behind[0]]
    if prev == nxt:
        return
    assert check(after, s.kernel) is not None


@st.composite
def broken(draw: Any) -> tuple[EventColumns, int]:
    """Schedules with rows taken out, losses marked, a CPU's clock shifted, rows twice."""
    s = draw(schedules())
    e = s.columns.take(slice(None))
    for cpu in range(int(e.cpu.max()) + 1):
        e.ts[e.cpu == cpu] += draw(st.sampled_from([0, 0, 0, 700, 2500, 6000]))
    e = e.take(np.argsort(e.ts, kind="stable"))
    gone = draw(st.lists(st.integers(0, len(e) - 1), max_size=4))
    keep = np.ones(len(e), bool)
    keep[gone] = False
    e = e.take(keep)
    for _ in range(draw(st.integers(0, 2))):
        if not len(e):
            break
        at = draw(st.integers(0, len(e) - 1))
        mark = e.take(np.array([at]))
        mark.kind[:] = draw(st.sampled_from([int(K.LOST), int(K.LOST), int(K.BEGIN)]))
        if draw(st.booleans()):
            e = EventColumns.concat([e.take(slice(0, at)), mark, e.take(slice(at, None))])
        else:
            e = e.take(np.sort(np.r_[np.arange(len(e)), at]))
    return e, s.kernel


@settings(max_examples=400, derandomize=REPEAT)
@given(broken(), st.lists(st.integers(0, 300), max_size=4))
def test_the_slow_way_finds_the_same(case: tuple[EventColumns, int], cuts: list[int]) -> None:
    e, kernel = case
    slow = first_contradiction(e, kernel)
    fast = check(e, kernel, tuple(cuts))
    if slow is None:
        assert fast is None
    else:
        kind, cpu, row = slow
        assert fast is not None
        assert (fast.kind, fast.cpu, fast.ts) == (kind, cpu, int(e.ts[row]))


def test_a_contradiction_is_told_in_the_batch_that_makes_it_certain() -> None:
    s = schedule(5, cpus=2, kernel=6018, events=4000)
    rows = np.flatnonzero(s.columns.kind == K.SWITCH)
    keep = np.ones(len(s.columns), bool)
    keep[rows[len(rows) // 4]] = False
    e = s.columns.take(keep)
    checker = StrictChecker(kernel=6018)
    fed = 0
    for at in range(0, len(e), 100):
        fed += 100
        if checker.feed(e.take(slice(at, at + 100))) is not None:
            break
    assert fed < 0.6 * len(e)


def test_impossible_pids_and_cpus() -> None:
    e = schedule(3, cpus=2, kernel=6001, events=60).columns
    e.subject[np.flatnonzero(e.kind == K.WAKING)[:1]] = 5_000_000
    found = check(e)
    assert found is not None and found.kind == "pid_out_of_range"
    e = schedule(3, cpus=2, kernel=6001, events=60).columns
    e.cpu[:1] = 2_000_000_000
    check(e)  # as in the timeline: not believed, and nothing is allocated for it
    rng = np.random.default_rng(1)
    for _ in range(50):
        e = schedule(3, cpus=2, kernel=6001, events=60).columns
        for name in ("ts", "cpu", "kind", "pid", "subject", "state", "other", "cpu_to"):
            column = getattr(e, name)
            rows = rng.integers(0, len(e), 6)
            column[rows] = rng.integers(0, 2**63, 6).astype(column.dtype)
        check(e, 6018)


def test_skew_of_every_unit_is_known() -> None:
    assert set(SKEWS) == {"ns", "us", "cycles", "jiffies", "count"}


def test_the_same_without_the_compiler() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from oracle.schedules import schedule; from oracle.strict_oracle import first_contradiction\n"
        "import numpy as np; from traceana.strict import StrictChecker\n"
        "s = schedule(11, cpus=3, kernel=6018, events=200); keep = np.ones(len(s.columns), bool)\n"
        "keep[np.flatnonzero(s.columns.kind == 0)[5]] = False\n"
        "e = s.columns.take(keep); c = StrictChecker(kernel=6018); c.feed(e); f = c.finish()\n"
        "k = first_contradiction(e, 6018); assert (f.kind, f.cpu) == k[:2], (f, k); print(f.kind)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "TRACEANA_JIT": "0"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() in KINDS
