"""The way from a wakeup to a CPU in plain Python: masks are sets, rings are lists.

Slow and obvious, written from sections 6.2 to 6.9 of the semantics, not from the kernels:
it shares no code and no data structure with them. The tests hold both against each other
and against the recorded vectors.

State: a dict with ``n``; per CPU ``core``, ``llc``, ``cluster``, ``zone``, ``nr``,
``delayed``, ``pending``, ``sched_idle``, ``curr_dur``, ``load``, ``capacity``; per LLC id
``hint``, ``nr_idle_scan``, ``prop_nr``; ``forms`` (a dict of the machine record's form
fields). Wakeup: a dict with the names of the vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

State = dict[str, Any]
Wake = dict[str, Any]


def ring(members: set[int], start: int) -> list[int]:
    """Members in ascending order, beginning with the first that is >= start."""
    ordered = sorted(members)
    return [c for c in ordered if c >= start] + [c for c in ordered if c < start]


def is_idle(s: State, c: int) -> bool:
    return s["nr"][c] == 0 and not s["pending"][c]


def is_free(s: State, c: int) -> bool:
    return is_idle(s, c) or bool(s["forms"]["sched_idle_counts"] and s["sched_idle"][c])


def span(s: State, c: int) -> set[int]:
    return {d for d in range(s["n"]) if s["llc"][d] == s["llc"][c]}


def threads(s: State, c: int) -> set[int]:
    return {d for d in range(s["n"]) if s["core"][d] == s["core"][c]}


def has_smt(s: State) -> bool:
    return len(set(s["core"])) < s["n"]


def hint(s: State, c: int) -> bool:
    return has_smt(s) and bool(s["hint"][s["llc"][c]])


def is_short(dur: int, threshold: int) -> bool:
    return dur not in (0, -1) and dur < threshold


def weight_pulls(s: State, k: Wake) -> bool:
    this, prev = k["this"], k["prev"]
    left = s["load"][this]
    if k["sync"]:
        if k["w_load"] > left:
            return True
        left -= k["w_load"]
    left += k["p_load"]
    right = s["load"][prev] - k["p_load"]
    pct = 110 if s["core"][this] == s["core"][prev] else 117
    left = 100 * left * s["capacity"][prev]
    right = (100 + (pct - 100) // 2) * right * s["capacity"][this]
    return left < (right + 1 if k["sync"] else right)


def is_at_most(dur: int, threshold: int) -> bool:
    """v2, v3: 0 is short."""
    return 0 <= dur <= threshold


def v1_short(s: State, c: int, threshold: int) -> bool:
    """v1: the idle task is short, a task that has not slept yet is not."""
    running = s["nr"][c] > 0
    return not running or 0 < s["curr_dur"][c] <= threshold


def place_a(s: State, k: Wake, rule: str, threshold: int) -> bool:
    """Section 6.9, place A of v2 to v6."""
    this = k["this"]
    dur = s["curr_dur"][this]
    test = {
        "v2": is_at_most(dur, threshold),
        "v3": is_at_most(dur, threshold),
        "v4": 0 < dur <= threshold,
        "v5": is_short(dur, threshold),
        "v6": is_short(dur, threshold) and k["w_flips"] == 0,
    }
    return s["nr"][this] == 1 and test.get(rule, False)


def place_b(s: State, k: Wake, rule: str, threshold: int, target: int, before: bool) -> bool:
    """Section 6.9, place B of v1 to v6; before the UTIL block (v3, v4) or behind it."""
    if (rule in ("v3", "v4")) != before or hint(s, target):
        return False
    nr, dur, own = s["nr"][target], s["curr_dur"][target], k["p_dur"]
    gate = 5 * (s["nr_idle_scan"][s["llc"][target]] + 1) < 3 * len(span(s, target))
    if rule == "v1":
        return gate and 0 < own <= threshold and v1_short(s, target, threshold)
    if rule == "v2":
        return gate and nr == 1 and is_at_most(dur, threshold)
    if rule == "v3":
        return nr == 1 and is_at_most(dur, threshold) and is_at_most(own, threshold)
    if rule == "v4":
        return nr == 1 and 0 < dur <= threshold and 0 < own <= threshold
    if rule in ("v5", "v6"):
        both = is_short(dur, threshold) and is_short(own, threshold)
        calm = rule == "v5" or k["w_flips"] == k["p_flips"] == 0
        # Behind the test for an empty budget, also where there is no SIS_UTIL to make it.
        scans = s["nr_idle_scan"][s["llc"][target]] > 0
        return scans and gate and k["this"] == target and nr <= 1 and both and calm
    return False


def current_pair(s: State, k: Wake, threshold: int) -> bool:
    """cur(this, p) of v7 and v8."""
    return (
        s["nr"][k["this"]] <= 1
        and is_short(k["w_dur"], threshold)
        and is_short(k["p_dur"], threshold)
        and k["w_flips"] == k["p_flips"] == 0
        and bool(k["w_last_is_p"] and k["p_last_is_w"])
    )


def is_wide(s: State, k: Wake, rules: list[str]) -> bool:
    factor = len(span(s, k["this"]))
    if "no_wide" in rules:
        return False
    if "2013" in rules:
        return bool(k["p_flips"] > factor and k["w_flips"] > factor * k["p_flips"])
    few, many = sorted((k["w_flips"], k["p_flips"]))
    return bool(few >= factor and many >= few * factor)


def choose_target(s: State, k: Wake, rules: list[str], threshold: int) -> tuple[int, str]:
    """Section 6.3 with 6.2, the rules' steps put in; of several the first that speaks."""
    this, prev, forms = k["this"], k["prev"], s["forms"]
    near = s["llc"][this] == s["llc"][prev]
    if is_wide(s, k, rules):
        return prev, "wide"
    if this not in k["allowed"]:
        return prev, "this_not_allowed"
    if this == prev:
        return prev, "this=prev"
    if s["zone"][this] != s["zone"][prev]:
        return prev, "no_domain"
    if is_idle(s, this) and near:
        return (prev if is_idle(s, prev) else this), "idle"
    own = s["nr"][this] - (s["delayed"][this] if forms["sync_minus_delayed"] else 0)
    if k["sync"] and own == 1 and "no_sync" not in rules:
        return this, "sync"
    if "v1" in rules and v1_short(s, this, threshold):
        return this, "A"
    if forms["prev_idle_answers"] and is_idle(s, prev):
        return prev, "prev_idle"
    if any(place_a(s, k, rule, threshold) for rule in rules):
        return this, "A"
    word = "weight"
    pull: bool | None = None
    for rule in rules:
        where = {"abel": True, "abel_xllc": not near, "abel_sllc": near}.get(rule, False)
        if pull is None and (rule == "no_weight" or (where and is_short(k["p_dur"], threshold))):
            pull, word = False, "step"
    if pull if pull is not None else weight_pulls(s, k):
        return this, word
    if ("v7" in rules or "v8" in rules) and current_pair(s, k, threshold):
        return this, "first"
    return prev, word


