"""The machine of the simulator's oracle at rest: CPUs, costs, events, and moving tasks about.

What happens on it is in ``sim_oracle`` (a CPU's life) and ``balance_oracle``. Rows are tuples of
the columns of EVENT in their order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from oracle.fair_oracle import IDLE, RunQueue, Stand, Task, Tunes
from oracle.load_oracle import LEAST, QueueLoad, TaskLoad, idle_scan

from traceana._sim_state import COSTS, DIRECT_WAY, Op, Start
from traceana._sim_types import EVENT, FAR, Row
from traceana.rules._forms import BUDGET_NONE, forms_for
from traceana.simulate import Model, Work, constant_costs

MS = 1_000_000
WORD = 0xFFFFFFFF


def mixed(seed: int) -> int:
    """splitmix64's finaliser, 31 bits of it."""
    z = (seed + 1) * 0x9E3779B97F4A7C15 % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ z >> shift) * factor % 2**64
    return (z ^ z >> 31) % 2**31


@dataclass(eq=False)
class Cpu:
    """One CPU."""

    index: int
    core: int
    llc: int
    rq: RunQueue
    load: QueueLoad
    idle_task: Task
    tick_phase: int
    clock: int  # of the run queue, at its last schedule()
    balanced: dict[int, int]  # when each domain was last (1 LLC, 0 beyond)
    avg_idle: int
    lb_cost: int
    core_lb_cost: int
    life: Iterator[int] = field(default_factory=lambda: iter(()))
    at: int = FAR  # when its present step is over
    open: bool = True  # interrupts are let in
    irqs_on: int = 0  # when its last switch is over: from then on
    irq: bool = False
    ipi_at: int = FAR
    tick_at: int = FAR
    due: list[Task] = field(default_factory=list)  # their timers have gone off
    due_at: int = FAR
    wakelist: list[Task] = field(default_factory=list)
    entering: Task | None = None  # its sched_wakeup is being recorded
    pending: bool = False
    vacant: bool = True  # the idle task is current, as others see it
    chosen: Task | None = None
    nr: int = 0
    delayed: int = 0
    idlers: int = 0
    booked: int = 0
    lockers: int = 0  # wakers that hold the queue's lock
    run_from: int = 0
    pace: int = 1024
    switch_at: int = 0
    idle_stamp: int = 0
    idle_since: int = 0
    #: Balances of a domain, one after the other, that have moved nothing
    failed: dict[int, int] = field(default_factory=lambda: {1: 0, 0: 0})
    #: NI_RANDOM, per level (2 core, 1 LLC, 0 beyond): tries, finds, ratio
    luck: dict[int, list[int]] = field(default_factory=dict)

    @property
    def curr(self) -> Task | None:
        return self.rq.curr

    @property
    def current(self) -> Task:
        """The task that runs, or the idle task."""
        return self.rq.curr or self.idle_task

    @property
    def next(self) -> int:
        return min(self.at, self.interrupt_at) if self.open else self.at

    @property
    def interrupt_at(self) -> int:
        return max(self.irqs_on, min(self.ipi_at, self.tick_at, self.due_at))


class Box:
    """A mailbox."""

    def __init__(self) -> None:
        self.messages: list[Task] = []
        self.waiters: list[Task] = []


