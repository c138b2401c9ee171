"""What each task did: how long it ran and waited, dur_avg, wakee_flips."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana.reports.context import NULL, Context, Scope, column, missing_text
from traceana.reports.model import Code, Column, Section, Strong, Table, say
from traceana.reports.words import count, duration, moment, plural, share
from traceana.schema import DurSource, TaskClass
from traceana.thresholds import tunables

__all__ = ["dur_source_words", "fill", "short_threshold_ns"]

COLUMNS = (
    Column("task", "text", "task"),
    Column("pid", "id", "pid"),
    Column("workload", "text", "workload"),
    Column("class", "text", "class"),
    Column("runtime_ns", "ns", "runtime"),
    Column("runtime_share", "share", "of one CPU"),
    Column("switches", "int", "switched out"),
    Column("preempted", "int", "preempted"),
    Column("wakeups", "int", "woken"),
    Column("delay_avg_ns", "ns", "wait, mean"),
    Column("delay_max_ns", "ns", "wait, longest"),
    Column("delay_max_at_ns", "ts", "ended at"),
    Column("delay_max_cpu", "id", "on CPU"),
    Column("dur_avg_ns", "ns", "dur_avg"),
    Column("wakee_flips", "int", "wakee_flips"),
    Column("flips_seen", "int", "flips seen"),
)


def short_threshold_ns(ctx: Context) -> int:
    """Below which dur_avg a task is short for SIS_SHORT v5: an eighth of the default slice."""
    online = sum(1 for x in ctx.cap.topology.column("online").to_pylist() if x)
    return tunables(ctx.cap.kernel, max(online, 1)).short_threshold_ns


def dur_source_words(ctx: Context) -> str:
    """Where dur_avg comes from, and its bias."""
    if ctx.tl.dur_source == DurSource.STAT_RUNTIME:
        return (
            "from sched_stat_runtime, the kernel's own run times (no bias; at the first sleep "
            "inside the window an average may still be unknown)"
        )
    return (
        "from sched_switch alone, as sched_stat_runtime is not in the capture: interrupts and "
        "stolen time count as run time, so it tends to be some percent too high"
    )


def fill(ctx: Context, section: Section) -> None:
    """Sentences, the longest-running tasks, the workloads, each workload's tasks."""
    tasks = ctx.tl.tasks
    classes = column(tasks, "class", 255)
    real = np.flatnonzero(classes != TaskClass.IDLE)
    runtime = column(tasks, "runtime_ns")
    order = real[np.lexsort((real, -runtime[real]))]
    ran = int((runtime[real] > 0).sum())
    section.sentences.append(_longest(ctx, order, ran))
    section.sentences.append(_averages(ctx, order))
    wait = _longest_wait(ctx, order)
    if wait is not None:
        section.sentences.append(wait)
    section.tables.append(_table(ctx, "tasks", "Tasks by run time", order, 20))
    if ctx.workloads:
        section.tables.append(_workloads(ctx))
    for i, scope in enumerate(ctx.workloads):
        part = Section(f"tasks-{i}", scope.label)
        mine = order[scope.tasks[order]]
        part.sentences.append(
            say(
                Strong(plural(len(mine), "task")),
                " ran ",
                Strong(duration(scope.runtime_ns)),
                f" ({share(_part(scope.runtime_ns, ctx.everything.runtime_ns))} of all run time); "
                f"woken {plural(scope.wakeups, 'time')}.",
            )
            if ctx.has_time
            else say(Strong(plural(len(mine), "task")), f", woken {plural(scope.wakeups, 'time')}.")
        )
        part.tables.append(_table(ctx, f"tasks-{i}", f"Tasks of {scope.label}", mine, 10))
        section.parts.append(part)
    if not ctx.recorded("sched_stat_runtime") and ctx.has_time:
        section.missing.append(missing_text("an unbiased dur_avg", ("sched_stat_runtime",)))
    section.definitions += [
        (
            "wait (of a task)",
            say(
                "Run-queue delay as ",
                Code("perf sched latency"),
                " counts it: from sched_wakeup, or from a switch-out in R, to the switch-in.",
            ),
        ),
        (
            "dur_avg",
            say(
                "avg += (s − avg) / 8 at each voluntary sleep, s the run time since the sleep "
                "before. Unknown until a start state gives it or 24 whole samples have passed. "
                f"Here {dur_source_words(ctx)}.",
            ),
        ),
        (
            "wakee_flips",
            say(
                "How often the task's wakee was another one than the last; halved once a second. "
                "Unknown unless a start state gives it or the task's birth was seen; “flips seen” "
                "counts the changes inside the window.",
            ),
        ),
        (
            "workload",
            say(
                "Tasks of one family of process names, or what ",
                Code("--workload NAME=GLOB"),
                " names. Listed apart: those with at least 5 % of the run time or of the wakeups.",
            ),
        ),
    ]
    section.reproduce.append(ctx.run("tasks"))


