"""Numbers and names as a reader sees them: one unit a column, moments as recorders print them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from traceana.output import escape, format_ns
from traceana.reports.model import Column

__all__ = [
    "cells",
    "clean",
    "count",
    "duration",
    "heading",
    "interval",
    "moment",
    "plural",
    "share",
    "signed",
]

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_NONE = "–"


def clean(name: str) -> str:
    r"""A name that cannot move, hide or reorder what stands around it.

    >>> clean("a\u202eb"), clean("")
    ('a\\u202eb', '(empty name)')
    """
    return escape(name) if name.strip() else "(empty name)"


def count(n: int | None) -> str:
    """A number of things.

    >>> count(416781), count(None)
    ('416,781', '–')
    """
    return _NONE if n is None else f"{n:,}"


def plural(n: int, one: str, many: str = "") -> str:
    """A number with its noun.

    >>> plural(1, "CPU"), plural(2, "switch", "switches")
    ('1 CPU', '2 switches')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def share(value: float | None) -> str:
    """A share of 0 to 1 in percent, to a figure that does not pretend 0 or 100.

    >>> share(0.39512), share(0.0), share(0.00004), share(0.99996), share(None)
    ('39.5 %', '0 %', '0.004 %', '99.996 %', '–')
    """
    if value is None:
        return _NONE
    percent = 100 * value
    if percent in (0, 100):
        return f"{percent:.0f} %"
    edge = min(abs(percent), abs(100 - percent))
    digits = 1 if edge >= 0.05 else 2 if edge >= 0.005 else 3
    return f"{percent:.{digits}f} %"


def duration(ns: int | float | None) -> str:
    """A duration in the unit that suits it.

    >>> duration(49_758), duration(0), duration(None)
    ('49.8 µs', '0 ns', '–')
    """
    return _NONE if ns is None else format_ns(round(ns))


def signed(ns: int | float | None) -> str:
    """A change of a duration, with its sign.

    >>> signed(-41_000), signed(0), signed(1500)
    ('−41.0 µs', '±0 ns', '+1.50 µs')
    """
    if ns is None:
        return _NONE
    ns = round(ns)
    mark = "±" if ns == 0 else "+" if ns > 0 else "−"
    return mark + format_ns(abs(ns))


def interval(lo: float | None, hi: float | None) -> str:
    """The two ends of an interval of changes.

    >>> interval(-41_000, 2_000), interval(None, 3)
    ('[−41.0 µs … +2.00 µs]', '[no interval: too few blocks]')
    """
    if lo is None or hi is None:
        return "[no interval: too few blocks]"
    return f"[{signed(lo)} … {signed(hi)}]"


def moment(ts: int | None) -> str:
    """A time of the capture's clock, in seconds as the recorder's own tools print it.

    >>> moment(8_651_234_567), moment(None)
    ('8.651234 s', '–')
    """
    if ts is None:
        return _NONE
    return f"{_seconds(ts)} s"


def _seconds(ts: int) -> str:
    sign = "-" if ts < 0 else ""
    return f"{sign}{abs(ts) // 1_000_000_000}.{abs(ts) % 1_000_000_000 // 1_000:06d}"


def _unit(values: Sequence[Any]) -> tuple[int, str]:
    """The unit in which a column of durations reads best: that of its median."""
    known = sorted(abs(v) for v in values if v)
    if not known:
        return 1_000, "µs"
    middle = known[len(known) // 2]
    return next(((n, unit) for n, unit in _UNITS if middle >= n), (1, "ns"))


def heading(column: Column, values: Sequence[Any]) -> str:
    """The column's title with its unit."""
    if column.kind == "ns":
        return f"{column.title}, {_unit(values)[1]}"
    if column.kind == "ts":
        return f"{column.title}, s"
    if column.kind == "share":
        return f"{column.title}, %"
    return column.title


def cells(column: Column, values: Sequence[Any]) -> list[str]:
    """The column's values as texts, all in one unit."""
    texts = _texts(column, values)
    return [_NONE if v is None else text for v, text in zip(values, texts, strict=True)]


def _texts(column: Column, values: Sequence[Any]) -> list[str]:
    kind = column.kind
    if kind == "ns":
        scale = _unit(values)[0]
        top = max((abs(v) for v in values if v is not None), default=0) / scale
        digits = 0 if scale == 1 else 1 if top >= 10 else 2
        return [f"{(v or 0) / scale:,.{digits}f}".replace("-", "−") for v in values]
    if kind == "ts":
        return [_seconds(v or 0) for v in values]
    if kind == "share":
        return [share(v or 0.0).removesuffix(" %") for v in values]
    if kind == "float":
        return [f"{v or 0:.4g}".replace("-", "−") for v in values]
    if kind == "int":
        return [f"{v or 0:,}".replace("-", "−") for v in values]
    if kind == "id":
        return [str(v) for v in values]
    if kind == "flag":
        return ["yes" if v else "no" for v in values]
    return [str(v) for v in values]
