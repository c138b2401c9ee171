"""ftrace text in systrace HTML, atrace -z, Chrome JSON, JavaScript lines."""

from __future__ import annotations

import base64
import gzip
import json
import lzma
import random
import zlib
from pathlib import Path

import pytest

from traceana.errors import FormatError, InputError, TruncatedError, UnsupportedError
from traceana.parsers import systrace
from traceana.parsers.reader import Reader
from traceana.parsers.registry import open_reader
from traceana.parsers.systrace import open_systrace, sniff

PUBLIC = Path(__file__).parents[2].parent / "shared" / "captures" / "public"

TEXT = """# tracer: nop
#
          <idle>-0     (-----) [001] d..2   100.000010: sched_waking: comm=a <b> & "c" pid=30 prio=120 target_cpu=000
           <...>-77    (   70) [000] d..3   100.000020: sched_switch: prev_comm=x prev_pid=77 prev_prio=120 prev_state=S ==> next_comm=a <b> & "c" next_pid=30 next_prio=120
           a b c-30    (   30) [000] ...1   100.000021: tracing_mark_write: trace_event_clock_sync: parent_ts=99.5
           a b c-30    (   30) [000] ...1   100.000022: tracing_mark_write: trace_event_clock_sync: realtime_ts=1700000000123
           a b c-30    (   30) [000] d..3   100.000030: sched_switch: prev_comm=a <b> & "c" prev_pid=30 prev_prio=120 prev_state=D|K ==> next_comm=swapper/0 next_pid=0 next_prio=120
"""  # noqa: E501
COUNTS = {"sched_waking": 1, "sched_switch": 2, "tracing_mark_write": 2}
VIEWER = """<!DOCTYPE html>
<html><head><title>Android System Trace</title>
<script>
var all = document.querySelectorAll('.trace-data'); // <script class="trace-data" type="x">
var fake = "  var linuxPerfData = \\"# tracer: nop\\"";
</script></head><body>
"""
BLOCK = '  <script class="trace-data" type="application/text">\n{}  </script>\n'


def opened(data: bytes | str) -> Reader:
    content = data.encode() if isinstance(data, str) else data
    assert sniff(content[:65536]) > 0.5
    return open_systrace(Path("x"), content)


def names(reader: Reader) -> dict[int, bytes | None]:
    return {n.pid: n.comm for c in reader.chunks() for n in c.names if n.comm is not None}


def check(reader: Reader, form: str, *, damaged: bool = False) -> None:
    rows = []
    for chunk in reader.chunks():
        rows += list(zip(chunk.events.ts.tolist(), chunk.events.cpu.tolist(), strict=True))
    assert rows == [(100000010000, 1), (100000020000, 0), (100000030000, 0)]
    assert reader.counts == COUNTS
    assert reader.meta.form == form
    assert reader.damaged is damaged
    assert names(reader)[30] == b'a <b> & "c"'
    assert reader.meta.extra["clock_sync"] == {
        "parent_ts_ns": 99_500_000_000, "realtime_ts_ns": 1700000000123_000_000,
    }  # fmt: skip


def escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@pytest.mark.parametrize("escape", [str, escaped])
def test_new_html_takes_the_block_that_is_ftrace_text(escape: object) -> None:
    assert callable(escape)
    dump = "USER PID PPID\nroot 1 0\n"
    blocks = [BLOCK.format(dump), BLOCK.format(escape(TEXT)), BLOCK.format('{"traceEvents": []}')]
    check(opened(VIEWER + "".join(blocks) + "</body></html>\n"), "systrace HTML")
    # What looks like a trace in the viewer's own code comes first: the last block counts.
    other = BLOCK.format(TEXT.replace("sched_", "other_"))
    check(opened(VIEWER + other + blocks[1] + "</body></html>\n"), "systrace HTML")


def test_old_html_is_a_string_of_javascript() -> None:
    body = TEXT.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n\\\n")
    page = VIEWER + '  <script>\n  var linuxPerfData = "\\\n' + body + '\\n";\n  </script>\n</html>'
    check(opened(page), "systrace HTML")
    # Some have plain lines and no end of the string.
    page = VIEWER + '  <script>\n  var linuxPerfData = "\\\n' + TEXT + "  </script>\n</html>"
    check(opened(page), "systrace HTML")


def test_lines_of_javascript_alone() -> None:
    body = TEXT.replace('"', '\\"').replace("\n", "\\n\\\n")
    check(opened(body), "systrace text")
    check(opened(body.replace("\n", "\r\n")), "systrace text")


