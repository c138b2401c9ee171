"""A user's rule file becomes functions: looked over, run, compiled, each fault with its line.

Used in the process that runs the rule: the child of ``_isolated``, or this one where rules are
loaded for other drivers or ``TRACEANA_JIT=0`` asks for a debugger's view.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from traceana._jit import numba
from traceana.errors import RuleError
from traceana.rules import interface
from traceana.rules._faults import compile_fault, raised_fault
from traceana.rules._lint import faults

__all__ = ["after_run", "compiled", "import_file", "users_njit"]

#: Called each time that a file has been run.
after_run: list[Callable[[], None]] = []


def users_njit(function: Any) -> Any:
    """Compile a user's function: indices are checked, arrays may be made, nothing is cached.

    Not cached, because numba's cache does not see that a library step, or a helper of another
    file, has changed since.
    """
    if interface.UNCOMPILED:
        return function
    wrap: Any = numba.njit
    return wrap(nogil=True, boundscheck=True)(function)


def import_file(path: Path) -> ModuleType:
    """Run a rule file, once it has been looked over.

    Raises
    ------
    RuleError
        It cannot be a rule as it is written, or it raises.
    """
    for fault in faults(path.read_text(encoding="utf-8")):
        raise RuleError(path, fault.text, line=fault.line)
    # Under its own path, so that two rules of one file name do not meet.
    name = "traceana_user_rule_" + "".join(c if c.isalnum() else "_" for c in str(path))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RuleError(path, "cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # numba looks its functions' module up
    library_njit = interface.njit
    interface.njit = users_njit
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise raised_fault(error, path, "running the file failed") from error
    finally:
        interface.njit = library_njit
    for told in after_run:
        told()
    return module


def compiled(function: Any, what: str, path: Path) -> Any:
    """The function compiled for w, m, p, with whatever whole numbers it returns.

    Raises
    ------
    RuleError
        It cannot be compiled, or does not return what it should.
    """
    if not callable(function):
        raise RuleError(path, f"{what} is no function once the file has been run")
    if interface.UNCOMPILED:
        return function
    if not hasattr(function, "get_compile_result"):
        function = users_njit(function)
    kind = interface.DECIDE if what == "decide" else interface.BLOCKED_BY
    try:
        # With the result's type given: whatever integers a rule returns become int64.
        function.compile(kind.signature)
    except Exception as error:  # numba also lets KeyError and the like through
        raise compile_fault(error, path, what) from error
    if _returns_fraction(function, kind.signature.args):
        line = function.py_func.__code__.co_firstlineno
        raise RuleError(
            path, f"{what} returns a fraction; write // for whole numbers, or int()", line=line
        )
    return function


def _returns_fraction(function: Any, arguments: Any) -> bool:
    """Whether it returns a fraction by itself, which numba would cut without a word."""
    from numba.core import types as numba_types

    types: Any = numba_types
    probe = users_njit(function.py_func)
    probe.compile(arguments)
    kind = probe.nopython_signatures[-1].return_type
    parts = tuple(kind) if isinstance(kind, types.BaseTuple) else (kind,)
    return any(isinstance(part, types.Float | types.Complex) for part in parts)
