"""A capture as a workload: what each task did, as a script that a model of the machine can run.

Per task a script of CPU bursts and sleeps (tables TASK and OP of ``_sim_state``). Each sleep ends
by an *edge* (a wakeup that another task did at a point of its own burst), a *delay* (an interrupt,
relative to the block), or an *arrival* (at a recorded instant). What wakeups and interrupts took
from the bursts is taken out: the model adds its own.

>>> from traceana import workload                      # doctest: +SKIP
>>> w = workload.extract(traceana.open("trace.dat"))   # doctest: +SKIP
>>> w.explained                                        # doctest: +SKIP
0.987
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import topology as topo
from traceana._sim_state import OP, TASK

if TYPE_CHECKING:
    import pyarrow as pa

    from traceana._workload_channels import Traffic
    from traceana.capture import Capture

__all__ = ["Workload", "extract"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Workload:
    """Tasks with their scripts.

    Attributes
    ----------
    tasks : TASK[n]
    script : OP[m]
        Rows of task i: ``tasks["first"][i]`` to ``tasks["end"][i]``.
    when : int64[m, 2]
        ns of the capture's clock at which a row was over, and, of a sleep, at which it was ended
        by its waking; NULL (-2**63) where that was not seen, and in what was never recorded.
    allowed : uint8[k, cpus]
        Sets of CPUs; ``tasks["allowed"]`` is the row, -1 any CPU.
    names : list of str, one per task
    topology : pyarrow.Table (schema.TOPOLOGY)
    begin_ns, span_ns : the recorded window
    counts : dict
        What became of the recorded wakeups: ``wakeups`` in all (births apart), of these ``edges``,
        ``early`` (woken while it ran), ``delays``, ``arrivals``, ``self``, ``without_sleep`` (an
        interrupt's, of a task that did not sleep), ``half_woken`` (begun before the window),
        ``unexplained``. Besides: ``servers`` and ``hubs``, of the requests to them those ``sent``
        (seen as wakeups) and ``inferred`` ones (with the silent tokens of pairs), ``lost_sleeps``
        (ended by nothing that was recorded), ``never_woken``, ``forks``, ``lost`` events.
    accounts : dict
        Where the tasks' recorded time on CPUs went, ns: ``cpu`` in all, ``script`` in bursts,
        ``wakes``, ``interrupts``, ``outliers`` taken out, ``leaving`` behind the dequeue.
    wake_ns : dict
        Outcome of a wakeup -> (ns that the shortest takes its waker, wakeups measured, measured or
        default); ``behind_`` the outcome: what of it lies behind its last record on that CPU.
    leaves : dict
        'task', 'pulled' (a newidle balance has pulled it), 'pulled_core' (from the own core),
        'all_idle', and of these 'idle' (at once) and 'sought' (a newidle balance has looked in
        vain): what runs next -> (17 quantiles of the time from the dequeue to sched_switch, how
        many).
    budgets : list of int
        nr_idle_scan of each LLC at the begin, as the first wakeups there show it; -1 not known.
    newidle : (int, int, int)
        Average idle time from which on newidle balances were tried, from which on they looked at
        the LLC, and its mean, ns; -1 not known.
    idle_flips : list of int
        wakee_flips of each CPU's idle task at the begin; empty: 0.
    traffic : list of Traffic
        Groups of tasks that exchange messages, as extraction found them. Not saved.
    """

    tasks: Array
    script: Array
    when: Array
    allowed: Array
    names: list[str]
    topology: pa.Table
    begin_ns: int
    span_ns: int
    counts: Mapping[str, int] = field(default_factory=dict)
    accounts: Mapping[str, int] = field(default_factory=dict)
    wake_ns: Mapping[str, tuple[int, int, bool]] = field(default_factory=dict)
    leaves: Mapping[str, tuple[list[int], int]] = field(default_factory=dict)
    budgets: list[int] = field(default_factory=list)
    newidle: tuple[int, int, int] = (-1, -1, -1)
    idle_flips: list[int] = field(default_factory=list)
    traffic: list[Traffic] = field(default_factory=list)

    @property
    def n_cpus(self) -> int:
        """CPUs of the machine that it was recorded on."""
        return topo.as_arrays(self.topology).n_cpus

    @property
    def explained(self) -> float:
        """Share of the recorded wakeups that the scripts contain."""
        whole = self.counts.get("wakeups", 0)
        return 1 - self.counts.get("unexplained", 0) / whole if whole else 1.0

    def save(self, path: str | Path) -> None:
        """Write it as a folder: tasks.parquet, script.parquet, topology.parquet, workload.json.

        Raises
        ------
        UsageError
            The folder is there and is no workload.
        InputError
            It cannot be written.
        """
        from traceana._workload_store import save

        save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Workload:
        """Read what :meth:`save` wrote.

        Raises
        ------
        InputError
            It cannot be read, or is damaged; says what is wrong.
        """
        from traceana._workload_store import load

        return load(Path(path))

    def cut(self, window: tuple[int, int]) -> Workload:
        """What happened from ``window[0]`` to ``window[1]``, ns of the capture's clock.

        Raises
        ------
        UsageError
            The window is empty, or outside of what was recorded.
        """
        from traceana._workload_change import cut

        return cut(self, window)

    def scaled(self, instances: int = 2) -> Workload:
        """So many copies of every task, each group of copies talking among themselves.

        Raises
        ------
        UsageError
            Fewer than one, or more tasks than a model holds.
        """
        from traceana._workload_change import scaled

        return scaled(self, instances)

    def on(self, topology: pa.Table) -> Workload:
        """The same workload on another machine: who ran on a CPU that is not there, waits on one
        that is; a set of allowed CPUs of which none is there becomes any CPU.
        """
        from traceana._workload_change import on

        return on(self, topology)

    def with_tables(self, tasks: Array, script: Array, when: Array, **other: Any) -> Workload:
        """The same with other tables."""
        return replace(self, tasks=tasks, script=script, when=when, **other)


def extract(
    cap: Capture, *, window: tuple[int, int] | None = None, known: Sequence[Traffic] = ()
) -> Workload:
    """Make the scripts of a capture's tasks.

    Parameters
    ----------
    cap : Capture
    window : ns of the capture's clock; default all of it
    known : what is known better of groups of tasks that exchange messages

    Raises
    ------
    MissingEventsError
        The capture holds no sched_switch, or no sched_waking.
    """
    from traceana._workload_build import build

    made = build(cap, known)
    return made if window is None else made.cut(window)


def tables(n: int, m: int) -> tuple[Array, Array]:
    """Empty TASK[n] and OP[m] with -1 where that is "none"."""
    tasks, script = np.zeros(n, TASK), np.zeros(m, OP)
    for name in ("allowed", "loop", "cpu", "last_wakee", "recent", "left"):
        tasks[name] = -1
    script["task"] = -1
    return tasks, script
