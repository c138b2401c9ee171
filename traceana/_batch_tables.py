"""What a dataset of captures holds: one partition per capture, a few small tables in each.

``facts`` has one row a capture (also of one that failed, with the reason), ``gains`` one a rule,
``workloads`` one a workload, ``tasks`` one a task. All partitions have the same columns, whatever
the capture could tell, so that a reader needs no look at more than one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from traceana import schema

__all__ = ["FACTS", "GAINS", "OWN", "WORKLOADS", "as_table", "docs", "empty_facts", "fields"]

#: Raised when the tables below change: partitions of another number are made anew.
LAYOUT = 1

_I64, _F64, _STR = pa.int64(), pa.float64(), pa.string()
_Column = tuple[str, pa.DataType, str]


def _spread(name: str, what: str) -> tuple[_Column, ...]:
    """Percentiles of one of the two latencies; they are never mixed."""
    return (
        (f"{name}_n", _I64, f"wakeups whose {what} is known"),
        *(
            (f"{name}_{q}_ns", _I64, f"{what}: {words}, ns")
            for q, words in (
                ("p50", "median"),
                ("p90", "90 %"),
                ("p99", "99 %"),
                ("p999", "99.9 %"),
                ("max", "longest"),
            )
        ),
    )


_LATENCIES = (
    *_spread("wakeup_latency", "wakeup latency (sched_waking to the switch-in)"),
    *_spread("queue_delay", "queue delay (sched_wakeup to the switch-in)"),
)

_FACTS: tuple[_Column, ...] = (
    ("status", _STR, "ok; damaged (a result of what could be read); failed (no result)"),
    ("reason", _STR, "why it failed, or what was damaged; null: ok"),
    ("exit_status", _I64, "what `traceana whatif` would have ended with"),
    ("source", _STR, "path or URL of the capture"),
    ("bytes", _I64, "its size; null: not readable"),
    ("digest", _STR, "SHA-256 of its content (and of its side files); null: not readable"),
    ("labels", _STR, "JSON object of the labels that --label found in the source"),
    ("unable", _STR, "what this capture cannot tell, and why; null: nothing of the kind"),
    ("form", _STR, "form of the file"),
    ("kernel", _STR, "kernel release"),
    ("machine", _STR, "hardware name, as uname -m says it"),
    ("hostname", _STR, "name of the recorded machine"),
    ("clock", _STR, "trace clock"),
    ("cpus", _I64, "CPUs"),
    ("llcs", _I64, "last-level caches; null: the topology is assumed"),
    ("span_ns", _I64, "first to last event, ns"),
    ("events", _I64, "events, of all kinds"),
    ("event_cost_ns", _I64, "what recording an event cost, ns"),
    ("lost_events", _I64, "events that the recorder says are lost; null: lost, number not told"),
    ("lost_places", _I64, "places where events are missing"),
    ("issues", _I64, "what was lost, repaired or assumed, counted"),
    ("idle_share", _F64, "idle time of the known CPUs, 0 to 1"),
    ("idle_share_lo", _F64, "as if all that is unknown had been busy"),
    ("idle_share_hi", _F64, "as if all that is unknown had been idle"),
    ("idle_ns", _I64, "idle time of the known CPUs, ns"),
    ("waited_llc_ns", _I64, "of it, while somebody waited in the same LLC, ns"),
    ("waited_any_ns", _I64, "of it, while somebody waited anywhere, ns"),
    ("idle_waited_share", _F64, "waited_llc_ns / idle_ns, 0 to 1"),
    ("tasks", _I64, "tasks seen"),
    ("wakeups", _I64, "wakeups"),
    ("wakeups_per_s", _F64, "wakeups per second: activity, not throughput"),
    *_LATENCIES,
    ("decided", _I64, "wakeups with a placement decision"),
    ("double_bookings_certain", _I64, "strict double bookings that are certain"),
    ("double_bookings", _I64, "strict double bookings, certain or possible"),
    ("double_bookings_per_million", _F64, "strict double bookings per million decided wakeups"),
    ("race_verdict", _STR, "supported, not_supported or cannot_say"),
    ("attributable_idle_lo_ns", _I64, "idle time due to double bookings, at least, ns"),
    ("attributable_idle_hi_ns", _I64, "and at most, ns"),
    ("explained", _I64, "decisions that the kernel's own path was asked about"),
    ("exact", _I64, "of these, it comes to the recorded CPU"),
    ("possible", _I64, "of these, it can for some value of what no event tells"),
    ("contradicted", _I64, "of these, it cannot"),
    ("fidelity_exact", _F64, "exact / explained, 0 to 1"),
    ("fidelity_possible", _F64, "(exact + possible) / explained, 0 to 1"),
)

_FIGURES = ("queue_delay_p50", "queue_delay_p99", "wakeup_latency_p50", "wakeup_latency_p99")

_GAINS: tuple[_Column, ...] = (
    ("rule", _STR, "placement rule"),
    ("method", _STR, "open_loop: one wakeup is moved at a time, all else stays as recorded"),
    ("decisions", _I64, "wakeups that it decided"),
    ("moved", _I64, "of these, placed elsewhere than recorded"),
    ("victims_relieved", _I64, "tasks relieved of a queue behind a candidate double booking"),
    ("victims_created", _I64, "tasks newly put into one"),
    ("loses", _I64, "moved wakeups that would have waited longer"),
    *(
        column
        for name in _FIGURES
        for column in (
            (f"{name}_recorded_ns", _F64, f"{name}, as recorded, ns"),
            (f"{name}_estimated_ns", _F64, f"{name}, estimated under the rule, ns"),
            (f"{name}_gain_ns", _F64, "recorded - estimated, ns: positive is shorter"),
            (f"{name}_gain_lo_ns", _F64, "its 95 % interval; null: too few blocks"),
            (f"{name}_gain_hi_ns", _F64, "its 95 % interval; null: too few blocks"),
        )
    ),
)

_WORKLOADS: tuple[_Column, ...] = (
    ("workload", _STR, "workload, or family of process names; null: tasks of none"),
    ("tasks", _I64, "its tasks"),
    ("runtime_ns", _I64, "time they ran, ns"),
    ("wakeups", _I64, "times they were woken"),
    *_LATENCIES,
)


def _schema(columns: Sequence[_Column]) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind, _ in columns])


FACTS = _schema(_FACTS)
GAINS = _schema(_GAINS)
WORKLOADS = _schema(_WORKLOADS)

#: The dataset's own tables, in every partition.
OWN: Mapping[str, pa.Schema] = {
    "facts": FACTS,
    "gains": GAINS,
    "workloads": WORKLOADS,
    "tasks": schema.TASKS.schema,
}


def docs(table: str) -> dict[str, str]:
    """What each column of facts, gains or workloads means."""
    columns = {"facts": _FACTS, "gains": _GAINS, "workloads": _WORKLOADS}[table]
    return {name: text for name, _, text in columns}


def fields(table: str) -> list[str]:
    """Names of the columns of a table of the dataset."""
    return list(OWN[table].names)


def empty_facts() -> dict[str, Any]:
    """A row of facts of which nothing is known."""
    return dict.fromkeys(FACTS.names)


def as_table(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as the table of that name; text that is no Unicode is escaped."""
    spec = OWN[name]
    columns = []
    for f in spec:
        values = [row.get(f.name) for row in rows]
        if f.type == _STR:
            values = [None if v is None else _text(str(v)) for v in values]
        columns.append(pa.array(values, f.type))
    return pa.table(columns, schema=spec)


def _text(value: str) -> str:
    """Surrogates (bytes of a file name that are no UTF-8) cannot stand in Arrow."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")
