"""The log of what was lost, repaired and assumed: every stage adds to it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from traceana import schema

__all__ = ["IssueLog"]

#: The table's counts are int64; a damaged file may tell of more lost events than that.
_MAX = (1 << 63) - 1


def _harmless(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class IssueLog:
    """Collects rows of the ``issues`` table; a code repeated on one CPU is counted.

    A row keeps the time and text of its first occurrence.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, int | None], list[object]] = {}

    def add(
        self,
        stage: str,
        code: str,
        text: str,
        *,
        ts: int | None = None,
        cpu: int | None = None,
        count: int = 1,
    ) -> None:
        """Book an occurrence (or ``count`` of them).

        What ``text`` quotes of a file stands in it with controls and ends of lines as escapes.
        """
        row = self._rows.get((stage, code, cpu))
        if row is None:
            row = [ts, cpu, stage, code, 0, _harmless(text)]
            self._rows[stage, code, cpu] = row
        row[4] = min(int(row[4]) + count, _MAX)  # type: ignore[call-overload]

    def __bool__(self) -> bool:
        return bool(self._rows)

    def counts(self) -> dict[str, int]:
        """How often each code occurred, over all CPUs and stages."""
        out: dict[str, int] = {}
        for (_, code, _), row in self._rows.items():
            out[code] = out.get(code, 0) + int(row[4])  # type: ignore[call-overload]
        return out

    def texts(self) -> list[str]:
        """One line per row, for stderr."""
        return [str(row[5]) for row in self._rows.values()]

    def extend(self, other: IssueLog) -> None:
        """Take over the rows of another log."""
        for (stage, code, cpu), row in other._rows.items():
            self.add(stage, code, str(row[5]), ts=row[0], cpu=cpu, count=int(row[4]))  # type: ignore[call-overload,arg-type]

    def mapped(self, change: Callable[[str], str]) -> IssueLog:
        """The same rows with other texts."""
        out = IssueLog()
        for key, row in self._rows.items():
            out._rows[key] = [*row[:5], _harmless(change(str(row[5])))]
        return out

    def table(self) -> pa.Table:
        """The rows as the ``issues`` table."""
        rows = list(self._rows.values())
        columns = [list(c) for c in zip(*rows, strict=True)] if rows else [[] for _ in range(6)]
        spec = schema.ISSUES.schema
        return pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, spec, strict=True)], schema=spec
        )
