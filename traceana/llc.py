"""Which CPUs share an LLC, learnt from how wakeups were queued (section 11.5 of the semantics).

A waker queues the wakee itself (*direct*: sched_wakeup is recorded on the waker's CPU) or leaves it
on the chosen CPU's wakelist (*remote*). With TTWU_QUEUE it leaves it there when the two CPUs share
no cache, and since 5.8 also when the chosen CPU is idle. So a direct wakeup proves that waker's
and chosen CPU share the LLC, and a remote one onto a CPU that was busy all the time that they do
not. Up to 5.7 every remote one does.

Nothing is learnt where no wakeup was remote (TTWU_QUEUE is off, or PREEMPT_RT).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import schema
from traceana.candidates import gap_of

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = ["MOST_CPUS", "Evidence", "Learned", "evidence", "learn"]

#: Pairs are counted in matrices; a damaged file may name CPU 65535.
MOST_CPUS = 2048
#: Observations from which a pair counts as proven (section 11.5).
PROVEN = 3
#: Largest share of contradicting ones that a pair in one LLC may have.
CONTRADICTED = 0.02
#: The chosen CPU has to be busy from so long before the waking on.
MARGIN_NS = 5_000
_WAKE_FIELDS = (
    "kind",
    "waking",
    "wakeup",
    "this_cpu",
    "placed",
    "queueing",
    "nr_placed",
)
NULL = -(2**63)


@dataclass(frozen=True)
class Evidence:
    """Per unordered pair of CPUs (int64[n, n], symmetric): what speaks for and against one LLC."""

    same: npt.NDArray[np.int64]
    different: npt.NDArray[np.int64]

    def together(self) -> npt.NDArray[np.bool_]:
        """Pairs proven to share the LLC."""
        d, x = self.same, self.different
        return np.asarray((d >= PROVEN) & (x <= CONTRADICTED * (d + x)))

    def apart(self) -> npt.NDArray[np.bool_]:
        """Pairs proven not to."""
        return np.asarray((self.different >= PROVEN) & (self.same == 0))

    def disagreeing(self, llc: npt.NDArray[np.int32]) -> list[tuple[int, int, bool]]:
        """Pairs (a, b, share) whose evidence a given LLC per CPU (int32[n]) contradicts."""
        n = min(len(llc), len(self.same))
        given = llc[:n, None] == llc[None, :n]
        wrong = (self.together()[:n, :n] & ~given) | (self.apart()[:n, :n] & given)
        return [
            (int(a), int(b), bool(self.together()[a, b])) for a, b in np.argwhere(np.triu(wrong, 1))
        ]


@dataclass(frozen=True)
class Learned:
    """LLCs as learnt.

    ``llc``: int32[n], a group per CPU, -1 for CPUs of which nothing is known. ``complete``: every
    CPU that was seen has a group, and every two groups are proven to be apart. ``confidence``: of
    the weakest pair that it rests on. ``contradictions``: pairs with proof of both.
    """

    llc: npt.NDArray[np.int32]
    complete: bool
    confidence: float
    contradictions: int

    @property
    def groups(self) -> int:
        return int(self.llc.max(initial=-1)) + 1


def evidence(timeline: Timeline) -> Evidence:
    """Count direct and remote wakeups per pair of CPUs.

    Takes decided wakeups onto another CPU than the waker's; needs sched_waking and sched_wakeup.
    """
    w, n = _fields(timeline, "wakeups", _WAKE_FIELDS), len(timeline.raw["cpus"])
    none = np.zeros((n, n), np.int64)
    rows = np.flatnonzero(
        (w["kind"] == schema.WakeKind.DECIDED)
        & (w["waking"] != NULL)
        & (w["wakeup"] != NULL)
        & (w["this_cpu"] >= 0)
        & (w["placed"] >= 0)
        & (w["this_cpu"] != w["placed"])
        & (w["placed"] < n)
        & (w["this_cpu"] < n)
    )
    this, placed, how = w["this_cpu"][rows], w["placed"][rows], w["queueing"][rows]
    remote = how == schema.Queueing.REMOTE
    if not remote.any():
        return Evidence(none, none)
    told = remote
    if not 0 < timeline.kernel < 5008:
        told = remote & (w["nr_placed"][rows] >= 1)
        maybe = np.flatnonzero(told)
        if len(maybe):
            lo, hi = w["waking"][rows[maybe]] - MARGIN_NS, w["wakeup"][rows[maybe]]
            told[maybe] = (
                gap_of(_fields(timeline, "gaps", ("cpu", "start", "end")), placed[maybe], lo, hi)
                < 0
            )
    direct = how == schema.Queueing.DIRECT
    return Evidence(_pairs(this[direct], placed[direct], n), _pairs(this[told], placed[told], n))


def _fields(timeline: Timeline, name: str, fields: Sequence[str]) -> Any:
    """Fields of the timeline's rows, without the others where that is possible."""
    some = getattr(timeline.raw, "fields", None)
    return timeline.raw[name] if some is None else some(name, fields)


def _pairs(a: Any, b: Any, n: int) -> npt.NDArray[np.int64]:
    counts = np.bincount(a.astype(np.int64) * n + b, minlength=n * n).reshape(n, n)
    return np.asarray(counts + counts.T)


def learn(found: Evidence, seen: npt.NDArray[np.bool_]) -> Learned:
    """Groups of CPUs that share an LLC.

    Parameters
    ----------
    found : Evidence
    seen : bool[n]
        CPUs with events of their own: all of them need a group for the answer to be complete.
    """
    n = len(found.same)
    together, apart = found.together(), found.apart()
    group = np.arange(n)
    for a, b in np.argwhere(np.triu(together, 1)):
        group[group == group[b]] = group[a]
    known = together.any(axis=1) | apart.any(axis=1)
    llc = np.full(n, -1, np.int32)
    names: dict[int, int] = {}
    for cpu in np.flatnonzero(known):
        llc[cpu] = names.setdefault(int(group[cpu]), len(names))
    weakest = [int(found.same[cpu][together[cpu]].max(initial=0)) for cpu in np.flatnonzero(known)]
    complete = not bool((seen & ~known).any()) and bool(seen.any())
    contradictions = int(
        np.triu((found.same >= PROVEN) & (found.different >= PROVEN) & ~together, 1).sum()
    )
    for g in range(len(names)):
        for h in range(g):
            mine, theirs = llc == g, llc == h
            told = int(found.different[np.ix_(mine, theirs)].sum())
            complete &= bool(apart[np.ix_(mine, theirs)].any()) and not bool(
                found.same[np.ix_(mine, theirs)].any()
            )
            weakest.append(told)
    weakest = [v for v in weakest if v] or [0]
    pairs = int(np.triu((found.same + found.different) > 0, 1).sum())
    damping = 1 - contradictions / max(pairs, 1)
    return Learned(llc, complete, (1 - 2.0 ** -min(min(weakest), 20)) * damping, contradictions)
