"""What one more user's rule costs, once started and compiled: prints wakeups and CPU ns.

python tests/bench/user_rule.py CAPTURE

The time is that of the kernel in the rule's own process: the walk over the log of states with the
rule asked at each decision. The rule is the one that ``traceana rules new`` writes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import traceana as ta
from traceana.replay import Replay
from traceana.rules._isolated import close, isolated, owner_of
from traceana.rules._template import text_of


def main() -> None:
    cap = ta.open(sys.argv[1])
    timeline = cap.timeline()
    replay = Replay(cap, timeline.study or timeline)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.py"
        path.write_text(text_of("mine"))
        rule = isolated(str(path))
        spent = []
        for _ in range(3):
            replay.ask(rule, {})
            spent.append(owner_of(rule).spent_ns)
        close([rule])
    print(len(replay.rows), min(spent))


if __name__ == "__main__":
    main()
