"""Event format descriptions: the texts in which a kernel says how its events are laid out.

trace.dat, perf.data and SchedViz archives carry the files ``events/*/*/format``,
``events/header_page`` and ``events/header_event`` of the kernel that recorded them. Nothing of an
event is ever read at a fixed place: common fields moved (RT and lazy preemption add some), the
wakeup events lost ``success`` in 5.14, vendors add fields in the middle, ``long`` has 4 or 8 bytes.

The meaning of ``prev_state`` is told by the format, too: the pairs of ``__print_flags`` in the
``print fmt`` of sched_switch, and the bit of "+" (:func:`state_table`).
"""

from __future__ import annotations

import ast
import enum
import operator
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from traceana import schema
from traceana.schema import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "EventFormat",
    "Field",
    "FieldKind",
    "HeaderPage",
    "known_kind",
    "parse_header_page",
    "state_table",
    "supports_header_event",
]

#: No field lies beyond: an event fits into one sub-buffer of the ring (some MB at most).
MAX_OFFSET = 1 << 26

#: In which system the known tracepoints live: a probe of the same name elsewhere is another event.
_SYSTEMS: Mapping[str, str] = {
    "cpu_idle": "power",
    "ipi_send_cpu": "ipi",
    "irq_handler_entry": "irq",
    "irq_handler_exit": "irq",
    "softirq_entry": "irq",
    "softirq_exit": "irq",
    "task_rename": "task",
}


class FieldKind(enum.IntEnum):
    """How the bytes of a field are to be taken."""

    INT = 0  # an integer of 1, 2, 4 or 8 bytes
    CHARS = 1  # char[n], ended by NUL unless full; size 0: up to the end of the record
    DATA_LOC = 2  # u32: offset from the record's start (low half) and length (high half)
    REL_LOC = 3  # the same, the offset counts from the end of the u32 (since 5.16)
    BYTES = 4  # anything else: arrays of numbers, structures


@dataclass(frozen=True, slots=True)
class Field:
    """One ``field:`` line. ``type`` is the C text without the name, ``is_text`` a string kind."""

    name: str
    type: str
    offset: int
    size: int
    signed: bool
    kind: FieldKind

    @property
    def is_text(self) -> bool:
        return self.kind is FieldKind.CHARS or (
            self.kind in (FieldKind.DATA_LOC, FieldKind.REL_LOC) and "char" in self.type
        )


_FIELD = re.compile(
    r"field(?: special)?:([^;\n]*);\s*offset:\s*(\d{1,9});\s*size:\s*(\d{1,9});"
    r"(?:\s*signed:\s*(\d))?"
)
_DECLARATION = re.compile(r"^(.*?)([A-Za-z_]\w*)\s*(\[.*\])?\s*$", re.DOTALL)
_NAME = re.compile(rb"(?:\A|\n)name:[ \t]*([^\s]+)")
_ID = re.compile(rb"\nID:[ \t]*(\d{1,9})")
_CHAR_ARRAY = re.compile(r"\bchar\b[^*]*$")


def _field(declaration: str, offset: int, size: int, signed: bool) -> Field | None:
    match = _DECLARATION.match(declaration.strip())
    if match is None or offset > MAX_OFFSET or size > MAX_OFFSET:
        return None
    ctype, name, array = match.group(1).strip(), match.group(2), match.group(3)
    if ctype.startswith("__data_loc"):
        kind = FieldKind.DATA_LOC
    elif ctype.startswith("__rel_loc"):
        kind = FieldKind.REL_LOC
    elif _CHAR_ARRAY.search(ctype) and (array is not None or size not in (1, 2, 4, 8)):
        kind = FieldKind.CHARS
    elif array is None and size in (1, 2, 4, 8):
        kind = FieldKind.INT
    else:
        kind = FieldKind.BYTES
    if kind in (FieldKind.DATA_LOC, FieldKind.REL_LOC) and size != 4:
        kind = FieldKind.BYTES
    return Field(name, ctype, offset, size, signed, kind)


