"""Many captures, one dataset: each is measured once, and again only if something has changed.

>>> from traceana.batch import run
>>> run(["captures/"], "dataset", jobs=4)           # doctest: +SKIP

Captures are independent: they go to a pool of processes of this machine (``_batch_pool``) or to a
Dask cluster that is there already (``_batch_dask``). Workers write their partition under a passing
name; this process alone gives it its place (``_batch_store``), so a run may be killed at any
moment. What a partition holds is in ``_batch_tables``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from traceana import __version__, schema
from traceana import rules as registry
from traceana._batch_inputs import Labels, Source, expand, merged, stamp
from traceana._batch_jobs import FURTHER, Asked, Done, Job, NoResultError, failed, labelled
from traceana._batch_pool import Died
from traceana._batch_pool import run as run_pool
from traceana._batch_store import Dataset, Key, part_folder, write_part
from traceana._batch_tables import LAYOUT
from traceana.errors import InputError, UsageError
from traceana.rules._steps import split

__all__ = ["MEMORY", "Asked", "Problem", "Summary", "run"]

#: Memory of its own that a worker may hold, bytes.
MEMORY = 2 << 30
#: Seconds that a worker may be at one capture.
LIMIT_S = 1800.0
#: Below this no kernel can be compiled.
LEAST_MEMORY = 512 << 20
#: Called with (captures done, captures in all, bytes done, bytes in all).
Progress = Callable[[int, int, int, int], None]


@dataclass(frozen=True)
class Problem:
    """A capture that is not whole: damaged, or without a result."""

    source: str
    status: str
    reason: str | None


@dataclass
class Summary:
    """What a run did. ``problems`` holds those of captures that were kept, too."""

    dataset: str
    captures: int = 0
    computed: int = 0
    kept: int = 0
    relabelled: int = 0
    problems: list[Problem] = field(default_factory=list)
    #: Captures in which a --label template was not found.
    unlabelled: int = 0
    workers: int = 0
    #: Most memory that a worker held, bytes; None: no worker was needed.
    peak: int | None = None

    def of(self, status: str) -> int:
        """How many are of a status: 'ok', 'damaged' or 'failed'."""
        if status == "ok":
            return self.captures - len(self.problems)
        return sum(p.status == status for p in self.problems)


def run(
    captures: Sequence[str],
    dataset: str | Path,
    *,
    asked: Asked | None = None,
    labels: Sequence[str] = (),
    jobs: int | None = None,
    memory: int = MEMORY,
    limit: float = LIMIT_S,
    dask: str | None = None,
    check: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Measure captures into a dataset.

    Parameters
    ----------
    captures : see ``_batch_inputs.expand``
    dataset : its folder; what it holds already is kept where it fits
    asked : rules, workloads, and how captures are read
    labels : templates such as ``host-{host}/kernel-{kernel}.dat``
    jobs : worker processes; as many as there are CPUs, and as fit into memory, when None
    memory : bytes that a worker may hold; 0: no bound
    limit : seconds that a worker may be at one capture, 0: as long as it likes (not on Dask)
    dask : address of a scheduler, instead of processes of this machine
    check : read each capture, also where file times say that nobody has touched it
    progress : called after each capture

    Raises
    ------
    UsageError
        An option or argument that cannot be served.
    InputError
        The dataset cannot be written.
    """
    asked = asked or Asked()
    wrong = [t for t in asked.tables if t not in FURTHER]
    if wrong:
        raise UsageError(f"--tables {wrong[0]}: unknown; there are {', '.join(FURTHER)}")
    if memory and memory < LEAST_MEMORY:
        raise UsageError(f"--memory: a worker needs at least {LEAST_MEMORY >> 20} MiB")
    if jobs is not None and not 1 <= jobs <= 1024:
        raise UsageError(f"--jobs {jobs}: give a number of processes, from 1 to 1024")
    if not 0 <= limit < 1e7:
        raise UsageError(f"--timeout {limit:g}: give seconds, 0 for no limit")
    templates = [Labels(text) for text in labels]
    made_by = _made_by(asked)
    sources = expand(captures)
    with Dataset(dataset) as target:
        batch = _Batch(target, asked, made_by, memory=0 if dask else memory)
        summary = Summary(str(dataset), captures=len(sources))
        todo = []
        for source in sources:
            found = merged(templates, source.path)
            summary.unlabelled += bool(templates) and not found
            job = batch.plan(source, json.dumps(dict(sorted(found.items()))), check=check)
            if job is not None:
                todo.append(job)
        # Long ones first: what is left for the end is short, and no worker waits for another.
        sizes = {job.source.id: _size(job.source) for job in todo}
        todo.sort(key=lambda job: (-sizes[job.source.id], job.source.path))
        workers = jobs if jobs is not None else _default_jobs(memory)
        summary.workers = min(workers, len(todo))
        results: Iterator[Done | Died] = iter(())
        if todo and dask is not None:
            from traceana._batch_dask import run as run_dask

            results = run_dask(todo, dask, batch.begin)
        elif todo:
            results = run_pool(todo, workers, batch.begin, limit)
        done = [0, 0]
        for result in results:
            peak = batch.settle(result)
            summary.peak = max(summary.peak or 0, peak)
            done[0] += 1
            done[1] += sizes[result.job.source.id if isinstance(result, Died) else result.id]
            if progress is not None:
                progress(done[0], len(todo), done[1], sum(sizes.values()))
        batch.conclude(summary, sources)
    return summary


