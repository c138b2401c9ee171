"""Processes that read inputs, and may die or hang of one, and who watches them.

A worker takes jobs (lines of JSON: a form, a first number, a last, a step) and answers with lines
of JSON. In a small mapped file it notes the number that it reads, so that who watches knows of
which input it died. Another one takes over from there.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import mmap
import os
import resource
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz import check, corpus

__all__ = ["LIMIT_MB", "LIMIT_S", "Job", "Tally", "environment", "run", "serve"]

#: What one input may take: CPU seconds (the machine may be busy with other things), memory beyond
#: what the process had.
LIMIT_S = 10.0
LIMIT_MB = 1024
#: Time on the clock after which a worker is stuck, whatever it waits for; while it gets ready
#: (compiles kernels, reads the whole ones) more.
_STUCK_S = 120.0
_READY_S = 900.0
#: Each so many inputs a worker tells how far it is.
_REPORT = 50
_STATUS = struct.Struct("<qdd")  # number (-1: getting ready), CPU and clock when it began


@dataclass(frozen=True)
class Job:
    """Numbers of one row, from ``first`` up to and without ``last``."""

    target: str
    first: int
    last: int
    step: int = 1


@dataclass
class Tally:
    """What came of the inputs of a row."""

    inputs: int = 0
    refused: int = 0
    damaged: int = 0
    clean: int = 0
    slowest: tuple[float, int] = (0.0, -1)
    peak: tuple[float, int] = (0.0, -1)
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, number: int, verdict: check.Verdict) -> None:
        self.inputs += 1
        setattr(self, verdict.outcome, getattr(self, verdict.outcome) + 1)
        self.slowest = max(self.slowest, (verdict.cpu_s, number))
        self.peak = max(self.peak, (verdict.peak_mb, number))
        fault = verdict.fault
        if fault is None and verdict.peak_mb > LIMIT_MB:
            fault = f"took {verdict.peak_mb:.0f} MB"
        if fault is None and verdict.cpu_s > LIMIT_S:
            fault = f"took {verdict.cpu_s:.1f} s"
        if fault is not None:
            self.failures.append((number, fault))

    def merge(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.refused += other.refused
        self.damaged += other.damaged
        self.clean += other.clean
        self.slowest = max(self.slowest, other.slowest)
        self.peak = max(self.peak, other.peak)
        self.failures += other.failures


# ---------------------------------------------------------------- the worker


def _data_kb() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1])
    return 0


def _limit_memory(limit: bool) -> None:
    """Let allocations fail that would bring the process far beyond what it has.

    RLIMIT_AS also counts what the threads of numba and Arrow only reserve; RLIMIT_DATA does, too,
    but what is reserved is known here, after the whole inputs were read.
    """
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    room = (_data_kb() + 3 * (LIMIT_MB << 10)) << 10 if limit else hard
    resource.setrlimit(resource.RLIMIT_DATA, (room, hard))


class _Worker:
    def __init__(self, status: Path) -> None:
        with status.open("r+b") as file:
            self.status = mmap.mmap(file.fileno(), _STATUS.size)
        self.folder = Path(tempfile.mkdtemp(prefix="traceana-fuzz-"))
        self.ready: set[str] = set()
        self.count = 0

    def note(self, number: int) -> None:
        self.status[:] = _STATUS.pack(number, time.process_time(), time.monotonic())

    def get_ready(self, row: Any) -> None:
        """Read the whole inputs in all ways, so that no kernel is compiled later."""
        self.note(-1)
        _limit_memory(False)
        for files in row.wholes():
            for number in (0, 2 * check.DEEP + 1):
                check.put(files, self.folder / "capture")
                verdict = check.examine(self.folder / "capture", number, deep=True)
                if verdict.fault:
                    print(
                        f"{row.name}: a whole input: {verdict.fault}", file=sys.stderr, flush=True
                    )
        row.spice()
        gc.collect()
        gc.freeze()
        _limit_memory(True)
        self.ready.add(row.name)

    def one(self, row: Any, number: int) -> check.Verdict:
        made = row.input(number)
        path = self.folder / "capture"
        check.put(made.files, path)
        del made
        self.note(number)
        self.count += 1
        return check.examine(path, number, deep=number % check.DEEP == 0)

    def serve(self, job: Job) -> None:
        row = corpus.target(job.target)
        if row.name not in self.ready:
            self.get_ready(row)
        tally = Tally()
        numbers = range(job.first, job.last, job.step)
        for done, number in enumerate(numbers, 1):
            tally.add(number, self.one(row, number))
            if done == len(numbers):
                self.note(-1)
            if done % _REPORT == 0 or tally.failures or done == len(numbers):
                self.answer(job, number + job.step, tally)
                tally = Tally()

    def answer(self, job: Job, reached: int, tally: Tally) -> None:
        line = json.dumps({"reached": reached, "tally": tally.__dict__})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def serve(status: Path) -> None:
    """Be a worker: jobs from stdin until it ends."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    worker = _Worker(status)
    try:
        for line in sys.stdin:
            worker.serve(Job(**json.loads(line)))
    finally:
        import shutil

        shutil.rmtree(worker.folder, ignore_errors=True)


# ---------------------------------------------------------------- who watches


def environment(checked: Path | None = None) -> dict[str, str]:
    """What workers are started with; ``checked``: kernels check their bounds, and are kept there.

    The cache does not tell such kernels from others, so it must be one of their own.
    """
    env = dict(os.environ)
    env.pop("TRACEANA_JIT", None)
    if checked is not None:
        env |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(checked)}
    return env


