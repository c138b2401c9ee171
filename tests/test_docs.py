"""Everything in docs that is a command runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: Fenced with `sh`: a block that runs as it stands, in a checkout.
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = [
    (page.name, i, block)
    for page in sorted((ROOT / "docs").glob("*.md"))
    for i, block in enumerate(BLOCK.findall(page.read_text()))
]
#: Links of the package to its parsers and reports, and what the commands read.
_NEEDED = ("sample_traces", "tests", "docs", "traceana", "parsers", "reports", "pyproject.toml")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a checkout, in which files may come into being."""
    here = tmp_path_factory.mktemp("checkout")
    for name in _NEEDED:
        (here / name).symlink_to(ROOT / name)
    (here / "build").mkdir()
    (here / "bin").mkdir()
    program = here / "bin" / "traceana"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m traceana "$@"\n')
    program.chmod(0o755)
    (here / "bin" / "python").symlink_to(sys.executable)
    return here


def test_there_are_commands() -> None:
    assert len(BLOCKS) > 5


@pytest.mark.parametrize(
    ("page", "number", "block"), BLOCKS, ids=[f"{page}-{i}" for page, i, _ in BLOCKS]
)
def test_block_runs(checkout: Path, page: str, number: int, block: str) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    env = {
        **os.environ,
        "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [bash, "-euo", "pipefail", "-c", block], cwd=checkout, env=env, capture_output=True,
        text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
