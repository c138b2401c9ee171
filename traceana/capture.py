"""A capture and its lazily made tables: the one object that verbs, reports and scripts use.

>>> import traceana as ta
>>> cap = ta.open("sample_traces/pp6-base.dat")     # doctest: +SKIP
>>> cap.timeline().wakeups.to_pandas()              # doctest: +SKIP
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from traceana import markers, schema, store
from traceana import topology as topo
from traceana.columns import NULL_I64, Chunk, EventColumns, NameChange
from traceana.cost import event_cost_ns
from traceana.coverage import Coverage
from traceana.errors import MissingEventsError, UsageError
from traceana.issues import IssueLog
from traceana.parsers.registry import open_reader
from traceana.redact import RedactedReader, Redactor
from traceana.start_state import StartState
from traceana.start_state import find as find_start_state
from traceana.start_state import load as load_start_state
from traceana.thresholds import kernel_number

if TYPE_CHECKING:
    from traceana.parsers.reader import Lost, Reader, ReaderMeta
    from traceana.parts import Sink
    from traceana.strict import StrictReading
    from traceana.timeline import Timeline, TimelineBuilder

__all__ = ["READ_MODES", "Capture", "open"]

#: So many of the first events are looked at before the timeline is begun.
SURVEY_EVENTS = 200_000
#: How records that contradict each other are met.
READ_MODES = ("normal", "strict", "switch-only")

Progress = Callable[..., None]
TimeWindow = tuple[str | None, str | None]


def open(  # noqa: A001
    path: str | Path,
    *,
    topology: str | Path | None = None,
    start_state: str | Path | None = None,
    hz: int | None = None,
    kernel: str | None = None,
    ignore: Sequence[str] = (),
    time: TimeWindow | None = None,
    workload: Sequence[tuple[str, str]] = (),
    progress: Progress | None = None,
    buffer: str | None = None,
    read_mode: str = "normal",
    redact: bool = False,
    between: tuple[str, str] | None = None,
) -> Capture:
    """Open a capture of any known form, or a .traceana store.

    Parameters
    ----------
    path : path of the capture, or ``-`` for standard input where the form allows it
    topology : JSON, ``lscpu -p`` output, or a folder or tar of sysfs; else
        ``CAPTURE.topology.json``, else the capture's own header, else one LLC without SMT
    start_state : state.json or RUN.json; else ``CAPTURE.state.json``
    hz : ticks per second of the recorded kernel (250 where nobody tells)
    kernel : release to take instead of the recorded one
    ignore : tracepoints to treat as if they had not been recorded
    time : (start, stop) in seconds of the capture's clock as text, or percents like "10%"
    workload : (name, glob) pairs
    progress : called with (bytes done, bytes in all) between batches
    buffer : which buffer of a trace.dat: a name, "top", or "all" of them merged; else the top one,
        or the first instance that holds scheduler events
    read_mode : one of :data:`READ_MODES`: "normal" repairs what contradicts itself and counts it;
        "strict" raises at the first contradiction while anything is read; "switch-only" takes
        sched_switch and nothing else
    between : two texts: only the span from the first marker (trace_marker) that holds the one to
        the next that holds the other; not together with ``time``
    redact : labels instead of names, thread ids and host (see :mod:`traceana.redact`); ``workload``
        still speaks of the true names

    Raises
    ------
    InputError
        Refused, with the reason and what to do instead.
    UsageError
        An option that cannot be served.
    """
    for name in ignore:
        if name.rpartition(":")[2] not in schema.EVENT_NAMES:
            known = ", ".join(schema.EVENT_NAMES)
            raise UsageError(f"--ignore {name}: not an event that traceana reads; it reads {known}")
    if read_mode not in READ_MODES:
        raise UsageError(f"read mode {read_mode!r}: one of {', '.join(READ_MODES)}")
    reader: Reader
    if store.is_store(Path(path)):
        reader = store.StoreReader(Path(path))
    else:
        reader = open_reader(path, buffer=buffer)
    return Capture(
        reader,
        topology=topology,
        start_state=start_state,
        hz=hz,
        kernel=kernel,
        ignore=tuple(name.rpartition(":")[2] for name in ignore),
        time=time,
        workload=tuple(workload),
        progress=progress,
        read_mode=read_mode,
        redact=redact,
        between=between,
    )


class Capture:
    """An opened capture.

    Attributes
    ----------
    path : Path
    meta : ReaderMeta
        What the file says of itself.
    counts : dict
        Events per bare tracepoint name, all of the file; with --time those of a known kind in the
        selection (reads the file once).
    lost : Lost
    issues : IssueLog
        What was lost, repaired, assumed, so far.
    damaged : bool
    topology : pyarrow.Table
    """

    def __init__(
        self,
        reader: Reader,
        *,
        topology: str | Path | None = None,
        start_state: str | Path | None = None,
        hz: int | None = None,
        kernel: str | None = None,
        ignore: tuple[str, ...] = (),
        time: TimeWindow | None = None,
        workload: tuple[tuple[str, str], ...] = (),
        progress: Progress | None = None,
        read_mode: str = "normal",
        redact: bool = False,
        between: tuple[str, str] | None = None,
    ) -> None:
        marks = reader
        redactor = Redactor(workload) if redact else None
        if redactor is not None:
            # It only passes on what a Reader may set.
            reader = cast("Reader", RedactedReader(reader, redactor))
            workload = redactor.workload
        #: Names, thread ids and host are labels.
        self.redacted = redact
        self._reader = reader
        self.path = reader.path
        self.meta: ReaderMeta = reader.meta
        self._own = IssueLog()
        self._hz = hz or reader.meta.hz
        self.read_mode = read_mode
        #: What --ignore names; ``ignored`` is all that is left out.
        self.asked_to_ignore = ignore
        if read_mode == "switch-only":
            ignore = tuple(name for name in schema.EVENT_NAMES if name != "sched_switch")
        self._drop = [int(schema.EVENT_NAMES[name]) for name in ignore]
        self.ignored = ignore
        self._workload = workload
        self._progress = progress
        self._read = False
        self._names: list[NameChange] = []
        self._timeline: Timeline | None = None
        #: A timeline whose rows were not kept.
        self._brief: Timeline | None = None
        self._coverage: Coverage | None = None
        self._first: int | None = None
        self._last: int | None = None
        self._highest_cpu = -1
        self._selected: dict[str, int] = {}
        #: What recording one event cost, ns; known once the timeline is made (see cost.py).
        self.event_cost_ns: int | None = None
        if kernel is not None and kernel_number(kernel) == 0:
            raise UsageError(f"--kernel {kernel}: give a release such as 6.1")
        self.kernel = kernel if kernel is not None else reader.meta.kernel
        if self.kernel is None:
            self._own.add(
                "timeline",
                "kernel_assumed",
                "the kernel release is not recorded; 6.1 is assumed (give --kernel)",
            )
        if read_mode == "switch-only":
            self._own.add(
                "parse",
                "switch_only",
                "read with --read-mode switch-only: of all events sched_switch alone is used; who "
                "woke whom, latencies, dur_avg as the kernel has it, placements and rules are not "
                "told",
            )
        state = Path(start_state) if start_state is not None else find_start_state(self.path)
        self.start_state: StartState | None = load_start_state(state) if state else None
        if redactor is not None and self.start_state is not None:
            self.start_state = redactor.start_state(self.start_state)
        side = Path(topology) if topology is not None else topo.find_side_file(self.path)
        self._side_topology = None if side is None else topo.load_side_file(side, self._own)
        self._assumed: pa.Table | None = None
        self._learned = False
        self._checked = False
        self._window: tuple[int | None, int | None] | None = None
        if time is not None and between is not None:
            raise UsageError("--time and --between: give one of them")
        if time is not None:
            self._window = self._resolve(time)
        elif between is not None:
            self._window = markers.between(marks, *between)

    # --- what the file is ---

    @property
    def counts(self) -> dict[str, int]:
        self._ensure_read()
        return self._reader.counts if self._window is None else self._selected

    @property
    def lost(self) -> Lost:
        self._ensure_read()
        return self._reader.lost

    @property
    def damaged(self) -> bool:
        self._ensure_read()
        return self._reader.damaged

    @property
    def issues(self) -> IssueLog:
        """All that is known so far; complete for parsing once anything has been read."""
        out = IssueLog()
        out.extend(self._reader.issues)
        out.extend(self._own)
        made = self._timeline or self._brief
        if made is not None:
            out.extend(made.issues)
        return out

    def note(self, stage: str, code: str, text: str, *, count: int = 1) -> None:
        """Add to the issues (for later stages)."""
        if code not in self._own.counts():
            self._own.add(stage, code, text, count=count)

    @property
    def first_ts(self) -> int | None:
        """Time of the first event used, ns of the capture's clock; None without events."""
        self._ensure_read()
        return self._first

    @property
    def last_ts(self) -> int | None:
        """Time of the last event used."""
        self._ensure_read()
        return self._last

    @property
    def span_ns(self) -> int | None:
        """Time from the first to the last event used; None where the clock is no time."""
        self._ensure_read()
        if self._first is None or self._last is None or not self.has_time:
            return None
        return self._last - self._first

    @property
    def has_time(self) -> bool:
        """Whether the clock counts time (the counter clock and raw cycles do not)."""
        return self.meta.clock_unit not in ("count", "cycles")

    @property
    def window(self) -> tuple[int | None, int | None] | None:
        """The --time selection in ns, or None."""
        return self._window

    def coverage(self) -> Coverage:
        """From when to when each CPU's data goes; reads the capture where that is not known yet."""
        if self._coverage is None:
            coverage = Coverage()
            for chunk in self._chunks():
                coverage.feed(chunk.events)
            self._coverage = coverage
        return self._coverage

    @property
    def topology(self) -> pa.Table:
        """The ``topology`` table: side file, header, or assumed for the CPUs there are."""
        known = self._known_topology
        if known is not None:
            return known
        if self._assumed is None:
            self._ensure_read()
            present = self.meta.cpus_present or 0
            if present > topo.MAX_CPUS:
                self.note("topology", "impossible_cpus", f"{present} CPUs, as told, cannot be")
                present = 0
            self._assumed = topo.assumed(min(max(present, self._highest_cpu + 1), topo.MAX_CPUS))
            self._own.add(
                "topology",
                "topology_assumed",
                "no topology is known: one LLC without SMT is assumed (give --topology)",
            )
        return self._assumed

    @cached_property
    def _known_topology(self) -> pa.Table | None:
        if self._side_topology is not None:
            return self._side_topology
        return self._reader.topology()

    # --- tables ---

    def event_batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches of the ``events`` table, in the order of time."""
        for chunk in self._chunks():
            yield chunk.events.to_arrow()

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Read without telling progress: within work that tells its own."""
        told, self._progress = self._progress, None
        try:
            yield
        finally:
            self._progress = told

    def event_columns(self) -> Iterator[EventColumns]:
        """The same as arrays (:class:`traceana.columns.EventColumns`)."""
        for chunk in self._chunks():
            yield chunk.events

    def events(self) -> pa.Table:
        """The ``events`` table, all of it in memory."""
        return pa.Table.from_batches(self.event_batches(), schema=schema.EVENTS.schema)

    def names(self) -> pa.Table:
        """The ``names`` table."""
        self._ensure_read()
        spec = schema.NAMES.schema
        rows = sorted(self._names, key=lambda n: NULL_I64 if n.ts is None else n.ts)
        comms = [
            None if n.comm is None else n.comm.decode("utf-8", "backslashreplace") for n in rows
        ]
        return pa.table(
            [
                pa.array([n.pid for n in rows], pa.int32()),
                pa.array([n.tgid for n in rows], pa.int32()),
                pa.array(comms, pa.string()),
                pa.array([n.ts for n in rows], pa.int64()),
                pa.array([int(n.evidence) for n in rows], pa.uint8()),
            ],
            schema=spec,
        )

    def meta_table(self) -> pa.Table:
        """The ``meta`` table: key and JSON value."""
        facts: dict[str, Any] = asdict(self.meta)
        facts.update(facts.pop("extra") or {})
        facts["first_ts"], facts["last_ts"] = self.first_ts, self.last_ts
        facts["span_ns"] = self.span_ns
        facts["counts"] = self.counts
        return pa.table(
            [list(facts), [json.dumps(v, default=str) for v in facts.values()]],
            schema=schema.META.schema,
        )

    def issues_table(self) -> pa.Table:
        """The ``issues`` table."""
        return self.issues.table()

    def extra_events(self, name: str) -> pa.Table:
        """All events of one tracepoint, by its own format (see :class:`parsers.reader.Reader`)."""
        return self._reader.extra_events(name.rpartition(":")[2])

    def timeline(self, *, spill: bool = False) -> Timeline:
        """Tasks, slices, wakeups, idle gaps: made on the first call.

        Parameters
        ----------
        spill : a long capture's slices, wakeups and idle gaps go to a temporary file

        Raises
        ------
        MissingEventsError
            The capture holds no sched_switch.
        """
        if self._timeline is None:
            sink = None
            if spill:
                from traceana.spill import Spill

                sink = Spill(self._reader.progress)
            self._timeline = self._run(sink, None)
            if self._timeline.study is not None:
                from traceana.spill import give_back

                give_back()
            if self._known_topology is None and self._learn_topology(self._timeline) and not spill:
                # What hangs on the LLCs (who waited where) was made as if there were one.
                self._timeline = self._run(None, None)
        return self._timeline

    def _learn_topology(self, timeline: Timeline) -> bool:
        """Take the LLCs from how wakeups were queued, where that suffices; whether there are more
        than the one that was assumed.
        """
        from traceana import llc

        study = timeline.study or timeline
        events = study.raw["cpus"]["events"]
        if len(events) > llc.MOST_CPUS:
            return False
        found = llc.learn(llc.evidence(study), events > 0)
        if not found.complete:
            return False
        self._assumed = topo.learned(found.llc.tolist())
        self._learned = True
        one = found.groups == 1
        self.note(
            "topology",
            "topology_learned",
            "no topology is recorded; from direct and remote wakeups: "
            f"{'one LLC' if one else f'{found.groups} LLCs'} (confidence "
            f"{found.confidence:.4f}); SMT is not known (give --topology)",
        )
        return not one

    def check_topology(self) -> None:
        """Hold a given topology against how wakeups were queued; what disagrees is an issue."""
        if self._known_topology is None or self._checked:
            return
        from traceana import llc

        self._checked = True
        timeline = self.timeline()
        given = topo.as_arrays(self._known_topology).llc
        wrong = llc.evidence(timeline.study or timeline).disagreeing(given)
        if wrong:
            a, b, share = wrong[0]
            self.note(
                "topology",
                "topology_disagrees",
                f"the topology disagrees with how wakeups were queued for {len(wrong)} pairs of "
                f"CPUs: CPUs {a} and {b} {'share' if share else 'do not share'} an LLC by that",
                count=len(wrong),
            )

    def tasks(self) -> pa.Table:
        """The ``tasks`` table alone: where the timeline is not made yet, its rows are not kept.

        Raises
        ------
        MissingEventsError
            The capture holds no sched_switch.
        """
        if self._timeline is not None:
            return self._timeline.tasks
        if self._brief is None:
            self._brief = self._run(None, None, rows=False)
        return self._brief.tasks

    def stream(
        self, sink: Sink | None, events: Callable[[EventColumns], None] | None = None
    ) -> Timeline:
        """Read the capture once: hand on its events, and the timeline's rows part by part.

        Parameters
        ----------
        sink : takes the parts of the timeline, see :class:`traceana.parts.Sink`
        events : called with each batch

        Raises
        ------
        MissingEventsError
            As :meth:`timeline`, after the last batch.
        """
        self._timeline = self._run(sink, events)
        return self._timeline

    def _run(
        self,
        sink: Sink | None,
        events: Callable[[EventColumns], None] | None,
        *,
        rows: bool = True,
    ) -> Timeline:
        builder = None
        # What the first events tell of all of them must not hang on the size of a batch.
        head: list[Chunk] = []
        for chunk in self._chunks():
            if events is not None:
                events(chunk.events)
            if builder is not None:
                builder.feed(chunk.events, chunk.names)
                continue
            head.append(chunk)
            if sum(len(c.events) for c in head) >= SURVEY_EVENTS:
                builder = self._begin(head, sink, rows=rows)
        builder = builder or self._begin(head, sink, rows=rows)
        if not self._hz and not (self.start_state and self.start_state.hz):
            self.note(
                "timeline",
                "hz_assumed",
                "CONFIG_HZ is not recorded; 250 is assumed (give --hz)",
            )
        if not self._reader.counts.get("sched_switch") or "sched_switch" in self.ignored:
            raise self._missing(("sched_switch",), "this analysis")
        # Switches of some tasks only say nothing of a whole CPU.
        partial = "only_some_tasks" in self._reader.issues.counts()
        return builder.finish(whole_cpus=not partial)

    def _begin(self, head: list[Chunk], sink: Sink | None, *, rows: bool) -> TimelineBuilder:
        """A builder that knows the traits of the capture, fed with its first batches."""
        first = EventColumns.concat([c.events for c in head] or [EventColumns.empty(0)])
        builder = self._builder(first.take(slice(0, SURVEY_EVENTS)), sink, rows=rows)
        for chunk in head:
            builder.feed(chunk.events, chunk.names)
        head.clear()
        return builder

    def _builder(self, first: EventColumns, sink: Sink | None, *, rows: bool) -> TimelineBuilder:
        # Its kernels are loaded only where somebody asks for the timeline.
        from traceana.timeline import TimelineBuilder, survey

        kernel = kernel_number(self.kernel)
        self.event_cost_ns = event_cost_ns(first)
        # Behind a block lie the dequeue and the pick of the next task, more than between an enqueue
        # and its record, and the event that is ignored. Reasoning gives 1.1 to 2.4 event costs;
        # 1.4 was chosen among 1.0, 1.2, 1.4 and 1.6 on the captures it is tested on (see
        # docs/validation.md). 0.4 is the same without that event, and was held against nothing.
        share = 1.4 if "sched_stat_runtime" in self.ignored else 0.4
        known = self._known_topology
        if known is None and self._learned:
            known = self._assumed
        return TimelineBuilder(
            llc=None if known is None else topo.as_arrays(known).llc,
            kernel=kernel,
            hz=self._hz,
            start=self.start_state,
            workload=self._workload,
            traits=survey(first, kernel=kernel) if len(first) else None,
            leave_ns=int((self.event_cost_ns or 0) * share),
            sink=sink,
            rows=rows,
        )

    def require(self, names: Sequence[str], needed_for: str) -> None:
        """Raise MissingEventsError unless at least one of the tracepoints was recorded."""
        if not any(self.counts.get(n) and n not in self.ignored for n in names):
            raise self._missing(tuple(names), needed_for)

    def _missing(self, names: tuple[str, ...], needed_for: str) -> MissingEventsError:
        """The error, in the words of the form where it knows why the events are missing."""
        error = MissingEventsError(names, needed_for)
        told = self.meta.extra.get("no_tracepoints")
        if any(n in self.ignored and self._reader.counts.get(n) for n in names):
            how = "--read-mode switch-only" if self.read_mode == "switch-only" else "--ignore"
            told = f"{needed_for} needs {', '.join(names)}, left out on request ({how})"
        error.args = (f"{self.path}: {told or error}",)
        return error

    def _check_topology(self) -> None:
        """A side file of another machine is believed, but not silently."""
        table = self._side_topology
        if table is None:
            return
        listed = table.num_rows
        seen = self._highest_cpu + 1
        present = self.meta.cpus_present or seen
        if listed < seen or (self.meta.cpus_present and listed != present):
            self.note(
                "topology",
                "topology_mismatch",
                f"the topology lists {listed} CPUs, the capture has {max(seen, present)}: "
                "of another machine?",
            )

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _repr_html_(self) -> str:
        from html import escape

        facts = [
            ("file", str(self.path)),
            ("form", self.meta.form),
            ("kernel", str(self.kernel)),
            ("span", "?" if self.span_ns is None else f"{self.span_ns / 1e6:,.3f} ms"),
            ("events", f"{sum(self.counts.values()):,}"),
        ]
        rows = "".join(f"<tr><th>{k}</th><td>{escape(v)}</td></tr>" for k, v in facts)
        return f"<table>{rows}</table>"

    def __repr__(self) -> str:
        return f"<traceana.Capture {self.path} ({self.meta.form})>"

    # --- reading ---

    def _resolve(self, time: TimeWindow) -> tuple[int | None, int | None]:
        """The --time ends in ns: digits as printed, or shares of the capture's span."""
        ends: list[int | None] = []
        for text in time:
            if text is None:
                ends.append(None)
            elif text.endswith("%"):
                self._ensure_read()
                if self._first is None or self._last is None:
                    ends.append(None)
                    continue
                share = float(text[:-1]) / 100
                ends.append(self._first + int((self._last - self._first) * share))
            else:
                match = re.fullmatch(r"(\d+)(?:\.(\d*))?", text.strip())
                if match is None:
                    raise UsageError(f"--time {text}: give seconds as printed, or percents")
                fraction = (match[2] or "")[:9].ljust(9, "0")
                ends.append(int(match[1]) * 1_000_000_000 + int(fraction))
        # Counts and span belong to the selection from here on.
        self._read = False
        self._first = self._last = None
        return ends[0], ends[1]

    def _ensure_read(self) -> None:
        if not self._read:
            for _ in self._chunks():
                pass

    def _chunks(self) -> Iterator[Chunk]:
        """The reader's chunks with --ignore and --time applied; learns names, span, CPUs."""
        first, last = None, None
        whole: list[int] = []
        kinds = np.zeros(len(schema.EventKind), np.int64)
        names: list[NameChange] = []
        strict = self._strict_checker() if self.read_mode == "strict" and not self._read else None
        for chunk in self._reader.chunks():
            events = chunk.events
            if len(events) and self._window is not None:
                whole += [int(events.ts.min()), int(events.ts.max())]
                whole = [min(whole), max(whole)]
            if self._drop:
                events = events.take(~np.isin(events.kind, self._drop))
            if self._window is not None:
                events = self._cut(events)
                kinds += np.bincount(events.kind, minlength=len(kinds))
            if not self._read:
                names.extend(chunk.names)
            if strict is not None:
                strict.feed(events, chunk.names)
            if len(events):
                if first is None:
                    first = int(events.ts.min())
                else:
                    first = min(first, int(events.ts[0]))
                last = max(last, int(events.ts.max())) if last is not None else int(events.ts.max())
                self._highest_cpu = max(self._highest_cpu, int(events.cpu.max()))
            if self._progress is not None:
                self._progress(*self._reader.progress())
            yield Chunk(events, chunk.names)
        cut = self._cut_cpus()
        if cut and last is not None:
            # Their data ends before the capture does: from their last record on they are unknown.
            rows = EventColumns.unknown(len(cut))
            rows.ts[:], rows.kind[:], rows.cpu[:] = last, int(schema.EventKind.LOST), cut
            yield Chunk(rows)
        if whole and first is None:
            a, b = (f"{ns // 10**9}.{ns % 10**9:09d}" for ns in whole)
            raise UsageError(f"no event in that span; the capture spans {a} to {b} s")
        if strict is not None:
            strict.finish(self._reader)
        if not self._read:
            self._read = True
            self._selected = {
                name: int(kinds[kind]) for name, kind in schema.EVENT_NAMES.items() if kinds[kind]
            }
            self._check_topology()
            self._names = names
            self._first, self._last = first, last

    def _cut_cpus(self) -> list[int]:
        """CPUs whose data was cut off, or broken (perhaps at its end)."""
        if not self._reader.damaged:
            return []
        rows = self._reader.issues.table().to_pylist()
        codes = ("data_cut", "page_cut", "bad_page", "bad_event", "bad_time")
        return sorted({r["cpu"] for r in rows if r["code"] in codes and r["cpu"] is not None})

    def _strict_checker(self) -> StrictReading:
        # Its kernels are loaded only where somebody asks for it.
        from traceana.strict import StrictReading

        return StrictReading(self.path, self.meta, kernel=kernel_number(self.kernel))

    def _cut(self, events: EventColumns) -> EventColumns:
        assert self._window is not None
        start, stop = self._window
        keep = np.ones(len(events), bool)
        if start is not None:
            keep &= events.ts >= start
        if stop is not None:
            keep &= events.ts < stop
        return events if keep.all() else events.take(keep)
