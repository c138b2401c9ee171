"""The smart wake-affine of 2013: no pull by a waker that is hotter than a hot wakee.

Rule
----
wake_wide() in its first form: a wakee that itself switches its wakees more often than the
factor, woken by a waker that does so more than factor times as often, is not pulled: prev_cpu
is the target. The symmetric test of today (since 4.3) is left out. One-sided: a ping-pong never
becomes wide, nor does a dispatcher whose workers wake only it.

Source
------
"sched: smart wake-affine foundation", Michael Wang, v3 of July 2013: 1/2 with the CPUs of
this_cpu's NUMA node as factor, 2/2 with those of its LLC; merged in 3.12 (LLC), replaced in
4.3.

Conditions
----------
Stops pulling ("stop"):
1. this_cpu is not prev_cpu, the wakee may run there, prev_cpu lies in a wake-affine domain;
2. wakee_flips of both are known, those of the wakee are above the factor;
3. those of the waker are above the factor times those of the wakee.

Pulls where today's test stops ("pull"):
1. as above;
2. today's wake_wide() is true, the old one is not.

Reads
-----
flips of waker and wakee after record_wakee(), CPUs of the LLC or the node; for the rest of the
path idle CPUs, loads, nr_running.

Limits
------
The counters are those of the recorded kernel: halved once a second. The 2013 series wiped them
to 0 instead (halving came in 3.16 to 4.2), and counted wakees that are pinned, too. Everything
but this test is the recorded kernel's path. What is not known counts as 0, as in wake_wide().
"""

from __future__ import annotations

from traceana.rules.interface import (
    Machine,
    Params,
    Wakeup,
    flips_wide_2013,
    njit,
)

PARAMS: dict[str, tuple[str | int, str, str]] = {
    "node": (0, "", "1: the factor is the CPUs of this_cpu's NUMA node (1/2); 0: of its LLC (2/2)"),
    "factor": (0, "", "the factor itself, if not 0"),
}

REASONS = ("recorded", "mainline", "stop", "pull", "stop_same", "pull_same")

CONDITIONS = {
    "stop.apart": "this_cpu is not prev_cpu",
    "stop.allowed": "the wakee may run on this_cpu",
    "stop.domain": "prev_cpu lies in a wake-affine domain of this_cpu",
    "stop.flips_known": "wakee_flips of both are known",
    "stop.wakee_hot": "wakee_flips of the wakee is above the factor",
    "stop.waker_hotter": "wakee_flips of the waker is above factor times the wakee's",
    "pull.apart": "this_cpu is not prev_cpu",
    "pull.allowed": "the wakee may run on this_cpu",
    "pull.domain": "prev_cpu lies in a wake-affine domain of this_cpu",
    "pull.wide": "wake_wide() of today is true",
    "pull.not_2013": "the test of 2013 is false",
}

STEPS = {"wake_wide": ("pull", "stop")}

_NODE, _FACTOR = 0, 1

