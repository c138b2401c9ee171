"""Which idle CPU stands for which waiting task, at one instant.

Each stuck task stands for one idle CPU at most: for the one whose own task sleeps until that task
wakes it, if there is one, else for any of its LLC. Arrays as in ``_idle_bins_state``.
"""

from __future__ import annotations

from typing import Any

from traceana._idle_bins_state import (
    ASLEEP,
    B_CHAIN,
    B_DOUBLE,
    B_HOT,
    B_IO,
    B_LATE,
    B_LEFT,
    B_NOBODY,
    B_ON_ITS_WAY,
    B_OTHER_LLC,
    B_PINNED,
    B_PLACED,
    B_REFUSED,
    B_SURPLUS,
    B_THROTTLED,
    B_TIMER,
    B_UNKNOWN,
    CERTAIN,
    DECIDED,
    LATE,
    MOST_HOPS,
    NULL,
    STRICT,
    WAITING,
)
from traceana._jit import inlined, step

__all__ = ["account", "pair_up", "place_alone"]

# schema.WakeContext, EndReason
_TASK, _HARDIRQ, _SOFTIRQ = 0, 1, 2
_E_BLOCK = 1


@inlined
def account(C: Any, G: Any, ns: Any, c: int, ts: int) -> None:
    """Book the time since the last change of a CPU's bin."""
    k = C[c]
    b = k["bin"]
    if b == B_LEFT:
        alone = G[0]["z"] - k["z"]
        ns[c, B_NOBODY] += alone
        ns[c, B_SURPLUS] += ts - k["since"] - alone
    elif b >= 0:
        ns[c, b] += ts - k["since"]
    elif ts > k["since"]:
        ns[c, B_UNKNOWN] += ts - k["since"]
    k["since"] = ts
    k["z"] = G[0]["z"]


@inlined
def _coming(C: Any, c: int) -> bool:
    """Whether somebody is on the way onto the idle CPU ``c``."""
    return C[c]["booked"] > 0 or C[c]["waiting"] > C[c]["held"]


@inlined
def _idles_for(T: Any, C: Any, context: Any, c: int) -> int:
    """The bin of a CPU for which nobody is left, by what its last task sleeps for."""
    i = C[c]["task"]
    if i >= 0 and T[i]["st"] == ASLEEP and T[i]["last_cpu"] == c:
        if C[c]["reason"] == _E_BLOCK:
            return B_IO
        r = T[i]["head"]
        if r >= 0 and (context[r] == _HARDIRQ or context[r] == _SOFTIRQ):
            return B_TIMER
    return B_LEFT


@inlined
def place_alone(T: Any, C: Any, context: Any, c: int) -> int:
    """The bin of an idle CPU while no task is stuck."""
    if _coming(C, c):
        return B_ON_ITS_WAY
    return _idles_for(T, C, context, c)


@inlined
def _stuck(T: Any, C: Any, i: int) -> bool:
    return T[i]["held"] == 1 or C[T[i]["cpu"]]["idle"] == 0


@inlined
def _follow(T: Any, C: Any, context: Any, waker: Any, c: int) -> None:
    """The stuck task at the root of the chain that the CPU's last task sleeps in, and how far."""
    k = C[c]
    k["root"] = -1
    k["hop"] = 0
    i = k["task"]
    if i < 0 or T[i]["st"] != ASLEEP or T[i]["last_cpu"] != c:
        return
    for hop in range(1, MOST_HOPS + 1):
        r = T[i]["head"]
        if r < 0 or context[r] != _TASK or waker[r] < 0:
            return
        i = waker[r]
        if T[i]["st"] == WAITING:
            if _stuck(T, C, i):
                k["root"] = i
                k["hop"] = hop
            return
        if T[i]["st"] != ASLEEP:
            return


@inlined
def _why(T: Any, C: Any, G: Any, i: int, c: int) -> int:
    """Why the stuck task ``i`` does not run on the idle CPU ``c``."""
    t = T[i]
    if t["phase"] >= STRICT:
        return B_DOUBLE
    if t["phase"] == LATE:
        return B_LATE
    if t["pinned"] == 1:
        return B_PINNED
    if t["held"] == 1:
        return B_THROTTLED if t["throttled"] == 1 else B_UNKNOWN
    if t["since"] >= C[c]["start"]:
        return B_PLACED if t["how"] == DECIDED else B_UNKNOWN
    on = t["cpu"]
    if (
        t["last_cpu"] == on
        and t["last_end"] != NULL
        and C[c]["start"] - t["last_end"] < G[0]["cost_ns"]
        and C[on]["core"] != C[c]["core"]
    ):
        return B_HOT
    return B_REFUSED


@inlined
def _take(T: Any, C: Any, L: Any, G: Any, upper: Any, i: int, c: int) -> None:
    """The stuck task ``i`` stands for the idle CPU ``c``."""
    t = T[i]
    t["matched"] = 1
    C[c]["new"] = _why(T, C, G, i, c)
    L[C[c]["llc"]]["left"] -= 1
    if t["phase"] >= STRICT:
        upper[G[0]["upper"]] = t["victim"]
        G[0]["upper"] += 1


@inlined
def _nearest(T: Any, C: Any, G: Any, idlers: Any, i: int) -> int:
    """The CPU that idles for the task ``i`` over the fewest hops and is left in its LLC, or -1."""
    llc = C[T[i]["cpu"]]["llc"]
    best = -1
    for k in range(G[0]["idle"]):
        c = idlers[k]
        if C[c]["root"] == i and C[c]["new"] < 0 and C[c]["llc"] == llc:
            if best < 0 or C[c]["hop"] < C[best]["hop"]:
                best = c
    return best


