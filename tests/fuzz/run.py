"""Read damaged inputs of every form: only errors of traceana may come out, soon, in little memory.

    make fuzz                                       all forms, some ten minutes each 100,000 inputs
    python tests/fuzz/run.py --only FORM --seed N   one input again, in this process
    python tests/fuzz/run.py --inputs 1000000 --from 20000 --only FORM

Input N of a form is the same each time. One that fails is kept in build/fuzz/. After all forms
a share of the inputs is read again with kernels that check their bounds (NUMBA_BOUNDSCHECK=1).
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import re
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from fuzz import check, corpus, work  # noqa: E402
from fuzz.target import Target  # noqa: E402

OUT = ROOT / "build" / "fuzz"
#: The cache of kernels that check their bounds.
CHECKED = OUT / "checked-kernels"
#: Of so many inputs one is read with checked bounds.
BOUNDS_STEP = 20
#: Numbers in one job.
SLICE = 1000
#: Inputs kept of each fault and row.
KEPT = 3
HEADS = ("form", "inputs", "refused", "damaged", "clean", "slowest s", "peak MB", "failures")


def _file_name(form: str, number: int) -> str:
    return f"{re.sub(r'[^a-z0-9.]+', '-', form.lower())}-{number}"


def keep(row: Target, number: int, fault: str) -> Path:
    """Store an input that failed, and beside it why."""
    made = row.input(number)
    path = OUT / _file_name(row.name, number)
    check.put(made.files, path)
    text = f"{row.name}, input {number} ({made.how}):\n{fault}\n"
    path.with_name(path.name + ".txt").write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def _how_again(form: str, number: int, bounds: bool) -> str:
    quoted = f"'{form}'" if " " in form else form
    return f"python tests/fuzz/run.py --only {quoted} --seed {number}" + " --bounds" * bounds


class _Teller:
    """Says how far the run is, and of each failure how to repeat it."""

    def __init__(self, total: int, bounds: bool) -> None:
        self.total, self.bounds = total, bounds
        self.done = 0
        self.seen: dict[tuple[str, str], int] = {}
        self.next = time.monotonic() + 30

    def __call__(self, job: work.Job, tally: work.Tally) -> None:
        self.done += tally.inputs
        for number, fault in tally.failures:
            last = fault.strip().splitlines()[-1][:300]
            same = (job.target, re.sub(r"\d+", "N", last)[:80])
            self.seen[same] = self.seen.get(same, 0) + 1
            if self.seen[same] <= KEPT and number >= 0:
                path = keep(corpus.target(job.target), number, fault)
                print(
                    f"{job.target} {number}: {last}\n  kept: {path.relative_to(ROOT)}\n"
                    f"  again: {_how_again(job.target, number, self.bounds)}",
                    flush=True,
                )
            elif number < 0:
                print(f"{job.target}: {fault}", flush=True)
        if time.monotonic() > self.next:
            self.next = time.monotonic() + 30
            print(
                f"  {self.done:,} of {self.total:,} inputs, {job.target}",
                file=sys.stderr,
                flush=True,
            )


def _jobs(rows: list[Target], args: argparse.Namespace, bounds: bool) -> list[work.Job]:
    out = []
    for row in rows:
        last = args.first + (args.inputs or row.inputs)
        step = args.bounds_step if bounds else 1
        size = SLICE * step
        out += [
            work.Job(row.name, at, min(at + size, last), step)
            for at in range(args.first, last, size)
        ]
    return out


def phase(rows: list[Target], args: argparse.Namespace, *, bounds: bool) -> bool:
    """Read all inputs of these rows and print the table; whether none failed."""
    jobs = _jobs(rows, args, bounds)
    if bounds:
        CHECKED.mkdir(exist_ok=True)
    total = sum(len(range(j.first, j.last, j.step)) for j in jobs)
    start = time.monotonic()
    tallies = work.run(
        jobs,
        command=[sys.executable, str(Path(__file__).resolve()), "--worker"],
        env=work.environment(CHECKED if bounds else None),
        log=OUT / "workers.log",
        workers=args.workers,
        progress=_Teller(total, bounds),
    )
    lines = [HEADS]
    for name, t in tallies.items():
        counts = (t.inputs, t.refused, t.damaged, t.clean)
        lines.append((name, *(f"{n:,}" for n in counts), f"{t.slowest[0]:.2f}", f"{t.peak[0]:.0f}",
                      f"{len(t.failures):,}"))  # fmt: skip
    failures = sum(len(t.failures) for t in tallies.values())
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS))]
    print("\nwith checked bounds" if bounds else "")
    for line in lines:
        cells = [
            f"{c:<{w}}" if not i else f"{c:>{w}}"
            for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    print(f"{total:,} inputs in {time.monotonic() - start:.0f} s, {failures} failures", flush=True)
    return not failures


def once(row: Target, number: int) -> bool:
    """Read one input in this process, with all that is done to any; whether it is well."""
    faulthandler.enable()
    made = row.input(number)
    path = OUT / _file_name(row.name, number)
    check.put(made.files, path)
    size = sum(map(len, made.files.values()))
    print(
        f"{row.name}, input {number} ({made.how}), {size} bytes: {path.relative_to(ROOT)}",
        flush=True,
    )
    well = True
    for deep in (False, True):
        faulthandler.dump_traceback_later(work.LIMIT_S)
        verdict = check.examine(path, number, deep=deep)
        faulthandler.cancel_dump_traceback_later()
        what = "with timeline and verbs" if deep else "events"
        print(
            f"{what}: {verdict.outcome}, {verdict.rows} events, {verdict.cpu_s:.2f} s, "
            f"{verdict.peak_mb:.0f} MB"
        )
        if verdict.fault:
            print(verdict.fault)
            return False
        well = well and verdict.cpu_s < work.LIMIT_S and verdict.peak_mb < work.LIMIT_MB
    return well


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="FORM", help="these forms (see --list)")
    parser.add_argument("--list", action="store_true", help="the forms and their numbers of inputs")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="input N of the one form, in this process"
    )
    parser.add_argument("--inputs", type=int, metavar="N", help="so many of each form")
    parser.add_argument(
        "--from", dest="first", type=int, default=0, metavar="N", help="begin with input N"
    )
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--bounds", action="store_true", help="only with kernels that check bounds")
    parser.add_argument(
        "--no-bounds", action="store_true", help="never with kernels that check bounds"
    )
    parser.add_argument("--bounds-step", type=int, default=BOUNDS_STEP, metavar="N",
                        help="with checked bounds one of N inputs")  # fmt: skip
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    if args.worker is not None:
        work.serve(args.worker)
        return 0
    OUT.mkdir(parents=True, exist_ok=True)
    try:
        rows = [corpus.target(name) for name in args.only] if args.only else list(corpus.TARGETS)
    except KeyError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    if args.list:
        for row in rows:
            print(f"{row.inputs:>7,}  {row.name}")
        return 0
    if args.seed is not None:
        if len(rows) != 1:
            print("--seed needs --only with one form", file=sys.stderr)
            return 2
        if args.bounds and "NUMBA_BOUNDSCHECK" not in os.environ:
            os.execve(sys.executable, [sys.executable, *sys.argv], work.environment(CHECKED))
        return 0 if once(rows[0], args.seed) else 1
    well = True
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the workers end, too
    with contextlib.suppress(KeyboardInterrupt):
        if not args.bounds:
            well = phase(rows, args, bounds=False)
        if not args.no_bounds:
            well = phase(rows, args, bounds=True) and well
        return 0 if well else 1
    return 130


if __name__ == "__main__":
    sys.exit(main())
