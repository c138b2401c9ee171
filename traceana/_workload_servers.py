"""Requests and tokens of which no event tells, from who waits for whom.

A wakeup is recorded only of a task that sleeps. A request to a server that is at work leaves no
event, nor does an answer to a partner that has not gone to sleep yet. Three shapes are
recognised; all else stays as recorded:

* a **server**: woken by several tasks, whose first wakeup after it was woken is that of the one who
  woke it. Each of its clients' sleeps that it ends was preceded by a request. Client: SEND, BLOCK;
  server: RECV, work, REPLY; so a reply goes to whoever asked, in the order of asking.
* a **hub**: wakes several tasks, of which nobody else wakes any, and sleeps seldom itself. Who
  sleeps until a hub wakes it has told the hub before: it SENDs; the hub does one RECV before each
  of these wakeups, whose order stays as recorded (whom a message makes it wake, no event tells).
  So a hub cannot run ahead of those who work for it. A hub that sleeps now and then waits for
  answers, so that its RECV is of the one whom it wakes next, or, where it slept, of the one who
  ended that; one that is always busy takes whatever has come.
* a **pair**: two tasks that wake each other only. When one sleeps twice, and was woken both times,
  without having woken the other in between, it has served the other unseen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from traceana._sim_state import Op
from traceana._workload_channels import Channels, ended_by
from traceana._workload_marks import Mark, Marks

__all__ = ["add_pair_tokens", "add_requests"]

Array = npt.NDArray[Any]
#: A server has so many clients, each of which woke it so often …
_CLIENTS, _OFTEN = 3, 3
#: … and answered first to whoever woke it in this share of so many cases.
_ANSWERS, _CASES = 0.6, 20
#: A hub ends this share of its clients' sleeps, and sleeps less often than this per wakeup.
_ONLY, _SLEEPS_SELDOM = 0.9, 0.5
#: One that sleeps less often than this per wakeup is always busy.
_NEVER_WAITS = 0.02
#: Of a pair's sleeps this share is ended by the other.
_ALONE = 0.95
_FAR = 2**62


def _next_of(t: Array, which: Array) -> Array:
    """Of each mark the next one behind it, of its task, that is of a kind; n: none (int64[n])."""
    n = len(t)
    at = np.where(which, np.arange(n), n)
    following = np.append(np.minimum.accumulate(at[::-1])[::-1], n)[1:]
    task = np.append(t[:, Mark.TASK], -1)
    return np.where(task[following] == t[:, Mark.TASK], following, n)


def _last_of(t: Array, which: Array) -> Array:
    """Of each mark the last one before it, of its task, that is of a kind; -1: none."""
    n = len(t)
    at = np.where(which, np.arange(n), -1)
    before = np.append(-1, np.maximum.accumulate(at))[:-1] if n else at
    good = (before >= 0) & (t[np.maximum(before, 0), Mark.TASK] == t[:, Mark.TASK])
    return np.where(good, before, -1)


def find_servers(marks: Marks, waker: Array, channels: Channels) -> dict[int, Array]:
    """The servers, and the clients of each (task ids)."""
    t = marks.table
    by = _ended_by(t, waker, channels)
    wake = (t[:, Mark.WHAT] == Mark.WAKE) & (t[:, Mark.SLEEP] == -1)
    sleeps = (t[:, Mark.WHAT] == Mark.OUT) & (t[:, Mark.SLEEP] >= 0)
    first_wake = _next_of(t, wake)
    asleep = np.flatnonzero(by >= 0)
    answer = first_wake[asleep]
    in_time = (answer < len(t)) & (answer < _next_of(t, sleeps)[asleep])
    whom = np.where(in_time, t[np.minimum(answer, len(t) - 1), Mark.OTHER], -1)
    out: dict[int, Array] = {}
    server = t[asleep, Mark.TASK]
    woke = set(map(tuple, np.unique(t[wake][:, [Mark.TASK, Mark.OTHER]], axis=0).tolist()))
    for s in np.unique(server).tolist():
        mine = (server == s) & in_time
        if mine.sum() < _CASES or (whom[mine] == by[asleep[mine]]).mean() < _ANSWERS:
            continue
        clients, often = np.unique(by[asleep[server == s]], return_counts=True)
        both = [c for c, k in zip(clients.tolist(), often.tolist(), strict=True)
                if k >= _OFTEN and (s, c) in woke]  # fmt: skip
        if len(both) >= _CLIENTS:
            out[s] = np.array(both)
    # Whoever serves is nobody's client here: its sleeps become RECV.
    return {s: c[~np.isin(c, list(out))] for s, c in out.items()}


def find_hubs(
    marks: Marks, waker: Array, servers: dict[int, Array], channels: Channels
) -> dict[int, Array]:
    """The hubs that are no servers, and the clients of each (task ids)."""
    t = marks.table
    by = _ended_by(t, waker, channels)
    asleep = np.flatnonzero(by >= 0)
    client, hub = t[asleep, Mark.TASK], by[asleep]
    n = int(t[:, Mark.TASK].max(initial=-1)) + 1
    slept = np.bincount(client, minlength=n)
    pairs, often = np.unique(np.stack([hub, client]), axis=1, return_counts=True)
    wakes = np.bincount(hub, minlength=n)
    taken = {int(c) for clients in servers.values() for c in clients} | set(servers)
    mine = (often >= _OFTEN) & (often >= _ONLY * slept[pairs[1]])
    out: dict[int, Array] = {}
    for h in np.unique(pairs[0][mine]).tolist():
        clients = pairs[1][mine & (pairs[0] == h)]
        if len(clients) >= _CLIENTS and slept[h] < _SLEEPS_SELDOM * wakes[h] and h not in taken:
            out[h] = clients
    return {h: c[~np.isin(c, [*out, *taken])] for h, c in out.items()}


def _ended_by(t: Array, waker: Array, channels: Channels) -> Array:
    """As :func:`ended_by`, of tasks that are in no channel."""
    by = ended_by(t, waker)
    inside = (by >= 0) & channels.members[t[:, Mark.TASK]]
    return np.where(inside, -1, by)


def add_requests(
    marks: Marks, costs: Array, waker: Array, first_ts: int, channels: Channels
) -> tuple[Marks, dict[str, int]]:
    """The marks with servers' requests and replies instead of edges; and counts.

    ``costs`` int64 per mark, what its wakeup took; ``waker`` int64 per wakeup row. ``sent``:
    requests that were seen as a wakeup; ``inferred``: those that were not.
    """
    servers = {s: c for s, c in find_servers(marks, waker, channels).items() if len(c) >= _CLIENTS}
    hubs = find_hubs(marks, waker, servers, channels)
    hubs = {h: c for h, c in hubs.items() if len(c) >= _CLIENTS}
    counts = {"servers": len(servers), "hubs": len(hubs), "sent": 0, "inferred": 0}
    if not servers and not hubs:
        return marks, counts
    t = marks.table.copy()
    by = _ended_by(t, waker, channels)
    wake = (t[:, Mark.WHAT] == Mark.WAKE) & (t[:, Mark.SLEEP] == -1)
    sleeps = (t[:, Mark.WHAT] == Mark.OUT) & (t[:, Mark.SLEEP] >= 0)
    last_sleep = _last_of(t, sleeps)
    added: list[Array] = []
    box = channels.boxes
    for s, clients in sorted({**servers, **hubs}.items()):
        waits = (t[:, Mark.TASK] == s) & np.isin(by, clients)
        wakes = (t[:, Mark.TASK] == s) & wake
        apart = s in hubs and waits.sum() >= _NEVER_WAITS * wakes.sum()
        for some in [np.array([c]) for c in clients] if apart else [clients]:
            asking, told, extra = _ask(t, costs, s, some, box, by, wake, last_sleep, first_ts)
            counts["sent"] += told
            counts["inferred"] += len(extra)
            added += [
                extra,
                _serve(t, s, some, box, by, wake, asking, reply_to_sender=s in servers),
            ]
            box += 1
    table = np.concatenate([t, *added])
    order = np.lexsort((table[:, Mark.WHAT], table[:, Mark.TS], table[:, Mark.TASK]))
    outcome = np.append(marks.outcome, np.full(len(table) - len(t), -1, np.int64))
    return Marks(np.ascontiguousarray(table[order]), outcome[order], marks.counts), counts


def _ask(
    t: Array, costs: Array, s: int, clients: Array, box: int, by: Array, wake: Array,
    last_sleep: Array, first_ts: int,
) -> tuple[Array, int, Array]:  # fmt: skip
    """Make the clients' wakeups of a server SENDs, in place.

    Returns the sleeps that were preceded by a request, how many of these were seen as a wakeup,
    and marks to be added for the others.
    """
    of_client = np.isin(t[:, Mark.TASK], clients)
    asking = np.flatnonzero(of_client & (by == s) & (t[:, Mark.TS] >= first_ts))
    to_server = of_client & wake & (t[:, Mark.OTHER] == s)
    seen = _last_of(t, to_server)[asking]
    told = seen > last_sleep[asking]
    t[to_server, Mark.SLEEP] = -2  # no request: nobody waits for an answer
    t[seen[told], Mark.SLEEP], t[seen[told], Mark.OTHER] = Op.SEND, box
    unseen = asking[~told]
    tail = _tail(t, costs, asking[told], seen[told])
    begun = t[np.maximum(last_sleep[unseen], 0), Mark.TS]
    extra = np.zeros((len(unseen), 8), np.int64)
    extra[:, Mark.TASK] = t[unseen, Mark.TASK]
    begun = np.where(last_sleep[unseen] >= 0, begun, first_ts)
    extra[:, Mark.TS] = np.maximum(t[unseen, Mark.TS] - tail, begun)
    _after_switch_in(t, unseen, extra)
    extra[:, Mark.WHAT], extra[:, Mark.OTHER] = Mark.WAKE, box
    extra[:, Mark.FLAGS], extra[:, Mark.SLEEP], extra[:, Mark.ROW] = Op.EARLY, Op.SEND, -1
    return asking, int(told.sum()), extra


def _tail(t: Array, costs: Array, sleep: Array, wake: Array) -> int:
    """What is usual between a wakeup, without what it cost, and the sleep behind it, ns.

    What was passed unseen woke nobody, and cost nothing of that.
    """
    if not len(sleep):
        return 0
    return int(np.median(np.maximum(t[sleep, Mark.TS] - t[wake, Mark.TS] - costs[wake], 0)))


def _after_switch_in(t: Array, at: Array, extra: Array) -> None:
    """Move marks behind the switch-in of the stretch at whose end ``at`` stand."""
    came = _last_of(t, t[:, Mark.WHAT] == Mark.IN)[at]
    begun = np.where(came >= 0, t[np.maximum(came, 0), Mark.TS] + 1, -_FAR)
    extra[:, Mark.TS] = np.maximum(extra[:, Mark.TS], begun)


def _serve(
    t: Array, s: int, clients: Array, box: int, by: Array, wake: Array, asking: Array, *,
    reply_to_sender: bool,
) -> Array:  # fmt: skip
    """Make a server's script one of messages; in place. Returns the marks to be added (RECV)."""
    answered = t[asking, Mark.ROW]
    reply = np.flatnonzero((t[:, Mark.TASK] == s) & wake & np.isin(t[:, Mark.OTHER], clients))
    # A client that slept at the begin had asked before: its wakeup stays one.
    reply = reply[np.isin(t[reply, Mark.ROW], answered)]
    if reply_to_sender:
        t[reply, Mark.SLEEP] = Op.REPLY
    waits = np.flatnonzero((t[:, Mark.TASK] == s) & np.isin(by, clients))
    t[waits, Mark.SLEEP], t[waits, Mark.OTHER] = -1, -1
    if not len(reply):
        return np.zeros((0, 8), np.int64)
    # The message is taken where the server waited before the reply, else behind the reply before;
    # the one of a client that has a mailbox of its own is taken before it is woken.
    before = np.append(-1, reply[:-1])
    i = np.searchsorted(waits, before, "right")
    next_wait = np.append(waits, len(t))[i]
    at_wait = next_wait < reply
    taken = next_wait[at_wait]
    t[taken, Mark.SLEEP], t[taken, Mark.OTHER] = Op.RECV, box
    rest = np.flatnonzero(~at_wait)
    extra = np.zeros((len(rest), 8), np.int64)
    extra[:, Mark.TASK] = s
    behind = (before[rest] >= 0) & (len(clients) > 1)
    extra[:, Mark.TS] = np.where(
        behind, t[np.maximum(before[rest], 0), Mark.TS] + 1, t[reply[rest], Mark.TS] - 1
    )
    extra[:, Mark.WHAT], extra[:, Mark.OTHER] = Mark.TAKE, box
    extra[:, Mark.SLEEP], extra[:, Mark.ROW] = Op.RECV, -1
    return extra


