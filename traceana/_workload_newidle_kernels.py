"""The average idle time of each CPU at each of its switches to idleness, as the kernel keeps it."""

from __future__ import annotations

from typing import Any

from traceana._jit import njit


@njit
def average_idle(cpu: Any, idle: Any, state: Any, out: Any) -> None:
    """update_avg(&rq->avg_idle, …): an eighth of what is new, cut towards zero.

    ``cpu`` int64[n], in the order of time of each CPU; ``idle`` int64[n], how long the CPU was idle
    from then on, ns; -1 not known, or not idle at all. ``state`` int64[cpus, 2]: the average and of
    how many. ``out`` int64[n, 2]: both as they stood before.
    """
    for i in range(len(cpu)):
        c = cpu[i]
        out[i, 0] = state[c, 0]
        out[i, 1] = state[c, 1]
        if idle[i] < 0:
            continue
        if state[c, 1] == 0:
            state[c, 0] = idle[i]
        change = idle[i] - state[c, 0]
        state[c, 0] += change // 8 if change >= 0 else -(-change // 8)
        state[c, 1] += 1
