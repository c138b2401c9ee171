"""What is wrong with a user's rule, in plain words: from a compiler's error to one sentence.

numba explains itself over dozens of lines, most of which show its own insides. A rule's author
needs three things: the file, the line, and what compiled code cannot do there.
"""

from __future__ import annotations

import ast
import difflib
import re
import traceback
from collections.abc import Sequence
from pathlib import Path

from traceana.errors import RuleError

__all__ = ["compile_fault", "raised_fault", "suggestion"]

#: Longest piece of a foreign message that is handed on.
_LONGEST = 160

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_FILE = re.compile(r'File "([^"]+)", line (\d+)')
_RAISED = re.compile(r"Raised from (.+) \((\d+)\)")
_AT = re.compile(r" at (\S+\.py) \((\d+)\)")

#: Opcodes that compiled code does not have.
_OPCODES = {
    "IMPORT_NAME": "imports a module inside a function, which compiled code cannot",
    "IMPORT_FROM": "imports a module inside a function, which compiled code cannot",
    "STORE_GLOBAL": "assigns to a global variable; the globals of compiled code are constants",
    "DELETE_GLOBAL": "deletes a global variable; the globals of compiled code are constants",
    "LOAD_BUILD_CLASS": "defines a class inside a function, which compiled code cannot",
    "BEFORE_WITH": "uses `with`, which compiled code does not have",
    "GET_AWAITABLE": "uses `await`, which compiled code does not have",
    "MATCH_MAPPING": "matches on a mapping, which compiled code cannot",
    "MATCH_CLASS": "matches on a class, which compiled code cannot",
    "DICT_MERGE": "calls with **, which compiled code cannot",
}

#: What a thing that numba has no type for is to the author.
_THINGS = {
    "module": "a module: compiled code cannot call it",
    "type": "a class, and compiled code makes no objects of it",
    "dict": "a dict; compiled code reads numbers, tuples of numbers and numpy arrays",
    "set": "a set; compiled code reads numbers, tuples of numbers and numpy arrays",
    "list": "a list; write a tuple",
    "function": "a plain Python function; put @njit above its def",
    "builtin_function_or_method": "a function of Python that compiled code does not have",
}


def suggestion(name: str, known: Sequence[str]) -> str:
    """A hint at the nearest of the known names, or ''."""
    near = [k for k in known if len(name) > 2 and k.startswith(name)]
    near = near or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def _fields() -> list[str]:
    from traceana.rules._state import Cpu, Llc, Machine, Wakeup

    return sorted({n for view in (Wakeup, Machine, Cpu, Llc) for n in view.__annotations__})


def _line_of(text: str, path: Path) -> int | None:
    """The innermost line of the rule's file that the compiler names."""
    found = [*_RAISED.findall(text), *_AT.findall(text), *_FILE.findall(text)]
    for name, line in found:
        if Path(name).name == path.name:
            return int(line)
    return None