def add_pair_tokens(
    marks: Marks, costs: Array, waker: Array, first_ts: int, channels: Channels
) -> tuple[Marks, int]:
    """The marks with the tokens that the members of pairs passed unseen; and how many.

    Parameters as of :func:`add_requests`.
    """
    t = marks.table
    by = _ended_by(t, waker, channels)
    asleep = np.flatnonzero((by >= 0) & (t[:, Mark.TS] >= first_ts))
    partner = _partners(t[asleep, Mark.TASK], by[asleep])
    wake = (t[:, Mark.WHAT] == Mark.WAKE) & (t[:, Mark.SLEEP] == -1)
    added: list[Array] = []
    for a, b in partner.items():
        mine = asleep[(t[asleep, Mark.TASK] == a) & (by[asleep] == b)]
        to_b = (t[:, Mark.TASK] == a) & wake & (t[:, Mark.OTHER] == b)
        seen, previous = _last_of(t, to_b)[mine], np.append(-1, mine[:-1])
        silent = np.flatnonzero((seen < previous) & (previous >= 0))
        if not len(silent):
            continue
        told = seen > previous
        tail = _tail(t, costs, mine[told], seen[told])
        # The other's two wakeups of it: between them it must have taken what was passed.
        of_row = np.full(int(t[:, Mark.ROW].max()) + 1, -1)
        its = np.flatnonzero((t[:, Mark.TASK] == b) & wake & (t[:, Mark.OTHER] == a))
        of_row[t[its, Mark.ROW]] = its
        second = of_row[t[mine[silent], Mark.ROW]]
        one = of_row[t[previous[silent], Mark.ROW]]
        sleeps = (t[:, Mark.WHAT] == Mark.OUT) & (t[:, Mark.SLEEP] == Op.BLOCK)
        sleeps |= t[:, Mark.WHAT] == Mark.TAKE
        nothing = (one >= 0) & (second > one) & (_last_of(t, sleeps)[second] < one)
        silent, one = silent[nothing], one[nothing]
        pass_on = np.zeros((len(silent), 8), np.int64)
        pass_on[:, Mark.TASK], pass_on[:, Mark.OTHER] = a, b
        pass_on[:, Mark.TS] = t[mine[silent], Mark.TS] - tail
        _after_switch_in(t, mine[silent], pass_on)
        pass_on[:, Mark.WHAT], pass_on[:, Mark.FLAGS] = Mark.WAKE, Op.EARLY
        pass_on[:, Mark.SLEEP] = pass_on[:, Mark.ROW] = -1
        take = np.zeros((len(silent), 8), np.int64)
        take[:, Mark.TASK], take[:, Mark.TS] = b, t[one, Mark.TS] + 1
        take[:, Mark.WHAT] = Mark.TAKE
        take[:, Mark.OTHER] = take[:, Mark.SLEEP] = take[:, Mark.ROW] = -1
        added += [pass_on, take]
    if not added:
        return marks, 0
    table = np.concatenate([t, *added])
    order = np.lexsort((table[:, Mark.WHAT], table[:, Mark.TS], table[:, Mark.TASK]))
    outcome = np.append(marks.outcome, np.full(len(table) - len(t), -1, np.int64))
    n = sum(len(x) for x in added) // 2
    return Marks(np.ascontiguousarray(table[order]), outcome[order], marks.counts), n


def _partners(task: Array, by: Array) -> dict[int, int]:
    """Who is woken by one other task only, and wakes that one only."""
    best: dict[int, int] = {}
    for a in np.unique(task).tolist():
        who, n = np.unique(by[task == a], return_counts=True)
        if n.max() >= max(_ALONE * n.sum(), _CASES):
            best[a] = int(who[n.argmax()])
    return {a: b for a, b in best.items() if best.get(b) == a}