@inlined
def _any(T: Any, C: Any, G: Any, idlers: Any, i: int, coming: bool) -> int:
    """A CPU that is left in the task's LLC, its own if it is held there; or -1.

    One for which somebody comes only where ``coming``.
    """
    on = T[i]["cpu"]
    if T[i]["held"] == 1 and C[on]["idle"] == 1 and C[on]["new"] < 0:
        return on
    llc = C[on]["llc"]
    for k in range(G[0]["idle"]):
        c = idlers[k]
        if C[c]["llc"] == llc and C[c]["new"] < 0 and (coming or not _coming(C, c)):
            return c
    return -1


@inlined
def _mark_coming(C: Any, L: Any, G: Any, idlers: Any) -> None:
    """CPUs that are left and booked wait for their own next task."""
    for k in range(G[0]["idle"]):
        c = idlers[k]
        if C[c]["new"] < 0 and _coming(C, c):
            C[c]["new"] = B_ON_ITS_WAY
            L[C[c]["llc"]]["left"] -= 1


@step
def _match_lower(T: Any, C: Any, G: Any, queue: Any, n: int, idlers: Any, lower: Any) -> None:
    """Certain victims, and CPUs that idle for them or were idle and open all along."""
    for which in range(2):
        for k in range(n):
            i = queue[k]
            t = T[i]
            if t["phase"] != CERTAIN or t["certain"] == 1:
                continue
            llc = C[t["cpu"]]["llc"]
            best = -1
            for at in range(G[0]["idle"]):
                c = idlers[at]
                if C[c]["llc"] != llc or C[c]["lower"] == 1:
                    continue
                if which == 0:
                    if C[c]["root"] == i:
                        best = c
                        break
                elif (
                    C[c]["start"] <= t["victim_from"]
                    and C[c]["open"] >= t["victim_to"]
                    and (best < 0 or C[c]["open"] < C[best]["open"])
                ):
                    best = c
            if best >= 0:
                t["certain"] = 1
                C[best]["lower"] = 1
                lower[G[0]["lower"]] = t["victim"]
                G[0]["lower"] += 1


@inlined
def _other_llc(T: Any, C: Any, G: Any, queue: Any, stuck: int, idlers: Any) -> None:
    """Tasks that are left stand for CPUs of other LLCs, if they may run there."""
    n = G[0]["idle"]
    at = 0
    for k in range(stuck):
        t = T[queue[k]]
        if t["matched"] == 1 or t["pinned"] == 1 or t["held"] == 1:
            continue
        while at < n and C[idlers[at]]["new"] >= 0:
            at += 1
        if at == n:
            break
        C[idlers[at]]["new"] = B_OTHER_LLC


@step
def pair_up(
    T: Any, C: Any, L: Any, G: Any, waiters: Any, queue: Any, idlers: Any, ns: Any, context: Any,
    waker: Any, upper: Any, lower: Any, hops: Any,
) -> None:  # fmt: skip
    """Set the bins of all idle CPUs while tasks are stuck; note the victims that stand for one."""
    n = G[0]["idle"]
    for k in range(L.shape[0]):
        L[k]["left"] = L[k]["idle"]
    stuck = strict = late = certain = 0
    for k in range(G[0]["listed"]):
        i = waiters[k]
        if _stuck(T, C, i):
            queue[stuck] = i
            stuck += 1
            t = T[i]
            t["matched"] = 0
            t["certain"] = 0
            strict += t["phase"] >= STRICT
            late += t["phase"] == LATE
            certain += t["phase"] == CERTAIN
    chains = 0
    for k in range(n):
        c = idlers[k]
        C[c]["new"] = -1
        C[c]["lower"] = 0
        _follow(T, C, context, waker, c)
        i = C[c]["root"]
        if i >= 0:
            chains = 1
            if T[i]["phase"] >= STRICT and hops[T[i]["victim"]] < C[c]["hop"]:
                hops[T[i]["victim"]] = C[c]["hop"]
    G[0]["chains"] = chains
    left = stuck
    # Strict victims, late ones, all others: each the CPU that idles for it, then any, then one that
    # is booked; a task that is no victim takes none of those.
    for group in range(2, -1, -1):
        if group == 0:
            _mark_coming(C, L, G, idlers)
        mine = strict if group == 2 else (late if group == 1 else stuck - strict - late)
        for stage in range(1 - chains, 3 if group > 0 else 2):
            if mine == 0:
                break
            for k in range(stuck):
                i = queue[k]
                if T[i]["matched"] == 1 or min(T[i]["phase"], 2) != group:
                    continue
                if L[C[T[i]["cpu"]]["llc"]]["left"] == 0:
                    continue
                if stage == 0:
                    c = _nearest(T, C, G, idlers, i)
                else:
                    c = _any(T, C, G, idlers, i, stage == 2)
                if c >= 0:
                    _take(T, C, L, G, upper, i, c)
                    mine -= 1
                    left -= 1
    if certain > 0:
        _match_lower(T, C, G, queue, stuck, idlers, lower)
    if left > 0 and L.shape[0] > 1:
        _other_llc(T, C, G, queue, stuck, idlers)
    for k in range(n):
        c = idlers[k]
        new = C[c]["new"]
        if new < 0:
            new = B_CHAIN if C[c]["root"] >= 0 else _idles_for(T, C, context, c)
        if C[c]["bin"] != new:
            account(C, G, ns, c, G[0]["now"])
            C[c]["bin"] = new
