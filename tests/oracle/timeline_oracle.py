"""The timeline once more, slowly: from the column prose of the schema and the kernel semantics.

Nothing is carried over from the fast kernels: events are objects, queues are lists, what a rule
asks of the future is looked up in the future (the kind of a wakeup, a sleep that was called off),
waiting times are added up from snapshots of the whole machine after each event. Rows come out
with labels instead of ids: a task is (pid, how many had that pid before), an idle task
("idle", cpu), a wakeup its (wakee, waking_ts, wakeup_ts).

Sections in brackets are of the kernel semantics. Losses are not modelled.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from oracle.schedules import Schedule

from traceana._timeline_state import LEAVING_MAX, SKEW_MAX
from traceana.columns import (
    NULL_CPU,
    NULL_CTX,
    NULL_I64,
    NULL_PID,
    NULL_PRIO,
    EventColumns,
)
from traceana.schema import (
    Ctx,
    DurSource,
    EndReason,
    EventKind,
    Quality,
    Queueing,
    State,
    TaskClass,
    WakeContext,
    WakeKind,
)

__all__ = ["oracle"]

K = EventKind
#: A task may be on its CPU still so long after its switch-out; what decides within it is tested
#: apart (it is learnt from the capture).
JUST = 1000
#: Parameters, not rules: an effect may be stamped this much before its cause; from a dequeue to
#: what a pull still books for the leaving task (7.8-4) it is not longer.
SKEW, LEAVING = SKEW_MAX, LEAVING_MAX
UNKNOWN_DUR = 24  # whole samples after which an unknown start has decayed (3.5)
UNKNOWN_FLIPS = 20  # halvings after which nothing of a count below 2**20 is left
#: Kinds in which the wakee was on a queue all the time: no latency, no run that answers them.
WAKES = (K.WAKING, K.WAKEUP)
UNMOVED = (WakeKind.ON_RQ, WakeKind.SELF)
FOREIGN = "reported elsewhere, or after a pull"


@dataclass
class Event:
    ts: int
    kind: EventKind
    cpu: int
    pid: int | None
    ctx: int | None
    subject: int | None
    prio: int | None
    state: int
    other: int | None
    other_prio: int | None
    cpu_to: int | None
    value: int | None

    @property
    def irq(self) -> bool:
        return self.ctx is not None and bool(self.ctx & (Ctx.HARDIRQ | Ctx.SOFTIRQ | Ctx.NMI))

    def about(self, pid: int) -> bool:
        """Of the kinds that tell a task's state."""
        if self.kind == K.SWITCH:
            return pid in (self.subject, self.other)
        return self.kind in (K.WAKING, K.WAKEUP, K.WAKEUP_NEW, K.MIGRATE) and self.subject == pid


@dataclass(eq=False)
class Task:
    label: tuple[Any, ...]
    first: int
    last: int
    cpu: int | None = None
    where: str = "unknown"  # running, queued, asleep, gone
    prio: int | None = None
    born: int | None = None
    died: int | None = None
    slice: dict[str, Any] | None = None
    blocked_at: int | None = None
    wake: dict[str, Any] | None = None
    came_from_nothing: bool = False
    arrived: dict[str, Any] | None = None  # the wakeup that the present slice answers
    # dur_avg
    dur: int = 0
    dur_left: int = UNKNOWN_DUR
    whole: bool = False
    stats: list[tuple[int, int, str]] = field(default_factory=list)
    bursts: int = 0
    samples: int = 0
    own_stat: int | None = None
    # flips
    flips: int = 0
    flip_ts: int | None = None
    last_wakee: Any = None
    flips_left: int = UNKNOWN_FLIPS
    flips_seen: int = 0
    # sums
    stat_sum: int = 0
    slice_sum: int = 0
    switches: int = 0
    voluntary: int = 0
    preempted: int = 0
    wakeups: int = 0
    atoms: list[dict[str, Any]] = field(default_factory=list)  # as perf sched latency keeps them

    @property
    def pid(self) -> int:
        return 0 if self.label[0] == "idle" else int(self.label[0])


def _events(columns: EventColumns) -> list[Event]:
    def known(value: int, null: int) -> int | None:
        return None if value == null else int(value)

    c = columns
    return [
        Event(
            int(c.ts[i]),
            EventKind(int(c.kind[i])),
            int(c.cpu[i]),
            known(c.pid[i], NULL_PID),
            known(c.ctx[i], NULL_CTX),
            known(c.subject[i], NULL_PID),
            known(c.prio[i], NULL_PRIO),
            int(c.state[i]),
            known(c.other[i], NULL_PID),
            known(c.other_prio[i], NULL_PRIO),
            known(c.cpu_to[i], NULL_CPU),
            known(c.value[i], NULL_I64),
        )
        for i in range(len(c))
    ]


