"""The corpus of `make fuzz`, briefly: every form is in it, and its damaged inputs do no harm."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz import bombs, check, corpus, work
from fuzz.target import Target

from traceana.parsers.registry import FORMS

ROOT = Path(__file__).resolve().parents[1]
ROWS = [pytest.param(row, id=row.name) for row in corpus.TARGETS]
#: Inputs of each row: cuts of the shortest, then any.
CUTS, OTHERS = 6, 12


def test_every_form_is_in_the_corpus() -> None:
    known = {form.name for form in FORMS}
    assert {row.form for row in corpus.TARGETS} == known | {""}
    named = [row.name for row in corpus.TARGETS]
    assert len(set(named)) == len(named)
    wrappers = {"gzip", "xz", "zstd", "zip", "store"}
    assert wrappers <= {row.name for row in corpus.TARGETS if not row.form}
    for row in corpus.TARGETS:
        assert row.inputs == (
            corpus.TEXT if row.text or row.name in ("bzip2", "tar") else corpus.BINARY
        )


def test_the_buffers_that_are_made_small_are_there() -> None:
    for module, name, value in check.SMALL:
        assert value < getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("row", ROWS)
def test_whole_inputs_are_read_and_damaged_ones_do_no_harm(row: Target, tmp_path: Path) -> None:
    path = tmp_path / "capture"
    for number, files in enumerate(row.wholes()):
        check.put(files, path)
        verdict = check.examine(path, number, deep=False)
        assert (verdict.fault, verdict.outcome) == (None, "clean"), f"whole input {number}"
        assert verdict.rows > 0
    last = row.inputs - 1
    numbers = [*range(0, 300, 300 // CUTS), *range(last, last // 2, -(last // 2 // OTHERS))]
    outcomes = set()
    for number in numbers:
        made = row.input(number)
        assert made.files == row.input(number).files
        check.put(made.files, path)
        verdict = check.examine(path, number, deep=number in numbers[-2:])
        assert verdict.fault is None, f"input {number} ({made.how}): {verdict.fault}"
        assert verdict.peak_mb < work.LIMIT_MB
        outcomes.add(verdict.outcome)
    # Damage that never shows is none; what never opens tests nothing.
    assert len(outcomes) > 1


FAULTY = """
import os, sys, time
sys.path[:0] = [{root!r}, {tests!r}]
from pathlib import Path
from fuzz import check, work
def examine(path, number, *, deep):
    if number == 7:
        os._exit(9)
    if number == 11:
        while True:
            pass
    verdict = check.Verdict("clean")
    if number == 13:
        verdict.peak_mb = 2000.0
    if number == 17:
        verdict.fault = "ValueError: x"
    return verdict
check.examine = examine
work.LIMIT_S = 0.5
work.serve(Path(sys.argv[1]))
"""


def test_who_dies_hangs_or_errs_is_found_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "LIMIT_S", 0.5)
    script = tmp_path / "worker.py"
    script.write_text(FAULTY.format(root=str(ROOT), tests=str(ROOT / "tests")))
    seen: list[int] = []
    tallies = work.run(
        [work.Job("gzip", 0, 20), work.Job("gzip", 20, 23)],
        command=[sys.executable, str(script)],
        env=work.environment(),
        log=tmp_path / "log",
        workers=2,
        progress=lambda job, tally: seen.append(tally.inputs),
    )
    tally = tallies["gzip"]
    assert tally.inputs == sum(seen) == 23
    failed = dict(tally.failures)
    assert sorted(failed) == [7, 11, 13, 17]
    assert "died with 9" in failed[7]
    assert failed[11].startswith("hangs: ")
    assert "in examine" in failed[11]
    assert "2000 MB" in failed[13]
    assert failed[17] == "ValueError: x"


def test_one_input_again() -> None:
    """As a failure says that it is repeated."""
    done = subprocess.run(
        [sys.executable, "tests/fuzz/run.py", "--only", "xz", "--seed", "3"],
        cwd=ROOT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "xz, input 3 (file cut at 3), 3 bytes: build/fuzz/xz-3" in done.stdout
    assert "events: refused, 0 events" in done.stdout


@pytest.mark.parametrize("way", ["zlib", "zstd", "lzma"])
def test_a_bomb_in_a_trace_dat_is_refused(way: str, tmp_path: Path) -> None:
    """300 chunks of 64 MiB each, all zeros."""
    path = tmp_path / "capture"
    path.write_bytes(bombs.trace_dat_bomb(way))
    verdict = check.examine(path, 0, deep=False)
    assert (verdict.fault, verdict.outcome) == (None, "refused")
    assert verdict.cpu_s < 3
    assert verdict.peak_mb < 300


@pytest.mark.parametrize("bomb", [bombs.perf_bomb, bombs.perfetto_bomb])
def test_what_unpacks_to_very_much_is_stopped(bomb: Callable[[], bytes], tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(bomb())
    verdict = check.examine(path, 0, deep=False)
    assert (verdict.fault, verdict.outcome) == (None, "damaged")
    assert verdict.peak_mb < 400
