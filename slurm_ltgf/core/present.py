"""What a report tells of the moment it is made: how fragmented pools are, what is left of budgets.

A budget's course is what is left of it, from the report's first stretch to now, and on at the
recent rate: a budget that Slurm forgets by a half-life has no past course, only a forecast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from slurm_ltgf.core.fragmentation import PoolState
from slurm_ltgf.core.model import FloatArray, IntArray
from slurm_ltgf.core.quota import Period, QuotaState

#: Points of a forecast.
POINTS = 24
#: A pool from this score on is worth a sentence, if jobs are blocked there.
SCORE = 0.1
NAMED = 3


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget and its course. times: epoch seconds; left: part of the budget, None: not known."""

    state: QuotaState
    times: tuple[int, ...] = ()
    left: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Present:
    """The site at one moment. pools, budgets None: they could not be asked for; lacking says why.

    period: of the budgets. notes: what a reader must know of the budgets.
    """

    at: int
    pools: tuple[PoolState, ...] | None = None
    budgets: tuple[Budget, ...] | None = None
    period: Period | None = None
    notes: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()


def budget_course(
    state: QuotaState, used: FloatArray, edges: IntArray, period: Period, *, until: int
) -> Budget:
    """A budget with its course.

    Args:
        state: at the last edge.
        used: (k,) GPU-seconds that the account, with all below it, held between the edges.
        edges: (k + 1,) epoch seconds, rising.
        until: how far to forecast.
    """
    now = int(edges[-1])
    if not state.budget_gpu_s:
        return Budget(state)
    counted = state.used_gpu_s if state.counted_gpu_s is None else state.counted_gpu_s
    later = np.append(np.cumsum(used[::-1])[::-1], 0.0)
    times = edges.tolist()
    left: list[float | None] = [
        1 - (counted - after) / state.budget_gpu_s if is_known else None
        for after, is_known in zip(
            later.tolist(),
            ((edges >= period.start) & math.isinf(period.half_life_s)).tolist(),
            strict=True,
        )
    ]
    left[-1] = 1 - counted / state.budget_gpu_s
    for i in range(1, POINTS + 1):
        after_s = (until - now) * i / POINTS
        times.append(now + round(after_s))
        ahead = _counted_after(counted, state.rate_gpus, after_s, period.half_life_s)
        left.append(1 - ahead / state.budget_gpu_s)
    return Budget(state, tuple(times), tuple(_bounded(part) for part in left))


def _counted_after(counted: float, rate_gpus: float, after_s: float, half_life_s: float) -> float:
    """What Slurm counts after so many seconds at the same rate; see `quota.exhausted_at`."""
    if math.isinf(half_life_s):
        return counted + rate_gpus * after_s
    ceiling = rate_gpus * half_life_s / math.log(2)
    part: float = 2 ** (-after_s / half_life_s)
    return ceiling + (counted - ceiling) * part


def _bounded(part: float | None) -> float | None:
    """Nothing starts once a budget is used up, and none has more than all of it."""
    return None if part is None else min(max(part, 0.0), 1.0)


def present_todo(present: Present, budgets: Sequence[Budget]) -> Iterator[str]:
    """What to do about budgets and fragmentation. budgets: those that may be named."""
    said = []
    for level, what in (("over", "used up"), ("warn", "nearly used up")):
        names = [one.state.account for one in budgets if one.state.level == level]
        if names:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            said.append(f"{what}: {', '.join(names[:NAMED])}{more}")
    if said:
        yield f"Budgets {'; '.join(said)}. Raise them, or tell who has them until when they last."
    blocked = [
        pool
        for pool in present.pools or ()
        if pool.blocked_jobs and pool.score is not None and pool.score >= SCORE
    ]
    if blocked:
        worst = max(blocked, key=lambda pool: (pool.blocked_jobs, pool.name))
        jobs = f"{worst.blocked_jobs:,} jobs fit"
        yield (
            f"In {worst.name} {'1 job fits' if worst.blocked_jobs == 1 else jobs} nowhere though "
            "enough GPUs are free: `ltgf frag --plan` says what would make room."
        )
