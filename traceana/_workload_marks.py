"""What each task of a capture did, as marks in the order of task and time.

A mark is a switch-in, the end of a stretch on a CPU, a wakeup that the task did, a token that came
while it ran. From the marks ``_workload_kernels.write_scripts`` makes the scripts. Which sleep was
ended by which waking is decided here (section 1.5 of the semantics gives the kinds of wakeup).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import _workload_kernels as k
from traceana import schema
from traceana._sim_state import Op
from traceana.columns import NULL_CTX

if TYPE_CHECKING:
    from traceana.columns import EventColumns
    from traceana.timeline import Timeline

__all__ = ["TIMER_NS", "Mark", "Marks", "Outcome", "Stretches", "make_marks", "make_stretches"]

NULL = -(2**63)
Array = npt.NDArray[Any]
_KIND = schema.WakeKind
#: A timer's instant to the sched_waking of its interrupt, ns where recording takes 0.82 us.
TIMER_NS = 900
#: Wakeups that ended no sleep.
_NO_SLEEP = (_KIND.SELF, _KIND.ON_RQ)
_INTERRUPT = int(schema.Ctx.HARDIRQ | schema.Ctx.SOFTIRQ | schema.Ctx.NMI)
_SLEEPS = (schema.EndReason.SLEEP, schema.EndReason.BLOCK)
#: A sleep's length that varies so much less than the time between two wakings says that it is a
#: delay; the other way round, that the wakings come by a clock of their own.
_STEADIER = 2


class Mark:
    """Columns of a mark, and the values of ``WHAT``; of those at one instant the lower is first.

    ``SLEEP`` is the Op of an OUT that blocks (-1: still runnable), of a WAKE (-1: Op.WAKE), of a
    TAKE (-1: Op.BLOCK); of these two -2: none. ``ROW``: the wakeup, of a sleep the one that ended
    it.
    """

    TASK, TS, WHAT, OTHER, VALUE, FLAGS, SLEEP, ROW = range(8)

    # An IRQ stands at the begin of what an interrupt takes; VALUE is its length, without what the
    # wakeup ROW costs from its sched_waking on.
    WAKE, TAKE, FORK, IRQ, OUT, IN = range(6)


class Outcome:
    """How a wakeup went, as far as its waker's cost depends on it; MIGRATE is added to one."""

    REMOTE, DIRECT, NONE = 0, 1, 2
    MIGRATE = 3
    N = 6


@dataclass(frozen=True)
class Stretches:
    """Stretches on CPUs in the order of task and time, int64 arrays.

    ``start`` and ``out`` (the switch) are the window's begin and end where they lie outside it;
    ``end`` is when the task was taken off the queue, ``sleeps`` whether it blocked, ``cut_in`` and
    ``cut_out`` whether that end of the stretch was not seen, ``cpu`` where it was. ``told``:
    ``end`` comes from a sched_stat_runtime.
    ``follows``: 0 the CPU goes idle, 1 another task, 2 one that was pulled, 3 from the own core.
    """

    task: Array
    cpu: Array
    start: Array
    end: Array
    out: Array
    sleeps: Array
    dead: Array
    cut_in: Array
    cut_out: Array
    told: Array
    follows: Array


@dataclass(frozen=True)
class Marks:
    """``table`` int64[n, 8] (columns of Mark), ``outcome`` int64[n] of its wakes and of those by
    interrupts (-1 none), and what was found: counts of recorded wakeups by what became of them.
    """

    table: Array
    outcome: Array
    counts: dict[str, int]


