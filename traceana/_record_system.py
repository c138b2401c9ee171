"""What the analysis needs and no capture holds, read from /sys and /proc below any root.

Three files are stored beside a capture: ``CAPTURE.topology.json`` (rows of the ``topology``
table), ``CAPTURE.state.json`` (section 4 of the design, "Start state"; read by
:mod:`traceana.start_state`) and ``CAPTURE.system.json`` (kernel, scheduler features and
tunables, bandwidth limits). What this kernel does not show is null, never zero.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from traceana.errors import InputError

__all__ = [
    "read_number",
    "read_text",
    "start_state",
    "store_beside",
    "system",
    "topology_rows",
]

SYSTEM_VERSION = 1
_MAX_FILE = 1 << 20
_MAX_CGROUPS = 100_000
_TUNABLES = ("sys/kernel/debug/sched", "proc/sys/kernel")
#: Names of the same tunables over the kernels; before 5.13 they are sysctls.
_SYSCTL = re.compile(r"sched_\w+|numa_balancing")
_DEBUGFS = re.compile(
    r"\w+_(?:ns|ms|once)|nr_migrate|tunable_scaling|preempt|verbose|latency_warn\w*"
)
_CONFIG = re.compile(
    r"CONFIG_(?:HZ|HZ_PERIODIC|NO_HZ\w*|PREEMPT\w*|SCHED_\w+|SCHEDSTATS|\w*GROUP_SCHED"
    r"|CFS_BANDWIDTH|NUMA_BALANCING|SMP|UCLAMP_TASK|CPU_IDLE|VIRT_CPU_ACCOUNTING\w*)=(.*)"
)

#: Field of the start state -> name in /proc/PID/sched. The first is there wherever the file
#: is; the others only where a kernel carries such a patch.
_IN_MS = {
    "sum_exec_ns": ("se.sum_exec_runtime",),
    "dur_avg_ns": ("se.dur_avg",),
    "prev_sleep_sum_ns": ("se.prev_sleep_sum_runtime",),
}
_PLAIN = {
    "wakee_flips": ("wakee_flips",),
    "wakee_flip_decay_ts": ("wakee_flip_decay_ts",),
    "last_wakee": ("last_wakee",),
    "util_avg": ("se.avg.util_avg",),
    "load_avg": ("se.avg.load_avg",),
}
_FIELDS = (
    "dur_avg_ns", "prev_sleep_sum_ns", "sum_exec_ns", "wakee_flips", "wakee_flip_decay_ts",
    "last_wakee", "util_avg", "load_avg",
)  # fmt: skip


def read_text(path: Path) -> str | None:
    """The content of a small file without the white space around it; None if unreadable."""
    try:
        with path.open("rb") as handle:
            return handle.read(_MAX_FILE).decode("utf-8", "replace").strip()
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """The number that a file holds, or None."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted
    except OSError:
        return []


def topology_rows(root: Path) -> list[dict[str, Any]]:
    """Rows of the ``topology`` table of this machine.

    Raises
    ------
    InputError
        No readable CPU below ``sys/devices/system``.
    """
    from traceana import topology
    from traceana.issues import IssueLog

    table = topology.from_sysfs(root / "sys/devices/system", IssueLog())
    return list(table.to_pylist())


def start_state(root: Path, *, mono: bool) -> dict[str, Any]:
    """The start state of all threads that live now.

    Parameters
    ----------
    mono : bool
        The capture's clock is CLOCK_MONOTONIC: then ``at_ts``, the moment of ``jiffies_now``,
        can be given on it.
    """
    tasks = []
    seen_sched = False
    for pid in _listed(root / "proc"):
        if not pid.isdigit():
            continue
        for tid in _listed(root / "proc" / pid / "task"):
            if not tid.isdigit():
                continue
            folder = root / "proc" / pid / "task" / tid
            known = _task_values(folder)
            if known is None:
                continue  # it has ended meanwhile
            seen_sched = seen_sched or bool(known)
            tasks.append({"pid": int(tid), **{n: known.get(n) for n in _FIELDS}})
    at_ns, jiffies = _jiffies(root)
    tasks.sort(key=lambda t: int(t["pid"] or 0))
    return {
        "tasks": tasks,
        "jiffies_now": jiffies,
        "at_ts": at_ns if mono and jiffies is not None else None,
        "hz": _hz(_config(root)),
    }


