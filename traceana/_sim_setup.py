"""The arrays of a run at its start: workload and model checked, and laid out for the kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from traceana._sim_model import Layout, Model, constant_costs
from traceana._sim_state import COSTS, DIRECT_WAY, QUANTILES, Op, Start
from traceana._sim_types import BOX, EVENT, FAR, LIVE, SIM, TRUTH, Stand
from traceana.errors import UsageError
from traceana.rules._state import MAX_CPUS
from traceana.thresholds import parse_release, tunables

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["State", "Work"]

#: Rows of a batch of output.
BATCH = 1 << 18
#: LOAD_AVG_MAX - 1024: a sum per unit of its average, at the start of a period.
_PELT_DIVIDER = 47742 - 1024
#: Utilisation of a CPU that is taken to have had no idle time.
_BUSY = 970


class Work(Protocol):
    """What a workload must have."""

    tasks: NDArray[Any]  # TASK[n]
    script: NDArray[Any]  # OP[m]
    allowed: NDArray[Any]  # uint8[sets, cpus]
    names: Sequence[str]  # one per task
    topology: Any  # pa.Table of schema.TOPOLOGY, or Layout
    span_ns: int  # length of one loop of the scripts


def _power_of_two(n: int) -> int:
    return 1 << max(n - 1, 1).bit_length()


def _check(work: Work, n_cpus: int) -> None:
    """Everything that the kernels index with, before they do.

    Raises
    ------
    UsageError
        What does not fit together.
    """
    tasks, script = work.tasks, work.script
    if not 1 <= n_cpus <= MAX_CPUS:
        raise UsageError(f"{n_cpus} CPUs; 1 to {MAX_CPUS} can be simulated")
    n, m = len(tasks), len(script)
    sets = len(work.allowed)
    for name, low, high in (
        ("first", 0, m), ("end", 0, m), ("loop", -1, m), ("op", 0, m), ("cpu", 0, n_cpus - 1),
        ("allowed", -1, sets - 1), ("last_wakee", -1, n - 1), ("recent", -1, n_cpus - 1),
        ("weight", 1, 1 << 20), ("prio", -1, 139), ("tokens", 0, 1 << 40), ("pid", 1, 1 << 30),
    ):  # fmt: skip
        column = tasks[name]
        if n and (column.min() < low or column.max() > high):
            raise UsageError(f"workload: {name} of a task is not within {low} and {high}")
    if n and (
        np.any(tasks["first"] > tasks["end"])
        or np.any(tasks["op"] < tasks["first"])
        or np.any(tasks["op"] > tasks["end"])
        or np.any((tasks["loop"] >= 0) & (tasks["loop"] < tasks["first"]))
    ):
        raise UsageError("workload: a task's rows of the script are not its own")
    if sets and np.asarray(work.allowed).shape[1] != n_cpus:
        raise UsageError("workload: the table of allowed CPUs is not of this machine")
    if sets and not np.asarray(work.allowed).any(axis=1).all():
        raise UsageError("workload: a task that no CPU is allowed to")
    code, target, value = script["code"], script["task"], script["value"]
    if m and (code.min() < Op.RUN or code.max() > Op.STEP):
        raise UsageError("workload: unknown step of a script")
    if m and (np.abs(value).max() >= FAR // 4):
        raise UsageError("workload: a time beyond reach")
    to_task = np.isin(code, (Op.WAKE, Op.FORK, Op.YIELD_TO))
    if np.any(to_task & ((target < 0) | (target >= n))):
        raise UsageError("workload: a step names a task that does not exist")
    boxes = np.isin(code, (Op.SEND, Op.RECV))
    if np.any(boxes & ((target < 0) | (target > 1 << 24))):
        raise UsageError("workload: a mailbox beyond reach")
    if len(np.unique(tasks["pid"])) != n:
        raise UsageError("workload: two tasks of one pid")


class State:
    """All arrays of one run."""

    def __init__(
        self, work: Work, model: Model, *, seed: int, begin_ns: int, end_ns: int, truth_rows: int
    ) -> None:
        from traceana import pelt
        from traceana.rules import load
        from traceana.rules._forms import forms_for
        from traceana.rules._state import make_machine, make_wakeups

        layout = Layout.of(work.topology)
        n_cpus = self.n_cpus = len(layout.core)
        _check(work, n_cpus)
        self.tasks, self.names = work.tasks, work.names
        n = self.n_tasks = len(work.tasks)
        self.until = end_ns

        release = parse_release(model.release) or (6, 1, 0)
        forms = model.forms or forms_for(release)
        features = {name.lower(): on for name, on in model.features.items()}
        forms = forms.with_(
            **{
                name: features[name]
                for name in ("wa_idle", "wa_weight", "wa_bias")
                if name in features
            }
        )
        if not model.sis_util or features.get("sis_util") is False:
            forms = forms.with_(budget_form=0)
        self.machines = make_machine(
            n_cpus,
            forms=forms,
            core=layout.core,
            llc=layout.llc,
            node=layout.node,
            cluster=layout.cluster,
            isolated=model.isolated,
        )
        self.wakeups = make_wakeups(1)
        tunes = tunables(
            release,
            n_cpus,
            scaling=model.scaling,
            slice_ns=model.slice_ns,
            migration_cost_ns=model.migration_cost_ns,
        )
        self.decide = load(model.rule)
        self.mainline = load("mainline")
        self.params = self.decide.parameters(tunes, model.params)

        self.sim = _sim(model, tunes, release, n_cpus=n_cpus, n_tasks=n)
        self.live = _live(work.tasks, n_cpus, hz=model.hz)
        _place_at_start(self.sim[0], self.live)
        # As if all had run of late: whoever moves at the first balance is not known.
        self.live["exec_start"][:n] = begin_ns
        idle_flips = getattr(work, "idle_flips", ())
        if len(idle_flips) == n_cpus:
            self.live["flips"][n:] = np.clip(idle_flips, 0, 1 << 40)
        self.live["flips_j"][n:] = begin_ns // (1_000_000_000 // model.hz)
        g = self.sim[0]
        g["now"], g["until"] = begin_ns, end_ns
        g["span"] = max(int(getattr(work, "span_ns", 0) or 0), 0)
        g["seed"] = _mixed(seed)
        cpus = g["cpus"][:n_cpus]
        cpus["idle_stamp"] = begin_ns
        cpus["curr"] = n + np.arange(n_cpus)
        unknown = 2 * model.migration_cost_ns
        cpus["avg_idle"] = unknown if model.avg_idle_ns is None else model.avg_idle_ns
        if model.cpu_util is not None:
            # A CPU that has hardly been idle has nothing to average.
            cpus["avg_idle"][np.asarray(model.cpu_util[:n_cpus]) >= _BUSY] = unknown
        tick = int(g["tick"])
        if model.tick_phase_ns is not None:
            cpus["tick_phase"] = np.asarray(model.tick_phase_ns[:n_cpus]) % tick
        spread = np.array([_mixed(seed + 7919 * (c + 1)) for c in range(n_cpus)])
        llc = self.machines[0]["cpus"]["llc"][:n_cpus]
        for row in range(int(self.machines[0]["n_llcs"])):
            cpus["rank"][llc == row] = np.arange(np.count_nonzero(llc == row))
        interval = self.machines[0]["llcs"]["weight"][self.machines[0]["cpus"]["llc"][:n_cpus]]
        cpus["balanced"] = begin_ns - spread % np.maximum(interval * 1_000_000, 1)
        cpus["balanced_far"] = begin_ns - spread % (n_cpus * 1_000_000)
        g["nohz_jiffy"] = -1

        self.pelt = pelt.make_tasks(n + n_cpus)
        self.pelt["weight"][:n] = work.tasks["weight"]
        self.pelt["util_avg"][:n] = np.clip(work.tasks["util"], 0, 1024)
        self.pelt["cpu"][:n] = work.tasks["cpu"]
        self.pelt["last_update"] = begin_ns
        self.cfs = pelt.make_cfs(n_cpus, begin_ns, lag=release[:2] >= (6, 0))
        self._start_budgets(model)

        allowed = np.asarray(work.allowed, np.uint8)
        bits = np.zeros((max(len(allowed), 1), MAX_CPUS), np.uint8)
        if len(allowed):
            bits[: len(allowed), :n_cpus] = allowed != 0
        self.allowed = np.packbits(bits, axis=1, bitorder="little").view(np.int64)
        codes = work.script["code"]
        mail = np.isin(codes, (Op.SEND, Op.RECV))
        boxes = int(work.script["task"][mail].max()) + 1 if mail.any() else 1
        self.boxes = np.full(boxes, -1, BOX)
        self.boxes["n"] = 0
        self.script = np.ascontiguousarray(work.script)
        self.messages = np.zeros((0, 2), np.int64)
        self._more_messages(1024)
        self.timers = np.zeros((n + 1, 2), np.int64)
        self.truth = np.zeros(truth_rows, TRUTH)

    def _start_budgets(self, model: Model) -> None:
        """nr_idle_scan, the idle-core hint and the CPUs' utilisation at the start."""
        from traceana.pelt import scan_budget

        m = self.machines[0]
        util = np.zeros(self.n_cpus, np.int64)
        if model.cpu_util is not None:
            util[:] = np.clip(np.asarray(model.cpu_util[: self.n_cpus]), 0, 1024)
        else:
            np.add.at(util, self.tasks["cpu"], np.clip(self.tasks["util"], 0, 1024))
            util = np.minimum(util, 1024)
        if model.cpu_util is not None:
            # A CPU's sum is what has run there, whoever it was; those who sleep or wait there now
            # are part of it, and are added when they are put in their places.
            part = np.zeros(self.n_cpus, np.int64)
            fair = (self.tasks["prio"] >= 100) & (self.tasks["state"] != Start.UNBORN)
            shares = np.clip(self.tasks["util"][fair], 0, 1024)
            np.add.at(part, self.tasks["cpu"][fair], shares)
            self.cfs["util_avg"] = util - part
            self.cfs["util_sum"] = self.cfs["util_avg"] * _PELT_DIVIDER
        llc = m["cpus"]["llc"][: self.n_cpus]
        busy = np.isin(self.tasks["state"], (Start.RUNNING, Start.QUEUED))
        taken = np.zeros(self.n_cpus, bool)
        taken[self.tasks["cpu"][busy]] = True
        for row in range(int(m["n_llcs"])):
            members = np.flatnonzero(llc == row)
            weight = max(len(members), 1)
            one_core = weight > 1 and len(set(m["cpus"]["core"][members].tolist())) == 1
            pct = int(m["pct_smt"] if one_core else m["pct"])
            scan = scan_budget(int(util[members].sum()), weight, pct)
            hint = 0
            if m["smt"]:
                cores = m["cpus"]["core"][: self.n_cpus]
                hint = int(any(not taken[cores == c].any() for c in set(cores[members])))
            if model.nr_idle_scan is not None and row < len(model.nr_idle_scan):
                scan = int(model.nr_idle_scan[row])
            if model.idle_core_hint is not None and row < len(model.idle_core_hint):
                hint = int(model.idle_core_hint[row])
            m["llcs"][row]["nr_idle_scan"] = min(max(scan, 0), weight)
            m["llcs"][row]["idle_core"] = max(hint, 0)
            m["llcs"][row]["prop_nr"] = model.prop_nr

    def _more_messages(self, more: int) -> None:
        """Room for more messages; the new ones are free."""
        old = len(self.messages)
        bigger = np.zeros((old + more, 2), np.int64)
        bigger[:old] = self.messages
        bigger[old:, 1] = np.arange(old + 1, old + more + 1)
        bigger[-1, 1] = self.sim[0]["free"] if old else -1
        self.messages = bigger
        self.sim[0]["free"] = old

    @property
    def now(self) -> int:
        return int(self.sim[0]["now"])

    def run(self) -> Iterator[NDArray[Any]]:
        """Run; yields EVENT rows, a buffer that is used again."""
        from traceana._sim_kernels import DONE, NO_MESSAGE, advance

        out = np.zeros(BATCH, EVENT)
        while True:
            why = advance(
                self.sim, self.machines, self.wakeups, self.live, self.script, self.pelt, self.cfs,
                self.allowed, self.boxes, self.messages, self.timers, out, self.truth, self.params,
                self.decide.decide, self.mainline.decide,
            )  # fmt: skip
            yield out[: int(self.sim[0]["n_out"])]
            if why == DONE:
                return
            if why == NO_MESSAGE:
                self._more_messages(len(self.messages))


