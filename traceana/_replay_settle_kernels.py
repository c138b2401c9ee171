"""Walks the changes of state of a recording and follows the kernel's own path at each decision.

What comes out: per decision the path's answer, the set of its possible answers and which unknown
explains the recorded one; and a log of the states, with which any rule can be asked again cheaply.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana._jit import njit, numba, step
from traceana._pelt_kernels import (
    divider,
    pelt_decay,
    pelt_dequeue,
    pelt_enqueue,
    pelt_move,
    pelt_switch,
    pelt_tick,
    refresh_llc,
    task_h_load,
)
from traceana._replay_path_kernels import compose, follow, hint_at, hint_write, push, restore
from traceana._replay_state import (
    ASK,
    BOOK,
    CHANGE,
    CURR,
    ENQ,
    LOG,
    MOVE,
    OFF,
    OUT,
    PEND,
    PLACE,
    READ,
    SET_MAX,
    T_ASKED,
    T_CLEAR,
    T_SIBLING,
    T_TARGET,
    T_WEIGHT,
    UNTOLD,
    VERDICT,
    WHY_HINT,
    WHY_INSTANT,
    WHY_LOAD,
    WHY_SCAN,
    WHY_SYNC,
    WHY_WIDE,
)
from traceana.pelt import CFS, TASK
from traceana.rules.interface import MACHINES_TYPE, UNCOMPILED, WAKEUPS_TYPE, Affine, Step

__all__ = ["settle", "time_shares"]

types: Any = numba.types
typeof: Any = numba.typeof
_I64: Any = types.int64[::1]
_I64_2: Any = types.int64[:, ::1]
_I64_3: Any = types.int64[:, :, ::1]

_SIGNATURE: Any = types.int64(
    typeof(np.zeros(1, CHANGE)), typeof(np.zeros(1, ASK)), MACHINES_TYPE, WAKEUPS_TYPE,
    typeof(np.zeros(1, TASK)), typeof(np.zeros(1, CFS)), typeof(np.zeros(1, PLACE)), _I64,
    _I64, _I64, _I64, _I64, _I64_2,
    typeof(np.zeros(1, VERDICT)), types.int32[:, ::1], typeof(np.zeros(1, LOG)), _I64_3, _I64_3,
)  # fmt: skip

#: Flips that make any pair wide, to ask what an unknown count could do.
_WIDE = 1 << 40
#: What changing an unknown costs an explanation; the likelier, the cheaper.
_COST_SCAN, _COST_HINT, _COST_SYNC, _COST_LOAD, _COST_INSTANT, _COST_WIDE = 10, 11, 12, 13, 14, 15
_NONE = 1 << 20
_SIBLING, _FIRST, _LAST = Step.SIBLING, Step.OVERLOADED, Step.CLUSTER_RECENT
_AFFINE_IDLE, _AFFINE_SYNC, _WEIGHT_THIS = Affine.IDLE, Affine.SYNC, Affine.WEIGHT_THIS
#: An idle CPU's sums are read as they stand up to this age (nohz statistics period), ns.
_STALE = 32_000_000
#: So many passes without an event between them leave everything at rest (at 1 ms each twice the
#: 2016 periods after which no load is left). A damaged time may lie months ahead.
_AT_REST = 4096
#: Votes on a budget: one is worth _VOTE, the old ones fade by 1/32 with each, and another budget
#: takes over when it is ahead by more than _AHEAD.
_VOTE, _AHEAD = 1024, 1536


def _compiled(function: Any) -> Any:
    return function if UNCOMPILED else numba.njit(_SIGNATURE, nogil=True, cache=True)(function)


@step
def _queue(m: Any, places: Any, task: Any, cpu: Any) -> None:
    old = places[task]["queue"]
    if old == cpu:
        return
    if old >= 0:
        m.cpus[old].nr -= 1
    if cpu >= 0:
        m.cpus[cpu].nr += 1
    places[task]["queue"] = cpu


@step
def _core_idle(m: Any, cpu: Any) -> Any:
    """Whether all siblings of an idle CPU are idle (available) too (section 6.7)."""
    c = m.cpus[cpu].next_sibling
    while c != cpu:
        k = m.cpus[c]
        if k.idle == 0 or k.nr != 0 or k.pending != 0:
            return False
        c = k.next_sibling
    return True


@step
def _set_current(
    m: Any, tasks: Any, cfs: Any, places: Any, left: Any, hints: Any, cpu: Any, task: Any, dur: Any, now: Any
) -> None:  # fmt: skip
    k = m.cpus[cpu]
    prev = k.curr
    fair_prev = prev if prev >= 0 and places[prev]["fair"] == 1 else -1
    fair_next = task if task >= 0 and places[task]["fair"] == 1 else -1
    if task >= 0:
        _queue(m, places, task, cpu)
    pelt_switch(tasks, fair_prev, fair_next, left[cpu] == 1, cfs, cpu, now)
    left[cpu] = 0
    k.curr = task
    k.curr_dur = dur
    k.idle = 1 if task < 0 else 0
    if task < 0 and m.smt == 1 and _core_idle(m, cpu):
        hint_write(hints, k.llc, now, 1)


@step
def _change(
    x: Any, now: Any, m: Any, tasks: Any, cfs: Any, places: Any, left: Any, hints: Any, first_ts: Any
) -> None:  # fmt: skip
    """Apply one change of state."""
    cpu: Any = np.int64(x["cpu"])
    task: Any = np.int64(x["task"])
    what = x["what"]
    if what == CURR:
        if now < first_ts and task >= 0:
            _queue(m, places, task, cpu)
        _set_current(m, tasks, cfs, places, left, hints, cpu, task, x["aux"], now)
    elif what == OFF:
        _queue(m, places, task, -1)
        left[cpu] = 1
        if places[task]["fair"] == 1:
            pelt_dequeue(tasks, task, cfs, now)
    elif what == OUT:
        left[cpu] = 0
    elif what == ENQ:
        if places[task]["queue"] < 0:
            _queue(m, places, task, cpu)
            if places[task]["fair"] == 1:
                pelt_enqueue(tasks, task, cfs, cpu, now)
    elif what == MOVE:
        if places[task]["queue"] >= 0:
            _queue(m, places, task, cpu)
            if places[task]["fair"] == 1:
                pelt_move(tasks, task, cfs, cpu, now)
    elif what == PEND:
        m.cpus[cpu].pending = x["aux"]
    elif what == BOOK:
        m.cpus[cpu].booked += x["aux"]


@step
def _read_loads(m: Any, tasks: Any, cfs: Any, places: Any, a: Any, now: Any) -> None:
    """Bring the loads that wake_affine_weight() compares up to date, into the ask."""
    this: Any = np.int64(a["this_cpu"])
    prev: Any = np.int64(a["prev_cpu"])
    for c in (this, prev):
        k = m.cpus[c]
        if k.curr >= 0 and places[k.curr]["fair"] == 1:
            pelt_tick(tasks, k.curr, cfs, c, now)
        else:
            pelt_decay(cfs, c, now)
    a["this_load"] = cfs[this].load_avg
    a["prev_load"] = cfs[prev].load_avg
    a["waker_load"] = 0
    if a["waker"] >= 0:
        a["waker_load"] = task_h_load(tasks[a["waker"]], cfs[this])
    a["wakee_load"] = task_h_load(tasks[a["wakee"]], cfs[prev])
    a["recent"] = places[a["wakee"]]["recent"]


@step
def _fill(w: Any, m: Any, a: Any) -> None:
    w.ts = a["ts"]
    w.waker_dur = a["waker_dur"]
    w.wakee_dur = a["wakee_dur"]
    w.waker_flips = a["waker_flips"]
    w.wakee_flips = a["wakee_flips"]
    w.waker = a["waker"]
    w.wakee = a["wakee"]
    w.this_cpu = a["this_cpu"]
    w.prev_cpu = a["prev_cpu"]
    w.recorded_cpu = -1
    w.task_ctx = a["task_ctx"]
    w.waker_percpu_kthread = a["kthread"]
    w.waker_last_is_wakee = 1
    w.wakee_last_is_waker = a["woke_back"]
    w.sync = 0 if a["sync"] == 0 else 1
    w.recent_cpu = a["recent"]
    w.restricted = 0
    w.waker_load = a["waker_load"]
    w.wakee_load = a["wakee_load"]
    m.cpus[a["this_cpu"]].load = a["this_load"]
    m.cpus[a["prev_cpu"]].load = a["prev_load"]


@step
def _scan_asked(step_: Any) -> Any:
    """Whether the path came to the scan, which hangs on nr_idle_scan."""
    # OVERLOADED, CORE, CORE_REST, CPU, BUDGET, FALLBACK, CLUSTER_PREV, CLUSTER_RECENT
    return _FIRST <= step_ <= _LAST


@step
def _hint_asked(m: Any, step_: Any) -> Any:
    return m.smt == 1 and (step_ == _SIBLING or _scan_asked(step_))


@step
def _note(
    w: Any, m: Any, a: Any, o: Any, members: Any, cpu: Any, cost: Any, why: Any, shift: Any
) -> None:
    """Add a CPU to the possible set; keep the cheapest branch that explains the recording."""
    known = False
    n = min(o["count"], SET_MAX)
    for i in range(n):
        if members[i] == cpu:
            known = True
    if not known:
        if n < SET_MAX:
            members[n] = cpu
        o["count"] += 1
    if cpu == a["recorded"] and cost < o["cost"]:
        o["cost"] = cost
        o["why"] = why
        o["sync"] = w.sync
        o["scan"] = a["nr_idle_scan"]
        o["hint"] = a["idle_core"]
        o["asked"] = (1 if _scan_asked(w.step) else 0) + (2 if _hint_asked(m, w.step) else 0)
        o["cleared"] = w.hint_cleared
        o["recent"] = w.recent_after
        o["waker_recent"] = w.waker_recent_after
        o["x_target"] = w.target
        o["x_affine"] = w.affine
        o["x_step"] = w.step
        o["shift"] = shift


@step
def _loads_close(w: Any, m: Any) -> Any:
    """Whether the loads of wake_affine_weight() are within a factor of two of each other."""
    this, prev = m.cpus[w.this_cpu], m.cpus[w.prev_cpu]
    t = this.load + w.wakee_load
    if w.sync != 0:
        t -= w.waker_load
    q = prev.load - w.wakee_load
    return t < 2 * q and q < 2 * t


@step
def _explore(
    w: Any, m: Any, a: Any, o: Any, members: Any, T: Any, log: Any, hist: Any, hints: Any,
    jitter: Any, spread: Any, flip_hint: Any,
) -> Any:  # fmt: skip
    """Follow all branches of a decision: instants, sync where it is open, hint, budget, loads,
    flips; the first is the path on the rebuilt state. Returns what outcomes say of the budget
    (see _evidence). A jitter below 0: the first branch only.
    """
    evidence: Any = np.int64(-1)
    base = 0 if a["sync"] == 0 else 1
    for v in range(3 if jitter > 0 else 1):
        shift = 0 if v == 0 else (-jitter if v == 1 else jitter)
        for s in range(2 if a["sync"] == 2 and jitter >= 0 else 1):
            w.sync = base if s == 0 else 1 - base
            asked_hint = False
            weighed = False
            # 0: as rebuilt; 1: the other hint; 2: the other answer of the loads; 3: wide
            for mode in range(4 if jitter >= 0 else 1):
                if mode == 1 and (flip_hint == 0 or not asked_hint):
                    continue
                if mode == 2 and not (weighed and _loads_close(w, m)):
                    continue
                if mode == 3:
                    if s == 1 or (a["waker_flips"] >= 0 and a["wakee_flips"] >= 0):
                        continue
                    w.waker_flips = _WIDE
                    w.wakee_flips = 1 << 20
                for n in range(2 * spread + 1 if mode < 2 and jitter >= 0 else 1):
                    d = (n + 1) // 2 if n & 1 else -(n // 2)
                    flip = 1 if mode == 1 else 0
                    turn = 1 if mode == 2 else 0
                    cpu = follow(w, m, a, T, log, hist, hints, shift, flip, d, turn)
                    asked_hint = asked_hint or _hint_asked(m, w.step)
                    if mode == 0 and n == 0:
                        weighed = w.affine >= _WEIGHT_THIS
                        if v == 0 and s == 0:
                            _first_branch(w, m, a, o, cpu)
                            evidence = _evidence(w, m, a)
                        if v == 0 and w.sync == 0:
                            o["cpu0"] = cpu
                        elif v == 0 and w.affine == _AFFINE_SYNC:
                            o["cpu1"] = cpu
                    why = WHY_INSTANT if v else 0
                    cost = (_COST_INSTANT if v else 0) + _COST_SCAN * abs(d)
                    if s:
                        why |= WHY_SYNC
                        cost += _COST_SYNC
                    if n:
                        why |= WHY_SCAN
                    if mode == 1:
                        why |= WHY_HINT
                        cost += _COST_HINT
                    elif mode == 2:
                        why |= WHY_LOAD
                        cost += _COST_LOAD
                    elif mode == 3:
                        why |= WHY_WIDE
                        cost += _COST_WIDE
                    _note(w, m, a, o, members, cpu, cost, why, shift)
                    if not _scan_asked(w.step):
                        break
                w.waker_flips = a["waker_flips"]
                w.wakee_flips = a["wakee_flips"]
    w.sync = base
    return evidence


@step
def _first_branch(w: Any, m: Any, a: Any, o: Any, cpu: Any) -> None:
    """The path on the rebuilt state; as long as nothing explains the recording, it goes on."""
    o["cpu"] = cpu
    o["affine"] = w.affine
    o["step"] = w.step
    o["target"] = w.target
    o["nr_idle_scan"] = a["nr_idle_scan"]
    o["idle_core"] = a["idle_core"]
    o["nr_this"] = m.cpus[a["this_cpu"]].nr
    o["sync"] = w.sync
    o["scan"] = a["nr_idle_scan"]
    o["hint"] = a["idle_core"]
    o["asked"] = (1 if _scan_asked(w.step) else 0) + (2 if _hint_asked(m, w.step) else 0)
    o["cleared"] = w.hint_cleared
    o["recent"] = w.recent_after
    o["waker_recent"] = w.waker_recent_after
    o["x_target"] = w.target
    o["x_affine"] = w.affine
    o["x_step"] = w.step
    o["cpu0"] = -1
    o["cpu1"] = -1
    o["shift"] = 0
    o["own_state"] = _state_of(m, cpu)
    o["recorded_state"] = _state_of(m, a["recorded"])
    o["why"] = -1
    o["cost"] = _NONE
    o["count"] = 0


@step
def _evidence(w: Any, m: Any, a: Any) -> Any:
    """What the recorded CPU says about the budget of the target's LLC, the path having come to its
    scan: the budgets that explain it, lowest and highest, as lowest * 65536 + highest; else -1.
    """
    if not _scan_asked(w.step) or a["tell_nr"] != UNTOLD:
        return np.int64(-1)
    target: Any = np.int64(w.target)
    recorded: Any = np.int64(a["recorded"])
    if w.affine >= _WEIGHT_THIS and (recorded == a["this_cpu"] or recorded == a["prev_cpu"]):
        # The loads are uncertain; a target that stands tells which one it was.
        target = recorded
    weight = m.llcs[m.cpus[w.target].llc].weight
    k = 0
    found: Any = np.int64(-1)
    c = target
    for i in range(weight):
        c = np.int64(m.cpus[c].next_llc)
        x = m.cpus[c]
        if x.idle == 1 and x.nr == 0 and x.pending == 0:
            found = c
            k = i + 1
            break
    if found < 0 or found == target:
        return np.int64(-1)
    if m.smt == 1 and a["idle_core"] > 0:
        # With the hint any budget but 0 scans all.
        return np.int64(65536 + weight) if recorded != target else np.int64(0)
    if recorded == found:
        return np.int64(k * 65536 + weight)
    if recorded == target:
        return np.int64(k - 1)
    return np.int64(-1)


@step
def _vote(row: Any, votes: Any, g: Any, evidence: Any) -> None:
    """Count an outcome's evidence; the budget with clearly the most is believed from here on."""
    lo, hi = evidence >> 16, evidence & 65535
    best: Any = np.int64(row.nr_idle_scan)
    if best < 0:
        best = lo
    for n in range(row.weight + 1):
        votes[g, n] -= votes[g, n] >> 5
        if lo <= n <= hi:
            votes[g, n] += _VOTE
    for n in range(row.weight + 1):
        if votes[g, n] > votes[g, best] + _AHEAD:
            best = n
    row.nr_idle_scan = best


