"""What a rule file imports: the kernel's steps, the names of their answers, the signature.

A rule is either a whole path of its own, or the kernel's with single steps put in. The first is
a function ``decide(w, m, p) -> (cpu, reason)``, compiled with ``@njit``:

w : WAKEUP record
    This wakeup (waker, wakee, this_cpu, prev_cpu, sync, the wakee's allowed CPUs …) and, in
    its last fields, what the steps report.
m : MACHINE record
    The machine as it stood: ``m.cpus[cpu]`` (idle, nr, curr_dur, load …), ``m.llcs[llc]``
    (weight, nr_idle_scan, idle_core …). Never written by a rule.
p : int64 array
    The rule's parameters, in the order of its PARAMS.

The answer is the CPU (int) and an index into the rule's REASONS, whose first two names are
always "recorded" and "mainline". ``w.recorded_cpu`` says which question is asked:

* open loop, ``w.recorded_cpu >= 0``: where the rule's own condition does not fire (or
  changes nothing), the answer is ``w.recorded_cpu`` with reason RECORDED;
* closed loop, ``w.recorded_cpu == -1``: the whole path decides; reason MAINLINE where the
  rule's own condition did not fire. A rule that has no path of its own may then answer
  (NONE, MAINLINE): the caller asks the rule ``mainline``.

A rule may also hold ``blocked_by(w, m, p) -> int``: a bit for each of its CONDITIONS that is
not met, each judged by itself, 0 where the rule fires. Steps write into *w*: call it after
the fields that ``decide`` reported have been read.

The driver calls both through numba first-class functions of the types DECIDE and BLOCKED_BY,
so that one compiled and cached driver serves all rules.

A rule that changes single steps says which in ``STEPS = {place: reason}`` and has, in place of
``decide``, a function ``place(w, m, p) -> int`` for each; the places, and what is answered there,
stand at the head of ``_walk_kernels.py``. Such rules can be combined. An answer of 0 or 1
(``wake_wide``, ``sync``, ``weight``) may have a reason of its own each: ``(reason of 0, of 1)``;
``REASON_same`` is the reason where the step changes nothing. Its ``blocked_by`` finds in *w*
what most conditions ask for (``w.obstacles`` and what follows it), and must not call steps that
write into *w*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from traceana._jit import njit, numba
from traceana.rules._path_kernels import (
    UNLIMITED,
    affine_obstacles,
    affine_unmet,
    affine_unmet_busy,
    affine_unmet_calm,
    available,
    compare_weights,
    cpu_allowed,
    flips_wide,
    flips_wide_2013,
    has_idle_core,
    idle_cpu,
    idle_sibling,
    scan_budget,
    scan_llc,
    select_idle_last,
    select_idle_near,
    select_idle_sibling,
    select_target,
    share_cache,
    short,
    wake_affine_idle,
    wake_affine_weight,
    wake_wide,
    waker_alone,
    wants_affine,
)
from traceana.rules._state import MACHINE, NONE, WAKEUP, Affine, Machine, Step, Wakeup

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "AFFINE_RULE",
    "BLOCKED_BY",
    "DECIDE",
    "MACHINE",
    "MACHINES_TYPE",
    "MACHINE_TYPE",
    "MAINLINE",
    "NONE",
    "PARAMS_TYPE",
    "RECORDED",
    "STEP_RULE",
    "UNCOMPILED",
    "UNLIMITED",
    "WAKEUP",
    "WAKEUPS_TYPE",
    "WAKEUP_TYPE",
    "Affine",
    "Machine",
    "Params",
    "Step",
    "Wakeup",
    "affine_obstacles",
    "affine_unmet",
    "affine_unmet_busy",
    "affine_unmet_calm",
    "available",
    "compare_weights",
    "cpu_allowed",
    "flips_wide",
    "flips_wide_2013",
    "has_idle_core",
    "idle_cpu",
    "idle_sibling",
    "njit",
    "scan_budget",
    "scan_llc",
    "select_idle_last",
    "select_idle_near",
    "select_idle_sibling",
    "select_target",
    "share_cache",
    "short",
    "wake_affine_idle",
    "wake_affine_weight",
    "wake_wide",
    "waker_alone",
    "wants_affine",
]

#: The first two of every rule's REASONS.
RECORDED, MAINLINE = 0, 1

#: ``w.affine`` and ``w.step`` of a step that a rule put in.
AFFINE_RULE, STEP_RULE = Affine.RULE, Step.RULE

#: What *p* is to a type checker.
Params: TypeAlias = "NDArray[np.int64]"

# numba's own annotations are partial.
_types: Any = numba.types
_typeof: Any = numba.typeof
_config: Any = numba.config

#: Whether kernels run as plain Python (TRACEANA_JIT=0).
UNCOMPILED = bool(_config.DISABLE_JIT)

#: numba types of w, m, p, and of the arrays that hold w and m.
WAKEUPS_TYPE: Any = _typeof(np.zeros(1, WAKEUP))
MACHINES_TYPE: Any = _typeof(np.zeros(1, MACHINE))
WAKEUP_TYPE: Any = WAKEUPS_TYPE.dtype
MACHINE_TYPE: Any = MACHINES_TYPE.dtype
PARAMS_TYPE: Any = _types.int64[::1]

#: First-class function types of ``decide`` and ``blocked_by``.
DECIDE: Any = _types.FunctionType(
    _types.UniTuple(_types.int64, 2)(WAKEUP_TYPE, MACHINE_TYPE, PARAMS_TYPE)
)
BLOCKED_BY: Any = _types.FunctionType(_types.int64(WAKEUP_TYPE, MACHINE_TYPE, PARAMS_TYPE))
