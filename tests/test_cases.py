# ruff: noqa: E501  (lines of traces stand as they are printed)
"""What went wrong for users of other tools, each with the right outcome, through ``traceana.open``.

Cnn is the number of a case in the captures' CASES.md. ``ELSEWHERE`` names the test of each case
that is not tested here; together they must be all of them.
"""

from __future__ import annotations

import ast
import io
import itertools
import json
import re
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import traceana as ta
from traceana import reports
from traceana.errors import InputError
from traceana.schema import Certainty, Ctx, EndReason, EventKind, Quality, Queueing, State
from traceana.summary import idle_rows

TESTS = Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS / "parsers"))
import trace_dat_writer as w  # noqa: E402

US, MS = 1000, 1_000_000
Open = Callable[..., ta.Capture]

#: Case -> the tests of its outcome, where they are not in this file.
ELSEWHERE = {
    "C01": ["parsers/test_trace_dat.py::test_an_option_of_a_size_that_it_cannot_have_is_ignored"],
    "C02": ["parsers/test_trace_dat.py::test_an_option_of_a_size_that_it_cannot_have_is_ignored"],
    "C15": [
        "parsers/test_systrace.py::test_atrace_z",
        "parsers/test_systrace.py::test_the_same_text_uncompressed_opens_as_text",
    ],
    "C16": ["parsers/test_systrace.py::test_json"],
    "C23": ["parsers/test_perf_forms.py::test_pipe_mode_equals_file_mode"],
    "C26": ["parsers/test_perf_forms.py::test_compressed_equals_plain"],
    "C33": ["parsers/test_perf_data.py::test_no_tracepoints_says_what_there_is_and_why"],
    "C34": [
        "parsers/test_trace_dat.py::test_data_that_is_cut_gives_its_whole_pages_and_names_the_cpu",
        "parsers/test_trace_dat.py::test_a_recording_cut_off",
        "test_cli.py::test_cut_capture_gives_what_is_whole_and_status_4",
    ],
    "C38": ["parsers/test_perf_data.py::test_any_size_of_attr"],
    "C39": [
        "parsers/test_perf_forms.py::test_size_zero_in_a_pipe_ends_at_once",
        "parsers/test_perf_data.py::test_a_record_of_size_zero_ends_the_reading",
    ],
}
#: How many cases there are.
CASES = 41


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Write text or bytes to a file and open it as a user would."""

    def make(content: str | bytes, **options: Any) -> ta.Capture:
        path = tmp_path / "capture"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return ta.open(path, **options)

    return make


def line(us: float, cpu: int, who: str, body: str, flags: str = "d..2") -> str:
    """A line of the tracefs file, as it is printed."""
    ns = round(us * US)
    return f"{who:>20} [{cpu:03d}] {flags} {ns // 10**9}.{ns % 10**9 // US:06d}: {body}\n"


def switch(prev: str, nxt: str, state: str = "S") -> str:
    """sched_switch between tasks given as NAME-PID."""
    (a, _, p), (b, _, n) = prev.rpartition("-"), nxt.rpartition("-")
    return (
        f"sched_switch: prev_comm={a} prev_pid={p} prev_prio=120 prev_state={state} ==> "
        f"next_comm={b} next_pid={n} next_prio=120"
    )


def wake(kind: str, who: str, cpu: int) -> str:
    comm, _, pid = who.rpartition("-")
    return f"sched_{kind}: comm={comm} pid={pid} prio=120 target_cpu={cpu:03d}"


def idle(cpu: int) -> str:
    return f"swapper/{cpu}-0"


def rows(cap: ta.Capture, table: str, pid: int | None = None) -> list[dict[str, Any]]:
    """Rows of a table of the timeline; with ``pid`` those of this task (wakeups: as the wakee)."""
    found: list[dict[str, Any]] = getattr(cap.timeline(), table).to_pylist()
    if pid is None:
        return found
    mine = {t["task"] for t in cap.timeline().tasks.to_pylist() if t["pid"] == pid}
    column = "wakee" if table == "wakeups" else "task"
    return [row for row in found if row[column] in mine]


def one(cap: ta.Capture, table: str, pid: int) -> dict[str, Any]:
    (row,) = rows(cap, table, pid)
    return row


def names(cap: ta.Capture) -> dict[int, str | None]:
    """pid -> name of the tasks that are not idle tasks."""
    return {t["pid"]: t["comm"] for t in rows(cap, "tasks") if t["pid"]}


def switches(cap: ta.Capture) -> list[dict[str, Any]]:
    return [e for e in cap.events().to_pylist() if e["kind"] == EventKind.SWITCH]


def issue(cap: ta.Capture, code: str) -> dict[str, Any]:
    _ = cap.counts  # what a reader has to say is complete once it has read
    (row,) = [r for r in cap.issues_table().to_pylist() if r["code"] == code]
    return row


def said(cap: ta.Capture) -> str:
    """The opening sentences of the report."""
    return " ".join(json.loads(reports.render(cap, format="json"))["opening"])


# --- names ----------------------------------------------------------------------------------


def test_c03_name_in_angle_brackets_is_no_task(opened: Open) -> None:
    cap = opened(
        line(100, 0, "<...>-501", switch("cook-501", idle(0)))
        + line(200, 1, "<...>-502", switch("baker-502", idle(1)))
    )
    assert names(cap) == {501: "cook", 502: "baker"}


def test_c04_blanks_and_punctuation_in_comm(opened: Open) -> None:
    cap = opened(
        line(10, 3, "Sub Net 4-1-2711", switch("Sub Net 4-1-2711", "b prev_pid=7-9"))
        + line(20, 3, "b prev_pid=7-9", switch("b prev_pid=7-9", "y ==> z-10", "R"))
        + line(30, 3, "y ==> z-10", switch("y ==> z-10", "(the-one) [0]:q-900"))
    )
    assert names(cap) == {
        2711: "Sub Net 4-1", 9: "b prev_pid=7", 10: "y ==> z", 900: "(the-one) [0]:q",
    }  # fmt: skip
    assert [e["state"] for e in switches(cap)] == [State.SLEEP, 0, State.SLEEP]


def test_c05_instance_name_in_front_of_the_line(opened: Open) -> None:
    body = "{:>16}-0     [000]    76.2115{}: sched_switch:         swapper/0:0 [120] R ==> sh:{} [120]\n"
    text = "cpus=1\n"
    text += "  side:    " + body.format("<idle>", 13, 1642)
    text += "           " + body.format("<idle>", 13, 1642)
    text += "  side:    " + body.format("<idle>", 15, 1643)
    cap = opened(text)
    # The one that stands in both buffers counts once.
    assert [(e["ts"], e["other"]) for e in switches(cap)] == [
        (76_211513000, 1642), (76_211515000, 1643),
    ]  # fmt: skip
    assert "side" in json.dumps(cap.meta.extra) + " ".join(cap.issues.texts())


@pytest.mark.parametrize("unknown", ["(---)", "(-----)", "(-------)"])
def test_c06_tgid_column_of_any_width(opened: Open, unknown: str) -> None:
    cap = opened(
        f"            door-76    {unknown} [002] .... 5.000001: {wake('wakeup', 'key-78', 2)}\n"
        f"            door-77    (     70) [002] ..... 5.000002: {wake('wakeup', 'key-78', 2)}\n"
    )
    groups = {r["pid"]: r["tgid"] for r in cap.names().to_pylist() if r["tgid"] is not None}
    assert cap.counts == {"sched_wakeup": 2}
    assert groups == {77: 70}


def test_c07_pretty_and_raw_texts_mixed(opened: Open) -> None:
    cap = opened(
        "version = 6\ncpus=2\n"
        "             a-10    [000]     1.000000: sched_switch:         a:10 [120] S ==> my:job:11 [98]\n"
        "             b-12    [001]     1.000010: sched_switch:          prev_comm=b prev_pid=12 "
        "prev_prio=120 prev_state=4096 next_comm=c next_pid=13 next_prio=120\n"
        "             c-13    [001]     1.000020: sched_switch:         prev_comm=c prev_pid=13 "
        "prev_prio=120 prev_state=R+ ==> next_comm=b next_pid=12 next_prio=120\n"
    )
    assert [(e["other"], e["other_prio"], e["state"]) for e in switches(cap)] == [
        (11, 98, State.SLEEP), (13, 120, State.PREEMPTED), (12, 120, State.PREEMPTED),
    ]  # fmt: skip
    assert names(cap)[11] == "my:job"


# --- lines ----------------------------------------------------------------------------------


def test_c08_one_malformed_line_stops_nothing(opened: Open) -> None:
    good = line(1, 0, "a-1", switch("a-1", idle(0)))
    cap = opened(good + "          trace-tool-1 [00\n" + good)
    assert cap.counts == {"sched_switch": 2}
    assert issue(cap, "line_not_understood")["text"].startswith("1 line not understood (line 2")
    assert not cap.damaged


RT_ART = """\
#                                _-------=> irqs-off/BH-disabled
#                               / _------=> need-resched
#                              | / _-----=> need-resched-lazy
#                              || / _----=> hardirq/softirq
#                              ||| / _---=> preempt-depth
#                              |||| / _--=> preempt-lazy-depth
#                              ||||| / _-=> migrate-disable
#                              |||||| /     delay
#           TASK-PID     CPU#  |||||||  TIMESTAMP  FUNCTION
"""


def test_c09_flag_column_of_rt_kernels(opened: Open) -> None:
    cap = opened(RT_ART + line(9_000_001, 2, "<idle>-0", wake("wakeup", "rt-40", 2), "dNLh2.1"))
    (event,) = cap.events().to_pylist()
    assert event["ts"] == 9_000_001_000
    assert event["ctx"] == Ctx.HARDIRQ | Ctx.NEED_RESCHED | Ctx.PREEMPT


def test_c10_no_flag_column_eats_no_digit(opened: Open) -> None:
    cap = opened(f"          <idle>-0     [000]  0.002188: {wake('wakeup', 'one-1', 0)}\n")
    (event,) = cap.events().to_pylist()
    assert (event["ts"], event["ctx"]) == (2_188_000, None)


def test_c11_fifth_flag_character(opened: Open) -> None:
    cap = opened(line(5, 0, "dog-155", wake("wakeup", "x-2", 0), "d..31"))
    (event,) = cap.events().to_pylist()
    assert (event["ts"], event["ctx"]) == (5000, Ctx.PREEMPT)


def test_c12_idle_task_of_each_cpu_is_its_own(opened: Open) -> None:
    cap = opened(
        line(100, 0, "a-10", switch("a-10", idle(0)))
        + line(100, 2, "b-12", switch("b-12", idle(2)))
        + line(160, 2, "<idle>-0", switch(idle(2), "b-12", "R"))
        + line(190, 0, "<idle>-0", switch(idle(0), "a-10", "R"))
    )
    idle_tasks = [(t["comm"], t["cpu"]) for t in rows(cap, "tasks") if t["pid"] == 0]
    assert idle_tasks == [("swapper/0", 0), ("swapper/2", 2)]
    assert "ran_on_two_cpus" not in cap.issues.counts()


def test_c13_letter_i_is_a_sleep_not_a_block(opened: Open) -> None:
    cap = opened(
        line(100, 0, "<idle>-0", switch(idle(0), "kworker/u9:1-10", "R"))
        + line(150, 0, "kworker/u9:1-10", switch("kworker/u9:1-10", idle(0), "I"))
        + line(200, 0, "<idle>-0", switch(idle(0), "disk-11", "R"))
        + line(250, 0, "disk-11", switch("disk-11", idle(0), "D"))
    )
    worker, disk = one(cap, "slices", 10), one(cap, "slices", 11)
    assert (worker["end_reason"], worker["state"]) == (EndReason.SLEEP, State.IDLE)
    assert (disk["end_reason"], disk["state"]) == (EndReason.BLOCK, State.DISK)
    assert "state" not in " ".join(cap.issues.texts())


def test_c14_process_learnt_from_any_line(opened: Open) -> None:
    text = "".join(
        f"            pipe-{pid}    {group} [00{cpu}] d..2. 5.00000{i}: {body}\n"
        for i, (pid, group, cpu, body) in enumerate(
            [
                (77, "(-----)", 0, switch("pipe-77", idle(0))),
                (78, "(-----)", 1, switch("pipe-78", idle(1))),
                (77, "(   70)", 0, wake("wakeup", "x-5", 0)),
            ]
        )
    )
    cap = opened(text)
    groups = {t["pid"]: t["tgid"] for t in rows(cap, "tasks")}
    assert (groups[77], groups[78]) == (70, None)


# --- binary ---------------------------------------------------------------------------------


def one_cpu(kernel: w.Kernel) -> bytes:
    """A file of two switches on CPU 0 and a wakeup."""
    page = w.Page(kernel, 1000)
    for delta, prev, nxt, state in ((0, 0, 31, 0), (500, 31, 0, 1)):
        page.event(
            kernel.pack("sched_switch", prev, prev_comm=b"t%d" % prev, prev_pid=prev, prev_prio=120,
                        prev_state=state, next_comm=b"t%d" % nxt, next_pid=nxt, next_prio=120),
            delta,
        )  # fmt: skip
        page.event(
            kernel.pack("sched_wakeup", prev, comm=b"t31", pid=31, prio=120, target_cpu=0,
                        success=1),
            100,
        )  # fmt: skip
    return w.v6(w.Capture(kernel, {0: page.bytes()}))


def archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def test_c18_page_size_comes_from_header_page(opened: Open) -> None:
    kernel = w.Kernel()
    page = w.Page(kernel, 7, 65536)
    while len(page.data) < 36300:
        body = kernel.pack("sched_waking", 1, comm=b"far", pid=2, prio=120, target_cpu=0)
        page.event(body, 1)
    wanted = page.data.count(b"far\0")
    files = {f"formats/sched/{x.name}/format": x.text() for x in kernel.layouts.values()}
    files["formats/header_page"] = w.header_page(kernel, 65536)
    files["traces/cpu0"] = page.bytes()
    files["metadata.textproto"] = b"trace_type: FTRACE\n"
    cap = opened(archive(files))
    assert cap.counts == {"sched_waking": wanted}
    assert wanted > 700
    assert not cap.damaged


def test_c19_wrong_file_given(opened: Open) -> None:
    with pytest.raises(InputError, match=r"a tar archive.*traces/cpuN: SchedViz has them") as told:
        opened(archive({"formats/header_page": b"field: u64 timestamp;", "notes": b"x"}))
    assert "unpack it" in str(told.value.hint)


def test_c20_a_longer_common_header(opened: Open) -> None:
    lazy = ("unsigned char", "common_preempt_lazy_count", 1, False)
    kernel = w.Kernel(common=(*w.COMMON, lazy))
    at = {name: offset for _, name, offset, _, _ in kernel.layouts["sched_switch"].fields}
    assert (at["prev_pid"], at["next_pid"]) == (28, 64)
    assert names(opened(one_cpu(kernel))) == {31: "t31"}


def test_c21_a_wakeup_record_that_shrank(opened: Open) -> None:
    offsets, tables = set(), []
    for success in (True, False):
        kernel = w.Kernel(success=success)
        fields = kernel.layouts["sched_wakeup"].fields
        offsets |= {offset for _, name, offset, _, _ in fields if name == "target_cpu"}
        tables.append(opened(one_cpu(kernel)).events().to_pylist())
    assert offsets == {36, 32}
    assert tables[0] == tables[1]
    assert [e["cpu_to"] for e in tables[0] if e["kind"] == EventKind.WAKEUP] == [0, 0]


# --- latencies ------------------------------------------------------------------------------


def test_c22_effect_stamped_before_its_cause_is_0_not_2_to_the_64(opened: Open) -> None:
    cap = opened(
        line(5_000_010, 1, "<idle>-0", wake("waking", "w-30", 0), "dNh2")
        + line(5_000_008, 0, "<idle>-0", switch(idle(0), "w-30", "R"))
    )
    woken = one(cap, "wakeups", 30)
    assert woken["wakeup_latency_ns"] == 0
    assert woken["quality"] & Quality.SKEW
    assert issue(cap, "clock_skew")["count"] == 1
    assert not rows(cap, "wakeups", 0)
    assert [t["delays"] for t in rows(cap, "tasks") if t["pid"] == 0] == [0, 0]


def test_c24_perf_script_without_a_cpu_column(opened: Open, cli: Callable[..., Any]) -> None:
    cap = opened(
        "  a-server  4735/4735    921.700317:       sched:sched_switch: "
        "a-server:4735 [120] S ==> swapper/1:0 [120]\n"
        "  swapper      0/0       921.700417:       sched:sched_switch: "
        "swapper/1:0 [120] R ==> a-server:4735 [120]\n"
    )
    assert cap.counts == {"sched_switch": 2}
    assert [e["cpu"] for e in switches(cap)] == [None, None]
    assert "-F +cpu" in issue(cap, "no_cpu_column")["text"]
    ran = cli("info", cap.path)
    assert ran.status == 0
    assert "-F +cpu" in ran.out


def test_c25_stacks_and_modifiers(opened: Open) -> None:
    cap = opened(
        "fish   100 [001]    10.000001: sched:sched_switch: fish:100 [120] D ==> swapper/1:0 [120]\n"
        "\tffffffff81000001 __schedule+0x1 ([kernel.kallsyms])\n"
        "\tffffffff81000002 schedule+0x2 ([kernel.kallsyms])\n"
        "\n"
        "swapper     0 [001]    10.000100: sched:sched_wakeup/call-graph=no/: fish:100 [120] CPU:001\n"
        "swapper     0 [001]    10.000110: sched:sched_switch: swapper/1:0 [120] R ==> fish:100 [120]\n"
    )
    assert cap.counts == {"sched_switch": 2, "sched_wakeup": 1}
    assert one(cap, "wakeups", 100)["queue_delay_ns"] == 10 * US


C27 = [
    line(1_000_000, 0, "<idle>-0", switch(idle(0), "a-10", "R")),
    line(1_000_100, 1, "b-20", wake("waking", "a-10", 0)),
    line(1_000_103, 0, "a-10", switch("a-10", "c-30")),
    line(1_000_105, 1, "b-20", wake("wakeup", "a-10", 0)),
    line(1_000_200, 0, "c-30", switch("c-30", "a-10")),
]


def test_c27_waking_while_the_task_still_runs(opened: Open) -> None:
    woken = one(opened("".join(C27)), "wakeups", 10)
    # 200 - 103 and 200 - 105; 100 would be from the waking.
    assert (woken["wakeup_latency_ns"], woken["queue_delay_ns"]) == (97 * US, 95 * US)
    assert woken["run_ts"] == 1_000_200 * US


def test_c27_the_same_without_the_wakeup(opened: Open) -> None:
    woken = one(opened("".join(x for x in C27 if "wakeup" not in x)), "wakeups", 10)
    assert (woken["wakeup_latency_ns"], woken["queue_delay_ns"]) == (97 * US, None)


def test_c28_target_cpu_of_waking_is_not_the_placement(opened: Open) -> None:
    cap = opened(
        line(100, 3, "m-30", switch("m-30", idle(3)))
        + line(105, 5, "<idle>-0", switch(idle(5), "n-50", "R"))
        + line(108, 5, "n-50", switch("n-50", idle(5)))
        + line(110, 1, "b-20", wake("waking", "m-30", 3))
        + line(111, 1, "b-20", "sched_migrate_task: comm=m pid=30 prio=120 orig_cpu=3 dest_cpu=5")
        + line(112, 1, "b-20", wake("waking", "k-31", 3))
        + line(113, 3, "<idle>-0", wake("wakeup", "k-31", 3), "dNh2")
        + line(114, 5, "<idle>-0", wake("wakeup", "m-30", 5), "dNh2")
        + line(116, 5, "<idle>-0", switch(idle(5), "m-30", "R"))
    )
    woken = one(cap, "wakeups", 30)
    assert (woken["prev_cpu"], woken["placed_cpu"], woken["ran_cpu"]) == (3, 5, 5)
    assert woken["queueing"] == Queueing.REMOTE
    # CPU 3's queue never had it: it was empty when the next one came.
    assert one(cap, "wakeups", 31)["nr_running_placed"] == 0
    assert len(cap.timeline().raw["moves"]) == 0


def test_c29_no_long_delay_from_a_wakeup_that_did_nothing(opened: Open) -> None:
    cap = opened(
        line(312_881_567_210, 58, "x-50", wake("waking", "w-70", 58), "d.h2")
        + line(312_882_448_807, 15, "y-60", wake("waking", "w-70", 118))
        + line(312_882_448_824, 118, "<idle>-0", switch(idle(118), "w-70", "R"))
        + line(312_882_448_911, 118, "w-70", switch("w-70", idle(118)))
    )
    first, last = rows(cap, "wakeups", 70)
    assert (first["wakeup_latency_ns"], first["run_ts"]) == (None, None)
    assert last["wakeup_latency_ns"] == 17 * US
    assert first["quality"] & last["quality"] & Quality.REPEATED
    assert first["quality"] & Quality.STATE_UNKNOWN
    assert "maybe lost events" in issue(cap, "wake_repeated")["text"]
    # 881 ms is nobody's maximum, of any table.
    assert one(cap, "tasks", 70)["delay_max_ns"] <= 17 * US
    document = json.loads(reports.render(cap, format="json"))
    most = [
        row[key]
        for section in document["sections"]
        for table in section["tables"]
        for row in table["rows"]
        for key in row
        if key in ("max_ns", "delay_max_ns", "p99_ns") and row[key] is not None
    ]
    assert most
    assert max(most) == 17 * US


def test_c30_badly_ordered_file(opened: Open) -> None:
    cap = opened(
        line(1494_663899, 0, "<idle>-0", switch(idle(0), "pane-45", "R"))
        + line(1494_663928, 0, "pane-45", switch("pane-45", idle(0)))
        + line(1494_663860, 1, "srv-42", wake("wakeup", "pane-45", 0))
        + line(1504_098252, 1, "srv-42", wake("wakeup", "pane-45", 0))
        + line(1504_100353, 0, "tool-52", switch("tool-52", "pane-45"))
    )
    assert [r["queue_delay_ns"] for r in rows(cap, "wakeups", 45)] == [39 * US, 2101 * US]
    assert one(cap, "tasks", 45)["delay_max_ns"] == 2101 * US
    # CPU 0 went idle, then tool runs there.
    assert issue(cap, "lost_switch")["count"] == 1


def test_c31_off_cpu_time_of_a_task_that_moves(opened: Open) -> None:
    cap = opened(
        line(900_000, 0, "<idle>-0", switch(idle(0), "m-10", "R"))
        + line(1_000_000, 0, "m-10", switch("m-10", idle(0)))
        + line(1_200_000, 1, "<idle>-0", switch(idle(1), "m-10", "R"))
        + line(1_300_000, 1, "m-10", switch("m-10", idle(1)))
        + line(1_900_000, 0, "<idle>-0", switch(idle(0), "m-10", "R"))
    )
    slices = rows(cap, "slices", 10)
    assert [b["start"] - a["end"] for a, b in itertools.pairwise(slices)] == [200 * MS, 600 * MS]


def test_c32_task_that_never_ran_has_no_invented_sleep(opened: Open) -> None:
    cap = opened(
        line(100, 1, "<idle>-0", switch(idle(1), "o-11", "R"))
        + line(900, 0, "p-10", wake("wakeup", "z-77", 0))
    )
    assert not rows(cap, "slices", 77)
    task = one(cap, "tasks", 77)
    assert (task["on_cpu_ns"], task["switches"], task["delay_max_ns"]) == (0, 0, None)
    assert task["first_ts"] == 900 * US
    woken = one(cap, "wakeups", 77)
    assert (woken["run_ts"], woken["queue_delay_ns"]) == (None, None)
    assert woken["quality"] & Quality.CENSORED_END
    assert woken["quality"] & Quality.STATE_UNKNOWN


def test_c35_clock_that_steps_back_by_a_nanosecond(opened: Open) -> None:
    cap = opened(
        "  swapper     0 [000]     2.000000464: sched:sched_switch: swapper/0:0 [120] R ==> a:1 [120]\n"
        "        a     1 [000]     2.000000463: sched:sched_switch: a:1 [120] S ==> swapper/0:0 [120]\n"
    )
    assert [e["other"] for e in switches(cap)] == [1, 0]
    piece = one(cap, "slices", 1)
    assert piece["end"] - piece["start"] == 0
    assert one(cap, "tasks", 1)["on_cpu_ns"] == 0
    assert issue(cap, "time_backwards")["count"] == 1


def test_c36_console_dump(opened: Open) -> None:
    cap = opened(
        "[10611.834143] Dumping ftrace buffer:\n"
        "[10611.834561] ---------------------------------\n"
        "[10611.835048] CPU:1 [LOST 16689746 EVENTS]\n"
        "[10611.835048] read_tes-70        1dNh3. 10607789211us : sched_wakeup: comm=write_test "
        "pid=65 prio=139 target_cpu=001\n"
        "[10611.836636] read_tes-70        1d..2. 10607789214us : sched_switch: prev_comm=read_test "
        "prev_pid=70 prev_prio=139 prev_state=R+ ==> next_comm=write_test next_pid=65 next_prio=139\n"
    )
    events = [(e["ts"], e["cpu"], e["kind"], e["value"]) for e in cap.events().to_pylist()]
    assert events == [
        (10607_789211_000, 1, EventKind.LOST, 16689746),
        (10607_789211_000, 1, EventKind.WAKEUP, None),
        (10607_789214_000, 1, EventKind.SWITCH, None),
    ]
    assert cap.lost.per_cpu == {1: 16689746}
    assert one(cap, "wakeups", 65)["queue_delay_ns"] == 3 * US
    assert names(cap) == {65: "write_test", 70: "read_test"}


def test_c37_success_that_the_plugin_adds(opened: Open) -> None:
    cap = opened(
        "cpus=1\n             d-10    [000]     1.000000: sched_wakeup:         "
        "q:11 [98] success=1 CPU:003\n"
    )
    (event,) = cap.events().to_pylist()
    assert (event["kind"], event["subject"], event["cpu_to"]) == (EventKind.WAKEUP, 11, 3)
    assert "wakeup_without_success" not in cap.issues.counts()


# --- what is not known ----------------------------------------------------------------------

C17 = (
    line(100_000_900, 1, "b-20", switch("b-20", idle(1)))
    + line(100_000_100, 0, "a-10", switch("a-10", "b-20"))
    + line(100_000_200, 0, "b-20", switch("b-20", idle(0)))
)
WRAPPED = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 3/10   #P:2\n#\n"


def no_run_before_the_window(cap: ta.Capture) -> None:
    """CPU 0: b from 100 to 200. CPU 1: b until 900, since when nobody knows."""
    assert [(s["cpu"], s["start"], s["end"]) for s in rows(cap, "slices", 20)] == [
        (0, 100_000_100 * US, 100_000_200 * US), (1, None, 100_000_900 * US),
    ]  # fmt: skip
    assert one(cap, "tasks", 20)["on_cpu_ns"] == 100 * US
    zero, first = cap.timeline().cpus.to_pylist()
    assert zero["busy_ns"] == 100 * US
    assert (first["busy_ns"], first["idle_ns"]) == (0, 0)
    assert first["unknown_ns"] >= 700 * US


def test_c17_rings_that_begin_at_different_times(opened: Open) -> None:
    no_run_before_the_window(opened(WRAPPED + "##### CPU 1 buffer started ####\n" + C17))


def test_c17_the_same_where_nothing_marks_the_begin(opened: Open) -> None:
    no_run_before_the_window(opened(C17))


def test_c17_common_window_is_shown(opened: Open) -> None:
    # In 900 .. 1000 CPU 0 is idle throughout, CPU 1 from 900 to 950.
    more = line(100_000_950, 1, "<idle>-0", switch(idle(1), "b-20", "R"))
    more += line(100_001_000, 0, "<idle>-0", switch(idle(0), "a-10", "R"))
    cap = opened(WRAPPED + "##### CPU 1 buffer started ####\n" + C17 + more)
    assert "idle 75.0 % of the 100 µs that all CPUs' data have in common" in said(cap)


def without_cpu_0() -> bytes:
    """CPU 1 runs 21, CPU 2 runs 42; 21 wakes 32, which slept on CPU 2. CPU 0's data are lost."""
    kernel = w.Kernel()

    def to(prev: int, nxt: int) -> bytes:
        return kernel.pack(
            "sched_switch", prev, prev_comm=b"t%d" % prev, prev_pid=prev, prev_prio=120,
            prev_state=1 if prev else 0, next_comm=b"t%d" % nxt, next_pid=nxt, next_prio=120,
        )  # fmt: skip

    woken: dict[str, Any] = {"comm": b"t32", "pid": 32, "prio": 120, "target_cpu": 2}
    one = w.Page(kernel, 1001).event(to(0, 21), 0)
    one.event(kernel.pack("sched_waking", 21, **woken), 9000)
    one.event(kernel.pack("sched_wakeup", 21, **woken), 1000).event(to(21, 0), 5000)
    two = w.Page(kernel, 1002).event(to(32, 42), 0).event(to(42, 32), 30_000)
    content = w.Capture(kernel, {1: one.bytes(), 2: two.bytes()}, cpu_count=3)
    content.options = [w.stat(0, read=38), w.stat(1, read=4), w.stat(2, read=2)]
    return w.v6(content)


