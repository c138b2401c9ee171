"""Which CPUs share what: the ``topology`` table from every place where a user may have it.

What decides is the kernel's scheduling domains (section 11 of the semantics): SMT siblings
are the thread siblings; the LLC is the highest cache level shared by unified caches, named by
its lowest CPU as the kernel's ``sd_llc_id``; a cluster counts only where it is more than a
core and less than the LLC. Sources, best first:

* a side file (:func:`load_side_file`): JSON of the ``topology`` table, ``lscpu -p`` output, or
  a folder or tar of ``/sys/devices/system``;
* the header of the capture (:func:`from_perf_header`);
* an assumption (:func:`assumed`): one LLC, no SMT. Who uses it has to say so.

:func:`as_arrays` turns a table into the arrays that kernels take.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import schema
from traceana._topology_sources import (
    MAX_CPUS,
    HeaderCache,
    HeaderTopology,
    rows_from_lscpu,
    rows_from_perf_header,
)
from traceana._topology_sysfs import (
    rows_from_sysfs_folder,
    rows_from_sysfs_tar,
    unwrap_side_file,
)
from traceana._topology_table import CpuRow, build
from traceana.errors import FormatError, InputError

if TYPE_CHECKING:
    from traceana.issues import IssueLog

__all__ = [
    "MAX_CPUS",
    "HeaderCache",
    "HeaderTopology",
    "TopologyArrays",
    "as_arrays",
    "assumed",
    "find_side_file",
    "from_json",
    "from_lscpu",
    "from_perf_header",
    "from_sysfs",
    "learned",
    "load_side_file",
    "shaped",
]

_SUFFIX = ".topology.json"
_WRAPPERS = (".xz", ".gz", ".zst", ".bz2")


def assumed(cpus: int | Iterable[int]) -> pa.Table:
    """The topology of a machine of which only the CPUs are known: one LLC, no SMT.

    Parameters
    ----------
    cpus : int or iterable of int
        Number of CPUs, or the ids that were seen.
    """
    ids = range(cpus) if isinstance(cpus, int) else sorted(set(cpus))
    return build([CpuRow(cpu, ("core", cpu), "llc") for cpu in ids], "assumed")


def learned(llc: Iterable[int]) -> pa.Table:
    """The topology of a machine of which only the LLC of each CPU was learnt: no SMT.

    Parameters
    ----------
    llc : a group per CPU; -1 where nothing is known: such a CPU stands alone.
    """
    rows = [
        CpuRow(cpu, ("core", cpu), ("llc", group) if group >= 0 else ("alone", cpu))
        for cpu, group in enumerate(llc)
    ]
    return build(rows, "learned")


def shaped(sockets: int, cores: int, threads: int) -> pa.Table:
    """The topology of so many sockets, cores a socket, threads a core; one LLC and node a socket.

    Threads are numbered as on x86: the first ones of all cores, then the second ones.
    """
    n = sockets * cores
    of = [c % n // cores for c in range(n * threads)]
    rows = [CpuRow(c, c % n, s, node=s, socket=s) for c, s in enumerate(of)]
    # Nothing is assumed of a machine that somebody has described.
    return build(rows, "header")


def from_perf_header(header: HeaderTopology, issues: IssueLog) -> pa.Table | None:
    """The topology of a perf.data header, or None where it holds neither siblings nor caches.

    Books ``llc_is_package`` where no unified cache is recorded and the package had to serve
    as LLC (wrong on machines with several LLCs a package), ``topology_contradiction`` where
    the sibling lists and the per-CPU core ids disagree (the lists win, as in the kernel).
    """
    rows = rows_from_perf_header(header, issues)
    return build(rows, "header") if rows else None


def from_lscpu(text: str, issues: IssueLog, *, path: str | Path = "lscpu") -> pa.Table:
    """The topology from ``lscpu -p=CPU,CORE,SOCKET,NODE,CACHE`` (any columns, see its head line).

    Raises
    ------
    FormatError
        A line or a column that cannot be read.
    """
    return build(rows_from_lscpu(text, issues, path), "side_file")


def from_sysfs(
    source: str | Path | bytes, issues: IssueLog, *, path: str | Path = "tar"
) -> pa.Table:
    """The topology from files of ``/sys/devices/system``, at any depth of a folder or a tar.

    Parameters
    ----------
    source : path of a folder, or the bytes of a tar
        Nothing is extracted, links are not followed.
    path : str or Path
        For messages, when ``source`` is bytes.

    Raises
    ------
    FormatError
        No such files in it, or those of two machines.
    """
    if isinstance(source, bytes):
        return build(rows_from_sysfs_tar(source, issues, path), "side_file")
    return build(rows_from_sysfs_folder(Path(source), issues), "side_file")


def from_json(text: str, *, path: str | Path = "topology.json") -> pa.Table:
    """The topology from JSON: a list of row objects, or one object of columns.

    The columns are those of the ``topology`` table; cpu, core and llc must be there, the
    others may be missing or null. An ``llc`` may be any number that is equal for the CPUs
    that share it; it becomes the lowest of them. ``{"topology": …}`` around it is taken off.

    Raises
    ------
    FormatError
        Not JSON, a missing or wrong column, a CPU named twice, siblings in two LLCs.

    Examples
    --------
    >>> t = from_json('[{"cpu": 0, "core": 0, "llc": 0}, {"cpu": 1, "core": 0, "llc": 0}]')
    >>> t.column("llc").to_pylist()
    [0, 0]
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        what = f"not JSON: {error}"
        raise FormatError(path, what) from error
    if isinstance(data, dict) and "topology" in data:
        data = data["topology"]
    if isinstance(data, dict):
        data = _rows_of_columns(data, path)
    if not isinstance(data, list) or not data:
        what = "a topology is a list of rows, or an object of columns, with at least one CPU"
        raise FormatError(path, what)
    known = {c.name for c in schema.TOPOLOGY.columns}
    rows: list[CpuRow] = []
    for number, item in enumerate(data):
        where = f"row {number}"
        if not isinstance(item, dict):
            what = f"{where} is not an object"
            raise FormatError(path, what)
        surplus = sorted(set(item) - known)
        if surplus:
            what = f"{where}: unknown column {surplus[0]!r}"
            raise FormatError(path, what, hint=f"known: {', '.join(sorted(known))}")
        cpu = _integer(item, "cpu", where, path, needed=True)
        core = _integer(item, "core", where, path, needed=True)
        llc = _integer(item, "llc", where, path, needed=True)
        online = item.get("online", True)
        if not isinstance(online, bool):
            what = f"{where}: online is {online!r}, expected true or false"
            raise FormatError(path, what)
        assert cpu is not None
        if cpu >= MAX_CPUS:
            what = f"{where}: cpu {cpu} is beyond {MAX_CPUS - 1}"
            raise FormatError(path, what)
        rows.append(
            CpuRow(
                cpu,
                core,
                llc,
                cluster=_integer(item, "cluster", where, path),
                node=_integer(item, "node", where, path),
                socket=_integer(item, "socket", where, path),
                online=online,
            )
        )
    _check_rows(rows, path)
    return build(rows, "side_file", keep_numbers=True)