def _fields(text: str) -> tuple[Field, ...]:
    out = []
    for match in _FIELD.finditer(text):
        declaration, offset, size, signed = match.groups()
        field = _field(declaration, int(offset), int(size), signed == "1")
        if field is not None:
            out.append(field)
    return tuple(out)


def _shown(name: bytes) -> str:
    """A name that messages may print, whatever somebody wrote into the file."""
    text = name.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


@dataclass(frozen=True)
class EventFormat:
    """One event's format file. Fields are parsed when first asked for: files hold thousands.

    ``system`` is "" where the container does not tell.
    """

    name: str
    system: str
    id: int
    text: bytes

    @classmethod
    def parse(cls, text: bytes, system: str = "") -> EventFormat | None:
        """The format of one ``format`` file, or None when it has no name or no ID."""
        name, ident = _NAME.search(text), _ID.search(text)
        if name is None or ident is None:
            return None
        return cls(_shown(name.group(1)), system, int(ident[1]), text)

    @cached_property
    def print_fmt(self) -> str:
        """What follows ``print fmt:``, "" when there is none."""
        _, _, tail = self.text.partition(b"\nprint fmt:")
        return tail.decode("latin-1").strip()

    @cached_property
    def all_fields(self) -> tuple[Field, ...]:
        """Common and own fields in the order of the file."""
        head, _, _ = self.text.partition(b"\nprint fmt:")
        return _fields(head.decode("latin-1"))

    @cached_property
    def by_name(self) -> dict[str, Field]:
        return {f.name: f for f in reversed(self.all_fields)}

    @property
    def fields(self) -> tuple[Field, ...]:
        """The event's own fields."""
        return tuple(f for f in self.all_fields if not f.name.startswith("common_"))


def known_kind(fmt: EventFormat) -> schema.EventKind | None:
    """The kind of ``events`` row that this tracepoint becomes, None for others."""
    kind = schema.EVENT_NAMES.get(fmt.name)
    if kind is None or fmt.system not in ("", _SYSTEMS.get(fmt.name, "sched")):
        return None
    return kind


@dataclass(frozen=True, slots=True)
class HeaderPage:
    """The head of a ring-buffer page (``events/header_page``); offsets in bytes.

    The size of ``commit`` is the kernel's long, whatever the recording tool's is.
    """

    timestamp_offset: int
    timestamp_size: int
    commit_offset: int
    commit_size: int
    data_offset: int
    data_size: int

    @property
    def page_size(self) -> int:
        return self.data_offset + self.data_size


def parse_header_page(text: bytes) -> HeaderPage | None:
    """The page layout, or None when a field is missing or absurd."""
    found = {f.name: f for f in _fields(text.decode("latin-1"))}
    try:
        stamp, commit, data = found["timestamp"], found["commit"], found["data"]
    except KeyError:
        return None
    if stamp.size != 8 or commit.size not in (4, 8) or data.size < 8:
        return None
    if data.offset < max(stamp.offset + stamp.size, commit.offset + commit.size):
        return None
    return HeaderPage(stamp.offset, stamp.size, commit.offset, commit.size, data.offset, data.size)


_HEADER_EVENT = (
    r"type_len\s*:\s*5 bits",
    r"time_delta\s*:\s*27 bits",
    r"padding\s*:\s*type == 29",
    r"time_extend\s*:\s*type == 30",
    r"data max type_len\s*==\s*28",
)


def supports_header_event(text: bytes) -> bool:
    """Whether events are headed as since 2.6.31: 5 bits of type, 27 bits of delta."""
    body = text.decode("latin-1")
    return all(re.search(rule, body) for rule in _HEADER_EVENT)


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}


