"""``traceana idle``: where idle time went, and whether somebody waited meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from traceana.cli.common import check_rows, conclude, emit, lost_block, opened, timed
from traceana.cli.options import INPUT, OUTPUT, ROWS, Options, verb
from traceana.cli.values import Shown
from traceana.output import Field, Sheet, format_ns, plural

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.idle_time import MachineIdle

__all__ = ["register"]

PER_CPU = (
    Field("cpu", "int"),
    Field("gaps", "int"),
    Field("idle_ns", "ns", "idle"),
    Field("idle_share", "share", "idle"),
    Field("idle_share_max", "share", shown=False),
    Field("unknown_ns", "ns", "unknown"),
    Field("waited_llc_ns", "ns", "waited in LLC"),
    Field("waited_llc_share", "share", "of idle"),
    Field("waited_busy_llc_ns", "ns", "behind another"),
    Field("waited_any_ns", "ns", shown=False),
    Field("gap_p50_ns", "ns", "gap p50"),
    Field("gap_max_ns", "ns", "max"),
    Field("gap_max_at_ns", "ts", "at"),
)

EACH = (
    Field("gap", "int", "id"),
    Field("cpu", "int"),
    Field("start", "ts"),
    Field("end", "ts"),
    Field("length_ns", "ns", "length"),
    Field("cpu_idle_state", "int", "state"),
    Field("waited_llc_ns", "ns", "waited in LLC"),
    Field("waited_busy_llc_ns", "ns", "behind another", shown=False),
    Field("waited_any_ns", "ns", "waited anywhere"),
    Field("ended_by", "int", "ended by"),
)


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(app, INPUT, ("cpu",), ROWS, OUTPUT, example="traceana idle sample_traces/pp6-base.dat")
    def idle(
        options: Options,
        rows: Annotated[
            bool,
            typer.Option("--rows", help="Each gap instead of each CPU.", show_default=False),
        ] = False,
    ) -> int:
        """Show idle time per CPU, and how long a task waited elsewhere meanwhile.

        Idle means that the CPU's idle task is current, by sched_switch. "Waited": while this
        CPU was idle, some task was runnable but not running on another CPU of the same LLC;
        "behind another": on a CPU that was running somebody else. The analysis sees all CPUs;
        --cpu selects the rows shown.
        """
        check_rows(options, EACH if rows else PER_CPU)
        shown = Shown.of(options)
        with opened(options) as cap:
            from traceana.errors import MissingEventsError

            timed(cap, "idle")
            if not cap.counts.get("sched_switch"):
                raise MissingEventsError(("sched_switch",), "idle")
            sheet = _each(cap, shown) if rows else _per_cpu(cap, shown)
            emit(sheet, options)
            return conclude(cap, options)


def _each(cap: Capture, shown: Shown) -> Sheet:
    cells = []
    for row in cap.timeline().idle_gaps.to_pylist():
        if not shown.cpu(row["cpu"]):
            continue
        ends = row["start"], row["end"]
        row["length_ns"] = None if None in ends else ends[1] - ends[0]
        cells.append([row[f.name] for f in EACH])
    return Sheet("idle_gaps", EACH, cells, head={"lost": lost_block(cap)})


def _per_cpu(cap: Capture, shown: Shown) -> Sheet:
    from traceana.idle_time import machine_idle
    from traceana.summary import idle_rows

    rows = idle_rows(cap.timeline(), cap.topology.column("cpu").to_pylist())
    rows = [row for row in rows if shown.cpu(row["cpu"])]
    notes: list[str] = []
    known = [r for r in rows if r["idle_ns"] is not None]
    online = cap.topology.filter(cap.topology.column("online")).column("cpu").to_pylist()
    whole = machine_idle(cap.timeline(), online, only=shown.cpus)
    head: dict[str, Any] = {
        "span_ns": cap.span_ns,
        "window_ns": whole.window_ns or None,
        "idle_share": whole.share,
        "idle_share_lo": whole.lo,
        "idle_share_hi": whole.hi,
        "lost": lost_block(cap),
    }
    if whole.share is not None:
        notes.append(_sentence(whole, known))
    if len(known) < len(rows):
        silent = plural(len(rows) - len(known), "CPU")
        notes.append(f"{silent} without an event: idle or not is not known")
    cells = [[r[f.name] for f in PER_CPU] for r in rows]
    return Sheet("cpus", PER_CPU, cells, head=head, notes=notes)


def _sentence(whole: MachineIdle, known: list[dict[str, Any]]) -> str:
    """All CPUs together, in the words that the report uses."""
    assert whole.share is not None and whole.lo is not None and whole.hi is not None
    length = format_ns(whole.window_ns)
    text = f"{plural(whole.known, 'CPU')} idle {100 * whole.share:.1f} % of "
    text += f"the {length} that all CPUs' data have in common" if whole.common else length
    if whole.hi - whole.lo >= 0.0005:
        text += (
            f" as far as it is known (of all CPUs and the whole span between {100 * whole.lo:.1f} "
            f"and {100 * whole.hi:.1f} %)"
        )
    total = sum(r["idle_ns"] for r in known)
    waits = [r["waited_llc_ns"] for r in known]
    if None in waits:
        text += "; whether a task waited meanwhile is not known without sched_wakeup"
    elif total:
        text += f"; during {100 * sum(waits) / total:.1f} % of it a task waited in the same LLC"
    return text
