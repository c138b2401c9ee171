"""Distributions of bursts and sleeps, in integers: the same seed gives the same draws everywhere.

Written as text: ``500ns`` (always the same), ``uniform:1us,5us``, ``exp:20us`` (its mean; cut at
about five means), ``quantiles:1us,2us,9us`` (equidistant quantiles, straight between them).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from traceana.errors import UsageError

__all__ = ["Draw", "Random", "parse_duration"]

_UNITS = {"": 1, "ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
#: No burst or sleep is longer than this.
LONGEST_NS = 10 * 1_000_000_000
_MASK = (1 << 64) - 1

#: -ln(1 - i/32) in thousandths, i = 0 … 31, and a last one that makes the mean 1.000 within 0.1 %.
_EXP = (
    0, 32, 65, 98, 134, 170, 208, 247, 288, 330, 375, 421, 470, 521, 575, 633, 693, 758, 827, 901,
    981, 1068, 1163, 1269, 1386, 1520, 1674, 1856, 2079, 2367, 2773, 3466, 5304,
)  # fmt: skip


class Random:
    """splitmix64: an integer generator that is the same on any machine."""

    def __init__(self, seed: int) -> None:
        self._state = (seed * 0x2545F4914F6CDD1D + 0x9E3779B97F4A7C15) & _MASK

    def bits(self) -> int:
        """Return 64 random bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, n: int) -> int:
        """Return an integer from 0 to n - 1; n below 2**32."""
        return (self.bits() >> 32) * n >> 32


def parse_duration(text: str, what: str) -> int:
    """Nanoseconds of a duration such as ``50us``; a bare number is ns.

    Raises
    ------
    UsageError
        Not a duration, or out of range.

    >>> parse_duration("1.5us", "burst")
    1500
    """
    match = re.fullmatch(r"(\d{1,12})(?:\.(\d{1,9}))?\s*(ns|us|µs|ms|s)?", text.strip(), re.ASCII)
    if match is None:
        raise UsageError(f"{what}: {text!r} is no duration; give e.g. 500ns, 20us, 1.5ms")
    whole, part, unit = match.groups()
    scale = _UNITS[unit or ""]
    value = int(whole) * scale + (int(part) * scale // 10 ** len(part) if part else 0)
    if value > LONGEST_NS:
        raise UsageError(f"{what}: {text} is longer than 10 s")
    return value


@dataclass(frozen=True)
class Draw:
    """A distribution, ns: equidistant quantiles, straight lines between them."""

    quantiles: tuple[int, ...]

    @classmethod
    def parse(cls, text: str, what: str = "duration") -> Draw:
        """Read a distribution as text.

        Raises
        ------
        UsageError
            Not a distribution; says what there is.

        >>> Draw.parse("uniform:1us,5us").quantiles
        (1000, 5000)
        """
        kind, colon, rest = text.partition(":")
        if not colon:
            return cls((parse_duration(text, what),))
        values = [parse_duration(part, what) for part in rest.split(",")]
        if kind == "exp" and len(values) == 1:
            return cls(tuple(q * values[0] // 1000 for q in _EXP))
        if (kind == "uniform" and len(values) == 2) or (kind == "quantiles" and len(values) >= 2):
            if values != sorted(values):
                raise UsageError(f"{what}: {text}: the values must not fall")
            if len(values) > 257:
                raise UsageError(f"{what}: at most 257 quantiles")
            return cls(tuple(values))
        raise UsageError(
            f"{what}: {text!r}: give a duration, uniform:LOW,HIGH, exp:MEAN or quantiles:A,B,…"
        )

    def one(self, random: Random) -> int:
        """Draw a value, ns."""
        steps = len(self.quantiles) - 1
        if steps == 0:
            return self.quantiles[0]
        at = random.below(steps << 16)
        i, part = at >> 16, at & 0xFFFF
        low, high = self.quantiles[i], self.quantiles[i + 1]
        return low + (high - low) * part // (1 << 16)

    @property
    def mean(self) -> int:
        """Mean, ns."""
        q = self.quantiles
        if len(q) == 1:
            return q[0]
        return (2 * sum(q) - q[0] - q[-1]) // (2 * (len(q) - 1))
