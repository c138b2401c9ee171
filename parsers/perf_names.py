"""The rare records of a perf.data: names of tasks, thread groups, and sums of losses."""

from __future__ import annotations

import struct

from traceana.columns import NameChange
from traceana.parsers import _perf_kernels as kernels
from traceana.parsers.perf_records import AttrTable, Scan
from traceana.schema import Evidence

__all__ = ["NameLog"]

_MISC_BPF_DROPPED = 1 << 15
_COMM_MAX = 15


class NameLog:
    """Names and thread groups from COMM and FORK records and from the TIDs of samples."""

    def __init__(self, attrs: AttrTable, scan: Scan) -> None:
        self._attrs = attrs
        self._scan = scan
        self._pending: list[NameChange] = []
        #: (cpu, count) of LOST_SAMPLES records that tell a sum.
        self.lost_samples: list[tuple[int, int]] = []

    def _trailer(self, record: bytes, least: int) -> tuple[int, int]:
        """(time, id) of a record's sample_id trailer; 0, 0 where it has none."""
        attrs = self._attrs
        back = attrs.id_back
        slot = -1
        ident = 0
        if back > 0 and len(record) >= least + back:
            (ident,) = struct.unpack_from("<Q", record, len(record) - back)
            slot = attrs.slot(ident)
        # records that perf itself made up have the id 0: the first attr is meant
        line = attrs.table[attrs.ids[slot, 1] if slot >= 0 else 0]
        at, size = int(line[kernels.T_TIME]), int(line[kernels.T_SIZE])
        if at < 0 or len(record) < least + size:
            return 0, ident
        (time,) = struct.unpack_from("<Q", record, len(record) - at)
        return (int(time) if time < kernels.TS_LIMIT else 0), ident

    def collect(self) -> None:
        """Take over what the scan has met since the last call."""
        for tid, tgid, ts in self._scan.tgids:
            self._pending.append(NameChange(tid, tgid, None, ts))
        self._scan.tgids.clear()
        for record in self._scan.misc:
            kind, misc, size = struct.unpack_from("<IHH", record)
            if kind == kernels.R_COMM and size >= 24:
                self._comm(record)
            elif kind == kernels.R_FORK and size >= 32:
                pid, _, tid, _, time = struct.unpack_from("<4IQ", record, 8)
                if 0 < tid < kernels.PID_LIMIT and 0 < pid < kernels.PID_LIMIT:
                    known = 0 < time < kernels.TS_LIMIT
                    self._pending.append(
                        NameChange(tid, pid, None, time if known else None, Evidence.FORK)
                    )
            elif kind == kernels.R_LOST_SAMPLES and size >= 16 and not misc & _MISC_BPF_DROPPED:
                self._lost_samples(record)
        self._scan.misc.clear()

    def _comm(self, record: bytes) -> None:
        pid, tid = struct.unpack_from("<II", record, 8)
        comm = record[16:].split(b"\0", 1)[0]
        if not 0 < tid < kernels.PID_LIMIT or not comm or comm == b"<...>":
            return
        # the text is padded so that the trailer stands at a multiple of 8
        ts, _ = self._trailer(record, 16 + (len(comm) + 8) // 8 * 8)
        tgid = pid if 0 < pid < kernels.PID_LIMIT else None
        self._pending.append(NameChange(tid, tgid, comm[:_COMM_MAX], ts or None, Evidence.HEADER))

    def _lost_samples(self, record: bytes) -> None:
        (count,) = struct.unpack_from("<Q", record, 8)
        _, ident = self._trailer(record, 16)
        if 0 < count < kernels.TS_LIMIT:
            self.lost_samples.append((self._scan.id_cpu(ident), count))

    def merged(self, names: list[NameChange], until: int | None) -> list[NameChange]:
        """These names and the collected ones up to a time, in its order."""
        ready, later = [], []
        for change in self._pending:
            if until is None or change.ts is None or change.ts <= until:
                ready.append(change)
            else:
                later.append(change)
        self._pending = later
        if not ready:
            return names
        return sorted(names + ready, key=lambda c: -1 if c.ts is None else c.ts)
