"""``traceana info --quick``: what headers, counters and samples tell, in the form of ``info``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceana import output
from traceana.cli.common import check_output, colored, lost_block, say, spare_pandas, write
from traceana.cli.info import (
    counters_block,
    event_facts,
    head_facts,
    lost_facts,
    question_facts,
)
from traceana.errors import LossError, UsageError

if TYPE_CHECKING:
    from traceana.cli.options import Options
    from traceana.parsers.glimpse import Glimpse

__all__ = ["show_glimpse"]


def show_glimpse(options: Options) -> int | None:
    """Write what a look at the input tells; the exit status, None where it has to be read.

    Raises
    ------
    UsageError
        An option that selects from the events was given.
    InputError
        It cannot be read.
    """
    for given, name in (
        (options.time, "--time"),
        (options.between, "--between"),
        (options.read_mode != "normal", "--read-mode"),
    ):
        if given:
            raise UsageError(f"--quick reads no events: {name} cannot be served")
    source = options.source
    check_output(options)
    if source == "-":
        return None
    spare_pandas()
    found = _look(Path(source), options.buffer)
    if found is None:
        return None
    document = _describe(found, options)
    facts = _facts(found, document)
    write(output.render_facts(document, facts, options.format, color=colored(options)), options)
    if found.damaged:
        say(f"{source}: cut or damaged; more is told without --quick")
        return LossError.exit_code
    return 0


def _look(path: Path, buffer: str | None) -> Glimpse | None:
    if path.is_dir():
        from traceana import store

        return store.glimpse(path) if store.is_store(path) else None
    from traceana.parsers.glimpse import glimpse

    return glimpse(path, buffer)


def _describe(found: Glimpse, options: Options) -> dict[str, Any]:
    """The object that ``info --quick --format json`` prints: the keys of ``info``."""
    from traceana import topology as topo
    from traceana.issues import IssueLog
    from traceana.questions import answers
    from traceana.start_state import find

    meta = found.meta
    side = Path(options.topology) if options.topology else topo.find_side_file(Path(options.source))
    table = found.topology if side is None else topo.load_side_file(side, IssueLog())
    origins = [] if table is None else sorted(set(table.column("origin").to_pylist()))
    has_time = meta.clock_unit not in ("count", "cycles")
    span = found.span if has_time else None
    counts = {k: n for k, n in found.counts.items() if n}
    lost = lost_block(found)
    for key in ("events", "marks"):
        if f"lost.{key}" in found.unknown:
            lost[key] = None
    state = options.start_state or find(Path(options.source))
    told = answers(
        [name for name in counts if name not in options.ignore],
        topology=table is not None,
        start_state=state is not None,
        has_time=has_time,
    )
    return {
        "form": meta.form,
        "tool": meta.tool,
        "kernel": options.kernel or meta.kernel,
        "machine": meta.machine,
        "cpus": meta.cpus_present,
        "cpus_online": meta.cpus_online,
        "llcs": None if table is None else len(set(table.column("llc").to_pylist())),
        "cores": None if table is None else len(set(table.column("core").to_pylist())),
        "topology_origin": origins[0] if len(origins) == 1 else origins or None,
        "clock": meta.clock,
        "clock_unit": meta.clock_unit,
        "hz": meta.hz,
        "span_ns": None if span is None else span[1] - span[0],
        "events": counts,
        "lost": lost,
        "counters": counters_block(found.lost.counters),
        "windows": None,
        "activity": None,
        "questions": [answer.to_json() for answer in told],
        "quick": True,
        "estimated": sorted(found.estimated),
        "unknown": sorted(found.unknown),
        "sampled_bytes": found.sampled_bytes,
        "total_bytes": found.total_bytes,
        "damaged": found.damaged,
        "issues": dict(sorted(found.issues.counts().items())),
    }


def _facts(found: Glimpse, doc: dict[str, Any]) -> list[tuple[str, str]]:
    """The same for a reader."""
    span = doc["span_ns"]
    about = "about " if "span_ns" in found.estimated else ""
    facts = head_facts(doc)
    facts.append(("span", f"{about}{output.format_ns(span)}" if span is not None else "not known"))
    if "events" in found.unknown:
        facts.append(("events", "not counted: compressed"))
    else:
        facts += event_facts(doc)
    if "lost.events" in found.unknown:
        facts.append(("lost", "not looked for"))
    elif "lost.marks" in found.unknown:
        n = doc["lost"]["events"]
        dropped = output.plural(n, "event")
        over = sum(c.overwritten or 0 for c in found.lost.counters.values())
        facts.append(
            ("lost", f"by the recorder's counters {dropped} dropped, {over:,} overwritten")
        )
    else:
        facts += lost_facts({**doc, "counters": None})
    facts += question_facts(doc)
    texts: dict[str, str] = {}
    for row in found.issues.table().to_pylist():
        texts.setdefault(row["code"], row["text"])
    facts += [
        ("issues" if i == 0 else "", f"{n:,} × {code}: {texts[code]}")
        for i, (code, n) in enumerate(doc["issues"].items())
    ]
    facts.append(("quick", _how(found)))
    return facts


def _how(found: Glimpse) -> str:
    """What the figures rest on."""
    if not found.total_bytes:
        return "from what the store tells of itself"
    if found.estimated:
        share = 100 * found.sampled_bytes / found.total_bytes
        return (
            f"from headers, counters and a sample of {share:.2g} % of the data; what is not in "
            "the sample is not seen, without --quick all is exact"
        )
    return "from headers, counters and the data's ends; without --quick all is exact"
