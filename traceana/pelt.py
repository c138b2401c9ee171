"""Utilisation and load as the kernel tracks them, rebuilt from events.

What wake_affine_weight() compares (a CPU's load) and what SIS_UTIL turns into a scan budget
(an LLC's utilisation) are not recorded; both follow from who ran where and when, in the
kernel's own integers (per-entity load tracking, section 4 of the semantics). This module has
the records and the plain-Python side; ``_pelt_kernels.py`` has the steps that a driver calls
in the order of events.

How exact it is: the arithmetic is the kernel's; the clock is not (times are wall times
without interrupt and steal time taken out, and not scaled by frequency), update instants are
those of the events at hand, and all loads begin unknown: with a start state from what it
says, else from 0 and within a few percent after 0.3 s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CFS",
    "NICE_0_WEIGHT",
    "STALE_NS",
    "TASK",
    "WEIGHTS",
    "Cfs",
    "Task",
    "make_cfs",
    "make_tasks",
    "scan_budget",
    "weight_of",
]

#: Load weight of a nice 0 task.
NICE_0_WEIGHT = 1024

#: Up to this age an idle CPU's sums are read as they stand (nohz statistics period).
STALE_NS = 32_000_000

#: sched_prio_to_weight: nice -20 … 19, each 1.25 times the next.
WEIGHTS = (
    *(88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916),
    *(9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277),
    *(1024, 820, 655, 526, 423, 335, 272, 215, 172, 137),
    *(110, 87, 70, 56, 45, 36, 29, 23, 18, 15),
)

Flag: TypeAlias = int


class Task:
    """One task, ``tasks[t]``."""

    last_update: int  # ns, PELT clock
    load_sum: int
    util_sum: int
    contrib: int  # part of a period already counted, in units of 1024 ns
    load_avg: int
    util_avg: int
    weight: int
    est_ewma: int  # util_est
    est_enqueued: int
    est_changed: int  # its utilisation has changed since the last estimate
    cpu: int  # whose sums it is part of; -1 none yet
    on_rq: int
    running: int


class Cfs:
    """The root fair queue of one CPU, ``cfs[c]``."""

    last_update: int
    load_sum: int
    util_sum: int
    contrib: int
    load_avg: int
    util_avg: int
    weight: int  # sum over its queued tasks
    nr: int  # queued fair tasks
    running: int  # a fair task is current
    removed: int  # sleepers that have left since the last update
    removed_load: int
    removed_util: int
    est: int  # sum of util_est over its queued tasks
    capacity: int
    lag: int  # since 6.0: who leaves while it is idle has decayed until then


def _record(view: type) -> np.dtype[Any]:
    fields = [(name, "i8") for name in view.__annotations__]
    return np.dtype((np.record, np.dtype(fields)))


#: dtypes of Task and Cfs.
TASK = _record(Task)
CFS = _record(Cfs)


def weight_of(prio: int) -> int:
    """Return the load weight of a kernel priority (100 … 139); others count as nice 0.

    >>> weight_of(120), weight_of(119), weight_of(139)
    (1024, 1277, 15)
    """
    return WEIGHTS[prio - 100] if 100 <= prio < 140 else NICE_0_WEIGHT


def make_tasks(n: int) -> NDArray[Any]:
    """Build TASK[n]: nice 0, part of no CPU's sums, no load yet."""
    tasks = np.zeros(n, TASK)
    tasks["weight"] = NICE_0_WEIGHT
    tasks["cpu"] = -1
    return tasks


def make_cfs(
    n_cpus: int, start_ns: int, capacity: NDArray[Any] | int = 1024, *, lag: bool = True
) -> NDArray[Any]:
    """Build CFS[n_cpus]: empty queues, whose clocks begin at start_ns; `lag`: since 6.0."""
    cfs = np.zeros(n_cpus, CFS)
    cfs["lag"] = lag
    cfs["last_update"] = start_ns
    cfs["capacity"] = capacity
    return cfs


def scan_budget(sum_util: int, weight: int, pct: int = 117) -> int:
    """Return nr_idle_scan: how many CPUs of an LLC a scan looks at (SIS_UTIL, since 6.0).

    Parameters
    ----------
    sum_util : int
        Sum of the CPUs' utilisations, a whole CPU being 1024.
    weight : int
        CPUs of the LLC.
    pct : int
        imbalance_pct of its domain: 117, or 110 where the LLC is one SMT core.

    >>> scan_budget(5100, 8), scan_budget(0, 8), scan_budget(8 * 900, 8)
    (3, 8, 0)
    """
    x = sum_util // weight
    t = min(x * x * pct * pct // 10_240_000, 1024)
    return (1024 - t) * weight // 1024
