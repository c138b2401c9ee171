"""How to record here: which tool, which events for which question, clock and buffers.

Everything is a pure function of a :class:`Machine` (what this machine has, read by
:func:`look`, below any root) and of a :class:`Plan`. Nothing is executed here; what is stored
beside a capture is gathered by :mod:`traceana._record_system`.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from traceana._record_system import read_number, read_text, store_beside
from traceana.errors import MissingEventsError, UnsupportedError, UsageError

__all__ = [
    "CLOCKS",
    "EVENTS",
    "FILES",
    "QUESTIONS",
    "TOOLS",
    "Event",
    "Machine",
    "Plan",
    "commands",
    "look",
    "make_plan",
    "measure_switches",
    "obstacle",
    "store_beside",
]

#: What a capture can be asked -> in words.
QUESTIONS = {
    "latency": "how long did woken tasks wait, and who woke them",
    "placement": "on which CPU were they put, and was another one idle",
    "rules": "what would another placement rule have done",
    "race": "did several wakeups choose the same idle CPU",
}
_ALL = tuple(QUESTIONS)

#: In the order of preference.
TOOLS = ("trace-cmd", "perf", "tracefs")
#: Where a tool records to, if nothing else is said.
FILES = {"trace-cmd": "trace.dat", "perf": "perf.data", "tracefs": "trace.txt"}

CLOCKS = {
    "mono": "the same clock as /proc/timer_list, so the start state has a place on its axis; "
    "the same on all CPUs",
    "local": "the cheapest; CPUs may disagree, and the start state has no place on its axis",
}

INSTANCE = "traceana"
DEFAULT_RATE = 100_000
#: Bytes an event takes in the ring of ftrace and in that of perf: 42 to 45 and 102 were seen
#: with all these events (kernel 6.18, x86-64); rounded up for other mixtures.
_BYTES = {"trace-cmd": 72, "tracefs": 72, "perf": 136}
#: The busiest CPU may have this many times the mean rate.
_UNEVEN = 4
#: trace-cmd and perf empty the ring all the time; it has to hold what comes meanwhile.
_LAG_S = 2.0
_MIN_KB = 4096
#: tracing_cpumask and rings are per CPU; all of them together take at most this much of memory.
_MEMORY_SHARE = 0.25

_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38


@dataclass(frozen=True)
class Event:
    """One tracepoint: which questions it serves, and what it tells.

    ``per_switch`` is how many are expected for one context switch (an estimate for the size of
    buffers). ``needed``: without it the questions cannot be answered at all.
    """

    system: str
    name: str
    questions: tuple[str, ...]
    why: str
    per_switch: float
    needed: bool = False


EVENTS = (
    Event("sched", "sched_switch", _ALL, "who runs where and when", 1, needed=True),
    Event("sched", "sched_waking", _ALL, "who wakes whom, and when it decides", 1, needed=True),
    Event("sched", "sched_wakeup", _ALL, "the chosen CPU, and when it was enqueued", 1, True),
    Event("sched", "sched_wakeup_new", _ALL, "the same for new tasks", 0.05),
    Event("sched", "sched_migrate_task", _ALL, "moves between queues", 0.3),
    Event("sched", "sched_process_fork", _ALL, "birth; a pid may come again", 0.05),
    Event("sched", "sched_process_exec", _ALL, "names", 0.05),
    Event("sched", "sched_process_exit", _ALL, "death", 0.05),
    Event("task", "task_rename", _ALL, "names", 0.05),
    Event("sched", "sched_pi_setprio", ("latency", "rules"), "priorities lent by a mutex", 0.01),
    Event("sched", "sched_stat_runtime", ("rules",), "dur_avg exactly as the kernel has it", 1.5),
    Event("power", "cpu_idle", ("placement", "race"), "when an idle CPU is really awake", 1),
    Event(
        "sched",
        "sched_wake_idle_without_ipi",
        ("placement", "race"),
        "woken by polling: no interrupt was sent",
        0.3,
    ),
    Event("ipi", "ipi_send_cpu", ("race",), "when the chosen CPU was kicked (since 6.4)", 0.5),
)  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """What there is to record with. ``None``: not known, or not there."""

    release: str | None
    cpus: int
    memory_kb: int | None
    #: Tool -> path of its program; for 'tracefs' that of the mounted file system.
    tools: dict[str, str]
    #: 'system:name' of all tracepoints; None where tracefs cannot be read.
    events: frozenset[str] | None
    root: bool
    capabilities: int
    paranoid: int | None


@dataclass(frozen=True)
class Plan:
    """A recording: ``command`` is what is run meanwhile (empty: wait for ``seconds``)."""

    tool: str
    program: str
    output: str
    events: tuple[Event, ...]
    #: Wanted, but this kernel does not have them.
    missing: tuple[Event, ...]
    clock: str
    #: Ring of one CPU.
    buffer_kb: int
    #: The ring cannot hold what is expected: less is kept than asked for.
    short: bool
    rate: int
    seconds: float
    command: tuple[str, ...] = ()


def look(
    root: Path = Path("/"),
    *,
    which: Callable[[str], str | None] = shutil.which,
    uid: int | None = None,
) -> Machine:
    """See what this machine (or the copy of one below ``root``) has."""
    tools: dict[str, str] = {}
    for program in ("trace-cmd", "perf"):
        path = which(program)
        if path:
            tools[program] = path
    events = None
    for place in ("sys/kernel/tracing", "sys/kernel/debug/tracing"):
        listed = read_text(root / place / "available_events")
        if listed is not None:
            tools["tracefs"] = "/" + place
            events = frozenset(listed.split())
            break
    status = read_text(root / "proc/self/status") or ""
    fields = dict(x.partition(":")[::2] for x in status.splitlines())
    memory = read_text(root / "proc/meminfo") or ""
    available = dict(x.partition(":")[::2] for x in memory.splitlines()).get("MemAvailable", "")
    online = read_text(root / "sys/devices/system/cpu/online")
    return Machine(
        release=read_text(root / "proc/sys/kernel/osrelease"),
        cpus=_count(online) if online else os.cpu_count() or 1,
        memory_kb=int(available.split()[0]) if available.split() else None,
        tools=tools,
        events=events,
        root=(os.geteuid() if uid is None else uid) == 0,
        capabilities=_hexadecimal(fields.get("CapEff", "")),
        paranoid=read_number(root / "proc/sys/kernel/perf_event_paranoid"),
    )


def _hexadecimal(text: str) -> int:
    try:
        return int(text.strip(), 16)
    except ValueError:
        return 0


def _count(cpu_list: str) -> int:
    """The number of CPUs of a list.

    >>> _count("0-3,8")
    5
    """
    total = 0
    for part in cpu_list.split(","):
        first, _, last = part.partition("-")
        if first.strip().isdigit():
            total += int(last or first) - int(first) + 1
    return max(total, 1)


def obstacle(machine: Machine, tool: str) -> str | None:
    """Why this tool cannot record here, in one line; None where nothing is known against it."""
    if tool not in machine.tools:
        if tool == "tracefs":
            return "no tracefs that can be read (root: mount -t tracefs nodev /sys/kernel/tracing)"
        return f"{tool} is not installed"
    admin = machine.root or machine.capabilities >> _CAP_SYS_ADMIN & 1
    if tool == "perf":
        allowed = machine.capabilities >> _CAP_PERFMON & 1 or (machine.paranoid or 0) < 0
        if not (admin or allowed):
            return (
                f"perf_event_paranoid is {machine.paranoid}, and this is not root: tracepoints of "
                "all CPUs need root, CAP_PERFMON or -1"
            )
        if not machine.root and machine.events is None:
            return "perf has to read tracefs (root: mount -o remount,mode=755 /sys/kernel/tracing)"
        return None
    if not machine.root:
        return f"{tool} needs root"
    if "tracefs" not in machine.tools:
        return "no tracefs that can be read (mount -t tracefs nodev /sys/kernel/tracing)"
    return None


def measure_switches(root: Path = Path("/"), seconds: float = 0.25) -> float | None:
    """Context switches a second of the whole machine, from ``ctxt`` of /proc/stat."""

    def read() -> int | None:
        for line in (read_text(root / "proc/stat") or "").splitlines():
            if line.startswith("ctxt "):
                return int(line.split()[1])
        return None

    start, then = read(), time.perf_counter()
    time.sleep(seconds)
    end, now = read(), time.perf_counter()
    return None if start is None or end is None else max(end - start, 0) / (now - then)


def expected_rate(events: Sequence[Event], switches: float | None) -> int:
    """Events a second, never under :data:`DEFAULT_RATE`: the load may not run yet."""
    if switches is None:
        return DEFAULT_RATE
    return max(DEFAULT_RATE, math.ceil(switches * sum(e.per_switch for e in events)))


def buffer_size(
    tool: str, rate: int, seconds: float, cpus: int, memory_kb: int | None
) -> tuple[int, bool]:
    """KiB of one CPU's ring (a power of two), and whether memory sets a limit below the need.

    The plain ring of tracefs is emptied by nobody and has to hold the whole recording.
    """
    span = seconds if tool == "tracefs" else _LAG_S
    need = rate / cpus * min(_UNEVEN, cpus) * span * _BYTES[tool] / 1024
    size = 1 << math.ceil(math.log2(max(need, _MIN_KB)))
    limit = (memory_kb if memory_kb is not None else 1 << 20) * _MEMORY_SHARE / cpus
    most = 1 << max(6, math.floor(math.log2(max(limit, 64))))
    return min(size, most), most < need


def make_plan(
    machine: Machine,
    *,
    questions: Sequence[str] = _ALL,
    tool: str | None = None,
    output: str | None = None,
    clock: str = "mono",
    rate: int | None = None,
    switches: float | None = None,
    buffer_kb: int | None = None,
    seconds: float = 10.0,
    command: Sequence[str] = (),
) -> Plan:
    """Choose what was left open.

    Parameters
    ----------
    questions : of :data:`QUESTIONS`
    tool : of :data:`TOOLS`
        Default: the first that is here and that nothing stops, else the first that is here.
    rate : int, optional
        Events a second; else estimated from ``switches`` a second.
    buffer_kb : int, optional
        Ring of one CPU, KiB.

    Raises
    ------
    UnsupportedError
        Nothing here that records.
    MissingEventsError
        This kernel lacks an event without which no question can be answered.
    """
    if not 0 < seconds <= 86_400:
        raise UsageError(f"--seconds {seconds:g}: from 0 to 86400")
    if rate is not None and not 0 < rate <= 10**9:
        raise UsageError(f"--rate {rate}: events a second, from 1 to 1000000000")
    if buffer_kb is not None and not 64 <= buffer_kb <= 1 << 24:
        raise UsageError(f"--buffer-kb {buffer_kb}: KiB a CPU, from 64 to {1 << 24}")
    if tool is None:
        here = [t for t in TOOLS if t in machine.tools]
        if not here:
            raise UnsupportedError(
                "this machine",
                "neither trace-cmd nor perf is installed, and no tracefs can be read",
                hint="install trace-cmd, or as root: mount -t tracefs nodev /sys/kernel/tracing",
            )
        tool = next((t for t in here if obstacle(machine, t) is None), here[0])
    wanted = [e for e in EVENTS if set(e.questions) & set(questions)]
    known = machine.events
    there = [e for e in wanted if known is None or f"{e.system}:{e.name}" in known]
    missing = [e for e in wanted if e not in there]
    needed = tuple(e.name for e in missing if e.needed)
    if needed:
        raise MissingEventsError(needed, "recording for " + ", ".join(questions))
    if rate is None:
        rate = expected_rate(there, switches)
    size, short = buffer_size(tool, rate, seconds, machine.cpus, machine.memory_kb)
    if buffer_kb is not None:
        # perf takes powers of two only
        size, short = 1 << math.ceil(math.log2(buffer_kb)), False
    fallback = "/sys/kernel/tracing" if tool == "tracefs" else tool
    return Plan(
        tool=tool,
        program=machine.tools.get(tool, fallback) if tool == "tracefs" else tool,
        output=output or FILES[tool],
        events=tuple(there),
        missing=tuple(missing),
        clock=clock,
        buffer_kb=size,
        short=short,
        rate=rate,
        seconds=seconds,
        command=tuple(command),
    )


def commands(plan: Plan) -> str:
    """The recording as lines of a POSIX shell, to be printed or given to ``sh -e``."""
    during = shlex.join(plan.command or ("sleep", f"{plan.seconds:g}"))
    output = shlex.quote(plan.output if not plan.output.startswith("-") else f"./{plan.output}")
    if plan.tool == "tracefs":
        return _tracefs(plan, during, output)
    names = [f"{e.system}:{e.name}" for e in plan.events]
    if plan.tool == "trace-cmd":
        words = [f"trace-cmd record -C {plan.clock} -b {plan.buffer_kb} -o {output}"]
        words += _folded([f"-e {name}" for name in names])
    else:
        clock = "-k mono " if plan.clock == "mono" else ""
        words = [f"perf record -a -c 1 {clock}-m {plan.buffer_kb}K -o {output}"]
        words += _folded([f"-e {name}" for name in names])
        during = f"-- {during}"
    return " \\\n    ".join([*words, during]) + "\n"


def _folded(words: Sequence[str], width: int = 84) -> list[str]:
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _tracefs(plan: Plan, during: str, output: str) -> str:
    """An instance of its own, so that nobody else's tracing is disturbed, removed at the end."""
    names = _folded([f"{e.system}/{e.name}" for e in plan.events], 80)
    return f"""\
( set -e
T={shlex.quote(plan.program)}/instances/{INSTANCE}
mkdir "$T"
trap 'echo 0 > "$T/tracing_on"; rmdir "$T"' EXIT
trap : INT
echo 0 > "$T/tracing_on"
echo {plan.clock} > "$T/trace_clock"
echo {plan.buffer_kb} > "$T/buffer_size_kb"
for e in {(" " + chr(92) + chr(10) + "    ").join(names)}
do echo 1 > "$T/events/$e/enable"
done
echo 1 > "$T/tracing_on"
{during} || echo "ended with status $?" >&2
echo 0 > "$T/tracing_on"
cat "$T/trace" > {output}
)
"""
