"""A race in sentences; what carries one stands between two asterisks on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceana._race_verdict import CANNOT_SAY, NOT_SUPPORTED, SUPPORTED, VERDICTS, percent
from traceana.output import format_ns

if TYPE_CHECKING:
    from traceana._race_blocks import Range
    from traceana.race import Race

__all__ = ["CLASSES", "bare", "chance_words", "cost_words", "notes", "probe_words", "verdict_words"]

#: Class -> what it is, for the rows of a table.
CLASSES = {
    "strict_certain": "strict, certain",
    "strict": "strict, possible",
    "late": "late",
    "explained": "explained otherwise",
}


def bare(sentence: str) -> str:
    """The sentence without marks."""
    return sentence.replace("**", "")


def span(low: Range, high: Range) -> str:
    """From what is certain to what is possible, and the outer ends of their intervals."""
    a, b = percent(low.value), percent(high.value)
    text = f"**{a}**" if a == b else f"**{a} to {b}**"
    if low.low is not None and high.high is not None:
        text += f" [{percent(low.low)} … {percent(high.high)}]"
    return text


def verdict_words(r: Race) -> list[str]:
    """The verdict in two sentences, with figures and 95 % intervals."""
    c = r.counts
    head = f"**The ttwu race: {VERDICTS[r.verdict]}.**"
    if not c["decided"]:
        return [head, *(f"{m[:1].upper()}{m[1:]}." for m in r.judgement.missing)]
    if not c["looked_idle"]:
        first = f"{head} None of {c['decided']:,} decided wakeups found its CPU idle."
        return [first, *_second(r)]
    low, high = c["strict_certain"], r.strict
    counts = f"**{high:,}**" if low == high else f"**{low:,} to {high:,}**"
    first = (
        f"{head} {counts} of {c['looked_idle']:,} wakeups that found their CPU idle "
        f"({span(r.certain, r.possible)}) chose one that another waker had chosen just before, "
        "unseen by them."
    )
    return [first, *_second(r)]


def _second(r: Race) -> list[str]:
    cost = cost_words(r)
    if r.verdict == SUPPORTED:
        return [f"{cost} {_PLACE}"]
    if r.verdict == NOT_SUPPORTED:
        why = "; ".join(r.judgement.reasons)
        return [f"{why[:1].upper()}{why[1:]}. {cost} {_PLACE}"]
    return [f"{cost} {_PLACE}", f"Not decided: {'; '.join(r.judgement.missing)}."]


#: A verdict is about one machine.
_PLACE = "This holds for the machine that was traced."


def cost_words(r: Race) -> str:
    """What it cost: idle time, and delay of the victims."""
    if r.attributable_ns[0] is None:
        return "How much idle time it explains is not known."
    low, high = (format_ns(ns) for ns in r.attributable_ns)
    text = (
        f"It explains {span(r.idle_low, r.idle_high)} of the idle time of all CPUs "
        f"({low if low == high else f'{low} to {high}'} of {format_ns(r.idle_ns)})"
    )
    if r.delay.n:
        text += (
            f"; {r.delay.n:,} victims waited **{format_ns(r.delay.p50_ns)}** (p50) to "
            f"**{format_ns(r.delay.p99_ns)}** (p99) longer"
        )
    return text + "."


def chance_words(r: Race) -> list[str]:
    """Against the null models."""
    n = r.nulls
    if n is None:
        return []
    asked = (
        f"{n.asked:,} of {n.decisions:,} wakeups"
        if n.asked < n.decisions
        else f"{n.asked:,} wakeups"
    )
    out = []
    for range_, null, model in (
        (r.choice, n.choice, "if each waker had chosen blindly among the CPUs that looked idle"),
        (r.timing, n.timing, "had the same choices been made at other times"),
    ):
        seen, expected = int(null.observed.sum()), float(null.expected.sum())
        if range_.value is None:
            out.append(f"{seen:,} met; none would {model} (asked of {asked}).")
            continue
        ends = f" [{range_.low:.2f} … {range_.high:.2f}]" if range_.high is not None else ""
        out.append(
            f"**{range_.value:.2f}**{ends} times as many met as would {model}: {seen:,} against "
            f"{expected:,.0f} (asked of {asked})."
        )
    return out


def probe_words(r: Race) -> str:
    """What tracing itself did to it."""
    p = r.probe
    rate = "" if p.wakeups_per_s is None else f", at {p.wakeups_per_s:,.0f} wakeups a second"
    text = f"These are counts of the traced machine{rate}"
    if p.event_cost_ns is None:
        return text + "; what recording an event cost it is not known."
    text += f"; recording an event cost it up to **{format_ns(p.event_cost_ns)}**"
    if p.cpu_share is not None:
        text += f", **{percent(p.cpu_share)}** of the time of all CPUs"
    if r.strict:
        text += (
            f". Of the {r.strict:,} strict ones, {r.counts['untraced']:,} would overlap with their "
            f"windows shortened by that ({percent(r.untraced.value)} of the wakeups that found "
            "their CPU idle; an estimate: what else would have come otherwise is not followed)"
        )
    return text + "."


def notes(r: Race) -> list[str]:
    """What was assumed, what is lost, what kind of machine it was."""
    out = []
    if r.facts.virtual:
        out.append("a virtual machine, by its own words: costs of caches and IPIs may be its own")
    if r.facts.near_loss:
        out.append(
            f"events were lost around {r.facts.near_loss:,} double bookings: none is certain"
        )
    out += [f"assumed: {text}" for text in r.assumptions]
    if r.verdict != CANNOT_SAY:
        out += [f"missing: {text}" for text in r.judgement.missing]
    return out
