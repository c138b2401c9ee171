"""The process in which one user's rule runs: ``python -m traceana.rules._child RULE …``.

Started by ``_isolated`` and spoken to by lines of JSON on two pipes. It says how far it is (the
file, the compiler, ready), then runs kernels with the rule's functions put in until its input
ends. With ``TRACEANA_JIT=0`` it is used once a rule has failed: to find the line, by running the
decision at hand step by step.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from traceana.errors import RuleError, TraceanaError

#: How much memory a rule may take beyond what its process starts with.
ROOM = 4 << 30

_PR_SET_PDEATHSIG = 1


def _end_with_parent(parent: int) -> None:
    """Ask Linux to end this process when its parent ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _limit_memory(more: int) -> None:
    """Let this process have ROOM and ``more`` bytes beyond what it has mapped now."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        soft = pages * resource.getpagesize() + ROOM + more
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        if hard != resource.RLIM_INFINITY:
            soft = min(soft, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class _Child:
    def __init__(self, rule: str, memory: int, replies: int) -> None:
        from traceana.rules import load
        from traceana.rules._guard import CONTROL_WORDS
        from traceana.rules._wire import Memory

        self._rule, self._load = rule, load
        self._replies = replies
        self._memory = Memory(memory)
        self._control = self._memory.control[:CONTROL_WORDS]
        self._raised: BaseException | None = None
        self._own: dict[str, Any] = {}

    def say(self, **message: Any) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._replies, data) :]

    def fault(self, error: BaseException, what: str) -> None:
        """Report what went wrong, at the rule's line where the traceback knows it."""
        from traceana.rules._faults import raised_fault
        from traceana.rules._steps import split

        if not isinstance(error, RuleError):
            paths = [Path(p) for p in split(self._rule) if p.endswith(".py")]
            if isinstance(error, TraceanaError):
                error = RuleError(paths[0], str(error).removeprefix(f"{paths[0]}: "))
            else:
                found = [raised_fault(error, path, what) for path in paths]
                error = next((f for f in found if f.line is not None), found[0])
        self.say(state="fault", path=error.path, line=error.line, what=error.what)

    def prepare(self) -> bool:
        """Import what is needed, run the file, compile; says how far it is."""
        from traceana.rules import _users, interface

        importlib.import_module("traceana.rules.recorded")
        _users.after_run.append(lambda: self.say(state="compile"))
        self.say(state="file")
        _limit_memory(0)
        try:
            rule = self._load(self._rule)
            self._text = rule.text
            if interface.UNCOMPILED:
                self._own = {"decide": rule.decide, "blocked_by": rule.blocked_by}
                self._rule_loaded = rule
            else:
                self._guard(rule)
        except Exception as error:
            self.fault(error, "loading the rule failed")
            return False
        self.say(state="ready")
        return True

    def _own_p(self, rule: Any) -> Any:
        """A *p* of this process: room for the parameters, then what belongs to the rule."""
        from traceana.thresholds import tunables

        return rule.parameters(tunables(None, 1))

    def _guard(self, rule: Any) -> None:
        from traceana.rules._guard import guarded

        own = self._keep = self._own_p(rule)
        decide, blocked = guarded(
            rule.decide,
            rule.blocked_by,
            self._control,
            own,
            parameters=len(rule.text.params),
            reasons=len(rule.reasons),
        )
        self._own = {"decide": decide, "blocked_by": blocked}

    def function_of(self, module: str, name: str) -> Any:
        """A library's function by its name; a rule's as drivers take it."""
        folder, _, rule = module.rpartition(".")
        if folder == "traceana.rules" and not rule.startswith("_"):
            return getattr(self._load(rule), name)
        if module == "traceana.rules._walk_kernels":
            return getattr(self._load("sis_short_v5"), name)
        if not module.startswith("traceana."):
            raise ValueError(f"{module}.{name} is not of traceana")
        return getattr(importlib.import_module(module), name)

    def hook(self, unraisable: Any) -> None:
        """Remember what a step raised: the compiled path that called it cannot hear of it."""
        from traceana.rules._guard import FAULT, Fault

        if self._raised is None:
            self._raised = unraisable.exc_value
        self._control[FAULT] = Fault.RAISED

    def call(self, message: dict[str, Any]) -> None:
        from traceana.rules._guard import FAULT
        from traceana.rules._wire import unpack

        size = message["size"]
        _limit_memory(size)
        view = self._memory.view(size)
        args = [unpack(a, view, self.function_of, self._own) for a in message["args"]]
        kernel = self.function_of(*message["kernel"])
        self._control[:] = 0
        self._raised = None
        sys.unraisablehook = self.hook
        began = time.process_time_ns()
        try:
            kernel(*args)
        except Exception as error:
            if self._raised is not None:
                self.fault(self._raised, "it raised")
            elif self._control[FAULT]:
                self.say(state="answer")
            else:
                self.fault(error, "it raised")
        else:
            self.say(state="done", ns=time.process_time_ns() - began)
        finally:
            sys.unraisablehook = sys.__unraisablehook__

    def trace(self, message: dict[str, Any]) -> None:
        """Run one decision line by line; LINE holds the rule's line all the time."""
        from traceana.rules._guard import LINE
        from traceana.rules._state import MACHINE, WAKEUP
        from traceana.rules._wire import unpack

        view = self._memory.view(message["size"])
        w, m, given = (unpack(a, view, self.function_of, {}) for a in message["args"])
        w, m = w.view(WAKEUP), m.view(MACHINE)  # whose fields are attributes
        p = self._own_p(self._rule_loaded)
        n = len(self._text.params)
        p[:n] = given[:n]
        files = {str(part.path) for part in self._text.parts or (self._text,)}
        control = self._control

        def lines(frame: FrameType, event: str, argument: Any) -> Any:
            if frame.f_code.co_filename not in files:
                return None
            control[LINE] = frame.f_lineno
            return lines

        function = self._own[message["function"]]
        # numpy's integers divide by 0 with a warning; compiled code raises.
        np.seterr(divide="raise", invalid="raise")
        sys.settrace(lines)
        try:
            function(w[message["row"]], m[0], p)
        except Exception as error:
            sys.settrace(None)
            self.fault(error, "it raised")
            return
        finally:
            sys.settrace(None)
        self.say(state="done")


def main() -> None:
    """Serve one rule until the input ends."""
    rule, memory, commands, replies, parent = sys.argv[1:6]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _end_with_parent(int(parent))
    child = _Child(rule, int(memory), int(replies))
    if not child.prepare():
        return
    with os.fdopen(int(commands), "r") as lines:
        for line in lines:
            message = json.loads(line)
            getattr(child, message["do"])(message)
            sys.stdout.flush()
            sys.stderr.flush()


if __name__ == "__main__":
    main()
