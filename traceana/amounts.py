"""Whole numbers as a user writes them: 375000, 375_000, 375us, 1.5ms."""

from __future__ import annotations

import re

__all__ = ["amount", "in_words"]

#: Units of time, in ns.
_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_FORM = re.compile(r"([+-]?)(\d[\d_]{0,30})(?:\.(\d{1,12}))?\s*([a-zµμ]*)", re.ASCII)


def amount(text: str) -> int:
    """Return the number; with a unit of time in ns.

    Raises
    ------
    ValueError
        Not a whole number (of ns), or a unit that there is not.

    >>> amount("375_000"), amount("50us"), amount("1.5ms"), amount("-1")
    (375000, 50000, 1500000, -1)
    """
    found = _FORM.fullmatch(text.strip().lower())
    if not found:
        raise ValueError(f"{text!r} is no whole number")
    sign, whole, part, unit = found.groups()
    unit = unit.replace("μ", "µ")
    if unit and unit not in _UNITS:
        raise ValueError(f"{text!r}: the unit is one of ns, us, ms, s")
    number = int(whole) * (scale := _UNITS.get(unit, 1))
    if part:
        rest = int(part) * scale
        if rest % 10 ** len(part):
            raise ValueError(f"{text!r} is no whole number" + (" of ns" if unit else ""))
        number += rest // 10 ** len(part)
    return -number if sign == "-" else number


def in_words(value: int, unit: str) -> str:
    """Return a parameter's value for a reader.

    >>> in_words(118_960, "ns"), in_words(1_000_000, "ns"), in_words(5, "")
    ('119 us', '1 ms', '5')
    """
    if unit != "ns":
        return f"{value} {unit}".strip()
    scale, name = next(
        ((s, n) for n, s in (("s", 10**9), ("ms", 10**6), ("us", 10**3)) if abs(value) >= s),
        (1, "ns"),
    )
    return f"{value / scale:.4g} {name}" if abs(value) < 10**13 else f"{value // 10**9} s"
