"""Passes over events and marks of a capture, out of which the scripts of a workload are made.

``dequeues`` finds in the events where each stretch on a CPU really ended; ``write_scripts`` turns
the marks of all tasks, in the order of task and time, into rows of scripts.
"""

from __future__ import annotations

from typing import Any

from traceana._jit import njit

NULL = -(2**63)
_SWITCH, _WAKING, _WAKEUP, _MIGRATE, _STAT = 0, 1, 2, 4, 8
_IRQ = 7  # Ctx.HARDIRQ | Ctx.SOFTIRQ | Ctx.NMI
_NO_CTX = 255

# Op of _sim_state
_RUN, _WAKE, _BLOCK, _FORK = 0, 1, 2, 8
# What and the columns of _workload_marks.Mark
_M_WAKE, _M_TAKE, _M_FORK, _M_IRQ, _M_OUT, _M_IN = 0, 1, 2, 3, 4, 5
_TASK, _TS, _WHAT, _OTHER, _VALUE, _FLAGS, _SLEEP = 0, 1, 2, 3, 4, 5, 6


@njit
def dequeues(
    ts: Any, cpu: Any, kind: Any, pid: Any, ctx: Any, subject: Any, other: Any, state: Any, out: Any
) -> int:
    """When the task that leaves at each sched_switch was taken off its queue.

    A blocking task is dequeued, which reports its run time (sched_stat_runtime); a newidle balance
    may follow, whose pulls (sched_migrate_task) report it once more; then comes the switch. So it
    is the last report before the first pull, after the last wakeup that the task did itself.

    ``state`` int64[cpus, 4], of each CPU: last report (NULL), a pull came (0), pid being woken
    (-1), last sched_waking of a task (NULL). ``out`` int64[rows, 5]: the CPU and time of a switch,
    its dequeue (NULL: not told), the last sched_waking that the task did, and how it goes on: 0
    idle, 1 a task, 2 a newidle balance has pulled. Returns how many rows are filled.
    """
    n = 0
    for i in range(len(ts)):
        c = cpu[i]
        if c < 0 or c >= len(state):
            continue
        k = kind[i]
        if k == _SWITCH:
            out[n, 0] = c
            out[n, 1] = ts[i]
            out[n, 2] = state[c, 0]
            out[n, 3] = state[c, 3]
            out[n, 4] = 2 if state[c, 1] != 0 else (0 if other[i] == 0 else 1)
            n += 1
            state[c, 0] = NULL
            state[c, 1] = 0
            state[c, 2] = -1
            state[c, 3] = NULL
        elif ctx[i] != _NO_CTX and (ctx[i] & _IRQ) != 0:
            continue
        elif k == _WAKING:
            state[c, 0] = NULL
            state[c, 1] = 0
            state[c, 2] = subject[i]
            state[c, 3] = ts[i]
        elif k == _WAKEUP:
            state[c, 0] = NULL
            state[c, 1] = 0
            state[c, 2] = -1
        elif k == _MIGRATE:
            if state[c, 2] == subject[i]:
                state[c, 2] = -1
            else:
                state[c, 1] = 1
        elif k == _STAT and subject[i] == pid[i] and state[c, 1] == 0:
            state[c, 0] = ts[i]
    return n


