"""A timeline's rows as changes of state, each at the instant at which other CPUs could see it.

Records lie beside what they tell of by some 100 ns (section 7.8 of the semantics). The distances
are parameters (:class:`Offsets`), given for a machine on which recording an event takes
REFERENCE_COST, and scaled by what the capture at hand shows of that cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana import _replay_state as k
from traceana import schema

__all__ = ["REFERENCE_COST", "Decisions", "Offsets", "changes_of", "decisions_of"]

NULL = -(2**63)
_NEVER = 2**62
#: Cost of recording an event where the offsets were measured, ns.
REFERENCE_COST = 820
#: Fewer migrations than this do not say how long the shortest selection takes.
_FEW = 50
#: Share of selections below which a duration counts as a slip.
_SHORTEST = 2
#: A task's switch record may come so much behind a waking that found it already off its queue, ns.
_LEAVING = 2500
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Offsets:
    """How far from their records changes become visible, and how long a selection takes, ns.

    Negative: before the record. Measured on Linux 6.1, see docs/validation.md.
    """

    look: int = 490  # from sched_waking to the begin of the selection
    left: int = 840  # from the wakee's switch record to the end of that switch: it is waited for
    current: int = -450  # curr of a CPU changes before its switch record
    dequeue: int = -600  # nr_running falls before the switch record of a block
    enqueue_direct: int = -350  # nr_running rises before a direct sched_wakeup
    enqueue_remote: int = -550
    pending_after_migrate: int = 700  # ttwu_pending is set after sched_migrate_task
    pending_after_shortest: int = -140  # or, without one, after the shortest time to such a record
    pending_before_wakeup: int = -1300  # or, where that is not known, before sched_wakeup
    pending_clear: int = -450  # it is cleared before nr_running rises (kernels up to 6.1)
    pull: int = 1600  # a pulled task is queued after its sched_migrate_task
    # what a selection reads when, behind its begin (T_* of _replay_state)
    t_affine: int = 0
    t_target: int = 10
    t_asked: int = 70
    t_weight: int = 40
    t_prev: int = 32
    t_recent: int = 80
    t_sibling: int = 130
    t_sibling_step: int = 50
    t_scan: int = 375
    t_scan_step: int = 63
    t_core: int = 280
    t_core_step: int = 190
    t_core_thread: int = 60
    t_clear: int = 980
    t_end: int = 1800

    def scaled(self, event_cost_ns: int | None) -> Offsets:
        """The same for a machine that records an event in ``event_cost_ns`` (None: unknown)."""
        if not event_cost_ns:
            return self
        scale = min(max(event_cost_ns / REFERENCE_COST, 0.05), 4.0)
        return replace(self, **{f.name: round(getattr(self, f.name) * scale) for f in fields(self)})

    def times(self) -> Array:
        """int64[15] in the order of T_*."""
        return np.array(
            [getattr(self, f.name) for f in fields(self) if f.name.startswith("t_")], np.int64
        )


@dataclass(frozen=True)
class Decisions:
    """Of each decided wakeup, int64[n]: ``look``, begin of its selection; ``limit``, the last
    instant before its own booking shows; ``booked``, when that is (NULL: not known).
    """

    look: Array
    limit: Array
    booked: Array


def decisions_of(raw: Mapping[str, Array], rows: Array, o: Offsets) -> Decisions:
    """When the selections of ``rows`` began and ended."""
    w = raw["wakeups"][rows]
    waking, mig, wakeup = w["waking"], w["mig"], w["wakeup"]
    moved = mig != NULL
    begin = waking + o.look
    # A wakee that is still switching out is waited for.
    left = _last_switch_out(raw["slices"], w["wakee"], waking + _LEAVING)
    look = np.where(left != NULL, np.maximum(begin, left + o.left), begin)
    look = np.where(moved, np.minimum(look, np.maximum(mig - 1, waking)), look)
    direct, remote = w["queueing"] == 0, w["queueing"] == 1
    shows = np.where(wakeup != NULL, wakeup + o.enqueue_direct, NULL)
    took = (mig - waking)[moved]
    # How long a selection takes at least is the same whether or not its CPU is another one.
    if len(took) >= _FEW:
        shortest = int(np.percentile(took, _SHORTEST, method="lower"))
        pending = look - o.look + shortest + o.pending_after_shortest
    else:
        pending = wakeup + o.pending_before_wakeup
    pending = np.where(moved, mig + o.pending_after_migrate, pending)
    pending = np.minimum(np.maximum(pending, look + 1), wakeup + o.enqueue_remote)
    booked = np.where(remote & (wakeup != NULL), pending, shows)
    limit = np.where(
        moved, mig - 1, np.where((direct | remote) & (booked != NULL), booked - 1, _NEVER)
    )
    return Decisions(look, np.maximum(limit, look), booked)


def _last_switch_out(slices: Array, task: Array, before: Array) -> Array:
    """The last switch-out of each task up to an instant, NULL where there is none."""
    ended = slices[slices["end"] != NULL]
    out = np.full(len(task), NULL, np.int64)
    if not len(ended) or not len(task):
        return out
    first = int(min(ended["end"].min(), before.min()))
    span = int(max(ended["end"].max(), before.max())) - first + 2
    key = ended["task"].astype(np.int64) * span + (ended["end"] - first)
    order = np.argsort(key, kind="stable")
    i = np.searchsorted(key[order], task.astype(np.int64) * span + (before - first), "right") - 1
    row = order[np.maximum(i, 0)]
    good = (i >= 0) & (ended["task"][row] == task)
    out[good] = ended["end"][row[good]]
    return out


class _Parts:
    """Collects pieces of the list of changes."""

    def __init__(self) -> None:
        self.parts: list[Array] = []

    def put(self, ts: Array, what: int, cpu: Array, task: Array | int, aux: Array | int) -> None:
        part = np.empty(len(ts), k.CHANGE)
        part["ts"], part["what"], part["cpu"], part["task"], part["aux"] = ts, what, cpu, task, aux
        self.parts.append(part)

    def sorted(self) -> Array:
        changes = np.concatenate(self.parts)
        return changes[np.argsort(changes["ts"], kind="stable")]


def changes_of(
    raw: Mapping[str, Array],
    rows: Array,
    recorded: Array,
    decisions: Decisions,
    o: Offsets,
    *,
    first_ts: int,
    clears_last: bool,
) -> Array:
    """All changes and decision instants, in the order in which they could be seen (CHANGE[k]).

    Parameters
    ----------
    rows, recorded : the decided wakeups and the CPUs they went to
    first_ts : begin of the window
    clears_last : ttwu_pending falls behind the enqueue (6.2 and later)
    """
    out = _Parts()
    w = raw["wakeups"]
    before = first_ts - 1_000_000
    _put_slices(out, raw, o, before, first_ts)
    _put_waiting(out, raw, before)
    g = raw["gaps"]
    start = np.where(g["start"] != NULL, g["start"] + o.current, before)
    out.put(start, k.CURR, g["cpu"], -1, 0)
    q = np.flatnonzero((w["wakeup"] != NULL) & (w["placed"] >= 0) & (w["counts"] == 1))
    c = w[q]
    remote = c["queueing"] == 1
    up = c["wakeup"] + np.where(remote, o.enqueue_remote, o.enqueue_direct)
    up = np.maximum(up, np.where(c["waking"] != NULL, c["waking"], up))
    out.put(up, k.ENQ, c["placed"], c["wakee"], 0)
    booked = np.full(len(w), NULL, np.int64)
    booked[rows] = decisions.booked
    far = remote & (c["waking"] != NULL)
    r, up = c[far], up[far]
    early = np.where(
        r["mig"] != NULL, r["mig"] + o.pending_after_migrate, r["wakeup"] + o.pending_before_wakeup
    )
    early = np.where(booked[q[far]] != NULL, booked[q[far]], early)
    early = np.minimum(np.maximum(early, r["waking"] + o.look + 1), up)
    out.put(early, k.PEND, r["placed"], r["wakee"], 1)
    clear = up + (1 if clears_last else o.pending_clear)
    out.put(np.maximum(clear, early), k.PEND, r["placed"], r["wakee"], 0)
    m = raw["moves"]
    out.put(m["ts"] + o.pull, k.MOVE, m["dst"], m["task"], 0)
    d = w[rows]
    n = np.arange(len(rows))
    chosen = np.minimum(decisions.look + o.t_clear, decisions.limit) + 1
    known = (decisions.booked != NULL) & (decisions.booked > chosen)
    out.put(chosen[known], k.BOOK, recorded[known], d["wakee"][known], 1)
    out.put(decisions.booked[known], k.BOOK, recorded[known], d["wakee"][known], -1)
    out.put(decisions.look, k.READ, d["this_cpu"], d["wakee"], n)
    out.put(decisions.look + o.t_end, k.LOOK, d["this_cpu"], d["wakee"], n)
    return out.sorted()


def _put_slices(
    out: _Parts, raw: Mapping[str, Array], o: Offsets, before: int, first_ts: int
) -> None:
    s = raw["slices"]
    s = s[s["cpu"] >= 0]
    start = np.where(s["start"] != NULL, s["start"] + o.current, before)
    # A slice of unknown begin in the middle: a switch is missing; it began by its end.
    late = (s["start"] == NULL) & ~_first_of_cpu(s["cpu"], raw)
    start[late] = np.where(s["end"][late] != NULL, s["end"][late] + o.dequeue - 1, before)
    # On an idle CPU the task's time runs from its enqueue on (see switch_in of the timeline).
    woken = _enqueue_on_idle(s, raw["wakeups"], first_ts)
    start = np.where(woken != NULL, woken + o.enqueue_remote + 1, start)
    out.put(start, k.CURR, s["cpu"], s["task"], np.where(s["dur"] == NULL, -1, s["dur"]))
    e = s[s["end"] != NULL]
    blocks = (e["reason"] <= schema.EndReason.BLOCK) | (e["reason"] == schema.EndReason.DEAD)
    ran = np.where(
        e["runtime"] > 0, e["runtime"], np.where(e["start"] != NULL, e["end"] - e["start"], 0)
    )
    b, r = e[blocks], e[~blocks]
    out.put(b["end"] + o.dequeue, k.OFF, b["cpu"], b["task"], ran[blocks])
    out.put(r["end"] + o.current - 1, k.OUT, r["cpu"], r["task"], ran[~blocks])


def _put_waiting(out: _Parts, raw: Mapping[str, Array], before: int) -> None:
    """Tasks that run without having been woken waited on that CPU from the begin on."""
    s, w, m = raw["slices"], raw["wakeups"], raw["moves"]
    s = s[(s["cpu"] >= 0) & (s["task"] >= 0)]
    begin = np.where(s["start"] != NULL, s["start"], before)
    order = np.lexsort((begin, s["task"]))
    tasks, at = np.unique(s["task"][order], return_index=True)
    if not len(tasks):
        return
    first, cpu = begin[order][at], s["cpu"][order][at].copy()
    n = int(max(tasks.max(), w["wakee"].max(initial=0), m["task"].max(initial=0))) + 1
    woken = np.full(n, _NEVER)
    when = np.where(w["waking"] != NULL, w["waking"], w["wakeup"])
    known = (w["wakee"] >= 0) & (when != NULL)
    np.minimum.at(woken, w["wakee"][known], when[known])
    moved, source = np.full(n, _NEVER), np.full(n, -1)
    for i in np.flatnonzero(m["task"] >= 0)[::-1]:
        moved[m["task"][i]], source[m["task"][i]] = m["ts"][i], m["src"][i]
    cpu = np.where((moved[tasks] < first) & (source[tasks] >= 0), source[tasks], cpu)
    waits = (first > before) & (woken[tasks] > first)
    out.put(np.full(int(waits.sum()), before), k.ENQ, cpu[waits], tasks[waits].astype(np.int64), 0)


def _enqueue_on_idle(s: Array, w: Array, first_ts: int) -> Array:
    """Per slice: the sched_wakeup that put its task onto an idle CPU, if it ran at once."""
    q = w[
        (w["run"] != NULL)
        & (w["wakeup"] != NULL)
        & (w["placed_idle"] == 1)
        & (w["ran"] == w["placed"])
    ]
    q = q[(q["run"] - q["wakeup"] >= 0) & (q["run"] - q["wakeup"] < 20_000)]
    out = np.full(len(s), NULL, np.int64)
    if not len(q) or not len(s):
        return out
    span = int(max(q["run"].max(), s["start"].max())) - first_ts + 2
    have = q["ran"].astype(np.int64) * span + (q["run"] - first_ts)
    order = np.argsort(have, kind="stable")
    have = have[order]
    want = s["cpu"].astype(np.int64) * span + (
        np.where(s["start"] == NULL, first_ts, s["start"]) - first_ts
    )
    i = np.minimum(np.searchsorted(have, want), len(have) - 1)
    hit = (have[i] == want) & (s["start"] != NULL)
    out[hit] = q["wakeup"][order][i[hit]]
    return out


def _first_of_cpu(cpu: Array, raw: Mapping[str, Array]) -> Array:
    """Which rows are the first of their CPU's slices (gaps of unknown begin come first, too)."""
    open_gap = np.zeros(int(cpu.max(initial=-1)) + 1, bool)
    g = raw["gaps"]
    begins = g["cpu"][(g["start"] == NULL) & (g["cpu"] < len(open_gap))]
    open_gap[begins] = True
    first = np.zeros(len(cpu), bool)
    _, i = np.unique(cpu, return_index=True)
    first[i] = True
    return first & ~open_gap[cpu]
