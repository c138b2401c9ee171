"""The readers behind ``topology``: fields of a perf.data header, ``lscpu -p`` text.

Each gives :class:`~traceana._topology_table.CpuRow` rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from traceana._topology_table import CpuRow
from traceana.errors import FormatError

if TYPE_CHECKING:
    from traceana.issues import IssueLog

__all__ = [
    "MAX_CPUS",
    "HeaderCache",
    "HeaderTopology",
    "contradiction",
    "package_as_llc",
    "parse_cpu_list",
    "rows_from_lscpu",
    "rows_from_perf_header",
]

#: CPU ids at or beyond it are taken for damage: no kernel configuration goes near it.
MAX_CPUS = 65536

_Set = frozenset[int]


def parse_cpu_list(text: str) -> frozenset[int]:
    """The CPUs of a kernel list such as ``0-3,8``; empty for an empty text.

    Raises
    ------
    ValueError
        Not such a list, or beyond :data:`MAX_CPUS`.

    Examples
    --------
    >>> sorted(parse_cpu_list("0-2,8"))
    [0, 1, 2, 8]
    """
    cpus: set[int] = set()
    for part in text.strip().strip("\0").split(","):
        if not part.strip():
            continue
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part, re.ASCII)
        if match is None:
            raise ValueError(f"not a CPU list: {text[:60]!r}")
        first = int(match[1])
        last = int(match[2] or first)
        if last < first or last >= MAX_CPUS:
            raise ValueError(f"not a CPU list: {text[:60]!r}")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def contradiction(issues: IssueLog, what: str) -> None:
    """Book that a source disagrees with itself."""
    issues.add("topology", "topology_contradiction", f"topology: {what}")


def package_as_llc(issues: IssueLog, cpus: int, why: str) -> None:
    """Book that the LLC is assumed to be the package."""
    issues.add(
        "topology",
        "llc_is_package",
        f"{why}: the package is taken for the LLC of {cpus} CPUs "
        "(wrong on machines with several LLCs a package)",
    )


# ---------------------------------------------------------------- perf.data header


@dataclass(frozen=True)
class HeaderCache:
    """One cache of the CACHE feature. ``map`` is a CPU list."""

    level: int
    type: str
    map: str


@dataclass(frozen=True)
class HeaderTopology:
    """What the features of a perf.data header say of CPUs; empty where the feature is absent.

    ``cores`` are the packages ("core siblings" in the kernel's old word), ``threads`` the SMT
    siblings, ``dies`` the dies, each as CPU lists; ``per_cpu`` holds (core id, package id) by
    CPU, -1 where it was offline; ``nodes`` maps a NUMA node to its CPU list; ``caches`` is
    None where the feature is absent.
    """

    available: int = 0
    online: int = 0
    cores: list[str] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    dies: list[str] = field(default_factory=list)
    per_cpu: list[tuple[int, int]] = field(default_factory=list)
    nodes: dict[int, str] = field(default_factory=dict)
    caches: list[HeaderCache] | None = None


def _lists(texts: Iterable[str], what: str, issues: IssueLog) -> list[_Set]:
    out = []
    for text in texts:
        try:
            cpus = parse_cpu_list(text)
        except ValueError as error:
            contradiction(issues, f"{what} of the header: {error}")
            continue
        if cpus:
            out.append(cpus)
    return out


def _by_cpu(sets: Iterable[_Set], what: str, issues: IssueLog) -> dict[int, _Set]:
    out: dict[int, _Set] = {}
    for cpus in sets:
        for cpu in cpus:
            if out.setdefault(cpu, cpus) != cpus:
                contradiction(issues, f"cpu {cpu} is in two {what}; the first is taken")
    return out


def rows_from_perf_header(header: HeaderTopology, issues: IssueLog) -> list[CpuRow]:
    """Rows from CPU_TOPOLOGY, NUMA and CACHE; none where the first and the last are absent."""
    threads = _by_cpu(_lists(header.threads, "thread siblings", issues), "thread lists", issues)
    packages = _by_cpu(_lists(header.cores, "core siblings", issues), "core lists", issues)
    caches = [
        (c.level, cpus)
        for c in header.caches or []
        if c.type.strip().lower() == "unified"
        for cpus in _lists([c.map], "cache map", issues)
    ]
    if not threads and not caches and not packages:
        return []
    node_of: dict[int, int] = {}
    for node, text in header.nodes.items():
        for cpus in _lists([text], f"node {node}", issues):
            for cpu in cpus:
                node_of.setdefault(cpu, node)
    online = set(threads) | set(packages) | {cpu for _, cpus in caches for cpu in cpus}
    everybody = sorted(online | set(range(min(header.available, MAX_CPUS))))
    package_number: dict[_Set, int] = {}
    for cpu in sorted(packages):
        package_number.setdefault(packages[cpu], len(package_number))
    rows = []
    by_package = 0
    for cpu in everybody:
        if cpu not in online:
            rows.append(CpuRow(cpu, ("alone", cpu), ("alone", cpu), online=False))
            continue
        ids = header.per_cpu[cpu] if cpu < len(header.per_cpu) else (-1, -1)
        package = packages.get(cpu)
        socket = ids[1] if 0 <= ids[1] < 1 << 20 else package_number.get(package or frozenset())
        shared = [(level, cpus) for level, cpus in caches if cpu in cpus]
        llc: object
        if shared:
            llc = max(shared, key=lambda item: item[0])
        elif package is not None or socket is not None:
            llc, by_package = ("package", package or socket), by_package + 1
        else:
            llc = ("alone", cpu)
        core = threads.get(cpu)
        rows.append(
            CpuRow(
                cpu,
                core if core is not None else ("alone", cpu),
                llc,
                cluster=_cluster(shared, core or frozenset({cpu})),
                node=node_of.get(cpu),
                socket=socket,
            )
        )
    if by_package:
        why = "the header has no cache map" if header.caches is None else "no unified cache is told"
        package_as_llc(issues, by_package, why)
    _cross_check(header, threads, packages, issues)
    return rows


def _cluster(shared: list[tuple[int, _Set]], core: _Set) -> object:
    """The largest unified cache below the LLC that several cores share, as on x86."""
    below = sorted(shared, key=lambda item: item[0])[:-1]
    wide = [cpus for _, cpus in below if len(cpus) > len(core)]
    return wide[-1] if wide else None


def _cross_check(
    header: HeaderTopology, threads: dict[int, _Set], packages: dict[int, _Set], issues: IssueLog
) -> None:
    """Sibling lists against each other, against the ids per CPU, against NRCPUS."""
    for group in sorted(set(threads.values()), key=min):
        if len({packages.get(c) for c in group}) > 1:
            contradiction(issues, f"siblings {sorted(group)} lie in different packages")
        ids = {header.per_cpu[c] for c in group if c < len(header.per_cpu)}
        if len(ids) > 1:
            contradiction(issues, f"siblings {sorted(group)} have different core ids")
    if header.online and threads and header.online != len(threads):
        contradiction(
            issues, f"{header.online} CPUs online by NRCPUS, {len(threads)} in the sibling lists"
        )


# ---------------------------------------------------------------- lscpu -p


def rows_from_lscpu(text: str, issues: IssueLog, path: str | Path) -> list[CpuRow]:
    """Rows from ``lscpu -p``; the last comment line that begins with CPU names the columns."""
    names = ["cpu", "core", "socket", "node", "cache"]
    rows: list[CpuRow] = []
    seen: set[int] = set()
    by_package = 0
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line.startswith("#"):
            head = [name.strip().lower() for name in line.lstrip("# ").split(",")]
            if head[0] == "cpu":
                names = head
            continue
        if not line:
            continue
        cells = [cell.strip() for cell in line.split(",")]
        # Columns of this CPU's caches go on beyond the head line where that says just CACHE.
        values = dict(zip(names, cells, strict=False))
        cpu = _cell(values.get("cpu"), number, "cpu", path)
        if cpu is None or cpu >= MAX_CPUS:
            raise FormatError(path, "no CPU in the first column", line=number)
        if cpu in seen:
            raise FormatError(path, f"cpu {cpu} has two lines", line=number)
        seen.add(cpu)
        core = _cell(values.get("core"), number, "core", path)
        socket = _cell(values.get("socket"), number, "socket", path)
        node = _cell(values.get("node"), number, "node", path)
        cache = _last_cache(names, cells, number, path)
        online = values.get("online", "y").lower() not in ("n", "no")
        # CORE repeats over packages with lscpu --physical.
        core_label = ("alone", cpu) if core is None else (socket, core)
        llc: object
        if cache is not None:
            llc = cache
        elif core is None and socket is None:
            llc, online = ("alone", cpu), False
        else:
            llc, by_package = ("package", socket), by_package + 1
        rows.append(CpuRow(cpu, core_label, llc, node=node, socket=socket, online=online))
    if not rows:
        raise FormatError(path, "no line of a CPU", hint="expected lscpu -p output")
    if by_package:
        package_as_llc(issues, by_package, "lscpu shows no cache")
    of_core: dict[object, CpuRow] = {}
    for row in rows:
        first = of_core.setdefault(row.core, row)
        if first.llc != row.llc:
            contradiction(issues, f"cpu {first.cpu} and cpu {row.cpu} are one core in two LLCs")
    return rows


def _cell(text: str | None, line: int, name: str, path: str | Path) -> int | None:
    if text is None or text in ("", "-"):
        return None
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise FormatError(path, f"{name} is {text[:40]!r}, expected a number", line=line)
    return int(text)


def _last_cache(names: list[str], cells: list[str], line: int, path: str | Path) -> object:
    """The label of the last cache level of a line, e.g. of ``0:0:0:3`` or of columns L1d … L3."""
    levels: list[tuple[int, str, str]] = []
    for index, cell in enumerate(cells):
        name = names[index] if index < len(names) else ""
        if name.startswith("cache") or ":" in cell or ":" in name:
            labels = name.split(":") if ":" in name else []
            for depth, value in enumerate(cell.split(":")):
                label = labels[depth] if depth < len(labels) else ""
                levels.append((depth + 1, label, value))
        elif re.fullmatch(r"l\d+[di]?", name):
            levels.append((int(re.sub(r"\D", "", name)), name, cell))
    best: object = None
    for level, name, value in levels:
        if name.endswith(("d", "i")) and name[:1] == "l":
            continue
        part = _cell(value, line, "cache", path)
        if part is not None:
            best = (level, part)
    return best
