"""Heads of lines, time digits, the flags column, pieces."""

from __future__ import annotations

import pytest

from traceana.columns import NULL_CPU, NULL_CTX, NULL_PID
from traceana.parsers.text_lines import (
    common_flags,
    ctx_of,
    pieces,
    shown,
    split_dash,
    split_event,
    split_latency,
    split_perf,
    split_verbose,
    time_ns,
)
from traceana.schema import Ctx


def test_time_is_never_a_float() -> None:
    assert time_ns(b"9007199", b"254740993") == 9007199254740993
    assert time_ns(b"123456789", b"123457") == 123456789123457000
    assert time_ns(b"5", b"000001") == 5000001000
    assert time_ns(b"10607789211", None) == 10607789211


DASH = [
    # line, comm, pid, tgid, cpu, flags, ts, event
    (
        "          <idle>-0       [002] d....     1.685578: cpu_idle: x",
        "<idle>", 0, NULL_PID, 2, "d....", 1685578000, "cpu_idle",
    ),
    (
        "            sshd-77    (---) [002] .... 5.000001: sched_wakeup: x",
        "sshd", 77, NULL_PID, 2, "....", 5000001000, "sched_wakeup",
    ),
    (
        "            sshd-77    (     77) [1023] ..... 5.000002: sched_wakeup: x",
        "sshd", 77, 77, 1023, ".....", 5000002000, "sched_wakeup",
    ),
    (
        " Web Content 2-1-2711  [003] d..2 26.000010: sched_switch: x",
        "Web Content 2-1", 2711, NULL_PID, 3, "d..2", 26000010000, "sched_switch",
    ),
    (
        "        -1 [000]-1887    (   1887) [000] ..... 28.307912: sched_process_exec: x",
        "-1 [000]", 1887, 1887, 0, ".....", 28307912000, "sched_process_exec",
    ),
    (  # a name that is a whole head
        "   -1 [0]  1: b:-77   [001] d..2 5.000001: sched_switch: x",
        "-1 [0]  1: b:", 77, NULL_PID, 1, "d..2", 5000001000, "sched_switch",
    ),
    (  # no flags: no digit of the time is eaten (C10)
        "          <idle>-0     [000]  0.002188: sched_wakeup: x",
        "<idle>", 0, NULL_PID, 0, None, 2188000, "sched_wakeup",
    ),
    (
        "          <idle>-0       [002] dNLh2.1     9.000001: sched_wakeup: x",
        "<idle>", 0, NULL_PID, 2, "dNLh2.1", 9000001000, "sched_wakeup",
    ),
    (
        "a-1 [0] 123456: sched_switch: x",
        "a", 1, NULL_PID, 0, None, 123456, "sched_switch",
    ),
    (
        "\t   <...>-15430 [006]  7115.449594123: sched:sched_switch:  x",
        "<...>", 15430, NULL_PID, 6, None, 7115449594123, "sched_switch",
    ),
    (  # a name that user space looked up
        "com.google.android.youtube-23071 (23071) [002] d..5 214168.479892: sched_wakeup: x",
        "com.google.android.youtube", 23071, 23071, 2, "d..5", 214168479892000, "sched_wakeup",
    ),
    (
        "          <idle>-0     [000]    28.300665: (+1)     cpu_idle:             x",
        "<idle>", 0, NULL_PID, 0, None, 28300665000, "cpu_idle",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", DASH, ids=[c[0][:24].strip() for c in DASH])
def test_dash(case: tuple[object, ...]) -> None:
    line, comm, pid, tgid, cpu, flags, ts, event = case
    head = split_dash(str(line).encode())
    assert head is not None
    assert head[:6] == (
        str(comm).encode(), pid, tgid, cpu, None if flags is None else str(flags).encode(), ts,
    )  # fmt: skip
    assert (head.event, head.body.strip(), head.prefix) == (str(event).encode(), b"x", b"")


def test_prefix() -> None:
    head = split_dash(b"  inst1:           <idle>-0     [000]    76.211513: sched_switch:  x")
    assert head is not None
    assert (head.prefix, head.comm) == (b"inst1", b"<idle>")
    # The top buffer's lines have blanks of the same width.
    head = split_dash(b"                   <idle>-0     [000]    76.211513: sched_switch:  x")
    assert head is not None
    assert (head.prefix, head.comm) == (b"", b"<idle>")
    head = split_dash(b"out.txt:12:            ]x: y-5   [000] 1.000000: sched_switch:  x")
    assert head is not None
    assert (head.prefix, head.comm) == (b"out.txt:12", b"]x: y")
    head = split_latency(b"inst1:   pp-b-0-1836    2d....    19.379436: sched_switch:  x")
    assert head is not None
    assert (head.prefix, head.comm, head.pid, head.cpu) == (b"inst1", b"pp-b-0", 1836, 2)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "# tracer: nop",
        "          trace-cmd-1 [00",
        "CPU:1 [LOST 12 EVENTS]",
        " => do_syscall_64",
        "the quick brown fox-12 jumps [over] 1.000000: it",
        "a-1 [9999999] 1.000000: x: y",
        "a-99999999999 [0] 1.000000: x: y",
        "a-1 [0] 99999999999999999999999: x: y",
    ],
)
def test_no_head(line: str) -> None:
    assert split_dash(line.encode()) is None
    assert split_latency(line.encode()) is None
    assert split_verbose(line.encode()) is None
    assert split_perf(line.encode()) is None