def _mixed(seed: int) -> int:
    """A seed spread over 31 bits (the finaliser of splitmix64)."""
    z = (seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & (1 << 64) - 1
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & (1 << 64) - 1
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & (1 << 64) - 1
    return (z ^ z >> 31) & 0x7FFFFFFF


def _live(tasks: NDArray[Any], n_cpus: int, *, hz: int) -> NDArray[Any]:
    """LIVE[tasks + cpus] at the start; the last ones are the idle tasks."""
    n = len(tasks)
    live = np.zeros(n + n_cpus, LIVE)
    for name in ("prev", "next", "in_list", "timer_cpu", "sender", "box", "row", "last_wakee"):
        live[name] = -1
    live["recent"] = -1
    live["waker"] = live["booked"] = -1
    live["weight"] = 1024
    live["prio"] = 120
    live["allowed"] = -1
    live["left"] = -1
    part = live[:n]
    for name in (
        "pid", "weight", "prio", "policy", "allowed", "first", "end", "loop", "cpu", "op", "left",
        "tokens", "dur_avg", "flips", "last_wakee", "recent",
    ):  # fmt: skip
        part[name] = tasks[name]
    part["v"] = tasks["vruntime"]
    part["dur_avg"] = np.maximum(tasks["dur_avg"], 0)
    part["flips"] = np.maximum(tasks["flips"], 0)
    part["recent"] = np.where(tasks["recent"] >= 0, tasks["recent"], tasks["cpu"])
    part["flips_j"] = tasks["flips_ts"] // (1_000_000_000 // hz)
    part["sum_exec"] = np.maximum(tasks["since_sleep"], 0)
    part["exec_start"] = -(1 << 60)
    known = {
        Start.UNBORN: Stand.UNBORN,
        Start.RUNNING: Stand.RUNNING,
        Start.QUEUED: Stand.QUEUED,
        Start.ASLEEP: Stand.ASLEEP,
        Start.WAKING: Stand.WAKING,
    }
    stands = np.array([known.get(int(s), -1) for s in tasks["state"]], np.int64)
    if np.any(stands < 0):
        raise UsageError("workload: unknown start state of a task")
    part["stand"] = stands
    live["cpu"][n:] = np.arange(n_cpus)
    live["stand"][n:] = Stand.RUNNING
    return live


def _place_at_start(g: Any, live: NDArray[Any]) -> None:
    """Bound how far behind tasks on a queue start, as place_entity() and update_entity_lag() do.

    Tasks asleep are placed when they wake up.
    """
    queued = np.isin(live["stand"], (Stand.RUNNING, Stand.QUEUED))
    limit = np.full(int(queued.sum()), g["latency"] // 2)
    if g["eevdf"]:
        limit = max(2 * g["slice"], g["tick"]) * 1024 // live["weight"][queued]
    live["v"][queued] = np.maximum(live["v"][queued], -limit)


def _sim(
    model: Model, tunes: Any, release: tuple[int, int, int], *, n_cpus: int, n_tasks: int
) -> NDArray[Any]:
    """SIM[1]: the numbers of the model."""
    sim = np.zeros(1, SIM)
    g = sim[0]
    v = release[:2]
    major, minor = v
    if model.hz not in (100, 250, 300, 500, 1000) and not 24 <= model.hz <= 10_000:
        raise UsageError(f"HZ of {model.hz}")
    cost = model.costs if model.costs is not None else constant_costs()
    if cost.shape != (len(COSTS), QUANTILES):
        raise UsageError(f"costs: a table of {len(COSTS)} x {QUANTILES} is needed")
    if cost.min() < 0 or cost.max() >= 1 << 40 or np.any(np.diff(cost, axis=1) < 0):
        raise UsageError("costs: quantiles are not negative and do not fall")
    g["cost"] = np.asarray(cost, np.int64).ravel()
    g["n_tasks"], g["n_cpus"] = n_tasks, n_cpus
    g["leaves"] = _power_of_two(n_cpus)
    g["window"] = int(bool(model.window))
    if not 1.0 <= model.smt_slowdown <= 16.0:
        raise UsageError(f"SMT slow-down of {model.smt_slowdown}; 1 to 16")
    g["smt_slow"] = round(model.smt_slowdown * 1024)
    g["eevdf"] = v >= (6, 6)
    delayed = v >= (6, 12) if model.delay_dequeue is None else model.delay_dequeue
    g["delay_dequeue"] = delayed and v >= (6, 6)
    g["parity"] = model.run_to_parity
    g["wakelist"] = 2 if v >= (6, 0) else 1 if v >= (5, 8) else 0
    if not model.ttwu_queue:
        g["wakelist"] = -1
    g["pending_early"] = v <= (6, 1)
    backported = (v == (6, 1) and release[2] >= 160) or (v == (6, 12) and release[2] >= 60)
    random = v >= (6, 19) or backported if model.newidle_random is None else model.newidle_random
    g["ni_random"] = random
    g["gate_cost"] = v <= (5, 15)
    g["gate_pending"] = v >= (6, 0)
    g["refresh"] = v >= (6, 0)
    g["hint"] = (major, minor) >= (4, 9)
    g["hz"], g["tick"] = model.hz, 1_000_000_000 // model.hz
    g["slice"] = g["min_gran"] = tunes.slice_ns
    g["latency"] = model.latency_ns or tunes.latency_ns or 8 * tunes.slice_ns
    g["wakeup_gran"] = (
        model.wakeup_granularity_ns
        if model.wakeup_granularity_ns is not None
        else tunes.wakeup_granularity_ns or tunes.slice_ns
    )
    for name, given in (
        ("mig_newidle", model.newidle_cost_ns),
        ("mig_hot", model.hot_cost_ns),
        ("mig_floor", model.floor_cost_ns),
    ):
        g[name] = model.migration_cost_ns if given is None else given
    forms = ("plain", "slice", "min_granularity", "second")
    if model.yield_form not in forms:
        raise UsageError(f"yield form {model.yield_form!r}; one of {', '.join(forms)}")
    g["yield_form"] = forms.index(model.yield_form)
    g["yield_moves"] = v >= (6, 12)
    g["free"] = -1
    g["direct_way"] = sum(int(cost[COSTS.index(name)][0]) for name in DIRECT_WAY)
    cpus = g["cpus"]
    for name in (
        "chosen", "head", "tail", "next_buddy", "last_buddy", "skip_buddy", "due_head", "due_tail",
        "list_head", "list_tail", "flush", "wakee", "episode", "first",
    ):  # fmt: skip
        cpus[name] = -1
    for name in ("next", "at", "ipi_at", "tick_at", "due_at"):
        cpus[name] = FAR
    cpus["pace"] = 1024
    # In a machine that has been up for a while few balances find something.
    ratio = 128 if model.newidle_ratio is None else min(max(model.newidle_ratio, 0), 1024)
    cpus["ratio"] = cpus["core_ratio"] = cpus["far_ratio"] = ratio
    lb_cost = model.newidle_lb_cost_ns
    # What the kernel times of the longest pull: without the way there and the switch.
    longest = int(cost[COSTS.index("pull")][-1]) * 15 // 16
    cpus["newidle_cost"] = longest if lb_cost is None else lb_cost
    core_cost = model.newidle_core_lb_cost_ns
    cpus["core_cost"] = cpus["newidle_cost"] * 3 // 4 if core_cost is None else core_cost
    # Vruntimes may begin below their queue's (a task that is behind).
    cpus["min_v"] = 1 << 40
    return sim
