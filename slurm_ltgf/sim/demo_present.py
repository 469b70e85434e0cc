"""The invented site at the end of its weeks: which GPUs are free, and what is left of budgets.

Its budgets begin anew each month; three accounts have one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from slurm_ltgf.core.fragmentation import Demand, Kind, Parts, PoolState, parts_of, pool_state
from slurm_ltgf.core.model import UNKNOWN
from slurm_ltgf.core.pools import Place, Shape
from slurm_ltgf.core.present import Budget, Present, budget_course
from slurm_ltgf.core.quota import Period, Use, quota_state
from slurm_ltgf.core.report import Facts
from slurm_ltgf.sim.demo import END, WEEK_S

#: The month that the budgets are of: November 2026 and five days, so that there is a forecast.
MONTH = Period(END - 3 * WEEK_S, END + WEEK_S)
PER_NODE = 8
#: One in so many jobs of one GPU has just ended, so that there is something free.
JUST_ENDED = 3
POOLS = (("gpu", "a100"), ("short", "a100"), ("h100", "h100"))
#: Account -> its budget in GPU-hours.
BUDGETS_H = {"astro": 6_400, "bio": 5_000, "climate": 5_500, "speech": 6_000}
#: GPU-hours used in the month before the report's week.
USED_BEFORE_H = {"astro": 1_700, "bio": 1_400, "climate": 4_400, "speech": 900}


def demo_present(facts: Facts) -> Present:
    """The invented site at its end. facts: of its last week."""
    return Present(END, tuple(_pools(facts)), tuple(_budgets(facts)), MONTH)


def _pools(facts: Facts) -> Iterator[PoolState]:
    """The pools, by what held GPUs and what waited."""
    runs = facts.rows.runs
    held: Counter[str] = Counter()
    for i in np.flatnonzero((runs.end >= END) & (runs.start != UNKNOWN)).tolist():
        if facts.rows.gpus[i] == 1 and runs.job_id[i] % JUST_ENDED == 0:
            continue
        nodes = runs.nodes[i].split(",")
        for node in nodes:
            held[node] += round(float(facts.rows.gpus[i]) / len(nodes))
    waiting: dict[str, Counter[Parts]] = {name: Counter() for name, _ in POOLS}
    for i in np.flatnonzero(~np.isnan(facts.rows.waiting_s)).tolist():
        name, gpus = runs.partition[i], float(facts.rows.gpus[i])
        kind = "h100" if name == "h100" else "a100"
        shape = Shape(0, [name], kind, gpus, max(round(gpus / PER_NODE), 1))
        waiting[name][parts_of(shape, PER_NODE)] += 1
    for name, kind in POOLS:
        nodes = sorted({node for node in held if node.startswith(kind[0])})
        places = [
            Place(node, frozenset({name}), kind, PER_NODE, max(PER_NODE - held[node], 0))
            for node in nodes
        ]
        kinds = tuple(Kind(parts, jobs) for parts, jobs in waiting[name].items())
        yield pool_state(name, kind, places, Demand(kinds, "pending") if kinds else Demand())


def _budgets(facts: Facts) -> Iterator[Budget]:
    found = facts.course
    for account, hours in BUDGETS_H.items():
        used = found.attained[:, found.tenants.index(account)]
        counted = USED_BEFORE_H[account] * 3600 + float(used.sum())
        rate = float(used[-24:].sum()) / (found.edges[-1] - found.edges[-25])
        state = quota_state(
            account,
            budget_gpu_s=hours * 3600,
            use=Use(counted, counted, held_gpu_s=rate * 3600, gpus=rate, rate_gpus=rate),
            period=MONTH,
            now=END,
        )
        yield budget_course(state, used, found.edges, MONTH, until=END + WEEK_S)
