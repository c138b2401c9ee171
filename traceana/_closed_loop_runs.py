"""Runs of the model: one that is measured, or many at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from traceana._closed_loop_figures import Figures, Several, measure
from traceana._closed_loop_reader import as_capture
from traceana._closed_loop_settled import AT_REST, LEAST_WARM_UP_NS, scattered
from traceana._sim_state import Op
from traceana.columns import EventColumns
from traceana.simulate import Model, Simulation, simulate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traceana.capture import Capture
    from traceana.workload import Workload

__all__ = ["Jobs", "Progress", "bursts_per_s", "recorded_bursts", "run_once"]

_SLEEPS = (Op.BLOCK, Op.NAP, Op.UNTIL, Op.RECV)

Progress = Callable[[int, int], None]


def bursts_per_s(work: Workload) -> float | None:
    """Bursts that ended in a sleep (or would have, but for an early token), as recorded."""
    if not work.span_ns:
        return None
    return float(recorded_bursts(work).sum()) * 1e9 / work.span_ns


def recorded_bursts(work: Workload) -> NDArray[Any]:
    """Bursts of each task that ended in a sleep (or would have), as recorded (int64[tasks])."""
    seen = np.isin(work.script["code"], _SLEEPS)
    if len(work.when) == len(work.script):
        seen &= work.when[:, 0] > -(1 << 62)
    upto = np.append(0, np.cumsum(seen))
    return np.asarray(upto[work.tasks["end"]] - upto[work.tasks["first"]])


def run_once(
    work: Workload,
    model: Model,
    *,
    seed: int = 1,
    begin_ns: int = 0,
    span_ns: int,
    warm_up_ns: int = 0,
    truth_rows: int = 1 << 16,
    bursts_per_s: float | None = None,
    on_progress: Progress | None = None,
) -> tuple[Figures, Simulation, Capture]:
    """Simulate once and measure what lies behind the warm-up.

    Parameters
    ----------
    truth_rows : room for double bookings in the run's truth, the warm-up's, too
    bursts_per_s : what counts as a progress of 1; None: progress is not known
    """
    since = begin_ns + warm_up_ns
    end = since + span_ns
    any_work: Any = work  # frozen: its fields cannot be set, which the protocol would allow
    run = simulate(
        any_work,
        model,
        seed=seed,
        begin_ns=begin_ns,
        end_ns=end,
        truth_rows=truth_rows,
        on_progress=on_progress,
    )
    kept: list[EventColumns] = []
    from_ns, done = begin_ns, (0, 0)
    for batch in run.batches():
        if batch.ts[-1] >= since:
            if not kept and batch.ts[0] < since:
                batch = batch.take(slice(int(np.searchsorted(batch.ts, since)), None))
            kept.append(batch)
        else:
            from_ns, done = int(batch.ts[-1]), _done(run)
    if since - from_ns > span_ns // 8:
        # The same seed does the same: what had been done when the warm-up was over.
        early = simulate(any_work, model, seed=seed, begin_ns=begin_ns, end_ns=since)
        for _ in early.batches():
            pass
        from_ns, done = since, _done(early)
    seconds = (end - from_ns) / 1e9
    bursts, steps = (now - then for now, then in zip(_done(run), done, strict=True))
    cap = as_capture(EventColumns.concat(kept), work, model, extra={"seed": seed})
    has_steps = bool((work.script["code"] == Op.STEP).any())
    figures = measure(
        cap,
        progress=bursts / seconds / bursts_per_s if bursts_per_s else None,
        steps_per_s=steps / seconds if has_steps else None,
    )
    return figures, run, cap


def _done(run: Simulation) -> tuple[int, int]:
    """Bursts and steps that are done."""
    return int(run.live["bursts"].sum()), int(run.live["steps"].sum())


class Jobs:
    """Runs that are done at once, as many as there are CPUs: the kernels hold no lock."""

    def __init__(self, work: Workload, span_ns: int, warm_up_ns: int, bursts: float | None) -> None:
        self.work, self.span_ns, self.warm_up_ns = work, span_ns, warm_up_ns
        self.bursts = bursts
        self.groups: list[list[tuple[Model, int, bool, tuple[int, int] | None]]] = []

    def add(self, model: Model, seeds: Sequence[int], *, warm: bool, scatter: bool = False) -> None:
        """Add a group of runs: behind the warm-up or not, from other starts or not."""
        n = len(seeds)
        self.groups.append(
            [(model, seed, warm, (i, n) if scatter else None) for i, seed in enumerate(seeds)]
        )

    def _warm_up(self, *, warm: bool, scatter: bool) -> int:
        if scatter:
            return max(self.warm_up_ns, LEAST_WARM_UP_NS)
        return self.warm_up_ns if warm else 0

    def run(self, on_progress: Progress | None) -> list[Several]:
        """Do all; a result per group."""
        flat = [job for group in self.groups for job in group]
        bar = _Bar(len(flat), on_progress)

        def one(i: int) -> Figures:
            model, seed, warm, start = flat[i]
            work = self.work
            if start is not None:
                work = scattered(work, seed, *start)
                model = model.with_(**AT_REST)
            figures, _, _ = run_once(
                work,
                model,
                seed=seed,
                begin_ns=self.work.begin_ns,
                span_ns=self.span_ns,
                warm_up_ns=self._warm_up(warm=warm, scatter=start is not None),
                bursts_per_s=self.bursts,
                on_progress=bar.of(i, self.work.begin_ns),
            )
            return figures

        # The first one alone: it compiles what is not in the cache.
        done = [one(0)]
        with ThreadPoolExecutor(_workers(len(flat))) as pool:
            done += list(pool.map(one, range(1, len(flat))))
        out, at = [], 0
        for group in self.groups:
            out.append(Several(done[at : at + len(group)]))
            at += len(group)
        return out


class _Bar:
    """One progress of many runs at once."""

    def __init__(self, runs: int, progress: Progress | None) -> None:
        self._done = [0.0] * runs
        self._progress = progress
        self._lock = threading.Lock()

    def of(self, i: int, begin: int) -> Progress:
        """Return what run i calls with its simulated instant and its end."""

        def call(now: int, end: int) -> None:
            with self._lock:
                self._done[i] = min(max((now - begin) / max(end - begin, 1), 0.0), 1.0)
                if self._progress is not None:
                    self._progress(int(1e6 * sum(self._done)), int(1e6 * len(self._done)))

        return call


def _workers(jobs: int) -> int:
    return max(1, min(jobs, len(os.sched_getaffinity(0))))
