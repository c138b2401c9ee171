"""The wheel: one top-level name, everything in it, and the main job runs from it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT],
        check=True,
        capture_output=True,
    )
    [found] = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as z:
        return z.namelist()


def test_it_adds_one_name(names: list[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith((".dist-info", ".data"))} == {"traceana"}
    # Outside of site-packages goes the man page, and nothing else.
    data = [name.partition("/")[2] for name in names if name.split("/")[0].endswith(".data")]
    assert data == ["data/share/man/man1/traceana.1"]


def test_it_holds_every_file_of_the_tree_once(names: list[str]) -> None:
    assert len(names) == len(set(names))
    have = {n for n in names if n.startswith("traceana/")}
    want = set()
    for top, prefix in (("traceana", ""), ("parsers", "parsers/"), ("reports", "reports/")):
        for path in (ROOT / top).rglob("*"):
            relative = path.relative_to(ROOT / top)
            linked = top == "traceana" and relative.parts[0] in ("parsers", "reports")
            if path.is_file() and not linked and "__pycache__" not in relative.parts:
                want.add(f"traceana/{prefix}{relative}")
    assert have == want
    assert "traceana/py.typed" in have
    assert any(n.startswith("traceana/reports/templates/") for n in have)


def test_links_are_plain_files(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as z:
        for info in z.infolist():
            assert (info.external_attr >> 28) in (0, 0o10), f"{info.filename} is no plain file"


#: Names under which packages are imported, where they differ.
IMPORTED_AS = {"protobuf": "google"}


def imported(*, top_level: bool) -> set[str]:
    """Top-level packages that the sources import, anywhere or when a module is imported."""
    used = set()
    for top in ("traceana", "parsers", "reports"):
        for path in (ROOT / top).rglob("*.py"):
            tree = ast.parse(path.read_text())
            for node in tree.body if top_level else ast.walk(tree):
                if isinstance(node, ast.Import):
                    used |= {a.name.split(".")[0] for a in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    used.add(node.module.split(".")[0])
    return {u.lower() for u in used if u not in sys.stdlib_module_names} - {"traceana"}


def test_declared_dependencies_are_those_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        bare = {re.split(r"[<>=!~\[ ;]", d, maxsplit=1)[0].lower() for d in requirements}
        return {IMPORTED_AS.get(n, n) for n in bare}

    declared = names(project["dependencies"])
    extra = set()
    for name, requirements in project["optional-dependencies"].items():
        if name != "dev":
            extra |= names(requirements)
    assert imported(top_level=False) <= declared | extra, "imported, but not a dependency"
    assert imported(top_level=True) <= declared, "an extra is imported where nobody asked for it"


def test_report_runs_from_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """Nothing but the wheel itself is installed there; its dependencies are lent by this one."""
    home = tmp_path / "env"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    [site] = home.glob("lib/python*/site-packages")
    before = set(site.iterdir())
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check",
         "install", "--quiet", "--no-deps", "--no-compile", wheel],
        check=True,
    )  # fmt: skip
    added = {p.name for p in set(site.iterdir()) - before}
    assert {a for a in added if not a.endswith(".dist-info")} == {"traceana"}
    lent = sysconfig.get_paths()["purelib"]
    (site / "lent.pth").write_text(lent + "\n")
    out = tmp_path / "report.html"
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    where = subprocess.run(
        [python, "-c", "import traceana.parsers as p; print(p.__file__)"],
        capture_output=True, text=True, check=True, cwd=tmp_path, env=env,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(home)
    done = subprocess.run(
        [home / "bin" / "traceana", "report", ROOT / "sample_traces" / "pp6-base.dat", "-o", out],
        capture_output=True, text=True, cwd=tmp_path, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert out.read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
    assert "Traceback" not in done.stderr


def test_this_environment_is_left_alone() -> None:
    """Pip would take an installed traceana away where it is told to put another."""
    assert Path(sysconfig.get_paths()["scripts"], "traceana").exists()
