"""The kernel's path: the recorded vectors, and thousands of random states against the oracle."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracle import path_oracle

from traceana.rules import Rule, load
from traceana.rules._cases import state_of
from traceana.rules._forms import forms_for
from traceana.rules._state import MACHINE, Affine, Step
from traceana.thresholds import tunables

HERE = Path(__file__).parent

#: What the vectors and the oracle call the steps.
WA = {
    "wide": "wide",
    "this_not_allowed": "this_not_allowed",
    "this_is_prev": "this=prev",
    "no_domain": "no_domain",
    "idle": "idle",
    "sync": "sync",
    "prev_idle": "prev_idle",
    "weight_this": "weight",
    "weight_prev": "weight",
}
STEP = {"sibling": "smt"}

#: vector's column -> (rule, release, its names for the steps that the rule put in)
COLUMNS = {
    "6.1": ("mainline", "6.1.192", {}),
    "5.10": ("mainline", "5.10.223", {}),
    "v5": ("sis_short_v5", "6.1.192", {"affine": "A", "step": "B"}),
    "abel": ("abel", "6.1.192", {"affine": "abel"}),
    "v7": ("sis_current_v7", "6.1.192", {"affine": "v7", "step": "v7_second"}),
    "s2": ("sis_util_idle_core", "6.1.192", {}),
}
#: The same two as a user would write them, with a whole path of their own.
USERS = {
    "v7": (str(HERE / "user_rules" / "sis_current_v7.py"), *COLUMNS["v7"][1:]),
    "s2": (str(HERE / "user_rules" / "sis_util_idle_core.py"), *COLUMNS["s2"][1:]),
}


def parameters(rule: Rule, threshold_ns: int, **others: int) -> Any:
    """*p* with this threshold, where the rule has one."""
    known = {param.name.rpartition(".")[2] for param in rule.text.params}
    given = {"threshold_ns": threshold_ns, **others}
    return rule.parameters(
        tunables("6.1.192", 8), {name: value for name, value in given.items() if name in known}
    )


def answer(rule: Rule, case: dict[str, Any], p: Any, own: dict[str, str]) -> dict[str, Any]:
    """Ask a rule for the whole path (closed loop), in the vectors' words."""
    wakeups, machine = state_of(case)
    w, m = wakeups[0], machine[0]
    cpu, _ = rule.decide(w, m, p)
    affine, step = Affine.NAMES[w["affine"]], Step.NAMES[w["step"]]
    row = m["llcs"][m["cpus"][int(w["target"])]["llc"]]
    return {
        "cpu": int(cpu),
        "target": int(w["target"]),
        "wa": own["affine"] if affine == "rule" else WA[affine],
        "step": own["step"] if step == "rule" else STEP.get(step, step),
        "hint_after": 0 if w["hint_cleared"] else int(row["idle_core"]),
        "recent_after": int(w["recent_after"]),
    }


def case_of(machine: dict[str, Any], k: dict[str, Any], release: str) -> dict[str, Any]:
    """From a vector (or a random state in its form) to a case."""
    given = {
        name: machine[name]
        for name in (
            *("core", "llc", "cluster", "zone", "nr", "pending", "curr_dur", "load"),
            *("sched_idle", "delayed", "capacity", "nr_idle_scan"),
        )
        if name in machine
    }
    return {
        "machine": {
            "cpus": machine["n"],
            "idle_core": machine["hint"],
            "prop_nr": k["prop_nr"],
            "release": release,
            **given,
        },
        "wakeup": {
            "this_cpu": k["this"],
            "prev_cpu": k["prev"],
            "recent_cpu": k["recent"],
            "allowed": k["allowed"],
            "sync": k["sync"],
            "task_ctx": k["task_ctx"],
            "waker_percpu_kthread": k["w_percpu_kthread"],
            "waker_flips": k["w_flips"],
            "wakee_flips": k["p_flips"],
            "waker_dur": k["w_dur"],
            "wakee_dur": k["p_dur"],
            "waker_load": k["w_load"],
            "wakee_load": k["p_load"],
            "waker_last_is_wakee": k["w_last_is_p"],
            "wakee_last_is_waker": k["p_last_is_w"],
        },
    }


