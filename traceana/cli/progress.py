"""A progress bar on stderr: only on a terminal, only for work that lasts, gone at the end."""

from __future__ import annotations

import sys
import time
from types import TracebackType

__all__ = ["Progress", "erase"]

_PATIENCE_S = 1.0
_PACE_S = 0.1
_WIDTH = 24


_shown: list[Progress] = []


def erase() -> None:
    """Make room for a line of something else."""
    for bar in _shown:
        bar.clear()


class Progress:
    """Called while a file is read: bytes done, bytes in all, events so far where known.

    Work that is not measured in bytes names another unit, or none.
    """

    def __init__(self, *, quiet: bool, unit: str = "MB") -> None:
        self._unit = unit
        self._on = not quiet and sys.stderr is not None and sys.stderr.isatty()
        self._start = self._last = time.monotonic()
        self._drawn = 0

    def __call__(self, done: int, total: int, events: int | None = None) -> None:
        now = time.monotonic()
        if not self._on or now - self._start < _PATIENCE_S or now - self._last < _PACE_S:
            return
        self._last = now
        spent = now - self._start
        share = min(1.0, done / total) if total else 0.0
        bar = ("#" * round(share * _WIDTH)).ljust(_WIDTH, ".")
        text = f"[{bar}] {100 * share:3.0f} %"
        if self._unit:
            text += f"  {done / 1e6:.0f} {self._unit}"
        if events is not None:
            text += f"  {events / spent / 1e6:.1f} M events/s"
        if 0 < share < 1:
            text += f"  {spent / share - spent:.0f} s left"
        self._draw(text)

    def _draw(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._drawn))
        sys.stderr.flush()
        self._drawn = len(text)

    def __enter__(self) -> Progress:
        _shown.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()
        _shown.remove(self)

    def clear(self) -> None:
        """Erase the bar."""
        if self._drawn:
            sys.stderr.write("\r" + " " * self._drawn + "\r")
            sys.stderr.flush()
            self._drawn = 0