@step
def _refresh(
    m: Any, cfs: Any, members: Any, starts: Any, votes: Any, rebuilt: Any, due: Any, learning: bool
) -> None:  # fmt: skip
    """A statistics pass: budgets follow the rebuilt utilisation, or wait for what outcomes say."""
    for g in range(m.n_llcs):
        row = m.llcs[g]
        held = row.nr_idle_scan
        refresh_llc(row, cfs, members[starts[g] : starts[g + 1]], m.pct, due, _STALE)
        new = row.nr_idle_scan
        moved = new - rebuilt[g] if rebuilt[g] >= 0 else 0
        rebuilt[g] = new
        if held >= 0:
            row.nr_idle_scan = held
            if not learning:
                row.nr_idle_scan = min(max(held + moved, 0), row.weight)
        for n in range(row.weight + 1):
            votes[g, n] >>= 1


@step
def _state_of(m: Any, cpu: Any) -> Any:
    """0 busy, 1 idle, 2 idle with all its siblings; -1 no such CPU."""
    if cpu < 0 or cpu >= m.n_cpus:
        return -1
    k = m.cpus[cpu]
    if k.idle == 0 or k.nr != 0 or k.pending != 0:
        return 0
    return 2 if _core_idle(m, cpu) else 1


@step
def _begin(tasks: Any, cfs: Any, places: Any, now: Any) -> None:
    """Give tasks the averages that they start with; their CPUs' sums hold them already."""
    for c in range(cfs.shape[0]):
        q = cfs[c]
        q.last_update = now
        q.contrib = 0
        q.util_sum = q.util_avg * divider(q)
        q.load_sum = q.load_avg * divider(q)
    for t in range(tasks.shape[0]):
        e = tasks[t]
        if places[t]["cpu"] < 0 or places[t]["fair"] != 1:
            continue
        e.cpu = places[t]["cpu"]
        e.last_update = now
        e.contrib = 0
        e.util_avg = places[t]["util"]
        e.load_avg = places[t]["load"]
        e.util_sum = e.util_avg * divider(e)
        e.load_sum = e.load_avg * divider(e) // max(e.weight, 1)
        e.est_enqueued = e.util_avg
        e.est_ewma = e.util_avg


