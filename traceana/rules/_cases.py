"""Worked examples of rules: from a case of CASES to the records, and running them.

A case is a dict: ``name``; ``machine`` (``cpus``, lists per CPU: ``nr``, ``pending``,
``curr_dur``, ``load``, ``sched_idle``, ``core``, ``llc``, ``cluster``, ``zone``; per LLC:
``nr_idle_scan``, ``prop_nr``, ``idle_core``, one number for all or a list; ``release``, e.g.
"6.1"); ``wakeup`` (fields of WAKEUP; ``allowed`` as a list of CPUs); ``params``; and what is
expected: ``cpu``, ``reason``, ``blocked_by`` (names of unmet conditions).

``like`` names an earlier case: this one is the same but for what it says itself. ``misses`` names
a condition that alone keeps the rule from firing: the wakeup stays where it was recorded.
``boundary`` names the limit at which it and the case it is like stand one apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from traceana.rules._forms import forms_for
from traceana.rules._state import allow, make_machine, make_wakeups
from traceana.thresholds import tunables

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traceana.rules import Rule

__all__ = ["Outcome", "run_case", "state_of"]

_PER_CPU = (
    "pending",
    "booked",
    "curr_dur",
    "load",
    "sched_idle",
    "delayed",
    "capacity",
    "curr_flips",
)
_PER_LLC = ("nr_idle_scan", "prop_nr", "idle_core")
_TOPOLOGY = ("core", "llc", "cluster", "zone", "node", "online", "isolated")


@dataclass(frozen=True)
class Outcome:
    """What a rule made of a case."""

    cpu: int
    reason: str
    unmet: tuple[str, ...]


def state_of(case: Mapping[str, Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Build (WAKEUP[1], MACHINE[1]) from a case; a CPU with nr 0 runs its idle task."""
    given = dict(case["machine"])
    n = given["cpus"]
    machine = make_machine(
        n,
        forms=forms_for(given.get("release", "6.1.192"), **given.get("forms", {})),
        **{name: given[name] for name in _TOPOLOGY if name in given},
    )
    m = machine[0]
    cpus = m["cpus"][:n]
    nr = np.array(given.get("nr", [0] * n))
    cpus["nr"] = nr
    cpus["idle"] = nr == 0
    cpus["curr_dur"] = np.where(nr == 0, 0, -1)
    for name in _PER_CPU:
        if name in given:
            cpus[name] = given[name]
    llcs = m["llcs"][: m["n_llcs"]]
    for name in _PER_LLC:
        if name in given:
            llcs[name] = given[name]
    wakeups = make_wakeups(1)
    w = wakeups[0]
    for name, value in case["wakeup"].items():
        if name == "allowed":
            allow(w, value)
        else:
            w[name] = value
    return wakeups, machine


def run_case(rule: Rule, case: Mapping[str, Any]) -> Outcome:
    """Ask the rule about a case."""
    wakeups, machine = state_of(case)
    m = machine[0]
    p = rule.parameters(tunables("6.1.192", int(m["n_cpus"])), case.get("params"))
    cpu, reason = rule.decide(wakeups[0], m, p)
    bits = rule.blocked_by(wakeups[0], m, p)
    return Outcome(int(cpu), rule.reasons[reason], tuple(rule.unmet(int(bits))))