def test_latency_dresses() -> None:
    head = split_latency(b"fan-work-1727      6d.... 217161us+: sched_stat_runtime: x")
    assert head is not None
    assert (head.comm, head.pid, head.cpu, head.flags) == (b"fan-work", 1727, 6, b"d....")
    assert (head.ts, head.digits) == (217161000, 6)
    # A name cut behind its dash.
    head = split_latency(b"fan-cli--1733    10d....     3.517586912: cpu_idle: x")
    assert head is not None
    assert (head.comm, head.pid, head.cpu, head.ts) == (b"fan-cli-", 1733, 10, 3517586912)
    head = split_verbose(
        b"          <idle>       0   5 45 00000002 0000000f [0035ac8c] 217.161ms (+0.000ms): a: x"
    )
    assert head is not None
    # 0x35ac8c µs; flags 45 = 0x2d: irqs off, need_resched, hardirq, preempt_resched.
    assert (head.comm, head.pid, head.cpu, head.ts) == (b"<idle>", 0, 5, 3517580000)
    assert common_flags(head.flags or b"") == (0x2D, 2)


PERF = [
    (
        "            perf  1729 [000]     2.044386:       sched:sched_waking: x",
        "perf", 1729, NULL_PID, 0, 2044386000, "sched_waking",
    ),
    (
        "  redis-server  4735/4736    921.700317:       sched:sched_switch: x",
        "redis-server", 4736, 4735, NULL_CPU, 921700317000, "sched_switch",
    ),
    (
        "bash   100 [001]    10.000001500: sched:sched_wakeup/call-graph=no/: x",
        "bash", 100, NULL_PID, 1, 10000001500, "sched_wakeup",
    ),
    (
        "simple-terminat     9 198789.478194:    1001001 cycles:u: x",
        "simple-terminat", 9, NULL_PID, NULL_CPU, 198789478194000, "cycles",
    ),
    (
        "   1 2 [3] 1.0:  1838 [000] K        11.638264:       sched:sched_waking:HG:    x",
        "1 2 [3] 1.0:", 1838, NULL_PID, 0, 11638264000, "sched_waking",
    ),
    (
        "    a 12 [000] 1    77 [002]     2.044386: power:cpu_idle: x",
        "a 12 [000] 1", 77, NULL_PID, 2, 2044386000, "cpu_idle",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", PERF, ids=[c[0][:24].strip() for c in PERF])
def test_perf(case: tuple[object, ...]) -> None:
    line, comm, tid, pid, cpu, ts, event = case
    head = split_perf(str(line).encode())
    assert head is not None
    assert (head.comm, head.pid, head.tgid, head.cpu, head.ts) == (
        str(comm).encode(), tid, pid, cpu, ts,
    )  # fmt: skip
    assert (head.event, head.body.strip()) == (str(event).encode(), b"x")


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("sched_switch: x", "sched_switch"),
        ("sched:sched_switch: x", "sched_switch"),
        ("sched:sched_switch:HG: x", "sched_switch"),
        ("tracing_mark_write.llvm.123456: B|1|x", "tracing_mark_write"),
        ("0: B|1|x", "0"),
        ("sys_rt_sigprocmask -> 0x0", "sys_rt_sigprocmask"),
        ("sys_ioctl(fd: ff, cmd: 5410)", "sys_ioctl"),
        ("__wake_up <-foo", "function"),
        ("<stack trace>", "<stack"),
        ("cpu-clock: ", "cpu-clock"),
    ],
)
def test_event_name(text: str, event: str) -> None:
    assert split_event(text.encode())[0] == event.encode()


