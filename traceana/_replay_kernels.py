"""Asks a rule at each decision, on the states that settle() has written down."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana._jit import numba, step
from traceana._replay_state import ASK, LOG, OUTCOME
from traceana.rules.interface import (
    BLOCKED_BY,
    DECIDE,
    MACHINES_TYPE,
    PARAMS_TYPE,
    UNCOMPILED,
    WAKEUPS_TYPE,
    Step,
)

__all__ = ["replay"]

EXACT, POSSIBLE = 0, 1
#: Flips that make any pair wide, to ask what an unknown count could do.
WIDE = 1 << 40
_SIBLING = Step.SIBLING

types, typeof = numba.types, numba.typeof

#: One signature for all rules: the driver is compiled once and cached (design section 6).
_SIGNATURE: Any = types.void(
    typeof(np.zeros(1, LOG)), typeof(np.zeros(1, ASK)), MACHINES_TYPE, WAKEUPS_TYPE,
    PARAMS_TYPE, DECIDE, BLOCKED_BY, typeof(np.zeros(1, OUTCOME)),
)  # fmt: skip


def _compiled(function: Any) -> Any:
    return function if UNCOMPILED else numba.njit(_SIGNATURE, nogil=True, cache=True)(function)


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
    w.recorded_cpu = a["recorded"]
    w.task_ctx = a["task_ctx"]
    w.waker_percpu_kthread = a["kthread"]
    w.waker_last_is_wakee = 1
    w.wakee_last_is_waker = a["woke_back"]
    # Where nothing tells: as if set, which keeps the rules behind the sync step from firing.
    w.sync = a["used_sync"]
    w.recent_cpu = a["recent"]
    w.restricted = 0
    w.waker_load = a["waker_load"]
    w.wakee_load = a["wakee_load"]
    m.cpus[a["this_cpu"]].load = a["this_load"]
    m.cpus[a["prev_cpu"]].load = a["prev_load"]
    row = m.llcs[m.cpus[a["this_cpu"]].llc]
    row.nr_idle_scan = a["nr_this"]
    row.idle_core = a["hint_this"]
    row = m.llcs[m.cpus[a["prev_cpu"]].llc]
    row.nr_idle_scan = a["nr_prev"]
    row.idle_core = a["hint_prev"]


@step
def _hangs_on_unknown(w: Any, m: Any, p: Any, decide: Any, a: Any, cpu: int, early: bool) -> bool:
    """Whether another value of something that no event tells gives another CPU."""
    if a["waker_dur"] < 0 or a["wakee_dur"] < 0:
        return True
    row_p, row_t = m.llcs[m.cpus[a["prev_cpu"]].llc], m.llcs[m.cpus[a["this_cpu"]].llc]
    scan_p, scan_t = row_p.nr_idle_scan, row_t.nr_idle_scan
    other: Any = np.int64(cpu)
    if a["sync"] == 2:
        w.sync = 1 - a["used_sync"]
        other, _ = decide(w, m, p)
        w.sync = a["used_sync"]
    for v in range(0 if early else 2):
        if other != cpu:
            break
        d = 1 - 2 * v
        row_p.nr_idle_scan = max(scan_p + d, 0)
        row_t.nr_idle_scan = max(scan_t + d, 0)
        other, _ = decide(w, m, p)
        row_p.nr_idle_scan = scan_p
        row_t.nr_idle_scan = scan_t
    if other == cpu and (a["waker_flips"] < 0 or a["wakee_flips"] < 0):
        w.waker_flips = WIDE
        w.wakee_flips = 1 << 20
        other, _ = decide(w, m, p)
        w.waker_flips = a["waker_flips"]
        w.wakee_flips = a["wakee_flips"]
    return other != cpu


@step
def _hangs_on_cpus(w: Any, m: Any, p: Any, decide: Any, cpu: int) -> bool:
    """The same for CPUs of which nothing is known: as if idle (2 marks them)."""
    some = False
    for c in range(m.n_cpus):
        k = m.cpus[c]
        if k.curr < 0 and k.idle == 0 and k.nr == 0 and k.online == 1:
            k.idle = 2
            some = True
    if not some:
        return False
    other, _ = decide(w, m, p)
    for c in range(m.n_cpus):
        if m.cpus[c].idle == 2:
            m.cpus[c].idle = 0
    return other != cpu


@_compiled
def replay(
    log: Any, asks: Any, machines: Any, wakeups: Any, p: Any, decide: Any, blocked_by: Any, out: Any
) -> None:
    """Put each logged state in place; at each decision ask ``decide`` and write ``out``.

    Parameters
    ----------
    log : LOG[k], as settle() wrote it
    asks : ASK[n]; out : OUTCOME[n], written
    machines : MACHINE[1]; wakeups : WAKEUP[1]
    p : int64[:], parameters of the rule
    decide : DECIDE; blocked_by : BLOCKED_BY
    """
    m = machines[0]
    w = wakeups[0]
    unknown = 0
    c: Any
    for c in range(m.n_cpus):
        unknown += m.cpus[c].online
    known = np.zeros(m.n_cpus, np.uint8)
    for i in range(log.shape[0]):
        x = log[i]
        c = np.int64(x["cpu"])
        if c >= 0:
            k = m.cpus[c]
            k.curr_dur = x["aux"]
            k.curr = x["curr"]
            k.nr = x["nr"]
            k.idle = x["idle"]
            k.pending = x["pending"]
            k.booked = x["booked"]
            if known[c] == 0 and (k.idle == 1 or k.curr >= 0 or k.nr > 0):
                known[c] = 1
                unknown -= k.online
            continue
        a = asks[x["aux"]]
        o = out[x["aux"]]
        _fill(w, m, a)
        w.step = 0
        cpu, reason = decide(w, m, p)
        early = 0 < w.step <= _SIBLING
        o["cpu"] = cpu
        o["reason"] = reason
        o["ahead"] = m.cpus[cpu].nr + m.cpus[cpu].pending if 0 <= cpu < m.n_cpus else 0
        o["blocked"] = blocked_by(w, m, p)
        possible = _hangs_on_unknown(w, m, p, decide, a, cpu, early)
        if not possible and unknown > 0:
            possible = _hangs_on_cpus(w, m, p, decide, cpu)
        o["certainty"] = POSSIBLE if possible else EXACT
