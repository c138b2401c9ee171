"""The arithmetic of a fleet: what stands out, and how sure a mean gain is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BEYOND", "METRICS", "outliers", "robust", "t_interval"]

#: Figures of a capture by which it may stand out, in words.
METRICS: Mapping[str, str] = {
    "idle_share": "idle share",
    "idle_waited_share": "idle while somebody waited",
    "double_bookings_per_million": "double bookings per million wakeups",
    "wakeup_latency_p50_ns": "wakeup latency p50",
    "wakeup_latency_p99_ns": "wakeup latency p99",
    "queue_delay_p50_ns": "queue delay p50",
    "queue_delay_p99_ns": "queue delay p99",
    "fidelity_exact": "fidelity",
}
#: A robust z-score beyond this is called an outlier (Iglewicz & Hoaglin 1993).
BEYOND = 3.5
#: Fewer values have no spread to speak of.
LEAST = 5
_F64 = npt.NDArray[np.float64]


def robust(values: _F64) -> tuple[float, float]:
    """Median and spread of values: 1.4826 x the median absolute deviation.

    Where more than half of the values are equal, that is 0: then 1.2533 x the mean absolute
    deviation, which is as wide for values of a normal distribution.
    """
    middle = float(np.median(values))
    away = np.abs(values - middle)
    spread = 1.4826 * float(np.median(away))
    return middle, spread if spread > 0 else 1.2533 * float(away.mean())


def outliers(
    metrics: Mapping[str, npt.NDArray[Any]], sources: Sequence[str], groups: Sequence[str]
) -> list[dict[str, Any]]:
    """Captures and groups that stand out, the farthest first.

    Parameters
    ----------
    metrics : float64[n] each, NaN where not known
    sources : n names of captures
    groups : n names of their groups, or none

    Returns
    -------
    list of dict
        ``of`` (capture or group), ``name``, ``metric``, ``value``, ``median`` (of all captures),
        ``z``, ``n`` (captures behind the value)
    """
    out: list[dict[str, Any]] = []
    of_group: dict[str, list[int]] = {}
    for i, name in enumerate(groups):
        of_group.setdefault(name, []).append(i)
    for metric, column in metrics.items():
        known = np.isfinite(column)
        if known.sum() < LEAST:
            continue
        middle, spread = robust(column[known])
        if spread <= 0:
            continue

        def add(
            of: str, name: str, value: float, n: int,
            metric: str = metric, middle: float = middle, spread: float = spread,
        ) -> None:  # fmt: skip
            # The median of n values is 1.2533 times as unsure as their mean.
            scale = spread if of == "capture" else spread * 1.2533 / math.sqrt(n)
            z = (value - middle) / scale
            if abs(z) > BEYOND:
                row = {"of": of, "name": name, "metric": metric, "value": value}
                out.append({**row, "median": middle, "z": z, "n": n})

        for i in map(int, np.flatnonzero(known)):
            add("capture", sources[i], float(column[i]), 1)
        if len(of_group) > 1:
            for name, rows in of_group.items():
                mine = column[rows][known[rows]]
                if len(mine) > 1:
                    add("group", name, float(np.median(mine)), len(mine))
    out.sort(key=lambda o: (-abs(o["z"]), o["of"], o["name"], o["metric"]))
    return out


def t_interval(
    n: int,
    mean: float | None,
    std: float | None,
    own: float | None,
    alone: tuple[float | None, float | None],
) -> tuple[float | None, float | None]:
    """95 % interval of a mean over captures.

    Parameters
    ----------
    n : captures
    mean, std : of their gains
    own : sum of the squared standard errors that they have by themselves; None: some have none
    alone : the interval of the only capture, for n = 1
    """
    if mean is None or n < 1:
        return None, None
    if n == 1:
        return alone
    if std is None:
        return None, None
    from scipy.special import stdtrit

    variance = max(std**2 / n, (own or 0.0) / n**2)
    half = float(stdtrit(n - 1, 0.975)) * math.sqrt(variance)
    return mean - half, mean + half
