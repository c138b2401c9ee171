"""A user's rule that misbehaves: its own clear message, and nothing else of the run is lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import traceana as ta
from traceana.errors import RuleError, UsageError
from traceana.rules import _isolated
from traceana.rules._lint import faults, remarks
from traceana.rules.interface import UNCOMPILED
from traceana.userrules import spec_of

ROOT = Path(__file__).resolve().parents[2]

HEAD = '''"""A rule of a test."""
from traceana.rules.interface import NONE, RECORDED, idle_cpu, njit
{head}
REASONS = ("recorded", "mainline", "mine")
@njit
def helper(x):
    return x
@njit
def decide(w, m, p):
{body}
'''
#: Line of the first line of the body.
BODY = 10

compiled = pytest.mark.skipif(UNCOMPILED, reason="with TRACEANA_JIT=0 there is no child")


def pingpong(rounds: int = 40) -> str:
    """Two CPUs; a on 0 and b on 1 wake each other in turn; 10 us a step."""
    out = ["# tracer: nop\n#\n"]
    t = 1_000_000

    def line(cpu: int, who: str, event: str) -> None:
        nonlocal t
        t += 2
        out.append(f"{who:>16} [{cpu:03d}] d... {t / 1e6:.6f}: {event}\n")

    names = ("a-10", "b-20")
    for i in range(rounds):
        me, other = i % 2, 1 - i % 2
        (mine, my_pid), (his, his_pid) = names[me].split("-"), names[other].split("-")
        line(me, names[me], f"sched_waking: comm={his} pid={his_pid} prio=120 target_cpu=00{other}")
        line(me, names[me], f"sched_wakeup: comm={his} pid={his_pid} prio=120 target_cpu=00{other}")
        line(
            other, "<idle>-0", f"sched_switch: prev_comm=swapper/{other} prev_pid=0 prev_prio=120 "
            f"prev_state=R ==> next_comm={his} next_pid={his_pid} next_prio=120",
        )  # fmt: skip
        line(
            me, names[me], f"sched_switch: prev_comm={mine} prev_pid={my_pid} prev_prio=120 "
            f"prev_state=S ==> next_comm=swapper/{me} next_pid=0 next_prio=120",
        )  # fmt: skip
    return "".join(out)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pingpong") / "pp.txt"
    path.write_text(pingpong())
    return path


@pytest.fixture(scope="module")
def cap(capture: Path) -> ta.Capture:
    return ta.open(capture)


def write(folder: Path, name: str, body: str, head: str = "") -> Path:
    path = folder / f"{name}.py"
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    path.write_text(HEAD.format(head=head, body=lines))
    return path


STAY = "\nreturn w.recorded_cpu, RECORDED"

#: name -> (body, head, line of the file, what the message says, whether a wakeup is named)
BAD: dict[str, tuple[str, str, int | None, str, bool]] = {
    "hangs": (
        "if w.this_cpu == 1:\n    while True:\n        pass" + STAY, "", BODY + 1,
        r"took longer than 2 s while decide was asked, and was stopped", True,
    ),
    "cpu999": (
        "return 999, 2", "", BODY - 1,
        r"decide returned CPU 999; this machine has CPUs 0 to 1", True,
    ),
    "negative": ("return -3, 2", "", BODY - 1, r"decide returned CPU -3; this machine", True),
    "raises": (
        "if w.this_cpu == 1:\n    raise ValueError('not here')" + STAY, "", BODY + 1,
        r"it raised: ValueError: not here", True,
    ),
    "divides": (
        "x = w.this_cpu\nx = 5 // (x - 1)" + STAY, "", BODY + 1,
        r"it raised: ZeroDivisionError", True,
    ),
    "index": ("x = m.cpus[4000].nr" + STAY, "", None, r"it raised: IndexError", True),
    "pandas_in": (
        "import pandas as pd" + STAY, "", BODY, r"decide imports pandas: a rule is compiled", False,
    ),
    "pandas_used": (
        "return int(pd.Series([1]).sum()), 2", "import pandas as pd", BODY,
        r"pandas.Series cannot be used in a rule", False,
    ),
    "exits": (
        "return 0, 2", "import os; os._exit(3)", None,
        r"ended its process with status 3 while its file was being run", False,
    ),
    "recurses": (
        "if w.this_cpu == 77:\n    return 0, 2\nreturn decide(w, m, p)", "", BODY,
        r"crashed \(SIGSEGV: recursion without end", True,
    ),
    "loops_at_import": (
        "return 0, 2", "while True: pass", None,
        r"took longer than 2 s while its file was being run", False,
    ),
    "writes": (
        "m.cpus[0].nr = 3" + STAY, "", BODY, r"decide writes to m \(m.cpus\[0\].nr\)", False,
    ),
    "field": (
        "return w.this, 2", "", BODY, r"w has no field 'this'; did you mean this_cpu\?", False,
    ),
    "syntax": ("return (0, 2", "", BODY, r"never closed", False),
    "memory": ("return 0, 2", "x = bytearray(40 << 30)", 3, r"MemoryError", False),
}  # fmt: skip
# The line that the search for the fault comes to: the return itself.
for _name in ("cpu999", "negative"):
    BAD[_name] = (*BAD[_name][:2], BODY, *BAD[_name][3:])
BAD["index"] = (*BAD["index"][:2], BODY, *BAD["index"][3:])


@pytest.fixture(scope="module")
def result(cap: ta.Capture, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One run of all of them, a good rule among them."""
    if UNCOMPILED:
        pytest.skip("with TRACEANA_JIT=0 there is no child")
    folder = tmp_path_factory.mktemp("bad")
    rules: list[Any] = ["recorded"]
    rules += [write(folder, name, body, head) for name, (body, head, *_) in BAD.items()]
    rules.append(write(folder, "good", "print('x', w.this_cpu)\nreturn w.this_cpu, 2"))
    rules.append("prev_cpu")
    yield ta.whatif(cap, rules, rule_timeout=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_each_has_its_own_message(name: str, result: Any) -> None:
    *_, line, said, at_wakeup = BAD[name]
    (fault,) = [f for f in result.failed if f.rule == name]
    assert re.search(said, fault.what), fault.what
    if line is not None:
        # A loop or a recursion is met at one of its lines.
        assert line <= fault.line <= line + (2 if name in ("hangs", "recurses") else 0)
    assert str(fault).startswith(f"{fault.path}:{fault.line}: " if line else f"{fault.path}: ")
    assert "numba" not in str(fault)
    assert len(str(fault)) < 450 and "\n" not in str(fault)
    assert (fault.wakeup is not None) == at_wakeup
    if at_wakeup:
        assert re.search(r"at wakeup \d+, 1\.\d{9} s, wakee [ab] \[\d+\]", str(fault))
    with pytest.raises(RuleError):
        result[name]


@pytest.mark.slow
def test_nothing_else_is_lost(result: Any) -> None:
    assert [r.rule for r in result.rules] == ["recorded", "good", "prev_cpu"]
    assert len(result.failed) == len(BAD)
    assert result["good"].moved == result["good"].decisions > 0
    assert result["prev_cpu"].moved == 0
    (said,) = [r for r in result.remarks if "good.py" in r]
    assert re.search(r"wrote \d+ bytes to standard output, .*; it begins: x [01]$", said)
    document = result.to_json()
    assert {f["rule"] for f in document["failed_rules"]} == set(BAD)
    assert "failed: " in repr(result)


@compiled
def test_writes_to_m_through_a_helper_are_seen(cap: ta.Capture, tmp_path: Path) -> None:
    # No assignment to m that its text would show.
    head = "@njit\ndef spoil(c):\n    c.nr = 5"
    path = write(tmp_path, "spoils", "spoil(m.cpus[0])" + STAY, head)
    (fault,) = ta.whatif(cap, [path]).failed
    assert "it writes to m" in fault.what


def test_answers_that_cannot_be() -> None:
    from traceana.rules._cases import state_of
    from traceana.rules._guard import Fault, _wrong, fault_text

    w, m = state_of(
        {"machine": {"cpus": 3, "online": [1, 0, 1]},
         "wakeup": {"this_cpu": 0, "prev_cpu": 0, "recorded_cpu": 2, "allowed": [0, 1]}}
    )  # fmt: skip

    def wrong(cpu: int, reason: int = 2) -> int:
        return int(_wrong(w[0], m[0], cpu, reason, 3))

    assert wrong(0) == 0
    assert wrong(2) == 0  # where it was recorded, allowed or not
    assert [wrong(c) for c in (-1, -7, 3, 999)] == [Fault.NO_SUCH_CPU] * 4
    assert wrong(1) == Fault.OFFLINE
    assert [wrong(0, r) for r in (-1, 3)] == [Fault.REASON] * 2
    w[0]["recorded_cpu"] = -1
    assert wrong(-1, 1) == 0  # no opinion, where nothing is recorded
    assert wrong(2) == Fault.NOT_ALLOWED
    said = fault_text(Fault.REASON, 7, 3, ("recorded", "mainline", "x"))
    assert "returned reason 7; REASONS has 3, numbered 0 to 2" in said
    assert "returned NONE for a recorded" in fault_text(Fault.NO_SUCH_CPU, -1, 3, ())


@compiled
def test_the_wakee_may_not_run_there(tmp_path: Path) -> None:
    from traceana.rules._check import check

    path = write(
        tmp_path, "forbidden", "return 1, 2",
        'CASES = ({"name": "c", "machine": {"cpus": 3}, "wakeup": {"this_cpu": 0, "prev_cpu": 0, '
        '"allowed": [0], "recorded_cpu": 0}, "cpu": 0, "reason": "mine"}, '
        '{"name": "off", "machine": {"cpus": 3, "online": [1, 0, 1]}, '
        '"wakeup": {"this_cpu": 0, "prev_cpu": 0, "recorded_cpu": 0}, "cpu": 0, "reason": "mine"})',
    )  # fmt: skip
    first, second = check(str(path)).cases
    assert "CPU 1, on which the wakee may not run" in first.problem
    assert "CPU 1, which is offline" in second.problem


@compiled
def test_a_step_that_raises(cap: ta.Capture, tmp_path: Path) -> None:
    # Steps are called by their address: the path that calls them cannot hear of an exception.
    path = tmp_path / "step.py"
    path.write_text(
        '"""A step."""\nfrom traceana.rules.interface import NONE, njit\n'
        'REASONS = ("recorded", "mainline", "mine")\nSTEPS = {"wake_wide": "mine"}\n'
        "@njit\ndef wake_wide(w, m, p):\n    if w.this_cpu == 1:\n        raise KeyError('k')\n"
        "    return NONE\n"
    )
    (fault,) = ta.whatif(cap, [path]).failed
    assert (fault.line, "KeyError" in fault.what, fault.wakeup is not None) == (8, True, True)


@compiled
def test_the_answers_are_those_of_the_same_code_in_the_library(
    cap: ta.Capture, tmp_path: Path
) -> None:
    mine = tmp_path / "my_abel.py"
    mine.write_text((ROOT / "traceana" / "rules" / "abel.py").read_text())
    result = ta.whatif(ta.open(ROOT / "sample_traces" / "pp3-plain.dat.xz"), [mine, "abel"])
    a, b = result["my_abel"], result["abel"]
    assert not result.failed
    assert a.moved == b.moved
    for name in ("cpu", "reason_codes", "certainty"):
        assert np.array_equal(getattr(a, name), getattr(b, name))
    assert a.blocked_alone == b.blocked_alone


@compiled
def test_the_child_ends_with_the_run(cap: ta.Capture, tmp_path: Path) -> None:
    path = write(tmp_path, "good", "return w.this_cpu, 2")
    seen: list[Any] = []
    begun = _isolated._Process.__init__

    def remember(self: Any, *args: Any, **more: Any) -> None:
        begun(self, *args, **more)
        seen.append(self.process)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_isolated._Process, "__init__", remember)
        ta.whatif(cap, [path])
    assert len(seen) == 1
    assert seen[0].poll() is not None


