"""The whole machine model in plain Python: slow, and meant to be read.

The life of a CPU is a coroutine: it does something at an instant and yields the instant up to
which it is busy with it (with interrupts shut out, unless it is idle or at a task's script). Whose
instant comes first goes on: timers before CPUs, a lower CPU before a higher one. Derived from
sections 1, 2, 7.8, 8 and 9 of the semantics and from the contract of scripts and costs in
``_sim_state``; it shares no code with the kernels but names of columns and the table of forms.
Queues are in ``oracle/fair_oracle``, load tracking in ``oracle/load_oracle``, balancing in
``oracle/balance_oracle``, the selection of a CPU in ``oracle/path_oracle``.

Left out: the truth of double bookings, clusters, isolated CPUs, features by name, tunable scaling,
rules that ``path_oracle`` has not (place B up to 5.11 among them).
"""

from __future__ import annotations

import heapq
from collections.abc import Generator
from typing import Any, TypeVar

from oracle import path_oracle
from oracle.balance_oracle import CORE, Balance
from oracle.cpu_oracle import Cpu
from oracle.fair_oracle import IDLE, Stand, Task

from traceana._sim_state import Op
from traceana._sim_types import FAR, Row
from traceana.simulate import Model, Work

T = TypeVar("T")
#: A part of a CPU's life: yields the instants at which it goes on, and may come to a result.
Part = Generator[int, None, T]
Life = Part[None]

#: A waker, or a CPU that is about to choose, looks again after so long.
SPIN, LOCK = 50, 100
#: Steps without time before a script counts as one that runs in circles, and what that costs.
ROUNDS, STUCK = 10_000, 1_000

RULES = {"mainline": "", "sis_short_v5": "v5", "abel": "abel"}


