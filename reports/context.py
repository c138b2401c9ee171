"""What the sections share: the stages' results as arrays, names, the workloads that matter.

Every stage is run at most once and only when a section asks. A stage that cannot run (its
events were not recorded, or the clock is no time) leaves its reason in :attr:`Context.why`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from traceana import topology as topo
from traceana.errors import MissingEventsError, TraceanaError, UsageError
from traceana.reports.model import Code, Strong, Text, say
from traceana.reports.words import clean, duration, share
from traceana.schema import EVENT_NAMES, TaskClass

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.race import Race
    from traceana.timeline import Timeline

__all__ = ["NO_TIME", "NULL", "Context", "Names", "Scope", "column", "missing_text"]

#: An int64 that is not known, in the arrays of this module.
NULL = -(2**63)

#: A workload matters from this share of the run time or of the wakeups on.
MATTERS = 0.05
#: So many of them at most, the biggest first.
WORKLOADS = 6


def column(table: pa.Table, name: str, null: int = NULL) -> npt.NDArray[Any]:
    """A column as a numpy array; nulls become ``null``."""
    data = table.column(name).combine_chunks()
    if data.null_count:
        data = pc.fill_null(data, pa.scalar(null, data.type))
    return np.asarray(data.to_numpy(zero_copy_only=False))


#: Columns of the wakeups and the fields of the timeline's rows behind them.
_RAW_NAMES = {
    "waking_ts": "waking",
    "wakeup_ts": "wakeup",
    "run_ts": "run",
    "wakeup_latency_ns": "latency",
    "queue_delay_ns": "delay",
    "wake_delay_ns": "wake_delay",
    "wakee": "wakee",
    "waker": "waker",
    "this_cpu": "this_cpu",
    "prev_cpu": "prev_cpu",
    "placed_cpu": "placed",
    "ran_cpu": "ran",
    "kind": "kind",
    "context": "context",
    "queueing": "queueing",
    "quality": "quality",
    "nr_running_placed": "nr_placed",
    "idle_cpus_llc": "idle_llc",
    "placed_idle": "placed_idle",
}


class Wakes(Mapping[str, npt.NDArray[Any]]):
    """Columns of the wakeups by name, read when asked for; kept unless they lie on disk."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._kept: dict[str, npt.NDArray[Any]] = {}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in _RAW_NAMES:
            raise KeyError(name)
        if name in self._kept:
            return self._kept[name]
        values = self._read(name)
        if self._timeline.study is None:
            self._kept[name] = values
        return values

    def _read(self, name: str) -> npt.NDArray[Any]:
        table = self._timeline.wakeups
        if name == "placed_idle":
            idle = table.column(name).combine_chunks().cast(pa.int8())
            return np.asarray(pc.fill_null(idle, -1).to_numpy(zero_copy_only=False))
        if name.endswith(("_ns", "_ts")):
            return column(table, name)
        if name in ("kind", "context", "queueing", "quality"):
            return column(table, name).astype(np.int64)
        return column(table, name, -1)

    def __iter__(self) -> Iterator[str]:
        return iter(_RAW_NAMES)

    def __len__(self) -> int:
        return len(_RAW_NAMES)


class Names:
    """Names of tasks and workloads, made harmless, or replaced by labels when redacted."""

    def __init__(self, tasks: pa.Table, *, redact: bool) -> None:
        self._comm = tasks.column("comm").to_pylist()
        self._pid = tasks.column("pid").to_pylist()
        self._idle = [c == TaskClass.IDLE for c in tasks.column("class").to_pylist()]
        self._redact = redact
        groups = dict.fromkeys(g for g in tasks.column("group").to_pylist() if g is not None)
        self._groups = {name: f"workload-{i}" for i, name in enumerate(groups)}

    def comm(self, task: int | None) -> str:
        """The task's name."""
        if task is None or task < 0:
            return "unknown"
        name = self._comm[task]
        if self._redact and not self._idle[task]:
            return f"task-{task}"
        return "(no name)" if name is None else clean(name)

    def pid(self, task: int | None) -> int | None:
        """The task's thread id; the dense id of the task when redacted."""
        if task is None or task < 0:
            return None
        return task if self._redact and not self._idle[task] else self._pid[task]

    def full(self, task: int | None) -> str:
        """Name and thread id, for a sentence."""
        if task is None or task < 0:
            return "an unknown task"
        if self._idle[task] or self._redact:
            return self.comm(task)
        return f"{self.comm(task)} (pid {self.pid(task)})"

    def group(self, name: str | None) -> str:
        """A workload's name."""
        if name is None:
            return "(none)"
        return self._groups.get(name, "workload") if self._redact else clean(name)


@dataclass(frozen=True)
class Scope:
    """All tasks, or those of one workload."""

    #: As the stages spell it ('workload:NAME'), or 'all'.
    key: str
    #: As a reader sees it.
    label: str
    #: bool per task
    tasks: npt.NDArray[np.bool_]
    runtime_ns: int
    wakeups: int

    @property
    def is_all(self) -> bool:
        return self.key == "all"


