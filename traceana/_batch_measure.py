"""What one capture of a batch tells: its rows of facts, gains, workloads and tasks.

Runs in a worker. What a capture cannot tell is null, and ``unable`` says why; only a capture that
cannot be read, or holds no switch, fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import capture
from traceana._batch_jobs import LONGEST, Asked, failed, reason_of
from traceana._batch_tables import as_table, empty_facts
from traceana.errors import InputError, TraceanaError
from traceana.idle_time import machine_idle
from traceana.race import race
from traceana.spill import give_back
from traceana.summary import percentile
from traceana.whatif import whatif

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.timeline import Timeline
    from traceana.whatif import RuleResult

__all__ = ["Measured", "measure"]

_LATENCIES = ("wakeup_latency", "queue_delay")
_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))


@dataclass
class Measured:
    """The tables of one capture's partition, and where it is, the opened capture."""

    tables: dict[str, pa.Table]
    capture: Capture | None


def measure(path: Path, asked: Asked) -> Measured:
    """Ask a capture everything; a refusal becomes its row."""
    facts = empty_facts()
    try:
        cap = capture.open(
            path,
            topology=asked.topology,
            hz=asked.hz,
            kernel=asked.kernel,
            ignore=asked.ignore,
            time=asked.time,
            workload=asked.workload,
            buffer=asked.buffer,
            redact=asked.redact,
        )
        try:
            timeline = cap.timeline(spill=True)
        finally:
            # Without a timeline it is still told what the capture is.
            with contextlib.suppress(TraceanaError):
                _identity(facts, cap)
    except TraceanaError as error:
        return Measured(failed(error, facts, path), None)
    except UnicodeError as error:
        return Measured(failed(InputError(path, str(error)), facts, path), None)
    unable: list[str] = []
    _time(facts, timeline, cap)
    _wakeups(facts, timeline)
    if cap.has_time:
        _race(facts, cap, unable, path)
        gains = _gains(facts, cap, asked.rules, unable, path)
    else:
        unable.append(f"clock {cap.meta.clock!r} is no time: neither race nor rules")
        gains = []
    facts["unable"] = "; ".join(unable) or None
    facts["issues"] = sum(cap.issues.counts().values())
    tables = {
        "facts": as_table("facts", [facts]),
        "gains": as_table("gains", gains),
        "workloads": as_table("workloads", _workloads(timeline)),
        "tasks": timeline.tasks,
    }
    give_back()
    return Measured(tables, cap)


def _identity(facts: dict[str, Any], cap: Capture) -> None:
    facts["events"] = sum(cap.counts.values())
    facts |= {
        "form": cap.meta.form,
        "kernel": cap.kernel,
        "machine": cap.meta.machine,
        "hostname": cap.meta.hostname,
        "clock": cap.meta.clock,
        "span_ns": cap.span_ns,
    }
    _losses(facts, cap)


def _losses(facts: dict[str, Any], cap: Capture) -> None:
    facts |= {
        "status": "damaged" if cap.damaged else "ok",
        "exit_status": 4 if cap.damaged else 0,
        "reason": ("; ".join(cap.issues.texts())[:LONGEST] or None) if cap.damaged else None,
        "lost_events": cap.lost.events,
        "lost_places": cap.lost.marks,
    }


def _time(facts: dict[str, Any], timeline: Timeline, cap: Capture) -> None:
    topology = cap.topology
    cpus = topology.column("cpu").to_pylist()
    idle = machine_idle(timeline, cpus)
    known = timeline.cpus.column("idle_ns").drop_null().to_numpy()
    facts |= {
        "cpus": len(cpus),
        "llcs": _llcs(topology),
        "event_cost_ns": cap.event_cost_ns,
        "tasks": timeline.tasks.num_rows,
        "idle_share": idle.share,
        "idle_share_lo": idle.lo,
        "idle_share_hi": idle.hi,
        "idle_ns": int(known.sum()) if len(known) else None,
    }
    for name in ("waited_llc_ns", "waited_any_ns"):
        total: int | None = 0
        for part in timeline.rows.chunks("idle_gaps", (name,)):
            column = part.column(name)
            total = None if column.null_count or total is None else total + _sum(column)
        facts[name] = total
    if facts["waited_llc_ns"] is not None and facts["idle_ns"]:
        facts["idle_waited_share"] = facts["waited_llc_ns"] / facts["idle_ns"]


def _sum(column: pa.ChunkedArray) -> int:
    return int(column.to_numpy().sum()) if len(column) else 0


def _llcs(topology: pa.Table) -> int | None:
    if not topology.num_rows or topology.column("origin")[0].as_py() == "assumed":
        return None
    return len(set(topology.column("llc").to_pylist()))


def _column(timeline: Timeline, name: str, null: int) -> npt.NDArray[np.int64]:
    """A column of the wakeups, part by part; nulls as the given number."""
    parts = [
        p.column(name).fill_null(null).to_numpy() for p in timeline.rows.chunks("wakeups", (name,))
    ]
    return np.concatenate(parts).astype(np.int64, copy=False) if parts else np.empty(0, np.int64)


