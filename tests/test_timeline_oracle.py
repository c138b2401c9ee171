"""The fast timeline against a slow one, on random legal schedules; and what must not matter."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.schedules import Schedule, drop, relabel, schedule, shift
from oracle.timeline_oracle import oracle
from oracle.tiny import build, tables

from traceana.columns import EventColumns
from traceana.schema import EndReason, EventKind, Quality, WakeKind
from traceana.timeline import Timeline

TESTS = Path(__file__).resolve().parent
#: The same examples in each run, unless HYPOTHESIS_SEED asks for others.
REPEAT = "HYPOTHESIS_SEED" not in os.environ
SHORT = settings(max_examples=60, derandomize=REPEAT)
LONG = settings(max_examples=500, derandomize=REPEAT)

KERNELS = st.sampled_from([0, 5004, 5010, 6001, 6012, 7003])


@st.composite
def schedules(draw: Any, kernels: Any = KERNELS, most: int = 260, reread: bool = False) -> Schedule:
    return schedule(
        draw(st.integers(0, 2**32 - 1)),
        cpus=draw(st.integers(1, 4)),
        kernel=draw(kernels),
        events=draw(st.integers(20, most)),
        llcs=draw(st.integers(1, 2)),
        pace=draw(st.sampled_from([0, 10**6, 3 * 10**9])),
        seeded=draw(st.booleans()),
        reread=reread,
    )


def timeline(s: Schedule, cuts: tuple[int, ...] = ()) -> Timeline:
    return build(s.columns, cuts, llc=s.llc, kernel=s.kernel, hz=s.hz, start=s.start)


def labelled(t: Timeline) -> dict[str, list[dict[str, Any]]]:
    """The tables with labels in place of ids, as the oracle gives them."""
    out = {name: table.to_pylist() for name, table in tables(t).items()}
    seen: dict[int, int] = {}
    label: dict[int | None, Any] = {None: None}
    for row in out["tasks"]:
        if row["pid"]:
            label[row["task"]] = (row["pid"], seen.get(row["pid"], 0))
            seen[row["pid"]] = seen.get(row["pid"], 0) + 1
        else:
            label[row["task"]] = ("idle", row["cpu"])
    for name, columns in (
        ("tasks", ("task",)),
        ("slices", ("task",)),
        ("wakeups", ("wakee", "waker", "current")),
    ):
        for row in out[name]:
            for column in columns:
                row[column] = label[row[column]]
    which = {w["wakeup"]: (w["wakee"], w["waking_ts"], w["wakeup_ts"]) for w in out["wakeups"]}
    for row in out["idle_gaps"]:
        row["ended_by"] = which.get(row["ended_by"])
        del row["gap"]
    for row in out["wakeups"]:
        del row["wakeup"]
    for row in out["slices"]:
        del row["slice"]
    for row in out["tasks"]:
        for column in ("tgid", "comm", "group"):
            del row[column]
    return out


def said_on_cpu(got: dict[str, list[dict[str, Any]]]) -> set[tuple[Any, int]]:
    return {(w["wakee"], w["waking_ts"]) for w in got["wakeups"] if w["kind"] == WakeKind.ON_CPU}


def _sorted(rows: list[dict[str, Any]]) -> list[tuple[tuple[str, Any], ...]]:
    plain = [
        tuple(sorted((k, int(v) if isinstance(v, int) else v) for k, v in r.items())) for r in rows
    ]
    return sorted(plain, key=repr)


def assert_equal(got: list[dict[str, Any]], want: list[dict[str, Any]], name: str) -> None:
    """Rows in any order (schema.check has seen to the order); says which cell differs."""
    a, b = _sorted(got), _sorted(want)
    if a == b:
        return
    extra = [dict(r) for r in a if r not in b]
    missing = [dict(r) for r in b if r not in a]
    lines = [f"{name}: {len(extra)} rows differ of {len(a)} (oracle: {len(b)})"]
    for g in extra[:3]:
        near = max(missing, key=lambda m: sum(m[k] == g.get(k) for k in m), default=None)
        lines.append(f"  got {g}")
        if near is not None:
            differ = {k: (g.get(k), near[k]) for k in near if g.get(k) != near[k]}
            lines.append(f"  cells (got, oracle): {differ}")
    raise AssertionError("\n".join(lines))


def assert_as_oracle(s: Schedule, hide: dict[str, tuple[str, ...]] | None = None) -> None:
    if not len(s.columns):
        return
    got = labelled(timeline(s))
    want = oracle(s, said_on_cpu(got))
    for row in got["wakeups"] + want["wakeups"]:
        if row["kind"] in (WakeKind.ON_RQ, WakeKind.SELF, WakeKind.OTHER_CLASS, WakeKind.UNKNOWN):
            row["wakee_flips"] = None  # no decision saw them
            row["quality"] &= ~Quality.FLIPS_UNKNOWN
        if row["quality"] & Quality.SKEW:
            row["look_hi"] = row["visible_lo"] = row["visible_hi"] = None  # it came too late
    for name, rows in want.items():
        hidden = (hide or {}).get(name, ())
        kept = [{k: v for k, v in row.items() if k not in hidden} for row in got[name]]
        assert_equal(
            kept, [{k: v for k, v in row.items() if k not in hidden} for row in rows], name
        )


@LONG
@given(schedules())
def test_timeline_equals_the_oracle(s: Schedule) -> None:
    assert_as_oracle(s)


#: Of a wakee that stayed on its queue nothing closes the row where no wakeup is recorded; what a
#: deferred decision saw of others is then known late.
LATE = {
    "wakeups": (
        "run_ts",
        "ran_cpu",
        "quality",
        "kind",
        "wakee_dur_avg_ns",
        "waker_dur_avg_ns",
        "wakee_flips",
        "waker_flips",
    ),
    "tasks": ("wakee_flips", "flips_seen"),
}


@pytest.mark.parametrize(
    ("kinds", "hide"),
    [
        ((EventKind.STAT_RUNTIME,), None),
        ((EventKind.MIGRATE,), None),
        ((EventKind.WAKING,), None),
        ((EventKind.WAKING, EventKind.WAKEUP, EventKind.WAKEUP_NEW, EventKind.FORK), None),
        ((EventKind.WAKEUP,), LATE),
        ((EventKind.CPU_IDLE, EventKind.FORK, EventKind.EXIT), None),
    ],
    ids=["stat_runtime", "migrate", "waking", "switches only", "wakeup", "few"],
)
@settings(max_examples=25, derandomize=REPEAT)
@given(s=schedules())
def test_without_some_kinds_it_equals_the_oracle(
    kinds: tuple[EventKind, ...], hide: dict[str, tuple[str, ...]] | None, s: Schedule
) -> None:
    assert_as_oracle(drop(s, *kinds), hide)


@SHORT
@given(schedules(), st.integers(1, 120))
def test_recording_that_begins_in_the_middle_equals_the_oracle(s: Schedule, first: int) -> None:
    assert_as_oracle(drop(s, first=first))


#: That a block was recorded as R shows with its wakeup only: until then it counts as waiting.
UNTIL_THEN = {
    "wakeups": ("nr_running_placed", "nr_running_this", "prev_idle", "placed_idle"),
    "idle_gaps": ("waited_llc_ns", "waited_any_ns", "waited_busy_llc_ns"),
}


@SHORT
@given(schedules(st.sampled_from([5010, 5017]), reread=True))
def test_blocks_recorded_as_r_equal_the_oracle(s: Schedule) -> None:
    assert_as_oracle(s, UNTIL_THEN)


SAMPLES = sorted(
    path
    for path in (TESTS.parent / "sample_traces").iterdir()
    if {".dat", ".data"} & set(path.suffixes) and path.suffix != ".json"
)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_pieces_of_the_samples_equal_the_oracle(path: Path) -> None:
    import traceana

    capture = traceana.open(path)
    columns = EventColumns.from_arrow(next(iter(capture.event_batches())))
    known = columns.cpu >= 0
    columns = columns.take(known & (columns.kind < EventKind.LOST))
    cpus = int(columns.cpu.max()) + 1
    for begin in {0, len(columns) // 2}:
        piece = columns.take(slice(begin, begin + 1200))
        llc = np.zeros(max(cpus, int(piece.cpu_to.max()) + 1), np.int32)
        assert_as_oracle(Schedule(piece, llc, 6001, 250, None, f"{path.name} from {begin}"))


# --- what must not matter -------------------------------------------------------------------


@st.composite
def damaged(draw: Any) -> Schedule:
    """A schedule with events missing, marks of losses, and clocks that step back."""
    s = draw(schedules(most=160))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = len(s.columns)
    rows = np.flatnonzero(rng.random(n) >= draw(st.sampled_from([0.0, 0.02, 0.3])))
    c = s.columns.take(rows)
    for i in np.flatnonzero(rng.random(len(c)) < 0.03):
        c.kind[i] = rng.choice([EventKind.LOST, EventKind.LOST, EventKind.BEGIN])
        c.value[i] = 3
    back = rng.random(len(c)) < draw(st.sampled_from([0.0, 0.05]))
    c.ts[back] -= rng.integers(0, 5000, int(back.sum()))
    for name in ("prio", "cpu_to", "ctx", "subject", "other", "pid"):
        column = getattr(c, name)
        odd = rng.random(len(c)) < draw(st.sampled_from([0.0, 0.01]))
        column[odd] = {"prio": -32768, "ctx": 255}.get(name, -1)
    return Schedule(c, s.llc, s.kernel, s.hz, s.start, s.origin)


@SHORT
@given(damaged(), st.data())
def test_any_split_into_batches_gives_the_same_tables(s: Schedule, data: Any) -> None:
    n = len(s.columns)
    cuts = data.draw(st.lists(st.integers(0, n), max_size=8).map(sorted))
    if not n:
        return
    whole, parts = timeline(s), timeline(s, tuple(cuts))
    single = timeline(s, tuple(range(1, n)))
    for name, table in tables(whole).items():
        assert table.equals(tables(parts)[name]), name
        assert table.equals(tables(single)[name]), name
    assert whole.issues.counts() == parts.issues.counts() == single.issues.counts()
    assert (whole.first_ts, whole.last_ts) == (parts.first_ts, parts.last_ts)


@SHORT
@given(damaged())
def test_damage_gives_no_negative_time_and_no_time_twice(s: Schedule) -> None:
    if not len(s.columns):
        return
    got = labelled(timeline(s))
    for w in got["wakeups"]:
        for name in ("wakeup_latency_ns", "queue_delay_ns", "wake_delay_ns"):
            assert w[name] is None or w[name] >= 0, w
    for row in got["slices"] + got["idle_gaps"]:
        assert row["start"] is None or row["end"] is None or row["end"] >= row["start"], row
    for row in got["idle_gaps"]:
        waits = [row[n] for n in ("waited_busy_llc_ns", "waited_llc_ns", "waited_any_ns")]
        assert waits == [None] * 3 or min(waits) >= 0
    for row in got["cpus"]:
        assert min(row["idle_ns"], row["busy_ns"], row["unknown_ns"]) >= 0, row
    for row in got["tasks"]:
        assert row["runtime_ns"] >= 0 and row["delay_sum_ns"] >= 0, row
        assert row["switches"] == row["voluntary"] + row["preempted"], row


def _moved(rows: list[dict[str, Any]], by: int) -> list[dict[str, Any]]:
    times = {"waking_ts", "wakeup_ts", "run_ts", "look_lo", "look_hi", "visible_lo", "visible_hi"}
    times |= {"first_ts", "last_ts", "born", "died", "delay_max_at_ns", "start", "end", "begin"}
    out = []
    for row in rows:
        new = {k: v + by if k in times and v is not None else v for k, v in row.items()}
        if new.get("ended_by") is not None:
            who, waking, wakeup = new["ended_by"]
            new["ended_by"] = (who, *(None if t is None else t + by for t in (waking, wakeup)))
        out.append(new)
    return out


@SHORT
@given(schedules(), st.integers(-(10**12), 10**15))
def test_shifted_time_shifts_times_only(s: Schedule, by: int) -> None:
    before, after = labelled(timeline(s)), labelled(timeline(shift(s, by)))
    for name, rows in before.items():
        assert _moved(rows, by) == after[name], name


@SHORT
@given(schedules(), st.randoms(use_true_random=False))
def test_other_pids_and_cpus_change_labels_only(s: Schedule, rng: Any) -> None:
    used = {int(p) for c in (s.columns.pid, s.columns.subject, s.columns.other) for p in c if p > 0}
    used |= {p for t in (s.start.tasks if s.start else ()) for p in (t.pid, t.last_wakee) if p}
    new = rng.sample(range(1, 4_000_000), len(used))
    pid_of = dict(zip(sorted(used), new, strict=True))
    cpu_of = rng.sample(range(len(s.llc)), len(s.llc))
    before = labelled(timeline(s))
    after = labelled(timeline(relabel(s, pid_of, cpu_of)))

    def label(value: Any) -> Any:
        if not isinstance(value, tuple):
            return value
        if value[0] == "idle":
            return ("idle", cpu_of[value[1]])
        if isinstance(value[0], tuple):
            return (label(value[0]), *value[1:])
        return (pid_of[value[0]], value[1])

    cpus = {"cpu", "this_cpu", "prev_cpu", "placed_cpu", "ran_cpu"}
    for name, rows in before.items():
        want = []
        for row in rows:
            new_row = {k: label(v) for k, v in row.items()}
            for k in cpus & set(row):
                if row[k] is not None:
                    new_row[k] = cpu_of[row[k]]
            if new_row.get("pid"):
                new_row["pid"] = pid_of[new_row["pid"]]
            want.append(new_row)
        assert_equal(after[name], want, name)


# --- sums -----------------------------------------------------------------------------------


@SHORT
@given(schedules())
def test_a_cpus_idle_busy_and_unknown_are_the_span(s: Schedule) -> None:
    t = timeline(s)
    got = labelled(t)
    for row in got["cpus"]:
        assert row["idle_ns"] + row["busy_ns"] + row["unknown_ns"] == t.last_ts - t.first_ts
        # Nothing was lost: once a CPU has shown itself, all of its time is known.
        if row["switches"]:
            assert row["unknown_ns"] == 0
    for cpu in range(len(s.llc)):
        mine = [r for r in got["slices"] + got["idle_gaps"] if r["cpu"] == cpu]
        mine.sort(key=lambda r: r["start"] if r["start"] is not None else t.first_ts - 1)
        for a, b in itertools.pairwise(mine):
            assert a["end"] == b["start"]


@SHORT
@given(schedules())
def test_a_task_is_in_one_state_at_a_time(s: Schedule) -> None:
    """Run, runnable, sleep and unknown of each task add up to the window."""
    t = timeline(s)
    got = labelled(t)
    for task in got["tasks"]:
        if task["pid"] == 0:
            continue
        slices = [r for r in got["slices"] if r["task"] == task["task"]]
        arrivals = {w["run_ts"]: w for w in got["wakeups"] if w["wakee"] == task["task"]}
        total = dict.fromkeys(("run", "runnable", "sleep", "unknown"), 0)
        at, state = t.first_ts, "unknown"
        for row in slices:
            start = t.first_ts if row["start"] is None else row["start"]
            wake = arrivals.get(row["start"])
            # A sleep that was called off (R4) shows a block and no wakeup: runnable, unknown since.
            queued = None if wake is None else wake["wakeup_ts"]
            if queued is not None and state in ("sleep", "unknown"):
                assert at <= queued <= start
                total[state] += queued - at
                at, state = queued, "runnable"
            total[state] += start - at
            end = t.last_ts if row["end"] is None else row["end"]
            assert start <= end
            total["run"] += end - start
            at = end
            preempted = row["end_reason"] in (EndReason.PREEMPT, EndReason.YIELD_LIKE)
            state = "runnable" if preempted else "sleep"
        total[state] += t.last_ts - at
        assert min(total.values()) >= 0
        assert sum(total.values()) == t.last_ts - t.first_ts
        if slices and slices[0]["start"] is not None and task["dur_avg_source"] == 1:
            assert total["run"] >= task["runtime_ns"]


@SHORT
@given(schedules())
def test_windows_waits_and_latencies_are_in_order(s: Schedule) -> None:
    got = labelled(timeline(s))
    for gap in got["idle_gaps"]:
        waits = [gap[f"waited_{name}_ns"] for name in ("busy_llc", "llc", "any")]
        if waits == [None] * 3:  # no sched_wakeup in this schedule
            continue
        assert 0 <= waits[0] <= waits[1] <= waits[2], gap
        if gap["start"] is not None and gap["end"] is not None:
            assert waits[2] <= gap["end"] - gap["start"], gap
    for w in got["wakeups"]:
        for lo, hi in (("look_lo", "look_hi"), ("visible_lo", "visible_hi")):
            assert w[lo] is None or w[hi] is None or w[lo] <= w[hi], w
        for name in ("wakeup_latency_ns", "queue_delay_ns", "wake_delay_ns"):
            assert w[name] is None or w[name] >= 0, w
        if w["wakeup_latency_ns"] is not None and w["queue_delay_ns"] is not None:
            assert w["queue_delay_ns"] <= w["wakeup_latency_ns"], w
        if w["kind"] in (WakeKind.SELF, WakeKind.ON_RQ):
            assert w["wakeup_latency_ns"] is None and w["queue_delay_ns"] is None, w
        missing = w["waking_ts"] is None and w["kind"] != WakeKind.FORK
        assert missing == bool(w["quality"] & Quality.NO_WAKING), w


_UNCOMPILED = """
import json, sys
from oracle.schedules import schedule
from oracle.tiny import build, tables
out = []
for seed in range(4):
    s = schedule(seed, cpus=3, kernel=6001, events=150, llcs=2, pace=10**6, seeded=True)
    t = build(s.columns, (40,), llc=s.llc, kernel=s.kernel, hz=s.hz, start=s.start)
    out.append({k: v.to_pylist() for k, v in tables(t).items()})
print(json.dumps(out))
"""


def test_uncompiled_kernels_give_the_same() -> None:
    def run(jit: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", _UNCOMPILED],
            env={
                **os.environ,
                "TRACEANA_JIT": jit,
                "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
            },
            capture_output=True,
            check=True,
            text=True,
        )
        return json.loads(done.stdout)

    assert run("0") == run("1")


#: A wakeup recorded after the wakee's switch-in: clears one mark of the row and sets another.
_LATE = """
import json
from oracle.tiny import run
got = run('''
    90   1   0  .  switch S 9
    100  0   1  .  waking 2 1
    102  1   0  .  switch R 2
    103  0   1  .  wakeup 2 1
    150  1   2  .  switch S 0
''')
print(json.dumps(got.wakes(2), default=int))
"""


@pytest.mark.parametrize("jit", ["0", "1"])
def test_a_wakeup_after_the_switch_in_is_taken_uncompiled_too(jit: str) -> None:
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    done = subprocess.run(
        [sys.executable, "-c", _LATE],
        env={**os.environ, "TRACEANA_JIT": jit, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)
    assert row["quality"] & Quality.SKEW
    assert not row["quality"] & Quality.NO_WAKEUP
