"""``traceana whatif --param-sweep``: one rule at many values of one parameter."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceana import output
from traceana.cli.common import colored, emit, lost_block, say, write
from traceana.errors import UsageError
from traceana.output import Field, Sheet

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.cli.options import Options
    from traceana.sweep import SweepSpec

__all__ = ["answer_sweep", "read_sweep"]

_FIELDS = (
    Field("value", "int", shown=False),
    Field("value_text", "text", "value", width=12),
    Field("fired", "int"),
    Field("moved", "int"),
    Field("moved_share", "share", "moved"),
    Field("moved_possible", "int", "possible"),
    Field("queue_delay_p50_delta_ns", "ns", "p50"),
    Field("queue_delay_p99_delta_ns", "ns", "p99"),
    Field("queue_delay_p99_delta_lo_ns", "ns", "p99 lo"),
    Field("queue_delay_p99_delta_hi_ns", "ns", "p99 hi"),
    Field("queue_delay_sum_delta_ns", "ns", "sum"),
    Field("victims_relieved", "int", "relieved"),
    Field("victims_created", "int", "new"),
)

#: Ends of file names for which a drawing is made.
_DRAWINGS = {".svg": "svg", ".png": "png"}


def read_sweep(text: str, rules: list[str], options: Options) -> SweepSpec:
    """What --param-sweep asks for, checked before a long file is read.

    Raises
    ------
    UsageError
        Not of its form, another --rule than the sweep's beside it.
    """
    from traceana.sweep import parse_sweep

    spec = parse_sweep(text)
    others = [rule for rule in rules if rule != spec.rule]
    if others:
        raise UsageError(
            f"--param-sweep asks {spec.rule} alone; leave --rule {others[0]} out, "
            "or ask for it in a run of its own"
        )
    if options.sort:
        raise UsageError("--param-sweep: rows are in the order of the values; leave --sort out")
    return spec


def answer_sweep(cap: Capture, spec: SweepSpec, params: dict[str, int], options: Options) -> None:
    """Ask, and write a table, JSON or CSV; a drawing where -o names an .svg or .png."""
    from traceana.amounts import in_words
    from traceana.sweep import sweep

    result = sweep(cap, spec, params=params)
    kind = _DRAWINGS.get(Path(options.output).suffix.lower())
    if kind is not None:
        from traceana.reports.figures_sweep import curve

        _write_bytes(curve(result, kind), options)
        target, options.output = options.output, "-"
        if not options.quiet:
            say(f"the curve is in {target}")
    document = {**result.to_json(), "lost": lost_block(cap)}
    if options.format == "json":
        text = output.render_facts(document, (), "json", color=colored(options))
        write(text, options)
        return
    spacing = "a constant factor" if result.geometric else "a constant step"
    notes = [
        f"{result.rule}.{result.parameter}, values spaced by {spacing}; default here "
        f"{in_words(result.default, result.unit)}",
        f"estimated, open loop, of {result.points[0].result.decisions:,} decided wakeups: p50, p99 "
        "and sum are changes of the queue delay,",
        "lo and hi the 95 % interval of the change of p99",
    ]
    if options.limit is None:
        options.limit = 0
    emit(
        Sheet(
            "sweep",
            _FIELDS,
            [_row(p, in_words(p.value, result.unit)) for p in result.points],
            notes=notes,
        ),
        options,
    )


def _row(point: Any, words: str) -> list[Any]:
    r = point.result
    delay = r.queue_delay_ns
    interval = delay["p99"].delta_interval or (None, None)
    deltas = [delay[q].delta for q in ("p50", "p99")]
    numbers = [*deltas, *interval, delay["sum"].delta]
    return [
        point.value,
        words,
        point.fired,
        r.moved,
        r.moved / r.decisions if r.decisions else None,
        r.moved_possible,
        *(None if v is None else round(v) for v in numbers),
        r.victims_relieved,
        r.victims_created,
    ]


def _write_bytes(data: bytes, options: Options) -> None:
    """The file, whole or not at all."""
    output.check_target(options.output, force=options.force)
    path = Path(options.output)
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".traceana-", delete=False) as f:
            f.write(data)
        umask = os.umask(0)
        os.umask(umask)
        Path(f.name).chmod(0o666 & ~umask)
        Path(f.name).replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
