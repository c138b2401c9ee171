"""The arrows of the design: who may import whom, read from the sources.

A module may import modules of a lower rank, and modules of its own package. Imports under
``if TYPE_CHECKING`` are names of types, not arrows.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: Packages and modules of traceana -> rank. A name that is not here has no place yet.
RANKS = {
    # the contract
    "errors": 0, "schema": 0, "issues": 1, "columns": 1, "_jit": 0, "output": 1,
    # facts and small states
    "cost": 2, "coverage": 2, "questions": 2, "topology": 2, "start_state": 2, "record": 3,
    "families": 2, "thresholds": 2,
    # events; rules
    "parsers": 3, "rules": 3, "parts": 3,
    # what is made of them
    "timeline": 4, "pelt": 4, "affinity": 4, "store": 4, "pairs": 4,
    "amounts": 1, "replaced": 5,
    "strict": 5, "idle_time": 5, "openloop": 5, "replay": 5, "summary": 5, "spill": 5,
    "userrules": 5, "llc": 6, "whatif": 6,
    # the race
    "candidates": 5, "bookings": 6, "idle_bins": 6, "nulls": 6, "race": 7, "series": 8,
    # the closed loop
    "workload": 6, "synth": 7, "simulate": 5, "calibrate": 7, "closed_loop": 8, "tunables": 9,
    # the whole
    "sweep": 7, "capture": 7, "explain": 7, "compare": 8, "export": 8, "redact": 4, "markers": 4,
    "listing": 9, "sql": 8, "batch": 9, "fleet": 8, "reports": 9, "cli": 10, "__main__": 11,
}  # fmt: skip

#: Helper modules whose name does not begin with that of their caller.
OWNERS = {
    "fidelity": "replay",
    "_parquet": "store",
    "_place_kernels": "timeline",
    "_wake_kernels": "timeline",
    "_block_kernels": "timeline",
    **{
        f"_sim_{part}": "simulate"
        for part in (
            "state",
            "types",
            "model",
            "setup",
            "kernels",
            "balance_kernels",
            "events_kernels",
            "interrupt_kernels",
            "queue_kernels",
            "script_kernels",
            "switch_kernels",
            "time_kernels",
            "truth",
            "wake_kernels",
        )
    },
    "_perfetto_messages": "export",
}

#: Where the records that kernels work on are laid out, and the signature of rules.
LAYOUTS = {
    "traceana._idle_bins_state",
    "traceana._replay_state",
    "traceana._sim_state",
    "traceana._sim_types",
    "traceana._timeline_state",
    "traceana._timeline_types",
    "traceana.pelt",
    "traceana.rules._forms",
    "traceana.rules._state",
    "traceana.rules.interface",
}

HEAVY = {"numba", "pandas", "polars", "matplotlib", "scipy", "pyarrow", "numpy"}


def _sources() -> Iterator[tuple[str, Path]]:
    for top, prefix in (("traceana", ""), ("parsers", "parsers."), ("reports", "reports.")):
        for path in sorted((ROOT / top).rglob("*.py")):
            relative = path.relative_to(ROOT / top)
            if top == "traceana" and relative.parts[0] in ("parsers", "reports"):
                continue  # the links
            name = prefix + ".".join(relative.with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


SOURCES = dict(_sources())


def _place(module: str) -> str:
    """The ranked name that a module stands under: 'timeline' for '_timeline_kernels'."""
    top = module.split(".")[0]
    if top in RANKS:
        return top
    if top in OWNERS:
        return OWNERS[top]
    owners = [n for n in RANKS if top.startswith(f"_{n.lstrip('_')}_")]
    return max(owners, key=len) if owners else top


def _imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Each imported module, absolute, and whether at module level; types left out."""

    def walk(node: ast.AST, *, top: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for other in child.orelse:
                    yield from walk(other, top=top)
                continue
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield alias.name, top
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: relative import"
                module = child.module or ""
                for alias in child.names:
                    full = f"{module}.{alias.name}"
                    inside = full.removeprefix("traceana.")
                    known = inside in SOURCES or inside.split(".")[0] in ("parsers", "reports")
                    yield (full if module == "traceana" and known else module), top
            inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from walk(child, top=top and not inner)

    yield from walk(ast.parse(path.read_text()), top=True)


def _own(path: Path) -> set[str]:
    names = {name for name, _ in _imports(path) if name.split(".")[0] == "traceana"}
    return {n.removeprefix("traceana.") for n in names if n != "traceana"}


@pytest.mark.parametrize("module", [m for m in SOURCES if m != "__init__"])
def test_arrows_point_down(module: str) -> None:
    here = _place(module)
    assert here in RANKS, f"{module}: give it a rank"
    for target in _own(SOURCES[module]):
        there = _place(target)
        if there == here:
            continue
        assert there in RANKS, f"{target}: give it a rank"
        assert RANKS[there] < RANKS[here], f"{module} imports {target}"


@pytest.mark.parametrize("module", [m for m in SOURCES if m.endswith("_kernels")])
def test_kernels_import_only_numpy_and_kernels(module: str) -> None:
    for name, _ in _imports(SOURCES[module]):
        top = name.split(".")[0]
        assert (
            top in ("__future__", "numpy", "numba", "typing")
            or name == "traceana._jit"
            or name in LAYOUTS
            or name.endswith("_kernels")
        ), f"{module} imports {name}"


RULE_FILES = [
    m
    for m in SOURCES
    if m.startswith("rules.") and not m.startswith("rules._") and m not in ("rules.interface",)
]


@pytest.mark.parametrize("module", RULE_FILES)
def test_rules_import_the_interface_only(module: str) -> None:
    assert _own(SOURCES[module]) <= {"rules.interface"}


@pytest.mark.parametrize("module", SOURCES)
def test_no_dataframe_library_at_module_level(module: str) -> None:
    for name, top in _imports(SOURCES[module]):
        if name.split(".")[0] in ("pandas", "polars"):
            assert not top, f"{module} imports {name}"


@pytest.mark.parametrize("module", [m for m in SOURCES if m == "cli" or m.startswith("cli.")])
def test_the_command_line_imports_nothing_heavy_before_a_verb_runs(module: str) -> None:
    allowed = {"errors", "output"}
    for name, top in _imports(SOURCES[module]):
        if not top:
            continue
        assert name.split(".")[0] not in HEAVY
        if name.startswith("traceana."):
            inside = name.removeprefix("traceana.")
            assert inside in allowed or inside.startswith("cli"), f"{module} imports {name}"


@pytest.mark.parametrize("bare", ["parsers", "reports"])
def test_bare_names_refuse(bare: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {bare}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"ImportError: import traceana.{bare}, not {bare}" in done.stderr


def test_import_traceana_is_light() -> None:
    code = "import traceana, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & HEAVY


def test_public_names_are_lazy_and_complete() -> None:
    import traceana

    assert set(dir(traceana)) == set(traceana.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = traceana.nonsense
