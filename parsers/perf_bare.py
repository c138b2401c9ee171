"""Switches from records that are no tracepoints with data.

Without ``sched_switch`` (or without its RAW data) a capture still says who left or took a CPU
and when: PERF_RECORD_SWITCH and SWITCH_CPU_WIDE (``perf record --switch-events``), and samples of
sched_switch without RAW (simpleperf ``--trace-offcpu``). They say nothing of the task's state but
whether it was preempted, and mostly only one of the two tasks. Their rows are described by
formats made here, whose fields lie in the records themselves.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from traceana.columns import NULL_STATE
from traceana.parsers import _perf_kernels as kernels
from traceana.parsers.formats import EventFormat
from traceana.parsers.perf_header import TYPE_TRACEPOINT, Attr
from traceana.schema import State

__all__ = ["CONTEXT_SWITCH", "BareSwitches"]

#: Flag bit of ``perf_event_attr``: SWITCH records are written.
CONTEXT_SWITCH = 1 << 26

_OUT, _IN, _WIDE_OUT = range(1, 4)


def _format(ident: int, fields: Iterable[tuple[str, int, int]]) -> EventFormat:
    lines = ["name: sched_switch", f"ID: {ident}", "format:"]
    lines += [
        f"\tfield:unsigned int {name};\toffset:{at};\tsize:{size};\tsigned:0;"
        for name, at, size in fields
    ]
    fmt = EventFormat.parse("\n".join([*lines, "", 'print fmt: ""', ""]).encode())
    assert fmt is not None
    return fmt


class BareSwitches:
    """Formats for switches that are told by records without RAW data.

    Parameters
    ----------
    attrs : list of Attr
    table : int64[n, N_ATTR]    of the AttrTable
    taken : ids of events that are in use
    samples : bool              make rows of samples of sched_switch without RAW data
    switch_records : bool       make rows of SWITCH records

    Attributes
    ----------
    formats : list of EventFormat
        Named sched_switch, with ids that no event of the file has.
    """

    def __init__(
        self,
        attrs: list[Attr],
        table: npt.NDArray[np.int64],
        taken: Iterable[int],
        *,
        samples: bool,
        switch_records: bool,
    ) -> None:
        self.formats: list[EventFormat] = []
        self._free = sorted(set(range(0xF000, 1 << 16)) - set(taken))
        self._known: dict[tuple[tuple[str, int, int], ...], int] = {}
        #: Event id per attr and use, -1: none.
        self._ids = np.full((len(attrs), 5), -1, np.int64)
        for index, (attr, line) in enumerate(zip(attrs, table, strict=True)):
            if (
                samples
                and attr.type == TYPE_TRACEPOINT
                and (attr.name or "").split(":")[:2] == ["sched", "sched_switch"]
                and not attr.sample_type & kernels.S_RAW
                and line[kernels.A_TID] >= 0
                and line[kernels.A_TIME] >= 0
            ):
                tid = int(line[kernels.A_TID]) + 4
                self._ids[index, 0] = self._id(("common_pid", tid, 4), ("prev_pid", tid, 4))
            if switch_records and attr.sample_id_all and attr.sample_type & kernels.S_TID:
                # TID stands first in the trailer, so at its start
                tid = 8 + 4
                state = ("prev_state", 4, 2)
                self._ids[index, _OUT] = self._id(
                    ("common_pid", tid, 4), ("prev_pid", tid, 4), state
                )
                self._ids[index, _IN] = self._id(
                    ("common_pid", tid, 4), state, ("next_pid", tid, 4)
                )
                self._ids[index, _WIDE_OUT] = self._id(
                    ("common_pid", tid + 8, 4), ("prev_pid", tid + 8, 4), state,
                    ("next_pid", 8 + 4, 4),
                )  # fmt: skip

    def _id(self, *fields: tuple[str, int, int]) -> int:
        if fields not in self._known:
            if not self._free:
                return -1
            self._known[fields] = self._free.pop()
            self.formats.append(_format(self._known[fields], fields))
        return self._known[fields]

    @property
    def samples(self) -> bool:
        """Whether samples of sched_switch without RAW data are among them."""
        return bool((self._ids[:, 0] >= 0).any())

    def rows(self, row_of_id: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """``int64[n, 5]``: the rows that :class:`Scan` takes as ``bare``.

        The "in" record of a switch that is told CPU wide is left out: the "out" has both tasks.
        """
        return np.where(self._ids >= 0, row_of_id[np.maximum(self._ids, 0)], -1).astype(np.int64)

    @staticmethod
    def states() -> npt.NDArray[np.uint16]:
        """``uint16[65537]``: misc of a SWITCH record to the state of the task that left.

        Preempted is R+. Otherwise it blocked, in a state that is not told. Of a record "in"
        nothing is known of it.
        """
        misc = np.arange((1 << 16) + 1)
        out = np.full(len(misc), int(State.OTHER), np.uint16)
        out[(misc & kernels.MISC_PREEMPT) != 0] = int(State.PREEMPTED)
        out[(misc & kernels.MISC_OUT) == 0] = NULL_STATE
        out[-1] = NULL_STATE
        return out
