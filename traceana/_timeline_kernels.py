"""The state machine behind the timeline: one pass over events, all state in arrays.

Structured arrays hold the state between batches and the output (``_timeline_state``); what happens
to places is in ``_place_kernels``, to wakeups in ``_wake_kernels``. :func:`advance` stops
early where an output is full and is called again after the caller has made room, so a batch may
be split anywhere.

Sections in brackets are those of the kernel semantics.
"""

from __future__ import annotations

from typing import Any

from traceana._jit import njit
from traceana._place_kernels import (
    close_gap,
    close_slice,
    dequeue,
    drop_current,
    enqueue,
    idle_now,
    leave_place,
    new_task,
    open_gap,
    open_slice,
    settle,
    take_current,
    task_of,
)
from traceana._timeline_state import (
    ASLEEP,
    BEGIN,
    CPU_IDLE,
    E_BLOCK,
    E_DEAD,
    E_PREEMPT,
    E_SLEEP,
    E_YIELD,
    EXIT,
    FORK,
    GONE,
    K_DECIDED,
    K_FORK,
    K_ON_RQ,
    K_UNKNOWN,
    LEAVING_MAX,
    LOST,
    MAYBE_BLOCKED,
    MIGRATE,
    NULL,
    PID_LIMIT,
    Q_LOSS,
    QUEUED,
    R_FALSE_BLOCK,
    R_LOST_WAKEUP,
    S_DEAD,
    S_PREEMPTED,
    STAT,
    SURE,
    SWITCH,
    UNKNOWN,
    WAKEUP,
    WAKEUP_NEW,
    WAKING,
    WAS_RUNNING,
)
from traceana._timeline_types import part
from traceana._wake_kernels import (
    close_wake,
    decide_kind,
    expect_late,
    finish_wake,
    new_wake,
    on_wakeup,
    on_waking,
    sample,
    settle_edges,
    undo_sample,
    watch,
)

__all__ = ["advance", "on_fork", "on_loss", "switch_in", "switch_out", "without_cpu"]


@part
def switch_out(
    T: Any, C: Any, Q: Any, L: Any, W: Any, outL: Any, outW: Any, E: Any, S: Any, G: Any,
    c: int, i: int, state: int, ts: int,
) -> None:  # fmt: skip
    """The task ``i`` leaves CPU ``c`` with ``state`` (schema.State bits)."""
    t = T[i]
    t["switches"] += 1
    t["out_ts"] = ts
    t["last_state"] = state
    reason = E_YIELD
    if state & S_PREEMPTED:
        reason = E_PREEMPT
    elif state & S_DEAD:
        reason = E_DEAD
    elif state & 0x2:
        reason = E_BLOCK
    elif state != 0:
        reason = E_SLEEP
    if t["running"] == 1:
        if t["in_ts"] != NULL:
            d = ts - t["in_ts"]
            if d > 0:
                t["rt_sw"] += d
            if ts > t["run_from"]:
                t["acc_sw"] += ts - t["run_from"]
        if reason == E_SLEEP or reason == E_BLOCK:
            settle_edges(T, E, S, G, i, ts)
        close_slice(T, C, L, outL, G, i, ts, reason, state)
    blocking = reason == E_SLEEP or reason == E_BLOCK or reason == E_DEAD
    r = t["wk"]
    kver = G[0]["kver"]
    if blocking:
        t["voluntary"] += 1
        t["blk_ts"] = ts
        t["deq_ts"] = t["stat_ts"]
        sample(T, G, i)
        t["st"] = GONE if reason == E_DEAD else ASLEEP
        C[c]["nr"] -= 1
        if reason == E_DEAD and t["died"] == NULL:
            t["died"] = ts
    else:
        t["preempted"] += 1
        t["acc"] += t["post"]
        t["post"] = 0
        t["st"] = QUEUED
        C[c]["nwait"] += 1
        if r >= 0 and W[r]["waits"] == WAS_RUNNING:
            # It had not left the queue; the sched_wakeup may follow only now.
            if state == 0 and 5008 <= kver < 5018 and ts - W[r]["waking"] <= 2000:
                # Perhaps not: see false_running().
                W[r]["waits"] = MAYBE_BLOCKED
            else:
                W[r]["counts"] = 0
                decide_kind(T, G, W, outW, r, K_ON_RQ)
    # The delay as perf sched latency counts it.
    t["p_st"] = 2 if state == 0 else 1
    t["p_out"] = ts
    t["p_wake"] = ts