class _Batch:
    """What is known of each capture's partition while a run goes on."""

    def __init__(self, target: Dataset, asked: Asked, made_by: str, *, memory: int) -> None:
        self._target = target
        self._asked = asked
        self._made_by = made_by
        self._memory = memory
        self._keys = target.keys()
        self._jobs: dict[str, Job] = {}
        self._why: dict[str, str] = {}
        self._computed: set[str] = set()
        self._relabelled = 0

    def plan(self, source: Source, labels: str, *, check: bool) -> Job | None:
        """What is to be done about a capture; None: its partition stays as it is."""
        key = self._keys.get(source.id)
        known = None
        if key is None:
            why = "new"
        elif key.passing:
            why = "failed before, of something that may pass"
        elif key.made_by != self._made_by:
            why = "other rules, options or version"
        elif not check and key.stamp is not None and key.stamp == stamp(source):
            self._relabel(source.id, key, labels)
            return None
        else:
            why, known = "touched", key.digest
        self._why[source.id] = why
        job = Job(source, str(self._target.path), self._asked, labels, known, self._memory)
        self._jobs[source.id] = job
        return job

    def begin(self, job: Job, number: int) -> None:
        """Book that a worker is about to take a capture."""
        why = self._why[job.source.id] if number == 1 else f"try {number}: the worker died"
        self._target.note(job.source.id, "begin", why)

    def settle(self, result: Done | Died) -> int:
        """Give a result its place; the worker's peak of memory, bytes."""
        if isinstance(result, Died):
            self._died(result.job, f"no result: {result.how}")
            return 0
        job = self._jobs[result.id]
        if result.part is None:
            key = self._keys[result.id]
            key = Key(**{**asdict(key), "stamp": result.stamp})
            self._target.rekey(result.id, key)
            self._keys[result.id] = key
            self._relabel(result.id, key, job.labels)
            self._target.note(result.id, "kept", "same content")
            return result.peak
        key = Key(
            result.digest,
            self._made_by,
            job.labels,
            result.stamp,
            result.passing,
            result.status,
            result.reason,
        )
        part = Path(result.part)
        if not part.is_dir():
            self._died(job, f"no result: the worker's {part.name} is not seen here; workers and "
                       "dataset need one file system")  # fmt: skip
            return result.peak
        self._commit(result.id, part, key)
        return result.peak

    def _commit(self, capture: str, part: Path, key: Key) -> None:
        self._target.commit(capture, part, key)
        self._keys[capture] = key
        self._computed.add(capture)
        self._target.note(capture, "end", key.status)

    def _died(self, job: Job, how: str) -> None:
        tables = failed(NoResultError(how))
        tables["facts"] = labelled(tables["facts"], job.source, job.labels, None, None)
        part = part_folder(self._target.path)
        write_part(part, tables)
        key = Key(None, self._made_by, job.labels, None, True, "failed", how)
        self._commit(job.source.id, part, key)

    def _relabel(self, capture: str, key: Key, labels: str) -> None:
        if key.labels == labels:
            return
        key = Key(**{**asdict(key), "labels": labels})
        self._target.relabel(capture, key)
        self._keys[capture] = key
        self._relabelled += 1

    def conclude(self, summary: Summary, sources: Sequence[Source]) -> None:
        """Count what was done, and what is not whole."""
        summary.computed = len(self._computed)
        summary.kept = summary.captures - summary.computed
        summary.relabelled = self._relabelled
        for source in sources:
            key = self._keys[source.id]
            if key.status != "ok":
                summary.problems.append(Problem(source.path, key.status, key.reason))


def _size(source: Source) -> int:
    try:
        path = Path(source.path)
        if path.is_dir():
            return sum(p.stat().st_size for p in path.iterdir() if p.is_file())
        return path.stat().st_size
    except OSError:
        return 0


def _default_jobs(memory: int) -> int:
    """As many workers as there are CPUs for this process, and as fit into free memory."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        told = Path("/proc/meminfo").read_text()
        free = 1024 * int(told.split("MemAvailable:")[1].split()[0])
    except (OSError, ValueError, IndexError):
        free = 0
    fit = free // memory if memory and free else cpus or 1
    return max(1, min(cpus or 1, fit))


def _made_by(asked: Asked) -> str:
    """Versions and options that a partition hangs on, besides its capture's content."""
    options = asdict(asked)
    if asked.topology is not None:
        options["topology"] = _content(Path(asked.topology))
    made = {
        "traceana": __version__,
        "schema": schema.SCHEMA_VERSION,
        "layout": LAYOUT,
        "rules": {rule: _rule_version(rule) for rule in asked.rules},
        "options": options,
    }
    return json.dumps(made, sort_keys=True)


def _rule_version(rule: str) -> str:
    """Digest of the files of a rule (of several joined by ``+``: of each).

    Raises
    ------
    UsageError
        There is no such rule.
    """
    folder = Path(registry.__file__).parent
    total = hashlib.sha256()
    for part in split(rule):
        own = part.endswith(".py")
        if not own:
            registry.describe(part)
        total.update(_content(Path(part) if own else folder / f"{part}.py").encode())
    return total.hexdigest()[:16]


def _content(path: Path) -> str:
    try:
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.is_file())
            return hashlib.sha256("".join(_content(p) for p in files).encode()).hexdigest()[:16]
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise InputError(path, (error.strerror or str(error)).lower()) from error
