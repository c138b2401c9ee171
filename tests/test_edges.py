"""Where a command could lose a file, show a number that is none, or say nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import traceana as ta
from traceana import reports
from traceana.errors import MissingEventsError, UsageError

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"
PP3 = SAMPLES / "pp3-plain.dat.xz"
SHARED = ROOT.parent / "shared" / "captures"


def run(*args: str | Path, closed: bool = False) -> subprocess.CompletedProcess[str]:
    """The real command; ``closed``: without a standard output."""
    command = [sys.executable, "-m", "traceana", *map(str, args)]
    if closed:
        command = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)


def test_the_capture_itself_is_never_the_output(tmp_path: Path) -> None:
    capture = tmp_path / "mine.dat"
    shutil.copy(SAMPLES / "hostile.dat", capture)
    before = capture.read_bytes()
    done = run("report", capture, "-o", capture, "--force")
    assert done.returncode == 2 and "is the capture itself" in done.stderr
    assert capture.read_bytes() == before


def test_a_store_does_not_go_to_standard_output(tmp_path: Path) -> None:
    done = run("convert", PP3, "-o", "-")
    assert done.returncode == 2 and "name it with -o" in done.stderr
    assert not (ROOT / "-").exists()


def test_closed_standard_output() -> None:
    done = run("info", PP3, closed=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["report", "tasks", "whatif", "info"])
def test_a_selection_without_events_says_where_they_are(verb: str, tmp_path: Path) -> None:
    done = run(
        verb, PP3, "--time", "100,200", *(("-o", tmp_path / "r.html") if verb == "report" else ())
    )
    assert done.returncode == 2
    assert "no event in that span; the capture spans " in done.stderr


def test_counts_are_those_of_the_selection() -> None:
    whole, part = ta.open(PP3), ta.open(PP3, time=("10%", "20%"))
    assert 0 < part.counts["sched_switch"] < whole.counts["sched_switch"]
    rows = sum(b.num_rows for b in part.event_batches())
    assert sum(part.counts.values()) == rows


@pytest.mark.parametrize("verb", ["tasks", "wakeups", "idle", "whatif"])
def test_a_counting_clock_gives_no_durations(verb: str) -> None:
    capture = SHARED / "forms" / "sch-clock-counter.dat"
    if not capture.exists():
        pytest.skip("no ../shared beside the repository: its captures cannot be read")
    done = run(verb, capture)
    assert done.returncode == 3 and "clock 'counter' is no time" in done.stderr
    assert not done.stdout


def test_waiting_is_not_known_without_wakeups() -> None:
    cap = ta.open(PP3, ignore=("sched_wakeup",))
    gaps = cap.timeline().idle_gaps
    assert gaps.num_rows and gaps.column("waited_llc_ns").null_count == gaps.num_rows
    done = run("idle", PP3, "--ignore", "sched_wakeup")
    assert "not known without sched_wakeup" in done.stdout
    with pytest.raises(MissingEventsError):
        ta.whatif(ta.open(PP3, ignore=("sched_waking",)), "sis_short_v5")


def test_a_topology_of_another_machine_is_noted(tmp_path: Path) -> None:
    side = tmp_path / "two.csv"
    side.write_text("# CPU,CORE,SOCKET,NODE,CACHE\n0,0,0,0,0\n1,0,0,0,0\n")
    cap = ta.open(SAMPLES / "pp6-base.dat", topology=side)
    cap.timeline()
    assert cap.issues.counts()["topology_mismatch"] == 1
    own = ta.open(SAMPLES / "pp6-base.dat")
    own.timeline()
    assert "topology_mismatch" not in own.issues.counts()


def test_intervals_hold_their_figures_and_are_whole_nanoseconds() -> None:
    result = ta.whatif(ta.open(SAMPLES / "pp6-base.dat"), ["this_cpu", "sis_short_v5"])
    for rule in result.rules:
        for figures in (rule.queue_delay_ns, rule.wakeup_latency_ns):
            for name in ("p50", "p90", "p99"):
                figure = figures[name]
                assert figure.interval is not None and figure.estimated is not None
                assert figure.interval[0] <= figure.estimated <= figure.interval[1]
                document = figure.to_json()
                assert all(isinstance(v, int) for v in document["interval"])


def test_repeated_names_and_single_rule() -> None:
    cap = ta.open(PP3)
    with cap:
        assert [r.rule for r in ta.whatif(cap, "recorded").rules] == ["recorded"]
    with pytest.raises(UsageError):
        ta.whatif(cap, "no_such_rule")
    assert "wakeups" in repr(cap.timeline())


def test_one_cpu_is_enough_for_every_verb(tmp_path: Path) -> None:
    lines = []
    for i in range(60):
        at = i * 0.001
        lines += [
            f"          <idle>-0     [000] d..2. {at:.6f}: sched_waking: comm=a pid=7 prio=120 "
            "target_cpu=000",
            f"          <idle>-0     [000] d..2. {at + 0.000003:.6f}: sched_wakeup: comm=a pid=7 "
            "prio=120 target_cpu=000",
            f"          <idle>-0     [000] d..2. {at + 0.000005:.6f}: sched_switch: "
            "prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a next_pid=7 "
            "next_prio=120",
            f"               a-7     [000] d..2. {at + 0.0002:.6f}: sched_switch: prev_comm=a "
            "prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 "
            "next_prio=120",
        ]
    path = tmp_path / "one.txt"
    path.write_text("# tracer: nop\n#\n" + "\n".join(lines) + "\n")
    cap = ta.open(path)
    assert ta.whatif(cap, ["recorded", "mainline"])["recorded"].moved == 0
    assert len(reports.render(cap, format="html")) > 10_000


def test_names_of_events_are_harmless_in_an_error(tmp_path: Path) -> None:
    path = tmp_path / "title.txt"
    path.write_text(
        "# tracer: nop\n#\n"
        "          <idle>-0     [000] d..2. 1.000000: x\x1b]0;t\x07: a=1\n"
        "          <idle>-0     [000] d..2. 1.000001: sched_switch: prev_comm=swapper/0 "
        "prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a next_pid=7 next_prio=120\n"
    )
    with pytest.raises(UsageError) as error:
        ta.open(path).extra_events("nothing")
    assert str(error.value).isprintable()
    assert "sched_switch" in str(error.value)
