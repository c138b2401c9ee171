"""The state machine behind the timeline: one pass over events, all state in arrays.

Four structured arrays hold the state between batches (:data:`TASK`, :data:`CPU`, :data:`GROUP`
and the scalars :data:`GLOBAL`); three more are written as output (:data:`SLICE`, :data:`WAKE`,
:data:`GAP`, and :data:`MOVE` for queued tasks that a balance pass moved). :func:`advance` stops
early where an output is full and is called again after the caller has made room, so a batch may
be split anywhere.

Sections in brackets are those of the kernel semantics.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana._jit import njit, step

__all__ = ["CPU", "GAP", "GLOBAL", "GROUP", "MOVE", "REPAIRS", "SEED", "SLICE", "TASK", "WAKE", "advance", "give_up"]

NULL = -(2**63)
PID_LIMIT = 4194304
#: A cause stamped later than its effect by no more than this is clock skew.
SKEW_MAX = 3000
#: Wakeups after which the shortest path onto a wakelist counts as learnt.
LEARN = 16
#: A task is off its queue but not yet switched out for no longer than this.
LEAVING_MAX = 20000

# Event kinds (schema.EventKind)
SWITCH, WAKING, WAKEUP, WAKEUP_NEW, MIGRATE, FORK, EXEC, EXIT, STAT, CPU_IDLE = range(10)
LOST, BEGIN = 19, 20

# Task states
UNKNOWN, RUNNING, QUEUED, ASLEEP, GONE = range(5)

# schema.WakeKind
(K_DECIDED, K_SELF, K_ON_RQ, K_ON_CPU, K_PINNED, K_DELAYED, K_DELAYED_MAYBE, K_OTHER, K_FORK, K_UNKNOWN) = range(10)

# What a wakeup still waits for before its kind is known
SURE, WAS_RUNNING, JUST_BLOCKED, MAYBE_DELAYED = range(4)

# schema.Quality
Q_CENSORED_START, Q_CENSORED_END, Q_LOSS, Q_STATE, Q_SKEW, Q_REPEATED = 1, 2, 4, 8, 16, 32
Q_NO_WAKING, Q_NO_WAKEUP, Q_REPAIRED, Q_FLIPS, Q_DUR = 64, 128, 256, 512, 1024

# schema.EndReason
E_SLEEP, E_BLOCK, E_PREEMPT, E_YIELD, E_DEAD, E_CUT = range(6)

S_PREEMPTED, S_DEAD = 0x100, 0x30

#: Names of the repair counters, in the order of ``GLOBAL.repairs`` (section 7.2).
REPAIRS = (
    "lost_wakeup",  # R1
    "moved_without_migrate",  # R2
    "lost_switch",  # R3
    "false_blocking",  # R4
    "false_running",  # R6
    "redundant_wakeup",  # R7
    "clock_skew",
    "wake_repeated",
    "pid_out_of_range",
    "ran_on_two_cpus",
)
R_LOST_WAKEUP, R_MOVED, R_LOST_SWITCH, R_FALSE_BLOCK, R_FALSE_RUN, R_REDUNDANT, R_SKEW, R_REPEATED, R_PID, R_TWO = range(10)

TASK = np.dtype(
    [
        ("pid", "i4"), ("gen", "i4"), ("cpu", "i4"), ("st", "i4"), ("prio", "i4"), ("pinned", "i4"),
        ("first_ts", "i8"), ("last_ts", "i8"), ("born", "i8"), ("died", "i8"),
        ("slice", "i8"), ("in_ts", "i8"), ("run_from", "i8"), ("out_ts", "i8"), ("blk_ts", "i8"), ("deq_ts", "i8"), ("wk", "i8"),
        # runtime since the last sample of dur_avg: by stat_runtime, maybe after the dequeue, by switches
        ("acc", "i8"), ("post", "i8"), ("stat_ts", "i8"), ("acc_sw", "i8"), ("acc_ok", "i4"),
        ("need", "i4"), ("dur", "i8"), ("samples", "i8"),
        ("undo_dur", "i8"), ("undo_acc", "i8"), ("undo_sw", "i8"), ("undo_ok", "i4"), ("undo_need", "i4"),
        ("flips", "i8"), ("flip_ts", "i8"), ("last_pid", "i4"), ("last_gen", "i4"),
        ("flip_need", "i4"), ("flips_seen", "i8"),
        ("rt", "i8"), ("rt_sw", "i8"), ("switches", "i8"), ("voluntary", "i8"), ("preempted", "i8"),
        ("wakeups", "i8"), ("orphan", "i4"), ("late", "i8"), ("held_first", "i8"), ("held_last", "i8"),
        # the run-queue delay as perf sched latency counts it
        ("p_st", "i4"), ("p_out", "i8"), ("p_wake", "i8"),
        ("delays", "i8"), ("delay_sum", "i8"), ("delay_max", "i8"), ("delay_max_at", "i8"),
    ]
)  # fmt: skip

CPU = np.dtype(
    [
        ("curr", "i4"), ("idle_task", "i4"), ("nr", "i4"), ("nwait", "i4"), ("llc", "i4"), ("pulled", "i4"),
        ("gap", "i8"), ("last_ts", "i8"), ("first_ts", "i8"), ("begin", "i8"), ("idle_seen", "i8"),
        ("vis", "i8"), ("events", "i8"), ("switches", "i8"),
        ("gap_llc", "i8"), ("gap_any", "i8"), ("gap_busy", "i8"),
        ("own_llc", "i8"), ("own_any", "i8"), ("waiting", "i4"), ("stuck", "i4"),
    ]
)  # fmt: skip

#: One per LLC, and a last one for the whole machine.
GROUP = np.dtype(
    [
        ("cpus_waiting", "i4"), ("cpus_stuck", "i4"), ("id_sum", "i8"), ("last_ts", "i8"),
        ("waited", "i8"), ("stuck", "i8"), ("idle", "i4"),
    ]
)  # fmt: skip

GLOBAL = np.dtype(
    [
        ("n_task", "i8"), ("n_slice", "i8"), ("n_wake", "i8"), ("n_gap", "i8"), ("n_move", "i8"),
        ("kver", "i8"), ("hz", "i8"), ("phase", "i8"), ("jiffies", "i8"),
        ("stat", "i4"), ("flush", "i8", (2,)), ("flushes", "i8", (2,)), ("have_waking", "i4"), ("leave", "i8"), ("eps", "i8"), ("eps_lo", "i8"),
        ("repairs", "i8", (16,)),
    ]
)  # fmt: skip

SLICE = np.dtype(
    [
        ("task", "i4"), ("cpu", "i4"), ("start", "i8"), ("end", "i8"), ("runtime", "i8"),
        ("dur", "i8"), ("reason", "u1"), ("state", "u2"),
    ]
)
GAP = np.dtype(
    [("cpu", "i4"), ("idle_state", "i4"), ("start", "i8"), ("end", "i8"), ("llc", "i8"), ("any", "i8"), ("busy", "i8"), ("by", "i8")]
)
MOVE = np.dtype([("ts", "i8"), ("task", "i4"), ("src", "i4"), ("dst", "i4"), ("at", "i4")])
WAKE = np.dtype(
    [
        ("waking", "i8"), ("wakeup", "i8"), ("run", "i8"), ("mig", "i8"), ("base", "i8"),
        ("wakee", "i4"), ("waker", "i4"), ("current", "i4"),
        ("this_cpu", "i4"), ("prev_cpu", "i4"), ("placed", "i4"), ("ran", "i4"),
        ("kind", "u1"), ("context", "u1"), ("queueing", "u1"), ("open", "u1"), ("waits", "u1"), ("counts", "u1"), ("held", "u1"), ("next", "i8"),
        ("latency", "i8"), ("delay", "i8"), ("wake_delay", "i8"),
        ("vis_lo", "i8"), ("vis_hi", "i8"),
        ("wakee_dur", "i8"), ("waker_dur", "i8"), ("wakee_flips", "i8"), ("waker_flips", "i8"),
        ("nr_placed", "i4"), ("nr_this", "i4"), ("idle_llc", "i4"),
        ("prev_idle", "i1"), ("placed_idle", "i1"), ("quality", "u2"),
    ]
)  # fmt: skip
#: Start state per pid; ``acc`` is sum_exec_runtime - prev_sleep_sum.
SEED = np.dtype([("pid", "i4"), ("last_pid", "i4"), ("dur", "i8"), ("flips", "i8"), ("flip_ts", "i8"), ("has", "i4")])


@step
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
    t["slice"] = -1
    t["in_ts"] = NULL
    t["run_from"] = NULL
    t["out_ts"] = NULL
    t["blk_ts"] = NULL
    t["deq_ts"] = NULL
    t["wk"] = -1
    t["acc"] = 0
    t["post"] = 0
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


@njit
def task_of(T: Any, C: Any, G: Any, pid: int, cpu: int, ts: int, pid_map: Any, seeds: Any, seed_of: Any) -> int:
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


@step
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


@step
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


@step
def idle_now(C: Any, c: int) -> int:
    """1 idle, 0 busy, -1 not known."""
    if c < 0 or c >= C.shape[0] or C[c]["curr"] < 0:
        return -1
    return 1 if C[c]["curr"] == C[c]["idle_task"] and C[c]["nr"] == 0 else 0


@step
def dequeue(T: Any, C: Any, Q: Any, i: int, ts: int) -> None:
    """Take a queued task off its CPU's queue."""
    c = T[i]["cpu"]
    if c >= 0:
        C[c]["nr"] -= 1
        C[c]["nwait"] -= 1
        settle(C, Q, c, ts)


