"""A long timeline on disk: its tables as Arrow files, mapped when somebody looks.

:class:`Spill` is the sink of ``Capture.timeline``. The files lie in a folder of their own under
``$TMPDIR`` (else /var/tmp, which is a disk where /tmp may be memory) and go with the object. One
stretch in the middle of the capture is kept in memory as a timeline of its own
(:attr:`Timeline.study`): stages that need the whole state of the machine work on that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana import _timeline_state as k
from traceana import schema
from traceana.errors import InputError
from traceana.parts import PART_ROWS, TABLES, Held, Part, structured

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = ["HOLD_ROWS", "STUDY_ROWS", "Spill", "give_back", "work_folder"]

#: Rows of slices, wakeups and gaps that stay in memory: those of about a million events.
HOLD_ROWS = 400_000
#: Rows of the stretch that is kept for the stages that need the machine's whole state.
STUDY_ROWS = 300_000
_FIELDS = {"slices": k.SLICE, "wakeups": k.WAKE, "gaps": k.GAP}
NULL = k.NULL
Array = npt.NDArray[Any]


def work_folder() -> str | None:
    """Where large temporary files go: None is tempfile's own choice."""
    if os.environ.get("TMPDIR"):
        return None
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else None


def _return_large_blocks() -> None:
    """Have glibc give arrays of 256 KB and more back to the system as soon as they are freed.

    It would learn from the first ones to keep up to 32 MB each for later, which keeps a third of a
    gigabyte here. Other C libraries have no such call, or nothing to change.
    """
    mmap_threshold = -3  # M_MMAP_THRESHOLD of malloc.h
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(mmap_threshold, 1 << 18)
        # Arrow's own allocator would keep what columns took.
        pa.set_memory_pool(pa.system_memory_pool())


def give_back() -> None:
    """Have glibc return to the system what it keeps of freed memory: much, after many arrays."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class Spill:
    """Takes the parts of a timeline to disk.

    Parameters
    ----------
    progress : gives (done, in all) of the capture's reading; where the middle is
    hold_rows, part_rows, study_rows : see the constants
    """

    def __init__(
        self,
        progress: Callable[[], tuple[int, int]],
        *,
        hold_rows: int = HOLD_ROWS,
        part_rows: int = PART_ROWS,
        study_rows: int = STUDY_ROWS,
    ) -> None:
        self.hold_rows, self.part_rows = hold_rows, part_rows
        self._study_rows = study_rows
        self._progress = progress
        self._folder: Path | None = None
        self._out: dict[str, pa.ipc.RecordBatchFileWriter] = {}
        self._study: list[Part] = []
        self._before: Part | None = None
        self._studied = 0

    def _file(self, name: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{name}.arrow"

    def take(self, part: Part) -> None:
        """The next part, appended to the files."""
        try:
            if self._folder is None:
                _return_large_blocks()
                self._folder = Path(tempfile.mkdtemp(prefix="traceana-", dir=work_folder()))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
                for name in TABLES:
                    self._out[name] = pa.ipc.new_file(
                        pa.OSFile(str(self._file(name)), "wb"), schema.TABLES[name].schema
                    )
            for name, out in self._out.items():
                for batch in part.tables[name].to_batches():
                    out.write_batch(batch)
        except OSError as error:
            raise InputError(
                Path(work_folder() or tempfile.gettempdir()),
                f"cannot hold a long timeline: {error.strerror or error}",
                hint="point TMPDIR to a folder with more room",
            ) from error
        self._keep(part)

    def _keep(self, part: Part) -> None:
        """Keep the parts from the middle on, and the one before them."""
        done, total = self._progress()
        if self._studied >= self._study_rows:
            return
        if done * 2 < total:
            self._before = part
            return
        self._study.append(part)
        self._studied += sum(t.num_rows for t in part.tables.values())

    def rows(self) -> Spill:
        """What was taken, for reading."""
        for out in self._out.values():
            out.close()
        self._out = {}
        return self

    def forget(self, name: str) -> None:
        """A table that turned out to say nothing."""
        with pa.OSFile(str(self._file(name)), "wb") as file:
            pa.ipc.new_file(file, schema.TABLES[name].schema).close()

    def table(self, name: str) -> pa.Table:
        """One of the tables, mapped from its file: memory is used by what is touched."""
        with pa.memory_map(str(self._file(name)), "r") as source:
            return pa.ipc.open_file(source).read_all()

    def chunks(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of a table, part by part, read (not mapped)."""
        spec = schema.TABLES[name].schema
        options = pa.ipc.IpcReadOptions(
            included_fields=[spec.get_field_index(column) for column in columns]
        )
        with pa.OSFile(str(self._file(name)), "rb") as source:
            file = pa.ipc.open_file(source, options=options)
            for i in range(file.num_record_batches):
                yield pa.Table.from_batches([file.get_batch(i)])

    def study(self, whole: Timeline) -> Timeline | None:
        """The stretch that was kept, as a timeline of its own.

        Its rows include those that reach into it; wakeups begun before it have kind unknown.
        """
        parts = self._study
        if not parts:
            return None
        begin, end = parts[0].begin_ts, parts[-1].end_ts
        raw: dict[str, Array] = dict(whole.raw)
        for name, dtype in _FIELDS.items():
            rows = [structured(p.columns[name], dtype) for p in parts]
            reaching = _reaching(self._before, name, dtype, begin)
            unfinished = parts[-1].unfinished[name]
            raw[name] = np.concatenate([reaching, *rows, unfinished])
        early = (raw["wakeups"]["waking"] != NULL) & (raw["wakeups"]["waking"] < begin)
        raw["wakeups"]["kind"][early] = k.K_UNKNOWN
        # A part brings the moves up to its handing over, which lie beyond its end: those of the
        # first one's stretch came with the part before.
        before = [self._before] if self._before is not None else []
        raw["moves"] = np.concatenate([p.moves for p in (*before, *parts)])
        tables = {name: pa.concat_tables([p.tables[name] for p in parts]) for name in TABLES}
        self._study, self._before = [], None
        return replace(
            whole,
            rows=Held(tables),
            first_ts=begin,
            last_ts=end,
            cpus=_shares(whole.cpus, raw, begin, end),
            raw=raw,
            study=None,
        )


def _reaching(part: Part | None, name: str, dtype: np.dtype[Any], begin: int) -> Array:
    """The rows of the part before that were not over when a stretch began."""
    if part is None:
        return np.empty(0, dtype)
    rows = structured(part.columns[name], dtype)
    end = rows["run" if name == "wakeups" else "end"]
    return np.asarray(rows[(end == NULL) | (end > begin)])


def _shares(cpus: pa.Table, raw: Mapping[str, Array], begin: int, end: int) -> pa.Table:
    """``cpus`` with idle, busy and unknown time of the stretch."""
    n = cpus.num_rows
    known: dict[str, Array] = {}
    for column, name in (("busy_ns", "slices"), ("idle_ns", "gaps")):
        rows = raw[name][raw[name]["cpu"] >= 0]
        lo = np.clip(np.where(rows["start"] != NULL, rows["start"], begin), begin, end)
        hi = np.clip(np.where(rows["end"] != NULL, rows["end"], end), begin, end)
        known[column] = np.bincount(
            rows["cpu"], weights=np.maximum(hi - lo, 0), minlength=n
        ).astype(np.int64)[:n]
    unknown = np.maximum(end - begin - known["busy_ns"] - known["idle_ns"], 0)
    for column, values in (*known.items(), ("unknown_ns", unknown)):
        cpus = cpus.set_column(cpus.schema.get_field_index(column), column, pa.array(values))
    return cpus
