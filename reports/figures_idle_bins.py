"""The figure of what idle time was for: a stacked bar per CPU, or per LLC of a large machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from traceana.reports.context import Context, column
from traceana.reports.figures import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RULE,
    SKY,
    VERMILLION,
    areas,
    drawing,
    key,
    light,
)
from traceana.reports.model import Figure
from traceana.reports.words import share
from traceana.schema import IdleBin

if TYPE_CHECKING:
    from traceana.idle_bins import IdleAccount

__all__ = ["GROUPS", "Group", "bars"]

F64 = npt.NDArray[np.float64]
#: More CPUs than this are drawn by LLC.
_MOST_BARS = 64


@dataclass(frozen=True)
class Group:
    """Bins that are drawn as one."""

    name: str
    label: str
    color: str
    bins: tuple[IdleBin, ...]


GROUPS = (
    Group("double_booking", "double booking", VERMILLION, (IdleBin.DOUBLE_BOOKING,)),
    Group("late_booking", "late", PURPLE, (IdleBin.LATE_BOOKING,)),
    Group(
        "stuck",
        "stuck for other reasons",
        ORANGE,
        (
            IdleBin.PINNED,
            IdleBin.THROTTLED,
            IdleBin.CORE_SCHED,
            IdleBin.STEAL,
            IdleBin.PLACED,
            IdleBin.MIGRATION_COST,
            IdleBin.NEWIDLE_REFUSED,
            IdleBin.UNKNOWN,
            IdleBin.OTHER_LLC,
        ),
    ),
    Group("chain", "chain", BLUE, (IdleBin.CHAIN,)),
    Group("on_its_way", "waking up", SKY, (IdleBin.ON_ITS_WAY,)),
    Group("interrupt", "I/O, interrupt", GREEN, (IdleBin.IO, IdleBin.TIMER)),
    Group("nobody", "nobody left", RULE, (IdleBin.SURPLUS, IdleBin.NOBODY)),
)


def _shares(ctx: Context, a: IdleAccount) -> tuple[str, list[str], F64]:
    """What a bar is, its labels, and float64[bars, groups], shares of the span."""
    group_of = {int(b): g for g, group in enumerate(GROUPS) for b in group.bins}
    order = ctx.cpu_order
    heard = column(ctx.tl.cpus, "events") > 0
    live = [c for c in order if heard[c]]
    llc = ctx.machine.llc
    per_cpu = len(live) <= _MOST_BARS
    if per_cpu:
        of, labels = {c: i for i, c in enumerate(live)}, [str(c) for c in live]
        size = np.ones(len(live))
    else:
        names = sorted({int(llc[c]) for c in live})[:_MOST_BARS]
        of = {c: names.index(int(llc[c])) for c in live if int(llc[c]) in names}
        labels = [str(ctx.machine.llc_id[n]) for n in names]
        size = np.bincount(list(of.values()), minlength=len(names)).astype(float)
    out = np.zeros((len(labels), len(GROUPS)))
    table = a.table
    for c, b, ns in zip(
        column(table, "cpu").tolist(),
        column(table, "bin").tolist(),
        column(table, "ns").tolist(),
        strict=True,
    ):
        if c in of:
            out[of[c], group_of[b]] += ns
    return (
        "CPU" if per_cpu else "LLC",
        labels,
        out / (size[:, None] * max(a.span_ns, 1)),
    )


def bars(ctx: Context, a: IdleAccount) -> Figure:
    """Idle share of each CPU, by what it was for."""
    what, labels, parts = _shares(ctx, a)
    used = [g for g in range(len(GROUPS)) if parts[:, g].any()]
    total = parts.sum(axis=1)
    top = int(np.argmax(parts[:, 0])) if parts[:, 0].any() else int(np.argmax(total))

    def draw() -> str:
        n = len(labels)
        with drawing("idle-bins", 720, 260, top=30) as d:
            ax = d.axes
            base = np.zeros(n)
            for g in used:
                outlines = [
                    np.array([[i - 0.4, lo], [i + 0.4, lo], [i + 0.4, hi], [i - 0.4, hi]])
                    for i, (lo, hi) in enumerate(zip(base, base + parts[:, g], strict=True))
                    if hi > lo
                ]
                areas(ax, outlines, GROUPS[g].color)
                base = base + parts[:, g]
            ax.set_xlim(-0.6, n - 0.4)
            ax.set_ylim(0, min(1.0, 1.05 * float(total.max(initial=0.01))))
            step = max(1, -(-n // 32))
            ax.set_xticks(range(0, n, step), labels[::step])
            ax.tick_params(axis="x", length=0)
            ax.yaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
            ax.grid(axis="y", color=RULE, linewidth=0.7)
            ax.set_axisbelow(True)
            ax.set_xlabel(f"{what}, in the order of the topology")
            ax.set_ylabel("idle, of the span")
            key(ax, [(GROUPS[g].label, GROUPS[g].color) for g in used])
        return d.svg

    race = a.bins_ns[IdleBin.DOUBLE_BOOKING]
    said = (
        f"Double bookings cost most on {what} {labels[top]}, {share(parts[top, 0])} of its time; "
        f"{share(race / a.idle_ns)} of all idle time."
        if race
        else f"The idlest {what}, {labels[top]}, was idle {share(total[top])} of its time."
    )
    return Figure(
        "idle-bins",
        f"What each {what} was idle for",
        said,
        "Height = share of the span. “Stuck for other reasons”: a task that waited behind another "
        "one could have run there.",
        draw,
        wide=True,
        data={
            "label": labels,
            "bins": {GROUPS[g].name: light(parts[:, g]) for g in used},
        },
    )
