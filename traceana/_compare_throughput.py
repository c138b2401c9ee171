"""What the workload itself counted: the only thing that is called throughput.

A number (per second, 12.5k and 3M are understood); a JSON file (``{"window": {"rounds": n,
"mono_begin_ns": t, "mono_end_ns": t}}`` as RUN.json has it, or ``rounds`` or ``count`` beside
``seconds``, or ``throughput_per_s`` or ``rounds_per_second`` alone); a file with nothing but a
number; or ``marker:NAME``: a counter that the workload writes to trace_marker while it is traced,
as ``NAME=123``, ``NAME: 123`` or ``C|pid|NAME|123``. A counter that several tasks write counts for
each of them alone.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traceana.errors import UsageError

if TYPE_CHECKING:
    from traceana.capture import Capture

__all__ = ["MARKER", "marks", "read"]

MARKER = "marker:"
#: A file of counts is no larger.
_MOST_BYTES = 64 << 20
_NUMBER = re.compile(
    r"\s*(\d{1,18}(?:\.\d{1,9})?(?:[eE]\d{1,2})?)\s*([kMG]?)\s*(?:/\s*s)?\s*", re.ASCII
)
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
#: Names under which recorders show what was written to trace_marker.
_EVENTS = ("print", "tracing_mark_write")


def read(text: str) -> float | str:
    """A rate per second, or ``marker:NAME`` as it is.

    Raises
    ------
    UsageError
        Neither a number, a marker, nor a file with a count.

    >>> read("12.5k"), read("marker:rounds")
    (12500.0, 'marker:rounds')
    """
    if text.startswith(MARKER):
        if not text[len(MARKER) :].strip():
            raise UsageError(f"--throughput {text}: name the counter, as in marker:rounds")
        return text
    if (number := _number(text)) is not None:
        return number
    path = Path(text)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"--throughput {text}: too large for a file of counts")
        content = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(
            f"--throughput {text}: {why}; give a number per second, a JSON file, or marker:NAME"
        ) from error
    if (number := _number(content)) is not None:
        return number
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--throughput {text}: neither a number nor JSON") from error
    rate = _rate(document)
    if rate is None:
        raise UsageError(
            f"--throughput {text}: no count in it; wanted window.rounds with window.mono_begin_ns "
            "and mono_end_ns, rounds or count with seconds, or throughput_per_s"
        )
    return rate


def _number(text: str) -> float | None:
    found = _NUMBER.fullmatch(text[:80])
    if found is None or len(text) > 80:
        return None
    return float(found[1]) * _SCALE[found[2]]


def _positive(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    with contextlib.suppress(OverflowError):
        number = float(value)
        return number if math.isfinite(number) and number >= 0 else None
    return None


def _rate(document: Any) -> float | None:
    if not isinstance(document, dict):
        return None
    window = document.get("window")
    if isinstance(window, dict):
        count = _positive(window.get("rounds"))
        begin, end = (_positive(window.get(f"mono_{n}_ns")) for n in ("begin", "end"))
        if count is not None and begin is not None and end is not None and end > begin:
            return count / (end - begin) * 1e9
        if (rate := _rate(window)) is not None:
            return rate
    seconds = _positive(document.get("seconds"))
    for name in ("rounds", "count"):
        count = _positive(document.get(name))
        if count is not None and seconds:
            return count / seconds
    for name in ("throughput_per_s", "rounds_per_second"):
        if (rate := _positive(document.get(name))) is not None:
            return rate
    return None


def marks(cap: Capture, name: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """When a counter in trace_marker was written, and by how much it had grown by then.

    Returns
    -------
    (int64[n] ns, float64[n])
        The first mark of each writer is in it with 0.

    Raises
    ------
    UsageError
        There is no such counter.
    """
    word = re.escape(name)
    form = re.compile(rf"(?:^|[|\s]){word}\s*[=:|]\s*(\d{{1,18}})")
    found: list[tuple[int, int, int]] = []
    for event in _EVENTS:
        with contextlib.suppress(UsageError):
            table = cap.extra_events(event)
            texts = [
                f.name for f in table.schema if pa.types.is_string(f.type) or
                pa.types.is_large_string(f.type)
            ]  # fmt: skip
            if not texts:
                continue
            rows = zip(
                table.column("ts").to_pylist(),
                table.column("common_pid").to_pylist(),
                table.column(texts[-1]).to_pylist(),
                strict=True,
            )
            for ts, pid, text in rows:
                match = form.search(text or "")
                if match:
                    found.append((ts, -1 if pid is None else pid, int(match[1])))
    last: dict[int, int] = {}
    ts_out, grown = [], []
    for ts, pid, count in sorted(found):
        ts_out.append(ts)
        # A counter that begins anew has counted that far since.
        before = last.get(pid)
        grown.append(0.0 if before is None else float(count - before if count >= before else count))
        last[pid] = count
    if len(ts_out) <= len(last):
        raise UsageError(
            f"{cap.path}: the capture holds no counter {name!r} in trace_marker (wanted: at least "
            f"two marks such as '{name}=123')"
        )
    return np.array(ts_out, np.int64), np.array(grown)