def _evaluate(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value & 0xFFFFFFFFFFFFFFFF
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        right = _evaluate(node.right)
        if isinstance(node.op, (ast.LShift, ast.RShift)) and right > 63:
            raise ValueError
        return _OPERATORS[type(node.op)](_evaluate(node.left), right) & 0xFFFFFFFFFFFFFFFF
    raise ValueError


def _constant(text: str) -> int | None:
    """The value of a constant C expression of ``|``, ``&``, ``+``, ``-``, ``<<`` and ``>>``.

    These bind as they do in Python, but for ``+`` against ``<<`` both agree, too.
    """
    if len(text) > 2000 or not re.fullmatch(r"[0-9a-fA-FxXuUlL|&+\-<>()\s]+", text):
        return None
    try:
        return _evaluate(ast.parse(re.sub(r"[uUlL]+", "", text).strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _operand(text: str, start: int) -> str:
    """The operand after ``&``: a number, or a bracketed expression up to its closing bracket."""
    rest = text[start:].lstrip()
    if not rest.startswith("("):
        match = re.match(r"\w+", rest)
        return match.group() if match else ""
    depth = 0
    for i, char in enumerate(rest[:2000]):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return rest[: i + 1]
    return ""


_PAIR = re.compile(r'\{\s*(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})(?:U?L*)\s*,\s*"([^"]*)"\s*\}')
_AND = re.compile(r"REC->prev_state\s*&")

#: Letters since 4.14 (TASK_REPORT in include/linux/sched.h); only the bits up to 32 and the
#: meaning of "blocked" hold for older kernels as well.
_LETTERS_4_14 = ((1, "S"), (2, "D"), (4, "T"), (8, "t"), (16, "X"), (32, "Z"))


def _c_integer(text: str) -> int:
    """An integer as C reads it: with a zero before it, it is octal (if it can be)."""
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text, 8 if re.fullmatch("0[0-7]+", text) else 10)


@lru_cache(maxsize=16)
def state_table(print_fmt: str) -> tuple[npt.NDArray[np.uint16], bool]:
    """``prev_state`` to :class:`~traceana.schema.State`, by the format's own table.

    Returns
    -------
    table : uint16[65536]
        State for the low 16 bits of ``prev_state``. Bits that the format masks away when it
        prints mean nothing; bits it would print as a number are ``State.OTHER``.
    told : bool
        False when the text holds no table: then 1 to 32 are read as since 4.14 and every
        other bit is ``OTHER``.
    """
    flags = print_fmt.partition("__print_flags")[2]
    pairs = [(_c_integer(value), letter) for value, letter in _PAIR.findall(flags)]
    masks, plus = [], 0
    for match in _AND.finditer(print_fmt):
        operand = _operand(print_fmt, match.end())
        value = _constant(operand)
        if value is None:
            continue
        tail = print_fmt[print_fmt.find(operand, match.end()) + len(operand) :].lstrip(" )")
        if re.match(r'\?\s*"\+"', tail):
            plus = value
        else:
            masks.append(value)
    told = bool(pairs)
    mask = masks[0] if masks and told else 0xFFFF
    values = np.arange(1 << 16, dtype=np.uint32)
    table = np.zeros(1 << 16, np.uint16)
    known = plus
    for value, letter in pairs or _LETTERS_4_14:
        state = State(0)
        for char in letter:
            state |= schema.STATE_LETTERS.get(char, State.OTHER)
        known |= value
        if 0 < value <= 0xFFFF:
            table[(values & (value & mask)) != 0] |= np.uint16(state)
    table[(values & (mask & ~known & 0xFFFF)) != 0] |= np.uint16(State.OTHER)
    if plus:
        table[(values & (plus & 0xFFFF)) != 0] |= np.uint16(State.PREEMPTED)
    table.flags.writeable = False
    return table, told


def by_id(formats: Iterable[EventFormat]) -> dict[int, EventFormat]:
    """Formats by event id; the first of an id wins."""
    out: dict[int, EventFormat] = {}
    for fmt in formats:
        out.setdefault(fmt.id, fmt)
    return out
