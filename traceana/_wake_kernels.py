"""Wakeups: their kinds, what their decision saw, dur_avg, wakee_flips, both latencies.

Parts of the state machine in ``_timeline_kernels``; arrays as in ``_timeline_state``. Sections in
brackets are those of the kernel semantics.
"""

from __future__ import annotations

from typing import Any

from traceana._place_kernels import (
    dequeue,
    enqueue,
    idle_now,
)
from traceana._timeline_state import (
    ASLEEP,
    GONE,
    JUST_BLOCKED,
    K_DECIDED,
    K_DELAYED_MAYBE,
    K_ON_CPU,
    K_ON_RQ,
    K_OTHER,
    K_PINNED,
    K_SELF,
    K_UNKNOWN,
    LEARN,
    MAYBE_BLOCKED,
    MAYBE_DELAYED,
    NULL,
    Q_CENSORED_END,
    Q_DUR,
    Q_FLIPS,
    Q_NO_WAKEUP,
    Q_NO_WAKING,
    Q_REPEATED,
    Q_SKEW,
    Q_STATE,
    QUEUED,
    R_FALSE_BLOCK,
    R_FALSE_RUN,
    R_REDUNDANT,
    R_REPEATED,
    R_SKEW,
    RUNNING,
    SKEW_MAX,
    SURE,
    SYNC_WINDOW,
    UNKNOWN,
    WAS_RUNNING,
)
from traceana._timeline_types import part, part_for_python

__all__ = [
    "append_held",
    "apply_wake",
    "await_block",
    "close_wake",
    "decide_kind",
    "edge_between",
    "expect_late",
    "finish_wake",
    "give_up",
    "hold",
    "index_edges",
    "jiffies_at",
    "never_decided",
    "new_wake",
    "on_wakeup",
    "on_waking",
    "record_wakee",
    "retire",
    "sample",
    "settle_edges",
    "undo_sample",
    "watch",
]


@part
def jiffies_at(G: Any, ts: int) -> int:
    """Tick count at ``ts`` (section 2.1): floor((ts - phase) * HZ / 1e9)."""
    g = G[0]
    d = ts - g["phase"]
    # Seconds apart, so that the product stays far inside 64 bits.
    s = d // 1000000000
    return g["jiffies"] + s * g["hz"] + ((d - s * 1000000000) * g["hz"]) // 1000000000


@part
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


@part
def retire(W: Any, outW: Any, G: Any, r: int) -> None:
    """Copy a wakeup that nothing can change any more to the output, and free its slot."""
    w = W[r]
    if w["open"] == 1 or w["held"] == 1 or w["vis"] == 1 or w["late"] == 1 or w["used"] == 0:
        return
    g = G[0]
    outW[g["out_wake"]] = w
    g["out_wake"] += 1
    w["used"] = 0
    w["next"] = g["w_free"]
    g["w_free"] = r
    g["w_live"] -= 1


@part
def watch(C: Any, W: Any, outW: Any, G: Any, c: int, r: int) -> None:
    """The next event of ``c`` bounds when wakeup ``r`` (-1: none) was visible; forget the last."""
    before = C[c]["vis"]
    C[c]["vis"] = r
    if r >= 0:
        W[r]["vis"] = 1
    if before >= 0 and before != r:
        W[before]["vis"] = 0
        retire(W, outW, G, before)


@part
def expect_late(T: Any, W: Any, outW: Any, G: Any, i: int, r: int) -> None:
    """The sched_wakeup of ``r`` (-1: none) may be stamped after the switch-in of its wakee ``i``."""
    before = T[i]["late"]
    T[i]["late"] = r
    if r >= 0:
        W[r]["late"] = 1
    if before >= 0 and before != r:
        W[before]["late"] = 0
        retire(W, outW, G, before)


