"""Messages between tasks that work on while they have some: many writers, many readers.

A pipe, socket or queue between two groups of tasks, as in hackbench: a reader sleeps only when
there is no message, a writer only when there is no room. Whoever writes to a reader that is awake
wakes nobody, so that most messages leave no event. What the events do tell:

* **Which tasks**: they wake each other across two groups, many of one group each of the other, and
  hardly any within a group.
* **How many messages**: one to a reader is seen if, and only if, the reader sleeps. While it does,
  each wakeup is one message, and the writers use so much CPU time: that is what is left of the gap
  between two messages. The other group's sleeps tell the same of the answers; that of which more
  sleeps tell is taken.
* **How much room**: what is under way of a writer when it sleeps; at least what circulates
  between two stations each of which serves so many messages from one sleep to the next.

So a writer's script becomes BLOCK (room for one more), RUN, SEND; a reader's RECV, RUN, REPLY,
which gives the room back to whoever sent it. Each takes as often as it is sent to; a writer that is
woken for each message that is answered takes room for several before it sends. Recorded are the
sleeps, the wakeups and the CPU time; inferred is how it is cut into messages, which
``_closed_loop_fit`` tries on the model. Which of the two groups writes hardly matters for a circle:
it is the one of which more is under way when it sleeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana import _workload_kernels as k
from traceana._sim_state import Op
from traceana._workload_marks import Mark, Marks

__all__ = ["Channels", "add_channels", "ended_by"]

NULL = -(2**63)
Array = npt.NDArray[Any]
#: Both groups have so many tasks at least; with fewer it is a pair, a server or a hub.
_SIDE = 2
#: Of the pairs across the groups this share wake each other one way at least, …
_DENSE = 0.5
#: … and of all wakeups among the tasks, this share goes from one group to the other.
_ACROSS = 0.9
#: Of a task's sleeps, this share is ended by the other group.
_ALONE = 0.8
#: Messages for each that was seen, below which requests and answers tell the rest.
_HIDDEN = 1.5
#: Fewer sleeps of a group tell no rate.
_FEW = 50


@dataclass(frozen=True)
class Traffic:
    """Two groups that exchange messages.

    ``sides``: the tasks of both (pids, or rows of a table of tasks); ``slept``: sleeps of each that
    the other ended; ``messages``: how many these sleeps tell, before ``scale``; ``room`` of a
    writer.
    """

    sides: tuple[frozenset[int], frozenset[int]]
    slept: tuple[int, int]
    messages: float
    room: float
    scale: float = 1.0

    def named(self, names: Mapping[int, int]) -> Traffic | None:
        """The same with other numbers of its tasks; None if one has none."""
        if not all(task in names for side in self.sides for task in side):
            return None
        a, b = (frozenset(names[task] for task in side) for side in self.sides)
        return replace(self, sides=(a, b))


@dataclass(frozen=True)
class Channels:
    """What was found: the tasks, per task the messages that a writer may have under way (0 of all
    others), how many mailboxes are taken, counts, and each pair of groups.
    """

    members: Array
    room: Array
    boxes: int
    counts: dict[str, int]
    traffic: list[Traffic]


def ended_by(t: Array, waker: Array) -> Array:
    """The task that ended the sleep that a mark stands for; -1 where no task did (int64[n])."""
    out = np.full(len(t), -1, np.int64)
    sleep = (t[:, Mark.WHAT] == Mark.OUT) & (t[:, Mark.SLEEP] == Op.BLOCK) & (t[:, Mark.ROW] >= 0)
    out[sleep] = waker[t[sleep, Mark.ROW]]
    return out


class _Clock:
    """CPU time of a task as a function of time, and back."""

    def __init__(self, came: Array, left: Array) -> None:
        ran = np.cumsum(left - came)
        self.ts = np.stack([came, left], axis=1).ravel().astype(float)
        self.cpu = np.stack([ran - (left - came), ran], axis=1).ravel().astype(float)
        self.total = int(ran[-1]) if len(ran) else 0

    def at(self, ts: Array) -> Array:
        """CPU time used at instants (float[n])."""
        return np.interp(ts, self.ts, self.cpu) if len(self.ts) else np.zeros(len(ts))

    def when(self, cpu: Array) -> Array:
        """The instants at which so much had been used (int64[n])."""
        i = np.clip(np.searchsorted(self.cpu[1::2], cpu, "left"), 0, len(self.cpu) // 2 - 1)
        out: Array = (self.ts[2 * i] + np.maximum(cpu - self.cpu[2 * i], 0)).astype(np.int64)
        return out


def _clocks(t: Array, costs: Array, tasks: Array) -> dict[int, _Clock]:
    """Of tasks, the CPU time of their own: less what their wakeups took."""
    out = {}
    kinds = (Mark.IN, Mark.OUT, Mark.WAKE)
    for task in tasks.tolist():
        low, high = np.searchsorted(t[:, Mark.TASK], [task, task + 1])
        rows = low + np.flatnonzero(np.isin(t[low:high, Mark.WHAT], kinds))
        here, following = rows[:-1], rows[1:]
        runs = t[here, Mark.WHAT] != Mark.OUT
        here, following = here[runs], following[runs]
        spent = np.where(t[here, Mark.WHAT] == Mark.WAKE, costs[here], 0)
        left = t[following, Mark.TS]
        out[task] = _Clock(np.minimum(t[here, Mark.TS] + spent, left), left)
    return out


def _groups(t: Array, by: Array) -> list[tuple[Array, Array]]:
    """Pairs of groups of tasks that wake each other across, many to many."""
    asleep = np.flatnonzero(by >= 0)
    if len(asleep) < _FEW:
        return []
    edges, often = np.unique(
        np.stack([by[asleep], t[asleep, Mark.TASK]]), axis=1, return_counts=True
    )
    n = int(edges.max()) + 1
    blocks = (t[:, Mark.WHAT] == Mark.OUT) & (t[:, Mark.SLEEP] >= 0) & (t[:, Mark.ROW] >= 0)
    slept = np.bincount(t[blocks, Mark.TASK], minlength=n)[:n]
    # The strongest first, each task comes to the other side of whom it deals with.
    parent, side = np.arange(n), np.zeros(n, np.int64)

    def root(a: int) -> tuple[int, int]:
        turned = 0
        while parent[a] != a:
            turned ^= int(side[a])
            a = int(parent[a])
        return a, turned

    for i in np.argsort(-often, kind="stable").tolist():
        (a, left), (b, right) = root(int(edges[0, i])), root(int(edges[1, i]))
        if a != b:
            parent[b], side[b] = a, left ^ right ^ 1
    found = [root(a) for a in range(n)]
    whole = np.array([r for r, _ in found])
    colour = np.array([s for _, s in found])
    out = []
    for r in np.unique(whole[edges[1]]).tolist():
        mine = whole[edges[1]] == r
        across = colour[edges[0]] != colour[edges[1]]
        tasks = np.flatnonzero(whole == r)
        ended = np.bincount(edges[1][mine & across], weights=often[mine & across], minlength=n)
        tasks = tasks[ended[tasks] >= _ALONE * slept[tasks]]
        sides = [tasks[colour[tasks] == s] for s in (0, 1)]
        if min(len(s) for s in sides) < _SIDE:
            continue
        inside = mine & np.isin(edges[0], tasks) & np.isin(edges[1], tasks)
        if often[inside & across].sum() < _ACROSS * often[mine].sum():
            continue
        a, b = np.sort(edges[:, inside & across], axis=0)
        if len(np.unique(a * n + b)) >= _DENSE * len(sides[0]) * len(sides[1]):
            out.append((sides[0], sides[1]))
    return out


def _messages(
    t: Array, by: Array, awake: Array, writers: Array, readers: Array, clocks: dict[int, _Clock]
) -> tuple[int, float]:
    """How many sleeps of a group another one ended, and how many messages it sent, seen or not.

    ``awake`` int64 per mark: the instant at which the sleep that it stands for was ended.
    """
    mine = np.flatnonzero(np.isin(t[:, Mark.TASK], readers) & np.isin(by, writers))
    begin, end = t[mine, Mark.TS], np.maximum(awake[mine], t[mine, Mark.TS])
    wrote = np.zeros(len(mine))
    for w in writers.tolist():
        wrote += clocks[w].at(end) - clocks[w].at(begin)
    whole = sum(clocks[w].total for w in writers.tolist())
    if len(mine) < _FEW or float(wrote.sum()) <= 0:
        return len(mine), float(len(mine))
    # Seen is what is left of a gap between messages; in the mean that is half a gap where they
    # come evenly, a whole one where they come at random instants. How much it varies tells: of
    # gaps of Erlang's form k the rest has 1 + cv^2 = 4 (k + 2) / (3 (k + 1)).
    y = min(max(float((wrote**2).mean() / wrote.mean() ** 2), 4 / 3 + 1e-3), 2.0)
    k = (8 - 3 * y) / (3 * y - 4)
    gap = float(wrote.mean()) * 2 * k / (k + 1)
    # Of the messages to one reader; there are as many to each of the others.
    return len(mine), max(len(readers) * whole / gap, float(len(mine)))


def _circulating(a: float, b: float) -> float:
    """How many messages circulate between two stations that serve so many between two breaks.

    Of two stations in a circle, the second x times as fast as the first, with n messages: the first
    has none left after (x^n - 1) / (x - 1) of them in the mean, the second after
    x (1 - x^-n) / (x - 1) (both M/M/1; a random walk between 0 and n). So x^(n - 1) is a / b.
    """
    if min(a, b) <= 1:
        return 1.0
    x = (a - 1) * b / (a * (b - 1))
    return max(a, b) if abs(x - 1) < 1e-3 else float(np.log(a * (x - 1) + 1) / np.log(x))


def add_channels(
    marks: Marks,
    costs: Array,
    waker: Array,
    woken: Array,
    first_ts: int,
    known: Sequence[Traffic] = (),
) -> tuple[Marks, Channels]:
    """The marks with messages and their receipts where tasks deal with each other many to many.

    Parameters
    ----------
    costs : int64 per mark, what a wakeup takes its waker, ns
    waker : int64 per wakeup row, the task that did it
    woken : int64 per wakeup row, when (ns)
    first_ts : begin of the window, ns
    known : room and scale of groups that are known better
    """
    t = marks.table
    better = {frozenset(one.sides): one for one in known}
    traffic: list[Traffic] = []
    n = int(t[:, Mark.TASK].max(initial=-1)) + 1
    counts = {"channels": 0, "channel_sent": 0, "channel_inferred": 0}
    members, room = np.zeros(n, bool), np.zeros(n, np.int64)
    by = ended_by(t, waker)
    awake = np.full(len(t), first_ts)
    awake[by >= 0] = woken[t[by >= 0, Mark.ROW]]
    added: list[Array] = []
    box = 0
    t = t.copy()
    for sides in _groups(t, by):
        clocks = _clocks(t, costs, np.concatenate(sides))
        told = [_messages(t, by, awake, a, b, clocks) for a, b in (sides, sides[::-1])]
        slept = [n for n, _ in told]
        # Either way there are as many; the one of which more sleeps tell is better known.
        many = max(told)[1]
        if min(slept) < _FEW or 2 * many < _HIDDEN * sum(slept):
            continue
        a, b = (frozenset(side.tolist()) for side in sides)
        own = better.get(frozenset((a, b)))
        scale = own.scale if own is not None else 1.0
        least = _circulating(*(max(many / n, 1.0) for n in slept))
        both = [
            _Channel(
                t.copy(), by, awake, a, b, clocks, many * scale, least, box, first_ts,
                0.0 if own is None else own.room,
            )
            for a, b in (sides, sides[::-1])
        ]  # fmt: skip
        # Who writes has something under way when it sleeps.
        one = max(both, key=lambda c: c.under_way)
        t = one.t
        writers, readers = one.writers, one.readers
        added += one.extra
        room[writers] = one.room
        # A sleep of the second side ends with a message of the first.
        mean = float(room[writers].mean())
        traffic.append(Traffic((a, b), (slept[1], slept[0]), many, mean, scale))
        members[writers] = members[readers] = True
        box += len(readers)
        counts["channels"] += 1
        counts["channel_sent"] += one.seen
        counts["channel_inferred"] += one.hidden
    found = Channels(members, room, box, counts, traffic)
    if not added:
        return marks, found
    table = np.concatenate([t, *added])
    order = np.lexsort((table[:, Mark.WHAT], table[:, Mark.TS], table[:, Mark.TASK]))
    outcome = np.append(marks.outcome, np.full(len(table) - len(t), -1, np.int64))
    return Marks(np.ascontiguousarray(table[order]), outcome[order], marks.counts), found


def _rows(
    task: Array | int, ts: Array, what: int, op: int, other: Array | int, flags: int = 0
) -> Array:
    """Marks that no event stands behind."""
    out = np.zeros((len(ts), 8), np.int64)
    out[:, Mark.TASK], out[:, Mark.TS], out[:, Mark.WHAT] = task, ts, what
    out[:, Mark.OTHER], out[:, Mark.FLAGS], out[:, Mark.SLEEP] = other, flags, op
    out[:, Mark.ROW] = -1
    return out


class _Channel:
    """Makes one pair of groups exchange messages; changes the marks in place."""

    def __init__(
        self, t: Array, by: Array, awake: Array, writers: Array, readers: Array,
        clocks: dict[int, _Clock], many: float, least: float, box: int, first_ts: int, given: float,
    ) -> None:  # fmt: skip
        self.t, self.by, self.awake = t, by, awake
        self.writers, self.readers, self.clocks, self.box = writers, readers, clocks, box
        service = max(sum(clocks[r].total for r in readers.tolist()) / many, 1.0)
        self.under_way, self.given = 0.0, given
        self.least = least * len(readers) / len(writers)
        self.random = np.random.default_rng(0)
        self.extra: list[Array] = []
        both = np.concatenate([writers, readers])
        wake = (t[:, Mark.WHAT] == Mark.WAKE) & np.isin(t[:, Mark.TASK], both)
        self.wakes = np.flatnonzero(wake & np.isin(t[:, Mark.OTHER], both))
        self.taken = np.flatnonzero((t[:, Mark.WHAT] == Mark.TAKE) & np.isin(t[:, Mark.TASK], both))
        sync = (t[self.wakes, Mark.FLAGS] & Op.SYNC).mean() >= 0.5 if len(self.wakes) else False
        self.sync = Op.SYNC if sync else 0
        of_row = np.full(int(t[:, Mark.ROW].max(initial=0)) + 1, -1)
        of_row[t[self.wakes, Mark.ROW]] = self.wakes
        # Nobody's wakeup but a message's is left; its cost stays taken out.
        t[self.wakes, Mark.SLEEP] = -2
        t[self.taken, Mark.SLEEP] = -2
        self.sent: list[Array] = []  # writer, instant, reader's number, when it was taken, unseen
        self.seen = self.hidden = 0
        for i, reader in enumerate(readers.tolist()):
            self._read(i, reader, service, of_row, first_ts)
        sent = np.concatenate(self.sent) if self.sent else np.zeros((0, 5), np.int64)
        self.room = self._write(sent[np.lexsort((sent[:, 1], sent[:, 0]))], first_ts)

    def _read(self, i: int, reader: int, service: float, of_row: Array, first_ts: int) -> None:
        """A reader takes as many messages between two sleeps as its CPU time is worth."""
        t = self.t
        clock = self.clocks[reader]
        waits = np.flatnonzero(
            (t[:, Mark.TASK] == reader)
            & np.isin(self.by, np.concatenate([self.writers, self.readers]))
        )
        # From the end of each sleep to the next; before the first there may be a stretch, too.
        begin = np.append(first_ts - 2, self.awake[waits])
        end = np.append(t[waits, Mark.TS], _last(t, reader))
        ran = clock.at(end) - clock.at(begin)
        first = self.by[waits]
        wake = of_row[t[waits, Mark.ROW]]
        told = np.append(-1, np.where(np.isin(first, self.writers), wake, -1))
        told[end <= begin] = -1  # woken at last, and not seen to run
        due = np.cumsum(ran) / service
        n = np.diff(np.floor(np.append(0.0, due))).astype(np.int64)
        n = np.maximum(n, told >= 0)
        # what was sent unseen
        more = n - (told >= 0)
        at, writer = self._draw(np.repeat(begin, more), np.repeat(end, more))
        n -= np.bincount(np.repeat(np.arange(len(n)), more)[at < 0], minlength=len(n))
        good = at >= 0
        which = np.repeat(np.arange(len(n)), more)[good]
        seen = told[told >= 0]
        t[seen, Mark.SLEEP], t[seen, Mark.OTHER] = Op.SEND, self.box + i
        self.seen, self.hidden = self.seen + len(seen), self.hidden + int(good.sum())
        # when each is taken, evenly in CPU time; the first where the reader slept
        k = np.arange(int(n.sum())) - np.repeat(np.cumsum(n) - n, n)
        of = np.repeat(np.arange(len(n)), n)
        length = ran[of] / np.maximum(n[of], 1)
        cpu = clock.at(begin)[of]
        done = np.clip(clock.when(cpu + (k + 1) * length), begin[of], end[of])
        # Answered before the next one is taken, or the answer would go to its sender: at one
        # instant, of which the wakeup is first.
        taken = np.where(k > 0, np.append(0, done[:-1]), clock.when(cpu))
        t[waits, Mark.SLEEP], t[waits, Mark.OTHER] = -1, -1
        at_wait = (k == 0) & (of > 0)
        slept = waits[of[at_wait] - 1]
        t[slept, Mark.SLEEP], t[slept, Mark.OTHER] = Op.RECV, self.box + i
        self.extra.append(_rows(reader, taken[~at_wait], Mark.TAKE, Op.RECV,
                                self.box + i))  # fmt: skip
        self.extra.append(_rows(reader, done, Mark.WAKE, Op.REPLY, -1, self.sync))
        # by interval: the one that was seen first, then the others in the order of time
        when = np.concatenate([t[seen, Mark.TS], at[good]])
        who = np.concatenate([t[seen, Mark.TASK], writer[good]])
        interval = np.concatenate([np.flatnonzero(told >= 0), which])
        order = np.lexsort((when, interval))
        unseen = (np.arange(len(who)) >= len(seen))[order]
        self.sent.append(np.stack(
            [who[order], when[order], np.full(len(who), i), done, unseen], axis=1))  # fmt: skip

    def _draw(self, begin: Array, end: Array) -> tuple[Array, Array]:
        """Random instants of the writers' CPU time between two instants, and whose; -1 none."""
        low = np.stack([self.clocks[w].at(begin) for w in self.writers.tolist()])
        high = np.stack([self.clocks[w].at(end) for w in self.writers.tolist()])
        upto = np.cumsum(high - low, axis=0)
        total = upto[-1] if len(upto) else np.zeros(len(begin))
        # Stratified: of those of one interval each comes from a part of its own.
        _, first, many = np.unique(begin, return_index=True, return_counts=True)
        place = np.arange(len(begin)) - np.repeat(first, many)
        x = (place + self.random.random(len(begin))) / np.repeat(many, many) * total
        which = np.minimum((upto <= x).sum(axis=0), len(self.writers) - 1)
        at = np.full(len(begin), -1, np.int64)
        for i, w in enumerate(self.writers.tolist()):
            mine = (which == i) & (total > 0)
            before = upto[i - 1, mine] if i else 0.0
            at[mine] = self.clocks[w].when(low[i, mine] + x[mine] - before)
        return at, self.writers[which]

    def _address(self, writer: int, mine: Array) -> Array:
        """The messages of a writer that were not seen, to all readers in turn."""
        whom = mine[:, 2].copy()
        turn: Any = k.in_turn
        turn(whom, mine[:, 4].copy(), np.bincount(whom, minlength=len(self.readers)))
        unseen = mine[:, 4] != 0
        return _rows(
            writer, mine[unseen, 1], Mark.WAKE, Op.SEND, self.box + whom[unseen],
            Op.EARLY | self.sync,
        )  # fmt: skip

    def _write(self, sent: Array, first_ts: int) -> Array:
        """Each message takes room, which a writer waits for where it slept; returns the room."""
        t = self.t
        room = np.zeros(len(self.writers), np.int64)
        both = np.concatenate([self.writers, self.readers])
        found: list[Array] = []
        parts = []
        for writer in self.writers.tolist():
            mine = sent[sent[:, 0] == writer]
            waits = np.flatnonzero((t[:, Mark.TASK] == writer) & np.isin(self.by, both))
            # Who slept when the window began has what it waits for.
            early = t[waits, Mark.TS] < first_ts
            t[waits[early], Mark.SLEEP] = -1
            waits = waits[~early]
            ts, at, done = mine[:, 1].copy(), t[waits, Mark.TS], np.sort(mine[:, 3])
            before = np.searchsorted(ts, at, "right")
            _, _, ahead = _paid(before, len(ts), len(ts))
            found.append(before - np.searchsorted(done, at, "right") + ahead)
            parts.append((ts, waits, before))
            self.extra.append(self._address(writer, mine))
        every = np.concatenate(found)
        # Writers of one group are alike; who slept seldom has the others' room.
        middle = float(np.median(every)) if len(every) else 0.0
        for i, (ts, waits, before) in enumerate(parts):
            mine = float(np.median(found[i])) if len(found[i]) >= _FEW else middle
            self.under_way += mine
            # A mean of 3.3 messages: one writer in three has 4.
            given = math.floor(self.given * (i + 1)) - math.floor(self.given * i)
            room[i] = max(given if self.given else max(round(mine), round(self.least)), 1)
            sleeps, alone, _ = _paid(before, len(ts), int(room[i]))
            t[waits[sleeps == 0], Mark.SLEEP] = -1
            self.extra.append(
                _rows(int(self.writers[i]), ts[alone == 1] - 1, Mark.TAKE, Op.BLOCK, -1)
            )
        return room


def _paid(first: Array, messages: int, limit: int) -> tuple[Array, Array, Array]:
    """See the kernel: ``sleeps``, ``alone``, ``ahead``."""
    sleeps, ahead = np.zeros((2, len(first)), np.int64)
    alone = np.zeros(messages, np.int64)
    pay: Any = k.pay
    pay(first, max(limit, 1), sleeps, alone, ahead)
    return sleeps, alone, ahead


def _last(t: Array, task: int) -> int:
    """When a task is last seen on a CPU."""
    mine = t[(t[:, Mark.TASK] == task) & (t[:, Mark.WHAT] == Mark.OUT), Mark.TS]
    return int(mine[-1]) if len(mine) else 0
