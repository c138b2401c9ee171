"""Workloads made of others: a window of one, several copies of it, on another machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import topology as topo
from traceana._sim_state import Op, Start
from traceana.errors import UsageError
from traceana.workload import Workload

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["cut", "on", "scaled"]

NULL = -(2**63)
Array = npt.NDArray[Any]
_SLEEPS = (Op.BLOCK, Op.NAP, Op.UNTIL, Op.RECV)
#: Tasks and rows of a scaled workload, at most.
_MAX_TASKS, _MAX_ROWS = 1 << 20, 1 << 27
_MAX_PID = 1 << 30


def cut(workload: Workload, window: tuple[int, int]) -> Workload:
    """See :meth:`traceana.workload.Workload.cut`.

    A row belongs to the window if it was over in it; a sleep also if it began before and was ended
    in it: then the task sleeps when the window begins. A waking and the sleep that it ended are
    both kept or both left out, so that tokens balance.
    """
    begin, end = window
    last = workload.begin_ns + workload.span_ns
    if begin >= end or end <= workload.begin_ns or begin >= last:
        raise UsageError(
            f"the window {begin} to {end} ns is empty or outside of "
            f"{workload.begin_ns} to {last} ns"
        )
    begin, end = max(begin, workload.begin_ns), min(end, last)
    tasks, code = workload.tasks, workload.script["code"]
    over, woken = workload.when[:, 0], workload.when[:, 1]
    # What has no time of its own goes with the next row that has one.
    known = over != NULL
    at = np.where(known, np.arange(len(over)), len(over))
    following = np.minimum.accumulate(at[::-1])[::-1] if len(at) else at
    time = np.where(following < len(over), over[np.minimum(following, max(len(over) - 1, 0))], last)
    sleeps = np.isin(code, _SLEEPS)
    until = np.where(sleeps & (woken != NULL), woken, time)
    # Wakings too: by their own instant.
    keep = np.where(sleeps, (until >= begin) & (until < end), (time >= begin) & (time < end))
    moved = np.append(0, np.cumsum(keep))
    first, stop = moved[tasks["first"]], moved[tasks["end"]]
    out = tasks.copy()
    state = out["state"].copy()
    script = workload.script[keep]
    lone = first == stop
    if begin > workload.begin_ns:
        head = np.minimum(first, max(len(script) - 1, 0))
        kept_at = np.flatnonzero(keep)
        if len(kept_at):
            old = kept_at[head]
            asleep = sleeps[old] & (time[old] < begin)
            state = np.where(asleep, Start.ASLEEP, Start.QUEUED)
        # A task whose fork lies ahead is not born.
        forked = np.flatnonzero((code == Op.FORK) & (time >= begin) & (time < end))
        state[workload.script["task"][forked]] = Start.UNBORN
        # Who has room for messages takes it, even if it waited for some when it was recorded.
        asleep_with_room = (state == Start.ASLEEP) & (tasks["tokens"] > 0)
        state[asleep_with_room] = Start.QUEUED
    # Whoever does nothing in the window either slept through it or ran through it.
    rest = np.flatnonzero(lone)
    extra = np.zeros(len(rest), script.dtype)
    extra["task"] = -1
    for i, t in enumerate(rest):
        mine = np.arange(tasks["first"][t], tasks["end"][t])
        later = mine[time[mine] >= end] if len(mine) else mine
        row = int(later[0]) if len(later) else -1
        if row >= 0 and not sleeps[row] and code[row] == Op.RUN:
            extra[i]["code"], extra[i]["value"] = Op.RUN, end - begin
            state[t] = Start.QUEUED
        else:
            extra[i]["code"], extra[i]["value"] = Op.UNTIL, end
            state[t] = Start.ASLEEP
    first[rest] = len(script) + np.arange(len(rest))
    stop[rest] = first[rest] + 1
    out["first"], out["end"], out["op"] = first, stop, first
    out["loop"] = np.where(tasks["loop"] < 0, -1, first)
    out["state"], out["left"] = state, -1
    if begin > workload.begin_ns and len(kept_at):
        # Of a delay that had begun, what was left of it.
        napping = asleep & (code[old] == Op.NAP) & ~lone & (woken[old] != NULL)
        out["left"] = np.where(napping, np.maximum(woken[old] - begin, 0), -1)
    if begin == workload.begin_ns:
        out["state"] = np.where(lone, state, tasks["state"])
    extra_when = np.full((len(rest), 2), NULL, np.int64)
    counts = {**workload.counts, "cut": 1}
    return workload.with_tables(
        out,
        np.concatenate([script, extra]),
        np.concatenate([workload.when[keep], extra_when]),
        begin_ns=begin,
        span_ns=end - begin,
        counts=counts,
    )


def scaled(workload: Workload, instances: int) -> Workload:
    """See :meth:`traceana.workload.Workload.scaled`.

    Kernel threads of one CPU and whoever is pinned are copied, too: they stay where they are.
    """
    if instances < 1:
        raise UsageError(f"{instances} instances: give 1 or more")
    n, m = len(workload.tasks), len(workload.script)
    if n * instances > _MAX_TASKS or m * instances > _MAX_ROWS:
        raise UsageError(f"{instances} instances: {n * instances} tasks are too many")
    boxes = np.isin(workload.script["code"], (Op.SEND, Op.RECV))
    n_boxes = int(workload.script["task"][boxes].max()) + 1 if boxes.any() else 0
    named = np.isin(workload.script["code"], (Op.WAKE, Op.FORK, Op.YIELD_TO))
    groups = int(workload.tasks["group"].max()) + 1 if n else 0
    free = int(workload.tasks["pid"].max()) + 1 if n else 1
    if free + n * instances > _MAX_PID:
        free = 1
    tasks, scripts = [], []
    used = set(workload.tasks["pid"].tolist())
    for copy in range(instances):
        t, s = workload.tasks.copy(), workload.script.copy()
        for name in ("first", "end", "op"):
            t[name] += copy * m
        t["loop"][t["loop"] >= 0] += copy * m
        t["last_wakee"][t["last_wakee"] >= 0] += copy * n
        t["group"] += copy * groups
        if copy:
            pids: list[int] = []
            while len(pids) < n:
                if free not in used:
                    pids.append(free)
                free += 1
            t["pid"] = pids
            used.update(pids)
            # Two cannot run on one CPU.
            t["state"][t["state"] == Start.RUNNING] = Start.QUEUED
        s["task"][named] += copy * n
        s["task"][boxes] += copy * n_boxes
        tasks.append(t)
        scripts.append(s)
    counts = {k: v * instances for k, v in workload.counts.items()}
    accounts = {k: v * instances for k, v in workload.accounts.items()}
    return workload.with_tables(
        np.concatenate(tasks),
        np.concatenate(scripts),
        np.concatenate([workload.when] * instances),
        names=workload.names * instances,
        counts=counts,
        accounts=accounts,
    )


def on(workload: Workload, topology: pa.Table) -> Workload:
    """See :meth:`traceana.workload.Workload.on`."""
    machine = topo.as_arrays(topology)
    n = machine.n_cpus
    usable = np.flatnonzero(machine.online == 1)
    if not len(usable):
        raise UsageError("a machine without a CPU")
    there = np.zeros(max(n, workload.n_cpus), bool)
    there[usable] = True
    tasks, script = workload.tasks.copy(), workload.script.copy()
    gone = ~there[tasks["cpu"]]
    tasks["cpu"] = np.where(gone, usable[tasks["cpu"] % len(usable)], tasks["cpu"])
    tasks["state"][gone & (tasks["state"] == Start.RUNNING)] = Start.QUEUED
    recent = tasks["recent"]
    tasks["recent"] = np.where((recent >= 0) & there[np.maximum(recent, 0)], recent, -1)
    allowed = np.zeros((len(workload.allowed), n), np.uint8)
    both = min(n, workload.allowed.shape[1]) if len(workload.allowed) else 0
    allowed[:, :both] = workload.allowed[:, :both]
    allowed[:, ~there[:n]] = 0
    empty: Array = np.asarray(~allowed.any(axis=1))
    if len(empty):
        mine = tasks["allowed"]
        tasks["allowed"] = np.where((mine >= 0) & empty[np.maximum(mine, 0)], -1, mine)
        allowed[empty] = there[:n]
    device = (script["code"] == Op.UNTIL) & (script["task"] >= 0)
    lost = device & ~there[np.clip(script["task"], 0, len(there) - 1)]
    script["task"][lost] = -1
    return workload.with_tables(tasks, script, workload.when, allowed=allowed, topology=topology)