@part
def edge_between(E: Any, edge_of: Any, G: Any, waker: int, wakee: int) -> int:
    """Number of the edge; a new one where the two have not met."""
    mask = edge_of.shape[0] - 1
    h = (int(waker) * 2654435761 + int(wakee) * 40503) & mask
    while edge_of[h] > 0:
        e = edge_of[h] - 1
        if E[e]["waker"] == waker and E[e]["wakee"] == wakee:
            return e
        h = (h + 1) & mask
    e = G[0]["n_edge"]
    G[0]["n_edge"] = e + 1
    edge_of[h] = e + 1
    E[e]["waker"] = waker
    E[e]["wakee"] = wakee
    E[e]["n"] = 0
    E[e]["soon"] = 0
    return e


@part_for_python
def index_edges(E: Any, edge_of: Any, G: Any) -> None:
    """Fill a larger (empty) index with the edges that there are."""
    mask = edge_of.shape[0] - 1
    for e in range(G[0]["n_edge"]):
        h = (int(E[e]["waker"]) * 2654435761 + int(E[e]["wakee"]) * 40503) & mask
        while edge_of[h] > 0:
            h = (h + 1) & mask
        edge_of[h] = e + 1


@part
def await_block(T: Any, S: Any, G: Any, i: int, edge: int, limit: int, ts: int) -> None:
    """Remember a waking until its waker blocks, or so long that the flag is ruled out (7.5)."""
    t = T[i]
    g = G[0]
    while t["pend_first"] >= 0 and ts - S[t["pend_first"]]["ts"] > SYNC_WINDOW:
        stale = t["pend_first"]
        t["pend_first"] = S[stale]["next"]
        S[stale]["next"] = g["p_free"]
        g["p_free"] = stale
    s = g["p_free"]
    if s >= 0:
        g["p_free"] = S[s]["next"]
    else:
        s = g["p_top"]
        g["p_top"] = s + 1
    S[s]["ts"] = ts
    S[s]["limit"] = limit
    S[s]["edge"] = edge
    S[s]["next"] = -1
    if t["pend_first"] < 0:
        t["pend_first"] = s
    else:
        S[t["pend_last"]]["next"] = s
    t["pend_last"] = s


@part
def settle_edges(T: Any, E: Any, S: Any, G: Any, i: int, ts: int) -> None:
    """The waker ``i`` blocks: which of its wakings that followed soon."""
    t = T[i]
    s = t["pend_first"]
    while s >= 0:
        d = ts - S[s]["ts"]
        if 0 <= d <= S[s]["limit"]:
            E[S[s]["edge"]]["soon"] += 1
        after = S[s]["next"]
        S[s]["next"] = G[0]["p_free"]
        G[0]["p_free"] = s
        s = after
    t["pend_first"] = -1


@part
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


@part
def append_held(T: Any, W: Any, cur: int, r: int) -> None:
    """Put a wakeup into its waker's chain of those whose kinds are settled in their order."""
    t = T[cur]
    W[r]["held"] = 1
    W[r]["next"] = -1
    if t["held_last"] >= 0:
        W[t["held_last"]]["next"] = r
    else:
        t["held_first"] = r
    t["held_last"] = r


@part
def hold(T: Any, W: Any, r: int, waits: int) -> None:
    """The kind of wakeup ``r`` is not known yet: its waker's later ones have to wait for it."""
    w = W[r]
    w["waits"] = waits
    cur = w["current"]
    if cur >= 0:
        append_held(T, W, cur, r)


@part
def decide_kind(T: Any, G: Any, W: Any, outW: Any, r: int, kind: int) -> None:
    """The kind of wakeup ``r`` is now known; flips change in the order of the waker's wakings."""
    w = W[r]
    cur, p = w["current"], w["wakee"]
    if kind == K_DECIDED and p >= 0 and T[p]["pinned"] == 1:
        kind = K_PINNED
    w["kind"] = kind
    w["waits"] = SURE
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
        after = W[r]["next"]
        W[r]["held"] = 2
        retire(W, outW, G, r)
        r = after
    t["held_first"] = r
    if r < 0:
        t["held_last"] = -1


