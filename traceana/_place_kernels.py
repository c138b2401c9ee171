"""Where tasks are: identities, queues, slices, idle gaps, and how long somebody waits.

Parts of the state machine in ``_timeline_kernels``; arrays as in ``_timeline_state``.
"""

from __future__ import annotations

from typing import Any

from traceana._timeline_state import (
    E_CUT,
    GONE,
    NULL,
    PID_LIMIT,
    QUEUED,
    R_LOST_SWITCH,
    R_MOVED,
    R_PID,
    R_TWO,
    RUNNING,
    UNKNOWN,
)
from traceana._timeline_types import part, part_for_python

__all__ = [
    "close_gap",
    "close_slice",
    "dequeue",
    "drop_current",
    "enqueue",
    "idle_now",
    "integrate",
    "leave_place",
    "new_task",
    "open_gap",
    "open_slice",
    "settle",
    "take_current",
    "task_of",
]


@part
def new_task(T: Any, G: Any, pid: int, ts: int, gen: int, seeds: Any, seed_of: Any) -> int:
    """Open a row for a task; its start state comes from the seeds where there is one."""
    i = G[0]["n_task"]
    G[0]["n_task"] = i + 1
    t = T[i]
    t["pid"] = pid
    t["gen"] = gen
    t["cpu"] = -1
    t["st"] = UNKNOWN
    t["prio"] = -32768
    t["pinned"] = 0
    t["first_ts"] = ts
    t["last_ts"] = ts
    t["born"] = NULL
    t["died"] = NULL
    t["running"] = 0
    t["seen"] = 0
    t["in_ts"] = NULL
    t["run_from"] = NULL
    t["out_ts"] = NULL
    t["blk_ts"] = NULL
    t["deq_ts"] = NULL
    t["wk"] = -1
    t["acc"] = 0
    t["post"] = 0
    t["firm"] = 0
    t["stat_ts"] = NULL
    t["acc_sw"] = 0
    t["acc_ok"] = 0
    t["need"] = 24
    t["dur"] = 0
    t["samples"] = 0
    t["undo_dur"] = 0
    t["undo_acc"] = 0
    t["undo_sw"] = 0
    t["undo_ok"] = 0
    t["undo_need"] = 24
    t["flips"] = 0
    t["flip_ts"] = NULL
    t["last_pid"] = -2
    t["last_gen"] = 0
    t["flip_need"] = 20
    t["flips_seen"] = 0
    t["rt"] = 0
    t["rt_sw"] = 0
    t["switches"] = 0
    t["voluntary"] = 0
    t["preempted"] = 0
    t["wakeups"] = 0
    t["orphan"] = 0
    t["called_off"] = 0
    t["last_state"] = -1
    t["redo_dur"] = 0
    t["redo_need"] = 0
    t["late"] = -1
    t["held_first"] = -1
    t["held_last"] = -1
    t["p_st"] = 0
    t["p_out"] = 0
    t["p_wake"] = 0
    t["delays"] = 0
    t["delay_sum"] = 0
    t["delay_max"] = -1
    t["delay_max_at"] = NULL
    t["wakings"] = 0
    t["pend_first"] = -1
    t["pend_last"] = -1
    if pid == 0:
        # The idle task never blocks: its average is the 0 it was born with.
        t["need"] = 0
    if gen == 0 and pid >= 0 and pid < seed_of.shape[0] and seed_of[pid] > 0:
        s = seeds[seed_of[pid] - 1]
        if s["has"] & 1:
            t["dur"] = s["dur"]
            t["need"] = 0
        if s["has"] & 2:
            t["flips"] = s["flips"]
            t["flip_ts"] = s["flip_ts"]
            t["last_pid"] = s["last_pid"]
            t["flip_need"] = 0
    return i


@part_for_python
def task_of(
    T: Any, C: Any, G: Any, pid: int, cpu: int, ts: int, pid_map: Any, seeds: Any, seed_of: Any
) -> int:
    """Dense id of who has this pid now (pid 0: the idle task of ``cpu``); -1 where it has none."""
    if pid == 0:
        if cpu < 0:
            return -1
        i = C[cpu]["idle_task"]
        if i < 0:
            i = new_task(T, G, 0, ts, 0, seeds, seed_of)
            T[i]["cpu"] = cpu
            C[cpu]["idle_task"] = i
        T[i]["last_ts"] = ts
        return i
    if pid < 0:
        return -1
    if pid > PID_LIMIT:
        G[0]["repairs"][R_PID] += 1
        return -1
    i = pid_map[pid] - 1
    if i < 0 or T[i]["st"] == GONE:
        # After its death a pid can only be another task's (R8).
        i = new_task(T, G, pid, ts, 0 if i < 0 else T[i]["gen"] + 1, seeds, seed_of)
        pid_map[pid] = i + 1
    T[i]["last_ts"] = ts
    return i


