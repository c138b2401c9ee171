"""Walks the changes of state of a recording and asks a rule at each decision."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana._jit import numba, step
from traceana._pelt_kernels import (
    pelt_decay,
    pelt_dequeue,
    pelt_enqueue,
    pelt_move,
    pelt_seed,
    pelt_switch,
    pelt_tick,
    refresh_llc,
    task_h_load,
)
from traceana.pelt import CFS, TASK
from traceana.rules.interface import (
    BLOCKED_BY,
    DECIDE,
    MACHINES_TYPE,
    PARAMS_TYPE,
    UNCOMPILED,
    WAKEUPS_TYPE,
)

__all__ = [
    "ASK",
    "CHANGE",
    "CURR",
    "ENQ",
    "LOOK",
    "MOVE",
    "OFF",
    "OUT",
    "OUTCOME",
    "PEND",
    "PLACE",
    "replay",
]

#: Kinds of change: a task (or -1: the idle task) becomes current; the current task blocks; it is
#: switched out runnable; a task is queued; moved while queued; a wakelist fills or empties; and,
#: not a change, a wakeup looks for a CPU.
CURR, OFF, OUT, ENQ, MOVE, PEND, LOOK = range(7)

CHANGE = np.dtype([("ts", "i8"), ("aux", "i8"), ("what", "i4"), ("cpu", "i4"), ("task", "i4")])

#: What the timeline knows of a decision; ``sync`` 2 = either.
ASK = np.dtype(
    [
        ("ts", "i8"), ("waker_dur", "i8"), ("wakee_dur", "i8"), ("waker_flips", "i8"), ("wakee_flips", "i8"),
        ("waker", "i4"), ("wakee", "i4"), ("this_cpu", "i4"), ("prev_cpu", "i4"), ("recorded", "i4"),
        ("sync", "u1"), ("task_ctx", "u1"), ("kthread", "u1"), ("flips_known", "u1"),
    ]
)  # fmt: skip

OUTCOME = np.dtype(
    [
        ("cpu", "i4"), ("mainline", "i4"), ("reason", "i8"), ("blocked", "i8"), ("ahead", "i8"),
        ("affine", "i4"), ("step", "i4"), ("target", "i4"), ("nr_idle_scan", "i4"), ("idle_core", "i4"),
        ("nr_this", "i4"), ("certainty", "u1"),
    ]
)  # fmt: skip

#: Where the replay believes a task to be: CPU of its queue (-1: none), recent_used_cpu, its util seed.
PLACE = np.dtype([("queue", "i4"), ("recent", "i4"), ("seed", "i4"), ("fair", "i4")])

EXACT, POSSIBLE = 0, 1
#: Flips that make any pair wide, to ask what an unknown count could do.
WIDE = 1 << 40


types, typeof = numba.types, numba.typeof
_I64: Any = types.int64[::1]

#: One signature for all rules: the driver is compiled once and cached (design section 6).
_SIGNATURE: Any = types.void(
    typeof(np.zeros(1, CHANGE)), typeof(np.zeros(1, ASK)), MACHINES_TYPE, WAKEUPS_TYPE,
    typeof(np.zeros(1, TASK)), typeof(np.zeros(1, CFS)), typeof(np.zeros(1, PLACE)), _I64,
    _I64, _I64, PARAMS_TYPE, PARAMS_TYPE, DECIDE, BLOCKED_BY, DECIDE,
    types.int64, types.int64, typeof(np.zeros(1, OUTCOME)),
)  # fmt: skip


def _compiled(function: Any) -> Any:
    return function if UNCOMPILED else numba.njit(_SIGNATURE, nogil=True, cache=True)(function)


@step
def _queue(m: Any, places: Any, task: int, cpu: int) -> None:
    old = places[task]["queue"]
    if old == cpu:
        return
    if old >= 0:
        m.cpus[old].nr -= 1
    if cpu >= 0:
        m.cpus[cpu].nr += 1
    places[task]["queue"] = cpu


@step
def _idle_core(m: Any, cpu: int) -> bool:
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
    m: Any, tasks: Any, cfs: Any, places: Any, left: Any, cpu: int, task: int, dur: int, now: int
) -> None:
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
    if task < 0 and m.smt == 1:
        row = m.llcs[k.llc]
        if row.idle_core != 1 and _idle_core(m, cpu):
            row.idle_core = 1


@step
def _fill(w: Any, m: Any, a: Any, tasks: Any, cfs: Any, places: Any) -> None:
    w.ts = a["ts"]
    w.waker_dur = a["waker_dur"]
    w.wakee_dur = a["wakee_dur"]
    w.waker_flips = a["waker_flips"]
    w.wakee_flips = a["wakee_flips"]
    w.waker = a["waker"]
    w.wakee = a["wakee"]
    w.this_cpu = a["this_cpu"]
    w.prev_cpu = a["prev_cpu"]
    w.recorded_cpu = a["recorded"]
    w.task_ctx = a["task_ctx"]
    w.waker_percpu_kthread = a["kthread"]
    w.waker_last_is_wakee = 1
    # Not known: as if set, which keeps the rules behind the sync step from firing.
    w.sync = 0 if a["sync"] == 0 else 1
    w.recent_cpu = places[a["wakee"]]["recent"]
    w.restricted = 0
    w.waker_load = 0
    if a["waker"] >= 0:
        w.waker_load = task_h_load(tasks[a["waker"]], cfs[a["this_cpu"]])
    w.wakee_load = task_h_load(tasks[a["wakee"]], cfs[a["prev_cpu"]])


@step
def _budget(m: Any, cpu: int) -> int:
    return m.llcs[m.cpus[cpu].llc].nr_idle_scan


@_compiled
def replay(
    changes: Any, asks: Any, machines: Any, wakeups: Any, tasks: Any, cfs: Any, places: Any, left: Any,
    members: Any, starts: Any, p: Any, none: Any, decide: Any, blocked_by: Any, mainline: Any,
    first_ts: int, refresh: int, out: Any,
) -> None:  # fmt: skip
    """Apply changes in order; at each LOOK ask ``decide`` (and ``mainline``) and write ``out``.

    Parameters
    ----------
    changes : CHANGE[k], ascending ts; a LOOK's aux is its row in ``asks`` and ``out``
    asks : ASK[n]; out : OUTCOME[n], written
    machines : MACHINE[1]; wakeups : WAKEUP[1]; tasks, cfs : PELT records; places : PLACE[tasks]
    left : int64[cpus], scratch: 1 where the current task has blocked
    members, starts : int64, CPUs of each LLC in compressed form
    p, none : int64[:], parameters of the rule and of mainline
    decide, mainline : DECIDE; blocked_by : BLOCKED_BY
    first_ts, refresh : ns, begin of the window and period of nr_idle_scan
    """
    m = machines[0]
    w = wakeups[0]
    due = first_ts + refresh
    for i in range(changes.shape[0]):
        x = changes[i]
        now = x["ts"]
        cpu: Any = np.int64(x["cpu"])
        task: Any = np.int64(x["task"])
        what = x["what"]
        while now >= due:
            for g in range(m.n_llcs):
                refresh_llc(
                    m.llcs[g], cfs, members[starts[g] : starts[g + 1]], m.pct, due, 32_000_000
                )
            due += refresh
        if what == CURR:
            if now < first_ts and task >= 0:
                _queue(m, places, task, cpu)
            _set_current(m, tasks, cfs, places, left, cpu, task, x["aux"], now)
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
                    if tasks[task].cpu < 0 and places[task]["seed"] >= 0:
                        pelt_seed(
                            tasks, task, cfs, cpu, now, places[task]["seed"], places[task]["seed"]
                        )
                    pelt_enqueue(tasks, task, cfs, cpu, now)
        elif what == MOVE:
            if places[task]["queue"] >= 0:
                _queue(m, places, task, cpu)
                if places[task]["fair"] == 1:
                    pelt_move(tasks, task, cfs, cpu, now)
        elif what == PEND:
            m.cpus[cpu].pending = x["aux"]
        elif what == LOOK:
            n = x["aux"]
            a = asks[n]
            o = out[n]
            this, prev = a["this_cpu"], a["prev_cpu"]
            for c in (this, prev):
                k = m.cpus[c]
                if k.curr >= 0 and places[k.curr]["fair"] == 1:
                    pelt_tick(tasks, k.curr, cfs, c, now)
                else:
                    pelt_decay(cfs, c, now)
                k.load = cfs[c].load_avg
            _fill(w, m, a, tasks, cfs, places)
            o["nr_idle_scan"] = _budget(m, prev)
            o["idle_core"] = m.llcs[m.cpus[prev].llc].idle_core
            o["nr_this"] = m.cpus[this].nr
            cpu0, reason = decide(w, m, p)
            o["cpu"] = cpu0
            o["reason"] = reason
            o["ahead"] = m.cpus[cpu0].nr + m.cpus[cpu0].pending if cpu0 >= 0 else 0
            o["blocked"] = blocked_by(w, m, p)
            o["certainty"] = EXACT
            # What no event tells: the answer must not hang on it to be exact.
            sync = w.sync
            row_p, row_t = m.llcs[m.cpus[prev].llc], m.llcs[m.cpus[this].llc]
            scan_p, scan_t = row_p.nr_idle_scan, row_t.nr_idle_scan
            for v in range(6):
                if v == 0 and a["sync"] == 2:
                    w.sync = 0
                elif v == 1 or v == 2:
                    d = 1 if v == 1 else -1
                    row_p.nr_idle_scan = max(scan_p + d, 0)
                    row_t.nr_idle_scan = max(scan_t + d, 0)
                elif v == 3 and (a["waker_flips"] < 0 or a["wakee_flips"] < 0):
                    w.waker_flips = WIDE
                    w.wakee_flips = 1 << 20
                elif v == 4 and (a["waker_dur"] < 0 or a["wakee_dur"] < 0):
                    o["certainty"] = POSSIBLE
                    continue
                elif v == 5:
                    # CPUs of which nothing is known yet: as if idle (2 marks them).
                    some = 0
                    for c in range(m.n_cpus):
                        k = m.cpus[c]
                        if k.curr < 0 and k.idle == 0 and k.nr == 0 and k.online == 1:
                            k.idle = 2
                            some = 1
                    if some == 0:
                        continue
                else:
                    continue
                cpu1, _ = decide(w, m, p)
                if cpu1 != cpu0:
                    o["certainty"] = POSSIBLE
                if v == 5:
                    for c in range(m.n_cpus):
                        if m.cpus[c].idle == 2:
                            m.cpus[c].idle = 0
                w.sync = sync
                w.waker_flips = a["waker_flips"]
                w.wakee_flips = a["wakee_flips"]
                row_p.nr_idle_scan = scan_p
                row_t.nr_idle_scan = scan_t
            # The recording's own path moves the recent CPU and the hint on.
            _fill(w, m, a, tasks, cfs, places)
            w.recorded_cpu = -1
            cpu2, _ = mainline(w, m, none)
            o["mainline"] = cpu2
            o["affine"] = w.affine
            o["step"] = w.step
            o["target"] = w.target
            if w.recent_after >= 0:
                places[a["wakee"]]["recent"] = w.recent_after
            if w.waker_recent_after >= 0 and a["waker"] >= 0:
                places[a["waker"]]["recent"] = w.waker_recent_after
            if w.hint_cleared == 1 and w.target >= 0:
                m.llcs[m.cpus[w.target].llc].idle_core = 0
