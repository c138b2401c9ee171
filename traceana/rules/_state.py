"""What a rule sees: the records *w* (this wakeup) and *m* (the machine as it stood).

Both are numpy records of one fixed dtype, so that a compiled driver can call any rule
through a function pointer of one fixed type (see :mod:`traceana.rules.interface`), and so
that the same rule runs uncompiled. Records are passed by address: no reference counting,
a few nanoseconds a call.

Conventions: numbers are int64, flags uint8; -1 is unknown or none; durations are in ns; loads
and utilisations are the kernel's own integers (a whole CPU is 1024).
This module needs numpy only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from traceana.rules._forms import Forms

__all__ = [
    "CPU",
    "LLC",
    "MACHINE",
    "MAX_CPUS",
    "NONE",
    "WAKEUP",
    "Affine",
    "Cpu",
    "Llc",
    "Machine",
    "Step",
    "Wakeup",
    "allow",
    "make_machine",
    "make_wakeups",
]

#: Largest number of CPUs that the records have room for.
MAX_CPUS = 2048

#: "No opinion" of a step, and "unknown" of a CPU.
NONE = -1


class Affine:
    """``w.affine``: what decided the target (section 6.2 and 6.3 of the semantics)."""

    UNSET = 0
    WIDE = 1  # wake_wide(): wake_affine() not asked
    THIS_NOT_ALLOWED = 2  # the wakee may not run on this_cpu
    THIS_IS_PREV = 3  # nothing to choose
    NO_DOMAIN = 4  # prev_cpu lies beyond the last wake-affine domain
    IDLE = 5  # wake_affine_idle(): this_cpu idle, same LLC
    SYNC = 6  # wake_affine_idle(): the waker is alone and will sleep
    PREV_IDLE = 7  # wake_affine_idle(): prev_cpu idle (since 5.11)
    WEIGHT_THIS = 8  # wake_affine_weight(): this_cpu is the less loaded
    WEIGHT_PREV = 9  # wake_affine_weight(): no opinion, so prev_cpu
    RULE = 10  # the step that the rule put in

    NAMES = (
        "unset",
        "wide",
        "this_not_allowed",
        "this_is_prev",
        "no_domain",
        "idle",
        "sync",
        "prev_idle",
        "weight_this",
        "weight_prev",
        "rule",
    )


class Step:
    """``w.step``: where the idle search ended (section 6.4 and 6.6)."""

    UNSET = 0
    TARGET_IDLE = 1
    PREV_IDLE = 2
    KTHREAD = 3
    RECENT = 4
    NO_LLC = 5  # no LLC domain at the target: no search
    SIBLING = 6  # select_idle_smt()
    OVERLOADED = 7  # nr_idle_scan is 0: no scan, the target stands
    CORE = 8  # a whole idle core
    CORE_REST = 9  # no idle core; an idle CPU met on the way
    CPU = 10  # the CPU scan
    BUDGET = 11  # the scan ran out of its budget; the target stands
    FALLBACK = 12  # nothing idle; the target stands
    CLUSTER_PREV = 13  # prev_cpu, remembered by step 2 on a cluster machine (since 6.7)
    CLUSTER_RECENT = 14  # the recent CPU, remembered by step 4 (since 6.7)
    RULE = 15  # the step that the rule put in

    NAMES = (
        "unset",
        "target_idle",
        "prev_idle",
        "kthread",
        "recent",
        "no_llc",
        "sibling",
        "overloaded",
        "core",
        "core_rest",
        "cpu",
        "budget",
        "fallback",
        "cluster_prev",
        "cluster_recent",
        "rule",
    )


#: 0 or 1, held in one byte.
Flag: TypeAlias = int


class Wakeup:
    """One wakeup, *w*. The last block is written by the steps: what the path did."""

    ts: int  # ns, sched_waking
    waker: int  # dense task ids
    wakee: int
    this_cpu: int  # where the wakeup is executed
    prev_cpu: int  # where the wakee last was
    recent_cpu: int  # the wakee's recent_used_cpu
    recorded_cpu: int  # where it went in the recording; -1: closed loop
    waker_dur: int  # ns, dur_avg of the task current on this_cpu
    wakee_dur: int  # ns
    waker_flips: int  # wakee_flips after record_wakee(); unknown counts as 0
    wakee_flips: int
    waker_load: int  # task_h_load()
    wakee_load: int
    wakee_util: int
    allowed: list[int]  # bit c%64 of word c//64; holds if `restricted`
    restricted: Flag  # 1: only the CPUs in `allowed`; 0: any
    sync: Flag  # WF_SYNC
    task_ctx: Flag  # 1: the waker itself woke; 0: an interrupt did
    waker_percpu_kthread: Flag
    waker_last_is_wakee: Flag  # last_wakee pointers, after record_wakee()
    wakee_last_is_waker: Flag
    wakee_sched_idle: Flag  # SCHED_IDLE class

    target: int  # where the idle search started
    affine: int  # Affine
    step: int  # Step
    hint_cleared: Flag  # the search cleared the idle-core hint of LLC(target)
    recent_after: int  # the wakee's recent_used_cpu afterwards
    waker_recent_after: int  # the waker's, -1 unchanged (kernels up to 5.14)
    held_prev: int  # scratch: prev_cpu remembered on a cluster machine
    held_recent: int

    # what a rule's blocked_by() is told (see _walk_kernels.py)
    obstacles: int  # affine_obstacles()
    pulled: Flag  # wake_affine_weight() would answer this_cpu
    near: Flag  # a CPU is found before the scan, the search starting at `target`
    near_this: Flag  # the same, had the search started at this_cpu
    scan_differs: Flag  # with the rule's budget the scan comes to another CPU


class Cpu:
    """One CPU, ``m.cpus[cpu]``: its state, then its place in the topology."""

    idle: Flag  # the idle task is current
    pending: Flag  # ttwu_pending: a remote wakeup waits in its wakelist
    sched_idle: Flag  # nothing but SCHED_IDLE tasks, at least one
    booked: int  # wakeups that chose it and that nobody can see yet; no kernel counts them
    nr: int  # nr_running: running and queued, all classes, idle task not counted
    delayed: int  # of these, blocked but not yet dequeued (since 6.12)
    curr: int  # current task (dense id), -1 idle or unknown
    curr_dur: int  # dur_avg of the current task, ns; 0 for the idle task
    curr_flips: int
    load: int  # load_avg of the root cfs queue
    util: int  # cpu_util()
    capacity: int  # capacity_of(), 1024 = a whole CPU

    core: int
    cluster: int
    llc: int  # row of m.llcs
    zone: int  # CPUs of one zone share a wake-affine domain
    node_weight: int  # CPUs of its NUMA node
    first_sibling: int  # lowest-numbered thread of the core
    next_sibling: int  # next thread of the core, ascending, then round
    next_cluster: int  # next CPU of the cluster, ascending, then round
    next_llc: int  # next CPU of the LLC, ascending, then round
    online: Flag


class Llc:
    """One last-level cache, ``m.llcs[llc]``."""

    weight: int  # CPUs in its domain (sd_llc_size)
    first: int  # lowest-numbered CPU
    nr_idle_scan: int  # SIS_UTIL's budget; -1 unknown
    prop_nr: int  # SIS_PROP's budget (visits one less); -1 no limit
    idle_core: int  # the idle-core hint, 0 or 1; -1 unknown, taken as 0
    sum_util: int  # what nr_idle_scan was computed from; -1 unknown


class Machine:
    """The machine as it stood, *m*; from `pct` on, which form each step has (`_forms.py`)."""

    n_cpus: int
    n_llcs: int
    smt: Flag  # sched_smt_present
    cluster_active: Flag
    booked_counts: Flag  # the idle test sees `booked`; no kernel does, a rule may set it
    cpus: list[Cpu]
    llcs: list[Llc]

    pct: int  # imbalance_pct of the domains above SMT
    pct_smt: int  # of the SMT domain
    release: int  # 1000 * major + minor
    wa_idle: Flag  # scheduler features
    wa_weight: Flag
    wa_bias: Flag
    prev_idle_answers: Flag
    sync_minus_delayed: Flag
    sched_idle_counts: Flag
    recent_form: Flag
    recent_checks_prev: Flag
    kthread_form: Flag
    merged_search: Flag
    sibling_of_prev: Flag
    scan_from_next: Flag
    budget_form: Flag


def _record(view: type, arrays: dict[str, tuple[Any, int]]) -> np.dtype[Any]:
    """Make the dtype of the records that a class above describes."""
    # np.record as scalar type: `row.field` also works in plain Python. Packed, wide fields
    # first: numba 0.68 cannot type an aligned record that holds an array of records. Numbers
    # are int64 and flags uint8 throughout, so that each step is compiled for one signature.
    wide: list[Any] = []
    flags: list[Any] = []
    for name, kind in view.__annotations__.items():
        if name in arrays:
            dtype, n = arrays[name]
            wide.append((name, dtype, (n,)))
        elif kind == "Flag":
            flags.append((name, "u1"))
        else:
            wide.append((name, "i8"))
    # Whole words, so that the records of an array begin on one.
    flags += [(f"_pad{i}", "u1") for i in range(-len(flags) % 8)]
    return np.dtype((np.record, np.dtype(wide + flags)))


#: dtypes of Wakeup, Cpu, Llc and Machine.
WAKEUP = _record(Wakeup, {"allowed": ("i8", MAX_CPUS // 64)})
CPU = _record(Cpu, {})
LLC = _record(Llc, {})
MACHINE = _record(Machine, {"cpus": (CPU, MAX_CPUS), "llcs": (LLC, MAX_CPUS)})


def _groups(ids: Sequence[int], online: Sequence[bool]) -> dict[int, list[int]]:
    """Online CPUs by id, ascending; in the order of their lowest CPU."""
    groups: dict[int, list[int]] = {}
    for cpu, ident in enumerate(ids):
        if online[cpu]:
            groups.setdefault(ident, []).append(cpu)
    return groups


def _rings(groups: dict[int, list[int]], n_cpus: int) -> tuple[list[int], list[int]]:
    """The next CPU of the own group, ascending and round; the first of it."""
    following, first = list(range(n_cpus)), list(range(n_cpus))
    for members in groups.values():
        for cpu, after in zip(members, members[1:] + members[:1], strict=True):
            following[cpu] = after
            first[cpu] = members[0]
    return following, first


def _dense(ids: Sequence[int]) -> list[int]:
    """Ids renumbered from 0 by first appearance."""
    rank: dict[int, int] = {}
    return [rank.setdefault(ident, len(rank)) for ident in ids]


def make_machine(
    n_cpus: int,
    *,
    forms: Forms,
    core: Sequence[int] | None = None,
    llc: Sequence[int] | None = None,
    cluster: Sequence[int] | None = None,
    zone: Sequence[int] | None = None,
    node: Sequence[int] | None = None,
    online: Sequence[bool] | None = None,
    isolated: Sequence[bool] | None = None,
    capacity: Sequence[int] | None = None,
) -> NDArray[Any]:
    """Build the machine record from topology arrays; all CPUs idle, budgets unknown.

    Parameters
    ----------
    n_cpus : int
        1 … MAX_CPUS.
    forms : Forms
        Which form each step has in the kernel at hand.
    core, llc, cluster, zone, node : sequence of int, length n_cpus
        Any ids; equal id = shared. Missing: no SMT, one LLC, no clusters, one zone, one node.
        An LLC's dense row in ``m.llcs`` is its rank by lowest CPU.
    online, isolated : sequence of bool
        Offline CPUs are in no domain; isolated ones are alone in theirs.
    capacity : sequence of int
        Of 1024.

    Returns
    -------
    MACHINE[1]
        ``result[0]`` is the record that rules call *m*.
    """
    if not 1 <= n_cpus <= MAX_CPUS:
        raise ValueError(f"{n_cpus} CPUs; 1 to {MAX_CPUS} can be handled")

    def column(given: Sequence[Any] | None, default: Sequence[Any]) -> list[int]:
        values = [int(x) for x in (default if given is None else given)]
        if len(values) != n_cpus:
            raise ValueError(f"topology of {len(values)} CPUs given for {n_cpus}")
        return values

    every, same = range(n_cpus), [0] * n_cpus
    on = [bool(x) for x in column(online, [1] * n_cpus)]
    cores = column(core, every)
    llcs, zones, clusters = column(llc, same), column(zone, same), column(cluster, every)
    for ids in (llcs, zones, clusters):
        free = max(ids) + 1
        for cpu, alone in enumerate(column(isolated, same)):
            if alone:
                ids[cpu] = free + cpu
    llc_rows = _dense(llcs)
    of_llc = _groups(llc_rows, on)
    of_core = _groups(cores, on)

    machine = np.zeros(1, MACHINE)
    m = machine[0]
    cpus = m["cpus"][:n_cpus]
    # Threads are siblings whether or not a domain spans them: the core test looks at all.
    cpus["next_sibling"], cpus["first_sibling"] = _rings(of_core, n_cpus)
    cpus["next_cluster"] = _rings(_groups(clusters, on), n_cpus)[0]
    cpus["next_llc"] = _rings(of_llc, n_cpus)[0]
    cpus["core"], cpus["cluster"] = _dense(cores), _dense(clusters)
    cpus["zone"], cpus["llc"] = _dense(zones), llc_rows
    for members in _groups(column(node, same), on).values():
        cpus["node_weight"][members] = len(members)
    cpus["capacity"] = column(capacity, [1024] * n_cpus)
    cpus["online"] = on
    cpus["idle"] = 1
    cpus["curr"] = -1

    m["n_cpus"] = n_cpus
    m["n_llcs"] = max(llc_rows) + 1
    rows = m["llcs"][: m["n_llcs"]]
    rows["nr_idle_scan"] = rows["prop_nr"] = rows["sum_util"] = -1
    for row in range(len(rows)):
        members = of_llc.get(row, [])
        rows[row]["weight"] = len(members)
        rows[row]["first"] = llc_rows.index(row)
    forms.apply(m)
    m["smt"] = any(len(members) > 1 for members in of_core.values())
    m["cluster_active"] = forms.cluster and cluster is not None
    return machine


def make_wakeups(n: int) -> NDArray[Any]:
    """Build n wakeup records with everything unknown.

    Returns
    -------
    WAKEUP[n]
        ``result[i]`` is the record that rules call *w*.
    """
    wakeups = np.zeros(n, WAKEUP)
    for name in (
        "waker_dur",
        "wakee_dur",
        "waker_flips",
        "wakee_flips",
        "waker_load",
        "wakee_load",
        "wakee_util",
        "waker",
        "wakee",
        "recent_cpu",
        "recorded_cpu",
        "waker_recent_after",
    ):
        wakeups[name] = -1
    wakeups["task_ctx"] = 1
    return wakeups


def allow(w: Any, cpus: Sequence[int]) -> None:
    """Restrict the wakee of the record to these CPUs."""
    w["restricted"] = 1
    words = [0] * (MAX_CPUS // 64)
    for cpu in cpus:
        words[cpu >> 6] |= 1 << (cpu & 63)
    w["allowed"] = np.array(words, dtype=np.uint64).view(np.int64)
