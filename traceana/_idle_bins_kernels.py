"""One sweep over the changes of a machine: who idles, who waits, and what one has to do with it.

:func:`sweep` merges wakeups, slices, idle gaps, moves and the begins of extra delays by time. What
is to come of a row (a gap's end, a wakeup's place in a queue) waits in a heap. Between two changes
nothing changes, so the bins of the idle CPUs are set when time moves on, and only those of touched
CPUs while nobody is stuck. Arrays as in ``_idle_bins_state``; what the bins mean is in
``idle_bins``.
"""

from __future__ import annotations

from typing import Any

from traceana._idle_bins_pair_kernels import account, pair_up, place_alone
from traceana._idle_bins_state import (
    ASLEEP,
    BOOKED,
    DECIDED,
    FAR,
    GAP_ENDS,
    NULL,
    PREEMPTED,
    QUEUED,
    RUNNING,
    UNKNOWN,
    WAITING,
    WAKING,
    WOKEN,
)
from traceana._jit import inlined, njit, step

__all__ = ["links", "open_until", "sweep"]

# schema.WakeKind, EndReason
_K_DECIDED, _K_SELF, _K_ON_RQ = 0, 1, 2
_E_SLEEP, _E_BLOCK, _E_PREEMPT, _E_YIELD, _E_DEAD, _E_CUT = range(6)


@njit
def links(wakee: Any, kind: Any, following: Any, head: Any) -> None:
    """Per wakeup, the next one of the same task that was off its queue; per task, its first.

    ``wakee`` int32[n], ``kind`` uint8[n] in; ``following`` int32[n], ``head`` int32[tasks], -1, out.
    """
    for r in range(wakee.shape[0] - 1, -1, -1):
        i = wakee[r]
        following[r] = head[i]
        if kind[r] != _K_SELF and kind[r] != _K_ON_RQ:
            head[i] = r


@njit
def open_until(
    waking: Any, booked: Any, cpu: Any, g_cpu: Any, g_start: Any, g_end: Any, last: Any, first: Any,
    following: Any, out: Any,
) -> None:  # fmt: skip
    """Until when each idle gap had no booking: the first one's visible_lo, or its end.

    Wakeups in order (int64[n] ``waking``, ``booked``; int32 ``cpu``), gaps in order of their start;
    ``last`` and ``first`` int32[cpus], -1; ``following`` int32[gaps]; ``out`` int64[gaps].
    """
    for g in range(g_cpu.shape[0]):
        c = g_cpu[g]
        out[g] = g_end[g]
        following[g] = -1
        if last[c] >= 0:
            following[last[c]] = g
        else:
            first[c] = g
        last[c] = g
    for r in range(waking.shape[0]):
        c, at = cpu[r], booked[r]
        if c < 0 or c >= first.shape[0] or at == NULL:
            continue
        g = first[c]
        early = waking[r] if waking[r] != NULL else at
        while g >= 0 and g_end[g] <= early:
            g = following[g]
        # A wakeup may be booked a little later than the next one of its CPU.
        if g >= 0:
            first[c] = g
        while g >= 0 and g_start[g] <= at:
            if g_end[g] > at and out[g] > at:
                out[g] = at
            g = following[g]


@inlined
def _push(H: Any, G: Any, ts: int, order: int, what: int, row: int) -> None:
    i = G[0]["heap"]
    if i >= H.shape[0]:
        return  # rows that contradict each other
    G[0]["heap"] = i + 1
    while i > 0:
        up = (i - 1) >> 1
        if H[up]["ts"] < ts or (H[up]["ts"] == ts and H[up]["order"] <= order):
            break
        H[i] = H[up]
        i = up
    H[i]["ts"] = ts
    H[i]["order"] = order
    H[i]["what"] = what
    H[i]["row"] = row


