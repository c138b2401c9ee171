"""The machine as it stood at each decided wakeup, rebuilt from the timeline; and rules asked there.

The timeline's rows become a sequence of changes of state (``_replay_changes``), each at the instant
at which other CPUs could see it. One pass over them (``_replay_settle_kernels``) keeps idle,
nr_running, pending, utilisation, load, recent CPUs, budget and hint, follows the kernel's own path
at every decision, and learns from where the wakeups went what no event tells. It leaves a log of
states, on which each rule is then asked at the cost of copying them (``_replay_kernels``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import _replay_kernels as k
from traceana import _replay_path_kernels as path
from traceana import _replay_settle_kernels as s
from traceana import _replay_state as st
from traceana import pelt, schema
from traceana import rules as registry
from traceana import topology as topo
from traceana._replay_changes import Decisions, Offsets, changes_of, decisions_of
from traceana.affinity import looks_pinned
from traceana.pairs import woke_back
from traceana.rules._forms import BUDGET_UTIL, Forms, forms_for
from traceana.rules._isolated import call
from traceana.rules._state import MAX_CPUS, make_machine, make_wakeups
from traceana.thresholds import tunables

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.timeline import Timeline

__all__ = ["JITTER_NS", "Answers", "Offsets", "Replay", "Told", "Verdicts"]

NULL = -(2**63)
FOREVER = 2**62
#: Instants are believed to within so many ns (on a machine of REFERENCE_COST).
JITTER_NS = 300
#: WF_SYNC is inferred from at most so many decisions of the first half.
SYNC_ROWS = 200_000
#: Loads start as they were on average in the first ns of the window.
_START_NS = 10_000_000
#: An edge says something of sync when so many of its outcomes only one value explains.
_SYNC_FEW = 3
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Answers:
    """One rule's answers, a row per decided wakeup (``Replay.rows``).

    cpu int32, reason int64 (index into the rule's REASONS), blocked int64 (unmet conditions),
    ahead int64 (tasks runnable on ``cpu`` at that instant; 0: idle), certainty uint8.
    """

    cpu: Array
    reason: Array
    blocked: Array
    ahead: Array
    certainty: Array


@dataclass(frozen=True)
class Told:
    """Values to use in place of rebuilt ones, each an array over ``Replay.rows`` (or None).

    ``sync`` uint8 (2: not told); ``nr_idle_scan`` and ``idle_core`` int32 (``UNTOLD``: not told);
    ``wide`` bool, what wake_wide() says.
    """

    sync: Array | None = None
    nr_idle_scan: Array | None = None
    idle_core: Array | None = None
    wide: Array | None = None


@dataclass(frozen=True)
class Verdicts:
    """What the kernel's own path says of each decision (``Replay.rows``).

    ``rows`` VERDICT[n]; ``sets`` int32[n, SET_MAX], the possible set's first CPUs, -1 behind them;
    ``asks`` ASK[n]; ``log`` LOG[k].
    """

    rows: Array
    sets: Array
    asks: Array
    log: Array


class Replay:
    """Changes of state and decision instants of one timeline.

    Parameters
    ----------
    cap, timeline : the capture and its timeline, or a part of that
    offsets : how far records lie from what they tell of, where recording takes REFERENCE_COST
    refresh_ns : period of nr_idle_scan; default a tick
    forms : which form each step has; default those of the capture's kernel
    recorded_with_rule : the recorded kernel had one of the rules switched on

    Attributes
    ----------
    rows : int64[n]
        Wakeups that are re-decided: kind decided, with sched_waking, this_cpu, prev_cpu, and a
        placement.
    recorded_cpu : int32[n]
    verdicts : Verdicts
        The kernel's own path, with what outcomes before each decision have taught.
    pinned : bool[n]
        Decisions of tasks that seem to be pinned to one CPU: no rule moves them.
    half_ts : int
        Middle of the window: WF_SYNC is inferred from what lies before it.
    assumptions : list of str
        What had to be assumed; for the report.
    """

    def __init__(
        self,
        cap: Capture,
        timeline: Timeline,
        *,
        offsets: Offsets | None = None,
        refresh_ns: int | None = None,
        forms: Forms | None = None,
        recorded_with_rule: bool = False,
    ) -> None:
        self._t = timeline
        # A rule in the recorded kernel keeps wakeups from idle CPUs as a small budget would: its
        # outcomes say nothing of the budget.
        self._learn_until = -FOREVER if recorded_with_rule else FOREVER
        cost = cap.event_cost_ns
        self._offsets = (offsets or Offsets()).scaled(cost)
        self.jitter_ns = round(JITTER_NS * (self._offsets.look / Offsets.look))
        self.assumptions: list[str] = []
        w = timeline.raw["wakeups"]
        placed = np.where(w["placed"] >= 0, w["placed"], w["ran"])
        self.rows = np.flatnonzero(
            (w["kind"] == schema.WakeKind.DECIDED)
            & (w["waking"] != NULL)
            & (w["this_cpu"] >= 0)
            & (w["prev_cpu"] >= 0)
            & (placed >= 0)
        )
        self.recorded_cpu = placed[self.rows].astype(np.int32)
        seen = len(timeline.raw["cpus"])
        table = cap.topology
        self._arrays = topo.as_arrays(table, seen)
        self.n_cpus = self._arrays.n_cpus
        if self.n_cpus > MAX_CPUS:
            from traceana.errors import UsageError

            raise UsageError(f"whatif handles {MAX_CPUS} CPUs, this capture has {self.n_cpus}")
        self.tunables = tunables(cap.kernel, int(self._arrays.online.sum()))
        self.assumptions += list(self.tunables.assumed)
        self.forms = forms or forms_for(cap.kernel)
        self._assume(cost)
        self._refresh = refresh_ns or 1_000_000_000 // timeline.hz
        self._start = cap.start_state
        self._woke_back = self._last_wakees()
        self.half_ts = (timeline.first_ts + timeline.last_ts) // 2
        self._decisions = decisions_of(timeline.raw, self.rows, self._offsets)
        self._changes = changes_of(
            timeline.raw,
            self.rows,
            self.recorded_cpu,
            self._decisions,
            self._offsets,
            first_ts=timeline.first_ts,
            clears_last=self.forms.release >= 6002,
        )
        self._sync = self._infer_sync()
        open_ = int((self._sync == 2).sum())
        if open_:
            self.assumptions.append(
                f"WF_SYNC is in no event: open for {open_} of {len(self.rows)} wakeups, taken as "
                "set there, which keeps place A and Abel's rule from firing"
            )
        unknown = int(((w["quality"][self.rows] & schema.Quality.FLIPS_UNKNOWN) != 0).sum())
        if unknown:
            self.assumptions.append(
                f"wakee_flips unknown for {unknown} of {len(self.rows)} wakeups (no start state): "
                "taken as not wide"
            )
        self.verdicts = self.settle(learn_until=self._learn_until)
        self.pinned = looks_pinned(
            w["wakee"][self.rows], self.recorded_cpu, self.verdicts.rows["why"] < 0
        )
        if self.pinned.any():
            tasks = len(np.unique(w["wakee"][self.rows][self.pinned]))
            self.assumptions.append(
                f"{tasks} tasks seem to be pinned to one CPU (no event tells): no rule moves their "
                f"{int(self.pinned.sum())} wakeups"
            )

    def _assume(self, cost: int | None) -> None:
        if self.forms.approximate:
            self.assumptions.append(
                "kernel release older than 4.17 or not known: forms of 6.1 or 4.17"
            )
        if self.forms.budget_form != BUDGET_UTIL:
            self.assumptions.append(
                "this kernel limits the scan by SIS_PROP, which no event shows: rebuilt as SIS_UTIL"
            )
        self.assumptions.append(
            "nr_idle_scan and the idle-core hint are in no event: rebuilt from utilisation and "
            "idle cores, and corrected by where earlier wakeups went"
        )
        if cost is None:
            self.assumptions.append(
                "too few events to say what recording one costs: instants as on a machine with "
                "0.8 us an event"
            )

    @property
    def decisions(self) -> Decisions:
        """When the selections began and ended."""
        return self._decisions

    def named_params(self, rule: registry.Rule, overrides: Mapping[str, int]) -> dict[str, int]:
        """The parameters that a rule is asked with."""
        p = rule.parameters(self.tunables, overrides)
        return {param.name: int(v) for param, v in zip(rule.text.params, p, strict=False)}

    def plain(self) -> Array:
        """VERDICT[n] of the path with nothing inferred: no set, no outcome used."""
        sync = np.where(self._seldom_blocks() == 0, 0, 1).astype(np.uint8)
        return self.settle(sync=sync, learn_until=-FOREVER, explore=False).rows

    def frozen(self) -> Array:
        """VERDICT[n] of the path when outcomes of the window's second half teach nothing."""
        return self.settle(learn_until=self.half_ts, explore=False).rows

    def core_and_llc(self) -> tuple[Array, Array]:
        """Core and LLC of each CPU (int32[cpus])."""
        return self._arrays.core, self._arrays.llc

    def llc_weight(self) -> Array:
        """CPUs in each CPU's LLC (int32[cpus])."""
        weight: Array = self._arrays.llc_weight[self._arrays.llc]
        return weight

    def ask(self, rule: registry.Rule, overrides: Mapping[str, int]) -> Answers:
        """Where the rule puts each wakeup of ``rows``."""
        p = rule.parameters(self.tunables, overrides)
        out = np.zeros(len(self.rows), st.OUTCOME)
        # A user's rule is asked in its own process (rules/_isolated.py).
        call(k.replay, (
            self.verdicts.log, self.verdicts.asks, self._machine(), make_wakeups(1), p,
            rule.decide, rule.blocked_by, out,
        ), writes=(out,))  # fmt: skip
        out["cpu"][self.pinned] = self.recorded_cpu[self.pinned]
        out["reason"][self.pinned] = 0
        return Answers(out["cpu"], out["reason"], out["blocked"], out["ahead"], out["certainty"])

    def settle(
        self,
        told: Told | None = None,
        *,
        learn_until: int = FOREVER,
        explore: bool = True,
        spread: int = 1,
        flip_hint: bool = True,
        jitter_ns: int | None = None,
        sync: Array | None = None,
        shift_ns: int = 0,
        until: int | None = None,
    ) -> Verdicts:
        """The kernel's own path at every decision.

        Parameters
        ----------
        told : values to use in place of rebuilt ones
        learn_until : outcomes of decisions before it correct budget and hint for the later ones
        explore : compute possible sets
        spread, flip_hint, jitter_ns : how far budget, hint and instants may be wrong in these
        sync : in place of what was inferred
        shift_ns : all instants of selections later by so much
        until : stop there
        """
        told = told or Told()
        n = len(self.rows)
        changes = self._changes
        if until is not None:
            changes = changes[: int(np.searchsorted(changes["ts"], until))]
        tasks, cfs, places = self._averages(changes)
        machine, members, starts = self._machine(), *self._members()
        m = machine[0]
        n_llcs = int(m["n_llcs"])
        hints = np.full((n_llcs, st.HISTORY, 2), -FOREVER, np.int64)
        hints[:, :, 1] = m["llcs"]["idle_core"][:n_llcs, None]
        asks = self._asks(self._sync if sync is None else sync, told, shift_ns)
        out = np.zeros(n, st.VERDICT)
        out["why"] = -2
        sets = np.full((n, st.SET_MAX), -1, np.int32)
        log = np.zeros(len(changes) * 13 // 10 + 4 * n + 4 * self.n_cpus + 64, st.LOG)
        jitter = self.jitter_ns if jitter_ns is None else jitter_ns
        config = np.array(
            [
                self._t.first_ts, self._refresh, learn_until, spread, int(flip_hint),
                jitter if explore else -1,
            ],
            np.int64,
        )  # fmt: skip
        votes = np.zeros((n_llcs, int(np.diff(starts).max(initial=0)) + 1), np.int64)
        used = s.settle(
            changes, asks, machine, make_wakeups(1), tasks, cfs, places,
            np.zeros(self.n_cpus, np.int64), members, starts, self._offsets.times(), config, votes,
            out, sets, log, path.history(self.n_cpus), hints,
        )  # fmt: skip
        return Verdicts(out, sets, asks, log[:used])

    # --- what the state starts with ---

    def _averages(self, changes: Array) -> tuple[Array, Array, Array]:
        """Tasks' and CPUs' averages, and places, as at the window's begin.

        What a start state gives is taken from there. CPUs start with what they had on average in
        the first 10 ms, half way to the mean of all. A task's load starts at its weight, as at its
        fork: one that moves from CPU to CPU all the time keeps its load, since what it runs within
        a period of 1 ms is forgotten with each move.
        """
        raw, first = self._t.raw, self._t.first_ts
        tasks = raw["tasks"]
        n = len(tasks)
        averages = pelt.make_tasks(n)
        averages["weight"] = [pelt.weight_of(int(q)) if q >= 100 else 1024 for q in tasks["prio"]]
        cfs = pelt.make_cfs(self.n_cpus, first - 2_000_000, lag=self.forms.release >= 6000)
        places = np.zeros(n, st.PLACE)
        places["queue"] = places["recent"] = places["cpu"] = -1
        places["fair"] = (tasks["prio"] >= 100) | (tasks["prio"] == -32768)
        if len(changes):
            shares = s.time_shares(changes, n, first + _START_NS, self.n_cpus)
            nr = shares[0, : self.n_cpus]
            cfs["load_avg"] = (nr + nr[self._arrays.online == 1].mean()) / 2 * 1024
            places["util"] = np.minimum(shares[2, :n] * 1024, 1024)
        busy = self._t.cpus.column("busy_ns").to_numpy()
        util = np.minimum(busy / max(self._t.last_ts - first, 1) * 1024, 1024).astype(np.int64)
        cfs["util_avg"][: len(util)] = util[: self.n_cpus]
        places["load"] = averages["weight"]
        for name, value in (("util", "util_avg"), ("load", "load_avg")):
            given = {
                t.pid: getattr(t, value)
                for t in (self._start.tasks if self._start else ())
                if getattr(t, value) is not None
            }
            for i in np.flatnonzero((tasks["gen"] == 0) & (tasks["pid"] > 0)) if given else ():
                places[name][i] = given.get(int(tasks["pid"][i]), places[name][i])
        w, slices = raw["wakeups"], raw["slices"]
        for task, cpu in ((slices["task"], slices["cpu"]), (w["wakee"], w["prev_cpu"])):
            ids, at = np.unique(task, return_index=True)
            good = (ids >= 0) & (cpu[at] >= 0) & (cpu[at] < self.n_cpus)
            places["cpu"][ids[good]] = cpu[at][good]
        return averages, cfs, places

    def _last_wakees(self) -> Array:
        """Whether each wakee's last_wakee is the task that wakes it."""
        w, tasks = self._t.raw["wakeups"], self._t.raw["tasks"]
        last: dict[int, int] = {}
        if self._start is not None:
            ids = {int(t["pid"]): i for i, t in enumerate(tasks) if t["gen"] == 0 and t["pid"] > 0}
            last = {
                ids[t.pid]: ids[t.last_wakee]
                for t in self._start.tasks
                if t.last_wakee in ids and t.pid in ids
            }
        decided = np.flatnonzero((w["kind"] == schema.WakeKind.DECIDED) & (w["waking"] != NULL))
        rows = np.searchsorted(decided, self.rows)
        d = w[decided]
        return woke_back(d["waking"], d["current"], d["wakee"], rows, last)

    def _machine(self) -> Array:
        a = self._arrays
        machine = make_machine(
            self.n_cpus,
            forms=self.forms,
            core=a.core.tolist(),
            llc=a.llc.tolist(),
            node=a.node.tolist(),
            online=[bool(v) for v in a.online],
        )
        m = machine[0]
        m["cpus"]["curr"] = -1
        m["cpus"]["curr_dur"] = -1
        m["cpus"]["idle"] = 0
        m["llcs"]["nr_idle_scan"] = -1
        m["llcs"]["idle_core"] = -1
        if self._start is not None:
            for llc in range(int(m["n_llcs"])):
                nr, core = self._start.llcs.get(int(m["llcs"][llc]["first"]), (None, None))
                if nr is not None:
                    m["llcs"][llc]["nr_idle_scan"] = nr
                if core is not None:
                    m["llcs"][llc]["idle_core"] = core
        return machine

    def _members(self) -> tuple[Array, Array]:
        """CPUs of each LLC in compressed form: members, and where each LLC's begin."""
        m = self._machine()[0]
        n = self.n_cpus
        rows = [
            np.flatnonzero((m["cpus"]["llc"][:n] == g) & (m["cpus"]["online"][:n] == 1))
            for g in range(int(m["n_llcs"]))
        ]
        starts = np.cumsum([0, *map(len, rows)]).astype(np.int64)
        return np.concatenate(rows).astype(np.int64), starts

    def _asks(self, sync: Array, told: Told, shift_ns: int) -> Array:
        """What the timeline knows of each decision; settle() adds the rest."""
        w = self._t.raw["wakeups"][self.rows]
        out = np.zeros(len(w), st.ASK)
        for name in ("waker_dur", "wakee_dur", "waker_flips", "wakee_flips"):
            out[name] = np.where(w[name] == NULL, -1, w[name])
        if told.wide is not None:
            out["waker_flips"] = np.where(told.wide, k.WIDE, 0)
            out["wakee_flips"] = np.where(told.wide, 1 << 20, 0)
        out["ts"] = w["waking"]
        out["look"] = self._decisions.look + shift_ns
        out["limit"] = np.maximum(self._decisions.limit, out["look"])
        out["waker"], out["wakee"] = w["current"], w["wakee"]
        out["this_cpu"], out["prev_cpu"] = w["this_cpu"], w["prev_cpu"]
        out["recorded"] = self.recorded_cpu
        out["task_ctx"] = w["context"] == schema.WakeContext.TASK
        pinned = self._t.raw["tasks"]["pinned"]
        out["kthread"] = np.where(w["current"] >= 0, pinned[np.maximum(w["current"], 0)], 0)
        out["woke_back"] = self._woke_back
        out["sync"] = sync if told.sync is None else np.where(told.sync == 2, sync, told.sync)
        out["used_sync"] = out["sync"] != 0
        out["tell_nr"] = st.UNTOLD if told.nr_idle_scan is None else told.nr_idle_scan
        out["tell_hint"] = st.UNTOLD if told.idle_core is None else told.idle_core
        return out

    # --- WF_SYNC ---

    def _infer_sync(self) -> Array:
        """WF_SYNC per decision: 0, 1, or 2 where either may be (section 7.5).

        Judged by the recorded outcomes of the window's first half: an edge (waker, wakee,
        context) whose outcomes only one value explains, clearly more often than the other, has
        that value; edges that say nothing follow the others of their context. Where these say
        nothing, either, a waker that rarely blocks soon after does not wake with the flag.
        """
        w = self._t.raw["wakeups"][self.rows]
        n = len(w)
        # Timers and devices wake without the flag; network packets (soft irq) may carry it.
        hard = (w["context"] == schema.WakeContext.HARDIRQ) | (
            w["context"] == schema.WakeContext.NMI
        )
        out = np.where(hard, 0, 2).astype(np.uint8)
        if not (out == 2).any():
            return out
        until = self.half_ts
        if n > SYNC_ROWS:
            until = min(until, int(np.sort(w["waking"])[SYNC_ROWS]))
        said = self.settle(sync=out, learn_until=until, spread=0, flip_hint=False, jitter_ns=0,
                           until=until).rows  # fmt: skip
        seen = (said["why"] > -2) & (out == 2) & (said["cpu1"] >= 0)
        only0 = seen & (said["cpu0"] == self.recorded_cpu) & (said["cpu1"] != self.recorded_cpu)
        only1 = seen & (said["cpu1"] == self.recorded_cpu) & (said["cpu0"] != self.recorded_cpu)
        context = w["context"].astype(np.int64)
        edge = (w["current"].astype(np.int64) * (len(self._t.raw["tasks"]) + 1) + w["wakee"]) * 8
        verdict = _judge(edge + context, only0, only1)
        verdict = np.where(verdict == 2, _judge(context, only0, only1), verdict)
        verdict = np.where((verdict == 2) & (self._seldom_blocks() == 0), 0, verdict)
        return np.where(out == 2, verdict, out).astype(np.uint8)

    def _seldom_blocks(self) -> Array:
        """0 where the waker of an edge rarely blocks soon after, else 255."""
        from traceana._timeline_tables import sync_share

        w = self._t.raw["wakeups"]
        share: Array = sync_share(w, self._t.raw["slices"], self._t.first_ts)[self.rows]
        return share


def _judge(group: Array, only0: Array, only1: Array) -> Array:
    """Per row: the value that clearly more outcomes of its group ask for, 2 where none does."""
    _, which = np.unique(group, return_inverse=True)
    n0 = np.bincount(which, weights=only0)
    n1 = np.bincount(which, weights=only1)
    verdict = np.full(len(n0), 2, np.uint8)
    verdict[(n0 >= _SYNC_FEW) & (n0 > 3 * n1)] = 0
    verdict[(n1 >= _SYNC_FEW) & (n1 > 3 * n0)] = 1
    out: Array = verdict[which]
    return out
