"""Bookings of idle CPUs: when each was decided and seen, and the idle gap that it fell into.

Two passes over wakeups in the order of their sched_waking: :func:`instants` estimates when each
wakeup looked and when it could be seen, :func:`into_gaps` finds the idle gap in which it found its
CPU. Times are ns, NULL where not known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana._jit import njit

__all__ = ["instants", "into_gaps"]

NULL = -(2**63)
FAR = 2**62

# schema.WakeKind and Queueing
_DECIDED, _SELF, _ON_RQ, _DELAYED, _DELAYED_MAYBE = 0, 1, 2, 5, 6
_DIRECT, _REMOTE = 0, 1

# What a wakeup is to its CPU
NOTHING, DECISION, OTHER = 0, 1, 2

# Places in the parameters
(
    P_LOOK,
    P_LEFT,
    P_TARGET,
    P_DIRECT,
    P_REMOTE,
    P_MIGRATE,
    P_SHORTEST,
    P_AFTER_SHORTEST,
    P_BEFORE_WAKEUP,
    P_CLEAR,
    P_CURRENT,
    P_JITTER,
    P_CLEARS_LAST,
    P_SKEW,
    P_COST,
    P_N,
) = range(16)

#: Gaps of a CPU that are looked through for one wakeup.
_STEPS = 4096
#: A wakeup looks no later than this after its waking, but for one that waited for its wakee to
#: leave a CPU, ns.
_SOON = 20_000


@njit
def instants(
    waking: Any, wakeup: Any, run: Any, latency: Any, seen_lo: Any, seen_hi: Any,
    kind: Any, how: Any, cpu: Any, P: Any, role: Any, read: Any, decided: Any, shown: Any,
    queued: Any, seen: Any,
) -> None:  # fmt: skip
    """Estimate the instants of each wakeup (sections 7.8-1 and 7.8-3 of the semantics).

    Parameters
    ----------
    waking, wakeup, run, latency : int64[n]
    seen_lo, seen_hi : int64[n], interval in which the booking becomes visible
    kind, how : uint8[n], WakeKind and Queueing
    cpu : int32[n], CPU of the booking, -1 unknown
    P : int64[16], the parameters
    role : uint8[n], written: NOTHING, DECISION or OTHER
    read : int64[n], written: when the chosen CPU was looked at, where it is tried first
    decided : int64[n], written: end of the selection, where sched_migrate_task is or would be
    shown : int64[n], written: when others see the booking
    queued : int64[n], written: when nr_running of the CPU rises
    seen : int64[n], written: ``seen_hi``, where that is not known ``shown``
    """
    for i in range(waking.shape[0]):
        role[i] = NOTHING
        w = waking[i]
        up = wakeup[i]
        k = kind[i]
        seen[i] = seen_hi[i]
        if cpu[i] < 0 or k == _SELF or k == _ON_RQ or k == _DELAYED or k == _DELAYED_MAYBE:
            continue
        remote = how[i] == _REMOTE
        q = FAR
        if up != NULL:
            q = up + (P[P_REMOTE] if remote else P[P_DIRECT])
        elif run[i] != NULL:
            q = run[i] + P[P_CURRENT]
        if w != NULL and q < w:
            q = w
        if k != _DECIDED or w == NULL:
            # It books the CPU, but it selects nothing, or nobody knows when it did.
            role[i] = OTHER
            s = q
            if remote and up != NULL:
                s = up + P[P_BEFORE_WAKEUP]
                if w != NULL and s < w + P[P_LOOK]:
                    s = w + P[P_LOOK]
            if s > q:
                s = q
            read[i] = decided[i] = shown[i] = s
            queued[i] = q
            continue
        role[i] = DECISION
        # A wakee that is still switching out is waited for.
        look = w + P[P_LOOK]
        if run[i] != NULL and latency[i] != NULL:
            asleep = run[i] - latency[i]
            if asleep > w and asleep + P[P_LEFT] > look:
                look = asleep + P[P_LEFT]
        moved = seen_lo[i] != NULL and seen_lo[i] != w
        if moved:
            m = seen_lo[i]
            s = m + P[P_MIGRATE]
            if look > m - 1:
                look = max(m - 1, w)
        else:
            if P[P_SHORTEST] >= 0:
                m = look - P[P_LOOK] + P[P_SHORTEST]
                s = m + P[P_AFTER_SHORTEST]
            elif up != NULL:
                s = up + P[P_BEFORE_WAKEUP]
                m = s - P[P_MIGRATE]
            else:
                m = look
                s = look
            if up != NULL and m > up:
                m = up
            if m < look:
                m = look
        if s < look + 1:
            s = look + 1
        if how[i] == _DIRECT and up != NULL:
            s = q
        if s > q:
            s = q
        read[i] = look + P[P_TARGET]
        decided[i] = m
        shown[i] = s
        queued[i] = q
        if seen[i] == NULL:
            seen[i] = s


@njit
def into_gaps(
    role: Any, read: Any, decided: Any, waking: Any, cpu: Any, prev: Any, g_cpu: Any,
    g_start: Any, g_end: Any, P: Any,
    g_from: Any, g_to: Any, g_cut: Any, g_next: Any, g_prev: Any, cursor: Any, gap: Any, count: Any,
) -> None:  # fmt: skip
    """Find the idle gap in which each booking found its CPU.

    Parameters
    ----------
    role, read, decided, waking, cpu, prev : as in :func:`instants`
    g_cpu, g_start, g_end : int32, int64, int64[k], the gaps in the order of time
    g_from, g_to : int64[k], written: from when to when the CPU can look idle
    g_cut : uint8[k], written: 1 where an end was lost, not merely outside the window
    g_next, g_prev, cursor : int64[k], int64[k], int64[cpus], work space; ``cursor`` filled with -1
    gap : int64[n], written: the gap, -1 where the CPU was not idle
    count : int64[k + 1], zeros; written: bookings of each gap
    """
    n_cpus = cursor.shape[0]
    first = np.full(n_cpus, -1, np.int64)
    for g in range(g_cpu.shape[0]):
        c = g_cpu[g]
        g_next[g] = -1
        g_prev[g] = -1
        g_cut[g] = 0
        g_from[g] = -FAR if g_start[g] == NULL else g_start[g] + P[P_CURRENT]
        g_to[g] = FAR if g_end[g] == NULL else g_end[g] + P[P_CURRENT]
        if c < 0 or c >= n_cpus:
            continue
        before = cursor[c]
        if before < 0:
            first[c] = g
        else:
            g_next[before] = g
            g_prev[g] = before
            # A gap of which an end was lost reaches no further than its neighbour.
            if g_to[before] == FAR:
                g_to[before] = max(g_from[g], g_from[before])
                g_cut[before] = 1
            if g_from[g] == -FAR:
                g_from[g] = min(g_to[before], g_to[g])
                g_cut[g] = 1
        cursor[c] = g
    for c in range(n_cpus):
        cursor[c] = first[c]
    early = P[P_JITTER]
    for i in range(role.shape[0]):
        gap[i] = -1
        c = cpu[i]
        if role[i] == NOTHING or c < 0 or c >= n_cpus or cursor[c] < 0:
            continue
        r = read[i]
        if role[i] == DECISION and cpu[i] != prev[i]:
            # It found the CPU idle at some time until the end of its search.
            r = decided[i]
        # Rows come in the order of their waking: the cursor follows those that look soon after it,
        # the others walk on from there alone.
        follows = waking[i] == NULL or r - waking[i] <= _SOON
        g = cursor[c]
        steps = 0
        while g_next[g] >= 0 and g_from[g_next[g]] <= r + early and (follows or steps < _STEPS):
            g = g_next[g]
            steps += 1
        if follows:
            cursor[c] = g
        steps = 0
        while g >= 0 and g_from[g] > r + early and steps < _STEPS:
            g = g_prev[g]
            steps += 1
        if g < 0 or g_from[g] > r + early:
            continue
        # A selection that began while the idle task was current may have found it so.
        if g_to[g] > r or (role[i] == DECISION and g_end[g] != NULL and g_end[g] > waking[i]):
            gap[i] = g
            count[g] += 1
