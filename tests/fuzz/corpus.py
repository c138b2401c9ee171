"""All rows of the fuzzing: every form of the registry, the wrappers, the stores."""

from __future__ import annotations

from functools import partial

from fuzz import archives, bombs, make_dat, make_perf, make_perfetto, stores, texts
from fuzz.target import Target

__all__ = ["BINARY", "TARGETS", "TEXT", "target"]

#: Inputs of each binary and of each text row in one `make fuzz`.
BINARY = 20_000
TEXT = 5_000


def _trace_dat() -> list[Target]:
    out = []
    for way in ("v6", "none", "zlib", "zstd", "lzma"):
        name = "trace.dat v6" if way == "v6" else f"trace.dat v7 {way}"
        packed = way not in ("v6", "none")
        out.append(
            Target(
                name,
                "trace.dat",
                BINARY,
                partial(make_dat.wholes, way),
                partial(make_dat.spice_for, way),
                make_dat.inside(way),
                0.7 if packed else 0.4,
                [partial(bombs.trace_dat_bomb, way)] if packed else [],
            )
        )
    return out


def _perf_data() -> list[Target]:
    out = []
    for kind in make_perf.KINDS:
        name = kind if kind == "simpleperf" else f"perf.data {kind}"
        out.append(
            Target(
                name,
                "perf.data",
                BINARY,
                partial(make_perf.wholes, kind),
                partial(make_perf.spice_for, kind),
                make_perf.inside(kind),
                0.7 if kind == "zstd" else 0.5,
                [bombs.perf_bomb] if kind == "zstd" else [],
            )
        )
    return out


def _perfetto() -> list[Target]:
    return [
        Target("Perfetto", "Perfetto trace", BINARY, partial(make_perfetto.wholes, False),
               make_perfetto.spice, make_perfetto.inside(False)),
        Target("Perfetto compressed", "Perfetto trace", BINARY, partial(make_perfetto.wholes, True),
               make_perfetto.spice, make_perfetto.inside(True), 0.7, [bombs.perfetto_bomb]),
    ]  # fmt: skip


def _folders() -> list[Target]:
    out = []
    for name, form, folders in (
        ("perf.data folder", "perf.data folder", archives.perf_folders),
        ("SchedViz archive", "SchedViz archive", archives.schedviz),
        ("raw pages", "raw ring-buffer pages with formats", archives.raw_pages),
    ):
        out.append(
            Target(
                name,
                form,
                BINARY,
                archives.with_tars(folders),
                partial(archives.spice, folders),
                archives.inside_tar(folders),
            )
        )
    return out


def _wrappers() -> list[Target]:
    blown = {
        "gzip": [bombs.gzip_bomb, bombs.gzip_nested],
        "xz": [bombs.xz_bomb],
        "zstd": [bombs.zstd_bomb],
        "bzip2": [bombs.bzip2_bomb],
        "zip": [bombs.zip_bomb, bombs.zip_nested],
    }
    return [
        Target(
            kind,
            "",
            TEXT if kind in ("bzip2", "tar") else BINARY,
            partial(archives.wrapped, kind),
            archives.wrapper_spice,
            archives.inside_wrapper(kind),
            bombs=blown.get(kind, []),
        )
        for kind in archives.PACKERS
    ]


def _texts() -> list[Target]:
    forms = (
        "tracefs text",
        "trace-cmd report text",
        "perf script text",
        "systrace, atrace",
        "console dump",
    )
    return [
        Target(
            form, form, TEXT, partial(texts.wholes, form), partial(texts.spice, form),
            texts.inside_systrace if form == "systrace, atrace" else None,
            bombs=[bombs.systrace_bomb] if form == "systrace, atrace" else [], text=True,
        )
        for form in forms
    ]  # fmt: skip


TARGETS: tuple[Target, ...] = (
    *_trace_dat(),
    *_perf_data(),
    *_perfetto(),
    *_folders(),
    *_wrappers(),
    Target("store", "", BINARY, stores.wholes, stores.spice, stores.inside, 0.6,
           [bombs.parquet_bomb]),
    *_texts(),
)  # fmt: skip


def target(name: str) -> Target:
    """The row of that name; KeyError names those that there are."""
    for row in TARGETS:
        if row.name == name:
            return row
    raise KeyError(f"{name}: no such form; there are {', '.join(t.name for t in TARGETS)}")
