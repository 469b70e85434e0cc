"""`ltgf explain`: why a job is where it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from slurm_ltgf.cli import render
from slurm_ltgf.cli.app import App
from slurm_ltgf.cli.explain_lease import lease_of, requeue_of
from slurm_ltgf.cli.queue import look
from slurm_ltgf.errors import UsageError

if TYPE_CHECKING:
    from slurm_ltgf.core.explain import Explanation
    from slurm_ltgf.service.present import View
    from slurm_ltgf.slurm.queue import QueueJob


@click.command("explain")
@click.argument("job")
@click.option("--json", "json_", is_flag=True, help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, /, *, job: str, json_: bool) -> None:
    """Why a job is where it is: its tenant's GPU-time, who goes before it, what would change it.

    Of a running job also when its lease ends and what comes then; of one that was requeued, why.
    """
    app = App.of(ctx)
    seen = look(app)
    record = _find(seen, job)
    said = _past(app, seen, job) if record is None else _present(app, seen, record)
    if json_:
        render.as_json(said)
        return
    for sentence in said["sentences"]:
        click.echo(render.clean(sentence))


def _find(seen: View, job: str) -> QueueJob | None:
    """The record a user means: by the id squeue shows, a raw id, an array's id, or one task."""
    jobs = [record for record in seen.queue.jobs if not record.is_finished]
    for record in jobs:
        if job in (record.shown_id, str(record.job_id)):
            return record
    base, _, task = job.partition("_")
    pending_first = sorted(jobs, key=lambda record: not record.is_pending)
    for record in pending_first:
        if base == str(record.array_job) and (not task or record.is_pending):
            return record
    return None


def _present(app: App, seen: View, record: QueueJob) -> dict[str, Any]:
    from slurm_ltgf.service.present import explain

    shape: dict[str, Any] = {
        "job_id": record.shown_id,
        "state": record.state,
        "reason": record.reason,
        "priority": record.priority,
        "tenant": seen.measurement.tenant_of[record.account],
        "user": record.user,
    }
    if record.is_holding:
        shape["lease"], said = lease_of(app, seen, record)
        return {**shape, "sentences": _running(seen, record) + said}
    shape["requeued"], before = requeue_of(app, record)
    if record.is_held:
        return {**shape, "sentences": before + _held(record)}
    if record.job_id in seen.frozen:
        return {**shape, "sentences": before + _frozen(record)}
    why = explain(seen, app.config, record.job_id)
    if why is None:
        return {**shape, "sentences": [*before, _not_ours(record)]}
    return {**shape, **_numbers(why), "sentences": before + _said(why, record, seen)}


def _numbers(why: Explanation) -> dict[str, Any]:
    own = why.index
    return {
        "rank": why.turn.rank + 1,
        "of": why.of,
        "rank_without_own_jobs_before": why.rank_alone + 1,
        "gpus": why.turn.job.gpus,
        "tasks": why.turn.job.tasks,
        "tag": render.finite(why.turn.tag),
        "site_factor": why.turn.job.site_factor,
        "turn_at": None if math.isinf(why.turn_at) else int(why.turn_at),
        "attained_gpu_s": own.attained_gpu_s,
        "quota_gpu_s": own.quota_gpu_s,
        "quota_gpus": own.quota_gpus,
        "rho": own.rho,
        "credit": own.credit,
        "share": own.share,
        "ahead": [
            {
                "tenant": row.tenant,
                "jobs": row.jobs,
                "tasks": row.tasks,
                "gpus": row.gpus,
                "credit": row.index.credit,
                "rho": row.index.rho,
            }
            for row in why.ahead
        ],
    }


def _said(why: Explanation, record: QueueJob, seen: View) -> list[str]:
    said = list(why.sentences)
    said.append(
        f"Slurm's priority for it is {record.priority}, of which SiteFactor is "
        f"{render.word(why.turn.job.site_factor)}; Slurm's reason is {record.reason}."
    )
    if not math.isinf(why.turn_at):
        sooner = why.turn_at <= seen.now
        said.append(
            "The GPUs for it and all before it are free now: if it still waits, they are on "
            "nodes or of a type that it cannot use, or Slurm has not looked yet."
            if sooner
            else f"Its turn comes by {render.moment(why.turn_at)} if all running jobs use their "
            "whole time limit, sooner if they end sooner or it fits in between."
        )
    elif why.turn.job.demand:
        said.append(_no_turn(why, seen))
    return said


def _no_turn(why: Explanation, seen: View) -> str:
    asked = sum(row.gpus for row in why.ahead) + why.turn.job.gpus * why.turn.job.tasks
    supply = seen.measurement.supply
    there = float(supply.capacity[-1]) if supply is not None else 0.0
    if asked > there:
        return (
            f"No time can be told for its turn: {asked:.4g} GPUs are asked for up to it and "
            f"{there:.4g} are in service, so jobs before it must start and end first."
        )
    return "No time can be told for its turn: running jobs have no time limit."


def _not_ours(record: QueueJob) -> str:
    return f"Job {record.shown_id} is not managed here (site.partitions, root)."


def _running(seen: View, record: QueueJob) -> list[str]:
    hold = next((hold for hold in seen.holds if hold.job_id == record.job_id), None)
    if hold is None:
        return [_not_ours(record)]
    said = [
        (
            f"Job {record.shown_id} is {record.state} since {render.moment(record.start)} and "
            f"holds {hold.gpus:.4g} GPUs for {hold.tenant}."
        )
    ]
    jobs = seen.measurement.jobs
    rho = jobs.rho_by_job_id().get(record.job_id) if jobs is not None else None
    if rho is not None:
        said.append(f"It has had {rho:.2f} times the GPU-time it was due inside its tenant (rho).")
    return said


def _held(record: QueueJob) -> list[str]:
    return [
        (
            f"Job {record.shown_id} is held ({record.reason}): priority 0, it will not start and "
            "is never touched here."
        ),
        f"`scontrol release {record.job_id}` lets it go; a hold by an admin needs an admin.",
    ]


def _frozen(record: QueueJob) -> list[str]:
    return [
        (
            f"Job {record.shown_id} has priority {record.priority}, set by hand: SiteFactor and "
            "all other terms do not move it."
        ),
        (
            f"`scontrol hold {record.job_id}` and `scontrol release {record.job_id}` give it a "
            "computed priority again."
        ),
    ]


def _past(app: App, seen: View, job: str) -> dict[str, Any]:
    """What is known of a job that is over: sacct's records, or slurmctld's until sacct has them."""
    from slurm_ltgf.service.present import run_of

    with app.ledger(readonly=True) as ledger:
        runs = ledger.find(job).rows()
    if not runs:
        runs = [
            run_of(record, app.cluster())
            for record in seen.queue.finished
            if job in (record.shown_id, str(record.job_id))
        ]
    if not runs:
        raise UsageError(f"job {job}: neither in the queue nor in the ledger")
    sentences = [
        f"Run {i} of job {run.shown_id}: {run.state}, {render.moment(run.start)} to "
        f"{render.moment(run.end)}, waited {render.duration(_waited(run))}, ran "
        f"{render.duration(run.elapsed_s)} with {run.gres or 'no GPUs'} for {run.account}."
        for i, run in enumerate(runs, 1)
    ]
    return {"job_id": job, "state": runs[-1].state, "sentences": sentences}


def _waited(run: Any) -> int:
    return run.start - run.eligible if min(run.start, run.eligible) >= 0 else -1
