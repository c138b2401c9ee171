"""Load balance of the machine oracle: newidle's choice, the periodic pass (section 8).

The simulator's simple forms: one task at a time, groups are cores inside an LLC and LLCs beyond.
"""

from __future__ import annotations

from oracle.cpu_oracle import MS, WORD, Bench, Cpu
from oracle.fair_oracle import Stand, Task
from oracle.load_oracle import idle_scan

from traceana._sim_types import FAR

#: cache_nice_tries inside one LLC and between LLCs.
TRIES = {1: 1, 0: 2}
CORE, LLC, BEYOND = 2, 1, 0


class Balance(Bench):
    """Who would give a task to whom."""

    def movable(self, source: Cpu, to: Cpu, level: int, hot_ns: int) -> Task | None:
        """can_migrate_task(), from the end of the queue; hot ones if balancing has failed."""
        domain = BEYOND if level == BEYOND else LLC
        desperate = to.failed[domain] > TRIES[domain]
        for task in reversed(source.rq.queue):
            # While its wakeup is still being recorded the queue's lock is held.
            entered = task is not source.entering and task.stand is Stand.QUEUED
            ready = task.fair and entered and task.off_cpu <= self.now
            if not ready or to.index not in task.allowed:
                continue
            lately = task.from_ is not None and self.now - task.from_ < hot_ns
            hot = hot_ns < 0 or lately
            if source.core == to.core or not hot or desperate:
                return task
        return None

    def group(self, cpu: Cpu, level: int) -> list[Cpu]:
        return self.threads(cpu) if level == LLC else self.members(cpu.llc)

    def gives(self, group: list[Cpu], own: list[Cpu], busy: bool) -> bool:
        """find_busiest_group(): whether a group gives a task to the own one."""

        def overloaded(cpus: list[Cpu]) -> bool:
            full = 100 * 1024 * len(cpus) < 117 * sum(cpu.load.cpu_util for cpu in cpus)
            return sum(cpu.nr for cpu in cpus) > len(cpus) and full

        def idle(cpus: list[Cpu]) -> int:
            return sum(1 for cpu in cpus if not cpu.nr and not cpu.pending)

        theirs, ours = sum(cpu.nr for cpu in group), sum(cpu.nr for cpu in own)
        if overloaded(group):
            return not overloaded(own) or 100 * theirs * len(own) > 117 * ours * len(group)
        if overloaded(own):
            return False
        return theirs > ours + 1 or (not busy and idle(own) > idle(group) + 1)

    def busiest(self, cpu: Cpu, level: int, hot_ns: int, *, busy: bool) -> Cpu | None:
        """The CPU to pull from in the LLC, or beyond; the first of those with the most tasks."""
        if level == LLC:
            others = self.behind(cpu, self.members(cpu.llc))
        else:
            others = [o for o in self.cpus if o.llc != cpu.llc]
        own = self.group(cpu, level)
        best = None
        for other in others:
            if other.core == cpu.core or other.nr < 2 or (best and other.nr <= best.nr):
                continue
            if self.gives(self.group(other, level), own, busy) and self.movable(
                other, cpu, level, hot_ns
            ):
                best = other
        return best

    # --- newidle ---

    def crowded(self, cpus: list[Cpu]) -> bool:
        return any(cpu.nr > 1 for cpu in cpus)

    def arrived(self, cpu: Cpu) -> bool:
        return cpu.nr > 0 or cpu.pending

    def looks_for_tasks(self, cpu: Cpu) -> bool:
        """Whether a CPU that runs dry goes through its domains at all."""
        if self.gate_pending and cpu.pending:
            return False
        if self.gate_cost and cpu.avg_idle < self.newidle_cost:
            return False
        return self.overload and cpu.avg_idle >= self.longest(cpu, CORE if self.smt else LLC)

    def longest(self, cpu: Cpu, level: int) -> int:
        """max_newidle_lb_cost of a domain; beyond the LLC in proportion to the CPUs."""
        if level == CORE:
            return cpu.core_lb_cost
        if level == LLC:
            return cpu.lb_cost
        return cpu.lb_cost * len(self.cpus) // len(self.members(cpu.llc))

    def note_overload(self, level: int) -> None:
        """A pass over the topmost domain finds out whether any CPU still has two tasks."""
        if level == BEYOND or (level == LLC and len(self.scan) == 1):
            self.overload = self.crowded(self.cpus)

    def dice(self, cpu: Cpu, level: int) -> int:
        """NI_RANDOM: 0 the domain is passed over, else what a find counts for."""
        if not self.random_newidle:
            return 1
        weight = 1 + cpu.luck[level][2]
        self.draws += 1
        h = (self.draws & WORD) * 0x7FEB352D & WORD
        h = (h ^ h >> 15 ^ self.seed) * 0x2C1B3C6D & WORD
        return 0 if h >> 9 & 1023 > weight else (1024 + weight // 2) // weight

    def tally(self, cpu: Cpu, level: int, found: int) -> None:
        """update_newidle_stats()."""
        luck = cpu.luck[level]
        luck[0] += 1
        luck[1] += found
        if luck[0] >= 1024:
            luck[2] = luck[1]
            luck[0] //= 2
            luck[1] //= 2

    def next_level(self, cpu: Cpu, level: int, spent: int) -> tuple[int, int] | None:
        """The next domain to look at, with what a find there counts for; None: no more."""
        for domain in range(level, -1, -1):
            absent = {CORE: not self.smt, LLC: False, BEYOND: len(self.scan) == 1}
            if absent[domain]:
                continue
            if cpu.avg_idle < spent + self.longest(cpu, domain):
                return None
            counts = self.dice(cpu, domain)
            if counts:
                return domain, counts
            self.tally(cpu, domain, 0)
        return None

    def source(self, cpu: Cpu, level: int) -> Cpu | None:
        """find_busiest_queue()."""
        if level == CORE:
            for other in self.behind(cpu, self.threads(cpu)):
                if other.nr > 1 and self.movable(other, cpu, level, self.hot_cost):
                    return other
            return None
        inside = self.members(cpu.llc)
        domain = inside if level == LLC else [o for o in self.cpus if o not in inside]
        best = self.busiest(cpu, level, 0, busy=False) if self.crowded(domain) else None
        if best is None:
            cpu.failed[level] = 0  # in balance
        elif self.movable(best, cpu, level, self.hot_cost):
            return best
        return None

    # --- the tick ---

    def renew_budget(self, cpu: Cpu) -> None:
        """update_idle_cpu_scan(): the tick has renewed the sums of the busy, nohz of the idle."""
        if not self.sis_util:
            return
        members = self.members(cpu.llc)
        for member in members:
            ticked = self.now - (self.now - member.tick_phase) % self.tick
            if not member.nr or member.load.last < ticked:
                member.load.update(self.now)
        self.scan[cpu.llc] = idle_scan(
            [member.load.cpu_util for member in members], self.llc_pct(cpu.llc)
        )

    def is_due(self, since: int, weight: int, idle: bool) -> bool:
        """get_sd_balance_interval() of a domain of so many CPUs."""
        interval = weight * MS if idle else 16 * weight * MS - self.tick
        return self.now - since >= max(self.tick, min(interval, 100 * MS * len(self.cpus)))

    def is_balancer(self, cpu: Cpu, level: int) -> bool:
        """should_we_balance(): the first of its group that is idle, or the first."""
        group = self.group(cpu, level)
        return next((t for t in group if not t.nr), group[0]) is cpu

    def balance(self, cpu: Cpu, on: Cpu) -> None:
        """rebalance_domains() for a CPU, done by CPU `on`; it ends when a task has come."""
        idle = not self.arrived(cpu)
        size = {LLC: len(self.members(cpu.llc)), BEYOND: len(self.cpus)}
        for level in (LLC, BEYOND) if len(self.scan) > 1 else (LLC,):
            if not self.is_due(cpu.balanced[level], size[level], idle):
                continue
            cpu.balanced[level] = self.now
            if not self.is_balancer(cpu, level):
                continue
            if level == LLC:
                self.renew_budget(cpu)
            if self.balance_domain(cpu, on, level, idle=idle):
                return

    def balance_domain(self, cpu: Cpu, on: Cpu, level: int, *, idle: bool) -> bool:
        """load_balance(); whether a task has come."""
        best = self.busiest(cpu, level, 0, busy=not idle)
        self.note_overload(level)
        if best is None:
            cpu.failed[level] = 0
            return False
        if best.nr - cpu.nr < 2:
            return False
        task = self.movable(best, cpu, level, self.hot_cost)
        if task is None:
            cpu.failed[level] += 1
            return False
        cpu.failed[level] = 0
        self.move(task, cpu, on)
        if not cpu.curr and (cpu is on or cpu.open):
            cpu.rq.resched = True
            if cpu is not on:
                self.kick(cpu)
        return True

    def periodic(self, cpu: Cpu) -> None:
        """At a CPU's tick: for itself; a busy one, once a tick, for those without ticks."""
        self.balance(cpu, cpu)
        if cpu.vacant or self.now // self.tick == self.nohz_tick:
            return
        self.nohz_tick = self.now // self.tick
        for other in self.cpus:
            if other.vacant and other.tick_at >= FAR and not other.nr:
                self.balance(other, cpu)
