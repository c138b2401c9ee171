"""Kernels of the null models: bookings that meet, as recorded and as chance would have it.

Rows are decided wakeups in the order of ``decided``, the end of their selection. One *meets* an
earlier one when both chose the same CPU and the earlier one's booking was not visible yet when the
later one looked. Times are ns; randomness is a hash of (seed, draw, row), so that a draw does not
depend on which rows are asked.
"""

from __future__ import annotations

from typing import Any

from traceana._jit import inlined, njit

__all__ = ["choose", "idle_sets", "neighbours", "shift"]

FAR = 2**62
#: Rows that are looked back for bookings which are not visible yet.
_BACK = 256


@inlined
def _hash(a: int, b: int, seed: int) -> int:
    """31 even bits; products stay below 2**63, so that it is the same without compiling.

    The multipliers are those of Chris Wellons' hash-prospector (lowbias32, 2018, second set).
    """
    x = (a ^ (seed * 40503)) & 0x7FFFFFFF
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & 0xFFFFFFFF
    x = (x + b) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x735A2D97) & 0xFFFFFFFF
    return (x ^ (x >> 15)) & 0x7FFFFFFF


@njit
def neighbours(
    look: Any, shown: Any, decided: Any, idle_chosen: Any, longest: int, start: Any, out: Any
) -> int:
    """List, for each row, the earlier ones that it could not see.

    Parameters
    ----------
    look, shown, decided : int64[n]
    idle_chosen : uint8[n], rows whose CPU looked idle: only these are listed
    longest : no booking takes longer than this from its decision to being seen
    start : int64[n + 1], written: where a row's list begins
    out : int32[m], written as far as there is room

    Returns
    -------
    int
        Length of all lists; where that is more than m, they have to be asked for again.
    """
    total = 0
    for i in range(look.shape[0]):
        start[i] = total
        j = i - 1
        while j >= 0 and i - j <= _BACK and decided[j] + longest > look[i]:
            if shown[j] > look[i] and idle_chosen[j]:
                if total < out.shape[0]:
                    out[total] = j
                total += 1
            j -= 1
    start[look.shape[0]] = total
    return total


@njit
def idle_sets(
    order: Any, look: Any, cpu: Any, idle_chosen: Any, by_shown: Any, shown: Any, llc: Any,
    l_start: Any, l_cpus: Any, g_start: Any, g_from: Any, g_to: Any, cursor: Any, last: Any,
    size: Any, sets: Any,
) -> None:  # fmt: skip
    """List the CPUs that looked idle to each row, in the LLC of the CPU that it chose.

    Parameters
    ----------
    order : int64[n], rows in the order of ``look``
    look : int64[n], likeliest instant at which it looked; cpu : int32[n], chosen CPU; idle_chosen : uint8[n], it looked idle
    by_shown : int64[n], rows in the order of ``shown``; shown : int64[n], likeliest
        instant at which its booking is seen
    llc : int32[cpus]; l_start, l_cpus : int32, members of each LLC
    g_start : int64[cpus + 1], where the gaps of a CPU lie in g_from, g_to (int64[k], ascending)
    cursor : int64[cpus], filled with g_start; last : int64[cpus], filled with -FAR; work space
    size : int32[n], written; sets : int32[n, w], written
    """
    p = 0
    for x in range(order.shape[0]):
        i = order[x]
        t = look[i]
        while p < by_shown.shape[0] and shown[by_shown[p]] <= t:
            c = cpu[by_shown[p]]
            last[c] = shown[by_shown[p]]
            p += 1
        n = 0
        group = llc[cpu[i]]
        for y in range(l_start[group], l_start[group + 1]):
            c = l_cpus[y]
            if c == cpu[i]:
                if idle_chosen[i]:
                    sets[i, n] = c
                    n += 1
                continue
            g = cursor[c]
            while g + 1 < g_start[c + 1] and g_from[g + 1] <= t:
                g += 1
            cursor[c] = g
            if g < g_start[c + 1] and g_from[g] <= t and g_to[g] > t and last[c] < g_from[g]:
                sets[i, n] = c
                n += 1
        size[i] = n


