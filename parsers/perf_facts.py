"""What a perf.data says of itself: names of its events, machine and clock, what it lacks."""

from __future__ import annotations

from collections.abc import Callable

from traceana.issues import IssueLog
from traceana.parsers.formats import EventFormat
from traceana.parsers.perf_features import Features
from traceana.parsers.perf_header import TYPE_TRACEPOINT, Attr, PerfHeader
from traceana.parsers.reader import ReaderMeta

__all__ = ["event_name", "make_meta", "say_what_is_missing"]

#: Bits of sample_type (include/uapi/linux/perf_event.h).
_TIME, _RAW = 0x4, 0x400
_MISSING = {
    "no_format": "the file does not describe them, so they cannot be read",
    "no_raw": "recorded without their data (no RAW), so they cannot be read",
    "no_time": "recorded without time, left out",
    "events_sampled": "only some were recorded (a period or frequency was given; record with -c 1)",
}


def event_name(attr: Attr, fmt: EventFormat | None) -> str:
    """Bare tracepoint name, or what perf calls the event."""
    if fmt is not None:
        return fmt.name
    if attr.name and attr.type == TYPE_TRACEPOINT:
        return attr.name.partition(":")[2].partition(":")[0] or attr.name
    return attr.name or attr.kernel_name or f"event type {attr.type} config {attr.config:#x}"


def make_meta(
    header: PerfHeader, said: Features, names: list[str], issues: IssueLog, *, folder: bool
) -> ReaderMeta:
    """Facts of the capture; ``names`` are those of its events."""
    clocks = sorted({a.clock for a in header.attrs})
    if len(clocks) > 1:
        issues.add("parse", "several_clocks", f"events of several clocks: {clocks}")
    extra: dict[str, object] = {
        "events": names,
    }
    for key in ("cpudesc", "cpuid", "total_mem_kb", "clock_resolution_ns", "sample_time"):
        if getattr(said, key) is not None:
            extra[key] = getattr(said, key)
    if said.clock_data is not None:
        clockid, wall, clock = said.clock_data
        extra["wall_clock"] = {"clockid": clockid, "wall_ns": wall, "clock_ns": clock}
    kinds = {
        "pipe mode": header.pipe,
        "folder": folder,
        "compressed": 27 in header.feature_bits,
        "big endian": header.order == ">",
        "version 1": header.version == 1,
    }
    if any(kinds.values()):
        extra["perf_data"] = ", ".join(name for name, is_so in kinds.items() if is_so)
    if header.version == 1:
        issues.add("parse", "old_version", "perf.data of version 1 (perf before 3.0)")
    tool = f"perf {said.version}" if said.version else "perf"
    if header.simpleperf:
        tool = f"simpleperf {said.simpleperf.get('simpleperf_version', '')}".strip()
    return ReaderMeta(
        form="perf.data",
        tool=tool,
        kernel=said.osrelease,
        machine=said.arch,
        hostname=said.hostname,
        clock=_main_clock(header.attrs),
        cpus_present=said.cpus_available,
        cpus_online=said.cpus_online,
        cmdline=said.command,
        extra=extra,
    )


def _main_clock(attrs: list[Attr]) -> str:
    for attr in attrs:
        if attr.type == TYPE_TRACEPOINT:
            return attr.clock
    return attrs[0].clock


def say_what_is_missing(
    attrs: list[Attr],
    format_of: Callable[[Attr], EventFormat | None],
    meta: ReaderMeta,
    issues: IssueLog,
    *,
    bare_switches: bool,
) -> None:
    """Issues for tracepoints that cannot be read, or that there are none.

    ``bare_switches``: samples of sched_switch without data are used all the same.
    """
    if not any(a.type == TYPE_TRACEPOINT for a in attrs):
        names = ", ".join(dict.fromkeys(event_name(a, format_of(a)) for a in attrs))
        command = meta.cmdline
        recorded = f"; recorded as: {command}" if command else ""
        text = (
            f"no tracepoints in this file (events: {names}{recorded}); record with "
            "-e 'sched:*' as root: perf must be able to read tracefs and "
            "kernel.perf_event_paranoid must allow it"
        )
        meta.extra["no_tracepoints"] = text
        issues.add("parse", "no_tracepoints", text)
        return
    told: dict[str, list[str]] = {}
    for attr in attrs:
        if attr.type != TYPE_TRACEPOINT:
            continue
        if bare_switches and event_name(attr, format_of(attr)) == "sched_switch":
            continue
        if format_of(attr) is None:
            told.setdefault("no_format", []).append(event_name(attr, format_of(attr)))
        elif not attr.sample_type & _RAW:
            told.setdefault("no_raw", []).append(event_name(attr, format_of(attr)))
        elif not attr.sample_type & _TIME:
            told.setdefault("no_time", []).append(event_name(attr, format_of(attr)))
        elif attr.sampled:
            told.setdefault("events_sampled", []).append(event_name(attr, format_of(attr)))
    for code, names_of in told.items():
        text = f"{', '.join(names_of)}: {_MISSING[code]}"
        issues.add("parse", code, text, count=len(names_of))
