"""Speed against the peers: whole processes, warm cache, user + system CPU time, medians.

Prints a table; it is not a test. Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "build" / "bench"

READ = """
import sys, traceana as ta
print(sum(len(batch) for batch in ta.open(sys.argv[1]).event_batches()))
"""


def cpu_seconds(command: Sequence[str | Path], out: int) -> float:
    """CPU time (user + system, of the process and what it waited for) of one run."""
    child = subprocess.Popen(
        [str(c) for c in command], stdout=out, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{command[0]} ended with {child.returncode}: {command}")
    return usage.ru_utime + usage.ru_stime


def measure(command: Sequence[str | Path], runs: int) -> float:
    """Median over runs, the output thrown away; one run before warms caches."""
    with Path(os.devnull).open("wb") as null:
        cpu_seconds(command, null.fileno())
        return statistics.median(cpu_seconds(command, null.fileno()) for _ in range(runs))


def timeline_ns(path: Path, runs: int) -> float:
    """CPU ns per event of the timeline alone (all its tables), decoding left out."""
    command = [sys.executable, str(Path(__file__).with_name("timeline_only.py")), str(path)]
    found = []
    for _ in range(runs):
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        events, spent = map(int, done.stdout.split())
        found.append(spent / events)
    return statistics.median(found)


def machine() -> str:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return f"{model}, {os.cpu_count()} CPUs, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="runs of each command (default 3)")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md")
    args = parser.parse_args()
    made = json.loads((DATA / "MANIFEST.json").read_text())
    rows = []
    for name, peer, flags in (
        ("pp6-v6.dat", "trace-cmd", ["report"]),
        ("pp6.perf.data", "perf", ["script", "-i"]),
    ):
        path = DATA / name
        if name not in made:
            continue
        events = made[name]["events"]
        ours = measure([sys.executable, "-c", READ, path], args.runs)
        theirs = None
        if shutil.which(peer):
            theirs = measure([peer, *flags, path], args.runs)
        rows.append((f"{name} → events", events, ours, f"{peer} {flags[0]}", theirs))
    lines = [
        f"{machine()}; median of {args.runs} runs, CPU time of whole processes.",
        "",
        "| what | events | traceana | ns per event | peer | ns per event | times faster |",
        "|---|--:|--:|--:|---|--:|--:|",
    ]
    for what, events, ours, peer, theirs in rows:
        per = f"{theirs / events * 1e9:.0f}" if theirs else "not installed"
        ratio = f"{theirs / ours:.1f}" if theirs else "-"
        lines.append(
            f"| {what} | {events:,} | {ours:.2f} s | {ours / events * 1e9:.0f} "
            f"| {peer} | {per} | {ratio} |"
        )
    path = DATA / "pp6-v6.dat"
    lines.append(
        f"| timeline, all its tables (decoding not counted) | {made[path.name]['events']:,} | | "
        f"{timeline_ns(path, args.runs):.0f} | | | |"
    )
    print("\n".join(lines))
    if args.readme:
        page = ROOT / "README.md"
        marked = re.compile(r"(<!-- bench:[^\n]*-->\n).*?(<!-- /bench -->)", re.DOTALL)
        table = "\n".join(lines)
        page.write_text(marked.sub(lambda m: f"{m[1]}{table}\n{m[2]}", page.read_text()))


if __name__ == "__main__":
    main()
