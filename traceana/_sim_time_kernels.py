"""What comes next, and how long it takes: the clock of the model, in integers.

A tournament tree over the CPUs' next instants (ties: the lower CPU), a heap of the tasks' timers
(ties: the lower task), and the draw of a cost from its quantiles with a generator of its own, so
that a seed gives the same run on any machine.
"""

from __future__ import annotations

from typing import Any

from traceana._jit import step
from traceana._sim_state import QUANTILES
from traceana._sim_types import FAR, Phase

__all__ = ["add_timer", "arm", "build_tree", "draw", "first_cpu", "pop_timer"]

_IDLE, _RUN = Phase.IDLE, Phase.RUN
_QUANTILES = QUANTILES
_MASK = 0xFFFFFFFF


@step
def build_tree(g: Any) -> None:
    """Set the inner nodes from the leaves."""
    for i in range(g.leaves):
        g.tree[g.leaves + i] = g.cpus[i].next if i < g.n_cpus else FAR
    for i in range(g.leaves - 1, 0, -1):
        g.tree[i] = min(g.tree[2 * i], g.tree[2 * i + 1])


@step
def first_cpu(g: Any) -> int:
    """Return the CPU whose next instant is the earliest (``tree[1]``)."""
    i = 1
    while i < g.leaves:
        i *= 2
        if g.tree[i] > g.tree[i + 1]:
            i += 1
    return i - g.leaves


@step
def arm(g: Any, c: int) -> None:
    """Renew a CPU's next instant: its phase's end, and interrupts where they are let in."""
    k = g.cpus[c]
    at = k.at
    if k.phase <= _RUN:
        at = min(at, max(k.irqs_on, min(k.ipi_at, min(k.tick_at, k.due_at))))
    if k.next == at:
        return
    k.next = at
    i = g.leaves + c
    g.tree[i] = at
    while i > 1:
        i >>= 1
        best = min(g.tree[2 * i], g.tree[2 * i + 1])
        if g.tree[i] == best:
            break
        g.tree[i] = best


@step
def draw(g: Any, which: int) -> int:
    """Draw a cost, ns: a point of its piecewise linear distribution, by inversion.

    The random number is a hash of a counter (multiply, xor and shift, 32 bits), not the C library's.
    """
    g.draws += 1
    h = g.draws & _MASK
    h ^= h >> 16
    h = (h * 0x7FEB352D) & _MASK
    h ^= (h >> 15) ^ g.seed
    h = (h * 0x2C1B3C6D) & _MASK
    h ^= h >> 16
    base = which * _QUANTILES
    scaled = h * (_QUANTILES - 1)
    i = scaled >> 32
    low = g.cost[base + i]
    return low + (((g.cost[base + i + 1] - low) * ((scaled & _MASK) >> 12)) >> 20)


@step
def _before(H: Any, a: int, b: int) -> bool:
    return H[a, 0] < H[b, 0] or (H[a, 0] == H[b, 0] and H[a, 1] < H[b, 1])


@step
def _swap(H: Any, a: int, b: int) -> None:
    at, task = H[a, 0], H[a, 1]
    H[a, 0] = H[b, 0]
    H[a, 1] = H[b, 1]
    H[b, 0] = at
    H[b, 1] = task


@step
def add_timer(g: Any, H: Any, task: int, at: int) -> None:
    """Put a task's timer into the heap; H int64[n, 2]: instant, task."""
    i = g.timers
    g.timers += 1
    H[i, 0] = at
    H[i, 1] = task
    while i > 0:
        up = (i - 1) >> 1
        if not _before(H, i, up):
            break
        _swap(H, i, up)
        i = up


@step
def pop_timer(g: Any, H: Any) -> int:
    """Take the earliest timer out; returns its task."""
    task = H[0, 1]
    g.timers -= 1
    n = g.timers
    H[0, 0] = H[n, 0]
    H[0, 1] = H[n, 1]
    i = 0
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and _before(H, down + 1, down):
            down += 1
        if not _before(H, down, i):
            break
        _swap(H, i, down)
        i = down
    return task
