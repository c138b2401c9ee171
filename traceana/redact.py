"""A capture without private names: stable labels for tasks, processes, thread ids and the host.

:class:`RedactedReader` stands between a parser and everything else, so that no output can show
what it does not hand on. Labels are given in the order in which names and ids are met: the same
capture gives the same labels every time, and no label tells anything of the name. Tasks of one
family of names (``families.family``) keep a label of one family. Names of the kernel's own
per-CPU threads stay (``migration/3``): they tell what the thread is, and nothing of its user.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from glob import escape
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana.columns import Chunk
from traceana.families import family
from traceana.issues import IssueLog
from traceana.parsers.reader import Lost, Reader, ReaderMeta
from traceana.start_state import StartState

__all__ = ["RedactedReader", "Redactor"]

_KERNEL = re.compile(
    rb"(?:swapper|kworker|ksoftirqd|migration|cpuhp|rcu[a-z_]*|irq|napi|ktimers|idle_inject)"
    rb"/[u\d]\d{0,5}(?::\d{1,5}H?)?(?![^-+:_])"
)


class Redactor:
    """Who is called what.

    Parameters
    ----------
    workload : (name, glob) pairs; tasks whose true name fits are labelled after the workload

    >>> r = Redactor()
    >>> r.comm(b"redis-7"), r.comm(b"redis-9"), r.comm(b"backup"), r.comm(b"migration/3")
    (b'a-1', b'a-2', b'b-1', b'migration/3')
    >>> r.pid(4711), r.pid(815), r.pid(4711), r.pid(0)
    (1, 2, 1, 0)
    """

    def __init__(self, workload: Sequence[tuple[str, str]] = ()) -> None:
        self._globs = tuple(workload)
        self._comms: dict[bytes, bytes] = {b"": b""}
        self._families: dict[str, str] = {}
        self._members: dict[str, int] = {}
        self._pids: dict[int, int] = {}
        self._known = np.zeros(0, np.int64)
        self._labels = np.zeros(0, np.int64)

    @property
    def workload(self) -> tuple[tuple[str, str], ...]:
        """The pairs that pick the same tasks by their labels."""
        return tuple(dict.fromkeys((name, f"{escape(name)}-*") for name, _ in self._globs))

    def comm(self, comm: bytes) -> bytes:
        """The label of a name."""
        known = self._comms.get(comm)
        if known is None:
            known = self._comms[comm] = self._label(comm)
        return known

    def _label(self, comm: bytes) -> bytes:
        kernel = _KERNEL.match(comm)
        if kernel is not None:
            return kernel[0]
        name = comm.decode("utf-8", "backslashreplace")
        group = next((w for w, glob in self._globs if fnmatchcase(name, glob)), None)
        if group is None:
            key = family(name)
            group = self._families.get(key)
            if group is None:
                group = self._families[key] = _letters(len(self._families))
        self._members[group] = self._members.get(group, 0) + 1
        return f"{group}-{self._members[group]}".encode()

    def pid(self, pid: int) -> int:
        """The label of a thread or process id; 0 and -1 stay."""
        if pid <= 0:
            return pid
        return self._pids.setdefault(pid, len(self._pids) + 1)

    def pids(self, pids: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """The labels of many, int32[n]."""
        found, where = np.unique(pids, return_inverse=True)
        # New ones in the order in which they are met, not in that of their numbers.
        new = [p for p in found.tolist() if p > 0 and p not in self._pids]
        if new:
            first = np.full(len(found), len(pids), np.int64)
            np.minimum.at(first, where, np.arange(len(pids)))
            rank = dict(zip(found.tolist(), first.tolist(), strict=True))
            for pid in sorted(new, key=rank.__getitem__):
                self.pid(pid)
        labels = np.array([self.pid(p) for p in found.tolist()], np.int32)
        return labels[where].astype(np.int32)

    def start_state(self, state: StartState) -> StartState:
        """The same with labels."""
        return dataclasses.replace(
            state,
            tasks=tuple(
                dataclasses.replace(
                    t,
                    pid=self.pid(t.pid),
                    last_wakee=None if t.last_wakee is None else self.pid(t.last_wakee),
                )
                for t in state.tasks
            ),
            running={cpu: self.pid(pid) for cpu, pid in state.running.items()},
        )

    def text(self, text: str) -> str:
        """A sentence with every known name in it replaced."""
        names = [c.decode("utf-8", "backslashreplace") for c in self._comms if len(c) > 2]
        if not names:
            return text
        pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        return re.sub(
            rf"(?<!\w)(?:{pattern})(?!\w)", lambda m: self.comm(m[0].encode()).decode(), text
        )


def _letters(n: int) -> str:
    """a, b, …, z, aa, ab, …"""
    out = ""
    n += 1
    while n:
        n, rest = divmod(n - 1, 26)
        out = chr(97 + rest) + out
    return out


class RedactedReader:
    """A reader that hands on labels (satisfies the Reader protocol)."""

    def __init__(self, reader: Reader, redactor: Redactor) -> None:
        self._reader = reader
        self._redactor = redactor
        self.path = reader.path
        self.meta: ReaderMeta = dataclasses.replace(
            reader.meta, hostname=None, cmdline=None, extra={}
        )

    @property
    def counts(self) -> dict[str, int]:
        return self._reader.counts

    @property
    def lost(self) -> Lost:
        return self._reader.lost

    @property
    def damaged(self) -> bool:
        return self._reader.damaged

    @property
    def issues(self) -> IssueLog:
        return self._reader.issues.mapped(self._redactor.text)

    def chunks(self) -> Iterator[Chunk]:
        """The reader's chunks, with labels."""
        redactor = self._redactor
        for chunk in self._reader.chunks():
            events = chunk.events
            labelled = dataclasses.replace(
                events,
                pid=redactor.pids(events.pid),
                subject=redactor.pids(events.subject),
                other=redactor.pids(events.other),
            )
            names = [
                dataclasses.replace(
                    change,
                    pid=redactor.pid(change.pid),
                    tgid=None if change.tgid is None else redactor.pid(change.tgid),
                    comm=None if change.comm is None else redactor.comm(change.comm),
                )
                for change in chunk.names
            ]
            yield dataclasses.replace(chunk, events=labelled, names=names)

    def extra_events(self, name: str) -> pa.Table:
        """All events of one tracepoint: numbers only, ids as labels."""
        table = self._reader.extra_events(name)
        for i, field in enumerate(table.schema):
            if pa.types.is_string(field.type):
                table = table.set_column(i, field, pa.nulls(table.num_rows, field.type))
            elif field.name.endswith("pid") and pa.types.is_integer(field.type):
                values: list[Any] = table[field.name].to_pylist()
                labels = [None if v is None else self._redactor.pid(v) for v in values]
                table = table.set_column(i, field, pa.array(labels, field.type))
        return table

    def topology(self) -> pa.Table | None:
        return self._reader.topology()

    def progress(self) -> tuple[int, int]:
        return self._reader.progress()