def _rows_of_columns(data: dict[str, Any], path: str | Path) -> list[dict[str, Any]]:
    lengths = {len(v) if isinstance(v, list) else -1 for v in data.values()}
    if len(lengths) != 1 or -1 in lengths:
        what = "an object of columns needs lists of one length"
        raise FormatError(path, what)
    return [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]


def _integer(
    item: dict[str, Any], name: str, where: str, path: str | Path, *, needed: bool = False
) -> int | None:
    value = item.get(name)
    if value is None and not needed:
        return None
    if value is None:
        what = f"{where}: {name} is missing"
        raise FormatError(path, what)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        what = f"{where}: {name} is {value!r}, expected a number from 0"
        raise FormatError(path, what)
    return value


def _check_rows(rows: list[CpuRow], path: str | Path) -> None:
    """A core lies in one LLC, node and socket, a CPU has one row."""
    seen: set[int] = set()
    of_core: dict[object, CpuRow] = {}
    for row in rows:
        if row.cpu in seen:
            what = f"cpu {row.cpu} has two rows"
            raise FormatError(path, what)
        seen.add(row.cpu)
        first = of_core.setdefault(row.core, row)
        for name in ("llc", "cluster", "node", "socket"):
            if getattr(first, name) != getattr(row, name):
                what = f"cpu {first.cpu} and cpu {row.cpu} are one core but differ in {name}"
                raise FormatError(path, what)


def find_side_file(capture: str | Path) -> Path | None:
    """``CAPTURE.topology.json`` beside a capture, if there is one.

    For a wrapped capture (``run.dat.xz``) the name without the wrapper's suffix serves, too.
    """
    capture = Path(capture)
    names = [capture.name]
    if capture.suffix in _WRAPPERS:
        names.append(capture.stem)
    for name in names:
        side = capture.with_name(name + _SUFFIX)
        if side.is_file():
            return side
    return None