@part
def switch_in(
    T: Any, C: Any, Q: Any, P: Any, L: Any, W: Any, outL: Any, outW: Any, outP: Any, G: Any,
    c: int, i: int, ts: int,
) -> int:  # fmt: skip
    """The task ``i`` starts on CPU ``c``; returns the wakeup that brought it there, or -1."""
    t = T[i]
    r = t["wk"]
    if r >= 0 and W[r]["counts"] == 0:
        # A wakeup that found it on its queue is not what brings it here.
        r = -1
    came = -1
    asleep = t["st"] == ASLEEP or t["st"] == UNKNOWN
    recorded = G[0]["have_waking"] == 1 or G[0]["have_wakeup"] == 1
    t["called_off"] = 0
    if t["st"] == ASLEEP and r < 0 and t["blk_ts"] != NULL and recorded:
        if 5018 <= G[0]["kver"] < 6016 and t["blk_ts"] >= G[0]["whole_from"]:
            # A pending signal called the sleep off after its state had been sampled (R4).
            G[0]["repairs"][R_FALSE_BLOCK] += 1
            undo_sample(T, i)
            t["voluntary"] -= 1
            t["preempted"] += 1
            t["called_off"] = 1
        else:
            G[0]["repairs"][R_LOST_WAKEUP] += 1
    leave_place(T, C, Q, P, L, outL, outP, G, i, c, ts)
    expect_late(T, W, outW, G, i, r if r >= 0 and W[r]["wakeup"] == NULL else -1)
    queued = NULL
    if r >= 0:
        came = W[r]["id"]
        queued = W[r]["wakeup"]
        finish_wake(T, W, outW, G, i, r, c, ts)
    t["orphan"] = 1 if came < 0 and asleep else 0
    # The delay as perf sched latency counts it: a task first seen here has waited 0.
    if t["p_st"] == 0:
        t["p_st"] = 2
        t["p_wake"] = ts
    if t["p_st"] == 2 and ts >= t["p_wake"]:
        d = ts - t["p_wake"]
        t["delays"] += 1
        t["delay_sum"] += d
        if d > t["delay_max"]:
            t["delay_max"] = d
            t["delay_max_at"] = ts
        t["p_st"] = 3
    open_slice(T, C, L, outL, G, i, c, ts)
    if came >= 0 and C[c]["gap"] == 1 and queued != NULL and ts - queued < LEAVING_MAX:
        # __schedule() of an idle CPU that is to reschedule does not renew the queue's clock: the
        # task's time starts at its enqueue (rq_clock_skip_update() in check_preempt_curr()).
        t["run_from"] = min(queued + G[0]["leave"], ts)
    C[c]["nr"] += 1
    return came


@part
def on_loss(
    T: Any, C: Any, Q: Any, P: Any, L: Any, W: Any, outL: Any, outW: Any, outP: Any, G: Any,
    c: int, ts: int,
) -> None:  # fmt: skip
    """Events of ``c`` are missing: who ran or queued there is not known any more (section 7.7)."""
    drop_current(T, C, Q, P, L, outL, outP, G, c, ts)
    for i in range(G[0]["n_task"]):
        t = T[i]
        r = t["wk"]
        if r >= 0 and W[r]["placed"] == c and W[r]["wakeup"] == NULL and t["cpu"] != c:
            # Booked here, and the record of its arrival is lost.
            W[r]["quality"] |= Q_LOSS
        if t["cpu"] != c or t["pid"] == 0 or t["st"] == GONE:
            continue
        if t["st"] == QUEUED:
            dequeue(T, C, Q, i, ts)
        if r >= 0:
            W[r]["quality"] |= Q_LOSS
            if W[r]["waits"] != SURE:
                decide_kind(T, G, W, outW, r, K_UNKNOWN)
            close_wake(T, W, outW, G, r)
        t["st"] = UNKNOWN
        t["acc_ok"] = 0
        t["acc"] = 0
        t["acc_sw"] = 0
        t["post"] = 0
        t["need"] = max(t["need"], 8)
        t["flip_need"] = max(t["flip_need"], 1)
        t["p_st"] = 1
    C[c]["nr"] = 0
    C[c]["nwait"] = 0
    watch(C, W, outW, G, c, -1)
    settle(C, Q, c, ts)


