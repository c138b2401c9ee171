# ruff: noqa: E501  (lines of output stand as they are printed)
"""``info``: which questions a capture can answer, and the quick look against the whole reading."""

from __future__ import annotations

import contextlib
import json
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traceana import questions, record
from traceana.parsers.glimpse import glimpse

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
SAMPLES = ROOT / "sample_traces"
sys.path.insert(0, str(TESTS / "parsers"))
import perf_data_writer as pw  # noqa: E402
import trace_dat_writer as w  # noqa: E402

Cli = Callable[..., Any]
ALL = [e.name for e in record.EVENTS]


def info(cli: Cli, path: Path, *more: str) -> Any:
    return cli("info", path, "--format", "json", *more).json


# --- questions -------------------------------------------------------------------------------


def told(events: list[str], **more: Any) -> dict[str, str]:
    facts = {"topology": True, "start_state": True, **more}
    return {a.question.name: a.answer for a in questions.answers(events, **facts)}


def test_everything_recorded_answers_everything() -> None:
    assert set(told(ALL).values()) == {"yes"}
    for answer in questions.answers(ALL, topology=True, start_state=True):
        assert answer.lacking == () and answer.command is None


@pytest.mark.parametrize(
    ("without", "expected"),
    [
        (["sched_switch"], "no no no no no"),
        (["sched_waking"], "partly yes no no no"),
        (["sched_wakeup"], "partly partly partly partly partly"),
        (["sched_waking", "sched_wakeup"], "partly partly no no no"),
        (["sched_stat_runtime"], "yes yes yes yes yes"),
        (["sched_migrate_task", "cpu_idle"], "yes yes yes yes yes"),
    ],
)
def test_what_an_event_is_needed_for(without: list[str], expected: str) -> None:
    assert " ".join(told([n for n in ALL if n not in without]).values()) == expected


def test_topology_clock_and_parts_of_the_tasks() -> None:
    assert " ".join(told(ALL, topology=False).values()) == "yes partly partly partly partly"
    assert set(told(ALL, has_time=False).values()) == {"no"}
    assert " ".join(told(ALL, whole=False).values()) == "yes no no no no"
    (answer,) = [a for a in questions.answers(ALL, topology=False, start_state=True)
                 if a.question.name == "idle"]  # fmt: skip
    assert answer.command == "traceana record --beside CAPTURE"


def test_what_is_needed_can_be_recorded() -> None:
    """Every tracepoint that is asked for is one that `record` records for these words."""
    served = {q: {e.name for e in record.EVENTS if q in e.questions} for q in record.QUESTIONS}
    for question in questions.QUESTIONS:
        words = question.record.split(",")
        assert set(words) <= set(record.QUESTIONS)
        there = set().union(*(served[word] for word in words))
        needs = {n.what for n in question.needs} - {"topology", "start_state"}
        assert needs <= there, question.name


def test_needed_words_say_what_the_verbs_refuse(cli: Cli) -> None:
    """A question that is answered with no is one whose verb ends with 5, and the other way round."""
    path = SAMPLES / "pp3-plain.dat.xz"
    for ignored in ("sched_switch", "sched_waking", "sched_wakeup", "sched_stat_runtime"):
        found = {
            q["question"]: q["answer"] for q in info(cli, path, "--ignore", ignored)["questions"]
        }
        assert (cli("tasks", path, "--ignore", ignored).status == 5) == (found["tasks"] == "no")
        assert (cli("idle", path, "--ignore", ignored).status == 5) == (found["idle"] == "no")
        assert (cli("whatif", path, "--ignore", ignored).status == 5) == (found["rules"] == "no")


def test_questions_in_the_table(cli: Cli) -> None:
    out = cli("info", SAMPLES / "switch-only.dat.xz").out
    assert "answers  partly  what each task did" in out
    assert "no      whether several wakeups chose the same idle CPU (without sched_waking)" in out
    assert "for more record as `traceana record` says" in out


# --- quick -----------------------------------------------------------------------------------

PLAIN = ["pp6-base.dat", "mix-wrapped.dat", "hostile.dat"]