@step
def enqueue(T: Any, C: Any, Q: Any, i: int, c: int, ts: int) -> None:
    """Queue a task that was not queued."""
    T[i]["st"] = QUEUED
    T[i]["cpu"] = c
    if c >= 0:
        C[c]["nr"] += 1
        C[c]["nwait"] += 1
        settle(C, Q, c, ts)


@step
def open_gap(C: Any, Q: Any, P: Any, G: Any, c: int, start: int, ts: int) -> None:
    """The idle task became current on ``c`` (``start`` NULL: before the window)."""
    i = G[0]["n_gap"]
    G[0]["n_gap"] = i + 1
    p = P[i]
    p["cpu"] = c
    p["idle_state"] = -1
    p["start"] = start
    p["end"] = NULL
    p["llc"] = 0
    p["any"] = 0
    p["busy"] = 0
    p["by"] = -1
    k = C[c]
    integrate(Q, C, k["llc"], ts, True)
    integrate(Q, C, Q.shape[0] - 1, ts, False)
    k["gap"] = i
    k["gap_llc"] = Q[k["llc"]]["waited"] - k["own_llc"]
    k["gap_any"] = Q[Q.shape[0] - 1]["waited"] - k["own_any"]
    k["gap_busy"] = Q[k["llc"]]["stuck"]
    Q[k["llc"]]["idle"] += 1


