"""Double bookings the slow way: sections 7.8 and 10.2 of the semantics, over rows as dicts.

Instants are those of the reference machine (``Offsets()``). Everything is looked up by searching
through all rows of a CPU.
"""

from __future__ import annotations

import itertools
from typing import Any

from traceana.schema import BookingClass, BookingWhy, Queueing, WakeKind

__all__ = ["oracle"]

INF = float("inf")
#: As many bookings of a gap are held against each other (see _bookings_class_kernels).
BACK = 32

Row = dict[str, Any]


def oracle(
    wakeups: list[Row], gaps: list[Row], lost: set[int], *, clears_last: bool, shortest: int | None,
    jitter: int, llc: list[int], skew: int = 0,
) -> tuple[list[Row], dict[int, Row]]:  # fmt: skip
    """Collisions, and per decided wakeup what was made of it, by its id.

    Parameters
    ----------
    wakeups, gaps : rows of the tables, in order
    lost : wakeups around which events were lost
    shortest : the shortest selection seen, None: not known
    llc : a number per CPU, -1 unknown
    """
    rows = [b for b in (_booking(w, shortest) for w in wakeups) if b is not None]
    episodes: dict[int, list[Row]] = {}
    spans = _spans(gaps)
    for b in rows:
        b["gap"] = _gap_of(b, spans, jitter)
        if b["gap"] is None:
            b["looked"] = b["decision"] and b["cpu"] not in (b["prev_cpu"], b["this_cpu"])
        else:
            episodes.setdefault(id(b["gap"]), []).append(b)
    out: list[Row] = []
    for group in episodes.values():
        group.sort(key=lambda b: (b["decided"], b["at"]))
        out += _episode(group, lost, jitter, skew, clears_last, llc)
    out.sort(key=lambda c: (c["ts"], c["at"]))
    return out, {b["wakeup"]: b for b in rows if b["decision"]}


def _booking(w: Row, shortest: int | None) -> Row | None:
    cpu = w["placed_cpu"] if w["placed_cpu"] is not None else w["ran_cpu"]
    kinds = (WakeKind.SELF, WakeKind.ON_RQ, WakeKind.DELAYED, WakeKind.DELAYED_MAYBE)
    if cpu is None or w["kind"] in kinds:
        return None
    at, up, run = w["waking_ts"], w["wakeup_ts"], w["run_ts"]
    remote = w["queueing"] == Queueing.REMOTE
    queued = INF
    if up is not None:
        queued = up - (550 if remote else 350)
    elif run is not None:
        queued = run - 450
    if at is not None:
        queued = max(queued, at)
    b = {**w, "cpu": cpu, "queued": queued, "at": w["wakeup"], "remote": remote}
    b["decision"] = w["kind"] == WakeKind.DECIDED and at is not None
    b["hi"] = w["visible_hi"]
    if not b["decision"]:
        shown = queued
        if remote and up is not None:
            shown = up - 1300
            if at is not None:
                shown = max(shown, at + 490)
        shown = min(shown, queued)
        return {**b, "read": shown, "decided": shown, "shown": shown}
    look = at + 490
    if run is not None and w["wakeup_latency_ns"] is not None:
        asleep = run - w["wakeup_latency_ns"]
        if asleep > at:
            look = max(look, asleep + 840)
    b["moved"] = w["visible_lo"] != at
    if b["moved"]:
        end = w["visible_lo"]
        shown = end + 700
        look = max(min(look, end - 1), at) if look > end - 1 else look
    else:
        if shortest is not None:
            end = look - 490 + shortest
            shown = end - 40
        elif up is not None:
            shown = up - 1300
            end = shown - 700
        else:
            end = shown = look
        if up is not None:
            end = min(end, up)
        end = max(end, look)
    shown = max(shown, look + 1)
    if w["queueing"] == Queueing.DIRECT and up is not None:
        shown = queued
    shown = min(shown, queued)
    if b["hi"] is None:
        b["hi"] = shown
    return {**b, "read": look + 10, "decided": end, "shown": shown}


def _spans(gaps: list[Row]) -> dict[int, list[Row]]:
    spans: dict[int, list[Row]] = {}
    for g in gaps:
        spans.setdefault(g["cpu"], []).append(
            {
                "from": -INF if g["start"] is None else g["start"] - 450,
                "to": INF if g["end"] is None else g["end"] - 450,
                "end": g["end"],
                "cut": False,
            }
        )
    for rows in spans.values():
        for before, g in itertools.pairwise(rows):
            if before["to"] == INF:
                before["to"], before["cut"] = max(g["from"], before["from"]), True
            if g["from"] == -INF:
                g["from"], g["cut"] = min(before["to"], g["to"]), True
    return spans


def _gap_of(b: Row, spans: dict[int, list[Row]], jitter: int) -> Row | None:
    """The last gap of the CPU that had begun when it was looked at, if it was not over then."""
    when = b["read"]
    if b["decision"] and b["cpu"] != b["prev_cpu"]:
        when = b["decided"]
    begun = [g for g in spans.get(b["cpu"], []) if g["from"] <= when + jitter]
    if not begun:
        return None
    g = begun[-1]
    early = b["decision"] and g["end"] is not None and g["end"] > b["waking_ts"]
    return g if g["to"] > when or early else None


