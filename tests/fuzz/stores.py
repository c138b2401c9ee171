"""Stores of traceana: damaged files, and whole ones with values that no capture gives."""

from __future__ import annotations

import io
import json
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from fuzz import make_dat
from fuzz.mutate import ABSURD, NAMES, Spice
from fuzz.target import Files

__all__ = ["inside", "spice", "wholes"]


@cache
def wholes() -> tuple[Files, ...]:
    """Stores that traceana itself writes."""
    from traceana import capture, store

    out = []
    with tempfile.TemporaryDirectory() as folder:
        for number in (0, 1, 3):
            source = Path(folder) / "trace.dat"
            source.write_bytes(make_dat.wholes("v6")[number][""])
            path = Path(folder) / f"{number}.traceana"
            tables = ("events", "names") if number == 1 else None
            store.write(capture.open(source), path, tables=tables)
            out.append({p.name: p.read_bytes() for p in sorted(path.iterdir())})
    return tuple(out)


@cache
def spice() -> Spice:
    words = (
        b"PAR1", b'"schema_version": 99', b"null", b"{}", b"[]", b"-1", b"1e400", b"NaN",
        b'"a": {"a"', b"\\u0000", b"9" * 30, b"\x15\x04\x15\xff\xff\xff\xff\x0f",
    )  # fmt: skip
    return Spice(
        words, (b"alpha", b"swapper/1", b"events"), [d for f in wholes() for d in f.values()]
    )


def inside(rng: random.Random) -> Files:
    """Stores whose Parquet is whole, and its values, types or columns are not; or meta.json."""
    files = dict(rng.choice(wholes()))
    if rng.random() < 0.25:
        document = json.loads(files["meta.json"])
        _spoil_json(document, rng)
        files["meta.json"] = json.dumps(document).encode()
        return files
    tables = [
        name
        for name in ("events", "events", "names", "topology", "issues")
        if f"{name}.parquet" in files
    ]
    name = f"{rng.choice(tables)}.parquet"
    files[name] = _spoilt_table(files[name], rng)
    return files


def _spoil_json(value: Any, rng: random.Random) -> None:
    """Another value somewhere in the document."""
    odd = [
        None,
        True,
        -1,
        1 << 70,
        1e300,
        float("nan"),
        "x",
        "\x1b[31m\n",
        [],
        {},
        [1],
        {"a": "b"},
        *NAMES[:3],
    ]
    odd = [v.decode("latin-1") if isinstance(v, bytes) else v for v in odd]
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.8:
            value = value[key]
            continue
        if rng.random() < 0.2:
            del value[key]
        elif rng.random() < 0.1 and isinstance(value, dict):
            value["\x1b[1m"] = rng.choice(odd)
        else:
            value[key] = rng.choice(odd)
        return


def _spoilt_table(data: bytes, rng: random.Random) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(table.num_columns)
        column, spec = table.column(at), table.schema.field(at)
        how = rng.randrange(10)
        if how == 0:
            table = table.remove_column(at)
            if not table.num_columns:
                break
        elif how == 1:
            kind = rng.choice((pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.uint8()))
            table = table.set_column(at, spec.name, pa.array([None] * table.num_rows, kind))
        elif how == 2 and table.num_rows:
            table = table.slice(rng.randrange(table.num_rows))
        elif how == 3:
            table = pa.concat_tables([table] * rng.choice((2, 20)))
        else:
            values = column.to_pylist()
            for _ in range(rng.choice((1, 3, 30))):
                if values:
                    values[rng.randrange(len(values))] = _odd_value(spec.type, rng)
            table = table.set_column(at, spec.name if rng.random() < 0.97 else "x",
                                     pa.array(values, spec.type))  # fmt: skip
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _odd_value(kind: Any, rng: random.Random) -> Any:
    import pyarrow as pa

    if rng.random() < 0.2:
        return None
    if pa.types.is_integer(kind):
        bits = kind.bit_width
        value = rng.choice(ABSURD) % (1 << bits)
        signed = pa.types.is_signed_integer(kind)
        return value - (1 << bits) if signed and value >> (bits - 1) else value
    if pa.types.is_string(kind):
        return rng.choice(NAMES).decode("latin-1")
    return None