def _line_with(source: str, kind: type[ast.AST], name: str) -> int | None:
    """The first line on which an attribute or a name of this spelling stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kind) and name in (getattr(node, "attr", ""), getattr(node, "id", "")):
            return int(getattr(node, "lineno", 0)) or None
    return None


def _line_of_def(source: str, function: str) -> int | None:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return node.lineno
    return None


def _short(text: str) -> str:
    """One line of a foreign message, cut."""
    text = re.sub(r"Record\(.*", "a record", text.strip())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _type_words(text: str) -> str:
    """Numba's name of a type, in Python's words."""
    if "Record" in text:
        return "a record (w, m, or a CPU of m.cpus)"
    text = re.sub(r"Literal\[(\w+)\]\([^)]*\)", r"\1", text)
    for numba_name, word in (
        ("unicode_type", "text"), ("str", "text"), ("none", "nothing"), ("float64", "a fraction"),
        ("bool", "a truth value"), ("int64", "a whole number"), ("uint8", "a whole number"),
        ("int", "a whole number"),
    ):  # fmt: skip
        if text.strip() == numba_name:
            return word
    return _short(text)


def _returned(kind: str, function: str) -> str:
    wanted = "(cpu, reason), two whole numbers" if function == "decide" else "a whole number"
    if kind == "none":
        return f"{function} comes to an end without returning {wanted}"
    if "Literal[str]" in kind or "unicode" in kind:
        return (
            f"{function} must return {wanted}; it returns a text (a reason is its place in REASONS)"
        )
    tuple_ = re.match(r"(?:Uni)?Tuple\((.*)\)", kind)
    if tuple_:
        inner = tuple_[1]
        n = re.search(r" x (\d+)$", inner)
        count = int(n[1]) if n else inner.count(",") + 1
        if count != 2 or function != "decide":
            return f"{function} must return {wanted}; it returns a tuple of {count}"
    return f"{function} must return {wanted}; it returns {_type_words(kind)}"


def _plain(text: str, function: str) -> str:
    """One sentence for what numba says."""
    m = re.search(r"Use of unsupported opcode \((\w+)\)", text)
    if m:
        known = _OPCODES.get(m[1])
        return known or f"uses a construct that compiled code does not have ({m[1].lower()})"
    m = re.search(r"NameError: name '(\w+)' is not defined", text)
    if m:
        return f"{m[1]} is not defined"
    m = re.search(r"Untyped global name '(\w+)':.*?<class '([\w.]+)'>", text, re.DOTALL)
    if m:
        what = _THINGS.get(m[2], f"of type {m[2]}, which compiled code does not know")
        return f"{m[1]} is {what}"
    m = re.search(r"Unknown attribute '(\w+)' of type Module\(<module '([\w.]+)'", text)
    if m:
        return (
            f"{m[2]}.{m[1]} cannot be used in a rule: compiled code knows numbers, numpy arrays "
            "and the functions of traceana.rules.interface"
        )
    m = re.search(r"No conversion from (.+?) to (?:UniTuple\(int64 x 2\)|int64) for", text)
    if m:
        return _returned(m[1], function)
    m = re.search(r"Can't unify return type from the following types: (.+)", text)
    if m:
        kinds = m[1]
        if "none" in kinds:
            return _returned("none", function)
        return f"{function} returns different kinds of things on different ways: {_short(kinds)}"
    m = re.search(r"Cannot unify (.+?) and (.+?) for '(\w+?)(?:\.\d+)?'", text)
    if m:
        return (
            f"{m[3]} is {_type_words(m[1])} on one way and {_type_words(m[2])} on another; "
            "a variable of compiled code has one type"
        )
    if "runaway recursion" in text:
        return f"{function} calls itself and never returns anything else"
    if "Illegal IR, del" in text:
        return "deletes a variable with `del`, which compiled code does not have"
    if "Cannot capture" in text:
        return "hands a lambda that uses w, m or p to another function; write a loop"
    m = re.search(r"No implementation of function Function\(<[\w-]+ (?:function )?(\w+)", text)
    if m:
        return f"{m[1]}() does not take these arguments in compiled code"
    if "Cannot bind" in text or "missing a required argument" in text or "too many" in text:
        return "a function is called with the wrong number of arguments"
    if "Signature mismatch" in text:
        return f"{function} must take three arguments: {function}(w, m, p)"
    m = re.search(r"Unsupported array index type (\S+)", text)
    if m:
        return f"an index must be a whole number, not {_type_words(m[1])}"
    m = re.search(r"Exception object cannot be stored", text)
    if m:
        return "`except … as name` is not known to compiled code; leave the name out"
    m = re.search(r"Unknown attribute '(\w+)' of type (.+)", text)
    if m:
        return f"there is no .{m[1]} there{suggestion(m[1], _fields())}"
    return ""


def compile_fault(error: BaseException, path: Path, function: str) -> RuleError:
    """The compiler's error as a sentence with file and line."""
    text = _COLOR.sub("", str(error))
    source = path.read_text(encoding="utf-8", errors="replace")
    line = _line_of(text, path)
    what = _plain(text, function)
    if not what and isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        # numba looks a record's field up in a dict.
        name = error.args[0]
        line = _line_with(source, ast.Attribute, name)
        if line is not None:
            what = f"w, m or a CPU has no field {name!r}{suggestion(name, _fields())}"
        else:
            line = _line_of_def(source, function)
            what = "a library function is given something else than w, m, p in their places"
    if not what and isinstance(error, AttributeError):
        m = re.search(r"'([\w.]+)' has no attribute '(\w+)'", text)
        if m:
            what = f"{m[1]} has no {m[2]}"
            line = _line_with(source, ast.Attribute, m[2])
    if not what:
        lines = [x for x in text.splitlines() if x.strip() and not x.startswith("Failed in")]
        first = re.sub(r"\.?\s*Raised from .*", "", lines[0]) if lines else type(error).__name__
        what = f"compiled code cannot do this: {_short(first)}"
    if line is None:
        line = _line_of_def(source, function)
    return RuleError(path, f"{what} (in {function}, which cannot be compiled)", line=line)


def raised_fault(error: BaseException, path: Path, what: str) -> RuleError:
    """An exception of the rule's own code, at the innermost line of its file."""
    line = None
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename).name == path.name and frame.lineno:
            line = frame.lineno
    if isinstance(error, SyntaxError) and error.lineno:
        line = error.lineno
    said = " ".join(str(error).split())
    text = type(error).__name__ + (f": {_short(said)}" if said else "")
    return RuleError(path, f"{what}: {text}", line=line)
