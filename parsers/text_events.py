"""Bodies of the scheduler events as text: what stands behind ``event:`` on a line.

The same event is written in four ways:

* the kernel's own text (``print fmt``): ``prev_comm=C prev_pid=P ... ==> next_comm=C ...``;
* the pretty text of libtraceevent's plugins: ``C:P [R] S ==> C:P [R]``;
* raw fields (``trace-cmd report -R``): like the first, states as numbers, no ``==>``;
* that of kernels before 2.6.36: ``task C:P [R] (S) ==> C:P [R]``.

A comm may hold anything, so a field ends where the *last* possible anchor stands, never at a
blank. :func:`parse_body` takes all four; :class:`States` turns prev_state into
:class:`~traceana.schema.State` and knows which letters or numbers a text uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from traceana.columns import NULL_CPU, NULL_I64, NULL_PID, NULL_PRIO, NULL_STATE
from traceana.issues import IssueLog
from traceana.schema import STATE_LETTERS, EventKind, State

__all__ = ["Body", "States", "fields_of", "integer", "parse_body"]

_I32 = 1 << 31
_I64 = 1 << 63
#: More fields no event has.
MAX_KEYS = 128
#: NR_CPUS is at most 8192 (x86-64 MAXSMP): a larger number is no CPU.
MAX_CPU = 1 << 16


class Body(NamedTuple):
    """The columns of ``events`` that the text of an event tells, and the names in it."""

    subject: int = NULL_PID
    prio: int = NULL_PRIO
    state: int = NULL_STATE
    other: int = NULL_PID
    other_prio: int = NULL_PRIO
    cpu_to: int = NULL_CPU
    cpu_from: int = NULL_CPU
    value: int = NULL_I64
    #: False: a wakeup with success=0, which is none.
    success: bool = True
    #: (pid, comm), in the order in which they are learnt.
    names: tuple[tuple[int, bytes], ...] = ()


_STATE_NUMBER = re.compile(rb"0[xX][0-9a-fA-F]{1,16}|\d{1,20}")


class _Range(Exception):
    """A number that fits no column: the line is not what it seems."""


def integer(text: bytes) -> int:
    """A number as kernel and tools print it: decimal, zero padded, or ``0x…``."""
    return int(text, 16) if b"x" in text[:3].lower() else int(text)


def _pid(text: bytes) -> int:
    value = integer(text)
    if not -_I32 <= value < _I32:
        raise _Range
    return value


def _prio(text: bytes) -> int:
    value = integer(text)
    # sched_pi_setprio of old kernels and -R may show -1 (deadline) as a u32.
    if value == 0xFFFFFFFF:
        return -1
    if not -(1 << 15) < value < 1 << 15:
        raise _Range
    return value


def _cpu(text: bytes) -> int:
    value = integer(text)
    if not 0 <= value < MAX_CPU:
        raise _Range
    return value


def _value(text: bytes) -> int:
    value = integer(text)
    if not -_I64 < value < _I64:
        raise _Range
    return value


def _comm(text: bytes) -> bytes:
    """The name in a comm field; raw texts may show it as ``ARRAY[73, 68, 00, …]``."""
    if text.startswith(b"ARRAY[") and text.endswith(b"]"):
        try:
            text = bytes(int(x, 16) for x in text[6:-1].split(b","))
        except ValueError:
            return text
    return text.partition(b"\0")[0]


_Bits = tuple[tuple[int, str], ...]
_SINCE_4_14: _Bits = (
    (1, "S"), (2, "D"), (4, "T"), (8, "t"), (16, "X"), (32, "Z"), (64, "P"), (128, "I"), (256, "+"),
)  # fmt: skip
_BEFORE_4_14: _Bits = ((1, "S"), (2, "D"), (4, "T"), (8, "t"), (16, "Z"), (32, "X"), (64, "x"))
#: What follows, by the bit of R+: since 3.0, 3.9, 4.2, 4.8.
_BY_PLUS: dict[int, _Bits] = {
    512: ((128, "W"),),
    1024: ((128, "K"), (256, "W"), (512, "P")),
    2048: ((128, "K"), (256, "W"), (512, "P"), (1024, "N")),
    4096: ((128, "K"), (256, "W"), (512, "P"), (1024, "N")),
}
_CACHE = 1 << 12


class States:
    """prev_state as text or number to :class:`~traceana.schema.State`.

    Numbers need the kernel's table (the task state bits moved in 4.14), which a text does not
    name; :meth:`learn` decides from the values seen (formats.md 6.2). The same holds for the
    letters of libtraceevent's older plugin (trace-cmd 3.1): it spells the bits 0–7 of any
    kernel as ``SDTtZXxW``, so on 4.14 and later ``W`` is I, ``X`` is Z, ``Z`` is X, ``x`` is P,
    and ``R`` may be R or R+.
    """

    def __init__(self) -> None:
        self._text: dict[bytes, int] = {}
        self._pretty: dict[bytes, int] = {}
        self._bits = _SINCE_4_14
        #: Which table numbers are read by: '4.14', 'old', 'unknown', or '' (none needed so far).
        self.numbers = ""
        #: Letter of a plugin's text -> the one that is meant.
        self.shift: dict[str, str] = {}
        #: Whether ``shift`` was of any use.
        self.shifted = False
        #: Texts that no table knows.
        self.unknown: set[bytes] = set()

    def learn(self, numbers: Iterable[int], pretty: Iterable[bytes] = ()) -> None:
        """Decide the tables by the values that occur in the text."""
        seen = set(numbers)
        if any(v > 256 or v in (130, 132, 136) for v in seen):
            plus = max((v for v in seen if v in _BY_PLUS), default=1024)
            self._bits = (*_BEFORE_4_14, *_BY_PLUS[plus], (plus, "+"))
            self.numbers = "old"
        elif seen & {128, 256}:
            self.numbers = "4.14"
        elif any(v & ~63 for v in seen):
            self._bits = _SINCE_4_14[:6]
            self.numbers = "unknown"
        letters = set(pretty)
        # Any other letter shows a table with all letters of its kernel.
        if all(char in b"RSDTtZXxW|" for text in letters for char in text):
            self.shift = {"Z": "X", "X": "Z", "W": "I"}
            # Before 4.14 an exiting task was seen as x, and W, X, Z never alone.
            self.shifted = bool(letters & {b"W", b"X", b"Z"})
            if self.shifted:
                self.shift["x"] = "P"
        self._text.clear()
        self._pretty.clear()

    def number(self, value: int) -> int:
        """The state of a raw prev_state."""
        if value > 63 and not self.numbers:
            self.numbers = "4.14"
        state = State(0)
        known = 0
        for bit, letter in self._bits:
            known |= bit
            if value & bit:
                state |= STATE_LETTERS[letter]
        if value & ~known:
            state |= State.OTHER
        return int(state)

    def _letters(self, text: bytes, shift: Mapping[str, str]) -> int:
        state = State(0)
        for char in text.decode("latin-1"):
            if char in "R|":
                continue
            if char in shift:
                self.shifted = True
            found = STATE_LETTERS.get(shift.get(char, char))
            if found is None:
                self.unknown.add(text[:12])
                found = State.OTHER
            state |= found
        return int(state)

    def of(self, text: bytes) -> int:
        """The state of what a ``prev_state=`` shows: letters, or a number."""
        state = self._text.get(text)
        if state is None:
            if _STATE_NUMBER.fullmatch(text):
                state = self.number(integer(text))
            else:
                state = self._letters(text, {})
            if len(self._text) < _CACHE:
                self._text[text] = state
        return state

    def of_pretty(self, text: bytes) -> int:
        """The state of the letters in a plugin's text."""
        state = self._pretty.get(text)
        if state is None:
            state = self._letters(text, self.shift)
            if len(self._pretty) < _CACHE:
                self._pretty[text] = state
        return state

    def report(self, issues: IssueLog) -> None:
        """Say what was assumed of the tables."""
        if self.numbers in ("old", "4.14"):
            which = "before" if self.numbers == "old" else "since"
            issues.add(
                "parse",
                "state_table_assumed",
                f"prev_state is shown as numbers: read by the table of kernels {which} 4.14",
            )
        elif self.numbers == "unknown":
            issues.add(
                "parse",
                "state_table_unknown",
                "prev_state is shown as numbers of an unknown table: 64 and more count as other",
            )
        if self.shifted:
            issues.add(
                "parse",
                "plugin_state_letters",
                "the state letters are of an old table: W is read as I, X as Z, Z as X, x as P; "
                "R may hide R+ (trace-cmd report -R shows them right)",
            )
        if self.unknown:
            texts = ", ".join(t.decode("latin-1") for t in sorted(self.unknown)[:3])
            issues.add(
                "parse", "state_letter_unknown", f"prev_state {texts}: letters that no kernel has"
            )


