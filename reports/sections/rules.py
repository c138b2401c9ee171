"""What other placement rules would have done with each wakeup: estimated, open loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from traceana import rules as library
from traceana.errors import UsageError
from traceana.reports.context import NULL, Context, Scope
from traceana.reports.figures_rules import idle_per_cpu, latency_changes
from traceana.reports.model import Column, Section, Strong, Table, Text, say
from traceana.reports.stats import joined, spread
from traceana.reports.words import count, duration, interval, plural, share, signed

if TYPE_CHECKING:
    from traceana.fidelity import Fidelity
    from traceana.whatif import RuleResult

__all__ = ["QUANTILES", "fill", "rule_words"]

QUANTILES = ("p50", "p90", "p99")
_LATENCIES = (("queue_delay_ns", "queue delay"), ("wakeup_latency_ns", "wakeup latency"))

_NAMES = {
    "sis_short_v5": "SIS_SHORT v5",
    "abel": "Abel's rule",
    "prev_cpu": "prev_cpu",
    "this_cpu": "this_cpu",
    "recorded": "recorded",
}


def rule_words(name: str) -> str:
    """A rule's name as people say it."""
    return _NAMES.get(name, name)


def fill(ctx: Context, section: Section) -> None:
    """A sentence per rule, figures, what moves and why, latencies, idle time, workloads."""
    result = ctx.whatif
    if result is None:
        section.missing.append(ctx.why.get("whatif", say("No rule was asked.")))
        return
    if not result.rules or not result.rules[0].decisions:
        section.sentences.append(
            say("No wakeup in which a CPU was selected is complete enough to be decided again.")
        )
        return
    section.sentences.append(
        say(
            *ctx.stretch,
            Strong("Estimated, open loop: "),
            f"each of {plural(result.rules[0].decisions, 'decided wakeup')} is decided again "
            "alone, everything else stays as recorded. What follows from a move is not seen.",
        )
    )
    if result.fidelity is not None and result.fidelity.total.n:
        section.sentences.append(_fidelity(result.fidelity))
        section.tables.append(_fidelity_steps(result.fidelity))
    for rule in result.rules:
        section.sentences.append(_finding(rule))
    moving = [r for r in result.rules if r.moved]
    if moving:
        section.figures.append(latency_changes(moving))
        if any(r.idle_delta_ns for r in moving):
            section.figures.append(idle_per_cpu(ctx, moving))
    section.tables += [_moves(result.rules), _latencies(result.rules)]
    if moving:
        section.tables.append(_moved_only(moving))
    reasons = _reasons(result.rules)
    if reasons.rows:
        section.tables.append(reasons)
    blocked = _blocked(result.rules)
    if blocked.rows:
        section.tables.append(blocked)
    for i, scope in enumerate(ctx.workloads):
        section.parts.append(_part(ctx, result.rules, scope, f"rules-{i}"))
    _explain(section, result)
    section.reproduce.append(ctx.run("whatif", *(w for r in ctx.rules for w in ("--rule", r))))
    section.reproduce += [
        f"traceana rules {r.rule}" for r in result.rules if r.rule in library.names()
    ]


def _fidelity(f: Fidelity) -> Text:
    t = f.total
    out: list[object] = [
        "The kernel's own path, on the state rebuilt from events, comes to the recorded CPU for ",
        Strong(share(t.exact / t.n)),
        f" of {plural(t.n, 'decision')} and can come to it for ",
        Strong(share((t.exact + t.possible) / t.n)),
        " over the whole range of what no event tells (of ",
        Strong(f"{f.mean_set_size or 0:.2f}"),
        " CPUs on average)",
    ]
    if f.inferred.share is not None:
        out.append(
            f"; {share(f.inferred.share)} in the second half of the window, the first being used "
            "to learn"
        )
    if f.saturated:
        out.append(". Hardly any decision saw an idle CPU, so this proves nothing")
    return say(*out, ".")


def _fidelity_steps(f: Fidelity) -> Table:
    rows = [
        [
            step.lower(),
            t.n,
            t.exact / t.n if t.n else None,
            (t.exact + t.possible) / t.n if t.n else None,
            t.contradicted,
        ]
        for step, t in sorted(f.by_step.items(), key=lambda item: -item[1].n)
    ]
    return Table(
        "fidelity-steps",
        "How well the kernel's own path explains the recording, by deciding step",
        [
            Column("step", "text", "step"),
            Column("decisions", "int", "decisions"),
            Column("exact_share", "share", "exact"),
            Column("possible_share", "share", "exact or possible"),
            Column("contradicted", "int", "contradicted"),
        ],
        rows,
    )