class Context:
    """A capture on its way into a report."""

    def __init__(
        self,
        cap: Capture,
        *,
        rules: Sequence[str],
        redact: bool,
        command: str | None,
        simulate: Sequence[str] = (),
    ) -> None:
        self.cap = cap
        self.rules = tuple(rules)
        self.redact = redact
        self.command = command
        #: Rules of the closed loop; none: it is not asked for.
        self.simulate = tuple(simulate)
        #: Stage -> why it has no result.
        self.why: dict[str, Text] = {}

    # --- the stages ---

    @cached_property
    def timeline(self) -> Timeline | None:
        """The timeline, or None without sched_switch."""
        try:
            timeline = self.cap.timeline(spill=True)
            self.cap.check_topology()
            return timeline
        except MissingEventsError as error:
            if not any(self.recorded(name) for name in EVENT_NAMES):
                raise
            self.why["timeline"] = missing_text("this section", error.events)
            return None

    @property
    def tl(self) -> Timeline:
        """The timeline, for sections that run only with one."""
        assert self.timeline is not None
        return self.timeline

    @cached_property
    def whatif(self) -> Any:
        """The rules' results, or None with the reason in :attr:`why`."""
        if self.timeline is None or not self.rules:
            return None
        try:
            from traceana.whatif import whatif

            return whatif(self.cap, list(self.rules))
        except MissingEventsError as error:
            self.why["whatif"] = missing_text("the comparison of rules", error.events)
        except UsageError:
            raise
        except TraceanaError as error:
            self.why["whatif"] = say("The rules could not be evaluated: ", clean(str(error)), ".")
        return None

    @cached_property
    def candidates(self) -> pa.Table | None:
        """Candidate double bookings, or None without sched_waking."""
        if self.timeline is None or not self.recorded("sched_waking"):
            return None
        from traceana.candidates import candidates

        return candidates(self.timeline.study or self.timeline)

    @cached_property
    def race(self) -> Race | None:
        """The ttwu race with its verdict, or None without sched_waking."""
        if self.timeline is None or not self.has_time or not self.recorded("sched_waking"):
            return None
        from traceana.race import race

        return race(self.cap)

    @cached_property
    def closed_loop(self) -> Any:
        """The rules of :attr:`simulate` on a model, or None with the reason in :attr:`why`."""
        try:
            from traceana.closed_loop import estimate

            return estimate(self.cap, list(self.simulate), seeds=4)
        except MissingEventsError as error:
            self.why["closed_loop"] = missing_text("the closed loop", error.events)
        except UsageError:
            raise
        except TraceanaError as error:
            self.why["closed_loop"] = say("It could not be simulated: ", clean(str(error)), ".")
        return None

    # --- facts ---

    @property
    def has_time(self) -> bool:
        return self.cap.has_time

    @cached_property
    def counts(self) -> dict[str, int]:
        """Recorded events per bare tracepoint name."""
        return self.cap.counts

    def recorded(self, name: str) -> bool:
        """Whether the tracepoint is in the capture and not ignored."""
        return bool(self.counts.get(name)) and name not in self.cap.ignored

    @cached_property
    def file(self) -> str:
        """The capture's name (never its folder: that is nobody's business)."""
        return "CAPTURE" if self.redact else self.cap.path.name

    def run(self, *words: str) -> str:
        """A command line that asks the same selection of the capture."""
        verb, *rest = words
        rest += [w for name in self.cap.asked_to_ignore for w in ("--ignore", name)]
        if self.cap.read_mode != "normal":
            rest += ["--read-mode", self.cap.read_mode]
        if self.cap.window is not None:
            ends = ("" if t is None else f"{t // 10**9}.{t % 10**9:09d}" for t in self.cap.window)
            rest += ["--time", ",".join(ends)]
        return shlex.join(["traceana", verb, self.file, *rest])

    @cached_property
    def span_ns(self) -> int:
        """Length of the capture; 0 if unknown."""
        return self.cap.span_ns or 0

    @cached_property
    def names(self) -> Names:
        # A redacted capture brings its labels along, the same as in every other verb.
        return Names(self.tl.tasks, redact=self.redact and not self.cap.redacted)

    @cached_property
    def wakes(self) -> Mapping[str, npt.NDArray[Any]]:
        """Columns of the wakeups as arrays; unknown: NULL for times, -1 for tasks and CPUs."""
        return Wakes(self.tl)

    @cached_property
    def studied(self) -> Mapping[str, npt.NDArray[Any]]:
        """The same of the stretch in which candidates are looked for and rules asked."""
        study = self.tl.study
        if study is None:
            return self.wakes
        rows = study.raw["wakeups"]
        return {ours: np.asarray(rows[theirs]) for ours, theirs in _RAW_NAMES.items()}

    def chunks(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of one of the timeline's long tables, part by part where it is long."""
        if self.tl.study is None:
            yield self.tl.rows.table(name).select(list(columns))
        else:
            yield from self.tl.rows.chunks(name, columns)

    @property
    def stretch(self) -> Text:
        """Where that stretch lies, when it is not the whole capture; else nothing."""
        study = self.tl.study
        if study is None:
            return say("")
        ns = study.last_ts - study.first_ts
        begin, end = (f"{t // 10**9}.{t % 10**9:09d}" for t in (study.first_ts, study.last_ts))
        return say(
            "The capture is long: this section is about ",
            Strong(duration(ns)),
            f" in its middle ({share(ns / max(self.span_ns, 1))} of it), from {begin} to {end} s. ",
        )

    @cached_property
    def machine(self) -> topo.TopologyArrays:
        """The topology, for all CPUs that the timeline knows."""
        return topo.as_arrays(self.cap.topology, self.tl.cpus.num_rows)

    @cached_property
    def cpu_order(self) -> list[int]:
        """The timeline's CPUs by node, LLC, core, number."""
        m = self.machine
        n = self.tl.cpus.num_rows
        return sorted(range(n), key=lambda c: (m.node[c], m.llc[c], m.core[c], c))

    @property
    def slice_tasks(self) -> npt.NDArray[Any]:
        """Task per slice."""
        return column(self.tl.slices, "task", -1)

    @property
    def slice_starts(self) -> npt.NDArray[Any]:
        """Switch-in per slice; NULL where not seen."""
        return column(self.tl.slices, "start")

    @cached_property
    def group_of(self) -> npt.NDArray[np.int32]:
        """Per task, the index of its workload in :attr:`workloads`; -1 for the others."""
        out = np.full(self.tl.tasks.num_rows, -1, np.int32)
        for i, scope in enumerate(self.workloads):
            out[scope.tasks] = i
        return out

    @cached_property
    def everything(self) -> Scope:
        """All tasks."""
        tasks = self.tl.tasks
        return Scope(
            "all",
            "all tasks",
            np.ones(tasks.num_rows, bool),
            int(column(tasks, "runtime_ns")[self._busy].sum()),
            tasks.num_rows and int(column(tasks, "wakeups").sum()),
        )

    @cached_property
    def _busy(self) -> npt.NDArray[np.bool_]:
        return np.asarray(column(self.tl.tasks, "class", 255) != TaskClass.IDLE)

    @cached_property
    def workloads(self) -> list[Scope]:
        """The workloads with ≥ 5 % of the run time or of the wakeups, the biggest first."""
        tasks = self.tl.tasks
        groups = tasks.column("group").to_pylist()
        runtime, woken = column(tasks, "runtime_ns"), column(tasks, "wakeups")
        all_runtime, all_woken = max(self.everything.runtime_ns, 1), max(self.everything.wakeups, 1)
        index: dict[str, int] = {}
        of = np.array([-1 if g is None else index.setdefault(g, len(index)) for g in groups], int)
        found = []
        for name, i in index.items():
            mine = of == i
            r, n = int(runtime[mine].sum()), int(woken[mine].sum())
            weight = max(r / all_runtime, n / all_woken)
            if weight >= MATTERS:
                found.append(
                    (-weight, name, Scope(f"workload:{name}", self.names.group(name), mine, r, n))
                )
        return [scope for _, _, scope in sorted(found, key=lambda f: f[:2])[:WORKLOADS]]

    @cached_property
    def other_workloads(self) -> int:
        """How many workloads do not matter that much."""
        groups = {g for g in self.tl.tasks.column("group").to_pylist() if g is not None}
        return len(groups) - len(self.workloads)

    def of_wakees(self, scope: Scope) -> npt.NDArray[np.int64]:
        """Rows of the wakeups whose wakee belongs to the scope."""
        wakee = self.wakes["wakee"]
        return np.arange(len(wakee)) if scope.is_all else np.flatnonzero(scope.tasks[wakee])


def missing_text(what: str, events: Sequence[str], *, brief: bool = False) -> Text:
    """What was not recorded, what needs it, and how to record it.

    ``what`` is a noun phrase in the singular ("the queue delay").
    """
    flags = " ".join(f"-e {_system(e)}:{e}" for e in events)
    one = len(events) == 1
    head = (
        Code(" and ".join(events)),
        f" {'was' if one else 'were'} not recorded; ",
        what,
        f" needs {'it' if one else 'them'}",
    )
    if brief:
        return say(*head, ".")
    return say(
        *head,
        ". Record with ",
        Code(f"trace-cmd record {flags}"),
        " or ",
        Code(f"perf record -a {flags}"),
        ".",
    )


def _system(event: str) -> str:
    if event.startswith("cpu_idle"):
        return "power"
    if event.startswith("ipi_"):
        return "ipi"
    if event.startswith(("irq_", "softirq_")):
        return "irq"
    return "task" if event == "task_rename" else "sched"


#: For sections that need durations.
NO_TIME: Text = say(
    Strong("No durations. "),
    "The capture's clock counts events, not time (trace clock “counter” or raw cycles). "
    "Record with ",
    Code("trace-cmd record -C mono"),
    " or ",
    Code("perf record -k mono"),
    ".",
)
