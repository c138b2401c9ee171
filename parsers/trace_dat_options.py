"""The options of a trace.dat file (section 2.3 of the format): numbers, texts, statistics."""

from __future__ import annotations

import re

from traceana.parsers.trace_dat_parts import CpuStat, Cursor, CutError, TraceFile, text_of
from traceana.parsers.trace_dat_shift import parse_time_shift

__all__ = [
    "BUFFER",
    "BUFFER_TEXT",
    "CMDLINES",
    "CPUSTAT",
    "DONE",
    "EVENT_FORMATS",
    "FTRACE_EVENTS",
    "HEADER_INFO",
    "Options",
    "chosen_clock",
]

#: Ids of options; of sections, too.
(
    DONE, DATE, CPUSTAT, BUFFER, TRACECLOCK, UNAME, HOOK, OFFSET, CPUCOUNT, VERSION,
    PROCMAPS, TRACEID, TIME_SHIFT, GUEST, TSC2NSEC, STRINGS, HEADER_INFO, FTRACE_EVENTS,
    EVENT_FORMATS, KALLSYMS, PRINTK, CMDLINES, BUFFER_TEXT, BTF_FILE, LAST_BOOT, MODULES,
) = range(26)  # fmt: skip

#: Known, but nothing in them is needed to read scheduler events.
_IGNORED = frozenset({HOOK, PROCMAPS, STRINGS, KALLSYMS, PRINTK, BTF_FILE, LAST_BOOT, MODULES})

#: No machine has more CPUs, and no counter of one recording reaches the other.
_MAX_CPUS = 1 << 20
_MAX_COUNT = 1 << 48


def _number(text: bytes) -> int | None:
    """trace-cmd's text numbers: decimal or 0x…, maybe negative."""
    try:
        return int(text.partition(b"\0")[0].strip() or b"x", 0)
    except ValueError:
        return None


def chosen_clock(text: str) -> str | None:
    """The clock in brackets of a ``trace_clock`` text, or the only word there is."""
    before, bracket, rest = text.partition("[")
    if bracket:
        return rest.partition("]")[0] or None
    words = before.split()
    return words[0] if len(words) == 1 else None


class Options:
    """What the options say, collected over all lists of options."""

    def __init__(self, out: TraceFile) -> None:
        self.out = out
        self.sections: dict[int, list[int]] = {}
        self.buffers: list[bytes] = []
        self.texts: list[bytes] = []
        self.cpu_count: int | None = None

    def _number(self, data: bytes) -> int:
        return int.from_bytes(data, "big" if self.out.big_endian else "little")

    def _note(self, code: str, text: str) -> None:
        self.out.issues.add("parse", code, text)

    def take(self, ident: int, data: bytes) -> None:
        """One option; what does not have the form it must have is ignored with a note."""
        out = self.out
        if ident in (DATE, OFFSET):
            value = _number(data)
            total = out.offset_ns + (value or 0) * (1000 if ident == DATE else 1)
            if value is None or abs(total) >= 1 << 62:
                self._note("bad_option", f"option {ident} holds no possible number: ignored")
            else:
                out.offset_ns = total
        elif ident == CPUSTAT:
            self._stat(data)
        elif ident == BUFFER:
            self.buffers.append(data)
        elif ident == BUFFER_TEXT:
            self.texts.append(data)
        elif ident == TRACECLOCK:
            out.clock = chosen_clock(text_of(data)) or out.clock
        elif ident == UNAME:
            out.uname = text_of(data) or None
        elif ident == CPUCOUNT:
            if len(data) == 4 and self._number(data) <= _MAX_CPUS:
                self.cpu_count = self._number(data)
            elif len(data) == 4:
                self._note("bad_option", f"{self._number(data)} CPUs cannot be: ignored")
            else:
                # gpuvis builds of trace-cmd wrote "pid tgid" lines under this number.
                self._note("bad_option", f"option 8 has {len(data)} bytes, expected 4: ignored")
        elif ident == VERSION:
            out.tool = f"trace-cmd {text_of(data)}" if text_of(data) else None
        elif ident == TRACEID and len(data) == 8:
            out.trace_id = self._number(data)
        elif ident == TSC2NSEC:
            shift = self._number(data[4:8])
            if len(data) == 16 and shift < 64:
                out.tsc2nsec = (self._number(data[:4]), shift)
            else:
                self._note("bad_option", "option 14 (TSC2NSEC) is malformed: ignored")
        elif ident == TIME_SHIFT:
            self._time_shift(data)
        elif ident == GUEST:
            self._guest(data)
        elif STRINGS <= ident <= CMDLINES and len(data) == 8:
            self.sections.setdefault(ident, []).append(self._number(data))
        elif ident not in _IGNORED:
            self._note("unknown_option", f"unknown option {ident} ({len(data)} bytes): skipped")

    def _time_shift(self, data: bytes) -> None:
        """What makes host times of those of a guest."""
        try:
            shift = parse_time_shift(data, big=self.out.big_endian)
        except CutError:
            self._note("bad_option", "option 12 (TIME_SHIFT) is malformed: ignored")
            return
        self.out.facts["host_trace_id"] = f"{shift.peer:#x}"
        if not shift.count:
            return
        self.out.time_shift = shift
        self._note(
            "time_shifted",
            f"recorded in a guest: times are made those of its host (trace id {shift.peer:#x}) by "
            f"{shift.count} samples; durations are the host's, too",
        )

    def _guest(self, data: bytes) -> None:
        """A guest that was recorded along with this host, and which task runs which of its CPUs."""
        cur = Cursor(memoryview(data), big=self.out.big_endian, what="the option GUEST")
        try:
            name, trace_id, count = cur.string(), cur.number(8), cur.number(4)
            if count * 8 > cur.end - cur.at:
                raise cur.cut()
            tasks = {cur.number(4): cur.number(4) for _ in range(count)}
        except CutError:
            self._note("bad_option", "option 13 (GUEST) is malformed: ignored")
            return
        guests = self.out.facts.setdefault("guests", [])
        assert isinstance(guests, list)
        guests.append({"name": name, "trace_id": f"{trace_id:#x}", "pid_of_vcpu": tasks})

    def _stat(self, data: bytes) -> None:
        values: dict[str, int] = {}
        for line in text_of(data).splitlines():
            key, _, value = line.partition(":")
            if re.fullmatch(r" *[0-9]{1,15} *", value):
                values[key.strip()] = int(value)
        name = re.match(r"Buffer:[ \t]*(.*)", text_of(data))
        if name and "CPU" not in values:
            # Before the statistics of an instance its name comes in an option of its own.
            self.out.stats.append((name[1].strip(), {}))
            return
        if values.get("CPU", _MAX_CPUS) >= _MAX_CPUS or max(values.values()) >= _MAX_COUNT:
            self._note("bad_option", "option 2 (CPUSTAT) tells no possible numbers: ignored")
            return
        stat = CpuStat(
            values["CPU"],
            values.get("entries", 0),
            values.get("overrun", 0),
            values.get("dropped events", 0),
            values.get("read events", 0),
        )
        stats = self.out.stats
        # Older versions do not name them: the CPUs come again, in the order of the buffers.
        if not stats or stat.cpu in stats[-1][1]:
            stats.append((None if stats else "", {}))
        stats[-1][1][stat.cpu] = stat