@part_for_python
def give_up(T: Any, G: Any, W: Any, outW: Any) -> None:
    """At the window's end: kinds that never became known, and what is still in its slot."""
    for r in range(G[0]["w_top"]):
        if W[r]["used"] == 1:
            if W[r]["open"] == 1:
                W[r]["quality"] |= Q_CENSORED_END
            if W[r]["waits"] != SURE:
                decide_kind(T, G, W, outW, r, K_UNKNOWN)
    for r in range(G[0]["w_top"]):
        w = W[r]
        if w["used"] == 1:
            w["open"] = 0
            w["vis"] = 0
            w["late"] = 0
            w["held"] = 0
            retire(W, outW, G, r)


@part
def never_decided(T: Any, C: Any, G: Any, W: Any, r: int, cpu: int, ts: int) -> bool:
    """Whether a wakee that was queued remotely at home went onto the wakelist of a CPU that was
    still switching away from it (step 6 of section 1.1: kind on_cpu).

    The look falls between the wakee's dequeue and the end of the switch. The wakee is then queued
    as soon as its CPU enters the idle loop (or, where another task goes on, takes the interrupt), a
    fixed short path behind the switch record; a wakeup that was decided first arrives clearly
    later. Both records are of one CPU, so their clocks agree; the short path is learnt as the
    smallest distance of those that surely were so.
    """
    w = W[r]
    t = T[w["wakee"]]
    if t["blk_ts"] == NULL or w["waking"] - t["blk_ts"] > G[0]["eps"]:
        return False
    # Without sched_stat_runtime: the dequeue is up to 0.9 us before the switch record (7.8-2).
    dequeued = t["deq_ts"] if t["deq_ts"] != NULL else t["blk_ts"] - 900
    if w["waking"] - dequeued < G[0]["eps_lo"]:
        return False
    d = ts - t["blk_ts"]
    least = G[0]["flush"]
    # The kinds cross at +0.2 us behind the switch record and, before it, at +0.15 us behind the
    # dequeue (7.8-1, 7.8-2).
    likely = w["waking"] - t["blk_ts"] < 200 and (
        t["deq_ts"] == NULL or w["waking"] - t["deq_ts"] > 150
    )
    # Another task took over the CPU: the wakelist is flushed by the interrupt, and later.
    form = 1 if C[cpu]["curr"] != C[cpu]["idle_task"] else 0
    if form == 0 and C[cpu]["nr"] > 0:
        # In the middle of a flush: its begin is that of the list's first. One that began on the
        # short path may have taken along a wakee decided elsewhere, which only its look tells.
        return likely and (C[cpu]["filled"] - t["blk_ts"]) * 5 <= least[0] * 7
    if likely:
        if d > 0 and (least[form] == 0 or d < least[form]):
            least[form] = d
        G[0]["flushes"][form] += 1
    if least[form] > 0 and d * 5 > least[form] * 7:
        return False
    if G[0]["flushes"][form] >= LEARN:
        return True
    return likely


@part
def new_wake(W: Any, G: Any, p: int) -> int:
    """A slot for a wakeup of task ``p``."""
    g = G[0]
    r = g["w_free"]
    if r >= 0:
        g["w_free"] = W[r]["next"]
    else:
        r = g["w_top"]
        g["w_top"] = r + 1
    g["w_live"] += 1
    w = W[r]
    w["used"] = 1
    w["id"] = g["n_wake"]
    g["n_wake"] += 1
    w["vis"] = 0
    w["late"] = 0
    w["edge"] = -1
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