@njit
def close_gap(C: Any, Q: Any, P: Any, c: int, end: int, ts: int, by: int) -> None:
    """The idle task of ``c`` stopped being current (``end`` NULL: not seen)."""
    k = C[c]
    i = k["gap"]
    if i < 0:
        return
    integrate(Q, C, k["llc"], ts, True)
    integrate(Q, C, Q.shape[0] - 1, ts, False)
    p = P[i]
    p["end"] = end
    p["by"] = by
    p["llc"] = Q[k["llc"]]["waited"] - k["own_llc"] - k["gap_llc"]
    p["any"] = Q[Q.shape[0] - 1]["waited"] - k["own_any"] - k["gap_any"]
    p["busy"] = Q[k["llc"]]["stuck"] - k["gap_busy"]
    k["gap"] = -1
    k["idle_seen"] = ts
    Q[k["llc"]]["idle"] -= 1


@step
def open_slice(T: Any, L: Any, G: Any, i: int, c: int, start: int) -> None:
    j = G[0]["n_slice"]
    G[0]["n_slice"] = j + 1
    s = L[j]
    s["task"] = i
    s["cpu"] = c
    s["start"] = start
    s["end"] = NULL
    s["runtime"] = 0
    # dur_avg changes only when the task blocks, so this holds for the whole slice.
    s["dur"] = T[i]["dur"] if T[i]["need"] == 0 else NULL
    s["reason"] = E_CUT
    s["state"] = 65535
    T[i]["slice"] = j
    T[i]["in_ts"] = start
    T[i]["run_from"] = start
    T[i]["st"] = RUNNING
    T[i]["cpu"] = c


@step
def drop_current(T: Any, C: Any, Q: Any, P: Any, c: int, ts: int) -> None:
    """Close whoever we believed to run on ``c``: a switch is missing (R3)."""
    k = C[c]
    i = k["curr"]
    if i < 0:
        return
    if i == k["idle_task"]:
        close_gap(C, Q, P, c, NULL, ts, -1)
    else:
        t = T[i]
        if t["st"] == RUNNING and t["cpu"] == c:
            t["st"] = UNKNOWN
            t["slice"] = -1
            t["acc_ok"] = 0
            t["need"] = max(t["need"], 8)
            k["nr"] -= 1
    k["curr"] = -1
    settle(C, Q, c, ts)


@njit
def take_current(T: Any, C: Any, Q: Any, P: Any, L: Any, G: Any, c: int, i: int, ts: int) -> None:
    """Learn from an event who runs on ``c`` (since an unknown time)."""
    k = C[c]
    if i < 0 or k["curr"] == i:
        return
    if k["curr"] >= 0:
        G[0]["repairs"][R_LOST_SWITCH] += 1
        drop_current(T, C, Q, P, c, ts)
    if i == k["idle_task"]:
        k["curr"] = i
        open_gap(C, Q, P, G, c, NULL, ts)
    else:
        leave_place(T, C, Q, P, G, i, c, ts)
        open_slice(T, L, G, i, c, NULL)
        k["curr"] = i
        k["nr"] += 1
    settle(C, Q, c, ts)


@step
def leave_place(T: Any, C: Any, Q: Any, P: Any, G: Any, i: int, c: int, ts: int) -> None:
    """Before a task runs on ``c``: take it from where we believed it (R2)."""
    t = T[i]
    if t["st"] == QUEUED:
        if t["cpu"] != c:
            G[0]["repairs"][R_MOVED] += 1
        dequeue(T, C, Q, i, ts)
    elif t["st"] == RUNNING and t["cpu"] >= 0 and C[t["cpu"]]["curr"] == i:
        G[0]["repairs"][R_TWO] += 1
        drop_current(T, C, Q, P, t["cpu"], ts)


@step
def jiffies_at(G: Any, ts: int) -> int:
    """Tick count at ``ts`` (section 2.1): floor((ts - phase) * HZ / 1e9)."""
    g = G[0]
    d = ts - g["phase"]
    # Seconds apart, so that the product stays far inside 64 bits.
    s = d // 1000000000
    return g["jiffies"] + s * g["hz"] + ((d - s * 1000000000) * g["hz"]) // 1000000000


@step
def record_wakee(T: Any, G: Any, w: int, p: int, ts: int) -> None:
    """record_wakee() of the kernel, on ``current``, for a decided wakeup (section 2.1)."""
    j = jiffies_at(G, ts)
    t = T[w]
    if t["flip_ts"] == NULL:
        t["flip_ts"] = j
    if j > t["flip_ts"] + G[0]["hz"]:
        t["flips"] >>= 1
        t["flip_ts"] = j
        if t["flip_need"] > 0:
            t["flip_need"] -= 1
    pid, gen = T[p]["pid"], T[p]["gen"]
    if t["last_pid"] != pid or t["last_gen"] != gen:
        if t["last_pid"] != -2:
            t["flips_seen"] += 1
        t["last_pid"] = pid
        t["last_gen"] = gen
        t["flips"] += 1


@step
def apply_wake(T: Any, G: Any, W: Any, r: int) -> None:
    """record_wakee where it is due, and the waker's flips as the decision then saw them."""
    w = W[r]
    cur, p = w["current"], w["wakee"]
    if w["kind"] == K_DECIDED and p >= 0:
        record_wakee(T, G, cur, p, w["waking"] if w["waking"] != NULL else T[p]["last_ts"])
    if T[cur]["flip_need"] == 0:
        w["waker_flips"] = T[cur]["flips"]
    else:
        w["quality"] |= Q_FLIPS


