"""How well mainline explains the captures with truth events: the table of docs/validation.md.

    python tests/fidelity_table.py [SHAPE/WORKLOAD/RUN …]

Each row is a capture of ``../shared/captures/ab``. Figures are shares: decided wakeups (precision,
recall against the presence of a truth event); exactly right CPUs plain, inferred (second half) and
frozen (second half); exact or possible with the mean size of the set; agreement of the steps with
the kernel's own word (wide, wa, sis, idle_core, nr_idle_scan within 1); and exactly right CPUs with
sync, budget and hint told, without and with one common shift of the instants per decision.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test_truth import SHARED, _match, _run_json, _seeds, _truth

from traceana import schema, start_state
from traceana._replay_state import UNTOLD
from traceana.replay import Replay, Told
from traceana.rules._state import Affine, Step

#: Captures, with the share of exactly right CPUs that is aimed at.
TARGETS = {
    "smt8/pp2/base": 0.995,
    "smt8/pp8/base": 0.995,
    "smt8/fp6/base": 0.995,
    "smt8/pp6/short": 0.995,
    "smt8/mix/base": 0.99,
    "smt8/fanx/base": 0.99,
    "smt8/fanx/abel": 0.99,
    "smt8/fp6/abel": 0.99,
    "smt8/fan/base": 0.97,
    "smt16/fan/base": 0.97,
    "smt16/pp12/base": 0.97,
    "smt8/fp6/short": 0.95,
    "smt8/sch/base": 0.95,
    "smt8/proxyx/abel": 0.95,
    "smt8/proxy/base": 0.94,
    "smt8/hbx/base": 0.94,
    "smt8/pp6/base": 0.92,
    "smt8/hb/base": 0.90,
}
#: The truth event's ``wa`` by what it means here.
_WA = {
    Affine.WIDE: 0,
    Affine.THIS_NOT_ALLOWED: 0,
    Affine.THIS_IS_PREV: 0,
    Affine.NO_DOMAIN: 0,
    Affine.IDLE: 1,
    Affine.PREV_IDLE: 2,
    Affine.SYNC: 3,
    Affine.WEIGHT_THIS: 6,
    Affine.WEIGHT_PREV: 7,
}
_SIS = {
    Step.TARGET_IDLE: 1,
    Step.PREV_IDLE: 2,
    Step.KTHREAD: 3,
    Step.RECENT: 4,
    Step.CORE: 5,
    Step.CORE_REST: 6,
    Step.CPU: 6,
    Step.SIBLING: 8,
    Step.OVERLOADED: 9,
    Step.BUDGET: 9,
    Step.FALLBACK: 9,
    Step.NO_LLC: 9,
}


@dataclass
class Case:
    """A capture with truth events: its replay, and which truth event belongs to which decision."""

    replay: Replay
    truth: dict[str, np.ndarray]
    #: Places in ``replay.rows``, and the truth events that belong there.
    ours: np.ndarray
    theirs: np.ndarray
    #: Decided wakeups, truth events, and those that have each other.
    decided: int
    events: int

    def column(self, name: str) -> np.ndarray:
        """A field of the truth events, in the order of ``ours``."""
        return self.truth[name][self.theirs]

    @property
    def late(self) -> np.ndarray:
        """Which decisions lie in the window's second half."""
        rows = self.replay.rows[self.ours]
        return self.replay._t.raw["wakeups"]["waking"][rows] >= self.replay.half_ts

    def told(self, what: str = "sync nr hint") -> Told:
        """What the truth events say, in the form that a replay can be told."""
        n = len(self.replay.rows)
        sync = np.full(n, 2, np.uint8)
        sync[self.ours] = self.column("sync")
        out = []
        for name, most in (("nr", 250), ("idle_core", 1)):
            column = np.full(n, UNTOLD, np.int32)
            value = self.column(name).astype(np.int64)
            column[self.ours] = np.where((value < 0) | (value > most), UNTOLD, value)
            out.append(column)
        return Told(
            sync if "sync" in what else None,
            out[0] if "nr" in what else None,
            out[1] if "hint" in what else None,
        )