def check_quick(cli: Cli, path: Path, *, near: float = 0.1) -> Any:
    """The quick look tells what the whole reading tells; estimates lie near."""
    whole, quick = info(cli, path), info(cli, path, "--quick")
    assert quick["quick"] is True and whole["quick"] is False
    assert set(whole) <= set(quick)
    for key in ("form", "tool", "kernel", "machine", "clock", "clock_unit"):
        assert quick[key] == whole[key], key
    if "span_ns" not in quick["estimated"]:
        assert quick["span_ns"] == whole["span_ns"]
    if "events" in quick["unknown"]:
        return quick
    if "events" not in quick["estimated"]:
        assert quick["events"] == whole["events"]
    total = sum(whole["events"].values())
    for name, n in whole["events"].items():
        assert abs(quick["events"].get(name, 0) - n) <= near * total, name
    assert set(quick["events"]) <= set(whole["events"])
    return quick


@pytest.mark.parametrize("name", PLAIN)
def test_quick_on_trace_dat(cli: Cli, name: str) -> None:
    quick = check_quick(cli, SAMPLES / name)
    recorded = {c: r["recorded"] for c, r in quick["counters"]["per_cpu"].items()}
    whole = info(cli, SAMPLES / name)["counters"]["per_cpu"]
    assert recorded == {c: r["recorded"] for c, r in whole.items()}
    assert quick["lost"]["marks"] is None and "lost.marks" in quick["unknown"]


def test_quick_estimates_from_a_sample(cli: Cli) -> None:
    quick = check_quick(cli, SAMPLES / "pp6-base.dat", near=0.01)
    assert quick["estimated"] == ["events"]
    assert 0 < quick["sampled_bytes"] < 0.2 * quick["total_bytes"]
    out = cli("info", SAMPLES / "pp6-base.dat", "--quick").out
    assert "events   about 416," in out
    assert "what is not in the sample is not seen" in out


