# ruff: noqa: E501  (lines of traces stand as they are printed)
"""Text captures in their variants: tracefs, trace-cmd report, perf script, systrace, console."""

from __future__ import annotations

import base64
import json
import lzma
import random
import re
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import text_writer as text
from text_writer import Event

from fuzz.history import HOSTILE, PLAIN, history
from fuzz.mutate import Spice, damage_text
from fuzz.target import Files, single

__all__ = ["inside_systrace", "spice", "wholes"]

_SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"


def _sample(name: str, lines: int, start: int = 0) -> bytes:
    """The first lines of a real one, or its head and lines of its middle."""
    found = lzma.decompress((_SAMPLES / name).read_bytes()).split(b"\n")
    head = [line for line in found[:12] if line.startswith((b"#", b"cpus="))]
    return b"\n".join([*head, *found[max(start, len(head)) :][:lines]]) + b"\n"


def _lines(events: Sequence[Event], line: Callable[[Event], bytes], head: bytes = b"") -> bytes:
    return head + b"".join(line(e) + b"\n" for e in events)


_TRACER = b"# tracer: nop\n#\n# entries-in-buffer/entries-written: 40/90   #P:3\n#\n"
_LATENCY = (
    b"# tracer: nop\n#\n# nop latency trace v1.1.5 on 6.1.0\n"
    b"# latency: 0 us, #40/90, CPU#1 | (M:server VP:0, KP:0, SP:0 HP:0 #P:3)\n"
)


def _latency_line(e: Event, verbose: bool = False) -> bytes:
    if verbose:
        return b"%16s %7d %d %d %08x %08x [%08x] %d.%03dms (+0.001ms): %s: %s" % (
            e.comm, e.pid, e.cpu, 0, 1, 2, 3, e.ts // 10**6, e.ts // 1000 % 1000, e.name.encode(), text.kernel_body(e),
        )  # fmt: skip
    return b"%8.8s-%-7d %3d%s %4dus : %s: %s" % (
        e.comm, e.pid, e.cpu, e.flags, e.ts // 1000, e.name.encode(), text.kernel_body(e),
    )  # fmt: skip


def _tracefs() -> list[bytes]:
    plain, hostile = history(1, 25), history(2, 25, HOSTILE)
    lost = b"CPU:1 [LOST 25 EVENTS]\n"
    return [
        _lines(history(3, 5), text.ftrace_line),
        _lines(plain, text.ftrace_line, _TRACER),
        _lines(hostile, text.ftrace_line, _TRACER + lost),
        _lines(plain, lambda e: text.ftrace_line(e, tgid=e.pid), _TRACER),
        _lines(plain, lambda e: text.ftrace_line(e, flags=False), _TRACER.replace(b"90", b"40")),
        _lines(plain, _latency_line, _LATENCY) + b"##### CPU 2 buffer started ####\n",
        _lines(plain, lambda e: _latency_line(e, True), _LATENCY),
        _sample("hostile.trace.txt.xz", 60),
        _sample("pp3-plain.trace.txt.xz", 40, 2000),
    ]


def _report() -> list[bytes]:
    plain, hostile = history(1, 25), history(2, 25, HOSTILE)
    head = b"version = 7\ncpus=3\n"
    return [
        _lines(history(3, 5), text.report_line, b"cpus=3\n"),
        _lines(plain, text.report_line, b"CPU 1 is empty\n" + head),
        _lines(hostile, lambda e: text.report_line(e, body="raw", digits=6), head),
        _lines(
            hostile,
            lambda e: text.report_line(e, body="kernel", digits=6),
            head + b"CPU:2 [7 EVENTS DROPPED]\n",
        ),
        _lines(
            plain, lambda e: text.report_line(e, buffer=b"one:  " if e.cpu else b"top:  "), head
        ),
        _lines(plain, lambda e: text.report_line(e) + b" Latency: 12.345 usecs", head),
        _sample("pp3-plain.report-R.txt.xz", 40, 1000),
        _sample("pp3-plain.report-t.txt.xz", 40, 5000),
        _sample("pp3-plain.report.txt.xz", 40, 7000),
    ]


def _perf() -> list[bytes]:
    plain, hostile = history(1, 25), history(2, 25, HOSTILE)
    head = b"# ========\n# captured on    : Thu Jan  1 00:00:00 1970\n# hostname : h\n# os release : 6.1.0\n# nrcpus online : 3\n# ========\n#\n"
    chain = (
        b"\n\tffffffff81000000 schedule+0x1 ([kernel.kallsyms])\n\t            7f00 main (/bin/x)\n"
    )
    return [
        _lines(history(3, 5), text.perf_line),
        _lines(plain, text.perf_line, head),
        _lines(hostile, lambda e: text.perf_line(e, digits=9)),
        _lines(plain, lambda e: text.perf_line(e) + chain),
        _lines(
            plain,
            lambda e: text.perf_line(e) + b"\n           x 7 [001] 5.0: PERF_RECORD_LOST lost 25",
        ),
        _sample("pp6-file.script.txt.xz", 40, 9000),
    ]


_VIEWER = b"<!DOCTYPE html>\n<html><head><title>Android System Trace</title>\n</head><body>\n"
_BLOCK = b'  <script class="trace-data" type="application/text">\n%s  </script>\n'


def _trace(seed: int, names: Sequence[bytes] = PLAIN, count: int = 20) -> bytes:
    sync = b"           e-104 ( 104) [000] ...1     5.000001: tracing_mark_write: trace_event_clock_sync: parent_ts=99.5\n"
    return (
        _lines(history(seed, count, names), lambda e: text.ftrace_line(e, tgid=e.pid), _TRACER)
        + sync
    )


