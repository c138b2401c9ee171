"""Messages of which most leave no event: what is inferred, against a generator that knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceana import _workload_kernels as k
from traceana import synth
from traceana._sim_state import Op
from traceana._workload_channels import _circulating, _paid
from traceana.calibrate import calibrate
from traceana.capture import Capture
from traceana.closed_loop import run_once
from traceana.simulate import Model
from traceana.workload import Workload, extract

MS = 1_000_000


def record(groups: int, fds: int) -> tuple[Any, Capture, float]:
    """Return figures and the capture of a known load, and its messages per second."""
    work = synth.make("hackbench", groups=groups, fds=fds)
    figures, run, cap = run_once(work, Model(), span_ns=30 * MS, warm_up_ns=100 * MS)
    readers = [i for i, name in enumerate(work.names) if "-r-" in name]
    return figures, cap, float(run.live["bursts"][readers].sum()) / 0.13


def codes(w: Workload, i: int) -> Any:
    rows = w.script[w.tasks["first"][i] : w.tasks["end"][i]]
    return rows[np.isin(rows["code"], (Op.BLOCK, Op.SEND, Op.RECV, Op.REPLY))]


@pytest.mark.parametrize(("groups", "fds"), [(1, 2), (2, 4)])
def test_unseen_messages_keep_a_known_load_as_it_was(groups: int, fds: int) -> None:
    made, cap, messages = record(groups, fds)
    w = extract(cap)
    assert w.counts["channels"] == groups
    assert w.counts["servers"] == w.counts["hubs"] == 0
    found = (w.counts["sent"] + w.counts["inferred"]) * 1e9 / w.span_ns
    assert 0.75 * messages < found < 1.35 * messages
    again, _, _ = run_once(
        w, calibrate(cap, w).model(), begin_ns=w.begin_ns, span_ns=30 * MS, warm_up_ns=50 * MS
    )
    # Scripts of recorded wakeups alone: 10.0 % where 1.9 % were recorded.
    assert abs(again.idle_share - made.idle_share) < 0.03


def test_what_is_taken_is_sent() -> None:
    _, cap, _ = record(2, 4)
    w = extract(cap)
    sent: dict[int, int] = {}
    taken: dict[int, int] = {}
    for i, name in enumerate(w.names):
        if not name.startswith("hb-"):
            continue
        mine = codes(w, i)
        code = mine["code"]
        if w.tasks["tokens"][i]:
            # A writer takes room as often as it sends, and never more ahead than there is.
            assert set(code) == {Op.BLOCK, Op.SEND}
            assert (code == Op.BLOCK).sum() == (code == Op.SEND).sum()
            ahead = np.cumsum(np.where(code == Op.BLOCK, 1, -1))
            assert ahead.min() >= 0 and ahead.max() <= w.tasks["tokens"][i]
            for box in mine["task"][code == Op.SEND].tolist():
                sent[box] = sent.get(box, 0) + 1
        else:
            # Each message is answered before the next one is taken: else another sender had it.
            assert (code[::2] == Op.RECV).all() and (code[1::2] == Op.REPLY).all()
            taken[int(mine["task"][0])] = len(code) // 2
    assert sent == taken
    # No CPU time is made or lost by cutting it into messages.
    assert min(w.accounts.values()) >= 0


@pytest.mark.parametrize(("x", "n"), [(0.5, 5), (0.99, 30), (1.0, 20), (1.3, 10), (2.0, 3)])
def test_two_stations_tell_what_circulates(x: float, n: int) -> None:
    # The sums of the random walk, written out.
    first = sum(x**i for i in range(n))
    second = sum(x**-i for i in range(n))
    assert _circulating(first, second) == pytest.approx(n, rel=1e-6)


def slow_pay(first: list[int], messages: int, limit: int) -> tuple[list[int], list[int], list[int]]:
    """Walk through sleeps and messages in the order of time, with a purse."""
    purse: list[int] = []  # sleeps whose tokens are not spent
    kept: list[int] = []
    alone = []
    ahead = [0] * len(first)
    for m in range(messages):
        for i in [i for i, f in enumerate(first) if (f <= m and m == 0) or (f == m and m > 0)]:
            ahead[i] = len(purse)
            if len(purse) < limit:
                purse.append(i)
        if purse:
            kept.append(purse.pop(0))
            alone.append(0)
        else:
            alone.append(1)
    # What is left at the end no message needs: the last ones go.
    every = sorted(kept + purse)
    every = every[: len(every) - len(purse)]
    for i, f in enumerate(first):
        if f >= messages:
            ahead[i] = len(purse)
    return [int(i in every) for i in range(len(first))], alone, ahead


@given(st.lists(st.integers(0, 12), max_size=25), st.integers(0, 12), st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_tokens_are_paid_as_the_slow_way_says(drawn: list[int], messages: int, limit: int) -> None:
    first = np.array(sorted(min(f, messages) for f in drawn), np.int64)
    sleeps, alone, ahead = _paid(first, messages, limit)
    assert (sleeps.tolist(), alone.tolist(), ahead.tolist()) == slow_pay(
        first.tolist(), messages, limit
    )
    # Each message takes one token, and a writer never waits for more than there are.
    assert sleeps.sum() + alone.sum() == messages
    taken = 0
    for m in range(messages):
        taken += int(sleeps[first == m].sum()) + int(alone[m])
        assert taken <= limit
        taken -= 1


def test_a_writer_that_wakes_for_each_token_keeps_its_sleeps() -> None:
    # Five messages, then five sleeps, one for each that is answered, twice: what a sender of
    # hackbench does that sends to five readers and waits for all. The first five take tokens of
    # their own, the next five those of the sleeps; behind the last sleeps nothing is sent.
    sleeps, alone, ahead = _paid(np.array([5] * 5 + [10] * 5), 10, 20)
    assert sleeps.tolist() == [1] * 5 + [0] * 5
    assert alone.tolist() == [1] * 5 + [0] * 5
    assert ahead.tolist() == [0, 1, 2, 3, 4] + [0] * 5


def slow_turn(whom: list[int], unseen: list[int], share: list[int]) -> list[int]:
    left = [share[r] - sum(1 for a, u in zip(whom, unseen, strict=True) if not u and a == r)
            for r in range(len(share))]  # fmt: skip
    given = [0] * len(share)
    out = []
    for i, (r, u) in enumerate(zip(whom, unseen, strict=True)):
        if u:
            open_ = [s for s in range(len(share)) if left[s] > 0]
            r = max(open_, key=lambda s: (share[s] * (i + 1) - given[s] * len(whom), -s))
            left[r] -= 1
        given[r] += 1
        out.append(r)
    return out


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=60))
@settings(max_examples=60, deadline=None)
def test_in_turn_agrees_with_the_slow_way(drawn: list[tuple[int, int]]) -> None:
    whom = np.array([r for r, _ in drawn], np.int64)
    unseen = np.array([u for _, u in drawn], np.int64)
    share = np.bincount(whom, minlength=4)
    expected = slow_turn(whom.tolist(), unseen.tolist(), share.tolist())
    fast: Any = k.in_turn
    fast(whom, unseen, share)
    assert whom.tolist() == expected
    assert np.bincount(whom, minlength=4).tolist() == share.tolist()
