"""Make the bench's inputs: a trace.dat (v6, v7 with zstd) and a perf.data of some million events.

Each repeats a sample, shifted in time, so that trace-cmd and perf read the result as well:
the pages of each CPU's ring buffer follow each other n times, and only the time stamp at the
head of a page changes (a page's events carry deltas). Version 7 is what ``trace-cmd convert`` makes
of version 6; without trace-cmd there is none.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "bench"
SAMPLE = ROOT / "sample_traces" / "pp6-short.dat.xz"
PERF_SAMPLE = ROOT / "sample_traces" / "pp6-file.perf.data.xz"
AIM = 16_000_000


@dataclass
class V6:
    """Where a v6 trace.dat keeps its per-CPU table (format notes: 2.1 and 2.2)."""

    head: bytes  # all up to the table
    page_size: int
    rings: list[bytes]


def read_v6(data: bytes) -> V6:
    """Split an uncompressed little-endian v6 file into its head and its rings."""
    if data[:12] != b"\x17\x08\x44tracing6\0"[:12] or data[12] != 0:
        raise SystemExit("bench sample: not a little-endian trace.dat of version 6")
    page_size = struct.unpack_from("<I", data, 14)[0]
    at = 18

    def skip_text(at: int, form: str) -> int:
        return at + struct.calcsize(form) + struct.unpack_from(form, data, at)[0]

    at = skip_text(at + len(b"header_page\0"), "<Q")
    at = skip_text(at + len(b"header_event\0"), "<Q")
    count = struct.unpack_from("<I", data, at)[0]
    at += 4
    for _ in range(count):
        at = skip_text(at, "<Q")
    systems = struct.unpack_from("<I", data, at)[0]
    at += 4
    for _ in range(systems):
        at = data.index(b"\0", at) + 1
        count = struct.unpack_from("<I", data, at)[0]
        at += 4
        for _ in range(count):
            at = skip_text(at, "<Q")
    at = skip_text(at, "<I")  # kallsyms
    at = skip_text(at, "<I")  # printk formats
    at = skip_text(at, "<Q")  # saved cmdlines
    cpus = struct.unpack_from("<I", data, at)[0]
    at += 4
    if data[at : at + 10] == b"options  \0":
        at += 10
        while struct.unpack_from("<H", data, at)[0]:
            at = skip_text(at + 2, "<I")
        at += 2
    if data[at : at + 10] != b"flyrecord\0":
        raise SystemExit("bench sample: no ring-buffer pages where they should be")
    at += 10
    rings = []
    for cpu in range(cpus):
        offset, size = struct.unpack_from("<QQ", data, at + 16 * cpu)
        rings.append(data[offset : offset + size])
    return V6(data[:at], page_size, rings)


def page_times(v6: V6) -> tuple[int, int]:
    """First and last time stamp at the head of any page."""
    stamps = [
        struct.unpack_from("<Q", ring, at)[0]
        for ring in v6.rings
        for at in range(0, len(ring), v6.page_size)
    ]
    return min(stamps), max(stamps)


def write_repeated(v6: V6, out: Path, times: int, period: int) -> None:
    """Write the rings ``times`` over, each time ``period`` ns later."""
    align = v6.page_size
    table = len(v6.head) + 16 * len(v6.rings)
    offset = -(-table // align) * align
    entries = []
    for ring in v6.rings:
        padded = -(-len(ring) // align) * align
        entries.append((offset, padded * times))
        offset += padded * times
    with out.open("wb") as f:
        f.write(v6.head)
        for entry in entries:
            f.write(struct.pack("<QQ", *entry))
        f.write(b"\0" * (-(-table // align) * align - table))
        for ring in v6.rings:
            pages = bytearray(ring + b"\0" * (-len(ring) % align))
            heads = range(0, len(pages), align)
            for _ in range(times):
                f.write(pages)
                for at in heads:
                    stamp = struct.unpack_from("<Q", pages, at)[0]
                    struct.pack_into("<Q", pages, at, stamp + period)


def make_trace_dat(out: Path, aim: int) -> int:
    """The big trace.dat; returns its number of events."""
    known = json.loads((ROOT / "sample_traces" / "COUNTS.json").read_text())[SAMPLE.name]
    times = -(-aim // known["total"])
    v6 = read_v6(lzma.decompress(SAMPLE.read_bytes()))
    lo, hi = page_times(v6)
    # A page spans far less than the capture; twice the spread of the heads leaves no overlap.
    period = max(hi - lo, known["last_ns"] - known["first_ns"]) + 1_000_000
    write_repeated(v6, out, times, period)
    return int(times * known["total"])


def make_v7(out: Path, aim: int) -> int:
    """The same in version 7, compressed with zstd; returns its number of events, 0: not made."""
    if shutil.which("trace-cmd") is None:
        return 0
    plain = out.with_name("pp6-v6.dat")
    events = json.loads((out.parent / "MANIFEST.json").read_text())[plain.name]["events"]
    command = ["trace-cmd", "convert", "-i", plain, "-o", out, "--compression", "zstd"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return int(events)


def make_perf_data(out: Path, aim: int) -> int:
    """The big perf.data; returns its number of events."""
    sys.path.insert(0, str(Path(__file__).parent))
    import repeat_perf

    known = json.loads((ROOT / "sample_traces" / "COUNTS.json").read_text())[PERF_SAMPLE.name]
    times = -(-aim // known["total"])
    repeat_perf.repeat(PERF_SAMPLE, out, times)
    return int(times * known["total"])


#: Version 7 is made of version 6 with as many events, so that comes first.
MAKERS = {
    "pp6-v6.dat": make_trace_dat,
    "pp6-v7.dat": make_v7,
    "pp6.perf.data": make_perf_data,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--events", type=int, default=AIM, help=f"at least so many (default {AIM // 10**6} M)"
    )
    parser.add_argument("--force", action="store_true", help="make them anew")
    parser.add_argument("--only", choices=list(MAKERS), nargs="+", help="make these (default all)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder (default build/bench)")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    manifest = args.out / "MANIFEST.json"
    made = json.loads(manifest.read_text()) if manifest.exists() and not args.force else {}
    for name, make in MAKERS.items():
        if args.only is not None and name not in args.only:
            continue
        path = args.out / name
        if made.get(name, {}).get("aim") == args.events and path.exists():
            continue
        part = args.out / (name + ".part")
        events = make(part, args.events)
        if not events:
            print(f"{path}: not made, trace-cmd is not installed")
            continue
        part.replace(path)
        made[name] = {"aim": args.events, "events": events}
        manifest.write_text(json.dumps(made, indent=1) + "\n")
        print(f"{path}: {events:,} events, {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
