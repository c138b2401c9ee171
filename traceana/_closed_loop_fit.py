"""How many messages leave no event, and how many may be under way: as the model sleeps alike.

Of groups of tasks that exchange messages (``_workload_channels``) both numbers are inferred from
their sleeps, and err where writers and readers wait for each other, or for a CPU. So runs of the
model under the recorded rule are held against the recording, and both numbers are changed until
the tasks get done as much (progress 1) and sleep as often as they did. What is told of these tasks'
sleeps under the recorded rule is therefore a fit; what another rule does to them is not. A fit that
spoils the tail of the queue delays is none: it makes up for something else that the model lacks.

Groups of like size in one capture are taken for the same program.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from traceana import schema
from traceana._closed_loop_runs import Progress, recorded_bursts, run_once

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from traceana._workload_channels import Traffic
    from traceana.calibrate import Calibration
    from traceana.capture import Capture
    from traceana.workload import Workload

__all__ = ["Shown", "fit", "fitted", "said", "sleeps_across"]

Size = tuple[int, int]
#: Runs of the model at most, and how many in a row that bring nothing.
_ROUNDS, _IN_VAIN = 8, 3
#: What a run simulates at most, ns.
_SPAN_NS = 50_000_000
#: Near enough: |log| of progress, and of the sleeps of both sides together.
_NEAR = (0.01, 0.03)
#: Room shrinks with what is lacking in sleeps a message, and in those of each side, which may
#: be none at all; more messages for the same work take more time in all.
_BY_SLEEPS, _BY_SIDE, _BY_PROGRESS = 0.35, 0.1, 0.7
#: No more than so much (log) is changed at once.
_STEP = 0.5


@dataclass(frozen=True)
class Shown:
    """What a run shows: of each pid, sleeps that a task of the other group ended, and progress
    (1: as much as recorded); and the 99th percentile of the queue delay, ns.
    """

    slept: Mapping[int, int]
    progress: Mapping[int, float]
    tail: float | None


@dataclass(frozen=True)
class _Apart:
    """How far a run is from the recording: log of progress, of sleeps, and of either side's."""

    progress: float
    sleeps: float
    sides: tuple[float, float]

    @property
    def far(self) -> float:
        return abs(self.progress) + abs(self.sleeps) / 2

    @property
    def near(self) -> bool:
        return abs(self.progress) < _NEAR[0] and abs(self.sleeps) < _NEAR[1]


def fit(
    cap: Capture,
    work: Workload,
    machine: Calibration,
    tail: float | None,
    on_progress: Progress | None = None,
) -> Workload:
    """The workload of a capture whose run on its machine comes nearest to the recording.

    ``tail``: the recorded 99th percentile of the queue delay, ns.
    """
    from traceana.workload import extract

    model = machine.model()
    span = min(work.span_ns, _SPAN_NS)
    rounds = 0

    def again(now: Workload) -> Shown:
        nonlocal rounds
        if on_progress is not None:
            on_progress(rounds, _ROUNDS)
        rounds += 1
        figures, run, seen = run_once(now, model, begin_ns=now.begin_ns, span_ns=span)
        due = recorded_bursts(now) * span / now.span_ns
        n = len(now.tasks)
        done = run.live["bursts"][:n] / np.maximum(due, 1e-9)
        progress = dict(zip(now.tasks["pid"].tolist(), done.tolist(), strict=True))
        return Shown(sleeps_across(seen, now.traffic), progress, figures.queue_delay_ns.get("p99"))

    with cap.quietly():
        return fitted(
            work, again, lambda known: extract(cap, known=known), tail, span / work.span_ns
        )


def said(work: Workload) -> str:
    """What was made of its messages, in words."""
    rooms = " or ".join(dict.fromkeys(f"{t.room:.1f}" for t in work.traffic))
    if all(t.scale == 1 for t in work.traffic):
        how = "as their sleeps tell; no other numbers came nearer to the recording"
    else:
        factors = " or ".join(dict.fromkeys(f"{t.scale:.2f}" for t in work.traffic))
        how = (
            f"{factors} times what their sleeps tell; both set so that the model's run sleeps as "
            "often as the recording (a fit)"
        )
    return (
        "most messages between tasks leave no event: how many there were and how many a writer has "
        f"under way at most ({rooms}) is inferred, {how}"
    )


