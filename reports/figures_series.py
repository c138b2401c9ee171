"""The figure of a load series: race rate, and idle time with what of it is attributable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from traceana.reports.figures import INK, LINES, MUTED, RULE, drawing

if TYPE_CHECKING:
    from traceana.series import Point, Series

__all__ = ["curve", "finding"]

_WIDTH, _HEIGHT, _LEFT, _RIGHT = 560.0, 400.0, 66.0, 110.0


def finding(series: Series) -> str:
    """What the figure shows, in words."""
    said = [knee.words() for knee in series.knees]
    text = "; ".join(said) if said else "no load is known: captures in their order"
    return text[:1].upper() + text[1:] + "."


def _groups(series: Series) -> list[tuple[str, list[Point]]]:
    from traceana.series import group_of

    groups: dict[str, list[Point]] = {}
    for p in series.points:
        if p.race is not None:
            groups.setdefault(group_of(p, series.names), []).append(p)
    return list(groups.items())


def curve(series: Series) -> str:
    """The figure as inline SVG: two panels over the load (or over the order of the captures)."""
    loads = any(p.load is not None for p in series.points)
    place = {id(p): float(i + 1) for i, p in enumerate(series.points)}
    half = (_HEIGHT - 40 - 66) / 2
    with drawing(
        "series", _WIDTH, _HEIGHT, left=_LEFT, right=_RIGHT, top=22, bottom=44 + half + 22
    ) as d:
        below = d.figure.add_axes(
            (
                _LEFT / _WIDTH,
                44 / _HEIGHT,
                1 - (_LEFT + _RIGHT) / _WIDTH,
                half / _HEIGHT,
            ),
            sharex=d.axes,
        )
        ends: tuple[list[Any], list[Any]] = ([], [])
        for i, (group, points) in enumerate(_groups(series)):
            color, dash = LINES[i % len(LINES)]
            shown = [p for p in points if p.load is not None] if loads else points
            x = np.array([p.load if loads else place[id(p)] for p in shown], float)
            _panel(d.axes, x, [_rate(p) for p in shown], color, dash, group, ends[0])
            _panel(below, x, [_cost(p) for p in shown], color, dash, group, ends[1])
            idle = [np.nan if p.idle_share is None else 100 * p.idle_share for p in shown]
            below.plot(x, idle, color=MUTED, linestyle=dash, marker="D", markersize=3, linewidth=1)
        for ax, title, named in (
            (d.axes, "% of wakeups that\nfound their CPU idle", ends[0]),
            (below, "% of the time of all CPUs", ends[1]),
        ):
            ax.set_ylim(bottom=0)
            ax.grid(axis="y", color=RULE, linewidth=0.7)
            ax.set_ylabel(title)
            _name(ax, named)
        d.axes.tick_params(axis="x", labelbottom=False)
        d.axes.set_title("double bookings: certain to possible, with 95 % ends", loc="left")
        below.set_title("idle time (grey), and what of it is attributable", loc="left")
        below.set_xlabel(_axis(series) if loads else "capture, in the order given")
        ticks = sorted({p.load for p in series.points if p.load is not None})
        if loads and len(ticks) <= 12:
            below.set_xticks(ticks, [f"{t:g}" for t in ticks])
        for knee in series.knees:
            if knee.at is not None:
                ax = d.axes if knee.figure == "race_rate" else below
                ax.axvline(knee.at, color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
    return d.svg


def _axis(series: Series) -> str:
    for name in ("load", "n", *series.names):
        if name in series.names and all(
            isinstance(p.parts.get(name), int | float) for p in series.points if p.parts
        ):
            return f"load: {name} of the captures' names"
    return "load"


_Low = tuple[float | None, float | None, float | None, float | None]


def _rate(p: Point) -> _Low:
    assert p.race is not None
    r = p.race
    if not r.counts["looked_idle"]:
        # Nobody found a CPU idle: nobody can have met another one there.
        return (0.0, 0.0, 0.0, 0.0) if r.counts["decided"] else (None, None, None, None)
    return r.certain.low, r.certain.value, r.possible.value, r.possible.high


def _cost(p: Point) -> _Low:
    """Attributable idle time as a share of the time of all CPUs."""
    assert p.race is not None
    r, whole = p.race, p.idle_share

    def of(value: float | None) -> float | None:
        if whole == 0:
            return 0.0
        return None if value is None or whole is None else value * whole

    return of(r.idle_low.low), of(r.idle_low.value), of(r.idle_high.value), of(r.idle_high.high)


def _panel(
    ax: Any, x: Any, rows: list[_Low], color: str, dash: Any, group: str, ends: list[Any]
) -> None:
    """A bar from what is certain to what is possible, a whisker to the ends of the intervals."""
    middles = []
    for at, (low, a, b, high) in zip(x, rows, strict=True):
        if a is None or b is None:
            middles.append(np.nan)
            continue
        ax.plot([at, at], [100 * a, 100 * b], color=color, linewidth=5, solid_capstyle="butt")
        ends_ = [100 * (a if low is None else low), 100 * (b if high is None else high)]
        ax.plot([at, at], ends_, color=color, linewidth=1.0)
        middles.append(50 * (a + b))
    ax.plot(x, middles, color=color, linestyle=dash, marker="o", markersize=3.5)
    known = [(float(u), m) for u, m in zip(x, middles, strict=True) if np.isfinite(m)]
    if known and group:
        ends.append((group, known[-1][1], color))


def _name(ax: Any, ends: list[Any]) -> None:
    lo, hi = ax.get_ylim()
    last = -np.inf
    for name, y, color in sorted(ends, key=lambda end: end[1]):
        at = max(y, last + 0.12 * (hi - lo))
        last = at
        short = name if len(name) <= 16 else name[:15] + "…"
        ax.annotate(
            short, (1.02, at), xycoords=("axes fraction", "data"), va="center", color=color,
            fontsize=9.5, annotation_clip=False,
        )  # fmt: skip
