"""The folder of a dataset: partitions that are whole or not there, and what each was made from.

    DATASET/_dataset.json                  that it is one, and the layout's number
    DATASET/_journal.ndjson                a line for each capture begun (and why), and each ended
    DATASET/capture=ID/facts.parquet ...   one partition a capture (hive style)
    DATASET/capture=ID/_key.json           what it was made from: content, rules, options
    DATASET/.part-*                        being written; swept away by the next run

A partition is written under another name, brought to disk, and renamed. Names that begin with _ or
. are no data for readers of Parquet datasets.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from traceana._batch_tables import LAYOUT
from traceana.errors import FormatError, InputError, UsageError

__all__ = ["Dataset", "Key", "is_dataset", "part_folder", "write_part"]

_MARK = "_dataset.json"
_PREFIX = "capture="
_PART = ".part-"


@dataclass(frozen=True)
class Key:
    """What a partition was made from; equal keys, equal partitions.

    ``digest``: of the content, None where it could not be read. ``made_by``: versions and options.
    ``stamp``: see ``_batch_inputs.stamp``; no part of equality. ``passing``: it failed of something
    that may be otherwise next time (a killed worker, no memory), so it is tried again.
    """

    digest: str | None
    made_by: str
    labels: str
    stamp: str | None = None
    passing: bool = False
    #: As in its row of facts, so that a summary needs none of them.
    status: str = "ok"
    reason: str | None = None


def is_dataset(path: str | Path) -> bool:
    """Whether a folder is what ``traceana batch`` writes."""
    return (Path(path) / _MARK).is_file()


class Dataset:
    """A dataset that is being written.

    Parameters
    ----------
    path : folder; made if it is not there

    Raises
    ------
    UsageError
        Something else is there, or another batch is at work in it.
    InputError
        It cannot be written, or is of a later layout.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self._begin()
        except OSError as error:
            raise InputError(self.path, (error.strerror or str(error)).lower()) from error

    def _begin(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{self.path} exists and is no folder")
        if self.path.is_dir() and any(self.path.iterdir()) and not is_dataset(self.path):
            raise UsageError(f"{self.path} is a folder of something else; name a new one with -o")
        self.path.mkdir(parents=True, exist_ok=True)
        # Opened before anything is written: of two that begin at once, one goes on.
        self._lock: IO[str] = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise UsageError(f"{self.path}: another batch is at work in this dataset") from None
        if is_dataset(self.path):
            check_layout(self.path)
        else:
            _whole(self.path / _MARK, {"kind": "traceana dataset", "layout": LAYOUT})
        for left in self.path.glob(f"{_PART}*"):
            shutil.rmtree(left, ignore_errors=True)
        self._journal: IO[str] = (self.path / "_journal.ndjson").open("a", encoding="utf-8")

    def close(self) -> None:
        """Let others write."""
        self._journal.close()
        self._lock.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def note(self, capture: str, event: str, why: str) -> None:
        """A line of the journal."""
        self._journal.write(json.dumps({"capture": capture, "event": event, "why": why}) + "\n")
        self._journal.flush()

    def partition(self, capture: str) -> Path:
        return self.path / f"{_PREFIX}{capture}"

    def keys(self) -> dict[str, Key]:
        """What each partition was made from; one whose key is unreadable is as if not there."""
        out = {}
        for folder in self.path.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError, ValueError, TypeError):
                told = json.loads((folder / "_key.json").read_text())
                out[folder.name.removeprefix(_PREFIX)] = Key(**told)
        return out

    def commit(self, capture: str, part: Path, key: Key) -> None:
        """Give a written part its place; what was there is replaced.

        Raises
        ------
        InputError
            There is no such part, or it cannot be renamed.
        """
        try:
            _whole(part / "_key.json", asdict(key))
            self._place(part, self.partition(capture))
        except OSError as error:
            raise InputError(part, (error.strerror or str(error)).lower()) from error

    def _place(self, part: Path, target: Path) -> None:
        if target.exists():
            # A folder cannot replace another one. Killed between the two renames, the capture is
            # without a partition, and the next run makes it.
            old = Path(tempfile.mkdtemp(prefix=_PART, dir=self.path)) / "old"
            target.rename(old)
            part.rename(target)
            shutil.rmtree(old.parent, ignore_errors=True)
        else:
            part.rename(target)
        _sync(self.path)

    def rekey(self, capture: str, key: Key) -> None:
        """Keep a partition, and what it is now known to be made from."""
        _whole(self.partition(capture) / "_key.json", asdict(key))

    def relabel(self, capture: str, key: Key) -> None:
        """Keep a partition's figures under other labels."""
        part = part_folder(self.path)
        shutil.copytree(self.partition(capture), part, dirs_exist_ok=True)
        facts = pq.ParquetFile(part / "facts.parquet").read()
        labels = pa.array([key.labels] * facts.num_rows, pa.string())
        at = facts.schema.get_field_index("labels")
        _put(part, "facts", facts.set_column(at, "labels", labels))
        self.commit(capture, part, key)


def check_layout(path: Path) -> None:
    """Refuse a folder that is no dataset, or of a layout that is not known here.

    Raises
    ------
    FormatError
        Says which.
    """
    try:
        told = json.loads((path / _MARK).read_text())
        layout = int(told["layout"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            path, "not a dataset of traceana", hint="make one: traceana batch CAPTURES -o DATASET"
        ) from error
    if layout != LAYOUT:
        raise FormatError(path, f"dataset of layout {layout}, this traceana reads {LAYOUT}")


def part_folder(dataset: Path) -> Path:
    """A new folder in which a partition may be written, as public as its surroundings allow."""
    part = Path(tempfile.mkdtemp(prefix=_PART, dir=dataset))
    mask = os.umask(0)
    os.umask(mask)
    part.chmod(0o777 & ~mask)
    return part


def write_part(part: Path, tables: Mapping[str, pa.Table]) -> None:
    """Write the tables of a partition, and bring them to disk."""
    for name, table in tables.items():
        _put(part, name, table)
    _sync(part)


def _put(part: Path, name: str, table: pa.Table) -> None:
    path = part / f"{name}.parquet"
    pq.write_table(table, path, compression="zstd")
    _sync(path)


def _whole(path: Path, document: Mapping[str, Any]) -> None:
    """A JSON file that is there as a whole or not at all."""
    work = path.with_name(f".{path.name}.part")
    with work.open("w", encoding="utf-8") as out:
        out.write(json.dumps(document, indent=1) + "\n")
        out.flush()
        os.fsync(out.fileno())
    work.replace(path)


def _sync(path: Path) -> None:
    """Bring a file or folder to disk, where the file system can."""
    file = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(file)
    finally:
        os.close(file)


@contextlib.contextmanager
def gone_unless_kept(part: Path) -> Iterator[Path]:
    """Remove a part that an error left."""
    try:
        yield part
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
