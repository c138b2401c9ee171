"""The rows that the model writes: events as a kernel would have recorded them.

Rows are written at the instant that they happen, so they are in the order of time. `E` is
EVENT[n]; ``sim.n_out`` rows are filled. Pids and priorities come from the tasks.
"""

from __future__ import annotations

from typing import Any

from traceana._jit import step
from traceana._sim_types import Row

__all__ = ["emit_migrate", "emit_runtime", "emit_switch", "emit_wakeup", "emit_waking"]

_SWITCH, _MIGRATE, _RUNTIME = Row.SWITCH, Row.MIGRATE, Row.RUNTIME
_WAKING, _WAKEUP, _WAKEUP_NEW = Row.WAKING, Row.WAKEUP, Row.WAKEUP_NEW
_HARDIRQ, _RESCHED = Row.HARDIRQ, Row.RESCHED
_NO_PID, _NO_PRIO, _NO_STATE, _NO_VALUE = Row.NO_PID, Row.NO_PRIO, Row.NO_STATE, Row.NO_VALUE


@step
def _row(g: Any, T: Any, E: Any, cpu: int, kind: int, subject: int) -> int:
    """Begin a row on a CPU, about a task; everything else unknown."""
    i = g.n_out
    g.n_out += 1
    e = E[i]
    k = g.cpus[cpu]
    e.ts = g.now
    e.cpu = cpu
    e.kind = kind
    e.pid = T[k.curr].pid
    e.ctx = (_HARDIRQ if k.irq != 0 else 0) | (_RESCHED if k.resched != 0 else 0)
    e.subject = T[subject].pid
    e.prio = T[subject].prio
    e.state = _NO_STATE
    e.other = _NO_PID
    e.other_prio = _NO_PRIO
    e.cpu_to = -1
    e.cpu_from = -1
    e.value = _NO_VALUE
    return i


@step
def emit_waking(g: Any, T: Any, E: Any, cpu: int, wakee: int) -> None:
    """sched_waking: `target_cpu` is where the wakee last was."""
    i = _row(g, T, E, cpu, _WAKING, wakee)
    E[i].cpu_to = T[wakee].cpu


@step
def emit_wakeup(g: Any, T: Any, E: Any, cpu: int, wakee: int, target: int, new: int) -> None:
    """sched_wakeup, or sched_wakeup_new."""
    i = _row(g, T, E, cpu, _WAKEUP_NEW if new != 0 else _WAKEUP, wakee)
    E[i].cpu_to = target


@step
def emit_migrate(g: Any, T: Any, E: Any, cpu: int, task: int, origin: int, to: int) -> None:
    """sched_migrate_task."""
    i = _row(g, T, E, cpu, _MIGRATE, task)
    E[i].cpu_from = origin
    E[i].cpu_to = to


@step
def emit_runtime(g: Any, T: Any, E: Any, cpu: int, task: int, ran: int) -> None:
    """sched_stat_runtime; no priority in it."""
    i = _row(g, T, E, cpu, _RUNTIME, task)
    E[i].prio = _NO_PRIO
    E[i].value = ran


@step
def emit_switch(g: Any, T: Any, E: Any, cpu: int, prev: int, next_: int, state: int) -> None:
    """sched_switch; state in the schema's bits, 0 runnable."""
    i = _row(g, T, E, cpu, _SWITCH, prev)
    E[i].ctx = 0
    E[i].state = state
    E[i].other = T[next_].pid
    E[i].other_prio = T[next_].prio
