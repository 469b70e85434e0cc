"""The site's settings as the core's terms: tenants, worth of GRES, rules of the order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from slurm_ltgf.core.factor import Scale
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.measure import Terms
from slurm_ltgf.core.model import Account, Runs
from slurm_ltgf.core.order import Rules
from slurm_ltgf.core.tenants import Tenancy
from slurm_ltgf.errors import ConfigError
from slurm_ltgf.store.config import Config


def tenancy_of(
    config: Config, accounts: Sequence[Account], weights: Mapping[str, float] | None = None
) -> Tenancy:
    """The site's tenants by its settings; weights given on the command line beat these."""
    given = {**config.fairness.weights, **(weights or {})}
    try:
        tenancy = _tenancy(config, accounts, given)
        if config.fairness.weights_from == "grptres":
            quotas = {t.name: t.gpu_limit or 0.0 for t in tenancy.tenants()}
            tenancy = _tenancy(config, accounts, {**quotas, **given})
        return tenancy
    except ValueError as exc:
        raise ConfigError(f"tenants: {exc}") from exc


def _tenancy(config: Config, accounts: Sequence[Account], weights: Mapping[str, float]) -> Tenancy:
    return Tenancy(
        accounts,
        level=config.fairness.tenant_level,
        weights=weights,
        excluded=config.fairness.exclude_accounts,
    )


def is_managed(partition: str, config: Config) -> bool:
    """Whether a job of this partition, or of several ("cpu,gpu"), is in the site's care.

    One that no record names is: it cannot be told to be another's.
    """
    wanted = config.site.partitions
    return not wanted or not partition or not set(wanted).isdisjoint(partition.split(","))


def managed(runs: Runs, config: Config) -> Runs:
    """The runs in the site's partitions: capacity counts only their nodes, so use must too."""
    if not config.site.partitions:
        return runs
    ours = np.array([is_managed(name, config) for name in runs.partition.names], dtype=np.bool_)
    return runs.take(ours[runs.partition.codes]) if len(runs) else runs


def pricing_of(config: Config, *, shards_per_gpu: int = 0) -> Pricing:
    """Worth of GRES by the site's settings, shards per GPU as its nodes have it where not set."""
    return Pricing(
        weights=dict(config.fairness.gpu_weights),
        mps_per_gpu=config.fairness.mps_per_gpu,
        shards_per_gpu=config.fairness.shards_per_gpu or shards_per_gpu,
        mig_slices=dict(config.fairness.mig_slices),
    )


def terms_of(config: Config, *, shards_per_gpu: int = 0) -> Terms:
    """How the site measures."""
    return Terms(
        pricing=pricing_of(config, shards_per_gpu=shards_per_gpu),
        half_life_s=config.fairness.half_life_s,
        requeued_work_kept=config.fairness.requeued_work == "kept",
    )


def rules_of(config: Config) -> Rules:
    """How the site orders."""
    return Rules(
        lease_s=config.queue.lease_s,
        starvation_s=config.queue.starvation_s,
        floor=config.queue.floor,
        site_priority=config.queue.priority_bound,
    )


def scale_of(config: Config) -> Scale:
    """The site's labels."""
    try:
        return Scale(head=config.queue.head, step=config.queue.step)
    except ValueError as exc:
        raise ConfigError(f"queue: {exc}") from exc
