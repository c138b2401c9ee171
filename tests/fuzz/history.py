"""What the captures of the corpus hold: a short history of a few tasks on three CPUs."""

from __future__ import annotations

import random
from collections.abc import Sequence

from text_writer import Event

__all__ = ["CPUS", "HOSTILE", "PLAIN", "history"]

CPUS = 3
PLAIN = (b"alpha", b"beta-1", b"gamma d", b"kworker/0:1", b"e")
#: In each form these can stand where the name of a task stands.
HOSTILE = (b"\x1b[31mred", b"<script>x</s>", b"\xff\xfe\xc3(", b"a pid=7 prio=1", b"x ==> y:1 [2]")


def history(seed: int, count: int, names: Sequence[bytes] = PLAIN) -> list[Event]:
    """At least ``count`` events in the order of time, 1 µs or more apart: tasks that wake each
    other, run, sleep, move, fork and end, and CPUs that fall idle."""
    rng = random.Random(seed)
    tasks = {100 + i: name for i, name in enumerate(names)}
    running = [0] * CPUS
    at = [rng.randrange(CPUS) for _ in range(100 + len(names) + 50)]
    now = 5_000_000_000
    out: list[Event] = []

    def add(cpu: int, name: str, **fields: object) -> None:
        nonlocal now
        now += rng.choice((1000, 2000, 7000, 90_000, 3_000_000))
        pid = running[cpu]
        comm = tasks[pid] if pid else b"<idle>"
        out.append(Event(now, cpu, comm, pid, name, fields, rng.choice((b"d..2.", b"dNh1."))))

    def task(pid: int) -> dict[str, object]:
        return {"comm": tasks[pid], "pid": pid, "prio": 120}

    def switch(cpu: int, nxt: int, state: str) -> None:
        prev = running[cpu]
        idle = b"swapper/%d" % cpu
        add(
            cpu, "sched_switch", prev_comm=tasks.get(prev, idle), prev_pid=prev, prev_prio=120,
            prev_state=state, next_comm=tasks.get(nxt, idle), next_pid=nxt, next_prio=120,
        )  # fmt: skip
        running[cpu] = nxt

    while len(out) < count:
        cpu = rng.randrange(CPUS)
        free = [pid for pid in tasks if pid not in running]
        pid = rng.choice(free)
        what = rng.random()
        if what < 0.5:
            add(cpu, "sched_waking", **task(pid), target_cpu=at[pid])
            target = rng.randrange(CPUS)
            if target != at[pid]:
                add(cpu, "sched_migrate_task", **task(pid), orig_cpu=at[pid], dest_cpu=target)
            at[pid] = target
            add(target, "sched_wakeup", **task(pid), target_cpu=target)
            switch(target, pid, "R" if not running[target] else "R+")
        elif what < 0.75:
            if running[cpu]:
                add(cpu, "sched_stat_runtime", comm=tasks[running[cpu]], pid=running[cpu],
                    runtime=rng.randrange(10**6))  # fmt: skip
            switch(cpu, rng.choice((0, pid)), rng.choice("SSSDI"))
        elif what < 0.85:
            add(cpu, "cpu_idle", state=rng.choice((0, 1, 4294967295)), cpu_id=cpu)
        elif what < 0.93 and running[cpu] and len(tasks) < 40:
            child = 100 + len(tasks)
            tasks[child] = tasks[running[cpu]]
            add(cpu, "sched_process_fork", parent_comm=tasks[child], parent_pid=running[cpu],
                child_comm=tasks[child], child_pid=child)  # fmt: skip
            add(cpu, "sched_wakeup_new", **task(child), target_cpu=cpu)
        elif running[cpu]:
            add(cpu, "sched_process_exec", filename=b"/bin/x", pid=running[cpu],
                old_pid=running[cpu])  # fmt: skip
    return out