# A comm is at most 15 bytes; 100 leaves room for ARRAY[…] and keeps hostile lines cheap.
_C = rb"(.{0,100})"
_N = rb"(-?(?:0[xX][0-9a-fA-F]+|\d+))"


def _regex(pattern: bytes) -> re.Pattern[bytes]:
    text = pattern.replace(b"COMM", _C).replace(b"NUM", _N)
    return re.compile(text, re.DOTALL)


_SWITCH = _regex(
    rb"prev_comm=COMM prev_pid=NUM prev_prio=NUM prev_state=([A-Za-z0-9|+]+)(?: ==>)? "
    rb"next_comm=COMM next_pid=NUM next_prio=NUM(?!\w)"
)
_SWITCH_PRETTY = _regex(
    rb"COMM:NUM \[NUM\] (\(?)([A-Za-z+|]+)\)? ==> COMM:NUM \[NUM\]\s*(?:Latency:.*)?\Z"
)
_WAKE = _regex(rb"comm=COMM pid=NUM prio=NUM(?: success=NUM)? target_cpu=NUM(?!\w)")
_WAKE_PRETTY = _regex(
    rb"COMM:NUM \[NUM\](?: success=NUM)?"
    rb"(?: CPU:(\d+)| ?<CPU (\d+)>| \[(\d+)\])?\s*(?:Latency:.*)?\Z"
)
_MIGRATE = _regex(rb"comm=COMM pid=NUM prio=NUM(?: \w+=\S+){0,4}? orig_cpu=NUM dest_cpu=NUM(?!\w)")
_FORK = _regex(rb"(?:parent_)?comm=COMM (?:parent_)?pid=NUM child_comm=COMM child_pid=NUM(?!\w)")
_EXEC = re.compile(rb"filename=(.*) pid=(-?\d+) old_pid=(-?\d+)(?:\D|\Z)", re.DOTALL)
_EXEC_COMM = _regex(rb"comm=COMM (?:pid=-?\d+ )?filename=")
_EXIT = _regex(rb"comm=COMM pid=NUM prio=NUM(?!\w)")
_RUNTIME = _regex(rb"comm=COMM pid=NUM runtime=NUM(?!\w)")
_RENAME = _regex(rb"(?:pid=NUM )?oldcomm=COMM newcomm=COMM oom_score_adj=")
_SETPRIO = _regex(rb"comm=COMM pid=NUM oldprio=NUM newprio=NUM(?!\w)")
_IDLE = _regex(rb"state=NUM cpu_id=NUM(?!\w)")
_IPI = _regex(rb"cpu=NUM(?!\w)")
_IRQ = _regex(rb"irq=NUM(?!\w)")
_SOFTIRQ = _regex(rb"(?:vec|softirq)=NUM(?!\w)")


