"""Synthetic workloads with known truth, on any topology: what they do is written, not guessed.

Each family makes scripts (TASK, OP of ``_sim_state``) that the machine model runs. Bursts and
sleeps are drawn once per task from a seed; a script that is through begins anew.

    from traceana import synth
    work = synth.make("pingpong", pairs=6, cpus="1x4x2", seed=1)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from traceana import topology as topo
from traceana._sim_state import Op, Start
from traceana._synth_draws import Draw, Random
from traceana.errors import UsageError
from traceana.rules._state import MAX_CPUS
from traceana.workload import Workload, tables

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FAMILIES", "Family", "make", "parse_shape"]

#: Turns of a script before it repeats, where something is drawn.
TURNS = 32
#: So many tasks at most; a model's memory grows with them.
MOST_TASKS = 100_000
MOST_ROWS = 20_000_000
_FIRST_PID = 1000
_NULL = -(1 << 63)


def parse_shape(text: str) -> tuple[int, int, int]:
    """Sockets, cores a socket, threads a core of ``2x56x2``; a bare number is one socket of cores.

    Raises
    ------
    UsageError
        Not of that form, or more CPUs than a model holds.

    >>> parse_shape("2x56x2")
    (2, 56, 2)
    """
    match = re.fullmatch(r"(\d{1,4})(?:x(\d{1,4})x(\d{1,2}))?", text, re.ASCII)
    if match is None:
        raise UsageError(f"--cpus {text}: give SOCKETSxCORESxTHREADS, e.g. 2x56x2, or a number")
    if match[2] is None:
        sockets, cores, threads = 1, int(match[1]), 1
    else:
        sockets, cores, threads = (int(part) for part in match.groups())
    if not 1 <= sockets * cores * threads <= MAX_CPUS:
        raise UsageError(f"--cpus {text}: 1 to {MAX_CPUS} CPUs")
    return sockets, cores, threads


class Script:
    """Rows of one task while they are written."""

    def __init__(self, name: str, **more: int) -> None:
        self.name = name
        self.more = more
        self.rows: list[tuple[int, int, int, int]] = []

    def add(self, code: int, *, value: int = 0, task: int = -1, sync: bool = False) -> Script:
        """Append a row of OP."""
        self.rows.append((code, Op.SYNC if sync else 0, task, value))
        return self


@dataclass
class Maker:
    """What a family writes its tasks into."""

    n_cpus: int
    random: Random
    scripts: list[Script] = field(default_factory=list)
    sets: list[int] = field(default_factory=list)  # CPUs to which tasks are pinned, one a set

    def task(self, name: str, **more: int) -> tuple[int, Script]:
        """Return a new task's number and script; `more` are fields of TASK."""
        if len(self.scripts) >= MOST_TASKS:
            raise UsageError(f"more than {MOST_TASKS} tasks")
        self.scripts.append(Script(name, **more))
        return len(self.scripts) - 1, self.scripts[-1]

    def turns(self, *draws: Draw) -> int:
        """How often a script is written out: once where nothing is random."""
        return TURNS if any(len(d.quantiles) > 1 for d in draws) else 1


Params = Mapping[str, Any]


def _pingpong(m: Maker, p: Params) -> None:
    """Pairs that wake each other in turn over two pipes (will-it-scale context_switch1)."""
    burst, tail = p["burst"], p["tail"]
    for i in range(p["pairs"]):
        # As if they had run for long: each has woken nobody but the other, so flips are 0.
        a, left = m.task(f"pp-a-{i}", dur_avg=burst.mean + tail.mean)
        b, right = m.task(f"pp-b-{i}", dur_avg=burst.mean + tail.mean, last_wakee=a)
        left.more["last_wakee"] = b
        for _ in range(m.turns(burst, tail)):
            left.add(Op.RUN, value=burst.one(m.random)).add(Op.WAKE, task=b, sync=True)
            left.add(Op.RUN, value=tail.one(m.random)).add(Op.BLOCK).add(Op.STEP)
            right.add(Op.BLOCK).add(Op.RUN, value=burst.one(m.random))
            right.add(Op.WAKE, task=a, sync=True).add(Op.RUN, value=tail.one(m.random))


