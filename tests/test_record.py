"""Recording: commands, what stops them, and what is stored beside a capture.

Commands are tried where this machine lets them record; elsewhere they are held against the
tool's own --help. Which of the two was done is printed (pytest -s, or -rA).
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traceana import _record_system as facts
from traceana import record, schema, start_state, topology
from traceana.errors import MissingEventsError, UnsupportedError, UsageError
from traceana.issues import IssueLog

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "record.sh"
ALL_EVENTS = frozenset(f"{e.system}:{e.name}" for e in record.EVENTS)
MACHINE = record.Machine(
    release="6.1.0",
    cpus=8,
    memory_kb=16 << 20,
    tools={"trace-cmd": "/bin/trace-cmd", "perf": "/bin/perf", "tracefs": "/sys/kernel/tracing"},
    events=ALL_EVENTS,
    root=True,
    capabilities=0,
    paranoid=2,
)
SCHED = """\
{comm} ({tid}, #threads: 1)
-------------------------------------------------------------------
se.exec_start                                :       8121684.774334
se.sum_exec_runtime                          :           184.148689
nr_switches                                  :                  445
se.avg.load_avg                              :                    2
se.avg.util_avg                              :                   17
policy                                       :                    0
{more}current_node=0, numa_group_id=0
"""


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """/sys and /proc of a machine: 2 cores with SMT in 2 LLCs, three threads."""
    root = tmp_path / "root"
    cpu = root / "sys/devices/system/cpu"
    for name in ("online", "possible", "present"):
        put(cpu / name, "0-3")
    put(cpu / "isolated", "")
    for n in range(4):
        pair = "0,2" if n % 2 == 0 else "1,3"
        put(cpu / f"cpu{n}/topology/core_id", str(n % 2))
        put(cpu / f"cpu{n}/topology/physical_package_id", "0")
        put(cpu / f"cpu{n}/topology/thread_siblings_list", pair)
        put(cpu / f"cpu{n}/cache/index3/level", "3")
        put(cpu / f"cpu{n}/cache/index3/type", "Unified")
        put(cpu / f"cpu{n}/cache/index3/shared_cpu_list", pair)
    put(root / "sys/devices/system/node/node0/cpulist", "0-3")
    proc = root / "proc"
    put(proc / "sys/kernel/osrelease", "6.1.0-test")
    put(proc / "sys/kernel/sched_rt_runtime_us", "950000")
    put(proc / "version", "Linux version 6.1.0-test")
    put(
        proc / "timer_list",
        "Timer List Version: v0.9\nnow at 8272308462826 nsecs\n\njiffies: 4296960310",
    )
    (proc / "config.gz").write_bytes(gzip.compress(b"CONFIG_HZ_250=y\nCONFIG_HZ=250\n"))
    put(proc / "10/task/10/sched", SCHED.format(comm="evil\n----:9 (: se.", tid=10, more=""))
    patched = (
        "se.dur_avg        :     0.250000\nwakee_flips       :    3\nlast_wakee        :   10\n"
        "wakee_flip_decay_ts      :   4296960000\n"
    )
    put(proc / "10/task/11/sched", SCHED.format(comm="b", tid=11, more=patched))
    put(proc / "12/task/12/schedstat", "777 5 9")
    put(proc / "self/status", "CapEff:\t0000000000000000")
    put(root / "sys/kernel/debug/sched/features", "GENTLE_FAIR_SLEEPERS NO_SIS_UTIL")
    put(root / "sys/kernel/debug/sched/migration_cost_ns", "500000")
    put(root / "sys/fs/cgroup/cgroup.controllers", "cpu")
    put(root / "sys/fs/cgroup/a b/limited/cpu.max", "50000 100000")
    put(root / "sys/fs/cgroup/free/cpu.max", "max 100000")
    return root


class TestEvents:
    def test_each_is_one_that_is_read(self) -> None:
        assert {e.name for e in record.EVENTS} <= set(schema.EVENT_NAMES)
        assert len({e.name for e in record.EVENTS}) == len(record.EVENTS)

    def test_each_serves_a_known_question(self) -> None:
        for event in record.EVENTS:
            assert event.questions
            assert set(event.questions) <= set(record.QUESTIONS)

    def test_what_needs_dur_avg_records_run_times(self) -> None:
        """The rules ask for dur_avg, the race for idle times."""

        def names(question: str) -> set[str]:
            return {e.name for e in record.make_plan(MACHINE, questions=[question]).events}

        for question in record.QUESTIONS:
            assert names(question) >= {"sched_switch", "sched_waking", "sched_wakeup"}
        assert "sched_stat_runtime" in names("rules") - names("latency")
        assert "cpu_idle" in names("race") & names("placement")

    def test_one_that_the_kernel_lacks_is_left_out_and_named(self) -> None:
        old = dataclasses.replace(MACHINE, events=ALL_EVENTS - {"ipi:ipi_send_cpu"})
        plan = record.make_plan(old)
        assert [e.name for e in plan.missing] == ["ipi_send_cpu"]
        assert "ipi_send_cpu" not in record.commands(plan)

    def test_without_one_that_is_needed_nothing_is_recorded(self) -> None:
        bare = dataclasses.replace(MACHINE, events=ALL_EVENTS - {"sched:sched_waking"})
        with pytest.raises(MissingEventsError, match="sched_waking"):
            record.make_plan(bare)


class TestPlan:
    def test_the_first_tool_that_nothing_stops(self) -> None:
        assert record.make_plan(MACHINE).tool == "trace-cmd"
        user = dataclasses.replace(MACHINE, root=False, paranoid=-1)
        assert record.make_plan(user).tool == "perf"

    def test_no_tool(self) -> None:
        with pytest.raises(UnsupportedError, match="neither trace-cmd nor perf"):
            record.make_plan(dataclasses.replace(MACHINE, tools={}))

    @pytest.mark.parametrize(
        ("tool", "change", "says"),
        [
            ("perf", {"root": False}, "perf_event_paranoid is 2"),
            ("perf", {"root": False, "capabilities": 1 << 38}, None),
            ("perf", {"root": False, "paranoid": -1}, None),
            ("perf", {"root": False, "paranoid": -1, "events": None}, "mode=755"),
            ("perf", {"tools": {}}, "not installed"),
            ("trace-cmd", {"root": False, "paranoid": -1}, "needs root"),
            ("tracefs", {"root": False}, "needs root"),
            ("tracefs", {"tools": {}}, "no tracefs"),
            ("trace-cmd", {"tools": {"trace-cmd": "x"}}, "no tracefs"),
            ("trace-cmd", {}, None),
        ],
    )
    def test_what_stops_a_tool(self, tool: str, change: dict[str, Any], says: str | None) -> None:
        reason = record.obstacle(dataclasses.replace(MACHINE, **change), tool)
        assert reason is None if says is None else says in (reason or "")

    def test_buffers_hold_what_comes_meanwhile(self) -> None:
        """Against plain arithmetic: bytes of the busiest CPU in the time that the ring covers."""
        for tool in record.TOOLS:
            for rate in (1, 10**5, 10**6, 10**7):
                plan = record.make_plan(MACHINE, tool=tool, rate=rate, seconds=10)
                assert plan.buffer_kb & (plan.buffer_kb - 1) == 0
                span = 10 if tool == "tracefs" else 1
                size = 45 if tool != "perf" else 102  # bytes an event, as measured
                if plan.short:
                    assert plan.buffer_kb * 8 <= MACHINE.memory_kb / 4  # type: ignore[operator]
                else:
                    assert plan.buffer_kb * 1024 >= rate / 8 * 2 * span * size

    def test_memory_sets_the_limit(self) -> None:
        small = dataclasses.replace(MACHINE, memory_kb=64 << 10)
        plan = record.make_plan(small, rate=10**7)
        assert plan.short
        assert plan.buffer_kb * 8 <= 16 << 10

    @pytest.mark.parametrize(
        "wrong", [{"seconds": 0}, {"seconds": float("nan")}, {"rate": 0}, {"buffer_kb": 1}]
    )
    def test_wrong_values(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(UsageError):
            record.make_plan(MACHINE, **wrong)

    def test_looks_below_a_root(self, tree: Path) -> None:
        put(tree / "sys/kernel/tracing/available_events", "sched:sched_switch\npower:cpu_idle")
        put(tree / "proc/sys/kernel/perf_event_paranoid", "3")
        put(tree / "proc/meminfo", "MemTotal: 9 kB\nMemAvailable:  4242 kB")
        put(tree / "proc/self/status", "Name:\tx\nCapEff:\t0000004000000000")
        seen = record.look(tree, which=lambda name: None, uid=1000)
        assert seen == record.Machine(
            release="6.1.0-test",
            cpus=4,
            memory_kb=4242,
            tools={"tracefs": "/sys/kernel/tracing"},
            events=frozenset({"sched:sched_switch", "power:cpu_idle"}),
            root=False,
            capabilities=1 << 38,
            paranoid=3,
        )

    def test_switches_are_counted(self, tree: Path) -> None:
        assert record.measure_switches(tree, 0) is None
        put(tree / "proc/stat", "cpu 1 2\nctxt 500\nbtime 1")
        assert record.measure_switches(tree, 0.001) == 0


@pytest.mark.parametrize("tool", record.TOOLS)
class TestCommands:
    @pytest.mark.parametrize("output", ["a.dat", "it's $(evil) `x`.dat", "-x;\n.dat"])
    def test_are_shell_and_quoted(self, tool: str, output: str, tmp_path: Path) -> None:
        """Run by a shell, with the tool replaced by one that writes down its arguments."""
        machine = MACHINE
        if tool == "tracefs":
            machine = dataclasses.replace(MACHINE, tools={"tracefs": str(tmp_path)})
        plan = record.make_plan(machine, tool=tool, output=output, command=["echo", "a b", "$x"])
        text = record.commands(plan)
        subprocess.run(["sh", "-n"], input=text, text=True, check=True)
        words = shlex.split(text)
        safe = output if not output.startswith("-") else f"./{output}"
        assert safe in words
        at = words.index("echo", words.index("tracing_on") if "tracing_on" in words else 0)
        if tool != "tracefs":
            assert words[at:] == ["echo", "a b", "$x"]
        else:
            assert "echo 'a b' '$x'" in text

    def test_every_event_is_named_once(self, tool: str) -> None:
        text = record.commands(record.make_plan(MACHINE, tool=tool))
        for event in record.EVENTS:
            joint = "/" if tool == "tracefs" else ":"
            found = re.findall(rf"{event.system}{joint}{event.name}\b", text)
            assert len(found) == 1, event.name

    def test_options_are_those_of_the_tool(self, tool: str) -> None:
        if tool == "tracefs":
            pytest.skip("plain tracefs has no --help; its files are tried in TestForReal")
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: its --help cannot be asked")
        done = subprocess.run([tool, "record", "-h"], capture_output=True, text=True)
        shown = done.stdout + done.stderr
        text = record.commands(record.make_plan(MACHINE, tool=tool))
        options = {w for w in shlex.split(text) if re.fullmatch(r"-[A-Za-z]", w)}
        assert len(options) >= 4
        for option in options:
            assert re.search(rf"(?:^|[\s\[]){option}\b", shown, re.MULTILINE), option
        print(f"{tool}: the printed options were held against its --help")


class TestSideFiles:
    def test_are_read_back(self, tree: Path, tmp_path: Path) -> None:
        capture = tmp_path / "t.dat"
        written, gaps = record.store_beside(capture, tree, mono=True)
        assert [Path(w).name for w in written] == [
            f"t.dat.{w}.json" for w in ("state", "topology", "system")
        ]
        side = topology.find_side_file(capture)
        assert side is not None
        issues = IssueLog()
        table = topology.load_side_file(side, issues)
        assert not issues
        assert table.column("llc").to_pylist() == [0, 1, 0, 1]
        assert table.column("core").to_pylist() == [0, 1, 0, 1]
        found = start_state.find(capture)
        assert found is not None
        state = start_state.load(found)
        assert (state.jiffies_now, state.at_ts, state.hz) == (4296960310, 8272308462826, 250)
        assert [t.pid for t in state.tasks] == [10, 11, 12]
        plain, patched, no_sched = state.tasks
        assert (plain.util_avg, plain.load_avg, plain.dur_avg_ns) == (17, 2, None)
        assert (patched.dur_avg_ns, patched.wakee_flips, patched.last_wakee) == (250_000, 3, 10)
        assert patched.wakee_flip_decay_ts == 4296960000
        assert (no_sched.util_avg, no_sched.wakee_flips) == (None, None)
        tasks = json.loads(found.read_text())["tasks"]
        assert [t["sum_exec_ns"] for t in tasks] == [184_148_689, 184_148_689, 777]
        assert gaps == ["start state: this kernel shows no prev_sleep_sum_ns"]

    def test_system(self, tree: Path) -> None:
        told = facts.system(tree, {"tool": "perf"})
        assert told["kernel"] == "6.1.0-test"
        assert told["sched_features"] == ["GENTLE_FAIR_SLEEPERS", "NO_SIS_UTIL"]
        assert told["sched_tunables"] == {
            "migration_cost_ns": "500000",
            "sched_rt_runtime_us": "950000",
        }
        assert told["cgroup_limits"] == [
            {"cgroup": "/a b/limited", "quota_us": 50000, "period_us": 100000}
        ]
        assert told["recording"] == {"tool": "perf"}

    def test_cgroups_of_version_1(self, tree: Path) -> None:
        shutil.rmtree(tree / "sys/fs/cgroup")
        cpu = tree / "sys/fs/cgroup/cpu,cpuacct"
        put(cpu / "cpu.cfs_quota_us", "-1")
        put(cpu / "x/cpu.cfs_quota_us", "20000")
        put(cpu / "x/cpu.cfs_period_us", "50000")
        (tree / "sys/fs/cgroup/cpu").symlink_to("cpu,cpuacct")
        assert facts.system(tree)["cgroup_limits"] == [
            {"cgroup": "/x", "quota_us": 20000, "period_us": 50000}
        ]

    def test_another_clock_gives_the_start_state_no_moment(self, tree: Path) -> None:
        state = facts.start_state(tree, mono=False)
        assert state["at_ts"] is None
        assert state["jiffies_now"] == 4296960310

    def test_a_machine_that_shows_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "proc").mkdir()
        written, gaps = record.store_beside(tmp_path / "t.dat", tmp_path, mono=True)
        assert [w.split(".")[-2] for w in written] == ["state", "system"]
        text = "\n".join(gaps)
        for what in ("topology", "dur_avg_ns", "jiffies", "CONFIG_HZ", "features"):
            assert what in text
        told = json.loads(Path(written[1]).read_text())
        assert told["kernel"] is None
        assert told["cgroup_limits"] == []
        assert start_state.load(written[0]).tasks == ()

    def test_nothing_is_overwritten_unasked(self, tree: Path, tmp_path: Path) -> None:
        record.store_beside(tmp_path / "t.dat", tree, mono=True)
        with pytest.raises(UsageError, match="exists"):
            record.store_beside(tmp_path / "t.dat", tree, mono=True)
        record.store_beside(tmp_path / "t.dat", tree, mono=True, force=True)


class TestVerb:
    @pytest.fixture(autouse=True)
    def machine(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        def be(**change: Any) -> None:
            monkeypatch.setattr(record, "look", lambda: dataclasses.replace(MACHINE, **change))

        be()
        return be

    def test_prints_a_script(self, cli: Callable[..., Any]) -> None:
        ran = cli("record", "--rate", "50000")
        assert (ran.status, ran.err) == (0, "")
        subprocess.run(["sh", "-n"], input=ran.out, text=True, check=True)
        for event in record.EVENTS:
            [line] = [x for x in ran.out.splitlines() if x.startswith(f"#   {event.name} ")]
            assert line.endswith("[" + " ".join(event.questions) + "]")
        assert "for 50000 events/s (given)" in ran.out
        assert "\ntraceana record --beside trace.dat\ntrace-cmd record -C mono -b " in ran.out

    def test_one_question(self, cli: Callable[..., Any]) -> None:
        ran = cli("record", "--for", "latency", "--tool", "perf", "--clock", "local")
        assert "sched_stat_runtime" not in ran.out
        assert "-k mono" not in ran.out
        assert "--beside perf.data --clock local" in ran.out

    def test_what_cannot_be_recorded_here_is_one_line(
        self, cli: Callable[..., Any], machine: Callable[..., None], tmp_path: Path
    ) -> None:
        machine(root=False)
        ran = cli("record", "--tool", "perf")
        assert ran.status == 3
        assert ran.err.count("\n") == 1
        assert "perf_event_paranoid is 2" in ran.err
        assert "perf record" in ran.out  # for another machine
        ran = cli("record", "--run", "--tool", "tracefs", "-o", tmp_path / "t.txt")
        assert (ran.status, ran.out, ran.err.count("\n")) == (3, "", 1)
        assert not list(tmp_path.iterdir())
        machine(tools={})
        assert cli("record").status == 3
        machine(events=frozenset({"sched:sched_switch"}))
        assert cli("record").status == 5

    @pytest.mark.parametrize(
        "args",
        [
            ("--for", "latencies"),
            ("--tool", "lttng"),
            ("--clock", "global"),
            ("--seconds", "-1"),
            ("--rate", "0"),
            ("-o", "-"),
            ("--beside", "x", "--run"),
            ("--sysroot", "/nowhere"),
            ("--beside", "x", "--sysroot", "/nowhere"),
        ],
    )
    def test_usage(self, cli: Callable[..., Any], args: tuple[str, ...]) -> None:
        ran = cli("record", *args)
        assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)

    def test_beside(self, cli: Callable[..., Any], tree: Path, tmp_path: Path) -> None:
        ran = cli("record", "--beside", tmp_path / "t.dat", "--sysroot", tree)
        assert ran.status == 0
        assert (tmp_path / "t.dat.state.json").exists()
        assert cli("record", "--beside", tmp_path / "t.dat", "--sysroot", tree).status == 2

    def test_a_failed_recording_leaves_what_was_there(
        self, cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(tmp_path / "bin/perf", "#!/bin/sh\nexit 9")
        (tmp_path / "bin/perf").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
        work = tmp_path / "work"
        for name in ("p", "p.state.json"):
            put(work / name, "old")
        args = ("record", "--run", "--tool", "perf", "-o", work / "p", "--rate", "1")
        assert cli(*args).status == 2
        ran = cli(*args, "--force")
        assert ran.status == 3
        assert "nothing was recorded: perf ended with status 9" in ran.err
        assert sorted(p.name for p in work.iterdir()) == ["p", "p.state.json"]
        assert (work / "p.state.json").read_text() == "old\n"

    def test_help_is_light(self) -> None:
        code = (
            "import sys; from traceana.cli import main; main(['record', '--help']);"
            "print('LOADED', *sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert "Example:" in done.stdout
        loaded = {m.split(".")[0] for m in done.stdout.partition("LOADED")[2].split()}
        assert not loaded & {"numba", "pyarrow", "pandas", "numpy"}


class TestForReal:
    @pytest.mark.parametrize("tool", record.TOOLS)
    def test_record_and_open(self, cli: Callable[..., Any], tool: str, tmp_path: Path) -> None:
        machine = record.look()
        reason = record.obstacle(machine, tool)
        capture = tmp_path / record.FILES[tool]
        line = "for i in 1 2 3 4 5; do sleep 0.01; done"
        ran = cli("record", "--run", "--tool", tool, "-o", capture, "--", "sh", "-c", line)
        if reason is not None:
            assert (ran.status, list(tmp_path.iterdir())) == (3, [])
            assert reason in ran.err
            print(f"{tool}: refused here, as it should be ({reason})")
            return
        if ran.status == 5:
            pytest.skip(f"{tool}: {ran.err.strip()}")
        if ran.status == 3:
            assert "nothing was recorded" in ran.err
            assert list(tmp_path.iterdir()) == []
            pytest.skip(f"{tool}: the kernel refuses to record here; only --help was checked")
        assert ran.status == 0, ran.err
        print(f"{tool}: recorded for real")
        import traceana as ta

        cap = ta.open(capture)
        assert cap.counts["sched_switch"] >= 10  # 5 sleeps: out and in again
        assert cap.counts["sched_process_fork"] >= 5
        # Somebody woke each of the sleeps, and the state was taken before the first event.
        first = cap.timeline().wakeups.column("waking_ts").drop_null()[0].as_py()
        state = start_state.load(tmp_path / f"{capture.name}.state.json")
        assert any(t.pid == os.getpid() for t in state.tasks)
        if state.at_ts is not None:
            assert 0 < first - state.at_ts < 60_000_000_000

    @pytest.mark.parametrize("tool", ["perf", "tracefs"])
    @pytest.mark.parametrize("program", ["traceana", "record.sh"])
    def test_interrupt_keeps_what_was_recorded(
        self, tool: str, program: str, tmp_path: Path
    ) -> None:
        """The command interrupts the whole foreground, as Ctrl-C does."""
        if record.obstacle(record.look(), tool) is not None:
            pytest.skip(f"{tool} cannot record here")
        words = [sys.executable, "-m", "traceana", "record", "--run", "--tool", tool, "-o", "t"]
        if program == "record.sh":
            words = [str(SCRIPT), "-t", tool, "-o", "t"]
        done = subprocess.run(
            [*words, "--", "sh", "-c", "sleep 0.1; kill -INT 0; sleep 50"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=40,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        if done.returncode == 3:
            pytest.skip(f"{tool}: the kernel refuses to record here")
        assert done.returncode == 0, done.stderr
        import traceana as ta

        cap = ta.open(tmp_path / "t")
        assert cap.counts["sched_switch"] > 0
        assert not cap.damaged

    def test_cost(self, cli: Callable[..., Any]) -> None:
        ran = cli("record", "--cost", "--rate", "1000000")
        [line] = [x for x in ran.out.splitlines() if "cost:" in x]
        print(line)
        if "cannot be measured" in line:
            pytest.skip(line.removeprefix("# "))
        match = re.search(r"cost: (-?\d+) ns an event", line)
        assert match
        assert 0 < int(match[1]) < 50_000


class TestShellScript:
    @pytest.fixture
    def run(self, tmp_path: Path, tree: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
        """record.sh with a perf that only writes its -o file, on the faked machine."""
        tools = tmp_path / "bin"
        put(
            tools / "perf",
            '#!/bin/sh\n[ -z "$FAIL" ] || exit 9\nwhile [ $# -gt 0 ]; do\n'
            '[ "$1" != -o ] || echo data >"$2"\nshift\ndone',
        )
        (tools / "perf").chmod(0o755)
        work = tmp_path / "work"
        work.mkdir()

        def call(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [str(SCRIPT), *args],
                capture_output=True,
                text=True,
                cwd=work,
                timeout=60,
                env={
                    **os.environ,
                    "PATH": f"{tools}:{os.environ['PATH']}",
                    "TRACEANA_SYSROOT": str(tree),
                    **env,
                },
            )

        return call

    def test_shellcheck(self) -> None:
        if shutil.which("shellcheck") is None:
            pytest.skip("shellcheck is not installed")
        done = subprocess.run(
            ["shellcheck", "-s", "sh", str(SCRIPT)], capture_output=True, text=True
        )
        assert done.stdout + done.stderr == ""

    @pytest.mark.parametrize("question", [*record.QUESTIONS, "all"])
    def test_knows_the_same_events(self, run: Callable[..., Any], question: str) -> None:
        done = run("-n", "-t", "perf", "-q", question)
        names = re.findall(r"-e (\S+)", done.stdout)
        asked = list(record.QUESTIONS) if question == "all" else [question]
        plan = record.make_plan(
            dataclasses.replace(MACHINE, events=record.look().events), questions=asked
        )
        assert sorted(names) == sorted(f"{e.system}:{e.name}" for e in plan.events)

    def test_what_it_stores_is_read(
        self, run: Callable[..., Any], cli: Callable[..., Any], tmp_path: Path
    ) -> None:
        done = run("-t", "perf", "-o", "a b.data", "true")
        assert done.returncode == 0, done.stderr
        work = tmp_path / "work"
        left = sorted(p.name for p in work.iterdir())
        assert left == ["a b.data", "a b.data.state.tar", "a b.data.topology.tar"]
        issues = IssueLog()
        table = topology.load_side_file(work / "a b.data.topology.tar", issues)
        assert table.column("llc").to_pylist() == [0, 1, 0, 1]
        there = tmp_path / "unpacked"
        for what in ("state", "topology"):
            with tarfile.open(work / f"a b.data.{what}.tar") as tar:
                tar.extractall(there, filter="data")
        assert cli("record", "--beside", work / "a b.data", "--sysroot", there).status == 0
        state = start_state.load(work / "a b.data.state.json")
        assert (state.jiffies_now, state.at_ts, state.hz) == (4296960310, 8272308462826, 250)
        known = {t.pid: t for t in state.tasks}
        assert known[11].dur_avg_ns == 250_000
        assert known[10].util_avg == 17
        told = json.loads((work / "a b.data.system.json").read_text())
        assert told["sched_features"] == ["GENTLE_FAIR_SLEEPERS", "NO_SIS_UTIL"]
        assert told["cgroup_limits"] == [
            {"cgroup": "/a b/limited", "quota_us": 50000, "period_us": 100000}
        ]

    def test_fails_in_one_line(self, run: Callable[..., Any], tmp_path: Path) -> None:
        done = run("-t", "perf", "true", FAIL="1")
        assert done.returncode == 3
        assert "nothing was recorded: perf ended with status 9" in done.stderr
        assert list((tmp_path / "work").iterdir()) == []
        assert run("-t", "perf", "true").returncode == 0
        again = run("-t", "perf", "true")
        assert (again.returncode, "exists" in again.stderr) == (2, True)
        assert run("-f", "-t", "perf", "true").returncode == 0

    @pytest.mark.parametrize(
        "args", [("-q", "x"), ("-t", "x"), ("-c", "x"), ("-s", "x"), ("-b", "x"), ("-z",)]
    )
    def test_usage(self, run: Callable[..., Any], args: tuple[str, ...]) -> None:
        done = run(*args)
        assert (done.returncode, done.stdout) == (2, "")
