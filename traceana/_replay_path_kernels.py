"""The kernel's path at a decision, each CPU read at the instant at which the kernel comes to it.

A selection takes up to a microsecond or two, and the CPUs that it looks at change meanwhile. Each
CPU's last states are kept (``hist``: when, and which row of the log), so that a
path can be followed once it is over, at any shift of its instants, and under any value of what no
event tells.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana._jit import step
from traceana._replay_state import (
    HISTORY,
    T_AFFINE,
    T_ASKED,
    T_CORE,
    T_CORE_STEP,
    T_CORE_THREAD,
    T_PREV,
    T_RECENT,
    T_SCAN,
    T_SCAN_STEP,
    T_SIBLING,
    T_SIBLING_STEP,
    T_TARGET,
    T_WEIGHT,
    UNTOLD,
)
from traceana.rules.interface import (
    NONE,
    Affine,
    scan_budget,
    scan_llc,
    select_idle_last,
    select_idle_near,
    select_target,
)

__all__ = ["compose", "follow", "hint_at", "hint_write", "history", "push", "restore"]

_IDLE, _WEIGHT_THIS, _UNLIMITED = Affine.IDLE, Affine.WEIGHT_THIS, 1 << 20
#: CPUs further behind in a ring are shown as they were when the scan came to this one.
_FAR = 12


def history(n_cpus: Any) -> Any:
    """The kept states of each CPU: int64[cpus, HISTORY + 1, 2], (ts, row of the log), a ring.

    The last entry's first word is the place of the next one.
    """
    out = np.full((n_cpus, HISTORY + 1, 2), -1, np.int64)
    out[:, HISTORY, 0] = 0
    return out


@step
def push(m: Any, log: Any, at: Any, hist: Any, cpu: Any, now: Any) -> Any:
    """Write a CPU's state into the log and its history; returns the log's new length."""
    if cpu < 0 or at >= log.shape[0]:
        return at
    k = m.cpus[cpu]
    x = log[at]
    x["aux"] = k.curr_dur
    x["cpu"] = cpu
    x["curr"] = k.curr
    x["nr"] = k.nr
    x["idle"] = k.idle
    x["pending"] = k.pending
    x["booked"] = k.booked
    i = hist[cpu, HISTORY, 0]
    hist[cpu, i, 0] = now
    hist[cpu, i, 1] = at
    hist[cpu, HISTORY, 0] = (i + 1) & (HISTORY - 1)
    return at + 1


@step
def _put(m: Any, log: Any, row: Any) -> None:
    x = log[row]
    k = m.cpus[x["cpu"]]
    k.curr_dur = x["aux"]
    k.curr = x["curr"]
    k.nr = x["nr"]
    k.idle = x["idle"]
    k.pending = x["pending"]
    k.booked = x["booked"]


@step
def _row_at(hist: Any, cpu: Any, at: Any) -> Any:
    """Row of the log that held for a CPU at an instant: the oldest kept one if none is so old."""
    i = (hist[cpu, HISTORY, 0] - 1) & (HISTORY - 1)
    row = hist[cpu, i, 1]
    for _ in range(HISTORY - 1):
        if row < 0 or hist[cpu, i, 0] <= at:
            return row
        i = (i - 1) & (HISTORY - 1)
        if hist[cpu, i, 1] < 0:
            return row
        row = hist[cpu, i, 1]
    return row


@step
def _as_of(m: Any, log: Any, hist: Any, cpu: Any, at: Any) -> None:
    """Show a CPU as it stood at an instant."""
    row = _row_at(hist, cpu, at)
    if row >= 0:
        _put(m, log, row)


@step
def _place_in_ring(cpu: Any, target: Any) -> Any:
    """How far behind the target a CPU comes in the scan."""
    return cpu - target - 1 if cpu > target else cpu - target - 1 + _UNLIMITED


@step
def follow(
    w: Any, m: Any, a: Any, T: Any, log: Any, hist: Any, hints: Any,
    shift: Any, flip: Any, more: Any, turn: Any,
) -> Any:  # fmt: skip
    """select_task_rq_fair(): returns the CPU; *w* says how it came to that.

    Parameters
    ----------
    shift : ns by which all instants are moved
    flip : 1: with the other idle-core hint
    more : with nr_idle_scan changed by so much
    turn : 1: with the other answer of wake_affine_weight(), if it was asked

    ``a["nr_idle_scan"]`` and ``a["idle_core"]`` become what the target's LLC had.
    """
    limit = a["limit"]
    start = a["look"] + shift
    this: Any = np.int64(a["this_cpu"])
    prev: Any = np.int64(a["prev_cpu"])
    t = min(start + T[T_AFFINE], limit)
    _as_of(m, log, hist, this, t)
    _as_of(m, log, hist, prev, t)
    target = select_target(w, m)
    if turn and w.affine >= _WEIGHT_THIS:
        target = prev if target == this else this
        w.target = target
    t = start + T[T_TARGET]
    if w.affine >= _IDLE:
        t += T[T_ASKED]
        if w.affine >= _WEIGHT_THIS:
            t += T[T_WEIGHT]
    g = m.cpus[target].llc
    llc = m.llcs[g]
    llc.idle_core = a["tell_hint"]
    if a["tell_hint"] == UNTOLD:
        llc.idle_core = hint_at(hints, g, min(t + T[T_SIBLING], limit))
    if flip:
        llc.idle_core = 0 if llc.idle_core > 0 else 1
    held = llc.nr_idle_scan
    if a["tell_nr"] != UNTOLD:
        llc.nr_idle_scan = a["tell_nr"]
    if more and llc.nr_idle_scan >= 0:
        llc.nr_idle_scan = min(max(llc.nr_idle_scan + more, 0), llc.weight)
    a["nr_idle_scan"] = llc.nr_idle_scan
    a["idle_core"] = llc.idle_core
    _show_near(m, a, T, log, hist, target, t)
    cpu = select_idle_near(w, m, target)
    if cpu == NONE:
        nr = scan_budget(w, m, target)
        if nr > 0:
            _show_scan(m, a, T, log, hist, target, t, nr)
        cpu = scan_llc(w, m, target, nr)
        if cpu == NONE:
            cpu = select_idle_last(w, m, target)
    llc.nr_idle_scan = held
    return cpu


@step
def _show_near(m: Any, a: Any, T: Any, log: Any, hist: Any, target: Any, t: Any) -> None:
    """The CPUs that are tried before any scan, the target being read at ``t``."""
    limit = a["limit"]
    prev: Any = np.int64(a["prev_cpu"])
    recent: Any = np.int64(a["recent"])
    _as_of(m, log, hist, target, min(t, limit))
    if prev != target:
        _as_of(m, log, hist, prev, min(t + T[T_PREV], limit))
    if recent >= 0 and recent != prev and recent != target:
        _as_of(m, log, hist, recent, min(t + T[T_RECENT], limit))
    first = m.cpus[prev].first_sibling
    c = first
    i = 0
    while True:
        if c != prev and c != target and c != recent:
            _as_of(m, log, hist, c, min(t + T[T_SIBLING] + i * T[T_SIBLING_STEP], limit))
        i += 1
        c = m.cpus[c].next_sibling
        if c == first:
            break


@step
def _show_scan(m: Any, a: Any, T: Any, log: Any, hist: Any, target: Any, t: Any, nr: Any) -> None:
    """The CPUs of the scan, as far as a budget of ``nr`` goes, the target being read at ``t``."""
    limit = a["limit"]
    llc = m.llcs[m.cpus[target].llc]
    hint = m.smt != 0 and llc.idle_core > 0
    c = target
    at = 0
    for i in range(llc.weight):
        c = m.cpus[c].next_llc
        if not hint:
            if i >= nr:
                break
            _as_of(m, log, hist, c, min(t + T[T_SCAN] + i * T[T_SCAN_STEP], limit))
            continue
        # Core by core, in the order of the first thread met.
        seen = False
        here = _place_in_ring(c, target)
        s = m.cpus[c].next_sibling
        while s != c:
            if _place_in_ring(s, target) < here and m.cpus[s].llc == m.cpus[c].llc:
                seen = True
            s = m.cpus[s].next_sibling
        if seen:
            continue
        s = m.cpus[c].first_sibling
        j = 0
        while True:
            late = T[T_CORE] + at * T[T_CORE_STEP] + j * T[T_CORE_THREAD]
            _as_of(m, log, hist, s, min(t + late, limit))
            j += 1
            s = m.cpus[s].next_sibling
            if s == m.cpus[c].first_sibling:
                break
        at += 1


@step
def _put_now(m: Any, log: Any, hist: Any, cpu: Any) -> None:
    row = hist[cpu, (hist[cpu, HISTORY, 0] - 1) & (HISTORY - 1), 1]
    if row >= 0:
        _put(m, log, row)


@step
def restore(m: Any, a: Any, log: Any, hist: Any) -> None:
    """Show all CPUs that a path may have read as they stand now."""
    g0, g1 = m.cpus[a["prev_cpu"]].llc, m.cpus[a["this_cpu"]].llc
    for n in range(1 if g0 == g1 else 2):
        g = g0 if n == 0 else g1
        c = m.llcs[g].first
        for _ in range(m.llcs[g].weight):
            _put_now(m, log, hist, c)
            c = m.cpus[c].next_llc
    # These may lie elsewhere, or be in no LLC's list (offline).
    _put_now(m, log, hist, a["this_cpu"])
    _put_now(m, log, hist, a["prev_cpu"])
    if a["recent"] >= 0:
        _put_now(m, log, hist, a["recent"])
    first = m.cpus[a["prev_cpu"]].first_sibling
    c = first
    while True:
        _put_now(m, log, hist, c)
        c = m.cpus[c].next_sibling
        if c == first:
            break


@step
def _copy(log: Any, at: Any, row: Any) -> None:
    x, y = log[at], log[row]
    x["aux"] = y["aux"]
    x["cpu"] = y["cpu"]
    x["curr"] = y["curr"]
    x["nr"] = y["nr"]
    x["idle"] = y["idle"]
    x["pending"] = y["pending"]
    x["booked"] = y["booked"]


@step
def compose(
    m: Any, a: Any, T: Any, log: Any, at: Any, hist: Any, n: Any, target: Any, late: Any, shift: Any
) -> Any:
    """Write decision ``n`` into the log; returns the log's new length.

    Rules see each CPU once: those that are tried first as they stood then, the others as the
    scan would have come to them. What differs from the state now is written before the decision
    and taken back behind it.
    """
    start = a["look"] + shift
    limit = a["limit"]
    this, prev, recent = np.int64(a["this_cpu"]), np.int64(a["prev_cpu"]), np.int64(a["recent"])
    begin = at
    g0, g1 = m.cpus[prev].llc, m.cpus[this].llc
    for v in range(1 if g0 == g1 else 2):
        g = g0 if v == 0 else g1
        c = m.llcs[g].first
        weight = m.llcs[g].weight
        for _ in range(weight):
            last = (hist[c, HISTORY, 0] - 1) & (HISTORY - 1)
            if hist[c, last, 0] > start + T[T_AFFINE]:
                t = start + T[T_TARGET] + late
                if c == target:
                    pass
                elif c == prev:
                    t += T[T_PREV]
                elif c == this:
                    t = start + T[T_AFFINE]
                elif c == recent:
                    t += T[T_RECENT]
                elif m.cpus[c].first_sibling == m.cpus[prev].first_sibling:
                    t += T[T_SIBLING]
                else:
                    far = c - target - 1 if c > target else c - target - 1 + weight
                    t += T[T_SCAN] + min(far, _FAR) * T[T_SCAN_STEP]
                row = _row_at(hist, c, min(t, limit))
                if row >= 0 and row != hist[c, last, 1] and at < log.shape[0] - 1:
                    _copy(log, at, row)
                    at += 1
            c = m.cpus[c].next_llc
    if at >= log.shape[0]:
        return at
    end = at
    log[at]["cpu"] = -1
    log[at]["aux"] = n
    at += 1
    for i in range(begin, end):
        if at >= log.shape[0]:
            break
        c = np.int64(log[i]["cpu"])
        _copy(log, at, hist[c, (hist[c, HISTORY, 0] - 1) & (HISTORY - 1), 1])
        at += 1
    return at


@step
def hint_write(hints: Any, g: Any, at: Any, value: Any) -> None:
    """The idle-core hint of LLC ``g`` takes a value; an instant before newer ones finds its place.

    hints : int64[llcs, HISTORY, 2], newest first: (ts, value)
    """
    n = hints.shape[1]
    i = 0
    while i < n and hints[g, i, 0] > at:
        i += 1
    j = n - 1
    while j > i:
        hints[g, j, 0] = hints[g, j - 1, 0]
        hints[g, j, 1] = hints[g, j - 1, 1]
        j -= 1
    if i < n:
        hints[g, i, 0] = at
        hints[g, i, 1] = value


@step
def hint_at(hints: Any, g: Any, at: Any) -> Any:
    n = hints.shape[1]
    for i in range(n):
        if hints[g, i, 0] <= at:
            return hints[g, i, 1]
    return hints[g, n - 1, 1]