def _hackbench(m: Maker, p: Params) -> None:
    """Groups of senders that write to each receiver of their group; `depth` messages may be under
    way between any two (the pipe's room), then a sender waits.
    """
    burst, work = p["burst"], p["work"]
    box = 0
    for g in range(p["groups"]):
        n = p["fds"]
        boxes = range(box, box + n)
        box += n
        for i in range(n):
            _, send = m.task(f"hb-s-{g}-{i}", tokens=n * (p["depth"] - 1))
            for _ in range(m.turns(burst)):
                for to in boxes:
                    send.add(Op.RUN, value=burst.one(m.random)).add(Op.SEND, task=to, sync=True)
                for _ in boxes:
                    send.add(Op.BLOCK)
                send.add(Op.STEP)
        for i, mine in enumerate(boxes):
            _, take = m.task(f"hb-r-{g}-{i}")
            for _ in range(m.turns(work)):
                take.add(Op.RECV, task=mine).add(Op.RUN, value=work.one(m.random))
                take.add(Op.REPLY, sync=True)


def _proxy(m: Maker, p: Params) -> None:
    """Clients that ask a front; it asks `fanout` workers, waits for all, and answers."""
    burst, work, think = p["burst"], p["work"], p["think"]
    fronts, workers = p["fronts"], p["workers"]
    if p["fanout"] > workers:
        raise UsageError(f"fanout of {p['fanout']} needs as many workers; there are {workers}")
    for i in range(fronts):
        _, front = m.task(f"px-front-{i}")
        for turn in range(max(m.turns(burst), workers)):
            front.add(Op.RECV, task=i).add(Op.RUN, value=burst.one(m.random))
            for k in range(p["fanout"]):
                to = fronts + i * workers + (turn * p["fanout"] + k) % workers
                front.add(Op.SEND, task=to).add(Op.RUN, value=burst.one(m.random))
            for _ in range(p["fanout"]):
                front.add(Op.BLOCK)
            front.add(Op.RUN, value=burst.one(m.random)).add(Op.REPLY)
        for k in range(workers):
            _, worker = m.task(f"px-work-{i}-{k}")
            for _ in range(m.turns(work)):
                worker.add(Op.RECV, task=fronts + i * workers + k)
                worker.add(Op.RUN, value=work.one(m.random)).add(Op.REPLY)
    for i in range(p["clients"]):
        _, client = m.task(f"px-client-{i}")
        for _ in range(m.turns(burst, think)):
            if think.mean:
                client.add(Op.NAP, value=think.one(m.random))
            client.add(Op.RUN, value=burst.one(m.random)).add(Op.SEND, task=i % fronts)
            client.add(Op.BLOCK).add(Op.STEP)


def _reqresp(m: Maker, p: Params) -> None:
    """Clients that think (a timer), ask a server, and wait for its answer."""
    burst, work, think = p["burst"], p["work"], p["think"]
    for i in range(p["servers"]):
        _, server = m.task(f"rr-server-{i}")
        for _ in range(m.turns(work)):
            server.add(Op.RECV, task=i).add(Op.RUN, value=work.one(m.random)).add(Op.REPLY)
    for i in range(p["clients"]):
        _, client = m.task(f"rr-client-{i}")
        for _ in range(m.turns(burst, think)):
            client.add(Op.NAP, value=think.one(m.random))
            client.add(Op.RUN, value=burst.one(m.random)).add(Op.SEND, task=i % p["servers"])
            client.add(Op.BLOCK).add(Op.STEP)


