"""How a kernel's arguments get to a rule's child process and its results back: shared memory.

One anonymous file (memfd where the system has it) is mapped by both. Its first page is the
control block of ``_guard``; behind it lie the arrays of one call, each at a multiple of 64 bytes.
Whole numbers, None and names of functions travel in the message, a line of JSON. Nothing is
pickled: an array is its dtype's description, its shape and its place.
"""

from __future__ import annotations

import ast
import mmap
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["FRONT", "Memory", "Remote", "holds_remote", "pack", "unpack"]

#: Bytes kept for the control block.
FRONT = 4096
_ALIGN = 64

#: Longest message, in bytes.
LONGEST = 1 << 20


class Remote:
    """Stands for a function of a rule that lives in a child process."""

    def __init__(self, name: str, owner: Any) -> None:
        self.name, self.owner = name, owner

    def __repr__(self) -> str:
        return f"<{self.name} of {self.owner}>"


def holds_remote(value: Any) -> Remote | None:
    """The first Remote among arguments, also inside tuples."""
    if isinstance(value, Remote):
        return value
    if isinstance(value, tuple | list):
        for inner in value:
            found = holds_remote(inner)
            if found is not None:
                return found
    return None


class Memory:
    """The shared file, mapped as far as it is needed."""

    def __init__(self, fd: int | None = None) -> None:
        self._file: Any = None
        if fd is None:
            if hasattr(os, "memfd_create"):
                fd = os.memfd_create("traceana-rule")
            else:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115
                fd = self._file.fileno()
            os.ftruncate(fd, FRONT)
        self.fd = fd
        front = mmap.mmap(fd, FRONT)
        #: The control block, int64.
        self.control: Any = np.frombuffer(front, np.int64, FRONT // 8)

    def grow(self, size: int) -> None:
        """Make the file ``size`` bytes long."""
        os.ftruncate(self.fd, size)

    def view(self, size: int) -> Any:
        """All of it, mapped anew; its pages at once, where the system can, not one fault each."""
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        return mmap.mmap(self.fd, size, flags=flags)

    def close(self) -> None:
        """Give the file back; mappings go with their arrays."""
        if self._file is not None:
            self._file.close()
        else:
            os.close(self.fd)


def _described(value: Any, arrays: list[tuple[int, Any]], end: list[int]) -> Any:
    if isinstance(value, np.ndarray):
        at = -(-end[0] // _ALIGN) * _ALIGN
        end[0] = at + value.nbytes
        arrays.append((at, value))
        kind = repr(np.lib.format.dtype_to_descr(value.dtype))
        return {"array": kind, "shape": list(value.shape), "at": at}
    if isinstance(value, Remote):
        return {"rule": value.name}
    if value is None or isinstance(value, bool | float):
        return {"value": value}
    if isinstance(value, int | np.integer):
        return {"value": int(value)}
    if isinstance(value, np.floating):
        return {"value": float(value)}
    if isinstance(value, tuple):
        return {"tuple": [_described(v, arrays, end) for v in value]}
    if callable(value):
        function = getattr(value, "py_func", value)
        return {"function": [function.__module__, function.__qualname__]}
    raise TypeError(f"cannot hand {type(value).__name__} to a rule's process")


def pack(memory: Memory, args: tuple[Any, ...]) -> tuple[list[Any], int, Any]:
    """Write the arrays of a call into the memory.

    Returns
    -------
    described : list
        What :func:`unpack` makes the arguments from.
    size : int
        Of the memory, in bytes.
    view : mmap
        Holds the arrays.
    """
    arrays: list[tuple[int, Any]] = []
    end = [FRONT]
    described = [_described(v, arrays, end) for v in args]
    size = -(-end[0] // FRONT) * FRONT
    memory.grow(size)
    view = memory.view(size)
    for at, array in arrays:
        if array.nbytes:
            place = np.frombuffer(view, array.dtype, array.size, at).reshape(array.shape)
            place[...] = array
            del place
    return described, size, view


def unpack(described: Any, view: Any, function_of: Callable[[str, str], Any], own: Any) -> Any:
    """The arguments that :func:`pack` described; ``own`` maps names of the rule's functions."""
    if "array" in described:
        dtype = np.lib.format.descr_to_dtype(ast.literal_eval(described["array"]))
        shape = tuple(described["shape"])
        n = int(np.prod(shape, dtype=np.int64))
        if n == 0:
            return np.zeros(shape, dtype)
        return np.frombuffer(view, dtype, n, described["at"]).reshape(shape)
    if "rule" in described:
        return own[described["rule"]]
    if "tuple" in described:
        return tuple(unpack(v, view, function_of, own) for v in described["tuple"])
    if "function" in described:
        return function_of(*described["function"])
    return described["value"]
