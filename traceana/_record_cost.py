"""What an event costs here: a ping-pong on one CPU with and without the events recorded.

Two processes on one CPU wake each other through pipes. The difference of the time of a round,
over the events that the ring of this CPU took meanwhile, is what one event costs. It holds for
ftrace's ring (trace-cmd and plain tracefs), not for perf's.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["cost_per_event"]

_ROUNDS = 4000
_REPEATS = 5


@contextlib.contextmanager
def _partner(cpu: int) -> Iterator[tuple[int, int]]:
    """A process that answers each byte, on ``cpu`` as this one; (write end, read end)."""
    before = os.sched_getaffinity(0)
    to_read, to_write = os.pipe()
    back_read, back_write = os.pipe()
    os.sched_setaffinity(0, {cpu})
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(to_write)
            os.close(back_read)
            while os.read(to_read, 1):
                os.write(back_write, b"x")
        os._exit(0)
    os.close(to_read)
    os.close(back_write)
    try:
        yield to_write, back_read
    finally:
        os.close(to_write)
        os.close(back_read)
        os.waitpid(child, 0)
        os.sched_setaffinity(0, before)


def _time(ends: tuple[int, int]) -> int:
    start = time.perf_counter_ns()
    for _ in range(_ROUNDS):
        os.write(ends[0], b"x")
        os.read(ends[1], 1)
    return time.perf_counter_ns() - start


def _recorded(instance: Path, cpu: int) -> int:
    text = (instance / f"per_cpu/cpu{cpu}/stats").read_text()
    fields = dict(x.partition(":")[::2] for x in text.splitlines())
    return int(fields["entries"]) + int(fields["overrun"])


def cost_per_event(tracefs: Path, events: Sequence[str], clock: str) -> tuple[float, int]:
    """Nanoseconds an event, and of how many events (takes about a second).

    Parameters
    ----------
    tracefs : Path
        Where tracefs is mounted; an instance of its own is made there and removed.
    events : sequence of 'system/name'
    clock : str
        Trace clock.

    Raises
    ------
    OSError
        tracefs does not let us.
    """
    cpu = max(os.sched_getaffinity(0))
    instance = tracefs / "instances" / f"traceana-cost-{os.getpid()}"
    instance.mkdir()
    try:
        (instance / "tracing_on").write_text("0")
        (instance / "trace_clock").write_text(clock)
        costs: list[float] = []
        total = 0
        with _partner(cpu) as ends:
            _time(ends)
            for _ in range(_REPEATS):
                plain = _time(ends)
                # A disabled buffer with enabled events would still pay for the tracepoints.
                for name in events:
                    (instance / "events" / name / "enable").write_text("1")
                before = _recorded(instance, cpu)
                (instance / "tracing_on").write_text("1")
                traced = _time(ends)
                (instance / "tracing_on").write_text("0")
                count = _recorded(instance, cpu) - before
                for name in events:
                    (instance / "events" / name / "enable").write_text("0")
                if count:
                    costs.append((traced - plain) / count)
                    total += count
    finally:
        instance.rmdir()
    if not costs:
        raise OSError(f"no event came into the ring of cpu {cpu}")
    return statistics.median(costs), total
