"""The command line as a user meets it: exit status, stdout, stderr, files."""

from __future__ import annotations

import csv
import io
import json
import lzma
import os
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traceana.schema import SCHEMA_VERSION

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"
PP3 = SAMPLES / "pp3-plain.dat.xz"
HOSTILE = SAMPLES / "hostile.dat"
VERBS = (
    "info", "report", "tasks", "wakeups", "idle", "whatif", "race", "compare", "diff", "rules",
    "convert", "export", "events", "record", "simulate", "synth",
    "batch", "fleet", "sql",
)  # fmt: skip
READERS = ("info", "tasks", "wakeups", "events", "idle", "whatif", "race")

Cli = Callable[..., Any]


def one_line(text: str) -> bool:
    return text.count("\n") == 1 and text.startswith("traceana: ") and "Traceback" not in text


class TestHelp:
    def test_bare_call_is_help(self, shell: Cli) -> None:
        ran = shell()
        assert ran.status == 0
        for verb in VERBS:
            assert re.search(rf"^  {verb} ", ran.out, re.MULTILINE), verb
        assert "Exit status" in ran.out

    @pytest.mark.parametrize("verb", VERBS)
    def test_every_verb_shows_an_example_that_names_a_sample(self, cli: Cli, verb: str) -> None:
        ran = cli(verb, "--help")
        assert ran.status == 0
        example = re.search(r"Example:\n +traceana (.*)\n", ran.out)
        assert example
        words = example[1].split()
        assert words[0] == verb
        for word in words:
            if word.startswith("sample_traces/"):
                assert (ROOT / word).exists()
        assert ran.out.index("Example:") < ran.out.index("Options:")

    @pytest.mark.parametrize("verb", VERBS)
    def test_every_option_has_help(self, cli: Cli, verb: str) -> None:
        import typer.main

        from traceana.cli.app import command

        program = command()
        assert isinstance(program, typer.core.TyperGroup)
        for param in program.commands[verb].params:
            assert getattr(param, "help", None), param.name

    def test_imports_no_heavy_library(self) -> None:
        code = (
            "import sys; from traceana.cli import main; main(['--help']);"
            "main(['tasks', '--help']); print('LOADED', *sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        loaded = {m.split(".")[0] for m in done.stdout.partition("LOADED")[2].split()}
        heavy = {"numba", "pyarrow", "pandas", "polars", "numpy", "matplotlib", "scipy", "jinja2"}
        assert not loaded & heavy

    @pytest.mark.parametrize("verb", ["info", "tasks", "whatif", "report"])
    def test_no_verb_needs_a_dataframe_library(self, verb: str, tmp_path: Path) -> None:
        args = [verb, str(PP3), "-o", str(tmp_path / "out")]
        code = (
            "import sys; from traceana.cli import main; status = main(sys.argv[1:]);"
            "print('LOADED', *sys.modules); sys.exit(status)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True
        )
        loaded = {m.split(".")[0] for m in done.stdout.partition("LOADED")[2].split()}
        assert not loaded & {"pandas", "polars"}

    def test_answers_at_once(self) -> None:
        """As a ratio against the interpreter with typer alone, so that a slow machine passes."""

        def best(code: str) -> float:
            times = []
            for _ in range(5):
                start = time.perf_counter()
                subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
                times.append(time.perf_counter() - start)
            return min(times)

        base = best("import typer")
        ours = best("from traceana.cli import main; main(['--help'])")
        assert ours < 4 * base, f"--help took {ours:.2f} s, importing typer alone {base:.2f} s"

    def test_version(self, shell: Cli) -> None:
        ran = shell("-V")
        assert ran.status == 0
        assert re.fullmatch(
            r"traceana [\d.]+, Python [\d.]+\S*, numba [\d.]+, pyarrow [\d.]+\n", ran.out
        )


class TestUsage:
    @pytest.mark.parametrize(
        ("args", "says"),
        [
            (("taks",), "'tasks'"),
            (("tasks",), "no input"),
            (("tasks", PP3, "-i", PP3), "two inputs"),
            (("tasks", PP3, "--formt", "json"), "--format"),
            (("tasks", PP3, "--format", "jsn"), "did you mean json?"),
            (("tasks", PP3, "--sort", "runtim"), "did you mean runtime_ns?"),
            (("tasks", PP3, "--color", "sometimes"), "always"),
            (("tasks", PP3, "-C", "3-1"), "not a range"),
            (("tasks", PP3, "-C", "0-99999999"), "not a range"),
            (("tasks", PP3, "-t", "x"), "no number or range"),
            (("tasks", PP3, "--time", "5"), "START,STOP"),
            (("tasks", PP3, "--time", "3,2"), "not after the begin"),
            (("tasks", PP3, "--time", "10%-120%"), "START,STOP"),
            (("tasks", PP3, "--hz", "0"), "CONFIG_HZ"),
            (("tasks", PP3, "--hz", "many"), "--hz"),
            (("tasks", PP3, "--workload", "pairs"), "NAME=GLOB"),
            (("tasks", PP3, "--ignore", "sched_swich"), "sched_switch"),
            (("tasks", PP3, "-n", "-3"), "number of rows"),
            (("tasks", PP3, PP3), "unexpected"),
            (("wakeups", PP3, "--by", "workloda"), "did you mean workload?"),
            (("whatif", PP3, "--rule", "sis_short"), "did you mean sis_short_v6?"),
            (("whatif", PP3, "--param", "threshold=3"), "RULE.NAME"),
            (("whatif", PP3, "--param", "sis_short_v5.treshold=3"), "threshold"),
            (("rules", "abell"), "did you mean abel?"),
            (("report", PP3, "--format", "pdf"), "html, md, json"),
            (("convert", PP3, "--tables", "event"), "did you mean events?"),
            (("info", PP3, "-o", "/nonexistent/x"), "no folder"),
            (("info", "--", "-x", "-y"), "unexpected"),
        ],
        ids=lambda v: " ".join(Path(str(x)).name for x in v) if isinstance(v, tuple) else "",
    )
    def test_is_refused_with_one_line(self, cli: Cli, args: tuple[Any, ...], says: str) -> None:
        ran = cli(*args)
        assert ran.status == 2, ran.err
        assert one_line(ran.err), ran.err
        assert says in ran.err
        assert ran.out == ""


def refused(cli: Cli, folder: Path, verb: str, content: bytes) -> None:
    file, out = folder / "x.dat", folder / "out"
    file.write_bytes(content)
    ran = cli(verb, file, "-o", out)
    assert ran.status == 3, ran.err
    assert one_line(ran.err) and str(file) in ran.err
    assert not out.exists()


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
NO_CAPTURES = {
    "empty": b"",
    "png": PNG,
    "random": b"\x7fELF" + random.Random(1).randbytes(4000),
    "prose": b"hello\n",
    "header": b"\x17\x08\x44tracing6\0\0\x08",
}


class TestInput:
    @pytest.mark.parametrize("verb", ["info", "report"])
    @pytest.mark.parametrize("what", NO_CAPTURES)
    def test_what_is_no_capture(self, cli: Cli, tmp_path: Path, verb: str, what: str) -> None:
        refused(cli, tmp_path, verb, NO_CAPTURES[what])

    @pytest.mark.parametrize("verb", ["tasks", "wakeups", "idle", "whatif", "convert"])
    def test_all_verbs_refuse_alike(self, cli: Cli, tmp_path: Path, verb: str) -> None:
        refused(cli, tmp_path, verb, PNG)

    def test_missing_file(self, shell: Cli, tmp_path: Path) -> None:
        ran = shell("info", tmp_path / "none.dat")
        assert ran.status == 3
        assert one_line(ran.err) and "none.dat" in ran.err

    def test_a_folder_that_is_no_store(self, cli: Cli, tmp_path: Path) -> None:
        ran = cli("info", tmp_path)
        assert ran.status == 3
        assert one_line(ran.err)

    def test_option_i_is_the_same_as_the_argument(self, cli: Cli) -> None:
        assert (
            cli("info", "-i", HOSTILE, "--format", "json").json
            == cli("info", HOSTILE, "--format", "json").json
        )

    def test_options_may_follow_the_file(self, cli: Cli) -> None:
        assert cli("info", HOSTILE, "-q").status == 0

    @pytest.mark.parametrize("name", ["hostile.dat", "hostile.trace.txt.xz"])
    def test_standard_input_through_a_pipe(self, shell: Cli, name: str) -> None:
        path = SAMPLES / name
        ran = shell("info", "-", "--format", "json", stdin=path.read_bytes())
        assert ran.status == 0, ran.err
        assert ran.json == shell("info", path, "--format", "json").json

    def test_standard_input_from_a_file(self) -> None:
        with HOSTILE.open("rb") as file:
            done = subprocess.run(
                [sys.executable, "-m", "traceana", "info", "-"], stdin=file, capture_output=True
            )
        assert done.returncode == 0

    def test_rubbish_on_standard_input_is_named_so(self, shell: Cli) -> None:
        ran = shell("info", "-", stdin=PNG)
        assert ran.status == 3
        assert one_line(ran.err) and "standard input" in ran.err

    def test_cut_capture_gives_what_is_whole_and_status_4(self, cli: Cli, tmp_path: Path) -> None:
        whole = lzma.decompress((SAMPLES / "pp6-short.dat.xz").read_bytes())
        file = tmp_path / "cut.dat"
        file.write_bytes(whole[: len(whole) * 9 // 10])
        ran = cli("info", file, "--format", "json")
        assert ran.status == 4, ran.err
        assert one_line(ran.err) and "cut or damaged" in ran.err
        assert 0.5 * 267_550 < sum(ran.json["events"].values()) < 267_550
        assert ran.json["damaged"] is True and ran.json["issues"]
        assert cli("tasks", file).status == 4

    def test_recording_that_was_not_finished(self, cli: Cli, tmp_path: Path) -> None:
        """Version 7 keeps the places of its data at the end: without them nothing can be read."""
        whole = (SAMPLES / "pp6-base.dat").read_bytes()
        file = tmp_path / "cut.dat"
        file.write_bytes(whole[: len(whole) * 9 // 10])
        ran = cli("info", file)
        assert ran.status == 3
        assert one_line(ran.err) and "not finished" in ran.err

    @pytest.mark.parametrize("verb", ["wakeups", "idle", "tasks", "whatif"])
    def test_switch_only_says_what_is_missing(self, cli: Cli, verb: str) -> None:
        ran = cli(verb, SAMPLES / "switch-only.dat.xz")
        assert ran.status == (5 if verb in ("wakeups", "whatif") else 0), ran.err
        if ran.status:
            assert one_line(ran.err.splitlines()[-1] + "\n") and "sched_waking" in ran.err

    def test_no_switches_at_all(self, cli: Cli) -> None:
        for verb in ("tasks", "idle"):
            ran = cli(verb, PP3, "--ignore", "sched_switch")
            assert ran.status == 5
            assert one_line(ran.err) and "sched_switch" in ran.err
        assert cli("info", PP3, "--ignore", "sched_switch").status == 0


class TestInfo:
    NAMES = sorted(json.loads((SAMPLES / "COUNTS.json").read_text()))

    @pytest.mark.parametrize("name", NAMES)
    def test_counts_of_every_sample(
        self, cli: Cli, sample_counts: dict[str, Any], name: str
    ) -> None:
        ran = cli("info", SAMPLES / name, "--format", "json")
        assert ran.status == 0, ran.err
        info = ran.json
        known = sample_counts[name]
        assert info["events"] == known["events"]
        assert sum(info["events"].values()) == known["total"]
        if "first_ns" in known and not name.endswith("txt.xz"):
            assert info["span_ns"] == known["last_ns"] - known["first_ns"]

    def test_keys(self, cli: Cli) -> None:
        info = cli("info", SAMPLES / "pp6-base.dat", "--format", "json").json
        assert info["schema_version"] == SCHEMA_VERSION
        assert info["kernel"] == "6.1.192"
        assert info["cpus"] == 8 and info["cores"] == 4 and info["llcs"] == 1
        assert info["clock"] == "local"
        assert info["lost"] == {"events": 0, "marks": 0, "per_cpu": {}}
        for key in ("form", "tool", "span_ns", "events", "issues"):
            assert key in info
        assert isinstance(info["issues"], dict)

    def test_formats_agree(self, cli: Cli) -> None:
        info = cli("info", HOSTILE, "--format", "json").json
        assert json.loads(cli("info", HOSTILE, "--format", "ndjson").out) == info
        rows = dict(csv.reader(io.StringIO(cli("info", HOSTILE, "--format", "csv").out)))
        assert rows["events.sched_switch"] == str(info["events"]["sched_switch"])
        for form in ("table", "md"):
            assert "sched_switch" in cli("info", HOSTILE, "--format", form).out


TASK_KEYS = {
    "pid", "comm", "dur_avg_ns", "wakee_flips", "runtime_ns", "switches", "wakeups", "delays",
    "delay_avg_ns", "delay_max_ns", "delay_max_at_ns",
}  # fmt: skip


class TestTasks:
    def test_one_object_per_task(self, cli: Cli) -> None:
        ran = cli("tasks", PP3, "--format", "json")
        assert ran.status == 0, ran.err
        assert ran.json["schema_version"] == SCHEMA_VERSION
        tasks = ran.json["tasks"]
        for task in tasks:
            assert task.keys() >= TASK_KEYS
            assert task["pid"] > 0
            if task["delays"]:
                assert 0 <= task["delay_avg_ns"] <= task["delay_max_ns"]
            else:
                assert task["delay_avg_ns"] is None and task["delay_max_ns"] is None
        assert {f"pp-{s}-{i}" for s in "ab" for i in range(3)} <= {t["comm"] for t in tasks}

    def test_formats_hold_the_same_rows(self, cli: Cli) -> None:
        tasks = cli("tasks", PP3, "--format", "json").json["tasks"]
        lines = cli("tasks", PP3, "--format", "ndjson").out.splitlines()
        assert [json.loads(line) for line in lines] == [
            {"schema_version": SCHEMA_VERSION, **task} for task in tasks
        ]
        rows = list(csv.DictReader(io.StringIO(cli("tasks", PP3, "--format", "csv").out)))
        for row, task in zip(rows, tasks, strict=True):
            for key, value in task.items():
                assert row[key] == ("" if value is None else str(value))

    def test_selection_of_rows_changes_no_value(self, cli: Cli) -> None:
        tasks = cli("tasks", PP3, "--format", "json").json["tasks"]
        tid = next(t["pid"] for t in tasks if t["comm"] == "pp-a-1")
        for args, keep in (
            (("--comm", "pp-a-*"), lambda t: t["comm"].startswith("pp-a-")),
            (("--comm", "pp-a-0", "--comm", "pp-b-0"), lambda t: t["comm"] in ("pp-a-0", "pp-b-0")),
            (("-t", str(tid)), lambda t: t["pid"] == tid),
            (("-p", str(tid)), lambda t: (t["tgid"] or t["pid"]) == tid),
        ):
            got = cli("tasks", PP3, *args, "--format", "json").json["tasks"]
            assert got == [t for t in tasks if keep(t)]
            assert got

    def test_idle_tasks_on_request(self, cli: Cli) -> None:
        got = cli("tasks", PP3, "--tid", "0", "--format", "json").json["tasks"]
        assert got and {t["class"] for t in got} == {"idle"}

    def test_sort_and_limit(self, cli: Cli) -> None:
        rows = cli("tasks", PP3, "-s", "wakeups", "-n", "3", "--format", "json").json["tasks"]
        assert len(rows) == 3
        assert [r["wakeups"] for r in rows] == sorted((r["wakeups"] for r in rows), reverse=True)
        by_name = cli("tasks", PP3, "-s", "comm", "--format", "json").json["tasks"]
        assert [r["comm"] for r in by_name] == sorted(r["comm"] for r in by_name)
        assert "more (use -n 0)" in cli("tasks", PP3, "-n", "2").out

    def test_time_span(self, cli: Cli) -> None:
        every = cli("tasks", PP3, "--format", "json").json["tasks"]
        half = cli("tasks", PP3, "--time", "0%-50%", "--format", "json").json["tasks"]
        total, part = (sum(t["switches"] for t in x) for x in (every, half))
        assert 0.3 * total < part < 0.7 * total
        seconds = max(t["first_ts"] for t in half) // 1000
        text = f"{seconds // 10**6}.{seconds % 10**6:06d}"
        later = cli("tasks", PP3, "--time", f"{text},", "--format", "json").json["tasks"]
        assert all(t["first_ts"] >= seconds * 1000 for t in later)

    def test_ignored_event_is_as_if_not_recorded(self, cli: Cli) -> None:
        tasks = cli("tasks", PP3, "--ignore", "sched_stat_runtime", "--format", "json").json
        assert {t["dur_avg_source"] for t in tasks["tasks"]} <= {None, "switches"}


class TestWakeups:
    def test_agrees_with_the_known_delays(self, cli: Cli, sample_counts: dict[str, Any]) -> None:
        """sched_wakeup -> switch-in, counted by a reader that shares nothing with this one."""
        known = sample_counts["pp6-base.dat"]["queue_delay_ns"]
        rows = cli("wakeups", SAMPLES / "pp6-base.dat", "--format", "json").json["latencies"]
        row = next(r for r in rows if r["latency"] == "queue_delay")
        assert row["n"] == pytest.approx(known["n"], rel=1e-3)
        for q in ("p50", "p90", "p99", "max"):
            assert row[f"{q}_ns"] == pytest.approx(known[q], rel=0.02), q

    @pytest.mark.parametrize("by", ["wakee", "pair", "target", "queueing", "kind", "cpu"])
    def test_groups_add_up(self, cli: Cli, by: str) -> None:
        def total(*args: str) -> int:
            rows = cli("wakeups", PP3, *args, "--format", "json").json["latencies"]
            return sum(r["n"] for r in rows if r["latency"] == "wakeup_latency")

        assert total("--by", by) == total() > 1000

    def test_rows(self, cli: Cli) -> None:
        rows = cli("wakeups", PP3, "--rows", "--comm", "pp-a-0", "--format", "json").json["wakeups"]
        assert rows and {r["wakee"] for r in rows} == {"pp-a-0"}
        for row in rows:
            if row["queue_delay_ns"] is not None:
                assert row["queue_delay_ns"] == max(0, row["run_ts"] - row["wakeup_ts"])


class TestIdle:
    def test_agrees_with_the_known_share(self, cli: Cli, sample_counts: dict[str, Any]) -> None:
        for name in ("pp6-base.dat", "proxy-base.dat.xz"):
            out = cli("idle", SAMPLES / name, "--format", "json").json
            share = sum(r["idle_ns"] for r in out["cpus"]) / (8 * out["span_ns"])
            assert share == pytest.approx(sample_counts[name]["idle_share"], abs=0.001)

    def test_cpu_list(self, cli: Cli) -> None:
        rows = cli("idle", PP3, "-C", "1,3-4", "--format", "json").json["cpus"]
        assert [r["cpu"] for r in rows] == [1, 3, 4]

    def test_gaps(self, cli: Cli) -> None:
        rows = cli("idle", PP3, "--rows", "-C", "2", "--format", "json").json["idle_gaps"]
        assert {r["cpu"] for r in rows} == {2}
        for r in rows:
            assert 0 <= r["waited_llc_ns"] <= r["waited_any_ns"]


class TestWhatif:
    @pytest.fixture
    def document(self, cli: Cli) -> dict[str, Any]:
        ran = cli("whatif", SAMPLES / "pp6-base.dat", "--format", "json")
        assert ran.status == 0, ran.err
        return dict(ran.json)

    def test_keys(self, document: dict[str, Any]) -> None:
        assert document["schema_version"] == SCHEMA_VERSION
        rules = {r["rule"] for r in document["rules"]}
        assert rules >= {"recorded", "sis_short_v5", "abel", "prev_cpu", "this_cpu"}
        for rule in document["rules"]:
            assert rule.keys() >= {"rule", "decisions", "moved", "reasons", "idle_delta_ns"}
            for name in ("queue_delay_ns", "wakeup_latency_ns"):
                for q in ("p50", "p90", "p99"):
                    assert rule[name][q].keys() >= {"recorded", "estimated"}

    def test_recorded_changes_nothing(self, document: dict[str, Any]) -> None:
        rule = next(r for r in document["rules"] if r["rule"] == "recorded")
        assert rule["moved"] == 0
        for name in ("queue_delay_ns", "wakeup_latency_ns"):
            for q in ("p50", "p90", "p99"):
                assert rule[name][q]["estimated"] == rule[name][q]["recorded"]

    def test_threshold_of_nothing_moves_nothing(self, cli: Cli) -> None:
        ran = cli(
            "whatif", PP3, "--rule", "sis_short_v5", "--param", "sis_short_v5.threshold_ns=0",
            "--format", "json",
        )  # fmt: skip
        assert ran.status == 0, ran.err
        [rule] = ran.json["rules"]
        assert rule["moved"] == 0

    def test_table_says_what_it_is(self, cli: Cli) -> None:
        assert "estimated, open loop" in cli("whatif", PP3, "--rule", "abel").out


class TestRules:
    def test_list(self, cli: Cli) -> None:
        names = {r["rule"] for r in cli("rules", "--format", "json").json["rules"]}
        assert names >= {"recorded", "sis_short_v5", "abel", "prev_cpu", "this_cpu"}

    def test_explain(self, cli: Cli) -> None:
        text = cli("rules", "sis_short_v5").out
        for word in ("Source", "Conditions", "Limits", "sis_short_v5.threshold_ns", "Reasons"):
            assert word in text


class TestConvert:
    def test_every_verb_reads_the_store(self, cli: Cli, tmp_path: Path) -> None:
        store = tmp_path / "pp3.traceana"
        ran = cli("convert", PP3, "-o", store)
        assert ran.status == 0, ran.err
        assert ran.out == ""
        for verb in READERS:
            one, other = (cli(verb, x, "--format", "json") for x in (PP3, store))
            assert other.status == 0, other.err
            a, b = one.json, other.json
            if verb == "info":  # says that it is a store, and holds known events only
                for d in (a, b):
                    d.pop("form")
            assert a == b, verb
        again = cli("convert", PP3, "-o", store)
        assert again.status == 2 and one_line(again.err) and "--force" in again.err
        assert cli("convert", PP3, "-o", store, "--force").status == 0

    def test_some_tables(self, cli: Cli, tmp_path: Path) -> None:
        store = tmp_path / "x.traceana"
        assert cli("convert", PP3, "-o", store, "--tables", "tasks,wakeups").status == 0
        held = {p.stem for p in store.glob("*.parquet")}
        assert held >= {"tasks", "wakeups"} and not held & {"events", "slices", "idle_gaps"}

    def test_other_tools_read_it(self, cli: Cli, tmp_path: Path) -> None:
        import polars

        store = tmp_path / "x.traceana"
        assert cli("convert", PP3, "-o", store).status == 0
        wakeups = polars.read_parquet(store / "wakeups.parquet")
        assert wakeups["queue_delay_ns"].drop_nulls().min() >= 0

    def test_what_is_no_store_is_not_overwritten(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious" / "file").touch()
        ran = cli("convert", PP3, "-o", tmp_path / "precious", "--force")
        assert ran.status == 2 and one_line(ran.err)
        assert (tmp_path / "precious" / "file").exists()


class TestOutput:
    def test_file_is_written_whole_and_not_overwritten(self, cli: Cli, tmp_path: Path) -> None:
        out = tmp_path / "tasks.json"
        args = ("tasks", PP3, "--format", "json", "-o", out)
        ran = cli(*args)
        assert (ran.status, ran.out) == (0, "")
        assert json.loads(out.read_text()) == cli("tasks", PP3, "--format", "json").json
        assert out.stat().st_mode & 0o777 == 0o666 & ~_umask()
        again = cli(*args)
        assert again.status == 2
        assert again.err == f"traceana: {out} exists; use --force to overwrite\n"
        assert cli(*args, "--force").status == 0
        assert [p.name for p in tmp_path.iterdir()] == ["tasks.json"]

    def test_a_device_needs_no_force(self, cli: Cli) -> None:
        assert cli("info", PP3, "-o", "/dev/null").status == 0
        assert Path("/dev/null").is_char_device()

    def test_full_disk_is_one_line(self) -> None:
        if not Path("/dev/full").exists():
            pytest.skip("no /dev/full here")
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "traceana", "info", HOSTILE], stdout=full,
                stderr=subprocess.PIPE, text=True, cwd=ROOT,
            )  # fmt: skip
        assert done.returncode == 2
        assert one_line(done.stderr) and "no space left" in done.stderr

    def test_reader_of_the_pipe_gone(self) -> None:
        command = [sys.executable, "-m", "traceana", "wakeups", PP3, "--rows", "-n", "0"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
        ) as child:
            assert child.stdout is not None and child.stderr is not None
            child.stdout.close()
            assert child.stderr.read() == ""
        assert child.returncode == 141

    def test_no_colour_and_no_progress_on_pipes(self, cli: Cli) -> None:
        ran = cli("tasks", PP3)
        assert "\x1b" not in ran.out and "\r" not in ran.err
        assert "\x1b[1m" in cli("tasks", PP3, "--color", "always").out

    def test_same_input_same_bytes(self, cli: Cli) -> None:
        for verb in READERS:
            first, second = (cli(verb, PP3, "--format", "json") for _ in range(2))
            assert first.out == second.out

    def test_terminal_has_colour_unless_told_otherwise(self) -> None:
        def shown(**env: str) -> str:
            main, child = pty.openpty()
            done = subprocess.run(
                [sys.executable, "-m", "traceana", "tasks", PP3, "-q"], stdout=child, cwd=ROOT,
                env={**os.environ, "TERM": "xterm", **env},
            )  # fmt: skip
            os.close(child)
            out = b""
            try:
                while block := os.read(main, 65536):
                    out += block
            except OSError:  # the other side is closed
                pass
            os.close(main)
            assert done.returncode == 0
            return out.decode()

        assert "\x1b[1m" in shown(NO_COLOR="")
        assert "\x1b" not in shown(NO_COLOR="1")
        assert "\x1b" not in shown(TERM="dumb", NO_COLOR="")


class TestHostileNames:
    def test_nothing_reaches_the_terminal_raw(self, cli: Cli) -> None:
        names = {t["comm"] for t in cli("tasks", HOSTILE, "--format", "json").json["tasks"]}
        assert any("<" in n for n in names), "the sample has lost its hostile names"
        for form in ("table", "csv", "md", "ndjson", "json"):
            for verb in ("tasks", "wakeups"):
                out = cli(verb, HOSTILE, "--format", form).out
                assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out), (verb, form)
        raw = cli("tasks", HOSTILE, "--format", "csv").out
        assert {r["comm"] for r in csv.DictReader(io.StringIO(raw))} >= {
            n for n in names if n.isprintable()
        }

    def test_markdown_cells_hold_no_markup(self, cli: Cli) -> None:
        out = cli("tasks", HOSTILE, "--format", "md").out
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in out.splitlines() if "|" in line}
        assert len(widths) == 1, "a name has added a column"
        assert not re.search(r"(?<!\\)<script", out)


class TestLosses:
    def test_warning_and_status(self, cli: Cli, shared: Path) -> None:
        file = shared / "captures" / "perf" / "lost-small.perf.data.xz"
        plain = cli("info", file, "--format", "json")
        if plain.status == 3:
            pytest.skip("this form is not read yet")
        assert plain.status == 0
        assert plain.json["lost"]["marks"] > 0
        assert "warning" in plain.err and "lost" in plain.err
        assert cli("info", file, "-q").err == ""
        assert cli("info", file, "--fail-on-loss").status == 4

    def test_none_lost_is_no_warning(self, cli: Cli) -> None:
        ran = cli("info", PP3, "--fail-on-loss")
        assert ran.status == 0 and ran.err == ""


class TestFaults:
    def test_a_fault_of_our_own_is_one_line(self) -> None:
        code = (
            "import sys, traceana.capture as c\n"
            "def broken(*a, **k): raise KeyError('inside')\n"
            "c.open = broken\n"
            "from traceana.cli import main\n"
            "sys.exit(main(['info', 'x']))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 70
        assert one_line(done.stderr) and "KeyError" in done.stderr and "--debug" in done.stderr
        shown = subprocess.run(
            [sys.executable, "-c", code.replace("'x'", "'x', '--debug'")],
            capture_output=True,
            text=True,
        )
        assert "Traceback" in shown.stderr

    def test_interrupted(self) -> None:
        # Whoever starts this in the background of a shell has SIGINT ignored.
        before = signal.getsignal(signal.SIGINT)
        code = (
            "import os, signal, sys, traceana.capture as c\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "def slow(*a, **k): os.kill(os.getpid(), signal.SIGINT)\n"
            "c.open = slow\n"
            "from traceana.cli import main\n"
            "sys.exit(main(['info', 'x']))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 130
        assert done.stderr == "traceana: interrupted\n"
        assert signal.getsignal(signal.SIGINT) is before

    def test_cache_that_cannot_be_written(self, shell: Cli, tmp_path: Path) -> None:
        blocked = tmp_path / "file"
        blocked.touch()  # a file where a folder would have to be: unwritable for root, too
        ran = shell(
            "info", HOSTILE, "--format", "json",
            NUMBA_CACHE_DIR="", XDG_CACHE_HOME=str(blocked), HOME=str(blocked),
        )  # fmt: skip
        assert ran.status == 0, ran.err
        assert one_line(ran.err) and "no cache folder can be written" in ran.err
        assert ran.json["events"]


class TestReport:
    def test_to_a_file(self, cli: Cli, tmp_path: Path) -> None:
        out = tmp_path / "report.html"
        ran = cli("report", PP3, "-o", out)
        assert ran.status == 0, ran.err
        assert out.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
        lines = ran.out.splitlines()
        assert lines[-1] == str(out)
        assert len(lines) > 2 and "12,105 events" in ran.out
        again = cli("report", PP3, "-o", out)
        assert again.status == 2 and "--force" in again.err

    def test_to_standard_output(self, cli: Cli) -> None:
        ran = cli("report", PP3, "--format", "json")
        assert ran.status == 0, ran.err
        assert ran.json["schema_version"] == SCHEMA_VERSION
        assert cli("report", PP3, "--format", "md").out.startswith("#")
        assert cli("report", PP3, "-o", "-").out.lstrip().lower().startswith("<!doctype html>")

    def test_default_name(self, tmp_path: Path) -> None:
        shutil.copy(HOSTILE, tmp_path / "x.dat")
        done = subprocess.run(
            [sys.executable, "-m", "traceana", "report", "x.dat"], cwd=tmp_path,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "report.html").exists()
        assert done.stdout.splitlines()[-1] == "report.html"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