class _Oracle:
    def __init__(self, s: Schedule, on_cpu: Collection[tuple[Any, int]]) -> None:
        self.events = _events(s.columns)
        self.said_on_cpu = on_cpu
        self.seen_waking = False
        self.llc = [int(x) for x in s.llc]
        self.kernel = s.kernel or 6001
        self.start = s.start
        self.hz = s.hz
        self.first_ts = self.events[0].ts
        self.last_ts = max(e.ts for e in self.events)
        self.recorded = {e.kind for e in self.events}
        self.holders: dict[int, list[Task]] = {}
        self.idle: dict[int, Task] = {}
        self.tasks: list[Task] = []
        n = len(self.llc)
        self.current: list[Task | None] = [None] * n
        self.slices: list[dict[str, Any]] = []
        self.gaps: list[dict[str, Any]] = []
        self.open_gap: list[dict[str, Any] | None] = [None] * n
        self.wakes: list[dict[str, Any]] = []
        self.pulled = [False] * n
        self.idle_until: list[int | None] = [None] * n
        self.snapshots: list[tuple[int, list[tuple[str, int]]]] = []
        self.issues: dict[str, int] = {}

    # --- identity (7.1) ---

    def task(self, pid: int | None, cpu: int, ts: int) -> Task | None:
        """Who has the pid now; every call is a mention of it."""
        if pid is None:
            return None
        if pid == 0:
            if cpu not in self.idle:
                self.idle[cpu] = Task(("idle", cpu), ts, ts, cpu, dur_left=0)
                self.tasks.append(self.idle[cpu])
            found = self.idle[cpu]
        else:
            holders = self.holders.get(pid, [])
            if not holders or holders[-1].where == "gone":
                self.new_task(pid, ts, seeded=not holders)
            found = self.holders[pid][-1]
        found.last = ts
        return found

    def new_task(self, pid: int, ts: int, *, seeded: bool) -> Task:
        holders = self.holders.setdefault(pid, [])
        task = Task((pid, len(holders)), ts, ts)
        holders.append(task)
        self.tasks.append(task)
        if seeded and self.start is not None:
            for seed in self.start.tasks:
                if seed.pid != pid:
                    continue
                if seed.dur_avg_ns is not None:
                    task.dur, task.dur_left = seed.dur_avg_ns, 0
                if seed.wakee_flips is not None:
                    task.flips, task.flips_left = seed.wakee_flips, 0
                    task.flip_ts = seed.wakee_flip_decay_ts
                    if seed.last_wakee is not None:
                        task.last_wakee = (seed.last_wakee, 0)
        return task

    def fork(self, parent: Task | None, pid: int, ts: int) -> Task:
        """dur_avg 0 (3.2), flips and last wakee of the parent (2.1)."""
        child = self.new_task(pid, ts, seeded=False)
        child.born = ts
        child.dur, child.dur_left, child.whole = 0, 0, True
        if parent is not None:
            child.flips, child.flip_ts = parent.flips, parent.flip_ts
            child.last_wakee, child.flips_left = parent.last_wakee, parent.flips_left
        return child

    # --- what the machine looks like ---

    def on_cpu(self, cpu: int) -> list[Task]:
        """Running or queued there, the idle task left out."""
        return [t for t in self.tasks if t.cpu == cpu and t.where in ("running", "queued")]

    def is_idle(self, cpu: int | None) -> bool | None:
        if cpu is None or self.current[cpu] is None:
            return None
        return self.current[cpu] is self.idle.get(cpu) and not self.on_cpu(cpu)

    def snapshot(self, ts: int) -> None:
        """Per CPU: what is current ("idle", "task", "?") and how many wait."""
        picture = []
        for cpu in range(len(self.llc)):
            now = self.current[cpu]
            what = "?" if now is None else ("idle" if now is self.idle.get(cpu) else "task")
            waiting = sum(t.where == "queued" and t.cpu == cpu for t in self.tasks)
            picture.append((what, waiting))
        self.snapshots.append((ts, picture))

    def later(self, index: int, pid: int) -> list[Event]:
        """What follows of a task, up to and with the next switch-in or the next waking."""
        out = []
        for e in self.events[index + 1 :]:
            if not e.about(pid):
                continue
            out.append(e)
            if e.kind == K.WAKING or (e.kind == K.SWITCH and e.other == pid):
                break
        return out

    # --- the CPU's current task ---

    def believe(self, cpu: int, task: Task | None, ts: int) -> None:
        """An event says that ``task`` is current on ``cpu``."""
        if task is None or self.current[cpu] is task:
            return
        if self.current[cpu] is not None:
            self.forget(cpu, ts)
        if task is self.idle.get(cpu):
            self.open_gap[cpu] = self.new_gap(cpu, None, ts)
        else:
            self.leave(task, cpu, ts)
            self.run(task, cpu, None)
        self.current[cpu] = task

    def forget(self, cpu: int, ts: int) -> None:
        """A switch is missing: how long the current task ran is not known (R3)."""
        gone = self.current[cpu]
        if gone is self.idle.get(cpu):
            gap = self.open_gap[cpu]
            assert gap is not None
            gap["known_to"], self.open_gap[cpu] = ts, None
        elif gone is not None:
            gone.where, gone.slice, gone.whole = "unknown", None, False
            gone.dur_left = max(gone.dur_left, 8)
        self.current[cpu] = None

    def leave(self, task: Task, cpu: int, ts: int) -> None:
        """It runs on ``cpu`` now, wherever it was believed to be (R2)."""
        if task.where == "running" and task.cpu is not None and self.current[task.cpu] is task:
            self.forget(task.cpu, ts)

    def run(self, task: Task, cpu: int, start: int | None) -> None:
        task.slice = {
            "task": task.label,
            "cpu": cpu,
            "start": start,
            "end": None,
            "runtime_ns": 0,
            "end_reason": EndReason.CUT,
            "state": None,
        }
        self.slices.append(task.slice)
        task.where, task.cpu = "running", cpu

    def new_gap(self, cpu: int, start: int | None, ts: int) -> dict[str, Any]:
        gap = {"cpu": cpu, "start": start, "end": None, "known_from": ts, "known_to": None}
        gap |= {"cpu_idle_state": None, "ended_by": None}
        self.gaps.append(gap)
        return gap

    # --- switch ---

    def switch(self, index: int, e: Event) -> None:
        cpu, ts = e.cpu, e.ts
        prev, after = self.task(e.subject, cpu, ts), self.task(e.other, cpu, ts)
        assert prev is not None and after is not None
        for task, prio in ((prev, e.prio), (after, e.other_prio)):
            if task.pid and prio is not None:
                task.prio = prio
        self.believe(cpu, prev, ts)
        gap = self.open_gap[cpu]
        if prev.pid:
            self.switch_out(index, e, prev)
        self.current[cpu] = None
        self.pulled[cpu] = False
        came = self.switch_in(e, after) if after.pid else None
        if not prev.pid and gap is not None:
            gap["end"] = gap["known_to"] = ts
            gap["ended_by"] = came
            self.open_gap[cpu] = None
            self.idle_until[cpu] = ts
        self.current[cpu] = after
        if not after.pid:
            self.open_gap[cpu] = self.new_gap(cpu, ts, ts)

    def switch_out(self, index: int, e: Event, task: Task) -> None:
        ts = e.ts
        letters = State(e.state)
        if letters & State.PREEMPTED:
            reason = EndReason.PREEMPT
        elif letters & (State.DEAD | State.ZOMBIE):
            reason = EndReason.DEAD
        elif letters & State.DISK:
            reason = EndReason.BLOCK
        else:
            reason = EndReason.SLEEP if letters else EndReason.YIELD_LIKE
        task.switches += 1
        assert task.slice is not None
        task.slice |= {"end": ts, "end_reason": reason, "state": e.state}
        if task.slice["start"] is not None:
            task.slice_sum += ts - task.slice["start"]
            task.bursts += ts - task.slice["start"]
        task.slice = None
        blocking = reason in (EndReason.SLEEP, EndReason.BLOCK, EndReason.DEAD)
        blocking = blocking or self.false_running(index, e, task)
        if blocking:
            task.where = "gone" if reason == EndReason.DEAD else "asleep"
            task.blocked_at = ts
            if reason == EndReason.DEAD and task.died is None:
                task.died = ts
            if self.called_off(index, task):
                task.preempted += 1
            else:
                task.voluntary += 1
                self.sample(e, task)
        else:
            task.where = "queued"
            task.preempted += 1
            # It goes on: whatever was reported belongs to the sample that is to come.
            task.stats = [(ts, value, "own") for ts, value, _ in task.stats]
            if task.wake is not None and task.wake.get("due"):
                self.wakee_side(task.wake, task)
        # perf: a new atom; from R it waits at once.
        task.atoms.append({"out": ts, "wait": ts if e.state == 0 else None, "in": None})

    def false_running(self, index: int, e: Event, task: Task) -> bool:
        """R6: R, a waking within 2 us, then a remote wakeup (5.8 to 5.17)."""
        if not 5008 <= self.kernel < 5018 or e.state != 0:
            return False
        pending = task.wake
        if (
            pending is None
            or pending["wakeup_ts"] is not None
            or e.ts - pending["waking_ts"] > 2000
        ):
            return False
        if pending["kind"] in (WakeKind.SELF, WakeKind.OTHER_CLASS, WakeKind.PINNED):
            return False
        after = [f for f in self.later(index, task.pid) if f.kind == K.WAKEUP]
        return not after or after[0].cpu != pending["this_cpu"]

    def called_off(self, index: int, task: Task) -> bool:
        """R4: a blocking switch-out, then a switch-in without anything that woke it."""
        if not 5018 <= self.kernel < 6016 or task.wake is not None:
            return False
        after = [f for f in self.later(index, task.pid) if f.kind != K.MIGRATE]
        if not after or after[0].kind != K.SWITCH or after[0].other != task.pid:
            return False
        # Where nothing that wakes was recorded so far, its absence says nothing.
        return any(f.kind in WAKES and f.ts < after[0].ts for f in self.events)

    def switch_in(self, e: Event, task: Task) -> dict[str, Any] | None:
        ts, wake = e.ts, task.wake
        if wake is not None and wake["kind"] in UNMOVED:
            wake = None  # it never left the queue: this is not what brought it here
        unexplained = wake is None and task.where in ("asleep", "unknown")
        self.leave(task, e.cpu, ts)
        if wake is not None:
            wake["open"] = False
            task.wake = None
            if wake.get("due"):
                self.wakee_side(wake, task)
            wake["run_ts"], wake["ran_cpu"] = ts, e.cpu
            if wake["wakeup_ts"] is None:
                wake["quality"] |= Quality.NO_WAKEUP
            if wake["wakeup_ts"] is not None:
                wake["queue_delay_ns"] = ts - wake["wakeup_ts"]
            if wake["waking_ts"] is not None:
                slept = task.blocked_at if task.blocked_at is not None else wake["waking_ts"]
                wake["wakeup_latency_ns"] = ts - max(wake["waking_ts"], slept)
        task.came_from_nothing = unexplained
        task.arrived = wake
        # perf: a task without an atom is taken to have come from R just now.
        if not task.atoms:
            task.atoms.append({"out": ts, "wait": ts, "in": None})
        atom = task.atoms[-1]
        if atom["wait"] is not None and atom["in"] is None:
            atom["in"] = ts
        self.run(task, e.cpu, ts)
        return wake

    # --- dur_avg (3) ---

    def sample(self, e: Event, task: Task) -> None:
        carry: list[tuple[int, int, str]] = []
        if K.STAT_RUNTIME in self.recorded:
            own = [i for i, (_, _, how) in enumerate(task.stats) if how == "own"]
            if own:
                carry = task.stats[own[-1] + 1 :]
                del task.stats[own[-1] + 1 :]
            value = sum(v for _, v, _ in task.stats)
        else:
            value = task.bursts
        if task.whole and task.prio is not None and task.prio >= 100:
            step = value - task.dur
            task.dur += step // 8 if step >= 0 else -(-step // 8)
            task.samples += 1
            task.dur_left = max(task.dur_left - 1, 0)
        task.stats, task.bursts, task.whole = carry, 0, True

    def stat(self, e: Event) -> None:
        task = self.task(e.subject, e.cpu, e.ts)
        assert task is not None and e.value is not None
        own = self.current[e.cpu] is task and not self.pulled[e.cpu]
        soon = task.own_stat is not None and e.ts - task.own_stat <= LEAVING
        task.stats.append((e.ts, e.value, FOREIGN if soon and not own else "own"))
        if own:
            task.own_stat = e.ts
        task.stat_sum += e.value
        if task.slice is not None:
            task.slice["runtime_ns"] += e.value
        if not task.atoms:
            task.atoms.append({"out": e.ts, "wait": e.ts, "in": None})

    # --- wakeups (1.5) ---

    def new_wake(self, task: Task) -> dict[str, Any]:
        wake: dict[str, Any] = dict.fromkeys(
            (
                "waking_ts", "wakeup_ts", "run_ts", "waker", "current", "this_cpu", "prev_cpu",
                "placed_cpu", "ran_cpu", "wakeup_latency_ns", "queue_delay_ns", "wake_delay_ns",
                "look_lo", "look_hi", "visible_lo", "visible_hi", "wakee_dur_avg_ns",
                "waker_dur_avg_ns", "wakee_flips", "waker_flips", "nr_running_placed",
                "nr_running_this", "prev_idle", "placed_idle", "idle_cpus_llc", "sync_guess",
            )
        )  # fmt: skip
        wake |= {"wakee": task.label, "kind": WakeKind.UNKNOWN, "context": WakeContext.UNKNOWN}
        wake |= {"queueing": Queueing.UNKNOWN, "quality": 0, "open": True}
        self.wakes.append(wake)
        return wake

    def waking(self, index: int, e: Event, current: Task | None) -> None:
        task = self.task(e.subject, -1, e.ts)
        assert task is not None
        task.prio = e.prio
        self.seen_waking = True
        old, repeated = task.wake, False
        if old is not None:
            old["open"] = False
            if old.get("due"):
                self.wakee_side(old, task)
            if old["kind"] not in UNMOVED:
                old["quality"] |= Quality.REPEATED
                repeated = True
        wake = task.wake = self.new_wake(task)
        wake["quality"] |= Quality.REPEATED if repeated else 0
        wake |= {"waking_ts": e.ts, "this_cpu": e.cpu, "prev_cpu": e.cpu_to, "was": task.where}
        wake["current"] = None if current is None else current.label
        assert e.ctx is not None
        if e.ctx & Ctx.NMI:
            wake["context"] = WakeContext.NMI
        elif e.ctx & Ctx.HARDIRQ:
            wake["context"] = WakeContext.HARDIRQ
        elif e.ctx & Ctx.SOFTIRQ:
            wake["context"] = WakeContext.SOFTIRQ
        else:
            wake["context"] = WakeContext.TASK
            if current is not None and current.pid:
                wake["waker"] = current.label
        if self.current[e.cpu] is not None:
            wake["nr_running_this"] = len(self.on_cpu(e.cpu))
        wake["prev_idle"] = self.is_idle(e.cpu_to)
        assert e.cpu_to is not None
        wake["idle_cpus_llc"] = sum(
            self.current[c] is not None and self.current[c] is self.idle.get(c)
            for c in range(len(self.llc))
            if self.llc[c] == self.llc[e.cpu_to]
        )
        late = (
            task.where == "running" and task.came_from_nothing and task.slice["start"] is not None
        )
        if late and e.ts - task.slice["start"] <= SKEW and current is not task:
            self.skewed(wake, task, current, e)
            return
        kind = wake["kind"] = self.kind(index, e, task, current, wake)
        self.windows(index, e, task, wake)
        self.waker_side(wake, task, current)
        # What a decision saw of a wakee that had not left its CPU is read off when it is made.
        wake["due"] = task.where == "running" and kind not in (WakeKind.SELF, WakeKind.OTHER_CLASS)
        wake["due"] = wake["due"] or kind == WakeKind.UNKNOWN
        if not wake["due"]:
            self.wakee_side(wake, task)
        if wake["quality"] & Quality.STATE_UNKNOWN:
            # First seen asleep: what it runs from here on is a whole sample.
            task.where, task.cpu = "asleep", e.cpu_to
            task.stats, task.bursts, task.whole = [], 0, True

    def skewed(self, wake: dict[str, Any], task: Task, current: Task | None, e: Event) -> None:
        """Stamped after the switch-in that it caused (F 7, rule 2)."""
        assert task.slice is not None
        task.came_from_nothing = False
        self.windows(self.events.index(e), e, task, wake)
        wake["kind"] = WakeKind.DECIDED
        wake["quality"] |= Quality.SKEW
        wake |= {"run_ts": task.slice["start"], "ran_cpu": task.cpu, "wakeup_latency_ns": 0}
        wake["open"] = False
        wake["due"] = False
        task.wake, task.arrived = None, wake
        self.waker_side(wake, task, current)
        self.wakee_side(wake, task)

    def kind(
        self, index: int, e: Event, task: Task, current: Task | None, wake: dict[str, Any]
    ) -> WakeKind:
        if not e.irq and current is task:
            return WakeKind.SELF
        if task.prio is not None and task.prio < 100:
            return WakeKind.OTHER_CLASS
        if task.where == "queued":
            return WakeKind.ON_RQ
        if task.where in ("unknown", "gone"):
            wake["quality"] |= Quality.STATE_UNKNOWN
            return WakeKind.DECIDED
        after = self.later(index, task.pid)
        wakeup = next((f for f in after if f.kind == K.WAKEUP), None)
        out = next((f for f in after if f.kind == K.SWITCH and f.subject == task.pid), None)
        moved = bool(self.own_moves(index, e, task))
        home = wakeup is not None and wakeup.cpu_to == e.cpu_to and not moved
        remote_home = home and wakeup is not None and wakeup.cpu == e.cpu_to != e.cpu
        again = any(f.kind == K.WAKING for f in after)
        runs = any(f.kind == K.SWITCH and f.other == task.pid for f in after)
        if task.where == "running":
            if out is None and wakeup is None:
                return WakeKind.ON_RQ if again else WakeKind.UNKNOWN
            if out is None or (wakeup is not None and self.first(after, wakeup, out)):
                return WakeKind.ON_RQ
            blocks = out.state & ~State.PREEMPTED and not out.state & State.PREEMPTED
            if not blocks and not (out.state == 0 and self.reread(e, out, wakeup)):
                return WakeKind.ON_RQ
            if wakeup is None and not moved:
                if again:
                    return WakeKind.ON_RQ
                return WakeKind.DECIDED if runs else WakeKind.UNKNOWN
            return self.either(e, task) if remote_home else WakeKind.DECIDED
        assert task.where == "asleep"
        b = task.blocked_at
        if b is None:
            return WakeKind.DECIDED
        just = e.ts - b < JUST
        until = self.idle_until[e.cpu_to]
        busy = self.open_gap[e.cpu_to] is None and (until is None or until < b)
        maybe_delayed = self.kernel >= 6012 and busy
        if (just or maybe_delayed) and wakeup is None and not moved:
            return WakeKind.DECIDED if runs or again else WakeKind.UNKNOWN
        if just and remote_home:
            return self.either(e, task)
        if maybe_delayed and home and wakeup is not None and wakeup.cpu == e.cpu:
            return WakeKind.DELAYED_MAYBE
        return WakeKind.DECIDED

    def either(self, e: Event, task: Task) -> WakeKind:
        """on_cpu or decided: the table's word is taken, where both are possible (7.8-1)."""
        said = (task.label, e.ts) in self.said_on_cpu
        return WakeKind.ON_CPU if said else WakeKind.DECIDED

    def reread(self, e: Event, out: Event, wakeup: Event | None) -> bool:
        """R6 once more, seen from the waking."""
        old = 5008 <= self.kernel < 5018 and out.ts - e.ts <= 2000
        return old and (wakeup is None or wakeup.cpu != e.cpu)

    def own_moves(self, index: int, e: Event, task: Task) -> list[Event]:
        """Migrations that are part of the wakeup: on the waker's CPU, before it does anything else.

        A queued wakee is moved by balance passes only.
        """
        out: list[Event] = []
        queued = task.where == "queued"
        for f in self.events[index + 1 :]:
            if f.cpu == e.cpu and f.kind not in (K.STAT_RUNTIME, K.MIGRATE):
                break
            if f.subject == task.pid and f.kind == K.WAKEUP:
                break
            if f.kind == K.SWITCH and task.pid in (f.subject, f.other):
                queued = f.subject == task.pid and (not f.state or f.state & State.PREEMPTED)
            if f.cpu == e.cpu and f.kind == K.MIGRATE and f.subject == task.pid and not queued:
                out.append(f)
        return out

    @staticmethod
    def first(events: list[Event], a: Event, b: Event) -> bool:
        return events.index(a) < events.index(b)

    def waker_side(self, wake: dict[str, Any], task: Task, current: Task | None) -> None:
        """record_wakee (2.1) for a decided wakeup, then what it saw of current."""
        if wake["kind"] == WakeKind.DECIDED and current is not None:
            self.record_wakee(current, task, wake["waking_ts"])
        if current is not None and current.dur_left == 0:
            wake["waker_dur_avg_ns"] = current.dur
        if current is not None and current.flips_left == 0:
            wake["waker_flips"] = current.flips

    def record_wakee(self, current: Task, task: Task, ts: int) -> None:
        now = self.jiffies(ts)
        if current.flip_ts is None:
            current.flip_ts = now
        if now > current.flip_ts + self.hz:
            current.flips //= 2
            current.flip_ts = now
            current.flips_left = max(current.flips_left - 1, 0)
        if current.last_wakee != task.label:
            if current.last_wakee is not None:
                current.flips_seen += 1
            current.last_wakee = task.label
            current.flips += 1

    def wakee_side(self, wake: dict[str, Any], task: Task) -> None:
        wake["due"] = False
        if task.dur_left == 0:
            wake["wakee_dur_avg_ns"] = task.dur
        if task.flips_left == 0:
            wake["wakee_flips"] = task.flips
        if wake["wakee_flips"] is None or wake["waker_flips"] is None:
            wake["quality"] |= Quality.FLIPS_UNKNOWN
        if wake["wakee_dur_avg_ns"] is None or wake["waker_dur_avg_ns"] is None:
            wake["quality"] |= Quality.DUR_UNKNOWN

    def jiffies(self, ts: int) -> int:
        base, phase = 0, self.first_ts
        if self.start is not None:
            base = self.start.jiffies_now or 0
            phase = self.start.at_ts if self.start.at_ts is not None else phase
        return base + (ts - phase) * self.hz // 1_000_000_000

    def windows(self, index: int, e: Event, task: Task, wake: dict[str, Any]) -> None:
        """10.2: [waking, migrate or visible_hi], [migrate or waking, ...]."""
        after = self.later(index, task.pid)
        wakeup = next((f for f in after if f.kind == K.WAKEUP), None)
        moved = self.own_moves(index, e, task)
        wake["moves"] = [f.ts for f in moved]
        low = moved[-1].ts if moved else e.ts
        ends = []
        for f in self.events[index + 1 :]:
            if f.cpu == e.cpu and f.ts > low and f.kind not in (K.STAT_RUNTIME, K.MIGRATE):
                ends.append(f.ts)
                break
        if wakeup is not None:
            ends.append(wakeup.ts)
        wake |= {"visible_lo": low, "visible_hi": min(ends, default=None), "look_lo": e.ts}
        if wakeup is not None and wakeup.cpu == e.cpu:
            wake["visible_hi"] = wakeup.ts
        wake["look_hi"] = moved[-1].ts if moved else wake["visible_hi"]

    def wakeup(self, e: Event, current: Task | None) -> None:
        task = self.task(e.subject, -1, e.ts)
        assert task is not None and e.cpu_to is not None
        task.prio = e.prio
        task.wakeups += 1
        wake = task.wake
        if wake is not None and wake["wakeup_ts"] is not None:
            wake = None
        if wake is None:
            if self.late_wakeup(e, task):
                return
            if task.where in ("running", "queued"):
                self.issues["redundant_wakeup"] = self.issues.get("redundant_wakeup", 0) + 1
                return
            wake = task.wake = self.without_waking(e, task, current)
        wake["wakeup_ts"], wake["placed_cpu"] = e.ts, e.cpu_to
        if wake["waking_ts"] is not None:
            wake["wake_delay_ns"] = e.ts - wake["waking_ts"]
            if e.cpu == wake["this_cpu"]:
                wake["queueing"] = Queueing.DIRECT
            elif e.cpu == e.cpu_to:
                wake["queueing"] = Queueing.REMOTE
            if wake["due"]:
                self.wakee_side(wake, task)
        wake["placed_idle"] = self.is_idle(e.cpu_to)
        if self.current[e.cpu_to] is not None:
            wake["nr_running_placed"] = len([t for t in self.on_cpu(e.cpu_to) if t is not task])
        if task.where in ("running", "queued"):
            wake["open"], task.wake = False, None
            return
        task.where, task.cpu = "queued", e.cpu_to
        self.perf_wakeup(task, e.ts)

    def late_wakeup(self, e: Event, task: Task) -> bool:
        """The wakeup belongs to the waking that the present slice answers, stamped too late."""
        wake = task.arrived
        if task.where != "running" or wake is None or wake["wakeup_ts"] is not None:
            return False
        if task.slice is None or task.slice["start"] is None:
            return False
        if e.ts - task.slice["start"] > SKEW:
            return False
        wake |= {"wakeup_ts": e.ts, "placed_cpu": e.cpu_to, "queue_delay_ns": 0}
        wake["wake_delay_ns"] = max(e.ts - wake["waking_ts"], 0)
        if e.cpu == wake["this_cpu"]:
            wake["queueing"] = Queueing.DIRECT
        elif e.cpu == e.cpu_to:
            wake["queueing"] = Queueing.REMOTE
        wake["quality"] = (wake["quality"] | Quality.SKEW) & ~Quality.NO_WAKEUP
        return True

    def without_waking(self, e: Event, task: Task, current: Task | None) -> dict[str, Any]:
        """Only what is certain of its waker: a task that records the wakeup enqueued it itself."""
        wake = self.new_wake(task)
        wake["quality"] |= Quality.NO_WAKING
        if task.where == "unknown":
            wake["quality"] |= Quality.STATE_UNKNOWN
        wake["prev_cpu"] = task.cpu
        acting = None
        if not e.irq and current is not None and current.pid:
            wake |= {"waker": current.label, "current": current.label, "this_cpu": e.cpu}
            wake |= {"context": WakeContext.TASK, "queueing": Queueing.DIRECT}
            acting = current
            # With wakings recorded this one only lacks its own: it may have been on_cpu as well.
            if not self.seen_waking:
                wake["kind"] = WakeKind.DECIDED
        elif e.irq and e.cpu != e.cpu_to:
            wake |= {"current": None if current is None else current.label, "this_cpu": e.cpu}
            hard = e.ctx is not None and e.ctx & Ctx.HARDIRQ
            wake["context"] = WakeContext.HARDIRQ if hard else WakeContext.SOFTIRQ
            wake["queueing"], acting = Queueing.DIRECT, current
        if task.prio is not None and task.prio < 100:
            wake["kind"] = WakeKind.OTHER_CLASS
        if wake["kind"] == WakeKind.DECIDED and acting is not None:
            self.record_wakee(acting, task, e.ts)
        saw = dict(wake, kind=WakeKind.UNKNOWN)
        self.waker_side(saw, task, acting)
        self.wakee_side(saw, task)
        for name in ("wakee_dur_avg_ns", "waker_dur_avg_ns", "wakee_flips", "waker_flips"):
            wake[name] = saw[name]
        wake["quality"] = saw["quality"]
        return wake

    def perf_wakeup(self, task: Task, ts: int) -> None:
        """perf: a wakeup counts for a task that is out and asleep."""
        if not task.atoms:
            task.atoms.append({"out": ts, "wait": None, "in": None})
        atom = task.atoms[-1]
        if atom["in"] is None and atom["wait"] is None:
            atom["wait"] = ts

    def wakeup_new(self, e: Event, current: Task | None) -> None:
        assert e.subject is not None
        holders = self.holders.get(e.subject, [])
        fresh = holders and holders[-1].born is not None and holders[-1].where == "unknown"
        if not fresh or holders[-1].switches:
            self.fork(current, e.subject, e.ts)
        task = self.holders[e.subject][-1]
        task.last, task.prio = e.ts, e.prio
        task.wakeups += 1
        wake = task.wake = self.new_wake(task)
        wake |= {"kind": WakeKind.FORK, "wakeup_ts": e.ts, "this_cpu": e.cpu}
        wake |= {"context": WakeContext.TASK, "queueing": Queueing.DIRECT, "placed_cpu": e.cpu_to}
        wake["waker"] = wake["current"] = None if current is None else current.label
        wake["placed_idle"] = self.is_idle(e.cpu_to)
        assert e.cpu_to is not None
        if self.current[e.cpu_to] is not None:
            wake["nr_running_placed"] = len(self.on_cpu(e.cpu_to))
        task.where, task.cpu = "queued", e.cpu_to
        self.perf_wakeup(task, e.ts)

    def migrate(self, e: Event) -> None:
        task = self.task(e.subject, -1, e.ts)
        assert task is not None
        wake = task.wake
        if task.where == "queued":
            task.cpu = e.cpu_to
            if e.cpu == e.cpu_to and not e.irq and e.pid:
                self.pulled[e.cpu] = True
        elif wake is not None and e.ts in wake.get("moves", ()):
            wake["placed_cpu"] = e.cpu_to
            if wake["due"] and task.where == "asleep":
                self.wakee_side(wake, task)
        elif task.where == "asleep":
            task.cpu = e.cpu_to

    def by_label(self, label: Any) -> Task | None:
        return next((t for t in self.tasks if t.label == label), None)

    # --- all of it ---

    def step(self, index: int, e: Event) -> None:
        if e.kind == K.SWITCH:
            self.switch(index, e)
            return
        current = self.task(e.pid, e.cpu, e.ts)
        self.believe(e.cpu, current, e.ts)
        if e.kind == K.STAT_RUNTIME:
            self.stat(e)
        elif e.kind == K.WAKING:
            self.waking(index, e, current)
        elif e.kind == K.WAKEUP:
            self.wakeup(e, current)
        elif e.kind == K.WAKEUP_NEW:
            self.wakeup_new(e, current)
        elif e.kind == K.MIGRATE:
            self.migrate(e)
        elif e.kind == K.FORK:
            assert e.subject is not None
            self.fork(self.task(e.other, e.cpu, e.ts), e.subject, e.ts)
        elif e.kind == K.EXIT:
            task = self.task(e.subject, -1, e.ts)
            assert task is not None
            task.died = e.ts
        elif e.kind == K.CPU_IDLE and e.value != 4294967295:
            gap = self.open_gap[e.cpu_to] if e.cpu_to is not None else None
            if gap is not None:
                gap["cpu_idle_state"] = max(gap["cpu_idle_state"] or 0, e.value or 0)

    def result(self) -> dict[str, list[dict[str, Any]]]:
        for index, e in enumerate(self.events):
            self.step(index, e)
            self.snapshot(e.ts)
        for wake in self.wakes:
            if wake["open"]:
                wake["quality"] |= Quality.CENSORED_END
            if wake.get("due"):
                wakee = self.by_label(wake["wakee"])
                assert wakee is not None
                self.wakee_side(wake, wakee)
        stat = K.STAT_RUNTIME in self.recorded
        self.sync()
        return {
            "tasks": [self.task_row(t, stat) for t in self.tasks],
            "slices": [s | {"runtime_ns": s["runtime_ns"] if stat else None} for s in self.slices],
            "wakeups": [
                {k: v for k, v in w.items() if k not in ("open", "due", "was", "moves")}
                for w in self.wakes
            ],
            "idle_gaps": [self.gap_row(g) for g in self.gaps],
            "cpus": [self.cpu_row(c) for c in range(len(self.llc))],
        }

    def task_row(self, t: Task, stat: bool) -> dict[str, Any]:
        if not t.pid:
            cls: TaskClass | None = TaskClass.IDLE
        elif t.prio is None:
            cls = None
        else:
            cls = TaskClass.FAIR if t.prio >= 100 else TaskClass.RT
        done = [(a["in"] - a["wait"], a["in"]) for a in t.atoms if a["in"] is not None]
        longest = max((d for d, _ in done), default=None)
        source = DurSource.STAT_RUNTIME if stat else DurSource.SWITCHES
        return {
            "task": t.label,
            "pid": t.pid,
            "cpu": t.cpu,
            "first_ts": t.first,
            "last_ts": t.last,
            "born": t.born,
            "died": t.died,
            "class": cls,
            "prio": t.prio,
            "runtime_ns": t.stat_sum if stat else t.slice_sum,
            "on_cpu_ns": t.slice_sum,
            "switches": t.switches,
            "voluntary": t.voluntary,
            "preempted": t.preempted,
            "wakeups": t.wakeups + self.only_wakings(t),
            "delays": len(done),
            "delay_sum_ns": sum(d for d, _ in done),
            "delay_max_ns": longest,
            "delay_max_at_ns": next((at for d, at in done if d == longest), None),
            "dur_avg_ns": t.dur if t.dur_left == 0 and t.pid else None,
            "dur_avg_source": source if t.samples else None,
            "dur_samples": t.samples,
            "wakee_flips": t.flips if t.flips_left == 0 else None,
            "flips_seen": t.flips_seen,
        }

    def only_wakings(self, t: Task) -> int:
        """Where no sched_wakeup was recorded, sched_waking counts."""
        if K.WAKEUP in self.recorded:
            return 0
        return sum(w["wakee"] == t.label and w["waking_ts"] is not None for w in self.wakes)

    def gap_row(self, gap: dict[str, Any]) -> dict[str, Any]:
        """Waiting of others while it lasted, as far as the gap was known then."""
        lo = gap["known_from"]
        hi = gap["known_to"] if gap["known_to"] is not None else self.last_ts
        llc = anywhere = busy = 0
        for (ts, picture), (then, _) in zip(self.snapshots, self.snapshots[1:], strict=False):
            span = min(then, hi) - max(ts, lo)
            if span <= 0:
                continue
            others = [c for c in range(len(self.llc)) if c != gap["cpu"] and picture[c][1]]
            near = [c for c in others if self.llc[c] == self.llc[gap["cpu"]]]
            anywhere += span if others else 0
            llc += span if near else 0
            busy += span if any(picture[c][0] == "task" for c in near) else 0
        by = gap["ended_by"]
        if EventKind.WAKEUP not in self.recorded:
            llc = anywhere = busy = None
        return {
            "cpu": gap["cpu"],
            "start": gap["start"],
            "end": gap["end"],
            "cpu_idle_state": gap["cpu_idle_state"],
            "waited_llc_ns": llc,
            "waited_any_ns": anywhere,
            "waited_busy_llc_ns": busy,
            "ended_by": None if by is None else (by["wakee"], by["waking_ts"], by["wakeup_ts"]),
        }

    def cpu_row(self, cpu: int) -> dict[str, Any]:
        """Add up what is known; only the first row may reach back, only the last one forward."""
        mine = [e for e in self.events if e.cpu == cpu]
        rows = [(s, "busy") for s in self.slices if s["cpu"] == cpu]
        rows += [(g, "idle") for g in self.gaps if g["cpu"] == cpu]
        known = {"busy": 0, "idle": 0}
        now = self.current[cpu]
        last: dict[str, Any] | None = None
        if now is not None:
            last = self.open_gap[cpu] if now is self.idle.get(cpu) else now.slice
        first = min(rows, key=lambda r: r[0]["start"] or -1, default=(None, ""))[0]
        for row, what in rows:
            lo, hi = row["start"], row["end"]
            if lo is None and row is first:
                lo = self.first_ts
                # Who was elsewhere before did not run here since the window's begin.
                if what == "busy" and any(
                    (s["start"] if s["start"] is not None else s["end"]) is not None
                    and (s["start"] if s["start"] is not None else s["end"])
                    < (hi if hi is not None else self.last_ts)
                    for s in self.slices
                    if s["task"] == row["task"] and s is not row
                ):
                    lo = None
            if hi is None and row is last:
                hi = self.last_ts
            if lo is not None and hi is not None:
                known[what] += hi - lo
        span = self.last_ts - self.first_ts
        return {
            "cpu": cpu,
            "begin": self.first_ts if mine else None,
            "end": mine[-1].ts if mine else None,
            "events": len(mine),
            "switches": sum(e.kind == K.SWITCH for e in mine),
            "idle_ns": known["idle"],
            "busy_ns": known["busy"],
            "unknown_ns": span - known["idle"] - known["busy"],
        }

    def sync(self) -> None:
        """7.5: an edge whose waker blocks soon after fewer than a fifth of 20 or more wakings."""
        edges: dict[Any, list[bool]] = {}
        for w in self.wakes:
            if w["waker"] is None or w["waking_ts"] is None or w["context"] != WakeContext.TASK:
                continue
            dur = w["waker_dur_avg_ns"]
            limit = min(50_000, 2 * dur) if dur else 50_000
            soon = any(
                s["task"] == w["waker"]
                and s["end_reason"] in (EndReason.SLEEP, EndReason.BLOCK)
                and 0 <= s["end"] - w["waking_ts"] <= limit
                for s in self.slices
            )
            edges.setdefault((w["waker"], w["wakee"]), []).append(soon)
        for w in self.wakes:
            seen = edges.get((w["waker"], w["wakee"]), [])
            if w["waking_ts"] is None or w["context"] != WakeContext.TASK or len(seen) < 20:
                continue
            if sum(seen) / len(seen) < 0.2:
                w["sync_guess"] = 0


def oracle(
    s: Schedule, on_cpu: Collection[tuple[Any, int]] = ()
) -> dict[str, list[dict[str, Any]]]:
    """The rows of tasks, slices, wakeups, idle_gaps and cpus that a schedule should give.

    ``on_cpu`` names wakeups (wakee, waking_ts) that the fast timeline calls so: whether a wakee
    that had only just blocked was still on its CPU cannot be told from one wakeup alone.
    """
    return _Oracle(s, on_cpu).result()
