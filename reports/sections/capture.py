"""What was recorded: file, machine, clock, span, events, and how well each CPU is covered."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana import topology as topo
from traceana.reports.context import Context
from traceana.reports.model import Code, Column, Section, Strong, Table, say
from traceana.reports.words import clean, count, duration, moment, plural
from traceana.schema import EVENT_NAMES

__all__ = ["fill", "lost_words", "machine"]

_ORIGINS = {
    "header": "from the capture's header",
    "side_file": "from a side file",
    "learned": "learned from the events",
    "assumed": "assumed",
}
_UNITS = {
    "ns": "nanoseconds",
    "us": "microseconds: durations below 1 µs are noise",
    "jiffies": "ticks: durations are multiples of a tick",
    "cycles": "raw cycles, no time",
    "count": "a counter, no time",
}


def machine(ctx: Context) -> str:
    """The machine in a few words: "8 CPUs (4 cores × 2 threads, one LLC)"."""
    table = ctx.cap.topology
    arrays = topo.as_arrays(table)
    n = int((arrays.known & arrays.online).sum())
    if "assumed" in table.column("origin").to_pylist():
        return f"{plural(n, 'CPU')} (topology not recorded: one LLC without SMT assumed)"
    online = np.flatnonzero(arrays.known & arrays.online)
    cores = len(np.unique(arrays.core[online]))
    llcs = len(np.unique(arrays.llc[online]))
    nodes = len({int(x) for x in arrays.node[online] if x >= 0})
    parts = [
        plural(cores, "core")
        if cores == n
        else f"{plural(cores, 'core')} × {n / cores:.3g} threads"
    ]
    parts.append("one LLC" if llcs == 1 else f"{llcs} LLCs")
    if nodes > 1:
        parts.append(f"{nodes} NUMA nodes")
    return f"{plural(n, 'CPU')} ({', '.join(parts)})"


def lost_words(ctx: Context) -> str:
    """What the recorder says was lost: "none lost", "1,204 lost", "some lost (3 times)"."""
    lost = ctx.cap.lost
    if lost.events is None:
        return f"some lost ({plural(lost.marks, 'time')}, number not recorded)"
    return f"{count(lost.events)} lost" if lost.events else "none lost"


def fill(ctx: Context, section: Section) -> None:
    """Facts, events per tracepoint, coverage per CPU."""
    total = sum(ctx.counts.values())
    span = duration(ctx.span_ns) if ctx.has_time else "a span that the clock does not tell"
    section.sentences.append(
        say(
            Strong(machine(ctx)),
            "; ",
            Strong(span),
            "; ",
            Strong(count(total)),
            " events, ",
            Strong(lost_words(ctx)),
            ".",
        )
    )
    section.tables.append(_facts(ctx))
    section.tables.append(_events(ctx, total))
    if ctx.timeline is not None:
        section.tables.append(_coverage(ctx))
    section.definitions += [
        (
            "used",
            say(
                "Events of this tracepoint enter the analysis. Others are counted and skipped; ",
                Code('cap.extra_events("NAME")'),
                " gives them as a table.",
            ),
        ),
        (
            "idle, busy, unknown (of a CPU)",
            say(
                "Idle: the idle task is current, by sched_switch. A CPU with events but without a "
                "switch ran one task throughout. Unknown: before the first and across lost "
                "records, and wholly for a CPU without any event. The three add up to the span."
            ),
        ),
    ]
    section.reproduce.append(ctx.run("info"))


def _known(name: str | None) -> str | None:
    """A host's name, unless the machine had none."""
    return clean(name) if name and name not in ("(none)", "localhost") else None


def _facts(ctx: Context) -> Table:
    cap, meta = ctx.cap, ctx.cap.meta
    issues = cap.issues.counts()
    hertz = ctx.timeline.hz if ctx.timeline is not None else meta.hz
    hz = str(hertz) if hertz else None
    if hz and "hz_assumed" in issues:
        hz += " (assumed; give --hz)"
    kernel = clean(cap.kernel) if cap.kernel else "not recorded (6.1 assumed; give --kernel)"
    origin = sorted({_ORIGINS.get(o, o) for o in cap.topology.column("origin").to_pylist()})
    start = cap.start_state
    window = cap.window
    facts: list[tuple[str, str | None]] = [
        ("file", clean(ctx.file)),
        ("form", clean(meta.form)),
        ("recorder", meta.tool and clean(meta.tool)),
        ("recorded with", None if ctx.redact else meta.cmdline and clean(meta.cmdline)),
        ("host", None if ctx.redact else _known(meta.hostname)),
        ("kernel", kernel),
        ("architecture", meta.machine and clean(meta.machine)),
        ("machine", machine(ctx)),
        ("topology", ", ".join(origin)),
        ("clock", f"{clean(meta.clock or 'not recorded')}, {_UNITS.get(meta.clock_unit, '')}"),
        ("ticks per second (HZ)", hz),
    ]
    if ctx.has_time:
        facts += [
            ("first event", moment(cap.first_ts)),
            ("last event", moment(cap.last_ts)),
            ("span", duration(ctx.span_ns)),
        ]
    if window is not None:
        facts.append(
            ("selected (--time)", " to ".join("open" if w is None else moment(w) for w in window))
        )
    if cap.asked_to_ignore:
        facts.append(("ignored (--ignore)", ", ".join(cap.asked_to_ignore)))
    if cap.read_mode != "normal":
        facts.append(("read mode (--read-mode)", cap.read_mode))
    facts.append(
        (
            "start state (dur_avg, wakee_flips)",
            f"given for {plural(len(start.tasks), 'task')}"
            if start is not None
            else "not given: unknown until it has decayed in",
        )
    )
    return Table(
        "facts",
        "Facts of the capture",
        [Column("fact", "text", "fact"), Column("value", "text", "value")],
        [[key, value] for key, value in facts if value],
    )


def _events(ctx: Context, total: int) -> Table:
    rows: list[list[Any]] = [
        [
            clean(name),
            n,
            n / total if total else None,
            name in EVENT_NAMES and name not in ctx.cap.ignored,
        ]
        for name, n in sorted(ctx.counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    limit = 20
    return Table(
        "events",
        "Events per tracepoint",
        [
            Column("event", "text", "tracepoint"),
            Column("events", "int", "events"),
            Column("share", "share", "share"),
            Column("used", "flag", "used"),
        ],
        rows[:limit],
        more=max(0, len(rows) - limit),
    )


def _coverage(ctx: Context) -> Table:
    cpus = ctx.tl.cpus.to_pylist()
    span = max(ctx.span_ns, 1)
    rows = [
        [
            c["cpu"],
            c["events"],
            c["switches"],
            c["begin"],
            c["end"],
            *(
                c[name] / span if ctx.has_time and ctx.span_ns else None
                for name in ("idle_ns", "busy_ns", "unknown_ns")
            ),
        ]
        for c in cpus
    ]
    limit = 64
    return Table(
        "coverage",
        "Coverage of each CPU",
        [
            Column("cpu", "id", "CPU"),
            Column("events", "int", "events"),
            Column("switches", "int", "switches"),
            Column("begin_ns", "ts", "data begin"),
            Column("end_ns", "ts", "last event"),
            Column("idle_share", "share", "idle"),
            Column("busy_share", "share", "busy"),
            Column("unknown_share", "share", "unknown"),
        ],
        rows[:limit],
        more=max(0, len(rows) - limit),
    )
