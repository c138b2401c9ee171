"""The closed loop held against what is known: the tables of docs/validation.md.

    python tests/validation_table.py synthetic [FAMILY …]   generate, capture, extract, run again
    python tests/validation_table.py ab [SHAPE/WORKLOAD …]  the A/B captures in ../shared
    python tests/validation_table.py race                   double bookings against the model's own
    python tests/validation_table.py yield                  two spinning virtual CPUs per CPU

Each prints a Markdown table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import traceana as ta
from traceana import _closed_loop_words as words
from traceana import synth, tunables
from traceana._closed_loop_figures import Figures
from traceana._closed_loop_runs import bursts_per_s, run_once
from traceana._sim_state import Op
from traceana.closed_loop import WARM_UP_NS, estimate, model_of, prepare
from traceana.simulate import Model
from traceana.workload import extract

SHARED = Path(__file__).resolve().parents[2] / "shared" / "captures" / "ab"
SPAN_NS = 50_000_000

#: Four loads of each family, on 1x4x2.
LOADS: dict[str, list[dict[str, Any]]] = {
    "pingpong": [{"pairs": n} for n in (2, 4, 6, 8)],
    "hackbench": [{"groups": g, "fds": f} for g, f in ((1, 2), (1, 4), (2, 4), (4, 5))],
    "proxy": [{"clients": n} for n in (1, 3, 6, 12)],
    "reqresp": [{"clients": n} for n in (6, 16, 32, 64)],
    "schbench": [{"workers": n} for n in (1, 2, 3, 5)],
    "mixed": [{"pairs": n, "hogs": h} for n, h in ((1, 0), (2, 1), (3, 1), (3, 3))],
}
#: A rule was off and on; which captures of it there are.
PAIRS = {
    "smt8/pp6": ("base-1.dat", ("short-1.dat.xz", "short-2.dat", "short-3.dat.xz")),
    "smt8/pp4": ("base-1.dat", ("short-1.dat.xz",)),
    "smt8/pp8": ("base-1.dat.xz", ("short-1.dat.xz",)),
    "smt8/sch": ("base-1.dat", ("short-1.dat.xz",)),
    "smt8/fan": ("base-1.dat", ("short-1.dat.xz",)),
    "smt8/proxy": ("base-1.dat.xz", ("short-1.dat.xz",)),
    "smt8/fp6": ("base-1.dat.xz", ("short-1.dat.xz",)),
    "smt8/proxyx": ("base-1.dat.xz", ("short-1.dat.xz",)),
    "smt8/fanx": ("base-1.dat.xz", ("short-1.dat.xz",)),
    "smt8/hb": ("base-1.dat.xz", ("short-1.dat.xz",)),
    "smt8/hbx": ("base-1.dat.xz", ("short-1.dat.xz",)),
    "smt16/pp12": ("base-1.dat.xz", ("short-1.dat.xz", "short-2.dat.xz", "short-3.dat.xz")),
    "smt32/pp24": ("base-1.dat.xz", ("short-1.dat.xz", "short-2.dat.xz")),
}


def row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


def head(*titles: str) -> None:
    """Print a table's first two rows."""
    row(*titles)
    row(*("---" for _ in titles))


def _said(params: dict[str, Any]) -> str:
    return " ".join(f"{k} {v}" for k, v in params.items())


@dataclass(frozen=True)
class Shown:
    """What a capture shows: the same is asked of one that was generated and of a predicted one."""

    figures: Figures
    progress: float | None  # work done, of what was done in the generated run of the first rule
    demand: float  # CPU time of the bursts by time, in CPUs
    explained: float

    @classmethod
    def of(cls, figures: Figures, cap: ta.Capture, progress: float | None) -> Shown:
        """Extract a capture."""
        work = extract(cap)
        run = work.script["value"][work.script["code"] == Op.RUN].sum()
        return cls(figures, progress, float(run) / work.span_ns, work.explained)


def again(
    family: str,
    params: dict[str, Any],
    rules: Sequence[str] = ("mainline", "sis_short_v5"),
    span_ns: int = SPAN_NS,
    warm_up_ns: int = WARM_UP_NS,
) -> dict[str, tuple[Shown, Shown]]:
    """Rule -> what its generated capture shows, and what is predicted from that of the first rule.

    The first rule is the one that was recorded: its state is the recording's, so it is not warmed
    up (as in ``closed_loop``); the others are.
    """
    work = synth.make(family, **params)
    out: dict[str, tuple[Shown, Shown]] = {}
    made, first = None, None
    for rule in rules:
        figures, _, cap = run_once(work, Model(rule=rule), span_ns=span_ns, warm_up_ns=warm_up_ns)
        warm = warm_up_ns
        if made is None:
            made, warm, first = prepare(cap), 0, figures.steps_per_s
        steps = figures.steps_per_s
        truth = Shown.of(figures, cap, steps / first if steps and first else None)
        known = made.work
        figures, _, cap = run_once(
            known, model_of(made.calibration, rule=rule), begin_ns=known.begin_ns,
            span_ns=span_ns, warm_up_ns=warm, bursts_per_s=bursts_per_s(known),
        )  # fmt: skip
        out[rule] = truth, Shown.of(figures, cap, figures.progress)
    return out


