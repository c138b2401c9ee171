"""One pass over events that looks for records which cannot both be true.

Who is current on each CPU and where each task is follow from the records alone; a record that does
not fit is a candidate. A candidate falls again where clocks explain it (the record that was missing
is stamped a little later) or a loss does (the LOST row of a CPU says what was missing before it,
and comes only with that CPU's next record). What is lawful in which release: kernel/sched/core.c,
sections 1.6 and 7.2 of the kernel semantics.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana._jit import njit, step

NULL = -(2**63)
PID_LIMIT = 4194304

# Event kinds (schema.EventKind).
SWITCH, WAKING, WAKEUP, WAKEUP_NEW, MIGRATE, FORK = range(6)
LOST, BEGIN = 19, 20
#: schema.State: what a switch-out may say.
S_PREEMPTED, S_GONE, S_UNKNOWN = 0x100, 0x30, 65535

#: A record as it is kept: columns of the events table.
R_TS, R_CPU, R_KIND, R_PID, R_SUBJECT, R_STATE, R_OTHER, R_TO = range(8)
N_REC = 8

# Columns of ``cpus``: current pid (-1: not known), who was before it, time of the last record, its
# place in the batch (-1: in the columns from C_LAST on), the record that told who is current.
C_CURR, C_BEFORE, C_TS, C_AT, C_TOLD = range(5)
C_LAST = C_TOLD + N_REC
N_CPU = C_LAST + N_REC

# Columns of ``tasks``: state and CPU, whether a wakeup put it there, a waking whose sched_wakeup is
# still to come, when it was last woken, the record that told its state.
T_ST, T_CPU, T_WOKEN, T_OPEN, T_WAKE, T_TOLD = range(6)
N_TASK = T_TOLD + N_REC

#: Where recording begins and ends CPU by CPU, it does so event by event, too, in less than this.
APART_NS = 1_000_000

UNKNOWN, RUNNING, QUEUED, ASLEEP, COMING = range(5)

# Columns of ``found``: what, on which CPU and pid, until when it may still be explained by clocks,
# the two records.
F_WHAT, F_CPU, F_PID, F_UNTIL, F_EARLIER = range(5)
F_LATER = F_EARLIER + N_REC
N_FOUND = F_LATER + N_REC

#: What a candidate is; the order of ``strict.KINDS``.
(
    TIME_BACKWARDS, LOST_SWITCH, PID_RANGE, TWO_CPUS, LOST_WAKEUP, MOVED, REPEATED,
) = range(1, 8)  # fmt: skip
#: Those up to this one rest on records of one CPU: no other record can explain them.
LAST_SURE = PID_RANGE

# Cells of ``g``: candidates, tasks, whether wakeups and migrations are recorded, since when no CPU
# has lost events or not begun, release, tolerated skew of clocks, whether recording begins and ends
# CPU by CPU, whether switches are recorded.
G_FOUND, G_TASKS, G_WAKES, G_MOVES, G_WHOLE, G_KERNEL, G_SKEW, G_APART, G_SWITCHES = range(9)
N_GLOBAL = 9


@step
def _keep(row: Any, at: int, rec: Any) -> None:
    for i in range(N_REC):
        row[at + i] = rec[i]


@step
def _suspect(
    found: Any, g: Any, what: int, cpu: int, pid: int, earlier: Any, at: int, rec: Any
) -> None:
    n = g[G_FOUND]
    if n >= found.shape[0]:
        return
    g[G_FOUND] = n + 1
    f = found[n]
    f[F_WHAT] = what
    f[F_CPU] = cpu
    f[F_PID] = pid
    f[F_UNTIL] = rec[R_TS] + g[G_SKEW]
    for i in range(N_REC):
        f[F_EARLIER + i] = earlier[at + i]
        f[F_LATER + i] = rec[i]


@step
def _drop(found: Any, g: Any, i: int) -> None:
    last = g[G_FOUND] - 1
    g[G_FOUND] = last
    for j in range(i, last):
        for k in range(N_FOUND):
            found[j, k] = found[j + 1, k]


@step
def _explain(found: Any, g: Any, pid: int, ts: int, cpu: int, first: int, last: int) -> None:
    """Drop candidates of a task (those of ``cpu`` apart) that a record stamped later explains."""
    i = g[G_FOUND] - 1
    while i >= 0:
        f = found[i]
        of_this = f[F_PID] == pid and f[F_CPU] != cpu
        if of_this and first <= f[F_WHAT] <= last and ts <= f[F_UNTIL]:
            _drop(found, g, i)
        i -= 1


@step
def _lose(found: Any, g: Any, since: int) -> None:
    """Drop candidates that records lost after ``since`` may explain."""
    i = g[G_FOUND] - 1
    while i >= 0:
        if found[i, F_WHAT] > LAST_SURE and since <= found[i, F_UNTIL]:
            _drop(found, g, i)
        i -= 1


@step
def _task(tasks: Any, pid_map: Any, g: Any, pid: int) -> Any:
    """Dense id of a pid."""
    i = pid_map[pid] - 1
    if i < 0:
        i = g[G_TASKS]
        g[G_TASKS] = i + 1
        pid_map[pid] = i + 1
        t = tasks[i]
        for k in range(N_TASK):
            t[k] = 0
        t[T_CPU] = -1
        t[T_WAKE] = NULL
    return i


@step
def _runs(
    cpus: Any, tasks: Any, pid_map: Any, found: Any, g: Any, c: int, pid: int, rec: Any
) -> None:
    """``pid`` is current on ``c``, as this record says."""
    k = cpus[c]
    k[C_BEFORE] = k[C_CURR]
    k[C_CURR] = pid
    _keep(k, C_TOLD, rec)
    if pid == 0:
        return
    t = tasks[_task(tasks, pid_map, g, pid)]
    d = t[T_CPU]
    if t[T_ST] == RUNNING and d != c and cpus[d, C_CURR] == pid and g[G_SWITCHES] == 1:
        _suspect(found, g, TWO_CPUS, c, pid, cpus[d], C_TOLD, rec)
        cpus[d, C_CURR] = -1
    t[T_ST] = RUNNING
    t[T_CPU] = c
    _keep(t, T_TOLD, rec)


@step
def _current(
    cpus: Any, tasks: Any, pid_map: Any, found: Any, g: Any, c: int, pid: int, rec: Any
) -> None:
    """A record names who runs on ``c``."""
    k = cpus[c]
    if k[C_CURR] == pid:
        return
    if k[C_CURR] >= 0:
        if g[G_APART] == 1 and rec[R_KIND] != SWITCH:
            # Perhaps switches are not recorded any more; the next one will tell.
            return
        # Between the record of a switch and the switch itself the task that leaves is current.
        if pid == k[C_BEFORE] and rec[R_KIND] != SWITCH and rec[R_TS] - k[C_TOLD] <= g[G_SKEW]:
            return
        if g[G_SWITCHES] == 1:
            _suspect(found, g, LOST_SWITCH, c, pid, k, C_TOLD, rec)
        gone = k[C_CURR]
        if gone > 0:
            tasks[_task(tasks, pid_map, g, gone), T_ST] = UNKNOWN
    elif pid > 0:
        t = tasks[_task(tasks, pid_map, g, pid)]
        late = rec[R_TS] - t[T_TOLD] <= g[G_SKEW]
        if t[T_ST] == RUNNING and t[T_CPU] != c and late:
            # Stamped after the switch-in that followed it elsewhere.
            return
    _runs(cpus, tasks, pid_map, found, g, c, pid, rec)


@step
def _out(tasks: Any, pid_map: Any, found: Any, g: Any, c: int, pid: int, rec: Any) -> None:
    """The task leaves ``c``."""
    t = tasks[_task(tasks, pid_map, g, pid)]
    if t[T_ST] == RUNNING and t[T_CPU] != c:
        # Stamped after the switch-in that followed it elsewhere.
        return
    state = rec[R_STATE]
    if state == S_UNKNOWN or (state & S_GONE and not state & S_PREEMPTED):
        t[T_ST] = UNKNOWN
    elif state == 0 or state & S_PREEMPTED:
        t[T_ST] = QUEUED
    else:
        # A waking before the switch-out: its sched_wakeup comes behind it.
        t[T_ST] = COMING if t[T_OPEN] == 1 else ASLEEP
    t[T_WOKEN] = 0
    _keep(t, T_TOLD, rec)


@step
def _in(
    cpus: Any, tasks: Any, pid_map: Any, found: Any, g: Any, c: int, pid: int, rec: Any
) -> None:
    """The task starts on ``c``."""
    t = tasks[_task(tasks, pid_map, g, pid)]
    st = t[T_ST]
    since = t[T_TOLD]
    if st == ASLEEP and g[G_WAKES] == 1 and since > g[G_WHOLE]:
        # From 5.18 to 6.15 a sleep that a signal called off is still recorded as one.
        may_be_false = g[G_KERNEL] == 0 or 5018 <= g[G_KERNEL] < 6016
        if not may_be_false and t[T_WAKE] < since - g[G_SKEW]:
            _suspect(found, g, LOST_WAKEUP, c, pid, t, T_TOLD, rec)
    elif st == QUEUED and g[G_MOVES] == 1 and since > g[G_WHOLE]:
        if t[T_CPU] >= 0 and t[T_CPU] != c:
            _suspect(found, g, MOVED, c, pid, t, T_TOLD, rec)
    t[T_OPEN] = 0
    t[T_WOKEN] = 0
    _runs(cpus, tasks, pid_map, found, g, c, pid, rec)


@step
def _woken(
    tasks: Any, pid_map: Any, found: Any, g: Any, c: int, pid: int, kind: int, to: int, rec: Any
) -> None:
    """sched_waking, sched_wakeup or sched_wakeup_new of a task."""
    t = tasks[_task(tasks, pid_map, g, pid)]
    ts = rec[R_TS]
    st = t[T_ST]
    if kind == WAKING:
        if (st == COMING or st == QUEUED) and t[T_WOKEN] == 1 and t[T_TOLD] > g[G_WHOLE]:
            # It slept and was woken: only a task that has run since can sleep again.
            _suspect(found, g, REPEATED, c, pid, t, T_TOLD, rec)
        if st == RUNNING or (st == QUEUED and t[T_WOKEN] == 0):
            t[T_OPEN] = 1
        elif st == ASLEEP or st == UNKNOWN:
            t[T_ST] = COMING
            t[T_WOKEN] = 1 if st == ASLEEP else 0
            _keep(t, T_TOLD, rec)
    else:
        t[T_OPEN] = 0
        if kind == WAKEUP_NEW or st == ASLEEP or st == COMING or st == UNKNOWN:
            slept = kind == WAKEUP_NEW or st == ASLEEP or (st == COMING and t[T_WOKEN] == 1)
            t[T_ST] = QUEUED
            t[T_CPU] = to
            t[T_WOKEN] = 1 if slept else 0
            _keep(t, T_TOLD, rec)
        elif st == QUEUED and to != t[T_CPU]:
            t[T_CPU] = to
            _keep(t, T_TOLD, rec)
    t[T_WAKE] = ts
    g[G_WAKES] = 1


@step
def _remember(
    k: Any, ev_ts: Any, ev_cpu: Any, ev_kind: Any, ev_pid: Any, ev_subject: Any, ev_state: Any,
    ev_other: Any, ev_to: Any,
) -> None:  # fmt: skip
    """Keep the last record of a CPU."""
    b = k[C_AT]
    k[C_LAST + R_TS] = ev_ts[b]
    k[C_LAST + R_CPU] = ev_cpu[b]
    k[C_LAST + R_KIND] = ev_kind[b]
    k[C_LAST + R_PID] = ev_pid[b]
    k[C_LAST + R_SUBJECT] = ev_subject[b]
    k[C_LAST + R_STATE] = ev_state[b]
    k[C_LAST + R_OTHER] = ev_other[b]
    k[C_LAST + R_TO] = ev_to[b]


@step
def _again(
    k: Any, rec: Any, ev_ts: Any, ev_cpu: Any, ev_kind: Any, ev_pid: Any, ev_subject: Any,
    ev_state: Any, ev_other: Any, ev_to: Any,
) -> bool:  # fmt: skip
    """Whether the record is the last one of its CPU once more."""
    if k[C_AT] >= 0:
        _remember(k, ev_ts, ev_cpu, ev_kind, ev_pid, ev_subject, ev_state, ev_other, ev_to)
    for i in range(N_REC):
        if k[C_LAST + i] != rec[i]:
            return False
    return True


@njit
def check(
    start: int,
    ev_ts: Any, ev_cpu: Any, ev_kind: Any, ev_pid: Any, ev_subject: Any, ev_state: Any,
    ev_other: Any, ev_to: Any,
    cpus: Any, tasks: Any, pid_map: Any, found: Any, g: Any,
) -> int:  # fmt: skip
    """Feed events from index ``start``; returns the index reached (less than n: ``tasks`` is full).

    Parameters
    ----------
    ev_* : columns of EventColumns
    cpus : int64[n_cpus, N_CPU]   as many as the events name
    tasks : int64[m, N_TASK]      updated
    pid_map : int32[PID_LIMIT + 1]  pid -> row of ``tasks`` + 1
    found : int64[k, N_FOUND]     candidates in the order of the stream; more than k are not kept
    g : int64[N_GLOBAL]
    """
    n: int = ev_ts.shape[0]
    rec = np.empty(N_REC, np.int64)
    reached = n
    for e in range(start, n):
        if g[G_TASKS] + 4 > tasks.shape[0]:
            reached = e
            break
        # One type of integer, so that every part is compiled once.
        ts: Any = np.int64(ev_ts[e])
        c: Any = np.int64(ev_cpu[e])
        kind: Any = np.int64(ev_kind[e])
        if kind == LOST or kind == BEGIN:
            g[G_WHOLE] = max(g[G_WHOLE], ts)
            if c < 0:
                _lose(found, g, NULL)
                for d in range(cpus.shape[0]):
                    cpus[d, C_CURR] = -1
            else:
                _lose(found, g, NULL if kind == BEGIN else cpus[c, C_TS])
                cpus[c, C_CURR] = -1
            continue
        if c < 0:
            continue
        pid: Any = np.int64(ev_pid[e])
        subject: Any = np.int64(ev_subject[e])
        other: Any = np.int64(ev_other[e])
        to: Any = np.int64(ev_to[e])
        rec[R_TS] = ts
        rec[R_CPU] = c
        rec[R_KIND] = kind
        rec[R_PID] = pid
        rec[R_SUBJECT] = subject
        rec[R_STATE] = ev_state[e]
        rec[R_OTHER] = other
        rec[R_TO] = to
        k = cpus[c]
        if ts == k[C_TS] and _again(k, rec, ev_ts, ev_cpu, ev_kind, ev_pid, ev_subject, ev_state,
                                    ev_other, ev_to):  # fmt: skip
            # perf writes some samples twice.
            continue
        if k[C_TS] == NULL and g[G_APART] == 1:
            # What this CPU recorded before, nobody knows.
            g[G_WHOLE] = max(g[G_WHOLE], ts + APART_NS)
            _lose(found, g, NULL)
        if ts < k[C_TS]:
            if k[C_AT] >= 0:
                _remember(k, ev_ts, ev_cpu, ev_kind, ev_pid, ev_subject, ev_state, ev_other, ev_to)
            _suspect(found, g, TIME_BACKWARDS, c, pid, k, C_LAST, rec)
        k[C_TS] = max(k[C_TS], ts)
        k[C_AT] = e
        if pid > PID_LIMIT or subject > PID_LIMIT or other > PID_LIMIT:
            _suspect(found, g, PID_RANGE, c, max(pid, subject, other), rec, 0, rec)
            continue
        if kind == SWITCH:
            g[G_SWITCHES] = 1
            if subject >= 0:
                if g[G_FOUND] > 0:
                    _explain(found, g, subject, ts, c, TWO_CPUS, TWO_CPUS)
                _current(cpus, tasks, pid_map, found, g, c, subject, rec)
                if subject > 0:
                    _out(tasks, pid_map, found, g, c, subject, rec)
            if other > 0:
                if g[G_FOUND] > 0:
                    _explain(found, g, other, ts, -1, REPEATED, REPEATED)
                _in(cpus, tasks, pid_map, found, g, c, other, rec)
            elif other == 0:
                _runs(cpus, tasks, pid_map, found, g, c, 0, rec)
            else:
                k[C_CURR] = -1
            continue
        if pid >= 0:
            _current(cpus, tasks, pid_map, found, g, c, pid, rec)
        if subject <= 0:
            continue
        if WAKING <= kind <= WAKEUP_NEW:
            if g[G_FOUND] > 0:
                _explain(found, g, subject, ts, -1, LOST_WAKEUP, MOVED)
            _woken(tasks, pid_map, found, g, c, subject, kind, to, rec)
        elif kind == MIGRATE:
            g[G_MOVES] = 1
            if g[G_FOUND] > 0:
                _explain(found, g, subject, ts, -1, MOVED, MOVED)
            i = _task(tasks, pid_map, g, subject)
            if tasks[i, T_ST] == QUEUED:
                tasks[i, T_CPU] = to
                _keep(tasks[i], T_TOLD, rec)
        elif kind == FORK:
            tasks[_task(tasks, pid_map, g, subject), T_ST] = UNKNOWN
    for c in range(cpus.shape[0]):
        k = cpus[c]
        if k[C_AT] >= 0:
            # The batch goes; what its last record was is kept.
            _remember(k, ev_ts, ev_cpu, ev_kind, ev_pid, ev_subject, ev_state, ev_other, ev_to)
            k[C_AT] = -1
    return reached
