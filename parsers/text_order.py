"""Rows of text in the order of time: a sort that holds back what a later line may precede.

Lines of one CPU keep their order even where their times step back (the sort key is the running
maximum of that CPU's times); over the CPUs rows are sorted by that key. Equal keys keep the
order of the file: a text of µs was written by a tool that still knew the ns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from traceana import schema
from traceana.columns import NULL_CPU, Chunk, EventColumns, NameChange
from traceana.issues import IssueLog
from traceana.parsers.text_events import MAX_CPU

__all__ = ["Learnt", "Mark", "Order", "Twins", "place_marks"]

_LOW = -(1 << 62)
_MARKS = (int(schema.EventKind.LOST), int(schema.EventKind.BEGIN))


class Learnt(NamedTuple):
    """A name or thread group that some line told; ``ts`` None means from before the window."""

    pid: int
    tgid: int | None
    comm: bytes | None
    ts: int | None
    evidence: schema.Evidence = schema.Evidence.EVENT
    #: Where the line stands.
    offset: int = -1


class Mark(NamedTuple):
    """A mark that stands before the next event of its CPU, wherever that is."""

    offset: int
    cpu: int
    #: LOST or BEGIN.
    kind: int
    #: How many were lost, NULL_I64 if not told.
    events: int


def place_marks(
    offs: npt.NDArray[np.int64], columns: EventColumns, marks: list[Mark]
) -> tuple[npt.NDArray[np.int64], EventColumns, list[tuple[Mark, int]], list[Mark]]:
    """The rows with LOST and BEGIN rows before the next event of their CPU.

    ``offs`` is twice the offset of each row's line, + 1, ascending. Also returned: the marks
    that found their place, with its time, and those whose CPU has no event here.
    """
    placed: list[tuple[Mark, int]] = []
    rows: list[tuple[int, int, int, int, int]] = []
    where: list[int] = []
    left: list[Mark] = []
    of_cpu: dict[int, npt.NDArray[np.int64]] = {}
    for mark in marks:
        if mark.cpu not in of_cpu:
            of_cpu[mark.cpu] = np.flatnonzero(columns.cpu == mark.cpu)
        mine = of_cpu[mark.cpu]
        at = int(np.searchsorted(offs[mine], 2 * mark.offset))
        if at == len(mine):
            left.append(mark)
            continue
        row = int(mine[at])
        rows.append(
            (int(columns.ts[row]), mark.cpu, mark.kind, mark.events, int(columns.buffer[row]))
        )
        where.append(int(offs[row]) - 1)
        placed.append((mark, int(columns.ts[row])))
    if not rows:
        return offs, columns, placed, left
    added = EventColumns.unknown(len(rows))
    table = np.array(rows, np.int64)
    added.ts[:], added.cpu[:], added.kind[:] = table[:, 0], table[:, 1], table[:, 2]
    added.value[:], added.buffer[:] = table[:, 3], table[:, 4]
    offs = np.concatenate([offs, np.array(where, np.int64)])
    columns = EventColumns.concat([columns, added])
    order = np.argsort(offs, kind="stable")
    return offs[order], columns.take(order), placed, left


class Order:
    """Takes rows in file order, gives chunks in the order of time, and each name once.

    Memory holds one batch and what cannot be given yet.
    """

    def __init__(self) -> None:
        self._max: dict[int, int] = {}
        self._held = EventColumns.empty(0)
        self._keys: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._names: list[Learnt] = []
        #: Last comm per pid, as fields of events told it.
        self.named: dict[int, bytes] = {}
        self._groups: dict[int, int] = {}
        #: CPU -> (how many rows step back, time of the first).
        self.backwards: dict[int, tuple[int, int]] = {}
        self._given = _LOW
        #: Rows that came when later ones had been given.
        self.late = 0

    def _key(self, rows: EventColumns) -> npt.NDArray[np.int64]:
        """Running maximum of the times of each CPU (of each buffer); ``ts`` where it is unknown."""
        if self._in_order(rows):
            return rows.ts
        stream = rows.cpu
        if rows.buffer.any():
            stream = rows.cpu + (rows.buffer.astype(np.int64) << 32)
        elif not len(stream) or int(stream.max()) < 1 << 15:
            stream = stream.astype(np.int16)  # numpy sorts these by radix
        order = np.argsort(stream, kind="stable")
        sorted_stream = stream[order]
        ts = rows.ts[order]
        key = np.empty(len(ts), np.int64)
        starts = np.flatnonzero(np.diff(sorted_stream, prepend=sorted_stream[:1] - 1) != 0)
        ends = np.append(starts[1:], len(ts))
        for a, b in zip(starts.tolist(), ends.tolist(), strict=True):
            name = int(sorted_stream[a])
            cpu = int(rows.cpu[order[a]])
            if cpu == NULL_CPU:
                key[order[a:b]] = ts[a:b]
                continue
            top = np.maximum.accumulate(ts[a:b])
            top = np.maximum(top, self._max.get(name, _LOW))
            late = np.flatnonzero(ts[a:b] < top)
            if len(late):
                count, first = self.backwards.get(cpu, (0, int(ts[a + late[0]])))
                self.backwards[cpu] = (count + len(late), first)
            self._max[name] = int(top[-1])
            key[order[a:b]] = top
        return key

    def _in_order(self, rows: EventColumns) -> bool:
        """Whether no time in rows of one buffer steps back at all; then books the CPUs' maxima."""
        ts = rows.ts
        if rows.buffer.any() or int(ts[0]) < max(self._max.values(), default=_LOW):
            return False
        if (ts[1:] < ts[:-1]).any() or int(rows.cpu.max()) >= MAX_CPU:
            return False
        last = np.full(MAX_CPU + 1, -1, np.int64)
        last[rows.cpu] = np.arange(len(ts))  # the last one of each stays; -1 comes to the end
        for cpu in np.flatnonzero(last[:MAX_CPU] >= 0).tolist():
            self._max[cpu] = int(ts[last[cpu]])
        return True

    def push(self, rows: EventColumns, names: list[Learnt], bound: int | None) -> Chunk | None:
        """Take a batch; give all rows up to ``bound``, the earliest time that may still come.

        ``bound`` None means that nothing more comes.
        """
        if len(rows):
            keys = self._key(rows)
            late = keys < self._given
            if late.any():
                self.late += int(late.sum())
                keys = np.maximum(keys, self._given)
            if len(self._keys):
                rows = EventColumns.concat([self._held, rows])
                keys = np.concatenate([self._keys, keys])
            if (np.diff(keys) < 0).any():
                order = np.argsort(keys, kind="stable")
                rows, keys = rows.take(order), keys[order]
        else:
            rows, keys = self._held, self._keys
        cut = len(keys) if bound is None else int(np.searchsorted(keys, bound, side="right"))
        self._held = rows.take(slice(cut, None))
        self._keys = keys[cut:]
        if bound is not None:
            # Slices are views: do not keep the whole batch alive for a few rows.
            self._held = EventColumns(*(c.copy() for c in self._held.arrays()))
            self._keys = self._keys.copy()
        if cut:
            self._given = int(keys[cut - 1])
        self._names += names
        given = self._drain(bound)
        return Chunk(rows.take(slice(0, cut)), given) if cut or given else None

    def _drain(self, bound: int | None) -> list[NameChange]:
        """The names that are new up to ``bound``, in the order of time."""
        self._names.sort(key=lambda n: (_LOW if n.ts is None else n.ts, n.offset))
        out: list[NameChange] = []
        done = 0
        for pid, tgid, comm, ts, evidence, _ in self._names:
            if bound is not None and ts is not None and ts > bound:
                break
            done += 1
            if comm is not None and self.named.get(pid) == comm:
                comm = None
            if tgid is not None and self._groups.get(pid) == tgid:
                tgid = None
            if comm is None and tgid is None:
                continue
            if comm is not None:
                self.named[pid] = comm
            if tgid is not None:
                # What was known first holds from before the window on.
                if comm is None and pid not in self._groups:
                    ts = None
                self._groups[pid] = tgid
            out.append(NameChange(pid, tgid, comm, ts, evidence))
        del self._names[:done]
        return out

    def report(self, issues: IssueLog) -> None:
        """Say where time stepped back."""
        if self.late:
            issues.add(
                "parse",
                "too_late_to_sort",
                f"{self.late} lines stand too far behind their time to be sorted in",
                count=self.late,
            )
        for cpu, (count, first) in sorted(self.backwards.items()):
            issues.add(
                "parse",
                "time_backwards",
                f"cpu {cpu}: time steps back {count}×; the order of the lines was kept",
                ts=first,
                cpu=cpu,
                count=count,
            )


