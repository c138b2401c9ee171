"""Figures: matplotlib's object interface to small SVG that takes its colours from the page.

Text stays text (searchable, in the reader's font), colours become CSS variables with the
Okabe-Ito value as fallback, ids are made unique, coordinates are rounded. matplotlib is
imported on the first figure only. Equal input gives equal bytes.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "BLACK",
    "BLUE",
    "GREEN",
    "INK",
    "LINES",
    "MUTED",
    "ORANGE",
    "PURPLE",
    "RULE",
    "SKY",
    "VERMILLION",
    "Drawing",
    "areas",
    "drawing",
    "key",
    "light",
    "log_time_axis",
    "mark",
    "stairs",
]

BLUE, VERMILLION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY, BLACK = "#e69f00", "#56b4e9", "#000000"
#: Text, secondary text, and grid lines.
INK, MUTED, RULE = "#1a1a1b", "#5a5a5b", "#d8d8d9"

#: Drawn colour -> name of the CSS variable.
_VARIABLES = {
    BLUE: "blue",
    VERMILLION: "vermillion",
    GREEN: "green",
    PURPLE: "purple",
    ORANGE: "orange",
    SKY: "sky",
    BLACK: "black",
    INK: "ink",
    MUTED: "muted",
    RULE: "rule",
}
#: Colour and dash pattern of the first six lines: told apart without colour, too.
LINES: tuple[tuple[str, Any], ...] = (
    (BLUE, "-"),
    (VERMILLION, (0, (5, 2))),
    (GREEN, (0, (1, 1))),
    (PURPLE, (0, (7, 2, 1, 2))),
    (BLACK, "-"),
    (SKY, (0, (3, 1))),
)

_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "traceana",
    "text.parse_math": False,
    "text.usetex": False,
    "font.size": 10.0,
    "font.family": ["DejaVu Sans"],
    "axes.titlesize": 10.0,
    "axes.labelsize": 10.0,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.fontsize": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.6,
    "path.simplify": False,
    "axes.unicode_minus": True,
    "axes.axisbelow": True,
}


class Drawing:
    """A figure being drawn; ``svg`` is there once its ``with`` block has ended."""

    def __init__(self, figure: Any, axes: Axes) -> None:
        self.figure = figure
        self.axes = axes
        self.svg = ""


@contextmanager
def drawing(
    id: str,
    width: float,
    height: float,
    *,
    left: float = 54,
    right: float = 24,
    top: float = 24,
    bottom: float = 38,
) -> Iterator[Drawing]:
    """A figure of ``width`` × ``height`` points around one pair of axes.

    Parameters
    ----------
    id : str
        Unique in the page: prefix of all ids of the SVG.
    left, right, top, bottom : float
        Margins, points. Fixed, as measuring every text twice doubles the time.
    """
    import matplotlib
    from matplotlib.figure import Figure

    # Where no folder can be written matplotlib says so at length; the report needs none.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcParams.update(matplotlib.rcParamsDefault)
        matplotlib.rcParams.update(_RC)
        # A name in a script that the font lacks is drawn by the browser's font.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=(width / 72, height / 72))
        box = (
            left / width,
            bottom / height,
            1 - (left + right) / width,
            1 - (top + bottom) / height,
        )
        out = Drawing(figure, figure.add_axes(box))
        yield out
        out.svg = _as_inline_svg(figure, id)


def areas(ax: Any, outlines: Sequence[npt.NDArray[np.float64]], color: str, **style: Any) -> None:
    """Filled polygons (float64[n, 2] each) as one path, without a look at the axes' limits."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    outlines = [o for o in outlines if len(o)]
    if not outlines:
        return
    codes = []
    for outline in outlines:
        code = np.full(len(outline) + 1, Path.LINETO, np.uint8)
        code[0], code[-1] = Path.MOVETO, Path.CLOSEPOLY
        codes.append(code)
    points = np.concatenate([np.concatenate([o, o[:1]]) for o in outlines])
    patch = PathPatch(
        Path(points, np.concatenate(codes)), facecolor=color, edgecolor="none", **style
    )
    patch.set_transform(ax.transData)
    ax.add_artist(patch)


def stairs(
    edges: npt.NDArray[np.float64],
    top: npt.NDArray[np.float64],
    base: npt.NDArray[np.float64] | float = 0.0,
) -> list[npt.NDArray[np.float64]]:
    """Outlines of a stepped area between ``base`` and ``top``, one per run of bins with height."""
    base = np.broadcast_to(np.asarray(base, float), top.shape)
    full = np.concatenate([[False], top > base, [False]])
    begins = np.flatnonzero(full[1:] & ~full[:-1])
    ends = np.flatnonzero(~full[1:] & full[:-1])
    out = []
    for a, b in zip(begins, ends, strict=True):
        x = np.repeat(edges[a : b + 1], 2)[1:-1]
        up = np.column_stack([x, np.repeat(top[a:b], 2)])
        down = np.column_stack([x, np.repeat(base[a:b], 2)])[::-1]
        out.append(_corners(np.concatenate([up, down])))
    return out


