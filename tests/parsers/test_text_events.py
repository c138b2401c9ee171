# ruff: noqa: E501  (lines of traces stand as they are printed)
"""Bodies of events, read by themselves."""

from __future__ import annotations

import pytest

from traceana.columns import NULL_CPU, NULL_PID
from traceana.parsers.text_events import Body, States, fields_of, parse_body
from traceana.schema import EventKind, State

K = EventKind


def body(kind: EventKind, text: str, states: States | None = None, current: int = 77) -> Body:
    found = parse_body(kind, text.encode(), states or States(), current)
    assert found is not None, text
    return found


SWITCHES = [
    (
        "prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=98",
        (1, 120, State.SLEEP, 2, 98, b"a", b"b"),
    ),
    (  # the last possible anchor counts (C04)
        "prev_comm=a prev_pid=7 prev_pid=9 prev_prio=120 prev_state=R "
        "==> next_comm=x ==> y next_pid=10 next_prio=120",
        (9, 120, State(0), 10, 120, b"a prev_pid=7", b"x ==> y"),
    ),
    (
        "prev_comm=x ==> y prev_pid=10 prev_prio=120 prev_state=S "
        "==> next_comm=(sd-pam) [0]:x next_pid=900 next_prio=120",
        (10, 120, State.SLEEP, 900, 120, b"x ==> y", b"(sd-pam) [0]:x"),
    ),
    (  # raw: a number, no arrow (C07)
        "prev_comm=b prev_pid=12 prev_prio=120 prev_state=1 next_comm=c next_pid=13 next_prio=120",
        (12, 120, State.SLEEP, 13, 120, b"b", b"c"),
    ),
    (
        "prev_comm=b prev_pid=12 prev_prio=120 prev_state=0x2 next_comm=c next_pid=13 next_prio=120",
        (12, 120, State.DISK, 13, 120, b"b", b"c"),
    ),
    (  # comm as an array
        "prev_comm=ARRAY[73, 68, 00, 41] prev_pid=12 prev_prio=-1 prev_state=R+ "
        "==> next_comm=c next_pid=13 next_prio=0",
        (12, -1, State.PREEMPTED, 13, 0, b"sh", b"c"),
    ),
    ("a:10 [120] S ==> my:task:11 [98]", (10, 120, State.SLEEP, 11, 98, b"a", b"my:task")),
    (
        "kworker/0:1:22 [120] D|K ==> a:1 [2]:33 [120]",
        (22, 120, State.DISK | State.WAKEKILL, 33, 120, b"kworker/0:1", b"a:1 [2]"),
    ),
    (
        "swapper/0:0 [120] R ==> init:1882 [120] Latency: 2.258 usecs",
        (0, 120, State(0), 1882, 120, b"swapper/0", b"init"),
    ),
    (  # before 2.6.36
        "task swapper:0 [140] (R) ==> task a:5 [120]",
        (0, 140, State(0), 5, 120, b"swapper", b"task a"),
    ),
    (
        "[FAILED TO PARSE] prev_comm=a prev_pid=1 prev_prio=120 prev_state=2 "
        "next_comm=b next_pid=2 next_prio=98",
        (1, 120, State.DISK, 2, 98, b"a", b"b"),
    ),
    (  # vendor fields behind
        "prev_comm=a prev_pid=1 prev_prio=120 prev_state=D ==> next_comm=b next_pid=2 "
        "next_prio=98 expeller_type=0",
        (1, 120, State.DISK, 2, 98, b"a", b"b"),
    ),
    (
        "prev_comm=a\nb prev_pid=1 prev_prio=120 prev_state=I ==> next_comm=\n\n next_pid=2 "
        "next_prio=98",
        (1, 120, State.IDLE, 2, 98, b"a\nb", b"\n\n"),
    ),
]


@pytest.mark.parametrize(("text", "want"), SWITCHES)
def test_switch(text: str, want: tuple[object, ...]) -> None:
    got = body(K.SWITCH, text)
    prev, prio, state, nxt, next_prio, prev_comm, next_comm = want
    assert got[:5] == (prev, prio, state, nxt, next_prio)
    assert got.names == ((prev, prev_comm), (nxt, next_comm))