@part
def sample(T: Any, G: Any, i: int) -> None:
    """update_avg() at a blocking dequeue (section 3.1): avg += (s - avg) / 8, towards zero."""
    t = T[i]
    t["undo_dur"] = t["dur"]
    t["undo_acc"] = t["acc"]
    t["undo_sw"] = t["acc_sw"]
    t["undo_ok"] = t["acc_ok"]
    t["undo_need"] = t["need"]
    if t["firm"] == 0:
        # Not one report of this burst is certainly from before the dequeue: they all are taken.
        t["acc"] += t["post"]
        t["post"] = 0
    if t["acc_ok"] == 1 and t["prio"] >= 100:
        s = t["acc"] if G[0]["stat"] == 1 else t["acc_sw"]
        d = s - t["dur"]
        t["dur"] += d // 8 if d >= 0 else -((-d) // 8)
        t["samples"] += 1
        if t["need"] > 0:
            t["need"] -= 1
    t["acc"] = t["post"]
    t["post"] = 0
    t["firm"] = 0
    t["acc_sw"] = 0
    t["acc_ok"] = 1


@part
def undo_sample(T: Any, i: int) -> None:
    """The block was none (R4): take the sample back."""
    t = T[i]
    t["redo_dur"] = t["dur"]
    t["redo_need"] = t["need"]
    if t["undo_ok"] == 1 and t["prio"] >= 100:
        t["samples"] -= 1
    t["firm"] = 1
    t["acc"] += t["undo_acc"]
    t["acc_sw"] += t["undo_sw"]
    t["dur"] = t["undo_dur"]
    t["acc_ok"] = t["undo_ok"]
    t["need"] = t["undo_need"]


@part
def false_running(T: Any, C: Any, Q: Any, W: Any, G: Any, i: int, r: int, c: int) -> bool:
    """R6 (5.8 to 5.17): the state was read again at the switch's tracepoint, after a remote waker
    had set WAKING, so that a block looks like R. The remote form of the wakeup tells; what was
    booked as a preemption at the switch-out becomes a block.
    """
    t = T[i]
    near = t["st"] == QUEUED and t["out_ts"] != NULL and abs(t["out_ts"] - W[r]["waking"]) <= 2000
    if not near or c == W[r]["this_cpu"] or G[0]["kver"] < 5008 or G[0]["kver"] >= 5018:
        return False
    G[0]["repairs"][R_FALSE_RUN] += 1
    dequeue(T, C, Q, i, t["out_ts"])
    t["st"] = ASLEEP
    t["blk_ts"] = t["out_ts"]
    t["deq_ts"] = t["stat_ts"]
    t["preempted"] -= 1
    t["voluntary"] += 1
    sample(T, G, i)
    return True


@part
def redo_sample(T: Any, G: Any, i: int) -> None:
    """The block was one after all: its waking came late."""
    t = T[i]
    if t["undo_ok"] == 1 and t["prio"] >= 100:
        t["samples"] += 1
    t["acc"] -= t["undo_acc"]
    t["acc_sw"] -= t["undo_sw"]
    t["dur"] = t["redo_dur"]
    t["need"] = t["redo_need"]
    t["acc_ok"] = 1
    t["voluntary"] += 1
    t["preempted"] -= 1
    t["called_off"] = 0
    G[0]["repairs"][R_FALSE_BLOCK] -= 1


@part
def close_wake(T: Any, W: Any, outW: Any, G: Any, r: int) -> None:
    """The wakeup is over: its wakee ran, or what came of it will not be known."""
    W[r]["open"] = 0
    p = W[r]["wakee"]
    if p >= 0 and T[p]["wk"] == r:
        T[p]["wk"] = -1
    retire(W, outW, G, r)


@part
def finish_wake(T: Any, W: Any, outW: Any, G: Any, i: int, r: int, c: int, ts: int) -> None:
    """The wakee of wakeup ``r`` runs: both latencies are known."""
    t = T[i]
    w = W[r]
    if w["waits"] != SURE:
        # No sched_wakeup was seen; the wakee blocked and was woken all the same.
        was_running = w["waits"] == WAS_RUNNING and t["st"] == RUNNING
        decide_kind(T, G, W, outW, r, K_ON_RQ if was_running else K_DECIDED)
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
    close_wake(T, W, outW, G, r)