def _switch(body: bytes, states: States, current: int) -> Body | None:
    m = _SWITCH.match(body)
    if m:
        pc, pp, pr, st, nc, np, nr = m.groups()
        prev, nxt, state = _pid(pp), _pid(np), states.of(st)
    else:
        m = _SWITCH_PRETTY.match(body)
        if not m:
            return None
        pc, pp, pr, old, st, nc, np, nr = m.groups()
        if old:
            pc = pc.removeprefix(b"task ")
        prev, nxt, state = _pid(pp), _pid(np), states.of_pretty(st)
    names = ((prev, _comm(pc)), (nxt, _comm(nc)))
    return Body(prev, _prio(pr), state, nxt, _prio(nr), names=names)


def _wake(body: bytes, states: States, current: int) -> Body | None:
    m = _WAKE.match(body)
    if m:
        comm, pid, prio, success, cpu = m.groups()
    else:
        m = _WAKE_PRETTY.match(body)
        if not m:
            return None
        comm, pid, prio, success, *cpus = m.groups()
        if cpus[2]:
            comm = comm.removeprefix(b"task ")
        cpu = cpus[0] or cpus[1] or cpus[2]
    who = _pid(pid)
    return Body(
        who,
        _prio(prio),
        cpu_to=_cpu(cpu) if cpu else NULL_CPU,
        success=success is None or integer(success) != 0,
        names=((who, _comm(comm)),),
    )


