"""A simulated run as a capture: every verb and every table works on it as on a recorded one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from traceana import schema
from traceana.capture import Capture
from traceana.columns import Chunk, EventColumns, NameChange
from traceana.errors import UsageError
from traceana.issues import IssueLog
from traceana.parsers.reader import Lost, ReaderMeta

if TYPE_CHECKING:
    import pyarrow as pa

    from traceana.simulate import Model
    from traceana.workload import Workload

__all__ = ["SimulatedReader", "as_capture"]

#: Rows of a chunk.
_ROWS = 1 << 18


class SimulatedReader:
    """The events of a run (satisfies the Reader protocol)."""

    def __init__(
        self,
        events: EventColumns,
        work: Workload,
        model: Model,
        *,
        path: str = "simulated",
        extra: dict[str, object] | None = None,
    ) -> None:
        self._columns = events
        self._work = work
        self.path = Path(path)
        self.meta = ReaderMeta(
            form="simulated",
            tool="traceana",
            kernel=model.release,
            clock="local",
            hz=model.hz,
            cpus_present=work.topology.num_rows,
            cpus_online=work.topology.num_rows,
            extra={"rule": model.rule, **(extra or {})},
        )
        found = np.bincount(self._columns.kind, minlength=256)
        self.counts = {
            name: int(found[int(kind)]) for name, kind in schema.EVENT_NAMES.items() if found[kind]
        }
        self.lost = Lost()
        self.issues = IssueLog()
        self.damaged = False
        self._done = 0

    def chunks(self) -> Iterator[Chunk]:
        """The events, the names of all tasks before them."""
        names = [
            NameChange(
                int(pid), int(pid), name.encode("utf-8", "surrogateescape"), None,
                schema.Evidence.HEADER,
            )
            for pid, name in zip(self._work.tasks["pid"], self._work.names, strict=True)
        ]  # fmt: skip
        columns = self._columns
        for at in range(0, max(len(columns), 1), _ROWS):
            self._done = at
            yield Chunk(columns.take(slice(at, at + _ROWS)), names if at == 0 else [])
        self._done = len(columns)

    def extra_events(self, name: str) -> pa.Table:
        """Simulated runs hold no other events."""
        raise UsageError(f"{name}: a simulated run holds the scheduler's own events only")

    def topology(self) -> pa.Table:
        """The machine that was simulated."""
        return self._work.topology

    def progress(self) -> tuple[int, int]:
        """Rows read and rows in all."""
        return self._done, len(self._columns)


def as_capture(events: EventColumns, work: Workload, model: Model, **more: Any) -> Capture:
    """Open a run's events as a capture; `more` as of :class:`SimulatedReader`."""
    return Capture(SimulatedReader(events, work, model, **more), hz=model.hz, kernel=model.release)
