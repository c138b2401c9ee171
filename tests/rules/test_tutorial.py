"""docs/own-rule.md from nothing to a rule whose CASES pass: its blocks run, in order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from traceana.rules.interface import UNCOMPILED

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "own-rule.md"


def blocks() -> list[tuple[str, str]]:
    """(info string, text) of each fenced block."""
    return re.findall(r"^```([^\n]+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True
    )


def commands(text: str) -> list[tuple[str, str]]:
    """Each command of a console block with the output that the page shows below it."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [(first, rest) for first, _, rest in (part.partition("\n") for part in parts)]


@pytest.mark.slow
@pytest.mark.skipif(UNCOMPILED, reason="the page is about compiled rules")
def test_the_page_runs_in_order(tmp_path: Path) -> None:
    (tmp_path / "sample_traces").symlink_to(ROOT / "sample_traces")
    kinds: list[str] = []
    for info, text in blocks():
        kind, _, argument = info.partition(" ")
        how, _, name = argument.partition(" ")
        kinds.append(f"{kind} {how}".strip())
        if kind == "console":
            for command, shown in commands(text):
                words = shlex.split(command, comments=True)
                assert words[0] == "traceana"
                done = run(["-m", *words], tmp_path)
                status = re.search(r"# status (\d+)", command)
                assert done.returncode == (int(status[1]) if status else 0), done.stderr
                if status:
                    assert (
                        re.search(r"^    (traceana: .*)$", PAGE.read_text(), re.MULTILINE)[1]
                        in done.stderr.splitlines()
                    )
                if shown:
                    assert done.stdout == shown
        elif how == "run":
            done = run(["-c", text + "\nprint(moved, len(result.failed))"], tmp_path)
            assert done.returncode == 0, done.stderr
            moved, failed = map(int, done.stdout.split())
            assert moved > 0
            assert failed == 0
        else:
            mode = {"new": "w", "more": "a"}[how]
            with (tmp_path / name).open(mode) as file:
                file.write(("\n\n" if mode == "a" else "") + text)
    assert kinds.count("python new") == 4
    assert kinds.count("console") == 6
    assert {"python more", "python run"} <= set(kinds)
