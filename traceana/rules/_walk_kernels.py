"""The kernel's path with a rule's own steps put in: ``decide`` and ``blocked_by`` of such rules.

A rule that changes single steps of the path (STEPS in its file) gives a function for each. They
are called here, at these places (PLACES of ``_text.py``), in the order of select_task_rq_fair():

    wake_wide       instead of wake_wide(): 1 wide, 0 not
    sync            instead of WF_SYNC in the sync test of wake_affine_idle(): 1 or 0
    before_prev     behind the sync test, before the test whether prev_cpu is idle: the target
    after_prev      at the end of wake_affine_idle(): the target
    weight          at the head of wake_affine_weight(): 1 pull, 0 no opinion
    after_weight    where wake_affine_weight() has no opinion: the target
    before_scan     where no CPU was found before the scan: the CPU, final
    budget          instead of scan_budget(): as it answers
    in_scan         in select_idle_cpu(), the budget not being 0: the CPU, final

Each answers with NONE where it has no opinion: then the next rule of a combination is asked, in
the order in which they are named, and at last the kernel's step decides.

This pair of functions is compiled once for all such rules and their combinations. The steps are
reached by their addresses, which stand behind the parameters in *p* (see ``_steps.py``):

    p[-1]  MAGIC;  p[-2]  where the program begins
    program: for each place, and one more, the index of its first entry; then for each rule its
    blocked_by: its first entry's index, and the end
    entry of a place: address, first and last + 1 parameter, reason and reason of "same" for an
    answer 0, the two for any other
    entry of a blocked_by: address, first and last + 1 parameter, how far its bits are shifted

In the open loop (``w.recorded_cpu >= 0``) a step that leads where the kernel's own would have led
changes nothing: the reason is then the one of "same", and the wakeup stays where it was recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba import extending
from numba.core import cgutils

from traceana._jit import njit, numba, step
from traceana.rules._path_kernels import (
    affine_obstacles,
    begin,
    cpu_allowed,
    prev_cpu_idle,
    scan_budget,
    scan_llc,
    select_idle_last,
    select_idle_near,
    select_target,
    this_cpu_idle,
    wake_affine_weight,
    wake_wide,
    waker_alone,
    wants_affine_if,
)
from traceana.rules._state import NONE, Affine, Machine, Step, Wakeup
from traceana.rules.interface import (
    MACHINE_TYPE,
    MAINLINE,
    PARAMS_TYPE,
    RECORDED,
    UNCOMPILED,
    WAKEUP_TYPE,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from traceana.rules.interface import Params

__all__ = ["ENTRY", "FUNCTIONS", "MAGIC", "blocked_by", "decide"]

#: Places of the path, in the order of PLACES; then what a program says of each rule as a whole.
WAKE_WIDE, SYNC, BEFORE_PREV, AFTER_PREV, WEIGHT, AFTER_WEIGHT = range(6)
BEFORE_SCAN, BUDGET, IN_SCAN, BLOCKED, END = range(6, 11)

#: Numbers per entry, and its parts.
ENTRY = 7
_ADDRESS, _FIRST, _LAST, _REASON, _SHIFT = 0, 1, 2, 3, 3

#: Marks a *p* that has a program at its end.
MAGIC = 0x7472616365616E61

_SYNC_STEP, _RULE_TARGET = Affine.SYNC, Affine.RULE
_RULE_CPU, _OVERLOADED = Step.RULE, Step.OVERLOADED

_types: Any = numba.types
_ir: Any = getattr(cgutils, "ir")  # noqa: B009  (llvmlite's, not exported by name)

#: The steps themselves, where nothing is compiled; their "addresses" are indices.
FUNCTIONS: list[Callable[..., int]] = []


def _call_plain(address: int, w: Wakeup, m: Machine, p: Params) -> int:
    return FUNCTIONS[address](w, m, p)


def _call_compiled(typing: Any, address: Any, w: Any, m: Any, p: Any) -> Any:
    """Call the function at an address: int64(w, m, p), as numba's C wrappers take them."""
    signature = _types.int64(_types.int64, WAKEUP_TYPE, MACHINE_TYPE, PARAMS_TYPE)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = [context.get_value_type(kind) for kind in signature.args[1:]]
        function = _ir.FunctionType(context.get_value_type(signature.return_type), kinds)
        pointer = builder.inttoptr(arguments[0], function.as_pointer())
        return builder.call(pointer, arguments[1:])

    return signature, generate