@step
def hold(T: Any, W: Any, r: int, waits: int) -> None:
    """The kind of wakeup ``r`` is not known yet: its waker's later ones have to wait for it."""
    w = W[r]
    w["waits"] = waits
    cur = w["current"]
    if cur >= 0:
        append_held(T, W, cur, r)


@step
def append_held(T: Any, W: Any, cur: int, r: int) -> None:
    t = T[cur]
    W[r]["held"] = 1
    W[r]["next"] = -1
    if t["held_last"] >= 0:
        W[t["held_last"]]["next"] = r
    else:
        t["held_first"] = r
    t["held_last"] = r


@step
def decide_kind(T: Any, G: Any, W: Any, r: int, kind: int) -> None:
    """The kind of wakeup ``r`` is now known; flips change in the order of the waker's wakings."""
    w = W[r]
    w["kind"] = kind
    w["waits"] = SURE
    cur, p = w["current"], w["wakee"]
    if p >= 0:
        if T[p]["need"] == 0:
            w["wakee_dur"] = T[p]["dur"]
        if T[p]["flip_need"] == 0:
            w["wakee_flips"] = T[p]["flips"]
    if w["wakee_flips"] == NULL:
        w["quality"] |= Q_FLIPS
    if w["waker_dur"] == NULL or w["wakee_dur"] == NULL:
        w["quality"] |= Q_DUR
    if cur < 0:
        w["quality"] |= Q_FLIPS
        return
    t = T[cur]
    if t["held_first"] < 0:
        apply_wake(T, G, W, r)
        return
    if w["held"] == 0:
        append_held(T, W, cur, r)
    r = t["held_first"]
    while r >= 0 and W[r]["waits"] == SURE:
        apply_wake(T, G, W, r)
        r = W[r]["next"]
    t["held_first"] = r
    if r < 0:
        t["held_last"] = -1


@njit
def give_up(T: Any, G: Any, W: Any) -> None:
    """At the window's end: wakeups whose kind never became known."""
    for r in range(G[0]["n_wake"]):
        if W[r]["waits"] != SURE:
            decide_kind(T, G, W, r, K_UNKNOWN)


@step
def never_decided(T: Any, G: Any, W: Any, r: int, nr: int, ts: int) -> bool:
    """Whether a wakee that was queued remotely at home went onto the wakelist of a CPU that was
    still switching away from it (step 6 of section 1.1: kind on_cpu).

    The look falls between the wakee's dequeue and the end of the switch. The wakee is then queued
    as soon as its CPU enters the idle loop (or, with ``nr`` other tasks there, takes the
    interrupt), a fixed short path behind the switch record; a wakeup that was decided first
    arrives clearly later. Both records are of one CPU, so their clocks agree; the short path is
    learnt as the smallest distance seen.
    """
    w = W[r]
    t = T[w["wakee"]]
    if t["blk_ts"] == NULL or w["waking"] - t["blk_ts"] > G[0]["eps"]:
        return False
    if t["deq_ts"] != NULL and w["waking"] - t["deq_ts"] < G[0]["eps_lo"]:
        return False
    d = ts - t["blk_ts"]
    least = G[0]["flush"]
    # Another task took over the CPU: the wakelist is flushed by the interrupt, and later.
    form = 1 if nr > 0 else 0
    if d > 0 and (least[form] == 0 or d < least[form]):
        least[form] = d
    G[0]["flushes"][form] += 1
    if d * 5 > least[form] * 7:
        return False
    if G[0]["flushes"][form] > LEARN:
        return True
    # Not learnt yet: the kinds cross at +0.2 us behind the switch record and, before it, at
    # +0.15 us behind the dequeue (7.8-1, 7.8-2).
    return w["waking"] - t["blk_ts"] < 200 and (t["deq_ts"] == NULL or w["waking"] - t["deq_ts"] > 150)


@step
def new_wake(W: Any, G: Any, p: int) -> int:
    r = G[0]["n_wake"]
    G[0]["n_wake"] = r + 1
    w = W[r]
    w["waking"] = NULL
    w["wakeup"] = NULL
    w["run"] = NULL
    w["mig"] = NULL
    w["base"] = NULL
    w["wakee"] = p
    w["waker"] = -1
    w["current"] = -1
    w["this_cpu"] = -1
    w["prev_cpu"] = -1
    w["placed"] = -1
    w["ran"] = -1
    w["kind"] = K_UNKNOWN
    w["context"] = 4
    w["queueing"] = 2
    w["open"] = 1
    w["waits"] = SURE
    w["counts"] = 1
    w["held"] = 0
    w["next"] = -1
    w["latency"] = NULL
    w["delay"] = NULL
    w["wake_delay"] = NULL
    w["vis_lo"] = NULL
    w["vis_hi"] = NULL
    w["wakee_dur"] = NULL
    w["waker_dur"] = NULL
    w["wakee_flips"] = NULL
    w["waker_flips"] = NULL
    w["nr_placed"] = -1
    w["nr_this"] = -1
    w["idle_llc"] = -1
    w["prev_idle"] = -1
    w["placed_idle"] = -1
    w["quality"] = 0
    return r


@step
def sample(T: Any, G: Any, i: int) -> None:
    """update_avg() at a blocking dequeue (section 3.1): avg += (s - avg) / 8, towards zero."""
    t = T[i]
    t["undo_dur"] = t["dur"]
    t["undo_acc"] = t["acc"]
    t["undo_sw"] = t["acc_sw"]
    t["undo_ok"] = t["acc_ok"]
    t["undo_need"] = t["need"]
    if t["acc_ok"] == 1 and t["prio"] >= 100:
        s = t["acc"] if G[0]["stat"] == 1 else t["acc_sw"]
        d = s - t["dur"]
        t["dur"] += d // 8 if d >= 0 else -((-d) // 8)
        t["samples"] += 1
        if t["need"] > 0:
            t["need"] -= 1
    t["acc"] = t["post"]
    t["post"] = 0
    t["acc_sw"] = 0
    t["acc_ok"] = 1