class TestNames:
    def test_paths_modules_and_functions(self, tmp_path: Path) -> None:
        path = write(tmp_path, "named", "return w.this_cpu, 2")
        space: dict[str, Any] = {}
        exec(compile("def decide(w, m, p):\n    return 0, 0\n", str(path), "exec"), space)
        import traceana.rules.abel as module

        assert spec_of(str(path)) == spec_of(path) == spec_of(space["decide"]) == str(path)
        assert spec_of(module).endswith("rules/abel.py")

    def test_what_comes_from_no_file(self) -> None:
        space: dict[str, Any] = {}
        exec("def decide(w, m, p):\n    return 0, 0\n", space)
        with pytest.raises(UsageError, match="comes from no file"):
            spec_of(space["decide"])

    def test_two_of_one_name(self, cap: ta.Capture, tmp_path: Path) -> None:
        path = tmp_path / "abel.py"
        path.write_text(write(tmp_path, "x", "return 0, 2").read_text())
        with pytest.raises(UsageError, match="two rules are called abel"):
            ta.whatif(cap, ["abel", path])

    def test_a_file_that_is_not_there(self, cap: ta.Capture) -> None:
        with pytest.raises(UsageError, match=r"nothere\.py does not exist"):
            ta.whatif(cap, ["recorded", "nothere.py"])