_call: Any = _call_plain if UNCOMPILED else extending.intrinsic(_call_compiled)


@step
def _program(p: Params) -> int:
    """Where the program begins in p; -1: there is none."""
    n = p.shape[0]
    if n < 3 or p[n - 1] != MAGIC:
        return -1
    return int(p[n - 2])


@step
def _has(p: Params, head: int, place: int) -> bool:
    return head >= 0 and p[head + place] < p[head + place + 1]


@step
def _ask(w: Wakeup, m: Machine, p: Params, head: int, place: int) -> tuple[int, int]:
    """What the rules say at a place, and the index of the reason (-1: no opinion)."""
    if head < 0:
        return NONE, -1
    for at in range(p[head + place], p[head + place + 1], ENTRY):
        answer = _call(p[at + _ADDRESS], w, m, p[p[at + _FIRST] : p[at + _LAST]])
        if answer != NONE:
            return answer, at + _REASON + (0 if answer == 0 else 2)
    return NONE, -1


@step
def _choose_target(w: Wakeup, m: Machine, p: Params, head: int) -> int:
    """The first half of the path; index of the reason of the last step that spoke, or -1."""
    begin(w)
    spoke = -1
    wide = wake_wide(w, m)
    answer, at = _ask(w, m, p, head, WAKE_WIDE)
    if at >= 0:
        # Only where there is something to choose.
        if (wide or answer != 0) and (
            w.this_cpu != w.prev_cpu
            and cpu_allowed(w, w.this_cpu)
            and m.cpus[w.this_cpu].zone == m.cpus[w.prev_cpu].zone
        ):
            spoke = at
        wide = answer != 0
    target = w.prev_cpu
    if wants_affine_if(w, m, wide):
        answer = int(NONE)
        if m.wa_idle != 0:
            answer = this_cpu_idle(w, m)
            if answer == NONE and waker_alone(w, m):
                sync = w.sync != 0
                verdict, at = _ask(w, m, p, head, SYNC)
                if at >= 0:
                    if (verdict != 0) != sync:
                        spoke = at
                    sync = verdict != 0
                if sync:
                    w.affine = _SYNC_STEP
                    answer = w.this_cpu
            if answer == NONE:
                answer, at = _ask(w, m, p, head, BEFORE_PREV)
                if at < 0:
                    answer = prev_cpu_idle(w, m)
                    if answer == NONE:
                        answer, at = _ask(w, m, p, head, AFTER_PREV)
                if at >= 0:
                    w.affine = _RULE_TARGET
                    spoke = at
        if answer == NONE:
            at = -1
            if m.wa_weight != 0:
                verdict, at = _ask(w, m, p, head, WEIGHT)
            if at >= 0:
                w.affine = _RULE_TARGET
                spoke = at
                if verdict != 0:
                    answer = w.this_cpu
            else:
                answer = wake_affine_weight(w, m)
            if answer == NONE:
                answer, at = _ask(w, m, p, head, AFTER_WEIGHT)
                if at >= 0:
                    w.affine = _RULE_TARGET
                    spoke = at
        if answer != NONE:
            target = answer
    w.target = target
    return spoke


@step
def _same_target(w: Wakeup, m: Machine) -> bool:
    """Whether the kernel's own steps lead to the same target."""
    affine, target, waker_recent = w.affine, w.target, w.waker_recent_after
    same = select_target(w, m) == target
    w.affine = affine
    w.target = target
    w.waker_recent_after = waker_recent
    return same


