"""``traceana tasks``: what each task did."""

from __future__ import annotations

import typer

from traceana.cli.common import check_rows, conclude, emit, lost_block, opened, timed
from traceana.cli.options import INPUT, OUTPUT, ROWS, SHOWN, Options, verb
from traceana.cli.values import Shown
from traceana.output import Field, Sheet

__all__ = ["register"]

FIELDS = (
    Field("comm", "text", "task", width=20),
    Field("pid", "int", "tid"),
    Field("tgid", "int", shown=False),
    Field("class", "text", shown=False),
    Field("group", "text", shown=False),
    Field("runtime_ns", "ns", "runtime"),
    Field("on_cpu_ns", "ns", shown=False),
    Field("switches", "int", "switch"),
    Field("voluntary", "int", shown=False),
    Field("preempted", "int", shown=False),
    Field("wakeups", "int", "wakeup"),
    Field("delays", "int", "delays"),
    Field("delay_sum_ns", "ns", shown=False),
    Field("delay_avg_ns", "ns", "avg"),
    Field("delay_max_ns", "ns", "max"),
    Field("delay_max_at_ns", "ts", "max at"),
    Field("dur_avg_ns", "ns", "dur_avg"),
    Field("dur_avg_source", "int", shown=False),
    Field("dur_samples", "int", shown=False),
    Field("wakee_flips", "int", "flips"),
    Field("flips_seen", "int", shown=False),
    Field("first_ts", "ts", shown=False),
    Field("last_ts", "ts", shown=False),
    Field("born", "ts", shown=False),
    Field("died", "ts", shown=False),
)


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(
        app,
        INPUT,
        SHOWN,
        ROWS,
        OUTPUT,
        example="traceana tasks sample_traces/pp6-base.dat --sort delay_max",
    )
    def tasks(options: Options) -> int:
        """List tasks: run time, waits, dur_avg, wakee_flips.

        A delay runs from sched_wakeup, or from a switch-out in R, to the switch-in, as in perf
        sched latency. The analysis sees all tasks; --cpu (where a task was last seen), --pid,
        --tid and --comm select the rows shown. Idle tasks are shown with --tid 0.
        """
        check_rows(options, FIELDS)
        shown = Shown.of(options)
        with opened(options) as cap:
            from traceana.schema import DurSource
            from traceana.summary import task_rows

            timed(cap, "tasks")
            rows = []
            for row in task_rows(cap.tasks()):
                idle = row["class"] == "idle" and not (shown.tids and 0 in shown.tids)
                if idle or not shown.task(row["pid"], row["tgid"], row["comm"]):
                    continue
                if not shown.cpu(row["cpu"]):
                    continue
                source = row["dur_avg_source"]
                row["dur_avg_source"] = None if source is None else DurSource(source).name.lower()
                rows.append([row[f.name] for f in FIELDS])
            sheet = Sheet("tasks", FIELDS, rows, head={"lost": lost_block(cap)})
            emit(sheet, options)
            return conclude(cap, options)
