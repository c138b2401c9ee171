"""What the kernel knew of its tasks when the capture began, and no event tells.

Two forms are read: the ``state.json`` of the design (section 4, "Start state"), and the RUN.json
that accompanies A/B captures (``tasks_begin``). Both become a :class:`StartState`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceana.errors import FormatError, InputError

__all__ = ["StartState", "TaskSeed", "find", "load"]

_MAX_BYTES = 256 << 20


@dataclass(frozen=True)
class TaskSeed:
    """Start values of one thread; None where not known.

    ``dur_avg_ns`` in ns, ``wakee_flip_decay_ts`` in jiffies, ``last_wakee`` a pid.
    """

    pid: int
    dur_avg_ns: int | None = None
    wakee_flips: int | None = None
    wakee_flip_decay_ts: int | None = None
    last_wakee: int | None = None
    util_avg: int | None = None
    load_avg: int | None = None


@dataclass(frozen=True)
class StartState:
    """Start state of a capture.

    ``jiffies_now`` was read at ``at_ts`` of the capture's clock (None: at its first event).
    ``running`` maps CPU to the pid that runs there (0 = idle). ``llcs`` maps an LLC's lowest CPU
    to (nr_idle_scan, has_idle_core), each None where unknown.
    """

    tasks: tuple[TaskSeed, ...] = ()
    jiffies_now: int | None = None
    hz: int | None = None
    at_ts: int | None = None
    running: dict[int, int] = field(default_factory=dict)
    llcs: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)


def find(capture: Path) -> Path | None:
    """``CAPTURE.state.json`` beside a capture (in a store: ``state.json``), if there is one."""
    if capture.is_dir():
        side = capture / "state.json"
        return side if side.is_file() else None
    side = capture.with_name(capture.name + ".state.json")
    return side if side.is_file() else None


def load(path: str | Path) -> StartState:
    """Read a start state.

    Raises
    ------
    InputError
        Not readable, not JSON, or of neither form; names what is wrong.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise FormatError(path, "start state of more than 256 MiB")
        document = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise InputError(path, error.strerror or "cannot be read") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(path, f"start state is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise FormatError(path, "start state is not a JSON object")
    try:
        if "tasks_begin" in document:
            return _from_run(document)
        if "tasks" in document or "cpus" in document or "llcs" in document:
            return _from_state(document)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FormatError(
            path, f"start state: unexpected value or missing key ({error})"
        ) from error
    raise FormatError(
        path, "start state without 'tasks' or 'tasks_begin'", hint="see docs/machine-readable.md"
    )


def _int(value: Any, low: int = 0, high: int = 2**62) -> int | None:
    if value is None:
        return None
    number = int(value)
    if not low <= number <= high:
        raise ValueError(f"{number} is out of range")
    return number


def _pid(value: Any) -> int:
    number = _int(value, 0, 2**31 - 1)
    if number is None:
        raise ValueError("a pid is null")
    return number


def _from_state(document: dict[str, Any]) -> StartState:
    tasks = tuple(
        TaskSeed(
            pid=_pid(t["pid"]),
            dur_avg_ns=_int(t.get("dur_avg_ns")),
            wakee_flips=_int(t.get("wakee_flips")),
            wakee_flip_decay_ts=_int(t.get("wakee_flip_decay_ts")),
            last_wakee=_int(t.get("last_wakee"), 0, 2**31 - 1),
            util_avg=_int(t.get("util_avg")),
            load_avg=_int(t.get("load_avg")),
        )
        for t in document.get("tasks", ())
    )
    llcs = {
        int(g["llc"]): (_int(g.get("nr_idle_scan")), _int(g.get("has_idle_core")))
        for g in document.get("llcs", ())
    }
    return StartState(
        tasks=tasks,
        jiffies_now=_int(document.get("jiffies_now")),
        hz=_int(document.get("hz"), 1, 100_000),
        at_ts=_int(document.get("at_ts"), -(2**62)),
        running={_pid(c["cpu"]): _pid(c["pid"]) for c in document.get("cpus", ()) if "pid" in c},
        llcs=llcs,
    )


def _from_run(document: dict[str, Any]) -> StartState:
    begin = document["tasks_begin"]
    rows = begin["tasks"]
    tasks = tuple(
        TaskSeed(
            pid=_pid(t["pid"]),
            dur_avg_ns=_int(t.get("se.dur_avg")),
            wakee_flips=_int(t.get("wakee_flips")),
            wakee_flip_decay_ts=_int(t.get("wakee_flip_decay_ts")),
            last_wakee=_int(t.get("last_wakee"), 0, 2**31 - 1),
            util_avg=_int(t.get("se.avg.util_avg")),
        )
        for t in rows
    )
    jiffies = max((int(t["jiffies_now"]) for t in rows if "jiffies_now" in t), default=None)
    at_ts = None
    pair = document.get("clock_pair")
    if pair and "mono_to_ns" in begin:
        # The trace clock's offset against CLOCK_MONOTONIC, to the microsecond that it was read at.
        seconds, _, fraction = f"{pair['trace_s']:.9f}".partition(".")
        trace = int(seconds) * 1_000_000_000 + int(fraction)
        at_ts = _int(int(begin["mono_to_ns"]) - int(pair["mono_ns"]) + trace, -(2**62))
    return StartState(
        tasks=tasks, jiffies_now=jiffies, at_ts=at_ts, hz=_int(document.get("hz"), 1, 100_000)
    )
