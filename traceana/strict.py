"""``--read-mode strict``: stop at the first two records that cannot both be true.

The timeline repairs what does not fit and counts it; who wants to rely on each figure reads
strictly instead. What the recorder itself admits (losses, late begins) is no contradiction, nor
is what the kernel lawfully records: wakeups of tasks that were runnable, sleeps called off (5.18 to
6.15), clocks of two CPUs that disagree by up to 3 µs. What is found where: ``_strict_kernels``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import _strict_kernels as k
from traceana.columns import NULL_I64, NULL_STATE, EventColumns, NameChange
from traceana.errors import ContradictionError
from traceana.schema import STATE_LETTERS, EventKind, State

if TYPE_CHECKING:
    from traceana.parsers.reader import Reader, ReaderMeta

__all__ = ["KINDS", "PARSER_KINDS", "Contradiction", "Record", "StrictChecker", "StrictReading"]

#: Kinds of contradictions, named as the timeline counts their repairs, in the order of the kernel's
#: numbers from 1 on; each with what it says.
KINDS = {
    "time_backwards": "time steps back on this CPU",
    "lost_switch": "this CPU ran another task: a switch is missing",
    "pid_out_of_range": "no pid can be that large",
    "ran_on_two_cpus": "the task was still running on another CPU",
    "lost_wakeup": "the task was asleep and nothing woke it",
    "moved_without_migrate": "the task was queued on another CPU, no sched_migrate_task moved it",
    "wake_repeated": "the task was woken before and has not run since",
}
#: Issues of the parsers that are contradictions, too.
PARSER_KINDS = ("time_backwards",)
_DAMAGED = "--read-mode normal gives what could be read"
_HINT = "--read-mode normal repairs and counts this; were events lost? see `traceana info`"

#: Clocks of two CPUs may disagree by that much, by the unit of time; a tick is 10 ms at most.
_SKEW = {"ns": 3_000, "us": 3_000, "cycles": 20_000, "jiffies": 0, "count": 0}
#: CPU ids above this are not believed (as in the timeline).
_CPU_LIMIT = 65536
_NAME_OF_KIND = {kind: kind.name.lower() for kind in EventKind} | {
    EventKind.SWITCH: "sched_switch",
    EventKind.WAKING: "sched_waking",
    EventKind.WAKEUP: "sched_wakeup",
    EventKind.WAKEUP_NEW: "sched_wakeup_new",
    EventKind.MIGRATE: "sched_migrate_task",
    EventKind.STAT_RUNTIME: "sched_stat_runtime",
}


@dataclass(frozen=True)
class Record:
    """One record of a contradiction: columns of the ``events`` table, None where not known."""

    ts: int
    cpu: int
    kind: EventKind
    pid: int | None
    subject: int | None
    state: int | None
    other: int | None
    cpu_to: int | None


@dataclass(frozen=True)
class Contradiction:
    """Two records that cannot both be true; ``kind`` is a key of :data:`KINDS`."""

    kind: str
    ts: int
    cpu: int
    pid: int
    earlier: Record
    later: Record


def _record(row: npt.NDArray[np.int64]) -> Record:
    ts, cpu, kind, pid, subject, state, other, to = row.tolist()

    def known(value: int, null: int = -1) -> int | None:
        return None if value == null else value

    return Record(
        ts, cpu, EventKind(kind), known(pid), known(subject), known(state, NULL_STATE),
        known(other), known(to),
    )  # fmt: skip


class StrictReading:
    """Checks what is read of one capture, and stops the reading.

    Parameters
    ----------
    path : Path
        For messages.
    meta : ReaderMeta
    kernel : int
        As ``kernel_number`` gives it.
    """

    def __init__(self, path: Path, meta: ReaderMeta, *, kernel: int) -> None:
        self._path = path
        #: perf may record some tasks only, which the reader knows when it has read all.
        self._wait = meta.form.startswith("perf")
        self._found: Contradiction | None = None
        self._checker = StrictChecker(kernel=kernel, unit=meta.clock_unit, apart=self._wait)

    def feed(self, events: EventColumns, names: Iterable[NameChange] = ()) -> None:
        """Check one batch.

        Raises
        ------
        ContradictionError
            Two of the records so far cannot both be true.
        """
        if self._found is None:
            self._found = self._checker.feed(events, names)
            if not self._wait:
                self._stop()

    def finish(self, reader: Reader) -> None:
        """Check what only the end tells: candidates left over, and what the parser met.

        Raises
        ------
        ContradictionError
        """
        self._found = self._found or self._checker.finish()
        if "only_some_tasks" not in reader.issues.counts():
            self._stop()
        for row in reader.issues.table().to_pylist():
            if row["code"] in PARSER_KINDS:
                raise ContradictionError(self._path, f"{row['code']}: {row['text']}", hint=_HINT)
        if reader.damaged:
            texts = [text for text in reader.issues.texts() if "offset" in text]
            what = texts[0] if texts else "what could be read ends early"
            raise ContradictionError(self._path, f"cut or damaged: {what}", hint=_DAMAGED)

    def _stop(self) -> None:
        if self._found is not None:
            raise self._checker.error(self._path, self._found)


class StrictChecker:
    """Takes event batches in the order of the stream and tells the first contradiction.

    A contradiction is certain once every CPU has recorded something later: only then can no loss
    explain it. So :meth:`feed` may tell it some batches late, and :meth:`finish` at the end.

    Parameters
    ----------
    kernel : int
        As ``kernel_number`` gives it; 0 = not known: what any release may record is lawful.
    unit : str
        ``ReaderMeta.clock_unit``.
    apart : bool
        Recording begins and ends CPU by CPU, as perf does it (some 100 µs each): nothing is
        known of a CPU before its first record and behind its last one.
    """

    def __init__(self, *, kernel: int = 0, unit: str = "ns", apart: bool = False) -> None:
        self._cpus = np.empty((0, k.N_CPU), np.int64)
        self._tasks = np.empty((1 << 10, k.N_TASK), np.int64)
        self._pid_map = np.zeros(k.PID_LIMIT + 1, np.int32)
        self._found = np.zeros((64, k.N_FOUND), np.int64)
        self._g = np.zeros(k.N_GLOBAL, np.int64)
        self._g[k.G_WHOLE] = NULL_I64
        self._g[k.G_KERNEL] = kernel
        self._g[k.G_SKEW] = _SKEW.get(unit, 3_000)
        self._g[k.G_APART] = apart
        #: In ticks the order of records of different CPUs is not known.
        self._coarse = unit == "jiffies"
        self._comms: dict[int, bytes] = {}

    def _room(self, highest: int) -> None:
        have = len(self._cpus)
        if highest >= have:
            grown = np.full((highest + 1, k.N_CPU), -1, np.int64)
            grown[:, k.C_TS] = NULL_I64
            grown[:have] = self._cpus
            self._cpus = grown

    def feed(self, events: EventColumns, names: Iterable[NameChange] = ()) -> Contradiction | None:
        """Check one batch; the first contradiction that is certain by now, or None."""
        for change in names:
            if change.comm is not None:
                self._comms[change.pid] = change.comm
        n = len(events)
        if not n:
            return None
        # As in the timeline: what names a CPU that cannot be is not believed at all.
        keep = (events.cpu < _CPU_LIMIT) & (events.cpu_to < _CPU_LIMIT)
        keep &= events.kind <= EventKind.BEGIN
        if not keep.all():
            events = events.take(keep)
            n = len(events)
        self._room(int(max(events.cpu.max(initial=0), 0)))
        columns: Any = [
            np.require(a, requirements=["C", "W"])
            for a in (events.ts, events.cpu, events.kind, events.pid, events.subject,
                      events.state, events.other, events.cpu_to)
        ]  # fmt: skip
        at = 0
        check: Any = k.check
        while True:
            at = check(at, *columns, self._cpus, self._tasks, self._pid_map, self._found, self._g)
            if at >= n:
                break
            grown = np.empty((2 * len(self._tasks), k.N_TASK), np.int64)
            grown[: len(self._tasks)] = self._tasks
            self._tasks = grown
        return self._first(self._heard_from_all())

    def _heard_from_all(self) -> int:
        """Up to when every CPU has recorded something later."""
        seen = self._cpus[:, k.C_TS]
        seen = seen[seen != NULL_I64]
        return int(seen.min()) if len(seen) else NULL_I64

    def finish(self) -> Contradiction | None:
        """The first contradiction once the stream is over, or None."""
        until = self._heard_from_all() - k.APART_NS if self._g[k.G_APART] else None
        return self._first(until)

    def _first(self, until: int | None) -> Contradiction | None:
        for row in self._found[: int(self._g[k.G_FOUND])]:
            sure = row[k.F_WHAT] <= k.LAST_SURE
            if self._coarse and not sure:
                continue
            if sure or until is None or int(row[k.F_UNTIL]) < until:
                later = _record(row[k.F_LATER : k.F_LATER + k.N_REC])
                return Contradiction(
                    kind=list(KINDS)[int(row[k.F_WHAT]) - 1],
                    ts=later.ts,
                    cpu=int(row[k.F_CPU]),
                    pid=int(row[k.F_PID]),
                    earlier=_record(row[k.F_EARLIER : k.F_EARLIER + k.N_REC]),
                    later=later,
                )
        return None

    # --- in words ---

    def _who(self, pid: int | None, cpu: int) -> str:
        if pid is None:
            return "?"
        comm = f"swapper/{cpu}".encode() if pid == 0 else self._comms.get(pid, b"<...>")
        return f"{comm.decode('utf-8', 'backslashreplace')}:{pid}"

    def words(self, record: Record) -> str:
        """A record in one line, as close to what trace-cmd report prints as columns allow."""
        r = record
        head = f"{_seconds(r.ts)} s, cpu {r.cpu}: {_NAME_OF_KIND[r.kind]}: "
        if r.kind == EventKind.SWITCH:
            return (
                f"{head}{self._who(r.subject, r.cpu)} {_letters(r.state)} ==> "
                f"{self._who(r.other, r.cpu)}"
            )
        told = f" to cpu {r.cpu_to}" if r.cpu_to is not None and r.subject is not None else ""
        who = "" if r.subject is None else f"{self._who(r.subject, r.cpu)}{told}, "
        return f"{head}{who}recorded by {self._who(r.pid, r.cpu)}"

    def error(self, path: Path, found: Contradiction) -> ContradictionError:
        """The contradiction as what stops the reading."""
        what = (
            f"{_seconds(found.ts)} s, cpu {found.cpu}: {found.kind}: "
            f"{self._who(found.pid, found.cpu)}: {KINDS[found.kind]}"
        )
        lines = (f"before: {self.words(found.earlier)}", f"now: {self.words(found.later)}")
        return ContradictionError(path, what, records=lines, hint=_HINT)


def _letters(state: int | None) -> str:
    """The state of a switch-out as letters.

    >>> _letters(0), _letters(1), _letters(0x100), _letters(None)
    ('R', 'S', 'R+', '?')
    """
    if state is None:
        return "?"
    rest = state & ~int(State.PREEMPTED)
    letters = "".join(x for x, bit in STATE_LETTERS.items() if bit & rest and x not in "x+")
    return (letters or "R") + ("+" if state & State.PREEMPTED else "")


def _seconds(ns: int) -> str:
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 10**9}.{abs(ns) % 10**9:09d}"
