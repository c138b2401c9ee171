"""The machine model: a workload runs on a simulated machine, under any rule, and leaves events.

Per-CPU run queues in the order of CFS (up to 6.5) or EEVDF, ticks, preemption, newidle and periodic
balance, and wakeups as the kernel does them: the CPUs are looked at at one instant, the booking is
seen by others at a later one. All in integers, with random costs from a generator of its own: the
same seed gives the same events on any machine.

    run = simulate(workload, Model(rule="sis_short_v5"), end_ns=50_000_000, seed=1)
    run.events        # a table as a capture's: everything else works on it

The workload's and the costs' form is in ``_sim_state``, the records of the running model in
``_sim_types``. What is not modelled: caches, frequency, groups with bandwidth limits, the slow
path of fork and exec beyond "an idle CPU of the LLC", priority inheritance, the deadline class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from traceana._sim_model import DEFAULT_COSTS, Layout, Model, constant_costs
from traceana._sim_setup import State, Work
from traceana._sim_truth import double_bookings, extra_delays
from traceana._sim_types import EVENT, FAR
from traceana.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from traceana.columns import EventColumns

__all__ = [
    "DEFAULT_COSTS",
    "Layout",
    "Model",
    "Simulation",
    "Work",
    "constant_costs",
    "double_bookings",
    "extra_delays",
    "simulate",
]

#: What :attr:`Simulation.counters` holds, fields of SIM.
_COUNTERS = (
    "switches", "wakeups", "migrations", "far_migrations", "pulls", "balances", "preemptions",
    "unseen_double", "false_double", "tokens_made", "tokens_used", "yields", "stuck",
)  # fmt: skip


class Simulation:
    """One run. Either iterate :meth:`batches` once, or ask for :attr:`events`."""

    def __init__(self, state: State, on_progress: Callable[[int, int], None] | None) -> None:
        self._state = state
        self._progress = on_progress
        self._parts: list[EventColumns] | None = None

    def batches(self) -> Iterator[EventColumns]:
        """Run, and yield the events batch by batch; memory is that of one batch."""
        state = self._state
        for rows in state.run():
            if self._progress is not None:
                self._progress(state.now, state.until)
            if len(rows):
                yield _columns(rows)

    def finish(self) -> Simulation:
        """Run to the end, the events kept."""
        if self._parts is None:
            self._parts = list(self.batches())
        return self

    @cached_property
    def columns(self) -> EventColumns:
        """All events, as arrays."""
        from traceana.columns import EventColumns

        return EventColumns.concat(self.finish()._parts or [])

    @cached_property
    def events(self) -> pa.Table:
        """All events, as the table of that name."""
        import pyarrow as pa

        from traceana import schema

        self.finish()
        return pa.Table.from_batches([self.columns.to_arrow()], schema=schema.EVENTS.schema)

    @cached_property
    def names(self) -> pa.Table:
        """The tasks' names, as the table of that name."""
        import pyarrow as pa

        from traceana import schema

        tasks = self._state.tasks
        pids = [int(pid) for pid in tasks["pid"]]
        rows = len(pids)
        evidence = int(schema.Evidence.HEADER)
        columns = {
            "pid": pids,
            "tgid": pids,
            "comm": [str(name) for name in self._state.names][:rows],
            "since_ts": [None] * rows,
            "evidence": [evidence] * rows,
        }
        return pa.table(columns, schema=schema.NAMES.schema)

    @property
    def live(self) -> NDArray[Any]:
        """LIVE[tasks]: used CPU (`used`), `sum_exec`, `bursts`, `steps`, `wakes`, … so far."""
        live: NDArray[Any] = self._state.live[: len(self._state.tasks)]
        return live

    @property
    def cpus(self) -> NDArray[Any]:
        """CPU[cpus]: `idle_ns` and the rest."""
        cpus: NDArray[Any] = self._state.sim[0]["cpus"][: self._state.n_cpus]
        return cpus

    @property
    def counters(self) -> dict[str, int]:
        """What was counted: switches, wakeups, migrations, pulls, double bookings, tokens …"""
        g = self._state.sim[0]
        return {name: int(g[name]) for name in _COUNTERS}

    @property
    def idle_ns(self) -> int:
        """Time that CPUs had their idle task current, from record to record, over all CPUs."""
        g = self._state.sim[0]
        cpus = self.cpus
        idle = cpus["curr"] >= len(self._state.tasks)
        end = min(int(g["until"]), self._state.until)
        return int(cpus["idle_ns"].sum() + (end - cpus["idle_since"][idle]).sum())

    @property
    def truth(self) -> NDArray[Any]:
        """TRUTH[k]: the bookings that met another; see ``double_bookings`` and ``extra_delays``."""
        return self._state.truth[: int(self._state.sim[0]["n_truth"])].copy()

    @property
    def truth_lost(self) -> int:
        """Double bookings for which there was no room in :attr:`truth`."""
        counted = self.counters["unseen_double"] + self.counters["false_double"]
        return counted - int((self.truth["kind"] >= 0).sum())


def _columns(rows: NDArray[Any]) -> EventColumns:
    from traceana.columns import EventColumns

    # Copies in any case: the rows are a buffer that is used again.
    out = {name: rows[name].copy() for name in EVENT.names or ()}
    out["buffer"] = np.zeros(len(rows), np.uint16)
    return EventColumns(**out)


def simulate(
    workload: Work,
    model: Model | None = None,
    *,
    end_ns: int,
    begin_ns: int = 0,
    seed: int = 1,
    truth_rows: int = 1 << 16,
    on_progress: Callable[[int, int], None] | None = None,
) -> Simulation:
    """Run a workload on a model of its machine.

    Parameters
    ----------
    workload : Work
        Tasks, scripts and the machine's topology.
    model : Model
        Kernel, rule, costs and tunables; default: 6.1 with the costs of DEFAULT_COSTS.
    begin_ns, end_ns : int
        The simulated window, in the clock of the workload.
    seed : int
        Same seed, same events.
    truth_rows : int
        Room for double bookings; what does not fit is counted.
    on_progress : callable
        Called after each batch with the simulated instant and the end.

    Returns
    -------
    Simulation
        Nothing has run yet; its events are made when they are asked for.

    Raises
    ------
    UsageError
        A workload or model that does not fit together.
    """
    if not 0 <= begin_ns < end_ns < FAR // 4:
        raise UsageError(f"a window from {begin_ns} to {end_ns} ns")
    model = model or Model()
    state = State(
        workload, model, seed=seed, begin_ns=begin_ns, end_ns=end_ns, truth_rows=truth_rows
    )
    return Simulation(state, on_progress)