@step
def undo_sample(T: Any, i: int) -> None:
    """The block was none (R4): take the sample back."""
    t = T[i]
    if t["undo_ok"] == 1 and t["prio"] >= 100:
        t["samples"] -= 1
    t["acc"] += t["undo_acc"]
    t["acc_sw"] += t["undo_sw"]
    t["dur"] = t["undo_dur"]
    t["acc_ok"] = t["undo_ok"]
    t["need"] = t["undo_need"]


@step
def switch_out(T: Any, C: Any, Q: Any, L: Any, W: Any, G: Any, c: int, i: int, state: int, ts: int) -> None:
    """The task ``i`` leaves CPU ``c`` with ``state`` (schema.State bits)."""
    t = T[i]
    t["switches"] += 1
    t["out_ts"] = ts
    s = t["slice"]
    reason = E_YIELD
    if state & S_PREEMPTED:
        reason = E_PREEMPT
    elif state & S_DEAD:
        reason = E_DEAD
    elif state & 0x2:
        reason = E_BLOCK
    elif state != 0:
        reason = E_SLEEP
    if s >= 0:
        L[s]["end"] = ts
        L[s]["reason"] = reason
        L[s]["state"] = state
        if t["in_ts"] != NULL:
            d = ts - t["in_ts"]
            if d > 0:
                t["rt_sw"] += d
            if ts > t["run_from"]:
                t["acc_sw"] += ts - t["run_from"]
    t["slice"] = -1
    blocking = reason == E_SLEEP or reason == E_BLOCK or reason == E_DEAD
    r = t["wk"]
    kver = G[0]["kver"]
    if not blocking and state == 0 and 5008 <= kver < 5018 and r >= 0 and W[r]["waits"] == WAS_RUNNING:
        if ts - W[r]["waking"] <= 2000:
            # The state was read again at the tracepoint, after a remote waker had set WAKING (R6).
            blocking = True
            G[0]["repairs"][R_FALSE_RUN] += 1
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
            decide_kind(T, G, W, r, K_ON_RQ)
            close_wake(T, W, r)
    # The delay as perf sched latency counts it.
    t["p_st"] = 2 if state == 0 else 1
    t["p_out"] = ts
    t["p_wake"] = ts


@step
def close_wake(T: Any, W: Any, r: int) -> None:
    W[r]["open"] = 0
    p = W[r]["wakee"]
    if p >= 0 and T[p]["wk"] == r:
        T[p]["wk"] = -1


@step
def finish_wake(T: Any, W: Any, G: Any, i: int, r: int, c: int, ts: int) -> None:
    """The wakee of wakeup ``r`` runs: both latencies are known."""
    t = T[i]
    w = W[r]
    if w["waits"] != SURE:
        # No sched_wakeup was seen; the wakee blocked and was woken all the same.
        was_running = w["waits"] == WAS_RUNNING and t["st"] == RUNNING
        decide_kind(T, G, W, r, K_ON_RQ if was_running else K_DECIDED)
    w["run"] = ts
    w["ran"] = c
    if w["wakeup"] == NULL:
        w["quality"] |= Q_NO_WAKEUP
    if w["counts"] == 1:
        if w["wakeup"] != NULL:
            d = ts - w["wakeup"]
            if d < 0:
                d = 0
                w["quality"] |= Q_SKEW
            w["delay"] = d
        if w["waking"] != NULL:
            base = w["waking"]
            if t["blk_ts"] != NULL and t["blk_ts"] > base:
                base = t["blk_ts"]
            w["base"] = base
            d = ts - base
            if d < 0:
                d = 0
                w["quality"] |= Q_SKEW
            w["latency"] = d
        if w["quality"] & Q_SKEW:
            G[0]["repairs"][R_SKEW] += 1
    close_wake(T, W, r)


@step
def switch_in(T: Any, C: Any, Q: Any, P: Any, L: Any, W: Any, G: Any, c: int, i: int, ts: int) -> int:
    """The task ``i`` starts on CPU ``c``; returns the wakeup that brought it there, or -1."""
    t = T[i]
    r = t["wk"]
    came = -1
    asleep = t["st"] == ASLEEP or t["st"] == UNKNOWN
    if t["st"] == ASLEEP and r < 0 and t["blk_ts"] != NULL:
        if 5018 <= G[0]["kver"] < 6016:
            # A pending signal called the sleep off after its state had been sampled (R4).
            G[0]["repairs"][R_FALSE_BLOCK] += 1
            undo_sample(T, i)
            t["voluntary"] -= 1
        else:
            G[0]["repairs"][R_LOST_WAKEUP] += 1
    leave_place(T, C, Q, P, G, i, c, ts)
    if r >= 0:
        finish_wake(T, W, G, i, r, c, ts)
        came = r
    t["orphan"] = 1 if came < 0 and asleep else 0
    t["late"] = came if came >= 0 and W[came]["wakeup"] == NULL else -1
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
    open_slice(T, L, G, i, c, ts)
    if came >= 0 and C[c]["gap"] >= 0 and W[came]["wakeup"] != NULL and ts - W[came]["wakeup"] < LEAVING_MAX:
        # __schedule() of an idle CPU that is to reschedule does not renew the queue's clock: the
        # task's time starts at its enqueue (rq_clock_skip_update() in check_preempt_curr()).
        t["run_from"] = min(W[came]["wakeup"] + G[0]["leave"], ts)
    C[c]["nr"] += 1
    return came


