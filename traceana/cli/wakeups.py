"""``traceana wakeups``: how long tasks waited from their wakeup until they ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from traceana.cli.common import check_rows, conclude, emit, lost_block, opened, timed
from traceana.cli.options import INPUT, OUTPUT, ROWS, SHOWN, Options, verb
from traceana.cli.values import Shown, choose
from traceana.output import Field, Sheet

if TYPE_CHECKING:
    import pyarrow as pa

    from traceana.capture import Capture

__all__ = ["register"]

GROUPS = (
    "all", "wakee", "waker", "pair", "workload", "cpu", "target", "kind", "context", "queueing",
)  # fmt: skip

SUMMARY = (
    Field("group", "text", width=40),
    Field("latency", "text"),
    Field("n", "int"),
    Field("p50_ns", "ns", "p50"),
    Field("p90_ns", "ns", "p90"),
    Field("p99_ns", "ns", "p99"),
    Field("p999_ns", "ns", "p99.9"),
    Field("max_ns", "ns", "max"),
    Field("max_at_ns", "ts", "max at"),
    Field("max_cpu", "int", "cpu"),
    Field("max_task", "text", "task", width=16),
    Field("max_pid", "int", shown=False),
)

EACH = (
    Field("wakeup", "int", "id"),
    Field("waking_ts", "ts", "waking"),
    Field("wakeup_ts", "ts", shown=False),
    Field("run_ts", "ts", shown=False),
    Field("waker", "text", width=16),
    Field("waker_pid", "int", shown=False),
    Field("current", "text", shown=False),
    Field("current_pid", "int", shown=False),
    Field("wakee", "text", width=16),
    Field("wakee_pid", "int", "tid"),
    Field("this_cpu", "int", "this"),
    Field("prev_cpu", "int", "prev"),
    Field("placed_cpu", "int", "placed"),
    Field("ran_cpu", "int", "ran"),
    Field("kind", "text"),
    Field("context", "text", shown=False),
    Field("queueing", "text", shown=False),
    Field("wakeup_latency_ns", "ns", "latency"),
    Field("queue_delay_ns", "ns", "delay"),
    Field("wake_delay_ns", "ns", shown=False),
    Field("wakee_dur_avg_ns", "ns", shown=False),
    Field("waker_dur_avg_ns", "ns", shown=False),
    Field("wakee_flips", "int", shown=False),
    Field("waker_flips", "int", shown=False),
    Field("nr_running_placed", "int", shown=False),
    Field("nr_running_this", "int", shown=False),
    Field("prev_idle", "int", shown=False),
    Field("placed_idle", "int", shown=False),
    Field("idle_cpus_llc", "int", shown=False),
    Field("sync_guess", "int", shown=False),
    Field("quality", "int", shown=False),
)

#: What --moved-by adds: where the rule would have put it, and why.
MOVED = (
    Field("rule_cpu", "int", "rule's"),
    Field("rule_reason", "text", "reason"),
    Field("certainty", "text"),
)


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(
        app,
        INPUT,
        SHOWN,
        ROWS,
        OUTPUT,
        example="traceana wakeups sample_traces/pp6-base.dat --by target",
    )
    def wakeups(
        options: Options,
        by: Annotated[
            str,
            typer.Option(
                metavar="GROUP",
                show_default=False,
                help=f"One row per group: {', '.join(GROUPS)}. Default: all.",
            ),
        ] = "all",
        rows: Annotated[
            bool,
            typer.Option("--rows", help="Each wakeup instead of a summary.", show_default=False),
        ] = False,
        moved_by: Annotated[
            str | None,
            typer.Option(
                "--moved-by",
                metavar="RULE",
                show_default=False,
                help="Each wakeup that this rule (a name of `traceana rules`, or the path of a "
                "rule file, which is run) would have put on another CPU: estimated, open loop.",
            ),
        ] = None,
    ) -> int:
        """Summarise wakeup latency, queue delay and wake delay, or list each wakeup.

        wakeup_latency: from sched_waking (or the wakee's switch-out, if that is later) to its
        switch-in. queue_delay: from sched_wakeup to the switch-in. wake_delay: from
        sched_waking to sched_wakeup. The analysis sees all events; --cpu (where the wakee was
        placed), --pid, --tid and --comm (the wakee's) select the wakeups that are counted.
        """
        rows = rows or moved_by is not None
        fields = EACH + (MOVED if moved_by is not None else ()) if rows else SUMMARY
        check_rows(options, fields)
        choose(by, GROUPS, "--by")
        shown = Shown.of(options)
        with opened(options) as cap:
            timed(cap, "wakeups")
            timeline = cap.timeline()
            if not timeline.wakeups.num_rows:
                cap.require(("sched_waking", "sched_wakeup"), "wakeups")
            table = _select(timeline.wakeups, timeline.tasks, shown)
            head = {"lost": lost_block(cap)}
            if moved_by is not None:
                sheet = _moved(cap, moved_by, table, timeline.tasks, head)
            elif rows:
                sheet = _each(table, timeline.tasks, head)
            else:
                from traceana.summary import latency_rows

                found = latency_rows(table, timeline.tasks, by=by)
                cells = [[row[f.name] for f in SUMMARY] for row in found]
                sheet = Sheet("latencies", SUMMARY, cells, head=head)
            emit(sheet, options)
            return conclude(cap, options)


def _select(wakeups: pa.Table, tasks: pa.Table, shown: Shown) -> pa.Table:
    import pyarrow as pa

    if shown.cpus is None and not shown.by_task:
        return wakeups
    wanted = [shown.task(r["pid"], r["tgid"], r["comm"]) for r in tasks.to_pylist()]
    pairs = zip(
        wakeups.column("wakee").to_pylist(), wakeups.column("placed_cpu").to_pylist(), strict=True
    )
    return wakeups.filter(pa.array([wanted[task] and shown.cpu(cpu) for task, cpu in pairs]))


def _each(table: pa.Table, tasks: pa.Table, head: dict[str, Any]) -> Sheet:
    from traceana.summary import wakeup_rows

    cells = [[row[f.name] for f in EACH] for row in wakeup_rows(table, tasks)]
    return Sheet("wakeups", EACH, cells, head=head)


def _moved(
    cap: Capture, rule: str, table: pa.Table, tasks: pa.Table, head: dict[str, Any]
) -> Sheet:
    """The wakeups of the table that a rule moves, and where to."""
    import pyarrow.compute as pc

    from traceana.explain import moved_by

    moved = moved_by(cap, rule)
    of = {row["wakeup"]: row for row in moved.to_pylist()}
    sheet = _each(
        table.filter(pc.is_in(table.column("wakeup"), moved.column("wakeup"))), tasks, head
    )
    at = [f.name for f in EACH].index("wakeup")
    cells = [[*row, *(of[row[at]][f.name] for f in MOVED)] for row in sheet.rows]
    note = f"estimated, open loop: {len(of)} wakeups moved by {rule}"
    return Sheet("wakeups", (*EACH, *MOVED), cells, head={**head, "rule": rule}, notes=[note])
