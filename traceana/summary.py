"""Small tables for a reader, out of the timeline's: per task, per group of wakeups, per CPU.

Percentiles are values that occurred (the smallest value v of which at least a share q of all
is ≤ v), so each can be found in the trace. Rows with an unknown duration are not counted in
``n``. Rows come back as dicts of Python values, None where not known; durations in ns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from traceana.schema import Queueing, TaskClass, WakeContext, WakeKind

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = [
    "GROUPINGS",
    "LATENCIES",
    "idle_rows",
    "latency_rows",
    "percentile",
    "task_rows",
    "wakeup_rows",
]

#: The three latencies of a wakeup, and the column that says when each was over.
LATENCIES: Mapping[str, str] = {
    "wakeup_latency": "run_ts",
    "queue_delay": "run_ts",
    "wake_delay": "wakeup_ts",
}
_QUANTILES = (("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99), ("p999_ns", 0.999))


def percentile(ordered: npt.NDArray[np.int64], q: float) -> int | None:
    """The value at share q of ascending values; None if there is none.

    >>> import numpy as np
    >>> percentile(np.array([10, 20, 30, 40]), 0.5)
    20
    """
    n = len(ordered)
    return int(ordered[max(0, int(np.ceil(q * n)) - 1)]) if n else None


def task_rows(tasks: pa.Table) -> list[dict[str, Any]]:
    """One row per task, the longest running first; idle tasks stand at the end.

    All columns of the ``tasks`` table, and ``delay_avg_ns`` (null without a delay). ``class``
    is a word.
    """
    rows: list[dict[str, Any]] = tasks.to_pylist()
    for row in rows:
        n = row["delays"]
        row["delay_avg_ns"] = round(row["delay_sum_ns"] / n) if n else None
        row["class"] = None if row["class"] is None else TaskClass(row["class"]).name.lower()
    rows.sort(key=lambda r: (r["class"] == "idle", -r["runtime_ns"], r["task"]))
    return rows


def wakeup_rows(wakeups: pa.Table, tasks: pa.Table) -> list[dict[str, Any]]:
    """One row per wakeup: the columns of the ``wakeups`` table with names and words.

    Tasks become ``wakee``, ``wakee_pid``, ``waker``, ``waker_pid`` (names and thread ids).
    """
    rows: list[dict[str, Any]] = wakeups.to_pylist()
    comms, pids = tasks.column("comm").to_pylist(), tasks.column("pid").to_pylist()
    for row in rows:
        for role in ("wakee", "waker", "current"):
            task = row[role]
            row[f"{role}_pid"] = None if task is None else pids[task]
            row[f"{role}_task"] = task
            row[role] = None if task is None else comms[task]
        row["kind"] = WakeKind(row["kind"]).name.lower()
        row["context"] = WakeContext(row["context"]).name.lower()
        row["queueing"] = Queueing(row["queueing"]).name.lower()
    return rows


def latency_rows(wakeups: pa.Table, tasks: pa.Table, *, by: str = "all") -> list[dict[str, Any]]:
    """Each latency's distribution, over all wakeups or per group.

    Parameters
    ----------
    wakeups, tasks : pyarrow.Table
    by : str
        One of GROUPINGS.

    Returns
    -------
    list of dict
        ``group``, ``latency`` (a key of LATENCIES), ``n``, ``p50_ns``, ``p90_ns``, ``p99_ns``,
        ``p999_ns``, ``max_ns``, ``max_at_ns``, ``max_task``, ``max_pid``, ``max_cpu``; the
        biggest group first.
    """
    rows = []
    comms, pids = tasks.column("comm").to_pylist(), tasks.column("pid").to_pylist()
    for name, indices in GROUPINGS[by](wakeups, tasks):
        part = wakeups if indices is None else wakeups.take(indices)
        for latency, end in LATENCIES.items():
            rows.append({"group": name, "latency": latency, **_distribution(part, latency, end)})
    for row in rows:
        task = row.pop("_task")
        row["max_task"] = None if task is None else comms[task]
        row["max_pid"] = None if task is None else pids[task]
    return rows


def _distribution(part: pa.Table, latency: str, end: str) -> dict[str, Any]:
    values = part.column(f"{latency}_ns")
    known = values.drop_null().to_numpy()
    ordered = np.sort(known)
    row: dict[str, Any] = {"n": len(known)}
    row |= {name: percentile(ordered, q) for name, q in _QUANTILES}
    if not len(known):
        return row | {"max_ns": None, "max_at_ns": None, "max_cpu": None, "_task": None}
    at = pc.index(values, pc.max(values)).as_py()
    cpu = "ran_cpu" if end == "run_ts" else "placed_cpu"
    return row | {
        "max_ns": int(ordered[-1]),
        "max_at_ns": part.column(end)[at].as_py(),
        "max_cpu": part.column(cpu)[at].as_py(),
        "_task": part.column("wakee")[at].as_py(),
    }


_Groups = Iterable[tuple[str, Any]]


def _everything(wakeups: pa.Table, tasks: pa.Table) -> _Groups:
    return [("all", None)]


def _grouped(wakeups: pa.Table, labels: list[str]) -> _Groups:
    groups: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        groups.setdefault(label, []).append(i)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return [(name, pa.array(rows, pa.int64())) for name, rows in ordered]


def _task_labels(tasks: pa.Table) -> list[str]:
    rows = zip(tasks.column("comm").to_pylist(), tasks.column("pid").to_pylist(), strict=True)
    return [f"{comm if comm is not None else '?'}:{pid}" for comm, pid in rows]


def _by_task(role: str) -> Callable[[pa.Table, pa.Table], _Groups]:
    def group(wakeups: pa.Table, tasks: pa.Table) -> _Groups:
        labels = _task_labels(tasks)
        who = wakeups.column(role).to_pylist()
        return _grouped(wakeups, ["unknown" if t is None else labels[t] for t in who])

    return group


def _by_pair(wakeups: pa.Table, tasks: pa.Table) -> _Groups:
    labels = _task_labels(tasks)
    both = zip(
        wakeups.column("waker").to_pylist(), wakeups.column("wakee").to_pylist(), strict=True
    )
    return _grouped(
        wakeups, [f"{'unknown' if a is None else labels[a]} -> {labels[b]}" for a, b in both]
    )


def _by_workload(wakeups: pa.Table, tasks: pa.Table) -> _Groups:
    names = tasks.column("group").to_pylist()
    who = wakeups.column("wakee").to_pylist()
    return _grouped(wakeups, ["none" if names[t] is None else names[t] for t in who])


def _by_cpu(wakeups: pa.Table, tasks: pa.Table) -> _Groups:
    cpus = wakeups.column("placed_cpu").to_pylist()
    return _grouped(wakeups, ["unknown" if c is None else f"cpu {c}" for c in cpus])


def _by_target(wakeups: pa.Table, tasks: pa.Table) -> _Groups:
    idle = wakeups.column("placed_idle").to_pylist()
    return _grouped(
        wakeups, ["unknown" if i is None else "idle cpu" if i else "busy cpu" for i in idle]
    )


def _by_enum(column: str, words: Any) -> Callable[[pa.Table, pa.Table], _Groups]:
    def group(wakeups: pa.Table, tasks: pa.Table) -> _Groups:
        values = wakeups.column(column).to_pylist()
        return _grouped(wakeups, [words(v).name.lower() for v in values])

    return group


#: By what wakeups may be grouped.
GROUPINGS: Mapping[str, Callable[[pa.Table, pa.Table], _Groups]] = {
    "all": _everything,
    "wakee": _by_task("wakee"),
    "waker": _by_task("waker"),
    "pair": _by_pair,
    "workload": _by_workload,
    "cpu": _by_cpu,
    "target": _by_target,
    "kind": _by_enum("kind", WakeKind),
    "context": _by_enum("context", WakeContext),
    "queueing": _by_enum("queueing", Queueing),
}


def idle_rows(timeline: Timeline, cpus: Iterable[int]) -> list[dict[str, Any]]:
    """Idle time per CPU.

    Parameters
    ----------
    timeline : Timeline
    cpus : iterable of int
        CPUs of the machine; one without any event is unknown throughout, not idle.

    Returns
    -------
    list of dict
        ``cpu``, ``gaps``, ``idle_ns``, ``idle_share`` (of the time that is known),
        ``idle_share_max`` (of all, as if what is not known had been idle), ``unknown_ns``,
        ``waited_llc_ns``, ``waited_busy_llc_ns``, ``waited_any_ns`` (as in ``idle_gaps``),
        ``waited_llc_share`` (of the idle time),
        ``gap_p50_ns``, ``gap_max_ns``, ``gap_max_at_ns`` (its begin). Gaps that are open at an
        end are counted in ``idle_ns``, not in the last three.
    """
    gaps = timeline.idle_gaps
    span = timeline.last_ts - timeline.first_ts
    known = {row["cpu"]: row for row in timeline.cpus.to_pylist() if row["events"]}
    cpu = gaps.column("cpu").to_numpy()
    start = gaps.column("start")
    length = pc.subtract(gaps.column("end"), start)
    whole = pc.is_valid(length).to_numpy()
    lengths = pc.fill_null(length, 0).to_numpy()
    starts = pc.fill_null(start, 0).to_numpy()
    waits = {
        name: None if gaps.column(name).null_count else gaps.column(name).to_numpy()
        for name in ("waited_llc_ns", "waited_busy_llc_ns", "waited_any_ns")
    }
    rows = []
    for c in sorted({*cpus, *known}):
        mine = np.flatnonzero(cpu == c)
        have = known.get(c)
        idle = have["idle_ns"] if have else None
        unknown = have["unknown_ns"] if have else span
        row: dict[str, Any] = {"cpu": c, "gaps": len(mine), "idle_ns": idle}
        row["unknown_ns"] = unknown
        # Of what is known; as if all the rest had been busy it is idle_ns / span.
        row["idle_share"] = idle / (span - unknown) if idle is not None and span > unknown else None
        row["idle_share_max"] = ((idle or 0) + unknown) / span if span else None
        row |= {
            n: int(values[mine].sum()) if have and values is not None else None
            for n, values in waits.items()
        }
        waited = row["waited_llc_ns"]
        row["waited_llc_share"] = waited / idle if idle and waited is not None else None
        mine = mine[whole[mine]]
        longest = mine[np.argmax(lengths[mine])] if len(mine) else None
        row["gap_p50_ns"] = percentile(np.sort(lengths[mine]), 0.5)
        row["gap_max_ns"] = None if longest is None else int(lengths[longest])
        row["gap_max_at_ns"] = None if longest is None else int(starts[longest])
        rows.append(row)
    return rows
