"""Random workloads, machines and kernels for the simulator's tests; a seed makes one."""

from __future__ import annotations

import random

from sim_cases import Case, Workload

from traceana._sim_state import Op, Start
from traceana.simulate import DEFAULT_COSTS, Layout, Model, constant_costs

__all__ = ["RELEASES", "SHAPES", "random_model", "random_work"]

MS = 1_000_000

#: Releases between which the model distinguishes: wakelist, pending flag, budget, gates of newidle,
#: NI_RANDOM, CFS and EEVDF, delayed dequeue, forms of the search.
RELEASES = (
    "5.4.0", "5.10.223", "5.12.0", "5.15.0", "5.19.0", "6.0.0", "6.1.80", "6.1.192", "6.5.0",
    "6.6.0", "6.8.0", "6.12.40", "6.12.117", "6.19.0", "7.2.13",
)  # fmt: skip
SHAPES = (
    (1, 1, 1), (1, 2, 1), (1, 1, 2), (2, 1, 1), (1, 4, 1), (1, 2, 2), (2, 2, 1), (2, 1, 2),
    (1, 4, 2), (2, 2, 2),
)  # fmt: skip


def random_work(r: random.Random, shape: tuple[int, int, int], end: int) -> Workload:
    """Tasks that run, wake each other, ask, answer, nap, fork and yield."""
    layout = Layout.shape(*shape)
    n_cpus = len(layout.core)
    n = r.randint(1, 20)
    case = Case(layout)
    longest = r.choice((2_000, 20_000, 400_000))
    unborn = [i for i in range(1, n) if r.random() < 0.1]
    states = (Start.QUEUED,) * 3 + (Start.RUNNING, Start.ASLEEP, Start.WAKING)
    for i in range(n):
        steps: list[tuple[int, ...]] = []
        for _ in range(r.randint(1, 5)):
            other = r.randrange(n)
            sync = r.choice((0, Op.SYNC))
            run = (Op.RUN, r.randint(0, longest))
            steps += r.choice(
                [
                    [run],
                    [run, (Op.WAKE, i ^ 1 if i ^ 1 < n else other, sync), (Op.BLOCK,)],
                    [run, (Op.WAKE, i ^ 1 if i ^ 1 < n else other, sync), (Op.BLOCK,)],
                    [(Op.BLOCK,), run, (Op.WAKE, other, sync)],
                    [run, (Op.NAP, r.randint(0, 3 * longest))],
                    [run, (Op.UNTIL, r.randint(0, end))],
                    [run, (Op.SEND, other % 3, sync)],
                    [(Op.RECV, other % 3), run, (Op.REPLY, 0, sync)],
                    [run, (Op.YIELD,)],
                    [run, (Op.YIELD_TO, other)],
                    [run, (Op.FORK, r.choice(unborn))] if unborn else [run],
                    [run, (Op.STEP,), (Op.WAKE, other)],
                ]
            )
        if r.random() < 0.1:
            steps.append((Op.EXIT,))
        at = r.randrange(len(steps))
        begun = steps[at][0] == Op.RUN and r.random() < 0.5
        kind = r.random()
        pinned = r.random() < 0.3
        cpus = r.sample(range(n_cpus), r.randint(1, n_cpus)) if pinned else None
        case.add(
            steps,
            cpu=r.choice(cpus) if cpus and r.random() < 0.9 else r.randrange(n_cpus),
            state=Start.UNBORN if i in unborn else r.choice(states),
            loops=r.random() < 0.9,
            op=at,
            left=r.randint(0, steps[at][1]) if begun else -1,
            cpus=cpus,
            prio=50 + i % 3 if kind < 0.05 else r.choice((120, 120, 110)),
            policy=0 if kind < 0.8 else r.choice((3, 5)),
            weight=1024 if kind < 0.6 else r.choice((335, 3121, 15)),
            vruntime=r.randint(-2 * MS, 2 * MS),
            dur_avg=r.choice((0, 0, 5_000, 900_000)),
            flips=r.choice((0, 0, 3, 40)),
            util=r.choice((0, 100, 700)),
            tokens=r.choice((0, 0, 1)),
            since_sleep=r.choice((0, 7_000)),
            last_wakee=r.randrange(-1, n),
        )
    return case.build(span_ns=r.choice((0, MS)))


def random_model(r: random.Random, shape: tuple[int, int, int], release: str) -> Model:
    """Costs between nothing and much, switches and tunables thrown."""
    n_llcs, n_cpus = shape[0], shape[0] * shape[1] * shape[2]
    scale = r.choice((1, 1, 1, 0, 3))
    costs = {name: int(value * scale * r.uniform(0.3, 2)) for name, value in DEFAULT_COSTS.items()}
    given = r.random() < 0.5
    rule = r.choice(("mainline", "mainline", "sis_short_v5", "abel"))
    if rule == "sis_short_v5" and release.startswith(("5.4.", "5.10.")):
        rule = "mainline"  # path_oracle has no place B in the separate searches of up to 5.11
    return Model(
        release=release,
        rule=rule,
        costs=constant_costs(costs, spread=r.choice((0, 4, 12))),
        hz=r.choice((250, 1000)),
        window=r.choice((1, 1, 0)),
        sis_util=r.random() < 0.9,
        ttwu_queue=r.random() < 0.9,
        newidle_random=r.choice((None, None, False)),
        run_to_parity=r.random() < 0.8,
        smt_slowdown=r.choice((1.0, 1.0, 1.3)),
        yield_form=r.choice(("plain", "slice", "min_granularity", "second")),
        migration_cost_ns=r.choice((500_000, 50_000, 0)),
        hot_cost_ns=r.choice((None, None, -1, 0, 20_000)),
        newidle_cost_ns=r.choice((None, 0)),
        newidle_lb_cost_ns=r.choice((None, 0, 1_000)),
        avg_idle_ns=r.choice((None, 8_000, 300_000)),
        slice_ns=r.choice((None, None, 100_000)),
        wakeup_granularity_ns=r.choice((None, 0, 30_000)),
        cpu_util=[r.choice((0, 300, 1_000)) for _ in range(n_cpus)] if r.random() < 0.3 else None,
        nr_idle_scan=[r.randint(0, n_cpus // n_llcs) for _ in range(n_llcs)] if given else None,
        idle_core_hint=[r.randint(0, 1) for _ in range(n_llcs)] if given else None,
        tick_phase_ns=[r.randrange(4 * MS) for _ in range(n_cpus)],
    )