@pytest.mark.parametrize("pack", [zlib.compress, gzip.compress])
def test_html_with_compressed_data(pack: object) -> None:
    assert callable(pack)
    packed = base64.encodebytes(pack(TEXT.encode())).decode()
    check(opened(VIEWER + BLOCK.format(packed)), "systrace HTML")
    check(opened(VIEWER + f"<!--\n{packed}-->\n</html>"), "systrace HTML")
    whole = json.dumps({"traceEvents": [], "systemTraceEvents": TEXT}).encode()
    packed = base64.encodebytes(pack(whole)).decode()
    viewer = f'<script id="viewer-data" type="text/plain">\n{packed}</script>\n'
    check(opened(VIEWER + viewer), "systrace HTML")


@pytest.mark.parametrize("level", [1, 6, 9])
def test_atrace_z(level: int) -> None:
    packed = b"TRACE:\n" + zlib.compress(TEXT.encode(), level)
    check(opened(packed), "atrace (compressed)")
    rest = b"some words that adb wrote\n" * 6 + b"end"
    reader = opened(packed + rest)
    check(reader, "atrace (compressed)")
    text = next(t for t in reader.issues.texts() if "no part of the trace" in t)
    assert f"offset {len(packed):#x}: {len(rest)} bytes" in text
    assert reader.issues.counts()["trailing_bytes"] == 1