def _schbench(m: Maker, p: Params) -> None:
    """Message threads that hand work to workers, each of which asks for more when it is done."""
    burst, work = p["burst"], p["work"]
    for i in range(p["messages"]):
        _, message = m.task(f"sch-msg-{i}")
        for _ in range(m.turns(burst)):
            message.add(Op.RECV, task=i).add(Op.RUN, value=burst.one(m.random)).add(Op.REPLY)
        for k in range(p["workers"]):
            _, worker = m.task(f"sch-work-{i}-{k}")
            for _ in range(m.turns(work)):
                worker.add(Op.RUN, value=work.one(m.random)).add(Op.SEND, task=i)
                worker.add(Op.BLOCK).add(Op.STEP)


def _mixed(m: Maker, p: Params) -> None:
    """Pairs, tasks that never sleep, and tasks that a timer wakes."""
    _pingpong(m, p)
    work, think = p["work"], p["think"]
    for i in range(p["hogs"]):
        m.task(f"mx-hog-{i}")[1].add(Op.RUN, value=1_000_000)
    for i in range(p["timers"]):
        _, timer = m.task(f"mx-timer-{i}")
        for _ in range(m.turns(work, think)):
            timer.add(Op.NAP, value=think.one(m.random)).add(Op.RUN, value=work.one(m.random))
            timer.add(Op.STEP)


def _yieldto(m: Maker, p: Params) -> None:
    """Two virtual CPUs pinned to each CPU: one works, the other spins for a lock that the first
    holds, and yields to it (yield_to(), as a hypervisor does on a pause-loop exit).
    """
    burst, work = p["burst"], p["work"]
    for cpu in range(m.n_cpus):
        m.sets.append(cpu)
        holder, works = m.task(f"vcpu-work-{cpu}", allowed=cpu, cpu=cpu)
        _, spins = m.task(f"vcpu-spin-{cpu}", allowed=cpu, cpu=cpu)
        for _ in range(m.turns(burst, work)):
            works.add(Op.RUN, value=work.one(m.random)).add(Op.STEP)
            spins.add(Op.RUN, value=burst.one(m.random)).add(Op.YIELD_TO, task=holder)


@dataclass(frozen=True)
class Family:
    """A kind of workload.

    ``counts`` and ``draws`` are its parameters with their defaults; ``step`` says what one unit of
    its own progress is.
    """

    write: Callable[[Maker, Params], None]
    counts: Mapping[str, int]
    draws: Mapping[str, str]
    step: str

    @property
    def about(self) -> str:
        """What it does, in a sentence."""
        return " ".join((self.write.__doc__ or "").split())


FAMILIES: Mapping[str, Family] = {
    "pingpong": Family(
        _pingpong, {"pairs": 6}, {"burst": "1200ns", "tail": "100ns"}, "round of a pair"
    ),
    "hackbench": Family(
        _hackbench,
        {"groups": 2, "fds": 5, "depth": 4},
        {"burst": "uniform:1us,3us", "work": "uniform:1us,5us"},
        "turn of a sender",
    ),
    "proxy": Family(
        _proxy,
        {"clients": 6, "fronts": 2, "workers": 4, "fanout": 2},
        {"burst": "uniform:1us,3us", "work": "exp:8us", "think": "0"},
        "answered request",
    ),
    "reqresp": Family(
        _reqresp,
        {"clients": 12, "servers": 3},
        {"burst": "uniform:1us,3us", "work": "exp:10us", "think": "exp:100us"},
        "answered request",
    ),
    "schbench": Family(
        _schbench,
        {"messages": 2, "workers": 4},
        {"burst": "1us", "work": "exp:30us"},
        "worker's piece of work",
    ),
    "mixed": Family(
        _mixed,
        {"pairs": 3, "hogs": 1, "timers": 4},
        {"burst": "1200ns", "tail": "100ns", "work": "exp:20us", "think": "exp:200us"},
        "round of a pair, or of a timer",
    ),
    "yieldto": Family(
        _yieldto,
        {},
        {"burst": "uniform:15us,25us", "work": "uniform:50us,150us"},
        "piece of work of a virtual CPU that holds a lock",
    ),
}


