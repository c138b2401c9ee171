"""Who runs next on a CPU, in plain Python: run queues of the machine oracle.

Section 9 of the semantics, with update_curr(), place_entity() and the two pick functions spelt out
for tasks of one level. A queue is a sorted list; averages are fractions. Real-time tasks stand in
front of the fair ones by priority.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field
from enum import Enum, auto
from fractions import Fraction
from typing import Any

from oracle.load_oracle import TaskLoad

NICE_0 = 1024
BATCH, IDLE = 3, 5
LONG_SLEEP = 60_000_000_000


class Stand(Enum):
    """How a task stands."""

    UNBORN = auto()
    RUNNING = auto()
    QUEUED = auto()
    ASLEEP = auto()
    WAKING = auto()
    DELAYED = auto()
    DEAD = auto()


@dataclass
class Tunes:
    """The numbers of a kernel, ns."""

    eevdf: bool
    slice: int  # min_granularity or base_slice
    latency: int
    wakeup_granularity: int
    tick: int
    yield_form: str = "plain"
    yield_moves: bool = False  # sched_yield() moves the vruntime to the deadline (6.12)
    parity: bool = True


@dataclass(eq=False)
class Task:
    """A task: what it is, where its script is, what the scheduler knows of it."""

    index: int
    pid: int
    weight: int
    prio: int
    policy: int
    allowed: frozenset[int]
    script: list[Any]
    loop: int
    op: int
    cpu: int
    load: TaskLoad
    stand: Stand = Stand.UNBORN
    left: int | None = None  # ns of the RUN it is in
    tokens: int = 0
    woken: bool = False  # a delayed sleeper whose wakeup is under way
    vruntime: int = 0
    deadline: int = 0
    lag: int = 0
    protected: int | None = None  # the deadline up to which it keeps the CPU
    off_queue: bool = False  # its vruntime is relative to no queue's
    from_: int | None = 0  # since when its run time has not been charged; None: cold
    total: int = 0
    total_asleep: int = 0
    total_picked: int = 0
    dur_avg: int = 0
    flips: int = 0
    flips_tick: int = 0
    last_wakee: Task | None = None
    recent: int = 0
    off_cpu: float = 0  # when its last CPU has left it for good
    shift: int = 0
    timer_cpu: int = 0
    sender: Task | None = None
    last_state: int = 0
    used: int = 0
    steps: int = 0
    bursts: int = 0

    @property
    def fair(self) -> bool:
        return self.prio >= 100

    def scaled(self, ns: int) -> int:
        return ns * NICE_0 // self.weight


@dataclass
class RunQueue:
    """What waits on one CPU, and who is there (until the record of the switch)."""

    tunes: Tunes
    curr: Task | None = None
    heir: Task | None = None  # chosen, and current from the next switch on
    decided: bool = False  # who comes next, be it the idle task
    locked: bool = False  # schedule() has not looked for a next one yet
    waiting: list[tuple[tuple[int, int], int, Task]] = field(default_factory=list)
    floor: int = 1 << 40  # min_vruntime
    next_buddy: Task | None = None
    last_buddy: Task | None = None
    skip_buddy: Task | None = None
    resched: bool = False
    entries: int = 0

    # --- members ---

    def enter(self, task: Task) -> None:
        key = (1, task.deadline if self.tunes.eevdf else task.vruntime)
        self.entries += 1
        entry = (key if task.fair else (0, task.prio), self.entries, task)
        bisect.insort(self.waiting, entry, key=lambda e: e[:2])

    def take(self, task: Task | None) -> None:
        """set_next_entity(): the queue's lock is held from here to the end of the switch."""
        self.decided = True
        if task:
            self.leave(task)
            task.stand = Stand.RUNNING
            task.total_picked, task.protected = task.total, task.deadline
            self.heir = task

    def leave(self, task: Task) -> None:
        self.waiting = [entry for entry in self.waiting if entry[2] is not task]

    def forget(self, task: Task) -> None:
        """clear_buddies()."""
        self.next_buddy = None if self.next_buddy is task else self.next_buddy
        self.last_buddy = None if self.last_buddy is task else self.last_buddy
        self.skip_buddy = None if self.skip_buddy is task else self.skip_buddy

    @property
    def queue(self) -> list[Task]:
        return [task for _, _, task in self.waiting]

    @property
    def fair_queue(self) -> list[Task]:
        return [task for task in self.queue if task.fair]

    @property
    def runner(self) -> Task | None:
        """The current task, while it is runnable; the one that has been chosen to be it."""
        task = self.heir or self.curr
        return task if task and task.stand is Stand.RUNNING else None

    @property
    def fair_members(self) -> list[Task]:
        runner = self.runner
        return self.fair_queue + ([runner] if runner and runner.fair else [])

    # --- time ---

    def average(self) -> int:
        """V: the weighted average vruntime, floored; of an empty queue where it stood."""
        members = self.fair_members
        if not members:
            return self.floor
        total = sum(t.weight * t.vruntime for t in members)
        return math.floor(Fraction(total, sum(t.weight for t in members)))

    def charge(self, now: int) -> int:
        """update_curr(): ns of a fair task's run time that have not been told yet."""
        task = self.curr
        if task is None or self.decided or task.from_ is None or now <= task.from_:
            return 0
        if task.stand is not Stand.RUNNING and self.locked:
            return 0  # schedule() has told its time and holds the lock
        ran, task.from_ = now - task.from_, now
        task.total += ran
        if not task.fair:
            return 0
        task.vruntime += task.scaled(ran)
        if self.tunes.eevdf and task.vruntime >= task.deadline:
            task.deadline = task.vruntime + task.scaled(self.tunes.slice)
            self.resched |= bool(self.fair_queue)
        self.raise_floor()
        return ran

    def raise_floor(self) -> None:
        """update_min_vruntime(): the smallest of those that are runnable; it never falls.

        Under EEVDF it is only asked for when nobody is there, so the last one's will do.
        """
        members = self.fair_members
        if members and (not self.tunes.eevdf or (self.runner and not self.waiting)):
            self.floor = max(self.floor, min(t.vruntime for t in members))

    def keep_lag(self, task: Task) -> None:
        if self.tunes.eevdf:
            most = task.scaled(max(2 * self.tunes.slice, self.tunes.tick))
            task.lag = max(-most, min(self.average() - task.vruntime, most))

    def place(self, task: Task, slept: int, *, new: bool = False) -> None:
        """place_entity()."""
        tunes = self.tunes
        if not task.fair:
            return
        if tunes.eevdf:
            weight = sum(t.weight for t in self.fair_members)
            lag = 0
            if weight:
                lag = abs(task.lag) * (weight + task.weight) // weight
                lag = lag if task.lag >= 0 else -lag
            task.vruntime = self.average() - lag
            part = task.scaled(tunes.slice)
            task.deadline = task.vruntime + (part // 2 if new else part)
        elif new:
            task.vruntime = self.floor + task.scaled(self.time_slice(task))
        else:
            credit = (tunes.slice if task.policy == IDLE else tunes.latency) // 2
            least = self.floor - credit
            task.vruntime = least if slept > LONG_SLEEP else max(task.vruntime, least)

    def time_slice(self, task: Task) -> int:
        """sched_slice(): the task's part of a period, itself counted."""
        members = {*self.fair_members, task}
        tunes = self.tunes
        period = max(tunes.latency, len(members) * tunes.slice)
        weight = sum(t.weight for t in members)
        return max(period * task.weight // weight, tunes.slice)

    def slice_over(self) -> bool:
        """check_preempt_tick()."""
        task = self.curr
        if self.tunes.eevdf or not self.fair_queue or task is None or not task.fair:
            return False
        part = self.time_slice(task)
        ran = task.total - task.total_picked
        if ran > part:
            return True
        behind = task.vruntime - self.fair_queue[0].vruntime > part
        return ran >= self.tunes.slice and behind

    # --- order ---

    def worse(self, task: Task, than: Task) -> bool:
        """Whether `than` waits for more than a granularity longer than `task` does."""
        gran = than.scaled(self.tunes.wakeup_granularity)
        return task.vruntime - than.vruntime > gran

    def pick(self) -> Task | None:
        """pick_next_task(); who is picked stays where it is."""
        runner = self.runner
        real_time = [t for t in self.queue if not t.fair]
        if runner and not runner.fair:
            real_time = [runner, *real_time]
        if real_time:
            return min(real_time, key=lambda t: t.prio)
        if self.tunes.eevdf:
            return self.pick_deadline()
        order = self.fair_queue
        if runner:
            # In front of those that have run for longer.
            ahead = (i for i, t in enumerate(order) if t.vruntime > runner.vruntime)
            order.insert(next(ahead, len(order)), runner)
        if not order:
            return None
        left = best = order[0]
        if self.skip_buddy is left and len(order) > 1 and not self.worse(order[1], left):
            best = order[1]
        against = best if self.tunes.yield_form == "second" else left
        for buddy in (self.next_buddy, self.last_buddy):
            if buddy is not None and not self.worse(buddy, against):
                return buddy
        return best

    def pick_deadline(self) -> Task | None:
        """pick_eevdf()."""
        v, runner = self.average(), self.runner
        if runner and runner.vruntime > v:
            runner = None
        if runner and self.tunes.parity and runner.protected == runner.deadline:
            return runner
        able = [t for t in self.fair_queue if t.vruntime <= v]
        if able and not (runner and runner.deadline < able[0].deadline):
            return able[0]
        return runner or next(iter(self.fair_queue), None)

    def preempts(self, task: Task) -> bool:
        """check_preempt_curr() by a task just enqueued."""
        curr = self.heir or self.curr
        if curr is None:
            return True
        if curr.stand is not Stand.RUNNING:
            return False
        if not task.fair or not curr.fair:
            return task.prio < curr.prio
        if curr.policy == IDLE and task.policy != IDLE:
            return True
        if task.policy in (BATCH, IDLE):
            return False
        if self.tunes.eevdf:
            return self.pick_deadline() is task
        if not self.worse(curr, task):
            return False
        self.next_buddy = task
        if len(self.waiting) + 1 >= -(-self.tunes.latency // self.tunes.slice):
            self.last_buddy = curr
        return True

    def yield_(self, to: Task | None) -> None:
        """sched_yield() of the current task; `to`: the target of a yield_to() that waits here."""
        task, tunes = self.curr, self.tunes
        assert task is not None
        if not task.fair:
            return
        if tunes.eevdf:
            ahead = task.vruntime > self.average()
            if not tunes.yield_moves:
                task.deadline += task.scaled(tunes.slice)
            elif not ahead:
                task.vruntime = task.deadline
                task.deadline += task.scaled(tunes.slice)
                self.raise_floor()
        else:
            if tunes.yield_form == "slice":
                task.vruntime += task.scaled(self.time_slice(task))
            elif tunes.yield_form == "min_granularity":
                task.vruntime += task.scaled(tunes.slice)
            self.skip_buddy = task
        if to is not None:
            self.next_buddy = to
