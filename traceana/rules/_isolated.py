"""A user's rule in a process of its own: started, fed, watched, and ended.

A rule file is code: it can loop for ever, exit, crash, print, or take all memory. Here it does
so in a child (``_child.py``) with a time limit, and what it did becomes one
:class:`~traceana.errors.RuleError` with the file, the line and the wakeup at hand. The kernels
that would have called the rule run in the child, too, on copies of their arguments
(``_wire.py``); only arrays that are named as results come back.

:func:`isolated` gives a Rule whose functions stand for those of the child; :func:`call` runs a
kernel, here or, where one of its arguments is such a function, there.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from traceana.errors import RuleError
from traceana.rules import Rule, describe, load
from traceana.rules._faults import raised_fault
from traceana.rules._guard import (
    CONTROL_WORDS,
    FAULT,
    LINE,
    PHASE,
    PHASES,
    TS,
    VALUE,
    WAKEE,
    fault_text,
    guarded,
)
from traceana.rules._state import MACHINE, WAKEUP
from traceana.rules._steps import places_of, split
from traceana.rules._wire import Memory, Remote, holds_remote, pack

__all__ = ["TIMEOUT_S", "call", "close", "isolated", "remarks_of"]

#: Default time limit of a rule's own code, seconds: once for running its file, and once for
#: every replay of a capture. Starting Python and compiling are not counted.
TIMEOUT_S = 60.0

#: Limit for starting Python and numba, and for compiling the rule.
_START_S = 180.0

#: How long the search for the line of a fault may take, once the decision runs.
_TRACE_S = 3.0

#: How much of what a rule prints is kept.
_KEPT = 1500


class _Output:
    """What a process writes to one of its streams: the begin is kept, the rest counted."""

    def __init__(self) -> None:
        self.begin = b""
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self.begin += data[: _KEPT - len(self.begin)]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(Exception):
        process.wait(5)


class _Ended(Exception):
    """The child has ended; its wait status."""


class _Late(Exception):
    """The time limit was reached; the argument is what it was doing."""


class _Process:
    """The child's process with its pipes and memory."""

    def __init__(self, rule: str, *, compiled: bool = True) -> None:
        self.memory = Memory()
        theirs, self._commands = os.pipe()
        self._replies, answers = os.pipe()
        root = str(Path(__file__).resolve().parents[2])
        env = dict(os.environ)
        env["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [env.get("PYTHONPATH")])])
        env["PYTHONFAULTHANDLER"] = ""
        if not compiled:
            env["TRACEANA_JIT"] = "0"
        numbers = (self.memory.fd, theirs, answers, os.getpid())
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "traceana.rules._child", rule, *map(str, numbers)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=numbers[:3],
            start_new_session=True,
            env=env,
        )
        os.close(theirs)
        os.close(answers)
        self.out, self.err = _Output(), _Output()
        self._buffer = b""
        self._select = selectors.DefaultSelector()
        assert self.process.stdout is not None and self.process.stderr is not None
        self._streams = {
            self.process.stdout.fileno(): self.out,
            self.process.stderr.fileno(): self.err,
            self._replies: None,
        }
        for fd in self._streams:
            os.set_blocking(fd, False)
            self._select.register(fd, selectors.EVENT_READ)
        self._end = weakref.finalize(self, _kill, self.process)

    def send(self, **message: Any) -> None:
        data = json.dumps(message).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._commands, data) :]

    def reply(self, limit_s: float) -> dict[str, Any]:
        """The next message; _Late after the limit, _Ended without one."""
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise _Late
            for key, _ in self._select.select(left):
                self._take(key.fd)
            if self._replies not in self._streams and b"\n" not in self._buffer:
                raise _Ended
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            message = json.loads(line)
        except ValueError:
            raise _Ended from None
        return message if isinstance(message, dict) else {}

    def _take(self, fd: int) -> None:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._select.unregister(fd)
            del self._streams[fd]
            return
        output = self._streams[fd]
        if output is not None:
            output.add(data)
        elif len(self._buffer) < 1 << 20:
            self._buffer += data

    def drain(self) -> None:
        """Take what has been written so far."""
        for key, _ in self._select.select(0):
            self._take(key.fd)

    def status(self) -> int:
        """How it ended: its exit status, or minus the signal."""
        try:
            return self.process.wait(5)
        except subprocess.TimeoutExpired:
            _kill(self.process)
            return self.process.wait()

    def close(self) -> None:
        """End it, whatever it does."""
        if not self._end.alive:
            return
        self._end()
        self._select.close()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        for fd in (self._commands, self._replies):
            os.close(fd)


