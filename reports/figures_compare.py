"""Figures of a comparison: two distributions over each other, and the differences with intervals.

Side A, the baseline, is black and solid; side B is blue and dashed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana._compare_metrics import IDLE_BINS, METRICS
from traceana._compare_take import EDGES
from traceana.reports.figures import (
    BLACK,
    BLUE,
    INK,
    MUTED,
    RULE,
    areas,
    drawing,
    key,
    light,
    log_time_axis,
    stairs,
)
from traceana.reports.model import Figure
from traceana.reports.words import duration, share

if TYPE_CHECKING:
    from traceana.compare import Comparison, Row

__all__ = ["ecdf", "histogram", "idle_bars", "ratios"]

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

_WORDS = {"queue_delay": "queue delay", "wakeup_latency": "wakeup latency"}
#: EDGES are that many times finer than the bins drawn (ten a decade).
_MERGE = 4
#: Nothing below this is drawn apart, ns.
_LOWEST = 100.0
_DASH = (0, (5, 2))


def _drawn(counts: I64) -> F64:
    """Share of the wakeups per drawn bin."""
    merged = counts.reshape(-1, _MERGE).sum(axis=1)
    first = int(np.searchsorted(EDGES[::_MERGE], _LOWEST * 1.001)) - 1
    out: F64 = np.concatenate([[merged[:first].sum()], merged[first:]]).astype(np.float64)
    shares: F64 = out / max(float(out.sum()), 1.0)
    return shares


def _edges() -> F64:
    edges = EDGES[::_MERGE]
    inner = edges[edges > _LOWEST * 0.999]
    # What lies below, zero among it, has one bin of its own.
    return np.concatenate([[inner[0] / 10**0.1], inner])


def _legend(ax: Any, n: tuple[int, int]) -> None:
    from matplotlib.lines import Line2D

    sides: tuple[tuple[str, Any, str], ...] = (
        (BLACK, "-", f"A, n = {n[0]:,}"),
        (BLUE, _DASH, f"B, n = {n[1]:,}"),
    )
    ax.legend(
        handles=[
            Line2D([], [], color=color, linestyle=dash, label=label) for color, dash, label in sides
        ],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=2,
        frameon=False,
        borderaxespad=0.1,
        handlelength=2.4,
    )


def _both(result: Comparison, latency: str, scope: str) -> tuple[I64, I64] | None:
    a, b = (result.counts(side, scope, latency) for side in "ab")
    return (a, b) if a.sum() and b.sum() else None


def _finding(result: Comparison, latency: str, scope: str) -> str:
    words = _WORDS[latency]
    told = []
    for q, name in (("p50", "Half"), ("p99", "99 %")):
        row = result.row(f"{latency}_{q}", scope)
        if row is not None and row.a is not None and row.b is not None:
            told.append(
                f"{name} have a {words} of up to {duration(row.a)} (A), {duration(row.b)} (B)"
            )
    return "; ".join(told) + "." if told else f"The {words} of both sides."


def histogram(result: Comparison, latency: str, scope: str = "all") -> Figure | None:
    """Log histograms over each other, in shares of each side's wakeups; None without both."""
    found = _both(result, latency, scope)
    if found is None:
        return None
    edges = _edges()
    a, b = (_drawn(counts) for counts in found)
    used = np.flatnonzero(a + b)
    lo = float(edges[max(int(used[0]) - 1, 0)])
    hi = float(edges[min(int(used[-1]) + 2, len(edges) - 1)])
    id_ = f"histogram-{latency.replace('_', '-')}"

    def draw() -> str:
        with drawing(id_, 400, 235) as d:
            ax = d.axes
            areas(ax, stairs(edges, a), MUTED, alpha=0.45)
            ax.stairs(a, edges, color=BLACK, linewidth=1.2)
            ax.stairs(b, edges, color=BLUE, linestyle=_DASH, linewidth=1.6)
            log_time_axis(ax, lo, hi)
            ax.set_ylim(0, 1.08 * float(max(a.max(), b.max())))
            ax.yaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
            ax.grid(axis="y", color=RULE, linewidth=0.7)
            below = a[0] + b[0] > 0
            ax.set_xlabel(_WORDS[latency] + (" (leftmost bar: below 100 ns)" if below else ""))
            ax.set_ylabel("share of the wakeups")
            _legend(ax, (int(found[0].sum()), int(found[1].sum())))
        return d.svg

    return Figure(
        id_,
        f"{_WORDS[latency].capitalize()}, histograms",
        _finding(result, latency, scope),
        "Ten bins per decade.",
        draw,
        data={"edge_ns": light(edges), "a": light(a), "b": light(b)},
    )


def ecdf(result: Comparison, latency: str, scope: str = "all") -> Figure | None:
    """Shares of wakeups up to a duration, over each other; None without both."""
    found = _both(result, latency, scope)
    if found is None:
        return None
    sums = [np.cumsum(c) / c.sum() for c in found]
    used = np.flatnonzero(found[0] + found[1])
    lo = max(float(EDGES[int(used[0])]), _LOWEST)
    hi = float(EDGES[min(int(used[-1]) + 4, len(EDGES) - 1)])
    id_ = f"ecdf-{latency.replace('_', '-')}"
    part = slice(int(used[0]), int(used[-1]) + 1)

    def draw() -> str:
        with drawing(id_, 400, 235) as d:
            ax = d.axes
            for y, color, dash in ((sums[0], BLACK, "-"), (sums[1], BLUE, _DASH)):
                ax.plot(
                    EDGES[1:][part], y[part], color=color, linestyle=dash, drawstyle="steps-pre"
                )
            log_time_axis(ax, min(lo, hi / 2), hi)
            ax.set_ylim(0, 1.02)
            for q in (0.5, 0.99):
                ax.axhline(q, color=INK, linewidth=0.7, linestyle=(0, (2, 2)))
            ax.set_yticks([0, 0.25, 0.5, 0.75, 0.99])
            ax.yaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
            ax.set_xlabel(_WORDS[latency])
            ax.set_ylabel("share of the wakeups up to it")
            _legend(ax, (int(found[0].sum()), int(found[1].sum())))
        return d.svg

    gap = int(np.argmax(np.abs(sums[1] - sums[0])))
    return Figure(
        id_,
        f"{_WORDS[latency].capitalize()}, cumulated",
        f"The curves are furthest apart at {duration(EDGES[gap + 1])}: up to there "
        f"{share(float(sums[0][gap]))} of A's wakeups, {share(float(sums[1][gap]))} of B's.",
        "The further left a line, the shorter the waits. Dotted: 50 and 99 %.",
        draw,
        data={
            "edge_ns": light(EDGES[1:][part]),
            "a": light(sums[0][part]),
            "b": light(sums[1][part]),
        },
    )


