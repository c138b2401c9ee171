"""Kernel logs with what ftrace dumped on the console."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from traceana.errors import FormatError, InputError
from traceana.parsers.console_dump import open_console_dump, sniff
from traceana.parsers.reader import Reader
from traceana.parsers.registry import open_reader
from traceana.schema import EventKind, State

RULE = "---------------------------------"
WAKEUP = (
    "rcu_tort-70        1dNh3. 10607789211us : sched_wakeup: comm=rcu_torture_fak pid=65 "
    "prio=139 target_cpu=001"
)
SWITCH = (
    "rcu_tort-70        1d..2. 10607789214us : sched_switch: prev_comm=rcu_torture_rea "
    "prev_pid=70 prev_prio=139 prev_state=R+ ==> next_comm=rcu_torture_fak next_pid=65 "
    "next_prio=139"
)
DUMP = ["Dumping ftrace buffer:", RULE, "CPU:1 [LOST 16689746 EVENTS]", WAKEUP, SWITCH, RULE]
BEFORE = [f"rcu-torture: Reader Pipe:  {i} 0 0 [cpu] {i}.5: not: an event" for i in range(30)]
AFTER = ["Kernel panic - not syncing: Fatal exception", "---[ end Kernel panic ]---"]

PREFIXES = {
    "printk": lambda i: f"[10611.{834143 + i:06d}] ",
    "early": lambda i: f"[    0.{i:06d}] ",
    "level": lambda i: f"<4>[ 12.{i:06d}] ",
    "caller": lambda i: f"[10611.{i:06d}][    C{i % 4}] ",
    "syslog": lambda i: f"Nov 30 20:11:43 host-a kernel: [10611.{i:06d}] ",
    "journal": lambda i: f"Nov 30 20:11:{i % 60:02d} host-a kernel: ",
    "none": lambda i: "",
}


def log(lines: list[str], prefix: str = "printk") -> bytes:
    return "".join(PREFIXES[prefix](i) + line + "\n" for i, line in enumerate(lines)).encode()


def rows(reader: Reader) -> list[tuple[int, ...]]:
    return [
        row
        for chunk in reader.chunks()
        for row in zip(
            *(getattr(chunk.events, c).tolist() for c in ("ts", "cpu", "kind", "pid", "subject")),
            strict=True,
        )
    ]


WANT = [
    (10607789211000, 1, int(EventKind.LOST), -1, -1),
    (10607789211000, 1, int(EventKind.WAKEUP), 70, 65),
    (10607789214000, 1, int(EventKind.SWITCH), 70, 70),
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_dump_among_other_messages(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(log(BEFORE + DUMP + AFTER, prefix))
    reader = open_reader(path)
    assert rows(reader) == WANT
    assert reader.meta.form == "ftrace dump on the console"
    assert reader.counts == {"sched_wakeup": 1, "sched_switch": 1}
    assert reader.lost.per_cpu == {1: 16689746}
    assert not reader.damaged
    names = {n.pid: n.comm for c in reader.chunks() for n in c.names}
    assert names == {65: b"rcu_torture_fak", 70: b"rcu_torture_rea"}
    [state] = [s for c in reader.chunks() for s in c.events.state.tolist() if s != 65535]
    assert state == int(State.PREEMPTED)


def test_as_it_was_reported(tmp_path: Path) -> None:
    """The dump alone, cut before its last rule."""
    path = tmp_path / "dump.txt"
    path.write_bytes(log(DUMP[:-1]))
    assert rows(open_reader(path)) == WANT


def test_messages_between_the_lines_are_counted_not_read() -> None:
    between = ["watchdog: BUG: soft lockup", "** 17 printk messages dropped **", " => vfs_read"]
    lines = DUMP[:4] + between + DUMP[4:]
    reader = open_console_dump(Path("x"), log(BEFORE + lines))
    assert rows(reader) == WANT
    counts = reader.issues.counts()
    assert counts["other_messages"] == 1
    assert counts["console_messages_dropped"] == 17
    assert "line_not_understood" not in counts


def test_several_dumps_and_a_late_one() -> None:
    later = [line.replace("106077892", "106077893") for line in DUMP[:2] + DUMP[3:]]
    data = log(BEFORE * 60 + DUMP + BEFORE + later)
    assert b"Dumping" not in data[:65536]
    assert sniff(data[:65536]) > 0.5
    reader = open_console_dump(Path("x"), data)
    assert len(rows(reader)) == 5
    assert reader.meta.extra["dumps"] == 2


def test_logs_without_a_dump() -> None:
    assert sniff(log(BEFORE)) > 0.5
    with pytest.raises(FormatError, match="a kernel log without a dump"):
        open_console_dump(Path("x"), log(BEFORE))
    with pytest.raises(FormatError, match="holds no event"):
        open_console_dump(Path("x"), log(["Dumping ftrace buffer:", "   (ftrace buffer empty)"]))
    assert sniff(b"Dear diary, it said Dumping ftrace buffer: and no more\n") == 0
    assert sniff(b"hello\n") == 0


def test_mutations_never_end_in_a_traceback() -> None:
    rng = random.Random(2)
    base = log(BEFORE[:5] + DUMP + AFTER)
    for _ in range(200):
        data = bytearray(base)
        for _ in range(rng.choice([1, 3, 9])):
            at = rng.randrange(len(data))
            data[at : at + rng.choice([0, 1, 9])] = rng.choice([b"\n", b"[", b"\xff", b" ", b""])
        try:
            reader = open_console_dump(Path("x"), bytes(data))
            assert len(rows(reader)) <= 3
        except InputError as error:
            assert "\n" not in str(error)