class Search:
    """Section 6.4 and 6.6; one object per wakeup."""

    def __init__(
        self, s: State, k: Wake, rules: list[str], threshold: int, target: int, prop: int
    ) -> None:
        self.s, self.k, self.rules, self.threshold, self.target = s, k, rules, threshold, target
        self.prop = prop
        self.hint_after = dict(enumerate(s["hint"]))
        self.recent_after = k["recent"]
        self.held: list[tuple[int, str]] = []

    def same_llc(self, a: int, b: int) -> bool:
        return bool(self.s["llc"][a] == self.s["llc"][b])

    def near_enough(self, c: int) -> bool:
        """On a cluster machine prev and recent are taken at once only inside the cluster."""
        s = self.s
        return not s["forms"]["cluster_active"] or s["cluster"][c] == s["cluster"][self.target]

    def run(self) -> tuple[int, str]:
        s, k, forms, target, prev = self.s, self.k, self.s["forms"], self.target, self.k["prev"]
        if is_free(s, target):
            return target, "target_idle"
        if prev != target and self.same_llc(prev, target) and is_free(s, prev):
            if self.near_enough(prev):
                return prev, "prev_idle"
            self.held.append((prev, "cluster_prev"))
        if (
            forms["kthread_form"]
            and k["w_percpu_kthread"]
            and (k["task_ctx"] or forms["kthread_form"] == 1)
            and prev == k["this"]
            and s["nr"][prev] <= 1
        ):
            return prev, "kthread"
        recent = k["recent"]
        if forms["recent_form"] == 2:
            self.recent_after = prev
        tested = prev if forms["recent_checks_prev"] else recent
        if (
            forms["recent_form"]
            and recent not in (prev, target, -1)
            and self.same_llc(recent, target)
            and is_free(s, recent)
            and tested in k["allowed"]
        ):
            if self.near_enough(recent):
                self.recent_after = prev
                return recent, "recent"
            self.held.append((recent, "cluster_recent"))
        if len(span(s, target)) == 1:
            return target, "no_llc"
        search: Callable[[], tuple[int, str]] = (
            self.merged if forms["merged_search"] else self.split
        )
        found = search()
        if found[0] != -1:
            return found
        for held in self.held:
            return held
        return target, found[1]

    def sibling(self, cpu: int) -> int:
        for c in sorted(threads(self.s, cpu) - {cpu}):
            if self.same_llc(c, cpu) and c in self.k["allowed"] and is_free(self.s, c):
                return c
        return -1

    def split(self) -> tuple[int, str]:
        """5.10: core scan, CPU scan, sibling of the target."""
        s, k, target = self.s, self.k, self.target
        if hint(s, target):
            mask = span(s, target) & k["allowed"]
            for c in ring(set(mask), target):
                if c not in mask:
                    continue
                if all(is_idle(s, d) for d in threads(s, c)):
                    return c, "core"
                mask -= threads(s, c)
            self.hint_after[s["llc"][target]] = 0
        nr = k["prop_nr"]
        for c in ring(span(s, target) & k["allowed"], target):
            nr -= 1
            if nr == 0:
                break
            if is_free(s, c):
                return c, "cpu"
        if has_smt(s):
            c = self.sibling(target)
            if c != -1:
                return c, "smt"
        return -1, "fallback"

    def merged(self) -> tuple[int, str]:
        """Since 5.12, with SIS_UTIL or SIS_PROP as budget, place B in front of the scan."""
        s, k, forms, target, prev = self.s, self.k, self.s["forms"], self.target, self.k["prev"]
        seen_hint = hint(s, target)
        if (
            forms["sibling_of_prev"]
            and has_smt(s)
            and not seen_hint
            and self.same_llc(prev, target)
        ):
            c = self.sibling(prev)
            if c != -1:
                return c, "smt"
        for rule in self.rules:
            if place_b(s, k, rule, self.threshold, target, before=True):
                return target, "B"
            if rule in ("v7", "v8") and k["this"] == target:
                if current_pair(s, k, self.threshold):
                    return target, "second"
        nr = 10**9
        scan = s["nr_idle_scan"][s["llc"][target]]
        if forms["budget_form"] == 1 and not seen_hint:
            nr = k["prop_nr"]
        if forms["budget_form"] == 2:
            nr = scan + 1
        for rule in reversed(self.rules):
            if rule == "no_util" or (rule == "s2" and seen_hint):
                nr = 10**9
            if rule == "util":
                nr = scan + 1
            if rule == "prop":
                nr = 10**9 if seen_hint else self.prop
        if nr == 1 and (forms["budget_form"] == 2 or "util" in self.rules):
            if "prop" not in self.rules:
                return -1, "overloaded"
        for rule in self.rules:
            if place_b(s, k, rule, self.threshold, target, before=False):
                return target, "B"
        mask = span(s, target) & k["allowed"]
        start = target + 1 if forms["scan_from_next"] else target
        order = ring(mask, start)
        if forms["cluster_active"]:
            own = {c for c in order if s["cluster"][c] == s["cluster"][target]}
            order = [c for c in order if c in own] + [c for c in order if c not in own]
        kept = -1
        for c in order:
            if c not in mask:
                continue
            if not seen_hint:
                nr -= 1
                if nr <= 0:
                    return -1, "budget"
                if is_free(s, c):
                    return c, "cpu"
                continue
            if all(is_idle(s, d) for d in threads(s, c)):
                return c, "core"
            for d in sorted(threads(s, c)):
                if kept == -1 and d in k["allowed"] and is_free(s, d):
                    kept = d
            mask -= threads(s, c)
        if not seen_hint:
            return -1, "fallback"
        self.hint_after[s["llc"][target]] = 0
        return (kept, "core_rest") if kept != -1 else (-1, "fallback")


def select(
    s: State, k: Wake, rule: str = "mainline", threshold: int = 0, prop: int = 4
) -> dict[str, Any]:
    """The whole selection: what the vectors of A.8 call cpu, target, wa, step and after.

    ``rule``: v1 ... v8, abel, abel_xllc, abel_sllc, s2, no_util, util, prop, no_weight, no_wide,
    no_sync, 2013, several joined by ``+``, or anything else: none.
    """
    rules = rule.split("+")
    target, wa = choose_target(s, k, rules, threshold)
    search = Search(s, k, rules, threshold, target, prop)
    cpu, step = search.run()
    return {
        "cpu": cpu,
        "target": target,
        "wa": wa,
        "step": step,
        "hint_after": search.hint_after[s["llc"][target]],
        "recent_after": search.recent_after,
    }