class Bench:
    """CPUs, tasks and the means to let something happen."""

    def __init__(self, work: Work, model: Model, *, seed: int, begin: int, end: int) -> None:
        release = tuple(int(x) for x in model.release.split("."))
        v = release[:2]
        self.model, self.now, self.end = model, begin, end
        layout = work.topology
        n = len(layout.core)
        self.pending_early = v <= (6, 1)
        self.wakelist_form = 2 if v >= (6, 0) else 1 if v >= (5, 8) else 0
        backport = (v == (6, 1) and release[2] >= 160) or (v == (6, 12) and release[2] >= 60)
        given = model.newidle_random
        self.random_newidle = (v >= (6, 19) or backport) if given is None else given
        self.gate_cost, self.gate_pending = v <= (5, 15), v >= (6, 0)
        self.sis_util = v >= (6, 0)
        delayed = v >= (6, 12) if model.delay_dequeue is None else model.delay_dequeue
        self.delay_dequeue = delayed and v >= (6, 6)
        self.forms = asdict(forms_for(model.release)) | {"cluster_active": False}
        if not model.sis_util:
            self.forms["budget_form"] = BUDGET_NONE
        self.hz, self.tick = model.hz, 1_000_000_000 // model.hz
        factor = {1: 1, 2: 2, 3: 2}.get(n, 3 if n < 8 else 4)
        late = v >= (6, 15) or v == (6, 12)
        slice_ = model.slice_ns or (700_000 if late else 750_000) * factor
        eevdf = v >= (6, 6)
        gran = model.wakeup_granularity_ns
        self.tunes = Tunes(
            eevdf=eevdf,
            slice=slice_,
            latency=model.latency_ns or (8 * slice_ if eevdf else 6_000_000 * factor),
            wakeup_granularity=(slice_ if eevdf else MS * factor) if gran is None else gran,
            tick=self.tick,
            yield_form=model.yield_form,
            yield_moves=v >= (6, 12),
            parity=model.run_to_parity,
        )
        self.short = -(-slice_ // 8)
        cost = model.migration_cost_ns
        self.newidle_cost, self.hot_cost, self.floor_cost = (
            cost if x is None else x
            for x in (model.newidle_cost_ns, model.hot_cost_ns, model.floor_cost_ns)
        )
        self.costs: list[list[int]] = (
            model.costs if model.costs is not None else constant_costs()
        ).tolist()
        self.seed, self.draws = mixed(seed), 0
        self.smt_slow = round(model.smt_slowdown * 1024)
        self.rows: list[tuple[int, ...]] = []
        self.timers: list[tuple[int, int]] = []
        self.span = work.span_ns
        self.boxes: dict[int, Box] = {}

        #: rd->overload: a CPU has had two tasks since a balance last found none
        self.overload = False
        #: The tick in which CPUs without a tick of their own were last balanced
        self.nohz_tick = -1
        #: The shortest way of a direct wakeup up to its record
        self.direct_way = sum(self.costs[COSTS.index(name)][0] for name in DIRECT_WAY)
        ratio = 128 if model.newidle_ratio is None else model.newidle_ratio
        longest = self.costs[COSTS.index("pull")][-1] * 15 // 16
        if model.newidle_lb_cost_ns is not None:
            longest = model.newidle_lb_cost_ns
        in_core = model.newidle_core_lb_cost_ns
        phases = model.tick_phase_ns or [0] * n
        # A CPU that has hardly been idle has nothing to average.
        busy = [util >= 970 for util in model.cpu_util or [0] * n]
        llcs = {name: i for i, name in enumerate(dict.fromkeys(layout.llc))}
        self.cpus = [
            Cpu(
                index=c,
                core=layout.core[c],
                llc=llcs[layout.llc[c]],
                rq=RunQueue(self.tunes),
                load=QueueLoad(begin, lag=v >= (6, 0)),
                idle_task=self._task(-1, dict.fromkeys(("pid", "policy", "util"), 0), work, begin),
                tick_phase=phases[c] % self.tick,
                clock=begin,
                balanced={
                    level: begin - mixed(seed + 7919 * (c + 1)) % (weight * MS)
                    for level, weight in ((1, layout.llc.count(layout.llc[c])), (0, n))
                },
                avg_idle=2 * cost if model.avg_idle_ns is None or busy[c] else model.avg_idle_ns,
                lb_cost=longest,
                core_lb_cost=longest * 3 // 4 if in_core is None else in_core,
                luck={level: [0, 0, ratio] for level in range(3)},
                idle_since=begin,
                idle_stamp=begin,
            )
            for c in range(n)
        ]
        self.smt = len({cpu.core for cpu in self.cpus}) < n
        self.tasks = [self._task(i, row, work, begin) for i, row in enumerate(work.tasks)]
        for task, row in zip(self.tasks, work.tasks, strict=True):
            if row["last_wakee"] >= 0:
                task.last_wakee = self.tasks[row["last_wakee"]]
        self._start_budgets(work)
        for task, row in zip(self.tasks, work.tasks, strict=True):
            self._start(task, int(row["state"]))
        for cpu in self.cpus:
            if cpu.rq.waiting and not cpu.curr:
                cpu.ipi_at = begin

    def _task(self, index: int, row: Any, work: Work, now: int) -> Task:
        real = index >= 0
        first = int(row["first"]) if real else 0
        end = int(row["end"]) if real else 0
        sets = work.allowed
        n = len(work.topology.core)
        everywhere = frozenset(range(n))
        which = int(row["allowed"]) if real else -1
        allowed = everywhere if which < 0 else frozenset(c for c in everywhere if sets[which][c])
        weight = int(row["weight"]) if real else 1024
        task = Task(
            index=index,
            pid=int(row["pid"]),
            weight=weight,
            prio=int(row["prio"]) if real else 120,
            policy=int(row["policy"]),
            allowed=allowed,
            script=[
                tuple(int(x) for x in (r["code"], r["flags"], r["task"], r["value"]))
                for r in work.script[first:end]
            ],
            loop=int(row["loop"]) - first if real and row["loop"] >= 0 else -1,
            op=int(row["op"]) - first if real else 0,
            cpu=int(row["cpu"]) if real else 0,
            load=TaskLoad(weight, min(max(int(row["util"]), 0), 1024), now),
            from_=now,
        )
        if real:
            task.left = None if row["left"] < 0 else int(row["left"])
            task.tokens = int(row["tokens"])
            task.vruntime = int(row["vruntime"])
            task.dur_avg, task.flips = max(int(row["dur_avg"]), 0), max(int(row["flips"]), 0)
            task.flips_tick = int(row["flips_ts"]) // self.tick
            task.recent = int(row["recent"]) if row["recent"] >= 0 else task.cpu
            task.total = max(int(row["since_sleep"]), 0)
        else:
            task.recent = -1
            task.flips_tick = now // self.tick
        return task

    def _start_budgets(self, work: Work) -> None:
        """nr_idle_scan and the hint of each LLC, from who runs where."""
        model = self.model
        utils = [0] * len(self.cpus)
        taken = set()
        shares = [0] * len(self.cpus)
        for row in work.tasks:
            own = min(max(int(row["util"]), 0), 1024)
            if row["prio"] >= 100 and row["state"] != Start.UNBORN:
                shares[row["cpu"]] += own
            utils[row["cpu"]] += own
            if row["state"] in (Start.RUNNING, Start.QUEUED):
                taken.add(self.cpus[row["cpu"]].core)
        if model.cpu_util is not None:
            # A CPU's sum is what has run there; those that wait or sleep there are added later.
            utils = [min(max(util, 0), 1024) for util in model.cpu_util]
            for cpu, util in zip(self.cpus, utils, strict=True):
                cpu.load.util = util - shares[cpu.index]
                cpu.load.util_sum = cpu.load.util * LEAST
        self.scan, self.hint = {}, {}
        for llc in sorted({cpu.llc for cpu in self.cpus}):
            members = self.members(llc)
            scan = idle_scan([min(utils[m.index], 1024) for m in members], self.llc_pct(llc))
            if model.nr_idle_scan is not None:
                scan = model.nr_idle_scan[llc]
            self.scan[llc] = min(scan, len(members))
            self.hint[llc] = int(self.smt and any(m.core not in taken for m in members))
            if model.idle_core_hint is not None:
                self.hint[llc] = model.idle_core_hint[llc]

    def _start(self, task: Task, state: int) -> None:
        """Put a task where it is at the beginning."""
        cpu = self.cpus[task.cpu]
        step = task.script[task.op] if task.op < len(task.script) else None
        if state in (Start.RUNNING, Start.QUEUED):
            tunes = self.tunes
            lag = task.scaled(max(2 * tunes.slice, tunes.tick))
            task.vruntime = max(task.vruntime, -(lag if tunes.eevdf else tunes.latency // 2))
        task.vruntime += cpu.rq.floor
        task.deadline = task.vruntime + task.scaled(self.tunes.slice)
        if state != Start.UNBORN and task.fair:
            cpu.load.seed(task.load, self.now)
        if state == Start.RUNNING and cpu.curr:
            state = Start.QUEUED
        if state in (Start.RUNNING, Start.QUEUED):
            self.count(cpu, task, 1)
            if task.fair:
                cpu.load.enqueue(task.load, self.now)
        if state == Start.RUNNING:
            task.stand = Stand.RUNNING
            cpu.rq.curr, cpu.vacant = task, False
            cpu.tick_at = self.next_tick(cpu)
            task.total_picked, task.protected = task.total, task.deadline
            if task.fair:
                task.load.running = cpu.load.running = True
        elif state == Start.QUEUED:
            task.stand = Stand.QUEUED
            cpu.rq.enter(task)
        elif state == Start.WAKING:
            task.stand = Stand.WAKING
            if step and step[0] in (Op.BLOCK, Op.NAP, Op.UNTIL):
                task.op += 1
            cpu.wakelist.append(task)
            cpu.ipi_at, cpu.pending = self.now, True
            cpu.booked += self.model.window == 0
        elif state == Start.ASLEEP:
            task.stand = Stand.ASLEEP
            task.timer_cpu = cpu.index
            if step and step[0] == Op.NAP:
                self.set_timer(task, self.now + max(step[3] if task.left is None else task.left, 1))
            elif step and step[0] == Op.UNTIL:
                if 0 <= step[2] < len(self.cpus):
                    task.timer_cpu = step[2]
                self.set_timer(task, max(step[3], self.now + 1))
            elif step and step[0] == Op.RECV:
                self.box(step[2]).waiters.append(task)
            if step:
                task.left = None

    # --- the means ---

    def box(self, number: int) -> Box:
        return self.boxes.setdefault(number, Box())

    def members(self, llc: int) -> list[Cpu]:
        return [cpu for cpu in self.cpus if cpu.llc == llc]

    def threads(self, cpu: Cpu) -> list[Cpu]:
        return [other for other in self.cpus if other.core == cpu.core]

    def llc_pct(self, llc: int) -> int:
        """imbalance_pct of the LLC's domain: it is that of SMT where there is but one core."""
        members = self.members(llc)
        return 110 if len(members) > 1 and len({m.core for m in members}) == 1 else 117

    def behind(self, cpu: Cpu, others: list[Cpu]) -> list[Cpu]:
        """The others in ascending order, beginning behind the CPU, and round."""
        return sorted(
            (o for o in others if o is not cpu), key=lambda o: (o.index < cpu.index, o.index)
        )

    def draw(self, name: str) -> int:
        """A cost: the counter's hash is a point of its distribution."""
        self.draws += 1
        h = self.draws & WORD
        h = (h ^ h >> 16) * 0x7FEB352D & WORD
        h = (h ^ h >> 15 ^ self.seed) * 0x2C1B3C6D & WORD
        h ^= h >> 16
        points = self.costs[COSTS.index(name)]
        i, part = divmod(h * (len(points) - 1), 2**32)
        return int(points[i]) + ((points[i + 1] - points[i]) * (part >> 12) >> 20)

    def set_timer(self, task: Task, at: int) -> None:
        heapq.heappush(self.timers, (at, task.index))

    def next_tick(self, cpu: Cpu) -> int:
        return (self.now - cpu.tick_phase) // self.tick * self.tick + self.tick + cpu.tick_phase

    def kick(self, cpu: Cpu) -> None:
        cpu.ipi_at = min(cpu.ipi_at, self.now + self.draw("ipi"))

    def row(self, cpu: Cpu, kind: int, subject: Task, **fields: int) -> None:
        ctx = (Row.HARDIRQ if cpu.irq else 0) | (Row.RESCHED if cpu.rq.resched else 0)
        row = {
            "ts": self.now, "value": Row.NO_VALUE, "cpu": cpu.index, "pid": cpu.current.pid,
            "subject": subject.pid, "other": Row.NO_PID, "cpu_to": -1, "cpu_from": -1,
            "prio": subject.prio, "other_prio": Row.NO_PRIO, "state": Row.NO_STATE, "kind": kind,
            "ctx": ctx,
        } | fields  # fmt: skip
        self.rows.append(tuple(int(row[name]) for name in EVENT.names or ()))

    def charge(self, cpu: Cpu, on: Cpu) -> bool:
        """update_curr(); the record is written by the CPU that does it. Whether there is one."""
        before = cpu.current.from_
        ran = cpu.rq.charge(self.now)
        if cpu.current.from_ != before and cpu.current.stand is not Stand.RUNNING:
            cpu.clock = self.now  # the next one's time begins here
        if ran:
            self.row(on, Row.RUNTIME, cpu.current, prio=Row.NO_PRIO, value=ran)
        return ran > 0

    def count(self, cpu: Cpu, task: Task, by: int) -> None:
        cpu.nr += by
        if by > 0 and cpu.nr == 2:
            self.overload = True
        cpu.idlers += by if task.policy == IDLE else 0

    def is_idle(self, cpu: Cpu) -> bool:
        booked = self.model.window == 0 and cpu.booked > 0
        return cpu.vacant and not cpu.nr and not cpu.pending and not booked

    def enqueue(self, cpu: Cpu, task: Task, *, new: bool = False) -> None:
        """A wakeup (or fork) comes to its queue."""
        rq, task.woken = cpu.rq, False
        if task.stand is Stand.DELAYED:
            rq.keep_lag(task)
            task.stand = Stand.QUEUED
            cpu.delayed -= 1
            if task.lag > 0:  # DELAY_ZERO
                task.lag = 0
                rq.leave(task)
                rq.place(task, 0)
                rq.enter(task)
            return
        if task.off_queue:
            task.vruntime += rq.floor
            task.off_queue = False
        rq.place(task, self.now - task.from_ if task.from_ else 0, new=new)
        if task.fair:
            (cpu.load.new if new else cpu.load.enqueue)(task.load, self.now)
        task.stand = Stand.QUEUED
        self.enter(cpu, task)

    def enter(self, cpu: Cpu, task: Task) -> None:
        to_idle = cpu.rq.decided and not cpu.rq.heir
        if not cpu.rq.waiting and (not cpu.curr or to_idle):
            # schedule() takes over the clock of the first enqueue (rq_clock_skip_update()).
            cpu.clock = self.now
        cpu.rq.enter(task)

    def move(self, task: Task, to: Cpu, on: Cpu) -> None:
        """A queued task is pulled to another queue."""
        origin = self.cpus[task.cpu]
        self.row(on, Row.MIGRATE, task, cpu_from=origin.index, cpu_to=to.index)
        origin.rq.keep_lag(task)
        origin.rq.leave(task)
        origin.rq.forget(task)
        self.count(origin, task, -1)
        task.cpu, task.from_ = to.index, None
        if self.tunes.eevdf:
            to.rq.place(task, 0)
        else:
            task.vruntime += to.rq.floor - origin.rq.floor
        to.load.pull(task.load, self.now)
        self.count(to, task, 1)
        self.enter(to, task)
