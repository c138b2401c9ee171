"""Archives of SchedViz (google/schedviz): raw pages, formats and topology in a ``.tar.gz``.

Its ``trace.sh`` writes ``traces/cpuN`` (pages of the ring buffer), ``formats/header_page``,
``formats/SYSTEM/EVENT/format``, ``topology/nodeN/cpuN/topology/*`` and ``metadata.textproto``.
Another script of it makes archives of a private text by bpftrace (``trace_type: EBPF``): these are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from traceana._topology_sources import package_as_llc, parse_cpu_list
from traceana._topology_table import CpuRow, build
from traceana.errors import UnsupportedError
from traceana.issues import IssueLog
from traceana.parsers.archive import Files, folder_files, folder_names, tar_files
from traceana.parsers.cut import cut_reader
from traceana.parsers.payload import as_bytes
from traceana.parsers.raw_pages import trace_file
from traceana.parsers.reader import Reader
from traceana.parsers.trace_dat import TraceDatReader

__all__ = [
    "is_schedviz_folder",
    "is_schedviz_tar",
    "open_schedviz_folder",
    "open_schedviz_tar",
]

_TRACE = re.compile(r"(?:^|/)(?:traces/cpu\d{1,6}|ebpf_trace)$")
_TOPOLOGY = re.compile(r"(?:^|/)topology/node(\d{1,5})/cpu(\d{1,5})/topology/(\w+)$")
_WANTED = re.compile(
    r"(?:^|/)(?:traces/cpu\d{1,6}|ebpf_trace|metadata\.textproto|formats/.*|topology/.*)$"
)


def _has_traces(names: Iterable[str]) -> bool:
    return any(_TRACE.search(name) for name in names)


def is_schedviz_folder(path: Path) -> bool:
    """Whether a folder is an unpacked archive of SchedViz."""
    return _has_traces(folder_names(path))


def is_schedviz_tar(buf: Any) -> bool:
    """Whether a tar archive is one of SchedViz."""
    return _has_traces(tar_files(buf).places)


def _topology(files: Files, issues: IssueLog) -> pa.Table | None:
    facts: dict[int, dict[str, str]] = {}
    for name in files.places:
        match = _TOPOLOGY.search(name)
        if match is not None:
            text = files.read(name, 4096).decode("ascii", "replace").strip()
            facts.setdefault(int(match[2]), {"node": match[1]})[match[3]] = text
    rows = []
    for cpu, told in sorted(facts.items()):
        number = {k: int(v) for k, v in told.items() if re.fullmatch(r"[0-9]{1,9}", v)}
        socket = number.get("physical_package_id")
        try:
            siblings = parse_cpu_list(told.get("thread_siblings_list", ""))
        except ValueError:
            siblings = frozenset()
        core = number.get("core_id", cpu)
        rows.append(
            CpuRow(
                cpu,
                siblings or (socket, core),
                ("package", socket),
                node=number["node"],
                socket=socket,
            )
        )
    if not rows:
        return None
    package_as_llc(issues, len(rows), "SchedViz tells no caches")
    return build(rows, "header")


def _open(path: Path, files: Files) -> Reader:
    names = list(files.places)
    metadata = next((n for n in names if n.split("/")[-1] == "metadata.textproto"), "")
    kind = re.search(rb"trace_type:\s*(\w+)", files.read(metadata))
    ebpf = kind is not None and kind[1] == b"EBPF"
    if ebpf or not any(re.search(r"(?:^|/)traces/cpu\d", n) for n in names):
        raise UnsupportedError(
            path,
            "a SchedViz archive of trace_type EBPF: private text of a bpftrace script, not ftrace",
            hint="record with SchedViz's trace.sh, or with trace-cmd or perf",
        )
    file = trace_file(path, files, "SchedViz archive")
    topology = _topology(files, file.issues)
    if topology is not None:
        file.cpu_count = topology.num_rows
    reader = TraceDatReader(path, as_bytes(files.buf), file, topology=topology)
    return reader if files.cut is None else cut_reader(reader, files.cut)


def open_schedviz_folder(path: Path) -> Reader:
    """Open an unpacked archive of SchedViz.

    Raises
    ------
    FormatError, UnsupportedError
        It holds no ftrace, or no formats.
    """
    return _open(path, folder_files(path, lambda name: _WANTED.search(name) is not None))


def open_schedviz_tar(path: Path, buf: Any) -> Reader:
    """Open an archive of SchedViz, out of its gzip; raises as :func:`open_schedviz_folder`."""
    return _open(path, tar_files(buf))
