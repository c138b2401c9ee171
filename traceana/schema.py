"""The contract: every table, every column, what it means, and a check that a table obeys.

Times are int64 nanoseconds of the capture's clock (``meta.clock``); durations are int64 ns
and end in ``_ns``; a CPU is int32; a task is int32, a dense id of this capture. Null means
"not known", never zero. Tables with times are ordered by the first non-null time column
named in ``Table.order``, stably; tables without are ordered by their id.

Interpretation belongs to the reports, not to the tables.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "READABLE_VERSIONS",
    "SCHEMA_VERSION",
    "TABLES",
    "BookingClass",
    "BookingWhy",
    "Certainty",
    "Column",
    "Ctx",
    "DurSource",
    "EndReason",
    "EventKind",
    "Evidence",
    "IdleBin",
    "Quality",
    "Queueing",
    "SchemaError",
    "State",
    "Table",
    "TaskClass",
    "WakeContext",
    "WakeKind",
    "check",
    "empty",
    "fingerprint",
]

#: Goes up with each change of a table; stored in every ``.traceana`` store and JSON output.
SCHEMA_VERSION = 2
#: Versions whose stores can be read: 2 only adds tables to 1.
READABLE_VERSIONS = (1, 2)


class SchemaError(ValueError):
    """A table does not obey the contract; the message names table and column."""


class EventKind(enum.IntEnum):
    """``events.kind``. Values are frozen: new kinds go to the end."""

    SWITCH = 0
    WAKING = 1
    WAKEUP = 2
    WAKEUP_NEW = 3
    MIGRATE = 4
    FORK = 5
    EXEC = 6
    EXIT = 7
    STAT_RUNTIME = 8
    CPU_IDLE = 9
    WAKE_IDLE_WITHOUT_IPI = 10
    IPI_SEND_CPU = 11
    IRQ_ENTRY = 12
    IRQ_EXIT = 13
    SOFTIRQ_ENTRY = 14
    SOFTIRQ_EXIT = 15
    TASK_RENAME = 16
    PI_SETPRIO = 17
    MARKER = 18
    #: Not a recorded event: events of this CPU were lost just before here (``value`` = how
    #: many, null when the form does not tell).
    LOST = 19
    #: Not a recorded event: the data of this CPU begins here, what was before is unknown
    #: (a ring that wrapped, "CPU n buffer started").
    BEGIN = 20


#: Tracepoint names (without system) that become rows of ``events``.
EVENT_NAMES: Mapping[str, EventKind] = {
    "sched_switch": EventKind.SWITCH,
    "sched_waking": EventKind.WAKING,
    "sched_wakeup": EventKind.WAKEUP,
    "sched_wakeup_new": EventKind.WAKEUP_NEW,
    "sched_migrate_task": EventKind.MIGRATE,
    "sched_process_fork": EventKind.FORK,
    "sched_process_exec": EventKind.EXEC,
    "sched_process_exit": EventKind.EXIT,
    "sched_stat_runtime": EventKind.STAT_RUNTIME,
    "cpu_idle": EventKind.CPU_IDLE,
    "sched_wake_idle_without_ipi": EventKind.WAKE_IDLE_WITHOUT_IPI,
    "ipi_send_cpu": EventKind.IPI_SEND_CPU,
    "irq_handler_entry": EventKind.IRQ_ENTRY,
    "irq_handler_exit": EventKind.IRQ_EXIT,
    "softirq_entry": EventKind.SOFTIRQ_ENTRY,
    "softirq_exit": EventKind.SOFTIRQ_EXIT,
    "task_rename": EventKind.TASK_RENAME,
    "sched_pi_setprio": EventKind.PI_SETPRIO,
}


class Ctx(enum.IntFlag):
    """``events.ctx``: in what context the event was recorded (from common_flags)."""

    HARDIRQ = 1
    SOFTIRQ = 2
    NMI = 4
    NEED_RESCHED = 8
    PREEMPT = 16
    BH_OFF = 32


class State(enum.IntFlag):
    """``events.state``, ``slices.state``: prev_state in one numbering for all kernels.

    0 is R. ``PREEMPTED`` is the "+" of R+; with it set the task is runnable whatever else
    is set. Any other bit: the task blocked.
    """

    SLEEP = 0x1  # S
    DISK = 0x2  # D
    STOPPED = 0x4  # T
    TRACED = 0x8  # t
    DEAD = 0x10  # X, x
    ZOMBIE = 0x20  # Z
    PARKED = 0x40  # P
    IDLE = 0x80  # I
    PREEMPTED = 0x100  # +
    WAKEKILL = 0x200  # K
    WAKING = 0x400  # W
    NOLOAD = 0x800  # N
    OTHER = 0x1000  # a letter that none of the tables knows


STATE_LETTERS: Mapping[str, State] = {
    "S": State.SLEEP,
    "D": State.DISK,
    "T": State.STOPPED,
    "t": State.TRACED,
    "X": State.DEAD,
    "x": State.DEAD,
    "Z": State.ZOMBIE,
    "P": State.PARKED,
    "I": State.IDLE,
    "K": State.WAKEKILL,
    "W": State.WAKING,
    "N": State.NOLOAD,
    "+": State.PREEMPTED,
}


class WakeKind(enum.IntEnum):
    """``wakeups.kind`` (section 1.5 of the semantics)."""

    DECIDED = 0
    SELF = 1
    ON_RQ = 2
    ON_CPU = 3
    PINNED = 4
    DELAYED = 5
    DELAYED_MAYBE = 6
    OTHER_CLASS = 7
    FORK = 8
    UNKNOWN = 9


class WakeContext(enum.IntEnum):
    """``wakeups.context``: what executed the wakeup."""

    TASK = 0
    HARDIRQ = 1
    SOFTIRQ = 2
    NMI = 3
    UNKNOWN = 4


class Queueing(enum.IntEnum):
    """``wakeups.queueing``: by whom the wakee was enqueued."""

    DIRECT = 0  # by the waker: sched_wakeup on the waker's CPU
    REMOTE = 1  # by the chosen CPU, from its wakelist
    UNKNOWN = 2


class EndReason(enum.IntEnum):
    """``slices.end_reason``."""

    SLEEP = 0  # S, I, P, T, t
    BLOCK = 1  # D
    PREEMPT = 2  # R+
    YIELD_LIKE = 3  # R: preempted on return to user mode, yield, or a sleep called off
    DEAD = 4  # X, Z
    CUT = 5  # the window's end, a loss, or a missing switch: the end is not known


class TaskClass(enum.IntEnum):
    """``tasks.class``, by kernel priority."""

    FAIR = 0
    RT = 1
    DL = 2
    STOP = 3
    IDLE = 4


class DurSource(enum.IntEnum):
    """``tasks.dur_avg_source``: where the run times of dur_avg come from."""

    STAT_RUNTIME = 0
    SWITCHES = 1


class Certainty(enum.IntEnum):
    """``decisions.certainty`` (section 6.10)."""

    EXACT = 0
    POSSIBLE = 1
    CONTRADICTED = 2
    LEFT_OUT = 3


class BookingClass(enum.IntEnum):
    """``collisions.class``: what a double booking is (section 10.2 of the semantics)."""

    STRICT_CERTAIN = 0  # the earlier booking was not yet visible, whatever the unknowns
    STRICT = 1  # not visible at the likeliest instants
    LATE = 2  # it was visible: another cause
    EXPLAINED = 3  # the CPU need not have looked idle to be chosen


class BookingWhy(enum.IntEnum):
    """``collisions.why``: the cause of a late or explained double booking."""

    WINDOW = 0  # strict: the decision windows overlap
    OWN_CPU = 1  # the own CPU of one of the two wakers
    ONLY_CPU = 2  # the wakee may run nowhere else
    BUSY_TARGET = 3  # wake_affine() chose it, and the search ended there although it is busy
    FALLBACK = 4  # nothing idle could be found: the target stands
    FALSE_IDLE = 5  # up to 6.1: the pending flag is cleared before the enqueue
    STALE_HINT = 6
    SCHED_IDLE = 7  # counts as idle
    UNKNOWN = 8


class IdleBin(enum.IntEnum):
    """``idle_bins.bin``: why a CPU was idle (section 10.2); the order is ``idle_bins``'s."""

    NOBODY = 0  # nobody waits anywhere
    DOUBLE_BOOKING = 1  # for it stands the victim of a strict double booking, in its LLC
    LATE_BOOKING = 2  # of a late one
    PINNED = 3  # who waits may not run here
    THROTTLED = 4  # cpu.max: who waits is held back
    CORE_SCHED = 5  # no event tells of it
    STEAL = 6  # no event tells of it
    ON_ITS_WAY = 7  # it is booked and wakes up: a normal idle exit
    NEWIDLE_REFUSED = 8  # who waits was queued when the CPU went idle, and not pulled
    MIGRATION_COST = 9  # the same, and hot: a pull would leave it where it is
    OTHER_LLC = 10  # who waits, waits in another LLC
    CHAIN = 11  # its last task's partner waits behind a running task
    IO = 12  # its last task sleeps in D
    TIMER = 13  # its last task sleeps until an interrupt wakes it: a timer, or a device
    UNKNOWN = 14
    PLACED = 15  # who waits was put behind a running task while this CPU was idle
    SURPLUS = 16  # all who wait stand for other CPUs, or are on their way