def _task_values(folder: Path) -> dict[str, int] | None:
    text = read_text(folder / "sched")
    if text is None:
        # A kernel without CONFIG_SCHED_DEBUG: run time (ns), run delay, time slices.
        words = (read_text(folder / "schedstat") or "").split()
        if len(words) == 3 and words[0].isdigit():
            return {"sum_exec_ns": int(words[0])}
        return {} if folder.is_dir() else None
    values: dict[str, str] = {}
    # The first two lines hold the name, which may contain anything.
    _, _, body = text.partition("\n-----")
    for line in body.splitlines():
        name, colon, value = line.rpartition(":")
        if colon:
            values[name.strip()] = value.strip()
    found: dict[str, int] = {}
    for field, names in (_IN_MS | _PLAIN).items():
        for name in names:
            number = _number(values.get(name, ""), split=field in _IN_MS)
            if number is not None and number >= 0:
                found[field] = number
    return found


def _number(text: str, *, split: bool) -> int | None:
    """A value of /proc/PID/sched; times are printed as ms and 6 digits of ns.

    >>> _number("184.148689", split=True)
    184148689
    >>> _number("8", split=True)
    8
    """
    if split and (match := re.fullmatch(r"(\d+)\.(\d{6})", text)):
        return int(match[1]) * 1_000_000 + int(match[2])
    try:
        return int(text)
    except ValueError:
        return None


def _jiffies(root: Path) -> tuple[int | None, int | None]:
    """(CLOCK_MONOTONIC in ns, jiffies) of one instant, from /proc/timer_list (root only)."""
    try:
        with (root / "proc/timer_list").open(errors="replace") as lines:
            now = None
            for line in lines:
                if match := re.match(r"now at (\d+) nsecs", line):
                    now = int(match[1])
                elif match := re.match(r"jiffies: (\d+)", line):
                    return now, int(match[1])
    except OSError:
        pass
    debug = read_text(root / "sys/kernel/debug/sched/debug") or read_text(root / "proc/sched_debug")
    match = re.search(r"^jiffies\s*:\s*(\d+)", debug or "", re.MULTILINE)
    return None, int(match[1]) if match else None


def _config(root: Path) -> dict[str, str]:
    """What the kernel's configuration says of scheduling; empty where it is not shown."""
    text = ""
    try:
        with gzip.open(root / "proc/config.gz", "rt", errors="replace") as handle:
            text = handle.read(4 * _MAX_FILE)
    except (OSError, EOFError, zlib.error):
        pass
    if not text:
        release = read_text(root / "proc/sys/kernel/osrelease") or ""
        text = read_text(root / "boot" / f"config-{release}") or ""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if _CONFIG.fullmatch(line):
            name, _, value = line.partition("=")
            found[name] = value
    return found


def _hz(config: Mapping[str, str]) -> int | None:
    text = config.get("CONFIG_HZ", "")
    return int(text) if text.isdigit() else None


