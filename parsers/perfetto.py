"""Perfetto traces (protobuf) with ftrace events: of Android, of Chrome OS, of servers.

A trace is a run of packets in no order that could be relied on; a bundle in it holds events of one
CPU, as they stand or in the compact form that leaves out what the switch before told. A first pass
sizes all packets up and finds the earliest time in each piece of the file; with this the second one
gives out, piece by piece, what nothing later can precede. So memory is bounded by how far the
order of packets is from that of time, which is one period of reading the rings.

Of the events of one CPU, order is by time alone: the format promises none, and its writers make
use of this. At equal times of one CPU, wakings of a compact part go before its switches: the
waker still runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import schema
from traceana.columns import Chunk, EventColumns
from traceana.errors import FormatError, TruncatedError, UsageError
from traceana.issues import IssueLog
from traceana.output import escape
from traceana.parsers import _perfetto_kernels as kernels
from traceana.parsers import perfetto_tables as tables
from traceana.parsers.payload import as_bytes
from traceana.parsers.perfetto_decode import Decoder, Rows
from traceana.parsers.perfetto_survey import PIECE, Survey
from traceana.parsers.reader import Lost, ReaderMeta

__all__ = ["PerfettoReader", "open_perfetto"]

#: A trace up to this size is gone through when it is opened, of a larger one the begin.
SMALL = 64 << 20
_CHUNK_ROWS = 1 << 18
_MAX_STREAMS = 1000


def open_perfetto(path: Path, buf: Any) -> PerfettoReader:
    """A reader of a Perfetto trace.

    Parameters
    ----------
    path : Path
        For messages.
    buf : bytes or read-only mmap
        The whole content, unwrapped.

    Raises
    ------
    FormatError, TruncatedError
        It does not begin with a packet, or is cut within its first one.
    """
    return PerfettoReader(path, buf)


class _Held:
    """Rows that cannot be given out yet, as parts that are each in the order of time."""

    def __init__(self) -> None:
        self._parts: list[Rows] = []

    def add(self, rows: Rows) -> None:
        """Take rows in the order of the file."""
        if len(rows):
            self._parts.append(self._sorted(rows))

    @staticmethod
    def _sorted(rows: Rows) -> Rows:
        return rows.take(np.lexsort((rows.events.cpu, rows.events.ts)))

    def before(self, bound: int) -> Rows:
        """All rows with a time below; none yet while those would be few among what is held.

        (Else a single late packet would make each piece sort all of the others.)
        """
        cuts = [int(np.searchsorted(part.events.ts, bound, side="left")) for part in self._parts]
        total, ready = sum(len(part) for part in self._parts), sum(cuts)
        if not ready or (4 * ready < total and bound != kernels.I64_MAX):
            return Rows.empty()
        pairs = list(zip(self._parts, cuts, strict=True))
        out = self._sorted(Rows.join([part.take(slice(0, cut)) for part, cut in pairs]))
        rest = Rows.join([part.take(slice(cut, None)) for part, cut in pairs if cut < len(part)])
        # Sorting copies: a slice would keep alive all that is given out.
        self._parts = [self._sorted(rest)] if len(rest) else []
        return out


class PerfettoReader:
    """One Perfetto trace; see :class:`traceana.parsers.reader.Reader`."""

    def __init__(self, path: Path, buf: Any, *, piece: int = PIECE, small: int = SMALL) -> None:
        self.path = path
        self._buf = as_bytes(buf)
        self._survey = Survey(self._buf, piece)
        self._facts = self._survey.facts
        self.damaged = False
        self.counts: dict[str, int] = {}
        self.lost = Lost()
        self.issues = IssueLog()
        self._done = 0
        if not len(self._buf) or self._buf[0] != 0x0A:
            raise FormatError(path, "not a Perfetto trace")
        self._survey.go(len(self._buf) if len(self._buf) <= small else max(1, small >> 3))
        if not self._survey.packets.any():
            raise TruncatedError(
                path,
                "a Perfetto trace without a whole packet",
                offset=0,
                hint="copy it again from where it was recorded",
            )
        self.meta = self._make_meta()

    def _make_meta(self) -> ReaderMeta:
        facts = self._facts
        clock = "boot"
        extra = dict(facts.extra)
        if self._survey.clocks - {0}:
            names = [tables.CLOCKS.get(c, str(c)) for c in sorted(self._survey.clocks)]
            extra["ftrace_clock"] = ", ".join(names)
            if len(names) == 1 and not self._survey.mapped():
                clock = names[0]
        extra["packets"] = self._survey.held()
        return ReaderMeta(
            form="Perfetto",
            tool=facts.tool or "perfetto",
            kernel=facts.release,
            machine=facts.machine,
            clock=clock,
            cpus_present=facts.cpus,
            extra=extra,
        )

    # -- the second pass -----------------------------------------------------------------------

    def _reset(self) -> None:
        self._survey.go(len(self._buf))
        self.meta.kernel = self._facts.release
        self.counts.clear()
        self.lost.events, self.lost.marks = 0, 0
        self.lost.per_cpu.clear()
        self.issues = IssueLog()
        self._decoder = Decoder(self._facts)
        self._streams: dict[int, int] = {}
        #: Writer -> how often packets of it were dropped; its CPUs -> of these, the drops booked.
        self._drops: dict[int, int] = {}
        self._cpus_of: dict[int, dict[int, int]] = {}
        self._begun: set[int] = set()
        self._pending: set[tuple[int, int]] = set()
        self._marks: dict[int, int] = {}
        self._twins: dict[str, int] = {}
        self._bad_bundles = 0
        self._other_machine = 0
        self._recorder_errors = 0
        self.damaged = False
        self._done = 0

    def chunks(self) -> Iterator[Chunk]:
        """Events of the known kinds, in the order of time."""
        self._reset()
        names = self._facts.names()
        if names:
            yield Chunk(EventColumns.empty(0), names)
        held = _Held()
        counts = np.zeros(kernels.N_PACKETS, np.int64)
        for piece, bound in zip(self._survey.pieces, self._survey.bounds(), strict=True):
            for buf, rows in self._survey.walk(piece, counts, self.issues):
                held.add(self._decode(buf, rows[rows[:, kernels.FIELD] == kernels.FTRACE]))
            self._done = piece.end
            yield from self._emit(held.before(bound))
        self._conclude()

    def _decode(self, buf: npt.NDArray[np.uint8], bundles: npt.NDArray[np.int64]) -> Rows:
        """All rows of these bundles, in the order of the file."""
        if not len(bundles):
            return Rows.empty()
        usable = self._survey.usable(bundles)
        if not usable.all():
            elsewhere = int((bundles[:, kernels.MACHINE] != 0).sum())
            self._other_machine += elsewhere
            self._bad_bundles += int((~usable).sum()) - elsewhere
            bundles = bundles[usable]
        self._recorder_errors += int(bundles[:, kernels.ERRORS].sum())
        return self._decoder.decode(buf, bundles, self._extra(bundles))

    def _extra(self, bundles: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """What :func:`decode` is told of each bundle beside its row: shift, marks, stream."""
        extra = np.zeros((len(bundles), 4), np.int64)
        shift, loose = self._survey.shifts(bundles, self._facts.offsets)
        extra[:, 0] = shift
        extra[:, 2] = -1
        columns = (kernels.SEQ, kernels.CPU, kernels.LOST, kernels.DROPPED, kernels.MIN_TS)
        for i, (seq, cpu, lost, dropped, least) in enumerate(bundles[:, columns].tolist()):
            if seq not in self._streams:
                new = len(self._streams)
                self._streams[seq] = new if new < _MAX_STREAMS else 0
                self._cpus_of[seq] = {}
                self._drops[seq] = 0
            elif dropped:
                # Packets of this writer are missing, of whichever CPUs.
                self._drops[seq] += 1
            extra[i, 3] = self._streams[seq]
            known = self._cpus_of[seq]
            if known.get(cpu, self._drops[seq]) < self._drops[seq]:
                self._pending.add((seq, cpu))
            if lost:
                self._pending.add((seq, cpu))
            if least == kernels.I64_MAX:
                continue
            at = least + int(shift[i])
            if cpu not in known:
                told = bundles[i, kernels.PREV_END] or (seq, cpu) in self._pending
                if told and cpu not in self._begun:
                    extra[i, 2] = max(0, self._survey.begin(bundles[i]) + int(shift[i]))
                self._begun.add(cpu)
            known[cpu] = self._drops[seq]
            if (seq, cpu) in self._pending:
                self._pending.discard((seq, cpu))
                extra[i, 1] = 1
                self._marks[cpu] = self._marks.get(cpu, 0) + 1
                self.issues.add(
                    "parse", "events_lost", f"cpu {cpu}: events lost before {at}", ts=at, cpu=cpu
                )
        if loose.any():
            for clock in np.unique(loose[loose != 0]).tolist():
                if clock not in self._facts.offsets:
                    name = tables.CLOCKS.get(clock, str(clock))
                    self.issues.add(
                        "parse", "clock_not_mapped",
                        f"times of the {name} clock stand as they are: nothing tells how it goes "
                        "with the boot clock",
                        count=int((loose == clock).sum()),
                    )  # fmt: skip
        return extra

    def _emit(self, rows: Rows) -> Iterator[Chunk]:
        """Rows in the order of time as chunks."""
        if len(self._streams) > 1:
            rows = self._without_twins(rows)
        for start in range(0, len(rows), _CHUNK_ROWS):
            yield self._decoder.finish(rows.take(slice(start, start + _CHUNK_ROWS)))

    def _without_twins(self, rows: Rows) -> Rows:
        """Leave out what two data sources recorded: neighbours of the same CPU, time and fields."""
        events = rows.events
        same = (events.buffer[1:] != events.buffer[:-1]) & (rows.how[1:] == rows.how[:-1])
        for name in ("ts", "cpu", "kind", "pid", "subject", "other", "cpu_to", "value"):
            column = getattr(events, name)
            same &= column[1:] == column[:-1]
        same &= events.kind[1:] < int(schema.EventKind.LOST)
        twin = np.append(False, same)[: len(rows)]
        for name, kind in schema.EVENT_NAMES.items():
            count = int((events.kind[twin] == int(kind)).sum())
            if count:
                self._twins[name] = self._twins.get(name, 0) + count
        return rows.take(~twin)

    # -- the end -------------------------------------------------------------------------------

    def _conclude(self) -> None:
        """Complete counts, losses and issues once all is decoded."""
        add = self.issues.add
        self.counts.update(self._decoder.counts())
        self._losses()
        self.damaged = self._decoder.damaged or self._survey.damaged
        if self._survey.stopped is not None:
            at, why = self._survey.stopped
            self.damaged = True
            left = len(self._buf) - at
            if why == kernels.CUT:
                add("parse", "cut_short", f"offset {at:#x}: the last packet is cut, the file ends "
                    f"{left} bytes after its begin")  # fmt: skip
            else:
                add("parse", "packet_damaged", f"offset {at:#x}: no packet begins here; the rest "
                    f"of the file, {left} bytes, is not read")  # fmt: skip
        self._decoder.report(self.issues, switches="sched_switch" in self.counts)
        if self._bad_bundles:
            self.damaged = True
            add("parse", "bundle_damaged", f"{self._bad_bundles} bundles with an impossible CPU or "
                "clock left out", count=self._bad_bundles)  # fmt: skip
        if self._other_machine:
            add("parse", "other_machine", f"{self._other_machine} bundles of other machines in the "
                "same trace left out", count=self._other_machine)  # fmt: skip
        if self._recorder_errors:
            add("parse", "recorder_errors", f"the recorder could not read {self._recorder_errors} "
                "places of the kernel's rings", count=self._recorder_errors)  # fmt: skip
        if self._twins:
            count = sum(self._twins.values())
            for name, n in self._twins.items():
                self.counts[name] -= n
            add("parse", "duplicate_events", f"{count} events were recorded by several data "
                "sources: counted once, the first kept", count=count)  # fmt: skip
        if self._facts.refused:
            add("parse", "events_not_recorded", "asked for, but not recorded: "
                + ", ".join(self._facts.refused[:10]))  # fmt: skip
        self.meta.extra["packets"] = self._survey.held()
        if not self.counts:
            held = ", ".join(f"{name} {n}" for name, n in list(self._survey.held().items())[:8])
            note = (
                f"no ftrace events in this trace (its packets: {held}); record with the data "
                "source linux.ftrace and the events sched/sched_switch, sched/sched_waking"
            )
            self.meta.extra["no_tracepoints"] = note
            add("parse", "no_tracepoints", note)

    def _losses(self) -> None:
        """Marks of bundles, and what the counters of the kernel's rings say (``ftrace_stats``)."""
        counted = self._facts.lost()
        for cpu in sorted(set(self._marks) | set(counted)):
            marks = self._marks.get(cpu, 0)
            self.lost.add(cpu, counted.get(cpu))
            self.lost.marks += max(0, marks - 1)
            if not marks:
                self.issues.add(
                    "parse", "events_lost",
                    f"cpu {cpu}: the ring's counters tell {counted[cpu]} lost events, no bundle "
                    "says where",
                    cpu=cpu, count=counted[cpu],
                )  # fmt: skip
        # After these marks no bundle of the CPU came.
        late = {
            (s, c) for s, cpus in self._cpus_of.items() for c in cpus if cpus[c] < self._drops[s]
        }
        for _, cpu in sorted(self._pending | late):
            self.lost.add(cpu, None)
            self.issues.add(
                "parse", "events_lost", f"cpu {cpu}: events lost after its last one", cpu=cpu
            )

    def extra_events(self, name: str) -> pa.Table:
        """All events of one tracepoint, with the fields that Perfetto keeps of it.

        Raises
        ------
        UsageError
            There is no such event, or its fields are not known here.
        """
        from traceana.parsers.perfetto_extra import extra_events

        if not self.counts:
            for _ in self.chunks():
                pass
        if name not in self.counts:
            there = ", ".join(map(escape, sorted(self.counts))) or "none"
            raise UsageError(f"{self.path}: no event {name!r}; there are: {there}")
        return extra_events(self._survey, self._buf, name)

    def topology(self) -> pa.Table | None:
        """Perfetto tells no caches, so nothing that could be used."""
        return None

    def progress(self) -> tuple[int, int]:
        """Bytes done and bytes in all."""
        return self._done, len(self._buf)
