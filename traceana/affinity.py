"""Tasks that may run on one CPU only, learnt from where their wakeups went (section 7.4).

No event tells a task's allowed CPUs. One that is always queued on the same CPU may have been put
there each time by the kernel's path; it is taken for pinned where that path, for no value of what
is unknown, comes to that CPU, again and again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FEWEST", "SHARE", "looks_pinned"]

Array = npt.NDArray[Any]

#: A task needs so many decisions, and so many that the path cannot have made …
FEWEST = 5
#: … which are this share of all at least.
SHARE = 0.25


def looks_pinned(wakee: Array, recorded: Array, contradicted: Array) -> Array:
    """Which decisions are of tasks that seem to be pinned.

    Parameters
    ----------
    wakee : int[n], dense task ids
    recorded : int[n], where each wakeup went
    contradicted : bool[n], whether the kernel's path cannot come there

    Returns
    -------
    bool[n]

    >>> import numpy as np
    >>> looks_pinned(np.zeros(6, int), np.full(6, 3), np.ones(6, bool)).all()
    np.True_
    """
    out = np.zeros(len(wakee), bool)
    if not len(wakee):
        return out
    _, which = np.unique(wakee, return_inverse=True)
    n = np.bincount(which)
    least = np.full(len(n), np.iinfo(np.int64).max)
    most = np.full(len(n), -1)
    np.minimum.at(least, which, recorded)
    np.maximum.at(most, which, recorded)
    never = np.bincount(which, weights=contradicted)
    pinned = (least == most) & (never >= FEWEST) & (never >= SHARE * n)
    out[:] = pinned[which]
    return out
