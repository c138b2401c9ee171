"""A workload as a folder: three Parquet files and workload.json; what is read is not believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from traceana import schema
from traceana import topology as topo
from traceana._sim_state import OP, QUANTILES, TASK, Op, Start
from traceana.errors import FormatError, InputError, UsageError
from traceana.workload import Workload

__all__ = ["is_workload", "load", "save"]

Array = npt.NDArray[Any]
_FORMAT = "traceana-workload"
_VERSION = 1
#: What a file may hold at most: a hostile one may not ask for any amount of memory.
_MAX_TASKS, _MAX_ROWS, _MAX_SETS, _MAX_JSON = 4_194_304, 1 << 27, 65_536, 64 << 20
_MAX_NS = 1 << 61
_UNREADABLE = (
    OSError, pa.ArrowException, schema.SchemaError, ValueError, KeyError, TypeError, OverflowError,
    AttributeError, RecursionError,
)  # fmt: skip


def is_workload(path: Path) -> bool:
    """Whether a folder holds a workload."""
    return (path / "workload.json").is_file()


def save(workload: Workload, path: Path) -> None:
    """See :meth:`traceana.workload.Workload.save`."""
    if path.exists() and not is_workload(path) and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path}: is there already and is no workload")
    about = {
        "format": _FORMAT,
        "version": _VERSION,
        "begin_ns": workload.begin_ns,
        "span_ns": workload.span_ns,
        "counts": dict(workload.counts),
        "accounts": dict(workload.accounts),
        "wake_ns": {k: list(v) for k, v in workload.wake_ns.items()},
        "leaves": {k: list(v) for k, v in workload.leaves.items()},
        "budgets": workload.budgets,
        "newidle": list(workload.newidle),
        "idle_flips": workload.idle_flips,
        "allowed": [np.flatnonzero(row).tolist() for row in workload.allowed],
    }
    tasks = {name: workload.tasks[name] for name in TASK.names or ()}
    rows: dict[str, Any] = {name: workload.script[name] for name in OP.names or ()}
    rows["over_ns"], rows["woken_ns"] = workload.when[:, 0], workload.when[:, 1]
    try:
        path.mkdir(parents=True, exist_ok=True)
        named = pa.table({**tasks, "name": pa.array(workload.names, pa.string())})
        pq.write_table(named, path / "tasks.parquet", compression="zstd")
        pq.write_table(pa.table(rows), path / "script.parquet", compression="zstd")
        pq.write_table(workload.topology, path / "topology.parquet")
        # Last: a folder without it is no workload.
        (path / "workload.json").write_text(json.dumps(about), encoding="utf-8")
    except OSError as error:
        raise InputError(path, error.strerror or "cannot be written") from error


def load(path: Path) -> Workload:
    """See :meth:`traceana.workload.Workload.load`."""
    if not is_workload(path):
        raise FormatError(path, "no workload: there is no workload.json in it")
    try:
        if (path / "workload.json").stat().st_size > _MAX_JSON:
            raise FormatError(path, "workload.json of more than 64 MiB")
        about = json.loads((path / "workload.json").read_text(encoding="utf-8"))
        if about["format"] != _FORMAT or about["version"] != _VERSION:
            raise FormatError(path, "a workload of another version")
        return _read(path, about)
    except _UNREADABLE as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(path, f"damaged workload: {str(error)[:200]}") from error


def _columns(path: Path, names: tuple[str, ...], most: int) -> dict[str, Array]:
    file = pq.ParquetFile(path)
    if file.metadata.num_rows > most:
        raise ValueError(f"{path.name}: more than {most} rows")
    table = file.read(columns=list(names))
    out = {}
    for name in names:
        column = table.column(name)
        if column.null_count or not pa.types.is_int64(column.type):
            raise ValueError(f"{path.name}: {name} is not of whole numbers")
        out[name] = column.to_numpy()
    return out


def _read(path: Path, about: dict[str, Any]) -> Workload:
    table = pq.ParquetFile(path / "topology.parquet")
    if table.metadata.num_rows > topo.MAX_CPUS:
        raise ValueError("topology.parquet: more CPUs than there can be")
    topology = table.read().cast(schema.TOPOLOGY.schema)
    schema.check(topology, "topology")
    n_cpus = topo.as_arrays(topology).n_cpus
    columns = _columns(path / "tasks.parquet", TASK.names or (), _MAX_TASKS)
    tasks = np.zeros(len(columns["pid"]), TASK)
    for name, values in columns.items():
        tasks[name] = values
    names = pq.read_table(path / "tasks.parquet", columns=["name"]).column("name").to_pylist()
    rows = _columns(path / "script.parquet", (*(OP.names or ()), "over_ns", "woken_ns"), _MAX_ROWS)
    script = np.zeros(len(rows["code"]), OP)
    for name in OP.names or ():
        script[name] = rows[name]
    when = np.stack([rows["over_ns"], rows["woken_ns"]], axis=1)
    sets = about["allowed"]
    if len(sets) > _MAX_SETS:
        raise ValueError("too many sets of CPUs")
    allowed = np.zeros((len(sets), n_cpus), np.uint8)
    for i, cpus in enumerate(sets):
        at = np.array(cpus, np.int64)
        if not len(at) or at.min() < 0 or at.max() >= n_cpus:
            raise ValueError("a set of CPUs that are not there")
        allowed[i, at] = 1
    newidle = about.get("newidle", [-1, -1, -1])
    if len(newidle) != 3:
        raise ValueError("newidle are three times")
    made = Workload(
        tasks=tasks,
        script=script,
        when=when,
        allowed=allowed,
        names=[str(name) for name in names],
        topology=topology,
        begin_ns=_whole(about["begin_ns"]),
        span_ns=_whole(about["span_ns"]),
        counts={str(k): _whole(v) for k, v in about["counts"].items()},
        accounts={str(k): _whole(v) for k, v in about["accounts"].items()},
        wake_ns={
            str(k): (_whole(v[0]), _whole(v[1]), bool(v[2])) for k, v in about["wake_ns"].items()
        },
        leaves={
            str(k): ([_whole(x) for x in v[0]], _whole(v[1])) for k, v in about["leaves"].items()
        },
        budgets=[_whole(x) for x in about["budgets"]],
        newidle=(_whole(newidle[0]), _whole(newidle[1]), _whole(newidle[2])),
        idle_flips=[_whole(x) for x in about.get("idle_flips", [])],
    )
    _check(made, n_cpus)
    return made


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_NS:
        raise ValueError(f"{str(value)[:40]} is no whole number within reach")
    return value


def _check(workload: Workload, n_cpus: int) -> None:
    """Every index within its table, every time within reach.

    Raises
    ------
    ValueError
    """
    tasks, script = workload.tasks, workload.script
    n, m = len(tasks), len(script)
    if workload.span_ns < 0:
        raise ValueError("a window that ends before it begins")
    if any(len(ns) != QUANTILES for ns, _ in workload.leaves.values()):
        raise ValueError(f"leaves: not {QUANTILES} quantiles")
    limits = {
        "pid": (0, 2**31 - 1), "weight": (1, 1 << 20), "prio": (-1, 139), "policy": (0, 7),
        "allowed": (-1, len(workload.allowed) - 1), "first": (0, m), "end": (0, m),
        "loop": (-1, m), "state": (Start.UNBORN, Start.WAKING), "cpu": (0, n_cpus - 1),
        "op": (0, m), "tokens": (0, 1 << 40), "last_wakee": (-1, n - 1), "recent": (-1, n_cpus - 1),
        "util": (0, 1024),
    }  # fmt: skip
    for name in TASK.names or ():
        low, high = limits.get(name, (-_MAX_NS, _MAX_NS))
        if n and (tasks[name].min() < low or tasks[name].max() > high):
            raise ValueError(f"tasks: {name} out of range")
    if (
        np.any(tasks["first"] > tasks["end"])
        or np.any((tasks["op"] < tasks["first"]) | (tasks["op"] > tasks["end"]))
        or np.any((tasks["loop"] >= 0) & (tasks["loop"] < tasks["first"]))
    ):
        raise ValueError("tasks: rows of the script that are another's")
    if m and (script["code"].min() < Op.RUN or script["code"].max() > Op.STEP):
        raise ValueError("script: unknown step")
    if m and (script["value"].min() < -_MAX_NS or script["value"].max() > _MAX_NS):
        raise ValueError("script: a time beyond reach")
    whom = np.isin(script["code"], (Op.WAKE, Op.FORK, Op.YIELD_TO))
    if np.any(whom & ((script["task"] < 0) | (script["task"] >= n))):
        raise ValueError("script: a task that does not exist")
    boxes = np.isin(script["code"], (Op.SEND, Op.RECV))
    if np.any(boxes & ((script["task"] < 0) | (script["task"] >= max(2 * n, 1 << 16)))):
        raise ValueError("script: a mailbox beyond reach")
