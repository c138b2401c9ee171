"""From bundles of ftrace events to rows, and from rows in the order of time to chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana.columns import (
    NULL_CPU,
    NULL_I64,
    NULL_PID,
    NULL_PRIO,
    NULL_STATE,
    Chunk,
    EventColumns,
    NameChange,
)
from traceana.issues import IssueLog
from traceana.parsers import _perfetto_kernels as kernels
from traceana.parsers import perfetto_tables as tables
from traceana.parsers.payload import ctx_table
from traceana.parsers.perfetto_facts import Facts
from traceana.parsers.perfetto_wire import fields, signed, text
from traceana.schema import EventKind

__all__ = ["Decoder", "Rows", "named_fields"]


@dataclass
class Rows:
    """Decoded rows, with what the last step needs."""

    events: EventColumns
    names: npt.NDArray[np.int64]
    how: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.how)

    def take(self, rows: Any) -> Rows:
        """Rows by index, mask or slice."""
        return Rows(self.events.take(rows), self.names[rows], self.how[rows])

    @classmethod
    def join(cls, parts: list[Rows]) -> Rows:
        """All rows of several parts, in order."""
        if len(parts) < 2:
            return parts[0] if parts else cls.empty()
        return cls(
            EventColumns.concat([p.events for p in parts]),
            np.concatenate([p.names for p in parts]),
            np.concatenate([p.how for p in parts]),
        )

    @classmethod
    def empty(cls, n: int = 0) -> Rows:
        """Uninitialised rows."""
        return cls(EventColumns.empty(n), np.empty((n, 4), np.int64), np.empty(n, np.uint8))


class Decoder:
    """One pass over the events of a trace."""

    def __init__(self, facts: Facts) -> None:
        self._layouts = tables.Layouts(facts.described)
        self._states, self._states_told = tables.state_table(facts.release)
        self._ctx = ctx_table()
        self._told = np.zeros(kernels.N_TOLD, np.int64)
        self._by_number = np.zeros(kernels.N_EVENTS + len(facts.described), np.int64)
        self._by_name: dict[str, int] = {}
        self._compact = False
        self._current = np.full((kernels.MAX_CPU, 2), NULL_PID, np.int32)
        self._current[:, 1] = NULL_PRIO
        # Zeros are mapped lazily: only the pages of pids that occur cost memory.
        self._last = np.zeros((kernels.PID_LIMIT, 2), np.int64)

    @property
    def damaged(self) -> bool:
        """Some events or compact parts could not be read."""
        return bool(self._told[kernels.BAD_EVENTS] or self._told[kernels.BAD_COMPACT])

    def counts(self) -> dict[str, int]:
        """Events by name."""
        out = dict(self._by_name)
        for cell in np.flatnonzero(self._by_number).tolist():
            if cell != kernels.GENERIC:
                name = self._layouts.name_of(cell)
                out[name] = out.get(name, 0) + int(self._by_number[cell])
        return out

    def decode(
        self,
        buf: npt.NDArray[np.uint8],
        bundles: npt.NDArray[np.int64],
        extra: npt.NDArray[np.int64],
    ) -> Rows:
        """All rows of these bundles, in the order of the file; see ``_perfetto_kernels.decode``."""
        sizes = bundles[:, [kernels.EVENTS, kernels.SWITCHES, kernels.WAKINGS]]
        self._compact = self._compact or bool(sizes[:, 1:].any())
        out = Rows.empty(int(sizes.sum()) + 2 * len(bundles))
        lay = self._layouts
        self._told[kernels.OUT] = 0
        kernels.decode(
            buf, bundles, extra, lay.numbers, lay.row_of, lay.kinds, lay.slots, lay.fills,
            self._states, self._ctx, self._by_number, out.names, out.how,
            out.events.arrays(), self._told,
        )  # fmt: skip
        out = out.take(slice(0, int(self._told[kernels.OUT])))
        return self._named(buf, out) if (out.how == kernels.BY_NAME).any() else out

    def finish(self, rows: Rows) -> Chunk:
        """Rows in the order of time as a chunk: what the compact form leaves out filled in."""
        events = rows.events
        learnt = np.empty((2 * len(rows), 4), np.int64)
        found = kernels.finish(
            events.cpu, events.kind, events.pid, events.subject, events.prio, events.other,
            events.other_prio, rows.how, rows.names, self._current, self._last, learnt,
        )  # fmt: skip
        changes = [
            NameChange(pid, None, _comm(first, second), int(events.ts[row]))
            for row, pid, first, second in learnt[:found].tolist()
        ]
        return Chunk(events, changes)

    def _named(self, buf: npt.NDArray[np.uint8], rows: Rows) -> Rows:
        """Events that come with the names of tracepoint and fields (GenericFtraceEvent)."""
        keep = np.ones(len(rows), bool)
        for i in np.flatnonzero(rows.how == kernels.BY_NAME).tolist():
            start, end = rows.names[i, :2].tolist()
            rows.names[i] = 0
            rows.how[i] = kernels.PLAIN
            name, told = named_fields(buf[start:end].tobytes())
            self._by_name[name] = self._by_name.get(name, 0) + 1
            kind = tables.kind_of(name)
            slots = dict(tables.ABSENT)
            for key, value in told.items():
                what = tables.MEANING.get(name, {}).get(key)
                if what in slots and isinstance(value, int):
                    slots[what] = value
                elif what in ("FIRST_NAME", "SECOND_NAME") and isinstance(value, bytes):
                    at = 0 if what == "FIRST_NAME" else 2
                    comm = value.partition(b"\0")[0][:16].ljust(16, b"\0")
                    rows.names[i, at : at + 2] = np.frombuffer(comm, np.int64)
            if kind is None or not slots["SUCCESS"]:
                keep[i] = False
                self._told[kernels.FAILED] += kind is not None
                continue
            self._set(rows.events, i, kind, slots)
        return rows if keep.all() else rows.take(keep)

    def _set(self, events: EventColumns, i: int, kind: EventKind, slots: dict[str, int]) -> None:
        def fit(value: int, low: int, high: int, null: int) -> int:
            return value if low <= value < high else null

        state = slots["STATE"]
        events.kind[i] = int(kind)
        events.subject[i] = fit(slots["SUBJECT"], -(1 << 31), 1 << 31, NULL_PID)
        events.prio[i] = fit(slots["PRIO"], -32767, 32768, NULL_PRIO)
        events.state[i] = NULL_STATE if state == NULL_I64 else self._states[state & 0xFFFF]
        events.other[i] = fit(slots["OTHER"], -(1 << 31), 1 << 31, NULL_PID)
        events.other_prio[i] = fit(slots["OTHER_PRIO"], -32767, 32768, NULL_PRIO)
        events.cpu_to[i] = fit(slots["CPU_TO"], 0, kernels.MAX_CPU, NULL_CPU)
        events.cpu_from[i] = fit(slots["CPU_FROM"], 0, kernels.MAX_CPU, NULL_CPU)
        events.value[i] = slots["VALUE"]

    def report(self, issues: IssueLog, *, switches: bool) -> None:
        """Say what was left out, and what was assumed, once all is decoded."""
        add, told = issues.add, self._told
        if told[kernels.BAD_EVENTS]:
            add("parse", "event_damaged",
                f"offset {int(told[kernels.FIRST_BAD]):#x}: an event that cannot be read; "
                f"{int(told[kernels.BAD_EVENTS])} such events left out",
                count=int(told[kernels.BAD_EVENTS]))  # fmt: skip
        if told[kernels.BAD_COMPACT]:
            add("parse", "compact_sched_damaged",
                f"offset {int(told[kernels.FIRST_BAD_COMPACT]):#x}: the arrays of a compact part "
                f"do not belong together; {int(told[kernels.BAD_COMPACT])} such parts left out",
                count=int(told[kernels.BAD_COMPACT]))  # fmt: skip
        if told[kernels.FAILED]:
            add("parse", "wakeup_without_success",
                f"{int(told[kernels.FAILED])} wakeups with success=0 are no wakeups: left out",
                count=int(told[kernels.FAILED]))  # fmt: skip
        if switches and not self._states_told:
            add("parse", "prev_state_table_missing",
                "the trace tells no kernel release: prev_state read as since 4.14")  # fmt: skip
        if self._compact:
            add("parse", "compact_sched", "the recorder left out the tasks switched out and the "
                "wakers: taken from the CPU's switch before")  # fmt: skip


def _comm(first: int, second: int) -> bytes:
    """A name out of its two words."""
    mask = (1 << 64) - 1
    both = (first & mask).to_bytes(8, "little") + (second & mask).to_bytes(8, "little")
    return both.partition(b"\0")[0]


def named_fields(data: bytes) -> tuple[str, dict[str, int | bytes]]:
    """A GenericFtraceEvent: the tracepoint's name, and its fields by name."""
    name, out = "unknown", {}
    for number, value in fields(data):
        if number == 1:
            name = text(value) or name
        elif number == 2 and isinstance(value, bytes):
            parts = dict(fields(value))
            key = text(parts.get(1, b""))
            for cell in (3, 4, 5):
                if cell in parts:
                    told = parts[cell]
                    out[key] = told if isinstance(told, bytes) else signed(told)
    return name, out
