"""The options that verbs share, and how a verb is registered.

A verb is a function ``(options: Options, its own parameters) -> exit status``, registered by
:func:`verb` with the names of the common options it takes.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from traceana.cli.values import choose
from traceana.errors import UsageError

__all__ = ["DEFAULT_OUTPUT", "INPUT", "OUTPUT", "READ_MODES", "ROWS", "SHOWN", "Options", "verb"]


#: As in traceana.capture, which is not imported before a verb runs.
READ_MODES = ("normal", "strict", "switch-only")

#: No -o was given: standard output, where a verb has no better idea.
DEFAULT_OUTPUT = ""


@dataclass
class Options:
    """The common options as given; a verb that does not take one sees its default."""

    file: str | None = None
    input: str | None = None
    buffer: str | None = None
    topology: str | None = None
    start_state: str | None = None
    hz: int | None = None
    kernel: str | None = None
    ignore: list[str] = dataclasses.field(default_factory=list)
    workload: list[str] = dataclasses.field(default_factory=list)
    time: str | None = None
    between: tuple[str, str] | None = None
    read_mode: str = "normal"
    fail_on_loss: bool = False
    redact: bool = False
    cpu: str | None = None
    pid: str | None = None
    tid: str | None = None
    comm: list[str] = dataclasses.field(default_factory=list)
    sort: str | None = None
    limit: int | None = None
    output: str = DEFAULT_OUTPUT
    force: bool = False
    format: str = "table"
    color: str = "auto"
    quiet: bool = False
    verbose: bool = False
    debug: bool = False

    @property
    def source(self) -> str:
        """The one input, given as an argument or by -i."""
        if self.file is not None and self.input is not None:
            raise UsageError(f"two inputs: {self.file} and -i {self.input}; give one of them")
        source = self.file if self.file is not None else self.input
        if source is None:
            raise UsageError("no input: name a capture, or - for standard input")
        if not source:
            raise UsageError("the name of the input is empty")
        return source


def _option(group: str, *names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(
        *names, help=help, metavar=metavar, rich_help_panel=group, show_default=False
    )


_IN, _SEL, _OUT, _MSG = "Input", "Selection of rows shown", "Output", "Messages"

#: Name of a field of Options -> its type with the option's declaration.
_DECLARED: dict[str, Any] = {
    "file": Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="Capture (trace.dat, perf.data, their texts, .xz/.gz/.zst of them), or a "
            ".traceana store; - is standard input.",
            show_default=False,
        ),
    ],
    "input": Annotated[
        str | None, _option(_IN, "-i", "--input", metavar="FILE", help="The same as FILE.")
    ],
    "buffer": Annotated[
        str | None,
        _option(
            _IN,
            "--buffer",
            metavar="NAME",
            help="Which buffer of a trace.dat: an instance's name, top, or all (merged, each event "
            "once). Default: the top one, or the first that holds scheduler events.",
        ),
    ],
    "topology": Annotated[
        str | None,
        _option(
            _IN,
            "--topology",
            metavar="FILE",
            help="Which CPUs share what: JSON, output of lscpu -p=CPU,CORE,SOCKET,NODE,CACHE, or "
            "a tar or folder of /sys/devices/system. Default: FILE.topology.json beside the "
            "capture, else its own header, else one LLC without SMT.",
        ),
    ],
    "start_state": Annotated[
        str | None,
        _option(
            _IN,
            "--start-state",
            metavar="FILE",
            help="Per task: dur_avg, wakee_flips, ... at the begin of the capture. Default: "
            "FILE.state.json beside it, else unknown.",
        ),
    ],
    "hz": Annotated[
        int | None,
        _option(
            _IN,
            "--hz",
            metavar="N",
            help="CONFIG_HZ of the recorded kernel. Default: as the capture tells, else assumed.",
        ),
    ],
    "kernel": Annotated[
        str | None,
        _option(
            _IN,
            "--kernel",
            metavar="RELEASE",
            help="Release of the recorded kernel, as uname -r says it, where the capture does not.",
        ),
    ],
    "ignore": Annotated[
        list[str],
        _option(
            _IN,
            "--ignore",
            metavar="EVENT",
            help="As if this event had not been recorded, e.g. sched_stat_runtime. Repeatable.",
        ),
    ],
    "workload": Annotated[
        list[str],
        _option(
            _IN,
            "--workload",
            metavar="NAME=GLOB",
            help="Group the tasks whose name matches. Repeatable. Default: families of names.",
        ),
    ],
    "time": Annotated[
        str | None,
        _option(
            _IN,
            "--time",
            metavar="START,STOP",
            help="Only this span: seconds as trace-cmd report prints them, either end open "
            "('8.62,' ',8.7'), or percents of the span ('10%-20%').",
        ),
    ],
    "between": Annotated[
        tuple[str, str] | None,
        _option(
            _IN,
            "--between",
            metavar="MARK1 MARK2",
            help="Only the span from the first marker (text written to trace_marker) that holds "
            "MARK1 to the next one that holds MARK2.",
        ),
    ],
    "read_mode": Annotated[
        str,
        _option(
            _IN,
            "--read-mode",
            metavar="MODE",
            help="What to do about records that contradict each other. normal: repair and count "
            "them; strict: stop at the first with status 7 and show both; switch-only: use "
            "sched_switch and nothing else. Default: normal.",
        ),
    ],
    "fail_on_loss": Annotated[
        bool,
        _option(_IN, "--fail-on-loss", help="End with status 4 if the recorder lost events."),
    ],
    "redact": Annotated[
        bool,
        _option(
            _IN,
            "--redact",
            help="Stable labels instead of names of tasks, thread and process ids, and the host; "
            "--comm, --pid and --tid then mean the labels, --workload the true names.",
        ),
    ],
    "cpu": Annotated[
        str | None,
        _option(_SEL, "-C", "--cpu", metavar="LIST", help="Rows of these CPUs, e.g. 0,3,8-15."),
    ],
    "pid": Annotated[
        str | None,
        _option(
            _SEL,
            "-p",
            "--pid",
            metavar="LIST",
            help="Rows of these processes (thread groups; where the capture has no thread "
            "groups, the threads with these ids).",
        ),
    ],
    "tid": Annotated[
        str | None, _option(_SEL, "-t", "--tid", metavar="LIST", help="Rows of these threads.")
    ],
    "comm": Annotated[
        list[str],
        _option(_SEL, "--comm", metavar="GLOB", help="Rows of tasks so named. Repeatable."),
    ],
    "sort": Annotated[
        str | None,
        _option(_OUT, "-s", "--sort", metavar="KEY[,KEY]", help="Order of the rows."),
    ],
    "limit": Annotated[
        int | None,
        _option(
            _OUT,
            "-n",
            "--limit",
            metavar="N",
            help="At most N rows; 0 = all. Default: 25 in a table, all in the other formats.",
        ),
    ],
    "output": Annotated[
        str,
        _option(_OUT, "-o", "--output", metavar="FILE", help="Write there; - is standard output."),
    ],
    "force": Annotated[bool, _option(_OUT, "-f", "--force", help="Overwrite the output.")],
    "format": Annotated[
        str,
        _option(
            _OUT,
            "--format",
            metavar="FORMAT",
            help="table, csv, json, ndjson or md. Default: table.",
        ),
    ],
    "color": Annotated[
        str,
        _option(_MSG, "--color", metavar="WHEN", help="auto, always or never. Default: auto."),
    ],
    "quiet": Annotated[bool, _option(_MSG, "-q", "--quiet", help="No warnings, no progress.")],
    "verbose": Annotated[
        bool, _option(_MSG, "-v", "--verbose", help="Everything lost, repaired or assumed.")
    ],
    "debug": Annotated[bool, _option(_MSG, "--debug", help="Show tracebacks.")],
}

INPUT = (
    "input", "buffer", "topology", "start_state", "hz", "kernel", "ignore", "workload", "time",
    "between", "read_mode", "fail_on_loss", "redact",
)  # fmt: skip
SHOWN = ("cpu", "pid", "tid", "comm")
ROWS = ("sort", "limit")
OUTPUT = ("output", "force", "format")
_MESSAGES = ("color", "quiet", "verbose", "debug")


class _VerbCommand(TyperCommand):
    """Help with the options in groups, each under its own heading."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                argument = param.param_type_name == "argument"
                group = getattr(param, "rich_help_panel", None)
                title = "Arguments" if argument else group or "Options"
                groups.setdefault(title, []).append(record)
        order = ["Arguments", "Options", _IN, _SEL, _OUT, _MSG]
        for title in sorted(groups, key=lambda t: order.index(t) if t in order else 1):
            with formatter.section(title):
                formatter.write_dl(groups[title])