class TestLookedOver:
    @pytest.mark.parametrize(
        ("body", "said"),
        [
            ("with open('x') as f:\n    pass", "uses `with`"),
            ("yield 1", "uses `yield`"),
            ("return 1, 2, 3", "not 3 values"),
            ("return w.this_cpu / 2, 2", "not a fraction"),
            ("return None", "not nothing"),
            ("while True:\n    pass", "decide never returns"),
            ("while True:\n    pass\nreturn 0, 2", "never ends"),
            ("while 1:\n    w.wakee\nreturn 0, 2", "never ends"),
            ("k = m.cpus[0]\nk.nr += 1" + STAY, r"writes to m \(k.nr\)"),
            ("return m.cpus[0].nnr, 2", "did you mean nr"),
            ("return m.ncpus, 2", "did you mean n_cpus"),
        ],
    )
    def test_faults(self, body: str, said: str) -> None:
        lines = "".join(f"    {line}\n" for line in body.split("\n"))
        found = faults(HEAD.format(head="", body=lines))
        assert any(re.search(said, f.text) for f in found), found

    def test_rules_of_the_library_have_none(self) -> None:
        for path in (ROOT / "traceana" / "rules").glob("[a-z]*.py"):
            assert faults(path.read_text()) == [], path.name

    def test_a_nesting_without_end(self, cap: ta.Capture, tmp_path: Path) -> None:
        path = write(tmp_path, "deep", "return 0, 2", "X = " + "-" * 200_000 + "1")
        (fault,) = ta.whatif(cap, [path]).failed
        assert "deep" in str(fault)

    def test_a_computed_fraction(self, cap: ta.Capture, tmp_path: Path) -> None:
        path = write(tmp_path, "half", "return w.prev_cpu + 0.5, 2")
        (fault,) = ta.whatif(cap, [path]).failed
        assert "returns a fraction" in str(fault)

    def test_an_unused_import_is_a_remark(self) -> None:
        (found,) = remarks(HEAD.format(head="import pandas", body="    return 0, 2\n"))
        assert (found.line, "pandas" in found.text) == (3, True)


