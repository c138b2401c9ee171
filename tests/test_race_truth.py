"""The race with known truth: what ``race`` finds in runs of which every collision is known.

All loads of all families, under both forms of the pending flag: ``validation_table.py race``.
"""

from __future__ import annotations

from typing import Any

import pytest
from oracle.race_truth import compared

from traceana import synth
from traceana.simulate import Model

#: Loads at which enough is booked twice to tell a share of it; least recall, attributable idle.
#: Six pairs on 6.2 fall short: a wakee that stays on its CPU is enqueued before the one that was
#: decided earlier and has to move, and such pairs are not found.
LOADED: list[tuple[str, dict[str, Any], str, float, float]] = [
    ("pingpong", {"pairs": 6}, "6.1.192", 0.95, 0.9),
    ("pingpong", {"pairs": 6}, "6.2.0", 0.80, 0.8),
    ("reqresp", {"clients": 32}, "6.1.192", 0.95, 0.9),
    ("reqresp", {"clients": 64}, "6.2.0", 0.95, 0.9),
]


@pytest.mark.parametrize(("family", "params", "release", "recall", "attributable"), LOADED)
def test_found_and_true(
    family: str, params: dict[str, Any], release: str, recall: float, attributable: float
) -> None:
    r = compared(synth.make(family, **params), Model(release=release))
    print(r)
    assert r.verdict in ("supported", "cannot_say")
    assert r.true > 500
    assert r.both / r.found >= 0.95
    assert r.both / r.true >= recall
    # The upper bound is the one that the truth is counted by.
    assert r.attributable[1] is not None
    assert attributable <= r.attributable[1] <= 1.1


@pytest.mark.parametrize(
    ("family", "params"),
    [
        ("pingpong", {"pairs": 6}),
        ("reqresp", {"clients": 64}),
        ("schbench", {"workers": 5}),
        ("hackbench", {"groups": 2, "fds": 4}),
        ("proxy", {"clients": 12}),
        ("mixed", {"pairs": 3, "hogs": 3}),
    ],
)
def test_without_a_window_it_is_not_supported(family: str, params: dict[str, Any]) -> None:
    r = compared(synth.make(family, **params), Model(window=0))
    print(r)
    assert r.true == 0
    assert r.verdict == "not_supported"
