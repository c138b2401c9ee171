"""What an input is, by its content: forms, wrappers, and things that are no captures."""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import json
import lzma
import os
import random
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from traceana.errors import FormatError, InputError, UnsupportedError, UsageError
from traceana.parsers import unwrap
from traceana.parsers.archive import is_tar
from traceana.parsers.registry import FORMS, choose, open_reader
from traceana.parsers.unwrap import open_input

sys.path.insert(0, str(Path(__file__).parent))
import trace_dat_writer as w


def capture() -> bytes:
    kernel = w.Kernel()
    page = w.Page(kernel, 100)
    for pid in range(1, 5):
        page.event(kernel.pack("sched_waking", 1, comm=b"x", pid=pid, target_cpu=0), 1)
    return w.v6(w.Capture(kernel, {0: page.bytes()}))


TEXT = b"""# tracer: nop
#
          <idle>-0     [001] d..2.   100.000010: sched_waking: comm=w pid=30 prio=120 target_cpu=000
          <idle>-0     [000] d..2.   100.000012: sched_wakeup: comm=w pid=30 prio=120 target_cpu=000
"""


def zipped(data: bytes, *more: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trace.dat", data)
        for name in more:
            archive.writestr(name, b"x")
    return out.getvalue()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


def pzstd(data: bytes) -> bytes:
    """Frames, each headed by a frame that is to be skipped."""
    skip = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"head"
    return skip + zstd(data[:100]) + skip + zstd(data[100:])


WRAPPERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "zstd": zstd,
    "zip": zipped,
}


def put(folder: Path, data: bytes, name: str = "x.txt") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def counts(path: Path) -> tuple[str, dict[str, int], bool]:
    reader = open_reader(path)
    for _ in reader.chunks():
        pass
    return reader.meta.form, reader.counts, reader.damaged


@pytest.mark.parametrize("name", ["x.txt", "x.data", "x.png", "x"])
def test_the_name_does_not_matter(tmp_path: Path, name: str) -> None:
    assert counts(put(tmp_path, capture(), name)) == ("trace.dat v6", {"sched_waking": 4}, False)
    _, found, _ = counts(put(tmp_path, TEXT, name))
    assert found == {"sched_waking": 1, "sched_wakeup": 1}


@pytest.mark.parametrize("kind", WRAPPERS)
def test_wrappers_open_as_what_is_inside(tmp_path: Path, kind: str) -> None:
    reader = open_reader(put(tmp_path, WRAPPERS[kind](capture())))
    assert reader.meta.form == "trace.dat v6"
    assert reader.meta.extra["wrapper"] == kind
    assert sum(len(c.events) for c in reader.chunks()) == 4


def test_wrappers_of_several_streams(tmp_path: Path) -> None:
    data = capture()
    for pack in (gzip.compress, lzma.compress, bz2.compress, zstd):
        path = put(tmp_path, pack(data[:1000]) + pack(data[1000:]))
        assert bytes(open_input(path).buf) == data
    assert bytes(open_input(put(tmp_path, pzstd(data))).buf) == data


def test_wrappers_in_wrappers(tmp_path: Path) -> None:
    data = capture()
    three = gzip.compress(lzma.compress(zstd(data)))
    given = open_input(put(tmp_path, three))
    assert bytes(given.buf) == data
    assert given.wrappers == ["gzip", "xz", "zstd"]
    with pytest.raises(FormatError, match="more than 3 wrappers"):
        open_input(put(tmp_path, bz2.compress(three)))


def test_large_content_goes_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwrap, "IN_MEMORY", 1000)
    data = random.Random(1).randbytes(3_000_000) + bytes(5_000_000)
    for pack in WRAPPERS.values():
        given = open_input(put(tmp_path, pack(data)))
        assert not isinstance(given.buf, bytes)
        assert bytes(given.buf) == data


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwrap, "BOMB_SIZE", 1 << 20)
    monkeypatch.setattr(unwrap, "BOMB_RATIO", 100)
    for kind, pack in WRAPPERS.items():
        with pytest.raises(FormatError, match="when unpacked"):
            open_input(put(tmp_path, pack(bytes(8 << 20))))
        assert kind