def load_side_file(path: str | Path, issues: IssueLog) -> pa.Table:
    """The topology from a file or folder that a user gives; what it is, its content tells.

    Raises
    ------
    InputError
        It cannot be opened, is none of the forms, or is wrong in itself.
    """
    path = Path(path)
    if path.is_dir():
        return from_sysfs(path, issues)
    try:
        raw = path.read_bytes()
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise InputError(path, what) from error
    raw = unwrap_side_file(raw, path)
    if raw[257:262] == b"ustar":
        return from_sysfs(raw, issues, path=path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unknown_form(path) from error
    start = text.lstrip()[:1]
    if start in ("{", "["):
        return from_json(text, path=path)
    if start == "#" or start.isdigit():
        return from_lscpu(text, issues, path=path)
    raise _unknown_form(path)


def _unknown_form(path: Path) -> FormatError:
    what = "not a topology"
    hint = (
        "give JSON of the topology table, the output of lscpu -p=CPU,CORE,SOCKET,NODE,CACHE, "
        "or a folder or tar of /sys/devices/system"
    )
    return FormatError(path, what, hint=hint)


@dataclass(frozen=True)
class TopologyArrays:
    """A topology for kernels. Everything is indexed by CPU id, 0 to ``n_cpus`` - 1.

    A CPU that the table does not name is alone: a core and an LLC of its own, online,
    ``known`` 0. Nothing is ever assumed to be shared that no source says to be shared.
    An offline CPU keeps its numbers but is in no member list and in no weight, as it is
    in no scheduling domain.

    Lists are in compressed form: the members of group g are
    ``cpus[start[g]:start[g + 1]]``, ascending.
    """

    n_cpus: int
    #: int32[n]: core of a CPU, dense over the machine.
    core: npt.NDArray[np.int32]
    #: int32[n]: LLC of a CPU, dense over the machine.
    llc: npt.NDArray[np.int32]
    #: int32[n]: node of a CPU; -1 where not known.
    node: npt.NDArray[np.int32]
    #: int32[n]: package of a CPU; -1 where not known.
    socket: npt.NDArray[np.int32]
    #: uint8[n]
    online: npt.NDArray[np.uint8]
    #: uint8[n]: whether the table names it.
    known: npt.NDArray[np.uint8]
    n_cores: int
    n_llc: int
    #: int32[n_llc]: lowest CPU of an LLC (``sd_llc_id``).
    llc_id: npt.NDArray[np.int32]
    #: int32[n_llc]: number of its online CPUs (``sd_llc_size``).
    llc_weight: npt.NDArray[np.int32]
    #: int32[n_llc + 1], int32[…]: its online CPUs, in the order of the kernel's scan.
    llc_start: npt.NDArray[np.int32]
    llc_cpus: npt.NDArray[np.int32]
    #: int32[n_cores + 1], int32[…]: the online CPUs of a core (SMT siblings).
    core_start: npt.NDArray[np.int32]
    core_cpus: npt.NDArray[np.int32]
    #: Whether any core has more than one online CPU.
    has_smt: bool


def as_arrays(table: pa.Table, n_cpus: int = 0) -> TopologyArrays:
    """The arrays of a ``topology`` table, for at least ``n_cpus`` CPUs."""
    cpus = table.column("cpu").to_pylist()
    n = max([n_cpus, *(c + 1 for c in cpus)])
    core_key: list[object] = [("alone", c) for c in range(n)]
    llc_key: list[object] = [("alone", c) for c in range(n)]
    node = np.full(n, -1, np.int32)
    socket = np.full(n, -1, np.int32)
    online = np.ones(n, np.uint8)
    known = np.zeros(n, np.uint8)
    for row in table.to_pylist():
        cpu = row["cpu"]
        core_key[cpu], llc_key[cpu] = row["core"], row["llc"]
        node[cpu] = -1 if row["node"] is None else row["node"]
        socket[cpu] = -1 if row["socket"] is None else row["socket"]
        online[cpu] = row["online"]
        known[cpu] = 1
    core, n_cores = _dense(core_key)
    llc, n_llc = _dense(llc_key)
    core_start, core_cpus = _members(core, n_cores, online)
    llc_start, llc_cpus = _members(llc, n_llc, online)
    first = np.zeros(n_llc, np.int32)
    for cpu in range(n - 1, -1, -1):
        first[llc[cpu]] = cpu
    weight = np.diff(llc_start).astype(np.int32)
    for group in range(n_llc):
        if weight[group]:
            first[group] = llc_cpus[llc_start[group]]
    return TopologyArrays(
        n_cpus=n,
        core=core,
        llc=llc,
        node=node,
        socket=socket,
        online=online,
        known=known,
        n_cores=n_cores,
        n_llc=n_llc,
        llc_id=first,
        llc_weight=weight,
        llc_start=llc_start,
        llc_cpus=llc_cpus,
        core_start=core_start,
        core_cpus=core_cpus,
        has_smt=bool(n_cores and np.diff(core_start).max() > 1),
    )


def _dense(keys: Sequence[object]) -> tuple[npt.NDArray[np.int32], int]:
    """Numbers of groups in the order of their lowest CPU, and how many."""
    number: dict[object, int] = {}
    out = [number.setdefault(key, len(number)) for key in keys]
    return np.array(out, np.int32), len(number)


def _members(
    group: npt.NDArray[np.int32], n_groups: int, online: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    cpus = np.flatnonzero(online)
    of = group[cpus]
    order = np.argsort(of, kind="stable")
    start = np.zeros(n_groups + 1, np.int32)
    np.cumsum(np.bincount(of, minlength=n_groups)[:n_groups], out=start[1:])
    return start, cpus[order].astype(np.int32)
