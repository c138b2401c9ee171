"""How a verb opens its capture, writes its result, and ends.

Nothing here or in the verbs imports Arrow, numba or a dataframe library before a verb runs.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceana import output
from traceana.cli.progress import Progress, erase
from traceana.cli.values import choose, parse_time, parse_workloads
from traceana.errors import InputError, LossError, UsageError

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.cli.options import Options
    from traceana.parsers.glimpse import Glimpse

__all__ = [
    "check_output",
    "check_rows",
    "colored",
    "conclude",
    "emit",
    "lost_block",
    "opened",
    "say",
    "spare_pandas",
    "timed",
    "write",
]


def say(text: str) -> None:
    """One line on stderr, named and made harmless."""
    erase()
    lines = [output.escape(line) for line in text.splitlines()] or [""]
    if sys.stderr is not None:
        sys.stderr.write("traceana: " + "\n  ".join(lines) + "\n")
        sys.stderr.flush()


@contextmanager
def _spooled(source: str) -> Iterator[str]:
    """A path for the source: standard input that cannot be opened anew is copied to a file."""
    if source != "-":
        yield source
        return
    if sys.stdin is None:
        raise UsageError("standard input is closed; name a capture")
    if sys.stdin.isatty():
        raise UsageError("standard input is a terminal; name a capture")
    if stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
        yield "/dev/stdin"
        return
    with tempfile.TemporaryDirectory(prefix="traceana-") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy, 1 << 20)
        try:
            yield str(path)
        except InputError as error:
            error.args = (str(error).replace(str(path), "standard input"),)
            raise


class _NoPandas:
    """A finder that says: there is no pandas."""

    @staticmethod
    def find_spec(name: str, path: Any, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas, which takes 0.2 s and is needed by no verb.

    pyarrow asks whether there is pandas when the first list becomes an array, and remembers
    the answer. Only for the program: a library must not decide this for its user.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)


def check_output(options: Options) -> None:
    """Refuse an output that cannot be written, or that is the capture itself."""
    if options.output in ("-", ""):
        return
    output.check_target(options.output, force=options.force)
    target, given = Path(options.output), Path(options.source)
    if target.exists() and given.exists() and target.samefile(given):
        raise UsageError(f"{options.output} is the capture itself; it is not overwritten")


@contextmanager
def opened(options: Options) -> Iterator[Capture]:
    """The capture that the options name, with a progress bar while it is read."""
    source = options.source
    check_output(options)
    if options.hz is not None and not 0 < options.hz <= 100_000:
        raise UsageError(f"--hz {options.hz}: give CONFIG_HZ, e.g. 250 or 1000")
    window = parse_time(options.time) if options.time is not None else None
    workloads = parse_workloads(options.workload)
    with _spooled(source) as path, Progress(quiet=options.quiet) as progress:
        spare_pandas()
        from traceana import capture

        yield capture.open(
            path,
            buffer=options.buffer,
            topology=options.topology,
            start_state=options.start_state,
            hz=options.hz,
            kernel=options.kernel,
            ignore=tuple(options.ignore),
            time=window,
            workload=workloads,
            progress=progress,
            read_mode=options.read_mode,
            redact=options.redact,
            between=options.between,
        )


def timed(cap: Capture, needed_for: str) -> None:
    """Refuse a question about durations where the clock only counts."""
    if not cap.has_time:
        from traceana.errors import UnsupportedError

        raise UnsupportedError(
            cap.path,
            f"clock {cap.meta.clock!r} is no time: {needed_for} has no durations to show",
            hint="record with trace_clock local, global or mono; `info` works",
        )


def colored(options: Options) -> bool:
    """Whether the result may carry colour."""
    if options.color != "auto":
        return options.color == "always"
    return (
        _terminal(options) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def _terminal(options: Options) -> bool:
    return options.output == "-" and sys.stdout is not None and sys.stdout.isatty()


def check_rows(options: Options, fields: Sequence[output.Field]) -> None:
    """Refuse wrong values of --format, --sort and -n before a long file is read."""
    choose(options.format, output.FORMATS, "--format")
    if options.sort:
        for key in options.sort.split(","):
            _sort_key(key, fields)
    if options.limit is not None and options.limit < 0:
        raise UsageError(f"-n {options.limit}: give the number of rows, or 0 for all")


def _sort_key(key: str, fields: Sequence[output.Field]) -> int:
    """The column that a key names; the unit at its end may be left out."""
    names = [f.name for f in fields]
    key = key.strip()
    if f"{key}_ns" in names:
        key += "_ns"
    return names.index(choose(key, names, "--sort"))


def emit(sheet: output.Sheet, options: Options) -> None:
    """Order, cut and write a result's rows as the options say."""
    for key in reversed(options.sort.split(",") if options.sort else []):
        _sort(sheet, _sort_key(key, sheet.fields))
    if not sheet.rows and not options.quiet:
        say("nothing to show: no row fits (see --cpu, --pid, --tid, --comm, --time)")
    limit = options.limit
    if limit is None:
        limit = 25 if options.format == "table" else 0
    if limit and len(sheet.rows) > limit:
        sheet.more = len(sheet.rows) - limit
        sheet.rows = sheet.rows[:limit]
    width = shutil.get_terminal_size((100, 24)).columns if _terminal(options) else 0
    text = output.render(sheet, options.format, color=colored(options), width=width)
    write(text, options)


def write(text: str, options: Options) -> None:
    """Write a result where the options say."""
    erase()
    output.write_text(text, options.output, force=options.force)


def _sort(sheet: output.Sheet, column: int) -> None:
    """Stable, unknown values last; numbers from large to small, texts from a to z."""
    text = sheet.fields[column].kind == "text"
    known = [r for r in sheet.rows if r[column] is not None]
    known.sort(key=lambda r: r[column], reverse=not text)
    sheet.rows = known + [r for r in sheet.rows if r[column] is None]


def lost_block(cap: Capture | Glimpse) -> dict[str, Any]:
    """Losses that the recorder admits, as they stand in JSON."""
    lost = cap.lost
    return {
        "events": lost.events,
        "marks": lost.marks,
        "per_cpu": {str(cpu): n for cpu, n in sorted(lost.per_cpu.items())},
    }


def conclude(cap: Capture, options: Options) -> int:
    """Say what was lost, and the exit status that follows from it (after the result is out)."""
    lost = cap.lost
    if not options.quiet:
        _warn_of_losses(cap)
        if options.verbose:
            for text in cap.issues.texts():
                say(text)
    if cap.damaged:
        texts = cap.issues.texts()
        say(
            f"{options.source}: cut or damaged; the result is of what could be read"
            + ("" if options.verbose or not texts else " (what was met: `traceana info`)")
        )
        return LossError.exit_code
    if options.fail_on_loss and (lost.marks or lost.events):
        say("events were lost, and --fail-on-loss was given")
        return LossError.exit_code
    return 0


def _warn_of_losses(cap: Capture) -> None:
    lost = cap.lost
    if not (lost.marks or lost.events):
        return
    where = f" on {output.plural(len(lost.per_cpu), 'CPU')}" if lost.per_cpu else ""
    if lost.events is None:
        amount = f"events were lost at {output.plural(lost.marks, 'place')}"
    else:
        total = sum(cap.counts.values()) + lost.events
        share = f" ({100 * lost.events / total:.2g} %)" if total else ""
        amount = f"{output.plural(lost.events, 'event')} lost{share}"
    say(
        f"warning: {amount}{where}; what spans a loss is left out of waits and slices "
        "(see the losses in `info`)"
    )
