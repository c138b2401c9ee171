"""What detection of double bookings and binning of idle time cost beside the timeline.

python tests/bench/race.py [CAPTURE]      # default: what `make bench-data` makes
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import traceana as ta
from traceana import bookings
from traceana.idle_bins import account

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "bench" / "pp6-v6.dat"
    # Once on a sample, so that no time to compile is counted.
    for source in (ROOT / "sample_traces" / "pp6-base.dat", path):
        cap = ta.open(source)
        begin = time.process_time()
        for _ in cap.event_columns():
            pass
        read = time.process_time()
        timeline = cap.timeline()
        made = time.process_time()
        found = bookings.find(timeline, kernel=cap.kernel, event_cost_ns=cap.event_cost_ns)
        seen = time.process_time()
        account(timeline, found.table, topology=cap.topology)
        binned = time.process_time()
    n = sum(cap.counts.values())
    alone = (made - read) - (read - begin)
    for what, seconds in (
        ("timeline alone", alone),
        ("double bookings", seen - made),
        ("idle bins", binned - seen),
    ):
        print(f"{what:16} {seconds / n * 1e9:6.0f} ns an event")
    print(f"race and bins take {(binned - made) / alone:.2f} times the timeline ({n:,} events)")


if __name__ == "__main__":
    main()