@part
def integrate(Q: Any, C: Any, g: int, ts: int, llc: bool) -> None:
    """Bring a group's waiting times up to ``ts``."""
    q = Q[g]
    d = ts - q["last_ts"]
    if d <= 0:
        return
    q["last_ts"] = ts
    if q["cpus_waiting"] > 0:
        q["waited"] += d
        if q["cpus_waiting"] == 1:
            # Only one CPU has a waiter: its own idle time must not count this as "elsewhere".
            c = q["id_sum"]
            if llc:
                C[c]["own_llc"] += d
            else:
                C[c]["own_any"] += d
    if q["cpus_stuck"] > 0:
        q["stuck"] += d


@part
def settle(C: Any, Q: Any, c: int, ts: int) -> None:
    """Renew what CPU ``c`` tells its groups after its queue or its current task changed."""
    k = C[c]
    waiting = 1 if k["nwait"] > 0 else 0
    stuck = 1 if waiting == 1 and k["curr"] >= 0 and k["curr"] != k["idle_task"] else 0
    if waiting == k["waiting"] and stuck == k["stuck"]:
        return
    for which in range(2):
        g = k["llc"] if which == 0 else Q.shape[0] - 1
        integrate(Q, C, g, ts, which == 0)
        if waiting != k["waiting"]:
            step = waiting - k["waiting"]
            Q[g]["cpus_waiting"] += step
            Q[g]["id_sum"] += step * c
        Q[g]["cpus_stuck"] += stuck - k["stuck"]
    k["waiting"] = waiting
    k["stuck"] = stuck


@part
def idle_now(C: Any, c: int) -> int:
    """1 idle, 0 busy, -1 not known."""
    if c < 0 or c >= C.shape[0] or C[c]["curr"] < 0:
        return -1
    return 1 if C[c]["curr"] == C[c]["idle_task"] and C[c]["nr"] == 0 else 0


@part
def dequeue(T: Any, C: Any, Q: Any, i: int, ts: int) -> None:
    """Take a queued task off its CPU's queue."""
    c = T[i]["cpu"]
    if c >= 0:
        C[c]["nr"] -= 1
        C[c]["nwait"] -= 1
        settle(C, Q, c, ts)


@part
def enqueue(T: Any, C: Any, Q: Any, i: int, c: int, ts: int) -> None:
    """Queue a task that was not queued."""
    T[i]["st"] = QUEUED
    T[i]["cpu"] = c
    if c >= 0:
        C[c]["nr"] += 1
        C[c]["nwait"] += 1
        settle(C, Q, c, ts)


@part
def open_gap(C: Any, Q: Any, P: Any, G: Any, c: int, start: int, ts: int) -> None:
    """The idle task became current on ``c`` (``start`` NULL: before the window)."""
    p = P[c]
    k = C[c]
    p["id"] = -1
    if start != NULL:
        p["id"] = G[0]["n_gap"]
        G[0]["n_gap"] += 1
        k["began"] = 1
    p["cpu"] = c
    p["idle_state"] = -1
    p["start"] = start
    p["end"] = NULL
    p["by"] = -1
    integrate(Q, C, k["llc"], ts, True)
    integrate(Q, C, Q.shape[0] - 1, ts, False)
    k["gap"] = 1
    k["gap_llc"] = Q[k["llc"]]["waited"] - k["own_llc"]
    k["gap_any"] = Q[Q.shape[0] - 1]["waited"] - k["own_any"]
    k["gap_busy"] = Q[k["llc"]]["stuck"]
    Q[k["llc"]]["idle"] += 1


@part_for_python
def close_gap(
    C: Any, Q: Any, P: Any, outP: Any, G: Any, c: int, end: int, ts: int, by: int
) -> None:
    """The idle task of ``c`` stopped being current (``end`` NULL: not seen)."""
    k = C[c]
    if k["gap"] == 0:
        return
    integrate(Q, C, k["llc"], ts, True)
    integrate(Q, C, Q.shape[0] - 1, ts, False)
    p = P[c]
    p["end"] = end if end == NULL or p["start"] == NULL else max(end, p["start"])
    p["by"] = by
    p["llc"] = Q[k["llc"]]["waited"] - k["own_llc"] - k["gap_llc"]
    p["any"] = Q[Q.shape[0] - 1]["waited"] - k["own_any"] - k["gap_any"]
    p["busy"] = Q[k["llc"]]["stuck"] - k["gap_busy"]
    k["gap"] = 0
    k["idle_seen"] = ts
    Q[k["llc"]]["idle"] -= 1
    if end != NULL:
        if p["start"] != NULL:
            k["idle_ns"] += p["end"] - p["start"]
        else:
            # A row of unknown begin stands where it ended.
            p["id"] = G[0]["n_gap"]
            G[0]["n_gap"] += 1
            if k["ended"] == 0:
                begin = k["begin"] if k["begin"] != NULL else G[0]["first"]
                k["idle_ns"] += max(end - begin, 0)
        k["ended"] = 1
    outP[G[0]["out_gap"]] = p
    G[0]["out_gap"] += 1