@inlined
def _pop(H: Any, G: Any) -> None:
    n = G[0]["heap"] - 1
    G[0]["heap"] = n
    ts, order = H[n]["ts"], H[n]["order"]
    i = 0
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        other = down + 1
        if other < n and (
            H[other]["ts"] < H[down]["ts"]
            or (H[other]["ts"] == H[down]["ts"] and H[other]["order"] < H[down]["order"])
        ):
            down = other
        if ts < H[down]["ts"] or (ts == H[down]["ts"] and order <= H[down]["order"]):
            break
        H[i] = H[down]
        i = down
    H[i] = H[n]


@inlined
def _touch(C: Any, G: Any, touched: Any, c: int) -> None:
    if C[c]["touched"] == 0:
        C[c]["touched"] = 1
        touched[G[0]["touched"]] = c
        G[0]["touched"] += 1


@inlined
def _integrate(L: Any, llc: int, ts: int) -> None:
    """Bring an LLC's integrals up to ``ts``."""
    q = L[llc]
    d = ts - q["since"]
    if d > 0:
        q["since"] = ts
        q["idle_ns"] += d * q["idle"]
        q["waiting_ns"] += d * q["waiting"]
        q["stuck_ns"] += d * q["stuck"]
        if q["idle"] > 0 and q["stuck"] > 0:
            q["both_ns"] += d
            q["gap_ns"] += d * min(q["idle"], q["stuck"])


@inlined
def _count(C: Any, L: Any, G: Any, c: int, waiting: int, stuck: int, ts: int) -> None:
    llc = C[c]["llc"]
    _integrate(L, llc, ts)
    C[c]["waiting"] += waiting
    L[llc]["waiting"] += waiting
    L[llc]["stuck"] += stuck
    G[0]["waiting"] += waiting
    G[0]["stuck"] += stuck


@inlined
def _start_wait(
    T: Any, C: Any, L: Any, G: Any, waiters: Any, touched: Any, i: int, c: int, how: int, ts: int
) -> None:
    """The task ``i`` is on the queue of ``c``; waiters stand in the order of (since, task)."""
    t = T[i]
    t["st"] = WAITING
    t["since"] = ts
    t["cpu"] = c
    t["how"] = how
    t["held"] = 0
    t["phase"] = 0
    n = G[0]["listed"]
    while n > 0 and T[waiters[n - 1]]["since"] == ts and waiters[n - 1] > i:
        waiters[n] = waiters[n - 1]
        n -= 1
    waiters[n] = i
    G[0]["listed"] += 1
    _stand(T, C, L, G, touched, i, c, ts)


@inlined
def _stand(T: Any, C: Any, L: Any, G: Any, touched: Any, i: int, c: int, ts: int) -> None:
    """A waiter on an idle CPU is on its way, unless that takes too long for it, or cannot be."""
    stuck = 1
    if C[c]["idle"] == 1:
        if T[i]["how"] == PREEMPTED or C[c]["end"] - ts > G[0]["long_ns"]:
            T[i]["held"] = 1
        else:
            stuck = 0
    C[c]["held"] += T[i]["held"]
    _count(C, L, G, c, 1, stuck, ts)
    _touch(C, G, touched, c)


@inlined
def _leave(T: Any, C: Any, L: Any, G: Any, touched: Any, held: Any, i: int, ts: int) -> None:
    """Undo :func:`_stand`."""
    c = T[i]["cpu"]
    stuck = 0 if C[c]["idle"] == 1 and T[i]["held"] == 0 else 1
    if T[i]["held"] == 1:
        C[c]["held"] -= 1
        n = G[0]["held"]
        if n < held.shape[0]:
            held[n]["start"] = T[i]["since"]
            held[n]["end"] = ts
            held[n]["task"] = i
            held[n]["cpu"] = c
        G[0]["held"] = n + 1
        T[i]["held"] = 0
    _count(C, L, G, c, -1, -stuck, ts)
    _touch(C, G, touched, c)


