"""Validity bitmaps of Arrow from sentinels."""

from __future__ import annotations

from typing import Any

from traceana._jit import njit

__all__ = ["pack_valid"]


@njit
def pack_valid(values: Any, null: Any, bits: Any) -> int:
    """Write Arrow's validity bitmap of a column, and count its nulls.

    Parameters
    ----------
    values : array[n]
    null : scalar of the same dtype, the sentinel
    bits : uint8[(n + 7) // 8], written (unless there is no null): bit i is 1 where value i is
        known
    """
    n = values.shape[0]
    known = 0
    for i in range(n):
        known += 1 if values[i] != null else 0
    if known == n:
        return 0
    if known == 0:
        for byte in range(bits.shape[0]):
            bits[byte] = 0
        return n
    for byte in range(n // 8):
        b = 0
        for j in range(8):
            b |= (1 if values[byte * 8 + j] != null else 0) << j
        bits[byte] = b
    if n % 8:
        b = 0
        for i in range(n - n % 8, n):
            if values[i] != null:
                b |= 1 << (i % 8)
        bits[n // 8] = b
    return n - known
