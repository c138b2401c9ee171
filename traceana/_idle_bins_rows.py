"""A timeline's rows as the arrays that the sweep of ``idle_bins`` goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from traceana import _idle_bins_state as s
from traceana import schema
from traceana._idle_bins_kernels import links, open_until
from traceana.idle_time import gap_bounds
from traceana.parts import Held

if TYPE_CHECKING:
    from traceana.timeline import Timeline

__all__ = ["Rows", "rows_of", "victims_of"]

Array = npt.NDArray[Any]

_WAKES = (
    "waking_ts", "wakeup_ts", "run_ts", "wakee", "waker", "placed_cpu", "ran_cpu", "kind",
    "context", "visible_lo", "quality",
)  # fmt: skip

#: What numbers the rows of a table.
_NUMBERS = {"wakeups": "wakeup", "slices": "slice", "idle_gaps": "gap"}


def frozen(array: Array) -> Array:
    """The array, contiguous and read-only, as Arrow's memory is: kernels are compiled once."""
    out = np.ascontiguousarray(array)
    if out.flags.writeable:
        out = out.view()
        out.flags.writeable = False
    return out


def columns(timeline: Timeline, name: str, names: tuple[str, ...]) -> dict[str, Array]:
    """Columns of a long table: NULL for times, -1 for others where there is nothing.

    In the order of the rows' numbers; on disk a row that lasted long stands where it ended.
    """
    number = _NUMBERS[name]
    asked = names if isinstance(timeline.rows, Held) else (*names, number)
    parts: dict[str, list[Array]] = {n: [] for n in asked}
    for table in timeline.rows.chunks(name, asked):
        for n in asked:
            column = table.column(n)
            if column.null_count:
                null = s.NULL if pa.types.is_int64(column.type) else -1
                column = pc.fill_null(column, pa.scalar(null, column.type))
            parts[n].append(np.asarray(column.to_numpy()))
    out = {n: p[0] if len(p) == 1 else np.concatenate(p) for n, p in parts.items()}
    if number in out and number not in names:
        numbers = out.pop(number)
        if (numbers[1:] < numbers[:-1]).any():
            order = np.argsort(numbers, kind="stable")
            out = {n: a[order] for n, a in out.items()}
    return out


class Rows:
    """Arrays for the kernel, each group in the order in which it takes it.

    ``wakes``, ``slices``, ``gaps``, ``moves``: its arguments of these groups; ``head``
    int32[tasks]: the first wakeup of each task; ``pinned`` bool[tasks]: bound to one CPU by name.
    """

    wakes: tuple[Array, ...]
    slices: tuple[Array, ...]
    gaps: tuple[Array, ...]
    moves: tuple[Array, ...]
    head: Array
    pinned: Array


def rows_of(timeline: Timeline) -> Rows:
    """All rows of a timeline."""
    out = Rows()
    n_tasks, n_cpus = timeline.tasks.num_rows, timeline.cpus.num_rows
    w = columns(timeline, "wakeups", _WAKES)
    key = np.where(w["waking_ts"] != s.NULL, w["waking_ts"], w["wakeup_ts"])
    key = np.where(key != s.NULL, key, w["run_ts"])
    cpu = np.where(w["placed_cpu"] >= 0, w["placed_cpu"], w["ran_cpu"]).astype(np.int32)
    # Who neither ran nor still waits at the end was lost sight of, from when on is not known.
    stays = w["run_ts"] >= w["wakeup_ts"]
    stays |= (w["run_ts"] == s.NULL) & ((w["quality"] & schema.Quality.CENSORED_END) != 0)
    stays &= w["wakeup_ts"] != s.NULL
    following = np.empty(len(key), np.int32)
    out.head = np.full(n_tasks, -1, np.int32)
    links(frozen(w["wakee"]), frozen(w["kind"]), following, out.head)
    out.pinned = np.zeros(n_tasks, bool)
    out.pinned[w["wakee"][w["kind"] == schema.WakeKind.PINNED]] = True
    out.wakes = (
        *map(frozen, (key, w["visible_lo"], w["wakeup_ts"], w["wakee"], w["waker"], cpu)),
        *map(frozen, (w["kind"], w["context"], stays.astype(np.uint8), w["run_ts"], following)),
    )
    sl = columns(timeline, "slices", ("task", "cpu", "start", "end", "end_reason"))
    s_key = np.where(sl["start"] != s.NULL, sl["start"], sl["end"])
    known = s_key != s.NULL
    out.slices = tuple(
        frozen(a if known.all() else a[known])
        for a in (s_key, sl["task"], sl["cpu"], sl["end_reason"])
    )
    out.gaps = _gaps(timeline, n_cpus, w, cpu)
    moves = timeline.raw["moves"]
    out.moves = tuple(frozen(np.array(moves[n])) for n in ("ts", "task", "dst"))
    return out


