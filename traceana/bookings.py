"""Double bookings: CPUs that looked idle to two wakers (section 10.2 of the kernel semantics).

A decided wakeup *books* the CPU that it selects. Others see the booking only when the pending flag
is set (remote) or the wakee is queued (direct); a second waker that looks before takes the CPU for
idle, too. :func:`find` goes through the bookings of each idle gap of each CPU and classes every one
that was not the first.

What makes it cheap: a CPU other than the waker's own and the wakee's last one is reached only if it
looked idle (section 6.4: every step but the last asks for that), whatever the path. Only for the
wakee's last CPU, which is also where a search that finds nothing ends, it matters what that CPU
looked like, and that is asked at the instant at which the kernel tries it first.

Bookings of a gap are ordered by the end of their selection, where sched_migrate_task is or would
be: who selects later is the one that could have known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import _bookings_class_kernels as classes
from traceana import _bookings_kernels as k
from traceana import schema
from traceana._bookings_learn import learn
from traceana._bookings_rows import Growing
from traceana._bookings_stretches import (
    MARGIN_NS,
    NULL,
    STRETCH_ROWS,
    Fields,
    frozen,
    joined,
    stretches,
    taken,
)
from traceana._replay_changes import Offsets
from traceana.thresholds import kernel_number

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = ["JITTER_NS", "Bookings", "find", "find_parts"]

#: Instants are believed to within so many ns where recording an event takes REFERENCE_COST. From
#: 100 to 300 precision and recall against the kernel's own word stay within 0.03, but for the
#: smallest counts (tests/race_table.py).
JITTER_NS = 200
#: Bookings of gaps that have not ended, that are carried from one stretch to the next.
_OPEN_MOST = 4 * STRETCH_ROWS
#: Where a wakee stays, its booking shows so much after the shortest time to a sched_migrate_task,
#: ns: 1.3 us before the sched_wakeup (7.8-3), which on an idle CPU comes 2.12 us behind the
#: sched_waking.
_SHOWN = -40
#: Since this release the pending flag falls behind the enqueue, so that no CPU looks idle between.
_CLEARS_LAST = 6002

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Bookings:
    """The bookings of a timeline, and those that met another.

    ``table``: ``schema.COLLISIONS``; hops and attributable time null. ``untraced``: bool per row of
    it, whether the windows would overlap without the time that recording took in them.
    ``elsewhere``: the same, whether the second wakee went to a CPU to which nothing but its looking
    idle leads, not where it last ran and where a search in vain ends, too.

    Per decided wakeup: ``rows`` int64 (ids), ``cpu`` int32, ``read_lo``, ``read_hi`` (between them
    CPUs were looked at), ``read`` (estimate for the chosen one, where it is tried first),
    ``decided`` (end of the selection, estimate), ``visible_lo``, ``visible`` (estimate),
    ``visible_hi`` int64, ns; ``looked_idle`` (the chosen CPU, to this decision) and ``stacked``
    (somebody else was runnable there when the wakee was queued) bool.

    ``facts``: counts of double bookings around which events were lost (``near_loss``), and of
    decided wakeups that went to another CPU (``elsewhere``), that sched_migrate_task told
    (``moved``) and of whose queueing no sched_wakeup tells (``unqueued``).
    ``assumptions``: what had to be assumed; ``missing``: what the capture lacks for an answer.
    """

    table: pa.Table
    untraced: Array
    elsewhere: Array
    rows: Array
    cpu: Array
    read_lo: Array
    read_hi: Array
    read: Array
    decided: Array
    visible_lo: Array
    visible: Array
    visible_hi: Array
    looked_idle: Array
    stacked: Array
    facts: dict[str, int] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """How many decided wakeups, double bookings of each class, and stacked wakeups."""
        kinds = np.bincount(self.table.column("class").to_numpy(), minlength=4)
        strict = self.table.column("class").to_numpy() <= schema.BookingClass.STRICT
        return {
            "decided": len(self.rows),
            "looked_idle": int(self.looked_idle.sum()),
            "strict_certain": int(kinds[schema.BookingClass.STRICT_CERTAIN]),
            "strict": int(kinds[schema.BookingClass.STRICT]),
            "late": int(kinds[schema.BookingClass.LATE]),
            "explained": int(kinds[schema.BookingClass.EXPLAINED]),
            "stacked": int(self.stacked.sum()),
            "untraced": int((strict & self.untraced).sum()),
        }


_PER_ROW = (
    "rows", "cpu", "read_lo", "read_hi", "read", "decided", "visible_lo", "visible", "visible_hi",
    "looked_idle", "stacked",
)  # fmt: skip


def find(
    timeline: Timeline,
    *,
    kernel: int | str | None = None,
    event_cost_ns: int | None = None,
    skew_ns: int | None = None,
    offsets: Offsets | None = None,
    jitter_ns: int | None = None,
    stretch_rows: int = STRETCH_ROWS,
) -> Bookings:
    """Find the double bookings of a timeline.

    Parameters
    ----------
    timeline : of a capture with sched_waking
    kernel : release as in the capture ("6.1.192"), or its number (6001); default the timeline's
    event_cost_ns : what recording an event costs (``Capture.event_cost_ns``); None: not known
    skew_ns : clocks of two CPUs differ by no more than this; None: as far as wakeups are stamped
        before their cause
    offsets : how far records lie from what they tell of, where recording takes REFERENCE_COST
    jitter_ns : these instants are believed to within so much; default JITTER_NS, scaled alike
    stretch_rows : wakeups that are looked at together; changes nothing but the use of memory
    """
    rows = Growing("rows", timeline.rows.table("wakeups").num_rows)
    tables: list[pa.Table] = []
    untraced: list[Array] = []
    elsewhere: list[Array] = []
    facts: dict[str, int] = {}
    assumptions: list[str] = []
    for part in find_parts(
        timeline, kernel=kernel, event_cost_ns=event_cost_ns, skew_ns=skew_ns, offsets=offsets,
        jitter_ns=jitter_ns, stretch_rows=stretch_rows,
    ):  # fmt: skip
        rows.append({name: getattr(part, name) for name in _PER_ROW})
        tables.append(part.table)
        untraced.append(part.untraced)
        elsewhere.append(part.elsewhere)
        facts = {name: facts.get(name, 0) + n for name, n in part.facts.items()}
        assumptions = part.assumptions
    arrays = rows.finish()
    table, bare = pa.concat_tables(tables).combine_chunks(), np.concatenate(untraced)
    # Bookings of a gap that reaches over a stretch's end come with the next one.
    in_time = np.argsort(table.column("ts").to_numpy(), kind="stable")
    table = table.take(pa.array(in_time))
    numbers = pa.array(np.arange(len(in_time)), pa.int64())
    table = table.set_column(0, table.schema.field(0), numbers)
    return Bookings(
        table=table,
        untraced=bare[in_time],
        elsewhere=np.concatenate(elsewhere)[in_time],
        facts=facts,
        assumptions=assumptions,
        missing=_missing(len(arrays["rows"]), facts),
        **arrays,
    )


def find_parts(
    timeline: Timeline,
    *,
    kernel: int | str | None = None,
    event_cost_ns: int | None = None,
    skew_ns: int | None = None,
    offsets: Offsets | None = None,
    jitter_ns: int | None = None,
    stretch_rows: int = STRETCH_ROWS,
) -> Iterator[Bookings]:
    """The same, stretch by stretch: for a timeline that does not fit in memory.

    Each part holds the bookings that are settled; those near its end come with the next one.
    """
    release = kernel_number(kernel) if isinstance(kernel, str) else int(kernel or 0)
    assumptions = []
    if not (release or timeline.kernel):
        assumptions.append("kernel release not known: rules of 6.1")
    if event_cost_ns is None:
        assumptions.append(
            "too few events to say what recording one costs: instants as on a machine with "
            "0.8 us an event, decision windows not shortened by that"
        )
    learnt = learn(timeline)
    if event_cost_ns is not None and 0 < learnt.shortest_ns < event_cost_ns:
        # Both are upper bounds of it: a selection records one event, and looks.
        event_cost_ns = learnt.shortest_ns
    o = (offsets or Offsets()).scaled(event_cost_ns)
    if jitter_ns is None:
        jitter_ns = round(JITTER_NS * (o.look / Offsets.look))
    if skew_ns is None:
        skew_ns = learnt.skew_ns
    if skew_ns:
        assumptions.append(f"clocks of two CPUs are believed to differ by up to {skew_ns} ns")
    parameters = np.array(
        [
            o.look, o.left, o.t_target, o.enqueue_direct, o.enqueue_remote,
            o.pending_after_migrate, learnt.shortest_ns, round(_SHOWN * o.look / Offsets.look),
            o.pending_before_wakeup, o.pending_clear, o.current, jitter_ns,
            int((release or timeline.kernel) >= _CLEARS_LAST), skew_ns, event_cost_ns or 0,
        ],
        np.int64,
    )  # fmt: skip
    wakeups: Fields | None = None
    gaps: Fields | None = None
    for more_wakeups, more_gaps in stretches(timeline, stretch_rows):
        wakeups = more_wakeups if wakeups is None else joined([wakeups, more_wakeups])
        gaps = more_gaps if gaps is None else joined([gaps, more_gaps])
        known = more_wakeups["waking_ts"][more_wakeups["waking_ts"] != NULL]
        if not len(known) or len(wakeups["wakeup"]) < stretch_rows:
            continue
        upto = int(known.max()) - MARGIN_NS
        part, wakeups, gaps = _in_stretch(wakeups, gaps, parameters, learnt.llc, upto, assumptions)
        yield part
    if wakeups is not None and gaps is not None:
        yield _in_stretch(wakeups, gaps, parameters, learnt.llc, k.FAR, assumptions)[0]


def _in_stretch(
    w: Fields, g: Fields, parameters: Array, llc: Array, upto: int, assumptions: list[str]
) -> tuple[Bookings, Fields, Fields]:
    """The bookings of a stretch that are settled by ``upto``, and the rows of those that are not.

    What is carried over may not grow without end: a gap in which that many bookings wait is settled
    as it stands.
    """
    n, n_gaps = len(w["wakeup"]), len(g["cpu"])
    cpu = frozen(np.where(w["placed_cpu"] >= 0, w["placed_cpu"], w["ran_cpu"]))
    role, looked = np.empty(n, np.uint8), np.empty(n, np.uint8)
    read, decided, shown, queued, seen, gap, members = (np.empty(n, np.int64) for _ in range(7))
    k.instants(
        w["waking_ts"], w["wakeup_ts"], w["run_ts"], w["wakeup_latency_ns"], w["visible_lo"],
        w["visible_hi"], w["kind"], w["queueing"], cpu, parameters, role, read, decided, shown,
        queued, seen,
    )  # fmt: skip
    g_from, g_to, g_next, g_prev = (np.empty(n_gaps, np.int64) for _ in range(4))
    cut, count = np.empty(n_gaps, np.uint8), np.zeros(n_gaps + 1, np.int64)
    k.into_gaps(
        role, read, decided, w["waking_ts"], cpu, w["prev_cpu"], g["cpu"], g["start"], g["end"],
        parameters, g_from, g_to, cut, g_next, g_prev, np.full(len(llc), -1, np.int64), gap, count,
    )  # fmt: skip
    lost = (w["quality"] & schema.Quality.TOUCHES_LOSS) != 0
    pair = np.empty((n, 4), np.int64)
    verdict, delay = np.empty((n, 3), np.uint8), np.empty(n, np.int64)
    found = classes.classify(
        role, read, decided, shown, queued, gap, count, cpu, w["this_cpu"], w["prev_cpu"],
        w["queueing"], w["waking_ts"], w["run_ts"], w["visible_lo"], seen, w["idle_cpus_llc"],
        lost.view(np.uint8), llc, g_to, cut, parameters, members, looked, pair, verdict, delay,
    )  # fmt: skip
    open_gap = g_to > upto
    # A gap that ended stays, too, while it is the last of its CPU.
    stays = open_gap | (g_next < 0)
    stays[~stays] = open_gap[g_next[~stays]]
    in_open = (gap >= 0) & open_gap[gap] if n_gaps else np.zeros(n, bool)
    if int(in_open.sum()) > _OPEN_MOST:
        in_open[:] = False
    key = np.where(w["waking_ts"] != NULL, w["waking_ts"], w["wakeup_ts"])
    later_on = in_open | (key > upto)
    pair, verdict, delay = pair[:found], verdict[:found], delay[:found]
    settled = ~later_on[pair[:, 1]]
    pair, verdict, delay = pair[settled], verdict[settled], delay[settled]
    order = np.argsort(w["waking_ts"][pair[:, 1]], kind="stable")
    pair, verdict, delay = pair[order], verdict[order], delay[order]
    chosen = np.flatnonzero((role == k.DECISION) & ~later_on)
    moved = w["visible_lo"][chosen] != w["waking_ts"][chosen]
    later = pair[:, 1]
    part = Bookings(
        table=_table(w, cpu, pair, verdict, delay),
        untraced=verdict[:, 2] == 1,
        elsewhere=cpu[later] != w["prev_cpu"][later],
        rows=w["wakeup"][chosen],
        cpu=cpu[chosen],
        read_lo=w["waking_ts"][chosen],
        read_hi=np.where(moved, w["visible_lo"][chosen], seen[chosen]),
        read=read[chosen],
        decided=decided[chosen],
        visible_lo=w["visible_lo"][chosen],
        visible=shown[chosen],
        visible_hi=seen[chosen],
        looked_idle=looked[chosen] == 1,
        stacked=w["nr_running_placed"][chosen] >= 1,
        facts={
            "near_loss": int((lost[later] | lost[pair[:, 0]]).sum()),
            "elsewhere": int((cpu[chosen] != w["prev_cpu"][chosen]).sum()),
            "moved": int(moved.sum()),
            "unqueued": int((w["wakeup_ts"][chosen] == NULL).sum()),
        },
        assumptions=assumptions,
    )
    return part, taken(w, later_on), taken(g, stays)


def _table(w: Fields, cpu: Array, pair: Array, verdict: Array, delay: Array) -> pa.Table:
    """The collisions as a table of the contract."""
    n, i64 = len(pair), pa.int64()

    def ids(which: int) -> pa.Array:
        rows = pair[:, which]
        return pa.array(w["wakeup"][rows], i64, mask=rows < 0)

    columns = {
        "collision": pa.array(np.arange(n), i64),
        "cpu": pa.array(cpu[pair[:, 1]], pa.int32()),
        "ts": pa.array(w["waking_ts"][pair[:, 1]], i64),
        "earlier": ids(0),
        "later": ids(1),
        "first": ids(2),
        "victim": ids(3),
        "class": pa.array(verdict[:, 0], pa.uint8()),
        "why": pa.array(verdict[:, 1], pa.uint8()),
        "extra_delay_ns": pa.array(delay, i64, mask=delay == NULL),
        "hops": pa.nulls(n, pa.int32()),
        "attributable_lo_ns": pa.nulls(n, i64),
        "attributable_hi_ns": pa.nulls(n, i64),
    }
    spec = schema.COLLISIONS
    return pa.table([columns[c.name] for c in spec.columns], schema=spec.schema)


def _missing(decided: int, facts: dict[str, int]) -> list[str]:
    """What the capture lacks for an answer."""
    if not decided:
        return ["no decided wakeup with its sched_waking"]
    missing = []
    if facts["near_loss"]:
        missing.append(
            f"events were lost around {facts['near_loss']} double bookings: none of them is certain"
        )
    if facts["elsewhere"] and not facts["moved"]:
        missing.append(
            "no sched_migrate_task: when selections ended is estimated from sched_wakeup alone"
        )
    if 2 * facts["unqueued"] > decided:
        missing.append(
            "no sched_wakeup: when wakees were queued is estimated from when they ran, so that "
            "late bookings and extra delays are not to be relied on"
        )
    return missing