@njit
def choose(
    draws: int, seed: int, ids: Any, counted: Any, cpu: Any, own: Any, idle_chosen: Any, size: Any,
    sets: Any, start: Any, near: Any, block: Any, pick: Any, recorded: Any, hits: Any,
) -> None:  # fmt: skip
    """Count the rows that meet an earlier one: as recorded, and choosing at random.

    Parameters
    ----------
    draws, seed : how often, and with what
    ids : int64[n], what names a row; counted : uint8[n], rows that count
    cpu, own : int32[n], chosen CPU, waker's CPU; idle_chosen : uint8[n]
    size, sets : as in :func:`idle_sets`; start, near : as in :func:`neighbours`
    block : int32[n], the block in which a row counts
    pick : int32[n], work space
    recorded : int64[b], zeros; written: rows that meet one, as recorded
    hits : int64[draws, b], zeros; written: the same of each draw
    """
    n = cpu.shape[0]
    for d in range(-1, draws):
        for i in range(n):
            pick[i] = cpu[i]
            if d >= 0 and idle_chosen[i] and size[i] > 1:
                pick[i] = sets[i, _hash(ids[i] & 0x7FFFFFFF, d + 1, seed) % size[i]]
        for i in range(n):
            if not counted[i] or pick[i] == own[i]:
                continue
            for x in range(start[i], start[i + 1]):
                if pick[near[x]] == pick[i]:
                    if d < 0:
                        recorded[block[i]] += 1
                    else:
                        hits[d, block[i]] += 1
                    break


@inlined
def _upto(values: Any, a: int, b: int, t: int) -> int:
    """The last place of values[a:b] (ascending) with values <= t, or a - 1."""
    lo, hi = a, b
    while lo < hi:
        mid = (lo + hi) >> 1
        if values[mid] <= t:
            lo = mid + 1
        else:
            hi = mid
    return lo - 1


@njit
def shift(
    draws: int, seed: int, nearest: int, tries: int, ids: Any, counted: Any, cpu: Any, look: Any,
    decided: Any, shown: Any, longest: int, c_start: Any, c_rows: Any, c_decided: Any,
    g_start: Any, g_from: Any, g_to: Any, block: Any, placed: Any, hits: Any,
) -> None:  # fmt: skip
    """Count the rows that meet another one when they happen at another time.

    Each row keeps its CPU and is moved by ``nearest`` to 4 * ``nearest`` ns to an instant at which
    that CPU looked idle, too: inside an idle gap, without a booking that could be seen in it.

    Parameters
    ----------
    draws, seed, tries : how often, with what, and how often a row looks for such an instant
    ids, counted, cpu, look, decided, shown, block : as in :func:`choose`
    c_start : int64[cpus + 1]; c_rows, c_decided : int64[n], rows of each CPU and their ``decided``
    g_start, g_from, g_to : gaps of each CPU
    placed, hits : int64[draws, b], zeros; written: rows that found an instant, and that met one
    """
    for d in range(draws):
        for i in range(cpu.shape[0]):
            if not counted[i]:
                continue
            c = cpu[i]
            for k in range(tries):
                h = _hash(ids[i] & 0x7FFFFFFF, 1 + d * tries + k, seed)
                by = nearest + (h >> 1) % (3 * nearest)
                if h & 1:
                    by = -by
                t = look[i] + by
                g = _upto(g_from, g_start[c], g_start[c + 1], t)
                if g < g_start[c] or g_to[g] <= t:
                    continue
                x = _upto(c_decided, c_start[c], c_start[c + 1], decided[i] + by)
                booked = met = False
                while x >= c_start[c]:
                    j = c_rows[x]
                    if c_decided[x] + longest < g_from[g]:
                        break
                    x -= 1
                    if j == i:
                        continue
                    if shown[j] > t:
                        met = True
                    elif shown[j] >= g_from[g]:
                        booked = True
                        break
                if booked:
                    continue
                placed[d, block[i]] += 1
                if met:
                    hits[d, block[i]] += 1
                break
