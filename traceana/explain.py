"""Why one wakeup went where it went: the state, the steps of the path, and each rule's answer.

The state is the one that the replay had rebuilt when it asked (``replay.py``): nothing is looked
up afterwards. The path is the kernel's own, walked on that state with the library's steps; a
rule's answer is the one that ``whatif`` counts. All of it is an estimate as far as the state is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from traceana import _explain_kernels as k
from traceana import rules as registry
from traceana import schema
from traceana._explain_text import path_steps, to_text
from traceana._replay_state import (
    WHY_HINT,
    WHY_INSTANT,
    WHY_LOAD,
    WHY_SCAN,
    WHY_SYNC,
    WHY_WIDE,
)
from traceana.errors import RuleError, UsageError
from traceana.replay import Replay
from traceana.rules._ask_kernels import ANSWER, ask_one
from traceana.rules._isolated import call
from traceana.rules._state import MACHINE, WAKEUP, Affine, Step
from traceana.userrules import TIMEOUT_S, AnyRule, asked, locate, one
from traceana.whatif import DEFAULT_RULES, overrides

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.timeline import Timeline

__all__ = ["Story", "explain", "moved_by"]

NULL = -(2**63)


@dataclass
class Story:
    """One decision: ``wakeup`` (who, when), ``state``, ``path`` (steps), ``answers`` (rules)."""

    wakeup: dict[str, Any]
    state: dict[str, Any]
    path: list[dict[str, Any]]
    verdict: dict[str, Any]
    answers: list[dict[str, Any]]
    assumptions: list[str]
    failed: list[RuleError] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The document that ``whatif --explain --format json`` prints."""
        return {
            "schema_version": schema.SCHEMA_VERSION,
            "kind": "explained, open loop",
            "wakeup": self.wakeup,
            "state": self.state,
            "path": self.path,
            "fidelity": self.verdict,
            "rules": self.answers,
            "failed_rules": [fault.to_json() for fault in self.failed],
            "assumptions": self.assumptions,
        }

    def to_text(self) -> str:
        """The story as paragraphs."""
        return to_text(self)

    def facts(self) -> list[tuple[str, str]]:
        """The same as pairs of heading and text, for tables of two columns."""
        out = []
        heading = ""
        for line in self.to_text().splitlines():
            if line.startswith("  "):
                out.append((heading, line.strip()))
                heading = ""
            elif line:
                if heading:
                    out.append((heading, ""))
                heading = line
        return out

    def __repr__(self) -> str:
        return self.to_text()


def explain(
    cap: Capture,
    wakeup: int | str,
    rules: AnyRule | Sequence[AnyRule] = DEFAULT_RULES,
    *,
    params: Mapping[str, Any] | None = None,
    rule_timeout: float = TIMEOUT_S,
) -> Story:
    """Tell the story of one decision under each rule.

    Parameters
    ----------
    cap : Capture
    wakeup : its id in the ``wakeups`` table, or a time in seconds of the capture's clock with a
        point in it ("8.6135"): the first decision from then on
    rules, params, rule_timeout : as for ``whatif``

    Raises
    ------
    UsageError
        No such wakeup, or one that no rule decides (says why).
    """
    cap.require(("sched_waking", "sched_wakeup"), "whatif")
    timeline = cap.timeline()
    timeline = timeline.study or timeline
    with asked(rules, rule_timeout) as found:
        given = overrides(
            params or {}, [r.name for r in found.rules] + [f.rule for f in found.failed]
        )
        replay = Replay(cap, timeline)
        if not len(replay.rows):
            cap.require(("sched_waking",), "whatif")
        at = _row_of(wakeup, replay, timeline)
        w, m = _state_at(replay, timeline, at)
        path = np.zeros(len(k.PATH), np.int64)
        k.walk(w.copy(), m.copy(), path)
        named = dict(zip(k.PATH, path.tolist(), strict=True))
        story = Story(
            wakeup=_who(timeline, replay, at),
            state=_state(w[0], m[0], timeline, replay, at, named),
            path=path_steps(named, w[0], m[0]),
            verdict=_verdict(replay, at),
            answers=[],
            assumptions=list(replay.assumptions),
        )
        for rule in found.rules:
            try:
                story.answers.append(_answer(rule, given.get(rule.name, {}), replay, at, w, m))
            except RuleError as fault:
                story.failed.append(locate(fault, timeline))
    story.failed[:0] = found.failed
    story.remarks += found.remarks
    return story