@inlined
def _end_wait(
    T: Any, C: Any, L: Any, G: Any, waiters: Any, touched: Any, held: Any, i: int, ts: int
) -> None:
    _leave(T, C, L, G, touched, held, i, ts)
    if T[i]["phase"] > 0:
        G[0]["victims"] -= 1
        T[i]["phase"] = 0
    n = G[0]["listed"]
    at = 0
    while waiters[at] != i:
        at += 1
    for k in range(at, n - 1):
        waiters[k] = waiters[k + 1]
    G[0]["listed"] = n - 1
    T[i]["st"] = UNKNOWN


@step
def _drop(
    T: Any, C: Any, L: Any, G: Any, waiters: Any, touched: Any, held: Any, c: int, ts: int
) -> None:
    """After a loss on ``c`` it is not known who still stands there."""
    k = 0
    while k < G[0]["listed"]:
        i = waiters[k]
        if T[i]["cpu"] == c and T[i]["how"] == PREEMPTED:
            _end_wait(T, C, L, G, waiters, touched, held, i, ts)
        else:
            k += 1


@inlined
def _unbook(T: Any, C: Any, G: Any, touched: Any, i: int) -> None:
    if T[i]["booked"] == 1:
        c = T[i]["cpu"]
        C[c]["booked"] -= 1
        _touch(C, G, touched, c)
    T[i]["booked"] = 0


@inlined
def _book(T: Any, C: Any, G: Any, touched: Any, i: int) -> None:
    """Others may see now that the task comes to its CPU; one that still runs, when it is off."""
    T[i]["booked"] = 2
    if T[i]["st"] != RUNNING:
        T[i]["booked"] = 1
        c = T[i]["cpu"]
        C[c]["booked"] += 1
        _touch(C, G, touched, c)


@inlined
def _close_slice(
    T: Any, C: Any, L: Any, G: Any, waiters: Any, touched: Any, held: Any, c: int, ts: int
) -> None:
    """Whoever ran on ``c`` does not any more."""
    if C[c]["runs"] == 0:
        return
    C[c]["runs"] = 0
    i = C[c]["task"]
    reason = C[c]["reason"]
    G[0]["moved"] = 1
    if T[i]["st"] != RUNNING or T[i]["last_cpu"] != c:
        C[c]["task"] = -1
        return
    T[i]["last_end"] = ts
    if reason == _E_PREEMPT or reason == _E_YIELD:
        _start_wait(T, C, L, G, waiters, touched, i, c, PREEMPTED, ts)
    elif reason == _E_SLEEP or reason == _E_BLOCK:
        T[i]["st"] = WAKING if T[i]["row"] >= 0 else ASLEEP
        if T[i]["booked"] == 2:
            _book(T, C, G, touched, i)
    else:
        T[i]["st"] = UNKNOWN
        C[c]["task"] = -1
        if reason == _E_CUT:
            _drop(T, C, L, G, waiters, touched, held, c, ts)


@step
def _move(
    T: Any, C: Any, L: Any, G: Any, touched: Any, held: Any, i: int, to: int, ts: int
) -> None:
    """A waiting task is pulled onto another queue: cold, by set_task_cpu()."""
    if T[i]["st"] == WAITING and 0 <= to < C.shape[0] and to != T[i]["cpu"]:
        _leave(T, C, L, G, touched, held, i, ts)
        T[i]["cpu"] = to
        T[i]["last_end"] = NULL
        _stand(T, C, L, G, touched, i, to, ts)


@step
def _suffer(
    T: Any, C: Any, L: Any, G: Any, waiters: Any, touched: Any,
    i: int, r: int, c: int, phase: int, victim: int, run: int, ts: int,
) -> None:  # fmt: skip
    """The extra delay of a victim begins."""
    if T[i]["row"] != r:
        return
    if T[i]["st"] == WAKING:
        # Booked, and not yet taken from the wakelist; it is kept waiting already.
        _unbook(T, C, G, touched, i)
        _start_wait(T, C, L, G, waiters, touched, i, c, DECIDED, ts)
    if T[i]["st"] == WAITING:
        if T[i]["phase"] == 0:
            G[0]["victims"] += 1
        G[0]["moved"] = 1
        if phase > T[i]["phase"]:
            T[i]["phase"] = phase
            T[i]["victim"] = victim
            T[i]["victim_from"] = ts
            T[i]["victim_to"] = run


