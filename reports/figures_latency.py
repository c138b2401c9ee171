"""Figures of the latencies: log histograms by target, tails by workload."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana.reports.context import NULL, Context
from traceana.reports.figures import (
    LINES,
    ORANGE,
    RULE,
    SKY,
    areas,
    drawing,
    key,
    light,
    log_time_axis,
    mark,
    stairs,
)
from traceana.reports.model import Figure
from traceana.reports.stats import Spread, log_edges, log_histogram, spread
from traceana.reports.words import duration

__all__ = ["histogram", "tails"]


def histogram(ctx: Context, name: str, words: str, s: Spread) -> Figure:
    """A latency's log histogram, stacked by idle and busy target, percentiles marked."""
    w = ctx.wakes
    values = w[name]
    known = values != NULL
    idle = known & (w["placed_idle"] == 1)
    edges = log_edges(values[known])
    first, below_idle = log_histogram(values[idle], edges)
    second, below_busy = log_histogram(values[known & ~idle], edges)
    below = below_idle + below_busy
    used = np.flatnonzero(first + second)
    lo = 10 ** np.floor(np.log10(edges[used[0]]) + 1e-9) if len(used) else edges[0]
    if below:  # a bin of its own for zero and what is nearly zero
        lo = edges[0] / 10**0.3
        extra = edges[0] / 10**0.1
        edges = np.concatenate([[extra], edges])
        first, second = (
            np.concatenate([[below_idle], first]),
            np.concatenate([[below_busy], second]),
        )

    def draw() -> str:
        with drawing(name.removesuffix("_ns").replace("_", "-"), 400, 245) as d:
            ax = d.axes
            areas(ax, stairs(edges, first), SKY)
            areas(ax, stairs(edges, first + second, first), ORANGE)
            marks = [(q, max(v, int(edges[0]))) for q, v in _marks(s)]
            # Room for the last mark's label, a quarter of the width.
            room = lo * (marks[-1][1] / lo) ** (1 / 0.74)
            log_time_axis(ax, float(lo), float(max(edges[-1], room)))
            ax.set_ylim(0, 1.45 * float((first + second).max()))
            ax.yaxis.set_major_locator(_whole())
            ax.yaxis.set_major_formatter(lambda v, _: f"{v:,.0f}")
            ax.set_xlabel(words + (" (leftmost bar: below 100 ns)" if below else ""))
            ax.set_ylabel("wakeups")
            mark(
                ax,
                [
                    (f"{q} {duration(v)}", float(x))
                    for (q, v), (_, x) in zip(_marks(s), marks, strict=True)
                ],
            )
            key(ax, [("idle target", SKY), ("busy target", ORANGE)])
        return d.svg

    return Figure(
        name.removesuffix("_ns").replace("_", "-"),
        words.capitalize(),
        f"Half of the {s.n:,} wakeups have a {words} of up to {duration(s.p50)}, 99 % up to "
        f"{duration(s.p99)}, 99.9 % up to {duration(s.p999)}; the longest is {duration(s.max)}.",
        "Ten bins per decade.",
        draw,
        data={
            "edge_ns": light(edges),
            "idle_target": light(first, 9),
            "busy_target": light(second, 9),
        },
    )


def _marks(s: Spread) -> list[tuple[str, int]]:
    return [(q, v) for q, v in (("p50", s.p50), ("p99", s.p99), ("p99.9", s.p999)) if v is not None]


def _whole() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(5, integer=True)


def tails(ctx: Context, name: str, words: str) -> Figure | None:
    """Share of wakeups that took longer, per workload, on two log axes; None without two."""
    values = ctx.wakes[name]
    scopes = [s for s in ctx.workloads if spread(values, ctx.of_wakees(s)).n >= 2]
    if len(scopes) < 2:
        return None
    curves = []
    for scope in scopes:
        part = values[ctx.of_wakees(scope)]
        part = np.sort(part[part != NULL])
        curves.append((scope.label, len(part), int(part[-1]), *_tail(part)))
    lo = max(min(float(c[3][0]) for c in curves), 100.0)
    hi = max(c[2] for c in curves)
    least = min(1 / c[1] for c in curves)

    def draw() -> str:
        with drawing("tails", 400, 245, left=62, top=8) as d:
            ax = d.axes
            for (*_, x, y), (color, dash) in zip(curves, LINES, strict=False):
                ax.plot(x, y, color=color, linestyle=dash, drawstyle="steps-post")
            ax.set_yscale("log")
            decades = np.floor(np.log10(lo)), np.ceil(np.log10(hi + 1))
            log_time_axis(ax, *(float(10**d) for d in decades))
            ax.set_ylim(10 ** np.floor(np.log10(least)), 1.3)
            ax.yaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
            ax.yaxis.minorticks_off()
            ax.grid(axis="y", color=RULE, linewidth=0.7)
            ax.set_xlabel(words)
            ax.set_ylabel("share of wakeups that took longer")
            # Names are set afterwards: a label that begins with "_" would not be shown.
            legend = ax.legend(
                ax.lines, ["x"] * len(curves), frameon=False, loc="lower left", handlelength=2.6
            )
            for text, (label, *_) in zip(legend.get_texts(), curves, strict=True):
                text.set_text(label)
        return d.svg

    worst = max(curves, key=lambda c: c[2])
    return Figure(
        "tails",
        f"Tails of the {words} by workload",
        f"The longest tail is that of {worst[0]}, up to {duration(worst[2])}.",
        "A line that ends lower and further right has rarer and longer waits. "
        + "; ".join(f"{label}: n = {n:,}" for label, n, *_ in curves)
        + ".",
        draw,
    )


def _tail(ordered: Any) -> tuple[Any, Any]:
    """Durations and the share of wakeups that took longer, closer together towards the tail."""
    n = len(ordered)
    longer = np.unique(np.geomspace(1, n - 1, 160).astype(np.int64))[::-1]
    x = np.concatenate([ordered[:1], ordered[n - 1 - longer], ordered[-1:]])
    return x, np.concatenate([[1.0], longer / n, [1 / n]])
