"""The machine as it stood at each decided wakeup, rebuilt from the timeline; and rules asked there.

The timeline's slices, gaps, wakeups and moves become a sequence of changes of state, each at the
instant at which other CPUs could see it, not at which it was recorded (section 7.8-3: offsets are
parameters of :class:`Offsets`). :class:`Replay` sorts them together with the instants at which
the recorded wakeups looked, and hands both to the kernel in ``_replay_kernels``, which keeps idle,
nr_running, pending, utilisation, load, recent CPUs and the idle-core hint, and asks a rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceana import _replay_kernels as k
from traceana import pelt, schema
from traceana import rules as registry
from traceana import topology as topo
from traceana.rules._forms import BUDGET_UTIL, forms_for
from traceana.rules._state import MAX_CPUS, make_machine, make_wakeups
from traceana.thresholds import tunables

if TYPE_CHECKING:
    from traceana.capture import Capture
    from traceana.timeline import Timeline

__all__ = ["Answers", "Offsets", "Replay"]

NULL = -(2**63)
#: LOAD_AVG_MAX: an average times this is its sum.
_PELT_MAX = 47742
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Offsets:
    """How far from their records changes become visible, ns (section 7.8; negative: before).

    Measured on Linux 6.1 where a traced event costs about 0.65 us; on other machines the offsets
    scale with that cost.
    """

    look: int = 700  # from sched_waking to the instant at which CPUs are looked at
    current: int = -450  # curr of a CPU changes before its switch record
    dequeue: int = -600  # nr_running falls before the switch record of a block
    enqueue_direct: int = -350  # nr_running rises before a direct sched_wakeup
    enqueue_remote: int = -550
    pending_after_migrate: int = 700  # ttwu_pending is set after sched_migrate_task
    pending_before_wakeup: int = -1300  # or, without one, before sched_wakeup
    pending_clear: int = -450  # it is cleared before nr_running rises (kernels up to 6.1)
    pull: int = 1600  # a pulled task is queued after its sched_migrate_task


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


class Replay:
    """Changes of state and decision instants of one timeline.

    Attributes
    ----------
    rows : int64[n]
        Wakeups that are re-decided: kind decided, with sched_waking, this_cpu, prev_cpu, and a
        placement.
    recorded_cpu : int32[n]
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
    ) -> None:
        self._t = timeline
        self._offsets = offsets or Offsets()
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
        self._forms = forms_for(cap.kernel)
        if self._forms.approximate:
            self.assumptions.append(
                "kernel release older than 4.17 or not known: forms of 6.1 or 4.17"
            )
        if self._forms.budget_form != BUDGET_UTIL:
            self.assumptions.append(
                "this kernel limits the scan by SIS_PROP, which no event shows: rebuilt as SIS_UTIL"
            )
        hz = timeline.hz
        self._refresh = refresh_ns or 1_000_000_000 // hz
        self.assumptions.append(
            f"nr_idle_scan: from rebuilt utilisation, renewed every {self._refresh // 1000} us "
            "(period and phase of the kernel's are not recorded)"
        )
        self._start = cap.start_state
        self._changes = self._collect()
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

    def named_params(self, rule: registry.Rule, overrides: Mapping[str, int]) -> dict[str, int]:
        """The parameters that a rule is asked with."""
        p = rule.parameters(self.tunables, overrides)
        return {param.name: int(v) for param, v in zip(rule.text.params, p, strict=False)}

    def ask(self, rule: registry.Rule, overrides: Mapping[str, int]) -> Answers:
        """Where the rule puts each wakeup of ``rows``."""
        p = rule.parameters(self.tunables, overrides)
        out = self._run(rule, p, self._sync)
        return Answers(out["cpu"], out["reason"], out["blocked"], out["ahead"], out["certainty"])

    def mainline(self, sync: Array | None = None) -> Array:
        """The kernel's own path on the rebuilt state (OUT rows: cpu, step, affine …)."""
        rule = registry.load("mainline")
        return self._run(rule, rule.parameters(self.tunables), self._sync if sync is None else sync)

    # --- the state ---

    def _collect(self) -> Array:
        """All changes and decision instants, in the order in which they could be seen."""
        o, raw, t = self._offsets, self._t.raw, self._t
        w, s, g, m = raw["wakeups"], raw["slices"], raw["gaps"], raw["moves"]
        before = t.first_ts - 1_000_000
        parts: list[Array] = []

        def put(ts: Array, what: int, cpu: Array, task: Array, aux: Array | int) -> None:
            part = np.empty(len(ts), k.CHANGE)
            part["ts"], part["what"], part["cpu"], part["task"], part["aux"] = (
                ts,
                what,
                cpu,
                task,
                aux,
            )
            parts.append(part)

        s = s[s["cpu"] >= 0]
        start = np.where(s["start"] != NULL, s["start"] + o.current, before)
        # A slice of unknown begin in the middle: a switch is missing; it began by its end.
        late = (s["start"] == NULL) & ~_first_of_cpu(s["cpu"], raw)
        start[late] = np.where(s["end"][late] != NULL, s["end"][late] + o.dequeue - 1, before)
        # On an idle CPU the task's time runs from its enqueue on (see switch_in of the timeline).
        woken = _enqueue_on_idle(s, w, t.first_ts)
        start = np.where(woken != NULL, woken + o.enqueue_remote + 1, start)
        put(start, k.CURR, s["cpu"], s["task"], np.where(s["dur"] == NULL, -1, s["dur"]))
        ended = s["end"] != NULL
        e = s[ended]
        blocks = e["reason"] <= 1
        blocks |= e["reason"] == schema.EndReason.DEAD
        ran = np.where(
            e["runtime"] > 0, e["runtime"], np.where(e["start"] != NULL, e["end"] - e["start"], 0)
        )
        put((e["end"] + o.dequeue)[blocks], k.OFF, e["cpu"][blocks], e["task"][blocks], ran[blocks])
        put(
            (e["end"] + o.current)[~blocks] - 1,
            k.OUT,
            e["cpu"][~blocks],
            e["task"][~blocks],
            ran[~blocks],
        )
        start = np.where(g["start"] != NULL, g["start"] + o.current, before)
        put(start, k.CURR, g["cpu"], np.full(len(g), -1), 0)
        q = w[(w["wakeup"] != NULL) & (w["placed"] >= 0) & (w["counts"] == 1)]
        remote = q["queueing"] == 1
        up = q["wakeup"] + np.where(remote, o.enqueue_remote, o.enqueue_direct)
        up = np.maximum(up, np.where(q["waking"] != NULL, q["waking"], up))
        put(up, k.ENQ, q["placed"], q["wakee"], 0)
        r, up = q[remote & (q["waking"] != NULL)], up[remote & (q["waking"] != NULL)]
        early = np.where(
            r["mig"] != NULL,
            r["mig"] + o.pending_after_migrate,
            r["wakeup"] + o.pending_before_wakeup,
        )
        # Nobody sees his own booking.
        early = np.minimum(np.maximum(early, r["waking"] + o.look + 1), up)
        put(early, k.PEND, r["placed"], r["wakee"], 1)
        clear = up + (o.pending_clear if self._forms.release < 6002 else 1)
        put(np.maximum(clear, early), k.PEND, r["placed"], r["wakee"], 0)
        put(m["ts"] + o.pull, k.MOVE, m["dst"], m["task"], 0)
        # A selection ends before its migration is recorded.
        look = w["waking"][self.rows] + o.look
        mig = w["mig"][self.rows]
        look = np.where(
            mig != NULL, np.minimum(look, np.maximum(mig - 1, w["waking"][self.rows])), look
        )
        put(
            look, k.LOOK, w["this_cpu"][self.rows], w["wakee"][self.rows], np.arange(len(self.rows))
        )
        changes = np.concatenate(parts)
        return changes[np.argsort(changes["ts"], kind="stable")]

    def _machine(self) -> Array:
        a = self._arrays
        machine = make_machine(
            self.n_cpus,
            forms=self._forms,
            core=a.core.tolist(),
            llc=a.llc.tolist(),
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

    def _wakeups(self, sync: Array) -> Array:
        """The fields of each decision that the timeline knows; the kernel fills in the rest."""
        w = self._t.raw["wakeups"][self.rows]
        out = np.zeros(len(w), k.ASK)
        for name, column in (
            ("waker_dur", "waker_dur"),
            ("wakee_dur", "wakee_dur"),
            ("waker_flips", "waker_flips"),
            ("wakee_flips", "wakee_flips"),
        ):
            out[name] = np.where(w[column] == NULL, -1, w[column])
        out["ts"] = w["waking"]
        out["waker"], out["wakee"] = w["current"], w["wakee"]
        out["this_cpu"], out["prev_cpu"] = w["this_cpu"], w["prev_cpu"]
        out["recorded"] = self.recorded_cpu
        out["task_ctx"] = w["context"] == schema.WakeContext.TASK
        pinned = self._t.raw["tasks"]["pinned"]
        out["kthread"] = np.where(w["current"] >= 0, pinned[np.maximum(w["current"], 0)], 0)
        out["sync"] = sync
        return out

    def _run(self, rule: registry.Rule, p: Array, sync: Array) -> Array:
        mainline = registry.load("mainline")
        out = np.zeros(len(self.rows), k.OUTCOME)
        tasks = self._t.raw["tasks"]
        n = len(tasks)
        pelt_tasks, cfs = (
            pelt.make_tasks(n),
            pelt.make_cfs(self.n_cpus, self._t.first_ts - 2_000_000),
        )
        pelt_tasks["weight"] = [pelt.weight_of(int(q)) if q >= 100 else 1024 for q in tasks["prio"]]
        places = np.zeros(n, k.PLACE)
        places["queue"] = -1
        places["recent"] = -1
        places["seed"] = -1
        places["fair"] = (tasks["prio"] >= 100) | (tasks["prio"] == -32768)
        if self._start is not None:
            by_pid = {t.pid: t.util_avg for t in self._start.tasks if t.util_avg is not None}
            for i in np.flatnonzero((tasks["gen"] == 0) & (tasks["pid"] > 0)):
                places[i]["seed"] = by_pid.get(int(tasks["pid"][i]), -1)
        # Each CPU starts with its measured busy share (section 7.3).
        busy = self._t.cpus.column("busy_ns").to_numpy()
        share = busy / max(self._t.last_ts - self._t.first_ts, 1)
        util = np.minimum(share * 1024, 1024).astype(np.int64)
        for name in ("util", "load"):
            cfs[f"{name}_avg"][: len(util)] = util
            cfs[f"{name}_sum"][: len(util)] = util * _PELT_MAX
        machine = self._machine()
        m = machine[0]
        rows = [
            np.flatnonzero(
                (m["cpus"]["llc"][: self.n_cpus] == g) & (m["cpus"]["online"][: self.n_cpus] == 1)
            )
            for g in range(int(m["n_llcs"]))
        ]
        starts = np.cumsum([0, *map(len, rows)]).astype(np.int64)
        members = np.concatenate(rows).astype(np.int64)
        k.replay(
            self._changes, self._wakeups(sync), machine, make_wakeups(1), pelt_tasks, cfs,
            places, np.zeros(self.n_cpus, np.int64), members, starts, p, np.zeros(1, np.int64),
            rule.decide, rule.blocked_by, mainline.decide, self._t.first_ts, self._refresh, out,
        )  # fmt: skip
        return out

    def _infer_sync(self) -> Array:
        """WF_SYNC per decision: 0, 1, or 2 where either may be (section 7.5).

        0 where the edge's waker rarely blocks soon after. Else the outcomes tell: an edge whose
        recorded CPUs only one value explains, clearly more often than the other, has that value.
        """
        from traceana._timeline_tables import sync_share

        share = sync_share(self._t.raw["wakeups"], self._t.raw["slices"], self._t.first_ts)[
            self.rows
        ]
        n = len(self.rows)
        if not n:
            return np.zeros(0, np.uint8)
        said = [
            self.mainline(np.full(n, value, np.uint8))["cpu"] == self.recorded_cpu
            for value in (0, 1)
        ]
        w = self._t.raw["wakeups"][self.rows]
        edge = w["current"].astype(np.int64) * (len(self._t.raw["tasks"]) + 1) + w["wakee"]
        _, which = np.unique(edge, return_inverse=True)
        only0 = np.bincount(which, weights=said[0] & ~said[1])
        only1 = np.bincount(which, weights=said[1] & ~said[0])
        verdict = np.full(len(only0), 2, np.uint8)
        verdict[(only0 >= 5) & (only0 > 3 * only1)] = 0
        verdict[(only1 >= 5) & (only1 > 3 * only0)] = 1
        out = verdict[which]
        return np.where((share == 0) & (out == 2), 0, out).astype(np.uint8)


def _enqueue_on_idle(s: Array, w: Array, first_ts: int) -> Array:
    """Per slice: the sched_wakeup that put its task onto an idle CPU, if it ran at once."""
    q = w[
        (w["run"] != NULL)
        & (w["wakeup"] != NULL)
        & (w["placed_idle"] == 1)
        & (w["ran"] == w["placed"])
    ]
    q = q[(q["run"] - q["wakeup"] >= 0) & (q["run"] - q["wakeup"] < 20_000)]
    out = np.full(len(s), NULL, np.int64)
    if not len(q) or not len(s):
        return out
    span = int(max(q["run"].max(), s["start"].max())) - first_ts + 2
    have = q["ran"].astype(np.int64) * span + (q["run"] - first_ts)
    order = np.argsort(have, kind="stable")
    have = have[order]
    want = s["cpu"].astype(np.int64) * span + (
        np.where(s["start"] == NULL, first_ts, s["start"]) - first_ts
    )
    i = np.minimum(np.searchsorted(have, want), len(have) - 1)
    hit = (have[i] == want) & (s["start"] != NULL)
    out[hit] = q["wakeup"][order][i[hit]]
    return out


def _first_of_cpu(cpu: Array, raw: dict[str, Array]) -> Array:
    """Which rows are the first of their CPU's slices (gaps of unknown begin come first, too)."""
    open_gap = np.zeros(int(cpu.max(initial=-1)) + 1, bool)
    g = raw["gaps"]
    begins = g["cpu"][(g["start"] == NULL) & (g["cpu"] < len(open_gap))]
    open_gap[begins] = True
    first = np.zeros(len(cpu), bool)
    _, i = np.unique(cpu, return_index=True)
    first[i] = True
    return first & ~open_gap[cpu]
