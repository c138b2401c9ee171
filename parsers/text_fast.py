"""Runs the text kernels over big files, and hands every doubtful line back.

The results are those of the line by line reader: a test reads the same texts both ways.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from traceana import schema
from traceana.columns import NULL_STATE, EventColumns
from traceana.parsers import _text_kernels as kernels
from traceana.parsers import _text_line_kernels as line_kernels
from traceana.parsers import _text_name_kernels as name_kernels
from traceana.parsers._text_head_kernels import NO_FLAG
from traceana.parsers.text_events import States
from traceana.parsers.text_lines import DEFAULT_LAYOUTS, Buffer, ctx_of
from traceana.schema import STATE_LETTERS, Ctx, EventKind

if TYPE_CHECKING:
    from traceana.parsers.text_dialect import Dialect

__all__ = ["Fast", "Part", "earliest"]

#: PID_MAX_LIMIT of 64-bit kernels.
PIDS = 1 << 22
ROWS = 1 << 19
DOUBTS = 1 << 16
#: Raw prev_state beyond this is left to the other reader.
STATES = 1 << 13

_WAKE = (
    "comm={c0} pid={0} prio={1} target_cpu={4}$",
    "comm={c0} pid={0} prio={1} success={7} target_cpu={4}$",
    "{p0}:{0} [{1}] CPU:{4}$",
    "{p0}:{0} [{1}] success={7} CPU:{4}$",
)
#: {c} a name, {p} a name in a plugin's text, {s} a state, digits a number's column; "$" the
#: line's end, "~" whatever follows.
_TEMPLATES: dict[EventKind, tuple[str, ...]] = {
    EventKind.SWITCH: (
        "prev_comm={c0} prev_pid={0} prev_prio={1} prev_state={s0} ==> "
        "next_comm={c1} next_pid={2} next_prio={3}$",
        "prev_comm={c0} prev_pid={0} prev_prio={1} prev_state={s0} "
        "next_comm={c1} next_pid={2} next_prio={3}$",
        "{p0}:{0} [{1}] {s1} ==> {p1}:{2} [{3}]$",
    ),
    EventKind.WAKING: _WAKE,
    EventKind.WAKEUP: _WAKE,
    EventKind.WAKEUP_NEW: _WAKE,
    EventKind.MIGRATE: ("comm={c0} pid={0} prio={1} orig_cpu={5} dest_cpu={4}$",),
    EventKind.FORK: (
        "comm={c1} pid={2} child_comm={c0} child_pid={0}$",
        "parent_comm={c1} parent_pid={2} child_comm={c0} child_pid={0}$",
    ),
    EventKind.EXIT: (
        "comm={c0} pid={0} prio={1}$",
        "comm={c0} pid={0} prio={1} group_dead=~",
    ),
    EventKind.STAT_RUNTIME: (
        "comm={c0} pid={0} runtime={6} [ns]$",
        "comm={c0} pid={0} runtime={6} [ns] vruntime=~",
        "comm={c0} pid={0} runtime={6} vruntime=~",
        "comm={c0} pid={0} runtime={6}$",
    ),
    EventKind.CPU_IDLE: ("state={6} cpu_id={4}$",),
    EventKind.WAKE_IDLE_WITHOUT_IPI: ("cpu={4}$",),
    EventKind.IPI_SEND_CPU: ("cpu={4} ~", "cpu={4}$"),
    EventKind.IRQ_ENTRY: ("irq={6} ~", "irq={6}$"),
    EventKind.IRQ_EXIT: ("irq={6} ~", "irq={6}$"),
    EventKind.SOFTIRQ_ENTRY: ("vec={6} ~", "vec={6}$"),
    EventKind.SOFTIRQ_EXIT: ("vec={6} ~", "vec={6}$"),
    # Rare, or with a text that may hold anything: always doubtful.
    EventKind.EXEC: (),
    EventKind.TASK_RENAME: (),
    EventKind.PI_SETPRIO: (),
}
_OPS = {"c": kernels.OP_COMM, "p": kernels.OP_PRETTY, "s": kernels.OP_STATE}
_PRINTERS = (
    "print", "bprint", "bputs", "tracing_mark_write", "raw_data", "kernel_stack", "user_stack", "0",
)  # fmt: skip


#: Systems whose name may stand before that of an event we know.
_SYSTEMS = ("sched", "power", "irq", "ipi", "task", "ftrace")
#: A line that ends this near to the text's end is left: kernels look some way ahead.
MARGIN = 128


def _encode(template: str) -> list[tuple[int, int, bytes]]:
    """The operations of a template: what, column or length, bytes of a literal."""
    out = []
    text = b""
    i = 0
    while i < len(template):
        char = template[i]
        if char in "{$~":
            out += [(kernels.OP_LITERAL, len(text[j : j + 8]), text[j : j + 8])
                    for j in range(0, len(text), 8)]  # fmt: skip
            text = b""
        if char == "{":
            end = template.index("}", i)
            inside = template[i + 1 : end]
            out.append((_OPS.get(inside[0], kernels.OP_INT), int(inside[-1]), b""))
            i = end
        elif char in "$~":
            out.append(({"$": kernels.OP_END, "~": kernels.OP_ANY}[char], 0, b""))
        else:
            text += char.encode()
        i += 1
    return out


class Part(NamedTuple):
    """What one run of the kernel gave; ``learnt`` and ``doubts`` as in the kernel."""

    offs: npt.NDArray[np.int64]
    columns: EventColumns
    learnt: list[list[int]]
    doubts: list[list[int]]
    #: Where to go on, and how many lines it has seen.
    at: int
    lines: int


class Fast:
    """The kernel with its tables, over one buffer; remembers names between runs."""

    def __init__(self, buf: Buffer, dialect: Dialect, states: States) -> None:
        self.buf = np.frombuffer(buf, np.uint8)  # type: ignore[call-overload]
        self._eights, self._words = _eights(self.buf), _words(self.buf)
        self._safe = buf.rfind(b"\n", 0, max(len(buf) - MARGIN, 0)) + 1
        self._mode = dialect.fast
        self._digits = dialect.digits
        self._columns, self._bits = _flag_tables(dialect.layout)
        self._memo = np.zeros(64, np.uint64), np.zeros(64, np.int64)
        events = [(n.encode(), int(k), _TEMPLATES[k]) for n, k in schema.EVENT_NAMES.items()]
        events += [(n.encode(), kernels.PRINTER, ()) for n in _PRINTERS]
        self._event_names = [n for n, _, _ in events]
        self._name_tables = _name_tables(self._event_names)
        self._kinds = np.array([k for _, k, _ in events], np.int64)
        self._templates = np.zeros((len(events), 2), np.int64)
        codes: list[tuple[int, int, bytes]] = []
        begins: list[int] = []
        for i, (_, _, templates) in enumerate(events):
            self._templates[i] = len(begins), len(begins) + len(templates)
            for text in templates:
                begins.append(4 * len(codes))
                codes += _encode(text)
        self._program = np.array(
            [(op, n, int.from_bytes(x, "little"), (1 << 8 * len(x)) - 1) for op, n, x in codes],
            np.uint64,
        ).ravel()
        self._hints = np.array(begins, np.int64)
        self._letters, self._numbers = _state_tables(states)
        room = np.zeros((4, kernels.STATE + 1), np.int64)
        self._room = room[0], room[1], room[2], room[3]
        # Zero pages cost nothing until a pid is met.
        self._known = np.zeros((PIDS, 2), np.uint64)
        self._since = np.zeros(PIDS, np.int64)
        self._groups = np.zeros(PIDS, np.int32)
        self._seen = np.zeros(PIDS, np.uint8)
        self._counts = np.zeros(len(events), np.int64)
        self._others = np.zeros((4096, 3), np.int64)
        self._learnt = np.empty((1 << 16, 5), np.int64)
        self._doubts = np.empty((DOUBTS, 3), np.int64)
        self._result = np.zeros(7, np.int64)

    def parse(self, start: int, end: int) -> Part:
        """Read whole lines of [start, end), perhaps not all of them."""
        # Pages of a large array that are never written to cost nothing.
        size = min(ROWS, (end - start) // 24 + 1)
        off, out = np.empty(size, np.int64), EventColumns.empty(size)
        with np.errstate(over="ignore"):  # only where the kernels run as plain Python
            kernels.parse(
                self.buf, self._eights, self._words, self._safe, start, end, self._mode,
                self._digits, self._columns, self._bits, *self._memo, *self._name_tables,
                self._kinds, self._templates, self._program, self._hints,
                self._letters, self._numbers, *self._room, self._known, self._since, self._groups,
                self._seen, self._counts, self._others, self._learnt, self._doubts, self._result,
                off, out.ts, out.cpu, out.kind, out.pid, out.ctx, out.subject, out.prio, out.state,
                out.other, out.other_prio, out.cpu_to, out.cpu_from, out.value,
            )  # fmt: skip
        rows, learnt, doubts, at, lines = self._result[:5].tolist()
        columns = out.take(slice(0, rows))
        columns.buffer[:] = 0
        return Part(
            off[:rows],
            columns,
            self._learnt[:learnt].tolist(),
            self._doubts[:doubts].tolist(),
            at,
            lines,
        )

    def comm(self, at: int, size: int) -> bytes:
        """Bytes of a name that the kernel met."""
        return bytes(self.buf[at : at + size])

    def known(self, pid: int) -> bytes:
        """The name the kernel holds for a pid, b"" if none."""
        if not 0 <= pid < PIDS:
            return b""
        return bytes(self._known[pid].tobytes()).rstrip(b"\0")

    def forget(self, pid: int) -> None:
        """Make the kernel tell this pid's name again when it meets it next."""
        if 0 <= pid < PIDS:
            self._known[pid] = 0, 0

    def counted(self) -> dict[bytes, int]:
        """Events per name that the kernel counted, over all runs."""
        out = {n: c for n, c in zip(self._event_names, self._counts.tolist(), strict=True) if c}
        for at, size, count in self._others[self._others[:, 2] > 0].tolist():
            name = self.comm(at, size)
            out[name] = out.get(name, 0) + count
        return out