def _explain(section: Section, result: Any) -> None:
    section.sentences += [
        say("Assumed: ", text[:1].lower() + text[1:].rstrip("."), ".")
        for text in result.assumptions
    ]
    if result.left_out:
        left = joined(
            f"{plural(n, 'wakeup')} of kind {kind.replace('_', ' ')}"
            for kind, n in result.left_out.items()
        )
        section.sentences.append(
            say("Left out, as no CPU was selected or too little is known: ", left, ".")
        )
    section.definitions += [
        (
            "moved",
            say(
                "The rule's own condition fires and leads to another CPU than the recorded one. "
                "Where it does not fire, the wakeup stays where it was recorded.",
            ),
        ),
        (
            "estimated latency",
            say(
                "A moved wakeup waits for the tasks that were recorded as runnable on the other "
                "CPU, with their recorded run times; preemption by the wakee is not modelled.",
            ),
        ),
        (
            "idle change",
            say(
                "A moved burst leaves the CPU on which it ran and fills the other. Over all CPUs "
                "it adds up to 0 by construction; only a closed loop can tell more.",
            ),
        ),
        (
            "interval",
            say(
                "95 %, block bootstrap over time (50 blocks drawn with replacement): how much the "
                "figure depends on which moments were recorded, not how good the model is.",
            ),
        ),
        (
            "victims relieved, created",
            say("Candidate double bookings that a move would undo, and those that it would make."),
        ),
    ]


def _finding(r: RuleResult) -> Text:
    name = Strong(rule_words(r.rule))
    if not r.moved:
        fired = sum(n for reason, n in r.reasons.items() if reason not in ("recorded", "mainline"))
        return say(
            name,
            f" would have moved none of {plural(r.decisions, 'wakeup')}",
            f" (its condition fires for {count(fired)})"
            if fired
            else " (its condition never fires)",
            ".",
        )
    out: list[object] = [
        name,
        " would have moved ",
        Strong(plural(r.moved, "wakeup")),
        " (",
        Strong(share(r.moved / r.decisions)),
        f", {_certainty(r.moved_possible, r.moved)})",
    ]
    on = r.on_waker_cpu
    if on.estimated is not None:
        out += [
            " and left ",
            Strong(share(on.estimated)),
            f" on the waker's CPU instead of {share(on.recorded)}",
        ]
    for q in ("p50", "p99"):
        f = r.queue_delay_ns.get(q)
        if f is not None and f.delta is not None:
            out += [
                f"; {q} of the queue delay {duration(f.recorded)} → ",
                Strong(duration(f.estimated)),
                f" ({signed(f.delta)} {interval(*(f.delta_interval or (None, None)))})",
            ]
    worse = [
        f"{words} {q}"
        for key, words in _LATENCIES
        for q, f in getattr(r, key).items()
        if f.delta_interval is not None and f.delta_interval[0] > 0
    ]
    if worse:
        out += [". ", Strong("It loses"), f" in {joined(worse)}"]
    elif all(
        f.delta_interval and f.delta_interval[0] <= 0 <= f.delta_interval[1]
        for f in r.queue_delay_ns.values()
    ):
        out.append(". No difference in the queue delay is seen: each interval contains 0")
    return say(*out, ".")


def _certainty(possible: int, moved: int) -> str:
    if possible in (0, moved):
        return "all of them uncertain" if possible else "all of them certain"
    return f"{share(possible / moved)} of them uncertain"


def _moves(rules: list[RuleResult]) -> Table:
    rows = []
    for r in rules:
        on = r.on_waker_cpu
        lo, hi = on.interval or (None, None)
        rows.append(
            [
                r.rule,
                r.decisions,
                r.moved,
                r.moved / r.decisions if r.decisions else None,
                r.moved_possible,
                on.recorded,
                on.estimated,
                lo,
                hi,
                r.victims_relieved,
                r.victims_created,
                r.idle_delta_total.delta,
                max((abs(v) for v in r.idle_delta_ns.values()), default=0),
            ]
        )
    return Table(
        "moves",
        "What would move (estimated, open loop)",
        [
            Column("rule", "text", "rule"),
            Column("decisions", "int", "decided"),
            Column("moved", "int", "moved"),
            Column("moved_share", "share", "share"),
            Column("moved_possible", "int", "uncertain"),
            Column("on_waker_cpu_recorded", "share", "on waker's CPU, recorded"),
            Column("on_waker_cpu_estimated", "share", "estimated"),
            Column("on_waker_cpu_lo", "share", "from"),
            Column("on_waker_cpu_hi", "share", "to"),
            Column("victims_relieved", "int", "victims relieved"),
            Column("victims_created", "int", "created"),
            Column("idle_delta_ns", "ns", "idle change, all CPUs"),
            Column("idle_delta_max_ns", "ns", "largest change of one CPU"),
        ],
        rows,
    )


_COMPARED = (
    Column("recorded_ns", "ns", "recorded"),
    Column("estimated_ns", "ns", "estimated"),
    Column("delta_ns", "ns", "change"),
    Column("delta_lo_ns", "ns", "from"),
    Column("delta_hi_ns", "ns", "to"),
)


def _compared(f: Any) -> list[Any]:
    lo, hi = f.delta_interval or (None, None)
    return [f.recorded, f.estimated, f.delta, lo, hi]


