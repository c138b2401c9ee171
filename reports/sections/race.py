"""The ttwu race: the verdict, who delays whom, and the worst double bookings drawn."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from traceana import _race_words as words
from traceana._race_pairs import numbers, wake_columns, who_delays_whom, worst
from traceana._race_verdict import percent
from traceana.reports.context import NULL, Context, missing_text
from traceana.reports.examples import Example, examples_of, figure
from traceana.reports.model import Column, Section, Strong, Table, Text, say
from traceana.reports.words import clean, count, duration, moment, plural
from traceana.schema import BookingClass

if TYPE_CHECKING:
    from traceana._race_pairs import Delayed
    from traceana.race import Race

__all__ = ["fill", "fill_delays", "fill_examples", "opening_words"]

#: Pairs of families in a table, and double bookings that are drawn.
_PAIRS, _EXAMPLES = 20, 5
_NO_RACE: Text = say("No double booking was found.")


def marked(sentence: str) -> Text:
    """A sentence of ``_race_words`` with its marks as the report's own."""
    parts = re.split(r"\*\*", sentence)
    return say(*(Strong(p) if i % 2 else p for i, p in enumerate(parts) if p))


def opening_words(ctx: Context) -> Text:
    """The verdict, for the top of the report."""
    found = ctx.race
    if found is None:
        return missing_text("the search for double bookings", ("sched_waking",), brief=True)
    if not found.counts["decided"]:
        return say("In no wakeup is a CPU known to have been selected.")
    return say(*marked(" ".join(words.verdict_words(found)[:2])), *_longest(ctx, found))


def _longest(ctx: Context, found: Race) -> Text:
    """The victim that waited the longest, when and where."""
    top = worst(found.collisions, 1, by_delay=True)
    if not top:
        return ()
    row = found.collisions.take(top).to_pylist()[0]
    task = int(wake_columns(ctx.tl, np.array([row["victim"]]), ("wakee",))["wakee"][0])
    return say(
        " The longest such wait, ",
        Strong(duration(row["extra_delay_ns"])),
        f", was {ctx.names.full(task)} on CPU {row['cpu']} at {moment(row['ts'])}.",
    )


def _asked(ctx: Context, section: Section) -> Race | None:
    found = ctx.race
    if found is None:
        section.missing.append(missing_text("this section", ("sched_waking",)))
    return found


def fill(ctx: Context, section: Section) -> None:
    """Verdict, classes, windows, chance, what tracing did."""
    found = _asked(ctx, section)
    if found is None:
        return
    section.sentences += [marked(s) for s in words.verdict_words(found)]
    if not found.counts["decided"]:
        return
    section.tables += [_classes(found), _windows(found)]
    section.sentences += [marked(s) for s in words.chance_words(found)]
    section.sentences.append(marked(words.probe_words(found)))
    section.sentences += [say(f"{n[:1].upper()}{n[1:]}.") for n in words.notes(found)]
    section.sentences.append(_measured(found))
    section.parts += _workloads(ctx, found)
    section.definitions += [
        (
            "strict double booking",
            say(
                "Two wakers chose the same CPU, which looked idle, and the later one looked before "
                "the earlier booking could be seen: the pending flag set, or the wakee queued. "
                "Certain: whatever the instants between two events were.",
            ),
        ),
        (
            "late, explained otherwise",
            say(
                "Late: the first booking could be seen, so the cause is another one. Explained: "
                "the waker's own CPU, or where a search that finds nothing ends.",
            ),
        ),
        (
            "victim, extra delay",
            say(
                "Of all who were booked onto one idle CPU, those who did not run first; how long "
                "each waited from when it was queued and the first one ran.",
            ),
        ),
        (
            "attributable idle time",
            say(
                "While victims wait: the smaller of their number and that of idle CPUs in their "
                "LLC (possible); of certain ones, CPUs that their own partners left idle, or that "
                "were idle throughout (certain). No nanosecond of a CPU counts twice.",
            ),
        ),
        (
            "blind choice",
            say(
                "The same wakers at the same times, each choosing any of the CPUs of the LLC that "
                "looked idle to it. Other times: each choice moved by more than a window to a time "
                "at which its CPU looked idle as well.",
            ),
        ),
    ]
    section.reproduce += [ctx.run("race"), ctx.run("race", "--collisions")]


