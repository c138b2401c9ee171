"""Tiny captures written as text, and their timeline with pids in place of task ids.

One event a line: time in us, CPU, current pid (``pid@prio``), context, verb and its arguments::

    100.0  0  10  .  switch S 0       # prev is the current pid; S, D, I, X, R, R+ ...
    110.0  1  20  h  waking 10 0      # h hardirq, s softirq, n nmi, . task, ? not told
    110.5  1  20  .  migrate 10 0 1
    111.0  1  20  .  wakeup 10 1

Further verbs: new PID CPU, fork CHILD, exit PID, stat PID NS, idle STATE|leave, noipi CPU,
ipi CPU, mark (any other event), lost [N], begin. A CPU of "-" is one that the form does not show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from traceana import schema
from traceana.columns import EventColumns
from traceana.schema import Ctx, EventKind, State
from traceana.timeline import Timeline, TimelineBuilder

_CTX = {".": 0, "h": Ctx.HARDIRQ, "s": Ctx.SOFTIRQ, "n": Ctx.NMI, "?": 255}
_CTX["H"] = Ctx.HARDIRQ | Ctx.SOFTIRQ
_VERBS = {
    "switch": EventKind.SWITCH,
    "waking": EventKind.WAKING,
    "wakeup": EventKind.WAKEUP,
    "new": EventKind.WAKEUP_NEW,
    "migrate": EventKind.MIGRATE,
    "fork": EventKind.FORK,
    "exit": EventKind.EXIT,
    "stat": EventKind.STAT_RUNTIME,
    "idle": EventKind.CPU_IDLE,
    "noipi": EventKind.WAKE_IDLE_WITHOUT_IPI,
    "ipi": EventKind.IPI_SEND_CPU,
    "mark": EventKind.MARKER,
    "lost": EventKind.LOST,
    "begin": EventKind.BEGIN,
}


def ns(us: str) -> int:
    """Microseconds in text as whole nanoseconds, by digits."""
    whole, _, part = us.partition(".")
    return int(whole) * 1000 + int((part + "000")[:3])


def _task(word: str) -> tuple[int, int]:
    pid, _, prio = word.partition("@")
    return int(pid), int(prio) if prio else 120


def state(letters: str) -> int:
    """prev_state as normalised bits."""
    if letters == "R":
        return 0
    if letters == "R+":
        return int(State.PREEMPTED)
    out = 0
    for letter in letters.split("|"):
        out |= int(schema.STATE_LETTERS[letter])
    return out


def events(text: str) -> EventColumns:
    """The lines as event columns, in the order in which they stand."""
    rows = [line.split("#")[0].split() for line in text.splitlines()]
    rows = [row for row in rows if row]
    out = EventColumns.unknown(len(rows))
    for i, (time, cpu, pid, ctx, verb, *args) in enumerate(rows):
        kind = _VERBS[verb]
        out.ts[i] = ns(time)
        out.cpu[i] = -1 if cpu == "-" else int(cpu)
        out.kind[i] = kind
        if kind in (EventKind.LOST, EventKind.BEGIN):
            if args:
                out.value[i] = int(args[0])
            continue
        out.pid[i], prio = _task(pid)
        out.ctx[i] = _CTX[ctx]
        if verb == "switch":
            out.subject[i], out.prio[i] = out.pid[i], prio
            out.state[i] = state(args[0])
            out.other[i], out.other_prio[i] = _task(args[1])
        elif verb in ("waking", "wakeup", "new"):
            out.subject[i], out.prio[i] = _task(args[0])
            out.cpu_to[i] = int(args[1])
        elif verb == "migrate":
            out.subject[i], out.prio[i] = _task(args[0])
            out.cpu_from[i], out.cpu_to[i] = int(args[1]), int(args[2])
        elif verb == "fork":
            out.subject[i], out.other[i] = int(args[0]), out.pid[i]
        elif verb == "exit":
            out.subject[i], out.prio[i] = _task(args[0])
        elif verb == "stat":
            out.subject[i], out.value[i] = int(args[0]), int(args[1])
        elif verb == "idle":
            out.cpu_to[i] = out.cpu[i]
            out.value[i] = 4294967295 if args[0] == "leave" else int(args[0])
        elif verb in ("noipi", "ipi"):
            out.cpu_to[i] = int(args[0])
    return out


def tables(timeline: Timeline) -> dict[str, pa.Table]:
    """All tables by name; each of the contract is checked."""
    out = {}
    for name in ("tasks", "slices", "wakeups", "idle_gaps"):
        out[name] = getattr(timeline, name)
        schema.check(out[name], name)
    out["cpus"] = timeline.cpus
    schema.check(timeline.issues.table(), "issues")
    return out


@dataclass
class Run:
    """A timeline in which wakee, waker and task of a row are pids (0 = an idle task)."""

    timeline: Timeline

    def __post_init__(self) -> None:
        self.tables = tables(self.timeline)
        self.tasks = self.tables["tasks"].to_pylist()
        self._pid = [t["pid"] for t in self.tasks]

    def _named(self, table: str, *columns: str) -> list[dict[str, Any]]:
        rows = self.tables[table].to_pylist()
        for row in rows:
            for column in columns:
                if row[column] is not None:
                    row[column] = self._pid[row[column]]
        return rows

    def task(self, pid: int) -> dict[str, Any]:
        """The only task with this pid."""
        (row,) = [t for t in self.tasks if t["pid"] == pid]
        return row

    def wakes(self, pid: int) -> list[dict[str, Any]]:
        """Wakeups of a pid, in order."""
        rows = self._named("wakeups", "wakee", "waker", "current")
        return [row for row in rows if row["wakee"] == pid]

    def wake(self, pid: int) -> dict[str, Any]:
        """The only wakeup of a pid."""
        (row,) = self.wakes(pid)
        return row

    def slices(self, pid: int) -> list[dict[str, Any]]:
        return [row for row in self._named("slices", "task") if row["task"] == pid]

    def gaps(self, cpu: int) -> list[dict[str, Any]]:
        return [row for row in self.tables["idle_gaps"].to_pylist() if row["cpu"] == cpu]

    def cpu(self, cpu: int) -> dict[str, Any]:
        return self.tables["cpus"].to_pylist()[cpu]

    @property
    def span(self) -> int:
        return self.timeline.last_ts - self.timeline.first_ts

    @property
    def issues(self) -> dict[str, int]:
        return self.timeline.issues.counts()


def build(
    columns: EventColumns, cuts: tuple[int, ...] = (), names: Any = (), **options: Any
) -> Timeline:
    """The timeline of events fed in batches that end at ``cuts``."""
    # Plain times between switches, unless a test is about what is taken off them.
    options.setdefault("leave_ns", 10**12)
    builder = TimelineBuilder(**options)
    first = True
    for lo, hi in zip((0, *cuts), (*cuts, len(columns)), strict=True):
        builder.feed(columns.take(slice(lo, hi)), names if first else ())
        first = False
    return builder.finish()


def run(text: str, llc: list[int] | None = None, **options: Any) -> Run:
    """The timeline of a tiny capture; in one batch and event by event it has to be the same."""
    columns = events(text)
    if llc is not None:
        options["llc"] = np.array(llc, np.int32)
    whole = Run(build(columns, **options))
    single = tables(build(columns, tuple(range(1, len(columns))), **options))
    for name, table in whole.tables.items():
        assert table.equals(single[name]), f"{name}: batches of one event give another result"
    return whole
