"""Columns that grow part by part and end up in the order of their ids.

Each value is written once where it stays, or nearly: touching fresh memory costs more than all that
is done to find bookings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Growing"]

Array = npt.NDArray[Any]


class Growing:
    """Columns of equal length.

    Parameters
    ----------
    key : the column that they are in the order of
    room : how many rows there will be at most, if known; more are taken, too
    """

    def __init__(self, key: str, room: int = 0) -> None:
        self._key, self._room = key, room
        self._columns: dict[str, Array] = {}
        self._n = 0
        self._before = 0

    def append(self, part: Mapping[str, Array]) -> None:
        """Take rows; those that belong among the ones of the last part are put there."""
        n, begin = len(part[self._key]), self._n
        if not self._columns:
            self._columns = {c: np.empty(max(self._room, n), a.dtype) for c, a in part.items()}
        for name, values in part.items():
            column = self._columns[name]
            if begin + n > len(column):
                grown = np.empty(max(2 * len(column), begin + n), column.dtype)
                grown[:begin] = column[:begin]
                column = self._columns[name] = grown
            column[begin : begin + n] = values
        self._n += n
        if n and begin:
            last = self._columns[self._key][self._before : begin]
            lo = self._before + int(np.searchsorted(last, part[self._key].min()))
            if lo < begin:
                self._sort(lo)
        self._before = begin

    def _sort(self, lo: int) -> None:
        order = np.argsort(self._columns[self._key][lo : self._n], kind="stable")
        for column in self._columns.values():
            column[lo : self._n] = column[lo : self._n][order]

    def finish(self) -> dict[str, Array]:
        """All columns, in order."""
        key = self._columns[self._key][: self._n]
        if (key[1:] < key[:-1]).any():
            self._sort(0)
        return {name: column[: self._n] for name, column in self._columns.items()}
