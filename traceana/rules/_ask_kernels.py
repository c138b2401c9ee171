"""One question to one rule: its answer, and what its path noted on the way."""

from __future__ import annotations

from typing import Any

from traceana._jit import numba
from traceana.rules._state import NONE
from traceana.rules.interface import (
    BLOCKED_BY,
    DECIDE,
    MACHINES_TYPE,
    PARAMS_TYPE,
    UNCOMPILED,
    WAKEUPS_TYPE,
    Params,
)

__all__ = ["ANSWER", "ask_one"]

#: What ``ask_one`` writes.
ANSWER = ("cpu", "reason", "affine", "step", "target", "blocked")

_types: Any = numba.types
_SIGNATURE: Any = _types.void(
    DECIDE, BLOCKED_BY, WAKEUPS_TYPE, MACHINES_TYPE, PARAMS_TYPE, _types.int64[::1]
)


def _compiled(function: Any) -> Any:
    return function if UNCOMPILED else numba.njit(_SIGNATURE, nogil=True, cache=True)(function)


@_compiled
def ask_one(decide: Any, blocked_by: Any, wakeups: Any, machines: Any, p: Params, out: Any) -> None:
    """Ask a rule about wakeups[0] and write its answer and what its path noted (ANSWER).

    Parameters
    ----------
    decide : DECIDE; blocked_by : BLOCKED_BY
    wakeups : WAKEUP[1]; machines : MACHINE[1]; p : the rule's parameters
    out : int64[len(ANSWER)], written
    """
    w = wakeups[0]
    m = machines[0]
    w.affine = 0
    w.step = 0
    w.target = NONE
    cpu, reason = decide(w, m, p)
    out[0] = cpu
    out[1] = reason
    out[2] = w.affine
    out[3] = w.step
    out[4] = w.target
    out[5] = blocked_by(w, m, p)
