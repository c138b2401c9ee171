"""``traceana info``: what a capture is, what it holds, what it lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from traceana import output
from traceana.cli.common import colored, conclude, lost_block, opened, write
from traceana.cli.options import INPUT, OUTPUT, Options, verb
from traceana.cli.values import choose

if TYPE_CHECKING:
    from traceana.capture import Capture

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(app, INPUT, OUTPUT, example="traceana info sample_traces/pp6-base.dat")
    def info(options: Options) -> int:
        """Show form, kernel, CPUs, clock, events per name, losses and issues.

        Answers with status 0 for any capture that opens, also for one without a single event
        of the scheduler.
        """
        choose(options.format, output.FORMATS, "--format")
        with opened(options) as cap:
            document = describe(cap)
            text = output.render_facts(
                document, _facts(cap, document), options.format, color=colored(options)
            )
            write(text, options)
            return conclude(cap, options)


def describe(cap: Capture) -> dict[str, Any]:
    """The object that ``info --format json`` prints."""
    events = dict(sorted(cap.counts.items()))  # reading the whole file completes the rest
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
        "damaged": cap.damaged,
        "issues": dict(sorted(cap.issues.counts().items())),
    }


def _facts(cap: Capture, doc: dict[str, Any]) -> list[tuple[str, str]]:
    """The same for a reader."""
    total = sum(doc["events"].values())
    span = doc["span_ns"]
    origin = doc["topology_origin"]
    shape = f"{doc['cpus']} ({doc['cores']} cores, {doc['llcs']} LLC; {origin})"
    facts = [
        ("form", " by ".join(str(x) for x in (doc["form"], doc["tool"]) if x)),
        ("kernel", " ".join(str(x) for x in (doc["kernel"], doc["machine"]) if x) or "not told"),
        ("cpus", shape),
        ("clock", f"{doc['clock'] or 'not told'}, in {doc['clock_unit']}"),
        ("span", output.format_ns(span) if span is not None else "no event"),
        ("events", f"{total:,}"),
    ]
    size = max((len(f"{n:,}") for n in doc["events"].values()), default=0)
    facts += [("", f"{n:>{size},}  {name}") for name, n in doc["events"].items()]
    lost = doc["lost"]
    if lost["events"] is None:
        facts.append(("lost", f"some, at {lost['marks']} marks; how many is not told"))
    elif lost["events"] or lost["marks"]:
        facts.append(("lost", f"{lost['events']:,} events at {lost['marks']} marks"))
    else:
        facts.append(("lost", "none"))
    facts += [
        ("", f"cpu {cpu}: {'not told' if n is None else format(n, ',')}")
        for cpu, n in lost["per_cpu"].items()
    ]
    texts: dict[str, str] = {}
    for row in cap.issues.table().to_pylist():
        texts.setdefault(row["code"], row["text"])
    facts.append(("issues", "" if doc["issues"] else "none"))
    facts += [("", f"{n:,} × {code}: {texts[code]}") for code, n in doc["issues"].items()]
    return facts