def _js(body: bytes) -> bytes:
    return body.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n\\\n")


def _systrace_of(trace: bytes, way: int) -> bytes:
    """The trace in one of the ways in which these tools hand it on."""
    if way == 0:
        return _js(trace)
    if way == 1:
        return _VIEWER + _BLOCK % trace + b"</body></html>\n"
    if way == 2:
        return (
            _VIEWER
            + b'  <script>\n  var linuxPerfData = "\\\n'
            + _js(trace)
            + b'\\n";\n  </script>\n</html>'
        )
    if way == 3:
        return b"TRACE:\n" + zlib.compress(trace)
    if way == 4:
        document = {"traceEvents": [], "systemTraceEvents": trace.decode("latin-1")}
        return json.dumps(document).encode()
    if way == 5:
        return _VIEWER + _BLOCK % base64.encodebytes(zlib.compress(trace)) + b"</body></html>\n"
    return _VIEWER + b"<!--\n" + base64.encodebytes(zlib.compress(trace)) + b"-->\n</html>"


def _systrace() -> list[bytes]:
    return [
        _systrace_of(_trace(3, count=5), 0),
        *(_systrace_of(_trace(way), way) for way in range(7)),
    ]


def inside_systrace(rng: random.Random) -> Files:
    """The trace is damaged before it is packed or put into a page."""
    trace = damage_text(
        _trace(rng.randrange(4), rng.choice((PLAIN, HOSTILE))), rng, spice("tracefs text")
    )
    return single(_systrace_of(trace, rng.randrange(7)))


_RULE = b"---------------------------------\n"


def _console(seed: int, names: Sequence[bytes], prefix: bytes, count: int = 25) -> bytes:
    lines = _lines(history(seed, count, names), lambda e: b"%8.8s-%-7d %3d%s %dus : %s: %s" % (
        e.comm, e.pid, e.cpu, e.flags, e.ts // 1000, e.name.encode(), text.kernel_body(e)))  # fmt: skip
    dump = b"Dumping ftrace buffer:\n" + _RULE + b"CPU:1 [LOST 16689746 EVENTS]\n" + lines + _RULE
    return b"".join(
        prefix + line + b"\n" for line in (b"rcu: x\n" + dump + b"Kernel panic\n").splitlines()
    )


def _consoles() -> list[bytes]:
    return [
        _console(3, PLAIN, b"", 5),
        _console(1, PLAIN, b"[10611.834143] "),
        _console(2, HOSTILE, b"<4>[   12.834143][    C1] "),
        _console(4, PLAIN, b"Nov 30 20:11:43 host-a kernel: "),
    ]


_MAKERS: dict[str, Callable[[], list[bytes]]] = {
    "tracefs text": _tracefs,
    "trace-cmd report text": _report,
    "perf script text": _perf,
    "systrace, atrace": _systrace,
    "console dump": _consoles,
}


@cache
def wholes(form: str) -> tuple[Files, ...]:
    return tuple(single(data) for data in _MAKERS[form]())


_WORDS: dict[str, tuple[bytes, ...]] = {
    "tracefs text": (
        b"# tracer: function_graph", b"CPU:1 [LOST 9999999999999 EVENTS]", b"##### CPU 3 buffer started ####",
        b"# entries-in-buffer/entries-written: 1/99999999999999999999   #P:99999", b" => schedule", b" <stack trace>",
        b"#                                _-----=> irqs-off/BH-disabled", b"sched_switch:", b" ==> ", b"prev_state=R+|D",
    ),
    "trace-cmd report text": (
        b"version = 6", b"cpus=4294967296", b"CPU 0 is empty", b"CPU:99 [EVENTS DROPPED]", b"top: ", b"[FAILED TO PARSE]",
        b"sched_switch:         a:1 [120] R ==> b:2 [120]", b" (+1)", b"Latency: 1 usecs", b"success=1 CPU:000",
    ),
    "perf script text": (
        b"PERF_RECORD_LOST lost 18446744073709551615", b"# os release : 6.1.0", b"# nrcpus avail : 4294967296", b"sched:sched_switch:",
        b"# event : name = sched:sched_switch, , id = { 1 }", b"[ perf record: Woken up 1 times ]", b"\tffff00 x+0x1 (y)", b"1/2",
    ),
    "systrace, atrace": (
        b"</script>", b"<!--", b"-->", b'<script class="trace-data" type="application/text">', b"\\u12", b"\\", b'"', b"TRACE:\n\x78\x9c",
        b'"systemTraceEvents": ', b"&lt;&#0;&#xffffffff;&amp;", b'var linuxPerfData = "\\', b"\x1f\x8b\x08", b"[" * 2000,
    ),
    "console dump": (
        b"Dumping ftrace buffer:", _RULE.strip(), b"(ftrace buffer empty)", b"** 9999999 printk messages dropped **", b"<4>[    1.000000] ",
        b"CPU:1 [LOST 1 EVENTS]", b"[ 1.0][ T99]", b"host kernel: ", b"1 99999999999999999999us : sched_switch: ",
    ),
}  # fmt: skip


@cache
def spice(form: str) -> Spice:
    others = [files[""] for other in _MAKERS for files in wholes(other)]
    names = (*PLAIN, *HOSTILE, b"swapper/1", b"<idle>", b"sched_switch", b"pp-a-2")
    keys = tuple(re.findall(rb"[a-z_]+=", others[0]))[:12]
    return Spice((*_WORDS[form], *keys), names, others)
