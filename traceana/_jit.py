"""The one way kernels are compiled: cached on disk, announced once, off on request.

``TRACEANA_JIT=0`` runs every kernel as plain Python (slow; for debugging and coverage).
The cache lies in ``$NUMBA_CACHE_DIR``, else in ``$XDG_CACHE_HOME/traceana`` or
``~/.cache/traceana``; where none of them can be written, a temporary folder serves for
this process and the first compile says so.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["exact", "njit", "numba", "step"]

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

import numba  # noqa: E402
from numba.core import event  # noqa: E402


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


_without_blas()


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


def njit(function: F) -> F:
    """Compile a kernel: nopython, without the GIL, cached on disk."""
    wrap: Any = numba.njit
    compiled: F = wrap(nogil=True, cache=True, _nrt=_allocates(function))(function)
    return compiled


def step(function: F) -> F:
    """Compile a part of kernels, callable from compiled code only: a third less to compile."""
    wrap: Any = numba.njit  # its annotations do not know the last two options
    compiled: F = wrap(
        nogil=True,
        cache=True,
        _nrt=_allocates(function),
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
    )(function)
    return compiled


def exact(signature: Any, function: F, *, python: bool) -> F:
    """Compile a kernel for one signature only; arguments are cast to it."""
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        return function
    wrap: Any = numba.njit
    compiled: F = wrap(
        signature,
        nogil=True,
        cache=True,
        _nrt=_allocates(function),
        no_cpython_wrapper=not python,
        no_cfunc_wrapper=not python,
    )(function)
    return compiled
