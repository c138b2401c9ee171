"""Which captures a batch is of: files, folders, patterns, URLs; their labels and their content.

A source is known by its absolute path or its URL. Whether it has changed is told by the SHA-256 of
its content (and of the side files that are read with it). A stamp (size, inode, times of content
and of inode; of a URL what its server tells) saves reading a file that nobody has touched.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traceana import start_state, store
from traceana import topology as topo
from traceana.errors import InputError, UsageError
from traceana.spill import work_folder

__all__ = ["Labels", "Source", "digest", "expand", "fetched", "is_url", "stamp"]

#: Files that lie beside captures and are none.
SIDE_FILES = (
    ".json", ".csv", ".md", ".html", ".svg", ".sha256", ".tar", ".tar.xz", ".tar.gz", ".parquet",
)  # fmt: skip
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
_BLOCK = 1 << 20
#: What file systems behind URLs tell that changes with the content.
_TOLD = (
    "size", "ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "last_modified",
    "Last-Modified", "Content-MD5", "Digest", "content_md5", "VersionId", "ino", "created",
)  # fmt: skip
#: Of these, any besides the size makes a stamp.
_WEAK = {"size"}


@dataclass(frozen=True)
class Source:
    """One capture of a batch."""

    #: Absolute path, or URL.
    path: str
    #: Name of its partition: the file's own name as far as it is harmless, and a digest of path.
    id: str

    @classmethod
    def of(cls, path: str) -> Source:
        path = path if is_url(path) else os.path.abspath(path)  # noqa: PTH100  # links stay
        raw = path.encode("utf-8", "surrogateescape")
        stem = re.sub(r"[^A-Za-z0-9._-]+", "_", path.rstrip("/").rpartition("/")[2])[:60]
        return cls(path, f"{stem.strip('.-_') or 'capture'}-{hashlib.sha256(raw).hexdigest()[:10]}")


def is_url(path: str) -> bool:
    """Whether this is for fsspec.

    >>> is_url("s3://bucket/a.dat"), is_url("a.dat"), is_url("/tmp/c:d")
    (True, False, False)
    """
    return _SCHEME.match(path) is not None


# --- what is meant ---


def expand(given: Sequence[str]) -> list[Source]:
    """The captures that arguments stand for, each once, in order of their paths.

    Parameters
    ----------
    given : files, .traceana stores, folders (all captures below them), patterns (``**`` goes down
        any number of folders), URLs of files, of folders (ending in /) or with a pattern

    Raises
    ------
    UsageError
        A folder or a pattern without any capture; a URL without fsspec.
    """
    paths: set[str] = set()
    for text in given:
        if text == "-":
            raise UsageError("batch: name files; standard input could be only one of them")
        if not text:
            raise UsageError("the name of an input is empty")
        paths.update(_urls(text) if is_url(text) else _files(text))
    sources = {s.path: s for s in map(Source.of, paths)}
    return [sources[p] for p in sorted(sources)]


def _files(text: str) -> list[str]:
    path = Path(text)
    if path.is_dir() and not store.is_store(path):
        found = _below(path)
        if not found:
            raise UsageError(f"{text}: no capture in this folder")
        return found
    if not path.exists() and any(c in text for c in "*?["):
        fits = glob.glob(text, recursive=True)  # noqa: PTH207  # as the shell would read it
        found = [f for f in fits if _may_be_capture(Path(f))]
        if not found:
            raise UsageError(f"{text}: no capture fits this pattern")
        return found
    return [text]


def _below(folder: Path) -> list[str]:
    out: list[str] = []
    for top, folders, files in os.walk(folder):
        stores = [d for d in folders if store.is_store(Path(top, d))]
        # A dataset's partitions are results, not captures.
        folders[:] = [
            d for d in folders if d not in stores and d[0] != "." and not d.startswith("capture=")
        ]
        out += [str(Path(top, name)) for name in stores]
        out += [str(Path(top, f)) for f in files if _may_be_capture(Path(top, f))]
    return out


def _may_be_capture(path: Path) -> bool:
    if path.name[0] in "._" or path.name.endswith(SIDE_FILES):
        return False
    return path.is_file() or store.is_store(path)


def _urls(text: str) -> list[str]:
    fs, inner = _system(text)
    scheme = text.partition("://")[0]
    if not (any(c in inner for c in "*[") or text.endswith("/")):
        return [text]
    try:
        found = fs.glob(inner) if not text.endswith("/") else fs.find(inner)
    except Exception as error:
        raise UsageError(f"{text}: {_one_line(error)}") from error
    names = [str(f) for f in found]
    keep = [n for n in names if n.rpartition("/")[2][:1] not in ("", ".", "_")]
    keep = [n if is_url(n) else f"{scheme}://{n}" for n in keep if not n.endswith(SIDE_FILES)]
    if not keep:
        raise UsageError(f"{text}: no capture there")
    return keep


def _system(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise UsageError(
            f"{url}: URLs need fsspec (pip install 'traceana[fleet]', and the package of its "
            "scheme: s3fs, gcsfs, ...)"
        ) from error
    try:
        fs, inner = fsspec.core.url_to_fs(url)
    except Exception as error:
        raise UsageError(f"{url}: {_one_line(error)}") from error
    return fs, str(inner)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


# --- what they hold ---


def _parts(path: Path) -> list[Path]:
    """The files that a capture consists of, and those read with it."""
    if path.is_dir():
        own = sorted(p for p in path.rglob("*") if p.is_file())
    else:
        own = [path]
    sides = (topo.find_side_file(path), start_state.find(path))
    return own + [p for p in sides if p is not None and p not in own]


def stamp(source: Source) -> str | None:
    """What tells without reading whether a capture may have changed; None: nothing does.

    Size, inode, and the times of content and of inode: the last one moves with each write, and
    nobody can set it back.
    """
    if is_url(source.path):
        with contextlib.suppress(Exception):
            fs, inner = _system(source.path)
            told = fs.info(inner)
            known = {k: str(told[k]) for k in _TOLD if told.get(k) is not None}
            return repr(sorted(known.items())) if known.keys() - _WEAK else None
        return None
    try:
        stats = [(p, p.stat()) for p in _parts(Path(source.path))]
    except OSError:
        return None
    return repr([(p.name, s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns) for p, s in stats])


def digest(path: Path) -> tuple[str, int]:
    """SHA-256 of a capture with its side files, and the capture's own size in bytes.

    Raises
    ------
    InputError
        It cannot be read.
    """
    total = hashlib.sha256()
    size = 0
    side = (".topology.json", ".state.json")
    try:
        for part in _parts(path):
            if not part.is_file():
                raise InputError(path, "no regular file; a batch reads its captures twice")
            one = hashlib.sha256()
            with part.open("rb") as file:
                while block := file.read(_BLOCK):
                    one.update(block)
            # The role, not the name: a copy under another name is the same capture.
            role = "side" if part.name.endswith(side) else str(part.relative_to(path))
            size += part.stat().st_size if role != "side" else 0
            total.update(f"{role}\0{one.hexdigest()}\n".encode())
    except OSError as error:
        raise InputError(path, (error.strerror or str(error)).lower()) from error
    return total.hexdigest(), size


@contextlib.contextmanager
def fetched(source: Source) -> Iterator[Path]:
    """The capture as a local file: of a URL a temporary copy, with its side files.

    Raises
    ------
    InputError
        It cannot be fetched.
    """
    if not is_url(source.path):
        yield Path(source.path)
        return
    fs, inner = _system(source.path)
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", inner.rpartition("/")[2])[-100:] or "capture"
    with tempfile.TemporaryDirectory(prefix="traceana-", dir=work_folder()) as folder:
        target = Path(folder) / name
        try:
            fs.get_file(inner, str(target))
        except Exception as error:  # as many kinds as there are file systems
            raise InputError(source.path, f"cannot be fetched: {_one_line(error)}") from error
        for side in (".topology.json", ".state.json"):
            with contextlib.suppress(Exception):
                if fs.exists(inner + side):
                    fs.get_file(inner + side, str(target) + side)
        yield target


# --- labels ---


class Labels:
    """A template such as ``host-{host}/kernel-{kernel}.dat``, read backwards from the path's end.

    ``{name}`` stands for one or more characters other than /, ``*`` for any number of them; from
    the left each takes as few as fit. The template begins at the begin of a path's component.

    >>> Labels("host-{host}/kernel-{kernel}.dat").read("/data/host-a7/kernel-6.1.dat")
    {'host': 'a7', 'kernel': '6.1'}

    Raises
    ------
    UsageError
        No label in it, one twice, or a name that could not be a column.
    """

    def __init__(self, template: str) -> None:
        self.template = template
        self.names: list[str] = re.findall(r"\{([^{}]*)\}", template)
        wrong = [n for n in self.names if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,60}", n)]
        if wrong:
            raise UsageError(f"--label {template}: {{{wrong[0]}}} is no name (letters, digits, _)")
        rest = re.sub(r"\{[^{}]*\}", "", template)
        if "{" in rest or "}" in rest:
            raise UsageError(f"--label {template}: braces that do not match")
        if not self.names or len(self.names) != len({n.lower() for n in self.names}):
            raise UsageError(
                f"--label {template}: give parts such as {{host}}, each once "
                "('host-{host}/kernel-{kernel}.dat')"
            )
        parts = re.split(r"(\{[^{}]*\}|\*)", template)
        self._pattern = re.compile("(?:^|/)" + "".join(map(_pattern, parts)) + r"\Z")

    def read(self, path: str) -> dict[str, str]:
        """The labels in a path; none where the template does not fit."""
        found = self._pattern.search(path)
        return {} if found is None else dict(zip(self.names, found.groups(), strict=True))


def _pattern(part: str) -> str:
    if part.startswith("{"):
        return "([^/]+?)"
    return "[^/]*?" if part == "*" else re.escape(part)


def merged(templates: Sequence[Labels], path: str) -> Mapping[str, str]:
    """The labels that the templates find in a path; of equal names the first one's."""
    out: dict[str, str] = {}
    for template in templates:
        out = {**template.read(path), **out}
    return out
