"""Small inputs that unpack to very much, one wrapper or several deep."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import zipfile
import zlib
from functools import cache

import perf_data_writer as perf
import perfetto_writer as pft
import trace_dat_writer as dat

from fuzz import make_dat, make_perf, stores
from fuzz.target import Files

__all__ = [
    "bzip2_bomb", "gzip_bomb", "gzip_nested", "parquet_bomb", "perf_bomb", "perfetto_bomb",
    "systrace_bomb", "trace_dat_bomb", "xz_bomb", "zip_bomb", "zip_nested", "zstd_bomb",
]  # fmt: skip

_PIECE = 64 << 20
#: So often the piece: more than 2 GiB.
_TIMES = 33


@cache
def _zeros() -> bytes:
    return bytes(_PIECE)


def gzip_bomb() -> bytes:
    return gzip.compress(_zeros(), 9, mtime=0) * _TIMES


def xz_bomb() -> bytes:
    return lzma.compress(_zeros(), preset=1) * _TIMES


def bzip2_bomb() -> bytes:
    return bz2.compress(_zeros()) * _TIMES


def zstd_bomb() -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=1).compress(_zeros()) * _TIMES


def _deflated() -> bytes:
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = engine.compress(_zeros()) + engine.flush(zlib.Z_FULL_FLUSH)
    return piece * _TIMES + b"\x03\0"


def zip_bomb() -> bytes:
    """One member whose sizes are told rightly."""
    body, size = _deflated(), _PIECE * _TIMES
    name = b"trace.dat"
    head = struct.pack("<HHHHHIII", 20, 0, 8, 0, 0, 0, len(body), size)
    local = b"PK\x03\x04" + head + struct.pack("<HH", len(name), 0) + name + body
    central = (
        b"PK\x01\x02"
        + struct.pack("<H", 20)
        + head
        + struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, 0)
        + name
    )
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
    return local + central + end


def gzip_nested() -> bytes:
    """Gzip in gzip in gzip: each is small beside the next."""
    return gzip.compress(gzip.compress(gzip_bomb(), mtime=0), mtime=0)


def zip_nested() -> bytes:
    """Archives of archives of archives."""
    data = zip_bomb()
    for level in range(3):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for copy in range(4):
                entry = zipfile.ZipInfo(f"{level}-{copy}.zip")
                archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
        data = out.getvalue()
    return data


def trace_dat_bomb(way: str = "zstd") -> bytes:
    """A chunk that tells a size of some pages and unpacks to 64 MiB; a CPU of 300 of them."""
    kernel = make_dat.kernel_of(events=("sched_switch",))
    page = dat.Page(kernel, 5).event(bytes(64), 1).bytes()
    capture = dat.Capture(kernel, {0: page})
    whole = bytearray(dat.v7(capture, compression=way))
    small, packed = dat.compress(way, page), dat.compress(way, _zeros())
    old = struct.pack("<III", 1, len(small), len(page)) + small
    at = whole.rfind(old)
    assert at > 0
    chunk = struct.pack("<II", len(packed), _PIECE) + packed
    body = struct.pack("<I", 300) + chunk * 300
    row = struct.pack("<IQQ", 0, at, len(old) - 4)  # without the number of chunks
    where = whole.rfind(row)
    assert where > 0
    whole[where : where + 20] = struct.pack("<IQQ", 0, len(whole), len(body) - 4)
    return bytes(whole) + body


def perf_bomb() -> bytes:
    """COMPRESSED records that unpack to 2 GiB."""
    import zstandard

    engine = zstandard.ZstdCompressor(level=1).compressobj()
    packed = b""
    for _ in range(_TIMES):
        packed += engine.compress(_zeros()) + engine.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    pieces = [
        perf.record(perf.R_COMPRESSED, packed[i : i + 60000]) for i in range(0, len(packed), 60000)
    ]
    return make_perf.with_records(pieces)


def perfetto_bomb() -> bytes:
    """Packets that unpack to 64 MiB each, and packets of packets."""
    inner = pft.put(
        1, pft.put(50, zlib.compress(pft.put(1, pft.put(50, zlib.compress(_zeros()[: 1 << 24])))))
    )
    one = pft.put(1, pft.put(50, zlib.compress(_zeros())))
    return pft.system("6.1.0") + inner * 50 + one * 10 + pft.compressed(_zeros(), zstd=True) * 10


def systrace_bomb() -> bytes:
    return b"TRACE:\n" + b"\x78\x9c" + _deflated()


def parquet_bomb() -> Files:
    """A store whose table of names has 128 M rows, all the same, in some KB."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from traceana import schema

    rows = 1 << 20
    cells = {"pid": 7, "tgid": 7, "comm": "a", "since_ts": 5, "evidence": 0}
    spec = schema.NAMES.schema
    batch = pa.record_batch(
        [pa.repeat(pa.scalar(cells[f.name], f.type), rows) for f in spec], schema=spec
    )
    out = io.BytesIO()
    with pq.ParquetWriter(out, spec, compression="zstd") as writer:
        for _ in range(128):
            writer.write_batch(batch)
    return stores.wholes()[0] | {"names.parquet": out.getvalue()}
