"""The headline of the thread at its own scale: context_switch1 by the number of pairs.

    python tests/headline_table.py [SHAPE [FIGURE.svg]]   2x56x2 (some minutes) or 1x28x2
    python tests/headline_table.py background             what interrupts' wakeups take from v6

Each prints a Markdown table. Everything is simulated with the default costs, which are those of a
traced guest: an assumption, and no measurement of a machine of this size.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from traceana import synth
from traceana._closed_loop_figures import Figures
from traceana.closed_loop import run_once
from traceana.simulate import Model

#: Machine -> pairs; at half as many pairs as CPUs each task has a CPU of its own.
PAIRS = {
    "2x56x2": (4, 56, 112, 126, 140, 168, 196, 224),
    "1x28x2": (14, 28, 35, 42, 49, 56),
}
RULES = ("mainline", "sis_short_v5", "sis_short_v6")
STYLES = (("#000000", "-", "o"), ("#0072B2", "--", "s"), ("#D55E00", ":", "^"))
RELEASE = "6.2"
WARM_UP_NS = 400_000_000
#: Milliseconds between two wakeups of a timer's task; 28 of them on one LLC of 28 cores.
PERIODS_MS = (1000, 300, 100, 30, 10, 3)


def row(*cells: object) -> None:
    """Print a row of a Markdown table."""
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


def head(*titles: str) -> None:
    """Print a table's first two rows."""
    row(*titles)
    row(*("---" for _ in titles))


def percent(share: float | None) -> str:
    """A share in words."""
    return "–" if share is None else f"{100 * share:.1f} %"


def one(shape: str, pairs: int, rule: str) -> Figures:
    """Simulate so many pairs on a machine under a rule."""
    figures, _, _ = run_once(
        synth.make("pingpong", pairs=pairs, cpus=shape),
        Model(release=RELEASE, rule=rule),
        span_ns=20_000_000 if shape == "1x28x2" else 5_000_000,
        warm_up_ns=WARM_UP_NS,
    )
    return figures


def headline(shape: str, path: str) -> None:
    """Work done and idle share by the number of pairs, as a table and a figure."""
    head("pairs", "tasks", *(f"{r}: {w}" for r in RULES for w in ("M rounds/s", "idle", "p99 µs")))
    curves: dict[str, list[tuple[float, float]]] = {rule: [] for rule in RULES}
    for pairs in PAIRS[shape]:
        cells: list[str] = []
        for rule in RULES:
            f = one(shape, pairs, rule)
            assert f.steps_per_s is not None and f.idle_share is not None
            curves[rule].append((f.steps_per_s / 1e6, f.idle_share))
            p99 = f.queue_delay_ns["p99"] or 0
            cells += [f"{f.steps_per_s / 1e6:.2f}", percent(f.idle_share), f"{p99 / 1000:.1f}"]
        row(pairs, 2 * pairs, *cells)
    if path:
        draw(path, PAIRS[shape], curves, shape)


def draw(
    path: str, pairs: Sequence[int], curves: dict[str, list[tuple[float, float]]], shape: str
) -> None:
    """The two curves of the commit message: work done and idle share against the pairs."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "traceana", "font.size": 10})
    figure, axes = plt.subplots(2, 1, figsize=(7, 6.5), sharex=True, layout="constrained")
    for (rule, points), (colour, line, mark) in zip(curves.items(), STYLES, strict=True):
        rounds, idle = zip(*points, strict=True)
        look = {"color": colour, "linestyle": line, "marker": mark, "label": rule}
        axes[0].plot(pairs, rounds, **look)
        axes[1].plot(pairs, [100 * v for v in idle], **look)
    for a in axes:
        a.axvline(max(pairs) / 2, color="#888888", linewidth=0.8)
        a.set_ylim(bottom=0)
    axes[0].set_ylabel("rounds, M/s")
    axes[1].set_ylabel("idle, %")
    axes[1].set_xlabel("pairs (the line: as many tasks as CPUs)")
    axes[0].legend(frameon=False)
    axes[0].set_title(f"context_switch1 on {shape} (simulated)", loc="left")
    figure.savefig(path, format="svg", metadata={"Date": None})


def background() -> None:
    """v5 and v6 on 42 pairs with 28 tasks that timers wake: whoever is interrupted has flips."""
    head("timers' wakeups /s", *(f"{r}: {w}" for r in RULES for w in ("M rounds/s", "idle")),
         "of v5's gain, v6 keeps")  # fmt: skip
    for period in PERIODS_MS:
        found = []
        for rule in RULES:
            work = synth.make(
                "mixed", pairs=42, hogs=0, timers=28, cpus="1x28x2", think=f"exp:{period}ms"
            )
            figures, _, _ = run_once(
                work,
                Model(release=RELEASE, rule=rule),
                span_ns=20_000_000,
                # What an interrupt did to the flips is halved once a second.
                warm_up_ns=1_000_000_000,
            )
            found.append(figures)
        done = [f.steps_per_s or 0.0 for f in found]
        cells = [c for f, d in zip(found, done, strict=True)
                 for c in (f"{d / 1e6:.2f}", percent(f.idle_share))]  # fmt: skip
        gain = done[1] - done[0]
        row(28_000 // period, *cells, percent((done[2] - done[0]) / gain) if gain > 0 else "–")


if __name__ == "__main__":
    asked = sys.argv[1:] or ["2x56x2"]
    if asked[0] == "background":
        background()
    elif asked[0] in PAIRS and len(asked) <= 2:
        headline(asked[0], asked[1] if len(asked) > 1 else "")
    else:
        sys.exit(__doc__)
