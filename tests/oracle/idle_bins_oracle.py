"""Idle time binned once more, slowly: the state of the machine at each instant at which it changes.

Nothing is carried from one instant to the next but who waits (a wait is begun and ended by rows of
the tables); all else is looked up in the rows anew: who idles, who sleeps until whom, who suffers.
Needs rows without losses.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from traceana.schema import BookingClass, EndReason, IdleBin, Quality, WakeContext, WakeKind
from traceana.timeline import Timeline

__all__ = ["Account", "oracle"]

UNMOVED = (WakeKind.SELF, WakeKind.ON_RQ)
INTERRUPT = (WakeContext.HARDIRQ, WakeContext.SOFTIRQ)


@dataclass
class Wait:
    task: int
    cpu: int
    start: int
    how: str  # decided, woken, preempted
    row: int | None
    ran: tuple[int, int] | None  # CPU and end of the last slice; None: moved since
    held: bool = False
    phase: int = 0  # 1 late, 2 strict, 3 certain
    phase_from: int = 0
    until: int = 0  # the victim's run


@dataclass
class Account:
    ns: dict[tuple[int, IdleBin], int] = field(default_factory=lambda: defaultdict(int))
    #: Per victim (wakeup).
    upper: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    lower: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    hops: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    pullable: int = 0
    pullable_hot: int = 0
    #: Per LLC: [idle, waiting, stuck, both, gap], ns.
    llcs: dict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0] * 5))


class _Machine:
    def __init__(
        self, t: Timeline, collisions: list[dict[str, Any]], gaps: list[tuple[int, int, int]],
        llc: list[int], core: list[int], long_ns: int, cost_ns: int,
    ) -> None:  # fmt: skip
        self.llc, self.core, self.long_ns, self.cost_ns = llc, core, long_ns, cost_ns
        self.gaps = [g for g in gaps if g[2] > g[1]]
        self.rows = t.wakeups.to_pylist()
        for r in self.rows:
            r["key"] = next(
                x for x in (r["waking_ts"], r["wakeup_ts"], r["run_ts"]) if x is not None
            )
            r["cpu"] = r["placed_cpu"] if r["placed_cpu"] is not None else r["ran_cpu"]
            r["real"] = r["kind"] not in UNMOVED
            ran = r["run_ts"]
            r["stays"] = r["wakeup_ts"] is not None and (
                bool(r["quality"] & Quality.CENSORED_END) if ran is None else ran >= r["wakeup_ts"]
            )
        self.of: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for r in self.rows:
            if r["real"]:
                self.of[r["wakee"]].append(r)
        self.slices: dict[int, list[dict[str, Any]]] = defaultdict(list)
        self.on: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for s in t.slices.to_pylist():
            if s["start"] is not None or s["end"] is not None:
                self.slices[s["task"]].append(s)
                self.on[s["cpu"]].append(s)
        self.moves = [(int(m["ts"]), int(m["task"]), int(m["dst"])) for m in t.raw["moves"]]
        self.suffers: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for c in collisions:
            if c["class"] == BookingClass.EXPLAINED or c["victim"] is None:
                continue
            if not c["extra_delay_ns"] or self.rows[c["victim"]]["run_ts"] is None:
                continue
            at = self.rows[c["victim"]]["run_ts"] - c["extra_delay_ns"]
            phase = {BookingClass.STRICT_CERTAIN: 3, BookingClass.STRICT: 2}.get(c["class"], 1)
            self.suffers[c["victim"]].append((at, phase))
        self.pinned = {r["wakee"] for r in self.rows if r["kind"] == WakeKind.PINNED}
        self.waits: dict[int, Wait] = {}

    # --- looked up in the rows ---

    def gap(self, cpu: int, at: int) -> tuple[int, int, int] | None:
        return next((g for g in self.gaps if g[0] == cpu and g[1] <= at < g[2]), None)

    def begun(self, task: int, at: int) -> dict[str, Any] | None:
        """The task's last slice that began by then, as far as anybody can see."""
        seen = [s for s in self.slices[task] if self.begin(s) <= at]
        return seen[-1] if seen else None

    @staticmethod
    def begin(s: dict[str, Any]) -> int:
        return int(s["end"] if s["start"] is None else s["start"])

    def asleep(self, task: int, at: int) -> dict[str, Any] | None:
        """The slice by whose end the task went to sleep, if it sleeps and nobody woke it."""
        s = self.begun(task, at)
        if s is None or s["end"] is None or s["end"] > at or task in self.waits:
            return None
        if s["end_reason"] not in (EndReason.SLEEP, EndReason.BLOCK):
            return None
        woken = any(self.begin(s) < r["key"] <= at for r in self.of[task] if not r.get("idle"))
        return None if woken else s

    def next_row(self, task: int, at: int) -> dict[str, Any] | None:
        return next((r for r in self.of[task] if r["key"] > at), None)

    def last_on(self, cpu: int, gap: tuple[int, int, int]) -> dict[str, Any] | None:
        """The slice that ended when the CPU went idle."""
        return next((s for s in self.on[cpu] if s["end"] == gap[1]), None)

    def coming(self, cpu: int, at: int) -> bool:
        if any(w.cpu == cpu and not w.held for w in self.waits.values()):
            return True
        for r in self.rows:
            if not (r["real"] and r["stays"] and r["cpu"] == cpu and r["visible_lo"] is not None):
                continue
            if r["key"] <= at and r["visible_lo"] <= at < r["wakeup_ts"]:
                s = self.begun(r["wakee"], at)
                runs = s is not None and (s["end"] is None or s["end"] > at)
                since = s is not None and self.begin(s) >= r["key"]
                if r["wakee"] not in self.waits and not runs and not since:
                    return True
        return False

    def stuck(self, w: Wait, at: int) -> bool:
        return w.held or self.gap(w.cpu, at) is None

    def chain(self, cpu: int, at: int) -> tuple[Wait | None, int]:
        gap = self.gap(cpu, at)
        assert gap is not None
        s = self.last_on(cpu, gap)
        if s is None or self.asleep(s["task"], at) is not s:
            return None, 0
        task = s["task"]
        for hop in range(1, 17):
            r = self.next_row(task, at)
            if r is None or r["context"] != WakeContext.TASK or r["waker"] is None:
                return None, 0
            task = r["waker"]
            w = self.waits.get(task)
            if w is not None:
                return (w, hop) if self.stuck(w, at) else (None, 0)
            if self.asleep(task, at) is None:
                return None, 0
        return None, 0

    def open_until(self, gap: tuple[int, int, int]) -> int:
        at = [
            r["visible_lo"]
            for r in self.rows
            if r["cpu"] == gap[0] and r["visible_lo"] is not None
            and gap[1] <= r["visible_lo"] < gap[2]
        ]  # fmt: skip
        return min([gap[2], *at])

    # --- who waits ---

    def hold(self, w: Wait, at: int) -> None:
        gap = self.gap(w.cpu, at)
        if gap is not None and (w.how == "preempted" or gap[2] - at > self.long_ns):
            w.held = True

    def change(self, at: int, out: Account) -> None:
        """Waits that begin and end at this instant."""
        for task in list(self.waits):
            if any(self.begin(s) == at for s in self.slices[task]):
                del self.waits[task]
        for row, phases in self.suffers.items():
            r = self.rows[row]
            for ts, phase in phases:
                if ts == at and r["real"] and r["stays"]:
                    task = r["wakee"]
                    if task not in self.waits and self.pending(r, at):
                        self.wait(task, r["cpu"], at, "decided", row)
                    w = self.waits.get(task)
                    if w is not None and w.row == row and phase > w.phase:
                        w.phase, w.phase_from, w.until = phase, at, r["run_ts"]
        for ts, task, to in self.moves:
            w = self.waits.get(task)
            if ts == at and w is not None and to != w.cpu:
                w.cpu, w.ran, w.held = to, None, False
                self.hold(w, at)
        for r in self.rows:
            if r["real"] and r["stays"] and r["wakeup_ts"] == at:
                task = r["wakee"]
                if task not in self.waits and self.pending(r, at):
                    how = "decided" if r["kind"] == WakeKind.DECIDED else "woken"
                    self.wait(task, r["cpu"], at, how, r["wakeup"])
        for g in self.gaps:
            if g[1] != at:
                continue
            mine = [w for w in self.waits.values() if w.cpu == g[0]]
            others = [
                w
                for w in self.waits.values()
                if w.cpu != g[0] and self.llc[w.cpu] == self.llc[g[0]]
                and w.task not in self.pinned and self.gap(w.cpu, at) is None
            ]  # fmt: skip
            out.pullable += bool(others)
            out.pullable_hot += bool(others) and all(self.hot(w, g) for w in others)
            for w in mine:
                self.hold(w, at) if w.how != "preempted" or g[2] - at > self.long_ns else None
        for task, slices in self.slices.items():
            for s in slices:
                if s["end"] == at and s["end_reason"] in (EndReason.PREEMPT, EndReason.YIELD_LIKE):
                    if not any(x["start"] == at for x in slices):
                        self.wait(task, s["cpu"], at, "preempted", None)

    def pending(self, r: dict[str, Any], at: int) -> bool:
        """Whether the wakee has not run since its waking and does not run now."""
        s = self.begun(r["wakee"], at)
        if s is None:
            return True
        return self.begin(s) < r["key"] and s["end"] is not None and s["end"] <= at

    def wait(self, task: int, cpu: int, at: int, how: str, row: int | None) -> None:
        s = self.begun(task, at)
        ran = (s["cpu"], s["end"]) if s is not None and s["end"] is not None else None
        w = self.waits[task] = Wait(task, cpu, at, how, row, ran)
        self.hold(w, at)

    def hot(self, w: Wait, gap: tuple[int, int, int]) -> bool:
        if w.ran is None or w.ran[0] != w.cpu or self.core[w.cpu] == self.core[gap[0]]:
            return False
        return gap[1] - w.ran[1] < self.cost_ns

    # --- one instant ---

    def why(self, w: Wait, gap: tuple[int, int, int]) -> IdleBin:
        if w.phase:
            return IdleBin.DOUBLE_BOOKING if w.phase > 1 else IdleBin.LATE_BOOKING
        if w.task in self.pinned:
            return IdleBin.PINNED
        if w.held:
            return IdleBin.UNKNOWN
        if w.start >= gap[1]:
            return IdleBin.PLACED if w.how == "decided" else IdleBin.UNKNOWN
        return IdleBin.MIGRATION_COST if self.hot(w, gap) else IdleBin.NEWIDLE_REFUSED

    def bins(self, at: int, ns: int, out: Account) -> None:
        idle = {g[0]: g for g in self.gaps if g[1] <= at < g[2]}
        waits = sorted(self.waits.values(), key=lambda w: (w.start, w.task))
        stuck = [w for w in waits if self.stuck(w, at)]
        for group in set(self.llc):
            i = sum(self.llc[c] == group for c in idle)
            n = sum(self.llc[w.cpu] == group for w in waits)
            k = sum(self.llc[w.cpu] == group for w in stuck)
            for which, value in enumerate((i, n, k, min(i, k, 1), min(i, k))):
                out.llcs[group][which] += ns * value
        chains = {c: self.chain(c, at) for c in idle} if stuck else dict.fromkeys(idle, (None, 0))
        coming = {c for c in idle if self.coming(c, at)}
        got: dict[int, IdleBin] = {}
        free = sorted(idle)
        left = list(stuck)

        def take(w: Wait, cpus: list[int]) -> None:
            if cpus:
                got[cpus[0]] = self.why(w, idle[cpus[0]])
                free.remove(cpus[0])
                left.remove(w)
                if w.phase > 1:
                    assert w.row is not None
                    out.upper[w.row] += ns

        def match(phases: tuple[int, ...], *, booked: bool) -> None:
            def near(w: Wait) -> list[int]:
                return [c for c in free if self.llc[c] == self.llc[w.cpu]]

            for w in [w for w in left if w.phase in phases]:
                mine = [c for c in near(w) if chains[c][0] is w]
                take(w, sorted(mine, key=lambda c: chains[c][1]))
            for w in [w for w in left if w.phase in phases]:
                own = [w.cpu] if w.held and w.cpu in free else []
                take(w, own or [c for c in near(w) if c not in coming])
            for w in [w for w in left if w.phase in phases and booked]:
                take(w, near(w))

        match((2, 3), booked=True)
        match((1,), booked=True)
        for c in [c for c in free if c in coming]:
            got[c] = IdleBin.ON_ITS_WAY
            free.remove(c)
        match((0,), booked=False)
        for w in left:
            if free and w.task not in self.pinned and not w.held:
                got[free.pop(0)] = IdleBin.OTHER_LLC
        for c in free:
            s = self.last_on(c, idle[c])
            if chains[c][0] is not None:
                got[c] = IdleBin.CHAIN
                continue
            got[c] = IdleBin.SURPLUS if waits else IdleBin.NOBODY
            if s is not None and self.asleep(s["task"], at) is s:
                r = self.next_row(s["task"], at)
                if s["end_reason"] == EndReason.BLOCK:
                    got[c] = IdleBin.IO
                elif r is not None and r["context"] in INTERRUPT:
                    got[c] = IdleBin.TIMER
        for c, b in got.items():
            out.ns[c, b] += ns
        for _, (root, hop) in chains.items():
            if root is not None and root.phase > 1:
                out.hops[root.row or 0] = max(out.hops[root.row or 0], hop)
        self.lower([w for w in stuck if w.phase == 3], idle, chains, ns, out)

    def lower(
        self, certain: list[Wait], idle: dict[int, tuple[int, int, int]],
        chains: dict[int, tuple[Wait | None, int]], ns: int, out: Account,
    ) -> None:  # fmt: skip
        free, left = sorted(idle), list(certain)
        for w in certain:
            mine = [c for c in free if chains[c][0] is w and self.llc[c] == self.llc[w.cpu]]
            if mine:
                out.lower[w.row or 0] += ns
                free.remove(mine[0])
                left.remove(w)
        for w in left:
            mine = [
                c
                for c in free
                if self.llc[c] == self.llc[w.cpu] and idle[c][1] <= w.phase_from
                and self.open_until(idle[c]) >= w.until
            ]  # fmt: skip
            if mine:
                out.lower[w.row or 0] += ns
                free.remove(min(mine, key=lambda c: (self.open_until(idle[c]), c)))


def oracle(
    timeline: Timeline, collisions: list[dict[str, Any]], gaps: list[tuple[int, int, int]],
    *, llc: list[int], core: list[int], long_ns: int, cost_ns: int,
) -> Account:  # fmt: skip
    """Bins per CPU and what belongs to each victim.

    Parameters
    ----------
    collisions : rows of ``schema.COLLISIONS``
    gaps : (cpu, start, end), open ends closed
    """
    m = _Machine(timeline, collisions, gaps, llc, core, long_ns, cost_ns)
    out = Account()
    times = {x for g in m.gaps for x in g[1:]} | {ts for ts, _, _ in m.moves}
    for r in m.rows:
        times |= {r[n] for n in ("key", "visible_lo", "wakeup_ts", "run_ts")} - {None}
    for slices in m.slices.values():
        times |= {x for s in slices for x in (s["start"], s["end"])} - {None}
    times |= {ts for phases in m.suffers.values() for ts, _ in phases}
    ordered = sorted(times)
    for i, at in enumerate(ordered):
        m.change(at, out)
        until = ordered[i + 1] if i + 1 < len(ordered) else timeline.last_ts
        if until > at:
            m.bins(at, until - at, out)
    return out