@njit
def write_scripts(marks: Any, costs: Any, op: Any, at_mark: Any, first: Any, end: Any) -> int:
    """Write the scripts. Returns how many rows.

    ``marks`` int64[n, 8], the columns of Mark, in the order of task and time; ``costs`` int64[n],
    what the wakeup of a mark takes its waker, or whoever it interrupts; ``op`` int64[2 n + tasks,
    4], the columns of OP; ``at_mark`` int64[same], the mark that a row comes from or ends at, -1
    none; ``first``, ``end`` int64[tasks].
    """
    n = 0
    task = -1
    at = NULL  # run time is counted up to here; NULL: the task does not run
    hold = NULL  # what an interrupt takes ends here
    run = 0
    for i in range(len(marks)):
        if marks[i, _TASK] != task:
            if task >= 0:
                if run > 0:
                    n = _row(op, at_mark, n, _RUN, 0, -1, run, -1)
                end[task] = n
            task = marks[i, _TASK]
            first[task] = n
            at = NULL
            hold = NULL
            run = 0
        what = marks[i, _WHAT]
        ts = marks[i, _TS]
        if what == _M_IN:
            at = max(ts, hold)
            continue
        if at != NULL and ts > at:
            run += ts - at
            at = ts
        if what == _M_IRQ:
            hold = max(hold, ts + marks[i, _VALUE] + costs[i])
            if at != NULL:
                at = max(at, hold)
        elif what == _M_WAKE or what == _M_FORK:
            n = _row(op, at_mark, n, _RUN, 0, -1, run, i)
            code = _WAKE if what == _M_WAKE else _FORK
            if marks[i, _SLEEP] != -1:
                code = marks[i, _SLEEP]
            if code >= 0:
                n = _row(op, at_mark, n, code, marks[i, _FLAGS], marks[i, _OTHER], 0, i)
            run = 0
            if at != NULL:
                at = max(at, ts + costs[i])
        elif what == _M_TAKE:
            if marks[i, _SLEEP] == -2:
                continue
            n = _row(op, at_mark, n, _RUN, 0, -1, run, i)
            code = marks[i, _SLEEP] if marks[i, _SLEEP] >= 0 else _BLOCK
            n = _row(op, at_mark, n, code, 0, marks[i, _OTHER], 0, i)
            run = 0
        else:
            at = NULL
            if marks[i, _SLEEP] >= 0:
                # The first sleep of a task that slept at the begin has no run before it.
                if run > 0 or n > first[task]:
                    n = _row(op, at_mark, n, _RUN, 0, -1, run, i)
                n = _row(
                    op, at_mark, n, marks[i, _SLEEP], marks[i, _FLAGS], marks[i, _OTHER],
                    marks[i, _VALUE], i,
                )  # fmt: skip
                run = 0
    if task >= 0:
        if run > 0:
            n = _row(op, at_mark, n, _RUN, 0, -1, run, -1)
        end[task] = n
    return n


@njit
def in_turn(whom: Any, unseen: Any, share: Any) -> None:
    """Send messages to several readers in turn, as many to each as before; in place.

    Who gets an unseen message is whoever is furthest behind its share then; those that were seen
    stay. ``whom`` int64 per message: a reader's number; ``unseen`` int64 per message; ``share``
    int64 per reader: how many it gets in all.
    """
    left = share.copy()
    for i in range(len(whom)):
        if unseen[i] == 0:
            left[whom[i]] -= 1
    # Now those that are left are unseen ones, of which one is handed out at a time.
    n = len(whom)
    given = share * 0
    for i in range(n):
        r = whom[i]
        if unseen[i] != 0:
            r = -1
            behind = 0
            for one in range(len(share)):
                late = share[one] * (i + 1) - given[one] * n
                if left[one] > 0 and (r < 0 or late > behind):
                    r = one
                    behind = late
            left[r] -= 1
            whom[i] = r
        given[r] += 1


@njit
def pay(first: Any, limit: int, sleeps: Any, alone: Any, ahead: Any) -> None:
    """Which sleep or message takes which token, where each message takes one.

    ``first`` int64 per sleep of a writer, in the order of time: the number of the first message
    behind it. ``limit``: tokens that there are; with more taken than that before anything is sent,
    the writer would wait for ever. ``sleeps`` int64 per sleep: 1 it ended with a token that some
    message needs, 0 there is none. ``alone`` int64 per message: 1 no sleep took its token.
    ``ahead`` int64 per sleep: how many tokens were taken before it that no message had been sent
    for. A message that was waited for takes the token of the sleep; further sleeps behind one
    message pay for those that follow.
    """
    owed = 0
    i = 0
    for m in range(len(alone)):
        while i < len(first) and first[i] <= m:
            sleeps[i] = 1 if owed < limit else 0
            ahead[i] = owed
            owed += sleeps[i]
            i += 1
        alone[m] = 0 if owed > 0 else 1
        owed -= 1 - alone[m]
    for j in range(i, len(first)):
        sleeps[j] = 0
        ahead[j] = owed
    for j in range(i - 1, -1, -1):
        if owed > 0 and sleeps[j] == 1:
            sleeps[j] = 0
            owed -= 1


@njit
def _row(
    op: Any, at_mark: Any, n: int, code: int, flags: int, task: int, value: int, mark: int
) -> int:
    op[n, 0] = code
    op[n, 1] = flags
    op[n, 2] = task
    op[n, 3] = value
    at_mark[n] = mark
    return n + 1
