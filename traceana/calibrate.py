"""The costs of the machine that a capture comes from, for the model of it.

Each cost of ``_sim_state.COSTS`` as 17 quantiles, with how many events it was measured on and where
it comes from: ``measured`` in this capture; ``offsets``: the known distances between what happens
and its record (section 7.8 of the semantics), scaled by what recording an event costs here;
``given`` by the user.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import schema
from traceana import topology as topo
from traceana._replay_changes import Offsets
from traceana._sim_state import COSTS, DIRECT_WAY, QUANTILES
from traceana._workload_clean import NEWIDLE_NS, REFERENCE, scale_of
from traceana._workload_marks import TIMER_NS
from traceana.errors import UsageError

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.simulate import Model
    from traceana.timeline import Timeline
    from traceana.workload import Workload

__all__ = ["Calibration", "calibrate"]

NULL = -(2**63)
Array = npt.NDArray[Any]
#: Fewer values do not make a distribution.
_FEW = 50
#: The ends of a distribution: beyond them lies what other things did meanwhile.
_LOW, _HIGH = 1, 97
#: Percentile that stands for the shortest way.
_SHORT = 5
#: Of the shortest distance between two records so much is recording one (a booking shows 0.70 us
#: behind sched_migrate_task where that is 0.82, section 7.8): the rest is what the kernel does
#: in between.
_RECORDING = 0.855
#: Behind the record of a dequeue nr_running goes down after so many times what recording takes.
_LEAVES = 1.25
#: ns where recording an event takes REFERENCE ns: what no distance in a capture shows.
_OFFSETS: Mapping[str, int] = {
    "scan": 63,
    "wake_none": 300,
    "false_idle": 450,
    "enqueue": 550,
    "on_cpu": 840,
    "pull": 4300,
    "newidle": NEWIDLE_NS,
    "timer": TIMER_NS,
    "tick": 2500,
    "ipi": 250,
}


@dataclass(frozen=True)
class Calibration:
    """The machine of a capture.

    Attributes
    ----------
    costs : int64[len(COSTS), QUANTILES], ns
    n : dict, values measured per cost
    origin : dict, 'measured', 'offsets' or 'given' per cost
    release : kernel, None where it is not known
    hz : ticks per second
    tick_phases : int64[cpus]
        Phase of each CPU's tick, ns; -1 not seen.
    nr_idle_scan, idle_core : per LLC, None where not known
    cpu_util : int64[cpus], 1024 = busy; run time as load tracking counts it
    avg_idle_ns : mean idle time of the CPUs
    newidle_gates : average idle time from which on newidle balances are tried, from which on
        they look at the LLC, ns; None not known
    newidle_ratio : of 1024 newidle balances so many found a task; None where there are too few
    rule : the rule of the recorded kernel, as far as is known
    notes : list of str, what had to be assumed
    """

    costs: Array
    n: Mapping[str, int]
    origin: Mapping[str, str]
    release: str | None
    hz: int
    tick_phases: Array
    nr_idle_scan: list[int | None]
    idle_core: list[int | None]
    cpu_util: Array
    avg_idle_ns: int
    newidle_gates: tuple[int, int] | None = None
    newidle_ratio: int | None = None
    rule: str = "mainline"
    notes: list[str] = field(default_factory=list)

    def model(self, **changes: Any) -> Model:
        """The model of this machine; ``changes`` are fields of :class:`traceana.simulate.Model`."""
        from traceana.simulate import Model

        fields: dict[str, Any] = {
            "rule": self.rule,
            "costs": self.costs,
            "hz": self.hz,
            "cpu_util": self.cpu_util.tolist(),
            "avg_idle_ns": self.avg_idle_ns,
        }
        if self.newidle_gates is not None:
            fields["newidle_core_lb_cost_ns"], fields["newidle_lb_cost_ns"] = self.newidle_gates
        if self.newidle_ratio is not None:
            fields["newidle_ratio"] = self.newidle_ratio
        if self.release is not None:
            fields["release"] = self.release
        if (self.tick_phases >= 0).all():
            fields["tick_phase_ns"] = self.tick_phases.tolist()
        if None not in self.nr_idle_scan:
            fields["nr_idle_scan"] = self.nr_idle_scan
        if None not in self.idle_core:
            fields["idle_core_hint"] = self.idle_core
        return Model(**(fields | changes))

    def with_costs(self, **given: int | list[int]) -> Calibration:
        """The same with costs set by hand: ns, or 17 quantiles that do not fall.

        Raises
        ------
        UsageError
            An unknown name, or a value that is no cost.
        """
        costs, origin = self.costs.copy(), dict(self.origin)
        for name, value in given.items():
            if name not in COSTS:
                raise UsageError(f"no cost {name!r}; there are {', '.join(COSTS)}")
            row = np.asarray(value, np.int64)
            if row.ndim and row.shape != (QUANTILES,):
                raise UsageError(f"cost {name}: one value in ns, or {QUANTILES} quantiles")
            row = np.broadcast_to(row, QUANTILES)
            if row.min() < 0 or row.max() >= 1 << 40 or np.any(np.diff(row) < 0):
                raise UsageError(f"cost {name}: from 0, and not falling")
            costs[COSTS.index(name)] = row
            origin[name] = "given"
        return replace(self, costs=costs, origin=origin)

    def table(self) -> list[dict[str, Any]]:
        """A row per cost: name, p50, p10, p90, n, origin."""
        middle = (QUANTILES - 1) // 2
        return [
            {
                "cost": name,
                "p50_ns": int(self.costs[i, middle]),
                "lo_ns": int(self.costs[i, 1]),
                "hi_ns": int(self.costs[i, -2]),
                "n": int(self.n.get(name, 0)),
                "origin": self.origin[name],
            }
            for i, name in enumerate(COSTS)
        ]

    def to_json(self) -> str:
        """All of it as JSON."""
        return json.dumps(
            {
                "costs": {name: self.costs[i].tolist() for i, name in enumerate(COSTS)},
                "n": dict(self.n),
                "origin": dict(self.origin),
                "release": self.release,
                "hz": self.hz,
                "tick_phases": self.tick_phases.tolist(),
                "nr_idle_scan": self.nr_idle_scan,
                "idle_core": self.idle_core,
                "cpu_util": self.cpu_util.tolist(),
                "avg_idle_ns": self.avg_idle_ns,
                "newidle_gates": self.newidle_gates,
                "newidle_ratio": self.newidle_ratio,
                "notes": self.notes,
            }
        )


def calibrate(cap: Capture, workload: Workload) -> Calibration:
    """Measure the machine of a capture.

    Parameters
    ----------
    cap : the capture
    workload : what :func:`traceana.workload.extract` made of it
    """
    whole = cap.timeline()
    timeline = whole.study or whole
    scale = scale_of(cap.event_cost_ns, timeline.raw["wakeups"])
    event = round(REFERENCE * scale * _RECORDING)
    made = _Made(scale)
    made.put("event", np.array([event]), "measured" if cap.event_cost_ns else "offsets", 0)
    _path(made, timeline, event, scale)
    _wakes(made, workload)
    _switches(made, timeline, workload, scale)
    machine = topo.as_arrays(cap.topology, len(timeline.raw["cpus"]))
    notes = []
    if cap.event_cost_ns is None:
        notes.append("too few events to say what recording one costs: 0.82 us assumed")
    scans, hints = _budgets(cap, workload, machine.n_llc, machine.llc_id)
    span = max(timeline.last_ts - timeline.first_ts, 1)
    util = np.zeros(machine.n_cpus, np.int64)
    busy = timeline.cpus.column("busy_ns").to_numpy()[: machine.n_cpus]
    # Load tracking counts more than the time between switches: a task that is woken on an idle CPU
    # runs, to the kernel, from its enqueue.
    told = timeline.raw["tasks"][timeline.raw["tasks"]["pid"] > 0]
    more = max(float(told["rt"].sum()) / max(float(busy.sum()), 1.0), 1.0)
    util[: len(busy)] = np.clip(busy * (1024 * more) // span, 0, 1024)
    average = workload.newidle[2]
    if average < 0:
        gaps = timeline.raw["gaps"]
        gaps = gaps[(gaps["start"] != NULL) & (gaps["end"] != NULL)]
        if len(gaps):
            average = int(np.mean(np.minimum(gaps["end"] - gaps["start"], 10**6)))
    return Calibration(
        costs=made.costs,
        n=made.n,
        origin=made.origin,
        release=cap.kernel,
        hz=timeline.hz,
        tick_phases=_tick_phases(cap, timeline, machine.n_cpus),
        nr_idle_scan=scans,
        idle_core=hints,
        cpu_util=util,
        avg_idle_ns=average if average >= 0 else 10**6,
        newidle_gates=workload.newidle[:2] if workload.newidle[0] >= 0 else None,
        newidle_ratio=_newidle_ratio(workload),
        notes=notes,
    )


def _newidle_ratio(workload: Workload) -> int | None:
    """NI_RANDOM's success ratio: it follows the share of the tries that find a task.

    Where there are hardly any tries, they are rare because none succeeds.
    """
    near, far, vain, idle = (
        workload.leaves.get(name, ([], 0))[1]
        for name in ("pulled_core", "pulled", "sought", "all_idle")
    )
    pulls = near + far
    if pulls + vain >= _FEW:
        return round(1024 * pulls / (pulls + vain))
    return round(1024 * (pulls + vain) / idle) if idle >= 20 * _FEW else None


class _Made:
    """The table while it is filled; it starts with the known offsets."""

    def __init__(self, scale: float) -> None:
        self.costs = np.zeros((len(COSTS), QUANTILES), np.int64)
        self.n = dict.fromkeys(COSTS, 0)
        self.origin = dict.fromkeys(COSTS, "offsets")
        for name, value in _OFFSETS.items():
            self.costs[COSTS.index(name)] = round(value * scale)

    def put(self, name: str, values: Array, origin: str, n: int | None = None) -> None:
        """Take the distribution of ``values`` (ns)."""
        ends = np.linspace(_LOW, _HIGH, QUANTILES)
        row = np.percentile(values, ends, method="lower").astype(np.int64)
        self.costs[COSTS.index(name)] = np.maximum(row, 0)
        self.n[name] = len(values) if n is None else n
        self.origin[name] = origin

    def middle(self, name: str) -> int:
        return int(self.costs[COSTS.index(name), (QUANTILES - 1) // 2])


def _wakes(made: _Made, workload: Workload) -> None:
    """What a wakeup takes its waker, as the bursts were freed of it; see ``ways_of``.

    Of one that enqueues by itself the part behind its record counts: what its way took longer than
    the shortest, the model has from what made it longer.
    """
    told = workload.wake_ns
    ns, n, measured = told.get("remote", (1940, 0, False))
    made.put("wake_remote", np.array([ns]), "measured" if measured else "offsets", n)
    moved, n, both = told.get("remote_migrate", (ns + 770, 0, False))
    both = both and measured
    made.put("wake_migrate", np.array([max(moved - ns, 0)]), "measured" if both else "offsets", n)
    behind, n, measured = told.get("behind_direct", (1500, 0, False))
    more, n_moved, known = told.get("behind_direct_migrate", (behind, 0, False))
    if known and (n_moved > n or not measured):
        behind, n, measured = more, n_moved, known
    # The model takes these off again: together they are the shortest way to the record.
    way = sum(int(made.costs[COSTS.index(name)][0]) for name in DIRECT_WAY)
    made.put("wake_direct", np.array([way + behind]), "measured" if measured else "offsets", n)


def _path(made: _Made, timeline: Timeline, event: int, scale: float) -> None:
    """From sched_waking to sched_wakeup.

    The shortest way to a sched_migrate_task is look + book. What is behind the decision is told
    apart by the known offsets; what is left of the whole way onto an idle CPU is its idle exit.
    """
    w = timeline.raw["wakeups"]
    w = w[(w["kind"] == schema.WakeKind.DECIDED) & (w["waking"] != NULL) & (w["wakeup"] != NULL)]
    w = w[w["context"] == schema.WakeContext.TASK]
    moved = w["mig"] != NULL
    look = round(Offsets.look * scale)
    took = (w["mig"] - w["waking"])[moved]
    known = len(took) >= _FEW
    shortest = int(np.percentile(took, 2)) if known else round(860 * scale)
    look = min(look, shortest)
    made.put("look", np.array([look]), "offsets")
    made.put("book", np.array([shortest - look]), "measured" if known else "offsets", len(took))
    made.put("show_remote", np.array([0]), "offsets")
    remote = w["queueing"] == schema.Queueing.REMOTE
    idle = w["placed_idle"] == 1
    false, enqueue = made.middle("false_idle"), made.middle("enqueue")
    # Without a migration the decision lies shortest behind the waking; with one, its record does.
    way = np.where(moved, w["wakeup"] - w["mig"] - event, w["wakeup"] - w["waking"] - shortest)
    there = way[remote & idle]
    ipi = made.middle("ipi")
    if len(there) >= _FEW:
        whole = max(int(np.percentile(there, _SHORT)), 0)
        ipi = max(min(ipi, whole - false - enqueue), 0)
        # The known offsets may be another machine's: never more than the whole way.
        if ipi + false + enqueue > whole:
            false, enqueue = (part * whole // (false + enqueue) for part in (false, enqueue))
            made.put("false_idle", np.array([false]), "offsets")
            made.put("enqueue", np.array([enqueue]), "offsets")
        made.put("ipi", np.array([ipi]), "offsets")
        made.put("idle_exit", np.maximum(there - ipi - enqueue, false), "measured")
    else:
        made.put("idle_exit", np.array([false + round(100 * scale)]), "offsets")
    # Directly onto a queue: its lock, update_curr() and its record, the enqueue. On the waker's own
    # CPU the waker runs, so there is something to record, and nobody else wants the lock.
    at_once = w["queueing"] == schema.Queueing.DIRECT
    own = at_once & (w["placed"] == w["this_cpu"])
    # Those that move there: what the search took before lies ahead of their record.
    kinds = (own & moved, own, at_once)
    at_once = next((way[kind] for kind in kinds if kind.sum() >= _FEW), way[at_once])
    if len(at_once) >= _FEW:
        made.put("show_direct", np.maximum(at_once - event - enqueue, 0), "measured")
    else:
        made.put("show_direct", np.array([round(850 * scale)]), "offsets")


def _switches(made: _Made, timeline: Timeline, workload: Workload, scale: float) -> None:
    """From an enqueue on an idle CPU to its switch; from a dequeue to the next one."""
    w, gaps = timeline.raw["wakeups"], timeline.raw["gaps"]
    by = gaps[(gaps["by"] >= 0) & (gaps["end"] != NULL)]
    order = np.argsort(w["id"], kind="stable")
    at = np.searchsorted(w["id"][order], by["by"])
    row = order[np.minimum(at, max(len(w) - 1, 0))] if len(w) else np.zeros(0, np.int64)
    by = by[: len(row)]
    good = (w["id"][row] == by["by"]) & (w["wakeup"][row] != NULL) if len(row) else row != row
    good &= w["queueing"][row] == schema.Queueing.REMOTE
    # What takes longer had another wakeup or interrupt in between: the model has these itself.
    took = by["end"][good] - w["wakeup"][row[good]]
    took = took[took > 0]
    if len(took) >= _FEW:
        made.put("switch_in", took[took <= 1.4 * np.median(took)], "measured")
    else:
        made.put("switch_in", np.array([round(2000 * scale)]), "offsets")
    told = workload.leaves
    for name, follows, default in (("switch_out", "task", 1650), ("switch_idle", "idle", 1450)):
        quantiles, n = told.get(follows, ([0] * QUANTILES, 0))
        if n >= _FEW:
            made.costs[COSTS.index(name)] = quantiles
            made.n[name], made.origin[name] = n, "measured"
        else:
            made.put(name, np.array([round(default * scale)]), "offsets")
    tried = made.middle("newidle")
    if made.origin["switch_idle"] == made.origin["switch_out"] == "measured":
        if made.middle("switch_idle") > made.middle("switch_out") + tried // 2:
            # Every one has tried a balance: that is added by the model.
            row = made.costs[COSTS.index("switch_idle")]
            made.costs[COSTS.index("switch_idle")] = np.maximum(row - tried, 0)
    quantiles, n = told.get("pulled", ([0] * QUANTILES, 0))
    more = 1.0
    if n < _FEW // 2:
        quantiles, n = told.get("pulled_core", ([0] * QUANTILES, 0))
        more = 4 / 3  # one from the own core takes three quarters of it
    if n >= _FEW // 2:
        # Before it: the task is taken off the queue, and the balance begins.
        before = round(made.middle("event") * _LEAVES + made.middle("newidle"))
        took = (np.maximum(np.asarray(quantiles) - before, 0) * more).astype(np.int64)
        made.costs[COSTS.index("pull")] = took
        made.n["pull"], made.origin["pull"] = n, "measured"


def _budgets(
    cap: Capture, workload: Workload, n_llc: int, llc_id: Array
) -> tuple[list[int | None], list[int | None]]:
    """nr_idle_scan and idle-core hint at the begin: from the start state, else as learnt."""
    learnt = [*workload.budgets, *[-1] * n_llc]
    scans: list[int | None] = [v if v >= 0 else None for v in learnt[:n_llc]]
    hints: list[int | None] = [None] * n_llc
    if cap.start_state is not None:
        for row in range(n_llc):
            told = cap.start_state.llcs.get(int(llc_id[row]))
            if told is not None:
                scans[row] = told[0] if told[0] is not None else scans[row]
                hints[row] = told[1]
    return scans, hints


def _tick_phases(cap: Capture, timeline: Timeline, n_cpus: int) -> Array:
    """When each CPU's tick comes, from the run times that ticks report: ns within the period.

    Those lie at one phase of the period, whatever else interrupts: the commonest phase is taken
    where a third of a CPU's reports or more, and three at least, lie within 2 % of it.
    """
    period = 1_000_000_000 // timeline.hz
    out = np.full(n_cpus, -1, np.int64)
    found: list[tuple[Array, Array]] = []
    for events in cap.event_columns():
        tick = (events.kind == schema.EventKind.STAT_RUNTIME) & (events.ctx != 255)
        tick &= (events.ctx & int(schema.Ctx.HARDIRQ)) != 0
        tick &= (events.ts >= timeline.first_ts) & (events.ts <= timeline.last_ts)
        found.append((events.cpu[tick], events.ts[tick]))
    if not found:
        return out
    cpu = np.concatenate([c for c, _ in found])
    ts = np.concatenate([t for _, t in found])
    width = period // 50
    for c in np.unique(cpu[(cpu >= 0) & (cpu < n_cpus)]):
        phase = np.sort(ts[cpu == c] % period)
        twice = np.append(phase, phase + period)
        near = np.searchsorted(twice, twice[: len(phase)] + width, "right") - np.arange(len(phase))
        best = int(near.argmax())
        if near[best] >= max(3, len(phase) / 3):
            out[c] = int(np.median(twice[best : best + near[best]])) % period
    return out