def test_c40_a_file_that_lost_a_cpu_on_the_way(opened: Open, cli: Callable[..., Any]) -> None:
    cap = opened(without_cpu_0())
    row = issue(cap, "events_missing")
    assert (row["text"], row["count"]) == ("cpu 0: 38 events recorded, 0 in the file", 38)
    ran = cli("info", cap.path)
    assert ran.status == 0
    assert "cpu 0: 38 events recorded, 0 in the file" in ran.out
    zero = cap.timeline().cpus.to_pylist()[0]
    span = cap.span_ns
    assert (zero["idle_ns"], zero["busy_ns"], zero["unknown_ns"]) == (0, 0, span)
    shown = idle_rows(cap.timeline(), range(3))[0]
    assert (shown["idle_ns"], shown["idle_share"], shown["idle_share_max"]) == (None, None, 1.0)
    assert "1 CPU without any event" in said(cap)
    # No CPU is known to be idle, CPU 0 is none: no rule puts a task there.
    assert one(cap, "wakeups", 32)["idle_cpus_llc"] in (0, None)
    decisions = ta.whatif(cap, ["mainline", "sis_short_v5", "abel"]).decisions.to_pylist()
    assert len(decisions) == 3
    assert all(d["cpu"] in (1, 2) for d in decisions)


