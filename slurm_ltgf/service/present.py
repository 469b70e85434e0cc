"""The site now: history and queue in one table, measured and ordered."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import chain

from slurm_ltgf.core.explain import Explanation
from slurm_ltgf.core.explain import explain as explain_turn
from slurm_ltgf.core.gpus import Pricing, gpus
from slurm_ltgf.core.measure import CapacityStep, Measurement, WeightStep, measure
from slurm_ltgf.core.model import NO_LIMIT, UNKNOWN, PendingJob, Run, Runs, Window
from slurm_ltgf.core.plan import Hold, Plan, plan
from slurm_ltgf.core.tenants import Tenancy
from slurm_ltgf.service.edges import Edges, Memory
from slurm_ltgf.service.observed import capacity_steps, observe_site, weight_steps
from slurm_ltgf.service.terms import is_managed, managed, rules_of, scale_of, tenancy_of, terms_of
from slurm_ltgf.slurm.nodes import Capacity
from slurm_ltgf.slurm.queue import Priorities, Queue, QueueJob, demand_tasks
from slurm_ltgf.store.config import Config
from slurm_ltgf.store.ledger import Ledger


@dataclass(frozen=True, slots=True)
class View:
    """The site at one moment: what was measured, and what follows for the queue."""

    now: int
    queue: Queue
    capacity: Capacity
    measurement: Measurement
    jobs: tuple[PendingJob, ...]
    holds: tuple[Hold, ...]
    plan: Plan
    held: tuple[QueueJob, ...]
    frozen: frozenset[int]
    notes: tuple[str, ...] = ()


def view(
    edges: Edges,
    ledger: Ledger,
    config: Config,
    *,
    queue: Queue,
    now: int,
    memory: Memory | None = None,
) -> View:
    """The site now: measured, ordered, with the writes that would bring Slurm's order to ours.

    A ledger opened for reading is read only.
    """
    accounts, capacity = observe_site(edges, ledger, config, now=now, memory=memory)
    terms = terms_of(config, shards_per_gpu=capacity.per_gpu("shard"))
    window = _live_window(config, ledger, edges.cluster, now)
    ours = _ours(queue, config)
    known = managed(ledger.runs(edges.cluster, window), config)
    runs, live = live_runs(known, ours, edges.cluster, now=now)
    tenancy = tenancy_of(config, accounts)
    measurement = measure(
        runs,
        window,
        tenancy=tenancy,
        capacity=_capacity_steps(ledger, config, edges.cluster, window, capacity),
        weights=_weight_steps(ledger, edges.cluster, window, tenancy),
        terms=terms,
        now=now,
        live=live,
        extra_accounts={job.account for job in queue.jobs},
        with_jobs=True,
        kept=ledger.kept(edges.cluster, window.start),
    )
    of_tenants = [
        job for job in ours.pending if measurement.tenant_of[job.account] in measurement.tenants
    ]
    priorities = edges.priorities()
    jobs = _waiting(queue, of_tenants, measurement, terms.pricing, priorities, ledger, now=now)
    holds = tuple(_hold(job, measurement, terms.pricing) for job in ours.holding)
    return View(
        now=now,
        queue=queue,
        capacity=capacity,
        measurement=measurement,
        jobs=jobs,
        holds=holds,
        plan=_decided(jobs, holds, measurement, config, now=now),
        held=tuple(job for job in of_tenants if job.is_held),
        frozen=priorities.frozen,
        notes=_view_notes(measurement, queue, capacity),
    )


def _decided(
    jobs: tuple[PendingJob, ...],
    holds: tuple[Hold, ...],
    measurement: Measurement,
    config: Config,
    *,
    now: int,
) -> Plan:
    supply = measurement.supply
    return plan(
        jobs,
        holds,
        measurement.fairness.tenants,
        key=config.queue.key,
        rules=rules_of(config),
        scale=scale_of(config),
        capacity_gpus=float(supply.capacity[-1]) if supply is not None else 0.0,
        now=now,
        rho=measurement.jobs.rho_by_job_id() if measurement.jobs is not None else {},
    )


def _waiting(
    queue: Queue,
    of_tenants: list[QueueJob],
    measurement: Measurement,
    pricing: Pricing,
    priorities: Priorities,
    ledger: Ledger,
    *,
    now: int,
) -> tuple[PendingJob, ...]:
    """The records to order: neither held nor frozen by a priority that was set by hand."""
    tasks = demand_tasks(queue.jobs, now)
    return tuple(
        _pending(
            job,
            measurement,
            pricing,
            site_factor=_factor(job, priorities, ledger),
            tasks=tasks[job.job_id],
        )
        for job in of_tenants
        if not job.is_held and job.job_id not in priorities.frozen
    )


def live_runs(known: Runs, queue: Queue, cluster: str, *, now: int) -> tuple[Runs, frozenset[int]]:
    """History and queue as one table, each run once; and the ids that slurmctld holds.

    What waits is taken from the queue alone, which knows holds and dependencies. What runs or has
    just ended is in the database too, sooner or later: a run of the queue that the ledger has (same
    job and start) is not added again.
    """
    ran = known.take((known.start != UNKNOWN) | (known.end != UNKNOWN))
    have = set(zip(ran.job_id.tolist(), ran.start.tolist(), strict=True))
    tasks = demand_tasks(queue.jobs, now)
    fresh = [
        run_of(job, cluster)
        for job in chain(queue.holding, queue.finished)
        if has_run(job) and (job.job_id, job.start) not in have
    ]
    waiting = [
        replace(run_of(job, cluster), end=now, tasks=tasks[job.job_id])
        for job in queue.pending
        if tasks[job.job_id] > 0
    ]
    live = frozenset(job.job_id for job in chain(queue.holding, queue.pending))
    return Runs.concat([ran, Runs.of([*fresh, *waiting])]), live


def has_run(job: QueueJob) -> bool:
    """Whether the record is of a run: squeue has a start also for what was cancelled waiting."""
    return job.start != UNKNOWN and (job.end == UNKNOWN or job.end > job.start)


def run_of(job: QueueJob, cluster: str) -> Run:
    """A record of the queue as the run that sacct will tell of, under the same key."""
    ran = job.start != UNKNOWN
    return Run(
        cluster=cluster,
        job_id=job.job_id,
        account=job.account,
        user=job.user,
        partition=job.partition,
        state=job.state,
        submit=job.submit,
        eligible=job.eligible,
        start=job.start,
        end=job.end,
        elapsed_s=job.end - job.start if ran and job.end != UNKNOWN else UNKNOWN,
        limit_s=job.limit_s,
        gres=job.gres if ran else "",
        gres_requested=job.gres,
        array_job=job.array_job,
        array_task=job.array_task,
        het_job=job.het_job,
        het_offset=job.het_offset,
        restarts=job.restarts,
        nodes=job.nodes,
    )


def explain(seen: View, config: Config, job_id: int) -> Explanation | None:
    """Why a pending job is where it is; None: it is not in the order."""
    indices = {row.tenant: row for row in seen.measurement.fairness.tenants}
    return explain_turn(job_id, seen.plan, indices, rules=rules_of(config), now=seen.now)


def _live_window(config: Config, ledger: Ledger, cluster: str, now: int) -> Window:
    length = config.fairness.window_s
    if length < math.inf:
        return Window(now - int(length), now)
    first = ledger.holdings(cluster).first
    return Window(now - 1 if first is None else min(first, now - 1), now)


def _capacity_steps(
    ledger: Ledger, config: Config, cluster: str, window: Window, capacity: Capacity
) -> list[CapacityStep]:
    """What the settings say, else what was observed and what is there now."""
    if config.fairness.capacity_gpus:
        return [CapacityStep(window.start, {"": config.fairness.capacity_gpus})]
    steps = capacity_steps(ledger, cluster, window)
    return [*steps, CapacityStep(window.end, capacity.by_type())]


def _weight_steps(
    ledger: Ledger, cluster: str, window: Window, tenancy: Tenancy
) -> list[WeightStep]:
    """What was observed and what holds now."""
    today = {tenant.name: tenant.weight for tenant in tenancy.tenants()}
    return [*weight_steps(ledger, cluster, window), WeightStep(window.end, today)]


def _ours(queue: Queue, config: Config) -> Queue:
    """The records of the site's partitions."""
    jobs = tuple(job for job in queue.jobs if is_managed(job.partition, config))
    return replace(queue, jobs=jobs)