CASES = (
    {
        "name": "a hot waker does not pull a wakee that is hot itself; today's test agrees",
        "machine": {
            "cpus": 8,
            "nr": [1, 1, 1, 1, 1, 1, 1, 1],
            "nr_idle_scan": 8,
            "load": [100, 900, 500, 500, 500, 500, 500, 500],
        },
        "wakeup": {
            "this_cpu": 0,
            "prev_cpu": 1,
            "waker_flips": 73,
            "wakee_flips": 9,
            "wakee_load": 10,
            "recorded_cpu": 2,
        },
        "cpu": 2,
        "reason": "stop_same",
    },
    {
        "name": "a factor of its own: today's test would pull",
        "like": "a hot waker does not pull a wakee that is hot itself; today's test agrees",
        "wakeup": {"waker_flips": 21, "wakee_flips": 5, "recorded_cpu": 0},
        "params": {"factor": 4},
        "cpu": 1,
        "reason": "stop",
    },
    {
        "name": "a quarter of the flips at factor 4: not more, so it pulls",
        "like": "a factor of its own: today's test would pull",
        "wakeup": {"waker_flips": 20},
        "misses": "stop.waker_hotter",
        "boundary": "factor",
    },
    {
        "name": "a wakee with as many flips as the factor: not hot",
        "like": "a factor of its own: today's test would pull",
        "wakeup": {"wakee_flips": 4},
        "misses": "stop.wakee_hot",
        "boundary": "factor",
    },
    {
        "name": "flips of the wakee unknown",
        "like": "a factor of its own: today's test would pull",
        "wakeup": {"wakee_flips": -1},
        "misses": "stop.flips_known",
    },
    {
        "name": "this_cpu is prev_cpu",
        "like": "a factor of its own: today's test would pull",
        "wakeup": {"prev_cpu": 0},
        "misses": "stop.apart",
    },
    {
        "name": "not allowed on this_cpu",
        "like": "a factor of its own: today's test would pull",
        "wakeup": {"allowed": [1, 2, 3, 4, 5, 6, 7]},
        "misses": "stop.allowed",
    },
    {
        "name": "beyond the last wake-affine domain",
        "like": "a factor of its own: today's test would pull",
        "machine": {"zone": [0, 1, 1, 1, 1, 1, 1, 1]},
        "misses": "stop.domain",
    },
    {
        "name": "72 is not above 8 * 9: pulled, where today's test stops",
        "like": "a hot waker does not pull a wakee that is hot itself; today's test agrees",
        "wakeup": {"waker_flips": 72, "recorded_cpu": 1},
        "cpu": 0,
        "reason": "pull",
        "boundary": "factor",
    },
    {
        "name": "a wakee hotter than its waker is pulled, too",
        "like": "72 is not above 8 * 9: pulled, where today's test stops",
        "wakeup": {"waker_flips": 9, "wakee_flips": 73},
    },
    {
        "name": "pulled by nothing: the loads leave it on prev_cpu",
        "like": "72 is not above 8 * 9: pulled, where today's test stops",
        "machine": {"load": [900, 100, 500, 500, 500, 500, 500, 500]},
        "cpu": 1,
        "reason": "pull_same",
    },
    {
        "name": "pull: this_cpu is prev_cpu",
        "like": "72 is not above 8 * 9: pulled, where today's test stops",
        "wakeup": {"prev_cpu": 0},
        "misses": "pull.apart",
    },
    {
        "name": "pull: not allowed on this_cpu",
        "like": "72 is not above 8 * 9: pulled, where today's test stops",
        "wakeup": {"allowed": [1, 2, 3, 4, 5, 6, 7]},
        "misses": "pull.allowed",
    },
    {
        "name": "pull: beyond the last wake-affine domain",
        "like": "72 is not above 8 * 9: pulled, where today's test stops",
        "machine": {"zone": [0, 1, 1, 1, 1, 1, 1, 1]},
        "misses": "pull.domain",
    },
    {
        "name": "pull: not wide today",
        "like": "72 is not above 8 * 9: pulled, where today's test stops",
        "wakeup": {"waker_flips": 63, "wakee_flips": 8},
        "misses": "pull.wide",
    },
    {
        "name": "pull: wide in 2013, too",
        "like": "a hot waker does not pull a wakee that is hot itself; today's test agrees",
        "misses": "pull.not_2013",
        "reason": "stop_same",
    },
    {
        "name": "the node has 8 CPUs, each of its LLCs 4: by the node it pulls",
        "like": "72 is not above 8 * 9: pulled, where today's test stops",
        "machine": {"llc": [0, 0, 0, 0, 1, 1, 1, 1]},
        "wakeup": {"waker_flips": 41, "wakee_flips": 8},
        "params": {"node": 1},
    },
    {
        "name": "by the LLC it stops",
        "like": "the node has 8 CPUs, each of its LLCs 4: by the node it pulls",
        "params": {"node": 0},
        "cpu": 1,
        "reason": "stop_same",
    },
)


@njit
def _factor(w: Wakeup, m: Machine, p: Params) -> int:
    this = m.cpus[w.this_cpu]
    if p[_FACTOR] != 0:
        return int(p[_FACTOR])
    return this.node_weight if p[_NODE] != 0 else m.llcs[this.llc].weight


@njit
def _wide(w: Wakeup, m: Machine, p: Params) -> bool:
    return flips_wide_2013(w.waker_flips, w.wakee_flips, _factor(w, m, p))


@njit
def wake_wide(w: Wakeup, m: Machine, p: Params) -> int:
    """Return 1 where pulling is stopped, else 0."""
    return 1 if _wide(w, m, p) else 0


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return the bits of the CONDITIONS that are not met."""
    domain = (w.obstacles & 1) | (w.obstacles >> 1 & 6)
    factor = _factor(w, m, p)
    bits = domain
    if w.waker_flips < 0 or w.wakee_flips < 0:
        bits |= 1 << 3
    else:
        if w.wakee_flips <= factor:
            bits |= 1 << 4
        if w.waker_flips <= factor * w.wakee_flips:
            bits |= 1 << 5
    bits |= domain << 6
    if w.obstacles & 2 == 0:
        bits |= 1 << 9
    if _wide(w, m, p):
        bits |= 1 << 10
    return bits
