"""A capture in the forms that other tools read: tracefs text, Perfetto, plain tables.

Each writer takes a capture and an open file, goes through the events once more in batches, and
says what it had to leave out. Names and text of a capture are written escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from traceana import output
from traceana._export_text import Names, header, lines

if TYPE_CHECKING:
    import pyarrow as pa

    from traceana.capture import Capture

__all__ = ["FORMS", "TABLES", "names_of", "to_csv", "to_ftrace", "to_perfetto"]

#: What `to_*` there is.
FORMS = ("perfetto", "ftrace", "csv", "parquet", "arrow")
#: Tables that can be written alone.
TABLES = (
    "events", "names", "tasks", "slices", "wakeups", "idle_gaps", "topology", "issues", "meta",
)  # fmt: skip


def names_of(cap: Capture) -> Names:
    """Who had which name when; the capture is read for it."""
    table = cap.names()
    rows = zip(
        table["pid"].to_pylist(),
        table["comm"].to_pylist(),
        table["since_ts"].to_pylist(),
        strict=True,
    )
    return Names(((p, c, t) for p, c, t in rows if c is not None), output.escape)


def cpus_of(cap: Capture) -> int:
    """How many CPUs the capture speaks of."""
    return max(int(cap.topology.num_rows), 1)


def to_ftrace(cap: Capture, file: IO[str]) -> dict[str, int]:
    """Write the events as the kernel's text (the tracefs file ``trace``).

    Returns
    -------
    dict
        Why events were left out -> how many; empty: none.
    """
    names = names_of(cap)
    left_out: dict[str, int] = {}
    file.write(header(sum(cap.counts.values()), cpus_of(cap)))
    for events in cap.event_columns():
        file.writelines(lines(events, names, left_out))
    return left_out


def to_perfetto(cap: Capture, file: IO[bytes], rules: Sequence[str] = ()) -> dict[str, int]:
    """Write a Perfetto trace: the events, counters, double bookings, and what rules would move.

    Parameters
    ----------
    rules : names of rules; each becomes a track with the wakeups that it would have placed
        elsewhere (an open-loop estimate)

    Returns
    -------
    dict
        As of :func:`to_ftrace`.
    """
    from traceana._export_perfetto import write

    return write(cap, names_of(cap), file, rules)


def table_of(cap: Capture, name: str) -> pa.Table:
    """One table of the capture by its name (``TABLES``)."""
    if name == "events":
        return cap.events()
    if name in ("slices", "wakeups", "idle_gaps"):
        return getattr(cap.timeline(), name)
    if name == "tasks":
        return cap.tasks()
    if name == "topology":
        return cap.topology
    whole = {"names": cap.names, "issues": cap.issues_table, "meta": cap.meta_table}
    cap.names()
    return whole[name]()


def to_csv(table: pa.Table, file: IO[bytes]) -> None:
    """Write a table as CSV with a line of column names; null is an empty cell.

    Text is escaped as on a terminal, and a cell that a spreadsheet would take for a formula
    begins with an apostrophe.
    """
    import pyarrow as pa
    import pyarrow.csv as pc

    columns: list[Any] = []
    for field in table.schema:
        column = table[field.name]
        if pa.types.is_string(field.type):
            column = pa.array([_cell(text) for text in column.to_pylist()], pa.string())
        columns.append(column)
    pc.write_csv(pa.table(columns, names=table.schema.names), file)


def _cell(text: str | None) -> str | None:
    if text is None:
        return None
    clean = output.escape(text)
    return "'" + clean if clean[:1] in ("=", "+", "-", "@") else clean
