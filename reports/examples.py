"""Double bookings as small timelines: the CPUs and tasks that took part, with times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from traceana import schema
from traceana._race_pairs import NULL, numbers, wake_columns
from traceana.reports.context import Context
from traceana.reports.figures import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    RULE,
    SKY,
    VERMILLION,
    drawing,
    key,
)
from traceana.reports.model import Figure
from traceana.reports.words import duration, moment, plural

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Booking", "Example", "examples_of", "figure"]

_WANTED = (
    "waking_ts", "wakeup_ts", "run_ts", "visible_hi", "wakee", "waker", "this_cpu", "prev_cpu",
)  # fmt: skip
#: Lanes of a picture; of a larger LLC the CPUs that took part, and those that idled the longest.
_LANES = 8
#: Of what happened before and after, as a share of the picture's core.
_AROUND = 0.12


@dataclass(frozen=True)
class Booking:
    """One wakeup of an example; -1 for tasks and CPUs, None for times that are not known."""

    wakee: int
    waker: int
    this_cpu: int
    prev_cpu: int
    waking: int
    seen: int | None
    queued: int | None
    run: int | None


@dataclass(frozen=True)
class Example:
    """A double booking with all that took part; ``slices``: (CPU, start, end, task)."""

    cpu: int
    earlier: Booking
    later: Booking
    first: Booking
    victim: Booking
    extra_ns: int
    hops: int | None
    certain: bool
    begin: int
    end: int
    slices: list[tuple[int, int, int, int]]

    @property
    def between_ns(self) -> int:
        """From the earlier one's sched_waking to the later one's."""
        return self.later.waking - self.earlier.waking

    @property
    def window_ns(self) -> int | None:
        """From the earlier one's sched_waking until it is seen for certain."""
        seen = self.earlier.seen
        return None if seen is None else seen - self.earlier.waking


def examples_of(ctx: Context, collisions: pa.Table, rows: list[int]) -> list[Example]:
    """Collect some collisions with what ran around them."""
    made = []
    ids = {
        name: numbers(collisions, name, -1)[rows]
        for name in ("earlier", "later", "first", "victim")
    }
    columns = wake_columns(ctx.tl, np.concatenate(list(ids.values())), _WANTED)
    n = len(rows)
    for i, row in enumerate(collisions.take(rows).to_pylist() if rows else []):
        bookings = [_booking(columns, i + k * n) for k in range(4)]
        earlier, later, first, victim = bookings
        times = [b.waking for b in bookings] + [b.run for b in (first, victim) if b.run is not None]
        if victim.run is None or min(b.waking for b in bookings) == NULL:
            continue
        span = max(max(times) - min(times), 1)
        made.append(
            Example(
                cpu=row["cpu"],
                earlier=earlier,
                later=later,
                first=first,
                victim=victim,
                extra_ns=row["extra_delay_ns"],
                hops=row["hops"],
                certain=row["class"] == schema.BookingClass.STRICT_CERTAIN,
                begin=min(times) - int(_AROUND * span),
                end=max(times) + int(_AROUND * span),
                slices=[],
            )
        )
    _add_slices(ctx, made)
    return made


def _booking(columns: dict[str, Any], i: int) -> Booking:
    def at(name: str) -> int:
        return int(columns[name][i])

    def time(name: str) -> int | None:
        value = at(name)
        return None if value == NULL else value

    def index(name: str) -> int:
        return max(at(name), -1)

    return Booking(
        index("wakee"), index("waker"), index("this_cpu"), index("prev_cpu"),
        at("waking_ts"), time("visible_hi"), time("wakeup_ts"), time("run_ts"),
    )  # fmt: skip


def _add_slices(ctx: Context, made: list[Example]) -> None:
    """Who ran where while they lasted."""
    for part in ctx.tl.rows.chunks("slices", ("task", "cpu", "start", "end")):
        task, cpu = numbers(part, "task", -1), numbers(part, "cpu", -1)
        start, end = numbers(part, "start"), numbers(part, "end", 2**62)
        for e in made:
            mine = np.flatnonzero((start < e.end) & (end > e.begin) & (cpu >= 0))
            for i in mine:
                e.slices.append(
                    (
                        int(cpu[i]),
                        max(int(start[i]), e.begin),
                        min(int(end[i]), e.end),
                        int(task[i]),
                    )
                )


def lanes_of(ctx: Context, e: Example) -> list[int]:
    """CPUs of the picture: those that took part, and of the LLC those that ran the least."""
    took = [e.cpu, e.earlier.this_cpu, e.later.this_cpu, e.victim.this_cpu, e.victim.prev_cpu]
    took = [c for c in dict.fromkeys(took) if 0 <= c < ctx.tl.cpus.num_rows]
    llc = ctx.machine.llc
    mates = [c for c in ctx.cpu_order if llc[c] == llc[e.cpu] and c not in took]
    ran = dict.fromkeys(mates, 0)
    for cpu, start, end, _ in e.slices:
        if cpu in ran:
            ran[cpu] += end - start
    mates.sort(key=lambda c: (ran[c], c))
    chosen = {*took, *mates[: max(0, _LANES - len(took))]}
    return [c for c in ctx.cpu_order if c in chosen]