WAKES = [
    ("comm=sh pid=78 prio=120 target_cpu=002", (78, 120, 2, True, b"sh")),
    ("comm=sh pid=78 prio=120 success=1 target_cpu=1023", (78, 120, 1023, True, b"sh")),
    ("comm=sh pid=78 prio=120 success=0 target_cpu=002", (78, 120, 2, False, b"sh")),
    ("comm= pid=1 prio=2 pid=5 prio=9 target_cpu=003", (5, 9, 3, True, b" pid=1 prio=2")),
    ("sh:1642 [120] success=1 CPU:003", (1642, 120, 3, True, b"sh")),  # C37
    ("sh:1642 [120] CPU:003", (1642, 120, 3, True, b"sh")),
    ("sh:1642 [120] success=0 CPU:003", (1642, 120, 3, False, b"sh")),
    ("sh:1642 [120]<CPU 003>", (1642, 120, 3, True, b"sh")),
    ("task sh:1642 [120] success=1 [003]", (1642, 120, 3, True, b"sh")),
    ("a:1 [2] CPU:1:7 [120] CPU:004", (7, 120, 4, True, b"a:1 [2] CPU:1")),
]


@pytest.mark.parametrize("kind", [K.WAKING, K.WAKEUP, K.WAKEUP_NEW])
@pytest.mark.parametrize(("text", "want"), WAKES)
def test_wakeup(kind: EventKind, text: str, want: tuple[object, ...]) -> None:
    got = body(kind, text)
    pid, prio, cpu, success, comm = want
    assert (got.subject, got.prio, got.cpu_to, got.success) == (pid, prio, cpu, success)
    assert got.names == ((pid, comm),)


def test_other_kinds() -> None:
    got = body(K.MIGRATE, "comm=a pid=5 prio=120 orig_cpu=2 dest_cpu=0")
    assert (got.subject, got.prio, got.cpu_from, got.cpu_to) == (5, 120, 2, 0)
    got = body(K.MIGRATE, "comm=a pid=5 prio=120 load=12 orig_cpu=2 dest_cpu=0 running=1")
    assert (got.cpu_from, got.cpu_to) == (2, 0)
    got = body(K.FORK, "comm=a pid=5 child_comm=a b child_pid=6")
    assert (got.subject, got.other, got.names) == (6, 5, ((5, b"a"), (6, b"a b")))
    got = body(K.FORK, "parent_comm=a parent_pid=5 child_comm=b child_pid=6")
    assert (got.subject, got.other) == (6, 5)
    got = body(K.EXEC, "filename=/tmp/x pid=1 old_pid=2 pid=8 old_pid=9")
    assert (got.subject, got.other, got.names) == (8, 9, ())
    got = body(K.EXIT, "comm=a pid=5 prio=120 group_dead=true")
    assert (got.subject, got.prio, got.other) == (5, 120, NULL_PID)
    got = body(K.STAT_RUNTIME, "comm=a pid=5 runtime=57162 [ns] vruntime=4557283131 [ns]")
    assert (got.subject, got.value, got.cpu_to) == (5, 57162, NULL_CPU)
    assert body(K.STAT_RUNTIME, "comm=a pid=5 runtime=57162").value == 57162
    got = body(K.CPU_IDLE, "state=4294967295 cpu_id=5")
    assert (got.value, got.cpu_to, got.subject) == (4294967295, 5, NULL_PID)
    assert body(K.CPU_IDLE, "state=-1 cpu_id=5").value == 4294967295
    assert body(K.WAKE_IDLE_WITHOUT_IPI, "cpu=3").cpu_to == 3
    assert body(K.IPI_SEND_CPU, "cpu=3 callsite=x+0x1 callback=y").cpu_to == 3
    assert body(K.IRQ_ENTRY, "irq=28 name=a b").value == 28
    assert body(K.IRQ_EXIT, "irq=28 ret=handled").value == 28
    assert body(K.SOFTIRQ_ENTRY, "vec=7 [action=SCHED]").value == 7
    got = body(K.TASK_RENAME, "pid=9 oldcomm=a newcomm=b oom_score_adj=0")
    assert got.names == ((9, b"a"), (9, b"b"))
    # Newer kernels tell no pid: the current task is meant.
    assert body(K.TASK_RENAME, "oldcomm=a newcomm=b oom_score_adj=0").subject == 77
    got = body(K.PI_SETPRIO, "comm=a pid=5 oldprio=120 newprio=98")
    assert (got.prio, got.value) == (120, 98)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (K.SWITCH, "prev_comm=bash prev_pid=14840"),
        (K.SWITCH, ""),
        (K.SWITCH, "prev_comm=a prev_pid=99999999999 prev_prio=1 prev_state=S ==> "
         "next_comm=b next_pid=1 next_prio=1"),
        (K.WAKEUP, "comm=a pid=1 prio=120"),
        (K.WAKEUP, "comm=a pid=1 prio=120 target_cpu=70000"),
        (K.WAKEUP, "comm=a pid=1 prio=99999 target_cpu=1"),
        (K.CPU_IDLE, "state=1"),
        (K.STAT_RUNTIME, "comm=a pid=1 runtime=99999999999999999999"),
    ],
)  # fmt: skip
def test_not_of_this_kind(kind: EventKind, text: str) -> None:
    assert parse_body(kind, text.encode(), States(), 1) is None


