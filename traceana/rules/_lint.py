"""What can be seen of a user's rule without running it: slips that a compiler words badly.

Each finding is a line of the file and a sentence. :func:`faults` keep a rule from being run;
:func:`remarks` do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from traceana.rules._faults import suggestion
from traceana.rules._text import PLACES

__all__ = ["Finding", "faults", "remarks"]

#: Functions that the driver calls.
_FUNCTIONS = ("decide", "blocked_by", *PLACES)

#: The one field of m that a rule may set: how the idle test reads ``booked``.
_SETTABLE = "booked_counts"

#: Constructs that no compiled function has.
_NO_SUCH: tuple[tuple[type[ast.AST], str], ...] = (
    (ast.With, "`with`"),
    (ast.Yield, "`yield`"),
    (ast.YieldFrom, "`yield`"),
    (ast.Await, "`await`"),
    (ast.ClassDef, "a class of its own"),
    (ast.Global, "`global` (the globals of compiled code are constants)"),
)


@dataclass(frozen=True)
class Finding:
    """A sentence about a line of the file."""

    line: int
    text: str


@cache
def _fields(record: str) -> tuple[str, ...]:
    from traceana.rules import _state

    views = {"w": _state.Wakeup, "m": _state.Machine, "cpus": _state.Cpu, "llcs": _state.Llc}
    return tuple(views[record].__annotations__)


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in tree.body if isinstance(node, ast.FunctionDef))


def faults(source: str) -> list[Finding]:
    r"""Slips that keep the rule from being run, by line.

    >>> faults("def decide(w, m, p):\n    return w.this, 0")
    [Finding(line=2, text="w has no field 'this'; did you mean this_cpu?")]
    """
    tree = ast.parse(source)
    found: list[Finding] = []
    for function in _functions(tree):
        if function.name in _FUNCTIONS:
            found += _shape(function)
            found += _returns(function)
        found += _constructs(function)
        found += _wrong_fields(function)
        found += _writes(function)
    return sorted(set(found), key=lambda f: f.line)


def _shape(function: ast.FunctionDef) -> Iterator[Finding]:
    a = function.args
    given = [x.arg for x in (*a.posonlyargs, *a.args)]
    if len(given) != 3 or a.vararg or a.kwarg or a.kwonlyargs:
        yield Finding(
            function.lineno,
            f"{function.name} must take three arguments: {function.name}(w, m, p); "
            f"it takes ({', '.join(given)})",
        )


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions inside it."""
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)


def _endless(loop: ast.While) -> bool:
    """Whether a loop's condition is a true constant and nothing in it leaves it."""
    if not isinstance(loop.test, ast.Constant) or not loop.test.value:
        return False
    return not any(isinstance(n, ast.Break | ast.Return | ast.Raise) for n in ast.walk(loop))


def _returns(function: ast.FunctionDef) -> Iterator[Finding]:
    wanted = "(cpu, reason)" if function.name == "decide" else "a whole number"
    own = list(_own_nodes(function))
    if not any(isinstance(node, ast.Return | ast.Raise) for node in own):
        loops = [n.lineno for n in own if isinstance(n, ast.While)]
        yield Finding(
            min(loops, default=function.lineno), f"{function.name} never returns {wanted}"
        )
    for node in own:
        if node in function.body and isinstance(node, ast.While) and _endless(node):
            # What stands behind it is never reached, and numba says so in its own words.
            yield Finding(node.lineno, f"this loop of {function.name} never ends")
        if not isinstance(node, ast.Return):
            continue
        value = node.value
        wrong = ""
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            wrong = "nothing"
        elif isinstance(value, ast.Constant) and function.name == "decide":
            wrong = f"{value.value!r} alone"
        elif isinstance(value, ast.Tuple) and function.name != "decide":
            wrong = "several values"
        elif isinstance(value, ast.Tuple) and len(value.elts) != 2:
            wrong = f"{len(value.elts)} values"
        elif isinstance(value, ast.Tuple):
            for part in value.elts:
                if isinstance(part, ast.Constant) and not isinstance(part.value, int):
                    wrong = repr(part.value)
                elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div):
                    wrong = "a fraction (write // for whole numbers)"
        if wrong:
            yield Finding(node.lineno, f"{function.name} must return {wanted}, not {wrong}")


def _constructs(function: ast.FunctionDef) -> Iterator[Finding]:
    for node in ast.walk(function):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names]
            module = node.module if isinstance(node, ast.ImportFrom) else ", ".join(names)
            yield Finding(
                node.lineno,
                f"{function.name} imports {module}: a rule is compiled code, which imports nothing "
                "and knows numbers, numpy arrays and the functions of traceana.rules.interface",
            )
        for kind, name in _NO_SUCH:
            if isinstance(node, kind):
                yield Finding(
                    getattr(node, "lineno", function.lineno),
                    f"{function.name} uses {name}, which compiled code does not have",
                )


def _record_of(node: ast.AST) -> str:
    """Which record an expression is, where its spelling says so: w, m, cpus, llcs."""
    if isinstance(node, ast.Name) and node.id in ("w", "m"):
        return node.id
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
        inner = node.value
        if isinstance(inner.value, ast.Name) and inner.value.id == "m":
            return inner.attr if inner.attr in ("cpus", "llcs") else ""
    return ""


def _wrong_fields(function: ast.FunctionDef) -> Iterator[Finding]:
    given = {x.arg for x in function.args.args}
    for node in ast.walk(function):
        if not isinstance(node, ast.Attribute):
            continue
        record = _record_of(node.value)
        if not record or (record if record in ("w", "m") else "m") not in given:
            continue
        if node.attr not in _fields(record):
            name = {"cpus": "a CPU (m.cpus[…])", "llcs": "an LLC (m.llcs[…])"}.get(record, record)
            hint = suggestion(node.attr, _fields(record))
            yield Finding(node.lineno, f"{name} has no field {node.attr!r}{hint}")


def _root(node: ast.AST) -> str:
    """The name at the root of a.b[c].d, or ''."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _writes(function: ast.FunctionDef) -> Iterator[Finding]:
    """Assignments to fields of m, also through a name that was taken from it."""
    args = [x.arg for x in function.args.args]
    if "m" not in args:
        return
    machine = {"m"}
    for _ in range(3):  # a name of a name of a name
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, value = node.targets[0], node.value
                if (
                    isinstance(target, ast.Name)
                    and isinstance(value, ast.Subscript | ast.Name)
                    and _root(value) in machine
                ):
                    machine.add(target.id)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Attribute) and target.attr == _SETTABLE:
                continue
            if isinstance(target, ast.Attribute | ast.Subscript) and _root(target) in machine:
                yield Finding(
                    node.lineno,
                    f"{function.name} writes to m ({ast.unparse(target)}); the machine as it stood "
                    "is for reading",
                )


def remarks(source: str) -> list[Finding]:
    """What is odd, but does not keep the rule from being run."""
    tree = ast.parse(source)
    found = []
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        top = (module or "").split(".")[0]
        if top not in ("pandas", "polars", "pyarrow", "matplotlib", "scipy", "duckdb"):
            continue
        names = {(a.asname or a.name).split(".")[0] for a in node.names}
        if not names & used:
            found.append(
                Finding(
                    node.lineno,
                    f"imports {top}, which nothing uses and compiled code could not use: "
                    "it only costs time",
                )
            )
    return found