@step
def on_waking(T: Any, C: Any, Q: Any, W: Any, G: Any, c: int, cur: int, p: int, prev: int, ctx: int, ts: int) -> None:
    """sched_waking on CPU ``c``: open a wakeup and say what is known of its kind (section 1.5)."""
    t = T[p]
    old = t["wk"]
    repeated = 0
    if old >= 0:
        if W[old]["waits"] == WAS_RUNNING:
            decide_kind(T, G, W, old, K_ON_RQ)
        else:
            repeated = Q_REPEATED
            G[0]["repairs"][R_REPEATED] += 1
            if W[old]["waits"] != SURE:
                decide_kind(T, G, W, old, K_DECIDED)
            W[old]["quality"] |= Q_REPEATED
        close_wake(T, W, old)
    r = new_wake(W, G, p)
    w = W[r]
    t["wk"] = r
    w["quality"] |= repeated
    w["waking"] = ts
    w["this_cpu"] = c
    w["prev_cpu"] = prev
    w["current"] = cur
    if cur >= 0 and T[cur]["need"] == 0:
        w["waker_dur"] = T[cur]["dur"]
    external = ctx != 255 and (ctx & 7) != 0
    if ctx == 255:
        w["context"] = 4
        w["waker"] = cur
    elif ctx & 4:
        w["context"] = 3
    elif ctx & 1:
        w["context"] = 1
    elif ctx & 2:
        w["context"] = 2
    else:
        w["context"] = 0
        # The idle task only flushes its own wakelist: it wakes nobody by itself.
        if cur >= 0 and T[cur]["pid"] != 0:
            w["waker"] = cur
    if c >= 0:
        if C[c]["curr"] >= 0:
            w["nr_this"] = C[c]["nr"]
        C[c]["vis"] = r
    w["prev_idle"] = idle_now(C, prev)
    if prev >= 0 and prev < C.shape[0]:
        w["idle_llc"] = Q[C[prev]["llc"]]["idle"]
    w["vis_lo"] = ts
    if t["st"] == RUNNING and t["orphan"] == 1 and t["in_ts"] != NULL and ts - t["in_ts"] <= SKEW_MAX and cur != p:
        # Stamped after the switch-in that it caused (section 7 of the formats, rule 2).
        t["orphan"] = 0
        t["late"] = r
        w["quality"] |= Q_SKEW
        decide_kind(T, G, W, r, K_DECIDED)
        w["run"] = t["in_ts"]
        w["ran"] = t["cpu"]
        w["latency"] = 0
        G[0]["repairs"][R_SKEW] += 1
        close_wake(T, W, r)
    elif not external and cur == p:
        w["counts"] = 0
        decide_kind(T, G, W, r, K_SELF)
    elif t["prio"] != -32768 and t["prio"] < 100:
        decide_kind(T, G, W, r, K_OTHER)
    elif t["st"] == QUEUED:
        w["counts"] = 0
        decide_kind(T, G, W, r, K_ON_RQ)
    elif t["pinned"] == 1:
        decide_kind(T, G, W, r, K_PINNED)
    elif t["st"] == RUNNING:
        hold(T, W, r, WAS_RUNNING)
    elif t["st"] == UNKNOWN or t["st"] == GONE:
        w["quality"] |= Q_STATE
        t["st"] = ASLEEP
        t["cpu"] = prev
        # First seen asleep: what it runs from here on is a whole sample.
        t["acc"] = 0
        t["post"] = 0
        t["acc_sw"] = 0
        t["acc_ok"] = 1
        decide_kind(T, G, W, r, K_DECIDED)
    elif t["blk_ts"] != NULL and ts - t["blk_ts"] < G[0]["eps"]:
        hold(T, W, r, JUST_BLOCKED)
    elif (
        G[0]["kver"] >= 6012
        and t["blk_ts"] != NULL
        and prev >= 0
        and prev < C.shape[0]
        and C[prev]["gap"] < 0
        and C[prev]["idle_seen"] < t["blk_ts"]
    ):
        hold(T, W, r, MAYBE_DELAYED)
    else:
        decide_kind(T, G, W, r, K_DECIDED)


