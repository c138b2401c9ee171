"""One CPU's run queue in plain Python: who runs when, with no costs at all.

Written from section 9 of the semantics, apart from the kernels: queues are Python lists, averages
are fractions. Scripts are lists of ("run", ns) and ("nap", ns), once through. Ticks at multiples of
`tick`; a timer that ends in the same instant as another comes in the order of tasks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

MIN_GRAN, LATENCY, WAKEUP_GRAN = 750_000, 6_000_000, 1_000_000
BASE = 1 << 40


@dataclass
class Task:
    """One task: its script and where it stands."""

    script: list[tuple[str, int]]
    weight: int = 1024
    v: int = BASE
    deadline: int = BASE + MIN_GRAN
    lag: int = 0
    at: int = 0
    left: int = 0
    wakes: int | None = None
    ran: int = 0
    protected: int | None = None
    seen: int = 0
    slept_at: int = 0
    order: int = field(default=0)

    def scaled(self, ns: int) -> int:
        return ns * 1024 // self.weight


class Queue:
    """The CPU: current task, queue, clock."""

    def __init__(self, tasks: list[Task], *, eevdf: bool, tick: int) -> None:
        self.tasks, self.eevdf, self.tick = tasks, eevdf, tick
        self.now = self.from_ = 0
        self.curr: Task | None = None
        self.queue: list[Task] = []
        self.min_v = BASE
        self.buddy: Task | None = None
        self.switches: list[tuple[int, int]] = []
        self.count = 0
        self.resched = False
        for task in tasks:
            task.left = task.script[0][1]
            self._enter(task)
        self._schedule()

    def _enter(self, task: Task) -> None:
        self.count += 1
        task.order = self.count
        self.queue.append(task)

    def _members(self) -> list[Task]:
        return self.queue + ([self.curr] if self.curr else [])

    def average(self) -> Fraction:
        members = self._members()
        weight = sum(t.weight for t in members)
        return Fraction(sum(t.weight * t.v for t in members), weight)

    def eligible(self, task: Task) -> bool:
        return task.v <= math.floor(self.average())

    def pick(self) -> Task | None:
        members = self._members()
        if not members:
            return None
        if not self.eevdf:
            best = min(members, key=lambda t: (t.v, t is not self.curr and 1, t.order))
            rest = [t for t in self.queue if t.v == best.v]
            if best is self.curr and rest:
                best = min(rest, key=lambda t: t.order)  # only an earlier one keeps the CPU
            if self.buddy in members and self.buddy.v - best.v <= best.scaled(WAKEUP_GRAN):
                best = self.buddy
            return best
        curr = self.curr if self.curr and self.eligible(self.curr) else None
        if curr and curr.protected == curr.deadline:
            return curr
        able = sorted(
            (t for t in self.queue if self.eligible(t)), key=lambda t: (t.deadline, t.order)
        )
        best = able[0] if able else None
        if best is None or (curr and curr.deadline < best.deadline):
            best = curr
        return best or min(self.queue, key=lambda t: (t.deadline, t.order))

    def charge(self) -> None:
        if not self.curr:
            return
        ran = self.now - self.from_
        self.from_ = self.now
        task = self.curr
        task.ran += ran
        task.seen += ran
        task.left -= ran
        task.v += task.scaled(ran)
        if self.eevdf and ran and task.v >= task.deadline:
            task.deadline = task.v + task.scaled(MIN_GRAN)
            self.resched |= bool(self.queue)
        self._advance()

    def _advance(self) -> None:
        if self.eevdf:
            if not self.queue and self.curr:
                self.min_v = max(self.min_v, self.curr.v)
        elif self._members():
            self.min_v = max(self.min_v, min(t.v for t in self._members()))

    def _schedule(self) -> None:
        self.resched = False
        best = self.pick()
        if self.buddy is best:
            self.buddy = None
        if best is self.curr:
            return
        if self.curr:
            self._enter(self.curr)
        self.curr = best
        if best:
            self.queue.remove(best)
            self.from_ = self.now
            best.seen = 0
            best.protected = best.deadline
        self.switches.append((self.now, self.tasks.index(best) if best else -1))

    def _slice(self, task: Task) -> int:
        members = self._members()
        period = LATENCY if len(members) * MIN_GRAN <= LATENCY else len(members) * MIN_GRAN
        return max(period * task.weight // sum(t.weight for t in members), MIN_GRAN)

    def _tick(self) -> None:
        self.charge()
        task = self.curr
        if task and not self.eevdf and self.queue:
            slice_ = self._slice(task)
            first = min(t.v for t in self.queue)
            if task.seen > slice_ or (task.seen >= MIN_GRAN and task.v - first > slice_):
                self.resched = True
        if self.resched:
            self._schedule()

    def _wake(self, task: Task) -> None:
        self.charge()
        task.wakes = None
        if self.eevdf:
            weight = sum(t.weight for t in self._members())
            v = math.floor(self.average()) if weight else self.min_v
            lag = task.lag
            if weight and lag:
                lag = lag * (weight + task.weight) // weight
            task.v = v - lag
            task.deadline = task.v + task.scaled(MIN_GRAN)
        else:
            task.v = max(task.v, self.min_v - LATENCY // 2)
        self._enter(task)
        if not self.curr:
            self._schedule()
        elif self.eevdf:
            if self.pick() is task:
                self.resched = True
        elif self.curr.v - task.v > task.scaled(WAKEUP_GRAN):
            self.buddy = task
            self.resched = True
        if self.resched:
            self._schedule()

    def _step(self, task: Task) -> None:
        """The current task has done its stretch."""
        self.charge()
        task.at += 1
        code, ns = task.script[task.at] if task.at < len(task.script) else ("end", 0)
        if code == "run":
            task.left = ns
            return
        if self.eevdf:
            limit = task.scaled(max(2 * MIN_GRAN, self.tick))
            task.lag = max(-limit, min(math.floor(self.average()) - task.v, limit))
        if code == "nap":
            task.wakes = self.now + ns
            task.at += 1
            task.left = task.script[task.at][1] if task.at < len(task.script) else 0
        if self.buddy is task:
            self.buddy = None
        self.curr = None
        self.resched = False
        best = self.pick()
        if self.buddy is best:
            self.buddy = None
        self.curr = best
        if best:
            self.queue.remove(best)
            self.from_ = self.now
            best.seen = 0
            best.protected = best.deadline
        self.switches.append((self.now, self.tasks.index(best) if best else -1))

    def run(self, until: int) -> list[tuple[int, int]]:
        """Return (instant, index of the task, -1 idle) of each switch."""
        while True:
            timers = [(t.wakes, i) for i, t in enumerate(self.tasks) if t.wakes is not None]
            done = self.from_ + self.curr.left if self.curr else None
            tick = (self.now // self.tick + 1) * self.tick
            soonest = min(
                x for x in (done, tick, min(timers)[0] if timers else None) if x is not None
            )
            if soonest >= until:
                return self.switches
            self.now = soonest
            if timers and min(timers)[0] == soonest:
                self._wake(self.tasks[min(timers)[1]])
            elif soonest == tick:
                self._tick()
            else:
                assert self.curr
                self._step(self.curr)
