"""The timeline: who ran where and when, to zoom and pan in, and the moments worth a look."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana.reports.context import NULL, Context, column
from traceana.reports.model import Code, Column, Section, Strong, Table, View, say
from traceana.reports.view_data import ENDINGS, MAX_MARKS, Payload, pack, slices_of
from traceana.reports.words import count, duration

__all__ = ["MAX_SLICES", "fill"]

#: A page of about a megabyte; of longer captures a stretch in the middle is drawn.
MAX_SLICES = 250_000
#: Moments of one kind in the table.
_LISTED = 8
_HUES = 48
_COLOURS = ("--vermillion", "--blue", "--green", "--purple", "--orange", "--sky")
Array = npt.NDArray[Any]

#: One mark: ns of the capture's clock, CPU, task, what there is to say.
_Mark = tuple[int, int, int, str]


def fill(ctx: Context, section: Section) -> None:
    """The view, and a table whose rows lead into it."""
    shown = slices_of(ctx.tl.study or ctx.tl, MAX_SLICES)
    if not len(shown.start):
        section.sentences.append(say("No task ran in this capture."))
        return
    marks = {
        "waits": ("long queue delay", _waits(ctx)),
        "bookings": ("double booking (candidate)", _bookings(ctx)),
    }
    for rule, rows in _moved(ctx).items():
        marks[f"rule-{rule}"] = (f"{rule} would move", rows)
    marks = {ident: (label, rows) for ident, (label, rows) in marks.items() if rows}
    whole = shown.end_ns >= 0.99 * ctx.span_ns
    section.sentences.append(
        say(
            *ctx.stretch,
            Strong(count(len(shown.start))),
            " stretches in which a task ran",
            "" if whole else f", of {duration(shown.end_ns)} in the middle of the capture",
            ": a lane for each CPU, a colour for each task. Where many lie in one place, height "
            "says how busy the CPU was, and the colour whose share was largest.",
        )
    )
    section.views.append(
        View(
            "timeline",
            "Timeline of CPUs and tasks; the table below lists moments to look at",
            lambda: _data(ctx, shown, marks),
            "moments",
            [(ident, label) for ident, (label, _) in marks.items()],
        )
    )
    section.tables.append(_table(ctx, marks))
    section.definitions.append(
        (
            "queued",
            say("From ", Code("sched_wakeup"), " to the switch-in with which the stretch begins."),
        )
    )


def _table(ctx: Context, marks: dict[str, tuple[str, list[_Mark]]]) -> Table:
    rows = []
    for label, found in marks.values():
        for at, cpu, task, note in found[:_LISTED]:
            rows.append([at, cpu, label, ctx.names.full(task), note])
    return Table(
        "moments",
        "Moments to look at",
        [
            Column("at_ns", "ts", "at"),
            Column("cpu", "id", "CPU"),
            Column("what", "text", "what"),
            Column("task", "text", "task"),
            Column("note", "text", "note"),
        ],
        rows,
        more=sum(max(len(found) - _LISTED, 0) for _, found in marks.values()),
    )


def _waits(ctx: Context) -> list[_Mark]:
    w = ctx.studied
    delay = w["queue_delay_ns"]
    rows = np.flatnonzero((delay != NULL) & (w["run_ts"] != NULL))
    rows = rows[np.argsort(-delay[rows], kind="stable")][:_LISTED]
    return [
        (int(w["run_ts"][r]), int(w["ran_cpu"][r]), int(w["wakee"][r]),
         f"queued {duration(int(delay[r]))}")
        for r in rows
    ]  # fmt: skip


def _bookings(ctx: Context) -> list[_Mark]:
    table = ctx.candidates
    if table is None:
        return []
    extra = column(table, "extra_delay_ns", -1)
    victim, ts, cpu = column(table, "victim", -1), column(table, "ts"), column(table, "cpu")
    wakee = ctx.studied["wakee"]
    rows = np.flatnonzero(victim >= 0)
    rows = rows[np.argsort(-extra[rows], kind="stable")][:MAX_MARKS]
    return [
        (int(ts[r]), int(cpu[r]), int(wakee[victim[r]]), f"delayed {duration(int(extra[r]))}")
        for r in rows.tolist()
    ]


def _moved(ctx: Context) -> dict[str, list[_Mark]]:
    """By rule, the wakeups that it would have placed elsewhere."""
    study = ctx.whatif
    if study is None:
        return {}
    out: dict[str, list[_Mark]] = {}
    w = ctx.studied
    ids = (ctx.tl.study or ctx.tl).raw["wakeups"]["id"]
    table = study.decisions
    wakeup, cpu = column(table, "wakeup"), column(table, "cpu", -1)
    moved = np.array([bool(m) for m in table["moved"].to_pylist()], bool)
    rules = np.array(table["rule"].to_pylist(), object)
    for rule in ctx.rules:
        rows = np.flatnonzero(moved & (rules == rule))
        # Evenly over the capture where there are more than can be shown.
        if len(rows) > MAX_MARKS:
            rows = rows[np.linspace(0, len(rows) - 1, MAX_MARKS).astype(int)]
        found = []
        for r in rows.tolist():
            k = int(np.searchsorted(ids, wakeup[r]))
            if k < len(ids) and ids[k] == wakeup[r] and w["waking_ts"][k] != NULL:
                found.append(
                    (int(w["waking_ts"][k]), int(w["placed_cpu"][k]), int(w["wakee"][k]),
                     f"to CPU {int(cpu[r])} instead")
                )  # fmt: skip
        out[rule] = found
    return out


def _data(
    ctx: Context, shown: Payload, marks: dict[str, tuple[str, list[_Mark]]]
) -> dict[str, Any]:
    """What the script needs; times are ns from ``begin``, which is text (it may exceed 2^53)."""
    n = ctx.tl.tasks.num_rows
    tids = [ctx.names.pid(t) or 0 for t in range(n)]
    return {
        "begin": str(shown.begin),
        "span": shown.end_ns,
        "cpus": ctx.cpu_order,
        "tasks": [f"{ctx.names.comm(t)} [{tids[t]}]" for t in range(n)],
        # A thread keeps its colour in every report: it comes from its id.
        "hues": [zlib.crc32(str(tid).encode()) % _HUES for tid in tids],
        "endings": list(ENDINGS),
        "slices": pack(shown),
        "marks": [
            {
                "id": ident,
                "colour": _COLOURS[i % len(_COLOURS)],
                "rows": [
                    {"at": at - shown.begin, "cpu": cpu, "task": task}
                    for at, cpu, task, _ in found
                    if 0 <= at - shown.begin <= shown.end_ns
                ],
            }
            for i, (ident, (_, found)) in enumerate(marks.items())
        ],
    }
