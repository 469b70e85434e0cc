"""Policies, one file each: in which order jobs are tried, what may not start, who gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slurm_ltgf.core.lease import LeaseRules
from slurm_ltgf.core.order import Rules
from slurm_ltgf.sim.policies.base import Policy
from slurm_ltgf.sim.policies.fifo import Fifo
from slurm_ltgf.sim.policies.fifo_static import FifoStatic
from slurm_ltgf.sim.policies.ltgf import Ltgf, LtgfLease
from slurm_ltgf.sim.policies.slurm_fairtree import SlurmFairTree


@dataclass(frozen=True, slots=True)
class Site:
    """What a policy may know of the cluster: weights and size; and the terms of LTGF."""

    weights: Mapping[str, float]
    gpus: int
    window_s: float = 86400
    rules: Rules = field(default_factory=Rules)
    lease_rules: LeaseRules = field(default_factory=lambda: LeaseRules(concurrency=1_000_000))
    cost_s: float = 25


POLICIES: dict[str, Callable[[Site], Policy]] = {
    "fifo-static": lambda site: FifoStatic(site.weights, site.gpus),
    "fifo": lambda site: Fifo(),
    "slurm-fairtree": lambda site: SlurmFairTree(site.weights),
    "ltgf": lambda site: Ltgf(site.weights, site.gpus, window_s=site.window_s, rules=site.rules),
    "ltgf-lease": lambda site: LtgfLease(
        site.weights,
        site.gpus,
        window_s=site.window_s,
        rules=site.rules,
        lease_rules=site.lease_rules,
        cost_s=site.cost_s,
    ),
}