@part_for_python
def close_slice(
    T: Any, C: Any, L: Any, outL: Any, G: Any, i: int, end: int, reason: int, state: int
) -> None:
    """The open slice of task ``i`` is over (``end`` NULL: not seen)."""
    t = T[i]
    if t["running"] == 0:
        return
    s = L[i]
    t["running"] = 0
    if end != NULL:
        # A clock that stepped back makes a slice of no length, not of a negative one.
        s["end"] = end if s["start"] == NULL else max(end, s["start"])
        s["reason"] = reason
        s["state"] = state
        c = s["cpu"]
        if c >= 0:
            k = C[c]
            if s["start"] != NULL:
                k["busy_ns"] += s["end"] - s["start"]
            elif k["ended"] == 0 and t["seen"] == 0:
                # Who was elsewhere before did not run here since the window's begin.
                begin = k["begin"] if k["begin"] != NULL else G[0]["first"]
                k["busy_ns"] += max(end - begin, 0)
            k["ended"] = 1
        if s["start"] == NULL:
            # A row of unknown begin stands where it ended.
            s["id"] = G[0]["n_slice"]
            G[0]["n_slice"] += 1
        t["seen"] = 1
    outL[G[0]["out_slice"]] = s
    G[0]["out_slice"] += 1


@part
def open_slice(T: Any, C: Any, L: Any, outL: Any, G: Any, i: int, c: int, start: int) -> None:
    """The task runs on ``c`` (``start`` NULL: since before the window)."""
    close_slice(T, C, L, outL, G, i, NULL, E_CUT, 65535)
    t = T[i]
    s = L[i]
    s["id"] = -1
    if start != NULL:
        s["id"] = G[0]["n_slice"]
        G[0]["n_slice"] += 1
        t["seen"] = 1
        if c >= 0:
            C[c]["began"] = 1
    s["task"] = i
    s["cpu"] = c
    s["start"] = start
    s["end"] = NULL
    s["runtime"] = 0
    # dur_avg changes only when the task blocks, so this holds for the whole slice.
    s["dur"] = t["dur"] if t["need"] == 0 else NULL
    s["reason"] = E_CUT
    s["state"] = 65535
    t["running"] = 1
    t["in_ts"] = start
    t["run_from"] = start
    t["st"] = RUNNING
    t["cpu"] = c


@part
def drop_current(
    T: Any, C: Any, Q: Any, P: Any, L: Any, outL: Any, outP: Any, G: Any, c: int, ts: int
) -> None:
    """Close whoever we believed to run on ``c``: a switch is missing (R3)."""
    k = C[c]
    i = k["curr"]
    if i < 0:
        return
    if i == k["idle_task"]:
        close_gap(C, Q, P, outP, G, c, NULL, ts, -1)
    else:
        t = T[i]
        if t["st"] == RUNNING and t["cpu"] == c:
            t["st"] = UNKNOWN
            close_slice(T, C, L, outL, G, i, NULL, E_CUT, 65535)
            t["acc_ok"] = 0
            t["need"] = max(t["need"], 8)
            k["nr"] -= 1
    k["curr"] = -1
    settle(C, Q, c, ts)


@part
def leave_place(
    T: Any, C: Any, Q: Any, P: Any, L: Any, outL: Any, outP: Any, G: Any, i: int, c: int, ts: int
) -> None:
    """Before a task runs on ``c``: take it from where we believed it (R2)."""
    t = T[i]
    if t["st"] == QUEUED:
        if t["cpu"] != c:
            G[0]["repairs"][R_MOVED] += 1
        dequeue(T, C, Q, i, ts)
    elif t["st"] == RUNNING and t["cpu"] >= 0 and C[t["cpu"]]["curr"] == i:
        G[0]["repairs"][R_TWO] += 1
        drop_current(T, C, Q, P, L, outL, outP, G, t["cpu"], ts)


@part_for_python
def take_current(
    T: Any, C: Any, Q: Any, P: Any, L: Any, outL: Any, outP: Any, G: Any, c: int, i: int, ts: int
) -> None:
    """Learn from an event who runs on ``c`` (since an unknown time)."""
    k = C[c]
    if i < 0 or k["curr"] == i:
        return
    if k["curr"] >= 0:
        G[0]["repairs"][R_LOST_SWITCH] += 1
        drop_current(T, C, Q, P, L, outL, outP, G, c, ts)
    if i == k["idle_task"]:
        k["curr"] = i
        open_gap(C, Q, P, G, c, NULL, ts)
    else:
        leave_place(T, C, Q, P, L, outL, outP, G, i, c, ts)
        open_slice(T, C, L, outL, G, i, c, NULL)
        k["curr"] = i
        k["nr"] += 1
    settle(C, Q, c, ts)
