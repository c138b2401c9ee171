"""Load tracking in plain Python: what a task and a CPU's queue have been doing of late.

Written from section 4 of the semantics with Python's unbounded integers; the powers of y come from
decimals, not from a table. One Signal is a decaying sum; a Queue's own sum holds those of its
tasks, the sleeping ones included, and they take theirs along when they move.
"""

from __future__ import annotations

from decimal import Decimal, localcontext

PERIOD, LIMIT = 1024, 47_742
LEAST = LIMIT - PERIOD
MARGIN = 10


def _powers() -> list[int]:
    with localcontext() as context:
        context.prec = 60
        y = Decimal(2) ** (Decimal(-1) / Decimal(32))
        return [int((2**32 - 1) * y**n) for n in range(32)]


POWERS = _powers()


def decay(value: int, periods: int) -> int:
    """value * y^periods, y^32 = 1/2."""
    if periods > 2016:
        return 0
    return (value >> (periods // 32)) * POWERS[periods % 32] >> 32


class Signal:
    """Section 4.1: sums and averages of one task or queue."""

    def __init__(self, last: int = 0) -> None:
        self.last, self.contrib = last, 0
        self.load_sum = self.util_sum = self.load = self.util = 0

    @property
    def divider(self) -> int:
        return LEAST + self.contrib

    def pass_time(self, now: int, weight: int, running: bool) -> bool:
        """Let time pass; whether a period came to its end (only then the averages change)."""
        if now < self.last:
            self.last = now
            return False
        units = (now - self.last) // 1024
        if not units:
            return False
        self.last += units * 1024
        periods, rest = divmod(self.contrib + units, PERIOD)
        added = units
        if periods:
            self.load_sum = decay(self.load_sum, periods)
            self.util_sum = decay(self.util_sum, periods)
            whole = LIMIT - decay(LIMIT, periods) - PERIOD
            added = decay(PERIOD - self.contrib, periods) + whole + rest
        self.contrib = rest
        if weight:
            self.load_sum += weight * added
            self.util_sum += (added * 1024) if running else 0
        return periods > 0


class TaskLoad(Signal):
    """What a task contributes; `home` is the queue whose sums it is part of."""

    def __init__(self, weight: int, util: int, now: int) -> None:
        super().__init__(now)
        self.weight, self.util = weight, util
        self.queued = self.running = self.changed = False
        self.slow = self.seen = 0  # util_est: ewma, enqueued
        self.home: QueueLoad | None = None

    @property
    def estimate(self) -> int:
        return max(self.slow, self.seen)

    def update(self, now: int) -> None:
        if self.pass_time(now, int(self.queued), self.running):
            self.changed |= self.queued
            self.load = self.weight * self.load_sum // self.divider
            self.util = self.util_sum // self.divider

    def learn(self) -> None:
        """Section 4.2: the estimate rises at once and falls by quarters."""
        if not self.changed:
            return
        if self.util > self.slow:
            self.slow = self.util
        elif self.slow - self.util < MARGIN:
            if abs(self.seen - self.util) < MARGIN:
                return
        elif self.util <= 1024:
            self.slow = (3 * self.slow + self.util) // 4
        self.seen = self.util
        self.changed = False


class QueueLoad(Signal):
    """The root fair queue of one CPU."""

    def __init__(self, now: int, *, lag: bool = True) -> None:
        super().__init__(now)
        self.lag = lag  # since 6.0: migrate_se_pelt_lag()
        self.weight = self.count = self.estimate = 0
        self.running = False
        self.gone: list[tuple[int, int]] = []  # (load, util) of sleepers that have left

    def update(self, now: int) -> None:
        if self.gone:
            load, util = sum(x for x, _ in self.gone), sum(x for _, x in self.gone)
            self.gone = []
            self.take_off(load, load * self.divider, util, util * self.divider)
        if self.pass_time(now, self.weight, self.running):
            self.load = self.load_sum // self.divider
            self.util = self.util_sum // self.divider

    def take_off(self, load: int, load_sum: int, util: int, util_sum: int) -> None:
        """A part leaves; rounding never leaves less than what the averages stand for."""
        self.load = max(self.load - load, 0)
        self.load_sum = max(self.load_sum - load_sum, self.load * LEAST)
        self.util = max(self.util - util, 0)
        self.util_sum = max(self.util_sum - util_sum, self.util * LEAST)

    def attach(self, task: TaskLoad) -> None:
        task.last, task.contrib, task.home = self.last, self.contrib, self
        task.util_sum = task.util * self.divider
        task.load_sum = task.load * self.divider
        task.load_sum = task.load_sum // task.weight if task.load_sum > task.weight else 1
        self.load += task.load
        self.load_sum += task.weight * task.load_sum
        self.util += task.util
        self.util_sum += task.util_sum

    def join(self, task: TaskLoad) -> None:
        task.queued = True
        self.weight += task.weight
        self.count += 1
        self.estimate += task.estimate

    def part(self, task: TaskLoad) -> None:
        task.queued = task.running = False
        self.weight -= task.weight
        self.count -= 1
        self.estimate = max(self.estimate - task.estimate, 0)

    # --- what happens to tasks ---

    def seed(self, task: TaskLoad, now: int) -> None:
        """At the start: as much load as utilisation."""
        self.update(now)
        task.load = task.slow = task.seen = task.util
        self.attach(task)

    def new(self, task: TaskLoad, now: int) -> None:
        """A fork: full load, and half of what the CPU has to spare at most."""
        self.update(now)
        task.load, task.slow, task.seen, task.util = task.weight, 0, 0, 0
        spare = (1024 - self.util) // 2
        if spare > 0:
            task.util = spare
            if self.util:
                task.util = min(spare, self.util * task.weight // (self.load + 1))
        self.attach(task)
        self.join(task)

    def enqueue(self, task: TaskLoad, now: int) -> None:
        if task.queued:
            return
        if task.home is not self:
            if task.home is not None:
                task.update(task.home.last)
                task.home.gone.append((task.load, task.util))
                if self.lag and not task.home.count:
                    task.update(now)
            self.update(now)
            self.attach(task)
        else:
            task.update(now)
            self.update(now)
        self.join(task)

    def dequeue(self, task: TaskLoad, now: int) -> None:
        """The task sleeps."""
        if not task.queued or task.home is None:
            return
        home = task.home
        task.update(now)
        home.update(now)
        if task.running:
            home.running = False
        home.part(task)
        task.learn()

    def pull(self, task: TaskLoad, now: int) -> None:
        """A queued task comes here from another queue."""
        old = task.home
        if not task.queued or old is None:
            self.enqueue(task, now)
            return
        if old is self:
            return
        task.update(now)
        old.update(now)
        if task.running:
            old.running = False
        old.part(task)
        old.take_off(task.load, task.weight * task.load_sum, task.util, task.util_sum)
        self.update(now)
        self.attach(task)
        self.join(task)

    def switch(self, prev: TaskLoad | None, next_: TaskLoad | None, now: int) -> None:
        self.update(now)
        if prev is not None:
            prev.update(now)
            prev.running = False
        self.running = False
        if next_ is not None:
            if not next_.queued or next_.home is not self:
                self.pull(next_, now)
            next_.update(now)
            next_.running = self.running = True

    @property
    def cpu_util(self) -> int:
        """What SIS_UTIL sums."""
        return min(max(self.util, self.estimate), 1024)

    def share(self, task: TaskLoad) -> int:
        """task_h_load()."""
        return task.load * self.load // (self.load + 1)


def idle_scan(utils: list[int], pct: int) -> int:
    """Section 6.8: nr_idle_scan of an LLC with these utilisations."""
    w = len(utils)
    x = sum(utils) // w
    return (1024 - min(x * x * pct * pct // 10_240_000, 1024)) * w // 1024
