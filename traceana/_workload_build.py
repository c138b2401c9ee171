"""From a capture to a workload: marks, costs, scripts, and how every task stood at the begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import _workload_kernels as k
from traceana import pelt, schema
from traceana import topology as topo
from traceana._sim_state import OP, QUANTILES, Op, Start
from traceana._workload_channels import Traffic, add_channels
from traceana._workload_clean import (
    NEWIDLE_NS,
    REFERENCE,
    WakeCosts,
    clean,
    measure_wakes,
    scale_of,
    ways_of,
)
from traceana._workload_flips import idle_flips, own_flips, start_flips, told_wide
from traceana._workload_lag import start_lags
from traceana._workload_marks import TIMER_NS, Mark, Marks, Stretches, make_marks, make_stretches
from traceana._workload_newidle import measure_newidle, with_sources
from traceana._workload_servers import add_pair_tokens, add_requests
from traceana.columns import EventColumns
from traceana.replay import Replay, Told, Verdicts
from traceana.workload import Workload, tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from traceana.capture import Capture
    from traceana.timeline import Timeline

__all__ = ["build"]

NULL = -(2**63)
_FAR = 2**62
_EARLY_NS, _FEW = 5_000_000, 20
_SLEEPS = (Op.BLOCK, Op.NAP, Op.UNTIL, Op.RECV)
Array = npt.NDArray[Any]
#: From a dequeue to its sched_switch, and what a record of an interrupt takes besides recording
#: it, where recording takes REFERENCE ns.
_LEAVE_NS, _IRQ_NS = 1700, 300
#: A switch to idle without a newidle balance takes at most this much of the shortest ones.
_STRAIGHT = 1.25
#: One that has looked at a domain takes more than this longer, where recording takes REFERENCE ns.
_SEEK_NS = 850
_OUTCOMES = (
    "remote", "direct", "none", "remote_migrate", "direct_migrate", "none_migrate",
)  # fmt: skip


_BEHIND = tuple(f"behind_{name}" for name in _OUTCOMES)


def build(cap: Capture, known: Sequence[Traffic] = ()) -> Workload:
    """Make the workload of a capture; errors as :func:`traceana.workload.extract`.

    ``known``: what is known better of groups of tasks (pids) that exchange messages.
    """
    whole = cap.timeline()
    timeline = whole.study or whole
    cap.require(("sched_waking", "sched_wakeup"), "a workload")
    events = EventColumns.concat(list(cap.event_columns()))
    if whole.study is not None:
        keep = (events.ts >= timeline.first_ts) & (events.ts <= timeline.last_ts)
        events = events.take(keep)
    scale = scale_of(cap.event_cost_ns, timeline.raw["wakeups"])
    leave_ns, irq_ns = round(_LEAVE_NS * scale), (round(_IRQ_NS * scale), round(REFERENCE * scale))
    stretches = make_stretches(timeline, events, leave_ns)
    core = topo.as_arrays(cap.topology, len(timeline.raw["cpus"])).core
    stretches = with_sources(stretches, events, core)
    replay = Replay(cap, timeline)
    marks = make_marks(
        timeline, events, stretches, _sync(timeline, replay), irq_ns, round(TIMER_NS * scale)
    )
    w = timeline.raw["wakeups"]
    wakes = measure_wakes(marks, scale, ways_of(marks, w))
    waker = w["current"].astype(np.int64)
    begin = timeline.first_ts
    costs = _costs(marks, wakes, w)
    pid = timeline.raw["tasks"]["pid"]
    row = {int(p): i for i, p in enumerate(pid)}
    better = [one for one in (more.named(row) for more in known) if one is not None]
    marks, channels = add_channels(marks, costs, waker, _instants(timeline), begin, better)
    costs = _costs(marks, wakes, w)
    marks, asked = add_requests(marks, costs, waker, begin, channels)
    costs = _costs(marks, wakes, w)
    marks, passed = add_pair_tokens(marks, costs, waker, begin, channels)
    told = channels.counts
    marks.counts.update(
        asked,
        channels=told["channels"],
        sent=asked["sent"] + told["channel_sent"],
        inferred=asked["inferred"] + told["channel_inferred"] + passed,
    )
    n = len(timeline.raw["tasks"])
    costs = _costs(marks, wakes, w)
    op, at_mark, first, end = _write(marks, costs, n)
    before = int(op[op[:, 0] == Op.RUN, 3].sum())
    main = int(wakes.n.argmax())
    outliers = clean(op, at_mark, first[end > first], marks.outcome, main)
    op, when, first, end = _close(op, at_mark, first, end, marks, timeline)
    made = _workload(
        cap, timeline, stretches, marks, wakes, replay, op, when, first, end, before, outliers,
        _interrupted(marks, costs),
    )  # fmt: skip
    room = np.zeros(n, np.int64)
    room[: len(channels.room)] = channels.room
    alive = (end > first) & (timeline.raw["tasks"]["pid"] > 0)
    made.tasks["tokens"] = room[alive]
    found = (one.named(dict(enumerate(pid.tolist()))) for one in channels.traffic)
    made.traffic.extend(one for one in found if one is not None)
    return made


def _instants(timeline: Timeline) -> Array:
    """When each wakeup was begun, or, where that is not known, was seen to be over (int64[n])."""
    w = timeline.raw["wakeups"]
    return np.where(w["waking"] != NULL, w["waking"], w["wakeup"]).astype(np.int64)


def _sync(timeline: Timeline, replay: Replay) -> Array:
    """WF_SYNC of each wakeup row (section 7.5): inferred from outcomes where these tell; where
    they do not, the waker that sleeps at once has said so.
    """
    w = timeline.raw["wakeups"]
    out = np.full(len(w), 2, np.uint8)
    out[replay.rows] = replay.verdicts.asks["sync"]
    # Kinds without a selection have no outcome: as the decided ones of the same two tasks.
    edge = w["current"].astype(np.int64) * (len(timeline.raw["tasks"]) + 1) + w["wakee"]
    keys, which = np.unique(edge, return_inverse=True)
    told = out < 2
    share = np.bincount(which[told], weights=out[told], minlength=len(keys))
    n = np.bincount(which[told], minlength=len(keys))
    guess = np.where(n > 0, 2 * share >= np.maximum(n, 1), True)
    out = np.where(told, out, guess[which]).astype(np.uint8)
    out[(w["context"] == schema.WakeContext.HARDIRQ) | (w["current"] < 0)] = 0
    return out


def _costs(marks: Marks, wakes: WakeCosts, w: Array) -> Array:
    """What the wakeup of each mark took whoever did it, ns (int64[n]); ``w``: rows of wakeups."""
    known = marks.outcome >= 0
    ways = ways_of(marks, w)
    return np.where(known, ways + wakes.ns[np.maximum(marks.outcome, 0)], 0).astype(np.int64)


def _interrupted(marks: Marks, costs: Array) -> int:
    """How long tasks were interrupted, ns."""
    mine = marks.table[:, Mark.WHAT] == Mark.IRQ
    t = marks.table[mine]
    if not len(t):
        return 0
    takes = t[:, Mark.VALUE] + costs[mine]
    span = int(np.ptp(t[:, Mark.TS]) + takes.max()) + 1
    # Tasks laid end to end, so that none reaches into the next.
    begin = t[:, Mark.TASK] * span + (t[:, Mark.TS] - t[:, Mark.TS].min())
    ends = begin + takes
    before = np.append(begin[0], np.maximum.accumulate(ends)[:-1])
    return int(np.maximum(ends - np.maximum(begin, before), 0).sum())


def _write(marks: Marks, costs: Array, n_tasks: int) -> tuple[Array, Array, Array, Array]:
    rows = 2 * len(marks.table) + n_tasks + 1
    op = np.zeros((rows, 4), np.int64)
    at_mark = np.full(rows, -1, np.int64)
    first = np.zeros(n_tasks, np.int64)
    end = np.zeros(n_tasks, np.int64)
    write: Any = k.write_scripts
    used = write(marks.table, costs, op, at_mark, first, end)
    return op[:used].copy(), at_mark[:used].copy(), first, end


def _close(
    op: Array, at_mark: Array, first: Array, end: Array, marks: Marks, timeline: Timeline
) -> tuple[Array, Array, Array, Array]:
    """Make the scripts' ends such that a loop leads back to how things stood at the begin.

    Whoever slept at both ends goes on sleeping in what is the first sleep of the next round. Of
    those who ran or waited at the begin and sleep at the end without a waking in sight, who is
    woken by others goes on at once, who naps naps as usual, and all else sleep to the window's
    end. Then each loop takes as many tokens as it is sent.
    """
    t = marks.table
    when = np.full((len(op), 2), NULL, np.int64)
    at = at_mark >= 0
    when[at, 0] = t[at_mark[at], Mark.TS]
    sleeps = np.isin(op[:, 0], _SLEEPS)
    w = timeline.raw["wakeups"]
    row = np.where(at, t[np.maximum(at_mark, 0), Mark.ROW], -1)
    waking = np.where(w["waking"] != NULL, w["waking"], w["wakeup"]) if len(w) else np.zeros(1)
    known = sleeps & (row >= 0)
    when[known, 1] = waking[row[known]]
    keep = np.ones(len(op), bool)
    is_last = np.zeros(len(op), bool)
    has = end > first
    is_last[end[has] - 1] = True
    never = is_last & (op[:, 0] == Op.BLOCK) & (row < 0) & at
    asleep_first = np.zeros(len(op), bool)
    asleep_first[end[has] - 1] = np.isin(op[first[has], 0], _SLEEPS) & (end[has] - first[has] > 1)
    keep[never & asleep_first] = False
    for last in np.flatnonzero(never & ~asleep_first):
        mine = slice(first[has][np.flatnonzero(end[has] - 1 == last)[0]], last)
        kinds = op[mine, 0]
        if np.isin(kinds, (Op.BLOCK, Op.RECV)).any():
            keep[last] = False  # others drive it: they do so from the begin again
        elif (kinds == Op.NAP).any():
            op[last, 0], op[last, 3] = Op.NAP, np.median(op[mine, 3][kinds == Op.NAP])
        else:
            op[last, 0], op[last, 3] = Op.UNTIL, timeline.last_ts
    moved = np.append(0, np.cumsum(keep))
    return op[keep], when[keep], moved[first], moved[end]


def _workload(
    cap: Capture, timeline: Timeline, stretches: Stretches, marks: Marks, wakes: WakeCosts,
    replay: Replay, op: Array, when: Array, first: Array, end: Array, before: int, outliers: int,
    irq: int,
) -> Workload:  # fmt: skip
    raw = timeline.raw["tasks"]
    alive = np.flatnonzero((end > first) & (raw["pid"] > 0))
    index = np.full(len(raw) + 1, -1, np.int64)
    index[alive] = np.arange(len(alive))
    tasks, script = tables(len(alive), len(op))
    for column, name in enumerate(OP.names or ()):
        script[name] = op[:, column]
    named = np.isin(script["code"], (Op.WAKE, Op.FORK))
    script["task"][named] = index[script["task"][named]]
    # whoever is woken and never ran has no script: nobody notices
    gone = named & (script["task"] < 0)
    script["code"][gone], script["value"][gone] = Op.RUN, 0
    machine = topo.as_arrays(cap.topology, len(timeline.raw["cpus"]))
    prio = raw["prio"][alive]
    tasks["pid"] = raw["pid"][alive]
    tasks["prio"] = np.where(prio == -32768, 120, prio)
    tasks["weight"] = [pelt.weight_of(int(p)) for p in tasks["prio"]]
    tasks["first"], tasks["end"] = first[alive], end[alive]
    dies = script["code"][end[alive] - 1] == Op.EXIT
    tasks["loop"] = np.where(dies, -1, first[alive])
    tasks["op"] = first[alive]
    _stand(tasks, alive, timeline, stretches, script, when, machine.n_cpus)
    allowed = _allowed(tasks, alive, timeline, replay, machine.n_cpus)
    own = own_flips(timeline)
    verdicts = replay.verdicts
    if cap.start_state is None:
        tasks["flips"], verdicts = _flips(timeline, replay, own, alive)
    _memory(tasks, alive, index, cap, timeline, replay)
    tasks["vruntime"] = start_lags(
        timeline.raw["slices"], tasks["state"], np.asarray(alive), machine.n_cpus
    )
    names = [c or "" for c in timeline.tasks.column("comm").take(alive).to_pylist()]
    counts = dict(marks.counts)
    counts["lost"] = int((timeline.raw["cpus"]["events"] * 0).sum()) + int(cap.lost.events or 0)
    scale = scale_of(cap.event_cost_ns, timeline.raw["wakeups"])
    leaves = _kinds_of_leaves(stretches, scale)
    cpu_ns = int((stretches.out - stretches.start).sum())
    leaving = int((stretches.out - stretches.end).sum())
    script_ns = int(script["value"][script["code"] == Op.RUN].sum())
    accounts = {
        "cpu": cpu_ns, "script": script_ns, "outliers": outliers, "leaving": leaving,
        "interrupts": irq, "wakes": cpu_ns - leaving - before - irq,
    }  # fmt: skip
    return Workload(
        tasks=tasks,
        script=script,
        when=when,
        allowed=allowed,
        names=names,
        topology=cap.topology,
        begin_ns=timeline.first_ts,
        span_ns=timeline.last_ts - timeline.first_ts,
        counts=counts,
        accounts=accounts,
        wake_ns={
            name: (int(ns[i]), int(wakes.n[i]), bool(wakes.measured[i]))
            for ns, names in ((wakes.way + wakes.ns, _OUTCOMES), (wakes.ns, _BEHIND))
            for i, name in enumerate(names)
        },
        budgets=_budgets(timeline, replay, verdicts),
        idle_flips=idle_flips(timeline, own, machine.n_cpus),
        newidle=_newidle(leaves, stretches, timeline, scale),
        leaves={name: _leaves(took) for name, took in leaves.items()},
    )


def _flips(timeline: Timeline, replay: Replay, own: Array, alive: Array) -> tuple[Array, Verdicts]:
    """wakee_flips at the begin, and what outcomes say where these make wakeups wide."""
    flips = start_flips(timeline, replay, own)
    w = timeline.raw["wakeups"][replay.rows]
    known = (w["current"] >= 0) & (w["wakee"] >= 0)
    wide = known & told_wide(
        flips,
        np.maximum(w["current"], 0),
        np.maximum(w["wakee"], 0),
        replay.llc_weight()[w["this_cpu"]],
    )
    verdicts = replay.verdicts
    if wide.any():
        verdicts = replay.settle(Told(wide=wide), explore=False)
    return flips[alive], verdicts


def _budgets(timeline: Timeline, replay: Replay, verdicts: Verdicts) -> list[int]:
    """nr_idle_scan per LLC at the begin: the middle of what wakeups of the first 5 ms taught."""
    _, llc = replay.core_and_llc()
    asks = verdicts.asks
    early = asks["ts"] <= timeline.first_ts + _EARLY_NS
    out = []
    for row in range(int(llc.max()) + 1):
        mine = asks["nr_prev"][early & (llc[np.maximum(asks["prev_cpu"], 0)] == row)]
        mine = mine[mine >= 0]
        out.append(int(np.median(mine)) if len(mine) >= _FEW else -1)
    return out


def _kinds_of_leaves(s: Stretches, scale: float) -> dict[str, Array]:
    """Times from a dequeue to its sched_switch, by what follows; of those to idleness apart those
    that went straight there and those that looked for a task of another CPU in vain.
    """
    took, told = s.out - s.end, s.told & s.sleeps
    idle = took[told & (s.follows == 0)]
    straight = idle[idle <= _STRAIGHT * np.percentile(idle, 5)] if len(idle) else idle
    longest = np.median(straight) + _SEEK_NS * scale if len(idle) else 0
    return {
        "task": took[told & (s.follows == 1)],
        "pulled": took[told & (s.follows == 2)],
        "pulled_core": took[told & (s.follows == 3)],
        "idle": straight,
        "sought": idle[idle > longest],
        "all_idle": idle,
    }


def _newidle(
    leaves: dict[str, Array], s: Stretches, timeline: Timeline, scale: float
) -> tuple[int, int, int]:
    """See ``Workload.newidle``."""
    if not len(leaves["idle"]):
        return -1, -1, -1
    straight = float(np.median(leaves["idle"]))
    tried = NEWIDLE_NS * scale / 2
    if len(leaves["task"]) and straight > np.median(leaves["task"]) + tried:
        straight -= 2 * tried  # even the shortest have tried
    found = measure_newidle(s, timeline, straight + tried, scale)
    return found.gate, found.near, found.average


def _leaves(took: Array) -> tuple[list[int], int]:
    """Quantiles of the time from a dequeue to its sched_switch, and of how many."""
    if not len(took):
        return [0] * QUANTILES, 0
    ends = np.linspace(1, 97, QUANTILES)
    return np.percentile(took, ends, method="lower").astype(int).tolist(), len(took)


def _stand(
    tasks: Array, alive: Array, timeline: Timeline, s: Stretches, script: Array, when: Array,
    n_cpus: int,
) -> None:  # fmt: skip
    """How each task stood at the begin, and where."""
    w = timeline.raw["wakeups"]
    n = len(timeline.raw["tasks"])
    begin = timeline.first_ts
    start, cpu, cut = np.full(n, _FAR), np.full(n, -1), np.zeros(n, bool)
    # stretches stand in the order of task and time
    head = np.append(True, s.task[1:] != s.task[:-1])[: len(s.task)]
    start[s.task[head]], cpu[s.task[head]] = s.start[head], s.cpu[head]
    cut[s.task[head]] = s.cut_in[head] & (s.start[head] <= begin)
    born = np.full(n, _FAR)
    forks = (w["kind"] == schema.WakeKind.FORK) & (w["wakee"] >= 0) & (w["wakeup"] != NULL)
    np.minimum.at(born, w["wakee"][forks], w["wakeup"][forks])
    # a wakeup whose waking lies before the window: it was half woken when the window began
    half = (w["wakee"] >= 0) & (w["waking"] == NULL) & (w["wakeup"] != NULL)
    half &= w["kind"] != schema.WakeKind.FORK
    woken = np.full(n, _FAR)
    np.minimum.at(woken, w["wakee"][half], w["wakeup"][half])
    code = script["code"][tasks["first"]]
    sleeps = np.isin(code, _SLEEPS) & (when[tasks["first"], 0] < begin)
    state = np.where(sleeps, Start.ASLEEP, Start.QUEUED)
    state = np.where(~sleeps & (woken[alive] <= start[alive]) & (woken[alive] < _FAR),
                     Start.WAKING, state)  # fmt: skip
    state = np.where(cut[alive], Start.RUNNING, state)
    state = np.where(born[alive] <= start[alive], np.where(born[alive] < _FAR, Start.UNBORN, state),
                     state)  # fmt: skip
    where = np.clip(cpu[alive], -1, n_cpus - 1)
    first_wake = np.full(n, -1)
    rows = np.flatnonzero((w["wakee"] >= 0) & (w["prev_cpu"] >= 0))[::-1]
    first_wake[w["wakee"][rows]] = w["prev_cpu"][rows]
    slept_on = first_wake[alive]
    where = np.where((state == Start.ASLEEP) & (slept_on >= 0) & (slept_on < n_cpus), slept_on,
                     where)  # fmt: skip
    tasks["state"], tasks["cpu"] = state, np.maximum(where, 0)
    # No CPU runs two.
    running = np.flatnonzero(tasks["state"] == Start.RUNNING)
    _, unique = np.unique(tasks["cpu"][running], return_index=True)
    second = np.setdiff1d(np.arange(len(running)), unique)
    tasks["state"][running[second]] = Start.QUEUED


def _allowed(tasks: Array, alive: Array, timeline: Timeline, replay: Replay, n_cpus: int) -> Array:
    """Sets of CPUs: per-CPU kernel threads by name, and who seems to be pinned (section 7.4)."""
    raw = timeline.raw
    w = raw["wakeups"]
    pin = np.full(len(raw["tasks"]), -1)
    rows = np.flatnonzero((w["kind"] == schema.WakeKind.PINNED) & (w["placed"] >= 0))
    pin[w["wakee"][rows]] = w["placed"][rows]
    mine = replay.rows[replay.pinned]
    pin[w["wakee"][mine]] = replay.recorded_cpu[replay.pinned]
    here = pin[alive]
    here = np.where(here < n_cpus, here, -1)
    cpus, which = np.unique(here[here >= 0], return_inverse=True)
    sets = np.zeros((len(cpus), n_cpus), np.uint8)
    sets[np.arange(len(cpus)), cpus] = 1
    tasks["allowed"][here >= 0] = which
    return sets


def _memory(
    tasks: Array, alive: Array, index: Array, cap: Capture, timeline: Timeline, replay: Replay
) -> None:
    """What the kernel remembered of each task at the begin: averages, flips, recent CPU.

    From the start state where there is one; else dur_avg is the last value that the capture shows
    (the average of 8 sleeps: the begin's value is forgotten soon), and flips are as inferred.
    """
    raw = timeline.raw["tasks"]
    dur = timeline.tasks.column("dur_avg_ns").to_pandas().fillna(0).to_numpy(np.int64)
    tasks["dur_avg"] = dur[alive]
    tasks["flips_ts"] = timeline.first_ts
    span = max(timeline.last_ts - timeline.first_ts, 1)
    # Load tracking counts run time as sched_stat_runtime tells it: from the enqueue on an idle CPU.
    busy = np.maximum(raw["rt"], raw["rt_sw"])[alive]
    tasks["util"] = np.clip(busy * 1024 // span, 0, 1024)
    asks = replay.verdicts.asks
    wakee = timeline.raw["wakeups"]["wakee"][replay.rows]
    recent = np.full(len(raw), -1)
    recent[wakee[::-1]] = asks["recent"][::-1]
    tasks["recent"] = recent[alive]
    start = cap.start_state
    if start is None:
        return
    row_of = {int(p): i for i, p in enumerate(tasks["pid"])}
    jiffy = 1_000_000_000 // timeline.hz
    at = start.at_ts if start.at_ts is not None else timeline.first_ts
    for seed in start.tasks:
        i = row_of.get(seed.pid)
        if i is None or raw["gen"][alive[i]] != 0:
            continue
        if seed.dur_avg_ns is not None:
            tasks["dur_avg"][i] = seed.dur_avg_ns
        if seed.util_avg is not None:
            tasks["util"][i] = min(seed.util_avg, 1024)
        if seed.wakee_flips is not None:
            tasks["flips"][i] = seed.wakee_flips
        if seed.wakee_flip_decay_ts is not None and start.jiffies_now is not None:
            tasks["flips_ts"][i] = at + (seed.wakee_flip_decay_ts - start.jiffies_now) * jiffy
        if seed.last_wakee is not None:
            tasks["last_wakee"][i] = row_of.get(seed.last_wakee, -1)