def make(family: str, *, cpus: str = "1x4x2", seed: int = 1, **params: int | str) -> Workload:
    """Make a synthetic workload.

    Parameters
    ----------
    family : one of FAMILIES
    cpus : SOCKETSxCORESxTHREADS, or a number of CPUs without SMT
    seed : of what is drawn, and of where tasks begin
    params : the family's counts, and its distributions as texts (see ``_synth_draws``)

    Returns
    -------
    Workload
        All tasks runnable at time 0, on random CPUs.

    Raises
    ------
    UsageError
        An unknown family or parameter, or a value out of range.

    >>> len(make("pingpong", pairs=3).tasks)
    6
    """
    if family not in FAMILIES:
        raise UsageError(f"synth {family}: unknown; there are {', '.join(FAMILIES)}")
    kind = FAMILIES[family]
    values: dict[str, Any] = {}
    for name in params:
        if name not in kind.counts and name not in kind.draws:
            known = ", ".join([*kind.counts, *kind.draws])
            raise UsageError(f"synth {family} takes no {name}; it takes {known}")
    for name, count in kind.counts.items():
        value = params.get(name, count)
        low = 0 if name in ("hogs", "timers") else 1
        if not isinstance(value, int) or not low <= value <= MOST_TASKS:
            raise UsageError(f"{name} {value}: a number from {low} to {MOST_TASKS}")
        values[name] = value
    for name, text in kind.draws.items():
        values[name] = Draw.parse(str(params.get(name, text)), name)
    _fits(family, values)
    sockets, cores, threads = parse_shape(cpus)
    n_cpus = sockets * cores * threads
    maker = Maker(n_cpus, Random(seed))
    kind.write(maker, values)
    return _workload(maker, topo.shaped(sockets, cores, threads))


def _fits(family: str, p: Params) -> None:
    """Refuse, before they are written, scripts beyond MOST_ROWS."""
    rows = {
        "hackbench": lambda: p["groups"] * p["fds"] * TURNS * (3 * p["fds"] + 4),
        "proxy": lambda: (
            p["fronts"] * max(TURNS, p["workers"]) * (4 * p["fanout"] + 4)
            + p["fronts"] * p["workers"] * TURNS * 3
        ),
        "schbench": lambda: p["messages"] * (p["workers"] + 1) * TURNS * 4,
    }
    if family in rows and rows[family]() > MOST_ROWS:
        raise UsageError(f"synth {family}: more than {MOST_ROWS} rows of scripts")


def _workload(maker: Maker, topology: pa.Table) -> Workload:
    scripts = maker.scripts
    n, m = len(scripts), sum(len(s.rows) for s in scripts)
    tasks, script = tables(n, m)
    at = 0
    for i, one in enumerate(scripts):
        row = tasks[i]
        row["pid"] = _FIRST_PID + i
        row["weight"], row["prio"], row["group"] = 1024, 120, 0
        # A first guess, two thirds busy, from which the warm-up leads away.
        row["util"] = min(683 * maker.n_cpus // n, 1024)
        row["first"] = row["loop"] = row["op"] = at
        row["end"] = at + len(one.rows)
        row["state"] = Start.QUEUED
        row["cpu"] = maker.random.below(maker.n_cpus)
        for name, value in one.more.items():
            row[name] = value
        if one.rows:
            part = np.array(one.rows, np.int64)
            for k, name in enumerate(("code", "flags", "task", "value")):
                script[name][at : at + len(part)] = part[:, k]
        at += len(one.rows)
    allowed = np.zeros((len(maker.sets), maker.n_cpus), np.uint8)
    allowed[np.arange(len(maker.sets)), maker.sets] = 1
    return Workload(
        tasks=tasks,
        script=script,
        when=np.full((m, 2), _NULL, np.int64),
        allowed=allowed,
        names=[s.name for s in scripts],
        topology=topology,
        begin_ns=0,
        span_ns=0,
    )
