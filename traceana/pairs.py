"""Who woke whom last: ``last_wakee`` of a task at a wakeup, from the wakeups before it.

record_wakee() sets a waker's last_wakee at each decided wakeup (section 2.1 of the semantics).
SIS_CURRENT (v7, v8) asks whether a wakee's last_wakee is the task that wakes it now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["woke_back"]

Array = npt.NDArray[Any]


def woke_back(
    at: Array, waker: Array, wakee: Array, rows: Array, last: Mapping[int, int] | None = None
) -> Array:
    """Whether the wakee's last wakee, at a wakeup, is its waker.

    Parameters
    ----------
    at : int64[n]
        When each decided wakeup took place, ns.
    waker, wakee : int[n]
        Dense task ids; a waker of -1 is not known and records nothing.
    rows : int64[k]
        Wakeups that are asked about.
    last : mapping, optional
        last_wakee of tasks before the first of these wakeups.

    Returns
    -------
    uint8[k]
        1 or 0; 0 also where the wakee has woken nobody yet and ``last`` does not have it.

    >>> at = np.array([10, 20, 30, 40])
    >>> waker, wakee = np.array([0, 1, 0, 2]), np.array([1, 0, 1, 0])
    >>> woke_back(at, waker, wakee, np.arange(4)).tolist()
    [0, 1, 1, 0]
    """
    order = np.lexsort((at, waker))
    order = order[waker[order] >= 0]
    if not len(rows) or not len(order):
        return np.zeros(len(rows), np.uint8)
    first = at.min()
    span = int(at.max() - first) + 2
    key = waker[order].astype(np.int64) * span + (at[order] - first)
    want = wakee[rows].astype(np.int64) * span + (at[rows] - first)
    before = np.searchsorted(key, want, side="left") - 1
    source = order[np.maximum(before, 0)]
    own = (before >= 0) & (waker[source] == wakee[rows])
    found = np.where(own, wakee[source], -2)
    if last:
        for i in np.flatnonzero(~own):
            found[i] = last.get(int(wakee[rows[i]]), -2)
    back: Array = ((found == waker[rows]) & (waker[rows] >= 0)).astype(np.uint8)
    return back