@step
def on_wakeup(T: Any, C: Any, Q: Any, W: Any, G: Any, c: int, cur: int, p: int, target: int, ctx: int, ts: int) -> None:
    """sched_wakeup: the wakee is queued on ``target``; the last word on the wakeup's kind."""
    t = T[p]
    t["wakeups"] += 1
    r = t["wk"]
    if r >= 0 and W[r]["wakeup"] != NULL:
        # Its waking was not recorded and the one before has not run yet.
        r = -1
    if r < 0:
        if t["st"] == RUNNING and t["late"] >= 0 and t["in_ts"] != NULL and ts - t["in_ts"] <= SKEW_MAX:
            w = W[t["late"]]
            t["late"] = -1
            w["wakeup"] = ts
            w["placed"] = target
            w["delay"] = 0
            w["queueing"] = 0 if c == w["this_cpu"] else (1 if c == target else 2)
            w["wake_delay"] = max(ts - w["waking"], 0)
            w["quality"] = (w["quality"] | Q_SKEW) & ~Q_NO_WAKEUP
            G[0]["repairs"][R_SKEW] += 1
            return
        if t["st"] == RUNNING or t["st"] == QUEUED:
            G[0]["repairs"][R_REDUNDANT] += 1
            return
        r = new_wake(W, G, p)
        if t["wk"] >= 0:
            close_wake(T, W, t["wk"])
        t["wk"] = r
        w = W[r]
        kind = K_UNKNOWN
        w["quality"] |= Q_NO_WAKING
        if t["st"] == UNKNOWN:
            w["quality"] |= Q_STATE
        w["prev_cpu"] = t["cpu"]
        if ctx != 255 and (ctx & 7) == 0 and cur >= 0 and T[cur]["pid"] != 0:
            # Recorded by a task: only a waker that enqueued the wakee itself does that.
            w["waker"] = cur
            w["current"] = cur
            w["this_cpu"] = c
            w["context"] = 0
            w["queueing"] = 0
            # With wakings recorded this one only lacks its waking: it began before the window.
            kind = K_UNKNOWN if G[0]["have_waking"] == 1 else K_DECIDED
        elif c != target and ctx != 255 and (ctx & 7) != 0:
            w["current"] = cur
            w["this_cpu"] = c
            w["context"] = 3 if ctx & 4 else (1 if ctx & 1 else 2)
            w["queueing"] = 0
        if t["prio"] != -32768 and t["prio"] < 100:
            kind = K_OTHER
        elif t["pinned"] == 1:
            kind = K_PINNED
        if w["current"] >= 0 and T[w["current"]]["need"] == 0:
            w["waker_dur"] = T[w["current"]]["dur"]
        decide_kind(T, G, W, r, kind)
    w = W[r]
    w["wakeup"] = ts
    w["placed"] = target
    if w["waking"] != NULL:
        w["queueing"] = 0 if c == w["this_cpu"] else (1 if c == target else 2)
        d = ts - w["waking"]
        w["wake_delay"] = d if d > 0 else 0
        if w["vis_hi"] == NULL or w["vis_hi"] > ts or w["queueing"] == 0:
            w["vis_hi"] = ts
        remote_home = w["queueing"] == 1 and target == w["prev_cpu"] and w["mig"] == NULL
        if w["waits"] == WAS_RUNNING:
            if t["st"] == RUNNING or t["st"] == QUEUED:
                w["counts"] = 0
                decide_kind(T, G, W, r, K_ON_RQ)
            else:
                on_cpu = remote_home and never_decided(T, G, W, r, C[target]["nr"], ts)
                decide_kind(T, G, W, r, K_ON_CPU if on_cpu else K_DECIDED)
        elif w["waits"] == JUST_BLOCKED:
            on_cpu = remote_home and never_decided(T, G, W, r, C[target]["nr"], ts)
            decide_kind(T, G, W, r, K_ON_CPU if on_cpu else K_DECIDED)
        elif w["waits"] == MAYBE_DELAYED:
            home = w["queueing"] == 0 and target == w["prev_cpu"] and w["mig"] == NULL
            decide_kind(T, G, W, r, K_DELAYED_MAYBE if home else K_DECIDED)
    if target >= 0 and target < C.shape[0]:
        w["placed_idle"] = idle_now(C, target)
        if C[target]["curr"] >= 0:
            w["nr_placed"] = C[target]["nr"]
    if t["st"] == RUNNING or t["st"] == QUEUED:
        close_wake(T, W, r)
        return
    enqueue(T, C, Q, p, target, ts)
    if t["p_st"] == 0:
        t["p_st"] = 1
        t["p_out"] = ts
    if t["p_st"] == 1 and t["p_out"] <= ts:
        t["p_st"] = 2
        t["p_wake"] = ts


@step
def on_loss(T: Any, C: Any, Q: Any, P: Any, W: Any, G: Any, c: int, ts: int) -> None:
    """Events of ``c`` are missing: who ran or queued there is not known any more (section 7.7)."""
    drop_current(T, C, Q, P, c, ts)
    for i in range(G[0]["n_task"]):
        t = T[i]
        if t["cpu"] != c or t["pid"] == 0:
            continue
        r = t["wk"]
        if t["st"] == QUEUED:
            dequeue(T, C, Q, i, ts)
        if r >= 0:
            W[r]["quality"] |= Q_LOSS
            if W[r]["waits"] != SURE:
                decide_kind(T, G, W, r, K_UNKNOWN)
            close_wake(T, W, r)
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
    C[c]["vis"] = -1
    settle(C, Q, c, ts)


@step
def on_fork(T: Any, G: Any, parent: int, child_pid: int, ts: int, pid_map: Any, seeds: Any, seed_of: Any) -> int:
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


