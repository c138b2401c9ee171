"""trace.dat files of both versions, and the pages of rings."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import trace_dat_writer as dat
from text_writer import NEW_STATES, Event

from fuzz.history import CPUS, HOSTILE, PLAIN, history
from fuzz.mutate import ABSURD, Spice, damage_bytes, damage_text
from fuzz.target import Files, single

__all__ = ["PAGE", "inside", "kernel_of", "pages", "spice_for", "wholes"]

#: A page of the rings, small so that files are.
PAGE = 1024


_USUAL = (
    "sched_switch", "sched_waking", "sched_wakeup", "sched_migrate_task", "sched_stat_runtime",
    "sched_process_exec", "cpu_idle",
)  # fmt: skip


def kernel_of(*, events: Sequence[str] = (), **shape: object) -> dat.Kernel:
    """A kernel with the named events only (all of them without), so that its files are short."""
    kernel = dat.Kernel(**shape)  # type: ignore[arg-type]
    for name in list(kernel.layouts):
        if events and name not in events:
            del kernel.layouts[name]
    return kernel


def _payload(kernel: dat.Kernel, event: Event) -> bytes:
    values = dict(event.f)
    if "prev_state" in values:
        values["prev_state"] = NEW_STATES[str(values["prev_state"])]
    flags = 1 if event.flags[:1] == b"d" else 0
    return kernel.pack(event.name, event.pid, flags, 2, **values)


def pages(kernel: dat.Kernel, events: Sequence[Event], size: int = PAGE) -> dict[int, bytes]:
    """The rings of all CPUs: their pages, one behind the other."""
    rings: dict[int, list[dat.Page]] = {cpu: [] for cpu in range(CPUS)}
    last = dict.fromkeys(rings, 0)
    for event in events:
        if event.name not in kernel.layouts:
            continue
        payload, ring = _payload(kernel, event), rings[event.cpu]
        if not ring or ring[-1].room < len(payload) + 16:
            ring.append(dat.Page(kernel, event.ts, size))
            last[event.cpu] = event.ts
        delta = event.ts - last[event.cpu]
        if delta >= 1 << 20:
            ring[-1].extend(delta)
            delta = 0
        ring[-1].event(payload, delta)
        last[event.cpu] = event.ts
    return {cpu: b"".join(p.bytes() for p in ring) for cpu, ring in rings.items()}


def _guest() -> list[tuple[int, bytes]]:
    shift = struct.pack("<QII", 0xABC, 0, 1) + struct.pack("<I3Q", 1, 1, 2, 3)
    guest = b"vm\0" + struct.pack("<QI", 0xDEF, 2) + struct.pack("<4I", 0, 11, 1, 12)
    return [(12, shift), (13, guest)]


@cache
def _captures() -> tuple[dat.Capture, ...]:
    few = kernel_of(events=("sched_switch", "sched_waking"))
    usual = kernel_of(events=_USUAL)
    odd = kernel_of(events=_USUAL, big=True, long=4, letters=dat.LETTERS_4_4, success=True)
    new = kernel_of(comm_loc=True)
    lost = pages(usual, history(5, 30))
    page = dat.Page(usual, 9_000_000_000, PAGE)
    page.missed = 17
    lost[1] += page.discard(12).absolute(9_000_000_500).fill().bytes()
    host = pages(usual, history(6, 12))
    stats = [dat.stat(cpu, entries=20, overrun=3 * cpu, read=7) for cpu in range(CPUS)]
    return (
        dat.Capture(few, pages(few, history(1, 6)), PAGE),
        dat.Capture(usual, pages(usual, history(2, 40)), PAGE, cmdlines=b"100 alpha\n7 x y\n",
                    options=[*stats, (1, b"0x10\0"), (5, b"Linux m 6.1.0 x86_64\0")]),
        dat.Capture(odd, pages(odd, history(3, 40)), PAGE, user_long=4, cmdlines=b"5 <...>\n"),
        dat.Capture(new, pages(new, history(4, 40, HOSTILE), 4096), 4096,
                    cmdlines=b"100 " + HOSTILE[0] + b"\n"),
        dat.Capture(usual, lost, PAGE, options=[dat.tsc2nsec(1 << 31, 32)], clock="x86-tsc"),
        dat.Capture(few, {}, PAGE, instances={"one": pages(few, history(7, 20)), "two": host},
                    clocks={"two": "mono"}, options=[(7, b"-25\0"), *_guest()], cpu_count=CPUS),
    )  # fmt: skip


def _pack_dat(capture: dat.Capture, way: str) -> bytes:
    if way == "v6":
        return dat.v6(capture)
    return dat.v7(capture, compression=way, chunk_pages=1)


@cache
def wholes(way: str) -> tuple[Files, ...]:
    """``way``: v6, or the compression of v7."""
    return tuple(single(_pack_dat(capture, way)) for capture in _captures())


_DAT_WORDS = (
    b"\x17\x08\x44tracing6\0",
    b"\x17\x08\x44tracing7\0",
    b"header_page\0",
    b"header_event\0",
    b"options  \0",
    b"flyrecord\0",
    b"latency  \0",
    b"zstd\0",
    b"zlib\0",
    b"lzma\0",
    b"none\0",
    b"field:int x;\toffset:4294967288;\tsize:2147483647;\tsigned:1;\n",
    b"\toffset:-1;\tsize:0;",
    b"field:__data_loc char[] comm;\toffset:8;\tsize:4;\tsigned:1;\n",
    b"ID: 103\n",
    b"name: sched_switch\n",
    b'print fmt: "%s", __print_flags(REC->prev_state & 4096, "|", { 1, "S" })',
    b"((((((((" * 40,
    struct.pack("<I", 29),
    struct.pack("<II", 0, 0xFFFFFFFF),
    struct.pack("<II", 30, 0xFFFFFFFF),
    struct.pack("<II", 31, 0xFFFFFFFF),
    struct.pack("<HHIQ", 3, 1, 0, 1 << 40),
    struct.pack("<HI", 0, 8),
)


@cache
def spice_for(way: str) -> Spice:
    others = [f[""] for other in ("v6", "none", way) for f in wholes(other)]
    return Spice(
        _DAT_WORDS, (*PLAIN, *HOSTILE, b"swapper/1", b"sched_switch", b"prev_comm"), others
    )


def inside(way: str) -> Callable[[random.Random], Files]:
    """Files whose pages, formats, options or names are damaged before they are written."""

    def make(rng: random.Random) -> Files:
        capture = rng.choice(_captures())
        spice = spice_for("v6")
        for _ in range(rng.choice((1, 1, 2, 3))):
            capture = _spoilt_capture(capture, rng, spice)
        return single(_pack_dat(capture, way))

    return make


def _spoilt_capture(cap: dat.Capture, rng: random.Random, spice: Spice) -> dat.Capture:
    how = rng.randrange(12)
    if how < 5:
        cpus = dict(cap.cpus) if cap.cpus else dict(cap.instances["one"])
        cpu = rng.choice(list(cpus))
        cpus[cpu] = damage_bytes(cpus[cpu], rng, spice)
        if rng.random() < 0.1:
            cpus[rng.choice((7, 255, 256))] = cpus[cpu]
        if cap.cpus:
            return replace(cap, cpus=cpus, cpu_count=None)
        return replace(cap, instances=cap.instances | {"one": cpus}, cpu_count=None)
    if how < 9:
        kernel = replace(cap.kernel)
        kernel.layouts = dict(cap.kernel.layouts)
        name = rng.choice(list(kernel.layouts))
        layout = kernel.layouts[name]
        kernel.layouts[name] = _spoilt_layout(layout, rng, spice)
        return replace(cap, kernel=kernel)
    if how == 9:
        return replace(cap, cmdlines=damage_text(cap.cmdlines or b"1 a\n", rng, spice))
    ident = rng.choice((*range(26), 99, 65535))
    data = damage_bytes(rng.choice((bytes(8), b"0x1\0", dat.stat(1)[1])), rng, spice)
    return replace(cap, options=[*cap.options, (ident, data[:4000])])


def _spoilt_layout(layout: dat.Layout, rng: random.Random, spice: Spice) -> dat.Layout:
    fields = list(layout.fields)
    at = rng.randrange(len(fields))
    ctype, name, offset, size, signed = fields[at]
    how = rng.randrange(6)
    if how == 0:
        offset = rng.choice(ABSURD)
    elif how == 1:
        size = rng.choice(ABSURD)
    elif how == 2:
        ctype = rng.choice(
            ("__data_loc char[]", "__rel_loc char[]", "char[16]", "u64", "long", "x*")
        )
    elif how == 3:
        name = rng.choice(("comm", "pid", "common_type", "", "\x1b[1m", fields[0][1]))
    elif how == 4:
        text = damage_text(layout.print_fmt.encode(), rng, spice).decode("latin-1")
        return replace(layout, print_fmt=text.encode("ascii", "replace").decode())
    else:
        return replace(
            layout, ident=rng.choice((0, 1, 103, 65535, 1 << 32)), fields=fields[:at] or fields
        )
    fields[at] = (ctype, name, offset, size, signed)
    return replace(layout, fields=fields)
