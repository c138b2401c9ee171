"""The race with known truth: what ``race`` finds in runs of which every collision is known.

All loads of all families, under both forms of the pending flag: ``validation_table.py race``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oracle.race_truth import compared

import traceana as ta
from traceana import synth
from traceana._closed_loop_null import race_free
from traceana.race import race
from traceana.simulate import Model

#: Loads at which enough is booked twice to tell a share of it.
LOADED: list[tuple[str, dict[str, Any], str]] = [
    ("pingpong", {"pairs": 6}, "6.1.192"),
    ("pingpong", {"pairs": 6}, "6.2.0"),
    ("reqresp", {"clients": 32}, "6.1.192"),
    ("reqresp", {"clients": 64}, "6.2.0"),
]


@pytest.mark.parametrize(("family", "params", "release"), LOADED)
def test_found_and_true(family: str, params: dict[str, Any], release: str) -> None:
    r = compared(synth.make(family, **params), Model(release=release))
    print(r)
    assert r.verdict in ("supported", "cannot_say")
    assert r.true > 500
    assert r.both / r.found >= 0.95
    assert r.both / r.true >= 0.95
    # The upper bound is the one that the truth is counted by.
    assert r.attributable[1] is not None
    assert 0.9 <= r.attributable[1] <= 1.1


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


class TestNullModel:
    """``race --null race_free``: the workload again, where every booking is seen at once."""

    def test_six_pairs(self, samples: Path) -> None:
        cap = ta.open(samples / "pp6-base.dat")
        found = race(cap, chance=False)
        null = race_free(cap, found, seeds=2)
        assert null.recorded_rate == found.strict / found.counts["looked_idle"]
        # Recorded 20 %; the model with its window makes as many, and none without.
        assert all(0.1 < r < 0.3 for r in null.rates_raced)
        assert all(r < 0.005 for r in null.rates_free)
        assert set(null.verdicts) == {"not_supported"}
        before, after = (runs.mean("idle_share") for runs in (null.raced, null.free))
        assert before is not None and after is not None and before - after > 0.05
        assert "Without the race the model is idle" in null.sentence

    def test_in_the_verb(self, cli: Callable[..., Any], samples: Path) -> None:
        ran = cli("race", samples / "pp6-base.dat", "--null", "race_free", "--format", "json")
        assert ran.status == 0, ran.err
        told = json.loads(ran.out)["race_free"]
        assert told["method"] == "closed_loop" and told["seeds"] == len(told["rate_race_free"])
        assert max(told["rate_race_free"]) < told["recorded_rate"]
        text = cli("race", samples / "pp6-base.dat", "--null", "race_free")
        assert "Null model race_free (estimated, closed loop" in " ".join(text.out.split())

    @pytest.mark.parametrize(
        "more", [("--null", "poisson"), ("--null", "race_free", "--collisions")]
    )
    def test_refused(self, cli: Callable[..., Any], samples: Path, more: tuple[str, ...]) -> None:
        ran = cli("race", samples / "pp6-base.dat", *more)
        assert ran.status == 2 and "--null" in ran.err
