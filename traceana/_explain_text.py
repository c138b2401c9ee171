"""The story of one decision in words: steps with their reasons, and the whole as paragraphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from traceana.output import escape, format_ns
from traceana.rules._path_kernels import UNLIMITED
from traceana.rules._state import NONE, Affine, Step

__all__ = ["path_steps", "to_text"]

#: ``w.step`` of a selection that ended before any scan -> place in the order of steps 1 to 7.
_NEAR_ORDER = (
    Step.TARGET_IDLE, Step.PREV_IDLE, Step.KTHREAD, Step.RECENT, Step.NO_LLC, Step.SIBLING,
)  # fmt: skip


def _step(step: str, answer: str, why: str, cpu: int | None = None) -> dict[str, Any]:
    return {"step": step, "answer": answer, "cpu": cpu, "why": why}


def path_steps(path: Mapping[str, int], w: Any, m: Any) -> list[dict[str, Any]]:
    """The kernel's own path as steps in order, each with its outcome.

    Parameters
    ----------
    path : what ``_explain_kernels.walk`` wrote, by name
    w, m : the records

    Returns
    -------
    list of dict
        ``step``, ``answer`` (yes, no, none, or a CPU's role), ``cpu`` or None, ``why``.
    """
    steps = [*_affine_steps(path, w, m), *_near_steps(path, w, m)]
    if path["near"] == NONE:
        steps += _scan_steps(path, w, m)
    return steps


def _state_words(m: Any, cpu: int) -> str:
    c = m["cpus"][cpu]
    if c["sched_idle"]:
        return f"CPU {cpu} runs SCHED_IDLE tasks only"
    if c["idle"] and c["pending"]:
        return f"CPU {cpu} is idle, but a wakeup is pending there"
    if c["idle"] and c["nr"] == 0:
        return f"CPU {cpu} is idle"
    return f"CPU {cpu} is busy (nr_running {c['nr']})"


def _affine_steps(path: Mapping[str, int], w: Any, m: Any) -> Iterator[dict[str, Any]]:
    this, prev = int(w["this_cpu"]), int(w["prev_cpu"])
    factor = int(m["llcs"][m["cpus"][this]["llc"]]["weight"])
    flips = [
        f"{name} {int(w[f'{name}_flips'])}"
        if w[f"{name}_flips"] >= 0
        else f"{name} unknown, taken as 0"
        for name in ("waker", "wakee")
    ]
    yield _step(
        "wake_wide",
        "yes" if path["wide"] else "no",
        f"flips: {', '.join(flips)}; factor {factor} (CPUs of the LLC)",
    )
    if not path["affine_asked"]:
        why = {
            Affine.WIDE: "wide: wake_affine is not asked",
            Affine.THIS_NOT_ALLOWED: f"the wakee may not run on CPU {this}",
            Affine.THIS_IS_PREV: f"this_cpu is prev_cpu (CPU {this}): nothing to choose",
            Affine.NO_DOMAIN: "prev_cpu lies beyond the last wake-affine domain",
        }.get(path["affine"], "wake_affine is not asked")
        yield _step("target", "prev_cpu", why, path["target"])
        return
    idle = {
        Affine.IDLE: f"{_state_words(m, this)} and shares the cache with prev_cpu",
        Affine.SYNC: "sync, and the waker is alone on this_cpu and about to sleep",
        Affine.PREV_IDLE: f"prev_cpu: {_state_words(m, prev)}",
    }.get(path["affine"])
    if path["idle_answer"] != NONE:
        yield _step("wake_affine_idle", _role(path["idle_answer"], w), idle or "", path["target"])
    else:
        sync = "no sync" if not w["sync"] else f"sync, but {m['cpus'][this]['nr']} tasks there"
        yield _step(
            "wake_affine_idle",
            "no opinion",
            f"{_state_words(m, this)}; {sync}; {_state_words(m, prev)}",
        )
        if path["affine"] in (Affine.WEIGHT_THIS, Affine.WEIGHT_PREV):
            pulled = path["weight_answer"] != NONE
            sign = "<" if path["this_eff"] < path["prev_eff"] else ">="
            yield _step(
                "wake_affine_weight",
                "this_cpu" if pulled else "no opinion",
                f"effective load of this_cpu {path['this_eff']} {sign} {path['prev_eff']} of "
                "prev_cpu",
                this if pulled else None,
            )
    yield _step("target", _role(path["target"], w), "where the search starts", path["target"])


def _role(cpu: int, w: Any) -> str:
    if cpu == w["this_cpu"]:
        return "this_cpu"
    return "prev_cpu" if cpu == w["prev_cpu"] else "another"


def _near_steps(path: Mapping[str, int], w: Any, m: Any) -> Iterator[dict[str, Any]]:
    """Steps 1 to 7 of select_idle_sibling(), up to the one that answered."""
    target, prev, recent = path["target"], int(w["prev_cpu"]), int(w["recent_cpu"])
    ended = path["near_step"] if path["near"] != NONE else None

    def no(name: str, why: str) -> dict[str, Any]:
        return _step(name, "no", why)

    texts = {
        Step.TARGET_IDLE: ("target idle", _state_words(m, target)),
        Step.PREV_IDLE: (
            "prev_cpu idle",
            "prev_cpu is the target"
            if prev == target
            else _state_words(m, prev)
            if m["cpus"][prev]["llc"] == m["cpus"][target]["llc"]
            else f"CPU {prev} lies in another LLC",
        ),
        Step.KTHREAD: ("per-CPU kthread", "the waker is none, or not alone on prev_cpu"),
        Step.RECENT: ("recent_used_cpu", _recent_words(recent, target, w, m)),
        Step.NO_LLC: ("LLC domain", "the target shares its LLC with others"),
        Step.SIBLING: (
            "SMT sibling of prev_cpu",
            "no SMT"
            if not m["smt"]
            else "an idle-core hint: whole cores first"
            if path["hint"]
            else "none is idle",
        ),
    }
    for step in _NEAR_ORDER:
        name, why = texts[step]
        if step == ended:
            yes = {
                Step.KTHREAD: "a per-CPU kernel thread queued work for prev_cpu",
                Step.NO_LLC: "the target has no LLC domain: no search",
                Step.SIBLING: f"CPU {path['near']} is idle",
            }.get(step, why)
            yield _step(name, "yes", yes, path["near"])
            return
        yield no(name, why)


def _recent_words(recent: int, target: int, w: Any, m: Any) -> str:
    if recent < 0:
        return "not known"
    if recent in (target, int(w["prev_cpu"])):
        return f"CPU {recent}, looked at already"
    if m["cpus"][recent]["llc"] != m["cpus"][target]["llc"]:
        return f"CPU {recent} lies in another LLC"
    return _state_words(m, recent)


def _scan_steps(path: Mapping[str, int], w: Any, m: Any) -> Iterator[dict[str, Any]]:
    llc = m["llcs"][m["cpus"][path["target"]]["llc"]]
    nr, scan = path["budget"], int(llc["nr_idle_scan"])
    if nr <= 0:
        yield _step("scan budget", "0", "nr_idle_scan is 0: the LLC is overloaded, no scan")
    elif nr >= UNLIMITED:
        why = "nr_idle_scan is not known" if scan < 0 else "no limit"
        yield _step("scan budget", "no limit", why)
    else:
        yield _step("scan budget", str(nr - 1), f"CPUs that may be looked at (nr_idle_scan {scan})")
    step = path["step"]
    if nr > 0:
        why = {
            Step.CORE: "a whole idle core",
            Step.CORE_REST: "no whole core is idle; an idle CPU met on the way",
            Step.CPU: "the first idle one after the target",
            Step.BUDGET: "none before the budget was used up",
            Step.SIBLING: "a sibling of the target",
        }.get(step, "nothing in the LLC is idle")
        found = path["scan"] if path["scan"] != NONE else None
        kind = "core scan" if path["hint"] else "CPU scan"
        yield _step(kind, "no" if found is None else "yes", why, found)
    if path["scan"] == NONE:
        yield _step("fallback", _role(path["cpu"], w), "the target stands", path["cpu"])


# --- the whole ---


def _name(task: Mapping[str, Any]) -> str:
    if task["task"] is None:
        return "idle"
    return f"{escape(str(task['comm']))} [{task['tid']}]"


def _or_unknown(value: Any) -> str:
    return "unknown" if value is None else str(value)


def _duration(value: int | None) -> str:
    return "unknown" if value is None else format_ns(value)


def _head(story: Any) -> Iterator[str]:
    w = story.wakeup
    ts = w["waking_ts"]
    by = _name(w["current"])
    if w["context"] != "task":
        by = f"an interrupt ({w['context']}) on top of {by}"
    yield (
        f"wakeup {w['wakeup']} at {ts // 10**9}.{ts % 10**9:09d} s: {by} on CPU {w['this_cpu']} "
        f"wakes {_name(w['wakee'])}, which was last on CPU {w['prev_cpu']}"
    )
    delay = w["queue_delay_ns"]
    waited = "" if delay is None else f"; it waited {format_ns(delay)} there"
    yield f"recorded: CPU {w['recorded_cpu']}{waited}"


def _state(story: Any) -> Iterator[str]:
    s, w = story.state, story.wakeup
    yield "State, as rebuilt at that instant"
    roles = {w["this_cpu"]: "this_cpu", w["prev_cpu"]: "prev_cpu"}
    if w["this_cpu"] == w["prev_cpu"]:
        roles[w["this_cpu"]] = "this_cpu, prev_cpu"
    for g in s["llcs"]:
        hint = "" if not s["smt"] else f", idle-core hint {_or_unknown(g['idle_core_hint'])}"
        mine = [c for c in s["cpus"] if c["llc"] == g["llc"]]
        idle = "".join("." if c["idle"] else "#" if c["online"] else " " for c in mine)
        yield (
            f"  LLC of CPU {mine[0]['cpu'] if mine else '?'}: {g['cpus']} CPUs, "
            f"nr_idle_scan {_or_unknown(g['nr_idle_scan'])}{hint}; idle (.) or not (#): {idle}"
        )
        for c in mine:
            if not c["online"]:
                continue
            text = f"  CPU {c['cpu']:<3} nr {c['nr_running']}"
            text += " pending" if c["pending"] else ""
            if c["idle"]:
                text += " idle"
            elif c["current"]["task"] is None:
                text += " (who runs is not known)" if c["nr_running"] else " (state not known)"
            else:
                text += f" {_name(c['current'])}, dur_avg {_duration(c['curr_dur_avg_ns'])}"
            if c["load_avg"] is not None:
                text += f", load {c['load_avg']}"
            role = roles.get(c["cpu"])
            yield text + (f"   <- {role}" if role else "")
    yield (
        f"  wakee: dur_avg {_duration(s['wakee_dur_avg_ns'])}, flips "
        f"{_or_unknown(s['wakee_flips'])}, load {_or_unknown(s['wakee_load'])}, recent CPU "
        f"{_or_unknown(s['recent_cpu'])}"
    )
    yield (
        f"  waker: dur_avg {_duration(s['waker_dur_avg_ns'])}, flips "
        f"{_or_unknown(s['waker_flips'])}, load {_or_unknown(s['waker_load'])}"
    )
    sync = s["sync"]
    value = sync["value"]
    told = f"open, taken as {sync['taken_as']}" if value is None else str(value)
    yield f"  WF_SYNC: {told} (in no event; known by {sync['known_by']})"


def _path(story: Any) -> Iterator[str]:
    yield "The kernel's own path on that state"
    size = max(len(x["step"]) for x in story.path)
    for x in story.path:
        cpu = "" if x["cpu"] is None else f" CPU {x['cpu']}"
        # "this_cpu CPU 3", "yes CPU 3", "no"
        yield f"  {x['step']:<{size}}  {x['answer']}{cpu}: {x['why']}"
    last = next((x["cpu"] for x in reversed(story.path) if x["cpu"] is not None), None)
    yield f"  -> CPU {last}; recorded is CPU {story.wakeup['recorded_cpu']}"
    v = story.verdict
    told = {
        "exact": "exact: the rebuilt state explains the recording",
        "possible": f"possible: explained if {' and '.join(v['if_otherwise'])} was another",
        "contradicted": "contradicted: no value of what is unknown explains the recording",
    }[v["verdict"]]
    cpus = ", ".join(map(str, v["possible_cpus"]))
    more = "" if v["possible_count"] <= len(v["possible_cpus"]) else ", ..."
    yield f"  {told}; CPUs that the path could have chosen: {cpus}{more}"


def _rules(story: Any) -> Iterator[str]:
    yield "Rules"
    for a in story.answers:
        where = f"CPU {a['cpu']}" if a["moved"] else f"stays on CPU {a['cpu']}"
        sure = (
            ""
            if a["certainty"] == "exact"
            else f" ({a['certainty']}: hangs on what no event tells)"
        )
        ahead = f", {a['runnable_there']} runnable there" if a["moved"] else ""
        yield f"  {a['rule']}: {where}, {a['reason']}{ahead}{sure}"
        path = a["path"]
        if path is not None:
            target = (
                ""
                if path["target"] is None
                else f"target CPU {path['target']} by {path['target_by']}, "
            )
            yield f"      its own path: {target}CPU {path['cpu']} by {path['cpu_by']}"
        for name, text in a["unmet"].items():
            alone = "   <- it alone" if name in a["alone"] else ""
            yield f"      not met: {name} ({text}){alone}"
    for fault in story.failed:
        yield f"  {fault.rule}: failed, {escape(str(fault))}"


def to_text(story: Any) -> str:
    """The story as paragraphs of plain text."""
    parts = [list(_head(story)), list(_state(story)), list(_path(story)), list(_rules(story))]
    notes = ["Assumed", *(f"  {text}" for text in story.assumptions)]
    if story.assumptions:
        parts.append(notes)
    return "\n\n".join("\n".join(part) for part in parts) + "\n"
