"""CPU time of the rules: prints JSON with events, decisions, and ns of each part.

python tests/bench/rules_only.py CAPTURE

``settle``: the recorded state rebuilt and the kernel's own path asked, once for all rules.
``ask``: every rule of the library asked at every decision. ``estimate``: what they would have
changed, with intervals.
"""

from __future__ import annotations

import json
import sys
import time

import traceana as ta
from traceana import rules as registry
from traceana.replay import Replay
from traceana.whatif import Study


def main() -> None:
    cap = ta.open(sys.argv[1])
    cap.names()  # reads once: the topology is known from here on
    made: dict[str, int] = {}

    def spent(name: str, begin: int) -> None:
        made[name] = made.get(name, 0) + time.process_time_ns() - begin

    timeline = cap.timeline()
    timeline = timeline.study or timeline
    loaded = [registry.load(name) for name in registry.names()]
    begin = time.process_time_ns()
    replay = Replay(cap, timeline)
    study = Study(timeline, replay)
    spent("settle", begin)
    for rule in loaded:
        replay.ask(rule, {})  # compiled or read from the cache
        begin = time.process_time_ns()
        replay.ask(rule, {})
        spent("ask", begin)
        begin = time.process_time_ns()
        study.ask(rule, {})
        spent("ask and estimate", begin)
    made["estimate"] = made.pop("ask and estimate") - made["ask"]
    events = sum(cap.counts.values())
    print(
        json.dumps({"events": events, "decisions": len(replay.rows), "rules": len(loaded), **made})
    )


if __name__ == "__main__":
    main()
