"""What all tests share: where captures lie, and the real command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"
SHARED = ROOT.parent / "shared"

settings.register_profile(
    "traceana",
    deadline=None,
    # The same cases on every machine; `make fuzz` and runs at a desk look for new ones.
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("traceana")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def samples() -> Path:
    return SAMPLES


@pytest.fixture(scope="session")
def sample_counts() -> dict[str, Any]:
    """Known counts of the samples, from other tools (see sample_traces/README.md)."""
    return dict(json.loads((SAMPLES / "COUNTS.json").read_text()))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of further captures and references beside the repository."""
    if not SHARED.is_dir():
        pytest.skip("no ../shared beside the repository: its captures cannot be read")
    return SHARED


@dataclass
class Ran:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(scope="session")
def shell() -> Callable[..., Ran]:
    """Run the program as a process: shell("info", path) -> status, stdout and stderr."""

    def run(*args: str | Path, stdin: bytes | None = None, **env: str) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "traceana", *map(str, args)],
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            cwd=ROOT,
            env={**os.environ, **env},
            timeout=240,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Call the entry point in this process, which saves the start of one: as `shell`."""
    from traceana.cli import main

    monkeypatch.chdir(ROOT)

    def run(*args: str | Path) -> Ran:
        arguments = [str(a) for a in args]
        monkeypatch.setattr(sys, "argv", ["traceana", *arguments])
        capsys.readouterr()
        status = main(arguments)
        out, err = capsys.readouterr()
        # Said once a process, when a kernel is first compiled.
        lines = [x for x in err.splitlines(keepends=True) if "compiling kernels" not in x]
        return Ran(status, out, "".join(lines))

    return run
