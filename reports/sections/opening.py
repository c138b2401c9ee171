"""The five sentences that a tired engineer reads."""

from __future__ import annotations

from typing import Any

from traceana.reports.context import NO_TIME, Context, missing_text
from traceana.reports.gaps import gap_arrays
from traceana.reports.idle_share import idle_share
from traceana.reports.model import Strong, Text, say
from traceana.reports.sections.capture import lost_words, machine
from traceana.reports.sections.idle import waited_words, where_words
from traceana.reports.sections.latency import delay_words, longest_words
from traceana.reports.sections.race import opening_words
from traceana.reports.sections.rules import rule_words
from traceana.reports.stats import spread
from traceana.reports.words import clean, count, duration, interval, plural, share, signed

__all__ = ["sentences"]


def sentences(ctx: Context) -> list[Text]:
    """Machine and losses; idle time; waits; the race; rules. Fewer where events are missing."""
    out = [_capture(ctx)]
    if ctx.timeline is None:
        return [*out, ctx.why["timeline"]]
    if not ctx.has_time:
        return [*out, NO_TIME]
    return [*out, _idle(ctx), _waits(ctx), opening_words(ctx), _rules(ctx)]


def _capture(ctx: Context) -> Text:
    cap = ctx.cap
    kernel = f"Linux {clean(cap.kernel)}" if cap.kernel else "kernel not recorded"
    parts: list[object] = [Strong(machine(ctx)), ", ", kernel, ", "]
    if ctx.has_time:
        parts += [Strong(duration(ctx.span_ns)), ", "]
    parts += [Strong(f"{count(sum(ctx.counts.values()))} events"), ", ", Strong(lost_words(ctx))]
    if cap.damaged:
        parts.append("; the file is cut or damaged, this is what could be read")
    return say(*parts, ".")


def _idle(ctx: Context) -> Text:
    part = idle_share(ctx)
    if part.share is None:
        return say("How idle the CPUs were is not known.")
    gaps = gap_arrays(ctx)
    out: list[object] = [
        "The CPUs were idle ",
        Strong(share(part.share)),
        f" of {part.of_words()}",
        *part.bounds_words(),
    ]
    if gaps.idle_ns:
        out += [", and ", *waited_words(ctx, gaps)]
        worst = int(gaps.stuck_ns.argmax())
        if gaps.stuck_ns[worst]:
            out += [
                "; the most in one gap, ",
                Strong(duration(int(gaps.stuck_ns[worst]))),
                ", on ",
                *where_words(ctx, gaps, worst),
            ]
    return say(*out, ".")


def _waits(ctx: Context) -> Text:
    for name, words in (
        ("queue_delay_ns", "for a CPU (queue delay)"),
        ("wakeup_latency_ns", "(wakeup latency)"),
    ):
        if name == "queue_delay_ns" and not ctx.recorded("sched_wakeup"):
            continue
        s = spread(ctx.wakes[name])
        if s.n:
            return say(
                Strong(plural(s.n, "wakeup")),
                " waited ",
                *delay_words(s),
                f" {words}; ",
                *longest_words(ctx, s),
                ".",
            )
    return missing_text("the time that wakees waited", ("sched_waking", "sched_wakeup"))


def _rules(ctx: Context) -> Text:
    result = ctx.whatif
    if result is None:
        return ctx.why.get("whatif", say("No rule was asked."))
    told: list[object] = []
    for r in result.rules:
        if r.rule in ("recorded", "prev_cpu", "this_cpu") and len(result.rules) > 1:
            continue
        if not r.decisions:
            continue
        told += [*(("; ",) if told else ()), *_rule(r)]
    if not told:
        return say("No wakeup is complete enough to be decided again by another rule.")
    return say(Strong("Estimated, open loop: "), *told, ".")


def _rule(r: Any) -> Text:
    if not r.moved:
        return say(
            Strong(rule_words(r.rule)), f" would have moved none of {plural(r.decisions, 'wakeup')}"
        )
    out: list[object] = [
        Strong(rule_words(r.rule)),
        " would have moved ",
        Strong(share(r.moved / r.decisions)),
        f" of {plural(r.decisions, 'wakeup')}",
    ]
    if r.moved_possible:
        out.append(
            " (all of them hanging on what no event tells)"
            if r.moved_possible == r.moved
            else f" ({share(r.moved_possible / r.moved)} of them hanging on what no event tells)"
        )
    on = r.on_waker_cpu
    if on.estimated is not None:
        out += [
            ", kept ",
            Strong(share(on.estimated)),
            f" on the waker's CPU instead of {share(on.recorded)}",
        ]
    f = r.queue_delay_ns.get("p99")
    if f is not None and f.delta is not None:
        out += [
            " and changed the p99 queue delay by ",
            Strong(signed(f.delta)),
            " ",
            interval(*(f.delta_interval or (None, None))),
        ]
    return say(*out)
