"""The ttwu race in one capture: how often, at what cost, against what chance would give; a verdict.

>>> import traceana as ta
>>> ta.race(ta.open("trace.dat")).verdict            # doctest: +SKIP
'supported'

Double bookings are those of :mod:`traceana.bookings`, idle time is binned by
:mod:`traceana.idle_bins`, chance is that of :mod:`traceana.nulls`, thresholds and words are in
``_race_verdict``. Definitions: section 10.2 of the kernel semantics, and docs/race.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import schema
from traceana import topology as topo
from traceana._race_blocks import BLOCKS, NOTHING, Range, by_time, idle_by_time, ratio
from traceana._race_blocks import ratio_of_counts as of_counts
from traceana._race_facts import Facts, Probe, facts_of, probe_of
from traceana._race_verdict import Evidence, Judgement, Thresholds, judge
from traceana._replay_changes import Offsets
from traceana.bookings import JITTER_NS, Bookings, find
from traceana.idle_bins import IdleAccount, account
from traceana.nulls import Nulls, nulls
from traceana.output import SCHEMA_VERSION

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.timeline import Timeline

__all__ = ["Race", "Range", "Spread", "race"]

Array = npt.NDArray[Any]
NULL = -(2**63)


@dataclass(frozen=True)
class Spread:
    """Of some durations: how many, their sum and percentiles, ns; None of none."""

    n: int
    sum_ns: int
    p50_ns: int | None
    p99_ns: int | None
    max_ns: int | None

    @classmethod
    def of(cls, values: Array) -> Spread:
        """Of int64[n], ns."""
        if not len(values):
            return cls(0, 0, None, None, None)
        p50, p99 = np.percentile(values, [50, 99], method="inverted_cdf")
        return cls(len(values), int(values.sum()), int(p50), int(p99), int(values.max()))

    def to_json(self) -> dict[str, int | None]:
        return {
            "n": self.n,
            "sum_ns": self.sum_ns,
            "p50_ns": self.p50_ns,
            "p99_ns": self.p99_ns,
            "max_ns": self.max_ns,
        }


@dataclass(frozen=True)
class Race:
    """What :func:`race` found.

    ``verdict``: 'supported', 'not_supported' or 'cannot_say', with ``judgement`` and
    ``thresholds``. ``counts``: as of ``Bookings.counts``. Rates per wakeup that found its CPU idle:
    ``certain``, ``possible``, ``untraced`` (strict double bookings that are certain, all of them,
    those whose windows would overlap without the cost of recording), ``elsewhere`` (those of a CPU
    that nothing but its looking idle leads to). ``idle_low``, ``idle_high``:
    attributable idle time as a share of ``idle_ns``, the idle time of all CPUs; in ns:
    ``attributable_ns`` (low, high), None where not known. ``delay``: extra delay of the victims of
    strict double bookings. ``window``: from sched_waking to when a booking is seen, ``window_hi``
    the same by its upper bound. ``collisions``: ``schema.COLLISIONS``.
    """

    judgement: Judgement
    thresholds: Thresholds
    counts: dict[str, int]
    certain: Range
    possible: Range
    untraced: Range
    elsewhere: Range
    stacked: Range
    attributable_ns: tuple[int | None, int | None]
    idle_low: Range
    idle_high: Range
    idle_ns: int
    delay: Spread
    window: Spread
    window_hi: Spread
    collisions: pa.Table
    facts: Facts
    probe: Probe
    choice: Range = NOTHING
    timing: Range = NOTHING
    nulls: Nulls | None = None
    bookings: Bookings | None = None
    idle: IdleAccount | None = None
    assumptions: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """'supported', 'not_supported' or 'cannot_say'."""
        return self.judgement.verdict

    @property
    def strict(self) -> int:
        """Strict double bookings, certain ones included."""
        return self.counts["strict_certain"] + self.counts["strict"]

    def idle_bins(self) -> dict[str, int] | None:
        """Idle time of all CPUs per bin, ns."""
        if self.idle is None:
            return None
        return {b.name.lower(): ns for b, ns in self.idle.bins_ns.items()}

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values; times in ns, shares from 0 to 1, null: not known."""
        low, high = self.attributable_ns
        n = self.nulls
        return {
            "schema_version": SCHEMA_VERSION,
            "verdict": self.verdict,
            "reasons": self.judgement.reasons,
            "missing": self.judgement.missing,
            "thresholds": vars(self.thresholds),
            "decided": self.counts["decided"],
            "looked_idle": self.counts["looked_idle"],
            "strict": {"certain": self.counts["strict_certain"], "possible": self.strict},
            "late": self.counts["late"],
            "explained": self.counts["explained"],
            "race_rate": {
                "certain": self.certain.to_json(),
                "possible": self.possible.to_json(),
                "elsewhere": self.elsewhere.to_json(),
            },
            "stacked_share": self.stacked.to_json(),
            "extra_delay_ns": self.delay.to_json(),
            "decision_window_ns": self.window.to_json(),
            "decision_window_hi_ns": self.window_hi.to_json(),
            "idle_ns": self.idle_ns,
            "attributable_idle_ns": {"low": low, "high": high},
            "attributable_idle_share": {
                "low": self.idle_low.to_json(),
                "high": self.idle_high.to_json(),
            },
            "idle_bins_ns": self.idle_bins(),
            "observed_over_expected": self.choice.to_json(),
            "observed_over_shifted": self.timing.to_json(),
            "chance": None if n is None else _chance(n),
            "probe_effect": self.probe.to_json(self.untraced, self.counts["untraced"]),
            **self.facts.to_json(),
            "assumptions": self.assumptions,
        }