@inlined
def _open_slice(
    T: Any, C: Any, L: Any, G: Any, waiters: Any, touched: Any, held: Any,
    c: int, i: int, reason: int, ts: int,
) -> None:  # fmt: skip
    if c >= 0:
        _close_slice(T, C, L, G, waiters, touched, held, c, ts)
    if T[i]["st"] == WAITING:
        _end_wait(T, C, L, G, waiters, touched, held, i, ts)
    _unbook(T, C, G, touched, i)
    G[0]["moved"] = 1
    T[i]["row"] = -1
    if c < 0:
        T[i]["st"] = UNKNOWN
        return
    T[i]["st"] = RUNNING
    T[i]["last_cpu"] = c
    C[c]["runs"] = 1
    C[c]["task"] = i
    C[c]["reason"] = reason


@inlined
def _open_gap(
    T: Any, C: Any, L: Any, G: Any, waiters: Any, idlers: Any, touched: Any, held: Any, H: Any,
    g: int, c: int, start: int, end: int, free: int, cut: int,
) -> None:  # fmt: skip
    if end > start:
        _ask_for_pull(T, C, L, G, waiters, c, start)
        k = C[c]
        _count(C, L, G, c, 0, k["held"] - k["waiting"], start)
        L[k["llc"]]["idle"] += 1
        k["idle"] = 1
        k["gap"] = g
        k["start"] = start
        k["end"] = end
        k["open"] = free
        k["bin"] = -1
        k["since"] = start
        k["z"] = G[0]["z"]
        if k["runs"] == 0:
            k["task"] = -1
        n = G[0]["idle"]
        while n > 0 and idlers[n - 1] > c:
            idlers[n] = idlers[n - 1]
            n -= 1
        idlers[n] = c
        G[0]["idle"] += 1
        if k["waiting"] > k["held"] and end - start > G[0]["long_ns"]:
            for at in range(G[0]["listed"]):
                i = waiters[at]
                if T[i]["cpu"] == c and T[i]["held"] == 0:
                    T[i]["held"] = 1
                    k["held"] += 1
                    _count(C, L, G, c, 0, 1, start)
        _push(H, G, end, -1, GAP_ENDS, g)
        _touch(C, G, touched, c)
    _close_slice(T, C, L, G, waiters, touched, held, c, start)
    if cut == 1:
        _drop(T, C, L, G, waiters, touched, held, c, start)


@inlined
def _ask_for_pull(T: Any, C: Any, L: Any, G: Any, waiters: Any, c: int, ts: int) -> None:
    """Whether a newidle balance could have filled this gap, and whether only with hot tasks."""
    if L[C[c]["llc"]]["stuck"] == 0:
        return
    some = 0
    cold = 0
    for at in range(G[0]["listed"]):
        i = waiters[at]
        on = T[i]["cpu"]
        if on == c or C[on]["llc"] != C[c]["llc"] or T[i]["pinned"] == 1 or T[i]["since"] >= ts:
            continue
        if C[on]["idle"] == 1:
            continue
        some = 1
        if (
            T[i]["last_cpu"] != on
            or T[i]["last_end"] == NULL
            or ts - T[i]["last_end"] >= G[0]["cost_ns"]
            or C[on]["core"] == C[c]["core"]
        ):
            cold = 1
            break
    G[0]["pull"] += some
    if some == 1 and cold == 0:
        G[0]["pull_hot"] += 1


