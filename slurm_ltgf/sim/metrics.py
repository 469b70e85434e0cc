"""What a simulated workload amounts to: the fairness functions of core, applied to its records.

A job's completion time (JCT) counts all jobs that came before the horizon: one that had not ended
by then counts as ended there, so that leaving jobs unfinished flatters nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_ltgf.core.demand import load_of
from slurm_ltgf.core.fairness import LOSS, class_of, fairness, jain
from slurm_ltgf.core.gpus import Pricing
from slurm_ltgf.core.job_fairness import job_fairness
from slurm_ltgf.core.model import UNKNOWN, FloatArray, IntArray, Run, Runs, Tenant, Window, Words
from slurm_ltgf.core.timeline import Supply
from slurm_ltgf.sim.engine import Outcome
from slurm_ltgf.sim.series import DAY_H, HOUR_S, Hours, SizeRow, by_size, hours, quantiles
from slurm_ltgf.sim.workload import Job


@dataclass(frozen=True, slots=True)
class Measures:
    """One policy's row. None: there is no such number.

    Shortfall (mean of max(0, 1 - rho)) and windows are of tenants: rho = U / D over 24 hours,
    hourly. jain: Jain's index of the tenants' shares U / X over the whole time. job_loss, job_fair,
    job_benefit: parts of jobs by rho, below 0.95, above 1.05 and between. preemptions: moves.
    overhead_gpu_s: GPU-seconds of checkpoints and restores; failed_gpu_s: of runs that failed.
    """

    policy: str
    mean_jct_s: float | None
    p50_jct_s: float | None
    p99_jct_s: float | None
    mean_wait_s: float | None
    makespan_s: int
    utilisation: float
    tenant_mean_shortfall: float | None
    worst_window_rho: float | None
    windows_below_095: float | None
    jain: float | None
    jobs_below_095: float | None
    job_rho_p5: float | None
    job_loss: float | None
    job_fair: float | None
    job_benefit: float | None
    preemptions: int
    overhead_gpu_s: int
    failed_gpu_s: int
    unfinished: int
    tenants: tuple[TenantRow, ...] = ()
    by_size: tuple[SizeRow, ...] = ()
    series: Hours | None = None
    quantiles: Mapping[str, list[float | None]] | None = None

    def row(self) -> dict[str, Any]:
        """The numbers alone, by name."""
        parts = ("tenants", "by_size", "series", "quantiles")
        return {name: getattr(self, name) for name in self.__slots__ if name not in parts}

    def as_dict(self) -> dict[str, Any]:
        """All of it in plain types, as JSON says it."""
        return {
            **self.row(),
            "tenants": [asdict(tenant) for tenant in self.tenants],
            "by_size": [asdict(size) for size in self.by_size],
            "series": None if self.series is None else self.series.as_dict(),
            "quantiles": self.quantiles,
        }


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


@dataclass(frozen=True, slots=True)
class _Jobs:
    """The jobs that came before the horizon: (jobs,) each."""

    ids: IntArray
    gpus: IntArray
    jct_s: FloatArray
    wait_s: FloatArray


def measures(
    outcome: Outcome, weights: Mapping[str, float], *, windows_until_s: int | None = None
) -> Measures:
    """Measure an outcome.

    Args:
        weights: tenant -> share, of all tenants of the cluster.
        windows_until_s: 24-hour windows that end later are not counted; None: up to the horizon.
    """
    horizon = max(outcome.horizon, 1)
    came = [job for job in outcome.jobs if job.submit < horizon]
    jobs = _columns(came, horizon)
    runs = runs_of(outcome)
    supply = Supply.constant(dict(weights), outcome.gpus)
    rho = _job_rho(runs, jobs.ids, horizon, weights, supply)
    known = rho[~np.isnan(rho)]
    tenants = _tenant_rows(came, runs, horizon, weights, supply)
    series = hours(runs, horizon, weights, supply)
    last = len(series.attained) if windows_until_s is None else windows_until_s // HOUR_S
    windows = series.rho[DAY_H - 1 : last]
    windows = windows[~np.isnan(windows)]
    used = sum(_used_gpu_s(job, horizon) for job in came)
    classes = [class_of(x) for x in known.tolist()]
    return Measures(
        policy=outcome.policy,
        mean_jct_s=_mean(jobs.jct_s),
        p50_jct_s=_quantile(jobs.jct_s, 0.5),
        p99_jct_s=_quantile(jobs.jct_s, 0.99),
        mean_wait_s=_mean(jobs.wait_s),
        makespan_s=max((job.end for job in came if job.end is not None), default=0),
        utilisation=used / (outcome.gpus * horizon),
        tenant_mean_shortfall=_mean(np.maximum(1 - windows, 0)),
        worst_window_rho=_quantile(windows, 0),
        windows_below_095=_mean(windows < LOSS),
        jain=jain([row.share for row in tenants if row.share is not None]),
        jobs_below_095=_mean(known < LOSS),
        job_rho_p5=_quantile(known, 0.05),
        job_loss=classes.count("loss") / len(classes) if classes else None,
        job_fair=classes.count("fair") / len(classes) if classes else None,
        job_benefit=classes.count("benefit") / len(classes) if classes else None,
        preemptions=sum(job.moves for job in came),
        overhead_gpu_s=outcome.overhead_gpu_s,
        failed_gpu_s=outcome.failed_gpu_s,
        unfinished=sum(job.end is None for job in came),
        tenants=tenants,
        by_size=by_size(jobs.gpus, jobs.jct_s, jobs.wait_s, rho),
        series=series,
        quantiles=quantiles({"jct_s": jobs.jct_s, "wait_s": jobs.wait_s, "job_rho": known}),
    )


def _columns(came: list[Job], horizon: int) -> _Jobs:
    return _Jobs(
        ids=np.array([job.job_id for job in came], dtype=np.int64),
        gpus=np.array([job.gpus for job in came], dtype=np.int64),
        jct_s=np.array([_end(job, horizon) - job.submit for job in came], dtype=np.float64),
        wait_s=np.array([_wait_s(job, horizon) for job in came], dtype=np.float64),
    )


def _job_rho(
    runs: Runs, ids: IntArray, horizon: int, weights: Mapping[str, float], supply: Supply
) -> FloatArray:
    """rho of every job, (jobs,); nan where it is due nothing."""
    names = tuple(sorted(weights))
    tenant_of = {name: name for name in names}
    window = Window(0, horizon)
    loaded = load_of(runs, window, tenants=names, tenant_of=tenant_of, pricing=Pricing())
    indices = job_fairness(
        runs,
        window,
        tenants=names,
        tenant_of=tenant_of,
        supply=supply,
        pricing=Pricing(),
        requeued_work_kept=True,
        loaded=loaded,
    )
    found = indices.rho_by_job_id()
    return np.array([found.get(job_id, np.nan) for job_id in ids.tolist()], dtype=np.float64)


def runs_of(outcome: Outcome) -> Runs:
    """The jobs of an outcome as sacct would tell of them at the horizon."""
    rows = [
        row
        for job in outcome.jobs
        if job.submit < outcome.horizon
        for row in _runs(job, outcome.horizon)
    ]
    n = len(rows)
    columns = list(zip(*rows, strict=True)) if rows else [()] * 7
    job_id, _, begin, start, end = (np.array(columns[i], dtype=np.int64) for i in range(5))
    account, state = (Words.of(columns[i]) for i in (5, 6))
    asked = Words.of(f"gpu={count}" for count in columns[1])
    ran = start != UNKNOWN
    none = len(asked.names)
    told: dict[str, Any] = {
        "account": account,
        "state": state,
        "gres_requested": asked,
        "gres": Words(np.where(ran, asked.codes, none).astype(np.int32), (*asked.names, "")),
        "job_id": job_id,
        "submit": begin,
        "eligible": begin,
        "start": start,
        "end": end,
        "elapsed_s": np.where(ran, end - start, 0),
    }
    for name, default in _DEFAULTS.items():
        if isinstance(default, str):
            told.setdefault(name, Words(np.zeros(n, dtype=np.int32), (default,)))
        else:
            told.setdefault(name, np.full(n, default, dtype=np.int64))
    return Runs(**told)


def _tenant_rows(
    came: list[Job], runs: Runs, horizon: int, weights: Mapping[str, float], supply: Supply
) -> tuple[TenantRow, ...]:
    result = fairness(
        runs,
        Window(0, horizon),
        tenants={name: Tenant(name, weight) for name, weight in weights.items()},
        tenant_of={name: name for name in weights},
        supply=supply,
        pricing=Pricing(),
    )
    waits: dict[str, list[int]] = {name: [] for name in weights}
    jcts: dict[str, list[int]] = {name: [] for name in weights}
    for job in came:
        waits[job.tenant].append(_wait_s(job, horizon))
        jcts[job.tenant].append(_end(job, horizon) - job.submit)
    return tuple(
        TenantRow(
            tenant=index.tenant,
            weight=float(weights[index.tenant]),
            quota_gpus=index.quota_gpus or 0.0,
            attained_gpu_s=float(index.attained_gpu_s),
            rho=index.rho,
            credit=index.credit,
            share=index.share,
            mean_wait_s=_mean(np.array(waits[index.tenant])),
            mean_jct_s=_mean(np.array(jcts[index.tenant])),
        )
        for index in result.tenants
    )


#: Job id, GPUs, eligible, start, end, account, state.
_Row = tuple[int, int, int, int, int, str, str]
#: What a record has in the fields that the simulator knows nothing of.
_DEFAULTS = {
    field.name: field.default for field in fields(Run) if field.name not in ("cluster", "job_id")
} | {"cluster": "sim"}


def _runs(job: Job, horizon: int) -> Iterator[_Row]:
    """Each time that it waited and ran, one record, as after a requeue."""
    begin = job.submit
    who = job.job_id, job.gpus
    for held in job.runs:
        yield *who, begin, held.start, held.end, job.tenant, held.state
        begin = held.end
    if job.start is None:
        yield *who, begin, UNKNOWN, horizon, job.tenant, "PENDING"
    else:
        state = "RUNNING" if job.end is None else "COMPLETED"
        yield *who, begin, job.start, _end(job, horizon), job.tenant, state


def _end(job: Job, horizon: int) -> int:
    return horizon if job.end is None else job.end


def _wait_s(job: Job, horizon: int) -> int:
    """From submit to the first start."""
    first = job.first_start
    return (horizon if first is None else first) - job.submit


def _used_gpu_s(job: Job, horizon: int) -> int:
    last = 0 if job.start is None else _end(job, horizon) - job.start
    return job.gpus * (last + sum(held.end - held.start for held in job.runs))


def _mean(values: FloatArray | IntArray | NDArray[np.bool_]) -> float | None:
    return float(values.mean()) if len(values) else None


def _quantile(values: FloatArray, level: float) -> float | None:
    return float(np.quantile(values, level)) if len(values) else None