@njit
def time_shares(changes: Any, n_tasks: Any, until: Any, n_cpus: Any) -> Any:
    """How many tasks were on each CPU's queue on average, how long each task was queued and ran.

    Parameters
    ----------
    changes : CHANGE[k], k > 0; until : ns

    Returns
    -------
    float64[3, max(cpus, tasks)]
        Mean nr per CPU; per task the share of time on a queue, and running.
    """
    out = np.zeros((3, max(n_cpus, n_tasks)), np.float64)
    queue = np.full(n_tasks, -1, np.int64)
    since = np.zeros(n_tasks, np.int64)
    current = np.full(n_cpus, -1, np.int64)
    began = np.zeros(n_cpus, np.int64)
    start, now = changes[0]["ts"], changes[0]["ts"]
    for i in range(changes.shape[0]):
        if changes[i]["ts"] > until:
            break
        now = changes[i]["ts"]
        what, cpu, task = changes[i]["what"], changes[i]["cpu"], changes[i]["task"]
        if what == CURR:
            old = current[cpu]
            if old >= 0:
                out[2, old] += now - began[cpu]
            current[cpu] = task
            began[cpu] = now
        to: Any = np.int64(cpu)
        if what == OFF:
            to = np.int64(-1)
        elif what == MOVE:
            if queue[task] < 0:
                continue
        elif what == ENQ:
            if queue[task] >= 0:
                continue
        elif what != CURR or task < 0:
            continue
        if queue[task] == to:
            continue
        if queue[task] >= 0:
            out[0, queue[task]] += now - since[task]
            out[1, task] += now - since[task]
        queue[task] = to
        since[task] = now
    for t in range(n_tasks):
        if queue[t] >= 0:
            out[0, queue[t]] += now - since[t]
            out[1, t] += now - since[t]
    return out / max(now - start, 1)