class _Owner:
    """One isolated rule: its child and what is known of it."""

    def __init__(self, spec: str, paths: Sequence[Path], reasons: tuple[str, ...], limit: float):
        self.spec, self.paths, self._reasons, self._limit = spec, paths, reasons, limit
        self._process: _Process | None = _Process(spec)
        self._ready = False
        self._fault: RuleError | None = None
        self.remarks: list[str] = []
        #: Resolved path -> as the user gave it.
        self.given: dict[str, str] = {}

    def __str__(self) -> str:
        return self.spec

    def close(self) -> None:
        """End the child; what it printed becomes a remark."""
        if self._process is None:
            return
        with contextlib.suppress(Exception):
            self._process.drain()
        for output, name in ((self._process.out, "output"), (self._process.err, "error")):
            self._remark(output, name)
        self._process.close()
        self._process.memory.close()
        self._process = None

    def _remark(self, output: _Output, name: str) -> None:
        text = output.begin.decode(errors="replace")
        kept = [x for x in text.splitlines() if x.strip() and "compiling kernels" not in x]
        if not kept or (name == "error" and self._fault is not None):
            return
        first = kept[0] if len(kept[0]) <= 80 else kept[0][:79] + "…"
        path = self.given.get(str(self.paths[0]), str(self.paths[0]))
        self.remarks.append(
            f"{path}: wrote {output.size} bytes to standard {name}, which is no part of the "
            f"result; it begins: {first}"
        )

    # --- faults ---

    def _failed(self, what: str, line: int | None = None, path: str = "") -> RuleError:
        path = path or str(self.paths[0])
        return RuleError(self.given.get(path, path), what, line=line)

    def _at(self, fault: RuleError, process: _Process) -> RuleError:
        """The fault with the wakeup that the control block names."""
        control = process.memory.control
        if control[PHASE]:
            fault.ts, fault.wakee = int(control[TS]), int(control[WAKEE])
        return fault

    def _ended(self, process: _Process, doing: str) -> RuleError:
        status = process.status()
        process.drain()
        if status >= 0:
            return self._failed(f"the rule ended its process with status {status} while {doing}")
        name = signal.Signals(-status).name
        why = {
            "SIGSEGV": ": recursion without end, or an index beyond its array",
            "SIGBUS": ": an index beyond its array",
            "SIGKILL": ": it may have taken all memory",
        }.get(name, "")
        return self._failed(f"the rule crashed ({name}{why}) while {doing}")

    def _late(self, doing: str, limit: float) -> RuleError:
        return self._failed(
            f"the rule took longer than {limit:g} s while {doing}, and was stopped "
            "(--rule-timeout sets the limit)"
        )

    # --- its life ---

    def wait_ready(self) -> None:
        """Come back once the rule is compiled.

        Raises
        ------
        RuleError
            What keeps it from being asked; the same each time.
        """
        if self._fault is not None:
            raise self._fault
        if self._ready or self._process is None:
            return
        doing, limit = "Python was starting", _START_S
        try:
            while True:
                message = self._process.reply(limit)
                state = message.get("state")
                if state == "file":
                    doing, limit = "its file was being run", self._limit
                elif state == "compile":
                    doing, limit = "it was being compiled", _START_S
                elif state == "ready":
                    self._ready = True
                    return
                else:
                    self._fault = self._failed(
                        str(message.get("what")), message.get("line"), str(message.get("path", ""))
                    )
                    break
        except _Late:
            self._fault = self._late(doing, limit)
        except _Ended:
            self._fault = self._ended(self._process, doing)
        self.close()
        raise self._fault

    def call(self, kernel: Any, args: tuple[Any, ...], writes: Sequence[Any]) -> None:
        """Run a kernel in the child and copy ``writes`` (arrays among the arguments) back."""
        self.wait_ready()
        process = self._process
        if process is None:
            raise self._failed("its process has been closed")
        described, size, view = pack(process.memory, args)
        function = getattr(kernel, "py_func", kernel)
        process.send(
            do="call",
            kernel=[function.__module__, function.__qualname__],
            args=described,
            size=size,
        )
        try:
            message = process.reply(self._limit)
        except _Late:
            fault = self._late(_asked(process), self._limit)
        except _Ended:
            fault = self._ended(process, _asked(process))
        else:
            if message.get("state") == "done":
                self.spent_ns = int(message.get("ns", 0))
                for array, told in zip(args, described, strict=True):
                    if any(array is w for w in writes) and array.nbytes:
                        flat = np.frombuffer(view, array.dtype, array.size, told["at"])
                        array[...] = flat.reshape(array.shape)
                return
            fault = self._answered(message, process, args)
        process.close()
        self._at(fault, process)
        if fault.line is None:
            fault.line = self._line(process, args, described, size, fault)
        self._fault = fault
        self.close()
        raise fault

    def _answered(
        self, message: dict[str, Any], process: _Process, args: tuple[Any, ...]
    ) -> RuleError:
        if message.get("state") == "fault":
            return self._failed(
                str(message.get("what")), message.get("line"), str(message.get("path", ""))
            )
        return self._failed(_impossible(process.memory.control, args, self._reasons))

    def _line(
        self,
        process: _Process,
        args: tuple[Any, ...],
        described: list[Any],
        size: int,
        fault: RuleError,
    ) -> int | None:
        """The line of the fault: the decision at hand, run step by step in a fresh process.

        The arrays of the stopped call are as the rule left them, so the state is the one that
        the rule saw. Falls back to the line of its ``def``.
        """
        phase = int(process.memory.control[PHASE])
        name = PHASES[phase] if 0 < phase < len(PHASES) else "decide"
        fallback = _line_of_def(self.paths[0], name)
        old = process.memory.view(size)
        state = []
        for kind in (WAKEUP, MACHINE):
            found = [
                np.frombuffer(old, kind, a.size, d["at"])
                for a, d in zip(args, described, strict=True)
                if isinstance(a, np.ndarray) and a.dtype == kind and a.size
            ]
            if not found:
                return fallback
            state.append(found[0].copy())
        p = next((a for a in args if isinstance(a, np.ndarray) and a is self.p), self.p)
        rows = np.flatnonzero((state[0]["ts"] == fault.ts) & (state[0]["wakee"] == fault.wakee))
        if p is None or not len(rows):
            return fallback
        tracer = _Process(self.spec, compiled=False)
        try:
            while tracer.reply(_START_S).get("state") in ("file", "compile"):
                pass
            told, bytes_, _view = pack(tracer.memory, (*state, p))
            tracer.send(do="trace", args=told, size=bytes_, function=name, row=int(rows[0]))
            with contextlib.suppress(_Late, _Ended):
                message = tracer.reply(_TRACE_S)
                if message.get("line"):
                    return int(message["line"])
            return int(tracer.memory.control[LINE]) or fallback
        except (_Late, _Ended):
            return fallback
        finally:
            tracer.close()
            tracer.memory.close()

    #: The parameters as last made for a driver.
    p: Any = None
    #: CPU time of the last kernel in the child, without the copying, ns.
    spent_ns = 0


