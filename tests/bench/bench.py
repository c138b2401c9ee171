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
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "build" / "bench"

READ = """
import sys, traceana as ta
print(sum(len(batch) for batch in ta.open(sys.argv[1]).event_batches()))
"""
TIMELINE = """
import sys, traceana as ta
t = ta.open(sys.argv[1]).timeline()
print([x.num_rows for x in (t.tasks, t.slices, t.wakeups, t.idle_gaps)])
"""
#: A peer takes a minute or more for inputs beyond this: one run has to do.
MANY = 20_000_000


@dataclass(frozen=True)
class Cost:
    """CPU seconds (user + system) and the largest resident size, MiB, of a whole process."""

    seconds: float
    peak: float


def cost(command: Sequence[str | Path], out: int) -> Cost:
    """What one run costs, the process and what it waited for."""
    child = subprocess.Popen(
        [str(c) for c in command], stdout=out, stderr=subprocess.DEVNULL, cwd=ROOT
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{command[0]} ended with {child.returncode}: {command}")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def measure(command: Sequence[str | Path], runs: int, *, warm: bool = True) -> Cost:
    """Medians over runs, the output thrown away; one run before warms caches."""
    with Path(os.devnull).open("wb") as null:
        if warm:
            cost(command, null.fileno())
        found = [cost(command, null.fileno()) for _ in range(runs)]
    return Cost(*(statistics.median(getattr(c, n) for c in found) for n in ("seconds", "peak")))


def timeline_ns(path: Path, runs: int) -> float:
    """CPU ns per event of the timeline alone (all its tables), decoding left out."""
    command = [sys.executable, str(Path(__file__).with_name("timeline_only.py")), str(path)]
    found = []
    for _ in range(runs):
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        events, spent = map(int, done.stdout.split())
        found.append(spent / events)
    return statistics.median(found)


def user_rule_ns(path: Path, runs: int) -> tuple[int, float]:
    """Decided wakeups, and CPU ns per wakeup of one more user's rule once it is compiled."""
    command = [sys.executable, str(Path(__file__).with_name("user_rule.py")), str(path)]
    found = []
    wakeups = 0
    for _ in range(runs):
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        wakeups, spent = map(int, done.stdout.split())
        found.append(spent / wakeups)
    return wakeups, statistics.median(found)


def rule_lines(path: Path, timeline: float) -> list[str]:
    """Rows on the rules: against the timeline alone, and per decision."""
    command = [sys.executable, str(Path(__file__).with_name("rules_only.py")), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    got = json.loads(done.stdout)
    events, decisions, n = got["events"], got["decisions"], got["rules"]
    whole = timeline * events

    def row(what: str, ns: int, of: int = n) -> str:
        return (
            f"| {what} | {decisions:,} | {ns / 1e9:.2f} s | {ns / decisions / of:.0f} "
            f"| timeline | {timeline:.0f} | takes {ns / whole:.1f} |"
        )

    return [
        "",
        f"The {n} rules of the library on {path.name}; ns per decision and rule, and times the "
        "timeline alone.",
        "",
        "| what | decisions | traceana | ns per decision | against | ns per event | times |",
        "|---|--:|--:|--:|---|--:|--:|",
        row("state rebuilt, mainline asked", got["settle"], 1),
        row("all rules asked", got["ask"]),
        row("what they would change, with intervals", got["estimate"]),
    ]


def machine() -> str:
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return f"{model}, {os.cpu_count()} CPUs, Python {platform.python_version()}"


def length_lines(runs: int) -> list[str]:
    """Rows on what ten times the length changes: time per event, and memory."""
    lines = [
        "",
        "The same for captures of different length (trace.dat v6):",
        "",
        "| what | events | ns per event | peak MiB |",
        "|---|--:|--:|--:|",
    ]
    found = []
    for manifest in (DATA / "long").glob("*/MANIFEST.json"):
        for name, facts in json.loads(manifest.read_text()).items():
            found.append((facts["events"], manifest.parent / name))
    out = DATA / "long" / "out"
    for what, flags in (
        ("convert", ["-o", f"{out}.traceana", "--force"]),
        ("report", ["-o", f"{out}.html", "--force"]),
    ):
        for events, path in sorted(found):
            got = measure([sys.executable, "-m", "traceana", what, path, *flags], runs)
            per = got.seconds / events * 1e9
            lines.append(f"| {what} | {events:,} | {per:.0f} | {got.peak:,.0f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3, help="runs of each command (default 3)")
    parser.add_argument("--long", action="store_true", help="only the captures of two lengths")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md")
    args = parser.parse_args()
    if args.long:
        print("\n".join(length_lines(args.runs)))
        return
    made = json.loads((DATA / "MANIFEST.json").read_text())
    rows = []
    ta = [sys.executable, "-m", "traceana"]
    for name, what, ours, peer in (
        ("pp6-v6.dat", "events", [sys.executable, "-c", READ], ["trace-cmd", "report"]),
        ("pp6-v7.dat", "events", [sys.executable, "-c", READ], ["trace-cmd", "report"]),
        ("pp6.perf.data", "events", [sys.executable, "-c", READ], ["perf", "script", "-i"]),
        (
            "pp6.perf.data",
            "timeline, all tables",
            [sys.executable, "-c", TIMELINE],
            ["perf", "sched", "timehist", "-s", "-i"],
        ),
        ("pp6.perf.data", "tasks", [*ta, "tasks"], ["perf", "sched", "latency", "-p", "-i"]),
    ):
        path = DATA / name
        if name not in made:
            continue
        events = made[name]["events"]
        mine = measure([*ours, path], args.runs)
        theirs = None
        if shutil.which(peer[0]):
            many = events > MANY
            theirs = measure([*peer, path], 1 if many else args.runs, warm=not many)
        called = " ".join(w for w in peer if w != "-i")
        rows.append((f"{name} → {what}", events, mine, called, theirs))
    for name in ("pp3.trace.txt", "pp3.report.txt", "pp6.script.txt"):
        if name in made:
            mine = measure([sys.executable, "-c", READ, DATA / name], args.runs)
            rows.append((f"{name} → events (lines)", made[name]["lines"], mine, "", None))
    store: list[str | Path] = [
        "convert",
        DATA / "pp6-v6.dat",
        "-o",
        DATA / "pp6.traceana",
        "--force",
    ]
    for what, flags in (("events only", ["--tables", "events"]), ("all tables", [])):
        mine = measure([*ta, *store, *flags], args.runs)
        events = made["pp6-v6.dat"]["events"]
        rows.append((f"convert pp6-v6.dat to a store, {what}", events, mine, "", None))
    lines = [
        f"{machine()}; median of {args.runs} runs, CPU time of whole processes.",
        "",
        "| what | events | traceana | ns per event | peak MiB | peer | ns per event "
        "| times faster |",
        "|---|--:|--:|--:|--:|---|--:|--:|",
    ]
    for what, events, mine, called, theirs in rows:
        per = f"{theirs.seconds / events * 1e9:.0f}" if theirs else "not installed"
        ratio = f"{theirs.seconds / mine.seconds:.1f}" if theirs else "-"
        lines.append(
            f"| {what} | {events:,} | {mine.seconds:.2f} s | {mine.seconds / events * 1e9:.0f} "
            f"| {mine.peak:,.0f} | {called} | {per if called else ''} "
            f"| {ratio if called else ''} |"
        )
    path = DATA / "pp6-v6.dat"
    timeline = timeline_ns(path, args.runs)
    lines.append(
        f"| timeline, all its tables (decoding not counted) | {made[path.name]['events']:,} | | "
        f"{timeline:.0f} | | | | |"
    )
    lines += rule_lines(path, timeline)
    wakeups, per_wakeup = user_rule_ns(path, args.runs)
    lines.append(
        f"| one more rule of your own, started and compiled ({wakeups:,} wakeups; ns per wakeup) "
        f"| | | {per_wakeup:.0f} | | | |"
    )
    print("\n".join(lines))
    if args.readme:
        page = ROOT / "README.md"
        marked = re.compile(r"(<!-- bench:[^\n]*-->\n).*?(<!-- /bench -->)", re.DOTALL)
        table = "\n".join(lines)
        page.write_text(marked.sub(lambda m: f"{m[1]}{table}\n{m[2]}", page.read_text()))


if __name__ == "__main__":
    main()
