"""What stands in the records of a perf.data instead of in its header.

In pipe mode (``perf record -o -``) the header has 16 bytes; attrs, names, features and the event
formats are records among the others (tools/perf/util/header.c, ``perf_event__process_attr()``
and its neighbours). simpleperf puts the event formats into a record, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from traceana.errors import FormatError, TruncatedError
from traceana.issues import IssueLog
from traceana.parsers import _perf_kernels as kernels
from traceana.parsers import _perf_stream_kernels as steps
from traceana.parsers.payload import as_bytes
from traceana.parsers.perf_header import ATTR_MIN, Attr, PerfHeader, magic_of, parse_attr
from traceana.parsers.perf_pages import STEP, Pages
from traceana.parsers.perf_stream import read_number

__all__ = ["PIPE_HEADER", "is_pipe", "parse_pipe", "tracing_record"]

PIPE_HEADER = 16
_UPDATE_NAME = 2


def is_pipe(buf: Any) -> bool:
    """Whether the content is a perf.data of pipe mode: its header says that it has 16 bytes."""
    magic = magic_of(buf)
    if magic is None or len(buf) < PIPE_HEADER:
        return False
    return bool(struct.unpack_from(magic[1] + "Q", buf, 8)[0] == PIPE_HEADER)


def _records(
    raw: Any, at: int, end: int, order: str, kinds: list[int], *, simpleperf: bool
) -> Iterator[tuple[int, int, int]]:
    """(kind, offset, size) of the records of these kinds, up to the first damage."""
    buf, pages = as_bytes(raw), Pages(raw)
    stops = np.zeros(256, np.uint8)
    stops[[*kinds, kernels.R_AUXTRACE]] = 1
    stops[255] = simpleperf
    found = np.zeros(4, np.int64)
    while True:
        why = steps.walk(
            buf, np.int64(at), np.int64(end), np.int64(STEP), np.int64(order == ">"),
            np.int64(simpleperf), stops, found,
        )  # fmt: skip
        at, kind, size = (int(x) for x in found[:3])
        pages.done(at)
        if why == kernels.ROUND:
            continue
        if why != kernels.SPECIAL:
            return
        behind = 0
        if kind == kernels.R_AUXTRACE and size >= 16:
            behind = read_number(buf, at + 8, 8, order)
        elif kind == kernels.R_TRACING_DATA and not simpleperf and size >= 12:
            behind = read_number(buf, at + 8, 4, order)
        yield kind, at, size
        at += size + behind


def parse_pipe(path: Path, buf: Any, issues: IssueLog) -> PerfHeader:
    """Attrs and features of a perf.data in pipe mode, from its records.

    The TRACING_DATA blob counts as the feature of this name. Records up to the first damage
    are seen; what that is, the reading tells.

    Raises
    ------
    TruncatedError, FormatError
        No attr is in it.
    """
    version, order = magic_of(buf) or (2, "<")
    data = as_bytes(buf)
    total = len(data)
    attrs: list[Attr] = []
    features: dict[int, tuple[int, int]] = {}
    names: list[tuple[int, str]] = []
    kinds = [
        kernels.R_ATTR, kernels.R_TRACING_DATA, kernels.R_EVENT_UPDATE, kernels.R_FEATURE,
    ]  # fmt: skip
    end = PIPE_HEADER
    for kind, at, size in _records(buf, PIPE_HEADER, total, order, kinds, simpleperf=False):
        end = at + size
        if kind == kernels.R_ATTR:
            _add_attr(attrs, data[at + 8 : at + size].tobytes(), order, at, issues)
        elif kind == kernels.R_TRACING_DATA and size >= 12:
            blob = (at + size, read_number(data, at + 8, 4, order))
            if blob[0] + blob[1] > total:
                blob = (blob[0], total - blob[0])
                issues.add("parse", "feature_cut", f"offset {at:#x}: the event formats are cut")
            features.setdefault(1, blob)
        elif kind == kernels.R_FEATURE and size >= 16:
            bit = read_number(data, at + 8, 8, order)
            if bit < 256 and bit != 1:
                features.setdefault(bit, (at + 16, size - 16))
        elif kind == kernels.R_EVENT_UPDATE and size > 24:
            if read_number(data, at + 8, 8, order) == _UPDATE_NAME:
                text = data[at + 24 : at + size].tobytes().split(b"\0", 1)[0]
                ident = read_number(data, at + 16, 8, order)
                names.append((ident, text.decode("utf-8", "backslashreplace")))
    if not attrs:
        if end == PIPE_HEADER and total < 1 << 16:
            raise TruncatedError(
                path, "perf.data of pipe mode, cut before it says which events it holds",
                offset=total,
            )  # fmt: skip
        raise FormatError(path, "perf.data of pipe mode that does not say which events it holds")
    by_id = {int(i): attr for attr in attrs for i in attr.ids}
    for ident, name in names:
        if ident in by_id and name:
            by_id[ident].name = name
    return PerfHeader(
        data_start=PIPE_HEADER,
        data_end=total,
        attrs=attrs,
        features=features,
        feature_bits=frozenset(features),
        unfinished=False,
        cut=False,
        order=order,
        version=version,
        pipe=True,
    )


def _add_attr(attrs: list[Attr], body: bytes, order: str, at: int, issues: IssueLog) -> None:
    """One HEADER_ATTR record; of an attr that is told again only the new ids are taken."""
    own = struct.unpack_from(order + "I", body, 4)[0] or ATTR_MIN if len(body) >= 8 else 0
    if not ATTR_MIN <= own <= len(body):
        issues.add("parse", "attr_unreadable", f"offset {at:#x}: attr of {own} bytes left out")
        return
    attr = parse_attr(body[:own], order)
    count = (len(body) - own) // 8
    attr.ids = np.frombuffer(body, order + "u8", count, own).astype(np.uint64)
    known = {int(i) for other in attrs for i in other.ids}
    new = [int(i) for i in attr.ids if int(i) not in known]
    for other in attrs if len(new) < count else []:
        if (other.type, other.config, other.sample_type) == (
            attr.type, attr.config, attr.sample_type,
        ):  # fmt: skip
            other.ids = np.concatenate([other.ids, np.array(new, np.uint64)])
            return
    attrs.append(attr)


def tracing_record(buf: Any, header: PerfHeader) -> bytes | None:
    """The event formats from a record of a simpleperf file: kind 66, or 32777, or split."""
    data = as_bytes(buf)
    pieces: list[bytes] = []
    for kind, at, size in _records(
        buf, header.data_start, header.data_end, header.order,
        [kernels.R_TRACING_DATA], simpleperf=True,
    ):  # fmt: skip
        record = data[at : at + size].tobytes()
        if kind == kernels.R_SPLIT:
            pieces.append(record[8:])
            continue
        if kind == kernels.R_SPLIT_END:
            record = b"".join([*pieces, record[8:]])
            pieces = []
            kind = int.from_bytes(record[:4], "little")
        if kind in (kernels.R_TRACING_DATA, kernels.R_SIMPLEPERF_TRACING) and len(record) >= 12:
            (length,) = struct.unpack_from(header.order + "I", record, 8)
            return record[12 : 12 + length]
    return None
