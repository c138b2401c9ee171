"""Rules asked about captures recorded under them: do they fire where the kernel's did?

The captures ``short-truth`` and ``abel-truth`` ran with SIS_SHORT v5 and with Abel's rule in the
kernel, and say for each wakeup which step decided. The rebuilt state must make the rule fire at
nearly the same wakeups.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_truth import _match, _seeds, _truth

from traceana import rules as registry
from traceana.replay import Replay

SHARED = Path(__file__).resolve().parents[2] / "shared" / "captures" / "ab"


@pytest.mark.parametrize(
    ("name", "rule", "reason", "column", "value", "recall", "precision"),
    [
        # place B hangs on nr_idle_scan, whose start value no event tells: some are missed.
        ("smt8/pp6/short-truth.dat.xz", "sis_short_v5", "place_b", "sis", 7, 0.9, 0.99),
        ("smt8/fp6/abel-truth.dat.xz", "abel", "abel", "wa", 5, 0.85, 0.99),
    ],
)
def test_fires_where_the_kernel_did(
    name: str, rule: str, reason: str, column: str, value: int, recall: float, precision: float
) -> None:
    path = SHARED / name
    if not path.exists():
        pytest.skip("no ../shared beside the repository: its captures cannot be read")
    truth, cap, _ = _truth(path)
    cap.start_state = _seeds(truth, path)
    timeline = cap.timeline()
    replay = Replay(cap, timeline)
    place = {int(r): i for i, r in enumerate(replay.rows)}
    pairs = [(place[int(r)], i) for i, r in enumerate(_match(timeline, truth)) if int(r) in place]
    ours, theirs = np.array(pairs).T
    loaded = registry.load(rule)
    answers = replay.ask(loaded, {})
    codes = [i for i, n in enumerate(loaded.reasons) if n in (reason, f"{reason}_same")]
    fired = np.isin(answers.reason[ours], codes)
    really = truth[column][theirs] == value
    assert really.sum() > 1000
    hits = (fired & really).sum()
    print(name, "recall", hits / really.sum(), "precision", hits / fired.sum())
    assert hits / really.sum() >= recall
    assert hits / fired.sum() >= precision
