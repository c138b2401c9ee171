"""Texts of real captures: known counts, and the binary of the same ring."""

from __future__ import annotations

import json
import lzma
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traceana.columns import NULL_CTX, EventColumns
from traceana.parsers import ftrace_text, perf_script, trace_cmd_text
from traceana.parsers.perf_data import open_perf_data
from traceana.parsers.reader import Reader
from traceana.parsers.trace_dat import open_trace_dat
from traceana.schema import EventKind, Evidence

FORMS: dict[str, Any] = {
    "ftrace": (ftrace_text.sniff, ftrace_text.open_ftrace_text),
    "report": (trace_cmd_text.sniff, trace_cmd_text.open_trace_cmd_text),
    "perf": (perf_script.sniff, perf_script.open_perf_script),
}
Opener = Callable[[Path, bytes], Reader]


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def form_of(data: bytes) -> str:
    sure = {name: sniff(data[:65536]) for name, (sniff, _) in FORMS.items()}
    best = max(sure, key=lambda name: sure[name])
    assert sure[best] > 0.5
    assert all(sure[name] < sure[best] for name in sure if name != best)
    return best


def whole(opener: Opener, path: Path, data: bytes) -> tuple[Reader, EventColumns, set[Any]]:
    reader = opener(path, data)
    chunks = list(reader.chunks())
    events = EventColumns.concat([c.events for c in chunks])
    names = {
        (n.pid, n.comm)
        for c in chunks
        for n in c.names
        if n.comm is not None and n.evidence == Evidence.EVENT
    }
    return reader, events, names


