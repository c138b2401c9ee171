"""The two figures of idle time: a lane per CPU over time, and the lengths of the gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana.reports.context import Context, column
from traceana.reports.figures import (
    MUTED,
    RULE,
    SKY,
    VERMILLION,
    areas,
    drawing,
    key,
    light,
    log_time_axis,
    stairs,
)
from traceana.reports.model import Figure
from traceana.reports.stats import log_edges, log_histogram, per_bin
from traceana.reports.words import duration, moment, share

if TYPE_CHECKING:
    from traceana.reports.gaps import Gaps

__all__ = ["gap_lengths", "lanes"]

#: More lanes than this are drawn by core, then by LLC, then in groups of CPUs.
MOST_LANES = 64
#: Points of all lanes together, which bounds the size of the SVG.
MOST_POINTS = 6000


def _groups(ctx: Context) -> tuple[str, list[tuple[str, list[int], bool]]]:
    """Lanes in topology order: (what a lane is, [(label, CPUs, whether a new LLC begins)])."""
    n = ctx.tl.cpus.num_rows
    arrays, order = ctx.machine, ctx.cpu_order
    if n <= MOST_LANES:
        what, key = "CPU", {c: c for c in order}
    elif arrays.n_cores <= MOST_LANES:
        what, key = "core", {c: int(arrays.core[c]) for c in order}
    elif 8 <= arrays.n_llc <= MOST_LANES:
        what, key = "LLC", {c: int(arrays.llc[c]) for c in order}
    else:
        size = -(-n // MOST_LANES)
        what, key = "CPUs", {c: i // size for i, c in enumerate(order)}
    lanes: dict[int, list[int]] = {}
    for c in order:
        lanes.setdefault(key[c], []).append(c)
    out: list[tuple[str, list[int], bool]] = []
    before = -1
    for cpus in lanes.values():
        llc = int(arrays.llc[cpus[0]])
        if what == "CPU":
            label = str(cpus[0])
        elif what == "CPUs":
            label = f"{cpus[0]}…" if len(cpus) > 1 else str(cpus[0])
        else:
            label = ",".join(map(str, cpus)) if len(cpus) <= 2 else f"{cpus[0]}…"
        out.append((label, cpus, llc != before and before >= 0))
        before = llc
    return what, out


@dataclass(frozen=True)
class _Lane:
    """Shares of each time bin; None for a lane none of whose CPUs recorded an event."""

    label: str
    #: Whether an LLC begins here that is not the one above.
    new_llc: bool
    busy: npt.NDArray[np.float64] | None
    stuck: npt.NDArray[np.float64] | None


def _lanes(ctx: Context, gaps: Gaps, edges: npt.NDArray[np.float64]) -> tuple[str, list[_Lane]]:
    """Lanes in the order of the topology, over bins of ns since the first event."""
    what, groups = _groups(ctx)
    first = ctx.tl.first_ts
    width = edges[1] - edges[0]
    start, end = gaps.start - first, gaps.end - first
    heard = column(ctx.tl.cpus, "events") > 0
    begin = column(ctx.tl.cpus, "begin") - first
    out = []
    for label, cpus, new_llc in groups:
        live = [c for c in cpus if heard[c]]
        if not live:
            out.append(_Lane(label, new_llc, None, None))
            continue
        mine = np.flatnonzero(np.isin(gaps.cpu, live))
        a, b, room = start[mine], end[mine], width * len(live)
        idle = per_bin(a, b, (b - a).astype(float), edges) / room
        stuck = per_bin(a, b, gaps.stuck_ns[mine].astype(float), edges) / room
        known = np.zeros(len(edges) - 1)
        for c in live:
            known += np.clip((edges[1:] - max(int(begin[c]), 0)) / width, 0, 1) / len(live)
        busy = np.clip(known - idle, 0, 1)
        out.append(_Lane(label, new_llc, busy, np.clip(stuck, 0, 1 - busy)))
    return what, out


def lanes(ctx: Context, gaps: Gaps) -> Figure:
    """Busy, idle and idle-while-somebody-waited per CPU over time."""
    first, last = ctx.tl.first_ts, ctx.tl.last_ts
    bins = int(np.clip(MOST_POINTS // max(ctx.tl.cpus.num_rows, 1), 60, 300))
    edges = np.linspace(0.0, max(last - first, 1), bins + 1)
    what, rows = _lanes(ctx, gaps, edges)
    width = round(float(edges[1] - edges[0]))
    # Long times of day would not fit under the axis.
    origin = first if first > 10**15 else 0
    idlest, busiest = _ends(ctx)
    stuck_share = int(gaps.stuck_ns.sum()) / max(gaps.idle_ns, 1)
    return Figure(
        "lanes",
        f"Busy and idle time of each {what} from {moment(first)} on",
        f"{busiest} {idlest} During {share(stuck_share)} of the idle time a task stood behind a "
        "running one in the same LLC.",
        f"Height of a lane = share of {duration(width)}. The empty part is idle with nobody "
        "stuck. Time waited within a gap is spread evenly over it.",
        lambda: _draw_lanes(what, rows, (edges + (first - origin)) / 1e9, origin),
        wide=True,
        data={
            "bin_ns": width,
            "lanes": [
                {
                    "label": lane.label,
                    "busy": None if lane.busy is None else light(lane.busy, 3),
                    "stuck": None if lane.stuck is None else light(lane.stuck, 3),
                }
                for lane in rows
            ],
        },
    )


def _draw_lanes(what: str, rows: list[_Lane], seconds: npt.NDArray[np.float64], origin: int) -> str:
    height = 0.9
    n = len(rows)
    busy, stuck = [], []
    with drawing("lanes", 720, float(np.clip(64 + 22 * n, 130, 760))) as d:
        ax = d.axes
        for i, lane in enumerate(rows):
            y = n - 1 - i
            if lane.new_llc:
                ax.axhline(y + 1 - (1 - height) / 2, color=MUTED, linewidth=0.9)
            if lane.busy is None or lane.stuck is None:
                ax.annotate(
                    "no event: unknown",
                    (0.5, y + height / 2),
                    xycoords=("axes fraction", "data"),
                    ha="center",
                    va="center",
                    color=MUTED,
                    fontsize=9.0,
                )
                continue
            top = y + height * lane.busy
            busy += stairs(seconds, top, y)
            stuck += stairs(seconds, top + height * lane.stuck, top)
        areas(ax, busy, SKY)
        areas(ax, stuck, VERMILLION)
        ax.hlines(range(n), *seconds[[0, -1]], color=RULE, linewidth=0.6)
        ax.set_xlim(seconds[0], seconds[-1])
        ax.set_ylim(-0.1, n)
        marks = range(0, n, max(1, -(-n // 33)))
        ax.set_yticks([n - 1 - i + height / 2 for i in marks], [rows[i].label for i in marks])
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set_ylabel(what)
        ax.set_xlabel(f"s after {moment(origin)}" if origin else "time of the capture's clock, s")
        ax.ticklabel_format(axis="x", useOffset=False, style="plain")
        behind = "idle while a task stood behind a running one in the LLC"
        key(ax, [("busy", SKY), (behind, VERMILLION)])
    return d.svg


def _ends(ctx: Context) -> tuple[str, str]:
    cpus = [c for c in ctx.tl.cpus.to_pylist() if c["events"]]
    span = max(ctx.span_ns, 1)
    most = max(cpus, key=lambda c: c["idle_ns"])
    least = min(cpus, key=lambda c: c["idle_ns"])
    return (
        f"The idlest CPU, {most['cpu']}, was idle {share(most['idle_ns'] / span)}.",
        f"The busiest CPU, {least['cpu']}, was idle {share(least['idle_ns'] / span)} of the span.",
    )


def gap_lengths(gaps: Gaps) -> Figure:
    """Idle time by the length of the gap it lies in."""
    length = gaps.length
    edges = log_edges(length)
    idle, below = log_histogram(length, edges, weights=length)
    stuck, _ = log_histogram(length, edges, weights=gaps.stuck_ns)
    scale, unit = (1e6, "ms") if idle.max() >= 1e6 else (1e3, "µs")

    def draw() -> str:
        with drawing("gaps", 400, 245) as d:
            ax = d.axes
            areas(ax, stairs(edges, stuck / scale), VERMILLION)
            areas(ax, stairs(edges, idle / scale, stuck / scale), SKY)
            used = np.flatnonzero(idle)
            log_time_axis(ax, *(_ends_of(edges, used)))
            ax.set_ylim(0, 1.05 * float(idle.max()) / scale)
            ax.set_xlabel("length of the idle gap")
            ax.set_ylabel(f"idle time in such gaps, {unit}")
            key(ax, [("a task was stuck", VERMILLION), ("nobody was", SKY)])
        return d.svg

    middle = _weighted_median(length)
    return Figure(
        "gaps",
        "Idle time by length of the gap",
        f"Half of the idle time lies in gaps of up to {duration(middle)}; the longest gap is "
        f"{duration(int(length.max()))}.",
        f"{len(length):,} gaps; ten bins per decade"
        + (f"; {duration(below)} in gaps below 100 ns not drawn." if below else "."),
        draw,
        data={"edge_ns": light(edges), "idle_ns": light(idle, 9), "stuck_ns": light(stuck, 9)},
    )


def _ends_of(edges: Any, used: Any) -> tuple[float, float]:
    lo = float(10 ** np.floor(np.log10(edges[used[0]]) + 1e-9)) if len(used) else float(edges[0])
    return lo, float(edges[-1])


def _weighted_median(length: Any) -> int:
    ordered = np.sort(length)
    total = np.cumsum(ordered)
    return int(ordered[np.searchsorted(total, total[-1] / 2)])
