"""Scheduler tunables as counterfactuals: the same workload with another value of a debugfs knob.

``migration_cost_ns`` has three users (section 8 of the semantics): whether an idle CPU looks for
work at all (newidle), whether a task counts as cache-hot and is not pulled (task_hot), and the
periodic balance's floor. One at a time they show which of them makes the difference.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from traceana._synth_draws import parse_duration
from traceana.closed_loop import Variant
from traceana.errors import UsageError

__all__ = ["TUNABLES", "YIELD_FORMS", "parse", "users", "variants"]

#: Name -> (field of the model, what it is).
TUNABLES: Mapping[str, tuple[str, str]] = {
    "migration_cost_ns": ("migration_cost_ns", "time"),
    "newidle_cost_ns": ("newidle_cost_ns", "time"),
    "hot_cost_ns": ("hot_cost_ns", "time"),
    "floor_cost_ns": ("floor_cost_ns", "time"),
    "min_granularity_ns": ("slice_ns", "time"),
    "base_slice_ns": ("slice_ns", "time"),
    "latency_ns": ("latency_ns", "time"),
    "wakeup_granularity_ns": ("wakeup_granularity_ns", "time"),
    "sis_util": ("sis_util", "switch"),
    "ttwu_queue": ("ttwu_queue", "switch"),
    "delay_dequeue": ("delay_dequeue", "switch"),
    "run_to_parity": ("run_to_parity", "switch"),
    "hz": ("hz", "count"),
}
_SWITCH = {"0": False, "off": False, "no": False, "1": True, "on": True, "yes": True}
#: The users of migration_cost_ns: what each is called, and the field of the model.
USERS = {
    "newidle": "newidle_cost_ns",
    "task_hot": "hot_cost_ns",
    "periodic balance": "floor_cost_ns",
}
#: Forms of yield_to() that were discussed on the list; ``Model.yield_form``.
YIELD_FORMS = ("plain", "slice", "min_granularity", "second")


def parse(given: Sequence[str]) -> dict[str, Any]:
    """Fields of the model from texts such as ``migration_cost_ns=50us`` or ``SIS_UTIL=off``.

    Raises
    ------
    UsageError
        An unknown tunable, or a value that is none.

    >>> parse(["migration_cost_ns=50us", "SIS_UTIL=off"])
    {'migration_cost_ns': 50000, 'sis_util': False}
    """
    out: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip().lower().removeprefix("sched_")
        if name not in TUNABLES or not equals:
            near = difflib.get_close_matches(name, TUNABLES, 1)
            raise UsageError(
                f"--tunable {text}: give NAME=VALUE"
                + (f"; did you mean {near[0]}?" if near and near[0] != name else "")
                + f"; there are {', '.join(TUNABLES)}"
            )
        field, kind = TUNABLES[name]
        if kind == "switch":
            if value.strip().lower() not in _SWITCH:
                raise UsageError(f"--tunable {text}: on or off")
            out[field] = _SWITCH[value.strip().lower()]
        elif kind == "count":
            if not value.strip().isascii() or not value.strip().isdigit() or len(value) > 6:
                raise UsageError(f"--tunable {text}: give a number")
            out[field] = int(value)
        else:
            number = parse_duration(value, f"--tunable {name}")
            if field == "slice_ns" and number < 1000:
                raise UsageError(f"--tunable {text}: at least 1us")
            out[field] = number
    return out


def users(changes: Mapping[str, Any], rule: str | None, label: str) -> list[Variant]:
    """The change of migration_cost_ns for each of its users alone; none where it is not changed."""
    if "migration_cost_ns" not in changes:
        return []
    rest = {k: v for k, v in changes.items() if k != "migration_cost_ns"}
    value = changes["migration_cost_ns"]
    return [
        Variant(rule, {**rest, field: value}, f"{label}, for {name} alone")
        for name, field in USERS.items()
        if field not in rest
    ]


def variants(
    rules: Sequence[str], changes: Mapping[str, Any], given: Sequence[str]
) -> list[Variant]:
    """What to ask: each rule, with the tunables; the tunables alone where there is no rule."""
    if not changes:
        return [Variant(rule) for rule in rules]
    said = ", ".join(text.strip() for text in given)
    out: list[Variant] = []
    asked: list[str | None] = [*rules]
    for rule in asked or [None]:
        label = said if rule is None else f"{rule} with {said}"
        out.append(Variant(rule, changes, label))
        out += users(changes, rule, label)
    return out
