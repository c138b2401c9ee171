"""The curve of a parameter sweep: wakeups moved, and the change of the queue delay, by value.

Drawn as a file of its own (SVG with its text as text, or PNG), in the style of the report.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from traceana.amounts import in_words
from traceana.reports.figures import (
    BLACK,
    BLUE,
    INK,
    MUTED,
    RULE,
    VERMILLION,
    drawing,
    log_time_axis,
)

if TYPE_CHECKING:
    from traceana.sweep import Sweep

__all__ = ["FORMATS", "curve"]

#: Ends of file names that name a drawing.
FORMATS = ("svg", "png")

#: Points of the figure: width, height, and where its parts stand.
_WIDTH, _HEIGHT, _LEFT, _RIGHT = 460.0, 380.0, 62.0, 92.0
_UPPER, _LOWER = (225.0, 115.0), (52.0, 130.0)
#: Percentiles of the queue delay that are drawn.
_SHOWN = (("p50", BLUE, "-", "o"), ("p99", VERMILLION, (0, (5, 2)), "s"))


def curve(sweep: Sweep, format: str) -> bytes:
    """Draw a sweep.

    Parameters
    ----------
    sweep : Sweep
    format : str
        One of FORMATS.
    """
    x = np.array([p.value for p in sweep.points], float)
    bottom, height = _UPPER
    with drawing(
        "sweep",
        _WIDTH,
        _HEIGHT,
        left=_LEFT,
        right=_RIGHT,
        top=_HEIGHT - bottom - height,
        bottom=bottom,
    ) as d:
        _axis(d.axes, sweep, x)
        _draw_moved(d.axes, sweep, x)
        bottom, height = _LOWER
        below = d.figure.add_axes(
            (
                _LEFT / _WIDTH,
                bottom / _HEIGHT,
                1 - (_LEFT + _RIGHT) / _WIDTH,
                height / _HEIGHT,
            )
        )
        _axis(below, sweep, x)
        _draw_delay(below, sweep, x)
        below.set_xlabel(_axis_title(sweep))
        d.figure.text(
            0.5,
            1 - 14 / _HEIGHT,
            f"{sweep.rule}: what {sweep.parameter} does (estimated, open loop)",
            ha="center",
        )
        buffer = io.BytesIO()
        metadata: dict[str, Any] = {"Software": None} if format == "png" else {"Date": None}
        if format == "svg":
            metadata |= {"Creator": "traceana", "Title": _finding(sweep)}
        d.figure.savefig(buffer, format=format, dpi=192, facecolor="white", metadata=metadata)
    return buffer.getvalue()


def _words(value: int, sweep: Sweep) -> str:
    return in_words(value, sweep.unit).replace(" us", " µs")


def _axis_title(sweep: Sweep) -> str:
    unit = ", log scale" if sweep.geometric else f", {sweep.unit}" if sweep.unit else ""
    return f"{sweep.rule}.{sweep.parameter}{unit}"


def _axis(ax: Any, sweep: Sweep, x: Any) -> None:
    if sweep.geometric:
        log_time_axis(ax, x[0] / 1.06, x[-1] * 1.06)
        # One decade or none: the ends say more.
        if len(ax.get_xticks()) < 2:
            ax.set_xticks([x[0], x[-1]], [_words(int(v), sweep) for v in (x[0], x[-1])])
    else:
        ax.margins(x=0.04)
        ax.grid(axis="x", color=RULE, linewidth=0.7)
    if x[0] <= sweep.default <= x[-1]:
        ax.axvline(sweep.default, color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
    ax.grid(axis="y", color=RULE, linewidth=0.7)


def _draw_moved(ax: Any, sweep: Sweep, x: Any) -> None:
    decisions = max(sweep.points[0].result.decisions, 1)
    lines = (
        ("fired", [p.fired for p in sweep.points], MUTED, (0, (3, 1)), "D"),
        ("moved", [p.result.moved for p in sweep.points], BLACK, "-", "o"),
    )
    ends = []
    for name, counts, color, dash, marker in lines:
        y = 100 * np.array(counts, float) / decisions
        ax.plot(x, y, color=color, linestyle=dash, marker=marker, markersize=4)
        ends.append((name, float(y[-1]), color))
    ax.set_ylim(bottom=0)
    _name_lines(ax, x, ends)
    ax.set_ylabel("% of decisions")
    ax.tick_params(axis="x", labelbottom=False)
    if x[0] <= sweep.default <= x[-1]:
        ax.annotate(
            f"default {_words(sweep.default, sweep)}",
            (sweep.default, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, 2),
            textcoords="offset points",
            fontsize=9.0,
        )


def _draw_delay(ax: Any, sweep: Sweep, x: Any) -> None:
    figures = {q: [p.result.queue_delay_ns[q] for p in sweep.points] for q, *_ in _SHOWN}
    far = max(
        (
            abs(v)
            for row in figures.values()
            for f in row
            for v in (f.delta, *(f.delta_interval or ()))
            if v is not None
        ),
        default=1.0,
    )
    scale, unit = next(((s, u) for s, u in ((1e6, "ms"), (1e3, "µs")) if far >= s), (1.0, "ns"))
    ax.axhline(0, color=INK, linewidth=0.9)
    ends = []
    for q, color, dash, marker in _SHOWN:
        y = np.array([np.nan if f.delta is None else f.delta / scale for f in figures[q]])
        ax.plot(x, y, color=color, linestyle=dash, marker=marker, markersize=4)
        for at, f in zip(x, figures[q], strict=True):
            if f.delta_interval is not None:
                lo, hi = f.delta_interval
                ax.plot([at, at], [lo / scale, hi / scale], color=color, linewidth=1.0)
        if np.isfinite(y[-1]):
            ends.append((q, float(y[-1]), color))
    _name_lines(ax, x, ends)
    ax.set_ylabel(f"queue delay, change, {unit}")


def _name_lines(ax: Any, x: Any, ends: Sequence[tuple[str, float, str]]) -> None:
    """Names at the right ends of the lines, moved apart where they would touch."""
    lo, hi = ax.get_ylim()
    gap = 0.11 * (hi - lo)
    last = -np.inf
    for name, y, color in sorted(ends, key=lambda end: end[1]):
        at = max(y, last + gap)
        last = at
        ax.annotate(
            name,
            (1.02, at),
            xycoords=("axes fraction", "data"),
            va="center",
            color=color,
            fontsize=9.5,
            annotation_clip=False,
        )


def _finding(sweep: Sweep) -> str:
    first, last = sweep.points[0], sweep.points[-1]
    return (
        f"{sweep.rule} moves {first.result.moved:,} of {first.result.decisions:,} wakeups with "
        f"{sweep.parameter} {_words(first.value, sweep)}, {last.result.moved:,} with "
        f"{_words(last.value, sweep)}"
    )
