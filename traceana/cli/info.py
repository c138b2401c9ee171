"""``traceana info``: what a capture is, what it holds, what it lost, what it can answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from traceana import output
from traceana.cli.common import colored, conclude, lost_block, opened, say, write
from traceana.cli.options import INPUT, OUTPUT, Options, verb
from traceana.cli.values import choose
from traceana.output import plural

if TYPE_CHECKING:
    from traceana.capture import Capture

__all__ = ["describe", "register"]

#: So many CPUs are listed one by one in a table.
_MOST_CPUS = 16


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(app, INPUT, OUTPUT, example="traceana info sample_traces/pp6-base.dat")
    def info(
        options: Options,
        quick: Annotated[
            bool,
            typer.Option(
                "--quick",
                show_default=False,
                help="Read only headers, counters and samples of trace.dat, perf.data and stores: "
                "what is then estimated or not known is said. Other forms are read as a whole.",
            ),
        ] = False,
    ) -> int:
        """Show form, kernel, CPUs, clock, events, losses, and what can be answered.

        Answers with status 0 for any capture that opens, also for one without a single event
        of the scheduler.
        """
        choose(options.format, output.FORMATS, "--format")
        if quick:
            from traceana.cli.glimpse import show_glimpse

            status = show_glimpse(options)
            if status is not None:
                return status
            if not options.quiet:
                say("this form has no index: --quick reads it as a whole")
        with opened(options) as cap:
            document = describe(cap)
            text = output.render_facts(
                document, _facts(cap, document), options.format, color=colored(options)
            )
            write(text, options)
            return conclude(cap, options)


def describe(cap: Capture) -> dict[str, Any]:
    """The object that ``info --format json`` prints."""
    coverage = cap.coverage()  # reading the whole file completes the rest
    events = dict(sorted(cap.counts.items()))
    meta = cap.meta
    present = meta.cpus_present if meta.cpus_present is not None else cap.topology.num_rows
    topology = cap.topology
    origins = sorted(set(topology.column("origin").to_pylist()))
    return {
        "form": meta.form,
        "tool": meta.tool,
        "kernel": meta.kernel,
        "machine": meta.machine,
        "cpus": present,
        "cpus_online": meta.cpus_online,
        "llcs": len(set(topology.column("llc").to_pylist())),
        "cores": len(set(topology.column("core").to_pylist())),
        "topology_origin": origins[0] if len(origins) == 1 else origins or None,
        "clock": meta.clock,
        "clock_unit": meta.clock_unit,
        "hz": meta.hz,
        "span_ns": cap.span_ns,
        "events": events,
        "lost": lost_block(cap),
        "counters": counters_block(cap.lost.counters),
        "windows": _windows(cap, coverage),
        "activity": _activity(cap, coverage),
        "questions": _questions(cap, events, origins),
        "quick": False,
        "damaged": cap.damaged,
        "issues": dict(sorted(cap.issues.counts().items())),
    }


def counters_block(counters: dict[Any, Any]) -> dict[str, Any] | None:
    """What the file's own counters tell, beside what was decoded; None where it has none."""
    if not counters:
        return None
    rows = {}
    for cpu, told in sorted(counters.items(), key=lambda item: (item[0] is not None, item[0] or 0)):
        rows["all" if cpu is None else str(cpu)] = {
            "recorded": told.recorded,
            "found": told.found,
            "overwritten": told.overwritten,
            "dropped": told.dropped,
            "lost": told.lost,
            "marked": told.marked,
            "agree": told.agree,
        }
    return {"agree": all(row["agree"] for row in rows.values()), "per_cpu": rows}


def _windows(cap: Capture, coverage: Any) -> dict[str, Any] | None:
    """Each CPU's data and what all have in common, ns; None where the clock counts no time."""
    if not cap.has_time or coverage.first_ns is None:
        return None
    common = coverage.common()
    return {
        "first_ns": coverage.first_ns,
        "last_ns": coverage.last_ns,
        "common_begin_ns": None if common is None else common[0],
        "common_ns": None if common is None else common[1] - common[0],
        "per_cpu": {
            str(w.cpu): {
                "begin_ns": w.begin_ns,
                "first_ns": w.first_ns,
                "last_ns": w.last_ns,
                "late": w.late,
                "events": w.events,
                "losses": w.losses,
            }
            for w in coverage.windows()
        },
    }