def _spread(name: str, values: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Percentiles of durations; what is below 0 is not known."""
    ordered = np.sort(values[values >= 0])
    row: dict[str, Any] = {f"{name}_n": len(ordered)}
    row |= {f"{name}_{q}_ns": percentile(ordered, share) for q, share in _QUANTILES}
    row[f"{name}_max_ns"] = int(ordered[-1]) if len(ordered) else None
    return row


def _wakeups(facts: dict[str, Any], timeline: Timeline) -> None:
    n = timeline.rows.table("wakeups").num_rows
    span = timeline.last_ts - timeline.first_ts
    facts["wakeups"] = n
    facts["wakeups_per_s"] = n * 1e9 / span if span > 0 else None
    for name in _LATENCIES:
        facts |= _spread(name, _column(timeline, f"{name}_ns", -1))


def _workloads(timeline: Timeline) -> list[dict[str, Any]]:
    """A row per workload, the longest running first; idle tasks are of none and left out."""
    tasks = timeline.tasks
    names = tasks.column("group").to_pylist()
    real = (tasks.column("pid").to_numpy() != 0) if tasks.num_rows else np.empty(0, bool)
    order = sorted({n for n in names if n is not None})
    number = {name: i for i, name in enumerate(order)}
    of_task = np.array([number.get(n, len(order)) for n in names], np.int64)
    of_wakee = of_task[_column(timeline, "wakee", 0)] if len(of_task) else np.empty(0, np.int64)
    latencies = {name: _column(timeline, f"{name}_ns", -1) for name in _LATENCIES}
    runtime = tasks.column("runtime_ns").fill_null(0).to_numpy() if tasks.num_rows else of_task
    rows = []
    for i, name in enumerate([*order, None]):
        mine, woken = (of_task == i) & real, of_wakee == i
        if not mine.any():
            continue
        row: dict[str, Any] = {
            "workload": name,
            "tasks": int(mine.sum()),
            "runtime_ns": int(runtime[mine].sum()),
            "wakeups": int(woken.sum()),
        }
        for latency, values in latencies.items():
            row |= _spread(latency, values[woken])
        rows.append(row)
    rows.sort(key=lambda r: -r["runtime_ns"])
    return rows


def _race(facts: dict[str, Any], cap: Capture, unable: list[str], path: Path) -> None:
    try:
        # Chance is a question to one capture; a fleet's answer is the captures beside each other.
        found = race(cap, chance=False)
    except TraceanaError as error:
        unable.append(f"race: {reason_of(error, path)}")
        return
    decided = found.counts["decided"]
    low, high = found.attributable_ns
    facts |= {"decided": decided, "race_verdict": found.verdict}
    if decided:
        # Without a decision there is nothing that could be booked twice, which is not "none seen".
        facts |= {
            "double_bookings_certain": found.counts["strict_certain"],
            "double_bookings": found.strict,
            "double_bookings_per_million": 1e6 * found.strict / decided,
            "attributable_idle_lo_ns": low,
            "attributable_idle_hi_ns": high,
        }
    if found.judgement.missing:
        unable.append(f"race: {'; '.join(found.judgement.missing)}"[:LONGEST])


def _gains(
    facts: dict[str, Any], cap: Capture, rules: Sequence[str], unable: list[str], path: Path
) -> list[dict[str, Any]]:
    if not rules:
        return []
    try:
        result = whatif(cap, list(rules))
    except TraceanaError as error:
        unable.append(f"rules: {reason_of(error, path)}")
        return []
    unable += [f"rule {fault.rule}: {reason_of(fault, path)}" for fault in result.failed]
    if result.fidelity is not None:
        told = result.fidelity.total
        facts |= {
            "explained": told.n,
            "exact": told.exact,
            "possible": told.possible,
            "contradicted": told.contradicted,
        }
        if told.n:
            facts["fidelity_exact"] = told.exact / told.n
            facts["fidelity_possible"] = (told.exact + told.possible) / told.n
    return [_gain(rule) for rule in result.rules]


def _gain(rule: RuleResult) -> dict[str, Any]:
    row: dict[str, Any] = {
        "rule": rule.rule,
        "method": "open_loop",
        "decisions": rule.decisions,
        "moved": rule.moved,
        "victims_relieved": rule.victims_relieved,
        "victims_created": rule.victims_created,
        "loses": rule.loses,
    }
    figures: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("queue_delay", rule.queue_delay_ns),
        ("wakeup_latency", rule.wakeup_latency_ns),
    )
    for latency, of in figures:
        for q in ("p50", "p99"):
            figure, name = of.get(q), f"{latency}_{q}"
            if figure is None or figure.delta is None:
                continue
            low, high = figure.delta_interval or (None, None)
            row |= {
                f"{name}_recorded_ns": float(figure.recorded),
                f"{name}_estimated_ns": float(figure.estimated),
                # 0 - x, as -0.0 would be printed as such.
                f"{name}_gain_ns": 0.0 - float(figure.delta),
                f"{name}_gain_lo_ns": None if high is None else 0.0 - float(high),
                f"{name}_gain_hi_ns": None if low is None else 0.0 - float(low),
            }
    return row
