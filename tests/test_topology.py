"""Topologies from every source, and the arrays that kernels take."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import random
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceana import schema, topology
from traceana._topology_sources import parse_cpu_list
from traceana.errors import FormatError, InputError
from traceana.issues import IssueLog
from traceana.topology import HeaderCache, HeaderTopology


def column(table: pa.Table, name: str) -> list[Any]:
    schema.check(table)
    return list(table.column(name).to_pylist())


def header(said: IssueLog | None = None, **fields: Any) -> pa.Table:
    log = IssueLog() if said is None else said
    table = topology.from_perf_header(HeaderTopology(**fields), log)
    assert table is not None
    if said is None:
        assert not log, log.texts()
    return table


# ---------------------------------------------------------------- lists of CPUs


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", []),
        ("\n", []),
        ("0", [0]),
        ("0-3", [0, 1, 2, 3]),
        ("0,2-3,8\n", [0, 2, 3, 8]),
        (" 5 , 7-7 ", [5, 7]),
    ],
)
def test_cpu_list(text: str, cpus: list[int]) -> None:
    assert sorted(parse_cpu_list(text)) == cpus


@pytest.mark.parametrize("text", ["x", "3-1", "-1", "0-999999999", "0--2", "1.5", "٣"])
def test_no_cpu_list(text: str) -> None:
    with pytest.raises(ValueError, match="not a CPU list"):
        parse_cpu_list(text)


# ---------------------------------------------------------------- assumed


def test_assumed_is_one_llc_without_smt() -> None:
    table = topology.assumed(3)
    assert column(table, "core") == [0, 1, 2]
    assert column(table, "llc") == [0, 0, 0]
    assert column(table, "node") == [None] * 3
    assert column(table, "origin") == ["assumed"] * 3
    assert column(topology.assumed([7, 2, 7]), "cpu") == [2, 7]
    assert column(topology.assumed([7, 2, 7]), "llc") == [2, 2]
    assert topology.assumed(0).num_rows == 0


# ---------------------------------------------------------------- perf header

ZEN = {  # 8 CPUs, siblings n and n+4, one package, two LLCs of two cores
    "available": 8,
    "online": 8,
    "cores": ["0-7"],
    "threads": ["0,4", "1,5", "2,6", "3,7"],
    "per_cpu": [(c % 4, 0) for c in range(8)],
}


def test_header_llc_is_the_highest_unified_cache() -> None:
    caches = [
        *(HeaderCache(1, "Data", f"{c},{c + 4}") for c in range(4)),
        *(HeaderCache(2, "Unified", f"{c},{c + 4}") for c in range(4)),
        HeaderCache(3, "Unified", "0-1,4-5"),
        HeaderCache(3, "Unified", "2-3,6-7"),
        HeaderCache(4, "Data", "0-7"),
    ]
    table = header(**ZEN, caches=caches, nodes={0: "0-7"})
    assert column(table, "core") == [0, 1, 2, 3, 0, 1, 2, 3]
    assert column(table, "llc") == [0, 0, 2, 2, 0, 0, 2, 2]
    assert column(table, "cluster") == [None] * 8
    assert column(table, "socket") == [0] * 8
    assert column(table, "node") == [0] * 8
    assert column(table, "online") == [True] * 8
    assert column(table, "origin") == ["header"] * 8


def test_header_without_caches_takes_the_package_and_says_so() -> None:
    said = IssueLog()
    table = header(said, **ZEN)
    assert column(table, "llc") == [0] * 8
    assert said.counts() == {"llc_is_package": 1}
    said = IssueLog()
    two = {**ZEN, "cores": ["0-1,4-5", "2-3,6-7"], "per_cpu": []}
    table = header(said, **two, caches=[])
    assert column(table, "llc") == [0, 0, 2, 2, 0, 0, 2, 2]
    assert column(table, "socket") == [0, 0, 1, 1, 0, 0, 1, 1]
    assert said.counts() == {"llc_is_package": 1}


def test_header_clusters_share_a_cache_below_the_llc() -> None:
    """E cores: four cores on one L2, all on the L3."""
    table = header(
        available=8,
        threads=[str(c) for c in range(8)],
        caches=[
            HeaderCache(2, "Unified", "0-3"),
            HeaderCache(2, "Unified", "4-7"),
            HeaderCache(3, "Unified", "0-7"),
        ],
    )
    assert column(table, "cluster") == [0, 0, 0, 0, 1, 1, 1, 1]
    assert column(table, "llc") == [0] * 8


def test_header_with_an_offline_cpu_in_the_middle() -> None:
    table = header(
        available=4,
        online=3,
        cores=["0-1,3"],
        threads=["0-1", "3"],
        per_cpu=[(0, 0), (0, 0), (-1, -1), (1, 0)],
        caches=[HeaderCache(3, "Unified", "0-1,3")],
    )
    assert column(table, "cpu") == [0, 1, 2, 3]
    assert column(table, "online") == [True, True, False, True]
    assert column(table, "llc") == [0, 0, 2, 0]
    assert column(table, "socket") == [0, 0, None, 0]


def test_header_that_contradicts_itself_is_said() -> None:
    for changed, times in (
        ({"per_cpu": [(c, 0) for c in range(8)]}, 4),  # siblings with different core ids
        ({"cores": ["0-3", "4-7"], "per_cpu": []}, 4),  # siblings in two packages
        ({"threads": ["0,4", "1,4", "1,5", "2,6", "3,7"]}, 2),  # overlapping lists
        ({"online": 7}, 1),
        ({"threads": ["0,4", "1,5", "2,6", "3,7", "0-99999999"]}, 1),
    ):
        said = IssueLog()
        table = header(said, **{**ZEN, **changed}, caches=[HeaderCache(3, "Unified", "0-7")])
        assert said.counts()["topology_contradiction"] >= times, changed
        assert set(said.counts()) == {"topology_contradiction"}
        assert column(table, "llc") == [0] * 8


def test_header_that_tells_nothing() -> None:
    assert topology.from_perf_header(HeaderTopology(available=8, online=8), IssueLog()) is None


# ---------------------------------------------------------------- lscpu

LSCPU = """\
# The following is the parsable format, which can be fed to other
# programs. Each different item in every column has an unique ID
# starting usually from zero.
"""


@pytest.mark.parametrize(
    "text",
    [
        # explicit columns, levels divided by colons
        LSCPU + "# CPU,Core,Socket,Node,L1d:L1i:L2:L3\n"
        "0,0,0,0,0:0:0:0\n1,1,0,0,1:1:1:0\n2,2,0,1,2:2:2:1\n3,2,0,1,2:2:2:1\n",
        # the default columns
        LSCPU + "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n"
        "0,0,0,0,,0,0,0,0\n1,1,0,0,,1,1,1,0\n2,2,0,1,,2,2,2,1\n3,2,0,1,,2,2,2,1\n",
        # another order of columns
        "# CPU,NODE,CACHE,CORE,SOCKET\n"
        "3,1,2:2:2:1,2,0\n0,0,0:0:0:0,0,0\n1,0,1:1:1:0,1,0\n2,1,2:2:2:1,2,0\n",
        # no head line: the order that traceana asks for
        "0,0,0,0,0:0:0:0\n1,1,0,0,1:1:1:0\n2,2,0,1,2:2:2:1\n3,2,0,1,2:2:2:1\n",
        # one level only
        "# CPU,CORE,SOCKET,NODE,CACHE(last level)\n0,0,0,0,0\n1,1,0,0,0\n2,2,0,1,1\n3,2,0,1,1\n",
        # core ids that begin anew in each package (lscpu --physical)
        "# CPU,Core,Socket,Node,L3\n0,0,0,0,0\n1,1,0,0,0\n\n2,2,0,1,1\n3,2,0,1,1\n",
    ],
)
def test_lscpu(text: str) -> None:
    said = IssueLog()
    table = topology.from_lscpu(text, said)
    assert column(table, "cpu") == [0, 1, 2, 3]
    assert column(table, "core") == [0, 1, 2, 2]
    assert column(table, "llc") == [0, 0, 2, 2]
    assert column(table, "node") == [0, 0, 1, 1]
    assert column(table, "socket") == [0] * 4
    assert column(table, "origin") == ["side_file"] * 4
    assert not said


def test_lscpu_cores_repeat_over_packages() -> None:
    text = "# CPU,Core,Socket,Node,L3\n0,0,0,0,0\n1,0,1,1,1\n"
    assert column(topology.from_lscpu(text, IssueLog()), "core") == [0, 1]


def test_lscpu_without_cache_or_with_offline_cpus() -> None:
    said = IssueLog()
    table = topology.from_lscpu("# CPU,Core,Socket,Node\n0,0,0,\n1,0,0,\n2,,,\n3,1,1,-\n", said)
    assert column(table, "llc") == [0, 0, 2, 3]
    assert column(table, "online") == [True, True, False, True]
    assert column(table, "node") == [None] * 4
    assert said.counts() == {"llc_is_package": 1}
    text = "# CPU,Core,Socket,Node,L3,Online\n0,0,0,0,0,Y\n1,0,0,0,0,N\n"
    table = topology.from_lscpu(text, IssueLog())
    assert column(table, "online") == [True, False]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("0,0,0,0,0\nx,0,0,0,0\n", 2),
        ("0,0,0,0,0\n0,0,0,0,0\n", 2),
        ("# CPU,CORE\n0,zero\n", 2),
        ("0,0,0,0,a:b\n", 1),
        ("999999,0,0,0,0\n", 1),
    ],
)
def test_lscpu_lines_that_cannot_be_read(text: str, line: int) -> None:
    with pytest.raises(FormatError, match=rf"^file:{line}: "):
        topology.from_lscpu(text, IssueLog(), path="file")


def test_lscpu_without_a_cpu() -> None:
    with pytest.raises(FormatError, match="no line of a CPU"):
        topology.from_lscpu("# CPU,CORE\n\n", IssueLog())


# ---------------------------------------------------------------- sysfs


def sysfs(cpus: int = 8) -> dict[str, str]:
    """Two packages of two cores of two threads; L3 per package; CPU 7 offline."""
    files = {
        "cpu/online": "0-6\n",
        "cpu/possible": f"0-{cpus - 1}\n",
        "cpu/isolated": "\n",
        "node/node0/cpulist": "0-3\n",
        "node/node1/cpulist": "4-6\n",
        "cpu/cpu7/online": "0\n",
    }
    for cpu in range(7):
        core, package = cpu // 2, cpu // 4
        last = min(core * 2 + 1, 6)
        siblings = f"{core * 2}-{last}" if last > core * 2 else str(last)
        of_package = "0-3" if package == 0 else "4-6"
        here = f"cpu/cpu{cpu}/"
        files |= {
            here + "topology/core_id": f"{core % 2}\n",
            here + "topology/physical_package_id": f"{package}\n",
            here + "topology/thread_siblings_list": siblings + "\n",
            here + "topology/core_siblings_list": of_package + "\n",
            here + "topology/cluster_cpus_list": siblings + "\n",
            here + "topology/core_cpus": "03\n",
            here + "cache/index0/level": "1\n",
            here + "cache/index0/type": "Data\n",
            here + "cache/index0/shared_cpu_list": siblings + "\n",
            here + "cache/index3/level": "3\n",
            here + "cache/index3/type": "Unified\n",
            here + "cache/index3/shared_cpu_list": of_package + "\n",
        }
    return files


def write_folder(base: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return base


def pack(files: dict[str, str], prefix: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def check_sysfs(table: pa.Table) -> None:
    assert column(table, "cpu") == list(range(8))
    assert column(table, "core") == [0, 0, 1, 1, 2, 2, 3, 4]
    assert column(table, "llc") == [0, 0, 0, 0, 4, 4, 4, 7]
    assert column(table, "node") == [0, 0, 0, 0, 1, 1, 1, None]
    assert column(table, "socket") == [0, 0, 0, 0, 1, 1, 1, None]
    assert column(table, "cluster") == [None] * 8
    assert column(table, "online") == [True] * 7 + [False]
    assert column(table, "origin") == ["side_file"] * 8


@pytest.mark.parametrize("inside", ["", "sys/devices/system", "devices/system", "host-a/x/system"])
def test_sysfs_folder_at_any_depth(inside: str, tmp_path: Path) -> None:
    write_folder(tmp_path / inside, sysfs())
    said = IssueLog()
    check_sysfs(topology.load_side_file(tmp_path, said))
    assert not said


def test_sysfs_folder_of_the_cpus_alone(tmp_path: Path) -> None:
    write_folder(tmp_path, sysfs())
    table = topology.from_sysfs(tmp_path / "cpu", IssueLog())
    assert column(table, "core") == [0, 0, 1, 1, 2, 2, 3, 4]
    assert column(table, "node") == [None] * 8


@pytest.mark.parametrize("prefix", ["", "./", "sys/devices/system/", "deep/er/system/"])
@pytest.mark.parametrize("wrap", [bytes, lzma.compress, gzip.compress])
def test_sysfs_tar(prefix: str, wrap: Any, tmp_path: Path) -> None:
    path = tmp_path / "whatever.json"
    path.write_bytes(wrap(pack(sysfs(), prefix)))
    said = IssueLog()
    check_sysfs(topology.load_side_file(path, said))
    assert not said


def test_sysfs_without_caches_or_lists() -> None:
    files = {
        f"cpu/cpu{c}/topology/{name}": str(value)
        for c in range(4)
        for name, value in (("core_id", c // 2), ("physical_package_id", 0))
    }
    said = IssueLog()
    table = topology.from_sysfs(pack(files), said)
    assert column(table, "core") == [0, 0, 1, 1]
    assert column(table, "llc") == [0] * 4
    assert said.counts() == {"llc_is_package": 1}


def test_sysfs_clusters_and_isolated_cpus() -> None:
    files = sysfs() | {"cpu/isolated": "2-3\n"}
    for cpu in range(4):
        files[f"cpu/cpu{cpu}/topology/cluster_cpus_list"] = "0-3"
    for cpu in range(7):
        files[f"cpu/cpu{cpu}/cache/index3/shared_cpu_list"] = "0-6"
    said = IssueLog()
    table = topology.from_sysfs(pack(files), said)
    assert column(table, "cluster") == [0, 0, 0, 0, None, None, None, None]
    assert said.counts() == {"isolated_cpus": 2}


def test_sysfs_that_contradicts_itself_is_said() -> None:
    files = sysfs() | {"cpu/cpu1/topology/thread_siblings_list": "1"}
    said = IssueLog()
    topology.from_sysfs(pack(files), said)
    assert said.counts() == {"topology_contradiction": 1}


def test_hostile_tar_members_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    outside.write_text("0-3")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in sysfs().items():
            member = tarfile.TarInfo("sys/devices/system/" + name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            link = tarfile.TarInfo("sys/devices/system/cpu/cpu9/topology/thread_siblings_list")
            link.type, link.linkname = kind, str(outside)
            tar.addfile(link)
        climbing = tarfile.TarInfo("../../escaped")
        climbing.size = 1
        tar.addfile(climbing, io.BytesIO(b"x"))
        copies = tarfile.TarInfo("sys/devices/system/node/node0/cpu0/topology/core_id")
        copies.size = 1
        tar.addfile(copies, io.BytesIO(b"5"))
    check_sysfs(topology.from_sysfs(out.getvalue(), IssueLog()))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["secret"]


def test_sysfs_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no CPU of /sys/devices/system"):
        topology.load_side_file(write_folder(tmp_path / "a", {"x/y": "1"}), IssueLog())
    both = {f"{host}/{n}": t for host in ("one", "two") for n, t in sysfs().items()}
    with pytest.raises(FormatError, match="several machines: one/cpu and two/cpu"):
        topology.from_sysfs(pack(both), IssueLog())
    bad = sysfs() | {"cpu/cpu0/topology/thread_siblings_list": "0-99999999"}
    with pytest.raises(FormatError, match="not a CPU list"):
        topology.from_sysfs(pack(bad), IssueLog())


# ---------------------------------------------------------------- JSON

ROWS = [
    {"cpu": 0, "core": 0, "llc": 10, "node": 0, "socket": 0},
    {"cpu": 1, "core": 0, "llc": 10, "node": 0, "socket": 0, "online": True},
    {"cpu": 4, "core": 7, "llc": 11, "node": 1, "socket": None, "cluster": None},
    {"cpu": 5, "core": 8, "llc": 11, "node": 1, "online": False, "origin": "header"},
]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ROWS),
        json.dumps({"topology": ROWS}),
        json.dumps({n: [r.get(n) for r in ROWS] for n in ("cpu", "core", "llc", "node", "socket")}),
        "\ufeff\n" + json.dumps(ROWS[::-1]),
    ],
)
def test_json(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(text)
    table = topology.load_side_file(path, IssueLog())
    assert column(table, "cpu") == [0, 1, 4, 5]
    assert column(table, "core") == [0, 0, 7, 8], "the user's own numbers stay"
    assert column(table, "llc") == [0, 0, 4, 4]
    assert column(table, "node") == [0, 0, 1, 1]
    assert column(table, "socket") == [0, 0, None, None]
    assert column(table, "origin") == ["side_file"] * 4


def test_a_table_written_as_json_comes_back() -> None:
    table = topology.from_sysfs(pack(sysfs()), IssueLog())
    for written in (table.to_pylist(), table.to_pydict()):
        assert topology.from_json(json.dumps(written)).equals(table)


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([], "at least one CPU"),
        ({}, "lists of one length"),
        ({"cpu": [0], "core": [0, 1], "llc": [0]}, "lists of one length"),
        ({"cpu": 3}, "lists of one length"),
        (3, "a list of rows"),
        ([3], "row 0 is not an object"),
        ([{"core": 0, "llc": 0}], "row 0: cpu is missing"),
        ([{"cpu": 0, "core": 0}], "row 0: llc is missing"),
        ([{"cpu": 0, "core": None, "llc": 0}], "core is missing"),
        ([{"cpu": -1, "core": 0, "llc": 0}], "cpu is -1, expected a number from 0"),
        ([{"cpu": True, "core": 0, "llc": 0}], "cpu is True"),
        ([{"cpu": "0", "core": 0, "llc": 0}], "cpu is '0'"),
        ([{"cpu": 0.5, "core": 0, "llc": 0}], "cpu is 0.5"),
        ([{"cpu": 99999999, "core": 0, "llc": 0}], "beyond 65535"),
        ([{"cpu": 0, "core": 0, "llc": 0, "online": 1}], "online is 1"),
        ([{"cpu": 0, "core": 0, "llc": 0, "colour": 1}], "unknown column 'colour'"),
        ([{"cpu": 0, "core": 0, "llc": 0}] * 2, "cpu 0 has two rows"),
        (
            [{"cpu": 0, "core": 3, "llc": 0}, {"cpu": 1, "core": 3, "llc": 1}],
            "cpu 0 and cpu 1 are one core but differ in llc",
        ),
        (
            [
                {"cpu": 0, "core": 3, "llc": 0, "node": 0},
                {"cpu": 1, "core": 3, "llc": 0, "node": 1},
            ],
            "differ in node",
        ),
    ],
)
def test_json_that_is_wrong(rows: Any, what: str) -> None:
    with pytest.raises(FormatError) as raised:
        topology.from_json(json.dumps(rows), path="t.json")
    assert what in str(raised.value)
    assert "\n" not in str(raised.value)


# ---------------------------------------------------------------- side files


def test_find_side_file(tmp_path: Path) -> None:
    assert topology.find_side_file(tmp_path / "a.dat") is None
    side = tmp_path / "a.dat.topology.json"
    side.write_text("[]")
    assert topology.find_side_file(tmp_path / "a.dat") == side
    assert topology.find_side_file(tmp_path / "a.dat.xz") == side
    nearer = tmp_path / "a.dat.xz.topology.json"
    nearer.write_text("[]")
    assert topology.find_side_file(tmp_path / "a.dat.xz") == nearer


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"hello",
        b"{",
        b"[1,",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xfe\x00",
        b"\xfd7zXZ\0rubbish",
        b"\x1f\x8b\x08rubbish",
        b"\x28\xb5\x2f\xfdrubbish",
        b"BZh9rubbish",
        lzma.compress(b"hello"),
        b"[" * 100_000,
        bytes(random.Random(3).randbytes(3000)),
    ],
)
def test_side_files_that_are_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        topology.load_side_file(path, IssueLog())
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_side_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        topology.load_side_file(tmp_path / "none", IssueLog())


def test_a_tar_cut_anywhere(tmp_path: Path) -> None:
    whole = pack(sysfs())
    path = tmp_path / "t.tar"
    for size in range(300, len(whole), 2531):
        path.write_bytes(whole[:size])
        try:
            schema.check(topology.load_side_file(path, IssueLog()))
        except InputError as error:
            assert "\n" not in str(error)


def test_side_files_of_the_recordings_agree(shared: Path) -> None:
    """lscpu -p and the sysfs tar of each recorded machine say the same."""
    folders = [p.parent for p in (shared / "captures").glob("**/cpus.lscpu-p.csv")]
    assert len(folders) >= 4
    for folder in folders:
        said = IssueLog()
        one = topology.load_side_file(folder / "cpus.lscpu-p.csv", said)
        two = topology.load_side_file(folder / "sys.tar.xz", said)
        for name in ("cpu", "core", "cluster", "llc", "socket", "online"):
            assert column(one, name) == column(two, name), folder
        assert not said


# ---------------------------------------------------------------- arrays


def test_arrays_of_a_machine_with_two_llcs() -> None:
    got = topology.as_arrays(topology.from_sysfs(pack(sysfs()), IssueLog()))
    assert got.n_cpus == 8
    assert got.core.tolist() == [0, 0, 1, 1, 2, 2, 3, 4]
    assert (got.n_cores, got.n_llc) == (5, 3)
    assert got.llc.tolist() == [0, 0, 0, 0, 1, 1, 1, 2]
    assert got.llc_id.tolist() == [0, 4, 7]
    assert got.llc_weight.tolist() == [4, 3, 0]
    assert got.llc_start.tolist() == [0, 4, 7, 7]
    assert got.llc_cpus.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert got.core_start.tolist() == [0, 2, 4, 6, 7, 7]
    assert got.core_cpus.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert got.node.tolist() == [0, 0, 0, 0, 1, 1, 1, -1]
    assert got.socket.tolist() == [0, 0, 0, 0, 1, 1, 1, -1]
    assert got.online.tolist() == [1] * 7 + [0]
    assert got.known.tolist() == [1] * 8
    assert got.has_smt
    for name in ("core", "llc", "llc_id", "llc_weight", "llc_start", "llc_cpus", "core_start"):
        assert getattr(got, name).dtype == "int32"


def test_arrays_for_cpus_that_the_table_does_not_name() -> None:
    got = topology.as_arrays(topology.assumed([1, 3]), 6)
    assert got.n_cpus == 6
    assert got.known.tolist() == [0, 1, 0, 1, 0, 0]
    assert len({got.llc[1], got.llc[3]}) == 1
    assert len(set(got.llc.tolist())) == 5, "each of the others is alone"
    assert got.llc_id[got.llc].tolist() == [0, 1, 2, 1, 4, 5]
    assert got.llc_weight[got.llc].tolist() == [1, 2, 1, 2, 1, 1]
    assert got.online.tolist() == [1] * 6
    assert not got.has_smt
    empty = topology.as_arrays(topology.assumed(0))
    assert (empty.n_cpus, empty.n_llc, empty.n_cores, empty.has_smt) == (0, 0, 0, False)


@given(
    st.dictionaries(
        st.integers(0, 40),
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()),
        min_size=1,
    )
)
def test_arrays_say_what_the_table_says(machine: dict[int, tuple[int, int, bool]]) -> None:
    rows = [
        {"cpu": cpu, "core": core * 10 + llc, "llc": llc, "online": online}
        for cpu, (core, llc, online) in machine.items()
    ]
    table = topology.from_json(json.dumps(rows))
    got = topology.as_arrays(table, 45)
    said = {row["cpu"]: row for row in table.to_pylist()}
    for cpu, row in said.items():
        for what, start, members in (
            ("llc", got.llc_start, got.llc_cpus),
            ("core", got.core_start, got.core_cpus),
        ):
            group = getattr(got, what)[cpu]
            expected = [c for c in sorted(said) if said[c][what] == row[what] and said[c]["online"]]
            assert members[start[group] : start[group + 1]].tolist() == expected
        group = got.llc[cpu]
        online = [c for c in sorted(said) if said[c]["llc"] == row["llc"] and said[c]["online"]]
        assert got.llc_weight[group] == len(online)
        assert got.llc_id[group] == row["llc"]