def _impossible(control: Any, args: tuple[Any, ...], reasons: tuple[str, ...]) -> str:
    machines = [a for a in args if isinstance(a, np.ndarray) and a.dtype == MACHINE]
    n = int(machines[0][0]["n_cpus"]) if machines else 0
    return fault_text(int(control[FAULT]), int(control[VALUE]), n, reasons)


def _asked(process: _Process) -> str:
    phase = int(process.memory.control[PHASE])
    return f"{PHASES[phase]} was asked" if 0 < phase < len(PHASES) else "the capture was replayed"


def _line_of_def(path: Path, name: str) -> int | None:
    import ast

    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    named = {n.name: n.lineno for n in tree.body if isinstance(n, ast.FunctionDef)}
    return named.get(name, min(named.values(), default=None) if named else None)


class _Watched(Remote):
    """A function of a rule that runs in this process (TRACEANA_JIT=0)."""

    def __init__(self, name: str, owner: Any, function: Callable[..., Any]) -> None:
        super().__init__(name, owner)
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)


class _Inside:
    """One user's rule in this process: no time limit, its faults still become RuleErrors."""

    remarks: tuple[str, ...] = ()
    p: Any = None

    def __init__(self, rule: Rule, users: Sequence[Path]) -> None:
        self._users, self._reasons = users, rule.reasons
        self._control = np.zeros(CONTROL_WORDS, np.int64)
        # Room for p: the parameters are put in at each call.
        from traceana.thresholds import tunables

        decide, blocked_by = guarded(
            rule.decide, rule.blocked_by, self._control, rule.parameters(tunables(None, 1)),
            parameters=len(rule.text.params), reasons=len(rule.reasons),
        )  # fmt: skip
        self.decide: Any = _Watched("decide", self, decide)
        self.blocked_by: Any = _Watched("blocked_by", self, blocked_by)

    def close(self) -> None:
        """Nothing to end."""

    def call(self, kernel: Any, args: tuple[Any, ...], writes: Sequence[Any]) -> None:
        """Run the kernel here."""
        self._control[:] = 0
        try:
            kernel(*args)
        except Exception as error:
            if self._control[FAULT]:
                what = _impossible(self._control, args, self._reasons)
                fault = RuleError(self._users[0], what)
                fault.line = _line_of_def(self._users[0], "decide")
            else:
                found = [raised_fault(error, path, "it raised") for path in self._users]
                fault = next((f for f in found if f.line is not None), found[0])
            fault.ts, fault.wakee = int(self._control[TS]), int(self._control[WAKEE])
            raise fault from error


