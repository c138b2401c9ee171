"""The strict reading once more, slowly, and the other way round: what may explain is looked up.

Where the kernel keeps candidates and drops them when a later record explains them, this looks at
the later records at once. Nothing else is shared but the numbers of the schema.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from traceana.columns import EventColumns
from traceana.schema import EventKind as K
from traceana.schema import State

__all__ = ["first_contradiction"]

SKEW = 3000
GONE = State.DEAD | State.ZOMBIE
EVER = -(2**63)


@dataclass
class Task:
    where: str = "unknown"  # running, queued, asleep, coming
    cpu: int = -1
    woken: bool = False
    open: bool = False
    wake: int = EVER
    at: int = 0  # row that told this
    since: int = 0


WAKES = (K.WAKING, K.WAKEUP, K.WAKEUP_NEW)


def about(pid: int, *kinds: K) -> Callable[[Any], bool]:
    """Whether a row is one of these events of a task."""
    return lambda r: r["kind"] in kinds and r["subject"] == pid


def first_contradiction(e: EventColumns, kernel: int = 0) -> tuple[str, int, int] | None:
    """(kind, cpu, row) of the first contradiction of a whole stream, or None."""
    n = len(e)
    rows: list[Any] = [
        dict(
            zip(
                ("ts", "cpu", "kind", "pid", "subject", "state", "other", "to"), values, strict=True
            )
        )
        for values in zip(
            *(
                getattr(e, a).tolist()
                for a in ("ts", "cpu", "kind", "pid", "subject", "state", "other", "cpu_to")
            ),
            strict=True,
        )
    ]
    before: list[int] = []  # latest time of the row's CPU before it
    latest: dict[int, int] = {}
    for r in rows:
        before.append(latest.get(r["cpu"], EVER))
        if r["kind"] < K.LOST:
            latest[r["cpu"]] = max(latest.get(r["cpu"], EVER), r["ts"])
    tasks: dict[int, Task] = {}
    current: dict[int, int] = {}
    told: dict[int, int] = {}
    predecessor: dict[int, int] = {}
    last: dict[int, int] = {}
    wakes = moves = switches = False
    whole = EVER

    def lost_later(i: int) -> bool:
        for j in range(i + 1, n):
            if rows[j]["kind"] == K.LOST and before[j] <= rows[i]["ts"] + SKEW:
                return True
            if rows[j]["kind"] == K.BEGIN:
                return True
        return False

    def later(i: int, fits: Any) -> bool:
        until = rows[i]["ts"] + SKEW
        return any(
            rows[j]["ts"] <= until and rows[j]["kind"] < K.LOST and fits(rows[j])
            for j in range(i + 1, n)
        )

    def runs(i: int, pid: int) -> str | None:
        c = rows[i]["cpu"]
        predecessor[c] = current.get(c, -1)
        current[c], told[c] = pid, i
        if pid == 0:
            return None
        t = tasks.setdefault(pid, Task())
        found = None
        if t.where == "running" and t.cpu != c and current.get(t.cpu) == pid:
            if (
                switches
                and not lost_later(i)
                and not later(
                    i, lambda r: r["kind"] == K.SWITCH and r["subject"] == pid and r["cpu"] != c
                )
            ):
                found = "ran_on_two_cpus"
            current[t.cpu] = -1
        t.where, t.cpu, t.at, t.since = "running", c, i, rows[i]["ts"]
        return found

    def names(i: int, pid: int) -> str | None:
        r = rows[i]
        c = r["cpu"]
        have = current.get(c, -1)
        if have == pid:
            return None
        found = None
        if have >= 0:
            near = r["ts"] - rows[told[c]]["ts"] <= SKEW
            if pid == predecessor.get(c, -1) and r["kind"] != K.SWITCH and near:
                return None
            found = "lost_switch" if switches else None
            if have > 0:
                tasks.setdefault(have, Task()).where = "unknown"
        elif pid > 0:
            t = tasks.setdefault(pid, Task())
            if t.where == "running" and t.cpu != c and r["ts"] - t.since <= SKEW:
                return None
        other = runs(i, pid)
        return found or other

    for i, r in enumerate(rows):
        ts, c, kind, subject, other = r["ts"], r["cpu"], r["kind"], r["subject"], r["other"]
        if kind in (K.LOST, K.BEGIN):
            whole = max(whole, ts)
            for d in [c] if c >= 0 else list(current):
                current[d] = -1
            continue
        if c < 0:
            continue
        if c in last and rows[last[c]] == r:
            continue
        found: list[str | None] = []
        if ts < before[i]:
            found.append("time_backwards")
        last[c] = i
        if kind == K.SWITCH:
            switches = True
            found.append(names(i, subject))
            if subject > 0:
                t = tasks.setdefault(subject, Task())
                if not (t.where == "running" and t.cpu != c):
                    state = r["state"]
                    if state == 65535 or (state & GONE and not state & State.PREEMPTED):
                        t.where = "unknown"
                    elif state == 0 or state & State.PREEMPTED:
                        t.where = "queued"
                    else:
                        t.where = "coming" if t.open else "asleep"
                    t.woken, t.at, t.since = False, i, ts
            if other > 0:
                t = tasks.setdefault(other, Task())
                if t.where == "asleep" and wakes and t.since > whole:
                    lawful = kernel == 0 or 5018 <= kernel < 6016 or t.wake >= t.since - SKEW
                    if (
                        not lawful
                        and not lost_later(i)
                        and not later(
                            i,
                            about(other, *WAKES),
                        )
                    ):
                        found.append("lost_wakeup")
                elif t.where == "queued" and moves and t.since > whole and t.cpu not in (-1, c):
                    if not lost_later(i) and not later(
                        i,
                        about(other, *WAKES, K.MIGRATE),
                    ):
                        found.append("moved_without_migrate")
                t.open = t.woken = False
                found.append(runs(i, other))
            elif other == 0:
                runs(i, 0)
            else:
                current[c] = -1
        else:
            if r["pid"] >= 0:
                found.append(names(i, r["pid"]))
            if subject > 0:
                t = tasks.setdefault(subject, Task())
                if kind == K.WAKING:
                    if t.where in ("coming", "queued") and t.woken and t.since > whole:
                        if not lost_later(i) and not later(
                            i, lambda x, p=subject: x["kind"] == K.SWITCH and x["other"] == p
                        ):
                            found.append("wake_repeated")
                    if t.where == "running" or (t.where == "queued" and not t.woken):
                        t.open = True
                    elif t.where in ("asleep", "unknown"):
                        t.woken = t.where == "asleep"
                        t.where, t.at, t.since = "coming", i, ts
                    t.wake, wakes = ts, True
                elif kind in (K.WAKEUP, K.WAKEUP_NEW):
                    t.open = False
                    if kind == K.WAKEUP_NEW or t.where in ("asleep", "coming", "unknown"):
                        slept = t.where == "asleep" or (t.where == "coming" and t.woken)
                        t.woken = kind == K.WAKEUP_NEW or slept
                        t.where, t.cpu, t.at, t.since = "queued", r["to"], i, ts
                    elif t.where == "queued" and t.cpu != r["to"]:
                        t.cpu, t.at, t.since = r["to"], i, ts
                    t.wake, wakes = ts, True
                elif kind == K.MIGRATE:
                    moves = True
                    if t.where == "queued":
                        t.cpu, t.at, t.since = r["to"], i, ts
                elif kind == K.FORK:
                    t.where = "unknown"
        real = [f for f in found if f]
        if real:
            return real[0], c, i
    return None