def _part(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _longest(ctx: Context, order: Any, ran: int) -> Any:
    if not ctx.has_time:
        return say(Strong(plural(len(order), "task")), " were seen.")
    if not len(order):
        return say("No task but the idle ones was seen.")
    top = int(order[0])
    runtime = int(column(ctx.tl.tasks, "runtime_ns")[top])
    return say(
        Strong(plural(ran, "task")),
        " ran ",
        Strong(duration(ctx.everything.runtime_ns)),
        " in all; the longest-running, ",
        Strong(ctx.names.full(top)),
        ", ran ",
        Strong(duration(runtime)),
        f" ({share(_part(runtime, ctx.span_ns))} of one CPU).",
    )


def _averages(ctx: Context, order: Any) -> Any:
    dur = column(ctx.tl.tasks, "dur_avg_ns")[order]
    known = dur[dur != NULL]
    flips = column(ctx.tl.tasks, "wakee_flips")[order]
    n_flips = int((flips != NULL).sum())
    if not ctx.has_time:
        return say("wakee_flips is known of ", Strong(plural(n_flips, "task")), ".")
    threshold = short_threshold_ns(ctx)
    told: tuple[str, ...]
    short = int(((known > 0) & (known < threshold)).sum())
    told = ("no task (fewer than 24 whole samples each)",)
    if len(known):
        told = (
            Strong(plural(len(known), "task")),
            " and short (below ",
            duration(threshold),
            ", the kernel's default slice / 8) for ",
            Strong(count(short)),
        )
    return say(
        "dur_avg is known of ",
        *told,
        "; wakee_flips is known of ",
        *((Strong(count(n_flips)),) if n_flips else ("none (no start state, no birth seen)",)),
        ". dur_avg comes ",
        dur_source_words(ctx),
        ".",
    )


def _longest_wait(ctx: Context, order: Any) -> Any:
    waits = column(ctx.tl.tasks, "delay_max_ns", -1)[order]
    if not ctx.has_time or not len(waits) or waits.max() <= 0:
        return None
    task = int(order[np.argmax(waits)])
    at = int(column(ctx.tl.tasks, "delay_max_at_ns")[task])
    cpu = _cpus_at(ctx, [task], [at])[0]
    return say(
        "The longest wait for a CPU, ",
        Strong(duration(int(waits.max()))),
        ", was that of ",
        Strong(ctx.names.full(task)),
        f" and ended on CPU {count(cpu)} at {moment(at)}.",
    )


def _cpus_at(ctx: Context, tasks: list[int], times: list[int]) -> list[int | None]:
    """CPU of the slice of each task that begins at the time."""
    task, start = ctx.slice_tasks, ctx.slice_starts
    cpu = column(ctx.tl.slices, "cpu", -1)
    out: list[int | None] = []
    for t, at in zip(tasks, times, strict=True):
        found = np.flatnonzero((start == at) & (task == t) & (start != NULL))
        out.append(int(cpu[found[0]]) if len(found) else None)
    return out


def _table(ctx: Context, id: str, caption: str, order: Any, limit: int) -> Table:
    shown = [int(t) for t in order[:limit]]
    records = ctx.tl.tasks.take(shown).to_pylist()
    at = [NULL if r["delay_max_at_ns"] is None else r["delay_max_at_ns"] for r in records]
    cpus = _cpus_at(ctx, shown, at)
    rows = []
    for task, r, cpu in zip(shown, records, cpus, strict=True):
        rows.append(
            [
                ctx.names.comm(task),
                ctx.names.pid(task),
                ctx.names.group(r["group"]),
                None if r["class"] is None else TaskClass(r["class"]).name.lower(),
                r["runtime_ns"],
                _part(r["runtime_ns"], ctx.span_ns),
                r["switches"],
                r["preempted"],
                r["wakeups"],
                round(r["delay_sum_ns"] / r["delays"]) if r["delays"] else None,
                r["delay_max_ns"],
                r["delay_max_at_ns"],
                cpu,
                r["dur_avg_ns"],
                r["wakee_flips"],
                r["flips_seen"],
            ]
        )
    return Table(id, caption, COLUMNS, rows, more=max(0, len(order) - limit))


def _workloads(ctx: Context) -> Table:
    tasks = ctx.tl.tasks
    cols = {
        n: column(tasks, n)
        for n in ("runtime_ns", "wakeups", "delays", "delay_sum_ns", "dur_avg_ns")
    }
    longest = column(tasks, "delay_max_ns", -1)
    at = column(tasks, "delay_max_at_ns")

    def row(scope: Scope) -> list[Any]:
        mine = np.flatnonzero(scope.tasks)
        delays = int(cols["delays"][mine].sum())
        dur = cols["dur_avg_ns"][mine]
        dur = np.sort(dur[dur != NULL])
        worst = int(mine[np.argmax(longest[mine])])
        has = longest[worst] >= 0
        return [
            scope.label,
            len(mine),
            scope.runtime_ns,
            _part(scope.runtime_ns, ctx.everything.runtime_ns),
            scope.wakeups,
            _part(scope.wakeups, ctx.everything.wakeups),
            round(int(cols["delay_sum_ns"][mine].sum()) / delays) if delays else None,
            int(longest[worst]) if has else None,
            ctx.names.full(worst) if has else None,
            int(at[worst]) if has else None,
            int(dur[(len(dur) - 1) // 2]) if len(dur) else None,
        ]

    return Table(
        "workloads",
        "Workloads",
        [
            Column("workload", "text", "workload"),
            Column("tasks", "int", "tasks"),
            Column("runtime_ns", "ns", "runtime"),
            Column("runtime_share", "share", "of all run time"),
            Column("wakeups", "int", "woken"),
            Column("wakeups_share", "share", "of all wakeups"),
            Column("delay_avg_ns", "ns", "wait, mean"),
            Column("delay_max_ns", "ns", "wait, longest"),
            Column("delay_max_task", "text", "whose"),
            Column("delay_max_at_ns", "ts", "ended at"),
            Column("dur_avg_median_ns", "ns", "dur_avg, median"),
        ],
        [row(scope) for scope in ctx.workloads],
        note=f"{plural(ctx.other_workloads, 'smaller workload')} not listed."
        if ctx.other_workloads > 0
        else "",
    )
