"""CPU time of the timeline alone: prints events and ns, decoding left out.

python tests/bench/timeline_only.py CAPTURE
"""

from __future__ import annotations

import sys
import time

import traceana as ta
from traceana import topology
from traceana.columns import EventColumns
from traceana.timeline import TimelineBuilder, kernel_number


def main() -> None:
    cap = ta.open(sys.argv[1])
    names = cap.names()  # reads once: the topology is known from here on
    llc = topology.as_arrays(cap.topology).llc
    builder = TimelineBuilder(llc=llc, kernel=kernel_number(cap.kernel))
    spent = events = 0
    for batch in cap.event_batches():
        columns = EventColumns.from_arrow(batch)
        start = time.process_time_ns()
        builder.feed(columns)
        spent += time.process_time_ns() - start
        events += len(columns)
    start = time.process_time_ns()
    made = builder.finish()
    spent += time.process_time_ns() - start
    assert made.tasks.num_rows and names.num_rows
    print(events, spent)


if __name__ == "__main__":
    main()