def case_of(path: Path, **options: Any) -> Case:
    """Read a capture and rebuild its decisions; ``options`` go to Replay."""
    truth, cap, _ = _truth(path)
    seeds = _seeds(truth, path)
    side = _run_json(path)
    if side is not None:
        util = {t.pid: t.util_avg for t in start_state.load(side).tasks}
        seeds = dataclasses.replace(
            seeds,
            tasks=tuple(dataclasses.replace(t, util_avg=util.get(t.pid)) for t in seeds.tasks),
        )
    cap.start_state = seeds
    timeline = cap.timeline()
    replay = Replay(cap, timeline, **options)
    place = {int(r): i for i, r in enumerate(replay.rows)}
    match = _match(timeline, truth)
    pairs = [(place[int(r)], i) for i, r in enumerate(match) if int(r) in place]
    ours, theirs = np.array(pairs).T
    kinds = timeline.raw["wakeups"]["kind"]
    return Case(
        replay, truth, ours, theirs, int((kinds == schema.WakeKind.DECIDED).sum()), len(match)
    )


def figures(path: Path) -> dict[str, float]:
    """All figures of one capture; see the module's docstring."""
    c = case_of(path)
    v, late = c.replay.verdicts.rows[c.ours], c.late
    new = c.column("new_cpu")
    out = {
        "precision": len(c.ours) / c.decided,
        "recall": len(c.ours) / c.events,
        "plain": float((c.replay.plain()["cpu"][c.ours] == new).mean()),
        "inferred": float((v["cpu"] == new)[late].mean()),
        "frozen": float((c.replay.frozen()["cpu"][c.ours] == new)[late].mean()),
        "possible": float((v["why"] >= 0).mean()),
        "size": float(v["count"].mean()),
    }
    task = c.column("ctx") == 0
    wide = c.column("wide")
    # this_cpu == prev_cpu is asked behind wake_wide(), so that a wide wakeup says so.
    ours_wide = v["affine"] == Affine.WIDE
    out["wide"] = float((ours_wide == (wide == 1))[task].mean())
    wa = np.array([_WA.get(int(a), -1) for a in v["affine"]])
    theirs_wa = c.column("wa").astype(np.int64)
    out["wa"] = float((wa == np.where(theirs_wa == 5, 7, theirs_wa)).mean())
    sis = np.array([_SIS.get(int(s), -1) for s in v["step"]])
    out["sis"] = float((sis == c.column("sis")).mean())
    hint = c.column("idle_core").astype(np.int64)
    asked = (hint >= 0) & (hint <= 1)
    out["idle_core"] = float((np.maximum(v["idle_core"], 0) == hint)[asked].mean())
    nr = c.column("nr").astype(np.int64)
    asked = (nr >= 0) & (nr < 250)
    out["nr1"] = float((np.abs(v["nr_idle_scan"] - nr) <= 1)[asked].mean())
    never = -(2**62)
    told = [
        c.replay.settle(c.told(), learn_until=never, explore=False, shift_ns=shift).rows["cpu"]
        for shift in range(-300, 301, 50)
    ]
    right = np.array([cpu[c.ours] == new for cpu in told])
    out["told"] = float(right[len(told) // 2].mean())
    out["told_shift"] = float(right.any(axis=0).mean())
    return out


def main(names: list[str]) -> None:
    """Print the table."""
    header = None
    for name, target in TARGETS.items():
        if names and name not in names:
            continue
        path = SHARED / "ab" / f"{name}-truth.dat.xz"
        if not path.exists():
            continue
        row = figures(path)
        if header is None:
            header = list(row)
            print(f"{'capture':18s}" + "".join(f"{h:>11s}" for h in header) + f"{'target':>8s}")
        mark = "" if row["inferred"] >= target else "  below"
        print(
            f"{name:18s}" + "".join(f"{row[h]:11.4f}" for h in header) + f"{target:8.3f}{mark}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
