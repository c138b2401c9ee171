"""``traceana batch``: killed and started again, changed, damaged, labelled; pool and Dask alike."""

from __future__ import annotations

import http.server
import json
import lzma
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from many_captures import begun_after_end, content, ends, journal, make

from traceana import _batch_pool, batch
from traceana._batch_inputs import Labels, Source, digest, expand, stamp
from traceana._batch_jobs import Asked
from traceana._batch_measure import measure
from traceana._batch_store import Dataset, is_dataset
from traceana._batch_tables import OWN, docs
from traceana._batch_work import bounded
from traceana.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"
N = 15


def facts(dataset: Path) -> dict[str, dict[str, Any]]:
    """Name of the capture -> its row of facts."""
    found = {}
    for file in dataset.glob("capture=*/facts.parquet"):
        (row,) = pq.ParquetFile(file).read().to_pylist()
        found[row["source"].rpartition("/")[2]] = row
    return found


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    assert len(make(folder, N)) == N
    return folder


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, captures: Path) -> tuple[Path, batch.Summary]:
    """The dataset of an undisturbed run."""
    target = tmp_path_factory.mktemp("calm") / "dataset"
    return target, batch.run([str(captures)], target, jobs=2)


class TestDataset:
    def test_every_capture_has_a_row(self, calm: tuple[Path, batch.Summary]) -> None:
        path, summary = calm
        assert summary.captures == summary.computed == N == len(facts(path))
        assert summary.of("ok") + summary.of("damaged") + summary.of("failed") == N

    def test_damaged_and_failed_ones_have_reasons(self, calm: tuple[Path, batch.Summary]) -> None:
        path, summary = calm
        rows = facts(path)
        assert {r["status"] for r in rows.values()} == {"ok", "damaged", "failed"}
        assert all((r["reason"] is None) == (r["status"] == "ok") for r in rows.values())
        assert all(r["exit_status"] == 4 for r in rows.values() if r["status"] == "damaged")
        told = {p.source.rpartition("/")[2]: (p.status, p.reason) for p in summary.problems}
        assert told == {
            n: (r["status"], r["reason"]) for n, r in rows.items() if r["status"] != "ok"
        }

    def test_all_partitions_have_the_same_columns(self, calm: tuple[Path, batch.Summary]) -> None:
        for folder in calm[0].glob("capture=*"):
            for name, spec in OWN.items():
                assert pq.read_schema(folder / f"{name}.parquet").equals(spec)

    def test_every_column_is_explained(self) -> None:
        for name in ("facts", "gains", "workloads"):
            assert list(docs(name)) == OWN[name].names
            assert all(docs(name).values())

    def test_figures_are_those_of_the_verbs(
        self, calm: tuple[Path, batch.Summary], captures: Path, cli: Callable[..., Any]
    ) -> None:
        name = "kernel-6.2.dat"
        path = next(captures.rglob(name))
        row = facts(calm[0])[name]
        idle = cli("idle", path, "--format", "json").json
        assert row["idle_share"] == pytest.approx(idle["idle_share"])
        rows = cli("wakeups", path, "--format", "json").json["latencies"]
        for r in rows:
            if r["latency"] in ("wakeup_latency", "queue_delay"):
                for q in ("p50", "p99", "max"):
                    assert row[f"{r['latency']}_{q}_ns"] == r[f"{q}_ns"]
        found = cli("whatif", path, "--rule", "sis_short_v5", "--format", "json").json
        part = calm[0] / f"capture={Source.of(str(path)).id}"
        (gain,) = [
            r for r in pq.ParquetFile(part / "gains.parquet").read().to_pylist()
            if r["rule"] == "sis_short_v5"
        ]  # fmt: skip
        told = found["rules"][0]
        assert (gain["decisions"], gain["moved"]) == (told["decisions"], told["moved"])
        assert gain["queue_delay_p99_gain_ns"] == -told["queue_delay_ns"]["p99"]["delta"]
        assert row["exact"] == found["fidelity"]["exact"]

    def test_workloads_add_up(self, calm: tuple[Path, batch.Summary]) -> None:
        for folder in calm[0].glob("capture=*"):
            (row,) = pq.ParquetFile(folder / "facts.parquet").read().to_pylist()
            workloads = pq.ParquetFile(folder / "workloads.parquet").read().to_pylist()
            assert sum(w["wakeups"] for w in workloads) == (row["wakeups"] or 0)
            assert sum(w["queue_delay_n"] for w in workloads) == (row["queue_delay_n"] or 0)

    def test_a_damaged_time_months_ahead_does_not_hold_it_up(self, tmp_path: Path) -> None:
        lines = (SAMPLES / "pp3-plain.trace.txt.xz").read_bytes()
        text = lzma.decompress(lines).decode().splitlines(keepends=True)[:2000]
        ahead = [re.sub(r"\b\d+(\.\d{6}):", r"25000000\1:", x, count=1) for x in text[1000:]]
        assert ahead != text[1000:]
        path = tmp_path / "ahead.txt"
        path.write_text("".join([*text[:1000], *ahead]))
        (row,) = measure(path, Asked()).tables["facts"].to_pylist()
        assert row["span_ns"] > 2 * 10**16 and row["explained"] > 100