def moved_by(
    cap: Capture,
    rule: AnyRule,
    *,
    params: Mapping[str, Any] | None = None,
    rule_timeout: float = TIMEOUT_S,
) -> pa.Table:
    """The wakeups that a rule would have put elsewhere than recorded.

    Parameters
    ----------
    cap, rule, params, rule_timeout : as for ``whatif``

    Returns
    -------
    pyarrow.Table
        ``wakeup`` (id, int64), ``rule_cpu`` (int32), ``rule_reason`` (string), ``certainty``
        (string: exact or possible); in the order of the wakeups.

    Raises
    ------
    RuleError
        The rule failed.
    UsageError
        Unknown rule or parameter.
    """
    cap.require(("sched_waking", "sched_wakeup"), "whatif")
    timeline = cap.timeline()
    timeline = timeline.study or timeline
    with asked(rule, rule_timeout) as found:
        loaded = one(found)
        given = overrides(params or {}, [loaded.name])
        replay = Replay(cap, timeline)
        try:
            answers = replay.ask(loaded, given.get(loaded.name, {}))
        except RuleError as fault:
            raise locate(fault, timeline) from None
    moved = np.flatnonzero((answers.cpu >= 0) & (answers.cpu != replay.recorded_cpu))
    words = np.array([c.name.lower() for c in schema.Certainty])
    values = [int(c) for c in schema.Certainty]
    at = np.searchsorted(values, answers.certainty[moved])
    return pa.table(
        {
            "wakeup": pa.array(timeline.raw["wakeups"]["id"][replay.rows[moved]], pa.int64()),
            "rule_cpu": pa.array(answers.cpu[moved], pa.int32()),
            "rule_reason": pa.array(loaded.reasons, pa.string()).take(
                pa.array(answers.reason[moved], pa.int64())
            ),
            "certainty": pa.array(words[at].tolist(), pa.string()),
        }
    )


def _row_of(wakeup: int | str, replay: Replay, timeline: Timeline) -> int:
    """The decision's place among the replay's rows."""
    w = timeline.raw["wakeups"]
    text = str(wakeup).strip()
    if text.isascii() and text.isdigit():
        found = np.flatnonzero(w["id"] == int(text)) if int(text) < 2**63 else np.zeros(0, np.int64)
        if not len(found):
            last = int(w["id"][-1]) if len(w) else 0
            raise UsageError(f"--explain {text}: there is no such wakeup; they are 0 to {last}")
        place = int(np.searchsorted(replay.rows, found[0]))
        if place < len(replay.rows) and replay.rows[place] == found[0]:
            return place
        kind = schema.WakeKind(int(w["kind"][found[0]]))
        why = (
            "its sched_waking or its placement is not in the capture"
            if kind == schema.WakeKind.DECIDED
            else f"of kind {kind.name.lower()}, for which no CPU is selected"
        )
        raise UsageError(f"--explain {text}: this wakeup has no decision to explain: {why}")
    try:
        seconds = float(text)
        if not seconds < 9e9:  # int64 ns; and not a number
            raise ValueError
        ns = round(seconds * 1e9)
    except (ValueError, OverflowError):
        raise UsageError(
            f"--explain {text}: give a wakeup's id (`traceana wakeups FILE --rows`), or a time in "
            "seconds such as 8.6135"
        ) from None
    later = np.flatnonzero(w["waking"][replay.rows] >= ns)
    if not len(later):
        raise UsageError(f"--explain {text}: no decision from then on")
    return int(later[0])


class _Keep(registry.Rule):
    """The rule that keeps the state at one wakeup, and changes nothing."""

    def parameters(self, tunables: Any, overrides: Any = None) -> Any:
        return self.words

    words: Any = None


def _state_at(replay: Replay, timeline: Timeline, at: int) -> tuple[Any, Any]:
    """The w and m that the replay had when it asked, each an array of one record."""
    from traceana.rules.interface import DECIDE, UNCOMPILED

    row = timeline.raw["wakeups"][replay.rows[at]]
    words = np.zeros(k.KEEP_WORDS, np.int64)
    words[0], words[1] = row["waking"], row["wakee"]
    base = registry.load("recorded")
    decide: Any = k.keep
    if not UNCOMPILED:
        decide.compile(DECIDE.signature)
    rule = _Keep(
        name="keep", text=replace(base.text, params=()), decide=decide, blocked_by=base.blocked_by
    )
    object.__setattr__(rule, "words", words)
    replay.ask(rule, {})
    if words[2] == 0:
        raise UsageError("this wakeup was not asked about in the replay")
    n = WAKEUP.itemsize // 8
    return words[3 : 3 + n].view(WAKEUP).copy(), words[3 + n :].view(MACHINE).copy()


def _task(timeline: Timeline, task: int) -> dict[str, Any]:
    if task < 0:
        return {"task": None, "comm": None, "tid": None}
    row = timeline.tasks.slice(task, 1).to_pylist()[0]
    return {"task": task, "comm": row["comm"], "tid": row["pid"]}


def _who(timeline: Timeline, replay: Replay, at: int) -> dict[str, Any]:
    row = timeline.raw["wakeups"][replay.rows[at]]
    return {
        "wakeup": int(row["id"]),
        "waking_ts": int(row["waking"]),
        "wakee": _task(timeline, int(row["wakee"])),
        "current": _task(timeline, int(row["current"])),
        "context": schema.WakeContext(int(row["context"])).name.lower(),
        "this_cpu": int(row["this_cpu"]),
        "prev_cpu": int(row["prev_cpu"]),
        "recorded_cpu": int(replay.recorded_cpu[at]),
        "queue_delay_ns": None if row["delay"] == NULL else int(row["delay"]),
    }


