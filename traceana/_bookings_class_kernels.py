"""Bookings of one idle gap: which of them did not see each other, and who waited for it.

:func:`classify` goes through the gaps that ``_bookings_kernels`` found. Times are ns, NULL where not
known.
"""

from __future__ import annotations

from typing import Any

from traceana._bookings_kernels import (
    DECISION,
    NULL,
    P_CLEAR,
    P_CLEARS_LAST,
    P_COST,
    P_JITTER,
    P_SKEW,
)
from traceana._jit import njit, step

__all__ = ["classify"]

_REMOTE = 1

# schema.BookingClass and BookingWhy
_CERTAIN, _STRICT, _LATE, _EXPLAINED = 0, 1, 2, 3
_WINDOW, _OWN_CPU, _ONLY_CPU, _BUSY_TARGET, _FALLBACK, _FALSE_IDLE, _UNKNOWN = 0, 1, 2, 3, 4, 5, 8

#: Earlier bookings of an idle gap that a later one is held against. More than a few are rare.
_BACK = 32


@step
def _sort(rows: Any, a: Any, b: Any, key: Any) -> None:
    """Sort ``rows[a:b]`` by key (shell sort: groups are small, and nearly in order)."""
    width = 1
    while width < (b - a) // 3:
        width = 3 * width + 1
    while width > 0:
        for x in range(a + width, b):
            row = rows[x]
            y = x
            while y - width >= a and (
                key[rows[y - width]] > key[row]
                or (key[rows[y - width]] == key[row] and rows[y - width] > row)
            ):
                rows[y] = rows[y - width]
                y -= width
            rows[y] = row
        width //= 3


@njit
def classify(
    role: Any, read: Any, decided: Any, shown: Any, queued: Any, gap: Any, count: Any,
    cpu: Any, this: Any, prev: Any, how: Any, waking: Any, run: Any, seen_lo: Any, seen_hi: Any,
    idle_llc: Any, lost: Any, llc: Any, g_to: Any, g_cut: Any, P: Any, members: Any,
    looked: Any, out_pair: Any, out_class: Any, out_delay: Any,
) -> int:  # fmt: skip
    """Go through the bookings of each idle gap and class those that were not the only one.

    Parameters
    ----------
    role to waking, g_to, g_cut : as in ``instants`` and ``into_gaps``
    idle_llc : int32[n], idle CPUs of the previous CPU's LLC at the waking, -1 unknown
    llc : int32[cpus], a number per LLC, -1 where it is not known
    lost : uint8[n], 1: events were lost around the wakeup
    members : int64[n], work space
    looked : uint8[n], written: 1 where the chosen CPU looked idle to the decision
    out_pair : int64[n, 4], written: rows of earlier, later, first (-1) and victim (-1)
    out_class : uint8[n, 3], written: class, why, and 1 if the windows overlap without tracing
    out_delay : int64[n], written: the victim's extra delay, NULL

    Returns
    -------
    int
        How many double bookings there are.
    """
    n, n_gaps = role.shape[0], g_to.shape[0]
    total = 0
    for g in range(n_gaps):
        k = count[g]
        count[g] = total
        total += k
    for i in range(n):
        looked[i] = 0
        if gap[i] >= 0:
            members[count[gap[i]]] = i
            count[gap[i]] += 1
        elif role[i] == DECISION and cpu[i] != prev[i] and cpu[i] != this[i]:
            # Nothing but its idleness leads there.
            looked[i] = 1
    found = 0
    a = 0
    for g in range(n_gaps):
        b = count[g]
        if b - a == 1:
            i = members[a]
            if role[i] == DECISION and (cpu[i] != prev[i] or read[i] < g_to[g] + P[P_JITTER]):
                looked[i] = 1
        elif b > a:
            _sort(members, a, b, decided)
            found = _group(
                members, a, b, role, read, decided, shown, queued, cpu, this, prev, how, waking,
                run, seen_lo, seen_hi, idle_llc, lost, llc, g_to[g], g_cut[g] == 1, P,
                looked, out_pair, out_class, out_delay, found,
            )  # fmt: skip
        a = b
    return found


@step
def _shown_first(members: Any, a: Any, b: Any, x: Any, read: Any, shown: Any, run: Any) -> Any:
    """The other booking that shows first of those whose wakee still is on its way, or -1."""
    i = members[x]
    first = -1
    for y in range(max(a, x - _BACK), min(b, x + _BACK + 1)):
        j = members[y]
        if y == x or (run[j] != NULL and run[j] <= read[i]):
            continue
        if first < 0 or shown[j] < shown[first]:
            first = j
    return first