def _chance(n: Nulls) -> dict[str, Any]:
    models = {}
    for name, null in (("choice", n.choice), ("timing", n.timing)):
        low, high = null.drawn_interval()
        models[name] = {
            "observed": int(null.observed.sum()),
            "expected": float(null.expected.sum()),
            "drawn_low": low,
            "drawn_high": high,
            "draws": len(null.drawn),
            "placed_share": null.placed,
        }
    return {
        "asked": n.asked,
        "of": n.decisions,
        "idle_cpus_mean": n.idle_mean,
        "unseen_bookings_mean": n.outstanding_mean,
        **models,
    }


def race(
    cap: Capture, *, thresholds: Thresholds | None = None, seed: int = 1, chance: bool = True
) -> Race:
    """Look for the race in a capture, and give a verdict.

    Parameters
    ----------
    cap : Capture
    thresholds : what the verdict is measured by
    seed : of the null models; equal seeds give equal results
    chance : whether the null models are asked

    Raises
    ------
    MissingEventsError
        The capture holds no sched_switch. (Without sched_waking the verdict is *cannot say*.)
    UnsupportedError
        The clock is no time.
    """
    if not cap.has_time:
        from traceana.errors import UnsupportedError

        raise UnsupportedError(
            cap.path,
            f"clock {cap.meta.clock!r} is no time: the race is a matter of nanoseconds",
            hint="record with trace_clock local, global or mono",
        )
    limits = thresholds or Thresholds()
    timeline = cap.timeline(spill=True)
    cap.check_topology()
    machine = topo.as_arrays(cap.topology, timeline.cpus.num_rows)
    found = find(timeline, kernel=cap.kernel, event_cost_ns=cap.event_cost_ns)
    idle = None
    if timeline.rows.table("wakeups").num_rows:
        idle = account(timeline, found.table, topology=cap.topology)
    return _made(cap, timeline, machine, found, idle, limits, seed=seed, chance=chance)