@inlined
def _close_gap(C: Any, L: Any, G: Any, idlers: Any, ns: Any, c: int, ts: int) -> None:
    account(C, G, ns, c, ts)
    k = C[c]
    k["bin"] = -1
    _count(C, L, G, c, 0, k["waiting"] - k["held"], ts)
    L[k["llc"]]["idle"] -= 1
    k["idle"] = 0
    k["task"] = -1
    n = G[0]["idle"]
    at = 0
    while idlers[at] != c:
        at += 1
    for j in range(at, n - 1):
        idlers[j] = idlers[j + 1]
    G[0]["idle"] = n - 1


@inlined
def _settle(
    T: Any, C: Any, L: Any, G: Any, waiters: Any, queue: Any, idlers: Any, touched: Any, ns: Any,
    context: Any, waker: Any, upper: Any, lower: Any, hops: Any,
) -> None:  # fmt: skip
    """Set the bins of the idle CPUs as things stand."""
    G[0]["upper"] = 0
    G[0]["lower"] = 0
    G[0]["chains"] = 0
    if G[0]["stuck"] == 0 and G[0]["before"] == 0:
        for k in range(G[0]["touched"]):
            c = touched[k]
            C[c]["touched"] = 0
            if C[c]["idle"] == 1:
                new = place_alone(T, C, context, c)
                if C[c]["bin"] != new:
                    account(C, G, ns, c, G[0]["now"])
                    C[c]["bin"] = new
    else:
        for k in range(G[0]["touched"]):
            C[touched[k]]["touched"] = 0
        if G[0]["idle"] > 0:
            pair_up(T, C, L, G, waiters, queue, idlers, ns, context, waker, upper, lower, hops)
    G[0]["touched"] = 0
    G[0]["moved"] = 0
    G[0]["before"] = G[0]["stuck"]


