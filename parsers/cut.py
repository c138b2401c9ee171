"""A reader of which the input was cut before the reader got it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traceana.parsers.reader import Reader

__all__ = ["cut_reader"]


class _Cut:
    """The reader, but damaged, and with an issue that says why."""

    def __init__(self, reader: Reader, code: str, text: str) -> None:
        self._reader = reader
        self._issue = (code, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    @property
    def damaged(self) -> bool:
        return True

    def chunks(self) -> Iterator[Any]:
        yield from self._reader.chunks()
        self._reader.issues.add("parse", *self._issue)


def cut_reader(reader: Reader, text: str, code: str = "data_cut") -> Reader:
    """The reader, for which ``damaged`` holds; ``text`` becomes an issue at its end."""
    return _Cut(reader, code, text)  # type: ignore[return-value]
