"""CFS bandwidth control (cpu.max), told from when tasks are let go.

A throttled group's tasks stay runnable while their CPU idles, until the group's period timer gives
it new quota (kernel/sched/fair.c: throttle_cfs_rq(), do_sched_cfs_period_timer()). No event tells
of it; what shows is a task switched out in R for the idle task, and several tasks of one process
that run again at once, whole periods apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = ["PERIODS_NS", "Throttling", "throttled"]

Array = npt.NDArray[Any]

#: Periods that are looked for, ns: the default first, then those that container runtimes and
#: systemd set (CPUQuotaPeriodSec, cpu-cfs-quota-period).
PERIODS_NS = (100_000_000, 50_000_000, 20_000_000, 10_000_000, 5_000_000)
#: Releases so many are needed …
FEWEST = 4
#: … of which so many are off the period's beat by no more than JITTER_NS.
SHARE = 0.9
JITTER_NS = 1_000_000
#: Releases within this time are one.
_AT_ONCE_NS = 1_000_000
#: Shorter waits on an idle CPU say nothing, ns.
_SHORT_NS = 1_000_000


@dataclass(frozen=True)
class Throttling:
    """``tasks``: bool[tasks], who is held back; ``groups``: (process or workload, period in ns)."""

    tasks: Array
    groups: tuple[tuple[str, int], ...]

    @property
    def warning(self) -> str:
        told = ", ".join(f"{name} every {ns / 1e6:g} ms" for name, ns in self.groups)
        return (
            f"looks like CPU bandwidth control (cpu.max), told from when tasks are let go: {told}"
        )


def beat(releases: Array) -> int:
    """The period of :data:`PERIODS_NS` that releases (int64[n], ns) come at; 0: none.

    The longest one that fits: what comes every 100 ms comes every 50 ms, too. By chance n random
    ones agree with p = (2 jitter / period) ** (n - 1), which FEWEST makes small enough.
    """
    releases = np.sort(releases)
    if len(releases):
        releases = releases[np.append(True, np.diff(releases) > _AT_ONCE_NS)]
    if len(releases) < FEWEST:
        return 0
    for period in PERIODS_NS:
        if period < 8 * JITTER_NS:
            continue
        phase = (releases - releases[0]) * (2 * np.pi / period)
        mean = np.angle(np.exp(1j * phase).mean())
        off = np.abs(np.angle(np.exp(1j * (phase - mean)))) * (period / (2 * np.pi))
        if (off <= JITTER_NS).mean() >= SHARE:
            return period
    return 0


def throttled(held: Array, timeline: Timeline) -> Throttling | None:
    """Who is held back by bandwidth control, if anybody is.

    Parameters
    ----------
    held : waits on an idle CPU (HELD of ``_idle_bins_state``)
    """
    held = held[held["end"] - held["start"] >= _SHORT_NS]
    if len(held) < FEWEST:
        return None
    tasks = timeline.tasks
    tgid, pid = tasks.column("tgid").to_pylist(), tasks.column("pid").to_pylist()
    group, comm = tasks.column("group").to_pylist(), tasks.column("comm").to_pylist()
    of: dict[tuple[str, object], list[int]] = {}
    for row, task in enumerate(held["task"].tolist()):
        # A limit is a cgroup's; what is known of who belongs together is the process, or the name.
        key = ("process", tgid[task]) if tgid[task] is not None else ("workload", group[task])
        of.setdefault(key if key[1] is not None else ("task", pid[task]), []).append(row)
    found, mine = [], np.zeros(tasks.num_rows, bool)
    for rows in of.values():
        period = beat(held["end"][rows])
        if period:
            members = np.unique(held["task"][rows])
            mine[members] = True
            found.append((str(comm[members[0]] or pid[members[0]]), period))
    return Throttling(mine, tuple(found)) if found else None
