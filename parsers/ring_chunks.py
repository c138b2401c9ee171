"""Chunks of events from the ring-buffer pages of all CPUs: the walk and the decoding in one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceana.columns import EventColumns, NameChange
from traceana.parsers import _ring_chunk_kernels as kernels
from traceana.parsers._ring_kernels import I64_MAX
from traceana.parsers.payload import PayloadDecoder
from traceana.parsers.ring import RingWalk

__all__ = ["RingChunk", "ring_chunks"]

#: Rows of a chunk: enough that what Python does for each is little, few enough that their columns
#: (50 bytes a row) are still in the shared cache when somebody takes them.
CHUNK_ROWS = 1 << 17
#: Bytes of pages a round takes: with what is made of them, they fit into a core's own cache.
ROUND_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class RingChunk:
    """Rows in the order of time, the names learnt in them, and how many are LOST rows."""

    columns: EventColumns
    names: list[NameChange]
    losses: int


def ring_chunks(
    walk: RingWalk,
    decoder: PayloadDecoder,
    *,
    chunk_rows: int = CHUNK_ROWS,
    round_bytes: int = ROUND_BYTES,
) -> Iterator[RingChunk]:
    """The wanted events of a walk (of which nothing has been taken yet), decoded.

    A chunk has ``chunk_rows`` rows at most, unless one round has more. Neither chunks nor rounds
    change what comes out.
    """
    k = len(walk.cpus)
    if not k:
        return
    seg_start, seg_end, spare_at, spare_key = (np.zeros(k, np.int64) for _ in range(4))
    bounds = np.zeros(k + 1, np.int64)
    room = 1 << 13
    rows = tuple(
        np.empty(room, t) for t in (np.int64, np.int64, np.int64, np.int32, np.int32, np.int32)
    )
    orders = np.empty(room, np.int64), np.empty(room, np.int64)
    at = np.zeros(kernels.N_WALK, np.int64)
    at[kernels.PAGES] = max(1, round_bytes // walk.page_size)
    at[kernels.UNTIL] = I64_MAX
    code = kernels.MORE_PAGES
    columns = decoder.begin(chunk_rows)
    names: list[NameChange] = []
    while True:
        if walk.source is not None and code == kernels.MORE_PAGES:
            at[kernels.UNTIL] = walk.source.refill(walk.state, int(at[kernels.STUCK]))
            at[[kernels.BROUGHT_BYTES, kernels.BROUGHT_EVENTS]] = walk.progress()
        run: Any = kernels.read_chunk
        code = run(
            *walk.scanned(), seg_start, seg_end, spare_at, spare_key, bounds, rows, orders,
            *walk.noted(), at, *decoder.arguments(columns),
        )  # fmt: skip
        decoder.drain(names)
        walk.settle_errors()
        if code == kernels.MORE_ROOM:
            rows = tuple(np.concatenate([a, np.empty_like(a)]) for a in rows)
            orders = np.empty(len(rows[0]), np.int64), np.empty(len(rows[0]), np.int64)
        elif code in (kernels.CHUNK_FULL, kernels.DONE):
            if decoder.made:
                yield RingChunk(columns.take(slice(0, decoder.made)), names, decoder.losses)
                names = []
            if code == kernels.DONE:
                walk.give_back(everything=True)
                return
            walk.give_back()
            del columns
            left = int(at[kernels.ROWS] - at[kernels.AT])
            columns = decoder.begin(max(chunk_rows, left))