def _activity(cap: Capture, coverage: Any) -> dict[str, Any] | None:
    """Switches and wakeups a second in the common window; None where there is no time."""
    from traceana.schema import EventKind

    common = coverage.common()
    length = common[1] - common[0] if common is not None else 0
    if not cap.has_time or length <= 0:
        return None
    counts = coverage.counts

    def rate(*kinds: EventKind) -> float | None:
        n = sum(int(counts[kind]) for kind in kinds)
        return round(n / length * 1e9, 3) if n else None

    wakeups = rate(EventKind.WAKEUP, EventKind.WAKEUP_NEW)
    return {
        "window_ns": length,
        "switches_per_s": rate(EventKind.SWITCH),
        "wakeups_per_s": wakeups if wakeups is not None else rate(EventKind.WAKING),
    }


def _questions(cap: Capture, events: dict[str, int], origins: list[str]) -> list[dict[str, Any]]:
    from traceana.questions import answers

    found = answers(
        [name for name, n in events.items() if n and name not in cap.ignored],
        topology="assumed" not in origins,
        start_state=cap.start_state is not None,
        has_time=cap.has_time,
        whole="only_some_tasks" not in cap.issues.counts(),
    )
    return [answer.to_json() for answer in found]


def _facts(cap: Capture, doc: dict[str, Any]) -> list[tuple[str, str]]:
    """The same for a reader."""
    span = doc["span_ns"]
    facts = head_facts(doc)
    facts.append(("span", output.format_ns(span) if span is not None else _no_span(doc)))
    facts += window_facts(doc)
    facts += event_facts(doc)
    facts += lost_facts(doc)
    facts += question_facts(doc)
    texts: dict[str, str] = {}
    for row in cap.issues.table().to_pylist():
        texts.setdefault(row["code"], row["text"])
    facts.append(("issues", "" if doc["issues"] else "none"))
    facts += [("", f"{n:,} × {code}: {texts[code]}") for code, n in doc["issues"].items()]
    return facts


def _no_span(doc: dict[str, Any]) -> str:
    return "the clock counts no time" if any(doc["events"].values()) else "no event"


def head_facts(doc: dict[str, Any]) -> list[tuple[str, str]]:
    """What the header tells."""
    clock = f"{doc['clock'] or 'not told'}, in {doc['clock_unit']}"
    facts = [
        ("form", " by ".join(str(x) for x in (doc["form"], doc["tool"]) if x)),
        ("kernel", " ".join(str(x) for x in (doc["kernel"], doc["machine"]) if x) or "not told"),
    ]
    if doc["cores"] is not None:
        cores, llcs = plural(doc["cores"], "core"), plural(doc["llcs"], "LLC")
        shape = f"{doc['cpus']} ({cores}, {llcs}; {doc['topology_origin']})"
        facts.append(("cpus", shape))
    else:
        facts.append(("cpus", str(doc["cpus"] if doc["cpus"] is not None else "not told")))
    return [*facts, ("clock", clock)]


def window_facts(doc: dict[str, Any]) -> list[tuple[str, str]]:
    """The common window, where it is not the whole span."""
    windows = doc["windows"]
    if windows is None or windows["common_ns"] is None:
        return []
    late = {cpu: w for cpu, w in windows["per_cpu"].items() if w["late"]}
    if not late:
        return []
    first = windows["first_ns"]
    begin = output.format_ns(windows["common_begin_ns"] - first)
    facts = [
        (
            "windows",
            f"all CPUs' data have {output.format_ns(windows['common_ns'])} in common, from {begin} "
            "behind the first event on",
        )
    ]
    listed = list(late.items())[:_MOST_CPUS]
    facts += [
        ("", f"cpu {cpu}: begins {output.format_ns(w['begin_ns'] - first)} behind it")
        for cpu, w in listed
    ]
    if len(late) > len(listed):
        facts.append(("", f"… {len(late) - len(listed)} more CPUs begin late"))
    return facts


