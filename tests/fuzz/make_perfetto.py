"""Perfetto traces, with events one by one and in the compact encoding."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

import perfetto_writer as pft
from text_writer import NEW_STATES, Event

from fuzz.history import CPUS, HOSTILE, PLAIN, history
from fuzz.mutate import Spice, damage_bytes
from fuzz.target import Files, single

__all__ = ["inside", "spice", "wholes"]


def _text(name: object) -> str:
    """Perfetto's strings are UTF-8 where nothing is wrong; the damage makes others of them."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else ""


def _bundles(
    seed: int, count: int, names: Sequence[bytes] = PLAIN, *, compact: bool
) -> list[bytes]:
    """Packets: three bundles a CPU."""
    events: dict[int, list[Event]] = {cpu: [] for cpu in range(CPUS)}
    for event in history(seed, count, names):
        events[event.cpu].append(event)
    out = []
    for cpu, mine in events.items():
        for start in range(0, len(mine), -(-len(mine) // 3) or 1):
            out.append(
                pft.packet(1, _bundle(cpu, mine[start : start + -(-len(mine) // 3)], compact))
            )
    return out


def _bundle(cpu: int, events: Sequence[Event], compact: bool) -> bytes:
    switches, wakings, plain = [], [], []
    for event in events:
        f = event.f
        number = {k: v for k, v in f.items() if isinstance(v, int)}
        if event.name == "sched_switch":
            state = NEW_STATES[str(f["prev_state"])]
            nxt = (_text(f["next_comm"]), number["next_pid"], 120)
            if compact:
                switches.append((event.ts, state, nxt[1], 120, nxt[0]))
            else:
                prev = (_text(f["prev_comm"]), number["prev_pid"], 120)
                plain.append(pft.switch(event.ts, prev, state, nxt, 0))
        elif event.name in ("sched_waking", "sched_wakeup", "sched_wakeup_new"):
            task, target = (_text(f["comm"]), number["pid"], 120), number["target_cpu"]
            if compact and event.name == "sched_waking":
                wakings.append((event.ts, task[1], target, 120, task[0], 0))
            else:
                kind = {"sched_waking": pft.WAKING, "sched_wakeup": pft.WAKEUP}.get(
                    event.name, pft.WAKEUP_NEW
                )
                plain.append(pft.waking(event.ts, event.pid, task, target, number=kind, success=1))
        elif event.name == "cpu_idle":
            content = pft.fields(number["state"], cpu)
            plain.append(pft.event(event.ts, 0, pft.IDLE, content))
        elif event.name == "sched_stat_runtime":
            plain.append(pft.generic(event.ts, event.pid, event.name, comm=_text(f["comm"]),
                                     pid=number["pid"], runtime=number["runtime"]))  # fmt: skip
        elif event.name == "sched_process_fork":
            content = pft.fields("p", number["parent_pid"], "c", number["child_pid"])
            plain.append(pft.event(event.ts, event.pid, pft.FORK, content))
    parts = pft.Compact(switches, wakings) if compact else None
    return pft.bundle(cpu, *plain, compact=parts, lost=False, clock=2 if compact else None,
                      pair=(500, 700) if compact else None)  # fmt: skip


@cache
def _packets() -> tuple[list[bytes], ...]:
    tree = pft.put(1, pft.message((1, 100), (2, 1), (3, "/usr/bin/alpha")))
    facts = [pft.system("6.1.0", cpus=3), pft.packet(2, tree), pft.snapshot(c5=10, c6=20),
             pft.stats(1, (0, 0, 0), (1, 0, 0)), pft.stats(2, (0, 4, 0), (1, 0, 1))]  # fmt: skip
    named = pft.put(11, pft.message((1, 70001), (2, pft.message(
        (1, "sched_stat_runtime"), (2, pft.message((1, "pid"), (3, 2))),
        (2, pft.message((1, "runtime"), (3, 4)))))))  # fmt: skip
    more = pft.bundle(
        0, pft.event(9_000_000_000, 3, 70001, pft.message((2, 100), (4, 777))), more=named
    )
    return (
        _bundles(1, 12, compact=False), [*facts, *_bundles(2, 40, compact=False)],
        [*facts, *_bundles(3, 40, compact=True)],
        [*facts[:2], *_bundles(4, 30, HOSTILE, compact=True), pft.packet(1, more)],
    )  # fmt: skip


def _put_packets(packets: Sequence[bytes], packed: bool, number: int = 0) -> bytes:
    if not packed:
        return b"".join(packets)
    half = len(packets) // 2
    pieces = (b"".join(packets[:half]), b"".join(packets[half:]))
    return b"".join(pft.compressed(p, zstd=bool(number + i & 1)) for i, p in enumerate(pieces))


@cache
def wholes(packed: bool) -> tuple[Files, ...]:
    return tuple(single(_put_packets(p, packed, n)) for n, p in enumerate(_packets()))


_PROTO_WORDS = (
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
    b"\x0a\xff\xff\xff\x7f",
    b"\x80" * 10,
    b"\x0a\x00",
    b"\x0b",
    b"\x0c",
    b"\x0a\x02\x08\x01",
    b"\x12\x80\x80\x80\x80\x10",
    b"\x22\x04\x0a\x02\x08\x01",
    b"\x08\xff\xff\xff\xff\x0f",
    b"\x78\x9c\x03\x00",
    b"\x28\xb5\x2f\xfd",
    b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
)


@cache
def spice() -> Spice:
    others = [f[""] for packed in (False, True) for f in wholes(packed)]
    return Spice(_PROTO_WORDS, (b"alpha", b"beta-1", b"gamma d", b"swapper/1", b"sched_"), others)


def inside(packed: bool) -> Callable[[random.Random], Files]:
    """Traces whose packets are damaged behind their lengths, so that the rest is found."""

    def make(rng: random.Random) -> Files:
        packets = list(rng.choice(_packets()))
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(packets))
            how = rng.randrange(6)
            if how == 0:
                packets.insert(rng.randrange(len(packets)), packets.pop(at))
            elif how == 1:
                packets[at:at] = [packets[at]] * rng.choice((1, 20))
            else:
                body = damage_bytes(_inner(packets[at]), rng, spice())
                packets[at] = pft.put(1, body)
        return single(_put_packets(packets, packed, rng.randrange(2)))

    return make


def _inner(packet: bytes) -> bytes:
    """A packet without its tag and length."""
    at = 1
    while packet[at] & 128:
        at += 1
    return packet[at + 1 :]
