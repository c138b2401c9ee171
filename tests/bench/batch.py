"""Batches at their full size: kills, a Dask cluster, speed-up, memory, and a fleet of 1,000.

    python tests/bench/batch.py [kills] [dask] [speed] [fleet]

Prints figures; ends with status 1 where one of them is not what issue 13 asks for.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from many_captures import SAMPLES, begun_after_end, content, ends, journal, make

CAPTURES = 200
failed: list[str] = []


def say(what: str, ok: bool, told: str) -> None:
    print(f"{'ok ' if ok else 'NOT'} {what}: {told}", flush=True)
    if not ok:
        failed.append(what)


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "traceana", *map(str, words)]


def run(*words: str | Path) -> tuple[float, dict[str, int]]:
    begin = time.monotonic()
    done = subprocess.run(command(*words, "--format", "json"), capture_output=True, text=True)
    assert done.returncode in (0, 4), done.stderr
    return time.monotonic() - begin, json.loads(done.stdout)


def killed(words: list[str | Path], dataset: Path, after: int) -> None:
    """Start a batch and kill it once so many more captures are done."""
    target = ends(dataset) + after
    batch = subprocess.Popen(command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while ends(dataset) < target and batch.poll() is None:
        time.sleep(0.01)
    time.sleep(random.random() * 0.3)
    batch.send_signal(signal.SIGKILL)
    batch.wait()


def kills(work: Path, captures: Path, calm: Path) -> None:
    rng = random.Random()
    rough = work / "rough"
    for _ in range(3):
        killed(["batch", captures, "-o", rough, "-j", "2"], rough, rng.randrange(15, 55))
    _, told = run("batch", captures, "-o", rough, "-j", "2")
    _, again = run("batch", captures, "-o", rough, "-j", "2")
    begins = Counter(j["capture"] for j in journal(rough) if j["event"] == "begin")
    say("rows equal after three kills", content(rough) == content(calm), f"{told}"[:200])
    say("nothing done twice", not begun_after_end(rough), f"{sum(begins.values())} begun, "
        f"{sum(n > 1 for n in begins.values())} of {len(begins)} in flight at a kill")  # fmt: skip
    say("nothing left to do", again["computed"] == 0, f"{again['kept']} kept")


def speed(work: Path) -> None:
    # As large as the samples are: of tiny ones the start of the workers is what is measured.
    captures = work / "larger"
    captures.mkdir()
    for i in range(40):
        shutil.copy(SAMPLES / "pp6-base.dat", captures / f"{i}.dat")
    best: dict[int, float] = {}
    for jobs in (1, 2, 1, 2):
        target = work / f"jobs{jobs}"
        shutil.rmtree(target, ignore_errors=True)
        seconds, _ = run("batch", captures, "-o", target, "-j", str(jobs))
        best[jobs] = min(best.get(jobs, 1e9), seconds)
    ratio = best[1] / best[2]
    say("two workers >= 1.8 x one", ratio >= 1.8, f"{best[1]:.1f} s, {best[2]:.1f} s: {ratio:.2f}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    say("peak of any process <= 2 GiB", peak <= 2 << 20, f"{peak >> 10} MiB")


def dask(work: Path, captures: Path, calm: Path) -> None:
    started = []
    log = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        place = work / "scheduler.json"
        words = ["dask", "scheduler", "--scheduler-file", str(place), "--port", "0",
                 "--no-dashboard"]  # fmt: skip
        started.append(subprocess.Popen([sys.executable, "-m", *words], **log))
        while not place.exists():
            time.sleep(0.1)
        address = json.loads(place.read_text())["address"]
        for _ in range(2):
            words = ["dask", "worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny",
                     "--local-directory", str(work)]  # fmt: skip
            started.append(subprocess.Popen([sys.executable, "-m", *words], **log))
        target = work / "dask"
        batch = subprocess.Popen(
            command("batch", captures, "-o", target, "--dask", address, "-q"), **log
        )
        while ends(target) < 40 and batch.poll() is None:
            time.sleep(0.05)
        started[-1].kill()
        batch.wait(timeout=600)
        say("rows equal on Dask, one worker killed", content(target) == content(calm),
            f"{ends(target)} ends, status {batch.returncode}")  # fmt: skip
    finally:
        for process in started:
            process.kill()
            process.wait()


def fleet(work: Path, calm: Path) -> None:
    many = work / "many"
    many.mkdir()
    shutil.copy(calm / "_dataset.json", many)
    parts = sorted(p for p in calm.glob("capture=*"))
    for i in range(1000):
        shutil.copytree(parts[i % len(parts)], many / f"capture=c{i}")
    for form in ("json", "html"):
        begin, before = time.monotonic(), os.times()
        words = command("fleet", many, "--by", "kernel,hostname", "--format", form)
        code = ("import resource, subprocess, sys; "
                "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); "
                "sys.exit(done.returncode)")  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
        )
        seconds, after = time.monotonic() - begin, os.times()
        spent = after.children_user + after.children_system
        spent -= before.children_user + before.children_system
        peak = int(done.stdout) >> 10
        say(f"fleet of 1,000 as {form} <= 5 s, <= 500 MB", seconds <= 5 and peak <= 476,
            f"{seconds:.2f} s ({spent:.2f} s of CPU), {peak} MiB")  # fmt: skip


def main() -> int:
    asked = sys.argv[1:] or ["kills", "dask", "speed", "fleet"]
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        work = Path(name)
        captures = work / "captures"
        made = make(captures, CAPTURES)
        calm = work / "calm"
        seconds, told = run("batch", captures, "-o", calm, "-j", "2")
        del told["problems"], told["dataset"]
        say("undisturbed", told["captures"] == len(made) == told["computed"],
            f"{seconds:.1f} s, {told}")  # fmt: skip
        if "kills" in asked:
            kills(work, captures, calm)
        if "dask" in asked:
            dask(work, captures, calm)
        if "speed" in asked:
            speed(work)
        if "fleet" in asked:
            fleet(work, calm)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
