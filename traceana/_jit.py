"""The one way kernels are compiled: cached on disk, announced once, off on request.

``TRACEANA_JIT=0`` runs every kernel as plain Python (slow; for debugging and coverage).
The cache lies in ``$NUMBA_CACHE_DIR``, else in ``$XDG_CACHE_HOME/traceana`` or
``~/.cache/traceana``; where none of them can be written, a temporary folder serves for
this process and the first compile says so. In it there is a folder for each state of the kernels'
sources: numba asks only whether a kernel's own file has changed, and a kernel holds the code of
those that it calls.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["exact", "inlined", "njit", "numba", "step"]

F = TypeVar("F", bound=Callable[..., Any])

_ephemeral = ""


def _writable(path: Path) -> bool:
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError:
        return False
    return True


def _choose_cache() -> None:
    global _ephemeral
    if os.environ.get("NUMBA_CACHE_DIR") and _writable(Path(os.environ["NUMBA_CACHE_DIR"])):
        return
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        home = Path(base) if base else Path.home() / ".cache"
    except RuntimeError:
        home = None
    if home is not None and _writable(home / "traceana"):
        os.environ["NUMBA_CACHE_DIR"] = str(home / "traceana")
        return
    _ephemeral = tempfile.mkdtemp(prefix="traceana-jit-")
    atexit.register(shutil.rmtree, _ephemeral, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = _ephemeral


if os.environ.get("TRACEANA_JIT") == "0":
    os.environ["NUMBA_DISABLE_JIT"] = "1"
_choose_cache()

#: Whether this process is the program. Somebody else's may use numba for linear algebra.
_PROGRAM = "traceana.cli" in sys.modules

# Some hundred thousand objects that stay: looking through them again and again while they are being
# made, and once more at the end, would take as long as importing them.
_collects = gc.isenabled()
gc.disable()
import numba  # noqa: E402
from numba.core import caching, event  # noqa: E402
from numba.core import runtime as numba_runtime  # noqa: E402

gc.freeze()
if _collects:
    gc.enable()


def _without_blas() -> None:
    """Keep numba from importing scipy.linalg at the first kernel call (0.15 s): no kernel needs it.

    numba 0.60 to 0.68 ask ensure_blas() whether dot products can be compiled.
    """
    try:
        from numba.np import linalg
    except ImportError:
        return

    def absent() -> None:
        raise ImportError("traceana's kernels use no BLAS")

    linalg.ensure_blas = absent


def _without_registries() -> None:
    """Load kernels from the cache without all that compiling needs (0.2 s).

    numba's load_overload() first makes the target context ready to compile; when there is nothing
    in the cache, the compiler does that once more anyway. What has been compiled needs only the
    runtime.
    """
    cache: Any = caching.Cache
    runtime: Any = numba_runtime
    whole = cache.load_overload

    def load_overload(self: Any, sig: Any, target_context: Any) -> Any:
        runtime.rtsys.initialize(target_context)
        target_context.refresh = lambda: None
        try:
            return whole(self, sig, target_context)
        finally:
            del target_context.refresh

    cache.load_overload = load_overload


if _PROGRAM:
    _without_blas()
_without_registries()


class _Announce(event.Listener):
    """Says on stderr, once, that kernels are being compiled."""

    def __init__(self) -> None:
        self.said = False

    def on_start(self, event: Any) -> None:
        if self.said:
            return
        self.said = True
        where = (
            "no cache folder can be written, so every run does this"
            if _ephemeral
            else "the result is cached, later runs skip this"
        )
        print(
            f"traceana: compiling kernels for this machine, some seconds ({where})",
            file=sys.stderr,
            flush=True,
        )

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Announce())


#: What allocates arrays inside a kernel.
_ALLOCATORS = {"empty", "zeros", "ones", "full", "empty_like", "zeros_like", "arange", "copy"}


def _allocates(function: Callable[..., Any]) -> bool:
    """Whether a kernel makes arrays of its own.

    One that does not is compiled without numba's reference counts: every array that it hands on to
    another kernel would cost two locked instructions otherwise, half of the timeline's time.
    """
    return not _ALLOCATORS.isdisjoint(function.__code__.co_names)


#: States of the sources that are kept per family, the one in use included.
_KEPT = 3
_BASE = Path(os.environ["NUMBA_CACHE_DIR"])
_PACKAGE = Path(__file__).parent
#: Sources that compiled code is made of: the parsers' kernels know only their own, rules and
#: stages call each other's.
_FAMILIES = {
    "parsers": ("parsers/_*_kernels.py", "parsers/_*_state.py", "_jit.py"),
    "stages": ("_*_kernels.py", "_*_state.py", "_*_types.py", "pelt.py", "rules/*.py", "_jit.py"),
}


@functools.cache
def _folder(family: str) -> str:
    """Cache folder of a family of kernels, named after the content of its sources."""
    digest = hashlib.blake2b(digest_size=8)
    for pattern in _FAMILIES[family]:
        for file in sorted(_PACKAGE.glob(pattern)):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    folder = _BASE / f"{family}-{digest.hexdigest()}"
    if not folder.is_dir():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            older = sorted(_BASE.glob(f"{family}-*"), key=lambda f: f.stat().st_mtime)
            for stale in older[:-_KEPT]:
                shutil.rmtree(stale, ignore_errors=True)
    return str(folder)


def _place(function: Callable[..., Any]) -> None:
    """Have numba keep the function that is compiled next in the folder of its family."""
    path = Path(function.__code__.co_filename)
    config: Any = numba.config
    config.CACHE_DIR = _folder("parsers" if path.parent.name == "parsers" else "stages")


def njit(function: F) -> F:
    """Compile a kernel: nopython, without the GIL, cached on disk."""
    _place(function)
    wrap: Any = numba.njit
    compiled: F = wrap(nogil=True, cache=True, _nrt=_allocates(function))(function)
    return compiled


def step(function: F) -> F:
    """Compile a part of kernels, callable from compiled code only: a third less to compile."""
    _place(function)
    wrap: Any = numba.njit  # its annotations do not know the last two options
    compiled: F = wrap(
        nogil=True,
        cache=True,
        _nrt=_allocates(function),
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
    )(function)
    return compiled


def inlined(function: F) -> F:
    """Compile a part as :func:`step` does, and put it into each of its callers.

    For small parts that are given arrays: handing on an array is seven arguments.
    """
    _place(function)
    wrap: Any = numba.njit
    compiled: F = wrap(
        nogil=True,
        cache=True,
        _nrt=_allocates(function),
        forceinline=True,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
    )(function)
    return compiled


def exact(signature: Any, function: F, *, python: bool) -> F:
    """Compile a kernel for one signature only and put it into each of its callers.

    An array is seven arguments to compiled code, so calls among parts that hand on half a dozen
    arrays cost more than what the parts do. Arguments are cast to the signature.
    """
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        return function
    _place(function)
    wrap: Any = numba.njit
    compiled: F = wrap(
        signature,
        nogil=True,
        cache=True,
        _nrt=_allocates(function),
        forceinline=True,
        no_cpython_wrapper=not python,
        no_cfunc_wrapper=not python,
    )(function)
    return compiled
