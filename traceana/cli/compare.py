"""``traceana compare`` (or ``diff``): two captures, or two groups of them, side by side."""

from __future__ import annotations

import functools
import glob
import shlex
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from traceana import output
from traceana.cli.common import check_output, conclude, opened, say, write
from traceana.cli.options import OUTPUT, Options, verb
from traceana.cli.values import choose
from traceana.errors import MissingEventsError, UsageError
from traceana.output import Field, Sheet

if TYPE_CHECKING:
    from traceana._compare_fail import Condition, Outcome
    from traceana._compare_take import Taken
    from traceana.compare import Comparison

__all__ = ["register"]

FORMATS = (*output.FORMATS, "html")
TAKES = (
    "topology", "hz", "ignore", "workload", "time", "read_mode", "fail_on_loss",
)  # fmt: skip
#: Side files that lie in a folder of captures.
_NO_CAPTURES = (".json", ".csv", ".md", ".html", ".txt.sha256", ".tar", ".tar.xz", ".tar.gz")
#: Status when a --fail-on holds.
HELD = 1

FIELDS = (
    Field("scope", "text"),
    Field("metric", "text"),
    Field("unit", "text"),
    Field("a", "float"),
    Field("b", "float"),
    Field("difference", "float"),
    Field("lo", "float"),
    Field("hi", "float"),
    Field("ratio", "float"),
    Field("ratio_lo", "float", shown=False),
    Field("ratio_hi", "float", shown=False),
    Field("effect", "float"),
    Field("effect_kind", "text", shown=False),
    Field("p", "float", shown=False),
    Field("p_adjusted", "float", shown=False),
    Field("excludes_zero", "text", shown=False),
    Field("verdict", "text"),
    Field("real", "text", shown=False),
    Field("beyond_spread", "text", shown=False),
    Field("method", "text", shown=False),
    Field("n_a", "int"),
    Field("n_b", "int"),
    Field("runs_a", "int", shown=False),
    Field("runs_b", "int", shown=False),
)


def register(app: typer.Typer) -> None:
    """Add the verb and its other name to the program."""

    def compare(
        options: Options,
        captures: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="A... [vs] B...",
                help="Two captures; or the repetitions of A, the word vs, those of B. A folder "
                "stands for the captures in it, and a pattern ('base-*.dat') for what fits.",
                show_default=False,
            ),
        ] = None,
        a: Annotated[
            list[str] | None,
            typer.Option(
                "--a", metavar="FILE", show_default=False, help="One more of side A. Repeatable."
            ),
        ] = None,
        b: Annotated[
            list[str] | None,
            typer.Option(
                "--b", metavar="FILE", show_default=False, help="One more of side B. Repeatable."
            ),
        ] = None,
        throughput: Annotated[
            list[str] | None,
            typer.Option(
                "--throughput",
                metavar="FILE|NUMBER|marker:NAME",
                show_default=False,
                help="What the workload itself counted per second, for each capture in turn, A's "
                "first (or once for all where it is a marker): a number, a JSON file (RUN.json, "
                "or rounds and seconds), or a counter in trace_marker. Repeatable.",
            ),
        ] = None,
        fail_on: Annotated[
            list[str] | None,
            typer.Option(
                "--fail-on",
                metavar="EXPR",
                show_default=False,
                help="End with status 1 if this holds: [SCOPE/]METRIC>AMOUNT or <; with a sign it "
                "is the change B - A. 'idle_share>+2pt', 'queue_delay_p99>+10%', "
                "'workload:db/wakeup_latency_p99>200us'. Repeatable.",
            ),
        ] = None,
        fail_on_sure: Annotated[
            list[str] | None,
            typer.Option(
                "--fail-on-sure",
                metavar="EXPR",
                show_default=False,
                help="The same, only if all of the 95 % interval lies beyond the amount. "
                "Repeatable.",
            ),
        ] = None,
        least: Annotated[
            str,
            typer.Option(
                "--least",
                metavar="PERCENT",
                show_default=False,
                help="Smaller relative differences are called small, however sure. Default: 2%.",
            ),
        ] = "2%",
        groups: Annotated[
            bool,
            typer.Option(
                "--groups",
                help="Table: workloads and task families, too (the other formats hold them "
                "anyway).",
                show_default=False,
            ),
        ] = False,
    ) -> int:
        """Set two captures, or two groups of repetitions, side by side: what differs, how surely.

        Idle share, queue delay and wakeup latency, run-queue time, activity, switches,
        migrations by distance, double bookings; all tasks, each workload, each task family.
        With one capture a side the intervals come from within each, and say nothing of how much
        two recordings of the same thing differ; give repetitions for that. Nothing is called
        better or worse: that the workload's own counter decides (--throughput). With -o
        FILE.html (or --format html) a report with figures.
        """
        return _run(
            options,
            _sides(captures or [], a or [], b or []),
            throughput or [],
            _conditions(fail_on or [], fail_on_sure or []),
            _percent(least),
            groups=groups,
        )

    example = "sample_traces/pp6-base.dat sample_traces/pp6-short.dat.xz"
    verb(app, TAKES, OUTPUT, example=f"traceana compare {example}")(compare)

    @functools.wraps(compare)
    def diff(*args: Any, **given: Any) -> int:
        return compare(*args, **given)

    diff.__name__ = "diff"
    diff.__doc__ = f"Do the same as compare.\n\n{(compare.__doc__ or '').partition(chr(10) * 2)[2]}"
    verb(app, TAKES, OUTPUT, example=f"traceana diff {example}")(diff)