def event_facts(doc: dict[str, Any]) -> list[tuple[str, str]]:
    """Events by name, and how many a second."""
    about = "about " if doc["quick"] and "events" in doc.get("estimated", ()) else ""
    total = sum(doc["events"].values())
    facts = [("events", f"{about}{total:,}")]
    size = max((len(f"{n:,}") for n in doc["events"].values()), default=0)
    facts += [("", f"{n:>{size},}  {name}") for name, n in doc["events"].items()]
    activity = doc["activity"]
    if activity is not None:
        told = [
            f"{_rate(activity[key])} {word} a second"
            for key, word in (("wakeups_per_s", "wakeups"), ("switches_per_s", "switches"))
            if activity[key] is not None
        ]
        if told:
            facts.append(("rates", ", ".join(told)))
    return facts


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def lost_facts(doc: dict[str, Any]) -> list[tuple[str, str]]:
    """What the recorder admits, and what its counters tell."""
    lost = doc["lost"]
    marks = plural(lost["marks"] or 0, "mark")
    facts = []
    if lost["events"] is None:
        facts.append(("lost", f"some, at {marks}; how many is not told"))
    elif lost["events"] or lost["marks"]:
        facts.append(("lost", f"{plural(lost['events'], 'event')} at {marks}"))
    else:
        facts.append(("lost", "none"))
    facts += [
        ("", f"cpu {cpu}: {'not told' if n is None else format(n, ',')}")
        for cpu, n in lost["per_cpu"].items()
    ]
    counters = doc["counters"]
    if counters is not None:
        facts += _counter_facts(counters["per_cpu"])
    return facts


def _counter_facts(rows: dict[str, Any]) -> list[tuple[str, str]]:
    """One line where all agrees, else the CPUs that do not."""
    wrong = {cpu: row for cpu, row in rows.items() if not row["agree"]}
    over = sum(row["overwritten"] or 0 for row in rows.values())
    tail = f"; {plural(over, 'event')} overwritten before the first" if over else ""
    where = "of the whole" if list(rows) == ["all"] else f"of {plural(len(rows), 'CPU')}"
    if not wrong:
        return [("counts", f"the file's own counters {where} agree with what is in it{tail}")]
    facts = [("counts", f"the file's own counters {where} do not agree with what is in it{tail}")]
    for cpu, row in list(wrong.items())[:_MOST_CPUS]:
        parts = []
        if row["recorded"] != row["found"]:
            parts.append(f"{row['recorded']:,} recorded, {row['found'] or 0:,} in the file")
        if row["lost"] != row["marked"]:
            parts.append(f"{row['lost']:,} lost, {row['marked'] or 0:,} of them marked")
        facts.append(("", f"{'all CPUs' if cpu == 'all' else f'cpu {cpu}'}: {'; '.join(parts)}"))
    if len(wrong) > _MOST_CPUS:
        facts.append(("", f"… {len(wrong) - _MOST_CPUS} more CPUs do not agree"))
    return facts


def question_facts(doc: dict[str, Any]) -> list[tuple[str, str]]:
    """A line per question, and the command that records what is lacking."""
    facts: list[tuple[str, str]] = []
    for row in doc["questions"]:
        line = f"{row['answer']:<6}  {row['text']}"
        # What decides: the most needed stand first, all of them in JSON.
        absent = [
            need["what"].replace("start_state", "start state")
            for need in row["lacking"]
            if need["without"] == row["lacking"][0]["without"]
        ]
        if row["why_not"] is not None:
            line += f": {row['why_not']}"
        elif absent:
            line += f" (without {', '.join(absent)})"
        facts.append(("answers" if not facts else "", line))
    commands = dict.fromkeys(row["record"] for row in doc["questions"] if row["record"])
    if commands:
        whole = "traceana record"
        command = next(iter(commands)) if len(commands) == 1 else whole
        facts.append(("", f"for more record as `{command}` says"))
    return facts
