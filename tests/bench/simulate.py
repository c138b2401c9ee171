"""Speed of the machine model: simulated events per CPU second, by the size of the machine.

Ping-pong pairs at half, and at full load. The best of three runs each; it is not a test.
    python tests/bench/simulate.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from test_simulate import pairs

from traceana.simulate import Layout, Model, constant_costs, simulate

MS = 1_000_000
SHAPES = ((1, 4, 2), (1, 8, 2), (2, 16, 2), (2, 56, 2), (2, 128, 2))


def main() -> None:
    """Print the table."""
    print("machine   CPUs  pairs   rows  M events/s (engine)  M events/s (as columns)")
    for shape in SHAPES:
        layout = Layout.shape(*shape)
        n = len(layout.core)
        for n_pairs in (n // 2, n):
            work = pairs(n_pairs, layout)
            length = max(200 * MS * 8 // n, 4 * MS)
            best = [1e9, 1e9]
            rows = 0
            for _ in range(3):
                for form in range(2):
                    run = simulate(work, Model(costs=constant_costs(spread=4)), end_ns=length)
                    batches = run.batches() if form else run._state.run()
                    began = time.process_time()
                    rows = sum(len(batch) for batch in batches)
                    best[form] = min(best[form], time.process_time() - began)
            name = "x".join(map(str, shape))
            print(
                f"{name:8} {n:5} {n_pairs:6} {rows:6}"
                f" {rows / best[0] / 1e6:12.2f} {rows / best[1] / 1e6:20.2f}"
            )


if __name__ == "__main__":
    main()