def _verdict(replay: Replay, at: int) -> dict[str, Any]:
    """Whether the kernel's path explains the recorded CPU, and what else it could have chosen."""
    row, cpus = replay.verdicts.rows[at], replay.verdicts.sets[at]
    why = int(row["why"])
    kind = "contradicted" if why < 0 else "exact" if why == 0 else "possible"
    names = {
        WHY_SYNC: "WF_SYNC", WHY_SCAN: "nr_idle_scan", WHY_HINT: "idle-core hint",
        WHY_INSTANT: "the instant of the look", WHY_LOAD: "loads", WHY_WIDE: "wakee_flips",
    }  # fmt: skip
    return {
        "verdict": kind,
        "if_otherwise": [name for bit, name in names.items() if why > 0 and why & bit],
        "possible_cpus": [int(c) for c in cpus if c >= 0],
        "possible_count": int(row["count"]),
    }


def _known(value: Any) -> int | None:
    return None if value < 0 else int(value)


def _sync(replay: Replay, at: int, w: Any) -> dict[str, Any]:
    """WF_SYNC as the rules saw it, and how it is known: it is in no event."""
    inferred = getattr(replay, "_sync", None)
    value = 2 if inferred is None else int(inferred[at])
    if value == 2:
        return {"value": None, "taken_as": int(w["sync"]), "known_by": "nothing: either may be"}
    by = "where wakeups of this kind went in the first half, or whether the waker then blocks"
    return {"value": value, "taken_as": int(w["sync"]), "known_by": by}


def _state(
    w: Any, m: Any, timeline: Timeline, replay: Replay, at: int, path: Mapping[str, int]
) -> dict[str, Any]:
    cpus, llcs = m["cpus"], m["llcs"]
    shown = {int(cpus[c]["llc"]) for c in (w["this_cpu"], w["prev_cpu"], path["target"]) if c >= 0}
    rows = []
    for c in range(int(m["n_cpus"])):
        cpu = cpus[c]
        if int(cpu["llc"]) not in shown:
            continue
        idle = bool(cpu["idle"] and cpu["nr"] == 0 and not cpu["pending"])
        rows.append(
            {
                "cpu": c,
                "llc": int(cpu["llc"]),
                "core": int(cpu["core"]),
                "idle": idle,
                "nr_running": int(cpu["nr"]),
                "pending": bool(cpu["pending"]),
                "current": _task(timeline, int(cpu["curr"])),
                "curr_dur_avg_ns": None if cpu["idle"] else _known(cpu["curr_dur"]),
                "load_avg": int(cpu["load"]) if c in (w["this_cpu"], w["prev_cpu"]) else None,
                "online": bool(cpu["online"]),
            }
        )
    return {
        "cpus": rows,
        "llcs": [
            {
                "llc": g,
                "cpus": int(llcs[g]["weight"]),
                "nr_idle_scan": _known(llcs[g]["nr_idle_scan"]),
                "idle_core_hint": _known(llcs[g]["idle_core"]) if m["smt"] else None,
            }
            for g in sorted(shown)
        ],
        "smt": bool(m["smt"]),
        "recent_cpu": _known(w["recent_cpu"]),
        "wakee_dur_avg_ns": _known(w["wakee_dur"]),
        "waker_dur_avg_ns": _known(w["waker_dur"]),
        "wakee_flips": _known(w["wakee_flips"]),
        "waker_flips": _known(w["waker_flips"]),
        "wakee_load": _known(w["wakee_load"]),
        "waker_load": _known(w["waker_load"]),
        "sync": _sync(replay, at, w),
    }


def _answer(
    rule: registry.Rule, own: Mapping[str, int], replay: Replay, at: int, w: Any, m: Any
) -> dict[str, Any]:
    """What whatif counts of this rule, and the path it would have taken without a recording."""
    answers = replay.ask(rule, own)
    cpu, recorded = int(answers.cpu[at]), int(replay.recorded_cpu[at])
    reason = rule.reasons[int(answers.reason[at])]
    unmet = rule.unmet(int(answers.blocked[at]))
    free = w.copy()
    free["recorded_cpu"] = -1
    out = np.zeros(len(ANSWER), np.int64)
    p = rule.parameters(replay.tunables, own)
    call(ask_one, (rule.decide, rule.blocked_by, free, m.copy(), p, out), writes=(out,))
    path = dict(zip(ANSWER, out.tolist(), strict=True))
    by_itself: dict[str, Any] | None = None
    if path["cpu"] >= 0:
        by_itself = {
            "target": _known(path["target"]),
            "target_by": Affine.NAMES[path["affine"]],
            "cpu": path["cpu"],
            "cpu_by": Step.NAMES[path["step"]],
            "reason": rule.reasons[path["reason"]],
        }
    return {
        "rule": rule.name,
        "cpu": cpu if cpu >= 0 else None,
        "moved": 0 <= cpu != recorded,
        "reason": reason,
        "certainty": schema.Certainty(int(answers.certainty[at])).name.lower(),
        "runnable_there": int(answers.ahead[at]),
        "unmet": {name: rule.text.conditions[name] for name in unmet},
        "alone": rule.alone(int(answers.blocked[at])),
        "path": by_itself,
    }
