"""What the README shows is what the commands print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
SHOWN = re.findall(r"```console\n\$ traceana ([^\n]+)\n(.*?)```", README, re.DOTALL)


def test_there_are_three() -> None:
    assert len(SHOWN) == 3
    assert all(output.strip() for _, output in SHOWN)


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[c for c, _ in SHOWN])
def test_command_prints_what_is_shown(cli: Callable[..., Any], command: str, shown: str) -> None:
    ran = cli(*shlex.split(command))
    assert ran.status == 0, ran.err
    pattern = "".join(
        r"(?:.*\n)*?" if line == "...\n" else re.escape(line)
        for line in shown.splitlines(keepends=True)
    )
    assert re.fullmatch(pattern, ran.out), ran.out


def test_the_two_commands_are_named_and_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("report", "test"):
        assert f"make {target}" in README
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE)


def test_every_dependency_has_a_reason() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    block = project.partition("dependencies = [")[2].partition("]")[0]
    table = README.partition("## What it depends on")[2].partition("## Speed")[0]
    for name in re.findall(r'"([a-z0-9]+)>=', block):
        assert re.search(rf"^\|[^|]*\b{name}\b", table, re.MULTILINE), name


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