@_compiled
def settle(
    changes: Any, asks: Any, machines: Any, wakeups: Any, tasks: Any, cfs: Any, places: Any, left: Any,
    members: Any, starts: Any, T: Any, config: Any, votes: Any,
    out: Any, sets: Any, log: Any, hist: Any, hints: Any,
) -> Any:  # fmt: skip
    """Apply changes in order; at each LOOK follow the kernel's own path. Returns the log's length.

    Parameters
    ----------
    changes : CHANGE[k], ascending ts; a READ's and a LOOK's aux is its row in ``asks`` and ``out``
    asks : ASK[n], its last fields are written; out : VERDICT[n], written
    machines : MACHINE[1]; wakeups : WAKEUP[1]; tasks, cfs : PELT records; places : PLACE[tasks]
    left : int64[cpus], scratch: 1 where the current task has blocked
    members, starts : int64, CPUs of each LLC in compressed form
    T : int64[15], when a selection reads what (T_*)
    config : int64, the fields of CONFIG; a jitter below 0: the path on the rebuilt state only
    votes : int64[llcs, CPUs + 1], 0
    sets : int32[n, SET_MAX], written: the possible set
    log : LOG[capacity], written
    hist : history(cpus); hints : int64[llcs, HISTORY, 2], hints at the start
    """
    m = machines[0]
    w = wakeups[0]
    first_ts, refresh, learn_until = config[0], config[1], config[2]
    spread, flip_hint, jitter = config[3], config[4], config[5]
    due = first_ts + refresh
    rebuilt = np.full(m.n_llcs, -1, np.int64)
    at: Any = np.int64(0)
    _begin(tasks, cfs, places, first_ts - 1_000_000)
    _refresh(m, cfs, members, starts, votes, rebuilt, first_ts, True)
    c: Any
    for c in range(m.n_cpus):
        at = push(m, log, at, hist, c, -(1 << 62))
    for i in range(changes.shape[0]):
        x = changes[i]
        now = x["ts"]
        passes = 0
        while now >= due:
            if passes == _AT_REST:
                due += (now - due) // refresh * refresh
            _refresh(m, cfs, members, starts, votes, rebuilt, due, now < learn_until)
            due += refresh
            passes += 1
        if x["what"] < READ:
            task: Any = np.int64(x["task"])
            cpu: Any = np.int64(x["cpu"])
            other: Any = np.int64(-1)
            if task >= 0 and x["what"] < PEND:
                other = np.int64(places[task]["queue"])
            _change(x, now, m, tasks, cfs, places, left, hints, first_ts)
            at = push(m, log, at, hist, cpu, now)
            if other >= 0 and other != cpu:
                at = push(m, log, at, hist, other, now)
            continue
        n = x["aux"]
        a = asks[n]
        if x["what"] == READ:
            _read_loads(m, tasks, cfs, places, a, now)
            continue
        o = out[n]
        _fill(w, m, a)
        evidence = _explore(
            w, m, a, o, sets[n], T, log, hist, hints, jitter,
            spread if a["tell_nr"] == UNTOLD else 0, flip_hint if a["tell_hint"] == UNTOLD else 0,
        )  # fmt: skip
        late: Any = np.int64(0)
        if o["affine"] >= _AFFINE_IDLE:
            late = T[T_ASKED] + (T[T_WEIGHT] if o["affine"] >= _WEIGHT_THIS else 0)
        if evidence >= 0 and now < learn_until:
            g = m.cpus[o["target"]].llc
            _vote(m.llcs[g], votes, g, evidence)
        restore(m, a, log, hist)
        # The branch that explains the recording moves the recent CPU and the hint on.
        if o["recent"] >= 0:
            places[a["wakee"]]["recent"] = o["recent"]
        if o["waker_recent"] >= 0 and a["waker"] >= 0:
            places[a["waker"]]["recent"] = o["waker_recent"]
        target: Any = np.int64(o["x_target"])
        g = m.cpus[target].llc
        t = a["look"] + T[T_TARGET] + T[T_SIBLING]
        if o["why"] >= 0 and now < learn_until and o["asked"] & 2:
            hint_write(hints, g, t, o["hint"])
        shown = np.int64(o["shift"]) if now < learn_until else np.int64(0)
        for v in range(2):
            c = np.int64(a["prev_cpu"] if v == 0 else a["this_cpu"])
            other = m.cpus[c].llc
            nr = m.llcs[other].nr_idle_scan
            hint = hint_at(hints, other, t)
            if other == g and o["why"] >= 0 and now < learn_until:
                nr = np.int64(o["scan"])
                hint = np.int64(o["hint"])
            if v == 0:
                a["nr_prev"] = nr
                a["hint_prev"] = hint
            else:
                a["nr_this"] = nr
                a["hint_this"] = hint
        a["used_sync"] = o["sync"]
        if o["cleared"] == 1:
            hint_write(hints, g, min(a["look"] + T[T_CLEAR], a["limit"]), 0)
        at = compose(m, a, T, log, at, hist, n, target, late, shown)
    return at
