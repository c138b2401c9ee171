"""What a finished pass over a perf.data tells beside its rows: losses, and what was wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from traceana.issues import IssueLog
from traceana.parsers import _perf_kernels as kernels
from traceana.parsers.payload import ROW_LOST
from traceana.parsers.perf_names import NameLog
from traceana.parsers.perf_records import Scan
from traceana.parsers.reader import Lost

__all__ = ["count_losses", "say_switches", "say_what_was_wrong", "tail_losses"]


def count_losses(scan: Scan, names: NameLog, lost: Lost, issues: IssueLog) -> None:
    """What LOST_SAMPLES records sum up per CPU, beside what LOST records marked so far.

    LOST records count records of every kind, the sums samples only: the sum may be the smaller.
    """
    told: dict[int, int] = {}
    for cpu, count in names.lost_samples:
        told[cpu] = told.get(cpu, 0) + count
    for cpu, count in told.items():
        marked = int(scan.lost[cpu, 2])
        of = cpu if 0 <= cpu < kernels.CPU_LIMIT else None
        lost.count(of, lost=count, marked=min(marked, count))
        if count > marked:
            where = "an unknown cpu" if of is None else f"cpu {of}"
            issues.add(
                "parse", "losses_unplaced",
                f"{where}: the kernel counts {count} lost events, {marked} of them are marked: "
                "the others are taken to lie after its last event",
                cpu=of, count=count - marked,
            )  # fmt: skip


def tail_losses(scan: Scan, names: NameLog) -> tuple[npt.NDArray[Any], ...]:
    """LOST rows, at the end, for losses of which only the sum is told.

    Since 6.0 perf reads at the end how many samples each event lost (LOST_SAMPLES records
    without a time). They contain those of the LOST records; what is more was lost after a
    CPU's last event.
    """
    told: dict[int, int] = {}
    for cpu, count in names.lost_samples:
        told[cpu] = told.get(cpu, 0) + count
    ts, cpus, counts = [], [], []
    for cpu, count in sorted(told.items()):
        more = count - int(scan.lost[cpu, 2])
        if more > 0:
            scan.lost[cpu, 2] += more
            ts.append(scan.max_ts)
            cpus.append(cpu)
            counts.append(more)
    n = len(ts)
    return (
        np.array(ts, np.int64),
        np.array(cpus, np.int32),
        np.array(counts, np.int64),
        np.zeros(n, np.int32),
        np.full(n, ROW_LOST, np.int32),
    )


def say_what_was_wrong(scan: Scan, issues: IssueLog) -> None:
    """Issues for what a finished pass met."""
    st = scan.state
    for code, cell, text in (
        ("sample_unknown_id", kernels.ST_UNKNOWN, "samples of an unknown event id"),
        ("sample_malformed", kernels.ST_BAD, "records that do not hold what they must"),
        ("sample_without_time", kernels.ST_NO_TIME, "samples without a time kept their place"),
        ("cpu_out_of_range", kernels.ST_STRANGE_CPU, "samples of an impossible CPU"),
    ):
        count = int(st[cell])
        if count:
            at = int(st[kernels.ST_FIRST_BAD])
            where = f"offset {at:#x}: " if code == "sample_malformed" and at else ""
            issues.add("parse", code, f"{where}{count} {text}", count=count)
    if scan.late:
        issues.add(
            "parse", "time_backwards",
            f"{scan.late} events came after their round was closed: out of order",
            count=scan.late,
        )  # fmt: skip
    repeated = int(st[kernels.ST_REPEATED])
    if repeated:
        issues.add(
            "parse", "samples_repeated",
            f"{repeated} samples that repeat the one before were left out: with a period or "
            "frequency perf writes an event as often as its weight asks for",
            count=repeated,
        )  # fmt: skip


def say_switches(scan: Scan, issues: IssueLog, made: int, *, samples: bool) -> None:
    """Issues for switches told by records without data; ``made`` rows come from such."""
    switches = int(scan.records[[kernels.R_SWITCH, kernels.R_SWITCH_CPU_WIDE]].sum())
    if made and samples:
        issues.add(
            "parse", "switch_without_data",
            f"sched_switch was recorded without its data: {made} times a task left its CPU, "
            "but not in which state nor who came next",
            count=made,
        )  # fmt: skip
    elif made:
        issues.add(
            "parse", "switch_records",
            f"sched_switch was not recorded: {made} switches come from SWITCH records, which "
            "do not tell the state of the task that left (only whether it was preempted), "
            "and the other task only when recorded CPU wide",
            count=made,
        )  # fmt: skip
    elif switches:
        issues.add(
            "parse", "switch_records",
            f"{switches} SWITCH records (no next task, no state) are not used",
            count=switches,
        )  # fmt: skip