def test_quick_on_perf_data(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.perf.data"
    path.write_bytes(lzma.decompress((SAMPLES / "pp6-file.perf.data.xz").read_bytes()))
    quick = check_quick(cli, path, near=0.05)
    assert quick["cores"] == 4 and quick["topology_origin"] == "header"


def test_quick_finds_records_in_the_middle_of_a_perf_data(cli: Cli, tmp_path: Path) -> None:
    """The sample file, its records many times over: more than is looked at."""
    content = lzma.decompress((SAMPLES / "pp6-file.perf.data.xz").read_bytes())
    at, size = (int.from_bytes(content[40 + 8 * i : 48 + 8 * i], "little") for i in (0, 1))
    times = 6
    head = bytearray(content[:at])
    head[48:56] = (size * times).to_bytes(8, "little")
    # What lies behind the data moves; the table of features tells where to.
    tail = bytearray(content[at + size :])
    bits = bin(int.from_bytes(content[72:104], "little")).count("1")
    for i in range(bits):
        place = int.from_bytes(tail[16 * i : 16 * i + 8], "little") + size * (times - 1)
        tail[16 * i : 16 * i + 8] = place.to_bytes(8, "little")
    path = tmp_path / "long.perf.data"
    path.write_bytes(bytes(head) + content[at : at + size] * times + bytes(tail))
    found = glimpse(path)
    assert found is not None
    assert found.sampled_bytes < 0.5 * found.total_bytes
    assert found.estimated >= {"events"}
    known = json.loads((SAMPLES / "COUNTS.json").read_text())["pp6-file.perf.data.xz"]["events"]
    total = times * sum(known.values())
    for name, n in known.items():
        assert abs(found.counts.get(name, 0) - times * n) < 0.05 * total, name


def test_quick_on_a_store_is_exact(cli: Cli, tmp_path: Path) -> None:
    store = tmp_path / "x.traceana"
    assert cli("convert", SAMPLES / "pp3-plain.dat.xz", "-o", store).status == 0
    quick = check_quick(cli, store)
    assert quick["estimated"] == [] and quick["lost"] == info(cli, store)["lost"]
    assert "from what the store tells of itself" in cli("info", store, "--quick").out


@pytest.mark.parametrize("name", ["pp3-plain.dat.xz", "pp3-plain.report.txt.xz"])
def test_quick_reads_the_rest_as_a_whole_and_says_so(cli: Cli, name: str) -> None:
    ran = cli("info", SAMPLES / name, "--quick", "--format", "json")
    assert "this form has no index: --quick reads it as a whole" in ran.err
    assert ran.json == info(cli, SAMPLES / name)


def test_quick_selects_nothing(cli: Cli) -> None:
    for more in (("--time", "10%-20%"), ("--read-mode", "strict")):
        ran = cli("info", SAMPLES / "pp6-base.dat", "--quick", *more)
        assert ran.status == 2 and "reads no events" in ran.err


def test_quick_spares_pipes_and_the_capture(cli: Cli, tmp_path: Path) -> None:
    ran = subprocess.run(
        ["/bin/bash", "-c", f"{sys.executable} -m traceana info --quick --format json <(cat {SAMPLES / 'hostile.dat'})"],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == 0 and json.loads(ran.stdout)["events"]["sched_switch"] == 44
    copy = tmp_path / "mine.dat"
    copy.write_bytes((SAMPLES / "hostile.dat").read_bytes())
    ran = cli("info", copy, "--quick", "-o", copy, "--force")
    assert ran.status == 2 and "is the capture itself" in ran.err
    assert copy.read_bytes() == (SAMPLES / "hostile.dat").read_bytes()
    assert cli("info", tmp_path / "nothing", "--quick").status == 3


def test_quick_on_a_file_that_is_cut_ends_with_4(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.dat"
    path.write_bytes(two_buffers("v6")[:-4096])
    ran = cli("info", path, "--quick")
    assert ran.status == 4 and "cut or damaged" in ran.err


def two_buffers(way: str) -> bytes:
    kernel = w.Kernel()

    def to(prev: int, nxt: int) -> bytes:
        return kernel.pack(
            "sched_switch", prev, prev_comm=b"t%d" % prev, prev_pid=prev, prev_prio=120,
            prev_state=1 if prev else 0, next_comm=b"t%d" % nxt, next_pid=nxt, next_prio=120,
        )  # fmt: skip

    other = w.Page(kernel, 500).event((5).to_bytes(2, "little") + bytes(14), 1)
    pages = [w.Page(kernel, 1000 * i).event(to(0, 5), 3).event(to(5, 0), 100) for i in range(1, 5)]
    cap = w.Capture(kernel, {0: other.bytes()}, cpu_count=1)
    cap.instances = {"inst": {0: b"".join(p.bytes() for p in pages)}}
    return w.v6(cap) if way == "v6" else w.v7(cap, compression=way)


@pytest.mark.parametrize("way", ["v6", "none", "zstd", "zlib"])
def test_quick_takes_the_buffer_that_reading_takes(cli: Cli, tmp_path: Path, way: str) -> None:
    path = tmp_path / "x.dat"
    path.write_bytes(two_buffers(way))
    quick = check_quick(cli, path)
    assert quick["events"]["sched_switch"] == 8 and quick["span_ns"] == 3100
    assert cli("info", path, "--quick", "--buffer", "nobody").status == 2


def test_quick_on_damaged_files(tmp_path: Path) -> None:
    """Cuts and flips at many places: an answer or a refusal, never a traceback."""
    from traceana.errors import TraceanaError

    perf = pw.of(pw.SWITCH, ids=(11, 12))
    values = (b"t1", 1, 120, 1, b"t2", 2, 120)
    records = [pw.sample(perf, 10 + i, 0, pw.SWITCH.payload(1, values)) for i in range(40)]
    contents = [two_buffers("v6"), two_buffers("zstd"), pw.write([perf], records).data]
    path = tmp_path / "x"
    answered = 0
    for content in contents:
        for step in range(0, len(content), max(1, len(content) // 120)):
            flipped = bytearray(content)
            flipped[step] ^= 0xFF
            for variant in (content[:step], bytes(flipped)):
                path.write_bytes(variant)
                with contextlib.suppress(TraceanaError):
                    answered += glimpse(path) is not None
    assert answered > 100


def test_quick_needs_no_compiler(tmp_path: Path) -> None:
    """Importing numba alone costs more than the look (uncompressed trace.dat, perf.data)."""
    dat, perf = tmp_path / "x.dat", tmp_path / "x.perf.data"
    dat.write_bytes(two_buffers("v6"))
    perf.write_bytes(lzma.decompress((SAMPLES / "pp6-file.perf.data.xz").read_bytes()))
    for path in (dat, perf):
        code = (
            "import sys; from traceana.cli import main;"
            f"assert main(['info', '--quick', {str(path)!r}]) == 0;"
            "assert 'numba' not in sys.modules and 'pandas' not in sys.modules"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
        assert ran.returncode == 0, ran.stderr