@pytest.mark.parametrize("kind", ["gzip", "xz", "bzip2", "zstd"])
def test_a_cut_wrapper_gives_what_is_whole(tmp_path: Path, kind: str) -> None:
    lines = b"".join(
        b"  <idle>-0   [001] d..2. %d.%06d: sched_waking: comm=w pid=30 prio=120 target_cpu=000\n"
        % (100 + i // 1000, random.Random(i).randrange(1000000))
        for i in range(40000)
    )
    packed = WRAPPERS[kind](TEXT + lines)
    path = put(tmp_path, packed[: len(packed) - 5000])
    reader = open_reader(path)
    assert sum(len(c.events) for c in reader.chunks()) > 1000
    assert reader.damaged
    assert any("cut after" in text for text in reader.issues.texts())


@pytest.mark.parametrize("kind", WRAPPERS)
def test_damaged_wrappers_never_end_in_a_traceback(tmp_path: Path, kind: str) -> None:
    packed = WRAPPERS[kind](capture())
    rng = random.Random(3)
    for _ in range(150):
        bad = bytearray(packed)
        for _ in range(rng.randint(1, 3)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        bad = bad[: rng.choice([len(bad), rng.randrange(len(bad))])]
        path = put(tmp_path, bytes(bad))
        try:
            for _ in open_reader(path).chunks():
                pass
        except InputError as error:
            assert "\n" not in str(error)


def tar(*names: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 5
            archive.addfile(entry, io.BytesIO(b"dummy"))
    return out.getvalue()


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def perfetto() -> bytes:
    packet = b"\x40" + varint(123456789) + b"\x5a" + varint(200) + bytes(200)
    return (b"\x0a" + varint(len(packet)) + packet) * 30


LATENCY = b"""
 -------------------------------------------------------------------------------------------
  Task                  |   Runtime ms  | Switches | Avg delay ms    | Max delay ms    |
 -------------------------------------------------------------------------------------------
  pp-a-0:1716           |     12.000 ms |     1200 | avg:   0.002 ms | max:   0.010 ms |
"""
TIMEHIST = b"""           time    cpu  task name              wait time  sch delay   run time
                        [tid/pid]                          (msec)     (msec)     (msec)
--------------- ------  ------------------------------  ---------  ---------  ---------
"""

REFUSED: list[tuple[bytes, type[InputError], str]] = [
    (b"", FormatError, "an empty file"),
    (b"\x89PNG\r\n\x1a\n" + bytes(100), FormatError, "a PNG picture"),
    (b"\x7fELF\x02\x01\x01" + bytes(100), FormatError, "an ELF"),
    (b"%PDF-1.7\n" + bytes(100), FormatError, "a PDF document"),
    (b'{"name": "x", "value": [1, 2]}', FormatError, "JSON"),
    (b'{"traceEvents": [{"ph": "X"}]}', InputError, "JSON"),
    (b'[{"ph":"X","ts":1}]', InputError, "JSON"),
    (b"OHOSPROF" + bytes(100), UnsupportedError, "OpenHarmony"),
    (b"\xc1\x1f\xfc\xc1" + bytes(100), UnsupportedError, "CTF"),
    (b"/* CTF 1.8 */\ntrace {\n};\n", UnsupportedError, "CTF"),
    (bytes(72) + b"\x02\x00\x02\xc0" + bytes(100), FormatError, "ETL"),
    (b"SQLite format 3\0" + bytes(100), FormatError, "SQLite"),
    (tar("notes", "more"), FormatError, "a tar archive without a capture (nor traces/cpuN"),
    (tar("traces/cpu0", "formats/header_page"), FormatError, "header_page"),
    (b"<!DOCTYPE html>\n<html><body>hello</body></html>", FormatError, "an HTML page"),
    (LATENCY, FormatError, "perf sched latency"),
    (TIMEHIST, FormatError, "perf sched timehist"),
    (b"# To display the perf.data header info, please use --header\n#\n# Samples: 3K\n",
     FormatError, "perf report"),
    (b"Attaching 1 probe...\n\n@usecs:\n[1]   3 |@@@  |\n", FormatError, "bpftrace"),
    (b"     usecs               : count     distribution\n", FormatError, "BCC"),
    (b"Dear diary,\nnothing happened.\n" * 9, FormatError, "without an event line"),
    ("# tracer: nop\n".encode("utf-16"), FormatError, "UTF-16"),
    (w.Page(w.Kernel(), 100).event(bytes(64), 3).event(bytes(12), 1).bytes(), FormatError,
     "raw pages"),
    (zipped(b"x", "y", "z"), UnsupportedError, "3 files"),
    (gzip.compress(b""), FormatError, "nothing in it"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "error", "what"), REFUSED, ids=[w for _, _, w in REFUSED])
def test_what_is_no_capture_is_named(
    tmp_path: Path, data: bytes, error: type[InputError], what: str
) -> None:
    path = put(tmp_path, data)
    with pytest.raises(error) as caught:
        open_reader(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert what in text
    assert "\n" not in text
    assert text.endswith(")")  # what to do instead
    assert caught.value.exit_code == 3


def test_random_bytes_are_refused(tmp_path: Path) -> None:
    for seed in range(200):
        rng = random.Random(seed)
        data = rng.randbytes(rng.choice([1, 7, 64, 5000, 70000]))
        with pytest.raises(InputError):
            open_reader(put(tmp_path, data))


def test_binary_magic_before_texts() -> None:
    data = capture()
    assert choose(Path("x"), data[:65536], len(data)).name == "trace.dat"


def test_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="a folder"):
        open_reader(tmp_path)
    (tmp_path / "metadata").write_text("/* CTF 1.8 */")
    with pytest.raises(UnsupportedError, match="CTF"):
        open_reader(tmp_path)
    (tmp_path / "metadata").unlink()
    (tmp_path / "trace_pipe").write_text("")
    (tmp_path / "available_events").write_text("sched:sched_switch\n")
    with pytest.raises(FormatError, match="tracefs itself"):
        open_reader(tmp_path)


# archives


def packed(kind: str, files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        return out.getvalue()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as files_of:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            files_of.addfile(entry, io.BytesIO(data))
    return out.getvalue()


BESIDE = {"README.md": b"# How it was recorded\n", "state.json": b'{"tasks": []}', "empty": b""}


@pytest.mark.parametrize("inner", ["", "gzip", "xz", "zstd"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_with_one_capture_is_that_capture(tmp_path: Path, kind: str, inner: str) -> None:
    data = WRAPPERS[inner](capture()) if inner else capture()
    reader = open_reader(put(tmp_path, packed(kind, BESIDE | {"a/trace.dat": data})))
    assert sum(len(c.events) for c in reader.chunks()) == 4
    assert reader.meta.extra["wrapper"] == ", ".join([kind, inner]).removesuffix(", ")
    reader = open_reader(put(tmp_path, gzip.compress(packed(kind, {"x": TEXT}))))
    assert sum(len(c.events) for c in reader.chunks()) == 2


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_with_several_captures_names_them(tmp_path: Path, kind: str) -> None:
    files = BESIDE | {"one.dat": capture(), "two.txt": gzip.compress(TEXT)}
    with pytest.raises(UnsupportedError, match=r"of 2 captures: 'one\.dat', 'two\.txt'"):
        open_reader(put(tmp_path, packed(kind, files)))
    many = {f"{i}.dat": capture() for i in range(12)}
    with pytest.raises(UnsupportedError, match=r"of more than 8 captures: .*'7\.dat', \.\.\. \("):
        open_reader(put(tmp_path, packed(kind, many)))


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_without_a_capture(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InputError, match=f"a {kind} archive"):
        open_reader(put(tmp_path, packed(kind, BESIDE)))


def test_a_zip_archive_with_a_file_of_no_name(tmp_path: Path) -> None:
    # its name stands in both its heads
    data = packed("zip", {"QQQQQQ": capture()}).replace(b"QQQQQQ", bytes(6))
    reader = open_reader(put(tmp_path, data))
    assert sum(len(c.events) for c in reader.chunks()) == 4


def test_a_tar_cut_inside_its_capture(tmp_path: Path) -> None:
    data = packed("tar", BESIDE | {"trace.txt": TEXT * 50})
    reader = open_reader(put(tmp_path, data[: data.index(TEXT) + 7000]))
    assert sum(len(c.events) for c in reader.chunks()) > 10
    assert reader.damaged
    assert any("ends inside 'trace.txt'" in t for t in reader.issues.texts())


def test_a_form_without_buffers_has_none_of_a_name(tmp_path: Path) -> None:
    path = put(tmp_path, TEXT)
    for buffer in (None, "all", "top"):
        assert sum(len(c.events) for c in open_reader(path, buffer=buffer).chunks()) == 2
    with pytest.raises(UsageError, match="no buffer 'inst1'"):
        open_reader(path, buffer="inst1")


def test_every_form_has_what_the_registry_calls() -> None:
    for form in FORMS:
        module = importlib.import_module(form.module)
        if form.many:
            for name in ("is_{}_folder", "open_{}_folder", "is_{}_tar", "open_{}_tar"):
                assert callable(getattr(module, name.format(form.opener)))
            continue
        assert callable(getattr(module, form.opener))
        assert form.magic is not None or callable(module.sniff)
    assert len({form.name for form in FORMS}) == len(FORMS)


def test_perfetto_is_told_by_its_packets() -> None:
    data = perfetto()
    assert choose(Path("x"), data[:65536], len(data)).name == "Perfetto trace"


def test_no_such_file_and_no_right_to_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        open_reader(tmp_path / "nothing")
    path = put(tmp_path, capture())
    path.chmod(0)
    if os.access(path, os.R_OK):
        return  # root reads everything
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        open_reader(path)


def test_standard_input(tmp_path: Path) -> None:
    for data in (capture(), gzip.compress(capture())):
        with put(tmp_path, data).open("rb") as file:
            reader = open_reader("-", stdin=file)
            assert sum(len(c.events) for c in reader.chunks()) == 4
        reader = open_reader("-", stdin=io.BytesIO(data))
        assert sum(len(c.events) for c in reader.chunks()) == 4
    with pytest.raises(FormatError, match="an empty file"):
        open_reader("-", stdin=io.BytesIO(b""))


def test_a_pipe_with_a_name(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(capture()))
    writer.start()
    reader = open_reader(path)
    writer.join()
    assert sum(len(c.events) for c in reader.chunks()) == 4


REFUSED_PUBLIC = {
    "schedviz-ebpf.tar.gz": UnsupportedError,
    "page-sched_switch.bin": FormatError,
    "perf-broken.data.gz": FormatError,
}


def form_of(path: Path) -> str:
    buf = open_input(path).buf
    if is_tar(bytes(buf[:512])):
        return "tar"
    return choose(path, bytes(buf[:65536]), len(buf)).name


def test_captures_of_other_people_open_or_are_named(shared: Path) -> None:
    folder = shared / "captures" / "public"
    if not folder.is_dir():
        pytest.skip("no published captures beside the repository")
    forms: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if path.name == "INDEX.md":
            continue
        if path.name in REFUSED_PUBLIC:
            with pytest.raises(REFUSED_PUBLIC[path.name]):
                open_reader(path)
            continue
        open_reader(path)
        forms[path.name] = form_of(path)
    expected = {"dat6": "trace.dat", "dat7": "trace.dat", "perf": "perf.data",
                "simpleperf": "perf.data", "rpt": "trace-cmd report text",
                "txt": "tracefs text", "script": "perf script text"}  # fmt: skip
    for name in (p.name for p in folder.iterdir()):
        prefix = name.split("-")[0]
        if prefix in expected and name not in REFUSED_PUBLIC:
            assert forms.get(name) == expected[prefix], name


def test_forms_of_the_shared_captures(shared: Path) -> None:
    index = shared / "captures" / "INDEX.json"
    if not index.exists():
        pytest.skip("no ../shared/captures/INDEX.json")
    for name in json.loads(index.read_text()):
        path = shared / "captures" / name
        if not name.startswith("forms/") or ".tar" in name or not path.exists():
            continue
        kind = "trace.dat" if ".dat" in name else "trace-cmd" if ".report" in name else "tracefs"
        assert form_of(path).startswith(kind), name
