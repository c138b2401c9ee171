"""Captures of many files, as folders and tar archives; wrappers around others."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from functools import cache

import trace_dat_writer as dat

from fuzz import make_dat, make_perf, texts
from fuzz.history import HOSTILE, PLAIN, history
from fuzz.mutate import Spice, damage_bytes
from fuzz.target import Files, damaged_folder, single

__all__ = [
    "inside_folder", "inside_tar", "inside_wrapper", "perf_folders", "raw_pages", "schedviz",
    "spice", "tar", "with_tars", "wrapped", "wrapper_spice",
]  # fmt: skip

#: Names that members of archives may have and should not.
_MEMBERS = ("../../x", "/etc/passwd", "data\x1b[31m", "a\nb", "./", "x" * 300, "cpu0", "\udcff", "")


def tar(files: Files) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        size = archive.offset
    # Without the zeros up to a whole record of 10 KiB: small inputs are quicker.
    return out.getvalue()[:size] + bytes(1024)


@cache
def schedviz() -> tuple[Files, ...]:
    kernel = make_dat.kernel_of(events=("sched_switch", "sched_waking", "sched_wakeup"))
    out = []
    for seed, names in ((1, PLAIN), (2, HOSTILE)):
        files = {
            "metadata.textproto": b"trace_type: FTRACE\n",
            "formats/header_page": dat.header_page(kernel, make_dat.PAGE),
            "options/overwrite": b"1\n",
        }
        for layout in kernel.layouts.values():
            files[f"formats/{layout.system}/{layout.name}/format"] = layout.text()
        for cpu, data in make_dat.pages(kernel, history(seed, 10 * seed, names)).items():
            files[f"traces/cpu{cpu}"] = data
            base = f"topology/node0/cpu{cpu}/topology/"
            files[base + "core_id"] = b"0\n"
            files[base + "physical_package_id"] = b"0\n"
            files[base + "thread_siblings_list"] = b"0-1\n"
        out.append(files)
    return tuple(out)


@cache
def raw_pages() -> tuple[Files, ...]:
    out = []
    for seed, big in ((1, False), (2, True)):
        kernel = make_dat.kernel_of(events=("sched_switch", "sched_waking"), big=big)
        files = {
            "header_page": dat.header_page(kernel, make_dat.PAGE),
            "trace_clock": b"local global [mono] boot\n",
            "saved_cmdlines": b"100 alpha\n9 a b\n",
            "per_cpu/cpu1/stats": b"entries: 2\noverrun: 50\nread events: 0\ndropped events: 0\n",
        }
        for layout in kernel.layouts.values():
            files[f"events/{layout.name}.format"] = layout.text()
        for cpu, data in make_dat.pages(kernel, history(seed, 12 * seed)).items():
            files[f"per_cpu/cpu{cpu}/trace_pipe_raw"] = data
        out.append(files)
    return tuple(out)


def perf_folders() -> tuple[Files, ...]:
    return make_perf.folder(0), make_perf.folder(1)


def with_tars(folders: Callable[[], Sequence[Files]]) -> Callable[[], Sequence[Files]]:
    """The folders, and each as a tar archive."""

    @cache
    def make() -> tuple[Files, ...]:
        return (*folders(), *(single(tar(f)) for f in folders()))

    return make


_WORDS = (
    b"ustar\x0000", b"ustar  \0", b"././@LongLink\0", b"12 path=../x\n", b"77777777777\0",
    b"\x80\0\0\0\x7f\xff\xff\xff", b"traces/cpu0", b"header_page", b"trace_type: EBPF\n",
    b"field:int x;",
)  # fmt: skip


@cache
def spice(folders: Callable[[], Sequence[Files]]) -> Spice:
    others = [data for files in folders() for data in files.values()]
    return Spice(_WORDS, (*PLAIN, *HOSTILE, b"sched_switch"), [*others, tar(folders()[0])])


def inside_folder(folders: Callable[[], Sequence[Files]]) -> Callable[[random.Random], Files]:
    def make(rng: random.Random) -> Files:
        return damaged_folder(rng.choice(folders()), rng, spice(folders))

    return make


def inside_tar(folders: Callable[[], Sequence[Files]]) -> Callable[[random.Random], Files]:
    """A tar archive of files that are damaged, or have names that no file should have."""

    def make(rng: random.Random) -> Files:
        files = damaged_folder(rng.choice(folders()), rng, spice(folders))
        if rng.random() < 0.3:
            content = rng.choice(list(files.values())) if files else b""
            files = files | {rng.choice(_MEMBERS): content}
        data = tar(files)
        if rng.random() < 0.3:
            data = damage_bytes(data, rng, spice(folders))
        return single(data)

    return make


# ---------------------------------------------------------------- wrappers


def _zip(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def _zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=1).compress(data)


#: Wrapper -> what packs.
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 1, mtime=0),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": _zstd,
    "bzip2": lambda data: bz2.compress(data, 1),
    "zip": lambda data: _zip("trace.dat", data),
    "tar": lambda data: tar({"trace.dat": data}),
}


def _contents() -> Sequence[bytes]:
    return [
        *(f[""] for f in make_dat.wholes("v6")[:2]),
        make_perf.wholes("file")[0][""],
        texts.wholes("tracefs text")[0][""],
    ]


@cache
def wrapped(kind: str) -> tuple[Files, ...]:
    return tuple(single(PACKERS[kind](data)) for data in _contents())


@cache
def wrapper_spice() -> Spice:
    packed = [wrapped(kind)[0][""] for kind in PACKERS]
    words = (
        b"\x1f\x8b\x08", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"BZh9", b"PK\x03\x04", b"PK\x01\x02",
        b"PK\x05\x06", b"PK\x06\x06", b"\x50\x2a\x4d\x18\xff\xff\xff\xff", b"\xff\xff\xff\xff",
    )  # fmt: skip
    return Spice(words, (), packed)


def inside_wrapper(kind: str) -> Callable[[random.Random], Files]:
    """Damaged captures in a whole wrapper; wrappers in wrappers; archives of several files."""

    def make(rng: random.Random) -> Files:
        data = rng.choice(_contents())
        if rng.random() < 0.7:
            data = damage_bytes(data, rng, make_dat.spice_for("v6"))
        for _ in range(rng.choice((0, 0, 0, 1, 2, 3, 6))):
            data = PACKERS[rng.choice(list(PACKERS))](data)
            if rng.random() < 0.2:
                data = damage_bytes(data, rng, wrapper_spice())
        if kind in ("zip", "tar") and rng.random() < 0.3:
            return single(_several(kind, data, rng))
        return single(PACKERS[kind](data))

    return make


def _several(kind: str, data: bytes, rng: random.Random) -> bytes:
    names = rng.sample(
        ("a/trace.dat", "notes.txt", "b", *_MEMBERS[:5], "trace.dat"), rng.randrange(2, 5)
    )
    contents = {n: rng.choice((data, b"", b"hello\n", rng.choice(_contents()))) for n in names}
    if kind == "tar":
        return tar(contents)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name or "x"), content)
    return out.getvalue()