def _pending(
    job: QueueJob,
    measurement: Measurement,
    pricing: Pricing,
    *,
    site_factor: int | None,
    tasks: int,
) -> PendingJob:
    worth = gpus(job.gres, pricing)
    return PendingJob(
        job_id=job.job_id,
        tenant=measurement.tenant_of[job.account],
        gpus=float(worth.weighted),
        submit=job.submit,
        eligible=job.eligible,
        account=job.account,
        user=job.user,
        partition=job.partition,
        reason=job.reason,
        priority=job.priority,
        site_factor=site_factor,
        tasks=max(tasks, 1),
        shown_id=job.shown_id,
        demand=tasks > 0,
        restarts=job.restarts,
    )


def _factor(job: QueueJob, priorities: Priorities, ledger: Ledger) -> int | None:
    """A job's SiteFactor: sprio's; of jobs that it leaves out (arrays at their throttle,
    dependencies) what we last wrote."""
    if job.job_id in priorities.site:
        return priorities.site[job.job_id]
    return last_written(ledger, job.job_id)


def last_written(ledger: Ledger, job_id: int) -> int | None:
    """The SiteFactor that we last gave a job; None: none."""
    last = ledger.audit_last(1, job_id=str(job_id), action="sitefactor")
    return int(last[0].new) if last and last[0].new is not None else None


def _hold(job: QueueJob, measurement: Measurement, pricing: Pricing) -> Hold:
    limited = job.start != UNKNOWN and job.limit_s not in (UNKNOWN, NO_LIMIT)
    return Hold(
        job_id=job.job_id,
        tenant=measurement.tenant_of[job.account],
        gpus=float(gpus(job.gres, pricing).weighted),
        start=job.start,
        until=float(job.start + job.limit_s) if limited else math.inf,
    )


def _view_notes(measurement: Measurement, queue: Queue, capacity: Capacity) -> tuple[str, ...]:
    notes = [
        f"{part.runs} runs ({part.seconds} s) could not be priced and are in no sum: {part.reason}"
        for part in measurement.fairness.unpriced
    ]
    skipped = [*queue.skipped, *capacity.skipped]
    if skipped:
        notes.append(
            f"{len(skipped)} rows of squeue or sinfo could not be read, first: {skipped[0].reason}"
        )
    return tuple(notes)
