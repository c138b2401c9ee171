"""Captures run again under their own rule: how well the model of the machine holds.

    python tests/resim_table.py [SHAPE/WORKLOAD/RUN …] [--seeds N] [--warm-up MS]

Each capture of the A/B set is made a workload (traceana.workload), its machine measured
(traceana.calibrate), and the workload simulated under the recorded kernel's rule. Both the
recording and the simulation are measured by traceana's own timeline. Prints a Markdown table;
*edges* contain the tokens that came early.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import traceana as ta
from traceana._closed_loop_figures import Figures
from traceana.closed_loop import prepare, run_once

SHARED = Path(__file__).resolve().parents[2] / "shared" / "captures" / "ab"
CAPTURES = (
    "smt8/pp2/base-1.dat", "smt8/pp4/base-1.dat", "smt8/pp6/base-1.dat", "smt8/pp6/base-2.dat",
    "smt8/pp6/base-3.dat.xz", "smt8/pp8/base-1.dat.xz", "smt8/mix/base-1.dat",
    "smt8/proxy/base-1.dat.xz", "smt8/proxyx/base-1.dat.xz", "smt8/sch/base-1.dat",
    "smt8/fan/base-1.dat", "smt8/fanx/base-1.dat.xz", "smt8/hb/base-1.dat.xz",
    "smt8/hbx/base-1.dat.xz", "smt8/fp6/base-1.dat.xz", "smt16/pp8/base-1.dat.xz",
    "smt16/pp12/base-1.dat.xz", "smt16/pp12/base-2.dat.xz", "smt16/pp12/base-3.dat.xz",
    "smt16/fan/base-truth.dat.xz", "smt32/pp24/base-1.dat.xz", "smt32/pp24/base-2.dat.xz",
)  # fmt: skip


def _row(*cells: object) -> None:
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


def _both(recorded: float | None, simulated: float | None, unit: float, digits: int) -> str:
    def one(value: float | None) -> str:
        return "–" if value is None else f"{value / unit:.{digits}f}"

    return f"{one(recorded)} → {one(simulated)}"


def compare(name: str, seed: int, warm_up_ns: int) -> None:
    """Print a capture's row."""
    cap = ta.open(SHARED / name, topology=SHARED / name.split("/")[0] / "cpus.lscpu-p.csv",
                  start_state=_state(name))  # fmt: skip
    began = time.process_time()
    made = prepare(cap)
    took = time.process_time() - began
    work, model = made.work, made.calibration.model()
    recorded = _measured(cap)
    simulated, run, _ = run_once(
        work, model, seed=seed, begin_ns=work.begin_ns, span_ns=work.span_ns,
        warm_up_ns=warm_up_ns,
    )  # fmt: skip
    seconds = (work.span_ns + warm_up_ns) / 1e9
    early = float(run.live["early"].sum()) / seconds
    edges = (simulated.edges_per_s or 0.0) + early
    r, s = recorded, simulated
    delay, again = r.queue_delay_ns, s.queue_delay_ns
    _row(
        name,
        f"{100 * work.explained:.1f}",
        _both(r.idle_share, s.idle_share, 0.01, 1),
        _both(r.wakeups_per_s, s.wakeups_per_s, 1e3, 0),
        _both(r.edges_per_s, edges, 1e3, 0),
        _both(delay["p50"], again["p50"], 1e3, 2),
        _both(delay["p99"], again["p99"], 1e3, 1),
        _both(r.waker_cpu_share, s.waker_cpu_share, 0.01, 1),
        f"{took:.2f}",
    )


def _state(name: str) -> Path | None:
    side = SHARED / (name.split(".dat")[0] + ".json")
    return side if side.is_file() else None


def _measured(cap: ta.Capture) -> Figures:
    from traceana._closed_loop_figures import measure

    return measure(cap)


def main(argv: list[str]) -> None:
    """Print the table."""
    seeds, warm_up_ns, names = 1, 0, []
    words = iter(argv)
    for word in words:
        if word == "--seeds":
            seeds = int(next(words))
        elif word == "--warm-up":
            warm_up_ns = int(float(next(words)) * 1e6)
        else:
            names.append(word)
    _row("capture", "explained %", "idle %", "wakeups k/s", "edges k/s", "p50 us", "p99 us",
         "on waker's CPU %", "extraction CPU s")  # fmt: skip
    _row(*["---"] * 9)
    for name in names or CAPTURES:
        for seed in range(1, seeds + 1):
            compare(name, seed, warm_up_ns)


if __name__ == "__main__":
    main(sys.argv[1:])