class _IsolatedRule(Rule):
    """A Rule that remembers the parameters it handed out, for the search for a line."""

    def parameters(self, tunables: Any, overrides: Any = None) -> Any:
        p = super().parameters(tunables, overrides)
        owner_of(self).p = p
        return p


def owner_of(rule: Rule) -> Any:
    """The _Owner behind an isolated rule; None for any other."""
    found = holds_remote((rule.decide, rule.blocked_by))
    return None if found is None else found.owner


def isolated(rule: str, timeout_s: float = TIMEOUT_S) -> Rule:
    """A user's rule (or a combination with one) whose code runs in a child process.

    The child starts at once and compiles while the caller goes on. With ``TRACEANA_JIT=0`` there
    is no child and no time limit: a debugger can step through the rule.

    Parameters
    ----------
    rule : str
        As :func:`traceana.rules.load` takes it.
    timeout_s : float
        Time limit of the rule's code, seconds: for running its file, and for each kernel that
        asks it.

    Raises
    ------
    UsageError
        No such file, or not of the form of a rule.
    """
    from traceana.rules.interface import UNCOMPILED

    text = describe(rule)
    parts = [str(Path(p).resolve()) if p.endswith(".py") else p for p in split(rule)]
    spec = parts[0] if len(parts) == 1 else "+".join(parts)
    users = [Path(p) for p in parts if p.endswith(".py")]
    if UNCOMPILED:
        loaded = load(rule)
        inside = _Inside(loaded, users)
        return replace(loaded, decide=inside.decide, blocked_by=inside.blocked_by)
    owner = _Owner(spec, users, text.reasons, timeout_s)
    owner.given = {str(Path(p).resolve()): p for p in split(rule) if p.endswith(".py")}
    decide: Any = Remote("decide", owner)
    blocked_by: Any = Remote("blocked_by", owner)
    return _IsolatedRule(
        name=text.name, text=text, decide=decide, blocked_by=blocked_by, places=places_of(text)
    )


def close(rules: Sequence[Rule]) -> None:
    """End the children of those rules that have one."""
    for rule in rules:
        owner = owner_of(rule)
        if owner is not None:
            owner.close()


def remarks_of(rule: Rule) -> list[str]:
    """What an isolated rule's child printed, once it is closed."""
    owner = owner_of(rule)
    return [] if owner is None else list(owner.remarks)


def call(kernel: Callable[..., Any], args: tuple[Any, ...], writes: Sequence[Any]) -> None:
    """Run a kernel, in the child of the isolated rule among its arguments if there is one.

    Parameters
    ----------
    kernel : a module's compiled function that returns nothing
    args : its arguments: arrays, numbers, functions, tuples of these
    writes : the arrays among ``args`` that the caller reads afterwards; the others may or may
        not have been written

    Raises
    ------
    RuleError
        The rule failed; ``writes`` are untouched.
    """
    found = holds_remote(args)
    if found is None:
        kernel(*args)
    else:
        found.owner.call(kernel, args, writes)