def _latencies(rules: list[RuleResult]) -> Table:
    rows = [
        [r.rule, words, q, *_compared(figures[q])]
        for r in rules
        for key, words in _LATENCIES
        for figures in (getattr(r, key),)
        for q in QUANTILES
        if q in figures
    ]
    return Table(
        "rule-latencies",
        "Latencies of all wakeups (estimated, open loop)",
        [
            Column("rule", "text", "rule"),
            Column("latency", "text", "latency"),
            Column("q", "text", "value"),
            *_COMPARED,
        ],
        rows,
        note="Change with its 95 % interval; n as in the table above.",
    )


def _moved_only(rules: list[RuleResult]) -> Table:
    rows = [
        [r.rule, r.moved - r.unestimated, q, *_compared(f)]
        for r in rules
        for q, f in r.moved_latency_ns.items()
    ]
    return Table(
        "moved-latencies",
        "Wakeup latency of the moved wakeups (estimated, open loop)",
        [
            Column("rule", "text", "rule"),
            Column("n", "int", "n"),
            Column("q", "text", "value"),
            *_COMPARED,
        ],
        rows,
    )


def _reasons(rules: list[RuleResult]) -> Table:
    rows = [
        [r.rule, reason.replace("_", " "), n, n / r.decisions if r.decisions else None]
        for r in rules
        for reason, n in sorted(r.reasons.items(), key=lambda item: -item[1])
        if n and len(r.reasons) > 1
    ]
    return Table(
        "reasons",
        "Why each wakeup went where the rule puts it",
        [
            Column("rule", "text", "rule"),
            Column("reason", "text", "reason"),
            Column("wakeups", "int", "wakeups"),
            Column("share", "share", "share"),
        ],
        rows,
        note="“recorded”: the rule's condition does not fire, so the wakeup stays where it was; "
        "“… same”: it fires and changes nothing.",
    )


def _blocked(rules: list[RuleResult]) -> Table:
    rows = []
    for r in rules:
        try:
            conditions = library.describe(r.rule).conditions
        except UsageError:
            conditions = {}
        for name, n in sorted(r.blocked_alone.items(), key=lambda item: -item[1])[:8]:
            place = name.partition(".")[0].upper() if "." in name else ""
            rows.append(
                [
                    r.rule,
                    place,
                    conditions.get(name, name),
                    n,
                    n / r.decisions if r.decisions else None,
                ]
            )
    return Table(
        "blocked",
        "Which condition alone kept a wakeup from firing",
        [
            Column("rule", "text", "rule"),
            Column("place", "text", "place"),
            Column("condition", "text", "the only condition that did not hold"),
            Column("wakeups", "int", "wakeups"),
            Column("share", "share", "share"),
        ],
        rows,
    )


def _part(ctx: Context, rules: list[RuleResult], scope: Scope, id: str) -> Section:
    part = Section(id, scope.label)
    w = ctx.studied
    rows: list[list[Any]] = []
    for r in rules:
        mine = scope.tasks[w["wakee"][r.rows]]
        n, moved = int(mine.sum()), mine & r.moved_mask
        if not n:
            continue
        this = w["this_cpu"][r.rows]
        of_moved = scope.tasks[w["wakee"][r.rows[r.moved_mask]]]
        estimated = np.asarray(r.estimate.latency)[of_moved]
        recorded = w["wakeup_latency_ns"][r.rows[moved]]
        both = (estimated != NULL) & (recorded != NULL)
        a, b = spread(recorded[both]), spread(estimated[both])
        change = int(estimated[both].sum()) - int(recorded[both].sum()) if both.any() else None
        rows.append(
            [
                r.rule,
                n,
                int(moved.sum()),
                float(moved.sum() / n),
                float((w["placed_cpu"][r.rows][mine] == this[mine]).mean()),
                float((r.cpu == this)[mine].mean()),
                a.p50,
                b.p50,
                a.p99,
                b.p99,
                change,
            ]
        )
    if not rows:
        part.sentences.append(say("None of its wakeups was decided."))
        return part
    most = max(rows, key=lambda row: row[2])
    part.sentences.append(
        say(
            f"Of its {plural(most[1], 'decided wakeup')} ",
            Strong(rule_words(most[0])),
            " would have moved the most, ",
            Strong(count(most[2])),
            f" ({share(most[3])}).",
        )
        if most[2]
        else say(f"No rule would have moved any of its {plural(most[1], 'decided wakeup')}.")
    )
    part.tables.append(
        Table(
            f"moves-{id}",
            f"Wakees of {scope.label} (estimated, open loop)",
            [
                Column("rule", "text", "rule"),
                Column("decisions", "int", "decided"),
                Column("moved", "int", "moved"),
                Column("moved_share", "share", "share"),
                Column("on_waker_cpu_recorded", "share", "on waker's CPU, recorded"),
                Column("on_waker_cpu_estimated", "share", "estimated"),
                Column("moved_p50_recorded_ns", "ns", "moved: latency p50, recorded"),
                Column("moved_p50_estimated_ns", "ns", "estimated"),
                Column("moved_p99_recorded_ns", "ns", "p99, recorded"),
                Column("moved_p99_estimated_ns", "ns", "estimated"),
                Column("moved_sum_delta_ns", "ns", "sum, change"),
            ],
            rows,
        )
    )
    return part
