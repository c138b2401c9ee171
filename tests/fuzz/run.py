"""Damage the samples at random and read them: nothing but the errors of traceana may come out.

    python tests/fuzz/run.py [--seconds 60] [--seed N] [--from FILE...]

Each case has a number; with --seed N the run begins there, so a failure can be repeated. A
damaged file that fails is kept in build/fuzz/. Children do the reading, so that a crash or a
hang of one case does not end the run.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import lzma
import os
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "fuzz"
SAMPLES = (
    "pp3-plain.dat.xz", "hostile.dat", "mix-wrapped.dat", "pp6-file.perf.data.xz",
    "hostile.trace.txt.xz", "pp3-plain.report.txt.xz", "pp6-file.script.txt.xz",
)  # fmt: skip
MEMORY = 4 << 30
SECONDS_A_CASE = 30
CASES_A_CHILD = 25


def damage(data: bytes, rng: random.Random) -> bytes:
    """One to eight injuries: bytes, words, blocks; the end cut off."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        # Heads hold the sizes and counts, so they are hit as often as all the rest.
        limit = len(out) if rng.random() < 0.5 else min(len(out), 4096)
        at = rng.randrange(max(1, limit))
        kind = rng.randrange(6)
        if kind == 0:
            out[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            width = rng.choice((2, 4, 8))
            value = rng.choice((0, 1, (1 << 8 * width) - 1, 1 << (8 * width - 1), 0x7FFFFFFF))
            out[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
        elif kind == 2:
            del out[at : at + rng.choice((1, 8, 100, 4096))]
        elif kind == 3:
            out[at:at] = out[at : at + rng.choice((1, 8, 100, 4096))]
        elif kind == 4:
            out[at : at + 16] = rng.randbytes(16)
        else:
            del out[at:]
    return bytes(out)


def read(path: Path) -> None:
    """All that a verb would do with a capture."""
    import traceana as ta
    from traceana.errors import TraceanaError

    with contextlib.suppress(TraceanaError):
        cap = ta.open(path)
        for _ in cap.event_batches():
            pass
        cap.names()
        cap.issues_table()
        cap.timeline()


def child(seed: int, names: list[str]) -> None:
    """Read some cases; exit status 1 after the first that raises what it must not."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.enable()
    for number in range(seed, seed + CASES_A_CHILD):
        rng = random.Random(number)
        name = rng.choice(names)
        data = (ROOT / "sample_traces" / name).read_bytes()
        if name.endswith(".xz"):
            data = lzma.decompress(data)
        path = OUT / f"case-{number}-{Path(name).name.removesuffix('.xz')}"
        path.write_bytes(damage(data, rng))
        signal.alarm(SECONDS_A_CASE)
        try:
            read(path)
        except BaseException:
            print(f"case {number} ({path}):", file=sys.stderr)
            traceback.print_exc()
            os._exit(1)
        signal.alarm(0)
        path.unlink()
    os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000_000)
    parser.add_argument("--from", dest="names", nargs="+", default=list(SAMPLES))
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    seed, failures = args.seed, 0
    print(f"first case: {seed}")
    for name in args.names:  # compiles the kernels, which may take longer than a case
        pid = os.fork()
        if pid == 0:
            read(ROOT / "sample_traces" / name)
            os._exit(0)
        os.waitpid(pid, 0)
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        pid = os.fork()
        if pid == 0:
            child(seed, args.names)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code:
            failures += 1
            kept = sorted(OUT.glob("case-*"))
            print(f"cases {seed}..: ended with {code}; kept: {', '.join(map(str, kept))}")
        seed += CASES_A_CHILD
    print(f"{seed - args.seed} cases, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
