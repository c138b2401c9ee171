"""No budget where there is an idle core (Abel Wu, 9 Sep 2022): the scan's limit is skipped."""

from __future__ import annotations

from traceana.rules.interface import (
    MAINLINE,
    NONE,
    has_idle_core,
    scan_budget,
    scan_llc,
    select_idle_last,
    select_idle_near,
    select_target,
)

REASONS = ("recorded", "mainline")


def decide(w, m, p):
    target = select_target(w, m)
    cpu = select_idle_near(w, m, target)
    if cpu == NONE:
        if has_idle_core(m, target):
            nr = 1 << 30
        else:
            nr = scan_budget(w, m, target)
        cpu = scan_llc(w, m, target, nr)
        if cpu == NONE:
            cpu = select_idle_last(w, m, target)
    return cpu, MAINLINE
