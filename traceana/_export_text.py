"""Events as the kernel's own text (the tracefs file ``trace``), which other tools read, too.

The text is that of kernel/trace/trace_output.c and of the events' ``print fmt``; times have nine
decimals, as ``trace-cmd report -t`` prints them, so that nothing of them is lost. What a capture
did not tell is written as 0: readers of this form know no nulls.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from traceana.columns import NULL_CPU, NULL_CTX, NULL_I64, NULL_PID, NULL_PRIO, NULL_STATE
from traceana.schema import STATE_LETTERS, Ctx, EventKind, State

if TYPE_CHECKING:
    from traceana.columns import EventColumns

__all__ = ["Names", "header", "lines", "state_text"]

_SOFTIRQS = (
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
)  # fmt: skip
_EVENT = {
    EventKind.SWITCH: "sched_switch",
    EventKind.WAKING: "sched_waking",
    EventKind.WAKEUP: "sched_wakeup",
    EventKind.WAKEUP_NEW: "sched_wakeup_new",
    EventKind.MIGRATE: "sched_migrate_task",
    EventKind.FORK: "sched_process_fork",
    EventKind.EXEC: "sched_process_exec",
    EventKind.EXIT: "sched_process_exit",
    EventKind.STAT_RUNTIME: "sched_stat_runtime",
    EventKind.CPU_IDLE: "cpu_idle",
    EventKind.WAKE_IDLE_WITHOUT_IPI: "sched_wake_idle_without_ipi",
    EventKind.IPI_SEND_CPU: "ipi_send_cpu",
    EventKind.IRQ_ENTRY: "irq_handler_entry",
    EventKind.IRQ_EXIT: "irq_handler_exit",
    EventKind.SOFTIRQ_ENTRY: "softirq_entry",
    EventKind.SOFTIRQ_EXIT: "softirq_exit",
    EventKind.TASK_RENAME: "task_rename",
    EventKind.PI_SETPRIO: "sched_pi_setprio",
}
_LETTERS = tuple(
    (int(bit), letter) for letter, bit in STATE_LETTERS.items() if letter not in ("x", "+")
)
_HEADER = """\
# tracer: nop
#
# entries-in-buffer/entries-written: {n}/{n}   #P:{cpus}
#
#                                _-----=> irqs-off/BH-disabled
#                               / _----=> need-resched
#                              | / _---=> hardirq/softirq
#                              || / _--=> preempt-depth
#                              ||| / _-=> migrate-disable
#                              |||| /     delay
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
"""


class Names:
    """The name that a pid had at some time.

    Parameters
    ----------
    changes : iterable of (pid, comm, since ts or None)
        In the order of time.
    clean : callable
        What makes a name fit to be written.
    """

    def __init__(
        self,
        changes: Iterable[tuple[int, str, int | None]],
        clean: Callable[[str], str] = str,
    ) -> None:
        self._since: dict[int, list[int]] = {}
        self._comm: dict[int, list[str]] = {}
        for pid, comm, since in changes:
            self._since.setdefault(pid, []).append(-(2**63) if since is None else since)
            self._comm.setdefault(pid, []).append(clean(comm))

    def at(self, pid: int, ts: int) -> str:
        """The name, ``<idle>`` for pid 0, ``<...>`` where none is known (as the kernel prints)."""
        if pid == 0:
            return "<idle>"
        since = self._since.get(pid)
        if since is None:
            return "<...>"
        i = bisect_right(since, ts) - 1
        return self._comm[pid][max(i, 0)]


def state_text(state: int) -> str:
    """prev_state as sched_switch prints it.

    >>> state_text(0), state_text(1), state_text(0x100), state_text(0x202)
    ('R', 'S', 'R+', 'D|K')
    """
    letters = "|".join(letter for bit, letter in _LETTERS if state & bit) or "R"
    return letters + ("+" if state & State.PREEMPTED else "")


def _flags(ctx: int, kind: int) -> str:
    """The five characters of irq-info."""
    if ctx == NULL_CTX:
        return "....."
    hard, soft = ctx & Ctx.HARDIRQ, ctx & Ctx.SOFTIRQ
    irqs = "b" if ctx & Ctx.BH_OFF else "."
    if kind in (EventKind.SWITCH, EventKind.WAKING):
        irqs = "D" if ctx & Ctx.BH_OFF else "d"  # both are emitted with interrupts off
    if ctx & Ctx.NMI:
        where = "Z" if hard else "z"
    else:
        where = "H" if hard and soft else "h" if hard else "s" if soft else "."
    return (
        irqs
        + ("N" if ctx & Ctx.NEED_RESCHED else ".")
        + where
        + ("1" if ctx & Ctx.PREEMPT else ".")
        + "."
    )


def _or0(value: int, null: int) -> int:
    return 0 if value == null else value


def _swapper(comm: str, pid: int, cpu: int) -> str:
    return f"swapper/{cpu}" if pid == 0 else comm


def _body(row: tuple[int, ...], names: Names) -> str:
    """What stands behind ``event:``."""
    ts, cpu, kind, _, _, subject, prio, state, other, other_prio, cpu_to, cpu_from, value = row
    prio, value = _or0(prio, NULL_PRIO), _or0(value, NULL_I64)
    to, at = _or0(cpu_to, NULL_CPU), _or0(cpu_from, NULL_CPU)
    if kind == EventKind.SWITCH:
        prev, after = names.at(subject, ts), names.at(other, ts)
        return (
            f"prev_comm={_swapper(prev, subject, cpu)} prev_pid={subject} prev_prio={prio} "
            f"prev_state={state_text(_or0(state, NULL_STATE))} ==> "
            f"next_comm={_swapper(after, other, cpu)} next_pid={other} "
            f"next_prio={_or0(other_prio, NULL_PRIO)}"
        )
    if kind in (EventKind.WAKING, EventKind.WAKEUP, EventKind.WAKEUP_NEW):
        return f"comm={names.at(subject, ts)} pid={subject} prio={prio} target_cpu={to:03d}"
    if kind == EventKind.MIGRATE:
        comm = names.at(subject, ts)
        return f"comm={comm} pid={subject} prio={prio} orig_cpu={at} dest_cpu={to}"
    if kind == EventKind.STAT_RUNTIME:
        return f"comm={names.at(subject, ts)} pid={subject} runtime={value} [ns]"
    if kind == EventKind.FORK:
        return (
            f"comm={names.at(other, ts)} pid={other} child_comm={names.at(subject, ts)} "
            f"child_pid={subject}"
        )
    if kind == EventKind.EXEC:
        return f"filename={names.at(subject, ts)} pid={subject} old_pid={other}"
    if kind == EventKind.EXIT:
        return f"comm={names.at(subject, ts)} pid={subject} prio={prio}"
    if kind == EventKind.CPU_IDLE:
        return f"state={value} cpu_id={to}"
    if kind == EventKind.WAKE_IDLE_WITHOUT_IPI:
        return f"cpu={to}"
    if kind == EventKind.IPI_SEND_CPU:
        return f"cpu={to} callsite=0x0 callback=0x0"
    if kind == EventKind.IRQ_ENTRY:
        return f"irq={value} name=unknown"
    if kind == EventKind.IRQ_EXIT:
        return f"irq={value} ret=handled"
    if kind in (EventKind.SOFTIRQ_ENTRY, EventKind.SOFTIRQ_EXIT):
        action = _SOFTIRQS[value] if 0 <= value < len(_SOFTIRQS) else "unknown"
        return f"vec={value} [action={action}]"
    if kind == EventKind.TASK_RENAME:
        new = names.at(subject, ts)
        return f"pid={subject} oldcomm={names.at(subject, ts - 1)} newcomm={new} oom_score_adj=0"
    return f"comm={names.at(subject, ts)} pid={subject} oldprio={prio} newprio={value}"


_COLUMNS = (
    "ts", "cpu", "kind", "pid", "ctx", "subject", "prio", "state", "other", "other_prio",
    "cpu_to", "cpu_from", "value",
)  # fmt: skip


def header(n: int, cpus: int) -> str:
    """The comment lines at the head of the file."""
    return _HEADER.format(n=n, cpus=cpus)


def lines(events: EventColumns, names: Names, left_out: dict[str, int]) -> Iterator[str]:
    """One line an event, with its end.

    Parameters
    ----------
    events : a batch in the order of time
    names : Names
    left_out : dict
        Updated: why an event could not be written -> how many.
    """
    columns: list[list[Any]] = [getattr(events, name).tolist() for name in _COLUMNS]
    for row in zip(*columns, strict=True):
        ts, cpu, kind, pid = row[:4]
        if cpu == NULL_CPU:
            left_out["without a CPU"] = left_out.get("without a CPU", 0) + 1
            continue
        if kind == EventKind.LOST:
            lost = row[12]
            many = f"{lost} " if lost != NULL_I64 and lost > 0 else ""
            yield f"CPU:{cpu} [LOST {many}EVENTS]\n"
            continue
        if kind == EventKind.BEGIN:
            yield f"##### CPU {cpu} buffer started ####\n"
            continue
        if kind == EventKind.MARKER:
            left_out["marker"] = left_out.get("marker", 0) + 1
            continue
        who = _or0(pid, NULL_PID)
        yield (
            f"{names.at(who, ts):>16}-{who:<7} [{cpu:03d}] {_flags(row[4], kind)} "
            f"{ts // 10**9:5d}.{ts % 10**9:09d}: {_EVENT[EventKind(kind)]}: "
            f"{_body(row, names)}\n"
        )
