# ruff: noqa: E501  (lines of traces stand as they are printed)
"""Dresses of text that tracefs options and ``perf script -F`` make; which of them cannot serve."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from traceana.errors import FormatError
from traceana.parsers.perf_fields import is_bare, missing
from traceana.parsers.perf_script import open_perf_script, sniff
from traceana.schema import EventKind, State

sys.path.insert(0, str(Path(__file__).parent))
from text_writer import Event, ftrace_line, perf_line, read, same

K = EventKind
SWITCH = {
    "prev_comm": b"a b", "prev_pid": 100, "prev_prio": 120, "prev_state": "S",
    "next_comm": b"pp-a-1", "next_pid": 7, "next_prio": 98,
}  # fmt: skip
WAKE = {"comm": b"pp-a-1", "pid": 7, "prio": 98, "target_cpu": 2}
EVENTS = [
    Event(5_000_001_000, 1, b"pp-a-1", 7, "sched_waking", WAKE),
    Event(5_000_002_000, 1, b"a b", 100, "sched_switch", SWITCH),
    Event(5_000_003_000, 2, b"<idle>", 0, "cpu_idle", {"state": 4294967295, "cpu_id": 2}),
]

#: The same three times over, each time later.
LATER = [replace(e, ts=e.ts + 10_000 * i) for i in range(3) for e in EVENTS]


class TestFieldsOption:
    """``echo 1 > options/fields`` (kernel/trace/trace_output.c: print_fields())."""

    SWITCH = (
        "prev_comm=a b", "prev_pid=0x64 (100)", "prev_prio=0x78 (120)", "prev_state=0x2 (2)",
        "next_comm=b (1)", "next_pid=0x7 (7)", "next_prio=0xffffffff (-1)",
    )  # fmt: skip
    HEAD = "             a b-100     [001] d..2.     5.000002: sched_switch: "

    @pytest.mark.parametrize("backwards", [False, True], ids=["6.5 and later", "6.3 and 6.4"])
    def test_switch(self, backwards: bool) -> None:
        fields = self.SWITCH[::-1] if backwards else self.SWITCH
        r = read(self.HEAD + " ".join(fields) + "\n")
        assert r.rows == read(self.HEAD + KERNEL + "\n").rows
        assert r.rows[0]["state"] == State.DISK
        assert r.comms() == {100: b"a b", 7: b"b (1)"}

    @pytest.mark.parametrize(
        ("event", "text", "want"),
        [
            ("cpu_idle", "state=0xffffffff (-1) cpu_id=0x2 (2)", {"value": 4294967295, "cpu_to": 2}),
            ("sched_waking", "comm=x pid=0x7 (7) prio=0x78 (120) target_cpu=0x3 (3)",
             {"subject": 7, "prio": 120, "cpu_to": 3}),
            ("sched_stat_runtime", "comm=x pid=0x7 (7) runtime=0x1388 (5000)",
             {"subject": 7, "value": 5000}),
            ("sched_migrate_task", "comm=x pid=0x7 (7) prio=0x78 (120) orig_cpu=0x1 (1) dest_cpu=0x2 (2)",
             {"subject": 7, "cpu_from": 1, "cpu_to": 2}),
        ],
    )  # fmt: skip
    def test_others(self, event: str, text: str, want: dict[str, int]) -> None:
        r = read(self.HEAD.replace("sched_switch", event) + text + "\n")
        assert {k: r.rows[0][k] for k in want} == want
        assert not r.reader.issues


#: The same as the event's own format prints it.
KERNEL = (
    "prev_comm=a b prev_pid=100 prev_prio=120 prev_state=D ==> "
    "next_comm=b (1) next_pid=7 next_prio=-1"
)


class TestFlags:
    @pytest.mark.parametrize("flags", [b"d..2", b"d..2.", b"d...2.", b"d...2..", b"d....2.."])
    def test_any_number_of_characters(self, flags: bytes) -> None:
        lines = [
            ftrace_line(Event(e.ts, e.cpu, e.comm, e.pid, e.name, e.f, flags)) for e in EVENTS
        ] * 40
        text = b"\n".join(lines) + b"\n"
        slow = read(text)
        assert len(slow.rows) == len(lines)
        same(slow, read(text, fast=True))


def test_the_kernel_takes_all_usual_lines() -> None:
    """Else the texts are read line by line, twenty times slower, and no other test would tell."""
    from traceana.parsers import text_fast

    for form, line in (("ftrace", ftrace_line), ("perf", perf_line)):
        text = b"\n".join(line(e) for e in EVENTS * 60) + b"\n"
        taken = []
        parse = text_fast.Fast.parse

        def spy(self: text_fast.Fast, start: int, end: int) -> text_fast.Part:
            part = parse(self, start, end)  # noqa: B023
            taken.append((len(part.offs), len(part.doubts)))  # noqa: B023
            return part

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_fast.Fast, "parse", spy)
            read(text, form, fast=True)
        rows, doubts = (sum(x) for x in zip(*taken, strict=True))
        assert rows + doubts == 180
        # The last lines stand too near to the end of the text.
        assert doubts <= 2


def perf_text(*fields: str) -> bytes:
    """The events as ``perf script -F`` prints them with these fields."""
    out = []
    for e in LATER:
        whole = perf_line(e)
        head, _, body = whole.partition(b": ")[2].partition(b": ")
        columns = {
            "comm": b"%16s" % e.comm,
            "tid": b" %5d" % e.pid,
            "cpu": b" [%03d]" % e.cpu,
            "time": b" %5d.%06d: " % (e.ts // 10**9, e.ts % 10**9 // 1000),
            "event": b"%24s: " % head.strip(),
            "trace": body,
        }
        out.append(b"".join(columns[f] for f in columns if f in fields).removeprefix(b" "))
    return b"\n".join(out) + b"\n"


class TestPerfFields:
    @pytest.mark.parametrize(
        "fields",
        ["comm cpu time event trace", "comm time event trace", "cpu time event trace",
         "time event trace"],
    )  # fmt: skip
    def test_without_tid(self, fields: str) -> None:
        text = perf_text(*fields.split())
        assert sniff(text) > 0.9
        r = read(text, "perf")
        full = read(perf_line_text(), "perf")
        kept = [{k: v for k, v in row.items() if k != "pid"} for row in r.rows]
        for row in full.rows:
            del row["pid"]
            if "cpu" not in fields.split():
                del row["cpu"]
        assert kept == full.rows
        # Only a switch tells who ran.
        assert [row.get("pid") for row in r.rows][:3] == [None, 100, None]
        assert r.comms() == full.comms()
        want = {"no_tid_column"} | (set() if "cpu" in fields.split() else {"no_cpu_column"})
        assert r.reader.issues.counts().keys() == want

    @pytest.mark.parametrize(
        "fields",
        ["comm tid cpu time event trace", "tid cpu time event trace", "comm tid time event trace",
         "tid time event trace"],
    )  # fmt: skip
    def test_with_tid(self, fields: str) -> None:
        r = read(perf_text(*fields.split()), "perf")
        full = read(perf_line_text(), "perf")
        assert [row["pid"] for row in r.rows] == [row["pid"] for row in full.rows]
        assert [row["ts"] for row in r.rows] == [row["ts"] for row in full.rows]

    @pytest.mark.parametrize(
        ("fields", "lacks"),
        [
            ("trace", "fields time and event"),
            ("event trace", "field time"),
            ("comm tid cpu event trace", "field time"),
            ("time trace", "field event"),
            ("comm tid cpu time trace", "field event"),
            ("comm tid cpu time event", "field trace"),
            ("cpu time event", "field trace"),
            ("event", "fields time and trace"),
        ],
    )
    def test_what_cannot_serve_is_said(self, fields: str, lacks: str) -> None:
        text = perf_text(*fields.split())
        assert sniff(text) > 0.4
        with pytest.raises(
            FormatError, match=f"perf script text without the {lacks} \\("
        ) as caught:
            open_perf_script(Path("x"), text)
        assert caught.value.hint == "perf script -F comm,tid,cpu,time,event,trace"

    def test_other_texts_lack_nothing(self) -> None:
        for text in (
            b"", b"\n\n", b"The scheduler of Linux chooses a CPU.\n" * 9,
            b"perf 1 [000] 1.000001: 1 cycles:u: 7f00 main+0x1 (x)\n" * 9,
            b"\n".join(ftrace_line(e) for e in EVENTS), perf_line_text(),
        ):  # fmt: skip
            assert missing(text) == []
            assert not is_bare(text)


def perf_line_text() -> bytes:
    return b"\n".join(perf_line(e) for e in LATER) + b"\n"


@pytest.mark.skipif(not shutil.which("perf"), reason="perf is not installed")
@pytest.mark.parametrize("fields", ["time,event,trace", "comm,cpu,time,event,trace", "trace"])
def test_what_perf_prints(samples: Path, tmp_path: Path, fields: str) -> None:
    import lzma

    path = tmp_path / "x.perf.data"
    path.write_bytes(lzma.decompress((samples / "pp6-file.perf.data.xz").read_bytes()))
    done = subprocess.run(
        ["perf", "script", "-i", str(path), "-F", fields],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    if fields == "trace":
        with pytest.raises(FormatError, match="without the fields time and event"):
            open_perf_script(path, done.stdout)
        return
    reader = open_perf_script(path, done.stdout)
    rows = sum(len(chunk.events) for chunk in reader.chunks())
    assert rows == done.stdout.count(b"\n")
    assert "line_not_understood" not in reader.issues.counts()
