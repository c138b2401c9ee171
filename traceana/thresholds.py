"""Scheduler tunables of a kernel that was not asked for them (section 3.6 of the semantics).

What a capture seldom holds and rules need: the slice (min granularity up to 6.5, base slice
since 6.6), scaled by the number of CPUs, and what follows from it. Everything here is the
kernel's default; a measured value overrides it.

Source: kernel/sched/fair.c (get_update_sysctl_factor(), sysctl_sched_min_granularity,
sysctl_sched_base_slice) of 5.10, 6.1 and 6.12; "sched: Reduce the default slice to avoid
tasks getting an extra tick" (6.15 and stable) for 0.70 ms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = [
    "MIGRATION_COST_NS",
    "SCALINGS",
    "Release",
    "Tunables",
    "kernel_number",
    "parse_release",
    "scaling_factor",
    "tunables",
]

#: (major, minor, point), e.g. (6, 1, 192)
Release = tuple[int, int, int]

#: ``tunable_scaling`` of the kernel
SCALINGS = ("none", "log", "linear")

#: sysctl_sched_migration_cost
MIGRATION_COST_NS = 500_000

_MIN_GRANULARITY_NS = 750_000
_BASE_SLICE_NS = 700_000
_LATENCY_NS = 6_000_000
_WAKEUP_GRANULARITY_NS = 1_000_000


def parse_release(text: str) -> Release | None:
    """Read a release out of a uname or header string; None if there is none.

    >>> parse_release("6.1.0-37-amd64"), parse_release("Linux version 7.3.4 (x)")
    ((6, 1, 0), (7, 3, 4))
    """
    found = re.search(r"(?<![\d.])(\d{1,3})\.(\d{1,4})(?:\.(\d{1,5}))?", text)
    if not found:
        return None
    return int(found[1]), int(found[2]), int(found[3] or 0)


def kernel_number(release: str | None) -> int:
    """6001 for "6.1.192"; 0 where there is no release to read.

    >>> kernel_number("6.12.117+deb13"), kernel_number(None)
    (6012, 0)
    """
    found = re.match(r"(\d+)\.(\d+)", release or "")
    return int(found[1]) * 1000 + min(int(found[2]), 999) if found else 0


def scaling_factor(online_cpus: int, scaling: str = "log") -> int:
    """Return the factor on the slice: CPUs count up to 8, in every mode.

    >>> scaling_factor(4), scaling_factor(112), scaling_factor(112, "linear")
    (3, 4, 8)
    """
    if scaling not in SCALINGS:
        raise ValueError(f"tunable scaling {scaling!r}; one of {', '.join(SCALINGS)}")
    n = min(max(online_cpus, 1), 8)
    if scaling == "none":
        return 1
    return n if scaling == "linear" else n.bit_length()


@dataclass(frozen=True)
class Tunables:
    """What the kernel's defaults come to on one machine; all times in ns."""

    release: Release | None
    online_cpus: int
    scaling: str
    factor: int
    #: "min_granularity" (up to 6.5) or "base_slice"
    slice_name: str
    slice_ns: int
    #: None where the kernel has none (since 6.6)
    latency_ns: int | None
    wakeup_granularity_ns: int | None
    migration_cost_ns: int
    #: What was not known and taken as usual; for the report.
    assumed: tuple[str, ...] = ()

    @property
    def short_threshold_ns(self) -> int:
        """SIS_SHORT v5 to v7 (and Abel's rule): short is 0 < dur_avg < this.

        The kernel tests ``dur_avg * 8 < slice``; for a slice that 8 does not divide this is
        rounded up, so that the two tests agree for every integer.
        """
        return -(-self.slice_ns // 8)

    @property
    def short_limit_ns(self) -> int:
        """SIS_SHORT v4 as posted, ``dur_avg * 8 <= slice``: the longest dur_avg that is short."""
        return self.slice_ns // 8


def _default_slice(release: Release | None) -> tuple[str, int, tuple[str, ...]]:
    if release is None:
        return (
            "min_granularity",
            _MIN_GRANULARITY_NS,
            ("kernel release not known: slice of kernels up to 6.5",),
        )
    v = release[:2]
    if v <= (6, 5):
        return "min_granularity", _MIN_GRANULARITY_NS, ()
    if v >= (6, 15):
        return "base_slice", _BASE_SLICE_NS, ()
    if v == (6, 12):
        # The change went into 6.12.y in May 2025; the exact point release is not known here.
        early = "" if release[2] >= 40 else "; a 6.12 from before May 2025 has 0.75 ms"
        return "base_slice", _BASE_SLICE_NS, (("base slice 0.70 ms" + early,) if early else ())
    return (
        "base_slice",
        _MIN_GRANULARITY_NS,
        (("base slice 0.75 ms; late 6.6.y may have 0.70 ms",) if v == (6, 6) else ()),
    )


def tunables(
    release: Release | str | None,
    online_cpus: int,
    *,
    scaling: str = "log",
    slice_ns: int | None = None,
    migration_cost_ns: int = MIGRATION_COST_NS,
) -> Tunables:
    """Return the tunables of a kernel release on a machine of so many online CPUs.

    Parameters
    ----------
    release : (major, minor, point), str or None
    online_cpus : int
    scaling : str
        One of SCALINGS; "log" is the kernel's default.
    slice_ns : int, optional
        The slice as measured (min_granularity_ns or base_slice_ns in debugfs), already
        scaled.

    Raises
    ------
    ValueError
        Unknown scaling, or a slice that is not positive.

    >>> tunables("6.1.192", 8).short_threshold_ns
    375000
    """
    if isinstance(release, str):
        release = parse_release(release)
    if slice_ns is not None and slice_ns <= 0:
        raise ValueError(f"slice of {slice_ns} ns")
    factor = scaling_factor(online_cpus, scaling)
    name, unscaled, assumed = _default_slice(release)
    cfs = name == "min_granularity"
    return Tunables(
        release=release,
        online_cpus=online_cpus,
        scaling=scaling,
        factor=factor,
        slice_name=name,
        slice_ns=unscaled * factor if slice_ns is None else slice_ns,
        latency_ns=_LATENCY_NS * factor if cfs else None,
        wakeup_granularity_ns=_WAKEUP_GRANULARITY_NS * factor if cfs else None,
        migration_cost_ns=migration_cost_ns,
        assumed=assumed if slice_ns is None else (),
    )