@njit
def sweep(
    upto: int,
    w_key: Any, w_booked: Any, w_queued: Any, w_wakee: Any, w_waker: Any, w_cpu: Any, w_kind: Any,
    w_context: Any, w_stays: Any, w_run: Any, following: Any,
    s_key: Any, s_task: Any, s_cpu: Any, s_reason: Any,
    g_cpu: Any, g_start: Any, g_end: Any, g_free: Any, g_cut: Any,
    v_ts: Any, v_row: Any, v_phase: Any, v_victim: Any,
    m_ts: Any, m_task: Any, m_to: Any,
    T: Any, C: Any, L: Any, G: Any, H: Any, waiters: Any, queue: Any, idlers: Any, touched: Any,
    held: Any, ns: Any, upper: Any, lower: Any, hops: Any, upper_ns: Any, lower_ns: Any,
) -> None:  # fmt: skip
    """Bring the bins up to ``upto``, or to the end of all rows.

    Rows are arrays in the order of their key: wakeups (int64 ``w_key``, ``w_booked`` when others may
    see it, ``w_queued`` when its wakee is runnable, NULL: never; ``w_stays`` uint8: whether it waits
    from then on), slices, gaps, victims (``v_phase`` int8: what the wakee of a row is from then on),
    moves. ``ns`` int64[cpus, bins], ``upper_ns``, ``lower_ns`` int64[victims] and ``hops``
    int32[victims] are added to.
    """
    g = G[0]
    n_w, n_s, n_g = w_key.shape[0], s_key.shape[0], g_cpu.shape[0]
    n_v, n_m = v_ts.shape[0], m_ts.shape[0]
    n_cpu = C.shape[0]
    while True:
        ts = FAR
        what = -1
        if g["heap"] > 0:
            ts = H[0]["ts"]
            what = 0
        if g["v"] < n_v and v_ts[g["v"]] < ts:
            ts = v_ts[g["v"]]
            what = 1
        if g["m"] < n_m and m_ts[g["m"]] < ts:
            ts = m_ts[g["m"]]
            what = 2
        if g["w"] < n_w and w_key[g["w"]] < ts:
            ts = w_key[g["w"]]
            what = 3
        if g["s"] < n_s and s_key[g["s"]] < ts:
            ts = s_key[g["s"]]
            what = 4
        if g["g"] < n_g and g_start[g["g"]] < ts:
            ts = g_start[g["g"]]
            what = 5
        if what < 0 or ts > upto:
            return
        now = g["now"]
        if ts > now:
            if g["touched"] > 0 or g["moved"] == 1:
                _settle(
                    T,
                    C,
                    L,
                    G,
                    waiters,
                    queue,
                    idlers,
                    touched,
                    ns,
                    w_context,
                    w_waker,
                    upper,
                    lower,
                    hops,
                )
            for k in range(g["upper"]):
                upper_ns[upper[k]] += ts - now
            for k in range(g["lower"]):
                lower_ns[lower[k]] += ts - now
            if g["waiting"] == 0:
                g["z"] += ts - now
            g["now"] = ts
        else:
            ts = now  # a change that is told late
        if what == 0:
            what = H[0]["what"]
            r = H[0]["row"]
            _pop(H, G)
            if what == GAP_ENDS:
                c = g_cpu[r]
                if C[c]["idle"] == 1 and C[c]["gap"] == r:
                    _close_gap(C, L, G, idlers, ns, c, ts)
            elif what == BOOKED:
                i = w_wakee[r]
                if T[i]["row"] == r and T[i]["booked"] == 0 and T[i]["st"] != WAITING:
                    T[i]["cpu"] = w_cpu[r]
                    _book(T, C, G, touched, i)
            else:
                i = w_wakee[r]
                if T[i]["row"] == r and T[i]["st"] != RUNNING and T[i]["st"] != WAITING:
                    _unbook(T, C, G, touched, i)
                    how = DECIDED if w_kind[r] == _K_DECIDED else WOKEN
                    _start_wait(T, C, L, G, waiters, touched, i, w_cpu[r], how, ts)
        elif what == 1:
            k = g["v"]
            g["v"] = k + 1
            r = v_row[k]
            if w_stays[r] == 1:
                _suffer(
                    T, C, L, G, waiters, touched,
                    w_wakee[r], r, w_cpu[r], v_phase[k], v_victim[k], w_run[r], ts,
                )  # fmt: skip
        elif what == 2:
            _move(T, C, L, G, touched, held, m_task[g["m"]], m_to[g["m"]], ts)
            g["m"] += 1
        elif what == 3:
            r = g["w"]
            g["w"] = r + 1
            if w_kind[r] != _K_SELF and w_kind[r] != _K_ON_RQ:
                i = w_wakee[r]
                t = T[i]
                t["head"] = following[r]
                g["moved"] |= g["chains"]  # it may have been a link of one
                if t["st"] != WAITING:
                    _unbook(T, C, G, touched, i)
                    t["row"] = r
                    if t["st"] == ASLEEP or t["st"] == UNKNOWN:
                        t["st"] = WAKING
                    c = t["last_cpu"]
                    if c >= 0 and C[c]["idle"] == 1 and C[c]["task"] == i:
                        _touch(C, G, touched, c)
                    c = w_cpu[r]
                    if w_stays[r] == 1 and 0 <= c < n_cpu:
                        if w_booked[r] != NULL and w_booked[r] < w_queued[r]:
                            _push(H, G, max(w_booked[r], ts), 2 * r, BOOKED, r)
                        _push(H, G, max(w_queued[r], ts), 2 * r + 1, QUEUED, r)
        elif what == 4:
            r = g["s"]
            g["s"] = r + 1
            c = s_cpu[r]
            if c < n_cpu:
                _open_slice(T, C, L, G, waiters, touched, held, c, s_task[r], s_reason[r], ts)
        else:
            r = g["g"]
            g["g"] = r + 1
            if C[g_cpu[r]]["idle"] == 1 and g_end[r] > g_start[r]:
                _close_gap(C, L, G, idlers, ns, g_cpu[r], ts)
            _open_gap(
                T, C, L, G, waiters, idlers, touched, held, H,
                r, g_cpu[r], g_start[r], g_end[r], g_free[r], g_cut[r],
            )  # fmt: skip
