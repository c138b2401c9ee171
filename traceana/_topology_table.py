"""Rows of CPUs with any labels for what they share, made into the ``topology`` table."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from traceana import schema

__all__ = ["CpuRow", "build"]


@dataclass(frozen=True)
class CpuRow:
    """One CPU. ``core``, ``llc`` and ``cluster`` are labels: equal means shared."""

    cpu: int
    core: Hashable
    llc: Hashable
    cluster: Hashable | None = None
    node: int | None = None
    socket: int | None = None
    online: bool = True


def build(rows: Sequence[CpuRow], origin: str, *, keep_numbers: bool = False) -> pa.Table:
    """The ``topology`` table, by CPU.

    LLCs are named by their lowest online CPU (lowest at all, where none is online). Cores and
    clusters are numbered in the order of their lowest CPU, unless ``keep_numbers`` says that
    the labels are numbers to be kept. A cluster that is no more than a core, or as much as
    the LLC, is none: the kernel drops such a domain.
    """
    rows = sorted(rows, key=lambda row: row.cpu)
    llc: dict[Hashable, int] = {}
    for row in sorted(rows, key=lambda row: (not row.online, row.cpu)):
        llc.setdefault(row.llc, row.cpu)
    core: dict[Hashable, int] = {}
    for row in rows:
        core.setdefault(row.core, len(core))
    in_cluster: dict[Hashable, set[Hashable]] = {}
    in_llc: dict[Hashable, set[Hashable]] = {}
    for row in rows:
        if row.cluster is not None:
            in_cluster.setdefault(row.cluster, set()).add(row.core)
        in_llc.setdefault(row.llc, set()).add(row.core)
    cluster: dict[Hashable, int] = {}
    for row in rows:
        if row.cluster is not None and 1 < len(in_cluster[row.cluster]) < len(in_llc[row.llc]):
            cluster.setdefault(row.cluster, len(cluster))
    columns: dict[str, list[object]] = {
        "cpu": [row.cpu for row in rows],
        "core": [row.core if keep_numbers else core[row.core] for row in rows],
        "cluster": [
            row.cluster if keep_numbers and row.cluster in cluster else cluster.get(row.cluster)
            for row in rows
        ],
        "llc": [llc[row.llc] for row in rows],
        "node": [row.node for row in rows],
        "socket": [row.socket for row in rows],
        "online": [row.online for row in rows],
        "origin": [origin] * len(rows),
    }
    spec = schema.TOPOLOGY.schema
    return pa.table([pa.array(columns[f.name], f.type) for f in spec], schema=spec)