def words_of(ctx: Context, e: Example) -> str:
    """What happened, in one sentence."""
    a, b = sorted((e.earlier, e.later), key=lambda booking: booking.waking)
    text = (
        f"At {moment(a.waking)} {_waker(ctx, a)} woke {ctx.names.full(a.wakee)}; "
        f"{duration(b.waking - a.waking)} later {_waker(ctx, b)} woke {ctx.names.full(b.wakee)}, "
        f"and both chose CPU {e.cpu}. {ctx.names.full(e.first.wakee)} ran first, "
        f"{ctx.names.full(e.victim.wakee)} {duration(e.extra_ns)} later than it need have"
    )
    if e.hops:
        text += f"; meanwhile {plural(e.hops, 'partner')} that waited for it left CPUs idle"
    return text + "."


def _waker(ctx: Context, b: Booking) -> str:
    who = "an interrupt" if b.waker < 0 else ctx.names.full(b.waker)
    return f"{who} on CPU {b.this_cpu}" if b.this_cpu >= 0 else who


def figure(ctx: Context, e: Example, number: int) -> Figure:
    """The picture of an example."""
    text = words_of(ctx, e)
    kind = "certain" if e.certain else "possible"
    return Figure(
        f"example-{number}",
        f"CPU {e.cpu} booked twice at {moment(e.later.waking)} ({kind})",
        text,
        "Bars: who ran, white: idle. Black: a waker's decision window, from sched_waking until its "
        "booking is seen for certain, and an arrow to the CPU that it chose. Dashed: the victim's "
        "extra delay.",
        lambda: _draw(ctx, e, number),
        wide=True,
        data={
            "cpu": e.cpu,
            "begin_ns": e.begin,
            "end_ns": e.end,
            "lanes": lanes_of(ctx, e),
            "extra_delay_ns": e.extra_ns,
        },
    )


def _draw(ctx: Context, e: Example, number: int) -> str:
    lanes = lanes_of(ctx, e)
    place = {cpu: len(lanes) - 1 - i for i, cpu in enumerate(lanes)}
    colors = {
        e.earlier.waker: SKY,
        e.later.waker: ORANGE,
        e.first.wakee: BLUE,
        e.victim.wakee: VERMILLION,
    }
    colors.pop(-1, None)
    unit, scale = ("µs", 1e3) if e.end - e.begin < 3_000_000 else ("ms", 1e6)
    zero = e.earlier.waking

    def x(ts: int) -> float:
        return (ts - zero) / scale

    height = 62.0 + 26.0 * len(lanes)
    with drawing(f"example-{number}", 660, height, left=58, right=14, top=20, bottom=38) as d:
        ax = d.axes
        ax.set_xlim(x(e.begin), x(e.end))
        ax.set_ylim(-0.5, len(lanes) - 0.5)
        wide = x(e.end) - x(e.begin)
        for cpu, start, end, task in e.slices:
            if cpu not in place:
                continue
            y, a, b = place[cpu], x(start), x(end)
            color = colors.get(task, RULE)
            ax.barh(y, b - a, left=a, height=0.5, color=color, edgecolor=MUTED, linewidth=0.4)
            name = ctx.names.comm(task)
            if (b - a) / wide * 590 > 5.6 * len(name) + 4:
                dark = color in (BLUE, VERMILLION)
                ax.text(
                    (a + b) / 2, y, name, ha="center", va="center", fontsize=9,
                    color="#ffffff" if dark else INK,
                )  # fmt: skip
        for booking, color in ((e.earlier, SKY), (e.later, ORANGE)):
            _booked(ax, e, booking, place, x, color)
        _waited(ax, e, place, x)
        ax.set_yticks([place[c] for c in lanes], [f"CPU {c}" for c in lanes])
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x", color=RULE, linewidth=0.6)
        ax.set_xlabel(f"{unit} after the first sched_waking")
        parts = [
            ("ran first", BLUE), ("victim", VERMILLION), ("first waker", SKY),
            ("second waker", ORANGE), ("others", RULE),
        ]  # fmt: skip
        key(ax, parts)
    return d.svg


def _booked(ax: Any, e: Example, b: Booking, place: dict[int, int], x: Any, color: str) -> None:
    """The decision window on the waker's lane, and the line to the chosen CPU."""
    from_y = place.get(b.this_cpu)
    to_y = place[e.cpu]
    at = x(b.waking)
    seen = x(b.seen) if b.seen is not None else at
    if from_y is None:
        from_y = to_y
    ax.plot([at, seen], [from_y + 0.33] * 2, color=INK, linewidth=2.2, solid_capstyle="butt")
    ax.plot([at], [from_y + 0.33], marker="o", color=color, markeredgecolor=INK, markersize=5)
    if from_y != to_y:
        edge = 0.33 if from_y > to_y else -0.33
        ax.annotate(
            "",
            (seen, to_y + edge),
            xytext=(at, from_y),
            arrowprops={"arrowstyle": "->", "color": INK, "linewidth": 0.9},
        )


def _waited(ax: Any, e: Example, place: dict[int, int], x: Any) -> None:
    """How long the victim waited longer, above the CPU's lane."""
    assert e.victim.run is not None
    end = e.victim.run
    begin = end - e.extra_ns
    y = place[e.cpu] - 0.32
    ax.plot(
        [x(begin), x(end)], [y, y], color=VERMILLION, linewidth=2.0, linestyle=(0, (2, 1)),
        solid_capstyle="butt",
    )  # fmt: skip
    ax.text(
        (x(begin) + x(end)) / 2, y - 0.03, f"waits {duration(e.extra_ns)}",
        ha="center", va="top", fontsize=9, color=VERMILLION,
    )  # fmt: skip
