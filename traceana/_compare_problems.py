"""What makes two captures hard to compare: other machines, kernels, windows, events, losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from traceana.output import escape, format_ns

if TYPE_CHECKING:
    from traceana._compare_take import Taken

__all__ = ["Problem", "problems"]

#: Windows, and costs of an event, that differ by more than this factor are told.
_FACTOR = 1.5
#: Windows shorter than this do not show how a machine runs.
_BRIEF_NS = 5_000_000


@dataclass(frozen=True)
class Problem:
    """One fact that differs. ``grave``: figures of the two sides mean different things."""

    fact: str
    a: Any
    b: Any
    grave: bool
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"fact": self.fact, "a": self.a, "b": self.b, "grave": self.grave, "text": self.text}


def _values(side: Sequence[Taken], fact: str) -> list[Any]:
    seen: list[Any] = []
    for taken in side:
        value = taken.facts[fact]
        if fact == "form":  # its version says nothing of what recording costs
            value = value.partition(" v")[0]
        if value not in seen:
            seen.append(value)
    return seen


def _words(values: Sequence[Any]) -> str:
    return ", ".join("not known" if v is None else escape(str(v)) for v in values)


def problems(a: Sequence[Taken], b: Sequence[Taken]) -> list[Problem]:
    """All that differs between the sides, or between the captures of one, the grave first."""
    out = [*_machine(a, b), *_windows(a, b), *_events(a, b), *_losses(a, b), *_workloads(a, b)]
    return sorted(out, key=lambda p: not p.grave)


def _machine(a: Sequence[Taken], b: Sequence[Taken]) -> list[Problem]:
    out = []
    facts = (
        ("cpus", True, "the number of CPUs differs: rates and shares are of different machines"),
        ("llcs", True, "the number of LLCs differs: another machine, or another topology given"),
        ("cores", True, "the number of cores differs: another machine, or another topology given"),
        ("machine", True, "the architecture differs"),
        ("kernel", False, "the kernel differs, and with it all that changed between the releases"),
        ("topology", False, "the topology comes from different sources"),
        ("clock", False, "the trace clock differs"),
        ("form", False, "the form of the captures differs, and with it what recording costs"),
    )
    for fact, grave, text in facts:
        va, vb = _values(a, fact), _values(b, fact)
        known = {v for v in (*va, *vb) if v is not None}
        if len(known) > 1:
            told = f"{text} (A: {_words(va)}; B: {_words(vb)})"
            out.append(Problem(fact, va, vb, grave, told))
        elif known and None in (*va, *vb):
            told = f"not known of all captures: {fact} (A: {_words(va)}; B: {_words(vb)})"
            out.append(Problem(fact, va, vb, False, told))
    return [*out, *_silent(a, b)]


def _silent(a: Sequence[Taken], b: Sequence[Taken]) -> list[Problem]:
    va, vb = _values(a, "silent_cpus"), _values(b, "silent_cpus")
    if not any((*va, *vb)):
        return []
    bounds = [
        f"{100 * min(lo):.1f} to {100 * max(hi):.1f} % ({name})"
        for name, side in (("A", a), ("B", b))
        if (lo := [t.facts["idle_share_lo"] for t in side if t.facts["idle_share_lo"] is not None])
        and (hi := [t.facts["idle_share_hi"] for t in side if t.facts["idle_share_hi"] is not None])
    ]
    text = (
        f"CPUs without any event (A: {_words(va)}; B: {_words(vb)}) may have been idle or not: the "
        f"idle share is of the others; of all CPUs it is {' and '.join(bounds)}"
    )
    return [Problem("silent_cpus", va, vb, va != vb, text)]


def _windows(a: Sequence[Taken], b: Sequence[Taken]) -> list[Problem]:
    va, vb = _values(a, "window_ns"), _values(b, "window_ns")
    both = [*va, *vb]
    out = []
    if max(both) > _FACTOR * min(both):
        out.append(
            Problem(
                "window_ns",
                va,
                vb,
                False,
                f"the windows differ in length ({format_ns(min(both))} to {format_ns(max(both))}): "
                "maxima grow with the window and are not set against each other",
            )
        )
    if min(both) < _BRIEF_NS:
        out.append(
            Problem(
                "window_ns",
                va,
                vb,
                False,
                f"a window of {format_ns(min(both))} is short: what happens once a tick or more "
                "rarely is hardly in it",
            )
        )
    steps = {t.facts["clock_step_ns"] for t in (*a, *b)}
    if len(steps) > 1:
        out.append(
            Problem(
                "clock_step_ns",
                _values(a, "clock_step_ns"),
                _values(b, "clock_step_ns"),
                False,
                "one side's times are in whole microseconds: smaller differences are not spoken of",
            )
        )
    return out


def _events(a: Sequence[Taken], b: Sequence[Taken]) -> list[Problem]:
    out = []
    kinds = [[set(t.facts["event_kinds"]) for t in side] for side in (a, b)]
    all_, every = set().union(*kinds[0], *kinds[1]), set.intersection(*kinds[0], *kinds[1])
    # Events that come about once in a while may be missing by chance.
    told = sorted(
        n
        for n in all_ - every
        if n.startswith(("sched_switch", "sched_waking", "sched_wakeup", "sched_migrate"))
        and n != "sched_wakeup_new"
    )
    if told:
        va, vb = (sorted(set.intersection(*side)) for side in kinds)
        out.append(
            Problem(
                "event_kinds",
                va,
                vb,
                True,
                f"not recorded on all captures: {', '.join(told)}; figures that need "
                f"{'it' if len(told) == 1 else 'them'} are defined differently or missing",
            )
        )
    rest = sorted(
        n
        for n in all_ - every - set(told)
        if not n.startswith(("sched_process", "sched_wakeup_new", "task_"))
    )
    if rest:
        va, vb = (sorted(set.intersection(*side)) for side in kinds)
        out.append(
            Problem(
                "event_kinds",
                va,
                vb,
                False,
                f"not recorded on all captures: {', '.join(escape(n) for n in rest)}; each "
                "event costs time where it is recorded, so the machines were traced unequally",
            )
        )
    costs = [t.facts["event_cost_ns"] for t in (*a, *b) if t.facts["event_cost_ns"]]
    if costs and max(costs) > _FACTOR * min(costs):
        out.append(
            Problem(
                "event_cost_ns",
                _values(a, "event_cost_ns"),
                _values(b, "event_cost_ns"),
                False,
                "what recording an event costs at most differs "
                f"({min(costs):,} to {max(costs):,} ns): latencies hold that cost",
            )
        )
    return out


def _losses(a: Sequence[Taken], b: Sequence[Taken]) -> list[Problem]:
    out = []
    for fact, text in (
        ("loss_marks", "events were lost: what spans a loss is left out of latencies and waits"),
        ("damaged", "a file is cut or damaged: the comparison is of what could be read"),
    ):
        va, vb = _values(a, fact), _values(b, fact)
        if any(va) or any(vb):
            out.append(Problem(fact, va, vb, fact == "damaged", text))
    return out


def _workloads(a: Sequence[Taken], b: Sequence[Taken]) -> list[Problem]:
    va = set().union(*(t.facts["workloads"] for t in a))
    vb = set().union(*(t.facts["workloads"] for t in b))
    if va and vb and not va & vb:
        return [
            Problem(
                "workloads",
                sorted(va),
                sorted(vb),
                True,
                "no workload is on both sides: A ran "
                f"{_words(sorted(va)[:4])}; B ran {_words(sorted(vb)[:4])}",
            )
        ]
    return []