@step
def _group(
    members: Any, a: Any, b: Any, role: Any, read: Any, decided: Any, shown: Any, queued: Any,
    cpu: Any, this: Any, prev: Any, how: Any, waking: Any, run: Any, seen_lo: Any, seen_hi: Any,
    idle_llc: Any, lost: Any, llc: Any, until: Any, cut: Any, P: Any, looked: Any, out_pair: Any,
    out_class: Any, out_delay: Any, found: Any,
) -> Any:  # fmt: skip
    """The bookings ``members[a:b]`` of one gap, in the order of their decisions."""
    jitter, skew, cost = P[P_JITTER], P[P_SKEW], P[P_COST]
    begin = found
    best = -1
    for x in range(a, b):
        i = members[x]
        if role[i] != DECISION:
            continue
        near = cpu[i] == prev[i]
        own = cpu[i] == this[i]
        r = read[i]
        # Whoever stayed although others idled has found it idle; else it may have been for want of
        # another, and the likelier of the two counts.
        blur = 0 if 0 <= idle_llc[i] <= 1 else jitter
        o = _shown_first(members, a, b, x, read, shown, run)
        false_idle = (
            o >= 0
            and P[P_CLEARS_LAST] == 0
            and how[o] == _REMOTE
            # Within an LLC a wakee is left to a CPU that has nothing queued (1.4): one that was idle for
            # that short time only has its task by the time at which most selections are over.
            and not (
                how[i] == _REMOTE
                and together(this[i], cpu[i], llc)
                and (decided[i] >= queued[o] or r < queued[o] + P[P_CLEAR])
            )
            and r >= queued[o] + P[P_CLEAR] - blur
            and r < queued[o] + blur
        )
        looked[i] = 1
        if near or own:
            if r >= until + jitter or (o >= 0 and r >= shown[o] + blur and not false_idle):
                looked[i] = 0
        # Held against the earlier decisions that found the CPU idle, too, and whose wakees have
        # not run yet (another CPU may have taken them, and this one gone on being idle).
        strict = False
        certain = False
        bare = False
        foreign = False
        last = -1
        for y in range(x - 1, max(x - 1 - _BACK, a - 1), -1):
            j = members[y]
            if role[j] != DECISION or looked[j] == 0 or (run[j] != NULL and run[j] <= waking[i]):
                continue
            if last < 0:
                last = j
            if cpu[j] == this[j]:
                continue
            foreign = True
            if waking[i] < seen_hi[j] + skew:
                strict = True
                if waking[i] < bare_end(j, shown, seen_lo, waking, cost) and waking[j] < bare_end(
                    i, shown, seen_lo, waking, cost
                ):
                    bare = True
                reach = not near or seen_end(i, seen_lo, seen_hi, waking) + skew < seen_lo[j]
                # The other order: the earlier one decided later.
                if seen_hi[j] + skew >= seen_lo[i] and cpu[j] == prev[j]:
                    reach = reach and seen_end(j, seen_lo, seen_hi, waking) + skew < seen_lo[i]
                if reach and lost[i] == 0 and lost[j] == 0 and not cut:
                    certain = True
        if last < 0:
            begin = _settle(begin, found, best, run, seen_hi, out_pair, out_delay)
            best = i
            continue
        if run[best] != NULL and run[best] <= waking[i]:
            best = last
        cls = _EXPLAINED
        why = _OWN_CPU
        if own:
            pass
        elif looked[i] == 0:
            why = _BUSY_TARGET if idle_llc[i] > 1 else _FALLBACK
        elif not foreign:
            pass
        elif strict:
            cls = _CERTAIN if certain else _STRICT
            why = _WINDOW
        else:
            cls = _LATE
            why = _FALSE_IDLE if false_idle else _UNKNOWN
        out_pair[found, 0] = best
        out_pair[found, 1] = i
        out_pair[found, 2] = -1
        out_pair[found, 3] = -1
        out_class[found, 0] = cls
        out_class[found, 1] = why
        out_class[found, 2] = 1 if bare else 0
        out_delay[found] = NULL
        # One of the two is a victim, the other may become one of the next: each is one once.
        if run[best] != NULL and run[i] != NULL:
            out_pair[found, 3] = i if run[i] >= run[best] else best
        if run[i] != NULL and (run[best] == NULL or run[i] < run[best]):
            best = i
        found += 1
    _settle(begin, found, best, run, seen_hi, out_pair, out_delay)
    return found


@step
def _settle(
    begin: Any, end: Any, first: Any, run: Any, seen_hi: Any, out_pair: Any, out_delay: Any
) -> Any:
    """Say who ran first, and how long the victims waited from then on."""
    for row in range(begin, end):
        if run[first] == NULL:
            break
        out_pair[row, 2] = first
        v = out_pair[row, 3]
        if v >= 0:
            out_delay[row] = max(run[v] - max(seen_hi[v], run[first]), 0)
    return end


@step
def seen_end(i: Any, seen_lo: Any, seen_hi: Any, waking: Any) -> Any:
    """End of the interval in which a wakeup looked at CPUs."""
    return seen_lo[i] if seen_lo[i] != waking[i] else seen_hi[i]


@step
def bare_end(i: Any, shown: Any, seen_lo: Any, waking: Any, cost: Any) -> Any:
    """When a booking would show if recording sched_waking and sched_migrate_task took no time."""
    return shown[i] - (2 * cost if seen_lo[i] != waking[i] else cost)


@step
def together(a: Any, b: Any, llc: Any) -> Any:
    """Whether two CPUs are known to share an LLC."""
    if a < 0 or a >= llc.shape[0] or b >= llc.shape[0]:
        return False
    return llc[a] >= 0 and llc[a] == llc[b]
