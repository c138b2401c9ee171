"""Payloads of events to columns, for every container that carries event formats.

:class:`Layouts` turns format descriptions into the arrays of the decode kernel,
:class:`PayloadDecoder` runs it and keeps the names between calls. (:func:`extract`, all fields of
any tracepoint as a table, is that of ``fields``.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
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
from traceana.parsers import _payload_kernels as kernels
from traceana.parsers.fields import extract
from traceana.parsers.formats import EventFormat, Field, FieldKind, known_kind, state_table
from traceana.schema import Ctx, EventKind

__all__ = [
    "ROW_BEGIN",
    "ROW_LOST",
    "ColumnPool",
    "Layouts",
    "PayloadDecoder",
    "as_bytes",
    "ctx_table",
    "extract",
]

ROW_LOST = kernels.ROW_LOST
ROW_BEGIN = kernels.ROW_BEGIN

_WAKE = {"SUBJECT": "pid", "PRIO": "prio", "CPU_TO": "target_cpu", "SUCCESS": "success"}

#: kind -> slot -> field; how the columns are used is said in schema.EVENTS.
_SLOTS: dict[EventKind, dict[str, str]] = {
    EventKind.SWITCH: {
        "SUBJECT": "prev_pid",
        "PRIO": "prev_prio",
        "STATE": "prev_state",
        "OTHER": "next_pid",
        "OTHER_PRIO": "next_prio",
    },
    EventKind.WAKING: _WAKE,
    EventKind.WAKEUP: _WAKE,
    EventKind.WAKEUP_NEW: _WAKE,
    EventKind.MIGRATE: {
        "SUBJECT": "pid",
        "PRIO": "prio",
        "CPU_FROM": "orig_cpu",
        "CPU_TO": "dest_cpu",
    },
    EventKind.FORK: {"SUBJECT": "child_pid", "OTHER": "parent_pid"},
    EventKind.EXEC: {"SUBJECT": "pid", "OTHER": "old_pid"},
    EventKind.EXIT: {"SUBJECT": "pid", "PRIO": "prio"},
    EventKind.STAT_RUNTIME: {"SUBJECT": "pid", "VALUE": "runtime"},
    EventKind.CPU_IDLE: {"VALUE": "state", "CPU_TO": "cpu_id"},
    EventKind.WAKE_IDLE_WITHOUT_IPI: {"CPU_TO": "cpu"},
    EventKind.IPI_SEND_CPU: {"CPU_TO": "cpu"},
    EventKind.IRQ_ENTRY: {"VALUE": "irq"},
    EventKind.IRQ_EXIT: {"VALUE": "irq"},
    EventKind.SOFTIRQ_ENTRY: {"VALUE": "vec"},
    EventKind.SOFTIRQ_EXIT: {"VALUE": "vec"},
    EventKind.TASK_RENAME: {"SUBJECT": "pid"},
    EventKind.PI_SETPRIO: {"SUBJECT": "pid", "PRIO": "oldprio", "VALUE": "newprio"},
}
_COMMON = {"PID": "common_pid", "FLAGS": "common_flags", "PREEMPT": "common_preempt_count"}

#: kind -> (comm field, slot of its pid), in the order in which they are learnt.
_COMM: dict[EventKind, tuple[tuple[str, str], ...]] = {
    EventKind.SWITCH: (("prev_comm", "SUBJECT"), ("next_comm", "OTHER")),
    EventKind.FORK: (("parent_comm", "OTHER"), ("child_comm", "SUBJECT")),
    EventKind.TASK_RENAME: (("oldcomm", "SUBJECT"), ("newcomm", "SUBJECT")),
}
_COMM_DEFAULT = (("comm", "SUBJECT"),)


def as_bytes(buf: Any) -> npt.NDArray[np.uint8]:
    """A read-only uint8 view of any buffer: the one form in which kernels take bytes."""
    view = np.frombuffer(buf, np.uint8) if not isinstance(buf, np.ndarray) else buf.view()
    view.flags.writeable = False
    return view


def ctx_table() -> npt.NDArray[np.uint8]:
    """``uint8[256]``: common_flags to the bits of ``events.ctx`` (include/linux/trace_events.h)."""
    flags = np.arange(256)
    out = np.zeros(256, np.uint8)
    for bit, ctx in (
        (0x04, Ctx.NEED_RESCHED),
        (0x08, Ctx.HARDIRQ),
        (0x10, Ctx.SOFTIRQ),
        (0x40, Ctx.NMI),
        (0x80, Ctx.BH_OFF),
    ):
        out[(flags & bit) != 0] |= np.uint8(ctx)
    return out


#: Sentinel of each slot's column; STATE looks it up, see _payload_kernels.
_FILL = {
    "PID": NULL_PID,
    "SUBJECT": NULL_PID,
    "PRIO": NULL_PRIO,
    "STATE": kernels.NO_STATE,
    "OTHER": NULL_PID,
    "OTHER_PRIO": NULL_PRIO,
    "CPU_TO": NULL_CPU,
    "CPU_FROM": NULL_CPU,
    "VALUE": NULL_I64,
}


def _cells(slot: str, field: Field | None, big: bool) -> tuple[int, int, int, int]:
    """The cells of a slot (see the head of _payload_kernels); field None: not in the format."""
    word = 8 if slot == "VALUE" else 4
    if field is None:
        return (-word, 0, 0, _FILL[slot])
    # Of a longer field only its low bytes can matter: prev_state has 16 bits, a pid fits in 32.
    size = min(field.size, word)
    end = field.offset + (field.size if big else size)
    mask = -1 if field.signed or size == 8 else (1 << 8 * size) - 1
    return (end - word, 8 * (word - size), 0xFFFF if slot == "STATE" else mask, 0)


class Layouts:
    """The known tracepoints of a capture as arrays for the kernel, one row each.

    Attributes
    ----------
    formats : list of EventFormat
        Row -> format; only formats of a known kind have a row.
    row_of_id : int32[65536]
        Event id (common_type) -> row, -1 for others.
    kinds, need, spec, common, names, states, ctx_of_flags
        As ``_payload_kernels.decode`` takes them.
    states_told : bool
        False when sched_switch has no letter table of its own (see formats.state_table).
    """

    def __init__(self, formats: Iterable[EventFormat], *, big_endian: bool = False) -> None:
        self.big_endian = big_endian
        self.formats: list[EventFormat] = []
        self.row_of_id = np.full(1 << 16, -1, np.int32)
        states = np.zeros(1 << 16, np.uint16)
        self.states_told = True
        self.ctx_of_flags = ctx_table()
        kinds: list[EventKind] = []
        for fmt in formats:
            kind = known_kind(fmt)
            if kind is None or not 0 <= fmt.id < 1 << 16 or self.row_of_id[fmt.id] >= 0:
                continue
            self.row_of_id[fmt.id] = len(kinds)
            self.formats.append(fmt)
            kinds.append(kind)
            if kind is EventKind.SWITCH:
                states, self.states_told = state_table(fmt.print_fmt)
        self.states = np.append(states, np.uint16(NULL_STATE))
        self.kinds = np.array(kinds, np.uint8)
        self.need = np.zeros(len(kinds), np.int32)
        self.spec = np.zeros((len(kinds), kernels.N_SLOTS, kernels.N_CELLS), np.int64)
        for slot in ("FLAGS", "PREEMPT", "SUCCESS"):
            self.spec[:, getattr(kernels, slot), kernels.PLACE] = kernels.ABSENT
        self.names = np.full((len(kinds), kernels.N_NAMES, 4), -1, np.int32)
        for row, (fmt, kind) in enumerate(zip(self.formats, kinds, strict=True)):
            self._fill(row, fmt, kind)
        self.common = self._find_common()

    def _fill(self, row: int, fmt: EventFormat, kind: EventKind) -> None:
        reach = 0
        places = _COMMON | _SLOTS[kind]
        for slot in [*_FILL, "FLAGS", "PREEMPT", "SUCCESS"]:
            field = fmt.by_name.get(places.get(slot, ""))
            if field is not None and field.kind is not FieldKind.INT:
                field = None
            if field is not None or slot in _FILL:
                self.spec[row, getattr(kernels, slot)] = _cells(slot, field, self.big_endian)
            if field is not None:
                reach = max(reach, field.offset + field.size)
                if slot in ("FLAGS", "PREEMPT"):
                    self.spec[row, getattr(kernels, slot), kernels.PLACE] = field.offset
        place = 0
        for name, slot in _COMM.get(kind, _COMM_DEFAULT):
            field = fmt.by_name.get(name)
            if field is None or not field.is_text or (field.kind is FieldKind.CHARS) > field.size:
                continue
            loc = {FieldKind.CHARS: kernels.FIXED, FieldKind.DATA_LOC: kernels.DATA_LOC}.get(
                field.kind, kernels.REL_LOC
            )
            self.names[row, place] = (field.offset, field.size, loc, getattr(kernels, slot))
            reach = max(reach, field.offset + field.size)
            place += 1
        self.need[row] = reach

    def _find_common(self) -> npt.NDArray[np.int64]:
        """int64[4]: where pid, flags and preempt count lie, and whether they do so in all formats.

        Where they do not (or not in a form that needs no conversion) the last one is 0.
        """
        slots = [kernels.PID, kernels.FLAGS, kernels.PREEMPT]
        out = np.zeros(4, np.int64)
        if len(self.kinds) and not self.big_endian:
            cells = self.spec[:, slots]
            alike = (cells == cells[0]).all()
            plain = cells[0, 0, kernels.SHIFT] == 0 and cells[0, 0, kernels.MASK] == -1
            there = (cells[0, :, kernels.PLACE] != kernels.ABSENT).all()
            out[:3] = cells[0, :, kernels.PLACE]
            out[3] = alike and plain and there
        return out


class PayloadDecoder:
    """Decodes rows of payloads to chunks; remembers each pid's name between calls.

    Parameters
    ----------
    buf : uint8[:], read-only (see :func:`as_bytes`)
        The bytes that the payload offsets count in; :meth:`rebase` changes them.
    layouts : Layouts
    buffer : int
        What the column ``buffer`` gets.

    Attributes
    ----------
    short, failed : int
        Payloads too short for their format, and wakeups without success: no row was made of
        these. ``first_short`` is the offset of the first such payload.
    """

    def __init__(
        self,
        buf: npt.NDArray[np.uint8],
        layouts: Layouts,
        *,
        buffer: int = 0,
    ) -> None:
        self.layouts = layouts
        self._buf = buf
        self._big = 1 if layouts.big_endian else None
        self._buffer = buffer
        # Zeros are mapped lazily: only the pages of pids that occur cost memory.
        self._last = np.zeros((kernels.PID_LIMIT, 4), np.int64)
        self._lists = np.empty((len(layouts.kinds), kernels.LIST_ROOM), np.int64)
        self._counts = np.empty(len(layouts.kinds), np.int64)
        room = 2 * kernels.BLOCK_NAMES
        self._name_pid = np.empty(room, np.int32)
        self._name_ts = np.empty(room, np.int64)
        self._name_off = np.empty(room, np.int64)
        self._name_len = np.empty(room, np.int32)
        self._result = np.zeros(kernels.N_RESULTS, np.int64)
        self._order = np.empty(0, np.int64)
        self._spec = layouts.spec.ravel()
        self.pool = ColumnPool()

    @property
    def short(self) -> int:
        return int(self._result[kernels.SHORT])

    @property
    def first_short(self) -> int:
        return int(self._result[kernels.FIRST_SHORT])

    @property
    def failed(self) -> int:
        return int(self._result[kernels.FAILED])

    def rebase(self, buf: npt.NDArray[np.uint8]) -> None:
        """Take payloads from another buffer from now on."""
        self._buf = buf

    def report(self, issues: IssueLog) -> None:
        """Say what was left out, once all is decoded."""
        if self.short:
            issues.add(
                "parse",
                "payload_too_short",
                f"offset {self.first_short:#x}: event shorter than its format says; "
                f"{self.short} such events left out",
                count=self.short,
            )
        if self.failed:
            issues.add(
                "parse",
                "wakeup_without_success",
                f"{self.failed} wakeups with success=0 are no wakeups: left out",
                count=self.failed,
            )
        if not self.layouts.states_told:
            issues.add(
                "parse",
                "prev_state_table_missing",
                "sched_switch tells no letters of prev_state: bits above 32 count as other sleeps",
            )

    def drain(self, names: list[NameChange]) -> None:
        """Add the changes of names that a kernel has noted."""
        n = int(self._result[kernels.NAMES])
        for pid, ts, off, size in zip(
            self._name_pid[:n].tolist(),
            self._name_ts[:n].tolist(),
            self._name_off[:n].tolist(),
            self._name_len[:n].tolist(),
            strict=True,
        ):
            comm = self._buf[off : off + size].tobytes().partition(b"\0")[0]
            names.append(NameChange(pid, None, comm, ts))
        self._result[kernels.NAMES] = 0

    def begin(self, rows: int) -> EventColumns:
        """Columns with room for so many rows; what is decoded next goes to their front."""
        self._result[[kernels.OUT, kernels.NAMES, kernels.LOSSES]] = 0
        return self.pool.take(rows)

    @property
    def made(self) -> int:
        """Rows that have been made since :meth:`begin`."""
        return int(self._result[kernels.OUT])

    @property
    def losses(self) -> int:
        """LOST rows among these."""
        return int(self._result[kernels.LOSSES])

    def arguments(self, columns: EventColumns) -> tuple[Any, ...]:
        """The last arguments of ``_payload_kernels.decode``, from ``kinds`` on."""
        lay = self.layouts
        return (
            lay.kinds, lay.need, self._spec, lay.common, lay.names, lay.states, lay.ctx_of_flags,
            self._buffer, self._last, self._lists, self._counts, columns.arrays(),
            self._name_pid, self._name_ts, self._name_off, self._name_len, self._result,
        )  # fmt: skip

    def fill(
        self,
        columns: EventColumns,
        at: int,
        ts: npt.NDArray[np.int64],
        cpu: npt.NDArray[np.int32],
        off: npt.NDArray[np.int64],
        length: npt.NDArray[np.int32],
        row: npt.NDArray[np.int32],
        order: npt.NDArray[np.int64],
        names: list[NameChange],
    ) -> int:
        """Decode into ``columns`` from row ``at`` on (it must have room); returns the next row.

        The parameters are those of :meth:`decode`; ``names`` is added to.
        """
        self._result[kernels.OUT] = at
        self._result[kernels.NAMES] = 0
        done, n = 0, len(order)
        while done < n:
            done = kernels.decode(
                self._buf, self._big, ts, cpu, off, length, row, order, kernels.PLACE_MASK, done, n,
                *self.arguments(columns),
            )  # fmt: skip
            self.drain(names)
        return int(self._result[kernels.OUT])

    def decode(
        self,
        ts: npt.NDArray[np.int64],
        cpu: npt.NDArray[np.int32],
        off: npt.NDArray[np.int64],
        length: npt.NDArray[np.int32],
        row: npt.NDArray[np.int32],
        order: npt.NDArray[np.int64] | None = None,
    ) -> Chunk:
        """The rows as a chunk, in the given ``order`` (indices; None: as they stand).

        ``row`` is a row of the layouts, or ROW_LOST (``off`` then holds the count, NULL_I64
        when not told) or ROW_BEGIN. ``[off, off + length)`` must lie within the buffer, ``off``
        at 8 or above.
        """
        if order is None:
            n = len(ts)
            if len(self._order) < n:
                self._order = np.arange(n, dtype=np.int64)
            order = self._order[:n]
        columns = self.pool.take(len(order))
        names: list[NameChange] = []
        made = self.fill(columns, 0, ts, cpu, off, length, row, order, names)
        return Chunk(columns if made == len(order) else columns.take(slice(0, made)), names)


_DTYPES = [column.dtype for column in EventColumns.empty(0).arrays()]


class ColumnPool:
    """Columns for chunks, from memory that is used again once nobody holds the chunk any more.

    Fresh memory costs more than decoding into it: every page of it is a fault.
    """

    _KEPT = 3

    def __init__(self, rows: int = 1 << 18) -> None:
        self._rows = rows
        self._blocks: list[npt.NDArray[np.uint8]] = []
        # References to a block that only the list and a loop hold; interpreters differ in that.
        self._unheld = 0
        for known in [np.empty(0, np.uint8)]:
            self._unheld = sys.getrefcount(known)

    def take(self, n: int) -> EventColumns:
        """Uninitialised columns of n rows."""
        if n > self._rows:
            return EventColumns.empty(n)
        block = None
        for known in self._blocks:
            # No array of an earlier chunk is left.
            if sys.getrefcount(known) <= self._unheld:
                block = known
                break
        if block is None:
            size = sum(-(-self._rows * d.itemsize // 64) * 64 for d in _DTYPES)
            block = np.empty(size, np.uint8)
            if len(self._blocks) < self._KEPT:
                self._blocks.append(block)
        arrays, at = [], 0
        for dtype in _DTYPES:
            arrays.append(block[at : at + n * dtype.itemsize].view(dtype))
            at += -(-self._rows * dtype.itemsize // 64) * 64
        return EventColumns(*arrays)
