"""``traceana synth``: a synthetic workload, simulated and written as a store of events."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from traceana import output
from traceana.cli.common import check_rows, colored, say, spare_pandas, write
from traceana.cli.options import OUTPUT, Options, verb
from traceana.cli.progress import Progress
from traceana.cli.simulate import check_store
from traceana.errors import UsageError

__all__ = ["register"]

_COUNTS = (
    "pairs", "groups", "fds", "depth", "clients", "fronts", "servers", "messages", "workers",
    "fanout", "hogs", "timers",
)  # fmt: skip
_DRAWS = ("burst", "tail", "work", "think")


def _count(name: str) -> Any:
    return typer.Option(f"--{name}", metavar="N", show_default=False, help=_HELP[name])


def _draw(name: str) -> Any:
    return typer.Option(f"--{name}", metavar="DIST", show_default=False, help=_HELP[name])


_HELP = {
    "pairs": "Pairs that wake each other (pingpong, mixed).",
    "groups": "Groups (hackbench).",
    "fds": "Senders, and receivers, of a group (hackbench).",
    "depth": "Messages under way from a sender to a receiver (hackbench).",
    "clients": "Clients (proxy, reqresp).",
    "fronts": "Fronts (proxy).",
    "servers": "Servers (reqresp).",
    "messages": "Message threads (schbench).",
    "workers": "Workers of each front or message thread (proxy, schbench).",
    "fanout": "Workers that a request needs (proxy).",
    "hogs": "Tasks that never sleep (mixed).",
    "timers": "Tasks that a timer wakes (mixed).",
    "burst": "CPU time between wakeups: 500ns, uniform:1us,5us, exp:20us (mean), quantiles:A,B,…",
    "tail": "CPU time from a wakeup to the sleep that follows (pingpong, mixed).",
    "work": "CPU time of servers, workers, receivers, timers.",
    "think": "Sleep of clients and timers.",
}


def register(app: typer.Typer) -> None:
    """Add the verb to the program."""

    @verb(
        app,
        OUTPUT,
        example="traceana synth pingpong --pairs 6 --cpus 1x4x2",
    )
    def synth(
        options: Options,
        family: Annotated[
            str,
            typer.Argument(
                metavar="FAMILY",
                help="pingpong, hackbench, proxy, reqresp, schbench, mixed or yieldto.",
                show_default=False,
            ),
        ],
        cpus: Annotated[
            str,
            typer.Option(
                "--cpus",
                metavar="SOCKETSxCORESxTHREADS",
                show_default=False,
                help="The machine; an LLC and a node a socket. Default: 1x4x2.",
            ),
        ] = "1x4x2",
        pairs: Annotated[int | None, _count("pairs")] = None,
        groups: Annotated[int | None, _count("groups")] = None,
        fds: Annotated[int | None, _count("fds")] = None,
        depth: Annotated[int | None, _count("depth")] = None,
        clients: Annotated[int | None, _count("clients")] = None,
        fronts: Annotated[int | None, _count("fronts")] = None,
        servers: Annotated[int | None, _count("servers")] = None,
        messages: Annotated[int | None, _count("messages")] = None,
        workers: Annotated[int | None, _count("workers")] = None,
        fanout: Annotated[int | None, _count("fanout")] = None,
        hogs: Annotated[int | None, _count("hogs")] = None,
        timers: Annotated[int | None, _count("timers")] = None,
        burst: Annotated[str | None, _draw("burst")] = None,
        tail: Annotated[str | None, _draw("tail")] = None,
        work: Annotated[str | None, _draw("work")] = None,
        think: Annotated[str | None, _draw("think")] = None,
        rule: Annotated[
            str,
            typer.Option(
                "--rule",
                metavar="NAME",
                show_default=False,
                help="Rule of the simulated kernel. Default: mainline.",
            ),
        ] = "mainline",
        kernel: Annotated[
            str,
            typer.Option(
                "--kernel",
                metavar="RELEASE",
                show_default=False,
                help="Release of the simulated kernel. Default: 6.1.192.",
            ),
        ] = "6.1.192",
        time: Annotated[
            str,
            typer.Option(
                "--time",
                metavar="TIME",
                show_default=False,
                help="Simulated time that is kept. Default: 50ms.",
            ),
        ] = "50ms",
        warm_up: Annotated[
            str,
            typer.Option(
                "--warm-up",
                metavar="TIME",
                show_default=False,
                help="Simulated time before it. Default: 300ms.",
            ),
        ] = "300ms",
        seed: Annotated[
            int,
            typer.Option("--seed", metavar="N", show_default=False, help="Default: 1."),
        ] = 1,
        window: Annotated[
            int,
            typer.Option(
                "--window",
                metavar="0|1",
                show_default=False,
                help="0: bookings are seen at once. Default: 1.",
            ),
        ] = 1,
        tunable: Annotated[
            list[str] | None,
            typer.Option(
                "--tunable",
                metavar="NAME=VALUE",
                show_default=False,
                help="As of `traceana simulate`; also yield_form=plain, slice, min_granularity or "
                "second. Repeatable.",
            ),
        ] = None,
        workload: Annotated[
            bool,
            typer.Option(
                "--workload",
                show_default=False,
                help="Write the scripts alone, nothing is simulated.",
            ),
        ] = False,
    ) -> int:
        """Simulate a synthetic workload of which all is known, on any machine.

        Prints what was simulated. With -o FOLDER.traceana the events are written as a store, which
        every verb reads; --workload writes the scripts instead.
        """
        check_rows(options, ())
        given = {
            "pairs": pairs, "groups": groups, "fds": fds, "depth": depth, "clients": clients,
            "fronts": fronts, "servers": servers, "messages": messages, "workers": workers,
            "fanout": fanout, "hogs": hogs, "timers": timers, "burst": burst, "tail": tail,
            "work": work, "think": think,
        }  # fmt: skip
        params = {name: value for name, value in given.items() if value is not None}
        run = {
            "rule": rule, "kernel": kernel, "time": time, "warm_up": warm_up, "seed": seed,
            "window": window, "tunable": tunable or [],
        }  # fmt: skip
        return _answer(options, family, cpus, params, run, scripts=workload)


def _answer(
    options: Options,
    family: str,
    cpus: str,
    params: dict[str, Any],
    run: dict[str, Any],
    *,
    scripts: bool,
) -> int:
    target = options.output.rstrip("/")
    store_wanted = target.endswith(".traceana") or (scripts and target != "-")
    if scripts and target == "-":
        raise UsageError("--workload: name the folder with -o")
    if store_wanted:
        check_store(target, force=options.force)
        options.output = "-"
    seed, window = run["seed"], run["window"]
    if not 0 <= seed < 1 << 31:
        raise UsageError(f"--seed {seed}: 0 to 2147483647")
    if window not in (0, 1):
        raise UsageError(f"--window {window}: 0 or 1")
    spare_pandas()
    from traceana import closed_loop, synth, tunables
    from traceana._synth_draws import parse_duration
    from traceana.simulate import Model
    from traceana.thresholds import kernel_number

    made = synth.make(family, cpus=cpus, seed=seed, **params)
    if scripts:
        made.save(target)
        return 0
    span, warm_up = (
        parse_duration(run["time"], "--time"),
        parse_duration(run["warm_up"], "--warm-up"),
    )
    if span < 1_000_000:
        raise UsageError(f"--time {run['time']}: at least 1ms")
    if kernel_number(run["kernel"]) == 0:
        raise UsageError(f"--kernel {run['kernel']}: give a release such as 6.1")
    yields = [t for t in run["tunable"] if t.startswith("yield_form=")]
    changes = tunables.parse([t for t in run["tunable"] if t not in yields])
    if yields:
        form = yields[-1].partition("=")[2]
        if form not in tunables.YIELD_FORMS:
            raise UsageError(f"--tunable {yields[-1]}: one of {', '.join(tunables.YIELD_FORMS)}")
        changes["yield_form"] = form
    model = Model(release=run["kernel"], rule=run["rule"], window=window).with_(**changes)
    with Progress(quiet=options.quiet, unit="ms") as progress:
        figures, ran, cap = closed_loop.run_once(
            made, model, seed=seed, span_ns=span, warm_up_ns=warm_up, on_progress=progress
        )
    if store_wanted:
        from traceana import store

        store.write(cap, target, force=options.force)
        if not options.quiet:
            say(f"{sum(cap.counts.values())} events are in {target}")
    elif options.output != "-" and not options.quiet:
        say(f"{target} holds the figures; for the events, give -o NAME.traceana")
    told = figures.to_json()
    document = {
        "family": family, "cpus": cpus, "tasks": len(made.tasks), "rule": model.rule,
        "seed": seed, "window": window, **told, "step": synth.FAMILIES[family].step,
        "double_bookings": ran.counters["unseen_double"], "counters": ran.counters,
    }  # fmt: skip
    write(
        output.render_facts(document, _facts(document), options.format, color=colored(options)),
        options,
    )
    return 0


def _facts(d: dict[str, Any]) -> list[tuple[str, str]]:
    delay = d["queue_delay_ns"]

    def us(value: int | None) -> str:
        return "unknown" if value is None else f"{value / 1000:.1f} µs"

    def share(value: float | None) -> str:
        return "unknown" if value is None else f"{100 * value:.1f} %"

    return [
        ("simulated", f"{d['family']}, {d['tasks']} tasks on {d['cpus']}, rule {d['rule']}"),
        ("time measured", f"{d['span_ns'] / 1e6:.1f} ms"),
        ("idle", share(d["idle_share"])),
        ("work done", f"{d.get('steps_per_s') or 0:,.0f} /s ({d['step']})"),
        ("wakeups", f"{d['wakeups_per_s']:,.0f} /s (activity)"),
        (
            "queue delay",
            f"p50 {us(delay['p50'])}, p99 {us(delay['p99'])}, p99.9 {us(delay['p999'])}",
        ),
        ("on the waker's CPU", share(d["waker_cpu_share"])),
        ("double bookings", f"{d['double_bookings']:,} in all, warm-up included"),
    ]