@part
def on_fork(
    T: Any, G: Any, parent: int, child_pid: int, ts: int, pid_map: Any, seeds: Any, seed_of: Any
) -> int:
    """A child starts with its parent's flips (section 2.1) and with dur_avg 0 (section 3.2)."""
    if child_pid <= 0 or child_pid > PID_LIMIT:
        return -1
    gen = 0
    before = pid_map[child_pid] - 1
    if before >= 0:
        gen = T[before]["gen"] + 1
    i = new_task(T, G, child_pid, ts, gen, seeds, seed_of)
    pid_map[child_pid] = i + 1
    t = T[i]
    t["born"] = ts
    t["dur"] = 0
    t["need"] = 0
    t["acc_ok"] = 1
    t["flip_need"] = 20
    t["last_pid"] = -2
    if parent >= 0:
        t["flips"] = T[parent]["flips"]
        t["flip_ts"] = T[parent]["flip_ts"]
        t["last_pid"] = T[parent]["last_pid"]
        t["last_gen"] = T[parent]["last_gen"]
        t["flip_need"] = T[parent]["flip_need"]
    return i


@part
def pinned_at(pin_from: Any, pin_to: Any, pid: int, ts: int) -> int:
    """Whether the pid had the name of a per-CPU kernel thread at that time."""
    begin, end = pin_from[pid], pin_to[pid]
    return 1 if begin != 0 and ts >= begin and (end == 0 or ts < end) else 0


@part
def without_cpu(
    T: Any,
    C: Any,
    L: Any,
    W: Any,
    outL: Any,
    outW: Any,
    G: Any,
    p: int,
    i: int,
    state: int,
    ts: int,
) -> None:
    """A switch of a form that shows no CPU: what it says of the two tasks (case C24)."""
    if p >= 0 and T[p]["pid"] > 0:
        t = T[p]
        t["switches"] += 1
        if t["running"] == 1:
            if t["in_ts"] != NULL and ts > t["in_ts"]:
                t["rt_sw"] += ts - t["in_ts"]
            reason = E_PREEMPT if state & S_PREEMPTED else (E_YIELD if state == 0 else E_SLEEP)
            close_slice(T, C, L, outL, G, p, ts, reason, state)
        if state == 0 or state & S_PREEMPTED:
            t["preempted"] += 1
            t["st"] = QUEUED
        else:
            t["voluntary"] += 1
            t["st"] = ASLEEP
            t["blk_ts"] = ts
        t["cpu"] = -1
    if i >= 0 and T[i]["pid"] > 0:
        if T[i]["wk"] >= 0:
            finish_wake(T, W, outW, G, i, T[i]["wk"], -1, ts)
        open_slice(T, C, L, outL, G, i, -1, ts)