class Evidence(enum.IntEnum):
    """``names.evidence``: what a row of ``names`` was read from."""

    EVENT = 0  # a comm field of an event
    CMDLINES = 1  # the file's pid-to-name cache
    FORK = 2
    HEADER = 3  # the head of a text line, or a COMM record


class Quality(enum.IntFlag):
    """``wakeups.quality``: why a row may not be taken at its word. 0 = nothing known against it."""

    CENSORED_START = 1  # began before the window
    CENSORED_END = 2  # the wakee did not run before the window's end
    TOUCHES_LOSS = 4
    STATE_UNKNOWN = 8  # the wakee's state before the waking is not known
    SKEW = 16  # a cause was stamped after its effect; the duration was clamped to 0
    REPEATED = 32  # a second waking came before the wakee ran; maybe lost events
    NO_WAKING = 64  # sched_wakeup without sched_waking
    NO_WAKEUP = 128  # sched_waking without sched_wakeup
    REPAIRED = 256  # a contradiction was repaired (7.2)
    FLIPS_UNKNOWN = 512
    DUR_UNKNOWN = 1024


@dataclass(frozen=True)
class Column:
    """One column: name, Arrow type, unit, whether it may be null, and what it means."""

    name: str
    type: pa.DataType
    doc: str
    unit: str = ""
    null: str = ""
    enum: type[enum.IntEnum] | type[enum.IntFlag] | None = None

    @property
    def nullable(self) -> bool:
        return bool(self.null)


