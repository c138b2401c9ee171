"""A compiled driver takes any rule through a function pointer, and is cached for all rules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from traceana.rules.interface import UNCOMPILED

ROOT = Path(__file__).resolve().parents[2]

#: A driver as whatif and simulate have one; counts what a cached copy saves.
DRIVER = """
from traceana.rules.interface import (
    BLOCKED_BY, DECIDE, MACHINES_TYPE, PARAMS_TYPE, WAKEUPS_TYPE,
)
from numba import njit, types

@njit(
    types.int64(
        DECIDE, BLOCKED_BY, WAKEUPS_TYPE, MACHINES_TYPE, PARAMS_TYPE,
        types.int64[::1], types.int64[::1], types.int64[::1],
    ),
    cache=True, nogil=True,
)
def drive(decide, blocked_by, wakeups, machines, p, cpus, reasons, bits):
    m = machines[0]
    for i in range(wakeups.shape[0]):
        w = wakeups[i]
        m.cpus[w.this_cpu].nr += 1      # state is kept between wakeups
        cpus[i], reasons[i] = decide(w, m, p)
        bits[i] = blocked_by(w, m, p)
    return m.cpus[0].nr
"""

RUN = """
import json, sys, time
import numpy as np
import mydriver
from traceana.rules import load
from traceana.rules._forms import forms_for
from traceana.rules._state import make_machine, make_wakeups
from traceana.thresholds import tunables

t0 = time.perf_counter()
rule = load(sys.argv[1])
compiled = time.perf_counter() - t0
n = 200_000
wakeups = make_wakeups(n)
wakeups["this_cpu"] = 0
wakeups["prev_cpu"] = 1
wakeups["recorded_cpu"] = 3
machine = make_machine(4, forms=forms_for("6.1.192"))
p = rule.parameters(tunables("6.1.192", 4))
out = [np.zeros(n, np.int64) for _ in range(3)]
nr = mydriver.drive(rule.decide, rule.blocked_by, wakeups[:1], machine, p, *out)
t0 = time.perf_counter()
nr = mydriver.drive(rule.decide, rule.blocked_by, wakeups, machine, p, *out)
called = (time.perf_counter() - t0) / n * 1e9
stats = mydriver.drive.stats
print(json.dumps({
    "compiled_s": compiled, "called_ns": called, "nr": int(nr),
    "cpus": sorted(set(out[0].tolist())), "reasons": sorted(set(out[1].tolist())),
    "bits": sorted(set(out[2].tolist())), "signatures": len(mydriver.drive.signatures),
    "hits": sum(stats.cache_hits.values()), "misses": sum(stats.cache_misses.values()),
}))
"""

RULE = '''"""CPU 0 as soon as two tasks are there."""
from traceana.rules.interface import RECORDED, njit
REASONS = ("recorded", "mainline", "crowd")
@njit
def decide(w, m, p):
    if m.cpus[w.this_cpu].nr > 1:
        return 0, 2
    return w.recorded_cpu, RECORDED
'''


@pytest.mark.skipif(UNCOMPILED, reason="nothing is compiled with TRACEANA_JIT=0")
def test_the_driver_is_compiled_once_for_all_rules(tmp_path: Path) -> None:
    (tmp_path / "mydriver.py").write_text(DRIVER)
    (tmp_path / "run.py").write_text(RUN)
    mine = tmp_path / "crowd.py"
    mine.write_text(RULE)

    def run(rule: str) -> dict[str, float]:
        done = subprocess.run(
            [sys.executable, str(tmp_path / "run.py"), rule],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path))),
                "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
            },
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    first = run("recorded")
    assert (first["hits"], first["misses"], first["signatures"]) == (0, 1, 1)
    assert (first["cpus"], first["reasons"], first["bits"]) == ([3], [0], [0])
    assert first["nr"] == 200_001

    other = run("this_cpu")
    assert (other["hits"], other["misses"], other["signatures"]) == (1, 0, 1)
    assert (other["cpus"], other["reasons"]) == ([0], [2])

    user = run(str(mine))
    assert (user["hits"], user["misses"], user["signatures"]) == (1, 0, 1)
    assert (user["cpus"], user["reasons"]) == ([0], [2])
    # a second: 0.1 s where the machine has nothing else to do
    assert user["compiled_s"] < 5
    # both calls of a wakeup together, over records that do not fit a cache
    assert user["called_ns"] < 2000