def make_stretches(timeline: Timeline, events: EventColumns, leave_ns: int) -> Stretches:
    """The stretches on CPUs, ended by the dequeue.

    ``leave_ns``: from a dequeue to its sched_switch where no sched_stat_runtime tells.
    """
    raw = timeline.raw
    s = raw["slices"]
    s = s[s["task"] >= 0]
    first, last = timeline.first_ts, timeline.last_ts
    lost_start = s["start"] == NULL
    # Until an end that was seen is known, one without a beginning stands where it ended.
    key = np.where(lost_start, np.where(s["end"] == NULL, first, s["end"] - 1), s["start"])
    order = np.lexsort((key, s["task"]))
    s, lost_start = s[order], lost_start[order]
    start = np.where(lost_start, _earliest(timeline, s), s["start"])
    cut_out = s["end"] == NULL
    # A stretch whose end was lost cannot go on behind the task's next one.
    following = np.append(start[1:], last)
    same = np.append(s["task"][1:] == s["task"][:-1], False)
    out = np.where(cut_out, np.where(same, np.minimum(following, last), last), s["end"])
    end, told, follows = _dequeues(
        timeline, events, s["cpu"].astype(np.int64), out, cut_out, leave_ns
    )
    end = np.maximum(np.minimum(end, out), start)
    return Stretches(
        task=s["task"].astype(np.int64),
        cpu=s["cpu"].astype(np.int64),
        start=start,
        end=end,
        out=out,
        sleeps=np.isin(s["reason"], _SLEEPS),
        dead=s["reason"] == schema.EndReason.DEAD,
        cut_in=s["start"] == NULL,
        cut_out=cut_out,
        told=told,
        follows=follows,
    )