def system(root: Path, recording: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Kernel, scheduler features and tunables, bandwidth limits of cgroups.

    ``recording`` (tool, command, clock …) is taken over as it is.
    """
    config = _config(root)
    features = read_text(root / "sys/kernel/debug/sched/features")
    if features is None:
        features = read_text(root / "sys/kernel/debug/sched_features")
    tunables: dict[str, str | None] = {}
    for place, pattern in zip(_TUNABLES, (_DEBUGFS, _SYSCTL), strict=True):
        for name in _listed(root / place):
            if pattern.fullmatch(name) and (root / place / name).is_file():
                tunables[name] = read_text(root / place / name)
    cpu = root / "sys/devices/system/cpu"
    clock = "sys/devices/system/clocksource/clocksource0/current_clocksource"
    limits, complete = _limits(root)
    return {
        "version": SYSTEM_VERSION,
        "kernel": read_text(root / "proc/sys/kernel/osrelease"),
        "kernel_version": read_text(root / "proc/version"),
        "command_line": read_text(root / "proc/cmdline"),
        "hz": _hz(config),
        "config": config or None,
        "sched_features": features.split() if features is not None else None,
        "sched_tunables": tunables,
        "cpus_isolated": read_text(cpu / "isolated"),
        "smt_active": read_number(cpu / "smt/active"),
        "clocksource": read_text(root / clock),
        "cgroup_limits": limits,
        "cgroup_limits_complete": complete,
        "recording": dict(recording) if recording is not None else None,
    }


def _cgroup_folders(root: Path) -> Iterator[tuple[Path, Path]]:
    """(hierarchy, folder) of each cgroup with a cpu controller, v2 and v1."""
    base = root / "sys/fs/cgroup"
    places = [base] if (base / "cgroup.controllers").is_file() else []
    places += [base / n for n in ("unified", "cpu", "cpu,cpuacct") if (base / n).is_dir()]
    done: set[Path] = set()
    for place in places:
        if place.resolve() in done:  # cpu is often a link to cpu,cpuacct
            continue
        done.add(place.resolve())
        for folder, dirs, _ in os.walk(place):
            dirs.sort()
            yield place, Path(folder)


def _limits(root: Path) -> tuple[list[dict[str, Any]], bool]:
    """The cgroups that have a quota, and whether all of them were looked at."""
    found: list[dict[str, Any]] = []
    for count, (place, folder) in enumerate(_cgroup_folders(root)):
        if count == _MAX_CGROUPS:
            return found, False
        quota: int | None = None
        period: int | None = None
        words = (read_text(folder / "cpu.max") or "").split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
            quota, period = int(words[0]), int(words[1])
        elif not words:
            quota = read_number(folder / "cpu.cfs_quota_us")
            period = read_number(folder / "cpu.cfs_period_us")
        if quota is not None and quota > 0:
            name = folder.relative_to(place).as_posix()
            path = "/" if name == "." else f"/{name}"
            found.append({"cgroup": path, "quota_us": quota, "period_us": period})
    return found, True


def store_beside(
    capture: str | Path,
    root: Path = Path("/"),
    *,
    mono: bool,
    recording: Mapping[str, Any] | None = None,
    force: bool = False,
) -> tuple[list[str], list[str]]:
    """Write the three files beside a capture (which need not be there yet).

    Returns
    -------
    written, gaps : lists of str
        Names of the files, and one line for each thing that this machine does not show.

    Raises
    ------
    UsageError
        One of the files exists, and not ``force``.
    """
    from traceana import output

    name = str(capture)
    targets = [f"{name}.{what}.json" for what in ("state", "topology", "system")]
    for target in targets:
        output.check_target(target, force=force)
    written, gaps = [], []
    state = start_state(root, mono=mono)  # first: it ages
    documents: list[Any] = [state]
    try:
        documents.append({"topology": topology_rows(root)})
    except InputError as error:
        documents.append(None)
        gaps.append(f"no topology: {error.what}")
    facts = system(root, recording)
    documents.append(facts)
    for target, document in zip(targets, documents, strict=True):
        if document is not None:
            output.write_text(json.dumps(document, indent=1) + "\n", target, force=force)
            written.append(target)
    gaps += _gaps(state, facts)
    return written, gaps


def _gaps(state: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    gaps = []
    tasks = state["tasks"]
    unknown = [n for n in _FIELDS if not any(t[n] is not None for t in tasks)]
    if unknown:
        gaps.append(f"start state: this kernel shows no {', '.join(unknown)}")
    if state["jiffies_now"] is None:
        gaps.append("start state: jiffies are not known (/proc/timer_list needs root)")
    if state["hz"] is None:
        gaps.append("CONFIG_HZ is not known (neither /proc/config.gz nor /boot/config-RELEASE)")
    if facts["sched_features"] is None:
        gaps.append("scheduler features cannot be read (root and debugfs, without lockdown)")
    if not facts["cgroup_limits_complete"]:
        gaps.append(f"bandwidth limits: only the first {_MAX_CGROUPS} cgroups")
    return gaps
