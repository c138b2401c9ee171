"""The part of Perfetto's messages that an export writes, as classes of the protobuf library.

Perfetto publishes its messages as .proto files (protos/perfetto/trace); here the few that are
written are described to the library when they are needed, so that nothing has to be generated
beforehand. Numbers and names of fields are those of the public definitions.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from traceana.parsers.perfetto_tables import EVENT_NUMBERS, FIELDS, TEXTS

__all__ = ["EVENTS", "messages"]

#: Events that FtraceEvent has a field for, and that are written.
EVENTS = (
    "sched_switch", "sched_waking", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task",
    "sched_process_fork", "sched_process_exec", "sched_process_exit", "sched_pi_setprio",
    "task_rename", "cpu_idle", "irq_handler_entry", "irq_handler_exit", "softirq_entry",
    "softirq_exit",
)  # fmt: skip

#: Message -> (field, number, type); a type that is no scalar is a message; "*" repeats.
_MESSAGES: dict[str, tuple[tuple[str, int, str], ...]] = {
    "Trace": (("packet", 1, "*TracePacket"),),
    "TracePacket": (
        ("ftrace_events", 1, "FtraceEventBundle"),
        ("process_tree", 2, "ProcessTree"),
        ("timestamp", 8, "uint64"),
        ("trusted_packet_sequence_id", 10, "uint32"),
        ("track_event", 11, "TrackEvent"),
        ("sequence_flags", 13, "uint32"),
        ("system_info", 45, "SystemInfo"),
        ("track_descriptor", 60, "TrackDescriptor"),
    ),
    "SystemInfo": (
        ("utsname", 1, "Utsname"),
        ("tracing_service_version", 4, "string"),
        ("num_cpus", 8, "uint32"),
    ),
    "Utsname": (("sysname", 1, "string"), ("release", 3, "string"), ("machine", 4, "string")),
    "ProcessTree": (("processes", 1, "*Process"), ("threads", 2, "*Thread")),
    "Process": (("pid", 1, "int32"), ("ppid", 2, "int32"), ("cmdline", 3, "*string")),
    "Thread": (("tid", 1, "int32"), ("name", 2, "string"), ("tgid", 3, "int32")),
    "FtraceEventBundle": (
        ("cpu", 1, "uint32"),
        ("event", 2, "*FtraceEvent"),
        ("lost_events", 3, "bool"),
    ),
    "FtraceEvent": (
        ("timestamp", 1, "uint64"),
        ("pid", 2, "uint32"),
        ("common_flags", 5, "uint32"),
        ("generic", 327, "GenericFtraceEvent"),
        *((name, n, f"event_{name}") for n, name in EVENT_NUMBERS.items() if name in EVENTS),
    ),
    "GenericFtraceEvent": (("event_name", 1, "string"), ("field", 2, "*GenericField")),
    "GenericField": (("name", 1, "string"), ("str_value", 3, "string"), ("int_value", 4, "int64")),
    **{
        f"event_{name}": tuple(
            (field, i, "string" if field in TEXTS else "int64")
            for i, field in enumerate(FIELDS[name], 1)
        )
        for name in EVENTS
    },
    "TrackDescriptor": (
        ("uuid", 1, "uint64"),
        ("name", 2, "string"),
        ("parent_uuid", 5, "uint64"),
        ("counter", 8, "CounterDescriptor"),
    ),
    "CounterDescriptor": (("unit_name", 6, "string"),),
    "TrackEvent": (
        ("debug_annotations", 4, "*DebugAnnotation"),
        ("type", 9, "int32"),
        ("track_uuid", 11, "uint64"),
        ("categories", 22, "*string"),
        ("name", 23, "string"),
        ("counter_value", 30, "int64"),
        ("flow_ids", 47, "*fixed64"),
        ("terminating_flow_ids", 48, "*fixed64"),
    ),
    "DebugAnnotation": (("int_value", 4, "int64"), ("string_value", 6, "string"),
                        ("name", 10, "string")),
}  # fmt: skip


@cache
def messages() -> dict[str, Any]:
    """The classes by the names of their messages.

    Raises
    ------
    ImportError
        The protobuf library is not installed (extra ``export``).
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="traceana/perfetto.proto", package="traceana.perfetto", syntax="proto2"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, told in fields:
            label = kinds.LABEL_REPEATED if told.startswith("*") else kinds.LABEL_OPTIONAL
            kind = told.removeprefix("*")
            cell = message.field.add(name=field, number=number, label=label)
            if kind in _MESSAGES:
                cell.type, cell.type_name = kinds.TYPE_MESSAGE, f".traceana.perfetto.{kind}"
            else:
                cell.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"traceana.perfetto.{name}")
        )
        for name in _MESSAGES
    }
