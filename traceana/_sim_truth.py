"""What the model knows of double bookings: who came second, and who waited for it (section 10.2).

The rows of TRUTH are the bookings of idle CPUs that met another, grouped by idle episode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["double_bookings", "extra_delays"]


def double_bookings(truth: NDArray[Any]) -> NDArray[Any]:
    """Which bookings came second: the CPU looked idle although an earlier one was outstanding.

    In the order of their looks, which end the selections. A booking is outstanding until its
    sched_wakeup; in the meantime a CPU that looks idle looks so because the booking cannot be seen
    yet, or because of the false-idle window of kernels up to 6.1.

    Returns
    -------
    bool[k]
    """
    order = np.lexsort((truth["waking_ts"], truth["look_ts"], truth["episode"]))
    rows = truth[order]
    until = np.where(rows["wakeup_ts"] >= 0, rows["wakeup_ts"], np.iinfo(np.int64).max)
    second = np.zeros(len(truth), bool)
    latest, episode = 0, -1
    for i, row in enumerate(rows):
        if row["episode"] != episode:
            episode, latest = row["episode"], -1
        second[order[i]] = latest > row["look_ts"]
        latest = max(latest, int(until[i]))
    return second


def extra_delays(truth: NDArray[Any]) -> NDArray[Any]:
    """How long each booking of the truth waited for others of its idle episode, ns.

    The one that runs first is delayed by nothing; the others from when they were queued and the
    first ran to when they ran. -1: it did not run.

    Returns
    -------
    int64[k]
    """
    delays = np.full(len(truth), -1, np.int64)
    ran = np.flatnonzero(truth["run_ts"] >= 0)
    ran = ran[np.argsort(truth["episode"][ran], kind="stable")]
    if not len(ran):
        return delays
    _, begin, which = np.unique(truth["episode"][ran], return_index=True, return_inverse=True)
    first = np.minimum.reduceat(truth["run_ts"][ran], begin)[which]
    since = np.maximum(truth["wakeup_ts"][ran], first)
    delays[ran] = np.maximum(truth["run_ts"][ran] - since, 0)
    return delays
