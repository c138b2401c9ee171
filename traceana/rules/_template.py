"""The rule that ``traceana rules new`` writes: a whole one, to be changed."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from traceana.errors import UsageError

__all__ = ["target_of", "text_of"]

_TEMPLATE = '''"""A wakee that runs briefly stays on prev_cpu if one short task at most runs there.

The first line says what the rule does; `traceana rules` shows it. Keep the five headings.

Rule
----
Before the kernel looks for an idle CPU: if the wakee is short and prev_cpu holds at most one
task, which is short too, the wakee goes to prev_cpu. Otherwise the kernel's own path.

Source
------
A template. Name the mail, the commit or the idea here.

Conditions
----------
1. The wakee may run on prev_cpu.
2. At most one task runs or waits on prev_cpu.
3. The wakee is short: 0 < dur_avg < threshold_ns.
4. The task running on prev_cpu, if any, is short.

Reads
-----
dur_avg of the wakee and of the task on prev_cpu; nr_running of prev_cpu.

Limits
------
dur_avg is unknown at the begin of a capture; unknown is not short.
"""

from __future__ import annotations

# The kernel's steps and all that a rule may use; `traceana rules mainline` and the files in
# traceana/rules/ show how they are put together.
from traceana.rules.interface import (
    MAINLINE,
    RECORDED,
    Machine,
    Params,
    Wakeup,
    cpu_allowed,
    njit,
    select_idle_sibling,
    select_target,
    short,
)

# name -> (default, unit, meaning). A default may be the name of a value of the recorded kernel,
# e.g. "short_threshold_ns". Override: --param @NAME@.threshold_ns=500us
PARAMS: dict[str, tuple[str | int, str, str]] = {
    "threshold_ns": (300_000, "ns", "short: 0 < dur_avg < this"),
}

# Why an answer was given. The first two are fixed; your own follow, numbered from 2.
REASONS = ("recorded", "mainline", "stays")
_STAYS = 2

# What has to hold for the rule to fire, in the order of the bits of blocked_by().
CONDITIONS = {
    "allowed": "the wakee may run on prev_cpu",
    "room": "at most one task is on prev_cpu",
    "wakee_short": "the wakee is short",
    "curr_short": "the task on prev_cpu, if any, is short",
}

# Worked examples: one that fires, one that misses by each condition, one at the boundary.
# machine: lists have a value per CPU, nr 0 is an idle CPU. wakeup: recorded_cpu is where the
# wakeup went. "like" takes an earlier case over, "misses" names the one condition not met.
CASES = (
    {
        "name": "two short tasks share prev_cpu",
        "machine": {"cpus": 4, "nr": [1, 1, 0, 0], "curr_dur": [9000000, 5000, 0, 0]},
        "wakeup": {"this_cpu": 0, "prev_cpu": 1, "wakee_dur": 8000, "recorded_cpu": 2},
        "cpu": 1,
        "reason": "stays",
    },
    {
        "name": "the wakee may not run on prev_cpu",
        "like": "two short tasks share prev_cpu",
        "wakeup": {"allowed": [0, 2, 3]},
        "misses": "allowed",
    },
    {
        "name": "two tasks are there already",
        "like": "two short tasks share prev_cpu",
        "machine": {"nr": [1, 2, 0, 0]},
        "misses": "room",
    },
    {
        "name": "the shortest wakee that is not short",
        "like": "two short tasks share prev_cpu",
        "wakeup": {"wakee_dur": 300000},
        "misses": "wakee_short",
        "boundary": "threshold_ns",
    },
    {
        "name": "a long task runs there",
        "like": "two short tasks share prev_cpu",
        "machine": {"curr_dur": [9000000, 400000, 0, 0]},
        "misses": "curr_short",
    },
)


# A rule is compiled: numbers, the fields of w and m, numpy arrays, @njit functions; no imports
# inside functions, no dicts, no objects. m is for reading.
@njit
def _curr_short(m: Machine, cpu: int, p: Params) -> bool:
    return m.cpus[cpu].nr == 0 or short(m.cpus[cpu].curr_dur, p[0])


@njit
def decide(w: Wakeup, m: Machine, p: Params) -> tuple[int, int]:
    """Return (CPU, index of REASONS)."""
    prev = w.prev_cpu
    if (
        cpu_allowed(w, prev)
        and m.cpus[prev].nr <= 1
        and short(w.wakee_dur, p[0])
        and _curr_short(m, prev, p)
    ):
        return prev, _STAYS
    if w.recorded_cpu >= 0:
        # A recording is at hand: where the rule has no opinion, nothing changes.
        return w.recorded_cpu, RECORDED
    # In a simulation there is none: the kernel's own path.
    return select_idle_sibling(w, m, select_target(w, m)), MAINLINE


@njit
def blocked_by(w: Wakeup, m: Machine, p: Params) -> int:
    """Return a bit for each of CONDITIONS that is not met; 0 where the rule fires."""
    prev = w.prev_cpu
    bits = 0
    if not cpu_allowed(w, prev):
        bits |= 1 << 0
    if m.cpus[prev].nr > 1:
        bits |= 1 << 1
    if not short(w.wakee_dur, p[0]):
        bits |= 1 << 2
    if not _curr_short(m, prev, p):
        bits |= 1 << 3
    return bits
'''


def target_of(name: str) -> Path:
    """The file that a rule of this name is written to.

    Raises
    ------
    UsageError
        Not a name that a rule can have.
    """
    path = Path(name if name.endswith(".py") else f"{name}.py")
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", path.stem) or keyword.iskeyword(path.stem):
        raise UsageError(
            f"rules new {name}: a rule's name is of small letters, digits and _, as in my_rule"
        )
    return path


def text_of(name: str) -> str:
    """The text of a new rule's file."""
    return _TEMPLATE.replace("@NAME@", name)