RT_ART = ("irq", "resched", "lazy", "ctx", "preempt", "lazydepth", "migrate")
FLAGS = [
    # common_flags, common_preempt_count (kernel/trace/trace_output.c)
    (b"....", None, 0, 0),
    (b"dNh.", None, 0x01 | 0x24 | 0x08, 0),
    (b"D.s1", None, 0x81 | 0x10, 1),
    (b"bnH2", None, 0x80 | 0x04 | 0x18, 2),
    (b"XpZ.", None, 0x02 | 0x20 | 0x48, 0),
    (b"..z.", None, 0x40, 0),
    (b"dLh..", None, 0x01 | 0x22 | 0x08, 0),
    (b".Bs..", None, 0x26 | 0x10, 0),
    (b"d..31", None, 0x01, 0x13),  # C11: depth 3, migrate-disable 1
    (b"dNLh2.1", RT_ART, 0x01 | 0x24 | 0x08, 0x12),  # C09
    (b"dNLh2.1", None, 0x01 | 0x24 | 0x08, 0x12),
]


@pytest.mark.parametrize(("flags", "layout", "bits", "count"), FLAGS)
def test_flags(flags: bytes, layout: tuple[str, ...] | None, bits: int, count: int) -> None:
    assert common_flags(flags, layout) == (bits, count)
    ctx = ctx_of(flags, layout)
    assert bool(ctx & Ctx.HARDIRQ) == bool(bits & 0x08)
    assert bool(ctx & Ctx.SOFTIRQ) == bool(bits & 0x10)
    assert bool(ctx & Ctx.NMI) == bool(bits & 0x40)
    assert bool(ctx & Ctx.NEED_RESCHED) == bool(bits & 0x04)
    assert bool(ctx & Ctx.BH_OFF) == bool(bits & 0x80)
    assert bool(ctx & Ctx.PREEMPT) == bool(count & 0xF)


def test_flags_of_old_kernels() -> None:
    four = ("irq", "resched", "ctx", "preempt")
    # A depth above 15 takes more digits: still a depth.
    assert ctx_of(b"d..10", four) & Ctx.PREEMPT
    assert ctx_of(None) == NULL_CTX


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_pieces_are_whole_lines(size: int) -> None:
    data = b"a\nbb\n\nccccccccc\nd"
    cut = list(pieces(data, size))
    assert b"".join(data[a:b] for a, b in cut) == data
    assert all(data[a:b].endswith(b"\n") for a, b in cut[:-1])
    assert list(pieces(b"", size)) == []


def test_shown() -> None:
    assert shown(b"a\x1b[31m\xff") == "a\\x1b[31m\\xff"
    assert len(shown(b"x" * 500)) == 80
