"""What the report tests share: sample captures, captures made of lines, a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from oracle.tiny import events as tiny_events

from traceana import capture, reports
from traceana.columns import Chunk, EventColumns, NameChange
from traceana.issues import IssueLog
from traceana.parsers.reader import Lost, ReaderMeta
from traceana.schema import EVENT_NAMES, EventKind

NAME_OF = {kind: name for name, kind in EVENT_NAMES.items()}


class MemoryReader:
    """A capture that was never a file: event columns and names of pids."""

    def __init__(self, events: EventColumns, names: dict[int, bytes], **meta: Any) -> None:
        self.path = Path("tiny.dat")
        self.meta = ReaderMeta(**{"form": "memory", "kernel": "6.1.0", "clock": "mono", **meta})
        self.lost = Lost()
        self.issues = IssueLog()
        self.damaged = False
        self.counts: dict[str, int] = {}
        for kind, n in enumerate(np.bincount(events.kind, minlength=32)):
            if n and kind in NAME_OF:
                self.counts[NAME_OF[EventKind(kind)]] = int(n)
        self._events = events
        self._names = [NameChange(pid, None, comm, None) for pid, comm in names.items()]

    def chunks(self) -> Iterator[Chunk]:
        yield Chunk(self._events, self._names)

    def extra_events(self, name: str) -> pa.Table:
        raise NotImplementedError

    def topology(self) -> pa.Table | None:
        return None

    def progress(self) -> tuple[int, int]:
        return 1, 1


@pytest.fixture(scope="session")
def tiny() -> Callable[..., capture.Capture]:
    """A capture of lines in the language of oracle.tiny, or of event columns."""

    def make(
        text: str | EventColumns, names: dict[int, bytes] | None = None, **meta: Any
    ) -> capture.Capture:
        events = tiny_events(text) if isinstance(text, str) else text
        return capture.Capture(MemoryReader(events, names or {}, **meta))

    return make


@pytest.fixture(scope="session")
def sample(samples: Path) -> Callable[[str], capture.Capture]:
    """A sample capture by name; opened once."""
    opened: dict[str, capture.Capture] = {}

    def get(name: str) -> capture.Capture:
        if name not in opened:
            opened[name] = capture.open(samples / name)
        return opened[name]

    return get


#: Names that a program may give itself (15 bytes at most), and one longer than any can.
HOSTILE = (
    b"<script>alert(1)</script>",
    b"<b onload=x>&amp;",
    b"\"'><svg/onload=",
    b"a\x1b[31m\r\nb\x00",
    "\u202egnp.exe\u2066".encode(),
    b"\xff\xfe{{7*7}}{%x%}",
    b"$\\frac{1}{2$",
    b"[x](http://e.x)",
    b"|`*_~#@user",
    b"=1+1",
    b"",
    b"   ",
)


def ping_pong(pairs: int, rounds: int, cpus: int) -> str:
    """Lines: pairs of tasks that wake each other, each on two CPUs of its own."""
    lines = []
    for p in range(pairs):
        a, b = 100 + 2 * p, 101 + 2 * p
        ca, cb = (2 * p) % cpus, (2 * p + 1) % cpus
        t = 10.0 + p
        lines.append(f"{t:.3f} {cb} {b} . switch S 0")
        for _ in range(rounds):
            for waker, wakee, mine, other in ((a, b, ca, cb), (b, a, cb, ca)):
                lines += [
                    f"{t + 4:.3f} {mine} {waker} . waking {wakee} {other}",
                    f"{t + 5:.3f} {other} 0 . wakeup {wakee} {other}",
                    f"{t + 6:.3f} {mine} {waker} . switch S 0",
                    f"{t + 7:.3f} {other} 0 . switch R {wakee}",
                ]
                t += 9
    lines.sort(key=lambda line: float(line.split()[0]))
    return "\n".join(lines)


@pytest.fixture(scope="session")
def hostile(tiny: Callable[..., capture.Capture]) -> capture.Capture:
    """Pairs of tasks with hostile names that wake each other, so that they are in every section."""
    names = {100 + i: name for i, name in enumerate(HOSTILE)}
    return tiny(ping_pong(len(HOSTILE) // 2, 40, len(HOSTILE)), names)


CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


@pytest.fixture
def browse(tmp_path: Path) -> Callable[..., tuple[str, list[str]]]:
    """Load a page in headless Chromium: (the DOM afterwards, what its console said)."""
    if CHROMIUM is None:
        pytest.skip("no chromium: the page cannot be opened in a browser")

    def load(html: str, *, width: int = 1280, dark: bool = False) -> Any:
        page = tmp_path / "page.html"
        page.write_text(html, encoding="utf-8")
        done = subprocess.run(
            [
                str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr",
                "--hide-scrollbars", f"--window-size={width},900", "--virtual-time-budget=4000",
                f"--blink-settings=preferredColorScheme={0 if dark else 1}",
                "--dump-dom", page.as_uri(),
            ],
            capture_output=True,
            timeout=120,
            check=True,
        )  # fmt: skip
        log = done.stderr.decode(errors="replace")
        said = [line for line in log.splitlines() if re.search(r"CONSOLE[:(]", line)]
        return done.stdout.decode(), said

    return load


@pytest.fixture(scope="session")
def page(sample: Callable[[str], capture.Capture]) -> str:
    """The HTML report of a mid-sized sample."""
    return reports.render(sample("proxy-base.dat.xz"))
