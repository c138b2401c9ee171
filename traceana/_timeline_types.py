"""One signature for each part of the timeline's state machine, from its parameters' names.

numba would compile a function again for every literal or width of integer that it is called with;
these take the arrays of ``_timeline_state`` and int64, always.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana import _timeline_state as state
from traceana._jit import exact, numba

__all__ = ["part", "part_for_python"]

_ARRAYS = {
    "T": state.TASK,
    "C": state.CPU,
    "Q": state.GROUP,
    "G": state.GLOBAL,
    "L": state.SLICE,
    "W": state.WAKE,
    "P": state.GAP,
    "M": state.MOVE,
    "outL": state.SLICE,
    "outW": state.WAKE,
    "outP": state.GAP,
    "E": state.EDGE,
    "S": state.PENDING,
    "edge_of": np.dtype(np.int32),
    "seeds": state.SEED,
    "seed_of": np.dtype(np.int32),
    "pid_map": np.dtype(np.int32),
    "pin_from": np.dtype(np.int64),
    "pin_to": np.dtype(np.int64),
}
_PLAIN = {"int": numba.int64, "bool": numba.boolean, "None": numba.void}


def _signature(function: Any) -> Any:
    notes = dict(function.__annotations__)
    returns = _PLAIN[notes.pop("return")]
    arguments = [
        numba.typeof(np.zeros(1, _ARRAYS[name])) if name in _ARRAYS else _PLAIN[note]
        for name, note in notes.items()
    ]
    return returns(*arguments)


def part(function: Any) -> Any:
    """Compile a part that only compiled code calls."""
    return exact(_signature(function), function, python=False)


def part_for_python(function: Any) -> Any:
    """Compile a part that Python calls, too."""
    return exact(_signature(function), function, python=True)