def test_atrace_z_that_is_cut_or_damaged() -> None:
    rng = random.Random(5)
    lines = "".join(
        f"  a-1  [000] d..2 {100 + i}.{rng.randrange(10**6):06d}: sched_waking: comm=w "
        f"pid={i} prio=120 target_cpu=000\n"
        for i in range(1, 3000)
    )
    packed = b"# TRACE:\r\n" + zlib.compress(lines.encode())
    reader = opened(packed[: len(packed) // 2])
    n = sum(len(c.events) for c in reader.chunks())
    assert 1000 < n < 2000
    assert reader.damaged
    assert f"offset {len(packed) // 2:#x}: the zlib data is cut" in " ".join(reader.issues.texts())
    broken = bytearray(packed)
    broken[len(packed) // 2 :] = rng.randbytes(len(packed) // 2)
    reader = opened(bytes(broken))
    assert sum(len(c.events) for c in reader.chunks()) < 2999
    assert reader.damaged
    with pytest.raises(TruncatedError):
        opened(packed[:15])


def test_the_same_text_uncompressed_opens_as_text(tmp_path: Path) -> None:
    path = tmp_path / "trace.data"
    path.write_bytes(b"TRACE:\n" + TEXT.encode())
    reader = open_reader(path)
    assert sum(len(c.events) for c in reader.chunks()) == 3
    assert reader.meta.form == "tracefs text"


def test_json() -> None:
    check(opened(json.dumps({"systemTraceEvents": TEXT, "traceEvents": []})), "Chrome JSON")
    late = {"traceEvents": [{"args": {"systemTraceEvents": 1}, "name": '"systemTraceEvents": "x"'}]}
    text = json.dumps(late)[:-1].replace('"systemTraceEvents": 1', '"z": 1')
    check(opened(text + ', "systemTraceEvents" : ' + json.dumps(TEXT) + "}"), "Chrome JSON")
    for other in ('{"traceEvents": []}', '[{"ph": "X", "ts": 1}]'):
        with pytest.raises(UnsupportedError, match="without systemTraceEvents"):
            opened(other)
    with pytest.raises(UnsupportedError, match="is not text"):
        opened('{"traceEvents": [], "systemTraceEvents": {"a": 1}}')


def test_json_that_is_cut() -> None:
    whole = json.dumps({"traceEvents": [], "systemTraceEvents": TEXT})
    reader = opened(whole[:-250])
    assert sum(len(c.events) for c in reader.chunks()) == 2
    assert reader.damaged
    raw = whole.encode().replace(b"comm=a", b"comm=\xff\xfe")
    assert b"\xff\xfe" in (names(opened(raw))[30] or b"")


def test_html_that_is_cut_or_empty() -> None:
    reader = opened(VIEWER + BLOCK.format(TEXT)[:-80])
    assert sum(len(c.events) for c in reader.chunks()) == 2
    assert reader.damaged
    with pytest.raises(FormatError, match="an HTML page without ftrace text"):
        opened(VIEWER + BLOCK.format("hello\n") + "</html>")
    assert sniff(b"<!DOCTYPE html>\n<html><body>hello</body></html>") == 0
    assert sniff(b"# tracer: nop\n" + TEXT.encode()) == 0
    assert sniff(b'{"name": 1}') == 0


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systrace, "_IN_MEMORY", 1 << 20)
    monkeypatch.setattr(systrace, "_MAX_RATIO", 100)
    with pytest.raises(FormatError, match="grows to more than"):
        opened(b"TRACE:\n" + zlib.compress(bytes(50 << 20)))


def test_a_large_one_lies_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systrace, "_IN_MEMORY", 100)
    check(opened(b"TRACE:\n" + zlib.compress(TEXT.encode())), "atrace (compressed)")


def test_mutations_never_end_in_a_traceback() -> None:
    rng = random.Random(9)
    base = [
        (VIEWER + BLOCK.format(TEXT)).encode(),
        (VIEWER + '  var linuxPerfData = "\\\n' + TEXT.replace("\n", "\\n\\\n") + '";').encode(),
        b"TRACE:\n" + zlib.compress(TEXT.encode()),
        json.dumps({"systemTraceEvents": TEXT, "traceEvents": []}).encode(),
        (VIEWER + BLOCK.format(base64.encodebytes(zlib.compress(TEXT.encode())).decode())).encode(),
    ]
    done = 0
    for _ in range(400):
        data = bytearray(rng.choice(base))
        for _ in range(rng.choice([1, 2, 6])):
            at = rng.randrange(len(data))
            data[at : at + rng.choice([0, 1, 5])] = rng.choice(
                [rng.randbytes(2), b"\\", b'"', b"<!--", b"</script>", b"\\u12", b"\n"]
            )
        del data[rng.choice([len(data), rng.randrange(len(data))]) :]
        try:
            reader = open_systrace(Path("x"), bytes(data))
            for chunk in reader.chunks():
                chunk.events.to_arrow()
            done += 1
        except InputError as error:
            assert "\n" not in str(error)
    assert done > 150


@pytest.mark.parametrize(
    ("name", "counts", "cpus"),
    [
        ("systrace-js-lines.txt", {"sched_switch": 58, "sched_wakeup": 33}, {0}),
        ("systrace-legacy.html", {"sched_switch": 3, "sched_wakeup": 2, "sched_load_avg_cpu": 5,
                                  "sched_load_avg_task": 3, "sched_contrib_scale_f": 2}, {2, 7}),
        ("systrace-trivial.html", {"0": 4}, set()),
        ("systrace-tracedata.html.xz", {
            "sched_switch": 715, "sched_wakeup": 421, "cpu_idle": 621, "cpu_frequency": 104,
            "sched_blocked_reason": 31, "tracing_mark_write": 160, "clock_set_rate": 88,
            "sugov_set_iowait_boost": 366}, set(range(8))),
        ("atrace-zlib.bin", {"tracing_mark_write": 1042}, set()),
        ("atrace-plain.txt.xz", {"sched_switch": 2582, "sched_wakeup": 1540,
                                 "tracing_mark_write": 332}, {0, 1, 2, 3}),
        ("txt-trace-4flags.txt", {"sched_switch": 72, "sched_wakeup": 44}, {0}),
        ("txt-tgid.txt", {"sched_switch": 72, "sched_wakeup": 44}, {0}),
        ("txt-syscalls-mixed.txt", {
            "sched_switch": 60, "sched_waking": 30, "sched_wakeup": 30, "sched_wakeup_new": 1,
            "sched_migrate_task": 3, "sched_stat_runtime": 40, "sched_process_fork": 1,
            "sched_process_exec": 1, "sched_process_exit": 2, "sched_process_wait": 4,
            "sched_wake_idle_without_ipi": 24}, None),
        ("txt-waking.txt", {"sched_switch": 28, "sched_waking": 12, "sched_wakeup": 12}, {0, 2, 3}),
        ("txt-android-irq.txt", {"sched_switch": 67, "sched_wakeup": 45, "softirq_raise": 9,
                                 "softirq_entry": 9, "softirq_exit": 9}, {0}),
        ("txt-openharmony.txt", {"sched_switch": 16, "sched_waking": 8, "sched_wakeup": 8,
                                 "cpu_idle": 1}, {0, 1, 3}),
    ],
)  # fmt: skip
def test_public_ones(name: str, counts: dict[str, int], cpus: set[int] | None) -> None:
    path = PUBLIC / name
    if not path.exists():
        pytest.skip("the public captures are not there")
    reader = open_reader(path)
    seen = {int(c) for chunk in reader.chunks() for c in chunk.events.cpu}
    assert {k: reader.counts.get(k, 0) for k in counts} == counts
    assert cpus is None or seen == cpus
    assert not reader.damaged
    assert b"<...>" not in names(reader).values()
    if name.endswith(".html.xz"):
        with lzma.open(path) as file:
            assert b"surfaceflinger" in file.read()
        assert b"surfaceflinger" in names(reader).values()
