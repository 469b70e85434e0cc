"""One measurement: from runs, accounts and capacity to the indices of tenants and jobs.

The daemon, the command line, the report and the simulator all come through `measure`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from slurm_ltgf.core.demand import load_of
from slurm_ltgf.core.fairness import Fairness, fairness
from slurm_ltgf.core.gpus import Pricing, gpus
from slurm_ltgf.core.history import Settled, settle
from slurm_ltgf.core.job_fairness import JobIndices, job_fairness
from slurm_ltgf.core.model import Runs, Tenant, Window
from slurm_ltgf.core.tenants import Tenancy
from slurm_ltgf.core.timeline import Supply


@dataclass(frozen=True, slots=True)
class CapacityStep:
    """From `time` on, this many devices of each GPU type are in service ("": weighted GPUs)."""

    time: int
    gpus: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class WeightStep:
    """From `time` on, tenants have these weights."""

    time: int
    weights: Mapping[str, float]


_Step = TypeVar("_Step", CapacityStep, WeightStep)


@dataclass(frozen=True, slots=True)
class Terms:
    """By what terms a site measures.

    half_life_s: inf for none. requeued_work_kept: see `job_fairness`. pricing: worth of GRES.
    """

    pricing: Pricing
    half_life_s: float = math.inf
    requeued_work_kept: bool = False


@dataclass(frozen=True, slots=True)
class Measurement:
    """Indices over one window, with what they were computed from.

    tenants: every party by name. tenant_of: account -> tenant, for every account in the runs.
    jobs: None when not asked for.
    """

    fairness: Fairness
    tenants: Mapping[str, Tenant]
    tenant_of: Mapping[str, str]
    supply: Supply | None
    settled: Settled
    jobs: JobIndices | None = None


def measure(
    runs: Runs,
    window: Window,
    *,
    tenancy: Tenancy,
    capacity: Sequence[CapacityStep],
    weights: Sequence[WeightStep] = (),
    terms: Terms,
    now: int,
    live: AbstractSet[int] | None = None,
    extra_accounts: Iterable[str] = (),
    with_jobs: bool = False,
    kept: Mapping[tuple[int, int], int] | None = None,
) -> Measurement:
    """Measure a window.

    Args:
        runs: all runs that overlap it, open ones included.
        capacity: steps of GPUs in service, ascending; none: not known. The first also holds before.
        weights: steps of tenants' weights as observed; none: those of the tenancy, at all times.
        now, live: see `history.settle`.
        extra_accounts: accounts to count as in use though no run names them (pending jobs).
        kept: see `job_fairness`.
    """
    settled = settle(runs, now=now, live=live)
    used = _used(runs)
    tenants = {t.name: t for t in tenancy.tenants({*used, *extra_accounts})}
    named = {*used, *extra_accounts, *tenancy.tree.accounts}
    tenant_of = {account: tenancy.tenant_of(account) for account in named}
    supply = supply_of(tenants, capacity, weights, pricing=terms.pricing)
    loaded = load_of(
        settled.runs,
        window,
        tenants=sorted(tenants),
        tenant_of=tenant_of,
        pricing=terms.pricing,
    )
    result = fairness(
        settled.runs,
        window,
        tenants=tenants,
        tenant_of=tenant_of,
        supply=supply,
        pricing=terms.pricing,
        half_life_s=terms.half_life_s,
        loaded=loaded,
    )
    jobs = None
    if with_jobs:
        jobs = job_fairness(
            settled.runs,
            window,
            tenants=tuple(sorted(tenants)),
            tenant_of=tenant_of,
            supply=supply,
            pricing=terms.pricing,
            half_life_s=terms.half_life_s,
            requeued_work_kept=terms.requeued_work_kept,
            loaded=loaded,
            kept=kept,
        )
    return Measurement(result, tenants, tenant_of, supply, settled, jobs)


def supply_of(
    tenants: Mapping[str, Tenant],
    capacity: Sequence[CapacityStep],
    weights: Sequence[WeightStep],
    *,
    pricing: Pricing,
) -> Supply | None:
    """Capacity and weights as steps in one time line; None when capacity is not known."""
    if not capacity:
        return None
    names = tuple(sorted(tenants))
    today = {name: tenant.weight for name, tenant in tenants.items()}
    times = sorted({step.time for step in capacity} | {step.time for step in weights})
    levels = [weighted_gpus(_at(capacity, time).gpus, pricing) for time in times]
    shares = [_at(weights, time).weights if weights else today for time in times]
    return Supply(
        tenants=names,
        times=np.array(times, dtype=np.int64),
        capacity=np.array(levels, dtype=np.float64),
        weights=np.array(
            [[share.get(name, 0.0) for name in names] for share in shares], dtype=np.float64
        ).reshape(len(times), len(names)),
    )


def weighted_gpus(by_type: Mapping[str, float], pricing: Pricing) -> float:
    """Devices by type as weighted GPUs."""
    return math.fsum(
        count * float(gpus(f"gpu:{kind}=1" if kind else "gpu=1", pricing).weighted)
        for kind, count in by_type.items()
    )


def _at(steps: Sequence[_Step], time: int) -> _Step:
    """The step in force; the first also before its time."""
    best = steps[0]
    for step in steps:
        if step.time <= time:
            best = step
    return best


def _used(runs: Runs) -> frozenset[str]:
    used = np.bincount(runs.account.codes, minlength=len(runs.account.names))
    return frozenset(runs.account.names[code] for code in np.flatnonzero(used))
