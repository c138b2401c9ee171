"""Double bookings against the kernel's own word: the table of docs/validation.md.

    python tests/race_table.py [--varied] [SHAPE/WORKLOAD/RUN …]

The truth is counted from ``sched_sis_truth`` and sched_wakeup alone: decisions that found a CPU
idle, not the waker's own, while an earlier decision of that kind for the same CPU was outstanding
(its wakee's sched_wakeup was yet to come). Against it stand the wakeups that came second in a
double booking classed strict or strict-certain. ``--varied``: also with jitter and offsets 30 % up
and down.
"""

from __future__ import annotations

import functools
import sys
import time
from bisect import bisect_right
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_truth import ROOT, SHARED

import traceana as ta
from traceana._replay_changes import Offsets
from traceana.bookings import JITTER_NS, find
from traceana.schema import BookingClass, EventKind

#: Captures, with the precision and recall that are aimed at.
LEAST = {
    "sample/sch": 0.8,
    "smt8/pp6/base": 0.9,
    "smt8/mix/base": 0.9,
    "smt16/pp12/base": 0.9,
    "smt8/sch/base": 0.8,
    "smt8/hb/base": 0.8,
    "smt16/hb/base": 0.8,
    "smt16/fan/base": 0.8,
    "smt8/proxy/base": 0.8,
    "smt8/proxy/abel": 0.8,
    "smt8/fp6/abel": 0.7,
    "smt8/proxyx/abel": 0.7,
    "smt8/fan/base": 0.8,
    "smt8/pp2/base": 0.8,
    "smt8/pp8/base": 0.8,
    "smt8/fanlong/base": 0.8,
    "smt8/fanx/base": 0.8,
    "smt8/fanx/abel": 0.8,
    "smt8/hbx/base": 0.8,
    "smt8/fp6/base": 0.8,
    "smt8/fp6/short": 0.8,
    "smt8/pp6/short": 0.8,
    "smt32/pp24/base": 0.8,
    "smt32/hb/base": 0.8,
}
#: With fewer than FEW by the truth, the count is to be within ABOUT.
FEW, ABOUT = 200, 20
#: ``sis`` of decisions that found a CPU idle.
FOUND_IDLE = (1, 2, 4, 5, 6, 8)


def _scaled(by: float) -> Offsets:
    o = Offsets()
    return replace(o, **{f.name: round(getattr(o, f.name) * by) for f in fields(o)})


#: One constant at a time, 30 % down and up.
VARIED: dict[str, dict[str, Any]] = {
    "jitter -30 %": {"jitter_ns": round(0.7 * JITTER_NS)},
    "jitter +30 %": {"jitter_ns": round(1.3 * JITTER_NS)},
    "offsets -30 %": {"offsets": _scaled(0.7)},
    "offsets +30 %": {"offsets": _scaled(1.3)},
    "without cost": {"event_cost_ns": None},
}


def path_of(name: str) -> Path:
    """Where a capture lies."""
    if name == "sample/sch":
        return ROOT / "sample_traces" / "sch-truth.dat.xz"
    return SHARED / "ab" / f"{name}-truth.dat.xz"


@functools.lru_cache(maxsize=1)
def _read(path: Path) -> tuple[Any, Any, set[int]]:
    """A capture, its timeline, and the wakeups that the truth says came second."""
    shape = path.parent.parent / "cpus.lscpu-p.csv"
    cap = ta.open(path, topology=shape if shape.exists() else None)
    table = cap.extra_events("sched_sis_truth")
    truth = {n: table.column(n).to_numpy(zero_copy_only=False) for n in table.column_names}
    woken: dict[int, list[int]] = {}
    for e in cap.event_columns():
        rows = np.flatnonzero(e.kind == EventKind.WAKEUP)
        for pid, ts in zip(e.subject[rows].tolist(), e.ts[rows].tolist(), strict=True):
            woken.setdefault(pid, []).append(ts)
    timeline = cap.timeline()
    match = _match(timeline, truth)
    return cap, timeline, {int(match[i]) for i in truth_of(truth, woken)}


