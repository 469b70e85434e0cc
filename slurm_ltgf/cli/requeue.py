"""`ltgf requeue`: save, then requeue."""

from __future__ import annotations

import click

from slurm_ltgf.cli import moves
from slurm_ltgf.cli.app import App
from slurm_ltgf.errors import UsageError


@click.command("requeue")
@moves.asking
@click.option("--to-partition", default="", metavar="NAMES", help="Where it waits afterwards.")
@click.option("--without-checkpoint", is_flag=True, help="Requeue at once; the work is lost.")
@click.option("--after-signal", metavar="LEAD", help="For the job's own script; see below.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    job_id: str,
    reason: str,
    to_partition: str,
    within: str | None,
    dry_run: bool,
    without_checkpoint: bool,
    after_signal: str | None,
    json_: bool,
) -> None:
    """Have a running job save its work, then requeue it under the same id.

    Waits until every rank has saved and the checkpoint is complete; only then Slurm is told. If
    that takes too long the job runs on as if nothing had been asked. Killed, and called again, it
    goes on where it was. JOBID: 123, or 123_4 of an array; a het job is requeued as a whole.

    With --after-signal, in a batch script whose program saved and ended because Slurm sent it a
    signal: requeues the job if Slurm preempts it or its time limit is near, else does nothing. LEAD
    is the time that --signal names: --after-signal 120s after --signal=B:USR2@120.
    """
    if to_partition:
        from slurm_ltgf.slurm.requeue import checked_partition

        checked_partition(to_partition)
    app = App.of(ctx)
    wish = moves.wish_of("requeue", reason=reason, within=within, to_partition=to_partition)
    if without_checkpoint and after_signal:
        raise UsageError("--without-checkpoint and --after-signal are two different things")
    if after_signal:
        moves.after_signal(app, job_id, wish, lead=after_signal)
        return
    if without_checkpoint:
        moves.requeue_now(app, job_id, wish, dry_run=dry_run, json_=json_)
        return
    moves.carry_out(app, job_id, wish, json_=json_, dry_run=dry_run)
