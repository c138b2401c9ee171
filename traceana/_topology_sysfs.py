"""Reads ``/sys/devices/system`` files, in a folder or a tar, for ``topology``.

Nothing is extracted and no link is followed; a folder or tar may hold the tree at any depth.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from traceana._topology_sources import contradiction, package_as_llc, parse_cpu_list
from traceana._topology_table import CpuRow
from traceana.errors import FormatError, InputError

if TYPE_CHECKING:
    from traceana.issues import IssueLog

__all__ = ["rows_from_sysfs_folder", "rows_from_sysfs_tar", "unwrap_side_file"]

_MAX_UNWRAPPED = 512 << 20
_MAX_SYSFS_FILE = 64 << 10
_MAX_ENTRIES = 4_000_000

_Set = frozenset[int]

_CPU_FILE = re.compile(
    r"(?:^|(?P<prefix>.*?)/)?cpu(?P<cpu>\d{1,5})/(?P<name>topology/[a-z_]+|cache/index\d+/[a-z_]+|online)$",
    re.ASCII,
)
_SYSTEM_FILE = re.compile(
    r"(?P<prefix>(?:.*?/)?)(?P<name>cpu/(?:online|isolated|present)|node/node\d{1,5}/cpulist)$",
    re.ASCII,
)
_CPU_NAMES = frozenset(
    {
        "topology/core_id",
        "topology/physical_package_id",
        "topology/die_id",
        "topology/thread_siblings_list",
        "topology/core_cpus_list",
        "topology/core_siblings_list",
        "topology/package_cpus_list",
        "topology/cluster_cpus_list",
    }
)
_CACHE_NAMES = frozenset(("level", "type", "shared_cpu_list"))


#: Links to the CPUs, which some tars hold as copies.
_NODE_CPU = re.compile(r"(?:^|/)node\d+/cpu\d", re.ASCII)


def _wanted(path: str) -> bool:
    if _NODE_CPU.search(path):
        return False
    match = _CPU_FILE.match(path)
    if match is None:
        return _SYSTEM_FILE.match(path) is not None
    name = match["name"]
    return name in _CPU_NAMES or name == "online" or name.rsplit("/", 1)[-1] in _CACHE_NAMES


def rows_from_sysfs_tar(data: bytes, issues: IssueLog, path: str | Path) -> list[CpuRow]:
    """Rows from the bytes of a tar; regular members only, read in memory, nothing extracted."""
    files: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if not member.isreg() or member.size > _MAX_SYSFS_FILE or not _wanted(name):
                    continue
                handle = tar.extractfile(member)
                if handle is not None:
                    files[name] = handle.read().decode("ascii", "replace").strip()
    except (tarfile.TarError, EOFError, ValueError, OSError) as error:
        if not files:
            raise FormatError(path, f"not a readable tar: {error}") from error
        issues.add("topology", "topology_cut", f"{path}: the tar is cut: {error}")
    return _rows_from_files(files, issues, path)


def rows_from_sysfs_folder(root: Path, issues: IssueLog) -> list[CpuRow]:
    """Rows from a folder that holds ``devices/system`` at any depth; links are not followed."""
    base = root
    for inner in ("sys/devices/system", "devices/system"):
        if (root / inner / "cpu").is_dir():
            base = root / inner
            break
    files: dict[str, str] = {}
    for path in _walk(base):
        name = path.relative_to(base).as_posix()
        if not _wanted(name):
            continue
        try:
            with path.open("rb") as handle:
                files[name] = handle.read(_MAX_SYSFS_FILE).decode("ascii", "replace").strip()
        except OSError:
            continue  # e.g. cpu0/online of some architectures cannot be read
    return _rows_from_files(files, issues, root)


def _walk(base: Path) -> Iterator[Path]:
    count = 0
    for folder, dirs, names in os.walk(base, followlinks=False):
        count += len(dirs) + len(names)
        if count > _MAX_ENTRIES:
            raise InputError(
                base, "too many files", hint="give the folder that holds sys/devices/system"
            )
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and path.is_file():
                yield path


def _rows_from_files(files: dict[str, str], issues: IssueLog, path: str | Path) -> list[CpuRow]:
    per_cpu: dict[int, dict[str, str]] = {}
    system: dict[str, str] = {}
    prefixes: set[str] = set()
    for name, text in files.items():
        match = _CPU_FILE.match(name)
        if match is not None:
            per_cpu.setdefault(int(match["cpu"]), {})[match["name"]] = text
            prefixes.add(match["prefix"] or "")
            continue
        match = _SYSTEM_FILE.match(name)
        if match is not None:
            system[match["name"]] = text
    if not per_cpu:
        raise FormatError(
            path,
            "no CPU of /sys/devices/system in it",
            hint="files like cpu/cpu0/topology/core_id are needed",
        )
    if len(prefixes) > 1:
        first, second = sorted(prefixes)[:2]
        raise FormatError(path, f"files of several machines: {first or '.'} and {second or '.'}")
    try:
        return _rows_from_sysfs(per_cpu, system, issues)
    except ValueError as error:
        raise FormatError(path, str(error)) from error


def _is_partition(sets: Mapping[int, _Set]) -> bool:
    """Whether "shares with" is the same seen from each of the CPUs that share."""
    return all(
        cpu in group and all(sets.get(c) == group for c in group) for cpu, group in sets.items()
    )


def _first_list(values: dict[str, str], *names: str) -> _Set:
    for name in names:
        if values.get(f"topology/{name}"):
            return parse_cpu_list(values[f"topology/{name}"])
    return frozenset()


def _number(values: dict[str, str], name: str) -> int | None:
    text = values.get(f"topology/{name}", "")
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else None


def _unified_caches(values: dict[str, str]) -> list[tuple[int, _Set]]:
    indexes = {name.split("/")[1] for name in values if name.startswith("cache/")}
    out = []
    for index in sorted(indexes):
        level = values.get(f"cache/{index}/level", "")
        shared = parse_cpu_list(values.get(f"cache/{index}/shared_cpu_list", ""))
        kind = values.get(f"cache/{index}/type", "").lower()
        if kind == "unified" and shared and re.fullmatch(r"\d{1,2}", level, re.ASCII):
            out.append((int(level), shared))
    return sorted(out, key=lambda item: item[0])


def _rows_from_sysfs(
    per_cpu: dict[int, dict[str, str]], system: dict[str, str], issues: IssueLog
) -> list[CpuRow]:
    node_of: dict[int, int] = {}
    for name, text in system.items():
        if name.startswith("node/"):
            number = int(name.split("/")[1].removeprefix("node"))
            node_of.update(dict.fromkeys(parse_cpu_list(text), number))
    listed = parse_cpu_list(system["cpu/online"]) if system.get("cpu/online") else None
    rows = []
    threads: dict[int, _Set] = {}
    caches: dict[int, _Set] = {}
    by_package = 0
    for cpu in sorted(set(per_cpu) | (listed or frozenset())):
        values = per_cpu.get(cpu, {})
        socket = _number(values, "physical_package_id")
        siblings = _first_list(values, "thread_siblings_list", "core_cpus_list")
        package = _first_list(values, "package_cpus_list", "core_siblings_list")
        online = cpu in listed if listed is not None else values.get("online", "1") != "0"
        if not siblings and _number(values, "core_id") is None:
            online = online and listed is not None  # the kernel removes topology/ when offline
        core: object = ("alone", cpu)
        if siblings:
            core = threads[cpu] = siblings
        elif _number(values, "core_id") is not None:
            core = (socket, _number(values, "die_id"), _number(values, "core_id"))
        shared = _unified_caches(values)
        llc: object = ("alone", cpu)
        if shared:
            llc = shared[-1]
            caches[cpu] = shared[-1][1]
        elif package or socket is not None:
            llc = ("package", package or socket)
            by_package += online
        rows.append(
            CpuRow(
                cpu,
                core,
                llc,
                cluster=_first_list(values, "cluster_cpus_list") or None,
                node=node_of.get(cpu),
                socket=socket,
                online=online,
            )
        )
    for what, sets in (("thread siblings", threads), ("LLC maps", caches)):
        if not _is_partition(sets):
            contradiction(issues, f"{what} of the CPUs do not agree")
    if by_package:
        package_as_llc(issues, by_package, "no unified cache is told")
    isolated = parse_cpu_list(system.get("cpu/isolated", ""))
    if isolated:
        issues.add(
            "topology",
            "isolated_cpus",
            f"{len(isolated)} CPUs are isolated: the kernel searches no CPU from there",
            count=len(isolated),
        )
    return rows


# ---------------------------------------------------------------- wrappers


def unwrap_side_file(data: bytes, path: Path) -> bytes:
    """The bytes inside xz, gz, bz2 or zst, or the bytes themselves."""
    opener: Callable[[IO[bytes]], Any]
    if data[:6] == b"\xfd7zXZ\0":
        opener = lzma.open
    elif data[:2] == b"\x1f\x8b":
        opener = gzip.open
    elif data[:3] == b"BZh":
        opener = bz2.open
    elif data[:4] == b"\x28\xb5\x2f\xfd":
        import zstandard

        opener = zstandard.ZstdDecompressor().stream_reader
    else:
        return data
    out = bytearray()
    try:
        with opener(io.BytesIO(data)) as reader:
            while len(out) <= _MAX_UNWRAPPED:
                piece = reader.read(1 << 20)
                if not piece:
                    return bytes(out)
                out += piece
    except Exception as error:  # each of the four libraries has errors of its own
        raise FormatError(path, f"cannot be decompressed: {error}") from error
    raise FormatError(path, f"more than {_MAX_UNWRAPPED >> 20} MiB when decompressed")
