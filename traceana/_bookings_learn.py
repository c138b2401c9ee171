"""What a capture tells of itself before its bookings are looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from traceana import schema
from traceana._bookings_stretches import NULL, STRETCH_ROWS, Fields, fields_of

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = ["Learnt", "learn"]

#: Fewer migrations than this do not say how long the shortest selection takes; more are not asked.
_FEW, _MANY = 50, 20_000
#: Share of selections, %, below which a duration counts as a slip.
_SHORTEST = 2
#: A wakeup stamped earlier than that before its cause is not told from other disorder, ns.
_SKEW_MOST = 3000
#: So many wakeups that a CPU queued on another one itself prove that they share an LLC (11.5).
_PROVEN = 3
_COLUMNS = (
    "waking_ts", "wakeup_ts", "this_cpu", "placed_cpu", "visible_lo", "kind", "queueing",
)  # fmt: skip

Array = npt.NDArray[Any]


class Learnt(NamedTuple):
    """From the wakeups up to the first 20,000 that moved.

    ``shortest_ns``: the shortest time from sched_waking to sched_migrate_task, -1 where too few are
    seen; how long a selection takes at least is the same whether or not its CPU is another one.
    ``skew_ns``: how far clocks differ, by wakeups that a CPU recorded before their cause on
    another one. ``llc``: int32[cpus], the same number for CPUs that are proven to share an LLC, -1
    for those of which nothing is.
    """

    shortest_ns: int
    skew_ns: int
    llc: Array


def learn(timeline: Timeline) -> Learnt:
    """Look through the begin of a timeline."""
    n_cpus = len(timeline.raw["cpus"])
    took: list[Array] = []
    pairs: Counter[int] = Counter()
    seen = skew = 0
    for w in _decided(timeline):
        moved = np.flatnonzero(w["visible_lo"] > w["waking_ts"])
        if len(moved) > _MANY - seen:
            moved = moved[: _MANY - seen]
            w = {name: column[: moved[-1] + 1] for name, column in w.items()}
        seen += len(moved)
        took.append((w["visible_lo"] - w["waking_ts"])[moved])
        far = (w["queueing"] == schema.Queueing.REMOTE) & (w["wakeup_ts"] != NULL)
        skew = max(skew, int((w["visible_lo"] - w["wakeup_ts"])[far].max(initial=0)))
        this, placed = w["this_cpu"].astype(np.int64), w["placed_cpu"].astype(np.int64)
        near = (w["queueing"] == schema.Queueing.DIRECT) & (this != placed)
        near &= (this >= 0) & (placed >= 0) & (this < n_cpus) & (placed < n_cpus)
        found = (np.minimum(this, placed) * n_cpus + np.maximum(this, placed))[near]
        kinds, often = np.unique(found, return_counts=True)
        pairs.update(dict(zip(kinds.tolist(), often.tolist(), strict=True)))
        if seen >= _MANY:
            break
    shortest = -1
    if seen >= _FEW:
        shortest = int(np.percentile(np.concatenate(took), _SHORTEST, method="lower"))
    return Learnt(shortest, min(skew, _SKEW_MOST), _groups(pairs, n_cpus))


def _decided(timeline: Timeline) -> Iterator[Fields]:
    """The decided wakeups with a waking, some at a time."""
    for chunk in timeline.rows.chunks("wakeups", _COLUMNS):
        for at in range(0, chunk.num_rows, STRETCH_ROWS):
            w: Fields = fields_of(chunk.slice(at, STRETCH_ROWS))
            rows = (w["kind"] == schema.WakeKind.DECIDED) & (w["waking_ts"] != NULL)
            yield {name: column[rows] for name, column in w.items()}


def _groups(pairs: Counter[int], n_cpus: int) -> Array:
    """A number per CPU, equal for those that pairs (a * n_cpus + b) connect."""
    group = np.full(n_cpus, -1, np.int32)
    for pair, often in sorted(pairs.items()):
        if often < _PROVEN:
            continue
        a, b = divmod(pair, n_cpus)
        ends = [int(group[c]) for c in (a, b) if group[c] >= 0]
        name = min(ends, default=min(a, b))
        for end in ends:
            group[group == end] = name
        group[a] = group[b] = name
    return group