@part
def on_waking(
    T: Any, C: Any, Q: Any, W: Any, outW: Any, E: Any, S: Any, edge_of: Any, G: Any,
    c: int, cur: int, p: int, prev: int, ctx: int, ts: int,
) -> None:  # fmt: skip
    """sched_waking on CPU ``c``: open a wakeup and say what is known of its kind (section 1.5)."""
    t = T[p]
    old = t["wk"]
    repeated = 0
    if old >= 0:
        if W[old]["waits"] == WAS_RUNNING:
            decide_kind(T, G, W, outW, old, K_ON_RQ)
        elif W[old]["counts"] == 1:
            repeated = Q_REPEATED
            G[0]["repairs"][R_REPEATED] += 1
            if W[old]["waits"] != SURE:
                decide_kind(T, G, W, outW, old, K_DECIDED)
            W[old]["quality"] |= Q_REPEATED
        close_wake(T, W, outW, G, old)
    r = new_wake(W, G, p)
    w = W[r]
    t["wk"] = r
    t["wakings"] += 1
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
            e = edge_between(E, edge_of, G, cur, p)
            E[e]["n"] += 1
            w["edge"] = e
            limit = SYNC_WINDOW
            if w["waker_dur"] > 0:
                limit = min(limit, 2 * w["waker_dur"])
            await_block(T, S, G, cur, e, limit, ts)
    if c >= 0:
        if C[c]["curr"] >= 0:
            w["nr_this"] = C[c]["nr"]
        watch(C, W, outW, G, c, r)
    w["prev_idle"] = idle_now(C, prev)
    if prev >= 0 and prev < C.shape[0]:
        w["idle_llc"] = Q[C[prev]["llc"]]["idle"]
    w["vis_lo"] = ts
    if (
        t["st"] == RUNNING
        and t["orphan"] == 1
        and t["in_ts"] != NULL
        and ts - t["in_ts"] <= SKEW_MAX
        and cur != p
    ):
        # Stamped after the switch-in that it caused (section 7 of the formats, rule 2).
        t["orphan"] = 0
        if t["called_off"] == 1:
            redo_sample(T, G, p)
        expect_late(T, W, outW, G, p, r)
        w["quality"] |= Q_SKEW
        decide_kind(T, G, W, outW, r, K_DECIDED)
        w["run"] = t["in_ts"]
        w["ran"] = t["cpu"]
        w["latency"] = 0
        G[0]["repairs"][R_SKEW] += 1
        close_wake(T, W, outW, G, r)
    elif not external and cur == p:
        w["counts"] = 0
        decide_kind(T, G, W, outW, r, K_SELF)
    elif t["prio"] != -32768 and t["prio"] < 100:
        decide_kind(T, G, W, outW, r, K_OTHER)
    elif t["st"] == QUEUED:
        w["counts"] = 0
        decide_kind(T, G, W, outW, r, K_ON_RQ)
    elif t["st"] == RUNNING:
        hold(T, W, r, WAS_RUNNING)
    elif t["pinned"] == 1:
        decide_kind(T, G, W, outW, r, K_PINNED)
    elif t["st"] == UNKNOWN or t["st"] == GONE:
        w["quality"] |= Q_STATE
        t["st"] = ASLEEP
        t["cpu"] = prev
        # First seen asleep: what it runs from here on is a whole sample.
        t["acc"] = 0
        t["post"] = 0
        t["acc_sw"] = 0
        t["acc_ok"] = 1
        decide_kind(T, G, W, outW, r, K_DECIDED)
    elif (
        G[0]["kver"] >= 6012
        and t["blk_ts"] != NULL
        and prev >= 0
        and prev < C.shape[0]
        and C[prev]["gap"] == 0
        and C[prev]["idle_seen"] < t["blk_ts"]
    ):
        hold(T, W, r, MAYBE_DELAYED)
    elif t["blk_ts"] != NULL and ts - t["blk_ts"] < G[0]["eps"]:
        hold(T, W, r, JUST_BLOCKED)
    else:
        decide_kind(T, G, W, outW, r, K_DECIDED)