def verb(
    app: typer.Typer, *takes: Sequence[str], example: str, own_default: bool = False
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Register a verb.

    Parameters
    ----------
    app : Typer
    takes : sequences of str
        Names of the common options it takes; FILE and the options on messages always are.
    example : str
        A command that works on the shipped samples; the first thing that --help shows.
    own_default : bool
        The verb has a place of its own for its result where there is no -o.
    """
    names = [n for group in takes for n in group]
    common = [*(["file"] if "input" in names else []), *names, *_MESSAGES]

    def register(function: Callable[..., int]) -> Callable[..., int]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()

        def call(**given: Any) -> int:
            options = Options(**{n: given.pop(n) for n in common})
            if options.output == DEFAULT_OUTPUT and not own_default:
                options.output = "-"
            choose(options.color, ("auto", "always", "never"), "--color")
            choose(options.read_mode, READ_MODES, "--read-mode")
            return function(options, **given)

        defaults = Options()
        shared = [
            inspect.Parameter(
                n,
                inspect.Parameter.KEYWORD_ONLY,
                default=getattr(defaults, n),
                annotation=_DECLARED[n],
            )
            for n in common
        ]
        own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        parameters = [*shared[:1], *own, *shared[1:]]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        first, _, rest = (inspect.getdoc(function) or "").partition("\n\n")
        text = f"{first}\n\n\b\nExample:\n  {example}"
        call.__doc__ = text + (f"\n\n{rest}" if rest else "")
        app.command(function.__name__, cls=_VerbCommand, short_help=first)(call)
        return function

    return register