def _gaps(timeline: Timeline, n_cpus: int, w: dict[str, Array], w_cpu: Array) -> tuple[Array, ...]:
    cpu, start, end = gap_bounds(timeline)
    told = timeline.cpus.column("idle_ns").to_numpy()
    gaps = timeline.idle_gaps  # rows as they stand there, as gap_bounds() tells them
    unended = pc.is_null(gaps.column("end")).to_numpy()
    opened = pc.is_null(gaps.column("start")).to_numpy() | unended
    cut = unended & (end <= start)
    total = np.zeros(n_cpus, np.int64)
    np.add.at(total, cpu, end - start)
    for c in np.flatnonzero(total > told):
        # An end that a loss left open counts for one and not for the other.
        for g in np.flatnonzero(opened & (cpu == c)):
            if total[c] > told[c]:
                total[c] -= end[g] - start[g]
                end[g] = start[g]
    order = np.argsort(start, kind="stable")
    g_cpu = frozen(cpu[order].astype(np.int32))
    g_start, g_end = frozen(start[order]), frozen(end[order])
    free = np.empty(len(order), np.int64)
    open_until(
        frozen(w["waking_ts"]), frozen(w["visible_lo"]), frozen(w_cpu), g_cpu, g_start, g_end,
        np.full(n_cpus, -1, np.int32), np.full(n_cpus, -1, np.int32),
        np.empty(len(order), np.int32), free,
    )  # fmt: skip
    cut8 = frozen(cut[order].astype(np.uint8))
    return g_cpu, g_start, g_end, frozen(free), cut8


def victims_of(collisions: pa.Table, run: Array) -> tuple[tuple[Array, ...], Array, Array]:
    """The begins of extra delays, and who they are of.

    Parameters
    ----------
    collisions : ``schema.COLLISIONS``
    run : int64[wakeups], when each wakee ran

    Returns
    -------
    ((ts, row, phase, victim) in the order of time, the wakeup of each victim, the row of the
    collisions that a victim's idle time is booked to: its first strict one)
    """
    kind = collisions.column("class").to_numpy()
    victim = pc.fill_null(collisions.column("victim"), -1).to_numpy()
    delay = pc.fill_null(collisions.column("extra_delay_ns"), 0).to_numpy()
    rows = np.flatnonzero(
        (kind <= schema.BookingClass.LATE) & (victim >= 0) & (victim < len(run)) & (delay > 0)
    )
    rows = rows[run[victim[rows]] != s.NULL]
    phase = np.array([s.CERTAIN, s.STRICT, s.LATE], np.int8)[kind[rows]]
    which, of = np.unique(victim[rows], return_inverse=True)
    ts = run[victim[rows]] - delay[rows]
    order = np.lexsort((phase, ts))
    first = np.full(len(which), -1)
    strict = phase >= s.STRICT
    first[of[strict][::-1]] = rows[strict][::-1]
    events = (ts[order], victim[rows][order].astype(np.int64), phase[order], of[order])
    return tuple(frozen(a) for a in events), which, first