def _made(
    cap: Capture,
    timeline: Timeline,
    machine: topo.TopologyArrays,
    found: Bookings,
    idle: IdleAccount | None,
    limits: Thresholds,
    *,
    seed: int,
    chance: bool,
) -> Race:
    first, last = timeline.first_ts, timeline.last_ts
    counts = found.counts()
    table = found.table if idle is None else idle.collisions
    kinds, ts = table.column("class").to_numpy(), table.column("ts").to_numpy()
    strict = kinds <= schema.BookingClass.STRICT
    certain = kinds == schema.BookingClass.STRICT_CERTAIN

    def per_block(which: Array) -> Array:
        return by_time(ts[which], first, last)

    looked = by_time(found.read_lo[found.looked_idle], first, last)
    decided = by_time(found.read_lo, first, last)
    rates = {
        "certain": of_counts(per_block(certain), looked, seed=seed),
        "possible": of_counts(per_block(strict), looked, seed=seed),
        "untraced": of_counts(per_block(strict & found.untraced), looked, seed=seed),
        "elsewhere": of_counts(per_block(strict & found.elsewhere), looked, seed=seed),
    }
    touched = of_counts(per_block(strict), decided, seed=seed)
    stacked = of_counts(by_time(found.read_lo[found.stacked], first, last), decided, seed=seed)
    idle_ns, low, high, idle_low, idle_high = _idle(timeline, idle, strict, certain, seed)
    facts = facts_of(cap, timeline, machine, found)
    judgement = judge(
        Evidence(
            counts["decided"],
            counts["looked_idle"],
            counts["strict_certain"],
            counts["late"],
            **rates,
            touched=touched,
            idle_low=idle_low,
            idle_high=idle_high,
            unable=facts.unable(),
            unsure=facts.unsure(limits),
            blind=facts.blind(limits),
        ),
        limits,
    )
    delays = table.column("extra_delay_ns").filter(pa.array(strict)).drop_null().to_numpy()
    asked = None
    if chance and counts["decided"]:
        asked = _ask(timeline, found, machine, cap.event_cost_ns, seed)
    return Race(
        judgement=judgement,
        thresholds=limits,
        counts=counts,
        **rates,
        stacked=stacked,
        attributable_ns=(low, high),
        idle_low=idle_low,
        idle_high=idle_high,
        idle_ns=idle_ns,
        delay=Spread.of(delays),
        # A damaged time may lie before the waking; a window ends no earlier than it begins.
        window=Spread.of(np.maximum(found.visible - found.read_lo, 0)),
        window_hi=Spread.of(np.maximum(found.visible_hi - found.read_lo, 0)),
        collisions=table,
        facts=facts,
        probe=probe_of(cap, timeline),
        choice=NOTHING
        if asked is None
        else of_counts(asked.choice.observed, asked.choice.expected),
        timing=NOTHING
        if asked is None
        else of_counts(asked.timing.observed, asked.timing.expected),
        nulls=asked,
        bookings=found,
        idle=idle,
        assumptions=[*found.assumptions, *facts.assumed(), *(idle.assumptions if idle else ())],
    )


def _idle(
    timeline: Timeline,
    idle: IdleAccount | None,
    strict: Array,
    certain: Array,
    seed: int,
) -> tuple[int, int | None, int | None, Range, Range]:
    """Idle time of all CPUs, what of it is attributable (low, high), and both as shares of it."""
    first, last = timeline.first_ts, timeline.last_ts
    if idle is None or idle.missing:
        known = timeline.cpus.column("idle_ns").drop_null()
        return int(known.to_numpy().sum()), None, None, NOTHING, NOTHING
    table, idle_ns = idle.collisions, idle.idle_ns
    ts = table.column("ts").to_numpy()
    per_block = np.zeros(BLOCKS)
    for gaps in timeline.rows.chunks("idle_gaps", ("start", "end")):
        start = gaps.column("start").fill_null(first).to_numpy()
        end = gaps.column("end").fill_null(last).to_numpy()
        per_block += idle_by_time(start, np.maximum(start, end), first, last)
    if per_block.sum() > 0:
        # Idle time that lies in no gap (CPUs that were never seen) is spread evenly.
        per_block += max(idle_ns - per_block.sum(), 0.0) / BLOCKS
    totals: list[int | None] = []
    shares: list[Range] = []
    for name, total, which in (
        ("attributable_lo_ns", idle.attributable_lo_ns, certain),
        ("attributable_hi_ns", idle.attributable_hi_ns, strict),
    ):
        ns = table.column(name).fill_null(0).to_numpy()
        parts = by_time(ts, first, last, ns.astype(np.float64))
        # Shared out among the victims, or whatever is meant: the total is the account's.
        parts *= total / parts.sum() if parts.sum() > 0 else 0.0
        totals.append(int(total))
        shares.append(ratio(parts, per_block, events=int(which.sum()), seed=seed))
    return idle_ns, totals[0], totals[1], shares[0], shares[1]


def _ask(
    timeline: Timeline,
    found: Bookings,
    machine: topo.TopologyArrays,
    event_cost_ns: int | None,
    seed: int,
) -> Nulls | None:
    own = np.empty(timeline.rows.table("wakeups").num_rows, np.int32)
    at = 0
    for chunk in timeline.rows.chunks("wakeups", ("this_cpu",)):
        part = chunk.column("this_cpu").fill_null(-1).to_numpy()
        own[at : at + len(part)] = part
        at += len(part)
    blur = round(JITTER_NS * Offsets().scaled(event_cost_ns).look / Offsets.look)
    return nulls(timeline, found, machine, own[found.rows], blur_ns=blur, seed=seed)
