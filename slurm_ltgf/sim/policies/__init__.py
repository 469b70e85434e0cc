"""Policies, one file each: in which order jobs are tried, and what may not start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_ltgf.sim.policies.base import Policy
from slurm_ltgf.sim.policies.fifo import Fifo
from slurm_ltgf.sim.policies.fifo_static import FifoStatic
from slurm_ltgf.sim.policies.ltgf import Ltgf
from slurm_ltgf.sim.policies.slurm_fairtree import SlurmFairTree


@dataclass(frozen=True, slots=True)
class Site:
    """What a policy may know of the cluster: weights and size; and the terms of LTGF."""

    weights: Mapping[str, float]
    gpus: int
    window_s: float = 86400
    lease_s: float = 3600
    starvation_s: float = 6 * 3600
    floor: float = 0.2


POLICIES: dict[str, Callable[[Site], Policy]] = {
    "fifo-static": lambda site: FifoStatic(site.weights, site.gpus),
    "fifo": lambda site: Fifo(),
    "slurm-fairtree": lambda site: SlurmFairTree(site.weights),
    "ltgf": lambda site: Ltgf(
        site.weights,
        site.gpus,
        window_s=site.window_s,
        lease_s=site.lease_s,
        starvation_s=site.starvation_s,
        floor=site.floor,
    ),
}