def sleeps_across(cap: Capture, traffic: Sequence[Traffic]) -> Counter[int]:
    """Of each pid, how many wakeups a task of the other group did."""
    timeline = cap.timeline()
    w, pid = timeline.raw["wakeups"], timeline.raw["tasks"]["pid"]
    side = {p: (i, j) for i, t in enumerate(traffic) for j in (0, 1) for p in t.sides[j]}
    tasks = (w["wakee"] >= 0) & (w["current"] >= 0) & (w["context"] == schema.WakeContext.TASK)
    out: Counter[int] = Counter()
    for wakee, waker in zip(
        pid[w["wakee"][tasks]].tolist(), pid[w["current"][tasks]].tolist(), strict=True
    ):
        a, b = side.get(wakee), side.get(waker)
        if a is not None and b is not None and a[0] == b[0] and a[1] != b[1]:
            out[wakee] += 1
    return out


def fitted(
    work: Workload,
    again: Callable[[Workload], Shown],
    extract: Callable[[list[Traffic]], Workload],
    tail: float | None = None,
    part: float = 1.0,
) -> Workload:
    """The workload whose run comes nearest to what was recorded of its messages.

    Parameters
    ----------
    work : Workload
        As extracted; given back as it is where no groups exchange messages.
    again : a run under the recorded rule
    extract : the workload anew, with what is known better
    tail : the recorded 99th percentile of the queue delay, ns
    part : how much of the recording `again` covers
    """
    kinds: dict[Size, list[Traffic]] = defaultdict(list)
    for one in work.traffic:
        kinds[_size(one)].append(one)
    rooms = {size: sorted(t.room for t in some)[len(some) // 2] for size, some in kinds.items()}
    scales = dict.fromkeys(kinds, 1.0)
    best, least, now, vain = work, math.inf, work, 0
    for _ in range(_ROUNDS if kinds else 0):
        shown = again(now)
        apart = {size: _apart(some, shown, part) for size, some in kinds.items()}
        far = sum(a.far for a in apart.values())
        if tail and shown.tail:
            far += abs(math.log(shown.tail / tail)) / 4
        vain += 1
        if far < least:
            best, least, vain = now, far, 0
        if vain >= _IN_VAIN or all(a.near for a in apart.values()):
            break
        for size, a in apart.items():
            change = _BY_SLEEPS * (a.sleeps - a.progress) + _BY_SIDE * sum(a.sides)
            rooms[size] = max(rooms[size] * math.exp(_bounded(change)), 1.0)
            scales[size] *= math.exp(_bounded(_BY_PROGRESS * a.progress))
        now = extract(
            [replace(t, room=rooms[_size(t)], scale=scales[_size(t)]) for t in work.traffic]
        )
    return best


def _size(t: Traffic) -> Size:
    return len(t.sides[0]), len(t.sides[1])


def _apart(some: Sequence[Traffic], shown: Shown, part: float) -> _Apart:
    now = [sum(shown.slept.get(p, 0) for t in some for p in t.sides[i]) for i in (0, 1)]
    then = [part * sum(t.slept[i] for t in some) for i in (0, 1)]
    pids = [p for t in some for side in t.sides for p in side]
    progress = sum(shown.progress.get(p, 0.0) for p in pids) / len(pids)
    return _Apart(
        math.log(max(progress, 1e-3)),
        _ratio(sum(now), sum(then)),
        (_ratio(now[0], then[0]), _ratio(now[1], then[1])),
    )


def _ratio(now: float, then: float) -> float:
    # One more of both: of few, none is not infinitely less.
    return max(math.log((now + 1) / (then + 1)), -4.0)


def _bounded(x: float) -> float:
    return min(max(x, -_STEP), _STEP)