def test_c40_a_decision_that_hangs_on_the_lost_cpu_is_not_exact(
    opened: Open, tmp_path: Path
) -> None:
    # All else is known, so that nothing but CPU 0 is open: both CPUs of the file are busy, and the
    # search for an idle one would take CPU 0 if it was idle.
    state = tmp_path / "state.json"
    seeds = [
        {"pid": pid, "dur_avg_ns": MS, "wakee_flips": 0, "wakee_flip_decay_ts": 100,
         "last_wakee": last, "util_avg": 10}
        for pid, last in ((21, 32), (32, 21), (42, 1))
    ]  # fmt: skip
    state.write_text(json.dumps({"tasks": seeds, "jiffies_now": 100, "hz": 250}))
    cap = opened(without_cpu_0(), start_state=state)
    decisions = {
        d["rule"]: (d["cpu"], d["certainty"])
        for d in ta.whatif(cap, ["mainline", "prev_cpu"]).decisions.to_pylist()
    }
    assert decisions["prev_cpu"] == (2, Certainty.EXACT)  # it does not search
    assert decisions["mainline"][1] == Certainty.POSSIBLE


def test_c40_as_trace_cmd_made_one(shared: Path) -> None:
    cap = ta.open(shared / "captures/forms/cpu0-dropped.dat")
    assert issue(cap, "events_missing")["text"] == "cpu 0: 38 events recorded, 0 in the file"
    shown = idle_rows(cap.timeline(), cap.topology.column("cpu").to_pylist())[0]
    assert (shown["cpu"], shown["idle_ns"], shown["unknown_ns"]) == (0, None, cap.span_ns)


