"""What can be told of a capture without reading it: headers, counters, and samples of its data.

For forms whose ends and counters can be found at once: trace.dat and perf.data files. How the
samples are taken: trace_dat_glimpse, perf_glimpse.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from traceana.errors import InputError
from traceana.issues import IssueLog
from traceana.parsers.reader import Lost, ReaderMeta

__all__ = ["Glimpse", "glimpse"]


@dataclass
class Glimpse:
    """What a look at a capture tells; ``estimated`` and ``unknown`` name fields that are no facts.

    ``counts`` and ``span`` (first and last event, ns) are exact unless ``estimated`` names them.
    """

    meta: ReaderMeta
    counts: dict[str, int] = field(default_factory=dict)
    span: tuple[int, int] | None = None
    lost: Lost = field(default_factory=Lost)
    issues: IssueLog = field(default_factory=IssueLog)
    topology: pa.Table | None = None
    damaged: bool = False
    estimated: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    #: Of these many bytes of records the sample is.
    sampled_bytes: int = 0
    total_bytes: int = 0


def glimpse(path: Path, buffer: str | None = None) -> Glimpse | None:
    """Look at a capture; None where its form (or its wrapper) has to be read as a whole.

    Raises
    ------
    InputError
        It cannot be read; with the reasons that reading it would give.
    """
    if not path.is_file():
        # A folder; a pipe, of which what is read is gone; or nothing at all.
        return None
    try:
        with path.open("rb") as file:
            head = file.read(16)
            if not head.startswith((b"\x17\x08\x44tracing", b"PERFILE2", b"2ELIFREP")):
                return None
            buf = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from error
    if head.startswith(b"\x17\x08\x44tracing"):
        from traceana.parsers.trace_dat_glimpse import glimpse_trace_dat

        return glimpse_trace_dat(path, buf, buffer)
    from traceana.parsers.perf_glimpse import glimpse_perf_data

    return glimpse_perf_data(path, buf)