def _earliest(timeline: Timeline, s: Array) -> Array:
    """Since when each stretch may have lasted whose beginning is not known (int64[n]).

    Not before its CPU's data begin, not before what was seen on that CPU before it, and not before
    the task's stretch before it was over.
    """
    begin = timeline.raw["cpus"]["begin"]
    begin = np.where(begin == NULL, timeline.first_ts, np.maximum(begin, timeline.first_ts))
    out = np.where(s["cpu"] >= 0, begin[np.maximum(s["cpu"], 0)], timeline.first_ts)
    gaps = timeline.raw["gaps"]
    gaps = gaps[(gaps["end"] != NULL) & (gaps["cpu"] >= 0)]
    ended = s[(s["end"] != NULL) & (s["cpu"] >= 0)]
    cpu = np.append(ended["cpu"], gaps["cpu"]).astype(np.int64)
    end = np.append(ended["end"], gaps["end"])
    rows = np.flatnonzero((s["start"] == NULL) & (s["cpu"] >= 0))
    if len(rows) and len(end):
        span = int(end.max()) - timeline.first_ts + 2
        keys = np.sort(cpu * span + (end - timeline.first_ts))
        mine = np.where(s["end"][rows] == NULL, timeline.first_ts, s["end"][rows])
        own = s["cpu"][rows].astype(np.int64)
        at = np.searchsorted(keys, own * span + (mine - timeline.first_ts)) - 1
        before = keys[np.maximum(at, 0)]
        known = (at >= 0) & (before // span == own)
        out[rows] = np.maximum(
            out[rows], np.where(known, before % span + timeline.first_ts, timeline.first_ts)
        )
    previous = np.append(NULL, s["end"][:-1])
    same = np.append(False, s["task"][1:] == s["task"][:-1])
    return np.where(same, np.maximum(out, previous), out)


def _dequeues(
    timeline: Timeline, events: EventColumns, cpu: Array, out: Array, cut: Array, leave_ns: int
) -> tuple[Array, Array, Array]:
    n_cpus = len(timeline.raw["cpus"])
    state = np.zeros((n_cpus, 4), np.int64)
    state[:, 0] = state[:, 3] = NULL
    state[:, 2] = -1
    room = int((events.kind == schema.EventKind.SWITCH).sum())
    rows = np.zeros((room, 5), np.int64)
    columns = (
        events.ts, events.cpu, events.kind, events.pid, events.ctx, events.subject, events.other,
    )  # fmt: skip
    found: Any = k.dequeues
    rows = rows[: found(*(np.require(a, requirements=["C", "W"]) for a in columns), state, rows)]
    default = out - leave_ns
    if not len(rows) or not len(out):
        none = np.zeros(len(out), np.int64)
        return np.where(cut, out, default), none != 0, none + 1
    base = timeline.first_ts
    span = max(int(rows[:, 1].max()), int(out.max())) - base + 2
    key = rows[:, 0] * span + (rows[:, 1] - base)
    at = np.argsort(key, kind="stable")
    mine = cpu * span + (out - base)
    i = np.minimum(np.searchsorted(key[at], mine), len(at) - 1)
    row = rows[at[i]]
    hit = (key[at[i]] == mine) & ~cut
    told = hit & (row[:, 2] != NULL)
    floor = np.where(hit & (row[:, 3] != NULL), row[:, 3], NULL)
    end = np.where(told, row[:, 2], np.where(cut, out, np.maximum(default, floor)))
    return end, told, np.where(hit, row[:, 4], 1)


def make_marks(
    timeline: Timeline, events: EventColumns, stretches: Stretches, sync: Array,
    irq_ns: tuple[int, int], timer_ns: int,
) -> Marks:  # fmt: skip
    """The marks of all tasks.

    Parameters
    ----------
    sync : uint8 per wakeup row, WF_SYNC
    irq_ns : how long before and behind one record of an interrupt it lasts at least
    timer_ns : from a timer's instant to the sched_waking of its interrupt
    """
    w = timeline.raw["wakeups"]
    parts: list[Array] = []
    first = timeline.first_ts
    n = len(stretches.task)
    ended = _ended_by(w, stretches)
    counts: dict[str, int] = {}

    # the wakings, each in its waker's script
    context = _context(w, timeline)
    in_task = (context == schema.WakeContext.TASK) & (w["current"] >= 0) & (w["waking"] != NULL)
    in_task &= w["wakee"] >= 0
    ends = np.zeros(len(w), bool)
    ends[ended[ended >= 0]] = True
    asleep = _asleep_at_begin(w, stretches)
    ends[asleep] = True
    on_rq = (w["kind"] == _KIND.ON_RQ) & (w["wakeup"] != NULL) & (w["waking"] != NULL)
    fork = (w["kind"] == _KIND.FORK) & (w["current"] >= 0) & (w["wakee"] >= 0)
    edge = in_task & (ends | on_rq) & (w["kind"] != _KIND.SELF) & ~fork
    idle = _idle_tasks(timeline)
    edge &= ~idle[w["current"]] & ~idle[w["wakee"]] & (w["current"] != w["wakee"])
    rows = np.flatnonzero(edge)
    parts.append(_marks(w["current"][rows], w["waking"][rows], Mark.WAKE, other=w["wakee"][rows],
                        flags=np.where(sync[rows] == 1, Op.SYNC, 0), row=rows))  # fmt: skip
    taken = np.flatnonzero(edge & on_rq)
    parts.append(_marks(w["wakee"][taken], w["wakeup"][taken], Mark.TAKE, row=taken))
    forks = np.flatnonzero(fork & ~idle[w["current"]])
    parts.append(_marks(w["current"][forks], w["wakeup"][forks], Mark.FORK,
                        other=w["wakee"][forks], row=forks))  # fmt: skip

    # the ends of stretches, and how each sleep is ended
    sleep = np.full(n, -1, np.int64)
    value = np.zeros(n, np.int64)
    other = np.full(n, -1, np.int64)
    row = np.maximum(ended, 0)
    known = stretches.sleeps & (ended >= 0)
    by_edge = known & edge[row]
    sleep[by_edge] = Op.BLOCK
    by_other = known & ~by_edge
    waking = np.where(w["waking"] != NULL, w["waking"], w["wakeup"])
    timed = _is_delay(stretches, ended, by_other, waking)
    sleep[timed] = Op.NAP
    value[timed] = np.maximum(waking[row[timed]] - stretches.end[timed] - timer_ns, 0)
    arrival = by_other & ~timed
    sleep[arrival] = Op.UNTIL
    value[arrival] = waking[row[arrival]] - timer_ns
    # A timer fires where the task last ran; what comes elsewhere, comes from a device or a helper.
    foreign = arrival & (w["this_cpu"][row] != stretches.cpu)
    other[foreign] = w["this_cpu"][row[foreign]]
    lost = stretches.sleeps & (ended < 0)
    goes_on = lost & np.append(stretches.task[1:] == stretches.task[:-1], False)
    sleep[goes_on] = Op.UNTIL
    value[goes_on] = np.append(stretches.start[1:], 0)[goes_on]
    sleep[lost & ~goes_on] = Op.BLOCK  # it sleeps to the window's end: nobody wakes it
    never = lost & ~goes_on
    sleep[stretches.dead] = Op.EXIT
    parts.append(_marks(stretches.task, stretches.end, Mark.OUT, other=other, value=value,
                        sleep=sleep, row=np.where(stretches.sleeps, ended, -1)))  # fmt: skip
    # Who goes to sleep at the instant at which it came has not run: its OUT stands alone, for an
    # IN at the same instant would come behind it, and the sleep would count as run time.
    ran = stretches.end > stretches.start
    parts.append(_marks(stretches.task[ran], stretches.start[ran], Mark.IN))
    parts.append(_records_of_interrupts(events, stretches, irq_ns))
    by_irq = (context != schema.WakeContext.TASK) & (w["current"] >= 0) & (w["waking"] != NULL)
    by_irq &= ~fork & ~idle[w["current"]]
    parts.append(_wakeups_of_interrupts(w, np.flatnonzero(by_irq), stretches, timer_ns))

    # its waking lies before the window
    half = (w["waking"] == NULL) & (w["wakeup"] != NULL) & ~fork
    # who slept at the begin
    early = edge[asleep]
    parts.append(_marks(w["wakee"][asleep], np.full(len(asleep), first - 1), Mark.OUT,
                        value=np.where(early, 0, waking[asleep] - timer_ns),
                        sleep=np.where(early, Op.BLOCK, Op.UNTIL), row=asleep))  # fmt: skip

    table = np.concatenate(parts)
    order = np.lexsort((table[:, Mark.WHAT], table[:, Mark.TS], table[:, Mark.TASK]))
    table = np.ascontiguousarray(table[order])
    outcome = np.full(len(table), -1, np.int64)
    wakes = np.isin(table[:, Mark.WHAT], (Mark.WAKE, Mark.IRQ)) & (table[:, Mark.ROW] >= 0)
    outcome[wakes] = outcomes(w[table[wakes, Mark.ROW]])

    explained = edge | (w["kind"] == _KIND.SELF) | fork
    explained[ended[ended >= 0]] = True
    explained[asleep] = True
    idle_call = ~in_task & on_rq
    counts["wakeups"] = int(((w["waking"] != NULL) | (w["wakeup"] != NULL)).sum()) - int(fork.sum())
    counts["edges"] = int((edge & ends).sum())
    counts["early"] = int((edge & ~ends).sum())
    counts["self"] = int((w["kind"] == _KIND.SELF).sum())
    counts["delays"] = int(timed.sum())
    counts["arrivals"] = int(arrival.sum()) + int((~early).sum())
    counts["without_sleep"] = int((idle_call & ~explained).sum())
    counts["unexplained"] = int((~explained & ~idle_call & (w["waking"] != NULL)).sum())
    counts["unexplained"] += int((~explained & (w["waking"] == NULL) & ~half).sum())
    counts["half_woken"] = int((half & ~explained).sum())
    counts["lost_sleeps"] = int(goes_on.sum())
    counts["never_woken"] = int(never.sum())
    counts["forks"] = len(forks)
    return Marks(table, outcome, counts)


def _records_of_interrupts(events: EventColumns, s: Stretches, irq_ns: tuple[int, int]) -> Array:
    """IRQ marks where a record of an interrupt lies within a stretch."""
    told = (events.ctx != NULL_CTX) & (events.ctx & _INTERRUPT != 0)
    told &= (events.kind != schema.EventKind.SWITCH) & (events.cpu >= 0)
    at = _within(s.cpu, s, events.cpu[told].astype(np.int64), events.ts[told])
    ts, at = events.ts[told][at >= 0], at[at >= 0]
    begin = np.maximum(ts - irq_ns[0], s.start[at])
    return _marks(s.task[at], begin, Mark.IRQ, value=ts + irq_ns[1] - begin)


def _wakeups_of_interrupts(w: Array, rows: Array, s: Stretches, timer_ns: int) -> Array:
    """IRQ marks of the wakeups that an interrupt of a task did."""
    at = _within(s.task, s, w["current"][rows].astype(np.int64), w["waking"][rows])
    rows, at = rows[at >= 0], at[at >= 0]
    waking = w["waking"][rows]
    begin = np.maximum(waking - timer_ns, s.start[at])
    return _marks(s.task[at], begin, Mark.IRQ, value=waking - begin, row=rows)


def _within(whose: Array, s: Stretches, who: Array, ts: Array) -> Array:
    """The stretch in which each instant lies: of the stretches' column ``whose`` the same as
    ``who``; -1 none (int64[n]).
    """
    if not len(s.start) or not len(ts):
        return np.full(len(ts), -1, np.int64)
    order = np.lexsort((s.start, whose))
    base = int(min(s.start.min(), ts.min()))
    span = int(max(s.out.max(), ts.max())) - base + 1
    key = whose[order] * span + (s.start[order] - base)
    at = order[np.maximum(np.searchsorted(key, who * span + (ts - base), "right") - 1, 0)]
    hit = (whose[at] == who) & (s.start[at] <= ts) & (ts < s.end[at])
    return np.where(hit, at, -1)


def outcomes(w: Array) -> Array:
    """Outcome of each wakeup (int64[n])."""
    direct = w["queueing"] == schema.Queueing.DIRECT
    out = np.where(direct, Outcome.DIRECT, Outcome.REMOTE)
    none = (w["kind"] == _KIND.ON_RQ) | (w["kind"] == _KIND.SELF)
    moved = (w["mig"] != NULL) & ~none
    out = np.where(none, Outcome.NONE, out)
    made: Array = (out + np.where(moved, Outcome.MIGRATE, 0)).astype(np.int64)
    return made


def _marks(task: Array, ts: Array, what: int, **columns: Array) -> Array:
    out = np.zeros((len(task), 8), np.int64)
    out[:, Mark.OTHER] = out[:, Mark.SLEEP] = out[:, Mark.ROW] = -1
    out[:, Mark.TASK], out[:, Mark.TS], out[:, Mark.WHAT] = task, ts, what
    for name, values in columns.items():
        out[:, getattr(Mark, name.upper())] = values
    return out


def _idle_tasks(timeline: Timeline) -> Array:
    idle: Array = timeline.raw["tasks"]["pid"] <= 0
    return idle


def _context(w: Array, timeline: Timeline) -> Array:
    """schema.WakeContext; where the form does not tell it, a task's unless the CPU was idle."""
    context = w["context"].astype(np.int64)
    untold = context == schema.WakeContext.UNKNOWN
    if untold.any():
        idle = _idle_tasks(timeline)
        nobody = (w["current"] < 0) | idle[np.maximum(w["current"], 0)]
        guess = np.where(nobody, schema.WakeContext.HARDIRQ, schema.WakeContext.TASK)
        context = np.where(untold, guess, context)
    # The idle task in its own context only flushes its wakelist; a waking there is a poll's.
    return context


def _ended_by(w: Array, s: Stretches) -> Array:
    """For each stretch that blocks: the wakeup that ended the sleep behind it, -1 none (int64[n]).

    It is the one after which the task ran next. A waking may come before the switch-out: it
    belongs to the sleep that follows. Of several the first that found the task asleep counts.
    """
    out = np.full(len(s.task), -1, np.int64)
    good = (w["wakee"] >= 0) & ~np.isin(w["kind"], _NO_SLEEP) & (w["kind"] != _KIND.FORK)
    instant = np.where(w["waking"] != NULL, w["waking"], w["wakeup"])
    rows = np.flatnonzero(good & (instant != NULL))
    if not len(rows) or not len(out):
        return out
    ran = np.where(w["run"] != NULL, w["run"], 2**62)
    # backwards in time, so that of several the first is written last
    rows = rows[np.argsort(instant[rows], kind="stable")[::-1]]
    following = np.append(s.start[1:], 2**62)
    following[np.append(s.task[1:] != s.task[:-1], True)] = 2**62
    base = int(min(s.start.min(), instant[rows].min()))
    span = int(max(s.out.max(), instant[rows].max())) - base + 4
    run = np.where(ran == 2**62, span - 1, np.minimum(ran - base, span - 2))
    next_run = np.where(following == 2**62, span - 1, np.minimum(following - base, span - 2))
    keys = s.task * span + next_run
    order = np.argsort(keys, kind="stable")
    mine = w["wakee"][rows].astype(np.int64) * span + run[rows]
    # Of the stretches with the same key (the last of a task), the last one.
    i = np.searchsorted(keys[order], mine, "right") - 1
    at = order[np.maximum(i, 0)]
    hit = (i >= 0) & (keys[at] == mine) & s.sleeps[at]
    out[at[hit]] = rows[hit]
    return out


def _asleep_at_begin(w: Array, s: Stretches) -> Array:
    """The wakeup that ended the sleep of each task that slept when the window began."""
    good = (w["wakee"] >= 0) & ~np.isin(w["kind"], _NO_SLEEP) & (w["waking"] != NULL)
    good &= w["kind"] != _KIND.FORK
    rows = np.flatnonzero(good)
    if not len(rows):
        return rows
    rows = rows[np.lexsort((w["waking"][rows], w["wakee"][rows]))]
    rows = rows[np.append(True, w["wakee"][rows][1:] != w["wakee"][rows][:-1])]
    n = int(max(s.task.max(initial=-1), w["wakee"].max(initial=-1))) + 1
    begun = np.full(n, 2**62)
    np.minimum.at(begun, s.task, s.start)
    born = np.full(n, 2**62)
    forks = (w["kind"] == _KIND.FORK) & (w["wakee"] >= 0)
    np.minimum.at(born, w["wakee"][forks], w["wakeup"][forks])
    task = w["wakee"][rows]
    first: Array = rows[(w["waking"][rows] < begun[task]) & (born[task] == 2**62)]
    return first


def _is_delay(s: Stretches, ended: Array, by_other: Array, waking: Array) -> Array:
    """Which sleeps that no task ended are delays, by task: bool[n].

    A delay is set when the task blocks: its length is what repeats. The wakings of a periodic timer
    or of a device come at instants of their own: what repeats, if anything, is the time between
    them. Where neither is clearly steadier it is a delay, as a program's think time is.
    """
    out = by_other.copy()
    at = np.flatnonzero(by_other)
    if not len(at):
        return out
    when = waking[ended[at]]
    length = when - s.end[at]
    task = s.task[at]
    for t in np.unique(task):
        mine = task == t
        if mine.sum() < 4:
            continue
        spread = np.subtract(*np.percentile(length[mine], [75, 25]))
        between = np.subtract(*np.percentile(np.diff(np.sort(when[mine])), [75, 25]))
        if _STEADIER * between < spread:
            out[at[mine]] = False
    return out
