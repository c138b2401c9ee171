"""Give back memory of a mapped file that has been read.

Pages of a mapping count as memory of the process until somebody needs them elsewhere; of a long
recording that would be all of it. Given back, they stay in the cache of the kernel and come
again when they are touched.
"""

from __future__ import annotations

import mmap
from typing import Any

__all__ = ["Pages"]

#: Bytes between two calls.
STEP = 8 << 20


class Pages:
    """The pages of one input, read from front to end; of what is no mapping nothing is done."""

    def __init__(self, raw: Any) -> None:
        usable = isinstance(raw, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED")
        self._map: mmap.mmap | None = raw if usable else None
        self._done = 0

    def done(self, upto: int) -> None:
        """All before this offset has been read (it may be read again)."""
        if self._map is None or upto - self._done < STEP:
            return
        upto -= upto % mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, self._done, upto - self._done)
        self._done = upto