def _migrate(body: bytes, states: States, current: int) -> Body | None:
    m = _MIGRATE.match(body)
    if not m:
        return None
    comm, pid, prio, orig, dest = m.groups()
    who = _pid(pid)
    return Body(
        who, _prio(prio), cpu_to=_cpu(dest), cpu_from=_cpu(orig), names=((who, _comm(comm)),)
    )


def _fork(body: bytes, states: States, current: int) -> Body | None:
    m = _FORK.match(body)
    if not m:
        return None
    comm, pid, child_comm, child_pid = m.groups()
    parent, child = _pid(pid), _pid(child_pid)
    names = ((parent, _comm(comm)), (child, _comm(child_comm)))
    return Body(child, other=parent, names=names)


def _exec(body: bytes, states: States, current: int) -> Body | None:
    at = body.find(b"filename=")
    m = _EXEC.match(body, at) if at >= 0 else None
    if not m:
        return None
    who = _pid(m[2])
    comm = _EXEC_COMM.match(body)
    return Body(who, other=_pid(m[3]), names=((who, _comm(comm[1])),) if comm else ())


def _exit(body: bytes, states: States, current: int) -> Body | None:
    m = _EXIT.match(body)
    if not m:
        return None
    who = _pid(m[2])
    return Body(who, _prio(m[3]), names=((who, _comm(m[1])),))


def _runtime(body: bytes, states: States, current: int) -> Body | None:
    m = _RUNTIME.match(body)
    if not m:
        return None
    who = _pid(m[2])
    return Body(who, value=_value(m[3]), names=((who, _comm(m[1])),))


def _rename(body: bytes, states: States, current: int) -> Body | None:
    m = _RENAME.match(body)
    if not m:
        return None
    # The newest kernels print no pid here: the event only ever concerns the current task.
    who = _pid(m[1]) if m[1] else current
    return Body(who, names=((who, _comm(m[2])), (who, _comm(m[3]))))


def _setprio(body: bytes, states: States, current: int) -> Body | None:
    m = _SETPRIO.match(body)
    if not m:
        return None
    who = _pid(m[2])
    return Body(who, _prio(m[3]), value=_prio(m[4]), names=((who, _comm(m[1])),))


def _idle(body: bytes, states: States, current: int) -> Body | None:
    m = _IDLE.match(body)
    if not m:
        return None
    # PWR_EVENT_EXIT is -1 in a u32.
    state = _value(m[1])
    return Body(cpu_to=_cpu(m[2]), value=state & 0xFFFFFFFF if state < 0 else state)


