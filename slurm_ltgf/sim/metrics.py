"""What a simulated workload amounts to: the fairness functions of core, applied to its records.

A job's completion time (JCT) counts all jobs: one that had not ended by the horizon counts as ended
there, so that leaving jobs unfinished flatters nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slurm_ltgf.core.demand import load_of
from slurm_ltgf.core.fairness import LOSS, fairness
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.job_fairness import job_fairness
from slurm_ltgf.core.model import UNKNOWN, FloatArray, Run, Runs, Tenant, Window
from slurm_ltgf.core.timeline import Supply
from slurm_ltgf.sim.engine import Outcome
from slurm_ltgf.sim.workload import Job

HOUR_S, DAY_H = 3600, 24


@dataclass(frozen=True, slots=True)
class Measures:
    """One policy's row. Shortfall and windows are of tenants: rho = U / D over 24 hours, hourly."""

    policy: str
    mean_jct_s: float
    p50_jct_s: float
    p99_jct_s: float
    mean_wait_s: float
    makespan_s: int
    utilisation: float
    tenant_mean_shortfall: float | None
    worst_window_rho: float | None
    windows_below_095: float | None
    jobs_below_095: float | None
    job_rho_p5: float | None
    preemptions: int
    overhead_gpu_s: int
    unfinished: int
    tenants: tuple[TenantRow, ...] = ()


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant over the whole simulation, and how its jobs waited."""

    tenant: str
    weight: float
    quota_gpus: float
    attained_gpu_s: float
    rho: float | None
    credit: float | None
    share: float | None
    mean_wait_s: float | None
    mean_jct_s: float | None


def measures(outcome: Outcome, weights: Mapping[str, float]) -> Measures:
    """Measure an outcome.

    Args:
        weights: tenant -> share, of all tenants of the cluster.
    """
    runs = runs_of(outcome)
    horizon = outcome.horizon
    window = Window(0, max(horizon, 1))
    names = tuple(sorted(weights))
    tenant_of = {name: name for name in names}
    supply = Supply.constant(dict(weights), outcome.gpus)
    pricing = Pricing()
    loaded = load_of(runs, window, tenants=list(names), tenant_of=tenant_of, pricing=pricing)
    jobs = job_fairness(
        runs,
        window,
        tenants=names,
        tenant_of=tenant_of,
        supply=supply,
        pricing=pricing,
        requeued_work_kept=True,
        loaded=loaded,
    )
    rho = jobs.rho[~np.isnan(jobs.rho)]
    by_window = window_rhos(runs, horizon, weights, supply)
    known = by_window[~np.isnan(by_window)]
    jct = np.array([_end(job, horizon) - job.submit for job in outcome.jobs], dtype=np.float64)
    used = sum(_used_gpu_s(job, horizon) for job in outcome.jobs)
    return Measures(
        policy=outcome.policy,
        mean_jct_s=float(jct.mean()),
        p50_jct_s=float(np.percentile(jct, 50)),
        p99_jct_s=float(np.percentile(jct, 99)),
        mean_wait_s=float(np.mean([_wait_s(job, horizon) for job in outcome.jobs])),
        makespan_s=max((job.end for job in outcome.jobs if job.end is not None), default=0),
        utilisation=used / (outcome.gpus * max(horizon, 1)),
        tenant_mean_shortfall=_or_none(np.maximum(1 - known, 0).mean() if len(known) else None),
        worst_window_rho=_or_none(known.min() if len(known) else None),
        windows_below_095=_or_none((known < LOSS).mean() if len(known) else None),
        jobs_below_095=_or_none((rho < LOSS).mean() if len(rho) else None),
        job_rho_p5=_or_none(np.percentile(rho, 5) if len(rho) else None),
        preemptions=sum(job.moves for job in outcome.jobs),
        overhead_gpu_s=outcome.overhead_gpu_s,
        unfinished=sum(job.end is None for job in outcome.jobs),
        tenants=_tenant_rows(outcome, runs, weights, supply),
    )


def runs_of(outcome: Outcome) -> Runs:
    """The jobs of an outcome as sacct would tell of them at the horizon."""
    return Runs.of([run for job in outcome.jobs for run in _runs(job, outcome.horizon)])


def window_rhos(
    runs: Runs, horizon: int, weights: Mapping[str, float], supply: Supply
) -> FloatArray:
    """rho of every tenant in every whole 24-hour window, hourly: (windows, n); nan where idle.

    U and D of a window are the sums of its hours' (both are integrals).
    """
    hours = horizon // HOUR_S
    attained = np.zeros((hours + 1, len(weights)))
    deserved = np.zeros((hours + 1, len(weights)))
    tenants = {name: Tenant(name, weight) for name, weight in weights.items()}
    tenant_of = {name: name for name in weights}
    begin = np.where(runs.eligible == UNKNOWN, runs.start, runs.eligible)
    for hour in range(hours):
        window = Window(hour * HOUR_S, (hour + 1) * HOUR_S)
        there = runs.take((begin < window.end) & (runs.end > window.start))
        result = fairness(
            there,
            window,
            tenants=tenants,
            tenant_of=tenant_of,
            supply=supply,
            pricing=Pricing(),
        )
        attained[hour + 1] = [row.attained_gpu_s for row in result.tenants]
        deserved[hour + 1] = [row.deserved_gpu_s or 0.0 for row in result.tenants]
    sums_u, sums_d = attained.cumsum(axis=0), deserved.cumsum(axis=0)
    if hours < DAY_H:
        return np.empty((0, len(weights)))
    u = sums_u[DAY_H:] - sums_u[:-DAY_H]
    d = sums_d[DAY_H:] - sums_d[:-DAY_H]
    rho: FloatArray = np.divide(u, d, out=np.full_like(u, np.nan), where=d > 1e-6)
    return rho


def _tenant_rows(
    outcome: Outcome, runs: Runs, weights: Mapping[str, float], supply: Supply
) -> tuple[TenantRow, ...]:
    result = fairness(
        runs,
        Window(0, max(outcome.horizon, 1)),
        tenants={name: Tenant(name, weight) for name, weight in weights.items()},
        tenant_of={name: name for name in weights},
        supply=supply,
        pricing=Pricing(),
    )
    rows = []
    for index in result.tenants:
        own = [job for job in outcome.jobs if job.tenant == index.tenant]
        rows.append(
            TenantRow(
                tenant=index.tenant,
                weight=float(weights[index.tenant]),
                quota_gpus=index.quota_gpus or 0.0,
                attained_gpu_s=float(index.attained_gpu_s),
                rho=index.rho,
                credit=index.credit,
                share=index.share,
                mean_wait_s=_mean([_wait_s(job, outcome.horizon) for job in own]),
                mean_jct_s=_mean([_end(job, outcome.horizon) - job.submit for job in own]),
            )
        )
    return tuple(rows)


def _runs(job: Job, horizon: int) -> list[Run]:
    """Each time that it waited and ran, one record, as after a requeue."""
    found = []
    eligible = job.submit
    for held in job.runs:
        found.append(_run(job, eligible, held.start, held.end, held.state))
        eligible = held.end
    if job.start is None:
        return [*found, _run(job, eligible, None, horizon, "PENDING")]
    state = "RUNNING" if job.end is None else "COMPLETED"
    return [*found, _run(job, eligible, job.start, _end(job, horizon), state)]


def _run(job: Job, eligible: int, start: int | None, end: int, state: str) -> Run:
    gres = f"gpu={job.gpus}"
    return Run(
        "sim",
        job.job_id,
        account=job.tenant,
        state=state,
        submit=eligible,
        eligible=eligible,
        start=UNKNOWN if start is None else start,
        end=end,
        elapsed_s=0 if start is None else end - start,
        gres="" if start is None else gres,
        gres_requested=gres,
    )


def _end(job: Job, horizon: int) -> int:
    return horizon if job.end is None else job.end


def _wait_s(job: Job, horizon: int) -> int:
    """From submit to the first start."""
    first = job.first_start
    return (horizon if first is None else first) - job.submit


def _used_gpu_s(job: Job, horizon: int) -> int:
    last = 0 if job.start is None else _end(job, horizon) - job.start
    return job.gpus * (last + sum(held.end - held.start for held in job.runs))


def _mean(values: list[int]) -> float | None:
    return float(np.mean(values)) if values else None


def _or_none(value: float | None) -> float | None:
    return None if value is None else float(value)
