"""Processes of this machine that work on one capture at a time each.

Each worker has a pipe of its own. One that dies (killed, out of memory, a fault in compiled code)
takes nothing with it: another takes its place, and the capture is tried once more, alone guilty if
that one dies, too. Workers end when the process that started them does, however it ended.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from traceana._batch_jobs import Done, Job, perform

__all__ = ["Died", "run"]

#: Seconds until a worker that was asked to end is made to.
_GRACE_S = 2.0
#: A capture may bring down so many workers.
_TRIES = 2
#: One worker computes on one CPU; set before its libraries are loaded.
_SINGLE = (
    "ARROW_IO_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
)


#: Called with a job, and the number of the try.
Begin = Callable[[Job, int], None]


class Died:
    """A capture whose workers died."""

    def __init__(self, job: Job, how: str) -> None:
        self.job = job
        self.how = how


class _Worker:
    """A process, its pipe, and the job that it has."""

    def __init__(self, context: Any) -> None:
        self.pipe, theirs = context.Pipe()
        alive, held = context.Pipe(duplex=False)
        # Nobody writes into it: its end is that of this process.
        self._held: Connection = held
        self.process = context.Process(target=_serve, args=(theirs, alive), daemon=True)
        self.process.start()
        theirs.close()
        alive.close()
        self.job: Job | None = None
        self.since = 0.0

    def take(self, job: Job) -> None:
        self.job = job
        self.since = time.monotonic()
        # It may have died meanwhile; that is seen when it is waited for.
        with contextlib.suppress(OSError):
            self.pipe.send(job)

    def stop(self) -> None:
        """End it at once."""
        self.process.kill()

    def end(self) -> None:
        """Send it home; what it is at is left."""
        if self.job is not None:
            self.stop()
        self.pipe.close()
        self._held.close()
        self.process.join(_GRACE_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()

    def how(self) -> str:
        """How it ended, in words."""
        self.process.join(_GRACE_S)
        code = self.process.exitcode
        if code is None:
            return "its worker broke off"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"its worker was ended by {signal.Signals(-code).name}"
        return f"its worker ended with status {code}"


def _serve(pipe: Connection, alive: Connection) -> None:
    """The life of a worker."""
    # Ctrl-C reaches the whole group: the one who reads it decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()
    import pyarrow as pa

    pa.set_cpu_count(1)
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        try:
            done: Done | str = perform(job)
        except Exception as error:
            # The disk is full, the dataset has gone: not the capture's fault, and not a worker's.
            done = f"{type(error).__name__}: {error}"
        pipe.send(done)


def _end_with_parent(alive: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        alive.recv()
    os._exit(1)


@contextlib.contextmanager
def _single_threaded() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _SINGLE}
    os.environ.update({name: "1" for name, value in before.items() if value is None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


def run(
    jobs: Sequence[Job], processes: int, begin: Begin, limit: float = 0.0
) -> Iterator[Done | Died]:
    """Work on jobs, as many at a time as there are processes; results as they come.

    Parameters
    ----------
    jobs : in the order in which they are begun
    processes : how many workers
    begin : called with each job (and the try's number) before a worker takes it
    limit : seconds that a job may take, 0: as long as it likes
    """
    context = multiprocessing.get_context("spawn")
    left = deque((job, 1) for job in jobs)
    tries: dict[str, int] = {}
    workers: list[_Worker] = []

    def give(worker: _Worker) -> None:
        if left:
            job, number = left.popleft()
            tries[job.source.id] = number
            begin(job, number)
            worker.take(job)

    def hire() -> _Worker:
        with _single_threaded():
            return _Worker(context)

    try:
        for _ in range(min(processes, len(left))):
            workers.append(hire())
            give(workers[-1])
        while busy := [w for w in workers if w.job is not None]:
            patience = None if not limit else _left(busy, limit)
            ready = set(wait([x for w in busy for x in (w.pipe, w.process.sentinel)], patience))
            for worker in busy:
                late = bool(limit) and _left([worker], limit) <= 0
                if worker.pipe not in ready and worker.process.sentinel not in ready and not late:
                    continue
                job, done = worker.job, _received(worker)
                assert job is not None
                worker.job = None
                outcome: Done | Died | None = None
                if isinstance(done, Done):
                    outcome = done
                elif done is not None:
                    outcome = Died(job, done)
                else:
                    how = f"not done after {limit:g} s" if late else worker.how()
                    worker.stop()
                    worker.end()
                    workers.remove(worker)
                    number = tries[job.source.id]
                    if number < _TRIES and not late:
                        left.append((job, number + 1))
                    else:
                        outcome = Died(job, how if late else f"{how}, {number} times")
                    if left:
                        worker = hire()
                        workers.append(worker)
                # The next one is under way while this one's partition is given its place.
                if worker in workers:
                    give(worker)
                if outcome is not None:
                    yield outcome
    finally:
        for worker in workers:
            worker.end()


def _left(workers: Sequence[_Worker], limit: float) -> float:
    """Seconds until the first of them has had its time."""
    return max(0.0, min(w.since for w in workers) + limit - time.monotonic())


def _received(worker: _Worker) -> Done | str | None:
    """What the worker has to say: a result, or why there is none; None: it died."""
    with contextlib.suppress(EOFError, OSError):
        if worker.pipe.poll():
            told: Done | str = worker.pipe.recv()
            return told
    return None
