"""Random legal schedules: a small machine that runs, and records what a kernel would.

Each CPU is a coroutine that yields wherever another CPU may come between. The machine keeps to
the order of section 1.1 of the kernel semantics: waking, then [migrate], then the wakeup by the
waker (direct) or by the chosen CPU from its wakelist (remote); a task that is leaving its CPU is
put on that CPU's wakelist (on_cpu) or waited for; a block is the dequeue's sched_stat_runtime,
perhaps a newidle pull with a further one (7.8-4), then the switch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from traceana.columns import EventColumns
from traceana.schema import Ctx, EventKind, State
from traceana.start_state import StartState, TaskSeed

__all__ = ["Schedule", "drop", "relabel", "schedule", "shift"]

K = EventKind
IRQ = (int(Ctx.HARDIRQ), int(Ctx.SOFTIRQ))


@dataclass
class Schedule:
    """Events and what the timeline is told beside them; ``origin`` says how to make it again."""

    columns: EventColumns = field(repr=False)
    llc: np.ndarray
    kernel: int
    hz: int
    start: StartState | None = field(default=None, repr=False)
    origin: str = ""


@dataclass
class _Task:
    pid: int
    prio: int
    cpu: int
    st: str = "asleep"  # asleep, queued, running, leaving, waking, dead
    busy: bool = False  # a wakeup of it is under way
    unaccounted: int = 0
    false_r: bool = False
    #: Its state may be set to sleep though it is on a queue: preempted on its way to schedule().
    wakeable: bool = False
    #: It came back from a sleep that was called off; until then a waking would look like the
    #: one that had been missing.
    quiet_until: int = 0
    #: Preempted between a waking and its wakeup: the waker is next on the queue's lock.
    held: bool = False


@dataclass
class _Machine:
    rng: random.Random
    cpus: int
    llc: list[int]
    kernel: int
    pace: int
    reread: bool = False
    rows: list[dict[str, int]] = field(default_factory=list)
    now: int = 0

    def __post_init__(self) -> None:
        rng = self.rng
        self.tasks: dict[int, _Task] = {}
        self.current = [0] * self.cpus
        self.queue: list[list[int]] = [[] for _ in range(self.cpus)]
        self.wakelist: list[list[int]] = [[] for _ in range(self.cpus)]
        self.next_pid = 100
        self.graves: list[int] = []
        for _ in range(rng.randint(2, 3 * self.cpus)):
            self.add(rng.randrange(self.cpus))

    def add(self, cpu: int, pid: int | None = None) -> _Task:
        if pid is None:
            self.next_pid += self.rng.randint(1, 7)
            pid = self.next_pid
        prio = self.rng.choice((120, 120, 120, 120, 139, 100, 49))
        task = self.tasks[pid] = _Task(pid, prio, cpu)
        return task

    # --- recording ---

    def tick(self) -> None:
        rng, r = self.rng, self.rng.random()
        if r < 0.55:
            step = rng.randint(1, 400)
        elif r < 0.9:
            step = rng.randint(1, 8000)
        elif r < 0.999 or self.pace == 0:
            step = rng.randint(1, 400_000)
        else:
            step = rng.randint(1, self.pace)
        self.now += step
        for pid in self.current:
            if pid:
                self.tasks[pid].unaccounted += step

    def emit(self, cpu: int, kind: EventKind, ctx: int = 0, **values: int) -> None:
        self.tick()
        row = {"ts": self.now, "cpu": cpu, "kind": int(kind), "pid": self.current[cpu], "ctx": ctx}
        self.rows.append({**row, **values})

    def stat(self, cpu: int, task: _Task, ctx: int = 0) -> None:
        if task.prio >= 100:
            value = max(task.unaccounted - self.rng.randint(0, 5), 1)
            task.unaccounted = 0
            self.emit(cpu, K.STAT_RUNTIME, ctx, subject=task.pid, value=value)

    # --- what a CPU does ---

    def run(self, cpu: int) -> Iterator[None]:
        rng = self.rng
        while True:
            yield
            if self.wakelist[cpu] and rng.random() < 0.6:
                yield from self.flush(cpu)
                continue
            if not self.current[cpu]:
                if self.queue[cpu]:
                    self.switch(cpu, None)
                elif rng.random() < 0.15:
                    yield from self.wake(cpu, rng.choice(IRQ))
                elif rng.random() < 0.1:
                    state = rng.choice((0, 1, 2, 3, 4294967295))
                    self.emit(cpu, K.CPU_IDLE, cpu_to=cpu, value=state)
                continue
            task = self.tasks[self.current[cpu]]
            r = rng.random()
            if r < 0.08:
                self.stat(cpu, task, IRQ[0])
            elif r < 0.42:
                yield from self.wake(cpu, 0 if rng.random() < 0.85 else rng.choice(IRQ))
            elif r < 0.44 and not task.busy:
                self.emit(cpu, K.WAKING, subject=task.pid, prio=task.prio, cpu_to=task.cpu)
                self.emit(cpu, K.WAKEUP, subject=task.pid, prio=task.prio, cpu_to=task.cpu)
            elif r < 0.74 and not (task.busy and task.held):
                yield from self.block(cpu, task)
            elif r < 0.88:
                yield from self.preempt(cpu, task)
            elif r < 0.92:
                yield from self.fork(cpu, task)
            elif r < 0.94:
                self.balance(cpu)
            elif r < 0.96 and len(self.tasks) > 3 and not task.busy:
                self.emit(cpu, K.EXIT, subject=task.pid, prio=task.prio)
                yield from self.block(cpu, task, dead=True)
            else:
                self.emit(cpu, K.MARKER)

    def flush(self, cpu: int) -> Iterator[None]:
        """The wakelist, in the kick's interrupt or by the idle loop."""
        ctx = 0 if not self.current[cpu] and self.rng.random() < 0.5 else IRQ[0]
        while self.wakelist[cpu]:
            task = self.tasks[self.wakelist[cpu].pop(0)]
            self.emit(cpu, K.WAKEUP, ctx, subject=task.pid, prio=task.prio, cpu_to=cpu)
            self.enqueue(task, cpu)
            yield

    def enqueue(self, task: _Task, cpu: int) -> None:
        task.st, task.cpu, task.busy, task.wakeable = "queued", cpu, False, False
        task.quiet_until = 0
        self.queue[cpu].append(task.pid)

    def switch(self, cpu: int, leaver: _Task | None, state: int = 0) -> None:
        """Whoever is first on the queue follows the current task."""
        after = self.queue[cpu].pop(0) if self.queue[cpu] else 0
        prio = leaver.prio if leaver else 120
        self.emit(
            cpu,
            K.SWITCH,
            subject=self.current[cpu],
            prio=prio,
            state=state,
            other=after,
            other_prio=self.tasks[after].prio if after else 120,
        )
        self.current[cpu] = after
        if after:
            task = self.tasks[after]
            task.st, task.cpu, task.unaccounted = "running", cpu, 0
            task.wakeable = True
            if task.quiet_until:
                task.quiet_until = self.now + 12_000

    def preempt(self, cpu: int, task: _Task) -> Iterator[None]:
        if not self.queue[cpu] or (task.busy and self.reread):
            return
        self.stat(cpu, task)
        yield
        if task.busy and self.reread:
            return
        if self.queue[cpu]:
            state = int(State.PREEMPTED) if self.rng.random() < 0.5 else 0
            self.switch(cpu, task, state)
            task.st, task.held = "queued", task.busy
            self.queue[cpu].append(task.pid)

    def block(self, cpu: int, task: _Task, dead: bool = False) -> Iterator[None]:
        self.stat(cpu, task)
        if not dead and 5018 <= self.kernel < 6016 and not task.busy and self.rng.random() < 0.06:
            # A pending signal calls the sleep off, but the event says S (section 1.6).
            if self.queue[cpu]:
                self.switch(cpu, task, int(State.SLEEP))
                task.st = "queued"
                task.wakeable = False
                task.quiet_until = self.now
                self.queue[cpu].append(task.pid)
            return
        task.st = "dying" if dead else "leaving"
        yield
        if not self.queue[cpu] and not self.wakelist[cpu]:
            yield from self.pull(cpu, task)
        state = State.SLEEP
        if self.rng.random() < 0.2:
            state = self.rng.choice((State.DISK, State.IDLE, State.STOPPED))
        if dead:
            state = State.DEAD
        self.switch(cpu, task, 0 if task.false_r else int(state))
        task.false_r = False
        task.st = "dead" if dead else "asleep"
        if dead:
            del self.tasks[task.pid]
            self.graves.append(task.pid)

    def pull(self, cpu: int, leaver: _Task) -> Iterator[None]:
        """Newidle: a queued task of another CPU, before the switch."""
        for other in self.rng.sample(range(self.cpus), self.cpus):
            ready = [p for p in self.queue[other] if not self.tasks[p].busy]
            if other != cpu and ready and self.rng.random() < 0.5:
                pid = ready[-1]
                runs = self.current[other]
                if runs and self.rng.random() < 0.5:
                    self.stat(cpu, self.tasks[runs])
                self.move(pid, other, cpu, 0, cpu)
                self.stat(cpu, leaver)
                yield
                return

    def balance(self, cpu: int) -> None:
        """Periodic, in soft irq."""
        for other in range(self.cpus):
            ready = [p for p in self.queue[other] if not self.tasks[p].busy]
            if other != cpu and ready:
                self.move(ready[0], other, cpu, IRQ[1], cpu)
                return

    def move(self, pid: int, src: int, dst: int, ctx: int, at: int) -> None:
        task = self.tasks[pid]
        self.queue[src].remove(pid)
        self.emit(at, K.MIGRATE, ctx, subject=pid, prio=task.prio, cpu_from=src, cpu_to=dst)
        self.queue[dst].append(pid)
        task.cpu = dst

    def fork(self, cpu: int, parent: _Task) -> Iterator[None]:
        if len(self.tasks) > 4 * self.cpus + 3:
            return
        pid = self.graves.pop() if self.graves and self.rng.random() < 0.6 else None
        child = self.add(self.rng.randrange(self.cpus), pid)
        child.busy, child.st = True, "waking"
        self.emit(cpu, K.FORK, subject=child.pid, other=parent.pid)
        yield
        self.emit(cpu, K.WAKEUP_NEW, subject=child.pid, prio=child.prio, cpu_to=child.cpu)
        self.enqueue(child, child.cpu)

    def wake(self, cpu: int, ctx: int) -> Iterator[None]:
        """Wake some task that is not being woken already; the waker's CPU does nothing else."""
        rng = self.rng
        able = [t for t in self.tasks.values() if not t.busy and t.pid != self.current[cpu]]
        leaving = [t for t in able if t.st == "leaving"]
        if leaving and rng.random() < 0.6:
            able = leaving
        able = [t for t in able if t.st in ("asleep", "leaving") or rng.random() < 0.12] or able
        able = [
            t
            for t in able
            if t.st == "asleep"
            or (
                t.quiet_until < self.now
                and (t.st == "leaving" or (t.st in ("queued", "running") and t.wakeable))
            )
        ]
        if not able:
            return
        task = rng.choice(able)
        task.busy = True
        task.wakeable = task.st == "running"
        about = {"subject": task.pid, "prio": task.prio}
        was = task.st
        self.emit(cpu, K.WAKING, ctx, **about, cpu_to=task.cpu)
        if was != "queued":
            yield
        if task.st in ("running", "queued"):
            self.emit(cpu, K.WAKEUP, ctx, **about, cpu_to=task.cpu)
            task.busy = False
            return
        same = self.llc[cpu] == self.llc[task.cpu]
        alone = not self.queue[task.cpu]
        if task.st == "leaving" and task.cpu != cpu and (alone or not same):
            if was == "leaving" and self.reread:
                task.false_r = rng.random() < 0.4 and self.now - self.rows[-1]["ts"] < 1500
            yield from self.remote(cpu, ctx, task, task.cpu)
            return
        while task.st == "leaving":
            yield
        target = task.cpu if rng.random() < 0.5 else rng.randrange(self.cpus)
        if target != task.cpu:
            move = {"cpu_from": task.cpu, "cpu_to": target}
            self.emit(cpu, K.MIGRATE, ctx, **about, **move)
            yield
        idle = not self.current[target] and not self.queue[target]
        if target != cpu and (idle or self.llc[cpu] != self.llc[target]):
            yield from self.remote(cpu, ctx, task, target)
        else:
            self.emit(cpu, K.WAKEUP, ctx, **about, cpu_to=target)
            self.enqueue(task, target)

    def remote(self, cpu: int, ctx: int, task: _Task, target: int) -> Iterator[None]:
        if task.st == "asleep":
            task.st = "waking"
        self.wakelist[target].append(task.pid)
        if self.rng.random() < 0.4:
            kind = self.rng.choice((K.WAKE_IDLE_WITHOUT_IPI, K.IPI_SEND_CPU))
            self.emit(cpu, kind, ctx, cpu_to=target)
        # Until the kick has arrived the waker does nothing else in half of the cases; in the
        # others only what cannot be taken for another wakeup or a block.
        while task.busy and task.st != "dead":
            yield
            if self.rng.random() < 0.05:
                self.emit(cpu, K.MARKER, ctx)


