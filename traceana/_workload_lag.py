"""Who is far behind its queue's min_vruntime at the begin: no event tells, but shares of CPUs do.

min_vruntime advances at the rate of whoever runs there; a task that runs much less than those
beside it falls behind by the difference, until place_entity() bounds it at its next wakeup
(section 9.1 of the semantics). Such a sleeper preempts, and one that starts level with the others
would wait behind them. Among equals, such as the two halves of a pair, nobody falls behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from traceana._sim_state import Start

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FAR_BEHIND_NS", "start_lags"]

#: Further back than place_entity() lets any sleeper be, ns: half of sched_latency at most.
FAR_BEHIND_NS = -1_000_000_000
#: Who runs less than this share of what those beside it run, falls behind for good: 12 ms, half of
#: the latency of 8 CPUs or more, are lost in 40 ms of those beside it.
_MUCH_LESS = 0.7


def start_lags(
    slices: NDArray[Any], state: NDArray[Any], numbers: NDArray[Any], n_cpus: int
) -> NDArray[Any]:
    """Start vruntime of each task, relative to its queue's min_vruntime.

    Parameters
    ----------
    slices : structured array with ``task``, ``cpu``, ``start``, ``end`` (ns)
        Rows without an end or a start count nothing.
    state : int array[n] of Start
    numbers : int array[n]
        The tasks' numbers in `slices`.

    Returns
    -------
    int64[n], ns: 0, or FAR_BEHIND_NS of tasks that run much less than those beside them.
    """
    out = np.zeros(len(state), np.int64)
    good = (slices["start"] > -(1 << 62)) & (slices["end"] > -(1 << 62))
    task, cpu = slices["task"][good].astype(np.int64), slices["cpu"][good].astype(np.int64)
    ran = (slices["end"][good] - slices["start"][good]).astype(np.float64)
    whose = (task >= 0) & (cpu >= 0) & (cpu < n_cpus) & (ran > 0)
    task, cpu, ran = task[whose], cpu[whose], ran[whose]
    if not len(task):
        return out
    n = max(int(task.max()), int(numbers.max(initial=0))) + 1
    by_task = np.bincount(task, ran, n)
    on_cpu = np.maximum(np.bincount(cpu, ran, n_cpus), 1.0)
    # What a moment of each CPU's busy time is run by, and of each task's where it runs.
    beside = np.bincount(cpu, ran * by_task[task], n_cpus) / on_cpu
    met = np.bincount(task, ran * beside[cpu], n) / np.maximum(by_task, 1.0)
    behind = by_task < _MUCH_LESS * met
    out[(state != Start.UNBORN) & behind[numbers]] = FAR_BEHIND_NS
    return out