#: The same event reaches two instances of ftrace one after the other, each with its own stamp.
TWIN_NS = 10_000
_KEY_COLUMNS = (
    "kind", "cpu", "pid", "subject", "prio", "state", "other", "other_prio", "cpu_to", "cpu_from",
    "value",
)  # fmt: skip


class Twins:
    """Finds events that several buffers recorded: same CPU, kind and fields, at the same time.

    The first one stays. Within one buffer nothing is ever a twin: two equal wakeups within a µs
    do happen.
    """

    def __init__(self, window_ns: int = TWIN_NS) -> None:
        self._window = window_ns
        self._seen: dict[tuple[int, ...], list[tuple[int, set[int]]]] = {}
        #: kind -> how many were left out.
        self.dropped: dict[int, int] = {}

    def keep(self, rows: EventColumns) -> npt.NDArray[np.bool_]:
        """Which rows (in file order) are not the twin of an earlier one."""
        keep = np.ones(len(rows), bool)
        columns = [getattr(rows, name).tolist() for name in _KEY_COLUMNS]
        stamps, buffers = rows.ts.tolist(), rows.buffer.tolist()
        for i, key in enumerate(zip(*columns, strict=True)):
            if key[0] in _MARKS:
                continue
            ts, buffer = stamps[i], buffers[i]
            open_ = self._seen.setdefault(key, [])
            if open_ and ts - open_[0][0] > self._window:
                open_[:] = [e for e in open_ if ts - e[0] <= self._window]
            for when, who in open_:
                if buffer not in who and abs(ts - when) <= self._window:
                    who.add(buffer)
                    keep[i] = False
                    self.dropped[key[0]] = self.dropped.get(key[0], 0) + 1
                    break
            else:
                open_.append((ts, {buffer}))
        if len(self._seen) > 1 << 16:
            newest = max(stamps, default=0)
            self._seen = {
                k: v for k, v in self._seen.items() if v and newest - v[-1][0] <= self._window
            }
        return keep

    def report(self, issues: IssueLog) -> None:
        """Say how many were left out."""
        count = sum(self.dropped.values())
        if count:
            issues.add(
                "parse",
                "duplicate_events",
                f"{count} events were recorded by several buffers: counted once, the first kept",
                count=count,
            )
