"""What the packets beside the events tell: kernel and machine, clocks, processes, lost events."""

from __future__ import annotations

from dataclasses import dataclass, field

from traceana.columns import NameChange
from traceana.parsers import _perfetto_kernels as kernels
from traceana.parsers.perfetto_wire import fields, signed, text
from traceana.schema import Evidence

__all__ = ["CLOCK_SNAPSHOT", "WANTED", "Facts"]

PROCESS_TREE, CLOCK_SNAPSHOT, FTRACE_STATS, SYSTEM_INFO, CPU_INFO = 2, 6, 34, 45, 67
#: Packets that are read field by field.
WANTED = frozenset((PROCESS_TREE, CLOCK_SNAPSHOT, FTRACE_STATS, SYSTEM_INFO, CPU_INFO))

_BOOT = 6
#: Clock of a bundle (FtraceClock) -> its number in clock snapshots.
_SNAPSHOT_OF = {4: 5}
_MAX_TASKS = kernels.PID_LIMIT


@dataclass
class Facts:
    """Collected from packets in the order of the file.

    Attributes
    ----------
    offsets : dict
        Clock of a bundle -> ns to add for the boot clock, by the first snapshot that has both.
    tasks : dict
        tid -> (tgid, comm or None).
    stats : dict
        phase (1 begin, 2 end) -> CPU -> (overrun, dropped, commit overrun) of the kernel's rings.
    described : dict
        Events that the trace describes itself: number -> (name, field number -> field name).
    """

    release: str | None = None
    machine: str | None = None
    tool: str | None = None
    cpus: int | None = None
    extra: dict[str, object] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    tasks: dict[int, tuple[int | None, bytes | None]] = field(default_factory=dict)
    stats: dict[int, dict[int, tuple[int, int, int]]] = field(default_factory=dict)
    described: dict[int, tuple[str, dict[int, str]]] = field(default_factory=dict)
    #: Events asked for that this kernel does not have, or that could not be enabled.
    refused: list[str] = field(default_factory=list)

    def take(self, what: int, data: bytes) -> None:
        """Read one packet's content."""
        if what == SYSTEM_INFO:
            self._system(data)
        elif what == PROCESS_TREE:
            self._processes(data)
        elif what == CLOCK_SNAPSHOT:
            self._clocks(data)
        elif what == FTRACE_STATS:
            self._stats(data)
        elif what == CPU_INFO:
            cpus = sum(1 for number, _ in fields(data) if number == 1)
            self.cpus = max(self.cpus or 0, cpus) or None

    def _system(self, data: bytes) -> None:
        for number, value in fields(data):
            if number == 1 and isinstance(value, bytes):
                for part, word in fields(value):
                    if part == 3:
                        self.release = text(word) or self.release
                    elif part == 4:
                        self.machine = text(word) or self.machine
            elif number == 4:
                self.tool = text(value) or self.tool
            elif number == 8 and isinstance(value, int) and 0 < value <= kernels.MAX_CPU:
                self.cpus = value
            elif number == 2:
                self.extra["android_build"] = text(value)

    def _clocks(self, data: bytes) -> None:
        seen: dict[int, int] = {}
        for number, value in fields(data):
            if number == 1 and isinstance(value, bytes):
                parts = {n: v for n, v in fields(value) if isinstance(v, int)}
                seen[parts.get(1, 0)] = parts.get(2, 0)
        for clock, snapshot in _SNAPSHOT_OF.items():
            if _BOOT in seen and snapshot in seen:
                self.offsets.setdefault(clock, seen[_BOOT] - seen[snapshot])

    def _processes(self, data: bytes) -> None:
        for number, value in fields(data):
            if number not in (1, 2) or not isinstance(value, bytes):
                continue
            pid, parent, tgid = 0, 0, None
            comm: bytes | None = None
            words: list[bytes] = []
            for part, told in fields(value):
                if part == 1 and isinstance(told, int):
                    pid = signed(told)
                elif part == 2 and number == 1 and isinstance(told, int):
                    parent = signed(told)
                elif part == 2 and isinstance(told, bytes):
                    comm = told[:15]
                elif part == 3 and isinstance(told, bytes):
                    words.append(told)
                elif part == 3:
                    tgid = signed(told)
            if number == 1:
                tgid = pid
                # Of kernel threads (children of kthreadd, pid 2) the command line is the name.
                if (parent == 2 or pid == 2) and len(words) == 1:
                    comm = words[0][:15]
            if not 0 < pid < kernels.PID_LIMIT or not (comm or tgid):
                continue
            known = self.tasks.get(pid, (None, None))
            if tgid is None or not 0 < tgid < kernels.PID_LIMIT:
                tgid = known[0]
            self.tasks[pid] = (tgid, comm or known[1])

    def _stats(self, data: bytes) -> None:
        phase = 0
        cpus: dict[int, tuple[int, int, int]] = {}
        for number, value in fields(data):
            if number == 1 and isinstance(value, int):
                phase = value
            elif number == 2 and isinstance(value, bytes):
                parts = {n: v for n, v in fields(value) if isinstance(v, int)}
                cpu = parts.get(1, 0)
                if cpu < kernels.MAX_CPU:
                    cpus[cpu] = (parts.get(3, 0), parts.get(8, 0), parts.get(4, 0))
            elif number in (6, 7) and text(value) not in self.refused and len(self.refused) < 100:
                self.refused.append(text(value))
        if phase == 1:
            # Several sessions write one each; the first stands for the trace.
            for cpu, numbers in cpus.items():
                self.stats.setdefault(1, {}).setdefault(cpu, numbers)
        else:
            self.stats.setdefault(phase, {}).update(cpus)

    def describe(self, bundle: bytes) -> None:
        """Take the descriptions of events out of a bundle (field 11)."""
        for number, value in fields(bundle):
            if number != 11 or not isinstance(value, bytes):
                continue
            parts = dict(fields(value))
            ident, descriptor = parts.get(1), parts.get(2)
            if not isinstance(ident, int) or not isinstance(descriptor, bytes):
                continue
            name, places = "", {}
            for part, told in fields(descriptor):
                if part == 1:
                    name = text(told)
                elif part == 2 and isinstance(told, bytes):
                    facts = dict(fields(told))
                    place = facts.get(3)
                    if isinstance(place, int):
                        places[place] = text(facts.get(1, b""))
            if name and ident < 1 << 29 and len(self.described) < 1000:
                self.described.setdefault(ident, (name, places))

    def names(self) -> list[NameChange]:
        """Rows of the ``names`` table for the processes and threads listed."""
        return [
            NameChange(pid, tgid, comm, None, Evidence.CMDLINES)
            for pid, (tgid, comm) in sorted(self.tasks.items())
        ]

    def lost(self) -> dict[int, int]:
        """CPU -> events that the kernel's ring lost between the counters at begin and end."""
        begin, end = self.stats.get(1, {}), self.stats.get(2, {})
        out = {}
        for cpu, numbers in end.items():
            before = begin.get(cpu)
            if before is None:
                continue
            count = sum(max(0, b - a) for a, b in zip(before, numbers, strict=True))
            if 0 < count < 1 << 48:
                out[cpu] = count
        return out
