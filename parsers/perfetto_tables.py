"""Numbers of Perfetto's messages: names of packets and ftrace events, and their layouts.

The numbers are those of perfetto's public message definitions (trace_packet, ftrace_event).
An event that Perfetto had no number for when it was built comes described by the trace itself, with
the fields of its tracepoint, so that the meaning of fields is kept here by their names.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana import schema
from traceana.columns import NULL_CPU, NULL_I64, NULL_PID, NULL_PRIO
from traceana.parsers import _perfetto_kernels as kernels
from traceana.schema import EventKind, State

__all__ = [
    "CLOCKS",
    "EVENT_NUMBERS",
    "FIELDS",
    "MEANING",
    "PACKETS",
    "Layouts",
    "event_name",
    "state_table",
]

#: What packets hold, by field number; shown where no scheduler event is there.
PACKETS = {
    1: "ftrace_events", 2: "process_tree", 4: "inode_file_map", 5: "chrome_events",
    6: "clock_snapshot", 7: "sys_stats", 9: "process_stats", 11: "track_event", 33: "trace_config",
    34: "ftrace_stats", 35: "trace_stats", 36: "synchronization_marker", 37: "profile_packet",
    38: "battery", 39: "android_log", 40: "power_rails", 43: "process_descriptor",
    44: "thread_descriptor", 45: "system_info", 46: "trigger", 47: "packages_list",
    48: "chrome_benchmark_metadata", 49: "perfetto_metatrace", 50: "compressed_packets",
    51: "chrome_metadata", 52: "gpu_counter_event", 53: "gpu_render_stage_event",
    54: "streaming_profile_packet", 56: "heap_graph", 57: "graphics_frame_event",
    60: "track_descriptor", 61: "module_symbols", 62: "vulkan_memory_event", 63: "gpu_log",
    65: "vulkan_api_event", 66: "perf_sample", 67: "cpu_info", 68: "smaps_packet",
    69: "service_event", 70: "initial_display_state", 71: "gpu_mem_total_event",
    76: "frame_timeline_event", 78: "ui_state", 84: "statsd_atom", 86: "android_system_property",
    89: "trace_uuid", 90: "track_event_range_of_interest", 91: "entity_state_residency",
    95: "etw_events", 107: "remote_clock_sync", 117: "generic_kernel_task_state_event",
    118: "generic_kernel_cpu_freq_event", 120: "generic_kernel_task_rename_event",
    122: "generic_kernel_process_tree", 133: "zstd_compressed_packets",
}  # fmt: skip

#: Names of the clock of a bundle's events (FtraceClock).
CLOCKS = {0: "boot", 1: "unknown", 2: "global", 3: "local", 4: "mono_raw"}

#: Fields of the events that are read, in the order of their numbers, from 1 on.
FIELDS: dict[str, tuple[str, ...]] = {
    "sched_switch": ("prev_comm", "prev_pid", "prev_prio", "prev_state", "next_comm", "next_pid",
                     "next_prio"),
    "sched_wakeup": ("comm", "pid", "prio", "success", "target_cpu"),
    "sched_waking": ("comm", "pid", "prio", "success", "target_cpu"),
    "sched_wakeup_new": ("comm", "pid", "prio", "success", "target_cpu"),
    "sched_migrate_task": ("comm", "pid", "prio", "orig_cpu", "dest_cpu", "running", "load"),
    "sched_process_fork": ("parent_comm", "parent_pid", "child_comm", "child_pid"),
    "sched_process_exec": ("filename", "pid", "old_pid"),
    "sched_process_exit": ("comm", "pid", "tgid", "prio"),
    "sched_process_free": ("comm", "pid", "prio"),
    "sched_process_wait": ("comm", "pid", "prio"),
    "sched_pi_setprio": ("comm", "newprio", "oldprio", "pid"),
    "sched_blocked_reason": ("pid", "caller", "io_wait"),
    "task_newtask": ("pid", "comm", "clone_flags", "oom_score_adj"),
    "task_rename": ("pid", "oldcomm", "newcomm", "oom_score_adj"),
    "cpu_idle": ("state", "cpu_id"),
    "cpu_frequency": ("state", "cpu_id"),
    "irq_handler_entry": ("irq", "name", "handler"),
    "irq_handler_exit": ("irq", "ret"),
    "softirq_entry": ("vec",),
    "softirq_exit": ("vec",),
    "softirq_raise": ("vec",),
    "print": ("ip", "buf"),
}  # fmt: skip
#: Fields that hold text.
TEXTS = frozenset(
    ("prev_comm", "next_comm", "comm", "parent_comm", "child_comm", "filename", "oldcomm",
     "newcomm", "name", "buf")
)  # fmt: skip

#: Event names by their field number in FtraceEvent.
EVENT_NUMBERS = {
    3: "print", 4: "sched_switch", 11: "cpu_frequency", 12: "cpu_frequency_limits", 13: "cpu_idle",
    14: "clock_enable", 15: "clock_disable", 16: "clock_set_rate", 17: "sched_wakeup",
    18: "sched_blocked_reason", 19: "sched_cpu_hotplug", 20: "sched_waking", 21: "ipi_entry",
    22: "ipi_exit", 23: "ipi_raise", 24: "softirq_entry", 25: "softirq_exit", 26: "softirq_raise",
    36: "irq_handler_entry", 37: "irq_handler_exit", 45: "block_rq_issue",
    50: "binder_transaction", 51: "binder_transaction_received", 52: "binder_set_priority",
    53: "binder_lock", 54: "binder_locked", 55: "binder_unlock", 56: "workqueue_activate_work",
    57: "workqueue_execute_end", 58: "workqueue_execute_start", 59: "workqueue_queue_work",
    67: "cgroup_attach_task", 80: "tracing_mark_write", 113: "suspend_resume",
    114: "sched_wakeup_new", 235: "task_newtask", 236: "task_rename", 237: "sched_process_exec",
    238: "sched_process_exit", 239: "sched_process_fork", 240: "sched_process_free",
    241: "sched_process_hang", 242: "sched_process_wait", 313: "rss_stat", 320: "clk_enable",
    321: "clk_disable", 322: "clk_set_rate", 324: "signal_deliver", 325: "signal_generate",
    326: "oom_score_adj_update", 328: "mm_event_record", 329: "sys_enter", 330: "sys_exit",
    332: "gpu_frequency", 334: "mark_victim", 340: "gpu_mem_total", 341: "thermal_temperature",
    342: "cdev_update", 353: "sched_pi_setprio", 359: "rss_stat_throttled",
    421: "sched_cpu_util_cfs", 437: "funcgraph_entry", 438: "funcgraph_exit",
    487: "sched_switch_with_ctrs", 491: "sched_migrate_task",
}  # fmt: skip

_WAKE = {"pid": "SUBJECT", "prio": "PRIO", "target_cpu": "CPU_TO", "success": "SUCCESS",
         "comm": "FIRST_NAME"}  # fmt: skip
#: Event -> field -> slot.
MEANING: dict[str, dict[str, str]] = {
    "sched_switch": {
        "prev_comm": "FIRST_NAME", "prev_pid": "SUBJECT", "prev_prio": "PRIO",
        "prev_state": "STATE", "next_comm": "SECOND_NAME", "next_pid": "OTHER",
        "next_prio": "OTHER_PRIO",
    },
    "sched_wakeup": _WAKE,
    "sched_waking": _WAKE,
    "sched_wakeup_new": _WAKE,
    "sched_migrate_task": {"comm": "FIRST_NAME", "pid": "SUBJECT", "prio": "PRIO",
                           "orig_cpu": "CPU_FROM", "dest_cpu": "CPU_TO"},
    "sched_process_fork": {"parent_comm": "SECOND_NAME", "parent_pid": "OTHER",
                           "child_comm": "FIRST_NAME", "child_pid": "SUBJECT"},
    "sched_process_exec": {"pid": "SUBJECT", "old_pid": "OTHER"},
    "sched_process_exit": {"comm": "FIRST_NAME", "pid": "SUBJECT", "prio": "PRIO"},
    "sched_stat_runtime": {"comm": "FIRST_NAME", "pid": "SUBJECT", "runtime": "VALUE"},
    "sched_pi_setprio": {"comm": "FIRST_NAME", "pid": "SUBJECT", "oldprio": "PRIO",
                         "newprio": "VALUE"},
    "sched_wake_idle_without_ipi": {"cpu": "CPU_TO"},
    "ipi_send_cpu": {"cpu": "CPU_TO"},
    "task_rename": {"pid": "SUBJECT", "oldcomm": "FIRST_NAME", "newcomm": "SECOND_NAME"},
    "cpu_idle": {"state": "VALUE", "cpu_id": "CPU_TO"},
    "irq_handler_entry": {"irq": "VALUE"},
    "irq_handler_exit": {"irq": "VALUE"},
    "softirq_entry": {"vec": "VALUE"},
    "softirq_exit": {"vec": "VALUE"},
}  # fmt: skip

#: What a slot holds whose field the event does not have.
ABSENT = {
    "SUBJECT": NULL_PID, "PRIO": NULL_PRIO, "STATE": NULL_I64, "OTHER": NULL_PID,
    "OTHER_PRIO": NULL_PRIO, "CPU_TO": NULL_CPU, "CPU_FROM": NULL_CPU, "VALUE": NULL_I64,
    "SUCCESS": 1,
}  # fmt: skip


def event_name(number: int) -> str:
    """What an event of this field number is called."""
    return EVENT_NUMBERS.get(number, f"ftrace_event_{number}")


class Layouts:
    """The events that become rows, as arrays for the kernel.

    Parameters
    ----------
    described : dict
        Events that the trace itself describes: number -> (name, field number -> field name).

    Attributes
    ----------
    numbers : int64[d]
        The numbers of ``described``.
    names : list of str
        Their names.
    row_of, kinds, slots, fills
        As ``_perfetto_kernels.decode`` takes them.
    """

    def __init__(self, described: dict[int, tuple[str, dict[int, str]]]) -> None:
        self.numbers = np.array(list(described), np.int64)
        self.names = [name for name, _ in described.values()]
        self.row_of = np.full(kernels.N_EVENTS + len(described), -1, np.int32)
        kinds: list[int] = []
        slots: list[npt.NDArray[np.uint8]] = []
        fills: list[npt.NDArray[np.int64]] = []
        known: list[tuple[int, str, dict[int, str]]] = [
            (number, name, dict(enumerate(FIELDS[name], 1)))
            for number, name in EVENT_NUMBERS.items()
            if name in MEANING
        ]
        known += [
            (kernels.N_EVENTS + i, name, places)
            for i, (name, places) in enumerate(described.values())
            if name in MEANING
        ]
        for cell, name, places in known:
            self.row_of[cell] = len(kinds)
            kinds.append(int(schema.EVENT_NAMES[name]))
            slot = np.zeros(kernels.N_FIELDS, np.uint8)
            fill = np.zeros(kernels.N_SLOTS, np.int64)
            for what, value in ABSENT.items():
                fill[getattr(kernels, what)] = value
            for place, field in places.items():
                what = MEANING[name].get(field, "")
                if what and place < kernels.N_FIELDS:
                    slot[place] = getattr(kernels, what)
                    # A field that is not on the wire is 0; success came and went with kernels.
                    fill[getattr(kernels, what)] = 1 if what == "SUCCESS" else 0
            slots.append(slot)
            fills.append(fill)
        self.kinds = np.array(kinds, np.uint8)
        self.slots = np.array(slots, np.uint8)
        self.fills = np.array(fills, np.int64)

    def name_of(self, cell: int) -> str:
        """Name of the event counted in ``counts[cell]``."""
        if cell >= kernels.N_EVENTS:
            return self.names[cell - kernels.N_EVENTS]
        return event_name(cell) if cell else "unknown"


_OLD = ((1, "S"), (2, "D"), (4, "T"), (8, "t"), (16, "Z"), (32, "X"), (64, "x"))
_PARK = ((128, "K"), (256, "W"), (512, "P"))
#: First release -> bits of prev_state (include/trace/events/sched.h of that release).
_STATES: tuple[tuple[tuple[int, int], tuple[tuple[int, str], ...]], ...] = (
    ((4, 14), ((1, "S"), (2, "D"), (4, "T"), (8, "t"), (16, "X"), (32, "Z"), (64, "P"), (128, "I"),
               (256, "+"))),
    ((4, 8), (*_OLD, *_PARK, (1024, "N"), (4096, "+"))),
    ((4, 2), (*_OLD, *_PARK, (1024, "N"), (2048, "+"))),
    ((3, 9), (*_OLD, *_PARK, (1024, "+"))),
    ((0, 0), (*_OLD, (128, "W"), (512, "+"))),
)  # fmt: skip


def state_table(release: str | None) -> tuple[npt.NDArray[np.uint16], bool]:
    """``uint16[65536]``: raw prev_state to State by a kernel's release, and whether it was told.

    Without one, as since 4.14. Bits that this kernel does not show are ``State.OTHER``.
    """
    m = re.match(r"(\d{1,3})\.(\d{1,3})", release or "")
    version = (int(m[1]), int(m[2])) if m else (4, 14)
    bits = next(bits for since, bits in _STATES if version >= since)
    values = np.arange(1 << 16, dtype=np.uint32)
    table: npt.NDArray[Any] = np.zeros(1 << 16, np.uint16)
    known = 0
    for bit, letter in bits:
        known |= bit
        table[(values & bit) != 0] |= np.uint16(schema.STATE_LETTERS[letter])
    if (4, 8) <= version < (4, 14):
        known |= 2048  # TASK_NEW, which is not shown
    table[(values & (0xFFFF & ~known)) != 0] |= np.uint16(State.OTHER)
    return table, m is not None


def kind_of(name: str) -> EventKind | None:
    """The kind of rows that an event of this name becomes."""
    return schema.EVENT_NAMES.get(name) if name in MEANING else None
