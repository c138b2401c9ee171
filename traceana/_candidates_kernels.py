"""Pairs of overlapping bookings of one idle CPU."""

from __future__ import annotations

from typing import Any

from traceana._jit import njit

__all__ = ["pair_bookings"]


@njit
def pair_bookings(gap: Any, lo: Any, hi: Any, first: Any) -> int:
    """Find, for each booking, an earlier one of the same idle gap that it could not see.

    Parameters
    ----------
    gap : int64[n]
        Idle gap in which the booked CPU was, -1 where it was not idle; equal values adjacent.
    lo, hi : int64[n]
        Begin of the decision and its latest instant of visibility, ns; ``lo`` ascending within
        a gap.
    first : int64[n]
        Written: index of the earliest booking still invisible at ``lo``, or -1.

    Returns
    -------
    int
        How many bookings have one.
    """
    n = gap.shape[0]
    found = 0
    begin = 0
    for i in range(n):
        first[i] = -1
        if i > 0 and gap[i] != gap[i - 1]:
            begin = i
        if gap[i] < 0:
            continue
        # Bookings of one idle gap are few; those that everybody sees by now drop out for good.
        while begin < i and hi[begin] <= lo[i]:
            begin += 1
        if begin < i:
            first[i] = begin
            found += 1
    return found