def synthetic(families: Sequence[str]) -> None:
    """Generate under X, capture, extract, run again under X and Y; beside generating under Y.

    *Progress* is the error of the work that is done; *demand* is what extraction finds in the
    capture of the run, on both sides.
    """
    head(
        "family", "load", "idle X", "again", "progress", "demand", "idle Y",
        "from the capture of X", "progress", "demand", "wakeups X → Y", "predicted", "explained",
    )  # fmt: skip
    for family in families or LOADS:
        for params in LOADS[family]:
            made = again(family, params)
            cells: list[str] = []
            for true, predicted in made.values():
                cells += [_pct(true.figures.idle_share), _pct(predicted.figures.idle_share)]
                cells.append(_change(true.progress, predicted.progress))
                cells.append(_change(true.demand, predicted.demand))
            (x, again_x), (y, from_x) = made.values()
            wakeups = [f.figures.wakeups_per_s for f in (x, y, again_x, from_x)]
            row(
                family, _said(params), *cells, _change(*wakeups[:2]), _change(*wakeups[2:]),
                _pct(x.explained),
            )  # fmt: skip


def _pct(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _change(a: float | None, b: float | None) -> str:
    return "–" if not a or b is None else f"{100 * (b / a - 1):+.1f} %"


def ab(names: Sequence[str]) -> None:
    """Predict a run with the rule from one without it, traced window against traced window."""
    from traceana._closed_loop_figures import measure

    head(
        "pair", "idle base", "model", "idle short", "predicted", "wakeups base", "model",
        "short", "predicted", "p99 base", "model", "short", "predicted",
        "on waker's CPU short", "predicted", "the rule alone: idle", "wakeups", "settled",
        "random starts: idle", "reach: idle", "random starts: wakeups",
    )  # fmt: skip
    for name in names or PAIRS:
        base, shorts = PAIRS[name]
        machine = SHARED / name.split("/")[0] / "cpus.lscpu-p.csv"
        truth = [measure(ta.open(SHARED / name / s, topology=machine)) for s in shorts]
        cap = ta.open(SHARED / name / base, topology=machine)
        e = estimate(cap, ["sis_short_v5"], seeds=2)
        r, b, p = e.recorded, e.baseline.runs, e.outcomes[0].runs
        many = e.outcomes[0].ensemble
        starts = [many.range(of) if many is not None else None for of in words.HEADLINES]
        wide = words.reach(e, e.outcomes[0], "idle_share")

        def true(of: str, truth: list[Figures] = truth) -> str:
            values = sorted(v for t in truth if (v := t.get(of)) is not None)
            return " … ".join(_show(of, v) for v in dict.fromkeys((values[0], values[-1])))

        cells = []
        for of in ("idle_share", "wakeups_per_s", "queue_delay_ns.p99"):
            cells += [_show(of, r.get(of)), _show(of, b.mean(of)), true(of), _show(of, p.mean(of))]
        share = "waker_cpu_share"
        alone = e.delta(e.outcomes[0], "idle_share")["mean"]
        rate = e.delta(e.outcomes[0], "wakeups_per_s")["relative"]
        row(
            name, *cells, true(share), _show(share, p.mean(share)),
            "–" if alone is None else f"{100 * alone:+.1f}",
            "–" if rate is None else f"{100 * rate:+.1f} %",
            "yes" if e.state.settled else "no",
            *(
                "–" if ends is None else " … ".join(_show(of, end) for end in ends)
                for of, ends in (
                    ("idle_share", starts[0]), ("idle_share", wide), ("wakeups_per_s", starts[1]),
                )
            ),
        )  # fmt: skip


def _show(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    if name.endswith("_share"):
        return _pct(value)
    if name.endswith("_per_s"):
        return f"{value / 1000:.0f} k/s"
    return f"{value / 1000:.1f} µs"


def _race_cells(family: str, params: dict[str, Any], release: str, window: int) -> list[str]:
    """What `race` finds in a run, beside what the model itself knows."""
    from oracle.race_truth import compared

    r = compared(synth.make(family, **params), Model(release=release, window=window))
    low, high = r.attributable
    return [
        family, _said(params), release, str(window), r.verdict, str(r.true), str(r.found),
        _two(r.both / r.found if r.found else None), _two(r.both / r.true if r.true else None),
        _two(r.delay), "–" if low is None or high is None else f"{low:.2f} … {high:.2f}",
    ]  # fmt: skip


def _two(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def race(_given: Sequence[str]) -> None:
    """Double bookings that are found, against those that the model knows of."""
    head(
        "family", "load", "kernel", "window", "verdict", "true", "found", "precision", "recall",
        "delay found / true", "attributable idle / true",
    )  # fmt: skip
    for family, loads in LOADS.items():
        for params in loads:
            for release in ("6.1.192", "6.2.0"):
                for window in (1, 0):
                    row(*_race_cells(family, params, release, window))


def yields(_given: Sequence[str]) -> None:
    """yield_to(): a virtual CPU that works and one that spins and yields to it, on each CPU."""
    head("kernel", "form", "work done /s", "switches/s", "CPU time that is work")
    for release in ("6.1", "6.6", "6.18"):
        for form in tunables.YIELD_FORMS:
            work = synth.make("yieldto", cpus="1x4x2")
            model = Model(release=release, yield_form=form)
            f, _, _ = run_once(work, model, span_ns=200_000_000, warm_up_ns=50_000_000)
            used = np.array([f.cpu_share.get(int(p), 0.0) for p in work.tasks["pid"]])
            share = float(used[0::2].sum() / max(used.sum(), 1e-9))
            row(release, form, f"{f.steps_per_s:,.0f}", f"{f.switches_per_s:,.0f}", _pct(share))


if __name__ == "__main__":
    modes = {
        "synthetic": synthetic, "ab": ab, "race": race, "yield": yields,
    }  # fmt: skip
    if len(sys.argv) < 2 or sys.argv[1] not in modes:
        sys.exit(__doc__)
    modes[sys.argv[1]](sys.argv[2:])
