# ruff: noqa: E501  (lines of traces stand as they are printed)
"""The kernel against the line by line reader, and both against what was written."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from traceana.columns import NULL_CTX, NULL_STATE, EventColumns, NameChange
from traceana.parsers.text_order import Learnt, Mark, Order, Twins, place_marks
from traceana.schema import EVENT_NAMES, STATE_LETTERS, EventKind

sys.path.insert(0, str(Path(__file__).parent))
from text_writer import Event, expected, ftrace_line, perf_line, read, report_line, same

HOSTILE = [
    b"a", b"pp-a-0", b"a prev_pid=7", b"x ==> y", b"(sd-pam) [0]:x", b"-1 [000]", b"]x: y",
    b"a b=c ==> d", b"<script>x", b"a:1 [2]", b":1 [2] S ==> x", b"-1 [0]  1: b:", b"kworker/0:1",
    b"Web Content 2-1", b"a-1", "été".encode(), b"#x", b"trail", b"a pid=1 prio=2", b"1 2 [3]",
    b"dead 12345", b"x 12 [000] 1.0:", b"comm=x", b"prev_comm=a", b'a,b"c;\\', b"123456789012345",
]  # fmt: skip
COMM = st.sampled_from(HOSTILE)
PID = st.sampled_from([1, 2, 77, 1234, 65536, 4194303])
PRIO = st.integers(-1, 139)
CPU = st.sampled_from([0, 1, 7, 130, 1023])
FLAGS = st.sampled_from([b"d..2.", b"dNh..", b".....", b"D.s31", b"bnH1.", b"d..2", b"dNLh2.1"])


def field_sets(name: str) -> st.SearchStrategy[dict[str, object]]:
    one = {"comm": COMM, "pid": PID, "prio": PRIO}
    sets: dict[str, dict[str, st.SearchStrategy[object]]] = {
        "sched_switch": {
            "prev_comm": COMM, "prev_pid": PID, "prev_prio": PRIO,
            "prev_state": st.sampled_from(["R", "S", "D", "T", "t", "I", "R+"]),
            "next_comm": COMM, "next_pid": PID, "next_prio": PRIO,
        },
        "sched_waking": one | {"target_cpu": CPU},
        "sched_wakeup": one | {"target_cpu": CPU},
        "sched_wakeup_new": one | {"target_cpu": CPU},
        "sched_migrate_task": one | {"orig_cpu": CPU, "dest_cpu": CPU},
        "sched_process_fork": {
            "parent_comm": COMM, "parent_pid": PID, "child_comm": COMM, "child_pid": PID,
        },
        "sched_process_exec": {"filename": st.just(b"/bin/x pid=1 y"), "pid": PID, "old_pid": PID},
        "sched_process_exit": one,
        "sched_stat_runtime": {"comm": COMM, "pid": PID, "runtime": st.integers(0, 2**62)},
        "cpu_idle": {"state": st.sampled_from([0, 3, 4294967295]), "cpu_id": CPU},
    }  # fmt: skip
    return st.fixed_dictionaries(sets[name])


KINDS = [
    "sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task",
    "sched_process_fork", "sched_process_exec", "sched_process_exit", "sched_stat_runtime",
    "cpu_idle",
]  # fmt: skip


@st.composite
def runs(draw: st.DrawFn) -> list[Event]:
    """Events in the order of time, all at least 1 µs apart."""
    now = draw(st.integers(0, 10**13))
    out = []
    for name in draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=12)):
        now += draw(st.integers(1000, 10**7))
        out.append(
            Event(now, draw(CPU), draw(COMM), draw(PID), name, draw(field_sets(name)), draw(FLAGS))
        )
    return out


def render(events: list[Event], dress: str) -> tuple[bytes, str, int]:
    """The text, its form, and the digits of its times."""
    if dress == "perf":
        return b"".join(perf_line(e) + b"\n" for e in events), "perf", 6
    if dress == "perf --ns":
        return b"".join(perf_line(e, digits=9) + b"\n" for e in events), "perf", 9
    if dress.startswith("report"):
        body = dress.split()[1]
        lines = b"".join(report_line(e, body=body) + b"\n" for e in events)
        return b"cpus=1024\n" + lines, "report", 9
    flags = dress != "ftrace bare"
    tgid = {"ftrace tgid": 5, "ftrace untold": 0}.get(dress)
    return b"".join(ftrace_line(e, tgid=tgid, flags=flags) + b"\n" for e in events), "ftrace", 6


DRESSES = [
    "ftrace", "ftrace bare", "ftrace tgid", "ftrace untold", "report pretty", "report raw",
    "report kernel", "perf", "perf --ns",
]  # fmt: skip


def state_of(text: str) -> int:
    return sum(STATE_LETTERS[c] for c in text if c != "R")


@pytest.mark.parametrize("dress", DRESSES)
@settings(max_examples=60)
@given(events=runs())
def test_what_was_written_is_read(dress: str, events: list[Event]) -> None:
    # In a plugin's text this name makes two readings of a switch equally right.
    assume(dress != "report pretty" or all(b":1 [2] S ==> x" not in e.f.values() for e in events))
    text, form, digits = render(events, dress)
    slow = read(text, form)
    same(slow, read(text, form, fast=True))
    same(slow, read(text, form, fast=True, piece=150))
    assert not slow.reader.damaged
    assert slow.reader.issues.counts().keys() <= {"state_table_assumed"}
    assert len(slow.rows) == len(events)
    for row, event in zip(slow.rows, events, strict=True):
        want = {k: v for k, v in expected(event, digits=digits).items() if v is not None}
        # -1 is the contract's sentinel of no pid, and a real priority.
        assert {k: row.get(k) for k in want} == want
        assert row["kind"] == EVENT_NAMES[event.name]
        if event.name == "sched_switch":
            assert row["state"] == state_of(str(event.f["prev_state"]))
        assert ("ctx" in row) == (dress in ("ftrace", "ftrace tgid", "ftrace untold"))
    told: dict[int, bytes] = {}
    for event in events:
        for who in ("prev_", "next_", "parent_", "child_", ""):
            if f"{who}comm" in event.f:
                told[int(str(event.f[f"{who}pid"]))] = bytes(event.f[f"{who}comm"])  # type: ignore[call-overload]
    got = slow.comms()
    assert {pid: got.get(pid) for pid in told} == told


def noisy(rng: random.Random, dress: str) -> bytes:
    """Lines of a dress, some of them broken, with lines of other kinds between."""
    out = []
    now = 5 * 10**9
    for _ in range(rng.randrange(4, 40)):
        now += rng.choice([1000, 5000, 2000000])
        name = rng.choice(KINDS)
        comm, other = rng.choice(HOSTILE), rng.choice(HOSTILE)
        pid, pid2 = rng.choice([0, 5, 900, 70000, 4194304]), rng.choice([0, 5, 1234])
        fields: dict[str, object] = {
            "prev_comm": comm, "prev_pid": pid, "prev_prio": 120,
            "prev_state": rng.choice(["R", "S", "R+", "I", "Z", "X"]), "next_comm": other,
            "next_pid": pid2, "next_prio": 98, "comm": comm, "pid": pid, "prio": 120,
            "target_cpu": pid2 % 8, "orig_cpu": 1, "dest_cpu": 2, "parent_comm": comm,
            "parent_pid": pid, "child_comm": other, "child_pid": pid2, "filename": b"/x",
            "old_pid": pid, "runtime": 7, "state": 1, "cpu_id": 3,
        }  # fmt: skip
        e = Event(now, rng.randrange(4), rng.choice(HOSTILE), pid2, name, fields)
        body = "pretty" if name in ("sched_switch", "sched_wakeup") else "kernel"
        line = {
            "ftrace": lambda e=e: ftrace_line(e, tgid=rng.choice([None, 0, e.pid])),
            "report": lambda e=e, body=body: report_line(
                e, body=rng.choice([body, "kernel"]), buffer=rng.choice([b"", b"", b"inst1: "])
            ),
            "perf": lambda e=e: perf_line(e),
        }[dress]()
        dice = rng.random()
        if dice < 0.08:
            line = line[: rng.randrange(len(line) + 1)]
        elif dice < 0.2:
            cut = bytearray(line)
            for _ in range(rng.randrange(1, 4)):
                cut[rng.randrange(len(cut))] = rng.choice(b" -:[]=\n\t0159az\0\xff")
            line = bytes(cut)
        elif dice < 0.3:
            line = rng.choice(
                [b"CPU:1 [LOST 12 EVENTS]", b"CPU:2 [LOST EVENTS]", b"", b"# comment", b" => foo",
                 b"##### CPU 3 buffer started ####", b"\tffffffff81000001 schedule+0x1 ([k])",
                 b"             a\nb-5     [000] 5.000001: print: hello\nsecond line"]
            )  # fmt: skip
        out.append(line)
    return b"\n".join(out) + rng.choice([b"\n", b""])


@pytest.mark.parametrize("dress", ["ftrace", "report", "perf"])
def test_kernel_and_reader_agree_on_broken_lines(dress: str) -> None:
    for seed in range(40):
        rng = random.Random(f"{dress} {seed}")
        text = noisy(rng, dress)
        slow = read(text, dress)
        same(slow, read(text, dress, fast=True))
        same(slow, read(text, dress, fast=True, piece=rng.choice([100, 700])), names=False)


def test_name_that_changes_on_a_doubtful_line() -> None:
    # The kernel takes lines 1 and 3, the reader line 2 (its other name is not ASCII).
    wake = "               a-1       [000] d..2.     1.00000{}: sched_waking: comm={} pid=9 prio=1 target_cpu=000\n"
    text = (
        wake.format(0, "old")
        + "               a-1       [000] d..2.     1.000001: sched_switch: prev_comm=é prev_pid=5 "
        "prev_prio=120 prev_state=S ==> next_comm=new next_pid=9 next_prio=120\n"
        + wake.format(2, "old")
    )
    fast = read(text, fast=True)
    assert [n.comm for n in fast.names if n.pid == 9] == [b"old", b"new", b"old"]
    same(read(text), fast)


def columns(**values: list[int]) -> EventColumns:
    out = EventColumns.unknown(len(next(iter(values.values()))))
    for name, value in values.items():
        getattr(out, name)[:] = value
    return out


class TestOrder:
    def test_holds_back_what_may_still_be_preceded(self) -> None:
        order = Order()
        first = order.push(columns(ts=[5, 1, 9], cpu=[0, 1, 2]), [], 4)
        assert first is not None
        assert first.events.ts.tolist() == [1]
        second = order.push(columns(ts=[4, 7], cpu=[3, 3]), [], None)
        assert second is not None
        assert second.events.ts.tolist() == [4, 5, 7, 9]
        assert order.late == 0

    def test_a_row_that_comes_too_late_is_kept_and_counted(self) -> None:
        order = Order()
        order.push(columns(ts=[5, 9], cpu=[0, 0]), [], 9)
        late = order.push(columns(ts=[3], cpu=[1]), [], None)
        assert late is not None
        assert late.events.ts.tolist() == [3]
        assert order.late == 1

    def test_unknown_cpus_are_sorted_by_time_alone(self) -> None:
        order = Order()
        chunk = order.push(columns(ts=[5, 1], cpu=[-1, -1]), [], None)
        assert chunk is not None
        assert chunk.events.ts.tolist() == [1, 5]
        assert not order.backwards

    def test_names_once_and_in_time(self) -> None:
        order = Order()
        learnt = [Learnt(1, None, b"b", 5), Learnt(1, None, b"a", 2), Learnt(1, None, b"a", 3),
                  Learnt(1, 7, None, 4), Learnt(1, 7, None, 6)]  # fmt: skip
        chunk = order.push(columns(ts=[2, 3, 5], cpu=[0, 0, 0]), learnt, None)
        assert chunk is not None
        assert chunk.names == [
            NameChange(1, None, b"a", 2), NameChange(1, 7, None, None), NameChange(1, None, b"b", 5),
        ]  # fmt: skip

    def test_streams_of_two_buffers_do_not_mix(self) -> None:
        order = Order()
        rows = columns(ts=[9, 3, 4], cpu=[0, 0, 0], buffer=[0, 1, 1])
        chunk = order.push(rows, [], None)
        assert chunk is not None
        assert chunk.events.ts.tolist() == [3, 4, 9]
        assert not order.backwards


def test_marks_wait_for_their_cpu() -> None:
    rows = columns(ts=[10, 20], cpu=[0, 1])
    offs = np.array([1, 101])
    marks = [Mark(0, 1, int(EventKind.LOST), 3), Mark(60, 0, int(EventKind.BEGIN), 0)]
    offs, rows, placed, left = place_marks(offs, rows, marks)
    assert rows.kind.tolist() == [0, int(EventKind.LOST), 0]
    assert rows.ts.tolist() == [10, 20, 20]
    assert (rows.ctx[1], rows.state[1], rows.value[1]) == (NULL_CTX, NULL_STATE, 3)
    assert placed == [(marks[0], 20)]
    assert left == [marks[1]]
    assert (np.diff(offs) > 0).all()


def test_twins_are_matched_one_to_one() -> None:
    twins = Twins(10)
    rows = columns(
        ts=[100, 101, 105, 106, 130, 200, 201],
        cpu=[0, 0, 0, 0, 0, 0, 1],
        buffer=[0, 1, 0, 1, 1, 2, 0],
        subject=[5, 5, 5, 5, 5, 6, 6],
    )
    assert twins.keep(rows).tolist() == [True, False, True, False, True, True, True]
    assert twins.dropped == {0: 2}


@pytest.mark.parametrize("piece", [1, 64, 1000])
def test_any_piece_size_gives_the_same(piece: int) -> None:
    rng = random.Random(5)
    text = noisy(rng, "ftrace")
    same(read(text), read(text, piece=piece))
