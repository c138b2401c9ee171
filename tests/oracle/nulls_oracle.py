"""The null models in plain Python: one wakeup at a time, all others looked through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class Wake:
    """A decided wakeup; times in ns."""

    ident: int
    cpu: int
    own: int
    look: int
    decided: int
    shown: int
    idle: bool


def mix(a: int, b: int, seed: int) -> int:
    """The hash of the kernels, with plain integers."""
    mask = 0xFFFFFFFF
    x = (a ^ (seed * 40503)) & 0x7FFFFFFF
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & mask
    x = (x + b) & mask
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & mask
    x = ((x ^ (x >> 15)) * 0x735A2D97) & mask
    return (x ^ (x >> 15)) & 0x7FFFFFFF


def idle_set(
    wakes: list[Wake], k: int, gaps: list[tuple[int, int, int]], mates: list[int]
) -> list[int]:
    """CPUs that looked idle to the k-th: in a gap, without a booking that can be seen in it."""
    me = wakes[k]
    out = []
    for cpu in mates:
        if cpu == me.cpu:
            if me.idle:
                out.append(cpu)
            continue
        for c, start, end in gaps:
            if c == cpu and start <= me.look < end:
                if not any(w.cpu == cpu and start <= w.shown <= me.look for w in wakes):
                    out.append(cpu)
    return out


def meets(wakes: list[Wake], picks: list[int], k: int) -> bool:
    """Whether an earlier one chose the same CPU and could not be seen."""
    return any(
        wakes[j].idle and picks[j] == picks[k] and wakes[j].shown > wakes[k].look for j in range(k)
    )


def choice(
    wakes: list[Wake], gaps: list[tuple[int, int, int]], mates: dict[int, list[int]], draws: int,
    seed: int,
) -> tuple[int, list[int]]:  # fmt: skip
    """How many meet one, as recorded and in each draw; ``wakes`` in the order of decisions."""
    sets = [idle_set(wakes, k, gaps, mates[w.cpu]) for k, w in enumerate(wakes)]
    totals = []
    for d in range(-1, draws):
        picks = []
        for w, s in zip(wakes, sets, strict=True):
            at = w.cpu
            if d >= 0 and w.idle and len(s) > 1:
                at = s[mix(w.ident, d + 1, seed) % len(s)]
            picks.append(at)
        totals.append(
            sum(
                meets(wakes, picks, k)
                for k, w in enumerate(wakes)
                if w.idle and w.cpu != w.own and picks[k] != w.own
            )
        )
    return totals[0], totals[1:]


def timing(
    wakes: list[Wake], gaps: list[tuple[int, int, int]], draws: int, seed: int, nearest: int,
    tries: int,
) -> tuple[list[int], list[int]]:  # fmt: skip
    """Of each draw: how many found another instant, and how many met one there."""
    placed, met = [0] * draws, [0] * draws
    for d in range(draws):
        for w in wakes:
            if not w.idle or w.cpu == w.own:
                continue
            for t in range(tries):
                h = mix(w.ident, 1 + d * tries + t, seed)
                by = nearest + (h >> 1) % (3 * nearest)
                by = -by if h & 1 else by
                found = _at(wakes, w, gaps, by)
                if found is not None:
                    placed[d] += 1
                    met[d] += found
                    break
    return placed, met


def _at(wakes: list[Wake], w: Wake, gaps: Any, by: int) -> bool | None:
    when = w.look + by
    begin = next((s for c, s, e in gaps if c == w.cpu and s <= when < e), None)
    if begin is None:
        return None
    others = [o for o in wakes if o is not w and o.cpu == w.cpu and o.decided <= w.decided + by]
    if any(begin <= o.shown <= when for o in others):
        return None
    return any(o.shown > when for o in others)