def test_without_the_compiler_it_runs_in_this_process(capture: Path, tmp_path: Path) -> None:
    """TRACEANA_JIT=0: so that a debugger can step through it."""
    path = write(
        tmp_path, "here", "assert os.getpid() == int(os.environ['ASKED_BY'])" + STAY, "import os"
    )
    bad = write(tmp_path, "bad", "return 999, 2")
    code = (
        "import os; os.environ['ASKED_BY'] = str(os.getpid())\n"
        "import sys, traceana as ta\n"
        "r = ta.whatif(ta.open(sys.argv[1]), sys.argv[2:])\n"
        "print(*r.remarks)\n"
        "print([x.rule for x in r.rules], *r.failed)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(capture), str(path), str(bad)],
        env={**os.environ, "TRACEANA_JIT": "0", "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "TRACEANA_JIT=0: " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("['here'] ")
    assert "decide returned CPU 999; this machine has CPUs 0 to 1 (at wakeup" in done.stdout


class TestCommands:
    def test_failed_rule_status_and_stdout(
        self, capture: Path, tmp_path: Path, cli: Callable[..., Any]
    ) -> None:
        path = write(tmp_path, "slip", "return w.this, 2")
        ran = cli("whatif", capture, "--rule", f"recorded,{path}", "--format", "json")
        assert ran.status == 6
        assert [r["rule"] for r in ran.json["rules"]] == ["recorded"]
        assert ran.json["failed_rules"][0]["line"] == BODY
        assert ran.err.count("\n") == 1 + ran.err.count("kernel release")
        assert f"{path}:{BODY}: w has no field 'this'" in ran.err

    def test_timeout_is_checked(self, capture: Path, cli: Callable[..., Any]) -> None:
        ran = cli("whatif", capture, "--rule-timeout", "0")
        assert (ran.status, "more than 0" in ran.err) == (2, True)
