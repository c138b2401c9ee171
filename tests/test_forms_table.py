# ruff: noqa: E501  (lines of traces stand as they are printed)
"""The table of forms in the README is that of the registry, and each row has its test.

python tests/test_forms_table.py      # puts the registry of today into the README
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import traceana as ta
from traceana.parsers.registry import FORMS, Form
from traceana.schema import EventKind

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- forms: [^\n]* -->\n)(.*?)(<!-- /forms -->\n)", re.DOTALL)

sys.path.insert(0, str(ROOT / "tests/parsers"))
import perf_data_writer as perf  # noqa: E402
import perfetto_writer as perfetto  # noqa: E402
import trace_dat_writer as dat  # noqa: E402

#: What is read besides the forms of the registry: reads, written by, tested by, a word of the test.
STORE = (".traceana store", "`traceana convert`", "tests/test_cli.py", "TestConvert")

#: One row each: what stands in the table, its test file, what the file has to do with the form.
ROWS = [
    *((f.reads, f.written_by, f.tested_by, f.module.rpartition(".")[2]) for f in FORMS),
    STORE,
]


def table() -> str:
    lines = ["| form | written by |", "|---|---|"]
    lines += [f"| {reads} | {by} |" for reads, by, _, _ in ROWS]
    return "\n".join(lines) + "\n"


def test_the_readme_shows_the_registry() -> None:
    [(_, shown, _)] = BLOCK.findall(README.read_text())
    assert shown == table(), "run: python tests/test_forms_table.py"


def test_rows_are_whole_and_differ() -> None:
    assert all(cell.strip() == cell and cell for row in ROWS for cell in row)
    assert not any("|" in cell or "\n" in cell for row in ROWS for cell in row[:2])
    assert len({row[0] for row in ROWS}) == len(ROWS) == len(FORMS) + 1


@pytest.mark.parametrize(("test", "word"), [row[2:] for row in ROWS], ids=[r[0] for r in ROWS])
def test_each_row_has_its_test(test: str, word: str) -> None:
    nodes = list(ast.walk(ast.parse((ROOT / test).read_text())))
    assert any(isinstance(n, ast.FunctionDef) and n.name.startswith("test_") for n in nodes)
    # Used or imported, not only written in a comment.
    used = {n.id for n in nodes if isinstance(n, ast.Name)}
    used |= {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    used |= {n.name for n in nodes if isinstance(n, ast.ClassDef)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            used |= {*(node.module or "").split("."), *(alias.name for alias in node.names)}
    assert any(word in name for name in used), f"{test} does not mention {word}"


# --- the same two switches in each form -----------------------------------------------------


def lines(head: str) -> str:
    """Two events of CPU 0, each behind the head that the form prints."""
    body = "sched_switch: prev_comm={} prev_pid={} prev_prio=120 prev_state={} ==> next_comm={} next_pid={} next_prio=120\n"
    return "".join(
        head.format(who=who, pid=pid, us=us) + body.format(who, pid, state, nxt, to)
        for who, pid, us, state, nxt, to in (
            ("swapper/0", 0, 101, "R", "t7", 7),
            ("t7", 7, 102, "S", "swapper/0", 0),
        )
    )


TRACEFS = "# tracer: nop\n#\n" + lines("{who:>16}-{pid:<7} [000] d..2. 1.000{us}: ")


def page(kernel: dat.Kernel) -> bytes:
    out = dat.Page(kernel, 1_000_101_000)
    for delta, (prev, state, nxt) in ((0, (0, 0, 7)), (1000, (7, 1, 0))):
        out.event(
            kernel.pack("sched_switch", prev, prev_comm=b"t%d" % prev, prev_pid=prev, prev_prio=120,
                        prev_state=state, next_comm=b"t%d" % nxt, next_pid=nxt, next_prio=120),
            delta,
        )  # fmt: skip
    return out.bytes()


def formats(kernel: dat.Kernel, name: str) -> dict[str, bytes]:
    events = {name.format(x.system, x.name): x.text() for x in kernel.layouts.values()}
    return events | {name.partition("/")[0] + "/header_page": dat.header_page(kernel, 4096)}


def perf_samples(attr: perf.Attr) -> list[bytes]:
    rows = ((101, 0, 0, 7), (102, 7, 1, 0))
    return [
        perf.sample(
            attr, 1_000_000_000 + us * 1000, 0,
            perf.SWITCH.payload(prev, (b"t%d" % prev, prev, 120, state, b"t%d" % nxt, nxt, 120)),
            pid=prev, tid=prev,
        )
        for us, prev, state, nxt in rows
    ]  # fmt: skip


Files = dict[str, bytes]


def _trace_dat() -> Files:
    kernel = dat.Kernel()
    return {"": dat.v6(dat.Capture(kernel, {0: page(kernel)}))}


def _perf_data() -> Files:
    attr = perf.of(perf.SWITCH, ids=(1,))
    return {"": perf.write([attr], perf_samples(attr)).data}


def _perf_folder() -> Files:
    attr = perf.of(perf.SWITCH, ids=(1,))
    features = {1: perf.tracing_data(), 12: perf.event_desc([attr]), 24: struct.pack("<Q", 1)}
    return {
        "data": perf.write([attr], [perf.id_index([(1, 0)])], features).data,
        "data.0": b"".join(perf_samples(attr)),
    }


def _perfetto() -> Files:
    a, b = ("swapper/0", 0, 120), ("t7", 7, 120)
    events = (perfetto.switch(1_000_101_000, a, 0, b), perfetto.switch(1_000_102_000, b, 1, a))
    return {"": perfetto.packet(1, perfetto.bundle(0, *events))}


def _schedviz() -> Files:
    kernel = dat.Kernel()
    return {
        "metadata.textproto": b"trace_type: FTRACE\n",
        "traces/cpu0": page(kernel),
        **formats(kernel, "formats/{}/{}/format"),
    }


def _raw_pages() -> Files:
    kernel = dat.Kernel()
    return {
        "per_cpu/cpu0/trace_pipe_raw": page(kernel),
        **formats(kernel, "events/{}/{}/format"),
    }


def _console() -> Files:
    rule = "-" * 33
    dump = lines("{who:>8.8}-{pid:<7} 0d..2. 1000{us}us : ")
    text = "".join(f"[ 9.{i:06d}] {x}\n" for i, x in enumerate(
        ["Dumping ftrace buffer:", rule, *dump.splitlines(), rule]))  # fmt: skip
    return {"": text.encode()}


def _text(text: str) -> Callable[[], Files]:
    return lambda: {"": text.encode()}


SMALL: dict[str, Callable[[], Files]] = {
    "trace_dat": _trace_dat,
    "perf_data": _perf_data,
    "perf_folder": _perf_folder,
    "ftrace_text": _text(TRACEFS),
    "trace_cmd_text": _text("cpus=1\n" + lines("{who:>16}-{pid:<5} [000]     1.000{us}: ")),
    "perf_script": _text(lines("{who:>16} {pid:5} [000]     1.000{us}: sched:")),
    "perfetto": _perfetto,
    "systrace": _text(json.dumps({"traceEvents": [], "systemTraceEvents": TRACEFS})),
    "schedviz": _schedviz,
    "raw_pages": _raw_pages,
    "console_dump": _console,
}


@pytest.mark.parametrize("form", FORMS, ids=[f.name for f in FORMS])
def test_each_form_opens_and_is_taken_for_itself(
    form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "capture"
    for name, data in SMALL[form.module.rpartition(".")[2]]().items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    asked = []
    module = importlib.import_module(form.module)
    opener = f"open_{form.opener}_folder" if form.many else form.opener
    real = getattr(module, opener)
    monkeypatch.setattr(module, opener, lambda *a, **k: (asked.append(form.name), real(*a, **k))[1])
    cap = ta.open(path)
    assert asked == [form.name]
    events = [e for e in cap.events().to_pylist() if e["kind"] == EventKind.SWITCH]
    assert [(e["ts"], e["cpu"], e["subject"], e["other"]) for e in events] == [
        (1_000_101_000, 0, 0, 7), (1_000_102_000, 0, 7, 0),
    ]  # fmt: skip
    assert not cap.damaged


def _write() -> None:
    README.write_text(BLOCK.sub(lambda m: m[1] + table() + m[3], README.read_text()))


if __name__ == "__main__":
    _write()
