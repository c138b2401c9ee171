"""Finished rows of the timeline as blocks of columns.

The state machine gives back rows in the order in which they became final; a row's ``id`` is its
place in the table. :class:`Blocks` puts them there: a block holds the rows of a run of ids, each
field as a contiguous column, so that Arrow takes it without a copy. Nothing here knows what the
fields mean.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

from traceana._block_kernels import scatter

__all__ = ["BLOCK_ROWS", "FIRST_ROWS", "Block", "Blocks", "Columns"]

Array = npt.NDArray[Any]

#: Rows of the first block, and of the largest: each has twice the rows of the one before. Of the
#: widest rows these take 3 and 45 MB.
FIRST_ROWS, BLOCK_ROWS = 1 << 14, 1 << 18


class Columns:
    """Columns of equal length, by name; ``columns[mask]`` selects rows."""

    def __init__(self, fields: dict[str, Array]) -> None:
        self._fields = fields

    def __len__(self) -> int:
        return len(self._fields["id"])

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._fields[key]
        return Columns({name: column[key] for name, column in self._fields.items()})

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def names(self) -> tuple[str, ...]:
        return tuple(self._fields)

    def rows(self, dtype: np.dtype[Any]) -> Array:
        """The same as a structured array."""
        out = np.zeros(len(self), dtype)
        for name in dtype.names or ():
            if name in self._fields:
                out[name] = self._fields[name]
        return out

    @staticmethod
    def joined(parts: list[Columns], empty: Columns) -> Columns:
        """All rows of the parts."""
        if len(parts) < 2:
            return parts[0] if parts else empty
        return Columns({n: np.concatenate([p[n] for p in parts]) for n in parts[0].names()})


class Block:
    """The rows with ids from ``begin`` on, ``rows`` of them at most."""

    def __init__(self, layout: _Layout, begin: int, rows: int) -> None:
        self.begin, self.rows = begin, rows
        self.filled = 0
        self._layout = layout
        # One place more than there are rows, for those of other blocks (see scatter). All in one
        # buffer: the system clears a large one several times faster than many small ones.
        sizes = [n * (rows + 1) * t.itemsize for n, t in zip(layout.counts, _WORDS, strict=True)]
        ends = np.cumsum(sizes).tolist()
        buffer = np.empty(ends[-1], np.uint8)
        self._mats: list[Array] = [
            np.frombuffer(buffer, t, n * (rows + 1), end - size).reshape(n, rows + 1)
            for end, size, n, t in zip(ends, sizes, layout.counts, _WORDS, strict=True)
        ]
        if rows:
            # Not there yet.
            self._mats[0][0].fill(-1)

    def put(self, words: list[Array], n: int) -> int:
        """Take those of ``n`` finished rows that belong here; returns how many did."""
        layout = self._layout
        run: Any = scatter
        done = int(run(*words, n, self.begin, *self._mats, *layout.starts[1:]))
        self.filled += done
        return done

    def columns(self, lo: int, hi: int) -> Columns:
        """Rows ``lo`` to ``hi`` (excluded) of the block, views without a copy."""
        out: dict[str, Array] = {}
        for mat, names in zip(self._mats, self._layout.names, strict=True):
            for row, (name, dtype) in zip(mat, names, strict=True):
                out[name] = row[lo:hi].view(dtype)
        return Columns(out)


_WORDS: tuple[np.dtype[Any], ...] = tuple(np.dtype(f"{k}") for k in ("i8", "i4", "u2", "u1"))


class _Layout:
    """Where a row type's fields lie; they have to stand by falling size, ``id`` first."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.names: list[list[tuple[str, np.dtype[Any]]]] = [[], [], [], []]
        self.starts = [0, 0, 0, 0]
        sizes = [w.itemsize for w in _WORDS]
        assert dtype.names is not None and dtype.names[0] == "id" and dtype.itemsize % 8 == 0
        for name in dtype.names:
            if name == "fill":
                continue
            field, offset = dtype.fields[name][:2]  # type: ignore[index]
            which = sizes.index(field.itemsize)
            if not self.names[which]:
                self.starts[which] = offset // field.itemsize
            assert offset == (self.starts[which] + len(self.names[which])) * field.itemsize
            self.names[which].append((name, field))
        self.counts = [len(names) for names in self.names]

    def words(self, rows: Array) -> list[Array]:
        """Rows seen as words of each size: [n, words]."""
        n = len(rows)
        return [rows.view(w).reshape(n, self.dtype.itemsize // w.itemsize) for w in _WORDS]


class Blocks:
    """The blocks of one table.

    Parameters
    ----------
    dtype : a row type of ``_timeline_state``
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._layout = _Layout(dtype)
        self.dtype = dtype
        #: First id of each block, and of the one after the last.
        self._begins = [0, FIRST_ROWS]
        self.open: dict[int, Block] = {}
        #: Rows below this id were handed over by :meth:`take`, but for those not final then.
        self.taken = 0
        self._late: list[Array] = []

    def put(self, rows: Array) -> None:
        """Put finished rows in their places; ids are ≥ 0."""
        if self.taken:
            late = rows["id"] < self.taken
            if late.any():
                self._late.append(rows[late])
                rows = rows[~late]
        n = len(rows)
        if not n:
            return
        words = self._layout.words(rows)
        for number in range(self._block_of(rows["id"].min()), self._block_of(rows["id"].max()) + 1):
            block = self.open.get(number)
            if block is None:
                begin, end = self._begins[number : number + 2]
                block = self.open[number] = Block(self._layout, begin, end - begin)
            block.put(words, n)

    def _block_of(self, row: int) -> int:
        """Number of the block that an id belongs to."""
        begins = self._begins
        while row >= begins[-1]:
            begins.append(begins[-1] + min(2 * (begins[-1] - begins[-2]), BLOCK_ROWS))
        return bisect_right(begins, int(row)) - 1

    def take(self, upto: int) -> list[Columns]:
        """Hand over all rows with ids below ``upto`` that are final, in order, and forget them.

        Those that are not come with a later call, first. An empty list has no meaning of its own:
        there is always at least one set of columns.
        """
        out: list[Columns] = []
        if self._late:
            late = np.concatenate(self._late)
            self._late.clear()
            late = late[np.argsort(late["id"], kind="stable")]
            names = [n for n in self.dtype.names or () if n != "fill"]
            out.append(Columns({n: np.ascontiguousarray(late[n]) for n in names}))
        for number in sorted(self.open):
            block = self.open[number]
            if block.begin >= upto:
                break
            lo, hi = max(self.taken - block.begin, 0), min(upto - block.begin, block.rows)
            part = block.columns(lo, hi)
            there = part["id"] >= 0
            out.append(part if there.all() else part[there])
            if hi == block.rows:
                del self.open[number]
        self.taken = max(self.taken, upto)
        return out or [self.empty()]

    def empty(self) -> Columns:
        """No rows."""
        return Block(self._layout, 0, 0).columns(0, 0)
