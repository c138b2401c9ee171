"""``traceana events``: what happened, one row per event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from traceana.cli.common import check_rows, conclude, emit, lost_block, opened, timed
from traceana.cli.options import INPUT, OUTPUT, ROWS, SHOWN, Options, verb
from traceana.cli.values import Shown
from traceana.errors import UsageError
from traceana.output import Field, Sheet

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["register"]

FIELDS = (
    Field("ts", "ts", "time"),
    Field("cpu", "int"),
    Field("what", "text", shown=False),
    Field("task", "text", width=20),
    Field("tid", "int"),
    Field("pid", "int", shown=False),
    Field("wait_ns", "ns", "wait"),
    Field("delay_ns", "ns", "delay"),
    Field("run_ns", "ns", "run"),
    Field("state", "text", ""),
    Field("note", "text", "", width=34),
    Field("waker", "text", shown=False),
    Field("waker_tid", "int", shown=False),
    Field("other", "text", shown=False),
    Field("other_tid", "int", shown=False),
    Field("cpu_from", "int", shown=False),
    Field("cpu_to", "int", shown=False),
)
_STATES = "RSDTtXZPIKWN+"


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(app, INPUT, SHOWN, ROWS, OUTPUT, example="traceana events sample_traces/pp6-base.dat -w")
    def events(
        options: Options,
        wakeups: Annotated[
            bool,
            typer.Option("-w", "--wakeups", help="Also a row for each wakeup.", show_default=False),
        ] = False,
        migrations: Annotated[
            bool,
            typer.Option(
                "-M",
                "--migrations",
                help="Also a row for each move outside of a wakeup.",
                show_default=False,
            ),
        ] = False,
        idle: Annotated[
            bool,
            typer.Option("--idle", help="Also rows of the idle tasks.", show_default=False),
        ] = False,
        state: Annotated[
            str | None,
            typer.Option(
                metavar="LETTERS",
                help="Only tasks that left the CPU in one of these states, e.g. D or SD; R is "
                "preempted or yielding.",
                show_default=False,
            ),
        ] = None,
        waker: Annotated[
            str | None,
            typer.Option(
                metavar="GLOB", help="Only tasks woken by a task so named.", show_default=False
            ),
        ] = None,
    ) -> int:
        """List what each task did, switch by switch, as perf sched timehist does.

        A row stands where a task leaves a CPU: how long it had been away (wait: asleep or
        runnable), how long of that it was runnable (delay: from sched_wakeup, or from a
        switch-out in R), how long it ran, and in which state it left.
        """
        check_rows(options, FIELDS)
        if state is not None and (not state or set(state) - set(_STATES)):
            raise UsageError(f"--state {state}: give letters out of {_STATES}")
        shown = Shown.of(options)
        with opened(options) as cap:
            timed(cap, "events")
            timeline = cap.timeline()
            if not timeline.slices.num_rows:
                cap.require(("sched_switch",), "events")
            from traceana.listing import history

            table = history(timeline, wakeups=wakeups, migrations=migrations, idle=idle)
            rows = _rows(table, timeline.tasks, shown, state, waker)
            emit(Sheet("events", FIELDS, rows, head={"lost": lost_block(cap)}), options)
            return conclude(cap, options)


def _rows(
    table: pa.Table, tasks: pa.Table, shown: Shown, state: str | None, waker: str | None
) -> list[list[Any]]:
    from fnmatch import fnmatchcase

    who = [(t["comm"], t["pid"], t["tgid"]) for t in tasks.to_pylist()]
    wanted = [shown.task(pid, tgid, comm) for comm, pid, tgid in who]
    woken_by = [waker is None or fnmatchcase(comm or "", waker) for comm, _, _ in who]
    nobody = (None, None, None)
    out = []
    columns = [table[name].to_pylist() for name in table.schema.names]
    for row in zip(*columns, strict=True):
        ts, cpu, what, task, wait, delay, run, left, by, other, cpu_from, cpu_to = row
        if not shown.cpu(cpu):
            continue
        if shown.by_task and not any(t is not None and wanted[t] for t in (task, other)):
            continue
        if state is not None and not (left and set(left) & set(state)):
            continue
        if waker is not None:
            source = by if what == "ran" else task if what == "wakes" else None
            if source is None or not woken_by[source]:
                continue
        comm, tid, pid = who[task] if task is not None else nobody
        by_comm, by_tid, _ = who[by] if by is not None else nobody
        other_comm, other_tid, _ = who[other] if other is not None else nobody
        note = ""
        if what == "wakes":
            note = f"wakes {other_comm or '?'}[{other_tid}]"
            if cpu_to is not None:
                note += f" on {cpu_to}"
        elif what == "migrates":
            note = f"moves {cpu_from} -> {cpu_to}"
        elif by_comm is not None:
            note = f"woken by {by_comm}[{by_tid}]"
        out.append([ts, cpu, what, comm, tid, pid, wait, delay, run, left, note, by_comm, by_tid,
                    other_comm, other_tid, cpu_from, cpu_to])  # fmt: skip
    return out