@njit
def advance(
    start: int,
    ev_ts: Any, ev_cpu: Any, ev_kind: Any, ev_pid: Any, ev_ctx: Any, ev_subject: Any, ev_prio: Any,
    ev_state: Any, ev_other: Any, ev_oprio: Any, ev_to: Any, ev_from: Any, ev_value: Any,
    T: Any, C: Any, Q: Any, G: Any, L: Any, W: Any, P: Any, M: Any,
    pid_map: Any, seeds: Any, seed_of: Any, pin_pid: Any,
) -> int:  # fmt: skip
    """Feed events from index ``start``; returns the index reached (less than n: make room).

    Events are the arrays of EventColumns; state and outputs the structured arrays of this module.
    ``pin_pid`` (uint8 by pid) marks per-CPU kernel threads by name.
    """
    n = ev_ts.shape[0]
    g = G[0]
    for e in range(start, n):
        if (
            g["n_task"] + 4 > T.shape[0]
            or g["n_slice"] + 4 > L.shape[0]
            or g["n_wake"] + 4 > W.shape[0]
            or g["n_gap"] + 4 > P.shape[0]
            or g["n_move"] + 2 > M.shape[0]
        ):
            return e
        ts = ev_ts[e]
        c = ev_cpu[e]
        kind = ev_kind[e]
        pid = ev_pid[e]
        if c >= 0:
            k = C[c]
            if kind == LOST:
                on_loss(T, C, Q, P, W, G, c, ts)
                continue
            if kind == BEGIN:
                k["begin"] = ts
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
                k["vis"] = -1
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
                without_cpu(T, L, W, G, p, i, ev_state[e], ts)
                continue
            C[c]["switches"] += 1
            take_current(T, C, Q, P, L, G, c, p, ts)
            was_idle = p >= 0 and p == C[c]["idle_task"]
            if p >= 0 and not was_idle:
                switch_out(T, C, Q, L, W, G, c, p, ev_state[e], ts)
            C[c]["curr"] = -1
            C[c]["pulled"] = 0
            came = -1
            if i >= 0 and i != C[c]["idle_task"]:
                came = switch_in(T, C, Q, P, L, W, G, c, i, ts)
            if was_idle:
                close_gap(C, Q, P, c, ts, ts, came)
            C[c]["curr"] = i
            if i >= 0 and i == C[c]["idle_task"]:
                open_gap(C, Q, P, G, c, ts, ts)
            settle(C, Q, c, ts)
            continue
        if pid >= 0:
            cur = task_of(T, C, G, pid, c, ts, pid_map, seeds, seed_of)
            if c >= 0:
                take_current(T, C, Q, P, L, G, c, cur, ts)
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
                    t["stat_ts"] = ts
                elif t["stat_ts"] == NULL or ts - t["stat_ts"] > LEAVING_MAX:
                    t["acc"] += t["post"] + v
                    t["post"] = 0
                else:
                    # Reported by another CPU that took a task off this queue, or after a pull:
                    # if the task has blocked by now, it belongs to its next sample (7.8-4).
                    t["post"] += v
                if t["slice"] >= 0:
                    L[t["slice"]]["runtime"] += v
                if t["p_st"] == 0:
                    t["p_st"] = 2
                    t["p_wake"] = ts
        elif kind == WAKING:
            p = task_of(T, C, G, subject, -1, ts, pid_map, seeds, seed_of)
            if p >= 0:
                if ev_prio[e] != -32768:
                    T[p]["prio"] = ev_prio[e]
                if pin_pid[subject] == 1:
                    T[p]["pinned"] = 1
                g["have_waking"] = 1
                on_waking(T, C, Q, W, G, c, cur, p, ev_to[e], ev_ctx[e], ts)
        elif kind == WAKEUP:
            p = task_of(T, C, G, subject, -1, ts, pid_map, seeds, seed_of)
            if p >= 0:
                if ev_prio[e] != -32768:
                    T[p]["prio"] = ev_prio[e]
                if pin_pid[subject] == 1:
                    T[p]["pinned"] = 1
                on_wakeup(T, C, Q, W, G, c, cur, p, ev_to[e], ev_ctx[e], ts)
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
                if r >= 0 and W[r]["wakeup"] == NULL and W[r]["this_cpu"] == c and t["st"] != QUEUED:
                    W[r]["mig"] = ts
                    W[r]["placed"] = dst
                    W[r]["vis_lo"] = ts
                    if W[r]["waits"] != SURE and t["st"] == ASLEEP:
                        decide_kind(T, G, W, r, K_DECIDED)
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
                    if c == dst and c >= 0 and pid > 0 and ev_ctx[e] != 255 and (ev_ctx[e] & 7) == 0:
                        # Pulled by schedule() of the task that just blocked: what it runs from
                        # here on belongs to its next sample (section 7.8-4).
                        C[c]["pulled"] = 1
                elif t["st"] == ASLEEP:
                    t["cpu"] = dst
        elif kind == FORK:
            on_fork(T, G, task_of(T, C, G, ev_other[e], c, ts, pid_map, seeds, seed_of), subject, ts, pid_map, seeds, seed_of)
        elif kind == EXIT:
            p = task_of(T, C, G, subject, -1, ts, pid_map, seeds, seed_of)
            if p >= 0:
                T[p]["died"] = ts
        elif kind == CPU_IDLE:
            d = ev_to[e]
            if d >= 0 and d < C.shape[0] and C[d]["gap"] >= 0 and ev_value[e] != 4294967295:
                if ev_value[e] > P[C[d]["gap"]]["idle_state"] and ev_value[e] < 1000:
                    P[C[d]["gap"]]["idle_state"] = ev_value[e]
    return n


@step
def without_cpu(T: Any, L: Any, W: Any, G: Any, p: int, i: int, state: int, ts: int) -> None:
    """A switch of a form that shows no CPU: what it says of the two tasks (case C24)."""
    if p >= 0 and T[p]["pid"] > 0:
        t = T[p]
        t["switches"] += 1
        if t["slice"] >= 0:
            L[t["slice"]]["end"] = ts
            L[t["slice"]]["state"] = state
            L[t["slice"]]["reason"] = E_PREEMPT if state & S_PREEMPTED else (E_YIELD if state == 0 else E_SLEEP)
            if t["in_ts"] != NULL and ts > t["in_ts"]:
                t["rt_sw"] += ts - t["in_ts"]
        t["slice"] = -1
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
            finish_wake(T, W, G, i, T[i]["wk"], -1, ts)
        open_slice(T, L, G, i, -1, ts)