@part
def on_wakeup(
    T: Any, C: Any, Q: Any, W: Any, outW: Any, G: Any,
    c: int, cur: int, p: int, target: int, ctx: int, ts: int,
) -> None:  # fmt: skip
    """sched_wakeup: the wakee is queued on ``target``; the last word on the wakeup's kind."""
    t = T[p]
    t["wakeups"] += 1
    r = t["wk"]
    if r >= 0 and W[r]["wakeup"] != NULL:
        # Its waking was not recorded and the one before has not run yet.
        r = -1
    if r < 0:
        if (
            t["st"] == RUNNING
            and t["late"] >= 0
            and t["in_ts"] != NULL
            and ts - t["in_ts"] <= SKEW_MAX
        ):
            w = W[t["late"]]
            w["wakeup"] = ts
            w["placed"] = target
            w["delay"] = 0
            w["queueing"] = 0 if c == w["this_cpu"] else (1 if c == target else 2)
            w["wake_delay"] = max(ts - w["waking"], 0)
            w["quality"] = (w["quality"] | Q_SKEW) & (0xFFFF ^ Q_NO_WAKEUP)
            G[0]["repairs"][R_SKEW] += 1
            expect_late(T, W, outW, G, p, -1)
            return
        if t["st"] == RUNNING or t["st"] == QUEUED:
            G[0]["repairs"][R_REDUNDANT] += 1
            return
        r = new_wake(W, G, p)
        if t["wk"] >= 0:
            close_wake(T, W, outW, G, t["wk"])
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
        decide_kind(T, G, W, outW, r, kind)
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
        near = w["waits"] == MAYBE_BLOCKED or (w["kind"] == K_ON_RQ and w["mig"] == NULL)
        if near and t["last_state"] == 0 and false_running(T, C, Q, W, G, p, r, c):
            w["counts"] = 1
            w["waits"] = WAS_RUNNING
        if w["waits"] == WAS_RUNNING or w["waits"] == MAYBE_BLOCKED:
            if t["st"] == RUNNING or t["st"] == QUEUED:
                w["counts"] = 0
                decide_kind(T, G, W, outW, r, K_ON_RQ)
            else:
                on_cpu = remote_home and never_decided(T, C, G, W, r, target, ts)
                decide_kind(T, G, W, outW, r, K_ON_CPU if on_cpu else K_DECIDED)
        elif w["waits"] == JUST_BLOCKED:
            on_cpu = remote_home and never_decided(T, C, G, W, r, target, ts)
            decide_kind(T, G, W, outW, r, K_ON_CPU if on_cpu else K_DECIDED)
        elif w["waits"] == MAYBE_DELAYED:
            home = w["queueing"] == 0 and target == w["prev_cpu"] and w["mig"] == NULL
            on_cpu = remote_home and never_decided(T, C, G, W, r, target, ts)
            decide_kind(
                T, G, W, outW, r, K_DELAYED_MAYBE if home else (K_ON_CPU if on_cpu else K_DECIDED)
            )
    if target >= 0 and target < C.shape[0]:
        w["placed_idle"] = idle_now(C, target)
        if C[target]["curr"] >= 0:
            here = (t["st"] == RUNNING or t["st"] == QUEUED) and t["cpu"] == target
            w["nr_placed"] = C[target]["nr"] - (1 if here else 0)
    if t["st"] == RUNNING or t["st"] == QUEUED:
        close_wake(T, W, outW, G, r)
        return
    if idle_now(C, target) == 1:
        C[target]["filled"] = ts
    enqueue(T, C, Q, p, target, ts)
    if t["p_st"] == 0:
        t["p_st"] = 1
        t["p_out"] = ts
    if t["p_st"] == 1 and t["p_out"] <= ts:
        t["p_st"] = 2
        t["p_wake"] = ts
