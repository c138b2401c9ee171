"""What every parser offers: the protocol between a form and the rest of traceana.

A parser is one file with one class that satisfies :class:`Reader`, and one line in
``registry.py``. It yields :class:`~traceana.columns.Chunk` objects in the order of time; lost
events stand in the stream as rows of kind LOST, a late begin of a CPU's data as kind BEGIN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from traceana.columns import Chunk
from traceana.issues import IssueLog

__all__ = ["Counters", "Lost", "Reader", "ReaderMeta"]


@dataclass
class ReaderMeta:
    """Facts of the capture that a form may tell; None where it does not.

    ``clock_unit`` is 'ns', 'us' (text with six digits: still int64 ns, but of 1 µs resolution),
    'jiffies' (ns in steps of a tick), 'cycles' or 'count' (numbers that are no time at all).
    """

    form: str
    tool: str | None = None
    kernel: str | None = None
    machine: str | None = None
    hostname: str | None = None
    clock: str | None = None
    clock_unit: str = "ns"
    hz: int | None = None
    #: CPUs that the file says exist (None: only those seen in events are known).
    cpus_present: int | None = None
    cpus_online: int | None = None
    cmdline: str | None = None
    extra: dict[str, object] = field(default_factory=dict)


@dataclass
class Counters:
    """What the file's own counters tell of one CPU (or of all), and what was decoded.

    Each is None where nothing counts it. ``recorded``: events that must be in the file;
    ``found``: those that are. ``overwritten``: before the first one; ``dropped``: somewhere in
    between. ``lost``: sum of lost events that is told at the end; ``marked``: of these, those whose
    place is marked.
    """

    recorded: int | None = None
    found: int | None = None
    overwritten: int | None = None
    dropped: int | None = None
    lost: int | None = None
    marked: int | None = None

    @property
    def agree(self) -> bool:
        """Whether the counters fit to what was decoded, as far as both are told."""
        return self.recorded in (None, self.found) and self.lost in (None, self.marked)


@dataclass
class Lost:
    """What the recorder itself says was lost. ``events`` is None when marks came without a number.

    ``per_cpu`` maps CPU to the number of events (None: some, number not told).
    """

    events: int | None = 0
    marks: int = 0
    per_cpu: dict[int, int | None] = field(default_factory=dict)
    #: By CPU; None: of all CPUs together.
    counters: dict[int | None, Counters] = field(default_factory=dict)

    def count(self, cpu: int | None, **told: int) -> None:
        """Book what a counter tells; of several buffers the sums are kept."""
        counters = self.counters.setdefault(cpu, Counters())
        for name, value in told.items():
            setattr(counters, name, (getattr(counters, name) or 0) + value)

    def add(self, cpu: int | None, count: int | None) -> None:
        """Book one loss mark."""
        self.marks += 1
        self.events = None if count is None or self.events is None else self.events + count
        if cpu is not None:
            before = self.per_cpu.get(cpu, 0)
            self.per_cpu[cpu] = None if count is None or before is None else before + count


class Reader(Protocol):
    """One opened capture of one form.

    ``counts`` (events per bare tracepoint name, all buffers), ``lost`` and ``issues`` are
    complete once :meth:`chunks` is exhausted; ``meta`` and :meth:`topology` at once.
    ``damaged`` says that the file was cut or broken and only part of it is given.
    """

    path: Path
    meta: ReaderMeta
    counts: dict[str, int]
    lost: Lost
    issues: IssueLog
    damaged: bool

    def chunks(self) -> Iterator[Chunk]:
        """Events of the known kinds, in the order of time. May be called again: reads anew."""
        ...

    def extra_events(self, name: str) -> pa.Table:
        """All events of one tracepoint by its own format.

        Columns: ts (int64 ns), cpu (int32), common_pid (int32), common_flags (uint8),
        common_preempt_count (uint8), then the fields as the file describes them (integers by
        size and sign, char arrays and __data_loc strings as string). Null where a text form
        shows no such thing. Raises UsageError naming the tracepoints there are.
        """
        ...

    def topology(self) -> pa.Table | None:
        """The ``topology`` table from the file's own header, or None."""
        ...

    def progress(self) -> tuple[int, int]:
        """Bytes done and bytes in all, for a progress bar."""
        ...
