"""Small workloads for the simulator's tests: tasks given as lists of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceana._sim_state import COSTS, OP, TASK, Op, Start
from traceana.simulate import Layout, constant_costs

#: Costs that a hand can add up: everything else is 0.
ROUND_COSTS = {
    **dict.fromkeys(COSTS, 0),
    "event": 100,
    "look": 200,
    "show_remote": 100,
    "show_direct": 300,
    "wake_remote": 600,
    "wake_direct": 900,
    "ipi": 100,
    "idle_exit": 300,
    "false_idle": 100,
    "enqueue": 100,
    "switch_in": 400,
    "switch_out": 300,
    "switch_idle": 300,
}


@dataclass
class Workload:
    """What :func:`traceana.simulate.simulate` asks for."""

    tasks: Any
    script: Any
    allowed: Any
    names: Sequence[str]
    topology: Any
    span_ns: int = 0


@dataclass
class Case:
    """A workload being put together."""

    layout: Layout
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    tasks: list[dict[str, int]] = field(default_factory=list)
    sets: list[list[int]] = field(default_factory=list)

    def add(
        self,
        steps: Sequence[tuple[int, ...]],
        *,
        cpu: int,
        state: int = Start.QUEUED,
        loops: bool = False,
        op: int = 0,
        cpus: Sequence[int] | None = None,
        **fields: int,
    ) -> int:
        """Add a task; steps are (code, value or task, flags)."""
        first = len(self.rows)
        for code, *rest in steps:
            what = rest[0] if rest else 0
            flags = rest[1] if len(rest) > 1 else 0
            timed = code in (Op.RUN, Op.NAP, Op.UNTIL)
            self.rows.append((code, flags, -1 if timed else what, what if timed else 0))
        allowed = -1
        if cpus is not None:
            allowed = len(self.sets)
            self.sets.append([int(c in cpus) for c in range(len(self.layout.core))])
        task = dict.fromkeys(TASK.names or (), 0) | {
            "pid": 101 + len(self.tasks),
            "weight": 1024,
            "prio": 120,
            "allowed": allowed,
            "first": first,
            "end": len(self.rows),
            "loop": first if loops else -1,
            "state": state,
            "cpu": cpu,
            "op": first + op,
            "left": -1,
            "last_wakee": -1,
            "recent": cpu,
        }
        self.tasks.append(task | fields)
        return len(self.tasks) - 1

    def build(self, span_ns: int = 0) -> Workload:
        tasks = np.zeros(len(self.tasks), TASK)
        for i, task in enumerate(self.tasks):
            for name, value in task.items():
                tasks[i][name] = value
        allowed = np.array(self.sets, np.uint8).reshape(len(self.sets), len(self.layout.core))
        names = [f"t{i}" for i in range(len(tasks))]
        script = np.array(self.rows, OP)
        return Workload(tasks, script, allowed, names, self.layout, span_ns)


def round_costs(changes: Mapping[str, int] | None = None) -> Any:
    """The table of ROUND_COSTS, some changed."""
    return constant_costs(ROUND_COSTS | dict(changes or {}))


def flat(n_cpus: int) -> Layout:
    """CPUs without SMT in one LLC."""
    return Layout(core=list(range(n_cpus)), llc=[0] * n_cpus, node=[0] * n_cpus)
