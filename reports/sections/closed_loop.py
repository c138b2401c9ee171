"""The captured workload run under other rules on a model of its machine: estimated, closed loop.

Only where it was asked for (``report --simulate RULE``): it is never mixed with the open loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceana import _closed_loop_words as words
from traceana.reports.context import Context
from traceana.reports.model import Column, Section, Strong, Table, say
from traceana.reports.words import clean

if TYPE_CHECKING:
    from traceana._closed_loop_figures import Several
    from traceana.closed_loop import Estimate

__all__ = ["fill"]


def fill(ctx: Context, section: Section) -> None:
    """The model's own error, a sentence and a row per rule."""
    found: Estimate | None = ctx.closed_loop
    if found is None:
        section.missing.append(ctx.why["closed_loop"])
        return
    section.sentences.append(
        say(
            Strong("Estimated, closed loop: "),
            "the workload of the capture runs on a model of its machine, so that what follows from "
            "a changed placement is in it. ",
            clean(words.accuracy(found, "The model")),
        )
    )
    section.sentences += [say(clean(words.one(found, o))) for o in found.outcomes]
    section.sentences += [say(f"{note[:1].upper()}{note[1:]}.") for note in words.notes(found)]
    section.tables.append(_figures(found))
    section.tables.append(_costs(found))
    rules = [w for rule in ctx.simulate for w in ("--rule", rule)]
    section.reproduce.append(ctx.run("simulate", *rules))


def _figures(found: Estimate) -> Table:
    columns = [
        Column("run", "text", "run"),
        Column("idle_share", "share", "idle"),
        Column("idle_spread", "share", "± (points)"),
        Column("wakeups_per_s", "int", "wakeups/s (activity)"),
        Column("queue_delay_p50_ns", "ns", "queue delay p50"),
        Column("queue_delay_p99_ns", "ns", "p99"),
        Column("wakeup_latency_p99_ns", "ns", "wakeup latency p99"),
        Column("waker_cpu_share", "share", "on the waker's CPU"),
        Column("progress", "share", "bursts done, of the recording's"),
    ]
    r = found.recorded
    rows: list[list[Any]] = [
        [
            "recorded", r.idle_share, None, _whole(r.wakeups_per_s), r.queue_delay_ns["p50"],
            r.queue_delay_ns["p99"], r.wakeup_latency_ns["p99"], r.waker_cpu_share, r.progress,
        ]
    ]  # fmt: skip
    rows.append(_row(f"model, {clean(found.baseline.rule)}", found.baseline.runs))
    if found.behind_warm_up is not None:
        rows.append(_row(f"{clean(found.baseline.rule)}, warmed up", found.behind_warm_up))
    rows += [_row(clean(o.variant.label or o.rule), o.runs) for o in found.outcomes]
    return Table("closed-loop", "Recorded and simulated, means over seeds", columns, rows)


def _row(label: str, runs: Several) -> list[Any]:
    def whole(name: str) -> int | None:
        return _whole(runs.mean(name))

    return [
        label, runs.mean("idle_share"), runs.spread("idle_share"), whole("wakeups_per_s"),
        whole("queue_delay_ns.p50"), whole("queue_delay_ns.p99"), whole("wakeup_latency_ns.p99"),
        runs.mean("waker_cpu_share"), runs.mean("progress"),
    ]  # fmt: skip


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _costs(found: Estimate) -> Table:
    columns = [
        Column("cost", "text", "cost of the model"),
        Column("p50_ns", "ns", "p50"),
        Column("lo_ns", "ns", "low"),
        Column("hi_ns", "ns", "high"),
        Column("n", "int", "n"),
        Column("origin", "text", "from"),
    ]
    rows = [[cost[c.name] for c in columns] for cost in found.costs]
    return Table("closed-loop-costs", "Costs that the model draws from", columns, rows)
