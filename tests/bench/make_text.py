"""Make the bench's text inputs: tracefs text, ``trace-cmd report`` and ``perf script`` output.

Each repeats the lines of a real text capture of the samples, every time some whole seconds later:
only the digits in front of a time's point change, so names, columns and widths stay those that the
kernel, trace-cmd and perf printed. The head of the text stands once, before the first line of an
event.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "bench"
SAMPLES = {
    "pp3.trace.txt": "pp3-plain.trace.txt.xz",
    "pp3.report.txt": "pp3-plain.report.txt.xz",
    "pp6.script.txt": "pp6-file.script.txt.xz",
}
AIM = 12_000_000
#: The first number with a point and a colon behind it, after a blank; digits of whole seconds.
_TIME = re.compile(rb"(?m)^.*? ([0-9]+)\.[0-9]{6,9}: ")
#: Whole seconds get that many digits, blank-padded, as ``%5lu`` of all three writers prints them.
WIDTH = 5


def repeat(text: bytes, out: Path, times: int) -> int:
    """Write the lines of ``text`` ``times`` over, each time later; returns the lines written."""
    found = list(_TIME.finditer(text))
    seconds = np.array([int(m[1]) for m in found])
    ends = np.array([m.end(1) for m in found])
    begin = found[0].start()
    period = int(seconds.max() - seconds.min()) + 1
    if int(seconds.max()) + times * period >= 10**WIDTH:
        raise SystemExit(f"{out.name}: times of more than {WIDTH} digits; ask for fewer lines")
    blanks = np.frombuffer(text, np.uint8)[ends[:, None] - np.arange(WIDTH, 0, -1)]
    if not np.isin(blanks, np.frombuffer(b" 0123456789", np.uint8)).all():
        raise SystemExit(f"{out.name}: times stand in less than {WIDTH} columns")
    lines = np.frombuffer(text[begin:], np.uint8).copy()
    with out.open("wb") as f:
        f.write(text[:begin])
        for i in range(times):
            now = seconds + i * period
            for column in range(1, WIDTH + 1):
                digit = np.where(now > 0, now % 10 + 48, 32 if column > 1 else 48)
                lines[ends - begin - column] = digit
                now //= 10
            f.write(lines)
    return text[:begin].count(b"\n") + times * (text.count(b"\n", begin))


def make(aim: int, *, force: bool = False) -> None:
    """Make what is missing, of at least ``aim`` lines, and note it in the manifest."""
    OUT.mkdir(parents=True, exist_ok=True)
    manifest = OUT / "MANIFEST.json"
    for name, sample in SAMPLES.items():
        made = json.loads(manifest.read_text()) if manifest.exists() else {}
        if not force and made.get(name, {}).get("aim") == aim and (OUT / name).exists():
            continue
        text = lzma.decompress((ROOT / "sample_traces" / sample).read_bytes())
        part = OUT / (name + ".part")
        lines = repeat(text, part, -(-aim // len(_TIME.findall(text))))
        part.replace(OUT / name)
        made[name] = {"aim": aim, "lines": lines}
        manifest.write_text(json.dumps(made, indent=1) + "\n")
        print(f"{OUT / name}: {lines:,} lines, {(OUT / name).stat().st_size / 1e6:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--lines", type=int, default=AIM, help=f"at least so many (default {AIM:,})"
    )
    parser.add_argument("--force", action="store_true", help="make them anew")
    args = parser.parse_args()
    make(args.lines, force=args.force)


if __name__ == "__main__":
    main()
