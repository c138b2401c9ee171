"""--redact: no output holds a name, an id or the host, and labels are the same everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceana as ta
from traceana import schema
from traceana.redact import Redactor

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "sample_traces" / "sch-truth.dat.xz"
Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def secrets() -> list[str]:
    """Names and pids of the sample that no output may show."""
    tasks = ta.open(SAMPLE).tasks().to_pylist()
    kernel = re.compile(r"(swapper|kworker|ksoftirqd|migration|cpuhp|rcu\w*)/")
    names = {t["comm"] for t in tasks if t["comm"] and not kernel.match(t["comm"])}
    # Short numbers stand anywhere.
    pids = {str(t["pid"]) for t in tasks if t["pid"] >= 1000}
    assert len(names) > 10 and len(pids) > 10
    return sorted(names) + sorted(pids)


def found(text: str, secrets: list[str]) -> list[str]:
    return [s for s in secrets if re.search(rf"(?<![\w.-]){re.escape(s)}(?![\w.-])", text)]


@pytest.mark.parametrize(
    "words",
    [
        ("tasks", "--format", "csv"),
        ("wakeups", "--rows", "--format", "json"),
        ("wakeups", "--by", "workload", "--format", "json"),
        ("wakeups", "--by", "pair", "-n", "0"),
        ("export", "--to", "csv", "--table", "names"),
        ("export", "--to", "csv", "--table", "tasks"),
        ("info", "--format", "json"),
        ("report", "--format", "md", "-o", "-"),
        ("report", "--format", "json", "-o", "-"),
    ],
    ids=" ".join,
)
def test_no_output_shows_them(cli: Cli, secrets: list[str], words: tuple[str, ...]) -> None:
    verb, *rest = words
    whole = cli(verb, SAMPLE, *rest, "--time", "10%-40%")
    hidden = cli(verb, SAMPLE, *rest, "--time", "10%-40%", "--redact")
    assert (whole.status, hidden.status) == (0, 0), hidden.err
    pids = [s for s in secrets if not s.isdigit() or verb in ("tasks",)]
    if verb != "info":
        assert found(whole.out, pids), "the test would not see a leak"
    assert not found(hidden.out, pids)


@pytest.mark.parametrize("form", ["ftrace", "perfetto"])
def test_no_export_shows_them(shell: Cli, secrets: list[str], tmp_path: Path, form: str) -> None:
    path = tmp_path / "out"
    ran = shell("export", SAMPLE, "--redact", "--to", form, "-o", path)
    assert ran.status == 0, ran.err
    data = path.read_bytes().decode("latin-1")
    names = [s for s in secrets if not s.isdigit() and len(s) > 3]
    assert not [n for n in names if n in data]
    before = ta.open(SAMPLE)
    after = ta.open(path)
    told = {t["pid"] for t in before.tasks().to_pylist() if t["pid"] > 1000}
    assert not told & {t["pid"] for t in after.tasks().to_pylist()}
    # All else is as it was.
    assert after.counts == {n: k for n, k in before.counts.items() if n in schema.EVENT_NAMES}


def test_figures_do_not_change() -> None:
    plain, hidden = ta.open(SAMPLE), ta.open(SAMPLE, redact=True)
    a, b = plain.timeline().wakeups, hidden.timeline().wakeups
    for name in a.schema.names:
        assert a[name].equals(b[name]), name


def test_labels_are_the_same_in_every_verb(cli: Cli) -> None:
    tasks = cli("tasks", SAMPLE, "--redact", "--format", "json").json["tasks"]
    report = json.loads(cli("report", SAMPLE, "--redact", "--format", "json", "-o", "-").out)
    labels = {t["comm"] for t in tasks[:5]}
    assert labels <= set(re.findall(r"[a-z]+-\d+", json.dumps(report)))
    again = cli("tasks", SAMPLE, "--redact", "--format", "json").json["tasks"]
    assert again == tasks


def test_workloads_are_picked_by_true_names() -> None:
    cap = ta.open(SAMPLE, redact=True, workload=[("messages", "sch-m*")])
    plain = ta.open(SAMPLE, workload=[("messages", "sch-m*")])

    def sizes(c: ta.Capture) -> list[str | None]:
        return c.timeline().tasks["group"].to_pylist()

    assert sizes(cap) == sizes(plain)
    assert "messages" in sizes(cap)


class TestRedactor:
    @pytest.mark.parametrize(
        ("comm", "label"),
        [
            (b"kworker/3:1H-kblockd", b"kworker/3:1H"),
            (b"kworker/u8:2-flush-acme", b"kworker/u8:2"),
            (b"irq/30-acme", b"irq/30"),
            (b"migration/12", b"migration/12"),
            (b"kworker/acme", b"a-1"),
            (b"migration/3x", b"a-1"),
            (b"", b""),
            (b"\xff\x1b", b"a-1"),
        ],
    )
    def test_kernel_threads_keep_what_is_the_kernels(self, comm: bytes, label: bytes) -> None:
        assert Redactor().comm(comm) == label

    def test_many_families_have_many_labels(self) -> None:
        r = Redactor()
        names = [f"x{chr(97 + i % 26)}{chr(97 + i // 26)}q" for i in range(600)]
        assert len({r.comm(n.encode()) for n in names}) == 600

    def test_ids_in_the_order_in_which_they_are_met(self) -> None:
        r = Redactor()
        out = r.pids(np.array([900, 0, -1, 5, 900, 70], np.int32))
        assert out.tolist() == [1, 0, -1, 2, 1, 3]
        assert out.dtype == np.int32

    def test_sentences(self) -> None:
        r = Redactor()
        r.comm(b"payroll-3")
        assert r.text("payroll-3 ran before payroll-31") == "a-1 ran before payroll-31"