def _match(timeline: Any, truth: dict[str, np.ndarray]) -> np.ndarray:
    """The wakeup of each truth event: the last sched_waking of that task on that CPU before it."""
    pids = timeline.tasks.column("pid").to_numpy()
    w = timeline.wakeups.filter(pc.is_valid(timeline.wakeups.column("waking_ts")))
    columns = [w.column(n).to_numpy() for n in ("wakee", "this_cpu", "waking_ts", "wakeup")]
    wakee, cpu, ts, ids = columns
    span = int(truth["ts"].max() - ts.min()) + 2

    def key(pid: Any, cpu: Any, at: Any) -> Any:
        return (pid.astype(np.int64) * 4096 + cpu) * span + (at - ts.min())

    have = key(pids[wakee], cpu, ts)
    order = np.argsort(have, kind="stable")
    want = key(truth["pid"], truth["this_cpu"], truth["ts"])
    return ids[order[np.searchsorted(have[order], want, side="right") - 1]]


def truth_of(truth: dict[str, np.ndarray], woken: dict[int, list[int]]) -> list[int]:
    """Rows of the truth events that found a CPU idle although a booking of it was outstanding.

    ``woken``: instants of each task's sched_wakeup.
    """
    outstanding: dict[int, list[int]] = {}
    out = []
    order = np.argsort(truth["ts"], kind="stable")
    columns = [truth[n][order].tolist() for n in ("ts", "pid", "new_cpu", "this_cpu", "sis")]
    for i, ts, pid, cpu, this, sis in zip(order.tolist(), *columns, strict=True):
        if sis not in FOUND_IDLE or cpu == this:
            continue
        before = [until for until in outstanding.get(cpu, []) if until > ts]
        if before:
            out.append(i)
        after = woken.get(pid, [])
        at = bisect_right(after, ts)
        if at < len(after):
            before.append(after[at])
        outstanding[cpu] = before
    return out


def figures(path: Path, **options: Any) -> dict[str, Any]:
    """Precision, recall and counts of one capture; ``options`` go to :func:`bookings.find`."""
    cap, timeline, want = _read(path)
    options = {"kernel": cap.kernel, "event_cost_ns": cap.event_cost_ns, **options}
    began = time.process_time()
    found = find(timeline, **options)
    took = time.process_time() - began
    strict = found.table.column("class").to_numpy() <= BookingClass.STRICT
    got = set(found.table.column("later").to_numpy()[strict].tolist())
    counts = found.counts()
    return {
        "truth": len(want),
        "found": len(got),
        "precision": len(got & want) / len(got) if got else 1.0,
        "recall": len(got & want) / len(want) if want else 1.0,
        **{n: counts[n] for n in ("decided", "strict_certain", "late", "explained", "untraced")},
        "ns_each": round(took * 1e9 / max(counts["decided"], 1)),
    }


def _line(name: str, row: dict[str, Any]) -> str:
    cells = (f"{v:14.3f}" if isinstance(v, float) else f"{v:14d}" for v in row.values())
    return f"{name:30s}" + "".join(cells)


def main(arguments: list[str]) -> None:
    """Print the table."""
    names = [a for a in arguments if not a.startswith("-")]
    header = False
    for name, least in LEAST.items():
        path = path_of(name)
        if (names and name not in names) or not path.exists():
            continue
        row = figures(path)
        if not header:
            print(f"{'capture':30s}" + "".join(f"{h:>14s}" for h in row))
            header = True
        few = row["truth"] < FEW
        off = (
            abs(row["found"] - row["truth"]) > ABOUT
            if few
            else min(row["precision"], row["recall"]) < least
        )
        print(_line(name, row) + ("  below" if off else ""), flush=True)
        for what, options in VARIED.items() if "--varied" in arguments else ():
            print(_line(f"  {what}", figures(path, **options)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
