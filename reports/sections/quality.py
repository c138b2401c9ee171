"""What was lost, assumed and repaired, and how many wakeups that touches."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceana.reports.context import Context
from traceana.reports.model import Column, Section, Strong, Table, say
from traceana.reports.sections.capture import lost_words
from traceana.reports.words import clean, plural, share
from traceana.schema import Quality, WakeKind

__all__ = ["KIND_WORDS", "fill"]

#: Codes that mean the result rests on an assumption, in the order of weight.
_QUALITY_WORDS = {
    Quality.CENSORED_START: "began before the window",
    Quality.CENSORED_END: "the wakee did not run before the window's end",
    Quality.TOUCHES_LOSS: "spans lost events",
    Quality.STATE_UNKNOWN: "the wakee's state before the waking is not known",
    Quality.SKEW: "a cause stamped after its effect; the duration was set to 0",
    Quality.REPEATED: "a second waking came before the wakee ran",
    Quality.NO_WAKING: "sched_wakeup without sched_waking",
    Quality.NO_WAKEUP: "sched_waking without sched_wakeup",
    Quality.REPAIRED: "a contradiction was repaired",
    Quality.FLIPS_UNKNOWN: "wakee_flips not known",
    Quality.DUR_UNKNOWN: "dur_avg not known",
}
KIND_WORDS = {
    WakeKind.DECIDED: "a CPU was selected",
    WakeKind.SELF: "the task woke itself",
    WakeKind.ON_RQ: "still queued or running: nothing to decide",
    WakeKind.ON_CPU: "still leaving its CPU: queued there",
    WakeKind.PINNED: "only one CPU allowed",
    WakeKind.DELAYED: "dequeue was delayed (6.12 and later): still queued",
    WakeKind.DELAYED_MAYBE: "delayed dequeue or selected: cannot be told apart",
    WakeKind.OTHER_CLASS: "not a fair task: other rules",
    WakeKind.FORK: "first wakeup of a new task",
    WakeKind.UNKNOWN: "not known",
}


def fill(ctx: Context, section: Section) -> None:
    """The issues, summed over CPUs; the doubts about wakeups."""
    cap = ctx.cap
    issues = _issues(ctx)
    total = sum(ctx.counts.values())
    lost = cap.lost.events
    words = [say(Strong(lost_words(ctx)[0].upper() + lost_words(ctx)[1:]))]
    if lost:
        words.append(say(" (", Strong(share(lost / (lost + total))), " of all events)"))
    n = len(issues)
    section.sentences.append(
        say(
            *(p for w in words for p in w),
            "; ",
            Strong(plural(n, "kind")) if n else "nothing",
            f" of assumption, repair or damage {'is' if n == 1 else 'are'} listed below."
            if n
            else " had to be assumed or repaired.",
        )
    )
    if cap.damaged:
        section.sentences.append(
            say(Strong("The file is cut or damaged"), ": the report covers what could be read.")
        )
    limit = 30
    section.tables.append(
        Table(
            "issues",
            "Issues, summed over CPUs",
            [
                Column("stage", "text", "stage"),
                Column("code", "text", "code"),
                Column("count", "int", "count"),
                Column("cpus", "text", "CPUs"),
                Column("first_ns", "ts", "first at"),
                Column("text", "text", "what it means"),
            ],
            issues[:limit],
            more=max(0, len(issues) - limit),
        )
    )
    if ctx.timeline is not None and ctx.timeline.wakeups.num_rows:
        section.tables += [_kinds(ctx), _doubts(ctx)]
    section.definitions.append(
        (
            "issue",
            say(
                "Every stage notes what it lost, assumed or repaired. What is not known stays "
                "null; nothing is filled in silently."
            ),
        )
    )
    section.reproduce.append(ctx.run("info", "--format", "json"))


def _issues(ctx: Context) -> list[list[Any]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for issue in ctx.cap.issues.table().to_pylist():
        row = rows.setdefault(
            (issue["stage"], issue["code"]),
            {"n": 0, "cpus": set(), "ts": None, "text": issue["text"]},
        )
        row["n"] += issue["count"]
        if issue["cpu"] is not None:
            row["cpus"].add(issue["cpu"])
        if issue["ts"] is not None:
            row["ts"] = issue["ts"] if row["ts"] is None else min(row["ts"], issue["ts"])
    path = str(ctx.cap.path)
    return [
        [stage, code, r["n"], _ranges(r["cpus"]), r["ts"], clean(r["text"].replace(path, ctx.file))]
        for (stage, code), r in rows.items()
    ]


def _ranges(cpus: set[int]) -> str | None:
    """CPUs as the kernel lists them: "0-3,8"."""
    if not cpus:
        return None
    out: list[list[int]] = []
    for cpu in sorted(cpus):
        if out and out[-1][1] == cpu - 1:
            out[-1][1] = cpu
        else:
            out.append([cpu, cpu])
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in out[:12])
    return text + (",…" if len(out) > 12 else "")


def _kinds(ctx: Context) -> Table:
    kinds = ctx.wakes["kind"]
    n = np.bincount(kinds, minlength=len(WakeKind))
    return Table(
        "kinds",
        "Wakeups by kind",
        [
            Column("kind", "text", "kind"),
            Column("wakeups", "int", "wakeups"),
            Column("share", "share", "share"),
            Column("meaning", "text", "what it means"),
        ],
        [
            [kind.name.lower(), int(n[kind]), float(n[kind] / len(kinds)), KIND_WORDS[kind]]
            for kind in sorted(WakeKind, key=lambda k: -n[k])
            if n[kind]
        ],
        note="Only wakeups in which a CPU was selected (“decided”) are handed to the rules.",
    )


def _doubts(ctx: Context) -> Table:
    quality = ctx.wakes["quality"]
    rows = []
    for bit in Quality:
        n = int(((quality & int(bit)) != 0).sum())
        if n:
            rows.append([bit.name and bit.name.lower(), n, n / len(quality), _QUALITY_WORDS[bit]])
    # Whether dur_avg and flips are known matters to rules only, not to times.
    rules_only = int(Quality.FLIPS_UNKNOWN | Quality.DUR_UNKNOWN)
    clear = int(((quality & ~rules_only) == 0).sum())
    rows.sort(key=lambda r: -int(r[1] or 0))
    return Table(
        "doubts",
        "Doubts about wakeups (one may carry several)",
        [
            Column("doubt", "text", "doubt"),
            Column("wakeups", "int", "wakeups"),
            Column("share", "share", "share"),
            Column("meaning", "text", "what it means"),
        ],
        [
            ["none", clear, clear / len(quality), "nothing is known against its times and CPUs"],
            *rows,
        ],
    )
