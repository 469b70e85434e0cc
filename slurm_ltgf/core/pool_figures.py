"""A pool's fragmentation as a row for programs: the same names in every command."""

from __future__ import annotations

from typing import Any

from slurm_ltgf.core.fragmentation import PoolState


def pool_figures(pool: PoolState) -> dict[str, Any]:
    """The figures of `PoolState`."""
    return {
        "partition": pool.partition,
        "gpu_type": pool.gpu_type or None,
        "gpus": pool.gpus,
        "free_gpus": pool.free_gpus,
        "usable_gpus": pool.usable_gpus,
        "score": pool.score,
        "unallocatable_gpus": pool.unallocatable_gpus,
        "variance": pool.variance,
        "largest_gpus": pool.largest,
        "largest_possible_gpus": pool.largest_possible,
        "demand": pool.demand.source,
        "demand_jobs": sum(kind.jobs for kind in pool.demand.kinds),
        "blocked_jobs": pool.blocked_jobs,
        "too_large_jobs": pool.too_large_jobs,
    }
