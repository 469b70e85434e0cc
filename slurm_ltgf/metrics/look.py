"""Fragmentation and budgets, as the daemon last saw them, as families of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from slurm_ltgf.metrics.samples import filled, label, of_type
from slurm_ltgf.service.last_look import Budget, LastLook, Pool

ALL_TYPES = "all"

_OF_POOL: dict[str, Callable[[Pool], float | None]] = {
    "ltgf_fragmentation_score": lambda pool: pool.score,
    "ltgf_pool_free_gpus": lambda pool: pool.free,
    "ltgf_pool_largest_job_gpus": lambda pool: pool.largest,
    "ltgf_pool_largest_possible_job_gpus": lambda pool: pool.largest_possible,
    "ltgf_pool_blocked_jobs": lambda pool: pool.blocked_jobs,
    "gpu_task_fragmentation_score": lambda pool: pool.variance,
}
_OF_BUDGET: dict[str, Callable[[Budget], float | None]] = {
    "ltgf_quota_used_ratio": lambda budget: budget.ratio,
    "ltgf_quota_budget_gpu_seconds": lambda budget: budget.budget_gpu_s,
    "ltgf_quota_used_gpu_seconds": lambda budget: budget.used_gpu_s,
    "ltgf_quota_held_gpu_seconds": lambda budget: budget.held_gpu_s,
    "ltgf_quota_exhausted_timestamp_seconds": lambda budget: budget.exhausted_at,
}


def look_families(cluster: str, look: LastLook | None) -> Iterator[Any]:
    """The families of a look; none without one. cluster: as a label."""
    if look is not None:
        yield from _pools(cluster, look.pools or ())
        yield from _budgets(cluster, look.budgets or ())


def _pools(cluster: str, pools: Iterable[Pool]) -> Iterator[Any]:
    rows = [((cluster, label(one.partition), of_type(one.gpu_type)), one) for one in pools]
    for name, value_of in _OF_POOL.items():
        yield from filled(name, ((labels, value_of(pool)) for labels, pool in rows))
    stranded = (
        ((*labels, label(reason)), gpus)
        for labels, pool in rows
        for reason, gpus in sorted(pool.stranded.items())
    )
    yield from filled("ltgf_pool_stranded_gpus", stranded)


def _budgets(cluster: str, budgets: Iterable[Budget]) -> Iterator[Any]:
    rows = [
        ((cluster, label(one.account), label(one.gpu_type) or ALL_TYPES), one) for one in budgets
    ]
    for name, value_of in _OF_BUDGET.items():
        yield from filled(name, ((labels, value_of(budget)) for labels, budget in rows))
