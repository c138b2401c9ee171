# ruff: noqa: E501  (lines of traces stand as they are printed)
"""Small texts, the rows they must give. C.. is the number of a case in the captures' CASES.md."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from traceana.columns import NULL_I64
from traceana.errors import UsageError
from traceana.schema import Ctx, EventKind, Evidence, State

sys.path.insert(0, str(Path(__file__).parent))
from text_writer import Read, read

K = EventKind


def seen(r: Read, *columns: str) -> list[tuple[object, ...]]:
    return [tuple(row.get(c) for c in columns) for row in r.rows]


def switch(prev: str, pid: int, nxt: str, npid: int, state: str = "S") -> str:
    return (
        f"sched_switch: prev_comm={prev} prev_pid={pid} prev_prio=120 prev_state={state} ==> "
        f"next_comm={nxt} next_pid={npid} next_prio=120"
    )


class TestNames:
    def test_c03_unknown_name_is_no_task(self) -> None:
        r = read(
            f"           <...>-501   [000] d..2   10.000100: {switch('worker', 501, 'swapper/0', 0)}\n"
            f"           <...>-502   [001] d..2   10.000200: {switch('other', 502, 'swapper/1', 0)}\n"
            f"           <...>-503   [001] d..2   10.000300: cpu_idle: state=1 cpu_id=1\n"
        )
        assert r.comms() == {501: b"worker", 502: b"other"}
        assert [(n.ts, n.evidence) for n in r.names] == [
            (10000100000, Evidence.EVENT),
            (10000200000, Evidence.EVENT),
        ]

    def test_c04_punctuation(self) -> None:
        r = read(
            " Web Content 2-1-2711  [003] d..2 26.000010: "
            + switch("Web Content 2-1", 2711, "a prev_pid=7", 9)
            + "\n    a prev_pid=7-9     [003] d..2 26.000020: "
            + switch("a prev_pid=7", 9, "x ==> y", 10, "R")
            + "\n         x ==> y-10    [003] d..2 26.000030: "
            + switch("x ==> y", 10, "(sd-pam) [0]:x", 900)
            + "\n"
        )
        assert seen(r, "pid", "subject", "state", "other") == [
            (2711, 2711, State.SLEEP, 9),
            (9, 9, State(0), 10),
            (10, 10, State.SLEEP, 900),
        ]
        assert r.comms() == {
            2711: b"Web Content 2-1", 9: b"a prev_pid=7", 10: b"x ==> y", 900: b"(sd-pam) [0]:x",
        }  # fmt: skip

    def test_newlines_in_names(self) -> None:
        # The name is right-aligned to 16 bytes, so the lines' lengths tell where it begins.
        r = read(
            b"             a\nb-77    [000] d..2 1.000001: sched_waking: comm=x\ny pid=5 prio=120 "
            b"target_cpu=001\n"
            b"             c\nd-78    [000] d..2 1.000002: sched_switch: prev_comm=c\nd prev_pid=78 "
            b"prev_prio=120 prev_state=S ==> next_comm=x\ny next_pid=5 next_prio=120\n"
        )
        assert seen(r, "kind", "pid", "subject", "other") == [
            (K.WAKING, 77, 5, None),
            (K.SWITCH, 78, 78, 5),
        ]
        assert r.comms() == {77: b"a\nb", 78: b"c\nd", 5: b"x\ny"}
        assert not r.reader.issues

    def test_heads_serve_only_pids_without_a_field(self) -> None:
        r = read(
            "            bash-5     [000] d..2 1.000001: cpu_idle: state=1 cpu_id=0\n"
            "              sh-6     [000] d..2 1.000002: sched_waking: comm=dash pid=6 prio=120 "
            "target_cpu=000\n"
        )
        assert {(n.pid, n.comm, n.ts, n.evidence) for n in r.names} == {
            (6, b"dash", 1000002000, Evidence.EVENT),
            (5, b"bash", None, Evidence.HEADER),
        }

    def test_a_change_of_name_and_back(self) -> None:
        line = "            x-1     [000] d..2 1.00000{}: sched_waking: comm={} pid=9 prio=1 target_cpu=0\n"
        r = read("".join(line.format(i, c) for i, c in enumerate(["a", "a", "b", "a"])))
        assert [(n.comm, n.ts) for n in r.names if n.pid == 9] == [
            (b"a", 1000000000), (b"b", 1000002000), (b"a", 1000003000),
        ]  # fmt: skip

    def test_idle_tasks_are_not_named(self) -> None:  # C12
        r = read(
            f"             a-1     [000] d..2   1.000100: {switch('a', 1, 'swapper/0', 0)}\n"
            f"             b-2     [002] d..2   1.000100: {switch('b', 2, 'swapper/2', 0)}\n"
        )
        assert seen(r, "cpu", "other") == [(0, 0), (2, 0)]
        assert r.comms() == {1: b"a", 2: b"b"}

    def test_perf_unknown_name(self) -> None:
        r = read(
            "           :4711  4711 [000]     2.044386:       power:cpu_idle: state=1 cpu_id=0\n"
            "              sh  4712 [000]     2.044387: sched:sched_waking: comm=:99 pid=99 prio=1 "
            "target_cpu=000\n",
            "perf",
        )
        assert r.comms() == {4712: b"sh"}


class TestGroups:
    def test_c06_c14_any_width_and_learnt_from_any_line(self) -> None:
        r = read(
            "            sshd-77    (---) [002] .... 5.000001: sched_wakeup: comm=sh pid=78 prio=120 "
            "target_cpu=002\n"
            "            sshd-77    (     76) [002] ..... 5.000002: sched_wakeup: comm=sh pid=78 "
            "prio=120 target_cpu=002\n"
            "              sh-78    (-------) [002] ..... 5.000003: cpu_idle: state=1 cpu_id=2\n"
        )
        assert len(r.rows) == 3
        assert {(n.pid, n.tgid) for n in r.names if n.tgid is not None} == {(77, 76)}


class TestDresses:
    def test_c09_rt_flags_by_the_art(self) -> None:
        r = read(
            "#                                _-------=> irqs-off/BH-disabled\n"
            "#                               / _------=> need-resched\n"
            "#                              | / _-----=> need-resched-lazy\n"
            "#                              || / _----=> hardirq/softirq\n"
            "#                              ||| / _---=> preempt-depth\n"
            "#                              |||| / _--=> preempt-lazy-depth\n"
            "#                              ||||| / _-=> migrate-disable\n"
            "#                              |||||| /     delay\n"
            "#           TASK-PID     CPU#  |||||||  TIMESTAMP  FUNCTION\n"
            "          <idle>-0       [002] dNLh2.1     9.000001: sched_wakeup: comm=rt pid=40 prio=9 "
            "target_cpu=002\n"
        )
        assert r.rows[0]["ctx"] == Ctx.NEED_RESCHED | Ctx.HARDIRQ | Ctx.PREEMPT
        assert r.rows[0]["ts"] == 9000001000

    def test_c10_no_flags(self) -> None:
        r = read(
            "          <idle>-0     [000]  0.002188: sched_wakeup: comm=init pid=1 prio=120 "
            "target_cpu=000\n"
        )
        assert r.rows[0]["ts"] == 2188000
        assert "ctx" not in r.rows[0]

    def test_c11_fifth_flag(self) -> None:
        r = read(
            "           cat-15581   [000] d..31 92783.722567: sched_wakeup: comm=x pid=2 prio=120 "
            "target_cpu=000\n"
        )
        assert r.rows[0]["ctx"] == Ctx.PREEMPT
        r = read(
            "           cat-15581   [000] d...1 92783.722567: sched_wakeup: comm=x pid=2 prio=120 "
            "target_cpu=000\n"
        )
        assert r.rows[0]["ctx"] == 0  # migrate-disable is no preempt count

    def test_c13_letter_i(self) -> None:
        r = read(
            f"   kworker/0:1-5   [000] d..2 1.000001: {switch('kworker/0:1', 5, 'a', 1, 'I')}\n"
        )
        assert r.rows[0]["state"] == State.IDLE

    def test_crlf_bom_nul_tabs(self) -> None:
        text = (
            b"\xef\xbb\xbf\t   <...>-5 [006]  1.000001: cpu_idle: state=0 cpu_id=6\r\n"
            b"\x00   <...>-5 [006]  1.000002: cpu_idle: state=1 cpu_id=6 \r\n"
        )
        r = read(text)
        assert seen(r, "ts", "value") == [(1000001000, 0), (1000002000, 1)]

    def test_events_that_are_only_counted(self) -> None:
        r = read(
            "           <...>-4083  [004] ....   395.705673: sys_rt_sigprocmask -> 0x0\n"
            "           xfwm4-3252  [005] ....   395.705680: sys_recvmsg(fd: 3, flags: 0)\n"
            "           xfwm4-3252  [005] ....   395.705681: tracing_mark_write.llvm.12: B|1|two\n"
            "lines\n"
            "           xfwm4-3252  [005] ....   395.705682: kernel_stack: <stack trace>\n"
            " => do_syscall_64\n => entry_SYSCALL_64\n"
            "           xfwm4-3252  [005] ....   395.705683: foo: bar\n"
        )
        assert r.reader.counts == {
            "sys_rt_sigprocmask": 1, "sys_recvmsg": 1, "tracing_mark_write": 1, "kernel_stack": 1,
            "foo": 1,
        }  # fmt: skip
        assert not r.rows
        assert not r.reader.issues

    def test_console_dump(self) -> None:  # C36
        r = read(
            "[10611.834143] Dumping ftrace buffer:\n"
            "[10611.834561] ---------------------------------\n"
            "[10611.835048] CPU:1 [LOST 16689746 EVENTS]\n"
            "[10611.835048] rcu_tort-70        1dNh3. 10607789211us : sched_wakeup: "
            "comm=rcu_torture_fak pid=65 prio=139 target_cpu=001\n"
            "[10611.836636] rcu_tort-70        1d..2. 10607789214us : "
            + switch("rcu_torture_rea", 70, "rcu_torture_fak", 65, "R+")
            + "\n"
        )
        assert seen(r, "ts", "cpu", "kind") == [
            (10607789211000, 1, K.LOST),
            (10607789211000, 1, K.WAKEUP),
            (10607789214000, 1, K.SWITCH),
        ]
        assert r.reader.lost.events == 16689746
        assert r.comms() == {65: b"rcu_torture_fak", 70: b"rcu_torture_rea"}

    def test_integer_times(self) -> None:
        line = "          <idle>-0     [000]  {:>10}: cpu_idle:             state=1 cpu_id=0\n"
        r = read("".join(line.format(i) for i in range(3, 40)), "report")
        assert r.reader.meta.clock_unit == "count"
        assert r.rows[0]["ts"] == 3
        r = read("".join(line.format(9681077924 + 500 * i) for i in range(40)), "report")
        assert r.reader.meta.clock_unit == "cycles"
        assert read(line.format("1.000001")).reader.meta.clock_unit == "us"
        assert read(line.format("1.000000001")).reader.meta.clock_unit == "ns"


class TestReport:
    def test_c05_instances(self) -> None:
        line = "{}          <idle>-0     [000]    76.21151{}: sched_switch:         {}\n"
        body = "swapper/0:0 [120] R ==> sh:1642 [120]"
        back = "sh:1642 [120] S ==> swapper/0:0 [120]"
        r = read(
            "cpus=1\n"
            + line.format("  inst1: ", 3, body)
            + line.format("         ", 3, body)
            + line.format("         ", 4, back)
            + line.format("  inst1: ", 5, back)
            + line.format("  inst1: ", 9, body),
            "report",
        )
        assert seen(r, "ts", "subject", "other") == [
            (76211513000, 0, 1642), (76211514000, 1642, 0), (76211519000, 0, 1642),
        ]  # fmt: skip
        assert r.events.buffer.tolist() == [1, 0, 1]
        assert r.reader.meta.extra["buffers"] == ["", "inst1"]
        assert r.reader.counts == {"sched_switch": 3}
        assert r.reader.issues.counts() == {"duplicate_events": 2}

    def test_equal_lines_of_one_buffer_stay(self) -> None:
        line = "          <idle>-0     [000]    76.211513: sched_wakeup:         sh:1642 [120] CPU:000\n"
        r = read("cpus=1\n" + line + line, "report")
        assert len(r.rows) == 2
        assert not r.reader.issues

    def test_c07_pretty_and_raw_mixed(self) -> None:
        r = read(
            "version = 6\ncpus=2\n"
            "             a-10    [000]     1.000000: sched_switch:         "
            "a:10 [120] S ==> my:task:11 [98]\n"
            "             b-12    [001]     1.000010: sched_switch:          prev_comm=b prev_pid=12 "
            "prev_prio=120 prev_state=4096 next_comm=c next_pid=13 next_prio=120\n"
            "             c-13    [001]     1.000020: sched_switch:         prev_comm=c prev_pid=13 "
            "prev_prio=120 prev_state=R+ ==> next_comm=b next_pid=12 next_prio=120\n",
            "report",
        )
        assert seen(r, "other", "other_prio", "state") == [
            (11, 98, State.SLEEP), (13, 120, State.PREEMPTED), (12, 120, State.PREEMPTED),
        ]  # fmt: skip
        assert r.comms()[11] == b"my:task"
        assert r.reader.meta.cpus_present == 2

    def test_c37_success_of_the_plugin(self) -> None:
        line = "             a-10    [000]     1.000000: sched_wakeup:         w:11 [98] success={} CPU:003\n"
        r = read("cpus=1\n" + line.format(1), "report")
        assert seen(r, "kind", "subject", "prio", "cpu_to") == [(K.WAKEUP, 11, 98, 3)]
        r = read("cpus=1\n" + line.format(0), "report")
        assert not r.rows
        assert r.reader.counts == {"sched_wakeup": 1}
        assert r.reader.issues.counts() == {"wakeup_without_success": 1}

    def test_wakeup_summary_and_stat(self) -> None:
        r = read(
            "cpus=1\n\nKernel buffer statistics:\n"
            '  Note: "entries" are the entries left in the kernel ring buffer and are not\n'
            "        recorded in the trace data. They should all be zero.\n\n"
            "CPU: 0\nentries: 0\noverrun: 12\ncommit overrun: 0\nbytes: 0\n"
            "oldest event ts:    28.300664\nnow ts:    28.317828\ndropped events: 0\n"
            "read events: 46\n\n"
            "          <idle>-0     [000]    28.300672: sched_switch:         "
            "swapper/0:0 [120] R ==> init:1882 [120] Latency: 2.258 usecs\n"
            "\nAverage wakeup latency: 2.345 usecs\n"
            "Maximum Latency: 4.525 usecs at timestamp: 28.304418\n"
            "Minimum Latency: 2.089 usecs at timestamp: 28.303134\n\nRT task timings:\n",
            "report",
        )
        assert seen(r, "subject", "other") == [(0, 1882)]
        assert r.reader.issues.counts() == {"ring_wrapped": 12}

    def test_latency_and_dropped(self) -> None:
        r = read(
            "cpus=2\nCPU 1 is empty\n"
            "CPU:0 [7 EVENTS DROPPED]\n"
            "  <idle>-0       0dNh..     3.517580376: sched_wakeup:         "
            "fan-cli-0-2:1733 [120] CPU:000\n"
            "CPU 0 [EVENTS DROPPED]\n"
            "fan-cli--1733    0d....     3.517586912: sched_stat_runtime:   comm=fan-cli-0-2 pid=1733 "
            "runtime=6869 [ns] vruntime=2926697317 [ns]\n",
            "report",
        )
        assert seen(r, "ts", "kind", "pid", "value") == [
            (3517580376, K.LOST, None, 7),
            (3517580376, K.WAKEUP, 0, None),
            (3517586912, K.LOST, None, None),
            (3517586912, K.STAT_RUNTIME, 1733, 6869),
        ]
        assert r.rows[1]["ctx"] == Ctx.NEED_RESCHED | Ctx.HARDIRQ
        # The cut name of a head is none.
        assert r.comms() == {1733: b"fan-cli-0-2"}


class TestPerf:
    def test_c24_no_cpu_column(self) -> None:
        r = read(
            "  redis-server  4735/4735    921.700317:       sched:sched_switch: "
            "redis-server:4735 [120] S ==> swapper/1:0 [120]\n",
            "perf",
        )
        assert r.rows == [
            {"ts": 921700317000, "kind": K.SWITCH, "pid": 4735, "subject": 4735, "prio": 120,
             "state": State.SLEEP, "other": 0, "other_prio": 120}
        ]  # fmt: skip
        assert r.reader.issues.counts() == {"no_cpu_column": 1}
        assert {(n.pid, n.tgid) for n in r.names if n.tgid} == {(4735, 4735)}

    def test_c25_stacks_and_modifiers(self) -> None:
        r = read(
            "bash   100 [001]    10.000001: sched:sched_switch: bash:100 [120] D ==> swapper/1:0 [120]\n"
            "\tffffffff81000001 __schedule+0x1 ([kernel.kallsyms])\n"
            "\tffffffff81000002 schedule+0x2 ([kernel.kallsyms])\n"
            "\n"
            "swapper     0 [001]    10.000100: sched:sched_wakeup/call-graph=no/: "
            "bash:100 [120] CPU:001\n"
            "swapper     0 [001]    10.000110: sched:sched_switch: "
            "swapper/1:0 [120] R ==> bash:100 [120]\n",
            "perf",
        )
        assert r.reader.counts == {"sched_switch": 2, "sched_wakeup": 1}
        assert seen(r, "kind", "ts") == [
            (K.SWITCH, 10000001000), (K.WAKEUP, 10000100000), (K.SWITCH, 10000110000),
        ]  # fmt: skip
        assert not r.reader.issues
        assert all("ctx" not in row for row in r.rows)

    def test_header(self) -> None:
        r = read(
            "# ========\n# captured on    : Mon Nov 30 17:31:39 2026\n# hostname : box\n"
            "# os release : 6.1.192\n# perf version : 6.1.0\n# arch : x86_64\n"
            "# nrcpus online : 6\n# nrcpus avail : 8\n"
            "# cmdline : /bin/perf record -e sched:sched_switch -a\n"
            "# clockid: monotonic (1)\n# ========\n#\n"
            "              a     1 [000]     2.044384462: power:cpu_idle: state=1 cpu_id=0\n",
            "perf",
        )
        m = r.reader.meta
        assert (m.kernel, m.machine, m.hostname, m.tool) == (
            "6.1.192", "x86_64", "box", "perf 6.1.0",
        )  # fmt: skip
        assert (m.cpus_online, m.cpus_present, m.clock, m.clock_unit) == (6, 8, "monotonic", "ns")
        assert m.cmdline == "/bin/perf record -e sched:sched_switch -a"

    def test_records_that_are_no_events(self) -> None:
        r = read(
            "         swapper     0 [000]     0.000000: PERF_RECORD_FORK(12:13):(0:0)\n"
            "            init     0 [000]     0.000000: PERF_RECORD_COMM: in it:12/13\n"
            "          pp-b-3  1874 [001]    15.149071: PERF_RECORD_LOST lost 259\n"
            "          pp-b-3  1874 [001]    15.149072: power:cpu_idle: state=1 cpu_id=1\n",
            "perf",
        )
        assert r.reader.counts == {"cpu_idle": 1}
        assert seen(r, "ts", "kind", "value") == [
            (15149072000, K.LOST, 259), (15149072000, K.CPU_IDLE, 1),
        ]  # fmt: skip
        assert r.comms() == {13: b"in it", 1874: b"pp-b-3"}
        assert {(n.pid, n.tgid) for n in r.names if n.tgid} == {(13, 12)}


class TestOrder:
    def test_c22_skew_between_cpus(self) -> None:
        r = read(
            "          <idle>-0     [001] dNh2   5.000010: sched_waking: comm=w pid=30 prio=120 "
            "target_cpu=000\n"
            f"          <idle>-0     [000] d..2   5.000008: {switch('swapper/0', 0, 'w', 30, 'R')}\n"
        )
        assert seen(r, "ts", "cpu") == [(5000008000, 0), (5000010000, 1)]
        assert not r.reader.issues  # over CPUs nothing stepped back

    def test_c30_badly_ordered(self) -> None:
        r = read(
            f"          <idle>-0     [000] d..2   1494.663899: {switch('swapper/0', 0, 'p', 45, 'R')}\n"
            f"           panel-45    [000] d..2   1494.663928: {switch('p', 45, 'swapper/0', 0)}\n"
            "             srv-42    [001] d..2   1494.663860: sched_wakeup: comm=p pid=45 prio=120 "
            "target_cpu=000\n"
            "             srv-42    [001] d..2   1504.098252: sched_wakeup: comm=p pid=45 prio=120 "
            "target_cpu=000\n"
            f"            tool-52    [000] d..2   1504.100353: {switch('tool', 52, 'p', 45)}\n"
        )
        assert seen(r, "kind", "ts") == [
            (K.WAKEUP, 1494663860000), (K.SWITCH, 1494663899000), (K.SWITCH, 1494663928000),
            (K.WAKEUP, 1504098252000), (K.SWITCH, 1504100353000),
        ]  # fmt: skip

    def test_c35_back_by_one_ns_on_one_cpu(self) -> None:
        r = read(
            "              a     1 [000]     2.000000464: power:cpu_idle: state=1 cpu_id=0\n"
            "              a     1 [000]     2.000000463: power:cpu_idle: state=2 cpu_id=0\n"
            "              a     1 [001]     2.000000463: power:cpu_idle: state=3 cpu_id=1\n",
            "perf",
        )
        # The order of CPU 0 is kept: its second event is as late as its first.
        assert seen(r, "cpu", "value", "ts") == [
            (1, 3, 2000000463), (0, 1, 2000000464), (0, 2, 2000000463),
        ]  # fmt: skip
        assert r.reader.issues.counts() == {"time_backwards": 1}
        assert r.reader.issues.table().column("cpu").to_pylist() == [0]

    def test_equal_times_keep_the_order_of_the_file(self) -> None:
        line = "             a-1     [00{}] d..2   1.000001: cpu_idle: state={} cpu_id={}\n"
        r = read("".join(line.format(c, i, c) for i, c in enumerate([3, 1, 3, 0])))
        assert [row["value"] for row in r.rows] == [0, 1, 2, 3]

    @pytest.mark.parametrize("piece", [1, 150, 400, None])
    def test_c17_c27_c31_files_by_cpu(self, piece: int | None) -> None:
        # One CPU's lines after the other's, each in order.
        line = "             a-1     [00{}] d..2   1.{:06}: cpu_idle: state=1 cpu_id={}\n"
        text = "".join(line.format(c, 10 * i + c, c) for c in (2, 0, 1) for i in range(20))
        r = read(text, piece=piece)
        stamps = [row["ts"] for row in r.rows]
        assert stamps == sorted(stamps)
        assert len(stamps) == 60
        assert not r.reader.issues


class TestLossAndBegin:
    def test_marks_stand_before_the_cpus_next_event(self) -> None:
        line = "             a-1     [00{0}] d..2   1.00000{1}: cpu_idle: state=1 cpu_id={0}\n"
        r = read(
            "##### CPU 1 buffer started ####\n"
            + line.format(0, 1)
            + "CPU:1 [LOST 12 EVENTS]\n"
            + "CPU:0 [LOST EVENTS]\n"
            + line.format(1, 2)
            + line.format(0, 3)
            + "CPU:3 [LOST 5 EVENTS]\n"
        )
        assert [(x["cpu"], x["kind"], x["ts"], x.get("value")) for x in r.rows] == [
            (0, K.CPU_IDLE, 1000001000, 1),
            (1, K.BEGIN, 1000002000, None),
            (1, K.LOST, 1000002000, 12),
            (1, K.CPU_IDLE, 1000002000, 1),
            (0, K.LOST, 1000003000, None),
            (0, K.CPU_IDLE, 1000003000, 1),
        ]
        lost = r.reader.lost
        assert (lost.events, lost.marks, lost.per_cpu) == (None, 3, {1: 12, 0: None, 3: 5})
        rows = r.reader.issues.table().to_pylist()
        assert [(x["code"], x["cpu"], x["count"], x["ts"]) for x in rows] == [
            ("events_lost", 1, 12, 1000002000),
            ("events_lost", 0, 1, 1000003000),
            ("events_lost", 3, 5, None),
        ]

    def test_wrapped_ring(self) -> None:
        line = "             a-1     [00{0}] d..2   1.00000{1}: cpu_idle: state=1 cpu_id={0}\n"
        r = read(
            "# tracer: nop\n#\n# entries-in-buffer/entries-written: 3/10   #P:4\n#\n"
            + line.format(2, 1)
            + "##### CPU 0 buffer started ####\n"
            + line.format(0, 2)
            + line.format(2, 3)
        )
        # The first CPU has no mark of its own, but its past is as unknown.
        assert seen(r, "cpu", "kind") == [
            (2, K.BEGIN), (2, K.CPU_IDLE), (0, K.BEGIN), (0, K.CPU_IDLE), (2, K.CPU_IDLE),
        ]  # fmt: skip
        assert r.reader.issues.counts() == {"ring_wrapped": 7}
        assert r.reader.meta.cpus_online == 4
        assert r.reader.lost.marks == 0

    def test_header_of_a_cut_file(self) -> None:
        r = read(
            "# tracer: nop\n#\n# entries-in-buffer/entries-written: 1000/1000   #P:4\n#\n"
            "             a-1     [000] d..2   1.000001: cpu_idle: state=1 cpu_id=0\n"
        )
        assert r.reader.issues.counts() == {"entries_missing": 999}


class TestDamage:
    def test_c08_one_bad_line(self) -> None:
        good = "             a-1     [000] d..2   1.000001: cpu_idle: state=1 cpu_id=0\n"
        r = read(good + "          trace-cmd-1 [00\n" + good)
        assert len(r.rows) == 2
        table = r.reader.issues.table()
        assert table.column("code").to_pylist() == ["line_not_understood"]
        text = table.column("text")[0].as_py()
        assert text.startswith("1 line not understood (line 2: '          trace-cmd-1 [00'")
        assert not r.reader.damaged

    def test_first_three_are_shown_escaped_and_cut(self) -> None:
        r = read("x\x1b[31m" + "y" * 500 + "\n" + "junk\n" * 9 + "# end\n")
        row = r.reader.issues.table().to_pylist()[0]
        assert row["count"] == 10
        assert row["text"].count("line ") == 3
        assert "\x1b" not in row["text"]
        assert len(row["text"]) < 300

    def test_cut_in_the_last_line(self) -> None:
        good = "             a-1     [000] d..2   1.000001: cpu_idle: state=1 cpu_id=0\n"
        r = read(good + "          pp-a-0-1823  ")
        assert r.reader.damaged
        assert r.reader.issues.counts() == {"line_not_understood": 1, "cut_short": 1}
        # Without the newline, but whole.
        r = read(good + good.rstrip())
        assert len(r.rows) == 2
        assert not r.reader.damaged

    def test_known_event_with_a_cut_text_is_counted(self) -> None:
        r = read(
            "    bash-14840 [005]  7115.450093: sched_switch: prev_comm=bash prev_pid=14840\n"
            "             a-1     [000] d..2   1.000001: cpu_idle: state=1 cpu_id=0\n"
        )
        assert r.reader.counts == {"sched_switch": 1, "cpu_idle": 1}
        assert len(r.rows) == 1
        assert r.reader.issues.counts() == {"line_not_understood": 1}

    def test_grep_prefix(self) -> None:
        r = read(
            "f.txt:7:               a-1     [000] d..2   1.000001: cpu_idle: state=1 cpu_id=0\n"
        )
        assert seen(r, "pid", "cpu", "ts") == [(1, 0, 1000001000)]
        assert r.comms() == {1: b"a"}

    def test_empty(self) -> None:
        r = read(b"")
        assert r.rows == []
        assert r.reader.counts == {}

    def test_reading_twice_gives_the_same(self) -> None:
        r = read(
            "CPU:0 [LOST 3 EVENTS]\n             a-1 [000] 1.000001: cpu_idle: state=1 cpu_id=0\nx\n"
        )
        first = (dict(r.reader.counts), r.reader.issues.counts(), r.reader.lost.marks)
        again = list(r.reader.chunks())
        assert len(again[0].events) == 2
        assert again[0].events.value[0] == 3 != NULL_I64
        assert (dict(r.reader.counts), r.reader.issues.counts(), r.reader.lost.marks) == first


class TestExtraEvents:
    def test_fields(self) -> None:
        r = read(
            "             a-1     [000] d.h2   1.000001: sched_sis_truth: comm=a pid=7 pid=9 wa=1 x=0x10\n"
            "             a-1     [001] d..2   1.000002: sched_sis_truth: comm=b pid=8 wa=-1 x=0x11\n"
            "             a-1     [001] d..2   1.000003: other: y=1\n"
        )
        table = r.reader.extra_events("sched_sis_truth")
        assert table.column_names[:5] == [
            "ts", "cpu", "common_pid", "common_flags", "common_preempt_count",
        ]  # fmt: skip
        rows = table.to_pylist()
        assert rows[1] == {
            "ts": 1000002000, "cpu": 1, "common_pid": 1, "common_flags": 1,
            "common_preempt_count": 2, "comm": "b", "pid": 8, "wa": -1, "x": 17,
        }  # fmt: skip
        assert rows[0]["common_flags"] == 9
        assert rows[0]["pid"] == 9

    def test_plain_text(self) -> None:
        r = read(
            "              a     1 [000]     2.044384462: sched:sched_wakeup: a:1 [120] CPU:000\n",
            "perf",
        )
        row = r.reader.extra_events("sched_wakeup").to_pylist()[0]
        assert row["text"] == "a:1 [120] CPU:000"
        assert row["common_flags"] is None

    def test_unknown(self) -> None:
        r = read("             a-1 [000] 1.000001: cpu_idle: state=1 cpu_id=0\n")
        with pytest.raises(UsageError, match="cpu_idle"):
            r.reader.extra_events("nosuch")