class Machine(Balance):
    """CPUs at work."""

    def run(self) -> list[tuple[int, ...]]:
        """Return the rows of the events, the columns in the order of EVENT."""
        for cpu in self.cpus:
            cpu.life = self.live(cpu)
            cpu.at = next(cpu.life)
        while True:
            cpu = min(self.cpus, key=lambda c: (c.next, c.index))
            if self.timers and self.timers[0][0] <= cpu.next:
                at, index = self.timers[0]
                if at >= self.end:
                    return self.rows
                self.now = max(self.now, at)
                heapq.heappop(self.timers)
                self.ring(self.tasks[index])
                continue
            if cpu.next >= self.end:
                return self.rows
            self.now = max(self.now, cpu.next)
            cpu.at = next(cpu.life)

    def ring(self, task: Task) -> None:
        """A timer goes off: its CPU is interrupted."""
        cpu = self.cpus[task.timer_cpu]
        if not cpu.due:
            cpu.due_at = self.now
        cpu.due.append(task)

    def live(self, cpu: Cpu) -> Life:
        stuck = False
        while True:
            until = FAR
            if cpu.curr:
                until = self.now + STUCK if stuck else self.resume(cpu)
            stuck = False
            cpu.open = True
            yield until
            cpu.open = False
            if cpu.interrupt_at <= self.now:
                yield from self.interrupt(cpu)
            else:
                stuck = yield from self.script(cpu)

    # --- interrupts ---

    def resume(self, cpu: Cpu) -> int:
        """The task goes on with its script; returns when it will have done its stretch."""
        task = cpu.current
        cpu.run_from, cpu.pace = self.now, 1024
        if task.left is None:
            return self.now
        if any(not other.vacant for other in self.threads(cpu) if other is not cpu):
            cpu.pace = self.smt_slow
        return self.now + task.left * cpu.pace // 1024

    def interrupt(self, cpu: Cpu) -> Life:
        idle, task = cpu.curr is None, cpu.current
        if not idle and task.left is not None:
            done = min((self.now - cpu.run_from) * 1024 // cpu.pace, task.left)
            task.left -= done
            task.used += done
        cpu.irq = True
        if cpu.tick_at <= self.now:
            self.charge(cpu, cpu)
            cpu.tick_at = self.next_tick(cpu)
            yield self.now + self.draw("tick")
            self.on_tick(cpu)
        elif not cpu.due:
            cpu.ipi_at = FAR
            if cpu.wakelist:
                exit_ = max(self.draw("idle_exit") - self.draw("false_idle"), 0) if idle else 0
                yield self.now + exit_
                yield from self.flush(cpu)
            elif idle and cpu.rq.waiting:
                cpu.irq = False
                yield self.now + self.draw("idle_exit") + self.draw("switch_in")
                self.leave_idle(cpu)
                return
        yield from self.end_interrupt(cpu)

    def end_interrupt(self, cpu: Cpu) -> Life:
        """What else waits; then schedule() if that is asked for."""
        while True:
            if cpu.due:
                yield self.now + self.draw("timer")
                yield from self.timer(cpu)
            elif cpu.wakelist and cpu.ipi_at <= self.now:
                cpu.ipi_at = FAR
                yield self.now
                yield from self.flush(cpu)
            else:
                break
        cpu.irq = False
        if cpu.curr is None:
            if cpu.rq.waiting:
                yield self.now + self.draw("switch_in")
                self.leave_idle(cpu)
            else:
                cpu.rq.resched = False
        elif cpu.rq.resched:
            yield self.now
            yield from self.preempt(cpu)

    def timer(self, cpu: Cpu) -> Life:
        task = cpu.due.pop(0)
        if not cpu.due:
            cpu.due_at = FAR
        if task.stand in (Stand.ASLEEP, Stand.DELAYED):
            task.op += 1
            task.bursts += 1
            yield from self.wake(cpu, task, sync=False)

    def flush(self, cpu: Cpu) -> Life:
        """sched_ttwu_pending(): section 1.1, the remote side, and 1.2."""
        taken, cpu.wakelist = cpu.wakelist, []
        if self.pending_early:
            cpu.pending = False
        yield self.now + self.draw("false_idle")
        for i, task in enumerate(taken):
            if i:
                yield self.now + self.draw("event")  # recording the last one's sched_wakeup
            if self.charge(cpu, cpu):
                yield self.now + self.draw("event")
            self.count(cpu, task, 1)
            cpu.booked -= self.model.window == 0
            self.enqueue(cpu, task)
            cpu.rq.resched |= cpu.rq.preempts(task)
            cpu.entering = task
            yield self.now + self.draw("enqueue")
            cpu.entering = None
            self.row(cpu, Row.WAKEUP, task, cpu_to=cpu.index)
        if not self.pending_early:
            cpu.pending = False

    def on_tick(self, cpu: Cpu) -> None:
        task = cpu.curr
        if task:
            self.charge(cpu, cpu)
            if task.fair and task.load.home is cpu.load:
                task.load.update(self.now)
            cpu.load.update(self.now)
            cpu.rq.resched |= cpu.rq.slice_over()
        elif self.now - cpu.idle_since > self.tick:
            cpu.tick_at = FAR
        self.periodic(cpu)

    # --- wakeups ---

    def wake(self, cpu: Cpu, task: Task, *, sync: bool) -> Life:
        """try_to_wake_up(), the numbers as in section 1.1."""
        self.row(cpu, Row.WAKING, task, cpu_to=task.cpu)  # 3
        begun, spent = self.now, 0
        delayed = task.stand is Stand.DELAYED
        task.woken = delayed
        if not delayed:
            task.stand = Stand.WAKING  # 5
        yield self.now + self.draw("look")
        while True:
            home = self.cpus[task.cpu]
            if task.off_cpu <= self.now:
                if not delayed:
                    break
                if task.stand is Stand.DELAYED:  # 4, under the queue's lock
                    yield self.now + self.draw("show_direct")
                    yield from self.queue_directly(cpu, home, task, delayed=True)
                    return
                delayed = False  # its CPU has put it to sleep for good
                task.stand = Stand.WAKING
                break
            if not delayed and self.listed(cpu, home, departing=True):  # 6
                end = begun + spent + self.draw("wake_remote")
                yield self.now + self.draw("show_remote")
                self.append(home, task)
                yield max(self.now, end)
                return
            until = int(task.off_cpu)  # 7
            if task.off_cpu == FAR:
                until = max(home.at, self.now) + SPIN
            spent += until - self.now
            yield until
        if self.is_sought(task):
            self.record_wakee(cpu.current, task)
            looks = self.looks(cpu, task, sync)
            scan = self.draw("scan") * looks if looks else 0
            if scan:
                spent += scan
                yield self.now + scan
        to = self.select(cpu, task, sync)  # 8
        to.booked += 1
        yield self.now + self.draw("book")
        moved = to is not home
        if moved:  # 9
            self.row(cpu, Row.MIGRATE, task, cpu_from=home.index, cpu_to=to.index)
            if task.fair and not self.tunes.eevdf:
                task.vruntime -= home.rq.floor
                task.off_queue = True
            task.from_, task.cpu = None, to.index
        remote = self.listed(cpu, to, departing=False)
        end = begun + spent
        if remote:
            end += self.draw("wake_remote") + (self.draw("wake_migrate") if moved else 0)
        show = self.draw("show_remote" if remote else "show_direct")
        yield self.now + show + (self.draw("event") if moved else 0)
        if remote:  # 10
            to.booked -= 1
            self.append(to, task)
            yield max(self.now, end)
        else:
            yield from self.queue_directly(cpu, to, task)

    def listed(self, this: Cpu, other: Cpu, *, departing: bool) -> bool:
        """Section 1.4; departing: the task is still on that CPU."""
        if this is other or not self.model.ttwu_queue:
            return False
        near = self.wakelist_form == 2 or (departing and self.wakelist_form == 1)
        return this.llc != other.llc or (near and not other.nr)

    def append(self, to: Cpu, task: Task) -> None:
        """The booking is seen: it is on the wakelist. (Without a window it was seen before.)"""
        to.pending = True
        to.wakelist.append(task)
        to.booked += self.model.window == 0
        self.kick(to)

    def queue_directly(
        self, cpu: Cpu, to: Cpu, task: Task, *, delayed: bool = False, new: bool = False
    ) -> Life:
        """Under the queue's lock: the run time of who is there is told, nr_running, the enqueue."""
        if self.charge(to, cpu):
            yield self.now + self.draw("event")
        else:
            yield self.now
        if not delayed:
            self.count(to, task, 1)
            to.booked -= not new
        to.lockers += 1
        yield self.now + self.draw("enqueue")
        to.lockers -= 1
        if delayed and task.stand is not Stand.DELAYED:
            self.count(to, task, 1)
        self.enqueue(to, task, new=new)
        if to.rq.preempts(task):
            to.rq.resched = True
            if to is not cpu:
                self.kick(to)
        self.row(cpu, Row.WAKEUP_NEW if new else Row.WAKEUP, task, cpu_to=to.index)
        yield self.now + (0 if new else max(self.draw("wake_direct") - self.direct_way, 0))

    def is_sought(self, task: Task) -> bool:
        """Whether select_task_rq_fair() is asked."""
        return len(task.allowed) > 1 and task.fair

    def looks(self, cpu: Cpu, task: Task, sync: bool) -> int:
        """How long the search will be, in looks at a CPU, as things stand when it begins.

        The shortest that moves a task takes recent_used_cpu; the sibling comes 1 look behind it,
        the scan begins after 5, the search for an idle core after 3 and takes 3 a core.
        """
        answer = self.ask(cpu, task, sync)
        target = self.cpus[answer["target"]]
        ring = [c.index for c in self.behind(target, self.members(target.llc))] + [target.index]
        near = ring.index(answer["cpu"]) + 1 if answer["cpu"] in ring else 0
        cores = len(ring) // len(self.threads(target))
        return {
            "smt": 1, "cpu": 5 + near, "budget": 5 + self.scan[target.llc],
            "core": 3 + 3 * min(near, cores), "core_rest": 3 + 3 * cores,
            "fallback": 3 + 3 * cores,
        }.get(answer["step"], 0)  # fmt: skip

    def select(self, cpu: Cpu, task: Task, sync: bool) -> Cpu:
        """The CPU; a scan reads at its end."""
        if len(task.allowed) == 1:
            return self.cpus[min(task.allowed)]
        if not task.fair:
            return self.select_real_time(task)
        answer = self.ask(cpu, task, sync)
        chosen: int = answer["cpu"]
        self.hint[self.cpus[answer["target"]].llc] = answer["hint_after"]
        task.recent = answer["recent_after"]
        wide = answer["wa"] == "wide"
        if self.forms["recent_form"] == 1 and not wide and cpu.index in task.allowed:
            cpu.current.recent = cpu.index
        if chosen not in task.allowed:
            chosen = task.cpu if task.cpu in task.allowed else min(task.allowed)
        return self.cpus[chosen]

    def record_wakee(self, waker: Task, task: Task) -> None:
        """Section 2.1."""
        jiffies = self.now // self.tick
        if jiffies > waker.flips_tick + self.hz:
            waker.flips //= 2
            waker.flips_tick = jiffies
        if waker.last_wakee is not task:
            waker.last_wakee = task
            waker.flips += 1

    def ask(self, cpu: Cpu, task: Task, sync: bool) -> dict[str, Any]:
        """What the rule says as things stand now; nothing is changed."""
        cpus, waker, home = self.cpus, cpu.current, self.cpus[task.cpu]
        llcs = range(len(self.scan))
        # Since 7.2 SCHED_IDLE tasks are not put beside others of their kind (section 1.2).
        choosy = task.policy == IDLE and self.forms["release"] >= 7002
        state = {
            "n": len(cpus), "forms": self.forms,
            "core": [c.core for c in cpus], "llc": [c.llc for c in cpus],
            "cluster": [0] * len(cpus), "zone": [0] * len(cpus),
            "nr": [c.nr for c in cpus], "delayed": [c.delayed for c in cpus],
            # Of a CPU without tasks: whether it looks idle, for whatever reason.
            "pending": [not c.nr and not self.is_idle(c) for c in cpus],
            "sched_idle": [0 < c.nr == c.idlers and not choosy for c in cpus],
            "curr_dur": [0 if c.vacant else c.current.dur_avg for c in cpus],
            "load": [c.load.load for c in cpus], "capacity": [1024] * len(cpus),
            "hint": [self.hint[llc] for llc in llcs],
            "nr_idle_scan": [self.scan[llc] for llc in llcs],
        }  # fmt: skip
        fair_waker = waker is not cpu.idle_task and waker.fair
        wakeup = {
            "this": cpu.index, "prev": home.index, "recent": task.recent, "allowed": task.allowed,
            "sync": sync, "w_dur": waker.dur_avg, "p_dur": task.dur_avg,
            "w_flips": waker.flips, "p_flips": task.flips,
            "w_load": cpu.load.share(waker.load) if fair_waker else 0,
            "p_load": home.load.share(task.load),
            "w_percpu_kthread": False, "task_ctx": not cpu.irq,
            "w_last_is_p": True, "p_last_is_w": task.last_wakee is waker,
            "prop_nr": self.model.prop_nr,
        }  # fmt: skip
        return path_oracle.select(state, wakeup, RULES[self.model.rule], self.short)

    def select_real_time(self, task: Task) -> Cpu:
        """The last CPU unless one of no lower priority runs there; else the first that is free."""

        def yields(cpu: Cpu) -> bool:
            return cpu.curr is None or cpu.curr.prio > task.prio

        home = self.cpus[task.cpu]
        if yields(home):
            return home
        return next((c for c in self.cpus if c.index in task.allowed and yields(c)), home)

    # --- schedule() ---

    def sleep(self, cpu: Cpu, stand: Stand = Stand.ASLEEP, state: int = Row.SLEEP) -> Life:
        """The current task blocks or dies; up to the switch away from it. Section 7.8-2."""
        task, rq = cpu.current, cpu.rq
        self.charge(cpu, cpu)
        rq.keep_lag(task)
        sample, task.total_asleep = task.total - task.total_asleep, task.total
        if task.fair:  # section 3.1; towards zero
            change = sample - task.dur_avg
            task.dur_avg += change // 8 if change >= 0 else -(-change // 8)
        ahead = task.vruntime > rq.average()
        if self.delay_dequeue and stand is Stand.ASLEEP and task.fair and rq.waiting and ahead:
            stand = Stand.DELAYED  # section 9.4
            cpu.delayed += 1
        elif task.fair and task.load.home:
            task.load.home.dequeue(task.load, self.now)
        task.stand, task.last_state, task.off_cpu = stand, state, FAR
        rq.forget(task)
        rq.resched = False
        cpu.clock = self.now
        out = self.draw("switch_out")
        cpu.switch_at = self.now + out
        rq.locked = True
        yield self.now + min(self.draw("event") * 5 // 4, out)
        rq.locked = False
        if task.stand is Stand.DELAYED:
            rq.enter(task)
        else:
            self.count(cpu, task, -1)
        chosen = yield from self.choose_under_lock(cpu)
        if chosen:
            rq.take(chosen)
            yield max(self.now, cpu.switch_at)
        else:
            chosen = yield from self.find_work(cpu)
        self.switch(cpu, chosen)

    def choose(self, cpu: Cpu) -> Task | None:
        """pick_next_task(); a delayed sleeper that is picked goes to sleep for good."""
        while True:
            task = cpu.rq.pick()
            if task is None or task.stand is not Stand.DELAYED:
                return task
            cpu.rq.keep_lag(task)
            task.lag = min(task.lag, 0)
            cpu.rq.leave(task)
            self.count(cpu, task, -1)
            cpu.delayed -= 1
            task.stand = Stand.ASLEEP
            cpu.load.dequeue(task.load, self.now)

    def choose_under_lock(self, cpu: Cpu) -> Part[Task | None]:
        """The same; who has raised nr_running and not yet enqueued is waited for."""
        task = self.choose(cpu)
        while task is None and cpu.lockers:
            yield self.now + LOCK
            task = self.choose(cpu)
        return task

    def find_work(self, cpu: Cpu) -> Part[Task | None]:
        """Newidle balance (section 8.3), then the idle task; returns at the switch."""
        begun, tried, level = self.now, 0, -1
        cpu.switch_at = cpu.clock + self.draw("switch_idle")
        cpu.idle_stamp = cpu.clock
        cost = self.draw("pull")
        if self.looks_for_tasks(cpu):
            level = CORE
            before = self.draw("newidle")  # update_blocked_averages()
            cpu.switch_at += before
            begun += before
        while not self.arrived(cpu):
            domain = self.next_level(cpu, level, max(self.now - begun, 0))
            if domain is None:
                break
            level, counts = domain
            yield max(self.now, begun) + cost // (8 if level == CORE else 4)
            if self.arrived(cpu):
                break
            tried += 1
            source = self.source(cpu, level)
            self.note_overload(level)
            if source is None:
                self.tally(cpu, level, 0)
                level -= 1
                continue
            yield self.now + cost * (7 if level == CORE else 12) // 40
            if self.arrived(cpu):
                break
            task = self.movable(source, cpu, level, self.hot_cost) if source.nr > 1 else None
            self.tally(cpu, level, counts if task else 0)
            level -= 1
            if task:
                self.move(task, cpu, cpu)
                cpu.rq.take(task)
                cpu.clock = self.now
                yield max(self.now + cost * 9 // 20, cpu.switch_at)
                return task
        if tried:
            cpu.switch_at += self.now - begun
        # rq->curr is the idle task a little before the record.
        yield max(self.now, cpu.switch_at - self.draw("event") * 7 // 10)
        task = yield from self.choose_under_lock(cpu)
        cpu.rq.take(task)
        if task is None:
            cpu.vacant = True
            if not self.hint[cpu.llc]:  # section 6.7
                others = [t for t in self.threads(cpu) if t is not cpu]
                self.hint[cpu.llc] = all(t.vacant and not t.nr and not t.pending for t in others)
        yield max(self.now, cpu.switch_at)
        return task

    def leave_idle(self, cpu: Cpu) -> None:
        """schedule() of the idle task: whoever is there now."""
        cpu.rq.resched = False
        task = self.choose(cpu)
        if task is None:
            return  # pulled away by another CPU
        cpu.rq.take(task)
        change = cpu.clock - cpu.idle_stamp - cpu.avg_idle
        cpu.avg_idle += change // 8 if change >= 0 else -(-change // 8)
        cpu.avg_idle = min(cpu.avg_idle, 2 * max(self.floor_cost, cpu.lb_cost))
        cpu.vacant = False
        self.switch(cpu, task)

    def preempt(self, cpu: Cpu) -> Life:
        """schedule() while the current task is runnable."""
        rq, prev = cpu.rq, cpu.current
        self.charge(cpu, cpu)
        rq.resched = False
        task = self.choose(cpu)
        if task is None or task is prev:
            rq.forget(prev)
            return
        prev.stand, prev.last_state, prev.off_cpu = Stand.QUEUED, 0, FAR
        rq.take(task)
        rq.enter(prev)
        cpu.clock = self.now
        yield self.now + self.draw("switch_in")
        self.switch(cpu, task)

    def switch(self, cpu: Cpu, task: Task | None) -> None:
        """sched_switch."""
        rq, prev = cpu.rq, cpu.curr
        new = task or cpu.idle_task
        state = prev.last_state if prev else 0
        self.row(
            cpu, Row.SWITCH, cpu.current, ctx=0, state=state, other=new.pid, other_prio=new.prio
        )
        leaving = None
        cpu.irqs_on = self.now + self.draw("on_cpu")
        if prev:
            prev.off_cpu = cpu.irqs_on
            if prev.fair and prev.load.home is cpu.load and prev.load.queued:
                leaving = prev.load
        coming = task.load if task and task.fair else None
        cpu.load.switch(leaving, coming, max(cpu.clock, cpu.load.last))
        rq.curr, rq.heir, rq.decided = task, None, False
        if task is None:
            cpu.idle_since = self.now
            if rq.waiting:
                cpu.ipi_at = min(cpu.ipi_at, self.now)
            return
        task.from_ = cpu.clock
        rq.forget(task)
        if cpu.tick_at >= FAR:
            cpu.tick_at = self.next_tick(cpu)
        if not rq.waiting:
            rq.resched = False

    # --- scripts ---

    def script(self, cpu: Cpu) -> Part[bool]:
        """Go on with the script, up to a step that takes time; whether it runs in circles."""
        task = cpu.current
        if task.left is not None:
            task.used += task.left
            task.left = None
            task.op += 1
        for _ in range(ROUNDS):
            if task.op >= len(task.script):
                if not 0 <= task.loop < len(task.script):
                    yield from self.sleep(cpu)
                    return False
                task.op = task.loop
                task.shift += self.span
            code, flags, which, value = task.script[task.op]
            if code == Op.RUN and value > 0:
                task.left = value
                return False
            steps = self.sleeping_step(cpu, task, code, which, value)
            if steps is None:
                task.op += 1
                steps = self.waking_step(cpu, task, code, flags, which)
            if steps is not None:
                yield from steps
                return False
        return True

    def sleeping_step(self, cpu: Cpu, task: Task, code: int, which: int, value: int) -> Life | None:
        """A step that may put the task to sleep: its sleep, or None if there is none."""
        if code == Op.BLOCK:
            if not task.tokens:
                return self.sleep(cpu)
            task.tokens -= 1
            task.bursts += 1
        elif code == Op.RECV:
            box = self.box(which)
            if not box.messages:
                box.waiters.append(task)
                return self.sleep(cpu)
            task.sender = box.messages.pop(0)
            task.bursts += 1
        elif code == Op.NAP:
            task.timer_cpu = cpu.index
            self.set_timer(task, self.now + max(value, 1))
            return self.sleep(cpu)
        elif code == Op.UNTIL:
            at = value + task.shift
            if at > self.now:
                task.timer_cpu = which if 0 <= which < len(self.cpus) else cpu.index
                self.set_timer(task, at)
                return self.sleep(cpu)
            task.bursts += 1
        return None

    def waking_step(self, cpu: Cpu, task: Task, code: int, flags: int, which: int) -> Life | None:
        """A step that does something to others; None if it takes no time."""
        sync = bool(flags & Op.SYNC)
        if code == Op.EXIT:
            return self.sleep(cpu, Stand.DEAD, Row.DEAD)
        if code == Op.STEP:
            task.steps += 1
        elif code in (Op.WAKE, Op.REPLY):
            other = self.tasks[which] if code == Op.WAKE else task.sender
            if other is not None and other is not task:
                return self.wake_by(cpu, other, sync, silent=code == Op.REPLY)
        elif code == Op.SEND:
            box = self.box(which)
            box.messages.append(task)
            waiter = box.waiters.pop(0) if box.waiters else None
            # With nobody on the wait list there is no try_to_wake_up().
            return self.after_wake(cpu, self.wake(cpu, waiter, sync=sync)) if waiter else None
        elif code == Op.FORK and self.tasks[which].stand is Stand.UNBORN:
            return self.fork(cpu, self.tasks[which])
        elif code == Op.YIELD:
            return self.yield_(cpu, None)
        elif code == Op.YIELD_TO and self.tasks[which].stand is Stand.QUEUED:
            return self.yield_(cpu, self.tasks[which])
        return None

    def wake_by(self, cpu: Cpu, other: Task, sync: bool, *, silent: bool) -> Life | None:
        """A wake of a task that sleeps in a BLOCK is a wakeup, else a token; ``silent``: that
        takes no time.
        """
        step = other.script[other.op][0] if other.op < len(other.script) else None
        asleep = other.stand in (Stand.ASLEEP, Stand.DELAYED) and not other.woken
        if asleep and step == Op.BLOCK:
            other.op += 1
            other.bursts += 1
            return self.after_wake(cpu, self.wake(cpu, other, sync=sync))
        if other.stand is not Stand.DEAD:
            other.tokens += 1
        return None if silent else self.after_wake(cpu, None)

    def after_wake(self, cpu: Cpu, wakeup: Life | None) -> Life:
        """A wake by a script; it may have made somebody next on this CPU."""
        if wakeup is None:
            yield self.now + self.draw("wake_none")
        else:
            yield from wakeup
        if cpu.rq.resched:
            yield from self.end_interrupt(cpu)

    def fork(self, cpu: Cpu, child: Task) -> Life:
        """An idle CPU of the LLC, else this one."""
        ring = [*self.behind(cpu, self.members(cpu.llc)), cpu]
        able = [c for c in ring if self.is_idle(c) and c.index in child.allowed]
        to = able[0] if able else cpu
        if to.index not in child.allowed:
            to = self.cpus[min(child.allowed)]
        child.stand = Stand.WAKING
        child.cpu = child.recent = to.index
        yield self.now + self.draw("book")
        yield from self.queue_directly(cpu, to, child, new=True)
        if cpu.rq.resched:
            yield from self.end_interrupt(cpu)

    def yield_(self, cpu: Cpu, to: Task | None) -> Life:
        """Section 9.3."""
        self.charge(cpu, cpu)
        here = None
        if to is not None:
            there = self.cpus[to.cpu]
            if there is cpu:
                here = to
            else:
                there.rq.next_buddy = to
                there.rq.resched = True
                self.kick(there)
        cpu.rq.yield_(here)
        yield self.now + self.draw("switch_out")
        yield from self.preempt(cpu)


def run(
    work: Work, model: Model, *, end_ns: int, begin_ns: int = 0, seed: int = 1
) -> list[tuple[int, ...]]:
    """Return the events that ``simulate()`` must leave, as tuples of EVENT's columns."""
    return Machine(work, model, seed=seed, begin=begin_ns, end=end_ns).run()