def _workloads(ctx: Context, found: Race) -> list[Section]:
    """What of it concerns each workload that matters."""
    table, bookings = found.collisions, found.bookings
    assert bookings is not None
    wakee = ctx.wakes["wakee"]
    strict = numbers(table, "class") <= BookingClass.STRICT
    later = wakee[numbers(table, "later")[strict]]
    victim, extra = numbers(table, "victim", -1)[strict], numbers(table, "extra_delay_ns")[strict]
    waited = (victim >= 0) & (extra != NULL)
    behind = wakee[victim[waited]]
    own = wakee[bookings.rows[bookings.looked_idle]]
    parts = []
    for i, scope in enumerate(ctx.workloads):
        n, of = int(scope.tasks[later].sum()), int(scope.tasks[own].sum())
        mine = extra[waited][scope.tasks[behind]]
        said: list[object] = [
            Strong(count(n)),
            f" of its {plural(of, 'wakeup')} that found a CPU idle met another booking",
        ]
        if len(mine):
            said += [
                f"; its tasks were victims {plural(len(mine), 'time')} and waited ",
                Strong(duration(int(mine.sum()))),
                f" longer in all, at most {duration(int(mine.max()))} at once",
            ]
        parts.append(Section(f"race-{i}", scope.label, [say(*said, ".")]))
    return parts


def _measured(found: Race) -> Text:
    t = found.thresholds
    return say(
        "A verdict is ",
        Strong("supported"),
        " where, by the lower ends of the 95 % intervals, at least ",
        percent(t.rate),
        " of the wakeups that found their CPU idle certainly met another booking (with and without "
        "the cost of recording) and at least ",
        percent(t.idle_share),
        " of the idle time is certainly its doing; ",
        Strong("not supported"),
        " where even the upper ends of what is possible stay below one of them.",
    )


def _classes(found: Race) -> Table:
    kinds = numbers(found.collisions, "class")
    extra = numbers(found.collisions, "extra_delay_ns")
    looked, ts = found.counts["looked_idle"], numbers(found.collisions, "ts")
    rows = []
    for i, (name, title) in enumerate(words.CLASSES.items()):
        n = found.counts[name]
        mine = np.flatnonzero((kinds == i) & (extra != NULL))
        delays = extra[mine]
        figures: list[int | None] = [None, None, None, None]
        if len(delays):
            p50, p99 = np.percentile(delays, [50, 99], method="inverted_cdf")
            top = mine[int(delays.argmax())]
            figures = [int(p50), int(p99), int(extra[top]), int(ts[top])]
        rows.append([title, n, n / looked if looked else None, int(delays.sum()), *figures])
    return Table(
        "collisions",
        "Double bookings",
        [
            Column("class", "text", "double booking"),
            Column("n", "int", "number"),
            Column("share", "share", "of wakeups that found their CPU idle"),
            Column("extra_sum_ns", "ns", "extra delay in all"),
            Column("extra_p50_ns", "ns", "p50"),
            Column("extra_p99_ns", "ns", "p99"),
            Column("extra_max_ns", "ns", "longest"),
            Column("extra_max_at_ns", "ts", "booked at"),
        ],
        rows,
    )


def _windows(found: Race) -> Table:
    rows = []
    for title, s in (
        ("until a booking is likely seen", found.window),
        ("until it is seen for certain", found.window_hi),
    ):
        rows.append([title, s.n, s.p50_ns, s.p99_ns])
    return Table(
        "decision-windows",
        "Decision windows: from sched_waking …",
        [
            Column("window", "text", "window"),
            Column("n", "int", "wakeups"),
            Column("p50_ns", "ns", "p50"),
            Column("p99_ns", "ns", "p99"),
        ],
        rows,
        note="Both hold the time that recording the events inside them took.",
    )


