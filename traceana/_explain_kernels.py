"""One decision looked at closely: the state kept, the kernel's path walked step by step."""

from __future__ import annotations

from typing import Any

from traceana._jit import njit
from traceana.rules._path_kernels import (
    compare_weights,
    has_idle_core,
    idle_cpu,
    scan_budget,
    scan_llc,
    select_idle_last,
    select_idle_near,
    share_cache,
    wake_affine_idle,
    wake_affine_weight,
    wake_wide,
    wants_affine,
)
from traceana.rules._state import MACHINE, NONE, WAKEUP, Machine, Wakeup
from traceana.rules.interface import RECORDED, Params

__all__ = ["KEEP_WORDS", "PATH", "keep", "walk"]

_W_WORDS = WAKEUP.itemsize // 8
_M_WORDS = MACHINE.itemsize // 8

#: p of ``keep``: time and wakee of the wakeup to keep, whether it was met, then w, then m.
KEEP_WORDS = 3 + _W_WORDS + _M_WORDS

#: What ``walk`` writes.
PATH = (
    "wide", "affine_asked", "affine", "idle_answer", "weight_asked", "weight_answer", "this_eff",
    "prev_eff", "target", "near", "near_step", "budget", "scan", "cpu", "step", "this_idle",
    "prev_idle", "share", "hint", "recent_idle", "target_idle",
)  # fmt: skip


@njit
def keep(w: Wakeup, m: Machine, p: Params) -> tuple[int, int]:
    """A rule that moves nothing: keeps *w* and *m* of one wakeup behind p[2]."""
    if p[2] == 0 and w.ts == p[0] and w.wakee == p[1]:
        p[2] = 1
        words: Any = p
        words[3 : 3 + _W_WORDS].view(WAKEUP)[0] = w
        words[3 + _W_WORDS : 3 + _W_WORDS + _M_WORDS].view(MACHINE)[0] = m
    return w.recorded_cpu, RECORDED


@njit
def walk(wakeups: Any, machines: Any, out: Any) -> None:
    """Walk the kernel's own path for wakeups[0] and write what each step said (PATH) into out."""
    w = wakeups[0]
    m = machines[0]
    this, prev = w.this_cpu, w.prev_cpu
    out[:] = -1
    out[0] = 1 if wake_wide(w, m) else 0
    asked = wants_affine(w, m)
    out[1] = 1 if asked else 0
    target = prev
    out[4] = 0
    if asked:
        answer = wake_affine_idle(w, m)
        out[3] = answer
        if answer == NONE:
            out[4] = 1
            answer = wake_affine_weight(w, m)
            out[5] = answer
            a, b = m.cpus[this], m.cpus[prev]
            pct = m.pct_smt if a.core == b.core else m.pct
            _, out[6], out[7] = compare_weights(
                a.load,
                w.waker_load,
                b.load,
                w.wakee_load,
                w.sync != 0,
                a.capacity,
                b.capacity,
                pct,
                m.wa_bias != 0,
            )
        if answer != NONE:
            target = answer
    out[2] = w.affine
    w.target = target
    out[8] = target
    cpu = select_idle_near(w, m, target)
    out[9] = cpu
    out[10] = w.step
    if cpu == NONE:
        nr = scan_budget(w, m, target)
        out[11] = nr
        cpu = scan_llc(w, m, target, nr)
        out[12] = cpu
        if cpu == NONE:
            cpu = select_idle_last(w, m, target)
    out[13] = cpu
    out[14] = w.step
    out[15] = 1 if idle_cpu(m, this) else 0
    out[16] = 1 if idle_cpu(m, prev) else 0
    out[17] = 1 if share_cache(m, this, prev) else 0
    out[18] = 1 if has_idle_core(m, target) else 0
    if w.recent_cpu >= 0 and w.recent_cpu < m.n_cpus:
        out[19] = 1 if idle_cpu(m, w.recent_cpu) else 0
    out[20] = 1 if idle_cpu(m, target) else 0
