"""LLCs learnt from direct and remote wakeups (section 11.5 of the semantics)."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import traceana as ta
from traceana.llc import Evidence, learn

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"
AB = ROOT.parent / "shared" / "captures" / "ab"


def _evidence(
    n: int, same: dict[tuple[int, int], int], different: dict[tuple[int, int], int]
) -> Evidence:
    mats = []
    for counts in (same, different):
        m = np.zeros((n, n), np.int64)
        for (a, b), k in counts.items():
            m[a, b] = m[b, a] = k
        mats.append(m)
    return Evidence(*mats)


def test_groups_are_joined_over_third_cpus() -> None:
    found = _evidence(4, {(0, 1): 3, (1, 2): 5, (2, 3): 20}, {})
    got = learn(found, np.ones(4, bool))
    assert got.llc.tolist() == [0, 0, 0, 0]
    assert got.complete
    assert got.confidence == pytest.approx(1 - 2**-3)


def test_two_observations_prove_nothing() -> None:
    got = learn(_evidence(2, {(0, 1): 2}, {}), np.ones(2, bool))
    assert got.llc.tolist() == [-1, -1]
    assert not got.complete


def test_two_groups_need_proof_that_they_are_apart() -> None:
    same = {(0, 1): 30, (2, 3): 30}
    assert not learn(_evidence(4, same, {}), np.ones(4, bool)).complete
    got = learn(_evidence(4, same, {(1, 2): 4}), np.ones(4, bool))
    assert got.complete
    assert got.llc.tolist() == [0, 0, 1, 1]
    assert got.confidence == pytest.approx(1 - 2**-4)


@pytest.mark.parametrize(("d", "x", "together"), [(49, 1, True), (48, 1, False), (3, 0, True)])
def test_contradictions_up_to_two_percent(d: int, x: int, together: bool) -> None:
    found = _evidence(2, {(0, 1): d}, {(0, 1): x})
    assert bool(found.together()[0, 1]) is together


def test_a_cpu_without_evidence_leaves_the_answer_open() -> None:
    found = _evidence(3, {(0, 1): 9}, {})
    assert not learn(found, np.ones(3, bool)).complete
    assert learn(found, np.array([True, True, False])).complete


def test_a_given_topology_is_contradicted_pair_by_pair() -> None:
    found = _evidence(4, {(0, 1): 9}, {(1, 2): 9, (2, 3): 2})
    assert found.disagreeing(np.array([0, 0, 1, 1], np.int32)) == []
    assert found.disagreeing(np.array([0, 1, 1, 1], np.int32)) == [(0, 1, True), (1, 2, False)]


def test_one_llc_of_a_capture_without_topology(tmp_path: Path) -> None:
    copy = tmp_path / "sch.dat.xz"
    shutil.copy(SAMPLES / "sch-truth.dat.xz", copy)
    cap = ta.open(copy)
    cap.timeline()
    assert set(cap.topology.column("origin").to_pylist()) == {"learned"}
    assert len(set(cap.topology.column("llc").to_pylist())) == 1
    assert "topology_learned" in cap.issues.counts()


def test_a_wrong_side_file_is_told(tmp_path: Path) -> None:
    copy = tmp_path / "sch.dat.xz"
    shutil.copy(SAMPLES / "sch-truth.dat.xz", copy)
    cap = ta.open(copy, topology=SAMPLES / "sch-truth.dat.xz.topology.json")
    cap.check_topology()
    assert "topology_disagrees" not in cap.issues.counts()
    wrong = tmp_path / "wrong.csv"
    # lscpu -p of a machine whose CPUs 4 to 7 have a cache of their own.
    wrong.write_text(
        "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n"
        + "".join(f"{c},{c},0,0,,{c},{c},{c},{c // 4}\n" for c in range(8))
    )
    cap = ta.open(copy, topology=wrong)
    cap.check_topology()
    assert cap.issues.counts()["topology_disagrees"] > 0


@pytest.mark.parametrize("name", ["fan", "hb"])
def test_two_sockets_are_found(name: str) -> None:
    path = AB / "smt16" / name / "base-truth.dat.xz"
    if not path.exists():
        pytest.skip("no ../shared beside the repository: its captures cannot be read")
    cap = ta.open(path)
    timeline = cap.timeline()
    # smt16: CPUs 0-7 and 8-15 (captures/INDEX.md).
    assert cap.topology.column("llc").to_pylist() == [0] * 8 + [8] * 8
    # The timeline was made again with them.
    assert timeline.idle_gaps.num_rows > 0
    assert "confidence" in " ".join(cap.issues.texts())