def _ipi(body: bytes, states: States, current: int) -> Body | None:
    m = _IPI.match(body)
    return Body(cpu_to=_cpu(m[1])) if m else None


def _numbered(pattern: re.Pattern[bytes]) -> Callable[[bytes, States, int], Body | None]:
    def parse(body: bytes, states: States, current: int) -> Body | None:
        m = pattern.match(body)
        return Body(value=_value(m[1])) if m else None

    return parse


_PARSERS: dict[EventKind, Callable[[bytes, States, int], Body | None]] = {
    EventKind.SWITCH: _switch,
    EventKind.WAKING: _wake,
    EventKind.WAKEUP: _wake,
    EventKind.WAKEUP_NEW: _wake,
    EventKind.MIGRATE: _migrate,
    EventKind.FORK: _fork,
    EventKind.EXEC: _exec,
    EventKind.EXIT: _exit,
    EventKind.STAT_RUNTIME: _runtime,
    EventKind.CPU_IDLE: _idle,
    EventKind.WAKE_IDLE_WITHOUT_IPI: _ipi,
    EventKind.IPI_SEND_CPU: _ipi,
    EventKind.IRQ_ENTRY: _numbered(_IRQ),
    EventKind.IRQ_EXIT: _numbered(_IRQ),
    EventKind.SOFTIRQ_ENTRY: _numbered(_SOFTIRQ),
    EventKind.SOFTIRQ_EXIT: _numbered(_SOFTIRQ),
    EventKind.TASK_RENAME: _rename,
    EventKind.PI_SETPRIO: _setprio,
}


#: A number as the trace option "fields" shows it (kernel/trace/trace_output.c: print_fields()),
#: since Linux 6.3, where the fields came in reverse order at first.
_AS_FIELDS = re.compile(rb"=0x[0-9a-f]{1,16} \((-?\d{1,20})\)")


def parse_body(kind: EventKind, body: bytes, states: States, current: int) -> Body | None:
    """The columns that a body tells; None when it is not one of this kind.

    ``body`` begins behind the colon of the event's name and may hold newlines; ``current`` is
    the pid of the line's head.
    """
    body = body.lstrip(b" \t")
    if body.startswith(b"[FAILED TO PARSE]"):
        body = body[17:].lstrip(b" ")
    parser = _PARSERS[kind]
    try:
        found = parser(body, states, current)
        if found is None and b"=0x" in body:
            plain = _AS_FIELDS.sub(rb"=\1", body)
            found = parser(plain, states, current)
            if found is None:
                backwards = (b"%s=%s" % pair for pair in reversed(fields_of(plain)))
                found = parser(b" ".join(backwards), states, current)
        return found
    except _Range:
        return None


_KEY = re.compile(rb"(?:\A|(?<= ))([A-Za-z_]\w*)=")


def fields_of(body: bytes, keys: list[bytes] | None = None) -> list[tuple[bytes, bytes]]:
    """``key=value`` pairs of any event's text, split at the last place where each key stands.

    With ``keys`` (those of another event of the same kind, in order) a value that holds
    something like a key stays whole; without, every key found counts.
    """
    body = body.strip(b" \t")
    if body.startswith(b"[FAILED TO PARSE]"):
        body = body[17:].lstrip(b" ")
    if keys is None:
        keys = []
        for m in _KEY.finditer(body):
            if m[1] not in keys and len(keys) < MAX_KEYS:
                keys.append(m[1])
    out: list[tuple[bytes, bytes]] = []
    end = len(body)
    for key in reversed(keys):
        anchor = key + b"="
        at = 0 if key is keys[0] and body.startswith(anchor) else body.rfind(b" " + anchor, 0, end)
        if at < 0:
            continue
        start = at + len(anchor) + (body[at : at + 1] == b" ")
        out.append((key, body[start:end]))
        end = at
    return [(k, v.removesuffix(b" ==>")) for k, v in reversed(out)]