# --- what is compared ---


def _sides(
    captures: Sequence[str], a: Sequence[str], b: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The files of either side.

    Raises
    ------
    UsageError
        It is not clear which they are.
    """
    words = [c for c in captures if c != "vs"]
    if len(captures) - len(words) > 1:
        raise UsageError("compare: the word vs stands once, between A's captures and B's")
    if "vs" in captures:
        cut = list(captures).index("vs")
        sides = [*captures[:cut], *a], [*captures[cut + 1 :], *b]
    elif len(words) == 2:
        sides = [words[0], *a], [words[1], *b]
    elif not words:
        sides = list(a), list(b)
    else:
        raise UsageError(
            f"compare: {output.plural(len(words), 'capture')} without the word vs; give two, or "
            "A1 A2 vs B1 B2, or --a FILE and --b FILE"
        )
    left, right = ([f for one in side for f in _files(one)] for side in sides)
    for name, files in (("A", left), ("B", right)):
        if not files:
            raise UsageError(f"compare: no capture on side {name}; give A B, or A1 A2 vs B1 B2")
        twice = [f for f in dict.fromkeys(files) if files.count(f) > 1]
        if twice:
            raise UsageError(f"compare: {twice[0]} is given twice on side {name}")
    return left, right


def _files(text: str) -> list[str]:
    """The captures that one argument stands for."""
    if text == "-":
        raise UsageError("compare: give files; standard input could be only one of them")
    path = Path(text)
    if path.is_dir() and path.suffix != ".traceana" and not (path / "meta.json").exists():
        found = sorted(
            str(p)
            for p in path.iterdir()
            if not p.name.startswith(".")
            and (p.is_file() or p.suffix == ".traceana")
            and not p.name.endswith(_NO_CAPTURES)
        )
        if not found:
            raise UsageError(f"{text}: no capture in this folder")
        return found
    if not path.exists() and any(c in text for c in "*?["):
        fits = glob.glob(text)  # noqa: PTH207  # a pattern as the shell would read it
        found = sorted(f for f in fits if not f.endswith(_NO_CAPTURES))
        if not found:
            raise UsageError(f"{text}: no file fits this pattern")
        return found
    return [text]


def _conditions(fail_on: Sequence[str], sure: Sequence[str]) -> list[Condition]:
    if not (fail_on or sure):
        return []
    from traceana._compare_fail import parse

    return [*(parse(t) for t in fail_on), *(parse(t, sure=True) for t in sure)]


def _percent(text: str) -> float:
    number = text.strip().removesuffix("%").strip()
    if not number.replace(".", "", 1).isdecimal() or not number.isascii() or float(number) >= 100:
        raise UsageError(f"--least {text}: give a percentage, e.g. 2%")
    return float(number) / 100


def _throughputs(given: Sequence[str], n: int) -> list[float | str | None]:
    if not given:
        return [None] * n
    from traceana._compare_throughput import MARKER, read

    if len(given) == 1 and given[0].startswith(MARKER):
        return [read(given[0])] * n
    if len(given) != n:
        raise UsageError(
            f"--throughput: {output.plural(len(given), 'value')} for {output.plural(n, 'capture')}"
            "; give one for each, A's first"
        )
    return [read(text) for text in given]


# --- the comparison ---


def _run(
    options: Options,
    sides: tuple[list[str], list[str]],
    throughput: Sequence[str],
    conditions: Sequence[Condition],
    least: float,
    *,
    groups: bool,
) -> int:
    choose(options.format, FORMATS, "--format")
    if options.format == "table" and options.output.endswith((".html", ".htm")):
        options.format = "html"
    files = [*sides[0], *sides[1]]
    for file in files:
        check_output(replace(options, file=file))
    rates = _throughputs(throughput, len(files))
    taken: list[Taken] = []
    status = 0
    for i, (file, rate) in enumerate(zip(files, rates, strict=True)):
        one = replace(options, file=file, output="-")
        with opened(one) as cap:
            from traceana.compare import take

            taken.append(take(cap, seed=i + 1, throughput=rate))
            status = max(status, conclude(cap, one))
            del cap
    from traceana._compare_fail import judge
    from traceana.compare import compare_taken

    cut = len(sides[0])
    result = compare_taken(taken[:cut], taken[cut:], least=least)
    outcomes = [judge(c, result) for c in conditions]
    write(_text(result, outcomes, options, groups=groups), options)
    return _status(outcomes, status, options)


def _status(outcomes: Sequence[Outcome], status: int, options: Options) -> int:
    """1 where a condition holds; 5 where one could not be judged; else that of the reading."""
    for outcome in outcomes:
        if outcome.holds and not options.quiet:
            say(f"--fail-on: {outcome.condition.text} holds")
        elif outcome.holds is None:
            say(
                f"--fail-on: {outcome.condition.text} cannot be judged: "
                + ("no interval" if outcome.value is not None else "the figure is not known")
            )
    if any(o.holds for o in outcomes):
        return HELD
    if any(o.holds is None for o in outcomes):
        return MissingEventsError.exit_code
    return status


def _text(
    result: Comparison, outcomes: Sequence[Outcome], options: Options, *, groups: bool
) -> str:
    if options.format == "html":
        from traceana.reports.comparison import render

        words = ["traceana", *sys.argv[1:]]
        page: str = render(result, command=shlex.join(words), again=shlex.join(_printed(words)))
        return page
    if options.format == "table":
        return _table(result, outcomes, groups=groups)
    head = result.to_json()
    del head["schema_version"], head["metrics"]
    if outcomes:
        head["fail_on"] = [o.to_json() for o in outcomes]
    rows = [r.to_json() for r in result.rows]
    if options.format == "json":
        document = {**head, "metrics": rows}
        return output.render_facts(document, (), "json")
    cells = [[row[f.name] for f in FIELDS] for row in rows]
    notes = list(result.sentences) if options.format == "md" else []
    return output.render(Sheet("metrics", FIELDS, cells, notes=notes), options.format)


def _printed(words: Sequence[str]) -> list[str]:
    """The command line without what sends the result elsewhere."""
    out: list[str] = []
    skip = False
    for word in words:
        if not skip and word not in ("-o", "--output", "--format", "-f", "--force"):
            if not word.startswith(("--output=", "--format=")):
                out.append(word)
        skip = not skip and word in ("-o", "--output", "--format")
    return out


def _table(result: Comparison, outcomes: Sequence[Outcome], *, groups: bool) -> str:
    from traceana._compare_words import legend, table

    lines: list[str] = []
    for name, side in (("A", result.a), ("B", result.b)):
        for taken in side:
            lines += _wrapped(f"{name}  {_facts(taken.facts)}", "   ")
    lines.append("")
    for sentence in result.sentences:
        lines += _wrapped(f"- {sentence}", "  ")
    for problem in result.problems:
        mark = "!" if problem.grave else "-"
        lines += _wrapped(f"{mark} {problem.text}", "  ")
    lines.append("")
    text = "\n".join(lines) + "\n" + table(result.rows, groups=groups)
    text += "".join(f"{line}\n" for line in ["", *legend(result.rows)])
    others = len(result.scopes) - 1
    if others and not groups:
        text += (
            f"({output.plural(others, 'workload and task family', 'workloads and task families')}"
        )
        text += " more: --groups)\n"
    for o in outcomes:
        words = {True: "holds", False: "does not hold", None: "cannot be judged"}[o.holds]
        text += f"--fail-on{'-sure' if o.condition.sure else ''} {o.condition.text}: {words}\n"
    return text


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        output.escape(text), 100, subsequent_indent=indent, break_on_hyphens=False
    ) or [""]


def _facts(facts: Any) -> str:
    parts = [
        facts["file"],
        f"{output.format_ns(facts['window_ns'])}",
        output.plural(facts["events"], "event"),
        output.plural(facts["cpus"], "CPU"),
        f"Linux {facts['kernel']}" if facts["kernel"] else "kernel not recorded",
        facts["form"],
    ]
    return ", ".join(parts)
