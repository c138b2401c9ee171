"""Pages with formats beside: SchedViz archives, copies of trace_pipe_raw, in folders and tars."""

from __future__ import annotations

import gzip
import io
import random
import re
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from traceana.columns import EventColumns
from traceana.errors import FormatError, InputError, UnsupportedError
from traceana.parsers.archive import folder_names, is_tar, tar_files
from traceana.parsers.raw_pages import page_cpu
from traceana.parsers.reader import Reader
from traceana.parsers.registry import open_reader
from traceana.schema import EventKind

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "oracle")]
import ring_oracle as oracle  # noqa: E402
import trace_dat_writer as w  # noqa: E402

SWITCHES = [(101, 0, 1, 2), (102, 1, 3, 4), (111, 0, 2, 1), (112, 1, 4, 3)]


def pages(kernel: w.Kernel, size: int = 4096) -> dict[int, bytes]:
    """Two CPUs with a page each, four switches."""
    out = {}
    for cpu in (0, 1):
        page = w.Page(kernel, 100, size)
        prev = 1 + 2 * cpu
        for delta, (a, b) in ((1 + cpu, (prev, prev + 1)), (10, (prev + 1, prev))):
            page.event(
                kernel.pack("sched_switch", a, prev_comm=b"t%d" % a, prev_pid=a, prev_prio=120,
                            prev_state=1, next_comm=b"t%d" % b, next_pid=b, next_prio=120),
                delta,
            )  # fmt: skip
        out[cpu] = page.bytes()
    return out


def schedviz(kernel: w.Kernel, size: int = 4096, prefix: str = "") -> dict[str, bytes]:
    files = {
        "metadata.textproto": b"trace_type: FTRACE\n",
        "formats/header_page": w.header_page(kernel, size),
        "options/overwrite": b"1\n",
    }
    for layout in kernel.layouts.values():
        files[f"formats/{layout.system}/{layout.name}/format"] = layout.text()
    for cpu, data in pages(kernel, size).items():
        files[f"traces/cpu{cpu}"] = data
        base = f"topology/node0/cpu{cpu}/topology/"
        files[base + "core_id"] = b"0\n"
        files[base + "physical_package_id"] = b"0\n"
        files[base + "thread_siblings_list"] = b"0-1\n"
    return {prefix + name: data for name, data in files.items()}


def raw(kernel: w.Kernel, size: int = 4096) -> dict[str, bytes]:
    files = {
        "raw/header_page": w.header_page(kernel, size),
        "raw/header_event": w.HEADER_EVENT,
        "raw/cpu7.raw": b"",
        "raw/trace_clock": b"local global [mono] boot\n",
        "raw/saved_cmdlines": b"9 sleeper\n",
        "raw/per_cpu/cpu1/stats": b"entries: 2\noverrun: 50\nread events: 0\ndropped events: 0\n",
    }
    for layout in kernel.layouts.values():
        files[f"raw/events/{layout.name}.format"] = layout.text()
    for cpu, data in pages(kernel, size).items():
        files[f"raw/per_cpu/cpu{cpu}/trace_pipe_raw"] = data
    return files


