"""What a simulated machine is: its topology, its kernel's numbers, and what things cost.

This module needs numpy only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from traceana._sim_state import COSTS, QUANTILES
from traceana.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traceana.rules._forms import Forms

__all__ = ["DEFAULT_COSTS", "Layout", "Model", "constant_costs"]

#: Costs, ns, where none were measured: about those of a guest with traced events of 0.65 µs
#: (section 7.8 of the semantics). An assumption, not a measurement of any machine at hand.
DEFAULT_COSTS: Mapping[str, int] = {
    "event": 740,
    "look": 490,
    "scan": 60,
    "book": 370,
    "show_remote": 0,
    "show_direct": 450,
    "wake_remote": 2100,
    "wake_direct": 4100,
    "wake_migrate": 700,
    "wake_none": 300,
    "ipi": 250,
    "idle_exit": 500,
    "false_idle": 450,
    "enqueue": 550,
    "switch_in": 2100,
    "switch_out": 1500,
    "switch_idle": 1400,
    "on_cpu": 800,
    "newidle": 400,
    "pull": 5000,
    "timer": 800,
    "tick": 1500,
}

_SPREAD = 16


@dataclass(frozen=True)
class Layout:
    """A machine's topology as arrays, one entry per CPU; equal numbers share."""

    core: Sequence[int]
    llc: Sequence[int]
    node: Sequence[int]
    cluster: Sequence[int] | None = None

    @classmethod
    def of(cls, topology: Any) -> Layout:
        """From a table `topology`, or a layout as it is."""
        if isinstance(topology, cls):
            return topology
        columns = {name: topology.column(name).to_pylist() for name in ("core", "llc", "node")}
        order = np.argsort(topology.column("cpu").to_pylist(), kind="stable")
        cluster = None
        if "cluster" in topology.column_names:
            given = topology.column("cluster").to_pylist()
            if given and all(x is not None for x in given):
                cluster = [given[i] for i in order]
        return cls(
            core=[columns["core"][i] for i in order],
            llc=[columns["llc"][i] for i in order],
            node=[columns["node"][i] or 0 for i in order],
            cluster=cluster,
        )

    @classmethod
    def shape(cls, sockets: int, cores: int, threads: int) -> Layout:
        """SOCKETSxCORESxTHREADS with one LLC and node a socket, threads numbered as x86 does.

        The first threads of all cores come first, then the second ones.
        """
        n = sockets * cores
        core = [c % n for c in range(n * threads)]
        socket = [c // cores for c in core]
        return cls(core=core, llc=socket, node=socket)


@dataclass(frozen=True)
class Model:
    """The machine's kernel, its rule and its numbers. Times in ns; None is the kernel's default.

    `costs` is int64[len(COSTS), QUANTILES]; None takes DEFAULT_COSTS. `migration_cost_ns` can be
    set apart for its three users: the gate of newidle (`newidle_cost_ns`), task_hot
    (`hot_cost_ns`) and the floor of the idle cost (`floor_cost_ns`). `yield_form`: "plain",
    "slice" or "min_granularity" (the yielder's vruntime is moved by as much), "second" (buddies
    are compared to the second choice). `window` 0: bookings are seen at once.
    """

    release: str = "6.1.192"
    rule: str = "mainline"
    params: Mapping[str, int] = field(default_factory=dict)
    costs: NDArray[Any] | None = None
    forms: Forms | None = None
    features: Mapping[str, bool] = field(default_factory=dict)
    hz: int = 250
    scaling: str = "log"
    slice_ns: int | None = None
    latency_ns: int | None = None
    wakeup_granularity_ns: int | None = None
    migration_cost_ns: int = 500_000
    newidle_cost_ns: int | None = None
    hot_cost_ns: int | None = None
    floor_cost_ns: int | None = None
    #: max_newidle_lb_cost of the LLC's domain; None: 15/16 of the longest of "pull"
    newidle_lb_cost_ns: int | None = None
    #: and of the core's; None: 3/4 of that
    newidle_core_lb_cost_ns: int | None = None
    #: NI_RANDOM: of 1024 newidle balances so many find a task; None: 128
    newidle_ratio: int | None = None
    sis_util: bool = True
    ttwu_queue: bool = True
    newidle_random: bool | None = None
    delay_dequeue: bool | None = None
    run_to_parity: bool = True
    window: int = 1
    smt_slowdown: float = 1.0
    yield_form: str = "plain"
    prop_nr: int = 4
    #: Start state per LLC (in the order of its lowest CPU) and CPU; None: computed, or idle.
    nr_idle_scan: Sequence[int] | None = None
    idle_core_hint: Sequence[int] | None = None
    cpu_util: Sequence[int] | None = None
    tick_phase_ns: Sequence[int] | None = None
    avg_idle_ns: int | None = None
    isolated: Sequence[bool] | None = None

    def with_(self, **changes: Any) -> Model:
        """Return a copy with some fields replaced."""
        return replace(self, **changes)


def constant_costs(costs: Mapping[str, int] | None = None, spread: int = 0) -> NDArray[Any]:
    """Return a table of costs: each always the same, or within ± spread/16 of it.

    Raises
    ------
    UsageError
        A name that is not in COSTS, or a negative cost.
    """
    table = np.zeros((len(COSTS), QUANTILES), np.int64)
    given = dict(DEFAULT_COSTS) | dict(costs or {})
    for name, value in given.items():
        if name not in COSTS:
            raise UsageError(f"no cost {name!r}; there are {', '.join(COSTS)}")
        if not 0 <= value < 1 << 40:
            raise UsageError(f"cost {name} of {value} ns is out of range")
        half = (QUANTILES - 1) // 2
        table[COSTS.index(name)] = [
            value + value * spread * (i - half) // (half * _SPREAD) for i in range(QUANTILES)
        ]
    return table