def ratios(rows: Sequence[Row]) -> Figure | None:
    """B / A of the figures with an interval of it, on a log axis; None without any."""
    shown = [
        r
        for r in rows
        if r.ratio and r.ratio_lo is not None and r.ratio_hi is not None and r.ratio_hi > 0
    ]
    if not shown:
        return None
    # What is a hundred times more or less is drawn at the edge, with an arrow.
    far = 100.0
    inside = [v for r in shown for v in (r.ratio_lo or 0, r.ratio_hi or 0) if 1 / far < v < far]
    lo = max(min([*inside, 0.8]) / 1.15, 1 / far)
    hi = min(max([*inside, 1.25]) * 1.15, far)
    height = 46 + 15.0 * len(shown)

    def draw() -> str:
        with drawing("ratios", 520, height, left=178, right=70, top=10, bottom=34) as d:
            ax = d.axes
            ax.axvline(1, color=INK, linewidth=0.9)
            for i, r in enumerate(shown):
                y = len(shown) - 1 - i
                assert r.ratio is not None and r.ratio_lo is not None and r.ratio_hi is not None
                x = min(max(r.ratio, lo), hi)
                color = BLUE if r.real else MUTED
                ends = [min(max(v, lo), hi) for v in (r.ratio_lo, r.ratio_hi)]
                ax.plot(ends, [y, y], color=color, linewidth=1.4)
                marker = "o" if lo <= r.ratio <= hi else "<" if r.ratio < lo else ">"
                ax.plot([x], [y], color=color, marker=marker, markersize=5)
                ax.annotate(
                    f"{r.ratio:.3g}",
                    (1.0, y),
                    xycoords=("axes fraction", "data"),
                    xytext=(6, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=9.0,
                )
            ax.set_xscale("log")
            ax.set_xlim(lo, hi)
            ticks = [
                t
                for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
                if lo <= t <= hi
            ]
            ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
            ax.xaxis.minorticks_off()
            ax.grid(axis="x", color=RULE, linewidth=0.7)
            ax.set_ylim(-0.7, len(shown) - 0.3)
            ax.set_yticks(
                range(len(shown)), [METRICS[r.metric].words.strip() for r in reversed(shown)]
            )
            ax.tick_params(axis="y", length=0)
            ax.set_xlabel("B / A")
        return d.svg

    real = sum(r.real for r in shown)
    return Figure(
        "ratios",
        "B as a multiple of A",
        f"{real} of {len(shown)} figures differ (blue dots); the others do not or hardly (grey).",
        "Bars are 95 % intervals; a triangle at the edge lies beyond it. None of these figures "
        "is by itself better or worse to the left or right.",
        draw,
        wide=True,
        data={
            "metric": [r.metric for r in shown],
            "ratio": [r.ratio for r in shown],
            "lo": [r.ratio_lo for r in shown],
            "hi": [r.ratio_hi for r in shown],
        },
    )


def idle_bars(rows: Sequence[Row]) -> Figure | None:
    """The bins of idle time of both sides beside each other; None without any."""
    shown = [r for r in rows if r.metric in IDLE_BINS and max(r.a or 0, r.b or 0) >= 0.0005]
    if not shown:
        return None
    shown.sort(key=lambda r: -max(r.a or 0, r.b or 0))
    height = 60 + 24.0 * len(shown)

    def draw() -> str:
        with drawing("idle-bars", 520, height, left=120, right=60, top=20, bottom=36) as d:
            ax = d.axes
            for i, r in enumerate(shown):
                y = len(shown) - 1 - i
                for value, at, color in ((r.a, y + 0.19, MUTED), (r.b, y - 0.19, BLUE)):
                    ax.barh(at, value or 0, 0.34, color=color)
            ax.set_ylim(-0.6, len(shown) - 0.4)
            ax.set_yticks(
                range(len(shown)),
                [METRICS[r.metric].words.removeprefix("idle: ") for r in reversed(shown)],
            )
            ax.tick_params(axis="y", length=0)
            ax.xaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
            ax.grid(axis="x", color=RULE, linewidth=0.7)
            ax.set_xlabel("share of CPU time")
            key(ax, [("A", MUTED), ("B", BLUE)])
        return d.svg

    most = max(shown, key=lambda r: abs(r.difference or 0))
    return Figure(
        "idle-bars",
        "Idle time by why",
        f"The bin that changes most is {METRICS[most.metric].words.removeprefix('idle: ')}, from "
        f"{share(most.a)} to {share(most.b)} of CPU time.",
        "All bins of a side add up to its idle share.",
        draw,
        wide=True,
        data={
            "bin": [r.metric.removeprefix("idle_") for r in shown],
            "a": [r.a for r in shown],
            "b": [r.b for r in shown],
        },
    )