@step
def _scan(w: Wakeup, m: Machine, target: int, nr: int) -> int:
    """The scan with a given budget, and what stands where it finds nothing."""
    cpu = scan_llc(w, m, target, nr)
    if cpu == NONE:
        cpu = select_idle_last(w, m, target)
    return cpu


@step
def _scans_differ(w: Wakeup, m: Machine, target: int, a: int, b: int) -> bool:
    return a != b and _scan(w, m, target, a) != _scan(w, m, target, b)


@njit
def decide(w: Wakeup, m: Machine, p: Params) -> tuple[int, int]:
    """Return (CPU, index of REASONS) of the rules whose steps stand in *p*."""
    head = _program(p)
    recorded = w.recorded_cpu
    spoke = _choose_target(w, m, p, head)
    reason = int(MAINLINE)
    moves = False
    if spoke >= 0:
        moves = recorded < 0 or not _same_target(w, m)
        reason = int(p[spoke]) if moves else int(p[spoke + 1])
    stay = int(RECORDED) if spoke < 0 else reason
    searches = _has(p, head, BEFORE_SCAN) or _has(p, head, BUDGET) or _has(p, head, IN_SCAN)
    if recorded >= 0 and not moves and not searches:
        return recorded, stay

    target = w.target
    cpu = select_idle_near(w, m, target)
    if cpu == NONE:
        answer, at = _ask(w, m, p, head, BEFORE_SCAN)
        if at >= 0:
            w.step = _RULE_CPU
            return answer, int(p[at])
        kernels = scan_budget(w, m, target)
        nr, budget = _ask(w, m, p, head, BUDGET)
        if budget < 0:
            nr = kernels
        else:
            w.step = 0 if nr > 0 else _OVERLOADED
        if nr > 0:
            answer, at = _ask(w, m, p, head, IN_SCAN)
            if at >= 0:
                w.step = _RULE_CPU
                return answer, int(p[at])
        if recorded >= 0 and not moves:
            if budget < 0:
                return recorded, stay
            if not _scans_differ(w, m, target, nr, kernels):
                return recorded, int(p[budget + 1])
            w.step = 0
            return _scan(w, m, target, nr), int(p[budget])
        cpu = _scan(w, m, target, nr)
        if budget >= 0 and not moves and nr != kernels:
            reason = int(p[budget])
    if recorded >= 0 and not moves:
        return recorded, stay
    return cpu, reason


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met, of all rules in *p*.

    What most of them ask for is found out once and stands in *w*: ``target`` (where the search
    starts under these rules), ``obstacles``, ``pulled``, ``near``, ``near_this``,
    ``scan_differs``.
    """
    head = _program(p)
    if head < 0:
        return 0
    _choose_target(w, m, p, head)
    target = w.target
    w.near = 0
    w.near_this = 0
    w.scan_differs = 0
    budget = _has(p, head, BUDGET)
    if budget or _has(p, head, BEFORE_SCAN) or _has(p, head, IN_SCAN):
        w.near = 1 if select_idle_near(w, m, target) != NONE else 0
        if budget:
            kernels = scan_budget(w, m, target)
            nr, at = _ask(w, m, p, head, BUDGET)
            if at >= 0 and _scans_differ(w, m, target, nr, kernels):
                w.scan_differs = 1
        w.near_this = w.near
        if target != w.this_cpu:
            w.near_this = 1 if select_idle_near(w, m, w.this_cpu) != NONE else 0
    w.obstacles = affine_obstacles(w, m)
    w.pulled = 1 if wake_affine_weight(w, m) != NONE else 0
    w.target = target
    bits = 0
    for at in range(p[head + BLOCKED], p[head + END], ENTRY):
        own = _call(p[at + _ADDRESS], w, m, p[p[at + _FIRST] : p[at + _LAST]])
        bits |= own << p[at + _SHIFT]
    return bits