def test_c41_a_cpu_without_a_switch_is_not_idle(
    opened: Open, tmp_path: Path, cli: Callable[..., Any]
) -> None:
    topology = tmp_path / "topo.csv"
    topology.write_text(
        "# CPU,Core,Socket,Node,Cache\n" + "".join(f"{i},{i},0,0,0\n" for i in range(4))
    )
    stat = "sched_stat_runtime: comm=spin pid=50 runtime={} [ns] vruntime=1 [ns]"
    cap = opened(
        line(100, 1, "<idle>-0", switch(idle(1), "e-60", "R"))
        + line(120, 0, "spin-50", stat.format(1000), "d.h2")
        + line(200, 1, "e-60", switch("e-60", idle(1)))
        + line(400, 0, "spin-50", stat.format(280_000), "d.h2")
        + line(500, 1, "<idle>-0", switch(idle(1), "e-60", "R")),
        topology=topology,
    )
    shares = [(r["idle_ns"], r["unknown_ns"]) for r in idle_rows(cap.timeline(), range(4))]
    span = 400 * US
    assert shares == [(0, 0), (300 * US, 0), (None, span), (None, span)]
    assert cap.timeline().cpus.to_pylist()[0]["busy_ns"] == span
    assert [(s["start"], s["end"]) for s in rows(cap, "slices", 50)] == [(None, None)]
    # 300 of 2 x 400; of 4 x 400 as if the others were busy, or idle: 300 and 1100 of 1600.
    text = said(cap)
    assert "idle 37.5 % of the time" in text
    assert "between 18.8 % and 68.8 %" in text
    assert "2 CPUs without any event" in text
    ran = cli("idle", cap.path, "--topology", topology)
    assert "2 CPUs idle 37.5 %" in ran.out
    assert "2 CPUs without an event" in ran.out


# --- the ledger -----------------------------------------------------------------------------


def _tests_of(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize(("case", "test"), [(c, t) for c, ts in ELSEWHERE.items() for t in ts])
def test_the_named_test_exists(case: str, test: str) -> None:
    file, _, name = test.partition("::")
    assert name in _tests_of(TESTS / file), f"{case}: {file} has no {name}"


def test_every_case_has_a_test_in_one_place() -> None:
    here = {
        m[1].upper()
        for name in _tests_of(Path(__file__))
        if (m := re.match(r"test_(c\d\d)_", name))
    }
    assert not here & set(ELSEWHERE)
    assert here | set(ELSEWHERE) == {f"C{n:02d}" for n in range(1, CASES + 1)}


def test_the_list_of_cases_is_as_long(shared: Path) -> None:
    text = (shared / "captures/CASES.md").read_text()
    marked = re.findall(r"^### (C\d\d) \(T\+?\)", text, re.MULTILINE)
    assert marked == [f"C{n:02d}" for n in range(1, CASES + 1)]
