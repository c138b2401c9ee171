"""Around each call of a user's rule: which wakeup is at hand, and whether the answer can be.

The control block is an int64 array in memory that the parent process sees as well. The guard
writes the wakeup's time and wakee into it before each call, so that a rule that never returns,
or takes its process down, leaves behind where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from traceana._jit import njit, numba
from traceana.rules import interface
from traceana.rules._state import NONE

__all__ = [
    "CALLS",
    "CONTROL_WORDS",
    "FAULT",
    "LINE",
    "PHASE",
    "TS",
    "VALUE",
    "WAKEE",
    "Fault",
    "fault_text",
    "guarded",
]

#: Words of the control block.
CALLS, PHASE, TS, WAKEE, FAULT, VALUE, LINE = range(7)
CONTROL_WORDS = 16

#: PHASE: which function is being asked.
PHASES = ("", "decide", "blocked_by")


class Fault:
    """FAULT: what is wrong with an answer."""

    NONE = 0
    NO_SUCH_CPU = 1
    OFFLINE = 2
    NOT_ALLOWED = 3
    REASON = 4
    WROTE = 5
    RAISED = 6  # in a step, which compiled code calls without hearing of it


_NO_SUCH_CPU, _OFFLINE, _NOT_ALLOWED = Fault.NO_SUCH_CPU, Fault.OFFLINE, Fault.NOT_ALLOWED
_REASON, _WROTE = Fault.REASON, Fault.WROTE

#: Each 256th call is watched for writes to m.
_WATCHED = 255


def fault_text(fault: int, value: int, n_cpus: int, reasons: tuple[str, ...]) -> str:
    """What a rule did, for its author."""
    if fault == Fault.NO_SUCH_CPU and value == NONE:
        return (
            "decide returned NONE for a recorded wakeup; return w.recorded_cpu, RECORDED where the "
            "rule has no opinion (NONE is for w.recorded_cpu == -1)"
        )
    if fault == Fault.NO_SUCH_CPU:
        return f"decide returned CPU {value}; this machine has CPUs 0 to {n_cpus - 1}"
    if fault == Fault.OFFLINE:
        return f"decide returned CPU {value}, which is offline"
    if fault == Fault.NOT_ALLOWED:
        return f"decide returned CPU {value}, on which the wakee may not run (ask cpu_allowed)"
    if fault == Fault.REASON:
        return (
            f"decide returned reason {value}; REASONS has {len(reasons)}, "
            f"numbered 0 to {len(reasons) - 1}"
        )
    return "it writes to m; the machine as it stood is for reading"


def _inlined(function: Any) -> Any:
    """Compile a part of the guard into it."""
    if interface.UNCOMPILED:
        return function
    wrap: Any = numba.njit
    return wrap(nogil=True, cache=True, _nrt=False, forceinline=True)(function)


@njit
def _digest(m: Any) -> Any:
    """A number that changes with the state that a rule must not write."""
    h = m.n_cpus + 31 * m.n_llcs
    for c in range(m.n_cpus):
        k = m.cpus[c]
        h = h * 31 + k.nr + 3 * k.idle + 5 * k.pending
        h = h * 31 + k.curr + 7 * k.curr_dur
        h = h * 31 + k.load + 11 * k.llc + 13 * k.core + 17 * k.online
    for g in range(m.n_llcs):
        row = m.llcs[g]
        h = h * 31 + row.nr_idle_scan + 3 * row.idle_core + 5 * row.weight
    return h


@_inlined
def _wrong(w: Any, m: Any, cpu: Any, reason: Any, reasons: int) -> int:
    """Which Fault an answer is, 0 if none."""
    if reason < 0 or reason >= reasons:
        return _REASON
    if w.recorded_cpu >= 0 and cpu == w.recorded_cpu:
        return 0
    if cpu == NONE and w.recorded_cpu < 0:
        return 0
    if cpu < 0 or cpu >= m.n_cpus:
        return _NO_SUCH_CPU
    if m.cpus[cpu].online == 0:
        return _OFFLINE
    if w.restricted != 0 and ((w.allowed[cpu >> 6] >> (cpu & 63)) & 1) == 0:
        return _NOT_ALLOWED
    return 0


def _memory(array: Any) -> Callable[[], Any]:
    """A function, callable from compiled code, that returns an int64 array by its address."""
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    ir: Any = getattr(cgutils, "ir")  # noqa: B009  (llvmlite's, not exported by name)
    pointer: Any = ir.IntType(8).as_pointer()

    @intrinsic
    def at(typing: Any, address: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], pointer)

        return types.voidptr(types.int64), lower

    address, words = int(array.ctypes.data), len(array)
    library: Any = numba
    at_address: Any = at
    carray, kind = library.carray, np.int64

    wrap: Any = library.njit

    @wrap  # type: ignore[untyped-decorator]
    def memory() -> Any:
        return carray(at_address(address), (words,), kind)

    found: Callable[[], Any] = memory
    return found


def _cells(array: Any) -> tuple[Callable[[int], Any], Callable[[int, Any], None]]:
    """Functions that read and write an int64 of the control block: one instruction each."""
    if interface.UNCOMPILED:
        return array.__getitem__, array.__setitem__
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    base = int(array.ctypes.data)
    ir: Any = getattr(cgutils, "ir")  # noqa: B009  (llvmlite's, not exported by name)
    word: Any = ir.IntType(64)

    def cell(builder: Any, index: Any) -> Any:
        offset = builder.mul(index, ir.Constant(word, 8))
        return builder.inttoptr(builder.add(offset, ir.Constant(word, base)), word.as_pointer())

    @intrinsic
    def peek(typing: Any, index: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(cell(builder, args[0]))

        return types.int64(types.int64), lower

    @intrinsic
    def poke(typing: Any, index: Any, value: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[1], cell(builder, args[0]))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), lower

    read: Any = peek
    write: Any = poke
    return read, write


def _with_own(function: Any, own: Any, parameters: int, kind: Any) -> Any:
    """The function called with ``own`` for p, the parameters put in."""
    if len(own) <= max(parameters, 1):
        return function
    if interface.UNCOMPILED:

        def plain(w: Any, m: Any, p: Any) -> Any:
            own[:parameters] = p[:parameters]
            return function(w, m, own)

        return plain
    given = _memory(own)
    wrap: Any = numba.njit

    @wrap(nogil=True)  # type: ignore[untyped-decorator]
    def asked(w: Any, m: Any, p: Any) -> Any:
        q = given()
        for i in range(parameters):
            q[i] = p[i]
        return function(w, m, q)

    # Now: compiled on demand, it would take over its caller's lack of reference counts.
    found: Any = asked
    found.compile(kind.signature.args)
    return found


def guarded(
    decide: Any, blocked_by: Any, control: Any, own: Any, *, parameters: int, reasons: int
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Both functions of a rule behind their guards, compiled for the drivers.

    Parameters
    ----------
    decide, blocked_by : compiled for w, m, p
    control : int64[CONTROL_WORDS], which has to outlive the functions
    own : int64[k], the *p* that the rule gets, likewise: room for its parameters and, behind
        them, addresses of this process; the driver's *p* holds the parameters
    parameters, reasons : int, how many of them there are
    """
    peek, poke = _cells(control)
    decide = _with_own(decide, own, parameters, interface.DECIDE)
    blocked_by = _with_own(blocked_by, own, parameters, interface.BLOCKED_BY)
    digest, wrong = _digest, _wrong
    watched, wrote, because = _WATCHED, _WROTE, _REASON

    def guard_decide(w: Any, m: Any, p: Any) -> Any:
        n = peek(CALLS)
        poke(CALLS, n + 1)
        poke(PHASE, 1)
        poke(TS, w.ts)
        poke(WAKEE, w.wakee)
        before = digest(m) if (n & watched) == 0 else 0
        answer = decide(w, m, p)
        cpu = np.int64(answer[0])
        reason = np.int64(answer[1])
        fault = wrong(w, m, cpu, reason, reasons)
        if (n & watched) == 0 and digest(m) != before:
            fault = wrote
        if fault != 0 and peek(FAULT) == 0:
            poke(FAULT, fault)
            poke(VALUE, reason if fault == because else cpu)
        if fault != 0 or peek(FAULT) != 0:
            raise RuntimeError("the rule's answer cannot be")
        return cpu, reason

    def guard_blocked(w: Any, m: Any, p: Any) -> Any:
        poke(PHASE, 2)
        poke(TS, w.ts)
        poke(WAKEE, w.wakee)
        bits = np.int64(blocked_by(w, m, p))
        if peek(FAULT) != 0:
            raise RuntimeError("blocked_by raised")
        return bits

    if interface.UNCOMPILED:
        return guard_decide, guard_blocked
    # Without reference counts: they make no arrays.
    wrap: Any = numba.njit
    first: Any = wrap(nogil=True, _nrt=False)(guard_decide)
    second: Any = wrap(nogil=True, _nrt=False)(guard_blocked)
    first.compile(interface.DECIDE.signature)
    second.compile(interface.BLOCKED_BY.signature)
    return first, second