def _corners(outline: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The outline without the points in the middle of its level runs."""
    y = outline[:, 1]
    middle = (y == np.roll(y, 1)) & (y == np.roll(y, -1))
    corners: npt.NDArray[np.float64] = outline[~middle]
    return corners


def key(ax: Any, entries: Sequence[tuple[str, str]], shift: float = 0.0) -> None:
    """Names of the areas, above the axes."""
    from matplotlib.patches import Patch

    ax.legend(
        handles=[Patch(facecolor=color, label=label) for label, color in entries],
        loc="lower left",
        bbox_to_anchor=(shift, 1.0),
        ncols=len(entries),
        frameon=False,
        handlelength=1.0,
        handleheight=1.0,
        borderaxespad=0.1,
        columnspacing=1.2,
    )


def _as_inline_svg(figure: Any, id: str) -> str:
    buffer = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    head, _, body = text.partition(">")
    box = re.search(r'viewBox="([^"]+)"', head)
    assert box is not None
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = _IDS.sub(lambda m: f"{m[1]}{id}-", body)
    body = _STYLES.sub(_restyle, body)
    body = _PATHS.sub(lambda m: _NUMBERS.sub(_rounded, " ".join(m[0].split())), body)
    body = re.sub(r"\n\s*", "\n", body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{box[1]}" aria-hidden="true">{body.strip()}'
    )


_IDS = re.compile(r'(\bid="|url\(#|href="#)')
_STYLES = re.compile(r'\bstyle="[^"]*"')
_PATHS = re.compile(r'\bd="[^"]*"')
_NUMBERS = re.compile(r"-?\d+\.\d{2,}")
_FONT = re.compile(r"font: *(?:(\w+) )?([\d.]+px) [^;\"]*;?")
_COLOR = re.compile(r"#[0-9a-f]{6}\b", re.I)


def _rounded(match: re.Match[str]) -> str:
    return f"{float(match[0]):.1f}"


def _restyle(match: re.Match[str]) -> str:
    style = _FONT.sub(
        lambda m: f"font-size: {m[2]}" + (f"; font-weight: {m[1]}" if m[1] else "") + ";", match[0]
    )
    style = re.sub(r"font-family:[^;\"]*;?", "", style)
    return _COLOR.sub(_variable, style)


def _variable(match: re.Match[str]) -> str:
    color = match[0].lower()
    name = _VARIABLES.get(color)
    return f"var(--{name}, {color})" if name else color


def log_time_axis(ax: Any, lo: float, hi: float) -> None:
    """A logarithmic x axis of durations (ns) with its decades labelled in words."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    ax.set_xscale("log")
    ax.set_xlim(lo, hi)
    decades = np.arange(np.ceil(np.log10(lo) - 1e-9), np.floor(np.log10(hi) + 1e-9) + 1)
    step = max(1, -(-len(decades) // 7))
    shown = decades[::step]
    ax.xaxis.set_major_locator(FixedLocator(list(10**shown)))
    ax.xaxis.set_major_formatter(FixedFormatter([_decade(int(d)) for d in shown]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.grid(axis="x", which="major", color=RULE, linewidth=0.7)


def _decade(power: int) -> str:
    unit, scale = next(
        ((u, s) for u, s in (("s", 9), ("ms", 6), ("µs", 3), ("ns", 0)) if power >= s), ("ns", 0)
    )
    return f"{10 ** (power - scale)} {unit}" if power >= scale else f"{10.0**power:g} ns"


def mark(ax: Any, values: Sequence[tuple[str, float]]) -> None:
    """Vertical marks (percentiles), each as high as its label; the first is the highest.

    The axes should leave the upper third and some 75 points to the right of the last mark free.
    """
    for i, (label, x) in enumerate(values):
        top = 0.985 - 0.1 * i
        ax.axvline(x, 0, top, color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
        ax.annotate(
            label,
            (x, top),
            xycoords=("data", "axes fraction"),
            xytext=(3, 0),
            textcoords="offset points",
            ha="left",
            va="top",
            fontsize=9.0,
        )


def light(values: npt.NDArray[Any], digits: int = 4) -> list[float]:
    """Numbers for JSON, without noise digits."""
    return [float(f"{v:.{digits}g}") for v in values.tolist()]
