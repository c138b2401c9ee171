"""Who delays whom: the victims of double bookings, by families of tasks, and the worst ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import schema
from traceana.families import family

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = ["Delayed", "families_of", "numbers", "wake_columns", "who_delays_whom", "worst"]

Array = npt.NDArray[Any]
NULL = -(2**63)


@dataclass(frozen=True)
class Delayed:
    """Victims of one family behind firsts of another, by strict double bookings.

    ``first``, ``victim``: families; ``n``, of these ``certain``; ``sum_ns`` to ``max_ns``: extra
    delay, the longest booked again at ``max_at_ns``; ``attributable_hi_ns``: idle time that it may
    have cost.
    """

    first: str
    victim: str
    n: int
    certain: int
    sum_ns: int
    p50_ns: int
    p99_ns: int
    max_ns: int
    max_at_ns: int
    attributable_hi_ns: int | None


def numbers(table: pa.Table, name: str, null: int = NULL) -> Array:
    """A column of the collisions as int64[n]."""
    column = table.column(name).combine_chunks()
    if column.null_count:
        column = column.cast(pa.int64()).fill_null(null)
    return np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.int64)


def wake_columns(timeline: Timeline, rows: Array, names: Sequence[str]) -> dict[str, Array]:
    """Some columns of some wakeups (by id, -1 none), int64; NULL where not known."""
    out = {name: np.full(len(rows), NULL, np.int64) for name in names}
    order = np.argsort(rows, kind="stable")
    asked = rows[order]
    at = 0
    for chunk in timeline.rows.chunks("wakeups", names):
        a, b = np.searchsorted(asked, [at, at + chunk.num_rows])
        for name in names:
            if b > a:
                out[name][order[a:b]] = numbers(chunk, name)[asked[a:b] - at]
        at += chunk.num_rows
    return out


def families_of(timeline: Timeline) -> list[str]:
    """The family of each task; one without a name is '(no name)'."""
    comms = timeline.tasks.column("comm").to_pylist()
    return [family(comm) if comm else "(no name)" for comm in comms]


def who_delays_whom(timeline: Timeline, collisions: pa.Table) -> list[Delayed]:
    """Pairs of families, the longest sum of extra delays first."""
    kinds = numbers(collisions, "class")
    first, victim = numbers(collisions, "first", -1), numbers(collisions, "victim", -1)
    extra = numbers(collisions, "extra_delay_ns")
    rows = np.flatnonzero(
        (kinds <= schema.BookingClass.STRICT) & (first >= 0) & (victim >= 0) & (extra != NULL)
    )
    if not len(rows):
        return []
    names = families_of(timeline)
    index = {name: i for i, name in enumerate(dict.fromkeys(names))}
    of_task = np.array([index[name] for name in names], np.int64)
    labels = list(index)
    wakee = wake_columns(timeline, np.concatenate([first[rows], victim[rows]]), ("wakee",))["wakee"]
    a, b = of_task[wakee[: len(rows)]], of_task[wakee[len(rows) :]]
    key = a * len(labels) + b
    cost, ts = numbers(collisions, "attributable_hi_ns"), numbers(collisions, "ts")
    out = []
    for pair in np.unique(key):
        mine = rows[key == pair]
        delays = extra[mine]
        p50, p99 = np.percentile(delays, [50, 99], method="inverted_cdf")
        top = mine[int(delays.argmax())]
        known = cost[mine][cost[mine] != NULL]
        out.append(
            Delayed(
                labels[int(pair) // len(labels)],
                labels[int(pair) % len(labels)],
                len(mine),
                int((kinds[mine] == schema.BookingClass.STRICT_CERTAIN).sum()),
                int(delays.sum()),
                int(p50),
                int(p99),
                int(extra[top]),
                int(ts[top]),
                int(known.sum()) if len(known) else None,
            )
        )
    return sorted(out, key=lambda d: (-d.sum_ns, d.first, d.victim))


def worst(collisions: pa.Table, n: int, *, by_delay: bool = False) -> list[int]:
    """Rows of the strict double bookings that cost the most, one of each victim.

    The most idle time that may be attributable, then the longest extra delay, then the earliest;
    ``by_delay``: by the delay alone.
    """
    kinds, victim = numbers(collisions, "class"), numbers(collisions, "victim", -1)
    extra, cost = (
        numbers(collisions, name, -1) for name in ("extra_delay_ns", "attributable_hi_ns")
    )
    rows = np.flatnonzero((kinds <= schema.BookingClass.STRICT) & (victim >= 0) & (extra > 0))
    if by_delay:
        cost = extra
    order = rows[np.lexsort((rows, -extra[rows], -cost[rows]))]
    _, at = np.unique(victim[order], return_index=True)
    return [int(i) for i in order[np.sort(at)][:n]]