@pytest.mark.parametrize(
    ("column", "given"),
    [*COLUMNS.items(), *USERS.items()],
    ids=[*COLUMNS, *(f"{c}-user" for c in USERS)],
)
def test_vectors(column: str, given: tuple[str, str, dict[str, str]], shared: Path) -> None:
    name, release, own = given
    rule = load(name)
    cases = json.loads((shared / "vectors" / "a8_select_path.json").read_text())["cases"]
    assert len(cases) > 200
    for case in cases:
        p = parameters(rule, case["machine"]["min_gran"] // 8)
        got = answer(rule, case_of(case["machine"], case["wakeup"], release), p, own)
        assert got == case["expect"][column], case["id"]


@pytest.mark.parametrize("column", COLUMNS)
def test_the_oracle_knows_the_vectors(column: str, shared: Path) -> None:
    rule, release, _ = COLUMNS[column]
    cases = json.loads((shared / "vectors" / "a8_select_path.json").read_text())["cases"]
    for case in cases:
        n = case["machine"]["n"]
        s = {
            **{"cluster": range(n), "zone": [0] * n, "sched_idle": [0] * n, "delayed": [0] * n},
            **{"capacity": [1024] * n, "forms": forms_of(release)},
            **case["machine"],
        }
        k = {**case["wakeup"], "allowed": set(case["wakeup"]["allowed"])}
        got = path_oracle.select(s, k, KINDS.get(rule, rule), case["machine"]["min_gran"] // 8)
        words = {"step": "abel", "first": "v7", "second": "v7_second"}
        got = {name: words.get(x, x) if isinstance(x, str) else x for name, x in got.items()}
        assert got == case["expect"][column], case["id"]


RELEASES = (
    *("4.19.0", "5.4.200", "5.9.0", "5.10.223", "5.12.1", "5.13.2", "5.14.0", "5.15.150"),
    *("5.16.0", "5.19.0", "6.0.0", "6.1.192", "6.4.0", "6.6.60", "6.7.0", "6.12.0", "6.12.60"),
    *("6.16.3", "7.3.4"),
)


def forms_of(release: str, *, cluster: bool = False) -> dict[str, Any]:
    m = np.zeros(1, MACHINE)[0]
    forms = forms_for(release)
    forms.apply(m)
    found = {name: int(m[name]) for name in MACHINE.names if name not in ("cpus", "llcs")}
    return {**found, "cluster_active": cluster and forms.cluster}


def random_state(rng: random.Random) -> tuple[dict[str, Any], dict[str, Any], str]:
    """A machine of any shape in any state, and a wakeup on it."""
    smt, per_llc, llcs = rng.choice((1, 2, 2, 4)), rng.randint(1, 6), rng.randint(1, 3)
    cores = per_llc * llcs
    n = cores * smt
    release = rng.choice(RELEASES if rng.random() < 0.5 else RELEASES[-5:])
    clustered = rng.random() < 0.5
    # threads of a core side by side (as on some machines) or a whole machine apart
    core = [c // smt if n % 3 else c % cores for c in range(n)]
    llc = [x // per_llc for x in core]
    busy = rng.choice((0.3, 0.6, 0.8, 0.95, 1.0))
    nr = [rng.choice((1, 1, 1, 2, 3)) if rng.random() < busy else 0 for _ in range(n)]
    dur = lambda: rng.choice((-1, 0, 500, 4000, 374_999, 375_000, 900_000))  # noqa: E731
    load = lambda: rng.choice((0, rng.randint(0, 60), rng.randint(0, 3000)))  # noqa: E731
    s = {
        "n": n,
        "core": core,
        "llc": llc,
        "cluster": [x // 2 for x in core] if clustered else list(range(n)),
        "zone": [x if rng.random() < 0.2 else 0 for x in llc],
        "nr": nr,
        "pending": [int(x == 0 and rng.random() < 0.15) for x in nr],
        "sched_idle": [int(x > 0 and rng.random() < 0.05) for x in nr],
        "delayed": [int(x > 1 and rng.random() < 0.3) for x in nr],
        "curr_dur": [dur() if x else 0 for x in nr],
        "load": [load() for _ in range(n)],
        "capacity": [rng.choice((1024, 1024, 900, 512)) for _ in range(n)],
        "hint": [rng.randint(0, 1) for _ in range(llcs)],
        "nr_idle_scan": [rng.randint(0, per_llc * smt) for _ in range(llcs)],
        "forms": forms_of(release, cluster=clustered),
    }
    if not clustered:
        s["forms"]["cluster_active"] = False
    prev = rng.randrange(n)
    flips = lambda: rng.choice((0, 0, 1, rng.randint(0, 300)))  # noqa: E731
    k = {
        "this": prev if rng.random() < 0.2 else rng.randrange(n),
        "prev": prev,
        "recent": rng.choice((-1, prev, *range(n))),
        "allowed": set(range(n))
        if rng.random() < 0.6
        else {prev} | set(rng.sample(range(n), rng.randint(1, n))),
        "sync": int(rng.random() < 0.3),
        "task_ctx": int(rng.random() < 0.8),
        "w_percpu_kthread": int(rng.random() < 0.1),
        "w_flips": flips(),
        "p_flips": flips(),
        "w_load": load(),
        "p_load": load(),
        "w_dur": dur(),
        "p_dur": dur(),
        "w_last_is_p": 1,
        "p_last_is_w": rng.randint(0, 1),
        "prop_nr": rng.randint(1, n + 1),
    }
    return s, k, release


#: What the oracle calls the rules, and a threshold at which states fall on both sides.
KINDS = {
    "mainline": "mainline",
    **{f"sis_short_v{v}": f"v{v}" for v in range(1, 7)},
    "sis_current_v7": "v7",
    "sis_current_v8": "v8",
    "abel": "abel",
    "abel_xllc": "abel_xllc",
    "abel_sllc": "abel_sllc",
    "sis_util_idle_core": "s2",
    "no_sis_util": "no_util",
    "sis_util": "util",
    "sis_prop": "prop",
    "no_wa_weight": "no_weight",
    "no_wake_wide": "no_wide",
    "no_sync": "no_sync",
    "smart_wake_affine_2013": "2013",
}
COMBINED = (
    "sis_short_v5+abel",
    "abel+sis_short_v5",
    "sis_short_v1+no_sync",
    "sis_short_v4+no_wa_weight+no_wake_wide",
    "abel_xllc+sis_current_v7",
    "sis_util_idle_core+sis_prop",
)
#: The words of the oracle for a step that a rule put in.
OWN = {"A": "rule", "step": "rule", "first": "rule", "B": "rule", "second": "rule"}


@pytest.mark.parametrize("name", [*KINDS, *COMBINED])
def test_equals_the_oracle(name: str) -> None:
    rule = load(name)
    kinds = [KINDS[part] for part in name.split("+")]
    rng = random.Random(f"path {name}")
    # Place B of these is a hunk of SIS_UTIL's block: not defined elsewhere.
    of_util = bool({"v1", "v2", "v5", "v6"} & set(kinds))
    # On kernels before 5.12 the oracle's search knows no rules.
    merged = kinds != ["mainline"]
    p = parameters(rule, 375_000, nr=5)
    met: set[tuple[str, str]] = set()
    n = 4000 if name in ("mainline", "sis_short_v5", "abel") else 900
    for i in range(n):
        s, k, release = random_state(rng)
        forms = s["forms"]
        if (of_util and forms["budget_form"] != 2) or (merged and not forms["merged_search"]):
            continue
        case = case_of(s, k, release)
        if not forms["cluster_active"]:
            case["machine"].pop("cluster")
        expected = path_oracle.select(s, k, "+".join(kinds), 375_000, prop=5)
        met |= {("wa", expected["wa"]), ("step", expected["step"])}
        expected = {x: OWN.get(y, y) if isinstance(y, str) else y for x, y in expected.items()}
        got = answer(rule, case, p, {"affine": "rule", "step": "rule"})
        assert got == expected, (i, s, k)
    # The states are worth something: every step decided somewhere, the rule's own among them.
    if n == 4000:
        steps = {x for what, x in met if what == "step"}
        rare = set() if kinds == ["mainline"] else {"cluster_prev", "cluster_recent"}
        assert steps >= {STEP.get(name, name) for name in Step.NAMES[1:-1]} - rare
        assert {x for what, x in met if what == "wa"} >= set(WA.values())
    places = {place for text in (rule.text.parts or (rule.text,)) for place in text.steps}
    own_word = {
        "before_prev": ("wa", "A"),
        "after_prev": ("wa", "A"),
        "weight": ("wa", "step"),
        "after_weight": ("wa", "first"),
        "in_scan": ("step", "B"),
    }
    if not {"abel", "no_weight"} & set(kinds) or len(kinds) == 1:
        assert {own_word[place] for place in places if place in own_word} <= met


def test_up_to_5_14_the_waker_remembers_this_cpu() -> None:
    rule = load("mainline")
    case = {
        "machine": {"cpus": 4, "nr": [1, 1, 1, 1], "release": "5.10.223", "prop_nr": 4},
        "wakeup": {"this_cpu": 2, "prev_cpu": 1, "recent_cpu": 3},
    }
    wakeups, machine = state_of(case)
    rule.decide(wakeups[0], machine[0], np.zeros(1, np.int64))
    assert (wakeups[0]["waker_recent_after"], wakeups[0]["recent_after"]) == (2, 3)
    case["machine"]["release"] = "6.1.192"
    wakeups, machine = state_of(case)
    rule.decide(wakeups[0], machine[0], np.zeros(1, np.int64))
    assert (wakeups[0]["waker_recent_after"], wakeups[0]["recent_after"]) == (-1, 1)
