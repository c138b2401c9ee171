"""Where idle time goes: the bins of each CPU, the work-conservation gap, what a pull could do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceana._idle_bins_words import LABELS, MEANINGS, ORDER
from traceana.reports.context import Context, column, missing_text
from traceana.reports.figures_idle_bins import GROUPS, bars
from traceana.reports.model import Code, Column, Section, Strong, Table, Text, say
from traceana.reports.words import duration, plural, share
from traceana.schema import IdleBin

if TYPE_CHECKING:
    from traceana.idle_bins import IdleAccount

__all__ = ["account_of", "fill"]

_STUCK = frozenset(
    (IdleBin.PINNED, IdleBin.THROTTLED, IdleBin.PLACED, IdleBin.MIGRATION_COST,
     IdleBin.NEWIDLE_REFUSED, IdleBin.UNKNOWN, IdleBin.OTHER_LLC)
)  # fmt: skip
#: CPUs and LLCs in a table.
_ROWS = 64


def account_of(ctx: Context) -> IdleAccount | None:
    """The account of the capture; without sched_waking no booking is known."""
    found = ctx.race
    if found is not None:
        return found.idle
    if ctx.timeline is None or not ctx.recorded("sched_wakeup"):
        return None
    from traceana import schema
    from traceana.idle_bins import account

    return account(ctx.tl, schema.empty("collisions"), topology=ctx.cap.topology)


def fill(ctx: Context, section: Section) -> None:
    """Sentences, the bars per CPU, the bins, the LLCs, the gaps."""
    a = account_of(ctx)
    if a is None or not ctx.recorded("sched_wakeup"):
        section.missing.append(missing_text("why a CPU was idle", ("sched_wakeup",)))
        return
    if not a.idle_ns:
        section.sentences.append(say("No CPU is known to have been idle."))
        return
    if ctx.race is None:
        section.missing.append(missing_text("what the race cost", ("sched_waking",)))
    section.sentences += [_stuck_words(a), _rest_words(a), *_gap_words(a), _pull_words(a)]
    if a.throttling is not None:
        section.sentences.append(
            say(Strong("Warning: "), f"{a.throttling.warning}. ", _throttled_words(a))
        )
    section.sentences += [say(f"{n[:1].upper()}{n[1:]}.") for n in (*a.missing, *a.assumptions)]
    section.figures.append(bars(ctx, a))
    section.tables += [_bins(a), _per_cpu(ctx, a), _per_llc(a), _lengths(a)]
    section.definitions += _definitions()
    section.reproduce.append(ctx.run("race"))


def _throttled_words(a: IdleAccount) -> str:
    ns = a.bins_ns[IdleBin.THROTTLED]
    return f"CPUs idled {duration(ns)} while its tasks were held back."


def _stuck_words(a: IdleAccount) -> Text:
    """What idle time somebody who waited behind another could have used, and by reason."""
    bins, idle = a.bins_ns, a.idle_ns
    race = bins[IdleBin.DOUBLE_BOOKING] + bins[IdleBin.LATE_BOOKING]
    other = sum(bins[b] for b in _STUCK)
    out: list[object] = [
        "Of ",
        Strong(duration(idle)),
        " of idle time a task that was stuck elsewhere could have used ",
        Strong(share((race + other) / idle)),
    ]
    if race:
        out += [
            ": victims of double bookings ",
            Strong(share(bins[IdleBin.DOUBLE_BOOKING] / idle)),
            f" (at least {share(a.attributable_lo_ns / idle)})",
        ]
        if bins[IdleBin.LATE_BOOKING]:
            out.append(f", of late bookings {share(bins[IdleBin.LATE_BOOKING] / idle)}")
    most = sorted((b for b in _STUCK if bins[b]), key=lambda b: -bins[b])[:2]
    if most:
        names = " and ".join(f"“{LABELS[b]}” {share(bins[b] / idle)}" for b in most)
        out.append(f"{'; other tasks were' if race else ': they were'} most of all {names}")
    return say(*out, ".")


def _rest_words(a: IdleAccount) -> Text:
    bins, idle = a.bins_ns, a.idle_ns
    own = bins[IdleBin.CHAIN] + bins[IdleBin.IO] + bins[IdleBin.TIMER]
    return say(
        Strong(share(bins[IdleBin.ON_ITS_WAY] / idle)),
        " was CPUs waking up for a task of their own; for ",
        share((bins[IdleBin.NOBODY] + bins[IdleBin.SURPLUS]) / idle),
        " there was nobody left to run",
        *((f", and {share(own / idle)} slept for a partner, I/O or an interrupt",) if own else ()),
        ".",
    )


def _gap_words(a: IdleAccount) -> list[Text]:
    """The work-conservation gap of the LLC where it is widest."""
    if not a.llcs or a.span_ns <= 0:
        return []
    worst = max(a.llcs, key=lambda x: x.both_ns)
    if not worst.both_ns:
        return [say("No CPU idled while a task was stuck in its LLC.")]
    where = f" in the LLC of CPU {worst.llc}" if len(a.llcs) > 1 else ""
    return [
        say(
            "During ",
            Strong(share(worst.both_ns / a.span_ns)),
            f" of the time CPUs idled{where} while tasks were stuck there; on average "
            f"{worst.idle_cpus:.2f} of {worst.cpus} CPUs were idle and {worst.stuck:.2f} tasks "
            f"stuck, {worst.gap_ns / a.span_ns:.2f} of them with a CPU to go to.",
        )
    ]


def _pull_words(a: IdleAccount) -> Text:
    short = ", ".join(
        f"{share(n / a.gaps)} shorter than {duration(limit)}" for limit, n in a.shorter.items()
    )
    out = [Strong(plural(a.gaps, "idle gap")), f", {short}. "]
    if a.pullable:
        out += [
            "In ",
            Strong(share(a.pullable / a.gaps)),
            " of them somebody who may run there was stuck in the LLC when the CPU went idle, so a "
            "newidle pull could have filled them; in ",
            Strong(share(a.pullable_hot / a.pullable)),
            f" of those every such task had run within {duration(a.migration_cost_ns)} where it "
            "stood, and was hot.",
        ]
    else:
        out.append("None could have been filled by a newidle pull.")
    return say(*out)


def _bins(a: IdleAccount) -> Table:
    bins = a.bins_ns
    time = max(a.span_ns * a.cpus, 1)
    return Table(
        "idle-bins",
        "Idle time by what it was for",
        [
            Column("bin", "text", "bin"),
            Column("meaning", "text", "the CPU was idle, and"),
            Column("idle_ns", "ns", "idle time"),
            Column("idle_share", "share", "of idle time"),
            Column("time_share", "share", "of CPU time"),
        ],
        [
            [LABELS[b], MEANINGS[b], bins[b], bins[b] / a.idle_ns, bins[b] / time]
            for b in ORDER
            if bins[b]
        ],
        note="Bins are tried in this order, and each nanosecond of each CPU is in one.",
    )


def _per_cpu(ctx: Context, a: IdleAccount) -> Table:
    table = a.table
    ns: dict[tuple[int, int], int] = {}
    for c, b, v in zip(
        column(table, "cpu").tolist(),
        column(table, "bin").tolist(),
        column(table, "ns").tolist(),
        strict=True,
    ):
        ns[c, b] = v
    bins = a.bins_ns
    used = [g for g in GROUPS if any(bins[b] for b in g.bins)]
    rows = []
    for cpu in ctx.cpu_order:
        mine = {b: ns.get((cpu, int(b)), 0) for b in IdleBin}
        idle = sum(mine.values())
        if not idle:
            continue
        groups = [sum(mine[b] for b in g.bins) / idle for g in used]
        rows.append([cpu, idle, *groups])
    return Table(
        "idle-bins-cpus",
        "The same per CPU, shares of its idle time",
        [
            Column("cpu", "id", "CPU"),
            Column("idle_ns", "ns", "idle time"),
            *(Column(f"{g.name}_share", "share", g.label) for g in used),
        ],
        rows[:_ROWS],
        more=max(0, len(rows) - _ROWS),
    )


def _per_llc(a: IdleAccount) -> Table:
    span = max(a.span_ns, 1)
    return Table(
        "idle-bins-llcs",
        "Idle CPUs and waiting tasks per LLC, averages over time",
        [
            Column("llc", "id", "LLC"),
            Column("cpus", "int", "CPUs"),
            Column("idle_cpus", "float", "idle CPUs"),
            Column("waiting", "float", "waiting tasks"),
            Column("stuck", "float", "of them stuck"),
            Column("both_share", "share", "time with idle CPUs and stuck tasks"),
            Column("gap", "float", "CPUs that they could use"),
        ],
        [
            [
                x.llc,
                x.cpus,
                x.idle_cpus,
                x.waiting,
                x.stuck,
                x.both_ns / span,
                x.gap_ns / span,
            ]
            for x in a.llcs[:_ROWS]
        ],
        more=max(0, len(a.llcs) - _ROWS),
    )


def _lengths(a: IdleAccount) -> Table:
    rows: list[list[object]] = [
        [f"shorter than {duration(limit)}", n, n / a.gaps] for limit, n in a.shorter.items()
    ]
    rows += [
        ["a newidle pull could have filled them", a.pullable, a.pullable / a.gaps],
        ["… but every such task was hot", a.pullable_hot, a.pullable_hot / a.gaps],
    ]
    return Table(
        "idle-bins-gaps",
        "Idle gaps, and what a newidle pull could have done",
        [
            Column("what", "text", "gaps"),
            Column("n", "int", "number"),
            Column("share", "share", "of all"),
        ],
        rows,
    )


def _definitions() -> list[tuple[str, Text]]:
    return [
        (
            "stuck",
            say(
                "A task is stuck while it is runnable and its CPU runs another one, or idles "
                "although the task stands in its queue. One whose CPU is waking up for it is on "
                "its way, not stuck.",
            ),
        ),
        (
            "one task, one CPU",
            say(
                "Each stuck task stands for one idle CPU at a time: the one whose last task sleeps "
                "until the stuck one wakes it, else any of its LLC, else one of another. So what "
                "victims of double bookings stand for is the upper bound of attributable idle "
                "time, and never more CPUs than there are tasks.",
            ),
        ),
        (
            "hot",
            say(
                "Ran on the CPU where it stands within ",
                Code("sched_migration_cost"),
                ", has not been moved since, and that CPU is no SMT sibling of the idle one "
                "(task_hot()). Whether the kernel did try to pull is in no event.",
            ),
        ),
        (
            "throttled",
            say(
                "Tasks of one process that stay runnable while their CPU idles, and are let go at "
                "the beat of a cpu.max period (100 ms by default).",
            ),
        ),
    ]
