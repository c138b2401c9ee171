"""Workloads: groups of tasks, one per family of process names unless globs say otherwise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

__all__ = ["family", "group_names"]

_TAIL = re.compile(r"(?:[-_.:#/ ]?\d)+$")
_KERNEL = re.compile(r"^(kworker|ksoftirqd|migration|cpuhp|rcu[a-z_]*|irq|napi|ktimers)/")


def family(comm: str) -> str:
    """The name without its running number: tasks of one pool share it.

    >>> family("pp-a-12"), family("kworker/3:1H"), family("hb-s-0-19"), family("7")
    ('pp-a', 'kworker', 'hb-s', '7')
    """
    kernel = _KERNEL.match(comm)
    if kernel:
        return kernel[1]
    return _TAIL.sub("", comm) or comm


def group_names(
    comms: Sequence[str | None],
    leaders: Sequence[str | None],
    globs: Sequence[tuple[str, str]] = (),
) -> list[str | None]:
    """The workload of each task.

    Parameters
    ----------
    comms : names of the tasks
    leaders : names of their processes (None: not known)
    globs : (workload, glob) pairs; the first that fits a task's or its process's name wins, and
        tasks that fit none belong to no workload. Without globs, families of process names.
    """
    out: list[str | None] = []
    for comm, leader in zip(comms, leaders, strict=True):
        if globs:
            names = [n for n in (comm, leader) if n is not None]
            out.append(next((w for w, g in globs if any(fnmatchcase(n, g) for n in names)), None))
        else:
            name = leader if leader is not None else comm
            out.append(None if name is None else family(name))
    return out