@dataclass(frozen=True)
class Table:
    """One table of the contract.

    ``order`` names the columns whose first non-null value orders the rows (ascending, stable).
    """

    name: str
    doc: str
    columns: tuple[Column, ...]
    order: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, with unit and prose as field metadata."""
        return pa.schema(
            [
                pa.field(
                    c.name,
                    c.type,
                    nullable=c.nullable,
                    metadata={k: v for k, v in (("unit", c.unit), ("doc", c.doc)) if v},
                )
                for c in self.columns
            ],
            metadata={"table": self.name, "schema_version": str(SCHEMA_VERSION)},
        )

    def column(self, name: str) -> Column:
        for c in self.columns:
            if c.name == name:
                return c
        raise KeyError(f"{self.name} has no column {name!r}")


_I8, _I16, _I32, _I64 = pa.int8(), pa.int16(), pa.int32(), pa.int64()
_U8, _U16 = pa.uint8(), pa.uint16()
_STR, _BOOL, _F64 = pa.string(), pa.bool_(), pa.float64()

_UNTOLD = "the form or this kind of event does not tell"

EVENTS = Table(
    "events",
    "One row per recorded event of a known kind, in the order of time.",
    (
        Column("ts", _I64, "when it was recorded", "ns"),
        Column("cpu", _I32, "CPU on which it was recorded", null="the form shows no CPU"),
        Column("kind", _U8, "what happened", enum=EventKind),
        Column(
            "pid",
            _I32,
            "common_pid: who was running there; 0 is that CPU's idle task",
            null=_UNTOLD,
        ),
        Column("ctx", _U8, "context bits from common_flags", null=_UNTOLD, enum=Ctx),
        Column(
            "subject",
            _I32,
            "pid that the event is about: prev of a switch, wakee, migrating task, child of a "
            "fork, the task whose run time is reported",
            null=_UNTOLD,
        ),
        Column("prio", _I16, "the subject's kernel priority", null=_UNTOLD),
        Column("state", _U16, "switch: prev_state, normalised", null=_UNTOLD, enum=State),
        Column("other", _I32, "switch: next pid; fork: parent; exec: old pid", null=_UNTOLD),
        Column("other_prio", _I16, "switch: the next task's kernel priority", null=_UNTOLD),
        Column(
            "cpu_to",
            _I32,
            "target_cpu of waking and wakeup (for a waking: where the task last ran); dest_cpu of "
            "a migration; cpu_id of cpu_idle; cpu of an IPI",
            null=_UNTOLD,
        ),
        Column("cpu_from", _I32, "orig_cpu of a migration", null=_UNTOLD),
        Column(
            "value",
            _I64,
            "stat_runtime: ns run; cpu_idle: state (4294967295 = leave); irq, softirq: number; "
            "pi_setprio: new priority; lost: number of events",
            null=_UNTOLD,
        ),
        Column("buffer", _U16, "which buffer or stream it came from; 0 = the top one"),
    ),
    order=("ts",),
)

NAMES = Table(
    "names",
    "Each change of a task's name, and what is known of thread groups.",
    (
        Column("pid", _I32, "thread id"),
        Column("tgid", _I32, "process id", null="not recorded"),
        Column("comm", _STR, "the name; bytes that are not UTF-8 as \\xNN", null="only tgid known"),
        Column("since_ts", _I64, "from when on", "ns", null="from before the window"),
        Column("evidence", _U8, "where it was read", enum=Evidence),
    ),
    order=("since_ts",),
)

TASKS = Table(
    "tasks",
    "One row per task of the capture; a reused pid is a new task, each CPU has its idle task.",
    (
        Column("task", _I32, "dense id"),
        Column("pid", _I32, "thread id; 0 for an idle task"),
        Column("tgid", _I32, "process id", null="not recorded"),
        Column("comm", _STR, "last name", null="never named"),
        Column("cpu", _I32, "idle tasks: their CPU; others: the CPU last seen", null="never seen"),
        Column("first_ts", _I64, "first event that names it", "ns"),
        Column("last_ts", _I64, "last event that names it", "ns"),
        Column("born", _I64, "its fork, when inside the window", "ns", null="not seen"),
        Column("died", _I64, "its exit, when inside the window", "ns", null="not seen"),
        Column("class", _U8, "scheduling class, by priority", null="never seen", enum=TaskClass),
        Column("prio", _I16, "last kernel priority", null="never seen"),
        Column("group", _STR, "workload", null="none"),
        Column(
            "runtime_ns",
            _I64,
            "time it ran: the sum of sched_stat_runtime where recorded (only fair tasks report "
            "it: 0 for all others), else as on_cpu_ns",
            "ns",
        ),
        Column("on_cpu_ns", _I64, "time between its switch-ins and switch-outs", "ns"),
        Column("switches", _I64, "times it was switched out"),
        Column("voluntary", _I64, "of these, blocking"),
        Column("preempted", _I64, "of these, in R or R+"),
        Column("wakeups", _I64, "times it was woken (sched_wakeup, else sched_waking)"),
        Column(
            "delays",
            _I64,
            "run-queue delays as perf sched latency counts them: sched_wakeup, or a switch-out in "
            "R, to the switch-in",
        ),
        Column("delay_sum_ns", _I64, "sum of these delays", "ns"),
        Column("delay_max_ns", _I64, "longest of these delays", "ns", null="no delay"),
        Column("delay_max_at_ns", _I64, "switch-in that ended the longest", "ns", null="no delay"),
        Column(
            "dur_avg_ns",
            _I64,
            "last value of dur_avg: EWMA (1/8) of the run time between voluntary sleeps",
            "ns",
            null="no start state and fewer than 24 whole samples",
        ),
        Column(
            "dur_avg_source", _U8, "where its run times come from", null="no sample", enum=DurSource
        ),
        Column("dur_samples", _I64, "samples of dur_avg in the window"),
        Column(
            "wakee_flips",
            _I64,
            "last value of wakee_flips",
            null="no start state, and its birth was not seen",
        ),
        Column("flips_seen", _I64, "changes of wakee in the window, a lower bound of its flips"),
    ),
)

SLICES = Table(
    "slices",
    "One row per stretch of a task on a CPU; the idle task has none (see idle_gaps).",
    (
        Column("slice", _I64, "id"),
        Column("task", _I32, "who ran"),
        Column("cpu", _I32, "where"),
        Column("start", _I64, "switch-in", "ns", null="before the window, or lost"),
        Column("end", _I64, "switch-out", "ns", null="after the window, or lost"),
        Column("runtime_ns", _I64, "sched_stat_runtime within it", "ns", null="not recorded"),
        Column("end_reason", _U8, "why it ended", enum=EndReason),
        Column("state", _U16, "prev_state at its end", null="end not seen", enum=State),
    ),
    order=("start", "end"),
)

WAKEUPS = Table(
    "wakeups",
    "One row per wakeup. Two latencies, never mixed: wakeup_latency and queue_delay.",
    (
        Column("wakeup", _I64, "id"),
        Column("waking_ts", _I64, "sched_waking", "ns", null="not recorded"),
        Column("wakeup_ts", _I64, "sched_wakeup: the wakee is queued", "ns", null="not recorded"),
        Column(
            "run_ts", _I64, "the wakee's next switch-in", "ns", null="did not run in the window"
        ),
        Column("wakee", _I32, "task woken"),
        Column("waker", _I32, "task that woke it", null="interrupt context, or not known"),
        Column(
            "current",
            _I32,
            "task that was current where the wakeup was executed, waker or interrupted",
            null="not known",
        ),
        Column("this_cpu", _I32, "CPU that executed the wakeup", null="not known"),
        Column("prev_cpu", _I32, "CPU on which the wakee last was", null="not known"),
        Column("placed_cpu", _I32, "CPU on which it was queued", null="not known"),
        Column("ran_cpu", _I32, "CPU of the next switch-in", null="did not run in the window"),
        Column("kind", _U8, "whether and how a CPU was selected", enum=WakeKind),
        Column("context", _U8, "what executed it", enum=WakeContext),
        Column("queueing", _U8, "who enqueued the wakee", enum=Queueing),
        Column(
            "wakeup_latency_ns",
            _I64,
            "run_ts - max(waking_ts, the wakee's blocking switch-out)",
            "ns",
            null="one of them is unknown, or the wakee had not slept",
        ),
        Column("queue_delay_ns", _I64, "run_ts - wakeup_ts", "ns", null="one of them is unknown"),
        Column("wake_delay_ns", _I64, "wakeup_ts - waking_ts", "ns", null="one of them is unknown"),
        Column(
            "look_lo", _I64, "begin of the interval in which CPUs were looked at", "ns", "no waking"
        ),
        Column("look_hi", _I64, "end of that interval", "ns", "no waking"),
        Column("visible_lo", _I64, "earliest instant at which others see it", "ns", "no waking"),
        Column("visible_hi", _I64, "latest such instant", "ns", "no waking"),
        Column(
            "wakee_dur_avg_ns",
            _I64,
            "dur_avg of the wakee as the decision saw it",
            "ns",
            "not known",
        ),
        Column(
            "waker_dur_avg_ns", _I64, "dur_avg of current as the decision saw it", "ns", "not known"
        ),
        Column("wakee_flips", _I64, "wakee_flips of the wakee, then", null="not known"),
        Column("waker_flips", _I64, "of current, after record_wakee", null="not known"),
        Column(
            "nr_running_placed",
            _I32,
            "tasks on placed_cpu besides the wakee when queued",
            null="not known",
        ),
        Column("nr_running_this", _I32, "tasks on this_cpu at the waking", null="not known"),
        Column("prev_idle", _BOOL, "prev_cpu idle at the waking", null="not known"),
        Column("placed_idle", _BOOL, "placed_cpu idle when queued", null="not known"),
        Column(
            "idle_cpus_llc",
            _I32,
            "idle CPUs in the LLC of prev_cpu at the waking",
            null="not known",
        ),
        Column("sync_guess", _U8, "WF_SYNC: 0 no, 1 yes", null="either"),
        Column("quality", _U16, "why not to take the row at its word", enum=Quality),
    ),
    order=("waking_ts", "wakeup_ts", "run_ts"),
)

IDLE_GAPS = Table(
    "idle_gaps",
    "One row per stretch in which a CPU's idle task was current.",
    (
        Column("gap", _I64, "id"),
        Column("cpu", _I32, "which CPU"),
        Column("start", _I64, "switch to the idle task", "ns", null="before the window, or lost"),
        Column("end", _I64, "switch away from it", "ns", null="after the window, or lost"),
        Column("cpu_idle_state", _I32, "deepest cpu_idle state entered", null="not recorded"),
        Column(
            "waited_llc_ns",
            _I64,
            "how long, within it, a task was runnable but not running on another CPU of the LLC",
            "ns",
            "sched_wakeup was not recorded",
        ),
        Column(
            "waited_any_ns",
            _I64,
            "the same for any other CPU",
            "ns",
            "sched_wakeup was not recorded",
        ),
        Column(
            "waited_busy_llc_ns",
            _I64,
            "how long, within it, such a task stood behind a running one (not merely on its way "
            "onto an idle CPU) in the LLC",
            "ns",
            "sched_wakeup was not recorded",
        ),
        Column(
            "ended_by", _I64, "wakeup whose wakee ended it", null="something else, or not known"
        ),
    ),
    order=("start", "end"),
)

DECISIONS = Table(
    "decisions",
    "One row per rule and wakeup: where the rule puts the wakee, and why. An estimate.",
    (
        Column("wakeup", _I64, "id of the wakeup"),
        Column("rule", _STR, "rule"),
        Column("cpu", _I32, "CPU of the rule", null="no decision"),
        Column("reason", _STR, "the rule's own short name of the deciding step"),
        Column("certainty", _U8, "how far unknowns matter", enum=Certainty),
        Column("moved", _BOOL, "whether cpu differs from the recorded placement"),
    ),
)

DELTAS = Table(
    "deltas",
    "What a rule would change, with its interval. Estimated.",
    (
        Column("rule", _STR, "rule"),
        Column("scope", _STR, "'all', 'cpu:N', or 'workload:NAME'"),
        Column("metric", _STR, "what is compared, unit in its name"),
        Column("recorded", _F64, "recorded value", null="not defined for this metric"),
        Column("estimated", _F64, "value under the rule", null="not defined for this metric"),
        Column("lo", _F64, "lower end of the 95 % interval of estimated", null="too few blocks"),
        Column("hi", _F64, "its upper end", null="too few blocks"),
        Column(
            "delta_lo",
            _F64,
            "lower end of the 95 % interval of estimated - recorded",
            null="too few blocks",
        ),
        Column("delta_hi", _F64, "its upper end", null="too few blocks"),
        Column("n", _I64, "wakeups it rests on"),
        Column("method", _STR, "'open_loop' or 'closed_loop'"),
    ),
)

CANDIDATES = Table(
    "candidates",
    "Candidate double bookings: two overlapping decisions for one CPU that was idle.",
    (
        Column("candidate", _I64, "id"),
        Column("cpu", _I32, "CPU chosen twice"),
        Column("ts", _I64, "the later booking's sched_waking", "ns"),
        Column("first", _I64, "wakeup that booked first"),
        Column("second", _I64, "wakeup that booked the same CPU while the first was not visible"),
        Column("victim", _I64, "the one of the two that ran later", null="one never ran"),
        Column(
            "extra_delay_ns",
            _I64,
            "the victim's wait from when both were queued and the other ran",
            "ns",
            null="one never ran",
        ),
    ),
    order=("ts",),
)

COLLISIONS = Table(
    "collisions",
    "One row per double booking: a CPU that looked idle, chosen by two wakers. Section 10.2.",
    (
        Column("collision", _I64, "id"),
        Column("cpu", _I32, "CPU chosen twice"),
        Column("ts", _I64, "the later booking's sched_waking", "ns"),
        Column(
            "earlier", _I64, "wakeup that had booked it before: of several the one that ran first"
        ),
        Column("later", _I64, "wakeup that booked the same CPU of the same idle episode"),
        Column("first", _I64, "the booking of the episode that ran first", null="none ran"),
        Column("victim", _I64, "the one of the two that ran later", null="one never ran"),
        Column("class", _U8, "how sure", enum=BookingClass),
        Column("why", _U8, "what made it", enum=BookingWhy),
        Column(
            "extra_delay_ns",
            _I64,
            "the victim's wait from when it was queued and the first ran",
            "ns",
            null="one never ran",
        ),
        Column(
            "hops", _I32, "partners that idled one behind the other meanwhile", null="not followed"
        ),
        Column(
            "attributable_lo_ns",
            _I64,
            "idle time that it surely cost, each nanosecond of a CPU counted once",
            "ns",
            null="not followed",
        ),
        Column(
            "attributable_hi_ns",
            _I64,
            "idle time that it may have cost",
            "ns",
            null="not followed",
        ),
    ),
    order=("ts",),
)

IDLE_BINS = Table(
    "idle_bins",
    "Where each CPU's idle time went; the bins of a CPU add up to its idle time.",
    (
        Column("cpu", _I32, "which CPU"),
        Column("bin", _U8, "why it was idle", enum=IdleBin),
        Column("ns", _I64, "how long", "ns"),
    ),
)

TOPOLOGY = Table(
    "topology",
    "One row per CPU.",
    (
        Column("cpu", _I32, "logical CPU"),
        Column("core", _I32, "core, numbered over the machine; equal for SMT siblings"),
        Column("cluster", _I32, "cluster below the LLC", null="none"),
        Column("llc", _I32, "lowest CPU that shares the last-level cache"),
        Column("node", _I32, "NUMA node", null="not known"),
        Column("socket", _I32, "package", null="not known"),
        Column("online", _BOOL, "online"),
        Column("origin", _STR, "'header', 'side_file', 'learned' or 'assumed'"),
    ),
)

ISSUES = Table(
    "issues",
    "What was lost, repaired, assumed: every stage adds to it.",
    (
        Column("ts", _I64, "when", "ns", null="concerns the whole capture"),
        Column("cpu", _I32, "on which CPU", null="not tied to one"),
        Column("stage", _STR, "'parse', 'topology', 'timeline', 'whatif', 'report'"),
        Column("code", _STR, "stable short name"),
        Column("count", _I64, "how often"),
        Column("text", _STR, "one sentence for a reader"),
    ),
)

META = Table(
    "meta",
    "Facts of the capture as key and value (JSON).",
    (
        Column("key", _STR, "what"),
        Column("value", _STR, "JSON text"),
    ),
)

TABLES: Mapping[str, Table] = {
    t.name: t
    for t in (
        EVENTS,
        NAMES,
        TASKS,
        SLICES,
        WAKEUPS,
        IDLE_GAPS,
        DECISIONS,
        DELTAS,
        CANDIDATES,
        COLLISIONS,
        IDLE_BINS,
        TOPOLOGY,
        ISSUES,
        META,
    )
}


def empty(name: str) -> pa.Table:
    """A table of the contract with no rows."""
    return TABLES[name].schema.empty_table()


def check(table: pa.Table | pa.RecordBatch, name: str | None = None) -> None:
    """Say whether a table obeys the contract.

    Parameters
    ----------
    table : pyarrow.Table or RecordBatch
    name : str, optional
        Which table of the contract; taken from the schema's metadata if not given.

    Raises
    ------
    SchemaError
        Names the table and the column: missing or surplus columns, another type, a null
        where none may be, a value outside its enum, rows out of order.
    """
    if name is None:
        metadata = table.schema.metadata or {}
        name = metadata.get(b"table", b"").decode()
    if name not in TABLES:
        raise SchemaError(f"unknown table {name!r}; known: {', '.join(TABLES)}")
    spec = TABLES[name]
    want, got = [c.name for c in spec.columns], table.schema.names
    if want != got:
        missing = sorted(set(want) - set(got))
        surplus = sorted(set(got) - set(want))
        raise SchemaError(f"{name}: columns differ: missing {missing}, surplus {surplus}, or order")
    for column in spec.columns:
        data = table.column(column.name)
        if data.type != column.type:
            raise SchemaError(f"{name}.{column.name}: type {data.type}, expected {column.type}")
        if data.null_count and not column.nullable:
            raise SchemaError(f"{name}.{column.name}: {data.null_count} nulls, none allowed")
        if column.enum is not None and len(data):
            _check_enum(name, column, data)
    if spec.order and table.num_rows > 1:
        import pyarrow.compute as pc

        key = pc.coalesce(*(table.column(c) for c in spec.order))
        if isinstance(key, pa.ChunkedArray):
            key = key.combine_chunks()
        key = key.drop_null()
        if len(key) > 1 and not pc.all(pc.less_equal(key[:-1], key[1:])).as_py():
            raise SchemaError(f"{name}: rows are not in the order of {', '.join(spec.order)}")


def _check_enum(name: str, column: Column, data: pa.ChunkedArray | pa.Array) -> None:
    import pyarrow.compute as pc

    assert column.enum is not None
    top = pc.max(data).as_py()
    if top is None:
        return
    if issubclass(column.enum, enum.IntFlag):
        limit = 0
        for member in column.enum:
            limit |= int(member)
    else:
        limit = max(int(member) for member in column.enum)
    if top > limit:
        raise SchemaError(f"{name}.{column.name}: value {top} is not of {column.enum.__name__}")


def fingerprint() -> str:
    """A digest of the whole contract: names, types, nulls, units, enums, order."""
    lines = [f"version {SCHEMA_VERSION}"]
    for table in TABLES.values():
        lines.append(f"table {table.name} order {','.join(table.order)}")
        for c in table.columns:
            members = ""
            if c.enum is not None:
                members = ",".join(f"{m.name}={int(m)}" for m in c.enum)
            lines.append(f" {c.name} {c.type} unit={c.unit} null={c.nullable} enum={members}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