class TestStates:
    @pytest.mark.parametrize("text", [b"1e9", b"0x", b"12_", b"9" * 5000])
    def test_what_only_begins_like_a_number_is_none(self, text: bytes) -> None:
        states = States()
        assert states.of(text) & State.OTHER
        assert text[:12] in states.unknown

    def test_since_4_14(self) -> None:
        states = States()
        states.learn({0, 1, 256, 128})
        assert states.numbers == "4.14"
        want = {0: 0, 1: State.SLEEP, 16: State.DEAD, 32: State.ZOMBIE, 64: State.PARKED,
                128: State.IDLE, 256: State.PREEMPTED}  # fmt: skip
        assert {n: states.number(n) for n in want} == want

    def test_4_8(self) -> None:
        # 4096 is R+ there, 130 = 128 + 2 is a killable sleep, 64 an exiting task.
        states = States()
        states.learn({0, 1, 2, 64, 130, 4096})
        assert states.numbers == "old"
        want = {130: State.DISK | State.WAKEKILL, 4096: State.PREEMPTED, 64: State.DEAD,
                16: State.ZOMBIE, 32: State.DEAD, 1026: State.DISK | State.NOLOAD}  # fmt: skip
        assert {n: states.number(n) for n in want} == want

    def test_3_0(self) -> None:
        states = States()
        states.learn({1, 512})
        assert states.number(512) == State.PREEMPTED
        assert states.number(128) == State.WAKING

    def test_cannot_be_told(self) -> None:
        states = States()
        states.learn({0, 1, 2, 64})
        assert states.numbers == "unknown"
        assert states.number(64) == State.OTHER
        assert states.number(2) == State.DISK

    def test_plugin_of_an_older_kernel(self) -> None:
        # libtraceevent spells the bits 0-7 as SDTtZXxW: 128 (I) is W, 32 (Z) is X.
        states = States()
        states.learn((), {b"R", b"S", b"W", b"X"})
        assert states.of_pretty(b"W") == State.IDLE
        assert states.of_pretty(b"X") == State.ZOMBIE
        assert states.of_pretty(b"x") == State.PARKED
        assert states.shifted
        # Kernel text of the same file means what it says.
        assert states.of(b"X") == State.DEAD

    def test_plugin_with_all_letters(self) -> None:
        states = States()
        states.learn((), {b"R", b"S", b"I", b"Z", b"R+"})
        assert states.of_pretty(b"Z") == State.ZOMBIE
        assert not states.shifted

    def test_unknown_letter(self) -> None:
        states = States()
        assert states.of(b"Q") == State.OTHER
        assert states.unknown == {b"Q"}


def test_fields_of() -> None:
    assert fields_of(b"comm=a b pid=1 x=2") == [(b"comm", b"a b"), (b"pid", b"1"), (b"x", b"2")]
    # With the keys of another line a value may hold what looks like a key.
    assert fields_of(b"comm=a pid=7 pid=1", [b"comm", b"pid"]) == [
        (b"comm", b"a pid=7"),
        (b"pid", b"1"),
    ]
    assert fields_of(b"no fields here") == []
