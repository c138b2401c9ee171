"""A Perfetto trace of a capture: the events as they were, and traceana's findings as tracks.

The viewer makes the scheduling of CPUs, the states of threads and the arrows from waker to wakee
out of the ftrace events. Beside them stand tracks of traceana: ``nr_running`` of each CPU, idle
CPUs of each LLC, an instant for each double booking, and for each rule that was asked the wakeups
that it would have placed elsewhere (an open-loop estimate). Times are those of the capture's clock;
Perfetto takes them for its boot clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana.columns import NULL_CPU, NULL_CTX, NULL_I64, NULL_PID, NULL_PRIO, NULL_STATE
from traceana.errors import UsageError
from traceana.schema import Ctx, EndReason, EventKind, State

if TYPE_CHECKING:
    from traceana._export_text import Names
    from traceana.capture import Capture
    from traceana.columns import EventColumns
    from traceana.timeline import Timeline

__all__ = ["write"]

_INSTANT, _COUNTER = 3, 4
_SEQUENCE = 1
#: Events of a CPU that are written as one bundle.
_BUNDLE = 4096
#: Bits of prev_state since 4.14 (include/trace/events/sched.h).
_RAW = (
    (State.SLEEP, 1), (State.DISK, 2), (State.STOPPED, 4), (State.TRACED, 8), (State.DEAD, 16),
    (State.ZOMBIE, 32), (State.PARKED, 64), (State.IDLE, 128), (State.PREEMPTED, 256),
)  # fmt: skip
_FLAGS = (
    (Ctx.HARDIRQ, 0x08), (Ctx.SOFTIRQ, 0x10), (Ctx.NMI, 0x40), (Ctx.NEED_RESCHED, 0x04),
    (Ctx.BH_OFF, 0x80),
)  # fmt: skip
_WAKE = ("sched_waking", "sched_wakeup", "sched_wakeup_new")
_NAME = {
    EventKind.WAKING: "sched_waking",
    EventKind.WAKEUP: "sched_wakeup",
    EventKind.WAKEUP_NEW: "sched_wakeup_new",
    EventKind.IRQ_ENTRY: "irq_handler_entry",
    EventKind.IRQ_EXIT: "irq_handler_exit",
    EventKind.SOFTIRQ_ENTRY: "softirq_entry",
    EventKind.SOFTIRQ_EXIT: "softirq_exit",
}


def _known(value: int, null: int) -> int | None:
    return None if value == null else value


def _raw_state(state: int) -> int:
    return sum(raw for bit, raw in _RAW if state & bit)


class _Writer:
    """Packets, one behind the other."""

    def __init__(self, file: IO[bytes], classes: dict[str, Any]) -> None:
        self._file = file
        self._trace = classes["Trace"]
        self._classes = classes
        self._next_track = 1

    def packet(self, **fields: Any) -> None:
        """Write one packet."""
        trace = self._trace()
        trace.packet.add(trusted_packet_sequence_id=_SEQUENCE, **fields)
        self._file.write(trace.SerializeToString())

    def track(self, name: str, parent: int = 0, unit: str = "") -> int:
        """A new track, a counter if it has a unit; its number."""
        uuid = 0x7472616300000000 + self._next_track
        self._next_track += 1
        descriptor = self._classes["TrackDescriptor"](uuid=uuid, name=name)
        if parent:
            descriptor.parent_uuid = parent
        if unit:
            descriptor.counter.unit_name = unit
        self.packet(track_descriptor=descriptor)
        return uuid

    def bundle(self, cpu: int, lost: bool, rows: list[tuple[Any, ...]], names: Names) -> None:
        """Write events of one CPU."""
        bundle = self._classes["FtraceEventBundle"](cpu=cpu)
        if lost:
            bundle.lost_events = True
        for row in rows:
            _event(bundle.event.add(), row, names)
        self.packet(ftrace_events=bundle)


def _event(out: Any, row: tuple[Any, ...], names: Names) -> None:
    """Fill one FtraceEvent; unknown values are left out."""
    ts, cpu, kind, pid, ctx, subject, prio, state, other, other_prio, cpu_to, cpu_from, value = row
    out.timestamp = ts
    out.pid = max(pid, 0)
    if ctx != NULL_CTX:
        out.common_flags = sum(flag for bit, flag in _FLAGS if ctx & bit)
    p = _known(prio, NULL_PRIO)

    def comm(who: int) -> str:
        return f"swapper/{cpu}" if who == 0 else names.at(who, ts)

    if kind == EventKind.SWITCH:
        s = out.sched_switch
        s.prev_comm, s.prev_pid, s.next_comm, s.next_pid = (
            comm(subject), subject, comm(other), other,
        )  # fmt: skip
        s.prev_prio, s.next_prio = p or 0, _known(other_prio, NULL_PRIO) or 0
        s.prev_state = _raw_state(state) if state != NULL_STATE else 0
    elif kind in (EventKind.WAKING, EventKind.WAKEUP, EventKind.WAKEUP_NEW):
        w = getattr(out, _NAME[EventKind(kind)])
        w.comm, w.pid, w.prio, w.success = comm(subject), subject, p or 0, 1
        w.target_cpu = max(cpu_to, 0)
    elif kind == EventKind.MIGRATE:
        m = out.sched_migrate_task
        m.comm, m.pid, m.prio = comm(subject), subject, p or 0
        m.orig_cpu, m.dest_cpu = max(cpu_from, 0), max(cpu_to, 0)
    elif kind == EventKind.FORK:
        f = out.sched_process_fork
        f.parent_comm, f.parent_pid, f.child_comm, f.child_pid = (
            comm(other), other, comm(subject), subject,
        )  # fmt: skip
    elif kind == EventKind.EXEC:
        e = out.sched_process_exec
        e.filename, e.pid, e.old_pid = comm(subject), subject, other
    elif kind == EventKind.EXIT:
        x = out.sched_process_exit
        x.comm, x.pid, x.tgid, x.prio = comm(subject), subject, subject, p or 0
    elif kind == EventKind.PI_SETPRIO:
        i = out.sched_pi_setprio
        i.comm, i.pid, i.oldprio, i.newprio = comm(subject), subject, p or 0, value
    elif kind == EventKind.TASK_RENAME:
        r = out.task_rename
        r.pid, r.oldcomm, r.newcomm = subject, names.at(subject, ts - 1), comm(subject)
    elif kind == EventKind.CPU_IDLE:
        out.cpu_idle.state, out.cpu_idle.cpu_id = value, max(cpu_to, 0)
    elif kind in (EventKind.IRQ_ENTRY, EventKind.IRQ_EXIT):
        getattr(out, _NAME[EventKind(kind)]).irq = value
    elif kind in (EventKind.SOFTIRQ_ENTRY, EventKind.SOFTIRQ_EXIT):
        getattr(out, _NAME[EventKind(kind)]).vec = value
    else:
        _generic(out.generic, kind, comm(subject) if subject >= 0 else "", subject, value, cpu_to)


def _generic(out: Any, kind: int, comm: str, subject: int, value: int, cpu_to: int) -> None:
    """Events that Perfetto has no message for, with the names of their fields."""
    if kind == EventKind.STAT_RUNTIME:
        out.event_name = "sched_stat_runtime"
        out.field.add(name="comm", str_value=comm)
        out.field.add(name="pid", int_value=subject)
        out.field.add(name="runtime", int_value=value)
        return
    ipi = kind == EventKind.IPI_SEND_CPU
    out.event_name = "ipi_send_cpu" if ipi else "sched_wake_idle_without_ipi"
    out.field.add(name="cpu", int_value=max(cpu_to, 0))


_COLUMNS = (
    "ts", "cpu", "kind", "pid", "ctx", "subject", "prio", "state", "other", "other_prio",
    "cpu_to", "cpu_from", "value",
)  # fmt: skip
_WITH_SUBJECT = frozenset(EventKind) - {
    EventKind.CPU_IDLE, EventKind.WAKE_IDLE_WITHOUT_IPI, EventKind.IPI_SEND_CPU,
    EventKind.IRQ_ENTRY, EventKind.IRQ_EXIT, EventKind.SOFTIRQ_ENTRY, EventKind.SOFTIRQ_EXIT,
}  # fmt: skip


def _bundles(
    events: EventColumns, held: dict[int, tuple[bool, list[tuple[Any, ...]]]],
    left_out: dict[str, int],
) -> Iterator[tuple[int, bool, list[tuple[Any, ...]]]]:  # fmt: skip
    """Rows of one CPU, whenever there are enough; ``held`` keeps what is not yet given."""
    columns: list[list[Any]] = [getattr(events, name).tolist() for name in _COLUMNS]
    for row in zip(*columns, strict=True):
        cpu, kind = row[1], row[2]
        why = ""
        if cpu == NULL_CPU:
            why = "without a CPU"
        elif kind == EventKind.BEGIN:
            why = "that only mark where a buffer begins"
        elif kind == EventKind.MARKER:
            why = "of markers"
        elif kind != EventKind.LOST and (
            (kind in _WITH_SUBJECT and row[5] == NULL_PID)
            or (kind == EventKind.SWITCH and row[8] == NULL_PID)
        ):
            why = "without a task"
        if why:
            left_out[why] = left_out.get(why, 0) + 1
            continue
        lost, rows = held.get(cpu, (False, []))
        if kind == EventKind.LOST:
            if rows:
                yield cpu, lost, rows
            held[cpu] = (True, [])
            continue
        rows.append(row)
        if len(rows) >= _BUNDLE:
            yield cpu, lost, rows
            lost, rows = False, []
        held[cpu] = (lost, rows)


def write(cap: Capture, names: Names, file: IO[bytes], rules: Sequence[str]) -> dict[str, int]:
    """Write the trace; see :func:`traceana.export.to_perfetto`."""
    from traceana._perfetto_messages import messages

    try:
        classes = messages()
    except ImportError as error:
        raise UsageError(
            "--to perfetto needs the library protobuf: pip install 'traceana[export]'"
        ) from error
    out = _Writer(file, classes)
    _facts(cap, out, classes)
    left_out: dict[str, int] = {}
    held: dict[int, tuple[bool, list[tuple[Any, ...]]]] = {}
    for events in cap.event_columns():
        for cpu, lost, rows in _bundles(events, held, left_out):
            out.bundle(cpu, lost, rows, names)
    for cpu, (lost, rows) in sorted(held.items()):
        if rows or lost:
            out.bundle(cpu, lost, rows, names)
    if cap.counts.get("sched_switch") and cap.has_time:
        _findings(cap, out, rules)
    return left_out


def _facts(cap: Capture, out: _Writer, classes: dict[str, Any]) -> None:
    """Kernel, machine, and who belongs to which process."""
    info = classes["SystemInfo"](tracing_service_version="traceana")
    info.utsname.sysname = "Linux"
    if cap.meta.kernel:
        info.utsname.release = cap.meta.kernel
    if cap.meta.machine:
        info.utsname.machine = cap.meta.machine
    if cap.meta.cpus_present:
        info.num_cpus = cap.meta.cpus_present
    out.packet(system_info=info, sequence_flags=1)
    from traceana import output

    tree = classes["ProcessTree"]()
    table = cap.names()
    for pid, tgid, comm in zip(
        table["pid"].to_pylist(), table["tgid"].to_pylist(), table["comm"].to_pylist(), strict=True
    ):
        if tgid is None or pid <= 0:
            continue
        if tgid == pid:
            tree.processes.add(pid=pid, cmdline=[output.escape(comm)] if comm else [])
        elif comm:
            tree.threads.add(tid=pid, tgid=tgid, name=output.escape(comm))
        else:
            tree.threads.add(tid=pid, tgid=tgid)
    if tree.processes or tree.threads:
        out.packet(process_tree=tree)


def _findings(cap: Capture, out: _Writer, rules: Sequence[str]) -> None:
    timeline = cap.timeline()
    root = out.track("traceana")
    _counters(cap, timeline, out, root)
    if not cap.counts.get("sched_waking"):
        return
    from traceana.candidates import candidates

    track = out.track("double bookings (candidates)", root)
    for row in candidates(timeline).to_pylist():
        _instant(out, track, row["ts"], f"CPU {row['cpu']} chosen twice",
                 {"first wakeup": row["first"], "second wakeup": row["second"],
                  "extra delay ns": row["extra_delay_ns"]})  # fmt: skip
    if rules:
        _moved(cap, timeline, out, root, rules)


def _moved(cap: Capture, timeline: Timeline, out: _Writer, root: int, rules: Sequence[str]) -> None:
    from traceana.whatif import whatif

    study = whatif(cap, list(rules))
    wakeups = timeline.wakeups.select(["wakeup", "waking_ts", "placed_cpu"])
    when = dict(zip(wakeups["wakeup"].to_pylist(), wakeups["waking_ts"].to_pylist(), strict=True))
    where = dict(zip(wakeups["wakeup"].to_pylist(), wakeups["placed_cpu"].to_pylist(), strict=True))
    tracks = {rule: out.track(f"{rule} would move (open loop)", root) for rule in rules}
    for row in study.decisions.filter(_true(study.decisions["moved"])).to_pylist():
        if row["rule"] in tracks and when.get(row["wakeup"]) is not None:
            _instant(out, tracks[row["rule"]], when[row["wakeup"]],
                     f"CPU {where[row['wakeup']]} -> {row['cpu']}",
                     {"wakeup": row["wakeup"], "reason": row["reason"]})  # fmt: skip


def _true(column: Any) -> Any:
    import pyarrow.compute as pc

    return pc.fill_null(column, False)


def _instant(out: _Writer, track: int, ts: int, name: str, facts: dict[str, Any]) -> None:
    notes = [
        {"name": k, "string_value" if isinstance(v, str) else "int_value": v}
        for k, v in facts.items()
        if v is not None
    ]
    out.packet(
        timestamp=ts,
        track_event={
            "type": _INSTANT, "track_uuid": track, "name": name, "categories": ["traceana"],
            "debug_annotations": notes,
        },
    )  # fmt: skip


def _counters(cap: Capture, timeline: Timeline, out: _Writer, root: int) -> None:
    """nr_running of each CPU and the idle CPUs of each LLC, where they change."""
    cpus, times, steps = _load_steps(timeline)
    for cpu in np.unique(cpus).tolist():
        track = out.track(f"nr_running CPU {cpu}", root, "tasks")
        _series(out, track, times[cpus == cpu], steps[cpus == cpu], 0)
    topology = cap.topology
    llc_of = dict(zip(topology["cpu"].to_pylist(), topology["llc"].to_pylist(), strict=True))
    gaps = timeline.raw["gaps"]
    llc = np.array([llc_of.get(int(c), 0) for c in gaps["cpu"]], np.int64)
    for one in np.unique(llc).tolist():
        here = gaps[llc == one]
        begun, ended = here["start"], here["end"]
        start = np.concatenate([begun[begun != NULL_I64], ended[ended != NULL_I64]])
        step = np.concatenate(
            [np.ones((begun != NULL_I64).sum(), np.int64),
             -np.ones((ended != NULL_I64).sum(), np.int64)]
        )  # fmt: skip
        track = out.track(f"idle CPUs of the LLC of CPU {one}", root, "CPUs")
        _series(out, track, start, step, int((begun == NULL_I64).sum()))


def _load_steps(
    timeline: Timeline,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(cpu, ts, +1 or -1) of each time a task joined or left the queue of a CPU."""
    slices, wakeups = timeline.raw["slices"], timeline.raw["wakeups"]
    idle = np.isin(slices["task"], _idle_tasks(timeline))
    order = np.lexsort((slices["start"], slices["task"]))
    order = order[~idle[order] & (slices["start"][order] != NULL_I64)]
    task, cpu = slices["task"][order], slices["cpu"][order].astype(np.int64)
    start, end = slices["start"][order], slices["end"][order]
    queued = start.copy()
    stays = np.isin(slices["reason"][order], (EndReason.PREEMPT, EndReason.YIELD_LIKE))
    again = np.flatnonzero((task[1:] == task[:-1]) & stays[:-1] & (end[:-1] != NULL_I64)) + 1
    queued[again] = end[again - 1]
    woken = wakeups[(wakeups["run"] != NULL_I64) & (wakeups["wakeup"] != NULL_I64)]
    runs = zip(woken["wakee"].tolist(), woken["run"].tolist(), strict=True)
    at = dict(zip(runs, woken["wakeup"].tolist(), strict=True))
    for i, key in enumerate(zip(task.tolist(), start.tolist(), strict=True)):
        if key in at:
            queued[i] = min(at[key], queued[i])
    known = end != NULL_I64
    return (
        np.concatenate([cpu, cpu[known]]),
        np.concatenate([queued, end[known]]),
        np.concatenate([np.ones(len(cpu), np.int64), -np.ones(int(known.sum()), np.int64)]),
    )


def _idle_tasks(timeline: Timeline) -> list[int]:
    tasks = timeline.tasks
    return [
        t
        for t, pid in zip(tasks["task"].to_pylist(), tasks["pid"].to_pylist(), strict=True)
        if pid == 0
    ]


def _series(
    out: _Writer, track: int, times: npt.NDArray[np.int64], steps: npt.NDArray[np.int64], base: int
) -> None:
    """Write a counter wherever it changes."""
    order = np.argsort(times, kind="stable")
    when = times[order]
    level = base + np.cumsum(steps[order])
    last = np.append(when[1:] != when[:-1], True) if len(when) else np.zeros(0, bool)
    for ts, value in zip(when[last].tolist(), level[last].tolist(), strict=True):
        out.packet(
            timestamp=ts,
            track_event={"type": _COUNTER, "track_uuid": track, "counter_value": value},
        )