def tar(files: dict[str, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def put_tar(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "capture"
    path.write_bytes(gzip.compress(tar(files)))
    return path


def put_folder(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        place = folder / "capture" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return folder / "capture"


Put = Callable[[Path, dict[str, bytes]], Path]


def read(path: Path) -> tuple[Reader, EventColumns]:
    reader = open_reader(path)
    return reader, EventColumns.concat([c.events for c in reader.chunks()])


def switches(events: EventColumns) -> list[tuple[int, int, int, int]]:
    rows = events.take(events.kind == EventKind.SWITCH)
    return list(
        zip(rows.ts.tolist(), rows.cpu.tolist(), rows.subject.tolist(), rows.other.tolist(),
            strict=True)
    )  # fmt: skip


@pytest.mark.parametrize("put", [put_tar, put_folder])
@pytest.mark.parametrize(
    ("kernel", "size"),
    [(w.Kernel(), 4096), (w.Kernel(long=4), 4096), (w.Kernel(big=True), 4096),
     (w.Kernel(big=True, long=4), 4096), (w.Kernel(), 65536)],
)  # fmt: skip
def test_a_schedviz_archive(tmp_path: Path, put: Put, kernel: w.Kernel, size: int) -> None:
    reader, events = read(put(tmp_path, schedviz(kernel, size)))
    assert reader.meta.form == "SchedViz archive"
    assert switches(events) == SWITCHES
    assert reader.counts == {"sched_switch": 4}
    assert not reader.damaged
    assert reader.meta.cpus_present == 2
    table = reader.topology()
    assert table is not None
    assert table["core"].to_pylist() == [0, 0]
    assert table["llc"].to_pylist() == [0, 0]
    assert reader.issues.counts() == {"clock_unknown": 1, "llc_is_package": 1}


def test_paths_may_begin_with_a_dot_and_lie_deeper(tmp_path: Path) -> None:
    for prefix in ("./", "some/folder/"):
        _, events = read(put_tar(tmp_path, schedviz(w.Kernel(), prefix=prefix)))
        assert switches(events) == SWITCHES


def test_without_metadata_and_topology(tmp_path: Path) -> None:
    files = schedviz(w.Kernel())
    files = {n: d for n, d in files.items() if not n.startswith(("metadata", "topology"))}
    reader, events = read(put_tar(tmp_path, files))
    assert switches(events) == SWITCHES
    assert reader.topology() is None
    assert reader.meta.cpus_present == 2


def test_the_private_text_of_a_bpftrace_script_is_refused(tmp_path: Path) -> None:
    files = {"metadata.textproto": b"trace_type: EBPF\n", "ebpf_trace": b"S:1f:0:1:2\n"}
    with pytest.raises(UnsupportedError, match="trace_type EBPF"):
        open_reader(put_tar(tmp_path, files))


@pytest.mark.parametrize("put", [put_tar, put_folder])
@pytest.mark.parametrize("kernel", [w.Kernel(), w.Kernel(big=True, long=4)])
def test_raw_pages_with_formats(tmp_path: Path, put: Put, kernel: w.Kernel) -> None:
    reader, events = read(put(tmp_path, raw(kernel)))
    assert reader.meta.form == "raw ring-buffer pages"
    assert (reader.meta.clock, reader.meta.cpus_present) == ("mono", 3)
    assert switches(events) == SWITCHES
    begins = events.take(events.kind == EventKind.BEGIN)
    assert begins.cpu.tolist() == [1]
    assert "cpu 1: 50 events before its first were overwritten: its data begins late" in (
        reader.issues.texts()
    )
    names = {n.pid: n.comm for c in reader.chunks() for n in c.names}
    assert names[9] == b"sleeper"
    assert reader.extra_events("sched_switch").num_rows == 4


def test_without_header_page_the_usual_one_is_taken(tmp_path: Path) -> None:
    files = {n: d for n, d in raw(w.Kernel()).items() if "header_page" not in n}
    reader, events = read(put_tar(tmp_path, files))
    assert switches(events) == SWITCHES
    assert reader.issues.counts()["header_page_missing"] == 1


def test_formats_that_tell_nothing(tmp_path: Path) -> None:
    kernel = w.Kernel()
    files = {"cpu0": pages(kernel)[0], "x.format": b"rubbish"}
    with pytest.raises(UnsupportedError, match="without the formats"):
        open_reader(put_tar(tmp_path, files))
    files = raw(kernel) | {"raw/header_page": b"rubbish"}
    with pytest.raises(FormatError, match="header_page"):
        open_reader(put_tar(tmp_path, files))


def test_pages_alone_are_refused_with_what_is_missing(tmp_path: Path) -> None:
    kernel = w.Kernel()
    path = tmp_path / "cpu0"
    path.write_bytes(pages(kernel)[0])
    with pytest.raises(FormatError, match=r"without the formats.*events/\*/\*/format"):
        open_reader(path)


@pytest.mark.parametrize(
    ("name", "cpu"),
    [("cpu3", 3), ("a/cpu12.raw", 12), ("x/trace.dat.cpu5", 5), ("trace_pipe_raw.4", 4),
     ("per_cpu/cpu7/trace_pipe_raw", 7), ("cpu3.txt", None), ("cpus", None), ("cpu1/stats", None)],
)  # fmt: skip
def test_names_of_pages(name: str, cpu: int | None) -> None:
    assert page_cpu(name) == cpu


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_files_of_a_tar_are_those_of_tarfile(form: int) -> None:
    long = "folder/" * 12 + "name"
    files = {"a": b"x" * 700, "b/c": b"", long: b"deep", "d": b"last"}
    if form != tarfile.USTAR_FORMAT:
        files["é" * 90 + "/" + "n" * 130] = b"far"
    data = tar(files, form)
    assert is_tar(data)
    found = tar_files(data)
    assert {n: found.read(n) for n in found.places} == files
    assert found.cut is None
    cut = tar_files(data[:900])
    assert "ends inside 'a'" in str(cut.cut)
    assert cut.places == {"a": (found.places["a"][0], 900 - found.places["a"][0])}


def test_a_cut_archive_gives_what_is_whole(tmp_path: Path) -> None:
    files = raw(w.Kernel())
    data = tar(files)
    path = tmp_path / "x"
    path.write_bytes(data[: data.index(files["raw/per_cpu/cpu1/trace_pipe_raw"]) + 2000])
    reader, events = read(path)
    assert reader.damaged
    assert any("the tar archive ends inside" in t for t in reader.issues.texts())
    assert {c for _, c, _, _ in switches(events)} == {0, 1}


def test_folder_names_do_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert folder_names(tmp_path) == ["a"]


def test_damaged_archives_never_end_in_a_traceback(tmp_path: Path) -> None:
    rng = random.Random(5)
    kernel = w.Kernel()
    for name in list(kernel.layouts):
        if name != "sched_switch":
            del kernel.layouts[name]
    whole = [tar(schedviz(kernel)), tar(raw(kernel))]
    for turn in range(300):
        bad = bytearray(whole[turn % 2])
        for _ in range(rng.randint(1, 6)):
            bad[rng.randrange(len(bad))] = rng.choice([0, 255, rng.randrange(256)])
        if turn % 3 == 0:
            del bad[rng.randrange(len(bad)) :]
        path = tmp_path / "x"
        path.write_bytes(bytes(bad))
        try:
            _, events = read(path)
            assert len(events) <= 2000
        except InputError as error:
            assert "\n" not in str(error)


# real captures


def test_real_captures(shared: Path) -> None:
    path = shared / "captures" / "public" / "schedviz-1cpu.tar.gz"
    if not path.exists():
        pytest.skip("no published captures beside the repository")
    reader, events = read(path)
    # counts of the archive's INDEX, made by another reader
    assert reader.counts == {
        "sched_switch": 15056, "sched_wakeup": 11134, "sched_wakeup_new": 2732,
    }  # fmt: skip
    assert int((events.kind == EventKind.SWITCH).sum()) == 15056
    with pytest.raises(UnsupportedError, match="EBPF"):
        open_reader(path.with_name("schedviz-ebpf.tar.gz"))
    with pytest.raises(FormatError, match="without the formats"):
        open_reader(path.with_name("page-sched_switch.bin"))


def test_real_raw_pages(shared: Path) -> None:
    path = shared / "captures" / "forms" / "raw-pages.tar.xz"
    if not path.exists():
        pytest.skip("no ../shared/captures/forms/raw-pages.tar.xz")
    reader, _ = read(path)
    assert reader.meta.cpus_present == 8
    assert not reader.damaged
    # against the reader of pages that shares nothing with this one
    counts: dict[str, int] = {}
    with tarfile.open(path) as archive:
        data = {m.name: archive.extractfile(m).read() for m in archive if m.isreg()}  # type: ignore[union-attr]
    ids = {
        int(re.findall(rb"^ID: (\d+)$", text, re.M)[0]): Path(name).stem
        for name, text in data.items()
        if name.endswith(".format")
    }
    for name, raw_bytes in data.items():
        if name.endswith(".raw"):
            for record in oracle.read_cpu(raw_bytes, page_size=4096, big=False, long=8).records:
                ident = int.from_bytes(record.payload[:2], "little")
                event = ids.get(ident, f"unknown_{ident}")
                counts[event] = counts.get(event, 0) + 1
    assert reader.counts == counts
    assert counts["sched_switch"] > 1000
