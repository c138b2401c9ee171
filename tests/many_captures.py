"""A fleet for tests: many small captures made from the samples, some of them damaged."""

from __future__ import annotations

import json
import lzma
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"


def _bytes(name: str) -> bytes:
    data = (SAMPLES / name).read_bytes()
    return lzma.decompress(data) if name.endswith(".xz") else data


def make(folder: Path, n: int, *, seed: int = 1) -> list[Path]:
    """n captures as folder/host-H/kernel-K.FORM: whole, cut, garbled, and none at all."""
    rng = random.Random(seed)
    text = _bytes("pp3-plain.trace.txt.xz").splitlines(keepends=True)
    head = next(i for i, line in enumerate(text) if not line.startswith(b"#"))
    wrapped, hostile = _bytes("mix-wrapped.dat"), _bytes("hostile.dat")
    out = []
    for i in range(n):
        kind = ("text", "text", "whole", "cut", "text", "hostile", "garbled", "none")[i % 8]
        if kind == "text":
            stop = rng.randrange(head + 400, len(text))
            data, end = b"".join(text[:stop]), "txt"
        elif kind == "cut":
            # Within a line: the text is damaged. A trace.dat cut like that cannot be read at all.
            stop = rng.randrange(head + 400, len(text))
            data, end = b"".join(text[:stop]) + text[stop][:45], "txt"
            if i % 16 > 8:
                data, end = wrapped[: rng.randrange(len(wrapped) // 2, len(wrapped) - 5000)], "dat"
        elif kind == "garbled":
            changed = bytearray(wrapped)
            # In the events, not in the options at the end, without which nothing is read.
            for _ in range(100):
                changed[rng.randrange(len(changed) // 2, len(changed) - 20_000)] ^= 0x5A
            data, end = bytes(changed), "dat"
        elif kind == "none":
            data, end = rng.randbytes(rng.randrange(0, 3000)), "dat"
        else:
            data, end = (wrapped if kind == "whole" else hostile), "dat"
        path = folder / f"host-{i % 5}" / f"kernel-6.{i}.{end}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        out.append(path)
    return out


def content(dataset: Path) -> dict[str, Any]:
    """All rows of a dataset: partition -> table -> rows."""
    return {
        folder.name: {
            file.stem: pq.ParquetFile(file).read().to_pylist()
            for file in sorted(folder.glob("*.parquet"))
        }
        for folder in sorted(dataset.glob("capture=*"))
    }


def journal(dataset: Path) -> Iterator[dict[str, str]]:
    """Whole lines of the journal."""
    path = dataset / "_journal.ndjson"
    text = path.read_text() if path.exists() else ""
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def ends(dataset: Path) -> int:
    return sum(line["event"] == "end" for line in journal(dataset))


def begun_after_end(dataset: Path) -> list[str]:
    """Captures that were begun once more although they had been done."""
    done: set[str] = set()
    again = []
    for line in journal(dataset):
        if line["event"] == "begin" and line["capture"] in done:
            again.append(line["capture"])
        if line["event"] == "end":
            done.add(line["capture"])
    return again
