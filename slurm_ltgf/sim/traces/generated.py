"""A seeded workload with the statistics of Microsoft's Philly trace: the default of `simulate`.

Sizes are philly.csv's counts by GPUs (82,133 jobs); run times are drawn log-linearly between its
published quantiles; tenants have Zipf weights, and ask in other proportions than they weigh.
"""

from __future__ import annotations

import numpy as np

from slurm_ltgf.sim.workload import Job, Workload, workload

SIZES = {1: 76_627, 2: 1_818, 4: 1_870, 8: 1_643, 16: 199, 32: 67}
#: Run time quantiles, seconds: the median, 90 % and 99 % are philly.csv's.
RUN_TIMES = ((0.0, 20), (0.5, 1_144), (0.9, 11_266), (0.99, 254_884), (1.0, 1_000_000))


def generated(
    *, jobs: int = 2_000, tenants: int = 8, gpus: int = 64, load: float = 0.95, seed: int = 1
) -> tuple[Workload, dict[str, float]]:
    """A workload and its tenants' weights; the same arguments give the same jobs.

    Args:
        gpus: of the cluster that it is for; larger jobs are not drawn.
        load: GPU-seconds asked for over GPU-seconds there, over the time of arrivals.
    """
    random = np.random.default_rng(seed)
    sizes = np.array([size for size in SIZES if size <= gpus])
    counts = np.array([SIZES[int(size)] for size in sizes], dtype=float)
    size = random.choice(sizes, jobs, p=counts / counts.sum())
    points = np.array([p for p, _ in RUN_TIMES]), np.log([t for _, t in RUN_TIMES])
    run = np.exp(np.interp(random.random(jobs), *points)).astype(int)
    span = float((size * run).sum()) / (gpus * load)
    submit = np.sort(random.random(jobs) * span).astype(int)
    weight = 1.0 / np.arange(1, tenants + 1)
    asks = random.permutation(weight)
    owner = random.choice(tenants, jobs, p=asks / asks.sum())
    names = [f"t{i + 1:02}" for i in range(tenants)]
    made = [
        Job(i + 1, names[owner[i]], int(size[i]), int(submit[i]), int(run[i]), int(run[i]))
        for i in range(jobs)
    ]
    weights = {name: round(float(w), 4) for name, w in zip(names, weight, strict=True)}
    return workload(made, name=f"generated, seed {seed}"), weights
