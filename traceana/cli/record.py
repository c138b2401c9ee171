"""``traceana record``: the command that records what the questions need, or the recording."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from traceana import output
from traceana.cli.common import say, write
from traceana.cli.options import Options, verb
from traceana.cli.values import choose
from traceana.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from traceana.record import Machine, Plan

__all__ = ["register"]

_QUESTIONS = ("latency", "placement", "rules", "race")
_TOOLS = ("trace-cmd", "perf", "tracefs")
_CLOCKS = ("mono", "local")


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(app, ("output", "force"), own_default=True, example="traceana record --for latency")
    def record(
        options: Options,
        command: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[--] COMMAND",
                help="Record while this runs (all CPUs, not only the command).",
                show_default=False,
            ),
        ] = None,
        run: Annotated[
            bool, typer.Option("--run", help="Record; without it the command is only printed.")
        ] = False,
        beside: Annotated[
            str | None,
            typer.Option(
                metavar="CAPTURE",
                show_default=False,
                help="Record nothing: store start state, topology and system facts of now "
                "beside this capture.",
            ),
        ] = None,
        sysroot: Annotated[
            str,
            typer.Option(
                metavar="DIR",
                show_default=False,
                help="With --beside: read the /sys and /proc below DIR, e.g. the unpacked tars of "
                "record.sh. Default: those of this machine.",
            ),
        ] = "/",
        questions: Annotated[
            str,
            typer.Option(
                "--for",
                metavar="QUESTION,...",
                show_default=False,
                help="latency, placement, rules, race or all. Default: all.",
            ),
        ] = "all",
        tool: Annotated[
            str | None,
            typer.Option(
                metavar="TOOL",
                show_default=False,
                help="trace-cmd, perf or tracefs. Default: the first that can record here.",
            ),
        ] = None,
        clock: Annotated[
            str,
            typer.Option(
                metavar="CLOCK",
                show_default=False,
                help="mono or local. Default: mono, on which the start state has a place.",
            ),
        ] = "mono",
        seconds: Annotated[
            float,
            typer.Option(metavar="S", show_default=False, help="How long, in s. Default: 10."),
        ] = 10.0,
        rate: Annotated[
            int | None,
            typer.Option(
                metavar="N",
                show_default=False,
                help="Events a second, for the size of the buffers. Default: estimated from the "
                "context switches of a quarter of a second.",
            ),
        ] = None,
        buffer_kb: Annotated[
            int | None,
            typer.Option(
                metavar="KIB", show_default=False, help="Buffer of one CPU. Default: by the rate."
            ),
        ] = None,
        cost: Annotated[
            bool,
            typer.Option(
                "--cost",
                help="Measure what an event costs here: a ping-pong for a second (root, tracefs).",
            ),
        ] = False,
    ) -> int:
        """Print the command that records what the questions need; with --run, record.

        -o names the capture (default: trace.dat, perf.data or trace.txt, by tool).
        Stores beside the capture what no capture holds: CAPTURE.state.json (start state of the
        tasks), CAPTURE.topology.json and CAPTURE.system.json (kernel, scheduler features and
        tunables, bandwidth limits). record.sh does the same where there is no Python.
        """
        wanted = _wanted(questions)
        if tool is not None:
            choose(tool, _TOOLS, "--tool")
        choose(clock, _CLOCKS, "--clock")
        if beside is not None:
            if run or command or cost:
                raise UsageError("--beside records nothing: no --run, --cost or command with it")
            written = _store(beside, clock, None, options, sysroot)
            if not options.quiet:
                say("wrote " + ", ".join(written))
            return 0
        if options.output == "-":
            raise UsageError("-o - : a recording needs a file; side files are stored beside it")
        if sysroot != "/":
            raise UsageError("--sysroot goes with --beside")
        from traceana import record as library

        machine = library.look()
        switches = None if rate is not None else library.measure_switches()
        plan = library.make_plan(
            machine,
            questions=wanted,
            tool=tool or (_usable(machine) if run else None),
            output=options.output or None,
            clock=clock,
            rate=rate,
            switches=switches,
            buffer_kb=buffer_kb,
            seconds=seconds,
            command=command or (),
        )
        options.output = "-"
        source = "given" if rate is not None else "from the switches of now, at least 100000"
        if rate is None and switches is None:
            source = "assumed"
        notes = _notes(plan, wanted, source, library)
        if cost:
            notes.append(_cost(machine, plan))
        reason = library.obstacle(machine, plan.tool)
        if run:
            if reason is not None:
                raise UnsupportedError("this machine", reason)
            if cost and not options.quiet:
                say(notes[-1])
            return _run(plan, library.commands(plan), options)
        flags = f" --clock {clock}" if clock != "mono" else ""
        first = f"traceana record --beside {shlex.quote(plan.output)}{flags}\n"
        text = "".join(f"# {line}".rstrip() + "\n" for line in notes)
        write(text + first + library.commands(plan), options)
        if reason is not None:
            say(f"this command cannot record here: {reason}")
            return UnsupportedError.exit_code
        return 0


def _wanted(text: str) -> tuple[str, ...]:
    names = [choose(n.strip(), (*_QUESTIONS, "all"), "--for") for n in text.split(",")]
    return _QUESTIONS if "all" in names else tuple(q for q in _QUESTIONS if q in names)


def _notes(plan: Plan, wanted: tuple[str, ...], source: str, library: Any) -> list[str]:
    notes = [f"{q}: {library.QUESTIONS[q]}" for q in wanted]
    notes += [
        f"clock {plan.clock}: {library.CLOCKS[plan.clock]}",
        f"buffer: {plan.buffer_kb} KiB a CPU, for {plan.rate} events/s ({source})",
    ]
    if plan.short:
        notes.append("memory does not allow more: events will be lost at this rate and length")
    if plan.tool == "tracefs":
        notes.append("plain tracefs keeps the newest events that fit; nothing empties the ring")
    width = max(len(e.name) for e in plan.events)
    for event in plan.events:
        serves = " ".join(q for q in wanted if q in event.questions)
        notes.append(f"  {event.name:{width}}  {event.why} [{serves}]")
    if plan.missing:
        names = ", ".join(e.name for e in plan.missing)
        notes.append(f"this kernel does not have: {names}")
    return notes


def _cost(machine: Machine, plan: Plan) -> str:
    from traceana._record_cost import cost_per_event

    where = machine.tools.get("tracefs")
    if where is None or not machine.root:
        return "cost: cannot be measured here (root and tracefs)"
    names = [f"{e.system}/{e.name}" for e in plan.events]
    try:
        each, count = cost_per_event(Path(where), names, plan.clock)
    except OSError as error:
        return f"cost: cannot be measured here ({error.strerror or error})"
    share = each * plan.rate / 1e9
    text = f"cost: {each:.0f} ns an event (ping-pong on one CPU, {count} events in ftrace's ring)"
    text += f"; at {plan.rate} events/s {share:.2g} CPUs"
    return text + ("; perf's own ring was not measured" if plan.tool == "perf" else "")


def _usable(machine: Machine) -> str | None:
    """The first tool that the kernel lets work: trace-cmd has to set kernel.ftrace_enabled."""
    from traceana.record import TOOLS, obstacle

    for tool in TOOLS:
        if obstacle(machine, tool) is not None:
            continue
        if tool == "trace-cmd" and not _ftrace_can_be_set():
            say("trace-cmd cannot record here: this kernel lets nobody set kernel.ftrace_enabled")
            continue
        return tool
    return None


def _ftrace_can_be_set() -> bool:
    """Write the value that is there: a locked-down kernel refuses even that."""
    path = Path("/proc/sys/kernel/ftrace_enabled")
    try:
        path.write_text(path.read_text())
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _store(
    capture: str, clock: str, recording: dict[str, Any] | None, options: Options, root: str = "/"
) -> list[str]:
    from traceana.record import store_beside

    if not Path(root, "proc").is_dir() and not Path(root, "sys").is_dir():
        raise UsageError(f"--sysroot {root}: neither proc nor sys is in it")
    written, gaps = store_beside(
        capture, Path(root), mono=clock == "mono", recording=recording, force=options.force
    )
    if not options.quiet:
        for line in gaps:
            say(line)
    return written


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size


def _run(plan: Plan, script: str, options: Options) -> int:
    output.check_target(plan.output, force=options.force)
    about = {
        "tool": plan.tool,
        "clock": plan.clock,
        "buffer_kb": plan.buffer_kb,
        "events": [f"{e.system}:{e.name}" for e in plan.events],
        "events_missing": [f"{e.system}:{e.name}" for e in plan.missing],
        "command": script,
    }
    # Under other names until there is a capture that they belong to.
    for what in ("state", "topology", "system"):
        output.check_target(f"{plan.output}.{what}.json", force=options.force)
    pending = f"{plan.output}.{os.getpid()}"
    written = _store(pending, plan.clock, about, options)
    try:
        status = _record(plan, script)
        names = [plan.output]
        for path in written:
            final = plan.output + path.removeprefix(pending)
            Path(path).replace(final)
            names.append(final)
    finally:
        for path in written:
            Path(path).unlink(missing_ok=True)
    if not options.quiet:
        if status:
            say(f"the recorder or the command ended with status {status}")
        say(f"wrote {', '.join(names)}; next: traceana report {plan.output}")
    return 0


def _record(plan: Plan, script: str) -> int:
    """Run the recorder; its status where it left a capture behind."""
    target = Path(plan.output)
    before = _stamp(target)
    with subprocess.Popen(["/bin/sh", "-e", "-c", script], stdout=subprocess.DEVNULL) as child:
        # Ctrl-C ends the recording, and the recorder writes what it has.
        previous = signal.signal(signal.SIGINT, lambda *_: None)
        try:
            status = child.wait()
        finally:
            signal.signal(signal.SIGINT, previous)
    after = _stamp(target)
    if after is None or after == before or after[1] == 0:
        raise UnsupportedError(
            plan.output,
            f"nothing was recorded: {plan.tool} ended with status {status}",
            hint="its own words are above; another --tool may do",
        )
    return status
