"""Reads one input as users would, and says what came of it."""

from __future__ import annotations

import importlib
import io
import re
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fuzz.target import Files

__all__ = ["DEEP", "SMALL", "Verdict", "examine", "put", "small_buffers"]

#: Each so many inputs one is taken on to the timeline, and of these every other one to verbs.
DEEP = 32
#: Buffers that small inputs never fill, and sizes at which they do: half of the inputs are read so.
SMALL = (
    ("traceana.parsers.perf_stream", "BLOCK", 1500),
    ("traceana.parsers.ring", "ROUND_BYTES", 2048),
    ("traceana.parsers.trace_dat_stream", "CHUNK_ROWS", 16),
    ("traceana.parsers.trace_dat_data", "ARENA", 1),
    ("traceana.parsers.text_reader", "FAST_FROM", 0),
    ("traceana.parsers.text_reader", "PIECE", 3000),
    ("traceana.parsers.perfetto_survey", "PIECE", 500),
)  # fmt: skip

#: What no line that reaches a user may hold: controls, also those of C1 (ESC is one).
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass
class Verdict:
    """``outcome`` is refused, damaged or clean; ``fault`` says what must not be, if anything."""

    outcome: str
    rows: int = 0
    fault: str | None = None
    cpu_s: float = 0.0
    peak_mb: float = 0.0


class Fault(Exception):
    """Something that is no exception, and wrong."""


@contextmanager
def small_buffers(wanted: bool) -> Iterator[None]:
    """Read with buffers of a few records."""
    places = (
        [(importlib.import_module(m), name, value) for m, name, value in SMALL] if wanted else []
    )
    before = [getattr(module, name) for module, name, _ in places]
    for module, name, value in places:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(places, before, strict=True):
            setattr(module, name, value)


def put(files: Files, path: Path) -> None:
    """Write an input; what lay there goes."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if list(files) == [""]:
        path.write_bytes(files[""])
        return
    path.mkdir()
    for name, data in files.items():
        place = path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def _one_line(text: str, what: str) -> None:
    if "\n" in text or _CONTROL.search(text):
        raise Fault(f"{what} with control characters: {text!r}")


def _read(path: Path) -> tuple[Any, int, list[Any]]:
    """Open it and take all batches."""
    import traceana as ta
    from traceana import schema

    cap = ta.open(path)
    rows, last, batches = 0, None, []
    backwards = False
    for batch in cap.event_batches():
        if batch.schema != schema.EVENTS.schema:
            raise Fault(f"a batch of another schema: {batch.schema}")
        if batch.num_rows:
            ts = batch.column("ts").to_numpy()
            backwards |= bool((ts[1:] < ts[:-1]).any()) or (last is not None and ts[0] < last)
            last = ts[-1]
        rows += batch.num_rows
        batches.append(batch)
    for text in cap.issues.texts():
        _one_line(text, "an issue")
    if backwards and not any("back" in code or "late" in code for code in cap.issues.counts()):
        raise Fault(f"events not in the order of time; issues: {cap.issues.counts()}")
    return cap, rows, batches


def _go_on(path: Path, cap: Any, batches: list[Any], number: int) -> None:
    """What else is done with a capture: all its tables, and what two verbs print."""
    from traceana import schema
    from traceana.errors import TraceanaError

    again = list(cap.event_batches())
    if sum(b.num_rows for b in again) != sum(b.num_rows for b in batches):
        raise Fault("read a second time it gives another number of events")
    if not all(a.equals(b) for a, b in zip(again, batches, strict=False)):
        raise Fault("read a second time it gives other events")
    for name, table in (
        ("names", cap.names()), ("topology", cap.topology), ("issues", cap.issues_table()),
        ("meta", cap.meta_table()),
    ):  # fmt: skip
        schema.check(table, name)
    for name in list(cap.counts)[:2]:
        try:
            cap.extra_events(name)
        except TraceanaError as error:
            _one_line(str(error), "an error")
    try:
        line = cap.timeline()
        for name in ("tasks", "slices", "wakeups", "idle_gaps"):
            schema.check(getattr(line, name), name)
    except TraceanaError as error:
        _one_line(str(error), "an error")
    if number // DEEP % 2 == 0:
        _verb(["info", str(path), *([], ["--format", "json"])[number // DEEP // 2 % 2]])
        _verb(["tasks", str(path), "-n", "0"])


def _verb(arguments: list[str]) -> None:
    """Run a verb of the program; what it prints can do a terminal no harm."""
    from traceana.cli import app, main

    if not hasattr(app.command, "cache_info"):
        app.command = cache(app.command)  # type: ignore[assignment]  # half of the time otherwise
    real = sys.stdout, sys.stderr
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    sys.stdout, sys.stderr = out, err
    try:
        status = main(arguments)
    finally:
        sys.stdout, sys.stderr = real
    said = [b.buffer.getvalue().decode("utf-8", "surrogateescape") for b in (out, err)]  # type: ignore[attr-defined]
    if status not in (0, 3, 4, 5):
        raise Fault(f"`traceana {arguments[0]}` ended with {status}: {said[1].strip()}")
    for text in said:
        bad = _CONTROL.search(text)
        if bad:
            around = text[max(0, bad.start() - 40) : bad.end() + 20]
            raise Fault(f"`traceana {arguments[0]}` printed {around!r}")


def _peak_kb() -> tuple[int, int]:
    """Highest and present resident size."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(("VmHWM:", "VmRSS:")):
            found[line[:5]] = int(line.split()[1])
    return found.get("VmHWM", 0), found.get("VmRSS", 0)


def _reset_peak() -> None:
    # Where it cannot be done only what is higher than all before is seen.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def examine(path: Path, number: int, *, deep: bool) -> Verdict:
    """Read the input to its end; ``deep``: go on with timeline, tables, and verbs."""
    from traceana.errors import TraceanaError

    verdict = Verdict("clean")
    _reset_peak()
    before = _peak_kb()[1]
    start = time.process_time()
    try:
        with warnings.catch_warnings(), small_buffers(bool(number % 2)):
            warnings.simplefilter("error")
            cap, verdict.rows, batches = _read(path)
            verdict.outcome = "damaged" if cap.damaged else "clean"
            if deep:
                _go_on(path, cap, batches, number)
    except TraceanaError as error:
        verdict.outcome = "refused"
        text = str(error)
        if error.exit_code not in (2, 3):
            verdict.fault = f"exit code {error.exit_code}: {text}"
        elif "\n" in text or _CONTROL.search(text):
            verdict.fault = f"an error with control characters: {text!r}"
    except Exception:
        verdict.fault = traceback.format_exc()
    verdict.cpu_s = time.process_time() - start
    verdict.peak_mb = max(0, _peak_kb()[0] - before) / 1024
    return verdict
