"""A workload and what was measured of its machine, in one folder: simulated without a capture.

The workload's own files are those of ``_workload_store``; beside them lies ``machine.json``: the
calibration, and the figures of the recording, so that a model of a loaded workload is held against
them like that of the capture. A folder without it (``traceana synth --workload``) runs with the
default costs. What is read is not believed.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from traceana._closed_loop_figures import LATENCIES, PERCENTILES, SCALARS, Figures
from traceana._sim_model import constant_costs
from traceana._sim_state import COSTS, QUANTILES
from traceana.calibrate import Calibration
from traceana.errors import FormatError, InputError
from traceana.thresholds import kernel_number
from traceana.workload import Workload

__all__ = ["load", "save"]

_FILE = "machine.json"
_MAX_BYTES = 256 << 20
_MAX_NS = 1 << 40
_MAX_NOTES, _MAX_TASKS = 100, 4_194_304
_WRONG = (ValueError, KeyError, TypeError, OverflowError, AttributeError, RecursionError)


def save(path: Path, workload: Workload, calibration: Calibration, recorded: Figures) -> None:
    """Write all three.

    Raises
    ------
    UsageError
        The folder is there and is no workload.
    InputError
        It cannot be written.
    """
    workload.save(path)
    try:
        about = {
            "machine": json.loads(calibration.to_json()),
            "rule": calibration.rule,
            "recorded": {
                **recorded.to_json(),
                "home_share": recorded.home_share,
                "cpu_share": [[pid, share] for pid, share in recorded.cpu_share.items()],
            },
        }
        (path / _FILE).write_text(json.dumps(about), encoding="utf-8")
    except OSError as error:
        raise InputError(path, error.strerror or "cannot be written") from error


def load(path: Path) -> tuple[Workload, Calibration, Figures | None]:
    """Read what :func:`save` wrote, or a workload alone, of which no recording is known.

    Raises
    ------
    InputError
        It cannot be read, or is damaged; says what is wrong.
    """
    workload = Workload.load(path)
    file = path / _FILE
    if not file.exists():
        return workload, _assumed(workload), None
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise FormatError(file, "more than 256 MiB")
        about = json.loads(file.read_text(encoding="utf-8"))
        machine = _machine(about["machine"], str(about["rule"])[:200], workload)
        return workload, machine, _figures(about["recorded"])
    except OSError as error:
        raise InputError(file, error.strerror or "cannot be read") from error
    except _WRONG as error:
        if isinstance(error, FormatError):
            raise
        what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise FormatError(file, f"damaged: {what[:200]}") from error


def _assumed(workload: Workload) -> Calibration:
    """The machine of a workload of which nothing was measured."""
    n, llcs = workload.n_cpus, len(set(workload.topology.column("llc").to_pylist()))
    return Calibration(
        costs=constant_costs(),
        n={},
        origin=dict.fromkeys(COSTS, "assumed"),
        release=None,
        hz=250,
        tick_phases=np.full(n, -1, np.int64),
        nr_idle_scan=[None] * llcs,
        idle_core=[None] * llcs,
        cpu_util=np.zeros(n, np.int64),
        avg_idle_ns=1_000_000,
        notes=["nothing was measured of the machine: default costs"],
    )


def _machine(about: dict[str, Any], rule: str, workload: Workload) -> Calibration:
    base = _assumed(workload)
    costs = np.array([_whole(about["costs"][name], 0, _MAX_NS, QUANTILES) for name in COSTS])
    if np.any(np.diff(costs, axis=1) < 0):
        raise ValueError("costs whose quantiles fall")
    release = about["release"]
    if release is not None and (not isinstance(release, str) or not kernel_number(release)):
        raise ValueError("no release of a kernel")
    n, llcs = workload.n_cpus, len(base.nr_idle_scan)
    notes = about["notes"]
    if not isinstance(notes, list) or len(notes) > _MAX_NOTES:
        raise ValueError("notes that are no list")
    core, llc = _perhaps(about.get("newidle_gates") or [None, None], 2, _MAX_NS)
    gates = None if core is None or llc is None else (core, llc)
    return Calibration(
        costs=costs,
        n={name: _whole([about["n"].get(name, 0)], 0, 1 << 60, 1)[0] for name in COSTS},
        origin={name: str(about["origin"][name])[:20] for name in COSTS},
        release=release,
        hz=_whole([about["hz"]], 1, 100_000, 1)[0],
        tick_phases=np.array(_whole(about["tick_phases"], -1, 1_000_000_001, n), np.int64),
        nr_idle_scan=_perhaps(about["nr_idle_scan"], llcs),
        idle_core=_perhaps(about["idle_core"], llcs),
        cpu_util=np.array(_whole(about["cpu_util"], 0, 1025, n), np.int64),
        avg_idle_ns=_whole([about["avg_idle_ns"]], 0, _MAX_NS, 1)[0],
        newidle_gates=gates,
        newidle_ratio=_perhaps([about.get("newidle_ratio")], 1)[0],
        rule=rule,
        notes=[str(note)[:500] for note in notes],
    )


def _figures(about: dict[str, Any]) -> Figures:
    shares = about["cpu_share"]
    if not isinstance(shares, list) or len(shares) > _MAX_TASKS:
        raise ValueError("shares of tasks that are no list")
    numbers: dict[str, Any] = {name: _number(about[name]) for name in (*SCALARS, "home_share")}
    for group in LATENCIES:
        numbers[group] = {
            p: None if (v := _number(about[group][p])) is None else round(v) for p in PERCENTILES
        }
    return Figures(
        **numbers,
        cpu_share={_whole([pid], -1, 1 << 31, 1)[0]: _number(v) or 0.0 for pid, v in shares},
        n=_whole([about["wakeups"]], 0, 1 << 60, 1)[0],
        span_ns=_whole([about["span_ns"]], 1, 1 << 61, 1)[0],
    )


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value < 1e18:
        raise ValueError("a figure that is no number from 0")
    number: float = value
    return number


def _whole(values: object, low: int, end: int, n: int) -> list[int]:
    """So many whole numbers from `low` to below `end`."""
    if not isinstance(values, list) or len(values) != n:
        raise ValueError(f"a list of {n} numbers was expected")
    if not all(type(v) is int and low <= v < end for v in values):
        raise ValueError(f"a number that is not from {low} to {end - 1}")
    return values


def _perhaps(values: object, n: int, end: int = 65_536) -> list[int | None]:
    if not isinstance(values, list) or len(values) != n:
        raise ValueError(f"a list of {n} numbers was expected")
    known = [v for v in values if v is not None]
    _whole(known, 0, end, len(known))
    return list(values)