def _flag_tables(
    layout: tuple[str, ...] | None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """For each length of a flags text, which row of bits each of its bytes has; and the bits."""
    characters = string.ascii_letters.encode() + string.digits.encode()
    none = np.full(256, NO_FLAG, np.uint8)
    none[list(characters + b".#")] = 0
    rows: dict[str, int] = {"": 0}
    bits = [none]
    alone = {"irq": "{}...", "resched": ".{}..", "ctx": "..{}.", "preempt": "...{}"}
    for name, text in alone.items():
        rows[name] = len(bits)
        table = none.copy()
        for code in characters:
            flags = text.format(chr(code)).encode("latin-1")
            table[code] = ctx_of(flags, DEFAULT_LAYOUTS[4])
        bits.append(table)
    rows["more"] = len(bits)
    bits.append(np.where(none == 0, np.uint8(Ctx.PREEMPT), none))
    columns = np.zeros((9, 8), np.int64)
    for size in range(4, 9):
        use = layout
        if use is None or len(use) > size:
            use = DEFAULT_LAYOUTS.get(size, DEFAULT_LAYOUTS[4])
        for i, name in enumerate(use[:size]):
            columns[size, i] = rows.get(name, 0)
        if use[-1] == "preempt":
            columns[size, len(use) : size] = rows["more"]
    return columns, np.array(bits)


def _state_tables(states: States) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
    """State bits per letter (kernel's, plugin's), and of each raw number.

    What would first have to be decided, or booked as assumed, is left out.
    """
    letters = np.full((2, 256), NULL_STATE, np.uint16)
    letters[:, list(b"R|")] = 0
    for char in STATE_LETTERS:
        letters[0, ord(char)] = states.of(char.encode())
        if states.shifted or char not in states.shift:
            letters[1, ord(char)] = states.of_pretty(char.encode())
    values = np.arange(STATES if states.numbers else 64)
    numbers = np.zeros(len(values), np.uint16)
    for bit in range((len(values) - 1).bit_length()):
        numbers[(values >> bit) & 1 == 1] |= np.uint16(states.number(1 << bit))
    return letters.ravel(), numbers


def _name_tables(
    names: list[bytes],
) -> tuple[
    npt.NDArray[np.int64], npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int64]
]:
    """Names of events, bare and with a system before them, for the kernel to look up.

    Returns the table by hash, each name as numbers, its length, and the event that it means.
    """
    whole = [(n, i) for i, n in enumerate(names)]
    whole += [(b"%s:%s" % (s.encode(), n), i) for s in _SYSTEMS for n, i in whole]
    whole = [(n, i) for n, i in whole if len(n) <= name_kernels.NAME]
    table = np.full(1024, -1, np.int64)
    for i, (name, _) in enumerate(whole):
        with np.errstate(over="ignore"):
            at = int(
                name_kernels.name_hash(
                    _eights(np.frombuffer(name + bytes(8), np.uint8)), 0, len(name)
                )
            )
        while table[at] >= 0:
            at = (at + 1) % len(table)
        table[at] = i
    text = b"".join(n.ljust(name_kernels.NAME, b"\0") for n, _ in whole)
    return (
        table,
        np.frombuffer(text, np.uint64).copy(),
        np.array([len(n) for n, _ in whole], np.int64),
        np.array([i for _, i in whole], np.int64),
    )


def _eights(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Eight bytes from each place on: overlapping numbers, the first byte lowest."""
    if len(data) < 8:
        return np.empty(0, np.uint64)
    return np.ndarray((len(data) - 7,), np.uint64, data, 0, (1,))


def _words(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """The same bytes, eight at a time (a copy where they do not lie aligned)."""
    words = data[: len(data) & ~7].view(np.uint64)
    return words if words.flags.aligned else words.copy()


def earliest(buf: Buffer, start: int, end: int) -> int:
    """The smallest time on the lines of [start, end)."""
    data = np.frombuffer(buf, np.uint8)  # type: ignore[call-overload]
    with np.errstate(over="ignore"):  # as in Fast.parse
        return int(line_kernels.earliest(data, _words(data), start, end))
