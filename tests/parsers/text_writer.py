# ruff: noqa: E501  (lines of traces stand as they are printed)
"""Writes events as the kernel's printk formats, trace-cmd report and perf script show them.

The formats are those of kernel/trace/trace_output.c, include/trace/events/sched.h,
libtraceevent's plugins and tools/perf/builtin-script.c; nothing of the writing is shared with the
parsers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from traceana.columns import EventColumns, NameChange
from traceana.parsers.ftrace_text import open_ftrace_text
from traceana.parsers.perf_script import open_perf_script
from traceana.parsers.text_reader import TextReader
from traceana.parsers.trace_cmd_text import open_trace_cmd_text

NEW_STATES = {
    "R": 0,
    "S": 1,
    "D": 2,
    "T": 4,
    "t": 8,
    "X": 16,
    "Z": 32,
    "P": 64,
    "I": 128,
    "R+": 256,
}


@dataclass(frozen=True)
class Event:
    """One event; ``f`` holds its fields by the kernel's names."""

    ts: int
    cpu: int
    comm: bytes
    pid: int
    name: str
    f: dict[str, object]
    flags: bytes = b"d..2."


def b(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def kernel_body(e: Event) -> bytes:
    f = {k: b(v) for k, v in e.f.items()}
    if e.name == "sched_switch":
        return (
            b"prev_comm=%s prev_pid=%s prev_prio=%s prev_state=%s ==> next_comm=%s next_pid=%s next_prio=%s"
            % (f["prev_comm"], f["prev_pid"], f["prev_prio"], f["prev_state"], f["next_comm"],
               f["next_pid"], f["next_prio"])
        )  # fmt: skip
    if e.name in ("sched_waking", "sched_wakeup", "sched_wakeup_new"):
        return b"comm=%s pid=%s prio=%s target_cpu=%03d" % (
            f["comm"], f["pid"], f["prio"], e.f["target_cpu"],
        )  # fmt: skip
    if e.name == "sched_migrate_task":
        return b"comm=%s pid=%s prio=%s orig_cpu=%s dest_cpu=%s" % (
            f["comm"], f["pid"], f["prio"], f["orig_cpu"], f["dest_cpu"],
        )  # fmt: skip
    if e.name == "sched_process_fork":
        return b"comm=%s pid=%s child_comm=%s child_pid=%s" % (
            f["parent_comm"], f["parent_pid"], f["child_comm"], f["child_pid"],
        )  # fmt: skip
    if e.name == "sched_process_exec":
        return b"filename=%s pid=%s old_pid=%s" % (f["filename"], f["pid"], f["old_pid"])
    if e.name == "sched_process_exit":
        return b"comm=%s pid=%s prio=%s" % (f["comm"], f["pid"], f["prio"])
    if e.name == "sched_stat_runtime":
        return b"comm=%s pid=%s runtime=%s [ns] vruntime=1 [ns]" % (
            f["comm"],
            f["pid"],
            f["runtime"],
        )
    if e.name == "cpu_idle":
        return b"state=%s cpu_id=%s" % (f["state"], f["cpu_id"])
    raise KeyError(e.name)


ORDER = (
    "prev_comm", "prev_pid", "prev_prio", "prev_state", "next_comm", "next_pid", "next_prio",
    "parent_comm", "parent_pid", "child_comm", "child_pid", "filename", "state", "cpu_id", "comm",
    "pid", "prio", "old_pid", "target_cpu", "orig_cpu", "dest_cpu", "runtime",
)  # fmt: skip


def raw_body(e: Event) -> bytes:
    f = {k: e.f[k] for k in ORDER if k in e.f}
    if "prev_state" in f:
        f["prev_state"] = NEW_STATES[str(f["prev_state"])]
    if "target_cpu" in f:
        f["target_cpu"] = b"%03d" % f["target_cpu"]
    return b" ".join(b"%s=%s" % (k.encode(), b(v)) for k, v in f.items())


def pretty_body(e: Event) -> bytes:
    f = {k: b(v) for k, v in e.f.items()}
    if e.name == "sched_switch":
        return b"%s:%s [%s] %s ==> %s:%s [%s]" % (
            f["prev_comm"], f["prev_pid"], f["prev_prio"], f["prev_state"], f["next_comm"],
            f["next_pid"], f["next_prio"],
        )  # fmt: skip
    if e.name in ("sched_wakeup", "sched_wakeup_new"):
        return b"%s:%s [%s] CPU:%03d" % (f["comm"], f["pid"], f["prio"], e.f["target_cpu"])
    return kernel_body(e)


def seconds(ts: int, digits: int) -> bytes:
    if digits == 6:
        return b"%d.%06d" % (ts // 10**9, ts % 10**9 // 1000)
    return b"%d.%09d" % (ts // 10**9, ts % 10**9)


def ftrace_line(e: Event, *, tgid: int | None = None, flags: bool = True) -> bytes:
    group = b"" if tgid is None else b"(%7d) " % tgid if tgid else b"(-------) "
    return b"%16s-%-7d %s[%03d] %s%12s: %s: %s" % (
        e.comm, e.pid, group, e.cpu, e.flags + b" " if flags else b"", seconds(e.ts, 6),
        e.name.encode(), kernel_body(e),
    )  # fmt: skip


def report_line(e: Event, *, body: str = "pretty", digits: int = 9, buffer: bytes = b"") -> bytes:
    text = {"pretty": pretty_body, "raw": raw_body, "kernel": kernel_body}[body](e)
    return b"%s%16s-%-5d [%03d] %s: %-20s  %s" % (
        buffer, e.comm, e.pid, e.cpu, seconds(e.ts, digits), e.name.encode() + b":", text,
    )  # fmt: skip


def perf_line(e: Event, *, digits: int = 6, cpu: bool = True) -> bytes:
    system = b"power" if e.name == "cpu_idle" else b"sched"
    where = b" [%03d]" % e.cpu if cpu else b""
    return b"%16s %5d%s %s: %24s: %s" % (
        e.comm, e.pid, where, seconds(e.ts, digits), system + b":" + e.name.encode(), kernel_body(e),
    )  # fmt: skip


#: Expected columns of an event, by the contract's own words.
def expected(e: Event, *, digits: int = 6) -> dict[str, object]:
    f = e.f
    out: dict[str, object] = {
        "ts": e.ts // 1000 * 1000 if digits == 6 else e.ts,
        "cpu": e.cpu,
        "pid": e.pid,
    }
    if e.name == "sched_switch":
        out |= {"subject": f["prev_pid"], "prio": f["prev_prio"], "other": f["next_pid"],
                "other_prio": f["next_prio"]}  # fmt: skip
    elif e.name == "sched_migrate_task":
        out |= {"subject": f["pid"], "prio": f["prio"], "cpu_from": f["orig_cpu"],
                "cpu_to": f["dest_cpu"]}  # fmt: skip
    elif e.name == "sched_process_fork":
        out |= {"subject": f["child_pid"], "other": f["parent_pid"]}
    elif e.name == "sched_process_exec":
        out |= {"subject": f["pid"], "other": f["old_pid"]}
    elif e.name == "sched_process_exit":
        out |= {"subject": f["pid"], "prio": f["prio"]}
    elif e.name == "sched_stat_runtime":
        out |= {"subject": f["pid"], "value": f["runtime"]}
    elif e.name == "cpu_idle":
        out |= {"value": f["state"], "cpu_to": f["cpu_id"]}
    else:
        out |= {"subject": f["pid"], "prio": f["prio"], "cpu_to": f["target_cpu"]}
    return out


@dataclass
class Read:
    """A text read whole: the reader, its rows (nulls left out), its names, and the columns."""

    reader: TextReader
    rows: list[dict[str, object]]
    names: list[NameChange]
    events: EventColumns

    def comms(self) -> dict[int, bytes]:
        """Last name of each pid."""
        return {n.pid: n.comm for n in self.names if n.comm is not None}


OPENERS: dict[str, Callable[[Path, bytes], TextReader]] = {
    "ftrace": open_ftrace_text,
    "report": open_trace_cmd_text,
    "perf": open_perf_script,
}


def read(
    text: bytes | str, form: str = "ftrace", *, fast: bool = False, piece: int | None = None
) -> Read:
    """Read a text, by the kernel or line by line, in pieces of that size."""
    data = text.encode() if isinstance(text, str) else text
    reader = OPENERS[form](Path("capture.txt"), data)
    reader.fast_from = 0 if fast else 1 << 60
    if piece is not None:
        reader.piece = piece
    chunks = list(reader.chunks())
    events = EventColumns.concat([c.events for c in chunks])
    rows = [
        {k: v for k, v in row.items() if v is not None and k != "buffer"}
        for row in events.to_arrow().to_pylist()
    ]
    return Read(reader, rows, [n for c in chunks for n in c.names], events)


def same(left: Read, right: Read, *, names: bool = True) -> None:
    """Two ways of reading give the same."""
    assert left.rows == right.rows
    for name in EventColumns.__dataclass_fields__:
        a, b = getattr(left.events, name), getattr(right.events, name)
        np.testing.assert_array_equal(a, b, err_msg=name)
    a, b = left.reader, right.reader
    assert a.counts == b.counts
    assert a.lost == b.lost
    assert a.damaged == b.damaged
    assert sorted(map(repr, a.issues.table().to_pylist())) == sorted(
        map(repr, b.issues.table().to_pylist())
    )
    if names:
        assert sorted(map(repr, left.names)) == sorted(map(repr, right.names))
