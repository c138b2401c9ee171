"""Figures of the rules: changes of the latencies with intervals, idle time moved between CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from traceana.reports.context import Context
from traceana.reports.figures import BLUE, INK, LINES, MUTED, RULE, VERMILLION, drawing
from traceana.reports.model import Figure
from traceana.reports.words import duration, interval, signed

if TYPE_CHECKING:
    from traceana.whatif import RuleResult

__all__ = ["idle_per_cpu", "latency_changes"]

_ROWS = (("queue_delay_ns", "p50"), ("queue_delay_ns", "p90"), ("queue_delay_ns", "p99"))
_MARKERS = ("o", "s", "D", "^", "v", "P")


def latency_changes(rules: list[RuleResult]) -> Figure:
    """Change of the queue delay's percentiles per rule: a dot and its interval."""
    rows: list[tuple[str, Any] | None] = []
    for r in rules:
        rows += [(f"{r.rule} {q}", getattr(r, key)[q]) for key, q in _ROWS if q in getattr(r, key)]
        rows.append(None)
    rows.pop()
    shown = [f for row in rows if row for f in (row[1],) if f.delta is not None]
    far = max((abs(v) for f in shown for v in (f.delta, *(f.delta_interval or ()))), default=1.0)
    scale, unit = next(((s, u) for s, u in ((1e6, "ms"), (1e3, "µs")) if far >= s), (1.0, "ns"))

    def draw() -> str:
        with drawing("rule-latency", 400, 50 + 17 * len(rows), left=104, right=62, top=8) as d:
            ax = d.axes
            ax.axvline(0, color=INK, linewidth=0.9)
            for i, row in enumerate(rows):
                if row is None or row[1].delta is None:
                    continue
                f = row[1]
                lo, hi = f.delta_interval or (f.delta, f.delta)
                color = BLUE if hi < 0 else VERMILLION if lo > 0 else MUTED
                arrow = "▼ " if hi < 0 else "▲ " if lo > 0 else ""
                ax.plot(
                    [lo / scale, hi / scale],
                    [i, i],
                    color=color,
                    linewidth=2.2,
                    solid_capstyle="butt",
                )
                ax.plot(
                    [f.delta / scale],
                    [i],
                    color=color,
                    linestyle="none",
                    marker="v" if hi < 0 else "^" if lo > 0 else "o",
                    markersize=5.5,
                )
                ax.annotate(
                    f"{arrow}{signed(f.delta)}",
                    (1.01, i),
                    xycoords=("axes fraction", "data"),
                    va="center",
                    fontsize=9.0,
                    annotation_clip=False,
                )
            ax.set_ylim(len(rows) - 0.4, -0.6)
            labelled = [(i, row[0]) for i, row in enumerate(rows) if row]
            ax.set_yticks([i for i, _ in labelled], [label for _, label in labelled])
            ax.tick_params(axis="y", length=0)
            ax.grid(axis="x", color=RULE, linewidth=0.7)
            ax.spines["left"].set_visible(False)
            ax.margins(x=0.06)
            ax.set_xlabel(f"change of the queue delay, {unit} (estimated, open loop)")
        return d.svg

    said = [
        f"{r.rule}: p99 {signed(f.delta)} {interval(*(f.delta_interval or (None, None)))}"
        for r in rules
        for f in (r.queue_delay_ns.get("p99"),)
        if f is not None and f.delta is not None
    ]
    return Figure(
        "rule-latency",
        "Queue delay: estimated minus recorded",
        "; ".join(said) + ".",
        f"Dot: change; bar: its 95 % interval; n = {rules[0].decisions:,} decided wakeups. "
        "▼ blue: shorter, ▲ vermillion: longer, grey: the interval contains 0.",
        draw,
    )


def idle_per_cpu(ctx: Context, rules: list[RuleResult]) -> Figure:
    """Idle time that each rule would have moved from CPU to CPU."""
    n = ctx.tl.cpus.num_rows
    order = ctx.cpu_order
    place = {cpu: i for i, cpu in enumerate(order)}
    far = max((abs(v) for r in rules for v in r.idle_delta_ns.values()), default=1)
    scale, unit = next(((s, u) for s, u in ((1e6, "ms"), (1e3, "µs")) if far >= s), (1.0, "ns"))

    def draw() -> str:
        with drawing("rule-idle", 400, 245) as d:
            ax = d.axes
            ax.axhline(0, color=INK, linewidth=0.9)
            for k, r in enumerate(rules[: len(LINES)]):
                x = np.array([place[c] for c in order]) + 0.16 * (k - (len(rules) - 1) / 2)
                y = np.array([r.idle_delta_ns.get(c, 0) for c in order]) / scale
                ax.plot(
                    x,
                    y,
                    color=LINES[k][0],
                    linestyle="none",
                    marker=_MARKERS[k],
                    markersize=5 if n <= 32 else 2.5,
                    label=r.rule,
                )
            step = max(1, -(-n // 16))
            ax.set_xticks(range(0, n, step), [str(c) for c in order[::step]])
            ax.set_xlabel("CPU, in the order of the topology")
            ax.set_ylabel(f"change of idle time, {unit}")
            ax.grid(axis="y", color=RULE, linewidth=0.7)
            ax.legend(
                frameon=False,
                loc="lower left",
                bbox_to_anchor=(-0.12, 1.0),
                ncols=len(rules),
                handletextpad=0.1,
                columnspacing=0.9,
                borderaxespad=0.1,
            )
        return d.svg

    said = []
    for r in rules:
        if r.idle_delta_ns:
            cpu = max(r.idle_delta_ns, key=lambda c: abs(r.idle_delta_ns[c]))
            said.append(f"{r.rule}: most on CPU {cpu}, {signed(r.idle_delta_ns[cpu])}")
    return Figure(
        "rule-idle",
        "Idle time moved between CPUs (estimated, open loop)",
        "; ".join(said) + ".",
        f"Adds up to 0 over all CPUs for each rule; the span is {duration(ctx.span_ns)}.",
        draw,
        data={r.rule: {str(c): v for c, v in sorted(r.idle_delta_ns.items())} for r in rules},
    )