class TestAgain:
    def test_killed_and_started_again(
        self, calm: tuple[Path, batch.Summary], captures: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "dataset"
        words = [sys.executable, "-m", "traceana", "batch", captures, "-o", target, "-j", "2"]
        for after in (3, 8):
            run = subprocess.Popen(
                words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            while ends(target) < after and run.poll() is None:
                time.sleep(0.01)
            run.send_signal(signal.SIGKILL)
            assert run.wait() == -signal.SIGKILL
            assert after <= ends(target) < N
        summary = batch.run([str(captures)], target, jobs=2)
        assert content(target) == content(calm[0])
        assert begun_after_end(target) == []
        assert 0 < summary.computed <= N - 8
        assert not list(target.glob(".part-*"))

    def test_nothing_changed_nothing_done(
        self, calm: tuple[Path, batch.Summary], captures: Path
    ) -> None:
        summary = batch.run([str(captures)], calm[0], jobs=1)
        assert (summary.computed, summary.kept) == (0, N)
        assert summary.problems == calm[1].problems

    def test_what_changed_is_done_again(self, tmp_path: Path) -> None:
        files = make(tmp_path / "in", 3)
        target = tmp_path / "dataset"
        asked = Asked(rules=("prev_cpu",))
        ask = partial(batch.run, [str(tmp_path / "in")], target, jobs=1)
        assert ask(asked=asked).computed == 3
        # Touched, the same content: read, but not measured.
        os.utime(files[0])
        before = len(list(journal(target)))
        summary = ask(asked=asked)
        assert (summary.computed, summary.kept) == (0, 3)
        new = [(j["event"], j["why"]) for j in list(journal(target))[before:]]
        assert new == [("begin", "touched"), ("kept", "same content")]
        # Other content, the file's times set back.
        told = files[0].stat()
        data = files[0].read_bytes()
        files[0].write_bytes(data[: data.rindex(b"\n", 0, -1) + 1].ljust(len(data), b"\n"))
        os.utime(files[0], ns=(told.st_atime_ns, told.st_mtime_ns))
        assert files[0].stat().st_size == len(data)
        assert ask(asked=asked).computed == 1
        # A side file that comes into being is read with its capture.
        files[1].with_name(files[1].name + ".topology.json").write_text(
            (SAMPLES / "pp6-base.dat.topology.json").read_text()
        )
        assert ask(asked=asked).computed == 1
        # Another rule.
        assert ask(asked=Asked(rules=("this_cpu",))).computed == 3

    def test_a_rule_file_that_changes_is_another_rule(self, tmp_path: Path) -> None:
        rule = tmp_path / "mine.py"
        rule.write_text((ROOT / "traceana" / "rules" / "prev_cpu.py").read_text())
        first = batch._made_by(Asked(rules=(str(rule),)))
        assert first == batch._made_by(Asked(rules=(str(rule),)))
        rule.write_text(rule.read_text() + "\n# more\n")
        assert batch._made_by(Asked(rules=(str(rule),))) != first

    def test_what_is_not_there_is_tried_again(self, tmp_path: Path) -> None:
        path = tmp_path / "late.dat"
        ask = partial(batch.run, [str(path)], tmp_path / "dataset", jobs=1)
        summary = ask()
        assert [p.status for p in summary.problems] == ["failed"]
        path.write_bytes((SAMPLES / "hostile.dat").read_bytes())
        summary = ask()
        assert (summary.computed, summary.problems) == (1, [])

    def test_two_at_once_are_refused(self, tmp_path: Path) -> None:
        with Dataset(tmp_path / "d"), pytest.raises(UsageError, match="another batch"):
            Dataset(tmp_path / "d")

    def test_a_folder_of_something_else_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(UsageError, match="something else"):
            Dataset(tmp_path)
        assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


class TestPool:
    def test_a_worker_that_dies_takes_one_capture_with_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The worker's own code is replaced by way of a module that it imports.
        (tmp_path / "sitecustomize.py").write_text(
            "import sys\n"
            f"sys.path[:0] = [{str(ROOT)!r}]\n"
            "import os, signal\n"
            "import traceana._batch_measure as m\n"
            "real = m.measure\n"
            "def measure(path, asked):\n"
            "    if path.name == 'hostile.dat':\n"
            "        os.kill(os.getpid(), signal.SIGSEGV)\n"
            "    return real(path, asked)\n"
            "m.measure = measure\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        names = ["hostile.dat", "mix-wrapped.dat", "switch-only.dat.xz"]
        target = tmp_path / "dataset"
        summary = batch.run([str(SAMPLES / n) for n in names], target, jobs=2)
        rows = facts(target)
        assert {n: rows[n]["status"] for n in names} == {
            "hostile.dat": "failed",
            "mix-wrapped.dat": "ok",
            "switch-only.dat.xz": "ok",
        }
        assert "SIGSEGV, 2 times" in rows["hostile.dat"]["reason"]
        assert summary.of("failed") == 1
        monkeypatch.delenv("PYTHONPATH")
        again = batch.run([str(SAMPLES / n) for n in names], target, jobs=1)
        assert (again.computed, again.problems) == (1, [])

    def test_a_capture_that_takes_too_long_fails(self, tmp_path: Path) -> None:
        path = tmp_path / "slow.dat"
        path.write_bytes((SAMPLES / "hostile.dat").read_bytes())
        summary = batch.run([str(path)], tmp_path / "d", jobs=1, limit=0.05)
        assert [(p.status, p.reason) for p in summary.problems] == [
            ("failed", "no result: not done after 0.05 s")
        ]
        assert batch.run([str(path)], tmp_path / "d", jobs=1).problems == []

    def test_memory_beyond_the_bound_fails(self) -> None:
        import numpy as np

        with bounded(600 << 20), pytest.raises(MemoryError):
            np.ones(80 << 20)
        assert np.ones(8 << 20).size == 8 << 20

    def test_bound_and_jobs_are_checked(self, tmp_path: Path) -> None:
        for options in ({"memory": 1 << 20}, {"jobs": 0}, {"asked": Asked(tables=("nope",))}):
            with pytest.raises(UsageError):
                batch.run([str(SAMPLES)], tmp_path / "d", **options)  # type: ignore[arg-type]
        assert not (tmp_path / "d").exists()

    def test_default_jobs_fit_into_memory(self) -> None:
        assert batch._default_jobs(1 << 60) == 1
        assert batch._default_jobs(1) == len(os.sched_getaffinity(0))

    def test_workers_compute_on_one_cpu_each(self) -> None:
        before = dict(os.environ)
        with _batch_pool._single_threaded():
            assert os.environ["NUMBA_NUM_THREADS"] == "1"
        assert dict(os.environ) == before


class TestInputs:
    def test_folders_patterns_and_side_files(self, tmp_path: Path) -> None:
        for name in ("a.dat", "a.dat.topology.json", "b/c.dat", "b/.hidden", "d.html"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("x")
        (tmp_path / "capture=x").mkdir()
        (tmp_path / "capture=x" / "facts.parquet").write_text("x")
        both = [str(tmp_path / "a.dat"), str(tmp_path / "b" / "c.dat")]
        assert [s.path for s in expand([str(tmp_path)])] == both
        assert [s.path for s in expand([str(tmp_path / "**" / "*.dat")])] == both
        assert [s.path for s in expand([both[1], str(tmp_path), both[1]])] == both
        for wrong in (str(tmp_path / "*.none"), "", "-", str(tmp_path / "capture=x")):
            with pytest.raises(UsageError):
                expand([wrong])

    def test_ids_are_harmless_and_differ(self) -> None:
        hostile = Source.of("/tmp/../etc/x y\n;$(rm)/..\udcff=\x1b[2J.dat")
        assert hostile.id.isascii() and hostile.id.isprintable()
        assert not set(hostile.id) & set("/= $\\")
        assert Source.of("/a/x.dat").id != Source.of("/b/x.dat").id

    def test_stamps_and_digests(self, tmp_path: Path) -> None:
        a, b = tmp_path / "a", tmp_path / "b"
        a.write_bytes(b"1")
        b.write_bytes(b"1")
        assert digest(a) == digest(b)
        assert stamp(Source.of(str(a))) != stamp(Source.of(str(b)))
        assert stamp(Source.of(str(tmp_path / "none"))) is None

    def test_labels(self) -> None:
        both = Labels("host-{host}/kernel-{kernel}.dat")
        assert both.read("/d/host-a-b/kernel-6.1.dat") == {"host": "a-b", "kernel": "6.1"}
        assert both.read("/d/xhost-a/kernel-6.1.dat") == {}
        assert both.read("/d/host-a/kernel-6.1.dat.xz") == {}
        assert Labels("{n}-*.dat").read("/d/pp6-base.dat") == {"n": "pp6"}
        for wrong in ("host", "{a}-{a}", "{a-b}", "{}", "{A}{a}", "{a}{", "}{a}", "{a}}"):
            with pytest.raises(UsageError):
                Labels(wrong)

    def test_labels_change_without_measuring(
        self, calm: tuple[Path, batch.Summary], captures: Path
    ) -> None:
        path = calm[0]
        before = content(path)
        given = partial(batch.run, [str(captures)], path, jobs=1)
        summary = given(labels=["host-{host}/*", "{what}-{kernel}.*"])
        assert (summary.computed, summary.relabelled, summary.unlabelled) == (0, N, 0)
        row = facts(path)["kernel-6.2.dat"]
        assert json.loads(row["labels"]) == {"host": "2", "kernel": "6", "what": "kernel"}
        given()
        assert content(path) == before

    def test_urls(self, tmp_path: Path) -> None:
        pytest.importorskip("fsspec")
        pytest.importorskip("aiohttp")
        handler = partial(_Quiet, directory=str(SAMPLES))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            base = f"http://127.0.0.1:{server.server_port}"
            urls = [f"{base}/hostile.dat", f"{base}/none.dat"]
            target = tmp_path / "dataset"
            summary = batch.run(urls, target, jobs=1)
            server.shutdown()
        assert [p.source for p in summary.problems] == [urls[1]]
        row = facts(target)["hostile.dat"]
        assert (row["source"], row["digest"]) == (urls[0], digest(SAMPLES / "hostile.dat")[0])
        local = measure(SAMPLES / "hostile.dat", Asked()).tables["facts"].to_pylist()[0]
        own = {"source", "bytes", "digest", "labels"}
        assert {k: v for k, v in row.items() if k not in own} == {
            k: v for k, v in local.items() if k not in own
        }


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class TestCommand:
    def test_summary_and_status(
        self, cli: Callable[..., Any], captures: Path, calm: tuple[Path, batch.Summary]
    ) -> None:
        ran = cli("batch", captures, "-o", calm[0], "--format", "json")
        assert ran.status == 4
        told = ran.json
        assert (told["captures"], told["computed"], told["kept"]) == (N, 0, N)
        assert told["damaged"] + told["failed"] == len(told["problems"]) > 0
        assert "say why" in ran.err
        assert (
            cli("batch", captures, "-o", calm[0]).out.splitlines()[-1].startswith(f"{N} captures")
        )

    def test_all_well_is_0(self, cli: Callable[..., Any], tmp_path: Path) -> None:
        ran = cli("batch", SAMPLES / "hostile.dat", "-o", tmp_path / "d", "--tables", "wakeups")
        assert (ran.status, ran.err) == (0, "")
        assert ran.out == "1 capture: 1 computed, 0 kept; 1 ok, 0 damaged, 0 failed\n"
        assert len(list((tmp_path / "d").glob("capture=*/wakeups.parquet"))) == 1

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ((), "name captures"),
            ((SAMPLES / "hostile.dat",), "-o DATASET"),
            ((SAMPLES, "-o", "D", "--memory", "much"), "--memory much"),
            ((SAMPLES, "-o", "D", "--label", "x"), "--label x"),
            ((SAMPLES, "-o", "D", "--rule", "nope"), "nope"),
            ((SAMPLES, "-o", "D", "-j", "0"), "--jobs 0"),
            (("nofs://x/*", "-o", "D"), "nofs"),
        ],
    )
    def test_usage(
        self, cli: Callable[..., Any], tmp_path: Path, words: tuple[Any, ...], said: str
    ) -> None:
        target = tmp_path / "d"
        ran = cli("batch", *(target if w == "D" else w for w in words))
        assert ran.status == 2
        assert said in ran.err and "Traceback" not in ran.err
        assert not is_dataset(target)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and two worker processes."""
    pytest.importorskip("distributed")
    place = tmp_path / "scheduler.json"
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "dask", *words], cwd=tmp_path, env=env,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
        )  # fmt: skip

    try:
        start("scheduler", "--scheduler-file", str(place), "--host", "127.0.0.1", "--port", "0",
              "--no-dashboard")  # fmt: skip
        until = time.monotonic() + 60
        while not place.exists():
            assert time.monotonic() < until, "no scheduler"
            time.sleep(0.05)
        address = json.loads(place.read_text())["address"]
        for _ in range(2):
            start("worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
                  "--local-directory", str(tmp_path))  # fmt: skip
        yield address, started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


class TestDask:
    def test_the_same_dataset_and_a_killed_worker_loses_nothing(
        self,
        cluster: tuple[str, list[subprocess.Popen[bytes]]],
        calm: tuple[Path, batch.Summary],
        captures: Path,
        tmp_path: Path,
    ) -> None:
        address, workers = cluster
        target = tmp_path / "dataset"
        run = subprocess.Popen(
            [sys.executable, "-m", "traceana", "batch", captures, "-o", target, "--dask", address,
             "-q"],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        while ends(target) < 4 and run.poll() is None:
            time.sleep(0.02)
        workers[0].kill()
        _, said = run.communicate(timeout=200)
        assert run.returncode == 4, said
        assert "Traceback" not in said
        assert content(target) == content(calm[0])
        assert begun_after_end(target) == []

    def test_nobody_listens(self, cli: Callable[..., Any], tmp_path: Path) -> None:
        pytest.importorskip("distributed")
        ran = cli("batch", SAMPLES / "hostile.dat", "-o", tmp_path / "d", "--dask", "nonsense:1:2")
        assert ran.status == 2
        assert "no scheduler there" in ran.err