@njit
def advance(
    start: int,
    ev_ts: Any, ev_cpu: Any, ev_kind: Any, ev_pid: Any, ev_ctx: Any, ev_subject: Any, ev_prio: Any,
    ev_state: Any, ev_other: Any, ev_oprio: Any, ev_to: Any, ev_from: Any, ev_value: Any,
    T: Any, C: Any, Q: Any, G: Any, L: Any, W: Any, P: Any, M: Any,
    outL: Any, outW: Any, outP: Any, E: Any, S: Any, edge_of: Any,
    pid_map: Any, seeds: Any, seed_of: Any, pin_from: Any, pin_to: Any,
) -> int:  # fmt: skip
    """Feed events from index ``start``; returns the index reached (less than n: make room).

    Events are the arrays of EventColumns; state and outputs the structured arrays of this module.
    ``pin_from`` and ``pin_to`` (int64 by pid; 0 = never) say from when to when a pid had the name
    of a per-CPU kernel thread.
    """
    n = ev_ts.shape[0]
    g = G[0]
    for e in range(start, n):
        if (
            g["n_task"] + 4 > T.shape[0]
            or g["w_live"] + 4 > W.shape[0]
            or g["out_wake"] + g["w_live"] + 4 > outW.shape[0]
            or g["out_slice"] + 8 > outL.shape[0]
            or g["out_gap"] + 8 > outP.shape[0]
            or g["n_move"] + 2 > M.shape[0]
            or 2 * g["n_edge"] + 4 > edge_of.shape[0]
            or g["p_top"] + 4 > S.shape[0]
        ):
            return e
        ts = ev_ts[e]
        c = ev_cpu[e]
        kind = ev_kind[e]
        pid = ev_pid[e]
        if c >= 0:
            k = C[c]
            if kind == LOST or kind == BEGIN:
                g["whole_from"] = ts
                if kind == BEGIN:
                    k["begin"] = ts
                else:
                    on_loss(T, C, Q, P, L, W, outL, outW, outP, G, c, ts)
                continue
            k["events"] += 1
            k["last_ts"] = ts
            if k["first_ts"] == NULL:
                k["first_ts"] = ts
            r = k["vis"]
            if r >= 0 and kind != STAT and kind != MIGRATE and ts > W[r]["vis_lo"]:
                # Queued remotely: visible at the latest when its waker's CPU records something else.
                if W[r]["wakeup"] == NULL or ts < W[r]["vis_hi"]:
                    W[r]["vis_hi"] = ts
                watch(C, W, outW, G, c, -1)
        elif kind == LOST or kind == BEGIN:
            continue
        subject = ev_subject[e]
        cur = -1
        if kind == SWITCH:
            p = task_of(T, C, G, subject, c, ts, pid_map, seeds, seed_of)
            i = task_of(T, C, G, ev_other[e], c, ts, pid_map, seeds, seed_of)
            if p >= 0 and subject > 0 and ev_prio[e] != -32768:
                T[p]["prio"] = ev_prio[e]
            if i >= 0 and ev_other[e] > 0 and ev_oprio[e] != -32768:
                T[i]["prio"] = ev_oprio[e]
            if c < 0:
                without_cpu(T, C, L, W, outL, outW, G, p, i, ev_state[e], ts)
                continue
            C[c]["switches"] += 1
            take_current(T, C, Q, P, L, outL, outP, G, c, p, ts)
            was_idle = p >= 0 and p == C[c]["idle_task"]
            if p >= 0 and not was_idle:
                switch_out(T, C, Q, L, W, outL, outW, E, S, G, c, p, ev_state[e], ts)
            C[c]["curr"] = -1
            C[c]["pulled"] = 0
            came = -1
            if i >= 0 and i != C[c]["idle_task"]:
                came = switch_in(T, C, Q, P, L, W, outL, outW, outP, G, c, i, ts)
            if was_idle:
                close_gap(C, Q, P, outP, G, c, ts, ts, came)
            C[c]["curr"] = i
            if i >= 0 and i == C[c]["idle_task"]:
                open_gap(C, Q, P, G, c, ts, ts)
            settle(C, Q, c, ts)
            continue
        if pid >= 0:
            cur = task_of(T, C, G, pid, c, ts, pid_map, seeds, seed_of)
            if c >= 0:
                take_current(T, C, Q, P, L, outL, outP, G, c, cur, ts)
        if kind == STAT:
            p = task_of(T, C, G, subject, c, ts, pid_map, seeds, seed_of)
            if p >= 0:
                t = T[p]
                v = ev_value[e]
                g["stat"] = 1
                t["rt"] += v
                if c >= 0 and C[c]["curr"] == p and C[c]["pulled"] == 0:
                    t["acc"] += t["post"] + v
                    t["post"] = 0
                    t["firm"] = 1
                    t["stat_ts"] = ts
                elif t["stat_ts"] == NULL or ts - t["stat_ts"] > LEAVING_MAX:
                    t["acc"] += t["post"] + v
                    t["post"] = 0
                    t["firm"] = 1
                else:
                    # Reported by another CPU that took a task off this queue, or after a pull:
                    # if the task has blocked by now, it belongs to its next sample (7.8-4).
                    t["post"] += v
                if t["running"] == 1:
                    L[p]["runtime"] += v
                if t["p_st"] == 0:
                    t["p_st"] = 2
                    t["p_wake"] = ts
        elif kind == WAKING:
            p = task_of(T, C, G, subject, -1, ts, pid_map, seeds, seed_of)
            if p >= 0:
                if ev_prio[e] != -32768:
                    T[p]["prio"] = ev_prio[e]
                T[p]["pinned"] = pinned_at(pin_from, pin_to, subject, ts)
                g["have_waking"] = 1
                on_waking(T, C, Q, W, outW, E, S, edge_of, G, c, cur, p, ev_to[e], ev_ctx[e], ts)
        elif kind == WAKEUP:
            p = task_of(T, C, G, subject, -1, ts, pid_map, seeds, seed_of)
            if p >= 0:
                if ev_prio[e] != -32768:
                    T[p]["prio"] = ev_prio[e]
                T[p]["pinned"] = pinned_at(pin_from, pin_to, subject, ts)
                g["have_wakeup"] = 1
                on_wakeup(T, C, Q, W, outW, G, c, cur, p, ev_to[e], ev_ctx[e], ts)
        elif kind == WAKEUP_NEW:
            p = -1
            if 0 < subject <= PID_LIMIT:
                p = pid_map[subject] - 1
                if p < 0 or T[p]["born"] == NULL or T[p]["st"] != UNKNOWN or T[p]["switches"] > 0:
                    p = on_fork(T, G, cur, subject, ts, pid_map, seeds, seed_of)
            if p >= 0:
                t = T[p]
                t["last_ts"] = ts
                if ev_prio[e] != -32768:
                    t["prio"] = ev_prio[e]
                t["wakeups"] += 1
                r = new_wake(W, G, p)
                w = W[r]
                w["kind"] = K_FORK
                w["wakeup"] = ts
                w["waker"] = cur
                w["current"] = cur
                w["this_cpu"] = c
                w["context"] = 0
                w["queueing"] = 0
                w["placed"] = ev_to[e]
                if ev_to[e] >= 0 and ev_to[e] < C.shape[0]:
                    w["placed_idle"] = idle_now(C, ev_to[e])
                    if C[ev_to[e]]["curr"] >= 0:
                        w["nr_placed"] = C[ev_to[e]]["nr"]
                t["wk"] = r
                enqueue(T, C, Q, p, ev_to[e], ts)
                t["p_st"] = 2
                t["p_out"] = ts
                t["p_wake"] = ts
        elif kind == MIGRATE:
            p = task_of(T, C, G, subject, -1, ts, pid_map, seeds, seed_of)
            if p >= 0:
                t = T[p]
                dst = ev_to[e]
                r = t["wk"]
                if (
                    r >= 0
                    and W[r]["wakeup"] == NULL
                    and c >= 0
                    and C[c]["vis"] == r
                    and t["st"] != QUEUED
                ):
                    W[r]["mig"] = ts
                    W[r]["placed"] = dst
                    W[r]["vis_lo"] = ts
                    if W[r]["waits"] != SURE and t["st"] == ASLEEP:
                        decide_kind(T, G, W, outW, r, K_DECIDED)
                elif t["st"] == QUEUED:
                    m = M[g["n_move"]]
                    g["n_move"] += 1
                    m["ts"] = ts
                    m["task"] = p
                    m["src"] = t["cpu"]
                    m["dst"] = dst
                    m["at"] = c
                    dequeue(T, C, Q, p, ts)
                    enqueue(T, C, Q, p, dst, ts)
                    if (
                        c == dst
                        and c >= 0
                        and pid > 0
                        and ev_ctx[e] != 255
                        and (ev_ctx[e] & 7) == 0
                    ):
                        # Pulled by schedule() of the task that just blocked: what it runs from
                        # here on belongs to its next sample (section 7.8-4).
                        C[c]["pulled"] = 1
                elif t["st"] == ASLEEP:
                    t["cpu"] = dst
        elif kind == FORK:
            on_fork(
                T,
                G,
                task_of(T, C, G, ev_other[e], c, ts, pid_map, seeds, seed_of),
                subject,
                ts,
                pid_map,
                seeds,
                seed_of,
            )
        elif kind == EXIT:
            p = task_of(T, C, G, subject, -1, ts, pid_map, seeds, seed_of)
            if p >= 0:
                T[p]["died"] = ts
        elif kind == CPU_IDLE:
            d = ev_to[e]
            if d >= 0 and d < C.shape[0] and C[d]["gap"] == 1 and ev_value[e] != 4294967295:
                if ev_value[e] > P[d]["idle_state"] and ev_value[e] < 1000:
                    P[d]["idle_state"] = ev_value[e]
    return n