def _look_end(b: Row) -> Any:
    return b["visible_lo"] if b["moved"] else b["hi"]


def _gone(b: Row, when: Any) -> bool:
    return b["run_ts"] is not None and b["run_ts"] <= when


def _episode(
    group: list[Row], lost: set[int], jitter: int, skew: int, clears_last: bool, llc: list[int]
) -> list[Row]:
    gap = group[0]["gap"]
    if len(group) == 1:
        b = group[0]
        b["looked"] = b["cpu"] != b["prev_cpu"] or b["read"] < gap["to"] + jitter
        return []
    out: list[Row] = []
    #: Collisions of which it is not yet known who ran first.
    open_: list[Row] = []
    best: Row | None = None

    def settle() -> None:
        for c in open_:
            if best is None or best["run_ts"] is None:
                continue
            c["first"] = best["wakeup"]
            v = c.pop("victim_row")
            if v is not None:
                c["extra_delay_ns"] = max(v["run_ts"] - max(v["hi"], best["run_ts"]), 0)
        open_.clear()

    for x, b in enumerate(group):
        if not b["decision"]:
            continue
        around = [
            o
            for y, o in enumerate(group)
            if y != x and abs(y - x) <= BACK and not _gone(o, b["read"])
        ]
        shows = min(around, key=lambda o: o["shown"], default=None)
        here = b["this_cpu"]
        near = here is not None and llc[here] >= 0 and llc[here] == llc[b["cpu"]]
        alone = b["idle_cpus_llc"] in (0, 1)
        blur = 0 if alone else jitter
        flag_down = (
            shows is not None
            and not clears_last
            and shows["remote"]
            and shows["queued"] - 450 - blur <= b["read"] < shows["queued"] + blur
            # It found nothing queued when its selection was over.
            and not (
                b["remote"]
                and near
                and not (b["decided"] < shows["queued"] and b["read"] >= shows["queued"] - 450)
            )
        )
        home, own = b["cpu"] == b["prev_cpu"], b["cpu"] == b["this_cpu"]
        b["looked"] = True
        if home or own:
            seen = shows is not None and b["read"] >= shows["shown"] + blur and not flag_down
            b["looked"] = b["read"] < gap["to"] + jitter and not seen
        earlier = [
            e
            for e in group[max(x - BACK, 0) : x]
            if e["decision"] and e["looked"] and not _gone(e, b["waking_ts"])
        ]
        if not earlier:
            settle()
            best = b
            continue
        assert best is not None
        if _gone(best, b["waking_ts"]):
            best = earlier[-1]
        finds = [e for e in earlier if e["cpu"] != e["this_cpu"]]
        unseen = [e for e in finds if b["waking_ts"] < e["hi"] + skew]
        if own:
            verdict = BookingClass.EXPLAINED, BookingWhy.OWN_CPU
        elif not b["looked"]:
            others = b["idle_cpus_llc"] is not None and b["idle_cpus_llc"] > 1
            why = BookingWhy.BUSY_TARGET if others else BookingWhy.FALLBACK
            verdict = BookingClass.EXPLAINED, why
        elif not finds:
            verdict = BookingClass.EXPLAINED, BookingWhy.OWN_CPU
        elif unseen:
            sure = any(_sure(e, b, skew) and not lost & {e["wakeup"], b["wakeup"]} for e in unseen)
            certain = sure and not gap["cut"]
            verdict = (
                BookingClass.STRICT_CERTAIN if certain else BookingClass.STRICT,
                BookingWhy.WINDOW,
            )
        else:
            why = BookingWhy.FALSE_IDLE if flag_down else BookingWhy.UNKNOWN
            verdict = BookingClass.LATE, why
        pair = (best, b)
        ran = all(p["run_ts"] is not None for p in pair)
        victim = (b if b["run_ts"] >= best["run_ts"] else best) if ran else None
        c = {
            "cpu": b["cpu"],
            "ts": b["waking_ts"],
            "at": b["at"],
            "earlier": best["wakeup"],
            "later": b["wakeup"],
            "first": None,
            "victim": victim["wakeup"] if victim else None,
            "victim_row": victim,
            "class": verdict[0],
            "why": verdict[1],
            "extra_delay_ns": None,
        }
        out.append(c)
        open_.append(c)
        if b["run_ts"] is not None and (best["run_ts"] is None or b["run_ts"] < best["run_ts"]):
            best = b
    settle()
    return out


def _sure(e: Row, b: Row, skew: int) -> bool:
    """Whether the two did not see each other, in whichever order they came."""
    found = b["cpu"] != b["prev_cpu"] or _look_end(b) + skew < e["visible_lo"]
    overlap = e["hi"] + skew >= b["visible_lo"]
    turned = e["cpu"] != e["prev_cpu"] or _look_end(e) + skew < b["visible_lo"]
    return found and (turned or not overlap)