def compare(
    binary: tuple[Reader, EventColumns, set[Any]], text: tuple[Reader, EventColumns, set[Any]],
    resolution: int, *, rounds: bool = True, exact_time: bool = True,
) -> None:  # fmt: skip
    """Every column that the text shows is that of the binary, in the same order."""
    (_, a, names_a), (_, b, names_b) = binary, text
    a, b = (x.take(x.kind < int(EventKind.LOST)) for x in (a, b))
    for name in EventColumns.__dataclass_fields__:
        left, right = getattr(a, name), getattr(b, name)
        if name == "ts":
            if not exact_time:
                left, right = left - left[0], right - right[0]
                assert np.abs(left - right).max() <= 2 * resolution
                continue
            # The kernel and trace-cmd round to the nearest µs, perf cuts.
            left = (left + (resolution // 2 if rounds else 0)) // resolution * resolution
        elif (name == "ctx" and (right == NULL_CTX).all()) or name == "buffer":
            continue
        np.testing.assert_array_equal(left, right, err_msg=name)
    assert names_a == names_b


SAMPLES = [
    ("pp3-plain.dat.xz", "pp3-plain.trace.txt.xz", 1000),
    ("pp3-plain.dat.xz", "pp3-plain.report.txt.xz", 1000),
    ("pp3-plain.dat.xz", "pp3-plain.report-t.txt.xz", 1),
    ("pp3-plain.dat.xz", "pp3-plain.report-R.txt.xz", 1000),
    ("hostile.dat", "hostile.trace.txt.xz", 1000),
    ("mix-wrapped.dat", "mix-wrapped.trace.txt.xz", 1000),
    ("pp6-file.perf.data.xz", "pp6-file.script.txt.xz", 1000),
]


@pytest.mark.parametrize(("binary", "text", "resolution"), SAMPLES, ids=[s[1] for s in SAMPLES])
def test_text_equals_binary(
    samples: Path, sample_counts: dict[str, Any], binary: str, text: str, resolution: int
) -> None:
    if not (samples / text).exists() or not (samples / binary).exists():
        pytest.skip(f"sample_traces/ lacks {text} or {binary}")
    opener = open_perf_data if "perf.data" in binary else open_trace_dat
    left = whole(opener, samples / binary, content(samples / binary))
    data = content(samples / text)
    right = whole(FORMS[form_of(data)][1], samples / text, data)
    compare(left, right, resolution, rounds="script" not in text)
    assert left[0].counts == right[0].counts
    assert not right[0].damaged


def test_ring_that_wrapped(samples: Path) -> None:
    path = samples / "mix-wrapped.trace.txt.xz"
    reader, events, _ = whole(ftrace_text.open_ftrace_text, path, content(path))
    begins = events.take(events.kind == int(EventKind.BEGIN))
    # 7 marks in the text; the CPU of the first event has none (see its header: 6476/106753).
    assert sorted(begins.cpu.tolist()) == list(range(8))
    for cpu, ts in zip(begins.cpu.tolist(), begins.ts.tolist(), strict=True):
        first = events.ts[(events.cpu == cpu) & (events.kind != int(EventKind.BEGIN))]
        assert ts == first[0]
    assert reader.issues.counts() == {"ring_wrapped": 106753 - 6476}


def index(shared: Path) -> dict[str, Any]:
    return dict(json.loads((shared / "captures" / "INDEX.json").read_text()))


def test_counts_of_all_texts(shared: Path) -> None:
    texts = {name: entry for name, entry in index(shared).items() if ".txt" in name}
    assert len(texts) >= 14
    for name, entry in texts.items():
        path = shared / "captures" / name
        data = content(path)
        reader, events, _ = whole(FORMS[form_of(data)][1], path, data)
        want = {key.rpartition(":")[2]: n for key, n in entry["events"].items()}
        assert reader.counts == want, name
        rows = int((events.kind < int(EventKind.LOST)).sum())
        assert rows == entry["total"], name


def test_other_dresses_of_one_ring(shared: Path) -> None:
    forms = shared / "captures" / "forms"
    left = whole(open_trace_dat, forms / "x.dat", content(forms / "fan-tgid.dat.xz"))
    for name, resolution in (
        ("fan-tgid.trace.txt.xz", 1000), ("fan-noirq.trace.txt.xz", 1000),
        ("fan-verbose.trace.txt.xz", 1000), ("fan-latency.trace.txt.xz", 1000),
        ("fan-tgid.report-l-t.txt.xz", 1),
    ):  # fmt: skip
        data = content(forms / name)
        right = whole(FORMS[form_of(data)][1], forms / name, data)
        compare(left, right, resolution, exact_time="latency" not in name)


def test_lost_marks_of_a_pipe(shared: Path) -> None:
    path = shared / "captures" / "forms" / "pp4-lost.trace_pipe.txt.xz"
    data = content(path)
    reader, events, _ = whole(ftrace_text.open_ftrace_text, path, data)
    marks = [line.split(b"LOST ")[1].split() for line in data.split(b"\n") if b"LOST" in line]
    lost = events.take(events.kind == int(EventKind.LOST))
    assert len(lost) == reader.lost.marks == len(marks) == 115
    assert reader.lost.events == sum(int(m[0]) for m in marks) == int(lost.value.sum())
    assert reader.damaged  # the file was cut at 1.5 MB
    groups = {n.pid: n.tgid for c in reader.chunks() for n in c.names if n.tgid is not None}
    assert groups[1820] == 1820


def test_ns_script_with_header(shared: Path) -> None:
    perf = shared / "captures" / "perf"
    left = whole(open_perf_data, perf / "x", content(perf / "pp6-file.perf.data.xz"))
    data = content(perf / "pp6-file.script-ns-header.txt.xz")
    right = whole(perf_script.open_perf_script, perf / "x", data)
    compare(left, right, 1, rounds=False)
    meta = right[0].meta
    assert (meta.kernel, meta.cpus_online, meta.cpus_present) == ("6.1.192", 8, 8)
    assert (meta.machine, meta.tool, meta.clock_unit) == ("x86_64", "perf 6.1.192", "ns")


PUBLIC = {
    # Counted by others (captures/public/INDEX.md), not by this reader.
    "rpt-rawstate.txt.xz": ({"sched_switch": 1856, "sched_wakeup": 1068, "print": 14}, "report"),
    "rpt-unsorted.txt": ({"sched_switch": 7, "cpu_idle": 8}, "report"),
    "rpt-no-switch.txt": ({"sched_stat_runtime": 21, "sched_stat_wait": 13}, "report"),
    "rpt-failed-to-parse.txt": ({"sched_load_avg_task": 2, "sched_load_avg_cpu": 1}, "report"),
    "rpt-other-events.txt": ({"ext4_da_write_end": 18}, "report"),
    "txt-trace-4flags.txt": ({"sched_switch": 72, "sched_wakeup": 44}, "ftrace"),
    "txt-tgid.txt": ({"sched_switch": 72, "sched_wakeup": 44}, "ftrace"),
    "txt-syscalls-mixed.txt": (
        {"sched_switch": 60, "sched_waking": 30, "sched_wakeup": 30, "sched_wakeup_new": 1,
         "sched_migrate_task": 3, "sched_stat_runtime": 40, "sched_wake_idle_without_ipi": 24},
        "ftrace",
    ),
    "txt-waking.txt": ({"sched_switch": 28, "sched_waking": 12, "sched_wakeup": 12}, "ftrace"),
    "txt-android-irq.txt": ({"sched_switch": 67, "sched_wakeup": 45}, "ftrace"),
    "txt-openharmony.txt": ({"sched_switch": 16, "sched_waking": 8, "cpu_idle": 1}, "ftrace"),
    "script-callchains.txt": ({"cpu-clock": 102}, "perf"),
    "script-header.txt": ({"cpu-clock": 136}, "perf"),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_published_captures(shared: Path, name: str) -> None:
    path = shared / "captures" / "public" / name
    if not path.exists():
        pytest.skip(f"no {name} among the published captures")
    counts, form = PUBLIC[name]
    data = content(path)
    assert form_of(data) == form
    reader, _, names = whole(FORMS[form][1], path, data)
    assert {k: reader.counts.get(k) for k in counts} == counts
    assert not any(comm in (b"<...>", b"") for _, comm in names)


REPORTS = [
    ["-t"], ["-R"], ["-N"], ["-l"], ["-w"], ["--ts-diff"], ["-t", "-l", "-R"],
]  # fmt: skip


@pytest.mark.skipif(not shutil.which("trace-cmd"), reason="trace-cmd is not installed")
@pytest.mark.parametrize("options", REPORTS, ids=[" ".join(o) for o in REPORTS])
def test_what_trace_cmd_prints(samples: Path, options: list[str]) -> None:
    path = samples / "hostile.dat"
    left = whole(open_trace_dat, path, path.read_bytes())
    done = subprocess.run(
        ["trace-cmd", "report", *options, str(path)], capture_output=True, check=True, timeout=60
    )
    assert form_of(done.stdout) == "report"
    right = whole(trace_cmd_text.open_trace_cmd_text, path, done.stdout)
    compare(left, right, 1 if "-t" in options else 1000)
    assert right[0].issues.counts().keys() <= {"plugin_state_letters", "state_table_assumed"}


NOT_TEXTS = {
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)),
    "prose": b"The scheduler of Linux chooses a CPU. See page 12-13 [2]: it is long.\n" * 40,
    "csv": b"time,cpu,comm,pid\n1.000001,0,bash,12\n1.000002,1,sh,13\n" * 40,
    "json": b'{"traceEvents": [{"name": "a", "ts": 1.000001, "pid": 12}]}\n',
    "json with text": b'{"systemTraceEvents":"# tracer: nop\\n  a-1 [000] 1.000001: x: y\\n"}',
    "html": b"<!DOCTYPE html>\n<script>\n# tracer: nop\n   a-1   [000] d..2 1.000001: x: y\n",
    "ini": b"[main]\nversion = 6\ncpus=8\nname = x\n",
    "syslog": b"Nov 30 12:00:01 host sshd[123]: Accepted publickey for x from 1.2.3.4\n" * 40,
    "dmesg": b"[   12.345678] usb 1-1: new device number 2\n[   12.345679] e1000: up\n" * 40,
    "timehist": b"    2.044391 [0000]  perf[1729]      0.000      0.000      0.007 \n" * 40,
    "empty": b"",
}


@pytest.mark.parametrize("what", NOT_TEXTS)
def test_other_things_are_not_taken(what: str) -> None:
    assert {name: sniff(NOT_TEXTS[what]) for name, (sniff, _) in FORMS.items()} == {
        "ftrace": 0.0, "report": 0.0, "perf": 0.0,
    }  # fmt: skip


def test_random_bytes_are_not_taken() -> None:
    for seed in range(30):
        data = random.Random(seed).randbytes(65536)
        assert max(sniff(data) for sniff, _ in FORMS.values()) == 0.0


LONE = [
    ("ftrace", b"              a-1     [000] d..2   1.000001: cpu_idle: state=1 cpu_id=0"),
    ("ftrace", b"a-1 [000] 1.000001: sched_switch: x\n"),
    (
        "ftrace",
        b"  <idle>-0         5dNh.. 217161us : sched_wakeup: comm=a pid=1 prio=1 target_cpu=0",
    ),
    ("ftrace", b"# tracer: nop\n#\n"),
    (
        "report",
        b"          <idle>-0     [002]     1.685578: cpu_idle:             state=1 cpu_id=2\n",
    ),
    ("report", b"cpus=8\n"),
    ("perf", b"            perf  1729 [000]     2.044384: sched:sched_switch: x\n"),
    ("perf", b"  redis-server  4735/4735    921.700317:       sched:sched_switch: x\n"),
]


@pytest.mark.parametrize(("form", "data"), LONE)
def test_a_lone_line_is_recognised(form: str, data: bytes) -> None:
    assert form_of(data) == form