class _Watched:
    """A worker process, the job that it has, and where it stands in it."""

    def __init__(self, command: Sequence[str], env: dict[str, str], log: Path) -> None:
        self.log = log
        descriptor, name = tempfile.mkstemp(prefix="traceana-fuzz-status-")
        os.write(descriptor, _STATUS.pack(-1, 0.0, time.monotonic()))
        self.place = Path(name)
        self.status = mmap.mmap(descriptor, _STATUS.size, access=mmap.ACCESS_READ)
        os.close(descriptor)
        self.started = time.monotonic()
        with log.open("ab") as err:
            self.process = subprocess.Popen(
                [*command, str(self.place)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                env=env,
            )
        self.job: Job | None = None
        self.reached = 0
        self.since = time.monotonic()

    def give(self, job: Job) -> None:
        assert self.process.stdin is not None
        self.job, self.reached, self.since = job, job.first, time.monotonic()
        self.process.stdin.write((json.dumps(job.__dict__) + "\n").encode())
        self.process.stdin.flush()

    def state(self) -> tuple[int, float, float]:
        number, cpu, clock = _STATUS.unpack(self.status[:])
        return number, cpu, clock

    def cpu_s(self) -> float:
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def hangs(self) -> str | None:
        """In words, when the present input takes too long."""
        number, cpu, clock = self.state()
        if self.job is None:
            return None
        waited = time.monotonic() - max(clock, self.since)
        if number < 0:
            return f"not ready after {waited:.0f} s" if waited > _READY_S else None
        used = self.cpu_s() - cpu
        if used > LIMIT_S + 2 or waited > _STUCK_S:
            return f"hangs: {used:.1f} s of CPU, {waited:.1f} s on the clock"
        return None

    def kill(self) -> str:
        """End it, and give what it says of where it is."""
        before = self.log.stat().st_size
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGUSR1)
            time.sleep(0.5)
            self.process.kill()
        self.close()
        with self.log.open("rb") as file:
            file.seek(before)
            return file.read(20000).decode("utf-8", "replace")

    def close(self) -> None:
        for end in (self.process.stdin, self.process.stdout):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.close()
        self.process.wait()
        self.place.unlink(missing_ok=True)


def run(
    jobs: Sequence[Job],
    *,
    command: Sequence[str],
    env: dict[str, str],
    log: Path,
    workers: int,
    progress: Callable[[Job, Tally], None],
) -> dict[str, Tally]:
    """Have all jobs done; returns the tally of each row.

    ``progress`` is called with what each answer adds. A worker that dies or hangs is a failure of
    the input that it read, unless that goes well a second time (a machine may be busy).
    """
    waiting = deque(jobs)
    tallies = {job.target: Tally() for job in jobs}
    tried: set[tuple[str, int]] = set()
    pick = selectors.DefaultSelector()
    watched: list[_Watched] = []

    def start() -> None:
        one = _Watched(command, env, log)
        assert one.process.stdout is not None
        os.set_blocking(one.process.stdout.fileno(), False)
        pick.register(one.process.stdout, selectors.EVENT_READ, (one, bytearray()))
        watched.append(one)
        if waiting:
            one.give(waiting.popleft() if len(watched) == 1 else waiting.pop())

    def gone(one: _Watched, why: str) -> None:
        """It died at an input: that is noted or tried again, and the rest goes to another."""
        pick.unregister(one.process.stdout)
        watched.remove(one)
        job = one.job
        if job is not None:
            number = max(one.state()[0], one.reached)
            if one.state()[0] < 0:
                add(job, Tally(failures=[(-1, f"while it got ready: {why}")]))
            else:
                again = (job.target, number) in tried
                tried.add((job.target, number))
                if again:
                    add(job, Tally(inputs=1, failures=[(number, why)]))
                # What it had not told yet is read again, and this one once more, alone.
                for first, last in (
                    (number + job.step, job.last), (number, number if again else number + 1),
                    (one.reached, number),
                ):  # fmt: skip
                    if first < last:
                        waiting.appendleft(Job(job.target, first, last, job.step))
        if waiting:
            start()

    def add(job: Job, tally: Tally) -> None:
        tallies[job.target].merge(tally)
        progress(job, tally)

    def take(one: _Watched, line: bytes) -> None:
        told = json.loads(line)
        raw = told["tally"]
        for key in ("slowest", "peak"):
            raw[key] = tuple(raw[key])
        raw["failures"] = [tuple(f) for f in raw["failures"]]
        assert one.job is not None
        one.reached = told["reached"]
        add(one.job, Tally(**raw))
        if one.reached >= one.job.last:
            one.job = None
            if waiting:
                # From both ends, so that not every worker gets ready for every form.
                one.give(waiting.popleft() if one is watched[0] else waiting.pop())

    start()
    try:
        while any(one.job is not None for one in watched):
            for key, _ in pick.select(0.25):
                one, held = key.data
                data = os.read(key.fd, 1 << 20)
                held += data
                while (end := held.find(b"\n")) >= 0:
                    line = bytes(held[:end])
                    del held[: end + 1]
                    take(one, line)
                    # The kernels that all need are compiled by the first, once.
                    while waiting and len(watched) < workers:
                        start()
                if not data:
                    one.close()
                    gone(one, f"the process died with {one.process.returncode}")
            for one in list(watched):
                why = one.hangs()
                if why is not None:
                    said = one.kill()
                    gone(one, f"{why}\n{said}")
    finally:
        for one in watched:
            one.process.kill() if one.job is not None else None
            one.close()
    return tallies