def schedule(
    seed: int,
    *,
    cpus: int,
    kernel: int,
    events: int,
    llcs: int = 1,
    pace: int = 0,
    seeded: bool = False,
    reread: bool = False,
) -> Schedule:
    """A legal schedule of about ``events`` events.

    Parameters
    ----------
    pace : longest step of time in ns that is made now and then
    seeded : with a start state for the tasks that are there at the beginning
    reread : a block may be recorded as R (1.6, "false running")
    """
    rng = random.Random(seed)
    llc = [i * llcs // cpus for i in range(cpus)]
    machine = _Machine(rng, cpus, llc, kernel, pace, reread, now=rng.randrange(10**12))
    hz = rng.choice((100, 250, 300, 1000))
    start = _seeds(machine, hz) if seeded else None
    running = [machine.run(cpu) for cpu in range(cpus)]
    for _ in range(60 * events):
        next(rng.choice(running))
        if len(machine.rows) >= events:
            break
    columns = EventColumns.unknown(len(machine.rows))
    for i, row in enumerate(machine.rows):
        for name, value in row.items():
            getattr(columns, name)[i] = value
    told = {"cpus": cpus, "kernel": kernel, "events": events, "llcs": llcs, "pace": pace}
    told |= {"seeded": seeded, "reread": reread}
    origin = f"schedule({seed}, **{told})"
    return Schedule(columns, np.array(llc, np.int32), kernel, hz, start, origin)


def _seeds(machine: _Machine, hz: int) -> StartState:
    rng = machine.rng
    pids = list(machine.tasks)
    jiffies = rng.randrange(2**31)
    seeds = [
        TaskSeed(
            pid,
            dur_avg_ns=rng.choice((None, 0, rng.randrange(10**7))),
            wakee_flips=rng.choice((None, 0, rng.randrange(50))),
            wakee_flip_decay_ts=rng.choice((None, jiffies - rng.randrange(2 * hz))),
            last_wakee=rng.choice((None, *pids)),
        )
        for pid in pids
        if rng.random() < 0.8
    ]
    at = machine.now - rng.randrange(10**9) if rng.random() < 0.5 else None
    return StartState(tuple(seeds), jiffies_now=jiffies, hz=hz, at_ts=at)


def drop(s: Schedule, *kinds: EventKind, first: int = 0) -> Schedule:
    """As if kinds of events had not been recorded, or the recording had begun later."""
    keep = ~np.isin(s.columns.kind, [int(k) for k in kinds])
    keep[:first] = False
    return Schedule(s.columns.take(keep), s.llc, s.kernel, s.hz, s.start, s.origin)


def shift(s: Schedule, by: int) -> Schedule:
    """The same at another time."""
    columns = s.columns.take(slice(None))
    columns.ts = columns.ts + by
    start = s.start
    if start is not None and start.at_ts is not None:
        start = StartState(start.tasks, start.jiffies_now, start.hz, start.at_ts + by)
    return Schedule(columns, s.llc, s.kernel, s.hz, start, s.origin)


def relabel(s: Schedule, pid_of: dict[int, int], cpu_of: list[int]) -> Schedule:
    """The same with other pids and with CPUs renumbered (the LLC of a CPU goes with it)."""
    columns = s.columns.take(slice(None))
    pids = np.arange(max(int(c.max()) for c in (columns.pid, columns.subject, columns.other)) + 1)
    for old, new in pid_of.items():
        if old < len(pids):
            pids[old] = new
    for name in ("pid", "subject", "other"):
        data = getattr(columns, name)
        setattr(columns, name, np.where(data > 0, pids[data], data).astype(data.dtype))
    cpus = np.array(cpu_of)
    # The idle state's CPU, an IPI's and those of wakeups and migrations all are cpu_to.
    for name in ("cpu", "cpu_to", "cpu_from"):
        data = getattr(columns, name)
        setattr(columns, name, np.where(data >= 0, cpus[data], data).astype(data.dtype))
    llc = np.empty_like(s.llc)
    llc[cpus] = s.llc
    start = s.start
    if start is not None:
        tasks = tuple(
            TaskSeed(
                pid_of[t.pid],
                t.dur_avg_ns,
                t.wakee_flips,
                t.wakee_flip_decay_ts,
                None if t.last_wakee is None else pid_of[t.last_wakee],
            )
            for t in start.tasks
        )
        start = StartState(tasks, start.jiffies_now, start.hz, start.at_ts)
    return Schedule(columns, llc, s.kernel, s.hz, start, s.origin)