def fill_delays(ctx: Context, section: Section) -> None:
    """Pairs of families: behind whom victims waited."""
    found = _asked(ctx, section)
    if found is None:
        return
    pairs = who_delays_whom(ctx.tl, found.collisions)
    if not pairs:
        section.sentences.append(_NO_RACE)
        return
    total = sum(p.sum_ns for p in pairs)
    top = pairs[0]
    victims: dict[str, int] = {}
    for p in pairs:
        victims[p.victim] = victims.get(p.victim, 0) + p.sum_ns
    most = max(victims, key=lambda name: (victims[name], name))
    section.sentences.append(
        say(
            "By double bookings tasks waited ",
            Strong(duration(total)),
            " longer in all; the most those of the family ",
            Strong(_family(most)),
            f", {duration(victims[most])}. The pair that cost the most: ",
            Strong(_family(top.victim)),
            " behind ",
            Strong(_family(top.first)),
            f", {plural(top.n, 'time')}, {duration(top.sum_ns)}.",
        )
    )
    section.tables.append(_pairs(pairs))
    section.definitions.append(
        (
            "delayed by",
            say(
                "The one of an idle CPU's bookings that ran first: the victim's antagonist. "
                "Families are names without their running numbers.",
            ),
        )
    )
    section.reproduce.append(ctx.run("race", "--collisions"))


def _family(name: str) -> str:
    return clean(name)


def _pairs(pairs: list[Delayed]) -> Table:
    return Table(
        "delayed",
        "Victims and their antagonists, by families of tasks (strict double bookings)",
        [
            Column("victim", "text", "victim"),
            Column("first", "text", "delayed by"),
            Column("n", "int", "times"),
            Column("certain", "int", "certain"),
            Column("sum_ns", "ns", "extra delay in all"),
            Column("p50_ns", "ns", "p50"),
            Column("p99_ns", "ns", "p99"),
            Column("max_ns", "ns", "longest"),
            Column("max_at_ns", "ts", "booked at"),
            Column("attributable_hi_ns", "ns", "idle time, at most"),
        ],
        [
            [
                _family(p.victim), _family(p.first), p.n, p.certain, p.sum_ns, p.p50_ns, p.p99_ns,
                p.max_ns, p.max_at_ns, p.attributable_hi_ns,
            ]
            for p in pairs[:_PAIRS]
        ],
        more=max(0, len(pairs) - _PAIRS),
    )  # fmt: skip


def fill_examples(ctx: Context, section: Section) -> None:
    """The worst double bookings, each as a small timeline."""
    found = _asked(ctx, section)
    if found is None:
        return
    shown = examples_of(ctx, found.collisions, worst(found.collisions, _EXAMPLES))
    if not shown:
        section.sentences.append(_NO_RACE)
        return
    section.sentences.append(
        say(
            "The ",
            Strong(plural(len(shown), "double booking")),
            " that cost the most: by idle time that it may have cost, then by how long the victim "
            "waited. Each picture has a lane for each CPU that took part and for those of its LLC "
            "that were idle meanwhile.",
        )
    )
    section.figures += [figure(ctx, e, i) for i, e in enumerate(shown)]
    section.tables.append(_listed(ctx, shown))
    section.reproduce.append(ctx.run("race", "--collisions", "--sort", "extra_delay"))


def _listed(ctx: Context, shown: list[Example]) -> Table:
    rows = []
    for e in shown:
        rows.append(
            [
                e.earlier.waking, e.cpu, ctx.names.full(e.first.wakee),
                ctx.names.full(e.victim.wakee), e.between_ns, e.window_ns, e.victim.queued,
                e.victim.run, e.extra_ns, e.hops, "certain" if e.certain else "possible",
            ]
        )  # fmt: skip
    return Table(
        "worst",
        "The same in figures",
        [
            Column("ts_ns", "ts", "first sched_waking"),
            Column("cpu", "id", "CPU"),
            Column("first", "text", "ran first"),
            Column("victim", "text", "victim"),
            Column("between_ns", "ns", "second looked after"),
            Column("window_ns", "ns", "first seen after"),
            Column("queued_at_ns", "ts", "victim queued"),
            Column("run_at_ns", "ts", "it ran"),
            Column("extra_delay_ns", "ns", "extra delay"),
            Column("hops", "int", "partners idle behind it"),
            Column("certainty", "text", "strict"),
        ],
        rows,
    )
